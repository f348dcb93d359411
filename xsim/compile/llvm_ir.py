"""LLVM IR of a program.

A varying value is a vector with one number for each environment of a block (`Target.lanes`), or a single number where each thread of a GPU
has one environment. A loop whose condition varies runs until no environment of the block needs another turn. Environments that are done
keep their values. The text is for LLVM 20 and later.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from xsim.compile.elementary import ELEMENTARY
from xsim.compile.placement import placement_of
from xsim.compile.program import BOOL, Input, Loop, Program, Scope, Store
from xsim.compile.scheduling import Scheduler

NAMES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "i1": "i8", "i2": "i16", "u4": "i32", "u8": "i64", "u1": "i8", "b1": "i1"}
"""LLVM's names of numpy's types."""


MAX_BLOCK = 600
"""Instructions of a basic block. Longer ones are divided, by branches that are always taken: LLVM's schedulers take time that grows faster
than the size of a block."""


@dataclass(frozen=True)
class Target:
    """The machine that a program is compiled for. lanes: environments in a block. gpu: whether a thread executes a block."""

    lanes: int
    gpu: bool = False

    def type(self, dtype: np.dtype, varying: bool = True) -> str:
        """Type of a value."""
        name = NAMES[dtype.str[1:]]
        return f"<{self.lanes} x {name}>" if varying and self.lanes > 1 else name


@dataclass(frozen=True)
class Element:
    """An entry of an array in memory. address: LLVM's name of its address, or of the vector of addresses if ``each`` environment has its
    own. lanes: environments whose entries lie together. space: the address space, as in types of pointers."""

    address: str
    lanes: int
    each: bool
    space: str


def literal(number: np.generic) -> str:
    """A constant of LLVM."""
    if number.dtype == BOOL:
        return "true" if number else "false"
    if number.dtype.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    return str(int(number))


class Emitter:
    """Writes the function of a program."""

    def __init__(self, program: Program, target: Target):
        self.program, self.target = program, target
        self.placement = placement_of(program, program.live())
        arguments = self.placement.arguments(program)
        self.live = program.live(arguments)
        self.scheduler = Scheduler(program, self.live, arguments)
        self.lines: list[str] = []
        self.block, self.in_block = "entry", 0
        self.count = 0
        self.names: dict[int, str] = {}  # of values
        self.memories: dict[int, str] = {}  # of arrays that are not constant
        self.spread: list[dict] = [{}]  # by scope: vectors of uniform values, and rows of arrays, by (memory, index)
        self.active: list[str] = []  # conditions of the loops around
        self.allocations: list[str] = []
        self.globals: list[str] = []
        self.used: set[tuple[str, bool, int]] = set()  # elementary functions
        self.slots: dict[int, int] = {}  # of uniform values that the environments read

    # ---- text ------------------------------------------------------------------------------------------------------------------

    def write(self, line: str) -> None:
        self.lines.append("  " + line)
        self.in_block += 1
        if self.in_block > MAX_BLOCK and not line.startswith("br "):
            self.count += 1
            self.lines.append(f"  br i1 %proceed, label %part{self.count}, label %leave")
            self.label(f"part{self.count}")

    def result(self, operation: str) -> str:
        """The name of the result of an operation."""
        self.count += 1
        name = f"%t{self.count}"
        self.write(f"{name} = {operation}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block, self.in_block = name, 0

    def value(self, x: int, varying: bool) -> str:
        """The name of a value, as a vector if ``varying``."""
        p = self.program
        vector = varying and self.target.lanes > 1
        if p.names[x] == "constant":
            text = literal(p.data[x])
            return f"splat ({NAMES[p.types[x].str[1:]]} {text})" if vector else text
        name = self.names.get(x)
        if name is None:
            name = self.names[x] = self.loaded_slot(x)
        if not vector or p.varying[x]:
            return name
        for known in self.spread:
            if x in known:
                return known[x]
        scalar, wide = self.target.type(p.types[x], False), self.target.type(p.types[x])
        first = self.result(f"insertelement {wide} poison, {scalar} {name}, i32 0")
        out = self.result(f"shufflevector {wide} {first}, {wide} poison, <{self.target.lanes} x i32> zeroinitializer")
        self.spread[-1][x] = out
        return out

    # ---- functions -------------------------------------------------------------------------------------------------------------

    def loaded_slot(self, x: int) -> str:
        """A uniform value that was computed once for the call."""
        raise NotImplementedError

    def scope(self, scope: Scope) -> None:
        """The operations of a scope."""
        for item in self.scheduler.ordered(scope):
            if isinstance(item, Loop):
                if any(phi in self.live for phi in item.phis) or not self.live.isdisjoint(item.stored):
                    self.loop(item)
            elif isinstance(item, Store):
                if item.array in self.live:
                    self.store(item)
            else:
                self.operation(item)

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
        self.scope(loop.condition)
        by_environment = p.varying[loop.proceed]
        proceed = self.value(loop.proceed, by_environment)
        if by_environment and self.active:
            proceed = self.result(f"and {t.type(BOOL)} {proceed}, {self.active[-1]}")
        self.write(f"br i1 {self.any(proceed) if by_environment else proceed}, label %{body}, label %{end}")
        self.label(body)
        if by_environment:
            self.active.append(proceed)
        self.spread.append({})
        self.scope(loop.body)
        ends = []
        for i in carried:
            phi = loop.phis[i]
            new = self.value(loop.ends[i], p.varying[phi])
            if by_environment and p.varying[phi] and t.lanes > 1:
                kind = t.type(p.types[phi])
                new = self.result(f"select {t.type(BOOL)} {proceed}, {kind} {new}, {kind} {self.names[phi]}")
            ends.append(new)
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
        name, varying, dtype = p.names[x], p.varying[x], p.types[x]
        write = OPERATIONS.get(name)
        if write is not None:
            self.names[x] = write(self, x)
            return
        arguments = p.arguments[x]
        kind = self.target.type(dtype, varying)
        if name in ELEMENTARY:
            self.names[x] = self.elementary(name, dtype, varying, [self.value(a, varying) for a in arguments])
            return
        of = p.types[arguments[0]]
        text = _instruction(name, dtype, of, kind, self.target.type(of, varying), [self.value(a, varying) for a in arguments], self)
        self.names[x] = self.result(text)

    def elementary(self, name: str, dtype: np.dtype, varying: bool, arguments: list[str]) -> str:
        """A call of an elementary function."""
        kind = self.target.type(dtype, varying)
        lanes = self.target.lanes if varying else 1
        self.used.add((name, dtype.itemsize == 8, lanes))
        return self.result(f"call {kind} @xsim.{name}.{_suffix(dtype, lanes)}({', '.join(f'{kind} {a}' for a in arguments)})")

    def intrinsic(self, name: str, dtype: np.dtype, kind: str, *arguments: str) -> str:
        """The text of a call of one of LLVM's functions."""
        lanes = self.target.lanes if kind.startswith("<") else 1
        return f"call {kind} @llvm.{name}.{_suffix(dtype, lanes)}({', '.join(f'{kind} {a}' for a in arguments)})"

    def input(self, x: int) -> str:
        """A number of an operand."""
        source: Input = self.program.data[x]
        return self.read(source, self.program.types[x], self.program.varying[x])

    def read(self, source: Input, dtype: np.dtype, varying: bool) -> str:
        raise NotImplementedError

    def memory(self, dtype: np.dtype, size: int, varying: bool) -> str:
        """Memory of the block for an array."""
        self.count += 1
        kind = memory_type(dtype)
        lanes = self.target.lanes if varying else 1
        self.allocations.append(f"  %m{self.count} = alloca [{size * lanes} x {kind}], align 64")
        return f"%m{self.count}"

    def array(self, x: int) -> str:
        """An array of values, in memory; in the constants of the module if all are constant."""
        p = self.program
        dtype, entries, kind = p.types[x], p.arguments[x], memory_type(p.types[x])
        if all(p.names[e] == "constant" for e in entries):
            self.count += 1
            number = [int(p.data[e]) if dtype == BOOL else literal(p.data[e]) for e in entries]
            body = ", ".join(f"{kind} {n}" for n in number)
            space = "addrspace(1) " if self.target.gpu else ""
            self.globals.append(f"@c{self.count} = internal {space}constant [{len(entries)} x {kind}] [{body}], align 64")
            return f"@c{self.count}"
        memory = self.array_memory(self.placement.memory.get(x, x))
        kind, lanes = self.target.type(dtype, p.varying[x]), self.target.lanes if p.varying[x] else 1
        for i, entry in self.placement.rest.get(x, enumerate(entries)):
            value = self.value(entry, p.varying[x])
            address = self.result(f"getelementptr [{lanes} x {memory_type(dtype)}], ptr {memory}, i32 {i}")
            self.write_memory(kind, dtype, value, address, lanes)
        return memory

    def array_memory(self, x: int) -> str:
        """The memory of an array that is not constant."""
        if x not in self.memories:
            p = self.program
            self.memories[x] = self.memory(p.types[x], len(p.arguments[x]), p.varying[x])
        return self.memories[x]

    def buffer(self, x: int) -> str:
        """The memory of a mutable array."""
        name = self.names.get(x)
        if name is None:
            p = self.program
            if x in self.placement.parts:
                array, first = self.placement.parts[x]
                lanes, whole = self.target.lanes, self.array_memory(array)
                name = f"{whole}.{first}"
                self.allocations.append(f"  {name} = getelementptr [{lanes} x {memory_type(p.types[x])}], ptr {whole}, i32 {first}")
            else:
                name = self.memory(p.types[x], p.data[x], p.varying[x])
            self.names[x] = name
        return name

    def write_memory(self, kind: str, dtype: np.dtype, value: str, address: str, lanes: int) -> None:
        """Store a value of this LLVM type. Booleans are bytes in memory."""
        value, kind = self.in_memory(kind, dtype, value)
        self.write(f"store {kind} {value}, ptr {address}, align {_alignment(dtype, lanes)}")

    def in_memory(self, kind: str, dtype: np.dtype, value: str) -> tuple[str, str]:
        """A value and its LLVM type as they are in memory, where booleans are bytes."""
        if dtype != BOOL:
            return value, kind
        wide = self.target.type(np.dtype(np.int8), kind.startswith("<"))
        return self.result(f"zext {kind} {value} to {wide}"), wide

    def store(self, item: Store) -> None:
        """A store to a mutable array."""
        t, dtype = self.target, self.program.types[item.array]
        value, at = self.value(item.value, True), self.element(item.array, item.index, item.offset)
        if not at.each:
            self.write_memory(t.type(dtype), dtype, value, at.address, t.lanes)
            return
        value, kind = self.in_memory(t.type(dtype), dtype, value)
        self.write(scatter(kind, memory_type(dtype), t.lanes, value, at.address, dtype.itemsize))

    def load(self, x: int) -> str:
        """An entry of an array. An index that varies reads another row for each environment."""
        p, t = self.program, self.target
        array, index = p.arguments[x]
        dtype = p.types[array]
        kind = t.type(np.dtype(np.int8) if dtype == BOOL else dtype, p.varying[x])
        at = self.element(array, index, p.data[x])
        if at.each:
            out = self.result(gather(kind, memory_type(dtype), t.lanes, at.address, dtype.itemsize))
        else:
            out = self.result(f"load {kind}, ptr{at.space} {at.address}, align {_alignment(dtype, at.lanes)}")
        if dtype == BOOL:
            out = self.result(f"icmp ne {kind} {out}, {'zeroinitializer' if kind.startswith('<') else '0'}")
        return out

    def element(self, array: int, index: int, offset: int) -> Element:
        """Where entry index + offset of an array is."""
        p, t = self.program, self.target
        memory = self.buffer(array) if p.names[array] == "buffer" else self.names[array]
        constant = memory.startswith("@")
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
            name = f"fpto{'s' if dtype.kind == 'i' else 'u'}i.sat"
            ends = f"{_vector_suffix(dtype, old)}.{_vector_suffix(of, old)}"
            return self.result(f"call {new} @llvm.{name}.{ends}({old} {value})")
        size = "trunc" if dtype.itemsize < of.itemsize else "sext" if of.kind == "i" else "zext"
        return self.result(f"{size} {old} {value} to {new}")


