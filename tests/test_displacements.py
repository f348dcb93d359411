"""Kinematics differentiated by displacements of the links, against derivatives of its operations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import models
from xsim.dynamics.call import Call
from xsim.dynamics.tree import kinematics
from xsim.dynamics.tree.displacements import rate_of_inertia
from xsim.dynamics.tree.system import split_q
from xsim.spatial import Inertia, Motion, cross_force, cross_motion, madd, momentum, mscale


def _by_displacements(model, q):
    """The numbers of all frames and link inertias (n, environments)."""
    c = Call(model, q)
    frame = kinematics.frames(c.system, c.q)
    parts = frame.pose, frame.R, frame.origin, frame.subspace, kinematics.link_inertias(c.system, frame)
    return _stacked(parts, len(q))


def _by_operations(model, q):
    """The same, differentiated by the operations that compute them."""
    c = Call(model, q)
    frame = kinematics._frames(c.system, split_q(c.system, c.q))
    inertias = [kinematics._world_inertia(R, o, i) for R, o, i in zip(frame.R, frame.origin, c.system.link.inertia, strict=True)]
    return _stacked((frame.pose, frame.R, frame.origin, frame.subspace, inertias), len(q))


def _stacked(parts, count: int):
    arrays = [jnp.asarray(x) for x in jax.tree.leaves(parts)]
    return jnp.stack([x[:count] if x.ndim else jnp.broadcast_to(x, (count,)) for x in arrays])  # lanes may be padded


def _point(model, seed: int):
    """Float leaves of a model, configurations of three environments, and a function that makes the model of such leaves."""
    rng = np.random.default_rng(seed)
    leaves, treedef = jax.tree.flatten(model)
    floats = [i for i, x in enumerate(leaves) if jnp.issubdtype(jnp.result_type(x), jnp.floating) and np.size(x)]

    def model_of(values):
        new = list(leaves)
        for i, x in zip(floats, values, strict=True):
            new[i] = x
        return treedef.unflatten(new)

    values = [jnp.asarray(leaves[i], float) for i in floats]
    q = xsim.integrate(model, jnp.broadcast_to(xsim.init(model).q, (3, model.nq)), jnp.asarray(rng.normal(0, 0.7, (3, model.nv))))
    along = [jnp.asarray(rng.normal(0, 0.1, x.shape)) for x in (*values, q)]
    return model_of, [*values, q], along


MODELS = ["zoo", "arm_all_joints"]


def check_derivatives(model, seed):
    """In both modes, by all leaves and by the coordinates."""
    model_of, point, along = _point(model, seed)
    functions = [lambda *x, f=f: f(model_of(x[:-1]), x[-1]) for f in (_by_displacements, _by_operations)]
    derivative, reference = (by_numpy(lambda x, t, f=f: jax.jvp(f, x, t))(tuple(point), tuple(along)) for f in functions)
    for x, y in zip(derivative, reference, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-11, atol=1e-12)
    weights = jnp.asarray(np.random.default_rng(seed).normal(size=derivative[0].shape))
    found, expected = (
        by_numpy(jax.grad(lambda *x, f=f: (f(*x) * weights).sum(), tuple(range(len(point)))))(*point) for f in functions
    )  # fmt: skip
    assert any(np.abs(x).max() > 0 for x in found)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-10, atol=1e-11)
    return functions, point, along


@pytest.mark.parametrize("name", MODELS)
def test_derivatives_are_those_of_the_operations(name, x64):
    """zoo: every joint type."""
    check_derivatives(xsim.load(models.path(name)), MODELS.index(name))


def test_second_derivatives(x64):
    """The rules are differentiated by their operations."""
    functions, point, along = check_derivatives(xsim.load(models.path("pendulum")), 7)
    second, expected = (
        by_numpy(lambda x, t, f=f: jax.jvp(lambda *y: jax.jvp(f, y, t)[1], x, t)[1])(tuple(point), tuple(along)) for f in functions
    )  # fmt: skip
    assert np.abs(expected).max() > 0.01
    np.testing.assert_allclose(second, expected, rtol=1e-11, atol=1e-12)


def test_frozen_leaves_have_constant_components(x64):
    """What cannot move has no displacement: the components of planar robots are not all variables."""
    model = xsim.load(models.path("dmc_acrobot")).freeze("*")
    c = Call(model, jnp.zeros((2, model.nq)))
    displacements = kinematics.frames(c.system, c.q).displacement
    assert all(isinstance(x, float) for d in displacements for x in (d.ang[0], d.ang[2], d.lin[1]))
    assert all(isinstance(d.ang[1], jax.Array) for d in displacements)


def test_rate_of_an_inertia():
    """d/dt (I m) = (dI/dt) m for a fixed motion m: v x* (I m) - I (v x m), Featherstone 2008, eq. 2.66."""
    rng = np.random.default_rng(0)
    numbers = [tuple(rng.normal(size=n).tolist()) for n in (3, 6, 3, 3, 3, 3)]
    inertia, v, m = Inertia(1.3, *numbers[:2]), Motion(*numbers[2:4]), Motion(*numbers[4:])
    expected = madd(cross_force(v, momentum(inertia, m)), mscale(momentum(inertia, cross_motion(v, m)), -1.0))
    np.testing.assert_allclose(jax.tree.leaves(momentum(rate_of_inertia(inertia, v), m)), jax.tree.leaves(expected), rtol=1e-13)
