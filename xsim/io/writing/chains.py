"""Joints of every type as chains of hinges, slides and balls, or as a free joint: MJCF's joints, of which URDF has all but the ball.

In MJCF the body stands at its initial pose, and joint i turns or moves it by T_i(q_i) about a line fixed in the body; the joints act in
order, X = X(body) T_1(q_1) ... T_n(q_n). A joint type of xsim is such a chain in one joint frame J. Where the initial state is not the
reference pose, its motion D_i = T_i(q0_i) goes into the pose of the body: with C_i = D_i+1 ... D_n,

    T_1 ... T_n = (D_1 ... D_n) (C_1^-1 T_1' C_1) ... (C_n^-1 T_n' C_n),    T_i(q_i) = D_i T_i',

so the lines move by C_i^-1, and ``ref`` is q0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from xsim.io.errors import Losses
from xsim.joints.types import JOINT_TYPES, ElementaryJoint
from xsim.poses import IDENTITY_QUAT, Pose, normalized, quat_about, quat_conj, quat_mul, rotate
from xsim.spec import BodySpec, JointSpec
from xsim.spec.fields import identity, zeros

__all__ = ["Chain", "Link", "chain_of", "moved"]

KINDS = ("hinge", "slide", "ball")


@dataclass(frozen=True)
class Link:
    """A joint of the chain.

    joint, place: the joint of the spec that it is (a part of), and its number in the body. first: number of its first dof in the body.
    q, v: its coordinates and dofs in that joint. pos, axis: in the body. quat: axes of a ball's coordinates in the body. ref: position of
    a hinge or slide in the initial pose. frame, before: of a free joint, its frame in the body, and in the world where it starts from.
    """

    kind: str
    joint: JointSpec
    place: int
    first: int
    q: slice
    v: slice
    name: str = ""
    pos: np.ndarray = zeros(3)
    axis: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    ref: float = 0.0
    frame: Pose = Pose()
    before: Pose = Pose()

    @property
    def start(self) -> np.ndarray:
        """Its coordinates in the initial state of the spec."""
        kind = JOINT_TYPES[self.joint.type]
        start = kind.neutral + self.joint.ref if self.joint.q0 is None else np.asarray(self.joint.q0, float)
        return start[self.q]

    def numbers(self, name: str) -> np.ndarray:
        """What a field of the joint has for its dofs; zeros for None."""
        value = getattr(self.joint, name)
        return np.zeros(JOINT_TYPES[self.joint.type].nv)[self.v] if value is None else np.asarray(value, float)[self.v]

    def coordinates(self, q: np.ndarray) -> np.ndarray:
        """The coordinates of MJCF of coordinates of the spec."""
        if self.kind == "free":
            pose = self.before @ Pose(normalized(q[3:]), q[:3]) @ self.frame.inverse()
            return np.concatenate([pose.pos, pose.quat])
        if self.kind == "ball":
            turned = quat_mul(quat_conj(normalized(self.start)), q)
            return quat_mul(quat_mul(self.quat, turned), quat_conj(self.quat))
        return q

    def velocities(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """The velocities of MJCF of velocities of the spec at its coordinates q. Of a free joint: of the body's origin, in the world."""
        if self.kind == "free":
            turn = (self.before @ Pose(normalized(q[3:]), q[:3])).quat
            offset = np.cross(v[3:], self.frame.inverse().pos)
            return np.concatenate([rotate(self.before.quat, v[:3]) + rotate(turn, offset), rotate(self.frame.quat, v[3:])])
        return rotate(self.quat, v) if self.kind == "ball" else v


class Chain(NamedTuple):
    """pose: of the body in its parent in the initial state. links: its joints, in order."""

    pose: Pose
    links: tuple[Link, ...]


def chain_of(body: BodySpec, losses: Losses) -> Chain:
    """The joints of a body. Raises WriteError for those that are no chain of these."""
    pose = Pose(normalized(body.quat), np.asarray(body.pos, float))
    joints = body.joints
    if len(joints) == 1 and _is_free_body(body, joints[0]):
        return _free(pose, joints[0])
    links: list[Link] = []
    for place, joint in enumerate(joints):
        frame = _frame(joint)
        pose = pose if joint.anchored else pose @ frame.inverse()
        links += _links(body, place, joint, frame, sum(JOINT_TYPES[j.type].nv for j in joints[:place]), losses)
    chain = _started(body, Chain(pose, tuple(links)), losses)
    return chain._replace(links=tuple(link for link in chain.links if link.joint.actuator != "locked"))


def _frame(joint: JointSpec) -> Pose:
    return Pose(normalized(joint.quat), np.asarray(joint.pos, float))


def _is_free_body(body: BodySpec, joint: JointSpec) -> bool:
    """Whether a joint can be a free joint of MJCF, which has one number for all six dofs and its spring at rest at the start."""
    if joint.type != "free" or body.parent >= 0 or joint.actuator != "passive" or joint.position_range is not None:
        return False
    numbers = [getattr(joint, name) for name in ("damping", "armature", "stiffness", "friction")]
    given = [np.asarray(x, float) for x in numbers if x is not None and np.any(np.nan_to_num(x))]
    if not given:
        return True
    rests = joint.stiffness is None or not np.any(joint.stiffness) or np.array_equal(joint.spring_ref, joint.q0)
    return all(np.ptp(x) == 0 for x in given) and rests and _frame(joint).is_identity()


