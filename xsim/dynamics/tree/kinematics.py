"""Poses, motion subspaces, velocities and accelerations of the tree."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.tree.displacements import (
    JointArguments,
    LinkFrame,
    displaced_frame,
    displaced_inertia,
    displaced_subspace,
    displacement_of_link,
    with_lanes,
    zero_displacement,
)
from xsim.dynamics.tree.system import NO_INERTIA, System, gravity_acceleration, split_q, split_v
from xsim.joints.elementary import child_twist
from xsim.model.topology import Topology
from xsim.spatial import (
    IDENTITY,
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

AT_REST = Motion(ZERO3, ZERO3)
IDENTITY_MATRIX = matrix(IDENTITY)


class Frames(NamedTuple):
    """Forward kinematics of the links, in world axes.

    * pose: world pose per link. R: its rotation matrix.
    * origin: per link, its origin relative to the reference point of its tree.
    * subspace: per dof, its motion subspace (a `Motion` about the reference point).
    * displacement: per link, its relative displacement, see `xsim.dynamics.tree.displacements`.
    """

    pose: list
    R: list
    origin: list
    subspace: list
    displacement: list


NO_FRAMES = Frames([], [], [], [], [])


def link_dof_mask(topology: Topology) -> np.ndarray:
    """(links + 1, nv): 1 for the dofs that move each link. The last row is for the world."""
    out = np.zeros((len(topology.links) + 1, topology.size("nv")), np.int8)
    for i, link in enumerate(topology.links):
        out[i] = out[link.parent]
        out[i, link.v : link.v + link.nv] = 1
    return out


def lanes_of(system: System, frame: Frames) -> tuple[int, ...]:
    """Shape of a component: (lanes,), or () without a batch."""
    arrays = [x for x in jax.tree.leaves((system, frame)) if isinstance(x, jax.Array) and x.ndim <= 1]
    return jnp.broadcast_shapes(*(x.shape for x in arrays))


def has_lanes(system: System, frame: Frames, v) -> bool:
    """Whether components at a state with the velocities v are arrays of all environments."""
    return bool(lanes_of(system, frame)) or any(jnp.ndim(x) for x in v)


@stage
def _link_pose(joint, numbers, tree: Pose, q, parent: Pose | None) -> Pose:
    pose = compose(tree, joint.pose(numbers, q))
    return pose if parent is None else compose(parent, pose)


@stage
def _subspace(joint, numbers, q, R, origin):
    return child_twist(joint.subspace(numbers, q), R, origin)


@stage
def _rotation(pose: Pose, reference):
    return matrix(pose.quat), vsub(pose.pos, reference)


def frames(system: System, q) -> Frames:
    """Forward kinematics at q (nq components), differentiated by the displacements of the links."""
    qs = split_q(system, q)
    return _displaced(system, qs, _frames(system, qs))


def _frames(system: System, qs: list) -> Frames:
    """Forward kinematics, differentiated by its operations, without displacements. qs: per link its coordinates."""
    links, root = system.topology.links, system.tables.root
    pose: list = []
    for i, link in enumerate(links):
        parent = pose[link.parent] if link.parent >= 0 else None
        pose.append(_link_pose(system.link.joints[i], system.link.numbers[i], system.link.pose[i], qs[i], parent))
    R, origin, subspace = [], [], []
    for i in range(len(links)):
        rotation, position = _rotation(pose[i], pose[root[i]].pos)
        R.append(rotation)
        origin.append(position)
        subspace.extend(_subspace(system.link.joints[i], system.link.numbers[i], qs[i], rotation, position))
    return Frames(pose, R, origin, subspace, [])


def _displaced(system: System, qs: list, frame: Frames) -> Frames:
    """Forward kinematics, differentiated by the displacements of the links."""
    arrays = [x for x in jax.tree.leaves((frame, qs)) if isinstance(x, jax.Array)]
    if not arrays:
        return frame._replace(displacement=[AT_REST] * len(frame.pose))
    zero = jnp.zeros(jnp.broadcast_shapes(*(x.shape for x in arrays)), jnp.result_type(*arrays))
    frame = with_lanes(frame, zero.shape)
    arguments = [JointArguments(*x) for x in zip(system.link.pose, system.link.numbers, map(tuple, qs), strict=True)]
    displacements, out = _displacements(system, arguments, frame, zero), Frames([], [], [], [], [])
    for i, link in enumerate(system.topology.links):
        displacement, of_root = displacements[i], displacements[system.tables.root[i]]
        relative = Motion(displacement.ang, vsub(displacement.lin, of_root.lin))
        moved = displaced_frame(LinkFrame(frame.pose[i], frame.R[i], frame.origin[i]), displacement, relative)
        subspace, joint = frame.subspace[link.v : link.v + link.nv], system.link.joints[i]
        out.pose.append(moved.pose)
        out.R.append(moved.R)
        out.origin.append(moved.origin)
        out.subspace.extend(displaced_subspace(subspace, relative, joint, arguments[i], frame.R[i], frame.origin[i]))
        out.displacement.append(relative)
    return out


def _displacements(system: System, arguments: list[JointArguments], frame: Frames, zero) -> list[Motion]:
    """Per link, its displacement. zero: a component."""
    out: list[Motion] = []
    for i, link in enumerate(system.topology.links):
        joint, subspace = system.link.joints[i], frame.subspace[link.v : link.v + link.nv]
        parent, R_parent = (out[link.parent], frame.R[link.parent]) if link.parent >= 0 else (AT_REST, IDENTITY_MATRIX)
        value = zero_displacement(parent, joint, arguments[i], subspace, zero)
        out.append(displacement_of_link(value, joint, parent, arguments[i], subspace, R_parent, frame.origin[i]))
    return out


@stage
def _sum_motion(parent: Motion, subspace, v):
    joint_velocity = AT_REST
    for s, x in zip(subspace, v, strict=True):
        joint_velocity = madd(joint_velocity, mscale(s, x))
    return joint_velocity, madd(parent, joint_velocity)


def velocities(system: System, frame: Frames, v) -> tuple[list, list]:
    """Per link: velocity across its joint and velocity of the link, spatial, about the reference point of the tree, world axes."""
    joint_velocity, velocity = [], []
    for link, x in zip(system.topology.links, split_v(system, v), strict=True):
        parent = velocity[link.parent] if link.parent >= 0 else AT_REST
        across_joint, of_link = _sum_motion(parent, frame.subspace[link.v : link.v + link.nv], x)
        joint_velocity.append(across_joint)
        velocity.append(of_link)
    return joint_velocity, velocity


@stage
def _acceleration(parent: Motion, velocity: Motion, joint_velocity: Motion, subspace, a, subspace_rate: Motion | None):
    out = madd(parent, cross_motion(velocity, joint_velocity))
    if a is not None:
        for s, x in zip(subspace, a, strict=True):
            out = madd(out, mscale(s, x))
    return out if subspace_rate is None else madd(out, subspace_rate)


@stage
def _subspace_rate(joint, numbers, q, v, R, origin):
    return child_twist([joint.subspace_rate(numbers, q, v)], R, origin)[0]


def accelerations(system: System, frame: Frames, q, v, a, joint_velocity, velocity, base=AT_REST) -> list:
    """Per link: spatial acceleration about the reference point. a (nv); None: zero. joint_velocity, velocity: from `velocities`."""
    qs, vs = split_q(system, q), split_v(system, v)
    acc = split_v(system, a) if a is not None else [None] * len(qs)
    out: list = []
    for i, link in enumerate(system.topology.links):
        rate = None
        if system.link.joints[i].subspace_rate is not None:
            rate = _subspace_rate(system.link.joints[i], system.link.numbers[i], qs[i], vs[i], frame.R[i], frame.origin[i])
        parent = out[link.parent] if link.parent >= 0 else base
        out.append(_acceleration(parent, velocity[i], joint_velocity[i], frame.subspace[link.v : link.v + link.nv], acc[i], rate))
    return out


# ---- inertia, inverse dynamics ------------------------------------------------------------------------------------------------


@stage
def _world_inertia(R, origin, inertia: Inertia) -> Inertia:
    return inertia_move(R, origin, inertia)


def link_inertias(system: System, frame: Frames) -> list:
    """Per link: inertia about the reference point, world axes."""
    return [
        NO_INERTIA if inertia is NO_INERTIA else _displaced_inertia(frame, i, inertia)
        for i, inertia in enumerate(system.link.inertia)
    ]


def _displaced_inertia(frame: Frames, link: int, inertia: Inertia) -> Inertia:
    R, origin = frame.R[link], frame.origin[link]
    return displaced_inertia(_world_inertia(R, origin, inertia), frame.displacement[link], inertia, R, origin)


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
    """Generalized force (nv) that gives acceleration a, gravity included; a None: the bias force.

    inertia: from `link_inertias`. Recursive Newton-Euler algorithm (Featherstone 2008, table 5.1), in world axes."""
    joint_velocity, velocity = velocities(system, frame, v)
    base = Motion(ZERO3, gravity_acceleration(system))
    acceleration = accelerations(system, frame, q, v, a, joint_velocity, velocity, base)
    force: list = [
        None if body is NO_INERTIA else _force(body, velocity[i], acceleration[i]) for i, body in enumerate(inertia)
    ]
    for i, exempt in enumerate(system.link.gravity_exempt):
        if exempt is not None and force[i] is not None:
            force[i] = _without_weight(force[i], frame.R[i], frame.origin[i], exempt, system.option.gravity)
    return generalized_force(system, frame, force)


@stage
def _without_weight(force: Force, R, origin, exempt: Inertia, gravity) -> Force:
    """Remove the weight of the part of a link on which gravity does not act."""
    return madd(force, momentum(inertia_move(R, origin, exempt), Motion(ZERO3, gravity)))


@stage
def _gravity_inertia(R, origin, inertia: Inertia, exempt: Inertia) -> Inertia:
    part = inertia_move(R, origin, exempt)
    return Inertia(sub(inertia.mass, part.mass), vsub(inertia.first, part.first), vsub(inertia.second, part.second))


def gravity_inertia(system: System, frame: Frames, link: int, inertia: Inertia) -> Inertia:
    """The part of a link's inertia on which gravity acts, about the reference point, world axes. inertia: of the link."""
    exempt = system.link.gravity_exempt[link]
    return inertia if exempt is None else _gravity_inertia(frame.R[link], frame.origin[link], inertia, exempt)


