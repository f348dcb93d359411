"""Sums over constraint rows that depend on few dofs, in the memory of an environment."""

from __future__ import annotations

import functools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_matrices import NUM, SIZES, of_one

import xsim
from xsim.compile.choice import tracing_for
from xsim.compile.compiled_call import CompilerWarning
from xsim.dynamics.constraints.contact_plan import contact_plan
from xsim.dynamics.layout import true_indices
from xsim.dynamics.linalg.assembly import Curvature, transposed_product, with_curvature
from xsim.dynamics.linalg.dense import MAX_UNROLLED, Cholesky, block_max

N, D = 6, 3
"""Numbers of terms, and of rows of each."""
ROWS = np.array([0, 7, SIZES[0] - 1])
"""Rows of a matrix that are compared."""


class Terms:
    """Random terms at dofs of their own in each environment, of which some have fewer than the others, and terms at given dofs of all."""

    def __init__(self, n: int, k: int, given: np.ndarray, dtype):
        rng = np.random.default_rng(n)
        self.counts = np.arange(NUM) % (N + 1)
        used = np.arange(N) < self.counts[:, None]
        self.matrix = _symmetric(rng.normal(size=(NUM, n, n)))
        self.J, self.P = rng.normal(size=(NUM, N, D, k)), _symmetric(rng.normal(size=(NUM, N, D, D))) * used[..., None, None]
        self.dofs = np.sort(rng.permuted(np.tile(np.arange(n), (NUM, N, 1)), axis=2)[..., :k], 2)
        self.J[:, 1::2, :, k // 2 :], self.dofs[:, 1::2, k // 2 :] = 0.0, n - 1
        self.given, self.J_given = given, rng.normal(size=(NUM, N, D, len(given)))
        self.force = rng.normal(size=(NUM, N, D)) * used[..., None]
        self.arrays = [jnp.asarray(x, dtype) for x in (self.matrix, self.J, self.P, self.J_given, self.force)]
        self.arrays += [jnp.asarray(x, jnp.int32) for x in (self.dofs, self.counts)]

    def dense(self) -> np.ndarray:
        """J with all columns."""
        out = np.zeros((NUM, N, D, self.matrix.shape[1]))
        for e, i, k in np.ndindex(self.dofs.shape):
            out[e, i, :, self.dofs[e, i, k]] += self.J[e, i, :, k]
        return out


def _symmetric(x: np.ndarray) -> np.ndarray:
    return x + x.swapaxes(-1, -2)


def _curvature(J: np.ndarray, P: np.ndarray) -> np.ndarray:
    return np.einsum("bnda,bnde,bnef->baf", J, P, J)


@pytest.mark.parametrize(("n", "width", "dtype"), list(zip(SIZES, (1, 2, 5, 17), (np.float32, np.float64) * 2, strict=True)))
def test_curvature(n, width, dtype, x64):
    """The matrix, and the solution of equations with it, with as many terms as each environment has."""
    given = np.sort(np.random.default_rng(width).permutation(n)[:width])
    terms, b = Terms(n, 7, given, dtype), jnp.ones((NUM, n), dtype)

    def function(matrix, J, P, J_given, force, dofs, count):
        terms = [Curvature(J, P, dofs, block_max(count)), Curvature(J_given, P, given, block_max(count))]
        total = with_curvature(matrix + 100 * jnp.eye(n, dtype=dtype), terms)
        return [total[ROWS], Cholesky(total).solve(jnp.ones(n, dtype))]

    rows, x = of_one(function, *terms.arrays)(terms.arrays, (True,) * 7)
    J_given = np.zeros((NUM, N, D, n))
    J_given[..., given] = terms.J_given
    wanted = terms.matrix + 100 * np.eye(n) + _curvature(terms.dense(), terms.P) + _curvature(J_given, terms.P)
    tolerance = {np.float32: 3e-5, np.float64: 1e-13}[dtype]
    np.testing.assert_allclose(rows, wanted[:, ROWS], atol=tolerance * 100)
    np.testing.assert_array_equal(rows[:, :, ROWS], np.swapaxes(rows[:, :, ROWS], 1, 2))
    definite = (np.linalg.eigvalsh(wanted) > 1).all(1)
    assert definite.any()
    np.testing.assert_allclose(x[definite], np.linalg.solve(wanted, np.asarray(b)[..., None])[definite][..., 0], atol=tolerance)


@pytest.mark.parametrize("n", [45, 110])
def test_zero_columns(n, x64):
    """Groups of columns that are zero are left out, of few columns and of so many that a bit stands for several groups."""
    rng = np.random.default_rng(n)
    J, P = np.zeros((NUM, N, D, n)), _symmetric(rng.normal(size=(NUM, N, D, D)))
    for e, i in np.ndindex(NUM, N):
        J[e, i][:, rng.choice(n // 3, 4) * 3] = rng.normal(size=(D, 4))
    J[:, :, :, -1] = J[:, :, :, 0]

    def function(J, P):
        return [with_curvature(jnp.eye(n), [Curvature(J, P, np.arange(n), block_max(jnp.sum(J[:, 0, 0] < 9)))])]

    (found,) = of_one(function, jnp.asarray(J), jnp.asarray(P))((J, P), (True, True))
    assert (J != 0).any((0, 1, 2)).mean() < 1
    np.testing.assert_allclose(found, np.eye(n) + _curvature(J, P), atol=1e-13)


def test_known_entries(x64):
    """Terms whose entries are known, such as those of joint limits, are added entry by entry, without a loop."""
    n, count = SIZES[0], 20
    rng = np.random.default_rng(1)
    J, dofs = np.zeros((count, 1, n)), np.arange(count)[:, None]
    for i in range(count):
        J[i, 0, rng.choice(n, 2, replace=False)] = rng.normal(size=2)
    single, P = rng.normal(size=(count, 1, 1)), rng.uniform(size=(NUM, count, 1, 1))

    def function(P):
        terms = [Curvature(jnp.asarray(J), P, np.arange(n), count), Curvature(jnp.asarray(single), P, jnp.asarray(dofs), count)]
        return [with_curvature(jnp.eye(n), terms)[ROWS]]

    compiled = of_one(function, jnp.asarray(P))
    (found,) = compiled((P,), (True,))
    all_J = np.broadcast_to(J, (NUM, *J.shape)), np.broadcast_to(np.eye(n)[:count, None] * single, (NUM, *J.shape))
    np.testing.assert_allclose(found, (np.eye(n) + sum(_curvature(x, P) for x in all_J))[:, ROWS], atol=1e-14)
    assert not any(name == "block_or" for name in compiled.program((True,)).names)


@pytest.mark.parametrize("of_magnitudes", [False, True])
def test_transposed_product(of_magnitudes, x64):
    n = SIZES[0]
    terms = Terms(n, 7, np.arange(1), np.float64)

    def function(matrix, J, P, J_given, force, dofs, count):
        return [transposed_product(J, force, dofs, block_max(count), n, of_magnitudes)]

    (found,) = of_one(function, *terms.arrays)(terms.arrays, (True,) * 7)
    change = (lambda x: np.abs(x)) if of_magnitudes else (lambda x: x)
    np.testing.assert_allclose(found, np.einsum("bnda,bnd->ba", change(terms.dense()), change(terms.force)), atol=1e-13)


def objects(count: int, shapes: list[str]) -> str:
    """Objects that lie on a plane and on each other."""
    bodies = "".join(
        f"<body pos='{0.05 * (i % 2)} {0.12 * (i // 3)} {0.05 + 0.11 * (i % 3)}'><freejoint/><geom {shapes[i % len(shapes)]}/></body>"
        for i in range(count)
    )
    return f"<mujoco><option timestep='0.004'/><worldbody><geom type='plane' size='1 1 1'/>{bodies}</worldbody></mujoco>"


SHAPES = ["size='0.06'", "type='capsule' size='0.04 0.03'"]


@pytest.fixture(scope="module")
def scene():
    with jax.enable_x64(True):
        return xsim.loads(objects(8, SHAPES), "mjcf")


def start(scene) -> xsim.State:
    return xsim.init(scene, v=np.random.default_rng(0).normal(0, 0.1, (4, scene.nv)))


def test_a_step_is_traced(x64):
    """The Jacobian of contacts between bodies that the state decides, in the program of one environment."""
    scene = xsim.loads(objects(8, SHAPES[:1]), "mjcf")
    (group,) = contact_plan(scene.topology).condim_groups
    assert scene.nv > MAX_UNROLLED and group.support is not None
    with warnings.catch_warnings(action="error", category=CompilerWarning):  # XLA would compile a step without a program
        end = jax.eval_shape(xsim.step, scene, start(scene))
    assert end.v.shape == (4, scene.nv)


@pytest.mark.slow
def test_derivatives_of_steps(scene, x64):
    """Derivatives of steps with objects in contact are those of differences."""
    (group,) = contact_plan(scene.topology).condim_groups
    assert scene.nv > MAX_UNROLLED and group.support is not None and group.support.dofs.shape[1] == 12
    state = start(scene)
    direction = np.random.default_rng(1).normal(size=state.v.shape)

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def loss(v):
        end = xsim.rollout(scene, state.replace(v=v), steps=3)[0]
        return jnp.sum(end.v**2) + jnp.sum(end.q**2), end.flags

    (_, flags), gradient = loss(state.v)
    assert (flags == 0).all()
    h = 1e-6
    ends = [loss(state.v + sign * h * direction)[0][0] for sign in (1, -1)]
    np.testing.assert_allclose(jnp.sum(gradient * direction), (ends[0] - ends[1]) / (2 * h), rtol=1e-6)


@pytest.mark.nightly
def test_steps(scene, x64):
    """The steps of the program are those of XLA's, which has all columns of the Jacobian."""
    state, found = start(scene), []
    for compiler in ("llvm", "xla"):
        with tracing_for(compiler):
            found.append(jax.jit(lambda state: xsim.rollout(scene, state, steps=3)[0])(state).v)
    np.testing.assert_allclose(*found, atol=1e-9)


def test_true_indices():
    """The first ones, where there are fewer or more than places."""
    x = jnp.asarray(np.linspace(0, 1, NUM)[:, None] - np.random.default_rng(0).random((NUM, 9)))
    for size in (1, 4, 9):
        (got,) = of_one(lambda x, size=size: [true_indices(x > 0, size)], x)([x], (True,))
        np.testing.assert_array_equal(got, [jnp.nonzero(row > 0, size=size, fill_value=0)[0] for row in x])
