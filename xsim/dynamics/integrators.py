"""One step of time: a registry of integrators over components."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from ..spatial import add, mul, stage, total
from .solve import Motion, acceleration
from .system import System, split_q, split_v


class Moving(NamedTuple):
    """A state as components."""

    q: list
    v: list
    time: object
    diverged: object  # 1.0 where the flag of this name is set
    singular: object


@stage
def _shift(x, dx, h):
    return [add(a, mul(b, h)) for a, b in zip(x, dx, strict=True)]


@stage
def _integrate(joint, numbers, q, v, h):
    return joint.integrate(numbers, q, tuple(mul(x, h) for x in v))


@stage
def _rate(joint, numbers, q, v):
    return joint.rate(numbers, q, v)


def integrate(system: System, q, v, h) -> list:
    """q moved along v for the time h."""
    out: list = []
    for joint, numbers, a, b in zip(system.joints, system.numbers, split_q(system, q), split_v(system, v), strict=True):
        out.extend(_integrate(joint, numbers, a, b, h))
    return out


def difference(system: System, q0, q1) -> list:
    """The velocity that takes q0 to q1 in unit time; inverse of `integrate`."""
    out: list = []
    for joint, numbers, a, b in zip(system.joints, system.numbers, split_q(system, q0), split_q(system, q1), strict=True):
        out.extend(joint.difference(numbers, a, b))
    return out


def _rates(system: System, q, v) -> list:
    out: list = []
    for joint, numbers, a, b in zip(system.joints, system.numbers, split_q(system, q), split_v(system, v), strict=True):
        out.extend(_rate(joint, numbers, a, b))
    return out


def _semi_implicit(system: System, s: Moving, tau, implicit) -> tuple:
    a, pivot = acceleration(Motion(system, s.q, s.v, tau, implicit))
    v = _shift(s.v, a, system.dt)
    return integrate(system, s.q, v, system.dt), v, pivot


def _implicit_damping(system: System, s: Moving, tau) -> tuple:
    """Semi-implicit Euler with joint damping at the new velocity (the rule of RING)."""
    return _semi_implicit(system, s, tau, system.dt)


def _euler(system: System, s: Moving, tau) -> tuple:
    """Semi-implicit Euler: new velocity first, then the position with it."""
    return _semi_implicit(system, s, tau, 0.0)


def _rk4(system: System, s: Moving, tau) -> tuple:
    """Classical Runge-Kutta; quaternions are integrated as four numbers (their rate is linear in them) and normalized at the end."""
    h = system.dt
    half = mul(h, 0.5)
    q, v = s.q, s.v
    dqs, dvs, pivots = [], [], []
    for reach in (None, half, half, h):
        if reach is not None:
            q, v = _shift(s.q, dqs[-1], reach), _shift(s.v, dvs[-1], reach)
        a, pivot = acceleration(Motion(system, q, v, tau, 0.0))
        dqs.append(_rates(system, q, v))
        dvs.append(a)
        pivots.append(pivot)
    pivot = jnp.minimum(jnp.minimum(pivots[0], pivots[1]), jnp.minimum(pivots[2], pivots[3]))
    q = _weighted(s.q, *dqs, h)
    return integrate(system, q, [0.0] * len(v), 0.0), _weighted(s.v, *dvs, h), pivot


@stage
def _weighted(x, k1, k2, k3, k4, h):
    w = mul(h, 1.0 / 6.0)
    return [add(a, mul(w, add(add(b, e), mul(2.0, add(c, d))))) for a, b, c, d, e in zip(x, k1, k2, k3, k4, strict=True)]


INTEGRATORS: dict[str, Callable] = {"implicit_damping": _implicit_damping, "euler": _euler, "rk4": _rk4}


@stage
def _health(q, v, pivot, diverged, singular):
    # 0 * x is 0 for every finite x and NaN otherwise.
    bad = jnp.isnan(total([x * 0.0 for x in (*q, *v)]))
    # Flags are kept as 0.0 and 1.0: XLA's CPU compiler crashes on loops that make int32 of float64 comparisons.
    return jnp.where(bad, 1.0, diverged), jnp.where(pivot == 0, 1.0, singular)


def advance(system: System, s: Moving, tau) -> Moving:
    """One step with the model's integrator."""
    q, v, pivot = INTEGRATORS[system.topology.integrator](system, s, tau)
    return Moving(q, v, add(s.time, system.dt), *_health(q, v, pivot, s.diverged, s.singular))
