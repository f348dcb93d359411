"""with_numbers(spec, model) -> ModelSpec: the numbers of a Model, fitted or set, back in the spec from which it was built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from xsim.model.build import assemble
from xsim.model.model import Model, unfrozen
from xsim.model.topology import ActuatorInfo, BodyInfo, GeomInfo, JointInfo, PassiveInfo, SoftInfo
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spec import (
    ActuatorSpec,
    BodySpec,
    EqualitySpec,
    GeomSpec,
    JointSpec,
    ModelSpec,
    PassiveSpec,
    Soft,
    SurfaceSpec,
    TendonSpec,
)

__all__ = ["with_numbers"]

ROUNDING = 1e-6  # relative: of leaves in single precision

# Fields of a spec by leaf, where row i of the leaf is that of element i.
ROWS = {
    "site": {"pos": "pos", "quat": "quat"},
    "tendon": {"stiffness": "stiffness", "damping": "damping"},
    "actuator": {"gear": "gear", "dynamics": "dynamics_params", "gain": "gain_params", "bias": "bias_params"},
}
# The same, where the info of the element has the row: leaf and field of the info, field of the spec.
OPTIONAL = {
    "tendon": {
        name: (name, name) for name in ("range", "friction", "armature", "stiffness_poly", "damping_poly", "force_range", "spring_yield")
    }
    | {"spring_length": ("spring", "spring_length")},
    "actuator": {
        name: (name, name) for name in ("force_range", "act_range", "length_range", "damp_ratio", "armature", "damping", "damping_poly")
    }
    | {"crank_length": ("crank", "crank_length")},
}
OPTION = ("gravity", "dt", "regularization")
DOFS = ("damping", "armature", "stiffness")
BOUNDS = (("", "position_range"), ("velocity_", "velocity_range"), ("force_", "force_range"))
"""Bounds of dofs: beginning of the leaf, field of the joint."""
LIMITS = {"lower": 0, "upper": 1}
EQUALITY = {"row": (("anchor", "anchor"), ("polynomial", "polycoef")), "pose": (("relpose", "relpose"),), "scale": (("torque_scale",) * 2,)}
"""Leaves of an equality and fields of its spec, by the field of the info that has the row."""


def with_numbers(spec: ModelSpec, model: Model, *, seed: int = 0) -> ModelSpec:
    """The spec with the numbers of a Model that was built from it: identified, randomized (one environment) or set.

    Numbers that are as in the spec stay as they are, to the last digit. Random joint axes become given ones. seed: with which the model
    was built. Raises ValueError where the model has another structure, differs between environments, or has changed a leaf that has no
    place in the spec (frames of holonomic constraints and force elements, parameters of pairs that are mixed from their geoms).
    """
    leaves = _Changes(assemble(spec, seed=seed), model)
    top = model.topology
    geoms = enumerate(zip((*spec.world_geoms, *(g for b in spec.bodies for g in b.geoms)), top.geoms, strict=True))
    world = tuple(_geom(leaves, *next(geoms)) for _ in spec.world_geoms)
    bodies = []
    for i, (body, info) in enumerate(zip(spec.bodies, top.bodies, strict=True)):
        shapes = tuple(_geom(leaves, *next(geoms)) for _ in body.geoms)
        bodies.append(replace(_body(leaves, i, body, info), geoms=shapes))
    option = replace(spec.option, **{name: leaves.value(f"option.{name}", (), getattr(spec.option, name)) for name in OPTION})
    lists = {"site": (spec.sites, top.sites), "tendon": (spec.tendons, top.tendons), "actuator": (spec.actuators, top.actuators)}
    sites, tendons, actuators = (_elements(leaves, kind, *pair) for kind, pair in lists.items())
    passive = tuple(_passive(leaves, *pair) for pair in zip(spec.passive, top.passive, strict=True))
    tendons = tuple(_soft_tendon(leaves, i, tendon) for i, tendon in enumerate(tendons))
    actuators = tuple(_inputs(leaves, *pair) for pair in zip(actuators, top.actuators, strict=True))
    sensors = tuple(_delayed(leaves, "sensor", *pair) for pair in zip(spec.sensors, top.sensors, strict=True))
    spec = spec.replace(passive=passive, sensors=sensors, equalities=_equalities(leaves, spec))
    out = spec.replace(bodies=tuple(bodies), world_geoms=world, option=option, sites=sites, tendons=tendons, actuators=actuators)
    _check(assemble(out, seed=seed), model)
    return out


class _Changes:
    """The leaves of a model beside those that its spec gives. surfaces: the row of surface.* of each geom that can touch another. soft: by
    kind and first item of a soft constraint, its info."""

    def __init__(self, base: Model, model: Model):
        self.base, self.model = base, model
        for path in base.paths():
            if path not in model.paths() or np.shape(_array(base, path)) != np.shape(_array(model, path)):
                raise ValueError(f"{path}: the model was not built from this spec, or differs between environments; allowed: one of them")
        pairs = [info for info in model.topology.pairs if info.mixed]
        pairs = [pair for info in pairs for pair in zip(np.ravel(info.geoms.value), np.ravel(info.leaf_rows.value), strict=True)]
        self.soft = {(info.kind, info.items[0]): info for info in reversed(model.topology.soft)}
        self.surfaces = {int(geom): int(row) for geom, row in pairs}

    def value(self, path: str, index: Any, given: Any) -> Any:
        """The part of a leaf at an index, ``given`` where the model has not changed it."""
        old, new = _array(self.base, path)[index], _array(self.model, path)[index]
        if np.array_equal(old, new, equal_nan=True):
            return given
        kept = np.where(old == new, old if given is None else np.reshape(np.asarray(given, float), np.shape(old)), new)
        return _like(given, kept)


def _array(model: Model, path: str) -> np.ndarray:
    return np.asarray(unfrozen(model.get(path)), np.float64)


def _softness(leaves: _Changes, row: int, soft: Soft) -> Soft:
    return replace(soft, **{name: leaves.value(f"soft.{name}", row, getattr(soft, name)) for name in ("solref", "solimp")})


def _limit_softness(leaves: _Changes, info: SoftInfo, given: Any) -> dict[str, Any]:
    """Fields of a joint or tendon with a soft limit."""
    margin = leaves.value("soft.margin", info.soft, given.margin)
    return {"limit_soft": _softness(leaves, info.soft, given.limit_soft), "margin": margin}


def _equalities(leaves: _Changes, spec: ModelSpec) -> tuple[EqualitySpec, ...]:
    """The equalities; those that are off have no numbers in a model."""
    infos = [info for info in leaves.model.topology.soft if info.kind in SOFT_CONSTRAINTS and SOFT_CONSTRAINTS[info.kind].items]
    rest = iter(infos)
    if not infos:
        return spec.equalities
    return tuple(_equality(leaves, one, next(rest)) if one.active and one.kind in SOFT_CONSTRAINTS else one for one in spec.equalities)


def _equality(leaves: _Changes, equality: EqualitySpec, info: SoftInfo) -> EqualitySpec:
    fields: dict[str, Any] = {"soft": _softness(leaves, info.soft, equality.soft)}
    known = SOFT_CONSTRAINTS[info.kind].leaves
    for row, pairs in EQUALITY.items():
        if getattr(info, row) is not None:
            fields |= {
                name: leaves.value(f"equality.{leaf}", getattr(info, row), getattr(equality, name)) for leaf, name in pairs if leaf in known
            }
    return replace(equality, **fields)


def _soft_tendon(leaves: _Changes, number: int, tendon: TendonSpec) -> TendonSpec:
    friction, limit = (leaves.soft.get((kind, number)) for kind in ("tendon_friction", "tendon_lower"))
    fields = {} if limit is None else _limit_softness(leaves, limit, tendon)
    if friction is not None:
        fields["friction_soft"] = _softness(leaves, friction.soft, tendon.friction_soft)
    return replace(tendon, **fields)


def _inputs(leaves: _Changes, actuator: ActuatorSpec, info: ActuatorInfo) -> ActuatorSpec:
    """The actuator with its delay and the ranges of its controls."""
    given = actuator.input_ranges if actuator.controller is not None else (actuator.ctrl_range,)
    ranges = tuple(
        x if row is None else leaves.value("actuator.ctrl_range", row, x) for row, x in zip(info.ctrl_ranges, given, strict=True)
    )
    fields: dict[str, Any] = {"input_ranges": ranges} if actuator.controller is not None else {"ctrl_range": ranges[0]}
    return _delayed(leaves, "actuator", replace(actuator, **fields), info)


def _delayed(leaves: _Changes, kind: str, element: Any, info: Any) -> Any:
    """An actuator or sensor with its delay."""
    if info.history is None:
        return element
    delay = leaves.value(f"{kind}.delay", info.history.delay, element.history.delay)
    return replace(element, history=replace(element.history, delay=delay))


def _like(given: Any, value: np.ndarray) -> Any:
    """A number for a number, a tuple for a tuple, else an array."""
    if isinstance(given, (int, float)) or value.ndim == 0:
        return float(value)
    return tuple(value.tolist()) if isinstance(given, tuple) else value


def _body(leaves: _Changes, i: int, body: BodySpec, info: BodyInfo) -> BodySpec:
    fields: dict[str, Any] = {name: leaves.value(f"body.{name}", i, getattr(body, name)) for name in ("pos", "quat")}
    if info.explicit is not None and body.inertial is not None:
        names = ("mass", "com", "inertia")
        given = {name: leaves.value(f"body.{name}", info.explicit, getattr(body.inertial, name)) for name in names}
        fields["inertial"] = replace(body.inertial, **given)
    for name, row in (("gravity", info.gravity), ("gravcomp", info.gravcomp)):
        if row is not None:
            fields[name] = leaves.value(f"body.{name}", row, getattr(body, name))
    return replace(body, **fields, joints=tuple(_joint(leaves, *pair) for pair in zip(body.joints, info.joints, strict=True)))


def _geom(leaves: _Changes, number: int, given: tuple[GeomSpec, GeomInfo]) -> GeomSpec:
    geom, info = given
    fields: dict[str, Any] = {}
    if info.row is not None:
        width = np.size(geom.size)
        size = leaves.value("geom.size", (info.row, slice(0, width)), geom.size)
        fields = {"size": size} | {name: leaves.value(f"geom.{name}", info.row, getattr(geom, name)) for name in ("pos", "quat")}
    for name in ("mass", "density", "fluid", "surface_velocity"):
        if getattr(info, name) is not None:
            fields[name] = leaves.value(f"geom.{name}", getattr(info, name), getattr(geom, name))
    if number in leaves.surfaces and geom.contact is not None:
        fields["contact"] = _surface(leaves, leaves.surfaces[number], geom.contact)
    if info.adhesion is not None and geom.contact is not None:
        contact = fields.get("contact", geom.contact)
        fields["contact"] = replace(contact, adhesion=leaves.value("geom.adhesion", info.adhesion, contact.adhesion))
    return replace(geom, **fields)


def _passive(leaves: _Changes, force: PassiveSpec, info: PassiveInfo) -> PassiveSpec:
    given = [x for values in force.config.values() for x in values]
    numbers = iter(leaves.value("passive.numbers", row, x) for row, x in zip(info.numbers, given, strict=True))
    return replace(force, config={key: tuple(next(numbers) for _ in values) for key, values in force.config.items()})


def _surface(leaves: _Changes, row: int, surface: SurfaceSpec) -> SurfaceSpec:
    numbers = {name: leaves.value(f"surface.{name}", row, getattr(surface, name)) for name in ("friction", "solmix", "margin", "gap")}
    soft = {name: leaves.value(f"surface.{name}", row, getattr(surface.soft, name)) for name in ("solref", "solimp")}
    return replace(surface, **numbers, soft=Soft(**soft))


def _joint(leaves: _Changes, joint: JointSpec, info: JointInfo) -> JointSpec:
    dofs, coordinates = slice(info.v[0], sum(info.v)), slice(info.q[0], sum(info.q))
    fields: dict[str, Any] = {name: leaves.value(f"dof.{name}", dofs, getattr(joint, name)) for name in DOFS}
    fields["spring_ref"] = leaves.value("joint.spring_ref", coordinates, joint.spring_ref)
    if info.frame is not None:
        fields |= {name: leaves.value(f"joint.{name}", info.frame, getattr(joint, name)) for name in ("pos", "quat")}
    for name in ("spring_damper", "stiffness_poly", "damping_poly", "spring_yield"):
        if getattr(info, name) is not None:
            fields[name] = leaves.value(f"joint.{name}", getattr(info, name), getattr(joint, name))
    if info.axes and info.general is None:
        given = joint.params.get("axes")
        axes = leaves.value("joint.axes", list(info.axes), given)
        axes = _array(leaves.model, "joint.axes")[list(info.axes)] if axes is None else axes
        fields["params"] = {**joint.params, "axes": np.reshape(axes, (-1, 3))}
    return replace(joint, **fields, **_limits(leaves, joint, info))


def _limits(leaves: _Changes, joint: JointSpec, info: JointInfo) -> dict[str, Any]:
    """Dry friction and bounds, which only some dofs have, and their softness."""
    top, fields = leaves.model.topology, {}
    bounds = [(f"limit.{stem}{side}", name, k) for stem, name in BOUNDS for side, k in LIMITS.items()]
    for path, name, column in (("dof.friction", "friction", None), *bounds):
        rows = [(row, dof - info.v[0]) for row, dof in enumerate(top.dofs(path)) if info.v[0] <= dof < sum(info.v)]
        for row, dof in rows:
            at = dof if column is None else (dof, column)
            numbers = np.array(fields.get(name, getattr(joint, name)), float)
            numbers[at] = leaves.value(path, row, float(numbers[at]))
            fields[name] = numbers
    first = info.v[0]
    if first in top.dofs("limit.angle"):
        fields["angle_limit"] = leaves.value("limit.angle", top.dofs("limit.angle").index(first), joint.angle_limit)
    if joint.actuator_force_range is not None:
        rows = [(f"limit.actuator_{side}", top.dofs(f"limit.actuator_{side}").index(first)) for side in LIMITS]
        fields["actuator_force_range"] = tuple(leaves.value(*at, x) for at, x in zip(rows, joint.actuator_force_range, strict=True))
    for dof in range(first, sum(info.v)):
        friction, *limits = (leaves.soft.get((kind, dof)) for kind in ("friction", "lower", "upper", "angle"))
        if friction is not None and joint.friction_soft is not None:
            fields["friction_soft"] = _softness(leaves, friction.soft, joint.friction_soft)
        for limit in limits:
            fields |= {} if limit is None else _limit_softness(leaves, limit, joint)
    return fields


def _elements(leaves: _Changes, kind: str, specs: Sequence, infos: Sequence) -> tuple:
    """Sites, tendons or actuators."""
    out = []
    for i, (element, info) in enumerate(zip(specs, infos, strict=True)):
        fields = {name: leaves.value(f"{kind}.{leaf}", i, getattr(element, name)) for leaf, name in ROWS[kind].items()}
        for leaf, (row, name) in OPTIONAL.get(kind, {}).items():
            if getattr(info, row) is not None:
                value = leaves.value(f"{kind}.{leaf}", getattr(info, row), getattr(element, name))
                fields[name] = tuple(value.tolist()) if isinstance(value, np.ndarray) else value
        out.append(replace(element, **fields))
    return tuple(out)


def _check(built: Model, model: Model) -> None:
    """Raises ValueError for a leaf that the spec does not say."""
    for path in model.paths():
        if not np.allclose(_array(built, path), _array(model, path), rtol=ROUNDING, atol=0.0, equal_nan=True):
            raise ValueError(f"{path} is not as in the spec, which has no place for it; allowed: other leaves that differ")
