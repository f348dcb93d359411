"""The batch contract: environments do not see each other, transformations compose, one compilation serves many values."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import models
from xsim.dynamics import sharding

pytestmark = pytest.mark.xla

NUM = 40


@pytest.fixture(scope="module")
def chain():
    return _chain()


def _chain():
    """Environments that all differ in masses, damping, axes, positions and gravity."""
    model = xsim.load(models.path("chain"))
    rng = np.random.default_rng(0)

    def spread(path, low, high):
        leaf = np.asarray(model.get(path))
        return leaf * rng.uniform(low, high, (NUM, *leaf.shape))

    return model.replace(
        {
            "geom.mass": spread("geom.mass", 0.5, 2.0),
            "dof.damping": spread("dof.damping", 0.5, 2.0),
            "joint.axes": spread("joint.axes", 0.8, 1.2),
            "body.pos": spread("body.pos", 0.9, 1.1),
            "option.gravity": spread("option.gravity", 0.9, 1.1),
        }
    )


def _start(model, num=NUM):
    rng = np.random.default_rng(1)
    neutral = jnp.broadcast_to(jnp.array(model.topology.neutral), (num, model.nq))
    return xsim.init(model, xsim.integrate(model, neutral, rng.normal(size=(num, model.nv))), rng.normal(size=(num, model.nv)))


def _pick(model, i):
    """Environment i of a model, as a batch of one."""
    batched = {p: model.get(p)[i : i + 1] for p in model.paths() if model.get(p).ndim > len(model.shape(p))}
    return model.replace(batched)


def _bits(tree):
    return [np.asarray(x).tobytes() for x in jax.tree.leaves(tree)]


@pytest.mark.slow
def test_alone_equals_in_a_batch_bitwise(chain):
    """An environment alone, in a batch of 40 and among 1,500 (which run in slices) gives the same bits."""
    run = jax.jit(lambda m, s: xsim.rollout(m, s, steps=10)[0])
    start = _start(chain)
    together = run(chain, start)
    for i in (0, 7, NUM - 1):
        alone = run(_pick(chain, i), jax.tree.map(lambda x, i=i: x[i : i + 1], start))
        assert _bits(alone) == _bits(jax.tree.map(lambda x, i=i: x[i : i + 1], together))
    assert _bits(run(chain, start)) == _bits(together), "the same call twice"
    many = 1500
    index = np.arange(many) % NUM
    large = chain.replace({p: chain.get(p)[index] for p in chain.paths() if chain.get(p).ndim > len(chain.shape(p))})
    sliced = run(large, jax.tree.map(lambda x: x[index], start))
    assert _bits(sliced) == _bits(jax.tree.map(lambda x: x[index], together))


@pytest.mark.slow
@pytest.mark.usefixtures("x64")
def test_vmap_equals_the_native_batch():
    """The programs differ by rounding: 2e-13 in double precision."""
    chain = _chain()
    start = _start(chain)
    axes = jax.tree.map(lambda x: 0, start)
    model_axes = chain
    for path in chain.paths():
        model_axes = model_axes._put(path, 0 if chain.get(path).ndim > len(chain.shape(path)) else None)
    mapped = jax.jit(jax.vmap(xsim.step, in_axes=(model_axes, axes)))(chain, start)
    native = xsim.step(chain, start)
    for a, b in zip(jax.tree.leaves(mapped), jax.tree.leaves(native), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-11)


@pytest.fixture(scope="module")
def pendulum():
    return xsim.load(models.path("pendulum"))


@pytest.mark.slow
def test_rollout_under_every_transformation(pendulum):
    """jit, grad, jvp, linearize, checkpoint, vmap, vmap of grad and scan around rollout agree with the plain call."""
    start = _start(pendulum, 3)

    def roll(v):
        return xsim.rollout(pendulum, start.replace(v=v), steps=4)[0].q.sum()

    v, t = start.v, jnp.ones_like(start.v)
    value, gradient = jax.value_and_grad(roll)(v)
    close = dict(rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(roll(v), value, **close)
    np.testing.assert_allclose(jax.jit(roll)(v), value, **close)
    np.testing.assert_allclose(jax.grad(jax.checkpoint(roll))(v), gradient, **close)
    out, tangent = jax.jvp(roll, (v,), (t,))
    np.testing.assert_allclose(tangent, (gradient * t).sum(), **close)
    np.testing.assert_allclose(jax.linearize(roll, v)[1](t), tangent, **close)
    each = jax.vmap(lambda q, v: xsim.rollout(pendulum, xsim.init(pendulum, q, v), steps=4)[0].q.sum())(start.q, v)
    np.testing.assert_allclose(each.sum(), value, **close)
    single = jax.vmap(jax.grad(lambda v, q: xsim.rollout(pendulum, xsim.init(pendulum, q, v), steps=4)[0].q.sum()))(v, start.q)
    np.testing.assert_allclose(single, gradient, **close)
    stepped = jax.lax.scan(lambda s, _: (xsim.step(pendulum, s), None), start, None, length=4)[0]
    np.testing.assert_allclose(stepped.q.sum(), value, **close)


def test_one_compilation_serves_new_values(pendulum):
    traces = []

    @jax.jit
    def run(model, state, taus):
        traces.append(1)
        return xsim.rollout(model, state, taus=taus)[0]

    state = _start(pendulum, 3)
    for i in range(3):
        model = pendulum.replace({"dof.damping": pendulum.dof.damping * (1 + i)})
        state = run(model, state, jnp.zeros((5, 3, 2)) + 0.1 * i)
    again = xsim.load(models.path("pendulum"))
    run(again, state, jnp.zeros((5, 3, 2)))
    assert len(traces) == 1


def test_donated_states_are_reused(pendulum):
    run = jax.jit(lambda m, s: xsim.rollout(m, s, steps=2)[0], donate_argnums=1)
    state = _start(pendulum, 16)
    out = run(pendulum, state)
    assert state.q.is_deleted() and not out.q.is_deleted()


@pytest.mark.slow
def test_batch_shapes(pendulum):
    """Several batch axes, shared arguments and per-environment leaves broadcast together."""
    q = jnp.zeros((2, 3, 2))
    assert xsim.forward(pendulum, xsim.init(pendulum, q)).pos.shape == (2, 3, 2, 3)
    wide = pendulum.replace({"option.gravity": jnp.ones((3, 3))})
    assert xsim.init(wide).q.shape == (3, 2)
    assert xsim.bias(wide, q, jnp.zeros(2)).shape == (2, 3, 2)
    taus = jnp.zeros((4, 2))
    final, kept = xsim.rollout(wide, xsim.init(wide), taus=taus, record=lambda s, d: (s.q, d.pos))
    assert final.q.shape == (3, 2) and kept[0].shape == (4, 3, 2) and kept[1].shape == (4, 3, 2, 3)
    np.testing.assert_array_equal(kept[0][-1], final.q)


def test_recording_in_slices_equals_recording_at_once(pendulum):
    many = 1100
    start = _start(pendulum, many)
    final, kept = xsim.rollout(pendulum, start, steps=3, record=lambda s, _: s.q)
    part = xsim.rollout(pendulum, jax.tree.map(lambda x: x[:20], start), steps=3, record=lambda s, _: s.q)[1]
    assert kept.shape == (3, many, 2)
    np.testing.assert_array_equal(kept[:, :20], part)
    np.testing.assert_array_equal(kept[-1], final.q)


def test_wrong_arguments_are_refused(pendulum):
    state = xsim.init(pendulum)
    with pytest.raises(ValueError, match="q must have shape"):
        xsim.init(pendulum, jnp.zeros(3))
    with pytest.raises(ValueError, match="tau must have shape"):
        xsim.step(pendulum, state, tau=jnp.zeros(3))
    with pytest.raises(ValueError, match="no actuators"):
        xsim.step(pendulum, state, ctrl=jnp.zeros(2))
    with pytest.raises(ValueError, match="needs ctrls, taus or steps"):
        xsim.rollout(pendulum, state)
    with pytest.raises(KeyError, match="no body"):
        xsim.jacobian(pendulum, state.q, "wheel")
    with pytest.raises(IndexError, match="no body 7: the model has"):
        xsim.jacobian(pendulum, state.q, 7)
    with pytest.raises(IndexError, match="no site -1"):
        xsim.site_jacobian(pendulum, state.q, -1)


# ---- leaves ------------------------------------------------------------------------------------------------------------------


def test_numbers_below_their_bound_are_refused(pendulum):
    """But not those that are traced, such as a damping that an optimizer moves below zero, nor what is not a number."""
    for path, value, bound in (("option.dt", 0.0, "> 0"), ("option.dt", -0.01, "> 0"), ("dof.damping[*]", -1.0, ">= 0")):
        with pytest.raises(ValueError, match=f"{path.removesuffix('[*]')} must be {bound}, found"):
            pendulum.replace({path: value})
    assert jax.jit(lambda x: pendulum.replace({"dof.damping[*]": x}).get("dof.damping").min())(-1.0) == -1
    assert jnp.isnan(pendulum.replace({"option.dt": jnp.nan}).get("option.dt"))


def test_leaves_are_declared_and_checked(pendulum):
    for path in pendulum.paths():
        declared = pendulum.declaration(path)
        assert declared.unit and declared.doc and pendulum.get(path).shape == pendulum.shape(path)
        assert not pendulum.get(path).weak_type
    with pytest.raises(KeyError, match="no leaf"):
        pendulum.get("body.weight")
    with pytest.raises(ValueError, match="does not end in"):
        pendulum.replace({"geom.mass": jnp.zeros(2)})


def test_frozen_leaves_are_constants(pendulum):
    frozen = pendulum.freeze("geom.*", "body.quat", "body.pos")
    geom = len([p for p in pendulum.paths() if p.startswith("geom.")])
    assert len(jax.tree.leaves(frozen)) == len(jax.tree.leaves(pendulum)) - geom - 2
    with pytest.raises(ValueError, match="frozen"):
        frozen.replace({"geom.mass": jnp.ones(4)})
    with pytest.raises(KeyError):
        pendulum.freeze("geom.colour")
    state = _start(pendulum, 3)
    a, b = xsim.step(pendulum, state), xsim.step(frozen, state)
    np.testing.assert_allclose(a.q, b.q, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(a.v, b.v, rtol=1e-5, atol=1e-5)
    assert hash(frozen.geom.mass) == hash(pendulum.freeze("geom.mass").geom.mass)
    with pytest.raises(ValueError, match="differs between environments"):
        pendulum.replace({"geom.mass": jnp.ones((2, 4))}).freeze("geom.mass")


def test_derived_quantities_are_never_stale(pendulum):
    heavier = pendulum.replace({"geom.size": 2 * pendulum.geom.size})
    a, b = xsim.body_inertia(pendulum)[2], xsim.body_inertia(heavier)[2]
    np.testing.assert_allclose(np.asarray(b)[0, :3], 4 * np.asarray(a)[0, :3], rtol=1e-5)
    m0 = xsim.mass_matrix(pendulum, jnp.zeros(2))
    m1 = xsim.mass_matrix(pendulum.replace({"geom.mass": 2 * pendulum.geom.mass}), jnp.zeros(2))
    np.testing.assert_allclose(m1, 2 * m0, rtol=1e-5)


def test_a_state_without_batch_is_not_divided(monkeypatch):
    """The devices of several processes divide any number of environments, but not a state that is one environment."""
    monkeypatch.setattr(sharding, "mesh_of", lambda size: jax.sharding.Mesh(jax.devices(), sharding.AXIS))
    state = {"q": np.zeros(3)}
    assert sharding.divided(state, ()) is state
