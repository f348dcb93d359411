"""Values that several elements of a URDF document share."""

from __future__ import annotations

import math

import numpy as np

from xsim.io.reader import Element
from xsim.poses import Pose, quat_rpy

__all__ = ["read_origin", "required_floats"]

def required_floats(element: Element, name: str, count: int) -> np.ndarray:
    """The numbers of an attribute. Raises ParseError where it is missing."""
    value = element.floats(name, count)
    if value is None:
        raise element.error(f"attribute {name!r} is missing")
    return value


def read_origin(element: Element) -> Pose:
    """The pose that ``<origin>`` gives, identity without it."""
    origin = element.child("origin")
    if origin is None:
        return Pose()
    pos = origin.floats("xyz", 3, np.zeros(3))
    if not origin.has("quat_xyzw"):
        rpy = origin.floats("rpy", 3, np.zeros(3))
        return Pose(quat_rpy(*rpy) if rpy.any() else Pose().quat, pos)
    if origin.has("rpy"):
        raise origin.error("rpy and quat_xyzw are both given; allowed: one of them", "quat_xyzw")
    x, y, z, w = origin.floats("quat_xyzw", 4)
    norm = math.hypot(x, y, z, w)
    if not 1e-9 < norm < 1e9:
        raise origin.error(f"the quaternion has norm {norm:.6g}; allowed: near 1", "quat_xyzw")
    return Pose(np.array([w, x, y, z]) / norm, pos)
