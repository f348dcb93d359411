"""Sums over contacts as loops over those that are active, for derivatives in reverse mode: their generalized force, and J^T P'' J.

The loop of the force does all that belongs to one contact: its parameters, its velocity, its force and the wrenches on its two links.
There the contact Jacobian has no matrix. J v follows from the velocities of the links, and J^T f from wrenches on the links, by the passes
of the recursive Newton-Euler algorithm (Featherstone 2008, Rigid Body Dynamics Algorithms, chapter 5). The loop reads rows of arrays, so
that in its derivative each turn adds to the cotangents of these rows alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.rules import bounded_sum
from xsim.dynamics.constraints.contact_parameters import PairParameters
from xsim.dynamics.constraints.contact_plan import CondimGroup, contact_plan
from xsim.dynamics.constraints.contact_rows import cones_of, contact_jacobian, world_wrench
from xsim.dynamics.constraints.narrowphase import Candidates, Contacts, active_indices, selected_contacts
from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.layout import column, row_of
from xsim.dynamics.linalg.dense import of_triangle, tree_sum
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
    rule that is traced for a tape."""
    out: list = [0.0] * len(a)
    for loop in _contact_loops(system, frame, v, soft, a):
        out = [add(x, y) for x, y in zip(out, _force_in_loop(system, frame, loop), strict=True)]
    return out


def _contact_loops(system: System, frame: Frames, v: list, soft: Constraints, a: list) -> list[_ContactLoop]:
    """The loops of all condim groups in which a pair has a link."""
    plan, parameters = contact_plan(system.topology), system.derived.contact_parameters
    assert soft.candidates is not None
    groups = zip(plan.condim_groups, soft.candidates, parameters.pairs, parameters.mobility, strict=True)
    loops = [_contact_loop(system, frame, v, a, *group) for group in groups]
    return [loop for loop in loops if loop is not None]


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


def with_contact_curvature(system: System, frame: Frames, v: list, soft: Constraints, a, matrix):
    """A matrix (nv, nv) plus J^T P'' J of the contacts of constraints with candidates, at an acceleration a (nv,), in a rule that is
    traced for a tape. It has no derivative."""
    for loop in _contact_loops(system, frame, v, soft, list(a)):
        dofs = sorted({dof for _, dofs in loop.group.blocks for dof in dofs})
        curvature = _curvature_in_loop(system, frame, loop, dofs, column(v), a[:, None])
        matrix = matrix.at[np.ix_(dofs, dofs)].add(curvature)
    return matrix


def _curvature_in_loop(system: System, frame: Frames, loop: _ContactLoop, dofs: list[int], velocity, acceleration):
    """J^T P'' J (k, k) of the contacts of a condim group, at the dofs on which they depend. velocity, acceleration (nv, 1)."""
    group = loop.group._replace(blocks=((1, tuple(dofs)),))
    rows, columns = np.tril_indices(len(dofs))

    def with_contact(triangle, i):
        contacts, parameters, mobility = _contact(loop._replace(group=group), i)
        J = contact_jacobian(system, frame, contacts, (1,), group.condim)
        cone = cones_of(system, frame, contacts, parameters, (mobility, None), J, J.j_times(velocity), (1,))
        second = cone.hessian(J.j_times(acceleration) + cone.offset)[0, :, :, 0]
        of_rows = J.parts[0][0, :, :, 0]
        products = jnp.dot(second, of_rows, precision=jax.lax.Precision.HIGHEST)
        return triangle + tree_sum([x[rows] * y[columns] for x, y in zip(of_rows, products, strict=True)])

    indices, count = active_indices(loop.candidates.depth, loop.group)
    triangle = bounded_sum(with_contact, jnp.zeros(len(rows), loop.velocity.dtype), indices, count)
    return of_triangle(triangle, len(dofs))


def _wrenches(system: System, frame: Frames, loop: _ContactLoop, i) -> tuple:
    """The places of both links of a candidate i (2,), and the wrenches of the contact on them (2, 6): moments about their reference points,
    and forces."""
    contacts, parameters, mobility = _contact(loop, i)
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

    cone = cones_of(system, frame, contacts, parameters, (mobility, None), None, relative(loop.velocity), (1,))
    force = cone.force(relative(loop.acceleration) + cone.offset)
    lin, moment = (_scalars(x) for x in world_wrench(contacts, force))
    wrenches = [[*scale(vadd(moment, cross(arm, lin)), sign), *scale(lin, sign)] for sign, arm in zip(_SIGNS, arms, strict=True)]
    return links, jnp.stack([jnp.stack(x) for x in wrenches])


_SIGNS = -1.0, 1.0
"""Of the first and of the second side: contact forces act on the second."""


def _scalars(vector: tuple) -> tuple:
    """The vector of one contact, of components (1, 1)."""
    return tuple(x.reshape(()) for x in vector)


def _contact(loop: _ContactLoop, i) -> tuple[Contacts, PairParameters, Any]:
    """A candidate as a group of one contact, its parameters and its mobility."""
    candidates = loop.candidates
    pair = row_of(jnp.asarray(candidates.pair, jnp.int32), i).reshape(())
    parameters, mobility = jax.tree.map(lambda x: row_of(x, pair)[None], (loop.parameters, loop.mobility))
    contact = jax.tree.map(lambda x: row_of(x, i)[None], candidates.contact)
    one = candidates._replace(contact=contact, pair=pair.reshape(1, 1), depth=row_of(candidates.depth, i)[None])
    return selected_contacts(loop.group._replace(capacity=1, order=None), one, None), parameters, mobility
