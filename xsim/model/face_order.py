"""The order in which MuJoCo visits the triangles of a mesh that meets a signed distance function: by the tree of their bounding boxes.

Each box is halved at the median of the centres of the triangles' circumcircles along its longest side. Of two halves, the one of larger
coordinates is visited first.
"""

from __future__ import annotations

import numpy as np

__all__ = ["visiting_order"]

_SAME = 1e-14
"""Lengths (m) that differ by less are the same."""


def visiting_order(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """The numbers of faces (m, 3) in the order in which they are visited. vertices (n, 3): m."""
    corners = vertices[faces]
    low, high, centre = corners.min(1), corners.max(1), _circumcentres(corners)
    out, stack = [], [np.arange(len(faces))]
    while stack:
        members = stack.pop()
        if len(members) == 1:
            out.append(int(members[0]))
            continue
        sides = high[members].max(0) - low[members].min(0)
        axis = 1 if sides[1] >= sides[0] + _SAME else 0
        axis = 2 if sides[2] >= sides[axis] + _SAME else axis
        order = members[np.argsort(centre[members, axis], kind="stable")]
        place = np.cumsum(np.diff(centre[order, axis], prepend=-np.inf) > _SAME)  # equal where the coordinates are
        order = order[np.lexsort((order, place))]
        half = len(order) // 2
        stack += [order[:half], order[half:]]
    return np.array(out, int)


def _circumcentres(corners: np.ndarray) -> np.ndarray:
    """The centres (m, 3) of the circumcircles of triangles (m, 3, 3); of a triangle without area, its first corner."""
    first, a, b = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(a, b)
    area = (normal**2).sum(1, keepdims=True)
    arm = np.cross((a**2).sum(1, keepdims=True) * b - (b**2).sum(1, keepdims=True) * a, normal)
    return first + np.divide(arm, 2 * area, out=np.zeros_like(arm), where=area > 0)
