"""Numbers of MuJoCo 3.2.7 and 4.0.0: every MJCF model of the corpus, in float64.

The states are evaluated operation by operation, without compiling: a model is evaluated a few times only. Models in which no constraint can
act are rolled out too, compiled. What the engine of the release does against its manual is told by the model's own elements (`bugs`), and
such models are compared with the other release, which mends it.
"""

from __future__ import annotations

import json
import warnings
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from corpus import corpus, needs_corpus

import xsim

pytestmark = [pytest.mark.conformance, needs_corpus]

WHEELS = {"3.2": "3.2.7", "4.0": "4.0.0"}
CLOSE = 1e-7
LARGE = 80  # velocities: above, the facts hold no mass matrices
HUGE = 400  # velocities: above, an evaluation takes minutes
WAITING = ("touch", "distance", "normal", "fromto", "jointlimitpos", "jointlimitvel", "jointlimitfrc", "tendonlimitpos",
           "tendonlimitvel", "tendonlimitfrc", "user", "plugin")  # fmt: skip
"""Sensors of contacts and limits, which wait for those."""


def models() -> list[Path]:
    root = corpus()
    if root is None:
        return []
    folder = root / "models" / "mjcf"
    parts = json.loads((folder / "parts.json").read_text())["parts"]
    found = sorted(p for p in folder.rglob("*.xml") if str(p.relative_to(folder)) not in parts and "refused" not in p.parts)
    return [p.relative_to(folder) for p in found]


def facts(path: Path, rules: str) -> dict:
    root = corpus()
    assert root is not None
    return json.loads((root / "oracles" / "mjcf" / WHEELS[rules] / path.with_suffix(".json")).read_text())


@cache
def spec(path: Path, rules: str) -> xsim.ModelSpec:
    root = corpus()
    assert root is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.parse(root / "models" / "mjcf" / path, rules=rules)


def needs_plugin(error: dict | xsim.ParseError) -> bool:
    return "plugin" in str(error)


def states(known: dict) -> list[dict]:
    """The states of the facts with everything that says where they are."""
    size = known["size"]
    zero = {"qpos": known["qpos0"], "qvel": [0.0] * size["nv"], "ctrl": [0.0] * size["nu"], "act": [0.0] * size["na"]}
    return [known["states"]["random"], zero | known["states"]["qpos0"]]


def checked(path: Path, rules: str) -> bool:
    """Whether the release's numbers say something: of 4.0 only of models whose numbers differ from those of 3.2, or that 3.2 gets wrong."""
    known = facts(path, rules)
    if "error" in known or known["size"]["nv"] > HUGE:
        return False
    return rules == "3.2" or _differ(facts(path, "3.2"), known)


def _differ(a: dict, b: dict) -> bool:
    if "error" in a or a["size"] != b["size"]:
        return True
    for one, other in zip(states(a), states(b), strict=True):
        for key in ("M", "bias", "passive", "actuator", "qacc_smooth"):
            x, y = np.array(one.get(key, 0.0)), np.array(other.get(key, 0.0))
            if np.abs(x - y).max(initial=0.0) > 1e-9 * max(1.0, np.abs(y).max(initial=0.0)):
                return True
    return False


CASES = [(path, rules) for rules in WHEELS for path in models() if checked(path, rules)]


def bugs(model: xsim.ModelSpec, rules: str) -> set[str]:
    """What the release computes against its manual for elements that the model has (notes of the format)."""
    found: set[str] = set()
    if rules != "3.2":
        return found
    geoms = [g for b in model.bodies for g in b.geoms]
    if any(g.fluid is not None for g in geoms) and model.option.integrator in ("implicit", "implicitfast"):
        found.add("steps")  # derivatives of the ellipsoids' drag are rough, and of simple free bodies only the diagonal is kept
    for actuator in model.actuators:
        if actuator.transmission == "site" and actuator.reference is not None and np.any(actuator.gear[3:]):
            found |= {"actuator_length", "actuator", "actuator_force", "qacc_smooth", "steps"}  # quaternions in the wrong order
    return found


def rows_act_always(model: xsim.ModelSpec) -> bool:
    """Whether the model has friction losses or equalities, which act wherever it is."""
    off = model.option.disabled
    if "constraint" in off:
        return False
    joints = [j for b in model.bodies for j in b.joints]
    rubbing = any(j.friction is not None and np.any(j.friction) for j in joints) or any(t.friction for t in model.tendons)
    return bool(rubbing and "frictionloss" not in off or any(e.active for e in model.equalities) and "equality" not in off)


def test_every_model_is_read_or_needs_a_plugin():
    """All load but those that need a plugin, whose number can only shrink."""
    refused = []
    for path in models():
        try:
            spec(path, "3.2")
        except xsim.ParseError as error:
            assert needs_plugin(error), f"{path}: {error}"
            refused.append(str(path))
    assert len(refused) <= 6, refused


