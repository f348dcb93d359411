"""Collisions of spheres and capsules with each other, and of spheres with cylinders and boxes, in closed form.

Normals point from the first geom to the second. If the direction is not defined (coincident centres), a fixed one is used.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.rules import RULES, Rules
from xsim.spatial import Component, Vector, add, apply, apply_inverse, cross, dot, mul, neg, scale, stage, sub, vadd, vsub

X_AXIS: Vector = (1.0, 0.0, 0.0)
PARALLEL_CAPSULES = 1e-4  # sine of the angle, of MuJoCo 4.0


def rounding(x: Component) -> float:
    """The machine epsilon of x's type."""
    return float(jnp.finfo(jnp.result_type(x)).eps)


def pick(condition: Component, a: Vector, b: Vector) -> Vector:
    """The vector a if the condition holds, else b."""
    return tuple(jnp.where(condition, x, y) for x, y in zip(a, b, strict=True))


def direction(a: Vector, otherwise: Vector) -> tuple[Vector, Component]:
    """The unit vector along a, and |a|. If a is zero up to rounding, the unit vector ``otherwise`` and the projection of a on it."""
    square = jnp.asarray(dot(a, a))
    nonzero = square > (4.0 * rounding(square)) ** 2
    length = jnp.sqrt(jnp.where(nonzero, square, 1.0))
    return pick(nonzero, tuple(x / length for x in a), otherwise), jnp.where(nonzero, length, dot(a, otherwise))


def safe_quotient(a: Component, b: Component, otherwise: float = 0.0) -> Component:
    """a / b, or ``otherwise`` if b is nearly 0. The derivative is finite too."""
    small = jnp.abs(b) < 1e-18
    return jnp.where(small, otherwise, a / jnp.where(small, 1.0, b))


def perpendicular(a: Shape, b: Shape) -> Vector:
    """MuJoCo's normal for coincident centres: perpendicular to both z axes. If these are parallel, the world's x axis."""
    return direction(cross(a.axis(2), b.axis(2)), X_AXIS)[0]


def ball_contact(center: Vector, radius: Component, normal: Vector, gap: Component) -> ContactPoint:
    """The contact of a ball and a second shape. normal: the direction to it. gap: its distance from the ball's centre."""
    distance = sub(gap, radius)
    return ContactPoint(distance, vadd(center, scale(normal, add(radius, mul(0.5, distance)))), normal)


def ball_ball(center1: Vector, radius1: Component, center2: Vector, radius2: Component, otherwise: Vector) -> ContactPoint:
    """The contact of two balls. otherwise: the normal if their centres coincide."""
    normal, length = direction(vsub(center2, center1), otherwise)
    return ball_contact(center1, radius1, normal, sub(length, radius2))


@collider("sphere", "sphere")
def sphere_sphere(a: Shape, b: Shape) -> list[ContactPoint]:
    return [ball_ball(a.pos, a.size[0], b.pos, b.size[0], perpendicular(a, b))]


@collider("sphere", "capsule")
def sphere_capsule(a: Shape, b: Shape) -> list[ContactPoint]:
    axis = b.axis(2)
    x = jnp.clip(dot(axis, vsub(a.pos, b.pos)), neg(b.size[1]), b.size[1])
    return [ball_ball(a.pos, a.size[0], vadd(b.pos, scale(axis, x)), b.size[0], perpendicular(a, b))]


class Nearest(NamedTuple):
    """The nearest points x half1 and offset + y half2 of two segments, with x and y in [-1, 1].

    line: x of the nearest points of the two infinite lines.
    parallel: whether the segments are parallel.
    """

    x: Component
    y: Component
    line: Component
    parallel: Component


@stage
def between_segments(half1: Vector, half2: Vector, offset: Vector, parallel_sine: float = 0.0) -> Nearest:
    """The nearest points of two segments (Ericson 2005, section 5.1.9).

    half1, half2: vectors from the centres to the ends. offset: from the first centre to the second. x is that of the two infinite lines,
    clipped. y is the best for this x, clipped. If y was clipped, x is replaced by the best for this y. parallel_sine: sine of the angle up
    to which they count as parallel.
    """
    a, b, c = dot(half1, half1), dot(half1, half2), dot(half2, half2)
    u, v = dot(half1, offset), neg(dot(half2, offset))
    determinant = sub(mul(a, c), mul(b, b))
    least, relative = 1e-30 if parallel_sine else 1e-15, max(parallel_sine**2, 4.0 * rounding(determinant))
    parallel = jnp.abs(determinant) < jnp.maximum(least, relative * mul(a, c))
    line = jnp.where(parallel, 0.0, add(mul(c, u), mul(b, v)) / jnp.where(parallel, 1.0, determinant))
    x = jnp.clip(line, -1.0, 1.0)
    y = safe_quotient(add(v, mul(b, x)), c)
    clipped = jnp.clip(y, -1.0, 1.0)
    revised = jnp.clip(safe_quotient(add(u, mul(b, clipped)), a), -1.0, 1.0)
    return Nearest(jnp.where(jnp.abs(y) > 1, revised, x), clipped, line, parallel)


