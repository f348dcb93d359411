"""Distance and penetration of any two convex shapes.

What is searched are the cores A and B of two shapes (`cores`), without the radii of spheres and capsules. Along a direction n from A to B
the cores are apart by

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

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.convex_newton import Features, Linear, flat_point, linear_equations, newton_step, solve_2x2, witness_points
from xsim.dynamics.collide.cores import (
    Body,
    axes,
    bounding_boxes,
    cores,
    has_round_axes,
    neg3,
    normals,
    span,
    support,
    support_function,
    unit,
    world_offset,
)
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape
from xsim.spatial import Vector, cross, dot, each_row, in_one_environment, scale, stage, vadd, vsub

__all__ = ["convex", "nearest_on_triangle", "weights_on_triangle"]

_OUT = 0.03  # how far outside of D a point is projected, of the size of D
_MOST = 24  # iterations of a search
_STEPS = 5  # of Newton, at the end
_STARTS = 8  # of the search of the deepest direction
_AT_ONCE = 2  # searches of a pair side by side, in the program of one environment: 1 and 4 are slower
_APART = 0.9  # cosine between two starts, at most


class Pairs(NamedTuple):
    """Pairs of bodies, and the shapes of each pair. which (m, lanes): those that count, None: all."""

    kinds: Sequence[tuple[str, str]]
    a: Body
    b: Body
    which: Any

    def at(self, k) -> tuple[Body, Body]:
        """The bodies of pairs k (n, lanes), of those that count."""
        k = self._numbers(k)
        return self.a.at(k), self.b.at(k)

    def _numbers(self, k):
        return k if self.which is None else jnp.take_along_axis(self.which, k, 0)

    def hypotheses(self, k, curved: bool = False):
        """Which round parts may be curved, in turn: (choices, 2), or of pairs k (choices, 2, n, lanes). Rims of cylinders are curved or, at
        a cap, corners. curved: without the choice that none is, where there are others."""
        found = []
        for both in self.kinds:
            one, two = [(True, False) if kind == "cylinder" else (has_round_axes(kind),) for kind in both]
            every = [(x, y) for x in one for y in two]
            found.append([pair for pair in every if any(pair)] or every if curved else every)
        if all(every == found[0] for every in found):
            return jnp.array(found[0])
        count = math.lcm(*map(len, found))
        table = jnp.array([every * (count // len(every)) for every in found])
        return jnp.moveaxis(table[self._numbers(k)], (0, 1), (2, 3))


class Corner(NamedTuple):
    """A point of D: w = a - b, the points of the unit shapes it comes from."""

    w: Vector
    a: Vector
    b: Vector


class Search(NamedTuple):
    """State of searches. triangle: corners (3, searches, lanes). n: best direction so far, h: support function there. done: converged."""

    triangle: Corner
    n: Vector
    h: Any
    done: Any
    iteration: Any


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def _corner(a: Body, b: Body, n: Vector) -> Corner:
    """The corner of D farthest along n."""
    ua, ub = support(a, n), support(b, neg3(n))
    return Corner(_difference(a, b, ua, ub), ua, ub)


@stage
def _difference(a: Body, b: Body, ua: Vector, ub: Vector) -> Vector:
    return vsub(vsub(world_offset(a, ua), world_offset(b, ub)), vsub(b.pos, a.pos))


# ---- projection on a triangle ------------------------------------------------------------------------------------------------


def _on_edge(x, p, q):
    """Weight of q at the point of the segment p q nearest to x."""
    e = vsub(q, p)
    length = dot(e, e)
    return jnp.clip(dot(vsub(x, p), e) / jnp.where(length > 0, length, 1.0), 0.0, 1.0)


def nearest_on_triangle(x: Vector, p: tuple[Vector, Vector, Vector]):
    """Distance (m) of x from a triangle."""
    square = weights_on_triangle(x, p)[1]
    return jnp.sqrt(jnp.where(square > 0, square, 0.0))


@stage
def weights_on_triangle(x: Vector, p: tuple[Vector, Vector, Vector]) -> tuple[tuple, Any]:
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


# ---- search ------------------------------------------------------------------------------------------------------------------


def _features(a: Body, b: Body, triangle: Corner, smooth: tuple[bool, bool], n: Vector, x: Vector) -> Features:
    """Features of the triangle's corners, at the point nearest to x of the triangle with the curved parts as they are along n."""
    ua = [flat_point(a, u, smooth[0]) for u in _corners(triangle.a)]
    ub = [flat_point(b, u, smooth[1]) for u in _corners(triangle.b)]
    one = jnp.ones_like(n[0])
    pa, pb = witness_points(a, b, Features(tuple(ua), tuple(ub), (one, one, one), smooth), n)
    weights, _ = weights_on_triangle(x, tuple(vsub(p, q) for p, q in zip(pa, pb, strict=True)))
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


