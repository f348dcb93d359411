"""<actuator>: actuators and what they act on."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.histories import checked_history
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.joints import SCALAR
from xsim.io.mjcf.motors import check_motor
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.plugins import Plugin, read_plugin
from xsim.io.mjcf.shortcuts import CHARTS, CONTROLLED, PLUGIN_DYNAMICS, General, read_general
from xsim.io.mjcf.values import padded, read_user
from xsim.io.reader import Element
from xsim.spec import ActuatorSpec, History, TendonSpec

__all__ = ["read_actuators"]

# The attribute that names the target: (transmission, kind of name).
TARGETS = {
    "joint": ("joint", "joint"),
    "jointinparent": ("jointinparent", "joint"),
    "tendon": ("tendon", "tendon"),
    "site": ("site", "site"),
    "cranksite": ("slidercrank", "site"),
    "body": ("body", "body"),
}
REFERENCES = {"refsite": ("site",), "slidersite": ("slidercrank",), "cranklength": ("slidercrank",)}


def read_actuators(document: Document, bodies: Bodies, tendons: list[TendonSpec], index: Index, user: int) -> list[ActuatorSpec]:
    """All actuators, in order; index entries "actuator". user: how many users' numbers each has (-1: any). Raises ParseError."""
    model = _Model(bodies, tendons, index)
    out = []
    for e in document.elements("actuator"):
        name = index.add("actuator", e, len(out))
        out.append(_actuator(document, model, e, name, user))
    return padded(document, out, user)


class _Model(NamedTuple):
    """The elements that actuators act on."""

    bodies: Bodies
    tendons: list[TendonSpec]
    names: Index


class _Transmission(NamedTuple):
    """kind: as in `ActuatorSpec`. target, reference: what they name, see `Index`."""

    kind: str
    target: Any
    reference: int | None


def _actuator(document: Document, model: _Model, e: Element, name: str, user: int) -> ActuatorSpec:
    g = read_general(document, e)
    plugin = _own_plugin(document, model.names, e, g) if e.tag == "plugin" else None
    transmission = _transmission(model.names, e, g)
    _inherit_range(document, model.names, e, g, transmission.kind)
    if "dcmotor" in (g.gain, g.bias, g.dynamics):
        _finish_motor(e, g)
    ranges = {part: _clamp(e, part, g) for part in g.limited}
    if ranges["act"] is not None and g.dynamics == "none":
        raise e.error('an actrange acts with dyntype "none"; allowed: a dyntype with an activation', "actrange")
    if plugin is not None:
        _check_plugin(e, g, transmission, plugin)
    elif g.act_dim >= 0 and g.act_dim != g.widths[1]:
        raise e.error(f'found {g.act_dim} with dyntype "{g.dynamics}"; allowed: {g.widths[1]}', "actdim")
    if g.gain == "pid":
        _check_pid(e, g, transmission)
    if "so3" in (g.gain, g.bias):
        _check_orientation(e, model, g, transmission, ranges["force"])
    for kind, params in ((g.gain, g.gain_params), (g.bias, g.bias_params)):
        if kind == "muscle":
            _check_muscle(e, params)
    # A servo whose third bias number is positive: a damping ratio, which becomes a velocity gain once the inertia is known.
    servo = g.gain == "pid" or g.gain != "dcmotor" and g.gain_params[0] == -g.bias_params[1]
    ratio = float(g.bias_params[2]) if servo and g.bias_params[2] > 0 else None
    if ratio is not None:
        g.bias_params[2] = 0.0
    return ActuatorSpec(
        name=name,
        transmission=transmission.kind,
        target=transmission.target,
        reference=transmission.reference,
        gear=g.gear,
        crank_length=g.crank_length,
        dynamics="none" if g.gain in CONTROLLED else g.dynamics,
        gain=g.gain,
        bias=g.bias,
        dynamics_params=g.dynamics_params,
        gain_params=g.gain_params,
        bias_params=g.bias_params,
        damp_ratio=ratio,
        ctrl_range=ranges["ctrl"],
        force_range=ranges["force"],
        act_range=ranges["act"],
        act_early=g.act_early,
        length_range=_length_range(e, model, g, transmission),
        **(_controller(g, ranges["ctrl"]) if plugin is None else _plugin_controller(plugin, ranges["ctrl"])),
        **_reflected(e, model, g, transmission),
        history=_history(e, g),
        group=g.group,
        user=read_user(e, user, g.user),
        source=e.source,
    )


