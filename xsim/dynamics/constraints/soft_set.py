"""All soft constraints at a state, as functions of the acceleration: rows and contact cones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.compile.rules import reversed_by_jax
from xsim.dynamics.constraints.active_cones import ActiveCones
from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.contact_plan import LARGE, contact_plan, has_contacts
from xsim.dynamics.constraints.contact_rows import contact_cones
from xsim.dynamics.constraints.flex_edges import edge_rows, has_edge_rows
from xsim.dynamics.constraints.flex_strains import strain_rows
from xsim.dynamics.constraints.narrowphase import Candidates, Contacts, Detection, exceeds, find_candidates, select_contacts
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.passive_contacts import PassiveContacts, passive_contacts
from xsim.dynamics.constraints.potential import Potential
from xsim.dynamics.constraints.row_mobility import RowMobility, row_mobility
from xsim.dynamics.constraints.soft_rows import Rows, concatenate_rows, has_soft_rows, inactive_row, soft_rows
from xsim.dynamics.linalg.assembly import with_curvature
from xsim.dynamics.linalg.dense import is_tiled, tree_sum
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import Frames, frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import in_one_environment


def has_soft(topology: Topology) -> bool:
    """Whether the model has soft constraints that are enabled: equalities, limits, dry friction, contacts. Those of a model without dofs
    act on nothing."""
    return topology.size("nv") > 0 and (has_soft_rows(topology) or has_contacts(topology))


MIN_WARM_START = 20
"""Velocities of a model from which on warm starts save time: with fewer an iteration takes hardly longer than to compare the starts."""


def has_warm_start(topology: Topology) -> bool:
    """Whether the search for the acceleration starts at the last one within a rollout and a step of Runge-Kutta, see `newton.minimize`."""
    return has_soft(topology) and topology.size("nv") >= MIN_WARM_START


def loops_over_active_contacts(system: System) -> bool:
    """Whether the acceleration is found in loops over the active contacts, see `active_contacts`."""
    top, derived = system.topology, system.derived
    if reversed_by_jax() or not in_one_environment() or top.parts or top.noslip or top.speculative or derived.mobility is None:
        return False
    groups = contact_plan(top).condim_groups
    if any(group.passive for group in groups) or any(pairs.adhesion is not None for pairs in derived.contact_parameters.pairs):
        return False
    return any(group.capacity >= LARGE for group in groups)


class Constraints(NamedTuple):
    """The soft constraints at a state: a convex potential P(x) of x = J a + offset, where a is the acceleration.

    x, and the forces, are tuples with one entry for each part. The first entry is that of the rows, (n, lanes), if there are rows. Then
    each `Cones` has one, (n, d, lanes).

    rows: equalities, limits and dry friction. None if there are none.
    cones: contacts, by dimension. None of them with candidates.
    overflow: 1.0 if more contacts were active than the buffer has entries.
    passive: contacts that are springs. They are no part of P. None without.
    candidates: those of the contacts without their overflow, where loops are over the active ones, see `active_contacts`. Else None.
        `with_cones` makes cones of them.
    """

    rows: Rows | None
    cones: tuple[Cones | NoSlipCones | ActiveCones, ...]
    overflow: object = 0.0
    passive: PassiveContacts | None = None
    candidates: list[Candidates] | None = None

    @property
    def parts(self) -> tuple[Potential, ...]:
        """The rows, then the cones."""
        return self.cones if self.rows is None else (self.rows, *self.cones)

    def j_times(self, a) -> tuple:
        """J a."""
        return tuple(part.j_times(a) for part in self.parts)

    def at(self, a) -> tuple:
        """J a + offset."""
        return tuple(part.at(a) for part in self.parts)

    def force(self, x) -> tuple:
        """The forces -dP/dx."""
        return tuple(part.force(y) for part, y in zip(self.parts, x, strict=True))

    def jt_times(self, f, counts=None):
        """J^T f (nv, lanes). counts: the result of `counts`, which saves time. With it there is no reverse-mode derivative."""
        counts = (None,) * len(self.parts) if counts is None else counts
        return tree_sum([part.jt_times(y, count) for part, y, count in zip(self.parts, f, counts, strict=True)])

    def jt_magnitudes(self, f, counts=None):
        """|J|^T |f| (nv, lanes): the sums of the magnitudes of the terms of J^T f. Its rounding error is a few machine epsilons of them."""
        counts = (None,) * len(self.parts) if counts is None else counts
        return tree_sum([part.jt_magnitudes(y, count) for part, y, count in zip(self.parts, f, counts, strict=True)])

    def touched(self) -> list:
        """[array (nv, lanes)]: positive for a dof that an active row moves, else 0."""
        forces = []
        for part in self.parts:
            stiffness = part.stiffness if part is self.rows else part.stiffness[:, None]
            forces.append(jnp.broadcast_to(jnp.where(stiffness > 0, 1.0, 0.0), part.offset.shape))
        return [self.jt_magnitudes(forces)]

    @property
    def has_adhesion(self) -> bool:
        """Whether contacts can pull."""
        return any(cone.pull is not None for cone in self.cones)

    def adhesion(self) -> list:
        """The generalized force of adhesion (nv components, with one lane if there is no batch)."""
        forces = [jnp.zeros_like(cone.offset).at[:, 0].set(-cone.pull) for cone in self.cones]
        return list(tree_sum([cone.jt_times(f) for cone, f in zip(self.cones, forces, strict=True)]))

    @property
    def fixed_zeros(self) -> bool:
        """Whether it is known which entries of `newton_matrix` are zero at all states: which bodies touch is not."""
        return not self.cones

    def newton_matrix(self, mass, x, counts=None):
        """M + J^T P'' J (nv, nv, lanes), for mass = M. counts: see `jt_times`."""
        parts = list(zip(self.parts, x, (None,) * len(self.parts) if counts is None else counts, strict=True))
        if is_tiled(mass, self.fixed_zeros):
            return with_curvature(mass, [term for part, y, count in parts for term in part.curvature_terms(y, count)])
        return mass + tree_sum([part.curvature(y, count) for part, y, count in parts])

    def counts(self) -> tuple:
        """For each part, see `Cones.count`."""
        return tuple(part.count() for part in self.parts)

    def line(self, x, dx) -> Callable:
        """P along a line: a function alpha -> (first derivative, second derivative) at x + alpha dx, (lanes)."""
        lines = [part.line(y, dy) for part, y, dy in zip(self.parts, x, dx, strict=True)]

        def line(alpha):
            slopes, curvatures = zip(*(part(alpha) for part in lines), strict=True)
            return tree_sum(list(slopes)), tree_sum(list(curvatures))

        return line

    def is_quadratic(self, x, dx):
        """Whether P is one quadratic function from x to x + dx (lanes)."""
        out = jnp.asarray(True)
        for part, y, dy in zip(self.parts, x, dx, strict=True):
            out = out & part.is_quadratic(y, dy)
        return out

    def fitted(self, lanes: tuple[int, ...]) -> Constraints:
        """The constraints with arrays of the shape (..., *lanes), for accelerations (nv, *lanes)."""
        rows = None if self.rows is None else self.rows.fitted(lanes)
        return self._replace(rows=rows, cones=tuple(c.fitted(lanes) for c in self.cones))


def _rows(system: System, frame: Frames, q, v, at_state: RowMobility | None) -> Rows:
    """The rows of equalities (with edges and cells of flexes), limits and dry friction at a state. Their arrays have a lane axis."""
    rows = soft_rows(system, frame, q, v, tendons(system, frame, q), at_state)
    parts = [] if rows is None else [rows.with_lane_axis()]
    if has_edge_rows(system.topology):
        parts.append(edge_rows(system, frame, v, at_state))
    parts += strain_rows(system, frame, v, at_state)
    return functools.reduce(concatenate_rows, parts)


def constraints(
    system: System, q, v, detection: Detection | None = None, step_terms: list | None = None
) -> Constraints | None:
    """The soft constraints at a state. None if the model has none. detection: the contacts at this state; None: they are computed.
    step_terms: (factor, `Quadratic`) of what the mobilities add to the mass matrix if the references of the rows are at the end of the
    step; None: they are at its start.

    The last axis of all arrays is the lane axis. It has length 1 if there is no batch."""
    top = system.topology
    if not has_soft(top):
        return None
    frame = frames(system, q)
    at_state = row_mobility(system, frame, step_terms)
    rows = _rows(system, frame, q, v, at_state) if has_soft_rows(top) else None
    if not has_contacts(top):
        return Constraints(rows, ())
    candidates = find_candidates(system, frame, v) if detection is None else detection.candidates
    if at_state is None and loops_over_active_contacts(system):
        groups = contact_plan(top).condim_groups
        overflows = [c.overflow | exceeds(c.depth, group.capacity) for c, group in zip(candidates, groups, strict=True)]
        overflow = _overflow(system, frame, overflows, candidates[0].depth.dtype)
        return Constraints(rows, (), overflow, None, [c._replace(overflow=False) for c in candidates])
    contacts = select_contacts(system, frame, candidates) if detection is None else detection.contacts
    cones, passive = contact_cones(system, frame, v, contacts, at_state), passive_contacts(system, frame, v, contacts)
    if passive is not None and step_terms is None:
        raise ValueError("passive contact of flexes is for the integrator discrete: choose this integrator")
    dtype = contacts[0].distance.dtype
    rows = inactive_row(len(v), dtype) if rows is None and not cones else rows
    return Constraints(rows, cones, _overflow(system, frame, [x.overflow for x in contacts], dtype), passive)


def _overflow(system: System, frame: Frames, flags: list, dtype):
    """See `Constraints`. flags (lanes,): of the condim groups."""
    out = functools.reduce(jnp.logical_or, flags).astype(dtype)
    return out if lanes_of(system, frame) else out[0]


def with_cones(system: System, frame: Frames, v: list, soft: Constraints, contacts: list[Contacts] | None = None) -> Constraints:
    """Constraints with the cones of all entries of the buffers, also where loops are over the active contacts. contacts: those among the
    candidates; None: they are selected."""
    if soft.candidates is None:
        return soft
    contacts = select_contacts(system, frame, soft.candidates) if contacts is None else contacts
    return soft._replace(cones=contact_cones(system, frame, v, contacts), candidates=None)
