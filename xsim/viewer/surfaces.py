"""Points and polygons of what a scene draws: geoms in their frames, flexes and skins in the world."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from xsim.model.drawing import SurfaceInfo
from xsim.poses import Pose, rotate
from xsim.viewer.scene import Scene
from xsim.viewer.shapes import SHAPES, convex_faces

__all__ = ["geom_polygons", "reach", "shape_polygons", "surface_vertices", "triangulated"]


def geom_polygons(scene: Scene, i: int, far: float) -> tuple[np.ndarray, Any] | None:
    """Points (n, 3) of a drawn geom in its frame, m, and the point numbers of each face; None of a shape without faces.

    far: half the width of planes without bounds, m."""
    surface, shape, size = scene.surfaces[i], scene.geoms[i].shape, scene.size[0, i]
    if surface is not None:
        return surface.vertices.value * size, surface.faces.value
    if shape == "plane":
        x, y = (s if s > 0 else far for s in size[:2])
        return np.array([[-x, -y, 0], [x, -y, 0], [x, y, 0], [-x, y, 0]]), [[0, 1, 2, 3]]
    return shape_polygons(shape, size) if shape in SHAPES else None


def shape_polygons(shape: str, size: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Points (n, 3) of a convex shape of this size, m, and the point numbers of each face."""
    polygons = convex_faces(shape, tuple(size.tolist()))
    ends = np.cumsum([0, *map(len, polygons)])
    points, number = np.unique(np.concatenate(polygons).round(9), axis=0, return_inverse=True)
    return points, [number.ravel()[a:b] for a, b in zip(ends[:-1], ends[1:], strict=True)]


def triangulated(faces: Sequence) -> np.ndarray:
    """Convex polygons, given by the point numbers of each, as triangles (n, 3)."""
    return np.array([(face[0], face[k], face[k + 1]) for face in faces for k in range(1, len(face) - 1)], np.int32).reshape(-1, 3)


def reach(scene: Scene) -> float:
    """Half the size of what moves in the first environment, m."""
    points = scene.pos[:, 0].reshape(-1, 3)
    finite = points[np.isfinite(points).all(-1)]
    span = np.ptp(finite, 0) if len(finite) else np.zeros(3)
    own = [0.05]
    for i, geom in enumerate(scene.geoms):
        if geom.body >= 0:
            surface, size = scene.surfaces[i], scene.size[0, i]
            far = size.max() if surface is None else np.abs(surface.vertices.value * size).max()
            own.append(float(far + np.linalg.norm(scene.geom_pos[0, i])))
    return 0.5 * float(np.linalg.norm(span)) + max(own)


def surface_vertices(info: SurfaceInfo, pos: np.ndarray, quat: np.ndarray) -> np.ndarray:
    """World positions (n, 3) of the vertices of a flex or skin, m. pos (nbody, 3), quat (nbody, 4): poses of the bodies."""
    world = Pose(np.concatenate([quat, [[1.0, 0, 0, 0]]]), np.concatenate([pos, np.zeros((1, 3))]))  # the world is body -1
    bodies = info.bodies.value
    points = rotate(world.quat[bodies], info.points.value.astype(float)) + world.pos[bodies]
    out = np.zeros((info.count, 3))
    np.add.at(out, info.vertices.value, info.weights.value[:, None] * points)
    return out
