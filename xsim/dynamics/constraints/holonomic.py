"""All holonomic constraint rows. Their order: linear couplings of coordinates (mimic, gearbox), coordinates whose motion is prescribed,
constraints between frames (`loop_joints`)."""

from __future__ import annotations

from xsim.dynamics.constraints.loop_joints import active, loop_drifts, loop_errors, loop_rates, loop_rows
from xsim.dynamics.tree.frames import coordinate_addresses
from xsim.dynamics.tree.kinematics import Frames, frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, mul, neg, stage, sub


def holonomic_rows(system: System, frame: Frames) -> list:
    """J: for each row [(dof, coefficient), ...]. Empty if holonomic rows are disabled."""
    prescribed = [[(dof, 1.0)] for dof, _ in _prescribed(system)]
    return [*_coupling_rows(system), *prescribed, *(loop_rows(system, frame) if active(system) else [])]


def has_holonomic_rows(topology: Topology) -> bool:
    """Whether the model has holonomic rows, and they are enabled."""
    return "holonomic" in topology.constraint_kinds and bool(topology.couplings or topology.motions or topology.constraints)


def holonomic_rates(system: System, frame: Frames, q, v) -> list:
    """The second time derivative of every constraint error at zero generalized acceleration: (dJ/dt) v, minus prescribed accelerations."""
    prescribed = [neg(system.functions.targets[target][2]) for _, target in _prescribed(system)]
    return [0.0] * len(_coupling_rows(system)) + prescribed + (loop_rates(system, frame, q, v) if active(system) else [])


def holonomic_drifts(system: System, frame: Frames) -> list:
    """The time derivative of every constraint error at zero velocity: minus prescribed velocities."""
    prescribed = [neg(system.functions.targets[target][1]) for _, target in _prescribed(system)]
    return [0.0] * len(_coupling_rows(system)) + prescribed + (loop_drifts(system, frame) if active(system) else [])


def _prescribed(system: System):
    """(dof, target) of the coordinates whose motion is prescribed."""
    return system.topology.motions if "holonomic" in system.topology.constraint_kinds else ()


def holonomic_errors(system: System, frame: Frames, q) -> list:
    """The constraint errors: for each row the number that the constraint sets to zero, m or rad."""
    address = coordinate_addresses(system.topology)
    targets = [(q[address[dof][1]], system.functions.targets[target][0]) for dof, target in _prescribed(system)]
    prescribed = [0.0 if target is None else sub(x, target) for x, target in targets]
    return [*_coupling_errors(system, q), *prescribed, *(loop_errors(system, frame) if active(system) else [])]


def _coupling_rows(system: System) -> list:
    if "holonomic" not in system.topology.constraint_kinds:
        return []
    pairs = zip(system.topology.couplings, system.coupling.multiplier, strict=True)
    return [[(follower, 1.0), (leader, neg(m))] for (follower, leader), m in pairs]


@stage
def _coupling_error(follower, leader, multiplier, offset, reference):
    return sub(follower, add(mul(multiplier, sub(leader, reference)), offset))


def _coupling_errors(system: System, q) -> list:
    if not _coupling_rows(system):
        return []
    address = coordinate_addresses(system.topology)
    c = system.coupling
    return [
        _coupling_error(q[address[follower][1]], q[address[leader][1]], m, o, r)
        for (follower, leader), m, o, r in zip(system.topology.couplings, c.multiplier, c.offset, c.reference, strict=True)
    ]


@stage
def _row_acceleration(error, rate, dt):
    return mul(neg(add(mul(error, 1.0 / dt), rate)), 1.0 / dt)


def row_accelerations(system: System, q, v) -> list:
    """For each row, the second time derivative of its constraint error that the semi-implicit Euler step shall have.

    Of a coupling: its error is zero after the step. Of a drive that prescribes a speed but no position: it has that speed after the step.
    Of
    all others: zero."""
    couplings = zip(_coupling_errors(system, q), _coupling_rows(system), strict=True)
    out = [_row_acceleration(error, rate(row, v), system.option.dt) for error, row in couplings]
    if not any(position is None for position, *_ in system.functions.targets) or "holonomic" not in system.topology.constraint_kinds:
        return out
    for dof, target in _prescribed(system):
        position, speed, _ = system.functions.targets[target]
        out.append(_speed_correction(sub(v[dof], speed), system.option.dt) if position is None else 0.0)
    frame = frames(system, q)
    rows = zip(loop_rows(system, frame), loop_drifts(system, frame), strict=True)
    for info in system.topology.constraints:
        has_speed_only = info.driven and system.functions.targets[info.target][0] is None
        for _ in info.rows:
            row, drift = next(rows)
            out.append(_speed_correction(add(rate(row, v), drift), system.option.dt) if has_speed_only else 0.0)
    return out


@stage
def _speed_correction(rate, dt):
    return mul(neg(rate), 1.0 / dt)


def rate(row, v):
    """J v of one row [(dof, coefficient), ...]."""
    out = 0.0
    for dof, coefficient in row:
        out = add(out, mul(coefficient, v[dof]))
    return out
