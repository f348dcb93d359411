"""Numbers of the reference engines: every model of the corpus, in float64, converted to xsim's coordinates here."""

from __future__ import annotations

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close, of_names, quat_difference
from corpus import models, needs_corpus, oracle, small
from traced import by_numpy

import xsim
from xsim.io import x_xy as xxy
from xsim.joints.types import JOINT_TYPES

pytestmark = [pytest.mark.conformance, needs_corpus]


def _ids(path) -> str:
    return f"{path.parent.name}-{path.stem}"


def _size(path) -> int:
    """Velocities of a model."""
    return len(oracle(path)["states"][0]["v"])


def _load(path, axes: dict) -> tuple[xsim.ModelSpec, xsim.Model]:
    """The model with the joint axes the oracle was computed with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xsim.io.SuspiciousInputWarning)
        spec = xsim.parse(path)
    bodies = []
    for body in spec.bodies:
        if body.name in axes:
            rows = np.array([x for value in axes[body.name].values() for x in np.atleast_2d(value)])
            body = dataclasses.replace(body, joints=dataclasses.replace(body.joint, params={"axes": rows}))
        bodies.append(body)
    spec = spec.replace(bodies=tuple(bodies))
    return spec, xsim.build(spec)


def _smooth(model, q, v, tau):
    free = model.replace({"option.regularization": 0.0})
    state = xsim.init(model, q, v)
    data = xsim.forward(free, state, tau=tau)
    stepped = (xsim.step(model, state, tau=tau).v - v) / model.option.dt
    return data, xsim.mass_matrix(model, q), stepped


def _rigid_linear_rows(spec) -> np.ndarray:
    """Velocities (xsim order) whose spring acts along body axes in RING and along joint axes here: translations of turned joints."""
    rows = []
    for body in spec.bodies:
        _, entry = xxy.joint_map(body)
        width = JOINT_TYPES[body.joint.type].nv
        stiff = body.joint.stiffness
        rows += [i in entry.turned and stiff is not None and stiff[i] > 0 for i in range(width)]
    return np.array(rows, bool)


@pytest.mark.parametrize("path", models("x_xy"), ids=_ids)
def test_x_xy_states(path, x64):
    """Poses, velocities, mass matrix, bias, passive force and accelerations at every oracle state, against the consistent reference.

    xsim's spring of a translation acts along joint axes, RING's along body axes; where such a spring is stiff, the law is checked
    on the passive force itself and the acceleration after exchanging the two forces.
    """
    facts = oracle(path)
    spec, model = _load(path, facts.get("joint_params", {}))
    assert list(model.body_names) == facts["bodies"]
    np.testing.assert_allclose(model.option.gravity, facts["gravity"], atol=1e-15)
    mass = by_numpy(xsim.body_inertia)(model)[0]
    close("mass", mass, [facts["body_mass"][n] for n in facts["bodies"]], 1e-12)
    states = facts["states"]
    T = np.array([xxy.turning(spec, s["q"]) for s in states])
    q = np.array([xxy.q_to_xsim(spec, s["q"]) for s in states])
    v = np.einsum("sij,sj->si", T, np.array([s["v"] for s in states]).reshape(len(states), -1))
    tau = np.einsum("sij,sj->si", T, np.array([s["tau"] for s in states]).reshape(len(states), -1))
    names, sprung = facts["bodies"], _rigid_linear_rows(spec)
    data, M, stepped = by_numpy(_smooth)(model, q, v, tau)
    rate = _turning_rate(spec, states, T)
    for i, s in enumerate(states):
        exact, back = s["exact"], T[i].T  # T is orthogonal: forces map back like velocities
        pose, velocity = of_names(exact["body_pose"], names), of_names(exact["body_velocity"], names)
        close("position", data.pos[i], pose[:, :3], 1e-9)
        assert quat_difference(data.quat[i], pose[:, 3:]).max() < 1e-9
        close("velocity", np.concatenate([data.lin[i], data.ang[i]], -1), velocity, 1e-9)
        if model.nv == 0:
            continue
        close("mass matrix", back @ M[i] @ T[i], exact["mass_matrix"], 1e-8)
        # v_xsim = T v_file, so M dT/dt v_file is part of the file's bias.
        bias = back @ (data.bias[i] + M[i] @ rate[i])
        close("bias", bias, exact["bias"], 1e-8)
        passive = back @ data.passive[i]
        law = _ring_spring(spec, s["q"]) - back @ _own_spring(spec, model, q[i])
        close("passive force", passive + law, exact["passive_force"], 1e-8)
        if not sprung.any():
            assert np.abs(law).max() < 1e-12
        condition = np.linalg.cond(M[i])
        tolerance = 1e-7 if condition < 1e8 else 1e-5
        if "acceleration" in exact:
            shifted = np.linalg.solve(M[i], T[i] @ law) if sprung.any() else 0.0
            a = back @ (data.a[i] + shifted - rate[i])
            close("acceleration", a, exact["acceleration"], tolerance)
        else:
            assert facts["singular_mass_matrix"]
        if all(facts["agrees"].values()) and not sprung.any():
            # The step rule solves with M + dt D + 1e-6; the file's velocities see the same matrix but only M times dT/dt v.
            effective = M[i] + float(model.option.dt) * T[i] @ np.diag(_file_damping(spec)) @ back + 1e-6 * np.eye(model.nv)
            a = back @ (stepped[i] - np.linalg.solve(effective, M[i] @ rate[i]))
            close("acceleration of the step rule", a, s["acceleration_engine"], tolerance)
        for key, value in (("mass_matrix", back @ M[i] @ T[i]), ("bias", bias)):
            if facts["agrees"][key]:
                close(f"RING's {key}", value, s[key], 1e-8)


def _file_damping(spec) -> np.ndarray:
    out = []
    for body in spec.bodies:
        kind, (_, entry) = JOINT_TYPES[body.joint.type], xxy.joint_map(body)
        damping = np.zeros(kind.nv) if body.joint.damping is None else body.joint.damping
        out.append(damping[np.argsort(entry.v_order or range(kind.nv))])
    return np.concatenate(out)


def _turning_rate(spec, states, T) -> np.ndarray:
    """(dT/dt) v_file, what turning axes add to the acceleration."""
    out = []
    for s, t in zip(states, T, strict=True):
        v = np.array(s["v"], float)
        q = np.array(s["q"], float)
        total, at_q, at_v = np.zeros(len(v)), 0, 0
        for body in spec.bodies:
            _, entry = xxy.joint_map(body)
            kind = JOINT_TYPES[body.joint.type]
            if entry.turned:
                # In body axes the linear velocity u gives R u; its rate beyond R du/dt is R (w x u).
                own = v[at_v : at_v + kind.nv]
                if len(entry.turned) == 3:
                    spin = np.cross(own[:3], own[3:6])
                    total[at_v + 0 : at_v + 3] = t[at_v : at_v + 3, at_v + 3 : at_v + 6] @ spin
                else:
                    spin = np.array([-own[0] * own[2], own[0] * own[1]])
                    total[at_v : at_v + 2] = t[at_v : at_v + 2, at_v + 1 : at_v + 3] @ spin
            at_q, at_v = at_q + kind.nq, at_v + kind.nv
        assert at_q == len(q)
        out.append(total)
    return np.array(out)


def _ring_spring(spec, q) -> np.ndarray:
    """RING's spring force on the turned translations (file order): stiffness times the error in joint axes, acting along body axes."""
    return _spring(spec, q, lambda entry, stiff, error: np.asarray(stiff) * error)


