"""Distance and penetration of any two convex shapes.

Every shape is a unit shape (ball, cylinder, cube, hull) stretched along its axes, plus a radius for spheres and capsules, which is set
aside (what is left is a cube without width); what is searched are the cores A and B. Which axes are round is a number of each pair, so
that pairs of all kinds are one program: compiling one for each would take a quarter of a minute a kind. Along a direction n from A to B
the shapes are apart by

    gap(n) = n . (x_B(-n) - x_A(n)),    x(n): the support point, farthest along n,

so h(n) = -gap(n) is the support function of the difference D = A - B, and the signed distance is the largest gap of all directions: the
distance of the origin from D where it is outside, minus the depth (the least translation that separates) where it is inside.

Search, without derivatives: a point x outside of D is projected onto D with a triangle of support points (Gilbert, Johnson, Keerthi
1988). Where the origin is outside, x is the origin. Where it is inside, x = (h(n) + a little) n is moved along with the best direction n
so far; if the projection p of x has the normal n', then h(n') = n'.x - |x - p| is smaller than h(n), so directions only improve and end at
a local minimum of h; many starts find the least. Curved shapes converge slowly so; between two projections a Newton step goes where the
curved parts of the features that the triangle names would have it.

Derivatives: the features are a direction n, up to three corners of D (corners, ends, rim points of the shapes) that a face or an edge of
D consists of, and the curved parts. They fix n by two equations (an edge is perpendicular to n, or the gap vector has no component
along a tangent), whose one Newton step, with its matrix held constant, has the derivative of the solution (implicit function).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ...spatial import Vector, apply, apply_inverse, cross, dot, neg, safe_norm, scale, stage, vadd, vsub
from .hulls import Hull
from .shapes import Shape, Touch

__all__ = ["convex", "extents", "nearest_on_triangle"]

_ROUND = {"ellipsoid": 3, "cylinder": 2}  # how many axes of the unit shape are round
_AXES = {"sphere": (), "capsule": (2,), "cylinder": (2,)}  # directions along which a shape is special; all axes of the others
_WHOLE = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
_HALF = {"sphere": ((0.0,) * 3,) * 3, "capsule": ((0.0,) * 3, (0.0,) * 3, (0.0, 1.0, 0.0)),
         "cylinder": ((1.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0))}  # fmt: skip
"""Half extents of the core as combinations of a geom's size; those of the others are the size."""
_OUT = 0.03  # how far outside of D a point is projected, of the size of D
_MOST = 24  # iterations of a search
_STEPS = 5  # of Newton, at the end
_STARTS = 8  # of the search of the deepest direction
_FACETS = 256  # of a mesh, that starts are chosen from
_APART = 0.9  # cosine between two starts, at most


class Hulls(NamedTuple):
    """Hulls of pairs (n or 1), filled up with copies to the same size. vertices (n, vertices, 3); normals (n, facets, 3) of the largest
    facets, outward, and a corner of each."""

    vertices: np.ndarray
    normals: np.ndarray
    corners: np.ndarray


@functools.partial(jax.tree_util.register_dataclass, data_fields=["half", "pos", "R", "corners"], meta_fields=["kinds", "hulls"])
@dataclass(frozen=True)
class Body:
    """Unit shapes with half extents `half` along the columns of R about pos; the rest is static. kinds: of the pairs. hulls: of meshes,
    else None. corners: of prisms, six points of the unit shape, else None."""

    kinds: tuple[str, ...]
    hulls: tuple[Hull, ...] | None
    half: Vector
    pos: Vector
    R: tuple
    corners: tuple[Vector, ...] | None = None

    @property
    def round(self):
        """How many axes are round: (pairs, 1), or one number for all."""
        return _column([_ROUND.get(k, 0) for k in self.kinds])

    @property
    def table(self) -> Hulls:
        assert self.hulls is not None
        return _table(self.hulls)


class Corner(NamedTuple):
    """A point of D: w = a - b, the points of the unit shapes it comes from."""

    w: Vector
    a: Vector
    b: Vector


class Search(NamedTuple):
    """State of a search. triangle: corners (3, starts, ...). n: best direction so far, h: support function there. done: converged."""

    triangle: Corner
    n: Vector
    h: Any
    done: Any
    iteration: Any


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def _column(numbers: Sequence):
    """What differs between the pairs as (pairs, 1), else one number."""
    return numbers[0] if all(x == numbers[0] for x in numbers) else np.array(numbers)[:, None]


