"""Forces between bodies, reactions, starts: what holds of them whatever the engine compared with."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import models

BUSHING = """
chrono-version: 10.0
model:
  bodies:
    - {{name: ground, fixed: true, location: [0, 0, 0]}}
    - {{name: block, location: [0.1, 0.2, 0.3], orientation: [10, 20, 30], mass: 2, inertia: {{moments: [0.02, 0.03, 0.04]}}}}
  joints:
    - name: mount
      type: lock
      body1: block
      body2: ground
      location: [0, 0.1, 0.2]
      bushing_data: {{stiffness_linear: {k}, damping_linear: {d}, stiffness_rotational: {kr}, damping_rotational: {dr}}}
"""


def bushing(k, d, kr, dr, **options):
    return xsim.loads(BUSHING.format(k=k, d=d, kr=kr, dr=dr), "chrono", **options)


@pytest.mark.slow
def test_a_stiff_bushing_at_a_long_step(x64):
    """1e7 N/m under 2 kg: a period of 2.8 ms, stepped by 1 ms. The explicit rule is lost at once; the implicit one comes to rest where
    weight and bushing balance, and its derivative is that of differences."""
    model = bushing(1e7, 10, 1e5, 0.1, gravity=[0, 0, -9.8])
    run = jax.jit(lambda m, s: xsim.rollout(m, s, steps=400)[0])
    state = run(model, xsim.init(model))
    assert not state.flags
    np.testing.assert_allclose(xsim.forward(model, state).element, xsim.bias(model, state.q, state.v), atol=1e-6)
    np.testing.assert_allclose(state.v, 0, atol=1e-9)
    explicit = xsim.with_integrator(model, "euler")
    lost = xsim.rollout(explicit, xsim.init(explicit), steps=400)[0]
    assert lost.flags or jnp.abs(lost.v).max() > 1e3

    def after(k, d):
        return xsim.rollout(model.replace({"force.stiffness": k, "force.damping": d}), xsim.init(model), steps=20)[0].v.sum()

    short = by_numpy(after)
    k, d = model.force.stiffness, model.force.damping
    for i, gradient in enumerate(by_numpy(jax.grad(after, argnums=(0, 1)))(k, d)):
        scale = (1e-3 * k, 0.5 * d)[i]  # steps that are large enough for the rounding of the stiff force in v
        for j in (2, 4):
            step = jnp.zeros(6).at[j].set(scale[j])
            ahead, behind = (short(*((k + s * step, d) if i == 0 else (k, d + s * step))) for s in (1.0, -1.0))
            np.testing.assert_allclose(gradient[j], (ahead - behind) / (2 * scale[j]), rtol=1e-5, atol=1e-5 * np.abs(gradient).max())


def test_order_of_the_rules(x64):
    """Halving the step halves the error of the linearly implicit rule and takes a sixteenth of it for Runge-Kutta."""
    model = bushing(2000, 3, 30, 0.05)
    steps = jnp.array([4e-3, 2e-3, 1e-3])
    for name, factor in (("linearly_implicit", 2.0), ("rk4", 16.0)):
        m = xsim.with_integrator(model, name).replace({"option.dt": steps})
        run = jax.jit(lambda s, m=m: xsim.rollout(m, s, steps=25)[0])
        state, at = xsim.init(m), []
        for k in range(4):
            state = run(state)
            if k in (0, 1, 3):
                at.append(np.asarray(state.v[len(at)]))
        first, second = np.linalg.norm(at[0] - at[1]), np.linalg.norm(at[1] - at[2])
        assert 0.75 * factor < first / second < 1.35 * factor, (name, first / second)


@pytest.mark.slow
def test_energy_of_elements(x64):
    """Without dampers, what springs with stops and tables, torsion springs and bushings store comes back as motion."""
    text = """