def _evaluate(model, q, v, act, ctrl):
    state = xsim.init(model, q, v).replace(act=act)
    data = xsim.forward(model, state, ctrl)
    places = {name: getattr(xsim, f"{name}_poses")(model, q) for name in ("site", "geom", "camera", "light")}
    return data, places, xsim.mass_matrix(model, q) if model.nv <= LARGE else None


def _matrices(quat) -> np.ndarray:
    w, x, y, z = np.moveaxis(np.asarray(quat), -1, 0)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z),
            2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]  # fmt: skip
    return np.stack(rows, -1)


def _elastic(model: xsim.ModelSpec) -> bool:
    return bool(model.flexes)


@pytest.mark.parametrize(("path", "rules"), CASES, ids=lambda x: str(x).removesuffix(".xml"))
def test_states(path, rules, x64):
    """Places, velocities, mass matrix, forces, accelerations, and sensors at both states of the facts."""
    known = facts(path, rules)
    try:
        source = spec(path, rules)
    except xsim.ParseError as error:
        assert needs_plugin(error), str(error)
        return
    if _elastic(source):
        return  # flexes are read, their forces are not computed: counted below
    model = xsim.build(source)
    wrong = bugs(source, rules)
    both = states(known)
    q, v, ctrl, act = (np.array([s[k] for s in both], float) for k in ("qpos", "qvel", "ctrl", "act"))
    with jax.disable_jit():
        out = _evaluate(model, jnp.array(q), jnp.array(v), jnp.array(act), jnp.array(ctrl) if model.nu else None)
    data, places, mass = jax.tree.map(np.asarray, out)
    for i, s in enumerate(both):
        if mass is not None and model.nv:
            close("mass matrix", mass[i], s["M"], CLOSE)
        for name, key in (("bias",) * 2, ("passive",) * 2, ("actuator",) * 2, ("a", "qacc_smooth")):
            if key not in wrong:
                close(name, getattr(data, name)[i], s[key], CLOSE)
        for name in ("actuator_length", "actuator_force"):
            if name not in wrong:
                close(name, getattr(data, name)[i], s[name], CLOSE)
        if "act_dot" in s:
            close("activation rates", data.act_rate[i], s["act_dot"], CLOSE)
        if "xpos" in s:
            _check_places(s, data, places, i)
        if s.get("sensordata"):
            _check_sensors(model, s, data.sensor[i], wrong)


def _check_places(s: dict, data, places: dict, i: int) -> None:
    close("position", data.pos[i], np.array(s["xpos"])[1:], CLOSE)
    close("orientation", _matrices(data.quat[i]), _matrices(np.array(s["xquat"])[1:]), CLOSE)
    close("velocity", np.concatenate([data.ang[i], data.lin[i]], -1), np.array(s["body_velocity_ang_lin"])[1:], CLOSE)
    for name in ("site", "geom"):
        if f"{name}_xpos" in s:
            pos, quat = places[name]
            close(f"{name} position", pos[i], s[f"{name}_xpos"], CLOSE)
            close(f"{name} orientation", _matrices(quat[i]), s[f"{name}_xmat"], CLOSE)
    if "cam_xpos" in s:
        close("camera position", places["camera"][0][i], s["cam_xpos"], CLOSE)
        close("camera axes", places["camera"][1][i].reshape(-1, 9), s["cam_xmat"], CLOSE)
    if "light_xpos" in s:
        close("light position", places["light"][0][i], s["light_xpos"], CLOSE)
        close("light direction", places["light"][1][i], s["light_xdir"], CLOSE)


def _check_sensors(model: xsim.Model, s: dict, found, wrong: set[str]) -> None:
    """Sensors of accelerations only where no constraint acts."""
    wanted = np.array(s["sensordata"])
    for info in model.topology.sensors:
        if info.kind in WAITING or info.stage == "acceleration" and (s["nefc"] or wrong):
            continue
        if info.kind.startswith("actuator") and wrong:
            continue
        own = slice(info.address, info.address + info.dim)
        close(f"sensor {info.kind} {info.name}", found[own], wanted[own], CLOSE)


# ---- rollouts -------------------------------------------------------------------------------------------------------------------

RADII = {"sphere": lambda s: s[0], "capsule": lambda s: s[0] + s[1], "cylinder": lambda s: np.hypot(*s[:2]), "ellipsoid": np.max,
         "box": np.linalg.norm}  # fmt: skip
STEPS = {1: 1e-8, 10: 1e-7, 100: 1e-5}


def steps_without_rows(source: xsim.ModelSpec, model: xsim.Model, q) -> int:
    """The first step at which a limit or a contact could act, by bounds of the positions and spheres around the geoms; q: (steps, nq)."""
    off, bad = source.option.disabled, np.zeros(len(q), bool)
    if "constraint" in off:
        return len(q)
    if "limit" not in off:
        for joint, info in zip((j for b in source.bodies for j in b.joints), model.topology.joints, strict=True):
            if joint.position_range is not None:
                low, high = joint.position_range[0]
                x = q[:, info.q[0]]
                bad |= (x < low + joint.margin) | (x > high - joint.margin)
            if joint.angle_limit is not None:
                w = np.abs(q[:, info.q[0]]) / np.linalg.norm(q[:, info.q[0] : info.q[0] + 4], axis=1)
                bad |= 2 * np.arccos(np.minimum(w, 1.0)) > joint.angle_limit - joint.margin
        if any(t.range is not None for t in source.tendons):
            return 0
    if "contact" not in off:
        bad |= _near(source, model, q)
    return int(np.argmax(bad)) if bad.any() else len(q)


