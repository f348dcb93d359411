"""Motion on the configuration manifold, joint by joint."""

from __future__ import annotations

from ..spatial import add, mul, stage
from .system import System, split_q, split_v


@stage
def shifted(x, dx, h):
    """x + h dx, number by number."""
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


def rates(system: System, q, v) -> list:
    """dq/dt."""
    out: list = []
    for joint, numbers, a, b in zip(system.joints, system.numbers, split_q(system, q), split_v(system, v), strict=True):
        out.extend(_rate(joint, numbers, a, b))
    return out
