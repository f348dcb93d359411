"""Quaternions (w, x, y, z) and poses in numpy.

Functions of quaternions and vectors work on the last axis and broadcast over the axes before it. Quaternions and poses map child
coordinates to parent coordinates.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = [
    "IDENTITY_QUAT", "Pose", "normalized", "quat_about", "quat_conj", "quat_exp", "quat_from_matrix", "quat_from_z", "quat_log",
    "quat_mul", "quat_rpy", "quat_xyz", "rotate", "rotation_matrix",
]  # fmt: skip

IDENTITY_QUAT = np.array([1.0, 0.0, 0.0, 0.0])
_SMALL = 1e-14  # sine of an angle that counts as zero


def normalized(x) -> np.ndarray:
    """Vectors or quaternions (..., n) of length 1; zeros stay zeros."""
    x = np.asarray(x, float)
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), np.finfo(float).tiny)


def _components(x) -> list:
    """The entries of the last axis of an array (..., n), each (...)."""
    x = np.asarray(x, float)
    return [x[..., k] for k in range(x.shape[-1])]


def _stack(*components) -> np.ndarray:
    """Arrays (...) as the last axis of one; np.stack, but several times as fast for numbers."""
    return np.stack(components, axis=-1) if np.ndim(components[0]) else np.array(components)


def quat_mul(a, b) -> np.ndarray:
    """Product a b of quaternions (..., 4): the rotation b, then a."""
    w, x, y, z = _components(a)
    s, i, j, k = _components(b)
    return _stack(
        w * s - x * i - y * j - z * k, w * i + x * s + y * k - z * j, w * j - x * k + y * s + z * i, w * k + x * j - y * i + z * s
    )


def quat_conj(q) -> np.ndarray:
    """Conjugate of quaternions (..., 4): of unit quaternions the inverse."""
    return np.asarray(q, float) * [1.0, -1.0, -1.0, -1.0]


def quat_about(axis, angle: float) -> np.ndarray:
    """Rotation by ``angle`` (rad) about a unit axis (3,)."""
    return np.array([np.cos(angle / 2), *(np.sin(angle / 2) * np.asarray(axis, float))])


def quat_exp(r) -> np.ndarray:
    """Rotation by a rotation vector (3,), rad."""
    r = np.asarray(r, float)
    angle = np.linalg.norm(r)
    return np.array([np.cos(angle / 2), *(0.5 * np.sinc(angle / (2 * np.pi)) * r)])


def quat_log(q) -> np.ndarray:
    """Rotation vector (3,) of a unit quaternion (4,); its angle is at most pi."""
    q = np.asarray(q, float) * (1.0 if q[0] >= 0 else -1.0)
    s = np.linalg.norm(q[1:])
    return q[1:] * (2 * np.arctan2(s, q[0]) / s if s > 0 else 2.0)


def quat_rpy(roll: float, pitch: float, yaw: float) -> np.ndarray:
    """Rz(yaw) Ry(pitch) Rx(roll), rad: fixed axes x, y, z (SDFormat, URDF, x_xy)."""
    return quat_mul(quat_about((0, 0, 1), yaw), quat_mul(quat_about((0, 1, 0), pitch), quat_about((1, 0, 0), roll)))


def quat_xyz(a: float, b: float, c: float) -> np.ndarray:
    """Rx(a) Ry(b) Rz(c), rad: moving axes x, y, z (SKEL)."""
    return quat_mul(quat_about((1, 0, 0), a), quat_mul(quat_about((0, 1, 0), b), quat_about((0, 0, 1), c)))


def quat_from_z(direction) -> np.ndarray:
    """The smallest rotation that takes the z axis to a direction (3,) of any length; half a turn about x for the direction -z."""
    x, y, z = direction
    sine = np.hypot(x, y)
    if sine <= _SMALL * abs(z):
        return IDENTITY_QUAT.copy() if z > 0 else np.array([0.0, 1.0, 0.0, 0.0])
    return quat_about((-y / sine, x / sine, 0.0), float(np.arctan2(sine, z)))


def quat_from_matrix(R: np.ndarray) -> np.ndarray:
    """The quaternion (4,) of a rotation matrix (3, 3).

    Of its two signs, the one with a positive first number where the trace is positive, else the one with a positive number for the axis
    that the rotation changes least.
    """
    xx, yy, zz = R[0, 0], R[1, 1], R[2, 2]
    wx, wy, wz = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    xy, xz, yz = R[1, 0] + R[0, 1], R[0, 2] + R[2, 0], R[2, 1] + R[1, 2]
    # Each candidate is the quaternion times four times one of its numbers.
    candidates = (
        [1 + xx + yy + zz, wx, wy, wz],
        [wx, 1 + xx - yy - zz, xy, xz],
        [wy, xy, 1 - xx + yy - zz, yz],
        [wz, xz, yz, 1 - xx - yy + zz],
    )
    quat = np.array(candidates[0 if xx + yy + zz > 0 else 1 + int(np.argmax([xx, yy, zz]))])
    return quat / np.linalg.norm(quat)


def rotation_matrix(q) -> np.ndarray:
    """Rotation matrices (..., 3, 3) of quaternions (..., 4) of any length but zero."""
    w, x, y, z = _components(normalized(q))
    entries = _stack(
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    )  # fmt: skip
    return entries.reshape(*entries.shape[:-1], 3, 3)


def rotate(q, x) -> np.ndarray:
    """Vectors x (..., 3) of the child frame in parent coordinates."""
    return (rotation_matrix(q) @ np.asarray(x, float)[..., None])[..., 0]


class Pose(NamedTuple):
    """Child frame in parent frame: x_parent = pos + rotate(quat, x_child). ``a @ b`` composes.

    quat: (..., 4), of length 1. pos: (..., 3), m.
    """

    quat: np.ndarray = IDENTITY_QUAT
    pos: np.ndarray = np.zeros(3)

    def __matmul__(self, other: Pose) -> Pose:
        return Pose(quat_mul(self.quat, other.quat), self.pos + rotate(self.quat, other.pos))

    def inverse(self) -> Pose:
        """The parent frame in the child frame."""
        conj = quat_conj(self.quat)
        return Pose(conj, -rotate(conj, self.pos))

    def is_identity(self) -> bool:
        """Whether this one pose (no batch) changes no coordinates."""
        return bool(abs(self.quat[0]) == 1.0 and not np.any(self.quat[1:]) and not np.any(self.pos))
