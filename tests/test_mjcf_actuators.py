"""Actuators of MuJoCo 4.0: targets of rotations, and servos of joints whose force is limited. The numbers are those of MuJoCo 4.0.0."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim

pytestmark = pytest.mark.usefixtures("x64")

BODY = (
    '<body pos="{0} 0 0"><joint name="b{0}" type="ball"/><geom type="box" size=".1 .2 .3" mass="1" contype="0"/><site name="s{0}"/></body>'
)
TURNS = f"""
<mujoco>
  <option gravity="0 0 0"/>
  <worldbody><site name="r"/>{"".join(BODY.format(i) for i in range(5))}</worldbody>
  <actuator>
    <position kp="10" joint="b0" gear="0 .1 .2"/>
    <position kp="10" site="s1" refsite="r" gear="0 0 0 0 1 0"/>
    <position kp="10" joint="b2" gear="0 1 0" timeconst=".1"/>
    <intvelocity kp="10" joint="b3" gear="0 1 0" actrange="-100 100"/>
    <position kp="10" site="s4" refsite="r" gear=".1 0 0 0 1 0"/>
  </actuator>
</mujoco>
"""


def test_targets_of_rotations_are_the_nearest():
    """Forces at the start, and velocities and activations after 60 steps. A gear with a translation does not turn."""
    model = xsim.loads(TURNS, "mjcf", rules="4.0")
    state = xsim.init(model, jnp.tile(jnp.array([np.cos(0.5), 0, np.sin(0.5), 0]), 5))
    ctrl = jnp.array([-7.3, 6.0, 4.0, 50.0, 6.0])
    forces = by_numpy(xsim.forward)(model, state, ctrl).actuator_force
    np.testing.assert_allclose(forces, [-3.751852689592722, -12.831853071795862, -10, -10, 46], rtol=1e-12)
    final = xsim.rollout(model, state, jnp.broadcast_to(ctrl, (60, 5)))[0]
    velocity = [-1.2608005061548346, -19.424190849909746, -37.13566118257527, 58.41707552986028, 184.07425217817718]
    np.testing.assert_allclose(final.v[1::3], velocity, rtol=1e-10)
    np.testing.assert_allclose(final.act, [-1.5955031079341138, 6.0], rtol=1e-10)


def test_targets_of_rotations_do_not_turn_in_3_2():
    model = xsim.loads(TURNS, "mjcf", rules="3.2")
    forces = by_numpy(xsim.forward)(model, xsim.init(model), jnp.array([0.0, 6.0, 0.0, 0.0, 0.0])).actuator_force
    assert forces[1] == pytest.approx(60.0)


@pytest.mark.slow
def test_targets_have_derivatives():
    """A step with respect to the control and the gear."""
    model = xsim.loads(TURNS, "mjcf", rules="4.0")
    state, ctrl = xsim.init(model, jnp.tile(jnp.array([np.cos(0.5), 0, np.sin(0.5), 0]), 5)), jnp.array([-7.3, 6.0, 4.0, 50.0, 6.0])

    def speed(x):
        return xsim.step(model.replace({"actuator.gear": model.actuator.gear * x[1]}), state, ctrl * x[0]).v[1::3]

    evaluated, point, h = by_numpy(speed), jnp.ones(2), 1e-6
    slopes = by_numpy(jax.jacfwd(speed))(point)
    differences = [(evaluated(point + h * e) - evaluated(point - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(slopes, np.stack(differences, 1), rtol=1e-6, atol=1e-8)


SERVOS = """
<mujoco>
  <option gravity="0 0 0" integrator="{}"/>
  <worldbody>
    <body>
      <joint name="h" axis="0 1 0" actuatorfrcrange="-.4 .4"/><geom size=".1" mass="10"/>
      <body pos=".3 0 0"><joint name="k" axis="0 0 1"/><geom size=".1"/></body>
    </body>
  </worldbody>
  <actuator><velocity kv="10" joint="h"/><velocity kv="3" joint="k"/></actuator>
