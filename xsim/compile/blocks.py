"""Blocks of environments, which have one for each lane: what calls the function ``block`` of a program for them, as text of LLVM IR."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT = 64
"""Bytes. Of memory for vectors."""


@dataclass(frozen=True)
class Sum:
    """A result that is a sum over the environments: its index, its numbers, and the first of its accumulators."""

    result: int
    size: int
    first: int


class Turns(NamedTuple):
    """Several calls in turn as one (`xsim.compile.repeated`). An operand after all others holds their number, a 32-bit integer.

    carried: pairs (result, operand), which have the same memory if there are several turns. sequences: operands of which each turn has its
    own numbers; those of a turn follow those of the turn before."""

    carried: tuple[tuple[int, int], ...]
    sequences: tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """What the handler has to know of a program.

    counted: ("operand" or "result", index) of an array whose first axis is that of the environments; None: there is one environment.
    scratch: bytes of scratch memory of a block. number: LLVM's type of a number of the sums; size: its bytes. operations: of one
    environment. devices: that share the pool. operand_rows, result_rows: bytes of an environment's numbers of each operand and result; 0
    of those that the environments share, or do not have. turns: None if the function does not repeat.
    """

    operands: int
    results: int
    slots: int
    scratch: int
    lanes: int
    counted: tuple[str, int] | None
    sums: tuple[Sum, ...]
    number: str
    size: int
    operations: int
    devices: int
    operand_rows: tuple[int, ...]
    result_rows: tuple[int, ...]
    turns: Turns | None

    @property
    def sequences(self) -> tuple[int, ...]:
        """The operands of which each turn has its own numbers."""
        return () if self.turns is None else self.turns.sequences


ARGUMENTS = "ptr %operands, ptr %results, ptr %slots, ptr %sums, ptr %scratch, i64 %first, i64 %count"
"""The parameters of ``block``."""

PADDED = """define internal void @padded(ptr %to, ptr %from, i64 %row, i64 %rows, i64 %lanes) {
entry:
  %bytes = mul i64 %row, %rows
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %bytes, i1 false)
  %before = sub i64 %bytes, %row
  %last = getelementptr i8, ptr %from, i64 %before
  %any = icmp slt i64 %rows, %lanes
  br i1 %any, label %copy, label %leave
copy:
  %k = phi i64 [ %rows, %entry ], [ %next, %copy ]
  %offset = mul i64 %row, %k
  %at = getelementptr i8, ptr %to, i64 %offset
  call void @llvm.memcpy.p0.p0.i64(ptr %at, ptr %last, i64 %row, i1 false)
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %lanes
  br i1 %more, label %copy, label %leave
leave:
  ret void
}"""
"""Copy rows of bytes, and repeat the last one until there is one for each lane."""


def whole_block(layout: Layout) -> str:
    """The function of a block whose environments fill all lanes: all its turns. So no block waits for others after a turn, and each finds
    what it carries in the cache."""
    lines = [
        *_copied_pointers("operand", layout.operands),
        *_begin_turns(layout),
        "  call void @block(ptr %now.operands, ptr %results, ptr %slots, ptr %sums, ptr %scratch, i64 %first, i64 %count)",
    ]  # fmt: skip
    for i in layout.sequences:
        lines += [
            f"  %next{i}.p = getelementptr ptr, ptr %now.operands, i64 {i}", f"  %next{i}.before = load ptr, ptr %next{i}.p",
            f"  %next{i}.bytes = mul i64 %count, {layout.operand_rows[i]}",
            f"  %next{i} = getelementptr i8, ptr %next{i}.before, i64 %next{i}.bytes", f"  store ptr %next{i}, ptr %next{i}.p",
        ]  # fmt: skip
    return _function_of_block("whole_block", [*lines, *_end_turns()])


def _function_of_block(name: str, lines: list[str]) -> str:
    return "\n".join([f"define internal void @{name}({ARGUMENTS}) noinline {{", "entry:", *lines, "  ret void", "}"])


def _copied_pointers(kind: str, number: int) -> list[str]:
    """The pointers to operands or results in an array of this function's own."""
    return [
        f"  %now.{kind}s = alloca [{max(number, 1)} x ptr]",
        f"  call void @llvm.memcpy.p0.p0.i64(ptr %now.{kind}s, ptr %{kind}s, i64 {8 * number}, i1 false)",
    ]  # fmt: skip


