"""A plane against everything: the points of a shape that are deepest in the half space below the plane's xy.

The normal is the plane's z axis; planes have no end here, whatever their size.
"""

from __future__ import annotations

import itertools

import jax.numpy as jnp

from ...spatial import Vector, apply, apply_inverse, cross, dot, mul, neg, scale, vadd, vsub
from .round import direction
from .shapes import Shape, Touch

X_AXIS: Vector = (1.0, 0.0, 0.0)


def above(a: Shape, point: Vector) -> Touch:
    """A point of the second shape over the plane a."""
    normal = a.axis(2)
    distance = dot(vsub(point, a.pos), normal)
    return Touch(distance, vsub(point, scale(normal, mul(0.5, distance))), normal)


def plane_sphere(a: Shape, b: Shape) -> list[Touch]:
    return [above(a, vsub(b.pos, scale(a.axis(2), b.size[0])))]


def plane_capsule(a: Shape, b: Shape) -> list[Touch]:
    """The balls at both ends, frames along the capsule."""
    axis, down = b.axis(2), scale(a.axis(2), neg(b.size[0]))
    ends = [vadd(vadd(b.pos, scale(axis, s)), down) for s in (b.size[1], neg(b.size[1]))]
    return [above(a, end)._replace(along=axis) for end in ends]


def plane_cylinder(a: Shape, b: Shape) -> list[Touch]:
    """The lowest point of each rim, and two more of the lower rim that make a triangle with the first."""
    normal, axis = a.axis(2), b.axis(2)
    up = dot(normal, axis)
    axis = scale(axis, jnp.where(up > 0, -1.0, 1.0))  # towards the plane
    steepest, _ = direction(vsub(scale(axis, neg(jnp.abs(up))), normal), b.axis(0))
    low, out, side = scale(axis, b.size[1]), scale(steepest, b.size[0]), scale(cross(steepest, axis), b.size[0])
    across = scale(side, 0.75**0.5)
    back = vsub(vadd(b.pos, low), scale(out, 0.5))
    points = [vadd(vadd(b.pos, out), low), vsub(vadd(b.pos, out), low), vadd(back, across), vsub(back, across)]
    return [above(a, point) for point in points]


def plane_box(a: Shape, b: Shape) -> list[Touch]:
    """Of every two opposite corners the one on the plane's side of the centre."""
    halves = [scale(b.axis(k), b.size[k]) for k in range(3)]
    touches = []
    for signs in itertools.product((-1.0, 1.0), repeat=2):
        corner = vadd(vadd(scale(halves[0], signs[0]), scale(halves[1], signs[1])), halves[2])
        below = dot(a.axis(2), corner) <= 0
        touches.append(above(a, vadd(b.pos, scale(corner, jnp.where(below, 1.0, -1.0)))))
    return touches


def plane_ellipsoid(a: Shape, b: Shape) -> list[Touch]:
    """Support point of the ellipsoid: S^2 d / |S d| in its frame, S its half extents, d downwards."""
    down = apply_inverse(b.R, scale(a.axis(2), -1.0))
    unit, _ = direction(tuple(mul(s, d) for s, d in zip(b.size, down, strict=True)), X_AXIS)
    lowest = tuple(mul(s, u) for s, u in zip(b.size, unit, strict=True))
    return [above(a, vadd(b.pos, apply(b.R, lowest)))]
