"""Values that several elements of a URDF document share."""

from __future__ import annotations

import math

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.poses import Pose, quat_rpy

__all__ = ["read_origin", "required_floats", "vector"]

def required_floats(element: Element, name: str, count: int) -> np.ndarray:
    """The numbers of an attribute. Raises ParseError where it is missing."""
    value = element.floats(name, count)
    if value is None:
        raise element.error(f"attribute {name!r} is missing")
    return value


def vector(element: Element, name: str, default: np.ndarray, notes: Notes) -> np.ndarray:
    """The three numbers of an attribute; of more the first three, with a note."""
    value = element.floats(name, default=default)
    if len(value) > 3:
        text = f"found {len(value)} numbers ({(element.raw(name) or '').strip()[:200]!r}); allowed: 3"
        notes.assumed(element.error(text, name), "the first three")
        return value[:3]
    return element.floats(name, 3, default)


def read_origin(element: Element, notes: Notes) -> Pose:
    """The pose that ``<origin>`` gives, identity without it."""
    origin = element.child("origin")
    if origin is None:
        return Pose()
    pos = vector(origin, "xyz", np.zeros(3), notes)
    if not origin.has("quat_xyzw"):
        rpy = vector(origin, "rpy", np.zeros(3), notes)
        return Pose(quat_rpy(*rpy) if rpy.any() else Pose().quat, pos)
    if origin.has("rpy"):
        raise origin.error("rpy and quat_xyzw are both given; allowed: one of them", "quat_xyzw")
    x, y, z, w = origin.floats("quat_xyzw", 4)
    norm = math.hypot(x, y, z, w)
    if not 1e-9 < norm < 1e9:
        raise origin.error(f"the quaternion has norm {norm:.6g}; allowed: near 1", "quat_xyzw")
    return Pose(np.array([w, x, y, z]) / norm, pos)
