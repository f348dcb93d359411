"""Convex shapes in a common representation, for the convex algorithm.

Every shape is a unit shape (ball, cylinder, cube, hull), scaled along its axes, plus a radius. The scaled unit shape is the core. The
core of a sphere or capsule is a cube with zero extents along two or three axes. The number of round axes is data of each shape, and hulls
are tables of vertices. So one program processes shapes of all kinds. One program for each pair of kinds would take 15 seconds each to
compile.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.hulls import Hull
from xsim.dynamics.collide.shapes import Shape
from xsim.spatial import Vector, apply, apply_inverse, cross, dot, neg, safe_norm, scale, stage, vsub

__all__ = [
    "SIMPLEX_FACES", "axes", "Body", "bounding_boxes", "box", "box_axes", "cores", "curved_part", "extents", "half_width", "neg3",
    "normals", "support_function", "has_round_axes", "simplex_corners", "span", "to_unit_shape", "support", "world_offset", "unit",
]

_ROUND = {"ellipsoid": 3, "cylinder": 2}  # number of round axes of the unit shape
_AXES = {"sphere": (), "capsule": (2,), "cylinder": (2,), "simplex": ()}  # axes that `axes` returns; all three of other shapes
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_HALF = {"sphere": ((0.0,) * 3,) * 3, "capsule": ((0.0,) * 3, (0.0,) * 3, (0.0, 1.0, 0.0)),
         "cylinder": ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))}  # fmt: skip
"""Half extents of the core as linear combinations of a geom's size. Of other shapes they are the size."""
SIMPLEX_FACES = ((0, 1, 2), (0, 2, 3), (0, 3, 1), (1, 3, 2))
_UNIT_SIMPLEX = tuple(tuple(float(i == k + 1) - 0.25 for k in range(3)) for i in range(4))
_FACETS = 256  # number of facets of a mesh, the largest, whose normals are initial directions of the convex algorithm


class Hulls(NamedTuple):
    """The hulls of shapes as arrays (n or 1, lanes or 1, ...), padded with copies to the same size.

    vertices (..., vertices, 3).
    normals, corners (..., facets, 3): outward normals of the largest facets, and one corner of each.
    most (..., 3): largest absolute coordinates of the vertices.
    """

    vertices: Any
    normals: Any
    corners: Any
    most: Any

    def single(self) -> bool:
        """Whether all shapes have the same hull."""
        return self.most.shape[:2] == (1, 1)


@functools.partial(jax.tree_util.register_dataclass, data_fields=["half", "pos", "R", "round", "table", "corners"], meta_fields=["kinds"])
@dataclass(frozen=True)
class Body:
    """The cores of shapes: unit shapes, scaled by ``half``, rotated by R, translated by pos.

    kinds: the kinds of shapes, each once.
    half: half extents along the columns of R, m.
    pos: centre, world, m.
    R: rows of the rotation matrix. Of simplices its columns are three edges (m), and half is 1.
    round: number of round axes, of each shape (n, 1 or lanes), or one number.
    table: hulls of meshes, else None.
    corners: corners of the unit shape, six of prisms, four of simplices, else None.
    """

    kinds: tuple[str, ...]
    half: Vector
    pos: Vector
    R: tuple
    round: Any
    table: Hulls | None = None
    corners: tuple[Vector, ...] | None = None

    def curved(self) -> bool:
        """Whether any axis of any shape is round."""
        return any(k in _ROUND for k in self.kinds)

    def at(self, which) -> Body:
        """The bodies with the indices ``which`` (m, lanes)."""

        def each(x):
            return jnp.broadcast_to(x, which.shape) if len(x) == 1 else jnp.take_along_axis(x, which, 0)

        def row(x):  # of a table
            return x if len(x) == 1 else jnp.asarray(x, self.half[0].dtype)[:, 0][which]

        half, pos, R, corners = jax.tree.map(each, (self.half, self.pos, self.R, self.corners))
        number = self.round if np.ndim(self.round) == 0 else jnp.asarray(self.round)[:, 0][which]
        return Body(self.kinds, half, pos, R, number, jax.tree.map(row, self.table), corners)

    def rows(self) -> Body:
        """The bodies as arrays with a row for each, as `each_row` takes them: without hulls."""
        return dataclasses.replace(self, round=jnp.broadcast_to(jnp.asarray(self.round), self.half[0].shape), table=None)

    def without_derivatives(self) -> Body:
        """The bodies with the derivatives stopped."""
        parts = {name: getattr(self, name) for name in ("half", "pos", "R", "corners")}
        return dataclasses.replace(self, **jax.tree.map(jax.lax.stop_gradient, parts))