chrono-version: 10.0
model:
  bodies:
    - {name: ground, fixed: true, location: [0, 0, 0]}
    - {name: a, location: [0.4, 0, 0], mass: 1, inertia: {moments: [0.02, 0.03, 0.03]}}
    - {name: b, location: [0.8, 0.1, 0], mass: 0.5, inertia: {moments: [0.02, 0.03, 0.03]}}
  joints:
    - {name: hinge, type: revolute, body1: a, body2: ground, location: [0, 0, 0], axis: [0, 1, 0.3]}
    - name: mount
      type: spherical
      body1: b
      body2: a
      location: [0.6, 0, 0]
      bushing_data: {stiffness_linear: 2000, damping_linear: 0, stiffness_rotational: 0, damping_rotational: 0}
  tsdas:
    - {name: line, body1: ground, body2: b, point1: [0.8, 0, 0.5], point2: [0.8, 0, 0], spring_coefficient: 60, free_length: 0.4,
       preload: 2, minimum_length: 0.1, maximum_length: 0.52}
    - {name: table, body1: ground, body2: a, point1: [0.3, 0.3, -0.3], point2: [0.4, 0, 0], free_length: 0.4,
       spring_curve_data: [[-0.2, -9], [-0.05, -2], [0.1, 3], [0.3, 20]]}
  rsdas:
    - {name: turn, body1: ground, body2: a, location: [0, 0, 0], axis: [0, 1, 0.3], spring_coefficient: 3, free_angle: 20, preload: 0.4}
"""
    model = xsim.with_integrator(xsim.loads(text, "chrono", dt=2e-4), "rk4")
    total = lambda s: sum(xsim.energy(model, s.q, s.v))  # noqa: E731
    start = xsim.init(model)
    final, kinetic = xsim.rollout(model, start, steps=3000, record=lambda s, d: xsim.energy(model, s.q, s.v)[0])
    assert kinetic.max() > 1.0
    # The corners of the tables and of the stops cost the fourth-order rule its order.
    np.testing.assert_allclose(total(final), total(start), atol=1e-4)


def test_reactions_of_redundant_constraints_have_least_norm(x64):
    """A table on four legs, as prismatic joints: the weight on each is the same."""
    legs = "\n".join(f"    - {{name: leg{i}, type: pointplane, body1: top, body2: ground, location: [{x}, {y}, 0]}}"
                     for i, (x, y) in enumerate(((1, 1), (1, -1), (-1, 1), (-1, -1))))  # fmt: skip
    model = xsim.loads(f"""
chrono-version: 10.0
model:
  bodies:
    - {{name: ground, fixed: true, location: [0, 0, 0]}}
    - {{name: top, location: [0, 0, 0], mass: 8, inertia: {{moments: [1, 1, 2]}}}}
  joints:
{legs}
""", "chrono", gravity=[0, 0, -10.0])  # fmt: skip
    found = by_numpy(partial(xsim.reactions, model))(xsim.init(model))
    signs = np.array([1.0 if c.bodies[1] == 1 else -1.0 for c in model.topology.constraints])
    np.testing.assert_allclose(signs * found.constraint_force[:, 2], 20.0, atol=1e-10)
    assert found.force[1, 2] == pytest.approx(0.0, abs=1e-9)  # the top is free: nothing else holds it


@pytest.mark.slow
def test_state_from_poses_finds_the_state(x64):
    """Poses and velocities of a closed mechanism in motion give back its state, from where it starts."""
    model = xsim.load(models.path("slider_crank"))
    state = xsim.rollout(model, xsim.init(model), steps=150)[0]
    data = by_numpy(partial(xsim.forward, model))(state)
    fit = by_numpy(lambda poses, velocities, time: xsim.state_from_poses(model, poses, velocities, time=time))
    found, residual = fit((data.pos, data.quat), (data.lin, data.ang), state.time)
    np.testing.assert_allclose(xsim.difference(model, state.q, found.q), 0, atol=1e-9)
    np.testing.assert_allclose(found.v, state.v, atol=1e-9)
    assert residual < 1e-9
    moved = data.pos + 0.01 * (np.arange(3) == 1) * (np.arange(len(data.pos)) == 2)[:, None]
    near, residual = fit((moved, data.quat), (data.lin, data.ang), state.time)
    assert 1e-3 < residual < 0.02 and np.abs(by_numpy(partial(xsim.constraint_error, model))(near.q, near.time)).max() < 1e-9


def test_an_external_speed_goes_on_from_where_it_is(x64):
    """A motor whose speed is a control, in the tree and closing a loop: its position is what the controls have added up to."""
    for spindle in ("REVOLUTE", "FREE"):
        pin = "joints: [{name: pin, type: revolute, body1: ground, body2: wheel, location: [0, 0, 0], axis: [0, 1, 0]}]"
        model = xsim.loads(f"""
