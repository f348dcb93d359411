"""Boxes against capsules and boxes.

The rules are MuJoCo's, so that contacts are where its users expect them; candidates are stacked along a leading axis.
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

SHORT = 1e-12
"""Components of a direction below this are 0 where one divides by them."""


def stacked(components) -> jnp.ndarray:
    """Components as one array, along a new first axis."""
    return jnp.stack(jnp.broadcast_arrays(*components))


def masked(mask, x) -> jnp.ndarray:
    """Sum of what the mask leaves along the first axis."""
    return jnp.sum(jnp.where(mask, x, 0), axis=0)


# ---- capsule and box ---------------------------------------------------------------------------------------------------------

_EDGES = [(j, signs) for j in range(3) for signs in itertools.product((-1.0, 1.0), repeat=2)]
EDGE_AXIS = np.array([np.arange(3) == j for j, _ in _EDGES])
"""Which axis each of the 12 edges of a box is along."""
EDGE_SIDE = np.array([np.insert(signs[::-1], j, 0.0) for j, signs in _EDGES])
"""Where they are along the other two."""


@collider("capsule", "box", contacts=2)
def capsule_box(a: Shape, b: Shape) -> list[ContactPoint]:
    """The nearest point of the capsule's segment, and a second one as far along the segment as it stays over that face or edge."""
    world = scale(a.axis(2), a.size[1])
    numbers = stacked((*apply_inverse(b.R, vsub(a.pos, b.pos)), *apply_inverse(b.R, world), *b.size))
    center, half, size = numbers[:3], numbers[3:6], numbers[6:]
    first, second, exists = _points_on_capsule(center, half, size)
    touches = [ball_box(vadd(a.pos, scale(world, t)), a.size[0], b) for t in (first, second)]
    return [touches[0], touches[1]._replace(distance=jnp.where(exists, touches[1].distance, FAR))]


@stage
def _points_on_capsule(center, half, size) -> tuple[Component, Component, Component]:
    """Where the balls are along the segment center + t half, -1 <= t <= 1, in the box's frame (3, ...); whether there is a second."""
    column = (slice(None), slice(None), *[None] * (center.ndim - 1))
    axes, sides = EDGE_AXIS[column], EDGE_SIDE[column]

    # the ends over a face, or inside
    ends = jnp.stack([center - half, center + half])
    over = jnp.abs(ends) > size
    gap = jnp.where(over, jnp.abs(ends) - size, 0.0)
    to_ends = jnp.where(over.sum(1) > 1, FAR, (gap * gap).sum(1))

    # the edges: x along the edge, y along the capsule
    edge = jnp.where(axes, size, 0.0)
    offset = center - sides * size
    x, y, line, _ = between_segments(*(tuple(jnp.moveaxis(v, 1, 0)) for v in (edge, jnp.broadcast_to(half, edge.shape), offset)))
    apart = offset + y[:, None] * half - x[:, None] * edge
    at_end = (jnp.abs(line) > 1) | (jnp.abs(x) >= 1)  # of the edge: a corner of the box
    upper = jnp.where(jnp.abs(x) >= 1, x, line) > 0
    to_edges = (apart * apart).sum(1) + 4.0 * rounding(x)  # an end that is as near is preferred

    nearest = jnp.argmin(jnp.concatenate([to_ends, to_edges]), axis=0)
    is_end, is_edge = nearest == _index(2, nearest), nearest - 2 == _index(12, nearest)
    t = masked(is_end, stacked([-jnp.ones_like(x[0]), jnp.ones_like(x[0])])) + masked(is_edge, y)
    face = masked(is_end[:, None], over) > 0
    corner = masked(is_edge[:, None], jnp.where(axes, jnp.where(upper, 1.0, -1.0)[:, None], sides))
    along = masked(is_edge[:, None], axes) > 0

    from_face = _second_over_face(center + t * half, half, size, t, face)
    from_corner = _second_from_corner(half, size, t, corner)
    from_edge = _second_from_edge(half, size, t, corner, along, masked(is_edge, x))
    kinds = [(nearest < 2, from_face), (masked(is_edge, at_end) > 0, from_corner), (True, from_edge)]
    step, exists = jnp.zeros_like(t), jnp.zeros_like(t, bool)
    for holds, (value, there) in reversed(kinds):
        step, exists = jnp.where(holds, value, step), jnp.where(holds, there, exists)
    return t, t + jnp.where(exists, step, 0.0), exists


