"""<joint>: the joints of each body as a chain of URDF's, each with the link that it moves.

With the chain of `xsim.io.writing.chains` a body has the pose X M_1(q_1 - ref_1) ... M_n(q_n - ref_n) in its parent; M_i turns about a
line through p_i in the body, or slides along it. A joint of URDF moves a frame about its own axes, so the link of a hinge has its origin at
p_i: the first joint has the origin X Tr(p_1) R_1(-ref_1) in the parent body, the next Tr(p_2 - p_1) R_2(-ref_2) in the link before, and so
on. The link of the last joint is that of the body.
"""

from __future__ import annotations

import numpy as np

from xsim.io.urdf.joints import plane_axes
from xsim.io.urdf.writer.document import WORLD, Document, ScalarJoint, add_origin
from xsim.io.urdf.writer.effort import JOINTS, largest_effort
from xsim.io.urdf.writer.links import write_link
from xsim.io.writing.chains import Link, chain_of
from xsim.io.writing.elements import XML, add, unless
from xsim.joints.types import JOINT_TYPES
from xsim.poses import IDENTITY_QUAT, Pose, normalized, quat_about
from xsim.spec import BodySpec, JointSpec

__all__ = ["write_bodies"]

FAR = 1e10
"""Stands for infinity, which many readers of URDF do not take."""
UNKNOWN = ("armature", "stiffness", "stiffness_poly", "damping_poly", "spring_yield", "spring_damper", "angle_limit")
"""Fields of a joint that change its motion and that URDF has no word for."""
EITHER = ("damping", "friction")


def write_bodies(document: Document) -> None:
    """The root link, and for each body its joints and its link. Raises WriteError."""
    root = _floating_root(document)
    if root is None:
        write_link(document, WORLD, None, document.spec.world_geoms, np.zeros(3))
    for number, body in enumerate(document.spec.bodies):
        name = document.names.free("link", body.name or f"link_{number}", made=not body.name)
        _check(document, body)
        offset = np.zeros(3) if number == root else _write_joints(document, number, name)
        document.links.append(name)
        document.offsets.append(offset)
        write_link(document, name, body, body.geoms, offset)


def _floating_root(document: Document) -> int | None:
    """The body that is the root link: a free one that is alone below the world, in a model without shapes on the world."""
    roots = [i for i, body in enumerate(document.spec.bodies) if body.parent < 0]
    alone = len(roots) == 1 and not document.spec.world_geoms
    if not alone or [joint.type for joint in document.spec.bodies[roots[0]].joints] != ["free"]:
        return None
    joint = document.spec.bodies[roots[0]].joint
    return None if _acts(document, roots[0], joint) or any(_given(joint, field) for field in EITHER) else roots[0]


def _write_joints(document: Document, number: int, name: str) -> np.ndarray:
    """The joints above a body, with the links between them. name: of the body's link. Gives the origin of its frame in the body."""
    body = document.spec.bodies[number]
    parent, frame = document.link_frame(body.parent)
    if _is_whole(document, number):
        return _write_whole(document, number, parent, frame, name)
    chain = chain_of(body, document.losses)
    pose, offset = frame @ chain.pose, np.zeros(3)
    if not chain.links:
        fixed = next((joint.name for joint in body.joints if joint.type == "fixed"), "")
        _add_joint(document, "fixed", fixed, parent, name, pose)
    for place, link in enumerate(chain.links):
        last = link is chain.links[-1]
        child = name if last else document.names.free("link", f"{name}_{place + 1}", made=True)
        step, offset = _step(link, offset)
        e = _write_scalar(document, number, link, (parent, child), pose @ step)
        document.joints[number, link.first] = ScalarJoint(e, link.joint.ref)
        if not last:
            add(document.root, "link", name=child)
        parent, pose = child, Pose()
    return offset


def _is_whole(document: Document, number: int) -> bool:
    """Whether the joint of a body is one of URDF's with several dofs, floating or planar.

    The axes of URDF's planar joint in the plane follow from its normal; one with others, or with limits or a drive, is a chain of slides
    and a hinge.
    """
    joints = document.spec.bodies[number].joints
    if len(joints) != 1 or joints[0].actuator == "locked" or not Pose(normalized(joints[0].quat)).is_identity():
        return False
    (joint,) = joints
    if joint.type == "free":
        return True
    axes = joint.params.get("axes")
    plane = joint.type == "planar" and axes is not None and np.array_equal(plane_axes(axes[2]), axes)
    return plane and not _acts(document, number, joint)


def _write_whole(document: Document, number: int, parent: str, frame: Pose, name: str) -> np.ndarray:
    """Write a floating or planar joint. Gives the origin of its frame in the body."""
    body = document.spec.bodies[number]
    joint, offset = body.joint, np.asarray(body.joint.pos, float)
    pose = frame @ Pose(normalized(body.quat), np.asarray(body.pos, float))
    pose = pose @ Pose(IDENTITY_QUAT, offset) if joint.anchored else pose
    if joint.type == "free":
        if _acts(document, number, joint):
            text = "limits or a drive of a free joint; URDF has them for hinges and slides"
            document.losses.lose(joint.source, _element(body, joint), text, "they are left out")
        start = JOINT_TYPES["free"].neutral if joint.q0 is None else np.asarray(joint.q0, float)
        pose = pose @ Pose(normalized(start[3:]), start[:3])
    e = _add_joint(document, "floating" if joint.type == "free" else "planar", joint.name, parent, name, pose)
    if joint.type == "planar":
        add(e, "axis", xyz=joint.params["axes"][2])
    _write_dynamics(document, e, body, joint, slice(0, JOINT_TYPES[joint.type].nv))
    return offset


