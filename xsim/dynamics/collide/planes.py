"""Collisions of a plane: contacts at the points of a shape that are deepest in the half space below the plane.

The normal is the plane's z axis. Here all planes are infinite, whatever their size.
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
from xsim.spatial import Vector, apply, apply_inverse, cross, dot, in_one_environment, mul, neg, scale, vadd, vsub

X_AXIS: Vector = (1.0, 0.0, 0.0)


def plane_contact(a: Shape, point: Vector) -> ContactPoint:
    """The contact of the plane a with a point of the second shape."""
    normal = a.axis(2)
    distance = dot(vsub(point, a.pos), normal)
    return ContactPoint(distance, vsub(point, scale(normal, mul(0.5, distance))), normal)


@collider("plane", "sphere")
def plane_sphere(a: Shape, b: Shape) -> list[ContactPoint]:
    return [plane_contact(a, vsub(b.pos, scale(a.axis(2), b.size[0])))]


@collider("plane", "capsule", contacts=2)
def plane_capsule(a: Shape, b: Shape) -> list[ContactPoint]:
    """The balls at both ends. The first tangent is along the capsule."""
    axis, down = b.axis(2), scale(a.axis(2), neg(b.size[0]))
    ends = [vadd(vadd(b.pos, scale(axis, s)), down) for s in (b.size[1], neg(b.size[1]))]
    return [plane_contact(a, end)._replace(tangent_hint=axis) for end in ends]


@collider("plane", "cylinder", contacts=4)
def plane_cylinder(a: Shape, b: Shape) -> list[ContactPoint]:
    """The lowest point of each rim, and two other points of the lower rim. These and its lowest point make an equilateral triangle."""
    normal, axis = a.axis(2), b.axis(2)
    up = dot(normal, axis)
    axis = scale(axis, jnp.where(up > 0, -1.0, 1.0))  # towards the plane
    steepest, _ = direction(vsub(scale(axis, neg(jnp.abs(up))), normal), b.axis(0))
    lower, out, side = scale(axis, b.size[1]), scale(steepest, b.size[0]), scale(cross(steepest, axis), b.size[0])
    across = scale(side, 0.75**0.5)
    back = vsub(vadd(b.pos, lower), scale(out, 0.5))
    points = [vadd(vadd(b.pos, out), lower), vsub(vadd(b.pos, out), lower), vadd(back, across), vsub(back, across)]
    return [plane_contact(a, point) for point in points]


@collider("plane", "box", contacts=4)
def plane_box(a: Shape, b: Shape) -> list[ContactPoint]:
    """For each pair of opposite corners, the lower one."""
    halves = [scale(b.axis(k), b.size[k]) for k in range(3)]
    contacts = []
    for signs in itertools.product((-1.0, 1.0), repeat=2):
        corner = vadd(vadd(scale(halves[0], signs[0]), scale(halves[1], signs[1])), halves[2])
        below = dot(a.axis(2), corner) <= 0
        contacts.append(plane_contact(a, vadd(b.pos, scale(corner, jnp.where(below, 1.0, -1.0)))))
    return contacts


@collider("plane", "ellipsoid")
def plane_ellipsoid(a: Shape, b: Shape) -> list[ContactPoint]:
    """The lowest point of the ellipsoid: S^2 d / |S d| in its frame. S: its half extents. d: the direction into the plane."""
    down = apply_inverse(b.R, scale(a.axis(2), -1.0))
    unit, _ = direction(tuple(mul(s, d) for s, d in zip(b.size, down, strict=True)), X_AXIS)
    lowest = tuple(mul(s, u) for s, u in zip(b.size, unit, strict=True))
    return [plane_contact(a, vadd(b.pos, apply(b.R, lowest)))]


# ---- meshes ------------------------------------------------------------------------------------------------------------------


class Corners(NamedTuple):
    """The corners of the faces of a hull at each of its n vertices, up to k of them.

    normal (n, k, 3): outward normal of the face.
    vertices (n, k, 4): the quadrilateral of the largest area of the face's vertices that begins with the vertex. A triangle repeats it.
    """

    normal: np.ndarray
    vertices: np.ndarray


@collider("plane", "mesh", contacts=4)
def plane_mesh(a: Shape, b: Shape) -> list[ContactPoint]:
    """Corners of one face at the deepest vertex: the face that is the most parallel to the plane. Corners above the geom's origin do not
    count.

    This is the rule of MuJoCo 4.0. MuJoCo 3.2 uses the deepest vertex and the first two of its neighbours in the order of Qhull that are
    not near to each other.
    """
    corners, vertices = _corners(b.data), b.data.vertices
    down = apply_inverse(b.R, scale(a.axis(2), -1.0))
    fixed = jax.lax.stop_gradient(jnp.stack(jnp.broadcast_arrays(*down, *b.size)))
    fixed_down, size = fixed[:3], fixed[3:]
    deepest = farthest(vertices, fixed_down * size)
    normal = jnp.moveaxis(jnp.asarray(corners.normal, fixed.dtype)[deepest], -1, 0)  # (3, ..., k)
    square = jnp.sum(normal**2 / (size**2)[..., None], 0)
    parallel = jnp.sum(normal * (fixed_down / size)[..., None], 0) / jnp.sqrt(jnp.where(square > 0, square, 1.0))
    face = jnp.argmax(parallel, -1)
    chosen = jnp.asarray(corners.vertices)[deepest, face]
    positions = jnp.asarray(vertices, fixed.dtype)[chosen]
    contacts = []
    for k in range(4):
        arm = apply(b.R, tuple(mul(s, positions[..., k, i]) for i, s in enumerate(b.size)))
        contact = plane_contact(a, vadd(b.pos, arm))
        if k:
            excluded = (dot(arm, a.axis(2)) > 0) | (chosen[..., k] == chosen[..., 0])
            contact = contact._replace(distance=jnp.where(excluded, FAR, contact.distance))
        contacts.append(contact)
    return contacts


collider("plane", "sdf", contacts=4)(plane_mesh)  # the mesh of the signed distance function


MAX_UNROLLED = 1_000
"""Vertices among which the farthest is found without a loop, in the program of one environment."""


def farthest(table: np.ndarray, v) -> jax.Array:
    """The first of r constant vectors (r, 3) with the largest scalar product with a vector (3, ...): its index (...)."""
    if not in_one_environment() or len(table) <= MAX_UNROLLED:
        return jnp.argmax(_products(table, v), 0)

    def compared(found, row):
        largest, index = found
        vector, k = row
        product = sum(vector[i] * v[i] for i in range(3))
        is_larger = product > largest
        return (jnp.where(is_larger, product, largest), jnp.where(is_larger, k, index)), None

    start = jnp.full(v.shape[1:], -jnp.inf, v.dtype), jnp.zeros(v.shape[1:], jnp.int32)
    return jax.lax.scan(compared, start, (jnp.asarray(table, v.dtype), jnp.arange(len(table), dtype=jnp.int32)))[0][1]


def _products(table: np.ndarray, v) -> jax.Array:
    """The scalar products of r constant vectors (r, 3) and a vector (3, ...): (r, ...)."""
    return sum(table[:, k].reshape(-1, *[1] * (v.ndim - 1)).astype(v.dtype) * v[k] for k in range(3))


@functools.lru_cache(maxsize=256)
def _corners(hull: Hull) -> Corners:
    rows: list[list] = [[] for _ in hull.vertices]
    for normal, ring in polygons(hull):
        for k, vertex in enumerate(ring):
            rows[vertex].append((normal, _largest(hull.vertices[ring], k, ring) if len(ring) > 3 else [*ring[k:], *ring[:k], vertex][:4]))
    count = max(map(len, rows))
    padded = [row + row[:1] * (count - len(row)) for row in rows]
    normal, vertices = (np.array([[corner[i] for corner in row] for row in padded]) for i in (0, 1))
    return Corners(normal, vertices)


def _largest(points: np.ndarray, k: int, ring: list[int]) -> list[int]:
    """The quadrilateral of the largest area of a convex polygon's vertices that contains the k-th: entries of ``ring``. points (n, 3)."""
    rolled, indices = np.roll(points, -k, axis=0), np.roll(ring, -k).tolist()
    if len(ring) <= 4:
        return indices + indices[:1] * (4 - len(ring))
    arms = rolled - rolled[0]
    area = np.linalg.norm(np.cross(arms[:, None], arms), axis=-1)  # of the triangle (0, i, j), twice
    before, after = np.triu(area, 1), np.tril(area, -1)
    opposite = int(np.argmax((before.max(0) + after.max(0))[2:-1])) + 2
    return [indices[n] for n in (0, int(np.argmax(before[:, opposite])), opposite, int(np.argmax(after[:, opposite])))]
