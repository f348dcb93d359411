"""Reads what only pictures need of a ModelSpec into the topology: surfaces of visible geoms, flexes and skins, colours."""

from __future__ import annotations

import numpy as np

from xsim.model.drawing import DrawingInfo, LookInfo, MaterialInfo, SurfaceInfo, TextureInfo, TrianglesInfo
from xsim.model.flex_topology import outer_faces
from xsim.model.table import Table
from xsim.model.topology import GeomInfo
from xsim.poses import quat_conj, rotate
from xsim.spec import MESH_SHAPES, FlexSpec, HfieldSpec, MeshSpec, ModelSpec

__all__ = ["read_color", "read_drawing"]


def read_drawing(spec: ModelSpec, geoms: tuple[GeomInfo, ...]) -> DrawingInfo:
    """The surfaces and colours of a model. geoms: all of them."""
    used = {("mesh" if geom.shape in MESH_SHAPES else geom.shape, geom.asset) for geom in geoms if geom.visible}
    skins = spec.drawing.get("skins", {})
    own = [*spec.world_geoms, *(geom for body in spec.bodies for geom in body.geoms)]  # in the order of geoms
    textures = {name: _texture(name, given) for name, given in spec.drawing.get("textures", {}).items()}
    return DrawingInfo(
        meshes=tuple(_mesh(m) if ("mesh", i) in used else None for i, m in enumerate(spec.meshes)),
        hfields=tuple(_height_field(field) if ("hfield", i) in used else None for i, field in enumerate(spec.hfields)),
        surfaces=(*(_flex(spec, flex) for flex in spec.flexes), *(_skin(spec, name, skin) for name, skin in skins.items())),
        sites=tuple(read_color(spec, site.rgba, site.material) for site in spec.sites),
        tendons=tuple((read_color(spec, tendon.rgba, tendon.material), float(tendon.width)) for tendon in spec.tendons),
        looks=tuple(_look(spec, geom.rgba, geom.material) for geom in own),
        materials=tuple(_material(given, list(textures)) for given in spec.drawing.get("materials", {}).values()),
        textures=tuple(textures.values()),
        sky=next((i for i, texture in enumerate(textures.values()) if texture.type == "skybox"), -1),
    )


def _look(spec: ModelSpec, rgba, material: str) -> LookInfo | None:
    """What a geom, flex or skin with a material is drawn with; rgba: its own colour, before that of the material."""
    materials = spec.drawing.get("materials", {})
    if material not in materials:
        return None
    rgba = materials[material]["rgba"] if rgba is None else rgba
    return LookInfo(list(materials).index(material), tuple(map(float, rgba)))


def _material(given: dict, textures: list[str]) -> MaterialInfo:
    name = _color_texture(given)
    repeat, number = tuple(map(float, given["texrepeat"])), textures.index(name) if name in textures else -1
    numbers = (given[key] for key in ("emission", "specular", "shininess", "reflectance", "metallic", "roughness"))
    return MaterialInfo(number, repeat, bool(given["texuniform"]), *map(float, numbers))


def _color_texture(material: dict) -> str | None:
    layers = material.get("layers", {})
    return material.get("texture") or layers.get("rgb") or layers.get("rgba")


_SIDES = ("fileright", "fileleft", "fileup", "filedown", "filefront", "fileback")


def _texture(name: str, given: dict) -> TextureInfo:
    colors = (tuple(map(float, given[key])) for key in ("rgb1", "rgb2", "markrgb"))
    numbers = (given[key] for key in ("random", "width", "height", "hflip", "vflip", "nchannel"))
    sides = tuple(given.get(side, "") for side in _SIDES)
    return TextureInfo(
        name, given["type"], given["builtin"], given["mark"], *colors, *numbers, tuple(map(int, given["gridsize"])), given["gridlayout"],
        given.get("file", ""), sides if any(sides) else (),
    )  # fmt: skip


def read_color(spec: ModelSpec, rgba, material: str) -> tuple[float, ...] | None:
    """The colour of an element: its own, else that of its material, with the mean of the colours of a built-in texture."""
    given = spec.drawing.get("materials", {}).get(material)
    if rgba is None and given is not None:
        rgba = np.array(given["rgba"], float)
        texture = spec.drawing.get("textures", {}).get(_color_texture(given))
        if texture is not None and texture["builtin"] != "none":
            rgba[:3] *= np.mean([texture["rgb1"], texture["rgb1" if texture["builtin"] == "flat" else "rgb2"]], 0)
    return None if rgba is None else tuple(map(float, rgba))


