"""Poses, motion subspaces, velocities and accelerations of the tree."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.tree.system import NO_INERTIA, System, gravity_acceleration, split_q, split_v
from xsim.joints.elementary import child_twist
from xsim.model.topology import Topology
from xsim.spatial import (
    ZERO3,
    Force,
    Inertia,
    Motion,
    Pose,
    apply,
    compose,
    cross,
    cross_force,
    cross_motion,
    inertia_add,
    inertia_move,
    madd,
    matrix,
    momentum,
    mscale,
    power,
    stage,
    sub,
    vadd,
    vsub,
)

REST = Motion(ZERO3, ZERO3)


class Frames(NamedTuple):
    """Per link: world pose, rotation matrix, origin from the tree's reference point. Per dof: motion subspace (a Motion)."""

    pose: list
    R: list
    origin: list
    subspace: list


def moved_by(topology: Topology) -> np.ndarray:
    """(links + 1, nv): 1 for the dofs that move each link; the last row is the world's."""
    out = np.zeros((len(topology.links) + 1, topology.size("nv")), np.int8)
    for i, link in enumerate(topology.links):
        out[i] = out[link.parent]
        out[i, link.v : link.v + link.nv] = 1
    return out


def lanes_of(system: System, frame: Frames) -> tuple[int, ...]:
    """Shape of a component: (lanes,), or () without a batch."""
    arrays = [x for x in jax.tree.leaves((system, frame)) if isinstance(x, jax.Array) and x.ndim <= 1]
    return jnp.broadcast_shapes(*(x.shape for x in arrays))


@stage
def _place(joint, numbers, tree: Pose, q, parent: Pose | None) -> Pose:
    pose = compose(tree, joint.pose(numbers, q))
    return pose if parent is None else compose(parent, pose)


@stage
def _subspace(joint, numbers, q, R, origin):
    return child_twist(joint.subspace(numbers, q), R, origin)


@stage
def _rotation(pose: Pose, reference):
    return matrix(pose.quat), vsub(pose.pos, reference)


def frames(system: System, q) -> Frames:
    """Forward kinematics."""
    links, root = system.topology.links, system.tables.root
    qs = split_q(system, q)
    pose: list = []
    for i, link in enumerate(links):
        parent = pose[link.parent] if link.parent >= 0 else None
        pose.append(_place(system.link.joints[i], system.link.numbers[i], system.link.pose[i], qs[i], parent))
    R, origin, subspace = [], [], []
    for i in range(len(links)):
        rotation, position = _rotation(pose[i], pose[root[i]].pos)
        R.append(rotation)
        origin.append(position)
        subspace.extend(_subspace(system.link.joints[i], system.link.numbers[i], qs[i], rotation, position))
    return Frames(pose, R, origin, subspace)


@stage
def _sum_motion(parent: Motion, subspace, v):
    own = REST
    for s, x in zip(subspace, v, strict=True):
        own = madd(own, mscale(s, x))
    return own, madd(parent, own)


def velocities(system: System, frame: Frames, v) -> tuple[list, list]:
    """Per link: the joint's own motion and the link's velocity, about the reference point."""
    own, velocity = [], []
    for link, x in zip(system.topology.links, split_v(system, v), strict=True):
        parent = velocity[link.parent] if link.parent >= 0 else REST
        j, total_motion = _sum_motion(parent, frame.subspace[link.v : link.v + link.nv], x)
        own.append(j)
        velocity.append(total_motion)
    return own, velocity


@stage
def _acceleration(parent: Motion, velocity: Motion, own: Motion, subspace, a, extra: Motion | None):
    out = madd(parent, cross_motion(velocity, own))
    if a is not None:
        for s, x in zip(subspace, a, strict=True):
            out = madd(out, mscale(s, x))
    return out if extra is None else madd(out, extra)


@stage
def _extra(joint, numbers, q, v, R, origin):
    return child_twist([joint.subspace_rate(numbers, q, v)], R, origin)[0]


