"""<asset>: meshes and height fields, which are physics; textures and materials, which are for drawing."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xsim.io.errors import ParseError, allowed
from xsim.io.mjcf.builtin_meshes import builtin_mesh
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.files import locate_asset
from xsim.io.mjcf.hfields import HFIELD_TYPES, normalized, read_heights
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.macros import integers
from xsim.io.mjcf.mesh_files import MESH_TYPES, Triangles, read_triangles
from xsim.io.mjcf.meshes import placed, solid_mesh
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.plugins import read_sdf
from xsim.io.mjcf.sdf_meshes import sdf_surface
from xsim.io.pictures import SIDES
from xsim.io.reader import Element, read_bytes
from xsim.poses import IDENTITY_QUAT, rotation_matrix
from xsim.spec import HfieldSpec, MeshSpec

__all__ = ["Assets", "asset_triangles", "read_assets"]

MAX_BYTES = 1_000_000_000  # of all files of a model together
_INERTIA = ("convex", "exact", "legacy", "shell")
_CELLS = 20_000_000
_TEXTURE_TYPES = ("image/png", "image/ktx", "image/vnd.mujoco.texture")
_ROLES = ("rgb", "occlusion", "roughness", "metallic", "normal", "opacity", "emissive", "rgba", "orm")


class Assets(NamedTuple):
    """meshes, hfields: in the order of the file. drawing: ``textures`` and ``materials`` by name, each a dictionary of attributes under the
    file's names (a skybox may have no name; the first of these is "")."""

    meshes: list[MeshSpec]
    hfields: list[HfieldSpec]
    drawing: dict


def read_assets(document: Document, index: Index) -> Assets:
    """All assets of a model; their names go into the index ("mesh", "hfield", "texture", "material"). Raises ParseError."""

    def numbered(tag: str):
        return enumerate(document.resolve(e) for e in document.elements("asset", tag))

    textures: dict[str, dict] = {}
    for i, e in numbered("texture"):
        texture = _texture(document, e)
        textures.setdefault(_name(e, index, i, needed=texture["type"] != "skybox"), texture)
    materials = {_name(e, index, i): _material(e, index) for i, e in numbered("material")}
    files = _Files()
    meshes = [_mesh(document, e, files, index, i) for i, e in numbered("mesh")]
    hfields = [_hfield(document, e, files, index, i) for i, e in numbered("hfield")]
    return Assets(meshes, hfields, {"textures": textures, "materials": materials})


def asset_triangles(document: Document, e: Element, name: str) -> Triangles:
    """The vertices and faces of a mesh in <asset>, placed and scaled, for an element that names it by its attribute ``mesh``. Raises
    ParseError for an unknown name."""
    known = {}
    for mesh in document.elements("asset", "mesh"):
        known.setdefault(mesh.raw("name") or (_stem(mesh) if mesh.has("file") else ""), mesh)
    if name not in known:
        raise e.error(f"unknown mesh {name!r}; {allowed(name, list(known)) if known else 'the model has no mesh'}", "mesh")
    asset = document.resolve(known[name])
    mesh, _, _ = _triangles(document, asset, _Files(), asset.choice("inertia", _INERTIA, "legacy"))
    _check(asset, mesh)
    defaults = {"scale": (1, 1, 1), "refpos": (0, 0, 0), "refquat": (1, 0, 0, 0)}
    mesh = placed(mesh, *(asset.floats(key, len(default), default) for key, default in defaults.items()))
    mirrored = np.prod(asset.floats("scale", 3, (1, 1, 1))) < 0  # faces keep their first corner
    return mesh._replace(faces=mesh.faces[:, [2, 0, 1]]) if mirrored else mesh


class _Files:
    """Files read so far: a few lines of a model can name a large file many times."""

    def __init__(self):
        self._bytes = 0

    def read(self, e: Element) -> tuple[bytes, Path]:
        """The file of a mesh or height field."""
        path = locate_asset(e, "file", scope(e).mesh_dir)
        data = read_bytes(path)
        self._bytes += len(data)
        if self._bytes > MAX_BYTES:
            raise e.error(f"with this file the assets have more than {MAX_BYTES} bytes together", "file")
        return data, path


def _name(e: Element, index: Index, number: int, needed: bool = True) -> str:
    """The name of an asset, entered in the index; where it has none, that of its file without folder and ending."""
    name = e.string("name", "") if e.is_explicit("name") else ""
    if not name and e.has("file"):
        name = _stem(e)
    if not name and needed:
        raise e.error("attribute 'name' is missing")
    return index.add(e.tag, e, number, name)


def _stem(e: Element) -> str:
    """The name of an element's file without folder and ending."""
    return Path(re.split(r"[/\\]", e.string("file"))[-1]).stem


def _type(e: Element, types: dict[str, str], endings: dict[str, str], default: str | None = None) -> str:
    """The kind of a file: as content_type says, else by the ending of its name."""
    if e.has("content_type"):
        return types[e.choice("content_type", types)]
    ending = Path(e.string("file")).suffix.lower()
    if ending in endings or default is not None:
        return endings.get(ending, default or "")
    raise e.error(f"unknown ending {ending!r}; {allowed(ending, endings)}", "file")


