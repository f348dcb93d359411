"""URDF, the robot description of ROS: reader.

A link's frame is the frame of the joint above it, so ``joint/origin`` becomes the body's pose and the joint frame is the body frame.
Bodies are numbered in the document's order of links; a link written before its parent comes as soon as its parent has been placed.
The root link is free or fixed as the caller says (the format does not), but a root called ``world`` is the ground and no body.
Formulas and rules: the URDF pages of the ROS wiki and urdfdom; rotations are fixed-axis roll, pitch, yaw.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from heapq import heappop, heappush
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from lxml import etree

from xsim.io.contact_parameters import Meshes, compliant, default_surface, folder_of, is_file, spring_damper, touching, with_soft_limits
from xsim.io.errors import Notes, ParseError, allowed
from xsim.io.poses import Pose, quat_rpy, rotation_matrix
from xsim.io.reader import Element, parse_xml
from xsim.io.solids import tensor, turned
from xsim.joints.types import JOINT_TYPES
from xsim.spec import BodySpec, ConstraintSpec, GeomSpec, InertialSpec, JointSpec, ModelSpec, OptionSpec, SurfaceSpec

__all__ = ["BASES", "TYPES", "read"]


class JointKind(NamedTuple):
    """How a joint type of the file maps to xsim's.

    ranged: ``limit`` is required and bounds the position. unused: elements that the format allows in it and that do nothing there.
    """

    type: str
    ranged: bool = False
    unused: tuple[str, ...] = ()


TYPES: dict[str, JointKind] = {
    "revolute": JointKind("hinge", ranged=True),
    "continuous": JointKind("hinge"),
    "prismatic": JointKind("slide", ranged=True),
    "fixed": JointKind("fixed", unused=("axis", "limit", "dynamics")),
    "floating": JointKind("free", unused=("axis",)),
    "planar": JointKind("planar"),
}
BASES = {"free": "free", "fixed": "fixed"}  # option ``base``: joint type between the world and the root link
WORLD = "world"

Color = tuple[float, float, float, float]
Colors = dict[str, Color | None]

_VERSIONS = ("1", "1.0", "1.1", "1.2")
_MAX_DEPTH = 100  # elements; URDF's own nest five deep, what is deeper sits in blocks of other programs
_XACRO = ("http://www.ros.org/wiki/xacro", "http://ros.org/wiki/xacro", "http://wiki.ros.org/xacro")
_EXPAND = "xacro has to be expanded first: `xacro model.urdf.xacro > model.urdf`"
# Blocks of other programs: skipped whole, named once per kind.
_FOREIGN = {
    "transmission": "the gearing of motors is not read, joints are driven directly",
    "ros2_control": "controller set-up is not read",
    "gazebo": "Gazebo's extensions are not read",
    "mujoco": "MuJoCo's extensions are not read",
}
# Bullet's <contact> in a link; of its numbers these do not act, but for the values at which that makes no difference.
_BULLET = ("lateral_friction", "rolling_friction", "spinning_friction", "stiffness", "damping", "contact_cfm", "contact_erp")
_BULLET_UNUSED = {"restitution": (0.0, "contacts do not bounce"), "inertia_scaling": (1.0, "inertias are as written")}
DT = 0.001  # s


class Joint(NamedTuple):
    """A ``<joint>`` and the links it names."""

    element: Element
    name: str
    type: str
    parent: str
    child: str

    @property
    def kind(self) -> JointKind:
        return TYPES[self.type]

    @property
    def nv(self) -> int:
        return JOINT_TYPES[self.kind.type].nv


def read(
    data: bytes | str, file: str, notes: Notes, *, paths: Sequence[str | Path] = (), base: str = "free", self_collide: bool = False
) -> ModelSpec:
    """ModelSpec of a URDF document.

    paths: folders in which the package of a ``package://PACKAGE/rest`` (or ``model://``) mesh name is looked up; a name that is not
    found stays as it is written. base: ``"free"`` (free joint at the identity) or ``"fixed"`` (welded to the world at the identity),
    how the root link is held unless it is called ``world``. self_collide: whether links touch each other (those with a joint between
    them never do); they always touch what is fixed to a root link called ``world``, and the ground of `ModelSpec.with_ground`.
    Raises ParseError, ValueError for an unknown ``base``; adds what is unused or doubtful to ``notes``.
    """
    if base not in BASES:
        raise ValueError(f"unknown base {base!r}; {allowed(str(base), BASES)}")
    folders = [Path(p) for p in ([paths] if isinstance(paths, (str, Path)) else paths)]
    root = parse_xml(data, file)
    _inspect(root)
    if root.tag != "robot":
        raise root.error("the root element must be <robot>")
    name = root.string("name")
    root.choice("version", _VERSIONS, "1.0")

    links = _named(root, "link")
    if not links:
        raise root.error("holds no <link>; allowed: one or more")
    joints = {n: _joint_ends(n, element, links) for n, element in _named(root, "joint").items()}
    above, order = _tree(links, joints)
    materials = _materials(root, links, notes)
    inertials = {n: _inertial(link, notes) for n, link in links.items()}
    meshes, geoms = Meshes(notes), {}
    files = _Files(folders, folder_of(file), meshes)
    for n, link in links.items():
        surface = _surface(link, None if self_collide or n == WORLD else 0, inertials[n].mass, notes)
        geoms[n] = _geoms(link, materials, files, surface, inertials[n].mass, notes)

    world = order[0] == WORLD
    if world and (inertials[WORLD].mass or inertials[WORLD].inertia.any()):
        notes.suspicious(links[WORLD].line, f"{links[WORLD]}: is the ground, its mass has no effect")
    elif not world and WORLD in links:
        notes.suspicious(links[WORLD].line, f"{links[WORLD]}: is not the root of the tree, so it is a body like any other")
    number = {n: i for i, n in enumerate(order[world:])}
    bodies = []
    for n in order[world:]:
        pose, joint, parent = Pose(), JointSpec(BASES[base], source=links[n].source), -1
        if n in above:
            pose, joint = _joint(above[n], notes)
            parent = number.get(above[n].parent, -1)
        bodies.append(BodySpec(n, parent, joint, pose.pos, pose.quat, geoms=geoms[n], inertial=inertials[n], source=links[n].source))
    _note_massless(bodies, notes)
    scenery = geoms[WORLD] if world else ()
    meshes.report(tuple(bodies), scenery)
    spec = ModelSpec(
        name=name,
        format="urdf",
        bodies=with_soft_limits(tuple(bodies)),
        world_geoms=scenery,
        constraints=tuple(_mimics(joints, number, notes)),
        option=touching(OptionSpec(gravity=np.array([0.0, 0.0, -9.8]), dt=DT), soft=True),
        meshes=tuple(meshes.specs),
        source=root.source,
    )
    _skip_foreign(root, links, joints, notes)
    root.report_unread(notes)
    return spec


def _inspect(root: Element) -> None:
    """One pass over the whole document, blocks of other programs too: refuse xacro and deep nesting, take off a default namespace."""
    depth, space = 0, _name(root._node).namespace
    for event, node in etree.iterwalk(root._node, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if event == "end":
            continue
        if depth > _MAX_DEPTH:
            raise ParseError(root.file, node.sourceline, f"<{node.tag}>: nested deeper than {_MAX_DEPTH} elements")
        name = _name(node)
        if name.prefix == "xacro" or name.namespace in _XACRO:
            raise ParseError(root.file, node.sourceline, f"<xacro:{name.local}>: {_EXPAND}")
        for attribute, value in node.attrib.items():
            if "${" in value or "$(" in value:
                raise Element(node, root.file).error(f"found {value[:80]!r}; {_EXPAND}", attribute)
        if space and not name.prefix and name.namespace == space:
            node.tag = name.local


class _Name(NamedTuple):
    prefix: str | None
    namespace: str | None
    local: str


def _name(node) -> _Name:
    """Name of an element in its parts; a prefix that nobody declared has no namespace."""
    namespace, _, local = node.tag[1:].rpartition("}") if node.tag[0] == "{" else ("", "", node.tag)
    prefix, _, local = local.rpartition(":")
    return _Name(prefix or node.prefix, namespace or None, local)


# ---- the tree ----------------------------------------------------------------------------------------------------------------


def _named(root: Element, tag: str) -> dict[str, Element]:
    """The elements with this tag by name, in document order."""
    found: dict[str, Element] = {}
    for element in root.all(tag):
        name = element.string("name")
        if name in found:
            raise element.error(f"the name is taken by the {tag} in line {found[name].line}; names must differ", "name")
        found[name] = element
    return found


def _joint_ends(name: str, element: Element, links: dict[str, Element]) -> Joint:
    ends = []
    for role in ("parent", "child"):
        end = element.need(role)
        ends.append(end.string("link"))
        if ends[-1] not in links:
            raise end.error(f"no link is named {ends[-1]!r}; {allowed(ends[-1], list(links)[:20])}", "link")
    return Joint(element, name, element.choice("type", TYPES), *ends)


def _tree(links: dict[str, Element], joints: dict[str, Joint]) -> tuple[dict[str, Joint], list[str]]:
    """The joint above each link but the root, and the names of the links, parents first."""
    above: dict[str, Joint] = {}
    below: dict[str, list[str]] = {name: [] for name in links}
    for joint in joints.values():
        if joint.child in above:
            other = above[joint.child]
            raise joint.element.error(
                f"link {joint.child!r} is the child of joint {other.name!r} (line {other.element.line}) already; "
                "allowed: one parent for each link, URDF has no loops"
            )
        above[joint.child] = joint
        below[joint.parent].append(joint.child)
    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        raise links[roots[1]].error(f"no joint has it as its child, nor link {roots[0]!r}: {len(roots)} roots; allowed: exactly one")
    names = list(links)
    number = {name: i for i, name in enumerate(names)}
    order: list[str] = []
    ready = [number[name] for name in roots]
    while ready:
        name = names[heappop(ready)]
        order.append(name)
        for child in below[name]:
            heappush(ready, number[child])
    if len(order) < len(links):
        placed = set(order)
        circle = _circle(next(n for n in links if n not in placed), {n: joint.parent for n, joint in above.items()})
        members = {above[name].name for name in circle}
        last = [joint for joint in joints.values() if joint.name in members][-1]
        raise last.element.error(f"closes a circle of links ({_chain(circle)}); URDF allows a tree only")
    return above, order


def _circle(start: str, up: dict[str, str]) -> list[str]:
    """The circle in which following ``up`` ends, empty where it ends at a name that leads nowhere."""
    trail: dict[str, None] = {}
    name: str | None = start
    while name is not None and name not in trail:
        trail[name] = None
        name = up.get(name)
    names = list(trail)
    return [] if name is None else names[names.index(name) :]


def _chain(circle: list[str]) -> str:
    shown = circle if len(circle) <= 8 else [*circle[:7], "..."]
    return " from ".join([*shown, circle[0]])


# ---- joints ------------------------------------------------------------------------------------------------------------------


def _origin(element: Element) -> Pose:
    """The pose that ``<origin>`` gives, identity without it."""
    origin = element.child("origin")
    if origin is None:
        return Pose()
    pos = origin.floats("xyz", 3, np.zeros(3))
    if not origin.has("quat_xyzw"):
        rpy = origin.floats("rpy", 3, np.zeros(3))
        return Pose(quat_rpy(*rpy) if rpy.any() else Pose().quat, pos)
    if origin.has("rpy"):
        raise origin.error("rpy and quat_xyzw are both given; allowed: one of them", "quat_xyzw")
    x, y, z, w = origin.floats("quat_xyzw", 4)
    norm = math.hypot(x, y, z, w)
    if not 1e-9 < norm < 1e9:
        raise origin.error(f"the quaternion has norm {norm:.6g}; allowed: near 1", "quat_xyzw")
    return Pose(np.array([w, x, y, z]) / norm, pos)


def _joint(joint: Joint, notes: Notes) -> tuple[Pose, JointSpec]:
    """Pose of the joint in the parent body and the JointSpec."""
    element, kind, nv = joint.element, joint.kind, joint.nv
    pose, q0, params = _origin(element), None, {}
    if kind.type == "free":
        pose, q0 = Pose(), np.concatenate([pose.pos, pose.quat])
    element.raw("dont_collapse")  # for converters that lump fixed joints; xsim keeps them all
    for child in element.all("safety_controller", "calibration", *kind.unused):  # no effect on the mechanics of this joint
        child.skip()
    if "axis" not in kind.unused:
        axis = _axis(element)
        params = {"axes": _plane(axis) if kind.type == "planar" else axis[None]}
    dynamics = element.child("dynamics") if nv else None
    damping, friction = None, np.full(nv, np.nan) if nv else None
    if dynamics is not None:  # for several coordinates alike, as MuJoCo reads it
        damping = np.full(nv, dynamics.number("damping", 0.0, nonnegative=True))
        if dynamics.has("friction"):
            friction = np.full(nv, dynamics.number("friction", nonnegative=True))
    ranges = _ranges(joint, notes) if nv else {}
    driven = nv == 1 and ("force_range" not in ranges or ranges["force_range"][0, 1] > 0)
    return pose, JointSpec(
        type=kind.type, name=joint.name, params=params, damping=damping, friction=friction, q0=q0,
        actuator="force" if driven else "passive", source=element.source, **ranges,
    )  # fmt: skip


def _axis(element: Element) -> np.ndarray:
    """Unit vector of ``<axis>``, in the joint frame."""
    axis = element.child("axis")
    if axis is None:
        return np.array([1.0, 0.0, 0.0])
    xyz = _needed(axis, "xyz", 3)
    norm = math.hypot(*xyz)
    if not 1e-9 < norm < 1e9:
        raise axis.error(f"the axis has length {norm:.6g}; allowed: directions, best of length 1", "xyz")
    return xyz / norm


def _plane(normal: np.ndarray) -> np.ndarray:
    """x, y and normal of a plane's frame: the joint frame after the smallest rotation that turns its z to the normal."""
    x, y, z = normal
    quat = np.array([1 + z, -y, x, 0.0])
    norm = math.hypot(*quat)
    turn = rotation_matrix(quat / norm if norm > 0 else [0.0, 1.0, 0.0, 0.0])
    return np.array([turn[:, 0], turn[:, 1], normal])


