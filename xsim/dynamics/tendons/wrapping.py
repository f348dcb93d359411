"""The shortest way of a tendon from one point to another around a sphere or a cylinder, or through it, in closed form.

Both obstacles reduce to a circle: a sphere in the plane of its centre and the two points, a cylinder (of infinite length) seen along
its axis, where height grows in proportion to the way unrolled. In that plane the points are a at direction 0 and b at direction
``apart``, between 0 and pi.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.spatial import ZERO3, Component, Vector, add, cross, dot, normalize, safe_norm, scale, stage, total, vadd, vsub

NEWTON_STEPS = 10


class Way(NamedTuple):
    """A tendon between two points in the frame of its obstacle.

    length (m): all of it, also where it is straight. curve (m): the part on the surface. wraps: 1.0 where it touches the obstacle, else
    0.0, and then first and last mean nothing. first, last: where it meets and leaves the surface. slopes: how fast the length grows
    with each of the two points, unit vectors; as the way is the shortest, they are also the directions in which it leaves the points.
    """

    length: Component
    curve: Component
    wraps: Component
    first: Vector
    last: Vector
    slopes: tuple[Vector, Vector]


class _End(NamedTuple):
    """One end of a planar way, along its point's axes. straight (m): from the point to its contact. contact: in units of the radius.
    slope: of the length with the point."""

    straight: Component
    contact: tuple
    slope: tuple


class _Planar(NamedTuple):
    """A way in the plane: whether it touches the circle, its length, that of its curve, its ends."""

    wraps: Any
    length: Component
    curve: Component
    ends: tuple[_End, _End]


class _Plane(NamedTuple):
    """Distances of the points from the centre, the angle between them (0 to pi), and two axes of each point: its own direction and,
    across it, that of the other point."""

    radius: Component
    distances: tuple
    apart: Component
    axes: tuple


def _where(condition, a, b):
    return tuple(jnp.where(condition, x, y) for x, y in zip(a, b, strict=True))


def _root(positive, x):
    """Square root of x where positive, else 0."""
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1.0)), 0.0)


def _tangent(length, radius):
    """From a point at that distance from the centre to where the tangent touches the circle."""
    square = (length - radius) * (length + radius)
    return _root(square > 0, square)


@jax.custom_jvp
def _shortening(length, radius):
    """Length of the tangent from a point, less the arc between the point's direction and the contact."""
    tangent = _tangent(length, radius)
    return tangent - radius * jnp.arctan2(tangent, radius)


@_shortening.defjvp
def _(primals, tangents):
    # The derivatives of the two terms grow without bound near the circle; those of their difference do not.
    length, radius = primals
    tangent = _tangent(length, radius)
    slope = tangent / length * tangents[0] - jnp.arctan2(tangent, radius) * tangents[1]
    return _shortening(length, radius), slope


# ---- inside ------------------------------------------------------------------------------------------------------------------


def _square(ratio, angle):
    """Square of the distance between a contact at an angle and a point, in units of the point's distance; ratio: radius by that."""
    half = jnp.sin(0.5 * angle)
    square = (1.0 - ratio) * (1.0 - ratio) + 4.0 * ratio * half * half
    return jnp.where(square > 0, square, 1.0)


def _incidence(ratio, angle):
    """Angle at a contact between the normal and the direction to a point; the contact is at an angle from the point's direction."""
    half = jnp.sin(0.5 * angle)
    return jnp.arctan2(jnp.sin(angle), 1.0 - ratio - 2.0 * half * half)


def _incidence_slope(ratio, angle):
    return (1.0 - ratio * jnp.cos(angle)) / _square(ratio, angle)


@jax.custom_jvp
def _reflection(ratio_a, ratio_b, apart):
    """Angle from a's direction to the point of the circle that reflects a to b, which both can see."""
    # Angle of incidence minus angle of reflection grows with the angle between these bounds, at a rate of at least 2.
    limits = [jnp.arctan2(jnp.sqrt((1.0 - x) * (1.0 + x)), x) for x in (ratio_a, ratio_b)]
    low, high = jnp.maximum(apart - limits[1], 0.0), jnp.minimum(limits[0], apart)
    x = jnp.clip(apart * (1.0 - ratio_a) / (2.0 - ratio_a - ratio_b), low, high)

    def closer(_, bounds):
        low, high, x = bounds
        excess = _incidence(ratio_a, x) - _incidence(ratio_b, apart - x)
        low, high = jnp.where(excess < 0, x, low), jnp.where(excess > 0, x, high)
        step = x - excess / (_incidence_slope(ratio_a, x) + _incidence_slope(ratio_b, apart - x))
        return low, high, jnp.where((step >= low) & (step <= high), step, 0.5 * (low + high))

    # A loop, which the compiler cannot melt into one expression that it computes again for every use.
    return jax.lax.fori_loop(0, NEWTON_STEPS, closer, tuple(jnp.broadcast_arrays(low, high, x)))[2]


