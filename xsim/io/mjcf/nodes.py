"""XML as a tree that can be changed: elements of several files in one document, each with its file, line and compiler settings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from xsim.io.budget import MAX_CHARACTERS, MAX_NUMBERS, Budget
from xsim.io.mjcf.compiler import Compiler
from xsim.io.reader import Element

__all__ = ["MAX_CHARACTERS", "MAX_NUMBERS", "Budget", "Node", "scope"]

class Node:
    """An element: tag, attrib, children, file, sourceline; parent, None at the root. `Element` reads it as it reads lxml's.

    compiler: settings of the file that the element was read from (None: those of its parent). keys: the element's numbers in the
    keyframes of an attached model, by keyframe and attribute (see `keyframes`).
    """

    __slots__ = ("tag", "attrib", "children", "file", "sourceline", "parent", "compiler", "keys")
    text = tail = None

    def __init__(self, tag: str, attrib: dict[str, str], file: str, sourceline: int, children=()):
        self.tag, self.attrib, self.file, self.sourceline = tag, dict(attrib), file, sourceline
        self.parent: Node | None = None
        self.compiler: Compiler | None = None
        self.keys: dict[Hashable, dict[str, str]] | None = None
        self.children: list[Node] = []
        for child in children:
            self.append(child)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.children)

    def iterancestors(self) -> Iterator[Node]:
        """Parent, its parent, ..."""
        node = self.parent
        while node is not None:
            yield node
            node = node.parent

    def walk(self) -> Iterator[Node]:
        """The node and everything inside, in document order."""
        stack: list[Node] = [self]
        while stack:
            node = stack.pop()
            yield node
            stack.extend(reversed(node.children))

    def append(self, child: Node) -> None:
        child.parent = self
        self.children.append(child)

    def replace(self, child: Node, by: list[Node]) -> None:
        """Put other nodes in the place of a child."""
        index = next(i for i, c in enumerate(self.children) if c is child)
        self.children[index : index + 1] = by
        for node in by:
            node.parent = self

    def become(self, other: Node) -> None:
        """Take the place of another node, with its children, in this one's parent."""
        self.tag, self.attrib, self.file, self.sourceline = other.tag, other.attrib, other.file, other.sourceline
        self.compiler, self.keys, self.children = other.compiler, other.keys, []
        for child in other.children:
            self.append(child)

    def copy(self) -> Node:
        """A copy of the node and everything inside, without a parent."""
        copy = self._copy_without_children()
        stack: list[tuple[Node, Node]] = [(self, copy)]
        while stack:
            old, new = stack.pop()
            for child in old.children:
                inner = child._copy_without_children()
                new.append(inner)
                stack.append((child, inner))
        return copy

    def _copy_without_children(self) -> Node:
        copy = Node(self.tag, self.attrib, self.file, self.sourceline)
        copy.compiler, copy.keys = self.compiler, self.keys
        return copy

    def size(self) -> int:
        """Number of elements: this one and everything inside."""
        return sum(1 for _ in self.walk())

    @classmethod
    def of(cls, element: Element) -> Node:
        """The node of an element of a parsed file (everything inside it included); text is left out."""
        root = cls(element.tag, _attributes(element), element.file, element.line)
        stack = [(element, root)]
        while stack:
            old, new = stack.pop()
            for child in old.children():
                node = cls(child.tag, _attributes(child), child.file, child.line)
                new.append(node)
                stack.append((child, node))
        return root


def _attributes(e: Element) -> dict[str, str]:
    """Attributes as written; an empty name is none, as in MuJoCo."""
    return {key: value for key, value in e._node.attrib.items() if value or key != "name"}


def scope(element: Element) -> Compiler:
    """The compiler settings of an element: those of its file."""
    node = element._node
    while node.compiler is None:
        node = node.parent
    return node.compiler
