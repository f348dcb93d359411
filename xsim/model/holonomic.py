"""From the constraints of a ModelSpec to holonomic rows: couplings of coordinates, and constraints between frames of two bodies."""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import numpy as np

from xsim.joints.types import JOINT_TYPES
from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import SPRINGS, BodyInfo, ConstraintInfo, ForceInfo, FunctionInfo
from xsim.model.tree import Tree
from xsim.poses import IDENTITY_QUAT, normalized, quat_from_matrix, quat_mul, rotation_matrix
from xsim.registry import LOOP_CONSTRAINTS, LOOP_ROWS, TIME_FUNCTIONS
from xsim.spec import ConstraintSpec, ForceSpec, FunctionSpec, JointSpec, ModelSpec

X, Y, Z = range(3)
COINCIDENT = (("slide", X, 0, None), ("slide", Y, 0, None), ("slide", Z, 0, None))
PARALLEL_Z = (("dot", Z, X, None), ("dot", Z, Y, None))
SAME_ORIENTATION = (("dot", X, Y, None), ("dot", Y, Z, None), ("dot", Z, X, None))
"""Equal orientations. The rates of the rows are the relative angular velocities about z, x and y."""

JOINT_ROWS = {
    "fixed": (*COINCIDENT, *SAME_ORIENTATION),
    "hinge": (*COINCIDENT, *PARALLEL_Z),
    "slide": (*COINCIDENT[:2], *SAME_ORIENTATION),
    "ball": COINCIDENT,
    "euler": COINCIDENT,
    "universal": (*COINCIDENT, ("dot", Z, Z, None)),
    "planar": (COINCIDENT[Z], *PARALLEL_Z),
    "slide2": (COINCIDENT[Z], *SAME_ORIENTATION),
}
"""Rows of a joint that closes a loop, in frames rotated as `_joint_rotations` says."""
JOINT_FORCES = {**dict.fromkeys(("hinge", "slide", "universal"), ("damping", "stiffness")), "ball": ("damping",)}
"""What a joint that closes a loop has as force elements, see `_joint_forces`."""


class HolonomicTables(NamedTuple):
    """Constraints and forces of a spec: fields of the Topology while they are read, and the rows of their leaves."""

    rows: LeafRows
    couplings: list[tuple[int, int]]
    motions: list[tuple[int, int]]
    targets: list[tuple[int, str]]
    functions: list[FunctionInfo]
    constraints: list[ConstraintInfo]
    forces: list[ForceInfo]

    def structure(self) -> dict[str, tuple]:
        """Fields of the Topology."""
        return {name: tuple(getattr(self, name)) for name in self._fields if name != "rows"}

    def add_coupling(self, dofs: tuple[int, int], multiplier: float, offset: float, reference: float) -> None:
        """follower = multiplier (leader - reference) + offset, of the dofs (follower, leader)."""
        self.couplings.append(dofs)
        self.rows.add_to("coupling", multiplier=multiplier, offset=offset, reference=reference)

    def add_frames(self, group: str, frames) -> None:
        """The two frames (pos, quat), each in its body, of a constraint or force."""
        (pos1, quat1), (pos2, quat2) = frames
        self.rows.add_to(group, pos1=pos1, quat1=quat1, pos2=pos2, quat2=quat2)

    def add_function(self, f: FunctionSpec, name: str) -> int:
        """A function of time or a table; its index. Raises ValueError for an unknown kind."""
        if f.kind not in TIME_FUNCTIONS and f.kind != "external":
            raise ValueError(f"{f.source}: function {f.name or name!r}: {TIME_FUNCTIONS.unknown(f.kind)}")
        start, numbers = len(self.rows["function.numbers"]), [*np.ravel(f.numbers).tolist(), *(f.repeat or ())]
        self.functions.append(FunctionInfo(f.name or name, f.kind, start, len(numbers), f.repeat is not None))
        self.rows["function.numbers"].extend(numbers)
        return len(self.functions) - 1

    def add_target(self, c: ConstraintSpec) -> int:
        """What a constraint prescribes by time; its index."""
        assert c.function is not None
        self.targets.append((self.add_function(c.function, c.name), c.mode))
        return len(self.targets) - 1


