"""<asset> and <deformable>: meshes and height fields with their numbers in the text, textures, materials, skins, flexes."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.plugins import write_sdf
from xsim.io.pictures import MATERIAL, SIDES, TEXTURE
from xsim.io.writing.elements import add, unless
from xsim.io.writing.meshes import mesh_scale
from xsim.poses import normalized, rotate
from xsim.spec import MESH_SHAPES, MeshSpec

__all__ = ["write_assets", "write_skins"]


def write_assets(context: Context) -> None:
    """Meshes, height fields, textures and materials. Raises WriteError."""
    _write_meshes(context)
    _write_hfields(context)
    textures = context.spec.drawing.get("textures", {})
    unreadable = {name: why for name, texture in textures.items() if (why := _unreadable(texture))}
    for name, why in unreadable.items():
        context.losses.drop(context.spec.source, f"texture {name!r}", f"{why}; it is left out")
    for name, texture in textures.items():
        if name not in unreadable:
            look = {key: unless(TEXTURE.get(key), value) for key, value in texture.items()}
            add(context.section("asset"), "texture", name=name or None, **look)
    for name, material in context.spec.drawing.get("materials", {}).items():
        look = {key: unless(default, material.get(key, default)) for key, default in MATERIAL.items()}
        texture = material.get("texture")
        e = add(context.section("asset"), "material", name=name, texture=None if texture in unreadable else texture, **look)
        for role, texture in material.get("layers", {}).items():
            if texture not in unreadable:
                add(e, "layer", role=role, texture=texture)


def _unreadable(texture: dict) -> str:
    """Why MuJoCo would refuse a texture, "" where it reads it."""
    files = [texture[key] for key in ("file", *SIDES) if texture.get(key)]
    if texture["builtin"] != "none":
        return ""
    if not files:
        return "its file is not found"
    if "content_type" in texture or all(file.lower().endswith((".png", ".ktx")) for file in files):
        return ""
    return f"MuJoCo reads PNG and KTX, not {files[0]}"


def _write_meshes(context: Context) -> None:
    """Each mesh in every scale in which geoms use it, those that sites use or no geom as they are."""
    scales: dict[int, dict[tuple[float, ...], None]] = {i: {} for i in range(len(context.spec.meshes))}
    for _, geom in context.geoms():
        if geom.shape in MESH_SHAPES and geom.asset is not None:
            scales[geom.asset][mesh_scale(geom)] = None
    for site in context.spec.sites:
        if site.asset is not None:
            scales[site.asset][1.0, 1.0, 1.0] = None
    for number, of_mesh in scales.items():
        mesh = context.spec.meshes[number]
        for scale in of_mesh or {(1.0, 1.0, 1.0): None}:
            e = add(
                context.section("asset"), "mesh",
                **({} if mesh.sdf is not None else _triangles(mesh, scale)),
                inertia=unless("legacy", mesh.rule),
                maxhullvert=unless(-1, mesh.hull_vertices),
            )  # fmt: skip
            if mesh.sdf is not None:
                write_sdf(context, e, mesh.sdf)
            context.names.enter("mesh", (number, scale), e, mesh.name or "mesh")


def _triangles(mesh: MeshSpec, scale) -> dict[str, Any]:
    factors = np.abs(mesh.scale)
    vertices, faces, texcoord = _in_file(mesh) / factors, mesh.faces, None
    if mesh.texcoords is not None:
        copied, faces, texcoord = _with_texture_points(len(vertices), faces, mesh.texcoords)
        vertices, texcoord = np.concatenate([vertices, vertices[copied]]), _single(texcoord)
    return {"vertex": _single(vertices), "face": faces, "texcoord": texcoord, "scale": unless(np.ones(3), factors * scale)}


def _with_texture_points(count: int, faces: np.ndarray, texcoords: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The vertices to copy, because MJCF has one texture point for each vertex, the faces with the copies, and the points of all."""
    pairs = np.concatenate([faces.reshape(-1, 1), texcoords.reshape(-1, 2)], 1)
    pairs, number = np.unique(pairs, axis=0, return_inverse=True)
    vertex = pairs[:, 0].astype(int)
    again = np.concatenate([[False], vertex[1:] == vertex[:-1]])
    place = np.where(again, count + np.cumsum(again) - 1, vertex)
    points = np.zeros((count + again.sum(), 2))
    points[place] = pairs[:, 1:]
    return vertex[again], place[number].reshape(-1, 3), points


def _in_file(mesh: MeshSpec) -> np.ndarray:
    """The vertices in the coordinates of the file."""
    return mesh.pos + rotate(normalized(mesh.quat), mesh.vertices)


def _single(x: np.ndarray) -> str:
    """Numbers in single precision, in which MuJoCo holds vertices: the shortest texts that read back as these."""
    return " ".join(str(value).removesuffix(".0") for value in np.asarray(x, np.float32).ravel())


def _write_hfields(context: Context) -> None:
    for number, field in enumerate(context.spec.hfields):
        low, high = field.heights.min(), field.heights.max()
        if field.heights.any() and (low != 0 or high != 1):
            text = f"heights from {low:g} to {high:g}; MJCF has heights from 0 to 1"
            context.losses.refuse(field.source, f"height field {field.name!r}", text)
        e = add(
            context.section("asset"), "hfield",
            nrow=field.heights.shape[0],
            ncol=field.heights.shape[1],
            size=field.size,
            elevation=field.heights[::-1],
        )  # fmt: skip
        context.names.enter("hfield", number, e, field.name or "hfield")


def write_skins(context: Context) -> None:
    """The skins that bodies carry along. Bodies must have their names."""
    for name, skin in context.spec.drawing.get("skins", {}).items():
        e = add(
            context.section("deformable"), "skin",
            vertex=skin["vertices"],
            face=skin["faces"],
            texcoord=skin["texcoord"],
            inflate=unless(0.0, skin["inflate"]),
            rgba=skin["rgba"],
            group=unless(0, skin["group"]),
            material=skin["material"] or None,
        )  # fmt: skip
        context.names.enter("skin", name, e, name)
        for bone in skin["bones"]:
            add(e, "bone", **_bone(context, bone))


def _bone(context: Context, bone: dict[str, Any]) -> dict[str, Any]:
    body = context.names.of("body", bone["body"])
    return {
        "body": body, "bindpos": bone["pos"], "bindquat": bone["quat"], "vertid": bone["vertices"], "vertweight": bone["weights"],
    }  # fmt: skip