def _choose(triangle: Corner, new: Corner, x: Vector) -> Corner:
    """The triangle, of the three old and the new corner, nearest to x."""

    old = _corners(triangle.w)
    four = [[jnp.stack([n if i == j + 1 else o for i in range(4)]) for o, n in zip(old[j], new.w, strict=True)] for j in range(3)]
    k = _least(weights_on_triangle(x, tuple(tuple(v) for v in four))[1])
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


def _search(a: Body, b: Body, n: Vector, size, curved) -> Search:
    """Searches from the directions n (searches, lanes). curved: see `Pairs.hypotheses`."""
    tolerance = _tolerance(size)
    first = _corner(a, b, n)
    triangle = jax.tree.map(lambda x: jnp.stack([x, x, x]), first)
    h = dot(n, first.w)
    done = jnp.zeros(h.shape, bool)

    def active(s: Search):
        return jnp.any(~s.done) & (s.iteration < _MOST)

    def tried(s: Search, x, n, converged):
        """The direction n, and its corner in the triangle nearest to x. Searches that have ended stand still."""
        corner = _corner(a, b, n)
        h = dot(n, corner.w)
        better = (h < s.h) & ~s.done
        triangle = jax.tree.map(lambda new, old: jnp.where(s.done, old, new), _choose(s.triangle, corner, x), s.triangle)
        best = tuple(jnp.where(better, p, q) for p, q in zip(n, s.n, strict=True))
        return Search(triangle, best, jnp.where(better, h, s.h), s.done | converged(corner, s.h), s.iteration)

    def body(s: Search):
        x = _target(s.n, s.h, size)
        corners = _corners(s.triangle.w)
        weights, _ = weights_on_triangle(x, corners)
        p = _mix(weights, corners)
        v = vsub(x, p)
        direction = unit(v)
        direction = tuple(jnp.where(dot(v, v) > 0, d, m) for d, m in zip(direction, s.n, strict=True))

        def projected(corner, before):  # no corner is farther than the triangle, and the direction is no better than before
            h = dot(direction, corner.w)
            return (h - dot(direction, p) <= tolerance) & (jnp.abs(h - before) <= tolerance)

        s = tried(s, x, direction, projected)
        if a.curved() or b.curved():
            smooth = tuple(curved[s.iteration % len(curved)])
            x = _target(s.n, s.h, size)
            d, sound = newton_step(a, b, _features(a, b, s.triangle, smooth, s.n, x), s.n, size)
            d = tuple(jnp.where(sound, y, z) for y, z in zip(d, s.n, strict=True))
            s = tried(s, x, d, lambda corner, before: jnp.zeros(before.shape, bool))
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


