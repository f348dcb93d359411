"""Shapes of collisions and visuals, and the parameters of their surfaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xsim.io.errors import Notes
from xsim.io.reader import Element
from xsim.io.sdf.document import Document, Library, ignore, number, read_pose
from xsim.io.sdf.frames import Frame, relative
from xsim.io.solids import SOLIDS, Solid
from xsim.poses import IDENTITY_QUAT, Pose, quat_from_z
from xsim.spec import GeomSpec

__all__ = ["Shape", "extrusion", "read_shapes"]


@dataclass(frozen=True)
class Shape:
    """A geometry in its own frame: kind and size as in GeomSpec, quat: of the kind's z axis. ``of``: where it was read. path:
    of the file that is there. max_convex_hulls: as in GeomSpec."""

    kind: str
    size: np.ndarray
    of: Element
    quat: np.ndarray = field(default_factory=lambda: IDENTITY_QUAT)
    pos: np.ndarray = field(default_factory=lambda: np.zeros(3))
    file: str | None = None
    points: np.ndarray | None = None
    path: Path | None = None
    max_convex_hulls: int | None = None

    def solid(self) -> tuple[Pose, Solid] | None:
        """The uniform solid and its place in the geometry's frame; None for what has no volume (or only a file knows it)."""
        if self.kind in SOLIDS:
            return Pose(), SOLIDS[self.kind](self.size)
        return extrusion(self.points, self.size[0]) if self.kind == "polyline" and self.points is not None else None


# ---- geometry ------------------------------------------------------------------------------------------------------------------

_CONVEX_HULLS = 16  # of a convex decomposition that does not say how many


def _lengths(element: Element, tag: str, count: int, default=None) -> np.ndarray:
    """Positive numbers of a child element."""
    child = element.child(tag) if default is not None else element.need(tag)
    if child is None:
        return np.asarray(default, float)
    x = child.floats(None, count)
    if not (x > 0).all():
        raise child.error(f"found {child.text().strip()!r}; allowed: numbers > 0")
    return x


def _round(kind: str) -> Callable:
    def read(e: Element, frame: Frame, library: Library) -> Shape:
        return Shape(kind, np.array([_lengths(e, "radius", 1)[0], _lengths(e, "length", 1)[0] / 2]), e)

    return read


def _plane(e: Element, frame: Frame, library: Library) -> Shape:
    child = e.child("normal")
    normal = np.array([0.0, 0.0, 1.0]) if child is None else child.floats(None, 3)
    if not normal.any():
        raise e.error("the normal is zero; allowed: a direction")
    return Shape("plane", _lengths(e, "size", 2, (1.0, 1.0)) / 2, e, quat_from_z(normal / np.abs(normal).max()))


def _file(e: Element, frame: Frame, library: Library) -> dict:
    """The file of a <uri>, as written where there is none: it is not opened here."""
    uri = e.need("uri").string(None)
    path, _ = library.find(uri, frame.document)
    return {"file": uri if path is None else str(path), "path": path}


def _mesh(e: Element, frame: Frame, library: Library) -> Shape:
    scale = e.child("scale")
    size = np.ones(3) if scale is None else scale.floats(None, 3)
    if not size.all():
        raise e.error("a scale of zero; allowed: other numbers")
    return Shape("mesh", size, e, **_file(e, frame, library), max_convex_hulls=_max_convex_hulls(e, library.notes))


def _max_convex_hulls(e: Element, notes: Notes) -> int | None:
    """The most convex parts into which a mesh is divided, None where its ``optimization`` is not a convex decomposition."""
    optimization, decomposition = e.raw("optimization") or "", e.child("convex_decomposition")
    if optimization not in ("", "convex_hull", "convex_decomposition"):
        error = e.error(f"found {optimization!r}; allowed: convex_hull, convex_decomposition, or nothing", "optimization")
        notes.assumed(error, "convex_hull")
    if decomposition is None:
        return _CONVEX_HULLS if optimization == "convex_decomposition" else None
    if optimization != "convex_decomposition":
        decomposition.skip()
        return None
    ignore(decomposition.all("voxel_resolution"))  # of methods with voxels
    child = decomposition.child("max_convex_hulls")
    most = _CONVEX_HULLS if child is None else child.integer(None)
    if most is None or most < 1:
        raise decomposition.error(f"found {most} max_convex_hulls; allowed: 1 and more")
    return most


def _heightmap(e: Element, frame: Frame, library: Library) -> Shape:
    ignore(e.all("texture", "blend", "use_terrain_paging", "sampling"))
    pos = e.child("pos")
    place = np.zeros(3) if pos is None else pos.floats(None, 3)
    return Shape("heightmap", _lengths(e, "size", 3, (1.0, 1.0, 1.0)) / 2, e, pos=place, **_file(e, frame, library))


