"""<geom>: shapes, their mass and their contact parameters."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.assets import Assets
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.meshes import fit
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.orientation import read_fromto, read_pose
from xsim.io.mjcf.plugins import MESH_DISTANCE, read_sdf
from xsim.io.mjcf.values import flag, integer, numbers, read_rgba, read_soft, read_user
from xsim.io.reader import Element
from xsim.poses import Pose, rotate
from xsim.spec import MESH_SHAPES, GeomSpec, MeshSpec, SdfSpec, SurfaceSpec

__all__ = ["FROMTO", "SIZES", "read_geom", "read_surface", "sizes"]

SIZES = {"sphere": 1, "capsule": 2, "ellipsoid": 3, "cylinder": 2, "box": 3}  # how many numbers a shape has
FROMTO = {"capsule": 1, "cylinder": 1, "ellipsoid": 2, "box": 2}  # which of them is along z, half the length between two points
TYPES = ("plane", "hfield", *SIZES, *MESH_SHAPES)
FLUID = (0.5, 0.25, 1.5, 1.0, 1.0)


def read_geom(document: Document, e: Element, frame: Pose, assets: Assets, index: Index, user: int) -> GeomSpec:
    """A <geom>, with its defaults, of a body. frame: the <frame>s around it; user: how many users' numbers a geom has (-1: any)."""
    shape = e.choice("type", TYPES, "sphere")
    for name in ("size", "fitscale"):  # without effect on some shapes
        e.raw(name)
    asset, size, pose, surface = _SHAPES.get(shape, _primitive)(document, e, shape, assets, index)
    pose = frame @ pose
    mass = e.number("mass", nonnegative=True) if e.has("mass") else None
    density = e.number("density", 1000.0, nonnegative=True)
    group = integer(e, "group", 0)
    settings = scope(e)
    first, last = settings.inertia_group_range
    shell = flag(e, "shellinertia", False)
    if shell and shape in MESH_SHAPES and document.release.shell_by_mesh:
        raise e.error("found true for a mesh geom; allowed from release 3.3 on: the attribute inertia of the mesh", "shellinertia")
    contact = read_surface(document, e)
    coefficients = numbers(document, e, "fluidcoef", FLUID)
    ellipsoid = e.choice("fluidshape", ("none", "ellipsoid"), "none") == "ellipsoid"
    flag(e, "castshadow", True)
    material = e.string("material", "")
    if material:
        index.find("material", e, "material")
    return GeomSpec(
        shape=shape,
        size=size,
        name=e.string("name", ""),
        mass=0.0 if mass is None else mass,
        density=density if mass is None else None,
        shell=shell,
        massless=shape in ("plane", "hfield") or not first <= group <= last,
        pos=pose.pos,
        quat=pose.quat,
        rgba=read_rgba(e),
        collision=bool(contact.contype or contact.conaffinity),
        surface=surface,
        asset=asset,
        contact=contact,
        surface_velocity=_surface_velocity(document, e, shape, None if shape not in MESH_SHAPES or asset is None else assets.meshes[asset]),
        fluid=tuple(coefficients.tolist()) if ellipsoid else None,
        group=group,
        material=material,
        user=read_user(e, user),
        source=e.source,
    )


def _surface_velocity(document: Document, e: Element, shape: str, mesh: MeshSpec | None) -> tuple[float, ...] | None:
    """The velocity of a surface in the frame of its shape. Of a mesh the element gives it in the frame of the file."""
    given = numbers(document, e, "surfacevel", (0.0,) * 6)
    linear, angular = given[:3], given[3:]
    if not given.any():
        return None
    if mesh is not None:
        inverse = Pose(mesh.quat).inverse().quat
        linear, angular = rotate(inverse, linear + np.cross(angular, mesh.pos)), rotate(inverse, angular)
    return tuple(map(float, (*linear, *angular)))


def read_surface(document: Document, e: Element) -> SurfaceSpec:
    """Contact parameters of a geom or flex. e: with its defaults."""
    default = SurfaceSpec()
    condim = integer(e, "condim", default.condim)
    if condim not in (1, 3, 4, 6):
        raise e.error(f"found {condim}; allowed: 1, 3, 4, 6", "condim")
    return SurfaceSpec(
        contype=integer(e, "contype", default.contype),
        conaffinity=integer(e, "conaffinity", default.conaffinity),
        condim=condim,
        priority=integer(e, "priority", default.priority),
        friction=tuple(numbers(document, e, "friction", default.friction).tolist()),
        solmix=e.number("solmix", default.solmix),
        soft=read_soft(document, e),
        margin=e.number("margin", default.margin),
        gap=e.number("gap", default.gap),
        adhesion=e.number("adhesion", default.adhesion),
    )


