"""What joints and constraints put on the bodies they hold."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.call import Call, query
from xsim.dynamics.constraints.holonomic import holonomic_rows
from xsim.dynamics.constraints.loop_joints import active, loop_ends, loop_wrenches
from xsim.dynamics.forces.elements import element_wrenches
from xsim.dynamics.forces.tension import smooth_tendon_forces
from xsim.dynamics.forward import forces_of_actuators, smooth
from xsim.dynamics.integration.projection import free_dofs
from xsim.dynamics.linalg.sparse import restricted
from xsim.dynamics.queries import body_inertia
from xsim.dynamics.tendons.tendons import tendon_wrenches, tendons
from xsim.dynamics.tree import kinematics as kin
from xsim.model.model import Model, State
from xsim.spatial import matrix

__all__ = ["Reactions", "reactions"]


class Reactions(NamedTuple):
    """Forces (N) and moments (N m), world axes.

    force, moment (*batch, nbody, 3): what a body's joint puts on it, its springs, dampers and drive included, but not spatial tendons;
    about the origin of the joint frame that the body carries. constraint_force, constraint_moment (*batch, nconstraint, 3): what each of
    the ``topology.constraints`` puts on its second body (on the first the opposite, at the same point), about the origin of the second
    frame.
    """

    force: jax.Array
    moment: jax.Array
    constraint_force: jax.Array
    constraint_moment: jax.Array


@query
def reactions(model: Model, state: State, ctrl=None, tau=None) -> Reactions:
    """What joints and constraints put on the bodies in the motion of `smooth_acceleration` (friction and limits left out).

    By the equations of Newton and Euler of every body, from the leaves of the tree to its root. Where holonomic rows depend on each
    other single reactions are not determined; then they are those of the multipliers with the least sum of squares.
    """
    c = Call(model, state.q, state.v, tau, ctrl=ctrl, time=state.time)
    frame = kin.frames(c.system, c.q)
    a, multipliers, *_ = smooth(c)
    joint_velocity, velocity = kin.velocities(c.system, frame, c.v)
    acceleration = kin.accelerations(c.system, frame, c.q, c.v, a, joint_velocity, velocity)
    wrenches = _inertial_wrenches(c, frame, velocity, acceleration)
    for info, pair in zip(model.topology.forces, element_wrenches(c.system, frame, c.q, c.v), strict=True):
        for body, wrench in zip(info.bodies, pair, strict=True):
            _subtract(c, frame, wrenches, body, wrench)
    _subtract_tendons(c, frame, wrenches, velocity, acceleration)
    constraints = _subtract_constraints(c, frame, wrenches, multipliers)
    return Reactions(*_stacked(c, _joint_wrenches(c, frame, wrenches)), *_stacked(c, constraints))


class _Wrench(NamedTuple):
    """force (*batch, 3), and its moment (*batch, 3) about the world's origin, world axes."""

    force: jax.Array
    moment: jax.Array


def _inertial_wrenches(c: Call, frame: kin.Frames, velocity: list, accelerated: list) -> list[_Wrench]:
    """Per body, the rate of its momentum less its weight: the sum of all other wrenches on it (Newton and Euler)."""
    system, top = c.system, c.model.topology
    _, ang = (c.join(x, 2) for x in kin.body_velocities(system, frame, velocity))
    lin_acc, ang_acc = (c.join(x, 2) for x in kin.body_accelerations(system, frame, velocity, accelerated))
    pos, rotation = _body_poses(c, frame)
    mass, com, inertia = body_inertia(c.model)
    arm = jnp.einsum("...ij,...j->...i", rotation, com)
    com_acc = lin_acc + jnp.cross(ang_acc, arm) + jnp.cross(ang, jnp.cross(ang, arm))
    factors = c.lanes.split(c.model.body.gravity, 1)
    weight = c.join([1.0 if b.gravity is None else factors[b.gravity] for b in top.bodies])
    force = mass[..., None] * (com_acc - weight[..., None] * c.join(list(system.option.gravity))[..., None, :])
    inertia = rotation @ _symmetric(inertia) @ jnp.swapaxes(rotation, -1, -2)
    spin = jnp.einsum("...ij,...j->...i", inertia, ang)
    moment = jnp.einsum("...ij,...j->...i", inertia, ang_acc) + jnp.cross(ang, spin) + jnp.cross(pos + arm, force)
    return [_Wrench(force[..., i, :], moment[..., i, :]) for i in range(len(top.bodies))]


def _body_poses(c: Call, frame: kin.Frames) -> tuple:
    """Positions (*batch, nbody, 3) and rotation matrices (*batch, nbody, 3, 3) of the bodies."""
    poses = kin.body_poses(c.system, frame)
    return c.join([p.pos for p in poses], 2), c.join([matrix(p.quat) for p in poses], 3)


