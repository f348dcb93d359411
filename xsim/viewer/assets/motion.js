// The data of the page, places of bodies over time, and what the picture frames.

const root = document.documentElement;
window.addEventListener("error", (e) => { root.dataset.error = String(e.message); note("error: " + e.message); });
const $ = (id) => document.getElementById(id);
const note = (text) => { $("note").textContent = text; };

const data = JSON.parse($("data").textContent);
const unpacked = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
const floats = (text) => new Float32Array(unpacked(text));
const integers = (text) => new Int32Array(unpacked(text));
const poses = floats(data.poses), directions = floats(data.directions), paths = floats(data.paths);
const contacts = data.contacts && floats(data.contacts.numbers);
const times = data.times, E = data.envs.length, B = data.bodies.length, A = data.axes.length, last = times.length - 1;
const duration = times[last];
const pathPoints = paths.length / (3 * (last + 1) * E);
const row = (list, e) => list[list.length === 1 ? 0 : e];
const poseAt = (f, e, b) => ((f * E + e) * B + b) * 7;
for (const mesh of data.meshes) {
  mesh.vertices = floats(mesh.vertices);
  mesh.faces = new Uint32Array(unpacked(mesh.faces));
  if (mesh.texcoords) mesh.texcoords = floats(mesh.texcoords);
}

// ---- quaternions (w x y z) and 3x4 matrices ------------------------------------------------------------------------------

function setMatrix(m, px, py, pz, w, x, y, z) {
  const n = Math.hypot(w, x, y, z) || 1;
  w /= n; x /= n; y /= n; z /= n;
  m[0] = 1 - 2 * (y * y + z * z); m[1] = 2 * (x * y - w * z); m[2] = 2 * (x * z + w * y); m[3] = px;
  m[4] = 2 * (x * y + w * z); m[5] = 1 - 2 * (x * x + z * z); m[6] = 2 * (y * z - w * x); m[7] = py;
  m[8] = 2 * (x * z - w * y); m[9] = 2 * (y * z + w * x); m[10] = 1 - 2 * (x * x + y * y); m[11] = pz;
  return m;
}
const apply = (m, x, y, z) => [
  m[0] * x + m[1] * y + m[2] * z + m[3], m[4] * x + m[5] * y + m[6] * z + m[7], m[8] * x + m[9] * y + m[10] * z + m[11]];

// ---- places at a time ----------------------------------------------------------------------------------------------------

/** The frame before a time, and how far the time is towards the next one. */
function frameAt(time) {
  let lo = 0, hi = last;
  while (lo < hi) { const m = (lo + hi + 1) >> 1; if (times[m] <= time + 1e-9) lo = m; else hi = m - 1; }
  const t = lo < last ? (time - times[lo]) / (times[lo + 1] - times[lo]) : 0;
  return [lo, t < 1e-6 ? 0 : Math.min(1, t)];
}
const pose = new Float64Array(7);
/** Pose of a body between two frames into ``pose``; false where it is not finite. */
function poseOf(f, t, e, b) {
  const i = poseAt(f, e, b);
  for (let k = 0; k < 7; k++) pose[k] = poses[i + k];
  if (t > 0) {
    const j = poseAt(f + 1, e, b);
    let dot = 0;
    for (let k = 3; k < 7; k++) dot += poses[i + k] * poses[j + k];
    for (let k = 0; k < 7; k++) pose[k] = (1 - t) * pose[k] + t * (k > 2 && dot < 0 ? -1 : 1) * poses[j + k];
  }
  for (let k = 0; k < 7; k++) if (!(Math.abs(pose[k]) < 1e9)) return false;
  return true;
}
function center(f, t, e) {
  const sum = [0, 0, 0];
  let n = 0;
  for (let b = 0; b < B; b++) if (poseOf(f, t, e, b)) { for (let k = 0; k < 3; k++) sum[k] += pose[k]; n++; }
  return sum.map((x) => x / (n || 1));
}
function followed(f, t) {
  if (!$("follow").checked) return [0, 0, 0];
  const e = Math.max(0, view.shown), a = center(0, 0, e), b = center(f, t, e);
  return a.map((x, k) => b[k] - x);
}

// ---- sizes, places of the environments, camera ---------------------------------------------------------------------------

