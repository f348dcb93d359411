"""From the constraints of a ModelSpec to holonomic rows: couplings of coordinates, and constraints between frames of two bodies."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np

from .jointtypes import JOINT_TYPES
from .model import BodyInfo, ConstraintInfo
from .spatial import IDENTITY, matrix, quat_mul
from .spec import ConstraintSpec, JointSpec, ModelSpec

X, Y, Z = range(3)
_HERE = (("slide", X, 0, None), ("slide", Y, 0, None), ("slide", Z, 0, None))
_UPRIGHT = (("dot", Z, X, None), ("dot", Z, Y, None))
_UNTURNED = (("dot", X, Y, None), ("dot", Y, Z, None), ("dot", Z, X, None))
"""Relative orientation kept: the rows' rates are the rotations about z, x and y."""

KEPT = {
    "fixed": (*_HERE, *_UNTURNED),
    "hinge": (*_HERE, *_UPRIGHT),
    "slide": (*_HERE[:2], *_UNTURNED),
    "ball": _HERE,
    "euler": _HERE,
    "universal": (*_HERE, ("dot", Z, Z, None)),
    "planar": (_HERE[Z], *_UPRIGHT),
    "slide2": (_HERE[Z], *_UNTURNED),
}
"""Rows of a joint that closes a loop, in frames turned as `_turned` says."""


class Coupling(NamedTuple):
    """follower = multiplier (leader - reference) + offset, of two dofs."""

    dofs: tuple[int, int]
    multiplier: float
    offset: float
    reference: float


class Tie(NamedTuple):
    """A constraint between two frames: (pos, quat) of each in its body, and the lengths its rows keep."""

    info: ConstraintInfo
    frames: tuple
    values: tuple[float, ...]


def _fail(c: ConstraintSpec, text: str) -> NoReturn:
    raise ValueError(f"{c.source}: {c.kind} {c.name!r}: {text}")


def read_constraints(spec: ModelSpec, bodies: list[BodyInfo]) -> tuple[list[Coupling], list[Tie]]:
    """Couplings and ties of the spec's constraints, in order. Raises ValueError for what is not simulated."""
    couplings, ties = [], []
    count = 0
    for c in spec.constraints:
        if c.kind == "mimic":
            couplings.append(_mimic(c, bodies))
        elif c.kind == "gearbox":
            couplings.append(_gearbox(c, spec, bodies))
        else:
            tie = _tie(c, count)
            count += len(tie.values)
            ties.append(tie)
    return couplings, ties


# ---- coordinates ---------------------------------------------------------------------------------------------------------------


def _mimic(c: ConstraintSpec, bodies: list[BodyInfo]) -> Coupling:
    pair = []
    for body, index in c.coordinates:
        first, width = bodies[body].v
        if not index < width or JOINT_TYPES[bodies[body].joint_type].nq != width:
            _fail(c, f"body {bodies[body].name!r} has no coordinate {index} that can be coupled")
        pair.append(first + index)
    return Coupling((pair[0], pair[1]), c.multiplier, c.offset, c.reference)


def _gearbox(c: ConstraintSpec, spec: ModelSpec, bodies: list[BodyInfo]) -> Coupling:
    assert c.axes is not None
    parent, child, reference = c.bodies
    driver, forth = _angle(c, spec, parent, reference, c.axes[0])
    driven, back = _angle(c, spec, child, reference, c.axes[1])
    return Coupling((bodies[driven].v[0], bodies[driver].v[0]), -c.multiplier * forth * back, 0.0, 0.0)


def _angle(c: ConstraintSpec, spec: ModelSpec, body: int, reference: int, axis) -> tuple[int, float]:
    """The hinge between a body and the reference body, and the sign of its angle as a rotation of the body about ``axis`` (body axes)."""
    body, own = _carrier(spec, body)
    reference, _ = _carrier(spec, reference)
    direction = own @ axis
    for hinged, other, sign in ((body, reference, 1.0), (reference, body, -1.0)):
        if hinged < 0 or spec.bodies[hinged].joint.type != "hinge":
            continue
        info = spec.bodies[hinged]
        above, turn = _carrier(spec, info.parent)
        if above != other:
            continue
        hinge = np.ravel(info.joint.params.get("axes", JOINT_TYPES["hinge"].parameters["axes"].default))
        hinge = (_matrix(info.joint.quat) if sign > 0 else turn @ _matrix(info.quat)) @ (hinge / np.linalg.norm(hinge))
        if abs(abs(hinge @ direction) - np.linalg.norm(direction)) < 1e-6:
            return hinged, sign * float(np.sign(hinge @ direction))
    one, two = ("the world" if b < 0 else repr(spec.bodies[b].name) for b in (body, reference))
    _fail(c, f"there is no hinge about this axis between {one} and {two}")


