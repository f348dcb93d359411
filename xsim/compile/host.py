"""The functions of a program for a processor, in LLVM IR, and how XLA calls them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import numpy as np

from xsim.compile.blocks import ALIGNMENT, Layout, Row, Sum, Turns
from xsim.compile.elementary import RARE, definitions
from xsim.compile.handler import handler
from xsim.compile.llvm_ir import SLOT_SIZE, Definition, Emitter
from xsim.compile.llvm_types import Target, alignment_of, memory_type
from xsim.compile.machine import vector_registers
from xsim.compile.parts import CPU_LIMITS, Divided, Divider, Lifetimes, Output, Part, parts_of, places_of, read_by, results_of, width_of
from xsim.compile.program import BOOL, Input, Program, Store
from xsim.compile.registers import Allocator, Memory, Moves, Use

BYTE = np.dtype(np.int8)
ALIGNED_FRAME = f'alignstack({ALIGNMENT}) "stackrealign"'
"""Attributes of a function in whose frame no vector crosses a line of the cache, which doubles the time to load or store it. The frame that
a function is given has an alignment of 16 bytes, and LLVM does not align it for vectors that it spills."""


class HostEmitter(Emitter):
    """For a processor: a function of the values of the call, and one of a block of environments.

    * ``void uniform(ptr operands, ptr slots)``
    * ``void block(ptr operands, ptr results, ptr slots, ptr sums, ptr scratch, i64 first, i64 count)``: environments first, first + 1, ...
      of count. Of each number of the environments the arrays have a vector with one environment per lane; lanes after the last environment
      have no meaning but must not be undefined. It calls the functions of its parts (`xsim.compile.parts`), which have the same parameters.
    * ``ptr handler(ptr frame)``: calls them for all environments, as a function of XLA's foreign function interface.

    Each part of a divided program is a module of its own: several of them are compiled at a time.

    operands, results: arrays of pointers to numbers. scratch: memory of the block. sizes: of an environment's numbers of each operand.
    batched: which operands have environments. summed: which results are sums over the environments. turns: None if the function does not
    repeat."""

    limits = CPU_LIMITS
    stores_early = False
    """See `Divider`."""

    def __init__(
        self, program: Program, target: Target, sizes: list[int], batched: list[bool], summed: list[bool], turns: Turns | None = None
    ):  # fmt: skip
        super().__init__(program, target)
        self.sizes, self.summed, self.turns = sizes, summed, turns
        results = [("result", k) for k, s in enumerate(summed) if not s]
        sequences = () if turns is None else turns.sequences
        operands = [("operand", i) for i, b in enumerate(batched) if b and i not in sequences]
        self.counted = next(iter(operands + results), None)  # the array whose first axis is that of the environments
        self.first_sum: dict[int, int] = {}
        total = 0
        for k, values in enumerate(program.outputs):
            if summed[k]:
                self.first_sum[k] = total
                total += len(values)

    def begin(self, part: Part | None = None) -> None:
        super().begin(part)
        self.pointers: dict[int | str, str] = {}  # to operands and results

    def modules(self) -> list[str]:
        """The modules of all functions."""
        uniform, parts, block = self.functions()
        calling = [block, handler(self.layout())]
        if len(parts) == 1:
            return [self.module_of([uniform, *parts], calling)]
        functions = [uniform, *parts]
        return [*(self.module_of([x]) for x in functions), self.module_of([], [*(x.declaration for x in functions), *calling])]

    def module_of(self, functions: Sequence[Definition], further: Sequence[str]=()) -> str:
        """A module of functions, with the constants and the elementary functions to which they refer, and of further text."""
        used = {name for x in functions for name in x.constants}
        constants = [f"{name} = {text}" for name, text in self.definitions.items() if name in used]
        elementary = definitions({key for x in functions for key in x.elementary}, self.target.gpu)
        return "\n".join([*constants, elementary, *(x.text for x in functions), *further, "!0 = !{}", RARE, ""])

    def functions(self) -> tuple[Definition, list[Definition], str]:
        """``uniform``, the parts, and the text of ``block``."""
        read = self._read_by_environments()
        divider = Divider(self.program, self.live, self.scheduler, self.limits, self.operations, self.stores_early)
        uniform = self._uniform(read, "noinline optnone" if divider.divides_loops else "")
        divided = divider.divided()
        self.places = places_of(self.program, Lifetimes(self.program, self.live, self.scheduler, divided), self.target.lanes)
        self.offsets, self.scratch = {}, self.places.size
        parts = list(parts_of(divided))
        self.moves = [self._moves(part) for part in parts]
        return uniform, [self._part(part, len(parts) == 1) for part in parts], self._block_function(self._calls(divided))

    def _uniform(self, read: set[int], attributes: str) -> Definition:
        """The function of the values of the call. read: those that the environments read. attributes: of the function. LLVM takes long for
        the code of a long program, and it is evaluated once."""
        p = self.program
        values = sorted(x for x in read if p.names[x] != "array")
        self.slot_count = len(values)
        for x in sorted(x for x in read if p.names[x] == "array" and not self.is_constant(x)):
            self.slots[x] = self.slot_count
            self.slot_count += math.ceil(len(p.arguments[x]) * p.types[x].itemsize / SLOT_SIZE)
        self.begin()
        items = self.scheduler.ordered(p.call, values)
        waiting = sorted(self._waiting(items) - {*values})
        slots = {x: self.slot_count + k for k, x in enumerate(waiting)} | {x: k for k, x in enumerate(values)}
        self.slot_count += len(waiting)
        for item in items:
            self.item(item)
            for x in results_of(item):
                if x in slots:
                    self._write_slot(x, slots[x])
        return self.definition(self._uniform_function(attributes))

    def _waiting(self, items: list) -> set[int]:
        """Further values of the call that are in slots until they are read."""
        return set()

    def _uniform_function(self, attributes: str) -> str:
        head = f"void @uniform(ptr noalias %operands, ptr noalias %slots) {attributes}"
        scratch = f"  %scratch = alloca [{self.scratch} x i8], align 64"
        return self._function(head, [scratch, *self.prologue, *self.lines])

    def _part(self, part: Part, only: bool) -> Definition:
        """The function of a part. only: whether there is no other one, so that it is the block's own."""
        self.begin(part)
        self.prologue += self._begin_part()
        for item, moves in zip(part.items, self.moves[part.index], strict=True):
            self.moved_item(item, moves)
        returned = "" if part.test is None else f"i1 {self.test(part.test)}"
        linkage = "internal " if only or self.target.gpu else ""
        attributes = "alwaysinline" if only else f"noinline {ALIGNED_FRAME}"
        head = f"{linkage}{'i1' if returned else 'void'} @part{part.index}({self._parameters()}) {attributes}"
        return self.definition(self._function(head, [*self.prologue, *self.lines], returned))

    def _moves(self, part: Part) -> list[Moves]:
        """What is loaded and stored around each item of a part. A GPU's assembler does this."""
        if self.target.gpu:
            return [Moves()] * len(part.items)
        uses = [self._use(item) for item in part.items]
        values = {x for use in uses for x in (*use.reads, *use.computes)}
        widths = {x: width_of(self.program, x, self.target.lanes) for x in values}
        memory, in_memory = Memory(self.places.size), {x for x in values if x in self.places or x in self.places.recomputed}
        moves = Allocator(uses, in_memory, widths, vector_registers(), memory).moves()
        self.scratch = max(self.scratch, memory.end)
        return moves

    def _use(self, item) -> Use:
        """Of an item of a part. Booleans and what all environments share are in other registers."""
        p = self.program

        def in_registers(values) -> list[int]:
            vectors = (x for x in dict.fromkeys(values) if p.varying[x] and p.types[x] != BOOL)
            return [x for x in vectors if p.names[x] not in ("array", "buffer", "constant")]

        is_operation = isinstance(item, Store) or (isinstance(item, int) and p.names[item] != "array")
        return Use(in_registers(read_by(item, p, self.live, self.scheduler)), is_operation, in_registers(results_of(item)))

    def _calls(self, divided: Divided) -> list[str]:
        """The calls of the parts, and the divided loops around them."""
        lines: list[str] = []
        for x in divided:
            if isinstance(x, Part):
                lines.append(f"  {'call void' if x.test is None else f'%proceed{x.index} = call i1'} @part{x.index}({self._parameters()})")
                continue
            test = x.condition[-1].index
            lines += [
                f"  br label %head{test}", f"head{test}:", *self._calls(x.condition),
                f"  br i1 %proceed{test}, label %body{test}, label %end{test}", f"body{test}:", *self._calls(x.body),
                f"  br label %head{test}", f"end{test}:",
            ]  # fmt: skip
        return lines

    def _parameters(self) -> str:
        """The parameters of ``block`` and of the parts."""
        return ", ".join([*(f"ptr noalias %{x}" for x in ("operands", "results", "slots", "sums", "scratch")), "i64 %first", "i64 %count"])

    def _block_function(self, calls: list[str]) -> str:
        return f"define void @block({self._parameters()}) noinline {ALIGNED_FRAME} {{\nentry:\n" + "\n".join([*calls, "  ret void", "}"])

    def _read_by_environments(self) -> set[int]:
        """The values of the call that operations, loops and results of the environments read."""
        p = self.program
        read = {x for values in p.outputs for x in values}
        carried: dict[int, tuple[int, int, int]] = {}
        for x in self.live:
            if p.scopes[x] is not p.call:
                read.update(p.arguments[x])
                if p.names[x] == "phi":
                    read.update(p.carried_from(x, carried))
                elif p.names[x] == "buffer":
                    read.update(y for store, _ in p.stores.get(x, ()) for y in (store.index, store.value))
        return {x for x in map(p.original, read) if p.scopes[x] is p.call and p.names[x] != "constant"}

    def _function(self, head: str, body: list[str], returned: str = "") -> str:
        """head: name, type and parameters. returned: type and name of what it returns."""
        proceed = "  %proceed = icmp ne ptr %slots, null"  # true, which LLVM does not know
        end = [f"  ret {returned}", "leave:", "  ret i1 false"] if returned else ["  br label %leave", "leave:", "  ret void"]
        return "\n".join([f"define {head} {{", "entry:", proceed, *body, *end, "}"])

    def _write_slot(self, x: int, slot: int) -> None:
        """Store a value of the call. Later basic blocks of ``uniform`` load it: no register or place on the stack is needed in between."""
        kind = self.target.type(self.program.types[x], False)
        address = self.result(f"getelementptr i64, ptr %slots, i64 {slot}")
        self.write(f"store {kind} {self.names[x]}, ptr {address}")
        self.slots[x], self.recent[x, False] = slot, self.names.pop(x)

    def loaded_slot(self, x: int) -> str:
        address = self.result(f"getelementptr i64, ptr %slots, i64 {self.slots[x]}")
        unchanged = ", !invariant.load !0" if self.part else ""
        return self.result(f"load {self.target.type(self.program.types[x], False)}, ptr {address}{unchanged}")

    def _pointer(self, operand: int) -> str:
        """The pointer to an operand."""
        name = self.pointers.get(operand)
        if name is None:
            name = self.pointers[operand] = f"%operand{operand}"
            self.prologue.append(f"  %operandp{operand} = getelementptr ptr, ptr %operands, i64 {operand}")
            self.prologue.append(f"  {name} = load ptr, ptr %operandp{operand}, !invariant.load !0")
        return name

    def _numbers(self, operand: int, dtype: np.dtype) -> str:
        """The pointer to the numbers that the environments have in an operand."""
        return self._pointer(operand)

    def read(self, source: Input, dtype: np.dtype, varying: bool) -> str:
        kind = self.target.type(np.dtype(np.int8) if dtype == BOOL else dtype, varying)
        place = memory_type(dtype) if not varying else kind
        numbers = self._numbers(source.operand, dtype) if varying else self._pointer(source.operand)
        address = self.result(f"getelementptr {place}, ptr {numbers}, i64 {source.element}")
        unchanged = f", align {alignment_of(dtype, self.target.lanes)}" if varying else ", !invariant.load !0"
        out = self.result(f"load {kind}, ptr {address}{unchanged}")
        if dtype == BOOL:
            out = self.result(f"icmp ne {kind} {out}, {'zeroinitializer' if kind.startswith('<') else '0'}")
        return out

    def _begin_part(self) -> list[str]:
        """What a part computes first: the environment of each lane."""
        lanes = self.target.lanes
        if lanes == 1:
            return ["  %lane = add i64 %first, 0", "  %lane.valid = icmp ult i64 %lane, %count"]
        kind = f"<{lanes} x i64>"

        def spread(name: str, number: str) -> list[str]:
            return [
                f"  {name}.one = insertelement {kind} poison, i64 {number}, i32 0",
                f"  {name} = shufflevector {kind} {name}.one, {kind} poison, <{lanes} x i32> zeroinitializer",
            ]  # fmt: skip

        return [
            *spread("%lane.first", "%first"), *spread("%lane.count", "%count"),
            f"  %lane = add {kind} %lane.first, <{', '.join(f'i64 {i}' for i in range(lanes))}>",
            f"  %lane.valid = icmp ult {kind} %lane, %lane.count",
        ]  # fmt: skip

    def output(self, item: Output) -> None:
        if self.summed[item.result]:
            self._add_to_sums(item.result, self.program.outputs[item.result])
        else:
            self._store_result(item)

    def _store_result(self, item: Output) -> None:
        k, values = item.result, self.program.outputs[item.result]
        dtype, name = self.program.types[values[0]], f"%result{k}"
        if name not in self.pointers:
            self.pointers[name] = self._result_pointer(k, dtype)
        kind = self.target.type(BYTE if dtype == BOOL else dtype)
        for i in item.entries:
            value, address = self._in_memory(values[i], dtype), self.result(f"getelementptr {kind}, ptr {self.pointers[name]}, i64 {i}")
            self.write(f"store {kind} {value}, ptr {address}, align {alignment_of(dtype, self.target.lanes)}")

    def _in_memory(self, x: int, dtype: np.dtype) -> str:
        """A value as it is stored: booleans are bytes."""
        value, kind = self.value(x, True), self.target.type(dtype)
        return self.result(f"zext {kind} {value} to {self.target.type(BYTE)}") if dtype == BOOL else value

    def _result_pointer(self, k: int, dtype: np.dtype) -> str:
        """The pointer to the numbers that the environments have in a result."""
        self.prologue.append(f"  %resultp{k} = getelementptr ptr, ptr %results, i64 {k}")
        self.prologue.append(f"  %result{k} = load ptr, ptr %resultp{k}, !invariant.load !0")
        return f"%result{k}"

    def _add_to_sums(self, k: int, values: list[int]) -> None:
        """Add the values of the environments of this block; lanes after the last environment count as zero."""
        p, t = self.program, self.target
        for i, x in enumerate(values):
            if p.number(x) == 0:
                continue
            kind = t.type(p.types[x])
            zero = "zeroinitializer" if t.lanes > 1 else "0.0"
            value = self.result(f"select {t.type(BOOL)} %lane.valid, {kind} {self.value(x, True)}, {kind} {zero}")
            address = self.result(f"getelementptr {kind}, ptr %sums, i64 {self.first_sum[k] + i}")
            before = self.result(f"load {kind}, ptr {address}")
            self.write(f"store {kind} {self.result(f'fadd {kind} {before}, {value}')}, ptr {address}")

    def layout(self) -> Layout:
        """What the function that XLA calls has to know."""
        p = self.program
        sums = [(k, len(v)) for k, (v, summed) in enumerate(zip(p.outputs, self.summed, strict=True)) if summed]
        dtype = next((p.types[p.outputs[k][0]] for k, size in sums if size), np.dtype(np.float32))
        return Layout(
            operands=len(self.sizes), results=len(p.outputs), slots=self.slot_count, scratch=self.scratch,
            lanes=self.target.lanes, counted=self.counted, sums=tuple(Sum(k, size, self.first_sum[k]) for k, size in sums),
            number=self.target.type(dtype), size=dtype.itemsize, operations=sum(self.operations.values()),
            devices=jax.local_device_count("cpu"), operand_rows=self._operand_rows(), result_rows=self._result_rows(),
            turns=self.turns,
        )  # fmt: skip

    def _operand_rows(self) -> tuple[Row, ...]:
        p, read = self.program, [set() for _ in self.sizes]
        rows = [Row(0)] * len(self.sizes)
        for x in self.live:
            if p.names[x] == "input" and p.varying[x]:
                operand, element = p.data[x].operand, p.data[x].element
                read[operand].add(element)
                rows[operand] = Row(self.sizes[operand], memory_type(p.types[x]), p.types[x].itemsize)
        return tuple(row._replace(read=tuple(sorted(elements))) for row, elements in zip(rows, read, strict=True))

    def _result_rows(self) -> tuple[Row, ...]:
        types = self.program.types
        return tuple(
            Row(0) if is_sum or not values else Row(len(values), memory_type(types[values[0]]), types[values[0]].itemsize)
            for values, is_sum in zip(self.program.outputs, self.summed, strict=True)
        )
