"""The tree of boxes by which MuJoCo finds the triangles of a mesh or of a flex that come near a signed distance function, and their order
in it.

Each box is halved along its longest side: at the median of the centres of the circumcircles of a mesh's triangles, or of the boxes around
the elements of a flex. Of two halves, the one of larger coordinates is visited first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

__all__ = ["BoxTree", "box_tree", "element_order"]

_SAME = 1e-14
"""Lengths (m) that differ by less are the same."""


class BoxTree(NamedTuple):
    """order (m,): the numbers of the faces in the order in which they are visited. boxes (nodes, 6): centres and half extents, m. paths (m,
    depth): of each face in this order, the boxes that contain it; the first is repeated at the end."""

    order: np.ndarray
    boxes: np.ndarray
    paths: np.ndarray


def box_tree(vertices: np.ndarray, faces: np.ndarray) -> BoxTree:
    """The tree of a mesh. vertices (n, 3): m. faces (m, 3)."""
    corners = vertices[faces]
    return _halved(corners.min(1), corners.max(1), _circumcentres(corners))


def element_order(points: np.ndarray, elements: np.ndarray) -> np.ndarray:
    """The elements (m,) of a flex in the order in which they are visited. points (n, 3): in the reference pose, world frame, m. elements
    (m, dim + 1)."""
    corners = points[elements]
    low, high = corners.min(1), corners.max(1)
    return _halved(low, high, (low + high) / 2).order


def _halved(low: np.ndarray, high: np.ndarray, centre: np.ndarray) -> BoxTree:
    """The tree of items with the boxes from ``low`` to ``high`` (m, 3), halved by ``centre`` (m, 3)."""
    order, boxes, paths = [], [], []
    stack: list[tuple[np.ndarray, tuple[int, ...]]] = [(np.arange(len(low)), ())]
    while stack:
        members, path = stack.pop()
        least, most = low[members].min(0), high[members].max(0)
        path = (*path, len(boxes))
        boxes.append([*((least + most) / 2), *((most - least) / 2)])
        if len(members) == 1:
            order.append(int(members[0]))
            paths.append(path)
            continue
        sides = most - least
        axis = 1 if sides[1] >= sides[0] + _SAME else 0
        axis = 2 if sides[2] >= sides[axis] + _SAME else axis
        along = members[np.argsort(centre[members, axis], kind="stable")]
        place = np.cumsum(np.diff(centre[along, axis], prepend=-np.inf) > _SAME)  # equal where the coordinates are
        along = along[np.lexsort((along, place))]
        half = len(along) // 2
        stack += [(along[:half], path), (along[half:], path)]
    depth = max(map(len, paths))
    return BoxTree(np.array(order, int), np.array(boxes), np.array([[*path, *[0] * (depth - len(path))] for path in paths]))


def _circumcentres(corners: np.ndarray) -> np.ndarray:
    """The centres (m, 3) of the circumcircles of triangles (m, 3, 3); of a triangle without area, its first corner."""
    first, a, b = corners[:, 0], corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal = np.cross(a, b)
    area = (normal**2).sum(1, keepdims=True)
    arm = np.cross((a**2).sum(1, keepdims=True) * b - (b**2).sum(1, keepdims=True) * a, normal)
    return first + np.divide(arm, 2 * area, out=np.zeros_like(arm), where=area > 0)