def _core(kinds: tuple[str, ...], shape: Shape, like) -> tuple[Body, Any]:
    """The cores of shapes and their radii, every component of the shape and type of `like`."""

    def combined(row: int):
        parts = [_column([_HALF.get(k, _WHOLE)[row][j] for k in kinds]) for j in range(3)]
        return sum(x * y for x, y in zip(parts, shape.size, strict=True))

    radius = _column([float(k in ("sphere", "capsule")) for k in kinds]) * shape.size[0]
    fill = lambda x: jnp.broadcast_to(jnp.asarray(x, like.dtype), like.shape)  # noqa: E731
    half = tuple(combined(row) for row in range(3))
    half, pos, R, radius = jax.tree.map(fill, (half, tuple(shape.pos), tuple(tuple(r) for r in shape.R), radius))
    hulls = tuple(shape.data) if kinds[0] == "mesh" else None
    corners = shape.data.corners if kinds[0] == "prism" else None
    return Body(kinds, hulls, half, pos, R, jax.tree.map(fill, corners)), radius


@functools.lru_cache(maxsize=256)
def _table(hulls: tuple[Hull, ...]) -> Hulls:
    hulls = hulls[:1] if all(h == hulls[0] for h in hulls) else hulls
    parts = [(h.vertices, *_facets(h)) for h in hulls]
    return Hulls(*(np.stack([np.resize(x, (max(map(len, all)), 3)) for x in all]) for all in zip(*parts, strict=True)))


def _facets(hull: Hull) -> tuple[np.ndarray, np.ndarray]:
    """Unit normals, outward, of the largest faces of a hull and a corner of each."""
    p, q, r = np.moveaxis(hull.vertices[hull.faces], 1, 0)
    normal = np.cross(q - p, r - p)
    area = np.linalg.norm(normal, axis=1)
    large = np.argsort(-area, kind="stable")[:_FACETS]
    large = large[area[large] > 0]
    if not len(large):  # points on a line: any direction will do
        return np.eye(3)[:1], p[:1]
    return normal[large] / area[large, None], p[large]


def _size(a: Body, b: Body):
    """The length (m) that tolerances are relative to: extents and distance of the centres."""
    size = _length(a) + _length(b) + safe_norm(vsub(b.pos, a.pos))
    return jnp.where(size > 0, size, 1.0)


def _length(body: Body):
    """Norm of the half extents of a box around a body, along its own axes."""
    most = (1.0, 1.0, 1.0)
    if body.hulls is not None:
        most = tuple(_column([float(np.abs(h.vertices[:, k]).max()) for h in body.hulls]) for k in range(3))
    elif body.corners is not None:
        most = tuple(functools.reduce(jnp.maximum, [jnp.abs(c[k]) for c in body.corners]) for k in range(3))
    return safe_norm(tuple(x * h for x, h in zip(most, body.half, strict=True)))


def _stretched(body: Body, n: Vector) -> Vector:
    """The direction in the unit shape: (R diag(half))^T n."""
    return tuple(h * x for h, x in zip(body.half, apply_inverse(body.R, n), strict=True))


def _unit(m: Vector) -> Vector:
    """m / |m| however small m is; 0 stays 0."""
    most = jax.lax.stop_gradient(functools.reduce(jnp.maximum, [jnp.abs(x) for x in m]))
    m = scale(m, 1.0 / jnp.where(most > 0, most, 1.0))
    square = dot(m, m)
    return scale(m, 1.0 / jnp.sqrt(jnp.where(square > 0, square, 1.0)))


def _sign(x):
    return jnp.where(x >= 0, 1.0, -1.0).astype(x.dtype)


def _farthest(body: Body, m: Vector) -> Vector:
    """The point of the unit shape farthest along m."""
    if body.hulls is not None:
        return _vertex(body.table.vertices, m)
    if body.corners is not None:
        best, most = body.corners[0], dot(body.corners[0], m)
        for corner in body.corners[1:]:
            far = dot(corner, m)
            best = tuple(jnp.where(far > most, x, y) for x, y in zip(corner, best, strict=True))
            most = jnp.maximum(far, most)
        return best
    ends = tuple(_sign(x) for x in m)
    if not np.any(body.round):
        return ends
    rim = _unit(_curved_part(body, m))
    return tuple(jnp.where(np.less(k, body.round), x, y) for k, (x, y) in enumerate(zip(rim, ends, strict=True)))


def _curved_part(body: Body, m: Vector) -> Vector:
    """m along the round axes: two or three, 0 along the others."""
    return (*m[:2], jnp.where(np.equal(body.round, 3), m[2], 0.0))