def generalized_force(system: System, frame: Frames, force: list) -> list:
    """Generalized force (nv) of wrenches on the links: the backward pass of the recursive Newton-Euler algorithm.

    force: per link, a wrench about the reference point, world axes; None for no wrench."""
    force, links = list(force), system.topology.links
    out: list = [0.0] * len(frame.subspace)
    for i in reversed(range(len(links))):
        link = links[i]
        if force[i] is None:
            continue
        out[link.v : link.v + link.nv] = _project(force[i], frame.subspace[link.v : link.v + link.nv])
        if link.parent >= 0:
            on_parent = force[link.parent]
            force[link.parent] = force[i] if on_parent is None else _add_force(on_parent, force[i])
    return out


@stage
def _inertial(inertia: Inertia, acceleration: Motion) -> Force:
    return momentum(inertia, acceleration)


def inertial_force(system: System, frame: Frames, inertia, a) -> list:
    """M a (nv) without the armature. a: an acceleration, or a change of velocity."""
    _, acceleration = velocities(system, frame, a)
    wrenches = [None if i is NO_INERTIA else _inertial(i, x) for i, x in zip(inertia, acceleration, strict=True)]
    return generalized_force(system, frame, wrenches)


@stage
def _add_inertia(a: Inertia, b: Inertia) -> Inertia:
    return inertia_add(a, b)