def _polyline(e: Element, frame: Frame, library: Library) -> Shape:
    points = np.array([p.floats(None, 2) for p in e.all("point")])
    if len(points) < 3:
        raise e.error(f"found {len(points)} points; allowed: 3 or more")
    return Shape("polyline", _lengths(e, "height", 1), e, points=points)


# Cylinder, capsule and cone keep the file's numbers but for the half length.
_SHAPES: dict[str, Callable[[Element, Frame, Library], Shape]] = {
    "box": lambda e, f, n: Shape("box", _lengths(e, "size", 3) / 2, e),
    "sphere": lambda e, f, n: Shape("sphere", _lengths(e, "radius", 1), e),
    "ellipsoid": lambda e, f, n: Shape("ellipsoid", _lengths(e, "radii", 3), e),
    "cylinder": _round("cylinder"),
    "capsule": _round("capsule"),
    "cone": _round("cone"),
    "plane": _plane,
    "mesh": _mesh,
    "heightmap": _heightmap,
    "polyline": _polyline,
}


def extrusion(points: np.ndarray, height: float) -> tuple[Pose, Solid] | None:
    """The prism over a simple polygon from z = 0 to the height: its central principal frame and the solid. None: it has no area."""
    origin = points.mean(0)
    a = points - origin
    b = np.roll(a, -1, 0)
    cross = a[:, 0] * b[:, 1] - b[:, 0] * a[:, 1]
    area = cross.sum() / 2
    if not abs(area) > 1e-12 * np.abs(cross).sum():
        return None
    centre = (cross[:, None] * (a + b)).sum(0) / (6 * area)
    # Second moments of the area about the centre: integral of x_i x_j.
    pairs = 2 * (a[:, :, None] * a[:, None] + b[:, :, None] * b[:, None]) + a[:, :, None] * b[:, None] + b[:, :, None] * a[:, None]
    second = (cross[:, None, None] * pairs).sum(0) / 24 / area - np.outer(centre, centre)
    angle = np.arctan2(2 * second[0, 1], second[0, 0] - second[1, 1]) / 2
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, s], [-s, c]])
    xx, yy = np.diag(turn @ second @ turn.T)
    moments = np.array([yy + height**2 / 12, xx + height**2 / 12, xx + yy])
    pose = Pose(np.array([np.cos(angle / 2), 0.0, 0.0, np.sin(angle / 2)]), np.array([*(origin + centre), height / 2]))
    return pose, Solid(abs(area) * height, np.zeros(3), moments)


# ---- surfaces ------------------------------------------------------------------------------------------------------------------

_NUMBER, _VECTOR, _SWITCH, _MASK = 1, 3, bool, int
_SURFACE: dict = {
    "bounce": {"restitution_coefficient": _NUMBER, "threshold": _NUMBER},
    "friction": {
        "torsional": {
            "coefficient": _NUMBER, "use_patch_radius": _SWITCH, "patch_radius": _NUMBER, "surface_radius": _NUMBER,
            "ode": {"slip": _NUMBER},
        },
        "ode": {"mu": _NUMBER, "mu2": _NUMBER, "fdir1": _VECTOR, "slip1": _NUMBER, "slip2": _NUMBER},
        "bullet": {"friction": _NUMBER, "friction2": _NUMBER, "fdir1": _VECTOR, "rolling_friction": _NUMBER},
    },
    "contact": {
        "collide_without_contact": _SWITCH, "collide_without_contact_bitmask": _MASK, "collide_bitmask": _MASK, "category_bitmask": _MASK,
        "poissons_ratio": _NUMBER, "elastic_modulus": _NUMBER,
        "ode": {k: _NUMBER for k in ("soft_cfm", "soft_erp", "kp", "kd", "max_vel", "min_depth")},
        "bullet": {
            **{k: _NUMBER for k in ("soft_cfm", "soft_erp", "kp", "kd", "split_impulse_penetration_threshold")}, "split_impulse": _SWITCH,
        },
    },
    "soft_contact": {"dart": {k: _NUMBER for k in ("bone_attachment", "stiffness", "damping", "flesh_mass_fraction")}},
}  # fmt: skip