def _ranges(joint: Joint, notes: Notes) -> dict[str, Any]:
    """Limits of position, velocity and force of a joint that moves, as far as they are given."""
    limit = joint.element.child("limit")
    if limit is None:
        if joint.kind.ranged:
            raise joint.element.error(f"<limit> is missing; a {joint.type} joint needs one (continuous: the type without position limits)")
        return {}
    lower, upper = (limit.number(side, 0.0, finite=False) for side in ("lower", "upper"))
    effort, velocity = (limit.number(bound, nonnegative=True, finite=False) for bound in ("effort", "velocity"))
    if joint.nv > 1:
        notes.unsupported(limit.line, f"{limit} in {joint.element}: not used, a {joint.type} joint has {joint.nv} coordinates", limit.file)
        return {}
    ranges = {"velocity_range": np.array([[0.0 - velocity, velocity]]), "force_range": np.array([[0.0 - effort, effort]])}
    if joint.kind.ranged:
        if lower > upper or lower == np.inf or upper == -np.inf:
            raise limit.error(f"found {lower:g} with upper {upper:g}; allowed: at most the upper limit", "lower")
        if not limit.has("lower") and not limit.has("upper"):
            notes.suspicious(limit.line, f"{limit} in {joint.element}: lower and upper are missing, both are 0 then: it cannot move")
        ranges["position_range"] = np.array([[lower, upper]])
    return ranges


