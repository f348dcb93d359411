"""Rays: how far the nearest surface is along a line. Source: MuJoCo's documentation, functions mj_ray and mj_rayHfield.

All rays are held against all geoms of one shape at once: components here are arrays (geoms, rays, environments). A round or flat
convex body covers one interval of a line; the interval of what two bodies share begins at the later entry and ends at the earlier exit.
What is searched (triangles, cells of a grid) is searched without derivatives; those are of the distance to what was found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.model.topology import GeomInfo, HfieldInfo, MeshInfo, Topology
from xsim.spatial import Component, Vector, apply_inverse, cross, dot, scale, stage, vadd, vsub

TINY = 1e-15
"""Directions and squares below this are no slope and no chord (MuJoCo's own threshold)."""
CHUNK = 1024
"""Triangles that are held against all rays at a time."""
FAR = 1.0 / TINY
"""Where a line ends that leaves a shape nowhere."""
INF = float("inf")


class Ray(NamedTuple):
    """A half-line: it does not see the geoms of ``body`` (-1: the world). direction: a unit vector, world axes like the origin."""

    body: int
    origin: Vector
    direction: Vector


class Target(NamedTuple):
    """A geom: its place in the world (R: rows of the rotation matrix) and its size, half extents."""

    info: GeomInfo
    pos: Vector
    R: tuple
    size: Vector


def cast(topology: Topology, rays: list[Ray], targets: list[Target]) -> list[Component]:
    """Distance (m) along each ray to the nearest surface, from within a shape to where it ends; -1 where there is none."""
    if not targets:
        return [-1.0] * len(rays)
    groups: dict[tuple, list[Target]] = {}
    for target in targets:
        groups.setdefault((target.info.shape, target.info.asset), []).append(target)
    numbers = jax.tree.leaves(([ray[1:] for ray in rays], [target[1:] for target in targets]))
    like = jnp.result_type(*numbers), jnp.broadcast_shapes(*map(jnp.shape, numbers))
    lines = _stacked([ray[1:] for ray in rays], *like, 0)
    found = []
    for (shape, asset), group in groups.items():
        surfaces = {"mesh": topology.meshes, "hfield": topology.hfields}.get(shape)
        surface = None if surfaces is None else surfaces[asset]
        unseen = tuple(tuple(ray.body == target.info.body for ray in rays) for target in group)
        found.append(_nearest(shape, surface, unseen, lines, _stacked([target[1:] for target in group], *like, 1)))
    return list(_distances(found))


@stage
def _stacked(trees, dtype, lanes: tuple, axis: int):
    """Components of many geoms or rays as one array each, with an axis of length 1 for the others."""
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    arrays = [jnp.expand_dims(jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), lanes) for x in column]), axis) for column in columns]
    return jax.tree.unflatten(jax.tree.structure(trees[0]), arrays)


@stage
def _nearest(shape: str, surface, unseen, lines, places):
    """Distance along each ray to the nearest of some geoms of one shape, (rays, environments); infinite where it meets none."""
    (origin, direction), (pos, R, size) = lines, places
    t = SHAPES[shape](size, apply_inverse(R, vsub(origin, pos)), apply_inverse(R, direction), surface)
    hidden = np.reshape(unseen, (*np.shape(unseen), *[1] * (t.ndim - 2)))
    return jnp.min(jnp.where(hidden, INF, t), 0)


@stage
def _distances(found):
    nearest = found[0]
    for t in found[1:]:
        nearest = jnp.minimum(nearest, t)
    return tuple(jnp.where(nearest < INF, nearest, -1.0))


# ---- convex shapes -----------------------------------------------------------------------------------------------------------


def _slab(p, v, half):
    """Interval of a line (coordinate p, its slope v) between -half and half."""
    parallel = jnp.abs(v) < TINY
    far = jnp.where(jnp.abs(p) <= half, FAR, -INF)
    inverse = 1.0 / jnp.where(parallel, 1.0, v)
    a, b = (-half - p) * inverse, (half - p) * inverse
    return jnp.where(parallel, -far, jnp.minimum(a, b)), jnp.where(parallel, far, jnp.maximum(a, b))


def _ball(p, v):
    """Interval of a line within the unit ball; with two coordinates: within the cylinder of radius 1."""
    square = dot(v, v)
    parallel = square < TINY
    square = jnp.where(parallel, 1.0, square)
    middle = jnp.where(parallel, 0.0, -dot(p, v) / square)
    nearest = vadd(p, scale(v, middle))
    room = 1.0 - dot(nearest, nearest)
    some = room > TINY
    half = jnp.where(parallel, FAR, jnp.sqrt(jnp.where(some, room, 1.0) / square))
    return jnp.where(some, middle - half, INF), jnp.where(some, middle + half, -INF)


def _shared(*intervals):
    """What intervals have in common; it is empty where it would end before it begins."""
    enter, leave = intervals[0]
    for a, b in intervals[1:]:
        enter, leave = jnp.maximum(enter, a), jnp.minimum(leave, b)
    return enter, leave


