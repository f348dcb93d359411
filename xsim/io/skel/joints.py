"""SKEL joints: their types, their coordinates and what acts on them.

A `Joint` is the joint in the file's coordinates; `connect` turns it into xsim's. The file gives the joint frame C in the
child body and describes the pose at zero coordinates, so with D, the reference pose of the child in its parent, the joint frame in the
parent is P = D C and the child moves as P M(q) C^-1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.skel.values import either, name_of, transformation
from xsim.joints.types import JOINT_TYPES
from xsim.poses import IDENTITY_QUAT, Pose, quat_about, quat_conj, quat_exp, quat_mul, rotate
from xsim.spec import JointSpec

__all__ = ["ACTUATORS", "PRESCRIBED", "TYPES", "Joint", "connect", "read_joint", "root_joint"]

ACTUATORS = {
    "force": "force", "torque": "force", "passive": "passive", "acceleration": "acceleration", "velocity": "velocity",
    "locked": "locked", "servo": "servo",
}  # fmt: skip
PRESCRIBED = ("acceleration", "velocity", "locked")  # the motion is given, not the force

# What a joint with its axes can say about each coordinate, and the spellings of it (the document's outline and details differ).
_PASSIVE = {
    "damping": ("damping",),
    "friction": ("friction",),
    "rest": ("spring_rest_position", "sprint_rest_position"),
    "stiffness": ("spring_stiffness", "sprint_stiffness"),
}
_AXES = ("axis", "axis2", "axis3")
_PLANES = {"xy": (0, 1), "yz": (1, 2), "zx": (2, 0), "arbitrary": None}
_DEFAULT_PITCH = 0.1  # m per turn
_FREE_ORDER = [3, 4, 5, 0, 1, 2]  # the file puts the rotation first


# ---- types -------------------------------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """type: xsim's. size: how many coordinates. axes: how many of <axis>, <axis2>, <axis3> describe coordinates. params: the numbers
    of the type from the joint's element."""

    type: str
    size: int
    axes: int
    params: Callable[[Element], dict[str, np.ndarray]]


def _direction(element: Element) -> np.ndarray:
    """Unit vector along the <xyz> of an element."""
    xyz = element.need("xyz")
    vector = xyz.floats(None, 3)
    if not vector.any():
        raise xyz.error("the direction is zero; allowed: any other")
    vector = vector / np.abs(vector).max()  # first, so that no square leaves the range of numbers
    return vector / np.linalg.norm(vector)


def _none(joint: Element) -> dict[str, np.ndarray]:
    return {}


def _one_axis(joint: Element) -> dict[str, np.ndarray]:
    return {"axes": _direction(joint.need("axis"))[None]}


def _two_axes(joint: Element) -> dict[str, np.ndarray]:
    return {"axes": np.array([_direction(joint.need("axis")), _direction(joint.need("axis2"))])}


def _screw(joint: Element) -> dict[str, np.ndarray]:
    pitch = joint.need("axis").child("pitch")
    turn = _DEFAULT_PITCH if pitch is None else pitch.number(None)
    return {**_one_axis(joint), "pitch": np.array([turn / (2 * np.pi)])}


def _euler(joint: Element) -> dict[str, np.ndarray]:
    order = joint.child("axis_order")
    letters = "xyz" if order is None else order.choice(None, ("xyz", "zyx"))
    return {"axes": np.eye(3)[["xyz".index(letter) for letter in letters]]}


def _plane(joint: Element) -> dict[str, np.ndarray]:
    """Both axes of the plane and its normal."""
    plane = joint.child("plane")
    rows = _PLANES["xy"] if plane is None else _PLANES[plane.choice("type", _PLANES, "xy")]
    if rows is not None:
        first, second = np.eye(3)[list(rows)]
    else:
        assert plane is not None
        first, second = _direction(plane.need("translation_axis1")), _direction(plane.need("translation_axis2"))
        second = second - second @ first * first
        if np.linalg.norm(second) < 1e-6:
            raise plane.error("translation_axis1 and translation_axis2 are parallel; allowed: axes that span a plane")
        second = second / np.linalg.norm(second)
    return {"axes": np.array([first, second, np.cross(first, second)])}


def _plane_axes(joint: Element) -> dict[str, np.ndarray]:
    return {"axes": _plane(joint)["axes"][:2]}


