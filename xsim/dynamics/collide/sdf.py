"""Contacts of signed distance functions with each other and with simple shapes.

Source: MuJoCo's documentation, Programming, Extensions, sdf. A and B are the distances of a point from the second and the first surface.
From points of a Halton sequence in the box that the bounding boxes of both have in common, gradient descent minimizes A + B + |max(A, B)|,
and one step more max(A, B). Where that is not positive there is a contact, with the normal grad B / |grad B| - grad A / |grad A|. The steps
are 1, 1/2, 1/4, ... times the gradient, the first by which the function decreases by a tenth of what its gradient says.

A contact has the derivatives of the descent: those of the gradients along the way. The lengths of the steps have none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.distance_functions import distance_function, gradient
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.model.topology import SdfInfo
from xsim.rules import Rules
from xsim.spatial import Component, Vector, apply, apply_inverse, dot, each_row, mat_mul, matrix, normalize, safe_norm, scale, vadd, vsub

BASES = (2, 3, 5)
"""Of the Halton sequences along x, y and z."""
STEPS = tuple(0.5**k for k in range(15))
"""The lengths of steps that are tried, times the gradient."""
DECREASE = 0.1
"""A step is taken if the function decreases by this much of the decrease of its linear approximation."""


class Surface(NamedTuple):
    """A surface that is searched. distance(p), gradient(p) -> (distance, gradient): at points p in its frame. pos, R: the frame in the
    world."""

    distance: Callable[[Vector], Component]
    gradient: Callable[[Vector], tuple[Component, Vector]]
    pos: Vector
    R: tuple


class Box(NamedTuple):
    """Bounding boxes. pos, R: frames in the world. centre, half: in these, m."""

    pos: Vector
    R: tuple
    centre: Vector
    half: Vector


def search_pairs(
    kinds: tuple[str | SdfInfo, str | SdfInfo],
    geoms: tuple[Shape, Shape],
    numbers: tuple[tuple, tuple],
    size: tuple[int, int],
    rules: Rules,
) -> ContactPoint:
    """As `search`, for geoms of two kinds: the names of simple shapes, or signed distance functions. numbers: of these functions. size:
    numbers of points and of iterations."""
    (first, box_1), (second, box_2) = (surface_of(*side, rules) for side in zip(kinds, geoms, numbers, strict=True))
    contact = search(first, second, (box_1, box_2), *size)
    if rules.sdf_as_4_0:
        contact = contact._replace(point=vadd(contact.point, scale(contact.normal, jnp.minimum(contact.distance, 0.0))))
    return contact


def surface_of(kind: str | SdfInfo, geom: Shape, numbers: tuple, rules: Rules) -> tuple[Surface, Box]:
    """Geoms as surfaces, and their bounding boxes. See `search_pairs`."""
    if isinstance(kind, SdfInfo):
        distance = distance_function(kind, numbers)
        R = mat_mul(geom.R, matrix(kind.quat))
        surface = Surface(distance, lambda p: gradient(distance, p), vadd(geom.pos, apply(geom.R, kind.pos)), R)
        return surface, Box(geom.pos, geom.R, kind.centre, kind.half)
    simple = RADIAL_BOX if kind == "box" and rules.sdf_as_4_0 else SIMPLE[kind]
    surface = Surface(lambda p: simple.distance(p, geom.size), lambda p: simple.gradient(p, geom.size), geom.pos, geom.R)
    return surface, Box(geom.pos, geom.R, (0.0, 0.0, 0.0), simple.half(geom.size))


def relative_pose(frame: Surface | Shape | Box, seen_from: Surface | Shape | Box) -> tuple[tuple, Vector]:
    """Rows of the rotation matrix and the position of a frame in another."""
    return tuple(_dots(seen_from.R, k, frame.R) for k in range(3)), apply_inverse(seen_from.R, vsub(frame.pos, seen_from.pos))


def search(first: Surface, second: Surface, boxes: tuple[Box, Box], points: int, iterations: int) -> ContactPoint:
    """The contacts of pairs (pairs, lanes) of surfaces: components (points, pairs, lanes). boxes: around both. points, iterations: of the
    search."""
    start, apart = _start_points(boxes, points)
    pair = _Pair(first, second, *relative_pose(second, first))

    def found_from(x: Vector) -> tuple[Component, Vector, Vector]:
        x = _descend(pair, _SUM, x, iterations)
        x = _descend(pair, _OVERLAP, x, 1)
        (a, gradient_a), (b, gradient_b) = pair.gradients(x)
        distance = jnp.maximum(a, b)
        normal = apply(second.R, normalize(vsub(normalize(gradient_b), normalize(gradient_a))))
        middle = vadd(vadd(second.pos, apply(second.R, x)), scale(normal, -0.5 * distance))
        return distance, middle, normal

    x = apply_inverse(second.R, vsub(start, second.pos))
    shape, dtype = jnp.broadcast_shapes(*map(jnp.shape, x)), jnp.result_type(*x)
    distance, middle, normal = each_row(found_from, tuple(jnp.broadcast_to(p, shape).astype(dtype) for p in x))
    return ContactPoint(jnp.where((distance <= 0) & ~apart, distance, FAR), middle, normal)


def _dots(R: tuple, k: int, S: tuple) -> Vector:
    """Row k of R' S."""
    return tuple(dot([R[i][k] for i in range(3)], [S[i][j] for i in range(3)]) for j in range(3))


