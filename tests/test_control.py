"""Optimal control: against Riccati, a swing-up within limits, on manifolds, in a loop with the simulation; bad arguments are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from jax.tree_util import Partial

import xsim
from xsim.control import Controller, deviation, displaced, feedback, ilqr, simulate
from xsim.control.box_qp import box_minimum

SLIDERS = """
<mujoco>
  <option timestep="0.05" gravity="0 0 0"/>
  <worldbody>
    <body>
      <joint name="first" type="slide" axis="1 0 0" stiffness="3" damping="0.4"/><geom size="0.1" mass="2"/>
      <body><joint name="second" type="slide" axis="1 0 0" stiffness="5" damping="0.2"/><geom size="0.1" mass="1"/></body>
    </body>
  </worldbody>
  <actuator><motor joint="first"/></actuator>
</mujoco>"""

CART = """
<mujoco>
  <option timestep="0.02"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <body name="cart">
      <joint name="cart" type="slide" axis="1 0 0" damping="0.1"/><geom type="box" size="0.15 0.1 0.05" mass="1"/>
      <body name="pole">
        <joint name="pole" axis="0 1 0" damping="0.01"/><geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.02" mass="0.2"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="cart" gear="10" ctrlrange="-1 1" ctrllimited="true"/></actuator>
</mujoco>"""

SATELLITE = """
<mujoco>
  <option timestep="0.05" gravity="0 0 0"/>
  <worldbody>
    <body><freejoint/><geom type="box" size="0.1 0.2 0.3" mass="2"/>{arm}</body>
  </worldbody>
</mujoco>"""

ARM = '<body pos="0 0 0.4"><joint type="ball"/><geom type="box" size="0.05 0.1 0.1" mass="0.5"/></body>'


# ---- a linear system ----------------------------------------------------------------------------------------------------------


def _sliders_matrices(dt=0.05):
    """x' = A x + B u of x = (q, v): semi-implicit Euler with implicit damping."""
    mass, stiffness, damping = np.array([[3.0, 1.0], [1.0, 1.0]]), np.diag([3.0, 5.0]), np.diag([0.4, 0.2])
    inverse = np.linalg.inv(mass + dt * damping)
    velocity = np.hstack([-dt * inverse @ stiffness, inverse @ mass])
    a = np.vstack([np.hstack([np.eye(2), np.zeros((2, 2))]) + dt * velocity, velocity])
    push = dt * inverse @ np.array([[1.0], [0.0]])
    return a, np.vstack([dt * push, push])


@pytest.mark.slow
def test_a_linear_system_has_the_solution_of_riccati(x64):
    a, b = _sliders_matrices()
    Q, R = np.diag([2.0, 1.0, 0.5, 0.1]), np.array([[0.3]])
    P = scipy.linalg.solve_discrete_are(a, b, Q, R)
    gain = -np.linalg.solve(R + b.T @ P @ b, b.T @ P @ a)

    def cost(state, ctrl, t):
        x = jnp.concatenate([state.q, state.v])
        return 0.5 * (x @ Q @ x + ctrl @ R @ ctrl)

    def final_cost(state):
        x = jnp.concatenate([state.q, state.v])
        return 0.5 * x @ P @ x

    model = xsim.loads(SLIDERS, "mjcf")
    x = np.array([0.5, -0.3, 0.2, 0.4])
    plan = ilqr(model, xsim.init(model, x[:2], x[2:]), np.zeros((20, 1)), cost, final_cost, tolerance=1e-13)
    assert plan.converged and plan.iterations <= 8
    np.testing.assert_allclose(plan.cost, 0.5 * x @ P @ x, rtol=1e-6)
    np.testing.assert_allclose(plan.gains, np.broadcast_to(gain, (20, 1, 4)), atol=1e-6)
    for planned in plan.ctrls:
        np.testing.assert_allclose(planned, gain @ x, atol=1e-6)
        x = a @ x + b @ np.asarray(planned)


