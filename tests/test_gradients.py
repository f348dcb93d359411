"""Derivatives with respect to everything, forward and reverse, against Richardson-extrapolated float64 differences.

The states and perturbed copies are environments of one batch. Nothing is compiled: two traces, the value and its derivative.
Errors are relative to max(|g|, 1e-3 times the norm of that leaf's gradient).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus import models as corpus_models
from traced import by_numpy, traced

import xsim
from xsim import models

STATE = ("q", "v", "act", "tau", "ctrl")


def _states(model, rng) -> dict[str, np.ndarray]:
    """Four random states, then degenerate ones: neutral at rest; springs at their zero, at rest; neutral but moving."""
    neutral = np.array(model.topology.neutral)
    q = np.tile(neutral, (7, 1)) + 0.5 * rng.normal(size=(7, model.nq)) * np.array([1, 1, 1, 1, 0, 0, 0])[:, None]
    v = 0.5 * rng.normal(size=(7, model.nv)) * np.array([1, 1, 1, 1, 0, 0, 1])[:, None]
    tau = 0.2 * rng.normal(size=(7, model.nv))
    q[5], tau[4:6] = np.asarray(model.joint.spring_ref), 0.0
    return {"q": q, "v": v, "tau": tau, "ctrl": 0.3 * rng.normal(size=(7, model.nu)), "act": 0.2 + 0.5 * rng.random((7, model.na))}


def point_of(model, rng) -> dict[str, np.ndarray]:
    """Everything a step depends on, per environment, with degenerate numbers in environments 3 and 4 (see the test's name)."""
    point = {p: np.broadcast_to(np.asarray(model.get(p)), (7, *model.shape(p))).copy() for p in model.paths()}
    point.update(_states(model, rng))
    return point


def _loss(model, steps: int):
    weights = np.random.default_rng(5).normal(size=1000)

    def loss(point):
        m = model.replace({p: x for p, x in point.items() if p not in STATE})
        state = xsim.init(m, point["q"], point["v"]).replace(act=point["act"])
        seen = _seen(m, state, point["ctrl"] if m.nu else None)
        if steps == 1:
            state = xsim.step(m, state, point["ctrl"] if m.nu else None, point["tau"])
        else:
            ctrls, taus = (jnp.broadcast_to(point[k], (steps, *point[k].shape)) for k in ("ctrl", "tau"))
            state = xsim.rollout(m, state, ctrls if m.nu else None, taus=taus)[0]
        parts = jnp.concatenate([state.q, state.v, state.act, *seen], -1)
        return parts @ weights[: parts.shape[-1]]

    return loss


def _seen(model, state, ctrl) -> list:
    """What sensors, cameras and lights see."""
    out = []
    if model.topology.sensors:
        out.append(0.01 * xsim.sensors(model, state, ctrl))
    for infos, poses in ((model.topology.cameras, xsim.camera_poses), (model.topology.lights, xsim.light_poses)):
        if infos:
            out += [x.reshape(*x.shape[: state.q.ndim - 1], -1) for x in poses(model, state.q)]
    return out


def _widths(path: str, x, reach, scaled: bool):
    """Of every number, the width of its difference; scaled: times its size where that is more than 1."""
    return reach.get(path, reach["default"]) * (np.maximum(np.abs(x), 1.0) if scaled else np.ones(x.shape))


def _differences(loss, point, reach: dict[str, float], scaled: bool):
    """d loss / d every number of every environment, by central differences at two widths (error of fourth order)."""
    out = {}
    for path, x in point.items():
        num, shape = x.shape[0], x.shape[1:]
        size = int(np.prod(shape))
        if size == 0:
            out[path] = np.zeros(x.shape)
            continue
        h = _widths(path, x, reach, scaled).reshape(num, size)
        offsets = np.array([1.0, -1.0, 0.5, -0.5])
        moved = np.zeros((4, size, num, size))
        moved += x.reshape(num, size)
        for i in range(size):
            moved[:, i, :, i] += offsets[:, None] * h[:, i]
        batch = {k: np.tile(y, (4 * size, *([1] * (y.ndim - 1)))) for k, y in point.items()}
        batch[path] = moved.reshape(4 * size * num, *shape)
        values = _in_blocks(loss, batch).reshape(4, size, num)
        wide, narrow = (values[0] - values[1]) / (2 * h.T), (values[2] - values[3]) / h.T
        out[path] = ((4 * narrow - wide) / 3).T.reshape(x.shape)
    return out


BLOCK = 256  # environments at once: what they compute stays in cache


def _in_blocks(loss, batch) -> np.ndarray:
    """The loss of many environments through one batch size."""
    total = len(batch["q"])
    out = []
    for start in range(0, total, BLOCK):
        part = {k: x[start : start + BLOCK] for k, x in batch.items()}
        n = len(part["q"])
        part = {k: np.concatenate([x, np.broadcast_to(x[:1], (BLOCK - n, *x.shape[1:]))]) for k, x in part.items()}
        out.append(np.asarray(loss(part))[:n])
    return np.concatenate(out)


def check_gradients(model, steps: int, reach, tolerance: float, point, scaled: bool = False):
    loss = _loss(model, steps)
    rng = np.random.default_rng(2)
    direction = {k: rng.normal(size=x.shape) for k, x in point.items()}

    def derivatives(point, direction):
        reverse = jax.grad(lambda p: loss(p).sum())(point)
        return reverse, jax.jvp(loss, (point,), (direction,))[1]

    reverse, forward = traced(derivatives, point, direction)(point, direction)
    many = {k: np.zeros((BLOCK, *x.shape[1:])) for k, x in point.items()}
    value = traced(loss, many)
    numeric, size = _differences(value, point, reach, scaled), np.abs(_in_blocks(value, point)).max()
    along = np.zeros(7)
    for path, g in reverse.items():
        assert np.isfinite(g).all(), path
        along += (g * direction[path]).reshape(7, -1).sum(1)
        norm = np.linalg.norm(g.reshape(7, -1), axis=1).reshape(7, *([1] * (g.ndim - 1)))
        # The difference carries the rounding of its losses over its width: one unit per step, and some hundreds from the solve, which
        # amplifies rounding where axes are aligned (zoo, environment 3: widths 2e-4 and 5e-5 of one number disagree by 3e-10, loss 4).
        rounding = (400 + steps) * np.finfo(float).eps * size / _widths(path, point[path], reach, scaled)
        floor = np.maximum(np.abs(g), np.maximum(1e-3 * norm, rounding / tolerance))
        error = np.abs(g - numeric[path]) / floor
        assert error.max(initial=0.0) < tolerance, f"{path}: {error.max():.1e} at {np.unravel_index(error.argmax(), g.shape)}"
    np.testing.assert_allclose(forward, along, rtol=1e-9, atol=1e-9)
    return reverse


def check_both_modes(loss, point, smooth: int, reach, tolerance: float, labels=None) -> dict:
    """Forward against reverse mode at every environment, finite; both against differences at the first ``smooth`` ones. labels: of the
    environments. The derivatives."""
    count = len(point["q"])
    labels, rng = np.array(labels or range(count)), np.random.default_rng(2)
    direction = {k: rng.normal(size=x.shape) for k, x in point.items()}

    @by_numpy
    def derivatives(point, direction):
        value, along = jax.linearize(loss, point)
        (reverse,) = jax.linear_transpose(along, point)(jnp.ones_like(value))
        return value, along(direction), reverse

    value, forward, reverse = derivatives(point, direction)
    assert np.isfinite(value).all(), labels[~np.isfinite(value)]
    assert np.isfinite(forward).all(), labels[~np.isfinite(forward)]
    bad = {k: list(labels[~np.isfinite(g.reshape(count, -1)).all(1)]) for k, g in reverse.items() if not np.isfinite(g).all()}
    assert not bad
    along = sum((g * direction[k]).reshape(count, -1).sum(1) for k, g in reverse.items())
    np.testing.assert_allclose(forward, along, rtol=1e-8, atol=1e-8 * np.abs(along).max())

    first = {k: x[:smooth] for k, x in point.items()}
    numeric, wrong = _differences(by_numpy(loss), first, reach, scaled=False), {}
    for path, g in reverse.items():
        g = g[:smooth]
        norm = np.linalg.norm(g.reshape(smooth, -1), axis=1).reshape(smooth, *([1] * (g.ndim - 1)))
        rounding = 400 * np.finfo(float).eps * np.abs(value[:smooth]).max() / _widths(path, first[path], reach, False)
        error = np.abs(g - numeric[path]) / np.maximum(np.abs(g), np.maximum(1e-3 * norm, rounding / tolerance))
        if error.max(initial=0.0) > tolerance:
            where = np.unravel_index(error.argmax(), g.shape)
            wrong[path] = f"{error.max():.1e} at {[int(i) for i in where]}: {g[where]:.9g}, {numeric[path][where]:.9g}"
    assert not wrong
    return reverse


# Widths of the differences: small beside the number itself, large beside rounding.
REACH = {"default": 2e-4, "geom.size": 1e-4, "geom.mass": 5e-5, "dof.armature": 1e-5, "option.dt": 1e-6, "option.regularization": 1e-5,
         "body.inertia": 3e-6, "body.mass": 5e-5}  # fmt: skip


@pytest.mark.slow
def test_one_step_of_every_joint_type(x64):
    """zoo: every joint and geom type, springs, dampers, armature; random states, rest, identity quaternions, springs at their zero."""
    model = xsim.load(models.path("zoo"))
    point = point_of(model, np.random.default_rng(0))
    point["joint.axes"][3, 1] = point["joint.axes"][3, 0]  # aligned neighbours
    reverse = check_gradients(model, 1, REACH, 1e-7, point)
    # No dead leaf: everything but what this model has none of acts on the motion.
    dead = [p for p, g in reverse.items() if g.size and not np.abs(g).max() > 0]
    assert dead == []


@pytest.mark.slow
@pytest.mark.parametrize("steps", [25, pytest.param(100, marks=pytest.mark.nightly)])
def test_rollout_of_many_steps(steps, x64):
    """chain: a spherical root, drawn axes and welded sensors; environment 3 has a massless tip, 2 a doubled mass."""
    model = xsim.load(models.path("chain"))
    point = point_of(model, np.random.default_rng(1))
    point["geom.mass"][3, -2:] = 0.0
    point["geom.mass"][2] *= 2
    point["option.dt"][:] = 0.002  # the motion stays smooth on the scale of the differences' widths over 100 steps
    check_gradients(model, steps, {**REACH, "default": 5e-5, "geom.size": 2e-5, "dof.armature": 5e-6, "option.dt": 2e-7}, 1e-7, point)


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_other_integrators(integrator, x64):
    model = xsim.with_integrator(xsim.load(models.path("spring_chain")), integrator)
    point = point_of(model, np.random.default_rng(3))
    check_gradients(model, 3, REACH, 1e-7, point)


@pytest.mark.slow
def test_second_derivatives(x64):
    """Hessian of a step by forward over reverse is symmetric and equals differences of the gradient."""
    model = xsim.load(models.path("pendulum"))

    def loss(x):
        m = model.replace({"geom.mass": x[6:10], "dof.damping": x[4:6]})
        s = xsim.step(m, xsim.init(m, x[:2], x[2:4]), tau=jnp.array([0.3, 0.1]))
        return jnp.sum(jnp.sin(s.q) + s.v**2)

    x = jnp.array([0.1, 0.5, 0.3, -0.7, 0.2, 0.1, 0.0, 0.5, 1.0, 0.3])
    gradient = jax.jit(jax.grad(loss))
    hessian = np.asarray(jax.jit(jax.hessian(loss))(x))
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-10, atol=1e-12)
    h = 1e-4
    numeric = np.stack([(8 * (gradient(x + h * e / 2) - gradient(x - h * e / 2)) - (gradient(x + h * e) - gradient(x - h * e))) / (6 * h)
                        for e in np.eye(10)])  # fmt: skip
    np.testing.assert_allclose(hessian, numeric, rtol=1e-7, atol=1e-9)


