"""Triangles of mesh files: binary STL, OBJ and MSH (MuJoCo's format)."""

from __future__ import annotations

import io
from array import array
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element

__all__ = ["MESH_TYPES", "Triangles", "read_triangles"]

MESH_TYPES = {"model/stl": "stl", "model/obj": "obj", "model/vnd.mujoco.msh": "msh"}
MAX_CORNERS = 10_000_000  # of all faces of an OBJ file
MAX_POLYGON = 100_000  # corners of a face
_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


class Triangles(NamedTuple):
    """vertices (n, 3); faces (m, 3): vertex numbers, counter-clockwise seen from outside; no faces: a cloud of points. tangents (n, 2, 3):
    two for each vertex of a pad of tactile sensors, else None. texcoords (m, 3, 2): of the corners of the faces, (0, 0) at the first row
    and column of a picture, else None."""

    vertices: np.ndarray
    faces: np.ndarray
    tangents: np.ndarray | None = None
    texcoords: np.ndarray | None = None


def read_triangles(data: bytes, kind: str, e: Element, notes: Notes, shorter_diagonal: bool) -> Triangles:
    """The triangles of a mesh file of a kind ("stl", "obj", "msh"). Raises ParseError about the element that names it.

    shorter_diagonal: whether a face with four corners in an OBJ file is cut along its shorter diagonal; else from its first corner.
    """
    return _READERS[kind](data, e, notes, shorter_diagonal)


def _stl(data: bytes, e: Element, notes: Notes, shorter_diagonal: bool) -> Triangles:
    """80 bytes, the number of triangles, then a normal, three corners and two bytes for each. Equal corners become one vertex."""
    count = int.from_bytes(data[80:84], "little")
    if not count or len(data) != 84 + _TRIANGLE.itemsize * count:
        raise e.error(f"{len(data)} bytes that announce {count} triangles; allowed: binary STL, 84 bytes and 50 for each triangle", "file")
    corners = np.frombuffer(data, _TRIANGLE, count, 84)["corners"].reshape(-1, 3).astype(float)
    vertices, number = np.unique(corners, axis=0, return_inverse=True)
    return Triangles(vertices, number.reshape(-1, 3))


def _msh(data: bytes, e: Element, notes: Notes, shorter_diagonal: bool) -> Triangles:
    """Four int32: vertices, normals, texture coordinates, faces; then these, float32 and int32."""
    if len(data) < 16:
        raise e.error(f"{len(data)} bytes; allowed: MSH, which begins with 16", "file")
    counts = np.frombuffer(data, "<i4", 4).tolist()
    vertices, normals, texcoords, faces = counts
    if min(counts) < 0 or len(data) != 16 + 12 * (vertices + normals + faces) + 8 * texcoords:
        text = f"{len(data)} bytes that begin with {counts}; allowed: MSH of 16 + 12 (nvertex + nnormal + nface) + 8 ntexcoord bytes"
        raise e.error(text, "file")
    points = np.frombuffer(data, "<f4", 3 * vertices, 16).reshape(-1, 3)
    numbers = np.frombuffer(data, "<i4", 3 * faces, len(data) - 12 * faces).reshape(-1, 3).astype(int)
    texture = None
    if texcoords == vertices and (numbers < vertices).all() and (numbers >= 0).all():
        texture = np.frombuffer(data, "<f4", 2 * texcoords, 16 + 12 * (vertices + normals)).reshape(-1, 2).astype(float)[numbers]
    return Triangles(points.astype(float), numbers, texcoords=texture)


