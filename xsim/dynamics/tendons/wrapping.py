"""The shortest path of a tendon between two points around a sphere or a cylinder, or through its inside, in closed form.

Both cases reduce to a circle in a plane. Of a sphere, it is the plane of the centre and the two points. A cylinder of infinite length is
projected along its axis; the height along the axis is linear in the length of the projected path. In the plane, point a is in the direction
0, point b in the direction ``angle``, between 0 and pi.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.spatial import ZERO3, Component, Vector, add, cross, dot, normalize, safe_norm, scale, stage, total, vadd, vsub

NEWTON_STEPS = 10


class WrappedPath(NamedTuple):
    """The path of a tendon between two points, in the frame of the geom that it wraps around.

    length: of the whole path, m. If it does not wrap, the distance of the points.
    curve: length of the part on the surface, m.
    wraps: 1.0 if it touches the geom, else 0.0. Then first and last have no meaning.
    first, last: first and last point on the surface.
    gradients: derivatives of the length with respect to the two points. They are unit vectors along the path at its ends, outward.
    """

    length: Component
    curve: Component
    wraps: Component
    first: Vector
    last: Vector
    gradients: tuple[Vector, Vector]


class _End(NamedTuple):
    """One end of a path in the plane, in its point's axes.

    straight: length of the straight part, from the point to the circle, m.
    contact: the point on the circle, in units of the radius.
    gradient: derivative of the length with respect to the point.
    """

    straight: Component
    contact: tuple
    gradient: tuple


class _Planar(NamedTuple):
    """A path in the plane: whether it touches the circle, its length, the length of its part on the circle, its two ends."""

    wraps: Any
    length: Component
    curve: Component
    ends: tuple[_End, _End]


class _Plane(NamedTuple):
    """The plane of a circle and two points.

    radius: of the circle, m.
    distances: of the points from the centre, m.
    angle: between the points, seen from the centre, 0 to pi.
    axes: two unit vectors for each point: towards the point, and perpendicular to it towards the other point.
    """

    radius: Component
    distances: tuple
    angle: Component
    axes: tuple


def _where(condition, a, b):
    return tuple(jnp.where(condition, x, y) for x, y in zip(a, b, strict=True))


def _root(positive, x):
    """The square root of x if ``positive``, else 0."""
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def _tangent(length, radius):
    """The length of the tangent to the circle from a point. length: distance of the point from the centre."""
    square = (length - radius) * (length + radius)
    return _root(square > 0, square)


@jax.custom_jvp
def _shortening(length, radius):
    """The length of the tangent from a point, minus the length of the arc between the point's direction and the tangent's contact."""
    tangent = _tangent(length, radius)
    return tangent - radius * jnp.arctan2(tangent, radius)


@_shortening.defjvp
def _(primals, tangents):
    # Near the circle the derivatives of the two terms are unbounded. That of their difference is bounded.
    length, radius = primals
    tangent = _tangent(length, radius)
    slope = tangent / length * tangents[0] - jnp.arctan2(tangent, radius) * tangents[1]
    return _shortening(length, radius), slope


# ---- inside ------------------------------------------------------------------------------------------------------------------


def _square(ratio, angle):
    """The squared distance between a point and a contact on the circle, divided by the squared distance of the point from the centre.
    ratio: radius divided by this distance. angle: of the contact from the point's direction."""
    half = jnp.sin(0.5 * angle)
    square = (1.0 - ratio) * (1.0 - ratio) + 4.0 * ratio * half * half
    return jnp.where(square > 0, square, 1.0)


def _incidence(ratio, angle):
    """The angle at a contact between the normal and the direction to a point. ratio, angle: see `_square`."""
    half = jnp.sin(0.5 * angle)
    return jnp.arctan2(jnp.sin(angle), 1.0 - ratio - 2.0 * half * half)


def _incidence_slope(ratio, angle):
    return (1.0 - ratio * jnp.cos(angle)) / _square(ratio, angle)