def _spring(spec, q, law) -> np.ndarray:
    out, at = [], 0
    for body in spec.bodies:
        _, entry = xxy.joint_map(body)
        kind = JOINT_TYPES[body.joint.type]
        part = xxy.q_to_xsim(spec, q)[at : at + kind.nq]
        at += kind.nq
        force = np.zeros(kind.nv)
        if entry.turned and body.joint.stiffness is not None:
            ref = kind.neutral if body.joint.spring_ref is None else body.joint.spring_ref
            n = len(entry.turned)
            force[:n] = law(entry, body.joint.stiffness[:n], (ref - part)[:n])
        order = list(entry.v_order or range(kind.nv))
        out.append(force[np.argsort(order)])
    return np.concatenate(out) if out else np.zeros(0)


def _own_spring(spec, model, q) -> np.ndarray:
    """xsim's spring force on the turned translations: stiffness times the error, both along joint axes (xsim order)."""
    out = np.zeros(model.nv)
    for body, info in zip(spec.bodies, model.topology.bodies, strict=True):
        _, entry = xxy.joint_map(body)
        if entry.turned and body.joint.stiffness is not None:
            kind = JOINT_TYPES[body.joint.type]
            ref = kind.neutral if body.joint.spring_ref is None else body.joint.spring_ref
            n = len(entry.turned)
            out[info.v[0] : info.v[0] + n] = body.joint.stiffness[:n] * (ref[:n] - q[info.q[0] : info.q[0] + n])
    return out


@pytest.mark.parametrize("path", small(models("x_xy"), _size, 3), ids=_ids)
def test_x_xy_rollouts(path, x64):
    """RK4 of the consistent reference to 1e-5; RING's own rollouts where the oracle says that RING is consistent."""
    facts = oracle(path)
    spec, model = _load(path, facts.get("joint_params", {}))
    if model.nv == 0:
        return
    start = facts["states"][1]
    q = xxy.q_to_xsim(spec, start["q"])
    v = 0.5 * xxy.v_to_xsim(spec, start["q"], start["v"])
    stiff = _rigid_linear_rows(spec).any()
    turned = any(xxy.joint_map(b)[1].turned for b in spec.bodies)
    checked = 0
    for run in facts["rollouts"]:
        if run["source"] == "exact" and run["integrator"] == "RK4":
            if stiff:
                continue  # another spring law, another motion; its force is checked above
            m = xsim.with_integrator(model, "rk4").replace({"option.regularization": 0.0, "option.dt": run["dt"]})
            tolerance = 1e-5
        elif not turned and (run["source"] == "exact" or all(facts["agrees"].values())):
            # The same rule in the same coordinates; differences are rounding, amplified by the motion.
            m, tolerance = model.replace({"option.dt": run["dt"]}), 1e-7
        else:
            continue
        pos, quat = _sampled(m, q, v, tuple(np.rint(np.array(run["times"]) / run["dt"]).astype(int)))
        poses = np.array([run["body_pose"][n] for n in facts["bodies"]]).swapaxes(0, 1)
        close(f"{run['source']} {run['integrator']}", pos, poses[..., :3], tolerance)
        assert quat_difference(quat, poses[..., 3:]).max() < tolerance
        checked += 1
    # A turned joint's step rule is another discretization in other velocities; a singular model has no RK4 rollout. Both together
    # leave the step rule's acceleration at every state, which is checked above.
    comparable = not turned or any(run["integrator"] == "RK4" for run in facts["rollouts"])
    assert checked or stiff or not comparable


def _sampled(model, q, v, at):
    """Body poses at the given step numbers."""

    @jax.jit
    def run(model, state):
        return xsim.rollout(model, state, steps=max(at), record=lambda s, _: s.q)[1]

    state = xsim.init(model, q, v)
    qs = jnp.concatenate([state.q[None], run(model, state)])[np.array(at)]
    return by_numpy(xsim.kinematics)(model, qs)