def _candidates(a: Body, b: Body) -> tuple[Vector, Any]:
    """Directions (candidates, ...) among which starts are chosen, and h there: a grid, the axes, their products, the line between the
    centres, normals of faces."""
    shape, dtype = a.pos[0].shape, a.pos[0].dtype
    own, other, line = axes(a), axes(b), vsub(b.pos, a.pos)
    special = [*own, *other, unit(line), *[unit(cross(p, q)) for p in own for q in other]]
    grid = [jnp.broadcast_to(jnp.asarray(g, dtype).reshape(-1, *[1] * len(shape)), (len(g), *shape)) for g in _grid().T]
    n = tuple(jnp.concatenate([g, jnp.stack([s[k] for s in special]), -jnp.stack([s[k] for s in special])]) for k, g in enumerate(grid))
    n = unit((*n[:2], jnp.where(dot(n, n) > 0.5, n[2], 1.0)))
    h = support_function(a, n) + support_function(b, neg3(n)) - dot(n, line)
    for body, other, facing in ((a, b, 1.0), (b, a, -1.0)):
        if body.table is not None:
            m, height = normals(body)
            face = height + support_function(other, neg3(m)) - facing * dot(m, line)
            # meshes without size have no normals
            n, h = _joined(n, scale(m, facing)), jnp.concatenate([h, jnp.where(dot(m, m) > 0.5, face, jnp.inf)])
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


# ---- contact -----------------------------------------------------------------------------------------------------------------


