"""The largest effort of a joint: what drives it, and what of that URDF cannot say."""

from __future__ import annotations

import numpy as np

from xsim.io.errors import Losses
from xsim.io.writing.chains import Link
from xsim.spec import ActuatorSpec, ModelSpec

__all__ = ["JOINTS", "is_motor", "largest_effort"]

JOINTS = ("joint", "jointinparent")
"""Transmissions of actuators whose target is a joint: the numbers of its body and of the joint in it."""


def largest_effort(spec: ModelSpec, body: int, link: Link, losses: Losses) -> float:
    """N or N m, infinite without a bound, 0 for a joint that nothing drives. Raises WriteError for commands that are no forces."""
    joint, name = link.joint, f"joint {link.joint.name or spec.bodies[body].name!r}"
    if joint.actuator not in ("force", "passive"):
        text = f"actuator {joint.actuator!r}; URDF has joints that are driven by forces"
        losses.lose(joint.source, name, text, "one that is driven by a force is written")
    bounds = []
    if joint.force_range is not None:
        bounds.append(_both_ways(np.asarray(joint.force_range, float)[link.v][0], name, joint.source, losses))
    motors = [a for a in spec.actuators if a.transmission in JOINTS and a.target == (body, link.place)]
    if joint.actuator == "passive" and not motors:
        return 0.0
    if motors:
        bounds.append(sum(_largest_force(motor) for motor in motors))
    if joint.actuator_force_range is not None:
        bounds.append(_both_ways(joint.actuator_force_range, name, joint.source, losses))
    return float(min(bounds, default=np.inf))


def _both_ways(bounds, name: str, source, losses: Losses) -> float:
    lower, upper = bounds
    if lower != -upper:
        losses.lose(source, name, f"forces from {lower:g} to {upper:g}; URDF has one largest force", "the larger one is written")
    return max(-lower, upper)


def _largest_force(actuator: ActuatorSpec) -> float:
    """Of what an actuator does to its joint: by the bounds of its control where it is a motor, and by those of its force."""
    gear, bounds = abs(float(actuator.gear[0])), [np.inf]
    if actuator.ctrl_range is not None and is_motor(actuator):
        bounds.append(abs(float(actuator.gain_params[0])) * np.abs(actuator.ctrl_range).max())
    if actuator.force_range is not None:
        bounds.append(np.abs(actuator.force_range).max())
    return gear * float(min(bounds))


def is_motor(actuator: ActuatorSpec) -> bool:
    """Whether the force is the control times a number."""
    plain = (actuator.dynamics, actuator.gain, actuator.bias, actuator.controller) == ("none", "fixed", "none", None)
    return plain and actuator.transmission in JOINTS and not (actuator.armature or actuator.damping or actuator.damping_poly)