def _index(n: int, like) -> jnp.ndarray:
    """0 to n - 1 along a new first axis."""
    return jnp.arange(n).reshape(n, *[1] * like.ndim)


def _reach(length, half) -> jnp.ndarray:
    """How far t goes until half has covered that length, along each axis."""
    short = jnp.abs(half) < SHORT
    return jnp.where(short, FAR, length / jnp.where(short, 1.0, jnp.abs(half)))


@stage
def _second_over_face(end, half, size, t, face):
    """From an end of the capsule over a face towards the other end, as far as the face goes."""
    ahead = jnp.where(half * t < 0, 1.0, -1.0)
    room = jnp.where(face, FAR, _reach(size - ahead * end, half))
    room = jnp.where(room > 0, room, FAR)
    return -t * jnp.minimum(2.0, room.min(0)), face.any(0)


@stage
def _second_from_corner(half, size, t, corner):
    """From a corner along the edge or over the face that the capsule leads along; none where it leads straight towards the box."""
    differs = (half > 0) != (corner > 0)
    count = differs.sum(0)
    sign = jnp.where(count == 1, 1.0, -1.0)
    odd = differs == (count == 1)
    reach = _reach(2.0 * size, half)
    square = half * half
    steep = masked(odd, square) > 0.5 * square.sum(0)
    edge = jnp.minimum(1.0 - sign * t, masked(odd, reach))
    face = jnp.minimum(1.0 + sign * t, jnp.where(odd, FAR, reach).min(0))
    return sign * jnp.where(steep, edge, -face), (count == 1) | (count == 2)


@stage
def _second_from_edge(half, size, t, corner, along, x):
    """From an edge over the face that is the less steep, until the face or the capsule ends."""
    differs = ((half > 0) != (corner > 0)) & ~along
    slope = jnp.where(along, -1.0, jnp.abs(half))
    main = jnp.argmax(slope, axis=0) == _index(3, slope[0])
    onward = masked(main, differs) > 0
    sign = jnp.where(onward, 1.0, -1.0)
    reach = _reach(2.0 * size, half)
    left = 0.5 * jnp.where((masked(along, half > 0) > 0) == onward, 1.0 - x, 1.0 + x)
    room = jnp.minimum(jnp.minimum(1.0 - sign * t, masked(main, reach)), masked(along, reach) * left)
    return sign * room, differs.sum(0) == 1


# ---- box and box -------------------------------------------------------------------------------------------------------------


@collider("box", "box", contacts=8, options=("margin", "rules"))
def box_box(a: Shape, b: Shape, margin: Component | None = None, rules: Rules = RULES["3.2"]) -> list[ContactPoint]:
    """Up to 8 contacts: the axis of least overlap (separating axis test), then a face of one box clipped by a face of the other.

    rules "4.0": a face is preferred, two edges make one contact. "3.2", as MuJoCo 3.2: any axis; for two edges the faces next to them
    are clipped, along the axis; the distance of contacts on a face is half the true one; which contacts there are depends on the margin
    (m; none: infinite).
    """
    offset = vsub(b.pos, a.pos)
    axis = _separating_axis(a, b, offset, rules)
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    sign = jnp.where(axis.flip, -1.0, 1.0)
    reference = [pick(axis.flip, y, x) for x, y in zip(axes_a, axes_b, strict=True)], pick(axis.flip, b.size, a.size)
    incident = [pick(axis.flip, x, y) for x, y in zip(axes_a, axes_b, strict=True)], pick(axis.flip, a.size, b.size)
    offset_r, normal_r = scale(offset, sign), scale(axis.normal, sign)
    if rules.box_faces_preferred:
        there, distance, point = _one_patch(*_faces(reference, incident, offset_r, normal_r, axis))
        gap, middle = _crossing(a, b, offset, axis)
        only = jnp.arange(8).reshape(8, *[1] * (distance.ndim - 1)) == 0
        there, distance = jnp.where(axis.edges, only, there), jnp.where(axis.edges, gap, distance)
        point = pick(axis.edges, middle, point)
    else:
        there, distance, point = _patch_3_2(*_faces(reference, incident, offset_r, normal_r, axis), axis, margin)
        if margin is not None:
            there = there & (axis.gap <= margin) & ~_astray(point, [(*reference, (0.0, 0.0, 0.0)), (*incident, offset_r)], margin)
    point = vadd(point, pick(axis.flip, b.pos, a.pos))
    distance = jnp.where(there, distance, FAR)
    return [ContactPoint(distance[k], tuple(x[k] for x in point), axis.normal) for k in range(8)]


