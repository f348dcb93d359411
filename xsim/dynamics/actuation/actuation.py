"""Actuators: from controls and activations to forces on the dofs. Source: MuJoCo's documentation, Computation, Actuation model."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation import muscles
from xsim.dynamics.actuation.commands import bound, clip
from xsim.dynamics.forces.passive import weight_taken
from xsim.dynamics.tendons.tendons import LengthAndJacobian, pushed, rate
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, stage, sub, total


class Effort(NamedTuple):
    """Per actuator: length, rate of the length, force. tau: generalized force of all (nv)."""

    length: list
    velocity: list
    force: list
    tau: list


def controls(system: System, ctrl) -> list:
    """The controls of the actuators within their bounds."""
    out = list(ctrl)
    if "clampctrl" not in system.topology.disabled:
        for i, info in enumerate(system.topology.actuators):
            if info.ctrl_range is not None:
                out[i] = clip(out[i], *system.actuator.ctrl_range[info.ctrl_range])
    return out


@stage
def _rate(kind: str, ctrl, act, numbers):
    if kind == "integrator":
        return ctrl
    if kind == "muscle":
        return muscles.activation_rate(ctrl, act, numbers[:3])
    return sub(ctrl, act) / jnp.maximum(numbers[0], 1e-15)


def activation_rates(system: System, act, ctrl) -> list:
    """d act / dt, 1/s (na)."""
    ctrl, out = controls(system, ctrl), list(act)
    for info, u, numbers in zip(system.topology.actuators, ctrl, system.actuator.dynamics, strict=True):
        if info.act is not None:
            live = "actuation" not in system.topology.disabled
            out[info.act] = _rate(info.dynamics, u, act[info.act], numbers) if live else 0.0 * act[info.act]
    return out


@stage
def _advanced(kind: str, act, slope, numbers, dt, limits):
    """The activation a step later; the exact filter follows its exponential."""
    if kind == "filterexact":
        tau = jnp.maximum(numbers[0], 1e-15)
        dt = -tau * jnp.expm1(-dt / tau)
    out = add(act, mul(slope, dt))
    return out if limits is None else clip(out, *limits)


def next_activations(system: System, act, rates, dt) -> list:
    """Activations after dt at these rates, within their bounds; those of groups that are switched off stay."""
    out = list(act)
    for info, numbers in zip(system.topology.actuators, system.actuator.dynamics, strict=True):
        if info.act is not None and info.enabled and "actuation" not in system.topology.disabled:
            limits = None if info.act_range is None else system.actuator.act_range[info.act_range]
            out[info.act] = _advanced(info.dynamics, act[info.act], rates[info.act], numbers, dt, limits)
    return out


class Law(NamedTuple):
    """Kinds and numbers of an actuator's gain and bias; muscles also need their length range and acc0."""

    gain: str
    bias: str
    gain_numbers: tuple
    bias_numbers: tuple
    length_range: tuple | None
    acc0: object
    limits: tuple | None


def _affine(numbers, length, velocity):
    return total([numbers[0], mul(numbers[1], length), mul(numbers[2], velocity)])


@stage
def force(law: Law, length, velocity, signal):
    """gain x signal + bias."""
    if law.gain == "muscle":
        gain = muscles.gain(length, velocity, law.length_range, law.acc0, law.gain_numbers)
    else:
        gain = law.gain_numbers[0] if law.gain == "fixed" else _affine(law.gain_numbers, length, velocity)
    out = mul(gain, signal)
    if law.bias == "muscle":
        out = add(out, muscles.bias(length, law.length_range, law.acc0, law.bias_numbers))
    elif law.bias == "affine":
        out = add(out, _affine(law.bias_numbers, length, velocity))
    return out if law.limits is None else clip(out, *law.limits)


def laws(system: System) -> list[Law]:
    """What makes the force of each actuator."""
    a, out = system.actuator, []
    for i, info in enumerate(system.topology.actuators):
        lengths = (0.0, 0.0) if info.length_range is None else a.length_range[info.length_range]
        limits = None if info.force_range is None else a.force_range[info.force_range]
        out.append(Law(info.gain, info.bias, a.gain[i], a.bias[i], lengths, system.derived.acc0[i] if system.derived.acc0 else 0.0, limits))
    return out


def effort(system: System, frame: Frames, v, act, ctrl, driven: list[LengthAndJacobian]) -> Effort:
    """Forces of all actuators. act (na), ctrl: of the actuators; driven: what they act on (see `transmissions`)."""
    top = system.topology
    lengths, rates = [t.length for t in driven], [rate(t.row, v) for t in driven]
    tau: list = [0.0] * len(v)
    if "actuation" in top.disabled:
        return Effort(lengths, rates, [0.0] * len(driven), tau)
    signal = controls(system, ctrl)
    if any(info.early for info in top.actuators):
        ahead = next_activations(system, act, activation_rates(system, act, ctrl), system.option.dt)
    forces = []
    for i, (info, law) in enumerate(zip(top.actuators, laws(system), strict=True)):
        if not info.enabled:
            forces.append(0.0)
            continue
        x = signal[i] if info.act is None else ahead[info.act] if info.early else act[info.act]
        forces.append(force(law, lengths[i], rates[i], x))
        tau = pushed(tau, driven[i].row, forces[-1])
    tau = [add(x, y) for x, y in zip(tau, weight_taken(system, frame, True), strict=True)]
    return Effort(lengths, rates, forces, _bounded(system, tau))


def _bounded(system: System, tau) -> list:
    """tau within the bounds that joints set for all actuators together."""
    dofs = system.topology.dofs("limit.actuator_lower")
    bounds = {dof: (bound(system, "actuator_lower", dof), bound(system, "actuator_upper", dof)) for dof in dofs}
    return [clip(x, *bounds[dof]) if dof in bounds else x for dof, x in enumerate(tau)]