def _transmission(index: Index, e: Element, g: General) -> _Transmission:
    given = [name for name in TARGETS if e.has(name)]
    if not given:
        raise e.error(f"the target is missing; allowed: one of {', '.join(TARGETS)}")
    if len(given) > 1:
        raise e.error(f"found the targets {' and '.join(given)}; allowed: one of them", given[1])
    kind, target_kind = TARGETS[given[0]]
    for name, wanted in REFERENCES.items():
        if e.has(name) and kind not in wanted:
            raise e.error(f"found with the target {given[0]}; allowed: with {', '.join(wanted)}", name)
    target = index.find(target_kind, e, given[0])
    if kind == "slidercrank":
        if not g.crank_length > 0:
            raise e.error(f"found {g.crank_length:g}; allowed: a number > 0 for a slider-crank", "cranklength")
        return _Transmission(kind, target, index.find("site", e, "slidersite"))
    return _Transmission(kind, target, index.find("site", e, "refsite") if e.has("refsite") else None)


def _inherit_range(document: Document, index: Index, e: Element, g: General, transmission: str) -> None:
    """Set the range of a servo's command to that of its target, times inheritrange, about its middle."""
    servo = g.gain == "pid" or g.gain == "fixed" and g.bias == "affine" and g.gain_params[0] == -g.bias_params[1]
    if not (g.inherit_range > 0 and servo):
        return
    if g.dynamics not in ("none", "filterexact", "integrator", "pid"):
        raise e.error(f'found with dyntype "{g.dynamics}"; allowed: position and intvelocity servos', "inheritrange")
    if transmission not in ("joint", "tendon"):
        raise e.error("allowed: with the target joint or tendon", "inheritrange")
    target = document.resolve(index.element(transmission, e.string(transmission)), "joint" if transmission == "joint" else "tendon")
    low, high = target.floats("range", 2, (0.0, 0.0))
    if transmission == "joint":
        kind = target.raw("type") or ("free" if target.tag == "freejoint" else "hinge")
        if kind not in SCALAR:
            raise e.error(f"found with a {kind} joint; allowed: hinge and slide joints", "inheritrange")
        if kind == "hinge":
            low, high = scope(target).angles(low), scope(target).angles(high)
    if low == high:
        raise e.error(f"the target {transmission} has no range; allowed: a target with a range", "inheritrange")
    middle, radius = (low + high) / 2, (high - low) / 2 * g.inherit_range
    g.ranges["act" if g.dynamics == "integrator" else "ctrl"] = (float(middle - radius), float(middle + radius))


def _clamp(e: Element, part: str, g: General) -> tuple[float, float] | None:
    """The range of the control, force or activation where it acts, else None."""
    (low, high), word = g.ranges[part], g.limited[part]
    name, switch = f"{part}range", f"{part}limited"
    if word == "auto" and not scope(e).autolimits and (low or high):
        raise e.error(f'a range without {switch}, and autolimits is off; allowed: {switch}="true" or "false"', name)
    if word == "false" or word == "auto" and not low < high:
        return None
    if not low < high:
        raise e.error(f"found {low:g} {high:g} for what is always clamped; allowed: a range whose first number is the smaller one", name)
    return low, high


def _check_muscle(e: Element, params: np.ndarray) -> None:
    first, last, _, scale, least, most, *speeds = params[:9].tolist()
    if not first < last:
        raise e.error(f"found {first:g} {last:g}; allowed: a muscle's range whose first number is the smaller one", "range")
    if not least < 1 < most:
        raise e.error(f"found lmin {least:g} and lmax {most:g}; allowed: lmin < 1 < lmax", "lmin" if least >= 1 else "lmax")
    for name, value in zip(("scale", "vmax", "fpmax", "fvmax"), (scale, *speeds), strict=True):
        if not value > 0:
            raise e.error(f"found {value:g}; allowed: a muscle's number > 0", name)


