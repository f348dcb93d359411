"""GMSH files, formats 2.2 and 4.1, text and binary: their points and the elements of one kind."""

from __future__ import annotations

import re

import numpy as np

from xsim.io.reader import Element

__all__ = ["read_gmsh"]

MAX_BLOCKS = 500_000  # of a section
MAX_VALUES = 20 * MAX_BLOCKS  # numbers of a section
_CORNERS = {1: 2, 2: 3, 4: 4}  # by element type: lines, triangles, tetrahedra


def read_gmsh(data: bytes, e: Element) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 3) and elements (m, 2 to 4), point numbers from 0. e: what names the file. Raises ParseError."""
    header = _section(data, b"MeshFormat", e).split(maxsplit=3)
    if len(header) < 3 or header[0] not in (b"2.2", b"4.1") or header[1] not in (b"0", b"1") or header[2] != b"8":
        raise e.error("unknown header; allowed: GMSH 2.2 or 4.1, text or binary, 8 byte numbers", "file")
    binary = header[1] == b"1"
    if binary and (len(header) < 4 or int.from_bytes(header[3][:4], "little") != 1):
        raise e.error("binary numbers in the other byte order; allowed: little endian", "file")
    read_nodes, read_elements = {b"2.2": (_nodes22, _elements22), b"4.1": (_nodes41, _elements41)}[header[0]]
    tags, points = read_nodes(_Numbers(_section(data, b"Nodes", e), binary, e))
    if not len(tags):
        raise e.error("the file has no points; allowed: one or more", "file")
    corners = read_elements(_Numbers(_section(data, b"Elements", e), binary, e))
    order = np.argsort(tags)
    at = np.searchsorted(tags[order], corners).clip(max=len(tags) - 1)
    vertices = order[at]
    if not np.isfinite(points).all() or (tags[vertices] != corners).any():
        raise e.error("an element names a point that is not there, or a point is not finite", "file")
    return points, vertices


def _section(data: bytes, name: bytes, e: Element) -> bytes:
    start = re.search(rb"\$" + name + rb"[ \t]*\r?\n", data)
    end = data.find(b"$End" + name, start.end()) if start else -1
    if start is None or end < 0:
        raise e.error(f"the file has no section {name.decode()}; allowed: GMSH with MeshFormat, Nodes, Elements", "file")
    return data[start.end() : end].removesuffix(b"\n").removesuffix(b"\r")


class _Numbers:
    """The numbers of a section, one block after another."""

    def __init__(self, data: bytes, binary: bool, e: Element):
        self.data, self.binary, self.e, self.at = data, binary, e, 0
        self.words = [] if binary else data.split(maxsplit=MAX_VALUES)
        if len(self.words) > MAX_VALUES:
            raise e.error(f"a section of the file has more than {MAX_VALUES} numbers", "file")

    def take(self, dtype: str, count: int) -> np.ndarray:
        width = np.dtype(dtype).itemsize if self.binary else 1
        if not 0 <= count <= MAX_VALUES or self.at + width * count > len(self.data if self.binary else self.words):
            raise self.e.error(f"the file ends before the {count} numbers that it announces, or announces too many", "file")
        start, self.at = self.at, self.at + width * count
        if self.binary:
            return np.frombuffer(self.data, dtype, count, start)
        try:
            return np.array(self.words[start : self.at], dtype)
        except (ValueError, OverflowError):
            raise self.e.error("the file holds something that is not a number", "file") from None

    def count(self) -> int:
        """A number that stands as text in both forms of 2.2."""
        if not self.binary:
            return int(self.take("<i8", 1)[0])
        line, _, rest = self.data.partition(b"\n")
        self.data = rest
        if not line.strip().isdigit() or len(line) > 20:
            raise self.e.error("the file has no number of points or elements, or a much too large one", "file")
        return int(line)


def _nodes22(numbers: _Numbers) -> tuple[np.ndarray, np.ndarray]:
    count = numbers.count()
    if not numbers.binary:
        rows = numbers.take("<f8", 4 * count).reshape(-1, 4)
        return rows[:, 0].astype(int), rows[:, 1:]
    rows = numbers.take("V28", count).view([("tag", "<i4"), ("x", "<f8", 3)])
    return rows["tag"].astype(int), rows["x"]


def _elements22(numbers: _Numbers) -> np.ndarray:
    count = numbers.count()
    rows = _blocks22(numbers, count) if numbers.binary else _rows22(numbers, count)
    return np.concatenate(rows) if rows else np.zeros((0, 2), int)


def _blocks22(numbers: _Numbers, count: int) -> list[np.ndarray]:
    """Elements in binary: blocks, each with its type, how many elements it has, and how many labels these have."""
    kinds: set[int] = set()
    out, left = [], count
    while left > 0:
        kind, block, labels = numbers.take("<i4", 3).tolist()
        if block < 1 or len(out) == MAX_BLOCKS:
            raise numbers.e.error(f"the file has a block without elements, or more than {MAX_BLOCKS} blocks", "file")
        corners = _corners(numbers, kind, kinds)
        out.append(numbers.take("<i4", block * (1 + max(labels, 0) + corners)).reshape(block, -1)[:, -corners:])
        left -= block
    return out


def _rows22(numbers: _Numbers, count: int) -> list[np.ndarray]:
    """Elements in text: number, type, how many labels, labels, corners."""
    values = numbers.take("<i8", len(numbers.words) - numbers.at).tolist()
    kinds: set[int] = set()
    rows, at = [], 0
    for _ in range(count):
        if at + 3 > len(values):
            break
        start = at + 3 + max(values[at + 2], 0)
        at = start + _corners(numbers, values[at + 1], kinds)
        rows.append(values[start:at])
    if len(rows) < count or at > len(values):
        raise numbers.e.error(f"the file ends before the {count} elements that it announces", "file")
    return [np.array(rows)] if rows else []


def _nodes41(numbers: _Numbers) -> tuple[np.ndarray, np.ndarray]:
    blocks, total, *_ = numbers.take("<u8", 4).tolist()
    tags, points = [], []
    for _ in range(_bounded(numbers, blocks)):
        parametric = numbers.take("<i4", 3)[2]
        count = int(numbers.take("<u8", 1)[0])
        if parametric:
            raise numbers.e.error("the file has parametric points; allowed: points without parameters", "file")
        tags.append(numbers.take("<u8", count).astype(int))
        points.append(numbers.take("<f8", 3 * count).reshape(-1, 3))
    if sum(map(len, tags)) != total or not total:
        raise numbers.e.error(f"the file has {sum(map(len, tags))} points and announces {total}", "file")
    return np.concatenate(tags), np.concatenate(points)


def _elements41(numbers: _Numbers) -> np.ndarray:
    blocks = int(numbers.take("<u8", 4)[0])
    kinds: set[int] = set()
    out = []
    for _ in range(_bounded(numbers, blocks)):
        kind = int(numbers.take("<i4", 3)[2])
        count = int(numbers.take("<u8", 1)[0])
        corners = _corners(numbers, kind, kinds)
        out.append(numbers.take("<u8", count * (1 + corners)).reshape(count, -1)[:, 1:].astype(int))
    return np.concatenate(out) if out else np.zeros((0, 2), int)


def _bounded(numbers: _Numbers, blocks: int) -> int:
    if blocks > MAX_BLOCKS:
        raise numbers.e.error(f"the file announces {blocks} blocks; allowed: {MAX_BLOCKS}", "file")
    return blocks


def _corners(numbers: _Numbers, kind: int, kinds: set[int]) -> int:
    """How many points an element of a type has. Raises ParseError for an unknown type or a second one in a file."""
    kinds.add(kind)
    if kind not in _CORNERS or len(kinds) > 1:
        found = " and ".join(map(str, sorted(kinds)))
        raise numbers.e.error(f"elements of type {found}; allowed: one type, of 1 (lines), 2 (triangles), 4 (tetrahedra)", "file")
    return _CORNERS[kind]
