"""Options of <compiler> that simplify a model: discardvisual, fusestatic, alignfree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.drafts import Draft
from xsim.io.mjcf.inertia import SMALL, merged
from xsim.io.mjcf.options import read_option
from xsim.io.mjcf.references import references
from xsim.poses import Pose
from xsim.spec import MESH_SHAPES, MeshSpec

__all__ = ["align_free", "discard_visual", "fuse_static", "used_meshes"]

# Sections whose elements can refer to bodies, to what is on them, or to what their joints do.
BLOCKS = (
    ("deformable", "skin"), ("asset", "skin"), ("contact", "pair"), ("contact", "exclude"), ("custom", "tuple"), ("equality",),
    ("tendon",), ("actuator",), ("sensor",),
)  # fmt: skip


def _referenced(document: Document, kind: str) -> set[str]:
    """Names of bodies or geoms that elements refer to."""
    return {name for _, _, (of, name) in references(document.root._node) if of == kind}


def discard_visual(drafts: list[Draft], document: Document) -> None:
    """Remove geoms that do not collide, on which no medium acts and that no element refers to, and all materials. Bodies do not lose their
    mass."""
    names = _referenced(document, "geom")
    for body in drafts:
        remaining = []
        for geom, e in body.geoms:
            if geom.collision or geom.fluid is not None or geom.name and geom.name in names:
                remaining.append((replace(geom, material=""), e))
            else:
                body.explicit = body.explicit or not geom.massless
        body.geoms = remaining
        body.sites = [(replace(site, material=""), e) for site, e in body.sites]


def used_meshes(drafts: list[Draft], meshes: Sequence[MeshSpec]) -> list[MeshSpec]:
    """The meshes that geoms and sites still use; these get their new numbers."""

    def has_mesh(item) -> bool:
        return item.shape in MESH_SHAPES and item.asset is not None

    found = {item.asset for body in drafts for item, _ in (*body.geoms, *body.sites) if has_mesh(item)}
    used = sorted(asset for asset in found if asset is not None)
    number: dict[int | None, int] = {old: new for new, old in enumerate(used)}
    for body in drafts:
        body.geoms, body.sites = (
            [(replace(item, asset=number[item.asset]) if has_mesh(item) else item, e) for item, e in items]
            for items in (body.geoms, body.sites)
        )
    return [meshes[i] for i in used]


def fuse_static(drafts: list[Draft], document: Document) -> list[Draft]:
    """Move the contents of bodies without joints into their parents; returns the remaining bodies.

    Not fused are bodies with fuse="false", bodies that elements refer to, mocap bodies, and those whose gravcomp differs from their
    parent's. With `Release.fuse_whole_model_only` nothing is fused in a model that has elements able to refer to bodies. Without it bodies
    with a site of a force or torque sensor are not fused either, since these sensors measure the interaction between body and parent, nor
    those on which a medium acts, unless their parent is the world.
    """
    if document.release.fuse_whole_model_only and _blocked(drafts, document):
        return drafts
    names, in_medium = _referenced(document, "body"), not document.release.fuse_whole_model_only and _has_medium(document)
    measured = {sensor.raw("site") for sensor in document.elements("sensor", "force", "torque")}
    children: dict[int, list[Draft]] = defaultdict(list)
    for body in drafts:
        children[id(body.parent)].append(body)
    remaining: list[Draft] = []
    for body in drafts:
        parent = body.parent
        needed = body.name in names or any(site.name in measured for site, _ in body.sites) or not body.fusible
        if parent is None:
            remaining.append(body)
            continue
        apart = parent.parent is not None and (body.gravcomp != parent.gravcomp or in_medium and _feels_medium(body))
        if body.joints or body.mocap or needed or apart:
            remaining.append(body)
            continue
        _absorb(parent, body.seen_from(body.pose), document.release.count_massless)
        for child in children[id(body)]:
            child.parent, child.pose = parent, body.pose @ child.pose
            children[id(parent)].append(child)
    return remaining


def _has_medium(document: Document) -> bool:
    option = read_option(document)
    return option.density > 0 or option.viscosity > 0


def _feels_medium(body: Draft) -> bool:
    return body.inertial.mass > SMALL or any(geom.fluid is not None for geom, _ in body.geoms)


def _blocked(drafts: list[Draft], document: Document) -> bool:
    return any(document.elements(*where) for where in BLOCKS) or any(body.cameras or body.lights for body in drafts)


def _absorb(parent: Draft, body: Draft, count_massless: bool) -> None:
    parent.geoms += body.geoms
    parent.sites += body.sites
    parent.cameras += body.cameras
    parent.lights += body.lights
    if parent.parent is not None and body.inertial.mass > SMALL:
        parent.explicit = parent.explicit or body.explicit
        parent.inertial = merged((parent.inertial, body.inertial), count_massless)


def align_free(drafts: Iterable[Draft]) -> None:
    """Move the frames of free bodies without children onto their inertial frames, where the file asks for it."""
    bodies = list(drafts)
    parents = {id(body.parent) for body in bodies}
    for body in bodies:
        if len(body.joints) == 1 and body.joints[0].align and id(body) not in parents:
            pose = body.inertial.pose
            seen = body.seen_from(pose.inverse())
            body.geoms, body.sites, body.cameras, body.lights = seen.geoms, seen.sites, seen.cameras, seen.lights
            body.pose, body.inertial = body.pose @ pose, body.inertial._replace(pose=Pose())
