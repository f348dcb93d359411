"""Flexes whose vertices are moved by a grid of nodes (``dof`` trilinear or quadratic, rules 4.0).

MuJoCo 4.0 integrates the stiffness of a cell, and the masses of its nodes, over the part of the cell that is filled with material: what is
inside tetrahedra or a closed surface, exactly; what is inside an open one, by points. Source of the numbers below: probes of MuJoCo 4.0.
"""

from __future__ import annotations

import itertools
import math
from typing import NamedTuple

import numpy as np

from xsim.io.mjcf.cell_moments import boundary_triangles, cell_moments, cells_of_surface, is_closed, is_inside
from xsim.io.mjcf.macros import integers
from xsim.io.reader import Element
from xsim.model.shape_functions import gauss_points
from xsim.poses import Pose
from xsim.spec import FlexSpec, GridSpec

__all__ = [
    "ORDERS", "cells_of_grid", "check_strains", "material_of", "node_shares", "quadrature_weights", "read_cell_counts", "read_grid",
    "reference_positions", "sheet_shares",
]  # fmt: skip

ORDERS = {"trilinear": 1, "quadratic": 2}
"""By ``dof``, the degree of the polynomials."""
MAX_NODES = 100_000  # of a grid
TOLERANCE = 1e-6  # in units of a cell: how far nodes may be from their places, and how exactly material must fill a cell
SHARES = {1: (1 / 2, 1 / 2), 2: (1 / 6, 2 / 3, 1 / 6)}  # of the nodes along an axis, in the mass of a full cell
SPLINES = {1: ((1, -1), (0, 1)), 2: ((0.5, -1, 0.5), (0.5, 1, -1), (0, 0, 0.5))}
"""B-splines along an axis, by increasing powers of the place in a cell. Their integrals are `SHARES`."""
VOID = 1e-6
"""The stiffness and the density of what is empty in a cell with material, in units of those of the material."""
LEAST_SHARE = 0.02
"""Of a node in the mass of a cell with material, in units of its share in that of a full one."""
RIM = 0.02
"""In units of a cell: a cell whose material is all this near to other cells counts as empty."""
NOTHING = 1e-12
"""Volumes, in units of a cell, that come of rounding."""


def read_cell_counts(e: Element, order: int) -> tuple[int, int, int]:
    """The numbers of cells along the axes. Raises ParseError."""
    counts = integers(e, "cellcount", 3, (1, 1, 1)).tolist()
    if min(counts) < 1 or (order * counts[0] + 1) * (order * counts[1] + 1) * (order * counts[2] + 1) > MAX_NODES:
        raise e.error(f"found {e.raw('cellcount')!r}; allowed: three numbers from 1, at most {MAX_NODES} nodes", "cellcount")
    return counts[0], counts[1], counts[2]


def cells_of_grid(order: int, counts: tuple[int, int, int]) -> np.ndarray:
    """The nodes (cells, (order + 1)^3) of all cells of a grid. Cells and nodes are in the order of their indices, the last axis fastest."""
    numbers = np.arange(np.prod([order * n + 1 for n in counts])).reshape([order * n + 1 for n in counts])
    first = itertools.product(*(range(0, order * n, order) for n in counts))
    return np.array([numbers[i : i + order + 1, j : j + order + 1, k : k + order + 1].ravel() for i, j, k in first])


