"""SKEL bodies' shapes, and the inertia that follows from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xsim.io.contact_parameters import SHAPES as COLLIDING
from xsim.io.errors import Notes, ParseError, allowed
from xsim.io.hulls import CollisionMeshes, mesh_loader
from xsim.io.reader import Element
from xsim.io.skel.values import either, transformation
from xsim.io.solids import SOLIDS, Solid, shift, tensor, turned
from xsim.poses import IDENTITY_QUAT, Pose, quat_from_z, rotation_matrix
from xsim.spec import GeomSpec, InertialSpec, SurfaceSpec

__all__ = ["SHAPES", "Surroundings", "hulled", "read_inertia", "read_shapes"]

_ONE = (1.0, 1.0, 1.0, 0.0, 0.0, 0.0)  # the moment of a body that nothing else gives one, kg m^2
_MOMENTS = dict(zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), _ONE, strict=True))
_PLAIN = {"plane", "pyramid"}  # shapes without a volume that the format could use


class Shape(NamedTuple):
    element: Element
    geom: GeomSpec


# ---- geometry ----------------------------------------------------------------------------------------------------------------


def _length(element: Element, *tags: str, default: float | None = None) -> float:
    child = either(element, *tags)
    if child is not None:
        return child.number(None, positive=True)
    if default is None:
        raise element.error(f"<{tags[0]}> is missing")
    return default


def _extents(element: Element) -> np.ndarray:
    """Half of the <size>, which gives full extents (default 1 1 1)."""
    size = element.child("size")
    full = np.ones(3) if size is None else size.floats(None, 3)
    if size is not None and not (full > 0).all():
        raise size.error(f"found {size.text().strip()!r}; allowed: numbers > 0")
    return full / 2


def _box(element: Element, folder) -> dict:
    return {"size": _extents(element)}


def _sphere(element: Element, folder) -> dict:
    return {"size": np.array([_length(element, "radius")])}


def _cylinder(element: Element, folder) -> dict:
    return {"size": np.array([_length(element, "radius", default=0.5), _length(element, "height", "length", default=1.0) / 2])}


def _round(element: Element, folder) -> dict:
    return {"size": np.array([_length(element, "radius"), _length(element, "height") / 2])}


def _plane(element: Element, folder) -> dict:
    """Without edges: size zero."""
    normal = element.need("normal")
    vector = normal.floats(None, 3)
    if not vector.any():
        raise normal.error("the normal is zero; allowed: any other direction")
    vector = vector / np.abs(vector).max()
    vector = vector / np.linalg.norm(vector)
    offset, point = element.child("offset"), element.child("point")
    if offset is not None and point is not None:
        raise point.error(f"<offset> is given too, in line {offset.line}; allowed: one of them")
    distance = offset.number(None) if offset is not None else float(point.floats(None, 3) @ vector) if point is not None else 0.0
    return {"size": np.zeros(2), "pos": distance * vector, "quat": quat_from_z(vector)}


def _multi_sphere(element: Element, folder) -> dict:
    """The convex hull of spheres: points are their centres, size their radii."""
    spheres = element.all("sphere")
    if not spheres:
        raise element.error("holds no <sphere>; allowed: one or more")
    return {
        "size": np.array([s.need("radius").number(None, positive=True) for s in spheres]),
        "points": np.array([s.need("position").floats(None, 3) for s in spheres]),
    }


def _mesh(element: Element, folder: Path | None) -> dict:
    name, scale = element.need("file_name"), element.child("scale")
    factors = np.ones(3) if scale is None else scale.floats(None, 3)
    if scale is not None and not factors.all():
        raise scale.error(f"found {scale.text().strip()!r}; allowed: numbers other than 0")
    file = name.string(None)
    return {"size": factors, "file": file if folder is None else str(_mesh_file(name, file, folder))}


def _mesh_file(element: Element, name: str, folder: Path) -> Path:
    """The file, which must lie in the folder of the model, below it or in one beside it (../meshes)."""
    around = folder.parent if folder.parent != folder.parent.parent else folder  # not the whole file system
    if "://" in name or "\\" in name or Path(name).is_absolute():
        raise element.error(f"{name!r} is not looked up; allowed: a path relative to the folder of the model file")
    try:
        path = (folder / name).resolve()
        exists = path.is_file()
    except (OSError, ValueError, RuntimeError) as error:
        raise element.error(f"{name!r} cannot be read: {error}") from None
    if not path.is_relative_to(around):
        raise element.error(f"{name!r} lies outside {around}; allowed: files in the folder of the model or in one beside it")
    if not exists:
        raise element.error(f"{name!r} is not there (looked for {path})")
    return path


def _pyramid(element: Element, folder) -> dict:
    element.skip()
    return {"size": np.zeros(3)}


SHAPES: dict[str, Callable[[Element, Path | None], dict]] = {
    "box": _box, "sphere": _sphere, "ellipsoid": _box, "cylinder": _cylinder, "capsule": _round, "cone": _round, "plane": _plane,
    "mesh": _mesh, "multi_sphere": _multi_sphere, "pyramid": _pyramid,
}  # fmt: skip


class Surroundings(NamedTuple):
    """What the collision shapes of a skeleton share: how they touch, and the hulls of meshes."""

    surface: SurfaceSpec
    meshes: CollisionMeshes


def read_shapes(body: Element, folder: Path | None, around: Surroundings, notes: Notes) -> list[Shape]:
    """The shapes of a body, visual ones first. folder: of the document, where meshes are looked up."""
    return [_shape(e, folder, around, notes) for tag in ("visualization_shape", "collision_shape") for e in body.all(tag)]


def _shape(element: Element, folder: Path | None, around: Surroundings, notes: Notes) -> Shape:
    frame = transformation(element)
    geometry = element.need("geometry")
    inside = list(geometry.children())
    for child in inside:
        if child.tag not in SHAPES:
            raise child.error(f"unknown shape; {allowed(child.tag, SHAPES)}")
    if len(inside) != 1:
        raise geometry.error(f"holds {len(inside)} shapes; allowed: one of {', '.join(SHAPES)}")
    (child,) = inside
    numbers = SHAPES[child.tag](child, folder)
    if child.tag == "pyramid":
        notes.unsupported(child.line, f"{child} in {element}: pyramids are neither drawn nor touched")
    visual = element.tag == "visualization_shape"
    collidable, color = element.child("collidable"), element.child("color")
    touched = collidable is None or collidable.boolean(None)  # of a visual shape: without effect
    rgba: Any = None if color is None else tuple([*np.clip(color.floats(None, (3, 4)), 0, 1).tolist(), 1.0][:4])
    numbers["quat"], numbers["pos"] = frame @ Pose(numbers.get("quat", IDENTITY_QUAT), numbers.get("pos", np.zeros(3)))
    collision = touched and not visual
    geom = GeomSpec(
        child.tag,
        rgba=rgba,
        visual=visual,
        collision=collision,
        contact=around.surface if collision and child.tag in COLLIDING else None,
        source=element.source,
        **numbers,
    )
    return Shape(child, geom)


def hulled(shape: Shape, around: Surroundings) -> GeomSpec:
    """A shape as it touches: a mesh by its hull."""
    geom = shape.geom
    if geom.collision and geom.shape not in COLLIDING:
        around.meshes.refuse(geom, around.surface.group)
    if geom.shape != "mesh" or geom.contact is None:
        return geom
    path = Path(geom.file or "")
    return around.meshes.with_hull(geom, path if path.is_absolute() else None, shape.element)


# ---- inertia -----------------------------------------------------------------------------------------------------------------


def _cone_solid(shape: Shape) -> Solid:
    """Across the axis the reference engine takes the moment about the centre of the base, and puts it at the shape's origin."""
    radius, half = shape.geom.size
    side = 3 / 20 * radius * radius + 4 / 10 * half * half
    return Solid(2 / 3 * np.pi * radius * radius * half, np.zeros(3), np.array([side, side, 0.3 * radius * radius]))


