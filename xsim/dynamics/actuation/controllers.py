"""Actuators with several inputs and activations: pid controllers. Source: MuJoCo 4.0's documentation, actuator pid.

A controller turns the inputs of an actuator, and the activations that are its memory, into the signal of the actuator's gain or into its
force. `dc_motors` has another controller.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.commands import clip
from xsim.registry import ACTUATOR_CONTROLLERS, ConfigKey
from xsim.spatial import add, mul, neg, stage, sub, total


class ControllerState(NamedTuple):
    """What a controller reads.

    * inputs: controls by the names of `ActuatorSpec.inputs`; those that the actuator does not have are missing.
    * memory: activations by the names of `ActuatorSpec.memory`.
    * length, velocity: of the transmission (m, m/s or rad, rad/s); of orientation servos three components each.
    * gain, bias, dynamics: ten parameters each.
    * dt: the time step, s.
    * nearest(target, length): the target plus whole turns, where the transmission is a rotation.
    * config: the numbers of a plugin by the keys of `Controller.config`, a tuple where a key has several. They are in ``gain``.
    * time: at the start of the step, s.
    * input_rate: the rate of the first input, 1/s. It is not zero where activation dynamics make this input of the control.
    """

    inputs: dict
    memory: dict
    length: Any
    velocity: Any
    gain: tuple
    bias: tuple
    dynamics: tuple
    dt: Any
    nearest: Callable
    config: dict
    time: Any
    input_rate: Any


class Controller(NamedTuple):
    """A controller, an entry of `xsim.registry.ACTUATOR_CONTROLLERS`. All functions take a `ControllerState`.

    * inputs, memory: the names that actuators with this controller may have, in order.
    * rates -> d memory / dt, by name.
    * signal -> what the gain multiplies. None: the controller has a force instead.
    * force -> the force before its limits.
    * friction -> a force beyond the limits. friction_damping, friction_stiffness -> minus its derivatives with respect to the velocity and
      the length.
    * advance(state, rates) -> the memory after dt, by name. None: memory + dt rates.
    * config: the keys of <config> if ``<plugin>`` of MJCF may name this controller. At most ten numbers.
    * used(config) -> the names of the memory that an actuator with these numbers has. None: all.
    """

    inputs: tuple[str, ...]
    memory: tuple[str, ...] = ()
    rates: Callable = lambda state: {}
    signal: Callable | None = None
    force: Callable | None = None
    friction: Callable | None = None
    friction_damping: Callable | None = None
    friction_stiffness: Callable | None = None
    advance: Callable | None = None
    config: dict[str, ConfigKey] | None = None
    used: Callable | None = None


def named_numbers(keys: dict[str, ConfigKey], numbers) -> dict:
    """Numbers by the keys of a config, in its order: a tuple where a key has several."""
    out, at = {}, 0
    for name, key in keys.items():
        width = key.width
        out[name] = tuple(numbers[at : at + width]) if width > 1 else numbers[at]
        at += width
    return out


@stage
def within_reach(target, start, reach):
    """A target that changes by at most ``reach``."""
    return clip(target, sub(start, reach), add(start, reach))


def _pid_target(c: ControllerState):
    """The target position after the limit of its rate, rad or m."""
    target = c.inputs["pos"]
    if "slew" not in c.memory:
        return c.nearest(target, c.length)
    start = c.memory["slew"]
    return within_reach(c.nearest(target, start), start, mul(c.dynamics[1], c.dt))


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
    target, out = _pid_target(c), {}
    if "slew" in c.memory:
        out["slew"] = sub(target, c.memory["slew"]) / c.dt
    if "integral" in c.memory:
        out["integral"] = antiwindup(sub(c.nearest(target, c.length), c.length), c.memory["integral"], c.dynamics[0])
    return out


@stage
def antiwindup(error, integral, limit):
    """The rate of an integral that does not grow beyond a limit; a limit of 0 is none."""
    limited = limit > 0
    rate = jnp.where(limited & (integral >= limit), jnp.minimum(error, 0.0), error)
    return jnp.where(limited & (integral <= -limit), jnp.maximum(rate, 0.0), rate)


ACTUATOR_CONTROLLERS.register("pid", Controller(("pos", "vel", "ff"), ("slew", "integral"), _pid_rates, _pid_signal))
