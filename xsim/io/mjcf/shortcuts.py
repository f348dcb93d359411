"""Actuator shortcuts: <motor>, <position>, ... spelt out as the <general> they stand for (manual: Modeling, Actuator shortcuts)."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import groupby
from math import pi
from typing import NamedTuple

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.histories import NO_HISTORY, read_history
from xsim.io.mjcf.motors import INPUTS as MOTOR_INPUTS
from xsim.io.mjcf.motors import motor_memory, motor_of, motor_parameters, parameter_memory, read_motor
from xsim.io.mjcf.releases import Release
from xsim.io.mjcf.values import flag, integer
from xsim.io.reader import Element
from xsim.spec import History

__all__ = ["PLUGIN_DYNAMICS", "SHORTCUTS", "General", "read_general"]

DYNAMICS = ("none", "integrator", "filter", "filterexact", "muscle")
PLUGIN_DYNAMICS = ("none", "integrator", "filter", "filterexact")
LIMITED = ("false", "true", "auto")
GAINS = ("fixed", "affine", "muscle")
BIASES = ("none", "affine", "muscle")
PID_INPUTS = ("pos", "vel", "ff")
CHARTS = {"expmap": ("x", "y", "z"), "quat": ("w", "x", "y", "z")}
"""Controls of an orientation servo by the word of `input`."""
CONTROLLED = ("pid", "dcmotor", "so3")
"""Gains whose signal a controller computes."""
MEANINGS = ("pos", "vel", "pressure")  # that `input` may give the control of an actuator without controller


def _ten(*first: float):
    return field(default_factory=lambda: np.array([*first, *[0.0] * (10 - len(first))]))


@dataclass
class General:
    """The attributes of <general> that default classes reach, under the names of `xsim.spec.ActuatorSpec`, with the manual's defaults.

    ``limited``: whether control, force and activation are clamped, one of LIMITED. ``damper``: the kv of the dampers among the defaults.
    ``kind``: the last element that wrote here. ``meaning``: what the control of an actuator without controller is, one of MEANINGS or "",
    which matters to scales only. ``motor``: attributes of <dcmotor> that are not parameters yet.
    """

    kind: str = ""
    group: int = 0
    user: tuple[float, ...] = ()
    gear: np.ndarray = field(default_factory=lambda: np.array([1.0, 0, 0, 0, 0, 0]))
    crank_length: float = 0.0
    limited: dict[str, str] = field(default_factory=lambda: {"ctrl": "auto", "force": "auto", "act": "auto"})
    ranges: dict[str, tuple[float, float]] = field(
        default_factory=lambda: dict.fromkeys(("ctrl", "force", "act", "length", "vel", "ff"), (0.0, 0.0))
    )
    dynamics: str = "none"
    gain: str = "fixed"
    bias: str = "none"
    dynamics_params: np.ndarray = _ten(1.0)
    gain_params: np.ndarray = _ten(1.0)
    bias_params: np.ndarray = _ten()
    act_dim: int = -1
    act_early: bool = False
    inherit_range: float = 0.0
    inputs: tuple[str, ...] = PID_INPUTS[:2]
    meaning: str = ""
    motor: dict[str, tuple] = field(default_factory=dict)
    armature: float = 0.0
    damping: tuple[float, ...] = ()
    damper: float = 0.0
    history: History = NO_HISTORY

    def settle(self, e: Element) -> None:
        """Turn the attributes of a motor into parameters, inputs and the range of its force. Raises ParseError."""
        if not self.motor:
            return
        self.gain_params[:], self.bias_params[:], self.dynamics_params[:] = motor_parameters(e, self.motor)
        limit = self.motor["saturation"][0]
        if limit > 0:
            self.ranges["force"], self.limited["force"] = (-limit, limit), "true"
        self.motor = {}

    def types(self, dynamics: str | None, gain: str, bias: str) -> None:
        """Set the three types; dynamics None: as they were."""
        self.dynamics, self.gain, self.bias, self.meaning = dynamics or self.dynamics, gain, bias, ""

    @property
    def memory(self) -> tuple[str, ...]:
        """The activations of a pid, dcmotor or orientation servo, in order."""
        if self.gain == "dcmotor":
            return motor_memory(self.motor) if self.motor else parameter_memory(self.gain_params, self.dynamics_params)
        if self.gain == "so3":
            return CHARTS["expmap"] if self.dynamics == "integrator" else ()
        on = {"slew": self.dynamics_params[1] > 0, "integral": self.gain_params[0] > 0}
        return tuple(name for name, has in on.items() if has and self.gain == "pid")

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of controls and of activations."""
        if self.gain in CONTROLLED:
            return len(self.inputs), len(self.memory)
        return 1, int(self.dynamics != "none")


