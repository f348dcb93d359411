"""Shapes and places on bodies, and the meshes, height fields and deformables that a model holds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import SurfaceSpec
from xsim.spec.fields import identity, zeros
from xsim.spec.source import Source

__all__ = ["FlexSpec", "GeomSpec", "HfieldSpec", "MarkerSpec", "MeshSpec", "SiteSpec"]


@dataclass(frozen=True)
class GeomSpec:
    """A shape on a body (or on the world): inertia, drawing and later contact.

    ``mass`` in kg, ``pos``/``quat`` of the shape's centre in the body frame, ``size`` in half extents (module docstring).
    ``rgba`` in 0..1 or None; ``color``/``edge_color`` keep the file's own words for writers.
    ``visual``: drawn; ``collision``: takes part in contact. ``file``: of a mesh or height field, as it was found; ``points``: of a
    polyline (n, 2) or an inline mesh. ``friction``: coefficients of the surface in the format's own order, ``surface``: its other
    numbers by name (``restitution``, ...), both as read.

    ``density``: kg/m^3 (of a ``shell`` kg/m^2), gives the mass in place of ``mass``. ``shell``: the mass is spread over the surface.
    ``asset``: the mesh or height field of a mesh or hfield geom, a number of ``ModelSpec.meshes`` or ``hfields``; ``pos``/``quat`` then
    place its principal frame. ``contact``: its numbers under MuJoCo's contact model. ``fluid``: None for the inertia-box
    model, or the five coefficients of the ellipsoid model (blunt drag, slender drag, angular drag, Kutta lift, Magnus lift).
    ``massless``: it gives no inertia whatever its mass says (MuJoCo: outside inertiagrouprange, or a plane, height field).
    ``group``, ``material`` (name), ``user``: for drawing and users.
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
    points: np.ndarray | None = None
    friction: tuple[float, ...] | None = None
    surface: dict[str, float] = field(default_factory=dict)
    density: float | None = None
    shell: bool = False
    asset: int | None = None
    contact: SurfaceSpec | None = None
    fluid: tuple[float, float, float, float, float] | None = None
    massless: bool = False
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class MarkerSpec:
    """An optical marker fixed to a body (x_xy ``omc``): no physics. ``pos`` in the body frame, m; None where the file has none."""

    name: str | None = None
    pos_marker: int | None = None
    pos: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class SiteSpec:
    """A named place on a body (-1: the world): ``pos``/``quat`` in the body frame, a shape and ``size`` as of a geom (touch sensors)."""

    name: str
    body: int
    pos: np.ndarray = zeros(3)
    quat: np.ndarray = identity()
    shape: str = "sphere"
    size: np.ndarray = field(default_factory=lambda: np.array([0.005]))
    rgba: tuple[float, float, float, float] | None = None
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class MeshSpec:
    """Triangles in their own principal frame: ``vertices`` (n, 3) m, ``faces`` (m, 3) vertex numbers, counter-clockwise seen from outside.

    ``volume`` (m^3), ``area`` (m^2), ``moments`` (3,): principal moments of inertia per unit mass (m^2) of the solid under the mesh's rule.
    ``shell``: it weighs as a surface, ``volume`` is its area. ``shell_com`` (3,) m and, about it, ``shell_inertia`` (6,) xx yy zz xy xz yz
    per unit mass (m^2): of the surface, in the mesh's frame. ``pos``/``quat``: that frame in the file's coordinates (after scale, refpos
    and refquat). ``hull`` (k, 3): the faces of the convex hull, None for a flat mesh.
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
    file: str | None = None
    source: Source = Source()


@dataclass(frozen=True)
class HfieldSpec:
    """A height field: ``heights`` (rows along y, columns along x) from 0 to 1, ``size``: half x, half y, height of a 1, depth of the base
    (m)."""

    name: str
    heights: np.ndarray
    size: np.ndarray
    file: str | None = None
    source: Source = Source()


@dataclass(frozen=True)
class FlexSpec:
    """A deformable: ``elements`` (n, dim + 1) of points, each point ``pos`` (m) in the frame of body ``bodies[i]`` (-1: the world).
    ``numbers``: elasticity, edge and contact numbers by the file's own names (``young``, ``edge_stiffness``, ...).

    ``edges`` (m, 2): pairs of points that elements join; ``lengths`` (m,): theirs where the bodies are drawn, m. ``corners``
    (n, dim (dim + 1) / 2): the edges of each element, those between its points 01; 12, 20, 01; or 01, 12, 20, 23, 03, 13."""

    name: str
    dim: int
    bodies: tuple[int, ...]
    pos: np.ndarray
    elements: np.ndarray
    edges: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), int))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(0))
    corners: np.ndarray = field(default_factory=lambda: np.zeros((0, 1), int))
    radius: float = 0.005
    numbers: dict = field(default_factory=dict)
    source: Source = Source()
