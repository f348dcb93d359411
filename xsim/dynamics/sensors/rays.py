"""Ray casting: the distance along a ray to the nearest surface, and its normal. Source: MuJoCo's documentation, functions mj_ray and
mj_rayHfield.

All rays are tested against all geoms of one shape as a batch: components are arrays (geoms, rays, lanes). A line intersects a convex
solid in one interval. The interval of the intersection of two solids begins at the later entry and ends at the earlier exit. The search
for the triangle of a mesh or height field that a ray hits has no derivatives. The distance to this triangle has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.sensors.sdf_rays import DistanceField, distance_along, outer_normal
from xsim.dynamics.sensors.site_volumes import VOLUMES
from xsim.model.topology import GeomInfo, HfieldInfo, MeshInfo
from xsim.spatial import Component, Vector, apply, apply_inverse, cross, dot, normalize, scale, stage, vadd, vsub

MIN_VALUE = 1e-15
"""A direction or a square below this counts as zero (MuJoCo's mjMINVAL)."""
CHUNK = 1024
"""Number of triangles that are tested against all rays at a time."""
FAR = 1.0 / MIN_VALUE
"""End of the interval of a line that does not leave a shape (m)."""
INF = float("inf")


class Rays(NamedTuple):
    """Half-lines. They do not hit the geoms of ``body`` (-1: the world). origin: world, m. direction: unit vectors, world axes. The first
    axis of their components counts the rays."""

    body: int
    origin: Vector
    direction: Vector


class Hits(NamedTuple):
    """What rays hit. distance (m): -1 if nothing. normal: unit vector from the inside of the surface to the outside, world axes; zero if
    nothing. target: index of the target, -1 if nothing. Normal and target are None if they are not wanted. The first axis counts the
    rays."""

    distance: Component
    normal: Vector | None
    target: Component | None


class Target(NamedTuple):
    """A geom: its world position (m), the rows of its rotation matrix to the world, and its size (see `Shape`)."""

    info: GeomInfo
    pos: Vector
    R: tuple
    size: Vector


class Surfaces(NamedTuple):
    """The meshes and height fields of geoms, by their number (`GeomInfo.asset`), and the signed distance functions, by that of their
    mesh."""

    meshes: tuple[MeshInfo, ...]
    hfields: tuple[HfieldInfo, ...]
    sdfs: dict[int, DistanceField]


def cast(surfaces: Surfaces, rays: list[Rays], targets: list[Target], normals: bool = False) -> list[Hits]:
    """The nearest surface along each ray. If the ray starts inside a shape, where it leaves the shape. normals: whether normals and targets
    are wanted."""
    counts = [jnp.shape(line.direction[0])[0] for line in rays]
    if not targets:
        none = [jnp.zeros(jnp.shape(line.direction[0])) for line in rays]
        return [Hits(x - 1.0, (x, x, x) if normals else None, jnp.full(x.shape, -1) if normals else None) for x in none]
    groups: dict[tuple, list[int]] = {}
    for index, target in enumerate(targets):
        groups.setdefault((target.info.shape, target.info.asset), []).append(index)
    leaves = jax.tree.leaves(([line[1:] for line in rays], [target[1:] for target in targets]))
    lanes = [jnp.shape(x)[1:] for x in jax.tree.leaves([line[1:] for line in rays])]
    like = jnp.result_type(*leaves), jnp.broadcast_shapes(*lanes, *map(jnp.shape, jax.tree.leaves([target[1:] for target in targets])))
    lines = _joined_rays([line[1:] for line in rays], *like)
    hits = []
    for (shape, asset), indices in groups.items():
        group = [targets[i] for i in indices]
        of_shape = {"mesh": surfaces.meshes, "hfield": surfaces.hfields, "sdf": surfaces.sdfs}.get(shape)
        surface = None if of_shape is None else of_shape[asset]
        hidden = np.array([np.repeat([line.body == target.info.body for line in rays], counts) for target in group])
        geoms = _stack_components([target[1:] for target in group], *like)
        hits.append(_nearest(shape, surface, normals, np.array(indices), hidden, lines, geoms))
    return list(_divided(tuple(counts), hits))


@stage
def _stack_components(trees, dtype, lanes: tuple):
    """The components of many geoms as one array each, (geoms, 1, lanes)."""
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    arrays = [jnp.stack([jnp.broadcast_to(jnp.asarray(x, dtype), lanes) for x in column])[:, None] for column in columns]
    return jax.tree.unflatten(jax.tree.structure(trees[0]), arrays)


@stage
def _joined_rays(trees, dtype, lanes: tuple):
    """The components of all rays as one array each, (1, rays, lanes)."""
    columns = zip(*map(jax.tree.leaves, trees), strict=True)
    arrays = [[jnp.broadcast_to(jnp.asarray(x, dtype), (jnp.shape(x)[0], *lanes)) for x in column] for column in columns]
    return jax.tree.unflatten(jax.tree.structure(trees[0]), [jnp.concatenate(column)[None] for column in arrays])


@stage
def _nearest(shape: str, surface, normals: bool, indices, hidden, lines, geoms):
    """The distance along each ray to the nearest geom of one shape, (rays, lanes), its normal and its index. Infinite if it hits none.
    surface: the mesh, height field or signed distance function. indices: of the geoms among the targets. hidden: for each geom, the
    rays that do not see it."""
    (origin, direction), (pos, R, size) = lines, geoms
    p, v = apply_inverse(R, vsub(origin, pos)), apply_inverse(R, direction)
    t, facing = _distance_and_normal(shape, surface, size, p, v) if normals else (SHAPES[shape](size, p, v, surface), None)
    hidden = np.reshape(hidden, (*np.shape(hidden), *[1] * (t.ndim - 2)))
    t = jnp.where(hidden, INF, t)
    if facing is None:
        return jnp.min(t, 0), None, None
    index = jnp.argmin(t, 0)
    distance, normal = jax.tree.map(lambda x: jnp.take_along_axis(x, index[None], 0)[0], (t, apply(R, facing)))
    return distance, normal, jnp.asarray(indices)[index]


def _distance_and_normal(shape: str, surface, size, p, v):
    """The distance t along each ray, and the outer normal in the geom's frame.

    Where the origin of a ray moves by dp, t changes by -n.dp / (n.v). So the gradient of t is along the normal, against the ray.
    """
    if shape == "sdf":
        t = _sdf(size, p, v, surface)
        return t, outer_normal(p, v, surface, t)
    t, pull = jax.vjp(lambda p: SHAPES[shape](size, p, v, surface), p)
    (gradient,) = pull(jnp.ones_like(t))
    facing = normalize(gradient)
    leaves = LEAVES[shape](size, p, v, surface)
    return t, tuple(jnp.where(leaves, -x, x) for x in facing)


@stage
def _divided(counts: tuple, hits):
    """The nearest of the hits of all shapes, divided among the bundles of rays; distance -1, normal 0 and target -1 where nothing is
    hit."""
    distance, normal, target = hits[0]
    for t, n, index in hits[1:]:
        if n is not None:
            nearer = t < distance
            normal = tuple(jnp.where(nearer, a, b) for a, b in zip(n, normal, strict=True))
            target = jnp.where(nearer, index, target)
        distance = jnp.minimum(distance, t)
    found = distance < INF
    distance = jnp.where(found, distance, -1.0)
    if normal is not None:
        normal, target = tuple(jnp.where(found, x, 0.0) for x in normal), jnp.where(found, target, -1)
    ends = np.cumsum(counts)
    parts = [slice(int(end) - n, int(end)) for end, n in zip(ends, counts, strict=True)]
    return [Hits(*jax.tree.map(lambda x, part=part: x[part], (distance, normal, target))) for part in parts]


# ---- convex shapes -----------------------------------------------------------------------------------------------------------


def _slab_interval(p, v, half):
    """The interval of a line p + t v in which one of its coordinates is between -half and half."""
    parallel = jnp.abs(v) < MIN_VALUE
    far = jnp.where(jnp.abs(p) <= half, FAR, -INF)
    inverse = 1.0 / jnp.where(parallel, 1.0, v)
    a, b = (-half - p) * inverse, (half - p) * inverse
    return jnp.where(parallel, -far, jnp.minimum(a, b)), jnp.where(parallel, far, jnp.maximum(a, b))


def _ball_interval(p, v):
    """The interval of a line p + t v inside the unit ball, or, with two coordinates, inside the infinite cylinder of radius 1."""
    square = dot(v, v)
    parallel = square < MIN_VALUE
    square = jnp.where(parallel, 1.0, square)
    middle = jnp.where(parallel, 0.0, -dot(p, v) / square)
    nearest = vadd(p, scale(v, middle))
    depth = 1.0 - dot(nearest, nearest)
    hits = depth > MIN_VALUE
    half = jnp.where(parallel, FAR, jnp.sqrt(jnp.where(hits, depth, 1.0) / square))
    return jnp.where(hits, middle - half, INF), jnp.where(hits, middle + half, -INF)


def _intersection(*intervals):
    """The intersection of intervals (begin, end). It is empty if it ends before it begins."""
    enter, leave = intervals[0]
    for a, b in intervals[1:]:
        enter, leave = jnp.maximum(enter, a), jnp.minimum(leave, b)
    return enter, leave


def _first_hit(*intervals):
    """The smallest t >= 0 at which the union of intervals begins or ends. The union must be one interval. Infinite if there is no such
    t."""
    enter, leave = INF, -INF
    for a, b in intervals:
        nonempty = a <= b
        enter, leave = jnp.minimum(enter, jnp.where(nonempty, a, INF)), jnp.maximum(leave, jnp.where(nonempty, b, -INF))
    return jnp.where(enter >= 0, enter, jnp.where(leave >= 0, leave, INF))


def _divide(a, size):
    """a divided by the size, for each coordinate."""
    return tuple(x / jnp.maximum(s, MIN_VALUE) for x, s in zip(a, size, strict=True))


def _plane(size, p, v, surface):
    """A plane is visible from its front only. A half extent of zero means that it is infinite."""
    facing = v[2] < -MIN_VALUE
    t = p[2] / jnp.where(facing, -v[2], 1.0)
    for x, slope, half in zip(p[:2], v[:2], size[:2], strict=True):
        facing &= (half <= 0) | (jnp.abs(x + t * slope) <= half)
    return jnp.where(facing & (t >= 0), t, INF)


def _ellipsoid(size, p, v, surface):
    return _first_hit(_ball_interval(_divide(p, size), _divide(v, size)))


def _sphere(size, p, v, surface):
    return _ellipsoid((size[0],) * 3, p, v, surface)


def _tube_interval(size, p, v):
    around = (size[0],) * 2
    return _intersection(_ball_interval(_divide(p[:2], around), _divide(v[:2], around)), _slab_interval(p[2], v[2], size[1]))


def _cylinder(size, p, v, surface):
    return _first_hit(_tube_interval(size, p, v))


def _capsule(size, p, v, surface):
    around = (size[0],) * 3
    caps = (_ball_interval(_divide((p[0], p[1], p[2] - z), around), _divide(v, around)) for z in (size[1], -size[1]))
    return _first_hit(_tube_interval(size, p, v), *caps)


def _box(size, p, v, surface):
    return _first_hit(_intersection(*map(_slab_interval, p, v, size)))


# ---- triangles ---------------------------------------------------------------------------------------------------------------


def _plane_distance(p, v, corners):
    """The distance along a line to the plane of a triangle, and whether it crosses the plane: it is not parallel, and the triangle has an
    area."""
    a, b, c = corners
    normal = cross(vsub(b, a), vsub(c, a))
    slope = dot(normal, v)
    crosses = slope * slope > jnp.finfo(slope.dtype).eps ** 2 * dot(normal, normal) * dot(v, v)
    return dot(normal, vsub(a, p)) / jnp.where(crosses, slope, 1.0), crosses


def _perpendicular_axes(v):
    """Two directions perpendicular to a line and to each other."""
    x, y, z = (jnp.abs(c) for c in v)
    x_is_largest = x > jnp.maximum(y, z)
    first = cross(v, (jnp.where(x_is_largest, 0.0, 1.0), jnp.where(x_is_largest, 1.0, 0.0), 0.0))
    return first, cross(v, first)


def _hit_triangle(p, v, axes, corners):
    """The distance along a ray to a triangle, infinite if it misses. axes: see `_perpendicular_axes`.

    The corners are projected along the ray. The projection of a corner is the same for all its triangles. If rounding makes it uncertain on
    which side of an edge the ray passes, it counts as passing on both. So no ray passes between two triangles with a common edge.
    """
    projected = [[dot(u, vsub(x, p)) for u in axes] for x in corners]
    left = right = True
    for a, b in zip(projected, (*projected[1:], projected[0]), strict=True):
        first, second = a[0] * b[1], a[1] * b[0]
        error = 2.0 * jnp.finfo(first.dtype).eps * (jnp.abs(first) + jnp.abs(second))
        left, right = left & (first - second >= -error), right & (first - second <= error)
    t, crosses = _plane_distance(p, v, corners)
    return jnp.where((left | right) & crosses & (t >= 0), t, INF)


def _triangle_distance(p, v, corners, hit):
    """The distance, with derivatives, to the triangle that a search has found."""
    return jnp.where(hit, jnp.maximum(_plane_distance(p, v, corners)[0], 0.0), INF)


def _mesh(size, p, v, mesh: MeshInfo):
    p, v = _divide(p, size), _divide(v, size)
    corners, hit = _mesh_triangle(p, v, mesh)
    return _triangle_distance(p, v, corners, hit)


def _leaves_mesh(size, p, v, mesh: MeshInfo):
    """Whether a ray goes through the triangle that it hits from the inside, by the order of its corners."""
    (a, b, c), _ = _mesh_triangle(*jax.lax.stop_gradient((_divide(p, size), _divide(v, size))), mesh)
    return dot(cross(vsub(b, a), vsub(c, a)), _divide(v, size)) > 0


def _mesh_triangle(p, v, mesh: MeshInfo):
    """The corners of the nearest triangle that a ray hits, and whether there is one."""
    triangles = mesh.vertices.value[mesh.faces.value]
    chunks = -(-len(triangles) // CHUNK)
    width = -(-len(triangles) // chunks)
    padded = np.zeros((chunks * width, 3, 3))
    padded[: len(triangles)] = triangles  # the padding has no area
    table = jnp.asarray(padded, p[0].dtype)
    fixed = *jax.lax.stop_gradient((p, v)), _perpendicular_axes(jax.lax.stop_gradient(v))

    def nearer(best, chunk):
        nearest, index = best
        first, corners = chunk
        corners = corners.reshape(width, 3, 3, *[1] * p[0].ndim)
        t = _hit_triangle(*fixed, [[corners[:, i, k] for k in range(3)] for i in range(3)])
        chunk_nearest = jnp.min(t, 0)
        index = jnp.where(chunk_nearest < nearest, first + jnp.argmin(t, 0), index)
        return (jnp.minimum(nearest, chunk_nearest), index), None

    start = jnp.full(p[0].shape, INF, p[0].dtype), jnp.zeros(p[0].shape, int)
    (nearest, index), _ = jax.lax.scan(nearer, start, (jnp.arange(chunks) * width, table.reshape(chunks, width, 3, 3)))
    return [[table[:, i, k][index] for k in range(3)] for i in range(3)], nearest < INF


# ---- height fields -----------------------------------------------------------------------------------------------------------


def _hfield(size, p, v, field: HfieldInfo):
    """The ground's triangles, the walls below its edges, and the box below it."""
    rows, columns = field.heights.value.shape
    middle, base = 0.5 * size[2], 0.5 * field.base
    sides = _intersection(_slab_interval(p[0], v[0], size[0]), _slab_interval(p[1], v[1], size[1]))
    below = _intersection(sides, _slab_interval(p[2] + base, v[2], base))
    above = _intersection(sides, _slab_interval(p[2] - middle, v[2], middle))
    cells = (0.5 * (columns - 1), 0.5 * (rows - 1), 1.0)
    x, y, z = _divide(p, size)
    origin = ((x + 1.0) * cells[0], (y + 1.0) * cells[1], z)
    grid = origin, tuple(slope * n for slope, n in zip(_divide(v, size), cells, strict=True))
    ground = jnp.asarray(field.heights.value.reshape(-1), p[0].dtype)
    t = jnp.minimum(_first_hit(below), _hit_ground(ground, columns, rows, *grid, above))
    hits_sides = sides[0] <= sides[1]
    for wall in sides:
        t = jnp.minimum(t, jnp.where(hits_sides & _is_on_wall(ground, columns, rows, *jax.lax.stop_gradient((*grid, wall))), wall, INF))
    return t


def _cell(x, n: int):
    """The index of the cell, between two of n points, that contains a coordinate."""
    return jnp.clip(jnp.floor(jnp.clip(x, 0, n - 2)).astype(int), 0, n - 2)


def _corners(ground, columns: int, i, j):
    """The four corners of a cell: (x, y), (x+1, y), (x, y+1), (x+1, y+1)."""
    index = j * columns + i
    x, y = i.astype(ground.dtype), j.astype(ground.dtype)
    return [(x + dx, y + dy, ground[index + dy * columns + dx]) for dy in (0, 1) for dx in (0, 1)]


def ground_height(ground, columns: int, rows: int, x, y):
    """The height of the ground at coordinates in cells. The diagonal from its lower to its higher corner divides a cell into two
    triangles."""
    i, j = _cell(x, columns), _cell(y, rows)
    low, right, left, high = (c[2] for c in _corners(ground, columns, i, j))
    x, y = x - i, y - j
    return low + jnp.where(x > y, x * (right - low) + y * (high - right), y * (left - low) + x * (high - left))


def _is_on_wall(ground, columns: int, rows: int, p, v, t):
    """Whether a line hits a side at t between the bottom and the edge of the ground."""
    x, y, z = vadd(p, scale(v, t))
    i, j = _cell(x, columns), _cell(y, rows)
    low, right, left, high = (c[2] for c in _corners(ground, columns, i, j))
    x, y = jnp.clip(x - i, 0.0, 1.0), jnp.clip(y - j, 0.0, 1.0)
    edge = (1.0 - y) * ((1.0 - x) * low + x * right) + y * ((1.0 - x) * left + x * high)
    return (t >= 0) & (z >= 0) & (z <= edge)


def _hit_ground(ground, columns: int, rows: int, p, v, above):
    """The distance along a ray to the ground, in units of cells. The search visits the cells below the ray one after another.

    above: the interval of the ray inside the bounding box of the ground.
    """
    fixed_p, fixed_v = jax.lax.stop_gradient((p, v))
    axes = _perpendicular_axes(fixed_v)
    enter, leave = jax.lax.stop_gradient(above)
    enter = jnp.maximum(enter, 0.0)
    i, j = (_cell(x + enter * slope, n) for x, slope, n in zip(fixed_p, fixed_v, (columns, rows), strict=False))

    def triangles(i, j):
        low, right, left, high = _corners(ground, columns, i, j)
        return (low, right, high), (low, left, high)

    def grown(triangle):
        """A little larger in its plane: a ray on the border of a cell may by rounding be in the cell and beside its triangles."""
        growth = 16 * max(columns, rows) * jnp.finfo(ground.dtype).eps
        centre = tuple(sum(x) / 3.0 for x in zip(*triangle, strict=True))
        return tuple(tuple(x + growth * (x - c) for x, c in zip(corner, centre, strict=True)) for corner in triangle)

    def exit_distance(x, slope, cell):
        """The distance at which a ray leaves the cell along one coordinate."""
        parallel = jnp.abs(slope) < MIN_VALUE
        return jnp.where(parallel, INF, (cell + (slope > 0) - x) / jnp.where(parallel, 1.0, slope))

    def visit_cell(state):
        i, j, active, _, _ = state
        first, second = (_hit_triangle(fixed_p, fixed_v, axes, grown(triangle)) for triangle in triangles(i, j))
        hit = active & (jnp.minimum(first, second) < INF)
        exits = [exit_distance(x, slope, n) for x, slope, n in zip(fixed_p, fixed_v, (i, j), strict=False)]
        active = active & ~hit & (jnp.minimum(*exits) < leave)
        along_x = exits[0] < exits[1]
        next_i = i + jnp.where(active & along_x, jnp.where(fixed_v[0] > 0, 1, -1), 0)
        next_j = j + jnp.where(active & ~along_x, jnp.where(fixed_v[1] > 0, 1, -1), 0)
        active &= (next_i >= 0) & (next_i < columns - 1) & (next_j >= 0) & (next_j < rows - 1)
        is_second = jnp.where(hit, second < first, state[4])
        return jnp.where(active, next_i, i), jnp.where(active, next_j, j), active, state[3] | hit, is_second

    none = jnp.zeros(i.shape, bool)
    i, j, _, hit, is_second = jax.lax.while_loop(lambda s: jnp.any(s[2]), visit_cell, (i, j, enter <= leave, none, none))
    first, second = triangles(i, j)
    return _triangle_distance(p, v, jax.tree.map(lambda a, b: jnp.where(is_second, b, a), first, second), hit)


# ---- signed distance functions ---------------------------------------------------------------------------------------------------


def _sdf(size, p, v, field: DistanceField):
    box = _intersection(*map(_slab_interval, vsub(p, field.info.centre), v, field.info.half))
    return distance_along(p, v, field, _first_hit(box) < INF)


SHAPES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "plane": _plane,
    "sphere": _sphere,
    "capsule": _capsule,
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "box": _box,
    "mesh": _mesh,
    "hfield": _hfield,
    "sdf": _sdf,
}
"""For each shape, a function (size, origin, direction, surface) -> distance. surface: see `Surfaces`. Origin and direction are in the
geom's frame."""


# ---- inside and outside ------------------------------------------------------------------------------------------------------


def _inside(shape: str):
    return lambda size, p, v, surface: VOLUMES[shape](size, p)


def _leaves_ground(size, p, v, field: HfieldInfo):
    """Whether a ray starts below the ground of a height field, between its sides and above its bottom."""
    rows, columns = field.heights.value.shape
    ground = jnp.asarray(field.heights.value.reshape(-1), p[0].dtype)
    scaled = _divide(p, size)
    height = ground_height(ground, columns, rows, 0.5 * (columns - 1) * (scaled[0] + 1.0), 0.5 * (rows - 1) * (scaled[1] + 1.0))
    return (jnp.abs(scaled[0]) < 1.0) & (jnp.abs(scaled[1]) < 1.0) & (p[2] > -field.base) & (scaled[2] < height)


LEAVES: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "plane": lambda size, p, v, surface: False,
    **{shape: _inside(shape) for shape in ("sphere", "capsule", "ellipsoid", "cylinder", "box")},
    "mesh": _leaves_mesh,
    "hfield": _leaves_ground,
}
"""For each shape, whether a ray that hits it comes from the inside; arguments as those of `SHAPES`."""