# What a shortcut makes of a General.

MUSCLE_TIMES = (0.01, 0.04)
MUSCLE = (0.75, 1.05, -1.0, 200.0, 0.5, 1.6, 1.5, 1.3, 1.2)
MUSCLE_NAMES = ("force", "scale", "lmin", "lmax", "vmax", "fpmax", "fvmax")


def _part(e: Element, name: str, into: np.ndarray) -> None:
    given = e.floats(name, tuple(range(len(into) + 1)), ())
    into[: len(given)] = given


def _common(e: Element, g: General) -> None:
    g.group = integer(e, "group", g.group)
    g.user = tuple(map(float, e.floats("user", default=g.user)))
    g.crank_length = e.number("cranklength", g.crank_length)
    g.armature = e.number("armature", g.armature)
    given = e.floats("damping", (1, 2, 3), ()).tolist()
    g.damping = (*given, *g.damping[len(given) :])
    g.history = read_history(e, g.history)
    _part(e, "gear", g.gear)
    for name in g.limited:
        g.limited[name] = e.choice(f"{name}limited", LIMITED, g.limited[name])
    for name in g.ranges:
        low, high = e.floats(f"{name}range", 2, g.ranges[name])
        g.ranges[name] = float(low), float(high)


def _general(e: Element, g: General, release: Release) -> None:
    g.settle(e)
    before, new = g.gain, () if release.schema == "3.2" else CONTROLLED
    g.dynamics = e.choice("dyntype", DYNAMICS + new[:2], g.dynamics)
    g.gain = e.choice("gaintype", GAINS + new, g.gain)
    g.bias = e.choice("biastype", BIASES + new[1:], g.bias)
    if g.gain != before:
        g.inputs = {"dcmotor": ("voltage",), "so3": CHARTS["expmap"]}.get(g.gain, g.inputs)
    _part(e, "dynprm", g.dynamics_params)
    _part(e, "gainprm", g.gain_params)
    _part(e, "biasprm", g.bias_params)
    _read_inputs(e, g)
    _inherit_range(e, g, release, "act" if g.dynamics == "integrator" else "ctrl")
    g.act_dim = integer(e, "actdim", g.act_dim)
    g.act_early = flag(e, "actearly", g.act_early)


def _plugin(e: Element, g: General, release: Release) -> None:
    g.settle(e)
    g.dynamics = e.choice("dyntype", PLUGIN_DYNAMICS, g.dynamics)
    _part(e, "dynprm", g.dynamics_params)
    g.act_dim, g.act_early = integer(e, "actdim", g.act_dim), flag(e, "actearly", g.act_early)


def _motor(e: Element, g: General, release: Release) -> None:
    g.gain_params[0] = 1.0
    g.types("none", "fixed", "none")


def _inherit_range(e: Element, g: General, release: Release, clamped: str) -> None:
    """clamped: the range that inheritrange is for."""
    g.inherit_range = e.number("inheritrange", g.inherit_range)
    low, high = g.ranges[clamped]
    range_name = "posrange" if e.has("posrange") else f"{clamped}range"
    if release.own_range_beats_default and e.has(range_name) != e.has("inheritrange"):
        if e.has(range_name):
            g.inherit_range = 0.0
        elif g.inherit_range > 0:
            g.ranges[clamped] = low, high = 0.0, 0.0
    if g.inherit_range > 0 and low != high and (e.has(range_name) or not release.own_range_beats_default):
        attribute = "inheritrange" if e.has("inheritrange") else range_name
        raise e.error(f"{range_name} and inheritrange are both given; allowed: one of them", attribute)


