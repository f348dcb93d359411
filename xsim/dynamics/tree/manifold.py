"""Integration and difference on the configuration manifold, joint by joint."""

from __future__ import annotations

from xsim.dynamics.tree.system import System, split_q, split_v
from xsim.spatial import add, mul, stage


@stage
def shifted(x, dx, h):
    """x + h dx, component by component."""
    return [add(a, mul(b, h)) for a, b in zip(x, dx, strict=True)]


@stage
def _integrate(joint, numbers, q, v, h):
    return joint.integrate(numbers, q, tuple(mul(x, h) for x in v))


@stage
def _displacement_rate(joint, numbers, q0, d, v):
    return joint.displacement_rate(numbers, q0, d, v)


def displacement_rates(system: System, q0, d, v) -> list:
    """The rate (nv) of the displacement d from q0, with q = integrate(q0, d, 1), while q moves with the velocity v."""
    out: list = []
    parts = split_q(system, q0), split_v(system, d), split_v(system, v)
    for joint, numbers, a, b, c in zip(system.link.joints, system.link.numbers, *parts, strict=True):
        out.extend(_displacement_rate(joint, numbers, a, b, c))
    return out


def integrate(system: System, q, v, h) -> list:
    """The configuration after moving from q with constant velocity v for the time h (s)."""
    out: list = []
    for joint, numbers, a, b in zip(system.link.joints, system.link.numbers, split_q(system, q), split_v(system, v), strict=True):
        out.extend(_integrate(joint, numbers, a, b, h))
    return out


def difference(system: System, q0, q1) -> list:
    """The velocity (nv) that moves q0 to q1 in unit time; the inverse of `integrate`."""
    out: list = []
    for joint, numbers, a, b in zip(system.link.joints, system.link.numbers, split_q(system, q0), split_q(system, q1), strict=True):
        out.extend(joint.difference(numbers, a, b))
    return out