def accelerations(system: System, frame: Frames, q, v, a, own, velocity, base=REST) -> list:
    """Per link: spatial acceleration about the reference point; ``a`` None: the part that comes from velocities alone."""
    qs, vs = split_q(system, q), split_v(system, v)
    acc = split_v(system, a) if a is not None else [None] * len(qs)
    out: list = []
    for i, link in enumerate(system.topology.links):
        extra = None
        if system.link.joints[i].subspace_rate is not None:
            extra = _extra(system.link.joints[i], system.link.numbers[i], qs[i], vs[i], frame.R[i], frame.origin[i])
        parent = out[link.parent] if link.parent >= 0 else base
        out.append(_acceleration(parent, velocity[i], own[i], frame.subspace[link.v : link.v + link.nv], acc[i], extra))
    return out


# ---- inertia, inverse dynamics ------------------------------------------------------------------------------------------------


@stage
def _world_inertia(R, origin, inertia: Inertia) -> Inertia:
    return inertia_move(R, origin, inertia)


def link_inertias(system: System, frame: Frames) -> list:
    """Per link: inertia in world axes about the reference point."""
    return [
        NO_INERTIA if own is NO_INERTIA else _world_inertia(frame.R[i], frame.origin[i], own)
        for i, own in enumerate(system.link.inertia)
    ]


@stage
def _force(inertia: Inertia, velocity: Motion, acceleration: Motion) -> Force:
    f, h = momentum(inertia, acceleration), momentum(inertia, velocity)
    return madd(f, cross_force(velocity, h))


@stage
def _add_force(a: Force, b: Force) -> Force:
    return madd(a, b)


@stage
def _project(f: Force, subspace):
    return [power(f, s) for s in subspace]


def inverse_dynamics(system: System, frame: Frames, inertia, q, v, a=None) -> list:
    """Generalized force of the motion, gravity included (recursive Newton-Euler; Featherstone 2008, table 5.1, in world axes).

    ``a`` None: the bias force."""
    own, velocity = velocities(system, frame, v)
    base = Motion(ZERO3, gravity_acceleration(system))
    acceleration = accelerations(system, frame, q, v, a, own, velocity, base)
    force: list = [
        None if own_inertia is NO_INERTIA else _force(own_inertia, velocity[i], acceleration[i]) for i, own_inertia in enumerate(inertia)
    ]
    for i, light in enumerate(system.link.gravity_exempt):
        if light is not None and force[i] is not None:
            force[i] = _lift(force[i], frame.R[i], frame.origin[i], light, system.option.gravity)
    return gather(system, frame, force)


@stage
def _lift(force: Force, R, origin, light: Inertia, gravity) -> Force:
    """Take back the weight of the part of a link that feels no gravity."""
    return madd(force, momentum(inertia_move(R, origin, light), Motion(ZERO3, gravity)))


@stage
def _gravity_inertia(R, origin, inertia: Inertia, light: Inertia) -> Inertia:
    lifted = inertia_move(R, origin, light)
    return Inertia(sub(inertia.mass, lifted.mass), vsub(inertia.first, lifted.first), vsub(inertia.second, lifted.second))


def gravity_inertia(system: System, frame: Frames, link: int, inertia: Inertia) -> Inertia:
    """The part of a link's inertia (world axes) that feels gravity."""
    light = system.link.gravity_exempt[link]
    return inertia if light is None else _gravity_inertia(frame.R[link], frame.origin[link], inertia, light)


def gather(system: System, frame: Frames, force: list) -> list:
    """Generalized force of the forces on the links, from the leaves to the root."""
    force, links = list(force), system.topology.links
    out: list = [0.0] * len(frame.subspace)
    for i in reversed(range(len(links))):
        link = links[i]
        if force[i] is None:
            continue
        out[link.v : link.v + link.nv] = _project(force[i], frame.subspace[link.v : link.v + link.nv])
        if link.parent >= 0:
            up = force[link.parent]
            force[link.parent] = force[i] if up is None else _add_force(up, force[i])
    return out


@stage
def _inertial(inertia: Inertia, acceleration: Motion) -> Force:
    return momentum(inertia, acceleration)


def inertial_force(system: System, frame: Frames, inertia, a) -> list:
    """M a, armature left out: the generalized force of an acceleration from rest without gravity, or of a change of velocity."""
    _, acceleration = velocities(system, frame, a)
    return gather(system, frame, [None if own is NO_INERTIA else _inertial(own, x) for own, x in zip(inertia, acceleration, strict=True)])


