"""Masses and centres of mass of the subtrees of bodies."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.kinematics import Frames, body_poses
from xsim.dynamics.tree.system import System
from xsim.spatial import ZERO3, Inertia, add, inertia_move, matrix, mul, scale, stage, vadd


class Mass(NamedTuple):
    """mass (kg) and first moment (mass times centre of mass, world axes, kg m)."""

    mass: object
    first: tuple


@stage
def _mass(pose, inertia: Inertia) -> Mass:
    return Mass(inertia.mass, vadd(scale(pose.pos, inertia.mass), inertia_move(matrix(pose.quat), ZERO3, inertia).first))


@stage
def _sum(a: Mass, b: Mass) -> Mass:
    return Mass(add(a.mass, b.mass), vadd(a.first, b.first))


@stage
def _centre(m: Mass, origin):
    """Centre of mass; the origin of the body if it has no mass."""
    has_mass = jnp.greater(m.mass, 1e-15)
    inverse = jnp.where(has_mass, 1.0 / jnp.where(has_mass, m.mass, 1.0), 0.0)
    return tuple(jnp.where(has_mass, mul(x, inverse), o) for x, o in zip(m.first, origin, strict=True))


def subtree_masses(system: System, frame: Frames) -> list[Mass]:
    """Mass of the subtree of every body, then of the world."""
    masses = [_mass(pose, inertia) for pose, inertia in zip(body_poses(system, frame), system.body.inertia, strict=True)]
    return subtree_sums(system, masses, _sum, Mass(0.0, ZERO3))


def subtree_coms(system: System, frame: Frames) -> list:
    """Centre of mass of the subtree of every body, then of the world; world frame, m."""
    origins = [pose.pos for pose in body_poses(system, frame)]
    return [_centre(m, o) for m, o in zip(subtree_masses(system, frame), [*origins, ZERO3], strict=True)]


def subtree_sums(system: System, values: list, plus, zero) -> list:
    """The sum of the values over the subtree of every body, then over all bodies. values: per body. plus, zero: addition and its zero."""
    out, world = list(values), zero
    for i in reversed(range(len(out))):
        parent = system.topology.bodies[i].parent
        if parent >= 0:
            out[parent] = plus(out[parent], out[i])
        else:
            world = plus(world, out[i])
    return [*out, world]