@jax.custom_jvp
def _reflection(ratio_a, ratio_b, angle):
    """The angle from a's direction to the point of the circle at which a ray from a is reflected to b."""
    # Between these bounds, angle of incidence minus angle of reflection increases with the angle, at a rate of at least 2.
    limits = [jnp.arctan2(jnp.sqrt((1.0 - x) * (1.0 + x)), x) for x in (ratio_a, ratio_b)]
    low, high = jnp.maximum(angle - limits[1], 0.0), jnp.minimum(limits[0], angle)
    x = jnp.clip(angle * (1.0 - ratio_a) / (2.0 - ratio_a - ratio_b), low, high)

    def newton_step(_, bounds):
        low, high, x = bounds
        excess = _incidence(ratio_a, x) - _incidence(ratio_b, angle - x)
        low, high = jnp.where(excess < 0, x, low), jnp.where(excess > 0, x, high)
        step = x - excess / (_incidence_slope(ratio_a, x) + _incidence_slope(ratio_b, angle - x))
        return low, high, jnp.where((step >= low) & (step <= high), step, 0.5 * (low + high))

    # A loop, since the compiler would fuse unrolled steps into an expression that it recomputes for every use.
    return jax.lax.fori_loop(0, NEWTON_STEPS, newton_step, tuple(jnp.broadcast_arrays(low, high, x)))[2]


@_reflection.defjvp
def _(primals, tangents):
    ratio_a, ratio_b, angle = primals
    x = _reflection(*primals)
    y = angle - x
    slope_a, slope_b = _incidence_slope(ratio_a, x), _incidence_slope(ratio_b, y)
    rest = jnp.sin(y) / _square(ratio_b, y) * tangents[1] + slope_b * tangents[2] - jnp.sin(x) / _square(ratio_a, x) * tangents[0]
    return x, rest / (slope_a + slope_b)


@stage
def _inside(plane: _Plane) -> _Planar:
    """The shortest path through the inside of the circle. If the straight line misses the circle, the path touches the circle at one
    point."""
    touches = plane.angle < total(_arcs(plane))
    ratios = [jnp.where(touches, plane.radius / x, 0.5) for x in plane.distances]
    angle = jnp.where(touches, plane.angle, 1.0)
    x = _reflection(*ratios, angle)
    ends, length = [], 0.0
    for distance, ratio, part in zip(plane.distances, ratios, (x, angle - x), strict=True):
        straight = jnp.sqrt(_square(ratio, part))
        cosine, sine = jnp.cos(part), jnp.sin(part)
        ends.append(_End(distance * straight, (cosine, sine), ((1.0 - ratio * cosine) / straight, -ratio * sine / straight)))
        length = add(length, distance * straight)
    return _Planar(touches, length, 0.0 * length, tuple(ends))


# ---- around ------------------------------------------------------------------------------------------------------------------


@stage
def _around(plane: _Plane, wraps, is_long, sweep) -> _Planar:
    """The path around the circle. sweep: the angle from a's direction to b's. is_long: whether it goes around the far side, against the
    sense of the smaller angle."""
    r, sense, length = plane.radius, jnp.where(is_long, -1.0, 1.0), plane.radius * sweep
    ends = []
    for x in plane.distances:
        tangent = _tangent(x, r)
        length = length + _shortening(x, r)
        ends.append(_End(tangent, (r / x, sense * tangent / x), (tangent / x, -sense * r / x)))
    return _Planar(wraps, length, r * (sweep - total(_arcs(plane))), tuple(ends))


@stage
def _arcs(plane: _Plane) -> list:
    """For each point, the angle between its direction and the contact of its tangent."""
    return [jnp.arctan2(_tangent(x, plane.radius), plane.radius) for x in plane.distances]


def _shortest(plane: _Plane, side) -> _Planar:
    """The shorter path around the circle. It wraps if the circle is in the way of the straight line."""
    return _around(plane, plane.angle > total(_arcs(plane)), False, plane.angle)


