"""What follows from the topology of deformables alone: edges, elements, and the sums over them."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.tree.kinematics import link_dof_mask
from xsim.model.topology import FlexInfo, Topology

PAIRS = {2: {(1, 2): 0, (0, 2): 1, (0, 1): 2}, 3: {(0, 1): 0, (1, 2): 1, (0, 2): 2, (2, 3): 3, (0, 3): 4, (1, 3): 5}}
"""By dimension, the number of an element's edge between two of its points."""


def index_array(x) -> np.ndarray:
    """Numbers of rows. Without a sign they are taken as they are."""
    return np.asarray(x, np.uint32)


class Sums:
    """Sums of the rows of an array that go to the same place, (n, lanes) to (count, lanes).

    Places that take about as many rows are summed together, so there are few operations, in an order that does not depend on anything."""

    def __init__(self, targets: np.ndarray, count: int):
        self.rows = len(targets)
        order, degree = np.argsort(targets, kind="stable"), np.bincount(targets, minlength=count)
        first = degree.cumsum() - degree
        width = np.where(degree > 0, 1 << np.ceil(np.log2(np.maximum(degree, 1))).astype(int), 0)
        self.tables, places = [], []
        for w in np.unique(width):
            own = np.flatnonzero(width == w)
            steps = np.arange(w)[:, None]
            spot = np.minimum(first[own] + steps, max(self.rows - 1, 0))
            self.tables.append(index_array(np.where(steps < degree[own], order[spot] if self.rows else 0, self.rows)))
            places.append(own)
        self.back = index_array(np.argsort(np.concatenate(places)) if places else [])

    def __call__(self, x):
        x = jnp.concatenate([x, jnp.zeros((1, *x.shape[1:]), x.dtype)])
        parts = [pairwise_sum(x[table]) if len(table) else jnp.zeros((table.shape[1], *x.shape[1:]), x.dtype) for table in self.tables]
        return jnp.concatenate(parts)[self.back]


class Solids(NamedTuple):
    """Elements of one dimension. corners (n, k): their edges. elastic, sheet (n,): rows of flex.young and flex.thickness."""

    dim: int
    corners: np.ndarray
    elastic: np.ndarray
    sheet: np.ndarray | None


class Plan(NamedTuple):
    """What follows from the topology. links: the links that carry points (-1: the world); carrier: of each point its place in that list.

    ends (m, 2): points of each edge. springs, spring: edges with springs, and their rows. edge_sums: sums over what acts on edges, each
    spring, then each corner of the solids; at_point, at_link: sums over the edges' ends (first ones first) and over points.
    kept: edges that keep their lengths; soft: rows of their softness; light: which of them are between simple bodies.
    sign (m, nv): 1 for a dof that moves the second point only, -1 the first only. simple: bodies that are so.
    """

    links: np.ndarray
    carrier: np.ndarray
    bodies: tuple[int, ...]
    ends: np.ndarray
    springs: np.ndarray
    spring: np.ndarray
    solids: tuple[Solids, ...]
    edge_sums: Sums
    at_point: Sums
    at_link: Sums
    kept: np.ndarray
    soft: np.ndarray
    light: np.ndarray
    sign: np.ndarray
    simple: frozenset[int]


@functools.lru_cache(maxsize=64)
def plan(topology: Topology) -> Plan:
    infos = topology.flexes
    bodies = tuple(body for info in infos for body in info.bodies)
    of_point = np.array([topology.bodies[b].link if b >= 0 else -1 for b in bodies], int)
    links, carrier = np.unique(of_point, return_inverse=True)
    carrier = index_array(carrier)
    points = np.cumsum([0, *(len(info.bodies) for info in infos)])
    edges = np.cumsum([0, *(len(info.edges.value) for info in infos)])
    ends = index_array(np.concatenate([info.edges.value + first for info, first in zip(infos, points, strict=False)]))
    free = [np.flatnonzero(info.free.value) + first for info, first in zip(infos, edges, strict=False)]
    springs = [(own, info.spring) for own, info in zip(free, infos, strict=True) if info.spring is not None]
    solids = _solids(infos, edges)
    kept, soft = _flat([(free[info.items[0]], info.soft) for info in topology.soft if info.kind == "flex"])
    simple = np.array([x for info in infos for x in info.simple])
    pulling = np.concatenate([np.zeros(0, int), *(own for own, _ in springs), *(s.corners.T.reshape(-1) for s in solids)])
    return Plan(
        links, carrier, bodies, ends, *_flat(springs), solids, Sums(pulling, len(ends)), Sums(ends.T.reshape(-1), len(bodies)),
        Sums(carrier, len(links)), kept, soft, (simple[ends[kept]] == 2).all(1), _signs(topology, of_point, ends),
        frozenset(np.array(bodies)[simple > 0].tolist()),
    )  # fmt: skip


def _flat(parts: list) -> tuple[np.ndarray, np.ndarray]:
    """Edges one after another, and of each the number that stands beside its part."""
    own, numbers = [own for own, _ in parts], [np.full(len(own), n) for own, n in parts]
    return index_array(np.concatenate(own) if own else []), index_array(np.concatenate(numbers) if numbers else [])


def _solids(infos: tuple[FlexInfo, ...], edges: np.ndarray) -> tuple[Solids, ...]:
    out = []
    for dim in (2, 3):
        own = [(info, first) for info, first in zip(infos, edges, strict=False) if info.dim == dim and info.elastic is not None]
        if own:
            rows = [np.full(len(info.corners.value), info.elastic) for info, _ in own]
            sheets = [np.full(len(info.corners.value), info.thickness) for info, _ in own] if dim == 2 else None
            corners = index_array(np.concatenate([info.corners.value + first for info, first in own]))
            sheet = None if sheets is None else index_array(np.concatenate(sheets))
            out.append(Solids(dim, corners, index_array(np.concatenate(rows)), sheet))
    return tuple(out)


def _signs(topology: Topology, of_point: np.ndarray, ends: np.ndarray) -> np.ndarray:
    chain = link_dof_mask(topology)
    return chain[of_point[ends[:, 1]]] - chain[of_point[ends[:, 0]]]