@stage
def _add_inertia(a: Inertia, b: Inertia) -> Inertia:
    return inertia_add(a, b)


@stage
def _momenta(inertia: Inertia, subspace):
    return [momentum(inertia, s) for s in subspace]


def mass_matrix(system: System, frame: Frames, inertia) -> list[list]:
    """Lower triangle by rows: row i holds M[i, j] for j in before[i], then M[i, i] (composite rigid bodies; Featherstone 2008, 6.2)."""
    links, before = system.topology.links, system.tables.before
    composite = list(inertia)
    for i in reversed(range(len(links))):
        p = links[i].parent
        if p >= 0 and composite[i] is not NO_INERTIA:
            composite[p] = composite[i] if composite[p] is NO_INERTIA else _add_inertia(composite[p], composite[i])
    rows: list = [None] * len(frame.subspace)
    for i, link in enumerate(links):
        dofs = range(link.v, link.v + link.nv)
        momenta = _momenta(composite[i], [frame.subspace[d] for d in dofs])
        for d, f in zip(dofs, momenta, strict=True):
            rows[d] = _project(f, [frame.subspace[j] for j in (*before[d], d)])
    return rows


@stage
def _body_pose(link: Pose, offset: Pose) -> Pose:
    return compose(link, offset)


@stage
def point_acceleration(acceleration: Motion, velocity: Motion, point):
    """Acceleration of the point at ``point`` from the reference point."""
    lin = vadd(acceleration.lin, cross(acceleration.ang, point))
    return vadd(lin, cross(velocity.ang, vadd(velocity.lin, cross(velocity.ang, point))))


@stage
def _origin(R, origin, pos):
    return vadd(origin, apply(R, pos))


def body_poses(system: System, frame: Frames) -> list[Pose]:
    """World pose of every body."""
    out = []
    for i, body in enumerate(system.topology.bodies):
        if body.link < 0:
            out.append(system.body.offset[i])
        elif system.tables.at_link[i]:
            out.append(frame.pose[body.link])
        else:
            out.append(_body_pose(frame.pose[body.link], system.body.offset[i]))
    return out


def body_origins(system: System, frame: Frames) -> list:
    """Origin of every body from its tree's reference point, None for bodies fixed to the world."""
    out = []
    for i, body in enumerate(system.topology.bodies):
        if body.link < 0:
            out.append(None)
        elif system.tables.at_link[i]:
            out.append(frame.origin[body.link])
        else:
            out.append(_origin(frame.R[body.link], frame.origin[body.link], system.body.offset[i].pos))
    return out


def body_velocities(system: System, frame: Frames, velocity) -> tuple[list, list]:
    """Linear velocity of every body's origin and its angular velocity."""
    lin, ang = [], []
    for body, point in zip(system.topology.bodies, body_origins(system, frame), strict=True):
        lin.append(ZERO3 if point is None else point_velocity(velocity[body.link], point))
        ang.append(ZERO3 if point is None else velocity[body.link].ang)
    return lin, ang


def body_accelerations(system: System, frame: Frames, velocity, acceleration) -> tuple[list, list]:
    """Acceleration of every body's origin and its angular acceleration (rates of `body_velocities`)."""
    lin, ang = [], []
    for body, point in zip(system.topology.bodies, body_origins(system, frame), strict=True):
        if point is None:
            lin.append(ZERO3)
            ang.append(ZERO3)
        else:
            lin.append(point_acceleration(acceleration[body.link], velocity[body.link], point))
            ang.append(acceleration[body.link].ang)
    return lin, ang


@stage
def point_velocity(motion: Motion, point):
    """Velocity, under a motion, of the point at ``point`` from the reference point."""
    return vadd(motion.lin, cross(motion.ang, point))


@stage
def _body_point(R, origin, offset: Pose, point):
    return vadd(origin, apply(R, vadd(offset.pos, apply(matrix(offset.quat), point))))


def body_point(frame: Frames, link: int, offset: Pose, point):
    """A point of a body (body frame, the body at ``offset`` in its link) from the reference point."""
    return _body_point(frame.R[link], frame.origin[link], offset, point)