def _fail(c: ConstraintSpec, text: str) -> NoReturn:
    raise ValueError(f"{c.source}: {c.kind} {c.name!r}: {text}")


def read_holonomic(spec: ModelSpec, tree: Tree) -> dict[str, tuple]:
    """Constraints and forces of the spec, in order: fields of the Topology. Raises ValueError for what is not simulated."""
    out, bodies, reference = HolonomicTables(tree.rows, [], [], [], [], [], []), tree.bodies, reference_poses(spec)
    for c in spec.constraints:
        if c.kind == "mimic":
            out.add_coupling(*_mimic(c, bodies))
        elif c.kind == "gearbox":
            out.add_coupling(*_gearbox(c, spec, bodies))
        elif c.kind == "motion":
            out.motions.append((_dof(c, bodies, *c.coordinates[0]), out.add_target(c)))
        else:
            _add_loop_constraint(out, c, reference)
    for f in (*spec.forces, *(f for c in spec.constraints if c.kind == "joint" for f in _joint_forces(c))):
        _add_force(out, f, _turns(f, spec, bodies, reference) if f.kind == "torsion" else ())
    return out.structure()


# ---- coordinates ---------------------------------------------------------------------------------------------------------------


def _mimic(c: ConstraintSpec, bodies: list[BodyInfo]) -> tuple:
    """Arguments of `HolonomicTables.add_coupling`."""
    follower, leader = (_dof(c, bodies, *place) for place in c.coordinates)
    return (follower, leader), c.multiplier, c.offset, c.reference


def _dof(c: ConstraintSpec, bodies: list[BodyInfo], body: int, index: int) -> int:
    first, width = bodies[body].v
    if not index < width or bodies[body].q[1] != width:
        _fail(c, f"body {bodies[body].name!r} has no coordinate {index} that can be coupled")
    return first + index


def _gearbox(c: ConstraintSpec, spec: ModelSpec, bodies: list[BodyInfo]) -> tuple:
    """Arguments of `HolonomicTables.add_coupling`."""
    assert c.axes is not None
    parent, child, reference = c.bodies
    driver, forth = _angle(c, spec, parent, reference, c.axes[0])
    driven, back = _angle(c, spec, child, reference, c.axes[1])
    return (bodies[driven].v[0], bodies[driver].v[0]), -c.multiplier * forth * back, 0.0, 0.0


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
        hinge = (rotation_matrix(info.joint.quat) if sign > 0 else turn @ rotation_matrix(info.quat)) @ _axes(info.joint)[0]
        if abs(abs(hinge @ direction) - np.linalg.norm(direction)) < 1e-6:
            return hinged, sign * float(np.sign(hinge @ direction))
    one, two = ("the world" if b < 0 else repr(spec.bodies[b].name) for b in (body, reference))
    _fail(c, f"there is no hinge about this axis between {one} and {two}")


def _carrier(spec: ModelSpec, body: int) -> tuple[int, np.ndarray]:
    """The moving body (or world) that a body is fixed to, and the body's orientation there."""
    turn = np.eye(3)
    while body >= 0 and all(j.type == "fixed" for j in spec.bodies[body].joints):
        info = spec.bodies[body]
        turn = rotation_matrix(info.quat) @ (rotation_matrix(info.joint.quat).T if info.joints else np.eye(3)) @ turn
        body = info.parent
    return body, turn


# ---- frames --------------------------------------------------------------------------------------------------------------------


class Loop(NamedTuple):
    """A constraint's two frames in the reference configuration: from the first origin to the second (3,), m, world axes; their rotation
    matrices. rows: of the leaves."""

    displacement: np.ndarray
    first: np.ndarray
    second: np.ndarray
    rows: LeafRows

    def add_length(self, length: float) -> int:
        """A length (m) that a row keeps; what a row says as its last item."""
        return self.rows.add("constraint.value", length)


