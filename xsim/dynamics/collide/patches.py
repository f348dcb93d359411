"""Several contacts of boxes and hulls whose flat faces lie on each other.

One contact does not hold a face that lies on a face, or an edge that lies on one. Where the most opposite faces of two shapes are nearly
parallel, the second is clipped by the prism over the first, and the normal of all contacts is that of the second; where only one shape has
a face along the normal of their contact, the lowest edge of the other's face is clipped. Of what is left up to four corners count: the
deepest and those that span the most with it, each with its own distance. As MuJoCo's flag `multiccd`, whose cosines these are.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...spatial import Vector, apply, apply_inverse, cross, dot, neg, normalize, scale, stage, vadd, vsub
from .hulls import Hull, make_hull, polygons
from .shapes import FAR, Shape, Touch

__all__ = ["COUNT", "FACETED", "patch"]

COUNT = 4
FACETED = ("box", "mesh")
"""Shapes with flat faces only."""
_OPPOSITE = 0.996  # cosine of the angle between directions that count as parallel
_ACROSS = 0.0888  # its sine
_CORNERS = 16  # of a face; of one with more, so many in turn


class Faces(NamedTuple):
    """Faces of hulls, filled up with copies: normals (n, faces, 3), outward; rings (n, faces, corners, 3), the corners in turn,
    counter-clockwise seen from outside."""

    normals: np.ndarray
    rings: np.ndarray


class Face(NamedTuple):
    """A face of each shape, world axes, about a common centre. normal: outward (unit). ring: the corners, components (corners, ...)."""

    normal: Vector
    ring: Vector


@functools.lru_cache(maxsize=256)
def _faces(hulls: tuple[Hull, ...]) -> Faces:
    hulls = hulls[:1] if all(h == hulls[0] for h in hulls) else hulls
    every = [[(normal, _thinned(ring)) for normal, ring in polygons(h)] for h in hulls]
    most, corners = max(map(len, every)), max(len(ring) for faces in every for _, ring in faces)
    normals = [np.resize([normal for normal, _ in faces], (most, 3)) for faces in every]
    rings = []
    for hull, faces in zip(hulls, every, strict=True):
        own = [hull.vertices[ring + ring[-1:] * (corners - len(ring))] for _, ring in faces]
        rings.append(np.resize(own, (most, corners, 3)))
    return Faces(np.stack(normals), np.stack(rings))


def _thinned(ring: list[int]) -> list[int]:
    count = len(ring)
    return ring if count <= _CORNERS else [ring[k * count // _CORNERS] for k in range(_CORNERS)]


@functools.cache
def _cube() -> Hull:
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    faces = []
    for k, sign in itertools.product(range(3), (-1.0, 1.0)):
        a, b, c, d = np.flatnonzero(corners[:, k] == sign)  # b and c are both beside a and d
        for p, q, r in ((a, b, d), (a, d, c)):
            outward = np.cross(corners[q] - corners[p], corners[r] - corners[p])[k] * sign > 0
            faces.append((p, q, r) if outward else (p, r, q))
    return make_hull(corners, np.array(faces))


def patch(a: Shape, b: Shape, touch: Touch, which=None) -> list[Touch]:
    """As many as `COUNT` contacts of each pair: those of the patch where the touching features make one, else the one that there is.

    a, b: boxes or meshes, components (m, lanes); data: the hulls of all pairs, None for a box. touch: where they are nearest.
    which (m, lanes): the numbers of the pairs among those of the data; None: in turn."""
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves((touch, a[:3], b[:3]))))
    touch, origin = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (touch, a.pos))
    one, two = _face(a, touch.normal, origin, which), _face(b, tuple(neg(x) for x in touch.normal), origin, which)
    return _contacts(one, two, touch, origin)


def _face(s: Shape, direction: Vector, origin: Vector, which) -> Face:
    """The face that is the most along a direction."""
    table = _faces(tuple(_cube() if h is None else h for h in s.data))
    single = len(table.normals) == 1
    stop = jax.lax.stop_gradient
    # normals of a stretched shape are the normals over the stretch; times all three stretches, so that none divides
    x, y, z = s.size
    stretch = (y * z, z * x, x * y)
    dtype = direction[0].dtype
    normals = jnp.asarray(table.normals, dtype)
    if single:
        row: Any = 0
        normals = normals[0].T[:, :, None, None]  # (3, faces, 1, 1)
    elif which is None:
        row = np.arange(len(normals))[:, None]
        normals = normals.T[..., None]  # (3, faces, m, 1)
    else:
        row = which
        normals = jnp.moveaxis(normals[which], (3, 2), (0, 1))  # (3, faces, m, lanes)
    local = stop(apply_inverse(s.R, direction))
    long = [k * stop(t) for k, t in zip(normals, stretch, strict=True)]
    square = dot(long, long)
    cosine = dot(long, local) / jnp.sqrt(jnp.where(square > 0, square, 1.0))
    best = jnp.argmax(jnp.where(square > 0, cosine, -2.0), 0)
    ring = jnp.moveaxis(jnp.asarray(table.rings, dtype)[row, best], (-1, -2), (0, 1))  # (3, corners, m, lanes)
    own = jnp.moveaxis(jnp.asarray(table.normals, dtype)[row, best], -1, 0)
    normal = apply(s.R, normalize(tuple(k * t for k, t in zip(own, stretch, strict=True))))
    corners = vadd(vsub(s.pos, origin), apply(s.R, tuple(k * t for k, t in zip(ring, s.size, strict=True))))
    return Face(normal, tuple(jnp.broadcast_to(c, ring[0].shape) for c in corners))


@stage
def _contacts(one: Face, two: Face, touch: Touch, origin: Vector) -> list[Touch]:
    n = touch.normal
    opposite = dot(one.normal, two.normal) < -_OPPOSITE
    facing = dot(one.normal, n), -dot(two.normal, n)
    flip = ~opposite & (facing[1] > facing[0])
    choose = functools.partial(jax.tree.map, lambda x, y: jnp.where(flip, y, x))
    corners = max(len(one.ring[0]), len(two.ring[0]))
    one, two = (f._replace(ring=tuple(_filled(x, corners) for x in f.ring)) for f in (one, two))
    base, other = choose(one, two), choose(two, one)
    up = base.normal
    point, there = _clipped(base, other, opposite, jnp.maximum(*facing) > _OPPOSITE)
    height = dot(up, vsub(point, tuple(x[:1] for x in base.ring)))
    ours = tuple(jnp.where(opposite | flip, -y, x) for x, y in zip(one.normal, two.normal, strict=True))
    gap = height * jnp.where(opposite, dot(one.normal, ours), 1.0)
    found, real = _spanning(point, gap, there, up)
    # it takes the contact's place if it is as deep
    size = functools.reduce(jnp.maximum, [(jnp.abs(x - x[:1])).max(0) for x in (*one.ring, *two.ring)])
    slack = 1e2 * jnp.finfo(size.dtype).eps * size + 1e-2 * jnp.abs(touch.distance)
    several = (touch.distance < FAR) & (jnp.where(there, gap, FAR).min(0) <= touch.distance + slack)
    normal = tuple(jnp.where(several, x, y) for x, y in zip(ours, n, strict=True))
    out = []
    for k, (c, own) in enumerate(zip(found, real, strict=True)):
        distance, x = _slot(gap, c), tuple(_slot(y, c) for y in point)
        first = vsub(x, scale(up, jnp.where(flip, 0.0, _slot(height, c))))  # on the first shape
        middle = vadd(origin, vadd(first, scale(ours, 0.5 * distance)))
        distance = jnp.where(several, jnp.where(own, distance, FAR), touch.distance if k == 0 else FAR)
        place = tuple(jnp.where(several, y, z) for y, z in zip(middle, touch.point, strict=True))
        out.append(Touch(distance, place, normal, touch.along))
    return out


def _filled(x, count: int):
    return x if len(x) == count else jnp.concatenate([x, jnp.broadcast_to(x[-1:], (count - len(x), *x.shape[1:]))])


def _next(ring: Vector) -> Vector:
    return tuple(jnp.roll(x, -1, 0) for x in ring)


def _heights(ring: Vector, inward: Vector, point: Vector):
    """How far points are within the sides of a ring: (sides, points, ...)."""
    arm = tuple(p[None] - r[:, None] for p, r in zip(point, ring, strict=True))
    return dot(tuple(x[:, None] for x in inward), arm)


def _clipped(base: Face, other: Face, opposite, facing) -> tuple[Vector, Any]:
    """Corners of what the prism over the base leaves of the other face, or, where that is not opposite, of one of its edges: points
    (candidates, ...) and which of them are there."""
    up, side = base.normal, tuple(y - x for x, y in zip(base.ring, _next(base.ring), strict=True))
    inward = cross(up, side)
    after = _next(other.ring)
    edge = tuple(y - x for x, y in zip(other.ring, after, strict=True))
    # the edge that lies on the base: the lowest of those along it
    length = jnp.sqrt(dot(edge, edge))
    some = length > 0
    slope = jnp.abs(dot(base.normal, edge)) / jnp.where(some, length, 1.0)
    low = dot(base.normal, tuple(x + 0.5 * d for x, d in zip(other.ring, edge, strict=True)))
    lowest = jnp.argmin(jnp.where(some, low, FAR), 0)
    only = jnp.arange(len(low)).reshape(-1, *[1] * (low.ndim - 1)) == lowest
    counts = some & (opposite | only & facing & (slope < _ACROSS))
    # how much of each edge is within all sides
    before, behind = _heights(base.ring, inward, other.ring), _heights(base.ring, inward, after)
    fall = before - behind
    at = before / jnp.where(fall == 0, 1.0, fall)
    first = jnp.where((before < 0) & (behind > 0), at, 0.0).max(0)
    last = jnp.where((before > 0) & (behind < 0), at, 1.0).min(0)
    counts = counts & ~((before < 0) & (behind <= 0) | (before <= 0) & (behind < 0)).any(0) & (first < last)
    starts, ends = (tuple(x + t * d for x, d in zip(other.ring, edge, strict=True)) for t in (first, last))
    # the end of an edge is the start of the next, but where it is cut or alone
    cut = counts & ((last < 1) | ~opposite)
    # corners of the base over the other face
    wall = cross(edge, up)
    tilt = dot(other.normal, up)
    drop = dot(other.normal, vsub(base.ring, tuple(x[:1] for x in other.ring))) / jnp.where(tilt < -0.1, tilt, -1.0)
    dropped = tuple(x - drop * u for x, u in zip(base.ring, up, strict=True))
    heights = jnp.where((dot(wall, wall) > 0)[:, None], _heights(other.ring, wall, dropped), 1.0)
    within = (heights > 0).all(0) & opposite & (dot(side, side) > 0)
    point = tuple(jnp.concatenate(parts) for parts in zip(starts, ends, dropped, strict=True))
    return point, jnp.concatenate([counts, cut, within])


def _spanning(point: Vector, gap, there, up: Vector) -> tuple[list, list]:
    """The numbers of four points that span much, of (candidates, ...) in a plane, and which of the four are there: the deepest, the
    farthest from that, from the line of both, from the triangle of all three."""
    point, gap = jax.lax.stop_gradient((point, gap))

    def arms(origin):
        return tuple(x - o for x, o in zip(point, origin, strict=True))

    def farthest(measure):
        measure = jnp.where(there, measure, -1.0)
        best = jnp.argmax(measure, 0)
        return best, _slot(measure, best)

    def at(k):
        return tuple(_slot(x, k) for x in point)

    a = jnp.argmin(jnp.where(there, gap, FAR), 0)
    pa = at(a)
    out = arms(pa)
    b, far = farthest(dot(out, out))
    pb = at(b)
    line = vsub(pb, pa)
    tiny = 1e3 * jnp.finfo(far.dtype).eps * far  # of the square of the size
    turn = dot(cross(line, out), up)
    c, wide = farthest(jnp.abs(turn))
    pc = at(c)
    sign = jnp.where(_slot(turn, c) < 0, -1.0, 1.0)
    outside = []
    for p, q in ((pa, pb), (pb, pc), (pc, pa)):
        outside.append(-sign * dot(cross(vsub(q, p), arms(p)), up))
    d, more = farthest(functools.reduce(jnp.maximum, outside))
    return [a, b, c, d], [there.any(0), far > 0, wide > tiny, (wide > tiny) & (more > tiny)]


def _slot(x, k):
    """Of (candidates, ...) the k-th."""
    return jnp.take_along_axis(x, k[None], 0)[0]
