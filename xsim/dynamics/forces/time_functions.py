"""Functions of time and of lengths, as components. Their derivatives are right derivatives.

A table is a sum of ramps, one per interval between knots, each clamped to its interval. It needs no search and no gather.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.registry import TIME_FUNCTIONS
from xsim.spatial import add, mul, stage, sub, total


def interval_fractions(x, knots, extrapolate: bool) -> list:
    """The fraction of each interval between knots that lies below x, 0 to 1. extrapolate: the first and last are not clamped outside."""
    out = []
    for i, (low, high) in enumerate(zip(knots[:-1], knots[1:], strict=True)):
        fraction = (x - low) / (high - low)
        if not (extrapolate and i == 0):
            fraction = jnp.where(x < low, 0.0, fraction)
        if not (extrapolate and i == len(knots) - 2):
            fraction = jnp.where(x < high, fraction, 1.0)
        out.append(fraction)
    return out


def weights(x, knots, extrapolate: bool) -> list:
    """The weight of each knot in the linear interpolation at x."""
    fractions = [1.0, *interval_fractions(x, knots, extrapolate), 0.0]
    return [sub(a, b) for a, b in zip(fractions[:-1], fractions[1:], strict=True)]


class TimeFunction(NamedTuple):
    """A kind of function: value(numbers, x) and an antiderivative integral(numbers, x).

    Both are differentiated when a motor prescribes a motion."""

    value: Callable
    integral: Callable


def _polynomial(n, x):
    out = n[-1] + 0.0 * x
    for a in reversed(n[:-1]):
        out = add(mul(out, x), a)
    return out


def _sine_integral(n, x):
    """Integral from 0, regular at frequency 0."""
    half = math.pi * n[1] * x
    return n[3] * x + n[0] * x * jnp.sinc(half / math.pi) * jnp.sin(half + n[2])


def _table(n, x):
    return total([mul(w, y) for w, y in zip(weights(x, n[0::2], False), n[1::2], strict=True)])


def _table_integral(n, x):
    knots, values = n[0::2], n[1::2]
    out = values[0] * (x - knots[0])
    for i, fraction in enumerate(interval_fractions(x, knots, False)):
        width, rise = knots[i + 1] - knots[i], values[i + 1] - values[i]
        excess = jnp.where(x > knots[i + 1], x - knots[i + 1], 0.0)
        out = out + rise * (0.5 * fraction * fraction * width + excess)
    return out


TIME_FUNCTIONS.register("constant", TimeFunction(lambda n, x: n[0] + 0.0 * x, lambda n, x: n[0] * x))
TIME_FUNCTIONS.register(
    "polynomial", TimeFunction(_polynomial, lambda n, x: _polynomial([0.0, *(a / (k + 1) for k, a in enumerate(n))], x))
)
TIME_FUNCTIONS.register("sine", TimeFunction(lambda n, x: n[0] * jnp.sin(2 * math.pi * n[1] * x + n[2]) + n[3], _sine_integral))
TIME_FUNCTIONS.register("ramp", TimeFunction(lambda n, x: n[0] + n[1] * x, lambda n, x: n[0] * x + 0.5 * n[1] * x * x))
TIME_FUNCTIONS.register("table", TimeFunction(_table, _table_integral))


def _wrapped(repeat, x):
    """Number of periods and argument within the period of a repeated function."""
    start, width, shift = repeat
    periods = jnp.trunc((x + shift) / width)
    return jax.lax.stop_gradient(periods), start + (x + shift) - jax.lax.stop_gradient(periods) * width


class Curve(NamedTuple):
    """A function of one argument: kind, numbers, and (start, width, shift) if it is periodic.

    A periodic function at x has the value of the function at start + (x + shift) modulo width."""

    kind: str
    numbers: tuple
    repeat: tuple | None

    def __call__(self, x):
        return TIME_FUNCTIONS[self.kind].value(self.numbers, x if self.repeat is None else _wrapped(self.repeat, x)[1])

    def integral(self, x):
        """The integral from 0 to x."""
        if self.repeat is None:
            return self._integral(x) - self._integral(0.0 * x)
        start, width, _ = self.repeat

        def periodic(y):
            periods, argument = _wrapped(self.repeat, y)
            ahead = self._integral(start + width) - self._integral(start)
            behind = self._integral(start) - self._integral(start - width)
            return periods * jnp.where(periods < 0, behind, ahead) + self._integral(argument) - self._integral(start)

        return periodic(x) - periodic(0.0 * x)

    def _integral(self, x):
        return TIME_FUNCTIONS[self.kind].integral(self.numbers, x)


def curve(system: System, index: int) -> Curve:
    """Function ``index`` of the model; it must not be external."""
    info = system.topology.functions[index]
    numbers = tuple(system.functions.numbers[info.first : info.first + info.width])
    return Curve(info.kind, numbers[:-3], numbers[-3:]) if info.repeat else Curve(info.kind, numbers, None)


def value(system: System, index: int, x):
    """The value of function ``index`` at x. An external function has the value of its control."""
    return system.functions.inputs[index] if index in system.functions.inputs else _value(curve(system, index), x)


@stage
def _value(function: Curve, x):
    return function(x)


def at_time(system: System, t, ctrl=()) -> System:
    """The system with the values of its functions at time t (s). ctrl: controls of the external functions."""
    top = system.topology
    if not top.functions:
        reads_time = any(info.controller is not None for info in top.actuators)
        return system._replace(functions=system.functions._replace(time=t)) if reads_time else system
    external = [i for i, f in enumerate(top.functions) if f.kind == "external"]
    inputs = dict(zip(external, ctrl or [0.0] * len(external), strict=True))
    system = system._replace(functions=system.functions._replace(time=t, inputs=inputs))
    targets = tuple(motion(system, index, mode, t) for index, mode in top.targets)
    return system._replace(functions=system.functions._replace(targets=targets))


def motion(system: System, index: int, mode: str, t) -> tuple:
    """Position, speed and acceleration that a motor prescribes at time t.

    mode: "position" if the function is the position, "speed" if it is the speed. The position is then its integral from 0. An external
    function is constant over a step. As a speed it prescribes no position (None).
    """
    if index in system.functions.inputs:
        x = system.functions.inputs[index]
        return (x, 0.0, 0.0) if mode == "position" else (None, x, 0.0)

    return _motion(curve(system, index), mode, jnp.asarray(t))


@stage
def _motion(function: Curve, mode: str, t) -> tuple:
    def derivative(fn, t):
        return jax.jvp(fn, (t,), (jnp.ones_like(t),))[1]

    if mode == "speed":
        return function.integral(t), function(t), derivative(function, t)
    return function(t), derivative(function, t), derivative(lambda t: derivative(function, t), t)