def _check_pid(e: Element, g: General, transmission: _Transmission) -> None:
    """Raises ParseError for a controller that cannot work."""
    if transmission.kind == "body":
        raise e.error("found with the target body; allowed: the other targets", "body")
    if g.act_early:
        raise e.error("found true for a pid; allowed: false", "actearly")
    for name, on in (("slewmax", "slew" in g.memory), ("ki", "integral" in g.memory)):
        if on and "pos" not in g.inputs:
            raise e.error(f"found with the inputs {' '.join(g.inputs)!r}; allowed: with the input pos", name)
    if (g.dynamics == "pid") != bool(g.memory) or g.bias != "affine":
        wanted = "pid" if g.memory else "none"
        raise e.error(f'found {g.dynamics!r} and biastype {g.bias!r}; allowed: "{wanted}" and "affine" for this pid', "dyntype")


def _check_orientation(e: Element, model: _Model, g: General, transmission: _Transmission, force_range: tuple | None) -> None:
    """Raises ParseError for an orientation servo that cannot work."""
    if g.gain != g.bias:
        raise e.error(f'found gaintype "{g.gain}" and biastype "{g.bias}"; allowed: so3 for both or neither', "gaintype")
    chart = CHARTS["expmap"] if g.dynamics == "integrator" else g.inputs
    if g.dynamics not in ("none", "integrator") or g.inputs != chart:
        raise e.error(f'found "{g.dynamics}" for so3; allowed: none, or integrator with the input expmap', "dyntype")
    if transmission.kind == "joint":
        body, joint = transmission.target
        kind = model.bodies.bodies[body].joints[joint].type
        if kind != "ball":
            raise e.error(f"found a {kind} joint; allowed: ball joints", "joint")
    elif transmission.kind != "site" or transmission.reference is None:
        raise e.error("found with another target; allowed: a ball joint, or site and refsite")
    if g.act_early:
        raise e.error("found true for so3; allowed: false", "actearly")
    if force_range is not None and force_range[0] != 0:
        raise e.error(f"found {force_range[0]:g} {force_range[1]:g}; allowed: 0 and the greatest norm of the torque", "forcerange")


def _own_plugin(document: Document, index: Index, e: Element, g: General) -> Plugin:
    """The plugin of an actuator, whose numbers become those of the gain. Raises ParseError."""
    plugin = read_plugin(document, e, index, "actuator")
    if len(plugin.numbers) > len(g.gain_params):
        raise e.error(f"{plugin.name!r} has {len(plugin.numbers)} numbers; allowed: {len(g.gain_params)}", "plugin")
    g.gain_params[:], g.bias_params[:] = 0.0, 0.0
    g.gain_params[: len(plugin.numbers)] = plugin.numbers
    g.types(None, "plugin", "none")
    g.inherit_range = 0.0
    return plugin


def _memory(plugin: Plugin) -> tuple[str, ...]:
    """The activations of a plugin besides that of the dynamics."""
    return plugin.entry.memory if plugin.entry.used is None else plugin.entry.used(plugin.values)


def _check_plugin(e: Element, g: General, transmission: _Transmission, plugin: Plugin) -> None:
    if transmission.kind == "body":
        raise e.error("found with the target body; allowed: the other targets", "body")
    if g.dynamics not in PLUGIN_DYNAMICS:
        raise e.error(f'found "{g.dynamics}" for a plugin; allowed: {", ".join(PLUGIN_DYNAMICS)}', "dyntype")
    memory = _memory(plugin)
    count = len(memory) + int(g.dynamics != "none")
    if g.act_dim != count and (memory or g.act_dim >= 0):
        names = [*memory, *([g.dynamics] if g.dynamics != "none" else [])]
        found = "attribute is missing" if g.act_dim < 0 else f"found {g.act_dim}"
        raise e.error(f"{found}; allowed: {count}, for the activations {', '.join(names) or 'none'}", "actdim")