def _bounding_box(low: np.ndarray, high: np.ndarray) -> Solid:
    """A box of these extents about the shape's origin, wherever the shape lies."""
    return SOLIDS["box"](np.abs(high - low) / 2)


def _spheres_solid(shape: Shape) -> Solid:
    centres, radii = shape.geom.points, shape.geom.size[:, None]
    return _bounding_box(np.min(centres - radii, axis=0), np.max(centres + radii, axis=0))


def _mesh_solid(shape: Shape) -> Solid:
    element, geom = shape
    if not Path(geom.file or "").is_absolute():
        raise element.error(
            f"the moment of inertia needs the mesh {geom.file!r}, and text without a file has no folder to look in; "
            "allowed: a <moment_of_inertia>, or reading the model from its file"
        )
    try:
        load = mesh_loader()
    except ImportError:
        raise element.error(
            'the moment of inertia needs the mesh, which trimesh reads: pip install "xsim[mesh]"; allowed: a <moment_of_inertia>'
        ) from None
    path = Path(str(geom.file))
    try:
        low, high = np.asarray(load(path).bounds, float)
    except ParseError:
        raise
    except Exception as error:  # the loaders of the many formats raise whatever they like
        raise element.error(f"{path.name!r} cannot be read as a mesh: {type(error).__name__}: {str(error)[:200]}") from None
    return _bounding_box(low * geom.size, high * geom.size)


