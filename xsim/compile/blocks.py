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
    """Several calls in turn as one, as `jax.lax.scan` makes them (`xsim.compile.repeated`).

    An operand after all others holds two 32-bit integers: the number of turns, and 1 if results are stacked, 0 if those of the last turn
    are wanted alone.

    carried: pairs (result, operand): the result of a turn is the operand of the next one. sequences: operands of which each turn has its
    own numbers. stacked: results likewise, if they are stacked. previous: operands that were carried by another call: the first turn has
    the operand, each later one a result of the turn before it. These results, stacked, are operands after those of the program, in this
    order. added: results that are added up over the turns. reverse: whether the last turn comes first."""

    carried: tuple[tuple[int, int], ...]
    sequences: tuple[int, ...]
    stacked: tuple[int, ...]
    previous: tuple[int, ...] = ()
    added: tuple[int, ...] = ()
    reverse: bool = False


ONE_TURN = Turns((), (), ())
"""Of a function that does not repeat."""


@dataclass(frozen=True)
class Layout:
    """What the handler has to know of a program. operands, results: number of them.

    counted: ("operand" or "result", index) of an array whose first axis is that of the environments; None: there is one environment.
    scratch: bytes of scratch memory of a block. number: LLVM's type of a number of the sums; size: its bytes. operations: of one
    environment. devices: that share the pool. operand_rows, result_rows: bytes of an environment's numbers of each operand and result; 0
    of those that the environments share, or do not have. result_types: LLVM's types of their numbers. turns: None if the function does not
    repeat.
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
    result_types: tuple[str, ...]
    turns: Turns | None

    @property
    def inputs(self) -> int:
        """Number of operands that the machine code is given: those of the program, and those of the turns."""
        return self.operands if self.turns is None else self.operands + len(self.turns.previous) + 1


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


def sums_of_turns(layout: Layout) -> list[str]:
    """The functions that add the numbers of a turn to sums, of each type."""
    types = {layout.result_types[k] for k in places_of_rows(layout).sums}
    return [_add(element, f"<{layout.lanes} x {element}>" if layout.lanes > 1 else element) for element in sorted(types)]


def _add(element: str, vector: str) -> str:
    return f"""define internal void @add_{element}(ptr %to, ptr %from, i64 %bytes) {{
entry:
  %size.p = getelementptr {vector}, ptr null, i64 1
  %size = ptrtoint ptr %size.p to i64
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %following, %next ]
  %sum.p = getelementptr i8, ptr %to, i64 %k
  %number.p = getelementptr i8, ptr %from, i64 %k
  %sum = load {vector}, ptr %sum.p
  %number = load {vector}, ptr %number.p
  %new = fadd {vector} %sum, %number
  store {vector} %new, ptr %sum.p
  %following = add i64 %k, %size
  %more = icmp slt i64 %following, %bytes
  br i1 %more, label %next, label %leave
leave:
  ret void
}}"""


def whole_block(layout: Layout) -> str:
    """The function of a block whose environments fill all lanes: all its turns. So no block waits for others after a turn, and each finds
    what it carries in the cache."""
    return _Block(layout, partial=False).function()


def partial_block(layout: Layout) -> str:
    """The function of the last block if it has fewer environments than lanes. It works on copies of their rows, the last of which is
    repeated for the further lanes."""
    return _Block(layout, partial=True).function()


def number_of_turns(layout: Layout) -> list[str]:
    """The number of turns as ``%turns``, and whether results are stacked as ``%stacked``, 1 or 0."""
    if layout.turns is None:
        return ["  %turns = add i64 1, 0", "  %stacked = add i64 0, 0"]
    return [
        f"  %turns.p = getelementptr ptr, ptr %operands, i64 {layout.inputs - 1}", "  %turns.data = load ptr, ptr %turns.p",
        "  %turns.i = load i32, ptr %turns.data", "  %turns = sext i32 %turns.i to i64",
        "  %stacked.p = getelementptr i32, ptr %turns.data, i64 1", "  %stacked.i = load i32, ptr %stacked.p",
        "  %stacked = sext i32 %stacked.i to i64",
    ]  # fmt: skip


class Places(NamedTuple):
    """Where rows of the environments of a block are in its scratch memory, after what the program has there: copies of operands and results
    of a partial block, and of results that are added up over the turns also the sums. size: of the whole memory."""

    operands: dict[int, int]
    results: dict[int, int]
    sums: dict[int, int]
    size: int


def places_of_rows(layout: Layout) -> Places:
    """What is carried has one place. A block with one lane is never partial."""
    places = Places({}, {}, {}, 0)
    turns, size = layout.turns or ONE_TURN, layout.scratch
    carried = dict(turns.carried)

    def reserved(row: int) -> int:
        nonlocal size
        place = -(-size // ALIGNMENT) * ALIGNMENT
        size = place + row * layout.lanes
        return place

    for i, row in enumerate(layout.operand_rows):
        if row and layout.lanes > 1:
            places.operands[i] = reserved(row)
    for k, row in enumerate(layout.result_rows):
        if row and (layout.lanes > 1 or k in turns.added):
            shared = places.operands.get(carried.get(k, -1))
            places.results[k] = reserved(row) if shared is None else shared
    for k in turns.added:
        if layout.result_rows[k]:
            places.sums[k] = reserved(layout.result_rows[k])
    return places._replace(size=size)


class _Block:
    """Writes the function of a block: the loop over its turns, around the function ``block`` of the program.

    That finds the numbers of the block in the arrays of pointers ``%now.operands`` and ``%now.results``, in the rows from ``%first`` on. In
    a partial block these are the places of the copies, and the rows begin at 0."""

    def __init__(self, layout: Layout, partial: bool):
        self.layout, self.partial, self.places = layout, partial, places_of_rows(layout)
        self.turns = layout.turns or ONE_TURN
        self.of_turn = {*self.turns.sequences, *self.turns.previous}
        self.lines: list[str] = []

    def function(self) -> str:
        name, first = ("partial_block", "0") if self.partial else ("whole_block", "%first")
        self.begin()
        self.begin_turn()
        self.lines.append(f"  call void @block(ptr %now.operands, ptr %now.results, ptr %slots, ptr %sums, ptr %scratch, i64 {first}, i64 %rows.end)")
        self.end_turn()
        self.end()
        return "\n".join([f"define internal void @{name}({ARGUMENTS}) noinline {{", "entry:", *self.lines, "  ret void", "}"])

    def begin(self) -> None:
        """The pointers to the numbers of all turns, and the sums."""
        layout, lines = self.layout, self.lines
        rows = "%rows = sub i64 %count, %first" if self.partial else f"%rows = add i64 {layout.lanes}, 0"
        lines += [f"  {rows}", f"  %rows.end = add i64 {'%rows' if self.partial else '%count'}, 0"]
        for kind, rows_of in (("operand", layout.operand_rows), ("result", layout.result_rows)):
            number = len(rows_of)
            lines += [
                f"  %now.{kind}s = alloca [{max(number, 1)} x ptr]",
                f"  call void @llvm.memcpy.p0.p0.i64(ptr %now.{kind}s, ptr %{kind}s, i64 {8 * number}, i1 false)",
            ]  # fmt: skip
            for i, row in enumerate(rows_of):
                lines += [
                    f"  %now.{kind}{i} = getelementptr ptr, ptr %now.{kind}s, i64 {i}", f"  %{kind}{i} = load ptr, ptr %now.{kind}{i}",
                    f"  %{kind}{i}.offset = mul i64 %first, {row}",
                ]  # fmt: skip
        for n, i in enumerate(self.turns.previous):
            lines += [
                f"  %previous{i}.p = getelementptr ptr, ptr %operands, i64 {layout.operands + n}", f"  %previous{i} = load ptr, ptr %previous{i}.p",
            ]  # fmt: skip
        for kind, places in (("operand", self.places.operands), ("result", self.places.results), ("sum", self.places.sums)):
            lines += [f"  %{kind}{i}.place = getelementptr i8, ptr %scratch, i64 {place}" for i, place in places.items()]
        for k in self.places.sums:
            lines.append(f"  call void @llvm.memset.p0.i64(ptr %sum{k}.place, i8 0, i64 {layout.result_rows[k] * layout.lanes}, i1 false)")
        if self.partial:
            for i in self.places.operands:
                self.use(f"operand{i}", f"%operand{i}.place")
                if i not in self.of_turn:
                    self.copy_operand(i, f"%operand{i}")
            for k in self.places.results:
                self.use(f"result{k}", f"%result{k}.place")
        lines += number_of_turns(layout)

    def use(self, name: str, pointer: str) -> None:
        """Give ``block`` this pointer to the numbers of an operand or result."""
        self.lines.append(f"  store ptr {pointer}, ptr %now.{name}")

    def copy_operand(self, i: int, pointer: str) -> None:
        """Copy the rows of a partial block. pointer: to the row of the first environment of all."""
        layout, name = self.layout, f"%operand{i}.copied{len(self.lines)}"
        self.lines += [
            f"  {name} = getelementptr i8, ptr {pointer}, i64 %operand{i}.offset",
            f"  call void @padded(ptr %operand{i}.place, ptr {name}, i64 {layout.operand_rows[i]}, i64 %rows, i64 {layout.lanes})",
        ]  # fmt: skip

    def begin_turn(self) -> None:
        """The number of the turn, and what it has of its own."""
        begin = "%turns.last" if self.turns.reverse else "0"
        self.lines += [
            "  %turns.last = sub i64 %turns, 1", "  br label %turn", "turn:", f"  %now = phi i64 [ {begin}, %entry ], [ %following, %turn ]",
            "  %now.rows = mul i64 %now, %count", "  %before.rows = sub i64 %now.rows, %count", "  %is.first = icmp eq i64 %now, 0",
            "  %stacked.rows = mul i64 %now.rows, %stacked",
        ]  # fmt: skip
        for i in sorted(self.of_turn):
            pointer = self.operand_of_turn(i)
            if self.partial and i in self.places.operands:
                self.copy_operand(i, pointer)
            elif not self.partial:
                self.use(f"operand{i}", pointer)
        for k in range(self.layout.results):
            if k in self.turns.stacked:
                self.rows_from(f"result{k}.turn", f"%result{k}", "%stacked.rows", self.layout.result_rows[k])
                if not self.partial:
                    self.use(f"result{k}", f"%result{k}.turn")
            elif k in self.places.sums and not self.partial:
                self.lines += [
                    f"  %result{k}.back = sub i64 0, %result{k}.offset", f"  %result{k}.turn = getelementptr i8, ptr %result{k}.place, i64 %result{k}.back",
                ]  # fmt: skip
                self.use(f"result{k}", f"%result{k}.turn")

    def operand_of_turn(self, i: int) -> str:
        """The pointer to the numbers of an operand of which each turn has its own."""
        row = self.layout.operand_rows[i]
        if i in self.turns.sequences:
            return self.rows_from(f"operand{i}.turn", f"%operand{i}", "%now.rows", row)
        before = self.rows_from(f"operand{i}.before", f"%previous{i}", "%before.rows", row)
        self.lines.append(f"  %operand{i}.turn = select i1 %is.first, ptr %operand{i}, ptr {before}")
        return f"%operand{i}.turn"

    def rows_from(self, name: str, pointer: str, rows: str, row: int) -> str:
        """The pointer to what begins after a number of rows."""
        self.lines += [f"  %{name}.bytes = mul i64 {rows}, {row}", f"  %{name} = getelementptr i8, ptr {pointer}, i64 %{name}.bytes"]
        return f"%{name}"

    def end_turn(self) -> None:
        """What the next turn is given, and what the results of this one are added or copied to."""
        layout, turns = self.layout, self.turns
        for k in self.places.sums:
            count = layout.result_rows[k] * layout.lanes
            self.lines.append(f"  call void @add_{layout.result_types[k]}(ptr %sum{k}.place, ptr %result{k}.place, i64 {count})")
        if self.partial:
            for k in sorted(self.places.results.keys() & {*turns.stacked}):
                self.copy_result(k, f"%result{k}.turn", f"%result{k}.place")
        else:
            for k, i in turns.carried:
                self.use(f"operand{i}", f"%result{k}.turn" if k in turns.stacked else f"%result{k}")
        step, more = ("-1", "sge i64 %following, 0") if turns.reverse else ("1", "slt i64 %following, %turns")
        self.lines += [
            f"  %following = add i64 %now, {step}", f"  %again = icmp {more}", "  br i1 %again, label %turn, label %end", "end:"
        ]  # fmt: skip

    def end(self) -> None:
        """The results that no turn has of its own."""
        for k in range(self.layout.results):
            if k in self.places.sums:
                self.copy_result(k, f"%result{k}", f"%sum{k}.place")
            elif self.partial and k in self.places.results and k not in self.turns.stacked:
                self.copy_result(k, f"%result{k}", f"%result{k}.place")

    def copy_result(self, k: int, pointer: str, place: str) -> None:
        """Copy the rows of a block to a result. pointer: to the row of the first environment of all."""
        row = self.layout.result_rows[k]
        self.lines += [
            f"  %result{k}.to = getelementptr i8, ptr {pointer}, i64 %result{k}.offset", f"  %result{k}.bytes = mul i64 %rows, {row}",
            f"  call void @llvm.memcpy.p0.p0.i64(ptr %result{k}.to, ptr {place}, i64 %result{k}.bytes, i1 false)",
        ]  # fmt: skip