def _vertex(vertices: np.ndarray, m: Vector) -> Vector:
    """The vertex (n or 1, vertices, 3) farthest along m (..., pairs, lanes), or of any shape where there is one hull."""
    table = [jnp.asarray(x, m[0].dtype) for x in np.moveaxis(vertices, -1, 0)]
    if len(vertices) == 1:
        best = jnp.argmax(sum(x[..., None] * v[0] for x, v in zip(m, table, strict=True)), axis=-1)
    else:
        best = jnp.argmax(sum(x[..., None] * v[:, None] for x, v in zip(m, table, strict=True)), axis=-1)
        best = best + vertices.shape[1] * np.arange(len(vertices))[:, None]
    return tuple(jnp.take(v.reshape(-1), best) for v in table)


def _turned(body: Body, u: Vector) -> Vector:
    """A point of the unit shape relative to the body's centre, world axes."""
    return apply(body.R, tuple(h * x for h, x in zip(body.half, u, strict=True)))


def _corner(a: Body, b: Body, n: Vector) -> Corner:
    """The corner of D farthest along n."""
    ua, ub = _support(a, n), _support(b, neg3(n))
    return Corner(_difference(a, b, ua, ub), ua, ub)


@stage
def _support(body: Body, n: Vector) -> Vector:
    """The point of the unit shape farthest along n. What is decided here is computed once, so that its parts fit together."""
    return _farthest(body, _stretched(body, n))


@stage
def _difference(a: Body, b: Body, ua: Vector, ub: Vector) -> Vector:
    return vsub(vsub(_turned(a, ua), _turned(b, ub)), vsub(b.pos, a.pos))


def neg3(n: Vector) -> Vector:
    return tuple(neg(x) for x in n)


# ---- projection on a triangle ------------------------------------------------------------------------------------------------


def _on_edge(x, p, q):
    """Weight of q at the point of the segment p q nearest to x."""
    e = vsub(q, p)
    length = dot(e, e)
    return jnp.clip(dot(vsub(x, p), e) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)


def nearest_on_triangle(x: Vector, p: tuple[Vector, Vector, Vector]):
    """Distance (m) of x from a triangle."""
    square = _nearest(x, p)[1]
    return jnp.sqrt(jnp.where(square > 0, square, 0.0))


@stage
def _nearest(x: Vector, p: tuple[Vector, Vector, Vector]) -> tuple[tuple, Any]:
    """Weights of the corners p at the point of their triangle nearest to x, and the square of the distance. Triangles without area are
    fine: the best of three edges and, where x is above it, the face."""
    n = cross(vsub(p[1], p[0]), vsub(p[2], p[0]))
    area = dot(n, n)
    d = [vsub(q, x) for q in p]
    safe = jnp.where(area > 0, area, 1.0)
    face = [dot(n, cross(d[(i + 1) % 3], d[(i + 2) % 3])) / safe for i in range(3)]
    inside = (area > 0) & (face[0] >= 0) & (face[1] >= 0) & (face[2] >= 0)
    total = jnp.where(inside, face[0] + face[1] + face[2], 1.0)
    weights = [jnp.where(inside, f / total, 1.0 * (i == 0)) for i, f in enumerate(face)]
    least = _square(weights, d)
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        t = _on_edge(x, p[i], p[j])
        candidate = [0.0, 0.0, 0.0]
        candidate[i], candidate[j], candidate[k] = 1.0 - t, t, jnp.zeros_like(t)
        square = _square(candidate, d)
        better = square < least
        least = jnp.where(better, square, least)
        weights = [jnp.where(better, c, w) for c, w in zip(candidate, weights, strict=True)]
    return tuple(weights), least


def _mix(weights, p) -> Vector:
    """Sum of points times weights."""
    return tuple(weights[0] * x + weights[1] * y + weights[2] * z for x, y, z in zip(*p, strict=True))


def _square(weights, d):
    p = _mix(weights, d)
    return dot(p, p)


def _corners(v: Vector) -> tuple[Vector, Vector, Vector]:
    """Three points, of components with the corner first."""
    return tuple(tuple(x[i] for x in v) for i in range(3))


# ---- Newton's step -----------------------------------------------------------------------------------------------------------


class Features(NamedTuple):
    """What A and B touch with. a, b: points of the unit shapes of three corners, flat parts only; weights: of the corners at the touching
    point, 0: the corner is no part of it. base is corner 0. smooth: per body, whether its round part is curved (else it is in the
    corners)."""

    a: tuple[Vector, Vector, Vector]
    b: tuple[Vector, Vector, Vector]
    weights: tuple
    smooth: tuple[bool, bool]


def _flat(body: Body, u: Vector, smooth) -> Vector:
    """The part of a point of the unit shape that stays when the direction changes a little."""
    return tuple(jnp.where(smooth & np.less(k, body.round), 0.0, x) for k, x in enumerate(u)) if np.any(body.round) else u


