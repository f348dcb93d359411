"""Collisions of boxes with capsules and boxes.

The rules are MuJoCo's, so that contacts are at the points that its users expect. Candidates are stacked along a leading axis.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.colliders import collider
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.dynamics.collide.spheres_capsules import X_AXIS, ball_box, between_segments, direction, pick, rounding, safe_quotient
from xsim.rules import RULES, Rules
from xsim.spatial import Component, Vector, apply_inverse, cross, dot, mul, scale, stage, total, vadd, vsub

MIN_COMPONENT = 1e-12
"""A smaller component of a direction counts as 0 in a division."""


def stack(components) -> jnp.ndarray:
    """The components as one array, along a new first axis."""
    return jnp.stack(jnp.broadcast_arrays(*components))


def masked_sum(mask, x) -> jnp.ndarray:
    """The sum along the first axis of the entries selected by the mask."""
    return jnp.sum(jnp.where(mask, x, 0), axis=0)


# ---- capsule and box ---------------------------------------------------------------------------------------------------------

_EDGES = [(j, signs) for j in range(3) for signs in itertools.product((-1.0, 1.0), repeat=2)]
EDGE_AXIS = np.array([np.arange(3) == j for j, _ in _EDGES])
"""For each of the 12 edges of a box, a mask of the axis that it is parallel to."""
EDGE_SIGNS = np.array([np.insert(signs[::-1], j, 0.0) for j, signs in _EDGES])
"""For each edge, the signs of its coordinates along the other two axes."""


@collider("capsule", "box", contacts=2)
def capsule_box(a: Shape, b: Shape) -> list[ContactPoint]:
    """Contacts of balls at two points of the capsule's segment: its point nearest to the box, and a second point, as far along the
    segment as it stays above the same face or edge."""
    world = scale(a.axis(2), a.size[1])
    local = stack((*apply_inverse(b.R, vsub(a.pos, b.pos)), *apply_inverse(b.R, world), *b.size))
    center, half, size = local[:3], local[3:6], local[6:]
    first, second, exists = _points_on_capsule(center, half, size)
    contacts = [ball_box(vadd(a.pos, scale(world, t)), a.size[0], b) for t in (first, second)]
    return [contacts[0], contacts[1]._replace(distance=jnp.where(exists, contacts[1].distance, FAR))]


@stage
def _points_on_capsule(center, half, size) -> tuple[Component, Component, Component]:
    """The positions t of both balls on the segment center + t half, -1 <= t <= 1, and whether the second exists. center, half, size: (3,
    ...), in the box's frame."""
    column = (slice(None), slice(None), *[None] * (center.ndim - 1))
    axes, sides = EDGE_AXIS[column], EDGE_SIGNS[column]

    # The ends above a face, or inside the box.
    ends = jnp.stack([center - half, center + half])
    beyond = jnp.abs(ends) > size
    gap = jnp.where(beyond, jnp.abs(ends) - size, 0.0)
    to_ends = jnp.where(beyond.sum(1) > 1, FAR, (gap * gap).sum(1))

    # The edges: x is the position on the edge, y on the capsule's segment.
    edge = jnp.where(axes, size, 0.0)
    offset = center - sides * size
    x, y, line, _ = between_segments(*(tuple(jnp.moveaxis(v, 1, 0)) for v in (edge, jnp.broadcast_to(half, edge.shape), offset)))
    difference = offset + y[:, None] * half - x[:, None] * edge
    at_end = (jnp.abs(line) > 1) | (jnp.abs(x) >= 1)  # the end of an edge is a corner of the box
    upper = jnp.where(jnp.abs(x) >= 1, x, line) > 0
    to_edges = (difference * difference).sum(1) + 4.0 * rounding(x)  # so an end with the same distance is preferred

    nearest = jnp.argmin(jnp.concatenate([to_ends, to_edges]), axis=0)
    is_end, is_edge = nearest == _index(2, nearest), nearest - 2 == _index(12, nearest)
    t = masked_sum(is_end, stack([-jnp.ones_like(x[0]), jnp.ones_like(x[0])])) + masked_sum(is_edge, y)
    face = masked_sum(is_end[:, None], beyond) > 0
    corner = masked_sum(is_edge[:, None], jnp.where(axes, jnp.where(upper, 1.0, -1.0)[:, None], sides))
    edge_axis = masked_sum(is_edge[:, None], axes) > 0

    from_face = _second_over_face(center + t * half, half, size, t, face)
    from_corner = _second_from_corner(half, size, t, corner)
    from_edge = _second_from_edge(half, size, t, corner, edge_axis, masked_sum(is_edge, x))
    kinds = [(nearest < 2, from_face), (masked_sum(is_edge, at_end) > 0, from_corner), (True, from_edge)]
    step, exists = jnp.zeros_like(t), jnp.zeros_like(t, bool)
    for applies, (value, value_exists) in reversed(kinds):
        step, exists = jnp.where(applies, value, step), jnp.where(applies, value_exists, exists)
    return t, t + jnp.where(exists, step, 0.0), exists


