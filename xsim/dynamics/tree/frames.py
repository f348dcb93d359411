"""Frames on bodies: sites, geoms and the ends of constraints; Jacobian rows of wrenches between bodies."""

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
def _composed_pose(offset: Pose, pos, quat) -> Pose:
    return compose(offset, Pose(normalize(quat), pos))


def pose_in_link(system: System, body: int, pos, quat) -> Pose:
    """The pose of a frame in its link (for a fixed body: in the world), from its pose in the body. body: -1 for the world."""
    if body < 0 or system.topology.bodies[body].link >= 0 and system.tables.at_link[body]:
        return _unit_pose(pos, quat)
    return _composed_pose(system.body.offset[body], pos, quat)


def body_end(system: System, frame: Frames, body: int, pos, quat) -> End:
    """A frame of a body. pos, quat: its pose in the body."""
    return end_of(system, frame, body, pose_in_link(system, body, pos, quat))


def site_end(system: System, frame: Frames, site: int) -> End:
    """The frame of a site."""
    return body_end(system, frame, system.topology.sites[site].body, system.site.pos[site], system.site.quat[site])


def geom_end(system: System, frame: Frames, geom: int) -> End:
    """The frame of a geom. A visual geom has no leaves, and its pose is that of the file."""
    info = system.topology.geoms[geom]
    pose = (info.pos, info.quat) if info.row is None else (system.geom.pos[info.row], system.geom.quat[info.row])
    return body_end(system, frame, info.body, *pose)


MIN_SQUARE = 1e-12
"""Squared sine below which a direction is undefined."""


class End(NamedTuple):
    """A frame on a body, for example one end of a constraint.

    * x: origin relative to the reference point of the body's tree, world axes.
    * world: origin in the world.
    * R: rotation matrix, whose columns are the axes. quat: the same as a quaternion.
    """

    x: tuple
    world: tuple
    R: tuple
    quat: tuple

    def axis(self, k: int):
        """Axis k, in world axes."""
        return tuple(row[k] for row in self.R)


class Wrench(NamedTuple):
    """A force (N) and a moment (N m) on the first of two bodies, and their opposites on the second, world axes. points: where the force
    acts on each body, world, m."""

    bodies: tuple[int, ...]
    points: tuple
    force: tuple
    moment: tuple


@stage
def _end(R, origin, quat, reference, pose: Pose) -> End:
    x = vadd(origin, apply(R, pose.pos))
    world_quat = quat_mul(quat, pose.quat)
    return End(x, vadd(x, reference), matrix(world_quat), world_quat)


@stage
def _fixed_end(pose: Pose) -> End:
    return End(pose.pos, pose.pos, matrix(pose.quat), pose.quat)


def body_link(system: System, body: int) -> int:
    """The link of a body, -1 for the world and for fixed bodies."""
    return system.topology.bodies[body].link if body >= 0 else -1


def ends_of(system: System, frame: Frames, infos, link_poses) -> list[tuple[End, ...]]:
    """The ends of constraints or force elements. link_poses: for each, the poses of its ends in the links of its bodies."""
    out = []
    for info, poses in zip(infos, link_poses, strict=True):
        out.append(tuple(end_of(system, frame, body, pose) for body, pose in zip(info.bodies, poses, strict=True)))
    return out


def end_of(system: System, frame: Frames, body: int, pose: Pose) -> End:
    """A frame of a body. pose: in the link of the body; in the world for a fixed body."""
    link = body_link(system, body)
    if link < 0:
        return _fixed_end(pose)
    reference = frame.pose[system.tables.root[link]].pos
    return _end(frame.R[link], frame.origin[link], frame.pose[link].quat, reference, pose)


@stage
def angle_about(a: End, b: End):
    """Angle of the second frame's x axis about the first frame's z axis, between -pi and pi; 0 if the axes are parallel."""
    return safe_angle(dot(b.axis(0), a.axis(1)), dot(b.axis(0), a.axis(0)))


def safe_angle(y, x):
    """arctan2(y, x); 0 with zero derivative where both are 0."""
    defined = add(mul(x, x), mul(y, y)) > MIN_SQUARE
    return jnp.where(defined, jnp.arctan2(jnp.where(defined, y, 0.0), jnp.where(defined, x, 1.0)), 0.0)


@stage
def _coefficients(force, moment, subspace, sign) -> list:
    powers = [power(Force(moment, force), s) for s in subspace]
    return powers if sign > 0 else [neg(x) for x in powers]


def row_coefficients(system: System, frame: Frames, bodies, wrench) -> list:
    """The Jacobian row [(dof, coefficient), ...] of a wrench between two bodies: its power per dof velocity.

    wrench: (force, moment about the first reference point, moment about the second). It acts on the second body, and the opposite wrench on
    the first."""
    first, second = (system.tables.chain[link] if link >= 0 else () for link in (body_link(system, b) for b in bodies))
    row: list = []
    for dofs, sign, about in (([d for d in first if d not in second], -1, 1), ([d for d in second if d not in first], 1, 2)):
        if dofs:
            coefficients = _coefficients(wrench[0], wrench[about], [frame.subspace[d] for d in dofs], sign)
            row += [pair for pair in zip(dofs, coefficients, strict=True) if not (isinstance(pair[1], float) and pair[1] == 0.0)]
    return row


def coordinate_addresses(topology: Topology) -> dict:
    """{dof: (link, address in q)} of the dofs whose coordinate is one number."""
    return {link.v + k: (link, link.q + k) for link in topology.links if link.nq == link.nv for k in range(link.nv)}