def has_round_axes(kind: str) -> bool:
    """Whether a kind of shape has round axes."""
    return kind in _ROUND


def _column(numbers: Sequence):
    """Numbers of shapes as an array (n, 1), or one number if all are equal."""
    return numbers[0] if all(x == numbers[0] for x in numbers) else np.array(numbers)[:, None]


def simplex_corners(shape: Shape) -> tuple[Vector, ...]:
    """The four corners of simplices relative to their centres, see `simplices`."""
    second, third, fourth = shape.R
    return tuple(neg(x + y + z) for x, y, z in zip(second, third, fourth, strict=True)), second, third, fourth


def core(kinds: tuple[str, ...], shape: Shape, like) -> tuple[Body, Any]:
    """The cores of shapes and their radii. All components have the shape and type of ``like``. kinds: of each shape, or one for all."""

    def combined(row: int):
        parts = [_column([_HALF.get(k, _IDENTITY)[row][j] for k in kinds]) for j in range(3)]
        return sum(x * y for x, y in zip(parts, shape.size, strict=True))

    radius = _column([float(k in ("sphere", "capsule", "simplex", "triangle")) for k in kinds]) * shape.size[0]
    broadcast = lambda x: jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape)  # noqa: E731
    if kinds[0] in ("simplex", "triangle"):
        first, *others = simplex_corners(shape)
        edges = [vsub(c, first) for c in others]
        parts = (1.0, 1.0, 1.0), tuple(shape.pos), tuple(zip(*edges, strict=True)), _UNIT_SIMPLEX, radius
        half, pos, R, corners, radius = jax.tree.map(broadcast, parts)
        return Body(("simplex",), half, pos, R, 0, None, corners), radius
    half = tuple(combined(row) for row in range(3))
    half, pos, R, radius = jax.tree.map(broadcast, (half, tuple(shape.pos), tuple(tuple(r) for r in shape.R), radius))
    table = _table(tuple(shape.data)) if kinds[0] == "mesh" else None
    corners = jax.tree.map(broadcast, shape.data.corners) if kinds[0] == "prism" else None
    return Body(tuple(sorted(set(kinds))), half, pos, R, _column([_ROUND.get(k, 0) for k in kinds]), table, corners), radius


def cores(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape) -> tuple:
    """Cores and radii of both sides of pairs. All components have the same shape. kinds: of both sides of each pair, see `core`."""
    leaves = jax.tree.leaves((a.size, a.pos, a.R, b.size, b.pos, b.R))
    like = jnp.zeros(jnp.broadcast_shapes(*map(jnp.shape, leaves)), jnp.result_type(float, *leaves))
    return tuple(core(side_kinds, shape, like) for side_kinds, shape in zip(zip(*kinds, strict=True), (a, b), strict=True))


@functools.lru_cache(maxsize=256)
def _table(hulls: tuple[Hull, ...]) -> Hulls:
    hulls = hulls[:1] if all(h == hulls[0] for h in hulls) else hulls
    parts = [(h.vertices, *_facets(h)) for h in hulls]
    tables = [np.stack([np.resize(x, (max(map(len, every)), 3)) for x in every])[:, None] for every in zip(*parts, strict=True)]
    return Hulls(*tables, np.stack([np.abs(h.vertices).max(0) for h in hulls])[:, None])