def test_box_minimum_equals_bounded_least_squares(x64):
    rng = np.random.default_rng(0)
    solve = jax.jit(box_minimum)
    for _ in range(20):
        matrix, target = rng.normal(size=(6, 4)), 2 * rng.normal(size=6)
        low, high = -rng.uniform(0, 0.5, 4), rng.uniform(0, 0.5, 4)
        low[0], high[1] = -np.inf, np.inf
        wanted = scipy.optimize.lsq_linear(matrix, target, (low, high), method="bvls", tol=1e-14)
        x, free = solve(matrix.T @ matrix, -matrix.T @ target, low, high)
        np.testing.assert_allclose(x, wanted.x, atol=1e-9)
        np.testing.assert_array_equal(free, wanted.active_mask == 0)


# ---- a pole that swings up ----------------------------------------------------------------------------------------------------


def _cart_cost(state, ctrl, t):
    x, angle = state.q
    return 0.02 * (0.1 * x**2 + 1 - jnp.cos(angle) + 0.01 * state.v @ state.v + 0.01 * ctrl @ ctrl)


def _cart_final_cost(state):
    return 10 * (1 - jnp.cos(state.q[1])) + state.q[0] ** 2 + state.v @ state.v


@pytest.fixture(scope="module")
def cart():
    return xsim.loads(CART, "mjcf")


@pytest.fixture(scope="module")
def swing_up(cart):
    hanging = xsim.init(cart, jnp.array([0.0, jnp.pi]))
    return ilqr(cart, hanging, jnp.full((100, 1), 0.1), _cart_cost, _cart_final_cost)


@pytest.mark.slow
def test_swing_up_from_hanging(cart, swing_up):
    plan = swing_up
    assert plan.converged and abs(plan.states.q[-1, 1]) < 0.1 and jnp.abs(plan.states.v[-1]).max() < 0.1
    assert jnp.abs(plan.ctrls).max() == 1.0  # the limit of the motor, and it is reached
    at_limit = jnp.abs(plan.ctrls[:, 0]) == 1.0
    assert at_limit.sum() > 10 and (plan.gains[at_limit] == 0).all((1, 2)).mean() > 0.9  # feedback does not act where it is reached
    history = plan.cost_history[: plan.iterations + 1]
    assert (jnp.diff(history) <= 0).all() and jnp.isclose(history[-1], plan.cost)
    assert jnp.isnan(plan.cost_history[plan.iterations + 1 :]).all()
    _, q = xsim.rollout(cart, xsim.init(cart, jnp.array([0.0, jnp.pi])), plan.ctrls, record=lambda state, data: state.q)
    np.testing.assert_allclose(q, plan.states.q[1:], atol=1e-3)  # the states are those of the controls


@pytest.mark.slow
def test_the_swing_up_is_a_minimum(cart, swing_up):
    """The gradient of the cost by reverse mode, which `ilqr` does not use, is zero, or points out of the limits."""

    def total(ctrls):
        def one(state, x):
            return xsim.step(cart, state, x[0]), _cart_cost(state, *x)

        last, costs = jax.lax.scan(one, xsim.init(cart, jnp.array([0.0, jnp.pi])), (ctrls, jnp.arange(100)))
        return costs.sum() + _cart_final_cost(last)

    value, slope = jax.jit(jax.value_and_grad(total))(swing_up.ctrls)
    _, at_start = jax.jit(jax.value_and_grad(total))(jnp.full((100, 1), 0.1))
    np.testing.assert_allclose(value, swing_up.cost, rtol=1e-5)
    inward = jnp.where(swing_up.ctrls == 1.0, jnp.maximum(slope, 0), jnp.where(swing_up.ctrls == -1.0, jnp.minimum(slope, 0), slope))
    assert jnp.abs(inward).max() < 5e-3 < 0.5 < jnp.abs(at_start).max()


