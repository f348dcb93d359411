// Geometries of the shapes (along z, as the model has them), materials, and sets of rods and balls.

let decoded = 0;
const pictures = data.textures.map(pictureOf);
/** A texture whose images are texts of the page: of a plane, or of a cube with the sides of OpenGL. */
function pictureOf({ images, sides, clear }) {
  const cube = sides.length === 6, elements = images.map(() => new Image());
  const texture = cube ? new THREE.CubeTexture(sides.map((i) => elements[i])) : new THREE.Texture(elements[0]);
  Object.assign(texture, { colorSpace: THREE.SRGBColorSpace, flipY: false, anisotropy: 8 });
  if (!cube) texture.wrapS = texture.wrapT = THREE.RepeatWrapping;
  Promise.all(elements.map((element, i) => { element.src = images[i]; return element.decode(); }))
    .then(() => { texture.needsUpdate = true; root.dataset.pictures = String(++decoded); touch(); });
  return { texture, cube, clear };
}

const geometries = new Map();
const upright = (geometry, turn = 0) => geometry.rotateX(Math.PI / 2).rotateZ(turn);  // three.js has its shapes along y
const SHAPES = {
  box: ([x, y, z]) => new THREE.BoxGeometry(2 * x, 2 * y, 2 * z),
  sphere: ([r]) => upright(new THREE.SphereGeometry(r, 40, 24), Math.PI),  // turned so that its picture begins at x
  ellipsoid: ([x, y, z]) => upright(new THREE.SphereGeometry(1, 40, 24), Math.PI).scale(x, y, z),
  capsule: ([r, half]) => upright(new THREE.CapsuleGeometry(r, 2 * half, 10, 32), Math.PI),
  cylinder: ([r, half]) => upright(new THREE.CylinderGeometry(r, r, 2 * half, 48), Math.PI / 2),
  cone: ([r, half]) => upright(new THREE.ConeGeometry(r, 2 * half, 48)),
  plane: ([x, y]) => new THREE.PlaneGeometry(2 * (x > 0 ? x : 12 * radius), 2 * (y > 0 ? y : 12 * radius)),
};
/** Places in a picture of the vertices of a shape, (0, 0) at its first row and column, as MuJoCo has them: on the sides of a box, on a plane
 *  and on the ends of a cylinder along its axes, else around and down. */
function texcoordsOf(shape, geometry, size) {
  const { position, normal, uv } = geometry.attributes, out = new Float32Array(2 * position.count);
  for (let i = 0; i < position.count; i++) {
    const p = [position.getX(i), position.getY(i), position.getZ(i)], n = [normal.getX(i), normal.getY(i), normal.getZ(i)].map(Math.abs);
    if (shape === "box" || shape === "plane") {
      const [u, v] = n[2] > 0.5 ? [0, 1] : n[1] > 0.5 ? [0, 2] : [1, 2];
      out.set([(1 + p[u] / size[u]) / 2, (1 - p[v] / size[v]) / 2], 2 * i);
    } else if (shape === "cylinder" && n[2] > 0.5) out.set([(1 + p[0] / size[0]) / 2, (1 + p[1] / size[0]) / 2], 2 * i);
    else if (shape === "capsule") {  // the picture is on each end and on the cylinder between
      const [r, half] = size, end = Math.acos(Math.min(1, Math.max(0, (Math.abs(p[2]) - half) / r))) / (Math.PI / 2);
      out.set([uv.getX(i), p[2] >= half ? end : p[2] <= -half ? 3 - end : 1 + (1 - p[2] / half) / 2], 2 * i);
    } else out.set([uv.getX(i), 1 - uv.getY(i)], 2 * i);
  }
  return new THREE.BufferAttribute(out, 2);
}
const EDGED = new Set(["box", "cylinder", "cone"]);
const SMOOTH_FACES = 300000;  // a larger mesh is shaded smoothly all over, which takes less time