def _free(pose: Pose, joint: JointSpec) -> Chain:
    """A free joint: its coordinates are the pose of the body in the world."""
    frame, kind = _frame(joint), JOINT_TYPES["free"]
    start = kind.neutral if joint.q0 is None else np.asarray(joint.q0, float)
    before = pose @ frame if joint.anchored else pose
    link = Link("free", joint, 0, 0, slice(0, 7), slice(0, 6), joint.name, frame=frame, before=before)
    start = link.coordinates(start)
    return Chain(Pose(start[3:], start[:3]), (link,))


def _links(body: BodySpec, place: int, joint: JointSpec, frame: Pose, first: int, losses: Losses) -> list[Link]:
    kind, element = JOINT_TYPES[joint.type], f"joint {joint.name or body.name!r}"
    random = [name for name, p in kind.parameters.items() if p.sample is not None and name not in joint.params]
    if random:
        losses.refuse(joint.source, element, f"type {joint.type!r} with random {random[0]}; {losses.language} has joints with given axes")
    out, q, v = [], 0, 0
    for number, part in enumerate(kind.chain):
        if part.kind not in KINDS or not isinstance(part, ElementaryJoint):
            losses.refuse(joint.source, element, f"type {joint.type!r}; {losses.language} has chains of {', '.join(KINDS)}")
        name = joint.name if len(kind.chain) == 1 or not joint.name else f"{joint.name}_{number + 1}"
        spans = slice(q, q + part.nq), slice(v, v + part.nv)
        axis = np.zeros(3) if part.axis is None else rotate(frame.quat, _axis(joint, part.axis))
        ref = joint.ref if part.kind != "ball" else 0.0
        out.append(Link(part.kind, joint, place, first + v, *spans, name, frame.pos, axis, frame.quat, ref))
        q, v = q + part.nq, v + part.nv
    return out


def _axis(joint: JointSpec, axis: int | tuple[float, float, float]) -> np.ndarray:
    """A unit axis in the joint frame. axis: a row of the parameter ``axes``, or three numbers."""
    if not isinstance(axis, int):
        return np.array(axis)
    axes = joint.params.get("axes", JOINT_TYPES[joint.type].parameters["axes"].default)
    return normalized(np.asarray(axes, float)[axis])


def _started(body: BodySpec, chain: Chain, losses: Losses) -> Chain:
    """The chain with the motion from the reference pose to the initial state in the pose of the body."""
    after, links = Pose(), []
    for link in reversed(chain.links):
        ref = {"ref": float(link.start[0])} if link.kind != "ball" else {}
        if link.kind == "ball":
            _check_ball(body, link, losses)
        links.append(replace(link, **ref, **moved(link, after)))
        after = _motion(link) @ after
    return Chain(chain.pose if after.is_identity() else chain.pose @ after, tuple(reversed(links)))


def moved(link: Link, after: Pose) -> dict:
    """Fields of a link seen from the body after the motion of the links behind it."""
    if after.is_identity():
        return {}
    inverse = after.inverse()
    pos = inverse.pos + rotate(inverse.quat, link.pos)
    return {"pos": pos, "axis": rotate(inverse.quat, link.axis), "quat": quat_mul(inverse.quat, link.quat)}


def _motion(link: Link) -> Pose:
    """What the body has moved by in the initial state."""
    if link.kind == "ball":
        turn = quat_mul(quat_mul(link.quat, normalized(link.start)), quat_conj(link.quat))
    else:
        amount = float(link.start[0]) - link.ref
        if not amount:
            return Pose()
        if link.kind == "slide":
            return Pose(IDENTITY_QUAT, amount * link.axis)
        turn = quat_about(link.axis, amount)
    if abs(turn[0]) == 1.0:
        return Pose()
    return Pose(IDENTITY_QUAT, link.pos) @ Pose(turn) @ Pose(IDENTITY_QUAT, -link.pos)


def _check_ball(body: BodySpec, link: Link, losses: Losses) -> None:
    """Raises WriteError for a ball that starts turned, where a limit or a spring counts from another orientation."""
    if abs(link.start[0]) == 1.0:
        return
    joint = link.joint
    sprung = link.numbers("stiffness").any() and not np.array_equal(_rest(link), link.start)
    if joint.angle_limit is not None or sprung:
        text = f"a ball that starts at {link.start.tolist()}, with a limit or a spring; balls of MJCF start at 1 0 0 0"
        losses.refuse(joint.source, f"joint {joint.name or body.name!r}", text)


def _rest(link: Link) -> np.ndarray:
    """Coordinates at which the spring is at rest."""
    joint = link.joint
    return (JOINT_TYPES[joint.type].neutral if joint.spring_ref is None else np.asarray(joint.spring_ref, float))[link.q]
