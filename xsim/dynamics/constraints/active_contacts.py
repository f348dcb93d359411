"""The generalized force of contacts as a loop over those that are active, for derivatives in reverse mode.

The loop does all that belongs to one contact: its parameters, its velocity, its force and the wrenches on its two links. The contact
Jacobian has no matrix here. J v follows from the velocities of the links, and J^T f from wrenches on the links, by the passes of the
recursive Newton-Euler algorithm (Featherstone 2008, Rigid Body Dynamics Algorithms, chapter 5). The loop reads rows of arrays, so that in
its derivative each turn adds to the cotangents of these rows alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.rules import bounded_sum
from xsim.dynamics.constraints.contact_parameters import PairParameters
from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import cones_of
from xsim.dynamics.constraints.narrowphase import Candidates, Contacts, active_indices, selected_contacts
from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.layout import column, row_of
from xsim.dynamics.tree.kinematics import Frames, generalized_force, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import ZERO3, Force, Motion, add, cross, dot, scale, vadd, vsub


class _ContactLoop(NamedTuple):
    """What a loop over the contacts of a condim group reads.

    group, candidates, parameters, mobility: see `ContactParameters` and `Candidates`.
    moving: the links with contacts, ascending.
    links (pairs, 2): for both sides of each pair, the place in ``moving`` of the link, or the number of these links for the world.
    reference (links, 3), velocity, acceleration (links, 6): of the links in ``moving``, and of the world, the reference point of the tree,
        and the motions about it that v and a give, linear and angular.
    """

    group: CondimGroup
    candidates: Candidates
    parameters: PairParameters
    mobility: Any
    moving: tuple[int, ...]
    links: np.ndarray
    reference: Any
    velocity: Any
    acceleration: Any


def contact_force(system: System, frame: Frames, v: list, soft: Constraints, a: list) -> list:
    """The generalized force (nv components) of the contacts of constraints with candidates, at an acceleration a (nv components), in a
    residual that is traced for a tape."""
    plan, parameters = contact_plan(system.topology), system.derived.contact_parameters
    out: list = [0.0] * len(a)
    assert soft.candidates is not None
    for part in zip(plan.condim_groups, soft.candidates, parameters.pairs, parameters.mobility, strict=True):
        loop = _contact_loop(system, frame, v, a, *part)
        if loop is not None:
            out = [add(x, y) for x, y in zip(out, _force_in_loop(system, frame, loop), strict=True)]
    return out


def _contact_loop(system: System, frame: Frames, v, a, group: CondimGroup, candidates, parameters, mobility) -> _ContactLoop | None:
    """None where no pair has a link."""
    links = np.array([body.link for body in system.topology.bodies] + [-1])[group.bodies]
    moving = np.unique(links[links >= 0])
    if not len(moving):
        return None
    places = np.where(links < 0, len(moving), np.searchsorted(moving, links))
    reference = [frame.pose[system.tables.root[i]].pos for i in moving]
    motions = [[(*of_links[i].lin, *of_links[i].ang) for i in moving] for of_links in (velocities(system, frame, x)[1] for x in (v, a))]
    tables = [_with_world(rows) for rows in (reference, *motions)]
    return _ContactLoop(group, candidates, parameters, mobility, tuple(moving.tolist()), places, *tables)


def _with_world(rows: list):
    """Components of links as an array (links + 1, n), with zeros for the world."""
    width = len(rows[0])
    return column([x for row in [*rows, (0.0,) * width] for x in row]).reshape(len(rows) + 1, width)


def _force_in_loop(system: System, frame: Frames, loop: _ContactLoop) -> list:
    """The generalized force of the contacts of a condim group."""

    def with_contact(total, i):
        links, wrenches = _wrenches(system, frame, loop, i)
        return total.at[links].add(wrenches, mode="promise_in_bounds")

    indices, count = active_indices(jax.lax.stop_gradient(loop.candidates.depth), loop.group)
    total = bounded_sum(with_contact, jnp.zeros((len(loop.moving) + 1, 6), loop.velocity.dtype), indices, count)
    wrenches: list = [None] * len(system.topology.links)
    for i, row in zip(loop.moving, jnp.unstack(total), strict=False):
        components = jnp.unstack(row)
        wrenches[i] = Force(tuple(components[:3]), tuple(components[3:]))
    return generalized_force(system, frame, wrenches)


def _wrenches(system: System, frame: Frames, loop: _ContactLoop, i) -> tuple:
    """The places of both links of a candidate i (2,), and the wrenches of the contact on them (2, 6): moments about their reference points,
    and forces."""
    contacts = _contact(loop, i)
    pair, point = contacts.pair.reshape(()), _scalars(contacts.point)
    axes = [_scalars(axis) for axis in (contacts.normal, *contacts.tangents)]
    links = row_of(jnp.asarray(loop.links, jnp.int32), pair)
    places = jnp.unstack(links)
    arms = [vsub(point, tuple(jnp.unstack(row_of(loop.reference, place)))) for place in places]

    def relative(motions):
        """J v (1, condim, 1), of the motions of all links."""
        lin, ang = ZERO3, ZERO3
        for sign, place, arm in zip(_SIGNS, places, arms, strict=True):
            x = jnp.unstack(row_of(motions, place))
            motion = Motion(tuple(x[3:]), tuple(x[:3]))
            lin, ang = vadd(lin, scale(point_velocity(motion, arm), sign)), vadd(ang, scale(motion.ang, sign))
        rows = [*(dot(axis, lin) for axis in axes), *(dot(axis, ang) for axis in axes)]
        return jnp.stack(rows[: loop.group.condim]).reshape(1, -1, 1)

    parameters, mobility = jax.tree.map(lambda x: row_of(x, pair)[None], (loop.parameters, loop.mobility))
    cone = cones_of(system, frame, contacts, parameters, (mobility, None), None, relative(loop.velocity), (1,))
    f = jnp.unstack(cone.force(relative(loop.acceleration) + cone.offset).reshape(-1))
    lin, moment = (_combination(axes, part) for part in (f[:3], f[3:]))
    wrenches = [[*scale(vadd(moment, cross(arm, lin)), sign), *scale(lin, sign)] for sign, arm in zip(_SIGNS, arms, strict=True)]
    return links, jnp.stack([jnp.stack(x) for x in wrenches])


_SIGNS = -1.0, 1.0
"""Of the first and of the second side: contact forces act on the second."""


def _scalars(vector: tuple) -> tuple:
    """The vector of one contact, of components (1, 1)."""
    return tuple(x.reshape(()) for x in vector)


def _combination(axes, coefficients) -> tuple:
    out = ZERO3
    for axis, x in zip(axes, coefficients, strict=False):
        out = vadd(out, scale(axis, x))
    return out


def _contact(loop: _ContactLoop, i) -> Contacts:
    """A candidate as a group of one contact."""
    candidates, pairs = loop.candidates, loop.candidates.pair
    pair = row_of(jnp.asarray(pairs, jnp.int32), i).reshape(1, 1)
    contact = jax.tree.map(lambda x: row_of(x, i)[None], candidates.contact)
    one = candidates._replace(contact=contact, pair=pair, depth=row_of(candidates.depth, i)[None])
    return selected_contacts(loop.group._replace(capacity=1, order=None), one, None)
