// What the page uses of three.js. See README.md for how three.bundle.min.js is made of it.
export {
  AmbientLight, BackSide, BoxGeometry, BufferAttribute, BufferGeometry, CapsuleGeometry, Color, ConeGeometry, CubeTexture, CylinderGeometry,
  DirectionalLight, DoubleSide, DynamicDrawUsage, EdgesGeometry, Float32BufferAttribute, FrontSide, Group, HemisphereLight, InstancedMesh,
  LineBasicMaterial, LineSegments, Matrix4, Mesh, MeshBasicMaterial, MeshPhysicalMaterial, MeshStandardMaterial, PCFShadowMap,
  PerspectiveCamera, PlaneGeometry, Quaternion, RepeatWrapping, SRGBColorSpace, Scene, ShadowMaterial, SphereGeometry, Texture, Vector3,
  WebGLRenderer,
} from "three";
export { toCreasedNormals } from "three/examples/jsm/utils/BufferGeometryUtils.js";