def _index(n: int, like) -> jnp.ndarray:
    """0 to n - 1 along a new first axis."""
    return jnp.arange(n).reshape(n, *[1] * like.ndim)


def _step_to(length, half) -> jnp.ndarray:
    """For each axis, the change of t that moves the point center + t half by a length."""
    is_zero = jnp.abs(half) < MIN_COMPONENT
    return jnp.where(is_zero, FAR, length / jnp.where(is_zero, 1.0, jnp.abs(half)))


@stage
def _second_over_face(end, half, size, t, face):
    """The step from an end of the capsule above a face towards the other end, up to the border of the face, and whether there is a face."""
    sign = jnp.where(half * t < 0, 1.0, -1.0)
    limit = jnp.where(face, FAR, _step_to(size - sign * end, half))
    limit = jnp.where(limit > 0, limit, FAR)
    return -t * jnp.minimum(2.0, limit.min(0)), face.any(0)


@stage
def _second_from_corner(half, size, t, corner):
    """The step from a corner along the edge or face that the capsule is nearest to, and whether it exists. It does not if the capsule
    points into the box or away from it."""
    differs = (half > 0) != (corner > 0)
    count = differs.sum(0)
    sign = jnp.where(count == 1, 1.0, -1.0)
    single = differs == (count == 1)  # the one axis whose sign differs from the other two
    limit = _step_to(2.0 * size, half)
    square = half * half
    is_edge = masked_sum(single, square) > 0.5 * square.sum(0)
    edge = jnp.minimum(1.0 - sign * t, masked_sum(single, limit))
    face = jnp.minimum(1.0 + sign * t, jnp.where(single, FAR, limit).min(0))
    return sign * jnp.where(is_edge, edge, -face), (count == 1) | (count == 2)


@stage
def _second_from_edge(half, size, t, corner, edge_axis, x):
    """The step from an edge across the adjacent face that is more parallel to the capsule, up to the end of the face or of the capsule, and
    whether it exists."""
    differs = ((half > 0) != (corner > 0)) & ~edge_axis
    slope = jnp.where(edge_axis, -1.0, jnp.abs(half))
    main = jnp.argmax(slope, axis=0) == _index(3, slope[0])
    is_forward = masked_sum(main, differs) > 0
    sign = jnp.where(is_forward, 1.0, -1.0)
    limit = _step_to(2.0 * size, half)
    remaining = 0.5 * jnp.where((masked_sum(edge_axis, half > 0) > 0) == is_forward, 1.0 - x, 1.0 + x)  # fraction of the edge
    step = jnp.minimum(jnp.minimum(1.0 - sign * t, masked_sum(main, limit)), masked_sum(edge_axis, limit) * remaining)
    return sign * step, differs.sum(0) == 1


# ---- box and box -------------------------------------------------------------------------------------------------------------


