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
WAITING = ("touch", "rangefinder", "distance", "normal", "fromto", "jointlimitpos", "jointlimitvel", "jointlimitfrc", "tendonlimitpos",
           "tendonlimitvel", "tendonlimitfrc", "user", "plugin")  # fmt: skip
"""Sensors of contacts and limits, which wait for those; rangefinders have a test of their own."""


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
    for actuator in model.actuators:
        if actuator.transmission == "site" and actuator.reference is not None and np.any(actuator.gear[3:]):
            found |= {"actuator_length", "actuator", "actuator_force", "qacc_smooth", "steps"}  # quaternions in the wrong order
    return found


def rows_can_act(model: xsim.ModelSpec) -> bool:
    """Whether limits, friction, equalities or contacts are in the model."""
    if "constraint" in model.option.disabled:
        return False
    off = model.option.disabled
    joints = [j for b in model.bodies for j in b.joints]
    limited = any(j.position_range is not None or j.angle_limit is not None for j in joints) or any(t.range is not None for t in model.tendons)
    rubbing = any(j.friction is not None and np.any(j.friction) for j in joints) or any(t.friction for t in model.tendons)
    geoms = [(i, g) for i, b in enumerate(model.bodies) for g in b.geoms] + [(-1, g) for g in model.world_geoms]
    touching = any(g.contact is not None and (g.contact.contype or g.contact.conaffinity) for _, g in geoms) or model.pairs
    return bool(
        limited and "limit" not in off or rubbing and "frictionloss" not in off or model.equalities and "equality" not in off
        or touching and "contact" not in off
    )  # fmt: skip


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
    return data, places, xsim.mass_matrix(model, q) if model.nv <= LARGE else None, xsim.step(model, state, ctrl)


def _matrices(quat) -> np.ndarray:
    w, x, y, z = np.moveaxis(np.asarray(quat), -1, 0)
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y), 2 * (x * y + w * z), 1 - 2 * (x * x + z * z),
            2 * (y * z - w * x), 2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)]  # fmt: skip
    return np.stack(rows, -1)


def _elastic(model: xsim.ModelSpec) -> bool:
    return bool(model.flexes)


@pytest.mark.parametrize(("path", "rules"), CASES, ids=lambda x: str(x).removesuffix(".xml"))
def test_states(path, rules, x64):
    """Places, velocities, mass matrix, forces, accelerations, sensors and one step at both states of the facts."""
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
    data, places, mass, after = jax.tree.map(np.asarray, out)
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
        if s["nefc"] == 0 and "1" in s["steps"] and "steps" not in wrong:
            one = s["steps"]["1"]
            for name, found, wanted in (("q", after.q, "qpos"), ("v", after.v, "qvel"), ("act", after.act, "act")):
                close(f"one step, {name}", found[i], one[wanted], CLOSE)


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
