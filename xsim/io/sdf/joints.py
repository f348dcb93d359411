"""Joints: types, axes, limits, dynamics, gearboxes and mimics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xsim.io.contact_parameters import spring_damper
from xsim.io.errors import Notes, allowed
from xsim.io.reader import Element
from xsim.io.sdf.document import boolean, ignore, number
from xsim.io.sdf.frames import Frame, relative
from xsim.io.sdf.structure import joint_end
from xsim.io.solids import tensor
from xsim.io.tree import WORLD, Joint, Tree
from xsim.joints.types import JOINT_TYPES
from xsim.poses import quat_conj, rotate
from xsim.spec import BodySpec, ConstraintSpec, JointSpec

__all__ = ["ReadJoint", "couplings", "read_joint", "with_stops"]

# type in the file -> type here and the axes it needs
_TYPES: dict[str, tuple[str, tuple[str, ...]]] = {
    "revolute": ("hinge", ("axis",)),
    "continuous": ("hinge", ("axis",)),
    "prismatic": ("slide", ("axis",)),
    "screw": ("screw", ("axis",)),
    "universal": ("universal", ("axis", "axis2")),
    "revolute2": ("universal", ("axis", "axis2")),
    "ball": ("ball", ()),
    "fixed": ("fixed", ()),
    "gearbox": ("gearbox", ("axis", "axis2")),
}
UNBOUNDED = 1e16  # a limit of this size or more is none: the default before 1.10
PARALLEL = 1e-6  # sine of the angle between two axes from which they count as one
_STOP = {"stiffness": 1e8, "dissipation": 1.0}


class Mimic(NamedTuple):
    """A follower's <mimic>: leading joint and axis, numbers."""

    leader: str
    axis: int
    multiplier: float
    offset: float
    reference: float
    element: Element


class Axis(NamedTuple):
    """One <axis>: unit vector in the joint frame, and its numbers (infinite where there is no bound). stop: stiffness and dissipation of
    its limits, None where the file does not say."""

    xyz: np.ndarray
    damping: float
    friction: float
    stiffness: float
    spring_ref: float
    lower: float
    upper: float
    velocity: float
    effort: float
    stop: tuple[float, float] | None
    mimic: Mimic | None


class ReadJoint(NamedTuple):
    """A joint with what only the whole tree can resolve. joint: None where the tree has none (gearbox, between links that cannot move)."""

    frame: Frame
    kind: str
    joint: Joint | None
    axes: tuple[Axis, ...]
    ends: tuple[Frame, Frame]


def read_joint(frame: Frame, world: Frame, index: dict[Frame, int], notes: Notes) -> ReadJoint:
    """A joint whose frames are placed. index: numbers of the links. Raises ParseError."""
    element = frame.element
    kind = element.string("type").strip().lower()
    if kind not in _TYPES:
        raise element.error(f"unknown joint type {kind!r}; {allowed(kind, _TYPES)}", "type")
    ignore(element.all("sensor", "plugin"))
    type_, needed = _TYPES[kind]
    ends = _ends(frame, world)
    axes = tuple(_axis(element.child(tag), frame, tag, notes) for tag in needed)
    if type_ == "universal" and np.linalg.norm(np.cross(axes[0].xyz, axes[1].xyz)) < PARALLEL:
        raise element.error(f"axis and axis2 of the {kind} joint are parallel; allowed: two directions")
    if all(_immovable(f) for f in ends):
        ignore(element.children())
        return ReadJoint(frame, "fixed", None, (), ends)
    if kind == "gearbox":
        return ReadJoint(frame, kind, None, axes, ends)
    numbers = _ball(element, notes) if kind == "ball" else _numbers(axes, kind == "continuous")
    params = {"axes": np.array([a.xyz for a in axes])} if axes else {}
    if kind == "screw":
        params["pitch"] = np.array([_pitch(element) / (2 * math.pi)])
    spec = JointSpec(type_, frame.name, params=params, source=element.source, **numbers)
    parent, child = ends
    number_of_parent = WORLD if parent.kind == "world" else index[parent]
    joint = Joint(spec, number_of_parent, index[child], relative(frame, parent), relative(frame, child), cut=_cut(element))
    if kind == "fixed":  # axes are allowed and have no effect
        ignore(element.all("axis", "axis2"))
    return ReadJoint(frame, kind, joint, axes, ends)