def _near(source: xsim.ModelSpec, model: xsim.Model, q) -> np.ndarray:
    """At which of the configurations two geoms that may touch have spheres that overlap."""
    geoms = [(-1, g) for g in source.world_geoms] + [(i, g) for i, b in enumerate(source.bodies) for g in b.geoms]
    pos, quat = (np.asarray(x) for x in jax.jit(xsim.geom_poses)(model, jnp.asarray(q)))
    out = np.zeros(len(q), bool)
    pairs = {tuple(sorted(p.geoms)) for p in source.pairs}
    for i, (a, one) in enumerate(geoms):
        for k, (b, two) in enumerate(geoms[:i]):
            if (k, i) not in pairs and (not _may_touch(one, two) or _fixed_together(source, a, b)):
                continue
            margin = max(one.contact.margin, two.contact.margin) + 1e-6
            if "plane" in (one.shape, two.shape):
                plane, other = (i, k) if one.shape == "plane" else (k, i)
                normal = _matrices(quat[:, plane]).reshape(-1, 3, 3)[:, :, 2]
                apart = ((pos[:, other] - pos[:, plane]) * normal).sum(-1) - _radius(source, geoms[other][1])
            else:
                apart = np.linalg.norm(pos[:, i] - pos[:, k], axis=-1) - _radius(source, one) - _radius(source, two)
            out |= apart < margin
    return out


def _radius(source: xsim.ModelSpec, geom) -> float:
    if geom.shape == "mesh":
        return float(np.linalg.norm(source.meshes[geom.asset].vertices, axis=1).max())
    return float(RADII[geom.shape](np.asarray(geom.size))) if geom.shape in RADII else np.inf


def _may_touch(a, b) -> bool:
    a, b = a.contact, b.contact
    return bool(a.contype & b.conaffinity or b.contype & a.conaffinity)


def _fixed_together(source: xsim.ModelSpec, a: int, b: int) -> bool:
    """Whether the geoms of two bodies are never tested: one weld group, or parent and child but for the world."""

    def group(body: int) -> int:
        while body >= 0 and not source.bodies[body].joints:
            body = source.bodies[body].parent
        return body

    a, b = group(a), group(b)
    if a == b or tuple(sorted((a, b))) in {tuple(sorted(pair)) for pair in source.exclude}:
        return True
    up = [-1 if x < 0 else group(source.bodies[x].parent) for x in (a, b)]
    return "filterparent" not in source.option.disabled and (a >= 0 and up[0] == b >= 0 or b >= 0 and up[1] == a >= 0)


QUICK = {"xla_disable_hlo_passes": "fusion", "xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
"""A rollout of the corpus runs once: what it costs is compiling."""
SMALL = 14  # velocities: larger models take a minute to compile


def rolled(path: Path, rules: str) -> bool:
    """Models whose rollouts say something: small ones without rows that always act, at least one state of which starts without any."""
    known = facts(path, rules)
    if not 0 < known["size"]["nv"] <= SMALL or all(s["nefc"] for s in states(known)):
        return False
    try:
        source = spec(path, rules)
    except xsim.ParseError:
        return False
    return not (rows_act_always(source) or source.flexes or "steps" in bugs(source, rules))


@pytest.mark.parametrize(("path", "rules"), [c for c in CASES if rolled(*c)], ids=lambda x: str(x).removesuffix(".xml"))
def test_rollouts(path, rules, x64):
    """1, 10 and 100 steps, as far as no limit or contact can act."""
    known, source = facts(path, rules), spec(path, rules)
    model = xsim.build(source)
    both = states(known)
    q, v, ctrl, act = (jnp.array([s[k] for s in both], float) for k in ("qpos", "qvel", "ctrl", "act"))

    def run(model, state):
        ctrls = jnp.broadcast_to(ctrl, (100, *ctrl.shape)) if model.nu else None
        return xsim.rollout(model, state, ctrls, steps=100, record=lambda s, _: (s.q, s.v, s.act))[1]

    state = xsim.init(model, q, v).replace(act=act)
    found = jax.tree.map(np.asarray, jax.jit(run, compiler_options=QUICK)(model, state))
    for i, s in enumerate(both):
        if s["nefc"] or "error" in s["steps"]:
            continue
        free = steps_without_rows(source, model, np.concatenate([np.asarray(q)[None, i], found[0][:, i]]))
        for steps, tolerance in STEPS.items():
            if steps <= free and str(steps) in s["steps"]:
                for name, mine, key in zip("qva", found, ("qpos", "qvel", "act"), strict=True):
                    close(f"{steps} steps, {name}", mine[steps - 1, i], s["steps"][str(steps)][key], tolerance)