def _servo(e: Element, g: General, release: Release, clamped: str) -> None:
    """What <position> and <intvelocity> share. clamped: the range that inheritrange is for."""
    g.gain_params[0] = e.number("kp", g.gain_params[0])
    g.bias_params[1] = -g.gain_params[0]
    _servo_damping(e, g, release)
    _inherit_range(e, g, release, clamped)
    g.types(None, "fixed", "affine")


def _read_inputs(e: Element, g: General) -> None:
    """What the controls are; an empty text restores the default."""
    words = tuple((e.raw("input") or "").split()) if e.has("input") else None
    if g.gain == "so3":
        g.inputs = CHARTS[e.choice("input", CHARTS)] if words else CHARTS["expmap"] if e.has("input") else g.inputs
        return
    if g.gain not in CONTROLLED:
        if words and words not in {(word,) for word in MEANINGS}:
            raise e.error(f"found {e.raw('input')!r}; allowed: one of {', '.join(MEANINGS)}", "input")
        g.meaning = words[0] if words else g.meaning
        return
    known, default = (PID_INPUTS, PID_INPUTS[:2]) if g.gain == "pid" else (MOTOR_INPUTS, ("voltage",))
    if words == ("none",) and g.gain == "dcmotor":
        g.inputs = ()
    elif words is not None:
        g.inputs = words or default
    if g.inputs != tuple(word for word in known if word in g.inputs):
        raise e.error(f"found {e.raw('input')!r}; allowed: some of {', '.join(known)}, in this order", "input")


def _pid(e: Element, g: General, release: Release) -> None:
    if g.kind == "":
        g.gain_params[:], g.bias_params[:3], g.dynamics_params[:] = 0.0, (0.0, -1.0, 0.0), 0.0
    g.bias_params[1] = -e.number("kp", -g.bias_params[1])
    _servo_damping(e, g, release)
    g.gain_params[0] = e.number("ki", g.gain_params[0], nonnegative=True)
    g.dynamics_params[:2] = [e.number(n, x, nonnegative=True) for n, x in zip(("imax", "slewmax"), g.dynamics_params[:2], strict=True)]
    low, high = e.floats("posrange", 2, g.ranges["ctrl"])
    g.ranges["ctrl"] = float(low), float(high)
    _inherit_range(e, g, release, "ctrl")
    g.types("none", "pid", "affine")
    _read_inputs(e, g)
    g.dynamics = "pid" if g.memory else "none"


def _dcmotor(e: Element, g: General, release: Release) -> None:
    g.motor = read_motor(e, g.motor, g.damping[0] if g.damping else 0.0)
    if e.has("saturation"):
        g.ranges["force"] = 0.0, 0.0
    g.inputs, g.act_early, g.limited["act"] = g.motor["input"], True, "false"
    g.types("dcmotor", "dcmotor", "dcmotor")


def _orientation(e: Element, g: General, release: Release) -> None:
    g.gain_params[0] = e.number("kp", g.gain_params[0])
    g.bias_params[1] = -g.gain_params[0]
    _servo_damping(e, g, release)
    if g.kind == "":
        g.inputs = CHARTS["expmap"]
    g.types("none", "so3", "so3")
    _read_inputs(e, g)


def _servo_damping(e: Element, g: General, release: Release) -> None:
    """kv or dampratio."""
    kv, ratio = e.number("kv", 0.0, nonnegative=True), e.number("dampratio", 0.0, nonnegative=True)
    has_kv, has_ratio = (e.has("kv"), e.has("dampratio")) if release.written_zeros_count else (kv > 0, ratio > 0)
    if has_kv and has_ratio:
        raise e.error(f"found kv {kv:g} and dampratio {ratio:g}; allowed: one of them", "dampratio")
    if has_kv:
        g.bias_params[2] = -kv
    elif has_ratio:
        g.bias_params[2] = ratio  # a positive number in the place of -kv is a damping ratio


