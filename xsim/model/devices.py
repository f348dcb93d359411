"""Reads the devices of a ModelSpec (sites, cameras, lights, tendons, actuators, passive forces, sensors) and its keyframes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import (
    ActuatorInfo,
    CameraInfo,
    HistoryInfo,
    KeyInfo,
    PadInfo,
    PassiveInfo,
    PieceInfo,
    SensorInfo,
    SiteInfo,
    Table,
    TendonInfo,
)
from xsim.model.tree import Tree, fail, unit_quat
from xsim.registry import (
    ACTIVATION_DYNAMICS,
    ACTUATOR_BIASES,
    ACTUATOR_CONTROLLERS,
    ACTUATOR_GAINS,
    PASSIVE_FORCES,
    SENSORS,
    TRANSMISSIONS,
)
from xsim.rules import RULES
from xsim.spec import ActuatorSpec, CameraSpec, History, KeySpec, LightSpec, ModelSpec, PassiveSpec, SensorSpec, TendonSpec

__all__ = ["Devices", "read_devices", "with_reflected_rows"]

REFLECTING = ("joint", "jointinparent", "tendon")
"""Transmissions of actuators that can have armature and damping."""
REFLECTED = {"armature": 0.0, "damping": 0.0, "damping_poly": (0.0, 0.0)}
"""Numbers of an actuator that act at its target, and their zeros."""
UNKNOWN_RANGE = (math.nan, math.nan)
"""Length range of a muscle that `xsim.dynamics.length_range` computes by simulation."""


class Devices(NamedTuple):
    """infos: fields of the Topology. sizes: lengths of na, nsensordata and nhistory."""

    infos: dict[str, tuple]
    sizes: dict[str, int]


def read_devices(spec: ModelSpec, tree: Tree) -> Devices:
    """The devices of a spec; their numbers are added to the leaves of the tree. Raises ValueError for an inconsistent spec."""
    rows = tree.rows
    infos: dict[str, list] = {"sites": [], "cameras": [], "lights": [], "tendons": [], "actuators": [], "sensors": [], "keys": []}
    for site in spec.sites:
        rows.add_to("site", pos=site.pos, quat=unit_quat(site.source, site.quat))
        planes = None if site.planes is None else Table(site.planes)
        infos["sites"].append(SiteInfo(site.name, site.body, site.shape, tuple(map(float, site.size)), planes))
    for camera in spec.cameras:
        rows.add_to("camera", pos=camera.pos, quat=unit_quat(camera.source, camera.quat))
        optics = tuple(camera.resolution), tuple(camera.intrinsic), tuple(camera.sensor_size), float(camera.fovy), camera.orthographic
        infos["cameras"].append(_camera(camera, *optics))
    for light in spec.lights:
        rows.add_to("light", pos=light.pos, dir=light.dir)
        infos["lights"].append(_camera(light))
    option = spec.option
    if option.density or option.viscosity:
        rows.add_to("medium", density=option.density, viscosity=option.viscosity, wind=option.wind)
    if any(sensor.kind == "magnetometer" for sensor in spec.sensors):
        rows.add("medium.magnetic", option.magnetic)
    for tendon in spec.tendons:
        infos["tendons"].append(_tendon(tendon, tree))
    acts = controls = outputs = 0
    past = _Past(rows)
    for actuator in spec.actuators:
        infos["actuators"].append(_actuator(actuator, spec, rows, acts, controls, past, outputs))
        outputs += len(infos["actuators"][-1].outputs)
        acts += len(infos["actuators"][-1].activations)
        controls += len(infos["actuators"][-1].controls)
    address = 0
    infos["passive"] = [_passive(force, spec, rows) for force in spec.passive]
    for sensor in spec.sensors:
        infos["sensors"].append(_sensor(sensor, address, past))
        address += sensor.dim
    nplastic = tree.nplastic + sum(flex.nplastic for flex in spec.flexes)
    for key in spec.keys:
        infos["keys"].append(_key(key, tree, acts, controls, nplastic))
    sizes = {"na": acts, "nsensordata": address, "nhistory": past.address}
    return Devices({name: tuple(values) for name, values in infos.items()}, sizes)


def _passive(force: PassiveSpec, spec: ModelSpec, rows: LeafRows) -> PassiveInfo:
    name = f"passive force {force.name or force.kind!r}"
    if force.kind not in PASSIVE_FORCES:
        fail(force.source, f"{name}: {PASSIVE_FORCES.unknown(force.kind)}")
    kind = PASSIVE_FORCES[force.kind]
    found, wanted = {key: len(x) for key, x in force.config.items()}, {key: rule.width for key, rule in kind.config.items()}
    if list(found.items()) != list(wanted.items()):
        fail(force.source, f"{name}: config of the widths {found}; allowed: {wanted}")
    wrong = None if kind.check is None else kind.check(spec, force.bodies)
    if wrong:
        fail(force.source, f"{name}: {wrong}")
    numbers = tuple(rows.add("passive.numbers", x) for values in force.config.values() for x in values)
    return PassiveInfo(force.name, force.kind, force.bodies, numbers)


INTERPOLATIONS = ("zoh", "linear", "cubic")


class _Past:
    """Assigns addresses in `State.history`. address: the next one."""

    def __init__(self, rows: LeafRows):
        self.rows, self.address = rows, 0

    def add(self, owner: ActuatorSpec | SensorSpec, leaf: str, history: History | None, width: int) -> HistoryInfo | None:
        """The history of an owner whose samples have a width, None without."""
        if history is None:
            return None
        if history.samples < 1 or history.delay < 0 or history.interpolation not in INTERPOLATIONS:
            fail(owner.source, f"{owner.name!r}: {history}; allowed: samples >= 1, delay >= 0, interpolation {', '.join(INTERPOLATIONS)}")
        out = HistoryInfo(self.address, history.samples, width, history.interpolation, self.rows.add(leaf, history.delay))
        self.address = out.end
        return out


def _sensor(spec: SensorSpec, address: int, past: _Past) -> SensorInfo:
    if spec.kind not in SENSORS:
        fail(spec.source, f"sensor {spec.name!r}: {SENSORS.unknown(spec.kind)}")
    history, interval, ticked = past.add(spec, "sensor.delay", spec.history, spec.dim), (0.0, 0.0), None
    if spec.history is not None and spec.history.period:
        interval, ticked = (spec.history.period, spec.history.phase), past.address
        past.address += 1
        if not -interval[0] < interval[1] <= 0:
            fail(spec.source, f"sensor {spec.name!r}: period {interval[0]:g}, phase {interval[1]:g}; allowed: -period < phase <= 0")
    target, numbers = (spec.object, spec.reference), (address, spec.dim, spec.cutoff)
    config = tuple((name, tuple(map(float, values))) for name, values in spec.config.items())
    pad = None
    if spec.points is not None:
        pad = PadInfo(Table(spec.points), None if spec.tangents is None else Table(spec.tangents))
    return SensorInfo(spec.name, spec.kind, *target, spec.stage, *numbers, spec.data, spec.reduce, history, interval, ticked, config, pad)


def with_reflected_rows(spec: ModelSpec) -> ModelSpec:
    """The spec whose joints and tendons have all coefficients to which armature and damping of actuators add; zero if they had none."""
    bodies, tendons = list(spec.bodies), list(spec.tendons)
    for actuator in spec.actuators:
        wanted = {name: zero for name, zero in REFLECTED.items() if getattr(actuator, name) is not None}
        if wanted and actuator.transmission not in REFLECTING:
            fail(actuator.source, f"actuator {actuator.name!r}: {next(iter(wanted))} with the transmission {actuator.transmission!r}")
        if not wanted:
            continue
        if isinstance(actuator.target, int):
            tendons[actuator.target] = _with_zeros(tendons[actuator.target], wanted)
        elif "damping_poly" in wanted:
            body, index = actuator.target
            joints = list(bodies[body].joints)
            joints[index] = _with_zeros(joints[index], {"damping_poly": wanted["damping_poly"]})
            bodies[body] = replace(bodies[body], joints=tuple(joints))
    return replace(spec, bodies=tuple(bodies), tendons=tuple(tendons))


def _with_zeros(item, zeros: dict):
    return replace(item, **{name: zero for name, zero in zeros.items() if getattr(item, name) is None})


def _camera(spec: CameraSpec | LightSpec, *optics) -> CameraInfo:
    return CameraInfo(spec.name, spec.body, spec.mode, spec.target, *optics)


def _tendon(spec: TendonSpec, tree: Tree) -> TendonInfo:
    path = []
    for piece in spec.path:
        item: Any = piece.item
        if piece.kind == "joint":
            body, index = item
            item = tree.bodies[body].v[0] + index
        row = None
        if piece.kind in ("joint", "pulley"):
            row = tree.rows.add_optional("tendon.coefficient" if piece.kind == "joint" else "tendon.divisor", piece.value)
        path.append(PieceInfo(piece.kind, item, row, piece.side))
    tree.rows.add_to("tendon", stiffness=spec.stiffness, damping=spec.damping)
    if spec.armature is not None and any(piece.kind == "geom" for piece in spec.path):
        fail(spec.source, f"tendon {spec.name!r}: armature of a tendon that wraps around a geom")
    optional = (
        ("spring_length", spec.spring_length), ("range", spec.range), ("friction", spec.friction or None),
        ("armature", spec.armature), ("stiffness_poly", spec.stiffness_poly), ("damping_poly", spec.damping_poly),
        ("force_range", spec.force_range), ("spring_yield", spec.spring_yield),
    )  # fmt: skip
    if spec.spring_yield is not None and spec.spring_yield < 0:
        fail(spec.source, f"tendon {spec.name!r}: spring_yield {spec.spring_yield:g}; allowed: >= 0")
    rows = (tree.rows.add_optional(f"tendon.{leaf}", value) for leaf, value in optional)
    return TendonInfo(spec.name, spec.kind, tuple(path), *rows, plastic=None if spec.spring_yield is None else tree.add_plastic(2))


def _actuator(spec: ActuatorSpec, model: ModelSpec, rows: LeafRows, act: int, control: int, past: _Past, output: int) -> ActuatorInfo:
    for registry, kind in (
        (ACTIVATION_DYNAMICS, spec.dynamics), (ACTUATOR_GAINS, spec.gain), (ACTUATOR_BIASES, spec.bias), (TRANSMISSIONS, spec.transmission),
    ):  # fmt: skip
        if kind not in registry:
            fail(spec.source, f"actuator {spec.name!r}: {registry.unknown(kind)}")
    if spec.controller is not None:
        _check_controller(spec)
    if spec.outputs > 1:
        _check_orientation(spec, model)
    ranges = spec.input_ranges if spec.controller is not None else (spec.ctrl_range,)
    default_range = UNKNOWN_RANGE if ACTUATOR_GAINS[spec.gain].muscle or ACTUATOR_BIASES[spec.bias].muscle else None
    rows.add_to("actuator", gear=spec.gear, dynamics=spec.dynamics_params, gain=spec.gain_params, bias=spec.bias_params)
    return ActuatorInfo(
        name=spec.name,
        transmission=spec.transmission,
        target=spec.target,
        reference=spec.reference,
        dynamics=spec.dynamics,
        gain=spec.gain,
        bias=spec.bias,
        act_early=spec.act_early,
        controls=tuple(range(control, control + len(ranges))),
        ctrl_ranges=tuple(rows.add_optional("actuator.ctrl_range", one) for one in ranges),
        act=act if spec.widths[1] else None,
        force_range=rows.add_optional("actuator.force_range", spec.force_range),
        act_range=rows.add_optional("actuator.act_range", spec.act_range),
        length_range=rows.add_optional("actuator.length_range", default_range if spec.length_range is None else spec.length_range),
        damp_ratio=rows.add_optional("actuator.damp_ratio", spec.damp_ratio),
        crank=rows.add_optional("actuator.crank_length", spec.crank_length) if spec.transmission == "slidercrank" else None,
        armature=rows.add_optional("actuator.armature", spec.armature),
        damping=rows.add_optional("actuator.damping", spec.damping),
        damping_poly=rows.add_optional("actuator.damping_poly", spec.damping_poly),
        enabled=spec.group not in model.option.actuator_groups_off,
        periodic=RULES[model.rules].periodic_setpoints and _is_rotation_servo(spec, model),
        controller=spec.controller,
        inputs=spec.inputs,
        memory=spec.memory,
        history=past.add(spec, "actuator.delay", spec.history, len(ranges)),
        outputs=tuple(range(output, output + spec.outputs)),
    )


def _check_controller(spec: ActuatorSpec) -> None:
    assert spec.controller is not None
    if spec.controller not in ACTUATOR_CONTROLLERS:
        fail(spec.source, f"actuator {spec.name!r}: {ACTUATOR_CONTROLLERS.unknown(spec.controller)}")
    controller = ACTUATOR_CONTROLLERS[spec.controller]
    for name, known in (("inputs", controller.inputs), ("memory", controller.memory)):
        if getattr(spec, name) != tuple(x for x in known if x in getattr(spec, name)):
            fail(spec.source, f"actuator {spec.name!r}: {name} {getattr(spec, name)}; allowed: some of {known}, in this order")
    if len(spec.input_ranges) != len(spec.inputs):
        fail(spec.source, f"actuator {spec.name!r}: {len(spec.input_ranges)} ranges for {len(spec.inputs)} inputs")


def _check_orientation(spec: ActuatorSpec, model: ModelSpec) -> None:
    is_ball = isinstance(spec.target, tuple) and model.bodies[spec.target[0]].joints[spec.target[1]].type == "ball"
    if not (is_ball and spec.transmission == "joint") and not (spec.transmission == "site" and spec.reference is not None):
        fail(spec.source, f"actuator {spec.name!r}: an orientation servo; allowed: on a ball joint, or on a site with a reference site")
    if len(spec.inputs) < 3 or spec.memory and (len(spec.memory), len(spec.inputs)) != (3, 3):
        fail(spec.source, f"actuator {spec.name!r}: inputs {spec.inputs}, memory {spec.memory}; allowed: x y z or w x y z, memory x y z")
    if spec.force_range is not None and spec.force_range[0] != 0:
        fail(spec.source, f"actuator {spec.name!r}: force_range {spec.force_range}; allowed: (0, greatest norm of the torque)")


def _is_rotation_servo(spec: ActuatorSpec, model: ModelSpec) -> bool:
    """Whether the signal of an actuator is a target for the rotation of a ball joint, or of a site relative to another."""
    servo = spec.gain == "fixed" and spec.bias == "affine" and spec.gain_params[0] == -spec.bias_params[1] != 0
    if not servo and not (spec.controller == "pid" and "pos" in spec.inputs):
        return False
    if spec.dynamics not in ("none", "integrator", "filter", "filterexact"):
        return False
    if isinstance(spec.target, tuple):
        body, index = spec.target
        return model.bodies[body].joints[index].type == "ball" and bool(np.any(spec.gear[:3]))
    return spec.transmission == "site" and spec.reference is not None and not np.any(spec.gear[:3]) and bool(np.any(spec.gear[3:]))


def _key(spec: KeySpec, tree: Tree, acts: int, actuators: int, nplastic: int) -> KeyInfo:
    def checked(name, value, default):
        value = np.asarray(default if value is None else value, float)
        if value.shape != np.shape(default):
            fail(spec.source, f"key {spec.name!r}: {name} has the shape {value.shape}, the model {np.shape(default)}")
        return value

    mocap = np.array([[*b.pos, *b.quat] for b in tree.mocaps]).reshape(-1, 7)
    pos, quat = checked("mocap_pos", spec.mocap_pos, mocap[:, :3]), checked("mocap_quat", spec.mocap_quat, mocap[:, 3:])
    return KeyInfo(
        spec.name,
        spec.time,
        *(
            tuple(map(float, checked(name, value, default)))
            for name, value, default in (
                ("q", spec.q, tree.q0), ("v", spec.v, np.zeros(tree.nv)), ("act", spec.act, np.zeros(acts)),
                ("ctrl", spec.ctrl, np.zeros(actuators)),
            )
        ),
        tuple(tuple(map(float, row)) for row in np.concatenate([pos, quat], 1)),
        None if spec.plastic is None else tuple(map(float, checked("plastic", spec.plastic, np.zeros(nplastic)))),
    )  # fmt: skip
