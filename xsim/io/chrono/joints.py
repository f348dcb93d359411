"""Joints, bushings, constraints and motors. The file gives frames in the model; here they are in the two bodies.

In the format a joint is about body1's frame F1 as seen from body2's frame F2. A passive joint becomes a tree joint from body1 to body2; a
motor one from body2 to body1, so that its coordinate is what the motor drives; constraints that are not symmetric take F2 first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from xsim.io.chrono.document import Item
from xsim.io.chrono.values import Reading, axis, coefficient, frame_quat, read_function, read_pair, value_at_zero
from xsim.io.tree import Joint, Tree
from xsim.poses import IDENTITY_QUAT, Pose
from xsim.spec import ConstraintSpec, ForceSpec, FunctionSpec, JointSpec

__all__ = ["Mechanism", "read_constraint", "read_joint", "read_motor"]


@dataclass
class Mechanism:
    """Joints, constraints and forces between links, until the tree of bodies is known. drives: by number of a joint that is a motor, the
    motor as a constraint."""

    joints: list[Joint] = field(default_factory=list)
    drives: dict[int, ConstraintSpec] = field(default_factory=dict)
    constraints: list[ConstraintSpec] = field(default_factory=list)
    forces: list[ForceSpec] = field(default_factory=list)

    def driven(self, tree: Tree) -> list[ConstraintSpec]:
        """The constraints of the tree's loops and of the motors. A motor in the tree moves a coordinate; one that closes a loop is
        one constraint, joint and drive together."""
        constraints, loops = [], iter(tree.constraints)
        for j in range(len(self.joints)):
            drive, coordinate = self.drives.get(j), tree.coordinate(j, 0)
            loop = next(loops) if coordinate is None else None
            if drive is not None and loop is not None:
                constraints.append(replace(drive, bodies=loop.bodies))
            elif drive is not None:
                assert coordinate is not None
                constraints.append(
                    ConstraintSpec(
                        "motion", drive.name, coordinates=(coordinate,), driven=drive.driven, mode=drive.mode, function=drive.function,
                        source=drive.source,
                    )
                )  # fmt: skip
            elif loop is not None:
                constraints.append(loop)
        return constraints


class _Kind(NamedTuple):
    """A type of joint. joint: its type in the tree, or constraint: its kind where it is no tree joint. axes: of the joint, in its frame.
    free: which of a bushing's six numbers are those of DOF; None: no bushing is allowed."""

    joint: str = ""
    axes: tuple[tuple[float, float, float], ...] = ()
    free: tuple[int, ...] | None = None
    constraint: str = ""


_X, _Y, _Z = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
_KINDS = {
    "lock": _Kind("fixed", free=()),
    "revolute": _Kind("hinge", (_Z,), free=(5,)),
    "spherical": _Kind("ball", free=(3, 4, 5)),
    "prismatic": _Kind("slide", (_Z,)),
    "universal": _Kind("universal", (_X, _Y), free=(3, 4)),
    "pointline": _Kind(constraint="point_on_line"),
    "pointplane": _Kind(constraint="point_on_plane"),
}


def read_joint(item: Item, reading: Reading, into: Mechanism) -> None:
    """An entry of ``joints``."""
    type = item.choice("type", _KINDS)
    kind, name = _KINDS[type], item.text("name")
    pair, location, quat = read_pair(item, reading), item.vector("location"), _joint_quat(item, type)
    frame1, frame2 = (reading.in_body(body, quat, location) for body in pair[:2])
    bushing = item.item("bushing_data")
    if bushing is not None:
        if kind.free is None:
            soft = ", ".join(t for t, k in _KINDS.items() if k.free is not None)
            raise item.error(f"a {type} joint cannot be a bushing; allowed: {soft}", "bushing_data")
        stiffness, damping = _bushing(bushing, kind.free, reading)
        if not pair.idle:
            bodies, frames = (pair.two, pair.one), (frame2, frame1)
            into.forces.append(ForceSpec("bushing", name, bodies, frames, stiffness, damping, source=item.source))
    elif pair.idle:
        return
    elif kind.constraint:
        bodies, frames = (pair.two, pair.one), (frame2, frame1)
        into.constraints.append(ConstraintSpec(kind.constraint, name, bodies, frames, source=item.source))
    else:
        spec = JointSpec(kind.joint, name, params={"axes": np.array(kind.axes)} if kind.axes else {}, source=item.source)
        into.joints.append(Joint(spec, pair.one, pair.two, _pose(frame1), _pose(frame2)))


def _pose(frame: tuple[np.ndarray, np.ndarray]) -> Pose:
    return Pose(frame[1], frame[0])


def _joint_quat(item: Item, type: str) -> np.ndarray:
    """Orientation of the joint frame in the model."""
    if type in ("revolute", "prismatic"):
        return frame_quat(axis(item, "axis"))
    if type in ("pointline", "pointplane"):  # the format gives no direction: the line is the model x axis, the normal the model z axis
        return frame_quat(axis(item, "axis", _X if type == "pointline" else _Z))
    if type != "universal":
        return IDENTITY_QUAT
    one, two = axis(item, "axis1"), axis(item, "axis2")
    across = two - (one @ two) * one
    norm = np.linalg.norm(across)
    if norm < 1e-6:
        raise item.error("is parallel to axis1; allowed: another direction", "axis2")
    return frame_quat(np.cross(one, across / norm), one)


_COEFFICIENTS = ("stiffness_linear", "stiffness_rotational", "damping_linear", "damping_rotational")


