"""DART SKEL reader.

Where the format differs from xsim: transformations give the pose with all coordinates zero, bodies relative to their skeleton; names
are unique in their skeleton only, so bodies and joints are called ``skeleton/body`` and ``skeleton/joint`` here; free joints put the
rotation before the translation and measure both velocities in the parent body's axes; balls and free joints start and rest at rotation
vectors. Bodies of different skeletons touch, those of one do not (DART's default); friction is Coulomb's with the coefficient 1, which
the format cannot change. Everything about joints is in `joints`, about shapes and inertia in `shapes`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from xsim.io.contact_parameters import default_surface, with_contacts, with_soft_limits
from xsim.io.errors import Notes, ParseError, allowed
from xsim.io.files import folder_of
from xsim.io.formats import Format
from xsim.io.hulls import CollisionMeshes
from xsim.io.reader import Element, parse_xml
from xsim.io.skel.joints import PRESCRIBED, Joint, connect, read_joint, root_joint
from xsim.io.skel.shapes import Surroundings, hulled, read_inertia, read_shapes
from xsim.io.skel.values import name_of, transformation
from xsim.joints.types import JOINT_TYPES
from xsim.poses import Pose
from xsim.spec import BodySpec, MarkerSpec, ModelSpec, OptionSpec

__all__ = ["FORMAT", "read"]

WORLD = "world"


RULES = ("dart", "soft")


def read(data: bytes | str, file: str, notes: Notes, *, enforce_limits: bool = True, rule: str = "dart") -> ModelSpec:
    """ModelSpec of a SKEL document. enforce_limits: whether the limits of positions and velocities act (DART: only on request).
    rule: position limits and dry friction of joints are impulses after all other forces of a step (``"dart"``), or are soft constraints,
    as the contacts are (``"soft"``).

    Raises ParseError, ValueError for an unknown rule; adds doubts and what is not used to ``notes``.
    """
    if rule not in RULES:
        raise ValueError(f"unknown rule {rule!r}; {allowed(str(rule), RULES)}")
    root = parse_xml(data, file, notes)
    if root.tag != "skel":
        raise root.error("the root element must be <skel>")
    root.raw("version")
    worlds = root.all("world")
    if not worlds:
        raise root.error("<world> is missing")
    for other in worlds[1:]:
        notes.unsupported(other.line, f"{other}: a second world is not read")
        other.skip()
    world = worlds[0]
    world_name = name_of(world, "Unknown world")
    skeletons: dict[str, int] = {}
    bodies: list[tuple[BodySpec, Element]] = []
    meshes = CollisionMeshes(notes)
    with np.errstate(all="ignore"):  # numbers too large to calculate with are refused by _check
        option = _option(world.child("physics"), enforce_limits)
        for number, element in enumerate(world.all("skeleton")):
            given = name_of(element, "Unknown skeleton")
            name = _unique(given, skeletons)
            if name != given:
                notes.suspicious(element.line, f"{element}: the name is taken; it is read as {name!r}")
            bodies += _skeleton(element, name, len(bodies), Surroundings(default_surface(number), meshes), notes)
        _check(bodies)
    root.report_unread(notes)
    specs = tuple(body for body, _ in bodies)
    meshes.report(specs)
    return ModelSpec(
        name=world_name,
        format="skel",
        bodies=specs if rule == "dart" else with_soft_limits(specs, friction=True),
        option=with_contacts(option, soft=rule == "soft"),
        meshes=tuple(meshes.specs),
        source=root.source,
    )


FORMAT = Format("skel", "DART SKEL", read, suffixes=(".skel",), roots=("skel",))


def _option(physics: Element | None, enforce_limits: bool) -> OptionSpec:
    gravity, dt = np.array([0.0, 0.0, -9.8]), 0.001
    if physics is not None:
        step, given = physics.child("time_step"), physics.child("gravity")
        dt = dt if step is None else step.number(None, positive=True)
        gravity = gravity if given is None else given.floats(None, 3)
        for detector in physics.all("collision_detector"):
            detector.skip()  # a library that finds contact points
    kinds = ("holonomic", "friction", *(("limit", "velocity") if enforce_limits else ()), "servo")
    return OptionSpec(gravity=gravity, dt=dt, integrator="dart", constraint_kinds=kinds)


def _unique(name: str, taken: dict[str, int]) -> str:
    """The name, with the first free number behind it where it is taken. taken: names and the last number behind them."""
    unique = name
    while unique in taken:
        taken[name] += 1
        unique = f"{name}({taken[name]})"
    taken[unique] = 0
    return unique


# ---- skeletons ---------------------------------------------------------------------------------------------------------------


class _Body(NamedTuple):
    element: Element
    pose: Pose  # in the world, at zero coordinates
    fields: dict  # of BodySpec


def _skeleton(element: Element, name: str, start: int, around: Surroundings, notes: Notes) -> list[tuple[BodySpec, Element]]:
    """Bodies of a skeleton, parents first, with their elements. start: index of the first one in the model."""
    mobile = _mobile(element)
    frame = transformation(element)
    bodies = _bodies(element, frame, around, notes)
    joints = _order(bodies, _joints(element, bodies, notes), element, notes)
    index: dict[str | None, int] = {None: -1}
    names: dict[str, int] = {}
    built: list[tuple[BodySpec, Element]] = []
    for joint in joints:
        unique = _unique(joint.name, names)
        if unique != joint.name:
            notes.suspicious(joint.element.line, f"{joint.element} in {element}: the name is taken; it is read as {unique!r}")
        body = bodies[joint.child]
        reference = body.pose if joint.parent is None else bodies[joint.parent].pose.inverse() @ body.pose
        pose, spec = connect(joint, f"{name}/{unique}", reference, mobile, notes)
        index[joint.child] = start + len(built)
        placed = BodySpec(
            f"{name}/{joint.child}", index[joint.parent], (spec,), pose.pos, pose.quat, source=body.element.source, **body.fields
        )
        built.append((placed, body.element))
    return built


def _mobile(skeleton: Element) -> bool:
    mobile, immobile = skeleton.child("mobile"), skeleton.child("immobile")
    if mobile is not None and immobile is not None and mobile.boolean(None) == immobile.boolean(None):
        raise immobile.error(f"contradicts <mobile> in line {mobile.line}; allowed: one of them")
    return mobile.boolean(None) if mobile is not None else immobile is None or not immobile.boolean(None)


def _bodies(skeleton: Element, frame: Pose, around: Surroundings, notes: Notes) -> dict[str, _Body]:
    folder = folder_of(skeleton.file)
    bodies: dict[str, _Body] = {}
    for element in skeleton.all("body"):
        name = name_of(element, "Unknown body")
        if name in bodies:
            first = bodies[name].element.line
            raise element.error(f"the name {name!r} is taken by the body in line {first} of {skeleton}; names must differ")
        soft = element.child("soft_shape")
        if soft is not None:
            raise soft.error(
                f"deformable bodies are not supported ({skeleton}, body {name!r}); remove <soft_shape> to simulate the rigid core that "
                "<inertia> describes"
            )
        weight = element.child("gravity")
        for flag in element.all("self_collide"):
            flag.skip()  # disabled in the document, not read by the reference engine
        shapes = read_shapes(element, folder, around, notes)
        fields = {
            "geoms": tuple(hulled(s, around) for s in shapes if s.geom.shape != "pyramid"),
            "inertial": read_inertia(element, shapes, notes),
            "markers": tuple(_marker(m) for m in element.all("marker")),
            "gravity": 1.0 if weight is None else float(weight.boolean(None)),
        }
        bodies[name] = _Body(element, frame @ transformation(element), fields)
    return bodies


def _marker(element: Element) -> MarkerSpec:
    offset = element.child("offset")
    return MarkerSpec(element.raw("name"), None, np.zeros(3) if offset is None else offset.floats(None, 3), element.source)


def _joints(skeleton: Element, bodies: dict[str, _Body], notes: Notes) -> dict[str, Joint]:
    """Joints by the name of their child, in the order of the file."""
    joints: dict[str, Joint] = {}
    for element in skeleton.all("joint"):
        joint = read_joint(element, notes)
        if joint.parent == WORLD and WORLD not in bodies:
            joint = replace(joint, parent=None)
        for tag, body in (("parent", joint.parent), ("child", joint.child)):
            if body is not None and body not in bodies:
                names = [*([WORLD] if tag == "parent" and WORLD not in bodies else []), *bodies][:20]
                raise element.need(tag).error(f"{skeleton} has no body {body!r}; {allowed(body, names)}")
        if joint.child in joints:
            other = joints[joint.child].element
            raise element.error(f"body {joint.child!r} is the child of {other} in line {other.line} already; allowed: one parent per body")
        if joint.child == joint.parent:
            raise element.error(f"body {joint.child!r} is parent and child of the joint")
        joints[joint.child] = joint
    return joints


def _order(bodies: dict[str, _Body], joints: dict[str, Joint], skeleton: Element, notes: Notes) -> list[Joint]:
    """Joints in the reference engine's order: the first of the file that is not built, after those above its parent."""
    order: dict[str, Joint] = {}
    for joint in joints.values():
        path: dict[str, Joint] = {}
        link: Joint | None = joint
        while link is not None and link.child not in order:
            if link.child in path:
                loop = [*path][[*path].index(link.child) :]
                names = ", ".join(map(repr, loop[:20]))
                raise link.element.error(f"bodies {names} hang on each other in a loop; allowed: trees that end at the world")
            path[link.child] = link
            parent, link = link.parent, None
            if parent is not None:
                link = joints.get(parent) or order.get(parent) or _root(parent, bodies[parent].element, notes)
        order.update(reversed(path.items()))
    for name, body in bodies.items():
        if name not in order:
            raise body.element.error(f"no joint of {skeleton} mentions the body; allowed: bodies that a joint holds")
    return list(order.values())