@collider("box", "box", contacts=8, options=("margin", "rules"))
def box_box(a: Shape, b: Shape, margin: Component | None = None, rules: Rules = RULES["3.2"]) -> list[ContactPoint]:
    """Up to 8 contacts: the separating axis test gives the axis of least overlap, then a face of one box is clipped by a face of the other.

    rules: the release of MuJoCo. 4.0: face normals are preferred to products of edges; two edges have one contact. 3.2: no axis is
    preferred; for two edges, the adjacent faces are clipped along the axis; the distance of a contact on a face is half the true one; the
    margin determines which contacts exist.
    margin: m. None: infinite.
    """
    offset = vsub(b.pos, a.pos)
    axis = _separating_axis(a, b, offset, rules)
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    sign = jnp.where(axis.flip, -1.0, 1.0)
    reference = [pick(axis.flip, y, x) for x, y in zip(axes_a, axes_b, strict=True)], pick(axis.flip, b.size, a.size)
    incident = [pick(axis.flip, x, y) for x, y in zip(axes_a, axes_b, strict=True)], pick(axis.flip, a.size, b.size)
    offset_r, normal_r = scale(offset, sign), scale(axis.normal, sign)
    if rules.box_faces_preferred:
        exists, distance, point = _clipped_face(*_faces(reference, incident, offset_r, normal_r, axis))
        gap, midpoint = _edge_contact(a, b, offset, axis)
        is_first = jnp.arange(8).reshape(8, *[1] * (distance.ndim - 1)) == 0
        exists, distance = jnp.where(axis.edges, is_first, exists), jnp.where(axis.edges, gap, distance)
        point = pick(axis.edges, midpoint, point)
    else:
        exists, distance, point = _patch_3_2(*_faces(reference, incident, offset_r, normal_r, axis), axis, margin)
        if margin is not None:
            exists = exists & (axis.gap <= margin) & ~_is_outside(point, [(*reference, (0.0, 0.0, 0.0)), (*incident, offset_r)], margin)
    point = vadd(point, pick(axis.flip, b.pos, a.pos))
    distance = jnp.where(exists, distance, FAR)
    return [ContactPoint(distance[k], tuple(x[k] for x in point), axis.normal) for k in range(8)]


class Axis(NamedTuple):
    """The axis of least overlap.

    gap: distance of the boxes along it, m.
    normal: unit vector from a to b.
    edges: whether it is the product of two edges, along the axes i of a and j of b. Else it is a face normal.
    flip: whether it is a face normal of the second box.
    """

    gap: Component
    normal: Vector
    edges: Component
    flip: Component
    i: Component
    j: Component


def _select(index, items):
    """The item with an index 0, 1 or 2. Items are components or vectors."""
    if isinstance(items[0], tuple):
        return tuple(_select(index, parts) for parts in zip(*items, strict=True))
    return jnp.where(index == 0, items[0], jnp.where(index == 1, items[1], items[2]))


def _cyclic(items, index):
    """The three items in cyclic order, from an index on."""
    return [_select(index, [items[(k + n) % 3] for n in range(3)]) for k in range(3)]


def _most_parallel(axes, direction: Vector) -> tuple[Component, Component, list]:
    """The index of the axis most parallel to a direction, the sign of the direction's component along it, and the components along all
    axes."""
    parts = [dot(axis, direction) for axis in axes]
    x, y, z = (jnp.abs(part) for part in parts)
    index = jnp.where((x >= y) & (x >= z), 0, jnp.where(y >= z, 1, 2))
    return index, jnp.where(_select(index, parts) >= 0, 1.0, -1.0), parts