@_reflection.defjvp
def _(primals, tangents):
    ratio_a, ratio_b, apart = primals
    x = _reflection(*primals)
    y = apart - x
    slope_a, slope_b = _incidence_slope(ratio_a, x), _incidence_slope(ratio_b, y)
    rest = jnp.sin(y) / _square(ratio_b, y) * tangents[1] + slope_b * tangents[2] - jnp.sin(x) / _square(ratio_a, x) * tangents[0]
    return x, rest / (slope_a + slope_b)


@stage
def _inside(plane: _Plane) -> _Planar:
    """Through the circle's inside, which a straight way meets by itself: else by the nearest point of the circle."""
    touches = plane.apart < total(_arcs(plane))
    ratios = [jnp.where(touches, plane.radius / x, 0.5) for x in plane.distances]
    apart = jnp.where(touches, plane.apart, 1.0)
    x = _reflection(*ratios, apart)
    ends, length = [], 0.0
    for distance, ratio, angle in zip(plane.distances, ratios, (x, apart - x), strict=True):
        reach = jnp.sqrt(_square(ratio, angle))
        cosine, sine = jnp.cos(angle), jnp.sin(angle)
        ends.append(_End(distance * reach, (cosine, sine), ((1.0 - ratio * cosine) / reach, -ratio * sine / reach)))
        length = add(length, distance * reach)
    return _Planar(touches, length, 0.0 * length, tuple(ends))


# ---- around ------------------------------------------------------------------------------------------------------------------


@stage
def _around(plane: _Plane, wraps, long, sweep) -> _Planar:
    """Around the circle by the angle ``sweep`` from a's direction to b's, against the sense of the smaller one where ``long``."""
    r, sense, length = plane.radius, jnp.where(long, -1.0, 1.0), plane.radius * sweep
    ends = []
    for x in plane.distances:
        tangent = _tangent(x, r)
        length = length + _shortening(x, r)
        ends.append(_End(tangent, (r / x, sense * tangent / x), (tangent / x, -sense * r / x)))
    return _Planar(wraps, length, r * (sweep - total(_arcs(plane))), tuple(ends))


@stage
def _arcs(plane: _Plane) -> list:
    """At each point, the angle between its direction and that of its tangents' contacts."""
    return [jnp.arctan2(_tangent(x, plane.radius), plane.radius) for x in plane.distances]


def _shortest(plane: _Plane, side) -> _Planar:
    """The shorter way, if the straight one is barred."""
    return _around(plane, plane.apart > total(_arcs(plane)), False, plane.apart)


@stage
def _same_class(plane: _Plane, side) -> _Planar:
    """The shortest form of the path from a to the side site to b (found to be the rule of MuJoCo 4.0.0)."""
    (_, across_a), (_, across_b) = plane.axes
    long = (dot(across_a, side) < 0) & (dot(across_b, side) < 0)
    sweep = jnp.where(long, 2.0 * math.pi - plane.apart, plane.apart)
    return _around(plane, sweep > total(_arcs(plane)), long, sweep)


@stage
def _nearest_side(plane: _Plane, side) -> _Planar:
    """The way whose middle is on the side of the side site, if the straight one is barred or passes beyond the centre (MuJoCo 3.2)."""
    arcs = _arcs(plane)
    ends = [scale(out, x) for (out, _), x in zip(plane.axes, plane.distances, strict=True)]
    along = vsub(ends[1], ends[0])
    square = dot(along, along)
    share = jnp.clip(-dot(along, ends[0]) / jnp.where(square > 0, square, 1.0), 0.0, 1.0)
    nearest = vadd(ends[0], scale(along, share))
    wraps = (dot(nearest, nearest) <= plane.radius * plane.radius) | (dot(nearest, side) < 0)

    def merit(sense):
        middle = ZERO3
        for (out, across), x in zip(plane.axes, plane.distances, strict=True):
            middle = vadd(middle, vadd(scale(out, plane.radius / x), scale(across, sense * _tangent(x, plane.radius) / x)))
        return dot(normalize(middle), side)

    turn = plane.apart - total(arcs)
    # The two tangents of the shorter way may meet before they touch. If they neither do that nor leave an arc between them, the way
    # goes all the way round.
    crossed = (turn < 0) & (-0.5 * turn <= jnp.minimum(*arcs))
    long = crossed | (merit(1.0) < merit(-1.0))
    sweep = jnp.where(long, 2.0 * math.pi - plane.apart, jnp.where(turn < 0, 2.0 * math.pi + plane.apart, plane.apart))
    return _around(plane, wraps, long, sweep)


# ---- in space ----------------------------------------------------------------------------------------------------------------


