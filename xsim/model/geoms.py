"""Reads the geoms, meshes and height fields of a ModelSpec into the topology and the leaves."""

from __future__ import annotations

import numpy as np

from xsim.model.appearance import read_color
from xsim.model.face_order import box_tree
from xsim.model.leaf_rows import LeafRows
from xsim.model.octree import mesh_octree
from xsim.model.topology import GeomInfo, HfieldInfo, MeshInfo, PairsInfo, SdfInfo, SolidInfo, Table
from xsim.model.tree import Tree, fail, unit_quat
from xsim.poses import Pose, rotation_matrix
from xsim.registry import DISTANCE_FUNCTIONS
from xsim.rules import RULES
from xsim.spec import MESH_SHAPES, GeomSpec, MeshSpec, ModelSpec

__all__ = ["read_assets", "read_geoms", "read_sdfs"]

DRAWABLE = ("box", "sphere", "capsule", "cylinder", "ellipsoid", "cone", "plane", "axes")
HIDDEN_GROUP = 3
"""The first group of geoms that MuJoCo's viewer does not draw."""
SHAPE_SIZES = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3}


def read_geoms(spec: ModelSpec, tree: Tree) -> tuple[GeomInfo, ...]:
    """All geoms, those of the world first. Raises ValueError for an inconsistent spec."""
    out = []
    for index, body in [(-1, None), *enumerate(spec.bodies)]:
        geoms = spec.world_geoms if body is None else body.geoms
        visible = {id(geom) for geom in _visible(geoms)}
        out.extend(_geom(spec, tree.rows, index, geom, id(geom) in visible) for geom in geoms)
    return tuple(out)


def _geom(spec: ModelSpec, rows: LeafRows, body: int, geom: GeomSpec, visible: bool) -> GeomInfo:
    solid, inertial = _solid(spec, body, geom), _is_inertial(spec, body, geom)
    size = np.asarray(geom.size, float).reshape(-1)
    row = mass = density = extents = None
    if inertial or solid or geom.contact is not None:
        row = rows.add_to("geom", size=np.pad(size, (0, 3 - len(size))), pos=geom.pos, quat=unit_quat(geom.source, geom.quat))
    if (inertial or solid) and not geom.massless:
        density = rows.add_optional("geom.density", geom.density)
        mass = rows.add("geom.mass", geom.mass) if density is None else None
    if geom.fluid is not None and geom.shape in MESH_SHAPES and geom.asset is not None:
        extents = tuple(map(float, np.abs(spec.meshes[geom.asset].vertices).max(0)))
    material = spec.drawing["materials"][geom.material]["rgba"] if geom.material else geom.rgba
    size, pos, quat = (tuple(map(float, x)) for x in (size, geom.pos, geom.quat))
    return GeomInfo(
        geom.name, body, geom.shape, read_color(spec, geom.rgba, geom.material), row, size, pos, quat, visible, mass, density,
        solid, rows.add_optional("geom.fluid", geom.fluid), geom.asset, bool(material is None or material[3] != 0), extents,
        rows.add_optional("geom.surface_velocity", geom.surface_velocity),
        None if geom.contact is None else rows.add_optional("geom.adhesion", geom.contact.adhesion or None), geom.collision,
        (geom.path or geom.file) if geom.shape == "mesh" and geom.asset is None else None,
    )  # fmt: skip


def _is_inertial(spec: ModelSpec, body: int, geom: GeomSpec) -> bool:
    """Whether the inertia of the body can be computed from the geom. Raises ValueError for a wrong size or mass."""
    if geom.shape not in SHAPE_SIZES or body >= 0 and spec.bodies[body].inertial is not None:
        return False
    size = np.asarray(geom.size, float).reshape(-1)
    if len(size) != SHAPE_SIZES[geom.shape] or not (size > 0).all():
        fail(geom.source, f"geom {geom.shape}: size {size} must be {SHAPE_SIZES[geom.shape]} positive numbers")
    if geom.mass < 0:
        fail(geom.source, f"geom {geom.shape}: mass {geom.mass} is negative")
    return True


def _solid(spec: ModelSpec, body: int, geom: GeomSpec) -> SolidInfo | None:
    """Volume and moments of a mesh from which the inertia of the body is computed. Raises ValueError for a shape without inertia."""
    if body < 0 or spec.bodies[body].inertial is not None or geom.massless or not (geom.mass or geom.density):
        return None
    if geom.asset is not None and geom.shape in MESH_SHAPES:
        mesh = spec.meshes[geom.asset]
        x, y, z = map(float, mesh.moments)
        return SolidInfo(float(mesh.volume), (x, y, z))
    if geom.shape not in SHAPE_SIZES or geom.shell:
        fail(geom.source, f"geom {geom.shape}: gives no inertia; give body {spec.bodies[body].name!r} an inertial")
    return None


def _visible(geoms: tuple[GeomSpec, ...]) -> list[GeomSpec]:
    """The visible geoms of a body: its visual geoms of the groups that are shown; without any, all that can be drawn."""
    drawable = [g for g in geoms if g.shape in DRAWABLE or g.asset is not None or g.shape == "mesh" and (g.path or g.file)]
    return [g for g in drawable if g.visual and g.group < HIDDEN_GROUP] or drawable


