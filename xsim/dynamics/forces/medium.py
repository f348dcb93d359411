"""Forces of the medium around the bodies: which of the two models of `fluid` a body has, and its force on the dofs."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.forces.fluid import added_mass, box_wrench, ellipsoid_wrench, semi_axes
from xsim.dynamics.tree.frames import in_link
from xsim.dynamics.tree.kinematics import Frames, gather, point_velocity, velocities
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
def _seen(R, origin, place: Pose, velocity: Motion, wind) -> tuple:
    """A frame in a link: its axes, its origin from the reference point, its velocity relative to the medium in its own axes."""
    x = vadd(origin, apply(R, place.pos))
    own = matrix(place.quat)
    turn = tuple(zip(*(apply(R, column) for column in zip(*own, strict=True)), strict=True))
    lin = vsub(point_velocity(velocity, x), wind)
    return turn, x, Motion(apply_inverse(turn, velocity.ang), apply_inverse(turn, lin))


@stage
def _about_reference(turn, x, wrench: Force) -> Force:
    force = apply(turn, wrench.lin)
    return Force(vadd(apply(turn, wrench.ang), cross(x, force)), force)


@stage
def _principal(offset: Pose, inertia: Inertia, axes) -> tuple:
    """The frame of the principal axes at the centre of mass in the link, mass and principal moments."""
    heavy = jnp.greater(inertia.mass, 0)
    com = scale(inertia.first, jnp.where(heavy, 1.0 / jnp.where(heavy, inertia.mass, 1.0), 0.0))
    at_com = inertia_move(AXES, tuple(-x for x in com), inertia)
    moments = inertia_move(matrix(quat_conj(axes)), ZERO3, at_com).second[:3]
    return compose(offset, Pose(axes, com)), inertia.mass, moments


def medium_force(system: System, frame: Frames, v) -> list:
    """Generalized force of the medium: on the ellipsoids of the geoms of a body one of which asks for them, else on the body's box."""
    top = system.topology
    force: list = [None] * len(top.links)
    if not system.medium.density:
        return [0.0] * len(v)
    density, viscosity, wind = (x[0] for x in (system.medium.density, system.medium.viscosity, system.medium.wind))
    _, velocity = velocities(system, frame, v)
    for index, body in enumerate(top.bodies):
        if body.link < 0:
            continue
        own = []
        ellipsoids = [g for g in top.geoms if g.body == index and g.fluid is not None]
        for geom in ellipsoids:
            place = in_link(system, index, system.geom.pos[geom.row], system.geom.quat[geom.row])
            turn, x, moving = _seen(frame.R[body.link], frame.origin[body.link], place, velocity[body.link], wind)
            axes = geom.extents or semi_axes(geom.shape, system.geom.size[geom.row])
            wrench = ellipsoid_wrench(axes, system.geom.fluid[geom.fluid], added_mass(axes), moving, density, viscosity)
            own.append(_about_reference(turn, x, wrench))
        if not ellipsoids:
            place, mass, moments = _principal(system.body.offset[index], system.body.inertia[index], body.principal)
            turn, x, moving = _seen(frame.R[body.link], frame.origin[body.link], place, velocity[body.link], wind)
            own.append(_about_reference(turn, x, box_wrench(mass, moments, moving, density, viscosity)))
        for one in own:
            force[body.link] = one if force[body.link] is None else madd(force[body.link], one)
    return gather(system, frame, force)
