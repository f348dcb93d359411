"""From the sites, cameras, lights, tendons, actuators, sensors and keys of a ModelSpec to their structure and numbers."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from xsim.model.topology import ActuatorInfo, CameraInfo, KeyInfo, PieceInfo, SensorInfo, SiteInfo, TendonInfo
from xsim.model.tree import Tree, fail, unit_quat
from xsim.spec import ActuatorSpec, CameraSpec, KeySpec, LightSpec, ModelSpec, TendonSpec

__all__ = ["Devices", "read_devices"]

_SIZES = {
    "site": {"pos": "nsite"},
    "camera": {"pos": "ncamera"},
    "light": {"pos": "nlight"},
    "medium": {"density": "nmedium", "magnetic": "nmagnetic"},
    "tendon": {
        "coefficient": "ncoefficient", "divisor": "ndivisor", "stiffness": "ntendon", "spring_length": "nspringlength",
        "range": "ntendonrange", "friction": "ntendonfriction",
    },
    "actuator": {
        "gear": "nactuator", "damp_ratio": "ndampratio", "crank_length": "ncrank", "ctrl_range": "nctrlrange", "force_range": "nforcerange",
        "act_range": "nactrange", "length_range": "nlengthrange",
    },
}  # fmt: skip
"""The leaf whose rows give each dimension its length."""
_LEAVES = {
    "site": ("pos", "quat"),
    "camera": ("pos", "quat"),
    "light": ("pos", "dir"),
    "medium": ("density", "viscosity", "wind", "magnetic"),
    "tendon": ("coefficient", "divisor", "stiffness", "damping", "spring_length", "range", "friction"),
    "actuator": (
        "gear", "dynamics", "gain", "bias", "damp_ratio", "crank_length", "ctrl_range", "force_range", "act_range", "length_range",
    ),
}  # fmt: skip


UNKNOWN = (math.nan, math.nan)
"""Range of a muscle's lengths that is to be found by simulation."""


class Devices(NamedTuple):
    """infos: fields of the Topology. numbers: rows by group and leaf. sizes: lengths of the dimensions."""

    infos: dict[str, tuple]
    numbers: dict[str, dict[str, list]]
    sizes: list[tuple[str, int]]


def read_devices(spec: ModelSpec, tree: Tree) -> Devices:
    """Raises ValueError where the spec is inconsistent."""
    numbers: dict[str, dict[str, list]] = {group: {leaf: [] for leaf in leaves} for group, leaves in _LEAVES.items()}
    infos: dict[str, list] = {"sites": [], "cameras": [], "lights": [], "tendons": [], "actuators": [], "sensors": [], "keys": []}
    for site in spec.sites:
        _put(numbers["site"], pos=site.pos, quat=unit_quat(site.source, site.quat))
        infos["sites"].append(SiteInfo(site.name, site.body, site.shape, tuple(map(float, site.size))))
    for camera in spec.cameras:
        _put(numbers["camera"], pos=camera.pos, quat=unit_quat(camera.source, camera.quat))
        own = tuple(camera.resolution), tuple(camera.intrinsic), tuple(camera.sensor_size), float(camera.fovy)
        infos["cameras"].append(_camera(camera, *own))
    for light in spec.lights:
        _put(numbers["light"], pos=light.pos, dir=light.dir)
        infos["lights"].append(_camera(light))
    option = spec.option
    if option.density or option.viscosity:
        _put(numbers["medium"], density=option.density, viscosity=option.viscosity, wind=option.wind)
    if any(sensor.kind == "magnetometer" for sensor in spec.sensors):
        _put(numbers["medium"], magnetic=option.magnetic)
    for tendon in spec.tendons:
        infos["tendons"].append(_tendon(tendon, numbers["tendon"], tree))
    acts = 0
    for actuator in spec.actuators:
        infos["actuators"].append(_actuator(actuator, numbers["actuator"], acts, spec.option.actuator_groups_off))
        acts += infos["actuators"][-1].act is not None
    address = 0
    for sensor in spec.sensors:
        info = SensorInfo(sensor.name, sensor.kind, sensor.object, sensor.reference, sensor.stage, address, sensor.dim, sensor.cutoff)
        infos["sensors"].append(info)
        address += sensor.dim
    for key in spec.keys:
        infos["keys"].append(_key(key, tree, acts, len(spec.actuators)))
    sizes = [(size, len(numbers[group][leaf])) for group, dims in _SIZES.items() for leaf, size in dims.items()]
    return Devices({name: tuple(found) for name, found in infos.items()}, numbers, [*sizes, ("na", acts), ("nsensordata", address)])


