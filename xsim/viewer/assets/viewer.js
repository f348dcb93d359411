"use strict";
(function () {
const root = document.documentElement;
window.addEventListener("error", (e) => { root.dataset.error = String(e.message); note("error: " + e.message); });
const $ = (id) => document.getElementById(id);
const note = (text) => { $("note").textContent = text; };

// ---- data ----------------------------------------------------------------------------------------------------------------

const data = JSON.parse($("data").textContent);
const floats = (text) => {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};
const poses = floats(data.poses), directions = floats(data.directions);
const times = data.times, E = data.envs.length, B = data.bodies.length, A = data.axes.length, last = times.length - 1;
const duration = times[last];
const row = (list, e) => list[list.length === 1 ? 0 : e];
const poseAt = (f, e, b) => ((f * E + e) * B + b) * 7;

// ---- quaternions (w x y z) and 3x4 matrices ------------------------------------------------------------------------------

function setMatrix(m, px, py, pz, w, x, y, z) {
  const n = Math.hypot(w, x, y, z) || 1;
  w /= n; x /= n; y /= n; z /= n;
  m[0] = 1 - 2 * (y * y + z * z); m[1] = 2 * (x * y - w * z); m[2] = 2 * (x * z + w * y); m[3] = px;
  m[4] = 2 * (x * y + w * z); m[5] = 1 - 2 * (x * x + z * z); m[6] = 2 * (y * z - w * x); m[7] = py;
  m[8] = 2 * (x * z - w * y); m[9] = 2 * (y * z + w * x); m[10] = 1 - 2 * (x * x + y * y); m[11] = pz;
  return m;
}
function multiply(out, a, b) {
  for (let i = 0; i < 12; i += 4) {
    for (let j = 0; j < 4; j++) {
      out[i + j] = a[i] * b[j] + a[i + 1] * b[4 + j] + a[i + 2] * b[8 + j] + (j === 3 ? a[i + 3] : 0);
    }
  }
  return out;
}
const apply = (m, x, y, z) => [
  m[0] * x + m[1] * y + m[2] * z + m[3], m[4] * x + m[5] * y + m[6] * z + m[7], m[8] * x + m[9] * y + m[10] * z + m[11]];

// ---- shapes: vertices and outward convex faces in the geom's frame -------------------------------------------------------

const meshes = new Map();
function mesh(shape, size, detail) {
  const key = shape + "|" + size.join() + "|" + detail;
  let found = meshes.get(key);
  if (!found) {
    if (meshes.size > 4000) meshes.clear();
    found = SHAPES[shape](size, detail);
    found.vertices = Float64Array.from(found.vertices.flat());
    meshes.set(key, found);
  }
  return found;
}
function rings(profile, n) {  // a body of revolution: profile of [radius x, radius y, z] from top to bottom
  const vertices = [], faces = [];
  for (const [rx, ry, z] of profile) {
    for (let i = 0; i < n; i++) vertices.push([rx * Math.cos(2 * Math.PI * i / n), ry * Math.sin(2 * Math.PI * i / n), z]);
  }
  for (let k = 0; k + 1 < profile.length; k++) {
    for (let i = 0; i < n; i++) {
      const j = (i + 1) % n, a = k * n + i, b = k * n + j, c = a + n, d = b + n;
      faces.push(profile[k][0] === 0 ? [a, c, d] : profile[k + 1][0] === 0 ? [a, c, b] : [a, c, d, b]);
    }
  }
  return { vertices, faces, edges: [] };
}
const SHAPES = {
  box([x, y, z]) {
    const vertices = [];
    for (let i = 0; i < 8; i++) vertices.push([i & 1 ? x : -x, i & 2 ? y : -y, i & 4 ? z : -z]);
    return {
      vertices,
      faces: [[0, 2, 3, 1], [4, 5, 7, 6], [0, 1, 5, 4], [2, 6, 7, 3], [0, 4, 6, 2], [1, 3, 7, 5]],
      edges: [[0, 1], [2, 3], [4, 5], [6, 7], [0, 2], [1, 3], [4, 6], [5, 7], [0, 4], [1, 5], [2, 6], [3, 7]],
    };
  },
  ellipsoid([x, y, z], n) {
    const profile = [];
    for (let k = 0; k <= n / 2; k++) {
      const a = 2 * Math.PI * k / n, s = k === 0 || k === n / 2 ? 0 : Math.sin(a);
      profile.push([x * s, y * s, z * Math.cos(a)]);
    }
    return rings(profile, n);
  },
  sphere([r], n) { return SHAPES.ellipsoid([r, r, r], n); },
  capsule([r, half], n) {
    const m = n / 4, profile = [];
    for (let k = 0; k <= m; k++) profile.push([k ? r * Math.sin(Math.PI * k / 2 / m) : 0, 0, half + r * Math.cos(Math.PI * k / 2 / m)]);
    for (let k = 0; k <= m; k++) {
      profile.push([k < m ? r * Math.cos(Math.PI * k / 2 / m) : 0, 0, -half - r * Math.sin(Math.PI * k / 2 / m)]);
    }
    for (const p of profile) p[1] = p[0];
    return rings(profile, n);
  },
  cylinder([r, half], n) {
    const out = rings([[r, r, half], [r, r, -half]], n), circle = [...Array(n).keys()];
    out.faces.push(circle, circle.map((i) => 2 * n - 1 - i));
    out.edges = circle.flatMap((i) => [[i, (i + 1) % n], [n + i, n + (i + 1) % n]]);
    return out;
  },
  cone([r, half], n) {
    const out = rings([[0, 0, half], [r, r, -half]], n), circle = [...Array(n).keys()];
    out.faces.push(circle.map((i) => 2 * n - 1 - i));
    out.edges = circle.map((i) => [n + i, n + (i + 1) % n]);
    return out;
  },
  plane([x, y]) {
    const X = x > 0 ? x : 12 * radius, Y = y > 0 ? y : 12 * radius, k = 8;
    const vertices = [], faces = [];
    for (let i = 0; i <= k; i++) for (let j = 0; j <= k; j++) vertices.push([X * (2 * i / k - 1), Y * (2 * j / k - 1), 0]);
    for (let i = 0; i < k; i++) {
      for (let j = 0; j < k; j++) { const a = i * (k + 1) + j; faces.push([a, a + k + 1, a + k + 2, a + 1]); }
    }
    return { vertices, faces, edges: [], sided: true };
  },
};
const reach = (shape, s) => ({
  box: Math.hypot(s[0], s[1], s[2]), sphere: s[0], capsule: s[0] + s[1], cylinder: Math.hypot(s[0], s[1]),
  cone: Math.hypot(s[0], s[1]), ellipsoid: Math.max(s[0], s[1], s[2]), axes: s[0], plane: 0,
})[shape] || 0;

// ---- frame buffer: a software rasterizer with a depth buffer --------------------------------------------------------------

let W = 0, H = 0, image = null, pixels = null, depth = null, stencil = null, left = null, right = null, background = null;
let F = 1, CX = 0, CY = 0, NEAR = 0.01;
const inner = document.createElement("canvas"), innerContext = inner.getContext("2d");

function resize(w, h, top, bottom) {
  if (w !== W || h !== H) {
    W = w; H = h;
    inner.width = w; inner.height = h;
    image = innerContext.createImageData(w, h);
    pixels = new Uint32Array(image.data.buffer);
    depth = new Float32Array(w * h); stencil = new Uint8Array(w * h); background = new Uint32Array(w * h);
    left = new Float32Array(h); right = new Float32Array(h);
  }
  for (let y = 0; y < h; y++) {
    const t = y / h, c = top.map((a, i) => a + (bottom[i] - a) * t);
    // Ordered dither, so that the soft gradient has no bands.
    for (let x = 0; x < w; x++) {
      const d = ((x & 1) * 2 + (y & 1) * 3 & 3) / 4 - 0.4;
      background[y * w + x] = 0xff000000 | (c[2] + d) << 16 | (c[1] + d) << 8 | (c[0] + d);
    }
  }
}

const px = new Float64Array(512), py = new Float64Array(512);
let ca = new Float64Array(1536), cb = new Float64Array(1536);

/** Fill a convex polygon of n camera-space points in ca with normal (nx, ny, nz). mode: 0 solid, 1 blended, 2 shadow. */
function polygon(n, nx, ny, nz, color, mode, alpha) {
  const d = nx * ca[0] + ny * ca[1] + nz * ca[2];
  if (Math.abs(d) < 1e-12) return;
  n = clip(n);
  if (n < 3) return;
  let top = Infinity, bottom = -Infinity;
  for (let i = 0; i < n; i++) {
    const z = ca[3 * i + 2];
    px[i] = CX + F * ca[3 * i] / z; py[i] = CY - F * ca[3 * i + 1] / z;
    if (py[i] < top) top = py[i];
    if (py[i] > bottom) bottom = py[i];
  }
  const y0 = Math.max(0, Math.ceil(top - 0.5)), y1 = Math.min(H - 1, Math.ceil(bottom - 0.5) - 1);
  if (y1 < y0) return;
  for (let y = y0; y <= y1; y++) { left[y] = Infinity; right[y] = -Infinity; }
  for (let i = 0, j = n - 1; i < n; j = i++) {
    const ya = py[j], yb = py[i];
    if (ya === yb) continue;
    const lo = Math.min(ya, yb), hi = Math.max(ya, yb), slope = (px[i] - px[j]) / (yb - ya);
    const s = Math.max(y0, Math.ceil(lo - 0.5)), t = Math.min(y1, Math.ceil(hi - 0.5) - 1);
    for (let y = s, x = px[j] + (s + 0.5 - ya) * slope; y <= t; y++, x += slope) {
      if (x < left[y]) left[y] = x;
      if (x > right[y]) right[y] = x;
    }
  }
  const a = nx / (d * F), b = -ny / (d * F), c = (nz - (nx * CX - ny * CY) / F) / d;
  for (let y = y0; y <= y1; y++) {
    const x0 = Math.max(0, Math.ceil(left[y] - 0.5)), x1 = Math.min(W - 1, Math.ceil(right[y] - 0.5) - 1);
    let k = y * W + x0, w = a * (x0 + 0.5) + b * (y + 0.5) + c;
    if (mode === 0) {
      for (let x = x0; x <= x1; x++, k++, w += a) if (w > depth[k]) { depth[k] = w; pixels[k] = color; }
    } else if (mode === 1) {
      for (let x = x0; x <= x1; x++, k++, w += a) if (w > depth[k]) pixels[k] = mix(pixels[k], color, alpha);
    } else {
      for (let x = x0; x <= x1; x++, k++, w += a) {
        if (!stencil[k] && w * 1.002 > depth[k]) { stencil[k] = 1; pixels[k] = mix(pixels[k], color, alpha); }
      }
    }
  }
}
function mix(under, over, alpha) {
  const r = under & 255, g = under >> 8 & 255, b = under >> 16 & 255;
  return 0xff000000 | b + ((over >> 16 & 255) - b) * alpha << 16 | g + ((over >> 8 & 255) - g) * alpha << 8 | r + ((over & 255) - r) * alpha;
}
function clip(n) {  // against z >= NEAR
  let inside = true;
  for (let i = 0; i < n; i++) if (ca[3 * i + 2] < NEAR) { inside = false; break; }
  if (inside) return n;
  let m = 0;
  for (let i = 0, j = n - 1; i < n; j = i++) {
    const zi = ca[3 * i + 2], zj = ca[3 * j + 2];
    if ((zi >= NEAR) !== (zj >= NEAR)) {
      const t = (NEAR - zj) / (zi - zj);
      for (let k = 0; k < 3; k++) cb[3 * m + k] = ca[3 * j + k] + t * (ca[3 * i + k] - ca[3 * j + k]);
      m++;
    }
    if (zi >= NEAR) { for (let k = 0; k < 3; k++) cb[3 * m + k] = ca[3 * i + k]; m++; }
  }
  [ca, cb] = [cb, ca];
  return m;
}

/** A line between camera-space points, ``width`` pixels wide. ``bias`` lifts it over the surfaces it lies on. */
function line(p, q, color, alpha, width, bias) {
  if (p[2] < NEAR && q[2] < NEAR) return;
  if (p[2] < NEAR || q[2] < NEAR) {
    const t = (NEAR - p[2]) / (q[2] - p[2]), c = [0, 1, 2].map((k) => p[k] + t * (q[k] - p[k]));
    if (p[2] < NEAR) p = c; else q = c;
  }
  let x0 = CX + F * p[0] / p[2], y0 = CY - F * p[1] / p[2], x1 = CX + F * q[0] / q[2], y1 = CY - F * q[1] / q[2];
  if (Math.max(x0, x1) < 0 || Math.min(x0, x1) > W || Math.max(y0, y1) < 0 || Math.min(y0, y1) > H) return;
  const steps = Math.ceil(Math.max(Math.abs(x1 - x0), Math.abs(y1 - y0)));
  const wide = Math.abs(x1 - x0) > Math.abs(y1 - y0), r = (width - 1) / 2;
  const w0 = bias / p[2], w1 = bias / q[2];
  // Only the part of the line that meets the picture.
  let s = 0, t = 1;
  for (const [from, by, limit] of [[x0, x1 - x0, W], [y0, y1 - y0, H]]) {
    if (by > 0) { s = Math.max(s, (-width - from) / by); t = Math.min(t, (limit + width - from) / by); }
    if (by < 0) { s = Math.max(s, (limit + width - from) / by); t = Math.min(t, (-width - from) / by); }
  }
  for (let i = Math.floor(s * steps); i <= Math.ceil(t * steps); i++) {
    const u = steps ? i / steps : 0, x = x0 + (x1 - x0) * u, y = y0 + (y1 - y0) * u, w = w0 + (w1 - w0) * u;
    for (let o = -r; o <= r; o++) {
      const X = Math.floor(wide ? x : x + o), Y = Math.floor(wide ? y + o : y);
      if (X < 0 || Y < 0 || X >= W || Y >= H) continue;
      const k = Y * W + X;
      if (w > depth[k]) pixels[k] = alpha >= 1 ? color : mix(pixels[k], color, alpha);
    }
  }
}
const pack = (r, g, b) => (0xff000000 | Math.min(255, b) << 16 | Math.min(255, g) << 8 | Math.min(255, r)) >>> 0;

// ---- scene: sizes, places of the environments, camera --------------------------------------------------------------------

let radius = 1, ground = 0, spacing = [0, 0], step = 1, drift = false;
const home = { yaw: -1.0, pitch: 0.32, distance: 5, target: [0, 0, 0] };
const camera = { yaw: -1.0, pitch: 0.32, distance: 5, target: [0, 0, 0] };
const FIELD = Math.tan(Math.PI / 180 * 19);

const view = { time: 0, shown: data.shown, playing: false, speed: 1 };
const shownEnvs = () => (view.shown < 0 ? [...Array(E).keys()] : [view.shown]);
const columns = Math.ceil(Math.sqrt(E));
const offset = (e) => (view.shown < 0 ? [(e % columns - (Math.min(columns, E) - 1) / 2) * spacing[0],
  -(Math.floor(e / columns) - (Math.ceil(E / columns) - 1) / 2) * spacing[1]] : [0, 0]);

function bounds(frames, envs) {
  const lo = [Infinity, Infinity, Infinity], hi = [-Infinity, -Infinity, -Infinity], m = new Float64Array(12);
  const add = (p, r) => { if (p.every(Number.isFinite)) for (let k = 0; k < 3; k++) { lo[k] = Math.min(lo[k], p[k] - r); hi[k] = Math.max(hi[k], p[k] + r); } };
  for (const f of frames) {
    for (const e of envs) {
      data.geoms.forEach((g, i) => {
        if (g.body < 0) return;
        const k = poseAt(f, e, g.body);
        setMatrix(m, ...poses.subarray(k, k + 7));
        add(apply(m, ...row(data.pos, e)[i]), 0.8 * reach(g.shape, row(data.size, e)[i]));
      });
      for (let b = 0; b < B; b++) { const k = poseAt(f, e, b); add([...poses.subarray(k, k + 3)], 0); }
    }
  }
  return lo[0] <= hi[0] ? [lo, hi] : [[-1, -1, -1], [1, 1, 1]];
}
function nice(x) {
  const p = 10 ** Math.floor(Math.log10(x)), m = x / p;
  return (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10) * p;
}
function measure() {
  const all = [...Array(E).keys()], samples = [...new Set([...Array(60).keys()].map((i) => Math.round(i * last / 59)))];
  const [lo0, hi0] = bounds([0], all), [lo, hi] = bounds(samples, all);
  const size0 = Math.hypot(...hi0.map((x, k) => x - lo0[k]));
  drift = all.some((e) => {  // the whole of an environment moves away, as a falling body does
    const c = center(0, 0, e);
    return samples.some((f) => Math.hypot(...center(f, 0, e).map((x, k) => x - c[k])) > 1.1 * size0);
  });
  const [a, b] = drift ? [lo0, hi0] : [lo, hi];
  data.geoms.forEach((g, i) => {  // scenery of the size of the model belongs to the picture
    const r = reach(g.shape, row(data.size, 0)[i]), p = row(data.pos, 0)[i];
    if (g.body >= 0 || r > size0) return;
    for (let k = 0; k < 3; k++) { a[k] = Math.min(a[k], p[k] - r / 2); b[k] = Math.max(b[k], p[k] + r / 2); }
  });
  const extent = a.map((x, k) => Math.max(b[k] - x, 1e-3));
  spacing = [1.25 * extent[0] + 0.1 * extent[2], 1.25 * extent[1] + 0.1 * extent[2]].map((x) => Math.max(x, 0.5 * extent[2]));
  const floors = data.geoms.map((g, i) => {  // a plane, or a level slab as wide as the model and not above it
    const p = row(data.pos, 0)[i], q = row(data.quat, 0)[i], s = row(data.size, 0)[i];
    if (g.body >= 0 || Math.hypot(q[1], q[2]) > 0.01) return NaN;
    if (g.shape === "plane") return p[2];
    const slab = g.shape === "box" && 2 * Math.max(s[0], s[1]) > 0.7 * Math.max(extent[0], extent[1]) && s[2] < 0.3 * Math.min(s[0], s[1]);
    return slab && p[2] + s[2] <= lo0[2] + 0.2 * extent[2] ? p[2] + s[2] : NaN;
  }).filter(Number.isFinite);
  ground = floors.length ? Math.min(...floors) : a[2] >= -0.03 * extent[2] ? 0 : a[2] - 0.05 * extent[2];
  if (!floors.length && ground === 0 && a[2] > 1.5 * Math.hypot(...extent)) ground = a[2] - 0.1 * extent[2];
  const middle = a.map((x, k) => (x + b[k]) / 2);
  frameOn = () => {
    const n = view.shown < 0 ? E : 1, cols = Math.min(n, columns), rows = Math.ceil(n / cols);
    const w = extent[0] + (cols - 1) * spacing[0], d = extent[1] + (rows - 1) * spacing[1];
    radius = Math.hypot(w, d, extent[2]) / 2;
    step = nice(radius / 4);
    home.target = [...middle];
    if (ground < a[2] && a[2] - ground < 0.6 * extent[2]) home.target[2] = (ground + b[2]) / 2 * 0.5 + middle[2] * 0.5;
    // Look across the longer side, a little from the side, from where every corner of the scene is in the picture.
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
  };
  frameOn();
}
let frameOn = () => {};
function reset() { Object.assign(camera, home, { target: [...home.target] }); dirty = true; }

// ---- drawing -------------------------------------------------------------------------------------------------------------

const scheme = window.matchMedia("(prefers-color-scheme: dark)");
let colors = null;
function setColors() {
  colors = scheme.matches
    ? { top: [34, 40, 50], bottom: [15, 18, 23], grid: pack(150, 165, 185), strong: 0.5, faint: 0.22, edge: pack(0, 0, 0), shadow: pack(0, 0, 0), shade: 0.42, ink: "#e6eaf0", halo: "rgba(10,12,16,.75)", light: [0.34, 0.66] }
    : { top: [247, 249, 251], bottom: [214, 221, 229], grid: pack(90, 105, 125), strong: 0.5, faint: 0.25, edge: pack(20, 25, 35), shadow: pack(40, 50, 65), shade: 0.26, ink: "#1c2430", halo: "rgba(255,255,255,.8)", light: [0.46, 0.60] };
  W = 0;
}
const LIGHT = (() => { const l = [0.35, -0.3, 0.89], n = Math.hypot(...l); return l.map((x) => x / n); })();
const RED = pack(224, 60, 60), GREEN = pack(52, 168, 83), BLUE = pack(60, 110, 235), HINGE = pack(214, 51, 132), SLIDE = pack(20, 160, 170);

const V = new Float64Array(12), M = new Float64Array(12), G = new Float64Array(12), L = new Float64Array(12), P = new Float64Array(12);
let world = null, points = new Float64Array(4096);

function setCamera(shift) {
  const cy = Math.cos(camera.yaw), sy = Math.sin(camera.yaw), cp = Math.cos(camera.pitch), sp = Math.sin(camera.pitch);
  const r = [-sy, cy, 0], u = [-cy * sp, -sy * sp, cp], f = [-cy * cp, -sy * cp, -sp];
  const eye = camera.target.map((x, k) => x + shift[k] - f[k] * camera.distance);
  [r, u, f].forEach((a, i) => { V.set(a, 4 * i); V[4 * i + 3] = -(a[0] * eye[0] + a[1] * eye[1] + a[2] * eye[2]); });
  NEAR = camera.distance * 0.01;
}
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

function draw(scale) {
  const canvas = $("view"), w = Math.max(16, Math.round(canvas.clientWidth * scale)), h = Math.max(16, Math.round(canvas.clientHeight * scale));
  if (w !== W || h !== H) resize(w, h, colors.top, colors.bottom);
  pixels.set(background); depth.fill(0); stencil.fill(0);
  const [f, t] = frameAt(view.time), shift = followed(f, t);
  setCamera(shift);
  F = (H - 50 * scale) / 2 / FIELD; CX = W / 2; CY = (H - 44 * scale) / 2;
  const solid = [], clear = [], broken = [], labels = [], thick = Math.max(1, Math.round(scale));
  world = [];
  for (const e of shownEnvs()) {
    const [ox, oy] = offset(e), place = [];
    for (let b = 0; b < B; b++) {
      const ok = poseOf(f, t, e, b);
      place.push(ok ? setMatrix(new Float64Array(12), pose[0] + ox, pose[1] + oy, pose[2], pose[3], pose[4], pose[5], pose[6]) : null);
    }
    if (place.includes(null)) broken.push(data.envs[e]);
    world.push([e, place]);
    data.geoms.forEach((g, i) => {
      const p = row(data.pos, e)[i], q = row(data.quat, e)[i], at = setMatrix(new Float64Array(12), p[0], p[1], p[2], q[0], q[1], q[2], q[3]);
      if (g.body >= 0 && !place[g.body]) return;
      if (g.body < 0) { at[3] += ox; at[7] += oy; }
      const pose3 = g.body < 0 ? at : multiply(new Float64Array(12), place[g.body], at);
      (g.rgba[3] >= 0.99 || g.shape === "axes" ? solid : clear).push([g, row(data.size, e)[i], pose3]);
    });
  }
  for (const item of solid) paint(...item, thick);
  if ($("grid").checked) {
    for (const item of [...solid, ...clear]) if (item[0].body >= 0) shadow(...item);
    drawGrid(shift, thick);
  }
  const far = (m) => V[8] * m[3] + V[9] * m[7] + V[10] * m[11] + V[11];
  clear.sort((a, b) => far(b[2]) - far(a[2]));
  for (const item of clear) if (item[0].rgba[3] > 0) paint(...item, thick);
  const small = radius / Math.sqrt(shownEnvs().length);
  if ($("frames").checked) for (const [, place] of world) for (const m of place) if (m) triad(m, 0.16 * small, 2 * thick);
  if ($("axes").checked) for (const [e, place] of world) drawAxes(f, t, e, place, 0.2 * small, thick);
  innerContext.putImageData(image, 0, 0);

  const ratio = window.devicePixelRatio || 1, cw = Math.round(canvas.clientWidth * ratio), ch = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== cw || canvas.height !== ch) { canvas.width = cw; canvas.height = ch; }
  const context = canvas.getContext("2d");
  context.imageSmoothingEnabled = true; context.imageSmoothingQuality = "high";
  context.drawImage(inner, 0, 0, cw, ch);
  const project = (p) => { const c = apply(V, ...p); return c[2] > NEAR ? [(CX + F * c[0] / c[2]) * cw / W, (CY - F * c[1] / c[2]) * ch / H] : null; };
  context.font = `${12 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = "center"; context.lineWidth = 3 * ratio; context.lineJoin = "round";
  if ($("names").checked) for (const [, place] of world) place.forEach((m, b) => m && labels.push([[m[3], m[7], m[11]], data.bodies[b]]));
  if (view.shown < 0 && E > 1) for (const e of shownEnvs()) labels.push([[home.target[0] + offset(e)[0], home.target[1] + offset(e)[1] - spacing[1] * 0.42, ground], "environment " + data.envs[e]]);
  for (const [p, text] of labels) {
    const at = project(p);
    if (!at) continue;
    context.strokeStyle = colors.halo; context.strokeText(text, at[0], at[1] - 6 * ratio);
    context.fillStyle = colors.ink; context.fillText(text, at[0], at[1] - 6 * ratio);
  }
  let text = view.shown < 0 || E === 1 ? (E > 1 ? E + " environments" : "") : "environment " + data.envs[view.shown];
  if (broken.length) text += (text ? ", " : "") + "not finite: " + (E > 1 ? "environment " + broken.join(", ") : "the motion") + " at this time";
  note(text);
}

/** Fill the faces of a geom that look at the camera, shaded by the direction of the light. */
function paint(g, size, m, thick) {
  if (g.shape === "axes") { triad(m, size[0] || 0.1 * radius, 2 * thick); return; }
  multiply(G, V, m);
  const r = reach(g.shape, size), near = Math.max(NEAR, G[11]);
  if (g.shape !== "plane" && G[11] + r < NEAR) return;
  const across = F * r / near, detail = across < 10 ? 12 : across < 25 ? 20 : across < 70 ? 32 : across < 200 ? 48 : 64;
  const { vertices, faces, edges, sided } = mesh(g.shape, size, detail);
  const count = vertices.length / 3;
  if (points.length < 3 * count) points = new Float64Array(6 * count);
  for (let i = 0; i < count; i++) {
    const x = vertices[3 * i], y = vertices[3 * i + 1], z = vertices[3 * i + 2];
    points[3 * i] = G[0] * x + G[1] * y + G[2] * z + G[3];
    points[3 * i + 1] = G[4] * x + G[5] * y + G[6] * z + G[7];
    points[3 * i + 2] = G[8] * x + G[9] * y + G[10] * z + G[11];
  }
  const lx = V[0] * LIGHT[0] + V[1] * LIGHT[1] + V[2] * LIGHT[2], ly = V[4] * LIGHT[0] + V[5] * LIGHT[1] + V[6] * LIGHT[2];
  const lz = V[8] * LIGHT[0] + V[9] * LIGHT[1] + V[10] * LIGHT[2], alpha = g.rgba[3], mode = alpha < 0.99 ? 1 : 0;
  for (const face of faces) {
    const n = face.length, a = 3 * face[0], b = 3 * face[1], c = 3 * face[2];
    let nx = (points[b + 1] - points[a + 1]) * (points[c + 2] - points[b + 2]) - (points[b + 2] - points[a + 2]) * (points[c + 1] - points[b + 1]);
    let ny = (points[b + 2] - points[a + 2]) * (points[c] - points[b]) - (points[b] - points[a]) * (points[c + 2] - points[b + 2]);
    let nz = (points[b] - points[a]) * (points[c + 1] - points[b + 1]) - (points[b + 1] - points[a + 1]) * (points[c] - points[b]);
    const length = -Math.sqrt(nx * nx + ny * ny + nz * nz);  // right, up, forward is a left-handed frame
    if (!(length < 0)) continue;
    nx /= length; ny /= length; nz /= length;
    if (nx * points[a] + ny * points[a + 1] + nz * points[a + 2] >= 0) {
      if (!sided) continue;
      nx = -nx; ny = -ny; nz = -nz;
    }
    const lit = nx * lx + ny * ly + nz * lz, half = lit * 0.5 + 0.5;
    const s = colors.light[0] + colors.light[1] * half * half - 0.10 * nz, gloss = mode || sided ? 0 : 26 * Math.max(0, lit) ** 12;
    const color = pack(255 * g.rgba[0] * s + gloss, 255 * g.rgba[1] * s + gloss, 255 * g.rgba[2] * s + gloss);
    for (let i = 0; i < n; i++) { const k = 3 * face[i]; ca[3 * i] = points[k]; ca[3 * i + 1] = points[k + 1]; ca[3 * i + 2] = points[k + 2]; }
    polygon(n, nx, ny, nz, color, mode, alpha);
  }
  if (across < 8 * thick) return;
  for (const [i, j] of edges) line([...points.subarray(3 * i, 3 * i + 3)], [...points.subarray(3 * j, 3 * j + 3)], colors.edge, 0.4, thick, 1.003);
}
/** The shadow that a geom throws on the ground. */
function shadow(g, size, m) {
  if (g.shape === "axes" || g.shape === "plane") return;
  const { vertices, faces } = mesh(g.shape, size, 12), count = vertices.length / 3, flat = points.length >= 3 * count ? points : (points = new Float64Array(6 * count));
  for (let i = 0; i < count; i++) {
    const p = apply(m, vertices[3 * i], vertices[3 * i + 1], vertices[3 * i + 2]), drop = Math.max(0, p[2] - ground);
    const x = p[0] - LIGHT[0] / LIGHT[2] * drop, y = p[1] - LIGHT[1] / LIGHT[2] * drop, z = ground;
    flat[3 * i] = V[0] * x + V[1] * y + V[2] * z + V[3];
    flat[3 * i + 1] = V[4] * x + V[5] * y + V[6] * z + V[7];
    flat[3 * i + 2] = V[8] * x + V[9] * y + V[10] * z + V[11];
  }
  if (m[11] + reach(g.shape, size) < ground || V[11] + V[10] * ground === 0) return;
  for (const face of faces) {
    for (let i = 0; i < face.length; i++) for (let k = 0; k < 3; k++) ca[3 * i + k] = flat[3 * face[i] + k];
    polygon(face.length, V[2], V[6], V[10], colors.shadow, 2, colors.shade);
  }
}
function drawGrid(shift, thick) {
  const cells = 12, cx = Math.round((home.target[0] + shift[0]) / step) * step, cy = Math.round((home.target[1] + shift[1]) / step) * step;
  const at = (i, j) => apply(V, cx + i * step, cy + j * step, ground);
  for (let i = -cells; i <= cells; i++) {
    for (let j = -cells; j < cells; j++) {
      const fade = Math.max(0, 1 - Math.hypot(i, j + 0.5) / cells) ** 1.2;
      if (fade <= 0) continue;
      const a = Math.abs(Math.round(cx / step) + i) % 5 === 0 ? colors.strong : colors.faint;
      const b = Math.abs(Math.round(cy / step) + i) % 5 === 0 ? colors.strong : colors.faint;
      line(at(i, j), at(i, j + 1), colors.grid, a * fade, thick, 1.002);
      line(at(j, i), at(j + 1, i), colors.grid, b * fade, thick, 1.002);
    }
  }
}
function triad(m, length, width) {
  const o = apply(V, m[3], m[7], m[11]);
  [RED, GREEN, BLUE].forEach((color, k) => {
    const tip = apply(V, m[3] + length * m[k], m[7] + length * m[4 + k], m[11] + length * m[8 + k]);
    line(o, tip, color, 0.35, width, 1e6);
    line(o, tip, color, 1, width, 1.01);
  });
}
function drawAxes(f, t, e, place, length, thick) {
  data.axes.forEach((axis, i) => {
    const m = place[axis.body];
    if (!m) return;
    const k = ((f * E + e) * A + i) * 3, j = t > 0 ? k + E * A * 3 : k, d = [0, 1, 2].map((c) => (1 - t) * directions[k + c] + t * directions[j + c]);
    const at = (s) => apply(V, m[3] + s * d[0], m[7] + s * d[1], m[11] + s * d[2]);
    const color = axis.kind === "slide" ? SLIDE : HINGE;
    line(at(-length), at(length), color, 0.4, 2 * thick, 1e6);
    line(at(-length), at(length), color, 1, 2 * thick, 1.01);
    const tip = at(length), right = at(0.8 * length), side = 0.07 * length;  // the head of the arrow
    const sx = tip[1] - right[1], sy = right[0] - tip[0], n = Math.hypot(sx, sy);
    if (n < 1e-9) return;
    for (const s of [side / n, -side / n]) line(tip, [right[0] + s * sx, right[1] + s * sy, right[2]], color, 0.9, 2 * thick, 1e6);
  });
}

// ---- playing -------------------------------------------------------------------------------------------------------------

let dirty = true, touched = 0, quality = 1, cost = 10, fine = false, before = 0;
const SPEEDS = [0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8];
function tick(now) {
  window.requestAnimationFrame(tick);
  const passed = Math.min(0.1, (now - before) / 1000);
  before = now;
  if (view.playing) {
    view.time += passed * view.speed;
    if (view.time >= duration) {
      if ($("loop").checked) view.time = duration > 0 ? view.time % duration : 0;
      else { view.time = duration; setPlaying(false); }
    }
    dirty = true;
  }
  const ratio = window.devicePixelRatio || 1, best = ratio < 2 ? 2 : 1, still = !view.playing && now - touched > 180;
  if (!dirty && (fine || !still)) return;
  const start = performance.now(), level = still ? best : quality;
  draw(ratio * level);
  if (!still) {
    cost += 0.2 * (performance.now() - start - cost);
    if (cost > 26 && quality > 0.5) { quality = quality > 1 ? 1 : 0.5; cost = 12; }
    if (cost < 4 && quality < best) { quality = quality < 1 ? 1 : best; cost = 12; }
  }
  fine = still; dirty = false;
  $("scrub").value = String(view.time);
  $("clock").textContent = `${view.time.toFixed(2)} / ${duration.toFixed(2)} s`;
}
const touch = () => { touched = before; dirty = true; };
function setPlaying(on) {
  if (on && view.time >= duration) view.time = 0;
  view.playing = on && last > 0;
  $("play").textContent = view.playing ? "\u275a\u275a" : "\u25b6";
  touch();
}
function seek(time) { view.time = Math.min(duration, Math.max(0, time)); touch(); }
function jump(frames) { setPlaying(false); seek(times[Math.min(last, Math.max(0, frameAt(view.time)[0] + frames))]); }
function setSpeed(x) { view.speed = x; $("speed").value = String(x); }
function setEnv(e) { view.shown = e; $("env").value = String(e); frameOn(); touch(); }
function look(yaw, pitch) { camera.yaw = yaw; camera.pitch = pitch; touch(); }
function flip(id) { $(id).checked = !$(id).checked; touch(); }
function zoom(by) { camera.distance = Math.min(1e3 * radius, Math.max(0.02 * radius, camera.distance * by)); touch(); }
function turn(dx, dy) {
  camera.yaw -= 0.008 * dx;
  camera.pitch = Math.min(1.57, Math.max(-1.57, camera.pitch + 0.008 * dy));
  touch();
}
function pan(dx, dy) {
  const s = camera.distance * FIELD * 2 / Math.max(1, $("view").clientHeight);
  for (let k = 0; k < 3; k++) camera.target[k] += s * (-dx * V[k] + dy * V[4 + k]);
  touch();
}

// ---- mouse, touch, keys --------------------------------------------------------------------------------------------------

const held = new Map();
function pointers(canvas) {
  canvas.addEventListener("pointerdown", (e) => {
    canvas.setPointerCapture(e.pointerId);
    held.set(e.pointerId, { x: e.clientX, y: e.clientY });
    canvas.classList.add("held"); canvas.focus();
  });
  const release = (e) => { held.delete(e.pointerId); if (!held.size) canvas.classList.remove("held"); };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("pointermove", (e) => {
    const old = held.get(e.pointerId);
    if (!old) return;
    const dx = e.clientX - old.x, dy = e.clientY - old.y;
    if (held.size === 2) {
      const other = [...held].find(([id]) => id !== e.pointerId)[1];
      const was = Math.hypot(old.x - other.x, old.y - other.y), is = Math.hypot(e.clientX - other.x, e.clientY - other.y);
      if (was > 8 && is > 8) zoom(was / is);
      pan(dx / 2, dy / 2);
    } else if (e.shiftKey || e.ctrlKey || e.buttons & 6) pan(dx, dy);
    else turn(dx, dy);
    old.x = e.clientX; old.y = e.clientY;
  });
  canvas.addEventListener("wheel", (e) => { e.preventDefault(); zoom(Math.exp(0.0012 * e.deltaY * (e.deltaMode === 1 ? 16 : 1))); }, { passive: false });
  canvas.addEventListener("dblclick", () => { reset(); touch(); });
  canvas.addEventListener("contextmenu", (e) => e.preventDefault());
}
const KEYS = {
  " ": () => setPlaying(!view.playing), Home: () => seek(0), End: () => { setPlaying(false); seek(duration); },
  ArrowLeft: (e) => jump(e.shiftKey ? -10 : -1), ArrowRight: (e) => jump(e.shiftKey ? 10 : 1),
  ArrowUp: () => setSpeed(SPEEDS[Math.min(SPEEDS.length - 1, SPEEDS.indexOf(view.speed) + 1)]),
  ArrowDown: () => setSpeed(SPEEDS[Math.max(0, SPEEDS.indexOf(view.speed) - 1)]),
  "+": () => zoom(0.87), "=": () => zoom(0.87), "-": () => zoom(1.15), r: () => { reset(); touch(); },
  1: () => look(0, 0.05), 2: () => look(-Math.PI / 2, 0.05), 3: () => look(-Math.PI / 2, 1.57),
  f: () => flip("frames"), j: () => flip("axes"), n: () => flip("names"), g: () => flip("grid"), c: () => flip("follow"), l: () => flip("loop"),
  e: () => E > 1 && setEnv((view.shown + 1) % E), a: () => E > 1 && setEnv(-1), "?": () => { $("help").hidden = !$("help").hidden; },
  Escape: () => { $("help").hidden = true; },
};
function controls() {
  for (const s of SPEEDS) $("speed").add(new Option("\u00d7 " + s, String(s)));
  setSpeed(1);
  if (E > 1) {
    $("env").add(new Option("all " + E, "-1"));
    data.envs.forEach((e, i) => $("env").add(new Option("environment " + e, String(i))));
    $("env").value = String(view.shown);
  } else { view.shown = 0; $("env").hidden = true; }
  $("scrub").max = String(duration || 1);
  if (last === 0) for (const id of ["play", "scrub", "clock", "speed"]) $(id).hidden = true;
  $("loop").parentElement.hidden = $("follow").parentElement.hidden = last === 0;
  $("axes").parentElement.hidden = A === 0;
  $("play").addEventListener("click", () => setPlaying(!view.playing));
  $("scrub").addEventListener("input", () => { setPlaying(false); seek(Number($("scrub").value)); });
  $("speed").addEventListener("change", () => setSpeed(Number($("speed").value)));
  $("env").addEventListener("change", () => setEnv(Number($("env").value)));
  $("more").addEventListener("click", () => KEYS["?"]());
  for (const id of ["frames", "axes", "names", "grid", "follow", "loop"]) $(id).addEventListener("change", touch);
  pointers($("view"));
  window.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target instanceof HTMLSelectElement) return;
    if (e.key === " " && e.target instanceof HTMLButtonElement) return;
    const act = KEYS[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (act) { e.preventDefault(); act(e); }
  });
  window.addEventListener("resize", touch);
  scheme.addEventListener("change", () => { setColors(); touch(); });
}

setColors();
controls();
measure();
$("follow").checked = drift && last > 0;
draw(window.devicePixelRatio || 1);
setPlaying(!window.matchMedia("(prefers-reduced-motion: reduce)").matches);
window.requestAnimationFrame((now) => { before = now; tick(now); });
root.dataset.ready = String(times.length);
})();