def _mimics(joints: dict[str, Joint], number: dict[str, int], notes: Notes) -> list[ConstraintSpec]:
    """The constraints follower = multiplier leader + offset, in document order. number: of the bodies by link."""
    constraints, leaders = [], {}
    for joint in joints.values():
        mimic = joint.element.child("mimic")
        if mimic is None:
            continue
        name = mimic.string("joint")
        multiplier, offset = mimic.number("multiplier", 1.0), mimic.number("offset", 0.0)
        if name not in joints:
            raise mimic.error(f"no joint is named {name!r}; {allowed(name, list(joints)[:20])}", "joint")
        if joint.nv == 0:
            notes.suspicious(mimic.line, f"{mimic} in {joint.element}: a fixed joint follows nothing")
            continue
        for end, role in ((joint, "follow another"), (joints[name], "lead")):
            if end.nv != 1:
                movers = ", ".join(t for t, k in TYPES.items() if JOINT_TYPES[k.type].nv == 1)
                raise mimic.error(f"joint {end.name!r} is {end.type} and cannot {role}; allowed: {movers}", "joint")
        leaders[joint.name] = name
        ends = tuple((number[end.child], 0) for end in (joint, joints[name]))
        follow = ConstraintSpec("mimic", joint.name, coordinates=ends, multiplier=multiplier, offset=offset, source=mimic.source)
        constraints.append(follow)
    _refuse_circles(leaders, joints)
    return constraints