@collider("capsule", "capsule", contacts=2, options=("margin", "rules"))
def capsule_capsule(a: Shape, b: Shape, margin: Component | None = None, rules: Rules = RULES["3.2"]) -> list[ContactPoint]:
    """The nearest points of the two segments. Of parallel ones two contacts, at the ends of what is next to each other.

    By the rules of MuJoCo 3.2 the candidates are then the ends of the first segment, then those of the second, each with the nearest point
    of the other segment. The first two candidates within the margin are used."""
    half1, half2 = scale(a.axis(2), a.size[1]), scale(b.axis(2), b.size[1])
    offset = vsub(b.pos, a.pos)
    if rules.capsules_touch_at_overlap:
        x, y, _, parallel = between_segments(half1, half2, offset, PARALLEL_CAPSULES)
        first, second = _overlap(half1, half2, offset)
    else:
        x, y, _, parallel = between_segments(half1, half2, offset)
        first, second = _ends(half1, half2, offset, add(a.size[0], b.size[0]), margin)
    otherwise = perpendicular(a, b)

    def contact(x, y):
        return ball_ball(vadd(a.pos, scale(half1, x)), a.size[0], vadd(b.pos, scale(half2, y)), b.size[0], otherwise)

    contact1 = contact(jnp.where(parallel, first[0], x), jnp.where(parallel, first[1], y))
    contact2 = contact(*second)
    return [contact1, contact2._replace(distance=jnp.where(parallel, contact2.distance, FAR))]


def _overlap(half1: Vector, half2: Vector, offset: Vector) -> tuple[tuple, tuple]:
    """The two contacts (x, y) of parallel segments: the ends of the second one with the nearest points of the first one's line; where these
    are beyond the first one, its end with the nearest point of the second one."""
    a, b, c = dot(half1, half1), dot(half1, half2), dot(half2, half2)
    u, v = dot(half1, offset), neg(dot(half2, offset))
    side, out = jnp.where(b < 0, -1.0, 1.0), []
    for end in (neg(side), side):
        line = safe_quotient(add(u, mul(b, end)), a)
        x = jnp.clip(line, -1.0, 1.0)
        out.append((x, jnp.where(line == x, end, jnp.clip(safe_quotient(add(v, mul(b, x)), c), -1.0, 1.0))))
    return out[0], out[1]


def _ends(half1: Vector, half2: Vector, offset: Vector, radii: Component, margin: Component | None) -> tuple[tuple, tuple]:
    """The two contacts (x, y) of parallel segments. radii: sum of both radii."""
    a, b, c = dot(half1, half1), dot(half1, half2), dot(half2, half2)
    u, v = dot(half1, offset), neg(dot(half2, offset))
    points = [(end, jnp.clip(safe_quotient(add(v, mul(b, end)), c), -1.0, 1.0)) for end in (1.0, -1.0)]
    if margin is None:
        return points[0], points[1]
    points += [(jnp.clip(safe_quotient(add(u, mul(b, end)), a), -1.0, 1.0), end) for end in (1.0, -1.0)]
    first, second, count = points[0], points[1], 0
    for x, y in points:
        gap = vsub(vadd(offset, scale(half2, y)), scale(half1, x))
        near = dot(gap, gap) <= (margin + radii) ** 2
        first = tuple(jnp.where(near & (count == 0), new, old) for new, old in zip((x, y), first, strict=True))
        second = tuple(jnp.where(near & (count == 1), new, old) for new, old in zip((x, y), second, strict=True))
        count = count + near
    return first, second


@collider("sphere", "cylinder")
def sphere_cylinder(a: Shape, b: Shape) -> list[ContactPoint]:
    """The nearest point of the cylinder. From inside, the nearest point of the nearer of its side and its cap."""
    axis, radius, half = b.axis(2), b.size[0], b.size[1]
    offset = vsub(a.pos, b.pos)
    x = dot(axis, offset)
    outward, r = direction(vsub(offset, scale(axis, x)), b.axis(0))
    axial, radial = sub(jnp.abs(x), half), sub(r, radius)
    inside = (axial < 0) & (radial < 0)
    cap = axial > radial
    flat, gap = direction((jnp.maximum(axial, 0.0), jnp.maximum(radial, 0.0), 0.0), (0.0, 1.0, 0.0))
    flat = pick(inside, (jnp.where(cap, 1.0, 0.0), jnp.where(cap, 0.0, 1.0), 0.0), flat)
    gap = jnp.where(inside, jnp.maximum(axial, radial), gap)
    outward_normal = vadd(scale(axis, flat[0] * jnp.where(x > 0, 1.0, -1.0)), scale(outward, flat[1]))
    return [ball_contact(a.pos, a.size[0], scale(outward_normal, -1.0), gap)]


@stage
def ball_box(center: Vector, radius: Component, b: Shape) -> ContactPoint:
    """The contact of a ball and a box, at the nearest point of the box. From inside, at the nearest face."""
    local = apply_inverse(b.R, vsub(center, b.pos))
    nearest = tuple(jnp.clip(x, neg(s), s) for x, s in zip(local, b.size, strict=True))
    toward, gap = direction(vsub(nearest, local), (0.0, 0.0, 0.0))
    outside = dot(toward, toward) > 0
    inward, beyond = nearest_face(local, b.size)
    normal = pick(outside, toward, inward)
    return ball_contact(center, radius, apply(b.R, normal), jnp.where(outside, gap, beyond))


def nearest_face(x: Vector, half: Vector) -> tuple[Vector, Component]:
    """Of the faces of a box with these half extents the one whose plane the point x is farthest outside of, or least inside: its inward
    normal, and how far outside x is, negative inside. Box's axes."""
    over = [jnp.abs(coordinate) - s for coordinate, s in zip(x, half, strict=True)]
    beyond = jnp.maximum(jnp.maximum(over[0], over[1]), over[2])
    face = [over[0] == beyond, (over[1] == beyond) & (over[0] != beyond)]
    face = [*face, ~(face[0] | face[1])]
    inward = tuple(jnp.where(f, jnp.where(coordinate > 0, -1.0, 1.0), 0.0) for f, coordinate in zip(face, x, strict=True))
    return inward, beyond


@collider("sphere", "box")
def sphere_box(a: Shape, b: Shape) -> list[ContactPoint]:
    return [ball_box(a.pos, a.size[0], b)]