TYPES: dict[str, Kind] = {
    "weld": Kind("fixed", 0, 0, _none),
    "revolute": Kind("hinge", 1, 1, _one_axis),
    "prismatic": Kind("slide", 1, 1, _one_axis),
    "screw": Kind("screw", 1, 1, _screw),
    "universal": Kind("universal", 2, 2, _two_axes),
    "ball": Kind("ball", 3, 0, _none),
    "euler": Kind("euler", 3, 3, _euler),
    "translational": Kind("p3d", 3, 3, _none),
    "translational2d": Kind("slide2", 2, 2, _plane_axes),
    "planar": Kind("planar", 3, 3, _plane),
    "free": Kind("free", 6, 0, _none),
}


# ---- reading -----------------------------------------------------------------------------------------------------------------


class Coordinates:
    """Per coordinate of a joint, in the file's order: where it starts and what acts on it. NaN: no friction was given."""

    def __init__(self, size: int):
        self.position, self.velocity = np.zeros(size), np.zeros(size)
        self.damping, self.stiffness, self.rest = np.zeros(size), np.zeros(size), np.zeros(size)
        self.friction = np.full(size, np.nan)
        self.ranges = {what: np.tile([-np.inf, np.inf], (size, 1)) for what in ("position", "velocity", "force")}

    def bound(self, what: str, i: int, element: Element, lower: float | None, upper: float | None) -> None:
        """Set the given bounds of a coordinate. Raises ParseError about the element where the upper one is below the lower one."""
        row = self.ranges[what][i]
        row[:] = row[0] if lower is None else lower, row[1] if upper is None else upper
        if row[0] > row[1]:
            raise element.error(f"the lower {what} limit {row[0]:g} is above the upper one {row[1]:g}")
        if row[0] == np.inf or row[1] == -np.inf:
            raise element.error(f"the {what} limits {row[0]:g} and {row[1]:g} leave no room")


@dataclass(frozen=True)
class Joint:
    """A joint as the file has it. parent: name of a body, None: the world. frame: C, the joint frame in the child body."""

    name: str
    parent: str | None
    child: str
    kind: Kind
    coordinates: Coordinates
    element: Element
    frame: Pose = Pose()
    params: dict[str, np.ndarray] = field(default_factory=dict)
    actuator: str = "passive"


def root_joint(child: str, element: Element) -> Joint:
    """The free joint of a body that has no joint in the file. element: the body's, for messages."""
    return Joint("root", None, child, TYPES["free"], Coordinates(6), element)


def read_joint(element: Element, notes: Notes) -> Joint:
    kind = TYPES[element.choice("type", TYPES)]
    coordinates = Coordinates(kind.size)
    params = kind.params(element)
    for i, tag in enumerate(_AXES):
        axis = element.child(tag)
        if axis is None:
            continue
        if i < kind.axes:
            _read_axis(axis, coordinates, i)
            continue
        if any(axis.child(t) is not None for t in ("damping", "dynamics", "limit")):
            notes.suspicious(axis.line, f"{axis} in {element}: describes no coordinate and has no effect; allowed: <dof> elements")
        axis.skip()
    for tag, values in (("init_pos", coordinates.position), ("init_vel", coordinates.velocity)):
        child = element.child(tag)
        if child is not None:
            values[:] = child.floats(None, kind.size)
    for dof in element.all("dof"):
        _read_dof(dof, coordinates, _index(dof, element, kind.size), notes)
    return Joint(
        name=name_of(element, "joint"),
        parent=element.need("parent").string(None),
        child=element.need("child").string(None),
        kind=kind,
        coordinates=coordinates,
        element=element,
        frame=transformation(element),
        params=params,
        # A floating base is not driven by commands unless the file says so: forces on it go through tau.
        actuator=ACTUATORS[element.choice("actuator", ACTUATORS, "passive" if kind.type in ("free", "fixed") else "force")],
    )


def _read_passive(element: Element, coordinates: Coordinates, i: int) -> None:
    for name, spellings in _PASSIVE.items():
        found = either(element, *spellings)
        if found is not None:
            getattr(coordinates, name)[i] = found.number(None, nonnegative=name != "rest")