let radius = 1, ground = 0, spacing = [0, 0], step = 1, drift = false, floors = [];
const home = { yaw: -1.0, pitch: 0.32, distance: 5, target: [0, 0, 0] };
const camera = { yaw: -1.0, pitch: 0.32, distance: 5, target: [0, 0, 0] };
const FIELD = Math.tan(Math.PI / 180 * 19);
const V = new Float64Array(12);  // world to camera: rows right, up, forward

const view = { time: 0, shown: data.shown, playing: false, speed: 1 };
const shownEnvs = () => (view.shown < 0 ? [...Array(E).keys()] : [view.shown]);
const columns = Math.ceil(Math.sqrt(E));
const offset = (e) => (view.shown < 0 ? [(e % columns - (Math.min(columns, E) - 1) / 2) * spacing[0],
  -(Math.floor(e / columns) - (Math.ceil(E / columns) - 1) / 2) * spacing[1]] : [0, 0]);

function setCamera(shift) {
  const cy = Math.cos(camera.yaw), sy = Math.sin(camera.yaw), cp = Math.cos(camera.pitch), sp = Math.sin(camera.pitch);
  const r = [-sy, cy, 0], u = [-cy * sp, -sy * sp, cp], f = [-cy * cp, -sy * cp, -sp];
  const eye = camera.target.map((x, k) => x + shift[k] - f[k] * camera.distance);
  [r, u, f].forEach((a, i) => { V.set(a, 4 * i); V[4 * i + 3] = -(a[0] * eye[0] + a[1] * eye[1] + a[2] * eye[2]); });
  return eye;
}
/** Half extents of a mesh about the middle of its bounding box, and this middle, times its size. */
function meshBox(index, s) {
  const mesh = data.meshes[index];
  if (!mesh.box) {
    const lo = [Infinity, Infinity, Infinity], hi = [-Infinity, -Infinity, -Infinity];
    mesh.vertices.forEach((x, i) => { lo[i % 3] = Math.min(lo[i % 3], x); hi[i % 3] = Math.max(hi[i % 3], x); });
    mesh.box = [lo.map((x, k) => (x + hi[k]) / 2), lo.map((x, k) => (hi[k] - x) / 2)];
  }
  return mesh.box.map((v) => v.map((x, k) => x * s[k]));
}
const REACH = {
  box: (s) => Math.hypot(s[0], s[1], s[2]), sphere: (s) => s[0], capsule: (s) => s[0] + s[1], cylinder: (s) => Math.hypot(s[0], s[1]),
  cone: (s) => Math.hypot(s[0], s[1]), ellipsoid: (s) => Math.max(s[0], s[1], s[2]), axes: (s) => s[0],
};
/** The middle of a geom in its frame, and the radius of a ball around it. */
function ball(g, s) {
  if (g.mesh < 0) return [[0, 0, 0], REACH[g.shape] ? REACH[g.shape](s) : 0];
  const [middle, half] = meshBox(g.mesh, s);
  return [middle, Math.hypot(...half)];
}
function bounds(frames, envs) {
  const lo = [Infinity, Infinity, Infinity], hi = [-Infinity, -Infinity, -Infinity], m = new Float64Array(12), l = new Float64Array(12);
  const add = (p, r) => {
    if (p.every(Number.isFinite)) for (let k = 0; k < 3; k++) { lo[k] = Math.min(lo[k], p[k] - r); hi[k] = Math.max(hi[k], p[k] + r); }
  };
  for (const f of frames) {
    for (const e of envs) {
      data.geoms.forEach((g, i) => {
        if (g.body < 0) return;
        const k = poseAt(f, e, g.body), [middle, r] = ball(g, row(data.size, e)[i]);
        setMatrix(m, ...poses.subarray(k, k + 7));
        setMatrix(l, ...row(data.pos, e)[i], ...row(data.quat, e)[i]);
        add(apply(m, ...apply(l, ...middle)), r);
      });
      for (let b = 0; b < B; b++) { const k = poseAt(f, e, b); add([...poses.subarray(k, k + 3)], 0); }
      for (let i = 0; i < pathPoints; i++) { const k = 3 * ((f * E + e) * pathPoints + i); add([...paths.subarray(k, k + 3)], 0); }
    }
  }
  return lo[0] <= hi[0] ? [lo, hi] : [[-1, -1, -1], [1, 1, 1]];
}
function nice(x) {
  const p = 10 ** Math.floor(Math.log10(x)), m = x / p;
  return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * p;
}
/** The height of a geom of the world that is a floor: a plane, or a level slab as wide as the model and not above it; else NaN. */
function floorOf(g, i, extent, lowest) {
  const p = row(data.pos, 0)[i], q = row(data.quat, 0)[i], s = row(data.size, 0)[i];
  if (g.body >= 0 || Math.hypot(q[1], q[2]) > 0.01) return NaN;
  if (g.shape === "plane" || g.shape === "hfield") return p[2];
  const slab = g.shape === "box" && 2 * Math.max(s[0], s[1]) > 0.7 * Math.max(extent[0], extent[1]) && s[2] < 0.3 * Math.min(s[0], s[1]);
  return slab && p[2] + s[2] <= lowest + 0.2 * extent[2] ? p[2] + s[2] : NaN;
}
function measure() {
  const all = [...Array(E).keys()], samples = [...new Set([...Array(60).keys()].map((i) => Math.round(i * last / 59)))];
  const [lo0, hi0] = bounds([0], all), [lo, hi] = bounds(samples, all);
  const size0 = Math.hypot(...hi0.map((x, k) => x - lo0[k]));
  drift = B > 0 && all.some((e) => {  // the whole of an environment moves away, as a falling body does
    const c = center(0, 0, e);
    return samples.some((f) => Math.hypot(...center(f, 0, e).map((x, k) => x - c[k])) > 1.1 * size0);
  });
  const [a, b] = drift ? [lo0, hi0] : [lo, hi];
  data.geoms.forEach((g, i) => {  // scenery of the size of the model belongs to the picture
    const [, r] = ball(g, row(data.size, 0)[i]), p = row(data.pos, 0)[i];
    if (g.body >= 0 || r > (g.shape === "hfield" ? 4 : 1) * size0) return;
    for (let k = 0; k < 3; k++) { a[k] = Math.min(a[k], p[k] - r / 2); b[k] = Math.max(b[k], p[k] + r / 2); }
  });
  const extent = a.map((x, k) => Math.max(b[k] - x, 1e-3));
  spacing = [1.25 * extent[0] + 0.1 * extent[2], 1.25 * extent[1] + 0.1 * extent[2]].map((x) => Math.max(x, 0.5 * extent[2]));
  floors = data.geoms.map((g, i) => floorOf(g, i, extent, lo0[2])).filter(Number.isFinite);
  ground = floors.length ? Math.min(...floors) : a[2] >= -0.03 * extent[2] ? 0 : a[2] - 0.05 * extent[2];
  if (!floors.length && ground === 0 && a[2] > 1.5 * Math.hypot(...extent)) ground = a[2] - 0.1 * extent[2];
  frameOn = () => frame(a, b, extent);
  frameOn();
}
let frameOn = () => {};
/** Put the camera where every corner of the scene is in the picture; a, b: corners of one environment's box. */
function frame(a, b, extent) {
  const middle = a.map((x, k) => (x + b[k]) / 2);
  const n = view.shown < 0 ? E : 1, cols = Math.min(n, columns), rows = Math.ceil(n / cols);
  const w = extent[0] + (cols - 1) * spacing[0], d = extent[1] + (rows - 1) * spacing[1];
  radius = Math.hypot(w, d, extent[2]) / 2;
  step = nice(radius / 4);
  home.target = [...middle];
  if (ground < a[2] && a[2] - ground < 0.6 * extent[2]) home.target[2] = (ground + b[2]) / 2 * 0.5 + middle[2] * 0.5;
  // Look across the longer side, a little from the side.
  home.yaw = (w >= 0.8 * d ? -Math.PI / 2 : 0) + 0.5; home.pitch = n > 1 ? 0.5 : 0.28;
  Object.assign(camera, home, { distance: 0 });
  setCamera([0, 0, 0]);
  const c = $("view"), wide = FIELD * c.clientWidth / Math.max(1, c.clientHeight - 50);
  home.distance = 0.1 * radius;
  for (let i = 0; i < 8; i++) {
    const corner = [middle[0] + (i & 1 ? w : -w) / 2, middle[1] + (i & 2 ? d : -d) / 2, i & 4 ? b[2] : a[2]];
    const [x, y, z] = apply(V, ...corner);
    home.distance = Math.max(home.distance, 1.1 * Math.max(Math.abs(x) / wide, Math.abs(y) / FIELD) - z);
  }
  reset();
}
function reset() { Object.assign(camera, home, { target: [...home.target] }); dirty = true; }
