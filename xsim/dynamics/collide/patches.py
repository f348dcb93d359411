"""Several contacts between flat faces, or between a flat face and an edge (MuJoCo's flag `multiccd`).

One contact is not enough to support a face on a face, or an edge on a face. The convex algorithm gives one contact. From its normal, each
shape selects a face.

- If the two faces are nearly parallel, the second is clipped by the prism over the first. The normal of all contacts is that of the second.
- If only one shape has a face along the contact normal, the lowest edge of the other shape's face is clipped.

Up to four corners of the result are contacts: the deepest, and three that make a large area with it. Each has its own distance. The cosines
below, and the 16 corners of the cap of a cylinder, are MuJoCo's. The side of a cylinder or capsule is an edge: its line that is farthest
along the normal. MuJoCo adds the radius of a capsule to its axis along the part of the contact normal across the axis. That part is shorter
than one where the capsule leans, so the line is less deep than the end by the radius times the squared sine of the angle.
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

__all__ = ["half_patch", "patch_contact_count", "patch"]

_MAX_CONTACTS = 4
_ROUND = ("capsule", "cylinder")
_PARALLEL_COSINE = 0.996  # directions with a larger cosine count as parallel
_PARALLEL_SINE = 0.0888  # the sine of the same angle
_TIE = 64  # machine epsilons, times the difference of their indices, within which candidates for contacts are equally good
_MAX_CORNERS = 16  # of the cap of a cylinder, and of any face: of one with more corners 16 are chosen


class Faces(NamedTuple):
    """The faces of hulls, padded with copies.

    normals (n, faces, 3): outward.
    rings (n, faces, corners, 3): corners, counter-clockwise seen from outside.
    counts (n, faces): numbers of corners without copies.
    """

    normals: np.ndarray
    rings: np.ndarray
    counts: np.ndarray


class Face(NamedTuple):
    """One face of each shape, world axes.

    normal: outward unit vector.
    ring: corners relative to a common origin, components (corners, ...), m.
    flat: whether it is a face. Else it is the line along a curved side.
    tolerance: of a face with a curved border, the largest distance between the border and the polygon of its corners, m; of a capsule, its
        radius times the sine of the angle by which it leans.
    """

    normal: Vector
    ring: Vector
    flat: Any
    tolerance: Any


def patch_contact_count(shapes: tuple[str, str]) -> int:
    """The number of contacts that `patch` makes for two shapes: 2 for a line, 4 for faces, 0 for shapes without flat faces or edges."""
    if not set(shapes).issubset((*_ROUND, "box", "mesh")) or set(shapes) == {"capsule"}:
        return 0
    return 2 if "capsule" in shapes else _MAX_CONTACTS


@functools.lru_cache(maxsize=256)
def _faces(solids: tuple[tuple[str, Hull | None], ...]) -> Faces:
    """The faces of solids, (kind of shape, hull of a mesh) each. One entry if all solids are equal."""
    every = [_unit_faces(*s) for s in (solids[:1] if all(s == solids[0] for s in solids) else solids)]
    most, corners = max(map(len, every)), max(len(ring) for faces in every for _, ring in faces)
    normals = [np.resize([normal for normal, _ in faces], (most, 3)) for faces in every]
    rings = [np.resize([_padded(ring, corners) for _, ring in faces], (most, corners, 3)) for faces in every]
    counts = [np.resize([len(ring) for _, ring in faces], most) for faces in every]
    return Faces(np.stack(normals), np.stack(rings), np.stack(counts))


@functools.lru_cache(maxsize=256)
def _unit_faces(kind: str, hull: Hull | None) -> list[tuple[np.ndarray, np.ndarray]]:
    """Normals and corners (n, 3) of the flat faces of a shape of size 1. Of a shape without flat faces, one face with two zero corners."""
    if kind == "capsule":
        return [(np.zeros(3), np.zeros((2, 3)))]
    if kind == "cylinder":
        angles = 2 * np.pi * np.arange(_MAX_CORNERS) / _MAX_CORNERS
        rim = np.stack([np.cos(angles), np.sin(angles), np.ones(_MAX_CORNERS)], 1)
        return [(np.array([0.0, 0.0, 1.0]), rim), (np.array([0.0, 0.0, -1.0]), rim[::-1] * (1.0, 1.0, -1.0))]
    hull = _cube() if hull is None else hull
    return [(normal, hull.vertices[ring]) for normal, ring in polygons(hull)]


@functools.cache
def _cube() -> Hull:
    corners = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))
    faces = []
    for k, sign in itertools.product(range(3), (-1.0, 1.0)):
        a, b, c, d = np.flatnonzero(corners[:, k] == sign)  # b and c are adjacent to both a and d
        for p, q, r in ((a, b, d), (a, d, c)):
            outward = np.cross(corners[q] - corners[p], corners[r] - corners[p])[k] * sign > 0
            faces.append((p, q, r) if outward else (p, r, q))
    return make_hull(corners, np.array(faces))


def patch(
    kinds: Sequence[tuple[str, str]], a: Shape, b: Shape, contact: ContactPoint, detection_distance, which=None
) -> list[ContactPoint]:
    """The contacts of pairs, `patch_contact_count` for each. If the faces of a pair do not make a patch, only the first contact exists.

    kinds: the two shapes of each pair; all pairs have the same contact count.
    a, b: the shapes, components (m, lanes). Their ``data`` has a hull for each pair, None for other shapes than meshes.
    contact: the contact of the convex algorithm.
    detection_distance: contacts with a larger distance do not exist, m.
    which (m, lanes): indices of the pairs in ``kinds``. None: all pairs, in order.
    """
    shape = jnp.broadcast_shapes(*(jnp.shape(x) for x in jax.tree.leaves((contact, a[:3], b[:3]))))
    contact, origin = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (contact, a.pos))
    sides = (a, contact.normal), (b, tuple(neg(x) for x in contact.normal))
    first, second = (_face([pair[k] for pair in kinds], s, direction, origin, which) for k, (s, direction) in enumerate(sides))
    return _contacts(first, second, contact, origin, detection_distance)[: patch_contact_count(kinds[0])]


def half_patch(kind: str, plane: Shape, s: Shape, contact: ContactPoint) -> list[ContactPoint]:
    """The contacts of shapes of one kind above planes: the corners of the face, or the ends of the line, that is nearest to the plane.
    contact: where they are nearest. ``data`` of s: a list with the hull of all, None for other shapes than meshes.

    A capsule or cylinder has a line where it is nearly parallel to the plane. Else a capsule has one contact and a cylinder those of its
    cap."""
    if kind not in (*_ROUND, "box", "mesh"):
        return [contact]
    n, down = contact.normal, tuple(neg(x) for x in contact.normal)
    slope = dot(s.axis(2), n)
    lies = jnp.abs(jax.lax.stop_gradient(slope)) < _PARALLEL_SINE
    if kind in _ROUND:
        x, y, _ = s.size
        ends, *_ = _side(s.axis(2), x, y, down, capsule=False)
        line = [vadd(s.pos, end) for end in ends]
        if kind == "capsule":
            points = [_on_plane(plane, n, p, contact) for p in line]
            single = [contact, contact._replace(distance=jnp.full_like(contact.distance, FAR))]
            return [jax.tree.map(lambda p, q: jnp.where(lies, p, q), *both) for both in zip(points, single, strict=True)]
        side = jnp.where(slope > 0, -1.0, 1.0) * y
        angles = 2 * np.pi * np.arange(_MAX_CORNERS) / _MAX_CORNERS
        cap = [vadd(s.pos, apply(s.R, (float(np.cos(a)) * x, float(np.sin(a)) * x, side))) for a in angles]
        ring = [tuple(jnp.where(lies, u, w) for u, w in zip(line[min(k, 1)], p, strict=True)) for k, p in enumerate(cap)]
        point = tuple(jnp.stack(xs) for xs in zip(*ring, strict=True))
    else:
        face = _face([kind], s, down, s.pos, None)
        point = tuple(x + p for x, p in zip(face.ring, s.pos, strict=True))
    gap = dot(n, vsub(point, plane.pos))
    index, valid = _select_four(point, gap, jnp.full(gap.shape, True), n)
    out = []
    for k, exists in zip(index, valid, strict=True):
        found = _on_plane(plane, n, tuple(_take(x, k) for x in point), contact)
        out.append(found._replace(distance=jnp.where(exists, found.distance, FAR)))
    return out


def _on_plane(plane: Shape, n: Vector, point: Vector, contact: ContactPoint) -> ContactPoint:
    """The contact of a point of a shape with a plane."""
    gap = dot(n, vsub(point, plane.pos))
    return contact._replace(distance=gap, point=vsub(point, scale(n, 0.5 * gap)))


def _face(kinds: list[str], s: Shape, direction: Vector, origin: Vector, which) -> Face:
    """The face whose normal is nearest to a direction, or, of a cylinder or capsule without such a face, the line along its side."""
    table = _faces(tuple(zip(kinds, s.data, strict=True)))
    single = len(table.normals) == 1
    stop = jax.lax.stop_gradient
    x, y, z = s.size
    is_round = np.array([kind in _ROUND for kind in kinds])
    is_capsule = np.array([kind == "capsule" for kind in kinds])
    curved, capsule = ((k[:, None] if which is None else jnp.asarray(k)[which]) for k in (is_round, is_capsule))
    if is_round.any():
        y, z = jnp.where(curved, x, y), jnp.where(curved, y, z)
    # The normal of a scaled shape is the normal divided by the scale factors. It is multiplied by all three, so that there is no division.
    factors = (y * z, z * x, x * y)
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
    scaled = [k * stop(t) for k, t in zip(normals, factors, strict=True)]
    square = dot(scaled, scaled)
    cosine = dot(scaled, local) / jnp.sqrt(jnp.where(square > 0, square, 1.0))
    cosine = jnp.where(square > 0, cosine, -2.0)
    best = jnp.argmax(cosine, 0)
    ring = jnp.moveaxis(jnp.asarray(table.rings, dtype)[row, best], (-1, -2), (0, 1))  # (3, corners, m, lanes)
    if ring.shape[1] > _MAX_CORNERS:
        farness = dot([stop(k) * t for k, t in zip((x, y, z), ring, strict=True)], tuple(c[None] for c in local))
        ring = _sixteen(ring, jnp.asarray(table.counts)[row, best], farness)
    unit_normal = jnp.moveaxis(jnp.asarray(table.normals, dtype)[row, best], -1, 0)
    normal = apply(s.R, normalize(tuple(k * t for k, t in zip(unit_normal, factors, strict=True))))
    centre = vsub(s.pos, origin)
    corners = vadd(centre, apply(s.R, tuple(k * t for k, t in zip(ring, (x, y, z), strict=True))))
    corners = tuple(jnp.broadcast_to(c, ring[0].shape) for c in corners)
    flat, tolerance = jnp.full(best.shape, True), jnp.zeros((), dtype)
    if is_round.any():
        flat = ~curved | (cosine.max(0) > _PARALLEL_COSINE)
        tolerance = jnp.where(curved & flat, (1.0 - np.cos(np.pi / _MAX_CORNERS)) * stop(x), 0.0)
        line, radial, lean = _side(s.axis(2), x, z, direction, capsule)
        tolerance = tolerance + jnp.where(capsule, stop(x) * stop(lean), 0.0)
        first = (np.arange(len(corners[0])) == 0).reshape(-1, *[1] * best.ndim)
        line = tuple(c + jnp.where(first, p, q) for c, p, q in zip(centre, *line, strict=True))
        normal, corners = jax.tree.map(lambda u, w: jnp.where(flat, u, w), (normal, corners), (radial, line))
    return Face(normal, corners, flat, tolerance)


def _sixteen(rings, count, farness):
    """At most 16 corners of rings (3, corners, m, lanes): the farthest one, and others that are evenly distributed after it.

    count (m, lanes): numbers of corners. farness (corners, m, lanes): how far each corner is. Short rings are kept."""
    place = np.arange(_MAX_CORNERS).reshape(-1, *[1] * count.ndim)
    spread = (jnp.argmax(farness, 0) + place * count // _MAX_CORNERS) % count
    index = jnp.where(count > _MAX_CORNERS, spread, jnp.minimum(place, count - 1))
    return jnp.take_along_axis(rings, index[None], 1)


def _side(axis: Vector, radius, half, direction: Vector, capsule) -> tuple[tuple[Vector, Vector], Vector, Any]:
    """The line on the side of a cylinder or capsule that is farthest along a direction (unit vector).

    Its two ends relative to the centre, its outward normal, and the sine of the angle between the line and the plane across the direction.
    capsule: whether it is one, see above."""
    along = dot(axis, direction)
    radial = vsub(direction, scale(axis, along))
    square = dot(radial, radial)
    length = jnp.sqrt(jnp.where(square > 0, square, 1.0))
    out = scale(radial, radius * jnp.where(square > 0, 1.0, 0.0) / jnp.where(capsule, 1.0, length))
    radial = scale(radial, jnp.where(square > 0, 1.0, 0.0) / length)
    return (vadd(out, scale(axis, half)), vsub(out, scale(axis, half))), radial, jnp.abs(along)


@stage
def _contacts(first: Face, second: Face, contact: ContactPoint, origin: Vector, detection_distance) -> list[ContactPoint]:
    """Four contacts of two faces. See `patch`."""
    n = contact.normal
    cosine = dot(first.normal, second.normal)
    opposite = first.flat & second.flat & (cosine < -_PARALLEL_COSINE)
    facing = jnp.where(first.flat, dot(first.normal, n), -1.0), jnp.where(second.flat, -dot(second.normal, n), -1.0)
    flip = ~opposite & (facing[1] > facing[0])
    select = functools.partial(jax.tree.map, lambda x, y: jnp.where(flip, y, x))
    corners = max(len(first.ring[0]), len(second.ring[0]))
    first, second = (f._replace(ring=tuple(_padded(x, corners) for x in f.ring)) for f in (first, second))
    base, other = select(first, second), select(second, first)
    up = base.normal
    point, exists = _clip(base, other, opposite, jnp.maximum(*facing) > _PARALLEL_COSINE)
    height = dot(up, vsub(point, tuple(x[:1] for x in base.ring)))
    patch_normal = tuple(jnp.where(opposite | flip, -y, x) for x, y in zip(first.normal, second.normal, strict=True))
    gap = height * jnp.where(opposite, dot(first.normal, patch_normal), 1.0)
    exists = exists & (gap < detection_distance)
    selected, valid = _select_four(point, gap, exists, up)
    # The patch replaces the contact of the convex algorithm if it is as deep.
    size = functools.reduce(jnp.maximum, [(jnp.abs(x - x[:1])).max(0) for x in (*first.ring, *second.ring)])
    sine = jnp.sqrt(jnp.maximum(1.0 - jax.lax.stop_gradient(cosine) ** 2, 0.0))
    slack = 1e2 * jnp.finfo(size.dtype).eps * size + 1e-2 * jnp.abs(contact.distance) + (first.tolerance + second.tolerance) * sine
    is_patch = (contact.distance < FAR) & (jnp.where(exists, gap, FAR).min(0) <= contact.distance + slack)
    normal = tuple(jnp.where(is_patch, x, y) for x, y in zip(patch_normal, n, strict=True))
    out = []
    for k, (index, is_valid) in enumerate(zip(selected, valid, strict=True)):
        distance, x = _take(gap, index), tuple(_take(y, index) for y in point)
        on_first = vsub(x, scale(up, jnp.where(flip, 0.0, _take(height, index))))  # the point on the first shape
        midpoint = vadd(origin, vadd(on_first, scale(patch_normal, 0.5 * distance)))
        distance = jnp.where(is_patch, jnp.where(is_valid, distance, FAR), contact.distance if k == 0 else FAR)
        position = tuple(jnp.where(is_patch, y, z) for y, z in zip(midpoint, contact.point, strict=True))
        out.append(ContactPoint(distance, position, normal, contact.tangent_hint))
    return out


def _padded(x, count: int):
    """x, padded with copies of its last entry."""
    if len(x) == count:
        return x
    xp = np if isinstance(x, np.ndarray) else jnp
    return xp.concatenate([x, xp.broadcast_to(x[-1:], (count - len(x), *x.shape[1:]))])


def _next(ring: Vector) -> Vector:
    """For each corner of a ring, the next one."""
    return tuple(jnp.roll(x, -1, 0) for x in ring)


def _side_distances(ring: Vector, inward: Vector, point: Vector):
    """The distances of points from the sides of a ring, times the sides' lengths, positive inside: (sides, points, ...)."""
    arm = tuple(p[None] - r[:, None] for p, r in zip(point, ring, strict=True))
    return dot(tuple(x[:, None] for x in inward), arm)