def read_assets(spec: ModelSpec, pairs: tuple[PairsInfo, ...]) -> dict[str, tuple]:
    """Meshes and height fields, for models in which collisions or sensors need them. Rays need all of a mesh, the others its hull. Of
    signed distance functions planes alone need the hull."""
    collides = any(asset is not None for info in pairs for asset in info.assets)
    kinds = {sensor.kind for sensor in spec.sensors if sensor.kind != "insidesite" or sensor.data}
    needed = {i for i, mesh in enumerate(spec.meshes) if mesh.sdf is None}
    needed |= {info.assets[1] for info in pairs if info.shapes == ("plane", "sdf") or info.shapes[1] == "mesh"}
    needed |= {info.assets[0] for info in pairs if info.shapes[0] == "mesh"}
    if not collides and not kinds & {"rangefinder", "insidesite", *DISTANCE_SENSORS}:
        return {}
    every = set(range(len(spec.meshes)))
    measured = kinds & DISTANCE_SENSORS and _of_sdf_geoms(spec)
    searched = every if measured else {info.assets[0] for info in pairs if info.shapes == ("mesh", "sdf")}
    whole = every if "rangefinder" in kinds else searched
    return {
        "meshes": tuple(
            _mesh(m, i in searched) if i in whole else _hull(m) if i in needed else NO_MESH for i, m in enumerate(spec.meshes)
        ),
        "hfields": tuple(HfieldInfo(Table(field.heights), float(field.size[3])) for field in spec.hfields),
    }


DISTANCE_SENSORS = {"distance", "normal", "fromto"}
NO_MESH = MeshInfo(Table(np.zeros((0, 3))), Table(np.zeros((0, 3), int)))


def read_sdfs(spec: ModelSpec, rows: LeafRows) -> tuple[SdfInfo, ...]:
    """The signed distance functions of geoms. Raises ValueError for an unknown one."""
    return tuple(_sdf(spec.meshes[i], i, rows, not RULES[spec.rules].sdf_as_4_0) for i in sorted(_of_sdf_geoms(spec)))


def _of_sdf_geoms(spec: ModelSpec) -> set[int]:
    """The meshes of geoms of the shape sdf."""
    geoms = [*spec.world_geoms, *(geom for body in spec.bodies for geom in body.geoms)]
    return {geom.asset for geom in geoms if geom.shape == "sdf" and geom.asset is not None}


def _sdf(mesh: MeshSpec, index: int, rows: LeafRows, in_file_frame: bool) -> SdfInfo:
    """in_file_frame: whether an octree lies along the axes of the mesh's file; else along those of the mesh."""
    sdf = mesh.sdf
    low, high = mesh.vertices.min(0), mesh.vertices.max(0)
    centre, half = (tuple(map(float, x)) for x in ((low + high) / 2, (high - low) / 2))
    inverse = Pose(mesh.quat, mesh.pos).inverse()
    pos, quat = (tuple(map(float, x)) for x in (inverse.pos, inverse.quat))
    if sdf is None and in_file_frame:
        vertices = mesh.vertices @ rotation_matrix(mesh.quat).T + mesh.pos
        return SdfInfo(mesh.name, index, "", (), pos, quat, centre, half, mesh_octree(vertices, mesh.faces))
    if sdf is None:
        octree = mesh_octree(mesh.vertices, mesh.faces)
        return SdfInfo(mesh.name, index, "", (), (0.0, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), centre, half, octree)
    if sdf.kind not in DISTANCE_FUNCTIONS:
        fail(mesh.source, f"mesh {mesh.name!r}: {DISTANCE_FUNCTIONS.unknown(sdf.kind)}")
    widths = {key: len(x) for key, x in sdf.config.items()}
    wanted = {key: rule.width for key, rule in DISTANCE_FUNCTIONS[sdf.kind].config.items()}
    if list(widths.items()) != list(wanted.items()):
        fail(mesh.source, f"mesh {mesh.name!r}: config of the widths {widths}; allowed: {wanted}")
    return SdfInfo(mesh.name, index, sdf.kind, tuple(rows.add("geom.sdf", x) for x in sdf.numbers), pos, quat, centre, half)


def _mesh(mesh: MeshSpec, in_order: bool) -> MeshInfo:
    """A mesh. in_order: its faces are in the order of `box_tree`."""
    vertices, hull = Table(mesh.vertices), None if mesh.hull is None else Table(mesh.hull)
    if not in_order:
        return MeshInfo(vertices, Table(mesh.faces), hull)
    tree = box_tree(mesh.vertices, mesh.faces)
    return MeshInfo(vertices, Table(mesh.faces[tree.order]), hull, Table(tree.boxes), Table(tree.paths))


def _hull(mesh: MeshSpec) -> MeshInfo:
    """The convex hull of a mesh alone; of points in a plane, the points."""
    if mesh.hull is None:
        return MeshInfo(Table(mesh.vertices), Table(np.zeros((0, 3), int)))
    used, faces = np.unique(mesh.hull, return_inverse=True)
    hull = Table(faces.reshape(-1, 3))
    return MeshInfo(Table(mesh.vertices[used]), hull, hull)