def _add_loop_constraint(out: HolonomicTables, c: ConstraintSpec, reference: list) -> None:
    if c.kind not in LOOP_CONSTRAINTS:
        _fail(c, LOOP_CONSTRAINTS.unknown(c.kind))
    frames = [(np.asarray(pos, float), normalized(quat)) for pos, quat in c.frames]
    (one, first), (two, second) = (_placed(reference, body, frame) for body, frame in zip(c.bodies, frames, strict=True))
    rows = LOOP_CONSTRAINTS[c.kind](c, Loop(two - one, first, second, out.rows))
    if c.kind == "joint":
        frames = [(pos, quat_mul(quat, rotation)) for (pos, quat), rotation in zip(frames, _joint_rotations(c), strict=True)]
    for kind, *_ in rows:
        if kind not in LOOP_ROWS:
            _fail(c, LOOP_ROWS.unknown(kind))
    target = out.add_target(c) if c.mode else None
    out.constraints.append(ConstraintInfo(c.name, c.kind, (c.bodies[0], c.bodies[1]), tuple(rows), c.driven if c.mode else "", target))
    out.add_frames("constraint", frames)


def _distance(c: ConstraintSpec, loop: Loop) -> tuple:
    return (("distance", 0, 0, loop.add_length(np.linalg.norm(loop.displacement))),)


def _revolute_spherical(c: ConstraintSpec, loop: Loop) -> tuple:
    return (*_distance(c, loop), *COINCIDENT[Z:])


def _revolute_translational(c: ConstraintSpec, loop: Loop) -> tuple:
    return (*PARALLEL_Z, COINCIDENT[Z], ("slide", Y, 1, loop.add_length(loop.second[:, Y] @ loop.displacement)))


def _motor(c: ConstraintSpec, loop: Loop) -> tuple:
    """Rows of a motor: the constrained directions, and the driven one relative to the first frame, which moves by the drive."""
    constrained = {*c.constrained, *({"z" if c.driven == "slide" else "rz"} if c.mode else ())}
    rows = [row for name, row in zip("xyz", COINCIDENT, strict=True) if name in constrained]
    rotations = constrained & {"rx", "ry", "rz"}
    if rotations == {"rx", "ry", "rz"}:
        # A driven rotation may be half a turn away and more, where the products of axes cannot tell.
        return (*rows, *((*PARALLEL_Z, ("angle", 0, 0, None)) if c.mode and c.driven == "hinge" else SAME_ORIENTATION))
    if rotations == {"rx", "ry"}:
        return (*rows, *PARALLEL_Z)
    if rotations == {"rz"}:
        return (*rows, ("twist", 0, 0, None))
    if rotations:
        _fail(c, f"keeps {', '.join(sorted(rotations))}: such rotations alone are not simulated")
    return tuple(rows)


def reference_poses(spec: ModelSpec) -> list:
    """(position, rotation matrix) of every body in the reference configuration: every joint at zero, free ones where they start."""
    out: list = []
    for body in spec.bodies:
        pos, turn = out[body.parent] if body.parent >= 0 else (np.zeros(3), np.eye(3))
        steps = [(body.pos, body.quat)]
        joint = body.joints[0] if body.joints else None
        if joint is not None and joint.type == "free" and joint.q0 is not None:
            steps.append((joint.q0[:3], joint.q0[3:]))
        for shift, quat in steps:
            pos, turn = pos + turn @ np.asarray(shift, float), turn @ rotation_matrix(quat)
        if joint is not None and not joint.anchored:
            turn = turn @ rotation_matrix(joint.quat).T
            pos = pos - turn @ np.asarray(joint.pos, float)
        out.append((pos, turn))
    return out


def _placed(reference: list, body: int, frame) -> tuple:
    """Origin and rotation matrix of a frame in the world, in the reference configuration."""
    pos, turn = reference[body] if body >= 0 else (np.zeros(3), np.eye(3))
    return pos + turn @ frame[0], turn @ rotation_matrix(frame[1])


# ---- forces --------------------------------------------------------------------------------------------------------------------


