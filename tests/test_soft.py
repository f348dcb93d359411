"""Limits, dry friction and equalities that are kept softly, and length ranges: formulas, gradients, batches. Comparisons with the engine
are in test_conformance_mjcf."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import models
from xsim.dynamics.constraints.softness import impedance

SLIDE = """
<mujoco>
  <option timestep="0.002" gravity="0 0 -9.81"><flag contact="disable"/></option>
  <worldbody>
    <body><joint name="z" type="slide" axis="0 0 1" {joint}/><geom type="sphere" size=".1" mass="2"/></body>
  </worldbody>
</mujoco>
"""


def acceleration(model, q, v, tau=None):
    return xsim.forward_dynamics(model, jnp.atleast_1d(q), jnp.atleast_1d(v), tau)


def test_a_limit_is_the_spring_and_damper_its_numbers_say(x64):
    """With one dof A is exact, so a = (1 - d) a0 + d aref with aref = -b v - k d r (the documentation's closed form)."""
    soft = 'limited="true" range="0 1" solreflimit="0.05 0.7" solimplimit="0.5 0.9 0.02 0.3 3" margin="0.01"'
    model = xsim.loads(SLIDE.format(joint=soft), "mjcf")
    for q, v in ((0.004, -0.3), (-0.006, 0.2), (-0.5, 0.0), (1.0, 0.1), (0.5, 1.0)):
        low = q < 0.5
        r = (q if low else 1 - q) - 0.01
        x = min(abs(r) / 0.02, 1.0)
        y = x**3 / 0.3**2 if x <= 0.3 else 1 - (1 - x) ** 3 / 0.7**2
        d = 0.5 + 0.4 * y
        b, k = 2 / (0.9 * 0.05), 1 / (0.9**2 * 0.05**2 * 0.7**2)
        sign = 1.0 if low else -1.0
        wanted = (1 - d) * -9.81 + d * sign * (-b * sign * v - k * d * r) if r < 0 else -9.81
        if sign * (wanted + 9.81) < 0:
            wanted = -9.81  # it pushes only
        np.testing.assert_allclose(acceleration(model, q, v)[0], wanted, rtol=1e-10)


@pytest.mark.parametrize("power", [1.0, 1.7, 2.0, 4.0])
def test_the_impedance_and_its_derivatives(power, x64):
    """The documentation's two pieces, x^p / m^(p-1) and 1 - (1-x)^p / (1-m)^(p-1), and their derivatives by differences, by the violation
    and by all five numbers, before and after the midpoint, at zero and beyond the width."""

    def documented(violation, dmin, dmax, width, m, p):
        x = min(abs(violation) / width, 1.0)
        y = x**p / m ** (p - 1) if x <= m else 1 - (1 - x) ** p / (1 - m) ** (p - 1)
        return dmin + y * (dmax - dmin)

    def found(*numbers):
        return impedance(numbers[0], numbers[1:])

    for violation in (-0.002, -0.011, 0.015, 0.0, 0.05):
        numbers = (violation, 0.5, 0.9, 0.02, 0.3, power)
        np.testing.assert_allclose(found(*numbers), documented(*numbers), rtol=1e-13)
        slopes = jax.grad(found, range(6))(*numbers)
        for i, slope in enumerate(slopes):
            if (i == 0 and violation == 0.0) or (i == 5 and power == 1.0):
                continue  # a kink, and the smallest power there is
            step = np.eye(6)[i] * 1e-7
            difference = (documented(*np.add(numbers, step)) - documented(*np.subtract(numbers, step))) / 2e-7
            np.testing.assert_allclose(slope, difference, rtol=1e-5, atol=1e-7)


def test_direct_stiffness_and_damping(x64):
    """Negative numbers of solref are minus stiffness and minus damping, scaled by the impedance."""
    model = xsim.loads(SLIDE.format(joint='limited="true" range="0 1" solreflimit="-800 -30" solimplimit="0.8 0.8 0.01"'), "mjcf")
    q, v, d = -0.01, 0.4, 0.8
    aref = -30 / d * v - 800 / d**2 * d * q
    np.testing.assert_allclose(acceleration(model, q, v)[0], (1 - d) * -9.81 + d * aref, rtol=1e-10)


@pytest.mark.parametrize("solref", [".05 -40", "-300 10", ".05 0", "0 1"])
def test_numbers_of_which_one_is_positive_are_the_default(solref, x64):
    """As in MuJoCo, whose acceleration at such limits is -593.6319289573933."""
    text = """<mujoco><worldbody><body><joint solreflimit="{}" range="-10 10"/><geom size=".1" mass="1" pos=".3 .2 .03"/></body></worldbody>
      <option gravity="1 2 -9.8"/></mujoco>"""
    model, default = (xsim.loads(text.format(x), "mjcf") for x in (solref, "0.02 1"))
    np.testing.assert_allclose(acceleration(model, 0.4, 0.3), acceleration(default, 0.4, 0.3), rtol=1e-14)
    np.testing.assert_allclose(acceleration(model, 0.4, 0.3), [-593.6319289573933], rtol=1e-9)


def test_dry_friction_sticks_and_slides_and_has_its_derivative(x64):
    """Sliding it takes its bound off; below it, it holds to within its impedance. Its derivative while sliding is -sign(v) / m."""
    model = xsim.loads(SLIDE.format(joint='frictionloss="30"'), "mjcf")
    np.testing.assert_allclose(acceleration(model, 0.0, -2.0)[0], -9.81 + 15, rtol=1e-10)
    assert abs(acceleration(model, 0.0, 0.0)[0]) < 1.0  # weight 19.6 N: it sticks but for 1 - d

    def slid(friction):
        return acceleration(model.replace({"dof.friction": friction}), 0.0, 2.0)[0]

    np.testing.assert_allclose(jax.grad(slid)(jnp.array([30.0])), [-0.5], rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(slid)(jnp.array([30.0])), [-0.5], rtol=1e-12)


def test_it_comes_to_rest_on_its_limit(x64):
    """A fall on a limit ends where the limit's force is the weight, and all force is in the row."""
    model = xsim.loads(SLIDE.format(joint='limited="true" range="-0.05 1"'), "mjcf")
    state = jax.jit(lambda s: xsim.rollout(model, s, steps=1500)[0])(xsim.init(model))
    data = xsim.forward(model, state)
    np.testing.assert_allclose(state.v, 0, atol=1e-8)
    np.testing.assert_allclose(data.constraint, 2 * 9.81, rtol=1e-6)
    assert -0.06 < state.q[0] < -0.05


KINDS = """
<mujoco>
  <option timestep="0.005" integrator="{integrator}"><flag contact="disable"/></option>
  <worldbody>
    <site name="hook" pos=".1 0 .6"/>
    <body name="a" pos="0 0 .5">
      <joint name="a" axis="0 1 .2" damping=".3" frictionloss=".4" limited="true" range="-20 15"/>
      <geom type="capsule" fromto="0 0 0 .3 0 .05" size=".04" mass="1.1"/>
      <body name="b" pos=".3 0 .05">
        <joint name="b" type="ball" damping=".05" limited="true" range="0 20"/>
        <geom type="box" size=".1 .05 .03" pos=".1 .02 0" mass=".7"/>
        <site name="tip" pos=".2 0 0"/>
      </body>
    </body>
    <body name="c" pos="0 .4 .5">
      <joint name="c" axis="1 .3 0" damping=".1" armature=".01"/>
      <geom type="ellipsoid" size=".1 .08 .06" pos="0 .05 -.1" mass=".6"/>
    </body>
    <body name="d" pos="0 -.4 .5">
      <joint name="d" type="slide" axis="0 .2 1"/><geom type="sphere" size=".1" mass=".9"/>
    </body>
  </worldbody>
  <tendon>
    <spatial name="rope" limited="true" range="0 .41" frictionloss=".2"><site site="hook"/><site site="tip"/></spatial>
    <fixed name="sum"><joint joint="c" coef=".7"/><joint joint="d" coef="1.3"/></fixed>
    <fixed name="one"><joint joint="a" coef=".4"/></fixed>
  </tendon>
  <actuator><motor joint="c" gear="1.5"/><position joint="d" kp="20" kv="3"/></actuator>
  <equality>
    <connect body1="b" body2="c" anchor=".1 .1 0" solref=".08 1" solimp=".5 .8 .1 .4 2"/>
    <weld body1="d" body2="c" solref=".1 .9" torquescale=".6" solimp=".3 .7 .1 .5 3"/>
    <joint joint1="c" joint2="d" polycoef=".02 .5 .3 -.2 .1" solref=".06 1"/>
    <tendon tendon1="sum" tendon2="one" polycoef="0 .4 .2 0 0"/>
  </equality>
</mujoco>
"""


@pytest.mark.nightly
@pytest.mark.parametrize("integrator", ["Euler", "implicit"])
def test_gradients_of_every_leaf(integrator, x64):
    """Along random directions of every leaf, of the state and of the inputs: forward mode against central differences with Richardson
    extrapolation, reverse mode against forward mode. Everything acts: limits of a hinge, a ball and a tendon, friction that slides,
    equalities of each kind."""
    model = xsim.loads(KINDS.format(integrator=integrator), "mjcf", rules="4.0")
    rng = np.random.default_rng(3)
    turned = xsim.integrate(model, jnp.array(model.topology.neutral), jnp.array([0.35, 0.3, -0.2, 0.4, -0.25, 0.2]))
    point = {"q": turned, "v": jnp.array([0.8, -0.5, 0.7, 0.6, 0.9, -0.7]), "ctrl": jnp.array([0.4, -0.3])}
    point |= {path: model.get(path) for path in model.paths() if model.get(path).size}
    weights = rng.normal(size=model.nq + model.nv)
    assert {"equality.anchor", "soft.solref", "soft.solimp", "limit.angle", "tendon.range", "tendon.friction"} <= set(point)
    seen = by_numpy(xsim.forward)(model, xsim.init(model, point["q"], point["v"]))
    assert np.all(np.abs(seen.constraint) > 1e-3)

    def loss(point):
        m = model.replace({path: x for path, x in point.items() if "." in path})
        state = xsim.step(m, xsim.init(m, point["q"], point["v"]), point["ctrl"])
        return jnp.concatenate([state.q, state.v]) @ weights

    directions = {name: jnp.asarray(rng.normal(size=x.shape)) * jnp.maximum(jnp.abs(x), 0.1) for name, x in point.items()}
    one = jax.tree.map(jnp.zeros_like, point)
    moves = {name: one | {name: directions[name]} for name in point}
    stacked = jax.tree.map(lambda *xs: jnp.stack(xs), *moves.values())
    along = by_numpy(jax.vmap(lambda s, d: jax.jvp(loss, (jax.tree.map(lambda x, y: x + s * y, point, d),), (d,)), in_axes=(None, 0)))
    slopes, h = along(0.0, stacked)[1], 1e-5
    rough, fine = ((along(s, stacked)[0] - along(-s, stacked)[0]) / (2 * s) for s in (2 * h, h))
    differences = (4 * fine - rough) / 3
    scale = np.abs(differences).max()
    for name, slope, difference in zip(point, slopes, differences, strict=True):
        np.testing.assert_allclose(slope, difference, rtol=1e-6, atol=1e-8 * scale, err_msg=name)
    gradient = by_numpy(jax.grad(loss))(point)
    for name, slope in zip(point, slopes, strict=True):
        np.testing.assert_allclose((gradient[name] * directions[name]).sum(), slope, rtol=1e-9, atol=1e-10 * scale, err_msg=name)


@pytest.mark.slow
def test_values_and_gradients_are_finite_on_switches(x64):
    """Exactly at a limit, at rest with dry friction, ball at identity, a tendon of no length, equalities that hold."""
    model = xsim.loads(KINDS.format(integrator="Euler"), "mjcf")
    model = model.replace({"limit.lower": jnp.zeros_like(model.limit.lower), "tendon.friction": jnp.zeros(1)})
    model = model.replace({"site.pos": model.site.pos.at[0].set(jnp.array([0.5, 0.0, 0.55]))})  # the hook at the tip

    def loss(model, q, v):
        state = xsim.step(model, xsim.init(model, q, v), jnp.zeros(2))
        return state.q.sum() + state.v.sum()

    value, gradient = by_numpy(jax.value_and_grad(loss, argnums=(0, 1, 2)))(model, jnp.array(model.topology.neutral), jnp.zeros(model.nv))
    assert np.isfinite(value)
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(gradient))


