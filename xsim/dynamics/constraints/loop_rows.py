"""The rows of constraints between frames of two bodies, by kind.

A row is a constraint g = 0, where g is a function of the poses of both frames. Its rate is g' = F . (V_b - V_a), a wrench F times the
relative velocity of the bodies, so F gives the row of J. Its second derivative is g'' = J a + (terms that depend on velocities alone). In
the table, d is the vector from the first origin to the second, e an axis fixed to body i, u an axis fixed to a, w an axis fixed to b:

    slide     g = e . d - c       F: force e through the other body's origin   g'' has 2 (w_i x e) . d' + (w_i' x e + w_i x (w_i x e)) . d
    dot       g = u . w           F: moment w x u
    angle     g = atan2(y, x), the angle of b's x axis e about a's z axis, x = e . a_x, y = e . a_y
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
    """Velocity and acceleration of a point, and angular velocity and acceleration of its body, world axes."""

    velocity: tuple
    acceleration: tuple
    spin: tuple
    spin_rate: tuple


class LoopRow(NamedTuple):
    """A kind of row, an entry of `xsim.registry.LOOP_ROWS`. A row of this kind is (kind, i, j, index of its length or None).

    error: function (a, b, i, j, length) -> g, m or dimensionless.
    wrench: function (a, b, i, j) -> (force, its moment about the first body's reference point, its moment about the second's).
    rate: function (a, b, i, j, motion_a, motion_b) -> g'' at zero generalized acceleration.

    a, b: the two `End`s in the world. motion_a, motion_b: `PointMotion` of their origins at zero generalized acceleration.
    """

    error: Callable
    wrench: Callable
    rate: Callable


def second_rate(u, w, motion_a: PointMotion, motion_b: PointMotion):
    """The second derivative of u . w at zero generalized acceleration. u is fixed to the first body, w to the second."""
    axis_rates = vadd(cross(cross(motion_b.spin, w), u), cross(w, cross(motion_a.spin, u)))
    return add(dot(vsub(motion_b.spin_rate, motion_a.spin_rate), cross(w, u)), dot(vsub(motion_b.spin, motion_a.spin), axis_rates))


# ---- slide: the second origin in a plane ---------------------------------------------------------------------------------------


def _slide_error(a: End, b: End, i, j, length):
    return sub(dot((a, b)[j].axis(i), vsub(b.world, a.world)), length)


def _slide_wrench(a: End, b: End, i, j):
    d, e = vsub(b.world, a.world), (a, b)[j].axis(i)
    if j == 0:
        return e, cross(vadd(a.x, d), e), cross(b.x, e)
    return e, cross(a.x, e), cross(vsub(b.x, d), e)


def _slide_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    d, rate, second = _relative(a, b, motion_a, motion_b)
    e, motion = (a, b)[j].axis(i), (motion_a, motion_b)[j]
    e_rate = cross(motion.spin, e)
    e_second = vadd(cross(motion.spin_rate, e), cross(motion.spin, e_rate))
    return total([dot(e, second), mul(2.0, dot(e_rate, rate)), dot(e_second, d)])


def _relative(a: End, b: End, motion_a: PointMotion, motion_b: PointMotion) -> tuple:
    """The position, velocity and acceleration of the second origin relative to the first, world axes."""
    return vsub(b.world, a.world), vsub(motion_b.velocity, motion_a.velocity), vsub(motion_b.acceleration, motion_a.acceleration)


# ---- dot: two axes perpendicular -----------------------------------------------------------------------------------------------


def _dot_error(a: End, b: End, i, j, length):
    return dot(a.axis(i), b.axis(j))


def _dot_wrench(a: End, b: End, i, j):
    moment = cross(b.axis(j), a.axis(i))
    return ZERO3, moment, moment


def _dot_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    return second_rate(a.axis(i), b.axis(j), motion_a, motion_b)


# ---- angle: an angle about the first z axis -------------------------------------------------------------------------------------


def _length2(x, y):
    """x^2 + y^2, or 1 if this is zero."""
    square = add(mul(x, x), mul(y, y))
    return jnp.where(square > MIN_SQUARE, square, 1.0)


def _angle_error(a: End, b: End, i, j, length):
    return angle_about(a, b)


def _angle_wrench(a: End, b: End, i, j):
    x, y = dot(b.axis(0), a.axis(0)), dot(b.axis(0), a.axis(1))
    moment = vsub(scale(cross(b.axis(0), a.axis(1)), x), scale(cross(b.axis(0), a.axis(0)), y))
    moment = scale(moment, 1.0 / _length2(x, y))
    return ZERO3, moment, moment


def _angle_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    e, u, v = b.axis(0), a.axis(0), a.axis(1)
    x, y, spin = dot(e, u), dot(e, v), vsub(motion_b.spin, motion_a.spin)
    dx, dy = dot(spin, cross(e, u)), dot(spin, cross(e, v))
    ddx, ddy = (second_rate(axis, e, motion_a, motion_b) for axis in (u, v))
    inverse = 1.0 / _length2(x, y)
    correction = mul(mul(mul(2.0, inverse), add(mul(x, dx), mul(y, dy))), sub(mul(x, dy), mul(y, dx)))
    return mul(inverse, sub(sub(mul(x, ddy), mul(y, ddx)), correction))


# ---- twist: an angle of the relative quaternion about z ------------------------------------------------------------------------


def _relative_quat(a: End, b: End):
    return quat_mul(quat_conj(a.quat), b.quat)


def _twist_error(a: End, b: End, i, j, length):
    w, _, _, z = _relative_quat(a, b)
    positive = jnp.where(w < 0, -1.0, 1.0)  # q and -q are the same rotation
    return mul(2.0, safe_angle(mul(z, positive), mul(w, positive)))


def _twist_row(q):
    """The derivative of the twist with respect to the relative angular velocity, in the first frame's axes."""
    w, x, y, z = q
    inverse = 1.0 / _length2(w, z)
    return mul(inverse, add(mul(w, y), mul(z, x))), mul(inverse, sub(mul(z, y), mul(w, x))), jnp.ones_like(w)


