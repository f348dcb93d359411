"""Everything that can be computed at a state: poses, velocities, accelerations, forces, sensors."""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import activation_rates, effort
from xsim.dynamics.actuation.commands import PRESCRIBED, drive, split_controls
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.call import Call, compiled
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_forces
from xsim.dynamics.constraints.holonomic import has_rows
from xsim.dynamics.constraints.narrowphase import find_contacts
from xsim.dynamics.constraints.soft_set import Constraints, constraints, has_soft
from xsim.dynamics.forces.elements import element_force
from xsim.dynamics.forces.passive import passive_force, quadratic
from xsim.dynamics.integration.equation import EquationOfMotion, Solved, acceleration
from xsim.dynamics.integration.impulses import rows as impulse_rows
from xsim.dynamics.integration.integrators import Health, Moving, implicit_force, step_velocity
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
    return acceleration(EquationOfMotion(c.system, c.q, c.v, driven.tau, *inputs, hold=driven.hold, soft=soft))


def total_acceleration(c: Call, soft: Constraints | None) -> Solved:
    """The acceleration under everything that acts; soft: the soft constraints."""
    if not impulse_rows(c.system.topology):
        return smooth(c, soft)
    zero = jnp.zeros((), c.dtype)
    change = step_velocity(c.system, Moving(c.q, c.v, c.act, zero, Health(zero, zero, zero, zero)), c.tau, c.ctrl)
    a = [(new - old) / c.system.option.dt for new, old in zip(change.v, c.v, strict=True)]
    return Solved(a, [], change.pivot, change.solved, change.overflow, change.early)


@compiled
def forward(model: Model, state: State, ctrl=None, tau=None) -> Data:
    """Everything that can be computed at a state. tau: generalized force (*batch, nv), ctrl: commands (*batch, nu).

    See `Data` for what comes back; its acceleration is that of `forward_dynamics`."""
    c = Call(model, state.q, state.v, tau, ctrl=ctrl, time=state.time, act=state.act, mocap=state.mocap)
    system = c.system
    frame = kin.frames(system, c.q)
    found = find_contacts(system, frame) if has_contacts(system.topology) else []
    soft = constraints(system, c.q, c.v, found)
    solved = total_acceleration(c, soft)
    a, soft = solved.a, solved.soft or soft
    own, velocity = kin.velocities(system, frame, c.v)
    accelerated = kin.accelerations(system, frame, c.q, c.v, a, own, velocity)
    poses = kin.body_poses(system, frame)
    lin, ang = kin.body_velocities(system, frame, velocity)
    lin_acc, ang_acc = kin.body_accelerations(system, frame, velocity, accelerated)
    damping = quadratic(system, frame, system.dof.damping, "damper")
    finite = jnp.isfinite(c.join(a)).all(-1)
    flags = jnp.where(finite, 0, Flags.DIVERGED) | jnp.where(c.join(solved.pivot, 0) == 0, Flags.SINGULAR, 0)
    flags = flags | jnp.where(c.join(solved.found, 0) == 0, Flags.UNSOLVED, 0)
    flags = flags | jnp.where(c.join(solved.overflow, 0) == 1, Flags.CONTACT_OVERFLOW, 0)
    inertia = kin.link_inertias(system, frame)
    bias = kin.inverse_dynamics(system, frame, inertia, c.q, c.v)
    tendon = tendons(system, frame, c.q)
    passive = passive_force(system, frame, c.q, c.v, damping, tendon)
    tau = drive(system, c.v, c.tau, c.ctrl).tau
    zero = [0.0] * model.nv
    controls = split_controls(system.topology, c.ctrl).actuators
    actuator = None
    if system.topology.actuators:
        actuator = effort(system, frame, c.v, c.act, controls, transmissions(system, frame, c.q, tendon))
    driven = zero if actuator is None else actuator.tau
    element = element_force(system, frame, c.q, c.v) if system.topology.forces else zero
    split = c.lanes.split
    views, magnetic = _views(model, c.lanes), split(model.medium.magnetic, 2)
    time = split(jnp.asarray(state.time, c.dtype), 0)
    context = SensorContext(
        system, frame, c.q, c.v, solved.early, time, velocity, accelerated, actuator, views[0], magnetic[0] if magnetic else None, found,
        contact_forces(soft.cones, solved.early) if found and soft is not None else (), None if soft is None else soft.rows,
    )  # fmt: skip
    sensor = sense(context)
    rows, residual = zero, jnp.zeros(())
    constrained = impulse_rows(system.topology) or has_rows(system.topology) or has_soft(system.topology)
    if constrained or set(PRESCRIBED).intersection(system.topology.drives):
        loads = quadratic(system, frame, system.dof.armature, "armature").times(a)
        force = kin.inertial_force(system, frame, inertia, a)
        rows = [f + x + b - p - t - e - u for f, x, b, p, t, e, u in zip(force, loads, bias, passive, tau, element, driven, strict=True)]
        if impulse_rows(system.topology):
            rows = [a + b for a, b in zip(rows, implicit_force(system, frame, c.q, c.v, a), strict=True)]
        elif soft is not None and not solved.multipliers:
            residual = _residual(soft, solved.early, rows, bias)
    pushes = [(f.lin, vsub(f.ang, cross(pose.pos, f.lin))) for f, pose in zip(context.pushes, poses, strict=True)]
    return Data(
        pos=c.rows([p.pos for p in poses], 3),
        quat=c.rows([p.quat for p in poses], 4),
        lin=c.rows(lin, 3),
        ang=c.rows(ang, 3),
        lin_acc=c.rows(lin_acc, 3),
        ang_acc=c.rows(ang_acc, 3),
        a=c.join(a),
        bias=c.join(bias),
        passive=c.join(passive),
        tau=c.join(tau),
        actuator=c.join(driven),
        actuator_force=c.join([] if actuator is None else actuator.force),
        actuator_length=c.join([] if actuator is None else actuator.length),
        act_rate=c.join(activation_rates(system, c.act, controls)),
        element=c.join(element),
        constraint=c.join(rows),
        external_force=c.rows([push for push, _ in pushes], 3),
        external_moment=c.rows([moment for _, moment in pushes], 3),
        residual=c.join(residual, 0),
        sensor=c.join(sensor),
        flags=flags.astype(jnp.int32),
    )


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


def _views(model: Model, lanes: Lanes) -> tuple:
    """Places of cameras and lights in their bodies, as components."""
    split = lanes.split
    camera, light = model.camera, model.light
    return Camera(split(camera.pos, 2), split(camera.quat, 2)), Light(split(light.pos, 2), split(light.dir, 2))
