"""Rangefinders: what rays from sites and from the pixels of cameras hit. Source: MuJoCo's documentation, sensor rangefinder."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.sensors.rays import Hits, Rays, Surfaces, Target, cast
from xsim.dynamics.sensors.sdf_rays import distance_fields
from xsim.model.topology import RANGE_FIELDS, CameraInfo
from xsim.spatial import Vector, dot, mul, scale, vadd

KIND = "rangefinder"


def rangefinder(context, info) -> tuple:
    """The fields of a sensor, ray by ray."""
    rays, hits = context.range_hits[info.object]
    frame = context.frame_of(info.object)
    axis = tuple(mul(1.0 if info.object[0] == "site" else -1.0, row[2]) for row in frame.R)
    fields = _fields(info.data or ("dist",), rays, hits, axis)
    return tuple(x[ray] for ray in range(len(fields[0])) for x in fields)


def _fields(names: tuple[str, ...], rays: Rays, hits: Hits, axis: Vector) -> list:
    """The components of the fields of all rays, (rays, lanes) each. axis: along which depths are measured."""
    hit = hits.distance >= 0
    found = {
        "dist": lambda: (hits.distance,),
        "dir": lambda: tuple(jnp.where(hit, x, 0.0) for x in rays.direction),
        "origin": lambda: rays.origin,
        "point": lambda: tuple(jnp.where(hit, x, 0.0) for x in vadd(rays.origin, scale(rays.direction, hits.distance))),
        "normal": lambda: hits.normal,
        "depth": lambda: (jnp.where(hit, hits.distance * dot(rays.direction, axis), -1.0),),
    }
    assert set(found) == set(RANGE_FIELDS)
    return [jnp.broadcast_to(x, hits.distance.shape) for name in names for x in found[name]()]


def range_hits(context) -> dict:
    """For each site and camera with a rangefinder, its rays and what they hit: visible geoms of other bodies."""
    top = context.system.topology
    sensors = [info for info in top.sensors if info.kind == KIND]
    rays = {info.object: _rays(context, info.object) for info in sensors}
    targets = []
    for number, info in enumerate(top.geoms):
        if info.opaque and any(info.body != line.body for line in rays.values()):
            frame = context.frame_of(("geom", number))
            targets.append(Target(info, frame.pos, frame.R, context.system.geom.size[info.row]))
    normals = any("normal" in info.data for info in sensors)
    surfaces = Surfaces(top.meshes, top.hfields, distance_fields(context.system))
    hits = cast(surfaces, list(rays.values()), targets, normals)
    return {item: (rays[item], found) for item, found in zip(rays, hits, strict=True)}


def _rays(context, item) -> Rays:
    """One ray along the z axis of a site; one for each pixel of a camera, row by row from the top left."""
    frame = context.frame_of(item)
    if item[0] == "site":
        origins, directions = np.zeros((1, 3)), np.array([[0.0, 0.0, 1.0]])
    else:
        origins, directions = pixel_rays(context.system.topology.cameras[item[1]])
    lanes = (1,) * len(context.lanes)
    turned = [_turned(frame.R, x.T.reshape(3, -1, *lanes)) for x in (origins, directions)]
    return Rays(frame.body, vadd(frame.pos, turned[0]), turned[1])


def _turned(R, x) -> Vector:
    """Constant vectors (3, rays, ...) in world axes."""
    return tuple(jnp.asarray(sum(jnp.asarray(row[k]) * x[k] for k in range(3))) for row in R)


def pixel_rays(camera: CameraInfo) -> tuple[np.ndarray, np.ndarray]:
    """Origins and directions (pixels, 3) of the rays through the centres of the pixels, in the camera's frame.

    An orthographic camera sees a square, whatever its resolution.
    """
    width, height = camera.resolution
    row, column = (x.reshape(-1) + 0.5 for x in np.mgrid[:height, :width])
    ahead = np.tile([0.0, 0.0, -1.0], (len(row), 1))
    if camera.orthographic:
        x, y = (column / width - 0.5) * camera.fovy, (0.5 - row / height) * camera.fovy
        return np.column_stack([x, y, 0 * x]), ahead
    (fx, fy), (cx, cy) = focal_lengths(camera), (0.5 * width, 0.5 * height)
    if all(camera.sensor_size):
        cx, cy = (camera.intrinsic[2 + i] / camera.sensor_size[i] * camera.resolution[i] for i in (0, 1))
    through = np.column_stack([(column - cx) / fx, (cy - row) / fy, -np.ones(len(row))])
    return 0 * ahead, through / np.linalg.norm(through, axis=1)[:, None]


def focal_lengths(camera: CameraInfo) -> tuple[float, float]:
    """In pixels, along x and y."""
    width, height = camera.resolution
    if all(camera.sensor_size):
        return camera.intrinsic[0] / camera.sensor_size[0] * width, camera.intrinsic[1] / camera.sensor_size[1] * height
    focal = 0.5 * height / math.tan(0.5 * camera.fovy)
    return focal, focal
