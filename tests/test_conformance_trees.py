"""Numbers of Drake (SDFormat, URDF) and DART (SKEL): every model of the corpus, in float64.

Nothing is compiled but Drake's long rollouts: a model is evaluated a few times only.
"""

from __future__ import annotations

import warnings
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import QUICK, close, of_names, quat_difference
from coordinates import Map
from corpus import models, needs_corpus, oracle, small
from traced import traced

import xsim
from xsim.poses import rotate

pytestmark = [pytest.mark.conformance, needs_corpus]

FORMATS = ("sdf", "urdf", "skel")
ALL = [path for format in FORMATS for path in models(format)]


def _id(path) -> str:
    return f"{path.parent.name}-{path.stem}"


def _size(path) -> int:
    """Velocities of a model."""
    return len(oracle(path)["states"][0]["v"])


def load(path, facts: dict):
    """Spec, model and coordinates; the base as the oracle holds it."""
    options = {"base": facts["base"]} if "base" in facts else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spec = xsim.parse(path, **options)
    return spec, xsim.build(spec), Map(spec, facts, path.parent.name)


def _evaluate(model, q, v, tau, ctrl):
    free = xsim.with_constraints(model, ("holonomic",))
    data = xsim.forward(free, xsim.init(free, q, v), ctrl, tau)
    return data, xsim.mass_matrix(free, q), xsim.energy(free, q, v)


def _commands(model, coordinates, facts, s, T) -> np.ndarray:
    """Prescribed accelerations and velocities of the state's ``command``; forces are in tau."""
    out = np.zeros(model.nv)
    if "command" in s:
        own = T @ np.array(s["command"], float)
        driven = [d in ("acceleration", "velocity") for d in model.topology.drives]
        out[driven] = own[driven]
    return out[list(model.topology.commands)]


@pytest.mark.parametrize("path", small(ALL, _size, 8), ids=_id)
def test_states(path, x64):
    """Poses, velocities, mass matrix, bias and acceleration at every state of the oracle."""
    facts = oracle(path)
    spec, model, coordinates = load(path, facts)
    assert sorted(model.body_names) == sorted(facts["bodies"])
    np.testing.assert_allclose(model.option.gravity, facts["gravity"], atol=1e-12)
    names, order = facts["bodies"], [model.body_names.index(n) for n in facts["bodies"]]
    states = facts["states"]
    q = np.array([coordinates.q(s["q"]) for s in states])
    T = np.array([coordinates.T(s["q"]) for s in states])
    v, rate = np.zeros((len(states), model.nv)), np.zeros((len(states), model.nv))
    tau, ctrl = np.zeros_like(v), np.zeros((len(states), model.nu))
    for i, s in enumerate(states):
        v[i], rate[i] = T[i] @ np.array(s["v"], float), coordinates.rate(s["q"], s["v"])
        tau[i] = np.linalg.solve(T[i].T, np.array(s["tau"], float)) if model.nv else tau[i]
        ctrl[i] = _commands(model, coordinates, facts, s, T[i])
    data, M, energy = traced(partial(_evaluate, model), q, v, tau, ctrl)(q, v, tau, ctrl)
    start = xsim.init(xsim.with_constraints(model, ()))  # the engines start where the file says, on the constraints or not
    close("start q", _same_sign(model, np.asarray(start.q), q[0]), q[0], 1e-9)
    close("start v", start.v, v[0], 1e-9)
    for i, s in enumerate(states):
        pose, velocity = of_names(s["body_pose"], names), of_names(s["body_velocity"], names)
        close("position", data.pos[i][order], pose[:, :3], 1e-9)
        assert quat_difference(data.quat[i][order], pose[:, 3:]).max() < 1e-9
        close("velocity", np.concatenate([data.lin[i], data.ang[i]], -1)[order], velocity, 1e-9)
        if model.nv == 0:
            continue
        close("mass matrix", T[i].T @ M[i] @ T[i], s["mass_matrix"], 1e-8)
        close("bias", T[i].T @ (data.bias[i] + M[i] @ rate[i]), s["bias"], 1e-8)
        a = np.linalg.solve(T[i], data.a[i] - rate[i])
        # Nearly massless links (mass matrices of condition 1e9 and more) leave the engines' own accelerations with fewer digits.
        tolerance = 1e-7 if np.linalg.cond(M[i]) < 1e9 else 1e-5
        close("acceleration", a, s["acceleration"], tolerance)
        if "acceleration_with_coulomb_friction" in s:
            rubbed = _with_friction(model, q[i], v[i], tau[i])
            close("acceleration with friction", np.linalg.solve(T[i], rubbed - rate[i]), s["acceleration_with_coulomb_friction"], 1e-7)
        if "kinetic_energy" in s:
            close("kinetic energy", energy[0][i], s["kinetic_energy"], 1e-9)
            close("potential energy", energy[1][i] - _immobile_energy(model, facts, data, i), s["potential_energy"], 1e-9)


