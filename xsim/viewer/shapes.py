"""Convex faces of the shapes, for still pictures, and triangles of meshes."""

from __future__ import annotations

import functools
import io
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xsim.io.hulls import NEEDS_TRIMESH, mesh_loader
from xsim.io.reader import read_bytes
from xsim.model.drawing import TrianglesInfo
from xsim.model.table import Table

__all__ = ["SHAPES", "MeshFile", "convex_faces", "mesh_of_file"]

TEXTURED = (".obj", ".dae", ".glb", ".gltf")
"""Endings of mesh files that may have pictures."""


@functools.lru_cache(maxsize=256)
def convex_faces(shape: str, size: tuple) -> list[np.ndarray]:
    """Convex faces of a shape, corners counter-clockwise seen from outside: [(corners, 3)]."""
    return SHAPES[shape](size)


def _box(size):
    corners = np.array([[x, y, z] for z in (-1, 1) for y in (-1, 1) for x in (-1, 1)]) * np.asarray(size[:3])
    return [corners[list(f)] for f in ((0, 2, 3, 1), (4, 5, 7, 6), (0, 1, 5, 4), (2, 6, 7, 3), (0, 4, 6, 2), (1, 3, 7, 5))]


def _revolved(profile, n: int = 24):
    """Faces of the body of revolution of a profile [(radius x, radius y, z)] from top to bottom."""
    angle = 2 * np.pi * np.arange(n + 1) / n
    rings = [np.stack([x * np.cos(angle), y * np.sin(angle), np.full(n + 1, z)], -1) for x, y, z in profile]
    faces = []
    for a, b in zip(rings[:-1], rings[1:], strict=True):
        for i in range(n):
            corners = [a[i], b[i], b[i + 1], a[i + 1]]
            faces.append(np.array([p for k, p in enumerate(corners) if not np.allclose(p, corners[k - 1])]))
    return [f for f in faces if len(f) > 2]


def _arc(count: int = 8):
    return [(math.sin(a), math.cos(a)) for a in np.linspace(0, math.pi / 2, count + 1)]


def _ellipsoid(size):
    upper = [(size[0] * s, size[1] * s, size[2] * c) for s, c in _arc()]
    return _revolved([*upper, *((x, y, -z) for x, y, z in upper[-2::-1])])


def _capsule(size):
    upper = [(size[0] * s, size[0] * s, size[1] + size[0] * c) for s, c in _arc(6)]
    return _revolved([*upper, *((x, y, -z) for x, y, z in upper[::-1])])


def _cylinder(size):
    r, h = size[:2]
    angle = 2 * np.pi * np.arange(24) / 24
    circle = np.stack([r * np.cos(angle), r * np.sin(angle), np.full(24, h)], -1)
    return [*_revolved([(r, r, h), (r, r, -h)]), circle, (circle * (1, 1, -1))[::-1]]


def _cone(size):
    r, h = size[:2]
    angle = 2 * np.pi * np.arange(24) / 24
    return [*_revolved([(0, 0, h), (r, r, -h)]), np.stack([r * np.cos(angle), r * np.sin(angle), np.full(24, -h)], -1)[::-1]]


SHAPES = {
    "box": _box, "sphere": lambda s: _ellipsoid((s[0],) * 3), "ellipsoid": _ellipsoid, "capsule": _capsule, "cylinder": _cylinder,
    "cone": _cone,
}  # fmt: skip
"""Functions of the size that give the faces of a shape."""


class MeshFile(NamedTuple):
    """What a mesh file holds: its triangles, m, and the picture (height, width, 3) uint8 on them, None without."""

    triangles: TrianglesInfo
    image: np.ndarray | None = None


@functools.lru_cache(maxsize=256)
def mesh_of_file(path: str) -> MeshFile | str:
    """The mesh of a file, or why there is none. Needs trimesh."""
    if not Path(path).is_file():
        return "not found"
    try:
        mesh = _with_materials(Path(path))
        vertices, faces = np.asarray(mesh.vertices, np.float32), np.asarray(getattr(mesh, "faces", ()), np.int32).reshape(-1, 3)
    except ImportError:
        return NEEDS_TRIMESH
    except Exception as error:  # the loaders of the many formats raise whatever they like
        return f"cannot be read: {type(error).__name__}: {str(error)[:100]}"
    if not len(faces) or not np.isfinite(vertices).all():
        return "has no faces of finite numbers"
    texcoords, image = _picture(mesh, faces)
    return MeshFile(TrianglesInfo(Table(vertices), Table(faces), texcoords), image)


def _with_materials(path: Path) -> Any:
    """The mesh of a file, with the materials and pictures beside it or in the folder above; without them where they cannot be read."""
    load = mesh_loader()
    if path.suffix.lower() not in TEXTURED:
        return load(path)
    import trimesh  # pyright: ignore[reportMissingImports]

    class Beside(trimesh.resolvers.Resolver):
        def __init__(self):
            pass

        def get(self, name):
            found = (path.parent / str(name)).resolve()
            if not found.is_relative_to(path.parent.resolve().parent):
                raise ValueError(f"{name} is in another folder")
            return read_bytes(found)

        def keys(self):
            return []

        def write(self, name, data):
            raise NotImplementedError

        def namespaced(self, namespace):
            return self

    try:
        options = {"file_type": path.suffix[1:].lower(), "force": "mesh", "process": False, "resolver": Beside()}
        return trimesh.load(io.BytesIO(read_bytes(path)), **options)
    except Exception:  # as above
        return load(path)


def _picture(mesh, faces: np.ndarray) -> tuple[Table | None, np.ndarray | None]:
    """Texture coordinates of the corners of a mesh of trimesh, which has v upwards, and its picture. None of none."""
    visual = getattr(mesh, "visual", None)
    uv, material = getattr(visual, "uv", None), getattr(visual, "material", None)
    if uv is None or len(uv) != len(mesh.vertices) or not np.isfinite(uv).all():
        return None, None
    texcoords = Table(np.asarray(uv, np.float32)[faces] * np.float32([1, -1]) + np.float32([0, 1]))
    image = getattr(material, "image", None) or getattr(material, "baseColorTexture", None)
    pixels = None if image is None else np.asarray(image.convert("RGB"))
    if pixels is None or (pixels == pixels[0, 0]).all():  # trimesh gives a gray one to a mesh without
        return texcoords, None
    return texcoords, pixels
