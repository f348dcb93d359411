"""Open a model: its file and those that it includes and attaches become one document without macros."""

from __future__ import annotations

import os
from pathlib import Path

from xsim.io.errors import Notes
from xsim.io.mjcf.compiler import Compiler, read_compiler
from xsim.io.mjcf.document import Document
from xsim.io.mjcf.expand import expand
from xsim.io.mjcf.files import outermost
from xsim.io.mjcf.include import expand_includes
from xsim.io.mjcf.nodes import Budget, Node
from xsim.io.mjcf.releases import RELEASES, Release
from xsim.io.mjcf.schema import check_schema, check_tree
from xsim.io.reader import Element, parse_xml, read_bytes

__all__ = ["read_document"]


def read_document(data: bytes | str, file: str, notes: Notes, rules: str = "3.2") -> Document:
    """Read a file with everything that it includes, attaches and replicates. Raises ParseError.

    rules: the release, a name in `RELEASES`. Paths start at the folder of ``file``; that of text which is no file is the working folder.
    """
    path = Path(os.path.abspath(file))
    return _Loader(notes, RELEASES[rules], outermost(path.parent)).read(data, file, (path,))


class _Loader:
    """Reads the file of a model and those attached to it, each once. within: the folder that all files must be in."""

    def __init__(self, notes: Notes, release: Release, within: Path):
        self.notes, self.release, self.within = notes, release, within
        self.budget = Budget()
        self.documents: dict[Path, Document] = {}

    def read(self, data: bytes | str, file: str, opened: tuple[Path, ...]) -> Document:
        """A document. opened: the paths of the files that are being read, this one last."""
        root = Node.of(parse_xml(data, file, self.notes))
        start = root.compiler = Compiler(file=file, folder=opened[-1].parent, within=self.within)
        document = Document(root, file, self.notes, self.release, self.budget)
        self.budget.spend(document.root, nodes=root.size())
        expand_includes(root, self.budget, self.notes)
        check_schema(root, self.release)
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
