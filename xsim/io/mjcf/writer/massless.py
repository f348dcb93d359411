"""Moving bodies without mass, which MJCF does not have: their joints become joints of the one body that they carry.

With the pose X of that body in the massless one, T_1 ... T_n X = X (X^-1 T_1 X) ... (X^-1 T_n X): the lines of the joints move by X^-1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from xsim.io.mjcf.writer.body_joints import fits
from xsim.io.writing.chains import Chain, moved
from xsim.spec import BodySpec, ModelSpec

__all__ = ["merged"]


def merged(spec: ModelSpec, chains: list[Chain]) -> tuple[list[Chain], dict[int, int]]:
    """The chains with those of massless bodies in the body that they carry, and by massless body, the number of that body.

    Not merged are massless bodies that carry several bodies, that other elements refer to, or whose joints would be too many for one
    body. The pose of the chain of a carried body is then that in the parent of the massless one.
    """
    out, carried = list(chains), {}
    children: dict[int, list[int]] = {}
    for i, body in enumerate(spec.bodies):
        children.setdefault(body.parent, []).append(i)
    needed, turning = set(_referred(spec)), _turning(spec, chains)
    for i, body in reversed(list(enumerate(spec.bodies))):
        below = children.get(i, [])
        if i in needed or len(below) != 1 or not _is_massless(body, turning[i]) or not out[i].links or not out[below[0]].links:
            continue
        (child,) = below
        if not fits(_all_links(out, carried, i, child)):
            continue
        pose = out[child].pose
        out[i] = out[i]._replace(links=tuple(replace(link, **moved(link, pose)) for link in out[i].links))
        carried[i] = child
        out[i] = out[i]._replace(pose=out[i].pose @ pose)
    return out, carried


def _all_links(chains: list[Chain], carried: dict[int, int], i: int, child: int) -> list:
    """The joints of one body of MJCF, in order."""
    links = list(chains[i].links)
    while True:
        links += chains[child].links
        if child not in carried:
            return links
        child = carried[child]


def _turning(spec: ModelSpec, chains: list[Chain]) -> list[bool]:
    """Whether each body can turn."""
    out: list[bool] = []
    for body, chain in zip(spec.bodies, chains, strict=True):
        out.append(body.parent >= 0 and out[body.parent] or any(link.kind != "slide" for link in chain.links))
    return out


def _is_massless(body: BodySpec, turns: bool) -> bool:
    """Whether no mass of a body moves; what only slides needs no moments of inertia."""
    if body.inertial is not None:
        return body.inertial.mass == 0 and not (turns and body.inertial.inertia.any())
    return not any(geom.mass or geom.density for geom in body.geoms if not geom.massless)


def _referred(spec: ModelSpec) -> Iterator[int]:
    """Bodies that carry more than a body, or that elements refer to."""
    yield from (i for i, body in enumerate(spec.bodies) if body.markers or any(geom.contact is not None for geom in body.geoms))
    for places in (spec.sites, spec.cameras, spec.lights):
        yield from (place.body for place in places)
    yield from (place.target for places in (spec.cameras, spec.lights) for place in places if place.target is not None)
    yield from (frame[1] for frame in spec.frames)
    yield from (body for pair in spec.exclude for body in pair)
    yield from (item for e in spec.equalities if e.kind in ("connect", "weld") and not e.sites for item in e.items)
    yield from (body for item in (*spec.constraints, *spec.forces, *spec.flexes) for body in item.bodies)
    yield from (a.target for a in spec.actuators if a.transmission == "body" and isinstance(a.target, int))
    ends = [end for sensor in spec.sensors for end in (sensor.object, sensor.reference) if end is not None]
    yield from (end[1] for end in ends if end[0] in ("body", "xbody", "subtree"))
    yield from (bone["body"] for skin in spec.drawing.get("skins", {}).values() for bone in skin["bones"])
