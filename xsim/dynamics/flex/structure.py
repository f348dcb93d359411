"""The part of the computations on flexes that depends on the topology alone: edges, elements, and sums over them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.tree.kinematics import link_dof_mask
from xsim.model.flex_topology import FlexInfo
from xsim.model.topology import Topology

EDGE_OF_POINTS = {2: {(1, 2): 0, (0, 2): 1, (0, 1): 2}, 3: {(0, 1): 0, (1, 2): 1, (0, 2): 2, (2, 3): 3, (0, 3): 4, (1, 3): 5}}
"""By dimension, the index of an element's edge between two of its points."""


def index_array(x) -> np.ndarray:
    """Indices of array rows. They are unsigned, so that jax adds no code for negative ones."""
    return np.asarray(x, np.uint32)


class SegmentSum:
    """Sums the rows of an array (n, lanes) by target: (count, lanes). targets (n,): the target of each row.

    Targets with about as many rows are summed in one operation. So there are few operations, and the order of each sum is fixed."""

    def __init__(self, targets: np.ndarray, count: int):
        self.size = len(targets)
        order, degree = np.argsort(targets, kind="stable"), np.bincount(targets, minlength=count)
        first = degree.cumsum() - degree
        width = np.where(degree > 0, 1 << np.ceil(np.log2(np.maximum(degree, 1))).astype(int), 0)
        self.tables, by_width = [], []
        for w in np.unique(width):
            members = np.flatnonzero(width == w)
            steps = np.arange(w)[:, None]
            position = np.minimum(first[members] + steps, max(self.size - 1, 0))
            self.tables.append(index_array(np.where(steps < degree[members], order[position] if self.size else 0, self.size)))
            by_width.append(members)
        self.inverse = index_array(np.argsort(np.concatenate(by_width)) if by_width else [])

    def __call__(self, x):
        x = jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
        parts = [pairwise_sum(x[table]) if len(table) else jnp.zeros((table.shape[1], *x.shape[1:]), x.dtype) for table in self.tables]
        return jnp.concatenate(parts)[self.inverse]


class ElasticElements(NamedTuple):
    """The elastic elements of one dimension, triangles or tetrahedra.

    edges (n, 3 or 6): the edges of each element.
    elastic_row (n,): rows of flex.young, flex.poisson and flex.damping.
    thickness_row (n,): rows of flex.thickness. None for tetrahedra.
    yield_row (n,): rows of flex.yield_strain, 0 where yields (n, 1) is False: elements that do not yield.
    plastic: flexes that yield: address in `State.plastic`, first element here, number of elements.
    """

    dim: int
    edges: np.ndarray
    elastic_row: np.ndarray
    thickness_row: np.ndarray | None
    yield_row: np.ndarray
    yields: np.ndarray
    plastic: tuple[tuple[int, int, int], ...]


class Hinges(NamedTuple):
    """The pairs of neighbouring triangles that resist bending. They are in the order of flex.angle.

    points (n, 4): those of the common edge, then the other one of each triangle.
    edges (n, 5): between the points 01, 02, 12, 03, 13.
    elastic_row (n,): rows of flex.young, flex.poisson and flex.damping.
    thickness_row (n,): rows of flex.thickness.
    yielding: indices of those that yield. yield_row: their rows of flex.bend_yield_strain. plastic: their addresses in `State.plastic`.
    """

    points: np.ndarray
    edges: np.ndarray
    elastic_row: np.ndarray
    thickness_row: np.ndarray
    yielding: np.ndarray
    yield_row: np.ndarray
    plastic: tuple[int, ...]


class Rods(NamedTuple):
    """The chains of lines that resist bending and twist.

    chains: the index of each chain in ``Topology.flexes``, and its number of lines.
    lines (m, 2): the points of all lines of all chains.
    inner (n, 2): the two lines that meet at each inner point.
    edges (n, 2): their edges. elastic_row, shear_row, radius_row, section_row (n,): rows of the leaves; radius for circles, section for
        boxes.
    twists, boxes (n, 1): whether the lines twist, whether they are boxes. Inner points are in the order of flex.curvature.
    angles: for each line, the addresses in q and v of its angle, None without.
    held: lines that are fixed to a body, and the body (-1: the world).
    """

    chains: tuple[tuple[int, int], ...]
    lines: np.ndarray
    inner: np.ndarray
    edges: np.ndarray
    elastic_row: np.ndarray
    shear_row: np.ndarray
    radius_row: np.ndarray
    section_row: np.ndarray
    twists: np.ndarray
    boxes: np.ndarray
    angles: tuple[tuple[int, int] | None, ...]
    held: tuple[tuple[int, int], ...]

    @property
    def points(self) -> np.ndarray:
        """The first point (n, 3) of the first line at each inner point, the inner point, the second point of the second line."""
        first, second = (self.lines[self.inner[:, k]] for k in (0, 1))
        return np.column_stack([first, second[:, 1]])


