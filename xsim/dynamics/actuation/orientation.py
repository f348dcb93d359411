"""Orientation servos: a torque towards the orientation that three or four controls command, for a ball joint or a site relative to another.

Source: MuJoCo 4.0's documentation, actuator orientation. With the orientation q and the angular velocity w, both of the child relative to
its reference and w in the child's axes, the torque is kp log(q^-1 target) + bias - kv w, in the child's axes.
"""

from __future__ import annotations

import math

import jax.numpy as jnp

from xsim.dynamics.actuation.controllers import Controller, ControllerState
from xsim.registry import ACTUATOR_CONTROLLERS
from xsim.spatial import add, dot, mul, normalize, quat_conj, quat_exp, quat_log, quat_mul, safe_norm, scale, stage

VECTOR, QUATERNION = ("x", "y", "z"), ("w", "x", "y", "z")
"""Names of the controls: a rotation vector, rad, or a quaternion of any length (zero is the identity)."""


def _target(c: ControllerState):
    """The commanded orientation, a unit quaternion."""
    if c.memory:
        return quat_exp(tuple(c.memory[name] for name in VECTOR))
    numbers = tuple(c.inputs.values())
    return quat_exp(numbers) if len(numbers) == len(VECTOR) else _unit(numbers)


@stage
def _unit(q):
    is_zero = dot(q, q) < 1e-30
    return normalize((jnp.where(is_zero, 1.0, q[0]), *q[1:]))


@stage
def _torque(target, length, velocity, gain, bias):
    error = quat_log(quat_mul(quat_conj(quat_exp(length)), target))
    return tuple(add(add(mul(gain[0], e), bias[0]), mul(bias[2], w)) for e, w in zip(error, velocity, strict=True))


def _force(c: ControllerState) -> tuple:
    return _torque(_target(c), c.length, c.velocity, c.gain, c.bias)


@stage
def limited_torque(torque, limit):
    """The torque, with its norm at most ``limit``."""
    norm = safe_norm(torque)
    return scale(torque, jnp.where(norm > limit, limit / jnp.where(norm > limit, norm, 1.0), 1.0))


@stage
def gain_within(gain, torque, limit):
    """The stiffness or the damping of a torque that is not at its limit, else zero."""
    return jnp.where(safe_norm(torque) < limit, gain, 0.0)


@stage
def shortest(vector):
    """The shortest rotation vector of a rotation."""
    angle = safe_norm(vector)
    turn = 2.0 * math.pi
    rest = angle - turn * jnp.floor(angle / turn + 0.5)
    return scale(vector, jnp.where(angle > math.pi, rest / jnp.where(angle > math.pi, angle, 1.0), 1.0))


def _rates(c: ControllerState) -> dict:
    return dict(c.inputs)


ACTUATOR_CONTROLLERS.register("orientation", Controller(QUATERNION, VECTOR, _rates, force=_force))
