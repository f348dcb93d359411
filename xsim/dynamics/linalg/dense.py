"""Small dense matrices: arrays (rows, columns, lanes), or (rows, columns) if all environments have the same values."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.primitives import primitive_of
from xsim.compile.sparsity import group_size, padded
from xsim.dynamics.layout import outer, row_of, spread, take_rows
from xsim.spatial import add, in_one_environment, mul, stage, sub


def stacked(components: list, *like):
    """A vector (n, lanes) from components. like: trees of components that also determine the common shape and type."""
    return jnp.stack(spread(components, like))


def assembled(entries: dict, shape: tuple[int, int], *like):
    """A matrix from {(row, column): component}; the other entries are zero. like: as in `stacked`."""
    number = np.zeros(shape, int)
    for i, index in enumerate(entries):
        number[index] = i + 1
    return jnp.take(stacked([0.0, *entries.values()], *like), number, axis=0, mode="clip")


MAX_UNROLLED = 40
"""Largest matrix whose factorization is unrolled, one region per column. Larger ones use loops, which keep the program small; in the
program of one environment these are those of `xsim.compile.tiled`."""
MAX_UNROLLED_OF_CONTACTS = 20
"""The same in the program of one environment, if the state determines which entries are zero: the loops leave these out."""


def is_tiled(matrix, fixed_zeros: bool = True) -> bool:
    """Whether a matrix is factored in the memory of an environment. fixed_zeros: see `Cholesky`."""
    size = MAX_UNROLLED if fixed_zeros else MAX_UNROLLED_OF_CONTACTS
    return in_one_environment() and matrix.ndim == 2 and len(matrix) > size


class Cholesky:
    """Cholesky factor U of a symmetric positive definite matrix (n, n, lanes) = U U^T, U upper triangular.

    The last row is eliminated first: the mass matrix of a tree, whose links follow their parents, has no fill-in then (Featherstone, Rigid
    Body Dynamics Algorithms, 6.5), and operations with constant zeros are left out of compiled programs.

    A pivot below ``slack`` times the rounding error (a motion without inertia) is replaced by 1, and ``pivot`` is then 0.

    fixed_zeros: False if entries that are zero at some states are not known to be zero, as those of bodies that do not touch.
    """

    def __init__(self, matrix, slack: float = 32.0, fixed_zeros: bool = True):
        n, eps = len(matrix), slack * float(jnp.finfo(matrix.dtype).eps)
        self.is_tiled = is_tiled(matrix, fixed_zeros)
        self.columns: list | None = None if self.is_tiled or n > MAX_UNROLLED else []
        if self.columns is None:
            *self.factor, self.pivot = FACTOR.bind(matrix, eps=eps) if self.is_tiled else _factored(matrix, eps)
            return
        self.pivot, rest = jnp.ones_like(matrix[0, 0]), matrix
        for k in reversed(range(n)):
            *column, rest, self.pivot = _column(rest, matrix[k, k], self.pivot, eps)
            self.columns.append(column)

    def solve(self, b):
        """The solution x of A x = b (n, lanes)."""
        if self.columns is None:
            return SOLVE.bind(*self.factor, b)[0] if self.is_tiled else _solved(*self.factor, b)
        intermediate, x = [], b[:0]
        for column, inverse in self.columns:
            y, b = _upward_step(b, column, inverse)
            intermediate.append(y)
        for (column, inverse), y in zip(reversed(self.columns), reversed(intermediate), strict=True):
            x = _downward_step(y, column, inverse, x)
        return x


@stage
def _column(rest, diagonal, pivot, eps: float):
    """The last column of U above the diagonal, inverse of the diagonal entry, remaining matrix, pivot."""
    last = len(rest) - 1
    square = rest[last, last]
    usable = square > eps * jnp.abs(diagonal)
    inverse = 1.0 / jnp.sqrt(jnp.where(usable, square, 1.0))
    column = mul(rest[:last, last], inverse)
    return column, inverse, sub(rest[:last, :last], outer(column, column)), jnp.where(usable, pivot, 0.0)


@stage
def _upward_step(b, column, inverse):
    x = mul(b[-1], inverse)
    return x, sub(b[:-1], mul(column, x))


@stage
def _downward_step(y, column, inverse, x):
    y = sub(y, pairwise_sum(mul(column, x))) if len(column) else y
    return jnp.concatenate([x, mul(y, inverse)[None]])


def _factored(matrix, eps: float) -> tuple:
    """Rows of L^T right of the diagonal, inverses of the diagonal, and 1 if all pivots are usable."""
    index = jnp.arange(len(matrix)).reshape(len(matrix), *(1,) * (matrix.ndim - 2))

    def column(k, carry):
        rest, lower, inverse, pivot = carry
        square = rest[k, k]
        usable = square > eps * jnp.abs(matrix[k, k])
        inverse_k = 1.0 / jnp.sqrt(jnp.where(usable, square, 1.0))
        row = jnp.where(index > k, rest[k] * inverse_k, 0.0)
        return rest - row[:, None] * row[None], lower.at[k].set(row), inverse.at[k].set(inverse_k), jnp.where(usable, pivot, 0.0)

    start = matrix, jnp.zeros_like(matrix), jnp.zeros_like(matrix[0]), jnp.ones_like(matrix[0, 0])
    return jax.lax.fori_loop(0, len(matrix), column, start)[1:]


def _solved(lower, inverse, b):
    n = len(b)

    def forward(k, x):
        x_k = x[k] * inverse[k]
        return (x - lower[k] * x_k).at[k].set(x_k)

    def backward(i, x):
        k = n - 1 - i
        return x.at[k].set((x[k] - (lower[k] * x).sum(0)) * inverse[k])

    return jax.lax.fori_loop(0, n, backward, jax.lax.fori_loop(0, n, forward, b))


def _tiled_factor(matrix, *, eps: float) -> list:
    """`_factored`, as `xsim.compile.tiled.factored` gives it, with the pattern of a matrix without zeros."""
    n, m = len(matrix), padded(len(matrix))
    larger = jnp.eye(m, dtype=matrix.dtype).at[:n, :n].set(matrix[::-1, ::-1])
    lower, inverse, pivot = _factored(larger, eps)
    bit = np.uint64(1) << np.arange(m // group_size(n), dtype=np.uint64)
    rows, columns = bit - np.uint64(1), 2 * bit[-1] - 2 * bit
    return [lower.T.ravel(), inverse, *(jnp.asarray(x.astype(np.uint32).view(np.int32)) for x in (rows, columns)), pivot]


def _tiled_solution(factor, inverse, rows, columns, b) -> list:
    """`_solved`, with a factor of `_tiled_factor`, in which what is on the other side of the diagonal has no meaning."""
    m, n = len(inverse), len(b)
    return [_solved(jnp.tril(factor.reshape(m, m), -1).T, inverse, jnp.zeros(m, b.dtype).at[:n].set(b[::-1]))[:n][::-1]]


FACTOR, SOLVE = primitive_of("xsim_factor", _tiled_factor), primitive_of("xsim_solve", _tiled_solution)
"""Factorization of a large matrix and the solution of equations with it, of one environment."""


BLOCK_MAX = primitive_of("xsim_block_max", lambda count: [count])
"""The maximum of an integer over the environments that a program evaluates together, or the integer itself."""


def block_max(count):
    """A number of turns that suffices for all environments which are evaluated together. In programs a loop with it has no masks."""
    return BLOCK_MAX.bind(count)[0] if in_one_environment() else count


def tree_sum(terms: Iterable):
    """Sum of arrays in pairs. It is unrolled because XLA does not vectorize sums along leading axes on CPU."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [add(terms[i], terms[i + 1]) if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