def _ends(frame: Frame, world: Frame) -> tuple[Frame, Frame]:
    """The bodies (links or the world) of parent and child."""
    element = frame.element
    given = element.need("parent")
    name = given.string(None)
    is_ground = name == "world" and name not in frame.scope.model.members
    child, parent = frame.body, world if is_ground else joint_end(frame, name, given).body
    assert child is not None and parent is not None
    if parent is child:
        raise element.error(f"parent and child are the same body, {child.element}; allowed: two bodies")
    if child.kind == "world":
        raise element.error(f"the child {element.need('child').string(None)!r} is fixed to the world; allowed: what moves with a link")
    return parent, child


def _immovable(body: Frame) -> bool:
    return body.kind == "world" or body.owner.static


def _cut(element: Element) -> bool:
    """Whether the joint is marked as the one to cut in a loop."""
    physics = element.child("physics")
    if physics is None:
        return False
    ignore(physics.all("provide_feedback"))
    simbody = physics.child("simbody")
    return False if simbody is None else boolean(simbody, "must_be_loop_joint", False)


def _pitch(element: Element) -> float:
    """Metres per turn, right-handed. The old parameter is in radians per metre, left-handed."""
    new, old = element.child("screw_thread_pitch"), element.child("thread_pitch")
    if old is not None:
        turn = old.number(None)
        if turn == 0:
            raise old.error("a pitch of 0 rad/m has no end; allowed: other numbers (screw_thread_pitch 0 is a hinge)")
        if new is None:
            return -2 * math.pi / turn
    return 1.0 if new is None else new.number(None)


# ---- axes ----------------------------------------------------------------------------------------------------------------------


def _axis(element: Element | None, frame: Frame, tag: str, notes: Notes) -> Axis:
    if element is None:
        raise frame.element.error(f"<{tag}> is missing")
    dynamics, limit = element.child("dynamics"), element.child("limit")
    damping, friction, stiffness, spring_ref = 0.0, math.nan, 0.0, 0.0
    if dynamics is not None:
        damping = number(dynamics, "damping", 0.0, nonnegative=True)
        friction = number(dynamics, "friction", math.nan, nonnegative=True)
        stiffness = number(dynamics, "spring_stiffness", 0.0)
        spring_ref = number(dynamics, "spring_reference", 0.0)
        if stiffness < 0:
            text = f"{frame.element}: spring_stiffness {stiffness:g} drives away from its reference"
            notes.suspicious(dynamics.line, text, dynamics.file)
    lower, upper, velocity, effort, stop = -math.inf, math.inf, math.inf, math.inf, None
    if limit is not None:
        lower, upper = number(limit, "lower", -math.inf, finite=False), number(limit, "upper", math.inf, finite=False)
        if lower > upper:
            raise limit.error(f"lower {lower:g} is above upper {upper:g}; allowed: lower <= upper")
        lower = lower if abs(lower) < UNBOUNDED else -math.inf
        upper = upper if abs(upper) < UNBOUNDED else math.inf
        velocity, effort = (_bound(limit, tag) for tag in ("velocity", "effort"))
        hard = tuple(number(limit, name, default, nonnegative=True, finite=False) for name, default in _STOP.items())
        stop = (hard[0], hard[1]) if hard != tuple(_STOP.values()) else None
    numbers = damping, friction, stiffness, spring_ref, lower, upper, velocity, effort
    return Axis(_direction(element, frame), *numbers, stop, _mimic(element))


def _bound(limit: Element, tag: str) -> float:
    """A bound on the size of something; negative or absent: none."""
    value = number(limit, tag, math.inf, finite=False)
    return math.inf if value < 0 or value >= UNBOUNDED else value


def _direction(element: Element, frame: Frame) -> np.ndarray:
    """The unit vector of an axis in the joint frame, at zero."""
    xyz = element.child("xyz")
    vector = np.array([0.0, 0.0, 1.0]) if xyz is None else xyz.floats(None, 3)
    if not vector.any():
        raise element.error("the axis is zero; allowed: a direction")
    vector = vector / np.abs(vector).max()
    vector = vector / np.linalg.norm(vector) + 0.0
    version = frame.document.version
    name = "" if xyz is None else (xyz.raw("expressed_in") or "").strip()
    written_in = frame
    # The flag is gone from 1.7 on, where it would be an unknown element; 1.4 has none and means this.
    in_model = version == 4 or version <= 6 and boolean(element, "use_parent_model_frame", False)
    if name and xyz is not None:
        written_in = frame.scope.find(name, xyz, "expressed_in")
    elif in_model:
        assert frame.home is not None
        written_in = frame.home
    turn = relative(written_in, frame).quat
    return vector if not turn[1:].any() else rotate(turn, vector)


