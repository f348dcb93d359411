"""Numbers of Project Chrono: every model of the corpus, in float64."""

from __future__ import annotations

import warnings
from functools import partial

import jax
import numpy as np
import pytest
import yaml
from comparing import close, of_names
from corpus import models, needs_corpus, oracle, small
from traced import traced

import xsim
from xsim.dynamics.call import Call
from xsim.dynamics.forces.time_functions import curve

pytestmark = [pytest.mark.conformance, needs_corpus]


def load(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.load(path, gravity=oracle(path)["gravity"])


def of_bodies(states, key, names):
    return np.array([of_names(s[key], names) for s in states])


def moving(path) -> int:
    """Bodies that move."""
    return sum(not b.get("fixed") for b in yaml.safe_load(path.read_text())["model"].get("bodies", ()))


@pytest.mark.parametrize("path", small(models("chrono"), moving, 3), ids=lambda p: p.stem)
def test_states(path, x64):
    """Accelerations and reactions at every state that the engine gives them for."""
    model, facts = load(path), oracle(path)
    names = list(model.body_names)
    bushing = any(f.kind == "bushing" for f in model.topology.forces)
    states = [s for s in facts["states"] if "body_acceleration" in s]
    poses, velocities, wanted = (of_bodies(states, f"body_{k}", names) for k in ("pose", "velocity", "acceleration"))
    times = np.array([s["time"] for s in states], float)

    def fitted(poses, velocities, times):
        split = ((x[..., :3], x[..., 3:]) for x in (poses, velocities))
        return xsim.state_from_poses(model, *split, time=times)

    given = poses, velocities, times
    state, residual = traced(fitted, *given)(*given)
    data = traced(partial(xsim.forward, model), state)(state)
    # The engine keeps its own constraints to 1e-6 in velocity.
    assert residual.max(initial=0) < 1e-6
    close("velocity", np.concatenate([data.lin, data.ang], -1), velocities, 2e-6)
    close("acceleration", np.concatenate([data.lin_acc, data.ang_acc], -1), wanted, 1e-5 if bushing else 1e-6)
    if not independent(model, state):
        return
    held = [s for s in states if "joint_reaction" in s]
    if not held:
        return
    state = jax.tree.map(lambda x: x[len(states) - len(held) :], state)
    found = reactions(model, state, facts, yaml.safe_load(path.read_text())["model"])
    for name in held[0]["joint_reaction"]:
        wanted = np.array([s["joint_reaction"][name] for s in held])
        if name not in found:  # a motor that only pushes: no constraint
            assert name in {f.name for f in model.topology.forces}
        close(f"reaction of {name}", found.get(name, 0.0 * wanted), wanted, 1e-4, scale=max(np.abs(wanted).max(), 1.0))


@pytest.mark.parametrize("path", [p for p in models("chrono") if oracle(p).get("functions", {}).get("values")], ids=lambda p: p.stem)
def test_functions_of_time(path, x64):
    """The values that the engine tabulates for every motor."""
    model, facts = load(path), oracle(path)["functions"]
    numbers = {f.name: i for i, f in enumerate(model.topology.functions)}
    times = np.array(facts["times"])

    def values(times):
        system = Call(model, np.array(model.topology.initial[0])).system
        return {name: curve(system, numbers[name])(times) for name in facts["values"]}

    for name, found in traced(values, times)(times).items():
        np.testing.assert_allclose(found, facts["values"][name], rtol=1e-12, atol=1e-12, err_msg=name)


def independent(model, state) -> bool:
    """Whether the constraints' rows depend on none of the others, at the first state."""
    if not model.topology.constraints:
        return True
    q, time = state.q[0], state.time[0]
    zero = np.zeros(model.nv)
    rows = traced(jax.jacfwd(lambda dv: xsim.constraint_error(model, xsim.integrate(model, q, dv), time)), zero)(zero)
    sizes = np.linalg.svd(rows, compute_uv=False)
    return len(rows) <= model.nv and sizes[-1] > 1e-6 * sizes[0]


def reactions(model, state, facts, file) -> dict:
    """By joint, motor or constraint: force and moment on body2, about the point of the element that body2 carries, as the engine has it."""
    r = traced(partial(xsim.reactions, model), state)(state)
    pos, quat = traced(partial(xsim.kinematics, model), state.q)(state.q)
    points = {}  # of every element: number of body2, and its point in it
    loaded = facts["states"][0]["body_pose"]
    for element in (*file.get("joints", ()), *file.get("motors", ()), *file.get("constraints", ())):
        at, turn = np.split(np.array(loaded[str(element["body2"])], float), [3])
        where = element.get("location", element.get("point2"))
        own = rotated(turn * [1, -1, -1, -1], np.array(where, float) - at)
        points[str(element["name"])] = model.body_names.index(str(element["body2"])), own
    out = {}
    for i, body in enumerate(model.topology.bodies):
        if body.joint.name in points:
            origin = pos[:, i] if body.frame is None else pos[:, i] + rotated(quat[:, i], np.asarray(model.joint.pos[body.frame]))
            out[body.joint.name] = i, r.force[:, i], r.moment[:, i], origin
    for i, info in enumerate(model.topology.constraints):
        second = info.bodies[1]
        own = np.asarray(model.constraint.pos2[i])
        origin = own if second < 0 else pos[:, second] + rotated(quat[:, second], own)
        out[info.name] = second, r.constraint_force[:, i], r.constraint_moment[:, i], origin
    found = {}
    for name, (body, force, moment, origin) in out.items():
        other, own = points[name]
        sign = 1.0 if body == other else -1.0
        point = pos[:, other] + rotated(quat[:, other], own)
        found[name] = sign * np.concatenate([force, moment + np.cross(origin - point, force)], -1)
    return found


def rotated(quat, vector):
    w, u = np.asarray(quat)[..., :1], np.asarray(quat)[..., 1:]
    twice = 2 * np.cross(u, np.broadcast_to(vector, u.shape))
    return vector + w * twice + np.cross(u, twice)


@pytest.mark.parametrize("path", small(models("chrono"), moving, 1), ids=lambda p: p.stem)
def test_rollouts(path, x64):
    """Two seconds against the engine's converged motion, by the fourth-order rule at a step and at half of it, which states its own
    error: the difference of the two (a fifteenth of it where the motion is smooth)."""
    facts, model = oracle(path), xsim.with_integrator(load(path), "rk4")
    wanted = facts["rollouts"][0]
    times = np.array(wanted["times"])
    poses = np.stack([wanted["body_pose"][name] for name in model.body_names], 1)
    run = jax.jit(lambda model, state: xsim.rollout(model, state, steps=50)[0])
    for dt in (2e-3, 2.5e-4, 5e-5):
        (coarse, turn), (pos, quat) = (samples(model, run, start_of(model, facts), h, len(times)) for h in (dt, dt / 2))
        own = max(np.abs(coarse - pos).max(), turned(turn, quat).max())
        error = max(np.abs(pos - poses[..., :3]).max(), turned(quat, poses[..., 3:]).max())
        if error <= 10 * wanted["error_estimate"]:
            return
    # Forces that jump, as tables and repeated functions do, leave an error of first order.
    assert own < 2e-4, f"not converged: {own:.1e}"
    assert error <= 10 * wanted["error_estimate"] + own, f"{error:.1e} away, {own:.1e} of it own"


def samples(model, run, state, dt, count):
    """Poses every 0.1 s."""
    model, q = model.replace({"option.dt": np.array(dt)}), [state.q]
    for _ in range(count - 1):
        for _ in range(round(0.1 / dt / 50)):
            state = run(model, state)
        q.append(state.q)
    assert not state.flags
    return xsim.kinematics(model, np.stack(q))


def start_of(model, facts):
    """Where the engine's motion starts. A pose that the motors contradict is projected there by steps of its own kind (every body free);
    xsim's steps agree to first order in the gap."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        start = xsim.init(model)
    first = [s for s in facts["states"] if s["time"] == 0]
    if len(first) == 1:
        return start
    loaded, pose, velocity = (of_names(s[k], model.body_names) for s, k in zip(
        (first[0], first[-1], first[-1]), ("body_pose", "body_pose", "body_velocity"), strict=True))  # fmt: skip
    pos = pose[:, :3]
    projected, _ = xsim.state_from_poses(model, (pos, pose[:, 3:]), (velocity[:, :3], velocity[:, 3:]))
    np.testing.assert_allclose(xsim.kinematics(model, start.q)[0], pos, atol=np.abs(pos - loaded[:, :3]).max() ** 2)
    return projected


def turned(one, other):
    """Angle (rad, to first order) between orientations."""
    same = np.sign((one * other).sum(-1, keepdims=True))
    return 2 * np.linalg.norm(one - same * other, axis=-1)