class Bordered:
    """Solutions of H x - J^T y = b, -J x = c. H (n, n, lanes): symmetric positive definite. rows: J (m, n, lanes), None without.
    fixed_zeros: of H, see `Cholesky`.

    A row of J that depends on previous rows has a pivot that is zero to rounding; its multiplier is negligible."""

    def __init__(self, matrix, rows=None, fixed_zeros: bool = True):
        self.matrix, self.rows = matrix, rows
        self.factor = Cholesky(matrix, fixed_zeros=fixed_zeros)
        if rows is not None:
            self.inverse_jt = jax.vmap(self.factor.solve, 1, 1)(jnp.swapaxes(rows, 0, 1))  # H^-1 J^T (n, m, lanes)
            products = (row[:, None] * w[None] for row, w in zip(jnp.swapaxes(rows, 0, 1), self.inverse_jt, strict=True))
            self.schur = Cholesky(tree_sum(products), 1e3)

    def solve(self, b, c=None):
        """The solution x and y (None without rows)."""
        x = self.factor.solve(b)
        if self.rows is None:
            return x, None
        y = -self.schur.solve(c + times(self.rows, x))
        return x + times(self.inverse_jt, y), y

    def multiply(self, x, y=None):
        """H x - J^T y and -J x."""
        out = times(self.matrix, x)
        return (out, None) if self.rows is None else (out - transposed_times(self.rows, y), -times(self.rows, x))