def _position(e: Element, g: General, release: Release) -> None:
    _servo(e, g, release, "ctrl")
    g.meaning = "pos"
    if e.has("timeconst"):
        g.dynamics_params[0] = e.number("timeconst", nonnegative=True)
        g.dynamics = "filterexact" if g.dynamics_params[0] > 0 else "none"


def _intvelocity(e: Element, g: General, release: Release) -> None:
    _servo(e, g, release, "act")
    g.dynamics, g.meaning = "integrator", "vel"
    g.limited["act"] = "true" if release.intvelocity_clamps_act else "auto"  # actlimited of 4.0 has no effect


def _velocity(e: Element, g: General, release: Release) -> None:
    g.gain_params[0] = e.number("kv", g.gain_params[0])
    g.bias_params[:] = 0.0
    g.bias_params[2] = -g.gain_params[0]
    g.types("none", "fixed", "affine")
    g.meaning = "vel"


def _one_sided(e: Element, g: General) -> None:
    """The control of dampers and of adhesion is clamped to a range that is not negative."""
    low, high = g.ranges["ctrl"]
    if low < 0 or high < 0:
        raise e.error(f"found {low:g} {high:g}; allowed: numbers >= 0 for <{e.tag}>", "ctrlrange")
    g.limited["ctrl"] = "true"


def _damper(e: Element, g: General, release: Release) -> None:
    g.damper = e.number("kv", g.damper, nonnegative=True)
    g.gain_params[:] = 0.0
    g.gain_params[2] = -g.damper
    _one_sided(e, g)
    g.types("none", "affine", "none")


def _cylinder(e: Element, g: General, release: Release) -> None:
    g.dynamics_params[0] = e.number("timeconst", g.dynamics_params[0])
    g.bias_params[:3] = e.floats("bias", 3, g.bias_params[:3])
    area = e.number("area", g.gain_params[0])
    g.gain_params[0] = pi / 4 * e.number("diameter") ** 2 if e.has("diameter") else area
    g.types("filter", "fixed", "affine")
    g.meaning = "pressure"


def _muscle(e: Element, g: General, release: Release) -> None:
    if release.muscle_fills_again or g.kind == "":
        for params, unset, default in ((g.dynamics_params, (1.0, 0.0), MUSCLE_TIMES), (g.gain_params, (1.0, *[0.0] * 8), MUSCLE)):
            used = params[: len(default)]
            np.copyto(used, default, where=used == unset)
    g.dynamics_params[:2] = e.floats("timeconst", 2, g.dynamics_params[:2])
    g.dynamics_params[2] = e.number("tausmooth", g.dynamics_params[2], nonnegative=True)
    g.gain_params[:2] = e.floats("range", 2, g.gain_params[:2])
    for i, name in enumerate(MUSCLE_NAMES, start=2):
        g.gain_params[i] = e.number(name, g.gain_params[i])
    g.bias_params[:9] = g.gain_params[:9]
    g.types("muscle", "muscle", "muscle")


def _adhesion(e: Element, g: General, release: Release) -> None:
    g.gain_params[0] = e.number("gain", g.gain_params[0])
    if e.has("gain") and g.gain_params[0] < 0:
        raise e.error(f"found {g.gain_params[0]:g}; allowed: numbers >= 0", "gain")
    _one_sided(e, g)
    g.types(g.dynamics if release.adhesion_keeps_dynamics else "none", "fixed", "none")


class Shortcut(NamedTuple):
    """write: sets the parameters from an element. gain, inherits: without `Release.one_actuator_default`, the parameters that it takes
    from a <general> in the defaults whose gain is of this type."""

    write: Callable[[Element, General, Release], None]
    gain: str | None = None
    inherits: dict[str, slice] = {}