@stage
def _shortest_with_side(plane: _Plane, side) -> _Planar:
    """The shortest path that can be deformed into the path from a to the side site to b. MuJoCo 4.0.0 behaves like this."""
    (_, across_a), (_, across_b) = plane.axes
    is_long = (dot(across_a, side) < 0) & (dot(across_b, side) < 0)
    sweep = jnp.where(is_long, 2.0 * math.pi - plane.angle, plane.angle)
    return _around(plane, sweep > total(_arcs(plane)), is_long, sweep)


@stage
def _nearest_side(plane: _Plane, side) -> _Planar:
    """The path whose midpoint is nearer to the side site (MuJoCo 3.2). It wraps if the straight line hits the circle, or passes the
    centre on the other side than the side site."""
    arcs = _arcs(plane)
    ends = [scale(out, x) for (out, _), x in zip(plane.axes, plane.distances, strict=True)]
    segment = vsub(ends[1], ends[0])
    square = dot(segment, segment)
    fraction = jnp.clip(-dot(segment, ends[0]) / jnp.where(square > 0, square, 1.0), 0.0, 1.0)
    nearest = vadd(ends[0], scale(segment, fraction))
    wraps = (dot(nearest, nearest) <= plane.radius * plane.radius) | (dot(nearest, side) < 0)

    def alignment(sense):
        """The cosine between the side site and the midpoint of the path around one side."""
        middle = ZERO3
        for (out, across), x in zip(plane.axes, plane.distances, strict=True):
            middle = vadd(middle, vadd(scale(out, plane.radius / x), scale(across, sense * _tangent(x, plane.radius) / x)))
        return dot(normalize(middle), side)

    arc = plane.angle - total(arcs)
    # A negative arc means that the shorter path leaves the circle before it reaches it. If its two tangents intersect before they touch the
    # circle, the longer path is used. Else the path goes around the whole circle.
    crossed = (arc < 0) & (-0.5 * arc <= jnp.minimum(*arcs))
    is_long = crossed | (alignment(1.0) < alignment(-1.0))
    sweep = jnp.where(is_long, 2.0 * math.pi - plane.angle, jnp.where(arc < 0, 2.0 * math.pi + plane.angle, plane.angle))
    return _around(plane, wraps, is_long, sweep)


# ---- in space ----------------------------------------------------------------------------------------------------------------


@stage
def _plane(kind: str, a, b, radius) -> _Plane:
    """The plane of two points. Neither is at the centre."""
    la, lb = safe_norm(a), safe_norm(b)
    out_a, out_b = scale(a, 1.0 / la), scale(b, 1.0 / lb)
    normal = cross(out_a, out_b)
    if kind == "cylinder":
        sign = jnp.where(normal[2] < 0, -1.0, 1.0)
        sine, normal = sign * normal[2], (0.0, 0.0, sign)
    else:
        sine = safe_norm(normal)
        regular = sine > jnp.finfo(sine.dtype).eps
        inverse = 1.0 / jnp.where(regular, sine, 1.0)
        normal = _where(regular, scale(normal, inverse), _any_normal(out_a))
    angle = jnp.abs(jnp.arctan2(sine, dot(out_a, out_b)))  # the sine is -0 for some points on one line with the axis
    return _Plane(radius, (la, lb), angle, ((out_a, cross(normal, out_a)), (out_b, cross(out_b, normal))))


def _any_normal(a) -> Vector:
    """A unit vector perpendicular to a: MuJoCo's choice if the points and the centre are on one line."""
    x, y, z = (jnp.abs(c) for c in a)
    first = (x >= y) & (x >= z)
    second = ~first & (y >= z)
    other = tuple(jnp.where(largest, 0.0, 1.0) for largest in (first, second, ~(first | second)))
    normal = cross(a, other)
    return scale(normal, 1.0 / safe_norm(normal))