function geometryOf(g, size) {
  const key = g.mesh >= 0 ? "mesh " + g.mesh : g.shape + " " + size.join();
  if (!geometries.has(key)) geometries.set(key, g.mesh >= 0 ? meshGeometry(data.meshes[g.mesh]) : SHAPES[g.shape](size));
  return geometries.get(key);
}
function meshGeometry({ vertices, faces, texcoords }) {
  const geometry = new THREE.BufferGeometry();
  if (texcoords) {  // of the corners of the faces, so each has its own vertices
    const corners = new Float32Array(3 * faces.length);
    faces.forEach((v, i) => { for (let k = 0; k < 3; k++) corners[3 * i + k] = vertices[3 * v + k]; });
    geometry.setAttribute("position", new THREE.BufferAttribute(corners, 3));
    geometry.setAttribute("texcoord", new THREE.BufferAttribute(texcoords, 2));
    return THREE.toCreasedNormals(geometry, 0.7);
  }
  geometry.setAttribute("position", new THREE.BufferAttribute(vertices, 3));
  geometry.setIndex(new THREE.BufferAttribute(faces, 1));
  if (faces.length < 3 * SMOOTH_FACES) return THREE.toCreasedNormals(geometry, 0.7);
  geometry.computeVertexNormals();
  return geometry;
}
const edges = new Map();
function edgesOf(geometry) {
  if (!edges.has(geometry)) edges.set(geometry, new THREE.EdgesGeometry(geometry, 40));
  return edges.get(geometry);
}

const materials = new Map();
/** A material of what a page says of a surface (rgba, texture, finish, given). sided: both sides of the surface are seen; floor: others
 *  that lie on it win; factors: by which positions are multiplied for places in the picture, or "texcoord" of the vertices where given. */
function materialOf(look, sided, floor, factors) {
  const { rgba, texture, finish, given } = look, picture = texture >= 0 ? pictures[texture] : null;
  const key = JSON.stringify([rgba, texture, finish, sided, floor, picture ? [factors, given] : 0]);
  if (!materials.has(key)) {
    const clear = rgba[3] < 0.99 || Boolean(picture && picture.clear);
    const made = new (finish && finish.specular !== 0.5 ? THREE.MeshPhysicalMaterial : THREE.MeshStandardMaterial)({
      color: colorOf(rgba), opacity: rgba[3], transparent: clear, depthWrite: !clear, side: sided ? THREE.DoubleSide : THREE.FrontSide,
      ...surfaceOf(finish), polygonOffset: floor, polygonOffsetFactor: 1, polygonOffsetUnits: 4,
    });
    if (picture || finish && finish.emission > 0) paint(made, picture, given, factors, finish ? finish.emission : 0);
    materials.set(key, made);
  }
  return materials.get(key);
}
/** What three.js has of a material: shininess as roughness, or the file's own roughness and metalness. */
function surfaceOf(finish) {
  if (!finish) return { roughness: 0.55, metalness: 0.05 };
  const physical = finish.metallic > 0 || finish.roughness < 1;
  const out = physical ? { roughness: finish.roughness, metalness: finish.metallic }
    : { roughness: Math.min(1, Math.max(0.1, 1 - 0.9 * finish.shininess)), metalness: 0.05 };
  if (finish.specular !== 0.5) out.specularIntensity = Math.min(1, 2 * finish.specular);
  return out;
}
/** Let a material have a picture, and light of its own, a share of its colour. */
function paint(material, picture, given, factors, emission) {
  const cube = Boolean(picture && picture.cube);
  material.customProgramCacheKey = () => [Boolean(picture), cube, given, emission > 0].join();
  material.onBeforeCompile = (shader) => {
    Object.assign(shader.uniforms, {
      picture: { value: picture && picture.texture }, factors: { value: new THREE.Vector3(...factors || []) }, emission: { value: emission },
    });
    const place = given ? "vec3(texcoord, 0.0) * factors" : "position * factors";
    const sample = cube ? "textureCube(picture, place)" : `texture2D(picture, ${given ? "place.xy" : "vec2(place.x - 0.5, -place.y - 0.5)"})`;
    const insert = (stage, after, text) => { shader[stage] = shader[stage].replace(after, after + "\n" + text); };
    if (picture) {
      insert("vertexShader", "#include <common>", `varying vec3 place; uniform vec3 factors;${given ? " attribute vec2 texcoord;" : ""}`);
      insert("vertexShader", "#include <begin_vertex>", `place = ${place};`);
      insert("fragmentShader", "#include <common>", `varying vec3 place; uniform ${cube ? "samplerCube" : "sampler2D"} picture;`);
      insert("fragmentShader", "#include <map_fragment>", `diffuseColor *= ${sample};`);
    }
    if (emission > 0) {
      insert("fragmentShader", "#include <common>", "uniform float emission;");
      insert("fragmentShader", "#include <emissivemap_fragment>", "totalEmissiveRadiance += emission * diffuseColor.rgb;");
    }
  };
}
const colorOf = (rgba) => new THREE.Color().setRGB(rgba[0], rgba[1], rgba[2], THREE.SRGBColorSpace);

