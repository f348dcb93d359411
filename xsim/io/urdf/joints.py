"""Joints: axes, limits, damping, mimic constraints."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from xsim.io.errors import Notes, allowed
from xsim.io.reader import Element
from xsim.io.urdf.tree import TYPES, Joint, chain
from xsim.io.urdf.values import read_origin, required_floats
from xsim.joints.types import JOINT_TYPES
from xsim.poses import Pose, quat_from_z, rotation_matrix
from xsim.spec import ConstraintSpec, JointSpec

__all__ = ["plane_axes", "read_joint", "read_mimics"]

def read_joint(joint: Joint, notes: Notes) -> tuple[Pose, JointSpec]:
    """Pose of the joint in the parent body and the JointSpec."""
    element, kind, nv = joint.element, joint.kind, joint.nv
    pose, q0, params = read_origin(element, notes), None, {}
    if kind.type == "free":
        pose, q0 = Pose(), np.concatenate([pose.pos, pose.quat])
    element.raw("dont_collapse")  # for converters that lump fixed joints; xsim keeps them all
    for child in element.all("safety_controller", "calibration", *kind.unused):  # no effect on the mechanics of this joint
        child.skip()
    if "axis" not in kind.unused:
        axis = _axis(element)
        params = {"axes": plane_axes(axis) if kind.type == "planar" else axis[None]}
    dynamics = element.child("dynamics") if nv else None
    damping, friction = None, np.full(nv, np.nan) if nv else None
    if dynamics is not None:  # for several coordinates alike, as MuJoCo reads it
        damping = np.full(nv, dynamics.number("damping", 0.0, nonnegative=True))
        if dynamics.has("friction"):
            friction = np.full(nv, dynamics.number("friction", nonnegative=True))
    ranges = _ranges(joint, notes) if nv else {}
    driven = nv == 1 and ("force_range" not in ranges or ranges["force_range"][0, 1] > 0)
    return pose, JointSpec(
        type=kind.type, name=joint.name, params=params, damping=damping, friction=friction, q0=q0,
        actuator="force" if driven else "passive", source=element.source, **ranges,
    )  # fmt: skip


def _axis(element: Element) -> np.ndarray:
    """Unit vector of ``<axis>``, in the joint frame."""
    axis = element.child("axis")
    if axis is None:
        return np.array([1.0, 0.0, 0.0])
    xyz = required_floats(axis, "xyz", 3)
    norm = math.hypot(*xyz)
    if not 1e-9 < norm < 1e9:
        raise axis.error(f"the axis has length {norm:.6g}; allowed: directions, best of length 1", "xyz")
    return xyz / norm


def plane_axes(normal: np.ndarray) -> np.ndarray:
    """x, y and normal of a plane's frame: the joint frame after the smallest rotation that turns its z to the normal."""
    R = rotation_matrix(quat_from_z(normal))
    return np.array([R[:, 0], R[:, 1], normal])


def _ranges(joint: Joint, notes: Notes) -> dict[str, Any]:
    """Limits of position, velocity and force of a joint that moves, as far as they are given."""
    limit = joint.element.child("limit")
    if limit is None:
        if joint.kind.ranged:
            raise joint.element.error(f"<limit> is missing; a {joint.type} joint needs one (continuous: the type without position limits)")
        return {}
    lower, upper = (limit.number(side, 0.0, finite=False) for side in ("lower", "upper"))
    effort, velocity = (_bound(limit, name, notes) for name in ("effort", "velocity"))
    if joint.nv > 1:
        notes.unsupported(limit.line, f"{limit} in {joint.element}: not used, a {joint.type} joint has {joint.nv} coordinates", limit.file)
        return {}
    ranges = {"velocity_range": np.array([[0.0 - velocity, velocity]]), "force_range": np.array([[0.0 - effort, effort]])}
    if joint.kind.ranged:
        error = limit.error(f"found {lower:g} with upper {upper:g}; allowed: at most the upper limit", "lower")
        if lower == np.inf or upper == -np.inf:
            raise error
        if lower > upper:
            notes.assumed(error, "no limits of position, as in Bullet and MuJoCo")
            return ranges
        if not limit.has("lower") and not limit.has("upper"):
            notes.suspicious(limit.line, f"{limit} in {joint.element}: lower and upper are missing, both are 0 then: it cannot move")
        ranges["position_range"] = np.array([[lower, upper]])
    return ranges


def _bound(limit: Element, name: str, notes: Notes) -> float:
    """The largest effort or velocity of a joint."""
    if limit.has(name):
        return limit.number(name, nonnegative=True, finite=False)
    notes.assumed(limit.error(f"attribute {name!r} is missing"), "no bound")
    return np.inf


def read_mimics(joints: dict[str, Joint], number: dict[str, int], notes: Notes) -> list[ConstraintSpec]:
    """The constraints follower = multiplier leader + offset, in document order. number: of the bodies by link."""
    constraints, leaders = [], {}
    for joint in joints.values():
        mimic = joint.element.child("mimic")
        if mimic is None:
            continue
        name = mimic.string("joint")
        multiplier, offset = mimic.number("multiplier", 1.0), mimic.number("offset", 0.0)
        if name not in joints:
            error = mimic.error(f"no joint is named {name!r}; {allowed(name, list(joints)[:20])}", "joint")
            notes.assumed(error, "the joint follows nothing")
            continue
        if joint.nv == 0:
            notes.suspicious(mimic.line, f"{mimic} in {joint.element}: a fixed joint follows nothing")
            continue
        for end, role in ((joint, "follow another"), (joints[name], "lead")):
            if end.nv != 1:
                movers = ", ".join(t for t, k in TYPES.items() if JOINT_TYPES[k.type].nv == 1)
                raise mimic.error(f"joint {end.name!r} is {end.type} and cannot {role}; allowed: {movers}", "joint")
        leaders[joint.name] = name
        ends = tuple((number[end.child], 0) for end in (joint, joints[name]))
        follow = ConstraintSpec("mimic", joint.name, coordinates=ends, multiplier=multiplier, offset=offset, source=mimic.source)
        constraints.append(follow)
    _refuse_circles(leaders, joints)
    return constraints


def _refuse_circles(leaders: dict[str, str], joints: dict[str, Joint]) -> None:
    done: set[str] = set()
    for start in leaders:
        trail = []
        name = start
        while name in leaders and name not in done:
            done.add(name)
            trail.append(name)
            name = leaders[name]
        if name in trail:
            mimic = joints[trail[-1]].element.need("mimic")
            raise mimic.error(f"the joint follows itself ({chain(trail[trail.index(name) :])})", "joint")
