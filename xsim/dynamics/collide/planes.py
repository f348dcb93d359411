"""A plane against everything: the points of a shape that are deepest in the half space below the plane's xy.

The normal is the plane's z axis; planes have no end here, whatever their size.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.hulls import Hull, polygons
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.dynamics.collide.spheres_capsules import direction
from xsim.spatial import Vector, apply, apply_inverse, cross, dot, mul, neg, scale, vadd, vsub

X_AXIS: Vector = (1.0, 0.0, 0.0)


def above(a: Shape, point: Vector) -> ContactPoint:
    """A point of the second shape over the plane a."""
    normal = a.axis(2)
    distance = dot(vsub(point, a.pos), normal)
    return ContactPoint(distance, vsub(point, scale(normal, mul(0.5, distance))), normal)


@collider("plane", "sphere")
def plane_sphere(a: Shape, b: Shape) -> list[ContactPoint]:
    return [above(a, vsub(b.pos, scale(a.axis(2), b.size[0])))]


@collider("plane", "capsule", contacts=2)
def plane_capsule(a: Shape, b: Shape) -> list[ContactPoint]:
    """The balls at both ends, frames along the capsule."""
    axis, down = b.axis(2), scale(a.axis(2), neg(b.size[0]))
    ends = [vadd(vadd(b.pos, scale(axis, s)), down) for s in (b.size[1], neg(b.size[1]))]
    return [above(a, end)._replace(tangent_hint=axis) for end in ends]


@collider("plane", "cylinder", contacts=4)
def plane_cylinder(a: Shape, b: Shape) -> list[ContactPoint]:
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


@collider("plane", "box", contacts=4)
def plane_box(a: Shape, b: Shape) -> list[ContactPoint]:
    """Of every two opposite corners the one on the plane's side of the centre."""
    halves = [scale(b.axis(k), b.size[k]) for k in range(3)]
    touches = []
    for signs in itertools.product((-1.0, 1.0), repeat=2):
        corner = vadd(vadd(scale(halves[0], signs[0]), scale(halves[1], signs[1])), halves[2])
        below = dot(a.axis(2), corner) <= 0
        touches.append(above(a, vadd(b.pos, scale(corner, jnp.where(below, 1.0, -1.0)))))
    return touches


@collider("plane", "ellipsoid")
def plane_ellipsoid(a: Shape, b: Shape) -> list[ContactPoint]:
    """Support point of the ellipsoid: S^2 d / |S d| in its frame, S its half extents, d downwards."""
    down = apply_inverse(b.R, scale(a.axis(2), -1.0))
    unit, _ = direction(tuple(mul(s, d) for s, d in zip(b.size, down, strict=True)), X_AXIS)
    lowest = tuple(mul(s, u) for s, u in zip(b.size, unit, strict=True))
    return [above(a, vadd(b.pos, apply(b.R, lowest)))]


# ---- meshes ------------------------------------------------------------------------------------------------------------------


class Corners(NamedTuple):
    """The corners of a hull's faces, a row for each. first: its vertex (r,). normal: of the face, outward (r, 3). vertices: that one
    and the others of the quadrilateral of the largest area among the face's vertices; a triangle's first is there twice (r, 4)."""

    first: np.ndarray
    normal: np.ndarray
    vertices: np.ndarray


@collider("plane", "mesh", contacts=4)
def plane_mesh(a: Shape, b: Shape) -> list[ContactPoint]:
    """Corners of the face that is the most parallel to the plane of those at the deepest vertex, without those above the geom's origin.

    As MuJoCo 4.0; 3.2 takes the deepest vertex and the first 2 of its neighbours in the order of Qhull, which are apart.
    """
    corners, vertices = _corners(b.data), b.data.vertices
    down = apply_inverse(b.R, scale(a.axis(2), -1.0))
    numbers = jax.lax.stop_gradient(jnp.stack(jnp.broadcast_arrays(*down, *b.size)))
    down_, size = numbers[:3], numbers[3:]
    deepest = jnp.argmax(_along(vertices, down_ * size), 0)
    square = _along(corners.normal**2, 1.0 / size**2)
    parallel = _along(corners.normal, down_ / size) / jnp.sqrt(jnp.where(square > 0, square, 1.0))
    there = corners.first.reshape(-1, *[1] * deepest.ndim) == deepest
    row = jnp.argmax(jnp.where(there, parallel, -2.0), 0)
    chosen = jnp.asarray(corners.vertices)[row]
    places = jnp.asarray(vertices, numbers.dtype)[chosen]
    touches = []
    for k in range(4):
        arm = apply(b.R, tuple(mul(s, places[..., k, i]) for i, s in enumerate(b.size)))
        touch = above(a, vadd(b.pos, arm))
        if k:
            out = (dot(arm, a.axis(2)) > 0) | (chosen[..., k] == chosen[..., 0])
            touch = touch._replace(distance=jnp.where(out, FAR, touch.distance))
        touches.append(touch)
    return touches


def _along(table: np.ndarray, v) -> jax.Array:
    """Rows (r, 3) times vectors (3, ...): (r, ...)."""
    return sum(table[:, k].reshape(-1, *[1] * (v.ndim - 1)).astype(v.dtype) * v[k] for k in range(3))


@functools.lru_cache(maxsize=256)
def _corners(hull: Hull) -> Corners:
    rows = []
    for normal, ring in polygons(hull):
        for k in range(len(ring)):
            rows.append((ring[k], normal, _largest(hull.vertices[ring], k, ring)))
    first, normal, vertices = (np.array(column) for column in zip(*rows, strict=True))
    return Corners(first, normal, vertices)


def _largest(points: np.ndarray, k: int, ring: list[int]) -> list[int]:
    """Of a convex polygon's vertices (n, 3) the numbers of k and of the three that make the largest area with it."""
    turned, numbers = np.roll(points, -k, axis=0), np.roll(ring, -k).tolist()
    if len(ring) <= 4:
        return numbers + numbers[:1] * (4 - len(ring))
    arms = turned - turned[0]
    area = np.linalg.norm(np.cross(arms[:, None], arms), axis=-1)  # of two triangles on the diagonal from k to j
    before, after = np.triu(area, 1), np.tril(area, -1)
    opposite = int(np.argmax((before.max(0) + after.max(0))[2:-1])) + 2
    return [numbers[n] for n in (0, int(np.argmax(before[:, opposite])), opposite, int(np.argmax(after[:, opposite])))]
