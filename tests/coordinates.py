"""Coordinates of the reference engines (Drake for SDFormat and URDF, DART for SKEL) in xsim's, per model.

Every engine's v is a linear function of xsim's, v_xsim = T(q) v_engine, joint by joint; so forces map by T^T, and accelerations by
a_xsim = T a_engine + dT/dt v_engine.
"""

from __future__ import annotations

import numpy as np

from xsim.joints.types import JOINT_TYPES
from xsim.poses import Pose, quat_exp, quat_rpy, rotation_matrix


class Map:
    """The coordinates of one model: made from its spec and the joints of its oracle."""

    def __init__(self, spec, facts: dict, format: str):
        self.names = [b.name for b in spec.bodies]
        self.joints = []  # (kind of coordinates, oracle joint, body, first q, first v, type) of every joint with coordinates
        listed = {j["child"]: j for j in facts["joints"] if j["q"][1] or j["v"][1]}
        at_q = at_v = 0
        for body in spec.bodies:
            kind = JOINT_TYPES[body.joint.type]
            child = body.name
            if body.joint.reversed and child not in listed:
                child = spec.bodies[body.parent].name
            if kind.nv:
                joint = listed.pop(child)
                assert joint["v"][1] == kind.nv, (body.name, joint)
                self.joints.append((_kind(format, joint["type"]), joint, body, at_q, at_v, kind))
            at_q, at_v = at_q + kind.nq, at_v + kind.nv
        assert not listed, f"joints with coordinates that the model has not: {sorted(listed)}"
        self.nq, self.nv = at_q, at_v

    def q(self, theirs) -> np.ndarray:
        out = np.zeros(self.nq)
        for (to, _, _), joint, _, at, _, kind in self.joints:
            numbers = np.asarray(theirs, float)[joint["q"][0] : sum(joint["q"])]
            out[at : at + kind.nq] = to(joint, numbers)
        return out

    def T(self, theirs) -> np.ndarray:
        """v_xsim = T v_engine at the engine's q."""
        out = np.zeros((self.nv, self.nv))
        for (_, turn, _), joint, _, _, at, kind in self.joints:
            numbers = np.asarray(theirs, float)[joint["q"][0] : sum(joint["q"])]
            out[at : at + kind.nv, joint["v"][0] : sum(joint["v"])] = turn(joint, numbers)
        return out

    def rate(self, theirs, v) -> np.ndarray:
        """(dT/dt) v_engine."""
        out = np.zeros(self.nv)
        for (_, _, rate), joint, _, _, at, kind in self.joints:
            q, rates = (np.asarray(x, float)[joint[k][0] : sum(joint[k])] for x, k in ((theirs, "q"), (v, "v")))
            out[at : at + kind.nv] = rate(joint, q, rates)
        return out


def _plain(joint, q):
    return q


def _identity(joint, q):
    return np.eye(joint["v"][1])


def _still(joint, q, v):
    return np.zeros(len(v))


def _kind(format: str, name: str):
    return {"skel": DART}.get(format, DRAKE).get(name, (_plain, _identity, _still))


# ---- Drake ---------------------------------------------------------------------------------------------------------------------


def _floating_T(joint, q):
    R = rotation_matrix(q[:4])
    out = np.zeros((6, 6))
    out[:3, 3:], out[3:, :3] = np.eye(3), R.T
    return out


DRAKE = {
    # (w, x, y, z, position), (angular, linear velocity), world axes. xsim: position first, angular velocity in child axes, whose
    # rate needs no extra term: d(R^T) w = -(R^T w) x (R^T w) = 0.
    "floating": (lambda j, q: np.array([*q[4:], *q[:4]]), _floating_T, _still),
    # roll, pitch, yaw; angular velocity in parent axes.
    "ball": (lambda j, q: quat_rpy(*q), lambda j, q: rotation_matrix(quat_rpy(*q)).T, _still),
}


# ---- DART ----------------------------------------------------------------------------------------------------------------------


def _frames(joint) -> tuple[Pose, Pose]:
    """The joint's frame in the parent and in the child body."""
    parent, child = (Pose(np.array(joint[k][3:]), np.array(joint[k][:3])) for k in ("transform_parent", "transform_child"))
    return parent, child


def _free_q(joint, q):
    """The reference pose of the child is xsim's joint frame: M' = C M C^-1."""
    _, child = _frames(joint)
    moved = child @ Pose(quat_exp(q[:3]), q[3:]) @ child.inverse()
    return np.array([*moved.pos, *moved.quat])


def _free_T(joint, q):
    """v = (w, u): W = R_c w, U = R_c u + p_c x W are the child's velocities relative to the parent, parent-body axes."""
    parent, child = _frames(joint)
    Rc, reference = rotation_matrix(child.quat), rotation_matrix((parent @ child.inverse()).quat)
    turned = rotation_matrix(_free_q(joint, q)[3:])
    x, y, z = child.pos
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    out = np.zeros((6, 6))
    out[:3, :3], out[:3, 3:] = reference.T @ cross @ Rc, reference.T @ Rc
    out[3:, :3] = turned.T @ reference.T @ Rc
    return out


DART = {
    "ball": (lambda j, q: quat_exp(q), _identity, _still),
    "free": (_free_q, _free_T, _still),
}

