// The scene of three.js, and its picture at a time.

const renderer = (() => {
  try { return new THREE.WebGLRenderer({ canvas: $("view"), antialias: true, alpha: true }); } catch { return null; }
})();
const scheme = window.matchMedia("(prefers-color-scheme: dark)");
const scene = new THREE.Scene(), eye = new THREE.PerspectiveCamera(), world = [];  // world: per environment what was built, or nothing
const LIGHT = new THREE.Vector3(0.35, -0.3, 0.89).normalize();
const sun = new THREE.DirectionalLight(0xffffff, 1.8), sky = new THREE.HemisphereLight(0xffffff, 0xa0a4ac, 1.9);
const RED = new THREE.Color(0xe03c3c), GREEN = new THREE.Color(0x34a853), BLUE = new THREE.Color(0x3c6eeb);
const HINGE = new THREE.Color(0xd63384), SLIDE = new THREE.Color(0x14a0aa);
const FORCE = new THREE.Color(0xf2a900), POINT = new THREE.Color(0xd62728);
const grid = new THREE.Group(), shade = new THREE.Mesh(new THREE.PlaneGeometry(1, 1), new THREE.ShadowMaterial({ opacity: 0.25 }));
const dome = new THREE.Mesh(new THREE.BoxGeometry(2, 2, 2),  // around the eye; y of its pictures is z of the world
  new THREE.MeshBasicMaterial({ side: THREE.BackSide, depthTest: false, depthWrite: false, toneMapped: false }));
dome.rotation.x = Math.PI / 2;
dome.renderOrder = -1;
dome.frustumCulled = false;
if (data.sky >= 0) paint(dome.material, pictures[data.sky], false, [1, 1, 1], 0);
let colors = null, sets = {};

function setColors() {
  colors = scheme.matches
    ? { grid: 0x96a5b9, strong: 0.5, faint: 0.22, edge: 0x000000, shade: 0.45, ink: "#e6eaf0", halo: "rgba(10,12,16,.75)" }
    : { grid: 0x5a697d, strong: 0.5, faint: 0.25, edge: 0x141923, shade: 0.25, ink: "#1c2430", halo: "rgba(255,255,255,.8)" };
  shade.material.opacity = colors.shade;
}
function startDrawing() {
  scene.matrixWorldAutoUpdate = true;
  eye.matrixAutoUpdate = false;
  renderer.shadowMap.enabled = true;
  renderer.shadowMap.type = THREE.PCFShadowMap;
  sun.castShadow = true;
  sun.shadow.mapSize.set(2048, 2048);
  shade.receiveShadow = true;
  scene.add(sky, sun, sun.target, grid, shade);
  if (data.sky >= 0) scene.add(dome);
  const rod = upright(new THREE.CylinderGeometry(1, 1, 1, 12)).translate(0, 0, 0.5);
  const tip = upright(new THREE.ConeGeometry(1, 1, 16)).translate(0, 0, 0.5);
  const plain = new THREE.MeshBasicMaterial(), lit = new THREE.MeshStandardMaterial({ roughness: 0.6 });
  const through = new THREE.MeshBasicMaterial({ transparent: true, opacity: 0.35, depthTest: false, depthWrite: false });
  sets = {
    lines: new Copies(scene, rod, plain), tips: new Copies(scene, tip, plain), linesThrough: new Copies(scene, rod, through),
    tipsThrough: new Copies(scene, tip, through), rods: new Copies(scene, rod, lit),
    balls: new Copies(scene, new THREE.SphereGeometry(1, 20, 12), lit),
  };
}

// ---- what an environment has ---------------------------------------------------------------------------------------------

