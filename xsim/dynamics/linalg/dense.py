"""Small dense matrices of components: arrays (rows, columns, lanes), or (rows, columns) where nothing differs between environments."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.layout import spread
from xsim.spatial import stage


def stacked(components: list, *like):
    """A vector (n, lanes) of components; like: trees whose components give the common shape and type."""
    return jnp.stack(spread(components, like))


def assembled(entries: dict, shape: tuple[int, int], *like):
    """A matrix of the components at (row, column); what is not named is zero."""
    place = np.zeros(shape, int)
    for i, where in enumerate(entries):
        place[where] = i + 1
    return stacked([0.0, *entries.values()], *like)[place]


UNROLLED = 40
"""Matrices up to this size are factored column by column in so many regions; larger ones in a loop, a small program whatever the size."""


class Cholesky:
    """Factor L of a symmetric positive definite matrix (n, n, lanes), L L^T.

    A pivot that is zero to rounding (a motion without inertia; less than ``slack`` roundings) is replaced by 1; ``pivot`` is 0 then.
    """

    def __init__(self, matrix, slack: float = 32.0):
        n, eps = len(matrix), slack * float(jnp.finfo(matrix.dtype).eps)
        self.columns: list | None = [] if n <= UNROLLED else None
        if self.columns is None:
            self.lower, self.inverse, self.pivot = _factored(matrix, eps)
            return
        self.pivot, rest = jnp.ones_like(matrix[0, 0]), matrix
        for k in range(n):
            *column, rest, self.pivot = _column(rest, matrix[k, k], self.pivot, eps)
            self.columns.append(column)

    def solve(self, b):
        """x with A x = b, (n, lanes)."""
        if self.columns is None:
            return _solved(self.lower, self.inverse, b)
        forth, x = [], b[:0]
        for own, inverse in self.columns:
            y, b = _forth(b, own, inverse)
            forth.append(y)
        for (own, inverse), y in zip(reversed(self.columns), reversed(forth), strict=True):
            x = _back(y, own, inverse, x)
        return x


@stage
def _column(rest, diagonal, pivot, eps: float):
    """Column of L below its diagonal, the inverse of that, what is left of the matrix."""
    square = rest[0, 0]
    usable = square > eps * jnp.abs(diagonal)
    inverse = 1.0 / jnp.sqrt(jnp.where(usable, square, 1.0))
    own = rest[1:, 0] * inverse
    return own, inverse, rest[1:, 1:] - own[:, None] * own[None], jnp.where(usable, pivot, 0.0)


@stage
def _forth(b, own, inverse):
    x = b[0] * inverse
    return x, b[1:] - own * x


@stage
def _back(y, own, inverse, x):
    y = y - pairwise_sum(own * x) if len(own) else y
    return jnp.concatenate([(y * inverse)[None], x])


def _factored(matrix, eps: float) -> tuple:
    """L below its diagonal, inverses of that, 1 where all pivots are usable."""
    place = jnp.arange(len(matrix)).reshape(len(matrix), *(1,) * (matrix.ndim - 2))

    def column(k, carry):
        rest, lower, inverse, pivot = carry
        square = rest[k, k]
        usable = square > eps * jnp.abs(matrix[k, k])
        once = 1.0 / jnp.sqrt(jnp.where(usable, square, 1.0))
        own = jnp.where(place > k, rest[k] * once, 0.0)
        return rest - own[:, None] * own[None], lower.at[k].set(own), inverse.at[k].set(once), jnp.where(usable, pivot, 0.0)

    start = matrix, jnp.zeros_like(matrix), jnp.zeros_like(matrix[0]), jnp.ones_like(matrix[0, 0])
    return jax.lax.fori_loop(0, len(matrix), column, start)[1:]


def _solved(lower, inverse, b):
    n = len(b)

    def forth(k, x):
        top = x[k] * inverse[k]
        return (x - lower[k] * top).at[k].set(top)

    def back(i, x):
        k = n - 1 - i
        return x.at[k].set((x[k] - (lower[k] * x).sum(0)) * inverse[k])

    return jax.lax.fori_loop(0, n, back, jax.lax.fori_loop(0, n, forth, b))


def tree_sum(terms: Iterable):
    """Sum of arrays, written out: XLA's sums along leading axes are not vectorized on CPU."""
    terms = list(terms)
    while len(terms) > 1:
        terms = [terms[i] + terms[i + 1] if i + 1 < len(terms) else terms[i] for i in range(0, len(terms), 2)]
    return terms[0]


class Bordered:
    """Solutions of H x - J^T y = b, -J x = c: H (n, n, lanes) symmetric positive definite, J (m, n, lanes), None for no rows.

    Rows of J that depend on those before them get no multiplier of their own to speak of (their pivot is zero to rounding)."""

    def __init__(self, matrix, rows=None):
        self.matrix, self.rows = matrix, rows
        self.factor = Cholesky(matrix)
        if rows is not None:
            self.moved = jax.vmap(self.factor.solve, 1, 1)(jnp.swapaxes(rows, 0, 1))  # H^-1 J^T, (n, m, lanes)
            products = (row[:, None] * w[None] for row, w in zip(jnp.swapaxes(rows, 0, 1), self.moved, strict=True))
            self.schur = Cholesky(tree_sum(products), 1e3)

    def solve(self, b, c=None):
        """x and y (None without rows)."""
        x = self.factor.solve(b)
        if self.rows is None:
            return x, None
        y = -self.schur.solve(c + times(self.rows, x))
        return x + times(self.moved, y), y

    def multiply(self, x, y=None):
        """H x - J^T y and -J x."""
        out = times(self.matrix, x)
        return (out, None) if self.rows is None else (out - transposed_times(self.rows, y), -times(self.rows, x))


def transposed_times(rows, y):
    """J^T y."""
    return tree_sum([row * z[None] for row, z in zip(rows, y, strict=True)])


def fit(x, lanes: tuple[int, ...]):
    """An array (..., lanes or 1) as (..., *lanes)."""
    return jnp.broadcast_to(x, (*x.shape[:-1], *lanes)) if lanes else x[..., 0]


def pairwise_sum(x):
    """Sum along the first axis, by halves."""
    return _by_halves(operator.add, x)


def _by_halves(combine, x):
    while len(x) > 1:
        half = len(x) // 2
        rest = x[2 * half :]
        x = combine(x[:half], x[half : 2 * half])
        x = jnp.concatenate([x, rest]) if len(rest) else x
    return x[0]


def every(x, axes: int = 1):
    """Whether all are true along the leading axes, by halves: as for sums, XLA's own reduction is not vectorized on CPU."""
    x = x.reshape(-1, *x.shape[axes:])
    return _by_halves(operator.and_, x) if len(x) else jnp.ones(x.shape[1:], bool)


def summed(term, n: int, count=None):
    """Sum of term(i) over i < n. count: a number known at run time after which all are zero (then it has no reverse mode).

    In a loop, a few terms at a time: a small program whatever n, and on CPU every operation in cache."""
    at_once = next(k for k in (12, 8, 6, 5, 4, 3, 2, 1) if n % k == 0)

    def some(i, total):
        return tree_sum([total, *(term(at_once * i + k) for k in range(at_once))])

    start = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(term, 0))
    return jax.lax.fori_loop(0, n // at_once if count is None else -(-count // at_once), some, start)


def times(matrix, x):
    """A x, (n, lanes)."""
    return tree_sum([matrix[:, k] * x[k][None] for k in range(len(x))])
