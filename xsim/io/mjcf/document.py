"""From files to one document: includes, sections, default classes, sub-models, replicas."""

from __future__ import annotations

import os
from pathlib import Path

from xsim.io.errors import Notes
from xsim.io.mjcf.compiler import Compiler, read_compiler
from xsim.io.mjcf.defaults import Classes
from xsim.io.mjcf.files import outermost
from xsim.io.mjcf.include import expand_includes
from xsim.io.mjcf.nodes import Budget, Node
from xsim.io.mjcf.schema import check_schema, check_tree
from xsim.io.reader import Element, parse_xml, read_bytes

__all__ = ["Document", "read_document"]


class Document:
    """One model. root: <mujoco> with everything included; classes: default classes; compiler: settings of the main file;
    rules: "3.2" or "4.0"; budget: what the model may still grow to; slots: what a keyframe's vectors are about (see `keyframes`)."""

    def __init__(self, root: Node, file: str, notes: Notes, rules: str, budget: Budget):
        self.root = Element(root, file)
        self.file, self.notes, self.rules, self.budget = file, notes, rules, budget
        self.classes = Classes(budget)
        self.compiler = Compiler()
        self.slots: dict[str, list[tuple[Node, int]]] = {}

    def sections(self, tag: str) -> list[Element]:
        """All top-level elements with this tag, in order."""
        return self.root.all(tag)

    def elements(self, tag: str, *kinds: str) -> list[Element]:
        """What stands in all sections with this tag, in order; kinds: the elements wanted, none: all."""
        return [e for section in self.sections(tag) for e in (section.all(*kinds) if kinds else section.children())]

    def resolve(self, e: Element, kind: str | None = None) -> Element:
        """The element with the defaults of its class."""
        return self.classes.resolve(e, kind)

    def refresh(self) -> None:
        """See the nodes of the root as they are now."""
        known = {id(e._node): e for e in self.root._inside() if e.tag in ("compiler", "default")}
        root = self.root._node
        self.root = Element(root, self.file)
        self.root._children = [known.get(id(n)) or Element(n, self.file) for n in root.children]


def read_document(data: bytes | str, file: str, notes: Notes, rules: str = "3.2") -> Document:
    """Read a file with everything that it includes, attaches and replicates. Raises ParseError.

    Paths start at the folder of ``file``; that of text which is no file is the working folder.
    """
    path = Path(os.path.abspath(file))
    return _Files(notes, rules, outermost(path.parent)).read(data, file, (path,))


class _Files:
    """The files of one model: that of the model itself and those attached to it, each read once. within: the folder that holds all."""

    def __init__(self, notes: Notes, rules: str, within: Path):
        self.notes, self.rules, self.within = notes, rules, within
        self.budget = Budget()
        self.documents: dict[Path, Document] = {}

    def read(self, data: bytes | str, file: str, opened: tuple[Path, ...]) -> Document:
        """A document. opened: the paths of the files that are being read, this one last."""
        from xsim.io.mjcf.expand import expand  # what it calls needs this module

        root = Node.of(parse_xml(data, file))
        start = root.compiler = Compiler(folder=opened[-1].parent, within=self.within)
        document = Document(root, file, self.notes, self.rules, self.budget)
        self.budget.spend(document.root, nodes=root.size())
        expand_includes(root, self.budget)
        check_schema(root, self.rules)
        document.compiler = root.compiler = read_compiler(document.sections("compiler"), start)
        for section in document.sections("default"):
            document.classes.read(section)
        expand(document, lambda e, path: self.attached(e, path, opened))
        document.refresh()
        document.classes.check(root)
        check_tree(root)
        return document

    def attached(self, e: Element, path: Path, opened: tuple[Path, ...]) -> Document:
        """The document of a file that an element names for attachment."""
        if path in opened:
            raise e.error(f"{path} attaches itself, maybe by way of others; allowed: no circles", "file")
        if path not in self.documents:
            self.documents[path] = self.read(read_bytes(path), str(path), (*opened, path))
        return self.documents[path]
