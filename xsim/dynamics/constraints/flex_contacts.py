"""Parts of flexes that touch: their shapes, and how what acts at a contact is shared among their points.

A point of an element moves as the points at its corners do, weighted by where it is between them; what pushes it pushes them by the same
weights. The weights are those of the element's point nearest to the contact. Source: MuJoCo 4.0's rule (3.2 takes the inverse distances of
the corners, so that what pushes and what is pushed feel different forces; it is not followed there).
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.convex_newton import tangents
from xsim.dynamics.collide.simplices import packed, weights_on_simplex
from xsim.dynamics.flex.kinematics import Points
from xsim.dynamics.layout import joined, picked
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import normalize, safe_norm, scale, stage, vadd, vsub

CORNERS = 4  # of a part, the last one repeated
_WHOLE = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def points_of(topology: Topology, part: int) -> tuple[int, ...]:
    """The corners of a part among all points of the model's flexes."""
    info = topology.parts[part]
    first = sum(len(flex.bodies) for flex in topology.flexes[: info.flex])
    return tuple(first + p for p in (*info.points, *[info.points[-1]] * (CORNERS - len(info.points))))


def bodies_of(topology: Topology, part: int) -> tuple[int, ...]:
    """The bodies of the corners, -1 for the world."""
    info = topology.parts[part]
    own = [topology.flexes[info.flex].bodies[p] for p in info.points]
    return (*own, *[own[-1]] * (CORNERS - len(own)))


class Parts(NamedTuple):
    """order: numbers of the parts, by shape. shapes: of each shape how many, and of their corners (parts, 4) the numbers. radius: of each
    part the row of its flex."""

    order: tuple[int, ...]
    shapes: tuple[tuple[str, np.ndarray], ...]
    radius: np.ndarray


@functools.lru_cache(maxsize=64)
def plan(topology: Topology) -> Parts:
    """What follows from the topology."""
    order, shapes = [], []
    for shape in sorted({info.shape for info in topology.parts}):
        own = [i for i, info in enumerate(topology.parts) if info.shape == shape]
        order += own
        shapes.append((shape, np.array([points_of(topology, i) for i in own])))
    rows = [topology.flexes[topology.parts[i].flex].radius for i in order]
    return Parts(tuple(order), tuple(shapes), np.array(rows, int))


def part_shapes(system: System, at: Points) -> jax.Array:
    """Size, position and rotation matrix (of simplices: corners) of all parts, in their order: (parts, 15, lanes or 1)."""
    layout, out, end = plan(system.topology), [], 0
    for shape, corners in layout.shapes:
        start, end = end, end + len(corners)
        radius = system.flex.radius[layout.radius[start:end]]
        own = tuple(tuple(x[corners[:, k]] for x in at.world) for k in range(CORNERS))
        size, pos, R = _SHAPES.get(shape, _simplex)(radius, own)
        numbers = [jnp.asarray(x) for x in (*size, *pos, *(x for row in R for x in row))]
        whole = jnp.broadcast_shapes(*(x.shape for x in numbers))
        out.append(jnp.stack([jnp.broadcast_to(x, whole) for x in numbers], 1))
    return joined(out)


@stage
def _sphere(radius, corners):
    return (radius, 0.0, 0.0), corners[0], _WHOLE


@stage
def _capsule(radius, corners):
    apart = vsub(corners[0], corners[1])
    axis = normalize(apart)
    x, y = tangents(axis)
    return (radius, 0.5 * safe_norm(apart), 0.0), scale(vadd(corners[0], corners[1]), 0.5), tuple(zip(x, y, axis, strict=True))


@stage
def _simplex(radius, corners):
    return (radius, 0.0, 0.0), *packed(corners)


_SHAPES = {"sphere": _sphere, "capsule": _capsule}


def shares(point, world, corners: list) -> tuple:
    """Of contacts' points (contacts, lanes) the weights of the corners of a part. corners: of each its number, (contacts,) or (contacts,
    lanes)."""
    own = tuple(tuple(picked(x, which) for x in world) for which in corners)
    return _weights(point, jax.tree.map(lambda x: jnp.broadcast_to(x, point[0].shape), own))


_weights = stage(weights_on_simplex)
