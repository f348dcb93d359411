"""How geoms, flexes and skins are painted: their colour, their material, and the pictures of its texture."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.model.colors import color
from xsim.model.drawing import LookInfo, MaterialInfo, SurfaceInfo
from xsim.model.topology import Topology
from xsim.viewer.scene import Scene
from xsim.viewer.surfaces import geom_polygons, triangulated
from xsim.viewer.textures import mean_color, texture_images

__all__ = [
    "Finish", "Mapping", "geom_finish", "missing_textures", "shown_color", "sky_images", "surface_finish", "texture_mapping",
    "textured_triangles",
]  # fmt: skip


class Finish(NamedTuple):
    """rgba: 0 to 1; pictures are multiplied by it. images: one picture, six sides of a cube, or none. repeat: copies of a plane picture
    along x and y, per meter where `uniform`, else per object. material: None without."""

    rgba: tuple[float, ...]
    images: tuple[np.ndarray, ...] = ()
    repeat: tuple[float, float] = (1.0, 1.0)
    uniform: bool = False
    material: MaterialInfo | None = None


def geom_finish(scene: Scene, i: int) -> Finish:
    """How a drawn geom is painted: as its material says, or by the picture of its mesh file where the model says no colour."""
    geom, image = scene.geoms[i], scene.images[i]
    if image is not None and geom.rgba is None:
        return Finish((1.0, 1.0, 1.0, 1.0), (image,))
    return _finish(scene.model.topology, color(geom.rgba, geom.body), scene.looks[i])


def surface_finish(topology: Topology, info: SurfaceInfo) -> Finish:
    """How a flex or skin is painted; textures need its texture coordinates."""
    finish = _finish(topology, color(info.rgba, int(info.bodies.value[0])), info.look)
    if finish.images and (info.texcoords is None or len(finish.images) > 1):
        return finish._replace(images=(), rgba=shown_color(finish))
    return finish


def shown_color(finish: Finish) -> tuple[float, ...]:
    """The colour of a surface that is drawn without its picture: with the mean of the picture."""
    if not finish.images:
        return finish.rgba
    return (*map(float, np.array(finish.rgba[:3]) * mean_color(finish.images)), finish.rgba[3])


def sky_images(topology: Topology) -> tuple[np.ndarray, ...]:
    """The six sides of the picture around the scene, or none."""
    if topology.drawing.sky < 0:
        return ()
    images = texture_images(topology.drawing.textures[topology.drawing.sky])
    return () if isinstance(images, str) else images


def missing_textures(scene: Scene) -> list[str]:
    """The textures of the scene that cannot be drawn, and why."""
    drawing = scene.model.topology.drawing
    looks = [*scene.looks, *(surface.look for surface in drawing.surfaces)]
    used = {drawing.materials[look.material].texture for look in looks if look is not None} | {drawing.sky}
    found = {drawing.textures[i].name: texture_images(drawing.textures[i]) for i in sorted(used - {-1})}
    return [f"texture {name} ({why})" for name, why in found.items() if isinstance(why, str)]


class Mapping(NamedTuple):
    """Where a picture is on a geom: factors (envs or 1, 3) multiply coordinates. given: those of the vertices, for the place in the
    picture, (0, 0) at its first row and column. Else those of points (x, y, z) in the frame of the geom, m: for the direction into a cube,
    or for (x, y, z), where (x - 0.5, -y - 0.5) is the place in the picture."""

    factors: np.ndarray
    given: bool


def texture_mapping(scene: Scene, i: int, finish: Finish) -> Mapping:
    """The mapping of the picture of a drawn geom, as MuJoCo 4.0 draws it: unit shapes and bounded planes have coordinates of their own
    (`texcoord` in shapes.js), other planes, height fields and meshes without coordinates have those of points."""
    shape, size, surface = scene.geoms[i].shape, scene.size[:, i], scene.surfaces[i]
    half = size[:, _HALF.get(shape, [0, 1, 2])]
    if surface is not None and shape != "hfield":
        half = size * np.abs(surface.vertices.value).max(0)
    bounded = np.where(half > 0, half, 1.0)
    if len(finish.images) > 1:
        unit = shape != "plane" and surface is None
        return Mapping((bounded if finish.uniform else np.ones_like(bounded)) / (bounded if unit else 1.0), False)
    repeat = np.array([*finish.repeat, 0.0])
    if surface.texcoords is not None if surface is not None else shape != "plane" or (half[:, :2] > 0).all():
        return Mapping(repeat * (bounded if finish.uniform else np.ones_like(bounded)), True)
    return Mapping(0.5 * repeat / (np.ones_like(bounded) if finish.uniform else bounded), False)


def textured_triangles(scene: Scene, i: int, finish: Finish, far: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Corners (m, 3, 3) of the triangles of a drawn geom in its frame, m, and their places (m, 3, 2) in its picture; None of round shapes,
    of cubes, and without a picture. far: half the width of planes without bounds, m."""
    if len(finish.images) != 1:
        return None
    shape, surface = scene.geoms[i].shape, scene.surfaces[i]
    if surface is None and shape not in ("plane", "box"):
        return None
    points, faces = geom_polygons(scene, i, far) or ((), ())
    corners = np.asarray(points, float)[triangulated(faces)]
    factors, given = texture_mapping(scene, i, finish)
    if not given:
        return corners, (corners * factors[0])[..., :2] * [1, -1] - 0.5
    if surface is not None:
        return corners, surface.texcoords.value * factors[0, :2]
    normal = np.abs(np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])).argmax(-1)
    unit = corners / np.where(scene.size[0, i] > 0, scene.size[0, i], 1.0)
    axes = np.array([[1, 2], [0, 2], [0, 1]])[normal][:, None]  # those along which the picture lies on a side
    return corners, (1 + np.take_along_axis(unit, np.repeat(axes, 3, 1), -1) * [1, -1]) / 2 * factors[0, :2]


_HALF = {"sphere": [0, 0, 0], "capsule": [0, 0, 1], "cylinder": [0, 0, 1], "cone": [0, 0, 1]}
"""Which sizes of a shape are its half extents along x, y and z."""


def _finish(topology: Topology, rgba, look: LookInfo | None) -> Finish:
    if look is None:
        return Finish(tuple(rgba))
    material = topology.drawing.materials[look.material]
    images = texture_images(topology.drawing.textures[material.texture]) if material.texture >= 0 else ()
    if isinstance(images, str) or not images:
        return Finish(tuple(rgba), material=material)
    return Finish(color(look.rgba, 0), images, material.texrepeat[:2], material.texuniform, material)