SHORTCUTS = {
    "general": Shortcut(_general),
    "motor": Shortcut(_motor),
    "position": Shortcut(_position, "fixed", {"gain_params": slice(0, 1), "bias_params": slice(2, 3)}),
    "velocity": Shortcut(_velocity, "fixed", {"gain_params": slice(0, 1)}),
    "intvelocity": Shortcut(_intvelocity, "fixed", {"gain_params": slice(0, 1), "bias_params": slice(2, 3)}),
    "damper": Shortcut(_damper, "affine"),
    "cylinder": Shortcut(_cylinder, "fixed", {"gain_params": slice(0, 1), "bias_params": slice(0, 3), "dynamics_params": slice(0, 1)}),
    "muscle": Shortcut(_muscle, "muscle", {"gain_params": slice(0, 9), "dynamics_params": slice(0, 3)}),
    "pid": Shortcut(_pid, "pid", {"gain_params": slice(0, 1), "bias_params": slice(1, 3), "dynamics_params": slice(0, 2)}),
    "dcmotor": Shortcut(_dcmotor, "dcmotor"),
    "orientation": Shortcut(_orientation, "so3", {"gain_params": slice(0, 1), "bias_params": slice(2, 3)}),
    "plugin": Shortcut(_plugin),
    "adhesion": Shortcut(_adhesion, "fixed", {"gain_params": slice(0, 1)}),
}

PARAMETERS = (
    "dynamics",
    "gain",
    "bias",
    "dynamics_params",
    "gain_params",
    "bias_params",
    "act_dim",
    "act_early",
    "inherit_range",
    "inputs",
    "meaning",
    "motor",
    "damper",
)


def _write(e: Element, g: General, release: Release) -> None:
    _common(e, g)
    SHORTCUTS[e.tag].write(e, g, release)
    g.kind = e.tag


def read_general(document: Document, e: Element) -> General:
    """An actuator with the defaults of its class. With `Release.one_actuator_default` all shortcuts of the defaults write into one
    record, in order, the element last. Without it an element takes parameters only from the same shortcut or from <general>, in its class
    or the nearest enclosing one."""
    layers = document.classes.chain(e, *SHORTCUTS)
    if document.release.one_actuator_default:
        g = General()
        for layer in (*layers, e):
            _write(layer, g, document.release)
        return g
    classes = [General()]
    for _, one_class in groupby(layers, key=lambda layer: id(layer._node.parent)):
        classes.append(deepcopy(classes[-1]))
        for layer in one_class:
            classes[-1] = _inherited(layer.tag, classes)
            _write(layer, classes[-1], document.release)
    g = _inherited(e.tag, classes)
    _write(e, g, document.release)
    return g


def _inherited(kind: str, classes: list[General]) -> General:
    """The record that an element of this kind starts from without `Release.one_actuator_default`. classes: those of the enclosing
    default classes, innermost last."""
    g = deepcopy(classes[-1])
    if kind in ("general", "plugin"):
        return g
    rule = SHORTCUTS[kind]
    candidates = (r for r in reversed(classes) if r.kind == kind or r.kind == "general" and r.gain == rule.gain)
    source = next(candidates, General())
    same_kind = source.kind in (kind, "")
    start = source if same_kind else General()
    for name in PARAMETERS:
        setattr(g, name, deepcopy(getattr(start, name)))
    g.limited["act"] = start.limited["act"]
    g.kind = source.kind
    if same_kind:
        return g
    for name, part in rule.inherits.items():
        getattr(g, name)[part] = getattr(source, name)[part]
    if kind in ("pid", "orientation"):
        g.inputs = source.inputs
    if kind == "dcmotor":
        g.motor = motor_of(source.gain_params, source.bias_params, source.dynamics_params, source.inputs)
    if kind == "damper":
        g.damper = -float(source.gain_params[2])
    if kind == "position" and source.dynamics == "filterexact":
        g.dynamics, g.dynamics_params[0] = source.dynamics, source.dynamics_params[0]
    return g
