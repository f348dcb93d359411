"""From the constraints of a ModelSpec to holonomic rows: couplings of coordinates, and constraints between frames of two bodies."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np

from xsim.joints.types import JOINT_TYPES
from xsim.model.topology import BodyInfo, ConstraintInfo, ForceInfo, FunctionInfo
from xsim.spatial import IDENTITY, matrix, quat_mul
from xsim.spec import ConstraintSpec, ForceSpec, FunctionSpec, JointSpec, ModelSpec

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


class LoopConstraint(NamedTuple):
    """A constraint between two frames: (pos, quat) of each in its body, and the lengths its rows keep."""

    info: ConstraintInfo
    frames: tuple
    values: tuple[float, ...]


class ForceElement(NamedTuple):
    """A force: frames as of a `LoopConstraint`, and its numbers by leaf."""

    info: ForceInfo
    frames: tuple
    numbers: dict[str, list]


class ConstraintTables(NamedTuple):
    """What a spec's constraints and forces come to. motions, targets, functions: as in the Topology. numbers: of the functions."""

    couplings: list[Coupling]
    motions: list[tuple[int, int]]
    targets: list[tuple[int, str]]
    loop_constraints: list[LoopConstraint]
    force_elements: list[ForceElement]
    functions: list[FunctionInfo]
    numbers: list[float]


def _fail(c: ConstraintSpec, text: str) -> NoReturn:
    raise ValueError(f"{c.source}: {c.kind} {c.name!r}: {text}")


def read_constraints(spec: ModelSpec, bodies: list[BodyInfo]) -> ConstraintTables:
    """Constraints and forces of the spec, in order. Raises ValueError for what is not simulated."""
    out = ConstraintTables([], [], [], [], [], [], [])
    drawn = _drawn(spec)
    for c in spec.constraints:
        if c.kind == "mimic":
            out.couplings.append(_mimic(c, bodies))
        elif c.kind == "gearbox":
            out.couplings.append(_gearbox(c, spec, bodies))
        elif c.kind == "motion":
            out.motions.append((_dof(c, bodies, *c.coordinates[0]), _target(out, c)))
        else:
            out.loop_constraints.append(_loop_constraint(c, out, drawn))
    for f in spec.forces:
        out.force_elements.append(_force_element(f, out, _turns(f, spec, bodies, drawn) if f.kind == "torsion" else ()))
    return out


def _target(out: ConstraintTables, c: ConstraintSpec) -> int:
    assert c.function is not None
    out.targets.append((_function(out, c.function, c.name), c.mode))
    return len(out.targets) - 1


def _function(out: ConstraintTables, f: FunctionSpec, name: str) -> int:
    numbers = [*np.ravel(f.numbers).tolist(), *(f.repeat or ())]
    out.functions.append(FunctionInfo(f.name or name, f.kind, len(out.numbers), len(numbers), f.repeat is not None))
    out.numbers.extend(numbers)
    return len(out.functions) - 1


# ---- coordinates ---------------------------------------------------------------------------------------------------------------


def _mimic(c: ConstraintSpec, bodies: list[BodyInfo]) -> Coupling:
    follower, leader = (_dof(c, bodies, *place) for place in c.coordinates)
    return Coupling((follower, leader), c.multiplier, c.offset, c.reference)


def _dof(c: ConstraintSpec, bodies: list[BodyInfo], body: int, index: int) -> int:
    first, width = bodies[body].v
    if not index < width or bodies[body].q[1] != width:
        _fail(c, f"body {bodies[body].name!r} has no coordinate {index} that can be coupled")
    return first + index


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
        hinge = (_matrix(info.joint.quat) if sign > 0 else turn @ _matrix(info.quat)) @ _axes(info.joint)[0]
        if abs(abs(hinge @ direction) - np.linalg.norm(direction)) < 1e-6:
            return hinged, sign * float(np.sign(hinge @ direction))
    one, two = ("the world" if b < 0 else repr(spec.bodies[b].name) for b in (body, reference))
    _fail(c, f"there is no hinge about this axis between {one} and {two}")


def _carrier(spec: ModelSpec, body: int) -> tuple[int, np.ndarray]:
    """The moving body (or world) that a body is fixed to, and the body's orientation there."""
    turn = np.eye(3)
    while body >= 0 and all(j.type == "fixed" for j in spec.bodies[body].joints):
        info = spec.bodies[body]
        turn = _matrix(info.quat) @ (_matrix(info.joint.quat).T if info.joints else np.eye(3)) @ turn
        body = info.parent
    return body, turn