def _obj(data: bytes, e: Element, notes: Notes, shorter_diagonal: bool) -> Triangles:
    """Lines ``v x y z``, ``vt u v`` and ``f a/t b/t c/t ...`` (numbers from 1, or from -1 backwards; those of vt are for drawing).

    As in MuJoCo all vertices of the file count, but only the faces of the first object or group that has any.
    """
    coordinates, polygons, texture = array("d"), _Polygons(array("q"), array("q"), array("q")), array("d")
    ended = others = False
    for number, line in enumerate(io.BytesIO(data), 1):
        words = line.split(maxsplit=MAX_POLYGON + 1)
        try:
            match words[:1]:
                case [b"v"]:
                    coordinates.extend((float(words[1]), float(words[2]), float(words[3])))
                case [b"vt"]:
                    texture.extend(_texture_point(words))
                case [b"f"] if ended:
                    others = True
                case [b"f"]:
                    polygons.add(words[1:], len(coordinates) // 3, len(texture) // 2)
                case [b"o" | b"g"]:
                    ended = bool(polygons.sizes)
        except (ValueError, IndexError):
            found = line.decode("utf-8", "replace").strip()[:60]
            raise e.error(f"line {number} of the OBJ file, {found!r}, is no vertex and no face", "file") from None
        if len(polygons.corners) > MAX_CORNERS:
            raise e.error(f"the faces of the OBJ file have more than {MAX_CORNERS} corners together", "file")
    if others:
        notes.suspicious(e.line, f"{e}: of the objects in the file, the first alone is used, as MuJoCo does", e.file)
    points = np.array(coordinates).reshape(-1, 3)
    corners, textures = polygons.triangles(points, shorter_diagonal)
    known = len(corners) and textures.min() >= 0 and textures.max() < len(texture) // 2
    return Triangles(points, corners, texcoords=(np.array(texture).reshape(-1, 2) * [1, -1] + [0, 1])[textures] if known else None)


def _texture_point(words: list[bytes]) -> tuple[float, float]:
    """The numbers of a line ``vt``; a bad one never fails a load."""
    try:
        return float(words[1]), float(words[2]) if len(words) > 2 else 0.0
    except (ValueError, IndexError):
        return 0.0, 0.0


class _Polygons(NamedTuple):
    """Faces of an OBJ file. sizes (n,): how many corners each has. corners: their vertex numbers from 0, one face after another. textures:
    the numbers of their texture points, -1 without."""

    sizes: array
    corners: array
    textures: array

    def add(self, words: list[bytes], vertices: int, points: int) -> None:
        """Add a face. words: as the file writes its corners; vertices, points: how many, and texture points, came before. Raises ValueError
        for numbers of no vertex."""
        parts = [word.split(b"/", 2) for word in words]
        numbers = [int(part[0]) for part in parts]
        corners = [c - 1 if c > 0 else vertices + c for c in numbers]
        if 0 in numbers or min(corners) < 0 or max(corners) >= 2**31 or len(corners) > MAX_POLYGON:
            raise ValueError
        self.sizes.append(len(corners))
        self.corners.extend(corners)
        for part in parts:
            text = part[1] if len(part) > 1 else b""
            number = int(text) if text.lstrip(b"-").isdigit() and len(text) < 10 else 0
            self.textures.append(max(-1, number - 1 if number > 0 else points + number if number else -1))

    def triangles(self, points: np.ndarray, shorter_diagonal: bool) -> tuple[np.ndarray, np.ndarray]:
        """Triangles (m, 3) around the first corner of each face, and the numbers of their texture points. shorter_diagonal: four corners,
        which may not lie in a plane, are cut along it."""
        sizes, corners, textures = (np.array(numbers, int) for numbers in self)
        first = np.cumsum(sizes) - sizes
        if shorter_diagonal:
            _turn_quads(corners, textures, first[sizes == 4], points)
        count = np.maximum(sizes - 2, 0)
        at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1  # of a triangle: its second corner in the face
        first = np.repeat(first, count)
        of_triangles = np.stack([first, first + at, first + at + 1], axis=1).reshape(-1, 3).astype(int)
        return corners[of_triangles], textures[of_triangles]


def _turn_quads(corners: np.ndarray, textures: np.ndarray, first: np.ndarray, points: np.ndarray) -> None:
    """Let faces of four corners begin with an end of their shorter diagonal. first (n,): the place of each face's first corner."""
    quads = first[:, None] + np.arange(4)
    quads = quads[(corners[quads] < len(points)).all(1)]
    a, b, c, d = np.moveaxis(points[corners[quads]], 1, 0)
    turned = quads[np.sum((c - a) ** 2, axis=1) >= np.sum((d - b) ** 2, axis=1)]
    for numbers in (corners, textures):
        numbers[turned] = np.roll(numbers[turned], 1, axis=1)


_READERS: dict[str, Callable[[bytes, Element, Notes, bool], Triangles]] = {"stl": _stl, "obj": _obj, "msh": _msh}