@stage
def _plane(kind: str, a, b, radius) -> _Plane:
    """The plane of two points that are not at its centre."""
    la, lb = safe_norm(a), safe_norm(b)
    out_a, out_b = scale(a, 1.0 / la), scale(b, 1.0 / lb)
    normal = cross(out_a, out_b)
    if kind == "cylinder":
        sign = jnp.where(normal[2] < 0, -1.0, 1.0)
        sine, normal = sign * normal[2], (0.0, 0.0, sign)
    else:
        sine = safe_norm(normal)
        known = sine > jnp.finfo(sine.dtype).eps
        inverse = 1.0 / jnp.where(known, sine, 1.0)
        normal = _where(known, scale(normal, inverse), _any_normal(out_a))
    apart = jnp.arctan2(sine, dot(out_a, out_b))
    return _Plane(radius, (la, lb), apart, ((out_a, cross(normal, out_a)), (out_b, cross(out_b, normal))))


def _any_normal(a) -> Vector:
    """A direction across that of a; the one MuJoCo takes when the points and the centre are on one line."""
    x, y, z = (jnp.abs(c) for c in a)
    first = (x >= y) & (x >= z)
    second = ~first & (y >= z)
    other = tuple(jnp.where(largest, 0.0, 1.0) for largest in (first, second, ~(first | second)))
    normal = cross(a, other)
    return scale(normal, 1.0 / safe_norm(normal))


def wrap(kind: str, a, b, radius, side=None, shortest: bool = False) -> Way:
    """The way from a to b around a sphere or a cylinder along z (``kind``), all in the obstacle's frame.

    side: the side site. Outside the obstacle it chooses between the two ways round: the shortest one that passes it (``shortest``, MuJoCo
    4.0), or the one that is nearer to it (3.2). Inside the obstacle it makes the tendon pass through. Nothing wraps where a or b is
    inside. Values and derivatives are finite everywhere, also where the points coincide, and the length has a continuous derivative where
    it begins to wrap (but not where the side changes).
    """
    a, b, radius = jax.tree.map(jnp.asarray, (tuple(a), tuple(b), radius))
    return _wrap(kind, shortest, a, b, radius, side)


@stage
def _wrap(kind, shortest, a, b, radius, side) -> Way:
    straight = vsub(b, a)
    flat_a, flat_b = (p if kind == "sphere" else (p[0], p[1], 0.0) for p in (a, b))
    flat = vsub(flat_b, flat_a)
    square = radius * radius
    clear = (radius > 0) & (dot(flat, flat) > 0) & (dot(flat_a, flat_a) > square) & (dot(flat_b, flat_b) > square)
    plane = _plane(kind, _where(clear, flat_a, (1.0, 0.0, 0.0)), _where(clear, flat_b, (0.0, 1.0, 0.0)), jnp.where(clear, radius, 0.5))

    planar = (_shortest if side is None else _same_class if shortest else _nearest_side)(plane, side)
    if side is not None:
        within = dot(side, side) < square
        planar = jax.tree.map(lambda x, y: jnp.where(within, x, y), _inside(plane), planar)
    wraps = clear & planar.wraps

    way = _in_space(plane, planar)
    if kind == "cylinder":
        way = _raised(way, planar, wraps, a[2], b[2])
    unbent = normalize(straight)
    slopes = (_where(wraps, way.slopes[0], scale(unbent, -1.0)), _where(wraps, way.slopes[1], unbent))
    return way._replace(
        length=jnp.where(wraps, way.length, safe_norm(straight)),
        curve=jnp.where(wraps, way.curve, 0.0),
        wraps=jnp.where(wraps, jnp.ones_like(square), 0.0),
        slopes=slopes,
    )


@stage
def _in_space(plane: _Plane, planar: _Planar) -> Way:
    contacts, slopes = [], []
    for (out, across), end in zip(plane.axes, planar.ends, strict=True):
        contacts.append(scale(vadd(scale(out, end.contact[0]), scale(across, end.contact[1])), plane.radius))
        slopes.append(vadd(scale(out, end.slope[0]), scale(across, end.slope[1])))
    return Way(planar.length, planar.curve, 1.0, contacts[0], contacts[1], (slopes[0], slopes[1]))


@stage
def _raised(way: Way, planar: _Planar, wraps, low, high) -> Way:
    """A way seen along the cylinder's axis, with the heights of its points: unrolled, it is straight."""
    width = jnp.where(wraps, planar.length, 1.0)
    rise = high - low
    length = jnp.sqrt(width * width + rise * rise)
    share, lift = width / length, rise / length
    first, last = planar.ends
    slopes = [(share * s[0], share * s[1], lift * sign) for s, sign in zip(way.slopes, (-1.0, 1.0), strict=True)]
    return Way(
        length,
        planar.curve / share,
        way.wraps,
        (way.first[0], way.first[1], low + rise * first.straight / width),
        (way.last[0], way.last[1], high - rise * last.straight / width),
        (slopes[0], slopes[1]),
    )