class Cells(NamedTuple):
    """The elastic cells (dim 3), or faces of cells (2), of all flexes with grids of one order.

    nodes ((order + 1)^dim, n): the points at the nodes of each cell. elastic_row (n,): rows of flex.young, flex.poisson and flex.damping.
    side_row (n,): rows of flex.side. axes (n, dim): which sides. thickness_row (n,): rows of flex.thickness, of faces. weights (points,
    n): see `xsim.spec.GridSpec`, None for full cells.
    """

    order: int
    dim: int
    nodes: np.ndarray
    elastic_row: np.ndarray
    side_row: np.ndarray
    axes: np.ndarray
    thickness_row: np.ndarray | None
    weights: np.ndarray | None


class FlexPlan(NamedTuple):
    """The points, edges and elements of all flexes of a model, in arrays.

    links: the links that move points, -1 for the world.
    point_link (points,): index in ``links`` of each point's link.
    bodies (points,): body of each point.
    edge_points (edges, 2): points of each edge.
    spring_edges, spring_row: edges with springs, and their rows of flex.edge_stiffness and flex.edge_damping.
    elements: elastic elements by dimension.
    hinges: where triangles resist bending. rods: where lines do. cells: elastic cells by order.
    sum_on_edges: sums tensions by edge: of each spring, then of each edge of the elements.
    sum_on_points: sums forces by point: on the first ends of the edges, on their second ends (neither without loaded edges), then on the
        first points of the hinges, on their second points, and so on; then on the three points of each two lines that meet; then on the
        first nodes of the cells of each order, and so on.
    sum_on_links: sums forces on points by link.
    constrained_edges, soft_row: edges whose lengths are constrained, and their rows of soft.solref and soft.solimp.
    is_simple_edge: for each constrained edge, whether both of its bodies only slide along their own axes (``FlexInfo.simple`` is 2).
    dof_sign (edges, nv): 1 for a dof that moves the second point only, -1 the first only, else 0.
    simple_bodies: bodies whose ``FlexInfo.simple`` is 1 or 2.
    """

    links: np.ndarray
    point_link: np.ndarray
    bodies: tuple[int, ...]
    edge_points: np.ndarray
    spring_edges: np.ndarray
    spring_row: np.ndarray
    elements: tuple[ElasticElements, ...]
    hinges: Hinges
    rods: Rods
    cells: tuple[Cells, ...]
    sum_on_edges: SegmentSum
    sum_on_points: SegmentSum
    sum_on_links: SegmentSum
    constrained_edges: np.ndarray
    soft_row: np.ndarray
    is_simple_edge: np.ndarray
    dof_sign: np.ndarray
    simple_bodies: frozenset[int]

    has_tensions = property(lambda self: len(self.spring_edges) > 0 or len(self.elements) > 0)
    has_forces = property(lambda self: self.has_tensions or len(self.hinges.points) > 0 or len(self.rods.inner) > 0 or bool(self.cells))