def _refuse_circles(leaders: dict[str, str], joints: dict[str, Joint]) -> None:
    done: set[str] = set()
    for start in leaders:
        trail = []
        name = start
        while name in leaders and name not in done:
            done.add(name)
            trail.append(name)
            name = leaders[name]
        if name in trail:
            mimic = joints[trail[-1]].element.need("mimic")
            raise mimic.error(f"the joint follows itself ({_chain(trail[trail.index(name) :])})", "joint")


# ---- mass --------------------------------------------------------------------------------------------------------------------


def _inertial(link: Element, notes: Notes) -> InertialSpec:
    inertial = link.child("inertial")
    if inertial is None:
        return InertialSpec(0.0)
    pose = _origin(inertial)
    mass = inertial.need("mass").number("value", nonnegative=True)
    inertia = inertial.need("inertia")
    diagonal = [inertia.number(a, nonnegative=True) for a in ("ixx", "iyy", "izz")]
    six = np.array([*diagonal, *(inertia.number(a) for a in ("ixy", "ixz", "iyz"))])
    scale = np.abs(six).max()
    if scale > 1e100:  # so that the products below stay finite
        raise inertia.error(f"found {scale:g}; allowed: moments below 1e100 kg m^2")
    if scale > 0:
        low, middle, high = moments = np.linalg.eigvalsh(tensor(six / scale))
        if high > low + middle + 1e-9:  # so it is too where low < 0; 1e-9: rounding of the eigenvalues
            shown = " ".join(f"{m:.6g}" for m in moments * scale)
            notes.suspicious(
                inertia.line, f"{inertia} in {link}: no body has the principal moments {shown}: each is at least 0 and at most the sum "
                "of the others; kept as written"
            )  # fmt: skip
    return InertialSpec(mass, pose.pos, turned(six, pose) if pose.quat[1:].any() else six)


