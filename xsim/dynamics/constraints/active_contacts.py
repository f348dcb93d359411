"""Contacts of the program of one environment, in loops over those that are active: their cones for Newton's method, and their generalized
force for derivatives in reverse mode.

The buffers of contacts are sized for the worst case, but mostly few contacts are active. A loop takes as many turns as an environment has
active contacts, and does all that belongs to one of them: its parameters, its velocity, its Jacobian or its force.

In the loop of the force the contact Jacobian has no matrix. J v follows from the velocities of the links, and J^T f from wrenches on the
links, by the passes of the recursive Newton-Euler algorithm (Featherstone 2008, Rigid Body Dynamics Algorithms, chapter 5). The loop reads
rows of arrays, so that in its derivative each turn adds to the cotangents of these rows alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.bounded import bounded_map, bounded_sum
from xsim.dynamics.constraints.active_cones import ActiveCones, ActiveJacobian
from xsim.dynamics.constraints.contact_parameters import PairParameters
from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import cones_of, contact_jacobian, sparse_contact_jacobian, world_wrench
from xsim.dynamics.constraints.narrowphase import FAR, Candidates, Contacts, active_indices, selected_contacts
from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.layout import column, row_of
from xsim.dynamics.linalg.dense import block_max
from xsim.dynamics.tree.kinematics import Frames, generalized_force, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import ZERO3, Force, Motion, add, cross, dot, scale, vadd, vsub


class _GroupOfCandidates(NamedTuple):
    """The candidates of a condim group, the parameters of its pairs, and their mobility, see `ContactParameters`."""

    condim_group: CondimGroup
    candidates: Candidates
    parameters: PairParameters
    mobility: Any

    def active(self) -> tuple:
        """See `active_indices`."""
        return active_indices(jax.lax.stop_gradient(self.candidates.depth), self.condim_group, self.candidates.pair)

    @property
    def dofs(self) -> tuple[int, ...]:
        """The dofs on which the contacts depend, ascending."""
        return tuple(sorted({dof for _, dofs in self.condim_group.blocks for dof in dofs}))

    def contact(self, i) -> tuple[Contacts, PairParameters, Any]:
        """A candidate as a group of one contact, its parameters and its mobility."""
        candidates = self.candidates
        pair = row_of(jnp.asarray(candidates.pair, jnp.int32), i).reshape(())
        parameters, mobility = jax.tree.map(lambda x: row_of(x, pair)[None], (self.parameters, self.mobility))
        contact = jax.tree.map(lambda x: row_of(x, i)[None], candidates.contact)
        one = candidates._replace(contact=contact, pair=pair.reshape(1, 1), depth=row_of(candidates.depth, i)[None])
        group = self.condim_group._replace(capacity=1, order=None, blocks=((1, self.dofs),))
        return selected_contacts(group, one, None), parameters, mobility


def _groups(system: System, soft: Constraints) -> list[_GroupOfCandidates]:
    """Those of constraints with candidates."""
    parameters = system.derived.contact_parameters
    groups = contact_plan(system.topology).condim_groups
    assert soft.candidates is not None
    return [_GroupOfCandidates(*x) for x in zip(groups, soft.candidates, parameters.pairs, parameters.mobility, strict=True)]


# ---- cones --------------------------------------------------------------------------------------------------------------------


def active_cones(system: System, frame: Frames, v: list, soft: Constraints) -> tuple[ActiveCones, ...]:
    """The cones of the active contacts of constraints with candidates, one entry for each condim group."""
    velocity = column(list(v))
    return tuple(_active_cones(system, frame, velocity, group) for group in _groups(system, soft))


def _active_cones(system: System, frame: Frames, velocity, group: _GroupOfCandidates) -> ActiveCones:
    condim, capacity, support = group.condim_group.condim, group.condim_group.capacity, group.condim_group.support
    indices, own = group.active()

    def contact(i):
        """The columns of the Jacobian and their dofs, the offset, stiffness and weight of a contact."""
        contacts, parameters, mobility = group.contact(row_of(indices, i))
        contacts = contacts._replace(distance=jnp.where(i < own, contacts.distance, FAR))  # a further index has no meaning
        if support is None:
            J = contact_jacobian(system, frame, contacts, (1,), condim)
            columns, dofs = J.parts[0], ()
        else:
            J = sparse_contact_jacobian(system, frame, contacts, condim)
            columns, dofs = J.J, J.dofs[0, :, 0]
        cone = cones_of(system, frame, contacts, parameters, (mobility, None), J, J.j_times(velocity), (1,))
        return columns[0, :, :, 0], dofs, cone.offset[0, :, 0], cone.stiffness[0, 0], cone.weight[0, :, 0]

    count = block_max(own)
    columns, dofs, *numbers = bounded_map(contact, capacity, count)
    J = ActiveJacobian(columns, np.array(group.dofs, int) if support is None else dofs, count, system.topology.size("nv"))
    return ActiveCones(system.topology.cone == "elliptic", J, *numbers)


# ---- forces -------------------------------------------------------------------------------------------------------------------


class _ContactLoop(NamedTuple):
    """What the loop of the forces of the contacts of a condim group reads.

    group: the contacts.
    moving: the links with contacts, ascending.
    signs: of the sides of the pairs that have links, -1 for the first one: contact forces act on the second.
    links (pairs, sides): for these sides of each pair, the place in ``moving`` of the link, or the number of these links for the world.
    reference (links, 3), velocity, acceleration (links, 6): of the links in ``moving``, and of the world, the reference point of the tree,
        and the motions about it that v and a give, linear and angular. reference: one vector if all are of one tree.
    """

    group: _GroupOfCandidates
    moving: tuple[int, ...]
    signs: tuple[float, ...]
    links: np.ndarray
    reference: Any
    velocity: Any
    acceleration: Any

    def arm(self, point, place):
        """From the reference point of a link to a point. place: of the link in ``moving``."""
        reference = self.reference if isinstance(self.reference, tuple) else tuple(jnp.unstack(row_of(self.reference, place)))
        return vsub(point, reference)


def contact_force(system: System, frame: Frames, v: list, soft: Constraints, a: list) -> list:
    """The generalized force (nv components) of the contacts of constraints with candidates, at an acceleration a (nv components), with
    bounded sums, see `xsim.compile.rules.has_bounded_sums`."""
    out: list = [0.0] * len(a)
    for loop in _contact_loops(system, frame, v, soft, a):
        out = [add(x, y) for x, y in zip(out, _force_in_loop(system, frame, loop), strict=True)]
    return out


def _contact_loops(system: System, frame: Frames, v: list, soft: Constraints, a: list) -> list[_ContactLoop]:
    """The loops of all condim groups in which a pair has a link."""
    loops = [_contact_loop(system, frame, v, a, group) for group in _groups(system, soft)]
    return [loop for loop in loops if loop is not None]


def _contact_loop(system: System, frame: Frames, v, a, group: _GroupOfCandidates) -> _ContactLoop | None:
    """None where no pair has a link."""
    links = np.array([body.link for body in system.topology.bodies] + [-1])[group.condim_group.bodies]
    moving = np.unique(links[links >= 0])
    if not len(moving):
        return None
    sides = [k for k in (0, 1) if (links[:, k] >= 0).any()]
    places = np.where(links < 0, len(moving), np.searchsorted(moving, links))[:, sides]
    roots = [system.tables.root[i] for i in moving]
    reference = [frame.pose[i].pos for i in roots]
    motions = [[(*of_links[i].lin, *of_links[i].ang) for i in moving] for of_links in (velocities(system, frame, x)[1] for x in (v, a))]
    table = tuple(map(jnp.asarray, reference[0])) if len(set(roots)) == 1 else _with_world(reference)
    return _ContactLoop(group, tuple(moving.tolist()), tuple((-1.0, 1.0)[k] for k in sides), places, table, *map(_with_world, motions))


def _with_world(rows: list):
    """Components of links as an array (links + 1, n), with zeros for the world."""
    width = len(rows[0])
    return column([x for row in [*rows, (0.0,) * width] for x in row]).reshape(len(rows) + 1, width)


def _force_in_loop(system: System, frame: Frames, loop: _ContactLoop) -> list:
    """The generalized force of the contacts of a condim group."""

    def with_contact(total, i):
        links, wrenches = _wrenches(system, frame, loop, i)
        return total.at[links].add(wrenches, mode="promise_in_bounds")

    indices, count = loop.group.active()
    total = bounded_sum(with_contact, jnp.zeros((len(loop.moving) + 1, 6), loop.velocity.dtype), indices, count)
    wrenches: list = [None] * len(system.topology.links)
    for i, row in zip(loop.moving, jnp.unstack(total), strict=False):
        components = jnp.unstack(row)
        wrenches[i] = Force(tuple(components[:3]), tuple(components[3:]))
    return generalized_force(system, frame, wrenches)


def _wrenches(system: System, frame: Frames, loop: _ContactLoop, i) -> tuple:
    """The places of the links of a candidate i (sides,), and the wrenches of the contact on them (sides, 6): moments about their reference
    points, and forces."""
    contacts, parameters, mobility = loop.group.contact(i)
    pair, point = contacts.pair.reshape(()), _scalars(contacts.point)
    axes = [_scalars(axis) for axis in (contacts.normal, *contacts.tangents)]
    links = row_of(jnp.asarray(loop.links, jnp.int32), pair)
    places = jnp.unstack(links)
    arms = [loop.arm(point, place) for place in places]

    def relative(motions):
        """J v (1, condim, 1), of the motions of all links."""
        lin, ang = ZERO3, ZERO3
        for sign, place, arm in zip(loop.signs, places, arms, strict=True):
            x = jnp.unstack(row_of(motions, place))
            motion = Motion(tuple(x[3:]), tuple(x[:3]))
            lin, ang = vadd(lin, scale(point_velocity(motion, arm), sign)), vadd(ang, scale(motion.ang, sign))
        rows = [*(dot(axis, lin) for axis in axes), *(dot(axis, ang) for axis in axes)]
        return jnp.stack(rows[: loop.group.condim_group.condim]).reshape(1, -1, 1)

    cone = cones_of(system, frame, contacts, parameters, (mobility, None), None, relative(loop.velocity), (1,))
    force = cone.force(relative(loop.acceleration) + cone.offset)
    lin, moment = (_scalars(x) for x in world_wrench(contacts, force))
    wrenches = [[*scale(vadd(moment, cross(arm, lin)), sign), *scale(lin, sign)] for sign, arm in zip(loop.signs, arms, strict=True)]
    return links, jnp.stack([jnp.stack(x) for x in wrenches])


def _scalars(vector: tuple) -> tuple:
    """The vector of one contact, of components (1, 1)."""
    return tuple(x.reshape(()) for x in vector)
