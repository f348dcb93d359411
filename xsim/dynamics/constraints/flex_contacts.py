"""The parts of flexes as collision shapes, and how the force of a contact is distributed over their points.

A contact point on an element moves with the weighted mean velocity of the element's corners, and its force acts on the corners with the
same weights. The weights are the barycentric coordinates of the element's point nearest to the contact point. Source: MuJoCo 4.0. MuJoCo
3.2 uses inverse distances to the corners; then the forces on the two sides differ, so xsim does not follow it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.convex_newton import tangents
from xsim.dynamics.collide.simplices import pack_simplex, weights_on_simplex
from xsim.dynamics.flex.kinematics import Points
from xsim.dynamics.flex.structure import index_array
from xsim.dynamics.layout import concatenated, take_rows
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.tree.system import System
from xsim.model.flex_topology import FlexInfo, GridInfo
from xsim.model.topology import Topology
from xsim.spatial import each_row, normalize, safe_norm, scale, stage, vadd, vsub

MAX_CORNERS = 4
"""Corners of every part: a part with fewer repeats its last one."""
ON_FACE = 1e-6  # of a cell: a vertex at this distance from its face does not reach over it
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def part_corners(topology: Topology, part: int) -> tuple[int, ...]:
    """Indices of a part's corners among the points of all flexes, then the vertices of those with grids."""
    info = topology.parts[part]
    first = sum(len(flex.bodies) for flex in topology.flexes[: info.flex])
    if topology.flexes[info.flex].grid is not None:
        first = sum(len(flex.bodies) for flex in topology.flexes) + sum(map(_vertices, topology.flexes[: info.flex]))
    return tuple(first + p for p in (*info.points, *[info.points[-1]] * (MAX_CORNERS - len(info.points))))


def part_bodies(topology: Topology, part: int) -> tuple[int, ...]:
    """The bodies that move a part, -1 for the world: those of its corners, or those of the nodes of its cells of a grid."""
    info = topology.parts[part]
    flex = topology.flexes[info.flex]
    if flex.grid is not None:
        return tuple(flex.bodies[node] for node in _nodes(flex.grid, info.points, cell_spans(topology)[flex.grid.order]))
    bodies = [flex.bodies[p] for p in info.points]
    return (*bodies, *[bodies[-1]] * (MAX_CORNERS - len(bodies)))


def part_places(topology: Topology, part: int) -> tuple[int, np.ndarray]:
    """Of a part of a flex with a grid: the order of its cells, and the places (4, 3) of the part's corners from its first cell on, in units
    of cells. Of another part: order 0, zeros."""
    info = topology.parts[part]
    grid, places = topology.flexes[info.flex].grid, np.zeros((MAX_CORNERS, 3))
    if grid is None:
        return 0, places
    points = [*info.points, *[info.points[-1]] * (MAX_CORNERS - len(info.points))]
    return grid.order, grid.places.value[points] - _cells(grid, info.points)[0]


@functools.lru_cache(maxsize=64)
def cell_spans(topology: Topology) -> dict[int, tuple[int, ...]]:
    """For each order of grids, over how many cells along each axis parts reach at most."""
    spans: dict[int, list[np.ndarray]] = {}
    for part in topology.parts:
        grid = topology.flexes[part.flex].grid
        if grid is not None:
            first, last = _cells(grid, part.points)
            spans.setdefault(grid.order, []).append(last - first)
    return {order: tuple(np.max(all_spans, 0).tolist()) for order, all_spans in spans.items()}


