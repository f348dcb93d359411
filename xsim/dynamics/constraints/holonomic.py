"""All holonomic rows: linear couplings of coordinates (mimic, gearbox), coordinates that move on schedule, constraints between frames
(`loop_joints`)."""

from __future__ import annotations

from xsim.dynamics.constraints.loop_joints import active, loop_drifts, loop_gaps, loop_rates, loop_rows
from xsim.dynamics.tree.frames import coordinate_places
from xsim.dynamics.tree.kinematics import Frames, frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, mul, neg, stage, sub


def holonomic_rows(system: System, frame: Frames) -> list:
    """J, per row [(dof, coefficient), ...]; empty where holonomic rows are switched off."""
    scheduled = [[(dof, 1.0)] for dof, _ in _motions(system)]
    return [*_coupling_rows(system), *scheduled, *(loop_rows(system, frame) if active(system) else [])]


def has_holonomic_rows(topology: Topology) -> bool:
    """Whether there are holonomic rows that act."""
    return "holonomic" in topology.rows and bool(topology.couplings or topology.motions or topology.constraints)


def holonomic_rates(system: System, frame: Frames, q, v) -> list:
    """Second derivative of every row without generalized acceleration: (dJ/dt) v and what is prescribed by time."""
    scheduled = [neg(system.functions.targets[target][2]) for _, target in _motions(system)]
    return [0.0] * len(_coupling_rows(system)) + scheduled + (loop_rates(system, frame, q, v) if active(system) else [])


def holonomic_drifts(system: System, frame: Frames) -> list:
    """Rate of every row at rest: what is prescribed by time."""
    scheduled = [neg(system.functions.targets[target][1]) for _, target in _motions(system)]
    return [0.0] * len(_coupling_rows(system)) + scheduled + (loop_drifts(system, frame) if active(system) else [])


def _motions(system: System):
    return system.topology.motions if "holonomic" in system.topology.rows else ()


def holonomic_gaps(system: System, frame: Frames, q) -> list:
    """What every row shall keep at zero."""
    place = coordinate_places(system.topology)
    targets = [(q[place[dof][1]], system.functions.targets[target][0]) for dof, target in _motions(system)]
    scheduled = [0.0 if target is None else sub(x, target) for x, target in targets]
    return [*_coupling_gaps(system, q), *scheduled, *(loop_gaps(system, frame) if active(system) else [])]


def _coupling_rows(system: System) -> list:
    if "holonomic" not in system.topology.rows:
        return []
    pairs = zip(system.topology.couplings, system.coupling.multiplier, strict=True)
    return [[(follower, 1.0), (leader, neg(m))] for (follower, leader), m in pairs]


@stage
def _gap(follower, leader, multiplier, offset, reference):
    return sub(follower, add(mul(multiplier, sub(leader, reference)), offset))


def _coupling_gaps(system: System, q) -> list:
    if not _coupling_rows(system):
        return []
    place = coordinate_places(system.topology)
    c = system.coupling
    return [
        _gap(q[place[follower][1]], q[place[leader][1]], m, o, r)
        for (follower, leader), m, o, r in zip(system.topology.couplings, c.multiplier, c.offset, c.reference, strict=True)
    ]


@stage
def _row_acceleration(gap, rate, dt):
    return mul(neg(add(mul(gap, 1.0 / dt), rate)), 1.0 / dt)


def row_accelerations(system: System, q, v) -> list:
    """Of each row, what its second derivative has to be more than zero: of couplings, so that their gap is closed at the end of a step of
    the semi-implicit rules, whatever v was; of drives that prescribe a speed and no position, so that they have that speed then."""
    couplings = zip(_coupling_gaps(system, q), _coupling_rows(system), strict=True)
    out = [_row_acceleration(gap, rate(row, v), system.option.dt) for gap, row in couplings]
    if not any(position is None for position, *_ in system.functions.targets) or "holonomic" not in system.topology.rows:
        return out
    for dof, target in _motions(system):
        position, speed, _ = system.functions.targets[target]
        out.append(_catching(sub(v[dof], speed), system.option.dt) if position is None else 0.0)
    frame = frames(system, q)
    rows = zip(loop_rows(system, frame), loop_drifts(system, frame), strict=True)
    for info in system.topology.constraints:
        free = info.driven and system.functions.targets[info.target][0] is None
        for _ in info.rows:
            row, drift = next(rows)
            out.append(_catching(add(rate(row, v), drift), system.option.dt) if free else 0.0)
    return out


@stage
def _catching(rate, dt):
    return mul(neg(rate), 1.0 / dt)


def rate(row, v):
    """Row of J times v."""
    out = 0.0
    for dof, coefficient in row:
        out = add(out, mul(coefficient, v[dof]))
    return out
