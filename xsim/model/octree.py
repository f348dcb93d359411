"""The signed distance of a mesh as MuJoCo 4.0 tabulates it: an octree of distances at the corners of its cells, linear between them.

The box of the tree is that of the mesh, 1.1 times as large. Cells that triangles meet are divided up to a depth of 6, and others until
cells that share a face differ by one level. Where a corner of a cell lies inside an edge or a face of a larger one, its distance is the
mean of that edge's or face's, so that the distance is continuous. Sources: the arrays oct_* of MuJoCo's model; boxes and triangles by
Schwarz, Seidel, Fast Parallel Surface and Solid Voxelization on GPUs (2010).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from xsim.model.table import Table
from xsim.model.triangle_distance import signed_distances

__all__ = ["DEPTH", "Octree", "mesh_octree"]

DEPTH = 6
CELLS = 1 << DEPTH
"""The number of the smallest cells along each axis."""
_MARGIN = 1.1
_STRIDES = np.array([(CELLS + 1) ** 2, CELLS + 1, 1])
"""Of the numbers of corners (z, y, x) of the smallest cells."""
_PAIRS = 1 << 18
"""Pairs of cells and triangles that are tested at once."""


class Octree(NamedTuple):
    """low, high: of the box, m. leaf (CELLS^3,): the leaf at each of the smallest cells, numbered with x last. size (leaves,): of
    the leaves, in smallest cells. distances (leaves, 8): at corners x + 2 y + 4 z, m."""

    low: tuple[float, float, float]
    high: tuple[float, float, float]
    leaf: Table
    size: Table
    distances: Table


def mesh_octree(vertices: np.ndarray, faces: np.ndarray) -> Octree:
    """The octree of a closed mesh. vertices (n, 3): m. faces (m, 3): counter-clockwise seen from outside."""
    return _octree(Table(vertices), Table(faces))


@functools.lru_cache(maxsize=16)
def _octree(of_vertices: Table, of_faces: Table) -> Octree:
    vertices, faces = of_vertices.value, of_faces.value
    centre, half = (vertices.max(0) + vertices.min(0)) / 2, (vertices.max(0) - vertices.min(0)) / 2
    low, high = centre - _MARGIN * half, centre + _MARGIN * half
    level = _balanced(_levels(vertices[faces], low, high))
    place = np.stack(np.meshgrid(*[np.arange(CELLS)] * 3, indexing="ij"), -1)  # of the cell z, y, x
    size = CELLS >> level.astype(int)
    is_first = (place % size[..., None] == 0).all(-1)
    number = np.zeros(level.shape, np.int32)
    number[is_first] = np.arange(is_first.sum())
    leaf = number[tuple(np.moveaxis(place // size[..., None] * size[..., None], -1, 0))]
    corners = [np.array([corner >> 2 & 1, corner >> 1 & 1, corner & 1]) for corner in range(8)]
    at = np.stack([place[is_first] + corner * size[is_first][:, None] for corner in corners], 1)  # (leaves, 8, 3)
    distances = _corner_distances(at, level, vertices, faces, low, high)
    box = (tuple(map(float, x)) for x in (low, high))
    return Octree(*box, Table(leaf.reshape(-1)), Table(size[is_first].astype(np.int32)), Table(distances))


def _levels(triangles: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """The level of the leaf at each of the smallest cells (z, y, x), where cells that triangles (m, 3, 3) meet are divided."""
    out = np.zeros([CELLS] * 3, np.int8)
    cells, members = np.zeros((1, 3), int), np.zeros((2, len(triangles)), int)  # of pairs: the cell and the triangle
    members[1] = np.arange(len(triangles))
    for depth in range(DEPTH):
        step = (high - low) / (1 << depth)
        meets = np.zeros(members.shape[1], bool)
        for k in range(0, len(meets), _PAIRS):
            part = slice(k, k + _PAIRS)
            corner = low + cells[members[0, part]] * step
            meets[part] = _meet(triangles[members[1, part]], corner, corner + step)
        members = members[:, meets]
        divided, cell_of = np.unique(members[0], return_inverse=True)
        cells = (2 * cells[divided][:, None] + np.array([[c & 1, c >> 1 & 1, c >> 2 & 1] for c in range(8)])).reshape(-1, 3)
        members = np.stack([(8 * cell_of[:, None] + np.arange(8)).ravel(), np.repeat(members[1], 8)])
        width = CELLS >> (depth + 1)
        blocks = out.reshape(*[x for _ in range(3) for x in (CELLS // width, width)])
        blocks[cells[:, 2], :, cells[:, 1], :, cells[:, 0], :] = depth + 1
    return out


def _meet(triangle: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether triangles (n, 3, 3) and boxes (n, 3) meet."""
    meets = ((triangle.max(1) >= low) & (triangle.min(1) <= high)).all(1)
    edges, size = np.roll(triangle, -1, 1) - triangle, high - low
    normal = np.cross(edges[:, 0], edges[:, 1])
    critical = np.where(normal > 0, size, 0.0)
    sides = [(normal * (low + c - triangle[:, 0])).sum(1) for c in (critical, size - critical)]
    meets &= sides[0] * sides[1] <= 0
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        sign = np.where(normal[:, a] >= 0, 1.0, -1.0)
        for i in range(3):
            across = -edges[:, i, c] * sign, edges[:, i, b] * sign
            offset = sum(np.maximum(0, size[:, k] * x) - x * triangle[:, i, k] for k, x in zip((b, c), across, strict=True))
            meets &= across[0] * low[:, b] + across[1] * low[:, c] + offset >= 0
    return meets


