"""URDF, the robot description of ROS: reader.

A link's frame is the frame of the joint above it, so ``joint/origin`` becomes the body's pose and the joint frame is the body frame.
Bodies are numbered in the document's order of links; a link written before its parent comes as soon as its parent has been placed.
The root link is free or fixed as the caller says (the format does not), but a root called ``world`` is the ground and no body.
Formulas and rules: the URDF pages of the ROS wiki and urdfdom; rotations are fixed-axis roll, pitch, yaw.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from xsim.io.contact_parameters import with_contacts, with_soft_limits
from xsim.io.errors import Notes, allowed
from xsim.io.files import folder_of
from xsim.io.formats import Format
from xsim.io.hulls import CollisionMeshes
from xsim.io.pictures import picture_materials
from xsim.io.reader import Element, parse_xml
from xsim.io.urdf.document import drop_repeated, elements_by_name, inspect, skip_foreign
from xsim.io.urdf.geoms import ModelFiles, read_geoms
from xsim.io.urdf.inertia import note_massless, read_inertial
from xsim.io.urdf.joints import read_joint, read_mimics
from xsim.io.urdf.materials import Materials, read_materials
from xsim.io.urdf.surfaces import DT, read_surface
from xsim.io.urdf.tree import TYPES, LinkTree, order_links, read_joint_ends
from xsim.poses import Pose
from xsim.spec import BodySpec, GeomSpec, InertialSpec, JointSpec, ModelSpec, OptionSpec

__all__ = ["FORMAT", "BASES", "TYPES", "read"]

BASES = {"free": "free", "fixed": "fixed"}  # option ``base``: joint type between the world and the root link
WORLD = "world"
_VERSIONS = ("1", "1.0", "1.1", "1.2")


def read(
    data: bytes | str, file: str, notes: Notes, *, paths: Sequence[str | Path] = (), base: str = "free", self_collide: bool = False
) -> ModelSpec:
    """ModelSpec of a URDF document.

    paths: folders in which the package of a ``package://PACKAGE/rest`` (or ``model://``) mesh name is looked up; a name that is not
    found stays as it is written. base: ``"free"`` (free joint at the identity) or ``"fixed"`` (welded to the world at the identity),
    how the root link is connected to the world unless it is called ``world``. self_collide: whether links touch each other (those with
    a joint between them never do); they always touch what is fixed to a root link called ``world``, and the ground of
    `ModelSpec.with_ground`. Raises ParseError, ValueError for an unknown ``base``; adds what is unused or doubtful to ``notes``.
    """
    if base not in BASES:
        raise ValueError(f"unknown base {base!r}; {allowed(str(base), BASES)}")
    packages = [Path(p) for p in ([paths] if isinstance(paths, (str, Path)) else paths)]
    root = parse_xml(data, file, notes)
    name, elements = _read_root(root, notes)
    joints = {n: read_joint_ends(n, element, elements) for n, element in elements_by_name(root, "joint").items()}
    tree = order_links(elements, joints)
    materials = read_materials(root, elements, notes)
    files = ModelFiles(packages, folder_of(file), CollisionMeshes(notes), {})
    links = {n: _read_link(link, materials, files, self_collide, notes) for n, link in elements.items()}
    ground = tree.order[0] == WORLD
    _note_world(links, ground, notes)
    order = tree.order[ground:]  # the ground is no body
    bodies = _bodies(order, links, tree, BASES[base], notes)
    note_massless(bodies, notes)
    scenery = links[WORLD].geoms if ground else ()
    files.meshes.report(bodies, scenery)
    spec = ModelSpec(
        name=name,
        format="urdf",
        bodies=with_soft_limits(bodies),
        world_geoms=scenery,
        constraints=tuple(read_mimics(joints, {n: i for i, n in enumerate(order)}, notes)),
        option=with_contacts(OptionSpec(gravity=np.array([0.0, 0.0, -9.8]), dt=DT), soft=True),
        meshes=tuple(files.meshes.specs),
        drawing=picture_materials(files.pictures),
        source=root.source,
    )
    skip_foreign(root, [*elements.values(), *(joint.element for joint in joints.values())], notes)
    root.report_unread(notes)
    return spec


FORMAT = Format("urdf", "URDF", read, suffixes=(".urdf",), roots=("robot",))


def _read_root(root: Element, notes: Notes) -> tuple[str, dict[str, Element]]:
    """Name of the robot, and its links by name."""
    inspect(root, notes)
    if root.tag != "robot":
        raise root.error("the root element must be <robot>")
    drop_repeated(root, notes)
    name = root.raw("name") or ""
    if not name.strip():
        notes.assumed(root.error("attribute 'name' is missing"), "an empty name")
    root.choice("version", _VERSIONS, "1.0")
    links = elements_by_name(root, "link")
    if not links:
        raise root.error("holds no <link>; allowed: one or more")
    return name, links


class _Link(NamedTuple):
    """A ``<link>`` and what it holds."""

    element: Element
    inertial: InertialSpec
    geoms: tuple[GeomSpec, ...]


def _read_link(link: Element, materials: Materials, files: ModelFiles, self_collide: bool, notes: Notes) -> _Link:
    """A link. Links that do not collide with each other share a collision group; the ground is in none."""
    inertial = read_inertial(link, notes)
    group = None if self_collide or link.string("name") == WORLD else 0
    surface = read_surface(link, group, inertial.mass, notes)
    return _Link(link, inertial, read_geoms(link, materials, files, surface, inertial.mass, notes))


def _note_world(links: dict[str, _Link], ground: bool, notes: Notes) -> None:
    """Note a link called ``world`` that is not the root, or that has a mass although it is the ground."""
    if WORLD not in links:
        return
    element, inertial, _ = links[WORLD]
    if ground and (inertial.mass or inertial.inertia.any()):
        notes.suspicious(element.line, f"{element}: is the ground, its mass has no effect")
    elif not ground:
        notes.suspicious(element.line, f"{element}: is not the root of the tree, so it is a body like any other")


def _bodies(order: list[str], links: dict[str, _Link], tree: LinkTree, base: str, notes: Notes) -> tuple[BodySpec, ...]:
    """The bodies of these links, parents first. base: joint type of the root link."""
    number = {name: i for i, name in enumerate(order)}
    bodies = []
    for name in order:
        link = links[name]
        source, joint = link.element.source, tree.joint_above.get(name)
        if joint is None:
            parent, pose, spec = -1, Pose(), JointSpec(base, source=source)
        else:
            parent, (pose, spec) = number.get(joint.parent, -1), read_joint(joint, notes)
        bodies.append(BodySpec(name, parent, (spec,), pose.pos, pose.quat, geoms=link.geoms, inertial=link.inertial, source=source))
    return tuple(bodies)