class Axis(NamedTuple):
    """The axis of least overlap. gap: distance along it (m). normal: unit, from a to b. edges: it is across two edges, along the axes
    i of a and j of b; else it is a face's normal, of the second box where `flip`."""

    gap: Component
    normal: Vector
    edges: Component
    flip: Component
    i: Component
    j: Component


def _choose(index, items):
    """Item 0, 1 or 2: a component or a vector."""
    if isinstance(items[0], tuple):
        return tuple(_choose(index, parts) for parts in zip(*items, strict=True))
    return jnp.where(index == 0, items[0], jnp.where(index == 1, items[1], items[2]))


def _turned(items, index):
    """The three items, in turn, from that one on."""
    return [_choose(index, [items[(k + n) % 3] for n in range(3)]) for k in range(3)]


def _steepest(axes, direction: Vector) -> tuple[Component, Component, list]:
    """Index of the axis that is most along the direction, the sign of that, and the components along all of them."""
    parts = [dot(axis, direction) for axis in axes]
    x, y, z = (jnp.abs(part) for part in parts)
    index = jnp.where((x >= y) & (x >= z), 0, jnp.where(y >= z, 1, 2))
    return index, jnp.where(_choose(index, parts) >= 0, 1.0, -1.0), parts


@stage
def _separations(a: Shape, b: Shape, offset: Vector) -> tuple:
    """How far the boxes are apart along the normals of both (3 each) and across every two edges (3, 3; those of a first)."""
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    numbers = [dot(x, y) for x in axes_a for y in axes_b] + [dot(x, offset) for x in (*axes_a, *axes_b)] + [*a.size, *b.size]
    numbers = jax.lax.stop_gradient(stacked(numbers))
    R, (at_a, at_b, size_a, size_b) = numbers[:9].reshape(3, 3, *numbers.shape[1:]), (numbers[k : k + 3] for k in (9, 12, 15, 18))
    size = jnp.abs(R)
    faces_a = jnp.abs(at_a) - size_a - (size * size_b).sum(1)
    faces_b = jnp.abs(at_b) - size_b - (size * size_a[:, None]).sum(0)

    def after(x, k, axis=0):
        return jnp.roll(x, -k, axis)

    # a_i x b_j has the components -R[i + 2, j], R[i + 1, j] along the next axes of a and R[i, j + 2], -R[i, j + 1] along those of b
    y, z = after(R, 1), after(R, 2)
    square = y * y + z * z
    center = jnp.abs(y * after(at_a, 2)[:, None] - z * after(at_a, 1)[:, None])
    radius_a = after(size_a, 1)[:, None] * jnp.abs(z) + after(size_a, 2)[:, None] * jnp.abs(y)
    radius_b = after(size_b, 1) * after(size, 2, 1) + after(size_b, 2) * after(size, 1, 1)
    parallel = square < rounding(R)
    edges = (center - radius_a - radius_b) / jnp.sqrt(jnp.where(parallel, 1.0, square))
    return faces_a, faces_b, jnp.where(parallel, -FAR, edges)


