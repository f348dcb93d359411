"""The part of the topology that only pictures need."""

from __future__ import annotations

from typing import NamedTuple

from xsim.model.table import Table

__all__ = ["DrawingInfo", "SurfaceInfo", "TrianglesInfo"]


class TrianglesInfo(NamedTuple):
    """A surface to draw: vertices (n, 3) float32, faces (m, 3) int32, counter-clockwise seen from outside."""

    vertices: Table
    faces: Table


class SurfaceInfo(NamedTuple):
    """A surface, or lines, that move with bodies: a flex or a skin.

    * elements (m, 2 or 3): vertex numbers of lines or triangles.
    * vertices, bodies, weights (k,): which vertex follows which body (-1: the world), and its share in the vertex's position.
      points (k, 3): the vertex in the frame of that body, m.
    * count: number of vertices. radius: of lines, m.
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


class DrawingInfo(NamedTuple):
    """What only pictures need.

    * meshes, hfields: by number, those of visible geoms; None: of no visible geom. Height fields have x and y from -1 to 1, z from 0 to 1.
    * surfaces: flexes and skins. sites: colour of each, None without. tendons: colour and width (m) of each.
    """

    meshes: tuple[TrianglesInfo | None, ...] = ()
    hfields: tuple[TrianglesInfo | None, ...] = ()
    surfaces: tuple[SurfaceInfo, ...] = ()
    sites: tuple[tuple | None, ...] = ()
    tendons: tuple[tuple[tuple | None, float], ...] = ()
