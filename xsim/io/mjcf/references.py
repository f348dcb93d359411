"""Names and references: which attribute names an element, which refers to another one, and who refers to what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from xsim.io.mjcf.nodes import Budget, Node, scope
from xsim.io.reader import Element

__all__ = ["SECTIONS", "Follower", "Name", "Relations", "join_names", "names", "references", "rename", "split_names"]

Name = tuple[str, str]  # kind and name

# Sections outside the tree of bodies whose elements refer to others; an element refers only to sections before its own, or to its own.
SECTIONS = ("extension", "asset", "deformable", "contact", "tendon", "equality", "actuator", "sensor", "keyframe", "custom")

# The kind that the tag of an element does not say.
_KINDS = {"freejoint": "joint", "flexcomp": "flex"}
_SECTION_KINDS = {"actuator": "actuator", "sensor": "sensor", "equality": "equality", "tendon": "tendon", "keyframe": "key"}

# Attributes that hold a name of another element, and its kind; or the attribute that says the kind.
_REFERENCES = {
    "joint": "joint", "joint1": "joint", "joint2": "joint", "jointinparent": "joint", "tendon": "tendon", "tendon1": "tendon",
    "tendon2": "tendon", "site": "site", "site1": "site", "site2": "site", "refsite": "site", "cranksite": "site", "slidersite": "site",
    "sidesite": "site", "body": "body", "body1": "body", "body2": "body", "subtree1": "body", "subtree2": "body", "target": "body",
    "geom": "geom", "geom1": "geom", "geom2": "geom", "camera": "camera", "actuator": "actuator", "flex": "flex", "mesh": "mesh",
    "hfield": "hfield", "material": "material", "texture": "texture", "instance": "instance", "class": "class", "childclass": "class",
}  # fmt: skip
_TYPED = {"objname": "objtype", "refname": "reftype"}
_FILES = ("mesh", "hfield", "texture")  # named after their file where they have no name
_END = "\0"  # of a name in a list that a macro makes: names may hold spaces, and no XML holds this


def names(node: Node) -> Iterator[tuple[Node, Name]]:
    """The names that a node and the elements inside give, with the elements that have them."""
    for n in node.walk():
        name = n.attrib.get("name") or _file_name(n)
        if name:
            yield n, (_kind(n), name)


def _kind(node: Node) -> str:
    section = node.parent.tag if node.parent is not None else ""
    return _SECTION_KINDS.get(section) or _KINDS.get(node.tag, node.tag)


def _file_name(node: Node) -> str:
    """The name that an asset has from its file."""
    file = node.attrib.get("file", "")
    if not file or node.tag not in _FILES or node.parent is None or node.parent.tag != "asset":
        return ""
    return file.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


def split_names(text: str) -> list[str]:
    """The names of an attribute that holds several."""
    return text.split(_END)[:-1] if _END in text else text.split()


def join_names(names: Iterable[str]) -> str:
    """An attribute that holds these names, whatever is in them."""
    return "".join(name + _END for name in names)


def _listed(node: Node, attribute: str) -> bool:
    return node.tag == "flex" and attribute == "body"


def references(node: Node) -> Iterator[tuple[Node, str, Name]]:
    """What a node and the elements inside refer to: element, attribute, kind and name. Default classes are not among them."""
    for n in node.walk():
        for attribute, value in n.attrib.items():
            kind = _REFERENCES.get(attribute)
            if kind is None and attribute in _TYPED:
                kind = n.attrib.get(_TYPED[attribute], "")
                kind = "body" if kind == "xbody" else kind
            if not value or kind is None or kind == "class":
                continue
            for word in split_names(value) if _listed(n, attribute) else [value]:
                yield n, attribute, (kind, word)


def rename(node: Node, namer: Callable[[Name], str], e: Element, budget: Budget) -> None:
    """Give names and references (classes too) of a node and the elements inside new names, because of an element.

    namer: kind and name -> name.
    """
    values: dict[tuple[int, str], tuple[Node, list[str]]] = {}
    used = [(n, "name", name) for n, name in names(node)]
    used += [(n, a, ("class", n.attrib[a])) for n in node.walk() for a in ("class", "childclass") if a in n.attrib]
    used += references(node)
    for n, attribute, (kind, name) in used:
        new = namer((kind, name))
        budget.spend(e, characters=len(new) if new != name else 0)
        values.setdefault((id(n), attribute), (n, []))[1].append(new)
    for (_, attribute), (n, words) in values.items():
        n.attrib[attribute] = join_names(words) if _listed(n, attribute) else words[0]


class Follower(NamedTuple):
    """An element outside the tree of bodies that refers to another one."""

    section: str
    number: int
    node: Node


class Relations:
    """The elements of a model outside its tree of bodies, by section, in order; and which of them refer to a name.

    They leave the tree on the way in, and `write` puts them back: one section of each kind, every element with its compiler settings.
    """

    def __init__(self, root: Node):
        self._root = root
        self._sections = {tag: Node(tag, {}, root.file, root.sourceline) for tag in SECTIONS}
        self._sections |= {n.tag: n for n in reversed(root.children) if n.tag in SECTIONS}
        self._elements: dict[str, dict[int, Node]] = {tag: {} for tag in SECTIONS}  # by number, in order
        self._referring: dict[Name, dict[int, tuple[str, Node]]] = {}
        self._next = 0
        for section in root.children:
            if section.tag in SECTIONS:
                for node in section.children:
                    node.compiler = scope(Element(node, node.file))
                    self.add(section.tag, node)

    def add(self, section: str, node: Node) -> None:
        number = self._next
        self._next += 1
        node.parent = self._sections[section]
        self._elements[section][number] = node
        for _, _, name in references(node):
            self._referring.setdefault(name, {})[number] = section, node

    def remove(self, section: str, number: int) -> None:
        node = self._elements[section].pop(number)
        for _, _, name in references(node):
            self._referring[name].pop(number, None)

    def elements(self, section: str) -> list[tuple[int, Node]]:
        """Numbers and elements of a section."""
        return list(self._elements[section].items())

    def referring(self, wanted: Iterable[Name]) -> list[tuple[str, int, Node]]:
        """The elements that refer to one of the names, or to one that does: section, number, element; by section, in order."""
        reached: dict[int, tuple[str, Node]] = {}
        seen = set(wanted)
        pending = list(seen)
        while pending:
            for number, (section, node) in self._referring.get(pending.pop(), {}).items():
                if number not in reached:
                    reached[number] = section, node
                    for _, name in names(node):
                        if name not in seen:
                            seen.add(name)
                            pending.append(name)
        order = {section: i for i, section in enumerate(SECTIONS)}
        out = [(section, number, node) for number, (section, node) in reached.items()]
        return sorted(out, key=lambda x: (order[x[0]], x[1]))

    def followers(self, wanted: set[Name]) -> list[Follower]:
        """What is copied with elements of these names: all that refers to them, but keyframes, which are about the whole model."""
        return [Follower(*entry) for entry in self.referring(wanted) if entry[0] != "keyframe"]

    def write(self) -> None:
        """Put the elements back into the document."""
        sections = [n for n in self._root.children if n.tag not in SECTIONS or n is self._sections[n.tag]]
        sections += [n for tag, n in self._sections.items() if n.parent is None and self._elements[tag]]
        self._root.children = []
        for node in sections:
            self._root.append(node)
        for tag, section in self._sections.items():
            section.children = list(self._elements[tag].values())