def wrap(kind: str, a, b, radius, side=None, shortest: bool = False) -> WrappedPath:
    """The path from a to b around a sphere or a cylinder along z (``kind``), in the geom's frame.

    a, b: the two points, m. radius: m. side: the side site, m. A side site outside the geom selects one of the two paths around it: the
    shortest that passes the site (``shortest``, MuJoCo 4.0), or the nearer one (MuJoCo 3.2). With a side site inside the geom, the tendon
    passes through the inside. If a or b is inside the geom, the path is straight.

    Values and derivatives are finite everywhere, also if the points coincide. The derivative of the length is continuous where the path
    begins to wrap. It is not continuous where the side changes.
    """
    a, b, radius = jax.tree.map(jnp.asarray, (tuple(a), tuple(b), radius))
    return _wrap(kind, shortest, a, b, radius, side)


@stage
def _wrap(kind, shortest, a, b, radius, side) -> WrappedPath:
    straight = vsub(b, a)
    flat_a, flat_b = (p if kind == "sphere" else (p[0], p[1], 0.0) for p in (a, b))
    flat = vsub(flat_b, flat_a)
    square = radius * radius
    is_outside = (radius > 0) & (dot(flat, flat) > 0) & (dot(flat_a, flat_a) > square) & (dot(flat_b, flat_b) > square)
    safe_a, safe_b = _where(is_outside, flat_a, (1.0, 0.0, 0.0)), _where(is_outside, flat_b, (0.0, 1.0, 0.0))
    plane = _plane(kind, safe_a, safe_b, jnp.where(is_outside, radius, 0.5))

    planar = (_shortest if side is None else _shortest_with_side if shortest else _nearest_side)(plane, side)
    if side is not None:
        side_inside = dot(side, side) < square
        planar = jax.tree.map(lambda x, y: jnp.where(side_inside, x, y), _inside(plane), planar)
    wraps = is_outside & planar.wraps

    path = _in_3d(plane, planar)
    if kind == "cylinder":
        path = _on_cylinder(path, planar, wraps, a[2], b[2])
    direction = normalize(straight)
    gradients = (_where(wraps, path.gradients[0], scale(direction, -1.0)), _where(wraps, path.gradients[1], direction))
    return path._replace(
        length=jnp.where(wraps, path.length, safe_norm(straight)),
        curve=jnp.where(wraps, path.curve, 0.0),
        wraps=jnp.where(wraps, jnp.ones_like(square), 0.0),
        gradients=gradients,
    )


@stage
def _in_3d(plane: _Plane, planar: _Planar) -> WrappedPath:
    """The planar path in the geom's frame."""
    contacts, gradients = [], []
    for (out, across), end in zip(plane.axes, planar.ends, strict=True):
        contacts.append(scale(vadd(scale(out, end.contact[0]), scale(across, end.contact[1])), plane.radius))
        gradients.append(vadd(scale(out, end.gradient[0]), scale(across, end.gradient[1])))
    return WrappedPath(planar.length, planar.curve, 1.0, contacts[0], contacts[1], (gradients[0], gradients[1]))


@stage
def _on_cylinder(path: WrappedPath, planar: _Planar, wraps, z_a, z_b) -> WrappedPath:
    """The path on a cylinder, from its projection along the axis and the heights of the points. On the unrolled cylinder it is straight."""
    width = jnp.where(wraps, planar.length, 1.0)
    rise = z_b - z_a
    length = jnp.sqrt(width * width + rise * rise)
    cosine, sine = width / length, rise / length
    first, last = planar.ends
    gradients = [(cosine * g[0], cosine * g[1], sine * sign) for g, sign in zip(path.gradients, (-1.0, 1.0), strict=True)]
    return WrappedPath(
        length,
        planar.curve / cosine,
        path.wraps,
        (path.first[0], path.first[1], z_a + rise * first.straight / width),
        (path.last[0], path.last[1], z_b - rise * last.straight / width),
        (gradients[0], gradients[1]),
    )