def _start_points(boxes: tuple[Box, Box], points: int) -> tuple[Vector, Any]:
    """Points in the world, components (points, pairs, lanes), in the box along the first boxes' axes that both have in common, and whether
    there is none."""
    one, two = boxes
    R, pos = relative_pose(two, one)
    centre = vadd(pos, apply(R, two.centre))
    half = tuple(sum(jnp.abs(r) * h for r, h in zip(row, two.half, strict=True)) for row in R)
    low = tuple(jnp.maximum(c - h, c2 - h2) for c, h, c2, h2 in zip(one.centre, one.half, centre, half, strict=True))
    high = tuple(jnp.minimum(c + h, c2 + h2) for c, h, c2, h2 in zip(one.centre, one.half, centre, half, strict=True))
    apart = (high[0] < low[0]) | (high[1] < low[1]) | (high[2] < low[2])
    parts = [np.array([halton(i, base) for i in range(points)]).reshape(-1, 1, 1) for base in BASES]
    inside = tuple(a + (b - a) * part for a, b, part in zip(low, high, parts, strict=True))
    return vadd(one.pos, apply(one.R, inside)), apart


def halton(index: int, base: int) -> float:
    """Number ``index`` of the Halton sequence of a base."""
    out, weight = 0.0, 1.0
    while index:
        index, digit = divmod(index, base)
        weight /= base
        out += digit * weight
    return out


class _Pair(NamedTuple):
    """Two surfaces, and the pose of the second in the first. Points are in the frame of the second."""

    first: Surface
    second: Surface
    R: tuple
    pos: Vector

    def distances(self, x: Vector) -> tuple[Component, Component]:
        """From the second and from the first surface."""
        return self.second.distance(x), self.first.distance(vadd(apply(self.R, x), self.pos))

    def gradients(self, x: Vector) -> tuple:
        """As `distances`, each with its gradient in the frame of the second."""
        distance, slope = self.first.gradient(vadd(apply(self.R, x), self.pos))
        return self.second.gradient(x), (distance, apply_inverse(self.R, slope))


class _Objective(NamedTuple):
    """A function of the distances from two surfaces, and its gradient from theirs."""

    value: Callable[[Component, Component], Component]
    gradient: Callable[..., Vector]


def _larger(a, b, gradient_a: Vector, gradient_b: Vector) -> Vector:
    return tuple(jnp.where(a > b, x, y) for x, y in zip(gradient_a, gradient_b, strict=True))


def _sum_gradient(a, b, gradient_a: Vector, gradient_b: Vector) -> Vector:
    sign = jnp.where(jnp.maximum(a, b) > 0, 1.0, -1.0)
    return vadd(vadd(gradient_a, gradient_b), scale(_larger(a, b, gradient_a, gradient_b), sign))


_SUM = _Objective(lambda a, b: a + b + jnp.abs(jnp.maximum(a, b)), _sum_gradient)
_OVERLAP = _Objective(jnp.maximum, _larger)


def _descend(pair: _Pair, objective: _Objective, x: Vector, iterations: int) -> Vector:
    """Points after so many steps of gradient descent, or after the first step by which the function does not decrease."""

    def step(carry, _):
        x, ended = carry
        (a, gradient_a), (b, gradient_b) = pair.gradients(x)
        slope = objective.gradient(a, b, gradient_a, gradient_b)
        length, change = _line_search(pair, objective, *jax.lax.stop_gradient((x, slope, objective.value(a, b))))
        moved = tuple(jnp.where(ended, p, p - length * d) for p, d in zip(x, slope, strict=True))
        return (moved, ended | (change > 0)), None

    start = x, jnp.zeros(x[0].shape, bool)
    if iterations == 1:
        return step(start, None)[0][0]
    return jax.lax.scan(step, start, length=iterations)[0][0]