@stage
def _separating_axis(a: Shape, b: Shape, offset: Vector, rules: Rules) -> Axis:
    """Of the 15 axes the one along which the boxes are farthest apart, or overlap least."""
    faces_a, faces_b, edges = _separations(a, b, offset)
    faces = jnp.concatenate([faces_a, faces_b])
    best_face, face = faces.max(0), jnp.argmax(faces, 0)
    noise = 8.0 * rounding(faces) * total([*a.size, *b.size])
    best, code = best_face, jnp.full_like(face, -1)
    for k in range(9):
        candidate = edges[k // 3, k % 3]
        if rules.box_faces_preferred:
            better = (candidate - 1e-6 * jnp.abs(candidate) > best + noise) & (candidate > best_face)
        else:
            better = candidate > best + 1e-12 * jnp.abs(best) + noise
        best, code = jnp.where(better, candidate, best), jnp.where(better, k, code)
    axes_a, axes_b = ([box.axis(k) for k in range(3)] for box in (a, b))
    i, j = jnp.maximum(code, 0) // 3, jnp.maximum(code, 0) % 3
    flip = face >= 3
    normal = pick(flip, _choose(face - 3, axes_b), _choose(face, axes_a))
    across, _ = direction(cross(_choose(i, axes_a), _choose(j, axes_b)), X_AXIS)
    edge = code >= 0
    if rules.box_faces_preferred:  # nearly a face's normal and hardly better
        edge = edge & ~((jnp.abs(dot(normal, across)) > 0.99) & (best < best_face + 0.05 * jnp.abs(best_face) + 1e-15))
    normal = pick(edge, across, normal)
    return Axis(best, scale(normal, jnp.where(dot(normal, offset) < 0, -1.0, 1.0)), edge, flip & ~edge, i, j)


@stage
def _crossing(a: Shape, b: Shape, offset: Vector, axis: Axis) -> tuple[Component, Vector]:
    """Distance along the axis between the two edges that it is across, and the middle of their nearest points, from a's centre."""
    center, halves = [], []
    for box, index, sign in ((a, axis.i, 1.0), (b, axis.j, -1.0)):
        sides = [scale(box.axis(k), box.size[k]) for k in range(3)]
        signs = [jnp.where(index == k, 0.0, jnp.where(dot(side, axis.normal) >= 0, sign, -sign)) for k, side in enumerate(sides)]
        center.append(vadd(vadd(*(scale(sides[k], signs[k]) for k in range(2))), scale(sides[2], signs[2])))
        halves.append(_choose(index, sides))
    gap = vsub(vadd(offset, center[1]), center[0])
    near = between_segments(*halves, gap)
    first = vadd(center[0], scale(halves[0], near.x))
    second = vadd(vadd(offset, center[1]), scale(halves[1], near.y))
    return dot(vsub(second, first), axis.normal), scale(vadd(first, second), 0.5)


class Face(NamedTuple):
    """A face of the reference box. index: its axis; x, y, up: unit axes in the world, up outwards; center: from the box's centre;
    half: half extents along x and y; normal: what points are projected along."""

    x: Vector
    y: Vector
    up: Vector
    center: Vector
    half: tuple
    normal: Vector

    def project(self, v: Vector) -> Vector:
        """x and y of a vector's projection onto the face, and its height, along the normal."""
        height = dot(self.up, v) / dot(self.up, self.normal)
        flat = vsub(v, scale(self.normal, height))
        return dot(self.x, flat), dot(self.y, flat), height

    def place(self, x, y, height) -> Vector:
        """The point of that projection, from the centre of the box."""
        return vadd(vadd(self.center, scale(self.normal, height)), vadd(scale(self.x, x), scale(self.y, y)))


class Incident(NamedTuple):
    """A face of the incident box. corner: the deepest one, from the centre of the reference box; sides: 2 edges from there, along
    the box's axes index + 1 and index + 2; slopes: of these axes along the normal."""

    index: Component
    corner: Vector
    sides: list
    slopes: list


@stage
def _faces(reference, incident, offset: Vector, normal: Vector, axis: Axis) -> tuple[Face, Incident]:
    """Of each box the face that is most across the normal, which points from the reference box to the incident one."""
    axes, sizes = reference
    index, sign, _ = _steepest(axes, normal)
    (x, y, z), (sx, sy, sz) = axes, sizes
    down = jnp.where(sign > 0, -1.0, 1.0)
    up = scale(_choose(index, axes), sign)
    # MuJoCo's axes of a face, which matter to `_corners_3_2`
    face = Face(
        _choose(index, [scale(z, down), x, scale(x, sign)]),
        _choose(index, [y, scale(z, down), y]),
        up,
        scale(up, _choose(index, sizes)),
        (_choose(index, [sz, sx, sx]), _choose(index, [sy, sz, sy])),
        normal,
    )
    index, _, parts = _steepest(incident[0], normal)
    parts = [jnp.where(axis.edges & (axis.j == k), 0.0, part) for k, part in enumerate(parts)]  # not the sign of rounding errors
    sides = [scale(e, mul(s, jnp.where(part >= 0, 2.0, -2.0))) for e, s, part in zip(*incident, parts, strict=True)]
    corner = vsub(offset, scale(vadd(vadd(*sides[:2]), sides[2]), 0.5))
    return face, Incident(index, corner, _turned(sides, index)[1:], _turned(parts, index)[1:])


def _one_patch(face: Face, incident: Incident) -> tuple:
    """The corners of the polygon that two faces have in common: which are there, heights, points from the reference box's centre."""
    p, (u, v) = face.project(vsub(incident.corner, face.center)), (face.project(side) for side in incident.sides)
    clockwise = u[0] * v[1] < u[1] * v[0]
    there, x, y, height = _outline(p, pick(clockwise, v, u), pick(clockwise, u, v), *face.half)
    return there, height, face.place(x, y, 0.5 * height)


@stage
def _outline(p, u, v, lx, ly) -> tuple:
    """Where the stretches of the outline of a rectangle and a parallelogram in common begin.

    The rectangle is |x| <= lx, |y| <= ly; the parallelogram p + s u + t v, 0 <= s, t <= 1, anticlockwise; p, u, v: x, y and a height.
    Each stretch begins with a corner of the common polygon. Returns which are there, x, y, height (8, ...): of the sides of the
    parallelogram from p on, then of the rectangle. Sides on top of each other belong to the parallelogram.
    """
    p, u, v, (lx, ly) = stacked(p), stacked(u), stacked(v), stacked([lx, ly])
    span = lx + ly + jnp.abs(jnp.stack([u, v]))[:, :2].sum((0, 1))
    tiny = 64.0 * rounding(p) * jax.lax.stop_gradient(span)
    least = max(1e-7, 64.0 * rounding(p)) * jax.lax.stop_gradient(lx + ly)

    corners, steps = jnp.stack([p, p + u, p + u + v, p + v]), jnp.stack([u, v, -u, -v])
    limits = jnp.stack([lx, ly])
    start, end = _between(corners[:, :2], steps[:, :2], -limits, limits, tiny, tiny)
    there = (end - start) * jnp.abs(steps[:, :2]).sum(1) > least
    begin = corners + start[:, None] * steps

    zero = jnp.zeros_like(lx)
    box = jnp.stack([jnp.stack(c) for c in ((lx, -ly), (lx, ly), (-lx, ly), (-lx, -ly))])
    sides = jnp.stack([jnp.stack(c) for c in ((zero, 2.0 * ly), (-2.0 * lx, zero), (zero, -2.0 * ly), (2.0 * lx, zero))])
    area = u[0] * v[1] - u[1] * v[0]

    def parts(x, y):
        """s and t of a vector."""
        return jnp.stack([safe_quotient(x * v[1] - y * v[0], area), safe_quotient(u[0] * y - u[1] * x, area)], 1)

    slack = jax.lax.stop_gradient(jnp.stack([safe_quotient(jnp.abs(w[:2]).sum(0), jnp.abs(area)) for w in (v, u)]) * 0.5 * tiny)
    base, along = parts(box[:, 0] - p[0], box[:, 1] - p[1]), parts(sides[:, 0], sides[:, 1])
    start2, end2 = _between(base, along, 0.0, 1.0, slack, -slack)
    there2 = (end2 - start2) * jnp.abs(sides).sum(1) > least
    st = base + start2[:, None] * along
    begin2 = jnp.concatenate([box + start2[:, None] * sides, (p[2] + st[:, 0] * u[2] + st[:, 1] * v[2])[:, None]], 1)
    begin = jnp.concatenate([begin, begin2])
    return jnp.concatenate([there, there2]), begin[:, 0], begin[:, 1], begin[:, 2]


@stage
def _between(start, step, low, high, level, slack) -> tuple:
    """Part [t0, t1] of start + t step, 0 <= t <= 1, that is between low and high in both coordinates (second axis); t0 > t1: none.
    A step below `level` does not leave its start, which may be `slack` outside."""
    flat = jnp.abs(step) <= level
    safe = jnp.where(flat, 1.0, step)
    one, other = (low - start) / safe, (high - start) / safe
    enter = jnp.where(flat, jnp.where((start >= low - slack) & (start <= high + slack), 0.0, 2.0), jnp.minimum(one, other))
    leave = jnp.where(flat, 1.0, jnp.maximum(one, other))
    return jnp.maximum(0.0, enter.max(1)), jnp.minimum(1.0, leave.min(1))


# ---- the rules of MuJoCo 3.2 -------------------------------------------------------------------------------------------------


def _patch_3_2(face: Face, incident: Incident, axis: Axis, margin) -> tuple:
    """The first 8 of: where the incident edges leave the face, corners of the face over the incident one, corners of that.

    Of the incident edges those within 30 degrees of the face count (across two edges: both). The deepest corner of a face contact is
    there wherever it is. Across edges where no crossing is within the margin, corners beside the faces are taken too, at their nearest.
    """
    p, u, v, one, two = _sides_3_2(face, incident, axis)
    limits = stacked(face.half)
    lines = jnp.stack([p, p, p + u, p + v]), jnp.stack([u, v, v, u])
    tiny = 64.0 * rounding(p) * jax.lax.stop_gradient(limits.sum(0))
    start, end = _between(lines[0][:, :2], lines[1][:, :2], -limits, limits, tiny, tiny)
    counted = jnp.stack([one, two, two, two]) & (start < end)
    crossing = jnp.concatenate([lines[0] + t[:, None] * lines[1] for t in (start, end)])
    crosses = jnp.concatenate([counted & (start > 0), counted & (end < 1)])
    margin = jnp.asarray(jnp.inf if margin is None else margin, p.dtype)
    crosses = crosses & (crossing[:, 2] <= margin)
    beside = axis.edges & ~crosses.any(0)

    tilt = stacked([dot(face.x, face.normal), dot(face.y, face.normal), dot(face.up, face.normal)])
    height = crossing[:, 2]
    middle = crossing * jnp.array([1.0, 1.0, 0.0]).reshape(3, *[1] * (p.ndim - 1)) + 0.5 * tilt * height[:, None]
    found = [(crosses, height, middle), _corners_3_2(p, u, v, two, limits, tilt, axis.edges, beside, margin)]
    found.append(_points_3_2(p, u, v, one, two, limits, tilt, axis.edges, beside, beside & ~found[1][0].any(0), margin))
    there, height, middle = (jnp.concatenate(parts) for parts in zip(*found, strict=True))
    height = jnp.where(axis.edges, height, 0.5 * height)
    there, (height, *middle) = _first(8, there, jnp.concatenate([height[:, None], middle], 1))
    x, y, z = middle
    point = vadd(vadd(face.center, scale(face.up, z)), vadd(scale(face.x, x), scale(face.y, y)))
    return there, height, point


@stage
def _sides_3_2(face: Face, incident: Incident, axis: Axis) -> tuple:
    """The incident face on the reference face: corner, two sides (x, y, height), whether the first and whether both count."""
    p, (u, v) = face.project(vsub(incident.corner, face.center)), (face.project(side) for side in incident.sides)
    p, u, v = stacked(p), stacked(u), stacked(v)
    flat = [jnp.abs(slope) < 0.5 for slope in incident.slopes]
    # across edges: the edge first, from its end along the positive axis
    swap = jnp.where(axis.edges, (incident.index + 1) % 3 != axis.j, flat[1] & ~flat[0])
    u, v = jnp.where(swap, v, u), jnp.where(swap, u, v)
    p, u = jnp.where(axis.edges, p + u, p), jnp.where(axis.edges, -u, u)
    two = axis.edges | (flat[0] & flat[1])
    return p, u, jnp.where(two, v, 0.0), axis.edges | flat[0] | flat[1], two


def _signed(square, height):
    """Square root with the sign of the height; 0 has the derivative 0."""
    positive = square > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0) * jnp.where(height < 0, -1.0, 1.0)


