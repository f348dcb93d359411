"""Constraints between frames of two bodies: joints that close kinematic loops, distances, points on lines and planes. `loop_rows` has the
formulas of their rows."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.constraints.loop_rows import PointMotion
from xsim.dynamics.tree.frames import End, angle_about, body_link, ends_of, row_coefficients
from xsim.dynamics.tree.kinematics import Frames, accelerations, point_acceleration, point_velocity, velocities
from xsim.dynamics.tree.system import System
from xsim.registry import LOOP_ROWS
from xsim.spatial import (
    ZERO3,
    Force,
    cross,
    dot,
    matrix,
    mul,
    neg,
    quat_mul,
    scale,
    stage,
    total,
    vadd,
    vsub,
)


def active(system: System) -> bool:
    """Whether the model has constraints between frames or prescribed motions, and holonomic rows are enabled. A time step violates these by
    its integration error."""
    return bool(system.topology.constraints or system.topology.motions) and "holonomic" in system.topology.constraint_kinds


def _links(system: System, info) -> tuple[int, int]:
    first, second = (body_link(system, b) for b in info.bodies)
    return first, second


@stage
def _translated(end: End, s) -> End:
    """The end, translated by s (m) along its z axis."""
    shift = scale(end.axis(2), s)
    return end._replace(x=vadd(end.x, shift), world=vadd(end.world, shift))


@stage
def _rotated(end: End, s) -> End:
    """The end, rotated by s (rad) about its z axis."""
    half = mul(s, 0.5)
    quat = quat_mul(end.quat, (jnp.cos(half), 0.0, 0.0, jnp.sin(half)))
    return end._replace(R=matrix(quat), quat=quat)


@stage
def _displacement(a: End, b: End):
    """The displacement of b from a along the z axis of a (m)."""
    return dot(a.axis(2), vsub(b.world, a.world))


def loop_ends(system: System, frame: Frames) -> list[tuple[End, ...]]:
    """The two ends of each constraint.

    A drive moves the first end along or about its z axis: to the prescribed position, or, if it prescribes no position, to the position
    of the second end."""
    out, infos = [], system.topology.constraints
    for info, (a, b) in zip(infos, ends_of(system, frame, infos, system.constraint.frames), strict=True):
        if info.driven:
            target = system.functions.targets[info.target][0]
            move, position = (_translated, _displacement) if info.driven == "slide" else (_rotated, angle_about)
            a = move(a, position(a, b) if target is None else target)
        out.append((a, b))
    return out


@stage
def _errors(rows, a: End, b: End, lengths) -> list:
    return [LOOP_ROWS[kind].error(a, b, i, j, length) for (kind, i, j, _), length in zip(rows, lengths, strict=True)]


@stage
def _wrenches(rows, a: End, b: End) -> list:
    """For each row: the force, its moment about the first body's reference point, and about the second's."""
    return [LOOP_ROWS[kind].wrench(a, b, i, j) for kind, i, j, _ in rows]


def loop_rows(system: System, frame: Frames) -> list:
    """Rows of J as [(dof, coefficient), ...]."""
    out = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        out += [row_coefficients(system, frame, info.bodies, wrench) for wrench in _wrenches(info.rows, a, b)]
    return out


def loop_wrenches(system: System, frame: Frames, multipliers: list) -> list[tuple[Force, Force]]:
    """For each constraint, its wrench on the second body, about the reference point of the first body's tree and about that of the
    second's.
    multipliers: of all rows."""
    out, first = [], 0
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        y = multipliers[first : first + len(info.rows)]
        first += len(y)
        out.append(_weighted(_wrenches(info.rows, a, b), y))
    return out


@stage
def _weighted(wrenches, y):
    """The sum of the wrenches of rows, times the rows' multipliers."""
    force, first, second = (tuple(total([mul(w[k][i], x) for w, x in zip(wrenches, y, strict=True)]) for i in range(3)) for k in range(3))
    return Force(first, force), Force(second, force)


def loop_errors(system: System, frame: Frames) -> list:
    """The constraint errors of all rows, m or dimensionless."""
    out: list = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        out += _errors(info.rows, a, b, [system.constraint.lengths[row[3]] if row[3] is not None else 0.0 for row in info.rows])
    return out


@stage
def _point_motion(velocity, acceleration, x) -> PointMotion:
    """The motion of a body's point. x: from the body's reference point."""
    return PointMotion(point_velocity(velocity, x), point_acceleration(acceleration, velocity, x), velocity.ang, acceleration.ang)


@stage
def _rates(rows, a: End, b: End, motion_a: PointMotion, motion_b: PointMotion) -> list:
    return [LOOP_ROWS[kind].rate(a, b, i, j, motion_a, motion_b) for kind, i, j, _ in rows]


@stage
def _driven_motion(driven: str, end: End, motion: PointMotion, speed, acceleration) -> PointMotion:
    """The motion of an end that a drive moves along or about its z axis."""
    z = end.axis(2)
    if driven == "slide":
        along = scale(z, speed)
        second = vadd(scale(z, acceleration), scale(cross(motion.spin, along), 2.0))
        return motion._replace(velocity=vadd(motion.velocity, along), acceleration=vadd(motion.acceleration, second))
    spin = scale(z, speed)
    second = vadd(scale(z, acceleration), cross(motion.spin, spin))
    return motion._replace(spin=vadd(motion.spin, spin), spin_rate=vadd(motion.spin_rate, second))


@stage
def _drift(rows, driven: str, a: End, b: End, wrenches, speed) -> list:
    """The rates of the rows that the drive of the first end causes, at zero velocity."""
    z = scale(a.axis(2), speed)
    return [neg(dot(w[0], z) if driven == "slide" else dot(_moment(w, a), z)) for w in wrenches]


def _moment(wrench, a: End):
    """Moment of a wrench about the first end's origin."""
    return vsub(wrench[1], cross(a.x, wrench[0]))


def loop_drifts(system: System, frame: Frames) -> list:
    """The rate of every constraint error at zero velocity, which the drives cause."""
    out: list = []
    for info, (a, b) in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        if info.driven:
            out += _drift(info.rows, info.driven, a, b, _wrenches(info.rows, a, b), system.functions.targets[info.target][1])
        else:
            out += [0.0] * len(info.rows)
    return out


def loop_rates(system: System, frame: Frames, q, v) -> list:
    """The second time derivative of every constraint error at zero generalized acceleration: (dJ/dt) v, and the terms of the drives."""
    joint_velocity, velocity = velocities(system, frame, v)
    acceleration = accelerations(system, frame, q, v, None, joint_velocity, velocity)
    at_rest = PointMotion(ZERO3, ZERO3, ZERO3, ZERO3)
    out: list = []
    for info, ends in zip(system.topology.constraints, loop_ends(system, frame), strict=True):
        motions = [
            at_rest if link < 0 else _point_motion(velocity[link], acceleration[link], end.x)
            for link, end in zip(_links(system, info), ends, strict=True)
        ]
        if info.driven:
            motions[0] = _driven_motion(info.driven, ends[0], motions[0], *system.functions.targets[info.target][1:])
        out += _rates(info.rows, *ends, *motions)
    return out
