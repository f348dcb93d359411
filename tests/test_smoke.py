"""One model of each format loads, steps, and has the derivative of its step: the short check of an installation."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import QUICK

import xsim

pytestmark = pytest.mark.xla

EXAMPLES = {
    "chrono": "shock_absorber",
    "mjcf": "reacher",
    "sdf": "two_links_orthogonal_1",
    "skel": "cart_arm",
    "urdf": "two_links",
    "x_xy": "chain",
}


def test_every_format_has_an_example():
    assert {Path(xsim.models.path(name)).parent.name: name for name in EXAMPLES.values()} == EXAMPLES
    assert set(EXAMPLES) == {Path(xsim.models.path(name)).parent.name for name in xsim.models.names()}


@pytest.mark.parametrize("name", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.usefixtures("x64")
def test_a_step_and_its_derivative(name):
    model = xsim.load(xsim.models.path(name))
    state = xsim.init(model)
    tau = jnp.asarray(np.random.default_rng(0).normal(size=(2, model.nv)))

    def speed(push):
        return jnp.sum(xsim.step(model, state, tau=push).v ** 2)

    program = jax.jit(jax.value_and_grad(speed), compiler_options=QUICK)
    value, gradient = program(tau[0])
    assert jnp.isfinite(value) and value > 0
    h = 1e-4
    difference = (program(tau[0] + h * tau[1])[0] - program(tau[0] - h * tau[1])[0]) / (2 * h)
    np.testing.assert_allclose(jnp.vdot(gradient, tau[1]), difference, rtol=1e-6)  # the error of the difference grows with h squared