# ---- frames --------------------------------------------------------------------------------------------------------------------


def _loop_constraint(c: ConstraintSpec, out: ConstraintTables, drawn: list) -> LoopConstraint:
    frames = [(np.asarray(pos, float), _unit(quat)) for pos, quat in c.frames]
    count = sum(len(t.values) for t in out.loop_constraints)
    target = None
    (one, turn), (two, other) = (_placed(drawn, body, frame) for body, frame in zip(c.bodies, frames, strict=True))
    values: list[float] = []

    def kept(length: float) -> int:
        values.append(float(length))
        return count + len(values) - 1

    if c.kind == "joint":
        assert c.joint is not None
        rows, turns = _joint(c, c.joint)
        frames = [(pos, quat_mul(quat, own)) for (pos, quat), own in zip(frames, turns, strict=True)]
    elif c.kind == "point_on_line":
        rows = _HERE[:2]
    elif c.kind == "point_on_plane":
        rows = _HERE[Z:]
    elif c.kind in ("distance", "revolute_spherical"):
        rows = (("distance", 0, 0, kept(np.linalg.norm(two - one))), *(_HERE[Z:] if c.kind == "revolute_spherical" else ()))
    elif c.kind == "revolute_translational":
        rows = (*_UPRIGHT, _HERE[Z], ("slide", Y, 1, kept(other[:, Y] @ (two - one))))
    elif c.kind == "motor":
        rows = _motor(c)
        target = _target(out, c) if c.mode else None
    else:
        _fail(c, "unknown kind of constraint")
    info = ConstraintInfo(c.name, c.kind, (c.bodies[0], c.bodies[1]), tuple(rows), c.driven if c.mode else "", target)
    return LoopConstraint(info, tuple(frames), tuple(values))


def _motor(c: ConstraintSpec) -> tuple:
    """Rows of a motor: what it keeps, and its drive as one more thing kept, of a first frame that moves on schedule."""
    held = {*c.keeps, *({"z" if c.driven == "slide" else "rz"} if c.mode else ())}
    rows = [row for name, row in zip("xyz", _HERE, strict=True) if name in held]
    turns = held & {"rx", "ry", "rz"}
    if turns == {"rx", "ry", "rz"}:
        # A driven rotation may be half a turn away and more, where the products of axes cannot tell.
        return (*rows, *((*_UPRIGHT, ("turn", 0, 0, None)) if c.mode and c.driven == "hinge" else _UNTURNED))
    if turns == {"rx", "ry"}:
        return (*rows, *_UPRIGHT)
    if turns == {"rz"}:
        return (*rows, ("twist", 0, 0, None))
    if turns:
        _fail(c, f"keeps {', '.join(sorted(turns))}: such rotations alone are not simulated")
    return tuple(rows)


def _drawn(spec: ModelSpec) -> list:
    """(position, rotation matrix) of every body as drawn: every joint at zero, free ones where they start."""
    out: list = []
    for body in spec.bodies:
        pos, turn = out[body.parent] if body.parent >= 0 else (np.zeros(3), np.eye(3))
        steps = [(body.pos, body.quat)]
        joint = body.joints[0] if body.joints else None
        if joint is not None and joint.type == "free" and joint.q0 is not None:
            steps.append((joint.q0[:3], joint.q0[3:]))
        for shift, quat in steps:
            pos, turn = pos + turn @ np.asarray(shift, float), turn @ _matrix(quat)
        if joint is not None and not joint.anchored:
            turn = turn @ _matrix(joint.quat).T
            pos = pos - turn @ np.asarray(joint.pos, float)
        out.append((pos, turn))
    return out


def _placed(drawn: list, body: int, frame) -> tuple:
    """Origin and rotation matrix of a frame in the world, as drawn."""
    pos, turn = drawn[body] if body >= 0 else (np.zeros(3), np.eye(3))
    return pos + turn @ frame[0], turn @ _matrix(frame[1])


# ---- forces --------------------------------------------------------------------------------------------------------------------