def _balanced(level: np.ndarray) -> np.ndarray:
    """The levels where leaves that share a face differ by one level at most."""
    while True:
        coarse = np.zeros(level.shape, bool)
        for axis in range(3):
            one, two = np.moveaxis(level, axis, 0)[:-1], np.moveaxis(level, axis, 0)[1:]
            of = np.moveaxis(coarse, axis, 0)
            of[:-1] |= two > one + 1
            of[1:] |= one > two + 1
        if not coarse.any():
            return level
        new = level.copy()
        for depth in range(DEPTH - 1):
            width = CELLS >> depth
            shape = [x for _ in range(3) for x in (CELLS // width, width)]
            divided = (coarse & (level == depth)).reshape(shape).any((1, 3, 5))
            new += np.broadcast_to(divided[:, None, :, None, :, None], shape).reshape(level.shape).astype(np.int8)
        level = new


def _corner_distances(at, level, vertices, faces, low, high) -> np.ndarray:
    """The distances (leaves, 8) at the corners of leaves. at (leaves, 8, 3): z, y, x of the corners in units of the smallest cells."""
    numbers, inverse = np.unique(at.reshape(-1, 3) @ _STRIDES, return_inverse=True)
    nodes = np.stack([numbers // (CELLS + 1) ** 2, numbers // (CELLS + 1) % (CELLS + 1), numbers % (CELLS + 1)], 1)
    ends = _ends_of_hanging(nodes, level)
    out, free = np.zeros(len(nodes)), (ends < 0).all(1)
    blocks = (nodes[free] // 8) @ np.array([81, 9, 1])
    order = np.argsort(blocks, kind="stable")
    points = low + nodes[free][:, ::-1] * ((high - low) / CELLS)
    measured = np.empty(len(points))
    measured[order] = signed_distances(points[order], vertices, faces)
    out[free] = measured
    waiting = ~free
    row = np.searchsorted(numbers, np.where(ends < 0, numbers[0], ends))
    while waiting.any():  # the ends lie on larger cells
        ready = waiting & ~(waiting[row] & (ends >= 0)).any(1)
        out[ready] = (out[row] * (ends >= 0)).sum(1)[ready] / (ends >= 0).sum(1)[ready]
        waiting &= ~ready
    return out[inverse].reshape(-1, 8)


def _ends_of_hanging(nodes: np.ndarray, level: np.ndarray) -> np.ndarray:
    """For corners (n, 3) inside an edge or a face of a larger leaf, the numbers (n, 4) of its two or four corners; -1 elsewhere."""
    ends = np.full((len(nodes), 4), -1)
    for corner in range(8):
        cell = nodes - np.array([corner >> 2 & 1, corner >> 1 & 1, corner & 1])
        inside = ((cell >= 0) & (cell < CELLS)).all(1)
        size = CELLS >> level[tuple(np.where(inside[:, None], cell, 0).T)].astype(int)
        rest = nodes % size[:, None]
        middle = 2 * rest == size[:, None]
        hangs = inside & ((rest == 0) | middle).all(1) & np.isin(middle.sum(1), (1, 2))
        steps = middle[hangs] * (size[hangs] // 2)[:, None]
        last = middle[hangs].sum(1) == 2
        signs = np.stack(np.meshgrid([-1, 1], [-1, 1], indexing="ij"), -1).reshape(-1, 2)
        found = np.full((hangs.sum(), 4), -1)
        for k, (one, two) in enumerate(signs.tolist()):
            sign = np.full((len(found), 3), one)
            sign[last, _last_axis(middle[hangs])[last]] = two
            number = (nodes[hangs] + sign * steps) @ _STRIDES
            found[:, k] = np.where(last | (one == two), number, -1)
        ends[hangs] = found
    return ends


def _last_axis(chosen: np.ndarray) -> np.ndarray:
    """The last axis that is chosen, of each row of (n, 3)."""
    return 2 - chosen[:, ::-1].argmax(1)
