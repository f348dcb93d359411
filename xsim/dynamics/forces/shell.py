"""The plugin ``mujoco.elasticity.shell`` of MuJoCo 3.2: bending of a flex of triangles, flat at rest.

Source: MuJoCo's plugin/elasticity/README.md. The forces are those of `xsim.dynamics.flex.bending`, with the stiffness mu t^3 / 8 over the
area of two neighbouring triangles, the rest shape that of the initial configuration, and no dampers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.flex.bending import HingeMaterial, corners, cotangents, hinge_forces
from xsim.dynamics.flex.structure import SegmentSum, index_array
from xsim.dynamics.forces.passive_plugins import PassiveContext, PassiveForce
from xsim.dynamics.layout import column
from xsim.dynamics.tree.kinematics import lanes_of
from xsim.model.flex_topology import FlexInfo
from xsim.model.topology import PassiveInfo
from xsim.registry import PASSIVE_FORCES, ConfigKey
from xsim.spatial import ZERO3, dot, stage, vsub

NAME = "mujoco.elasticity.shell"
CONFIG = {
    "young": ConfigKey(None),
    "poisson": ConfigKey(None),
    "thickness": ConfigKey(None),
    "damping": ConfigKey((0.0,)),
}
"""Young's modulus (Pa), Poisson's ratio, thickness (m). Damping has no effect."""


class _Shell(NamedTuple):
    """points (n, 4): the points of the hinges, by their numbers in the flex. bodies: those of the points. sum_on_points: of the forces on
    the hinges' first points, their second points, and so on."""

    points: np.ndarray
    bodies: tuple[int, ...]
    sum_on_points: SegmentSum


def _shell(context: PassiveContext, info: PassiveInfo) -> _Shell:
    flex: FlexInfo = next(f for f in context.system.topology.flexes if f.dim == 2 and info.bodies[0] in f.bodies)
    hinges = flex.hinges.value
    return _Shell(index_array(hinges), flex.bodies, SegmentSum(hinges.T.reshape(-1), len(flex.bodies)))


def _positions(context: PassiveContext, bodies: tuple[int, ...]) -> tuple:
    """Components (points, lanes or 1)."""
    return tuple(column([context.poses[body].pos[k] for body in bodies]) for k in range(3))


def _prepare(context: PassiveContext, info: PassiveInfo) -> HingeMaterial:
    shell = _shell(context, info)
    x = corners(shell.points, _positions(context, shell.bodies))
    return _material(x, *(context.config[name] for name in ("young", "poisson", "thickness")))


@stage
def _material(x, young, poisson, thickness) -> HingeMaterial:
    square, *sides = [dot(d, d) for d in (vsub(x[j], x[i]) for i, j in ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3)))]
    c, area, other = cotangents(square, sides)
    k = 1.5 * young / (2.0 * (1.0 + poisson)) * thickness**3 / 12.0 / (area + other)
    return HingeMaterial(c, k, jnp.zeros_like(k))


def _wrenches(context: PassiveContext, info: PassiveInfo) -> dict:
    shell = _shell(context, info)
    world = _positions(context, shell.bodies)
    still = tuple(jnp.zeros_like(x) for x in world)
    forces = hinge_forces(shell.points, context.prepared, 0.0, world, still, (True, False))
    on_points = tuple(shell.sum_on_points(jnp.concatenate([force[k] for force in forces])) for k in range(3))
    lanes = lanes_of(context.system, context.frame)
    components = [list(x if lanes else x[:, 0]) for x in on_points]
    return {body: (tuple(x[i] for x in components), ZERO3) for i, body in enumerate(shell.bodies)}


def _check(spec, bodies: Sequence[int]) -> str | None:
    """What is wrong with the bodies of a shell."""
    flexes = [flex for flex in spec.flexes if flex.dim == 2 and bodies[0] in flex.bodies]
    if not flexes:
        return "its bodies hold no flex of triangles; allowed: those of one flex with dim 2"
    flex = flexes[0]
    if set(flex.bodies) != set(bodies) or len(flex.bodies) != len(bodies) or np.any(flex.pos):
        return f"its bodies are not the vertices of the flex {flex.name!r}; allowed: one body for each vertex, at its place, none pinned"
    return None


PASSIVE_FORCES.register(NAME, PassiveForce(_wrenches, CONFIG, _prepare, _check))
