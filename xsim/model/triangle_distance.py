"""The signed distance of points from a closed surface of triangles.

Sources: the nearest point of a triangle by Ericson, Real-Time Collision Detection, 5.1.5; the sign by Baerentzen, Aanaes, Signed Distance
Computation Using the Angle Weighted Pseudonormal (2005).
"""

from __future__ import annotations

import numpy as np

__all__ = ["signed_distances"]

_PAIRS = 1 << 20
"""Pairs of points and triangles that are measured at once."""


def signed_distances(points: np.ndarray, vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """The distances (n,) of points (n, 3) from the nearest triangle, negative inside. faces (m, 3): counter-clockwise seen from outside.

    Vertices at the same place are one. Triangles without area are left out. Points that are near each other should follow each other."""
    _, first, inverse = np.unique(vertices, axis=0, return_index=True, return_inverse=True)
    vertices, faces = vertices[first], inverse.reshape(-1)[faces]
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    faces = faces[(np.cross(b - a, c - a) ** 2).sum(1) > 0]
    corners = vertices[faces]
    middle = (corners.min(1) + corners.max(1)) / 2
    radius = np.linalg.norm(corners - middle[:, None], axis=2).max(1)
    normals, out = _feature_normals(vertices, faces), np.empty(len(points))
    step = int(np.clip(_PAIRS // len(faces), 16, 512))
    for k in range(0, len(points), step):
        part = points[k : k + step]
        centre = (part.min(0) + part.max(0)) / 2
        reach = np.linalg.norm(part - centre, axis=1).max()
        apart = np.linalg.norm(middle - centre, axis=1)
        near = np.flatnonzero(apart - radius <= (apart + radius).min() + 2 * reach)
        out[k : k + step] = _signed(part, corners[near], normals[near])
    return out


def _signed(points: np.ndarray, corners: np.ndarray, normals: np.ndarray) -> np.ndarray:
    nearest, feature = _nearest(points[:, None], corners[None])
    squared = ((points[:, None] - nearest) ** 2).sum(-1)
    chosen, rows = squared.argmin(1), np.arange(len(points))
    away = points - nearest[rows, chosen]
    outside = (away * normals[chosen, feature[rows, chosen]]).sum(1) >= 0
    return np.sqrt(squared[rows, chosen]) * np.where(outside, 1.0, -1.0)


def _feature_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """The normals (m, 7, 3) of the corners, of the edges from each corner to the next, and of the inside of triangles."""
    corners = vertices[faces]
    normal = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    normal /= np.linalg.norm(normal, axis=1, keepdims=True)
    at_vertex, of_edge = np.zeros(vertices.shape), np.zeros((3 * len(faces), 3))
    for k in range(3):
        one, two = corners[:, (k + 1) % 3] - corners[:, k], corners[:, (k + 2) % 3] - corners[:, k]
        angle = np.arctan2(np.linalg.norm(np.cross(one, two), axis=1), (one * two).sum(1))
        np.add.at(at_vertex, faces[:, k], angle[:, None] * normal)
    ends = np.sort(np.stack([faces, np.roll(faces, -1, 1)], -1), -1).reshape(-1, 2)
    _, edge = np.unique(ends, axis=0, return_inverse=True)
    edge = edge.reshape(-1, 3)
    for k in range(3):
        np.add.at(of_edge, edge[:, k], normal)
    return np.concatenate([at_vertex[faces], of_edge[edge], normal[:, None]], 1)


def _nearest(p: np.ndarray, corners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nearest points of triangles, and on which feature they are (see `_feature_normals`)."""
    a, b, c = corners[..., 0, :], corners[..., 1, :], corners[..., 2, :]
    dot = lambda x, y: (x * y).sum(-1)  # noqa: E731
    ab, ac = b - a, c - a
    d1, d2 = dot(ab, p - a), dot(ac, p - a)
    d3, d4 = dot(ab, p - b), dot(ac, p - b)
    d5, d6 = dot(ab, p - c), dot(ac, p - c)
    va, vb, vc = d3 * d6 - d5 * d4, d5 * d2 - d1 * d6, d1 * d4 - d3 * d2
    cases = [  # in this order the first that holds is the case
        ((d1 <= 0) & (d2 <= 0), 0), ((d3 >= 0) & (d4 <= d3), 1), ((vc <= 0) & (d1 >= 0) & (d3 <= 0), 3), ((d6 >= 0) & (d5 <= d6), 2),
        ((vb <= 0) & (d2 >= 0) & (d6 <= 0), 5), ((va <= 0) & (d4 - d3 >= 0) & (d5 - d6 >= 0), 4),
    ]  # fmt: skip
    feature = np.select([case for case, _ in cases], [np.int8(kind) for _, kind in cases], np.int8(6))
    total = np.where(feature == 6, va + vb + vc, 1.0)
    along_ab, along_ac = d1 / np.where(feature == 3, d1 - d3, 1.0), d2 / np.where(feature == 5, d2 - d6, 1.0)
    along_bc = (d4 - d3) / np.where(feature == 4, (d4 - d3) + (d5 - d6), 1.0)
    zero = np.zeros_like(total)
    v = np.choose(feature, [zero, zero + 1, zero, along_ab, 1 - along_bc, zero, vb / total])
    w = np.choose(feature, [zero, zero, zero + 1, zero, along_bc, along_ac, vc / total])
    return a + v[..., None] * ab + w[..., None] * ac, feature
