"""Values of SKEL files that many elements share."""

from __future__ import annotations

import numpy as np

from xsim.io.reader import Element
from xsim.poses import Pose, quat_xyz

__all__ = ["either", "name_of", "transformation"]


def transformation(element: Element) -> Pose:
    """The pose in an element's <transformation>: position (m), then angles a b c (rad) of Rx(a) Ry(b) Rz(c); identity without one."""
    child = element.child("transformation")
    if child is None:
        return Pose()
    numbers = child.floats(None, 6)
    return Pose(quat_xyz(*numbers[3:]), numbers[:3])


def either(element: Element, *tags: str) -> Element | None:
    """The only element inside with one of these tags, which are spellings of one thing; two with equal numbers count as one."""
    children = [c for c in map(element.child, tags) if c is not None]
    for other in children[1:]:
        if not np.array_equal(other.floats(None), children[0].floats(None)):
            raise other.error(f"disagrees with <{children[0].tag}> in line {children[0].line}; allowed: one of them, or both equal")
    return children[0] if children else None


def name_of(element: Element, default: str) -> str:
    """The name attribute without the white space around it (references are trimmed too), the default where there is none."""
    return (element.raw("name") or "").strip() or default
