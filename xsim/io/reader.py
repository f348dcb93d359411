"""Typed, untrusting access to XML: every getter checks, knows its line, and marks what was read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from lxml import etree

from xsim.io.errors import Notes, ParseError, allowed
from xsim.io.files import file_kind, unpacked_size
from xsim.io.xml_slips import repaired
from xsim.limits import limits
from xsim.spec import Source

MAX_DEPTH = 1000
MAX_ATTRIBUTES = 1000  # of one element: libxml2 looks for an attribute among all of them
MAX_TAGS = 4_000_000  # start and end tags: bounds the memory of the tree, which is far larger than the text

# What may stand before the root element; a document type declaration can only follow it.
_PROLOG = re.compile(rb"(?:\xef\xbb\xbf)?(?:\s+|<\?.*?\?>|<!--.*?-->)*", re.DOTALL)


def read_bytes(path) -> bytes:
    """Contents of a regular file. Raises ParseError where it cannot be read, or has or unpacks to as many bytes as `Limits` allows."""
    file, most = str(path), limits().bytes
    try:
        kind = file_kind(Path(path))
        data = _first_bytes(Path(path)) if kind == "file" else b""
        size = unpacked_size(data, most)
    except OSError as error:
        raise ParseError(file, None, f"cannot be read: {error.strerror or error}") from None
    except TypeError:
        raise ParseError(file, None, f"found {path!r}; allowed: the path of a file") from None
    except ValueError as error:  # a name that no file can have, a broken archive
        raise ParseError(file, None, f"cannot be read: {error}") from None
    if kind != "file":  # a pipe waits for its writer, a device may have no end
        raise ParseError(file, None, f"is a {kind}; allowed: regular files")
    if len(data) >= most:
        size = max(len(data), Path(path).stat().st_size)
        raise ParseError(file, None, f"the file has {size} bytes; allowed: fewer than {most} (limits: bytes)")
    if size >= most:
        raise ParseError(file, None, f"the archive unpacks to {most} bytes or more; allowed: fewer (limits: bytes)")
    return data


def _first_bytes(path: Path) -> bytes:
    """Contents of a file, no more bytes than `Limits` allows."""
    with path.open("rb") as stream:
        return stream.read(limits().bytes)


def parse_xml(data: bytes | str, file: str, notes: Notes | None = None) -> Element:
    """Root element of an XML document. notes: they get the slips of `xml_slips`, which are refused without them.

    No entity is expanded, no DTD is read, nothing is fetched. Raises ParseError for a document type declaration, for a document of more
    bytes than `Limits` allows or of more than MAX_TAGS tags, for one nested deeper than MAX_DEPTH, and for an element with more than
    MAX_ATTRIBUTES.
    """
    encoding = None
    if isinstance(data, str):
        encoding = "utf-8"  # whatever the declaration says
        try:
            data = data.encode(encoding)
        except UnicodeEncodeError as error:
            raise ParseError(file, None, f"not Unicode text: {error.reason}") from None
    if len(data) >= limits().bytes:
        raise ParseError(file, None, f"the document has {len(data)} bytes; allowed: fewer than {limits().bytes} (limits: bytes)")
    if data.count(b"<") > MAX_TAGS:
        raise ParseError(file, None, f"the document has {data.count(b'<')} tags; allowed: {MAX_TAGS}")
    start = _PROLOG.match(data)
    if start and data[start.end() : start.end() + 9].upper() == b"<!DOCTYPE":
        raise ParseError(file, data.count(b"\n", 0, start.end()) + 1, "<!DOCTYPE>: document type declarations and entities are not allowed")
    root = _root(data, encoding, file, notes)
    if root.getroottree().docinfo.doctype:
        raise ParseError(file, 1, "<!DOCTYPE>: document type declarations and entities are not allowed")
    depth = 0
    for event, node in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > MAX_DEPTH:
            raise ParseError(file, node.sourceline, f"<{node.tag}>: nested deeper than {MAX_DEPTH} elements")
        if event == "start" and len(node.attrib) > MAX_ATTRIBUTES:
            raise ParseError(file, node.sourceline, f"<{node.tag}>: {len(node.attrib)} attributes; allowed: {MAX_ATTRIBUTES}")
    return Element(root, file)


def _root(data: bytes, encoding: str | None, file: str, notes: Notes | None) -> etree._Element:
    """The root node of a document, its slips repaired where it cannot be read otherwise. Raises ParseError."""
    try:
        return _strict_root(data, encoding, file)
    except ParseError:
        if notes is None or notes.strict:
            raise
        text, slips = repaired(data)
        if not slips:
            raise
    root = _strict_root(text, encoding, file)
    for slip in slips:
        notes.assumed(ParseError(file, slip.line, slip.text), slip.meaning)
    return root


def _strict_root(data: bytes, encoding: str | None, file: str) -> etree._Element:
    """The root node of a well-formed document, whose prefixes may be undeclared. Raises ParseError."""
    # huge_tree lifts libxml2's depth of 256, which a long chain of bodies may pass; the bounds of `parse_xml` take its place.
    safe = {"resolve_entities": False, "no_network": True, "load_dtd": False, "dtd_validation": False}
    parser = etree.XMLParser(encoding=encoding, huge_tree=True, **safe)
    try:
        return etree.fromstring(data, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        # A prefix nobody declared (<drake:joint>) is no fault of the document's form: such elements belong to some tool.
        if any(not e.type_name.startswith("NS_ERR") for e in parser.error_log) or not len(parser.error_log):
            raise ParseError(file, line, f"not well-formed XML: {error}") from None
        return etree.fromstring(data, etree.XMLParser(encoding=encoding, huge_tree=True, recover=True, **safe))


class Element:
    """An XML element: typed getters that raise ParseError with file, line, element and attribute, and mark what was read.

    ``defaults``: an element whose attributes stand in where this one has none.
    """

    def __init__(self, node, file: str, defaults: Element | None = None):
        self._node, self.file, self._defaults = node, getattr(node, "file", file), defaults
        self._read: set[str | None] = set()
        self._children: list[Element] | None = None
        self._seen = self._skipped = False

    @property
    def tag(self) -> str:
        return self._node.tag

    @property
    def line(self) -> int:
        return self._node.sourceline

    @property
    def source(self) -> Source:
        return Source(self.file, self.line)

    @property
    def attributes(self) -> tuple[str, ...]:
        return tuple(self._node.attrib)

    def with_defaults(self, defaults: Element | None) -> Element:
        """The same element with defaults: what is read through it counts as read here."""
        element = Element(self._node, self.file, defaults)
        element._read, element._children = self._read, self._inside()
        return element

    # ---- elements inside ----

    def _inside(self) -> list[Element]:
        if self._children is None:
            self._children = []
            for child in self._node:
                if isinstance(child.tag, str):
                    self._children.append(Element(child, self.file))
                elif child.tag is etree.Entity:
                    raise ParseError(self.file, child.sourceline, f"{self}: entities are not allowed")
        return self._children

    def children(self) -> Iterator[Element]:
        """Every element inside, marked as read."""
        for child in self._inside():
            child._seen = True
            yield child

    def all(self, *tags: str) -> list[Element]:
        """The elements inside with one of these tags, in order, marked as read."""
        children = [c for c in self._inside() if c.tag in tags]
        for child in children:
            child._seen = True
        return children

    def child(self, tag: str) -> Element | None:
        """The only element with this tag, None where there is none. Raises ParseError for a second one."""
        children = self.all(tag)
        if len(children) > 1:
            raise children[1].error(f"second <{tag}> in {self} (the first is in line {children[0].line}); allowed: one")
        return children[0] if children else None

    def need(self, tag: str) -> Element:
        """The only element with this tag; required."""
        child = self.child(tag)
        if child is None:
            raise self.error(f"<{tag}> is missing")
        return child

    def skip(self) -> None:
        """Mark the element and everything inside as read: known to have no effect."""
        self._seen = self._skipped = True

    def report_unread(self, notes: Notes) -> None:
        """Add every element and attribute inside that nobody asked for to the notes (``strict`` makes that an error)."""
        stack: list[Element] = [self]
        while stack:
            element = stack.pop()
            if element._skipped:
                continue
            for attribute in element.unread():
                notes.unsupported(element.line, f"{element}: attribute {attribute!r} is not read", element.file)
            for child in element._inside():
                if child._seen:
                    stack.append(child)
                else:
                    notes.unsupported(child.line, f"{child} in {element}: the element is not read", element.file)

    def text(self) -> str:
        """Character data directly inside this element."""
        return "".join([self._node.text or "", *(child.tail or "" for child in self._node)])

    def unread(self) -> list[str]:
        """Attributes nobody asked for."""
        return [a for a in self._node.attrib if a not in self._read]

    def _around(self) -> str:
        """The nearest named element around an unnamed one, for messages."""
        if "name" in self._node.attrib:
            return ""
        named = next((a for a in self._node.iterancestors() if "name" in a.attrib), None)
        return "" if named is None else f" in {Element(named, self.file)}"

    def __str__(self) -> str:
        for key in ("name", "type"):
            if key in self._node.attrib:
                return f'<{self.tag} {key}="{self._node.attrib[key]}">'
        return f"<{self.tag}>"

    def error(self, text: str, attribute: str | None = None) -> ParseError:
        """An error about this element, or about one of its attributes. An element without a name is called by the one around it."""
        line = self.line
        if attribute is not None and attribute not in self._node.attrib and self._defaults is not None:
            if attribute in self._defaults._node.attrib:
                text += f" (from the defaults in line {self._defaults.line})"
        where = f"{self}{self._around()}: {attribute}" if attribute else f"{self}{self._around()}"
        return ParseError(self.file, line, f"{where}: {text}")

    # ---- values: of an attribute, or (name None) of the text inside ----

    def has(self, name: str | None) -> bool:
        return self.raw(name) is not None

    def is_explicit(self, name: str) -> bool:
        """Whether the element has the attribute itself, not only in its defaults."""
        return name in self._node.attrib

    def raw(self, name: str | None) -> str | None:
        self._read.add(name)
        if name is None:
            return self.text()
        value = self._node.attrib.get(name)
        return self._defaults.raw(name) if value is None and self._defaults is not None else value

    def string(self, name: str | None, default: str | None = None) -> str:
        """A non-empty string without the white space around it; required where there is no default."""
        value = self.raw(name)
        if value is None:
            if default is None:
                raise self.error(f"attribute {name!r} is missing")
            return default
        if not value.strip():
            raise self.error("is empty", name)
        return value.strip() if name is None else value

    def choice(self, name: str | None, names: Iterable[str], default: str | None = None) -> str:
        value = self.string(name, default)
        names = list(names)
        if value not in names:
            raise self.error(f"unknown value {value!r}; {allowed(value, names)}", name)
        return value

    def boolean(self, name: str | None, default: bool | None = None) -> bool:
        """0, 1, true or false in any letter case."""
        value = self.raw(name)
        if value is None:
            if default is None:
                raise self.error(f"attribute {name!r} is missing")
            return default
        word = value.strip().lower()
        if word not in ("0", "1", "true", "false"):
            raise self.error(f"{value.strip()!r} is no truth value; allowed: 0, 1, true, false", name)
        return word in ("1", "true")

    def floats(self, name: str | None, count: int | tuple[int, ...] | None = None, default=None, *, finite: bool = True) -> Any:
        """Array of numbers split at white space (None without attribute and default). count: how many are allowed (None: any).

        finite: refuse infinities; NaN is always refused.
        """
        value = self.raw(name)
        if value is None:
            return None if default is None else np.asarray(default, float)
        numbers = []
        for word in value.split():
            try:
                number = float(word)
            except ValueError:
                raise self.error(f"{word!r} is not a number in {value.strip()[:200]!r}", name) from None
            if np.isnan(number) or finite and not np.isfinite(number) or "_" in word:
                raise self.error(f"{word!r} is not a finite number", name)
            numbers.append(number)
        counts = (count,) if isinstance(count, int) else count
        if counts is not None and len(numbers) not in counts:
            wanted = " or ".join(map(str, counts))
            raise self.error(f"found {len(numbers)} numbers ({value.strip()[:200]!r}); allowed: {wanted}", name)
        return np.array(numbers)

    def number(
        self, name: str | None, default: float | None = None, *, positive=False, nonnegative=False, finite: bool = True
    ) -> float:
        value = self.floats(name, 1, finite=finite)
        if value is None:
            if default is None:
                raise self.error(f"attribute {name!r} is missing")
            return default
        x = float(value[0])
        if positive and not x > 0 or nonnegative and x < 0:
            raise self.error(f"found {x:g}; allowed: numbers {'>' if positive else '>='} 0", name)
        return x

    def integer(self, name: str | None) -> int | None:
        value = self.raw(name)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            raise self.error(f"{value!r} is not an integer", name) from None

    def only(self, attributes: Iterable[str]) -> None:
        """Refuse attributes that are not listed."""
        names = list(attributes)
        for a in self._node.attrib:
            if a not in names:
                raise self.error(f"unknown attribute {a!r}; {allowed(a, names) if names else 'none is allowed'}")

    def no_text(self) -> None:
        text = self.text().strip()
        if text:
            raise self.error(f"unexpected text {text[:40]!r}; allowed: elements only")
