"""SDFormat 1.4 to 1.12.

Every version is read as it is; where the versions differ in mechanics, the place that reads the element asks the document's version.
Names follow the format: ``model::link``, without the name of the single model of a file. Beyond what the file writes,
joints appear that it only implies: ``floating:LINK`` (a part without a joint to the world) and ``static:LINK`` (a link of a static model).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from xsim.io.contact_parameters import with_contacts, with_soft_limits
from xsim.io.errors import Notes, ParseError
from xsim.io.files import is_file
from xsim.io.formats import Format
from xsim.io.pictures import picture_materials
from xsim.io.reader import Element
from xsim.io.sdf.document import Document, Library, ignore, load, number
from xsim.io.sdf.frames import Frame, relative
from xsim.io.sdf.joints import couplings, read_joint, with_coupled, with_stops
from xsim.io.sdf.links import check_massless, read_link
from xsim.io.sdf.structure import Structure, build
from xsim.io.sdf.surfaces import Contacts
from xsim.io.tree import Tree, assemble
from xsim.spec import ModelSpec, OptionSpec

__all__ = ["FORMAT", "read"]

GRAVITY = (0.0, 0.0, -9.8)  # the default that the format writes down
_WORLD_IGNORED = (
    "plugin", "gui", "light", "actor", "scene", "audio", "wind", "magnetic_field", "atmosphere", "road", "spherical_coordinates",
)  # fmt: skip
_PHYSICS_IGNORED = ("max_contacts", "real_time_factor", "real_time_update_rate", "dart", "simbody", "bullet", "ode")


def read(data: bytes | str, file: str, notes: Notes, paths: Sequence[str | os.PathLike] = ()) -> ModelSpec:
    """ModelSpec of an SDFormat document.

    paths: folders in which ``model://NAME`` and ``package://NAME`` are looked up, after those of the document. Raises ParseError;
    adds what is unused or doubtful to ``notes``.
    """
    with np.errstate(all="ignore"):  # numbers that overflow are found by _check
        document = load(data, file, notes)
        library = Library(paths, document, notes)
        structure = build(document, os.path.realpath(file) if is_file(Path(file)) else file, library, notes)
        element = structure.world.frame.element
        option = _option(structure, document, notes)
        index = {frame: i for i, frame in enumerate(structure.links)}
        contacts = Contacts(option.dt, notes)
        joints = with_coupled([read_joint(frame, structure.world.frame, index, notes) for frame in structure.joints])
        placed = {end for joint in joints for end in (joint.ends if joint.kind == "fixed" else joint.ends[1:])}
        links = [read_link(frame, library, contacts, frame in placed, notes) for frame in structure.links]
        tree = assemble(links, [j.joint for j in joints if j.joint is not None])
        check_massless(links, structure.links, tree)
        bodies = with_soft_limits(with_stops(joints, tree, option.dt))
        contacts.meshes.report(bodies)
        spec = ModelSpec(
            name=element.raw("name") or "",
            format="sdf",
            bodies=bodies,
            constraints=(*tree.constraints, *couplings(joints, tree, index)),
            frames=tuple(_frames(structure, tree, index)),
            option=with_contacts(option, soft=True),
            meshes=tuple(contacts.meshes.specs),
            exclude=tree.closed,
            drawing=picture_materials(library.pictures),
            source=document.root.source,
        )
        _check(spec)
    for part in (document, *library.documents.values()):
        part.root.report_unread(notes)
    return spec


FORMAT = Format("sdf", "SDFormat", read, suffixes=(".sdf", ".world"), roots=("sdf", "model", "gazebo"))


def _option(structure: Structure, document: Document, notes: Notes) -> OptionSpec:
    """Gravity and step of the world; the format's defaults without one."""
    element, gravity, dt = structure.world.frame.element, None, 0.001
    if element.tag == "world":
        ignore(element.all(*_WORLD_IGNORED))
        given = element.child("gravity")
        gravity = None if given is None else given.floats(None, 3)
        physics = _physics(element)
        if physics is not None:
            ignore(physics.all(*_PHYSICS_IGNORED))
            dt = number(physics, "max_step_size", dt, positive=True)
            old = physics.child("gravity") if document.version <= 5 else None  # later it is no element of physics
            gravity = old.floats(None, 3) if old is not None and gravity is None else gravity
    return OptionSpec(gravity=np.array(GRAVITY) if gravity is None else gravity + 0.0, dt=dt)


def _physics(world: Element) -> Element | None:
    """The physics profile in use: the one marked as default, else the first."""
    profiles = world.all("physics")
    for profile in profiles:
        for attribute in ("name", "type"):
            profile.raw(attribute)
    marked = [p for p in profiles if p.boolean("default", False)]
    used = (marked or profiles or [None])[0]
    ignore(p for p in profiles if p is not used)
    return used


def _frames(structure: Structure, tree: Tree, index: dict[Frame, int]):
    """Explicit frames and model frames: by the names of the file, and by the name that Drake gives a frame (in the model of the body
    it moves with), where no frame of the file has that name."""
    named = {f"{f.model.prefix}__model__": f for f in structure.models if f.model is not None}
    named |= {f.name: f for f in structure.frames}
    for frame in structure.frames:
        body = frame.body
        assert body is not None
        named.setdefault(f"{body.owner.prefix}{frame.name.removeprefix(frame.owner.prefix)}", frame)
    for name, frame in named.items():
        body = frame.body
        assert body is not None
        pose = relative(frame, body)
        yield name, -1 if body.kind == "world" else tree.body_of_link[index[body]], pose.pos, pose.quat


def _check(spec: ModelSpec) -> None:
    """Numbers that overflowed on the way (a pose of 1e308 m) are an error of the file."""
    for body in spec.bodies:
        joint, inertial = body.joint, body.inertial
        assert inertial is not None
        arrays = [body.pos, body.quat, joint.pos, joint.quat, inertial.com, inertial.inertia, *joint.params.values()]
        arrays += [joint.q0 if joint.q0 is not None else body.pos, *(x for g in body.geoms for x in (g.pos, g.quat, g.size))]
        if not np.isfinite(np.concatenate([np.ravel(a) for a in arrays])).all():
            raise ParseError(body.source.file, body.source.line, f'<link name="{body.name}">: a pose or size is too large for a number')
    for constraint in spec.constraints:
        arrays = [x for frame in constraint.frames for x in frame] + ([] if constraint.axes is None else [constraint.axes])
        arrays += [] if constraint.joint is None else constraint.joint.params.values()
        if arrays and not np.isfinite(np.concatenate([np.ravel(a) for a in arrays])).all():
            raise ParseError(constraint.source.file, constraint.source.line, f"{constraint.name}: a pose is too large for a number")
    for name, _, pos, quat in spec.frames:
        if not np.isfinite([*pos, *quat]).all():
            raise ParseError(spec.source.file, spec.source.line, f"frame {name!r}: the pose is too large for a number")
