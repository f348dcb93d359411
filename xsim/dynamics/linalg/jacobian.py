"""The Jacobian of contacts as blocks: contacts that depend on the same dofs, without the zero columns of the other dofs.

The contacts of a foot depend only on the dofs between the foot and the root. J^T H J of a walking robot therefore costs a fraction of that
of a dense J.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.layout import row_of, take_rows
from xsim.dynamics.linalg.assembly import Curvature, transposed_product
from xsim.dynamics.linalg.dense import block_max, fit, loop_sum, pairwise_sum, sum_of_products, tree_sum
from xsim.spatial import each_row, in_one_environment, mul, stage

BLOCK_OVERHEAD = 500
"""Cost of an additional block, in multiplications."""
MAX_BLOCKS = 12
"""Largest number of blocks; each is compiled separately."""
MAX_DOF_SETS = 64
"""Largest number of different sets of dofs for which blocks are sought; with more there is one block."""

Blocks = tuple[tuple[int, tuple[int, ...]], ...]
"""Per block, its number of contacts and its dofs."""


def partition(depends: np.ndarray, condim: int) -> tuple[np.ndarray, Blocks]:
    """An order of the contacts and its division into blocks, for which J^T H J is cheap. Greedy merging of blocks.

    depends (contacts, nv): whether a contact depends on a dof."""
    by_dofs: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(depends):
        by_dofs.setdefault(tuple(np.flatnonzero(row).tolist()), []).append(i)
    blocks = [(contacts, frozenset(dofs)) for dofs, contacts in by_dofs.items()]
    if len(blocks) > MAX_DOF_SETS:
        blocks = [(list(range(len(depends))), frozenset(np.flatnonzero(depends.any(0)).tolist()))]

    def cost(block) -> float:
        return condim * len(block[0]) * len(block[1]) ** 2 + BLOCK_OVERHEAD

    while len(blocks) > 1:
        gains = []
        for i, block in enumerate(blocks):
            for j, other in enumerate(blocks[:i]):
                merged = (other[0] + block[0], other[1] | block[1])
                gains.append((cost(block) + cost(other) - cost(merged), i, j, merged))
        gain, i, j, merged = max(gains, key=lambda x: x[0])
        if gain < 0 and len(blocks) <= MAX_BLOCKS:
            break
        del blocks[i]
        blocks[j] = merged
    return np.concatenate([contacts for contacts, _ in blocks]), tuple((len(c), tuple(sorted(dofs))) for c, dofs in blocks)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["blocks", "nv"])
@dataclass(frozen=True)
class Jacobian:
    """A Jacobian J (n, d, nv, lanes) of n contacts with d rows each. parts: per block an array (contacts, d, dofs, lanes)."""

    parts: tuple[Any, ...]
    blocks: Blocks
    nv: int

    def _slices(self) -> list[tuple[slice, np.ndarray]]:
        """Per block, its contacts and its dofs."""
        ends = np.cumsum([count for count, _ in self.blocks]).tolist()
        return [(slice(end - count, end), np.array(dofs, int)) for end, (count, dofs) in zip(ends, self.blocks, strict=True)]

    def j_times(self, a):
        """J a (n, d, lanes), for a (nv, lanes)."""
        parts = zip(self.parts, self._slices(), strict=True)
        return jnp.concatenate([each_row(lambda J, dofs=dofs: _j_times(J, take_rows(a, dofs)), J) for J, (_, dofs) in parts])

    def jt_times(self, f, counts=None):
        """J^T f (nv, lanes), for f (n, d, lanes). counts: per block, the number of contacts to include; None for all."""
        return self._sum_of_terms(_product, f, counts)

    def jt_magnitudes(self, f, counts=None):
        """|J|^T |f| (nv, lanes). f, counts: see `jt_times`."""
        return self._sum_of_terms(_magnitude, f, counts)

    def _sum_of_terms(self, term: Callable, f, counts):
        """The sum of term(J, f) over all rows (nv, lanes). f, counts: see `jt_times`."""
        total = jnp.zeros((self.nv, *f.shape[2:]), f.dtype)
        for i, (J, (contacts, dofs)) in enumerate(zip(self.parts, self._slices(), strict=True)):
            total = _plus(total, _sum_of_terms(term, J, f[contacts], None if counts is None else counts[i]), (dofs,))
        return total

    def curvature(self, second, counts=None):
        """J^T H J (nv, nv, lanes), for H = second (n, d, d, lanes). counts: see `jt_times`."""
        total = jnp.zeros((self.nv, self.nv, *second.shape[3:]), second.dtype)
        for i, (J, (contacts, dofs)) in enumerate(zip(self.parts, self._slices(), strict=True)):
            total = _plus(total, _curvature(J, second[contacts], None if counts is None else counts[i]), (dofs, dofs))
        return total

    def curvature_terms(self, second, counts=None) -> list[Curvature]:
        """The terms of `curvature`, in the program of one environment."""
        parts = zip(self.parts, self._slices(), counts or [len(J) for J in self.parts], strict=True)
        return [Curvature(J, second[contacts], dofs, count) for J, (contacts, dofs), count in parts]

    def counts(self, active) -> tuple:
        """Per block, the number of contacts up to the last active one. active (n,): bool."""
        return tuple(_last(active[contacts]) for contacts, _ in self._slices())

    def fitted(self, lanes: tuple[int, ...]) -> Jacobian:
        """The Jacobian with arrays broadcast to these lanes."""
        return Jacobian(tuple(fit(x, lanes) for x in self.parts), self.blocks, self.nv)

    def dense(self):
        """The dense array (n, d, nv, lanes)."""
        out = jnp.zeros((sum(len(J) for J in self.parts), self.parts[0].shape[1], self.nv, *self.parts[0].shape[3:]), self.parts[0].dtype)
        for J, (contacts, dofs) in zip(self.parts, self._slices(), strict=True):
            out = out.at[contacts, :, dofs].set(J)
        return out


@stage
def _j_times(J, a):
    return tree_sum([mul(column, x) for column, x in zip(jnp.unstack(J, axis=2), a, strict=True)])


@functools.partial(jax.tree_util.register_dataclass, data_fields=["J", "dofs"], meta_fields=["nv"])
@dataclass(frozen=True)
class SparseJacobian:
    """A `Jacobian` in the program of one environment, of contacts that depend on k dofs at most, which the state decides.

    J (n, d, k, lanes): its columns of these dofs. dofs (n, k, lanes): see `Curvature`. lanes: 1, or no such axis."""

    J: Any
    dofs: Any
    nv: int

    def j_times(self, a):
        """See `Jacobian.j_times`."""

        def rows(J, dofs):
            return _j_times(J, jnp.moveaxis(a[dofs.reshape(len(J), -1)], 1, 0))

        return each_row(rows, self.J, self.dofs)

    def jt_times(self, f, counts=None):
        """See `Jacobian.jt_times`."""
        return self._transposed_product(f, counts, False)

    def jt_magnitudes(self, f, counts=None):
        """See `Jacobian.jt_magnitudes`."""
        return self._transposed_product(f, counts, True)

    def _transposed_product(self, f, counts, of_magnitudes: bool):
        (n, d, k), count = self.J.shape[:3], None if counts is None else counts[0]
        product = transposed_product(
            self.J.reshape(n, d, k), f.reshape(n, d), self.dofs.reshape(n, k), n if count is None else count, self.nv, of_magnitudes
        )
        return product.reshape(self.nv, *f.shape[2:])

    def curvature_terms(self, second, counts=None) -> list[Curvature]:
        """See `Jacobian.curvature_terms`."""
        return [Curvature(self.J, second, self.dofs, len(self.J) if counts is None else counts[0])]

    def counts(self, active) -> tuple:
        """See `Jacobian.counts`."""
        return (_last(active),)

    def fitted(self, lanes: tuple[int, ...]) -> SparseJacobian:
        """See `Jacobian.fitted`."""
        return SparseJacobian(fit(self.J, lanes), fit(self.dofs, lanes), self.nv)


def _last(active):
    """The number of contacts up to the last active one. active (n,): bool."""
    return block_max(jnp.max(jnp.where(active, jnp.arange(1, len(active) + 1), 0)))


def _product(J, f):
    return J * f


def _magnitude(J, f):
    return jnp.abs(J * f)


def _sum_of_terms(term: Callable, J, f, count):
    """The sum of term(J, f) over the rows of a block."""
    if count is None or not in_one_environment():
        return _sum_at_once(term, J, f)
    rows, forces = (x.reshape(-1, *x.shape[2:]) for x in (J, f))
    return loop_sum(lambda i: term(row_of(rows, i), row_of(forces, i)), len(rows), J.shape[1] * count)


@stage
def _sum_at_once(term: Callable, J, f):
    terms = term(J, f[:, :, None])
    return pairwise_sum(terms.reshape(-1, *terms.shape[2:]))


def _curvature(J, second, count):
    d = J.shape[1]
    product = each_row(lambda J, second: tree_sum([second[:, :, None, k] * J[:, k, None] for k in range(d)]), J, second)
    rows, product = (y.reshape(-1, *y.shape[2:]) for y in (J, product))
    return sum_of_products(rows, product, None if count is None else d * count)


def _plus(total, part, dofs: tuple[np.ndarray, ...]):
    """total with a part added at these dofs of its leading axes."""
    if all(len(axis) == size for axis, size in zip(dofs, total.shape, strict=False)):
        return total + part
    for target, source in _rectangles(dofs):
        slices = tuple(slice(start, start + size) for start, size in target)
        start = [*(start for start, _ in target), *(0,) * (total.ndim - len(dofs))]
        total = jax.lax.dynamic_update_slice(total, total[slices] + part[source], start)
    return total


def _rectangles(dofs: tuple[np.ndarray, ...]):
    """Rectangles of consecutive dofs: ((start, size), ...) in the total, and slices of the part."""
    if not dofs:
        yield (), ()
        return
    axis, rest = dofs[0], list(_rectangles(dofs[1:]))
    ends = [*(np.flatnonzero(np.diff(axis) != 1) + 1).tolist(), len(axis)]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        for target, source in rest:
            yield ((int(axis[first]), last - first), *target), (slice(first, last), *source)
