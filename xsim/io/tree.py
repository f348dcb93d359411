"""From a graph of links and joints to a tree of bodies, with the joints that close loops as constraints. For every format that draws
its links in the world and joins any two of them."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from xsim.io.errors import ParseError
from xsim.poses import Pose
from xsim.spec import BodySpec, ConstraintSpec, GeomSpec, InertialSpec, JointSpec, Source

__all__ = ["Joint", "Link", "Tree", "assemble"]

WORLD = -1


@dataclass(frozen=True)
class Link:
    """A rigid body as drawn. pose: of its frame in the world with every joint at zero. welded: fixed to the world without a joint."""

    name: str
    pose: Pose
    inertial: InertialSpec
    geoms: tuple[GeomSpec, ...] = ()
    gravity: float = 1.0
    welded: bool = False
    source: Source = Source()


@dataclass(frozen=True)
class Joint:
    """A joint between two links (by number, -1: the world): the frames in the two that coincide at zero.

    spec: its type and numbers, without pos and quat. cut: it closes a loop, whatever its place in the document.
    """

    spec: JointSpec
    parent: int
    child: int
    in_parent: Pose
    in_child: Pose
    cut: bool = False


class Tree(NamedTuple):
    """bodies: parents first. constraints: the loop joints. body_of: the body of each link. held_by: of each joint, the body that it
    holds in the tree, None for a loop joint."""

    bodies: tuple[BodySpec, ...]
    constraints: tuple[ConstraintSpec, ...]
    body_of: tuple[int, ...]
    held_by: tuple[int | None, ...]

    def coordinate(self, joint: int, axis: int) -> tuple[int, int] | None:
        """Body and index of a joint's coordinate, which the file counts as number ``axis``; None for a loop joint."""
        body = self.held_by[joint]
        if body is None:
            return None
        spec = self.bodies[body].joint
        return body, len(spec.params["axes"]) - 1 - axis if spec.reversed and "axes" in spec.params else axis


def assemble(links: Sequence[Link], joints: Sequence[Joint]) -> Tree:
    """Choose the spanning tree, in the order of the joints, and hang up the bodies.

    A joint joins the tree where its child has no parent yet and the two ends are not joined already; then those whose child has a
    parent but whose parent is not joined to it (they are reversed, or hang the tree up at another end). The rest close loops. A
    connected piece that the world does not hold gets a free joint at its first link that is no tree joint's child. Bodies are in the
    order of the links wherever parents may come first. Raises ParseError for a joint type that cannot be reversed.
    """
    chosen = _spanning(links, joints)
    neighbours: list[list[int]] = [[] for _ in links]
    held = [False] * len(links)
    roots: list[tuple[int, int | None]] = [(i, None) for i, link in enumerate(links) if link.welded]
    for j in chosen:
        joint = joints[j]
        held[joint.child] = True
        if joint.parent == WORLD:
            roots.append((joint.child, j))
        else:
            neighbours[joint.parent].append(j)
            neighbours[joint.child].append(j)
    above: list[tuple[int, int | None] | None] = [None] * len(links)  # of each link: its parent link and the joint to it

    def hang(start: int, joint: int | None) -> None:
        above[start] = (WORLD, joint)
        stack = [start]
        while stack:
            link = stack.pop()
            for j in neighbours[link]:
                other = joints[j].child if joints[j].parent == link else joints[j].parent
                if above[other] is None:
                    above[other] = (link, j)
                    stack.append(other)

    for link, joint in roots:
        hang(link, joint)
    for by_joint in (False, True):  # a piece whose every link is a child still needs a root
        for i in range(len(links)):
            if above[i] is None and held[i] == by_joint:
                hang(i, None)
    order = _parents_first([a[0] if a is not None else WORLD for a in above])
    body_of = [0] * len(links)
    for body, link in enumerate(order):
        body_of[link] = body
    held_by: list[int | None] = [None] * len(joints)
    bodies = []
    for body, i in enumerate(order):
        entry = above[i]
        assert entry is not None
        parent, j = entry
        if j is not None:
            held_by[j] = body
        bodies.append(_body(links[i], WORLD if parent == WORLD else body_of[parent], None if j is None else joints[j], i))
    loops = [j for j in range(len(joints)) if held_by[j] is None]
    return Tree(tuple(bodies), tuple(_loop(joints[j], body_of) for j in loops), tuple(body_of), tuple(held_by))