def _first(*intervals):
    """Where a ray from 0 on meets the border of the union of intervals, itself an interval; infinite where it does not."""
    enter, leave = INF, -INF
    for a, b in intervals:
        some = a <= b
        enter, leave = jnp.minimum(enter, jnp.where(some, a, INF)), jnp.maximum(leave, jnp.where(some, b, -INF))
    return jnp.where(enter >= 0, enter, jnp.where(leave >= 0, leave, INF))


def _over(a, size):
    """a in units of the size, coordinate by coordinate."""
    return tuple(x / jnp.maximum(s, TINY) for x, s in zip(a, size, strict=True))


def _plane(size, p, v, surface):
    """Seen from its front only; a half extent of zero means no end."""
    facing = v[2] < -TINY
    t = p[2] / jnp.where(facing, -v[2], 1.0)
    for x, slope, half in zip(p[:2], v[:2], size[:2], strict=True):
        facing &= (half <= 0) | (jnp.abs(x + t * slope) <= half)
    return jnp.where(facing & (t >= 0), t, INF)


def _ellipsoid(size, p, v, surface):
    return _first(_ball(_over(p, size), _over(v, size)))


def _sphere(size, p, v, surface):
    return _ellipsoid((size[0],) * 3, p, v, surface)


def _tube(size, p, v):
    around = (size[0],) * 2
    return _shared(_ball(_over(p[:2], around), _over(v[:2], around)), _slab(p[2], v[2], size[1]))


def _cylinder(size, p, v, surface):
    return _first(_tube(size, p, v))


def _capsule(size, p, v, surface):
    around = (size[0],) * 3
    caps = (_ball(_over((p[0], p[1], p[2] - z), around), _over(v, around)) for z in (size[1], -size[1]))
    return _first(_tube(size, p, v), *caps)


def _box(size, p, v, surface):
    return _first(_shared(*map(_slab, p, v, size)))


# ---- triangles ---------------------------------------------------------------------------------------------------------------


def _reach(p, v, corners):
    """Where a line meets the plane of a triangle, and whether it does: not along it, nor where the triangle has no area."""
    a, b, c = corners
    normal = cross(vsub(b, a), vsub(c, a))
    slope = dot(normal, v)
    crosses = slope * slope > jnp.finfo(slope.dtype).eps ** 2 * dot(normal, normal) * dot(v, v)
    return dot(normal, vsub(a, p)) / jnp.where(crosses, slope, 1.0), crosses


def _across(v):
    """Two directions at right angles to a line."""
    x, y, z = (jnp.abs(c) for c in v)
    steep = x > jnp.maximum(y, z)
    first = cross(v, (jnp.where(steep, 0.0, 1.0), jnp.where(steep, 1.0, 0.0), 0.0))
    return first, cross(v, first)


def _through(p, v, across, corners):
    """Where a ray meets a triangle, infinite where it does not. across: see `_across`.

    Seen along the ray, a corner is in the same place for all its triangles, and on which side of an edge the ray passes is uncertain
    by rounding alone; then it passes on both. So no ray slips between triangles.
    """
    seen = [[dot(u, vsub(x, p)) for u in across] for x in corners]
    left = right = True
    for a, b in zip(seen, (*seen[1:], seen[0]), strict=True):
        one, other = a[0] * b[1], a[1] * b[0]
        unsure = 2.0 * jnp.finfo(one.dtype).eps * (jnp.abs(one) + jnp.abs(other))
        left, right = left & (one - other >= -unsure), right & (one - other <= unsure)
    t, crosses = _reach(p, v, corners)
    return jnp.where((left | right) & crosses & (t >= 0), t, INF)


def _found(p, v, corners, hit):
    """Distance to the triangle that a search found."""
    return jnp.where(hit, jnp.maximum(_reach(p, v, corners)[0], 0.0), INF)