def _mesh(document: Document, e: Element, files: _Files, index: Index, number: int) -> MeshSpec:
    name = _name(e, index, number)
    sdf = read_sdf(document, e, index)
    e.boolean("smoothnormal", False)
    if e.has("material"):
        index.find("material", e, "material")
    mode = e.choice("inertia", _INERTIA, "legacy")
    mesh, path, mode = _triangles(document, e, files, mode) if sdf is None else (sdf_surface(document, e, sdf), None, mode)
    _check(e, mesh)
    scale = e.floats("scale", 3, (1, 1, 1))
    quat = e.floats("refquat", 4, (1, 0, 0, 0))
    if not np.any(quat):
        raise e.error("found 0 0 0 0; allowed: a quaternion that is not zero", "refquat")
    most = e.integer("maxhullvert")
    if most is not None and most != -1 and most < 4:
        raise e.error(f"found {most}; allowed: -1 (no limit) or 4 and more", "maxhullvert")
    tangents = mesh.tangents
    if tangents is not None:  # those of MuJoCo change as normals do
        tangents = placed(Triangles(tangents.reshape(-1, 3), mesh.faces), 1 / scale, 0.0, quat).vertices
    mesh = placed(mesh, scale, e.floats("refpos", 3, (0, 0, 0)), quat)
    most = -1 if most is None else most
    spec = solid_mesh(document, e, name, mesh, mode, most, sdf is None)
    if sdf is not None and document.release.sdf_in_file_frame:
        spec = replace(spec, vertices=mesh.vertices, pos=np.zeros(3), quat=IDENTITY_QUAT)
    if tangents is not None:
        tangents = (tangents / np.linalg.norm(tangents, axis=1)[:, None] @ rotation_matrix(spec.quat)).reshape(-1, 2, 3)
    path, texcoords = None if path is None else str(path), e.floats("texcoord")
    texcoords = mesh.texcoords if texcoords is None else texcoords.reshape(-1, 2)[spec.faces]
    return replace(spec, rule=mode, hull_vertices=most, scale=scale, file=path, sdf=sdf, tangents=tangents, texcoords=texcoords)


def _triangles(document: Document, e: Element, files: _Files, mode: str) -> tuple[Triangles, Path | None, str]:
    """Vertices and faces, of the file or of the element itself; the file; the kind of inertia. mode: the attribute ``inertia``. Vertices
    are numbers of single precision wherever they are from."""
    for name in ("content_type", "params"):  # without effect on some sources
        e.raw(name)
    vertex = e.floats("vertex")
    points = np.zeros((0, 3)) if vertex is None else vertex
    if len(points.reshape(-1)) % 3:
        raise e.error(f"found {len(points)} numbers; allowed: a multiple of 3", "vertex")
    mesh, path = Triangles(points.reshape(-1, 3), np.zeros((0, 3), int)), None
    if e.has("builtin"):
        mesh, mode = builtin_mesh(document, e, mode)
    elif e.has("file"):
        if vertex is not None:
            raise e.error("found beside file; allowed: one of them", "vertex")
        kind = _type(e, MESH_TYPES, {".stl": "stl", ".obj": "obj", ".msh": "msh"})
        data, path = files.read(e)
        mesh = read_triangles(data, kind, e, document.notes, document.release.quads_by_shorter_diagonal)
    elif vertex is None:
        raise e.error("has no points; allowed: file or vertex" + (", or builtin" if document.release.schema == "4.0" else ""))
    faces = integers(e, "face", default=())
    if len(faces):
        if len(faces) % 3:
            raise e.error(f"found {len(faces)} numbers; allowed: a multiple of 3", "face")
        if len(mesh.faces):
            raise e.error("found beside a file or builtin with faces; allowed: one of them", "face")
        mesh = mesh._replace(faces=faces.reshape(-1, 3))
    for attribute, columns in (("normal", 3), ("texcoord", 2)):
        values = e.floats(attribute)
        if values is not None and len(values) != columns * len(mesh.vertices):
            raise e.error(f"found {len(values)} numbers for {len(mesh.vertices)} vertices; allowed: {columns} for each", attribute)
    with np.errstate(over="ignore"):
        return mesh._replace(vertices=mesh.vertices.astype(np.float32).astype(float)), path, mode


def _check(e: Element, mesh: Triangles) -> None:
    source = next((name for name in ("file", "builtin") if e.has(name)), "vertex")
    if len(mesh.vertices) < 4:
        raise e.error(f"found {len(mesh.vertices)} vertices; allowed: 4 or more", source)
    if not np.isfinite(mesh.vertices).all():
        raise e.error("a coordinate of a vertex is not finite", source)
    if np.max(np.abs(mesh.vertices)) > 1e15:
        raise e.error(f"a vertex lies {np.max(np.abs(mesh.vertices)):g} away; allowed: 1e15", source)
    if len(mesh.faces) and (mesh.faces.min() < 0 or mesh.faces.max() >= len(mesh.vertices)):
        number = int(np.flatnonzero(((mesh.faces < 0) | (mesh.faces >= len(mesh.vertices))).any(1))[0])
        found = " ".join(map(str, mesh.faces[number]))
        source = "face" if e.has("face") else source
        raise e.error(f"face {number} has the vertices {found}; allowed: 0 to {len(mesh.vertices) - 1}", source)