def _plugin_controller(plugin: Plugin, ctrl_range: tuple[float, float] | None) -> dict:
    """Inputs and activations of a plugin, as fields of its spec."""
    inputs = plugin.entry.inputs
    return {"controller": plugin.name, "inputs": inputs, "input_ranges": (ctrl_range,) * len(inputs), "memory": _memory(plugin)}


def _finish_motor(e: Element, g: General) -> None:
    """Set the parameters and the force range of a dcmotor. Raises ParseError for one that cannot be."""
    g.settle(e)
    stateless = g.dynamics == "none" and not g.memory
    for name, found in (("gaintype", g.gain), ("biastype", g.bias), ("dyntype", g.dynamics)):
        if found != "dcmotor" and not (name == "dyntype" and stateless):
            raise e.error(f'found "{found}"; allowed: dcmotor, with the other two types', name)
    if g.dynamics == "dcmotor":
        if not g.act_early:
            raise e.error("found false for a dcmotor; allowed: true", "actearly")
        g.limited["act"] = "false"
    check_motor(e, g.gain_params, g.bias_params, g.dynamics_params, g.inputs)
    g.act_early = False  # the controller looks ahead by itself
    if not g.memory:
        g.dynamics = "none"


def _controller(g: General, pos_range: tuple[float, float] | None) -> dict:
    """Inputs and activations of a controller, as fields of its spec. pos_range: of the control."""
    if g.gain in ("dcmotor", "so3"):
        name = "dcmotor" if g.gain == "dcmotor" else "orientation"
        return {"controller": name, "inputs": g.inputs, "input_ranges": (pos_range,) * len(g.inputs), "memory": g.memory}
    if g.gain != "pid":
        return {}
    limits = {"pos": pos_range} | {name: g.ranges[name] if g.ranges[name][0] < g.ranges[name][1] else None for name in ("vel", "ff")}
    return {"controller": "pid", "inputs": g.inputs, "input_ranges": tuple(limits[name] for name in g.inputs), "memory": g.memory}


def _history(e: Element, g: General) -> History | None:
    history = checked_history(e, g.history)
    if history is not None and not g.widths[0]:
        raise e.error("found for an actuator without inputs; allowed: with an input", "nsample")
    return history


def _reflected(e: Element, model: _Model, g: General, transmission: _Transmission) -> dict:
    """Armature and damping of an actuator, as fields of its spec."""
    linear, *higher = [*g.damping, 0.0, 0.0, 0.0][:3]
    out = {"armature": g.armature or None, "damping": linear or None, "damping_poly": tuple(higher) if any(higher) else None}
    name = "armature" if g.armature else "damping"
    if any(out.values()) and transmission.kind not in ("joint", "jointinparent", "tendon"):
        raise e.error("found with another target; allowed: with joint, jointinparent or tendon", name)
    if g.armature and transmission.kind == "tendon" and any(wrap.kind == "geom" for wrap in model.tendons[transmission.target].path):
        raise e.error("found with a tendon that wraps around a geom; allowed: other tendons", "armature")
    return out


def _length_range(e: Element, model: _Model, g: General, transmission: _Transmission) -> tuple[float, float] | None:
    """The range of lengths that is given or that the rules of <lengthrange> take from limits, None where it must be computed."""
    rule = scope(e).length_range
    low, high = g.ranges["length"]
    muscle = "muscle" in (g.gain, g.bias)
    if not {"none": False, "all": True}.get(rule.get("mode", "muscle"), muscle):
        return low, high
    if rule.get("useexisting", True) and low < high:
        return low, high
    if not rule.get("uselimit", False):
        return None
    if transmission.kind == "tendon":
        return model.tendons[transmission.target].range
    if transmission.kind in ("joint", "jointinparent"):
        joint = model.bodies.bodies[transmission.target[0]].joints[transmission.target[1]]
        if joint.angle_limit is not None:
            return 0.0, joint.angle_limit
        if joint.position_range is not None:
            return tuple(joint.position_range[0].tolist())
    return None
