"""From a graph of links and joints to a tree of bodies, with the joints that close loops as constraints.

For every format that places its links in the world and joins any two of them.
"""

from __future__ import annotations

import heapq
from collections import Counter
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
    """A rigid body. pose: of its frame in the world, with every joint at zero. welded: fixed to the world without a joint."""

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

    spec: its type and numbers, without pos and quat. cut: it closes a loop, whatever its place in the document. coupled: its coordinate
    follows that of another joint, or another follows it.
    """

    spec: JointSpec
    parent: int
    child: int
    in_parent: Pose
    in_child: Pose
    cut: bool = False
    coupled: bool = False

    @property
    def needs_coordinate(self) -> bool:
        """Whether it has what acts on a coordinate, or cannot close a loop."""
        return self.coupled or self.spec.needs_coordinate or self.spec.type == "screw"


class Tree(NamedTuple):
    """bodies: parents first. links: the link of each body. constraints: loop joints. body_of_link: the body of each link. body_of_joint:
    of each joint, the body whose joint to its parent it is; None for a loop joint. closed: the bodies of each loop joint."""

    bodies: tuple[BodySpec, ...]
    links: tuple[Link, ...]
    constraints: tuple[ConstraintSpec, ...]
    body_of_link: tuple[int, ...]
    body_of_joint: tuple[int | None, ...]
    closed: tuple[tuple[int, int], ...]

    def coordinate(self, joint: int, axis: int) -> tuple[int, int] | None:
        """Body and index of a joint's coordinate, which the file counts as number ``axis``; None for a loop joint."""
        body = self.body_of_joint[joint]
        if body is None:
            return None
        spec = self.bodies[body].joint
        return body, len(spec.params["axes"]) - 1 - axis if spec.reversed and "axes" in spec.params else axis


def assemble(links: Sequence[Link], joints: Sequence[Joint]) -> Tree:
    """Choose the spanning tree and make bodies of the links.

    Joints come in their order, those that need a coordinate before the others. A joint is in the tree where its child has no parent yet and
    the two ends are not connected already; then those whose child has a parent but whose ends are not connected (they are reversed, or the
    tree gets another root). The rest close loops; for those of them that need a coordinate see `_with_split_links`. A connected part that
    has no joint to the world gets a free joint at its first link that is the child of no tree joint. Bodies are in the order of the links
    wherever parents may come first. Raises ParseError for a joint type that cannot be reversed.
    """
    chosen = _spanning_joints(links, joints)
    closing = sorted(set(range(len(joints))) - set(chosen))
    split = [j for j in closing if joints[j].needs_coordinate]
    graph = _with_split_links(links, joints, split)
    above = _links_above(*graph, [*chosen, *split])
    order = _parents_first([link.parent for link in above])
    body_of_link = [0] * len(graph.links)
    for body, link in enumerate(order):
        body_of_link[link] = body
    body_of_joint: list[int | None] = [None] * len(graph.joints)
    bodies = []
    for body, link in enumerate(order):
        parent, j = above[link]
        if j is not None:
            body_of_joint[j] = body
        joint = None if j is None else graph.joints[j]
        bodies.append(_body(graph.links[link], WORLD if parent == WORLD else body_of_link[parent], joint, link))

    def ends(joint: Joint) -> tuple[int, int]:
        parent, child = (WORLD if link == WORLD else body_of_link[link] for link in (joint.parent, joint.child))
        return parent, child

    loops = [joint for joint, body in zip(graph.joints, body_of_joint, strict=True) if body is None]
    return Tree(
        bodies=tuple(bodies),
        links=tuple(graph.links[link] for link in order),
        constraints=tuple(_loop(joint, ends(joint)) for joint in loops),
        body_of_link=tuple(body_of_link[: len(links)]),
        body_of_joint=tuple(body_of_joint[: len(joints)]),
        closed=tuple(ends(joints[j]) for j in closing),
    )


class _Graph(NamedTuple):
    """Links and the joints between them."""

    links: Sequence[Link]
    joints: Sequence[Joint]


def _with_split_links(links: Sequence[Link], joints: Sequence[Joint], split: Sequence[int]) -> _Graph:
    """The graph, where these joints close no loop.

    The child of each (the parent, if the child is welded to the world) is split into parts of equal mass, one of which hangs at the joint.
    A weld holds the parts together and closes the loop instead, as in Simbody's MultibodyGraphMaker."""
    sides = {j: "parent" if links[joints[j].child].welded else "child" for j in split}
    parts = Counter(getattr(joints[j], side) for j, side in sides.items())
    all_links = [_part(link, 1 + parts[i]) if i in parts else link for i, link in enumerate(links)]
    all_joints = list(joints)
    for j, side in sides.items():
        joint, link, new = joints[j], getattr(joints[j], side), len(all_links)
        all_links.append(replace(all_links[link], name=f"part:{joint.spec.name}", geoms=()))
        all_joints[j] = replace(joint, **{side: new})
        all_joints.append(Joint(JointSpec("fixed", joint.spec.name, source=joint.spec.source), link, new, Pose(), Pose()))
    return _Graph(all_links, all_joints)


