"""The minimum that the solver finds: forces in balance to rounding, in both precisions, however far away it began."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import AS_USERS
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics.constraints import newton
from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.newton import free_acceleration, minimize
from xsim.dynamics.constraints.soft_set import Constraints, has_warm_start
from xsim.dynamics.integration import equation
from xsim.dynamics.linalg.jacobian import Jacobian
from xsim.model.model import Flags

NV, CONTACTS, LANES = 8, 12, 512


def problems(elliptic: bool, d: int):
    """Random masses and contacts, offsets from 1e-2 to 1e4: those of a deep contact beside those of one that hardly touches."""
    rng = np.random.default_rng(d)
    half = rng.normal(size=(NV, NV, LANES))
    mass = np.einsum("ikl,jkl->ijl", half, half) + np.eye(NV)[..., None]
    J = rng.normal(size=(CONTACTS, d, NV, LANES))
    offset = rng.normal(size=(CONTACTS, d, LANES)) * 10 ** rng.uniform(-2, 4, (CONTACTS, 1, LANES))
    stiffness = 10 ** rng.uniform(-1, 3, (CONTACTS, LANES))
    weight = np.concatenate([np.full((CONTACTS, 1, LANES), 0.7 if elliptic else 1.0), np.full((CONTACTS, d - 1, LANES), 0.7)], 1)
    return mass, rng.normal(size=(NV, LANES)), J, offset, stiffness, weight


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("elliptic, d", [(False, 1), (False, 3), (True, 3)])
def test_forces_are_in_balance(x64, elliptic, d, dtype):
    @functools.partial(jax.jit, compiler_options=AS_USERS)  # one of the float32 problems is at the edge of what rounding lets converge
    def found(mass, right, J, *rest):
        kept = Constraints(None, (Cones(elliptic, Jacobian((J,), ((CONTACTS, tuple(range(NV))),), NV), *rest),))
        least = minimize(mass, right, free_acceleration(mass, right), kept)
        return least.a, kept.jt_times(kept.force(kept.at(least.a))), least.converged, least.steps

    own = [jnp.asarray(x, dtype) for x in problems(elliptic, d)]
    a, pull, solved, steps = found(*own)
    assert a.dtype == dtype and solved.all() and steps < 30
    heavy = jnp.einsum("ijl,jl->il", own[0], a)
    # What is rounded: a force is its stiffness times a difference of large numbers.
    mass, right, J, offset, stiffness, _ = (np.abs(x, dtype=float) for x in own)
    parts = stiffness[:, None] * (np.einsum("ndil,il->ndl", J, np.abs(a)) + offset)
    size = np.einsum("ijl,jl->il", mass, np.abs(a)) + right + np.einsum("ndil,ndl->il", J, parts)
    wrong = np.abs(heavy - own[1] - pull).max(0) / size.max(0)
    assert wrong.max() < 4 * jnp.finfo(dtype).eps


def test_the_matrix_is_traced_for_derivatives_only(monkeypatch):
    """The step alone does not evaluate the matrix of the equation of motion at the solution."""
    made = []

    class Counted(equation.NewtonMatrix):
        def __init__(self, *arguments):
            made.append(arguments)
            super().__init__(*arguments)

    monkeypatch.setattr(equation, "NewtonMatrix", Counted)
    bodies = '<geom type="plane" size="1 1 1"/><body pos="0 0 .1"><freejoint/><geom size=".11"/></body>'
    model = xsim.loads(f"<mujoco><worldbody>{bodies}</worldbody></mujoco>", "mjcf")
    state = xsim.init(model)
    with tracing_for("xla"):
        jax.make_jaxpr(lambda v: xsim.step(model, state.replace(v=v)).v)(state.v)
        assert not made
        jax.make_jaxpr(jax.jacfwd(lambda v: xsim.step(model, state.replace(v=v)).v))(state.v)
    assert made


@pytest.mark.parametrize("elliptic", [False, True])
def test_the_search_starts_at_a_better_acceleration(x64, elliptic):
    """From the minimum it has nothing to do. A lane without a start, or with one that is farther away, starts at the free acceleration."""
    mass, right, J, *rest = (jnp.asarray(x)[..., :4] for x in problems(elliptic, 3))
    cones = Cones(elliptic, Jacobian((J,), ((CONTACTS, tuple(range(NV))),), NV), *rest)
    free = free_acceleration(mass, right)

    @jax.jit
    def search(start):
        return minimize(mass, right, free, Constraints(None, (cones,)), start=start)

    cold = search(jnp.full_like(right, jnp.nan))
    assert cold.converged.all() and cold.steps > 3
    warm = search(cold.a)
    assert warm.converged.all() and warm.steps <= 2
    np.testing.assert_allclose(warm.a, cold.a, rtol=0, atol=1e-12 * np.abs(cold.a).max())
    for factor in (1e6, jnp.inf):
        np.testing.assert_array_equal(search(factor * jnp.ones_like(right)).a, cold.a)
    near = search(cold.a * (1 + 1e-3))
    assert near.converged.all() and near.steps <= cold.steps
    np.testing.assert_allclose(near.a, cold.a, rtol=0, atol=1e-12 * np.abs(cold.a).max())


def test_large_forces_that_cancel_are_solved(x64):
    """The centre of mass of the hinged box is on the axis. Its mobility as a point mass is zero, so its contacts have forces of 1e16 N,
    whose moments about the axis cancel. MuJoCo 4.0.0 (`mj_forward`, 500 iterations, tolerance 0): qacc -2e-13, and -526.3157894736839
    at qvel 5."""
    boxes = "".join(f'<geom type="box" size=".1 .2 .3" {pose}/>' for pose in ('pos=".5 0 0" euler="0 0 50"', "", 'euler="0 0 50"'))
    hinged = '<body><geom type="box" size=".1 .2 .3"/><joint axis="0 -1 0"/></body>'
    model = xsim.loads(f"<mujoco><worldbody>{boxes}{hinged}</worldbody></mujoco>", "mjcf", rules="4.0")
    for v, a in ((0.0, 0.0), (5.0, -526.3157894736842)):
        data = xsim.forward(model, xsim.init(model, v=np.array([v])))
        np.testing.assert_allclose(data.a, [a], rtol=1e-12, atol=1e-11)
        assert data.flags == 0 and data.residual < 1e-14


def test_what_is_not_solved_is_flagged(x64, monkeypatch):
    """One step of Newton's method does not solve contacts that slide."""
    monkeypatch.setattr(newton, "MAX_STEPS", 1)
    box = '<body pos="0 0 .09" euler="2 3 0"><freejoint/><geom type="box" size=".1 .1 .1" mass="1"/></body>'
    world = f'<option cone="elliptic"/><worldbody><geom type="plane" size="1 1 1"/>{box}</worldbody>'
    model = xsim.loads(f"<mujoco>{world}</mujoco>", "mjcf")
    data = xsim.forward(model, xsim.init(model, v=np.array([3.0, 1.0, 0.0, 0.0, 0.0, 5.0])))
    assert data.flags == Flags.UNSOLVED and data.residual > 1e-4


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["half_cheetah", "hopper", "ant", "reacher", "humanoid_v5", "go1"])
def test_robots_in_single_precision(name):
    """Of 128 that were thrown about for 50 steps every one has its forces in balance."""
    model, count = xsim.load(xsim.models.path(name)), 128
    start, rng = xsim.init(model), np.random.default_rng(0)
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), start)
    state = state.replace(q=state.q + 0.01 * rng.normal(size=state.q.shape).astype(np.float32))
    ctrls = rng.uniform(-1, 1, (50, count, model.nu)).astype(np.float32)
    state, _ = jax.jit(lambda state: xsim.rollout(model, state, ctrls))(state)
    data = jax.jit(lambda state: xsim.forward(model, state, ctrls[0]))(state)
    assert data.a.dtype == jnp.float32 and not data.flags.any()
    # humanoid_v5: 2.1e-5, since LLVM compiles `forward`, too, with other rounding errors; 1.3e-5 by XLA. The median is 2.5e-6 by both.
    assert data.residual.max() < 3e-5


