"""Triangles of mesh files: binary STL, OBJ and MSH (MuJoCo's format)."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element

__all__ = ["MESH_TYPES", "Triangles", "read_triangles"]

MESH_TYPES = {"model/stl": "stl", "model/obj": "obj", "model/vnd.mujoco.msh": "msh"}
_TRIANGLE = np.dtype([("normal", "<f4", 3), ("corners", "<f4", (3, 3)), ("attribute", "<u2")])


class Triangles(NamedTuple):
    """vertices (n, 3); faces (m, 3): vertex numbers, counter-clockwise seen from outside; no faces: a cloud of points."""

    vertices: np.ndarray
    faces: np.ndarray


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
    vertices: list[list[float]] = []
    polygons: list[list[int]] = []
    ended = False
    for number, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1):
        words = line.split()
        try:
            match words[:1]:
                case ["v"]:
                    vertices.append([float(words[1]), float(words[2]), float(words[3])])
                case ["f"] if ended:
                    notes.suspicious(e.line, f"{e}: of the objects in the file, the first alone is used, as MuJoCo does", e.file)
                case ["f"]:
                    corners = [int(word.split("/", 1)[0]) for word in words[1:]]
                    polygons.append([c - 1 if c > 0 else len(vertices) + c for c in corners])
                    if 0 in corners or min(polygons[-1]) < 0 or max(corners) >= 2**31:
                        raise ValueError
                case ["o" | "g"]:
                    ended = bool(polygons)
        except (ValueError, IndexError):
            raise e.error(f"line {number} of the OBJ file, {line.strip()[:60]!r}, is no vertex and no face", "file") from None
    points = np.array(vertices, float).reshape(-1, 3)
    faces = [t for p in polygons for t in _triangulated(p, points, shorter_diagonal)]
    return Triangles(points, np.array(faces, int).reshape(-1, 3))


def _triangulated(polygon: list[int], points: np.ndarray, shorter_diagonal: bool) -> list[list[int]]:
    """Triangles around the first corner. shorter_diagonal: four corners, which may not lie in a plane, are cut along it."""
    if shorter_diagonal and len(polygon) == 4 and max(polygon) < len(points):
        a, b, c, d = points[polygon]
        if np.sum((c - a) ** 2) >= np.sum((d - b) ** 2):
            polygon = [polygon[3], *polygon[:3]]
    return [[polygon[0], polygon[i], polygon[i + 1]] for i in range(1, len(polygon) - 1)]


_READERS: dict[str, Callable[[bytes, Element, Notes, bool], Triangles]] = {"stl": _stl, "obj": _obj, "msh": _msh}
