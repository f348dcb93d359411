"""Slips in XML that TinyXML, the parser of most robot software, overlooks and that XML forbids.

They are repaired in the text, so that every line number stays what it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Slip", "repaired"]

_MARK = b"\xef\xbb\xbf"  # byte order mark of UTF-8
_BLOCKS = ((b"<!--", b"-->"), (b"<![CDATA[", b"]]>"), (b"<?", b"?>"))
_TAG = re.compile(rb"<(?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
_DECLARATION = re.compile(rb"<\?xml\s")
_VERSION = re.compile(rb"version\s*=\s*[\"'](?!1\.\d)([^\"']*)[\"']")
_VALUE = re.compile(rb"(\"[^\"]*\"|'[^']*')([A-Za-z_:]?)")  # of an attribute, and the letter that follows without a space


class Slip(NamedTuple):
    """What is wrong in a line, and what is read in its place."""

    line: int
    text: str
    meaning: str


def repaired(data: bytes) -> tuple[bytes, list[Slip]]:
    """The document without slips, and the slips in order. What is behind an unfinished tag stays as it is."""
    parts: list[bytes] = []
    slips: list[Slip] = []
    first = len(_MARK) if data.startswith(_MARK) else 0
    end, line = 0, 1
    for start, stop in _markup(data):
        line += data.count(b"\n", end, start)
        piece, slip = _without_slip(data[start:stop], start == first, line)
        parts += (data[end:start], piece)
        slips += slip
        line += data.count(b"\n", start, stop)
        end = stop
    return b"".join((*parts, data[end:])), slips


def _markup(data: bytes) -> Iterator[tuple[int, int]]:
    """Where the tags, comments, CDATA sections and processing instructions of a document start and stop."""
    stop = 0
    while (start := data.find(b"<", stop)) >= 0:
        closing = next((b for a, b in _BLOCKS if data.startswith(a, start)), None)
        if closing is not None:
            found = data.find(closing, start + 2)
            stop = found + len(closing) if found >= 0 else 0
        else:
            tag = _TAG.match(data, start)
            stop = tag.end() if tag else 0
        if not stop:
            return
        yield start, stop


def _without_slip(piece: bytes, is_first: bool, line: int) -> tuple[bytes, list[Slip]]:
    """A piece of markup without its slips. is_first: nothing is before it; line: that it starts in."""
    if _DECLARATION.match(piece):
        if not is_first:
            blank = re.sub(rb"[^\n]", b" ", piece)
            return blank, [Slip(line, "an XML declaration that is not at the start of the document", "nothing")]
        version = _VERSION.search(piece)
        if version is None:
            return piece, []
        found = version[1].decode("utf-8", "replace")
        return _VERSION.sub(b'version="1.0"', piece), [Slip(line, f"XML declaration: version: found {found!r}; allowed: 1.0", "1.0")]
    if piece.startswith((b"<!", b"<?")):
        return piece, []
    spaced = _VALUE.sub(lambda match: match[1] + b" " + match[2] if match[2] else match[1], piece)
    if spaced == piece:
        return piece, []
    return spaced, [Slip(line, f"<{_name(piece)}>: no space between two attributes", "a space")]


def _name(tag: bytes) -> str:
    return tag[1:].split(None, 1)[0].decode("utf-8", "replace")