def _round(body: Body, n: Vector, smooth) -> tuple[Vector, Any]:
    """Curved part of the support point of the unit shape along n, and its curvature: (s, t) -> s . (derivative of the point along t), both
    directions in the world. Where n is the axis of a cylinder, the part is held constant."""
    zero = jnp.zeros_like(n[0])
    if not np.any(body.round):
        return (zero, zero, zero), lambda s, t: zero
    smooth = smooth & np.greater(body.round, 0)
    m = _curved_part(body, _stretched(body, n))
    size = functools.reduce(jnp.maximum, body.half)
    fine = functools.reduce(jnp.maximum, [jnp.abs(x) for x in m]) > 1e-9 * size
    m = tuple(jnp.where(fine, x, jax.lax.stop_gradient(x)) for x in m)
    u = tuple(jnp.where(smooth, x, 0.0) for x in _unit(m))
    length = dot(m, u)
    there = fine & smooth & (length > 0)
    inverse = jnp.where(there, 1.0 / jnp.where(there, length, 1.0), 0.0)

    def curvature(s, t):
        s, t = (_curved_part(body, _stretched(body, x)) for x in (s, t))
        return (dot(s, t) - dot(u, s) * dot(u, t)) * inverse

    return u, curvature


def _tangents(n: Vector) -> tuple[Vector, Vector]:
    """Two unit vectors perpendicular to n and each other (Duff et al. 2017)."""
    s = jnp.where(n[2] >= 0, 1.0, -1.0)
    f = -1.0 / (s + n[2])
    g = n[0] * n[1] * f
    return (1.0 + s * n[0] * n[0] * f, s * g, -s * n[0]), (g, s + n[1] * n[1] * f, -n[1])


@stage
def _points(a: Body, b: Body, f: Features, n: Vector) -> tuple[tuple, tuple]:
    """The three corners of A and of B, with the curved parts as they are along n, relative to the centre of A."""
    offset = vsub(b.pos, a.pos)
    ra, rb = _round(a, n, f.smooth[0])[0], _round(b, neg3(n), f.smooth[1])[0]
    pa = tuple(_turned(a, vadd(u, ra)) for u in f.a)
    pb = tuple(vadd(_turned(b, vadd(u, rb)), offset) for u in f.b)
    return pa, pb


class Linear(NamedTuple):
    """The two equations of n at n, in the tangents t: matrix, right side; sound: an isolated best direction."""

    t: tuple[Vector, Vector]
    matrix: tuple
    right: tuple
    edges: tuple
    present: tuple
    sound: Any


def _equations(a: Body, b: Body, f: Features, n: Vector, size) -> Linear:
    """Equations of the direction that features fix, linear about n."""
    stop = jax.lax.stop_gradient
    pa, pb = _points(a, b, f, n)
    gaps = [vsub(q, p) for p, q in zip(pa, pb, strict=True)]
    tiny = 100 * jnp.finfo(size.dtype).eps * size
    edges = [vsub(gaps[0], g) for g in gaps[1:]]
    lengths = [jnp.sqrt(dot(stop(e), stop(e))) for e in edges]
    present = [(w > 1e-9) & (d > tiny) for w, d in zip(f.weights[1:], lengths, strict=True)]
    # one edge comes first
    swap = ~present[0]
    first = tuple(jnp.where(swap, y, x) for x, y in zip(*edges, strict=True))
    second = edges[1]
    has = [present[0] | present[1], present[0] & present[1]]
    unit = scale(n, 1.0)
    any1, any2 = _tangents(stop(n))
    across = vsub(first, scale(unit, dot(first, unit)))
    square = dot(across, across)
    has[0] = has[0] & (square > tiny * tiny)
    t1 = scale(across, 1.0 / jnp.sqrt(jnp.where(has[0], square, 1.0)))
    t1 = tuple(jnp.where(has[0], x, y) for x, y in zip(t1, any1, strict=True))
    t2 = tuple(jnp.where(has[0], x, y) for x, y in zip(cross(unit, t1), any2, strict=True))
    aside, length = stop(dot(second, t2)), jnp.maximum(lengths[1], tiny)
    has[1] = has[1] & has[0] & (jnp.abs(aside) > 1e-6 * length)
    gap = dot(n, gaps[0])
    ca, cb = _round(a, n, f.smooth[0])[1], _round(b, neg3(n), f.smooth[1])[1]
    t = (t1, t2)
    m = [[ca(s, u) + cb(s, u) + (gap if i == j else 0.0) for j, u in enumerate(t)] for i, s in enumerate(t)]
    rows = ((dot(first, t1), dot(first, t2)), (dot(second, t1), dot(second, t2)))
    right = (
        jnp.where(has[0], -dot(first, n), dot(t1, gaps[0])),
        jnp.where(has[1], -dot(second, n), dot(t2, gaps[0])),
    )
    matrix = tuple(tuple(jnp.where(has[i], rows[i][j], m[i][j]) for j in range(2)) for i in range(2))
    lean = tiny * 1e3
    sound = (has[1] | (m[1][1] > lean)) & (has[0] | ((m[0][0] > lean) & (m[0][0] * m[1][1] - m[0][1] * m[1][0] > 0)))
    return Linear(t, matrix, right, (first, second, swap), tuple(has), sound)