@pytest.mark.slow
def test_gains_stabilize_the_swing_up(cart, swing_up):
    @jax.jit
    def last(start, closed):
        def one(state, t):
            ctrl = jnp.where(closed, feedback(cart, swing_up, state, t), swing_up.ctrls[t])
            return xsim.step(cart, state, ctrl), None

        return jax.lax.scan(one, start, jnp.arange(100))[0]

    start = xsim.init(cart, jnp.array([0.03, jnp.pi + 0.05]), jnp.array([0.0, -0.05]))
    opened, closed = last(start, False), last(start, True)
    assert abs(closed.q[1]) < 0.1 < 0.3 < abs(opened.q[1])


@pytest.mark.nightly
def test_a_controller_keeps_the_pole_up(cart):
    """Also of a pole that is half as heavy again as in its model, from states that a batch has."""
    plant = cart.replace({"geom.mass": cart.geom.mass * jnp.array([1.0, 1.5])})
    controller = Controller(cart, _cart_cost, _cart_final_cost)
    memory = controller.start(jnp.zeros((25, 1)))
    start = xsim.init(cart, jnp.array([[0.0, 0.3], [0.2, -0.4]]))
    states, ctrls, after = jax.vmap(lambda s: simulate(controller, s, memory, 150, plant))(start)
    assert jnp.abs(states.q[:, -1]).max() < 0.1 and jnp.abs(states.q[:, :, 1]).max() < 0.7
    assert jnp.abs(ctrls).max() <= 1.0 and jnp.isfinite(after.cost).all()
    np.testing.assert_allclose(states.time[0], 0.02 * np.arange(1, 151), rtol=1e-4)


TRACES = []


def _lean_cost(angle, state, ctrl, t):
    TRACES.append(angle)
    return (state.q[1] - angle) ** 2 + 0.1 * state.v @ state.v + 0.01 * ctrl @ ctrl


def _lean_final_cost(angle, state):
    return 0.0 * angle


@pytest.mark.slow
def test_plans_that_differ_in_numbers_share_a_program(cart):
    """In the arguments of their costs, in limits and in models."""
    start, zero, found, counts = xsim.init(cart), jnp.zeros((5, 1)), [], []
    for angle, limit, mass in ((0.1, 1.0, 1.0), (-0.1, 0.01, 2.0)):
        model = cart.replace({"geom.mass": cart.geom.mass * mass})
        costs, limits = (Partial(_lean_cost, angle), Partial(_lean_final_cost, angle)), (-limit, limit)
        plan = ilqr(model, start, zero, *costs, limits=limits, max_iterations=2)
        controller = Controller(model, *costs, limits, iterations=2)
        _, ctrls, _ = simulate(controller, start, controller.start(zero), 3)
        np.testing.assert_allclose(ctrls[0], plan.ctrls[0], rtol=1e-5)
        found.append(ctrls)
        counts.append(len(TRACES))
    assert counts[0] == counts[1]
    assert jnp.abs(found[1]).max() == pytest.approx(0.01) and jnp.sign(found[0][0, 0]) == -jnp.sign(found[1][0, 0])
    with pytest.raises(ValueError, match="low must not exceed high"):
        simulate(Controller(cart, _cart_cost, _cart_final_cost, (1.0, -1.0)), start, controller.start(zero), 3)


# ---- on a manifold ------------------------------------------------------------------------------------------------------------


def _turn_cost(state, ctrl, t):
    return 1e-3 * ctrl @ ctrl + 1e-3 * state.v @ state.v


def test_deviations_of_a_free_joint_and_a_ball(x64):
    model = xsim.loads(SATELLITE.format(arm=ARM), "mjcf")
    dx = np.random.default_rng(0).normal(size=(2, 3, 2 * model.nv))
    state = displaced(model, xsim.init(model, np.tile(model.topology.neutral, (3, 1))), dx[0])
    np.testing.assert_allclose(deviation(model, state, displaced(model, state, dx[1])), dx[1], atol=1e-12)