def _vector_suffix(dtype: np.dtype, kind: str) -> str:
    lanes = int(kind[1:].split()[0]) if kind.startswith("<") else 1
    return _suffix(dtype, lanes)


def short_name(element: str) -> str:
    """The name of a type in the names of functions."""
    return {"float": "f32", "double": "f64"}.get(element, element)


def _pointers(lanes: int, addresses: str, alignment: int) -> str:
    """The text of the arguments for pointers and their alignment, which LLVM 22 changed, and of a mask of all lanes."""
    newer = llvm.llvm_version_info[0] >= 22
    pointers = f"<{lanes} x ptr> align {alignment} {addresses}" if newer else f"<{lanes} x ptr> {addresses}, i32 {alignment}"
    return f"{pointers}, <{lanes} x i1> splat (i1 true)"


def gather(kind: str, element: str, lanes: int, addresses: str, alignment: int) -> str:
    """The text of a load of one number for each environment."""
    name = f"llvm.masked.gather.v{lanes}{short_name(element)}.v{lanes}p0"
    return f"call {kind} @{name}({_pointers(lanes, addresses, alignment)}, {kind} poison)"


def scatter(kind: str, element: str, lanes: int, value: str, addresses: str, alignment: int) -> str:
    """The text of a store of one number for each environment."""
    name = f"llvm.masked.scatter.v{lanes}{short_name(element)}.v{lanes}p0"
    return f"call void @{name}({kind} {value}, {_pointers(lanes, addresses, alignment)})"