@stage
def _separations(a: Shape, b: Shape, offset: Vector) -> tuple:
    """The gaps between the boxes along the face normals of both (3 each), and along the products of their edges (3 of a, 3 of b), m."""
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    numbers = [dot(x, y) for x in axes_a for y in axes_b] + [dot(x, offset) for x in (*axes_a, *axes_b)] + [*a.size, *b.size]
    numbers = jax.lax.stop_gradient(stack(numbers))
    R, (at_a, at_b, size_a, size_b) = numbers[:9].reshape(3, 3, *numbers.shape[1:]), (numbers[k : k + 3] for k in (9, 12, 15, 18))
    size = jnp.abs(R)
    faces_a = jnp.abs(at_a) - size_a - (size * size_b).sum(1)
    faces_b = jnp.abs(at_b) - size_b - (size * size_a[:, None]).sum(0)

    def rolled(x, k, axis=0):
        return jnp.roll(x, -k, axis)

    # a_i x b_j has the components -R[i + 2, j], R[i + 1, j] along the axes i + 1, i + 2 of a, and R[i, j + 2], -R[i, j + 1] along the axes
    # j + 1, j + 2 of b.
    y, z = rolled(R, 1), rolled(R, 2)
    square = y * y + z * z
    center = jnp.abs(y * rolled(at_a, 2)[:, None] - z * rolled(at_a, 1)[:, None])
    radius_a = rolled(size_a, 1)[:, None] * jnp.abs(z) + rolled(size_a, 2)[:, None] * jnp.abs(y)
    radius_b = rolled(size_b, 1) * rolled(size, 2, 1) + rolled(size_b, 2) * rolled(size, 1, 1)
    parallel = square < rounding(R)
    edges = (center - radius_a - radius_b) / jnp.sqrt(jnp.where(parallel, 1.0, square))
    return faces_a, faces_b, jnp.where(parallel, -FAR, edges)


