"""Several contacts of shapes whose flat faces lie on each other.

One contact does not hold a face that lies on a face, or an edge that lies on one. Where the most opposite faces of two shapes are nearly
parallel, the second is clipped by the prism over the first, and the normal of all contacts is that of the second; where only one shape has
a face along the normal of their contact, the lowest edge of the other's face is clipped. Of what is left up to four corners count: the
deepest and those that span the most with it, each with its own distance. As MuJoCo's flag `multiccd`, whose cosines these are; as there the
caps of cylinders have 16 corners. The side of a cylinder or capsule is an edge, the line along it that is farthest along the normal.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.hulls import Hull, make_hull, polygons
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.spatial import Vector, apply, apply_inverse, cross, dot, neg, normalize, scale, stage, vadd, vsub

__all__ = ["patch_contact_count", "patch"]

_COUNT = 4
_ROUND = ("capsule", "cylinder")
_OPPOSITE = 0.996  # cosine of the angle between directions that count as parallel
_ACROSS = 0.0888  # its sine
_CORNERS = 16  # of the cap of a cylinder, and of a face; of one with more, so many in turn


class Faces(NamedTuple):
    """Faces of hulls, filled up with copies: normals (n, faces, 3), outward; rings (n, faces, corners, 3), the corners in turn,
    counter-clockwise seen from outside."""

    normals: np.ndarray
    rings: np.ndarray


class Face(NamedTuple):
    """A face of each shape, world axes, about a common centre. normal: outward (unit). ring: the corners, components (corners, ...).
    flat: whether it is a face, and not the line along a side. inside: how far (m) corners are within a curved border."""

    normal: Vector
    ring: Vector
    flat: Any
    inside: Any


def patch_contact_count(shapes: tuple[str, str]) -> int:
    """How many contacts the patch of two shapes may have: 2 for a line, 0 for shapes that make none."""
    if not set(shapes).issubset((*_ROUND, "box", "mesh")) or set(shapes) == {"capsule"}:
        return 0
    return 2 if "capsule" in shapes else _COUNT


@functools.lru_cache(maxsize=256)
def _faces(solids: tuple[tuple[str, Hull | None], ...]) -> Faces:
    """Of kinds of shapes with the hulls of meshes; of all alike, one."""
    every = [_unit_faces(*s) for s in (solids[:1] if all(s == solids[0] for s in solids) else solids)]
    most, corners = max(map(len, every)), max(len(ring) for faces in every for _, ring in faces)
    normals = [np.resize([normal for normal, _ in faces], (most, 3)) for faces in every]
    rings = [np.resize([_filled(ring, corners) for _, ring in faces], (most, corners, 3)) for faces in every]
    return Faces(np.stack(normals), np.stack(rings))


@functools.lru_cache(maxsize=256)
def _unit_faces(kind: str, hull: Hull | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Normals and corners (n, 3) of the flat faces of a shape of size 1; one without size, with two corners, where there are none."""
    if kind == "capsule":
        return [(np.zeros(3), np.zeros((2, 3)))]
    if kind == "cylinder":
        angles = 2 * np.pi * np.arange(_CORNERS) / _CORNERS
        rim = np.stack([np.cos(angles), np.sin(angles), np.ones(_CORNERS)], 1)
        return [(np.array([0.0, 0.0, 1.0]), rim), (np.array([0.0, 0.0, -1.0]), rim[::-1] * (1.0, 1.0, -1.0))]
    hull = _cube() if hull is None else hull
    return [(normal, hull.vertices[_thinned(ring)]) for normal, ring in polygons(hull)]


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


def patch(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape, touch: ContactPoint, reach, which=None) -> list[ContactPoint]:
    """As many contacts of each pair as `patch_contact_count` says, the same for all kinds: those of the patch where the touching features
    make one, else the one that there is.

    kinds: of all pairs. a, b: their shapes, components (m, lanes); data: hulls of all pairs, None for what is no mesh. touch: where they
    are nearest. reach: distance (m) at which contacts are found. which (m, lanes): the numbers of the pairs among all; None: in turn."""
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves((touch, a[:3], b[:3]))))
    touch, origin = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (touch, a.pos))
    back = tuple(neg(x) for x in touch.normal)
    one, two = (
        _face([both[k] for both in kinds], s, along, origin, which) for k, (s, along) in enumerate(((a, touch.normal), (b, back)))
    )
    return _contacts(one, two, touch, origin, reach)[: patch_contact_count(kinds[0])]