def _read_axis(axis: Element, coordinates: Coordinates, i: int) -> None:
    axis.all("xyz")  # types with axes of their own have read it, the others do not need it
    old = axis.child("damping")
    if old is not None:
        coordinates.damping[i] = old.number(None, nonnegative=True)
    dynamics = axis.child("dynamics")
    if dynamics is not None:
        _read_passive(dynamics, coordinates, i)
    limit = axis.child("limit")
    if limit is not None:
        lower, upper = (None if e is None else e.number(None, finite=False) for e in map(limit.child, ("lower", "upper")))
        coordinates.bound("position", i, limit, lower, upper)
        for tag, what in (("velocity", "velocity"), ("effort", "force")):
            symmetric = limit.child(tag)
            if symmetric is not None:
                most = symmetric.number(None, nonnegative=True, finite=False)
                coordinates.bound(what, i, symmetric, -most, most)


def _index(dof: Element, joint: Element, size: int) -> int:
    index = dof.integer("local_index")
    allowed = f"{joint} has {size} coordinates; allowed: {f'0 to {size - 1}' if size else 'no <dof>'}"
    if index is None and size != 1:
        raise dof.error(f"is missing; {allowed}", "local_index")
    if index is not None and not 0 <= index < size:
        raise dof.error(f"found {index}; {allowed}", "local_index")
    return index or 0


def _read_dof(dof: Element, coordinates: Coordinates, i: int, notes: Notes) -> None:
    """Read a <dof>, which overrides the axes for its coordinate."""
    dof.raw("name")
    _read_passive(dof, coordinates, i)
    for what in ("position", "velocity", "acceleration", "force"):
        element = dof.child(what)
        if element is None:
            continue
        lower, upper = (None if a is None else float(a[0]) for a in (element.floats(n, 1, finite=False) for n in ("lower", "upper")))
        initial = element.number("initial", 0.0)
        if what in coordinates.ranges:
            coordinates.bound(what, i, element, lower, upper)
        elif any(x is not None and np.isfinite(x) for x in (lower, upper)):
            notes.unsupported(element.line, f"{element} in {dof}: acceleration limits are not enforced")
        if what in ("position", "velocity") and element.has("initial"):
            getattr(coordinates, what)[i] = initial
        elif what == "force" and initial:
            notes.unsupported(element.line, f"{element} in {dof}: the initial force {initial:g} is not applied; commands start at zero")


# ---- to xsim -----------------------------------------------------------------------------------------------------------------

_CONFIGURATION: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "ball": quat_exp,
    "free": lambda q: np.concatenate([q[3:], quat_exp(q[:3])]),
}
_ELEMENTARY: dict[str, Callable[..., Pose]] = {
    "hinge": lambda axis, q, params: Pose(quat_about(axis, q[0])),
    "slide": lambda axis, q, params: Pose(IDENTITY_QUAT, axis * q[0]),
    "screw": lambda axis, q, params: Pose(quat_about(axis, q[0]), axis * q[0] * params["pitch"][0]),
    "ball": lambda axis, q, params: Pose(q),
}


def _motion(type: str, params: dict[str, np.ndarray], q: np.ndarray) -> Pose:
    """M(q) of a joint type of xsim, in its coordinates."""
    pose = Pose()
    for link in JOINT_TYPES[type].chain:
        assert link.kind in _ELEMENTARY
        axis = params["axes"][link.axis] if isinstance(link.axis, int) else np.array(link.axis)
        pose, q = pose @ _ELEMENTARY[link.kind](axis, q[: link.nq], params), q[link.nq :]
    return pose