def _solve2(matrix, right, size):
    """2 by 2 system, finite where the matrix is singular."""
    (p, q), (r, s) = matrix
    row = [jnp.sqrt(p * p + q * q), jnp.sqrt(r * r + s * s)]
    det = p * s - q * r
    floor = 1e-10 * row[0] * row[1] + 1e-30 * size * size
    det = jnp.where(jnp.abs(det) > floor, det, jnp.where(det < 0, -floor, floor))
    return (s * right[0] - q * right[1]) / det, (p * right[1] - r * right[0]) / det


@stage
def _newton(a: Body, b: Body, f: Features, n: Vector, size, limit: float = 0.3) -> tuple[Vector, Any]:
    """One Newton step of the direction, and whether its equations describe a best direction."""
    eq = _equations(a, b, f, n, size)
    alpha, beta = _solve2(eq.matrix, eq.right, size)
    length = jnp.sqrt(alpha * alpha + beta * beta)
    short = jnp.minimum(1.0, limit / jnp.where(length > 0, length, 1.0))
    step = vadd(scale(eq.t[0], alpha * short), scale(eq.t[1], beta * short))
    return _unit(vadd(n, step)), eq.sound


# ---- search ------------------------------------------------------------------------------------------------------------------


def _features(a: Body, b: Body, triangle: Corner, smooth: tuple[bool, bool], n: Vector, x: Vector) -> Features:
    """Features of the triangle's corners, at the point nearest to x of the triangle with the curved parts as they are along n."""
    ua = [_flat(a, u, smooth[0]) for u in _corners(triangle.a)]
    ub = [_flat(b, u, smooth[1]) for u in _corners(triangle.b)]
    one = jnp.ones_like(n[0])
    pa, pb = _points(a, b, Features(tuple(ua), tuple(ub), (one, one, one), smooth), n)
    weights, _ = _nearest(x, tuple(vsub(p, q) for p, q in zip(pa, pb, strict=True)))
    return _base_first(Features(tuple(ua), tuple(ub), weights, smooth))


@stage
def _base_first(f: Features) -> Features:
    """The same with the corner of the largest weight first."""
    w = f.weights
    k = jnp.where((w[0] >= w[1]) & (w[0] >= w[2]), 0, jnp.where(w[1] >= w[2], 1, 2))

    def order(p):
        first = jax.tree.map(lambda *c: jnp.where(k == 0, c[0], jnp.where(k == 1, c[1], c[2])), *p)
        rest = [jax.tree.map(lambda c, d, i=i: jnp.where(k == i, c, d), p[0], p[i]) for i in (1, 2)]
        return (first, *rest)

    return Features(order(f.a), order(f.b), order(w), f.smooth)


def _target(n: Vector, h, size) -> Vector:
    """The point outside of D to project: the origin where it is outside."""
    clear = 1e-6 if h.dtype == jnp.float64 else 1e-4
    return scale(n, jnp.where(h < -clear * size, 0.0, h + _OUT * size))


