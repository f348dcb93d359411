"""Contacts of meshes with signed distance functions.

Source: the behaviour of MuJoCo 3.2.7 and 4.0.0. On each triangle that comes near the surface the Frank-Wolfe method looks for a point of
least distance: from points of a Halton sequence (4.0) or from the centre (3.2) it goes to the corner towards which the distance falls
most, then 2/3, 1/2, 2/5, ... of the way to the next such corner. Where the distance is negative there is a contact, with the normal
-grad B / |grad B|. 4.0 takes the first points of the triangles in an order of its own (`xsim.model.face_order`), 3.2 the deepest.

The search has no derivatives. It finds a triangle and the weights of its corners; with these the contact moves as the mesh does.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.sdf import BASES, Surface, halton, relative_pose, surface_of
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.model.topology import MeshInfo, SdfInfo
from xsim.rules import Rules
from xsim.spatial import Component, Vector, apply, apply_inverse, cross, dot, each_row, normalize, safe_norm, scale, vadd, vsub

MAX_POINTS = 50
"""Points that the search keeps, equal ones included."""
MAX_TRIANGLES = {True: 128, False: 1300}
"""Triangles near the surface that are searched, by `Rules.sdf_as_4_0`."""
_FLAT = 0.1
"""The least distance (m) over ten at which a triangle is near by the sphere through its corners and a fourth point."""


class _Found(NamedTuple):
    """Points of the search, components (points, pairs, lanes).

    weights: of the corners of their triangles. rank: points of smaller rank are taken first; `FAR` if there is no contact.
    complete (pairs, lanes): whether further triangles would give no more contacts."""

    weights: Vector
    rank: Component
    complete: Any


def mesh_contact_count(mesh: MeshInfo, points: int, rules: Rules) -> int:
    """The number of contacts that a mesh and a signed distance function can have. points: from which the search starts."""
    triangles = min(len(mesh.faces.value), MAX_TRIANGLES[rules.sdf_as_4_0])
    return min(MAX_POINTS, triangles * (min(3, max(1, points)) if rules.sdf_as_4_0 else 1))


def search_meshes(mesh: MeshInfo, geom: Shape, info: SdfInfo, other: Shape, numbers: tuple, size: tuple[int, int], rules: Rules) -> tuple:
    """The contacts of pairs (pairs, lanes) of a mesh with a signed distance function, components (contacts, pairs, lanes), and whether more
    triangles are near than are searched.

    geom, other: the geoms of the mesh and of the function; numbers: of the function; size: numbers of points and of iterations."""
    surface, _ = surface_of(info, other, numbers, rules)
    fixed_geom, fixed_other, fixed_numbers = jax.lax.stop_gradient((geom[:3], other[:3], numbers))
    fixed, _ = surface_of(info, Shape(*fixed_other), fixed_numbers, rules)
    starts = start_weights(size[0]) if rules.sdf_as_4_0 else np.full((1, 3), 1 / 3)
    corners = _corners(mesh, Shape(*fixed_geom), fixed)
    near = each_row(lambda x: is_near(fixed, x, rules.sdf_as_4_0), corners) & _in_near_boxes(mesh, Shape(*fixed_geom), fixed)
    triangles, corners, near, overflow = _first(corners, near, MAX_TRIANGLES[rules.sdf_as_4_0])
    end_points = each_row(lambda *x: ends(fixed, *x, starts, size[1]), corners, near)
    found = _ranked(*end_points, rules.sdf_as_4_0)
    contact = _contacts(mesh, geom, surface, found, triangles, mesh_contact_count(mesh, size[0], rules), rules)
    return contact, overflow & ~found.complete


def start_weights(points: int) -> np.ndarray:
    """The weights (points, 3) of a triangle's corners from which the search starts; one point at least."""
    u, v = (np.array([halton(i + 1, base) for i in range(max(1, points))]) for base in BASES[:2])
    beyond = u + v > 1
    u, v = np.where(beyond, 1 - u, u), np.where(beyond, 1 - v, v)
    return np.stack([1 - u - v, u, v], 1)


def _corners(mesh: MeshInfo, geom: Shape, surface: Surface) -> list[Vector]:
    """The three corners of all triangles, components (triangles, pairs, lanes), in the frame of the surface."""
    R, pos = relative_pose(geom, surface)
    vertices = mesh.vertices.value[mesh.faces.value]
    like = jnp.result_type(*geom.pos)
    out = []
    for k in range(3):
        corner = tuple(jnp.asarray(vertices[:, k, i].reshape(-1, 1, 1), like) * geom.size[i] for i in range(3))
        out.append(vadd(apply(R, corner), pos))
    shape = jnp.broadcast_shapes(*map(jnp.shape, jax.tree.leaves(out)))
    return jax.tree.map(lambda x: jnp.broadcast_to(x, shape), out)


