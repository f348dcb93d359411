"""Linear equations with the sparsity of the kinematic tree.

The factors of M = L^T D L have the sparsity of the tree (Featherstone 2008, section 6.5): row i has entries only for the ancestors of
dof i. Long chains, such as cables, have dense factors.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.linalg.dense import MAX_UNROLLED, Cholesky, assembled, stacked
from xsim.dynamics.tree.system import System
from xsim.spatial import add, in_one_environment, mul, neg, stage, sub, total


class Factor(NamedTuple):
    """M = L^T D L.

    * t[i][n]: entry of row i of L for the n-th ancestor of dof i.
    * inverse[i]: 1 / D_i.
    * pivot: 0 if a pivot is zero to rounding, else 1.
    """

    t: list
    inverse: list
    pivot: object


@stage
def _eliminate(row, below):
    """Row i of M after the elimination of its descendants. below: (row k of D L up to column i, t_ki) per descendant k."""
    return [total([m, *(neg(mul(ld[n], t)) for ld, t in below)]) for n, m in enumerate(row)]


@stage
def _invert(row, diagonal):
    pivot = jnp.asarray(row[-1])  # a float in a model with frozen leaves
    usable = pivot > _tolerance(pivot.dtype) * jnp.abs(diagonal)
    inverse = 1.0 / jnp.where(usable, pivot, 1.0)
    return [mul(x, inverse) for x in row[:-1]], inverse, jnp.where(usable, 1.0, 0.0).astype(pivot.dtype)


def _tolerance(dtype) -> float:
    return 32 * float(jnp.finfo(dtype).eps)


def _has_dense_factors(ancestors: Sequence[Sequence[int]]) -> bool:
    """Whether the factorization of a large matrix has at least half of the products of that of a dense matrix, n^3 / 6."""
    products = sum(math.comb(len(before) + 1, 2) for before in ancestors)
    return len(ancestors) > MAX_UNROLLED and products > len(ancestors) ** 3 / 12


def factorize(system: System, rows) -> Factor | Cholesky:
    """Factor a symmetric matrix given by rows as those of `mass_matrix`.

    A pivot that is zero to rounding (a motion without inertia) is replaced by 1, so that all results are finite; ``pivot`` is then 0.
    In the program of one environment, factors that are nearly dense are those of the dense matrix.
    """
    ancestors, descendants = system.tables.ancestors, system.tables.descendants
    n = len(rows)
    if in_one_environment() and _has_dense_factors(ancestors):
        return Cholesky(dense(system, rows))
    column = [{j: k for k, j in enumerate((*ancestors[i], i))} for i in range(n)]
    eliminated: list = [None] * n
    t: list = [None] * n
    inverse: list = [None] * n
    usable: list = [None] * n
    for i in reversed(range(n)):
        below = [(eliminated[k][: column[k][i] + 1], t[k][column[k][i]]) for k in descendants[i]]
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


def dense(system: System, rows, *like):
    """The matrix (n, n, lanes) of rows as those of `mass_matrix`; (n, n) if all environments have the same. like: as in `stacked`."""
    entries = {}
    for i, row in enumerate(rows):
        for j, x in zip((*system.tables.ancestors[i], i), row, strict=True):
            entries[i, j] = entries[j, i] = x
    return assembled(entries, (len(rows), len(rows)), rows, like)


def solve(system: System, factor: Factor | Cholesky, b) -> list:
    """x with M x = b."""
    if isinstance(factor, Cholesky):
        return list(factor.solve(stacked(list(b), factor.pivot)))
    ancestors, descendants = system.tables.ancestors, system.tables.descendants
    n = len(b)
    column = [{j: k for k, j in enumerate(ancestors[i])} for i in range(n)]
    x: list = list(b)
    for i in reversed(range(n)):
        if descendants[i]:
            x[i] = _back(b[i], [(factor.t[k][column[k][i]], x[k]) for k in descendants[i]])
    out: list = [None] * n
    for i in range(n):
        out[i] = _forth(x[i], factor.inverse[i], [(factor.t[i][k], out[j]) for k, j in enumerate(ancestors[i])])
    return out


@stage
def _diagonal(row, terms):
    return [*row[:-1], total([row[-1], *terms])]


def with_quadratic(system: System, rows, quadratics) -> list:
    """Rows of M plus factor times matrix for each (factor, `Quadratic`) in quadratics."""
    ancestors = system.tables.ancestors
    out = []
    for i, row in enumerate(rows):
        new = list(row)
        for factor, quad in quadratics:
            for k, j in enumerate(ancestors[i]):
                if (i, j) in quad.blocks:
                    new[k] = add(new[k], mul(factor, quad.blocks[i, j]))
        terms = [mul(f, add(quad.diagonal[i], quad.blocks.get((i, i), 0.0))) for f, quad in quadratics]
        out.append(_diagonal(new, terms))
    return out


def multiply(system: System, rows, x) -> list:
    """M x."""
    ancestors, descendants = system.tables.ancestors, system.tables.descendants
    column = [{j: k for k, j in enumerate((*ancestors[i], i))} for i in range(len(rows))]
    out = []
    for i in range(len(rows)):
        lower = (mul(rows[i][column[i][j]], x[j]) for j in (*ancestors[i], i))
        upper = (mul(rows[k][column[k][i]], x[k]) for k in descendants[i])
        out.append(total([*lower, *upper]))
    return out


# ---- fixed dofs and constraints -----------------------------------------------------------------------------------------------


def masked(system: System, rows, free) -> list:
    """Rows of the matrix with rows and columns of the unit matrix for the fixed dofs. free[i]: 1 for a free dof, 0 for a fixed one."""
    ancestors = system.tables.ancestors
    return [_masked_row(row, (*(free[j] for j in ancestors[i]), free[i])) for i, row in enumerate(rows)]


@stage
def _masked_row(row, free):
    *free_ancestors, free_dof = free
    entries = [mul(mul(m, free_dof), k) for m, k in zip(row[:-1], free_ancestors, strict=True)]
    return [*entries, add(mul(row[-1], free_dof), sub(1.0, free_dof))]


def restricted(jacobian: list, free) -> list:
    """J with zero columns for the fixed dofs. free: as in `masked`."""
    return [[(dof, mul(c, free[dof])) for dof, c in row] for row in jacobian]


class Saddle:
    """Solutions (x, y) of (M + R^T G R) x - J^T y = b, -J x = c.

    * rows: of M, symmetric with the sparsity of the tree.
    * jacobian: rows of J, each [(dof, coefficient), ...].
    * soft: (row of R, G) pairs, G >= 0.

    A row of J that depends on previous rows has a pivot that is zero to rounding; its multiplier is 0. The rows of R are eliminated like
    those of J, as sqrt(G) R with an additional 1 on the diagonal (Woodbury). This is well conditioned for any G.
    """

    symmetric = True

    def __init__(self, system: System, rows, jacobian: list, soft: Sequence = ()):
        self.system, self.rows, self.jacobian, self.soft = system, rows, jacobian, soft
        self.factor = factorize(system, rows)
        self.all = [*jacobian, *(_scaled_row(row, g) for row, g in soft)]
        zero = rows[0][0] * 0.0 if rows else 0.0
        self.inverse_jt = []  # M^-1 J^T, one column per row of J and of sqrt(G) R
        for row in self.all:
            column = [zero] * len(rows)
            for dof, coefficient in row:
                column[dof] = column[dof] + coefficient
            self.inverse_jt.append(solve(system, self.factor, column))
        self.schur = [[row_times(row, w) for w in self.inverse_jt[: i + 1]] for i, row in enumerate(self.all)]
        for i in range(len(jacobian), len(self.all)):
            self.schur[i][i] = add(self.schur[i][i], 1.0)
        self.lower, self.inverse = _ldl(self.schur, len(jacobian))

    def solve(self, b: list, c: list) -> list:
        """The solution x followed by y."""
        x = solve(self.system, self.factor, b)
        if not self.all:
            return x
        error = [add(g, row_times(row, x)) for g, row in zip([*c, *([0.0] * len(self.soft))], self.all, strict=True)]
        y = [neg(z) for z in _ldl_solve(self.lower, self.inverse, error)]
        return [*_plus_combination(x, self.inverse_jt, y), *y[: len(self.jacobian)]]

    def multiply(self, x: list) -> list:
        """((M + R^T G R) x - J^T y, -J x) of x followed by y."""
        n = len(self.rows)
        force = minus_jt_times(multiply(self.system, self.rows, x[:n]), self.jacobian, x[n:])
        force = minus_jt_times(force, [row for row, _ in self.soft], [neg(mul(g, row_times(row, x))) for row, g in self.soft])
        return [*force, *(neg(row_times(r, x)) for r in self.jacobian)]


@stage
def _scaled_row(row, g):
    positive = g > 0
    root = jnp.where(positive, jnp.sqrt(jnp.where(positive, g, 1.0)), 0.0)
    return [(dof, mul(root, coefficient)) for dof, coefficient in row]


@stage
def row_times(row, x):
    """The product of a row [(dof, coefficient), ...] with x."""
    return total([mul(coefficient, x[dof]) for dof, coefficient in row])


@stage
def _plus_combination(x, columns, y):
    """x plus the linear combination of the columns with weights y."""
    return [total([a, *(mul(w[i], z) for w, z in zip(columns, y, strict=True))]) for i, a in enumerate(x)]


def minus_jt_times(force: list, jacobian: list, y) -> list:
    """force - J^T y."""
    out = list(force)
    for row, z in zip(jacobian, y, strict=True):
        for dof, coefficient in row:
            out[dof] = sub(out[dof], mul(coefficient, z))
    return out


def _ldl(a, hard: int):
    """Factor a small dense positive semidefinite matrix given by its lower triangle: unit lower triangle, inverse pivots.

    The inverse of a pivot that is zero to rounding is 0: such a row depends on the previous rows, or is negligible beside the largest. The
    rows after the first ``hard`` have pivots of at least 1."""
    lower, pivots, inverse = [], [], []
    diagonal = [a[i][i] for i in range(hard) if not isinstance(a[i][i], float)]
    largest = functools.reduce(jnp.maximum, diagonal) if diagonal else 0.0
    for i, row in enumerate(a):
        for factor, entry in zip((lower, pivots, inverse), _ldl_row(row, lower, pivots, inverse, largest, i < hard), strict=True):
            factor.append(entry)
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
        z.append(_minus_dot(b[i], lower[i], z))
    y: list = _scaled(z, inverse)
    for i in reversed(range(n)):
        y[i] = _minus_dot(y[i], [lower[k][i] for k in range(i + 1, n)], y[i + 1 :])
    return y


@stage
def _minus_dot(b, row, x):
    return sub(b, total([mul(c, y) for c, y in zip(row, x, strict=True)]))


@stage
def _scaled(x, factors):
    return [mul(a, f) for a, f in zip(x, factors, strict=True)]


class Quadratic(NamedTuple):
    """A symmetric matrix (nv, nv): its diagonal, and {(row, column): component} of the other entries, both triangles."""

    diagonal: list
    blocks: dict

    def times(self, x) -> list:
        """The product with x (nv)."""
        out = [mul(d, a) for d, a in zip(self.diagonal, x, strict=True)]
        for i in {i for i, _ in self.blocks}:
            out[i] = total([out[i], *(mul(b, x[k]) for (r, k), b in self.blocks.items() if r == i)])
        return out


def add_outer_product(system: System, out: Quadratic, row, factor) -> None:
    """Add factor row^T row, without entries between different branches."""
    if isinstance(factor, float) and factor == 0.0:
        return
    for i, x in row:
        out.diagonal[i] = add(out.diagonal[i], mul(factor, mul(x, x)))
        for j, y in row:
            if j in system.tables.ancestors[i]:
                add_pair(out, i, j, mul(factor, mul(x, y)))


@stage
def positive(x):
    """x where it is positive, else 0. The derivative at 0 is 1."""
    return max(x, 0.0) if isinstance(x, float) else jnp.where(x >= 0.0, x, 0.0)


def is_chain(system: System, row) -> bool:
    """Whether the dofs of a row [(dof, coefficient), ...] are on one branch of the tree, so that row^T row has the sparsity of M."""
    dofs = sorted(dof for dof, _ in row)
    return all(i in system.tables.ancestors[j] for i, j in itertools.pairwise(dofs))


def add_pair(out: Quadratic, i: int, j: int, x) -> None:
    """Add x to the entries (i, j) and (j, i)."""
    for index in ((i, j), (j, i)):
        out.blocks[index] = add(out.blocks[index], x) if index in out.blocks else x
