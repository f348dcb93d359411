"""One step of Newton's method for the direction of least distance of two convex shapes, from the features that are nearest."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.collide.cores import Body, curved_part, neg3, to_unit_shape, unit, world_offset
from xsim.spatial import Vector, cross, dot, scale, stage, vadd, vsub


class Features(NamedTuple):
    """What A and B touch with. a, b: points of the unit shapes of three corners, flat parts only; weights: of the corners at the touching
    point, 0: the corner is no part of it. base is corner 0. smooth: per body, whether its round part is curved (else it is in the
    corners)."""

    a: tuple[Vector, Vector, Vector]
    b: tuple[Vector, Vector, Vector]
    weights: tuple
    smooth: tuple[bool, bool]


def flat_point(body: Body, u: Vector, smooth) -> Vector:
    """The part of a point of the unit shape that stays when the direction changes a little."""
    return tuple(jnp.where(smooth & (k < body.round), 0.0, x) for k, x in enumerate(u)) if body.curved() else u


def curved_point(body: Body, n: Vector, smooth) -> tuple[Vector, Any]:
    """Curved part of the support point of the unit shape along n, and its curvature: (s, t) -> s . (derivative of the point along t), both
    directions in the world. Where n is the axis of a cylinder, the part is held constant."""
    zero = jnp.zeros_like(n[0])
    if not body.curved():
        return (zero, zero, zero), lambda s, t: zero
    smooth = smooth & (body.round > 0)
    m = curved_part(body, to_unit_shape(body, n))
    size = functools.reduce(jnp.maximum, body.half)
    fine = functools.reduce(jnp.maximum, [jnp.abs(x) for x in m]) > 1e-9 * size
    m = tuple(jnp.where(fine, x, jax.lax.stop_gradient(x)) for x in m)
    u = tuple(jnp.where(smooth, x, 0.0) for x in unit(m))
    length = dot(m, u)
    there = fine & smooth & (length > 0)
    inverse = jnp.where(there, 1.0 / jnp.where(there, length, 1.0), 0.0)

    def curvature(s, t):
        s, t = (curved_part(body, to_unit_shape(body, x)) for x in (s, t))
        return (dot(s, t) - dot(u, s) * dot(u, t)) * inverse

    return u, curvature


def tangents(n: Vector) -> tuple[Vector, Vector]:
    """Two unit vectors perpendicular to n and each other (Duff et al. 2017)."""
    s = jnp.where(n[2] >= 0, 1.0, -1.0)
    f = -1.0 / (s + n[2])
    g = n[0] * n[1] * f
    return (1.0 + s * n[0] * n[0] * f, s * g, -s * n[0]), (g, s + n[1] * n[1] * f, -n[1])


@stage
def witness_points(a: Body, b: Body, f: Features, n: Vector) -> tuple[tuple, tuple]:
    """The three corners of A and of B, with the curved parts as they are along n, relative to the centre of A."""
    offset = vsub(b.pos, a.pos)
    ra, rb = curved_point(a, n, f.smooth[0])[0], curved_point(b, neg3(n), f.smooth[1])[0]
    pa = tuple(world_offset(a, vadd(u, ra)) for u in f.a)
    pb = tuple(vadd(world_offset(b, vadd(u, rb)), offset) for u in f.b)
    return pa, pb


class Linear(NamedTuple):
    """The two equations of n at n, in the tangents t: matrix, right side; sound: an isolated best direction."""

    t: tuple[Vector, Vector]
    matrix: tuple
    right: tuple
    edges: tuple
    present: tuple
    sound: Any


def linear_equations(a: Body, b: Body, f: Features, n: Vector, size) -> Linear:
    """Equations of the direction that features fix, linear about n."""
    stop = jax.lax.stop_gradient
    pa, pb = witness_points(a, b, f, n)
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
    any1, any2 = tangents(stop(n))
    across = vsub(first, scale(unit, dot(first, unit)))
    square = dot(across, across)
    has[0] = has[0] & (square > tiny * tiny)
    t1 = scale(across, 1.0 / jnp.sqrt(jnp.where(has[0], square, 1.0)))
    t1 = tuple(jnp.where(has[0], x, y) for x, y in zip(t1, any1, strict=True))
    t2 = tuple(jnp.where(has[0], x, y) for x, y in zip(cross(unit, t1), any2, strict=True))
    aside, length = stop(dot(second, t2)), jnp.maximum(lengths[1], tiny)
    has[1] = has[1] & has[0] & (jnp.abs(aside) > 1e-6 * length)
    gap = dot(n, gaps[0])
    ca, cb = curved_point(a, n, f.smooth[0])[1], curved_point(b, neg3(n), f.smooth[1])[1]
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


def solve_2x2(matrix, right, size):
    """2 by 2 system, finite where the matrix is singular."""
    (p, q), (r, s) = matrix
    row = [jnp.sqrt(p * p + q * q), jnp.sqrt(r * r + s * s)]
    det = p * s - q * r
    floor = 1e-10 * row[0] * row[1] + 1e-30 * size * size
    det = jnp.where(jnp.abs(det) > floor, det, jnp.where(det < 0, -floor, floor))
    return (s * right[0] - q * right[1]) / det, (p * right[1] - r * right[0]) / det


@stage
def newton_step(a: Body, b: Body, f: Features, n: Vector, size, limit: float = 0.3) -> tuple[Vector, Any]:
    """One Newton step of the direction, and whether its equations describe a best direction."""
    eq = linear_equations(a, b, f, n, size)
    alpha, beta = solve_2x2(eq.matrix, eq.right, size)
    length = jnp.sqrt(alpha * alpha + beta * beta)
    short = jnp.minimum(1.0, limit / jnp.where(length > 0, length, 1.0))
    step = vadd(scale(eq.t[0], alpha * short), scale(eq.t[1], beta * short))
    return unit(vadd(n, step)), eq.sound
