"""Links: mass properties (written or from the collisions), shapes, weight."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from xsim.io.errors import Notes, ParseError
from xsim.io.reader import Element
from xsim.io.sdf.document import Library, boolean, flags, ignore, number, read_pose
from xsim.io.sdf.frames import Frame
from xsim.io.sdf.geometry import Shape, read_shapes
from xsim.io.sdf.surfaces import Contacts
from xsim.io.solids import Solid, combine, tensor, turned
from xsim.io.tree import Link, Tree
from xsim.poses import Pose
from xsim.spec import GeomSpec, InertialSpec

__all__ = ["check_massless", "read_link"]

WATER = 1000.0  # kg/m^3, where no density is written
TOLERANCE = 1e-6  # of the triangle inequality: files round their moments

_IGNORED = (
    "must_be_base_link", "sensor", "light", "projector", "audio_sink", "audio_source", "battery", "particle_emitter", "plugin",
)  # fmt: skip
_SWITCHES = {
    "kinematic": "the link moves by forces like every other",
    "enable_wind": "there is no wind",
}
_MOMENTS = {"ixx": 1.0, "iyy": 1.0, "izz": 1.0, "ixy": 0.0, "ixz": 0.0, "iyz": 0.0}


def read_link(frame: Frame, library: Library, contacts: Contacts, is_placed: bool, notes: Notes) -> Link:
    """A link: its pose in the world with every joint at zero, inertia in link axes. ``frame`` must be placed. Raises ParseError.

    is_placed: whether it is the child of a joint, or joined to another link by a fixed one. A link without mass that is neither is fixed to
    the world, and so is a link called world without ``<inertial>``.
    """
    element = frame.element
    ignore(element.all(*_IGNORED))
    flags(element, _SWITCHES, notes)
    decay = element.child("velocity_decay")
    if decay is not None and any(number(decay, tag, 0.0) for tag in ("linear", "angular")):
        notes.unsupported(decay.line, f"{element}: velocity_decay: velocities do not decay by themselves", decay.file)
    boolean(element, "self_collide", False)  # used by the contacts of its collisions, if it has any
    geoms: list[GeomSpec] = []
    solids: list[tuple[Element, list[tuple[Shape, GeomSpec]]]] = []
    for tag in ("collision", "visual"):
        seen: dict[str, int] = {}
        for item in element.all(tag):
            name = item.string("name")
            if name == "world" or name.startswith("__") and name.endswith("__"):
                raise item.error(f"the name {name!r} is reserved; allowed: names other than world and __anything__")
            if name in seen:
                taken = item.error(f"the name {name!r} is taken by the {tag} in line {seen[name]}; names of siblings must differ")
                notes.assumed(taken, "two shapes of one name")
            seen.setdefault(name, item.line)
            shapes = read_shapes(item, frame, library, notes)
            if tag == "collision":
                solids.append((item, shapes))
            else:
                geoms += [geom for _, geom in shapes]
    assert frame.world is not None
    inertial = _inertial(frame, solids, is_placed or frame.owner.static, notes)
    colliding = [contacts.with_surface(geom, shape, frame, item, inertial.mass) for item, shapes in solids for shape, geom in shapes]
    return Link(
        name=frame.name,
        pose=frame.world,
        inertial=inertial,
        geoms=(*colliding, *geoms),
        gravity=1.0 if boolean(element, "gravity", True) else 0.0,
        welded=frame.owner.static or inertial.mass == 0 and not is_placed or _is_ground(element),
        source=element.source,
    )


def _is_ground(link: Element) -> bool:
    return link.raw("name") == "world" and link.child("inertial") is None


def check_massless(links: Sequence[Link], frames: Sequence[Frame], tree: Tree) -> None:
    """Refuse links without mass that a joint moves. frames: of the links."""
    for link, frame, body in zip(links, frames, tree.body_of_link, strict=True):
        if link.inertial.mass == 0 and tree.bodies[body].joint.type != "fixed":
            raise _no_mass(frame.element)


def _no_mass(link: Element) -> ParseError:
    return link.need("inertial").need("mass").error("found 0; allowed: numbers > 0")


def _inertial(frame: Frame, collisions, is_placed: bool, notes: Notes) -> InertialSpec:
    """Mass properties of a link. is_placed: see `read_link`. A mass of 0 is checked later, see `check_massless`."""
    link = frame.element
    element = link.child("inertial")
    densities = [number(item, "density", 0.0, positive=True) for item, _ in collisions]
    if element is None:
        return InertialSpec(1.0, np.zeros(3), np.array(list(_MOMENTS.values())))
    ignore(element.all("auto_inertia_params"))
    if element.child("fluid_added_mass") is not None:
        notes.unsupported(element.line, f"{link}: fluid_added_mass: there is no water around the link", element.file)
        ignore(element.all("fluid_added_mass"))
    density = number(element, "density", WATER, positive=True)
    mass = number(element, "mass", 1.0, nonnegative=True)
    if mass == 0:
        notes.assumed(_no_mass(link), "no mass" if is_placed else "no mass, the link is fixed to the world as in Bullet")
    relative_to, pose = read_pose(element, frame.document.version)
    if relative_to:
        raise element.need("pose").error(f"found {relative_to!r}; an inertial is placed in its link; allowed: no frame", "relative_to")
    given = element.child("inertia")
    six = list(_MOMENTS.values()) if given is None else [number(given, tag, moment) for tag, moment in _MOMENTS.items()]
    if element.boolean("auto", False):
        with_density = [(item, shapes, d or density) for (item, shapes), d in zip(collisions, densities, strict=True)]
        computed = _from_shapes(link, element, with_density, notes)
        if element.child("mass") is not None:
            computed = InertialSpec(mass, computed.com, computed.inertia * (mass / computed.mass))
        return computed
    if mass == 0 and given is None:
        return InertialSpec(0.0, pose.pos, np.zeros(6))
    return _checked(InertialSpec(mass, pose.pos, turned(six, pose) if pose.quat[1:].any() else np.array(six)), element, notes)


def _checked(inertial: InertialSpec, element: Element, notes: Notes) -> InertialSpec:
    """Refuse moments that are not positive; those that break the triangle inequality stay as they are. A mass of 0 is allowed."""
    numbers = np.array([inertial.mass, *inertial.com, *inertial.inertia])
    if not np.isfinite(numbers).all() or not (np.abs(numbers) < 1e150).all() or inertial.mass < 0:
        raise element.error("mass or inertia is not a positive finite number")
    if inertial.mass == 0 and not inertial.inertia.any():
        return inertial
    if not (inertial.inertia[:3] > 0).all():
        raise element.error(f"moments of inertia {inertial.inertia[:3]}; allowed: numbers > 0")
    scale = inertial.inertia[:3].max()
    low, middle, high = np.linalg.eigvalsh(tensor(inertial.inertia / scale)) * scale
    if not low > 0:
        raise element.error(f"principal moments of inertia {low:g}, {middle:g}, {high:g}; allowed: numbers > 0")
    if low + middle < high * (1 - TOLERANCE):
        text = f"principal moments of inertia {low:g}, {middle:g}, {high:g} break the triangle inequality: no body has them"
        notes.assumed(element.error(f"{text}; allowed: the largest at most the sum of the others"), "as written")
    return inertial


def _from_shapes(link: Element, element: Element, collisions, notes: Notes) -> InertialSpec:
    """Mass properties of the collisions at their densities (kg/m^3)."""
    if not collisions:
        raise element.error("auto is given, but the link has no <collision>; allowed: one or more", "auto")
    parts: list[tuple[float, Pose, Solid]] = []
    for item, shapes, density in collisions:
        solids = [(shape, geom, shape.solid()) for shape, geom in shapes]
        if len(solids) != 1:
            what = "several polylines" if solids else "a geometry that is not read"
            raise item.error(f"{what}: no inertia can be worked out for {link}; give the inertia explicitly, without auto")
        shape, geom, solid = solids[0]
        if solid is None:
            why = "is a file that is not opened" if shape.file is not None else "has no volume"
            raise item.error(f"{shape.of} {why}: no inertia can be worked out for {link}; give the inertia explicitly, without auto")
        inner, body = solid
        parts.append((density * body.volume, Pose(geom.quat, geom.pos) @ inner, body))
    if not all(np.isfinite(mass) and mass > 0 for mass, _, _ in parts):
        raise element.error("mass or inertia is not a positive finite number")
    return _checked(combine(parts), element, notes)