def _hypotheses(a: Body, b: Body, curved: bool = False) -> np.ndarray:
    """Which round parts may be curved, in turn: (choices, 2, pairs, 1), or (choices, 2). Rims of cylinders are curved or, at a cap,
    corners. curved: without the choice that none is, where there are others."""
    found = []
    for kinds in zip(a.kinds, b.kinds, strict=True):
        one, two = [(True, False) if k == "cylinder" else (k in _ROUND,) for k in kinds]
        every = [(x, y) for x in one for y in two]
        found.append([pair for pair in every if any(pair)] or every if curved else every)
    count = math.lcm(*map(len, found))
    table = np.array([every * (count // len(every)) for every in found])
    return table[0] if len(table) == 1 else np.moveaxis(table, 0, 2)[..., None]


def _choose(triangle: Corner, new: Corner, x: Vector) -> Corner:
    """The triangle, of the three old and the new corner, nearest to x."""

    old = _corners(triangle.w)
    four = [[jnp.stack([n if i == j + 1 else o for i in range(4)]) for o, n in zip(old[j], new.w, strict=True)] for j in range(3)]
    k = _least(_nearest(x, tuple(tuple(v) for v in four))[1])
    index = jnp.arange(1, 4).reshape(3, *[1] * k.ndim)
    return jax.tree.map(lambda o, n: jnp.where(k == index, n, o), triangle, new)


@stage
def _least(square):
    """The number of the least of four."""
    best, least = jnp.zeros(square.shape[1:], jnp.int32), square[0]
    for i in range(1, 4):
        better = square[i] < least
        best, least = jnp.where(better, i, best), jnp.where(better, square[i], least)
    return best


def _tolerance(size):
    """How close (m) a search comes to the largest gap, before the last Newton steps."""
    return (1e-9 if size.dtype == jnp.float64 else 1e-6) * size


def _search(a: Body, b: Body, n: Vector, size) -> Search:
    """Searches from the directions n (starts, ...)."""
    curved = _hypotheses(a, b, curved=True)
    tolerance = _tolerance(size)
    first = _corner(a, b, n)
    triangle = jax.tree.map(lambda x: jnp.stack([x, x, x]), first)
    h = dot(n, first.w)
    done = jnp.zeros(h.shape, bool)

    def ended(s: Search):
        return jnp.all(s.done, axis=0) | jnp.any(s.done & (s.h < 0), axis=0)  # apart, all starts end alike

    def active(s: Search):
        return jnp.any(~ended(s)) & (s.iteration < _MOST)

    def tried(s: Search, x, n, still, converged):
        """The direction n, and its corner in the triangle nearest to x. Lanes that have ended stand still, whatever others do."""
        still = still | s.done
        corner = _corner(a, b, n)
        h = dot(n, corner.w)
        better = (h < s.h) & ~still
        triangle = jax.tree.map(lambda new, old: jnp.where(still, old, new), _choose(s.triangle, corner, x), s.triangle)
        best = tuple(jnp.where(better, p, q) for p, q in zip(n, s.n, strict=True))
        return Search(triangle, best, jnp.where(better, h, s.h), s.done | (~still & converged(corner, s.h)), s.iteration)

    def body(s: Search):
        still = ended(s)
        x = _target(s.n, s.h, size)
        corners = _corners(s.triangle.w)
        weights, _ = _nearest(x, corners)
        p = _mix(weights, corners)
        v = vsub(x, p)
        direction = _unit(v)
        direction = tuple(jnp.where(dot(v, v) > 0, d, m) for d, m in zip(direction, s.n, strict=True))

        def projected(corner, before):  # no corner is farther than the triangle, and the direction is no better than before
            h = dot(direction, corner.w)
            return (h - dot(direction, p) <= tolerance) & (jnp.abs(h - before) <= tolerance)

        s = tried(s, x, direction, still, projected)
        if curved.any():
            smooth = tuple(jnp.asarray(curved)[s.iteration % len(curved)])
            x = _target(s.n, s.h, size)
            d, sound = _newton(a, b, _features(a, b, s.triangle, smooth, s.n, x), s.n, size)
            d = tuple(jnp.where(sound, y, z) for y, z in zip(d, s.n, strict=True))
            s = tried(s, x, d, still, lambda corner, before: jnp.zeros(before.shape, bool))
        return s._replace(iteration=s.iteration + 1)

    return jax.lax.while_loop(active, body, Search(triangle, n, h, done, jnp.zeros((), jnp.int32)))


def _grid() -> np.ndarray:
    """42 directions: corners and edge middles of an icosahedron."""
    g = (1 + 5**0.5) / 2
    corners = np.array([[0, s, t * g] for s in (-1, 1) for t in (-1, 1)])
    corners = np.concatenate([np.roll(corners, k, 1) for k in range(3)]) / np.sqrt(1 + g * g)
    edges = [p + q for i, p in enumerate(corners) for q in corners[:i] if p @ q > 0.4]
    edges = np.array(edges)
    return np.concatenate([corners, edges / np.linalg.norm(edges, axis=1)[:, None]])


def _axes(body: Body) -> list[Vector]:
    used = sorted({k for kind in body.kinds for k in _AXES.get(kind, range(3))})
    axes = [tuple(r[k] for r in body.R) for k in used]
    if body.corners is not None:  # and the normal of the triangle on top
        p, q, r = (_turned(body, c) for c in body.corners[:3])
        axes.append(_unit(cross(_unit(vsub(q, p)), _unit(vsub(r, p)))))
    return axes


def _normals(body: Body) -> tuple[Vector, Any]:
    """Outward normals (facets, ...) of the largest faces of meshes, world axes, and the support function there."""
    h = body.half

    def column(x):  # (facets, pairs or 1, 1), or (facets, 1, ...)
        x = jnp.asarray(x.T, h[0].dtype)
        return x[..., None] if x.shape[1] > 1 else x.reshape(-1, *[1] * h[0].ndim)

    # a normal of the stretched mesh is the normal over the stretch; times all three stretches, so that none divides
    stretch = (h[1] * h[2], h[2] * h[0], h[0] * h[1])
    local = _unit(tuple(column(x) * s for x, s in zip(np.moveaxis(body.table.normals, -1, 0), stretch, strict=True)))
    height = dot(local, tuple(column(x) * s for x, s in zip(np.moveaxis(body.table.corners, -1, 0), h, strict=True)))
    return apply(body.R, local), height


def _reach(body: Body, n: Vector):
    """The support function of a body about its centre."""
    return dot(n, _turned(body, _support(body, n)))


def _candidates(a: Body, b: Body) -> tuple[Vector, Any]:
    """Directions (candidates, ...) among which starts are chosen, and h there: a grid, the axes, their products, the line between the
    centres, normals of faces."""
    shape, dtype = a.pos[0].shape, a.pos[0].dtype
    axes, line = [_axes(a), _axes(b)], vsub(b.pos, a.pos)
    special = [*axes[0], *axes[1], _unit(line), *[_unit(cross(p, q)) for p in axes[0] for q in axes[1]]]
    grid = [jnp.broadcast_to(jnp.asarray(g, dtype).reshape(-1, *[1] * len(shape)), (len(g), *shape)) for g in _grid().T]
    n = tuple(jnp.concatenate([g, jnp.stack([s[k] for s in special]), -jnp.stack([s[k] for s in special])]) for k, g in enumerate(grid))
    n = _unit((*n[:2], jnp.where(dot(n, n) > 0.5, n[2], 1.0)))
    h = _reach(a, n) + _reach(b, neg3(n)) - dot(n, line)
    if a.hulls is not None:
        m, height = _normals(a)
        n, h = _joined(n, m), jnp.concatenate([h, height + _reach(b, neg3(m)) - dot(m, line)])
    if b.hulls is not None:
        m, height = _normals(b)
        n, h = _joined(n, neg3(m)), jnp.concatenate([h, height + _reach(a, neg3(m)) + dot(m, line)])
    return n, h


def _joined(n: Vector, m: Vector) -> Vector:
    return tuple(jnp.concatenate([x, y]) for x, y in zip(n, m, strict=True))


def _starts(a: Body, b: Body) -> Vector:
    """Directions (starts, ...) of small h, apart from each other."""
    n, h = _candidates(a, b)
    chosen = []
    for _ in range(_STARTS):
        best = _take(n, jnp.argmin(h, axis=0))
        chosen.append(best)
        h = jnp.where(dot(n, best) > _APART, jnp.inf, h)
    return tuple(jnp.stack(c) for c in zip(*chosen, strict=True))


def _take(tree, k):
    """Entry k (...) of the axis of starts, which is the last before those of k."""

    def pick(x):
        axis = x.ndim - k.ndim - 1
        return jnp.take_along_axis(x, k.reshape(*[1] * (axis + 1), *k.shape), axis=axis).squeeze(axis)

    return jax.tree.map(pick, tree)


def _best_direction(a: Body, b: Body, size) -> tuple[Vector, Corner]:
    """The direction of the largest gap, and the triangle of its search."""
    s = _search(a, b, _starts(a, b), size)
    return _take((s.n, s.triangle), jnp.argmin(s.h - jnp.where(s.done, 10 * _tolerance(size), 0.0), axis=0))


# ---- contact -----------------------------------------------------------------------------------------------------------------


def _settled(a: Body, b: Body, n: Vector, triangle: Corner, size) -> tuple[Vector, Features]:
    """The direction to rounding and its features: those of the hypothesis about the curved parts that has the largest gap."""
    slack = 100 * jnp.finfo(size.dtype).eps * size
    hypotheses = jnp.asarray(_hypotheses(a, b))
    h0 = dot(n, _corner(a, b, n).w)

    def features(m, smooth):
        return _features(a, b, triangle, smooth, m, _target(m, h0, size))

    def step(k, state):
        (m, rated), best = state
        smooth = tuple(hypotheses[k // _STEPS])
        fresh = k % _STEPS == 0
        m = tuple(jnp.where(fresh, x, y) for x, y in zip(n, m, strict=True))
        d, sound = _newton(a, b, features(m, smooth), m, size)
        h = dot(d, _corner(a, b, d).w)
        good = sound & (h <= h0 + slack)
        m = tuple(jnp.where(good, x, y) for x, y in zip(d, m, strict=True))
        rated = h + jnp.where(sound, 0.0, 1e3 * slack)  # the last step goes away where the hypothesis does not hold
        better = (k % _STEPS == _STEPS - 1) & (rated < best[1] - slack)
        new = (m, rated, tuple(jnp.broadcast_to(x, h0.shape) for x in smooth))
        return new[:2], jax.tree.map(lambda x, y: jnp.where(better, x, y), new, best)

    worst = jnp.full(h0.shape, jnp.inf, h0.dtype)
    start = (n, worst, tuple(jnp.broadcast_to(x, h0.shape) for x in hypotheses[0]))
    _, (m, _, smooth) = jax.lax.fori_loop(0, _STEPS * len(hypotheses), step, ((n, worst), start))
    return m, features(m, smooth)


def _touch(a: Body, b: Body, n: Vector, f: Features, size) -> tuple[Any, Vector, Vector, Vector]:
    """Signed distance of the cores, the touching points of A and B relative to the centre of A, and n, with their derivatives at the
    direction n that the features fix."""
    stop = jax.lax.stop_gradient
    still = lambda tree: jax.tree.map(lambda x: x - stop(x), tree)  # noqa: E731  # value 0
    pa, pb = _points(a, b, f, n)
    gap = dot(n, vsub(_mix(f.weights, pb), _mix(f.weights, pa)))
    distance = still(gap) - stop(dot(n, _corner(a, b, n).w))
    eq = _equations(a, b, f, n, size)
    alpha, beta = still(_solve2(stop(eq.matrix), eq.right, size))
    t = stop(eq.t)
    n = _unit(vadd(n, vadd(scale(t[0], alpha), scale(t[1], beta))))
    pa, pb = _points(a, b, f, n)
    moves = still(_weights(eq, vsub(pb[0], pa[0]), n, size))
    w = [w + m for w, m in zip(f.weights[1:], moves, strict=True)]
    weights = (1.0 - w[0] - w[1], *w)
    return distance, _mix(weights, pa), _mix(weights, pb), n


def _weights(eq: Linear, gap: Vector, n: Vector, size) -> tuple:
    """Weights of corners 1 and 2 with which the gap vector of the touching points is along n; 0 of those that do not count."""
    (first, second, swapped), (t1, t2) = eq.edges, eq.t
    one, two = eq.present
    matrix = (
        (jnp.where(one, dot(t1, first), 1.0), jnp.where(two, dot(t1, second), 0.0)),
        (jnp.where(two, dot(t2, first), 0.0), jnp.where(two, dot(t2, second), 1.0)),
    )
    gap = vsub(gap, scale(n, dot(n, gap)))
    x, y = _solve2(matrix, (jnp.where(one, dot(t1, gap), 0.0), jnp.where(two, dot(t2, gap), 0.0)), size)
    return jnp.where(swapped, 0.0, x), jnp.where(swapped, x, y)


def extents(kind: str, shape: Shape, frame: Shape) -> tuple[Vector, Vector]:
    """The box around shapes of a kind along the axes of a frame, about their centres: least and largest coordinates (m)."""
    shape = jax.tree.map(jax.lax.stop_gradient, shape._replace(data=None))._replace(data=shape.data)
    leaves = jax.tree.leaves((shape.size, shape.pos, shape.R, frame.R))
    like = jnp.zeros(jnp.broadcast_shapes(*map(jnp.shape, leaves)), jnp.result_type(float, *leaves))
    body, radius = _core((kind,), shape, like)
    axes = [jax.tree.map(lambda x: jnp.broadcast_to(jax.lax.stop_gradient(x), like.shape), frame.axis(k)) for k in range(3)]
    return tuple(-_reach(body, neg3(n)) - radius for n in axes), tuple(_reach(body, n) + radius for n in axes)


def convex(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape) -> Touch:
    """One contact of each of any pairs of sphere, capsule, ellipsoid, cylinder, box, mesh: where they are nearest, or, where they overlap,
    what the least translation that separates them would part.

    kinds: of each pair (components are then (pairs, lanes)), or of all (one). Of a side all or none are meshes, whose hulls, as many as
    kinds, are `data`; or prisms of a height field, with the kind "prism"."""
    leaves = jax.tree.leaves((a.size, a.pos, a.R, b.size, b.pos, b.R))
    like = jnp.zeros(jnp.broadcast_shapes(*map(jnp.shape, leaves)), jnp.result_type(float, *leaves))
    (ca, ra), (cb, rb) = (_core(k, s, like) for k, s in zip(zip(*kinds, strict=True), (a, b), strict=True))
    still = jax.tree.map(jax.lax.stop_gradient, (ca, cb))
    size = _size(*still)
    n, f = jax.tree.map(jax.lax.stop_gradient, _settled(*still, *_best_direction(*still, size), size))
    distance, pa, pb, n = _touch(ca, cb, n, f, size)
    middle = vadd(scale(vadd(pa, pb), 0.5), scale(n, 0.5 * (ra - rb)))
    return Touch(distance - ra - rb, vadd(ca.pos, middle), n)