def memory_type(dtype: np.dtype) -> str:
    return "i8" if dtype == BOOL else NAMES[dtype.str[1:]]


def _alignment(dtype: np.dtype, lanes: int) -> int:
    return min(64, dtype.itemsize * lanes)


def _suffix(dtype: np.dtype, lanes: int) -> str:
    """End of the name of a function of LLVM, such as v8f32."""
    name = short_name(NAMES[dtype.str[1:]])
    return f"v{lanes}{name}" if lanes > 1 else name


FLOAT = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv", "rem": "frem"}
INTEGER = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "sdiv", "rem": "srem", "and": "and", "or": "or", "xor": "xor", "shift_left": "shl",
    "shift_right_logical": "lshr",
}  # fmt: skip
UNSIGNED = {"div": "udiv", "rem": "urem"}
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")
INTRINSICS = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "round_even": "roundeven", "round_away": "round"}


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
    one = literal(np.ones((), dtype)[()])
    scalar = NAMES[dtype.str[1:]]
    constant: Callable = lambda text: f"splat ({scalar} {text})" if kind.startswith("<") else text  # noqa: E731
    if name in ("max", "min"):
        if floating:
            return f"call nsz {kind} @llvm.{name}imum.{_vector_suffix(dtype, kind)}({kind} {xs[0]}, {kind} {xs[1]})"
        return e.intrinsic(("s" if dtype.kind == "i" else "u") + name, dtype, kind, *xs)
    if name == "neg":
        return f"fneg {kind} {xs[0]}" if floating else f"sub {kind} {constant('0')}, {xs[0]}"
    if name == "not":
        return f"xor {kind} {xs[0]}, {constant('true' if dtype == BOOL else '-1')}"
    if name == "abs":
        if floating:
            return e.intrinsic("fabs", dtype, kind, xs[0])
        return f"call {kind} @llvm.abs.{_vector_suffix(dtype, kind)}({kind} {xs[0]}, i1 false)"
    if name in INTRINSICS:
        return e.intrinsic(INTRINSICS[name], dtype, kind, xs[0])
    if name == "rsqrt":
        return f"fdiv {kind} {constant(one)}, {e.result(e.intrinsic('sqrt', dtype, kind, xs[0]))}"
    if name == "is_finite":
        size = e.result(e.intrinsic("fabs", of, of_kind, xs[0]))
        infinity = literal(np.full((), np.inf, of)[()])
        text = f"splat ({NAMES[of.str[1:]]} {infinity})" if of_kind.startswith("<") else infinity
        return f"fcmp olt {of_kind} {size}, {text}"
    if name == "sign":
        zero, minus = literal(np.zeros((), dtype)[()]), literal(np.asarray(-1, dtype)[()])
        if not floating:
            positive = e.result(f"icmp sgt {kind} {xs[0]}, {constant('0')}")
            negative = e.result(f"icmp slt {kind} {xs[0]}, {constant('0')}")
        else:
            positive = e.result(f"fcmp ogt {kind} {xs[0]}, {constant(zero)}")
            negative = e.result(f"fcmp olt {kind} {xs[0]}, {constant(zero)}")
        mask = e.target.type(BOOL, kind.startswith("<"))
        inner = e.result(f"select {mask} {negative}, {kind} {constant(minus)}, {kind} {xs[0]}")  # zero and NaN stay
        return f"select {mask} {positive}, {kind} {constant(one)}, {kind} {inner}"
    raise NotImplementedError(f"LLVM IR of the operation {name}")


OPERATIONS: dict[str, Callable] = {
    "input": Emitter.input,
    "array": Emitter.array,
    "load": Emitter.load,
    "convert": Emitter.convert,
    "copy": lambda emitter, x: emitter.value(emitter.program.arguments[x][0], emitter.program.varying[x]),
}
"""How values that are no arithmetic are written. write(emitter, value) -> name."""
