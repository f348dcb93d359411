// Playing, mouse, touch and keys; the start of the page.

// ---- playing -------------------------------------------------------------------------------------------------------------

let dirty = true, before = 0;
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
  if (!dirty) return;
  draw();
  dirty = false;
  $("scrub").value = String(view.time);
  $("clock").textContent = `${view.time.toFixed(2)} / ${duration.toFixed(2)} s`;
}
const touch = () => { dirty = true; };
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
  s: () => data.sites.length && flip("sites"), k: () => contacts && flip("contacts"),
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
  $("sites").parentElement.hidden = !data.sites.length;
  $("contacts").parentElement.hidden = !contacts;
  $("play").addEventListener("click", () => setPlaying(!view.playing));
  $("scrub").addEventListener("input", () => { setPlaying(false); seek(Number($("scrub").value)); });
  $("speed").addEventListener("change", () => setSpeed(Number($("speed").value)));
  $("env").addEventListener("change", () => setEnv(Number($("env").value)));
  $("more").addEventListener("click", () => KEYS["?"]());
  for (const id of ["frames", "axes", "sites", "contacts", "names", "grid", "follow", "loop"]) $(id).addEventListener("change", touch);
  pointers($("view"));
  window.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target instanceof HTMLSelectElement) return;
    if (e.key === " " && e.target instanceof HTMLButtonElement) return;
    const act = KEYS[e.key.length === 1 ? e.key.toLowerCase() : e.key];
    if (act) { e.preventDefault(); act(e); }
  });
  window.addEventListener("resize", touch);
  scheme.addEventListener("change", () => { setColors(); touch(); });
  $("view").addEventListener("webglcontextrestored", touch);
}

/** One line about what the page does not draw. */
function listMissing() {
  const shown = data.missing.slice(0, 4), more = data.missing.length - shown.length;
  $("missing").hidden = !data.missing.length;
  $("missing").textContent = "not drawn: " + shown.join(", ") + (more > 0 ? ", and " + more + " more" : "");
}

listMissing();
if (renderer) {
  setColors();
  startDrawing();
  controls();
  measure();
  $("follow").checked = drift && last > 0;
  draw();
  setPlaying(!window.matchMedia("(prefers-reduced-motion: reduce)").matches);
  window.requestAnimationFrame((now) => { before = now; tick(now); });
  root.dataset.ready = String(times.length);
} else {
  note("This page draws with WebGL, which this browser does not offer.");
  document.querySelector("footer").hidden = true;
  root.dataset.webgl = "missing";
}
