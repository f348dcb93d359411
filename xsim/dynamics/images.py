"""What rays, cameras and height scanners see: arrays for observations, computed by ray casting.

A ray hits the visible geoms of the shapes in `rays.SHAPES`. Distances are exact and have derivatives. Rays hit no flexes, tendons or sites.
Rays are cast in blocks, so that memory does not grow with their number.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.call import Call, compiled
from xsim.dynamics.forward import split_views
from xsim.dynamics.sensors.cameras import cameras
from xsim.dynamics.sensors.rangefinders import pixel_rays
from xsim.dynamics.sensors.rays import SHAPES, Rays, Surfaces, Target, cast
from xsim.dynamics.tree import kinematics as kin
from xsim.dynamics.tree.frames import geom_end
from xsim.model.colors import color as color_of
from xsim.model.model import Model
from xsim.model.table import Table
from xsim.model.topology import MeshInfo, Topology

__all__ = ["CameraImage", "RayHits", "camera_image", "cast_rays", "height_scan"]

NO_BODY = -2
"""The body whose geoms rays do not hit: none (-1 is the world)."""
BLOCK_ON_CPU, BLOCK_ON_GPU = 2**13, 2**20
"""Rays of all environments that are cast at a time."""
AMBIENT = 0.35
"""Brightness of a surface along the ray that sees it; 1 across it, as with a lamp at the camera."""


class RayHits(NamedTuple):
    """What rays hit. distance (*batch, rays): m, -1 if nothing. normal (*batch, rays, 3): of the surface, outwards, world axes, 0 if
    nothing. geom (*batch, rays): index in ``model.topology.geoms``, -1 if nothing."""

    distance: jax.Array
    normal: jax.Array
    geom: jax.Array


class CameraImage(NamedTuple):
    """Pixels of a camera, rows from the top. depth (*batch, height, width): distance along the camera's axis, m, -1 if there is nothing.
    segmentation (*batch, height, width): index of the geom in ``model.topology.geoms``, -1 if there is nothing. color (*batch, height,
    width, 3): red, green, blue, 0 to 1."""

    depth: jax.Array
    segmentation: jax.Array
    color: jax.Array


@functools.partial(compiled, static_argnames="fixed_only")
def cast_rays(model: Model, q, origin, direction, *, fixed_only: bool = False) -> RayHits:
    """The nearest surface along each ray. A ray that starts inside a shape hits it from the inside.

    q (*batch, nq). origin, direction (*batch, rays, 3) or (rays, 3): world axes; origins in m, directions of any length but zero.
    fixed_only: hit only geoms of the world and of bodies that cannot move, for example a terrain. Raises ValueError for rays of a wrong
    shape.
    """
    q, origin, direction = (jnp.asarray(x) for x in (q, origin, direction))
    for name, x in (("origin", origin), ("direction", direction)):
        if x.ndim < 2 or x.shape[-1] != 3:
            raise ValueError(f"{name} must have shape (*batch, rays, 3), found {x.shape}")
    direction = direction / jnp.linalg.norm(direction, axis=-1, keepdims=True)
    batch = jnp.broadcast_shapes(q.shape[:-1], origin.shape[:-2], direction.shape[:-2])
    c = Call(model, jnp.broadcast_to(q, (*batch, model.nq)))
    return _cast(c, kin.frames(c.system, c.q), origin, direction, fixed_only)


@functools.partial(compiled, static_argnames=("camera", "width", "height", "background"))
def camera_image(
    model: Model, q, camera: str | int = 0, *, width: int | None = None, height: int | None = None,
    background: tuple[float, float, float] = (0.75, 0.85, 0.95),
) -> CameraImage:  # fmt: skip
    """Depth, segmentation and colour that a camera of the model sees, by one ray through the centre of each pixel.

    q (*batch, nq). camera: name or index. width, height: in pixels (default: the resolution of the file). background: colour where there is
    nothing. Depth is exact. Colours are those of the geoms, lit from the camera; textures, lights and transparency are left out.

    Raises KeyError for an unknown camera and ValueError for a width or height below 1.
    """
    number = _camera(model, camera)
    info = model.topology.cameras[number]
    width, height = (x if given is None else given for given, x in zip((width, height), info.resolution, strict=True))
    if width < 1 or height < 1:
        raise ValueError(f"width and height must be at least 1, found {width} and {height}")
    info = info._replace(resolution=(width, height))
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    view = cameras(c.system, frame, split_views(model, c.lanes)[0])[number]
    pos, R = c.rows([view.pos], 3)[..., 0, :], c.rows([view.R], 3, 3)[..., 0, :, :]
    origins, directions = (jnp.asarray(x, c.dtype) for x in pixel_rays(info))
    turned = [jnp.einsum("...ij,nj->...ni", R, x) for x in (origins, directions)]
    hits = _cast(c, frame, pos[..., None, :] + turned[0], turned[1])
    hit = hits.geom >= 0
    depth = jnp.where(hit, hits.distance * -directions[:, 2], -1.0)
    facing = jnp.abs(jnp.sum(hits.normal * turned[1], -1))
    palette = jnp.asarray(np.array([color_of(g.rgba, g.body)[:3] for g in model.topology.geoms]).reshape(-1, 3), c.dtype)
    palette = jnp.concatenate([palette, jnp.asarray([background], c.dtype)])
    color = palette[hits.geom] * jnp.where(hit, AMBIENT + (1.0 - AMBIENT) * facing, 1.0)[..., None]
    shape = (*hits.geom.shape[:-1], *info.resolution[::-1])
    return CameraImage(depth.reshape(shape), hits.geom.reshape(shape), color.reshape(*shape, 3))


@functools.partial(compiled, static_argnames=("body", "reach"))
def height_scan(model: Model, q, body: str | int, points, *, reach: float = 2.0):
    """Height of the ground around a body, as legged robots observe their terrain: (*batch, n), m, relative to the body's origin.

    q (*batch, nq). body: name or index. points (n, 2): where to look, m, in the frame of the body without roll and pitch. reach: m; rays
    start this much above the body's origin and end this much below; -reach where they hit nothing. The ground is what cannot move.

    Raises KeyError for an unknown body, ValueError for points of a wrong shape.
    """
    points = jnp.asarray(points)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"points must have shape (n, 2), found {points.shape}")
    index = model.body_index(body)
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    pose = kin.body_poses(c.system, frame)[index]
    pos, (w, x, y, z) = c.rows([pose.pos], 3)[..., 0, :], jnp.moveaxis(c.rows([pose.quat], 4)[..., 0, :], -1, 0)
    yaw = jnp.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))[..., None]
    points = points.astype(c.dtype)
    forward, left = points[:, 0], points[:, 1]
    cos, sin = jnp.cos(yaw), jnp.sin(yaw)
    offset = [cos * forward - sin * left, sin * forward + cos * left, jnp.full_like(yaw * forward, reach)]
    origin = pos[..., None, :] + jnp.stack(offset, -1)
    hits = _cast(c, frame, origin, jnp.array([[0.0, 0.0, -1.0]], c.dtype), True)
    found = (hits.geom >= 0) & (hits.distance <= 2 * reach)
    return jnp.where(found, reach - hits.distance, -reach)


def _camera(model: Model, camera: str | int) -> int:
    """The index of a camera."""
    names = [info.name for info in model.topology.cameras]
    if camera in names:
        return names.index(camera)
    if isinstance(camera, int) and 0 <= camera < len(names):
        return camera
    raise KeyError(f"no camera {camera!r}; cameras: {', '.join(map(repr, names)) or 'none'}")


def _cast(c: Call, frame: kin.Frames, origin, direction, fixed_only: bool = False) -> RayHits:
    """`cast_rays` of a call whose batch is that of the rays. direction: unit vectors."""
    count = jnp.broadcast_shapes(jnp.shape(origin)[-2:], jnp.shape(direction)[-2:])[0]
    lines = [c.lanes.last(jnp.broadcast_to(jnp.asarray(x, c.dtype), (*c.lanes.batch, count, 3)), 2) for x in (origin, direction)]
    numbers, targets = _targets(c, frame, fixed_only)
    distance, normal, geom = _cast_in_blocks(_surfaces(c.model.topology), targets, numbers, *lines)
    return RayHits(_rows(c, distance), jnp.stack([_rows(c, x) for x in normal], -1), _rows(c, geom))


def _targets(c: Call, frame: kin.Frames, fixed_only: bool) -> tuple[np.ndarray, list[Target]]:
    """Indices of the geoms that rays hit, and the geoms."""
    top = c.model.topology
    numbers = [
        i for i, info in enumerate(top.geoms)
        if info.visible and info.opaque and info.shape in SHAPES and (info.shape != "mesh" or info.asset is not None)
        and not (fixed_only and info.body >= 0 and top.bodies[info.body].link >= 0)
    ]  # fmt: skip
    targets = []
    for i in numbers:
        info, end = top.geoms[i], geom_end(c.system, frame, i)
        size = tuple(np.pad(info.size, (0, 3 - len(info.size)))) if info.row is None else c.system.geom.size[info.row]
        if info.shape == "sdf":
            info = info._replace(shape="mesh")
        if info.shape == "hfield" and not top.hfields:
            info = info._replace(shape="mesh", asset=len(top.drawing.meshes) + info.asset)
        targets.append(Target(info, end.world, end.R, size))
    return np.array([*numbers, -1]), targets


def _surfaces(topology: Topology) -> Surfaces:
    """All meshes, and the height fields. A model in which nothing collides with height fields has their triangles, after the meshes."""
    drawn = (*topology.drawing.meshes, *(() if topology.hfields else topology.drawing.hfields))
    empty = Table(np.zeros((0, 3)))
    return Surfaces(tuple(MeshInfo(*((empty, empty) if x is None else (x.vertices, x.faces))) for x in drawn), topology.hfields, {})


def _cast_in_blocks(surfaces: Surfaces, targets: list[Target], numbers, origin, direction):
    """Distance, normal and number of the geom, (rays, lanes) each. origin, direction: (rays, 3, lanes)."""
    count, _, lanes = origin.shape
    most = max(1, (BLOCK_ON_CPU if jax.default_backend() == "cpu" else BLOCK_ON_GPU) // lanes)
    blocks = -(-count // most)
    width = -(-count // blocks)

    def block(rays):
        origin, direction = (tuple(x[:, k] for k in range(3)) for x in rays)
        (hits,) = cast(surfaces, [Rays(NO_BODY, origin, direction)], targets, True)
        assert hits.normal is not None
        return hits.distance, hits.normal, jnp.asarray(numbers)[hits.target]

    if blocks == 1:
        return block((origin, direction))
    padding = [jnp.repeat(x[:1], blocks * width - count, 0) for x in (origin, direction)]
    padded = [jnp.concatenate(x).reshape(blocks, width, 3, lanes) for x in zip((origin, direction), padding, strict=True)]
    return jax.tree.map(lambda x: x.reshape(blocks * width, lanes)[:count], jax.lax.map(block, tuple(padded)))


def _rows(c: Call, x):
    """(rays, lanes) as (*batch, rays)."""
    if not c.lanes.width:
        return x[:, 0]
    return x.T[: math.prod(c.lanes.batch)].reshape(*c.lanes.batch, -1)
