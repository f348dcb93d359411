"""LLVM IR of a program.

A varying value is a vector with one number for each environment of a block (`Target.lanes`), or a single number where each thread of a GPU
has one environment. A loop whose condition varies runs until no environment of the block needs another turn. Environments that are done
keep their values. The text is for LLVM 20 and later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from xsim.compile.elementary import ELEMENTARY
from xsim.compile.llvm_types import NAMES, Target, alignment_of, gather, literal, lookup, memory_type, scatter, suffix, vector_suffix
from xsim.compile.parts import MIN_BITS, Assignment, Output, Part, Places, results_of
from xsim.compile.placement import placement_of
from xsim.compile.program import BLOCK_MAX, BLOCK_OR, BOOL, INDEX, Input, Loop, Program, Scope, Store
from xsim.compile.registers import Moves
from xsim.compile.scheduling import Scheduler

MASK = np.dtype(np.int32)
"""Type of booleans in scratch memory, of blocks of few environments."""
SLOT_SIZE = 8
"""Bytes of a slot: the memory in which an environment finds a value of the call, or numbers of a uniform array."""
MAX_BLOCK = 600
"""Instructions of a basic block. Longer ones are divided, by branches that are always taken: LLVM's schedulers take time that grows faster
than the size of a block."""


class Definition(NamedTuple):
    """A function. constants: names of the constant arrays to which it refers. elementary: the elementary functions, as in
    `xsim.compile.elementary.definitions`."""

    text: str
    constants: set[str]
    elementary: set[tuple[str, bool, int]]

    @property
    def declaration(self) -> str:
        """Its text in other modules."""
        return "declare" + self.text.partition(" {\n")[0].removeprefix("define")


MAX_LOADED, MAX_ADDED = 9, 16
"""Rows among which an entry is loaded, or added to, by selecting. On a Zen 4, six entries of 16 lanes are loaded among 8 rows in 14 ns, and
by gathers in 32; six are added to among 8 rows in 30 ns, among 16 in 60, and by gathers and scatters in 74 (script not committed)."""
TABLE_ITEM, TABLE_VECTOR = 4, 16
"""Bytes of an entry of an array that `lookup` reads, and the most entries that it reads at once, also after the end of the array."""


@dataclass(frozen=True)
class Element:
    """An entry of an array in memory. address: LLVM's name of its address, or of the vector of addresses if ``each`` environment has its
    own. lanes: environments whose entries lie together. space: the address space, as in types of pointers."""

    address: str
    lanes: int
    each: bool
    space: str


class Emitter:
    """Writes the function of a program."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        live = program.live()
        self.operations = program.count(live)  # by depth of loops
        self.placement = placement_of(program, live)
        arguments = self.placement.arguments(program)
        self.live = program.live(arguments) if arguments else live
        self.scheduler = Scheduler(program, self.live, arguments)
        self.constants: dict[int, str] = {}  # names of constant arrays
        self.definitions: dict[str, str] = {}  # texts of constant arrays, by name
        self.slots: dict[int, int] = {}  # of uniform values that the environments read, and the first one of each uniform array
        self.slot_count = 0
        self.places = Places()
        self.offsets: dict[int, int] = {}  # of the other arrays in scratch memory
        self.scratch = 0  # bytes of scratch memory so far
        self.count = 0
        self.forms: dict[tuple, str] = {}  # texts of operations, with places for their arguments, see `operation`
        self.begin()

    def begin(self, part: Part | None = None) -> None:
        """Begin a function, of a part of what is computed for an environment."""
        self.part = part
        self.used_constants: set[str] = set()
        self.used_elementary: set[tuple[str, bool, int]] = set()
        self.lines: list[str] = []
        self.prologue: list[str] = []
        self.block, self.in_block = "entry", 0
        self.recent: dict[Any, str] = {}  # what the basic block has loaded
        self.names: dict[int, str] = {}  # of values
        self.memories: dict[int, str] = {}  # addresses of arrays in scratch memory
        self.spread: list[dict] = [{}]  # by scope: vectors of uniform values, rows of arrays
        self.active: list[str] = []  # conditions of the loops around
        self.spilled: dict[int, int] = {}  # places in scratch memory of values that have left the registers

    def definition(self, text: str) -> Definition:
        """The function that has been written. text: of all of it."""
        return Definition(text, self.used_constants, self.used_elementary)

    # ---- text ------------------------------------------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        self.lines.append("  " + line)
        self.in_block += 1
        if self.in_block > MAX_BLOCK and not line.startswith("br "):
            self.count += 1
            self.lines.append(f"  br i1 %proceed, label %next{self.count}, label %leave")
            self.label(f"next{self.count}")

    def result(self, operation: str) -> str:
        """The name of the result of an operation."""
        name = self.new_name()
        self.write(f"{name} = {operation}")
        return name

    def new_name(self) -> str:
        """A name that no value has."""
        self.count += 1
        return f"%t{self.count}"

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block, self.in_block = name, 0
        self.recent = {}

    def value(self, x: int, varying: bool) -> str:
        """The name of a value, as a vector if ``varying``."""
        p, vector = self.program, varying and self.target.lanes > 1
        x = p.original(x)
        found = self.names.get(x)
        if found is not None and (not vector or p.varying[x]):
            return found
        if p.names[x] == "constant":
            text = literal(p.data[x])
            return f"splat ({NAMES[p.types[x].str[1:]]} {text})" if vector else text
        if x in self.slots:
            return self.slot(x, vector)
        name = found or self.loaded(x)
        if not vector or p.varying[x]:
            return name
        for known in self.spread:
            if x in known:
                return known[x]
        out = self.vector(name, p.types[x])
        self.spread[-1][x] = out
        return out

    def vector(self, name: str, dtype: np.dtype) -> str:
        """A vector of equal numbers."""
        scalar, wide = self.target.type(dtype, False), self.target.type(dtype)
        first = self.result(f"insertelement {wide} poison, {scalar} {name}, i32 0")
        return self.result(f"shufflevector {wide} {first}, {wide} poison, <{self.target.lanes} x i32> zeroinitializer")

    def slot(self, x: int, vector: bool) -> str:
        """A value of the call. It is loaded again in each basic block, for which no register or place on the stack is needed in between."""
        key = x, vector
        if key not in self.recent:
            self.recent[key] = self.vector(self.slot(x, False), self.program.types[x]) if vector else self.loaded_slot(x)
        return self.recent[key]

    # ---- functions -------------------------------------------------------------------------------------------------------------

    def loaded_slot(self, x: int) -> str:
        """Load a value of the call."""
        raise NotImplementedError

    def output(self, item: Output) -> None:
        """Store entries of a result of the program."""
        raise NotImplementedError

    def scope(self, scope: Scope) -> None:
        """The operations of a scope."""
        for item in self.scheduler.ordered(scope):
            self.item(item)

    def item(self, item) -> None:
        """An item of a scope or a part. What other parts read of its results is stored for them."""
        match item:
            case int():
                self.operation(item)
            case Loop():
                self.loop(item)
            case Store():
                self.store(item)
            case Assignment():
                self.assignment(item)
            case Output():
                self.output(item)
        for x in results_of(item):
            if x in self.places and x in self.names:
                self.keep(x, self.names[x])

    def moved_item(self, item, moves: Moves) -> None:
        """An item of a part, and the values that are loaded before it and stored after it."""
        for x in moves.loaded:
            self.names[x] = self.load_again(x)
        self.item(item)
        for x, offset in moves.stored:
            self.spilled[x] = offset
            self.keep(x, self.names[x])
        for x in moves.dropped:
            self.names.pop(x, None)

    # ---- scratch memory --------------------------------------------------------------------------------------------------------

    def _place(self, key: int | Loop) -> tuple[str, str, bool]:
        """Of a value in scratch memory, or of the mask of a loop: its address, its type there, and whether it is a boolean. This is a bit
        for each environment, or an integer with all bits equal, see `xsim.compile.parts.MIN_BITS`."""
        offset = self.spilled[key] if key in self.spilled else self.places.offset(key)
        address = self.result(f"getelementptr i8, ptr %scratch, i64 {offset}")
        dtype, varying = (BOOL, True) if isinstance(key, Loop) else (self.program.types[key], self.program.varying[key])
        if dtype == BOOL and self._has_bits(varying):
            return address, f"i{self.target.lanes}", True
        return address, self.target.type(MASK if dtype == BOOL else dtype, varying), dtype == BOOL

    def _has_bits(self, varying: bool) -> bool:
        """Whether a boolean in scratch memory is a bit for each environment."""
        return varying and self.target.lanes >= MIN_BITS

    def keep(self, key: int | Loop, value: str) -> None:
        """Store a value in its place in scratch memory."""
        address, kind, is_mask = self._place(key)
        if is_mask:
            varying = isinstance(key, Loop) or self.program.varying[key]
            cast = "bitcast" if self._has_bits(varying) else "sext"
            value = self.result(f"{cast} {self.target.type(BOOL, varying)} {value} to {kind}")
        self.write(f"store {kind} {value}, ptr {address}")

    def loaded(self, key: int | Loop) -> str:
        """A value in scratch memory, loaded in each basic block as those of the call are."""
        if key not in self.recent:
            self.recent[key] = self.load_again(key)
        return self.recent[key]

    def load_again(self, key: int | Loop) -> str:
        """Load a value in scratch memory, or compute it from such values."""
        if key in self.places.recomputed and key not in self.spilled:
            self.operation(key)
            return self.names.pop(key)
        address, kind, is_mask = self._place(key)
        name = self.result(f"load {kind}, ptr {address}")
        if not is_mask:
            return name
        if self._has_bits(isinstance(key, Loop) or self.program.varying[key]):
            return self.result(f"bitcast {kind} {name} to {self.target.type(BOOL)}")
        return self.result(f"icmp slt {kind} {name}, {'zeroinitializer' if kind.startswith('<') else '0'}")

    # ---- loops -----------------------------------------------------------------------------------------------------------------

    def proceeds(self, loop: Loop) -> str:
        """Whether a loop has another turn: of each environment, if the number of turns differs between them."""
        if not self.program.varying[loop.proceed]:
            return self.value(loop.proceed, False)
        proceed, around = self.value(loop.proceed, True), self.active_environments()
        return proceed if around is None else self.result(f"and {self.target.type(BOOL)} {proceed}, {around}")

    def active_environments(self) -> str | None:
        """The condition of the innermost loop around whose number of turns differs between environments."""
        if self.active:
            return self.active[-1]
        loops = [x for x in (self.part.loops if self.part else ()) if self.program.varying[x.proceed]]
        return self.loaded(loops[-1]) if loops else None

    def after_turn(self, phi: int, new: str, before: str, proceed: str | None) -> str:
        """A carried value after a turn that not all environments make. proceed: those that do; None: all."""
        if proceed is None or not self.program.varying[phi] or self.target.lanes == 1:
            return new
        kind = self.target.type(self.program.types[phi])
        return self.result(f"select {self.target.type(BOOL)} {proceed}, {kind} {new}, {kind} {before}")

    def test(self, loop: Loop) -> str:
        """Whether any environment makes another turn of a divided loop, as i1."""
        proceed = self.proceeds(loop)
        if not self.program.varying[loop.proceed]:
            return proceed
        self.keep(loop, proceed)
        return self.any(proceed)

    def assignment(self, item: Assignment) -> None:
        """New values of the carried values of a divided loop."""
        p, loop = self.program, item.loop
        carried = [(phi, x) for phi, x in zip(loop.phis, item.values, strict=True) if phi in self.live]
        new = [self.value(x, p.varying[phi]) for phi, x in carried]
        if not item.before and p.varying[loop.proceed]:
            proceed = self.active_environments()
            new = [self.after_turn(phi, name, self.loaded(phi), proceed) for (phi, _), name in zip(carried, new, strict=True)]
        for (phi, _), name in zip(carried, new, strict=True):
            self.keep(phi, name)

    def loop(self, loop: Loop) -> None:
        """A loop, with a phi for each carried value."""
        p, t = self.program, self.target
        self.count += 1
        head, body, end = f"head{self.count}", f"body{self.count}", f"end{self.count}"
        carried = [i for i, phi in enumerate(loop.phis) if phi in self.live]
        starts = [self.value(loop.starts[i], p.varying[loop.phis[i]]) for i in carried]
        before = self.block
        self.write(f"br label %{head}")
        self.label(head)
        for i in carried:
            self.count += 1
            self.names[loop.phis[i]] = f"%p{self.count}"
        at = len(self.lines)
        self.lines += [""] * len(carried)
        self.spread.append({})
        condition, rest = self.scheduler.divided_at_results(loop.condition)
        for item in condition:
            self.item(item)
        by_environment = p.varying[loop.proceed]
        proceed = self.proceeds(loop)
        self.write(f"br i1 {self.any(proceed) if by_environment else proceed}, label %{body}, label %{end}")
        self.label(body)
        if by_environment:
            self.active.append(proceed)
        self.spread.append({})
        for item in rest:
            self.item(item)
        self.scope(loop.body)
        ends = []
        for i in carried:
            phi = loop.phis[i]
            new = self.value(loop.ends[i], p.varying[phi])
            ends.append(self.after_turn(phi, new, self.names[phi], proceed if by_environment else None))
        self.spread.pop()
        if by_environment:
            self.active.pop()
        last = self.block
        self.write(f"br label %{head}")
        self.spread.pop()
        self.label(end)
        for k, (i, start, new) in enumerate(zip(carried, starts, ends, strict=True)):
            phi = loop.phis[i]
            kind = t.type(p.types[phi], p.varying[phi])
            self.lines[at + k] = f"  {self.names[phi]} = phi {kind} [ {start}, %{before} ], [ {new}, %{last} ]"
            self.names[loop.results[i]] = self.names[phi]

    def any(self, condition: str) -> str:
        """Whether a condition holds in any environment of the block."""
        lanes = self.target.lanes
        return condition if lanes == 1 else self.result(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {condition})")

    # ---- operations ------------------------------------------------------------------------------------------------------------

    def operation(self, x: int) -> None:
        """An operation of the program."""
        p = self.program
        name = p.names[x]
        write = OPERATIONS.get(name)
        if write is not None:
            self.names[x] = write(self, x)
            return
        if name == "array":
            self.array(x)
            return
        varying, arguments = p.varying[x], p.arguments[x]
        values = [self.value(a, varying) for a in arguments]
        if name in ELEMENTARY:
            self.names[x] = self.elementary(name, p.types[x], varying, values)
            return
        key = name, p.types[x], p.types[arguments[0]], varying
        if key not in self.forms:
            self.forms[key] = self.instruction(*key, [f"{{{i}}}" for i in range(len(values))])
        self.names[x] = self.result(self.forms[key].format(*values))

    def instruction(self, name: str, dtype: np.dtype, of: np.dtype, varying: bool, values: list[str]) -> str:
        """The text of an operation on values of the type ``of``. dtype: of its result."""
        return _instruction(name, dtype, of, self.target.type(dtype, varying), self.target.type(of, varying), values, self)

    def elementary(self, name: str, dtype: np.dtype, varying: bool, arguments: list[str]) -> str:
        """A call of an elementary function."""
        kind = self.target.type(dtype, varying)
        lanes = self.target.lanes if varying else 1
        self.used_elementary.add((name, dtype.itemsize == 8, lanes))
        return self.result(f"call {kind} @xsim.{name}.{suffix(dtype, lanes)}({', '.join(f'{kind} {a}' for a in arguments)})")

    def intrinsic(self, name: str, dtype: np.dtype, kind: str, *arguments: str) -> str:
        """The text of a call of one of LLVM's functions."""
        lanes = self.target.lanes if kind.startswith("<") else 1
        return f"call {kind} @llvm.{name}.{suffix(dtype, lanes)}({', '.join(f'{kind} {a}' for a in arguments)})"

    def input(self, x: int) -> str:
        """A number of an operand."""
        source: Input = self.program.data[x]
        return self.read(source, self.program.types[x], self.program.varying[x])

    def read(self, source: Input, dtype: np.dtype, varying: bool) -> str:
        raise NotImplementedError

    def array(self, x: int) -> None:
        """An array of values, in scratch memory or in slots; in the constants of the module if all are constant."""
        p = self.program
        dtype, entries, kind = p.types[x], p.arguments[x], memory_type(p.types[x])
        if self.is_constant(x):
            self.count += 1
            number = [int(p.data[e]) if dtype == BOOL else literal(p.data[e]) for e in entries]
            if dtype.itemsize == TABLE_ITEM:  # whole vectors, see `_looked_up`
                number += ["0" if dtype.kind != "f" else "0.0"] * TABLE_VECTOR
            body = ", ".join(f"{kind} {n}" for n in number)
            space = "addrspace(1) " if self.target.gpu else ""
            self.constants[x] = f"@c{self.count}"
            self.definitions[f"@c{self.count}"] = f"internal {space}constant [{len(number)} x {kind}] [{body}], align 64"
            return
        memory = self.address(x)
        vector, lanes = self.target.type(dtype, p.varying[x]), self.target.lanes if p.varying[x] else 1
        for i, entry in self.placement.rest.get(x, enumerate(entries)):
            value = self.value(entry, p.varying[x])
            address = self.result(f"getelementptr [{lanes} x {kind}], ptr {memory}, i32 {i}")
            self.write_memory(vector, dtype, value, address, lanes)

    def is_constant(self, array: int) -> bool:
        """Whether all entries of an array are constants."""
        return all(self.program.names[e] == "constant" for e in self.program.arguments[array])

    def memory(self, array: int) -> str:
        """The address of an array."""
        if array not in self.constants:
            return self.address(array)
        self.used_constants.add(self.constants[array])
        return self.constants[array]

    def address(self, x: int) -> str:
        """The address of an array that is not constant, or of a mutable array."""
        x = self.placement.memory.get(x, x)
        if x not in self.memories:
            memory, offset = ("%slots", SLOT_SIZE * self.slots[x]) if x in self.slots else ("%scratch", self.offset(x))
            self.count += 1
            self.memories[x] = f"%m{self.count}"
            self.prologue.append(f"  %m{self.count} = getelementptr i8, ptr {memory}, i64 {offset}")
        return self.memories[x]

    def offset(self, x: int) -> int:
        """Where an array is in scratch memory."""
        p, t = self.program, self.target
        lanes = t.lanes if p.varying[x] else 1
        if x in self.placement.parts:
            array, first = self.placement.parts[x]
            return self.offset(array) + first * lanes * p.types[x].itemsize
        if x not in self.offsets:
            self.offsets[x] = math.ceil(self.scratch / t.alignment) * t.alignment
            size = p.data[x] if p.names[x] == "buffer" else len(p.arguments[x])
            self.scratch = self.offsets[x] + size * lanes * p.types[x].itemsize
        return self.offsets[x]

    def write_memory(self, kind: str, dtype: np.dtype, value: str, address: str, lanes: int) -> None:
        """Store a value of this LLVM type. Booleans are bytes in memory."""
        value, kind = self.in_memory(kind, dtype, value)
        self.write(f"store {kind} {value}, ptr {address}, align {alignment_of(dtype, lanes)}")

    def in_memory(self, kind: str, dtype: np.dtype, value: str) -> tuple[str, str]:
        """A value and its LLVM type as they are in memory, where booleans are bytes."""
        if dtype != BOOL:
            return value, kind
        wide = self.target.type(np.dtype(np.int8), kind.startswith("<"))
        return self.result(f"zext {kind} {value} to {wide}"), wide

    def store(self, item: Store) -> None:
        """A store to a mutable array."""
        t, dtype, varying = self.target, self.program.types[item.array], self.program.varying[item.array]
        value = self.value(item.value, varying)
        if item.adds and self._is_each(item.index) and len(rows := self.program.rows_at(item.array, item.index, item.offset)) <= MAX_ADDED:
            self._add_selected(item, rows, value)
            return
        at = self.element(item.array, item.index, item.offset)
        if item.adds:
            # As `_add_selected`, a sum at an index that varies is not fused with a product: it does not depend on the number of lanes.
            fused = "" if self.program.varying[item.index] else " contract"
            kind, add = t.type(dtype, varying), f"{FLOAT['add']}{fused}" if dtype.kind == "f" else "add"
            value = self.result(f"{add} {kind} {self._loaded(at, kind, dtype)}, {value}")
        if not at.each:
            self.write_memory(t.type(dtype, varying), dtype, value, at.address, at.lanes)
            return
        value, kind = self.in_memory(t.type(dtype), dtype, value)
        self.write(scatter(kind, memory_type(dtype), t.lanes, value, at.address, dtype.itemsize))

    def load(self, x: int) -> str:
        """An entry of an array. An index that varies reads another row for each environment."""
        p, t = self.program, self.target
        array, index = p.arguments[x]
        dtype = p.types[array]
        if self.target.table and dtype.itemsize == TABLE_ITEM and p.varying[index] and (array in self.constants or array in self.slots):
            return self._looked_up(array, index, p.data[x])
        if dtype != BOOL and self._is_each(index) and p.varying[array] and len(rows := p.rows_at(array, index, p.data[x])) <= MAX_LOADED:
            return self._selected(array, index, p.data[x], rows)
        kind = t.type(np.dtype(np.int8) if dtype == BOOL else dtype, p.varying[x])
        out = self._loaded(self.element(array, index, p.data[x]), kind, dtype)
        if dtype == BOOL:
            out = self.result(f"icmp ne {kind} {out}, {'zeroinitializer' if kind.startswith('<') else '0'}")
        return out

    def _loaded(self, at: Element, kind: str, dtype: np.dtype) -> str:
        """What an array holds at a place. kind: LLVM's type of it."""
        if at.each:
            return self.result(gather(kind, memory_type(dtype), self.target.lanes, at.address, dtype.itemsize))
        return self.result(f"load {kind}, ptr{at.space} {at.address}, align {alignment_of(dtype, at.lanes)}")

    def _is_each(self, index: int) -> bool:
        """Whether an index is another one in each lane."""
        return self.program.varying[index] and self.target.lanes > 1

    def _selected(self, array: int, index: int, offset: int, rows: range) -> str:
        """An entry of an array of vectors for each lane, by a selection among all rows that the index may be."""
        kind, out = self.target.type(self.program.types[array]), ""
        for row, vector in zip(rows, self._vectors(array, offset, rows), strict=True):
            number = self._added(f"load {kind}, ptr {vector}, align {self._alignment(array)}")
            if row != rows[0]:
                choice = f"{self.target.type(BOOL)} {self._is_row(index, row)}, {kind} {number}, {kind} {out}"
                number = self._added(f"select {choice}")
            out = number
        self.in_block += 1
        return out

    def _add_selected(self, item: Store, rows: range, value: str) -> None:
        """Add a value to an entry of an array of vectors for each lane: to all rows that the index may be, which keep other lanes."""
        dtype, alignment = self.program.types[item.array], self._alignment(item.array)
        kind, add = self.target.type(dtype), FLOAT["add"] if dtype.kind == "f" else "add"
        for row, vector in zip(rows, self._vectors(item.array, item.offset, rows), strict=True):
            before = self._added(f"load {kind}, ptr {vector}, align {alignment}")
            total = self._added(f"{add} {kind} {before}, {value}")
            new = self._added(f"select {self.target.type(BOOL)} {self._is_row(item.index, row)}, {kind} {total}, {kind} {before}")
            self.lines.append(f"  store {kind} {new}, ptr {vector}, align {alignment}")
        self.in_block += 1

    def _vectors(self, array: int, offset: int, rows: range) -> Iterator[str]:
        """The addresses of the entries row + offset."""
        kind, memory = self.target.type(self.program.types[array]), self.memory(array)
        return (self._added(f"getelementptr {kind}, ptr {memory}, i32 {row + offset}") for row in rows)

    def _alignment(self, array: int) -> int:
        return alignment_of(self.program.types[array], self.target.lanes)

    def _is_row(self, index: int, row: int) -> str:
        """Whether an index is a number, in each lane, written once per scope."""
        key = (self.program.original(index), row)
        for known in self.spread:
            if key in known:
                return known[key]
        kind = self.target.type(INDEX)
        self.spread[-1][key] = out = self._added(f"icmp eq {kind} {self.value(index, True)}, splat (i32 {row})")
        return out

    def _looked_up(self, array: int, index: int, offset: int) -> str:
        """An entry of a uniform array for each environment: of a short one by an instruction that selects among all, which takes a
        fraction of the time of loads at different addresses.

        It counts as one instruction, whatever the number of lanes. So the basic blocks, within which LLVM fuses products and sums, do not
        depend on that number, and neither do the results."""
        p, lanes, memory = self.program, self.target.lanes, self.memory(array)
        kind, element, rows = f"<{lanes} x i32>", memory_type(p.types[array]), p.rows_at(array, index, offset)
        indices = f"{kind} {self.value(index, True)}"
        if rows.stop <= self.target.table:
            starts = [self._added(f"getelementptr {element}, ptr {memory}, i64 {offset + k}") for k in range(0, rows.stop, lanes)]
            vectors = [self._added(f"load <{lanes} x {element}>, ptr {x}, align {TABLE_ITEM}") for x in starts]
            out = self._added(lookup(element, vectors, indices))
        else:
            indices = f"{kind} {self._added(f'add {indices}, splat (i32 {offset})')}"
            addresses = self._added(f"getelementptr {element}, ptr {memory}, {indices}")
            out = self._added(gather(f"<{lanes} x {element}>", element, lanes, addresses, TABLE_ITEM))
        self.in_block += 1
        return out

    def _added(self, text: str) -> str:
        """The name of the result of an instruction that does not count, see `_looked_up`."""
        name = self.new_name()
        self.lines.append(f"  {name} = {text}")
        return name

    def element(self, array: int, index: int, offset: int) -> Element:
        """Where entry index + offset of an array is."""
        p, t = self.program, self.target
        constant, memory = array in self.constants, self.memory(array)
        lanes = t.lanes if p.varying[array] and not constant else 1
        space = " addrspace(1)" if constant and t.gpu else ""
        each = p.varying[index] and t.lanes > 1
        element = memory_type(p.types[array])
        number = p.number(index)
        if number is not None:
            address = self.result(f"getelementptr [{lanes} x {element}], ptr{space} {memory}, i32 {int(number) + offset}")
            return Element(address, lanes, False, space)
        row = self.row(memory, element, index, lanes, space, each)
        if offset:
            pointers = f"<{t.lanes} x ptr>" if each else f"ptr{space}"
            row = self.result(f"getelementptr [{lanes} x {element}], {pointers} {row}, i32 {offset}")
        return Element(row, lanes, each, space)

    def row(self, memory: str, element: str, index: int, lanes: int, space: str, each: bool) -> str:
        """The address of an entry, or of each environment's own entry, written once per scope."""
        t, key = self.target, (memory, index)
        for known in self.spread:
            if key in known:
                return known[key]
        rows = self.value(index, each)
        if not each:
            out = self.result(f"getelementptr [{lanes} x {element}], ptr{space} {memory}, i32 {rows}")
        else:
            if lanes > 1:
                wide = f"<{t.lanes} x i32>"
                rows = self.result(f"mul {wide} {rows}, splat (i32 {t.lanes})")
                rows = self.result(f"add {wide} {rows}, <{', '.join(f'i32 {i}' for i in range(t.lanes))}>")
            out = self.result(f"getelementptr {element}, ptr {memory}, <{t.lanes} x i32> {rows}")
        self.spread[-1][key] = out
        return out

    def over_block(self, x: int) -> str:
        """An integer that depends on all environments of the block."""
        (argument,), lanes, kind = self.program.arguments[x], self.target.lanes, self.target.type(self.program.types[x], False)
        value = self.value(argument, True)
        if lanes == 1:
            return value
        name = f"llvm.vector.reduce.{REDUCTIONS[self.program.names[x]]}.v{lanes}{kind}"
        return self.result(f"call {kind} @{name}(<{lanes} x {kind}> {value})")

    def convert(self, x: int) -> str:
        """A conversion of types."""
        p = self.program
        (argument,), varying, dtype = p.arguments[x], p.varying[x], p.types[x]
        of, value = p.types[argument], self.value(p.arguments[x][0], varying)
        old, new = self.target.type(of, varying), self.target.type(dtype, varying)
        if old == new:
            return value
        if dtype.kind == "f":
            name = {"f": "fpext" if dtype.itemsize > of.itemsize else "fptrunc", "i": "sitofp"}.get(of.kind, "uitofp")
            return self.result(f"{name} {old} {value} to {new}")
        if of.kind == "f":
            return self._rounded_to_zero(value, of, dtype, varying and self.target.lanes > 1)
        size = "trunc" if dtype.itemsize < of.itemsize else "sext" if of.kind == "i" else "zext"
        return self.result(f"{size} {old} {value} to {new}")


    def _rounded_to_zero(self, value: str, of: np.dtype, dtype: np.dtype, vector: bool) -> str:
        """A number as an integer: the nearest one if it is out of range, zero if it is NaN.

        LLVM's operation would take one lane of a vector after the other. It counts as one instruction, see `_looked_up`."""
        old, new, sign = self.target.type(of, vector), self.target.type(dtype, vector), "s" if dtype.kind == "i" else "u"
        if not vector:
            return self.result(f"call {new} @llvm.fpto{sign}i.sat.{NAMES[dtype.str[1:]]}.{suffix(of, 1)}({old} {value})")
        ends, bits = np.iinfo(dtype), self.target.type(BOOL)
        low, high = (literal(of.type(x)) for x in (float(ends.min), float(ends.max) + 1))  # powers of two, which are exact
        inside = [self._added(f"fcmp {order} {old} {value}, {_constant(x, of, old)}") for order, x in (("oge", low), ("olt", high))]
        safe = self._added(f"select {bits} {self._added(f'and {bits} {inside[0]}, {inside[1]}')}, {old} {value}, {old} zeroinitializer")
        out = self._added(f"fpto{sign}i {old} {safe} to {new}")
        for order, x, end in (("olt", low, ends.min), ("oge", high, ends.max)):
            outside = self._added(f"fcmp {order} {old} {value}, {_constant(x, of, old)}")
            out = self._added(f"select {bits} {outside}, {new} {_constant(str(end), dtype, new)}, {new} {out}")
        self.in_block += 1
        return out


FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem", "and": "and", "or": "or", "xor": "xor", "shift_left": "shl",
    "shift_right_logical": "lshr", "shift_right_arithmetic": "ashr",
}  # fmt: skip
UNSIGNED = {"div": "udiv", "rem": "urem"}
REDUCTIONS = {BLOCK_MAX: "smax", BLOCK_OR: "or"}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round_even": "roundeven", "round_away": "round"}


def _constant(text: str, dtype: np.dtype, kind: str) -> str:
    """A constant of an LLVM type."""
    return f"splat ({NAMES[dtype.str[1:]]} {text})" if kind.startswith("<") else text


def _compare(name: str, of: np.dtype, kind: str, arguments: list[str]) -> str:
    if of.kind == "f":  # NaN is unequal to every number
        return f"fcmp {'une' if name == 'ne' else 'o' + name} {kind} {arguments[0]}, {arguments[1]}"
    sign = "" if name in ("eq", "ne") else "s" if of.kind == "i" else "u"
    return f"icmp {sign}{name} {kind} {arguments[0]}, {arguments[1]}"


def _instruction(name: str, dtype: np.dtype, of: np.dtype, kind: str, of_kind: str, xs: list[str], e: Emitter) -> str:
    """The text of an operation on numbers."""
    floating = of.kind == "f"
    if name in COMPARISONS:
        return _compare(name, of, of_kind, xs)
    if name in FLOAT and floating:
        return f"{FLOAT[name]} contract {kind} {xs[0]}, {xs[1]}"
    if name in INTEGER:
        operation = UNSIGNED.get(name) if dtype.kind == "u" else None
        return f"{operation or INTEGER[name]} {kind} {xs[0]}, {xs[1]}"
    if name == "select_n":
        return f"select {of_kind} {xs[0]}, {kind} {xs[2]}, {kind} {xs[1]}"
    if name in ("max", "min"):
        if floating:
            return f"call nsz {kind} @llvm.{name}imum.{vector_suffix(dtype, kind)}({kind} {xs[0]}, {kind} {xs[1]})"
        return e.intrinsic(("s" if dtype.kind == "i" else "u") + name, dtype, kind, *xs)
    if name == "neg":
        return f"fneg {kind} {xs[0]}" if floating else f"sub {kind} {_constant('0', dtype, kind)}, {xs[0]}"
    if name == "not":
        return f"xor {kind} {xs[0]}, {_constant('true' if dtype == BOOL else '-1', dtype, kind)}"
    if name == "abs":
        if floating:
            return e.intrinsic("fabs", dtype, kind, xs[0])
        return f"call {kind} @llvm.abs.{vector_suffix(dtype, kind)}({kind} {xs[0]}, i1 false)"
    if name == "trailing_zeros":
        return f"call {kind} @llvm.cttz.{vector_suffix(dtype, kind)}({kind} {xs[0]}, i1 false)"
    if name in INTRINSICS:
        return e.intrinsic(INTRINSICS[name], dtype, kind, xs[0])
    raise NotImplementedError(f"LLVM IR of the operation {name}")


