"""<worldbody>: the tree of bodies and what is fixed to them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from xsim.io.mjcf.assets import Assets
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.drafts import Draft
from xsim.io.mjcf.geoms import read_geom
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.inertia import SMALL, Inertial, bounded, geoms_inertial, read_inertial
from xsim.io.mjcf.joints import check_joints, free_at, read_freejoint, read_joint
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.options import read_sizes
from xsim.io.mjcf.orientation import read_pose
from xsim.io.mjcf.plugins import read_plugin
from xsim.io.mjcf.reduce import align_free, discard_visual, fuse_static, used_meshes
from xsim.io.mjcf.releases import Release
from xsim.io.mjcf.scaling import UNIT, Scale, Scaler, read_scale, scaled_inertial, unscaled
from xsim.io.mjcf.sites import read_camera, read_light, read_site
from xsim.io.mjcf.values import flag, padded, read_user
from xsim.io.reader import Element
from xsim.poses import Pose
from xsim.spec import BodySpec, CameraSpec, GeomSpec, JointSpec, LightSpec, MeshSpec, PassiveSpec, SiteSpec

__all__ = ["Bodies", "read_bodies"]


SLEEP = ("auto", "never", "allowed", "init")


class Bodies(NamedTuple):
    """The tree, as in `ModelSpec`. meshes: those that geoms use, or all. scales: of the bodies, joints, geoms and sites in scaled <frame>s,
    by kind and number."""

    bodies: list[BodySpec]
    world_geoms: list[GeomSpec]
    sites: list[SiteSpec]
    cameras: list[CameraSpec]
    lights: list[LightSpec]
    meshes: list[MeshSpec]
    passive: list[PassiveSpec]
    scales: dict[tuple, Scale]


class _Input(NamedTuple):
    """What bodies are read with. sizes: numbers of user data, by <size>. scaler: scales what is in a scaled <frame>. scales: of these
    elements, by the identity of their nodes."""

    document: Document
    assets: Assets
    names: Index
    sizes: dict[str, int]
    scaler: Scaler
    scales: dict[int, Scale]


def read_bodies(document: Document, assets: Assets, index: Index) -> Bodies:
    """The bodies of a document whose macros are expanded; index entries "body", "joint", "geom", "site", "camera", "light".

    Bodies are numbered depth first; geoms, sites, cameras and lights body by body, those of the world first. Raises ParseError.
    """
    given = _Input(document, assets, index, read_sizes(document), Scaler(assets), {})
    drafts = _drafts(given)
    for body in drafts[1:]:
        _set_inertial(body, assets.meshes, document.release)
    if document.compiler.discard_visual:
        discard_visual(drafts, document)
    # Bodies with children are not aligned, so it matters whether static bodies have disappeared.
    if document.release.align_before_fuse:
        align_free(drafts)
    if document.compiler.fuse_static:
        drafts = fuse_static(drafts, document)
    if not document.release.align_before_fuse:
        align_free(drafts)
    _check_moving(drafts)
    meshes = used_meshes(drafts, assets.meshes) if document.compiler.discard_visual else list(assets.meshes)
    _scale_masses(drafts, document.compiler.settotalmass)
    return _numbered(drafts, given, meshes)


# ---- reading ----


def _drafts(given: _Input) -> list[Draft]:
    """The world and all bodies, depth first."""
    sections = given.document.sections("worldbody")
    world = Draft(sections[0] if sections else given.document.root, None, name="world")
    out = [world]
    top = [body for section in sections for body in _read_contents(given, section, world)]
    stack = top[::-1]
    while stack:
        e, parent, frame, scale = stack.pop()
        pose = read_pose(e)
        body = Draft(e, parent, frame @ Pose(pose.quat, pose.pos * scale.length), e.string("name", ""), scale=scale)
        given.scales[id(e._node)] = scale
        out.append(body)
        body.gravcomp, body.user = e.number("gravcomp", 0.0), read_user(e, given.sizes["body"])
        e.raw("childclass")
        stack += reversed(_read_contents(given, e, body))
        body.fusible = e.choice("fuse", ("false", "auto"), "auto") == "auto" and body.plugin is None
        e.choice("simple", ("false", "auto"), "auto")  # an optimization of the engine, no effect here
        at_world = parent is world
        check_joints(body.joints, at_world)
        body.mocap = flag(e, "mocap", False)
        if body.mocap and (not at_world or body.joints):
            raise e.error("found a mocap body with a joint or inside another body; allowed: without joint, child of the world", "mocap")
        body.sleep = e.choice("sleep", SLEEP, "auto")
        if body.sleep != "auto" and (_moves(parent) or not body.joints):
            raise e.error("found on a body that is not the root of a moving tree; allowed: on moving children of fixed bodies", "sleep")
        for geom, element in body.geoms:
            if geom.shape in ("plane", "hfield") and _moves(body):
                raise element.error(f"found a {geom.shape} on a body that moves; allowed: on the world and bodies fixed to it", "type")
    return out


def _contents(e: Element, scale: Scale) -> Iterator[tuple[Element, Pose, Scale]]:
    """The elements in a body and in its <frame>s, in order, each with the pose of the frames around it in the body and with its scale.
    scale: of the body."""
    stack = [(child, Pose(), scale) for child in reversed(list(e.children()))]
    while stack:
        child, frame, scale = stack.pop()
        if child.tag != "frame":
            yield child, frame, scale
            continue
        for name in ("name", "childclass"):
            child.raw(name)
        pose = read_pose(child)
        inner = frame @ Pose(pose.quat, pose.pos * scale.length)
        own = scale.times(read_scale(child), inner.pos)
        stack += [(grandchild, inner, own) for grandchild in reversed(list(child.children()))]


def _read_contents(given: _Input, body: Element, draft: Draft) -> list[tuple[Element, Draft, Pose, Scale]]:
    """Read the contents of a body into its draft; returns the bodies inside: element, draft of the parent, pose of the frames around,
    scale."""
    document, assets, index, sizes, scaler, scales = given
    bodies: list[tuple[Element, Draft, Pose, Scale]] = []
    for child, placed, scale in _contents(body, draft.scale):
        tag, frame = child.tag, unscaled(placed, scale)
        scales[id(child._node)] = scale
        if tag == "body":
            bodies.append((child, draft, placed, scale))
        elif tag in ("joint", "freejoint", "inertial") and draft.parent is None:
            raise child.error("found in the world; allowed: in bodies")
        elif tag == "inertial":
            if draft.inertial_element is not None:  # two in one element are refused with the schema
                first = draft.inertial_element.source
                second = child.error(f"second <inertial> of the body (the first is in {first}); allowed: one")
                document.notes.assumed(second, "the last one")
                draft.inertial_element.skip()
            draft.inertial_element, draft.inertial_frame, draft.inertial_scale = child, placed, scale
        elif tag == "freejoint":
            draft.joints.append(read_freejoint(child))
        elif tag in ("camera", "light"):
            (draft.cameras if tag == "camera" else draft.lights).append((placed, document.resolve(child)))
        elif tag == "joint":
            joint = read_joint(document, document.resolve(child), frame, sizes["jnt"])
            draft.joints.append(joint._replace(spec=scaler.joint(joint.spec, scale)))
        elif tag == "geom":
            e = document.resolve(child)
            draft.geoms.append((scaler.geom(read_geom(document, e, frame, assets, index, sizes["geom"]), scale), e))
        elif tag == "site":
            e = document.resolve(child)
            draft.sites.append((scaler.site(read_site(document, e, frame, assets, index, sizes["site"]), scale), e))
        elif tag == "plugin":
            if draft.parent is None or draft.plugin is not None:
                raise child.error(f"found {'in the world' if draft.parent is None else 'twice'}; allowed: one in a body")
            if scale != UNIT:
                raise child.error("found in a frame with a scale; allowed: elsewhere")
            draft.plugin = child.raw("instance") or "", read_plugin(document, child, index, "body"), child
        else:
            raise child.error("is not allowed here")
    return bodies


def _moves(body: Draft | None) -> bool:
    """Whether there is a joint between a body and the world."""
    while body is not None:
        if body.joints:
            return True
        body = body.parent
    return False


# ---- mass ----


def _set_inertial(body: Draft, meshes, release: Release) -> None:
    """Mass properties of a body, by <inertial>, geoms and the settings of <compiler>."""
    settings = scope(body.element)
    element = body.inertial_element
    given = None if element is None else scaled_inertial(read_inertial(element), body.inertial_scale)
    if given is not None and release.frame_moves_inertial:
        given = given.seen_from(body.inertial_frame)
    counted = any(not geom.massless for geom, _ in body.geoms)
    # MuJoCo puts the inertial frame of a massless body at the numbers of the body's pose. There boundmass puts the mass, and soft
    # constraints take the mobility.
    massless = Inertial(pose=read_pose(body.element))
    if settings.inertia_from_geom == "true" and counted or settings.inertia_from_geom == "auto" and given is None:
        total = geoms_inertial((geom for geom, _ in body.geoms), meshes, release.count_massless)
        is_massless = not counted or release.tiny_mass_is_zero and total.mass <= SMALL
        body.inertial = massless if is_massless else total
        # Geoms do not say where the inertial frame of a massless body is, and the model has no formula for shells.
        shells = any(geom.shell for geom, _ in body.geoms if not geom.massless)
        body.explicit = shells or body.inertial.mass == 0 and bool(body.inertial.pose.pos.any())
    else:
        body.inertial, body.explicit = given or massless, given is not None or counted
    body.inertial, changed = bounded(body.inertial, settings, element or body.element)
    body.explicit = body.explicit or changed


def _check_moving(drafts: list[Draft]) -> None:
    """Every moving body, or a body fixed to it, must have mass and inertia. Raises ParseError."""
    with_mass: set[int] = set()
    for body in reversed(drafts):
        if body.inertial.moves() or id(body) in with_mass:
            with_mass.add(id(body))
            if not body.joints:
                with_mass.add(id(body.parent))
        elif body.joints:
            raise body.element.error("a body with a joint has no mass or no inertia; allowed: mass and inertia above 1e-15")


def _scale_masses(drafts: list[Draft], total: float) -> None:
    """settotalmass: multiply all masses by one factor."""
    mass = float(sum(body.inertial.mass for body in drafts[1:]))
    if total > 0 and mass > 0:
        factor = total / mass
        for body in drafts[1:]:
            body.inertial = body.inertial.scaled(factor)
            body.geoms = [(_scaled(geom, factor, e), e) for geom, e in body.geoms]


def _scaled(geom: GeomSpec, factor: float, element: Element) -> GeomSpec:
    """A geom with its mass and density multiplied by a factor."""
    mass, density = geom.mass * factor, None if geom.density is None else geom.density * factor
    if not math.isfinite(mass) or density is not None and not math.isfinite(density):
        raise element.error(f"settotalmass multiplies all masses by {factor:g}; allowed: finite masses and densities")
    return replace(geom, mass=mass, density=density)


# ---- numbers and names ----


def _numbered(drafts: list[Draft], given: _Input, meshes: list[MeshSpec]) -> Bodies:
    """The specs of the bodies and of what is on them; their names go into the index."""
    document, _, index, sizes, scaler, scale_of = given
    number = {id(body): i - 1 for i, body in enumerate(drafts)}
    for body in drafts[1:]:
        index.add("body", body.element, number[id(body)])
    names = set(index.names("body"))
    scales: dict[tuple, Scale] = {}
    bodies: list[BodySpec] = []
    geoms: list[GeomSpec] = []
    owners: list[int] = []
    sites: list[SiteSpec] = []
    cameras: list[CameraSpec] = []
    lights: list[LightSpec] = []
    for i, body in enumerate(drafts, -1):
        for geom, e in body.geoms:
            index.add("geom", e, len(geoms))
            scales["geom", len(geoms)] = scale_of[id(e._node)]
            geoms.append(geom)
            owners.append(i)
        for site, e in body.sites:
            index.add("site", e, len(sites))
            scales["site", len(sites)] = scale_of[id(e._node)]
            sites.append(replace(site, body=i))
        for frame, e in body.cameras:
            index.add("camera", e, len(cameras))
            scale = scales["camera", len(cameras)] = scale_of[id(e._node)]
            cameras.append(scaler.camera(read_camera(document, e, unscaled(frame, scale), i, index, sizes["cam"]), scale))
        for frame, e in body.lights:
            index.add("light", e, len(lights))
            scale = scale_of[id(e._node)]
            lights.append(scaler.light(read_light(e, unscaled(frame, scale), i, index), scale))
        for k, joint in enumerate(body.joints):
            index.add("joint", joint.element, (i, k))
            scales["joint", (i, k)] = scale_of[id(joint.element._node)]
        if body.parent is not None:
            scales["body", i] = body.scale
            bodies.append(_body(body, i, number[id(body.parent)], names))
    body_geoms: list[list[GeomSpec]] = [[] for _ in drafts]
    for owner, geom in zip(owners, padded(document, geoms, sizes["geom"]), strict=True):
        body_geoms[owner + 1].append(geom)
    joints = iter(padded(document, [joint for body in drafts for joint in _joints(body)], sizes["jnt"]))
    bodies = [
        replace(spec, geoms=tuple(geoms_of_body), joints=tuple(next(joints) for _ in body.joints))
        for spec, body, geoms_of_body in zip(padded(document, bodies, sizes["body"]), drafts[1:], body_geoms[1:], strict=True)
    ]
    sites, cameras = padded(document, sites, sizes["site"]), padded(document, cameras, sizes["cam"])
    return Bodies(bodies, body_geoms[0], sites, cameras, lights, meshes, _passive(drafts), scales)


def _passive(drafts: list[Draft]) -> list[PassiveSpec]:
    """The passive forces: one for each instance of a plugin and the bodies that name it, one for each plugin without instance."""
    out: dict[Any, PassiveSpec] = {}
    for i, body in enumerate(drafts, -1):
        if body.plugin is not None:
            name, plugin, e = body.plugin
            spec = out.setdefault(name or i, PassiveSpec(plugin.name, name, (), plugin.config, e.source))
            out[name or i] = replace(spec, bodies=(*spec.bodies, i))
    return list(out.values())


def _joints(body: Draft) -> list[JointSpec]:
    """The joints of a body; a free one starts at the pose of the body in the file."""
    return [replace(joint.spec, **free_at(body.pose)) if joint.spec.type == "free" else joint.spec for joint in body.joints]


def _body(body: Draft, number: int, parent: int, names: set[str]) -> BodySpec:
    """A body without its joints and geoms."""
    pose = Pose() if any(joint.spec.type == "free" for joint in body.joints) else body.pose
    return BodySpec(
        name=body.name or _free_name(f"body#{number + 1}", names),
        parent=parent,
        pos=pose.pos,
        quat=pose.quat,
        inertial=body.inertial.spec() if body.explicit else None,
        principal=body.inertial.pose.quat,
        aligned=body.inertial.pose.is_identity(),
        mocap=body.mocap,
        gravcomp=body.gravcomp,
        sleep=body.sleep,
        user=body.user,
        source=body.element.source,
    )


def _free_name(name: str, names: set[str]) -> str:
    """The name, with more # behind it where a body of the file has it."""
    while name in names:
        name += "#"
    return name
