"""Constraints between frames of two bodies: joints that close loops, distances, points on lines and planes.

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

import jax
import jax.numpy as jnp

from xsim.dynamics.tree.frames import NOTHING, End, angle_about, body_link, ends_of, row_coefficients, safe_angle
from xsim.dynamics.tree.kinematics import Frames, accelerations, point_acceleration, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import (
    ZERO3,
    Force,
    add,
    apply,
    apply_inverse,
    cross,
    dot,
    matrix,
    mul,
    neg,
    normalize,
    quat_conj,
    quat_mul,
    safe_norm,
    scale,
    stage,
    sub,
    total,
    vadd,
    vsub,
)


def active(system: System) -> bool:
    """Whether the model has rows that a step does not keep by itself, and they act."""
    return bool(system.topology.constraints or system.topology.motions) and "holonomic" in system.topology.rows


def _links(system: System, info) -> tuple[int, int]:
    first, second = (body_link(system, b) for b in info.bodies)
    return first, second


@stage
def _slid(end: End, s) -> End:
    shift = scale(end.axis(2), s)
    return end._replace(x=vadd(end.x, shift), world=vadd(end.world, shift))


@stage
def _turned(end: End, s) -> End:
    half = mul(s, 0.5)
    quat = quat_mul(end.quat, (jnp.cos(half), 0.0, 0.0, jnp.sin(half)))
    return end._replace(R=matrix(quat), quat=quat)


@stage
def _along(a: End, b: End):
    return dot(a.axis(2), vsub(b.world, a.world))


def loop_ends(system: System, frame: Frames) -> list[tuple[End, ...]]:
    """Ends of the constraints, the first moved along or about its z axis where it is driven: to where it shall be, or with a drive that
    prescribes no position to where the second is."""
    out, infos = [], system.topology.constraints
    for info, (a, b) in zip(infos, ends_of(system, frame, infos, system.constraint.frames), strict=True):
        if info.driven:
            target = system.functions.targets[info.target][0]
            move, where = (_slid, _along) if info.driven == "slide" else (_turned, angle_about)
            a = move(a, where(a, b) if target is None else target)
        out.append((a, b))
    return out


def _length2(x, y):
    """x^2 + y^2, 1 where that is nothing."""
    square = add(mul(x, x), mul(y, y))
    return jnp.where(square > NOTHING, square, 1.0)


def _twisting(q):
    """Row of "twist" over the relative angular velocity, in the first frame's axes."""
    w, x, y, z = q
    once = 1.0 / _length2(w, z)
    return mul(once, add(mul(w, y), mul(z, x))), mul(once, sub(mul(z, y), mul(w, x))), jnp.ones_like(w)


def _second(u, w, moving_a, moving_b):
    """Second derivative of u . w without generalized acceleration, u carried by the first body, w by the second."""
    (_, _, wa, alpha_a), (_, _, wb, alpha_b) = moving_a, moving_b
    turning = vadd(cross(cross(wb, w), u), cross(w, cross(wa, u)))
    return add(dot(vsub(alpha_b, alpha_a), cross(w, u)), dot(vsub(wb, wa), turning))


@stage
def _gaps(rows, a: End, b: End, values) -> list:
    d = vsub(b.world, a.world)
    out = []
    for (kind, i, j, _), c in zip(rows, values, strict=True):
        if kind == "dot":
            out.append(dot(a.axis(i), b.axis(j)))
        elif kind == "turn":
            out.append(angle_about(a, b))
        elif kind == "twist":
            w, _, _, z = quat_mul(quat_conj(a.quat), b.quat)
            positive = jnp.where(w < 0, -1.0, 1.0)  # q and -q are the same turn
            out.append(mul(2.0, safe_angle(mul(z, positive), mul(w, positive))))
        else:
            out.append(sub(safe_norm(d) if kind == "distance" else dot((a, b)[j].axis(i), d), c))
    return out


@stage
def _wrenches(rows, a: End, b: End) -> list:
    """Per row: the force, its moment about the first body's reference point, and about the second's."""
    d = vsub(b.world, a.world)
    out = []
    for kind, i, j, _ in rows:
        if kind == "dot":
            moment = cross(b.axis(j), a.axis(i))
            out.append((ZERO3, moment, moment))
        elif kind == "turn":
            x, y = dot(b.axis(0), a.axis(0)), dot(b.axis(0), a.axis(1))
            moment = vsub(scale(cross(b.axis(0), a.axis(1)), x), scale(cross(b.axis(0), a.axis(0)), y))
            moment = scale(moment, 1.0 / _length2(x, y))
            out.append((ZERO3, moment, moment))
        elif kind == "twist":
            moment = apply(a.R, _twisting(quat_mul(quat_conj(a.quat), b.quat)))
            out.append((ZERO3, moment, moment))
        elif kind == "distance":
            n = normalize(d)
            out.append((n, cross(a.x, n), cross(b.x, n)))
        elif j == 0:
            e = a.axis(i)
            out.append((e, cross(vadd(a.x, d), e), cross(b.x, e)))
        else:
            e = b.axis(i)
            out.append((e, cross(a.x, e), cross(vsub(b.x, d), e)))
    return out


def loop_rows(system: System, frame: Frames) -> list:
    """Rows of J as [(dof, coefficient), ...]."""
    out = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        out += [row_coefficients(system, frame, info.bodies, wrench) for wrench in _wrenches(info.rows, a, b)]
    return out


