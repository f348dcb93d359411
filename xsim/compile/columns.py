"""Numbers of the environments of a block as vectors with one environment per lane.

Arrays have the environment first: the numbers of one environment are a row, which is contiguous. A vector is a column. Several columns are
read or written together, by accesses to parts of rows and transpositions of small squares in registers. That takes fewer instructions than
to gather or to scatter each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTHS = (4, 2)
"""Columns that are read or written together."""


@dataclass(frozen=True)
class Columns:
    """Reads and writes a group of columns, as text of LLVM IR.

    rows: the pointer to the row of the first lane. size: columns of the array. first, width: the columns of the group. lanes: rows.
    element: LLVM's type of a number; bytes: its size. lines: the instructions, to which those of the group are added. name: a new name for
    a result."""

    rows: str
    size: int
    first: int
    width: int
    lanes: int
    element: str
    bytes: int
    lines: list[str]
    name: Callable[[], str]

    def load(self) -> list[str]:
        """The columns."""
        if self.is_contiguous:
            vectors = [self._result(f"load {self._type(self.lanes)}, ptr {x}, align {self.bytes}") for x in self._vectors()]
            return self._uninterleaved(vectors)
        rows = [self._result(f"load {self._type(self.width)}, ptr {self._row(k)}, align {self.bytes}") for k in range(self.lanes)]
        return self._transposed([self._joined(rows[k :: self.width]) for k in range(self.width)])

    def store(self, columns: Sequence[str]) -> None:
        """Store the columns."""
        if self.is_contiguous:
            for vector, address in zip(self._interleaved(list(columns)), self._vectors(), strict=True):
                self.lines.append(f"  store {self._type(self.lanes)} {vector}, ptr {address}, align {self.bytes}")
            return
        kind = self._type(self.width)
        for k, joined in enumerate(self._transposed(list(columns))):
            for part, row in enumerate(range(k, self.lanes, self.width)):
                lanes = range(part * self.width, (part + 1) * self.width)
                numbers, address = self._shuffled(self.lanes, joined, "poison", lanes), self._row(row)
                self.lines.append(f"  store {kind} {numbers}, ptr {address}, align {self.bytes}")

    @property
    def is_contiguous(self) -> bool:
        """Whether the array has no other columns, so that the numbers of all lanes lie together."""
        return self.size == self.width

    def _vectors(self) -> list[str]:
        """The pointers to the vectors of a contiguous array."""
        return [self._result(f"getelementptr {self._type(self.lanes)}, ptr {self.rows}, i64 {k}") for k in range(self.width)]

    def _uninterleaved(self, vectors: list[str]) -> list[str]:
        """The columns of vectors that hold rows one after the other."""
        if len(vectors) == 1:
            return vectors
        pairs = list(zip(vectors[::2], vectors[1::2], strict=True))
        even, odd = ([self._shuffled(self.lanes, a, b, range(k, 2 * self.lanes, 2)) for a, b in pairs] for k in range(2))
        return [x for pair in zip(self._uninterleaved(even), self._uninterleaved(odd), strict=True) for x in pair]

    def _interleaved(self, columns: list[str]) -> list[str]:
        """Vectors that hold the rows of these columns one after the other."""
        if len(columns) == 1:
            return columns
        lanes, half = self.lanes, self.lanes // 2
        pairs = zip(self._interleaved(columns[::2]), self._interleaved(columns[1::2]), strict=True)
        starts = range(0, lanes, half)
        return [self._shuffled(lanes, a, b, [i + k for i in range(s, s + half) for k in (0, lanes)]) for a, b in pairs for s in starts]

    def _row(self, lane: int) -> str:
        """The pointer to the first number of the group of a lane."""
        return self._result(f"getelementptr {self.element}, ptr {self.rows}, i64 {lane * self.size + self.first}")

    def _result(self, operation: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {operation}")
        return name

    def _type(self, length: int) -> str:
        return f"<{length} x {self.element}>"

    def _shuffled(self, length: int, a: str, b: str, lanes: Sequence[int]) -> str:
        """The numbers at these lanes of two vectors of a length, one after the other."""
        kind, mask = self._type(length), ", ".join(f"i32 {i}" for i in lanes)
        return self._result(f"shufflevector {kind} {a}, {kind} {b}, <{len(lanes)} x i32> <{mask}>")

    def _joined(self, vectors: list[str]) -> str:
        """Vectors of the width of the group, one after the other."""
        length = self.width
        while len(vectors) > 1:
            pairs = zip(vectors[::2], vectors[1::2], strict=True)
            vectors = [self._shuffled(length, a, b, range(2 * length)) for a, b in pairs]
            length *= 2
        return vectors[0]

    def _transposed(self, vectors: list[str]) -> list[str]:
        """Vectors, as many as the group has columns, in which each square of as many lanes is transposed."""
        lanes = self.lanes
        squares = range(0, lanes, self.width)

        def interleaved(a: str, b: str, starts: Sequence[int], block: int = 1) -> str:
            """Blocks of lanes of each square, that begin at these lanes: of a and b in turns."""
            mask = [s + i + k for s in squares for i in starts for k in (*range(block), *range(lanes, lanes + block))]
            return self._shuffled(lanes, a, b, mask)

        if self.width == 2:
            return [interleaved(*vectors, [k]) for k in range(2)]
        a, b, c, d = vectors
        halves = [(interleaved(a, b, [k, k + 1]), interleaved(c, d, [k, k + 1])) for k in (0, 2)]
        return [interleaved(*pair, [k], block=2) for pair in halves for k in (0, 2)]


def group_of(column: int, columns: int) -> tuple[int, int]:
    """The first column and the width of the group of a column. columns: of the array. The last group of an array may begin within the one
    before."""
    width = next((w for w in WIDTHS if w <= columns), 1)
    return min(column // width * width, columns - width), width
