"""Sites and geoms: named frames on bodies."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import Force, Pose, add, apply, compose, dot, matrix, mul, neg, normalize, power, quat_mul, stage, vadd


@stage
def _unit_pose(pos, quat) -> Pose:
    return Pose(normalize(quat), pos)


@stage
def _in_link(offset: Pose, pos, quat) -> Pose:
    return compose(offset, Pose(normalize(quat), pos))


def in_link(system: System, body: int, pos, quat) -> Pose:
    """A pose given in a body, in the link it moves with (of a body that does not move: in the world)."""
    if body < 0 or system.topology.bodies[body].link >= 0 and system.tables.at_link[body]:
        return _unit_pose(pos, quat)
    return _in_link(system.body.offset[body], pos, quat)


def body_end(system: System, frame: Frames, body: int, pos, quat) -> End:
    """A frame of a body, pos and quat in the body."""
    return end_of(system, frame, body, in_link(system, body, pos, quat))


def site_end(system: System, frame: Frames, site: int) -> End:
    return body_end(system, frame, system.topology.sites[site].body, system.site.pos[site], system.site.quat[site])


def geom_end(system: System, frame: Frames, geom: int) -> End:
    """A geom; one that is only drawn as it was loaded."""
    info = system.topology.geoms[geom]
    place = (info.pos, info.quat) if info.row is None else (system.geom.pos[info.row], system.geom.quat[info.row])
    return body_end(system, frame, info.body, *place)


MIN_SQUARE = 1e-12
"""Squares of sines below this have no direction."""


class End(NamedTuple):
    """One end of a constraint: origin from the body's reference point, origin in the world, axes (columns of R)."""

    x: tuple
    world: tuple
    R: tuple
    quat: tuple

    def axis(self, k: int):
        return tuple(row[k] for row in self.R)


@stage
def _end(R, origin, quat, reference, pose: Pose) -> End:
    x = vadd(origin, apply(R, pose.pos))
    turned = quat_mul(quat, pose.quat)
    return End(x, vadd(x, reference), matrix(turned), turned)


@stage
def _fixed_end(pose: Pose) -> End:
    return End(pose.pos, pose.pos, matrix(pose.quat), pose.quat)


def body_link(system: System, body: int) -> int:
    """The link a body moves with, -1 for the world."""
    return system.topology.bodies[body].link if body >= 0 else -1


def ends_of(system: System, frame: Frames, infos, every) -> list[tuple[End, ...]]:
    """The ends of constraints or forces; every: of each, the poses in the links of its bodies."""
    out = []
    for info, poses in zip(infos, every, strict=True):
        out.append(tuple(end_of(system, frame, body, pose) for body, pose in zip(info.bodies, poses, strict=True)))
    return out


def end_of(system: System, frame: Frames, body: int, pose: Pose) -> End:
    """A frame of a body; pose: in the link the body moves with, in the world for one that does not move."""
    link = body_link(system, body)
    if link < 0:
        return _fixed_end(pose)
    reference = frame.pose[system.tables.root[link]].pos
    return _end(frame.R[link], frame.origin[link], frame.pose[link].quat, reference, pose)


@stage
def angle_about(a: End, b: End):
    """Angle of the second frame's x axis about the first frame's z axis, within half a turn; 0 where that axis is along z."""
    return safe_angle(dot(b.axis(0), a.axis(1)), dot(b.axis(0), a.axis(0)))


def safe_angle(y, x):
    """arctan2(y, x), with 0 and no derivative where both are nothing."""
    some = add(mul(x, x), mul(y, y)) > MIN_SQUARE
    return jnp.where(some, jnp.arctan2(jnp.where(some, y, 0.0), jnp.where(some, x, 1.0)), 0.0)


@stage
def _coefficients(force, moment, subspace, sign) -> list:
    found = [power(Force(moment, force), s) for s in subspace]
    return found if sign > 0 else [neg(x) for x in found]


def row_coefficients(system: System, frame: Frames, bodies, wrench) -> list:
    """A row of J, [(dof, coefficient), ...]: the rate of a wrench's (force, moment about the first and about the second reference point)
    work on the second body of two, relative to the first."""
    first, second = (system.tables.chain[link] if link >= 0 else () for link in (body_link(system, b) for b in bodies))
    row: list = []
    for dofs, sign, about in (([d for d in first if d not in second], -1, 1), ([d for d in second if d not in first], 1, 2)):
        if dofs:
            found = _coefficients(wrench[0], wrench[about], [frame.subspace[d] for d in dofs], sign)
            row += [pair for pair in zip(dofs, found, strict=True) if not (isinstance(pair[1], float) and pair[1] == 0.0)]
    return row


def coordinate_places(topology: Topology) -> dict:
    """Of every dof whose coordinate is one number: its link and the coordinate's address in q."""
    return {link.v + k: (link, link.q + k) for link in topology.links if link.nq == link.nv for k in range(link.nv)}