/** Copies of one geometry that are placed anew in each picture: rods from a point to another, balls. */
class Copies {
  constructor(scene, geometry, material) {
    Object.assign(this, { scene, geometry, material, mesh: null, count: 0, capacity: 0 });
  }
  begin() { this.count = 0; }
  _grow() {
    const old = this.mesh, capacity = Math.max(64, 2 * this.capacity);
    this.mesh = new THREE.InstancedMesh(this.geometry, this.material, capacity);
    this.mesh.setColorAt(0, new THREE.Color(1, 1, 1));
    this.mesh.frustumCulled = false;
    this.mesh.castShadow = this.material.isMeshStandardMaterial === true;
    this.mesh.renderOrder = this.material.depthTest ? 2 : 3;
    if (old) {
      this.mesh.instanceMatrix.array.set(old.instanceMatrix.array);
      this.mesh.instanceColor.array.set(old.instanceColor.array);
      this.scene.remove(old);
      old.dispose();
    }
    this.scene.add(this.mesh);
    this.capacity = capacity;
  }
  /** From p to q, with a radius; the geometry reaches from z = 0 to 1. */
  rod(p, q, r, color) {
    const d = [q[0] - p[0], q[1] - p[1], q[2] - p[2]], n = Math.hypot(...d);
    if (!(n > 0) || !p.every(Number.isFinite)) return;
    const z = d.map((x) => x / n), other = Math.abs(z[2]) < 0.9 ? [0, 0, 1] : [1, 0, 0];
    let x = [other[1] * z[2] - other[2] * z[1], other[2] * z[0] - other[0] * z[2], other[0] * z[1] - other[1] * z[0]];
    const m = Math.hypot(...x);
    x = x.map((c) => c / m);
    const y = [z[1] * x[2] - z[2] * x[1], z[2] * x[0] - z[0] * x[2], z[0] * x[1] - z[1] * x[0]];
    this._add([...x.map((c) => c * r), 0, ...y.map((c) => c * r), 0, ...d, 0, ...p, 1], color);
  }
  ball(p, r, color) { if (p.every(Number.isFinite)) this._add([r, 0, 0, 0, 0, r, 0, 0, 0, 0, r, 0, ...p, 1], color); }
  _add(matrix, color) {
    if (this.count === this.capacity) this._grow();
    this.mesh.instanceMatrix.array.set(matrix, 16 * this.count);
    this.mesh.setColorAt(this.count++, color);
  }
  end() {
    if (!this.mesh) return;
    this.mesh.count = this.count;
    this.mesh.visible = this.count > 0;
    this.mesh.instanceMatrix.needsUpdate = this.mesh.instanceColor.needsUpdate = true;
  }
}
