"""Functions of time and of lengths: values and derivatives from the right, as components.

Tables are sums of ramps, u_i = x - x_i held between 0 and the width of its piece, so there is no search and no gather; polynomials, sines
and ramps are what they are called. A repeated function is its slice played over and over.
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


def pieces(x, knots, outside: bool) -> list:
    """How much of each piece between knots lies below x, 0 to 1; ``outside``: the first and last go on beyond their ends."""
    out = []
    for i, (low, high) in enumerate(zip(knots[:-1], knots[1:], strict=True)):
        share = (x - low) / (high - low)
        if not (outside and i == 0):
            share = jnp.where(x < low, 0.0, share)
        if not (outside and i == len(knots) - 2):
            share = jnp.where(x < high, share, 1.0)
        out.append(share)
    return out


def weights(x, knots, outside: bool) -> list:
    """Of every knot, its weight in the linear interpolation at x."""
    shares = [1.0, *pieces(x, knots, outside), 0.0]
    return [sub(a, b) for a, b in zip(shares[:-1], shares[1:], strict=True)]


class TimeFunction(NamedTuple):
    """value(numbers, x), and integral(numbers, x): any antiderivative of it. Both are differentiated where a motor prescribes motion."""

    value: Callable
    integral: Callable


def _polynomial(n, x):
    out = n[-1] + 0.0 * x
    for a in reversed(n[:-1]):
        out = add(mul(out, x), a)
    return out


def _sine_integral(n, x):
    """From 0; regular at frequency 0."""
    half = math.pi * n[1] * x
    return n[3] * x + n[0] * x * jnp.sinc(half / math.pi) * jnp.sin(half + n[2])


def _table(n, x):
    return total([mul(w, y) for w, y in zip(weights(x, n[0::2], False), n[1::2], strict=True)])


def _table_integral(n, x):
    knots, values = n[0::2], n[1::2]
    out = values[0] * (x - knots[0])
    for i, share in enumerate(pieces(x, knots, False)):
        width, rise = knots[i + 1] - knots[i], values[i + 1] - values[i]
        beyond = jnp.where(x > knots[i + 1], x - knots[i + 1], 0.0)
        out = out + rise * (0.5 * share * share * width + beyond)
    return out


TIME_FUNCTIONS.register("constant", TimeFunction(lambda n, x: n[0] + 0.0 * x, lambda n, x: n[0] * x))
TIME_FUNCTIONS.register(
    "polynomial", TimeFunction(_polynomial, lambda n, x: _polynomial([0.0, *(a / (k + 1) for k, a in enumerate(n))], x))
)
TIME_FUNCTIONS.register("sine", TimeFunction(lambda n, x: n[0] * jnp.sin(2 * math.pi * n[1] * x + n[2]) + n[3], _sine_integral))
TIME_FUNCTIONS.register("ramp", TimeFunction(lambda n, x: n[0] + n[1] * x, lambda n, x: n[0] * x + 0.5 * n[1] * x * x))
TIME_FUNCTIONS.register("table", TimeFunction(_table, _table_integral))


def _wrapped(repeat, x):
    """(times round, place in the slice) of a repeated function."""
    start, width, shift = repeat
    turns = jnp.trunc((x + shift) / width)
    return jax.lax.stop_gradient(turns), start + (x + shift) - jax.lax.stop_gradient(turns) * width


class Curve(NamedTuple):
    """A function: kind, numbers, and (start, width, shift) if it repeats."""

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

        def whole(y):
            turns, place = _wrapped(self.repeat, y)
            ahead = self._integral(start + width) - self._integral(start)
            behind = self._integral(start) - self._integral(start - width)
            return turns * jnp.where(turns < 0, behind, ahead) + self._integral(place) - self._integral(start)

        return whole(x) - whole(0.0 * x)

    def _integral(self, x):
        return TIME_FUNCTIONS[self.kind].integral(self.numbers, x)


def curve(system: System, index: int) -> Curve:
    """Function number ``index`` of the model, which is not external."""
    info = system.topology.functions[index]
    numbers = tuple(system.functions.numbers[info.first : info.first + info.width])
    return Curve(info.kind, numbers[:-3], numbers[-3:]) if info.repeat else Curve(info.kind, numbers, None)


def value(system: System, index: int, x):
    """The function at x; an external one: its control."""
    return system.functions.inputs[index] if index in system.functions.inputs else _value(curve(system, index), x)


@stage
def _value(function: Curve, x):
    return function(x)


def at_time(system: System, t, ctrl=()) -> System:
    """The system with what is prescribed at time t. ctrl: the controls after those of the dofs."""
    top = system.topology
    if not top.functions:
        return system
    external = [i for i, f in enumerate(top.functions) if f.kind == "external"]
    inputs = dict(zip(external, ctrl or [0.0] * len(external), strict=True))
    system = system._replace(functions=system.functions._replace(time=t, inputs=inputs))
    targets = tuple(motion(system, index, mode, t) for index, mode in top.targets)
    return system._replace(functions=system.functions._replace(targets=targets))


def motion(system: System, index: int, mode: str, t) -> tuple:
    """Position, speed and acceleration that a motor prescribes at time t: its function, or in mode "speed" its function's integral.

    An external function is held over a step. As a speed it prescribes no position (None): what it has moved stays where it is.
    """
    if index in system.functions.inputs:
        x = system.functions.inputs[index]
        return (x, 0.0, 0.0) if mode == "position" else (None, x, 0.0)

    return _motion(curve(system, index), mode, jnp.asarray(t))


@stage
def _motion(function: Curve, mode: str, t) -> tuple:
    def slope(fn, t):
        return jax.jvp(fn, (t,), (jnp.ones_like(t),))[1]

    if mode == "speed":
        return function.integral(t), function(t), slope(function, t)
    return function(t), slope(function, t), slope(lambda t: slope(function, t), t)
