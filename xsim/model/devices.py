"""Reads the sites, cameras, lights, tendons, actuators, sensors and keyframes of a ModelSpec into the topology and the leaves."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import ActuatorInfo, CameraInfo, KeyInfo, PieceInfo, SensorInfo, SiteInfo, TendonInfo
from xsim.model.tree import Tree, fail, unit_quat
from xsim.registry import ACTIVATION_DYNAMICS, ACTUATOR_BIASES, ACTUATOR_GAINS, SENSORS, TRANSMISSIONS
from xsim.rules import RULES
from xsim.spec import ActuatorSpec, CameraSpec, KeySpec, LightSpec, ModelSpec, TendonSpec

__all__ = ["Devices", "read_devices"]

UNKNOWN_RANGE = (math.nan, math.nan)
"""Length range of a muscle that `xsim.dynamics.length_range` computes by simulation."""


class Devices(NamedTuple):
    """infos: fields of the Topology. sizes: lengths of na and nsensordata."""

    infos: dict[str, tuple]
    sizes: dict[str, int]


def read_devices(spec: ModelSpec, tree: Tree) -> Devices:
    """The devices of a spec; their numbers are added to the leaves of the tree. Raises ValueError for an inconsistent spec."""
    rows = tree.rows
    infos: dict[str, list] = {"sites": [], "cameras": [], "lights": [], "tendons": [], "actuators": [], "sensors": [], "keys": []}
    for site in spec.sites:
        rows.add_to("site", pos=site.pos, quat=unit_quat(site.source, site.quat))
        infos["sites"].append(SiteInfo(site.name, site.body, site.shape, tuple(map(float, site.size))))
    for camera in spec.cameras:
        rows.add_to("camera", pos=camera.pos, quat=unit_quat(camera.source, camera.quat))
        optics = tuple(camera.resolution), tuple(camera.intrinsic), tuple(camera.sensor_size), float(camera.fovy)
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
    acts = 0
    for actuator in spec.actuators:
        infos["actuators"].append(_actuator(actuator, spec, rows, acts))
        acts += infos["actuators"][-1].act is not None
    address = 0
    for sensor in spec.sensors:
        if sensor.kind not in SENSORS:
            fail(sensor.source, f"sensor {sensor.name!r}: {SENSORS.unknown(sensor.kind)}")
        target = sensor.object, sensor.reference
        numbers = address, sensor.dim, sensor.cutoff
        infos["sensors"].append(SensorInfo(sensor.name, sensor.kind, *target, sensor.stage, *numbers, sensor.data, sensor.reduce))
        address += sensor.dim
    for key in spec.keys:
        infos["keys"].append(_key(key, tree, acts, len(spec.actuators)))
    return Devices({name: tuple(values) for name, values in infos.items()}, {"na": acts, "nsensordata": address})


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
    if spec.armature and any(piece.kind == "geom" for piece in spec.path):
        fail(spec.source, f"tendon {spec.name!r}: armature of a tendon that wraps around a geom")
    optional = (
        ("spring_length", spec.spring_length), ("range", spec.range), ("friction", spec.friction or None),
        ("armature", spec.armature or None),
    )  # fmt: skip
    return TendonInfo(spec.name, spec.kind, tuple(path), *(tree.rows.add_optional(f"tendon.{leaf}", value) for leaf, value in optional))


def _actuator(spec: ActuatorSpec, model: ModelSpec, rows: LeafRows, act: int) -> ActuatorInfo:
    for registry, kind in (
        (ACTIVATION_DYNAMICS, spec.dynamics), (ACTUATOR_GAINS, spec.gain), (ACTUATOR_BIASES, spec.bias), (TRANSMISSIONS, spec.transmission),
    ):  # fmt: skip
        if kind not in registry:
            fail(spec.source, f"actuator {spec.name!r}: {registry.unknown(kind)}")
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
        act=None if spec.dynamics == "none" else act,
        ctrl_range=rows.add_optional("actuator.ctrl_range", spec.ctrl_range),
        force_range=rows.add_optional("actuator.force_range", spec.force_range),
        act_range=rows.add_optional("actuator.act_range", spec.act_range),
        length_range=rows.add_optional("actuator.length_range", default_range if spec.length_range is None else spec.length_range),
        damp_ratio=rows.add_optional("actuator.damp_ratio", spec.damp_ratio),
        crank=rows.add_optional("actuator.crank_length", spec.crank_length) if spec.transmission == "slidercrank" else None,
        enabled=spec.group not in model.option.actuator_groups_off,
        periodic=RULES[model.rules].periodic_setpoints and _is_rotation_servo(spec, model),
    )


def _is_rotation_servo(spec: ActuatorSpec, model: ModelSpec) -> bool:
    """Whether the signal of an actuator is a target for the rotation of a ball joint, or of a site relative to another."""
    if not (spec.gain == "fixed" and spec.bias == "affine" and spec.gain_params[0] == -spec.bias_params[1] != 0):
        return False
    if spec.dynamics not in ("none", "integrator", "filter", "filterexact"):
        return False
    if isinstance(spec.target, tuple):
        body, index = spec.target
        return model.bodies[body].joints[index].type == "ball" and bool(np.any(spec.gear[:3]))
    return spec.transmission == "site" and spec.reference is not None and not np.any(spec.gear[:3]) and bool(np.any(spec.gear[3:]))


def _key(spec: KeySpec, tree: Tree, acts: int, actuators: int) -> KeyInfo:
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
    )  # fmt: skip