def _mimic(element: Element) -> Mimic | None:
    found = element.child("mimic")
    if found is None:
        return None
    axis = ("axis", "axis2").index(found.choice("axis", ("axis", "axis2"), "axis"))
    multiplier, offset, reference = (number(found, tag, d) for tag, d in (("multiplier", 1.0), ("offset", 0.0), ("reference", 0.0)))
    return Mimic(found.string("joint").strip(), axis, multiplier, offset, reference, found)


def _numbers(axes: Sequence[Axis], endless: bool) -> dict:
    """The per-coordinate fields of a JointSpec."""
    if not axes:
        return {}
    column = {name: np.array([getattr(a, name) for a in axes]) for name in Axis._fields if name not in ("xyz", "stop", "mimic")}
    effort, velocity = column["effort"], column["velocity"]
    return {
        "damping": column["damping"],
        "friction": column["friction"],
        "stiffness": column["stiffness"],
        "spring_ref": column["spring_ref"],
        "position_range": None if endless else np.stack([column["lower"], column["upper"]], -1),
        "velocity_range": np.stack([-velocity, velocity], -1),
        "force_range": np.stack([0.0 - effort, effort], -1),
        "actuator": "force" if effort.any() else "passive",
    }


def _ball(element: Element, notes: Notes) -> dict:
    """A ball takes one damping for all directions from its axis; the other numbers of an axis have no meaning for it."""
    damping = 0.0
    for tag in ("axis", "axis2"):
        axis = element.child(tag)
        if axis is None:
            continue
        ignore(axis.all("xyz", "use_parent_model_frame"))
        dynamics = axis.child("dynamics")
        if dynamics is not None and tag == "axis":
            damping = number(dynamics, "damping", 0.0, nonnegative=True)
    return {"damping": np.full(JOINT_TYPES["ball"].nv, damping)}


def with_coupled(joints: Sequence[ReadJoint]) -> list[ReadJoint]:
    """The joints, where those that mimic another, that another mimics, and that a gearbox turns are marked: they need a coordinate."""
    pairs = [(read, axis.mimic) for read in joints if read.joint is not None for axis in read.axes if axis.mimic is not None]
    coupled = {frame for read, mimic in pairs for frame in (read.frame, _leader(read, mimic))} | _geared(joints)
    return [
        read._replace(joint=replace(read.joint, coupled=True)) if read.joint is not None and read.frame in coupled else read
        for read in joints
    ]


def _geared(joints: Sequence[ReadJoint]) -> set[Frame]:
    """The hinges between the ends of gearboxes and their reference bodies, or what is fixed to these."""
    above: dict[Frame, Frame] = {}

    def rigid(body: Frame) -> Frame:
        """One body for all that are fixed to each other."""
        while body in above:
            body = above[body]
        return body

    for read in joints:
        parent, child = map(rigid, read.ends)
        if read.kind == "fixed" and parent is not child:
            above[child] = parent
    turning: dict[frozenset[Frame], list[Frame]] = {}
    for read in joints:
        if read.joint is not None and read.joint.spec.type == "hinge":
            turning.setdefault(frozenset(map(rigid, read.ends)), []).append(read.frame)
    gears = [(end, _reference(read)) for read in joints if read.kind == "gearbox" for end in read.ends]
    return {hinge for end, reference in gears for hinge in turning.get(frozenset((rigid(end), rigid(reference))), ())}


# ---- stops ---------------------------------------------------------------------------------------------------------------------


def with_stops(joints: Sequence[ReadJoint], tree: Tree, dt: float) -> tuple[BodySpec, ...]:
    """The bodies of the tree, their joints with stops as soft as the file says; of two axes the first that says it counts."""
    bodies = list(tree.bodies)
    for read, body in zip([r for r in joints if r.joint is not None], tree.body_of_joint, strict=True):
        stops = [(axis, axis.stop) for axis in read.axes if axis.stop is not None]
        if stops and body is not None and read.kind not in ("fixed", "continuous"):
            axis, (stiffness, dissipation) = stops[0]
            moved = _moved(read, axis, body, tree)
            joint = replace(bodies[body].joint, limit_soft=spring_damper(stiffness, dissipation, dt, moved))
            bodies[body] = replace(bodies[body], joints=joint)
    return tuple(bodies)