</mujoco>
"""


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
def test_a_servo_at_the_bound_of_its_joint_has_no_slope(integrator):
    """Velocities after three steps, at the bound and within it."""
    model = xsim.loads(SERVOS.format(integrator), "mjcf", rules="4.0")
    state = xsim.init(model, v=jnp.broadcast_to(jnp.array([0.5, 0.2]), (2, 2)))
    ctrl = jnp.broadcast_to(jnp.array([[0.3, 1.0], [0.49, 1.0]]), (3, 2, 2))
    final = xsim.rollout(model, state, ctrl)[0]
    np.testing.assert_allclose(final.v, [[0.49446681, 0.68062857], [0.4987351, 0.68062857]], atol=1e-8)


def test_dampratio_of_a_servo_that_moves_nothing_is_no_damping():
    """A crank whose force passes through the hinge, and two sites of one body."""
    model = xsim.loads("""<mujoco><worldbody><body><joint axis="0 1 0"/><geom size=".1"/><site name="s" pos="0 0 .1"/>
      <site name="c" pos="0 0 .3"/></body></worldbody><actuator><position slidersite="s" cranksite="c" cranklength=".4" dampratio="1"/>
      <orientation site="s" refsite="c" dampratio="1"/></actuator></mujoco>""", "mjcf", rules="4.0")  # fmt: skip
    data = xsim.forward(model, xsim.init(model, v=jnp.array([3.0])), jnp.zeros(4))
    np.testing.assert_allclose(data.actuator_force, [0.2, 0.0, 0.0, 0.0], atol=1e-15)


NOMINAL, OWN = 'nominal="1.083 2.008 2.974"', 'motorconst=".5" resistance="2"'


@pytest.mark.parametrize(("of_class", "own", "constant", "resistance", "time_constant", "torque"), [
    ("", f'{NOMINAL} motorconst=".5" resistance="2"', 0.426706, 2, 0, 0),
    ("", f'{NOMINAL} motorconst=".3" damping=".1"', 0.305068, 0.164536, 0, 0),
    ("", f'{NOMINAL} motorconst="0 .6"', 0.6, 0.323606, 0, 0),
    (NOMINAL, 'motorconst=".5"', 0.5, 0.196405, 0, 0),
    (OWN, NOMINAL, 0.426706, 2, 0, 0),
    (NOMINAL, 'nominal="2 3 4"', 0.426706, 0.196405, 0, 0),
    (f'{OWN} inductance=".3" saturation="0 3"', 'motorconst="1" resistance="4"', 1, 4, 0.15, 1.5),
])  # fmt: skip
def test_constants_of_a_dcmotor_and_its_class(of_class, own, constant, resistance, time_constant, torque):
    """Each element stands for what follows from it, also one of a class. The numbers of the compiled model of MuJoCo 4.0.0."""
    default = f"<default><dcmotor {of_class}/></default>" if of_class else ""
    text = f"""<mujoco>{default}<worldbody><body><joint name="j"/><geom size=".1"/></body></worldbody>
      <actuator><dcmotor joint="j" {own}/></actuator></mujoco>"""
    (motor,) = xsim.parse_text(text, "mjcf", rules="4.0").actuators
    found = [motor.gain_params[1], motor.gain_params[0], motor.dynamics_params[0], motor.force_range[1] if motor.force_range else 0]
    np.testing.assert_allclose(found, [constant, resistance, time_constant, torque], atol=1e-6)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('actlimited="true"', None), ('actlimited="false" actrange="-1 1"', (-1, 1)), ('actlimited="false" inheritrange="1"', (-0.5, 0.5)),
])  # fmt: skip
def test_actlimited_of_an_intvelocity_has_no_effect_in_4_0(attributes, wanted):
    """Its activation is clamped where it has a range, as in MuJoCo 4.0.0."""
    text = f"""<mujoco><compiler angle="radian"/><worldbody><body><joint name="j" range="-.5 .5"/><geom size=".1"/></body></worldbody>
      <actuator><intvelocity joint="j" {attributes}/></actuator></mujoco>"""
    (servo,) = xsim.parse_text(text, "mjcf", rules="4.0").actuators
    assert servo.act_range == wanted