def _in_near_boxes(mesh: MeshInfo, geom: Shape, surface: Surface) -> Any:
    """Whether the surface comes nearer to the centres of all boxes around a triangle than the half diagonals of these."""
    assert mesh.boxes is not None and mesh.paths is not None
    R, pos = relative_pose(geom, surface)
    shape = jnp.broadcast_shapes(*map(jnp.shape, pos))
    numbers = jnp.asarray(mesh.boxes.value.T, jnp.result_type(*pos)).reshape(6, -1, *[1] * len(shape))
    boxes = [jnp.broadcast_to(x, (len(mesh.boxes.value), *shape)) for x in numbers]

    def is_near(boxes) -> Any:
        centre, half = (tuple(x * s for x, s in zip(part, geom.size, strict=True)) for part in (boxes[:3], boxes[3:]))
        return surface.distance(vadd(apply(R, centre), pos)) < safe_norm(half)

    near = each_row(is_near, boxes)
    return jnp.stack([near[path] for path in mesh.paths.value.T]).all(0)


def is_near(surface: Surface, corners: list[Vector], as_4_0: bool) -> Any:
    """Whether the surface comes nearer to a triangle than its size: the radius of the sphere through its corners and a point that lies a
    tenth of the distance beside its centre; in 4.0 that of its circumcircle if this is less than `_FLAT`."""
    middle = scale(vadd(vadd(*corners[:2]), corners[2]), 1 / 3)
    sides = vsub(corners[1], corners[0]), vsub(corners[2], corners[0])
    distance = surface.distance(middle)
    top = vadd(middle, scale(normalize(cross(*sides)), 0.1 * distance))
    arms = [vsub(corner, top) for corner in corners]
    products = [cross(arms[(k + 1) % 3], arms[(k + 2) % 3]) for k in range(3)]
    volume = 2.0 * dot(arms[0], products[0])
    is_flat = jnp.abs(volume) < 1e-15
    lengths = [dot(arm, arm) for arm in arms]
    sums = (sum(p[i] * length for p, length in zip(products, lengths, strict=True)) for i in range(3))
    centre = tuple(x / jnp.where(is_flat, 1.0, volume) for x in sums)
    near = surface.distance(vadd(centre, top)) < safe_norm(centre)
    near = jnp.where(is_flat, distance < safe_norm(sides[0]) if as_4_0 else False, near)
    if not as_4_0:
        return near
    edges = [safe_norm(x) for x in (*sides, vsub(corners[2], corners[1]))]
    radius = edges[0] * edges[1] * edges[2] / jnp.maximum(2.0 * safe_norm(cross(*sides)), 1e-15)
    return jnp.where(jnp.abs(distance) < 10 * _FLAT, distance < radius, near)


def _first(corners: list[Vector], near, most: int) -> tuple[Any, list[Vector], Any, Any]:
    """The first triangles that are near, ``most`` of them: their numbers, corners, whether they are near, and whether there are more."""
    count = len(near)
    if count <= most:
        return np.arange(count).reshape(-1, 1, 1), corners, near, jnp.zeros(near.shape[1:], bool)
    order = jnp.where(near, jnp.arange(count, dtype=corners[0][0].dtype).reshape(-1, 1, 1), count)
    _, chosen = jax.lax.top_k(-jnp.moveaxis(order, 0, -1), most)
    chosen = jnp.moveaxis(chosen, -1, 0)
    corners, is_near = jax.tree.map(lambda x: jnp.take_along_axis(x, chosen, 0), (corners, near))
    return chosen, corners, is_near, near.sum(0) > most


def _lowest(surface: Surface, corners: list[Vector], weights: Vector) -> Any:
    """The number of the corner towards which the distance falls most, at points with these weights of the corners."""
    _, slope = surface.gradient(point_of(corners, weights))
    falls = [dot(corner, slope) for corner in corners]
    second = jnp.where(falls[1] < falls[0], 1, 0)
    return jnp.where(falls[2] < jnp.minimum(falls[0], falls[1]), 2, second)


def point_of(corners: list[Vector], weights: Vector) -> Vector:
    return tuple(sum(corner[i] * w for corner, w in zip(corners, weights, strict=True)) for i in range(3))


