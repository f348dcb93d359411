"""<replicate>: copies of its contents, each displaced from the one before, and of all elements that refer to them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from xsim.io.mjcf.nodes import Budget, Node
from xsim.io.mjcf.orientation import read_euler
from xsim.io.mjcf.references import Relations, names, rename
from xsim.io.reader import Element
from xsim.poses import IDENTITY_QUAT, Pose, rotate

__all__ = ["replicate"]


def replicate(node: Node, relations: Relations, budget: Budget, lags: bool) -> None:
    """Turn a <replicate> into a <frame> that holds one frame for each copy.

    Copy i is displaced i times: by offset in the axes of the copy before (lags: of the one before that, from copy 2 on). It is turned by
    i times each of the angles of euler, as in MuJoCo, whose manual lets it turn i times by all three.
    Its names end in sep and i, with as many digits as count has. Elements that refer to the contents, themselves or through others,
    are copied as often, after the other elements of their kind; they may refer to other elements besides. Keyframes stay as they are: they
    are about the model with all copies. Raises ParseError.
    """
    e = Element(node, node.file)
    count = e.integer("count")
    if count is None or count < 1:
        raise e.error(f"found {e.raw('count')!r}; allowed: integers > 0", "count")
    separator = e.raw("sep") or ""
    offset = e.floats("offset", 3, (0.0, 0.0, 0.0))
    replicated = {name for child in node.children for _, name in names(child)}
    followers = relations.followers(replicated)
    replicated.update(name for follower in followers for _, name in names(follower.node))
    # Before anything is made: a few characters may ask for more than any memory holds.
    budget.spend(e, nodes=count * (node.size() + sum(follower.node.size() for follower in followers)))
    for follower in followers:
        relations.remove(follower.section, follower.number)

    def finish(copy: Node, i: int, suffix: str) -> Node:
        """The copy with its new names; keyframes are those of the first one."""
        rename(copy, lambda name: name[1] + suffix if name in replicated else name[1], e, budget)
        for n in copy.walk() if i else ():
            n.keys = None
        return copy

    frames = []
    for i, pose in zip(range(count), _poses(e, offset, lags), strict=False):
        suffix = f"{separator}{i:0{len(str(count))}d}"
        frames.append(finish(_frame(node, pose), i, suffix))
        for follower in followers:
            copy = follower.node.copy()
            copy.parent = follower.node.parent
            relations.add(follower.section, finish(copy, i, suffix))
    node.tag = "frame"
    node.attrib = {name: value for name, value in node.attrib.items() if name == "childclass"}
    node.children = []
    for frame in frames:
        node.append(frame)


def _poses(e: Element, offset: np.ndarray, lags: bool) -> Iterator[Pose]:
    """The poses of the copies, without end."""
    pos, before, is_turned = np.zeros(3), IDENTITY_QUAT, e.has("euler")
    for i in itertools.count():
        quat = read_euler(e, i) if is_turned else IDENTITY_QUAT
        yield Pose(quat, pos)
        pos = pos + rotate(before if lags else quat, offset)
        before = quat


def _frame(node: Node, pose: Pose) -> Node:
    """A <frame> at a pose with a copy of the contents of a node."""
    attributes = {"pos": " ".join(map(repr, pose.pos.tolist())), "quat": " ".join(map(repr, pose.quat.tolist()))}
    return Node("frame", attributes, node.file, node.sourceline, [child.copy() for child in node.children])
