"""Matrices of the equation of motion under soft constraints."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.linalg.dense import Bordered
from xsim.dynamics.linalg.sparse import factorize, multiply, solve
from xsim.dynamics.linalg.unsymmetric import Unsymmetric
from xsim.dynamics.tree.system import System


class NewtonMatrix:
    """The matrix H = M + J^T P'' J, with the second derivatives P'' of the potentials of soft constraints, bordered by hard rows.

    ``rows``, ``solve`` and ``multiply`` are those of `sparse.Saddle`. fixed_zeros: see `Cholesky`."""

    symmetric = True

    def __init__(self, matrix, hard=None, fixed_zeros: bool = True):
        self.rows = [None] * len(matrix)
        self.bordered = Bordered(matrix, hard, fixed_zeros)

    def solve(self, b: list, c: list) -> list:
        return _listed(*self.bordered.solve(jnp.stack(b), jnp.stack(c) if c else None))

    def multiply(self, x: list) -> list:
        n = len(self.rows)
        return _listed(*self.bordered.multiply(jnp.stack(x[:n]), jnp.stack(x[n:]) if x[n:] else None))


def _listed(x, y) -> list:
    return [*x] if y is None else [*x, *y]


class StagedMatrix:
    """The equations H a = b and S a' - M a = c.

    a is the acceleration under soft constraints, a' the acceleration after the implicit terms. first: H, None where only `solve_second` is
    used. mass: M, second: S. M, and S if it is symmetric, are rows with the sparsity of the tree."""

    symmetric = False

    def __init__(self, system: System, first: NewtonMatrix | None, mass: list, second):
        self.system, self.first, self.mass, self.second = system, first, mass, second
        self.rows = mass
        self.factor = None if isinstance(second, Unsymmetric) else factorize(system, second)

    def solve(self, b: list, c: list, *, transposed: bool = False) -> list:
        assert self.first is not None
        if transposed:
            second = self.solve_second(c, transposed)
            return [*self.first.solve(_sum(b, multiply(self.system, self.mass, second)), []), *second]
        first = self.first.solve(b, [])
        return [*first, *self.solve_second(_sum(c, multiply(self.system, self.mass, first)))]

    def solve_second(self, b: list, transposed: bool = False) -> list:
        """x with S x = b."""
        if self.factor is None:
            return self.second.solve(b, transposed=transposed)
        return solve(self.system, self.factor, b)

    def multiply(self, x: list) -> list:
        assert self.first is not None
        n = len(self.rows)
        first, second = x[:n], x[n:]
        product = self.second.multiply(second) if self.factor is None else multiply(self.system, self.second, second)
        return [*self.first.multiply(first), *(a - b for a, b in zip(product, multiply(self.system, self.mass, first), strict=True))]


def _sum(a: list, b: list) -> list:
    return [x + y for x, y in zip(a, b, strict=True)]
