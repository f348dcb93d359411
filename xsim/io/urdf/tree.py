"""The tree of links: joints and the links that they connect, in an order with parents first."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import NamedTuple

from xsim.io.errors import allowed
from xsim.io.reader import Element
from xsim.joints.types import JOINT_TYPES

__all__ = ["Joint", "JointKind", "LinkTree", "TYPES", "chain", "order_links", "read_joint_ends"]

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


class LinkTree(NamedTuple):
    """joint_above: the joint above each link but the root. order: names of the links, parents first."""

    joint_above: dict[str, Joint]
    order: list[str]


def read_joint_ends(name: str, element: Element, links: dict[str, Element]) -> Joint:
    """A joint whose two links are among these. Raises ParseError."""
    ends = []
    for role in ("parent", "child"):
        end = element.need(role)
        ends.append(end.string("link"))
        if ends[-1] not in links:
            raise end.error(f"no link is named {ends[-1]!r}; {allowed(ends[-1], list(links)[:20])}", "link")
    return Joint(element, name, element.choice("type", TYPES), *ends)


def order_links(links: dict[str, Element], joints: dict[str, Joint]) -> LinkTree:
    """The tree of the links. Raises ParseError for a link with two parents, for several roots and for a circle."""
    above = _joints_above(joints)
    roots = [name for name in links if name not in above]
    if len(roots) > 1:
        raise links[roots[1]].error(f"no joint has it as its child, nor link {roots[0]!r}: {len(roots)} roots; allowed: exactly one")
    order = _parents_first(list(links), roots, joints)
    if len(order) < len(links):
        placed = set(order)
        circle = _circle(next(n for n in links if n not in placed), {n: joint.parent for n, joint in above.items()})
        members = {above[name].name for name in circle}
        last = [joint for joint in joints.values() if joint.name in members][-1]
        raise last.element.error(f"closes a circle of links ({chain(circle)}); URDF allows a tree only")
    return LinkTree(above, order)


def _joints_above(joints: dict[str, Joint]) -> dict[str, Joint]:
    """The joint above each link that has one."""
    above: dict[str, Joint] = {}
    for joint in joints.values():
        if joint.child in above:
            other = above[joint.child]
            raise joint.element.error(
                f"link {joint.child!r} is the child of joint {other.name!r} (line {other.element.line}) already; "
                "allowed: one parent for each link, URDF has no loops"
            )
        above[joint.child] = joint
    return above


def _parents_first(names: list[str], roots: list[str], joints: dict[str, Joint]) -> list[str]:
    """The names that can be reached from the roots: of those whose parent is placed, the first in the document comes next."""
    number = {name: i for i, name in enumerate(names)}
    children: dict[str, list[str]] = {name: [] for name in names}
    for joint in joints.values():
        children[joint.parent].append(joint.child)
    order: list[str] = []
    ready = [number[name] for name in roots]
    while ready:
        name = names[heappop(ready)]
        order.append(name)
        for child in children[name]:
            heappush(ready, number[child])
    return order


def _circle(start: str, up: dict[str, str]) -> list[str]:
    """The circle in which following ``up`` ends, empty where it ends at a name that leads nowhere."""
    trail: dict[str, None] = {}
    name: str | None = start
    while name is not None and name not in trail:
        trail[name] = None
        name = up.get(name)
    names = list(trail)
    return [] if name is None else names[names.index(name) :]


def chain(circle: list[str]) -> str:
    """The names of a circle for a message: at most seven, then the first one again."""
    shown = circle if len(circle) <= 8 else [*circle[:7], "..."]
    return " from ".join([*shown, circle[0]])
