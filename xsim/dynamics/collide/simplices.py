"""Simplices: triangles and tetrahedra, whose four corners are the numbers of their `Shape`.

pos is the mean of the corners, the rows of R are the second to the fourth corner about it; the first follows. A triangle has its last
corner twice. The radius is size[0].
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.convex import weights_on_triangle
from xsim.dynamics.collide.cores import SIMPLEX_FACES, simplex_corners
from xsim.dynamics.collide.shapes import ContactPoint, Shape
from xsim.spatial import Vector, add, cross, dot, mul, neg, normalize, scale, sub, vadd, vsub


def packed(corners: tuple[Vector, ...]) -> tuple[Vector, tuple[Vector, ...]]:
    """pos and R of a `Shape` with these four corners."""
    centre = tuple(0.25 * (p + q + r + s) for p, q, r, s in zip(*corners, strict=True))
    return centre, tuple(vsub(c, centre) for c in corners[1:])


@collider("sphere", "facet")
def sphere_facet(a: Shape, b: Shape) -> list[ContactPoint]:
    """A ball that shall stay on the inner side of the plane through the first three corners, which are counter-clockwise from outside."""
    p, q, r, _ = (vadd(b.pos, c) for c in simplex_corners(b))
    normal = normalize(cross(vsub(q, p), vsub(r, p)))
    inside = neg(dot(normal, vsub(a.pos, p)))
    distance = sub(inside, add(a.size[0], b.size[0]))
    return [ContactPoint(distance, vadd(a.pos, scale(normal, add(a.size[0], mul(0.5, distance)))), normal)]


def weights_on_simplex(x: Vector, corners: tuple[Vector, ...]) -> tuple[Any, ...]:
    """Weights of four corners at the point of their simplex nearest to x; they sum to 1. Corners may coincide."""
    best, least = None, None
    for face in SIMPLEX_FACES:
        own, square = weights_on_triangle(x, tuple(corners[k] for k in face))
        weights = [jnp.zeros_like(square)] * 4
        for k, w in zip(face, own, strict=True):
            weights[k] = w + jnp.zeros_like(square)
        if best is None:
            best, least = weights, square
        else:
            best = [jnp.where(square < least, w, b) for w, b in zip(weights, best, strict=True)]
            least = jnp.minimum(square, least)
    assert best is not None
    # inside of a tetrahedron: the volumes across from the corners
    apart = [vsub(c, corners[0]) for c in corners[1:]]
    volume = dot(apart[0], cross(apart[1], apart[2]))
    size = sum(dot(e, e) for e in apart) ** 1.5
    solid = jnp.abs(volume) > 100 * jnp.finfo(volume.dtype).eps * size
    to = vsub(x, corners[0])
    own = [dot(to, cross(apart[(k + 1) % 3], apart[(k + 2) % 3])) / jnp.where(solid, volume, 1.0) for k in range(3)]
    own = [1.0 - own[0] - own[1] - own[2], *own]
    inside = solid & (own[0] >= 0) & (own[1] >= 0) & (own[2] >= 0) & (own[3] >= 0)
    return tuple(jnp.where(inside, w, b) for w, b in zip(own, best, strict=True))
