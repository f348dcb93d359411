"""Reads the soft constraints of a ModelSpec (equality constraints, dry friction, limits) into the topology and the leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.model.flexes import Flexes
from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import SoftInfo, TendonInfo
from xsim.model.tree import Tree, fail
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spec import EqualitySpec, ModelSpec, Soft

__all__ = ["read_soft_constraints"]


class _SoftConstraints(NamedTuple):
    """The active soft constraints, in MuJoCo's order, and the leaf rows to which their numbers are added."""

    infos: list[SoftInfo]
    rows: LeafRows

    def solver_parameters(self, soft: Soft, margin: float = 0.0) -> int:
        """Add solref, solimp and margin, and return their row."""
        return self.rows.add_to("soft", solref=soft.solref, solimp=soft.solimp, margin=margin)


def read_soft_constraints(spec: ModelSpec, tree: Tree, tendons: tuple[TendonInfo, ...], flexes: Flexes) -> tuple[SoftInfo, ...]:
    """The active soft constraints. Raises ValueError for an inconsistent spec."""
    out, disabled = _SoftConstraints([], tree.rows), spec.option.disabled
    if "soft" in spec.option.constraint_kinds and "constraint" not in disabled:
        rows = {path: {dof: i for i, dof in enumerate(dofs)} for path, dofs in tree.dof_rows.items()}
        if "equality" not in disabled:
            for equality in spec.equalities:
                if equality.active and equality.kind == "flex":
                    _add_edges(out, equality, flexes)
                elif equality.active and equality.kind == "flexstrain":
                    _add_strains(out, equality, flexes)
                elif equality.active:
                    _add_equality(out, equality, tree)
        if "frictionloss" not in disabled:
            _add_frictions(out, spec, tree, tendons, rows["dof.friction"])
        if "limit" not in disabled:
            _add_limits(out, spec, tree, tendons, rows)
    return tuple(out.infos)


def _add_equality(out: _SoftConstraints, spec: EqualitySpec, tree: Tree) -> None:
    if spec.kind not in SOFT_CONSTRAINTS:
        fail(spec.source, f"equality {spec.name!r}: {SOFT_CONSTRAINTS.unknown(spec.kind)}")
    kind, items, row, pose, scale = SOFT_CONSTRAINTS[spec.kind], spec.items, None, None, None
    if kind.items == "dofs":
        items = tuple(_coordinate(spec, tree, item) for item in spec.items)
    if "polynomial" in kind.leaves:
        row = out.rows.add("equality.polynomial", spec.polycoef)
    if "anchor" in kind.leaves and not spec.sites:
        row = out.rows.add("equality.anchor", spec.anchor)
    if "relpose" in kind.leaves and not spec.sites:
        pose = out.rows.add_optional("equality.relpose", spec.relpose)
    if "torque_scale" in kind.leaves:
        scale = out.rows.add("equality.torque_scale", spec.torque_scale)
    out.infos.append(SoftInfo(spec.kind, spec.name, tuple(items), out.solver_parameters(spec.soft), row, spec.sites, pose, scale))


def _add_edges(out: _SoftConstraints, spec: EqualitySpec, flexes: Flexes) -> None:
    """Edges of constant length, for a flex some of whose edges can change their length."""
    index = flexes.index[spec.items[0]]
    if index is not None and flexes.infos[index].free.value.any():
        out.infos.append(SoftInfo(spec.kind, spec.name, (index,), out.solver_parameters(spec.soft)))


def _add_strains(out: _SoftConstraints, spec: EqualitySpec, flexes: Flexes) -> None:
    """A cell whose strain is zero."""
    flex, *cell = spec.items
    index = flexes.index[flex]
    if index is None:
        return
    grid = flexes.infos[index].grid
    assert grid is not None
    first = np.ravel_multi_index([grid.order * k for k in cell], [grid.order * n + 1 for n in grid.counts])
    number = int(np.flatnonzero(grid.cells.value[:, 0] == first)[0])
    out.infos.append(SoftInfo(spec.kind, spec.name, (index, number), out.solver_parameters(spec.soft)))


def _coordinate(spec: EqualitySpec, tree: Tree, item: tuple[int, int]) -> int:
    body, index = item
    info = tree.bodies[body]
    dof = info.v[0] + index
    if not any(joint.v[0] <= dof < sum(joint.v) and joint.q[1] == joint.v[1] for joint in info.joints):
        fail(spec.source, f"equality {spec.name!r}: body {info.name!r} has no coordinate {index} that is one number")
    return dof


def _joints(spec: ModelSpec, tree: Tree):
    for body, info in zip(spec.bodies, tree.bodies, strict=True):
        yield from zip(body.joints, info.joints, strict=True)


def _add_frictions(out: _SoftConstraints, spec: ModelSpec, tree: Tree, tendons, rows: dict[int, int]) -> None:
    for joint, info in _joints(spec, tree):
        dofs = [dof for dof in range(info.v[0], sum(info.v)) if dof in rows]
        if dofs and joint.friction_soft is not None:
            soft = out.solver_parameters(joint.friction_soft)
            out.infos.extend(SoftInfo("friction", info.name, (dof,), soft, rows[dof]) for dof in dofs)
    for i, (tendon, info) in enumerate(zip(spec.tendons, tendons, strict=True)):
        if info.friction is not None:
            out.infos.append(SoftInfo("tendon_friction", info.name, (i,), out.solver_parameters(tendon.friction_soft), info.friction))


def _add_limits(out: _SoftConstraints, spec: ModelSpec, tree: Tree, tendons, rows: dict[str, dict[int, int]]) -> None:
    for joint, info in _joints(spec, tree):
        limits = [
            (kind, dof, rows[f"limit.{kind}"][dof])
            for dof in range(info.v[0], sum(info.v)) for kind in ("lower", "upper", "angle") if dof in rows[f"limit.{kind}"]
        ]  # fmt: skip
        if limits and joint.limit_soft is not None:
            soft = out.solver_parameters(joint.limit_soft, joint.margin)
            out.infos.extend(SoftInfo(kind, info.name, (dof,), soft, row) for kind, dof, row in limits)
    for i, (tendon, info) in enumerate(zip(spec.tendons, tendons, strict=True)):
        if info.range is not None:
            soft = out.solver_parameters(tendon.limit_soft, tendon.margin)
            out.infos.extend(SoftInfo(f"tendon_{side}", info.name, (i,), soft, info.range) for side in ("lower", "upper"))
