"""Points and elements that a <flexcomp> or a builtin mesh makes: grids, and shells of boxes, cylinders and ellipsoids."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

__all__ = ["LATTICES", "SHELLS", "Lattice", "open_shell"]


class Lattice(NamedTuple):
    """points (n, 3) m; elements (m, dim + 1): point numbers; texcoord (n, 2)."""

    points: np.ndarray
    elements: np.ndarray
    texcoord: np.ndarray


# Corners of a cell, numbered 4 x + 2 y + z; its six tetrahedra, its two triangles, and these along the other diagonal.
_TETRAHEDRA = np.array([[0, 2, 4, 3], [0, 4, 1, 3], [4, 2, 6, 3], [4, 6, 7, 3], [4, 5, 1, 3], [4, 7, 5, 3]])
_TRIANGLES = np.array([[0, 4, 6], [0, 6, 2]])
_CROSSED = np.array([[0, 4, 2], [4, 6, 2]])
_CORNERS = np.array(list(product((0, 1), repeat=3)))


def _cells(counts: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Point numbers of the elements of each cell of a grid; corners: of one cell."""
    strides = np.array([counts[1] * counts[2], counts[2], 1])
    cells = np.stack(np.meshgrid(*[np.arange(max(n - 1, 1)) for n in counts], indexing="ij"), axis=-1).reshape(-1, 1, 1, 3)
    return ((cells + _CORNERS[corners]) @ strides).reshape(len(cells), *corners.shape)


def _grid_points(counts: np.ndarray) -> np.ndarray:
    return np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 3)


def _texcoord(numbers: np.ndarray, counts: np.ndarray) -> np.ndarray:
    return numbers[:, :2] / np.maximum(counts[:2] - 1, 1)


def _grid(counts: np.ndarray, spacing: np.ndarray, dim: int) -> Lattice:
    """Points of a grid of one, two or three dimensions about the origin."""
    counts = np.where(np.arange(3) < dim, counts, 1)
    numbers = _grid_points(counts)
    corners = {1: np.array([[0, 4]]), 2: _TRIANGLES, 3: _TETRAHEDRA}[dim]
    elements = _cells(counts, corners).reshape(-1, dim + 1)
    return Lattice(spacing * (numbers - (counts - 1) / 2), elements, _texcoord(numbers, counts))


def _disc(counts: np.ndarray, spacing: np.ndarray, dim: int) -> Lattice:
    """A grid drawn in to an ellipse, its triangles turned towards the rim."""
    counts = np.where(np.arange(3) < 2, counts, 1)
    grid = _grid(counts, spacing, 2)
    half = spacing * (counts - 1) / 2
    low = np.array(list(product(range(counts[0] - 1), range(counts[1] - 1)))) < (counts[:2] - 1) / 2
    elements = np.where((low[:, 0] == low[:, 1])[:, None, None], _cells(counts, _TRIANGLES), _cells(counts, _CROSSED))
    # MuJoCo scales points by the half size that have it already.
    return grid._replace(points=half * _drawn_in(grid.points, 2), elements=elements.reshape(-1, 3))


def _circle(counts: np.ndarray, spacing: np.ndarray, dim: int) -> Lattice:
    """A closed chain: the last of its points is the first one again."""
    n = int(counts[0]) - 1
    angles = 2 * np.pi * np.arange(n) / n
    radius = spacing[0] / (2 * np.sin(np.pi / n))
    points = radius * np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    elements = np.stack([np.arange(n), np.roll(np.arange(n), -1)], axis=1)
    return Lattice(points, elements, np.zeros((n, 2)))


def _drawn_in(points: np.ndarray, axes: int) -> np.ndarray:
    """Points moved towards the centre so that squares or cubes about it become circles or spheres, in the first axes."""
    near = points[:, :axes]
    length = np.linalg.norm(near, axis=1)
    shrink = np.where(length > 0, np.abs(near).max(axis=1) / np.where(length > 0, length, 1.0), 1.0)
    return np.hstack([near * shrink[:, None], points[:, axes:]])


# Sides of a box of cells: the axis across, the axes along, the end of the axis across (0 or -1).
_SIDES = ((2, (0, 1), 0), (2, (0, 1), -1), (1, (0, 2), 0), (1, (0, 2), -1), (0, (1, 2), 0), (0, (1, 2), -1))


