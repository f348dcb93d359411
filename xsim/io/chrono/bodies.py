"""Bodies: pose, mass, start, and the visual and collision shapes. Explicit inertia; shapes carry no mass."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.io.chrono.document import Item
from xsim.io.chrono.values import Reading, axis, frame_quat, orientation
from xsim.io.solids import tensor, turned
from xsim.io.tree import Link
from xsim.poses import Pose, rotate
from xsim.spec import GeomSpec, InertialSpec

__all__ = ["Body", "read_body"]


class Body(NamedTuple):
    """link; centre: the centroidal frame in the body; velocity: as in BodySpec."""

    link: Link
    centre: Pose
    velocity: np.ndarray | None


def read_body(item: Item, reading: Reading) -> Body:
    """An entry of ``bodies``."""
    name = item.text("name")
    pose = Pose(orientation(item, "orientation", reading), item.vector("location"))
    centre = _centre(item, reading)
    fixed = item.boolean("fixed", False)
    geoms = (*_drawn(item, reading), *_colliding(item, reading))
    velocity = None
    if fixed:
        unused = ("mass", "inertia", "initial_linear_velocity", "initial_angular_velocity")
        reading.without_effect(item, unused, "the body is fixed")
        inertial = InertialSpec(0.0)
    else:
        inertial = InertialSpec(item.number("mass", positive=True), centre.pos, turned(_inertia(item, reading), centre))
        if item.has("initial_linear_velocity") or item.has("initial_angular_velocity"):
            turning = rotate(pose.quat, rotate(centre.quat, item.vector("initial_angular_velocity", 3, np.zeros(3))))
            velocity = np.concatenate([item.vector("initial_linear_velocity", 3, np.zeros(3)), turning])
    return Body(Link(name, pose, inertial, geoms, welded=fixed, source=item.source), centre, velocity)


def _centre(item: Item, reading: Reading) -> Pose:
    """The centroidal frame in the body."""
    if item.kind("com") == "list":
        text = "a list is read as the location; allowed: {location: [x, y, z], orientation: ...}"
        reading.notes.suspicious(item.line_of("com"), f"{item}: com: {text}", item.file)
        return Pose(pos=item.vector("com"))
    com = item.item("com")
    return Pose() if com is None else Pose(orientation(com, "orientation", reading), com.vector("location", 3, np.zeros(3)))


def _inertia(item: Item, reading: Reading) -> np.ndarray:
    """xx yy zz xy xz yz about the centre of mass, along the centroidal axes."""
    inside = item.need("inertia")
    six = np.concatenate([inside.vector("moments"), inside.vector("products", 3, np.zeros(3))])
    scale = np.abs(six).max() or 1.0
    low, middle, high = moments = np.linalg.eigvalsh(tensor(six / scale))
    shown = " ".join(f"{m:.6g}" for m in moments * scale)
    if not low > 0:
        raise item.error(f"the matrix has the principal moments {shown}; allowed: all > 0", "inertia")
    if high > low + middle + 1e-9:  # 1e-9: rounding of the eigenvalues
        text = f"{item}: inertia: no body has the principal moments {shown}: each is at most the sum of the others; kept as written"
        reading.notes.suspicious(item.line_of("inertia"), text, item.file)
    return six


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def _box(shape: Item) -> np.ndarray:
    size = shape.vector("dimensions") / 2
    if (size < 0).any():
        raise shape.error(f"found {size * 2}; allowed: numbers >= 0", "dimensions")
    return size


_SIZES = {  # of the types of shapes: the shape and its half extents
    "SPHERE": ("sphere", lambda shape: np.array([shape.number("radius", nonnegative=True)])),
    "BOX": ("box", _box),
    "CYLINDER": ("cylinder", lambda s: np.array([s.number("radius", nonnegative=True), s.number("length", nonnegative=True) / 2])),
    "MESH": ("mesh", lambda shape: np.full(3, shape.number("scale", 1.0))),
    "HULL": ("mesh", lambda shape: np.full(3, shape.number("scale", 1.0))),
}


def _shape(shape: Item, reading: Reading, **fields) -> GeomSpec | None:
    """A shape; None, with a note, for a type that is not known."""
    given = shape.text("type")
    if given.strip().upper() not in _SIZES:
        text = f"{shape}: type: shape {given[:80]!r} is not read; allowed: {', '.join(_SIZES)}"
        reading.notes.unsupported(shape.line_of("type"), text, shape.file)
        shape.skip(*shape.keys)
        return None
    kind, size = _SIZES[given.strip().upper()]
    quat = orientation(shape, "orientation", reading)
    if kind == "cylinder":  # its axis says how it lies
        quat = frame_quat(axis(shape, "axis", (0, 0, 1)))
    file = reading.data + shape.text("filename") if kind == "mesh" else None
    return GeomSpec(
        kind, size(shape), pos=shape.vector("location", 3, np.zeros(3)), quat=quat, file=file, source=shape.source, **fields
    )  # fmt: skip


def _drawn(item: Item, reading: Reading) -> list[GeomSpec]:
    visualization = item.item("visualization")
    if visualization is None:
        return []
    geoms = []
    for shape in visualization.items("shapes", f"{visualization}: "):
        geoms.append(_shape(shape, reading, visual=True, collision=False, rgba=_color(shape, reading)))
    if visualization.has("model_file"):
        file = reading.data + visualization.text("model_file")
        geoms.append(GeomSpec("mesh", np.ones(3), visual=True, collision=False, file=file, source=visualization.source))
    return [g for g in geoms if g is not None]


def _color(shape: Item, reading: Reading) -> tuple[float, float, float, float] | None:
    if not shape.has("color"):
        return None
    rgb = shape.vector("color")
    if ((rgb < 0) | (rgb > 1)).any():
        reading.notes.suspicious(shape.line_of("color"), f"{shape}: color: {rgb} was cut to 0..1", shape.file)
    r, g, b = map(float, np.clip(rgb, 0, 1))
    return r, g, b, 1.0


def _colliding(item: Item, reading: Reading) -> list[GeomSpec]:
    contact = item.item("contact")
    if contact is None:
        return []
    surfaces = {m.text("name"): _surface(m) for m in contact.items("materials", f"{contact}: ")}
    family = {"collision_family": contact.number("collision_family")} if contact.has("collision_family") else {}
    geoms = []
    for shape in contact.items("shapes", f"{contact}: "):
        friction, surface = None, {}
        if shape.has("material"):
            name = shape.text("material")
            if name not in surfaces:
                raise shape.error(f"no material is named {name[:80]!r}; allowed: {', '.join(surfaces) or 'none'}", "material")
            friction, surface = surfaces[name]
        more = {"contact_radius": shape.number("contact_radius")} if shape.has("contact_radius") else {}
        surface = {**surface, **family, **more}
        geoms.append(_shape(shape, reading, visual=False, collision=True, friction=friction, surface=surface))
    return [g for g in geoms if g is not None]


def _surface(material: Item) -> tuple[tuple[float, ...] | None, dict[str, float]]:
    """Friction and the other numbers of a contact material."""
    friction = (material.number("coefficient_of_friction"),) if material.has("coefficient_of_friction") else None
    surface = {"restitution": material.number("coefficient_of_restitution")} if material.has("coefficient_of_restitution") else {}
    for group in ("properties", "physical_properties", "coefficients"):
        inside = material.item(group)
        if inside is not None:
            surface |= {key: inside.number(key) for key in inside.keys if inside.has(key)}
    return friction, surface