# Models with limits, dry friction, servos, prescribed motion, couplings, implicit springs and frames of their own. Not the planar loop,
# which has no derivative along turns of its axes that lock it (tests/test_loops.py has one that does), nor the twin of two_links.
# MJCF is in tests/test_mjcf_gradients.py.
WITHOUT = ("four_bar", "two_links_twin")
OTHERS = [models.path(n) for n in models.names() if models.path(n).parent.name not in ("x_xy", "chrono", "mjcf") and n not in WITHOUT] + [
    path for format, stem in (("sdf", "chain_all_joints"), ("skel", "joint_limit_test"), ("skel", "joint_dynamics_elements_test"))
    for path in corpus_models(format) if path.stem == stem
]  # fmt: skip


LONG = ("gripper", "arm_all_joints", "rubber_arm", "slider_crank", "chain_all_joints")  # to trace and evaluate: a minute and more


def _daily(paths):
    return [pytest.param(p, marks=[pytest.mark.nightly] * (p.stem in LONG)) for p in paths]


@pytest.mark.slow
@pytest.mark.parametrize("path", _daily(OTHERS), ids=lambda p: f"{p.parent.name}-{p.stem}")
def test_models_of_other_formats(path, x64):
    """A step with everything that acts, at random states inside and beyond limits, sliding and sticking; the seed is one whose
    differences cross no switch of a row (an analytic derivative there is one-sided)."""
    model = xsim.load(path)
    point = point_of(model, np.random.default_rng(5))
    for side, inwards in (("lower", 0.02), ("upper", -0.03)):
        for bound, dof in zip(getattr(model.limit, side), model.topology.dofs(f"limit.{side}"), strict=True):
            place = next(link.q for link in model.topology.links if link.v == dof)
            touching = np.abs(point["q"][:, place] - np.asarray(bound)) < 1e-3
            point["q"][touching, place] += inwards
    check_gradients(model, 1, REACH, 1e-6, point)