def _force_element(f: ForceSpec, out: ConstraintTables, turns: tuple) -> ForceElement:
    """A force: its numbers go to the ends of the leaves that hold those of the forces before."""
    leaves = ("rest", "stiffness", "damping", "stop", "map", "vector")
    rows = {leaf: sum(len(p.numbers.get(leaf, ())) for p in out.force_elements) for leaf in leaves}
    numbers: dict[str, list] = {}
    found: dict = {}
    if f.kind in ("spring", "torsion", "bushing"):
        if f.kind != "bushing":
            numbers |= {"rest": [f.rest], "preload": [f.preload]}
            found["row"] = rows["rest"]
        for leaf in ("stiffness", "damping"):
            value = getattr(f, leaf)
            if value is not None:
                numbers[leaf] = np.ravel(value).tolist()
                found[leaf] = rows[leaf]
        for leaf in ("spring", "damper"):
            value = getattr(f, leaf)
            if value is not None:
                found[leaf] = _function(out, value, f"{f.name} {leaf}")
        if f.stops is not None:
            numbers["stop"] = [list(f.stops)]
            found["stop"] = rows["stop"]
        if f.map is not None:
            rates, lengths, forces = (np.asarray(x, float) for x in f.map)
            numbers["map"] = [*rates, *lengths, *forces.ravel()]
            found["map"] = (rows["map"], len(rates), len(lengths))
    elif f.kind == "load":
        numbers["vector"] = [np.asarray(f.vector, float).tolist()]
        found |= {"row": rows["vector"], "local": f.local, "at_world": len(out.force_elements) if f.at_world else None}
    elif f.kind != "motor":
        raise ValueError(f"{f.source}: {f.kind} {f.name!r}: unknown kind of force")
    if f.function is not None:
        found["function"] = _function(out, f.function, f.name)
    frames = [(np.asarray(pos, float), (1.0, 0.0, 0.0, 0.0) if f.kind == "load" else _unit(quat)) for pos, quat in f.frames]
    frames += [(np.zeros(3), IDENTITY)] * (2 - len(frames))
    return ForceElement(ForceInfo(f.name, f.kind, f.bodies, driven=f.driven, turns=turns, **found), tuple(frames), numbers)


def _turns(f: ForceSpec, spec: ModelSpec, bodies: list[BodyInfo], drawn: list) -> tuple:
    """The hinges between the two bodies of a torsion spring, (dof, sign), if nothing but hinges about its axis is between them."""
    _, turn = _placed(drawn, f.bodies[0], f.frames[0])
    chains = []
    for body in f.bodies:
        chains.append([])
        while body >= 0:
            chains[-1].append(body)
            body = spec.bodies[body].parent
    found = []
    for chain, others, sign in ((chains[1], chains[0], 1.0), (chains[0], chains[1], -1.0)):
        for body in chain:
            joint = spec.bodies[body].joint
            if body in others or joint.type == "fixed":
                continue
            if joint.type != "hinge":
                return ()
            along = drawn[body][1] @ _matrix(joint.quat) @ _axes(joint)[0] @ turn[:, Z]
            if abs(along) < 1 - 1e-9:
                return ()
            found.append((bodies[body].v[0], sign * float(np.sign(along))))
    return tuple(found)


# ---- joints --------------------------------------------------------------------------------------------------------------------


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
    axes = _axes(joint)
    if not np.isfinite(axes).all():
        _fail(c, "a joint axis is zero")
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


def _axes(joint: JointSpec) -> np.ndarray:
    """Unit axes of a joint, (n, 3); not finite where one is zero."""
    default = JOINT_TYPES[joint.type].parameters.get("axes")
    axes = np.asarray(joint.params.get("axes", np.zeros((0, 3)) if default is None else default.default), float)
    length = np.linalg.norm(axes, axis=1, keepdims=True)
    return np.where(length > 1e-9, axes / np.where(length > 1e-9, length, 1.0), np.nan)


def _along(axis) -> tuple:
    """A rotation that takes z to the direction of the axis."""
    x, y, z = np.asarray(axis, float) / np.linalg.norm(axis)
    quat = np.array([1 + z, -y, x, 0.0]) if z > -0.5 else np.array([x, 0.0, 1 - z, y])
    return tuple((quat / np.linalg.norm(quat)).tolist())


def _matrix(quat) -> np.ndarray:
    return np.array(matrix(_unit(quat)))


def _unit(quat) -> tuple:
    return tuple((np.asarray(quat, float) / np.linalg.norm(quat)).tolist())
