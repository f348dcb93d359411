"""The registry of formats: each names its reader and says how a file of it is recognized."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import NamedTuple

from xsim.io.errors import Notes, ParseError, allowed
from xsim.io.reader import parse_xml
from xsim.spec import ModelSpec

__all__ = ["FORMATS", "Format", "detect_format", "find_format", "register_format"]


class Format(NamedTuple):
    """A file format.

    name: what ``format=`` calls it. title: what messages call it. read: ``read(data, file, notes, **options) -> ModelSpec`` with
    data as bytes or str, the file's name and the `Notes` that collect what is not read; it raises ParseError. The options of the
    format are the parameters of ``read`` behind the third one. suffixes: lower-case endings of file names, with the dot. roots: names of
    XML root elements. Both tell the format of a file; they are not shared with other formats.
    """

    name: str
    title: str
    read: Callable[..., ModelSpec]
    suffixes: tuple[str, ...] = ()
    roots: tuple[str, ...] = ()

    @property
    def options(self) -> tuple[str, ...]:
        """Names of the keyword arguments that `parse` passes on to ``read``."""
        return tuple(inspect.signature(self.read).parameters)[3:]


FORMATS: dict[str, Format] = {}
"""The formats by name, in the order of registration."""


def register_format(format: Format) -> Format:
    """Add a format to `FORMATS` and return it. Raises ValueError where its name, a suffix or a root belongs to another format."""
    if format.name in FORMATS:
        raise ValueError(f"a format named {format.name!r} is registered already")
    for other in FORMATS.values():
        shared = {*format.suffixes} & {*other.suffixes} | {*format.roots} & {*other.roots}
        if shared:
            raise ValueError(f"format {format.name!r}: {', '.join(sorted(shared))} belongs to the format {other.name!r}")
    FORMATS[format.name] = format
    return format


def find_format(name: str, file: str) -> Format:
    """The format with a name. file: for messages. Raises ParseError for an unknown name."""
    if name not in FORMATS:
        raise ParseError(file, None, f"unknown format {name!r}; {allowed(name, FORMATS)}")
    return FORMATS[name]


def detect_format(data: bytes | str, file: str, suffix: str) -> Format:
    """The format of a document: by the suffix of its file, else by its XML root element. Raises ParseError where none fits."""
    for format in FORMATS.values():
        if suffix in format.suffixes:
            return format
    root = parse_xml(data, file, Notes(file))
    for format in FORMATS.values():
        if root.tag in format.roots:
            return format
    roots = [r for format in FORMATS.values() for r in format.roots]
    raise ParseError(file, root.line, f"{root}: unknown root element; {allowed(root.tag, roots)}")