@pytest.mark.slow
def test_a_free_body_turns(x64):
    """By more than a right angle, to a goal that the costs are given as numbers."""
    model = xsim.loads(SATELLITE.format(arm=""), "mjcf")

    def final_cost(goal, state):
        error = xsim.difference(model, goal, state.q)
        return 100 * error @ error + 10 * state.v @ state.v

    start = xsim.init(model)
    goal = xsim.integrate(model, start.q, np.array([0.3, -0.2, 0.1, 1.2, -1.0, 0.8]))
    options = {"substeps": 2, "limits": (-5.0, 5.0)}
    plan = ilqr(model, start, np.zeros((15, model.nv)), _turn_cost, Partial(final_cost, goal), **options)
    assert plan.converged and plan.iterations < 40
    assert jnp.abs(xsim.difference(model, goal, plan.states.q[-1])).max() < 0.02 and jnp.abs(plan.states.v[-1]).max() < 0.1
    np.testing.assert_allclose(plan.states.time, 0.1 * np.arange(16), atol=1e-12)
    assert jnp.abs(plan.ctrls).max() <= 5.0 and jnp.isfinite(plan.gains).all()


# ---- what is refused ----------------------------------------------------------------------------------------------------------


def test_bad_arguments(cart):
    start, zero = xsim.init(cart), jnp.zeros((5, 1))
    cost, final, two = _cart_cost, _cart_final_cost, xsim.init(cart, np.zeros((2, 2)))
    idle = Controller(cart, cost, final, iterations=0)
    for error, text, call in (
        (TypeError, "ilqr needs a Model", lambda: ilqr("cart.xml", start, zero, cost, final)),
        (TypeError, "final_cost must be a function, found float", lambda: ilqr(cart, start, zero, cost, 1.0)),
        (ValueError, "one start, found a batch .2,.: use jax.vmap", lambda: ilqr(cart, two, zero, cost, final)),
        (ValueError, r"ctrls must have shape \(T, 1\)", lambda: ilqr(cart, start, jnp.zeros((5, 2)), cost, final)),
        (ValueError, r"with T of 1 or more, found \(0, 1\)", lambda: ilqr(cart, start, jnp.zeros((0, 1)), cost, final)),
        (ValueError, "low must not exceed high", lambda: ilqr(cart, start, zero, cost, final, limits=(1.0, -1.0))),
        (ValueError, "limits must be .low, high.", lambda: ilqr(cart, start, zero, cost, final, limits=3.0)),
        (ValueError, "must be at least 1, found 0 and 100", lambda: ilqr(cart, start, zero, cost, final, substeps=0)),
        (ValueError, "cost must return a scalar", lambda: ilqr(cart, start, zero, lambda state, ctrl, t: ctrl, final)),
        (ValueError, "final_cost must return a scalar", lambda: ilqr(cart, start, zero, cost, lambda state: state.q)),
        (ValueError, "must be at least 1, found 1 and 0", lambda: idle.act(start, idle.start(zero))),
    ):
        with pytest.raises(error, match=text):
            call()


def test_delayed_controls_are_refused():
    text = CART.replace("ctrllimited", 'delay="0.04" nsample="3" ctrllimited')
    model = xsim.loads(text, "mjcf", rules="4.0")
    with pytest.raises(ValueError, match="act with a delay"):
        ilqr(model, xsim.init(model), jnp.zeros((5, 1)), _cart_cost, _cart_final_cost)


# ---- through contact --------------------------------------------------------------------------------------------------------------

