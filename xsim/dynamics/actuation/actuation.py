"""Actuators: from controls and activations to forces on the dofs. Source: MuJoCo's documentation, Computation, Actuation model."""

from __future__ import annotations

from typing import NamedTuple

from xsim.dynamics.actuation.commands import bound, clip
from xsim.dynamics.actuation.laws import ActuatorState
from xsim.dynamics.forces.passive import weight_taken
from xsim.dynamics.tendons.tendons import LengthAndJacobian, add_row_force, rate
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.registry import ACTIVATION_DYNAMICS, ACTUATOR_BIASES, ACTUATOR_GAINS
from xsim.spatial import add, mul, stage


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
def _rate(kind: str, ctrl, act, parameters):
    return ACTIVATION_DYNAMICS[kind].rate(ctrl, act, parameters)


def activation_rates(system: System, act, ctrl) -> list:
    """d act / dt, 1/s (na)."""
    ctrl, out = controls(system, ctrl), list(act)
    for info, u, numbers in zip(system.topology.actuators, ctrl, system.actuator.dynamics, strict=True):
        if info.act is not None:
            live = "actuation" not in system.topology.disabled
            out[info.act] = _rate(info.dynamics, u, act[info.act], numbers) if live else 0.0 * act[info.act]
    return out


@stage
def _advanced(kind: str, act, rate, parameters, dt, limits):
    """The activation a step later, within its bounds."""
    advance = ACTIVATION_DYNAMICS[kind].advance
    out = add(act, mul(rate, dt)) if advance is None else advance(act, rate, parameters, dt)
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
    """What makes the force of an actuator: kinds and parameters of gain and bias, what muscles need (see `ActuatorState`), and the bounds
    of the force."""

    gain: str
    bias: str
    gain_parameters: tuple
    bias_parameters: tuple
    length_range: tuple
    acc0: object
    limits: tuple | None


@stage
def force(law: Law, length, velocity, signal):
    """gain x signal + bias, within the bounds of the force."""
    state = ActuatorState(length, velocity, law.length_range, law.acc0)
    gain = ACTUATOR_GAINS[law.gain].compute(law.gain_parameters, state)
    out = add(mul(gain, signal), ACTUATOR_BIASES[law.bias].compute(law.bias_parameters, state))
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
    if any(info.act_early for info in top.actuators):
        next_act = next_activations(system, act, activation_rates(system, act, ctrl), system.option.dt)
    forces = []
    for i, (info, law) in enumerate(zip(top.actuators, laws(system), strict=True)):
        if not info.enabled:
            forces.append(0.0)
            continue
        x = signal[i] if info.act is None else next_act[info.act] if info.act_early else act[info.act]
        forces.append(force(law, lengths[i], rates[i], x))
        tau = add_row_force(tau, driven[i].row, forces[-1])
    tau = [add(x, y) for x, y in zip(tau, weight_taken(system, frame, True), strict=True)]
    return Effort(lengths, rates, forces, _bounded(system, tau))


def _bounded(system: System, tau) -> list:
    """tau within the bounds that joints set for all actuators together."""
    dofs = system.topology.dofs("limit.actuator_lower")
    bounds = {dof: (bound(system, "actuator_lower", dof), bound(system, "actuator_upper", dof)) for dof in dofs}
    return [clip(x, *bounds[dof]) if dof in bounds else x for dof, x in enumerate(tau)]
