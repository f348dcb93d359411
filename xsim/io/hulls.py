"""Convex hulls of meshes, by which they collide."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from xsim.io.contact_parameters import SHAPES, default_surface
from xsim.io.errors import Notes, ParseError
from xsim.io.reader import Element, read_bytes
from xsim.poses import rotate
from xsim.spec import BodySpec, GeomSpec, MeshSpec

__all__ = ["NEEDS_TRIMESH", "CollisionMeshes", "centred_mesh", "convex_hull", "mesh_loader"]


NEEDS_TRIMESH = 'needs trimesh: pip install "xsim[mesh]"'


def mesh_loader() -> Callable[[Path], Any]:
    """A function that gives trimesh's mesh of a file. Raises ImportError where trimesh is missing; the function raises ParseError as
    `read_bytes` does, and whatever the loaders of the many formats raise."""
    import trimesh  # pyright: ignore[reportMissingImports]

    def load(path: Path):
        data = io.BytesIO(read_bytes(path))
        return trimesh.load(data, file_type=path.suffix[1:].lower(), force="mesh", process=False, skip_materials=True)

    return load


def convex_hull(vertices: np.ndarray, most: int = -1, farthest_of_all: bool = False) -> np.ndarray | None:
    """Faces (k, 3) of the convex hull, vertex numbers counter-clockwise seen from outside; None where the vertices lie in a plane.

    most: the hull grows vertex by vertex and stops at this many (-1: all). farthest_of_all: whether each is the farthest from
    any face; else it is the farthest from the next face.
    """
    from scipy.spatial import ConvexHull, QhullError

    options = "Qt" if most < 0 else f"Qt TA{most - 4}" + (" Q9" if farthest_of_all else "")
    try:
        hull = ConvexHull(vertices, qhull_options=options)
    except (QhullError, ValueError):
        return None
    faces = hull.simplices.astype(int)
    a, b, c = np.moveaxis(vertices[faces], 1, 0)
    inward = np.einsum("ij,ij->i", np.cross(b - a, c - a), hull.equations[:, :3]) < 0
    return np.where(inward[:, None], faces[:, ::-1], faces)


class CollisionMeshes:
    """Convex hulls of the collision meshes of a model, and the shapes that do not collide. specs: for `ModelSpec.meshes`."""

    def __init__(self, notes: Notes):
        self.specs: list[MeshSpec] = []
        self._notes = notes
        self._numbers: dict[tuple[str, tuple[float, ...]], int | str] = {}
        self._without_contact: list[tuple[GeomSpec, str]] = []
        """Shapes with the surface that they would have, and why they have none."""

    def with_hull(self, geom: GeomSpec, path: Path | None, element: Element) -> GeomSpec:
        """A collision mesh with its convex hull; its frame moves to the mean of the hull's corners.

        path: of the file, None where it is not found. A mesh whose file is not found or cannot be read gets no surface.
        """
        signs = tuple(np.sign(geom.size).tolist())
        key = str(path), signs
        if key not in self._numbers:
            self._numbers[key] = "is not found" if path is None else self._read(path, signs, element)
        number = self._numbers[key]
        if isinstance(number, str):
            self._without_contact.append((geom, number))
            return replace(geom, contact=None)
        size = np.abs(geom.size)
        return replace(geom, size=size, asset=number, pos=geom.pos + rotate(geom.quat, size * self.specs[number].pos))

    def refuse(self, geom: GeomSpec, group: int | None) -> None:
        """Report a collision of a shape that cannot collide. group: collision group that it would be in."""
        text = f"is no shape that touches ({', '.join(SHAPES)})"
        self._without_contact.append((replace(geom, contact=default_surface(group)), text))

    def _read(self, path: Path, signs, element: Element) -> int | str:
        """Number of the mesh, or why there is none."""
        try:
            load = mesh_loader()
        except ImportError:
            return NEEDS_TRIMESH
        try:
            mesh = load(path)
            vertices, number = np.unique(np.asarray(mesh.vertices, float), axis=0, return_inverse=True)
            if len(vertices) < 4 or not np.isfinite(vertices).all():
                return f"has {len(vertices)} vertices"
            faces = _renumbered(getattr(mesh, "faces", ()), number.reshape(-1))
            faces = faces[:, ::-1] if np.prod(signs) < 0 else faces
            fields = {"file": str(path), "scale": np.array(signs), "source": element.source}
            self.specs.append(centred_mesh(path.name, vertices * signs, faces, **fields))
        except ParseError as error:
            return str(error)
        except Exception as error:  # the loaders of the many formats raise whatever they like
            return f"cannot be read: {type(error).__name__}: {str(error)[:100]}"
        return len(self.specs) - 1

    def report(self, bodies: tuple[BodySpec, ...], scenery: tuple[GeomSpec, ...] = ()) -> None:
        """Note the shapes without a surface, one line for each kind, where there is something that they could touch."""
        groups = {_collision_group(geom, i) for i, body in enumerate(bodies) for geom in body.geoms}
        groups |= {_collision_group(geom, -1) for geom in scenery}
        groups |= {_collision_group(geom, len(bodies) + i) for i, (geom, _) in enumerate(self._without_contact)}
        if len(groups - {None}) < 2:
            return
        kinds: dict[str, list] = {}
        for geom, why in self._without_contact:
            kinds.setdefault(geom.shape, []).append((geom, why))
        for kind, geoms in kinds.items():
            geom, why = geoms[0]
            name = f"mesh {geom.file!r}" if kind == "mesh" else kind
            text = f"collision {name} {why}: it touches nothing ({len(geoms)} of this kind in the model)"
            self._notes.unsupported(geom.source.line, text, geom.source.file)


def _collision_group(geom: GeomSpec, body: int):
    """A key that shapes share which never collide with each other: their group, or their body. None for what does not collide."""
    if geom.contact is None or not geom.collision:
        return None
    return ("body", body) if geom.contact.group is None else ("group", geom.contact.group)


def _renumbered(faces, number: np.ndarray) -> np.ndarray:
    """Faces with new numbers of their vertices; none where a face has a vertex that does not exist."""
    faces = np.asarray(faces, int).reshape(-1, 3)
    return number[faces] if np.isin(faces, np.arange(len(number))).all() else np.zeros((0, 3), int)


def centred_mesh(name: str, vertices: np.ndarray, faces: np.ndarray | None = None, **fields) -> MeshSpec:
    """A mesh about the mean of the corners of its convex hull; of points in a plane, about the mean of all. faces: None: those of the
    hull. fields: others of the MeshSpec."""
    hull = convex_hull(vertices)
    centre = vertices.mean(0) if hull is None else vertices[np.unique(hull)].mean(0)
    if faces is None:
        faces = np.zeros((0, 3), int) if hull is None else hull
    return MeshSpec(name, vertices - centre, faces, pos=centre, hull=hull, **fields)
