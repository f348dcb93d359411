"""Actuators with a controller of several inputs. Source: MuJoCo 4.0's documentation, actuator pid.

A controller turns the inputs of an actuator, and the activations that are its memory, into the signal of the actuator's gain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.commands import clip
from xsim.registry import ACTUATOR_CONTROLLERS
from xsim.spatial import add, mul, neg, stage, sub, total


class ControllerState(NamedTuple):
    """What a controller reads.

    * inputs: controls by the names of `ActuatorSpec.inputs`; those that the actuator does not have are missing.
    * memory: activations by the names of `ActuatorSpec.memory`.
    * length: of the transmission (m or rad).
    * gain, bias, dynamics: ten parameters each.
    * dt: the time step, s.
    * nearest(target, length): the target plus whole turns, where the transmission is a rotation.
    """

    inputs: dict
    memory: dict
    length: object
    gain: tuple
    bias: tuple
    dynamics: tuple
    dt: object
    nearest: Callable


class Controller(NamedTuple):
    """A controller, an entry of `xsim.registry.ACTUATOR_CONTROLLERS`.

    * inputs, memory: the names that actuators with this controller may have, in order.
    * signal(state: ControllerState) -> what the gain multiplies.
    * rates(state: ControllerState) -> d memory / dt, by name.
    """

    inputs: tuple[str, ...]
    memory: tuple[str, ...]
    signal: Callable
    rates: Callable


def _pid_target(c: ControllerState):
    """The target position after the limit of its rate, rad or m."""
    target = c.inputs["pos"]
    if "slew" not in c.memory:
        return c.nearest(target, c.length)
    start, reach = c.memory["slew"], mul(c.dynamics[1], c.dt)
    return _within_reach(c.nearest(target, start), start, reach)


@stage
def _within_reach(target, start, reach):
    return clip(target, sub(start, reach), add(start, reach))


def _pid_signal(c: ControllerState):
    """kp position + kv velocity + feedforward + ki integral. The bias of the actuator has the measured position and velocity."""
    terms = []
    if "pos" in c.inputs:
        terms.append(mul(neg(c.bias[1]), c.nearest(_pid_target(c), c.length)))
    if "vel" in c.inputs:
        terms.append(mul(neg(c.bias[2]), c.inputs["vel"]))
    if "ff" in c.inputs:
        terms.append(c.inputs["ff"])
    if "integral" in c.memory:
        terms.append(mul(c.gain[0], c.memory["integral"]))
    return total(terms)


def _pid_rates(c: ControllerState) -> dict:
    target = _pid_target(c)
    out = {}
    if "slew" in c.memory:
        out["slew"] = sub(target, c.memory["slew"]) / c.dt
    if "integral" in c.memory:
        out["integral"] = _antiwindup(sub(c.nearest(target, c.length), c.length), c.memory["integral"], c.dynamics[0])
    return out


@stage
def _antiwindup(error, integral, limit):
    """The rate of an integral that does not grow beyond a limit; a limit of 0 is none."""
    limited = limit > 0
    rate = jnp.where(limited & (integral >= limit), jnp.minimum(error, 0.0), error)
    return jnp.where(limited & (integral <= -limit), jnp.maximum(rate, 0.0), rate)


ACTUATOR_CONTROLLERS.register("pid", Controller(("pos", "vel", "ff"), ("slew", "integral"), _pid_signal, _pid_rates))
