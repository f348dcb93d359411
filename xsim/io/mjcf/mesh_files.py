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
    two for each vertex of a pad of tactile sensors, else None."""

    vertices: np.ndarray
    faces: np.ndarray
    tangents: np.ndarray | None = None


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
    numbers = np.frombuffer(data, "<i4", 3 * faces, len(data) - 12 * faces).reshape(-1, 3)
    return Triangles(points.astype(float), numbers.astype(int))


def _obj(data: bytes, e: Element, notes: Notes, shorter_diagonal: bool) -> Triangles:
    """Lines ``v x y z`` and ``f a b c ...`` (numbers from 1, or from -1 backwards; what follows a slash is for drawing).

    As in MuJoCo all vertices of the file count, but only the faces of the first object or group that has any.
    """
    coordinates, polygons = array("d"), _Polygons(array("q"), array("q"))
    ended = others = False
    for number, line in enumerate(io.BytesIO(data), 1):
        words = line.split(maxsplit=MAX_POLYGON + 1)
        try:
            match words[:1]:
                case [b"v"]:
                    coordinates.extend((float(words[1]), float(words[2]), float(words[3])))
                case [b"f"] if ended:
                    others = True
                case [b"f"]:
                    polygons.add([int(word.split(b"/", 1)[0]) for word in words[1:]], len(coordinates) // 3)
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
    return Triangles(points, polygons.triangles(points, shorter_diagonal))


class _Polygons(NamedTuple):
    """Faces of an OBJ file. sizes (n,): how many corners each has. corners: their vertex numbers from 0, one face after another."""

    sizes: array
    corners: array

    def add(self, numbers: list[int], vertices: int) -> None:
        """Add a face. numbers: as the file writes them; vertices: how many came before. Raises ValueError for numbers of no vertex."""
        corners = [c - 1 if c > 0 else vertices + c for c in numbers]
        if 0 in numbers or min(corners) < 0 or max(corners) >= 2**31 or len(corners) > MAX_POLYGON:
            raise ValueError
        self.sizes.append(len(corners))
        self.corners.extend(corners)

    def triangles(self, points: np.ndarray, shorter_diagonal: bool) -> np.ndarray:
        """Triangles (m, 3) around the first corner of each face. shorter_diagonal: four corners, which may not lie in a plane, are cut
        along it."""
        sizes, corners = np.array(self.sizes, int), np.array(self.corners, int)
        first = np.cumsum(sizes) - sizes
        if shorter_diagonal:
            _turn_quads(corners, first[sizes == 4], points)
        count = np.maximum(sizes - 2, 0)
        at = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count) + 1  # of a triangle: its second corner in the face
        first = np.repeat(first, count)
        return np.stack([corners[first], corners[first + at], corners[first + at + 1]], axis=1).reshape(-1, 3)


def _turn_quads(corners: np.ndarray, first: np.ndarray, points: np.ndarray) -> None:
    """Let faces of four corners begin with an end of their shorter diagonal. first (n,): the place of each face's first corner."""
    quads = first[:, None] + np.arange(4)
    quads = quads[(corners[quads] < len(points)).all(1)]
    a, b, c, d = np.moveaxis(points[corners[quads]], 1, 0)
    turned = quads[np.sum((c - a) ** 2, axis=1) >= np.sum((d - b) ** 2, axis=1)]
    corners[turned] = np.roll(corners[turned], 1, axis=1)


_READERS: dict[str, Callable[[bytes, Element, Notes, bool], Triangles]] = {"stl": _stl, "obj": _obj, "msh": _msh}
