"""Shapes of links: what is visible and what collides."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from xsim.io.errors import Notes
from xsim.io.files import is_file
from xsim.io.hulls import CollisionMeshes
from xsim.io.reader import Element
from xsim.io.urdf.materials import Materials, read_material
from xsim.io.urdf.surfaces import Surface, read_collision_surface
from xsim.io.urdf.values import read_origin, required_floats, vector
from xsim.spec import GeomSpec

__all__ = ["ModelFiles", "read_geoms"]

def _radius_and_half_length(shape: Element) -> np.ndarray:
    return np.array([shape.number("radius", nonnegative=True), shape.number("length", nonnegative=True) / 2])


_SIZES = {  # half extents of each shape
    "box": lambda shape: required_floats(shape, "size", 3) / 2,
    "sphere": lambda shape: np.array([shape.number("radius", nonnegative=True)]),
    "cylinder": _radius_and_half_length,
    "capsule": _radius_and_half_length,
    "mesh": lambda shape: shape.floats("scale", 3, np.ones(3)),
}


class ModelFiles(NamedTuple):
    """packages: folders in which packages are looked up. folder: of the document, None for text without a file. meshes: those read.
    pictures: those of materials, by the names of these; None for one that is not found."""

    packages: list[Path]
    folder: Path | None
    meshes: CollisionMeshes
    pictures: dict[str, Path | None]


def read_geoms(link: Element, materials: Materials, files: ModelFiles, surface: Surface, mass: float, notes: Notes) -> tuple[GeomSpec, ...]:
    """Visual and collision shapes of a link, in document order. surface: of the link's collisions; mass: of the link, kg."""
    geoms = []
    for element in link.all("visual", "collision"):
        shape = _read_shape(element, notes)
        if shape is None:
            element.skip()
            continue
        size, pose, visual = _read_size(shape, link, notes), read_origin(element, notes), element.tag == "visual"
        file, path = _find_file(shape.string("filename"), files) if shape.tag == "mesh" else (None, None)
        color, texture = read_material(element, materials, notes)
        picture = "" if texture is None else _add_picture(texture, files)
        contact, numbers = (None, {}) if visual else read_collision_surface(element, surface, mass)
        geom = GeomSpec(
            shape.tag, size, pos=pose.pos, quat=pose.quat, name=element.raw("name") or "", visual=visual, collision=not visual,
            rgba=color, material=picture, file=file, path=None if path is None else str(path), contact=contact, surface=numbers,
            source=element.source,
        )  # fmt: skip
        geoms.append(files.meshes.with_hull(geom, path, element) if geom.collision and shape.tag == "mesh" else geom)
    return tuple(geoms)


def _read_shape(element: Element, notes: Notes) -> Element | None:
    """The one shape in the ``<geometry>`` of a visual or collision, None where it is empty or unknown. Raises ParseError for several."""
    geometry = element.need("geometry")
    shapes = geometry.all(*_SIZES)
    if len(shapes) == 1:
        return shapes[0]
    found = " ".join(map(str, shapes or geometry.children())) or "none"
    error = geometry.error(f"found {found}; allowed: one of {', '.join(_SIZES)}")
    if shapes:
        raise error
    notes.assumed(error, "no shape")
    return None


def _read_size(shape: Element, link: Element, notes: Notes) -> np.ndarray:
    """Half extents of a shape."""
    size = vector(shape, "scale", np.ones(3), notes) if shape.tag == "mesh" else _SIZES[shape.tag](shape)
    if shape.tag == "box" and (size < 0).any():
        raise shape.error(f"found {size * 2}; allowed: numbers >= 0", "size")
    if not size.all():
        notes.suspicious(shape.line, f"{shape} in {link}: has no size in some direction")
    return size


def _add_picture(name: str, files: ModelFiles) -> str:
    """The name of the material of a picture."""
    path = _find_file(name, files)[1]
    material = name if path is None else str(path)
    files.pictures[material] = path
    return material


def _find_file(name: str, files: ModelFiles) -> tuple[str, Path | None]:
    """The name of a mesh or picture and its path, None where there is no such file.

    A name with a package is looked up in the folders of packages, in order; the first file counts, and its path is the name. Another name
    is relative to the document's folder; the file must be in that folder's parent. Else the name stays as it is written.
    """
    scheme, _, rest = name.partition("://")
    package, _, inside = rest.partition("/")
    if scheme in ("package", "model") and package not in ("", ".", "..") and ".." not in inside.split("/"):
        for folder in files.packages:
            path = folder / package / inside
            if is_file(path):
                return str(path), path
    elif files.folder is not None and not name.startswith("/") and "://" not in name and is_file(files.folder / name):
        path = (files.folder / name).resolve()
        if path.is_relative_to(files.folder.parent):
            return name, path
    return name, None
