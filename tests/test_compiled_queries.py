"""Queries by LLVM agree with XLA, and only what is used of them is compiled."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for
from xsim.compile.compiled_call import CompilerWarning, warn_once
from xsim.compile.flatten import Unsupported
from xsim.compile.function import Function
from xsim.dynamics import compiled_query

pytestmark = pytest.mark.xla

SCENE = """<mujoco><option timestep=".004"/><worldbody><geom type="plane" size="1 1 1"/>
  <body pos="0 0 .08"><freejoint/><geom type="box" size=".1 .1 .1"/><site name="s"/>
    <body pos=".1 0 0"><joint name="j" axis="0 1 0" range="-1 1" limited="true" damping=".1"/><geom size=".03" pos=".1 0 0"/></body></body>
</worldbody><actuator><position name="servo" joint="j" kp="3"/></actuator>
<sensor>
  <accelerometer site="s"/><gyro site="s"/><touch site="s"/><actuatorfrc actuator="servo"/><jointpos joint="j" delay=".01" nsample="4"/>
</sensor></mujoco>"""


def scene():
    model = xsim.loads(SCENE, "mjcf", rules="4.0")
    return model.replace({"option.gravity": model.option.gravity * jnp.linspace(0.5, 1, 5)[:, None]})


def states(model, count: int):
    rng = np.random.default_rng(0)
    start = xsim.init(model)
    q = jnp.broadcast_to(start.q, (count, model.nq))
    return xsim.init(model, xsim.integrate(model, q, 0.05 * rng.normal(size=(count, model.nv))), 0.3 * rng.normal(size=(count, model.nv)))


@pytest.mark.slow
def test_queries_are_those_of_xla(x64):
    """Contacts, limits, actuators, sensors (one with a history), a gravity for each environment; and derivatives."""
    model = scene()
    state = states(model, 5)
    ctrl = jnp.linspace(-1, 1, 5)[:, None]

    def loss(v, model, state):
        data = xsim.forward(model, state.replace(v=v), ctrl)
        return (data.sensor**2).sum() + (data.a**2).sum()

    with tracing_for("llvm"):
        got = xsim.forward(model, state, ctrl), jax.jit(jax.grad(loss))(state.v, model, state)
    with tracing_for("xla"):
        expected = by_numpy(lambda m, s: (xsim.forward(m, s, ctrl), jax.grad(loss)(s.v, m, s)))(model, state)
    for field in dataclasses.fields(xsim.Data):
        one, other = getattr(got[0], field.name), getattr(expected[0], field.name)
        assert one.dtype == other.dtype and one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8 * max(1, np.abs(other).max(initial=0)), err_msg=field.name)
    np.testing.assert_allclose(got[1], expected[1], rtol=1e-7, atol=1e-7 * np.abs(expected[1]).max())


@pytest.mark.slow
def test_every_query_is_that_of_xla(x64):
    """A gravity for each environment, an absent argument, one that is no array, and a query of the model alone."""
    model = scene()
    state, v = states(model, 5), jnp.linspace(-1, 1, model.nv)
    moved = xsim.init(model).q
    queries = {
        "kinematics": lambda m, s: xsim.kinematics(m, s.q), "geom_poses": lambda m, s: xsim.geom_poses(m, s.q),
        "jacobian": lambda m, s: xsim.jacobian(m, s.q, m.body_names[-1], (0.0, 0.1, 0.2)),
        "mass_matrix": lambda m, s: xsim.mass_matrix(m, s.q),
        "inverse_dynamics": lambda m, s: xsim.inverse_dynamics(m, s.q, s.v, v), "bias": lambda m, s: xsim.bias(m, s.q, s.v),
        "passive": lambda m, s: xsim.passive(m, s.q, s.v), "energy": lambda m, s: xsim.energy(m, s.q, s.v),
        "smooth_acceleration": lambda m, s: xsim.smooth_acceleration(m, s.q, s.v, time=0.5),
        "forward_dynamics": lambda m, s: xsim.forward_dynamics(m, s.q, s.v, tau=v, ctrl=jnp.ones(1)),
        "body_inertia": lambda m, s: xsim.body_inertia(m), "difference": lambda m, s: xsim.difference(m, s.q, moved),
        "site_jacobian": lambda m, s: xsim.site_jacobian(m, s.q, 0), "center_of_mass": lambda m, s: xsim.center_of_mass(m, s.q),
        "centroidal_momentum_matrix": lambda m, s: xsim.centroidal_momentum_matrix(m, s.q, m.body_names[-1]),
        "contacts": lambda m, s: xsim.contacts(m, s), "reactions": lambda m, s: xsim.reactions(m, s),
    }  # fmt: skip
    with tracing_for("llvm"):
        got = {name: query(model, state) for name, query in queries.items()}
    with tracing_for("xla"):
        expected = {name: by_numpy(query)(model, state) for name, query in queries.items()}
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for (path, a), b in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape, path
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * max(1, np.abs(b).max(initial=0)), err_msg=str(path))


def test_derivatives_of_a_query(x64):
    """In both modes, and the second."""
    model = xsim.load(xsim.models.path("two_links"))
    q = xsim.init(model).q + 0.3

    def mass(q):
        return xsim.mass_matrix(model, q).sum()

    with tracing_for("llvm"):
        got = jax.grad(mass)(q), jax.jacfwd(mass)(q), jax.hessian(mass)(q)
    with tracing_for("xla"):
        expected = [by_numpy(f)(q) for f in (jax.grad(mass), jax.jacfwd(mass), jax.hessian(mass))]
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_a_query_without_a_batch_and_with_two_axes(x64):
    model = xsim.load(xsim.models.path("two_links"))
    state = xsim.init(model)
    one = xsim.forward(model, state)
    assert one.pos.shape == (len(model.body_names), 3) and one.flags.shape == ()
    many = xsim.forward(model, jax.tree.map(lambda x: jnp.broadcast_to(x, (2, 3, *x.shape)), state))
    np.testing.assert_array_equal(many.a, jnp.broadcast_to(one.a, many.a.shape))
    with tracing_for("xla"):
        np.testing.assert_allclose(one.bias, by_numpy(lambda m, s: xsim.forward(m, s).bias)(model, state), atol=1e-12)


def _three(x):
    return [jnp.sin(x), jnp.exp(x), x * x]


def test_results_that_nothing_uses_are_not_compiled():
    f = Function(_three, [jax.ShapeDtypeStruct((), jnp.float32)], "three", prunable=True)
    x = jnp.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(jax.jit(lambda x: f([x], [True])[1])(x), jnp.exp(x), rtol=1e-6)
    assert set(f._selections) == {(1,)} and not f._targets
    assert f.selected((1,)).summary((True,)).operations < f.summary((True,)).operations
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: f([x], [True])[2].sum()))(x), 2 * x, rtol=1e-6)
    assert set(f._selections) == {(1,), (2,)} and not f._targets and not f._reverses
    assert jax.jit(lambda x: f([x], [True]) and x + 1)(x)[0] == 1 and not f._targets


def test_results_that_cost_little_stay_in_the_machine_code():
    """Programs that use the long result with or without the short one share a selection; another long one is left out."""

    def function(x):
        long = functools.reduce(lambda y, _: jnp.sin(y), range(400), x)
        return [long, x * x, functools.reduce(lambda y, _: jnp.cos(y), range(400), x), jnp.outer(x, x)]

    f = Function(function, [jax.ShapeDtypeStruct((1,), jnp.float32)], "long and short", prunable=True)
    x = jnp.linspace(0.0, 1.0, 5)[:, None]
    alone = jax.jit(lambda x: f([x], [True])[0])(x)
    both = jax.jit(lambda x: f([x], [True])[:2])(x)
    assert set(f._selections) == {(0, 1, 3)} and len(f._selections[0, 1, 3]._targets) == 1
    np.testing.assert_array_equal(alone, both[0])
    np.testing.assert_allclose(both[1], x * x, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: f([x], [True])[1].sum()))(x), 2 * x, rtol=1e-6)


def test_operands_that_are_not_read_are_left_out():
    """Those that no used result needs, and those without numbers. One of the environments stays, which tells how many there are."""

    def function(x, y, empty, z):
        return [jnp.sin(x), jnp.cos(y) + z, jnp.concatenate([empty, x[None]]) * 2]

    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((), (), (0,), ())]
    f = Function(function, shapes, "three arguments", prunable=True)
    x, y, empty, z = jnp.float32(0.3), jnp.linspace(0.0, 1.0, 5), jnp.zeros(0), jnp.float32(2.0)
    batched = [False, True, False, False]

    def called(k):
        return jax.jit(lambda *xs: f(xs, batched)[k])

    np.testing.assert_allclose(called(1)(x, y, empty, z), jnp.cos(y) + z, rtol=1e-6)
    np.testing.assert_allclose(called(0)(x, y, empty, z), jnp.broadcast_to(jnp.sin(x), 5), rtol=1e-6)
    np.testing.assert_allclose(called(2)(x, y, empty, z), jnp.full((5, 1), 0.6), rtol=1e-6)
    assert {k: [*s._reading] for k, s in f._selections.items()} == {(1,): [(1, 3)], (0,): [(0, 1)], (2,): [(0, 1)]}
    gradients = jax.jit(jax.grad(lambda *xs: f(xs, batched)[1].sum(), argnums=(0, 1, 3)))(x, y, empty, z)
    for got, expected in zip(gradients, (0.0, -jnp.sin(y), 5.0), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_a_model_of_constants(x64):
    """Nothing is left to read: one operand stays."""
    model = xsim.load(xsim.models.path("two_links"))
    state = states(model, 3)
    np.testing.assert_allclose(xsim.step(model.freeze("*"), state).v, xsim.step(model, state).v, rtol=1e-12)


def test_a_whole_function_is_compiled_once():
    f = Function(_three, [jax.ShapeDtypeStruct((), jnp.float32)], "three")
    x = jnp.linspace(0.0, 1.0, 11)
    np.testing.assert_allclose(jax.jit(lambda x: f([x], [True])[1])(x), jnp.exp(x), rtol=1e-6)
    assert not f._selections and len(f._targets) == 1


@pytest.mark.parametrize(("limit", "count"), [("MAX_OPERATIONS", 2), ("MAX_TRACED_OPERATIONS", 3)])
def test_large_queries_go_to_xla(limit, count, monkeypatch):
    """The choice "llvm" says so; what is too large after all is known when it is compiled."""
    model = xsim.load(xsim.models.path("two_links"))
    state = states(model, count)  # of a shape of its own: jax keeps traces
    monkeypatch.setattr(f"xsim.compile.function.{limit}", 50)
    compiled_query.query_function.cache_clear()
    warn_once.cache_clear()
    with pytest.warns(CompilerWarning, match="XLA compiles the query: .* operations, more than 50"):
        assert jnp.isfinite(jax.jit(lambda s: xsim.forward(model, s).a)(state)).all()
    with tracing_for("llvm"), pytest.raises(Unsupported, match="operations, more than 50"):
        jax.jit(lambda s: xsim.forward(model, s).bias)(state)
    compiled_query.query_function.cache_clear()
