"""What calls the function ``block`` of a program for a block of environments, as text of LLVM IR: the loop over the turns."""

from __future__ import annotations

from collections.abc import Mapping

from xsim.compile.blocks import ALIGNMENT, ONE_TURN, Layout, block_memory

ARGUMENTS = "ptr %operands, ptr %results, ptr %slots, ptr %sums, ptr %scratch, i64 %first, i64 %count"
"""The parameters of ``block``."""

READ, WRITE, NEAREST, DATA = 0, 1, 3, 1
"""Arguments of `llvm.prefetch`: the access, the cache, and what is fetched."""
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


def additions(layout: Layout) -> list[str]:
    """The functions that add arrays, of each type of numbers: the rows of a whole block in vectors, and one number after the other."""
    turns = layout.turns or ONE_TURN
    types = sorted({layout.result_types[k] for k in (*turns.summed, *(k for k, _ in turns.pairs_with_own)) if layout.result_rows[k]})
    vector = f"<{layout.lanes} x {{}}>" if layout.lanes > 1 else "{}"
    return [_addition(*x) for t in types for x in ((f"add_rows_{t}", vector.format(t), t), (f"add_{t}", t, t))]


def _addition(name: str, vector: str, element: str) -> str:
    alignment = {"float": 4, "double": 8}[element]
    return f"""define internal void @{name}(ptr %to, ptr %from, i64 %bytes) {{
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


def whole_block(layout: Layout) -> str:
    """The function of a block whose environments fill all lanes: all its turns. So no block waits for others after a turn, and each finds
    what it carries in the cache."""
    return _BlockFunction(layout, partial=False).text()


def partial_block(layout: Layout) -> str:
    """The function of the last block if it has fewer environments than lanes. It works on copies of their rows, the last of which is
    repeated for the further lanes."""
    return _BlockFunction(layout, partial=True).text()


def number_of_turns(layout: Layout) -> list[str]:
    """``%turns``, ``%stacked`` and ``%own``, see `Turns`."""
    if layout.turns is None:
        return ["  %turns = add i64 1, 0", "  %stacked = add i64 0, 0", "  %own = add i64 0, 0"]
    lines = [f"  %turns.p = getelementptr ptr, ptr %operands, i64 {layout.inputs - 1}", "  %turns.data = load ptr, ptr %turns.p"]
    for k, name in enumerate(("turns", "stacked", "own")):
        lines += [
            f"  %{name}.i.p = getelementptr i32, ptr %turns.data, i64 {k}", f"  %{name}.i = load i32, ptr %{name}.i.p",
            f"  %{name} = sext i32 %{name}.i to i64",
        ]  # fmt: skip
    return lines


class _BlockFunction:
    """Writes the function of a block: the loop over its turns, around the function ``block`` of the program.

    That finds the numbers of the block in the arrays of pointers ``%now.operands`` and ``%now.results``, in the rows from ``%first`` on. In
    a partial block these are pointers to the copies, and the rows begin at 0."""

    def __init__(self, layout: Layout, partial: bool):
        self.layout, self.partial = layout, partial
        self.turns = layout.turns or ONE_TURN
        self.lines: list[str] = []

    def text(self) -> str:
        name, first, end = ("partial_block", "0", "%rows") if self.partial else ("whole_block", "%first", "%count")
        self.begin()
        self.begin_turn()
        self.add_own()
        self.prefetch()
        self.lines.append(
            f"  call void @block(ptr %now.operands, ptr %now.results, ptr %slots, ptr %sums, ptr %scratch, i64 {first}, i64 {end})"
        )
        self.end_turn()
        self.end()
        return "\n".join([f"define internal void @{name}({ARGUMENTS}) noinline {{", "entry:", *self.lines, "  ret void", "}"])

    # ---- instructions --------------------------------------------------------------------------------------------------------------

    def value(self, operation: str) -> str:
        """The result of an instruction."""
        name = f"%x{len(self.lines)}"
        self.lines.append(f"  {name} = {operation}")
        return name

    def after_rows(self, pointer: str, rows: str, row: int) -> str:
        """The pointer to what begins after a number of rows. row: bytes of each."""
        return self.value(f"getelementptr i8, ptr {pointer}, i64 {self.value(f'mul i64 {rows}, {row}')}")

    def pointer(self, array: str, index: int) -> str:
        """A pointer of an array of pointers."""
        return self.value(f"load ptr, ptr {self.value(f'getelementptr ptr, ptr {array}, i64 {index}')}")

    def in_scratch(self, places: Mapping[int, int]) -> dict[int, str]:
        """Pointers to places in scratch memory."""
        return {k: self.value(f"getelementptr i8, ptr %scratch, i64 {x}") for k, x in places.items()}

    def use(self, array: str, index: int, pointer: str) -> None:
        """Give ``block`` a pointer to the numbers of an operand or result. array: "operands" or "results"."""
        self.lines.append(f"  store ptr {pointer}, ptr {self.value(f'getelementptr ptr, ptr %now.{array}, i64 {index}')}")

    def copy(self, to: str, pointer: str, row: int) -> None:
        """Copy the rows of the block."""
        size = self.value(f"mul i64 %rows, {row}")
        self.lines.append(f"  call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {pointer}, i64 {size}, i1 false)")

    def copy_operand(self, i: int, pointer: str) -> None:
        """Copy the rows of a partial block, and repeat the last one. pointer: to the numbers of all environments."""
        row = self.layout.operand_rows[i]
        start = self.after_rows(pointer, "%first", row)
        self.lines.append(f"  call void @padded(ptr {self.copied[i]}, ptr {start}, i64 {row}, i64 %rows, i64 {self.layout.lanes})")

    # ---- all turns -----------------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The pointers to the numbers of all turns, copies of what all turns have in common, and sums that are zero."""
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
        self.copied, self.written, self.totals = (self.in_scratch(x) for x in (memory.operands, memory.results, memory.sums))
        for k, total in self.totals.items():
            self.lines.append(f"  call void @llvm.memset.p0.i64(ptr {total}, i8 0, i64 {layout.result_rows[k] * lanes}, i1 false)")
        if self.partial:
            self.begin_copies()
        self.lines += number_of_turns(layout)
        self.begin_own()

    def begin_copies(self) -> None:
        """A partial block reads and writes copies."""
        for i, place in self.copied.items():
            self.use("operands", i, place)
            if i not in self.turns.sequences and i not in self.turns.previous:
                self.copy_operand(i, self.operands[i])
        for k, place in self.written.items():
            self.use("results", k, place)

    def begin_own(self) -> None:
        """What the first turn is given is copied to the results, where each turn adds its own. Copies of a partial block are there."""
        self.lines += ["  %has.own = icmp ne i64 %own, 0", "  br i1 %has.own, label %copy, label %begin", "copy:"]
        for k, i in () if self.partial else self.turns.pairs_with_own:
            row = self.layout.result_rows[k]
            self.copy(self.after_rows(self.results[k], "%first", row), self.after_rows(self.operands[i], "%first", row), row)
            self.use("operands", i, self.results[k])
        self.lines += ["  br label %begin", "begin:", "  %turns.last = sub i64 %turns, 1", "  br label %turn"]

    def end(self) -> None:
        """The results that no turn has of its own."""
        for k, row in enumerate(self.layout.result_rows):
            place = self.totals.get(k, self.written.get(k) if self.partial and k not in self.turns.stacked else None)
            if place is not None:
                self.copy(self.after_rows(self.results[k], "%first", row), place, row)

    # ---- a turn --------------------------------------------------------------------------------------------------------------------

    def begin_turn(self) -> None:
        """The number of the turn, and what it has of its own."""
        layout, turns = self.layout, self.turns
        self.lines += [
            "turn:", f"  %now = phi i64 [ {'%turns.last' if turns.reverse else '0'}, %begin ], [ %following, %turn.end ]",
            "  %now.rows = mul i64 %now, %count", "  %now.stacked = mul i64 %now.rows, %stacked",
        ]  # fmt: skip
        for i in (*turns.sequences, *turns.previous):
            pointer = self.operand_of_turn(i)
            if not self.partial:
                self.use("operands", i, pointer)
            elif i in self.copied:
                self.copy_operand(i, pointer)
        self.stacked = {k: self.after_rows(self.results[k], "%now.stacked", layout.result_rows[k]) for k in turns.stacked}
        back = self.value("sub i64 0, %first")
        written = {k: self.after_rows(self.written[k], back, layout.result_rows[k]) for k in self.totals}
        for k, pointer in () if self.partial else (self.stacked | written).items():
            self.use("results", k, pointer)

    def operand_of_turn(self, i: int) -> str:
        """The pointer to the numbers of an operand of which each turn has its own."""
        row = self.layout.operand_rows[i]
        if i in self.turns.sequences:
            return self.after_rows(self.operands[i], "%now.rows", row)
        before = self.after_rows(self.previous[i], self.value("sub i64 %now.rows, %count"), row)
        return self.value(f"select i1 {self.value('icmp eq i64 %now, 0')}, ptr {self.operands[i]}, ptr {before}")

    def add_own(self) -> None:
        """Add to what is carried what the turn has of its own."""
        self.lines += ["  br i1 %has.own, label %add, label %call", "add:"]
        for k, own in self.own.items():
            row, kind = self.layout.result_rows[k], self.layout.result_types[k]
            if row:
                carried = self.written[k] if self.partial else self.after_rows(self.results[k], "%first", row)
                own = self.after_rows(self.after_rows(own, "%now.rows", row), "%first", row)
                function, size = f"add_{kind}" if self.partial else f"add_rows_{kind}", self.value(f"mul i64 %rows, {row}")
                self.lines.append(f"  call void @{function}(ptr {carried}, ptr {own}, i64 {size})")
        self.lines += ["  br label %call", "call:"]

    def prefetch(self) -> None:
        """Fetch into the cache what the next turn has of its own. It is not beside that of this turn, so that no processor foresees it."""
        turns, layout = self.turns, self.layout
        if self.partial:
            return
        next_rows = self.value(f"{'sub' if turns.reverse else 'add'} i64 %now.rows, %count")
        stacked, before = self.value(f"mul i64 {next_rows}, %stacked"), self.value(f"sub i64 {next_rows}, %count")
        ahead = [
            *((self.operands[i], next_rows, layout.operand_rows[i], READ) for i in turns.sequences),
            *((self.previous[i], before, layout.operand_rows[i], READ) for i in turns.previous),
            *((self.results[k], stacked, layout.result_rows[k], WRITE) for k in turns.stacked),
        ]  # fmt: skip
        for pointer, rows, row, access in ahead:
            start = self.after_rows(self.after_rows(pointer, rows, row), "%first", row)
            for at in range(0, row * layout.lanes, ALIGNMENT):
                line = self.value(f"getelementptr i8, ptr {start}, i64 {at}")
                self.lines.append(f"  call void @llvm.prefetch.p0(ptr {line}, i32 {access}, i32 {NEAREST}, i32 {DATA})")

    def end_turn(self) -> None:
        """Add up and copy the results of the turn, and give the next one what is carried."""
        layout, turns = self.layout, self.turns
        for k, total in self.totals.items():
            size = layout.result_rows[k] * layout.lanes
            self.lines.append(f"  call void @add_rows_{layout.result_types[k]}(ptr {total}, ptr {self.written[k]}, i64 {size})")
        for k, pointer in self.stacked.items() if self.partial else ():
            if k in self.written:
                self.copy(self.after_rows(pointer, "%first", layout.result_rows[k]), self.written[k], layout.result_rows[k])
        for k, i in () if self.partial else turns.carried:
            self.use("operands", i, self.stacked.get(k, self.results[k]))
        step, more = ("-1", "sge i64 %following, 0") if turns.reverse else ("1", "slt i64 %following, %turns")
        self.lines += [
            "  br label %turn.end", "turn.end:", f"  %following = add i64 %now, {step}", f"  %again = icmp {more}",
            "  br i1 %again, label %turn, label %end", "end:",
        ]  # fmt: skip
