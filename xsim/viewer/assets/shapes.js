// Geometries of the shapes (along z, as the model has them), materials, and sets of rods and balls.

const geometries = new Map();
const upright = (geometry) => geometry.rotateX(Math.PI / 2);  // three.js has its shapes along y
const SHAPES = {
  box: ([x, y, z]) => new THREE.BoxGeometry(2 * x, 2 * y, 2 * z),
  sphere: ([r]) => upright(new THREE.SphereGeometry(r, 40, 24)),
  ellipsoid: ([x, y, z]) => upright(new THREE.SphereGeometry(1, 40, 24)).scale(x, y, z),
  capsule: ([r, half]) => upright(new THREE.CapsuleGeometry(r, 2 * half, 10, 32)),
  cylinder: ([r, half]) => upright(new THREE.CylinderGeometry(r, r, 2 * half, 48)),
  cone: ([r, half]) => upright(new THREE.ConeGeometry(r, 2 * half, 48)),
  plane: ([x, y]) => new THREE.PlaneGeometry(2 * (x > 0 ? x : 12 * radius), 2 * (y > 0 ? y : 12 * radius)),
};
const EDGED = new Set(["box", "cylinder", "cone"]);
const SMOOTH_FACES = 300000;  // a larger mesh is shaded smoothly all over, which takes less time

function geometryOf(g, size) {
  const key = g.mesh >= 0 ? "mesh " + g.mesh : g.shape + " " + size.join();
  if (!geometries.has(key)) geometries.set(key, g.mesh >= 0 ? meshGeometry(data.meshes[g.mesh]) : SHAPES[g.shape](size));
  return geometries.get(key);
}
function meshGeometry({ vertices, faces }) {
  const geometry = new THREE.BufferGeometry();
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
/** A material of a colour (red, green, blue, opacity). sided: both sides of the surface are seen; floor: others that lie on it win. */
function materialOf(rgba, sided, floor) {
  const key = [rgba, sided, floor].join();
  if (!materials.has(key)) {
    const clear = rgba[3] < 0.99;
    materials.set(key, new THREE.MeshStandardMaterial({
      color: colorOf(rgba), opacity: rgba[3], transparent: clear, depthWrite: !clear, side: sided ? THREE.DoubleSide : THREE.FrontSide,
      roughness: 0.55, metalness: 0.05, polygonOffset: floor, polygonOffsetFactor: 1, polygonOffsetUnits: 4,
    }));
  }
  return materials.get(key);
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