function place(object, p, q) {
  object.position.set(p[0], p[1], p[2]);
  object.quaternion.set(q[1], q[2], q[3], q[0]).normalize();
}
/** The objects of a geom or site; factors: of its picture, see `materialOf`. */
function solid(g, size, p, q, factors) {
  const floor = g.shape === "plane", sided = floor || g.mesh >= 0, geometry = geometryOf(g, size);
  if (g.given && !geometry.attributes.texcoord) geometry.setAttribute("texcoord", texcoordsOf(g.shape, geometry, size));
  if (factors && !g.given && g.mesh >= 0) factors = factors.map((x, k) => x * size[k]);
  const mesh = new THREE.Mesh(geometry, materialOf(g, sided, floor && g.body < 0, factors));
  place(mesh, p, q);
  if (g.mesh >= 0) mesh.scale.set(...size);
  mesh.castShadow = !floor && g.rgba[3] >= 0.5;
  mesh.receiveShadow = true;
  if (EDGED.has(g.shape) && g.mesh < 0) {
    const ink = new THREE.LineBasicMaterial({ color: colors.edge, transparent: true, opacity: 0.3 * g.rgba[3] });
    mesh.add(new THREE.LineSegments(edgesOf(geometry), ink));
  }
  return mesh;
}
function built(e) {
  if (world[e]) return world[e];
  const all = new THREE.Group(), bodies = data.bodies.map(() => new THREE.Group()), triads = [], sites = [];
  for (const body of bodies) { body.matrixAutoUpdate = false; all.add(body); }
  const parent = (b) => (b < 0 ? all : bodies[b]);
  data.geoms.forEach((g, i) => {
    const size = row(data.size, e)[i], p = row(data.pos, e)[i], q = row(data.quat, e)[i];
    if (g.shape === "axes") triads.push([g, size[0], setMatrix(new Float64Array(12), ...p, ...q)]);
    else if (g.rgba[3] > 0) parent(g.body).add(solid(g, size, p, q, g.factors && row(g.factors, e)));
  });
  for (const s of data.sites) {
    const site = SHAPES[s.shape] && s.shape !== "plane" ? s : { ...s, shape: "sphere" };
    const mesh = solid({ ...site, mesh: -1 }, s.size.map((x) => x || s.size[0]), row(s.pos, e), row(s.quat, e));
    mesh.castShadow = false;
    parent(s.body).add(mesh);
    sites.push(mesh);
  }
  const surfaces = data.surfaces.map((s) => softSurface(s, all));
  scene.add(all);
  return world[e] = { all, bodies, triads, sites, surfaces };
}
/** A flex or skin. Its vertices are weighted sums of points on bodies. */
function softSurface(s, all) {
  if (!s.ready) {
    for (const name of ["vertices", "bodies"]) s[name] = integers(s[name]);
    for (const name of ["points", "weights"]) s[name] = floats(s[name]);
    s.elements = new Uint32Array(unpacked(s.elements));
    if (s.texcoords) s.texcoords = floats(s.texcoords);
    s.ready = true;
  }
  const positions = new Float32Array(3 * s.count);
  if (s.corners !== 3) return { s, positions, mesh: null };
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.BufferAttribute(positions, 3).setUsage(THREE.DynamicDrawUsage));
  geometry.setIndex(new THREE.BufferAttribute(s.elements, 1));
  if (s.texcoords) geometry.setAttribute("texcoord", new THREE.BufferAttribute(s.texcoords, 2));
  const mesh = new THREE.Mesh(geometry, materialOf({ ...s, given: true }, true, false, [...s.repeat, 0]));
  mesh.castShadow = s.rgba[3] >= 0.5;
  mesh.receiveShadow = true;
  mesh.frustumCulled = false;
  all.add(mesh);
  return { s, positions, mesh };
}
const REST = setMatrix(new Float64Array(12), 0, 0, 0, 1, 0, 0, 0);
function moveSurface({ s, positions, mesh }, places, ox, oy) {
  positions.fill(0);
  for (let i = 0; i < s.vertices.length; i++) {
    const m = s.bodies[i] < 0 ? REST : places[s.bodies[i]], v = 3 * s.vertices[i], w = s.weights[i];
    if (!m) { if (mesh) mesh.visible = false; return; }
    const p = apply(m, s.points[3 * i], s.points[3 * i + 1], s.points[3 * i + 2]);
    for (let k = 0; k < 3; k++) positions[v + k] += w * p[k];
  }
  if (mesh) {
    mesh.visible = true;
    mesh.geometry.attributes.position.needsUpdate = true;
    mesh.geometry.computeVertexNormals();
    return;
  }
  const at = (i) => [positions[3 * i] + ox, positions[3 * i + 1] + oy, positions[3 * i + 2]], color = colorOf(s.rgba);
  const width = s.radius || 0.004 * radius;
  for (let i = 0; i < s.elements.length; i += 2) sets.rods.rod(at(s.elements[i]), at(s.elements[i + 1]), width, color);
}

