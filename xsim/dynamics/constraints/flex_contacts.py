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
from xsim.dynamics.layout import concatenated, take_rows
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import normalize, safe_norm, scale, stage, vadd, vsub

MAX_CORNERS = 4
"""Corners of every part: a part with fewer repeats its last one."""
_IDENTITY = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def part_corners(topology: Topology, part: int) -> tuple[int, ...]:
    """Indices of a part's corners among the points of all flexes."""
    info = topology.parts[part]
    first = sum(len(flex.bodies) for flex in topology.flexes[: info.flex])
    return tuple(first + p for p in (*info.points, *[info.points[-1]] * (MAX_CORNERS - len(info.points))))


def part_bodies(topology: Topology, part: int) -> tuple[int, ...]:
    """The bodies of a part's corners, -1 for the world."""
    info = topology.parts[part]
    bodies = [topology.flexes[info.flex].bodies[p] for p in info.points]
    return (*bodies, *[bodies[-1]] * (MAX_CORNERS - len(bodies)))


class PartLayout(NamedTuple):
    """The order of the parts of flexes in arrays: by shape.

    order: indices of the parts in ``topology.parts``.
    corners: for each shape its name and the corners (parts, 4) of its parts, indices among the points of all flexes.
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


def part_shapes(system: System, flex_points: Points) -> jax.Array:
    """Size, position and rotation matrix of all parts (a simplex packs its corners in these), in the order of `PartLayout`:
    (parts, 15, lanes or 1)."""
    layout, out, end = part_layout(system.topology), [], 0
    for shape, corners in layout.corners:
        start, end = end, end + len(corners)
        radius = system.flex.radius[layout.radius_row[start:end]]
        points = tuple(tuple(x[corners[:, k]] for x in flex_points.world) for k in range(MAX_CORNERS))
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

    point: components (contacts, lanes). world: the points of all flexes, components (points, lanes or 1). corners: four arrays of indices
    of points, (contacts,) or (contacts, lanes)."""
    positions = tuple(tuple(take_rows(x, index) for x in world) for index in corners)
    return _weights(point, jax.tree.map(lambda x: jnp.broadcast_to(x, point[0].shape), positions))


_weights = stage(weights_on_simplex)