def connect(joint: Joint, name: str, reference: Pose, mobile: bool, notes: Notes) -> tuple[Pose, JointSpec]:
    """Pose of the joint in the parent body, and the joint. reference: pose of the child in the parent at zero coordinates.

    Free joints take the body frame for their joint frame: the position in their coordinates is that of the body's origin. Where the
    skeleton is not mobile every joint is fixed at the initial pose.
    """
    kind, coordinates, frame, params = joint.kind, joint.coordinates, joint.frame, joint.params
    source = joint.element.source
    if kind.type == "fixed":
        return reference, JointSpec("fixed", name, source=source)
    to_q = _CONFIGURATION.get(kind.type, np.array)
    q0 = to_q(coordinates.position)
    if not mobile:
        return reference @ frame @ _motion(kind.type, params, q0) @ frame.inverse(), JointSpec("fixed", name, source=source)
    sprung = coordinates.stiffness.any()
    if sprung and kind.type in _CONFIGURATION and np.linalg.norm(coordinates.rest[:3]) > np.pi:
        raise joint.element.error("the spring's rest position is a rotation by more than half a turn; allowed: rotation vectors up to pi")
    ranges: dict[str, Any] = {f"{what}_range": rows if np.isfinite(rows).any() else None for what, rows in coordinates.ranges.items()}
    spec = JointSpec(
        kind.type,
        name,
        pos=frame.pos,
        quat=frame.quat,
        params=params,
        damping=coordinates.damping if coordinates.damping.any() else None,
        stiffness=coordinates.stiffness if sprung else None,
        spring_ref=to_q(coordinates.rest) if sprung else None,
        spring_law="components" if kind.type in _CONFIGURATION else "rotation",
        friction=None if np.isnan(coordinates.friction).all() else coordinates.friction,
        actuator=joint.actuator,
        q0=q0,
        v0=np.zeros(kind.size) if joint.actuator == "locked" else coordinates.velocity,
        source=source,
        **ranges,
    )
    return (reference, _free(joint, spec, reference, notes)) if kind.type == "free" else (reference @ frame, spec)


def _free(joint: Joint, spec: JointSpec, reference: Pose, notes: Notes) -> JointSpec:
    """A free joint with the body frame for its joint frame. spec: before that.

    With C the joint frame in the body, M' = C M C^-1 is the motion of the body frame. The file's v = (w, u) stands for W = Rc w and
    U = Rc u + pc x W, the body's angular velocity and the velocity of its origin relative to the parent, in the parent's axes.
    """
    coordinates, frame = joint.coordinates, joint.frame
    straight = frame.is_identity()
    forced = bool(coordinates.damping.any() or coordinates.stiffness.any())
    if forced and not straight:
        raise joint.element.error("springs and dampers of a free joint are supported only without a <transformation> of the joint")
    motion = frame @ Pose(quat_exp(coordinates.position[:3]), coordinates.position[3:]) @ frame.inverse()
    omega, velocity = rotate(frame.quat, coordinates.velocity[:3]), rotate(frame.quat, coordinates.velocity[3:])
    velocity = velocity + np.cross(frame.pos, omega)
    v0 = [rotate(quat_conj(reference.quat), velocity), rotate(quat_conj(quat_mul(reference.quat, motion.quat)), omega)]
    limits = _free_limits(joint, spec, reference, notes)
    return replace(
        spec,
        pos=np.zeros(3),
        quat=IDENTITY_QUAT,
        damping=None if spec.damping is None else spec.damping[_FREE_ORDER],
        stiffness=None if spec.stiffness is None else spec.stiffness[_FREE_ORDER],
        damper_axes="parent" if forced else "joint",
        q0=np.concatenate([motion.pos, motion.quat]),
        v0=np.zeros(6) if joint.actuator == "locked" else np.concatenate(v0),
        **limits,
    )


def _free_limits(joint: Joint, spec: JointSpec, reference: Pose, notes: Notes) -> dict[str, Any]:
    """Friction and ranges of a free joint. What acts along axes that xsim's coordinates do not have is noted and left out."""
    straight = joint.frame.is_identity()
    along = straight and Pose(reference.quat).is_identity()  # parent axes are joint axes
    ranges: dict[str, Any] = {}
    for name, translation in (("friction", along), ("position_range", straight), ("velocity_range", along), ("force_range", along)):
        values = getattr(spec, name)
        if values is None:
            continue
        values = values[_FREE_ORDER]
        acts = values > 0 if name == "friction" else np.isfinite(values).any(1)
        lost = acts & np.repeat([not translation, True], 3)
        if lost.any():
            what = "friction" if name == "friction" else f"{name.removesuffix('_range')} limits"
            part = "motion" if lost[:3].any() else "rotation"
            notes.unsupported(joint.element.line, f"{joint.element}: {what} of the {part} of a free joint: not enforced")
            values[lost] = np.nan if name == "friction" else (-np.inf, np.inf)
        ranges[name] = values if (acts & ~lost).any() else None
    return ranges
