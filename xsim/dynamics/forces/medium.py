"""Generalized force of the fluid (MJCF: the medium), by the two models of `fluid`."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.forces.fluid import added_mass, box_wrench, ellipsoid_wrench, semi_axes
from xsim.dynamics.tree.frames import pose_in_link
from xsim.dynamics.tree.kinematics import Frames, generalized_force, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import (
    ZERO3,
    Force,
    Inertia,
    Motion,
    Pose,
    apply,
    apply_inverse,
    compose,
    cross,
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


def medium_force(system: System, frame: Frames, v) -> list:
    """Generalized force (nv) of the fluid.

    A body with geoms that have fluid coefficients uses the ellipsoid model for these geoms. Any other body uses the box model."""
    top = system.topology
    force: list = [None] * len(top.links)
    if not system.medium.density:
        return [0.0] * len(v)
    density, viscosity, wind = (x[0] for x in (system.medium.density, system.medium.viscosity, system.medium.wind))
    _, velocity = velocities(system, frame, v)
    for index, body in enumerate(top.bodies):
        if body.link < 0:
            continue
        wrenches = []
        ellipsoids = [g for g in top.geoms if g.body == index and g.fluid is not None]
        for geom in ellipsoids:
            pose = pose_in_link(system, index, system.geom.pos[geom.row], system.geom.quat[geom.row])
            rotation, x, relative = _relative_velocity(frame.R[body.link], frame.origin[body.link], pose, velocity[body.link], wind)
            axes = geom.extents or semi_axes(geom.shape, system.geom.size[geom.row])
            wrench = ellipsoid_wrench(axes, system.geom.fluid[geom.fluid], added_mass(axes), relative, density, viscosity)
            wrenches.append(_about_reference(rotation, x, wrench))
        if not ellipsoids:
            pose, mass, moments = _principal(system.body.offset[index], system.body.inertia[index], body.principal)
            rotation, x, relative = _relative_velocity(frame.R[body.link], frame.origin[body.link], pose, velocity[body.link], wind)
            wrenches.append(_about_reference(rotation, x, box_wrench(mass, moments, relative, density, viscosity)))
        for wrench in wrenches:
            force[body.link] = wrench if force[body.link] is None else madd(force[body.link], wrench)
    return generalized_force(system, frame, force)
