"""Rows of constraints between frames of two bodies, by kind.

A row is one number g of the poses that shall be zero. Its rate is a wrench F times the velocity of the second body relative to the first
(a relative motion that both share changes nothing), g' = F . (V_b - V_a), so F gives the row of J; g'' = J a + (what velocities alone
make of it). With d from the first origin to the second, e an axis carried by body i, u carried by a, w by b:

    slide     g = e . d - c       F: force e through the other body's origin   g'' has 2 (w_i x e) . d' + (w_i' x e + w_i x (w_i x e)) . d
    dot       g = u . w           F: moment w x u
    turn      g = atan2(y, x), the angle of b's x axis e about a's z axis, x = e . a_x, y = e . a_y
              F: moment (x e x a_y - y e x a_x) / (x^2 + y^2)
    twist     g = 2 atan2(z, w) of the quaternion (w, x, y, z) of b in a
              F: moment ((w y + z x) / n, (z y - w x) / n, 1) in a's axes, n = w^2 + z^2
    distance  g = |d| - c         F: force d/|d| along the line                g'' has (|d'|^2 - (n . d')^2) / |d|
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.tree.frames import MIN_SQUARE, End, angle_about, safe_angle
from xsim.registry import LOOP_ROWS
from xsim.spatial import (
    ZERO3,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    mul,
    normalize,
    quat_conj,
    quat_mul,
    safe_norm,
    scale,
    sub,
    total,
    vadd,
    vsub,
)


class PointMotion(NamedTuple):
    """Velocity and acceleration of a point, angular velocity and acceleration of its body."""

    velocity: tuple
    acceleration: tuple
    spin: tuple
    spin_rate: tuple


class LoopRow(NamedTuple):
    """A kind of row, an entry of `xsim.registry.LOOP_ROWS`. A row of this kind is (kind, i, j, index of its length or None).

    gap(a, b, i, j, length) -> g, m or 1. wrench(a, b, i, j) -> (force, its moment about the first body's reference point, and about the
    second's). rate(a, b, i, j, motion_a, motion_b) -> the second derivative without generalized acceleration. a, b: `End`s in the world;
    motion: `PointMotion` of their origins at zero generalized acceleration."""

    gap: Callable
    wrench: Callable
    rate: Callable


def second_rate(u, w, motion_a: PointMotion, motion_b: PointMotion):
    """Second derivative of u . w without generalized acceleration, u carried by the first body, w by the second."""
    turning = vadd(cross(cross(motion_b.spin, w), u), cross(w, cross(motion_a.spin, u)))
    return add(dot(vsub(motion_b.spin_rate, motion_a.spin_rate), cross(w, u)), dot(vsub(motion_b.spin, motion_a.spin), turning))


# ---- slide: the second origin in a plane ---------------------------------------------------------------------------------------


def _slide_gap(a: End, b: End, i, j, length):
    return sub(dot((a, b)[j].axis(i), vsub(b.world, a.world)), length)


def _slide_wrench(a: End, b: End, i, j):
    d, e = vsub(b.world, a.world), (a, b)[j].axis(i)
    if j == 0:
        return e, cross(vadd(a.x, d), e), cross(b.x, e)
    return e, cross(a.x, e), cross(vsub(b.x, d), e)


def _slide_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    d, rate, second = _relative(a, b, motion_a, motion_b)
    e, carrier = (a, b)[j].axis(i), (motion_a, motion_b)[j]
    turning = cross(carrier.spin, e)
    bending = vadd(cross(carrier.spin_rate, e), cross(carrier.spin, turning))
    return total([dot(e, second), mul(2.0, dot(turning, rate)), dot(bending, d)])


def _relative(a: End, b: End, motion_a: PointMotion, motion_b: PointMotion) -> tuple:
    """Position, velocity and acceleration of the second origin relative to the first."""
    return vsub(b.world, a.world), vsub(motion_b.velocity, motion_a.velocity), vsub(motion_b.acceleration, motion_a.acceleration)


# ---- dot: two axes perpendicular -----------------------------------------------------------------------------------------------


def _dot_gap(a: End, b: End, i, j, length):
    return dot(a.axis(i), b.axis(j))


def _dot_wrench(a: End, b: End, i, j):
    moment = cross(b.axis(j), a.axis(i))
    return ZERO3, moment, moment


def _dot_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    return second_rate(a.axis(i), b.axis(j), motion_a, motion_b)


# ---- turn: an angle about the first z axis -------------------------------------------------------------------------------------


def _length2(x, y):
    """x^2 + y^2, 1 where that is nothing."""
    square = add(mul(x, x), mul(y, y))
    return jnp.where(square > MIN_SQUARE, square, 1.0)


def _turn_gap(a: End, b: End, i, j, length):
    return angle_about(a, b)


def _turn_wrench(a: End, b: End, i, j):
    x, y = dot(b.axis(0), a.axis(0)), dot(b.axis(0), a.axis(1))
    moment = vsub(scale(cross(b.axis(0), a.axis(1)), x), scale(cross(b.axis(0), a.axis(0)), y))
    moment = scale(moment, 1.0 / _length2(x, y))
    return ZERO3, moment, moment


def _turn_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    e, u, v = b.axis(0), a.axis(0), a.axis(1)
    x, y, spin = dot(e, u), dot(e, v), vsub(motion_b.spin, motion_a.spin)
    dx, dy = dot(spin, cross(e, u)), dot(spin, cross(e, v))
    ddx, ddy = (second_rate(axis, e, motion_a, motion_b) for axis in (u, v))
    once = 1.0 / _length2(x, y)
    growing = mul(mul(mul(2.0, once), add(mul(x, dx), mul(y, dy))), sub(mul(x, dy), mul(y, dx)))
    return mul(once, sub(sub(mul(x, ddy), mul(y, ddx)), growing))


# ---- twist: an angle of the relative quaternion about z ------------------------------------------------------------------------


def _relative_quat(a: End, b: End):
    return quat_mul(quat_conj(a.quat), b.quat)


def _twist_gap(a: End, b: End, i, j, length):
    w, _, _, z = _relative_quat(a, b)
    positive = jnp.where(w < 0, -1.0, 1.0)  # q and -q are the same rotation
    return mul(2.0, safe_angle(mul(z, positive), mul(w, positive)))


def _twist_row(q):
    """The row over the relative angular velocity, in the first frame's axes."""
    w, x, y, z = q
    once = 1.0 / _length2(w, z)
    return mul(once, add(mul(w, y), mul(z, x))), mul(once, sub(mul(z, y), mul(w, x))), jnp.ones_like(w)


def _twist_wrench(a: End, b: End, i, j):
    moment = apply(a.R, _twist_row(_relative_quat(a, b)))
    return ZERO3, moment, moment


def _twist_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    q, relative = _relative_quat(a, b), vsub(motion_b.spin, motion_a.spin)
    spin = apply_inverse(a.R, relative)
    spin_rate = apply_inverse(a.R, vsub(vsub(motion_b.spin_rate, motion_a.spin_rate), cross(motion_a.spin, relative)))
    both = jnp.broadcast_arrays(*q, *scale(quat_mul((0.0, *spin), q), 0.5))
    row, row_rate = jax.jvp(_twist_row, (tuple(both[:4]),), (tuple(both[4:]),))
    return add(dot(row, spin_rate), dot(row_rate, spin))


# ---- distance of the origins ---------------------------------------------------------------------------------------------------


def _distance_gap(a: End, b: End, i, j, length):
    return sub(safe_norm(vsub(b.world, a.world)), length)


def _distance_wrench(a: End, b: End, i, j):
    n = normalize(vsub(b.world, a.world))
    return n, cross(a.x, n), cross(b.x, n)


def _distance_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    d, rate, second = _relative(a, b, motion_a, motion_b)
    n, length = normalize(d), safe_norm(d)
    along = dot(n, rate)
    across = sub(dot(rate, rate), mul(along, along))
    apart = length > 0
    return add(dot(n, second), jnp.where(apart, across / jnp.where(apart, length, 1.0), 0.0))


LOOP_ROWS.register("slide", LoopRow(_slide_gap, _slide_wrench, _slide_rate))
LOOP_ROWS.register("dot", LoopRow(_dot_gap, _dot_wrench, _dot_rate))
LOOP_ROWS.register("turn", LoopRow(_turn_gap, _turn_wrench, _turn_rate))
LOOP_ROWS.register("twist", LoopRow(_twist_gap, _twist_wrench, _twist_rate))
LOOP_ROWS.register("distance", LoopRow(_distance_gap, _distance_wrench, _distance_rate))
