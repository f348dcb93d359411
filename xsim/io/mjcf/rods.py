"""Flexes that are chains of lines and resist bending and twist (rules 4.0)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from xsim.io.mjcf.bodies import Bodies
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.index import Index
from xsim.io.mjcf.macros import Maker
from xsim.io.mjcf.nodes import Node
from xsim.io.reader import Element
from xsim.poses import Pose, rotation_matrix
from xsim.spec import RodSpec

__all__ = ["is_chain", "make_twist_bodies", "read_rod", "read_section", "twist_names"]

STRAIGHT = 1e-4  # angle between two lines in the reference pose up to which MuJoCo takes them for straight, rad
TWIST_MASS = 1e-9  # of a body that stands for the twist of a line, kg


def is_chain(elements: np.ndarray) -> bool:
    """Whether lines (n, 2) are an open chain, each beginning where the one before ends."""
    points = [*elements[:, 0].tolist(), int(elements[-1, 1])]
    return len(set(points)) == len(points) and bool((elements[1:, 0] == elements[:-1, 1]).all())


def twist_names(name: str, lines: int) -> list[str]:
    """The names of the joints, and of the bodies in a flexcomp, for the twist of each line."""
    return [*(f"{name}_twist_{k}" for k in range(lines - 1)), f"{name}_twist"]


def make_twist_bodies(make: Maker, name: str, pinned: np.ndarray, mass: float, gyration: float) -> list[Node]:
    """The bodies for the twist of a flexcomp's lines. pinned: which points of the chain are. A line with two pinned points has none, if it
    is the first one or, of three and more, the last one. gyration: squared radius of gyration of the cross-section."""
    count = len(pinned) - 1
    moment = mass / count * gyration
    inertial = {"pos": "0 0 0", "mass": TWIST_MASS, "diaginertia": (moment, moment, moment)}
    return [
        make("body", [make("inertial", **inertial), make("joint", name=twist, type="hinge", pos="0 0 0", axis="1 0 0")], name=twist)
        for twist, clamped in zip(twist_names(name, count), _clamped(pinned[:-1] & pinned[1:]), strict=True)
        if not clamped
    ]


def _clamped(fixed: np.ndarray) -> list[bool]:
    """For each line of a chain, whether it has no twist. fixed: whether its two points are fixed to each other."""
    last = len(fixed) - 1
    return [bool(x) and (k == 0 or k == last and last > 1) for k, x in enumerate(fixed)]


def read_rod(
    document: Document, bodies: Bodies, index: Index, e: Element, name: str, elements: np.ndarray, vertices: list[int], poses: list[Pose],
    world: np.ndarray,
) -> RodSpec | None:  # fmt: skip
    """How the lines of a flex resist bending and twist, None if they do not or if xsim does not simulate it: lines that are no open chain
    in the order of the elements, chains without twist that are bent in the reference pose, those that a mocap body holds at an end.

    vertices: bodies of the vertices. poses: of bodies in the reference pose, that of the world last. world: the vertices there. Raises
    ParseError."""
    elastic = e.child("elasticity")
    if elastic is None or document.release.schema == "3.2":
        return None
    shear, section = elastic.number("shear", 0.0, nonnegative=True), read_section(e)
    if elements.shape[1] != 2 or not elastic.number("young", 0.0):
        return None
    if not section and e.number("radius", 0.005) <= 0:
        raise e.error("found 0; allowed: a positive radius, with lines that are elastic", "radius")
    if len(elements) < 2 or not is_chain(elements):
        return None
    chain = [*elements[:, 0], elements[-1, 1]]
    lines = np.diff(world[chain], axis=0)
    lengths = np.linalg.norm(lines, axis=1)
    if not lengths.all():
        raise e.error("a line has no length; allowed: points that are apart")
    tangents = lines / lengths[:, None]
    chained = [vertices[i] for i in chain]
    clamped = _clamped(np.array([a == b for a, b in zip(chained[:-1], chained[1:], strict=True)]))
    if any(held and chained[k] >= 0 and bodies.bodies[chained[k]].mocap for k, held in enumerate(clamped)):
        return None
    twists = _twists(index, e, name, clamped)
    if section and not twists:
        raise e.error(f"the joint {twist_names(name, len(clamped))[0]!r} is missing; needed with boxes: joints for the twist of each line")
    turns = [rotation_matrix(poses[chained[k]].quat) if clamped[k] else np.eye(3) for k in (0, -1)]
    normals, curvature = _rest_frames(tangents, turns[0], upright=bool(section) and section[0] < section[1])
    if curvature.any() and not twists:
        return None
    ends = [np.array([vectors[k] @ turn for k, turn in zip((0, -1), turns, strict=True)]) for vectors in (tangents, normals)]
    return RodSpec(ends[0], ends[1], curvature, twists, shear, section)


def read_section(e: Element) -> tuple[float, ...]:
    """Half the sides of the cross-section of elastic lines of a <flex> or <flexcomp>, empty for a circle. Raises ParseError."""
    elastic = e.child("elasticity")
    if elastic is None or elastic.choice("section", ("circle", "box"), "circle") == "circle":
        return ()
    sizes = elastic.floats("sectionsize", 2, (0.0, 0.0))
    if not (sizes > 0).all():
        raise elastic.error(f"found {sizes.tolist()}; allowed with a box: two positive numbers", "sectionsize")
    if e.has("radius") and abs(e.number("radius") - sizes.min()) > 1e-9 * sizes.min():
        raise e.error(f"found {e.number('radius'):g}; allowed with a box: no radius, or its smaller half side, {sizes.min():g}", "radius")
    return tuple(sizes.tolist())


def _rest_frames(tangents: np.ndarray, turn: np.ndarray, upright: bool) -> tuple[np.ndarray, np.ndarray]:
    """The normals of lines with these tangents, see `RodSpec`, and the curvature between them. turn: axes (3, 3) along which the first
    normal is chosen. upright: whether it is turned by a right angle."""
    normal, curvature = turn @ _normal(tangents[0] @ turn), []
    normals = [np.cross(tangents[0], normal) if upright else normal]
    for before, tangent in pairwise(tangents):
        axis, cosine, u = np.cross(before, tangent), before @ tangent, normals[-1]
        normals.append(u * cosine + np.cross(axis, u) + axis * (axis @ u) / (1 + cosine))
        kb = 2 * axis / (1 + cosine)
        straight = np.linalg.norm(kb) < STRAIGHT
        curvature.append(np.zeros(2) if straight else np.array([kb @ u, kb @ np.cross(before, u)]))
    return np.array(normals), np.array(curvature)


def _twists(index: Index, e: Element, name: str, clamped: list[bool]) -> tuple[tuple[int, int] | None, ...]:
    """The joints of the twist of each line, empty without. Raises ParseError if some are missing."""
    names, known = twist_names(name, len(clamped)), set(index.names("joint")) if name else set()
    missing = [twist for twist, held in zip(names, clamped, strict=True) if not held and twist not in known]
    if len(missing) == clamped.count(False):
        return ()
    if missing:
        raise e.error(f"the joint {missing[0]!r} is missing; allowed: one for the twist of each line, or none")
    return tuple(None if held else index.named("joint", e, None, twist) for twist, held in zip(names, clamped, strict=True))


def _normal(tangent: np.ndarray) -> np.ndarray:
    """MuJoCo's choice of a direction perpendicular to another: nearest to y or, if that is nearly parallel, to z."""
    axis = np.eye(3)[1 if abs(tangent[1]) < 0.5 else 2]
    normal = axis - tangent * (tangent @ axis)
    return normal / np.linalg.norm(normal)