def _note_massless(bodies: list[BodySpec], notes: Notes) -> None:
    """Name the joints that move nothing with mass (or, where they turn, with inertia): their accelerations are not defined.

    Of joints below each other only the first.
    """
    mass = [b.inertial.mass for b in bodies if b.inertial]
    inertia = [bool(b.inertial.inertia.any()) for b in bodies if b.inertial]
    for i in reversed(range(len(bodies))):
        parent = bodies[i].parent
        if parent >= 0:
            mass[parent] += mass[i]
            inertia[parent] |= inertia[i]
    told = [False] * len(bodies)
    for i, body in enumerate(bodies):
        told[i] = body.parent >= 0 and told[body.parent]
        turns = body.joint.type in ("fixed", "hinge")
        if not told[i] and body.joint.type != "fixed" and mass[i] == 0 and not (turns and inertia[i]):
            told[i] = True
            joint = f'joint "{body.joint.name}"' if body.joint.name else "free base"
            what = "mass or inertia" if turns or not inertia[i] else "mass"
            notes.suspicious(
                body.joint.source.line, f'link "{body.name}": {joint} moves nothing that has {what}; forward dynamics is singular'
            )


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def _needed(element: Element, name: str, count: int) -> np.ndarray:
    value = element.floats(name, count)
    if value is None:
        raise element.error(f"attribute {name!r} is missing")
    return value