def test_one_environment_alone_and_in_a_batch(x64):
    model = xsim.loads(KINDS.format(integrator="Euler"), "mjcf")
    rng = np.random.default_rng(0)
    q = np.tile(model.topology.neutral, (37, 1))
    q, v = xsim.integrate(model, q, 0.4 * rng.normal(size=(37, model.nv))), rng.normal(size=(37, model.nv))
    solve = by_numpy(xsim.forward_dynamics)
    both = solve(model, q, v)
    for i in (0, 17, 36):
        np.testing.assert_allclose(solve(model, q[i], v[i]), both[i], rtol=1e-10, atol=1e-10)


def test_far_beyond_limits_beside_hard_rows(x64):
    """Fingers that a hard row couples, inside and far beyond their soft limits, also where the row has a gap of a metre to close in a step:
    solved, and the row holds."""
    model = xsim.load(models.path("gripper"))
    ((follower, leader),), by = model.topology.couplings, float(model.coupling.multiplier[0])
    q = np.array([[-0.4, -0.66, -0.12, 0.21, -0.21], [0.05, -0.28, -0.39, 0.37, 0.82], [0.14, -0.62, -0.48, 0.8, 0.1]])
    data = by_numpy(xsim.forward)(model, xsim.init(model, q, np.zeros_like(q)))
    assert not data.flags.any()
    gap = (q[:, follower] - by * q[:, leader]) / float(model.option.dt) ** 2
    scale = np.abs(data.a).max(-1)
    assert (scale > 100).all()
    np.testing.assert_allclose((data.a[:, follower] - by * data.a[:, leader] + gap) / scale, 0.0, atol=1e-9)