chrono-version: 10.0
model:
  bodies:
    - {{name: ground, fixed: true, location: [0, 0, 0]}}
    - {{name: wheel, location: [0.1, 0, 0], mass: 2, inertia: {{moments: [0.02, 0.03, 0.04]}}}}
  {'' if spindle == 'REVOLUTE' else pin}
  motors:
    - name: drive
      type: ROTATION
      body1: wheel
      body2: ground
      location: [0, 0, 0]
      axis: [0, 1, 0]
      spindle: {spindle}
      actuation_type: SPEED
      actuation_function: {{type: CONTROLLER}}
""", "chrono")  # fmt: skip
        ctrls = jnp.where(jnp.arange(4000) < 2000, 1.0, 2.0)[:, None]  # 2 rad, then 4 more: beyond half a turn
        state, q = xsim.rollout(model, xsim.init(model), ctrls, record=lambda s, d: s.q)
        np.testing.assert_allclose(state.q, [6.0], atol=1e-6)
        assert jnp.abs(jnp.diff(q[:, 0])).max() < 2.001e-3, spindle


def test_a_sine_of_frequency_zero_is_a_constant(x64):
    function = "{type: SINE, amplitude: 2, frequency: 0, phase: 30}"
    model = xsim.loads(f"""
chrono-version: 10.0
model:
  bodies:
    - {{name: ground, fixed: true, location: [0, 0, 0]}}
    - {{name: cart, location: [0, 0, 0], mass: 2, inertia: {{moments: [0.02, 0.03, 0.04]}}}}
  motors:
    - {{name: m, type: LINEAR, body1: cart, body2: ground, location: [0, 0, 0], axis: [1, 0, 0], actuation_type: SPEED,
       actuation_function: {function}}}
""", "chrono")  # fmt: skip
    state = xsim.rollout(model, xsim.init(model, jnp.zeros(1)), steps=100)[0]
    np.testing.assert_allclose([state.q[0], state.v[0]], [0.1, 1.0], rtol=1e-12)


def test_soft_rows_leave_the_hard_ones(x64):
    """A 10 t body on a rod beside a 1 g body on a stiff bushing, in float32: the rod still carries."""
    with jax.enable_x64(False):
        model = xsim.loads("""
chrono-version: 10.0
model:
  bodies:
    - {name: ground, fixed: true, location: [0, 0, 0]}
    - {name: heavy, location: [0, 0, -1], mass: 1.0e4, inertia: {moments: [1, 1, 1]}}
    - {name: light, location: [1, 0, 0], mass: 1.0e-3, inertia: {moments: [1.0e-6, 1.0e-6, 1.0e-6]}}
  joints:
    - {name: mount, type: lock, body1: light, body2: ground, location: [1, 0, 0],
       bushing_data: {stiffness_linear: 1.0e+5, damping_linear: 100, stiffness_rotational: 500, damping_rotational: 1}}
  constraints:
    - {name: rod, type: DISTANCE, body1: ground, body2: heavy, point1: [0, 0, 0], point2: [0, 0, -1]}