def _immobile_energy(model, facts: dict, data, i: int) -> float:
    """Potential energy of the skeletons that cannot move, which DART counts but the oracle's sum of skeletons leaves out."""
    mass, com, _ = xsim.body_inertia(model)
    moving = {_skeleton(joint) for joint in facts["joints"] if not joint.get("fixed") and joint.get("type") != "weld"}
    immobile = [model.body_names.index(joint["child"]) for joint in facts["joints"] if _skeleton(joint) not in moving]
    return -sum(mass[b] * model.option.gravity @ (data.pos[i][b] + rotate(data.quat[i][b], com[b])) for b in immobile)


def _skeleton(joint: dict) -> str:
    return joint["child"].partition("/")[0]


def _same_sign(model, q, like):
    """q with the quaternions' signs of ``like``."""
    out = q.copy()
    for link in model.topology.links:
        if link.kind == "ball":
            part = slice(link.q, link.q + 4)
            out[part] *= np.sign(out[part] @ like[part])
    return out


def _with_friction(model, q, v, tau):
    """Where every rubbing dof moves, friction is a constant force over a short enough step."""
    short = xsim.with_integrator(xsim.with_constraints(model, ("friction",)), "euler").replace({"option.dt": 1e-6})
    return traced(partial(xsim.forward_dynamics, short), q, v, tau)(q, v, tau)


def _history(model, q, v, steps: int):
    """q, v of every step, the start included: (steps + 1, *batch, n)."""

    def run(model, state):
        kept = xsim.rollout(model, state, steps=steps, record=lambda s, _: (s.q, s.v))[1]
        return [jnp.concatenate([x[None], y]) for x, y in zip((state.q, state.v), kept, strict=True)]

    return jax.tree.map(np.asarray, jax.jit(run, compiler_options=QUICK)(model, xsim.init(model, q, v)))


def _walked(model, q, v, ctrls):
    """The same of a few hundred steps, with inputs (steps, *batch, nu)."""
    path, step = [xsim.init(model, q, v)], jax.jit(partial(xsim.step, model))
    for ctrl in ctrls:
        path.append(step(path[-1], ctrl) if model.nu else step(path[-1]))
    return np.stack([s.q for s in path]), np.stack([s.v for s in path])


def _stepped(model, q, v, tau, ctrl):
    return xsim.step(xsim.with_constraints(model, ()), xsim.init(model, q, v), ctrl, tau).v


@pytest.mark.parametrize("path", small(models("skel"), _size, 6), ids=_id)
def test_skel_steps(path, x64):
    """DART's step rule: the smooth step at every state, and the first sample of every rollout without contact."""
    facts = oracle(path)
    spec, model, coordinates = load(path, facts)
    if model.nv == 0:
        return
    wanted = [s for s in facts["states"] if "acceleration_step" in s]
    if wanted:
        q, T = (np.array([f(s["q"]) for s in wanted]) for f in (coordinates.q, coordinates.T))
        v, after = (np.einsum("sij,sj->si", T, np.array([s[k] for s in wanted])) for k in ("v", "acceleration_step"))
        tau = np.array([np.linalg.solve(t.T, np.array(s["tau"], float)) for s, t in zip(wanted, T, strict=True)])
        ctrl = np.array([_commands(model, coordinates, facts, s, t) for s, t in zip(wanted, T, strict=True)])
        found = traced(partial(_stepped, model), q, v, tau, ctrl)(q, v, tau, ctrl)
        close("velocity after a step", found, v + facts["time_step"] * after, 1e-9)
    runs = [r for r in facts["rollouts"] if not r["contact"]]
    for enforced in (False, True):
        # Dry friction always acts in the engine, limits where the oracle says so.
        kinds = ("friction", "limit", "velocity") if enforced else ("friction",)
        group = [r for r in runs if bool(r.get("limits_enforced")) == enforced]
        if not group:
            continue
        counts = [round(r["times"][1] / r["dt"]) for r in group]
        starts = [facts["states"][r["start_state"]] for r in group]
        q = np.array([coordinates.q(s["q"]) for s in starts])
        v = np.array([coordinates.T(s["q"]) @ np.array(s["v"], float) for s in starts])
        m = xsim.with_constraints(model, kinds).replace({"option.dt": np.array([r["dt"] for r in group])})
        ctrls = np.zeros((max(counts), len(group), model.nu))
        for column, dof in enumerate(model.topology.commands):
            if model.topology.drives[dof] == "velocity":
                # Setting the velocity of such a joint in the engine sets its command, which is cleared after the first step.
                ctrls[0, :, column] = v[:, dof]
        qs, vs = _walked(m, q, v, ctrls)
        for i, (run, count) in enumerate(zip(group, counts, strict=True)):
            tolerance = 1e-9 * max(1.0, run["growth"][1]) + _truncation(model, vs[:count, i], run["dt"])
            theirs = run["q"][1]
            goal = coordinates.q(theirs)
            close(f"q after {count} steps", _same_sign(model, qs[count, i], goal), goal, tolerance)
            speed = coordinates.T(theirs) @ np.array(run["v"][1])
            held = np.array([i in _at_limit(model, goal) for i in range(model.nv)]) if enforced else np.zeros(model.nv, bool)
            close(f"v after {count} steps", vs[count, i][~held], speed[~held], tolerance)
            # At a limit v is (limit - q) / dt: what q may differ by, divided by dt.
            close(f"v at limits after {count} steps", vs[count, i][held], speed[held], tolerance / run["dt"])
    assert runs or not facts["rollouts"]


