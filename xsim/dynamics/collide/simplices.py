"""Simplices: triangles and tetrahedra with a radius. A `Shape` stores their four corners.

pos is the mean of the corners. The rows of R are the second, third and fourth corner relative to it. These determine the first corner. A
triangle repeats its last corner. size[0] is the radius.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.convex import weights_on_triangle
from xsim.dynamics.collide.cores import SIMPLEX_FACES, simplex_corners
from xsim.dynamics.collide.shapes import ContactPoint, Shape
from xsim.spatial import Vector, add, cross, dot, mul, neg, normalize, scale, sub, vadd, vsub


def pack_simplex(corners: tuple[Vector, ...]) -> tuple[Vector, tuple[Vector, ...]]:
    """pos and R of a `Shape` with these four corners."""
    centre = tuple(0.25 * (p + q + r + s) for p, q, r, s in zip(*corners, strict=True))
    return centre, tuple(vsub(c, centre) for c in corners[1:])


@collider("sphere", "facet")
def sphere_facet(a: Shape, b: Shape) -> list[ContactPoint]:
    """The contact of a ball on the inner side of a plane: that of the first three corners, which are counter-clockwise seen from
    outside."""
    p, q, r, _ = (vadd(b.pos, c) for c in simplex_corners(b))
    normal = normalize(cross(vsub(q, p), vsub(r, p)))
    inside = neg(dot(normal, vsub(a.pos, p)))
    distance = sub(inside, add(a.size[0], b.size[0]))
    return [ContactPoint(distance, vadd(a.pos, scale(normal, add(a.size[0], mul(0.5, distance)))), normal)]


def weights_on_simplex(x: Vector, corners: tuple[Vector, ...]) -> tuple[Any, ...]:
    """The barycentric coordinates of the point of a simplex nearest to x. Corners may coincide."""
    best, smallest = None, None
    for face in SIMPLEX_FACES:
        face_weights, square = weights_on_triangle(x, tuple(corners[k] for k in face))
        weights = [jnp.zeros_like(square)] * 4
        for k, w in zip(face, face_weights, strict=True):
            weights[k] = w + jnp.zeros_like(square)
        if best is None:
            best, smallest = weights, square
        else:
            best = [jnp.where(square < smallest, w, b) for w, b in zip(weights, best, strict=True)]
            smallest = jnp.minimum(square, smallest)
    assert best is not None
    # If x is inside a tetrahedron, its coordinates are ratios of volumes.
    edges = [vsub(c, corners[0]) for c in corners[1:]]
    volume = dot(edges[0], cross(edges[1], edges[2]))
    size = sum(dot(e, e) for e in edges) ** 1.5
    solid = jnp.abs(volume) > 100 * jnp.finfo(volume.dtype).eps * size
    arm = vsub(x, corners[0])
    inner = [dot(arm, cross(edges[(k + 1) % 3], edges[(k + 2) % 3])) / jnp.where(solid, volume, 1.0) for k in range(3)]
    inner = [1.0 - inner[0] - inner[1] - inner[2], *inner]
    inside = solid & (inner[0] >= 0) & (inner[1] >= 0) & (inner[2] >= 0) & (inner[3] >= 0)
    return tuple(jnp.where(inside, w, b) for w, b in zip(inner, best, strict=True))
