"""<geom>: shapes with their contact parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from xsim.io.mjcf.geoms import FLUID, SIZES
from xsim.io.mjcf.writer.context import Context
from xsim.io.mjcf.writer.masks import collision_masks
from xsim.io.mjcf.writer.plugins import write_sdf
from xsim.io.mjcf.writer.values import soft
from xsim.io.writing.elements import XML, add, unless
from xsim.io.writing.meshes import mesh_scale
from xsim.poses import IDENTITY_QUAT, Pose, normalized, quat_conj, rotate
from xsim.spec import MESH_SHAPES, GeomSpec, SurfaceSpec

__all__ = ["contact_parameters", "write_geoms"]

HIDDEN = 3
"""The group of geoms that are not visible: the first one that MuJoCo's viewer does not draw."""
NUMBERS = ("condim", "priority", "friction", "solmix", "margin", "gap", "adhesion")


def write_geoms(context: Context, elements: list[XML]) -> None:
    """The geoms of the world and of all bodies. elements: those of the world and of the bodies. Raises WriteError."""
    masks = collision_masks(context)
    for number, (body, geom) in enumerate(context.geoms()):
        if body in context.carried:
            name = f"geom of body {context.spec.bodies[body].name!r}"
            context.losses.drop(geom.source, name, "a picture on a body without mass; it is left out")
            continue
        find = _SHAPES.get(geom.shape, _primitive if geom.shape in SIZES else _no_shape)
        shape = find(context, geom)
        if shape is not None:
            e = _geom(context, elements[body + 1], geom, shape, masks[number])
            if geom.shape == "sdf" and geom.asset is not None:
                write_sdf(context, e, context.spec.meshes[geom.asset].sdf)
            context.names.enter("geom", number, e, geom.name)


def _geom(context: Context, parent: XML, geom: GeomSpec, shape: dict[str, Any], masks: tuple[int, int]) -> XML:
    pose = shape.pop("pose", Pose(normalized(geom.quat), geom.pos))
    density = geom.density is not None
    return add(
        parent, "geom",
        type=geom.shape,
        **shape,
        pos=unless(np.zeros(3), pose.pos),
        quat=unless(IDENTITY_QUAT, pose.quat),
        contype=unless(1, masks[0]),
        conaffinity=unless(1, masks[1]),
        **(contact_parameters(geom.contact) if geom.contact is not None else {}),
        mass=None if density else geom.mass,
        density=geom.density,
        shellinertia=unless(False, geom.shell),
        fluidshape=None if geom.fluid is None else "ellipsoid",
        fluidcoef=None if geom.fluid is None else unless(FLUID, geom.fluid),
        surfacevel=_surface_velocity(context, geom),
        rgba=geom.rgba,
        group=unless(0, geom.group if geom.visual else geom.group or HIDDEN),
        material=geom.material or None,
        user=geom.user or None,
    )  # fmt: skip


def contact_parameters(surface: SurfaceSpec) -> dict[str, Any]:
    """Attributes of a surface that are not MuJoCo's defaults, the masks apart."""
    default = SurfaceSpec()
    numbers = {name: unless(getattr(default, name), getattr(surface, name)) for name in NUMBERS}
    return numbers | soft(surface.soft)


def _primitive(context: Context, geom: GeomSpec) -> dict[str, Any]:
    return {"size": geom.size}


def _plane(context: Context, geom: GeomSpec) -> dict[str, Any]:
    return {"size": (*np.reshape(geom.size, -1)[:2], geom.surface.get("spacing", 1.0))}


def _mesh(context: Context, geom: GeomSpec) -> dict[str, Any] | None:
    """The pose in MJCF is that of the coordinates of the mesh's file; its frame is found by the compiler."""
    if geom.asset is None:
        return _no_shape(context, geom)
    mesh, scale = context.spec.meshes[geom.asset], mesh_scale(geom)
    placed = Pose(normalized(mesh.quat), mesh.pos * scale)
    return {"mesh": context.names.of("mesh", (geom.asset, scale)), "pose": Pose(normalized(geom.quat), geom.pos) @ placed.inverse()}


def _hfield(context: Context, geom: GeomSpec) -> dict[str, Any] | None:
    return _no_shape(context, geom) if geom.asset is None else {"hfield": context.names.of("hfield", geom.asset)}


def _no_shape(context: Context, geom: GeomSpec) -> None:
    """A shape that MJCF cannot say: without a surface it is a picture."""
    name = f"geom {geom.name!r}" if geom.name else "geom"
    what = f"{geom.shape} {geom.file!r}" if geom.file else geom.shape
    text = f"shape {what}; MJCF has {', '.join(('plane', 'hfield', *SIZES, 'mesh'))}, meshes with their vertices in the model"
    if geom.contact is not None and geom.collision:
        context.losses.lose(geom.source, name, text, "it is left out and touches nothing")
    else:
        context.losses.drop(geom.source, name, f"{text}; it is left out of the picture")


_SHAPES = {"plane": _plane, "mesh": _mesh, "sdf": _mesh, "hfield": _hfield}


def _surface_velocity(context: Context, geom: GeomSpec) -> np.ndarray | None:
    """The velocity of a surface; of a mesh about the origin and along the axes of its file."""
    if geom.surface_velocity is None:
        return None
    linear, angular = np.reshape(geom.surface_velocity, (2, 3))
    if geom.shape in MESH_SHAPES and geom.asset is not None:
        mesh = context.spec.meshes[geom.asset]
        back = quat_conj(Pose(normalized(mesh.quat)).inverse().quat)
        linear, angular = rotate(back, linear), rotate(back, angular)
        linear = linear - np.cross(angular, mesh.pos)
    return np.concatenate([linear, angular])
