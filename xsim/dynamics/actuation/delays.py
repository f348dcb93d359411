"""Delays of controls. Source: MuJoCo 4.0's documentation, Modeling, Delays.

An actuator with a history of its controls reads the control of some time ago. Each step adds its control to the history.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.history import history_of, value_at, with_sample
from xsim.dynamics.tree.system import System
from xsim.model.topology import ActuatorInfo
from xsim.spatial import stage, sub


def _places(system: System, info: ActuatorInfo, ctrl: list) -> list[int]:
    """Addresses of the controls of an actuator in all controls."""
    first = len(ctrl) - sum(len(other.controls) for other in system.topology.actuators)
    return [first + i for i in info.controls]


@stage
def _where_delayed(delay, delayed, control):
    return [jnp.where(jnp.greater(delay, 0.0), a, b) for a, b in zip(delayed, control, strict=True)]


def delayed_controls(system: System, history, time, ctrl) -> list:
    """The controls (nu) that act at a time, s, when ``ctrl`` is commanded. history: components of `State.history`."""
    out = list(ctrl)
    for info in system.topology.actuators:
        if info.history is not None:
            places, delay = _places(system, info, out), system.actuator.delay[info.history.delay]
            delayed = value_at(info.history.interpolation, history_of(info.history, history), sub(time, delay))
            for i, x in zip(places, _where_delayed(delay, delayed, [out[i] for i in places]), strict=True):
                out[i] = x
    return out


def with_controls(system: System, history, time, ctrl) -> list:
    """`State.history` with the controls (nu) that were commanded at a time, s."""
    out = list(history)
    for info in system.topology.actuators:
        if info.history is not None:
            sample = [ctrl[i] for i in _places(system, info, ctrl)]
            new = with_sample(history_of(info.history, out), time, sample)
            out[info.history.address : info.history.end] = new.numbers()
    return out
