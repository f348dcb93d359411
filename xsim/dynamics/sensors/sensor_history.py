"""Sensors with a delay, or with a period between their measurements. Source: MuJoCo 4.0's documentation, Modeling, Delays."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.history import history_of, value_at, with_sample
from xsim.model.topology import SensorInfo, Topology
from xsim.spatial import add, stage, sub


def has_sensor_history(topology: Topology) -> bool:
    """Whether the readings of a sensor depend on past measurements."""
    return any(info.history is not None for info in topology.sensors)


@stage
def _due(last, period, time, dt):
    """Whether a sensor measures at a time, 1.0 or 0.0: a period after its last measurement, up to the rounding of a sum of time steps."""
    return jnp.where(add(last, period) <= add(time, 1e-3 * dt), 1.0, 0.0)


def _is_due(info: SensorInfo, history, time, dt):
    """See `_due`. None for a sensor that measures at every step."""
    return None if info.ticked is None else _due(history[info.ticked], info.interval[0], time, dt)


@stage
def _reading(delay, measured, current, old):
    """The delayed readings where there is a delay, else the current ones where the sensor measures, else the newest old ones."""
    delayed, newest = old
    if measured is not None:
        current = [jnp.where(measured > 0, a, b) for a, b in zip(current, newest, strict=True)]
    return [jnp.where(jnp.greater(delay, 0.0), a, b) for a, b in zip(delayed, current, strict=True)]


def readings(topology: Topology, delays, history, time, dt, values: list) -> list:
    """What the sensors say at a time, s. delays: components of sensor.delay. history: of `State.history`. values: measured now."""
    out = list(values)
    for info in topology.sensors:
        if info.history is None:
            continue
        place, past, delay = slice(info.address, info.address + info.dim), history_of(info.history, history), delays[info.history.delay]
        delayed = value_at(info.history.interpolation, past, sub(time, delay))
        out[place] = _reading(delay, _is_due(info, history, time, dt), out[place], (delayed, past.samples[-1]))
    return out


@stage
def _chosen(measured, new, old):
    return [jnp.where(measured > 0, a, b) for a, b in zip(new, old, strict=True)]


def with_readings(topology: Topology, history, time, dt, values: list) -> list:
    """`State.history` with what the sensors measure at a time, s."""
    out = list(history)
    for info in topology.sensors:
        if info.history is None:
            continue
        place = slice(info.history.address, info.history.end)
        new = with_sample(history_of(info.history, out), time, values[info.address : info.address + info.dim]).numbers()
        measured = _is_due(info, history, time, dt)
        out[place] = new if measured is None else _chosen(measured, new, out[place])
        if measured is not None:
            (out[info.ticked],) = _chosen(measured, [add(out[info.ticked], info.interval[0])], [out[info.ticked]])
    return out
