"""Linear equations with the sparsity of the mass matrix but without its symmetry, for fully implicit integration."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.spatial import mul, neg, stage, total


class Unsymmetric:
    """Solutions of A x = b and of A^T x = b. entries: {(row, column): component} for pairs of dofs on one branch.

    Elimination from the leaves to the roots creates no fill-in. ``rows``, ``solve`` and ``multiply`` are those of `sparse.Saddle` without
    constraints.
    """

    symmetric = False

    def __init__(self, system: System, entries: dict):
        self.system, self.entries = system, entries
        self.rows = [None] * len(system.tables.ancestors)
        self.eliminated = dict(entries)
        a, ancestors = self.eliminated, system.tables.ancestors
        for k in reversed(range(len(ancestors))):
            for i in ancestors[k]:
                factor = a[i, k] / a[k, k]
                for j in ancestors[k]:
                    a[i, j] = _minus_product(a[i, j], factor, a[k, j])

    def solve(self, b: list, c=(), *, transposed: bool = False) -> list:
        a, ancestors, n = self.eliminated, self.system.tables.ancestors, len(b)
        x = list(b)
        for k in reversed(range(n)):
            for i in ancestors[k]:
                x[i] = _minus_product(x[i], (a[k, i] if transposed else a[i, k]) / a[k, k], x[k])
        for k in range(n):
            above = [mul(a[j, k] if transposed else a[k, j], x[j]) for j in ancestors[k]]
            x[k] = total([x[k], *(neg(y) for y in above)]) / a[k, k]
        return x

    def multiply(self, x: list) -> list:
        ancestors, descendants = self.system.tables.ancestors, self.system.tables.descendants
        return [total([mul(self.entries[i, j], x[j]) for j in (*ancestors[i], i, *descendants[i])]) for i in range(len(x))]


@stage
def _minus_product(x, factor, y):
    return x - jnp.asarray(factor) * y
