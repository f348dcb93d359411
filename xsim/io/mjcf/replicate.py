"""<replicate>: copies of what it holds, each one step further on, and of all that refers to it."""

from __future__ import annotations

import numpy as np

from xsim.io.mjcf.nodes import Budget, Node
from xsim.io.mjcf.orientation import read_quat
from xsim.io.mjcf.references import Name, Relations, names, rename
from xsim.io.reader import Element
from xsim.poses import IDENTITY_QUAT, quat_mul, rotate

__all__ = ["replicate"]


def replicate(node: Node, relations: Relations, budget: Budget, rules: str) -> None:
    """Turn a <replicate> into a <frame> that holds one frame for each copy.

    Copy i stands i steps from the replicate: offset in the axes of the copy before (rules 3.2: of the one before that, from copy 2 on),
    then euler. Its names end in sep and i, with as many digits as count has. What refers to them, itself or by way of others, is copied as
    often, after all else of its kind; it may refer to other elements besides. Keyframes stay as they are: they speak about the model with
    all copies. Raises ParseError.
    """
    e = Element(node, node.file)
    count = e.integer("count")
    if count is None or count < 1:
        raise e.error(f"found {e.raw('count')!r}; allowed: integers > 0", "count")
    separator = e.raw("sep") or ""
    offset = e.floats("offset", 3, (0.0, 0.0, 0.0))
    turn = read_quat(e)
    followers: list[tuple[str, int, Node]] = []
    found: set[Name] = {name for child in node.children for _, name in names(child)}
    for section, number, follower in relations.referring(found):
        if section != "keyframe":
            followers.append((section, number, follower))
            found.update(name for _, name in names(follower))
    # Before anything is made: a few characters may ask for more than any memory holds.
    budget.spend(e, nodes=count * (node.size() + sum(follower.size() for _, _, follower in followers)))
    for section, number, _ in followers:
        relations.remove(section, number)

    frames, pos, quat, before = [], np.zeros(3), IDENTITY_QUAT, IDENTITY_QUAT
    for i in range(count):
        suffix = f"{separator}{i:0{len(str(count))}d}"

        def namer(name: Name, suffix: str = suffix) -> str:
            return name[1] + suffix if name in found else name[1]

        pose = {"pos": " ".join(map(repr, pos.tolist())), "quat": " ".join(map(repr, quat.tolist()))}
        frame = Node("frame", pose, node.file, node.sourceline)
        for child in node.children:
            frame.append(child.copy())
        rename(frame, namer, e, budget)
        if i:
            for n in frame.walk():
                n.keys = None
        frames.append(frame)
        for section, _, follower in followers:
            twin = follower.copy()
            twin.parent = follower.parent
            rename(twin, namer, e, budget)
            if i:
                twin.keys = None
            relations.add(section, twin)
        pos = pos + rotate(before if rules == "3.2" else quat, offset)
        before = quat
        if turn is not None:
            quat = quat_mul(quat, turn)
            quat = quat / np.linalg.norm(quat)

    node.tag = "frame"
    node.attrib = {name: value for name, value in node.attrib.items() if name == "childclass"}
    node.children = []
    for frame in frames:
        node.append(frame)
