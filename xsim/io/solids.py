"""Volumes and inertias of uniform solids, in numpy, for files whose inertia comes from shapes. Sizes as in `xsim.spec`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.poses import Pose, rotation_matrix
from xsim.spec import InertialSpec

__all__ = ["SOLIDS", "Solid", "combine", "shift", "tensor", "turned"]


class Solid(NamedTuple):
    """volume (m^3); com (3,): centre of mass in the shape's frame; moments (3,): about it per unit mass (m^2), along its axes."""

    volume: float
    com: np.ndarray
    moments: np.ndarray


def _box(s) -> Solid:
    x, y, z = np.square(s) / 3
    return Solid(8 * s[0] * s[1] * s[2], np.zeros(3), np.array([y + z, x + z, x + y]))


def _ellipsoid(s) -> Solid:
    x, y, z = np.square(s) / 5
    return Solid(4 / 3 * np.pi * s[0] * s[1] * s[2], np.zeros(3), np.array([y + z, x + z, x + y]))


def _cylinder(s) -> Solid:
    r, half = s
    side = r * r / 4 + half * half / 3
    return Solid(2 * np.pi * r * r * half, np.zeros(3), np.array([side, side, r * r / 2]))


def _capsule(s) -> Solid:
    r, half = s
    tube, ball = 2 * np.pi * r * r * half, 4 / 3 * np.pi * r**3
    t, b = tube / (tube + ball), ball / (tube + ball)
    side = t * (r * r / 4 + half * half / 3) + b * (0.4 * r * r + half * half + 0.75 * r * half)
    return Solid(tube + ball, np.zeros(3), np.array([side, side, t * r * r / 2 + b * 0.4 * r * r]))


def _cone(s) -> Solid:
    r, half = s
    side = 3 / 80 * (4 * r * r + 4 * half * half)
    return Solid(2 / 3 * np.pi * r * r * half, np.array([0.0, 0.0, -half / 2]), np.array([side, side, 0.3 * r * r]))


SOLIDS = {
    "box": _box,
    "sphere": lambda s: _ellipsoid(np.repeat(s, 3)),
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "capsule": _capsule,
    "cone": _cone,
}


def tensor(inertia) -> np.ndarray:
    """The matrix (3, 3) of six numbers xx yy zz xy xz yz."""
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def _six(matrix) -> np.ndarray:
    return np.array([matrix[0, 0], matrix[1, 1], matrix[2, 2], matrix[0, 1], matrix[0, 2], matrix[1, 2]])


def shift(mass: float, d) -> np.ndarray:
    """What moving the reference point by d from the centre of mass adds to an inertia matrix (parallel axes)."""
    d = np.asarray(d, float)
    return mass * (d @ d * np.eye(3) - np.outer(d, d))


def combine(parts) -> InertialSpec:
    """Mass properties of rigidly joined solids: parts are (mass, Pose of the shape, Solid); zero mass gives zeros."""
    parts = list(parts)
    mass = sum(m for m, _, _ in parts)
    centres = [pose.pos + rotation_matrix(pose.quat) @ solid.com for _, pose, solid in parts]
    com = sum((m * c for (m, _, _), c in zip(parts, centres, strict=True)), np.zeros(3)) / mass if mass else np.zeros(3)
    total = np.zeros((3, 3))
    for (m, pose, solid), centre in zip(parts, centres, strict=True):
        R = rotation_matrix(pose.quat)
        total += R @ np.diag(m * solid.moments) @ R.T + shift(m, centre - com)
    return InertialSpec(float(mass), com, _six(total))


def turned(inertia, pose: Pose) -> np.ndarray:
    """Six numbers of an inertia given along the axes of ``pose``, along the parent's axes."""
    R = rotation_matrix(pose.quat)
    return _six(R @ tensor(inertia) @ R.T)
