"""Height fields: the ground as convex prisms, two under each cell of the grid.

Source: MuJoCo's documentation, XML reference, asset hfield. A cell has the corners (x, y), (x+1, y), (x, y+1), (x+1, y+1). Both of its top
triangles contain the diagonal from the first corner to the last. All prisms end at the same depth, ``base`` below the lowest ground.

Shapes are fixed under jit. So a shape is tested against a window of cells, whose size depends on the shape's bounding radius alone. The
position of the window depends on the state. If the window has more prisms than a pair can have contacts, the nearest prisms are used.
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

MAX_CONTACTS = 50
"""Maximum number of contacts between a height field and one shape."""
_RADIUS_FACTOR = 1.05  # enlarges the bounding radius, for margins, and for sizes that differ from the loaded ones


class Window(NamedTuple):
    """columns, rows: number of cells along x and y that a shape can be above. count: number of prisms that the convex algorithm gets."""

    columns: int
    rows: int
    count: int


def window(field: HfieldInfo, size, radius: float) -> Window:
    """The window of a shape with a bounding radius (m). size: half extents of the field (m)."""
    spans = []
    for half, points in zip(size[:2], field.heights.value.shape[::-1], strict=True):
        cell = 2 * half / (points - 1)
        spans.append(int(min(points - 1, np.floor(2 * _RADIUS_FACTOR * radius / cell) + 2)))
    return Window(*spans, min(MAX_CONTACTS, 2 * spans[0] * spans[1]))


def prisms(field: HfieldInfo, ground: Shape, kind: str, other: Shape, margin, window: Window) -> tuple[Shape, jax.Array]:
    """The prisms of height fields near other shapes, for `convex` with the kind "prism".

    ground: the height fields. kind, other: the other shapes. margin: m. Returns ``window.count`` prisms, components (prisms, *shape), and
    whether more are near than the buffer has entries, or the window is too small."""
    low, high = extents(kind, other, ground)  # of the shape's bounding box in the field's frame, about the shape's centre
    centre = apply_inverse(ground.R, vsub(other.pos, ground.pos))
    size = jax.tree.map(jax.lax.stop_gradient, ground.size)
    low, high, centre, margin = jax.tree.map(jax.lax.stop_gradient, (low, high, centre, margin))
    rows, columns = field.heights.value.shape
    first, too_wide = [], jnp.zeros(jnp.shape(centre[0]), bool)
    for k, (points, span) in enumerate(((columns, window.columns), (rows, window.rows))):
        cell = 2.0 * size[k] / (points - 1)
        start = jnp.floor((centre[k] + low[k] - margin + size[k]) / cell)
        end = jnp.floor((centre[k] + high[k] + margin + size[k]) / cell)
        index = jnp.clip(start, 0, points - 1 - span).astype(int)
        first.append(index)
        too_wide = too_wide | (jnp.minimum(end, points - 2) >= index + span)
    table = jnp.asarray(field.heights.value.reshape(-1), centre[0].dtype)
    node = {}
    for i in range(window.columns + 1):
        for j in range(window.rows + 1):
            x, y = first[0] + i, first[1] + j
            node[i, j] = (2.0 * x / (columns - 1) - 1.0, 2.0 * y / (rows - 1) - 1.0, table[y * columns + x])
    tops = []
    for i in range(window.columns):
        for j in range(window.rows):
            tops += [(node[i, j], node[i + 1, j], node[i + 1, j + 1]), (node[i, j], node[i, j + 1], node[i + 1, j + 1])]
    top = tuple(tuple(jnp.stack([t[c][k] for t in tops]) for k in range(3)) for c in range(3))  # the three top corners of each prism
    near, distance = _near(top, size, centre, low, high, margin)
    overflow = too_wide & near.any(0)
    if window.count < len(tops):
        distance = jnp.where(near, distance, jnp.inf)
        _, nearest = jax.lax.top_k(-jnp.moveaxis(distance, 0, -1), window.count)
        nearest = jnp.moveaxis(nearest, -1, 0)
        overflow = overflow | (near.sum(0) > window.count)
        top, near = jax.tree.map(lambda x: jnp.take_along_axis(x, nearest, 0), (top, near))
    bottom = -field.base / jnp.where(size[2] > 0, size[2], 1.0)
    corners = [*top, *((x, y, jnp.full_like(z, bottom)) for x, y, z in top)]
    centroid = tuple(sum(c[k] for c in corners) / 6.0 for k in range(3))
    corners = tuple(vsub(c, centroid) for c in corners)
    broadcast = lambda x: jnp.broadcast_to(jnp.asarray(x), near.shape)  # noqa: E731
    R = jax.tree.map(broadcast, ground.R)
    offset = tuple(m * s for m, s in zip(centroid, ground.size, strict=True))
    pos = vadd(ground.pos, tuple(sum(R[i][k] * offset[k] for k in range(3)) for i in range(3)))
    return Shape(jax.tree.map(broadcast, ground.size), pos, R, Prisms(corners, near)), overflow


class Prisms(NamedTuple):
    """corners: the six corners of prisms relative to their centroids, in units of the field's size. near: whether a prism is near the other
    shape."""

    corners: tuple[Vector, ...]
    near: jax.Array


def _near(top, size, centre, low, high, margin) -> tuple:
    """Whether the bounding boxes of a shape and of a prism overlap, and the distance of the shape's centre from the prism's top
    triangle."""
    corners = [tuple(x * s for x, s in zip(corner, size, strict=True)) for corner in top]
    near = jnp.ones(jnp.shape(corners[0][0]), bool)
    for k in range(3):
        least, most = (f(f(corners[0][k], corners[1][k]), corners[2][k]) for f in (jnp.minimum, jnp.maximum))
        near &= centre[k] + low[k] - margin <= most
        if k < 2:
            near &= centre[k] + high[k] + margin >= least
    return near, nearest_on_triangle(tuple(jnp.broadcast_to(c, near.shape) for c in centre), tuple(corners))


def bounding_radius(kind: str, size, hull: Hull | None) -> float:
    """The largest distance of a shape's points from its centre (m)."""
    s = np.abs(np.asarray(size, float))
    if kind == "mesh":
        assert hull is not None
        return float(np.linalg.norm(hull.vertices * s, axis=1).max())
    return float({"capsule": np.sum, "sphere": np.max, "ellipsoid": np.max}.get(kind, np.linalg.norm)(s))
