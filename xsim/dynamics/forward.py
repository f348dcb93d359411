"""Everything that can be computed at a state: poses, velocities, accelerations, forces, sensors."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import Effort, activation_rates
from xsim.dynamics.actuation.actuation import effort as actuator_effort
from xsim.dynamics.actuation.commands import PRESCRIBED, drive, split_controls
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.call import Call, compiled
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_forces
from xsim.dynamics.constraints.holonomic import has_holonomic_rows
from xsim.dynamics.constraints.narrowphase import find_contacts
from xsim.dynamics.constraints.soft_set import Constraints, constraints, has_soft
from xsim.dynamics.forces.elements import element_force
from xsim.dynamics.forces.passive import passive_force, quadratic
from xsim.dynamics.integration.equation import EquationOfMotion, Solved, acceleration
from xsim.dynamics.integration.impulses import rows as impulse_rows
from xsim.dynamics.integration.integrators import Health, StateComponents, implicit_force, step_velocity
from xsim.dynamics.layout import Lanes
from xsim.dynamics.sensors.sensing import SensorContext, sense
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree import kinematics as kin
from xsim.model.model import Camera, Data, Flags, Light, Model, State
from xsim.spatial import cross, stage, vsub


def smooth(c: Call, soft: Constraints | None = None) -> Solved:
    """The solution of the equation of motion under smooth forces and soft constraints."""
    driven = drive(c.system, c.v, c.tau, c.ctrl)
    inputs = tuple(c.act), tuple(split_controls(c.system.topology, c.ctrl).actuators)
    return acceleration(EquationOfMotion(c.system, c.q, c.v, driven.tau, *inputs, prescribed=driven.prescribed, soft=soft))


def total_acceleration(c: Call, soft: Constraints | None) -> Solved:
    """The acceleration under everything that acts; soft: the soft constraints."""
    if not impulse_rows(c.system.topology):
        return smooth(c, soft)
    zero = jnp.zeros((), c.dtype)
    change = step_velocity(c.system, StateComponents(c.q, c.v, c.act, zero, Health(zero, zero, zero, zero)), c.tau, c.ctrl)
    a = [(new - old) / c.system.option.dt for new, old in zip(change.v, c.v, strict=True)]
    return Solved(a, [], change.pivot, change.solved, change.overflow, change.explicit_a)


@compiled
def forward(model: Model, state: State, ctrl=None, tau=None) -> Data:
    """Everything that can be computed at a state. tau: generalized force (*batch, nv), ctrl: commands (*batch, nu).

    See `Data` for what comes back; its acceleration is that of `forward_dynamics`."""
    c = Call.of_state(model, state, ctrl, tau)
    frame = kin.frames(c.system, c.q)
    contacts = find_contacts(c.system, frame) if has_contacts(model.topology) else []
    soft = constraints(c.system, c.q, c.v, contacts)
    solved = total_acceleration(c, soft)
    soft = solved.soft or soft
    motion = _link_motion(c, frame, solved)
    forces = _smooth_forces(c, frame)
    sensors = _sensor_context(c, state, frame, motion, forces.effort, contacts, soft, solved)
    constraint, residual = _constraint_force(c, frame, forces, soft, solved)
    return Data(
        **_body_motion(c, frame, motion),
        a=c.join(solved.a),
        **_generalized_forces(c, forces, constraint),
        **_external_wrenches(c, frame, sensors),
        residual=c.join(residual, 0),
        sensor=c.join(sense(sensors)),
        flags=_flags(c, solved),
    )


class LinkMotion(NamedTuple):
    """Per link: spatial velocity and acceleration about the reference point of its tree."""

    velocity: list
    acceleration: list


def _link_motion(c: Call, frame: kin.Frames, solved: Solved) -> LinkMotion:
    joint_velocity, velocity = kin.velocities(c.system, frame, c.v)
    return LinkMotion(velocity, kin.accelerations(c.system, frame, c.q, c.v, solved.a, joint_velocity, velocity))


class SmoothForces(NamedTuple):
    """Generalized forces, (nv) each. effort: of the actuators, None where there are none; act: their activations' controls."""

    bias: list
    passive: list
    tau: list
    element: list
    effort: Effort | None
    actuator: list
    controls: list


def _smooth_forces(c: Call, frame: kin.Frames) -> SmoothForces:
    system, top, zero = c.system, c.system.topology, [0.0] * len(c.v)
    tendon = tendons(system, frame, c.q)
    damping = quadratic(system, frame, system.dof.damping, "damper")
    controls = split_controls(top, c.ctrl).actuators
    effort = None
    if top.actuators:
        effort = actuator_effort(system, frame, c.v, c.act, controls, transmissions(system, frame, c.q, tendon))
    return SmoothForces(
        bias=kin.inverse_dynamics(system, frame, kin.link_inertias(system, frame), c.q, c.v),
        passive=passive_force(system, frame, c.q, c.v, damping, tendon),
        tau=drive(system, c.v, c.tau, c.ctrl).tau,
        element=element_force(system, frame, c.q, c.v) if top.forces else zero,
        effort=effort,
        actuator=zero if effort is None else effort.tau,
        controls=controls,
    )


