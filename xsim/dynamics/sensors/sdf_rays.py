"""Rays against signed distance functions: sphere tracing. Sources: MuJoCo's documentation, Programming, Extensions, sdf;
https://en.wikipedia.org/wiki/Ray_marching.

From its origin a ray advances by the distance from the surface, until that is below `NEAR`, at most `STEPS` times. So rays that graze a
surface may miss it. In MuJoCo 4.0 it also advances inside; in 3.2 rays that start there hit nothing. The box around the mesh must be hit
too. The table of a mesh gives too large distances before its box, so that a ray may enter the mesh and hit it where it leaves.

The search has no derivatives. The distance along the ray has those of the root of the distance function.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.collide.distance_functions import distance_function, gradient
from xsim.dynamics.tree.system import System
from xsim.model.topology import SdfInfo
from xsim.spatial import Component, Vector, apply_inverse, dot, matrix, normalize, scale, vadd, vsub

STEPS = 40
NEAR = 1e-7
"""The distance from the surface, m, at which a ray has hit it."""
LOST = 1e6
"""The distance from the surface, m, at which a search ends."""


class DistanceField(NamedTuple):
    """A signed distance function. numbers: of its config. from_inside: whether rays that start inside hit it where they leave it."""

    info: SdfInfo
    numbers: tuple[Component, ...]
    from_inside: bool


def distance_fields(system: System) -> dict[int, DistanceField]:
    """The signed distance functions of a model, by the number of their mesh (`GeomInfo.asset`)."""
    top, numbers = system.topology, system.geom.sdf
    from_inside = top.switches.sdf_as_4_0
    return {info.mesh: DistanceField(info, tuple(numbers[row] for row in info.numbers), from_inside) for info in top.sdfs}


def _in_function_frame(p: Vector, v: Vector, field: DistanceField) -> tuple[Vector, Vector]:
    """Origins and directions of rays, from the frame of the mesh to that of the function."""
    turn = matrix(field.info.quat)
    return apply_inverse(turn, vsub(p, field.info.pos)), apply_inverse(turn, v)


def _distance(field: DistanceField, p: Vector) -> Component:
    return distance_function(field.info, field.numbers)(p)


def distance_in(field: DistanceField, p: Vector) -> Component:
    """The distances of points in the frame of the mesh."""
    return _distance(field, apply_inverse(matrix(field.info.quat), vsub(p, field.info.pos)))


def distance_along(p: Vector, v: Vector, field: DistanceField, hits_box) -> Component:
    """The distances along rays, infinite without a hit. p, v: origins and unit directions in the frame of the mesh. hits_box: whether rays
    hit the box around the mesh."""
    p, v = _in_function_frame(p, v, field)
    fixed_p, fixed_v, numbers = jax.lax.stop_gradient((p, v, field.numbers))
    fixed = field._replace(numbers=numbers)

    def advance(state, _):
        s, searching, found = state
        d = _distance(fixed, vadd(fixed_p, scale(fixed_v, s)))
        s = jnp.where(searching, s + (jnp.abs(d) if field.from_inside else d), s)
        reached = searching & (jnp.abs(d) < NEAR)
        return (s, searching & ~reached & (d <= LOST), found | reached), None

    leaves = jax.tree.leaves((fixed_p, fixed_v, numbers))
    shape, dtype = jnp.broadcast_shapes(*map(jnp.shape, leaves)), jnp.result_type(float, *leaves)
    nothing = jnp.zeros(shape, dtype), jnp.ones(shape, bool), jnp.zeros(shape, bool)
    (s, _, found), _ = jax.lax.scan(advance, nothing, length=STEPS)
    found &= (s >= 0) & hits_box
    s = jnp.where(found, s, 0.0)
    d, slope = gradient(lambda x: _distance(field, x), vadd(p, scale(v, s)))
    rate = jax.lax.stop_gradient(dot(slope, v))
    crosses = jnp.abs(rate) > jnp.finfo(rate.dtype).eps
    change = jnp.where(crosses, (d - jax.lax.stop_gradient(d)) / jnp.where(crosses, rate, 1.0), 0.0)
    return jnp.where(found, s - change, jnp.inf)


def outer_normal(p: Vector, v: Vector, field: DistanceField, t: Component) -> Vector:
    """The outer unit normals in the frame of the mesh where rays hit at t, any vector elsewhere."""
    origin, direction = _in_function_frame(p, v, field)
    _, slope = gradient(lambda x: _distance(field, x), vadd(origin, scale(direction, jnp.where(jnp.isfinite(t), t, 0.0))))
    turn = matrix(field.info.quat)
    return normalize(tuple(dot(row, slope) for row in turn))
