"""Macros: elements that stand for bodies and other elements. Finding them, and making what they stand for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from xsim.io.mjcf.document import Document
from xsim.io.mjcf.files import locate_asset
from xsim.io.mjcf.nodes import Node, scope
from xsim.io.reader import Element, read_bytes

__all__ = ["NO_DEFAULTS", "Macro", "Maker", "expand", "integers", "plugin_of_bodies", "read_asset"]

KILOBYTE = 1024  # of a file counts as an element: a few lines of a model can name a large file many times
# A macro is replaced by bodies; the other elements go, by section, after those of the file, other bodies into the world.
Macro = Callable[[Document, Element], tuple[list[Node], dict[str, list[Node]]]]
NO_DEFAULTS = {"class": "composite:"}  # an empty class, for elements without defaults


class Maker:
    """Makes elements that carry the file and line of a macro."""

    def __init__(self, macro: Element):
        self.file, self.line = macro.file, macro.line

    def __call__(self, tag: str, children: Iterable[Node] = (), /, **attributes) -> Node:
        """An element; values are texts, numbers, truth values or sequences of numbers, None leaves the attribute out."""
        texts = {name: _text(value) for name, value in attributes.items() if value is not None}
        return Node(tag, texts, self.file, self.line, children)


def _text(value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return " ".join(repr(x) for x in np.ravel(value).tolist())


def expand(document: Document, macros: dict[str, Macro]) -> None:
    """Replace every element with one of these tags by what it stands for. Raises ParseError."""
    root = document.root._node
    nodes = [node for section in root.children if section.tag == "worldbody" for node in section.walk() if node.tag in macros]
    for node in nodes:
        if any({"scale", "massscale"}.intersection(n.attrib) for n in node.iterancestors() if n.tag == "frame"):
            raise Element(node, node.file).error("found in a frame with a scale, which is not simulated; allowed: elsewhere")
        document.classes.add(NO_DEFAULTS["class"])
        with np.errstate(all="ignore"):  # what overflows is refused where the made elements are read
            bodies, sections = macros[node.tag](document, Element(node, node.file))
        if node.parent is not None:
            _place(node, bodies, sections.pop("worldbody", []))
        for name, elements in sections.items():
            if elements:
                root.append(Node(name, {}, node.file, node.sourceline, elements))


def _place(node: Node, bodies: list[Node], in_world: list[Node]) -> None:
    """Put bodies in the place of a node, and others into the world after it, or after the outermost body around it."""
    assert node.parent is not None
    (top,) = [n for n in (node, *node.iterancestors()) if n.parent is not None and n.parent.tag == "worldbody"]
    if top is node:
        bodies = [*bodies, *in_world]
    else:
        assert top.parent is not None
        top.parent.replace(top, [top, *in_world])
    node.parent.replace(node, bodies)


def read_asset(document: Document, e: Element) -> tuple[bytes, Path]:
    """The file of a mesh or skin, below the folder of meshes: its contents and its path. Raises ParseError."""
    path = locate_asset(e, "file", scope(e).mesh_dir)
    data = read_bytes(path)
    document.budget.spend(e, nodes=len(data) // KILOBYTE)
    return data, path


def integers(e: Element, name: str, count: int | tuple[int, ...] | None = None, default=None) -> Any:
    """Integers of 32 bits (None without attribute and default). Raises ParseError for other numbers."""
    values = e.floats(name, count, default)
    if values is None:
        return None
    if (values % 1).any() or (np.abs(values) >= 2**31).any():
        raise e.error(f"found {(e.raw(name) or '').strip()[:200]!r}; allowed: integers of 32 bits", name)
    return values.astype(int)


def plugin_of_bodies(document: Document, e: Element, name: str, make: Maker) -> tuple[dict[str, str] | None, list[Node]]:
    """The attributes of the plugin of all bodies, None without, and its instance where the macro has the numbers itself.

    name: of this instance."""
    plugins = e.all("plugin")
    if len(plugins) > 1:
        raise plugins[1].error("second plugin; allowed: one")
    if not plugins:
        return None, []
    attributes = {key: plugins[0].string(key) for key in ("plugin", "instance") if plugins[0].has(key)}
    configs = [make("config", **{key: c.raw(key) for key in ("key", "value")}) for c in plugins[0].all("config")]
    declared = {p.raw("plugin") for p in document.elements("extension", "plugin")}
    if "instance" in attributes or attributes.get("plugin") not in declared:
        return attributes, []  # what is wrong is said where the bodies are read
    instance = make("instance", configs, name=name)
    return {"instance": name}, [make("plugin", [instance], **attributes)]