def _round(shape: Element) -> np.ndarray:
    return np.array([shape.number("radius", nonnegative=True), shape.number("length", nonnegative=True) / 2])


_SHAPES = {  # half extents
    "box": lambda shape: _needed(shape, "size", 3) / 2,
    "sphere": lambda shape: np.array([shape.number("radius", nonnegative=True)]),
    "cylinder": _round,
    "capsule": _round,
    "mesh": lambda shape: shape.floats("scale", 3, np.ones(3)),
}


class _Files(NamedTuple):
    """Where meshes are looked up: folders of packages, and the document's own (None: text from nowhere); the hulls of those found."""

    packages: list[Path]
    home: Path | None
    meshes: Meshes


def _geoms(link: Element, materials: Colors, files: _Files, surface: _Surface, mass: float, notes: Notes) -> tuple[GeomSpec, ...]:
    """What is drawn and what collides, in document order. surface: of the link's collisions; mass: of the link, kg."""
    geoms = []
    for element in link.all("visual", "collision"):
        geometry = element.need("geometry")
        shapes = geometry.all(*_SHAPES)
        if len(shapes) != 1:
            found = "none" if not shapes else " ".join(map(str, shapes))
            raise geometry.error(f"found {found}; allowed: one of {', '.join(_SHAPES)}")
        (shape,) = shapes
        size = _SHAPES[shape.tag](shape)
        if shape.tag == "box" and (size < 0).any():
            raise shape.error(f"found {size * 2}; allowed: numbers >= 0", "size")
        if not size.all():
            notes.suspicious(shape.line, f"{shape} in {link}: has no size in some direction")
        pose, visual = _origin(element), element.tag == "visual"
        file, path = _mesh(shape, files) if shape.tag == "mesh" else (None, None)
        spec, written = (None, {}) if visual else _own_surface(element, surface, mass)
        geom = GeomSpec(
            shape.tag, size, pos=pose.pos, quat=pose.quat, name=element.raw("name") or "", visual=visual, collision=not visual,
            rgba=_rgba(element, materials, notes), file=file, contact=spec, surface=written, source=element.source,
        )  # fmt: skip
        geoms.append(files.meshes.placed(geom, path, element) if geom.collision and shape.tag == "mesh" else geom)
    return tuple(geoms)


class _Surface(NamedTuple):
    """A surface, and the numbers that it comes from, as read."""

    spec: SurfaceSpec
    written: dict[str, float]


def _surface(link: Element, group: int | None, mass: float, notes: Notes) -> _Surface:
    """Of the collisions of a link: the default, or what Bullet's ``<contact>`` says. mass: of the link, kg."""
    surface, contact = default_surface(group), link.child("contact")
    if contact is None:
        return _Surface(surface, {})
    found = {child.tag: child.number("value", nonnegative=True) for child in contact.all(*_BULLET)}
    for child in contact.all(*_BULLET_UNUSED):
        (without, text), value = _BULLET_UNUSED[child.tag], child.number("value")
        if value != without:
            notes.unsupported(child.line, f"{child} in {contact}: value {value:g}: {text}", child.file)
    slide, roll, spin = (found.get(name, default) for name, default in zip(_BULLET, (surface.friction[0], 0.0, 0.0), strict=False))
    surface = replace(surface, friction=(slide, spin, roll), condim=6 if roll > 0 else 4 if spin > 0 else 3)
    if "stiffness" in found or "damping" in found:
        soft = spring_damper(found.get("stiffness", np.inf), found.get("damping", 0.0), DT, mass)
        surface = replace(surface, soft=soft, solmix=1.0)
    elif "contact_erp" in found or "contact_cfm" in found:
        soft = compliant(min(found.get("contact_erp", 0.2), 1.0), found.get("contact_cfm", 0.0), DT, mass)
        surface = replace(surface, soft=soft, solmix=1.0)
    return _Surface(surface, found)