def _clip(base: Face, other: Face, opposite, facing) -> tuple[Vector, Any]:
    """The other face, clipped by the prism over the base. If the faces are not parallel (``opposite``), one edge of the other face,
    clipped.

    Returns candidates for contact points, components (candidates, ...), and which of them exist."""
    up, side = base.normal, tuple(y - x for x, y in zip(base.ring, _next(base.ring), strict=True))
    inward = cross(up, side)
    after = _next(other.ring)
    edge = tuple(y - x for x, y in zip(other.ring, after, strict=True))
    # The edge on the base is the lowest edge that is nearly parallel to it.
    length = jnp.sqrt(dot(edge, edge))
    has_length = length > 0
    slope = jnp.abs(dot(base.normal, edge)) / jnp.where(has_length, length, 1.0)
    low = dot(base.normal, tuple(x + 0.5 * d for x, d in zip(other.ring, edge, strict=True)))
    lowest = jnp.argmin(jnp.where(has_length, low, FAR), 0)
    is_lowest = jnp.arange(len(low)).reshape(-1, *[1] * (low.ndim - 1)) == lowest
    counts = has_length & (opposite | is_lowest & facing & (slope < _PARALLEL_SINE))
    # The part of each edge that is inside all sides.
    at_start, at_end = _side_distances(base.ring, inward, other.ring), _side_distances(base.ring, inward, after)
    change = at_start - at_end
    crossing = at_start / jnp.where(change == 0, 1.0, change)
    first = jnp.where((at_start < 0) & (at_end > 0), crossing, 0.0).max(0)
    last = jnp.where((at_start > 0) & (at_end < 0), crossing, 1.0).min(0)
    counts = counts & ~((at_start < 0) & (at_end <= 0) | (at_start <= 0) & (at_end < 0)).any(0) & (first < last)
    starts, ends = (tuple(x + t * d for x, d in zip(other.ring, edge, strict=True)) for t in (first, last))
    # The end of an edge is the start of the next one. It is a new point only if the edge is cut, or is the only one.
    new_end = counts & ((last < 1) | ~opposite)
    # The corners of the base above the other face.
    wall = cross(edge, up)
    tilt = dot(other.normal, up)
    drop = dot(other.normal, vsub(base.ring, tuple(x[:1] for x in other.ring))) / jnp.where(tilt < -0.1, tilt, -1.0)
    dropped = tuple(x - drop * u for x, u in zip(base.ring, up, strict=True))
    heights = jnp.where((dot(wall, wall) > 0)[:, None], _side_distances(other.ring, wall, dropped), 1.0)
    within = (heights > 0).all(0) & opposite & (dot(side, side) > 0)
    point = tuple(jnp.concatenate(parts) for parts in zip(starts, ends, dropped, strict=True))
    return point, jnp.concatenate([counts, new_end, within])


