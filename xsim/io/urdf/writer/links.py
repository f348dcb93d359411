"""<link>: mass properties, shapes that are visible, shapes that collide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xsim.io.contact_parameters import FRICTION
from xsim.io.mjcf.inertia import body_inertial
from xsim.io.urdf.surfaces import BULLET, COEFFICIENTS
from xsim.io.urdf.writer.document import Document, add_origin
from xsim.io.writing.elements import XML, add
from xsim.io.writing.meshes import mesh_scale
from xsim.poses import IDENTITY_QUAT, Pose, normalized
from xsim.spec import BodySpec, GeomSpec, MeshSpec

__all__ = ["write_link"]


def write_link(document: Document, name: str, body: BodySpec | None, geoms: Sequence[GeomSpec], offset: np.ndarray) -> None:
    """The link of a body, or of the world (None). offset: the origin of the link's frame in the body, m. Raises WriteError."""
    e = add(document.root, "link", name=name)
    if body is not None:
        _write_inertial(document, e, body, offset)
    for geom in geoms:
        _write_geom(document, e, geom, offset)
    _write_friction(document, e, name, [geom for geom in geoms if _collides(geom)])


def _write_inertial(document: Document, link: XML, body: BodySpec, offset: np.ndarray) -> None:
    """<inertial> about the centre of mass along the axes of the link; none without mass and inertia."""
    inertial = body_inertial(body, document.spec.meshes)
    if not inertial.mass and not inertial.inertia.any():
        return
    e = add(link, "inertial")
    add_origin(e, Pose(IDENTITY_QUAT, inertial.com - offset))
    add(e, "mass", value=inertial.mass)
    add(e, "inertia", **dict(zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), inertial.inertia, strict=True)))


def _collides(geom: GeomSpec) -> bool:
    """Whether a geom can touch anything. A mesh whose file was not found has no surface, and is written as what it is."""
    masks = geom.contact is None or bool(geom.contact.contype or geom.contact.conaffinity)
    return geom.collision and masks and (geom.contact is not None or geom.file is not None)


def _write_geom(document: Document, link: XML, geom: GeomSpec, offset: np.ndarray) -> None:
    """<visual> and <collision>, each with the shape."""
    collides = _collides(geom)
    if geom.shape not in _SHAPES or geom.shape == "mesh" and geom.asset is None and geom.file is None:
        element, text = f"geom {geom.name!r}" if geom.name else "geom", f"shape {geom.shape}; URDF has {', '.join(_SHAPES)}"
        if collides:
            document.losses.lose(geom.source, element, text, "it is left out and touches nothing")
        else:
            document.losses.drop(geom.source, element, f"{text}; it is left out of the picture")
        return
    tag, numbers, pose = _SHAPES[geom.shape](document, geom)
    for role in ("visual",) * geom.visual + ("collision",) * collides:
        e = add(link, role, name=geom.name or None)
        add_origin(e, Pose(IDENTITY_QUAT, -offset) @ pose)
        add(add(e, "geometry"), tag, **numbers)
        if role == "visual" and geom.rgba is not None:
            material = add(e, "material", name="rgba " + " ".join(f"{x:g}" for x in geom.rgba))
            add(material, "color", rgba=geom.rgba)
        if role == "collision":
            coefficients = {name: geom.surface[name] for name in COEFFICIENTS if name in geom.surface}
            if coefficients:
                add(e, "contact_coefficients", **coefficients)


def _pose(geom: GeomSpec) -> Pose:
    return Pose(normalized(geom.quat), np.asarray(geom.pos, float))


def _box(document: Document, geom: GeomSpec):
    return "box", {"size": 2 * np.asarray(geom.size)}, _pose(geom)


def _sphere(document: Document, geom: GeomSpec):
    return "sphere", {"radius": geom.size[0]}, _pose(geom)


def _cylinder(document: Document, geom: GeomSpec):
    return geom.shape, {"radius": geom.size[0], "length": 2 * geom.size[1]}, _pose(geom)


def _capsule(document: Document, geom: GeomSpec):
    document.root.set("version", "1.2")  # the first one that has capsules
    return _cylinder(document, geom)


def _mesh(document: Document, geom: GeomSpec):
    """A mesh by a copy of its file, or by a file with its triangles. In its file a mesh has other coordinates than in the model."""
    if geom.asset is None:
        return "mesh", {"filename": _copied(document, geom.path) or geom.file, "scale": geom.size}, _pose(geom)
    mesh, scale = document.spec.meshes[geom.asset], np.array(mesh_scale(geom))
    copy = _copied(document, geom.path)
    if copy is not None:
        in_file = Pose(normalized(mesh.quat), mesh.pos * scale)
        return "mesh", {"filename": copy, "scale": scale * np.sign(mesh.scale)}, _pose(geom) @ in_file.inverse()
    return "mesh", {"filename": _triangles(document, geom.asset, mesh), "scale": scale}, _pose(geom)


_SHAPES = {"box": _box, "sphere": _sphere, "cylinder": _cylinder, "capsule": _capsule, "mesh": _mesh}


def _copied(document: Document, path: str | None) -> str | None:
    """The name of a copy of a mesh file, None where there is no file."""
    if path is None or not Path(path).is_file():
        return None
    return _file(document, path, Path(path).name, Path(path).read_bytes())


def _triangles(document: Document, number: int, mesh: MeshSpec) -> str:
    """The name of a Wavefront file with the triangles of a mesh."""
    vertices = "".join(f"v {x!r} {y!r} {z!r}\n" for x, y, z in mesh.vertices.tolist())
    faces = "".join(f"f {a} {b} {c}\n" for a, b, c in (np.asarray(mesh.faces) + 1).tolist())
    stem = Path(mesh.name).stem or f"mesh_{number}"
    return _file(document, str(number), f"{stem}.obj", (vertices + faces).encode())


def _file(document: Document, key: str, name: str, contents: bytes) -> str:
    """The name of a file in the folder of meshes, the same for the same key."""
    if key not in document.file_names:
        document.file_names[key] = f"{document.folder}/{document.names.free('file', name)}"
        document.files[document.file_names[key]] = contents
    return document.file_names[key]


def _write_friction(document: Document, link: XML, name: str, geoms: Sequence[GeomSpec]) -> None:
    """Bullet's <contact> with the coefficients of friction of the shapes of a link, none where they are the default."""
    found = [_surface_numbers(geom) for geom in geoms if geom.contact is not None or geom.surface]
    if any(numbers != found[0] for numbers in found):
        text = "shapes of different friction; URDF has one surface for a link"
        document.losses.lose(geoms[0].source, f"body {name!r}", text, "that of the first shape is written")
    if found and found[0]:
        e = add(link, "contact")
        for tag, value in found[0].items():
            add(e, tag, value=value)


def _surface_numbers(geom: GeomSpec) -> dict[str, float]:
    """The numbers of a surface by Bullet's names: those of the file, else those that are not the default."""
    given = {name: geom.surface[name] for name in BULLET if name in geom.surface}
    if given or any(name in geom.surface for name in COEFFICIENTS) or geom.contact is None:
        return given
    surface = geom.contact
    slide, spin, roll = (x if surface.condim >= least else 0.0 for x, least in zip(surface.friction, (3, 4, 6), strict=True))
    numbers = {"lateral_friction": slide, "rolling_friction": roll, "spinning_friction": spin}
    default = {"lateral_friction": FRICTION, "rolling_friction": 0.0, "spinning_friction": 0.0}
    return {name: value for name, value in numbers.items() if value != default[name]}