def loop_wrenches(system: System, frame: Frames, multipliers: list) -> list[tuple[Force, Force]]:
    """Of every constraint, what it puts on its second body, about the reference point of the first body's tree and of the second's."""
    out, first = [], 0
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        y = multipliers[first : first + len(info.rows)]
        first += len(y)
        out.append(_weighted(_wrenches(info.rows, a, b), y))
    return out


@stage
def _weighted(wrenches, y):
    force, one, two = (tuple(total([mul(w[k][i], x) for w, x in zip(wrenches, y, strict=True)]) for i in range(3)) for k in range(3))
    return Force(one, force), Force(two, force)


def loop_gaps(system: System, frame: Frames) -> list:
    """By how much the rows are violated, m or 1."""
    out: list = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        out += _gaps(info.rows, a, b, [system.constraint.lengths[row[3]] if row[3] is not None else 0.0 for row in info.rows])
    return out


@stage
def _moving(velocity, acceleration, x):
    """Velocity and acceleration of the point at x, and angular velocity and acceleration of its body."""
    return point_velocity(velocity, x), point_acceleration(acceleration, velocity, x), velocity.ang, acceleration.ang


@stage
def _rates(rows, a: End, b: End, moving_a, moving_b) -> list:
    (va, aa, wa, alpha_a), (vb, ab, wb, alpha_b) = moving_a, moving_b
    d, rate, second = vsub(b.world, a.world), vsub(vb, va), vsub(ab, aa)
    out = []
    for kind, i, j, _ in rows:
        if kind == "dot":
            out.append(_second(a.axis(i), b.axis(j), moving_a, moving_b))
        elif kind == "turn":
            e, u, v = b.axis(0), a.axis(0), a.axis(1)
            x, y, spin = dot(e, u), dot(e, v), vsub(wb, wa)
            dx, dy = dot(spin, cross(e, u)), dot(spin, cross(e, v))
            ddx, ddy = (_second(axis, e, moving_a, moving_b) for axis in (u, v))
            once = 1.0 / _length2(x, y)
            growing = mul(mul(mul(2.0, once), add(mul(x, dx), mul(y, dy))), sub(mul(x, dy), mul(y, dx)))
            out.append(mul(once, sub(sub(mul(x, ddy), mul(y, ddx)), growing)))
        elif kind == "twist":
            q = quat_mul(quat_conj(a.quat), b.quat)
            spin = apply_inverse(a.R, vsub(wb, wa))
            bent = apply_inverse(a.R, vsub(vsub(alpha_b, alpha_a), cross(wa, vsub(wb, wa))))
            both = jnp.broadcast_arrays(*q, *scale(quat_mul((0.0, *spin), q), 0.5))
            row, changing = jax.jvp(_twisting, (tuple(both[:4]),), (tuple(both[4:]),))
            out.append(add(dot(row, bent), dot(changing, spin)))
        elif kind == "distance":
            n, length = normalize(d), safe_norm(d)
            along = dot(n, rate)
            across = sub(dot(rate, rate), mul(along, along))
            apart = length > 0
            out.append(add(dot(n, second), jnp.where(apart, across / jnp.where(apart, length, 1.0), 0.0)))
        else:
            e, w, alpha = ((a.axis(i), wa, alpha_a), (b.axis(i), wb, alpha_b))[j]
            turning = cross(w, e)
            bent = vadd(cross(alpha, e), cross(w, turning))
            out.append(total([dot(e, second), mul(2.0, dot(turning, rate)), dot(bent, d)]))
    return out


@stage
def _driven_motion(driven: str, end: End, moving, speed, acceleration):
    """What `_moving` says of an end that is moved along or about its z axis, too."""
    velocity, second, w, alpha = moving
    z = end.axis(2)
    if driven == "slide":
        along = scale(z, speed)
        return vadd(velocity, along), vadd(second, vadd(scale(z, acceleration), scale(cross(w, along), 2.0))), w, alpha
    spin = scale(z, speed)
    return velocity, second, vadd(w, spin), vadd(alpha, vadd(scale(z, acceleration), cross(w, spin)))


@stage
def _drift(rows, driven: str, a: End, b: End, wrenches, speed) -> list:
    """Rate of the rows by the drive of the first end alone."""
    z = scale(a.axis(2), speed)
    return [neg(dot(w[0], z) if driven == "slide" else dot(_moment(w, a), z)) for w in wrenches]


def _moment(wrench, a: End):
    """Moment of a wrench about the first end's origin."""
    return vsub(wrench[1], cross(a.x, wrench[0]))


def loop_drifts(system: System, frame: Frames) -> list:
    """Rate of every row at rest: what is prescribed by time."""
    out: list = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        if info.driven:
            out += _drift(info.rows, info.driven, a, b, _wrenches(info.rows, a, b), system.functions.targets[info.target][1])
        else:
            out += [0.0] * len(info.rows)
    return out


def loop_rates(system: System, frame: Frames, q, v) -> list:
    """(dJ/dt) v of the rows: their second derivative without generalized acceleration."""
    own, velocity = velocities(system, frame, v)
    acceleration = accelerations(system, frame, q, v, None, own, velocity)
    still = (ZERO3, ZERO3, ZERO3, ZERO3)
    out: list = []
    for info, ends in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        moving = [
            still if link < 0 else _moving(velocity[link], acceleration[link], end.x)
            for link, end in zip(_links(system, info), ends, strict=True)
        ]
        if info.driven:
            moving[0] = _driven_motion(info.driven, ends[0], moving[0], *system.functions.targets[info.target][1:])
        out += _rates(info.rows, *ends, *moving)
    return out
