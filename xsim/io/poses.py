"""Rotations and poses of files, in numpy: quaternions (w, x, y, z), poses (quat, pos) from child to parent coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = [
    "IDENTITY_QUAT", "Pose", "quat_about", "quat_conj", "quat_exp", "quat_log", "quat_mul", "quat_rpy", "quat_xyz", "rotate",
    "rotation_matrix",
]  # fmt: skip

IDENTITY_QUAT = np.array([1.0, 0.0, 0.0, 0.0])


def quat_mul(a, b) -> np.ndarray:
    """Product of two quaternions."""
    w, x, y, z = a
    s, i, j, k = b
    return np.array([
        w * s - x * i - y * j - z * k, w * i + x * s + y * k - z * j, w * j - x * k + y * s + z * i, w * k + x * j - y * i + z * s,
    ])  # fmt: skip


def quat_conj(q) -> np.ndarray:
    return np.asarray(q, float) * [1.0, -1.0, -1.0, -1.0]


def quat_about(axis, angle: float) -> np.ndarray:
    """Rotation by ``angle`` (rad) about a unit axis."""
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis, float))])


def quat_exp(r) -> np.ndarray:
    """Rotation by the rotation vector r (rad)."""
    r = np.asarray(r, float)
    angle = np.linalg.norm(r)
    return np.array([np.cos(angle / 2), *(0.5 * np.sinc(angle / (2 * np.pi)) * r)])


def quat_log(q) -> np.ndarray:
    """Rotation vector (angle at most pi) of a unit quaternion."""
    q = np.asarray(q, float) * (1.0 if q[0] >= 0 else -1.0)
    s = np.linalg.norm(q[1:])
    return q[1:] * (2 * np.arctan2(s, q[0]) / s if s > 0 else 2.0)


def quat_rpy(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Rz(yaw) Ry(pitch) Rx(roll): fixed axes x, y, z (SDFormat, URDF, x_xy)."""
    return quat_mul(quat_about((0, 0, 1), yaw), quat_mul(quat_about((0, 1, 0), pitch), quat_about((1, 0, 0), roll)))


def quat_xyz(a: float, b: float, c: float) -> np.ndarray:
    """Rx(a) Ry(b) Rz(c): turning axes x, y, z (SKEL)."""
    return quat_mul(quat_about((1, 0, 0), a), quat_mul(quat_about((0, 1, 0), b), quat_about((0, 0, 1), c)))


def rotation_matrix(q) -> np.ndarray:
    w, x, y, z = np.asarray(q, float) / np.linalg.norm(q)
    return np.array([
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ])  # fmt: skip


def rotate(q, x) -> np.ndarray:
    return rotation_matrix(q) @ np.asarray(x, float)


class Pose(NamedTuple):
    """Child frame in parent frame: x_parent = pos + rotate(quat, x_child). ``a @ b`` composes."""

    quat: np.ndarray = IDENTITY_QUAT
    pos: np.ndarray = np.zeros(3)

    def __matmul__(self, other: Pose) -> Pose:
        return Pose(quat_mul(self.quat, other.quat), self.pos + rotate(self.quat, other.pos))

    def inverse(self) -> Pose:
        conj = quat_conj(self.quat)
        return Pose(conj, -rotate(conj, self.pos))

    def is_identity(self) -> bool:
        return bool(abs(self.quat[0]) == 1.0 and not np.any(self.quat[1:]) and not np.any(self.pos))