def faces_of_grid(order: int, counts: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """The nodes (faces, (order + 1)^2) of the faces of cells at the boundary of a grid, and the two axes (faces, 2) along each."""
    shape = [order * n + 1 for n in counts]
    numbers, nodes, axes = np.arange(np.prod(shape)).reshape(shape), [], []
    for normal in range(3):
        along = [axis for axis in range(3) if axis != normal]
        for end in (0, -1):
            side = np.take(numbers, end, normal)
            for i, j in itertools.product(*(range(0, order * counts[axis], order) for axis in along)):
                nodes.append(side[i : i + order + 1, j : j + order + 1].ravel())
                axes.append(along)
    return np.array(nodes), np.array(axes)


class Material(NamedTuple):
    """The material in the cells of a grid.

    filled (cells,): which have any; the others are empty. moments: of these, see `cell_moments`, up to twice the degree of the polynomials,
    with what is empty in them as `VOID` of the material. None if all of them are full."""

    filled: np.ndarray
    moments: np.ndarray | None


def node_shares(order: int, counts: tuple[int, int, int], material: Material) -> np.ndarray:
    """The share of each node in the mass of the material: the integral of its B-spline of this order, in each cell `LEAST_SHARE` of that of
    a full cell at least."""
    splines, full = np.array(SPLINES[order]), np.array(SHARES[order])
    of_full = np.einsum("i,j,k->ijk", full, full, full).ravel()
    cells = cells_of_grid(order, counts)[material.filled]
    shares = np.tile(of_full, (len(cells), 1))
    if material.moments is not None:
        upto = slice(splines.shape[1])
        shares = np.einsum("ia,jb,kc,nabc->nijk", splines, splines, splines, material.moments[:, upto, upto, upto]).reshape(shares.shape)
        shares = np.maximum(shares, LEAST_SHARE * of_full)
    out = np.bincount(cells.ravel(), shares.ravel(), math.prod(order * n + 1 for n in counts))
    return out / out.sum()


def sheet_shares(order: int, counts: tuple[int, int, int]) -> np.ndarray:
    """The shares of nodes in the mass of a sheet around a grid, up to a factor: MuJoCo 4.0 takes those of a solid for polynomials of order
    2, and equal ones for others."""
    out = np.zeros(math.prod(order * n + 1 for n in counts))
    on_boundary = np.unique(faces_of_grid(order, counts)[0])
    full = Material(np.ones(math.prod(counts), bool), None)
    out[on_boundary] = node_shares(order, counts, full)[on_boundary] if order == 2 else 1.0
    return out


def material_of(points: np.ndarray, elements: np.ndarray, counts: tuple[int, int, int], order: int) -> Material:
    """The material in the cells of a grid: what is inside tetrahedra or triangles. points (n, 3): the vertices in units of cells."""
    if elements.shape[1] == 3 and _is_box(points[elements], np.array(counts)):
        return Material(np.ones(math.prod(counts), bool), None)
    _, same = np.unique(np.round(points / TOLERANCE), axis=0, return_inverse=True)
    line = 1.0 / np.arange(1, 2 * order + 2)
    full = np.einsum("i,j,k->ijk", line, line, line)
    if elements.shape[1] == 4:
        filled, moments = _inside_closed(points[boundary_triangles(points, elements)], counts, order)
    elif is_closed(same.ravel()[elements]):
        filled, moments = _inside_closed(points[elements], counts, order)
    else:
        filled, moments = _inside_open(points[elements], counts, order)
        moments[filled & (moments[:, 0, 0, 0] == 0)] = full
    if (moments[filled, 0, 0, 0] > 1 - TOLERANCE).all():
        return Material(filled, None)
    return Material(filled, (1 - VOID) * moments[filled] + VOID * full)


def _inside_closed(triangles: np.ndarray, counts: tuple[int, int, int], order: int) -> tuple[np.ndarray, np.ndarray]:
    """Which cells have material, and its moments in all cells, see `cell_moments`. triangles (n, 3, 3): a closed surface."""
    moments = cell_moments(triangles, _planes(counts, 0.0), 2 * order)
    sign = -1.0 if moments[:, 0, 0, 0].sum() < 0 else 1.0
    inner = _without_rims(sign * cell_moments(triangles, _planes(counts, RIM), 0), counts)
    return inner > NOTHING, sign * moments


def _inside_open(triangles: np.ndarray, counts: tuple[int, int, int], order: int) -> tuple[np.ndarray, np.ndarray]:
    """As `_inside_closed`, of an open surface."""
    centres = np.stack(np.meshgrid(*(np.arange(n) + 0.5 for n in counts), indexing="ij"), -1).reshape(-1, 3)
    crossed = _without_rims(cells_of_surface(triangles, _planes(counts, RIM)), counts)
    return crossed | is_inside(centres, triangles), _sampled_moments(triangles, counts, order)


def _without_rims(of_parts: np.ndarray, counts: tuple[int, int, int]) -> np.ndarray:
    """Of quantities of cells and of the layers between them, those of the cells (cells,)."""
    return of_parts.reshape([2 * n - 1 for n in counts])[::2, ::2, ::2].ravel()


def _planes(counts: tuple[int, int, int], rim: float) -> tuple[np.ndarray, ...]:
    """Along each axis of a grid, where cells begin and end. rim: half the width of layers between cells, as cells of their own."""
    return tuple(np.unique([0.0, *(k + shift for k in range(1, n) for shift in (-rim, rim)), float(n)]) for n in counts)


def _sampled_moments(triangles: np.ndarray, counts: tuple[int, int, int], order: int) -> np.ndarray:
    """As `cell_moments`, of an open surface: by order + 1 points of Gauss quadrature along each axis of the eighths of cells."""
    x, weight = gauss_points(order + 1)
    x, weight = np.concatenate([x, x + 1]) / 2, np.tile(weight, 2) / 2
    powers = weight[:, None] * x[:, None] ** np.arange(2 * order + 1)
    places = np.stack(np.meshgrid(*(np.add.outer(np.arange(n), x).ravel() for n in counts), indexing="ij"), -1).reshape(-1, 3)
    inside = is_inside(places, triangles).reshape([k for n in counts for k in (n, len(x))])
    return np.einsum("apbqcr,pi,qj,rk->abcijk", inside, powers, powers, powers).reshape(-1, *[2 * order + 1] * 3)


def _is_box(corners: np.ndarray, size: np.ndarray) -> bool:
    """Whether triangles (n, 3, 3) are the surface of the box from 0 to ``size``, of which one side may be open."""
    on_side = np.concatenate([(np.abs(corners - end) < TOLERANCE).all(1) for end in (np.zeros(3), size)], 1)
    sides = corners[:, 1:] - corners[:, :1]
    areas = 0.5 * np.abs(np.cross(sides[:, 0], sides[:, 1])).max(1) @ on_side / np.tile(np.prod(size) / size, 2)
    return bool(on_side.any(1).all() and (np.abs(areas - 1) < TOLERANCE).sum() >= 5 and areas.max() < 1 + TOLERANCE)


def quadrature_weights(order: int, moments: np.ndarray) -> np.ndarray:
    """The weights (cells, points) of the points of a quadrature of a cell, 2 order + 1 along each axis (see
    `xsim.model.shape_functions.quadrature`), with which it has these moments."""
    points = gauss_points(2 * order + 1)[0]
    to_weights = np.linalg.inv(points[None] ** np.arange(len(points))[:, None])
    return np.einsum("ia,jb,kc,nabc->nijk", to_weights, to_weights, to_weights, moments).reshape(len(moments), -1)


def read_grid(e: Element, dim: int, nodes: np.ndarray, vertices: np.ndarray, elements: np.ndarray, numbers: dict) -> GridSpec:
    """The grid of a <flex>. nodes, vertices (n, 3): positions in the reference pose. numbers: see `FlexSpec`. Raises ParseError."""
    if dim == 1 or numbers["elastic2d"] not in ("none", "stretch") or numbers["yield_strain"]:
        found = {"dim": dim, "elastic2d": numbers["elastic2d"], "yield": numbers["yield_strain"]}
        text = ", ".join(f"{key} {value}" for key, value in found.items())
        allowed = "allowed: dim 2 or 3, elastic2d none or stretch, no yield"
        raise e.error(f"found {text} with dof {e.string('dof')!r}, which is not simulated; {allowed}", "dof")
    order = ORDERS[e.choice("dof", tuple(ORDERS))]
    counts = read_cell_counts(e, order)
    shape = [order * n + 1 for n in counts]
    if len(nodes) != np.prod(shape):
        raise e.error(f"found {len(nodes)} nodes; allowed with this cellcount and dof: {np.prod(shape)}", "node")
    at = nodes.reshape(*shape, 3)
    axes = np.array([at[-1, 0, 0], at[0, -1, 0], at[0, 0, -1]]) - at[0, 0, 0]
    lengths = np.linalg.norm(axes, axis=1)
    sides = lengths / counts
    unit = axes / np.where(lengths > 0, lengths, 1.0)[:, None]
    if not (lengths > 0).all() or np.abs(unit @ unit.T - np.eye(3)).max() > TOLERANCE or np.linalg.det(unit) < 0:
        raise e.error("the nodes have no volume or are no box; allowed: a box of nodes, the number along z rising first", "node")
    places = np.stack(np.meshgrid(*(np.arange(n) / order for n in shape), indexing="ij"), -1).reshape(-1, 3)
    cells = cells_of_grid(order, counts)
    points = (vertices - at[0, 0, 0]) @ unit.T / sides
    if (points < -TOLERANCE).any() or (points > np.array(counts) + TOLERANCE).any():
        raise e.error("vertices are outside the box of the nodes; allowed: inside", "vertex")
    if numbers["elastic2d"] == "none":
        filled, moments = material_of(points, elements, counts, order)
        weights = None if moments is None else quadrature_weights(order, moments)
        material = cells[filled]
        along = np.tile(np.arange(3), (len(material), 1))
    else:
        (material, along), weights = faces_of_grid(order, counts), None
    used = np.unique(material)
    off = (at.reshape(-1, 3)[used] - at[0, 0, 0]) @ unit.T / sides - places[used]
    if np.abs(off).max() > TOLERANCE:
        raise e.error("the nodes are not evenly spaced; allowed: a grid of nodes at equal distances", "node")
    cell = np.clip(np.floor(points), 0, np.array(counts) - 1).astype(int)
    movers = _vertex_weights(order, counts, cells, cell, points - cell)
    return GridSpec(order, counts, sides, material, along, vertices, points, *movers, weights)


def _vertex_weights(order: int, counts, cells: np.ndarray, cell: np.ndarray, place: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes that move each vertex, and their shares. cell (n, 3): the cell of a vertex. place (n, 3): where in it, from 0 to 1."""
    nodes = cells[np.ravel_multi_index(tuple(cell.T), counts)]
    x = place.T
    along = np.stack([1 - x, x]) if order == 1 else np.stack([(2 * x - 1) * (x - 1), 4 * x * (1 - x), x * (2 * x - 1)])
    return nodes, np.einsum("in,jn,kn->nijk", along[:, 0], along[:, 1], along[:, 2]).reshape(len(place), -1)


def reference_positions(poses: list[Pose], bodies: list[int], pos: np.ndarray) -> np.ndarray:
    """Positions (n, 3) in the world of points of bodies. poses: of the bodies, that of the world last."""
    return np.array([(poses[i] @ Pose(pos=p)).pos for i, p in zip(bodies, pos, strict=True)])


def check_strains(e: Element, flex: FlexSpec, cell: tuple[int, ...]) -> None:
    """Refuse a constraint of strain of a cell that is not there, or that elasticity also strains. Raises ParseError."""
    grid = flex.grid
    if grid is None or grid.axes.shape[1] == 2:
        raise e.error(f"the flex {flex.name!r} has no grid of nodes with material inside; allowed: a flex with dof, elastic2d none", "flex")
    if flex.numbers["young"]:
        raise e.error(f"the flex {flex.name!r} has young {flex.numbers['young']:g}; allowed with a constraint of strain: 0", "flex")
    shape = [grid.order * n + 1 for n in grid.counts]
    if not all(0 <= k < n for k, n in zip(cell, grid.counts, strict=True)):
        raise e.error(f"found {' '.join(map(str, cell))}; allowed: 0 to {' '.join(str(n - 1) for n in grid.counts)}", "cell")
    if np.ravel_multi_index([grid.order * k for k in cell], shape) not in grid.cells[:, 0]:
        raise e.error(f"the cell {' '.join(map(str, cell))} is empty; allowed: cells with material", "cell")