def _own_surface(collision: Element, surface: _Surface, mass: float) -> _Surface:
    """The surface of a collision: that of its link, or what its ``<contact_coefficients>`` (mu, kp, kd; of old ROS) say."""
    own = collision.child("contact_coefficients")
    if own is None:
        return surface
    spec, found = surface.spec, {name: own.number(name, nonnegative=True) for name in ("mu", "kp", "kd") if own.has(name)}
    if "mu" in found:
        spec = replace(spec, friction=(found["mu"], *spec.friction[1:]))
    if "kp" in found or "kd" in found:
        spec = replace(spec, soft=spring_damper(found.get("kp", np.inf), found.get("kd", 0.0), DT, mass), solmix=1.0)
    return _Surface(spec, surface.written | found)


def _mesh(shape: Element, files: _Files) -> tuple[str, Path | None]:
    """File of a mesh: in the first folder that has its package and the file in it, or by its name relative to the document's folder
    (there or in the folder around it). The name of the first, else as it is written, and the file that is there."""
    name = shape.string("filename")
    scheme, _, rest = name.partition("://")
    package, _, inside = rest.partition("/")
    if scheme in ("package", "model") and package not in ("", ".", "..") and ".." not in inside.split("/"):
        for folder in files.packages:
            path = folder / package / inside
            if is_file(path):
                return str(path), path
    elif files.home is not None and not name.startswith("/") and "://" not in name and is_file(files.home / name):
        path = (files.home / name).resolve()
        if path.is_relative_to(files.home.parent):
            return name, path
    return name, None


def _color(material: Element, notes: Notes) -> Color | None:
    for texture in material.all("texture"):
        texture.skip()
    color = material.child("color")
    if color is None:
        return None
    rgba = _needed(color, "rgba", 4)
    if ((rgba < 0) | (rgba > 1)).any():
        notes.suspicious(color.line, f"{color} in {material}: rgba: {rgba} was cut to 0..1")
    r, g, b, a = map(float, np.clip(rgba, 0, 1))
    return r, g, b, a


def _materials(root: Element, links: dict[str, Element], notes: Notes) -> Colors:
    """Colours by the name of their material, the first definition of a name: those of the robot, then those inside visuals."""
    found: Colors = {}
    for material in root.all("material"):
        name = material.string("name")
        if name in found:
            notes.suspicious(material.line, f"{material}: is defined a second time, the first one counts")
        found.setdefault(name, _color(material, notes))
    silent = Notes(root.file)  # `_rgba` reads them again
    for link in links.values():
        for visual in link.all("visual"):
            material = visual.child("material")
            if material is not None and material.child("color") is not None:
                found.setdefault(material.raw("name") or "", _color(material, silent))
    return found


def _rgba(element: Element, materials: Colors, notes: Notes) -> Color | None:
    """Colour of a visual: of its material or of the material it names."""
    material = element.child("material")
    if material is None:
        return None
    if element.tag == "collision":  # not drawn
        material.skip()
        return None
    name, own = material.raw("name") or "", _color(material, notes)
    if own is None and name not in materials and not material.all("texture"):
        notes.suspicious(material.line, f"{material}: no material has this name; drawn without colour")
    return materials.get(name) if own is None else own


def _skip_foreign(root: Element, links: dict[str, Element], joints: dict[str, Joint], notes: Notes) -> None:
    """Note the blocks of other programs, one line for each kind."""
    places = [root, *links.values(), *(joint.element for joint in joints.values())]
    for tag, meaning in _FOREIGN.items():
        blocks = [block for place in places for block in place.all(tag)]
        for block in blocks:
            block.skip()
        if blocks:
            notes.unsupported(blocks[0].line, f"<{tag}> ({len(blocks)} in the file): {meaning}", root.file)
