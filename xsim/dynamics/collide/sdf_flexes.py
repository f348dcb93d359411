"""Contacts of signed distance functions with the triangles of flexes.

Source: the behaviour of MuJoCo 4.0.0. Each triangle is searched as one of a mesh (`sdf_meshes`), and the deepest of the points found makes
its contact, with the normal grad B / |grad B|. The radius of the flex has no effect. Of the triangles of a flex that touch a geom, the
first 50 have contacts, in the order of `xsim.model.face_order.element_order`. A point that two of them share makes one contact, that of
the first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.cores import simplex_corners
from xsim.dynamics.collide.sdf import Surface, surface_of
from xsim.dynamics.collide.sdf_meshes import MAX_POINTS, ends, is_near, is_same_point, point_of, start_weights
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.model.topology import SdfInfo
from xsim.rules import Rules
from xsim.spatial import Component, Vector, apply, apply_inverse, each_row, normalize, scale, vadd, vsub


class TriangleOrder(NamedTuple):
    """The order of the triangles that are paired with a geom.

    first (pairs,): the first pair of the same geom and flex. touching (pairs, k): the pairs before it, of the same geom and flex, whose
    triangles have a corner in common; its own index where there are fewer than k."""

    first: np.ndarray
    touching: np.ndarray


def triangle_order(pairs: list[tuple[int, int, tuple[int, ...]]]) -> TriangleOrder:
    """The order of pairs (geom, flex, points of the triangle). Those of the same geom and flex follow each other."""
    first, touching = np.zeros(len(pairs), int), []
    of_point: dict[int, list[int]] = {}
    for k, (*same, points) in enumerate(pairs):
        is_next = k > 0 and same == [*pairs[k - 1][:2]]
        first[k] = first[k - 1] if is_next else k
        if not is_next:
            of_point = {}
        touching.append(sorted({other for point in points for other in of_point.get(point, ())}))
        for point in points:
            of_point.setdefault(point, []).append(k)
    width = max(map(len, touching))
    return TriangleOrder(first, np.array([[*x, *[k] * (width - len(x))] for k, x in enumerate(touching)], int).reshape(-1, width))


def search_triangles(
    info: SdfInfo, geom: Shape, triangle: Shape, numbers: tuple, size: tuple[int, int], rules: Rules, order: TriangleOrder
) -> ContactPoint:
    """The contacts of signed distance functions with triangles, one of each pair: components (pairs, lanes).

    numbers: of the function. size: numbers of points and of iterations."""
    surface, _ = surface_of(info, geom, numbers, rules)
    fixed_geom, fixed_triangle, fixed_numbers = jax.lax.stop_gradient((geom[:3], triangle[:3], numbers))
    fixed, _ = surface_of(info, Shape(*fixed_geom), fixed_numbers, rules)
    weights, exists = _deepest(fixed, _corners(fixed, Shape(*fixed_triangle)), start_weights(size[0]), size[1])
    x = point_of(_corners(surface, triangle), weights)
    exists = _has_contact(jax.lax.stop_gradient(x), exists, order)
    distance, slope = surface.gradient(x)
    normal = apply(surface.R, normalize(slope))
    point = vadd(vadd(surface.pos, apply(surface.R, x)), scale(normal, -0.5 * distance))
    return ContactPoint(jnp.where(exists, distance, FAR), point, normal)


def _corners(surface: Surface, triangle: Shape) -> list[Vector]:
    """The three corners of triangles (pairs, lanes) in the frame of the surface."""
    return [apply_inverse(surface.R, vsub(vadd(triangle.pos, corner), surface.pos)) for corner in simplex_corners(triangle)[:3]]


def _deepest(surface: Surface, corners: list[Vector], starts: np.ndarray, iterations: int) -> tuple[Vector, Any]:
    """The weights of the corners at the deepest point found on triangles (pairs, lanes), and whether it is below the surface."""
    shape = jnp.broadcast_shapes(*map(jnp.shape, jax.tree.leaves(corners)))
    corners = jax.tree.map(lambda x: jnp.broadcast_to(x, shape)[:, None], corners)
    near = each_row(lambda x: is_near(surface, x, True), corners)
    weights, distance, before, _ = each_row(lambda *x: ends(surface, *x, starts, iterations), corners, near)
    distance = jnp.where(before < FAR, distance, FAR)[:, :, 0]
    deepest = jnp.argmin(distance, 1)[:, None]
    weights = tuple(jnp.take_along_axis(w[:, :, 0], deepest, 1)[:, 0] for w in weights)
    return weights, distance.min(1) < 0


def _has_contact(x: Vector, exists: Component, order: TriangleOrder) -> Any:
    """Of points (pairs, lanes) below the surface, which make contacts."""
    count = jnp.cumsum(exists.astype(int), 0)
    before = count - exists - (count - exists)[order.first]
    exists = exists & (before < MAX_POINTS)
    repeated = jnp.zeros_like(exists)
    for other in order.touching.T:
        is_other = (other != np.arange(len(other)))[:, None]
        same = is_same_point(x, tuple(component[other] for component in x))
        repeated = repeated | same & exists[other] & is_other
    return exists & ~repeated
