"""Armature and damping of actuators, as the joints and tendons that they drive have it. Source: MuJoCo's documentation, actuator attributes
armature and damping.

An actuator with the gear g (the first number of ``gear``) adds g^2 times its armature to the armature of its tendon, or of each dof of its
joint. The same holds for its damping.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from xsim.dynamics.tree.system import System
from xsim.spatial import Component, add, mul


def with_reflected_armature(system: System) -> System:
    """The system whose joints and tendons have the armature of their actuators, too."""
    dof, tendon = list(system.dof.armature), list(system.tendon.armature)
    for info, ratio, row in _squared_gears(system, "armature"):
        armature = mul(ratio, system.actuator.armature[row])
        if info.transmission == "tendon":
            _add_to(tendon, [system.topology.tendons[info.target].armature], armature)
        else:
            _add_to(dof, _dofs(system, info), armature)
    return system._replace(
        dof=dataclasses.replace(system.dof, armature=tuple(dof)), tendon=dataclasses.replace(system.tendon, armature=tuple(tendon))
    )


def with_reflected_damping(system: System) -> System:
    """The system whose joints and tendons have the damping of their actuators, too."""
    top = system.topology
    dof, joint, tendon = list(system.dof.damping), list(system.joint.damping_poly), list(system.tendon.damping)
    tendon_poly = list(system.tendon.damping_poly)
    for info, ratio, row in _squared_gears(system, "damping"):
        damping = mul(ratio, system.actuator.damping[row])
        _add_to(*((tendon, [info.target]) if info.transmission == "tendon" else (dof, _dofs(system, info))), damping)
    for info, ratio, row in _squared_gears(system, "damping_poly"):
        higher = system.actuator.damping_poly[row]
        target = top.tendons[info.target] if info.transmission == "tendon" else top.bodies[info.target[0]].joints[info.target[1]]
        rows = tendon_poly if info.transmission == "tendon" else joint
        rows[target.damping_poly] = tuple(add(x, mul(ratio, y)) for x, y in zip(rows[target.damping_poly], higher, strict=True))
    return system._replace(
        dof=dataclasses.replace(system.dof, damping=tuple(dof)),
        joint=system.joint._replace(damping_poly=tuple(joint)),
        tendon=dataclasses.replace(system.tendon, damping=tuple(tendon), damping_poly=tuple(tendon_poly)),
    )


def _squared_gears(system: System, leaf: str) -> Iterator[tuple]:
    """(info, squared gear, row of the leaf) of the actuators that have a row of it."""
    for info, gear in zip(system.topology.actuators, system.actuator.gear, strict=True):
        row = getattr(info, leaf)
        if row is not None:
            yield info, mul(gear[0], gear[0]), row


def _dofs(system: System, info) -> range:
    body, joint = info.target
    first, width = system.topology.bodies[body].joints[joint].v
    return range(first, first + width)


def _add_to(values: list, places, x: Component) -> None:
    for i in places:
        values[i] = add(values[i], x)