// ---- a picture -----------------------------------------------------------------------------------------------------------

function draw() {
  const [f, t] = frameAt(view.time), shift = followed(f, t), shown = new Set(shownEnvs()), broken = [], labels = [];
  fitCanvas(shift);
  for (const set of Object.values(sets)) set.begin();
  const small = radius / Math.sqrt(shown.size), thin = 0.0016 * camera.distance;
  for (let e = 0; e < E; e++) {
    if (!shown.has(e)) { if (world[e]) world[e].all.visible = false; continue; }
    const places = placeBodies(f, t, e);
    if (places.includes(null)) broken.push(data.envs[e]);
    drawTendons(f, t, e);
    if (contacts && $("contacts").checked) drawContacts(f, e, small, thin);
    if ($("axes").checked) drawAxes(f, t, e, places, 0.2 * small, thin);
    if ($("frames").checked) for (const m of places) if (m) triad(m, 0.16 * small, thin, ...offset(e));
    const [ox, oy] = offset(e);
    if ($("names").checked) places.forEach((m, b) => m && labels.push([[m[3] + ox, m[7] + oy, m[11]], data.bodies[b]]));
    if (view.shown < 0 && E > 1) {
      labels.push([[home.target[0] + ox, home.target[1] + oy - spacing[1] * 0.42, ground], "environment " + data.envs[e]]);
    }
  }
  for (const set of Object.values(sets)) set.end();
  drawGround(shift);
  renderer.render(scene, eye);
  write(labels);
  let text = view.shown < 0 || E === 1 ? (E > 1 ? E + " environments" : "") : "environment " + data.envs[view.shown];
  const where = E > 1 ? "environment " + broken.join(", ") : "the motion";
  if (broken.length) text += (text ? ", " : "") + "not finite: " + where + " at this time";
  note(text);
}
/** Size of the canvas, and the camera: the middle of the picture is above the controls. */
function fitCanvas(shift) {
  const c = $("view"), w = Math.max(16, c.clientWidth), h = Math.max(16, c.clientHeight), ratio = Math.min(2, window.devicePixelRatio || 1);
  if (renderer.getPixelRatio() !== ratio || c.width !== Math.floor(w * ratio) || c.height !== Math.floor(h * ratio)) {
    renderer.setPixelRatio(ratio);
    renderer.setSize(w, h, false);
  }
  const at = setCamera(shift);
  eye.fov = 360 / Math.PI * Math.atan(FIELD * h / Math.max(1, h - 50));
  eye.aspect = w / h;
  eye.near = 0.01 * camera.distance; eye.far = 40 * (camera.distance + radius);
  eye.setViewOffset(w, h, 0, 22, w, h);
  eye.matrix.set(V[0], V[4], -V[8], at[0], V[1], V[5], -V[9], at[1], V[2], V[6], -V[10], at[2], 0, 0, 0, 1);
  eye.matrixWorldNeedsUpdate = true;
  dome.position.set(...at);
  dome.scale.setScalar(camera.distance);
  const reach = 1.5 * radius + 0.2 * spacing[0], middle = home.target.map((x, k) => x + shift[k]), box = sun.shadow.camera;
  sun.target.position.set(...middle);
  sun.position.copy(LIGHT).multiplyScalar(4 * reach).add(sun.target.position);
  Object.assign(box, { left: -reach, right: reach, top: reach, bottom: -reach, near: 0.5 * reach, far: 9 * reach });
  box.updateProjectionMatrix();
  sun.shadow.bias = -0.0005;
  sun.shadow.normalBias = 0.0015 * reach;
}
/** Move the bodies of an environment; their matrices without the place of the environment, null where not finite. */
function placeBodies(f, t, e) {
  const [ox, oy] = offset(e), { all, bodies, triads, sites, surfaces } = built(e), places = [];
  all.visible = true;
  all.position.set(ox, oy, 0);
  bodies.forEach((body, b) => {
    const ok = poseOf(f, t, e, b), m = ok ? setMatrix(new Float64Array(12), ...pose) : null;
    places.push(m);
    body.visible = ok;
    if (ok) { body.matrix.set(...m, 0, 0, 0, 1); body.matrixWorldNeedsUpdate = true; }
  });
  for (const site of sites) site.visible = $("sites").checked;
  for (const surface of surfaces) moveSurface(surface, places, ox, oy);
  for (const [g, length, local] of triads) {
    const m = g.body < 0 ? REST : places[g.body];
    if (m) triad(product(m, local), length || 0.1 * radius, 0.0016 * camera.distance, ox, oy);
  }
  return places;
}
function product(a, b) {
  const out = new Float64Array(12);
  for (let i = 0; i < 12; i += 4) {
    for (let j = 0; j < 4; j++) out[i + j] = a[i] * b[j] + a[i + 1] * b[4 + j] + a[i + 2] * b[8 + j] + (j === 3 ? a[i + 3] : 0);
  }
  return out;
}
function arrow(p, q, width, color) {
  const head = Math.min(0.5, 8 * width / Math.max(1e-12, Math.hypot(...q.map((x, k) => x - p[k]))));
  const neck = q.map((x, k) => x + head * (p[k] - x));
  for (const end of ["", "Through"]) {
    sets["lines" + end].rod(p, neck, width, color);
    sets["tips" + end].rod(neck, q, 2.6 * width, color);
  }
}
function triad(m, length, width, ox, oy) {
  [RED, GREEN, BLUE].forEach((color, k) => {
    const p = [m[3] + ox, m[7] + oy, m[11]], q = [p[0] + length * m[k], p[1] + length * m[4 + k], p[2] + length * m[8 + k]];
    for (const end of ["lines", "linesThrough"]) sets[end].rod(p, q, width, color);
  });
}
function drawAxes(f, t, e, places, length, width) {
  const [ox, oy] = offset(e);
  data.axes.forEach((axis, i) => {
    const m = places[axis.body];
    if (!m) return;
    const k = ((f * E + e) * A + i) * 3, j = t > 0 ? k + E * A * 3 : k;
    const d = [0, 1, 2].map((c) => (1 - t) * directions[k + c] + t * directions[j + c]);
    const at = (s) => [m[3] + ox + s * d[0], m[7] + oy + s * d[1], m[11] + s * d[2]];
    arrow(at(-length), at(length), width, axis.kind === "slide" ? SLIDE : HINGE);
  });
}
function drawTendons(f, t, e) {
  const place = [...offset(e), 0], base = (f * E + e) * pathPoints, next = t > 0 ? base + E * pathPoints : base;
  for (const tendon of data.tendons) {
    const color = tendon.color || (tendon.color = colorOf(tendon.rgba)), width = tendon.width || 0.003 * radius;
    let before = null;
    for (let i = tendon.first; i < tendon.first + tendon.count; i++) {
      const p = place.map((x, k) => x + (1 - t) * paths[3 * (base + i) + k] + t * paths[3 * (next + i) + k]);
      if (before) { sets.rods.rod(before, p, width, color); sets.balls.ball(p, width, color); }
      before = p;
    }
  }
}
/** Points and forces of contacts; the largest force of the motion is as long as a third of the model. */
function drawContacts(f, e, small, width) {
  const n = data.contacts.count, [ox, oy] = offset(e);
  if (!data.contacts.largest) {
    for (let i = 0; i < contacts.length; i += 6) {
      const force = Math.hypot(contacts[i + 3], contacts[i + 4], contacts[i + 5]);
      if (force > (data.contacts.largest || 1e-12)) data.contacts.largest = force;
    }
  }
  const scale = 0.66 * small / (data.contacts.largest || 1);
  for (let i = 6 * n * (f * E + e), end = i + 6 * n; i < end; i += 6) {
    if (!Number.isFinite(contacts[i])) continue;
    const p = [contacts[i] + ox, contacts[i + 1] + oy, contacts[i + 2]];
    sets.balls.ball(p, 3 * width, POINT);
    arrow(p, p.map((x, k) => x + scale * contacts[i + 3 + k]), width, FORCE);
  }
}

