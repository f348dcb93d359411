"""Bodies one by one, welded ones too: their inertias in the world, and sums over the bodies that hang on one."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.kinematics import Frames, body_poses
from xsim.dynamics.tree.system import System
from xsim.spatial import ZERO3, Inertia, add, inertia_move, matrix, mul, scale, stage, vadd


class Mass(NamedTuple):
    """mass and first moment (mass times centre, world)."""

    mass: object
    first: tuple


@stage
def _mass(pose, inertia: Inertia) -> Mass:
    return Mass(inertia.mass, vadd(scale(pose.pos, inertia.mass), inertia_move(matrix(pose.quat), ZERO3, inertia).first))


@stage
def _sum(a: Mass, b: Mass) -> Mass:
    return Mass(add(a.mass, b.mass), vadd(a.first, b.first))


@stage
def _centre(m: Mass, own):
    """Centre of mass; a body's own origin where there is none."""
    some = jnp.greater(m.mass, 1e-15)
    share = jnp.where(some, 1.0 / jnp.where(some, m.mass, 1.0), 0.0)
    return tuple(jnp.where(some, mul(x, share), o) for x, o in zip(m.first, own, strict=True))


def subtree_masses(system: System, frame: Frames) -> list[Mass]:
    """Of every body, with all that hangs on it; the last entry is the world's."""
    own = [_mass(pose, inertia) for pose, inertia in zip(body_poses(system, frame), system.body.inertia, strict=True)]
    return sums(system, own, _sum, Mass(0.0, ZERO3))


def subtree_coms(system: System, frame: Frames) -> list:
    """Centres of mass of `subtree_masses`, world."""
    origins = [pose.pos for pose in body_poses(system, frame)]
    return [_centre(m, o) for m, o in zip(subtree_masses(system, frame), [*origins, ZERO3], strict=True)]


def sums(system: System, own: list, plus, nothing) -> list:
    """Of every body, the sum over itself and all bodies that hang on it; then that of all bodies."""
    out, world = list(own), nothing
    for i in reversed(range(len(out))):
        parent = system.topology.bodies[i].parent
        if parent >= 0:
            out[parent] = plus(out[parent], out[i])
        else:
            world = plus(world, out[i])
    return [*out, world]
