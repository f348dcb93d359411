"""The structure of a flex: the parts of `xsim.model.topology` that deformable bodies have."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.model.table import Table

__all__ = ["FlexInfo", "GridInfo", "RodInfo", "outer_faces"]


class RodInfo(NamedTuple):
    """A chain of lines that resist bending and twist, see `xsim.spec.RodSpec`.

    * shear, section: rows of these leaves, section None for circles.
    * tangents, normals: of the first and last line, in the world, or in the body that holds the line.
    * twists: for each line, the addresses in q and v of the angle of its material, None for a line that is fixed to a body.
      Empty: the lines do not twist.
    * plastic: address of its numbers in `State.plastic`.
    """

    shear: int
    section: int | None
    tangents: tuple[tuple[float, ...], ...]
    normals: tuple[tuple[float, ...], ...]
    twists: tuple[tuple[int, int] | None, ...]
    plastic: int


class GridInfo(NamedTuple):
    """The grid of nodes that moves the vertices of a flex, see `xsim.spec.GridSpec`.

    * order: degree of the polynomials. cells, axes: see `xsim.spec.GridSpec`. sides: row of flex.side.
    * counts: numbers of cells along the axes. places (vertices, 3): in the grid, in units of cells.
    * strains: of each cell, (modes, (order + 1)^3, 3), see `xsim.model.shape_functions.strain_modes`. Empty where no strain is constrained.
    * weights (cells, points): see `xsim.spec.GridSpec`. None if all cells are full.
    * vertex_nodes, vertex_weights (vertices, (order + 1)^3): the nodes that move each vertex, and their shares.
    """

    order: int
    cells: Table
    axes: Table
    sides: int
    counts: tuple[int, int, int]
    places: Table
    vertex_nodes: Table
    vertex_weights: Table
    weights: Table | None = None
    strains: tuple[Table, ...] = ()


class FlexInfo(NamedTuple):
    """A flex (deformable body) with forces or contacts, see `xsim.spec.FlexSpec`.

    * bodies: body of each point. The points of a flex with a grid are its nodes; then it has no edges, corners and hinges.
    * edges (m, 2): indices of points. corners (n, k): indices of the edges of each element.
    * free (m,): whether the bodies of an edge move relative to each other.
    * simple: per point, 2 if its body only slides along its axes, 1 if it is free, else 0. Such a body has no children, and its inertia is
      diagonal about its origin.
    * spring: row of flex.edge_stiffness and edge_damping. elastic: row of flex.young, poisson, damping. thickness, radius: rows of these
      leaves. None without.
    * hinges (h, 4): indices of the points of neighbouring triangles, see `xsim.spec.FlexSpec`.
    * stretches, bends: whether the elements resist stretching and shear, and the hinges bending.
    * rod: of a chain of lines that resist bending and twist.
    * grid: of nodes that move the vertices.
    * yield_strain: row of flex.yield_strain. plastic: address of the numbers of its elements in `State.plastic`. None without.
    * bend_yield_strain, plastic_folds: the same of its hinges; the state has a number for each edge.
    """

    name: str
    dim: int
    bodies: tuple[int, ...]
    edges: Table
    corners: Table
    free: Table
    simple: tuple[int, ...]
    spring: int | None
    elastic: int | None
    thickness: int | None
    radius: int | None
    hinges: Table
    stretches: bool
    bends: bool
    rod: RodInfo | None
    grid: GridInfo | None
    yield_strain: int | None
    plastic: int | None
    bend_yield_strain: int | None
    plastic_folds: int | None


def outer_faces(tetrahedra: np.ndarray) -> np.ndarray:
    """The triangles (m, 3) that belong to one tetrahedron alone. Of tetrahedra with a positive volume their normals are outward."""
    faces = np.concatenate([tetrahedra[:, corners] for corners in ((0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2))])
    _, first, count = np.unique(np.sort(faces, 1), axis=0, return_index=True, return_counts=True)
    return faces[np.sort(first[count == 1])]