def _spanning(links: Sequence[Link], joints: Sequence[Joint]) -> list[int]:
    """Numbers of the joints that make the tree."""
    piece = list(range(len(links) + 1))  # the last one: the world, which is also number -1

    def find(i: int) -> int:
        i = i % len(piece)
        while piece[i] != i:
            piece[i] = i = piece[piece[i]]
        return i

    held = [link.welded for link in links]
    for i, link in enumerate(links):
        if link.welded:
            piece[find(i)] = find(WORLD)
    chosen, late = [], []
    for j, joint in enumerate(joints):
        if joint.cut:
            continue
        a, b = find(joint.parent), find(joint.child)
        if held[joint.child]:
            late.append(j)
        elif a != b:
            piece[b] = a
            held[joint.child] = True
            chosen.append(j)
    for j in late:
        a, b = find(joints[j].parent), find(joints[j].child)
        if a != b:
            piece[b] = a
            chosen.append(j)
    return chosen


def _parents_first(parents: Sequence[int]) -> list[int]:
    """The links in their own order, moved only as far back as their parents ask."""
    children: list[list[int]] = [[] for _ in parents]
    ready = []
    for i, parent in enumerate(parents):
        (ready if parent == WORLD else children[parent]).append(i)
    heapq.heapify(ready)
    order = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for child in children[i]:
            heapq.heappush(ready, child)
    return order


def _body(link: Link, parent: int, joint: Joint | None, number: int) -> BodySpec:
    body = BodySpec(
        link.name, parent, JointSpec("fixed"), geoms=link.geoms, inertial=link.inertial, gravity=link.gravity, source=link.source,
    )  # fmt: skip
    if joint is None:
        quat, pos = link.pose
        if link.welded:
            return replace(body, joints=JointSpec("fixed", f"static:{link.name}", source=link.source), pos=pos, quat=quat)
        q0 = np.array([*pos, *quat])
        return replace(body, joints=JointSpec("free", f"floating:{link.name}", q0=q0, source=link.source))
    spec, above, below = joint.spec, joint.in_parent, joint.in_child
    if joint.child != number:
        spec, above, below = _reversed(spec), below, above
    if spec.type == "fixed":
        above, below = above if below.is_identity() else above @ below.inverse(), Pose()
    return replace(body, joints=replace(spec, pos=below.pos, quat=below.quat), pos=above.pos, quat=above.quat)


# Types whose inverse is a joint of the same type: about (along) the negated axes, last axis first.
_REVERSIBLE = ("fixed", "hinge", "slide", "screw", "ball", "universal", "slide2", "euler")
_PER_COORDINATE = (
    "damping", "armature", "stiffness", "spring_ref", "friction", "position_range", "velocity_range", "force_range", "q0", "v0",
)  # fmt: skip


def _reversed(spec: JointSpec) -> JointSpec:
    """The joint seen from its child: the same motion, with parent and child exchanged."""
    if spec.type not in _REVERSIBLE:
        text = f'<joint name="{spec.name}">: a {spec.type} joint cannot be hung up at its child'
        raise ParseError(spec.source.file, spec.source.line, f"{text}; allowed: {', '.join(_REVERSIBLE)}, or the other direction")
    changes: dict = {"reversed": True}
    if "axes" in spec.params:
        changes["params"] = {**spec.params, "axes": 0.0 - spec.params["axes"][::-1]}
        changes |= {name: value[::-1] for name in _PER_COORDINATE if (value := getattr(spec, name)) is not None}
    elif spec.type == "ball" and any(x is not None for x in (spec.q0, spec.v0, spec.spring_ref, spec.position_range)):
        # These are not the same in both frames; no format that joins links freely gives them.
        text = f'<joint name="{spec.name}">: a ball with a start, spring or range cannot be hung up at its child'
        raise ParseError(spec.source.file, spec.source.line, text)
    return replace(spec, **changes)


def _loop(joint: Joint, body_of: Sequence[int]) -> ConstraintSpec:
    bodies = tuple(WORLD if link == WORLD else body_of[link] for link in (joint.parent, joint.child))
    frames = tuple((pose.pos, pose.quat) for pose in (joint.in_parent, joint.in_child))
    return ConstraintSpec("joint", joint.spec.name, bodies=bodies, frames=frames, joint=joint.spec, source=joint.spec.source)