def sum_of_inertias(a: Inertia, b: Inertia) -> Inertia:
    """The sum; `NO_INERTIA` costs nothing."""
    return b if a is NO_INERTIA else a if b is NO_INERTIA else _add_inertia(a, b)


def composite_inertias(topology: Topology, inertia) -> list[Inertia]:
    """Per link: inertia of the link and of all links below it. inertia: per link, about the reference point."""
    out = list(inertia)
    for i in reversed(range(len(out))):
        parent = topology.links[i].parent
        if parent >= 0:
            out[parent] = sum_of_inertias(out[parent], out[i])
    return out


@stage
def _momenta(inertia: Inertia, subspace):
    return [momentum(inertia, s) for s in subspace]


def mass_matrix(system: System, frame: Frames, inertia) -> list[list]:
    """The nonzero entries of the lower triangle of M: row i has M[i, j] for the ancestors j of dof i, then M[i, i].

    inertia: from `link_inertias`. Composite rigid body algorithm (Featherstone 2008, section 6.2)."""
    ancestors, composite = system.tables.ancestors, composite_inertias(system.topology, inertia)
    rows: list = [None] * len(frame.subspace)
    for i, link in enumerate(system.topology.links):
        dofs = range(link.v, link.v + link.nv)
        momenta = _momenta(composite[i], [frame.subspace[d] for d in dofs])
        for d, f in zip(dofs, momenta, strict=True):
            rows[d] = _project(f, [frame.subspace[j] for j in (*ancestors[d], d)])
    return rows


@stage
def _body_pose(link: Pose, offset: Pose) -> Pose:
    return compose(link, offset)


@stage
def point_acceleration(acceleration: Motion, velocity: Motion, point):
    """Acceleration of a moving point. point: its position relative to the reference point of the motions."""
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
    """Origin of every body relative to the reference point of its tree, None for bodies fixed to the world."""
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
    """Velocity of a moving point. point: its position relative to the reference point of the motion."""
    return vadd(motion.lin, cross(motion.ang, point))


@stage
def _body_point(R, origin, offset: Pose, point):
    return vadd(origin, apply(R, vadd(offset.pos, apply(matrix(offset.quat), point))))


def body_point(frame: Frames, link: int, offset: Pose, point):
    """A point of a body relative to the reference point of its tree. point: in the body frame. offset: pose of the body in its link."""
    return _body_point(frame.R[link], frame.origin[link], offset, point)