def _facets(hull: Hull) -> tuple[np.ndarray, np.ndarray]:
    """Outward unit normals of the largest faces of a hull, and one corner of each."""
    p, q, r = np.moveaxis(hull.vertices[hull.faces], 1, 0)
    normal = np.cross(q - p, r - p)
    area = np.linalg.norm(normal, axis=1)
    large = np.argsort(-area, kind="stable")[:_FACETS]
    large = large[area[large] > 0]
    if not len(large):  # points on a line have no faces: three arbitrary normals
        return np.eye(3)[:1], p[:1]
    return normal[large] / area[large, None], p[large]


def box(body: Body) -> Vector:
    """Half extents of bounding boxes about the bodies' centres, along the bodies' axes (of simplices, along the world's), m."""
    if "simplex" in body.kinds:
        return tuple(half_width(body, n) for n in _IDENTITY)
    if body.table is not None:
        most = jnp.asarray(body.table.most, body.half[0].dtype)
        sides = tuple(most[0, 0, k] if body.table.single() else most[..., k] for k in range(3))
    elif body.corners is not None:
        sides = tuple(functools.reduce(jnp.maximum, [jnp.abs(c[k]) for c in body.corners]) for k in range(3))
    else:
        return body.half
    return tuple(x * h for x, h in zip(sides, body.half, strict=True))


def bounding_boxes(body: Body) -> Body:
    """The bounding boxes of bodies as bodies. Simplices themselves."""
    return body if "simplex" in body.kinds else Body(("box",), box(body), body.pos, body.R, 0)


def half_width(body: Body, n: Vector):
    """Half widths of the bounding boxes along n (of simplices, of the simplices themselves), m."""
    if "simplex" in body.kinds:
        assert body.corners is not None
        return functools.reduce(jnp.maximum, [jnp.abs(dot(n, world_offset(body, c))) for c in body.corners])
    return sum(jnp.abs(side * x) for side, x in zip(box(body), apply_inverse(body.R, n), strict=True))


def box_axes(body: Body) -> list[Vector]:
    """The axes of the bounding boxes, world."""
    return list(_IDENTITY) if "simplex" in body.kinds else [tuple(row[k] for row in body.R) for k in range(3)]


def span(a: Body, b: Body):
    """The length (m) that scales the tolerances of a pair: half diagonals of both bounding boxes plus the distance of the centres."""
    total = safe_norm(box(a)) + safe_norm(box(b)) + safe_norm(vsub(b.pos, a.pos))
    return jnp.where(total > 0, total, 1.0)


def to_unit_shape(body: Body, n: Vector) -> Vector:
    """A direction n, transformed to the unit shape: (R diag(half))^T n."""
    return tuple(h * x for h, x in zip(body.half, apply_inverse(body.R, n), strict=True))


def unit(m: Vector) -> Vector:
    """m / |m|, without underflow for small m. 0 for m = 0."""
    most = jax.lax.stop_gradient(functools.reduce(jnp.maximum, [jnp.abs(x) for x in m]))
    m = scale(m, 1.0 / jnp.where(most > 0, most, 1.0))
    square = dot(m, m)
    return scale(m, 1.0 / jnp.sqrt(jnp.where(square > 0, square, 1.0)))


def _sign(x):
    return jnp.where(x >= 0, 1.0, -1.0).astype(x.dtype)


def curved_part(body: Body, m: Vector) -> Vector:
    """m with 0 for its components along axes that are not round."""
    return (*m[:2], jnp.where(body.round == 3, m[2], 0.0))


def _farthest(body: Body, m: Vector) -> Vector:
    """The support point of the unit shape: its point farthest along m."""
    if body.table is not None:
        return _vertex(body.table, m)
    if body.corners is not None:
        best, most = body.corners[0], dot(body.corners[0], m)
        for corner in body.corners[1:]:
            far = dot(corner, m)
            best = tuple(jnp.where(far > most, x, y) for x, y in zip(corner, best, strict=True))
            most = jnp.maximum(far, most)
        return best
    ends = tuple(_sign(x) for x in m)
    if not body.curved():
        return ends
    rim = unit(curved_part(body, m))
    return tuple(jnp.where(k < body.round, x, y) for k, (x, y) in enumerate(zip(rim, ends, strict=True)))