@stage
def _corners_3_2(p, u, v, two, limits, tilt, edges, beside, margin) -> tuple:
    """Corners of the reference face over the incident one: which are there, distances, middles (4, ...).

    Across edges MuJoCo 3.2 keeps the square of a found corner's distance where the area of the incident face was, so that it takes
    the later corners to be somewhere else.
    """
    area = u[0] * v[1] - u[1] * v[0]
    found = []
    for sx, sy in itertools.product((-1.0, 1.0), repeat=2):
        x, y = sx * limits[0] - p[0], sy * limits[1] - p[1]
        s, t = safe_quotient(x * v[1] - y * v[0], area), safe_quotient(u[0] * y - u[1] * x, area)
        off = [(w < 0) | (w > 1) for w in (s, t)]
        on = (s > 0) & (s < 1) & (t > 0) & (t < 1)
        over = two & jnp.where(edges, ~jnp.where(beside, off[0] & off[1], off[0] | off[1]), on)
        s, t = jnp.clip(s, 0.0, 1.0), jnp.clip(t, 0.0, 1.0)
        over_face = p + s * u + t * v
        height = over_face[2]
        corner = jnp.stack([sx * limits[0], sy * limits[1], jnp.zeros_like(height)])
        partner = jnp.stack([over_face[0], over_face[1], jnp.zeros_like(height)]) + tilt * height
        square = ((partner - corner) ** 2).sum(0)
        distance = jnp.where(edges, _signed(square, height), height)
        found.append((over & (distance <= margin), distance, 0.5 * (corner + partner)))
        area = jnp.where(edges & over, square, area)
    return tuple(jnp.stack(parts) for parts in zip(*found, strict=True))