def _add_force(out: HolonomicTables, f: ForceSpec, turns: tuple) -> None:
    rows = out.rows
    found: dict = {}  # what the kind needs of `ForceInfo`
    if f.kind in (*SPRINGS, "bushing"):
        if f.kind != "bushing":
            found["row"] = rows.add_to("force", rest=f.rest, preload=f.preload)
        for leaf in ("stiffness", "damping"):
            value = getattr(f, leaf)
            if value is not None:
                found[leaf] = len(rows[f"force.{leaf}"])
                rows[f"force.{leaf}"].extend(np.ravel(value).tolist())
        for leaf in ("spring", "damper"):
            value = getattr(f, leaf)
            if value is not None:
                found[leaf] = out.add_function(value, f"{f.name} {leaf}")
        if f.stops is not None:
            found["stop"] = rows.add("force.stop", f.stops)
        if f.map is not None:
            rates, lengths, forces = (np.asarray(x, float) for x in f.map)
            found["map"] = (len(rows["force.map"]), len(rates), len(lengths))
            rows["force.map"].extend([*rates, *lengths, *forces.ravel()])
    elif f.kind == "load":
        found |= {"row": rows.add("force.vector", f.vector), "local": f.local, "at_world": len(out.forces) if f.at_world else None}
    elif f.kind != "motor":
        raise ValueError(f"{f.source}: {f.kind} {f.name!r}: unknown kind of force")
    if f.function is not None:
        found["function"] = out.add_function(f.function, f.name)
    frames = [(np.asarray(pos, float), IDENTITY_QUAT if f.kind == "load" else normalized(quat)) for pos, quat in f.frames]
    frames += [(np.zeros(3), IDENTITY_QUAT)] * (2 - len(frames))
    out.forces.append(ForceInfo(f.name, f.kind, f.bodies, driven=f.driven, hinges=turns, **found))
    out.add_frames("force", frames)


def _turns(f: ForceSpec, spec: ModelSpec, bodies: list[BodyInfo], reference: list) -> tuple:
    """The hinges between the two bodies of a torsion spring, (dof, sign), if nothing but hinges about its axis is between them."""
    _, turn = _placed(reference, f.bodies[0], f.frames[0])
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
            along = reference[body][1] @ rotation_matrix(joint.quat) @ _axes(joint)[0] @ turn[:, Z]
            if abs(along) < 1 - 1e-9:
                return ()
            found.append((bodies[body].v[0], sign * float(np.sign(along))))
    return tuple(found)


# ---- joints --------------------------------------------------------------------------------------------------------------------


def _joint(c: ConstraintSpec, loop: Loop) -> tuple:
    """Rows of a joint that closes a loop. Raises ValueError for what is not simulated."""
    joint = c.joint
    assert joint is not None
    if joint.type not in JOINT_ROWS:
        _fail(c, f"a {joint.type} joint cannot close a loop; allowed: {', '.join(JOINT_ROWS)}")
    for name in ("damping", "armature", "stiffness", "friction"):
        if _has(joint, name) and name not in JOINT_FORCES.get(joint.type, ()):
            _fail(c, f"{name} of a {joint.type} joint that closes a loop is not simulated; let another joint close it")
    for name, limits in (("position", joint.position_range), ("velocity", joint.velocity_range)):
        if limits is not None and np.isfinite(limits).any():
            _fail(c, f"{name} limits of a joint that closes a loop are not simulated; let another joint close it")
    if joint.actuator not in ("passive", "force"):
        _fail(c, f"a joint that closes a loop cannot be driven ({joint.actuator}); let another joint close it")
    return JOINT_ROWS[joint.type]


def _has(joint: JointSpec, name: str) -> bool:
    value = getattr(joint, name)
    return value is not None and bool(np.nan_to_num(value).any())


