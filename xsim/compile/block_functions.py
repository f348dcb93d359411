"""What calls the function ``block`` of a program for a block of environments, as text of LLVM IR: the loop over the turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from xsim.compile.blocks import ALIGNMENT, ONE_TURN, Layout, Row, block_memory
from xsim.compile.columns import Conversions

ARGUMENTS = "ptr %operands, ptr %results, ptr %slots, ptr %sums, ptr %scratch, i64 %first, i64 %count"
"""The parameters of ``block``."""

READ, WRITE, NEAREST, DATA = 0, 1, 3, 1
"""Arguments of `llvm.prefetch`: the access, the cache, and what is fetched."""


def additions(layout: Layout) -> list[str]:
    """The functions that add the vectors of an array, of each type of numbers."""
    turns = layout.turns or ONE_TURN
    rows = (layout.result_rows[k] for k in (*turns.summed, *(k for k, _ in turns.pairs_with_own)))
    return [_addition(layout.lanes, *x) for x in sorted({(row.element, row.bytes) for row in rows if row.size})]


def _addition(lanes: int, element: str, size: int) -> str:
    """size: bytes of a number."""
    vector, alignment = f"<{lanes} x {element}>" if lanes > 1 else element, min(ALIGNMENT, lanes * size)
    return f"""define internal void @add_{element}(ptr %to, ptr %from, i64 %bytes) {{
entry:
  %size.p = getelementptr {vector}, ptr null, i64 1
  %size = ptrtoint ptr %size.p to i64
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %sum.p = getelementptr i8, ptr %to, i64 %k
  %number.p = getelementptr i8, ptr %from, i64 %k
  %sum = load {vector}, ptr %sum.p, align {alignment}
  %number = load {vector}, ptr %number.p, align {alignment}
  %new = fadd {vector} %sum, %number
  store {vector} %new, ptr %sum.p, align {alignment}
  %following = add i64 %k, %size
  %more = icmp slt i64 %following, %bytes
  br i1 %more, label %next, label %leave
leave:
  ret void
}}"""


def _copy(layout: Layout, element: str) -> str:
    """The function that copies vectors. to.stride, from.stride: bytes from one to the next."""
    vector = f"<{layout.lanes} x {element}>" if layout.lanes > 1 else element
    parameters = "ptr noalias %to, ptr noalias %from, i64 %size, i64 %to.stride, i64 %from.stride"
    return f"""define internal void @copy_{element}({parameters}) noinline {{
entry:
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %to.o = mul i64 %k, %to.stride
  %from.o = mul i64 %k, %from.stride
  %to.p = getelementptr i8, ptr %to, i64 %to.o
  %from.p = getelementptr i8, ptr %from, i64 %from.o
  %x = load {vector}, ptr %from.p, align 1
  store {vector} %x, ptr %to.p, align 1
  %following = add i64 %k, 1
  %more = icmp slt i64 %following, %size
  br i1 %more, label %next, label %leave
leave:
  ret void
}}"""


def _copies(layout: Layout) -> list[str]:
    """`_copy` of each type of numbers."""
    turns = layout.turns or ONE_TURN
    rows = *(layout.result_rows[k] for k in turns.blocked), *(layout.operand_rows[i] for i in (*turns.known, *turns.previous))
    return [_copy(layout, element) for element in sorted({row.element for row in rows if row.size})]


def block_functions(layout: Layout) -> list[str]:
    """``whole_block``, of a block whose environments fill all lanes, and ``partial_block``, of the last one if it has fewer, with what they
    call. They take all turns of the block: so no block waits for others after a turn, and each finds what it carries in the cache."""
    conversions = Conversions(layout.lanes)
    functions = [_BlockFunction(layout, conversions, partial).text() for partial in (False, True)]
    return [*additions(layout), *_copies(layout), *conversions.definitions.values(), *functions]


def number_of_turns(layout: Layout) -> list[str]:
    """``%turns``, ``%stacked``, ``%own`` and ``%width``, see `Turns`."""
    if layout.turns is None:
        return [f"  %{name} = add i64 {number}, 0" for name, number in (("turns", 1), ("stacked", 0), ("own", 0), ("width", 0))]
    lines = [f"  %turns.p = getelementptr ptr, ptr %operands, i64 {layout.inputs - 1}", "  %turns.data = load ptr, ptr %turns.p"]
    for k, name in enumerate(("turns", "stacked", "own", "width")):
        lines += [
            f"  %{name}.i.p = getelementptr i32, ptr %turns.data, i64 {k}", f"  %{name}.i = load i32, ptr %{name}.i.p",
            f"  %{name} = sext i32 %{name}.i to i64",
        ]  # fmt: skip
    return lines


class _BlockFunction:
    """Writes the function of a block: the loop over its turns, around the function ``block`` of the program.

    That finds the vectors of the block in the arrays of pointers ``%now.operands`` and ``%now.results``. They are in scratch memory: what a
    turn has of its own is copied there before it, what is stacked is copied from there after it."""

    def __init__(self, layout: Layout, conversions: Conversions, partial: bool):
        self.layout, self.conversions, self.partial = layout, conversions, partial
        self.turns = layout.turns or ONE_TURN
        self.lines: list[str] = []

    def text(self) -> str:
        self.begin()
        self.begin_turn()
        self.add_own()
        self.prefetch()
        of_turn = "ptr %now.operands, ptr %now.results"
        self.lines.append(f"  call void @block({of_turn}, ptr %slots, ptr %sums, ptr %scratch, i64 %first, i64 %count)")
        self.end_turn()
        self.end()
        name = "partial_block" if self.partial else "whole_block"
        return "\n".join([f"define internal void @{name}({ARGUMENTS}) noinline {{", "entry:", *self.lines, "  ret void", "}"])

    # ---- instructions --------------------------------------------------------------------------------------------------------------

    def value(self, operation: str) -> str:
        """The result of an instruction."""
        name = f"%x{len(self.lines)}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def rows_of(self, pointer: str, row: Row, turn: str) -> str:
        """The pointer to the rows of the block. pointer: to the numbers of all turns. turn: its number."""
        number = self.value(f"add i64 {self.value(f'mul i64 {turn}, %count')}, %first")
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {self.value(f'mul i64 {number}, {row.length}')}")

    def vectors_of(self, pointer: str, row: Row, turn: str) -> str:
        """The pointer to the first vector of the block in a blocked array. pointer: to the numbers of all turns. turn: its number."""
        number = self.value(f"add i64 {self.value(f'mul i64 {turn}, %blocks')}, %block.number")
        start = self.value(f"mul i64 {self.value(f'mul i64 {number}, {row.size}')}, %width")
        offset = self.value(f"mul i64 {self.value(f'add i64 {start}, %block.lane')}, {row.bytes}")
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def pointer(self, array: str, index: int) -> str:
        """A pointer of an array of pointers."""
        return self.value(f"load ptr, ptr {self.value(f'getelementptr ptr, ptr {array}, i64 {index}')}")

    def in_scratch(self, places: Mapping[int, int]) -> dict[int, str]:
        """Pointers to places in scratch memory."""
        return {k: self.value(f"getelementptr i8, ptr %scratch, i64 {x}") for k, x in places.items()}

    def use(self, array: str, index: int, pointer: str) -> None:
        """Give ``block`` a pointer to the vectors of an operand or result. array: "operands" or "results"."""
        self.lines.append(f"  store ptr {pointer}, ptr {self.value(f'getelementptr ptr, ptr %now.{array}, i64 {index}')}")

    def choose(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None) -> None:
        """Write what is done if a condition holds, and what if it does not. condition: name of a boolean."""
        label = f"{condition}.{len(self.lines)}"
        self.lines += [f"  br i1 %{condition}, label %{label}, label %not.{label}", f"{label}:"]
        then()
        self.lines += [f"  br label %end.{label}", f"not.{label}:"]
        otherwise()
        self.lines += [f"  br label %end.{label}", f"end.{label}:"]

    def read(self, to: str, pointer: str, row: Row, turn: str = "0", blocked: bool = False) -> None:
        """Copy the numbers that the block has in an array to vectors. pointer: to the numbers of all turns. turn: its number. blocked:
        whether the array may be blocked."""
        if blocked:

            def copy() -> None:
                self.copy(to, self.vectors_of(pointer, row, turn), row, False)

            self.choose("are.blocked", copy, lambda: self.read(to, pointer, row, turn))
            return
        rows = self.rows_of(pointer, row, turn)
        self.convert(to, rows, row, self.conversions.to_vectors, self.conversions.some_to_vectors)

    def write(self, pointer: str, vectors: str, row: Row, turn: str = "0") -> None:
        """Copy vectors to the rows that the block has in an array, see `read`."""
        rows = self.rows_of(pointer, row, turn)
        self.convert(rows, vectors, row, self.conversions.to_rows, self.conversions.some_to_rows)

    def convert(self, to: str, source: str, row: Row, of_all: Callable[[Row], str], of_some: Callable[[Row], str]) -> None:
        """Copy the rows of all lanes by one function of `Conversions`, or fewer by another one."""
        if self.conversions.has_groups and not self.partial:
            self.lines.append(f"  call void @{of_all(row)}(ptr {to}, ptr {source})")
        else:
            self.lines.append(f"  call void @{of_some(row)}(ptr {to}, ptr {source}, i64 {row.size}, i64 %rows)")

    def copy(self, to: str, source: str, row: Row, to_block: bool) -> None:
        """Copy vectors to a blocked array, or from one. to, source: pointers to the first one."""
        blocked, own = self.value(f"mul i64 %width, {row.bytes}"), str(self.layout.lanes * row.bytes)
        strides = (blocked, own) if to_block else (own, blocked)
        self.lines.append(f"  call void @copy_{row.element}(ptr {to}, ptr {source}, i64 {row.size}, i64 {strides[0]}, i64 {strides[1]})")

    def add(self, to: str, vectors: str, row: Row) -> None:
        """Add vectors to others."""
        self.lines.append(f"  call void @add_{row.element}(ptr {to}, ptr {vectors}, i64 {row.length * self.layout.lanes})")

    # ---- all turns -----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The pointers to the numbers of all turns, the vectors of what all turns have in common, and sums that are zero."""
        layout, turns, lanes = self.layout, self.turns, self.layout.lanes
        self.lines.append("  %rows = sub i64 %count, %first" if self.partial else f"  %rows = add i64 {lanes}, 0")
        for array, number in (("operands", layout.operands), ("results", layout.results)):
            self.lines += [
                f"  %now.{array} = alloca [{max(number, 1)} x ptr]",
                f"  call void @llvm.memcpy.p0.p0.i64(ptr %now.{array}, ptr %{array}, i64 {8 * number}, i1 false)",
            ]  # fmt: skip
        self.operands = [self.pointer("%operands", i) for i in range(layout.inputs)]
        self.results = [self.pointer("%results", k) for k in range(layout.results)]
        self.previous = dict(zip(turns.previous, self.operands[layout.operands :], strict=False))
        self.own = dict(zip((k for k, _ in turns.pairs_with_own), self.operands[layout.operands + len(turns.previous) :], strict=False))
        memory = block_memory(layout)
        self.vectors, self.written, self.totals, self.added = (
            self.in_scratch(x) for x in (memory.operands, memory.results, memory.sums, memory.own)
        )
        for k, total in self.totals.items():
            size = layout.result_rows[k].length * lanes
            self.lines.append(f"  call void @llvm.memset.p0.i64(ptr {total}, i8 0, i64 {size}, i1 false)")
        for i, vectors in self.vectors.items():
            self.use("operands", i, vectors)
            if i not in turns.sequences and i not in turns.previous:
                self.read(vectors, self.operands[i], layout.operand_rows[i])
        for k, vectors in self.written.items():
            self.use("results", k, vectors)
        self.lines += [
            *number_of_turns(layout), "  %has.own = icmp ne i64 %own, 0", "  %are.stacked = icmp ne i64 %stacked, 0",
            "  %turns.last = sub i64 %turns, 1", "  %are.blocked = icmp ne i64 %width, 0",
            "  %width.some = call i64 @llvm.smax.i64(i64 %width, i64 1)", "  %count.up = add i64 %count, %width.some",
            "  %count.less = sub i64 %count.up, 1", "  %blocks = sdiv i64 %count.less, %width.some",
            "  %block.number = sdiv i64 %first, %width.some", "  %block.lane = srem i64 %first, %width.some", "  br label %turn",
        ]  # fmt: skip

    def end(self) -> None:
        """The results that no turn has of its own: sums over the turns, and results of the last one."""
        turns = self.turns
        self.write_results([k for k in self.written if k not in turns.stacked])
        if turns.stacked:
            self.choose("are.stacked", self.write_not_blocked, lambda: self.write_results(turns.stacked))

    def write_not_blocked(self) -> None:
        """Results that are not stacked if others are stacked as blocked arrays."""
        others = [k for k in self.turns.stacked if k not in self.turns.blocked]
        if self.turns.blocked and others:
            self.choose("are.blocked", lambda: self.write_results(others))

    def write_results(self, results: Iterable[int]) -> None:
        for k in results:
            if k in self.written:
                self.write(self.results[k], self.totals.get(k, self.written[k]), self.layout.result_rows[k])

    # ---- a turn --------------------------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """The number of the turn, and what it has of its own."""
        turns, rows = self.turns, self.layout.operand_rows
        self.lines += [
            "turn:", f"  %now = phi i64 [ {'%turns.last' if turns.reverse else '0'}, %entry ], [ %following, %turn.end ]",
            "  %is.first = icmp eq i64 %now, 0", "  %before = sub i64 %now, 1",
        ]  # fmt: skip
        for i in turns.sequences:
            if i in self.vectors:
                self.read(self.vectors[i], self.operands[i], rows[i], "%now", i in turns.known)
        previous = [i for i in turns.previous if i in self.vectors]
        self.choose("is.first", lambda: self.read_given(previous), lambda: self.read_previous(previous))

    def read_given(self, operands: Iterable[int]) -> None:
        for i in operands:
            self.read(self.vectors[i], self.operands[i], self.layout.operand_rows[i])

    def read_previous(self, operands: Iterable[int]) -> None:
        for i in operands:
            self.read(self.vectors[i], self.previous[i], self.layout.operand_rows[i], "%before", blocked=True)

    def add_own(self) -> None:
        """Add to what is carried what the turn has of its own."""
        if self.added:
            self.choose("has.own", self.add_each)

    def add_each(self) -> None:
        for k, vectors in self.added.items():
            row = self.layout.result_rows[k]
            row = row._replace(read=tuple(range(row.size)))
            self.read(vectors, self.own[k], row, "%now")
            self.add(self.written[k], vectors, row)

    def prefetch(self) -> None:
        """Fetch into the cache what the next turn has of its own. It is not beside that of this turn, so that no processor foresees it."""
        turns, layout = self.turns, self.layout
        if self.partial or layout.turns is None:
            return
        following = self.value(f"add i64 %now, {-1 if turns.reverse else 1}")
        before = self.value(f"sub i64 {following}, 1")
        for i in turns.sequences:
            self.fetch(self.operands[i], layout.operand_rows[i], following, READ, i in turns.known)
        for i in turns.previous:
            self.fetch(self.previous[i], layout.operand_rows[i], before, READ, blocked=True)
        if turns.stacked:
            self.choose("are.stacked", lambda: self.fetch_results(following))

    def fetch_results(self, turn: str) -> None:
        for k in self.turns.stacked:
            self.fetch(self.results[k], self.layout.result_rows[k], turn, WRITE, k in self.turns.blocked)

    def fetch(self, pointer: str, row: Row, turn: str, access: int, blocked: bool = False) -> None:
        """Fetch the numbers that the block has in an array, see `read`."""
        if blocked:
            arguments = pointer, row, turn, access
            self.choose("are.blocked", lambda: self.fetch_vectors(*arguments), lambda: self.fetch(*arguments))
            return
        rows = self.rows_of(pointer, row, turn)
        for k in range(0, row.length * self.layout.lanes, ALIGNMENT):
            self.fetch_line(rows, str(k), access)

    def fetch_vectors(self, pointer: str, row: Row, turn: str, access: int) -> None:
        vectors, stride = self.vectors_of(pointer, row, turn), self.value(f"mul i64 %width, {row.bytes}")
        for k in range(row.size):
            self.fetch_line(vectors, self.value(f"mul i64 {stride}, {k}"), access)

    def fetch_line(self, pointer: str, offset: str, access: int) -> None:
        line = self.value(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        self.lines.append(f"  call void @llvm.prefetch.p0(ptr {line}, i32 {access}, i32 {NEAREST}, i32 {DATA})")

    def end_turn(self) -> None:
        """Add up and copy the results of the turn."""
        turns = self.turns
        for k, total in self.totals.items():
            self.add(total, self.written[k], self.layout.result_rows[k])
        if turns.stacked:
            self.choose("are.stacked", self.write_stacked)
        step, more = ("-1", "sge i64 %following, 0") if turns.reverse else ("1", "slt i64 %following, %turns")
        self.lines += [
            "  br label %turn.end", "turn.end:", f"  %following = add i64 %now, {step}", f"  %again = icmp {more}",
            "  br i1 %again, label %turn, label %end", "end:",
        ]  # fmt: skip

    def write_stacked(self) -> None:
        if self.turns.blocked:
            self.choose("are.blocked", self.write_blocked, self.write_rows)
        else:
            self.write_rows()

    def write_rows(self) -> None:
        for k in self.turns.stacked:
            if k in self.written:
                self.write(self.results[k], self.written[k], self.layout.result_rows[k], "%now")

    def write_blocked(self) -> None:
        for k in self.turns.blocked:
            if k in self.written:
                row = self.layout.result_rows[k]
                self.copy(self.vectors_of(self.results[k], row, "%now"), self.written[k], row, True)
