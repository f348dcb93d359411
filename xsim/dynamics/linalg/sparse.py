"""Linear equations with the sparsity of the tree, and solutions with the derivatives of the implicit function.

M = L^T D L keeps the sparsity of the tree (Featherstone 2008, section 6.5): row i of the factor has entries for the dofs that
move dof i only.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg, stage, sub, total


class Factor(NamedTuple):
    """t[i][n]: entry of row i for the n-th dof of before[i]; inverse[i]: 1 / D_i; pivot: smallest D_i / M_ii."""

    t: list
    inverse: list
    pivot: object


@stage
def _eliminate(row, below):
    """Row i of M minus what the dofs below have eliminated; below: (row k of D L up to i, t_ki) per dof k that i moves."""
    return [total([m, *(neg(mul(ld[n], t)) for ld, t in below)]) for n, m in enumerate(row)]


@stage
def _invert(row, diagonal):
    pivot = jnp.asarray(row[-1])  # a number, of a model that is frozen
    usable = pivot > _tolerance(pivot.dtype) * jnp.abs(diagonal)
    inverse = 1.0 / jnp.where(usable, pivot, 1.0)
    return [mul(x, inverse) for x in row[:-1]], inverse, jnp.where(usable, 1.0, 0.0).astype(pivot.dtype)


def _tolerance(dtype) -> float:
    return 32 * float(jnp.finfo(dtype).eps)


def factorize(system: System, rows) -> Factor:
    """Factor a symmetric matrix given by the rows of `mass_matrix`.

    A pivot that is zero to rounding (a motion without inertia) is replaced by 1, which keeps everything finite; ``pivot`` is 0 then.
    """
    before, after = system.tables.before, system.tables.after
    n = len(rows)
    place = [{j: k for k, j in enumerate((*before[i], i))} for i in range(n)]
    eliminated: list = [None] * n
    t: list = [None] * n
    inverse: list = [None] * n
    usable: list = [None] * n
    for i in reversed(range(n)):
        below = [(eliminated[k][: place[k][i] + 1], t[k][place[k][i]]) for k in after[i]]
        eliminated[i] = _eliminate(rows[i], below) if below else rows[i]
        t[i], inverse[i], usable[i] = _invert(eliminated[i], rows[i][-1])
    pivot = usable[0] if n else 1.0
    for u in usable[1:]:
        pivot = jnp.minimum(pivot, u)
    return Factor(t, inverse, pivot)


@stage
def _back(x, below):
    return total([x, *(neg(mul(t, y)) for t, y in below)])


@stage
def _forth(x, inverse, above):
    return total([mul(x, inverse), *(neg(mul(t, y)) for t, y in above)])


def solve(system: System, factor: Factor, b) -> list:
    """x with M x = b."""
    before, after = system.tables.before, system.tables.after
    n = len(b)
    place = [{j: k for k, j in enumerate(before[i])} for i in range(n)]
    x: list = list(b)
    for i in reversed(range(n)):
        if after[i]:
            x[i] = _back(b[i], [(factor.t[k][place[k][i]], x[k]) for k in after[i]])
    out: list = [None] * n
    for i in range(n):
        out[i] = _forth(x[i], factor.inverse[i], [(factor.t[i][k], out[j]) for k, j in enumerate(before[i])])
    return out


@stage
def _diagonal(row, terms):
    return [*row[:-1], total([row[-1], *terms])]


def with_quadratic(system: System, rows, quadratics) -> list:
    """Rows of M plus factor times quadratic for each (factor, Quadratic) in ``quadratics``."""
    before = system.tables.before
    out = []
    for i, row in enumerate(rows):
        new = list(row)
        for factor, quad in quadratics:
            for k, j in enumerate(before[i]):
                if (i, j) in quad.blocks:
                    new[k] = add(new[k], mul(factor, quad.blocks[i, j]))
        terms = [mul(f, add(quad.diagonal[i], quad.blocks.get((i, i), 0.0))) for f, quad in quadratics]
        out.append(_diagonal(new, terms))
    return out


def multiply(system: System, rows, x) -> list:
    """M x."""
    before, after = system.tables.before, system.tables.after
    place = [{j: k for k, j in enumerate((*before[i], i))} for i in range(len(rows))]
    return [
        total([*(mul(rows[i][place[i][j]], x[j]) for j in (*before[i], i)), *(mul(rows[k][place[k][i]], x[k]) for k in after[i])])
        for i in range(len(rows))
    ]


# ---- implicit equations -------------------------------------------------------------------------------------------------------


def masked(system: System, rows, keep) -> list:
    """Rows of the matrix for the dofs that are free: keep[i] is 1 for a free dof, 0 for one whose value is given (a row of unity)."""
    before = system.tables.before
    return [_masked_row(row, (*(keep[j] for j in before[i]), keep[i])) for i, row in enumerate(rows)]


@stage
def _masked_row(row, keep):
    *others, own = keep
    return [*(mul(mul(m, own), k) for m, k in zip(row[:-1], others, strict=True)), add(mul(row[-1], own), sub(1.0, own))]


def restricted(jacobian: list, keep) -> list:
    """J with the columns of the dofs that are not free left out (keep as in `masked`)."""
    return [[(dof, mul(c, keep[dof])) for dof, c in row] for row in jacobian]


class Saddle:
    """Solutions (x, y) of (M + R^T G R) x - J^T y = b, -J x = c: M sparse and symmetric, J and R few rows over the dofs as
    [(dof, coefficient), ...], G >= 0 diagonal. ``soft``: (row of R, its G).

    Rows of J that depend on the others get no multiplier of their own (their pivot is zero to rounding). The soft rows are eliminated
    like those of J, as sqrt(G) R with 1 on their diagonal (Woodbury), which stays well conditioned from G = 0 to any stiffness.
    """

    symmetric = True

    def __init__(self, system: System, rows, jacobian: list, soft: Sequence = ()):
        self.system, self.rows, self.jacobian, self.soft = system, rows, jacobian, soft
        self.factor = factorize(system, rows)
        self.all = [*jacobian, *(_scaled_row(row, g) for row, g in soft)]
        zero = rows[0][0] * 0.0 if rows else 0.0
        self.moved = []  # M^-1 J^T, per row of J and of sqrt(G) R
        for row in self.all:
            column = [zero] * len(rows)
            for dof, coefficient in row:
                column[dof] = column[dof] + coefficient
            self.moved.append(solve(system, self.factor, column))
        self.schur = [[row_times(row, w) for w in self.moved[: i + 1]] for i, row in enumerate(self.all)]
        for i in range(len(jacobian), len(self.all)):
            self.schur[i][i] = add(self.schur[i][i], 1.0)
        self.lower, self.inverse = _ldl(self.schur, len(jacobian))

    def solve(self, b: list, c: list) -> list:
        """x followed by y."""
        x = solve(self.system, self.factor, b)
        if not self.all:
            return x
        gap = [add(g, row_times(row, x)) for g, row in zip([*c, *([0.0] * len(self.soft))], self.all, strict=True)]
        y = [neg(z) for z in _ldl_solve(self.lower, self.inverse, gap)]
        return [*_shifted(x, self.moved, y), *y[: len(self.jacobian)]]

    def multiply(self, x: list) -> list:
        """((M + R^T G R) x - J^T y, -J x) of x followed by y."""
        n = len(self.rows)
        force = minus_jt_times(multiply(self.system, self.rows, x[:n]), self.jacobian, x[n:])
        force = minus_jt_times(force, [row for row, _ in self.soft], [neg(mul(g, row_times(row, x))) for row, g in self.soft])
        return [*force, *(neg(row_times(r, x)) for r in self.jacobian)]


@stage
def _scaled_row(row, g):
    some = g > 0
    root = jnp.where(some, jnp.sqrt(jnp.where(some, g, 1.0)), 0.0)
    return [(dof, mul(root, coefficient)) for dof, coefficient in row]


@stage
def row_times(row, x):
    return total([mul(coefficient, x[dof]) for dof, coefficient in row])


@stage
def _shifted(x, moved, y):
    return [total([a, *(mul(w[i], z) for w, z in zip(moved, y, strict=True))]) for i, a in enumerate(x)]


def minus_jt_times(force: list, jacobian: list, y) -> list:
    """force - J^T y."""
    out = list(force)
    for row, z in zip(jacobian, y, strict=True):
        for dof, coefficient in row:
            out[dof] = sub(out[dof], mul(coefficient, z))
    return out


def _ldl(a, hard: int):
    """Factor a small dense positive semidefinite matrix given by its lower triangle: unit lower triangle, inverse pivots (0 for a
    zero pivot: a row that depends on those before it, or is nothing but rounding beside the largest). Rows after the first ``hard``
    have pivots of 1 or more."""
    lower, pivots, inverse = [], [], []
    diagonal = [a[i][i] for i in range(hard) if not isinstance(a[i][i], float)]
    largest = functools.reduce(jnp.maximum, diagonal) if diagonal else 0.0
    for i, row in enumerate(a):
        for kept, new in zip((lower, pivots, inverse), _ldl_row(row, lower, pivots, inverse, largest, i < hard), strict=True):
            kept.append(new)
    return lower, inverse


@stage
def _ldl_row(a, lower, pivots, inverse, largest, hard: bool):
    """Row of the unit lower triangle, pivot, its inverse."""
    row: list = []
    for j in range(len(a) - 1):
        row.append(mul(sub(a[j], total([mul(mul(row[k], lower[j][k]), pivots[k]) for k in range(j)])), inverse[j]))
    pivot = sub(a[-1], total([mul(mul(x, x), p) for x, p in zip(row, pivots, strict=True)]))
    if isinstance(pivot, float):  # a row without a coefficient
        return row, pivot, 0.0
    if not hard:
        return row, pivot, 1.0 / pivot
    eps = float(jnp.finfo(pivot.dtype).eps)
    usable = pivot > jnp.maximum(1e3 * eps * a[-1], eps**1.5 * largest)
    return row, pivot, jnp.where(usable, 1.0 / jnp.where(usable, pivot, 1.0), 0.0)


def _ldl_solve(lower, inverse, b):
    n, z = len(b), []
    for i in range(n):
        z.append(_less(b[i], lower[i], z))
    y: list = _scaled(z, inverse)
    for i in reversed(range(n)):
        y[i] = _less(y[i], [lower[k][i] for k in range(i + 1, n)], y[i + 1 :])
    return y


@stage
def _less(b, row, x):
    return sub(b, total([mul(c, y) for c, y in zip(row, x, strict=True)]))


@stage
def _scaled(x, factors):
    return [mul(a, f) for a, f in zip(x, factors, strict=True)]


class Quadratic(NamedTuple):
    """A symmetric matrix over the dofs: a diagonal and blocks of dofs whose law acts along other axes than their velocities."""

    diagonal: list
    blocks: dict  # (row, column) -> component, both halves

    def times(self, x) -> list:
        out = [mul(d, a) for d, a in zip(self.diagonal, x, strict=True)]
        for i in {i for i, _ in self.blocks}:
            out[i] = total([out[i], *(mul(b, x[k]) for (r, k), b in self.blocks.items() if r == i)])
        return out