def transposed_times(rows, y):
    """J^T y."""
    if in_one_environment() and rows.ndim == 2:
        return jnp.dot(y, rows, precision=jax.lax.Precision.HIGHEST)
    return tree_sum([row * z[None] for row, z in zip(rows, y, strict=True)])


def fit(x, lanes: tuple[int, ...]):
    """An array (..., lanes or 1) broadcast to (..., *lanes)."""
    return jnp.broadcast_to(x, (*x.shape[:-1], *lanes)) if lanes else x[..., 0]


def summed_products(first, second):
    """The sum over i of first_i second_i^T (m, n, lanes or 1), of arrays (k, m, lanes or 1) and (k, n, lanes or 1)."""
    width = max(first.shape[-1], second.shape[-1])
    first, second = (jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (first, second))
    return jnp.einsum("kml,knl->mnl", first, second, precision=jax.lax.Precision.HIGHEST)


def pairwise_sum(x):
    """Sum along the first axis, in pairs."""
    return _by_halves(jax.lax.add, x)


def _by_halves(combine, x):
    while len(x) > 1:
        half, odd = divmod(len(x), 2)
        first, second, *rest = jax.lax.split(x, (half, half, 1)[: 2 + odd])
        x = combine(first, second)
        x = jax.lax.concatenate([x, *rest], 0) if rest else x
    return x[0]


def every(x, axes: int = 1):
    """Whether all entries along the leading axes are true. In pairs, because XLA does not vectorize this reduction on CPU."""
    x = x.reshape(-1, *x.shape[axes:])
    return _by_halves(jax.lax.bitwise_and, x) if len(x) else jnp.ones(x.shape[1:], bool)


def loop_sum(term, n: int, count=None):
    """Sum of term(i) over i < n. count: number of terms known at run time, the terms after it are zero; reverse mode needs None.

    A loop over a few terms at a time: the size of the program does not depend on n. XLA keeps the operands of more of them in cache."""
    at_once = next(k for k in ((4, 3, 2, 1) if in_one_environment() else (12, 8, 6, 5, 4, 3, 2, 1)) if n % k == 0)

    def add_terms(i, total):
        return tree_sum([total, *(term(at_once * i + k) for k in range(at_once))])

    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(term, 0))
    return jax.lax.fori_loop(0, n // at_once if count is None else -(-count // at_once), add_terms, start)


def sum_of_products(left, right, count=None):
    """The symmetric matrix sum_i left_i right_i^T over i < count (n, n, lanes), of arrays (k, n, lanes). count: see `loop_sum`.

    In the program of one environment, only one triangle is computed."""
    if not in_one_environment():
        return loop_sum(lambda i: outer(row_of(left, i), row_of(right, i)), len(left), count)
    n = left.shape[1]
    rows, columns = np.tril_indices(n)
    triangle = loop_sum(lambda i: take_rows(row_of(left, i), rows) * take_rows(row_of(right, i), columns), len(left), count)
    return of_triangle(triangle, n)


def of_triangle(triangle, n: int):
    """The symmetric matrix (n, n, ...) of the entries of its lower triangle, one row after the other (n (n + 1) / 2, ...)."""
    rows, columns = np.tril_indices(n)
    number = np.zeros((n, n), int)
    number[rows, columns] = number[columns, rows] = np.arange(len(rows))
    return jnp.take(triangle, number, axis=0, mode="clip")


def times(matrix, x):
    """A x, (n, lanes)."""
    if in_one_environment() and matrix.ndim == 2:
        return jnp.dot(matrix, x, precision=jax.lax.Precision.HIGHEST)
    return tree_sum([mul(column, entry[None]) for column, entry in zip(jnp.unstack(matrix, axis=1), x, strict=True)])
