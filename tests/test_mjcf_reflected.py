"""What tendons and actuators reflect to the dofs under MuJoCo 4.0: armature, damping, clamped forces. In float64.

The recorded numbers are MuJoCo 4.0.0's (mj_forward, mj_step) for the same files and states."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.io import ParseError

ARM = """<site name="post" pos="0.1 0.2 1.3"/>
<body pos="0 0 1"><joint name="shoulder" axis="0 1 0" damping="0.3" armature="0.02"/>
  <geom type="capsule" fromto="0 0 0 0.3 0 -0.1" size="0.03"/><site name="middle" pos="0.3 0.05 -0.1"/>
  <body pos="0.3 0 -0.1"><joint name="elbow" axis="1 1 0" {elbow}/>
    <geom type="capsule" fromto="0 0 0 0.3 0 0.1" size="0.03"/><site name="hand" pos="0.3 0 0.1"/></body></body>"""
FREE = '<body name="box" pos="1 1 1"><freejoint/><geom type="box" size="0.1 0.2 0.05"/><site name="corner" pos="0.1 0.1 0.05"/></body>'
CABLE = '<spatial name="cable" {}><site site="post"/><site site="hand"/></spatial>'
GEAR = '<fixed name="gear" {}><joint joint="shoulder" coef="2"/><joint joint="elbow" coef="-1"/></fixed>'
BRANCHES = (
    '<spatial {}><site site="middle"/><site site="corner"/><pulley divisor="2"/><site site="post"/><site site="corner"/></spatial>'
)
TENDONS = CABLE.format('armature="1.5" damping="0.4" stiffness="3"') + GEAR.format('armature="0.2" damping="0.1"')


def text(tendons: str, rest: str = "", *, free: bool = False, elbow: str = "", option: str = "") -> str:
    world = ARM.format(elbow=elbow) + (FREE if free else "")
    head = f'<option timestep="0.002" {option}><flag contact="disable"/></option>'
    return f"<mujoco>{head}<worldbody>{world}</worldbody><tendon>{tendons}</tendon>{rest}</mujoco>"


def load(*args, rules: str = "4.0", **options) -> xsim.Model:
    return xsim.loads(text(*args, **options), "mjcf", rules=rules)


@pytest.fixture(autouse=True)
def _exact(x64):
    """In float64."""


ARM_STATE = np.array([0.3, -0.7]), np.array([0.8, -1.1])
FREE_STATE = (
    np.array([0.3, -0.7, 1.1, 0.9, 1.2, np.sqrt(0.76), 0.2, -0.4, 0.2]),
    np.array([0.8, -1.1, 0.5, -0.3, 0.4, 0.9, -0.6, 0.7]),
)
A = np.array([0.5, -1.0, 0.3, 0.2, -0.4, 1.5, -0.9, 0.7])
"""An acceleration."""
SOFT = {
    "rest": '<equality><tendon tendon1="gear" polycoef="0.1 0 0 0 0"/></equality>',
    "elbow": 'limited="true" range="-5 5" frictionloss="0.1" springdamper="0.3 0.6"',
    "option": 'iterations="200" tolerance="1e-14"',
}


def branches(**soft) -> xsim.Model:
    limited = 'limited="true" range="0 0.3" frictionloss="0.2"' if soft else ""
    return load(TENDONS.replace('name="cable"', f'name="cable" {limited}') + BRANCHES.format('armature="0.3"'), free=True, **soft)


MASS_TIMES_A = [
    0.872033169214403, -0.4248584128666652, 2.400655012956197, 1.6006543204522197, -3.1997444057082074, 0.16992837503694197,
    -0.029905847988919276, 0.09328827923728802,
]  # fmt: skip
BIAS = [
    -5.114032893253277, -0.6989283711287072, 0.17155743393476183, 0.17137605705627781, 78.54694386792445, -0.060759621090959344,
    0.01205978308979128, 0.03139967600233622,
]  # fmt: skip
KINETIC = 2.8842231084383307
SOFT_ACCELERATION = [
    -1659.9529860691532, 447.27082553984764, 0.09298901523656308, 0.09289070380271747, -9.77371451698918, -0.34717051164378,
    3.5859131419122385, -0.7077667011616932,
]  # fmt: skip
TRAJECTORIES = {
    "Euler": [0.5822677604167863, -0.7178837520978651, 1.988492389892043, 0.928450852286876],
    "implicitfast": [0.5822245559528175, -0.717944227567962, 1.9880912815381737, 0.927811537985096],
}


@pytest.mark.slow
def test_armature_of_tendons_in_mass_matrix_bias_and_energy():
    """A cable to the world, a pulley to a free body of another branch, a sum of joints. Entries between branches are left out, as there."""
    model, (q, v) = branches(), FREE_STATE
    with jax.disable_jit():
        mass, bias, kinetic = xsim.mass_matrix(model, q), xsim.bias(model, q, v), xsim.energy(model, q, v)[0]
        np.testing.assert_allclose(xsim.inverse_dynamics(model, q, v, A), mass @ A + bias, rtol=1e-13)
        np.testing.assert_allclose(xsim.forward(model, xsim.init(model, q, v)).bias, bias, rtol=1e-13)
    np.testing.assert_allclose(mass @ A, MASS_TIMES_A, atol=1e-8)
    np.testing.assert_allclose(bias, BIAS, atol=1e-8)
    np.testing.assert_allclose(kinetic, KINETIC, atol=1e-8)
    assert not mass[:2, 2:].any()


@pytest.mark.slow
def test_constraints_feel_the_armature_of_tendons():
    """Mobilities of limits, dry friction and equalities, and the spring of a joint, depend on it."""
    model = branches(**SOFT)
    with jax.disable_jit():
        found = xsim.forward_dynamics(model, *FREE_STATE)
    np.testing.assert_allclose(found, SOFT_ACCELERATION, atol=1e-7)


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_trajectories_with_armature_of_tendons(integrator):
    model = load(TENDONS, option=f'integrator="{integrator}"')
    final, _ = xsim.rollout(model, xsim.init(model, *ARM_STATE), steps=100)
    np.testing.assert_allclose([*final.q, *final.v], TRAJECTORIES[integrator], atol=1e-6)


@pytest.mark.slow
def test_gradients_with_respect_to_the_armature_of_tendons():
    model = load(TENDONS)

    def speed(armature):
        return (xsim.step(model.replace({"tendon.armature": armature}), xsim.init(model, *ARM_STATE)).v ** 2).sum()

    at, h = jnp.array([1.5, 0.2]), 1e-5
    differences = [(speed(at.at[i].add(h)) - speed(at.at[i].add(-h))) / (2 * h) for i in range(2)]
    np.testing.assert_allclose(jax.grad(speed)(at), differences, rtol=1e-6)
    np.testing.assert_allclose(jax.jacfwd(speed)(at), differences, rtol=1e-6)


@pytest.mark.parametrize(("tendon", "rules", "words"), [
    (CABLE.format('armature="1"'), "3.2", """attribute 'armature'; allowed: with rules="4.0\""""),
    (CABLE.format('armature="-1"'), "4.0", "armature: found -1"),
    (CABLE.format('armature="1"').replace("<site site=\"hand\"/>", '<geom geom="ball"/><site site="hand"/>'), "4.0", "geom in the path"),
])  # fmt: skip
def test_refused_armature_of_tendons(tendon, rules, words):
    ball = '<geom name="ball" type="sphere" size="0.01" pos="0.1 0 2"/>'
    with pytest.raises(ParseError) as error:
        xsim.loads(text(tendon).replace("<worldbody>", f"<worldbody>{ball}"), "mjcf", rules=rules)
    assert words in str(error.value)


def test_a_class_sets_the_armature_of_tendons():
    head = '<default><tendon armature="2"/></default>'
    for rules, words in (("4.0", ""), ("3.2", "with rules")):
        document = text(GEAR.format("")).replace("<worldbody>", f"{head}<worldbody>")
        if words:
            with pytest.raises(ParseError, match=words):
                xsim.loads(document, "mjcf", rules=rules)
        else:
            np.testing.assert_allclose(xsim.loads(document, "mjcf", rules=rules).tendon.armature, [2])


def test_a_model_without_armature_of_tendons_has_no_row_for_it():
    assert not load(CABLE.format("")).tendon.armature.size