def _put(numbers: dict[str, list], **rows) -> None:
    for leaf, row in rows.items():
        numbers[leaf].append(row)


def _row(numbers: dict[str, list], leaf: str, value) -> int | None:
    """The row of a number that only some have; None where it has none."""
    if value is None:
        return None
    numbers[leaf].append(value)
    return len(numbers[leaf]) - 1


def _camera(spec: CameraSpec | LightSpec, *own) -> CameraInfo:
    return CameraInfo(spec.name, spec.body, spec.mode, spec.target, *own)


def _tendon(spec: TendonSpec, numbers: dict[str, list], tree: Tree) -> TendonInfo:
    path = []
    for piece in spec.path:
        item: Any = piece.item
        if piece.kind == "joint":
            body, index = item
            item = tree.bodies[body].v[0] + index
        row = None
        if piece.kind in ("joint", "pulley"):
            row = _row(numbers, "coefficient" if piece.kind == "joint" else "divisor", piece.value)
        path.append(PieceInfo(piece.kind, item, row, piece.side))
    _put(numbers, stiffness=spec.stiffness, damping=spec.damping)
    own = (("spring_length", spec.spring_length), ("range", spec.range), ("friction", spec.friction or None))
    return TendonInfo(spec.name, spec.kind, tuple(path), *(_row(numbers, leaf, value) for leaf, value in own))


def _actuator(spec: ActuatorSpec, numbers: dict[str, list], acts: int, off: tuple[int, ...]) -> ActuatorInfo:
    searched = UNKNOWN if "muscle" in (spec.gain, spec.bias) else None
    _put(numbers, gear=spec.gear, dynamics=spec.dynamics_params, gain=spec.gain_params, bias=spec.bias_params)
    return ActuatorInfo(
        name=spec.name,
        transmission=spec.transmission,
        target=spec.target,
        reference=spec.reference,
        dynamics=spec.dynamics,
        gain=spec.gain,
        bias=spec.bias,
        early=spec.act_early,
        act=None if spec.dynamics == "none" else acts,
        ctrl_range=_row(numbers, "ctrl_range", spec.ctrl_range),
        force_range=_row(numbers, "force_range", spec.force_range),
        act_range=_row(numbers, "act_range", spec.act_range),
        length_range=_row(numbers, "length_range", searched if spec.length_range is None else spec.length_range),
        damp_ratio=_row(numbers, "damp_ratio", spec.damp_ratio),
        crank=_row(numbers, "crank_length", spec.crank_length) if spec.transmission == "slidercrank" else None,
        enabled=spec.group not in off,
    )


def _key(spec: KeySpec, tree: Tree, acts: int, actuators: int) -> KeyInfo:
    def full(name, value, default):
        value = np.asarray(default if value is None else value, float)
        if value.shape != np.shape(default):
            fail(spec.source, f"key {spec.name!r}: {name} has the shape {value.shape}, the model {np.shape(default)}")
        return value

    mocap = np.array([[*b.pos, *b.quat] for b in tree.mocaps]).reshape(-1, 7)
    pos, quat = full("mocap_pos", spec.mocap_pos, mocap[:, :3]), full("mocap_quat", spec.mocap_quat, mocap[:, 3:])
    return KeyInfo(
        spec.name,
        spec.time,
        *(
            tuple(map(float, full(name, value, default)))
            for name, value, default in (
                ("q", spec.q, tree.q0), ("v", spec.v, np.zeros(tree.nv)), ("act", spec.act, np.zeros(acts)),
                ("ctrl", spec.ctrl, np.zeros(actuators)),
            )
        ),
        tuple(tuple(map(float, row)) for row in np.concatenate([pos, quat], 1)),
    )  # fmt: skip
