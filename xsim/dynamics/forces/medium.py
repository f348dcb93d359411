"""Generalized force of the fluid (MJCF: the medium), by the two models of `fluid`, and its damping."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.forces.fluid import added_mass, box_wrench, ellipsoid_drag, ellipsoid_wrench, semi_axes
from xsim.dynamics.linalg.sparse import Quadratic, add_pair
from xsim.dynamics.tree.frames import pose_in_link
from xsim.dynamics.tree.kinematics import Frames, generalized_force, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import (
    ZERO3,
    Force,
    Inertia,
    Motion,
    Pose,
    add,
    apply,
    apply_inverse,
    compose,
    cross,
    dot,
    inertia_move,
    madd,
    matrix,
    quat_conj,
    scale,
    stage,
    vadd,
    vsub,
)

AXES = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


@stage
def _relative_velocity(R, origin, pose: Pose, velocity: Motion, wind) -> tuple:
    """Axes of a frame at a pose in its link, its origin from the reference point, and its velocity relative to the fluid in these axes."""
    x = vadd(origin, apply(R, pose.pos))
    in_link = matrix(pose.quat)
    axes = tuple(zip(*(apply(R, column) for column in zip(*in_link, strict=True)), strict=True))
    lin = vsub(point_velocity(velocity, x), wind)
    return axes, x, Motion(apply_inverse(axes, velocity.ang), apply_inverse(axes, lin))


@stage
def _about_reference(axes, x, wrench: Force) -> Force:
    """A wrench at x, given in these axes, about the reference point."""
    force = apply(axes, wrench.lin)
    return Force(vadd(apply(axes, wrench.ang), cross(x, force)), force)


@stage
def _principal(offset: Pose, inertia: Inertia, axes) -> tuple:
    """Pose of the principal axes of inertia in the link, mass, principal moments of inertia. axes: their orientation in the body."""
    has_mass = jnp.greater(inertia.mass, 0)
    com = scale(inertia.first, jnp.where(has_mass, 1.0 / jnp.where(has_mass, inertia.mass, 1.0), 0.0))
    at_com = inertia_move(AXES, tuple(-x for x in com), inertia)
    moments = inertia_move(matrix(quat_conj(axes)), ZERO3, at_com).second[:3]
    return compose(offset, Pose(axes, com)), inertia.mass, moments


class Immersed(NamedTuple):
    """A box or an ellipsoid on which the fluid acts.

    * link: it moves with. axes: its axes in the world. x: its centre, from the reference point of its tree.
    * velocity: relative to the fluid, in its axes.
    * wrench, drag: velocity -> `Force` in its axes, about its centre; drag: without lift and added mass.
    """

    link: int
    axes: tuple
    x: tuple
    velocity: Motion
    wrench: Callable
    drag: Callable


def _immersed(system: System, frame: Frames, v) -> list[Immersed]:
    """A body with geoms that have fluid coefficients uses the ellipsoid model for these geoms. Any other body uses the box model."""
    top, out = system.topology, []
    if not system.medium.density:
        return out
    density, viscosity, wind = (x[0] for x in (system.medium.density, system.medium.viscosity, system.medium.wind))
    _, velocity = velocities(system, frame, v)
    for index, body in enumerate(top.bodies):
        if body.link < 0:
            continue
        moving = frame.R[body.link], frame.origin[body.link]
        ellipsoids = [g for g in top.geoms if g.body == index and g.fluid is not None]
        for geom in ellipsoids:
            pose = pose_in_link(system, index, system.geom.pos[geom.row], system.geom.quat[geom.row])
            at = _relative_velocity(*moving, pose, velocity[body.link], wind)
            axes = geom.extents or semi_axes(geom.shape, system.geom.size[geom.row])
            law = functools.partial(_ellipsoid_law, axes, system.geom.fluid[geom.fluid], density, viscosity)
            out.append(Immersed(body.link, *at, law(ellipsoid_wrench), law(ellipsoid_drag)))
        if not ellipsoids:
            pose, *numbers = _principal(system.body.offset[index], system.body.inertia[index], body.principal)
            at = _relative_velocity(*moving, pose, velocity[body.link], wind)
            law = functools.partial(_box_law, numbers, density, viscosity)
            out.append(Immersed(body.link, *at, law, law))
    return out


def _box_law(numbers, density, viscosity, velocity: Motion) -> Force:
    return box_wrench(*numbers, velocity, density, viscosity)


def _ellipsoid_law(axes, coefficients, density, viscosity, wrench: Callable) -> Callable:
    middle = (added_mass(axes),) if wrench is ellipsoid_wrench else ()
    return lambda velocity: wrench(axes, coefficients, *middle, velocity, density, viscosity)


def medium_force(system: System, frame: Frames, v) -> list:
    """Generalized force (nv) of the fluid."""
    force: list = [None] * len(system.topology.links)
    immersed = _immersed(system, frame, v)
    if not immersed:
        return [0.0] * len(v)
    for part in immersed:
        wrench = _about_reference(part.axes, part.x, part.wrench(part.velocity))
        force[part.link] = wrench if force[part.link] is None else madd(force[part.link], wrench)
    return generalized_force(system, frame, force)


def drag_damping(system: System, frame: Frames, v, out: Quadratic) -> None:
    """Add minus the derivative of drag with respect to the velocities (nv), its symmetric part (MuJoCo's integrator discrete)."""
    for part in _immersed(system, frame, v):
        dofs = system.tables.chain[part.link]
        entries = _along_dofs(part.axes, part.x, [frame.subspace[dof] for dof in dofs], _damping(part))
        for i, row in zip(dofs, entries, strict=True):
            out.diagonal[i] = add(out.diagonal[i], row[-1])
            for j, x in zip(dofs, row[:-1], strict=False):
                add_pair(out, i, j, x)


def _damping(part: Immersed) -> list:
    """Minus the derivatives of the force of drag with respect to the velocity, and of its moment with respect to the angular velocity:
    the symmetric parts, two matrices (3, 3) in the axes of the part."""
    columns, velocity = [], jax.tree.map(jnp.asarray, part.velocity)
    for axis in AXES:
        units = (tuple(jnp.full_like(x, e) for x, e in zip(own, axis, strict=True)) for own in velocity)
        columns.append(jax.jvp(part.drag, (velocity,), (Motion(*units),))[1])
    return [_minus_symmetric_part(block) for block in ([c.lin for c in columns], [c.ang for c in columns])]


@stage
def _minus_symmetric_part(columns) -> list:
    return [[-0.5 * (columns[i][j] + columns[j][i]) for j in range(3)] for i in range(3)]


@stage
def _along_dofs(axes, x, subspaces, blocks) -> list:
    """The lower triangle of the damping of the dofs, from that of the velocity of x and of the angular velocity in ``axes``."""
    motions = [[apply_inverse(axes, point_velocity(s, x)), apply_inverse(axes, s.ang)] for s in subspaces]
    forces = [[apply(block, y) for block, y in zip(blocks, motion, strict=True)] for motion in motions]
    return [[add(dot(lin, force), dot(ang, moment)) for force, moment in forces[: i + 1]] for i, (lin, ang) in enumerate(motions)]
