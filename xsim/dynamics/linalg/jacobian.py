"""The Jacobian of contacts by blocks: contacts that the same dofs move, without the columns of the others, which are zero.

The dofs between a foot and the root alone move its contacts, so that the curvature J^T H J of a walking robot costs a fraction of that
of a full J.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.linalg.dense import fit, pairwise_sum, summed, tree_sum
from xsim.spatial import stage

OVERHEAD = 500
"""What a block more costs, in products of two numbers."""
MOST = 12
"""Blocks: each is compiled by itself."""
SETS = 64
"""Sets of dofs that blocks are looked for among; more make one block."""

Blocks = tuple[tuple[int, tuple[int, ...]], ...]
"""Of each block how many contacts and which dofs."""


def partition(moved: np.ndarray, condim: int) -> tuple[np.ndarray, Blocks]:
    """An order of contacts, and the blocks in it, so that the curvature costs little. moved (contacts, nv): which dofs move which."""
    together: dict[tuple[int, ...], list[int]] = {}
    for i, row in enumerate(moved):
        together.setdefault(tuple(np.flatnonzero(row).tolist()), []).append(i)
    blocks = [(contacts, frozenset(dofs)) for dofs, contacts in together.items()]
    if len(blocks) > SETS:
        blocks = [(list(range(len(moved))), frozenset(np.flatnonzero(moved.any(0)).tolist()))]

    def cost(block) -> float:
        return condim * len(block[0]) * len(block[1]) ** 2 + OVERHEAD

    while len(blocks) > 1:
        gains = []
        for i, one in enumerate(blocks):
            for j, two in enumerate(blocks[:i]):
                both = (two[0] + one[0], two[1] | one[1])
                gains.append((cost(one) + cost(two) - cost(both), i, j, both))
        gain, i, j, both = max(gains, key=lambda x: x[0])
        if gain < 0 and len(blocks) <= MOST:
            break
        del blocks[i]
        blocks[j] = both
    return np.concatenate([contacts for contacts, _ in blocks]), tuple((len(c), tuple(sorted(dofs))) for c, dofs in blocks)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["parts"], meta_fields=["blocks", "nv"])
@dataclass(frozen=True)
class Jacobian:
    """J (n, d, nv, lanes). parts: of each block its contacts and dofs (contacts, d, dofs, lanes)."""

    parts: tuple[Any, ...]
    blocks: Blocks
    nv: int

    def _slices(self) -> list[tuple[slice, np.ndarray]]:
        """Of each block its contacts and its dofs."""
        ends = np.cumsum([count for count, _ in self.blocks]).tolist()
        return [(slice(end - count, end), np.array(dofs, int)) for end, (count, dofs) in zip(ends, self.blocks, strict=True)]

    def j_times(self, a):
        """J a (n, d, lanes) of a (nv, lanes)."""
        return jnp.concatenate([_along(J, a[dofs]) for J, (_, dofs) in zip(self.parts, self._slices(), strict=True)])

    def jt_times(self, f):
        """J^T f (nv, lanes) of f (n, d, lanes)."""
        total = jnp.zeros((self.nv, *f.shape[2:]), f.dtype)
        for J, (contacts, dofs) in zip(self.parts, self._slices(), strict=True):
            total = _plus(total, _pulled(J, f[contacts]), (dofs,))
        return total

    def curvature(self, second, counts=None):
        """J^T H J (nv, nv, lanes) of H (n, d, d, lanes). counts: of contacts of each block that are looked at, None for all."""
        total = jnp.zeros((self.nv, self.nv, *second.shape[3:]), second.dtype)
        for i, (J, (contacts, dofs)) in enumerate(zip(self.parts, self._slices(), strict=True)):
            total = _plus(total, _curvature(J, second[contacts], None if counts is None else counts[i]), (dofs, dofs))
        return total

    def counts(self, there) -> tuple:
        """Of each block, after how many contacts none is there (n,)."""
        numbered = [jnp.where(there[contacts], jnp.arange(1, contacts.stop - contacts.start + 1), 0) for contacts, _ in self._slices()]
        return tuple(jnp.max(x) for x in numbered)

    def fitted(self, lanes: tuple[int, ...]) -> Jacobian:
        """With arrays of all lanes, or without that axis."""
        return Jacobian(tuple(fit(x, lanes) for x in self.parts), self.blocks, self.nv)

    def dense(self):
        """(n, d, nv, lanes)."""
        out = jnp.zeros((sum(len(J) for J in self.parts), self.parts[0].shape[1], self.nv, *self.parts[0].shape[3:]), self.parts[0].dtype)
        for J, (contacts, dofs) in zip(self.parts, self._slices(), strict=True):
            out = out.at[contacts, :, dofs].set(J)
        return out


@stage
def _along(J, a):
    return tree_sum([J[:, :, k] * a[k] for k in range(J.shape[2])])


@stage
def _pulled(J, f):
    product = J * f[:, :, None]
    return pairwise_sum(product.reshape(-1, *product.shape[2:]))


def _curvature(J, second, count):
    d = J.shape[1]
    pushed = tree_sum([second[:, :, None, k] * J[:, k, None] for k in range(d)])
    rows, pushed = (y.reshape(-1, *y.shape[2:]) for y in (J, pushed))
    return summed(lambda i: rows[i][:, None] * pushed[i][None], len(rows), None if count is None else d * count)


def _plus(total, part, dofs: tuple[np.ndarray, ...]):
    """total with a part added at these dofs of its first axes."""
    if all(len(own) == size for own, size in zip(dofs, total.shape, strict=False)):
        return total + part
    for place, piece in _runs(dofs):
        own = tuple(slice(start, start + size) for start, size in place)
        at = [*(start for start, _ in place), *(0,) * (total.ndim - len(dofs))]
        total = jax.lax.dynamic_update_slice(total, total[own] + part[piece], at)
    return total


def _runs(dofs: tuple[np.ndarray, ...]):
    """Rectangles of consecutive dofs: ((start, size), ...) among all, and slices of the part."""
    if not dofs:
        yield (), ()
        return
    own, rest = dofs[0], list(_runs(dofs[1:]))
    ends = [*(np.flatnonzero(np.diff(own) != 1) + 1).tolist(), len(own)]
    for first, last in zip([0, *ends[:-1]], ends, strict=True):
        for place, piece in rest:
            yield ((int(own[first]), last - first), *place), (slice(first, last), *piece)
