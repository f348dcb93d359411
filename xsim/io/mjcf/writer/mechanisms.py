"""Constraints and forces that MJCF does not have as such: what is a tendon or a soft equality, and what is lost."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.tendons import write_tendon
from xsim.io.writing.elements import add, unless
from xsim.poses import Pose, normalized
from xsim.spec import ConstraintSpec, ForceSpec, TendonSpec, WrapSpec

__all__ = ["write_constraints", "write_forces"]

SOFT = "a soft equality is written"


def write_forces(context: Context) -> None:
    """Springs and dampers between two points are spatial tendons. Raises WriteError for other forces."""
    for number, force in enumerate(context.spec.forces):
        element = f"force {force.name or number!r}"
        if not _is_linear(force):
            text = f"kind {force.kind!r}{_law(force)}; MJCF has springs and dampers with numbers, between two points"
            context.losses.lose(force.source, element, text, "it is left out")
            continue
        _write_spring(context, number, force)


def _law(force: ForceSpec) -> str:
    """What of the law of a spring MJCF does not have."""
    parts = {"a table": force.spring or force.damper, "a map": force.map, "stops": force.stops, "a preload without spring": force.preload}
    given = [name for name, value in parts.items() if value is not None and value != 0.0]
    return f" with {' and '.join(given)}" if force.kind == "spring" and given else ""


def _is_linear(force: ForceSpec) -> bool:
    """Whether a force is a spring and damper with numbers, and its preload shifts its rest length."""
    laws = (force.spring, force.damper, force.map, force.stops)
    return force.kind == "spring" and all(law is None for law in laws) and bool(force.stiffness or not force.preload)


def _write_spring(context: Context, number: int, force: ForceSpec) -> None:
    """preload - K (L - rest) - C L' is the force of a tendon with the rest length rest + preload / K."""
    ends = []
    for side, (body, (pos, _)) in enumerate(zip(force.bodies, force.frames, strict=True)):
        parent = context.section("worldbody") if body < 0 else context.names.element("body", body)
        e = add(parent, "site", pos=pos)
        key = len(context.spec.sites) + 2 * number + side
        context.names.enter("site", key, e, f"{force.name or 'spring'}_{side + 1}")
        ends.append(WrapSpec("site", key))
    stiffness, damping = float(force.stiffness or 0.0), float(force.damping or 0.0)
    rest = force.rest + (force.preload / stiffness if stiffness else 0.0)
    tendon = TendonSpec("spatial", force.name or "spring", tuple(ends), stiffness, damping, spring_length=(rest, rest))
    write_tendon(context, len(context.spec.tendons) + number, tendon)


def write_constraints(context: Context) -> None:
    """Holonomic constraints, which are never soft. Raises WriteError; where losses are allowed, soft equalities near them are written."""
    for number, constraint in enumerate(context.spec.constraints):
        element = f"constraint {constraint.name or number!r}"
        kind = constraint.joint.type if constraint.kind == "joint" and constraint.joint is not None else constraint.kind
        write = _nearest(context, constraint, kind)
        text = f"a rigid {constraint.kind}{'' if kind == constraint.kind else f' ({kind})'}; MJCF has soft equalities"
        context.losses.lose(constraint.source, element, text, "it is left out" if write is None else SOFT)
        if write is not None:
            write(context, constraint)


def _nearest(context: Context, constraint: ConstraintSpec, kind: str) -> Callable[[Context, ConstraintSpec], None] | None:
    """What writes the soft equality near a constraint, None where there is none. A mimic needs two hinges or slides."""
    scalars = {(i, link.first) for i, link in context.links() if link.kind in ("hinge", "slide")}
    return _NEAREST.get((constraint.kind, kind)) if scalars.issuperset(constraint.coordinates) else None


def _mimic(context: Context, constraint: ConstraintSpec) -> None:
    """Follower = multiplier (leader - reference) + offset; in MJCF both count from the initial pose."""
    links = {(i, link.first): link for i, link in context.links()}
    follower, leader = (links[item] for item in constraint.coordinates)
    slope = constraint.multiplier
    at_start = slope * (leader.ref - constraint.reference) + constraint.offset - follower.ref
    names = [context.names.of("joint", item) for item in constraint.coordinates]
    add(
        context.section("equality"), "joint", name=context.names.free("equality", constraint.name or "mimic"),
        joint1=names[0], joint2=names[1], polycoef=(at_start, slope, 0.0, 0.0, 0.0),
    )  # fmt: skip


def _ends(context: Context, constraint: ConstraintSpec) -> dict[str, str]:
    names = [context.names.of("body", body) for body in constraint.bodies]
    return {"name": context.names.free("equality", constraint.name or "loop"), "body1": names[0], "body2": names[1]}


def _connect(context: Context, constraint: ConstraintSpec) -> None:
    add(context.section("equality"), "connect", **_ends(context, constraint), anchor=constraint.frames[0][0])


def _weld(context: Context, constraint: ConstraintSpec) -> None:
    first, second = (Pose(normalized(quat), np.asarray(pos, float)) for pos, quat in constraint.frames)
    relative = first @ second.inverse()
    pose = np.concatenate([first.pos, relative.quat])
    anchor = unless(np.zeros(3), second.pos)
    add(context.section("equality"), "weld", **_ends(context, constraint), anchor=anchor, relpose=pose)


_NEAREST = {("mimic", "mimic"): _mimic, ("joint", "ball"): _connect, ("joint", "fixed"): _weld}
"""The soft equality near a constraint, by its kind and, of a joint, its type."""
