"""Keyframes of attached models: each joint, mocap body and actuator carries its numbers, since only a part of the model is attached."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.references import split_names
from xsim.io.mjcf.rods import twist_names
from xsim.io.mjcf.shortcuts import read_general
from xsim.io.reader import Element

__all__ = ["assign_keys", "key_length", "key_numbers"]

# Numbers of a joint in qpos and in qvel.
_JOINTS = {"free": (7, 6), "ball": (4, 3), "slide": (1, 1), "hinge": (1, 1)}


def _layout(document: Document) -> dict[str, list[tuple[Node, int]]]:
    """Elements and numbers per element of each vector of a keyframe, in order."""
    if document.key_layout:
        return document.key_layout
    joints: list[tuple[Node, tuple[int, int]]] = []
    mocap: list[Node] = []
    plastic: list[tuple[Node, int]] = []
    for body in _bodies(document.root._node):
        if body.attrib.get("mocap") == "true":
            mocap.append(body)
        for node in _inside(body, ("joint", "freejoint")):
            e = Element(node, node.file)
            kind = "free" if node.tag == "freejoint" else document.resolve(e).choice("type", _JOINTS, "hinge")
            joints.append((node, _JOINTS[kind]))
            if kind != "free" and _yields(document, document.resolve(e)):
                plastic.append((node, _JOINTS[kind][0]))
    plastic += [(e._node, 2) for e in document.elements("tendon", "spatial", "fixed") if _yields(document, document.resolve(e, "tendon"))]
    names = {node.attrib.get("name") for node, _ in joints}
    plastic += [(e._node, _width(e, names)) for e in document.elements("deformable", "flex") if document.release.schema != "3.2"]
    actuators = [(e._node, read_general(document, e).widths) for e in document.elements("actuator")]
    document.key_layout = {
        "qpos": [(node, width) for node, (width, _) in joints],
        "qvel": [(node, width) for node, (_, width) in joints],
        "mpos": [(node, 3) for node in mocap],
        "mquat": [(node, 4) for node in mocap],
        "plastic": plastic,
        "ctrl": [(node, controls) for node, (controls, _) in actuators],
        "act": [(node, activations) for node, (_, activations) in actuators],
    }
    return document.key_layout


def _width(e: Element, joints: set[str | None]) -> int:
    """How many numbers of a flex the state has, see `xsim.spec.FlexSpec`. joints: names of all joints."""
    words, name, dim = (e.raw("element") or "").split(), e.raw("name"), int(e.number("dim", 2))
    if dim > 1:
        return _of_elements(e, words, dim) if len(set(split_names(e.raw("body") or ""))) > 1 else 0
    lines = len(words) // 2
    return 7 * lines - 1 if name and not joints.isdisjoint(twist_names(name, lines)) else 0


def _of_elements(e: Element, words: list[str], dim: int) -> int:
    """How many numbers the elements that yield and the edges of triangles whose bending yields have. words: of the elements."""
    elastic = e.child("elasticity")
    if elastic is None or not elastic.number("young", 0.0):
        return 0
    given, kind = elastic.floats("yield", (1, 2), (0.0,)), elastic.string("elastic2d", "none")
    elements = [words[i : i + dim + 1] for i in range(0, len(words) - dim, dim + 1)]
    edges = {frozenset(pair) for element in elements for pair in itertools.combinations(element, 2)}
    stretches = given[0] and (dim == 3 or kind in ("stretch", "both"))
    bends = given[-1] and dim == 2 and kind in ("bend", "both")
    return (len(elements) * 3 * (dim - 1) if stretches else 0) + (len(edges) if bends else 0)


def _yields(document: Document, e: Element) -> bool:
    """Whether the spring of a joint or tendon, with its defaults, yields."""
    return document.release.schema != "3.2" and e.number("springyield", 0.0) > 0


def assign_keys(document: Document) -> None:
    """Give every joint, mocap body and actuator its numbers in the keyframes of the document. Raises ParseError for wrong lengths."""
    for number, e in enumerate(document.elements("keyframe", "key")):
        if e._node.keys is not None:
            continue
        e._node.keys = {number: {}}
        for name, entries in _layout(document).items():
            words = (e.raw(name) or "").split()
            wanted = sum(width for _, width in entries)
            if words:
                words = words[: key_length(document, e, name, len(words), wanted)]
                words += ["nan"] * (wanted - len(words))
            start = 0
            for node, width in entries if words else []:
                node.keys = node.keys or {}
                node.keys.setdefault(number, {})[name] = " ".join(words[start : start + width])
                start += width


def key_length(document: Document, e: Element, name: str, found: int, wanted: int) -> int:
    """How many of the numbers of a vector count; the rest of the wanted ones is as at the start. Raises ParseError for a wrong length.

    MuJoCo 4.0 takes a short qpos, qvel, act or ctrl number by number, mpos and mquat body by body.
    """
    if found == wanted:
        return found
    error = e.error(f"found {found} numbers in a key; allowed: {wanted}", name)
    if found > wanted or not document.release.short_keys or name == "plastic":
        raise error
    document.notes.assumed(error, "the others as at the start")
    return found - found % {"mpos": 3, "mquat": 4}.get(name, 1)


def key_numbers(document: Document, key: Element, name: str) -> np.ndarray | None:
    """A vector of a keyframe for the whole model, None where it gives none.

    Elements that are not of the keyframe's model are at rest and without control. NaN: as at the start.
    """
    if key._node.keys is None:
        value = key.floats(name)
        return None if value is None or not len(value) else value
    (identity,) = key._node.keys
    key.floats(name)
    rest = np.nan if name in ("qpos", "mpos", "mquat", "plastic") else 0.0
    out, given = [np.zeros(0)], False
    document.budget.spend(key, numbers=sum(width for _, width in _layout(document)[name]))
    for node, width in _layout(document)[name]:
        words = ((node.keys or {}).get(identity) or {}).get(name)
        out.append(np.full(width, rest) if words is None else np.array(words.split(), float))
        given = given or words is not None
    return np.concatenate(out) if given else None


def _bodies(root: Node) -> Iterator[Node]:
    """All bodies, depth first."""
    pending = [body for world in reversed(root.children) if world.tag == "worldbody" for body in reversed(_inside(world, ("body",)))]
    while pending:
        body = pending.pop()
        yield body
        pending.extend(reversed(_inside(body, ("body",))))


def _inside(node: Node, tags: tuple[str, ...]) -> list[Node]:
    """The elements with these tags directly in a body, frames seen through, in order."""
    out: list[Node] = []
    pending = list(reversed(node.children))
    while pending:
        child = pending.pop()
        if child.tag == "frame":
            pending.extend(reversed(child.children))
        elif child.tag in tags:
            out.append(child)
    return out