def _vertex(table: Hulls, m: Vector) -> Vector:
    """The vertex farthest along m, components (..., n, lanes). With one hull, components of any shape."""
    axes = [jnp.asarray(x, m[0].dtype) for x in jnp.moveaxis(table.vertices, -1, 0)]
    rows = [x.reshape(-1) if table.single() else x for x in axes]
    best = jnp.argmax(sum(x[..., None] * v for x, v in zip(m, rows, strict=True)), axis=-1)
    if not table.single():
        shape = table.vertices.shape[:3]
        best = best + shape[2] * np.arange(shape[0] * shape[1]).reshape(shape[:2])
    return tuple(jnp.take(v.reshape(-1), best) for v in axes)


def world_offset(body: Body, u: Vector) -> Vector:
    """A point of the unit shape, transformed to the world: relative to the body's centre, world axes."""
    return apply(body.R, tuple(h * x for h, x in zip(body.half, u, strict=True)))


@stage
def support(body: Body, n: Vector) -> Vector:
    """The support point of the unit shape for the direction n (world). It is a `stage`, so that all uses get the same choice of a
    vertex."""
    return _farthest(body, to_unit_shape(body, n))


def neg3(n: Vector) -> Vector:
    return tuple(neg(x) for x in n)


def support_function(body: Body, n: Vector):
    """The support function of a body about its centre: the largest n . x of its points x."""
    return dot(n, world_offset(body, support(body, n)))


def axes(body: Body) -> list[Vector]:
    """Characteristic directions of shapes, world: symmetry axes, face normals and edges. The convex algorithm tests them first."""
    used = sorted({k for kind in body.kinds for k in _AXES.get(kind, range(3))})
    out = [tuple(r[k] for r in body.R) for k in used]
    if body.corners is not None:  # prisms: the normal of the top triangle; simplices: the normals of all sides, and three edges
        corners = [world_offset(body, c) for c in body.corners]
        faces = SIMPLEX_FACES if "simplex" in body.kinds else SIMPLEX_FACES[:1]
        for p, q, r in ([corners[k] for k in face] for face in faces):
            out.append(unit(cross(unit(vsub(q, p)), unit(vsub(r, p)))))
        if "simplex" in body.kinds:
            out += [unit(vsub(corners[(k + 1) % 3], corners[k])) for k in range(3)]
    return out


def normals(body: Body) -> tuple[Vector, Any]:
    """Outward normals (facets, ...) of the largest faces of meshes, world axes, and the values of the support function for them."""
    h, table = body.half, body.table
    assert table is not None

    def components(x):  # each (facets, n or 1, lanes or 1), or (facets, 1, ...)
        x = jnp.moveaxis(jnp.asarray(x, h[0].dtype), (-1, -2), (0, 1))
        return x.reshape(3, -1, *[1] * h[0].ndim) if table.single() else x

    # The normal of a scaled mesh is the normal divided by the scale factors. It is multiplied by all three, so that there is no division.
    factors = (h[1] * h[2], h[2] * h[0], h[0] * h[1])
    local = unit(tuple(x * s for x, s in zip(components(table.normals), factors, strict=True)))
    height = dot(local, tuple(x * s for x, s in zip(components(table.corners), h, strict=True)))
    return apply(body.R, local), height


def extents(kind: str, shape: Shape, frame: Shape) -> tuple[Vector, Vector]:
    """Bounding boxes of shapes of one kind along the axes of a frame, relative to their centres: smallest and largest coordinates (m)."""
    leaves = jax.tree.leaves((shape.size, shape.pos, shape.R, frame.R))
    like = jnp.zeros(jnp.broadcast_shapes(*map(jnp.shape, leaves)), jnp.result_type(float, *leaves))
    body, radius = core((kind,), shape, like)
    body, radius = body.without_derivatives(), jax.lax.stop_gradient(radius)
    directions = [jax.tree.map(lambda x: jnp.broadcast_to(jax.lax.stop_gradient(x), like.shape), frame.axis(k)) for k in range(3)]
    low = tuple(-support_function(body, neg3(n)) - radius for n in directions)
    return low, tuple(support_function(body, n) + radius for n in directions)