CHRONO = [models.path(n) for n in models.names() if models.path(n).parent.name == "chrono"]


@pytest.mark.slow
@pytest.mark.parametrize("path", _daily(CHRONO), ids=lambda p: p.stem)
def test_constraints_and_elements_over_5_steps(path, x64):
    """A driven loop, bushings, and springs with maps, tables and stops: every number, from the points of tables to the places and axes of
    joints. Environment 4 starts as drawn, at rest; the others near it."""
    model = xsim.load(path)
    point, rng = point_of(model, np.random.default_rng(8)), np.random.default_rng(10)
    away = 0.02 * rng.normal(size=(7, model.nv)) * np.array([1, 1, 1, 1, 0, 1, 1])[:, None]
    point["q"] = np.array(xsim.integrate(model, jnp.asarray(model.topology.initial[0]), away))
    point["option.dt"][:] = 0.001
    # Places are under stiff springs: a wide difference would carry the motion over the corners of tables.
    places = ("q", "body.pos", "body.quat", "force.pos1", "force.pos2", "force.rest", "force.stop")
    reach = {"default": 2e-5, "option.dt": 2e-8, "option.regularization": 1e-6, **dict.fromkeys(places, 1e-6)}
    check_gradients(model, 5, reach, 1e-6, point, scaled=True)


@pytest.mark.nightly
def test_gradients_on_a_switch_are_finite(x64):
    """gripper, closed and at rest: both coupled fingers sit on a limit, every dry friction holds."""
    model = xsim.load(models.path("gripper"))
    point = {k: x[4:6] for k, x in point_of(model, np.random.default_rng(6)).items()}
    point["ctrl"][1] = 0.0
    loss = _loss(model, 1)
    gradient = traced(jax.grad(lambda p: loss(p).sum()), point)(point)
    assert all(np.isfinite(np.asarray(g)).all() for g in jax.tree.leaves(gradient))
