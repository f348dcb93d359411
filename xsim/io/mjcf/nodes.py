"""XML as a tree that can be taken apart and put together: elements of several files in one document, each with its own file, line and
compiler settings."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from xsim.io.mjcf.compiler import Compiler
from xsim.io.reader import Element

__all__ = ["MAX_CHARACTERS", "MAX_NODES", "MAX_NUMBERS", "Budget", "Node", "scope"]

MAX_NODES = 500_000  # elements of one model with everything included, attached and replicated
MAX_CHARACTERS = 30_000_000  # of the names made for them
MAX_NUMBERS = 50_000_000  # of arrays that are longer than what the file writes


class Node:
    """An element: tag, attrib, children, file, sourceline; parent, None at the root. What `Element` reads is as of lxml.

    compiler: settings of the file the element was read from (None: those of its parent). keys: what the keyframes of an attached model
    say about the element, by the mark of the keyframe (see `attach.piece`).
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
        at = next(i for i, c in enumerate(self.children) if c is child)
        self.children[at : at + 1] = by
        for node in by:
            node.parent = self

    def copy(self) -> Node:
        """A copy of the node and everything inside, without a parent."""
        copy = self._twin()
        stack: list[tuple[Node, Node]] = [(self, copy)]
        while stack:
            old, new = stack.pop()
            for child in old.children:
                twin = child._twin()
                new.append(twin)
                stack.append((child, twin))
        return copy

    def _twin(self) -> Node:
        twin = Node(self.tag, self.attrib, self.file, self.sourceline)
        twin.compiler, twin.keys = self.compiler, self.keys
        return twin

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
                twin = cls(child.tag, _attributes(child), child.file, child.line)
                new.append(twin)
                stack.append((child, twin))
        return root


def _attributes(e: Element) -> dict[str, str]:
    """Attributes as written; an empty name is none, as in MuJoCo."""
    return {key: value for key, value in e._node.attrib.items() if value or key != "name"}


class Budget:
    """What one model may grow to. Files that include, attach, replicate or name sizes can ask for more than any memory holds."""

    def __init__(self):
        self._nodes = self._characters = self._numbers = 0

    def spend(self, e: Element, nodes: int = 0, characters: int = 0, numbers: int = 0) -> None:
        """Take in elements, characters of made names, or numbers filled in, because of an element. Raises ParseError above the bounds."""
        self._nodes += nodes
        self._characters += characters
        self._numbers += numbers
        if self._nodes > MAX_NODES:
            raise e.error(f"the model grows to {self._nodes} elements; allowed: {MAX_NODES}")
        if self._characters > MAX_CHARACTERS:
            raise e.error(f"the names of the model grow to {self._characters} characters; allowed: {MAX_CHARACTERS}")
        if self._numbers > MAX_NUMBERS:
            raise e.error(f"the arrays of the model grow to {self._numbers} numbers; allowed: {MAX_NUMBERS}")


def scope(element: Element) -> Compiler:
    """The compiler settings that hold for an element: those of the file it stands in."""
    node = element._node
    while node.compiler is None:
        node = node.parent
    return node.compiler
