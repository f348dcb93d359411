"""Past values of controls and sensors. Source: MuJoCo 4.0's documentation, Modeling, Delays.

The history of a quantity is a list of numbers (see `HistoryInfo`): the times of its samples in s, oldest first, then the samples. An
environment keeps all of them in `State.history`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.model.topology import HistoryInfo
from xsim.spatial import stage


class History(NamedTuple):
    """times: of the samples, s, ascending. samples: of each, its numbers."""

    times: list
    samples: list

    def numbers(self) -> list:
        """All numbers in the order of `State.history`."""
        return [*self.times, *(x for sample in self.samples for x in sample)]


def history_of(info: HistoryInfo, numbers) -> History:
    """The history of one quantity. numbers: components of `State.history`."""
    first, width = info.address + info.samples, info.width
    times = list(numbers[info.address : first])
    return History(times, [list(numbers[i : i + width]) for i in range(first, first + info.samples * width, width)])


def _not_later(time, times):
    """Which times are at most ``time``, up to the rounding of a sum of time steps."""
    rounding = times.shape[0] * jnp.finfo(times.dtype).eps * jnp.maximum(jnp.abs(times[0]), jnp.abs(times[-1]))
    return times <= time + rounding


def _pick(array, index):
    """The entry at an index for each environment. array: (samples, ..., *lanes), index: (*lanes)."""
    positions = jnp.arange(array.shape[0]).reshape(-1, *[1] * (array.ndim - 1))
    return jnp.sum(jnp.where(positions == index, array, 0.0), 0)


def _slopes(times, values):
    """Central differences of the samples, and zero at both ends."""
    inner = (values[2:] - values[:-2]) / (times[2:] - times[:-2])[:, None]
    end = jnp.zeros_like(values[:1])
    return jnp.concatenate([end, inner, end])


@stage
def value_at(interpolation: str, history: History, time) -> list:
    """The value at a time: the first sample before the oldest, the last one after the newest.

    interpolation: ``"zoh"`` (the newest sample that is not later), ``"linear"`` or ``"cubic"`` (Hermite polynomials, see `_slopes`)."""
    flat = jnp.broadcast_arrays(time, *history.numbers())
    time, count = flat[0], len(history.times)
    times = jnp.stack(flat[1 : 1 + count])
    values = jnp.stack(flat[1 + count :]).reshape(count, -1, *time.shape)
    before = jnp.sum(_not_later(time, times), 0) - 1
    if interpolation == "zoh" or count == 1:
        return list(_pick(values, jnp.clip(before, 0, count - 1)))
    i = jnp.clip(before, 0, count - 2)
    start, (low, high) = _pick(times[:-1], i), (_pick(values[:-1], i), _pick(values[1:], i))
    length = _pick(times[1:] - times[:-1], i)
    u = jnp.clip((time - start) / length, 0.0, 1.0)
    if interpolation == "linear":
        return list(low + u * (high - low))
    slopes = length * _slopes(times, values)
    first, last = _pick(slopes[:-1], i), _pick(slopes[1:], i)
    return list(low + u * (first + u * (3 * (high - low) - 2 * first - last + u * (first + last - 2 * (high - low)))))


@stage
def with_sample(history: History, time, sample: list) -> History:
    """The history with a sample at the end, without its oldest one. A sample at the time of the newest replaces that one."""
    times, samples = history
    again = jnp.equal(time, times[-1])
    kept_times = [jnp.where(again, a, b) for a, b in zip(times[:-1], times[1:], strict=True)]
    kept = [[jnp.where(again, x, y) for x, y in zip(a, b, strict=True)] for a, b in zip(samples[:-1], samples[1:], strict=True)]
    return History([*kept_times, time], [*kept, sample])
