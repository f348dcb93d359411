"""<joint> and <freejoint>."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.orientation import SMALL
from xsim.io.mjcf.values import flag, integer, limits, polynomial, read_soft, read_user
from xsim.io.reader import Element
from xsim.joints.types import JOINT_TYPES
from xsim.poses import Pose, rotate
from xsim.spec import JointSpec

__all__ = ["Joint", "check_joints", "free_at", "read_freejoint", "read_joint"]

TYPES = ("free", "ball", "slide", "hinge")
SCALAR = ("slide", "hinge")


class Joint(NamedTuple):
    """A joint, its element, and of a free one: whether the body's frame moves to its inertial frame where it can."""

    spec: JointSpec
    element: Element
    align: bool = False


def read_joint(document: Document, e: Element, frame: Pose, user: int) -> Joint:
    """A <joint>, with its defaults. frame: the <frame>s around it; user: how many users' numbers a joint has (-1: any)."""
    kind = e.choice("type", TYPES, "hinge")
    nv = JOINT_TYPES[kind].nv
    angle = kind in ("hinge", "ball")
    pos, axis = e.floats("pos", 3, (0.0, 0.0, 0.0)), e.floats("axis", 3, (0.0, 0.0, 1.0))
    ref, spring_ref = e.number("ref", 0.0), e.number("springref", 0.0)
    if kind == "hinge":
        ref, spring_ref = scope(e).angles(ref), scope(e).angles(spring_ref)
    scalar = kind in SCALAR
    if scalar:
        with np.errstate(over="ignore"):
            length = np.linalg.norm(axis)
        if not SMALL <= length < np.inf:
            raise e.error(f"found a direction of no length, or one too long for a number ({e.raw('axis')!r})", "axis")
        axis = rotate(frame.quat, axis / length)
    limit = _limit(document, e, kind, angle)
    friction = e.number("frictionloss", 0.0)
    (damping, damping_poly), (stiffness, stiffness_poly) = polynomial(e, "damping", document), polynomial(e, "stiffness", document)
    spec = JointSpec(
        type=kind,
        name=e.string("name", ""),
        pos=np.zeros(3) if kind == "free" else frame.pos + rotate(frame.quat, pos),
        params={"axes": axis[None]} if scalar else {},
        damping=np.full(nv, damping),
        armature=np.full(nv, e.number("armature", 0.0)),
        stiffness=np.full(nv, stiffness),
        stiffness_poly=stiffness_poly,
        damping_poly=damping_poly,
        spring_ref=np.array([spring_ref]) if scalar else JOINT_TYPES[kind].neutral,
        friction=np.full(nv, friction) if friction else None,
        position_range=np.array([limit]) if limit and scalar else None,
        angle_limit=limit[1] if limit and not scalar else None,
        q0=np.array([ref]) if scalar else JOINT_TYPES[kind].neutral,
        anchored=True,
        ref=ref if scalar else 0.0,
        spring_damper=_spring_damper(e),
        spring_yield=_spring_yield(e, kind, angle),
        margin=e.number("margin", 0.0),
        limit_soft=read_soft(document, e, "limit"),
        friction_soft=read_soft(document, e, "friction"),
        actuator_force_range=limits(e, "actuatorfrcrange", "actuatorfrclimited") if scalar else _unused_range(e),
        actuator_gravcomp=flag(e, "actuatorgravcomp", False),
        group=integer(e, "group", 0),
        user=read_user(e, user),
        source=e.source,
    )
    return Joint(spec, e, kind == "free" and scope(e).align_free)


def read_freejoint(e: Element) -> Joint:
    """A <freejoint>, which no default class reaches."""
    align = e.choice("align", ("false", "true", "auto"), "auto")
    kind = JOINT_TYPES["free"]
    zeros = np.zeros(kind.nv)
    spec = JointSpec(
        type="free",
        name=e.string("name", ""),
        damping=zeros,
        armature=zeros,
        stiffness=zeros,
        spring_ref=kind.neutral,
        q0=kind.neutral,
        anchored=True,
        limit_soft=None,
        group=integer(e, "group", 0),
        source=e.source,
    )
    return Joint(spec, e, scope(e).align_free if align == "auto" else align == "true")


def check_joints(joints: list[Joint], at_world: bool) -> None:
    """Which joints one body can have, in order. at_world: the body is a child of the world. Raises ParseError."""
    before: set[str] = set()
    dofs = 0
    for joint in joints:
        e, kind = joint.element, joint.spec.type
        dofs += JOINT_TYPES[kind].nv
        if kind == "free" and not at_world:
            raise e.error("a free joint in a body inside another one; allowed: in children of the world")
        if "free" in before or kind == "free" and before:
            raise e.error("a free joint and another joint in one body; allowed: a free joint alone")
        if dofs > 6:
            raise e.error(f"the joints of the body have {dofs} or more degrees of freedom; allowed: 6")
        if "ball" in before and kind in ("hinge", "ball"):
            raise e.error(f"a {kind} joint after a ball joint in one body; allowed after it: slide joints")
        before.add(kind)


def free_at(pose: Pose) -> dict:
    """Fields of a free joint whose body has a pose in the file: initial coordinates and rest position of its spring."""
    start = np.concatenate([pose.pos, pose.quat])
    return {"q0": start, "spring_ref": start.copy()}


def _limit(document: Document, e: Element, kind: str, angle: bool) -> tuple[float, float] | None:
    if kind == "free":
        return _unused_range(e, "range", "limited")
    if kind == "ball" and e.raw("limited") == "true" and not e.floats("range", 2, (0.0, 0.0)).any():
        empty = e.error('found none or 0 0 with limited="true"; allowed: 0 and the largest angle', "range")
        document.notes.assumed(empty, "0 0, the joint cannot turn")
        return 0.0, 0.0
    limit = limits(e, "range", "limited", angle)
    if limit and kind == "ball" and limit[0] != 0:
        raise e.error(f"found {e.raw('range')!r} for a ball joint; allowed: 0 and the largest angle", "range")
    return limit


def _unused_range(e: Element, name: str = "actuatorfrcrange", switch: str = "actuatorfrclimited") -> None:
    """Read the range of a joint whose type has none: the manual says that it is ignored."""
    e.floats(name, 2)
    e.choice(switch, ("false", "true", "auto"), "auto")


def _spring_yield(e: Element, kind: str, angle: bool) -> float | None:
    limit = e.number("springyield", 0.0, nonnegative=True)
    if limit and kind == "free":
        raise e.error("found for a free joint; allowed: hinge, slide and ball joints", "springyield")
    return (scope(e).angles(limit) if angle else limit) or None


def _spring_damper(e: Element) -> tuple[float, float] | None:
    time, ratio = e.floats("springdamper", 2, (0.0, 0.0)).tolist()
    if time == ratio == 0:
        return None
    if not (time > 0 and ratio > 0):
        raise e.error(f"found {time:g} {ratio:g}; allowed: two numbers > 0", "springdamper")
    return time, ratio