def _triangles(vertices, faces) -> TrianglesInfo:
    return TrianglesInfo(Table(np.asarray(vertices, np.float32)), Table(np.asarray(faces, np.int32).reshape(-1, 3)))


def _mesh(mesh: MeshSpec) -> TrianglesInfo:
    texcoords = None if mesh.texcoords is None else Table(np.asarray(mesh.texcoords, np.float32))
    return _triangles(mesh.vertices, mesh.faces)._replace(texcoords=texcoords)


def _height_field(field: HfieldSpec) -> TrianglesInfo:
    """The surface of a height field, its sides and its bottom; x and y from -1 to 1, heights from 0 to 1, times its size."""
    heights = np.asarray(field.heights, float)
    rows, columns = heights.shape
    if min(rows, columns) < 2:
        return _triangles(np.zeros((0, 3)), np.zeros((0, 3)))
    x, y = np.meshgrid(np.linspace(-1, 1, columns), np.linspace(-1, 1, rows))
    top = np.stack([x, y, heights], -1).reshape(-1, 3)
    number = np.arange(rows * columns).reshape(rows, columns)
    a, b, c, d = (number[i, j].ravel() for i, j in _CORNERS)
    rim = np.concatenate([number[0, :-1], number[:-1, -1], number[-1, :0:-1], number[:0:-1, 0]])  # counter-clockwise from above
    below = top[rim] * [1, 1, 0] - [0, 0, field.size[3] / max(field.size[2], 1e-9)]
    under = len(top) + np.arange(len(rim))
    after, under_after = np.roll(rim, -1), np.roll(under, -1)
    fan = [np.full(len(rim) - 2, under[0]), under[2:], under[1:-1]]
    faces = [[a, b, d], [a, d, c], [rim, under, under_after], [rim, under_after, after], fan]
    return _triangles(np.concatenate([top, below]), np.concatenate([np.stack(corners, -1) for corners in faces]))


_CORNERS = [(slice(None, -1), slice(None, -1)), (slice(None, -1), slice(1, None)), (slice(1, None), slice(None, -1)),
            (slice(1, None), slice(1, None))]  # fmt: skip
"""Of each cell: lower x and y, higher x, higher y, both."""


def _flex(spec: ModelSpec, flex: FlexSpec) -> SurfaceInfo:
    """The lines, triangles, or outer faces of the tetrahedra of a flex."""
    elements = np.asarray(flex.elements, np.int32).reshape(-1, flex.dim + 1)
    points = np.arange(len(flex.bodies))[:, None]
    weights = np.ones(points.shape)
    if flex.grid is not None:
        points, weights = flex.grid.vertex_nodes, flex.grid.vertex_weights
    count, points = len(points), points.ravel()
    own, material, texcoord = flex.numbers.get("rgba"), flex.numbers.get("material", ""), flex.numbers.get("texcoord")
    rgba = read_color(spec, own, material)
    if texcoord is not None and (len(texcoord) != count or flex.dim == 1):
        texcoord = None
    return SurfaceInfo(
        flex.name, rgba, count, Table(outer_faces(elements) if flex.dim == 3 else elements),
        Table(np.repeat(np.arange(count, dtype=np.int32), len(points) // count)), Table(np.asarray(flex.bodies, np.int32)[points]),
        Table(np.asarray(flex.pos, np.float32).reshape(-1, 3)[points]), Table(weights.ravel().astype(np.float32)), float(flex.radius),
        _look(spec, own, material), None if texcoord is None else Table(np.asarray(texcoord, np.float32)),
    )  # fmt: skip


def _skin(spec: ModelSpec, name: str, skin: dict) -> SurfaceInfo:
    """The surface of a skin. Each bone has the vertices in its frame in the bind pose."""
    bones = skin["bones"]
    points = [rotate(quat_conj(bone["quat"]), skin["vertices"][bone["vertices"]] - bone["pos"]) for bone in bones]
    bodies = np.repeat([bone["body"] for bone in bones], [len(bone["vertices"]) for bone in bones])
    weights = np.concatenate([bone["weights"] for bone in bones])
    return SurfaceInfo(
        name, read_color(spec, skin["rgba"], skin["material"]), len(skin["vertices"]), Table(np.asarray(skin["faces"], np.int32)),
        Table(np.concatenate([bone["vertices"] for bone in bones]).astype(np.int32)), Table(bodies.astype(np.int32)),
        Table(np.concatenate(points).astype(np.float32)), Table(weights.astype(np.float32)), 0.0,
        _look(spec, skin["rgba"], skin["material"]),
        None if skin["texcoord"] is None else Table(np.asarray(skin["texcoord"], np.float32)),
    )  # fmt: skip