""", "chrono", gravity=[0, 0, -9.8], dt=0.01)  # fmt: skip
        from xsim.dynamics.call import Call
        from xsim.dynamics.integration.integrators import Health, StateComponents, StepInputs, step_velocity

        def after(q, v):
            c, zero = Call(model, q, v), jnp.zeros(())
            state = StateComponents(c.q, c.v, [], zero, Health(zero, zero, zero, zero))
            return step_velocity(c.system, state, StepInputs(c.tau, [])).v

        v = by_numpy(after)(xsim.init(model).q, jnp.zeros(model.nv))
        assert abs(float(v[model.topology.bodies[1].v[0] + 2])) < 1e-6


@pytest.mark.slow
def test_environments_of_a_mechanism_are_each_their_own(x64):
    """Masses, springs, motors, places of joints and bushings that all differ: each environment moves as it does alone."""
    model = xsim.load(models.path("slider_crank"))
    rng = np.random.default_rng(0)
    paths = ("body.mass", "body.pos", "constraint.pos1", "constraint.quat1", "force.stiffness", "force.rest", "function.numbers")
    leaves = {p: np.asarray(model.get(p)) * (1 + 0.01 * rng.normal(size=(3, *model.shape(p)))) for p in paths}
    run = by_numpy(lambda m: xsim.rollout(m, xsim.init(m), steps=50)[0])
    together = run(model.replace(leaves))
    gap = xsim.constraint_error(model.replace(leaves), together.q, together.time)
    assert np.abs(gap).max() < 1e-12 and not together.flags.any()
    for i in range(3):
        alone = run(model.replace({p: x[i] for p, x in leaves.items()}))
        np.testing.assert_allclose(together.q[i], alone.q, atol=1e-12)
        np.testing.assert_allclose(together.v[i], alone.v, atol=1e-10)
    assert np.ptp(together.q, axis=0).max() > 1e-4


CRANK = """
chrono-version: 10.0
model:
  bodies:
    - {{name: ground, fixed: true, location: [0, 0, 0]}}
    - {{name: crank, location: [0.1, 0, 0], mass: 1, inertia: {{moments: [0.01, 0.02, 0.03]}}}}
    - {{name: rod, location: [0.5, 0, 0], mass: 1, inertia: {{moments: [0.01, 0.02, 0.03]}}}}
    - {{name: piston, location: [0.8, 0, 0], mass: 1, inertia: {{moments: [0.01, 0.02, 0.03]}}}}
  joints:
    - {{name: bore, type: prismatic, body1: ground, body2: piston, location: [0.8, 0, 0], axis: [1, 0, 0]}}
    - {{name: small, type: spherical, body1: piston, body2: rod, location: [0.8, 0, 0]}}
    - {{name: big, type: spherical, body1: rod, body2: crank, location: [0.2, 0, 0]}}
    {pin}
  motors:
    - {{name: drive, type: ROTATION, body1: crank, body2: ground, location: [0, 0, 0], axis: [0, 1, 0], actuation_type: POSITION,
       spindle: {spindle}, actuation_function: {{type: CONSTANT, value: {angle}}}}}