@functools.lru_cache(maxsize=64)
def flex_plan(topology: Topology) -> FlexPlan:
    """The arrays of a model's flexes."""
    infos = topology.flexes
    bodies = tuple(body for info in infos for body in info.bodies)
    link_of_point = np.array([topology.bodies[b].link if b >= 0 else -1 for b in bodies], int)
    links, point_link = np.unique(link_of_point, return_inverse=True)
    point_link = index_array(point_link)
    first_point = np.cumsum([0, *(len(info.bodies) for info in infos)])
    first_edge = np.cumsum([0, *(len(info.edges.value) for info in infos)])
    edge_points = index_array(np.concatenate([info.edges.value + first for info, first in zip(infos, first_point, strict=False)]))
    free = [np.flatnonzero(info.free.value) + first for info, first in zip(infos, first_edge, strict=False)]
    springs = [(edges, info.spring) for edges, info in zip(free, infos, strict=True) if info.spring is not None]
    elements, hinges = _elastic_elements(infos, first_edge), _hinges(infos, first_point, first_edge)
    rods, cells = _rods(infos, first_point, first_edge), _cells(infos, first_point)
    constrained_edges, soft_row = _with_leaf_row([(free[info.items[0]], info.soft) for info in topology.soft if info.kind == "flex"])
    simple = np.array([x for info in infos for x in info.simple])
    loaded_edges = np.concatenate([np.zeros(0, int), *(edges for edges, _ in springs), *(e.edges.T.reshape(-1) for e in elements)])
    ends = edge_points[:0] if not len(loaded_edges) else edge_points
    of_cells = (group.nodes.T for group in cells)
    loaded_points = np.concatenate([x.T.reshape(-1) for x in (ends, hinges.points, rods.points, *of_cells)]).astype(int)
    return FlexPlan(
        links, point_link, bodies, edge_points, *_with_leaf_row(springs), elements, hinges, rods, cells,
        SegmentSum(loaded_edges, len(edge_points)), SegmentSum(loaded_points, len(bodies)), SegmentSum(point_link, len(links)),
        constrained_edges, soft_row, (simple[edge_points[constrained_edges]] == 2).all(1), _dof_signs(topology, link_of_point, edge_points),
        frozenset(np.array(bodies)[simple > 0].tolist()),
    )  # fmt: skip


def _with_leaf_row(parts: list) -> tuple[np.ndarray, np.ndarray]:
    """All edges of the parts (edges, leaf row), and the leaf row of each edge."""
    edges, leaf_rows = [edges for edges, _ in parts], [np.full(len(edges), row) for edges, row in parts]
    return index_array(np.concatenate(edges) if edges else []), index_array(np.concatenate(leaf_rows) if leaf_rows else [])


def _elastic_elements(infos: tuple[FlexInfo, ...], first_edge: np.ndarray) -> tuple[ElasticElements, ...]:
    out = []
    for dim in (2, 3):
        of_dim = [(info, first) for info, first in zip(infos, first_edge, strict=False) if info.dim == dim and info.grid is None]
        flexes = [(info, first) for info, first in of_dim if info.stretches]
        if flexes:
            elastic_rows = [np.full(len(info.corners.value), info.elastic) for info, _ in flexes]
            thickness_rows = [np.full(len(info.corners.value), info.thickness) for info, _ in flexes] if dim == 2 else None
            edges = index_array(np.concatenate([info.corners.value + first for info, first in flexes]))
            thickness_row = None if thickness_rows is None else index_array(np.concatenate(thickness_rows))
            yielding = _yielding([info for info, _ in flexes])
            out.append(ElasticElements(dim, edges, index_array(np.concatenate(elastic_rows)), thickness_row, *yielding))
    return tuple(out)


def _yielding(infos: list[FlexInfo]) -> tuple:
    """The last fields of `ElasticElements`."""
    counts = [len(info.corners.value) for info in infos]
    rows = np.concatenate([np.full(n, info.yield_strain or 0) for info, n in zip(infos, counts, strict=True)])
    yields = np.concatenate([np.full((n, 1), info.plastic is not None) for info, n in zip(infos, counts, strict=True)])
    first = np.cumsum([0, *counts])
    plastic = [(info.plastic, int(at), n) for info, at, n in zip(infos, first, counts, strict=False) if info.plastic is not None]
    return index_array(rows), yields, tuple(plastic)


HINGE_EDGES = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3))