// ---- ground and text -----------------------------------------------------------------------------------------------------

function drawGround(shift) {
  grid.visible = $("grid").checked;
  shade.visible = grid.visible && !floors.length;
  const cx = Math.round((home.target[0] + shift[0]) / step) * step, cy = Math.round((home.target[1] + shift[1]) / step) * step;
  const key = [step, Math.round(cx / step) % 5, Math.round(cy / step) % 5, colors.grid].join();
  if (grid.key !== key) {
    for (const old of [...grid.children]) { grid.remove(old); old.geometry.dispose(); }
    grid.add(gridLines(Math.round(cx / step), Math.round(cy / step)));
    grid.key = key;
  }
  grid.position.set(cx, cy, ground);
  shade.position.set(cx, cy, ground - 1e-3 * radius);
  shade.scale.setScalar(40 * radius);
}
/** Lines around a cell, which fade; every fifth is stronger. */
function gridLines(cx, cy) {
  const cells = 12, points = [], shades = [], color = new THREE.Color(colors.grid);
  const add = (x, y, alpha) => { points.push(x * step, y * step, 0); shades.push(color.r, color.g, color.b, alpha); };
  const fade = (i, j) => Math.max(0, 1 - Math.hypot(i, j) / cells) ** 1.2;
  for (let i = -cells; i <= cells; i++) {
    for (let j = -cells; j < cells; j++) {
      const a = Math.abs(cx + i) % 5 === 0 ? colors.strong : colors.faint;
      const b = Math.abs(cy + i) % 5 === 0 ? colors.strong : colors.faint;
      for (const k of [j, j + 1]) add(i, k, a * fade(i, k));
      for (const k of [j, j + 1]) add(k, i, b * fade(k, i));
    }
  }
  const geometry = new THREE.BufferGeometry();
  geometry.setAttribute("position", new THREE.Float32BufferAttribute(points, 3));
  geometry.setAttribute("color", new THREE.Float32BufferAttribute(shades, 4));
  return new THREE.LineSegments(geometry, new THREE.LineBasicMaterial({ vertexColors: true, transparent: true, depthWrite: false }));
}
/** Names at points of the world, on the canvas above the picture. */
function write(labels) {
  const canvas = $("text"), ratio = window.devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d"), at = new THREE.Vector3();
  context.clearRect(0, 0, w, h);
  context.font = `${12 * ratio}px system-ui, "DejaVu Sans", sans-serif`;
  context.textAlign = "center"; context.lineWidth = 3 * ratio; context.lineJoin = "round";
  for (const [p, text] of labels) {
    if (apply(V, ...p)[2] < eye.near) continue;
    at.set(...p).project(eye);
    const x = (at.x + 1) / 2 * w, y = (1 - at.y) / 2 * h - 6 * ratio;
    context.strokeStyle = colors.halo; context.strokeText(text, x, y);
    context.fillStyle = colors.ink; context.fillText(text, x, y);
  }
}