def _part(link: Link, count: int) -> Link:
    """A link with its mass and inertia divided by the number of its parts."""
    inertial = link.inertial
    return replace(link, inertial=replace(inertial, mass=inertial.mass / count, inertia=inertial.inertia / count))


class _Above(NamedTuple):
    """The parent of a link in the tree and the number of the joint between them, None without a joint."""

    parent: int
    joint: int | None


def _links_above(links: Sequence[Link], joints: Sequence[Joint], chosen: Sequence[int]) -> list[_Above]:
    """The parent of each link. chosen: numbers of the joints of the tree."""
    neighbours: list[list[int]] = [[] for _ in links]
    is_child = [False] * len(links)
    at_world: list[tuple[int, int | None]] = [(i, None) for i, link in enumerate(links) if link.welded]
    for j in chosen:
        joint = joints[j]
        is_child[joint.child] = True
        if joint.parent == WORLD:
            at_world.append((joint.child, j))
        else:
            neighbours[joint.parent].append(j)
            neighbours[joint.child].append(j)
    above: list[_Above | None] = [None] * len(links)

    def add_from(root: int, joint: int | None) -> None:
        """Put a root and all links connected to it into the tree."""
        above[root] = _Above(WORLD, joint)
        stack = [root]
        while stack:
            link = stack.pop()
            for j in neighbours[link]:
                other = joints[j].child if joints[j].parent == link else joints[j].parent
                if above[other] is None:
                    above[other] = _Above(link, j)
                    stack.append(other)

    for root, joint_to_world in at_world:
        add_from(root, joint_to_world)
    for child in (False, True):  # a part whose every link is a child needs a root too
        for i in range(len(links)):
            if above[i] is None and is_child[i] == child:
                add_from(i, None)
    return [entry for entry in above if entry is not None]


class _Parts:
    """Connected parts of the graph of links and the world (disjoint sets)."""

    def __init__(self, links: Sequence[Link]):
        self._above = list(range(len(links) + 1))  # the last one: the world, which is also number -1
        for i, link in enumerate(links):
            if link.welded:
                self._above[i] = self.of(WORLD)

    def of(self, i: int) -> int:
        """The number of the part that a link is in."""
        above, i = self._above, i % len(self._above)
        while above[i] != i:
            above[i] = i = above[above[i]]
        return i

    def connect(self, joint: Joint) -> bool:
        """Join the parts of the two links; False where they are one part already."""
        parent, child = self.of(joint.parent), self.of(joint.child)
        self._above[child] = parent
        return parent != child


def _spanning_joints(links: Sequence[Link], joints: Sequence[Joint]) -> list[int]:
    """Numbers of the joints that make the tree, those that need a coordinate before the rest: of each, first those that give a link its
    parent, then those that connect two parts."""
    parts = _Parts(links)
    has_parent = [link.welded for link in links]
    chosen = []
    for needed in (True, False):
        others = []
        for j, joint in enumerate(joints):
            if joint.cut or joint.needs_coordinate != needed:
                continue
            if has_parent[joint.child]:
                others.append(j)
            elif parts.connect(joint):
                has_parent[joint.child] = True
                chosen.append(j)
        chosen += [j for j in others if parts.connect(joints[j])]
    return chosen


def _parents_first(parents: Sequence[int]) -> list[int]:
    """Numbers of the links in their order, each moved back only as far as its parent requires."""
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
        link.name, parent, (JointSpec("fixed"),), geoms=link.geoms, inertial=link.inertial, gravity=link.gravity, source=link.source,
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
        text = f'<joint name="{spec.name}">: a {spec.type} joint cannot be reversed'
        raise ParseError(spec.source.file, spec.source.line, f"{text}; allowed: {', '.join(_REVERSIBLE)}, or the other direction")
    changes: dict = {"reversed": True}
    if "axes" in spec.params:
        changes["params"] = {**spec.params, "axes": 0.0 - spec.params["axes"][::-1]}
        changes |= {name: value[::-1] for name in _PER_COORDINATE if (value := getattr(spec, name)) is not None}
    elif spec.type == "ball" and any(x is not None for x in (spec.q0, spec.v0, spec.spring_ref, spec.position_range)):
        # These are not the same in both frames; no format that joins links freely gives them.
        text = f'<joint name="{spec.name}">: a ball with a start, spring or range cannot be reversed'
        raise ParseError(spec.source.file, spec.source.line, text)
    return replace(spec, **changes)


def _loop(joint: Joint, bodies: tuple[int, int]) -> ConstraintSpec:
    frames = tuple((pose.pos, pose.quat) for pose in (joint.in_parent, joint.in_child))
    return ConstraintSpec("joint", joint.spec.name, bodies=bodies, frames=frames, joint=joint.spec, source=joint.spec.source)
