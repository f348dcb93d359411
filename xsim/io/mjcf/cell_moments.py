"""How material fills the cells of a grid: integrals over the part of each cell that is inside a closed surface.

By the divergence theorem, a piece of the surface stands for what lies below it: a part of its own cell, and of the cells below, whose upper
faces it covers from above. The surface is cut along the planes between cells, so the integrals of polynomials are exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xsim.model.flex_topology import outer_faces
from xsim.model.shape_functions import gauss_points

__all__ = ["boundary_triangles", "cell_moments", "cells_of_surface", "is_closed", "is_inside"]


def boundary_triangles(points: np.ndarray, tetrahedra: np.ndarray) -> np.ndarray:
    """The triangles (m, 3) of the boundary of tetrahedra, normals outward. points (n, 3). Triangles, tetrahedra: indices of points."""
    corners = points[tetrahedra]
    backwards = np.linalg.det(corners[:, 1:] - corners[:, :1]) < 0
    return outer_faces(np.where(backwards[:, None], tetrahedra[:, [0, 2, 1, 3]], tetrahedra))


def is_closed(triangles: np.ndarray) -> bool:
    """Whether triangles (n, 3), indices of points, make a closed surface: each edge has two, which go along it in opposite directions."""
    edges = np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]])
    (along, count), (against, _) = (np.unique(x, axis=0, return_counts=True) for x in (edges, edges[:, ::-1]))
    return np.array_equal(along, against) and bool((count == 1).all())


def cell_moments(surface: np.ndarray, planes: Sequence[np.ndarray], degree: int) -> np.ndarray:
    """The integrals of x^i y^j z^k, i, j, k <= degree, over the material in each cell, (cells, degree + 1, degree + 1, degree + 1). x, y, z
    go from 0 to 1 in the cell, whose volume is 1; cells are in the order of their indices, the last axis fastest.

    surface (n, 3, 3): the corners of the triangles of a closed surface, normals outward. planes: along each axis, where cells begin and
    end; the surface is between the first and the last."""
    pieces, cell = _pieces(surface, planes)
    low, high = (np.stack([x[k + j] for x, k in zip(planes, cell, strict=True)], 1)[:, None] for j in (0, 1))
    points, weights = _quadrature((pieces - low) / (high - low), 3 * degree + 1)
    x, y = (points[:, :, axis, None] ** np.arange(degree + 1) for axis in (0, 1))
    inverse = 1.0 / np.arange(1, degree + 2)
    to_height = points[:, :, 2, None] ** np.arange(1, degree + 2) * inverse
    shape = (*(len(x) - 1 for x in planes), *[degree + 1] * 3)
    own, covered = np.zeros(shape), np.zeros(shape)
    np.add.at(own, cell, np.einsum("nq,nqi,nqj,nqk->nijk", weights, x, y, to_height))
    np.add.at(covered, cell, np.einsum("nq,nqi,nqj,k->nijk", weights, x, y, inverse))
    from_above = np.cumsum(covered[:, :, ::-1], 2)[:, :, ::-1] - covered
    return (own + from_above).reshape(-1, *shape[3:])


def cells_of_surface(surface: np.ndarray, planes: Sequence[np.ndarray]) -> np.ndarray:
    """Whether triangles (n, 3, 3) are in each cell, (cells along x, along y, along z)."""
    out = np.zeros([len(x) - 1 for x in planes], bool)
    out[_pieces(surface, planes)[1]] = True
    return out


def is_inside(points: np.ndarray, surface: np.ndarray) -> np.ndarray:
    """Whether points (n, 3) are inside a surface that may be open: whether the winding number of its triangles (m, 3, 3), the solid angle
    that they take of a sphere around the point, is more than a half.

    Source: Jacobson, Kavan, Sorkine-Hornung, Robust Inside-Outside Segmentation using Generalized Winding Numbers, 2013."""
    out = np.zeros(len(points))
    for corners in surface:
        a, b, c = (corner - points for corner in corners)
        la, lb, lc = (np.linalg.norm(x, axis=1) for x in (a, b, c))
        ab, bc, ca = ((x * y).sum(1) for x, y in ((a, b), (b, c), (c, a)))
        out += np.arctan2((a * np.cross(b, c)).sum(1), la * lb * lc + ab * lc + bc * la + ca * lb)
    return np.abs(out) > np.pi  # atan2 gives half of the solid angle


def _pieces(surface: np.ndarray, planes: Sequence[np.ndarray]) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """The triangles cut along planes, and the indices of the cells of the pieces."""
    pieces = surface
    for axis, places in enumerate(planes):
        for place in places[1:-1]:
            pieces = _cut(pieces, axis, place)
    middles = pieces.mean(1).T
    return pieces, tuple(np.clip(np.searchsorted(x, m) - 1, 0, len(x) - 2) for x, m in zip(planes, middles, strict=True))


def _cut(triangles: np.ndarray, axis: int, place: float) -> np.ndarray:
    """Triangles (n, 3, 3); those that cross a plane as three that do not."""
    beyond = triangles[:, :, axis] > place
    count = beyond.sum(1)
    crosses = (count == 1) | (count == 2)
    crossing = triangles[crosses]
    alone = np.argmax(beyond[crosses] == (count[crosses] == 1)[:, None], 1)  # the corner on a side of its own
    a, b, c = (crossing[np.arange(len(crossing)), (alone + k) % 3] for k in range(3))
    ab, ac = (a + ((place - a[:, axis]) / (x[:, axis] - a[:, axis]))[:, None] * (x - a) for x in (b, c))
    ab[:, axis] = ac[:, axis] = place
    parts = [np.stack(corners, 1) for corners in ((a, ab, ac), (ab, b, c), (ab, c, ac))]
    return np.concatenate([triangles[~crosses], *parts])


def _quadrature(triangles: np.ndarray, degree: int) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, points, 3) on triangles (n, 3, 3), and their weights (n, points) in the integral over the triangles' projections along z;
    the area of a projection is negative where the normal points down. Exact for polynomials of a degree."""
    x, w = gauss_points(degree // 2 + 2)
    first, second = np.broadcast_to(x[:, None], (len(x), len(x))), (1 - x[:, None]) * x
    shares = np.stack([1 - first - second, first, second], -1).reshape(-1, 3)
    sides = triangles[:, 1:] - triangles[:, :1]
    doubled = sides[:, 0, 0] * sides[:, 1, 1] - sides[:, 0, 1] * sides[:, 1, 0]
    return np.einsum("qk,nki->nqi", shares, triangles), doubled[:, None] * (w[:, None] * w * (1 - x[:, None])).ravel()
