"""From the limits, dry friction and equalities that a ModelSpec keeps softly to their structure and numbers."""

from __future__ import annotations

from typing import NamedTuple

from xsim.model.flexes import Flexes
from xsim.model.topology import SoftInfo, TendonInfo
from xsim.model.tree import Tree, fail
from xsim.spec import EqualitySpec, ModelSpec, Soft

__all__ = ["Softness", "read_softness"]

_LEAVES = {"soft": ("solref", "solimp", "margin"), "equality": ("anchor", "relpose", "torque_scale", "polynomial")}
_SIZES = {
    "soft": {"solref": "nsoft"},
    "equality": {"anchor": "nanchor", "relpose": "nrelpose", "torque_scale": "ntorquescale", "polynomial": "npolynomial"},
}


class Softness(NamedTuple):
    """infos: what acts, in MuJoCo's order. numbers: rows by group and leaf. sizes: lengths of the dimensions."""

    infos: list[SoftInfo]
    numbers: dict[str, dict[str, list]]
    sizes: list[tuple[str, int]]


def read_softness(spec: ModelSpec, tree: Tree, tendons: tuple[TendonInfo, ...], flexes: Flexes) -> Softness:
    """Raises ValueError where the spec is inconsistent."""
    out = Softness([], {group: {leaf: [] for leaf in leaves} for group, leaves in _LEAVES.items()}, [])
    off = spec.option.disabled
    if "soft" in spec.option.rows and "constraint" not in off:
        rows = {path: {dof: i for i, (dof, _) in enumerate(found)} for path, found in tree.rowed.items()}
        if "equality" not in off:
            for equality in spec.equalities:
                if equality.active and equality.kind == "flex":
                    _add_edges(out, equality, flexes)
                elif equality.active:
                    _add_equality(out, equality, tree)
        if "frictionloss" not in off:
            _add_frictions(out, spec, tree, tendons, rows["dof.friction"])
        if "limit" not in off:
            _add_limits(out, spec, tree, tendons, rows)
    sizes = [(size, len(out.numbers[group][leaf])) for group, dims in _SIZES.items() for leaf, size in dims.items()]
    return out._replace(sizes=sizes)


def _entered(out: Softness, soft: Soft, margin: float = 0.0) -> int:
    numbers = out.numbers["soft"]
    for name, value in (("solref", soft.solref), ("solimp", soft.solimp), ("margin", margin)):
        numbers[name].append(value)
    return len(numbers["solref"]) - 1


def _row(out: Softness, leaf: str, value) -> int:
    out.numbers["equality"][leaf].append(value)
    return len(out.numbers["equality"][leaf]) - 1


def _add_equality(out: Softness, spec: EqualitySpec, tree: Tree) -> None:
    items, row, pose, scale = spec.items, None, None, None
    if spec.kind == "joint":
        items = tuple(_coordinate(spec, tree, item) for item in spec.items)
    if spec.kind in ("joint", "tendon"):
        row = _row(out, "polynomial", spec.polycoef)
    elif not spec.sites:
        row = _row(out, "anchor", spec.anchor)
    if spec.kind == "weld":
        pose = None if spec.relpose is None or spec.sites else _row(out, "relpose", spec.relpose)
        scale = _row(out, "torque_scale", spec.torque_scale)
    out.infos.append(SoftInfo(spec.kind, spec.name, tuple(items), _entered(out, spec.soft), row, spec.sites, pose, scale))


def _add_edges(out: Softness, spec: EqualitySpec, flexes: Flexes) -> None:
    """Edges that keep their lengths, where some can change."""
    place = flexes.place[spec.items[0]]
    if place is not None and flexes.infos[place].free.value.any():
        out.infos.append(SoftInfo(spec.kind, spec.name, (place,), _entered(out, spec.soft)))


def _coordinate(spec: EqualitySpec, tree: Tree, item: tuple[int, int]) -> int:
    body, index = item
    info = tree.bodies[body]
    if not 0 <= index < info.v[1] or info.q[1] != info.v[1]:
        fail(spec.source, f"equality {spec.name!r}: body {info.name!r} has no coordinate {index} that is one number")
    return info.v[0] + index


def _joints(spec: ModelSpec, tree: Tree):
    for body, info in zip(spec.bodies, tree.bodies, strict=True):
        assert isinstance(body.joints, tuple)
        yield from zip(body.joints, info.joints, strict=True)


def _add_frictions(out: Softness, spec: ModelSpec, tree: Tree, tendons, rows: dict[int, int]) -> None:
    for joint, info in _joints(spec, tree):
        own = [dof for dof in range(info.v[0], sum(info.v)) if dof in rows]
        if own and joint.friction_soft is not None:
            soft = _entered(out, joint.friction_soft)
            out.infos.extend(SoftInfo("friction", info.name, (dof,), soft, rows[dof]) for dof in own)
    for i, (tendon, info) in enumerate(zip(spec.tendons, tendons, strict=True)):
        if info.friction is not None:
            out.infos.append(SoftInfo("tendon_friction", info.name, (i,), _entered(out, tendon.friction_soft), info.friction))


def _add_limits(out: Softness, spec: ModelSpec, tree: Tree, tendons, rows: dict[str, dict[int, int]]) -> None:
    for joint, info in _joints(spec, tree):
        found = [
            (kind, dof, rows[f"limit.{kind}"][dof])
            for dof in range(info.v[0], sum(info.v)) for kind in ("lower", "upper", "angle") if dof in rows[f"limit.{kind}"]
        ]  # fmt: skip
        if found and joint.limit_soft is not None:
            soft = _entered(out, joint.limit_soft, joint.margin)
            out.infos.extend(SoftInfo(kind, info.name, (dof,), soft, row) for kind, dof, row in found)
    for i, (tendon, info) in enumerate(zip(spec.tendons, tendons, strict=True)):
        if info.range is not None:
            soft = _entered(out, tendon.limit_soft, tendon.margin)
            out.infos.extend(SoftInfo(f"tendon_{side}", info.name, (i,), soft, info.range) for side in ("lower", "upper"))
