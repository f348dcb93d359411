"""Linear equations with the sparsity of the mass matrix but without its symmetry (fully implicit integration)."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.spatial import mul, neg, stage, total


class Unsymmetric:
    """Solutions of A x = b and of A^T x = b, A given as {(row, column): component} for pairs of dofs on one branch.

    Eliminated from the leaves to the roots, where nothing fills in. ``rows``, ``solve``, ``multiply`` are those of `solve.Saddle`
    without constraints.
    """

    symmetric = False

    def __init__(self, system: System, entries: dict):
        self.system, self.entries = system, entries
        self.rows = [None] * len(system.tables.before)
        self.eliminated = dict(entries)
        a, before = self.eliminated, system.tables.before
        for k in reversed(range(len(before))):
            for i in before[k]:
                share = a[i, k] / a[k, k]
                for j in before[k]:
                    a[i, j] = _less(a[i, j], share, a[k, j])

    def solve(self, b: list, c=(), *, transposed: bool = False) -> list:
        a, before, n = self.eliminated, self.system.tables.before, len(b)
        x = list(b)
        for k in reversed(range(n)):
            for i in before[k]:
                x[i] = _less(x[i], (a[k, i] if transposed else a[i, k]) / a[k, k], x[k])
        for k in range(n):
            above = [mul(a[j, k] if transposed else a[k, j], x[j]) for j in before[k]]
            x[k] = total([x[k], *(neg(y) for y in above)]) / a[k, k]
        return x

    def multiply(self, x: list) -> list:
        before, after = self.system.tables.before, self.system.tables.after
        return [total([mul(self.entries[i, j], x[j]) for j in (*before[i], i, *after[i])]) for i in range(len(x))]


@stage
def _less(x, share, y):
    return x - jnp.asarray(share) * y