def _shell(counts: np.ndarray, spacing: np.ndarray, axes: int) -> Lattice:
    """The centre and the surface points of a box (axes 0), drawn in to a cylinder (2) or an ellipsoid (3): one tetrahedron from the
    centre for each triangle of the surface."""
    cells, sides = _surface(counts, _SIDES)
    elements = [(0, *triangle) for quads in sides for a, b, c, d in (quads + 1).tolist() for triangle in ((a, b, c), (a, d, c))]
    texcoord = np.vstack([np.zeros((1, 2)), _texcoord(cells, counts)])
    return Lattice(np.vstack([np.zeros((1, 3)), _on_surface(cells, counts, spacing, axes)]), np.array(elements), texcoord)


def open_shell(counts: np.ndarray, spacing: np.ndarray, axes: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and triangles of the surface of a box (axes 0), cylinder (2) or ellipsoid (3), without the side at the end of z."""
    open_sides = tuple(side for side in _SIDES if side[0] != 2 or side[2] == 0)
    cells, sides = _surface(counts, open_sides)
    triangles = []
    for (across, _, end), quads in zip(open_sides, sides, strict=True):
        a, b, c, d = quads.T
        # The first diagonal of a quadrangle cuts three of the sides, the second one the others.
        if (across, end) == (2, 0):
            two = (a, c, b), (a, d, c)
        elif (across, end) in ((1, 0), (0, -1)):
            two = (a, b, c), (a, c, d)
        else:
            two = (b, a, d), (b, d, c)
        triangles.append(np.stack([np.stack(corners, axis=-1) for corners in two], axis=1).reshape(-1, 3))
    return _on_surface(cells, counts, spacing, axes), np.concatenate(triangles)


def _surface(counts: np.ndarray, wanted: tuple) -> tuple[np.ndarray, list[np.ndarray]]:
    """Points on sides of a box of cells (n, 3), numbered as they are met, and the corners of the quadrangles of each side (m, 4)."""
    number = np.full(counts, -1)
    cells: list[tuple[int, ...]] = []
    for side in wanted:
        for at in product(*(range(counts[axis]) for axis in side[1])):
            cell = _cell(side, counts, at)
            if number[cell] < 0:
                number[cell] = len(cells)
                cells.append(cell)
    quads = []
    for side in wanted:
        first = product(*(range(counts[axis] - 1) for axis in side[1]))
        corners = [[number[_cell(side, counts, at)] for at in ((u, v), (u + 1, v), (u + 1, v + 1), (u, v + 1))] for u, v in first]
        quads.append(np.array(corners))
    return np.array(cells), quads


def _on_surface(cells: np.ndarray, counts: np.ndarray, spacing: np.ndarray, axes: int) -> np.ndarray:
    """Where the points of a surface are."""
    unit = 2 * cells / (counts - 1) - 1
    return (_drawn_in(unit, axes) if axes else unit) * spacing * (counts - 1) / 2


def _cell(side: tuple[int, tuple[int, int], int], counts: np.ndarray, at: tuple[int, ...]) -> tuple[int, ...]:
    across, along, end = side
    cell = [0, 0, 0]
    cell[across], cell[along[0]], cell[along[1]] = int(end % counts[across]), *at
    return tuple(cell)


SHELLS = {"box": 0, "cylinder": 2, "ellipsoid": 3}  # and how many axes they are round about
# By type of flexcomp: dimension (0: as the file says), numbers of points that there must be along x, y, z, maker.
LATTICES = {
    "grid": (0, (2, 2, 2), _grid),
    "square": (2, (2, 2), _grid),
    "disc": (2, (2, 2), _disc),
    "circle": (1, (3,), _circle),
    "box": (3, (2, 2, 2), lambda counts, spacing, dim: _shell(counts, spacing, 0)),
    "cylinder": (3, (2, 2, 2), lambda counts, spacing, dim: _shell(counts, spacing, 2)),
    "ellipsoid": (3, (2, 2, 2), lambda counts, spacing, dim: _shell(counts, spacing, 3)),
}
