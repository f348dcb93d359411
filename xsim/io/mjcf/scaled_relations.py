"""Elements outside the tree of bodies that refer to what is in a scaled <frame>: they are scaled with it. See `scaling`.

Two scales: a pair of geoms, a distance and the width of a weld take their geometric mean, an equality the scale of its first object, a
spatial tendon none, and a fixed one multiplies the coefficients of slides by 1 / s, so that its length stays one of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.scaling import UNIT, Scale, widened
from xsim.io.mjcf.shortcuts import read_general
from xsim.io.reader import Element
from xsim.joints.types import JOINT_TYPES
from xsim.spec import ActuatorSpec, EqualitySpec, PairSpec, SensorSpec, TendonSpec, WrapSpec

__all__ = ["Relations"]

LENGTH, ANGLE = 1, 0
Item = tuple[str, Any]


class _Signal(NamedTuple):
    """Factors of the control of an actuator. number: of itself. unit: of the unit of the signal that the gain multiplies. inputs: of the
    controls of a controller."""

    number: float
    unit: float
    inputs: list[float]


class Relations:
    """Scales what refers to scaled elements, if there are any. tendons, actuators: with the numbers of the file."""

    def __init__(self, document: Document, bodies: Bodies, tendons: list[TendonSpec], actuators: list[ActuatorSpec]):
        self.scales = {item: scale for item, scale in bodies.scales.items() if scale != UNIT}
        self.bodies, self.file_tendons, self.file_actuators = bodies.bodies, tendons, actuators
        self._document = document

    def scale(self, item: Item | None) -> Scale:
        if item is None:
            return UNIT
        kind, number = item
        if kind == "tendon":
            return self._tendon_scale(self.file_tendons[number])
        return self.scales.get(("body" if kind in ("xbody", "subtree") else kind, number), UNIT)

    def _joint_of(self, coordinate: Any) -> tuple[int, int]:
        """(body, which of its joints) of (body, which of its coordinates)."""
        body, index = coordinate
        ends = np.cumsum([JOINT_TYPES[joint.type].nv for joint in self.bodies[body].joints])
        return body, int(np.searchsorted(ends, index, side="right"))

    def _slides(self, joint: tuple[int, int]) -> bool:
        return self.bodies[joint[0]].joints[joint[1]].type == "slide"

    # ---- tendons ----

    def _parts(self, tendon: TendonSpec) -> list[Scale]:
        """The scales of the sites, geoms or joints in a path."""
        items = [("joint", self._joint_of(w.item)) if w.kind == "joint" else (w.kind, w.item) for w in tendon.path if w.kind != "pulley"]
        return [self.scale(item) for item in items]

    def _tendon_scale(self, tendon: TendonSpec) -> Scale:
        scales = set(self._parts(tendon))
        return scales.pop() if len(scales) == 1 else UNIT

    def _tendon_kind(self, tendon: TendonSpec) -> int:
        """Whether its length is a LENGTH or an ANGLE."""
        slides = [self._slides(self._joint_of(wrap.item)) for wrap in tendon.path if wrap.kind == "joint"]
        return LENGTH if tendon.kind == "spatial" or any(slides) else ANGLE

    def tendon(self, tendon: TendonSpec) -> TendonSpec:
        if not self.scales:
            return tendon
        scale, kind = self._tendon_scale(tendon), self._tendon_kind(tendon)
        path = tuple(self._wrap(wrap, scale) for wrap in tendon.path) if tendon.kind == "fixed" and kind == LENGTH else tendon.path
        if scale == UNIT:
            return replace(tendon, path=path)
        s, k, force = scale.length, scale.force(0 if kind else 2), scale.force(1 if kind else 2)
        fields: dict[str, Any] = {name: _times(getattr(tendon, name), k) for name in ("stiffness", "damping", "armature")}
        fields |= {name: _times(getattr(tendon, name), force) for name in ("friction", "force_range")}
        for name in ("stiffness_poly", "damping_poly"):
            higher = getattr(tendon, name)
            fields[name] = higher and tuple(x * scale.force(-i if kind else 2) for i, x in enumerate(higher, 1))
        if kind == LENGTH:
            fields |= {name: _times(getattr(tendon, name), s) for name in ("range", "spring_length", "margin", "spring_yield")}
            fields |= {name: widened(getattr(tendon, name), s) for name in ("limit_soft", "friction_soft")}
        return replace(tendon, path=path, width=tendon.width * s, **fields)

    def _wrap(self, wrap: WrapSpec, scale: Scale) -> WrapSpec:
        """A coordinate in a tendon whose length is a length: slides of another scale, and hinges, have a factor."""
        joint = self._joint_of(wrap.item)
        if self._slides(joint):
            return replace(wrap, value=wrap.value * scale.length / self.scale(("joint", joint)).length)
        return replace(wrap, value=wrap.value * scale.length)

    # ---- actuators ----

    def _target(self, actuator: ActuatorSpec) -> tuple[Scale, int]:
        """The scale of the target, and whether its length is a LENGTH or an ANGLE."""
        kind = {"jointinparent": "joint", "slidercrank": "site"}.get(actuator.transmission, actuator.transmission)
        number: Any = actuator.target
        scale = self.scale((kind, number))
        if kind == "tendon":
            return scale, self._tendon_kind(self.file_tendons[number])
        if kind == "joint":
            of = self.bodies[number[0]].joints[number[1]].type
            return scale, LENGTH if of == "slide" or of == "free" and np.any(actuator.gear[:3]) else ANGLE
        if actuator.transmission == "site":
            return scale, LENGTH if np.any(actuator.gear[:3]) and actuator.outputs == 1 else ANGLE
        return scale, LENGTH

    def actuator(self, actuator: ActuatorSpec, e: Element) -> ActuatorSpec:
        """e: its element. Raises ParseError for one that cannot be scaled."""
        if not self.scales:
            return actuator
        scale, kind = self._target(actuator)
        if scale == UNIT:
            return actuator
        if actuator.gain == "plugin" or actuator.gain == "dcmotor" and (kind or scale.unit != 1 or scale.unit_mass != 1):
            raise e.error("acts on what is in a frame with a scale; allowed: elsewhere (dcmotor: scaling geometry, on hinges)")
        if actuator.gain == "dcmotor":
            return actuator
        s, force, per_length = scale.length if kind else 1.0, scale.force(1 if kind else 2), scale.force(0 if kind else 2)
        signal, gear = self._signal(actuator, e, scale, kind), np.array(actuator.gear)
        if kind and not actuator.transmission == "tendon" and not self._is_scalar(actuator):
            gear[3:] *= scale.length
        gain, bias, dynamics = (np.array(x) for x in (actuator.gain_params, actuator.bias_params, actuator.dynamics_params))
        if actuator.gain == "muscle":
            gain[2] *= force
            bias[2] *= force
        else:
            # What the gain multiplies has the unit of the signal. Of a positive third number of the bias, a damping ratio, nothing changes.
            steps = [1.0, 1.0, 1.0] if kind == ANGLE else [1.0, scale.unit, scale.unit]
            gain[:3] *= force / signal.unit / np.array(steps)
            bias[:3] *= [force, per_length, per_length if bias[2] <= 0 else 1.0]
        if actuator.gain == "pid":
            gain[0] *= signal.unit / force * per_length
            dynamics[:2] *= s
        fields: dict[str, Any] = {"gain_params": gain, "bias_params": bias, "dynamics_params": dynamics, "gear": gear}
        fields["force_range"] = _times(actuator.force_range, force)
        fields |= {name: _times(getattr(actuator, name), signal.number) for name in ("ctrl_range", "act_range")}
        fields["input_ranges"] = tuple(_times(x, f) for x, f in zip(actuator.input_ranges, signal.inputs, strict=True))
        fields["armature"], fields["damping"] = _times(actuator.armature, per_length), _times(actuator.damping, per_length)
        higher = actuator.damping_poly
        fields["damping_poly"] = higher and tuple(x * scale.force(-i if kind else 2) for i, x in enumerate(higher, 1))
        limit = self.bodies[actuator.target[0]].joints[actuator.target[1]].position_range if isinstance(actuator.target, tuple) else None
        if limit is None or actuator.length_range != tuple(limit[0].tolist()):  # which is scaled already
            fields["length_range"] = _times(actuator.length_range, s)
        if actuator.transmission == "slidercrank":
            scale = scale.mean(self.scale(("site", actuator.reference)))
        return replace(actuator, crank_length=actuator.crank_length * scale.length, **fields)

    def _signal(self, actuator: ActuatorSpec, e: Element, scale: Scale, kind: int) -> _Signal:
        """The factors of the control of an actuator. scale, kind: of its target."""
        s = scale.length if kind else 1.0
        if actuator.controller is not None:
            inputs = [scale.force(1 if kind else 2) if name == "ff" else s for name in actuator.inputs]
            return _Signal(1.0, 1.0, inputs if actuator.gain == "pid" else [1.0] * len(inputs))
        meaning = read_general(self._document, e).meaning
        if meaning == "pressure":
            pressure = scale.unit_mass / scale.unit
            return _Signal(pressure, pressure, [])
        return _Signal(s, scale.unit if kind else 1.0, []) if meaning else _Signal(1.0, 1.0, [])

    def _is_scalar(self, actuator: ActuatorSpec) -> bool:
        """Whether only the first number of the gear acts."""
        if isinstance(actuator.target, tuple):
            body, joint = actuator.target
            return self.bodies[body].joints[joint].type != "free"
        return actuator.transmission == "slidercrank"

    def key_factors(self) -> dict[str, np.ndarray]:
        """The factors of the vectors of keyframes, by the names of the file."""
        out: dict[str, list[float]] = {name: [] for name in ("qpos", "qvel", "ctrl", "act", "mpos", "mquat", "plastic")}
        for i, body in enumerate(self.bodies):
            if body.mocap:
                out["mpos"] += [self.scale(("body", i)).length] * 3
                out["mquat"] += [1.0] * 4
            for k, joint in enumerate(self.bodies[i].joints):
                s = self.scale(("joint", (i, k))).length
                nq: int = JOINT_TYPES[joint.type].nq
                q = {"slide": [s], "free": [s] * 3 + [1.0] * 4}.get(joint.type, [1.0] * nq)
                out["qpos"] += q
                out["qvel"] += {"free": [s] * 3 + [1.0] * 3, "ball": [1.0] * 3}.get(joint.type, q)
                out["plastic"] += q if joint.spring_yield is not None else []
        for tendon in self.file_tendons:
            if tendon.spring_yield is not None:
                out["plastic"] += [self._tendon_scale(tendon).length if self._tendon_kind(tendon) else 1.0] * 2
        for actuator, e in zip(self.file_actuators, self._document.elements("actuator"), strict=True):
            controls, activations = self._signals(actuator, e)
            out["ctrl"] += controls
            out["act"] += activations
        return {name: np.array(values) for name, values in out.items()}

    def key_shifts(self) -> dict[str, np.ndarray]:
        """What is added to the positions of free and mocap bodies in keyframes: these are places in the world."""
        qpos, mpos = [np.zeros(0)], [np.zeros(0)]
        for i, body in enumerate(self.bodies):
            if body.mocap:
                mpos.append(np.array(self.scale(("body", i)).shift))
            for k, joint in enumerate(body.joints):
                free = joint.type == "free"
                qpos.append(np.array([*self.scale(("joint", (i, k))).shift, *[0.0] * 4] if free else [0.0] * JOINT_TYPES[joint.type].nq))
        return {"qpos": np.concatenate(qpos), "mpos": np.concatenate(mpos)}

    def _signals(self, actuator: ActuatorSpec, e: Element) -> tuple[list[float], list[float]]:
        """The factors of the controls and of the activations of an actuator in keyframes."""
        (scale, kind), (controls, activations) = self._target(actuator), actuator.widths
        if scale == UNIT:
            return [1.0] * controls, [1.0] * activations
        s, signal = scale.length if kind else 1.0, self._signal(actuator, e, scale, kind)
        return signal.inputs or [signal.number] * controls, [s if actuator.gain == "pid" else signal.number] * activations

    # ---- the others ----

    def equality(self, equality: EqualitySpec) -> EqualitySpec:
        kind, items = equality.kind, equality.items
        if kind in ("flex", "flexstrain") or not self.scales:
            return equality
        of = {"joint": "joint", "tendon": "tendon"}.get(kind, "site" if equality.sites else "body")
        numbers: list[Any] = [self._joint_of(item) if of == "joint" else item for item in items]
        first, second = ([self.scale((of, number)) for number in numbers] + [UNIT])[:2]
        if kind == "connect":
            return replace(equality, anchor=equality.anchor * first.length, soft=widened(equality.soft, first.length))
        if kind == "weld":
            mean, pose = first.mean(second).length, equality.relpose
            pose = None if pose is None else np.concatenate([pose[:3] * first.length, pose[3:]])
            soft, anchor = widened(equality.soft, mean), equality.anchor * second.length
            return replace(equality, relpose=pose, anchor=anchor, torque_scale=equality.torque_scale * mean, soft=soft)
        lengths = [self._slides(n) if of == "joint" else self._tendon_kind(self.file_tendons[n]) == LENGTH for n in numbers]
        a, b = (scale.length if is_length else 1.0 for scale, is_length in zip((first, second), (*lengths, False), strict=False))
        return replace(equality, polycoef=equality.polycoef * a / b ** np.arange(5), soft=widened(equality.soft, a))

    def pair(self, pair: PairSpec) -> PairSpec:
        if not self.scales:
            return pair
        scale = self.scale(("geom", pair.geoms[0])).mean(self.scale(("geom", pair.geoms[1])))
        s, friction = scale.length, pair.friction
        return replace(
            pair,
            friction=None if friction is None else (*friction[:2], *_times(friction[2:], s)),
            solimp=None if pair.solimp is None else (*pair.solimp[:2], pair.solimp[2] * s, *pair.solimp[3:]),
            margin=_times(pair.margin, s),
            gap=_times(pair.gap, s),
            adhesion=_times(pair.adhesion, scale.force(1)),
        )

    def sensor(self, sensor: SensorSpec) -> SensorSpec:
        """Its cutoff and noise."""
        if not self.scales:
            return sensor
        item = sensor.object
        scale, kind = self.scale(item), LENGTH
        if item is not None and item[0] == "joint":
            kind = LENGTH if self._slides(item[1]) else ANGLE
        elif item is not None and item[0] == "tendon":
            kind = self._tendon_kind(self.file_tendons[item[1]])
        elif item is not None and item[0] == "actuator":
            scale, kind = self._target(self.file_actuators[item[1]])
        if sensor.kind in ("distance", "fromto"):
            scale = scale.mean(self.scale(sensor.reference))
        factor = _SENSORS.get(sensor.kind, lambda scale, kind: 1.0)(scale, kind)
        if sensor.kind == "insidesite" and not sensor.data:
            factor = 1.0
        return replace(sensor, cutoff=sensor.cutoff * factor, noise=sensor.noise * factor)


def _times(x: Any, factor: float) -> Any:
    """A number or a tuple times a factor; None stays."""
    if x is None:
        return None
    return tuple(y * factor for y in x) if isinstance(x, tuple) else x * factor


def _length(scale: Scale, kind: int) -> float:
    return scale.length


def _of_kind(scale: Scale, kind: int) -> float:
    return scale.length if kind else 1.0


def _force_of_kind(scale: Scale, kind: int) -> float:
    return scale.force(1 if kind else 2)


_SENSORS: dict[str, Callable[[Scale, int], float]] = {
    **dict.fromkeys(("framepos", "framelinvel", "framelinacc", "accelerometer", "velocimeter", "subtreecom", "subtreelinvel"), _length),
    **dict.fromkeys(("rangefinder", "distance", "fromto", "insidesite"), _length),
    **dict.fromkeys(("jointpos", "jointvel", "tendonpos", "tendonvel", "actuatorpos", "actuatorvel"), _of_kind),
    **dict.fromkeys((f"{part}limit{what}" for part in ("joint", "tendon") for what in ("pos", "vel")), _of_kind),
    **dict.fromkeys(("actuatorfrc", "jointactuatorfrc", "tendonactuatorfrc", "jointlimitfrc", "tendonlimitfrc"), _force_of_kind),
    **dict.fromkeys(("force", "touch"), lambda scale, kind: scale.force(1)),
    **dict.fromkeys(("torque", "subtreeangmom"), lambda scale, kind: scale.force(2)),
}
"""The factor of the reading of a sensor, by kind."""