def _cells(grid: GridInfo, points: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The first cell (three indices) that these vertices reach, and the one after the last."""
    places = grid.places.value[list(points)]
    first = np.clip(np.floor(places.min(0) + ON_FACE).astype(int), 0, np.array(grid.counts) - 1)
    return first, np.maximum(np.ceil(places.max(0) - ON_FACE).astype(int), first + 1)


def _nodes(grid: GridInfo, points: tuple[int, ...], spans: tuple[int, ...]) -> list[int]:
    """The nodes of ``spans`` cells along each axis, from the first that these vertices reach on. Some repeat at the end of the grid."""
    shape, first = [grid.order * n + 1 for n in grid.counts], _cells(grid, points)[0]
    along = [np.minimum(grid.order * k + np.arange(grid.order * s + 1), n - 1) for k, s, n in zip(first, spans, shape, strict=True)]
    return np.arange(np.prod(shape)).reshape(shape)[np.ix_(*along)].ravel().tolist()


def _vertices(flex: FlexInfo) -> int:
    return 0 if flex.grid is None else len(flex.grid.vertex_nodes.value)


def with_vertices(topology: Topology, flex_points: Points) -> tuple:
    """The points of all flexes, then the vertices of those with grids, components (points, lanes or 1)."""
    parts, first = [flex_points.world], 0
    for flex in topology.flexes:
        if flex.grid is not None:
            nodes, weights = flex.grid.vertex_nodes.value + first, flex.grid.vertex_weights.value
            parts.append(_interpolated(tuple(x[index_array(nodes.T)] for x in flex_points.world), weights))
        first += len(flex.bodies)
    return tuple(concatenated(x) for x in zip(*parts, strict=True))


@stage
def _interpolated(nodes: tuple, weights: np.ndarray) -> tuple:
    return tuple(pairwise_sum(jnp.asarray(weights.T[..., None], x.dtype) * x) for x in nodes)


class PartLayout(NamedTuple):
    """The order of the parts of flexes in arrays: by shape.

    order: indices of the parts in ``topology.parts``.
    corners: for each shape its name and the corners (parts, 4) of its parts, see `part_corners`.
    radius_row (parts,): the row of flex.radius of each part.
    """

    order: tuple[int, ...]
    corners: tuple[tuple[str, np.ndarray], ...]
    radius_row: np.ndarray


@functools.lru_cache(maxsize=64)
def part_layout(topology: Topology) -> PartLayout:
    """The order of the parts of a model."""
    order, corners = [], []
    for shape in sorted({info.shape for info in topology.parts}):
        parts = [i for i, info in enumerate(topology.parts) if info.shape == shape]
        order += parts
        corners.append((shape, np.array([part_corners(topology, i) for i in parts])))
    radius_row = [topology.flexes[topology.parts[i].flex].radius for i in order]
    return PartLayout(tuple(order), tuple(corners), np.array(radius_row, int))


def part_shapes(system: System, corner_points: tuple) -> jax.Array:
    """Size, position and rotation matrix of all parts (a simplex packs its corners in these), in the order of `PartLayout`:
    (parts, 15, lanes or 1). corner_points: see `with_vertices`."""
    layout, out, end = part_layout(system.topology), [], 0
    for shape, corners in layout.corners:
        start, end = end, end + len(corners)
        radius = system.flex.radius[layout.radius_row[start:end]]
        points = tuple(tuple(x[corners[:, k]] for x in corner_points) for k in range(MAX_CORNERS))
        size, pos, R = _SHAPES.get(shape, _simplex)(radius, points)
        numbers = [jnp.asarray(x) for x in (*size, *pos, *(x for row in R for x in row))]
        common = jnp.broadcast_shapes(*(x.shape for x in numbers))
        out.append(jnp.stack([jnp.broadcast_to(x, common) for x in numbers], 1))
    return concatenated(out)


@stage
def _sphere(radius, corners):
    return (radius, 0.0, 0.0), corners[0], _IDENTITY


@stage
def _capsule(radius, corners):
    segment = vsub(corners[0], corners[1])
    axis = normalize(segment)
    x, y = tangents(axis)
    return (radius, 0.5 * safe_norm(segment), 0.0), scale(vadd(corners[0], corners[1]), 0.5), tuple(zip(x, y, axis, strict=True))


@stage
def _simplex(radius, corners):
    return (radius, 0.0, 0.0), *pack_simplex(corners)


_SHAPES = {"sphere": _sphere, "capsule": _capsule}


def corner_weights(point, world, corners: list) -> tuple:
    """The barycentric weights of a part's four corners at contact points, components (contacts, lanes).

    point: components (contacts, lanes). world: see `with_vertices`. corners: four arrays of indices
    of points, (contacts,) or (contacts, lanes)."""
    positions = tuple(tuple(take_rows(x, index) for x in world) for index in corners)
    return each_row(_weights, point, jax.tree.map(lambda x: jnp.broadcast_to(x, point[0].shape), positions))


_weights = stage(weights_on_simplex)


@stage
def node_weights(weights: tuple, places: list, order: int, spans: tuple[int, ...]) -> list:
    """The shares of the nodes of cells at the point with barycentric weights (four, (contacts, lanes)) of corners at ``places`` (four by
    three, (contacts, lanes or 1)): a list of arrays (contacts, lanes), the node along the last axis fastest. spans: numbers of cells.

    Source: probes of MuJoCo 4.0, which evaluates the shape functions at the mean of the places, not the mean of the shape functions."""
    along = []
    for k, span in enumerate(spans):
        x = tree_sum([w * place[k] for w, place in zip(weights, places, strict=True)])
        cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(x)), 0, span - 1)
        x = x - cell
        functions = [1.0 - x, x] if order == 1 else [(2.0 * x - 1.0) * (x - 1.0), 4.0 * x * (1.0 - x), x * (2.0 * x - 1.0)]
        of_nodes = [jnp.zeros_like(x)] * (order * span + 1)
        for c in range(span):
            for i, f in enumerate(functions):
                of_nodes[order * c + i] = of_nodes[order * c + i] + jnp.where(cell == c, f, 0.0)
        along.append(of_nodes)
    return [a * b * c for a in along[0] for b in along[1] for c in along[2]]