def _root(name: str, element: Element, notes: Notes) -> Joint:
    notes.suspicious(element.line, f"{element}: no joint holds the body; it floats on a free joint called 'root'")
    return root_joint(name, element)


# ---- checks ------------------------------------------------------------------------------------------------------------------


def _check(bodies: list[tuple[BodySpec, Element]]) -> None:
    names: dict[str, Element] = {}
    for body, element in bodies:
        if body.name in names:
            raise element.error(f"the full name {body.name!r} is taken by the body in line {names[body.name].line}; names must differ")
        names[body.name] = element
        if not _finite(body):
            raise element.error("the body or its joint has numbers too large to calculate with")
    _check_masses(bodies)


def _finite(body: BodySpec) -> bool:
    inertial, joint = body.inertial, body.joint
    assert inertial is not None
    numbers = [body.pos, body.quat, inertial.com, inertial.inertia, joint.pos, joint.quat, joint.q0, joint.v0, joint.spring_ref]
    numbers += [x for geom in body.geoms for x in (geom.pos, geom.quat, geom.size)]
    return all(np.isfinite(x).all() for x in numbers if x is not None)


def _check_masses(bodies: list[tuple[BodySpec, Element]]) -> None:
    """Refuse coordinates that move nothing: their acceleration has no value. Massless bodies with others behind them are legal."""
    mass, moment = [0.0] * len(bodies), [False] * len(bodies)
    for i in reversed(range(len(bodies))):
        body, element = bodies[i]
        assert body.inertial is not None
        mass[i] += body.inertial.mass
        moment[i] |= bool(body.inertial.inertia.any())
        kinds = [link.kind for link in JOINT_TYPES[body.joint.type].chain]
        if mass[i] == 0 and kinds and body.joint.actuator not in PRESCRIBED and ("slide" in kinds or not moment[i]):
            raise _massless(body, element)
        if body.parent >= 0:
            mass[body.parent] += mass[i]
            moment[body.parent] |= moment[i]


def _massless(body: BodySpec, element: Element) -> ParseError:
    return element.error(
        f"the mass of the body and of all bodies that hang on it is zero, but its joint {body.joint.name!r} ({body.joint.type}) lets it "
        "move; allowed: a mass > 0"
    )