def _surface(element: Element, table: dict, prefix: str, out: dict[str, float]) -> None:
    """Numbers of a surface by path, ``friction/ode/mu``; vectors as ``path/0``, ``path/1``, ``path/2``."""
    for child in element.all(*table):
        kind, path = table[child.tag], prefix + child.tag
        if isinstance(kind, dict):
            _surface(child, kind, f"{path}/", out)
        elif kind is _SWITCH:
            out[path] = float(child.boolean(None))
        elif kind is _MASK:
            word = child.string(None)
            try:
                out[path] = float(int(word, 0))
            except (ValueError, OverflowError):
                raise child.error(f"{word[:40]!r} is not an integer") from None
        else:
            x = child.floats(None, kind, finite=False)
            out.update({path: float(x[0])} if kind == 1 else {f"{path}/{i}": float(v) for i, v in enumerate(x)})


# ---- collisions and visuals ----------------------------------------------------------------------------------------------------

_VISUAL_IGNORED = ("cast_shadows", "laser_retro", "meta", "visibility_flags", "plugin")
_COLLISION_IGNORED = ("laser_retro", "max_contacts", "auto_inertia_params")
_MATERIAL_IGNORED = (
    "script", "shader", "lighting", "ambient", "specular", "emissive", "render_order", "double_sided", "shininess",
)  # fmt: skip


def read_shapes(element: Element, frame: Frame, library: Library, notes: Notes) -> list[tuple[Shape, GeomSpec]]:
    """The shapes of a <collision> or <visual> of a link. A geometry that xsim does not know is reported as unread."""
    geometry = element.need("geometry")
    ignore(geometry.all("empty"))
    items = geometry.all(*_SHAPES)
    if len({g.tag for g in items}) > 1 or len(items) > 1 and items[0].tag != "polyline":
        raise items[1].error(f"second shape in a geometry (the first is {items[0]} in line {items[0].line}); allowed: one")
    relative_to, pose = read_pose(element, frame.document.version)
    if relative_to:
        pose = relative(frame.scope.find(relative_to, element.need("pose"), "relative_to"), frame) @ pose
    collision = element.tag == "collision"
    rgba, friction, surface, picture = None, None, {}, ""
    if collision:
        ignore(element.all(*_COLLISION_IGNORED))
        given = element.child("surface")
        if given is not None:
            _surface(given, _SURFACE, "", surface)
            if "friction/ode/mu" in surface or "friction/ode/mu2" in surface:
                friction = (surface.pop("friction/ode/mu", 1.0), surface.pop("friction/ode/mu2", 1.0))
    else:
        ignore(element.all(*_VISUAL_IGNORED))
        rgba, picture = _colour(element, notes), _picture(element, frame.document, library)
    shapes = []
    for item in items:
        shape = _SHAPES[item.tag](item, frame, library)
        placed = pose if shape.quat is IDENTITY_QUAT and not shape.pos.any() else pose @ Pose(shape.quat, shape.pos)
        spec = GeomSpec(
            shape.kind, shape.size, pos=placed.pos, quat=placed.quat, name=element.string("name"), rgba=rgba, material=picture,
            visual=not collision, collision=collision, file=shape.file, points=shape.points, friction=friction, surface=surface,
            source=element.source, max_convex_hulls=shape.max_convex_hulls if collision else None,
        )  # fmt: skip
        shapes.append((shape, spec))
    return shapes


def _picture(element: Element, document: Document, library: Library) -> str:
    """The name of the material of the picture on a visual, "" without one."""
    material = element.child("material")
    pbr = None if material is None else material.child("pbr")
    if pbr is None:
        return ""
    maps = [workflow.child("albedo_map") for workflow in pbr.all("metal", "specular")]
    pbr.skip()  # its other maps and numbers are not drawn
    name = next((text.strip() for given in maps if given is not None and (text := given.raw(None))), "")
    if not name:
        return ""
    path = library.find(name, document)[0]
    picture = name if path is None else str(path)
    library.pictures[picture] = path
    return picture


def _colour(element: Element, notes: Notes) -> tuple[float, float, float, float] | None:
    """The diffuse colour of a visual, its alpha by the transparency. A colour never fails a load."""
    material = element.child("material")
    clear = number(element, "transparency", 0.0)
    diffuse = None
    if material is not None:
        ignore(material.all(*_MATERIAL_IGNORED))
        diffuse = material.child("diffuse")
    if diffuse is None:
        return None
    try:
        numbers = [float(x) for x in diffuse.string(None).split()]
    except ValueError:  # not numbers, or empty
        numbers = []
    if len(numbers) not in (3, 4) or not all(0 <= x <= 1 for x in numbers):
        notes.suspicious(diffuse.line, f"{element}: the colour is not 3 or 4 numbers in 0..1; drawn gray", diffuse.file)
        numbers = [0.5, 0.5, 0.5]
    r, g, b, a = (*numbers, 1.0)[:4]
    return r, g, b, a * min(max(1 - clear, 0.0), 1.0)