def _mesh(size, p, v, mesh: MeshInfo):
    p, v = _over(p, size), _over(v, size)
    triangles = mesh.vertices.value[mesh.faces.value]
    chunks = -(-len(triangles) // CHUNK)
    width = -(-len(triangles) // chunks)
    padded = np.zeros((chunks * width, 3, 3))
    padded[: len(triangles)] = triangles  # the rest has no area
    table = jnp.asarray(padded, p[0].dtype)
    fixed = *jax.lax.stop_gradient((p, v)), _across(jax.lax.stop_gradient(v))

    def nearer(best, chunk):
        nearest, index = best
        first, corners = chunk
        spread = corners.reshape(width, 3, 3, *[1] * p[0].ndim)
        t = _through(*fixed, [[spread[:, i, k] for k in range(3)] for i in range(3)])
        own = jnp.min(t, 0)
        index = jnp.where(own < nearest, first + jnp.argmin(t, 0), index)
        return (jnp.minimum(nearest, own), index), None

    start = jnp.full(p[0].shape, INF, p[0].dtype), jnp.zeros(p[0].shape, int)
    (nearest, index), _ = jax.lax.scan(nearer, start, (jnp.arange(chunks) * width, table.reshape(chunks, width, 3, 3)))
    corners = [[table[:, i, k][index] for k in range(3)] for i in range(3)]
    return _found(p, v, corners, nearest < INF)


# ---- height fields -----------------------------------------------------------------------------------------------------------


def _hfield(size, p, v, field: HfieldInfo):
    """The ground's triangles, the walls below its edges, and the box that it stands on."""
    rows, columns = field.heights.value.shape
    middle, base = 0.5 * size[2], 0.5 * field.base
    sides = _shared(_slab(p[0], v[0], size[0]), _slab(p[1], v[1], size[1]))
    below = _shared(sides, _slab(p[2] + base, v[2], base))
    above = _shared(sides, _slab(p[2] - middle, v[2], middle))
    cells = (0.5 * (columns - 1), 0.5 * (rows - 1), 1.0)
    x, y, z = _over(p, size)
    at = ((x + 1.0) * cells[0], (y + 1.0) * cells[1], z)
    grid = at, tuple(slope * n for slope, n in zip(_over(v, size), cells, strict=True))
    ground = jnp.asarray(field.heights.value.reshape(-1), p[0].dtype)
    t = jnp.minimum(_first(below), _terrain(ground, columns, rows, *grid, above))
    meets = sides[0] <= sides[1]
    for wall in sides:
        t = jnp.minimum(t, jnp.where(meets & _on_wall(ground, columns, rows, *jax.lax.stop_gradient((*grid, wall))), wall, INF))
    return t


def _cell(x, n: int):
    """Number of the cell of a line of n points that a coordinate lies in."""
    return jnp.clip(jnp.floor(jnp.clip(x, 0, n - 2)).astype(int), 0, n - 2)


def _corners(ground, columns: int, i, j):
    """The four corners of a cell: low, then along x."""
    at = j * columns + i
    x, y = i.astype(ground.dtype), j.astype(ground.dtype)
    return [(x + dx, y + dy, ground[at + dy * columns + dx]) for dy in (0, 1) for dx in (0, 1)]


def _on_wall(ground, columns: int, rows: int, p, v, t):
    """Whether a line is below the edge of the ground where it meets the sides."""
    x, y, z = vadd(p, scale(v, t))
    i, j = _cell(x, columns), _cell(y, rows)
    low, right, left, high = (c[2] for c in _corners(ground, columns, i, j))
    x, y = jnp.clip(x - i, 0.0, 1.0), jnp.clip(y - j, 0.0, 1.0)
    edge = (1.0 - y) * ((1.0 - x) * low + x * right) + y * ((1.0 - x) * left + x * high)
    return (t >= 0) & (z >= 0) & (z <= edge)


def _terrain(ground, columns: int, rows: int, p, v, above):
    """Where a ray meets the ground, in units of cells: it looks into the cells one by one, as it passes over them.

    above: the interval within the box around the ground.
    """
    fixed_p, fixed_v = jax.lax.stop_gradient((p, v))
    across = _across(fixed_v)
    enter, leave = jax.lax.stop_gradient(above)
    enter = jnp.maximum(enter, 0.0)
    i, j = (_cell(x + enter * slope, n) for x, slope, n in zip(fixed_p, fixed_v, (columns, rows), strict=False))

    def halves(i, j):
        low, right, left, high = _corners(ground, columns, i, j)
        return (low, right, high), (low, left, high)

    def border(x, slope, number):
        """Where a ray leaves the cell in one direction."""
        still = jnp.abs(slope) < TINY
        return jnp.where(still, INF, (number + (slope > 0) - x) / jnp.where(still, 1.0, slope))

    def look(state):
        i, j, going, _, _ = state
        first, second = (_through(fixed_p, fixed_v, across, half) for half in halves(i, j))
        hit = going & (jnp.minimum(first, second) < INF)
        ends = [border(x, slope, n) for x, slope, n in zip(fixed_p, fixed_v, (i, j), strict=False)]
        on = going & ~hit & (jnp.minimum(*ends) < leave)
        along = ends[0] < ends[1]
        next_i = i + jnp.where(on & along, jnp.where(fixed_v[0] > 0, 1, -1), 0)
        next_j = j + jnp.where(on & ~along, jnp.where(fixed_v[1] > 0, 1, -1), 0)
        on &= (next_i >= 0) & (next_i < columns - 1) & (next_j >= 0) & (next_j < rows - 1)
        return jnp.where(on, next_i, i), jnp.where(on, next_j, j), on, state[3] | hit, jnp.where(hit, second < first, state[4])

    nobody = jnp.zeros(i.shape, bool)
    i, j, _, hit, upper = jax.lax.while_loop(lambda s: jnp.any(s[2]), look, (i, j, enter <= leave, nobody, nobody))
    first, second = halves(i, j)
    return _found(p, v, jax.tree.map(lambda a, b: jnp.where(upper, b, a), first, second), hit)


SHAPES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "plane": _plane,
    "sphere": _sphere,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "box": _box,
    "mesh": _mesh,
    "hfield": _hfield,
}
"""Of geoms of each shape: size, origins and directions in their frames, mesh or height field -> distances."""
