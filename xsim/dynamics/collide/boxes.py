"""Boxes against capsules and boxes.

The rules are MuJoCo's, so that contacts are where its users expect them; candidates are stacked along a leading axis.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...spatial import Component, Vector, apply_inverse, cross, dot, mul, scale, total, vadd, vsub
from .round import X_AXIS, ball_box, between_segments, direction, pick, quotient, rounding
from .shapes import FAR, Shape, Touch

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


def capsule_box(a: Shape, b: Shape) -> list[Touch]:
    """The nearest point of the capsule's segment, and a second one as far along the segment as it stays over that face or edge."""
    world = scale(a.axis(2), a.size[1])
    numbers = stacked((*apply_inverse(b.R, vsub(a.pos, b.pos)), *apply_inverse(b.R, world), *b.size))
    center, half, size = numbers[:3], numbers[3:6], numbers[6:]
    first, second, exists = _points_on_capsule(center, half, size)
    touches = [ball_box(vadd(a.pos, scale(world, t)), a.size[0], b) for t in (first, second)]
    return [touches[0], touches[1]._replace(distance=jnp.where(exists, touches[1].distance, FAR))]


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


def _second_over_face(end, half, size, t, face):
    """From an end of the capsule over a face towards the other end, as far as the face goes."""
    ahead = jnp.where(half * t < 0, 1.0, -1.0)
    room = jnp.where(face, FAR, _reach(size - ahead * end, half))
    room = jnp.where(room > 0, room, FAR)
    return -t * jnp.minimum(2.0, room.min(0)), face.any(0)


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


def box_box(a: Shape, b: Shape, margin: Component | None = None, rules: str = "3.2") -> list[Touch]:
    """Up to 8 contacts: the axis of least overlap (separating axis test), then a face of one box clipped by a face of the other.

    rules "4.0": faces are preferred, two edges make one contact. "3.2": any axis; for two edges the faces next to them are clipped,
    along the axis; the deepest corner belongs to every face; of the contacts outside of the boxes some are left out, for which the
    margin (m, none: infinite) has to be known.
    """
    offset = vsub(b.pos, a.pos)
    axis = _separating_axis(a, b, offset, rules)
    sides = tuple(tuple(box.axis(k) for k in range(3)) for box in (a, b))
    sign = jnp.where(axis.flip, -1.0, 1.0)
    reference = [pick(axis.flip, sides[1][k], sides[0][k]) for k in range(3)], pick(axis.flip, b.size, a.size)
    incident = [pick(axis.flip, sides[0][k], sides[1][k]) for k in range(3)], pick(axis.flip, a.size, b.size)
    patch = _patch(reference, incident, scale(offset, sign), scale(axis.normal, sign), axis.edges, rules, margin)
    there, distance, point = patch
    if rules == "4.0":
        gap, middle = _crossing(a, b, offset, axis)
        only = jnp.arange(8).reshape(8, *[1] * (distance.ndim - 1)) == 0
        there, distance = jnp.where(axis.edges, only, there), jnp.where(axis.edges, gap, distance)
        point = pick(axis.edges, middle, point)
    elif margin is not None:
        there = there & ~_astray(point, [(*reference, (0.0, 0.0, 0.0)), (*incident, scale(offset, sign))], margin)
    point = vadd(point, pick(axis.flip, b.pos, a.pos))
    distance = jnp.where(there, distance, FAR)
    return [Touch(distance[k], tuple(x[k] for x in point), axis.normal) for k in range(8)]


class Axis(NamedTuple):
    """The axis of least overlap. normal: unit, from a to b. edges: it is across two edges, along the axes i of a and j of b; else
    it is a face's normal, of the second box where `flip`."""

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


