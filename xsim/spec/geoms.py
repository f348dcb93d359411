"""Shapes, markers and sites on bodies; meshes, height fields and deformables."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import SurfaceSpec
from xsim.spec.fields import identity, zeros
from xsim.spec.source import Source

__all__ = ["MESH_SHAPES", "FlexSpec", "GeomSpec", "GridSpec", "HfieldSpec", "MarkerSpec", "MeshSpec", "RodSpec", "SdfSpec", "SiteSpec"]

MESH_SHAPES = ("mesh", "sdf")
"""Shapes of geoms whose ``asset`` is a mesh."""


@dataclass(frozen=True)
class SdfSpec:
    """A signed distance function, the shape of what it belongs to.

    ``kind``: a key of `xsim.registry.DISTANCE_FUNCTIONS`. ``config``: its numbers by key, in the order of the entry's config.
    """

    kind: str
    config: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def numbers(self) -> list[float]:
        """All numbers of the config in order."""
        return [x for values in self.config.values() for x in values]


@dataclass(frozen=True)
class GeomSpec:
    """A shape on a body or on the world: for inertia, visuals and contact.

    * ``shape``, ``size``: kind and half extents, see `xsim.spec`. ``pos``, ``quat``: of the shape's centre in the body frame. For a mesh or
      hfield with an ``asset`` they are those of its principal frame.
    * ``mass``: kg. ``density``: kg/m^3 (kg/m^2 of a ``shell``), in place of the mass. ``shell``: the mass is spread over the surface.
      ``massless``: no inertia, whatever the mass is (MuJoCo: outside inertiagrouprange, planes, height fields).
    * ``visual``: the geom is visible. ``collision``: it takes part in contact.
    * ``asset``: index of a mesh or height field in ``ModelSpec.meshes`` or ``hfields``. ``file``: of a mesh or height field, with the path
      where it was found, or as the file names it and ``path`` where it was found. ``points``: outline of a polyline (n, 2), or of an
      inline mesh.
    * ``max_convex_hulls``: the most convex parts into which the file divides a colliding mesh; None: it collides by its convex hull.
    * ``contact``: contact parameters, MuJoCo's. ``friction``, ``surface``: coefficients of friction in the format's order, and other
      numbers of the surface by name (``restitution``, ...), as read.
    * ``fluid``: None for the inertia-box model, or the coefficients of the ellipsoid model (blunt drag, slender drag, angular drag, Kutta
      lift, Magnus lift).
    * ``surface_velocity``: linear (m/s) and angular velocity (rad/s) of the surface on its body, in the frame of the shape; None: at rest.
    * ``rgba``, ``edge_rgba``: 0..1, or None. ``color``, ``edge_color``: the words of the file, for writers. ``group``, ``material``
      (name), ``user``: for visualization and users.
    """

    shape: str
    size: np.ndarray
    mass: float = 0.0
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    name: str = ""
    rgba: tuple[float, float, float, float] | None = None
    edge_rgba: tuple[float, float, float, float] | None = None
    color: str | None = None
    edge_color: str | None = None
    visual: bool = True
    collision: bool = True
    file: str | None = None
    path: str | None = None
    points: np.ndarray | None = None
    friction: tuple[float, ...] | None = None
    surface: dict[str, float] = field(default_factory=dict)
    density: float | None = None
    shell: bool = False
    asset: int | None = None
    max_convex_hulls: int | None = None
    contact: SurfaceSpec | None = None
    fluid: tuple[float, float, float, float, float] | None = None
    surface_velocity: tuple[float, ...] | None = None
    massless: bool = False
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class MarkerSpec:
    """An optical marker fixed to a body (x_xy ``omc``), without physics. ``pos``: in the body frame, m; None where the file has none."""

    name: str | None = None
    pos_marker: int | None = None
    pos: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class SiteSpec:
    """A named frame on a body (-1: the world), with a shape.

    ``pos``, ``quat``: in the body frame. ``shape``, ``size``: as of a geom, the volume of touch sensors. Of the shape ``"mesh"``:
    ``asset``, index of the mesh in ``ModelSpec.meshes``, in the coordinates of its file; ``planes`` (n, 4), the outer normals of the faces
    of its convex hull, and their distances from the site's origin along them (m).
    """

    name: str
    body: int
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    shape: str = "sphere"
    size: np.ndarray = field(default_factory=lambda: np.array([0.005]))
    planes: np.ndarray | None = None
    asset: int | None = None
    rgba: tuple[float, float, float, float] | None = None
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class MeshSpec:
    """A triangle mesh in its principal frame. Other formats than MJCF give their meshes no mass; the frame is then at the mean of the
    hull's corners, along the axes of the file.

    * ``vertices`` (n, 3), m; ``faces`` (m, 3): vertex numbers, counter-clockwise seen from outside.
    * ``volume`` (m^3), ``area`` (m^2), ``moments`` (3,): principal moments of inertia per unit mass (m^2) of the solid, by the rule of
      the mesh's ``inertia`` attribute.
    * ``shell``: the mass is on the surface, ``volume`` is its area. ``shell_com`` (3,) m, and ``shell_inertia`` (6,) about it, xx yy zz
      xy xz yz per unit mass (m^2): of the surface, in the mesh's frame.
    * ``pos``, ``quat``: the principal frame in the file's coordinates (after scale, refpos and refquat).
    * ``hull`` (k, 3): faces of the convex hull, None for a flat mesh, and for one of a function, whose hull is found where it is needed.
    * ``rule``: how the volume was found, MJCF's ``inertia`` attribute. ``hull_vertices``: the most vertices of the hull, -1: all.
      ``scale`` (3,): by what the numbers of the file were multiplied, which are single-precision.
    * ``tangents`` (n, 2, 3): two unit vectors at each vertex of a pad of tactile sensors, None for others.
    * ``sdf``: the signed distance function whose surface the mesh is, in the file's coordinates; None: it is of a file. Geoms of the
      shape ``"sdf"`` have mass and bounds of their mesh, and collide by its function.
    * ``texcoords`` (m, 3, 2): of the corners of the faces, for drawing, (0, 0) at the first row and column of a picture; None: of none.
    """

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    volume: float = 0.0
    area: float = 0.0
    moments: np.ndarray = zeros(3)
    shell: bool = False
    shell_com: np.ndarray = zeros(3)
    shell_inertia: np.ndarray = zeros(6)
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    hull: np.ndarray | None = None
    rule: str = "legacy"
    hull_vertices: int = -1
    scale: np.ndarray = field(default_factory=lambda: np.ones(3))
    file: str | None = None
    tangents: np.ndarray | None = None
    sdf: SdfSpec | None = None
    texcoords: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class HfieldSpec:
    """A height field.

    ``heights``: from 0 to 1, rows along y, columns along x. ``size``: half x, half y, height of a 1, depth of the base, m.
    """

    name: str
    heights: np.ndarray
    size: np.ndarray
    file: str | None = None
    source: Source = Source()


@dataclass(frozen=True)
class RodSpec:
    """Of a flex that is a chain of lines: how it resists bending and twist (discrete elastic rods, MuJoCo 4.0).

    * ``tangents``, ``normals`` (2, 3): of the first and the last line in the reference pose, and perpendicular to them. They are in the
      frame of the body for a line that is fixed to one.
    * ``curvature`` (n - 1, 2): between each two lines in the reference pose, twice the tangent of half the angle, about the first line's
      normal and about the direction perpendicular to both. The normal of a line is that of the line before, turned as its tangent.
    * ``twists``: for each line, the joint whose angle turns its material about it, (body, index among the body's joints), None for a
      first or last line that is fixed to a body. Empty: the lines do not twist.
    * ``shear``: shear modulus, Pa, 0: that of an isotropic material.
    * ``section``: half the sides of a rectangle, the longer one along the normal, m. Empty: a circle of the flex's radius.
    """

    tangents: np.ndarray
    normals: np.ndarray
    curvature: np.ndarray
    twists: tuple[tuple[int, int] | None, ...] = ()
    shear: float = 0.0
    section: tuple[float, ...] = ()

    @property
    def nplastic(self) -> int:
        """How many numbers it has in `State.plastic`: tangent and normal of each line, and an angle between neighbouring lines."""
        return 7 * len(self.twists) - 1 if self.twists else 0


@dataclass(frozen=True)
class GridSpec:
    """The grid of nodes that moves the vertices of a flex (``dof`` trilinear or quadratic, MuJoCo 4.0).

    A cell has order + 1 nodes along each axis. Its shape functions are products of Lagrange polynomials, one for each axis.

    * ``order``: degree of the polynomials, 1 or 2. ``counts`` (3,): numbers of cells. ``sides`` (3,): of a cell, m.
    * ``cells`` (c, (order + 1)^dim): the nodes of the cells that are filled with material (dim 3), or of the faces of cells that are the
      boundary of the grid, which material covers (dim 2); the last axis fastest. ``axes`` (c, dim): the axes of the grid along each.
    * ``vertices`` (vertices, 3): the vertices in the reference pose, world frame, m. ``places`` (vertices, 3): the same in the grid, in
      units of cells.
    * ``vertex_nodes``, ``vertex_weights`` (vertices, (order + 1)^3): the nodes that move each vertex, and their shares.
    * ``weights`` (c, (2 order + 1)^3): the weights of the points of a quadrature over the material in each cell, in units of the volume of
      the cell, which sum to how much of it is filled. None if all are full. See `xsim.model.shape_functions.quadrature`.
    """

    order: int
    counts: tuple[int, int, int]
    sides: np.ndarray
    cells: np.ndarray
    axes: np.ndarray
    vertices: np.ndarray
    places: np.ndarray
    vertex_nodes: np.ndarray
    vertex_weights: np.ndarray
    weights: np.ndarray | None = None


@dataclass(frozen=True)
class FlexSpec:
    """A deformable.

    * ``bodies`` (n,): the body of each vertex, -1: the world. ``pos`` (n, 3): the vertex in the frame of that body, m. With a ``grid``
      those of each node.
    * ``elements`` (m, dim + 1): vertex numbers of lines, triangles or tetrahedra.
    * ``edges`` (k, 2): pairs of vertices. ``lengths`` (k,): of the edges in the reference pose, m. ``corners``
      (m, dim (dim + 1) / 2): the edges of each element, between its vertices 01; 12, 20, 01; or 01, 12, 20, 23, 03, 13.
    * ``hinges`` (h, 4): pairs of triangles with a common edge, as the vertices of this edge, and the other one of each triangle.
      ``angles`` (h,): by how much they are folded in the reference pose, rad, 0 where they are in one plane.
    * ``rod``: a chain of lines, in the order of the chain, that resist bending and twist, None for another flex.
    * ``grid``: the nodes that move the vertices, None where each vertex is on a body.
    * ``numbers``: elasticity, edge and contact parameters by the file's names (``young``, ``edge_stiffness``, ...).
    """

    name: str
    dim: int
    bodies: tuple[int, ...]
    pos: np.ndarray
    elements: np.ndarray
    edges: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), int))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(0))
    corners: np.ndarray = field(default_factory=lambda: np.zeros((0, 1), int))
    hinges: np.ndarray = field(default_factory=lambda: np.zeros((0, 4), int))
    angles: np.ndarray = field(default_factory=lambda: np.zeros(0))
    radius: float = 0.005
    rod: RodSpec | None = None
    grid: GridSpec | None = None
    numbers: dict = field(default_factory=dict)
    source: Source = Source()

    @property
    def has_passive_contact(self) -> bool:
        """Whether its contacts with what does not move, with itself and with other flexes are springs without friction."""
        return bool(self.numbers.get("passive")) and self.dim > 1 and len(set(self.bodies)) > 1

    @property
    def nplastic(self) -> int:
        """How many numbers it has in `State.plastic`: of a chain of lines see `RodSpec`, of elements that yield one for each of their
        edges, then, where the bending of triangles yields, one for each edge of the flex. 0 if all points are on one body."""
        if self.rod is not None or len(set(self.bodies)) == 1:
            return self.rod.nplastic if self.rod is not None else 0
        return self.nplastic_elements + (len(self.edges) if self.numbers.get("bend_yield_strain") else 0)

    @property
    def nplastic_elements(self) -> int:
        """How many of these numbers are those of the elements."""
        return self.corners.size if self.numbers.get("yield_strain") else 0
