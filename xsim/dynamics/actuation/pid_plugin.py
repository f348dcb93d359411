"""The plugin ``mujoco.pid`` of MuJoCo: force = kp e + ki (integral of e) + kd de/dt, e = target - length.

Source: MuJoCo's plugin/actuator/README.md. As there, this step's error counts in the integral already. The target is the control, or the
activation where the actuator has dynamics. Integrators that are implicit in velocity take the force as it is at the start of the step.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.actuation.commands import clip
from xsim.dynamics.actuation.controllers import Controller, ControllerState, within_reach
from xsim.registry import ACTUATOR_CONTROLLERS, ConfigKey
from xsim.spatial import add, mul, neg, stage, sub, total

UNLIMITED = 3.4e38
"""A bound that nothing reaches; single precision holds it."""
CONFIG = {
    "kp": ConfigKey(),
    "ki": ConfigKey(),
    "kd": ConfigKey(),
    "imax": ConfigKey((UNLIMITED,), (0.0,)),
    "slewmax": ConfigKey((UNLIMITED,), (0.0,)),
}
"""Gains (force per length, its integral and its rate), the largest force of the integral, and the largest rate of the target."""


def _used(config: dict) -> tuple[str, ...]:
    has = {"integral": config["ki"] != 0, "slew": config["slewmax"] < UNLIMITED}
    return tuple(name for name, on in has.items() if on)


@stage
def _limited_once_moving(target, start, reach, time):
    return jnp.where(jnp.greater(time, 0.0), within_reach(target, start, reach), target)


def _target(c: ControllerState):
    """The target after the limit of its rate. At the start of time there is no target before it."""
    target = c.inputs["ctrl"]
    if "slew" not in c.memory:
        return target
    return _limited_once_moving(target, c.memory["slew"], mul(c.config["slewmax"], c.dt), c.time)


@stage
def _integrated(integral, change, ki, imax):
    """The integral after a change, whose force is at most imax."""
    gain = jnp.where(ki == 0, 1.0, ki)
    moved = add(integral, change)
    return jnp.where(ki == 0, moved, clip(mul(gain, moved), neg(imax), imax) / gain)


def _integral(c: ControllerState, target):
    return _integrated(c.memory["integral"], mul(sub(target, c.length), c.dt), c.config["ki"], c.config["imax"])


def _signal(c: ControllerState):
    """The force, N or N m."""
    target = _target(c)
    terms = [mul(c.config["kp"], sub(target, c.length)), mul(c.config["kd"], sub(c.input_rate, c.velocity))]
    if "integral" in c.memory:
        terms.append(mul(c.config["ki"], _integral(c, target)))
    return total(terms)


def _rates(c: ControllerState) -> dict:
    target = _target(c)
    after = {"slew": target}
    if "integral" in c.memory:
        after["integral"] = _integral(c, target)
    return {name: sub(after[name], x) / c.dt for name, x in c.memory.items()}


ACTUATOR_CONTROLLERS.register("mujoco.pid", Controller(("ctrl",), ("integral", "slew"), _rates, _signal, config=CONFIG, used=_used))