def _joint_forces(c: ConstraintSpec) -> list[ForceSpec]:
    """The springs and dampers of a joint that closes a loop, as force elements between its bodies.

    A universal joint has one about its first axis, which is fixed in the first body, and one about its second axis, which is fixed in the
    second body and about which the first body turns the other way. A ball joint's damper acts along axes of the second body."""
    joint = c.joint
    if joint is None or not (_has(joint, "damping") or _has(joint, "stiffness")):
        return []
    one, two = zip(c.bodies, c.frames, strict=True)

    def element(kind: str, ends, rotation, **law) -> ForceSpec:
        frames = tuple((pos, quat_mul(normalized(quat), rotation)) for _, (pos, quat) in ends)
        return ForceSpec(kind, c.name, tuple(body for body, _ in ends), frames, source=c.source, **law)

    if joint.type == "ball":
        damping = np.concatenate([np.zeros(3), np.broadcast_to(joint.damping, 3)])
        return [element("bushing", (two, one), IDENTITY_QUAT, stiffness=np.zeros(6), damping=damping)]
    numbers = {"damping": joint.damping, "stiffness": joint.stiffness, "rest": joint.spring_ref}
    laws = [{name: 0.0 if x is None else float(x[i]) for name, x in numbers.items()} for i in range(len(_axes(joint)))]
    if joint.type != "universal":
        return [element("torsion" if joint.type == "hinge" else "axial", (one, two), _along(_axes(joint)[0]), **laws[0])]
    first, second = _axes(joint)
    turns = [quat_from_matrix(np.stack([x, np.cross(z, x), z], 1)) for z, x in ((first, second), (second, first))]
    laws[1]["rest"] = -laws[1]["rest"]
    return [element("torsion", ends, turn, **law) for ends, turn, law in zip(((one, two), (two, one)), turns, laws, strict=True)]


def _joint_rotations(c: ConstraintSpec) -> tuple:
    """Quaternions of the rows' frames in the two frames of a joint that closes a loop: z along the axis."""
    joint = c.joint
    assert joint is not None
    axes = _axes(joint)
    if not np.isfinite(axes).all():
        _fail(c, "a joint axis is zero")
    if joint.type in ("hinge", "slide"):
        rotations = (_along(axes[0]),) * 2
    elif joint.type == "universal":
        if abs(axes[0] @ axes[1]) > 1e-9:
            _fail(c, "axes that are not perpendicular cannot close a loop; let another joint close it")
        rotations = (_along(axes[0]), _along(axes[1]))
    elif joint.type in ("planar", "slide2"):
        normal = np.cross(axes[0], axes[1])
        if np.linalg.norm(normal) < 1e-9 or joint.type == "planar" and np.linalg.norm(np.cross(normal, axes[2])) > 1e-9:
            _fail(c, "its axes do not span a plane with its normal; let another joint close it")
        rotations = (_along(normal),) * 2
    else:
        rotations = (IDENTITY_QUAT,) * 2
    return rotations


def _axes(joint: JointSpec) -> np.ndarray:
    """Unit axes of a joint, (n, 3); not finite where one is zero."""
    default = JOINT_TYPES[joint.type].parameters.get("axes")
    axes = np.asarray(joint.params.get("axes", np.zeros((0, 3)) if default is None else default.default), float)
    length = np.linalg.norm(axes, axis=1, keepdims=True)
    return np.where(length > 1e-9, axes / np.where(length > 1e-9, length, 1.0), np.nan)


def _along(axis) -> np.ndarray:
    """A rotation that takes z to the direction of the axis: the smallest one, but for axes that point down, away from its singularity."""
    x, y, z = normalized(axis)
    return normalized([1 + z, -y, x, 0.0] if z > -0.5 else [x, 0.0, 1 - z, y])


LOOP_CONSTRAINTS.register("joint", _joint)
LOOP_CONSTRAINTS.register("point_on_line", lambda c, loop: COINCIDENT[:2])
LOOP_CONSTRAINTS.register("point_on_plane", lambda c, loop: COINCIDENT[Z:])
LOOP_CONSTRAINTS.register("distance", _distance)
LOOP_CONSTRAINTS.register("revolute_spherical", _revolute_spherical)
LOOP_CONSTRAINTS.register("revolute_translational", _revolute_translational)
LOOP_CONSTRAINTS.register("motor", _motor)