def _of_one(e: Emitter, x: int) -> tuple[str, np.dtype, str]:
    """The argument of an operation with a single one, its type, and the LLVM type of that."""
    p = e.program
    (argument,), varying = p.arguments[x], p.varying[x]
    return e.value(argument, varying), p.types[argument], e.target.type(p.types[argument], varying)


def _rsqrt(e: Emitter, x: int) -> str:
    value, dtype, kind = _of_one(e, x)
    root = e.result(e.intrinsic("sqrt", dtype, kind, value))
    return e.result(f"fdiv {kind} {_constant(literal(dtype.type(1)), dtype, kind)}, {root}")


def _is_finite(e: Emitter, x: int) -> str:
    value, dtype, kind = _of_one(e, x)
    size = e.result(e.intrinsic("fabs", dtype, kind, value))
    return e.result(f"fcmp olt {kind} {size}, {_constant(literal(dtype.type(np.inf)), dtype, kind)}")


def _sign(e: Emitter, x: int) -> str:
    value, dtype, kind = _of_one(e, x)
    zero, one, minus = (_constant(literal(dtype.type(number)), dtype, kind) for number in (0, 1, -1))
    compare = ("fcmp ogt", "fcmp olt") if dtype.kind == "f" else ("icmp sgt", "icmp slt")
    positive, negative = [e.result(f"{operation} {kind} {value}, {zero}") for operation in compare]
    mask = e.target.type(BOOL, kind.startswith("<"))
    inner = e.result(f"select {mask} {negative}, {kind} {minus}, {kind} {value}")  # zero and NaN stay
    return e.result(f"select {mask} {positive}, {kind} {one}, {kind} {inner}")


def _bitcast(e: Emitter, x: int) -> str:
    value, _, kind = _of_one(e, x)
    return e.result(f"bitcast {kind} {value} to {e.target.type(e.program.types[x], e.program.varying[x])}")


OPERATIONS: dict[str, Callable] = {
    "input": Emitter.input,
    "load": Emitter.load,
    "convert": Emitter.convert,
    **dict.fromkeys(REDUCTIONS, Emitter.over_block),
    "rsqrt": _rsqrt,
    "is_finite": _is_finite,
    "sign": _sign,
    "bitcast": _bitcast,
}
"""How values are written that are not one instruction whose text depends on types alone. write(emitter, value) -> name."""
