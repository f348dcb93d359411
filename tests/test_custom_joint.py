"""A joint type that a user registers: a cam whose follower slides and turns, with a motion subspace that changes with q."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_displacements import check_derivatives
from traced import by_numpy

import xsim
from xsim import ElementaryJoint, GeneralJoint, JointType, Parameter

FILE = """<x_xy><options dt="0.002"/><worldbody>
  <body name="base" joint="rz" damping="0.0"><geom type="box" mass="1" dim="0.4 0.3 0.2" pos="0.1 0 0"/>
    <body name="follower" joint="{joint}" pos="0.3 0 0" armature="0.01">
      <geom type="box" mass="0.5" dim="0.2 0.1 0.1" pos="0.1 0.05 0"/></body>
  </body></worldbody></x_xy>"""


def _cam_pose(q, params):
    """Turn about x by q, slide along y by lift sin(q)."""
    half = 0.5 * q[0]
    zero = jnp.zeros_like(half)
    return jnp.stack([jnp.cos(half), jnp.sin(half), zero, zero]), jnp.stack([zero, params["lift"][0] * jnp.sin(q[0]), zero])


@pytest.fixture(scope="module")
def cam():
    def draw(key, dtype):
        return jax.random.uniform(key, (1,), dtype, 0.1, 0.3)

    lift = Parameter((1,), (0.2,), "m", "amplitude of the lift", draw)
    return xsim.register_joint(JointType("cam", (GeneralJoint(1, 1, _cam_pose),), {"lift": lift}, "A cam."))


@pytest.fixture(scope="module")
def general_hinge():
    def pose(q, params):
        half, zero = 0.5 * q[0], jnp.zeros_like(q[0])
        return jnp.stack([jnp.cos(half), zero, jnp.sin(half), zero]), jnp.zeros(3, q.dtype)

    return xsim.register_joint(JointType("own_hinge", (GeneralJoint(1, 1, pose),), {}, "A hinge about y by a pose function."))


def test_general_joint_equals_the_built_in_hinge(general_hinge, x64):
    own, built_in = (xsim.loads(FILE.format(joint=j), "x_xy") for j in ("own_hinge", "ry"))
    q, v = np.random.default_rng(0).normal(size=(2, 4, 2))
    for fn in (xsim.bias, xsim.forward_dynamics):
        np.testing.assert_allclose(fn(own, q, v), fn(built_in, q, v), atol=1e-10)
    np.testing.assert_allclose(xsim.mass_matrix(own, q), xsim.mass_matrix(built_in, q), atol=1e-12)


@pytest.mark.slow
def test_non_constant_subspace(cam, x64):
    """Velocity is the rate of pose, energy is kept by RK4, gradients reach the joint's own parameter."""
    model = xsim.with_integrator(xsim.loads(FILE.format(joint="cam"), "x_xy"), "rk4").replace({"option.regularization": 0.0})
    assert "joint.params.cam.lift" in model.paths()
    q, v = jnp.array([[0.2, 0.7], [1.0, -0.4]]), jnp.array([[0.5, 2.0], [-0.3, 1.0]])
    data = xsim.forward(model, xsim.init(model, q, v))
    _, (dpos, _) = jax.jvp(lambda q: xsim.kinematics(model, q), (q,), (v,))
    np.testing.assert_allclose(dpos, data.lin, atol=1e-12)
    start = xsim.init(model, q, v)
    end = xsim.rollout(model, start, steps=200)[0]
    before, after = (sum(xsim.energy(model, s.q, s.v)) for s in (start, end))
    np.testing.assert_allclose(after, before, rtol=1e-9)

    model = xsim.with_integrator(model, "euler")

    def loss(lift):
        return xsim.rollout(model.replace({"joint.params.cam.lift": lift}), start, steps=20)[0].q.sum()

    lift, h, value = model.joint.params["cam.lift"], 1e-5, by_numpy(loss)
    slope = (value(lift + h) - value(lift - h)) / (2 * h)
    np.testing.assert_allclose(by_numpy(jax.grad(loss))(lift).sum(), slope, rtol=1e-7)


def test_parameters_per_environment(cam, x64):
    model = xsim.loads(FILE.format(joint="cam"), "x_xy")
    lifts = jnp.array([0.1, 0.25])[:, None, None]
    both = xsim.bias(model.replace({"joint.params.cam.lift": lifts}), jnp.ones((2, 2)), jnp.ones((2, 2)))
    for i in range(2):
        alone = xsim.bias(model.replace({"joint.params.cam.lift": lifts[i]}), jnp.ones(2), jnp.ones(2))
        np.testing.assert_allclose(both[i], alone, atol=1e-13)


def test_registry_refuses_a_taken_name(cam):
    with pytest.raises(ValueError, match="registered already"):
        xsim.register_joint(JointType("cam", (ElementaryJoint("ball"),)))
    assert xsim.register_joint(cam) is cam


def test_derivatives_by_displacements(cam, x64):
    """Also by the parameter of a motion subspace that changes with the coordinates, see `tests/test_displacements.py`."""
    check_derivatives(xsim.loads(FILE.format(joint="cam"), "x_xy"), 5)