MUSCLE = """
<mujoco>
  {compiler}
  <option timestep="0.002"/>
  <worldbody>
    <body><joint name="j" axis="0 1 0" {joint}/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".03" contype="0" conaffinity="0"/></body>
  </worldbody>
  <actuator><muscle name="m" joint="j" gear=".1"/></actuator>
</mujoco>
"""


def test_length_range_is_searched():
    """Of a muscle at a joint with limits: gear times the limits, a little beyond where it is pulled into them."""
    model = xsim.loads(MUSCLE.format(compiler="", joint='range="-40 60"'), "mjcf")
    (low, high), (least, most) = np.asarray(model.actuator.length_range)[0], np.deg2rad([-40, 60]) * 0.1
    assert least - 0.01 < low < least and most < high < most + 0.01


def test_length_range_of_an_actuator_with_a_delay():
    """Past controls have no part in the search. Number of MuJoCo 4.0.0."""
    text = MUSCLE.format(compiler="", joint='range="-40 60"').replace("<muscle", '<muscle delay=".004" nsample="3"')
    model = xsim.loads(text, "mjcf", rules="4.0")
    np.testing.assert_allclose(model.actuator.length_range, [[-0.06987016, 0.10477675]], atol=1e-7)


def test_length_range_that_does_not_settle_is_an_error():
    with pytest.raises(ValueError, match=r"actuator 'm': its length range was not found.*give lengthrange"):
        xsim.loads(MUSCLE.format(compiler="", joint=""), "mjcf")