_SOLIDS: dict[str, Callable[[Shape], Solid]] = {"cone": _cone_solid, "multi_sphere": _spheres_solid, "mesh": _mesh_solid}


def _from_shapes(mass: float, com: np.ndarray, inertia: Element, shapes: list[Shape]) -> np.ndarray:
    """Moment of inertia about the centre of mass: every shape, visual and collision, has a share of the mass by its volume."""
    for shape in shapes:
        if shape.geom.shape == "pyramid":
            raise shape.element.error("the moment of inertia of a pyramid is not computed; allowed: a <moment_of_inertia>")
    solids = [(s.geom, _SOLIDS[s.geom.shape](s) if s.geom.shape in _SOLIDS else SOLIDS[s.geom.shape](s.geom.size))
              for s in shapes if s.geom.shape not in _PLAIN]  # fmt: skip
    if not solids:
        return np.array(_ONE)
    volume = sum((solid.volume for _, solid in solids), np.float64(0))
    if not 0 < volume < np.inf:
        raise inertia.error(f"the shapes have the volume {volume:g}, which gives no moment of inertia; allowed: a <moment_of_inertia>")
    total = np.zeros((3, 3))
    for geom, solid in solids:
        share, R = mass * solid.volume / volume, rotation_matrix(geom.quat)
        total += R @ np.diag(share * solid.moments) @ R.T + shift(share, geom.pos - com)
    return total[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]


def read_inertia(body: Element, shapes: list[Shape], notes: Notes) -> InertialSpec:
    """Mass properties of a body. Raises ParseError for a negative mass and for a moment that no body has."""
    inertia = body.child("inertia")
    if inertia is None:
        return InertialSpec(1.0, np.zeros(3), np.array(_ONE))
    given = inertia.child("mass")
    mass = 1.0 if given is None else given.number(None, nonnegative=True)
    offset, frame = inertia.child("offset"), inertia.child("transformation")
    if offset is not None and frame is not None:
        raise frame.error(f"<offset> is given too, in line {offset.line}; allowed: one of them")
    pose = transformation(inertia) if offset is None else Pose(pos=offset.floats(None, 3))
    moment = inertia.child("moment_of_inertia")
    if moment is not None:
        six = turned(_moment(moment, notes), Pose(pose.quat)) if frame is not None else _moment(moment, notes)
    elif mass > 0:
        six = _from_shapes(mass, pose.pos, inertia, shapes)
    else:
        six = np.array(_ONE)  # what the reference engine leaves a massless body with
    return InertialSpec(mass, pose.pos, six)


def _moment(element: Element, notes: Notes) -> np.ndarray:
    """Six numbers xx yy zz xy xz yz."""
    moments_given = [(element.child(tag), default) for tag, default in _MOMENTS.items()]
    six = np.array([default if child is None else child.number(None) for child, default in moments_given])
    largest = np.abs(six).max()
    if largest == 0:
        return six
    values = np.linalg.eigvalsh(tensor(six / largest))
    if values[0] < -1e-9:
        raise element.error(f"the tensor {six} is not positive (its least eigenvalue is {values[0] * largest:g})")
    if values[2] > (values[0] + values[1]) * (1 + 1e-6) + 1e-12:
        moments = f"{element}: the principal moments {values * largest}"
        notes.suspicious(element.line, f"{moments} belong to no body: one is above the sum of the others")
    return six