def _hinges(infos: tuple[FlexInfo, ...], first_point: np.ndarray, first_edge: np.ndarray) -> Hinges:
    parts = [(np.zeros((0, 4)), np.zeros((0, 5)), *[np.zeros(0)] * 4)]
    for info, point, edge in zip(infos, first_point, first_edge, strict=False):
        if info.bends:
            points = info.hinges.value
            numbers = {tuple(sorted(ends)): i for i, ends in enumerate(info.edges.value.tolist())}
            sides = np.array([[numbers[tuple(sorted((p[i], p[j])))] for i, j in HINGE_EDGES] for p in points.tolist()])
            rows = (np.full(len(points), row) for row in (info.elastic, info.thickness, info.bend_yield_strain or 0))
            plastic = np.full(len(points), -1) if info.plastic_folds is None else sides[:, 0] + info.plastic_folds
            parts.append((points + point, sides + edge, *rows, plastic))
    *indices, yield_row, plastic = (np.concatenate(x) for x in zip(*parts, strict=True))
    yielding = np.flatnonzero(plastic >= 0)
    addresses = tuple(plastic[yielding].astype(int).tolist())
    return Hinges(*map(index_array, (*indices, yielding, yield_row[yielding])), plastic=addresses)


def _rods(infos: tuple[FlexInfo, ...], first_point: np.ndarray, first_edge: np.ndarray) -> Rods:
    chains, angles, held, parts, lines = [], [], [], [], 0
    for i, (info, point, edge) in enumerate(zip(infos, first_point, first_edge, strict=False)):
        if info.rod is None:
            continue
        corners, count = info.corners.value[:, 0], len(info.corners.value)
        inner = np.column_stack([np.arange(count - 1), np.arange(1, count)])
        rows = (np.full(count - 1, row) for row in (info.elastic, info.rod.shear, info.radius, info.rod.section or 0))
        masks = (np.full((count - 1, 1), mask) for mask in (bool(info.rod.twists), info.rod.section is not None))
        chain = _chain(info)
        held += [(lines + k, info.bodies[chain[k, 0]]) for k, twist in enumerate(info.rod.twists) if twist is None]
        parts.append((chain + point, inner + lines, corners[inner] + edge, *rows, *masks))
        chains.append((i, count))
        angles += info.rod.twists or [None] * count
        lines += count
    if not parts:
        parts = [(*[np.zeros((0, 2))] * 3, *[np.zeros(0)] * 4, *[np.zeros((0, 1), bool)] * 2)]
    *indices, twists, boxes = (np.concatenate(x) for x in zip(*parts, strict=True))
    return Rods(tuple(chains), *map(index_array, indices), twists, boxes, tuple(angles), tuple(held))


def _cells(infos: tuple[FlexInfo, ...], first_point: np.ndarray) -> tuple[Cells, ...]:
    out = []
    for order, dim, is_full in ((1, 2, True), (1, 3, True), (1, 3, False), (2, 2, True), (2, 3, True), (2, 3, False)):
        flexes = [(info, info.grid, first) for info, first in zip(infos, first_point, strict=False) if info.grid and info.stretches]
        flexes = [x for x in flexes if (x[1].order, x[1].axes.value.shape[1], x[1].weights is None) == (order, dim, is_full)]
        if flexes:
            nodes = np.concatenate([grid.cells.value + first for _, grid, first in flexes]).T
            axes, counts = np.concatenate([grid.axes.value for _, grid, _ in flexes]), [len(grid.cells.value) for _, grid, _ in flexes]
            rows = [[info.elastic for info, *_ in flexes], [grid.sides for _, grid, _ in flexes]]
            rows = [index_array(np.repeat(x, counts)) for x in rows]
            thickness = index_array(np.repeat([info.thickness for info, *_ in flexes], counts)) if dim == 2 else None
            weights = None if is_full else np.concatenate([grid.weights.value for _, grid, _ in flexes if grid.weights]).T
            out.append(Cells(order, dim, index_array(nodes), *rows, index_array(axes), thickness, weights))
    return tuple(out)


def _chain(info: FlexInfo) -> np.ndarray:
    """The points (n, 2) of the lines of a chain, each from where the one before ends."""
    lines = info.edges.value[info.corners.value[:, 0]]
    backwards = np.zeros(len(lines), bool)
    backwards[:-1] = (lines[:-1, :1] == lines[1:]).any(1)
    backwards[-1] = lines[-1, 1] in lines[-2]
    return np.where(backwards[:, None], lines[:, ::-1], lines)


def _dof_signs(topology: Topology, link_of_point: np.ndarray, edge_points: np.ndarray) -> np.ndarray:
    dof_mask = link_dof_mask(topology)
    return dof_mask[link_of_point[edge_points[:, 1]]] - dof_mask[link_of_point[edge_points[:, 0]]]