def _settled(a: Body, b: Body, n: Vector, triangle: Corner, size, hypotheses) -> tuple[Vector, Features, Any]:
    """The direction to rounding, its features, which are those of the hypothesis about the curved parts that has the largest gap, and h."""
    slack = 100 * jnp.finfo(size.dtype).eps * size
    h0 = dot(n, _corner(a, b, n).w)

    def features(m, smooth):
        return _features(a, b, triangle, smooth, m, _target(m, h0, size))

    def step(k, state):
        (m, rated), best = state
        smooth = tuple(hypotheses[k // _STEPS])
        fresh = k % _STEPS == 0
        m = tuple(jnp.where(fresh, x, y) for x, y in zip(n, m, strict=True))
        d, sound = newton_step(a, b, features(m, smooth), m, size)
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
    return m, features(m, smooth), dot(m, _corner(a, b, m).w)


def _found(pairs: Pairs, near, n: Vector) -> tuple[Vector, Features, Any]:
    """Directions of the largest gap, features and h of the pairs that are near, (m, lanes) each. n: directions of the others.

    Where bodies are apart, any one search ends at the nearest points. Where they overlap, several searches begin at different starts."""
    zero, no = jnp.zeros_like(n[0]), jnp.zeros_like(near)
    corners = ((zero,) * 3,) * 3
    default = (n, Features(corners, corners, (zero + 1.0, zero, zero), (no, no)), zero)
    return (_found_in_turn if in_one_environment() else _found_in_passes)(pairs, near, default)


def _found_in_turn(pairs: Pairs, near, found):
    """As `_found`, one pair after the other. So the program of one environment has few searches. found: of pairs that are not near."""

    def turn(state):
        todo, found = state
        k = jnp.argmax(todo, axis=0)[None]
        a, b = pairs.at(k)
        size = span(a, b)
        n, triangle = _deepest(a, b, size, pairs.hypotheses(k, curved=True))
        settled = _settled(a, b, n, triangle, size, pairs.hypotheses(k))
        here = todo & (k == np.arange(len(todo))[:, None])
        return todo & ~here, jax.tree.map(lambda x, old: jnp.where(here, x, old), settled, found)

    return jax.lax.while_loop(lambda state: state[0].any(), turn, (near, found))[1]


def _deepest(a: Body, b: Body, size, curved) -> tuple[Vector, Corner]:
    """The best direction of all searches of one pair, and its triangle. The first turn begins between the centres. If it does not find
    that the bodies are apart, the turns after it begin at the starts, a few at a time. curved: see `Pairs.hypotheses`."""
    between = _between(a, b)
    unknown = jnp.full(size.shape, jnp.inf, size.dtype)
    corners = (jnp.stack([unknown] * 3),) * 3
    unset = jnp.zeros((_STARTS, *size.shape[1:]), size.dtype)

    def turn(state):
        i, _, starts, rated, best = state
        starts = jax.lax.cond(i == 1, lambda: tuple(x.reshape(unset.shape) for x in _starts(a, b)), lambda: starts)
        first = jnp.maximum(i - 1, 0) * _AT_ONCE
        some = tuple(jax.lax.dynamic_slice_in_dim(x, first, _AT_ONCE) for x in starts)
        s = _search(a, b, tuple(jnp.where(i == 0, x, y) for x, y in zip(between, some, strict=True)), size, curved)
        h, slot = _best(s, size)
        n, triangle = jax.tree.map(lambda x: _slot(x, slot), (s.n, s.triangle))
        better = (h < rated) | (i == 1)
        rated, best = jax.tree.map(lambda x, y: jnp.where(better, x, y), (h, (n, triangle)), (rated, best))
        return i + 1, (i == 0) & (s.done & (s.h < 0)).all(), starts, rated, best

    def unclear(state):
        return ~state[1] & (state[0] <= _STARTS // _AT_ONCE)

    state = jnp.zeros((), jnp.int32), jnp.zeros((), bool), (unset,) * 3, unknown, ((unknown,) * 3, Corner(corners, corners, corners))
    return jax.lax.while_loop(unclear, turn, state)[-1]


def _best(s: Search, size) -> tuple[Any, Any]:
    """Of searches, the least h and its slot (1, lanes). Those that have not ended are a little worse."""
    rated = s.h - jnp.where(s.done, 10 * _tolerance(size), 0.0)
    return rated.min(0)[None], jnp.argmin(rated, axis=0)[None]


def _found_in_passes(pairs: Pairs, near, found):
    """As `_found`, in passes of a few pairs of each lane, until all of them are found. found: of pairs that are not near.

    A pass begins as many searches for pairs that are new. Those that turn out to overlap get a pass of their own, all searches from
    different starts. What is far costs nothing, and what overlaps in one lane does not keep the others from going on."""
    m = len(near)
    new, overlaps = 1, 2
    turns = np.arange(_STARTS)[:, None] % min(m, _STARTS)

    def body(state):
        todo, found = state
        fresh = (todo == new).any(0)
        _, several = jax.lax.top_k((todo == new).T.astype(jnp.float32), min(m, _STARTS))
        deep = jnp.argmax(todo == overlaps, axis=0)
        k = jnp.where(fresh, several.T[turns[:, 0]], deep)
        a, b = pairs.at(k)
        size = span(a, b)
        n = _between(a, b)

        def many():
            starts = _starts(*pairs.at(deep[None]))
            return tuple(jnp.where(fresh, x, y.reshape(x.shape)) for x, y in zip(n, starts, strict=True))

        n = jax.lax.cond(((todo == overlaps).any(0) & ~fresh).any(), many, lambda: n)
        s = _search(a, b, n, size, pairs.hypotheses(k, curved=True))
        best = _best(s, size)[1]
        n, triangle = jax.tree.map(lambda x: jnp.where(fresh, x, _slot(x, best)), (s.n, s.triangle))
        settled = _settled(a, b, n, triangle, size, pairs.hypotheses(k))
        own = k[:, None] == np.arange(m)[:, None]
        here, slot = own.any(0) & (todo == jnp.where(fresh, new, overlaps)), jnp.argmax(own, axis=0)
        found = jax.tree.map(lambda x, old: jnp.where(here, _slot(jnp.broadcast_to(x, k.shape), slot), old), settled, found)
        unclear = fresh & ~_slot(s.done & (s.h < 0), slot)
        return jnp.where(here, jnp.where(unclear, overlaps, 0), todo), found

    todo = jnp.where(near, overlaps if m == 1 else new, 0)
    return jax.lax.while_loop(lambda state: (state[0] > 0).any(), body, (todo, found))[1]


def _slot(x, k):
    """Of (..., slots, lanes) the slots k (m, lanes)."""
    return jnp.take_along_axis(x, k.reshape(*[1] * (x.ndim - 2), *k.shape), x.ndim - 2)


@stage
def _between(a: Body, b: Body) -> Vector:
    """Unit vectors from centre to centre."""
    n = unit(vsub(b.pos, a.pos))
    return (*n[:2], jnp.where(dot(n, n) > 0.5, n[2], 1.0))


def _touch(a: Body, b: Body, n: Vector, f: Features, h, size) -> tuple[Any, Vector, Vector, Vector]:
    """Signed distance of the cores, the touching points of A and B relative to the centre of A, and n, with their derivatives at the
    direction n that the features fix. h: the support function there."""
    stop = jax.lax.stop_gradient
    still = lambda tree: jax.tree.map(lambda x: x - stop(x), tree)  # noqa: E731  # value 0
    pa, pb = witness_points(a, b, f, n)
    gap = dot(n, vsub(_mix(f.weights, pb), _mix(f.weights, pa)))
    distance = still(gap) - h
    eq = linear_equations(a, b, f, n, size)
    alpha, beta = still(solve_2x2(stop(eq.matrix), eq.right, size))
    t = stop(eq.t)
    n = unit(vadd(n, vadd(scale(t[0], alpha), scale(t[1], beta))))
    pa, pb = witness_points(a, b, f, n)
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
    x, y = solve_2x2(matrix, (jnp.where(one, dot(t1, gap), 0.0), jnp.where(two, dot(t2, gap), 0.0)), size)
    return jnp.where(swapped, 0.0, x), jnp.where(swapped, x, y)


def convex(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape, which=None, near=None) -> ContactPoint:
    """One contact of each of any pairs of sphere, capsule, ellipsoid, cylinder, box, mesh: where they are nearest, or, where they overlap,
    what the least translation that separates them would part.

    kinds: of each pair (components are then (pairs, lanes)), or of all (one). Of a side all or none are meshes, whose hulls, as many as
    kinds, are `data`; or prisms of a height field, with the kind "prism". which (m, lanes): of these pairs only. near: what it gives is
    right for these, the others have no contact; None: for all."""
    (ca, ra), (cb, rb) = cores(kinds, a, b)
    shape = ra.shape
    if len(kinds) == 1:
        ca, cb, ra, rb = (_flat_lanes(x) for x in (ca, cb, ra, rb))
    pairs = Pairs(kinds, ca.without_derivatives(), cb.without_derivatives(), which)
    if which is not None:
        ca, cb = (dataclasses.replace(x, table=None).at(which) for x in (ca, cb))
        ra, rb = (jnp.take_along_axis(r, which, 0) for r in (ra, rb))
    near = jnp.ones(ra.shape, bool) if near is None else near.reshape(ra.shape)
    still = [body.without_derivatives() for body in (ca, cb)]
    found = _found(pairs, near, each_row(_between, *(body.rows() for body in still)))
    boxes = [bounding_boxes(body).rows() for body in still]
    contact = each_row(_contact, near, ca.rows(), cb.rows(), ra, rb, boxes, jax.tree.map(jax.lax.stop_gradient, found))
    return ContactPoint(*(jax.tree.map(lambda x: x.reshape(shape), contact) if len(kinds) == 1 else contact))


def _contact(near, a: Body, b: Body, ra, rb, boxes: list[Body], found) -> tuple[Any, Vector, Vector]:
    """Distance, midpoint and normal of pairs. boxes: of both. found: of their cores, see `_found`. In the program of one environment a
    pair that is not near is not evaluated."""

    def touching():
        distance, pa, pb, n = _touch(a, b, *found, span(*boxes))
        middle = vadd(scale(vadd(pa, pb), 0.5), scale(n, 0.5 * (ra - rb)))
        return jnp.where(near, distance - ra - rb, FAR), vadd(a.pos, middle), n

    def apart():
        return jnp.full_like(ra, FAR), a.pos, found[0]

    return jax.lax.cond(near.any(), touching, apart) if in_one_environment() else touching()


def _flat_lanes(tree):
    """Components of any shape as one pair of many lanes."""
    return jax.tree.map(lambda x: x.reshape(1, -1) if isinstance(x, jax.Array) else x, tree)