def _at_limit(model, q) -> set[int]:
    """Dofs whose position is at a bound."""
    place = {link.v: link.q for link in model.topology.links if link.nv == 1}
    out = set()
    for side in ("lower", "upper"):
        for bound, dof in zip(getattr(model.limit, side), model.topology.dofs(f"limit.{side}"), strict=True):
            if abs(q[place[dof]] - bound) < 1e-9:
                out.add(dof)
    return out


def _truncation(model, v, dt: float) -> float:
    """The engine turns balls and free bodies by 1 + W + W^2/2 where the angle of a step is small: |W|^3/6 per step is its error."""
    angles = [dt * np.linalg.norm(v[:, link.v : link.v + 3], axis=-1) for link in model.topology.links if link.kind == "ball"]
    return max((float(np.sum(np.where(a < 1e-3, a**3 / 6, 0.0))) for a in angles), default=0.0)


@pytest.mark.parametrize("path", small([*models("sdf"), *models("urdf")], _size, 3), ids=_id)
def test_smooth_rollouts(path, x64):
    """Drake's rollouts (adaptive, 1e-10), without limits and dry friction, by Runge-Kutta with steps small enough to agree to 1e-8."""
    facts = oracle(path)
    spec, model, coordinates = load(path, facts)
    if model.nv == 0:
        return
    free = xsim.with_integrator(xsim.with_constraints(model, ("holonomic",)), "rk4")
    for run in facts.get("rollouts", []):
        every = 100
        qs, vs = _history(
            free.replace({"option.dt": run["dt"] / every}),
            coordinates.q(run["q"][0]),
            coordinates.T(run["q"][0]) @ np.array(run["v"][0], float),
            every * (len(run["times"]) - 1),
        )
        for k, (theirs, speed) in enumerate(zip(run["q"], run["v"], strict=True)):
            goal = coordinates.q(theirs)
            close(f"q at {run['times'][k]}", _same_sign(model, qs[k * every], goal), goal, 1e-8)
            close(f"v at {run['times'][k]}", vs[k * every], coordinates.T(theirs) @ np.array(speed, float), 1e-8)


# ---- thousands of copies -----------------------------------------------------------------------------------------------------

RANGES = {
    "body.mass": {"uniform": [0.9, 1.1], "relative": "scale"},
    "body.inertia": {"uniform": [1.0, 1.1], "relative": "scale", "per": "row"},
    "body.com": {"normal": [0, 0.005], "relative": "offset"},
    "body.pos": {"normal": [0, 0.01], "relative": "offset"},
    "body.quat": {"normal": [0, 0.05], "relative": "rotate"},
    "joint.axes": {"normal": [0, 0.05], "relative": "offset"},
}


LARGE = [pytest.param(name, marks=pytest.mark.nightly) for name in ("urdf-g1_29dof_rev_1_0", "urdf-panda")]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sdf-chain_all_joints", *LARGE])
def test_4096_randomized_copies_step(name):
    """Float32, all rows on, every copy with masses, inertias, places and axes of its own; and among its equals one moves the same way."""
    (path,) = [p for p in ALL if _id(p) == name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xsim.load(path)
    copies = xsim.randomize(model, jax.random.key(0), 4096, RANGES)
    step = jax.jit(xsim.step, compiler_options=QUICK)
    start = xsim.init(copies, v=0.2 * jax.random.normal(jax.random.key(1), (4096, model.nv)))
    final = step(copies, step(copies, start))
    assert not np.asarray(final.flags).any() and np.isfinite(final.q).all() and np.isfinite(final.v).all()
    assert np.ptp(np.asarray(final.v), 0).min() > 1e-3
    same = np.full(4096, 4000)
    equals = copies.replace({p: copies.get(p)[same] for p in copies.paths() if copies.get(p).ndim > len(copies.shape(p))})
    own = step(equals, step(equals, jax.tree.map(lambda x: x[same], start)))
    np.testing.assert_allclose(own.v[0], final.v[4000], rtol=1e-4, atol=1e-5)
