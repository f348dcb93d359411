"""Default classes: attributes of elements that do not give them."""

from __future__ import annotations

from collections.abc import Callable

from xsim.io.errors import ParseError, allowed
from xsim.io.mjcf.nodes import Budget, Node, scope
from xsim.io.reader import Element

__all__ = ["MAIN", "Classes", "class_name"]

MAIN = "main"


class Classes:
    """All default classes. Each holds the default elements that reach it, in the order in which they apply (the nested class starts as
    a copy of its parent as it is at that moment)."""

    def __init__(self, budget: Budget):
        self._budget = budget
        self._classes: dict[str, list[Node]] = {MAIN: []}
        self._merged: dict[tuple[str, str], Element] = {}

    def add(self, name: str) -> None:
        """Make an empty class, which does not inherit from main."""
        self._classes.setdefault(name, [])

    def read(self, section: Element) -> None:
        """Read a top-level <default>."""
        self._merged.clear()
        if section.raw("class") not in (None, MAIN):
            raise section.error(f"found {section.raw('class')!r}; allowed: {MAIN!r} for the class at the top", "class")
        pending = [(section, MAIN, self._classes[MAIN])]
        while pending:
            e, name, nodes = pending.pop()
            nested = []
            for child in e.children():
                if child.tag != "default":
                    nodes.append(child._node)
                    continue
                nested.append((child, child.string("class")))
            self._classes[name] = nodes
            for child, inner in nested:
                if inner in self._classes:
                    raise child.error(f"a default class {inner!r} exists already; allowed: another name", "class")
                self._budget.spend(child, nodes=len(nodes))
                self._classes[inner] = []
                pending.append((child, inner, list(nodes)))

    def adopt(self, other: Classes, prefix: str, change: Callable[[Node], None], e: Element) -> dict[str, str]:
        """Add the classes of a model that an element attaches. change: is called with a copy of each of its default elements.

        Returns the new name of each: prefixed, and numbered where that name is taken.
        """
        self._budget.spend(e, nodes=sum(map(len, other._classes.values())))
        self._merged.clear()
        sections: dict[int, Node] = {}
        copies: dict[int, Node] = {}
        names: dict[str, str] = {}
        for name, nodes in other._classes.items():
            for node in nodes:
                if id(node) not in copies:
                    copies[id(node)] = copy = node.copy()
                    copy.parent = sections.setdefault(id(node.parent), Node("default", {}, node.file, node.sourceline))
                    copy.compiler = scope(Element(node, node.file))
                    change(copy)
            names[name] = prefix + name if prefix + name not in self._classes else f"{prefix}{name}:{len(self._classes)}"
            self._classes[names[name]] = [copies[id(node)] for node in nodes]
        return names

    def check(self, root: Node) -> None:
        """Refuse unknown classes anywhere in a document. Raises ParseError."""
        pending = [child for child in root.children if child.tag != "default"]
        while pending:
            node = pending.pop()
            for attribute in ("class", "childclass"):
                if node.attrib.get(attribute, MAIN) not in self._classes:
                    raise self._unknown(Element(node, node.file), attribute)
            pending.extend(node.children)

    def _unknown(self, e: Element, attribute: str) -> ParseError:
        name = e._node.attrib[attribute]
        return e.error(f"unknown default class {name!r}; {allowed(name, list(self._classes)[:50])}", attribute)

    def name(self, e: Element) -> str:
        """The class of an element: that of its attribute, else the nearest childclass of the bodies and frames around it, else main."""
        e.raw("class")
        node, attribute = _class_of(e._node)
        name = node.attrib[attribute] if attribute else MAIN
        if name not in self._classes:
            raise self._unknown(Element(node, node.file), attribute)
        return name

    def resolve(self, e: Element, kind: str | None = None) -> Element:
        """The element with the defaults of its class for elements of its kind (None: its tag)."""
        name, kind = self.name(e), kind or e.tag
        key = name, kind
        if key not in self._merged:
            merged = Node(kind, {}, e.file, 0)
            for node in self._classes[name]:
                if node.tag == kind:
                    merged.attrib.update(node.attrib)
                    merged.file, merged.sourceline = node.file, node.sourceline
            self._merged[key] = Element(merged, merged.file)
        return e.with_defaults(self._merged[key])

    def chain(self, e: Element, *kinds: str) -> list[Element]:
        """The default elements of these kinds that reach the element, in the order in which they apply."""
        return [Element(node, node.file) for node in self._classes[self.name(e)] if node.tag in kinds]


def class_name(node: Node) -> str:
    """The class of a node: that of its attribute, else the nearest childclass of the nodes around it, else main."""
    node, attribute = _class_of(node)
    return node.attrib[attribute] if attribute else MAIN


def _class_of(node: Node) -> tuple[Node, str]:
    """The node that gives the class of a node, and the attribute; "" where none does."""
    if "class" in node.attrib:
        return node, "class"
    return next(((n, "childclass") for n in node.iterancestors() if "childclass" in n.attrib), (node, ""))
