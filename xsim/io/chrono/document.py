"""Typed, untrusting access to YAML: composed without recursion and within bounds; every getter checks, knows its line, marks what was
read. Numbers are whatever text converts (``7e7`` too), names stay text, keys and enumerated words are looked up here and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import yaml

from xsim.io.errors import Notes, ParseError, allowed
from xsim.spec import Source

__all__ = ["Item", "parse_yaml"]

MAX_BYTES = 16_000_000
MAX_DEPTH = 100
MAX_NODES = 1_000_000  # with what aliases repeat
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} collections"
LARGEST = 1e50  # of a number: products of a few stay finite

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE, _FALSE = ("true", "yes", "on", "y"), ("false", "no", "off", "n")
_TAGS = {f"tag:yaml.org,2002:{name}" for name in ("str", "int", "float", "bool", "null", "seq", "map")}


@dataclass(eq=False)
class _Node:
    """A scalar (value: its text), a sequence (list of nodes) or a mapping (nodes by key). size: nodes in it, aliases counted each time.
    lines: of the keys; read: the keys that somebody asked for."""

    kind: str
    line: int
    value: str | list[_Node] | dict[str, _Node]
    plain: bool = True
    size: int = 1
    lines: dict[str, int] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    @property
    def null(self) -> bool:
        return self.kind == "text" and self.plain and self.value in _NULL

    def __str__(self) -> str:
        return repr(self.value[:80]) if isinstance(self.value, str) else f"a {self.kind}"


def parse_yaml(data: bytes | str, file: str) -> Item:
    """The mapping that a YAML document holds. Raises ParseError: for what is no YAML, several documents, duplicate keys, merge keys, and
    documents beyond MAX_BYTES, MAX_DEPTH or MAX_NODES."""
    if len(data) >= MAX_BYTES:
        raise ParseError(file, None, f"the document has {len(data)} bytes; allowed: fewer than {MAX_BYTES}")
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        text.encode("utf-8")
    except UnicodeError as error:
        raise ParseError(file, None, f"not Unicode text (UTF-8): {error.reason}") from None
    root = _compose(text, file)
    if root is None or root.kind != "mapping":
        raise ParseError(file, root.line if root else 1, f"the document is {root or 'empty'}; allowed: a mapping")
    return Item(root, file, "", {})


def _events(text: str, file: str) -> Iterator[yaml.Event]:
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        problem = error.problem or error.context or ""
        if "nesting depth" in problem:  # PyYAML from 6.0.4 on has a limit of its own, which is larger
            raise ParseError(file, line, _TOO_DEEP) from None
        raise ParseError(file, line, f"not valid YAML (line {line}, column {column}): {problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ParseError(file, None, f"not valid YAML: {' '.join(str(error).split())[:200]}") from None


def _compose(text: str, file: str) -> _Node | None:
    """The root node of the only document."""
    root: _Node | None = None
    open_: list[tuple[_Node, list[str]]] = []  # collections not closed yet, with the key that waits for its value
    anchors: dict[str, _Node] = {}
    documents = total = 0

    def place(node: _Node) -> None:
        nonlocal root
        if not open_:
            root = node
            return
        parent, keys = open_[-1]
        if isinstance(parent.value, list):
            parent.value.append(node)
        elif isinstance(parent.value, dict) and keys:
            parent.value[keys.pop()] = node
        else:
            keys.append(_key(parent, node, file))

    for event in _events(text, file):
        line = event.start_mark.line + 1 if event.start_mark else 1
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ParseError(file, line, "a second document; allowed: one")
        elif isinstance(event, yaml.AliasEvent):
            node = anchors.get(event.anchor)
            if node is None or any(node is parent for parent, _ in open_):
                raise ParseError(file, line, f"alias *{event.anchor[:80]}: no complete node has this anchor; allowed: anchors above")
            total += node.size
            place(node)
            if open_:
                open_[-1][0].size += node.size
        elif isinstance(event, (yaml.ScalarEvent, yaml.SequenceStartEvent, yaml.MappingStartEvent)):
            node = _node(event, line, file)
            if event.anchor:
                anchors[event.anchor] = node
            total += 1
            place(node)
            if node.kind != "text":
                open_.append((node, []))
            elif open_:
                open_[-1][0].size += 1
            if len(open_) > MAX_DEPTH:
                raise ParseError(file, line, _TOO_DEEP)
        elif isinstance(event, (yaml.SequenceEndEvent, yaml.MappingEndEvent)):
            node, _ = open_.pop()
            if open_:
                open_[-1][0].size += node.size
        if total > MAX_NODES:
            raise ParseError(file, line, f"more than {MAX_NODES} values, those of aliases counted each time")
    return root


def _node(event, line: int, file: str) -> _Node:
    if event.tag not in (None, "!", *_TAGS):
        raise ParseError(file, line, f"tag {event.tag[:80]!r} is not read; allowed: none")
    if isinstance(event, yaml.ScalarEvent):
        return _Node("text", line, event.value, plain=not event.style)
    return _Node("list", line, []) if isinstance(event, yaml.SequenceStartEvent) else _Node("mapping", line, {})


def _key(parent: _Node, node: _Node, file: str) -> str:
    key = node.value
    if not isinstance(key, str):
        raise ParseError(file, node.line, f"{node} as a key; allowed: text")
    if key in parent.lines:
        raise ParseError(file, node.line, f"duplicate key {key[:80]!r} (the first is in line {parent.lines[key]}); allowed: one of each")
    if key == "<<" and node.plain:
        raise ParseError(file, node.line, "merge keys (<<) are not read; allowed: the keys written out")
    parent.lines[key] = node.line
    return key


def _plain_word(word: str) -> str:
    return re.sub(r"[\s_-]+", "", word).casefold()


class Item:
    """A mapping: typed getters that raise ParseError with file, line, element and key, and mark what was read. A key whose value is
    empty or null counts as missing. ``place`` names the element in messages, "" the document."""

    def __init__(self, node: _Node, file: str, place: str, opened: dict[int, Item]):
        self._node, self.file, self.place, self._opened = node, file, place, opened
        opened.setdefault(id(node), self)

    def __str__(self) -> str:
        return self.place or "document"

    @property
    def line(self) -> int:
        return self._node.line

    @property
    def source(self) -> Source:
        return Source(self.file, self.line)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._node.lines)

    def line_of(self, key: str) -> int:
        return self._node.lines.get(key, self.line)

    def _inside(self, key: str) -> str:
        return f"{self.place}: {key}" if self.place else key

    def error(self, text: str, key: str | None = None, line: int | None = None) -> ParseError:
        """An error about this element, or about one of its keys."""
        where = self._inside(key) if key else str(self)
        return ParseError(self.file, line or (self.line_of(key) if key else self.line), f"{where}: {text}")

    def report_unread(self, notes: Notes) -> None:
        """Add every key that nobody asked for, here and in all mappings reached from here, to the notes (``strict``: an error)."""
        for item in self._opened.values():
            for key in item.keys:
                if key not in item._node.read:
                    notes.unsupported(item.line_of(key), f"{item}: key {key[:80]!r} is not read", item.file)

    def skip(self, *keys: str) -> None:
        """Mark keys, and all that is in them, as known to have no effect."""
        self._node.read.update(keys)

    # ---- values ----

    def _get(self, key: str) -> _Node | None:
        self._node.read.add(key)
        assert isinstance(self._node.value, dict)
        node = self._node.value.get(key)
        return None if node is None or node.null else node

    def _need(self, key: str) -> _Node:
        node = self._get(key)
        if node is None:
            raise self.error("is missing", key)
        return node

    def has(self, key: str) -> bool:
        return self._get(key) is not None

    def kind(self, key: str) -> str | None:
        """text, list or mapping; None where there is no value."""
        node = self._get(key)
        return None if node is None else node.kind

    def item(self, key: str) -> Item | None:
        """The mapping that is the value of a key."""
        node = self._get(key)
        if node is None:
            return None
        if node.kind != "mapping":
            raise self.error(f"found {node}; allowed: a mapping", key)
        return Item(node, self.file, self._inside(key), self._opened)

    def need(self, key: str) -> Item:
        """The same; required."""
        self._need(key)
        found = self.item(key)
        assert found is not None
        return found

    def items(self, key: str, within: str = "") -> list[Item]:
        """The mappings in the list that is the value of a key, called by their names; ``within``: what stands before them."""
        node = self._get(key)
        if node is None:
            return []
        if not isinstance(node.value, list):
            raise self.error(f"found {node}; allowed: a list", key)
        found = []
        for i, entry in enumerate(node.value):
            if not isinstance(entry.value, dict):
                raise self.error(f"found {entry} as entry {i}; allowed: mappings", key, entry.line)
            name = entry.value.get("name")
            called = f" {name.value[:80]!r}" if name is not None and isinstance(name.value, str) else f"[{i}]"
            found.append(Item(entry, self.file, f"{within}{key}{called}", self._opened))
        return found

    def text(self, key: str, default: str | None = None) -> str:
        """Text as written; required where there is no default, not blank unless the default is."""
        node = self._get(key) if default is not None else self._need(key)
        if node is None:
            return default or ""
        if not isinstance(node.value, str) or not node.value.strip() and default != "":
            raise self.error(f"found {node}; allowed: text", key)
        return node.value

    def choice(self, key: str, words: Iterable[str], default: str | None = None) -> str:
        """One of the words, whatever the case, spaces, underscores and hyphens it is written with."""
        value = self.text(key, default)
        words = list(words)
        for word in words:
            if _plain_word(word) == _plain_word(value):
                return word
        raise self.error(f"unknown value {value[:80]!r}; {allowed(value[:80], words)}", key)

    def boolean(self, key: str, default: bool) -> bool:
        word = self.text(key, str(default)).casefold()
        if word not in _TRUE + _FALSE:
            raise self.error(f"found {word[:80]!r}; allowed: true, false", key)
        return word in _TRUE

    def _number(self, key: str, node: _Node) -> float:
        try:
            if not isinstance(node.value, str) or "_" in node.value:
                raise ValueError
            x = float(node.value)
        except ValueError:
            raise self.error(f"found {node}; allowed: a number", key, node.line) from None
        if not abs(x) <= LARGEST:
            raise self.error(f"found {node}; allowed: finite numbers up to {LARGEST:g}", key, node.line)
        return x + 0.0

    def number(self, key: str, default: float | None = None, *, positive: bool = False, nonnegative: bool = False) -> float:
        """A finite number; required where there is no default."""
        node = self._get(key) if default is not None else self._need(key)
        if node is None:
            return float(default or 0.0)
        x = self._number(key, node)
        if positive and not x > 0 or nonnegative and x < 0:
            raise self.error(f"found {x:g}; allowed: numbers {'>' if positive else '>='} 0", key)
        return x

    def _row(self, key: str, node: _Node, counts: tuple[int, ...] | None) -> np.ndarray:
        wanted = "" if counts is None else " or ".join(map(str, counts)) + " "
        if not isinstance(node.value, list):
            raise self.error(f"found {node}; allowed: a list of {wanted}numbers", key, node.line)
        if not node.value or counts is not None and len(node.value) not in counts:
            raise self.error(f"found {len(node.value)} numbers; allowed: {wanted or 'one or more '}numbers", key, node.line)
        return np.array([self._number(key, n) for n in node.value])

    def vector(self, key: str, counts: int | tuple[int, ...] | None = 3, default=None) -> np.ndarray:
        """A list of numbers. counts: how many are allowed (None: any but none); required where there is no default."""
        node = self._get(key) if default is not None else self._need(key)
        if node is None:
            return np.array(default, float)
        return self._row(key, node, (counts,) if isinstance(counts, int) else counts)

    def rows(self, key: str, width: int) -> np.ndarray:
        """A list of one or more lists of ``width`` numbers: (n, width)."""
        node = self._need(key)
        if not isinstance(node.value, list) or not node.value:
            raise self.error(f"found {node if node.value else 'an empty list'}; allowed: lists of {width} numbers", key)
        return np.array([self._row(key, n, (width,)) for n in node.value])
