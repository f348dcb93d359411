"""Forces of spatial tendons on bodies."""

from __future__ import annotations

from xsim.dynamics.forces.armature import tendon_armatures
from xsim.dynamics.tendons.tendons import LengthAndJacobian, passive_tendon_forces, unwrapped_drift
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg


def smooth_tendon_forces(
    system: System, frame: Frames, tendon: list[LengthAndJacobian], v, actuators: list, velocity: list, acceleration: list
) -> list:
    """The force of each tendon along its length, N, negative where it pulls: of its spring, damper, actuators and armature.

    actuators: the forces of all actuators, N. velocity, acceleration: spatial velocities and accelerations of the links."""
    disabled = "passive" in system.topology.disabled
    out = [0.0] * len(tendon) if disabled else passive_tendon_forces(system, tendon, v)
    for info, gear in zip(system.topology.actuators, system.actuator.gear, strict=True):
        if info.transmission == "tendon" and info.enabled:
            out[info.target] = add(out[info.target], mul(gear[0], actuators[info.output]))
    for i, armature in tendon_armatures(system).items():
        if system.topology.tendons[i].kind == "spatial":
            # With the accelerations of the links, it is the second derivative of the length.
            out[i] = add(out[i], neg(mul(armature, unwrapped_drift(system, frame, i, velocity, acceleration))))
    return out
