"""All soft constraints of a state together: rows and the cones of contacts, as functions of the acceleration."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_cones
from xsim.dynamics.constraints.flex_edges import edge_rows, has_kept
from xsim.dynamics.constraints.narrowphase import Contacts, find_contacts
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.soft_rows import Rows, has_rows, joined_rows, soft_rows
from xsim.dynamics.linalg.dense import tree_sum
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import Frames, frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology


def has_soft(topology: Topology) -> bool:
    """Whether there are soft constraints that act: equalities, limits, dry friction, contacts."""
    return has_rows(topology) or has_contacts(topology)


class Constraints(NamedTuple):
    """The soft constraints at a state, as a convex function of the acceleration a: P(J a + offset). Positions along the rows and cones,
    x = J a + offset, and forces are tuples: of the rows (n, *lanes) first, then of each `Cones` (n, d, *lanes). overflow: 1.0 where
    more contacts were active than the buffer holds."""

    rows: Rows | None
    cones: tuple[Cones | NoSlipCones, ...]
    overflow: object = 0.0

    @property
    def parts(self) -> tuple:
        return self.cones if self.rows is None else (self.rows, *self.cones)

    def j_times(self, a) -> tuple:
        """J a."""
        return tuple(part.j_times(a) for part in self.parts)

    def at(self, a) -> tuple:
        """J a + offset."""
        return tuple(part.j_times(a) + part.offset for part in self.parts)

    def force(self, x) -> tuple:
        return tuple(part.force(y) for part, y in zip(self.parts, x, strict=True))

    def jt_times(self, f):
        """J^T f (nv, lanes)."""
        return tree_sum([part.jt_times(y) for part, y in zip(self.parts, f, strict=True)])

    def curvature(self, x, counts=None):
        """J^T P'' J (nv, nv, lanes). counts: those of `counts`, where no reverse mode is asked for."""
        counts = (None,) * len(self.parts) if counts is None else counts
        return tree_sum([part.curvature(y, count) for part, y, count in zip(self.parts, x, counts, strict=True)])

    def counts(self) -> tuple:
        """Of each part, after how many there is none in any lane."""
        return tuple(part.count() for part in self.parts)

    def line(self, x, dx) -> Callable:
        """Of P along a line: reach -> (slope, curvature) at x + reach dx, (lanes)."""
        lines = [part.line(y, dy) for part, y, dy in zip(self.parts, x, dx, strict=True)]

        def line(reach):
            slopes, bends = zip(*(one(reach) for one in lines), strict=True)
            return tree_sum(list(slopes)), tree_sum(list(bends))

        return line

    def zones(self, x) -> tuple:
        """What makes P quadratic: integers that stay the same while it is."""
        return tuple(part.zone(y) for part, y in zip(self.parts, x, strict=True))

    def is_nonquadratic(self, x):
        """Whether P is not quadratic within these zones (lanes)."""
        out = jnp.asarray(False)
        for part, y in zip(self.cones, x[len(x) - len(self.cones) :], strict=True):
            out = out | part.is_nonquadratic(y)
        return out

    def fitted(self, lanes: tuple[int, ...]) -> Constraints:
        """For accelerations (nv, *lanes): arrays of all lanes, or without that axis."""
        rows = None if self.rows is None else self.rows.fitted(lanes)
        return Constraints(rows, tuple(c.fitted(lanes) for c in self.cones), self.overflow)


def _rows(system: System, frame: Frames, q, v) -> Rows:
    """Of a state, with an axis of lanes: equalities, limits, dry friction, edges of flexes."""
    rows = soft_rows(system, frame, q, v, tendons(system, frame, q))
    if not has_kept(system.topology):
        assert rows is not None
        return rows.lifted()
    edges = edge_rows(system, frame, v)
    return edges if rows is None else joined_rows(rows.lifted(), edges)


def constraints(system: System, q, v, found: list[Contacts] | None = None) -> Constraints | None:
    """Of a state; None for a model without. found: its contacts, where they are known already.

    The last axis of the arrays is that of the lanes, one where there is no batch."""
    top = system.topology
    if not has_soft(top):
        return None
    frame = frames(system, q)
    rows = _rows(system, frame, q, v) if has_rows(top) else None
    if not has_contacts(top):
        return Constraints(rows, ())
    found = find_contacts(system, frame) if found is None else found
    cones, overflow = contact_cones(system, frame, v, found), 0.0
    for one in found:
        overflow = jnp.maximum(overflow, one.overflow.astype(one.distance.dtype))
    return Constraints(rows, cones, overflow if lanes_of(system, frame) else overflow[0])