def _acts(document: Document, number: int, joint: JointSpec) -> bool:
    """Whether a joint has what is a ``<limit>`` in URDF: bounds of position or velocity, or a drive."""
    ranges = (joint.position_range, joint.velocity_range)
    bounded = any(x is not None and np.isfinite(x).any() for x in ranges)
    pushed = any(a.transmission in JOINTS and a.target == (number, 0) for a in document.spec.actuators)
    return bounded or pushed or joint.actuator != "passive"


def _given(joint: JointSpec, field: str) -> bool:
    """Whether a joint has these numbers, and not all are 0."""
    value = getattr(joint, field)
    return value is not None and bool(np.nan_to_num(value).any())


def _step(link: Link, offset: np.ndarray) -> tuple[Pose, np.ndarray]:
    """The origin of a joint in the link before it, and the origin of its link in the body. offset: that of the link before it."""
    if link.kind == "slide":
        return Pose(IDENTITY_QUAT, -link.ref * link.axis), offset
    turn = quat_about(link.axis, -link.ref) if link.ref else IDENTITY_QUAT
    return Pose(turn, link.pos - offset), link.pos


def _add_joint(document: Document, kind: str, name: str, parent: str, child: str, origin: Pose, *, made: bool = False) -> XML:
    """A joint without a name is called after its child. made: whether the model does not have the name."""
    name = document.names.free("joint", name or f"{child}_joint", made=made or not name)
    e = add(document.root, "joint", name=name, type=kind)
    add_origin(e, origin)
    add(e, "parent", link=parent)
    add(e, "child", link=child)
    return e


def _write_scalar(document: Document, number: int, link: Link, ends: tuple[str, str], origin: Pose) -> XML:
    """A hinge or slide. ends: names of the links. Raises WriteError for a ball."""
    body, joint = document.spec.bodies[number], link.joint
    if link.kind not in ("hinge", "slide"):
        what = "a free joint in a frame that is turned in the body" if joint.type == "free" else f"a {link.kind} joint"
        document.losses.refuse(joint.source, _element(body, joint), f"{what}; URDF has hinges, slides and free joints")
    bounds = np.array([-np.inf, np.inf]) if joint.position_range is None else np.asarray(joint.position_range, float)[link.v][0]
    kind = "prismatic" if link.kind == "slide" else "revolute" if np.isfinite(bounds).any() else "continuous"
    e = _add_joint(document, kind, link.name, *ends, origin, made=link.name != joint.name)
    add(e, "axis", xyz=link.axis)
    _write_limit(document, e, number, link, None if kind == "continuous" else bounds)
    _write_dynamics(document, e, body, joint, link.v)
    return e


def _write_limit(document: Document, e: XML, number: int, link: Link, bounds: np.ndarray | None) -> None:
    """<limit>: the range, the largest effort (0: nothing drives the joint) and velocity. Where there is one, readers want both."""
    body, joint = document.spec.bodies[number], link.joint
    velocity = np.inf
    if joint.velocity_range is not None:
        lower, velocity = np.asarray(joint.velocity_range, float)[link.v][0]
        if lower != -velocity:
            text = f"velocities from {lower:g} to {velocity:g}; URDF has one largest velocity"
            document.losses.lose(joint.source, _element(body, joint), text, "the larger one is written")
            velocity = max(-lower, velocity)
    effort = largest_effort(document.spec, number, link, document.losses)
    if bounds is None and np.isinf([effort, velocity]).all():
        return
    ends = {} if bounds is None else dict(zip(("lower", "upper"), np.clip(bounds, -FAR, FAR), strict=True))
    add(e, "limit", **ends, effort=min(effort, FAR), velocity=min(velocity, FAR))


def _write_dynamics(document: Document, e: XML, body: BodySpec, joint: JointSpec, dofs: slice) -> None:
    """<dynamics>: damping and dry friction, one number each for all dofs of a joint."""
    numbers = {}
    for field in EITHER:
        values = getattr(joint, field)
        values = np.zeros(1) if values is None else np.nan_to_num(np.asarray(values, float)[dofs])
        if np.ptp(values) > 0:
            text = f"{field} {values.tolist()} along axes of one joint; URDF has one number for all"
            document.losses.lose(joint.source, _element(body, joint), text, "their mean is written")
        numbers[field] = unless(0.0, float(values.mean() if np.ptp(values) > 0 else values[0]))
    if any(value is not None for value in numbers.values()):
        add(e, "dynamics", **numbers)


def _check(document: Document, body: BodySpec) -> None:
    """Raises WriteError for what URDF does not have of a body and its joints."""
    for joint in body.joints:
        for field in UNKNOWN:
            value = getattr(joint, field)
            if value is not None and np.any(value):
                text = f"{field} {np.asarray(value).tolist()}; URDF has damping and dry friction"
                document.losses.lose(joint.source, _element(body, joint), text, "it is left out")
        slides = [part.kind for part in JOINT_TYPES[joint.type].chain].count("slide")
        if joint.damper_axes != "joint" and joint.damping is not None and np.ptp(joint.damping[:slides]) > 0:
            text = f"damping {np.asarray(joint.damping[:slides]).tolist()} along axes of the {joint.damper_axes}"
            text += "; URDF has it along the axes of the joint"
            document.losses.lose(joint.source, _element(body, joint), text, "it is written along these")


def _element(body: BodySpec, joint: JointSpec) -> str:
    """What messages call a joint."""
    return f"joint {joint.name or body.name!r}"