def _line_search(pair: _Pair, objective: _Objective, x: Vector, slope: Vector, value) -> tuple[Component, Component]:
    """The length of a step against the gradient, and the change of the function by it."""
    lengths = np.array(STEPS).reshape(-1, *[1] * jnp.ndim(x[0])).astype(x[0].dtype)
    change = objective.value(*pair.distances(tuple(p - lengths * d for p, d in zip(x, slope, strict=True)))) - value
    enough = change <= -DECREASE * lengths * dot(slope, slope)
    chosen = jnp.where(enough.any(0), jnp.argmax(enough, 0), len(STEPS) - 1)
    length = jnp.asarray(lengths.reshape(-1))[chosen]
    return length, jnp.take_along_axis(change, chosen[None], 0)[0]


# ---- simple shapes -------------------------------------------------------------------------------------------------------------


def _sphere(p: Vector, size: Vector) -> Component:
    return safe_norm(p) - size[0]


def _capsule(p: Vector, size: Vector) -> Component:
    return safe_norm((p[0], p[1], p[2] - jnp.clip(p[2], -size[1], size[1]))) - size[0]


def _ellipsoid(p: Vector, size: Vector) -> Component:
    """Not exact: |p / s| (|p / s| - 1) / |p / s^2|, with semi-axes s."""
    scaled = tuple(x / s for x, s in zip(p, size, strict=True))
    length = safe_norm(scaled)
    slope = safe_norm(tuple(x / s for x, s in zip(scaled, size, strict=True)))
    return length * (length - 1.0) / jnp.where(slope > 0, slope, 1.0)


def _cylinder(p: Vector, size: Vector) -> Component:
    across, along = safe_norm(p[:2]) - size[0], jnp.abs(p[2]) - size[1]
    return jnp.minimum(jnp.maximum(across, along), 0.0) + safe_norm((jnp.maximum(across, 0.0), jnp.maximum(along, 0.0)))


def _box(p: Vector, size: Vector) -> Component:
    beyond = tuple(jnp.abs(x) - s for x, s in zip(p, size, strict=True))
    inside = jnp.minimum(jnp.maximum(jnp.maximum(*beyond[:2]), beyond[2]), 0.0)
    return inside + safe_norm(tuple(jnp.maximum(x, 0.0) for x in beyond))


def _radial_box_gradient(p: Vector, size: Vector) -> tuple[Component, Vector]:
    """Outside as `_box`. Inside, the unit vector that turns from the radial direction in the centre to the normals of the faces, and minus
    the distance along it to the surface."""
    outer, outer_gradient = gradient(lambda x: _box(x, size), p)
    depth = tuple(s - jnp.abs(x) for x, s in zip(p, size, strict=True))
    inside = (depth[0] > 0) & (depth[1] > 0) & (depth[2] > 0)
    depth = tuple(jnp.where(inside, d, 1.0) for d in depth)
    field = normalize(tuple(s / d for d, s in zip(depth, size, strict=True)))
    inner = -jnp.minimum(jnp.minimum(depth[0] / field[0], depth[1] / field[1]), depth[2] / field[2])
    inner_gradient = tuple(jnp.where(x < 0, -f, f) for x, f in zip(p, field, strict=True))
    merged = tuple(jnp.where(inside, a, b) for a, b in zip(inner_gradient, outer_gradient, strict=True))
    return jnp.where(inside, inner, outer), merged


def _unit_gradient(distance: Callable) -> Callable:
    def function(p: Vector, size: Vector) -> tuple[Component, Vector]:
        value, slope = gradient(lambda x: distance(x, size), p)
        return value, normalize(slope)

    return function


def _plain_gradient(distance: Callable) -> Callable:
    return lambda p, size: gradient(lambda x: distance(x, size), p)


class Simple(NamedTuple):
    """A simple shape: distance(p, size), gradient(p, size) and half extents of its bounding box of a size (see `Shape`)."""

    distance: Callable
    gradient: Callable
    half: Callable[[Vector], Vector]


SIMPLE = {
    "sphere": Simple(_sphere, _plain_gradient(_sphere), lambda s: (s[0], s[0], s[0])),
    "capsule": Simple(_capsule, _plain_gradient(_capsule), lambda s: (s[0], s[0], s[0] + s[1])),
    "ellipsoid": Simple(_ellipsoid, _unit_gradient(_ellipsoid), lambda s: s),
    "cylinder": Simple(_cylinder, _plain_gradient(_cylinder), lambda s: (s[0], s[0], s[1])),
    "box": Simple(_box, _plain_gradient(_box), lambda s: s),
}

RADIAL_BOX = Simple(lambda p, size: _radial_box_gradient(p, size)[0], _radial_box_gradient, lambda s: s)
"""The box of MuJoCo 4.0."""