def _subtract(c: Call, frame: kin.Frames, wrenches: list[_Wrench], body: int, wrench, sign: float = 1.0) -> None:
    """Take a known wrench, about the reference point of the body's tree, off what acts on the body."""
    if body < 0:
        return
    link = c.model.topology.bodies[body].link
    force, moment = c.join(wrench.lin), c.join(wrench.ang)
    if link >= 0:
        moment = moment + jnp.cross(c.join(frame.pose[c.system.tables.root[link]].pos), force)
    old = wrenches[body]
    wrenches[body] = _Wrench(old.force - sign * force, old.moment - sign * moment)


def _subtract_tendons(c: Call, frame: kin.Frames, wrenches: list[_Wrench], velocity: list, acceleration: list) -> None:
    """Take the wrenches of spatial tendons off what acts on their bodies."""
    on_bodies = tendon_wrenches(c.system, frame)
    if not on_bodies:
        return
    tendon = tendons(c.system, frame, c.q)
    actuators = forces_of_actuators(c, frame, tendon)
    forces = smooth_tendon_forces(c.system, frame, tendon, c.v, actuators.force if actuators else [], velocity, acceleration)
    for i, parts in on_bodies.items():
        for part in parts:
            for body, point, sign in zip(part.bodies, part.points, (1.0, -1.0), strict=True):
                if body >= 0:
                    force = sign * c.join(forces[i], 0)[..., None] * c.join(part.force)
                    moment = jnp.cross(c.join(point), force)
                    wrenches[body] = _Wrench(wrenches[body].force - force, wrenches[body].moment - moment)


def _subtract_constraints(c: Call, frame: kin.Frames, wrenches: list[_Wrench], multipliers: list) -> list[_Wrench]:
    """Take the wrenches of the constraints off what acts on their bodies. Returns those on the second bodies, about the second frames."""
    system, infos = c.system, c.model.topology.constraints
    if not active(system):
        return [_Wrench(jnp.zeros(3, c.dtype), jnp.zeros(3, c.dtype))] * len(infos)
    out = []
    y = c.lanes.split(_least_norm(c, holonomic_rows(system, frame), multipliers), 1)
    pairs = loop_wrenches(system, frame, y[len(y) - sum(len(info.rows) for info in infos) :])
    for info, (first, second), (_, end) in zip(infos, pairs, loop_ends(system, frame), strict=True):
        _subtract(c, frame, wrenches, info.bodies[0], first, -1.0)
        _subtract(c, frame, wrenches, info.bodies[1], second)
        force = c.join(second.lin)
        out.append(_Wrench(force, c.join(second.ang) - jnp.cross(c.join(end.x), force)))
    return out


def _joint_wrenches(c: Call, frame: kin.Frames, wrenches: list[_Wrench]) -> list[_Wrench]:
    """Per body, what its joint puts on it, about the origin of its joint frame: from the leaves of the tree to its root."""
    bodies, (pos, rotation) = c.model.topology.bodies, _body_poses(c, frame)
    frames = c.join([list(p) for p in c.lanes.split(c.model.joint.pos, 2)], 2) if c.model.topology.size("nframe") else None
    total, out = list(wrenches), list(wrenches)
    for i in reversed(range(len(bodies))):
        force, moment = total[i]
        origin = _joint_origin(frames, bodies[i].frame, pos[..., i, :], rotation[..., i, :, :])
        out[i] = _Wrench(force, moment - jnp.cross(origin, force))
        if bodies[i].parent >= 0:
            parent = total[bodies[i].parent]
            total[bodies[i].parent] = _Wrench(parent.force + force, parent.moment + moment)
    return out


def _stacked(c: Call, wrenches: list[_Wrench]) -> list[jax.Array]:
    """Forces and moments, (*batch, n, 3) each."""
    parts = [[jnp.broadcast_to(x, (*c.lanes.batch, 3)) for x in xs] for xs in zip(*wrenches, strict=True)] or [[], []]
    return [jnp.stack(xs, -2) if xs else jnp.zeros((*c.lanes.batch, 0, 3), c.dtype) for xs in parts]


def _least_norm(c: Call, rows: list, multipliers: list):
    """Of all multipliers with the same J^T y, the shortest: (*batch, rows)."""
    rows = restricted(rows, free_dofs(c.system))
    dense = [[dict(row).get(dof, 0.0) for dof in range(c.model.nv)] for row in rows]
    jacobian, y = c.join(dense, 2), c.join(multipliers)
    force = jnp.einsum("...rn,...r->...n", jacobian, y)
    inverse = jnp.linalg.pinv(jnp.swapaxes(jacobian, -1, -2), rtol=1e3 * float(jnp.finfo(y.dtype).eps))
    return jnp.einsum("...rn,...n->...r", inverse, force)


def _joint_origin(frames, row: int | None, pos, rotation):
    return pos if row is None else pos + jnp.einsum("...ij,...j->...i", rotation, frames[..., row, :])


def _symmetric(six):
    xx, yy, zz, xy, xz, yz = (six[..., k] for k in range(6))
    return jnp.stack([jnp.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], -2)
