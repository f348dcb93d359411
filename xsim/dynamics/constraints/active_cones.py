"""The cones of the active contacts in the program of one environment: what `Cones` computes, in loops over the contacts that are active.

The numbers of each contact are in memory. There is no axis of lanes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.bounded import bounded_map
from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.layout import row_of
from xsim.dynamics.linalg.assembly import Curvature, transposed_product
from xsim.dynamics.linalg.dense import of_triangle, tree_sum


class ActiveJacobian(NamedTuple):
    """The Jacobian of n contacts at most, of which the first ``count`` are active.

    J (n, d, k): its columns of k dofs. dofs: see `Curvature`. count: a number that suffices for all environments which are evaluated
    together. nv: number of columns of the whole Jacobian."""

    J: Any
    dofs: Any
    count: Any
    nv: int

    def sum(self, term: Callable, start) -> Any:
        """start + the sum of term(i), a tree of arrays, over the active contacts."""
        return jax.lax.fori_loop(0, self.count, lambda i, total: jax.tree.map(jnp.add, total, term(i)), start)

    def map(self, function: Callable) -> Any:
        """Arrays (n, ...) with the rows function(i) of the active contacts."""
        return bounded_map(function, len(self.J), self.count)

    def row_times(self, i, a):
        """J_i a (d), for a (nv)."""
        dofs = self.dofs if isinstance(self.dofs, np.ndarray) else row_of(self.dofs, i)
        columns = jnp.unstack(row_of(self.J, i), axis=1)
        return tree_sum([x * y for x, y in zip(columns, jnp.unstack(a[dofs]), strict=True)])

    def jt_times(self, f, of_magnitudes: bool = False):
        """J^T f (nv), for f (n, d). of_magnitudes: |J|^T |f|."""
        if not isinstance(self.dofs, np.ndarray):
            return transposed_product(self.J, f, self.dofs, self.count, self.nv, of_magnitudes)

        def term(i):
            terms = row_of(self.J, i) * row_of(f, i)[:, None]
            return tree_sum(jnp.abs(terms) if of_magnitudes else terms)

        return jnp.zeros(self.nv, f.dtype).at[self.dofs].add(self.sum(term, jnp.zeros(len(self.dofs), f.dtype)))

    def curvature(self, second: Callable):
        """The sum of J_i^T second(i) J_i (nv, nv). second(i): symmetric (d, d)."""
        rows, columns = np.tril_indices(len(self.dofs))

        def with_contact(i, triangle):
            J = row_of(self.J, i)
            products = jnp.dot(second(i), J, precision=jax.lax.Precision.HIGHEST)
            for x, y in zip(J, products, strict=True):  # one after the other: each is a product and a sum at once
                triangle = triangle + x[rows] * y[columns]
            return triangle

        triangle = jax.lax.fori_loop(0, self.count, with_contact, jnp.zeros(len(rows), self.J.dtype))
        whole = jnp.zeros((self.nv, self.nv), self.J.dtype)
        return whole.at[np.ix_(self.dofs, self.dofs)].set(of_triangle(triangle, len(self.dofs)))


class ActiveCones(NamedTuple):
    """See `Cones`: of n contacts at most, arrays without lanes."""

    elliptic: bool
    J: ActiveJacobian
    offset: Any
    stiffness: Any
    weight: Any
    pull: None = None

    def _one(self, i) -> Cones:
        """The cone of one contact, without its Jacobian."""
        offset, stiffness, weight = (row_of(x, i)[None] for x in (self.offset, self.stiffness, self.weight))
        return Cones(self.elliptic, None, offset, stiffness, weight)  # pyright: ignore[reportArgumentType]

    def j_times(self, a):
        """J a (n, d), for a (nv)."""
        return self.J.map(lambda i: self.J.row_times(i, a))

    def at(self, a):
        """J a + offset (n, d), for a (nv)."""
        return self.J.map(lambda i: self.J.row_times(i, a) + row_of(self.offset, i))

    def jt_times(self, f, count=None):
        """J^T f (nv). count: not used."""
        return self.J.jt_times(f)

    def jt_magnitudes(self, f, count=None):
        """|J|^T |f| (nv). count: not used."""
        return self.J.jt_times(f, of_magnitudes=True)

    def force(self, x):
        """The forces f (n, d) at x (n, d)."""
        return self.J.map(lambda i: self._one(i).force(row_of(x, i)[None])[0])

    def line(self, x, dx) -> Callable:
        """See `Cones.line`."""

        def line(alpha):
            zero = jnp.zeros((), x.dtype)
            return self.J.sum(lambda i: self._one(i).line(row_of(x, i)[None], row_of(dx, i)[None])(alpha), (zero, zero))

        return line

    def is_quadratic(self, x, dx):
        """See `Cones.is_quadratic`."""

        def test(i, passed):
            return passed & self._one(i).is_quadratic(row_of(x, i)[None], row_of(dx, i)[None])

        return jax.lax.fori_loop(0, self.J.count, test, jnp.ones((), bool))

    def _hessian(self, i, x):
        return self._one(i).hessian(row_of(x, i)[None])[0]

    def curvature(self, x, count=None):
        """J^T P'' J (nv, nv). count: not used."""
        return self.J.curvature(lambda i: self._hessian(i, x))

    def curvature_terms(self, x, count=None) -> list[Curvature]:
        """See `Potential.curvature_terms`."""
        return [Curvature(self.J.J, self.J.map(lambda i: self._hessian(i, x)), self.J.dofs, self.J.count)]

    def count(self) -> None:
        """See `Potential.count`. None: all sums are over the active contacts."""
        return None

    def fitted(self, lanes: tuple[int, ...]) -> ActiveCones:
        """The same: there are no lanes."""
        assert not lanes
        return self
