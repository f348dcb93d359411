"""Actuator forces from controls and activations. Source: MuJoCo's documentation, Computation, Actuation model."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp

import xsim.dynamics.actuation.dc_motors
import xsim.dynamics.actuation.pid_plugin  # noqa: F401  (both register their controllers)
from xsim.dynamics.actuation.commands import bound, clip
from xsim.dynamics.actuation.controllers import ControllerState, named_numbers
from xsim.dynamics.actuation.laws import ActuatorState
from xsim.dynamics.actuation.orientation import limited_torque, shortest
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.forces.passive import gravity_compensation
from xsim.dynamics.tendons.tendons import LengthAndJacobian, add_row_force, rate, tendons
from xsim.dynamics.tree.kinematics import Frames, frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import ActuatorInfo, Topology
from xsim.registry import ACTIVATION_DYNAMICS, ACTUATOR_BIASES, ACTUATOR_CONTROLLERS, ACTUATOR_GAINS
from xsim.spatial import add, mul, safe_norm, stage


class ActuatorForces(NamedTuple):
    """Per force of actuators: length, velocity (rate of the length) and force. Per dof (nv): tau, the generalized force of all actuators;
    unclamped, the same without the bounds that joints set for it."""

    length: list
    velocity: list
    force: list
    tau: list
    unclamped: list


def clamped_controls(system: System, ctrl) -> list:
    """The controls of the actuators, all inputs of each in turn, clamped to their control ranges."""
    out = list(ctrl)
    if "clampctrl" not in system.topology.disabled:
        for info in system.topology.actuators:
            for i, row in zip(info.controls, info.ctrl_ranges, strict=True):
                if row is not None:
                    out[i] = clip(out[i], *system.actuator.ctrl_range[row])
    return out


@stage
def _nearest_target(target, length, gear):
    """Of the targets of a rotation that whole turns separate, the one nearest to a length. gear: for the rotation, not zero."""
    turn = 2.0 * math.pi * safe_norm(gear)
    error = (target - length) / turn
    return target - turn * jnp.sign(error) * jnp.floor(jnp.abs(error) + 0.5)


def _nearest(system: System, actuator: int, target, length):
    """The target of a periodic actuator that is nearest to a length."""
    gear = system.actuator.gear[actuator]
    return _nearest_target(target, length, tuple(gear[3:6] if system.topology.actuators[actuator].transmission == "site" else gear[:3]))


@stage
def _rate(kind: str, ctrl, act, parameters):
    return ACTIVATION_DYNAMICS[kind].rate(ctrl, act, parameters)


def of_actuator(info: ActuatorInfo, values: list):
    """The entry of an actuator in a list of all forces, or what belongs to them; of an orientation servo a tuple of three."""
    return values[info.output] if len(info.outputs) == 1 else tuple(values[i] for i in info.outputs)


class TransmissionMotion(NamedTuple):
    """Per force of actuators, the length of its transmission (m or rad) and the rate of the length."""

    lengths: list
    velocities: list


def motion_of(transmission: list[LengthAndJacobian], v: list) -> TransmissionMotion:
    """The motion of transmissions."""
    return TransmissionMotion([t.length for t in transmission], [rate(t.row, v) for t in transmission])


def controller_motion(system: System, q: list, v: list) -> TransmissionMotion | None:
    """The motion of the transmissions if a controller with activations reads it, else None."""
    if not any(info.memory for info in system.topology.actuators):
        return None
    frame = frames(system, q)
    return motion_of(transmissions(system, frame, q, tendons(system, frame, q)), v)


def activation_rates(system: System, act, ctrl, motion: TransmissionMotion | None) -> list:
    """d act / dt, 1/s (na). motion: see `controller_motion`."""
    ctrl, out = clamped_controls(system, ctrl), list(act)
    if "actuation" in system.topology.disabled:
        return [0.0 * x for x in act]
    for i, (info, numbers) in enumerate(zip(system.topology.actuators, system.actuator.dynamics, strict=True)):
        if info.memory:
            rates = ACTUATOR_CONTROLLERS[info.controller].rates(_controller_state(system, i, act, ctrl, motion))
            for place, name in zip(info.activations, info.memory, strict=False):
                out[place] = rates[name]
        if info.dynamics != "none":
            place, u = info.activations[-1], ctrl[info.controls[0]]
            if info.periodic and info.dynamics != "integrator":
                u = _nearest(system, i, u, act[place])
            out[place] = _rate(info.dynamics, u, act[place], numbers)
    return out


def _controller_state(system: System, actuator: int, act, ctrl, motion: TransmissionMotion | None) -> ControllerState:
    """ctrl: None for a controller that reads no inputs here."""
    info, a, input_rate = system.topology.actuators[actuator], system.actuator, 0.0
    assert motion is not None
    inputs = {} if ctrl is None else {name: ctrl[i] for name, i in zip(info.inputs, info.controls, strict=True)}
    if inputs and info.dynamics != "none":
        signal = act[info.activations[-1]]
        input_rate = _rate(info.dynamics, inputs[info.inputs[0]], signal, a.dynamics[actuator])
        inputs[info.inputs[0]] = signal
    return ControllerState(
        inputs=inputs,
        memory={name: act[i] for name, i in zip(info.memory, info.activations, strict=False)},
        length=of_actuator(info, motion.lengths),
        velocity=of_actuator(info, motion.velocities),
        gain=a.gain[actuator],
        bias=a.bias[actuator],
        dynamics=a.dynamics[actuator],
        dt=system.option.dt,
        nearest=functools.partial(_nearest, system, actuator) if info.periodic else lambda target, length: target,
        config=named_numbers(ACTUATOR_CONTROLLERS[info.controller].config or {}, a.gain[actuator]),
        time=system.functions.time,
        input_rate=input_rate,
    )


@stage
def _next_activation(kind: str, act, rate, parameters, dt, limits):
    """The activation after dt, clamped to its range."""
    advance = ACTIVATION_DYNAMICS[kind].advance
    out = add(act, mul(rate, dt)) if advance is None else advance(act, rate, parameters, dt)
    return out if limits is None else clip(out, *limits)


def next_activations(system: System, act, rates, dt, motion: TransmissionMotion | None) -> list:
    """Activations (na) after dt at these rates, clamped to their ranges. Disabled actuators keep their activation. motion: see
    `controller_motion`."""
    out = list(act)
    for actuator, (info, numbers) in enumerate(zip(system.topology.actuators, system.actuator.dynamics, strict=True)):
        if info.act is None or not info.enabled or "actuation" in system.topology.disabled:
            continue
        rest = info.activations
        if info.memory and ACTUATOR_CONTROLLERS[info.controller].advance is not None:
            places = dict(zip(info.memory, info.activations, strict=False))
            state = _controller_state(system, actuator, act, None, motion)._replace(dt=dt)
            after = ACTUATOR_CONTROLLERS[info.controller].advance(state, {name: rates[i] for name, i in places.items()})
            for name, i in places.items():
                out[i] = after[name]
            rest = rest[len(places) :]
        limits = None if info.act_range is None else system.actuator.act_range[info.act_range]
        for i in rest:
            out[i] = _next_activation(info.dynamics, act[i], rates[i], numbers, dt, limits)
    return out


def has_periodic_activations(topology: Topology) -> bool:
    """Whether an activation is the target of a rotation."""
    return any(_has_periodic_activation(info) or _has_rotation_vector(info) for info in topology.actuators)


def _has_periodic_activation(info: ActuatorInfo) -> bool:
    return info.periodic and info.act is not None and info.controller is None


def _has_rotation_vector(info: ActuatorInfo) -> bool:
    return info.controller == "orientation" and bool(info.memory)


def nearest_activations(system: System, transmission: list[LengthAndJacobian], act) -> list:
    """The activations (na), of targets of rotations those nearest to the lengths of the transmissions."""
    out = list(act)
    for i, info in enumerate(system.topology.actuators):
        if _has_periodic_activation(info) and info.enabled:
            out[info.act] = _nearest(system, i, out[info.act], transmission[info.output].length)
        elif _has_rotation_vector(info) and info.enabled:
            for place, x in zip(info.activations, shortest(tuple(out[place] for place in info.activations)), strict=True):
                out[place] = x
    return out


class ForceLaw(NamedTuple):
    """The force of an actuator: gain times signal plus bias, clamped.

    * gain, bias: kinds, keys of the registries `ACTUATOR_GAINS` and `ACTUATOR_BIASES`.
    * gain_parameters, bias_parameters: ten numbers each.
    * length_range, acc0: see `ActuatorState`.
    * limits: bounds of the force, None without.
    """

    gain: str
    bias: str
    gain_parameters: tuple
    bias_parameters: tuple
    length_range: tuple
    acc0: object
    limits: tuple | None


@stage
def force(law: ForceLaw, length, velocity, signal):
    """gain times signal plus bias, clamped to the force range. signal: the activation, or the control of an actuator without one."""
    state = ActuatorState(length, velocity, law.length_range, law.acc0)
    gain = ACTUATOR_GAINS[law.gain].compute(law.gain_parameters, state)
    out = add(mul(gain, signal), ACTUATOR_BIASES[law.bias].compute(law.bias_parameters, state))
    return out if law.limits is None else clip(out, *law.limits)


def signals(system: System, motion: TransmissionMotion, act, ctrl) -> list:
    """What the gain of each actuator multiplies: the signal of its controller, its activation, or its control if it has neither. A
    `ControllerState` if the controller has a force instead."""
    top, ctrl, out = system.topology, clamped_controls(system, ctrl), []
    if any(info.act_early for info in top.actuators):
        next_act = next_activations(system, act, activation_rates(system, act, ctrl, motion), system.option.dt, motion)
    for i, info in enumerate(top.actuators):
        if info.controller is not None:
            state, signal_of = _controller_state(system, i, act, ctrl, motion), ACTUATOR_CONTROLLERS[info.controller].signal
            if info.act_early:
                state.inputs[info.inputs[0]] = next_act[info.activations[-1]]
            out.append(state if signal_of is None else signal_of(state))
            continue
        signal = ctrl[info.ctrl]
        if info.act is not None:
            signal = next_act[info.act] if info.act_early else act[info.act]
        out.append(_nearest(system, i, signal, motion.lengths[info.output]) if info.periodic else signal)
    return out


def force_laws(system: System) -> list[ForceLaw]:
    """The force law of each actuator."""
    a, out = system.actuator, []
    for i, info in enumerate(system.topology.actuators):
        length_range = (0.0, 0.0) if info.length_range is None else a.length_range[info.length_range]
        limits = None if info.force_range is None else a.force_range[info.force_range]
        acc0 = system.derived.acc0[i] if system.derived.acc0 else 0.0
        out.append(ForceLaw(info.gain, info.bias, a.gain[i], a.bias[i], length_range, acc0, limits))
    return out


def unlimited_forces(system: System, motion: TransmissionMotion, signal: list) -> list:
    """The forces of actuators without limits; 0.0 of disabled ones. signal: see `signals`."""
    out: list = []
    for info, law, one in zip(system.topology.actuators, force_laws(system), signal, strict=True):
        if not info.enabled:
            out += [0.0] * len(info.outputs)
            continue
        force = limited_force(info, law._replace(limits=None), *(of_actuator(info, values) for values in motion), one)
        out += [force] if len(info.outputs) == 1 else force
    return out


def limited_force(info: ActuatorInfo, law: ForceLaw, length, velocity, signal):
    """The force of an actuator within its own limits. signal: see `signals`."""
    if not isinstance(signal, ControllerState):
        return force(law, length, velocity, signal)
    out = ACTUATOR_CONTROLLERS[info.controller].force(signal._replace(length=length, velocity=velocity))
    return out if law.limits is None else clip(out, *law.limits)


def with_friction(system: System, forces: list, signal: list) -> list:
    """The forces of actuators with the friction of controllers, which no limit bounds."""
    out = list(forces)
    for info, state in zip(system.topology.actuators, signal, strict=True):
        friction = ACTUATOR_CONTROLLERS[info.controller].friction if isinstance(state, ControllerState) else None
        if info.enabled and friction is not None:
            out[info.output] = add(out[info.output], friction(state))
    return out


def tendon_sums(system: System, forces: list) -> dict[int, object]:
    """{tendon: sum of the forces of its actuators, N}, of the tendons that limit this sum."""
    out: dict[int, object] = {}
    for info in system.topology.actuators:
        if info.transmission == "tendon" and info.enabled and system.topology.tendons[info.target].force_range is not None:
            out[info.target] = add(out.get(info.target, 0.0), forces[info.output])
    return out


@stage
def _scale_into(total, bounds):
    """The factor that brings a sum into a range around zero."""
    lower, upper = bounds
    above, below = total > upper, total < lower
    outside = jnp.where(above | below, total, 1.0)
    return jnp.where(above, upper / outside, jnp.where(below, lower / outside, 1.0))


def limited_forces(system: System, forces: list) -> list:
    """The forces of actuators within the limits of their tendons, by a common factor, and then within their own."""
    top, out = system.topology, []
    factors = {tendon: _scale_into(x, tendon_bounds(system, tendon)) for tendon, x in tendon_sums(system, forces).items()}
    for info, law in zip(top.actuators, force_laws(system), strict=True):
        x = of_actuator(info, forces)
        if isinstance(x, tuple):
            out += x if law.limits is None or not info.enabled else limited_torque(x, law.limits[1])
            continue
        if info.enabled and info.transmission == "tendon" and info.target in factors:
            x = mul(factors[info.target], x)
        out.append(x if law.limits is None or not info.enabled else clip(x, *law.limits))
    return out


def tendon_bounds(system: System, tendon: int) -> tuple:
    """The bounds of the sum of the actuator forces of a tendon that has such bounds, N."""
    return system.tendon.force_range[system.topology.tendons[tendon].force_range]


def actuator_forces(system: System, frame: Frames, v, act, ctrl, transmission: list[LengthAndJacobian]) -> ActuatorForces:
    """Forces of all actuators. act (na): activations. ctrl: controls of the actuators. transmission: see `transmissions`."""
    top = system.topology
    motion = motion_of(transmission, v)
    tau: list = [0.0] * len(v)
    if "actuation" in top.disabled:
        return ActuatorForces(*motion, [0.0] * len(transmission), tau, tau)
    signal = signals(system, motion, act, ctrl)
    forces = with_friction(system, limited_forces(system, unlimited_forces(system, motion, signal)), signal)
    for info in top.actuators:
        for i in info.outputs if info.enabled else ():
            tau = add_row_force(tau, transmission[i].row, forces[i])
    tau = [add(x, y) for x, y in zip(tau, gravity_compensation(system, frame, True), strict=True)]
    bounds = dof_bounds(system)
    return ActuatorForces(*motion, forces, [clip(x, *bounds[dof]) if dof in bounds else x for dof, x in enumerate(tau)], tau)


def dof_bounds(system: System) -> dict[int, tuple]:
    """The bounds that joints set for the sum of their actuator forces, by dof."""
    dofs = system.topology.dofs("limit.actuator_lower")
    return {dof: (bound(system, "actuator_lower", dof), bound(system, "actuator_upper", dof)) for dof in dofs}