def _moved(read: ReadJoint, axis: Axis, body: int, tree: Tree) -> float:
    """What a joint moves in the reference pose: mass along its axis (kg), or inertia about it (kg m^2), of its body and its descendants."""
    place = read.frame.world
    assert place is not None
    along, moving, out = rotate(place.quat, axis.xyz), {body}, 0.0
    for i in range(body, len(tree.bodies)):
        if i == body or tree.bodies[i].parent in moving:
            moving.add(i)
            link = tree.links[i]
            arm = np.cross(along, link.pose.pos + rotate(link.pose.quat, link.inertial.com) - place.pos)
            axis_in_link = rotate(quat_conj(link.pose.quat), along)
            about_axis = axis_in_link @ tensor(link.inertial.inertia) @ axis_in_link + link.inertial.mass * (arm @ arm)
            out += link.inertial.mass if read.kind == "prismatic" else about_axis
    return float(out)


# ---- couplings -----------------------------------------------------------------------------------------------------------------


def couplings(joints: Sequence[ReadJoint], tree: Tree, index: dict[Frame, int]) -> list[ConstraintSpec]:
    """Gearboxes and mimics as constraints between the bodies and coordinates of the tree. Raises ParseError."""
    moving = {read.frame: (i, read) for i, read in enumerate(r for r in joints if r.joint is not None)}

    def body(frame: Frame) -> int:
        return WORLD if frame.kind == "world" else tree.body_of_link[index[frame]]

    constraints = []
    for read in joints:
        if read.kind == "gearbox":
            constraints.append(_gearbox(read, body))
        for i, axis in enumerate(read.axes if read.joint is not None else ()):
            if axis.mimic is not None:
                constraints.append(_follow(read, i, axis.mimic, moving, tree))
    return constraints


def _gearbox(read: ReadJoint, body) -> ConstraintSpec:
    frame, element, reference = read.frame, read.frame.element, _reference(read)
    axes = [rotate(quat_conj(relative(end, frame).quat), a.xyz) for end, a in zip(read.ends, read.axes, strict=True)]
    bodies = tuple(body(f) for f in (*read.ends, reference))
    ratio = number(element, "gearbox_ratio", 1.0)
    return ConstraintSpec("gearbox", frame.name, bodies=bodies, axes=np.array(axes), multiplier=ratio, source=element.source)


def _reference(read: ReadJoint) -> Frame:
    """The body that the angles of a gearbox are relative to."""
    named = read.frame.element.need("gearbox_reference_body")
    name = named.string(None)
    reference = read.frame.scope.find(name, named).body
    assert reference is not None
    if reference in read.ends:
        raise named.error(f"{name!r} is an end of the gearbox; allowed: a third body")
    return reference


def _leader(read: ReadJoint, mimic: Mimic) -> Frame:
    """The frame that a mimic names."""
    return read.frame.scope.find(mimic.leader, mimic.element, "joint")


def _follow(read: ReadJoint, axis: int, mimic: Mimic, moving: dict[Frame, tuple[int, ReadJoint]], tree: Tree) -> ConstraintSpec:
    leader = _leader(read, mimic)
    if leader.kind != "joint":
        raise mimic.element.error(f"{mimic.leader!r} is a {leader.kind}; allowed: joints", "joint")
    if leader is read.frame and mimic.axis == axis:
        raise mimic.element.error(f"{mimic.leader!r} follows itself; allowed: another joint or axis", "joint")
    if leader not in moving:
        raise mimic.element.error(f"{mimic.leader!r} does not move by itself (a gearbox, or between links that cannot move)", "joint")
    coordinates = []
    for joint, k in ((read.frame, axis), (leader, mimic.axis)):
        at, other = moving[joint]
        if k >= len(other.axes):
            raise mimic.element.error(f"{joint.element} has no {('axis', 'axis2')[k]} that moves", "axis")
        found = tree.coordinate(at, k)
        assert found is not None  # see `with_coupled`
        coordinates.append(found)
    return ConstraintSpec(
        "mimic", read.frame.name, coordinates=tuple(coordinates), multiplier=mimic.multiplier, offset=mimic.offset,
        reference=mimic.reference, source=mimic.element.source,
    )  # fmt: skip