# ---- bodies without mass or motion -----------------------------------------------------------------------------------------------

ARM = """
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body name="hand" mocap="true" pos=".5 .05 .2"/>
    <body>
      <joint axis="0 0 1" damping="10"/><geom size=".1" contype="0" mass="4.18879"/>
      <body pos=".3 0 0">
        <joint axis="0 1 0" damping="10"/><geom size=".1" contype="0" mass="4.18879"/>
        <body name="massless" pos="0 0 .12">{}</body>
      </body>
    </body>
  </worldbody>
  <equality><weld body1="massless" body2="hand" relpose="0 0 0 1 0 0 0"/></equality>
</mujoco>
"""


GEOM = '<geom size=".05" contype="0" mass="0" pos=".2 0 0"/>'
INERTIAL = '<inertial pos=".2 0 0" mass="0" diaginertia="0 0 0"/>'


@pytest.mark.parametrize("inside, rules, acceleration", [
    (GEOM, "4.0", (301.200546, 2091.832186)), (INERTIAL, "4.0", (296.157616, 2034.001770)), (GEOM, "3.2", (296.157616, 2034.001770)),
])  # fmt: skip
def test_a_body_without_mass_has_the_mobility_of_its_inertial_frame(inside, rules, acceleration, x64):
    """A weld pulls it as in MuJoCo, which gave the numbers. In 4.0 the frame is at the numbers of the body's pose if no <inertial> gives
    it; in 3.2 it is at the one geom."""
    model = xsim.loads(ARM.format(inside), "mjcf", rules=rules)
    np.testing.assert_allclose(by_numpy(xsim.forward)(model, xsim.init(model)).a, acceleration, rtol=1e-5)


