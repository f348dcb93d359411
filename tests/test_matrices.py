"""Large symmetric matrices in the memory of an environment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.compile.function import Function
from xsim.compile.sparsity import group_size, padded
from xsim.dynamics.linalg.dense import FACTOR, MAX_UNROLLED, Cholesky, sum_of_products

NUM = 5
SIZES = tuple(MAX_UNROLLED + k for k in range(1, 5))


def positive(n: int, dtype) -> tuple[jax.Array, jax.Array]:
    """Positive definite matrices and vectors of environments."""
    rng = np.random.default_rng(n)
    factor = rng.normal(size=(NUM, n, n)) / np.sqrt(n)
    return jnp.asarray(factor @ factor.swapaxes(1, 2) + np.eye(n), dtype), jnp.asarray(rng.normal(size=(NUM, n)), dtype)


def solution(matrix, b) -> list:
    factor = Cholesky(matrix)
    return [factor.solve(b), factor.pivot]


def of_bodies(n: int, dtype) -> tuple[jax.Array, jax.Array]:
    """Positive definite matrices of bodies with six rows each, of which other ones touch in each environment, and vectors."""
    rng = np.random.default_rng(n)
    matrix = np.zeros((NUM, n, n))
    for environment in matrix:
        touching = [(first, first + 2) for first in rng.choice(n // 6 - 2, 2)]
        pairs = [(i, i) for i in range(n // 6)] + touching
        for pair in pairs:
            rows = np.zeros((6, n))
            for body in pair:
                rows[:, 6 * body : 6 * body + 6] = rng.normal(size=(6, 6))
            environment += rows.T @ rows + np.diag((rows != 0).any(0).astype(float))
    return jnp.asarray(matrix, dtype), jnp.asarray(rng.normal(size=(NUM, n)), dtype)


def filled_groups(matrix) -> np.ndarray:
    """Which groups of rows and columns of the Cholesky factor are not zero, if none is by chance. The last row is eliminated first."""
    n = len(matrix)
    size, m = group_size(n), padded(n)
    nonzero = np.eye(m, dtype=bool)
    nonzero[:n, :n] |= matrix[::-1, ::-1] != 0
    groups = nonzero.reshape(m // size, size, m // size, size).any((1, 3))
    for k in range(len(groups)):
        groups[k + 1 :, k + 1 :] |= groups[k + 1 :, k, None] & groups[k + 1 :, k]
    return np.tril(groups, -1)


def bits(masks) -> np.ndarray:
    """The bits of integers, as booleans along a second axis."""
    return (np.asarray(masks)[:, None] >> np.arange(len(masks)) & 1).astype(bool)


def of_one(function, *arguments) -> Function:
    """The compiled function, of environments with such arguments."""
    return Function(function, [jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in arguments], "test")


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_solution(n, dtype, x64):
    arguments = positive(n, dtype)
    function = of_one(solution, *arguments)
    x, usable = function(arguments, (True, True))
    wanted = np.linalg.solve(np.asarray(arguments[0], float), np.asarray(arguments[1], float)[..., None])[..., 0]
    np.testing.assert_allclose(x, wanted, atol={np.float32: 3e-6, np.float64: 1e-14}[dtype])
    assert (usable == 1).all()
    assert function.summary((True, True)).operations < 600  # it does not depend on the size


@pytest.mark.parametrize("n", [36, 42, 132])
def test_zeros(n, x64):
    """Only groups are computed that some environment of the block needs. Those of each are found with the factor."""
    matrix, b = of_bodies(n, np.float64)

    def function(matrix, b):
        factor = Cholesky(matrix, fixed_zeros=False)
        return [factor.solve(b), *factor.factor[2:]]

    compiled = of_one(function, matrix, b)
    x, rows, columns = compiled((matrix, b), (True, True))
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b[..., None])[..., 0], rtol=1e-8)
    lanes, magnitude = compiled.lanes((True, True), NUM), np.abs(np.asarray(matrix))
    for k in range(NUM):
        block = k // lanes * lanes
        wanted = filled_groups(magnitude[block : block + lanes].max(0))
        assert 0 < wanted.sum() < len(wanted) * (len(wanted) - 1) / 2
        np.testing.assert_array_equal(bits(rows[k]), wanted)
        np.testing.assert_array_equal(bits(columns[k]), wanted.T)
        alone, rows_alone, _ = compiled((matrix[k : k + 1], b[k : k + 1]), (True, True))
        np.testing.assert_array_equal(alone[0], x[k])
        np.testing.assert_array_equal(bits(rows_alone[0]), filled_groups(matrix[k]))


def test_environment_that_is_not_finite(x64):
    """It leaves the others as they are."""
    matrix, b = of_bodies(24, np.float64)

    def function(matrix, b):
        return [Cholesky(matrix, fixed_zeros=False).solve(b)]

    compiled = of_one(function, matrix, b)
    (wanted,) = compiled((matrix, b), (True, True))
    (found,) = compiled((matrix.at[2, 20:, 3].set(jnp.nan).at[2, 3, 20:].set(jnp.nan), b), (True, True))
    assert jnp.isnan(found[2]).any()
    np.testing.assert_array_equal(np.delete(found, 2, 0), np.delete(wanted, 2, 0))


def test_pattern_by_xla():
    """XLA factors the matrix as one without zeros."""
    for n in (36, 132):
        *_, rows, columns, _ = FACTOR.bind(jnp.eye(n), eps=1e-6)
        every = np.tril(np.ones((len(rows), len(rows)), bool), -1)
        np.testing.assert_array_equal(bits(rows), every)
        np.testing.assert_array_equal(bits(columns), every.T)


def test_motion_without_inertia(x64):
    """A pivot that is zero to rounding is replaced by 1. The others are not changed by it."""
    n = SIZES[0]
    matrix, b = positive(n, np.float64)
    matrix = matrix.at[1:, n - 3].set(0.0).at[1:, :, n - 3].set(0.0)
    x, usable = of_one(solution, matrix, b)((matrix, b), (True, True))
    assert usable.tolist() == [1.0] + [0.0] * (NUM - 1)
    rest = np.delete(np.arange(n), n - 3)
    wanted = np.linalg.solve(np.asarray(matrix)[:, rest][:, :, rest], np.asarray(b)[:, rest, None])[..., 0]
    np.testing.assert_allclose(x[1:, rest], wanted[1:], rtol=1e-10)


@pytest.mark.parametrize("mode", ["reverse", "forward"])
def test_derivatives(mode, x64):
    """Those of the solution in the matrix and the vector."""
    matrix, b = positive(SIZES[0], np.float64)
    function = of_one(solution, matrix, b)
    rng = np.random.default_rng(0)
    d_matrix, d_b, weight = (rng.normal(size=x.shape) for x in (matrix, b, b))
    d_matrix = d_matrix + d_matrix.swapaxes(1, 2)

    def output(matrix, b):
        return jnp.sum(function((matrix, b), (True, True))[0] * weight)

    if mode == "reverse":
        found = sum(jnp.sum(g * d) for g, d in zip(jax.grad(output, (0, 1))(matrix, b), (d_matrix, d_b), strict=True))
    else:
        _, found = jax.jvp(output, (matrix, b), (d_matrix, d_b))
    solve = np.linalg.solve(matrix, np.asarray(b)[..., None])
    change = np.linalg.solve(matrix, d_b[..., None] - d_matrix @ solve)[..., 0]
    np.testing.assert_allclose(found, np.sum(change * weight), rtol=1e-10)


def test_several_right_sides(x64):
    """`jax.vmap` of a solution, as with the rows of hard constraints."""
    matrix, b = positive(SIZES[1], np.float64)
    several = jnp.stack([b, 2 * b, b[::-1]], 2)

    def function(matrix, b):
        return [jax.vmap(Cholesky(matrix).solve, 1, 1)(b)]

    (found,) = of_one(function, matrix, several)((matrix, several), (True, True))
    np.testing.assert_allclose(found, np.linalg.solve(matrix, several), rtol=1e-10)


@pytest.mark.parametrize("is_counted", [False, True])
def test_sum_of_products(is_counted, x64):
    n = MAX_UNROLLED
    rng = np.random.default_rng(n)
    left, counts = jnp.asarray(rng.normal(size=(NUM, 6, n))), jnp.arange(NUM) if is_counted else jnp.full(NUM, 6)
    scale = jnp.where(jnp.arange(6) < counts[:, None], rng.uniform(size=(NUM, 6)), 0.0)

    def function(left, scale, count):
        return [sum_of_products(left, left * scale[:, None], count if is_counted else None)]

    compiled = of_one(function, left, scale, counts)
    (found,) = compiled((left, scale, counts), (True, True, True))
    np.testing.assert_allclose(found, np.einsum("eki,ek,ekj->eij", left, scale, left), atol=1e-13)
    assert compiled.summary((True, True, True)).operations < 3 * n * (n + 9)  # one triangle, three terms at a time


@pytest.fixture(scope="module")
def springs():
    """A body with 36 sliding masses, of which the first two are coupled; 42 velocities."""
    slide = "<body><joint name='s{}' type='slide' axis='{} 1 {}' range='-0.01 0.02'/><geom size='0.02' mass='0.1' contype='0'/></body>"
    slides = "".join(slide.format(i, i % 3, i % 5) for i in range(36))
    text = f"""<mujoco><worldbody><body><freejoint/><geom size="0.1"/>{slides}</body></worldbody>
      <equality><joint joint1="s0" joint2="s1"/></equality></mujoco>"""
    with jax.enable_x64(True):
        return xsim.loads(text, "mjcf")


@pytest.mark.slow
def test_steps(springs, x64):
    """The equation of motion is solved, and derivatives are those of differences."""
    rng = np.random.default_rng(0)
    state, direction = xsim.init(springs, v=rng.normal(0, 0.3, (2, springs.nv))), rng.normal(size=(2, springs.nv))

    @jax.jit
    def loss(v):
        end = xsim.rollout(springs, state.replace(v=v), steps=3)[0]
        return jnp.sum(end.v**2) + jnp.sum(end.q**2), end.flags

    gradient, flags = jax.jit(jax.grad(loss, has_aux=True))(state.v)
    assert springs.nv > MAX_UNROLLED and (flags == 0).all()
    h = 1e-6
    wanted = (loss(state.v + h * direction)[0] - loss(state.v - h * direction)[0]) / (2 * h)
    np.testing.assert_allclose(jnp.sum(gradient * direction), wanted, rtol=1e-6)