def _select_four(point: Vector, gap, exists, up: Vector) -> tuple[list, list]:
    """The indices of four candidates in a plane that make a large area, and which of the four are valid.

    They are the deepest, the farthest from it, the farthest from the line of both, and the farthest from the triangle of all three. Of
    candidates that differ by rounding only, such as the corners of a regular polygon, it is the first one: contacts do not jump."""
    point, gap = jax.lax.stop_gradient((point, gap))
    handicap = _TIE * jnp.finfo(gap.dtype).eps * np.arange(len(gap)).reshape(-1, *[1] * (gap.ndim - 1))

    def arms(origin):
        return tuple(x - o for x, o in zip(point, origin, strict=True))

    def farthest(measure):
        measure = jnp.where(exists, measure, -1.0)
        best = jnp.argmax(measure * (1.0 - handicap).astype(gap.dtype), 0)
        return best, _take(measure, best)

    def at(k):
        return tuple(_take(x, k) for x in point)

    size = functools.reduce(jnp.maximum, [jnp.where(exists, jnp.abs(x - x[:1]), 0.0).max(0) for x in point])
    a = jnp.argmin(jnp.where(exists, gap + handicap.astype(gap.dtype) * size, FAR), 0)
    pa = at(a)
    out = arms(pa)
    b, far = farthest(dot(out, out))
    pb = at(b)
    line = vsub(pb, pa)
    tiny = 1e3 * jnp.finfo(far.dtype).eps * far  # relative to the square of the size
    area = dot(cross(line, out), up)
    c, wide = farthest(jnp.abs(area))
    pc = at(c)
    sign = jnp.where(_take(area, c) < 0, -1.0, 1.0)
    outside = []
    for p, q in ((pa, pb), (pb, pc), (pc, pa)):
        outside.append(-sign * dot(cross(vsub(q, p), arms(p)), up))
    d, more = farthest(functools.reduce(jnp.maximum, outside))
    return [a, b, c, d], [exists.any(0), far > 0, wide > tiny, (wide > tiny) & (more > tiny)]


def _take(x, k):
    """The k-th candidate of x (candidates, ...)."""
    return jnp.take_along_axis(x, k[None], 0)[0]