@pytest.mark.parametrize("more, armature, acceleration", [("", 0, -0.1), ("", 3, -0.0869565217), ('pos=".1 0 0"', 3, -0.0142857143)])
def test_a_body_that_only_slides_has_the_mobility_of_its_mass(more, armature, acceleration, x64):
    """A connect holds it against gravity, as in both releases of MuJoCo, which gave the numbers; not if the joint is at another place."""
    joint = f'<joint type="slide" axis="0 0 1" armature="{armature}" {more}/><geom size=".1" mass="2"/>'
    body = f'<body name="a">{joint}</body>'
    connect = '<equality><connect body1="a" anchor="0 0 0"/></equality>'
    model = xsim.loads(f'<mujoco><option gravity="0 0 -1"/><worldbody>{body}</worldbody>{connect}</mujoco>', "mjcf")
    np.testing.assert_allclose(by_numpy(xsim.forward)(model, xsim.init(model)).a, [acceleration], rtol=1e-8)


def test_constraints_of_what_cannot_move_are_nothing(x64):
    body = '<body name="a"><geom size=".1"/></body>'
    weld = '<equality><weld body1="a" body2="m"/></equality>'
    model = xsim.loads(f'<mujoco><worldbody><body name="m" mocap="true"/>{body}</worldbody>{weld}</mujoco>', "mjcf")
    assert model.nv == 0 and int(xsim.step(model, xsim.init(model)).flags) == 0


def test_contacts_of_what_cannot_move_exert_no_force():
    """They are found, and sensors of their forces say 0."""
    geoms = '<geom name="a" size=".1"/><site name="s" size=".5"/><geom name="b" size=".1" pos="0 0 .15"/>'
    pair = '<contact><pair geom1="a" geom2="b"/></contact><sensor><touch site="s"/></sensor>'
    model = xsim.loads(f"<mujoco><worldbody>{geoms}</worldbody>{pair}</mujoco>", "mjcf")
    state = xsim.init(model)
    data = xsim.forward(model, state)
    assert model.nv == 0 and int(data.flags) == 0 and data.sensor.tolist() == [0.0]
    np.testing.assert_allclose(xsim.contacts(model, state).distance, [-0.05], atol=1e-7)
    assert int(xsim.step(model, state).flags) == 0