def sizes(e: Element, shape: str, given: np.ndarray) -> tuple[np.ndarray, Pose]:
    """Size in half extents and pose of a geom or site of a simple shape. given: its three numbers of the attribute ``size``."""
    ends = read_fromto(e)
    size = given[: SIZES[shape]].copy()
    if ends is not None:
        along = FROMTO.get(shape)
        if along is None:
            raise e.error(f"found on a {shape}; allowed: {', '.join(FROMTO)}", "fromto")
        size[1], size[along] = size[0], ends[1]
    if not (size > 0).all():
        found = " ".join(f"{x:g}" for x in size)
        raise e.error(f"found {found} for a {shape}; allowed: {len(size)} numbers > 0", "size")
    return size, read_pose(e) if ends is None else ends[0]


def _primitive(document: Document, e: Element, shape: str, assets: Assets, index: Index):
    _refuse(e, "hfield", shape)
    given = numbers(document, e, "size", (0.0, 0.0, 0.0))
    scale = e.number("fitscale", 1.0)
    if not e.has("mesh"):
        return None, *sizes(e, shape, given), {}
    _refuse(e, "fromto", "geom that is fitted to a mesh")
    mesh = assets.meshes[index.find("mesh", e, "mesh")]
    size, pos, quat = fit(mesh, shape, scope(e).fit_aabb, scale, document.release.fit_to_sides)
    size = np.asarray(size, float)[: SIZES[shape]]
    if not (size > 0).all():
        raise e.error(f"a {shape} fitted to this mesh has no size", "mesh")
    return None, size, read_pose(e) @ Pose(np.asarray(quat, float), np.asarray(pos, float)), {}


def _plane(document: Document, e: Element, shape: str, assets: Assets, index: Index):
    for name in ("hfield", "mesh", "fromto"):
        _refuse(e, name, shape)
    size = numbers(document, e, "size", (0.0, 0.0, 0.0))
    if not size[2] > 0:
        raise e.error(f"found {size[2]:g} as the third number for a plane; allowed: a number > 0", "size")
    # A half extent that is not positive means an infinite plane, like 0.
    return None, np.maximum(size[:2], 0.0), read_pose(e), {"spacing": float(size[2])}


def _hfield(document: Document, e: Element, shape: str, assets: Assets, index: Index):
    for name in ("mesh", "fromto"):
        _refuse(e, name, shape)
    number = index.find("hfield", e, "hfield")
    return number, assets.hfields[number].size[:3].copy(), read_pose(e), {}


def _mesh(document: Document, e: Element, shape: str, assets: Assets, index: Index):
    for name in ("hfield", "fromto"):
        _refuse(e, name, shape)
    number = index.find("mesh", e, "mesh")
    mesh = assets.meshes[number]
    return number, np.ones(3), read_pose(e) @ Pose(mesh.quat, mesh.pos), {}


def _sdf(document: Document, e: Element, shape: str, assets: Assets, index: Index):
    sdf = read_sdf(document, e, index)
    if sdf is None and document.release.schema == "3.2":
        raise e.error("found sdf without a plugin; allowed: with one, or the rules of 4.0", "type")
    if sdf is not None and sdf.kind == MESH_DISTANCE:
        sdf = None
    number, size, pose, surface = _mesh(document, e, shape, assets, index)
    mesh = assets.meshes[number]
    if sdf is None and mesh.sdf is not None:
        raise e.error(f"the mesh {mesh.name!r} has {mesh.sdf.kind} {_numbers(mesh.sdf)}, the geom none; allowed: the same", "mesh")
    if sdf is not None and mesh.sdf != sdf:
        given = "no signed distance function" if mesh.sdf is None else f"{mesh.sdf.kind} {_numbers(mesh.sdf)}"
        raise e.error(f"the mesh {mesh.name!r} has {given}, the geom {sdf.kind} {_numbers(sdf)}; allowed: the same", "mesh")
    return number, size, pose, surface


def _numbers(sdf: SdfSpec) -> str:
    return " ".join(f"{x:g}" for x in sdf.numbers)


def _refuse(e: Element, name: str, shape: str) -> None:
    if e.has(name):
        raise e.error(f"found on a {shape}; allowed: none", name)


_SHAPES = {"plane": _plane, "hfield": _hfield, "mesh": _mesh, "sdf": _sdf}