@stage
def _separating_axis(a: Shape, b: Shape, offset: Vector, rules: Rules) -> Axis:
    """The axis with the largest gap, or the least overlap, of the 15 axes."""
    faces_a, faces_b, edges = _separations(a, b, offset)
    faces = jnp.concatenate([faces_a, faces_b])
    best_face, face = faces.max(0), jnp.argmax(faces, 0)
    tolerance = 8.0 * rounding(faces) * total([*a.size, *b.size])
    best, code = best_face, jnp.full_like(face, -1)
    for k in range(9):
        candidate = edges[k // 3, k % 3]
        if rules.box_faces_preferred:
            better = (candidate - 1e-6 * jnp.abs(candidate) > best + tolerance) & (candidate > best_face)
        else:
            better = candidate > best + 1e-12 * jnp.abs(best) + tolerance
        best, code = jnp.where(better, candidate, best), jnp.where(better, k, code)
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    i, j = jnp.maximum(code, 0) // 3, jnp.maximum(code, 0) % 3
    flip = face >= 3
    normal = pick(flip, _select(face - 3, axes_b), _select(face, axes_a))
    edge_product, _ = direction(cross(_select(i, axes_a), _select(j, axes_b)), X_AXIS)
    edge = code >= 0
    if rules.box_faces_preferred:  # the product must not be nearly a face normal with nearly the same gap
        edge = edge & ~((jnp.abs(dot(normal, edge_product)) > 0.99) & (best < best_face + 0.05 * jnp.abs(best_face) + 1e-15))
    normal = pick(edge, edge_product, normal)
    return Axis(best, scale(normal, jnp.where(dot(normal, offset) < 0, -1.0, 1.0)), edge, flip & ~edge, i, j)


@stage
def _edge_contact(a: Shape, b: Shape, offset: Vector, axis: Axis) -> tuple[Component, Vector]:
    """The distance of two edges along the product axis, and the midpoint of their nearest points, relative to a's centre."""
    center, halves = [], []
    for box, index, sign in ((a, axis.i, 1.0), (b, axis.j, -1.0)):
        sides = [scale(box.axis(k), box.size[k]) for k in range(3)]
        signs = [jnp.where(index == k, 0.0, jnp.where(dot(side, axis.normal) >= 0, sign, -sign)) for k, side in enumerate(sides)]
        center.append(vadd(vadd(*(scale(sides[k], signs[k]) for k in range(2))), scale(sides[2], signs[2])))
        halves.append(_select(index, sides))
    gap = vsub(vadd(offset, center[1]), center[0])
    near = between_segments(*halves, gap)
    first = vadd(center[0], scale(halves[0], near.x))
    second = vadd(vadd(offset, center[1]), scale(halves[1], near.y))
    return dot(vsub(second, first), axis.normal), scale(vadd(first, second), 0.5)


class Face(NamedTuple):
    """A face of the reference box.

    x, y, up: unit axes, world. up is the outward normal.
    center: relative to the box's centre.
    half: half extents along x and y.
    normal: the direction of projection.
    """

    x: Vector
    y: Vector
    up: Vector
    center: Vector
    half: tuple
    normal: Vector

    def project(self, v: Vector) -> Vector:
        """The coordinates x and y of a vector's projection onto the face along the normal, and its height along the normal."""
        height = dot(self.up, v) / dot(self.up, self.normal)
        flat = vsub(v, scale(self.normal, height))
        return dot(self.x, flat), dot(self.y, flat), height

    def point(self, x, y, height) -> Vector:
        """The point with the coordinates of `project`, relative to the centre of the box."""
        return vadd(vadd(self.center, scale(self.normal, height)), vadd(scale(self.x, x), scale(self.y, y)))


class Incident(NamedTuple):
    """A face of the incident box.

    index: the box's axis normal to the face.
    corner: the deepest corner, relative to the centre of the reference box.
    sides: the two edges from this corner, along the box's axes index + 1 and index + 2.
    slopes: components of these axes along the normal.
    """

    index: Component
    corner: Vector
    sides: list
    slopes: list


@stage
def _faces(reference, incident, offset: Vector, normal: Vector, axis: Axis) -> tuple[Face, Incident]:
    """For each box, the face whose normal is most parallel to the contact normal, which points from the reference box to the incident
    one."""
    axes, sizes = reference
    index, sign, _ = _most_parallel(axes, normal)
    (x, y, z), (sx, sy, sz) = axes, sizes
    opposite = jnp.where(sign > 0, -1.0, 1.0)
    up = scale(_select(index, axes), sign)
    # The axes of a face are MuJoCo's, because `_reference_corners_3_2` depends on them.
    face = Face(
        _select(index, [scale(z, opposite), x, scale(x, sign)]),
        _select(index, [y, scale(z, opposite), y]),
        up,
        scale(up, _select(index, sizes)),
        (_select(index, [sz, sx, sx]), _select(index, [sy, sz, sy])),
        normal,
    )
    index, _, parts = _most_parallel(incident[0], normal)
    parts = [jnp.where(axis.edges & (axis.j == k), 0.0, part) for k, part in enumerate(parts)]  # its sign would be that of rounding errors
    sides = [scale(e, mul(s, jnp.where(part >= 0, 2.0, -2.0))) for e, s, part in zip(*incident, parts, strict=True)]
    corner = vsub(offset, scale(vadd(vadd(*sides[:2]), sides[2]), 0.5))
    return face, Incident(index, corner, _cyclic(sides, index)[1:], _cyclic(parts, index)[1:])


def _clipped_face(face: Face, incident: Incident) -> tuple:
    """The corners of the intersection of two faces: which exist, heights, and points relative to the reference box's centre."""
    p, (u, v) = face.project(vsub(incident.corner, face.center)), (face.project(side) for side in incident.sides)
    clockwise = u[0] * v[1] < u[1] * v[0]
    exists, x, y, height = _polygon(p, pick(clockwise, v, u), pick(clockwise, u, v), *face.half)
    return exists, height, face.point(x, y, 0.5 * height)


@stage
def _polygon(p, u, v, lx, ly) -> tuple:
    """The corners of the intersection of a rectangle and a parallelogram.

    The rectangle is |x| <= lx, |y| <= ly. The parallelogram is p + s u + t v with 0 <= s, t <= 1, counter-clockwise; p, u, v have the
    components x, y and height. Each side of both is clipped by the other shape. The start of the remaining part is a corner of the
    intersection. Returns
    which corners exist, x, y, height (8, ...): on the four sides of the parallelogram, from p on, then on those of the rectangle. If sides
    coincide, their corners belong to the parallelogram.
    """
    p, u, v, (lx, ly) = stack(p), stack(u), stack(v), stack([lx, ly])
    span = lx + ly + jnp.abs(jnp.stack([u, v]))[:, :2].sum((0, 1))
    tiny = 64.0 * rounding(p) * jax.lax.stop_gradient(span)
    min_length = max(1e-7, 64.0 * rounding(p)) * jax.lax.stop_gradient(lx + ly)

    corners, steps = jnp.stack([p, p + u, p + u + v, p + v]), jnp.stack([u, v, -u, -v])
    limits = jnp.stack([lx, ly])
    start, end = _clip_segment(corners[:, :2], steps[:, :2], -limits, limits, tiny, tiny)
    exists = (end - start) * jnp.abs(steps[:, :2]).sum(1) > min_length
    begin = corners + start[:, None] * steps

    zero = jnp.zeros_like(lx)
    box = jnp.stack([jnp.stack(c) for c in ((lx, -ly), (lx, ly), (-lx, ly), (-lx, -ly))])
    sides = jnp.stack([jnp.stack(c) for c in ((zero, 2.0 * ly), (-2.0 * lx, zero), (zero, -2.0 * ly), (2.0 * lx, zero))])
    area = u[0] * v[1] - u[1] * v[0]

    def coordinates(x, y):
        """The coordinates s and t of a vector."""
        return jnp.stack([safe_quotient(x * v[1] - y * v[0], area), safe_quotient(u[0] * y - u[1] * x, area)], 1)

    slack = jax.lax.stop_gradient(jnp.stack([safe_quotient(jnp.abs(w[:2]).sum(0), jnp.abs(area)) for w in (v, u)]) * 0.5 * tiny)
    base, side_st = coordinates(box[:, 0] - p[0], box[:, 1] - p[1]), coordinates(sides[:, 0], sides[:, 1])
    start2, end2 = _clip_segment(base, side_st, 0.0, 1.0, slack, -slack)
    exists2 = (end2 - start2) * jnp.abs(sides).sum(1) > min_length
    st = base + start2[:, None] * side_st
    begin2 = jnp.concatenate([box + start2[:, None] * sides, (p[2] + st[:, 0] * u[2] + st[:, 1] * v[2])[:, None]], 1)
    begin = jnp.concatenate([begin, begin2])
    return jnp.concatenate([exists, exists2]), begin[:, 0], begin[:, 1], begin[:, 2]


@stage
def _clip_segment(start, step, low, high, level, slack) -> tuple:
    """The part [t0, t1] of the segment start + t step, 0 <= t <= 1, in which both coordinates (second axis) are between low and high. It is
    empty if t0 > t1. A coordinate with a step below ``level`` counts as constant; it may be outside by ``slack``."""
    constant = jnp.abs(step) <= level
    safe = jnp.where(constant, 1.0, step)
    at_low, at_high = (low - start) / safe, (high - start) / safe
    enter = jnp.where(constant, jnp.where((start >= low - slack) & (start <= high + slack), 0.0, 2.0), jnp.minimum(at_low, at_high))
    leave = jnp.where(constant, 1.0, jnp.maximum(at_low, at_high))
    return jnp.maximum(0.0, enter.max(1)), jnp.minimum(1.0, leave.min(1))


# ---- the rules of MuJoCo 3.2 -------------------------------------------------------------------------------------------------


def _patch_3_2(face: Face, incident: Incident, axis: Axis, margin) -> tuple:
    """The first 8 of these points: crossings of incident edges with the border of the reference face, corners of the reference face above
    the incident face, corners of the incident face.

    An incident edge counts if its angle to the reference face is less than 30 degrees. For an axis that is a product of edges, both
    count. The deepest corner of a face contact always exists. For a product of edges without a crossing within the margin, corners
    outside the faces count too, with their nearest points.
    """
    p, u, v, has_one, has_two = _incident_face_3_2(face, incident, axis)
    limits = stack(face.half)
    lines = jnp.stack([p, p, p + u, p + v]), jnp.stack([u, v, v, u])
    tiny = 64.0 * rounding(p) * jax.lax.stop_gradient(limits.sum(0))
    start, end = _clip_segment(lines[0][:, :2], lines[1][:, :2], -limits, limits, tiny, tiny)
    counted = jnp.stack([has_one, has_two, has_two, has_two]) & (start < end)
    crossing = jnp.concatenate([lines[0] + t[:, None] * lines[1] for t in (start, end)])
    crosses = jnp.concatenate([counted & (start > 0), counted & (end < 1)])
    margin = jnp.asarray(jnp.inf if margin is None else margin, p.dtype)
    crosses = crosses & (crossing[:, 2] <= margin)
    no_crossing = axis.edges & ~crosses.any(0)

    tilt = stack([dot(face.x, face.normal), dot(face.y, face.normal), dot(face.up, face.normal)])
    height = crossing[:, 2]
    midpoint = crossing * jnp.array([1.0, 1.0, 0.0]).reshape(3, *[1] * (p.ndim - 1)) + 0.5 * tilt * height[:, None]
    reference_corners = _reference_corners_3_2(p, u, v, has_two, limits, tilt, axis.edges, no_crossing, margin)
    no_other = no_crossing & ~reference_corners[0].any(0)
    incident_corners = _incident_corners_3_2(p, u, v, has_one, has_two, limits, tilt, axis.edges, no_crossing, no_other, margin)
    candidates = (crosses, height, midpoint), reference_corners, incident_corners
    exists, height, midpoint = (jnp.concatenate(parts) for parts in zip(*candidates, strict=True))
    height = jnp.where(axis.edges, height, 0.5 * height)
    exists, (height, *midpoint) = _first_existing(8, exists, jnp.concatenate([height[:, None], midpoint], 1))
    x, y, z = midpoint
    point = vadd(vadd(face.center, scale(face.up, z)), vadd(scale(face.x, x), scale(face.y, y)))
    return exists, height, point


@stage
def _incident_face_3_2(face: Face, incident: Incident, axis: Axis) -> tuple:
    """The incident face, projected onto the reference face: corner, two sides (x, y, height), whether the first counts, whether both
    count."""
    p, (u, v) = face.project(vsub(incident.corner, face.center)), (face.project(side) for side in incident.sides)
    p, u, v = stack(p), stack(u), stack(v)
    is_flat = [jnp.abs(slope) < 0.5 for slope in incident.slopes]
    # For a product of edges, the first side is the edge. It starts at its end along the positive axis.
    swap = jnp.where(axis.edges, (incident.index + 1) % 3 != axis.j, is_flat[1] & ~is_flat[0])
    u, v = jnp.where(swap, v, u), jnp.where(swap, u, v)
    p, u = jnp.where(axis.edges, p + u, p), jnp.where(axis.edges, -u, u)
    both = axis.edges | (is_flat[0] & is_flat[1])
    return p, u, jnp.where(both, v, 0.0), axis.edges | is_flat[0] | is_flat[1], both


def _signed_root(square, height):
    """The square root with the sign of the height. Its derivative at 0 is 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0) * jnp.where(height < 0, -1.0, 1.0)


@stage
def _reference_corners_3_2(p, u, v, has_two, limits, tilt, edges, no_crossing, margin) -> tuple:
    """The corners of the reference face above the incident face: which exist, distances, midpoints (4, ...).

    For a product of edges, MuJoCo 3.2 overwrites the area of the incident face with the squared distance of the last accepted corner. So
    its coordinates of later corners are wrong. This is reproduced here.
    """
    area = u[0] * v[1] - u[1] * v[0]
    corners = []
    for sx, sy in itertools.product((-1.0, 1.0), repeat=2):
        x, y = sx * limits[0] - p[0], sy * limits[1] - p[1]
        s, t = safe_quotient(x * v[1] - y * v[0], area), safe_quotient(u[0] * y - u[1] * x, area)
        off = [(w < 0) | (w > 1) for w in (s, t)]
        inside = (s > 0) & (s < 1) & (t > 0) & (t < 1)
        counts = has_two & jnp.where(edges, ~jnp.where(no_crossing, off[0] & off[1], off[0] | off[1]), inside)
        s, t = jnp.clip(s, 0.0, 1.0), jnp.clip(t, 0.0, 1.0)
        on_incident = p + s * u + t * v
        height = on_incident[2]
        corner = jnp.stack([sx * limits[0], sy * limits[1], jnp.zeros_like(height)])
        partner = jnp.stack([on_incident[0], on_incident[1], jnp.zeros_like(height)]) + tilt * height
        square = ((partner - corner) ** 2).sum(0)
        distance = jnp.where(edges, _signed_root(square, height), height)
        corners.append((counts & (distance <= margin), distance, 0.5 * (corner + partner)))
        area = jnp.where(edges & counts, square, area)
    return tuple(jnp.stack(parts) for parts in zip(*corners, strict=True))


@stage
def _incident_corners_3_2(p, u, v, has_one, has_two, limits, tilt, edges, no_crossing, no_other, margin) -> tuple:
    """The corners of the incident face above the reference face: which exist, distances, midpoints (4, ...). no_other: whether there are no
    other candidates; then all corners count."""
    corners = []
    candidates = [(p, jnp.ones_like(has_one)), (p + u, has_one), (p + v, has_two), (p + u + v, has_two)]
    for k, (point, exists) in enumerate(candidates):
        xy, height = point[:2], point[2]
        clipped = jnp.clip(xy, -limits, limits)
        off = jnp.abs(xy) > limits
        counts = jnp.where(edges, jnp.where(no_crossing, ~(off[0] & off[1]) | no_other, ~(off[0] | off[1])), (k == 0) | ~(off[0] | off[1]))
        square = ((xy - clipped) ** 2).sum(0) + height * height
        distance = jnp.where(edges, _signed_root(square, height), height)
        base = jnp.where(edges, 0.5 * (xy + clipped), xy)
        midpoint = jnp.stack([base[0], base[1], jnp.zeros_like(height)]) + 0.5 * tilt * height
        corners.append((exists & counts & (distance <= margin), distance, midpoint))
    return tuple(jnp.stack(parts) for parts in zip(*corners, strict=True))


@stage
def _first_existing(n: int, exists, values) -> tuple:
    """The first n entries that exist, and their values (k, n, ...). If there are fewer, the others have zeros."""
    rank = jnp.cumsum(exists, axis=0)
    slots = [exists & (rank == k + 1) for k in range(n)]
    return jnp.stack([slot.any(0) for slot in slots]), jnp.stack([masked_sum(slot[:, None], values) for slot in slots], 1)


@stage
def _is_outside(point: Vector, boxes, margin) -> Component:
    """Whether points are outside one box and not well inside the other. Both boxes are enlarged by the margin. "Well inside" is 1 % of the
    size."""
    relative_positions = []
    for axes, sizes, center in boxes:
        local = [jnp.abs(dot(axis, vsub(point, center))) / (size + margin) for axis, size in zip(axes, sizes, strict=True)]
        relative_positions.append(jnp.maximum(jnp.maximum(*local[:2]), local[2]))
    first, second = relative_positions
    return ((first > 1.01) & (second > 1.0 / 1.01)) | ((second > 1.01) & (first > 1.0 / 1.01))