def _carrier(spec: ModelSpec, body: int) -> tuple[int, np.ndarray]:
    """The moving body (or world) that a body is fixed to, and the body's orientation there."""
    turn = np.eye(3)
    while body >= 0 and spec.bodies[body].joint.type == "fixed":
        info = spec.bodies[body]
        turn = _matrix(info.quat) @ _matrix(info.joint.quat).T @ turn
        body = info.parent
    return body, turn


# ---- frames --------------------------------------------------------------------------------------------------------------------


def _tie(c: ConstraintSpec, count: int) -> Tie:
    """count: lengths of the ties before."""
    frames = [(np.asarray(pos, float), _unit(quat)) for pos, quat in c.frames]
    values: tuple[float, ...] = ()
    if c.kind == "joint":
        assert c.joint is not None
        rows, turns = _joint(c, c.joint)
        frames = [(pos, quat_mul(quat, turn)) for (pos, quat), turn in zip(frames, turns, strict=True)]
    elif c.kind == "point_on_line":
        rows = _HERE[:2]
    elif c.kind == "point_on_plane":
        rows = _HERE[Z:]
    else:
        _fail(c, "this constraint is read but not simulated yet; spec.replace(constraints=...) builds the model without it")
    info = ConstraintInfo(c.name, c.kind, (c.bodies[0], c.bodies[1]), tuple(rows))
    return Tie(info, tuple(frames), values)


def _joint(c: ConstraintSpec, joint: JointSpec):
    """Rows, and what the frames of the two bodies are turned by, of a joint that closes a loop."""
    if joint.type not in KEPT:
        _fail(c, f"a {joint.type} joint cannot close a loop; allowed: {', '.join(KEPT)}")
    for name in ("damping", "armature", "stiffness", "friction"):
        value = getattr(joint, name)
        if value is not None and np.nan_to_num(value).any():
            _fail(c, f"{name} of a joint that closes a loop is not simulated; let another joint close it")
    if joint.position_range is not None and np.isfinite(joint.position_range).any():
        _fail(c, "position limits of a joint that closes a loop are not simulated; let another joint close it")
    if joint.actuator not in ("passive", "force"):
        _fail(c, f"a joint that closes a loop cannot be driven ({joint.actuator}); let another joint close it")
    default = JOINT_TYPES[joint.type].parameters.get("axes")
    axes = np.asarray(joint.params.get("axes", np.zeros((0, 3)) if default is None else default.default), float)
    if not np.isfinite(axes).all() or not (np.linalg.norm(axes, axis=1) > 1e-9).all():
        _fail(c, "a joint axis is zero")
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    if joint.type in ("hinge", "slide"):
        turns = (_along(axes[0]),) * 2
    elif joint.type == "universal":
        if abs(axes[0] @ axes[1]) > 1e-9:
            _fail(c, "axes that are not perpendicular cannot close a loop; let another joint close it")
        turns = (_along(axes[0]), _along(axes[1]))
    elif joint.type in ("planar", "slide2"):
        normal = np.cross(axes[0], axes[1])
        if np.linalg.norm(normal) < 1e-9 or joint.type == "planar" and np.linalg.norm(np.cross(normal, axes[2])) > 1e-9:
            _fail(c, "its axes do not span a plane with its normal; let another joint close it")
        turns = (_along(normal),) * 2
    else:
        turns = (IDENTITY,) * 2
    return KEPT[joint.type], turns


def _along(axis) -> tuple:
    """A rotation that takes z to the direction of the axis."""
    x, y, z = np.asarray(axis, float) / np.linalg.norm(axis)
    quat = np.array([1 + z, -y, x, 0.0]) if z > -0.5 else np.array([x, 0.0, 1 - z, y])
    return tuple((quat / np.linalg.norm(quat)).tolist())


def _matrix(quat) -> np.ndarray:
    return np.array(matrix(_unit(quat)))


def _unit(quat) -> tuple:
    return tuple((np.asarray(quat, float) / np.linalg.norm(quat)).tolist())