@pytest.mark.slow
@pytest.mark.parametrize("integrator", ["Euler", "RK4"])
def test_rollouts_with_warm_starts(x64, integrator):
    """The states are those of single steps, each of which starts its search at the free acceleration."""
    balls = "".join(f'<body pos="0 0 {0.1 + 0.19 * i}"><freejoint/><geom size=".1"/></body>' for i in range(4))
    option, plane = f'<option integrator="{integrator}"/>', '<geom type="plane" size="1 1 1"/>'
    model = xsim.loads(f"<mujoco>{option}<worldbody>{plane}{balls}</worldbody></mujoco>", "mjcf", rules="4.0")
    assert has_warm_start(model.topology)
    v = np.random.default_rng(3).normal(0, 0.3, (3, model.nv))
    start = state = xsim.init(model, np.tile(xsim.init(model).q, (3, 1)), v)
    step, steps = jax.jit(xsim.step), 30
    for _ in range(steps):
        state = step(model, state)
    by_llvm, _ = jax.jit(lambda m, s: xsim.rollout(m, s, steps=steps))(model, start)
    by_xla, _ = by_numpy(lambda m, s: xsim.rollout(m, s, steps=steps))(model, start)
    assert np.abs(state.v - v).max() > 0.1
    for found in by_llvm, by_xla:
        np.testing.assert_array_equal(found.flags, 0)
        np.testing.assert_allclose(found.q, state.q, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.v, state.v, rtol=0, atol=1e-9)
