"""Elements that stand for others: composite, flexcomp, attach and replicate."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from xsim.io.mjcf.attach import attach, read_submodels
from xsim.io.mjcf.composite import composite
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.flexcomp import flexcomp
from xsim.io.mjcf.macros import expand as expand_macros
from xsim.io.mjcf.nodes import Node
from xsim.io.mjcf.references import Relations
from xsim.io.mjcf.replicate import replicate
from xsim.io.mjcf.self_attachment import attach_own
from xsim.io.reader import Element

__all__ = ["expand"]


def expand(document: Document, read: Callable[[Element, Path], Document]) -> None:
    """Replace all elements that stand for others, the inner ones first. read: element and file of a model to attach -> its document."""
    expand_macros(document, {"composite": composite, "flexcomp": flexcomp})
    root = document.root._node
    nodes = list(_inner_first(root))
    models = any(n.tag == "model" for section in root.children if section.tag == "asset" for n in section.children)
    if not nodes and not models:
        return
    relations = Relations(root)
    submodels = read_submodels(document, relations, read)
    for node in nodes:
        if node.tag == "attach" and "model" not in node.attrib and document.release.schema != "3.2":
            attach_own(document, node, relations)
        elif node.tag == "attach":
            attach(document, node, relations, submodels)
        else:
            replicate(node, relations, document.budget, document.release.replicate_lags)
    relations.write()


def _inner_first(root: Node) -> Iterator[Node]:
    """The attach and replicate elements in document order, those inside another one before it."""
    pending = [(n, False) for n in reversed(root.children) if n.tag == "worldbody"]
    while pending:
        node, left = pending.pop()
        if left:
            yield node
            continue
        if node.tag in ("attach", "replicate"):
            pending.append((node, True))
        pending.extend((child, False) for child in reversed(node.children))