@stage
def _points_3_2(p, u, v, one, two, limits, tilt, edges, beside, all_of_them, margin) -> tuple:
    """Corners of the incident face over the reference one: which are there, distances, middles (4, ...)."""
    found = []
    for k, (point, counts) in enumerate([(p, jnp.ones_like(one)), (p + u, one), (p + v, two), (p + u + v, two)]):
        flat, height = point[:2], point[2]
        within = jnp.clip(flat, -limits, limits)
        off = jnp.abs(flat) > limits
        over = jnp.where(edges, jnp.where(beside, ~(off[0] & off[1]) | all_of_them, ~(off[0] | off[1])), (k == 0) | ~(off[0] | off[1]))
        square = ((flat - within) ** 2).sum(0) + height * height
        distance = jnp.where(edges, _signed(square, height), height)
        base = jnp.where(edges, 0.5 * (flat + within), flat)
        middle = jnp.stack([base[0], base[1], jnp.zeros_like(height)]) + 0.5 * tilt * height
        found.append((counts & over & (distance <= margin), distance, middle))
    return tuple(jnp.stack(parts) for parts in zip(*found, strict=True))


@stage
def _first(n: int, there, values) -> tuple:
    """The first n of the rows that are there: which of the n are, their values (k, n, ...); zeros where there are fewer."""
    rank = jnp.cumsum(there, axis=0)
    slots = [there & (rank == k + 1) for k in range(n)]
    return jnp.stack([slot.any(0) for slot in slots]), jnp.stack([masked(slot[:, None], values) for slot in slots], 1)


@stage
def _astray(point: Vector, boxes, margin) -> Component:
    """Whether points are outside of one box and not well inside the other, both larger by the margin; by 1% of their sizes."""
    places = []
    for axes, sizes, center in boxes:
        local = [jnp.abs(dot(axis, vsub(point, center))) / (size + margin) for axis, size in zip(axes, sizes, strict=True)]
        places.append(jnp.maximum(jnp.maximum(*local[:2]), local[2]))
    one, other = places
    return ((one > 1.01) & (other > 1.0 / 1.01)) | ((other > 1.01) & (one > 1.0 / 1.01))