HOPPER = """
<mujoco>
  <option timestep="0.005"/>
  <default><geom contype="0" conaffinity="0"/><motor ctrlrange="-1 1" ctrllimited="true"/></default>
  <worldbody>
    <geom type="plane" size="0 0 1" contype="1" conaffinity="1"/>
    <body name="torso" pos="0 0 0.7">
      <joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
      <geom type="box" size="0.2 0.1 0.1" mass="5"/>
      <body name="leg">
        <joint name="hip" axis="0 1 0" damping="0.5"/>
        <geom type="capsule" fromto="0 0 -0.05 0 0 -0.35" size="0.03" mass="0.5"/>
        <body name="foot" pos="0 0 -0.65">
          <joint name="spring" type="slide" axis="0 0 1" damping="10" stiffness="1000"/>
          <geom type="capsule" fromto="0 0 0 0 0 0.3" size="0.02" mass="0.2"/>
          <geom size="0.04" mass="0.3" contype="1" conaffinity="1" solref="0.01 1"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor joint="hip" gear="30"/><motor joint="spring" gear="150"/></actuator>
</mujoco>"""
HOP = 0.5  # s, of which the height of the torso is a function


def _hop_cost(command, state, ctrl, t):
    speed, rise = command
    (_, z, pitch, hip, length), v = state.q, state.v
    height = rise * 0.5 * (1 - jnp.cos(2 * jnp.pi * state.time / HOP)) - 0.05
    posture = 20 * pitch**2 + hip**2 + 10 * length**2 + 0.5 * v[2] ** 2 + 0.1 * v[4] ** 2
    return 0.01 * (2 * (v[0] - speed) ** 2 + 100 * (z - height) ** 2 + posture + 0.5 * ctrl @ ctrl)


def _hop_final_cost(command, state):
    return 10 * _hop_cost(command, state, jnp.zeros(2), 0)


@jax.jit
def _hop(model, plant, command):
    """The states (200) of a plant under a controller that plans with a model; each control is held for 20 ms."""
    controller = Controller(model, Partial(_hop_cost, command), Partial(_hop_final_cost, command), substeps=4, iterations=1)

    def one(carry, _):
        state, memory = carry
        ctrl, memory = controller.act(state, memory)
        after, _ = xsim.rollout(plant, state, jnp.broadcast_to(ctrl, (4, 2)), steps=4)
        return (after, memory), after

    return jax.lax.scan(one, (xsim.init(plant), controller.start(jnp.zeros((35, 2)))), length=200)[1]


def _flights(state) -> list[int]:
    """How many controls long the foot is in the air, of the times of 80 ms or more."""
    _, z, pitch, hip, length = np.asarray(state.q).T
    clearance = 0.7 + z - np.cos(pitch + hip) * (0.65 - length) - 0.04
    edges = np.diff(np.concatenate([[0], clearance > 0, [0]]).astype(int))
    durations = np.flatnonzero(edges < 0) - np.flatnonzero(edges > 0)
    return [n for n in durations.tolist() if n >= 4]


@pytest.mark.nightly
def test_a_hopper_keeps_commanded_speeds():
    """One leg with a spring, from rest, also where the controller knows masses that are too small. The test on `hopper` is in the
    documentation.

    The heavy plant's motion is chaotic: of six plants whose masses differ by 3e-7, the speeds were 0.58 to 0.84 m/s and the largest pitch
    0.19 to 0.43. Those of the controller's own plant were 0.885 to 0.901 m/s and 0.09 to 0.11."""
    model = xsim.loads(HOPPER, "mjcf")
    heavy = model.replace({"geom.mass": model.geom.mass * 1.2})
    for plant, speed, error, pitch in ((model, 1.0, 0.2, 0.2), (heavy, 0.5, 0.5, 0.6)):
        states = _hop(model, plant, (jnp.asarray(speed), jnp.asarray(0.2)))
        flights, q = _flights(states), np.asarray(states.q)
        measured = (q[-1, 0] - q[50, 0]) / (149 * 0.02)
        print(f"commanded {speed} m/s: {measured:.2f} m/s, {len(flights)} hops, in the air for {np.mean(flights) * 0.02:.2f} s each")
        assert len(flights) >= 7 and abs(measured - speed) < error and np.abs(q[:, 2]).max() < pitch
