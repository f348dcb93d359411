"""Poses of elements: the five ways to write an orientation, and two end points."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.nodes import scope
from xsim.io.reader import Element
from xsim.poses import IDENTITY_QUAT, Pose, quat_about, quat_from_matrix, quat_from_z, quat_mul

__all__ = ["read_euler", "read_fromto", "read_pose", "read_quat"]

SMALL = 1e-14
AXES = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}


def read_quat(e: Element) -> np.ndarray | None:
    """The orientation of an element, None where neither it nor its default class has one. Raises ParseError for two of them."""
    explicit = [name for name in _READ if e.is_explicit(name)]
    inherited = [name for name in _READ if e.has(name) and name not in explicit]
    # A quat over another kind in a default class is read differently by different releases.
    names = explicit if explicit and explicit != ["quat"] else explicit + inherited
    if len(names) > 1:
        raise e.error(f"found {' and '.join(names)}; allowed: one orientation, of {', '.join(_READ)}", names[-1])
    return _READ[names[0]](e) if names else None


def read_pose(e: Element) -> Pose:
    """pos and orientation of an element."""
    quat = read_quat(e)
    return Pose(IDENTITY_QUAT.copy() if quat is None else quat, e.floats("pos", 3, (0.0, 0.0, 0.0)))


def read_fromto(e: Element) -> tuple[Pose, float] | None:
    """The pose of two end points: in their middle, with z from the second to the first, and half their distance (m).

    Raises ParseError where the element has a position besides; an orientation besides is ignored.
    """
    ends = e.floats("fromto", 6)
    if ends is None:
        return None
    for name in _READ:
        e.raw(name)
    if e.floats("pos", 3, (0.0, 0.0, 0.0)).any():
        raise e.error("found pos and fromto; allowed: one of them", "fromto")
    first, second = ends[:3], ends[3:]
    length = float(np.linalg.norm(first - second))
    if length < SMALL:
        raise e.error("the two points are the same; allowed: two different points", "fromto")
    return Pose(quat_from_z(first - second), (first + second) / 2), length / 2


def _direction(e: Element, name: str, v) -> np.ndarray:
    size = np.linalg.norm(v)
    if size < SMALL:
        raise e.error(f"found a direction of no length ({e.raw(name)!r})", name)
    return v / size


def _quat(e: Element) -> np.ndarray:
    return _direction(e, "quat", e.floats("quat", 4))


def _axisangle(e: Element) -> np.ndarray:
    *axis, angle = e.floats("axisangle", 4)
    return quat_about(_direction(e, "axisangle", np.array(axis)), scope(e).angles(angle))


def read_euler(e: Element, factor: float = 1.0) -> np.ndarray:
    """The orientation of ``euler``, each of its angles times the factor."""
    quat = IDENTITY_QUAT
    for letter, angle in zip(scope(e).eulerseq, e.floats("euler", 3), strict=True):
        turn = quat_about(AXES[letter.lower()], scope(e).angles(factor * angle))
        quat = quat_mul(quat, turn) if letter.islower() else quat_mul(turn, quat)
    return quat


def _xyaxes(e: Element) -> np.ndarray:
    axes = e.floats("xyaxes", 6)
    x = _direction(e, "xyaxes", axes[:3])
    y = _direction(e, "xyaxes", axes[3:] - x * (x @ axes[3:]))
    return quat_from_matrix(np.stack([x, y, np.cross(x, y)], axis=1))


def _zaxis(e: Element) -> np.ndarray:
    return quat_from_z(_direction(e, "zaxis", e.floats("zaxis", 3)))


_READ = {"quat": _quat, "axisangle": _axisangle, "euler": read_euler, "xyaxes": _xyaxes, "zaxis": _zaxis}
