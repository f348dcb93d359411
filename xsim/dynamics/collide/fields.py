"""Height fields: the ground as prisms, two under each cell of the grid, each a convex shape.

Source of the prisms and of what counts as near: MuJoCo's documentation, XML reference, asset hfield. A cell with the corners low, right,
left, high (x first) has the triangles low right high and low left high on top; prisms end the base's depth below the lowest ground. Which
prisms are near a shape depends on the state, how many can be does not: a window of cells as wide as the shape and, where that has more
prisms than a pair may have contacts, the nearest of them.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.convex import nearest_on_triangle
from xsim.dynamics.collide.cores import extents
from xsim.dynamics.collide.hulls import Hull
from xsim.dynamics.collide.shapes import Shape
from xsim.model.topology import HfieldInfo
from xsim.spatial import Vector, apply_inverse, vadd, vsub

MOST = 50
"""Contacts of a height field with one shape, at most."""
_SPARE = 1.05  # of the shape's reach: for margins and sizes that differ from those loaded


class Window(NamedTuple):
    """Cells along x and y that a shape may be over, and how many prisms are searched."""

    columns: int
    rows: int
    count: int


def window(field: HfieldInfo, size, reach: float) -> Window:
    """The window of a shape none of whose points is farther from its centre than reach (m). size: half extents of the field (m)."""
    spans = []
    for half, points in zip(size[:2], field.heights.value.shape[::-1], strict=True):
        cell = 2 * half / (points - 1)
        spans.append(int(min(points - 1, np.floor(2 * _SPARE * reach / cell) + 2)))
    return Window(*spans, min(MOST, 2 * spans[0] * spans[1]))


def prisms(field: HfieldInfo, ground: Shape, kind: str, other: Shape, margin, view: Window) -> tuple[Shape, jax.Array]:
    """Prisms of the ground near other shapes of a kind, as many as the window counts: components (prisms, *shape), for `convex` with
    the kind "prism"; and whether some had no place in the buffer. What is not near is far below everything."""
    low, high = extents(kind, other, ground)  # of the shape in the field's frame, about its centre
    centre = apply_inverse(ground.R, vsub(other.pos, ground.pos))
    size = jax.tree.map(jax.lax.stop_gradient, ground.size)
    low, high, centre, margin = jax.tree.map(jax.lax.stop_gradient, (low, high, centre, margin))
    rows, columns = field.heights.value.shape
    first, wide = [], jnp.zeros(jnp.shape(centre[0]), bool)
    for k, (points, span) in enumerate(((columns, view.columns), (rows, view.rows))):
        cell = 2.0 * size[k] / (points - 1)
        start = jnp.floor((centre[k] + low[k] - margin + size[k]) / cell)
        end = jnp.floor((centre[k] + high[k] + margin + size[k]) / cell)
        at = jnp.clip(start, 0, points - 1 - span).astype(int)
        first.append(at)
        wide = wide | (jnp.minimum(end, points - 2) >= at + span)
    table = jnp.asarray(field.heights.value.reshape(-1), centre[0].dtype)
    node = {}
    for i in range(view.columns + 1):
        for j in range(view.rows + 1):
            x, y = first[0] + i, first[1] + j
            node[i, j] = (2.0 * x / (columns - 1) - 1.0, 2.0 * y / (rows - 1) - 1.0, table[y * columns + x])
    tops = []
    for i in range(view.columns):
        for j in range(view.rows):
            tops += [(node[i, j], node[i + 1, j], node[i + 1, j + 1]), (node[i, j], node[i, j + 1], node[i + 1, j + 1])]
    top = tuple(tuple(jnp.stack([t[c][k] for t in tops]) for k in range(3)) for c in range(3))  # of each prism three corners
    near, rank = _near(top, size, centre, low, high, margin)
    overflow = wide & near.any(0)
    if view.count < len(tops):
        rank = jnp.where(near, rank, jnp.inf)
        _, which = jax.lax.top_k(-jnp.moveaxis(rank, 0, -1), view.count)
        which = jnp.moveaxis(which, -1, 0)
        overflow = overflow | (near.sum(0) > view.count)
        top, near = jax.tree.map(lambda x: jnp.take_along_axis(x, which, 0), (top, near))
    bottom = -field.base / jnp.where(size[2] > 0, size[2], 1.0)
    corners = [*top, *((x, y, jnp.full_like(z, bottom)) for x, y, z in top)]
    middle = tuple(sum(c[k] for c in corners) / 6.0 for k in range(3))
    corners = tuple(vsub(c, middle) for c in corners)
    spread = lambda x: jnp.broadcast_to(jnp.asarray(x), near.shape)  # noqa: E731
    R = jax.tree.map(spread, ground.R)
    own = tuple(m * s for m, s in zip(middle, ground.size, strict=True))
    pos = vadd(ground.pos, tuple(sum(R[i][k] * own[k] for k in range(3)) for i in range(3)))
    return Shape(jax.tree.map(spread, ground.size), pos, R, Prisms(corners, near)), overflow


class Prisms(NamedTuple):
    """The six corners of prisms about their centres, in units of the field's size, and which are near."""

    corners: tuple[Vector, ...]
    near: jax.Array


def _near(top, size, centre, low, high, margin) -> tuple:
    """Whether a shape's box reaches a prism's, and how far the shape's centre is from the prism's triangle."""
    at = [tuple(x * s for x, s in zip(corner, size, strict=True)) for corner in top]
    near = jnp.ones(jnp.shape(at[0][0]), bool)
    for k in range(3):
        least, most = (f(f(at[0][k], at[1][k]), at[2][k]) for f in (jnp.minimum, jnp.maximum))
        near &= centre[k] + low[k] - margin <= most
        if k < 2:
            near &= centre[k] + high[k] + margin >= least
    return near, nearest_on_triangle(tuple(jnp.broadcast_to(c, near.shape) for c in centre), tuple(at))


def reach_of(kind: str, size, hull: Hull | None) -> float:
    """How far a shape's points are from its centre (m)."""
    s = np.abs(np.asarray(size, float))
    if kind == "mesh":
        assert hull is not None
        return float(np.linalg.norm(hull.vertices * s, axis=1).max())
    return float({"capsule": np.sum, "sphere": np.max, "ellipsoid": np.max}.get(kind, np.linalg.norm)(s))