def _face(kinds: list[str], s: Shape, direction: Vector, origin: Vector, which) -> Face:
    """The face that is the most along a direction, or the line along a side."""
    table = _faces(tuple(zip(kinds, s.data, strict=True)))
    single = len(table.normals) == 1
    stop = jax.lax.stop_gradient
    x, y, z = s.size
    round_ones = np.array([kind in _ROUND for kind in kinds])
    curved = round_ones[:, None] if which is None else jnp.asarray(round_ones)[which]
    if round_ones.any():
        y, z = jnp.where(curved, x, y), jnp.where(curved, y, z)
    # normals of a stretched shape are the normals over the stretch; times all three stretches, so that none divides
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
    cosine = jnp.where(square > 0, cosine, -2.0)
    best = jnp.argmax(cosine, 0)
    ring = jnp.moveaxis(jnp.asarray(table.rings, dtype)[row, best], (-1, -2), (0, 1))  # (3, corners, m, lanes)
    own = jnp.moveaxis(jnp.asarray(table.normals, dtype)[row, best], -1, 0)
    normal = apply(s.R, normalize(tuple(k * t for k, t in zip(own, stretch, strict=True))))
    centre = vsub(s.pos, origin)
    corners = vadd(centre, apply(s.R, tuple(k * t for k, t in zip(ring, (x, y, z), strict=True))))
    corners = tuple(jnp.broadcast_to(c, ring[0].shape) for c in corners)
    flat, inside = jnp.full(best.shape, True), jnp.zeros((), dtype)
    if round_ones.any():
        flat = ~curved | (cosine.max(0) > _OPPOSITE)
        inside = jnp.where(curved & flat, (1.0 - np.cos(np.pi / _CORNERS)) * stop(x), 0.0)
        line, radial = _side(s.axis(2), x, z, direction)
        first = (np.arange(len(corners[0])) == 0).reshape(-1, *[1] * best.ndim)
        line = tuple(c + jnp.where(first, p, q) for c, p, q in zip(centre, *line, strict=True))
        normal, corners = jax.tree.map(lambda u, w: jnp.where(flat, u, w), (normal, corners), (radial, line))
    return Face(normal, corners, flat, inside)


def _side(axis: Vector, radius, half, direction: Vector) -> tuple[tuple[Vector, Vector], Vector]:
    """Ends of the line along the side of a cylinder that is farthest along a direction, from its centre, and the direction of that side."""
    radial = vsub(direction, scale(axis, dot(axis, direction)))
    square = dot(radial, radial)
    radial = scale(radial, jnp.where(square > 0, 1.0, 0.0) / jnp.sqrt(jnp.where(square > 0, square, 1.0)))
    out = scale(radial, radius)
    return (vadd(out, scale(axis, half)), vsub(out, scale(axis, half))), radial


@stage
def _contacts(one: Face, two: Face, touch: ContactPoint, origin: Vector, reach) -> list[ContactPoint]:
    n = touch.normal
    cosine = dot(one.normal, two.normal)
    opposite = one.flat & two.flat & (cosine < -_OPPOSITE)
    facing = jnp.where(one.flat, dot(one.normal, n), -1.0), jnp.where(two.flat, -dot(two.normal, n), -1.0)
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
    there = there & (gap < reach)
    found, real = _spanning(point, gap, there, up)
    # it takes the contact's place if it is as deep
    size = functools.reduce(jnp.maximum, [(jnp.abs(x - x[:1])).max(0) for x in (*one.ring, *two.ring)])
    lean = jnp.sqrt(jnp.maximum(1.0 - jax.lax.stop_gradient(cosine) ** 2, 0.0))
    slack = 1e2 * jnp.finfo(size.dtype).eps * size + 1e-2 * jnp.abs(touch.distance) + (one.inside + two.inside) * lean
    several = (touch.distance < FAR) & (jnp.where(there, gap, FAR).min(0) <= touch.distance + slack)
    normal = tuple(jnp.where(several, x, y) for x, y in zip(ours, n, strict=True))
    out = []
    for k, (c, own) in enumerate(zip(found, real, strict=True)):
        distance, x = _slot(gap, c), tuple(_slot(y, c) for y in point)
        first = vsub(x, scale(up, jnp.where(flip, 0.0, _slot(height, c))))  # on the first shape
        middle = vadd(origin, vadd(first, scale(ours, 0.5 * distance)))
        distance = jnp.where(several, jnp.where(own, distance, FAR), touch.distance if k == 0 else FAR)
        place = tuple(jnp.where(several, y, z) for y, z in zip(middle, touch.point, strict=True))
        out.append(ContactPoint(distance, place, normal, touch.tangent_hint))
    return out


def _filled(x, count: int):
    if len(x) == count:
        return x
    xp = np if isinstance(x, np.ndarray) else jnp
    return xp.concatenate([x, xp.broadcast_to(x[-1:], (count - len(x), *x.shape[1:]))])


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
