"""Holonomic rows that couple coordinates linearly (mimic): J v = 0 with J of two entries per row."""

from __future__ import annotations

from ..spatial import add, mul, neg, stage, sub
from .system import System

Rows = list  # per row: [(dof, coefficient), ...]


def coupling_rows(system: System) -> Rows:
    """The Jacobian of the gaps; empty where holonomic rows are switched off."""
    if "holonomic" not in system.topology.rows:
        return []
    pairs = zip(system.topology.couplings, system.coupling.multiplier, strict=True)
    return [[(follower, 1.0), (leader, neg(m))] for (follower, leader), m in pairs]


@stage
def _gap(follower, leader, multiplier, offset, reference):
    return sub(follower, add(mul(multiplier, sub(leader, reference)), offset))


def gaps(system: System, q) -> list:
    """By how much each follower is away from where its leader puts it."""
    if not coupling_rows(system):
        return []
    place = {link.v: link.q for link in system.topology.links}
    c = system.coupling
    return [
        _gap(q[place[follower]], q[place[leader]], m, o, r)
        for (follower, leader), m, o, r in zip(system.topology.couplings, c.multiplier, c.offset, c.reference, strict=True)
    ]


@stage
def _closing(gap, rate, dt):
    return mul(neg(add(mul(gap, 1.0 / dt), rate)), 1.0 / dt)


def closing(system: System, q, v) -> list:
    """The second derivative of each gap that closes it at the end of a step of the semi-implicit rules, whatever v was."""
    return [
        _closing(gap, _rate(row, v), system.dt) for gap, row in zip(gaps(system, q), coupling_rows(system), strict=True)
    ]


def _rate(row, v):
    out = 0.0
    for dof, coefficient in row:
        out = add(out, mul(coefficient, v[dof]))
    return out