def _bushing(bushing: Item, free: tuple[int, ...], reading: Reading) -> tuple[np.ndarray, np.ndarray]:
    """Stiffness and damping: along x y z and about x y z of body2's frame."""
    coefficients = [coefficient(bushing, key, reading) for key in _COEFFICIENTS]
    dof = bushing.item("DOF")
    free_coefficients = [0.0] * 4 if dof is None else [coefficient(dof, key, reading) for key in _COEFFICIENTS]
    stiffness, damping = np.repeat(coefficients[:2], 3), np.repeat(coefficients[2:], 3)
    for i in free:  # always rotations: DOF's linear numbers have no direction to act in
        stiffness[i], damping[i] = free_coefficients[1], free_coefficients[3]
    return stiffness, damping


# ---- constraints -------------------------------------------------------------------------------------------------------------

_CONSTRAINTS = {"DISTANCE": "distance", "REVOLUTE-SPHERICAL": "revolute_spherical", "REVOLUTE-TRANSLATIONAL": "revolute_translational"}
_SQUARE = 1e-6  # largest cosine between directions that count as perpendicular


def read_constraint(item: Item, reading: Reading, into: Mechanism) -> None:
    """An entry of ``constraints``. The composite types need directions that the format has no key for: ``axis`` and ``axis2``."""
    type, name = item.choice("type", _CONSTRAINTS), item.text("name")
    pair, one, two = read_pair(item, reading), item.vector("point1"), item.vector("point2")
    line = two - one
    length, quat = float(np.linalg.norm(line)), IDENTITY_QUAT
    if length == 0 and type != "REVOLUTE-TRANSLATIONAL":
        raise item.error("is point1 too, a distance of zero has no direction; allowed: two points", "point2")
    if type != "DISTANCE":
        turning = _own_axis(item, "axis", type)
        if abs(turning @ line) > _SQUARE * length:
            raise item.error("is not perpendicular to the line from point1 to point2; allowed: perpendicular", "axis")
        sliding = None
        if type == "REVOLUTE-TRANSLATIONAL":
            sliding = _own_axis(item, "axis2", type)
            if abs(turning @ sliding) > _SQUARE:
                raise item.error("is not perpendicular to axis; allowed: perpendicular", "axis2")
            sliding = sliding - (turning @ sliding) * turning
            sliding = sliding / np.linalg.norm(sliding)
        quat = frame_quat(turning, sliding)
    frames = reading.in_body(pair.one, quat, one), reading.in_body(pair.two, quat, two)
    if not pair.idle:
        into.constraints.append(ConstraintSpec(_CONSTRAINTS[type], name, (pair.one, pair.two), frames, source=item.source))


def _own_axis(item: Item, key: str, type: str) -> np.ndarray:
    if not item.has(key):
        raise item.error(f"is missing; two points do not define {type}; allowed: a direction in the model frame", key)
    return axis(item, key)


# ---- motors ------------------------------------------------------------------------------------------------------------------


class _Motor(NamedTuple):
    """What a motor constrains besides its coordinate. joint: the tree joint that does the same, if there is one."""

    constrained: tuple[str, ...]
    joint: str = ""


_GUIDES = {
    "FREE": _Motor(()),
    "PRISMATIC": _Motor(("x", "y", "rx", "ry", "rz"), "slide"),
    "SPHERICAL": _Motor(("x", "y")),
}
_SPINDLES = {
    "FREE": _Motor(()),
    "REVOLUTE": _Motor(("x", "y", "z", "rx", "ry"), "hinge"),
    "CYLINDRICAL": _Motor(("x", "y", "rx", "ry")),
}
_MODES = {"POSITION": "position", "SPEED": "speed", "FORCE": ""}


def read_motor(item: Item, reading: Reading, into: Mechanism) -> None:
    """An entry of ``motors``: a joint with its drive, a constraint, or a force."""
    name, linear = item.text("name"), item.choice("type", ("LINEAR", "ROTATION")) == "LINEAR"
    key, other, table, usual = ("guide", "spindle", _GUIDES, "PRISMATIC") if linear else ("spindle", "guide", _SPINDLES, "REVOLUTE")
    if item.has(other):
        raise item.error(f"is not for a {'LINEAR' if linear else 'ROTATION'} motor; allowed: {key}", other)
    guide = table[item.choice(key, table, usual)]
    mode = _MODES[item.choice("actuation_type", _MODES)]
    pair, location, quat = read_pair(item, reading), item.vector("location"), frame_quat(axis(item, "axis"))
    function = read_function(item, "actuation_function", reading, name)
    if pair.idle:
        if mode:
            raise item.error("moves one fixed body against another; allowed: at least one body that is not fixed")
        return
    frames = reading.in_body(pair.two, quat, location), reading.in_body(pair.one, quat, location)
    driven = "slide" if linear else "hinge"
    if mode == "position":
        _check_start(item, function, reading)
    if not mode:
        bodies = pair.two, pair.one
        into.forces.append(ForceSpec("motor", name, bodies, frames, driven=driven, function=function, source=item.source))
    drive = ConstraintSpec(
        "motor", name, (pair.two, pair.one), frames, driven=driven, constrained=guide.constrained, mode=mode,
        function=function if mode else None, source=item.source,
    )  # fmt: skip
    if guide.joint:
        if mode:
            into.drives[len(into.joints)] = drive
        spec = JointSpec(guide.joint, name, params={"axes": np.array([_Z])}, source=item.source)
        into.joints.append(Joint(spec, pair.two, pair.one, _pose(frames[0]), _pose(frames[1])))
    elif mode or guide.constrained:
        into.constraints.append(drive)


def _check_start(item: Item, function: FunctionSpec, reading: Reading) -> None:
    start = value_at_zero(function)
    if start:
        text = f"{item}: actuation_function: is {start:g} at time zero, but 0 in the reference pose; the start is moved to satisfy it"
        reading.notes.suspicious(item.line_of("actuation_function"), text, item.file)
