"""The document of a model: its XML tree with everything included, default classes, compiler settings and budget."""

from __future__ import annotations

from xsim.io.errors import Notes
from xsim.io.mjcf.compiler import Compiler
from xsim.io.mjcf.defaults import Classes
from xsim.io.mjcf.nodes import Budget, Node
from xsim.io.mjcf.releases import Release
from xsim.io.reader import Element

__all__ = ["Document"]


class Document:
    """One model.

    root: <mujoco> with everything included. classes: default classes. compiler: settings of the main file. release: how the release of
    MuJoCo reads files. budget: bounds of the model's size. key_layout: the elements that a keyframe's vectors are about, see `keyframes`.
    declared: the names of plugins in <extension>. plugins: name and element of their instances, by the numbers of the index.
    """

    def __init__(self, root: Node, file: str, notes: Notes, release: Release, budget: Budget):
        self.root = Element(root, file)
        self.file, self.notes, self.release, self.budget = file, notes, release, budget
        self.classes = Classes(budget)
        self.compiler = Compiler()
        self.key_layout: dict[str, list[tuple[Node, int]]] = {}
        self.declared: set[str] = set()
        self.plugins: list[tuple[str, Element]] = []

    def sections(self, tag: str) -> list[Element]:
        """All top-level elements with this tag, in order."""
        return self.root.all(tag)

    def elements(self, tag: str, *kinds: str) -> list[Element]:
        """The elements in all sections with this tag, in order. kinds: tags of the elements wanted, none: all."""
        return [e for section in self.sections(tag) for e in (section.all(*kinds) if kinds else section.children())]

    def resolve(self, e: Element, kind: str | None = None) -> Element:
        """The element with the defaults of its class."""
        return self.classes.resolve(e, kind)

    def refresh(self) -> None:
        """Make the elements of the root anew from its nodes, after these have changed."""
        known = {id(e._node): e for e in self.root._inside() if e.tag in ("compiler", "default")}
        root = self.root._node
        self.root = Element(root, self.file)
        self.root._children = [known.get(id(n)) or Element(n, self.file) for n in root.children]
