"""<actuator>: actuators in their general form, and motors for the commands of joints."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.histories import history_attributes
from xsim.io.mjcf.writer.plugins import plugin_config, write_plugin
from xsim.io.mjcf.writer.values import FAR, ranges
from xsim.io.writing.chains import Link
from xsim.io.writing.elements import add, unless
from xsim.joints.types import JOINT_TYPES
from xsim.poses import rotate
from xsim.registry import ACTUATOR_CONTROLLERS
from xsim.spec import ActuatorSpec

__all__ = ["write_actuators", "write_commands"]

GEAR = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)
PARAMETERS = {"dynprm": "dynamics_params", "gainprm": "gain_params", "biasprm": "bias_params"}
TYPES = {"dyntype": "dynamics", "gaintype": "gain", "biastype": "bias"}
GENERAL = ("gaintype", "biastype", "gainprm", "biasprm")
"""Attributes of <general> that a plugin has not."""
ORDER = ("thermal", "controller", "lugre", "cogging", "inductance", "saturation")
"""Attributes of a dcmotor, besides its constant and its resistance."""


def write_actuators(context: Context) -> None:
    """All actuators. What they act on must have been written. Raises WriteError."""
    for number, actuator in enumerate(context.spec.actuators):
        config = None if actuator.controller is None else plugin_config(ACTUATOR_CONTROLLERS, actuator.controller)
        write = _WRITERS.get(actuator.controller) if config is None else _plugin
        if write is None:
            text = f"controller {actuator.controller!r}; MJCF has {', '.join(str(name) for name in _WRITERS if name)}, and plugins"
            context.losses.refuse(actuator.source, f"actuator {actuator.name or number!r}", text)
        tag, attributes = write(actuator)
        linear, higher = actuator.damping or 0.0, actuator.damping_poly or (0.0, 0.0)
        e = add(
            context.section("actuator"), tag,
            **_target(context, actuator, number),
            gear=unless(GEAR, actuator.gear),
            cranklength=unless(0.0, actuator.crank_length),
            **attributes,
            lengthrange=None if actuator.length_range is None else unless((0.0, 0.0), actuator.length_range),
            armature=actuator.armature,
            damping=None if not linear and not any(higher) else (linear, *higher),
            **history_attributes(actuator.history),
            group=unless(0, actuator.group),
            user=actuator.user or None,
        )  # fmt: skip
        if config is not None:
            write_plugin(context, e, str(actuator.controller), config, list(actuator.gain_params))
        context.names.enter("actuator", number, e, actuator.name)


def _target(context: Context, actuator: ActuatorSpec, number: int) -> dict[str, Any]:
    kind, target, reference = actuator.transmission, actuator.target, actuator.reference
    if isinstance(target, tuple):
        return {kind: context.joint_name(target, actuator.source, f"actuator {actuator.name or number!r}")}
    if kind == "slidercrank":
        return {"cranksite": context.names.of("site", target), "slidersite": context.names.of("site", reference)}
    other = {} if reference is None else {"refsite": context.names.of("site", reference)}
    return {kind: context.names.of(kind, target)} | other


def _general(actuator: ActuatorSpec) -> tuple[str, dict[str, Any]]:
    """The form that says everything as numbers. A positive third number of a servo's bias is its damping ratio."""
    bias = np.array(actuator.bias_params, float)
    if actuator.damp_ratio is not None:
        bias[2] = actuator.damp_ratio
    default = ActuatorSpec("", "joint", 0)
    types = {name: unless(getattr(default, field), getattr(actuator, field)) for name, field in TYPES.items()}
    numbers = {name: getattr(actuator, field) for name, field in PARAMETERS.items()} | {"biasprm": bias}
    numbers = {name: _trimmed(unless(getattr(default, PARAMETERS[name]), value)) for name, value in numbers.items()}
    clamps = ranges("ctrl", actuator.ctrl_range) | ranges("force", actuator.force_range) | ranges("act", actuator.act_range)
    return "general", types | numbers | clamps | {"actearly": unless(False, actuator.act_early)}


def _trimmed(numbers):
    """Parameters without the zeros at their end, which are the default."""
    return None if numbers is None else numbers[: max(1, *(np.flatnonzero(numbers) + 1), 1)]


