"""Forward evaluation of a state: poses, velocities, accelerations, forces, sensors."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import ActuatorForces, TransmissionMotion, activation_rates, actuator_forces
from xsim.dynamics.actuation.commands import PRESCRIBED, apply_commands, split_controls
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.call import Call, compiled, llvm_or_xla
from xsim.dynamics.compiled_query import compiled_query
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_forces
from xsim.dynamics.constraints.holonomic import has_holonomic_rows
from xsim.dynamics.constraints.narrowphase import Detection, detect_contacts
from xsim.dynamics.constraints.soft_set import Constraints, has_soft, with_cones
from xsim.dynamics.forces.armature import armature_matrix, with_armature_bias
from xsim.dynamics.forces.elements import element_force
from xsim.dynamics.forces.passive import damping_matrix, passive_force
from xsim.dynamics.integration.equation import EXPLICIT, EquationOfMotion, Solved, acceleration, required_force, with_contacts
from xsim.dynamics.integration.impulses import impulse_rows
from xsim.dynamics.integration.integrators import Health, StateComponents, StepInputs, implicit_force, step_velocity
from xsim.dynamics.integration.velocity_stepping import constraints_of_step
from xsim.dynamics.layout import Lanes
from xsim.dynamics.sensors.sensing import SensorContext, sense
from xsim.dynamics.sensors.sensor_history import has_sensor_history, readings, with_readings
from xsim.dynamics.sharding import Inputs, chunked, common_batch, mesh_of
from xsim.dynamics.tendons.tendons import LengthAndJacobian, tendons
from xsim.dynamics.tree import kinematics as kin
from xsim.model.data import Data
from xsim.model.model import Camera, Flags, Light, Model, State
from xsim.registry import INTEGRATORS
from xsim.spatial import cross, stage, vsub


def _equation(c: Call, soft: Constraints | None) -> EquationOfMotion:
    commands = apply_commands(c.system, c.v, c.tau, c.ctrl)
    inputs = tuple(c.act), tuple(split_controls(c.system.topology, c.ctrl).actuators)
    integrator = INTEGRATORS[c.system.topology.integrator]
    implicit = integrator.implicit(c.system) if integrator.by_step else EXPLICIT
    return EquationOfMotion(c.system, c.q, c.v, commands.tau, *inputs, implicit, commands.prescribed, soft=soft)


def soft_constraints(c: Call, detection: Detection | None = None) -> Constraints | None:
    """The soft constraints of a call. detection: see `soft_set.constraints`."""
    return constraints_of_step(c.system, c.q, c.v, c.act, split_controls(c.system.topology, c.ctrl).actuators, detection)


def smooth(c: Call, soft: Constraints | None = None) -> Solved:
    """The solution of the equation of motion under smooth forces and soft constraints."""
    return acceleration(_equation(c, soft))


def total_acceleration(c: Call, soft: Constraints | None) -> Solved:
    """The acceleration under all forces and constraints. With impulses it is the mean acceleration over one step.

    soft: the soft constraints, None without."""
    if not impulse_rows(c.system.topology):
        return smooth(c, soft)
    zero = jnp.zeros((), c.dtype)
    state = StateComponents(c.q, c.v, c.act, zero, Health(zero, zero, zero, zero))
    new = step_velocity(c.system, state, StepInputs(c.tau, c.ctrl))
    a = [(after - before) / c.system.option.dt for after, before in zip(new.v, c.v, strict=True)]
    return Solved(a, [], new.pivot, new.converged, new.overflow, new.explicit_a)


@compiled
def forward(model: Model, state: State, ctrl=None, tau=None) -> Data:
    """Everything that can be computed at a state: see `Data`. Its acceleration is that of `forward_dynamics`.

    ctrl: (*batch, nu) controls. tau: (*batch, nv) generalized forces, N or N m. Raises ValueError for a wrong width.
    """
    return evaluate(model, state, ctrl, tau)[0]


def evaluate(model: Model, state: State, ctrl=None, tau=None) -> tuple[Data, jax.Array | None]:
    """See `forward`. Second: `State.history` with the measurements of the sensors (*batch, nhistory), None without such sensors.

    By machine code where the compiler is LLVM, else by XLA."""

    def by_llvm():
        inputs = Inputs(*(None if x is None else jnp.asarray(x, state.q.dtype)[None] for x in (ctrl, tau)))
        size = math.prod(common_batch(model, state, inputs))
        run = _llvm_data if mesh_of(size) is None else functools.partial(chunked, _llvm_data, size)
        return run(model, state, inputs, 1, None, False)[0]

    if jax.config.jax_disable_jit:
        return _evaluate(model, state, ctrl, tau)
    return llvm_or_xla("the query", by_llvm, lambda: _evaluate(model, state, ctrl, tau))


def _llvm_data(model: Model, state: State, inputs: Inputs, *_):
    """What `evaluate` returns, in the place of the final state of steps that `chunked` divides among devices."""
    ctrl, tau = (None if x is None else x[0] for x in inputs)
    return compiled_query(_evaluate, model, {"state": state, "ctrl": ctrl, "tau": tau}), None


def with_sensor_history(model: Model, before: State, after: State, ctrl, tau) -> State:
    """The state after a step, with what the sensors with a history measure at the state before it."""
    infos = [info for info in model.topology.sensors if info.history is not None]
    if not infos:
        return after
    numbers = evaluate(model, before, ctrl, tau)[1]
    first = min(info.history.address for info in infos)
    return after.replace(history=jnp.concatenate([after.history[..., :first], numbers[..., first:]], -1))


def _evaluate(model: Model, state: State, ctrl=None, tau=None) -> tuple[Data, jax.Array | None]:
    c = Call.of_state(model, state, ctrl, tau)
    frame = kin.frames(c.system, c.q)
    detection = detect_contacts(c.system, frame, c.v) if has_contacts(model.topology) else None
    contacts = [] if detection is None else detection.contacts
    soft = soft_constraints(c, detection)
    solved = total_acceleration(c, soft)
    soft = None if soft is None else with_cones(c.system, frame, c.v, solved.soft or soft, contacts)
    motion = _link_motion(c, frame, solved)
    forces = _smooth_forces(c, frame, motion, soft)
    sensors = _sensor_context(c, state, frame, motion, forces.actuators, contacts, soft, solved)
    constraint, residual = _constraint_force(c, frame, motion, forces, soft, solved)
    sensor, history = _readings(c, sense(sensors), sensors.time)
    data = Data(
        **_body_motion(c, frame, motion, sensors.poses),
        a=c.join(solved.a),
        **_generalized_forces(c, forces, constraint),
        **_external_wrenches(c, sensors),
        residual=c.join(residual, 0),
        sensor=c.join(sensor),
        flags=_flags(c, solved),
    )
    return data, history


def _readings(c: Call, values: list, time) -> tuple[list, jax.Array | None]:
    """What the sensors say, and `State.history` with what they measure. values: measured now."""
    top = c.model.topology
    if not has_sensor_history(top) or c.history is None:
        return values, None
    delays, dt = c.lanes.split(c.model.sensor.delay, 1), c.system.option.dt
    history = c.join(with_readings(top, c.history, time, dt, values))
    return readings(top, delays, c.history, time, dt, values), history


class LinkMotion(NamedTuple):
    """Per link: inertia, spatial velocity and acceleration about the reference point of its tree."""

    inertia: list
    velocity: list
    acceleration: list


def _link_motion(c: Call, frame: kin.Frames, solved: Solved) -> LinkMotion:
    joint_velocity, velocity = kin.velocities(c.system, frame, c.v)
    acceleration = kin.accelerations(c.system, frame, c.q, c.v, solved.a, joint_velocity, velocity)
    return LinkMotion(kin.link_inertias(c.system, frame), velocity, acceleration)


class SmoothForces(NamedTuple):
    """Smooth generalized forces (nv components each), and the actuators.

    * bias: Coriolis, centrifugal and gravity force.
    * passive: springs, dampers, fluid, adhesion and passive contacts.
    * tau: applied force and commanded forces.
    * element: springs, dampers and bushings between bodies.
    * actuator: generalized force of the actuators.
    * actuators: their lengths, velocities and forces, None for a model without actuators.
    * controls: controls of the actuators.
    """

    bias: list
    passive: list
    tau: list
    element: list
    actuators: ActuatorForces | None
    actuator: list
    controls: list


def _smooth_forces(c: Call, frame: kin.Frames, motion: LinkMotion, soft: Constraints | None) -> SmoothForces:
    system, top, zero = c.system, c.system.topology, [0.0] * len(c.v)
    tendon = tendons(system, frame, c.q)
    actuators = forces_of_actuators(c, frame, tendon)
    passive = passive_force(system, frame, c.q, c.v, damping_matrix(system, frame, c.v), tendon)
    return SmoothForces(
        bias=with_armature_bias(system, frame, c.q, c.v, kin.inverse_dynamics(system, frame, motion.inertia, c.q, c.v)),
        passive=with_contacts(system, frame, c.v, soft, passive),
        tau=apply_commands(system, c.v, c.tau, c.ctrl).tau,
        element=element_force(system, frame, c.q, c.v) if top.forces else zero,
        actuators=actuators,
        actuator=zero if actuators is None else actuators.tau,
        controls=split_controls(top, c.ctrl).actuators,
    )


def forces_of_actuators(c: Call, frame: kin.Frames, tendon: list[LengthAndJacobian]) -> ActuatorForces | None:
    """The actuators of a call: lengths, velocities and forces. None for a model without actuators."""
    if not c.system.topology.actuators:
        return None
    controls = split_controls(c.system.topology, c.ctrl).actuators
    return actuator_forces(c.system, frame, c.v, c.act, controls, transmissions(c.system, frame, c.q, tendon))


def _sensor_context(
    c: Call, state: State, frame: kin.Frames, motion: LinkMotion, actuators: ActuatorForces | None, contacts: list,
    soft: Constraints | None, solved: Solved,
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
        actuator_forces=actuators,
        views=split_views(c.model, c.lanes)[0],
        magnetic=magnetic[0] if magnetic else None,
        contacts=contacts,
        contact_forces=contact_forces(contacts, () if soft is None else soft.cones, solved.explicit_a),
        rows=None if soft is None else soft.rows,
    )


def _constraint_force(
    c: Call, frame: kin.Frames, motion: LinkMotion, forces: SmoothForces, soft: Constraints | None, solved: Solved
) -> tuple:
    """Generalized force of all constraints (inverse dynamics minus smooth forces), and `Data.residual`."""
    system, top, residual = c.system, c.system.topology, jnp.zeros(())
    constrained = impulse_rows(top) or has_holonomic_rows(top) or has_soft(top)
    if not constrained and not set(PRESCRIBED).intersection(top.drives):
        return [0.0] * len(c.v), residual
    inertial = kin.inertial_force(system, frame, motion.inertia, solved.a)
    armature = armature_matrix(system, frame).times(solved.a)
    terms = (inertial, armature, forces.bias, forces.passive, forces.tau, forces.element, forces.actuator)
    if INTEGRATORS[top.integrator].by_step:
        assert solved.explicit_a is not None
        force = required_force(_equation(c, soft), solved.explicit_a)
    else:
        force = [f + x + b - p - t - e - u for f, x, b, p, t, e, u in zip(*terms, strict=True)]
    if impulse_rows(top):
        force = [a + b for a, b in zip(force, implicit_force(system, frame, c.q, c.v, solved.a), strict=True)]
    elif soft is not None and not solved.multipliers:
        residual = _residual(soft, solved.explicit_a, force, terms)
    return force, residual


def _body_motion(c: Call, frame: kin.Frames, motion: LinkMotion, poses: list) -> dict:
    """Fields of `Data`: poses, velocities and accelerations of the bodies."""
    lin, ang = kin.body_velocities(c.system, frame, motion.velocity)
    lin_acc, ang_acc = kin.body_accelerations(c.system, frame, motion.velocity, motion.acceleration)
    vectors = {"pos": [p.pos for p in poses], "lin": lin, "ang": ang, "lin_acc": lin_acc, "ang_acc": ang_acc}
    return {"quat": c.rows([p.quat for p in poses], 4), **{name: c.rows(x, 3) for name, x in vectors.items()}}


def _generalized_forces(c: Call, forces: SmoothForces, constraint: list) -> dict:
    """Fields of `Data`: generalized forces and actuators."""
    actuators = forces.actuators
    motion = None if actuators is None else TransmissionMotion(actuators.length, actuators.velocity)
    return {
        "bias": c.join(forces.bias),
        "passive": c.join(forces.passive),
        "tau": c.join(forces.tau),
        "actuator": c.join(forces.actuator),
        "actuator_force": c.join([] if actuators is None else actuators.force),
        "actuator_length": c.join([] if actuators is None else actuators.length),
        "act_rate": c.join(activation_rates(c.system, c.act, forces.controls, motion)),
        "element": c.join(forces.element),
        "constraint": c.join(constraint),
    }


def _external_wrenches(c: Call, sensors: SensorContext) -> dict:
    """Fields of `Data`: wrench of `SensorContext.external_forces` on each body, with the moment about the origin of its frame."""
    moments = [vsub(f.ang, cross(pose.pos, f.lin)) for f, pose in zip(sensors.external_forces, sensors.poses, strict=True)]
    return {"external_force": c.rows([f.lin for f in sensors.external_forces], 3), "external_moment": c.rows(moments, 3)}


def _flags(c: Call, solved: Solved):
    """The flags that this evaluation sets."""
    flags = jnp.where(jnp.isfinite(c.join(solved.a)).all(-1), 0, Flags.DIVERGED)
    flags = flags | jnp.where(c.join(solved.pivot, 0) == 0, Flags.SINGULAR, 0)
    flags = flags | jnp.where(c.join(solved.converged, 0) == 0, Flags.UNSOLVED, 0)
    return (flags | jnp.where(c.join(solved.overflow, 0) == 1, Flags.CONTACT_OVERFLOW, 0)).astype(jnp.int32)


@stage
def _residual(soft: Constraints, a, required, terms):
    """Largest difference between the constraint force that inverse dynamics requires and that of the soft constraints at acceleration a,
    relative to the largest force of a dof: a term of its equation of motion, or the sum of the magnitudes of the constraints' forces."""
    a = jnp.stack(list(a))
    soft = soft.fitted(a.shape[1:])
    forces = soft.force(soft.at(a))
    error = jnp.stack([jnp.abs(x - y) for x, y in zip(required, soft.jt_times(forces), strict=True)]).max(0)
    terms = (required, soft.jt_magnitudes(forces), *terms)
    scale = jnp.stack([jnp.broadcast_to(jnp.abs(x), error.shape) for part in terms for x in part]).max(0)
    return error / jnp.where(scale > 0, scale, 1.0)


def sensors(model: Model, state: State, ctrl=None, tau=None):
    """Readings of all sensors at a state (*batch, nsensordata), without noise. `Topology.sensors` has the address of each sensor."""
    return forward(model, state, ctrl, tau).sensor


def split_views(model: Model, lanes: Lanes) -> tuple:
    """Poses of cameras and lights in their bodies, as components."""
    split = lanes.split
    camera, light = model.camera, model.light
    return Camera(split(camera.pos, 2), split(camera.quat, 2)), Light(split(light.pos, 2), split(light.dir, 2))
