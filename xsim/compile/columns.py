"""Numbers of the environments of a block as vectors with one environment per lane.

Arrays have the environment first: the numbers of one environment are a row, which is contiguous. A vector is a column. Several columns are
read or written together, by accesses to parts of rows and transpositions of small squares in registers. That takes fewer instructions than
to gather or to scatter each column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xsim.compile.blocks import ALIGNMENT, Row

WIDTHS = (4, 2)
"""Columns that are read or written together."""


MAX_GROUPS = 8
"""Groups whose copies are written one after the other; of more, one group in a loop."""


class Conversions:
    """Writes the functions that copy rows of a block to vectors, or vectors to rows.

    ``void name(ptr to, ptr from)`` copies the rows of all lanes, ``void name(ptr to, ptr from, i64 size, i64 rows)`` fewer ones, of any
    size. lanes: of the block. definitions: their texts by name."""

    def __init__(self, lanes: int):
        self.lanes = lanes
        self.definitions: dict[str, str] = {}

    @property
    def has_groups(self) -> bool:
        """Whether columns are read and written together."""
        return self.lanes >= max(WIDTHS)

    def to_vectors(self, row: Row) -> str:
        """Copies the numbers of each row that the program reads, perhaps others."""
        groups = sorted({group_of(i, row.size) for i in row.read})
        if len(groups) > MAX_GROUPS:
            groups = all_groups(row.size)
        read = "" if groups == all_groups(row.size) else "".join(f"_{first}" for first, _ in groups)
        return self._of_all(f"vectors_of_{row.element}_{row.size}{read}", _ToVectors(row, self.lanes), groups)

    def to_rows(self, row: Row) -> str:
        return self._of_all(f"rows_of_{row.element}_{row.size}", _ToRows(row, self.lanes), all_groups(row.size))

    def some_to_vectors(self, row: Row) -> str:
        """Copies some rows, and repeats the last one for the other lanes."""
        lane = "  %last = sub i64 %rows, 1\n  %row = call i64 @llvm.smin.i64(i64 %lane, i64 %last)"
        return self._of_some(f"vectors_of_{row.element}", row.element, lane, str(self.lanes), ("vector", "number"))

    def some_to_rows(self, row: Row) -> str:
        return self._of_some(f"rows_of_{row.element}", row.element, "  %row = add i64 %lane, 0", "%rows", ("number", "vector"))

    def _of_all(self, name: str, copy: _Copy, groups: list[tuple[int, int]]) -> str:
        if name not in self.definitions:
            head = f"define internal void @{name}(ptr noalias %to, ptr noalias %from) noinline {{"
            self.definitions[name] = "\n".join([head, "entry:", *copy.text(groups), "  ret void", "}"])
        return name

    def _of_some(self, name: str, element: str, row: str, lanes: str, order: tuple[str, str]) -> str:
        """row: text that computes ``%row`` of a lane. lanes: how many are copied. order: to what a number is copied, and from what."""
        place = {order[0]: "%to", order[1]: "%from"}
        parameters = "ptr noalias %to, ptr noalias %from, i64 %size, i64 %rows"
        self.definitions.setdefault(name, f"""define internal void @{name}({parameters}) noinline {{
entry:
  br label %each.lane
each.lane:
  %lane = phi i64 [ 0, %entry ], [ %lane.next, %end.lane ]
{row}
  %start = mul i64 %row, %size
  br label %each.number
each.number:
  %k = phi i64 [ 0, %each.lane ], [ %k.next, %each.number ]
  %column = mul i64 %k, {self.lanes}
  %in.vectors = add i64 %column, %lane
  %in.rows = add i64 %start, %k
  %vector.p = getelementptr {element}, ptr {place["vector"]}, i64 %in.vectors
  %number.p = getelementptr {element}, ptr {place["number"]}, i64 %in.rows
  %x = load {element}, ptr %{order[1]}.p
  store {element} %x, ptr %{order[0]}.p
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, %size
  br i1 %more, label %each.number, label %end.lane
end.lane:
  %lane.next = add i64 %lane, 1
  %again = icmp slt i64 %lane.next, {lanes}
  br i1 %again, label %each.lane, label %leave
leave:
  ret void
}}""")
        return name


class _Copy:
    """The body of a function that copies the rows of all lanes. rows, vectors: its parameters that point to them."""

    rows: str
    vectors: str

    def __init__(self, row: Row, lanes: int):
        self.row, self.lanes = row, lanes
        self.lines: list[str] = []

    def text(self, groups: list[tuple[int, int]]) -> list[str]:
        rest = groups
        if len(groups) > MAX_GROUPS:
            count = self.row.size // max(WIDTHS)
            self._in_loop(count)
            rest = groups[count:]
        for group in rest:
            self.copy(self.rows, self.vectors, *group)
        return self.lines

    def _in_loop(self, count: int) -> None:
        """Copy the first groups."""
        width = max(WIDTHS)
        self.lines += ["  br label %group", "group:", "  %k = phi i64 [ 0, %entry ], [ %k.next, %group ]"]
        sizes = (self.rows, width * self.row.bytes), (self.vectors, width * self.row.bytes * self.lanes)
        starts = [self.result(f"getelementptr i8, ptr {p}, i64 {self.result(f'mul i64 %k, {size}')}") for p, size in sizes]
        self.copy(*starts, 0, width)
        self.lines += [
            "  %k.next = add i64 %k, 1", f"  %more = icmp slt i64 %k.next, {count}", "  br i1 %more, label %group, label %rest", "rest:",
        ]  # fmt: skip

    def copy(self, rows: str, vectors: str, first: int, width: int) -> None:
        """Copy a group."""
        raise NotImplementedError

    def columns(self, rows: str, first: int, width: int) -> Columns:
        row = self.row
        return Columns(rows, row.size, first, width, self.lanes, row.element, row.bytes, self.lines, self._name)

    @property
    def type(self) -> str:
        return f"<{self.lanes} x {self.row.element}>"

    @property
    def alignment(self) -> int:
        return min(ALIGNMENT, self.lanes * self.row.bytes)

    def vector(self, vectors: str, column: int) -> str:
        """The pointer to a vector."""
        return self.result(f"getelementptr {self.type}, ptr {vectors}, i64 {column}")

    def result(self, operation: str) -> str:
        name = self._name()
        self.lines.append(f"  {name} = {operation}")
        return name

    def _name(self) -> str:
        return f"%x{len(self.lines)}"


class _ToVectors(_Copy):
    rows, vectors = "%from", "%to"

    def copy(self, rows: str, vectors: str, first: int, width: int) -> None:
        for k, vector in enumerate(self.columns(rows, first, width).load()):
            self.lines.append(f"  store {self.type} {vector}, ptr {self.vector(vectors, first + k)}, align {self.alignment}")


class _ToRows(_Copy):
    rows, vectors = "%to", "%from"

    def copy(self, rows: str, vectors: str, first: int, width: int) -> None:
        places = [self.vector(vectors, first + k) for k in range(width)]
        columns = [self.result(f"load {self.type}, ptr {place}, align {self.alignment}") for place in places]
        self.columns(rows, first, width).store(columns)


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


def all_groups(columns: int) -> list[tuple[int, int]]:
    """The groups of an array."""
    return sorted({group_of(i, columns) for i in range(columns)})