def _pid(actuator: ActuatorSpec) -> tuple[str, dict[str, Any]]:
    _, attributes = _general(actuator)
    bounds = dict(zip(actuator.inputs, actuator.input_ranges, strict=True))
    inputs = {"input": " ".join(actuator.inputs), "dyntype": "pid" if actuator.memory else "none"}
    return "general", attributes | inputs | {f"{name}range": bounds.get(name) for name in ("vel", "ff")}


def _orientation(actuator: ActuatorSpec) -> tuple[str, dict[str, Any]]:
    _, attributes = _general(actuator)
    inputs = {"input": "quat" if len(actuator.inputs) == 4 else "expmap", "dyntype": "integrator" if actuator.memory else "none"}
    return "general", attributes | inputs | ranges("ctrl", actuator.input_ranges[0])


def _dc_motor(actuator: ActuatorSpec) -> tuple[str, dict[str, Any]]:
    """The parameters in the order of `xsim.dynamics.actuation.dc_motors.Motor`, as the attributes that give them."""
    resistance, constant, coefficient, reference, kp, ki, kd, voltage = np.asarray(actuator.gain_params)[:8].tolist()
    amplitude, poles, phase, *friction = np.asarray(actuator.bias_params)[:6].tolist()
    time_constant, rate, heat, capacity, ambient, stiffness, bristle, slew, most = np.asarray(actuator.dynamics_params)[:9].tolist()
    limit = 0.0 if actuator.force_range is None else actuator.force_range[1]
    numbers = {
        "thermal": (heat, capacity, 0.0, coefficient, reference, ambient), "controller": (kp, ki, kd, slew, most, voltage),
        "lugre": (stiffness, bristle, *friction), "cogging": (amplitude, poles, phase), "inductance": (0.0, time_constant),
        "saturation": (limit, 0.0, rate),
    }  # fmt: skip
    given = {name: unless(np.zeros(len(numbers[name])), numbers[name]) for name in ORDER}
    bounds = ranges("ctrl", next(iter(actuator.input_ranges), None))
    inputs = " ".join(actuator.inputs) or "none"
    return "dcmotor", {"motorconst": (constant, 0.0), "resistance": resistance, "input": inputs} | given | bounds


def _plugin(actuator: ActuatorSpec) -> tuple[str, dict[str, Any]]:
    """The attributes besides the plugin's name and numbers."""
    _, attributes = _general(actuator)
    clamps = ranges("ctrl", next(iter(actuator.input_ranges), None))
    dim = {"actdim": unless(0, actuator.widths[1]), "dyntype": unless("none", actuator.dynamics)}
    return "plugin", {name: x for name, x in attributes.items() if name not in GENERAL} | clamps | dim


_WRITERS = {None: _general, "pid": _pid, "dcmotor": _dc_motor, "orientation": _orientation}


def write_commands(context: Context) -> None:
    """A motor for each dof of the joints that take a force as command. Raises WriteError for other commands."""
    for body, link in context.links():
        drive, name = link.joint.actuator, f"joint {link.joint.name or context.spec.bodies[body].name!r}"
        if drive == "passive":
            continue
        if drive != "force":
            text = f"actuator {drive!r}, a command that is no force; MJCF has actuators with forces"
            context.losses.lose(link.joint.source, name, text, "the joint moves freely")
            continue
        for k in range(JOINT_TYPES[link.kind].nv):
            _write_motor(context, body, link, k)


def _write_motor(context: Context, body: int, link: Link, k: int) -> None:
    """The motor of dof k of a joint."""
    bounds = link.joint.force_range
    bounds = None if bounds is None else np.asarray(bounds, float)[link.v][k]
    joint, axis = context.names.of("joint", (body, link.first)), np.eye(3)[k]
    gear = None if link.kind != "ball" else (*rotate(link.quat, axis), 0.0, 0.0, 0.0)
    limited = bounds is not None and (np.abs(bounds) < FAR).any()
    e = add(context.section("actuator"), "motor", joint=joint, gear=gear, **ranges("force", bounds if limited else None))
    name = joint if link.kind != "ball" else f"{joint}_{k + 1}"
    context.names.enter("actuator", ("command", body, link.first + k), e, name)
