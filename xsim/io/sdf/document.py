"""Documents: versions, what is dropped before reading, files that a document names, and values of single elements."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from lxml import etree

from xsim.io.budget import Budget
from xsim.io.errors import Notes, allowed
from xsim.io.files import is_dir, is_file
from xsim.io.reader import Element, parse_xml, read_bytes
from xsim.limits import limits
from xsim.poses import Pose, quat_rpy

__all__ = ["Document", "Library", "boolean", "flags", "ignore", "load", "number", "read_pose"]

VERSIONS = {f"1.{minor}": minor for minor in range(4, 13)}
SNIPPET = 6  # a bare <model>: its own documentation's examples still use what 1.7 removed, and nothing newer is refused in 1.6


class Document(NamedTuple):
    """A parsed file. version: the minor number of SDFormat 1.x. folder: where relative names start; None for text from nowhere.
    size: bytes. elements: how many it has."""

    root: Element
    version: int
    folder: Path | None
    size: int
    elements: int

    @property
    def models(self) -> list[Element]:
        return [self.root] if self.root.tag == "model" else self.root.all("model")


def load(data: bytes | str, file: str, notes: Notes) -> Document:
    """A document with its version checked. Raises ParseError."""
    root = parse_xml(data, file, notes)
    _drop_foreign(root)
    folder = Path(file).parent if is_file(Path(file)) else None
    extent = len(data), sum(1 for _ in root._node.iter(etree.Element))
    if root.tag == "model":
        notes.suspicious(root.line, f"{root}: no <sdf version=...> around it; read as version 1.{SNIPPET}", file)
        return Document(root, SNIPPET, folder, *extent)
    if root.tag != "sdf":
        raise root.error("the root element must be <sdf>")
    version = root.string("version").strip()
    if version not in VERSIONS:
        raise root.error(f"unknown version {version!r}; {allowed(version, VERSIONS)}", "version")
    return Document(root, VERSIONS[version], folder, *extent)


def _drop_foreign(root: Element) -> None:
    """Remove what carries a namespace prefix and what plugins hold: other tools' data, of which nothing may be taken for a link.

    The parameters that an include passes to the included file are kept, to be reported: they would change that file.
    """

    def foreign(name) -> bool:
        return isinstance(name, str) and (":" in name or name.startswith("{")) and not name.endswith((":params", "}params"))

    stack = [root._node]
    while stack:
        node = stack.pop()
        for attribute in [a for a in node.attrib if foreign(a)]:
            del node.attrib[attribute]
        for child in list(node):
            if foreign(child.tag):
                before = child.getprevious()
                tail = child.tail or ""
                node.remove(child)
                if before is None:
                    node.text = (node.text or "") + tail
                else:
                    before.tail = (before.tail or "") + tail
            elif child.tag == "plugin":
                del child[:]
            else:
                stack.append(child)


def ignore(elements: Iterable[Element]) -> None:
    """Mark elements, and all in them, as known to have no effect."""
    for element in elements:
        element.skip()


# ---- values ------------------------------------------------------------------------------------------------------------------


def number(element: Element, tag: str, default: float | None = None, **rules) -> float:
    """The number in a child element; required where there is no default. rules: those of `Element.number`."""
    child = element.child(tag) if default is not None else element.need(tag)
    return child.number(None, **rules) if child is not None else float(default or 0.0)


def boolean(element: Element, tag: str, default: bool) -> bool:
    found = element.child(tag)
    return default if found is None else found.boolean(None)


def flags(element: Element, table: dict[str, str], notes: Notes) -> None:
    """Switches that xsim does not have: said when they are on. table: element -> what does not happen."""
    for tag, text in table.items():
        if boolean(element, tag, False):
            notes.unsupported(element.line, f"{element}: {tag}: {text}", element.file)


def read_pose(element: Element, version: int) -> tuple[str, Pose]:
    """The <pose> of an element: the frame it is relative to ("": the element's default frame) and X of the element in it.

    Six numbers x y z roll pitch yaw (R = Rz Ry Rx) or seven, x y z and a quaternion with its scalar last.
    """
    pose = element.child("pose")
    if pose is None:
        return "", Pose()
    relative = (pose.raw("relative_to") or "").strip()
    old = (pose.raw("frame") or "").strip() if version <= 6 else ""  # the attribute's name before 1.7
    if relative and old and relative != old:
        raise pose.error(f"{old!r} differs from relative_to {relative!r}; allowed: one of them", "frame")
    as_quat = pose.choice("rotation_format", ("euler_rpy", "quat_xyzw"), "euler_rpy") == "quat_xyzw"
    degrees = pose.boolean("degrees", False)
    if as_quat and degrees:
        raise pose.error("a quaternion has no degrees; allowed: degrees with rotation_format euler_rpy", "degrees")
    if not pose.text().strip():
        pose.raw(None)
        return relative or old, Pose()
    x = pose.floats(None, 7 if as_quat else 6)
    if as_quat:
        largest = np.abs(x[3:]).max()
        if not largest:
            raise pose.error("the quaternion is zero; allowed: a direction")
        quat = x[[6, 3, 4, 5]] / largest
        quat = quat / np.linalg.norm(quat)
    else:
        quat = quat_rpy(*(np.deg2rad(x[3:]) if degrees else x[3:])) if x[3:].any() else np.array([1.0, 0.0, 0.0, 0.0])
    return relative or old, Pose(quat, x[:3] + 0.0)


# ---- files that a document names -----------------------------------------------------------------------------------------------

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)


class Library:
    """The files around a document. Local only: nothing is ever fetched. Every file is parsed once.

    ``model://NAME/rest`` and ``package://NAME/rest`` look for a folder NAME beside the naming file, beside its folder, beside the
    first document, then in ``paths``. ``file://`` names are absolute; others start at the naming file's folder.
    """

    def __init__(self, paths: Iterable[str | os.PathLike], first: Document, notes: Notes):
        self.paths = [Path(p) for p in paths]
        self.notes = notes
        self._first = first
        self.documents: dict[str, Document] = {}
        self.pictures: dict[str, Path | None] = {}  # by the names of the materials; None for one that is not found
        self._budget = Budget()  # of what is included, counted again each time: files that include each other must not multiply
        self._included = 0  # bytes, counted the same way

    def find(self, uri: str, document: Document) -> tuple[Path | None, str]:
        """Where a URI leads, or None and the reason."""
        match = _SCHEME.fullmatch(uri)
        scheme, rest = match.groups() if match else ("", uri)
        if scheme in ("model", "package"):
            if not rest or rest.startswith("/") or ".." in Path(rest).parts:
                return None, f"{uri!r} names no folder; allowed: {scheme}://NAME/file"
            folders = [] if document.folder is None else [document.folder, document.folder.parent]
            folders += [self._first.folder] if self._first.folder is not None else []
            candidates = [folder / rest for folder in (*folders, *self.paths)]
        elif scheme == "file":
            if not rest.startswith("/"):
                return None, f"{uri!r} is not absolute; allowed: file:///folder/file"
            candidates = [Path(rest)]
        elif scheme:
            return None, f"{uri!r} is not a local file and is never fetched; allowed: model://, package://, file://, a relative name"
        elif document.folder is None:
            return None, f"{uri!r} is relative to a file, and this document is none"
        else:
            candidates = [document.folder / rest]
        for path in candidates:
            if is_file(path) or is_dir(path):
                return path, ""
        looked = ", ".join(dict.fromkeys(str(p) for p in candidates)) or "nowhere: the option paths is empty"
        return None, f"{uri!r} is not found; looked for {looked}"

    def include(self, uri: Element, document: Document) -> tuple[str, Document]:
        """Real path and document that an include's <uri> names."""
        path, problem = self.find(uri.string(None), document)
        if path is None:
            raise uri.error(problem)
        if is_dir(path):
            path = self._of_folder(uri, path)
        key = os.path.realpath(path)
        if key not in self.documents:
            self.documents[key] = load(read_bytes(path), str(path), self.notes)
        document = self.documents[key]
        self._budget.spend(uri, nodes=document.elements)
        self._included += document.size
        if self._included > (most := limits().bytes):
            raise uri.error(f"the included files have more than {most} bytes together, with all repetitions (limits: bytes)")
        return key, document

    def _of_folder(self, uri: Element, folder: Path) -> Path:
        """The newest file that a model folder's model.config lists."""
        config = folder / "model.config"
        if not is_file(config):
            raise uri.error(f"the folder {folder} has no model.config")
        listed = parse_xml(read_bytes(config), str(config), self.notes).all("sdf")
        known = [e for e in listed if (e.raw("version") or "").strip() in VERSIONS]
        if not known:
            raise uri.error(f"{config} lists no file of a version that is read; {allowed('', VERSIONS)}")
        newest = max(known, key=lambda e: VERSIONS[e.string("version").strip()])
        path = folder / newest.string(None)
        if not is_file(path):
            raise newest.error(f"the file {path} is not there")
        return path
