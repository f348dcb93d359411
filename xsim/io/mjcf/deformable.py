"""<flex>: deformables, points fixed to bodies with elements between them."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.geoms import read_surface
from xsim.io.mjcf.grids import read_grid, reference_positions
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.macros import integers
from xsim.io.mjcf.references import split_names
from xsim.io.mjcf.rods import read_rod
from xsim.io.mjcf.scaling import UNIT
from xsim.io.mjcf.values import flag, integer, read_rgba
from xsim.io.reader import Element
from xsim.poses import Pose
from xsim.spec import FlexSpec, SurfaceSpec

__all__ = ["read_flexes"]


def read_flexes(document: Document, bodies: Bodies, index: Index) -> list[FlexSpec]:
    """All flexes, in order; index entries "flex". Raises ParseError.

    Vertices of tetrahedra are ordered so that the first three, seen from the side away from the fourth, are counter-clockwise in the
    reference pose.

    ``numbers``: ``young`` (Pa), ``poisson``, ``elastic_damping`` (s), ``thickness`` (m, -1: none), ``elastic2d`` (what triangles resist:
    "none", "bend", "stretch", "both"), ``yield_strain`` and ``bend_yield_strain`` (of stretching and of bending, 0: none),
    ``edge_stiffness`` and ``edge_damping`` (the engine's units), ``contact`` (SurfaceSpec), ``internal``, ``selfcollide``,
    ``active_layers``; for visuals ``texcoord`` (n, 2) or None, ``flat_skin``, ``material``, ``rgba``, ``group``.
    """
    elements = document.elements("deformable", "flex")
    poses = _reference_poses(bodies) if elements else []
    out = [_flex(document, bodies, index, e, index.add("flex", e, i), poses) for i, e in enumerate(elements)]
    for e, flex in zip(elements, out, strict=True):
        if any(bodies.scales.get(("body", body), UNIT) != UNIT for body in flex.bodies):
            raise e.error("has points on bodies in a frame with a scale, which is not simulated; allowed: elsewhere")
    return out


def _reference_poses(bodies: Bodies) -> list[Pose]:
    """World poses of the bodies in the reference pose, that of the world last."""
    out: list[Pose] = []
    for body in bodies.bodies:
        pose = Pose(body.quat, body.pos)
        if body.joints and body.joints[0].type == "free" and body.joints[0].q0 is not None:
            pose = Pose(body.joints[0].q0[3:], body.joints[0].q0[:3])
        out.append(pose if body.parent < 0 else out[body.parent] @ pose)
    return [*out, Pose()]


def _flex(document: Document, bodies: Bodies, index: Index, e: Element, name: str, poses: list[Pose]) -> FlexSpec:
    dim = integer(e, "dim", 2)
    if not 1 <= dim <= 3:
        raise e.error(f"found {dim}; allowed: 1, 2, 3", "dim")
    vertex_bodies, pos = _points(index, e, "vertex", "body", "vertex")
    if len(pos) < dim + 1:
        raise e.error(f"found {len(pos)} vertices; allowed: at least {dim + 1}, coordinates where they are all on one body", "body")
    world = reference_positions(poses, vertex_bodies, pos)
    elements = _elements(e, dim, world)
    edges, corners = _edges(elements)
    numbers = _material(document, e, dim) | _contact(document, e) | _visuals(index, e, len(pos))
    grid, rod, hinges = None, None, np.zeros((0, 4), int)
    if e.has("dof"):
        vertex_bodies, pos = _points(index, e, "node", "node", "nodecoord")
        grid = read_grid(e, dim, reference_positions(poses, vertex_bodies, pos), world, elements, numbers)
    else:
        hinges = _hinges(elements, corners) if dim == 2 else hinges
        rod = read_rod(document, bodies, index, e, name, elements, vertex_bodies, poses, world)
    return FlexSpec(
        name=name,
        dim=dim,
        bodies=tuple(vertex_bodies),
        pos=pos,
        elements=elements,
        edges=edges,
        lengths=np.linalg.norm(world[edges[:, 1]] - world[edges[:, 0]], axis=1),
        corners=corners,
        hinges=hinges,
        angles=_fold_angles(world[hinges]),
        radius=min(rod.section) if rod is not None and rod.section else e.number("radius", 0.005, nonnegative=True),
        rod=rod,
        grid=grid,
        numbers=numbers,
        source=e.source,
    )


def _points(index: Index, e: Element, what: str, body: str, coordinates: str) -> tuple[list[int], np.ndarray]:
    """Bodies of the vertices or nodes, and their coordinates in these. what: their name. body, coordinates: the attributes."""
    bodies = [index.named("body", e, body, word) for word in split_names(e.string(body))]
    flat = e.floats(coordinates)
    if flat is None:
        return bodies, np.zeros((len(bodies), 3))
    if len(flat) % 3:
        raise e.error(f"found {len(flat)} numbers; allowed: three for each {what}", coordinates)
    pos = flat.reshape(-1, 3)
    if len(bodies) not in (1, len(pos)):
        many = {"vertex": "vertices"}.get(what, what + "s")
        raise e.error(f"found {len(bodies)} bodies for {len(pos)} {many}; allowed: one for each, or one for all", body)
    return bodies * (len(pos) if len(bodies) == 1 else 1), pos


def _elements(e: Element, dim: int, world: np.ndarray) -> np.ndarray:
    """Vertex numbers (m, dim + 1). world: positions of the vertices in the reference pose."""
    flat = integers(e, "element")
    if flat is None or not len(flat) or len(flat) % (dim + 1):
        found = 0 if flat is None else len(flat)
        raise e.error(f"found {found} numbers; allowed: {dim + 1} for each element", "element")
    elements = flat.reshape(-1, dim + 1)
    if elements.min() < 0 or elements.max() >= len(world):
        raise e.error(f"found vertices {elements.min()} to {elements.max()}; allowed: 0 to {len(world) - 1}", "element")
    ordered = np.sort(elements, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        raise e.error("an element names a vertex twice; allowed: different vertices", "element")
    if dim == 3:
        with np.errstate(all="ignore"):
            inside_out = np.linalg.det(world[elements[:, 1:]] - world[elements[:, :1]]) > 0
        elements = np.where(inside_out[:, None], elements[:, [0, 2, 1, 3]], elements)
    return elements


SIDES = {1: ((0, 1),), 2: ((1, 2), (2, 0), (0, 1)), 3: ((0, 1), (1, 2), (2, 0), (2, 3), (0, 3), (1, 3))}
"""By dimension of a flex, the edges of an element."""


def _edges(elements: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Edges (m, 2) in the order in which elements name them, and those of each element (n, k)."""
    sides = np.sort(elements[:, np.array(SIDES[elements.shape[1] - 1])], axis=-1)
    edges, first, corners = np.unique(sides.reshape(-1, 2), axis=0, return_index=True, return_inverse=True)
    order = first.argsort()
    return edges[order], order.argsort()[corners.reshape(sides.shape[:2])]


def _hinges(elements: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """The inner edges (h, 4) of triangles: the vertices of the edge, then the others of the first and of the last triangle that has it."""
    sides: dict[int, list[tuple[int, int, int]]] = {}
    for element, of_element in zip(elements.tolist(), corners.tolist(), strict=True):
        for opposite, edge in enumerate(of_element):
            first, second = sorted(x for k, x in enumerate(element) if k != opposite)
            sides.setdefault(edge, []).append((first, second, element[opposite]))
    inner = [(*found[0], found[-1][2]) for _, found in sorted(sides.items()) if len(found) > 1]
    return np.array(inner, int).reshape(-1, 4)


def _fold_angles(x: np.ndarray) -> np.ndarray:
    """By how much hinges (h, 4 points, 3) are folded, rad. The sign is that of (x_1 - x_0) . ((x_2 - x_0) x (x_3 - x_0))."""
    edge, a, b = (x[:, k] - x[:, 0] for k in (1, 2, 3))
    with np.errstate(all="ignore"):
        direction = edge / np.linalg.norm(edge, axis=1)[:, None]
        a, b = (y - direction * (y * direction).sum(1)[:, None] for y in (a, b))
        return np.nan_to_num(np.arctan2((direction * np.cross(a, b)).sum(1), -(a * b).sum(1)))


def _material(document: Document, e: Element, dim: int) -> dict[str, Any]:
    """Elasticity and edge parameters."""
    elastic, edge = e.child("elasticity"), e.child("edge")
    out: dict[str, Any] = {"young": 0.0, "poisson": 0.0, "elastic_damping": 0.0, "thickness": -1.0, "edge_stiffness": 0.0}
    out |= {"edge_damping": 0.0, "yield_strain": 0.0, "bend_yield_strain": 0.0}
    old = document.release.schema == "3.2"  # triangles resist stretching
    out["elastic2d"] = "stretch" if old else "none"
    if elastic is not None:
        out["young"] = elastic.number("young", 0.0, nonnegative=True)
        out["poisson"] = elastic.number("poisson", 0.0)
        out["elastic_damping"] = elastic.number("damping", 0.0, nonnegative=True)
        out["thickness"] = elastic.number("thickness", -1.0)
        if not 0 <= out["poisson"] < 0.5:
            raise elastic.error(f"found {out['poisson']:g}; allowed: from 0 to below 0.5", "poisson")
        if not old:
            out["elastic2d"] = elastic.choice("elastic2d", ("none", "bend", "stretch", "both"), "none")
            yields = _yield_strains(elastic, dim, out["elastic2d"])
            if out["young"]:
                out["yield_strain"], out["bend_yield_strain"] = yields
        if not old and out["elastic2d"] != "none":
            if dim != 2:
                raise elastic.error(f"found {out['elastic2d']!r} with dim {dim}; allowed: only with dim 2", "elastic2d")
            if out["young"] and out["thickness"] <= 0:
                raise elastic.error(f"found {out['thickness']:g}; allowed with elastic2d: a positive number", "thickness")
    if edge is not None:
        out["edge_stiffness"] = edge.number("stiffness", 0.0, nonnegative=True)
        out["edge_damping"] = edge.number("damping", 0.0, nonnegative=True)
        if out["edge_stiffness"] and dim > 1:
            raise edge.error("allowed: only with dim 1; others take elasticity", "stiffness")
    return out


def _yield_strains(elastic: Element, dim: int, elastic2d: str) -> tuple[float, float]:
    """The strains at which elements and the bending of triangles yield, 0 for none. Raises ParseError."""
    given = elastic.floats("yield", (1, 2), (0.0,))
    stretch, bend = given[0], given[-1] if len(given) > 1 or dim == 2 else 0.0
    if (given < 0).any() or dim == 1 and given.any() or dim == 3 and bend:
        what = {1: "0: lines do not yield", 2: "numbers >= 0", 3: "a number >= 0"}[dim]
        raise elastic.error(f"found {elastic.raw('yield')!r}; allowed: {what}", "yield")
    stretches, bends = dim == 3 or elastic2d in ("stretch", "both"), elastic2d in ("bend", "both")
    return float(stretch) if stretches else 0.0, float(bend) if bends else 0.0


def _contact(document: Document, e: Element) -> dict[str, Any]:
    contact = e.child("contact")
    if contact is None:
        return {"contact": SurfaceSpec(), "internal": True, "selfcollide": "auto", "active_layers": 1, "passive": False}
    return {
        "contact": read_surface(document, contact),
        "internal": flag(contact, "internal", True),
        "selfcollide": contact.choice("selfcollide", ("none", "narrow", "bvh", "sap", "auto"), "auto"),
        "active_layers": integer(contact, "activelayers", 1),
        "passive": flag(contact, "passive", False),
    }


def _visuals(index: Index, e: Element, size: int) -> dict[str, Any]:
    texcoord = e.floats("texcoord")
    if texcoord is not None and len(texcoord) != 2 * size:
        raise e.error(f"found {len(texcoord)} numbers for {size} vertices; allowed: two for each", "texcoord")
    integers(e, "elemtexcoord", default=())  # for pictures only
    if e.has("material"):
        index.find("material", e, "material")
    return {
        "texcoord": None if texcoord is None else texcoord.reshape(-1, 2),
        "flat_skin": flag(e, "flatskin", False),
        "material": e.string("material", ""),
        "rgba": read_rgba(e),
        "group": integer(e, "group", 0),
    }