def _twist_wrench(a: End, b: End, i, j):
    moment = apply(a.R, _twist_row(_relative_quat(a, b)))
    return ZERO3, moment, moment


def _twist_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    q, relative = _relative_quat(a, b), vsub(motion_b.spin, motion_a.spin)
    spin = apply_inverse(a.R, relative)
    spin_rate = apply_inverse(a.R, vsub(vsub(motion_b.spin_rate, motion_a.spin_rate), cross(motion_a.spin, relative)))
    q_and_rate = jnp.broadcast_arrays(*q, *scale(quat_mul((0.0, *spin), q), 0.5))
    row, row_rate = jax.jvp(_twist_row, (tuple(q_and_rate[:4]),), (tuple(q_and_rate[4:]),))
    return add(dot(row, spin_rate), dot(row_rate, spin))


# ---- distance of the origins ---------------------------------------------------------------------------------------------------


def _distance_error(a: End, b: End, i, j, length):
    return sub(safe_norm(vsub(b.world, a.world)), length)


def _distance_wrench(a: End, b: End, i, j):
    n = normalize(vsub(b.world, a.world))
    return n, cross(a.x, n), cross(b.x, n)


def _distance_rate(a: End, b: End, i, j, motion_a: PointMotion, motion_b: PointMotion):
    d, rate, second = _relative(a, b, motion_a, motion_b)
    n, length = normalize(d), safe_norm(d)
    along = dot(n, rate)
    across = sub(dot(rate, rate), mul(along, along))
    positive = length > 0
    return add(dot(n, second), jnp.where(positive, across / jnp.where(positive, length, 1.0), 0.0))


LOOP_ROWS.register("slide", LoopRow(_slide_error, _slide_wrench, _slide_rate))
LOOP_ROWS.register("dot", LoopRow(_dot_error, _dot_wrench, _dot_rate))
LOOP_ROWS.register("angle", LoopRow(_angle_error, _angle_wrench, _angle_rate))
LOOP_ROWS.register("twist", LoopRow(_twist_error, _twist_wrench, _twist_rate))
LOOP_ROWS.register("distance", LoopRow(_distance_error, _distance_wrench, _distance_rate))