def _separating_axis(a: Shape, b: Shape, offset: Vector, rules: str) -> Axis:
    """Of the 15 axes the one along which the boxes are farthest apart, or overlap least."""
    faces_a, faces_b, edges = _separations(a, b, offset)
    faces = jnp.concatenate([faces_a, faces_b])
    best_face, face = faces.max(0), jnp.argmax(faces, 0)
    noise = 8.0 * rounding(faces) * total([*a.size, *b.size])
    best, code = best_face, jnp.full_like(face, -1)
    for k in range(9):
        candidate = edges[k // 3, k % 3]
        if rules == "4.0":
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
    if rules == "4.0":  # nearly a face's normal and hardly better
        edge = edge & ~((jnp.abs(dot(normal, across)) > 0.99) & (best < best_face + 0.05 * jnp.abs(best_face) + 1e-15))
    normal = pick(edge, across, normal)
    return Axis(scale(normal, jnp.where(dot(normal, offset) < 0, -1.0, 1.0)), edge, flip & ~edge, i, j)


def _crossing(a: Shape, b: Shape, offset: Vector, axis: Axis) -> tuple[Component, Vector]:
    """Distance along the axis between the two edges that it is across, and the middle of their nearest points, from a's centre."""
    center, halves = [], []
    for box, index, sign in ((a, axis.i, 1.0), (b, axis.j, -1.0)):
        axes = [box.axis(k) for k in range(3)]
        sides = [scale(x, mul(s, jnp.where(dot(x, axis.normal) >= 0, sign, -sign))) for x, s in zip(axes, box.size, strict=True)]
        halves.append(_choose(index, sides))
        center.append(vsub(vadd(vadd(*sides[:2]), sides[2]), halves[-1]))
    gap = vsub(vadd(offset, center[1]), center[0])
    near = between_segments(*halves, gap)
    first = vadd(center[0], scale(halves[0], near.x))
    second = vadd(vadd(offset, center[1]), scale(halves[1], near.y))
    return dot(vsub(second, first), axis.normal), scale(vadd(first, second), 0.5)


def _patch(reference, incident, offset: Vector, normal: Vector, edges, rules: str, margin) -> tuple:
    """Where a face of the incident box is over one of the reference box, both the most across the normal (from the reference).

    Returns what of 8 contacts is there, distances along the normal (8, ...), points from the centre of the reference box. Each stretch
    of the outline of the common polygon begins with one of its corners: 4 of the incident face's edges, 4 of the reference face's.
    """
    axes, sizes = reference
    index, sign, _ = _steepest(axes, normal)
    (up, ex, ey), (height, lx, ly) = _turned(axes, index), _turned(sizes, index)
    up = scale(up, sign)
    lift = scale(up, 1.0 / dot(up, normal))
    corner, du, dv, both, some = _incident_face(*incident, normal, edges, rules)
    corner = vadd(corner, vsub(offset, scale(up, height)))

    def projected(p):
        """Along the normal onto the face: x, y, and the height of p along the normal."""
        h = dot(lift, p)
        q = vsub(p, scale(normal, h))
        return dot(ex, q), dot(ey, q), h

    p, u, v = projected(corner), projected(du), projected(dv)
    clockwise = (u[0] * v[1] < u[1] * v[0]) & both
    u, v = pick(clockwise, v, u), pick(clockwise, u, v)
    outline = _outline(p, u, v, lx, ly)
    there, start, x, y, h = outline
    there = there & jnp.concatenate([stacked([some, both, some, both]), stacked([both] * 4)])
    if rules == "3.2":
        free = ~there & (jnp.cumsum(~there, 0) == 1)
        extra = free & ~edges & ~(there[0] & (start[0] <= 0))  # the deepest corner, wherever it is
        there = there | extra
        x, y, h = pick(extra, p, (x, y, h))
    point = vadd(scale(up, height), vadd(scale(ex, x), scale(ey, y)))
    return there, h, vadd(point, scale(normal, 0.5 * h))


def _incident_face(axes, sizes, normal: Vector, edges, rules: str) -> tuple:
    """The corner deepest against the normal, from the box's centre, the two edges from there (m), whether both and whether any count:
    under "3.2" those within 30 degrees of the face do."""
    index, _, parts = _steepest(axes, normal)
    sides = [scale(x, mul(s, jnp.where(part >= 0, 2.0, -2.0))) for x, s, part in zip(axes, sizes, parts, strict=True)]
    corner = scale(vadd(vadd(*sides[:2]), sides[2]), -0.5)
    _, u, v = _turned(sides, index)
    if rules == "4.0":
        both = jnp.ones_like(edges)
        return corner, u, v, both, both
    _, *slopes = _turned(parts, index)
    flat = [edges | (jnp.abs(slope) < 0.5) for slope in slopes]
    second = flat[1] & ~flat[0]
    u, v = pick(second, v, u), pick(second, u, v)
    both = flat[0] & flat[1]
    return corner, u, scale(v, jnp.where(both, 1.0, 0.0)), both, flat[0] | flat[1]


def _outline(p, u, v, lx, ly) -> tuple:
    """Where the stretches of the outline of a rectangle and a parallelogram in common begin.

    The rectangle is |x| <= lx, |y| <= ly; the parallelogram p + s u + t v, 0 <= s, t <= 1, anticlockwise; p, u, v: x, y and a height.
    Returns which are there, where on its side each begins (0 to 1), x, y, height (8, ...): sides of the parallelogram from p on, then
    of the rectangle. Sides on top of each other belong to the parallelogram.
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
        return jnp.stack([quotient(x * v[1] - y * v[0], area), quotient(u[0] * y - u[1] * x, area)], 1)

    slack = jax.lax.stop_gradient(jnp.stack([quotient(jnp.abs(w[:2]).sum(0), jnp.abs(area)) for w in (v, u)]) * 0.5 * tiny)
    base, along = parts(box[:, 0] - p[0], box[:, 1] - p[1]), parts(sides[:, 0], sides[:, 1])
    start2, end2 = _between(base, along, 0.0, 1.0, slack, -slack)
    there2 = (end2 - start2) * jnp.abs(sides).sum(1) > least
    st = base + start2[:, None] * along
    begin2 = jnp.concatenate([box + start2[:, None] * sides, (p[2] + st[:, 0] * u[2] + st[:, 1] * v[2])[:, None]], 1)
    begin = jnp.concatenate([begin, begin2])
    return jnp.concatenate([there, there2]), jnp.concatenate([start, start2]), begin[:, 0], begin[:, 1], begin[:, 2]


def _between(start, step, low, high, level, slack) -> tuple:
    """Part [t0, t1] of start + t step, 0 <= t <= 1, that is between low and high in both coordinates (second axis); t0 > t1: none.
    A step below `level` does not leave its start, which may be `slack` outside."""
    flat = jnp.abs(step) <= level
    safe = jnp.where(flat, 1.0, step)
    one, other = (low - start) / safe, (high - start) / safe
    enter = jnp.where(flat, jnp.where((start >= low - slack) & (start <= high + slack), 0.0, 2.0), jnp.minimum(one, other))
    leave = jnp.where(flat, 1.0, jnp.maximum(one, other))
    return jnp.maximum(0.0, enter.max(1)), jnp.minimum(1.0, leave.min(1))


def _astray(point: Vector, boxes, margin) -> Component:
    """Whether points are outside of one box and not well inside the other, both larger by the margin; by 1% of their sizes."""
    places = []
    for axes, sizes, center in boxes:
        local = [jnp.abs(dot(axis, vsub(point, center))) / (size + margin) for axis, size in zip(axes, sizes, strict=True)]
        places.append(jnp.maximum(jnp.maximum(*local[:2]), local[2]))
    one, other = places
    return ((one > 1.01) & (other > 1.0 / 1.01)) | ((other > 1.01) & (one > 1.0 / 1.01))