def _hfield(document: Document, e: Element, files: _Files, index: Index, number: int) -> HfieldSpec:
    name = _name(e, index, number)
    size = e.floats("size", 4)
    if size is None or not (size > 0).all():
        raise e.error("found no four numbers > 0; allowed: half x, half y, height, depth of the base", "size")
    shape = e.integer("nrow") or 0, e.integer("ncol") or 0
    elevation, path = e.floats("elevation"), None
    if e.has("file"):
        if elevation is not None:
            raise e.error("found beside file; allowed: one of them", "elevation")
        kind = _type(e, HFIELD_TYPES, {".png": "png"}, "binary")
        data, path = files.read(e)
        heights = read_heights(data, kind, e)
        document.budget.spend(e, numbers=heights.size)
        if any(shape) and shape != heights.shape:
            raise e.error(f"found {shape[0]} rows, {shape[1]} columns; allowed: what the file has, {heights.shape}", "nrow")
    else:
        e.raw("content_type")
        if min(shape) < 1 or shape[0] * shape[1] > _CELLS:
            raise e.error(f"found {shape[0]} rows, {shape[1]} columns; allowed: from 1 to {_CELLS} cells, or a file", "nrow")
        document.budget.spend(e, numbers=shape[0] * shape[1])
        if elevation is not None and len(elevation) != shape[0] * shape[1]:
            raise e.error(f"found {len(elevation)} numbers; allowed: nrow ncol, {shape[0]} x {shape[1]}", "elevation")
        # Written as it is seen from above: the first row is at the largest y.
        heights = np.zeros(shape) if elevation is None else elevation.reshape(shape)[::-1]
    if min(heights.shape) < 2:
        raise e.error(f"found {heights.shape[0]} rows, {heights.shape[1]} columns; allowed: 2 or more of each", "nrow")
    return HfieldSpec(name, normalized(heights), size, None if path is None else str(path), e.source)


def _texture(document: Document, e: Element) -> dict:
    out = {
        "type": e.choice("type", ("2d", "cube", "skybox"), "cube"),
        "builtin": e.choice("builtin", ("none", "gradient", "checker", "flat"), "none"),
        "mark": e.choice("mark", ("none", "edge", "cross", "random"), "none"),
        "rgb1": e.floats("rgb1", 3, (0.8, 0.8, 0.8)),
        "rgb2": e.floats("rgb2", 3, (0.5, 0.5, 0.5)),
        "markrgb": e.floats("markrgb", 3, (0, 0, 0)),
        "random": e.number("random", 0.01),
        "width": e.integer("width") or 0,
        "height": e.integer("height") or 0,
        "hflip": e.boolean("hflip", False),
        "vflip": e.boolean("vflip", False),
        "nchannel": 3 if e.integer("nchannel") is None else e.integer("nchannel"),
        "gridsize": e.floats("gridsize", 2, (1, 1)),
        "gridlayout": e.string("gridlayout", ""),
        "colorspace": e.choice("colorspace", ("auto", "linear", "sRGB"), "auto"),
    }
    e.choice("embed", ("auto", "false", "true"), "auto")
    if e.has("content_type"):
        out["content_type"] = e.choice("content_type", _TEXTURE_TYPES)
    for attribute in ("file", *SIDES):
        if e.has(attribute):
            path = _picture(document, e, attribute, used=out["builtin"] == "none")
            if path is not None:
                out[attribute] = path
    return out


def _picture(document: Document, e: Element, attribute: str, used: bool) -> str | None:
    """Path of a file that only pictures need; None, and a warning if it is used, where it is not there: the physics is the same."""
    try:
        return str(locate_asset(e, attribute, scope(e).texture_dir))
    except ParseError as error:
        if used:
            document.notes.unsupported(e.line, f"{error}; the model is read without it", e.file)
        return None


def _material(e: Element, index: Index) -> dict:
    numbers = {"emission": 0.0, "specular": 0.5, "shininess": 0.5, "reflectance": 0.0, "metallic": 0.0, "roughness": 1.0}
    out: dict = {name: e.number(name, default) for name, default in numbers.items()}
    out["rgba"] = e.floats("rgba", 4, (1, 1, 1, 1))
    out["texrepeat"] = e.floats("texrepeat", 2, (1, 1))
    out["texuniform"] = e.boolean("texuniform", False)
    layers = e.all("layer")
    if e.has("texture"):
        index.find("texture", e, "texture")
        if layers:
            raise layers[0].error("found beside the attribute texture of the material; allowed: one of them")
        out["texture"] = e.string("texture")
    for layer in layers:
        index.find("texture", layer, "texture")
    out["layers"] = {layer.choice("role", _ROLES): layer.string("texture") for layer in layers}
    return out