def number_of_turns(layout: Layout) -> list[str]:
    """The number of turns as ``%turns``."""
    if layout.turns is None:
        return ["  %turns = add i64 1, 0"]
    return [
        f"  %turns.p = getelementptr ptr, ptr %operands, i64 {layout.operands - 1}", "  %turns.data = load ptr, ptr %turns.p",
        "  %turns.i = load i32, ptr %turns.data", "  %turns = sext i32 %turns.i to i64",
    ]  # fmt: skip


def _begin_turns(layout: Layout) -> list[str]:
    """The begin of a loop over the turns, the number of which is ``%now``."""
    return [*number_of_turns(layout), "  br label %turn", "turn:", "  %now = phi i64 [ 0, %entry ], [ %following, %turn ]"]


def _end_turns() -> list[str]:
    """The end of the loop."""
    return [
        "  %following = add i64 %now, 1", "  %again = icmp slt i64 %following, %turns", "  br i1 %again, label %turn, label %end", "end:"
    ]  # fmt: skip


class Copies(NamedTuple):
    """Where the rows of the environments of a partial block are in its scratch memory. size: of the whole memory."""

    operands: dict[int, int]
    results: dict[int, int]
    size: int


def copies_of(layout: Layout) -> Copies:
    """After the memory that each block has. What is carried has one place. A block with one lane is never partial."""
    operands: dict[int, int] = {}
    results: dict[int, int] = {}
    size = layout.scratch
    carried = {} if layout.turns is None else dict(layout.turns.carried)
    for places, rows in ((operands, layout.operand_rows), (results, layout.result_rows)):
        for i, row in enumerate(rows if layout.lanes > 1 else ()):
            if row and places is results and carried.get(i) in operands:
                places[i] = operands[carried[i]]
            elif row:
                places[i] = -(-size // ALIGNMENT) * ALIGNMENT
                size = places[i] + row * layout.lanes
    return Copies(operands, results, size)


def partial_block(layout: Layout) -> str:
    """The function of the last block if it has fewer environments than lanes. It works on copies of their rows, the last of which is
    repeated for the further lanes."""
    copies = copies_of(layout)
    lines = [*_copied_pointers("operand", layout.operands), *_copied_pointers("result", layout.results), "  %rows = sub i64 %count, %first"]
    for i, place in copies.operands.items():
        lines += _row_and_copy("operand", i, layout.operand_rows[i], place)
        lines += [] if i in layout.sequences else [_padded(f"%operand{i}.row", i, layout)]
    for k, place in copies.results.items():
        lines += _row_and_copy("result", k, layout.result_rows[k], place)
    lines += _begin_turns(layout)
    for i in copies.operands:
        if i in layout.sequences:
            lines += [
                f"  %before{i} = mul i64 %now, %count", f"  %bytes{i} = mul i64 %before{i}, {layout.operand_rows[i]}",
                f"  %row{i} = getelementptr i8, ptr %operand{i}.row, i64 %bytes{i}", _padded(f"%row{i}", i, layout),
            ]  # fmt: skip
    lines.append("  call void @block(ptr %now.operands, ptr %now.results, ptr %slots, ptr %sums, ptr %scratch, i64 0, i64 %rows)")
    lines += _end_turns()
    for k in copies.results:
        lines += [
            f"  %result{k}.bytes = mul i64 %rows, {layout.result_rows[k]}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr %result{k}.row, ptr %result{k}.copy, i64 %result{k}.bytes, i1 false)",
        ]  # fmt: skip
    return _function_of_block("partial_block", lines)


def _padded(row: str, operand: int, layout: Layout) -> str:
    """Copy the rows of an operand, from the first one of a partial block."""
    return f"  call void @padded(ptr %operand{operand}.copy, ptr {row}, i64 {layout.operand_rows[operand]}, i64 %rows, i64 {layout.lanes})"


def _row_and_copy(kind: str, index: int, row: int, place: int) -> list[str]:
    """The pointers to the numbers of the first environment of a block, and to their copy, which replaces them for the block."""
    name = f"%{kind}{index}"
    return [
        f"  {name}.copy = getelementptr i8, ptr %scratch, i64 {place}", f"  {name}.p = getelementptr ptr, ptr %{kind}s, i64 {index}",
        f"  {name} = load ptr, ptr {name}.p", f"  {name}.offset = mul i64 %first, {row}",
        f"  {name}.row = getelementptr i8, ptr {name}, i64 {name}.offset",
        f"  {name}.now = getelementptr ptr, ptr %now.{kind}s, i64 {index}", f"  store ptr {name}.copy, ptr {name}.now",
    ]  # fmt: skip