"""


@pytest.mark.parametrize("spindle", ["REVOLUTE", "FREE"])
def test_a_motor_in_a_loop_finds_its_angle(spindle, x64):
    """A crank that has to start up to nearly half a turn away: at that angle, not half a turn off where products of axes are the same."""
    pin = "- {name: pin, type: revolute, body1: crank, body2: ground, location: [0, 0, 0], axis: [0, 1, 0]}" if spindle == "FREE" else ""
    model = xsim.loads(CRANK.format(pin=pin, spindle=spindle, angle=0.0), "chrono")
    angles = jnp.array([0.5, 1.5, 2.5])
    state = by_numpy(xsim.init)(model.replace({"function.numbers": angles[:, None]}))
    quat = xsim.kinematics(model, state.q)[1][:, model.body_names.index("crank")]
    found = 2 * jnp.arctan2(quat[:, 2], quat[:, 0])
    np.testing.assert_allclose(found, angles, atol=1e-9)
    np.testing.assert_allclose(xsim.constraint_error(model.replace({"function.numbers": angles[:, None]}), state.q), 0, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name, path", [("four_bar", "dof.damping"), ("shock_absorber", "force.stiffness")])
def test_derivatives_with_respect_to_one_thing_alone(name, path, x64):
    """Reverse mode through what does not touch every equation, against forward mode: a leaf, then the forces."""
    model = xsim.load(models.path(name))
    state = xsim.init(model)
    weights = np.random.default_rng(0).normal(size=model.nq + model.nv)

    def after(leaf, tau):
        m = model.replace({path: leaf})
        s = xsim.step(m, xsim.project_constraints(m, state), tau=tau)
        return jnp.concatenate([s.q, s.v]) @ weights

    leaf, tau = model.get(path), jnp.zeros(model.nv)
    by_leaf, by_tau = by_numpy(jax.grad(after, argnums=(0, 1)))(leaf, tau)
    _, forward = by_numpy(lambda x, t: jax.jvp(after, (x, t), (jnp.ones_like(x), jnp.ones_like(t))))(leaf, tau)
    np.testing.assert_allclose(by_leaf.sum() + by_tau.sum(), forward, rtol=1e-9, atol=1e-12)
    assert np.abs(by_tau).max() > 0


@pytest.mark.nightly
def test_derivatives_where_a_bushing_is_soft(x64):
    """First derivatives with respect to stiffness and damping that are zero, as free directions of bushings are; second ones above zero
    (at zero they are finite)."""
    model = bushing(800, 3, 0, 0, dt=0.01)
    state = xsim.init(model).replace(v=jnp.array([0.1, 0.2, -0.3, 1.0, -2.0, 0.5]))

    def loss(x):
        m = model.replace({"force.stiffness": x[:6], "force.damping": x[6:]})
        s = xsim.rollout(m, state, steps=2)[0]
        return jnp.sum(jnp.sin(s.v))

    x = jnp.concatenate([model.force.stiffness, model.force.damping])
    gradient, hessian, value = map(by_numpy, (jax.grad(loss), jax.hessian(loss), loss))
    found, width = np.asarray(gradient(x)), np.where(x > 0, 1e-3 * np.asarray(x), 1e-3)
    ahead = [(-3 * value(x) + 4 * value(x + w * e) - value(x + 2 * w * e)) / (2 * w) for w, e in zip(width, np.eye(12), strict=True)]
    np.testing.assert_allclose(found, ahead, rtol=1e-4, atol=1e-7)
    assert np.isfinite(hessian(x)).all()
    x = x + jnp.where(x > 0, 0.0, 1.0)
    rows = [(gradient(x + w * e) - gradient(x - w * e)) / (2 * w) for w, e in zip(1e-4 * np.asarray(x), np.eye(12), strict=True)]
    np.testing.assert_allclose(hessian(x), rows, rtol=1e-4, atol=1e-6 * np.abs(rows).max())


@pytest.mark.slow
def test_frozen_elements_act_alike(x64):
    """A stiff bushing whose numbers are constants of the program is still taken at the end of the step; reactions know frozen leaves."""
    model = bushing(1e7, 10, 1e5, 0.1)
    frozen = model.freeze("force.*", "option.gravity")
    one, other = (xsim.rollout(m, xsim.init(m), steps=20)[0] for m in (model, frozen))
    np.testing.assert_allclose(one.v, other.v, atol=1e-12)
    np.testing.assert_allclose(xsim.reactions(frozen, other).force, xsim.reactions(model, one).force, atol=1e-6)


@pytest.mark.slow
def test_starts_know_controls_and_batches(x64):
    """An external POSITION motor: `project_constraints` and `constraint_error` take its control; a batched model fits poses without one."""
    text = CRANK.format(pin="", spindle="REVOLUTE", angle=0.0).replace("{type: CONSTANT, value: 0.0}", "{type: CONTROLLER}")
    model = xsim.loads(text, "chrono")
    ctrl = jnp.array([0.4])
    project = by_numpy(partial(xsim.project_constraints, model))
    state = project(xsim.init(model), ctrl)
    np.testing.assert_allclose(by_numpy(partial(xsim.constraint_error, model))(state.q, state.time, ctrl), 0, atol=1e-9)
    np.testing.assert_allclose(project(state, ctrl).q, state.q, atol=1e-9)
    several = model.replace({"body.mass": model.body.mass * jnp.array([[1.0], [2.0], [3.0]])})
    fitted = by_numpy(lambda poses, ctrl: xsim.state_from_poses(several, poses, ctrl=ctrl))
    found, residual = fitted(by_numpy(xsim.kinematics)(model, state.q), ctrl)
    assert found.q.shape == (3, model.nq) and found.time.shape == (3,) and residual.max() < 1e-9