def ends(surface: Surface, corners: list[Vector], near, starts: np.ndarray, iterations: int) -> tuple[Vector, Any, Any, Any]:
    """Where the search ends on triangles (triangles, pairs, lanes). All starts that go to the same corner first have the same end.

    Returns of the ends (triangles, 3, pairs, lanes) the weights of the corners, the distance, the number of contacts that are found before
    (`FAR` if it is none); and the number of contacts that all starts find (triangles, pairs, lanes)."""
    shape, dtype = near.shape, corners[0][0].dtype
    corners = jax.tree.map(lambda x: x[:, None], corners)
    first = _lowest(surface, corners, tuple(jnp.asarray(starts[:, k].reshape(1, -1, 1, 1), dtype) for k in range(3)))

    def step(weights, share):
        corner = _lowest(surface, corners, weights)
        return tuple(w + share * (jnp.where(corner == k, 1.0, 0.0) - w) for k, w in enumerate(weights)), None

    weights = tuple(
        jnp.broadcast_to(jnp.asarray(np.eye(3)[k].reshape(1, 3, 1, 1), dtype), (shape[0], 3, *shape[1:])) for k in range(3)
    )
    weights, _ = jax.lax.scan(step, weights, jnp.asarray(2.0 / (np.arange(1, max(iterations, 1)) + 2.0), dtype))
    distance = surface.distance(point_of(corners, weights))
    goes = [first == k for k in range(3)]  # each (triangles, starts, pairs, lanes)
    touches = [(distance[:, k] < 0) & near for k in range(3)]
    counts = [goes[k] & touches[k][:, None] for k in range(3)]
    found = jnp.cumsum((counts[0] | counts[1] | counts[2]).astype(dtype), 1)
    before = jnp.stack([jnp.where(count, found - 1.0, FAR).min(1) for count in counts], 1)
    return weights, distance, before, found[:, -1]


def _ranked(weights: Vector, distance, before, total, as_4_0: bool) -> _Found:
    """The ends of all triangles with their ranks."""
    complete = jnp.zeros(total.shape[1:], bool)
    rank = jnp.where(before < FAR, distance, FAR)
    if as_4_0:
        sums = jnp.cumsum(total, 0)
        order = before + (sums - total)[:, None]
        rank, complete = jnp.where(order < MAX_POINTS, order, FAR), sums[-1] >= MAX_POINTS
    return _Found(*jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (weights, rank)), complete)


def _contacts(mesh: MeshInfo, geom: Shape, surface: Surface, found: _Found, triangles, count: int, rules: Rules) -> ContactPoint:
    """The contacts at the first points of the search, each place once."""
    _, chosen = jax.lax.top_k(-jnp.moveaxis(found.rank, 0, -1), count)
    chosen = jnp.moveaxis(chosen, -1, 0)
    weights, rank = jax.tree.map(lambda x: jnp.take_along_axis(x, chosen, 0), (found.weights, found.rank))
    triangle = chosen // 3
    triangle = jnp.take_along_axis(jnp.broadcast_to(triangles, (len(triangles), *triangle.shape[1:])), triangle, 0)
    vertices = mesh.vertices.value[mesh.faces.value]
    dtype = jnp.result_type(*geom.pos)
    corners = [tuple(jnp.asarray(vertices[:, k, i], dtype)[triangle] for i in range(3)) for k in range(3)]

    def contacts(corners: list[Vector], weights: Vector) -> tuple:
        place = tuple(x * s for x, s in zip(point_of(corners, weights), geom.size, strict=True))
        point = vadd(geom.pos, apply(geom.R, place))
        x = apply_inverse(surface.R, vsub(point, surface.pos))
        distance, slope = surface.gradient(x)
        normal = apply(surface.R, scale(normalize(slope), -1.0))
        shift = 0.5 if rules.sdf_as_4_0 else -0.5
        return distance, vadd(point, scale(normal, shift * distance)), normal, x

    distance, point, normal, x = each_row(contacts, corners, weights)
    exists = (rank < FAR) & ~_is_repeated(jax.lax.stop_gradient(x), rank < FAR)
    return ContactPoint(jnp.where(exists, distance, FAR), point, normal)


def _is_repeated(x: Vector, exists) -> Any:
    """Whether a point is the same as one before it."""
    numbers = jnp.broadcast_to(jnp.arange(len(exists)).reshape(-1, *[1] * (exists.ndim - 1)), exists.shape)

    def repeated(point: Vector, number):
        same = is_same_point(tuple(a[:, None] for a in point), tuple(b[None] for b in x))
        return (same & exists[None] & (numbers[None] < number[:, None])).any(1)

    return each_row(repeated, x, numbers)


def is_same_point(x: Vector, y: Vector) -> Any:
    """Whether two points are the same, up to rounding."""
    apart = safe_norm(vsub(x, y))
    return apart < 64 * jnp.finfo(apart.dtype).eps * (1.0 + safe_norm(x))
