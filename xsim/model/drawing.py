"""The part of the topology that only pictures need."""

from __future__ import annotations

from typing import NamedTuple

from xsim.model.table import Table

__all__ = ["DrawingInfo", "LookInfo", "MaterialInfo", "SurfaceInfo", "TextureInfo", "TrianglesInfo"]


class TrianglesInfo(NamedTuple):
    """A surface to draw: vertices (n, 3) float32, faces (m, 3) int32, counter-clockwise seen from outside. texcoords (m, 3, 2) float32: of
    the corners, (0, 0) at the first row and column of a picture, None of none."""

    vertices: Table
    faces: Table
    texcoords: Table | None = None


class TextureInfo(NamedTuple):
    """What a picture on surfaces is made of; the attributes of <texture> in MJCF. Files are read when they are drawn.

    file: its path, "" for none. sides: paths of the six sides of a cube, x, -x, y, -y, z, -z.
    """

    name: str
    type: str
    builtin: str
    mark: str
    rgb1: tuple
    rgb2: tuple
    markrgb: tuple
    random: float
    width: int
    height: int
    hflip: bool
    vflip: bool
    nchannel: int
    gridsize: tuple
    gridlayout: str
    file: str
    sides: tuple[str, ...]


class MaterialInfo(NamedTuple):
    """How surfaces look, without their colour; the attributes of <material> in MJCF. texture: number of the texture, -1 for none."""

    texture: int
    texrepeat: tuple
    texuniform: bool
    emission: float
    specular: float
    shininess: float
    reflectance: float
    metallic: float
    roughness: float


class LookInfo(NamedTuple):
    """The material of an element, by number, and the colour that its texture is multiplied by."""

    material: int
    rgba: tuple[float, ...]


class SurfaceInfo(NamedTuple):
    """A surface, or lines, that move with bodies: a flex or a skin.

    * elements (m, 2 or 3): vertex numbers of lines or triangles.
    * vertices, bodies, weights (k,): which vertex follows which body (-1: the world), and its share in the vertex's position.
      points (k, 3): the vertex in the frame of that body, m.
    * count: number of vertices. radius: of lines, m.
    * look: its material, None without. texcoords (count, 2): of the vertices, None of none.
    """

    name: str
    rgba: tuple | None
    count: int
    elements: Table
    vertices: Table
    bodies: Table
    points: Table
    weights: Table
    radius: float
    look: LookInfo | None = None
    texcoords: Table | None = None


class DrawingInfo(NamedTuple):
    """What only pictures need.

    * meshes, hfields: by number, those of visible geoms; None: of no visible geom. Height fields have x and y from -1 to 1, z from 0 to 1.
    * surfaces: flexes and skins. sites: colour of each, None without. tendons: colour and width (m) of each.
    * looks: of each geom, None without a material. materials, textures: those that the looks name. sky: number of the texture around the
      scene, -1 for none.
    """

    meshes: tuple[TrianglesInfo | None, ...] = ()
    hfields: tuple[TrianglesInfo | None, ...] = ()
    surfaces: tuple[SurfaceInfo, ...] = ()
    sites: tuple[tuple | None, ...] = ()
    tendons: tuple[tuple[tuple | None, float], ...] = ()
    looks: tuple[LookInfo | None, ...] = ()
    materials: tuple[MaterialInfo, ...] = ()
    textures: tuple[TextureInfo, ...] = ()
    sky: int = -1
