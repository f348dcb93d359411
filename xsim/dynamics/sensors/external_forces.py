"""Forces on bodies that sensors of forces and torques see beside inertial forces: of contacts, connects, welds and spatial tendons."""

from __future__ import annotations

import jax

from xsim.dynamics.constraints.contact_rows import body_wrenches
from xsim.dynamics.forces.tension import smooth_tendon_forces
from xsim.dynamics.tendons.tendons import tendon_wrenches
from xsim.dynamics.tree.frames import Wrench
from xsim.spatial import ZERO3, Force, add, cross, madd, mul, scale, stage, vadd


def external_forces(context) -> list[Force]:
    """For each body, the force on it about the world's origin (MuJoCo's cfrc_ext). In MuJoCo 3.2 it is without tendons.
    context: SensorContext."""
    system = context.system
    out = [Force(ZERO3, ZERO3)] * len(system.body.inertia)
    for constraint in context.constraint_forces:
        if constraint.row.wrench is not None:
            _add_wrench(out, constraint.row.wrench, constraint.force)
    if system.topology.switches.tendons_in_force_sensors and any(info.kind == "spatial" for info in system.topology.tendons):
        forces = _tendon_forces(context)
        for i, wrenches in tendon_wrenches(system, context.frame).items():
            for wrench in wrenches:
                _add_wrench(out, wrench, forces[i])
    if context.contacts:
        for i, wrench in enumerate(body_wrenches(system, list(context.contacts), list(context.contact_forces))):
            force, moment = jax.tree.map(lambda x: x[0], wrench) if not context.lanes else wrench
            out[i] = madd(out[i], Force(moment, force))
    return out


def _tendon_forces(context) -> list:
    """The force of each tendon along its length, N, negative where it pulls. Of fixed tendons without their armature."""
    actuators = [] if context.actuator_forces is None else context.actuator_forces.force
    motion = context.velocity, context.acceleration
    out = smooth_tendon_forces(context.system, context.frame, context.tendons, context.v, actuators, *motion)
    for constraint in context.constraint_forces:
        for i, coefficient in constraint.row.tendons:
            out[i] = add(out[i], mul(coefficient, constraint.force))
    return out


def _add_wrench(forces: list, wrench: Wrench, factor) -> None:
    """Add a force to those on its two bodies. wrench: of a unit force."""
    for body, point, sign in zip(wrench.bodies, wrench.points, (1.0, -1.0), strict=True):
        if body >= 0:
            forces[body] = _with_wrench(forces[body], point, wrench.force, wrench.moment, mul(sign, factor))


@stage
def _with_wrench(total: Force, point, force, moment, factor) -> Force:
    scaled_force = scale(force, factor)
    return madd(total, Force(vadd(cross(point, scaled_force), scale(moment, factor)), scaled_force))
