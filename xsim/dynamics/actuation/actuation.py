"""Actuator forces from controls and activations. Source: MuJoCo's documentation, Computation, Actuation model."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.commands import bound, clip
from xsim.dynamics.actuation.laws import ActuatorState
from xsim.dynamics.forces.passive import gravity_compensation
from xsim.dynamics.tendons.tendons import LengthAndJacobian, add_row_force, rate
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.registry import ACTIVATION_DYNAMICS, ACTUATOR_BIASES, ACTUATOR_GAINS
from xsim.spatial import add, mul, safe_norm, stage


class ActuatorForces(NamedTuple):
    """Per actuator (nu): length, velocity (rate of the length) and force. Per dof (nv): tau, the generalized force of all actuators;
    unclamped, the same without the bounds that joints set for it."""

    length: list
    velocity: list
    force: list
    tau: list
    unclamped: list


def clamped_controls(system: System, ctrl) -> list:
    """The controls of the actuators, clamped to their control ranges."""
    out = list(ctrl)
    if "clampctrl" not in system.topology.disabled:
        for i, info in enumerate(system.topology.actuators):
            if info.ctrl_range is not None:
                out[i] = clip(out[i], *system.actuator.ctrl_range[info.ctrl_range])
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


def activation_rates(system: System, act, ctrl) -> list:
    """d act / dt, 1/s (na)."""
    ctrl, out = clamped_controls(system, ctrl), list(act)
    for i, (info, u, numbers) in enumerate(zip(system.topology.actuators, ctrl, system.actuator.dynamics, strict=True)):
        if info.act is not None:
            if info.periodic and info.dynamics != "integrator":
                u = _nearest(system, i, u, act[info.act])
            enabled = "actuation" not in system.topology.disabled
            out[info.act] = _rate(info.dynamics, u, act[info.act], numbers) if enabled else 0.0 * act[info.act]
    return out


@stage
def _next_activation(kind: str, act, rate, parameters, dt, limits):
    """The activation after dt, clamped to its range."""
    advance = ACTIVATION_DYNAMICS[kind].advance
    out = add(act, mul(rate, dt)) if advance is None else advance(act, rate, parameters, dt)
    return out if limits is None else clip(out, *limits)


def next_activations(system: System, act, rates, dt) -> list:
    """Activations (na) after dt at these rates, clamped to their ranges. Disabled actuators keep their activation."""
    out = list(act)
    for info, numbers in zip(system.topology.actuators, system.actuator.dynamics, strict=True):
        if info.act is not None and info.enabled and "actuation" not in system.topology.disabled:
            limits = None if info.act_range is None else system.actuator.act_range[info.act_range]
            out[info.act] = _next_activation(info.dynamics, act[info.act], rates[info.act], numbers, dt, limits)
    return out


def has_periodic_activations(topology: Topology) -> bool:
    """Whether an activation is the target of a rotation."""
    return any(info.periodic and info.act is not None for info in topology.actuators)


def nearest_activations(system: System, transmission: list[LengthAndJacobian], act) -> list:
    """The activations (na), of targets of rotations those nearest to the lengths of the transmissions."""
    out = list(act)
    for i, info in enumerate(system.topology.actuators):
        if info.periodic and info.act is not None and info.enabled:
            out[info.act] = _nearest(system, i, out[info.act], transmission[i].length)
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


def signals(system: System, transmission: list[LengthAndJacobian], act, ctrl) -> list:
    """What the gain of each actuator multiplies: its activation, or its control if it has none."""
    top, out = system.topology, clamped_controls(system, ctrl)
    if any(info.act_early for info in top.actuators):
        next_act = next_activations(system, act, activation_rates(system, act, ctrl), system.option.dt)
    for i, info in enumerate(top.actuators):
        if info.act is not None:
            out[i] = next_act[info.act] if info.act_early else act[info.act]
        if info.periodic:
            out[i] = _nearest(system, i, out[i], transmission[i].length)
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


def actuator_forces(system: System, frame: Frames, v, act, ctrl, transmission: list[LengthAndJacobian]) -> ActuatorForces:
    """Forces of all actuators. act (na): activations. ctrl: controls of the actuators. transmission: see `transmissions`."""
    top = system.topology
    lengths, rates = [t.length for t in transmission], [rate(t.row, v) for t in transmission]
    tau: list = [0.0] * len(v)
    if "actuation" in top.disabled:
        return ActuatorForces(lengths, rates, [0.0] * len(transmission), tau, tau)
    signal, forces = signals(system, transmission, act, ctrl), []
    for i, (info, law) in enumerate(zip(top.actuators, force_laws(system), strict=True)):
        if not info.enabled:
            forces.append(0.0)
            continue
        forces.append(force(law, lengths[i], rates[i], signal[i]))
        tau = add_row_force(tau, transmission[i].row, forces[-1])
    tau = [add(x, y) for x, y in zip(tau, gravity_compensation(system, frame, True), strict=True)]
    bounds = dof_bounds(system)
    return ActuatorForces(lengths, rates, forces, [clip(x, *bounds[dof]) if dof in bounds else x for dof, x in enumerate(tau)], tau)


def dof_bounds(system: System) -> dict[int, tuple]:
    """The bounds that joints set for the sum of their actuator forces, by dof."""
    dofs = system.topology.dofs("limit.actuator_lower")
    return {dof: (bound(system, "actuator_lower", dof), bound(system, "actuator_upper", dof)) for dof in dofs}
