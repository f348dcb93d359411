"""What joints and constraints put on the bodies they hold."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.call import Call, compiled
from xsim.dynamics.constraints.holonomic import holonomic_rows
from xsim.dynamics.constraints.loop_joints import active, loop_ends, loop_wrenches
from xsim.dynamics.forces.elements import element_wrenches
from xsim.dynamics.forward import smooth
from xsim.dynamics.integration.projection import free_dofs
from xsim.dynamics.linalg.sparse import restricted
from xsim.dynamics.queries import body_inertia
from xsim.dynamics.tree import kinematics as kin
from xsim.model.model import Model, State
from xsim.spatial import matrix

__all__ = ["Reactions", "reactions"]


class Reactions(NamedTuple):
    """Forces (N) and moments (N m), world axes.

    force, moment (*batch, nbody, 3): what a body's joint puts on it, its springs, dampers and drive included, about the origin of the
    joint frame that the body carries. constraint_force, constraint_moment (*batch, nconstraint, 3): what each of the
    ``topology.constraints`` puts on its second body (on the first the opposite, at the same point), about the origin of the second frame.
    """

    force: jax.Array
    moment: jax.Array
    constraint_force: jax.Array
    constraint_moment: jax.Array


@compiled
def reactions(model: Model, state: State, ctrl=None, tau=None) -> Reactions:
    """What joints and constraints put on the bodies in the motion of `smooth_acceleration` (friction and limits left out).

    By the equations of Newton and Euler of every body, from the leaves of the tree to its root. Where holonomic rows depend on each
    other single reactions are not determined; then they are those of the multipliers with the least sum of squares.
    """
    c = Call(model, state.q, state.v, tau, ctrl=ctrl, time=state.time)
    system, top = c.system, model.topology
    frame = kin.frames(system, c.q)
    a, multipliers, *_ = smooth(c)
    own, velocity = kin.velocities(system, frame, c.v)
    accelerated = kin.accelerations(system, frame, c.q, c.v, a, own, velocity)
    poses = kin.body_poses(system, frame)
    _, ang = (c.join(x, 2) for x in kin.body_velocities(system, frame, velocity))
    lin_acc, ang_acc = (c.join(x, 2) for x in kin.body_accelerations(system, frame, velocity, accelerated))
    pos, turn = c.join([p.pos for p in poses], 2), c.join([matrix(p.quat) for p in poses], 3)

    mass, com, inertia = body_inertia(model)
    arm = jnp.einsum("...ij,...j->...i", turn, com)
    factors = c.lanes.split(model.body.gravity, 1)
    weight = c.join([1.0 if b.gravity is None else factors[b.gravity] for b in top.bodies])
    falling = lin_acc + jnp.cross(ang_acc, arm) + jnp.cross(ang, jnp.cross(ang, arm))
    force = mass[..., None] * (falling - weight[..., None] * c.join(list(system.option.gravity))[..., None, :])
    spun = turn @ _symmetric(inertia) @ jnp.swapaxes(turn, -1, -2)
    spin = jnp.einsum("...ij,...j->...i", spun, ang)
    moment = jnp.einsum("...ij,...j->...i", spun, ang_acc) + jnp.cross(ang, spin) + jnp.cross(pos + arm, force)  # about the world's origin

    total = [[force[..., i, :], moment[..., i, :]] for i in range(len(top.bodies))]

    def given(body: int, wrench, sign: float):
        """Leave out what a body gets from elsewhere; wrench: about the reference point of its tree."""
        if body < 0:
            return
        link = top.bodies[body].link
        push, about = c.join(wrench.lin), c.join(wrench.ang)
        if link >= 0:
            about = about + jnp.cross(c.join(frame.pose[system.tables.root[link]].pos), push)
        total[body][0] = total[body][0] - sign * push
        total[body][1] = total[body][1] - sign * about

    for info, wrenches in zip(top.forces, element_wrenches(system, frame, c.q, c.v), strict=True):
        for body, wrench in zip(info.bodies, wrenches, strict=True):
            given(body, wrench, 1.0)
    held = [(jnp.zeros(3, c.dtype),) * 2] * len(top.constraints)
    if active(system):
        held = []
        y = c.lanes.split(_least_norm(c, holonomic_rows(system, frame), multipliers), 1)
        wrenches = loop_wrenches(system, frame, y[len(y) - sum(len(i.rows) for i in top.constraints) :])
        for info, (first, second), (_, end) in zip(top.constraints, wrenches, loop_ends(system, frame), strict=True):
            given(info.bodies[0], first, -1.0)
            given(info.bodies[1], second, 1.0)
            push = c.join(second.lin)
            held.append((push, c.join(second.ang) - jnp.cross(c.join(end.x), push)))
    out: list = [None] * len(top.bodies)
    frames = c.join([list(p) for p in c.lanes.split(model.joint.pos, 2)], 2) if model.topology.size("nframe") else None
    joints = [_joint_origin(frames, b.frame, pos[..., i, :], turn[..., i, :, :]) for i, b in enumerate(top.bodies)]
    for i in reversed(range(len(top.bodies))):
        push, about = total[i]
        out[i] = (push, about - jnp.cross(joints[i], push))
        if top.bodies[i].parent >= 0:
            total[top.bodies[i].parent][0] = total[top.bodies[i].parent][0] + push
            total[top.bodies[i].parent][1] = total[top.bodies[i].parent][1] + about

    def stacked(pairs, k: int):
        parts = [jnp.broadcast_to(p[k], (*c.lanes.batch, 3)) for p in pairs]
        return jnp.stack(parts, -2) if parts else jnp.zeros((*c.lanes.batch, 0, 3), c.dtype)

    return Reactions(stacked(out, 0), stacked(out, 1), stacked(held, 0), stacked(held, 1))


def _least_norm(c: Call, rows: list, multipliers: list):
    """Of all multipliers with the same J^T y, the shortest: (*batch, rows)."""
    rows = restricted(rows, free_dofs(c.system))
    dense = [[dict(row).get(dof, 0.0) for dof in range(c.model.nv)] for row in rows]
    jacobian, y = c.join(dense, 2), c.join(multipliers)
    force = jnp.einsum("...rn,...r->...n", jacobian, y)
    inverse = jnp.linalg.pinv(jnp.swapaxes(jacobian, -1, -2), rtol=1e3 * float(jnp.finfo(y.dtype).eps))
    return jnp.einsum("...rn,...n->...r", inverse, force)


def _joint_origin(frames, row: int | None, pos, turn):
    return pos if row is None else pos + jnp.einsum("...ij,...j->...i", turn, frames[..., row, :])


def _symmetric(six):
    xx, yy, zz, xy, xz, yz = (six[..., k] for k in range(6))
    return jnp.stack([jnp.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], -2)