def _sensor_context(
    c: Call, state: State, frame: kin.Frames, motion: LinkMotion, effort: Effort | None, contacts: list, soft: Constraints | None,
    solved: Solved,
) -> SensorContext:  # fmt: skip
    magnetic = c.lanes.split(c.model.medium.magnetic, 2)
    assert solved.explicit_a is not None
    return SensorContext(
        system=c.system,
        frame=frame,
        q=c.q,
        v=c.v,
        explicit_a=solved.explicit_a,
        time=c.lanes.split(jnp.asarray(state.time, c.dtype), 0),
        velocity=motion.velocity,
        acceleration=motion.acceleration,
        effort=effort,
        views=split_views(c.model, c.lanes)[0],
        magnetic=magnetic[0] if magnetic else None,
        contacts=contacts,
        contact_forces=contact_forces(soft.cones, solved.explicit_a) if contacts and soft is not None else [],
        rows=None if soft is None else soft.rows,
    )


def _constraint_force(c: Call, frame: kin.Frames, forces: SmoothForces, soft: Constraints | None, solved: Solved) -> tuple:
    """Generalized force of all constraints, what the motion takes beside the smooth forces; and `Data.residual`."""
    system, top, residual = c.system, c.system.topology, jnp.zeros(())
    constrained = impulse_rows(top) or has_holonomic_rows(top) or has_soft(top)
    if not constrained and not set(PRESCRIBED).intersection(top.drives):
        return [0.0] * len(c.v), residual
    inertial = kin.inertial_force(system, frame, kin.link_inertias(system, frame), solved.a)
    armature = quadratic(system, frame, system.dof.armature, "armature").times(solved.a)
    smooth = zip(inertial, armature, forces.bias, forces.passive, forces.tau, forces.element, forces.actuator, strict=True)
    force = [f + x + b - p - t - e - u for f, x, b, p, t, e, u in smooth]
    if impulse_rows(top):
        force = [a + b for a, b in zip(force, implicit_force(system, frame, c.q, c.v, solved.a), strict=True)]
    elif soft is not None and not solved.multipliers:
        residual = _residual(soft, solved.explicit_a, force, forces.bias)
    return force, residual


def _body_motion(c: Call, frame: kin.Frames, motion: LinkMotion) -> dict:
    """Poses, velocities and accelerations of the bodies: fields of `Data`."""
    poses = kin.body_poses(c.system, frame)
    lin, ang = kin.body_velocities(c.system, frame, motion.velocity)
    lin_acc, ang_acc = kin.body_accelerations(c.system, frame, motion.velocity, motion.acceleration)
    rows = {"pos": [p.pos for p in poses], "lin": lin, "ang": ang, "lin_acc": lin_acc, "ang_acc": ang_acc}
    return {"quat": c.rows([p.quat for p in poses], 4), **{name: c.rows(x, 3) for name, x in rows.items()}}


def _generalized_forces(c: Call, forces: SmoothForces, constraint: list) -> dict:
    """Fields of `Data`."""
    effort = forces.effort
    return {
        "bias": c.join(forces.bias),
        "passive": c.join(forces.passive),
        "tau": c.join(forces.tau),
        "actuator": c.join(forces.actuator),
        "actuator_force": c.join([] if effort is None else effort.force),
        "actuator_length": c.join([] if effort is None else effort.length),
        "act_rate": c.join(activation_rates(c.system, c.act, forces.controls)),
        "element": c.join(forces.element),
        "constraint": c.join(constraint),
    }


def _external_wrenches(c: Call, frame: kin.Frames, sensors: SensorContext) -> dict:
    """What contacts, connects and welds do to each body, the moment about its frame's origin: fields of `Data`."""
    poses = kin.body_poses(c.system, frame)
    moments = [vsub(f.ang, cross(pose.pos, f.lin)) for f, pose in zip(sensors.external_forces, poses, strict=True)]
    return {"external_force": c.rows([f.lin for f in sensors.external_forces], 3), "external_moment": c.rows(moments, 3)}


def _flags(c: Call, solved: Solved):
    """What this evaluation would set in the state."""
    flags = jnp.where(jnp.isfinite(c.join(solved.a)).all(-1), 0, Flags.DIVERGED)
    flags = flags | jnp.where(c.join(solved.pivot, 0) == 0, Flags.SINGULAR, 0)
    flags = flags | jnp.where(c.join(solved.found, 0) == 0, Flags.UNSOLVED, 0)
    return (flags | jnp.where(c.join(solved.overflow, 0) == 1, Flags.CONTACT_OVERFLOW, 0)).astype(jnp.int32)


@stage
def _residual(soft: Constraints, a, rows, bias):
    """Largest difference between what the motion takes of the soft constraints and what they give, beside the largest force."""
    a = jnp.stack(list(a))
    soft = soft.fitted(a.shape[1:])
    wrong = jnp.stack([jnp.abs(x - y) for x, y in zip(rows, soft.jt_times(soft.force(soft.at(a))), strict=True)]).max(0)
    most = jnp.stack([jnp.abs(x) + jnp.abs(y) for x, y in zip(rows, bias, strict=True)]).max(0)
    return wrong / jnp.where(most > 0, most, 1.0)


def sensors(model: Model, state: State, ctrl=None, tau=None):
    """Numbers of all sensors at a state, (*batch, nsensordata); `Topology.sensors` says where each has its own. No noise is added."""
    return forward(model, state, ctrl, tau).sensor


def split_views(model: Model, lanes: Lanes) -> tuple:
    """Places of cameras and lights in their bodies, as components."""
    split = lanes.split
    camera, light = model.camera, model.light
    return Camera(split(camera.pos, 2), split(camera.quat, 2)), Light(split(light.pos, 2), split(light.dir, 2))
