"""Kernels of a program for NVIDIA GPUs, as PTX: each thread computes one environment."""

from __future__ import annotations

from typing import NamedTuple

import llvmlite.binding as llvm
import numpy as np

from xsim.cache import cached
from xsim.compile.code_generation import module_of
from xsim.compile.host import HostEmitter
from xsim.compile.llvm_types import Target, memory_type
from xsim.compile.machine import identity
from xsim.compile.parts import GPU_LIMITS, read_by, results_of
from xsim.compile.program import Program

TRIPLE = "nvptx64-nvidia-cuda"
BLOCK = 64
"""Threads of a block. Few, because a thread needs up to 255 registers and a multiprocessor has 65,536."""

MAX_WAIT = 200
"""Operations between the one that computes a value of the call and the last one that reads it, beyond which it is not in a register."""


_SPECIAL = "call i32 @llvm.nvvm.read.ptx.sreg"
_ENVIRONMENT = [
    f"  %lane.t = {_SPECIAL}.tid.x()", f"  %lane.b = {_SPECIAL}.ctaid.x()", f"  %lane.n = {_SPECIAL}.ntid.x()",
    "  %lane.o = mul i32 %lane.b, %lane.n", "  %lane.i = add i32 %lane.o, %lane.t", "  %lane.w = zext i32 %lane.i to i64",
    "  %lane.l = sub i64 %count, 1", "  %lane = call i64 @llvm.umin.i64(i64 %lane.w, i64 %lane.l)",
]  # fmt: skip
"""The environment of a thread."""
_TURN = """  %turn = phi i64 [ 0, %begin ], [ %turn.next, %turn.end ]
  %first = icmp eq i64 %turn, 0
  %before = mul i64 %turn, %count
  %none = lshr i64 %turn, 40"""
"""The begin of a turn. before: rows of the results of the turns before. none: zero, which LLVM and the assembler do not know. They would
compute the addresses of all arrays before the loop, for which there are not enough registers."""
_NEXT_TURN = """  br label %turn.end
turn.end:
  %turn.next = add i64 %turn, 1
  %turn.more = icmp ult i64 %turn.next, %turns
  br i1 %turn.more, label %entry, label %finished
finished:"""


class Repetition(NamedTuple):
    """How a function is evaluated several times in one kernel.

    carried: pairs (result, argument). The result of a turn is the argument of the next one; they have one shape.
    sequences: arguments of which each turn has its own. All these arguments are those of environments. Of a function whose derivatives are
    taken (`Replay`): previous: further arguments that are results of the turn before, which it does not return itself; known: the sequences
    that are known results."""

    carried: tuple[tuple[int, int], ...]
    sequences: tuple[int, ...]
    previous: tuple[int, ...] = ()
    known: tuple[int, ...] = ()


class Ptx(NamedTuple):
    """Kernels in PTX. kernels: their names. slots: number of values of the call. counted: the array whose first axis is that of the
    environments, see `xsim.compile.blocks.Layout`. repetition: of several calls, if the kernels can."""

    text: str
    kernels: tuple[str, ...]
    slots: int
    counted: tuple[str, int] | None
    repetition: Repetition | None


class GpuEmitter(HostEmitter):
    """For a GPU: two kernels, whose parameters are pointers to the operands and results themselves.

    * ``uniform(operand0, ..., slots)``: one thread computes the values of the call. There is no such kernel if there are none.
    * ``block(operand0, ..., result0, ..., slots, count)``: a thread for each of count environments. The threads after the last repeat it.

    With a repetition ``block`` has further parameters: the number of turns, and of each sequence the bytes from one turn to the next. The
    results of all turns are stored, turn first. A thread takes one turn after the other without waiting for the other threads.

    Results that are sums over the environments are not supported: the caller sums those of the environments."""

    limits = GPU_LIMITS
    stores_early = True  # no result replaces an operand

    def __init__(self, program: Program, sizes: list[int], batched: list[bool], repetition: Repetition | None = None):
        super().__init__(program, Target(lanes=1, gpu=True), sizes, batched, [False] * len(program.outputs))
        self.repetition = repetition
        self.sources = {argument: result for result, argument in repetition.carried} if repetition else {}

    def compiled(self, architecture: str) -> Ptx:
        """The kernels for a GPU, made now or in an earlier process. architecture: for example sm_90."""
        text = self.module()
        code = cached(f"{identity([architecture, text])}.ptx", lambda: ptx(text, architecture).encode()).decode()
        return Ptx(code, tuple(self.kernels), self.slot_count, self.counted, self.repetition)

    def module(self) -> str:
        """The module of all functions."""
        uniform, parts, block = self.functions()
        return self.module_of([uniform, *parts], [block])

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, after `module`."""
        return ["uniform", "block"] if self.slots else ["block"]

    @property
    def _operands(self) -> list[str]:
        return [f"ptr noalias %operand{i}" for i in range(len(self.sizes))]

    @property
    def _of_block(self) -> list[str]:
        """The parameters of ``block`` without those of a repetition."""
        return [*self._operands, *(f"ptr noalias %result{i}" for i in range(len(self.program.outputs))), "ptr noalias %slots", "i64 %count"]

    @property
    def _strides(self) -> list[str]:
        return [f"i64 %stride{i}" for i in self.repetition.sequences] if self.repetition else []

    def _parameters(self) -> str:
        turn = ["i64 %turn", "i1 %first", "i64 %before", *self._strides] if self.repetition else []
        return ", ".join([*self._of_block, "ptr addrspace(5) noalias %local", "i64 %lane", *turn])

    def _uniform_function(self, attributes: str) -> str:
        return self._kernel("uniform", [*self._operands, "ptr noalias %slots"], 1, [*self.prologue, *self.lines]) if self.slots else ""

    def _waiting(self, items: list) -> set[int]:
        """Those that are read much later than they are computed. The assembler takes long to find registers for them."""
        names = self.program.names
        values = [[x for x in results_of(item) if names[x] not in ("array", "buffer", "constant")] for item in items]
        computed = {x: k for k, found in enumerate(values) for x in found}
        last = {x: k for k, item in enumerate(items) for x in read_by(item, self.program, self.live, self.scheduler)}
        return {x for x, k in last.items() if k - computed.get(x, k) > MAX_WAIT}

    def _block_function(self, calls: list[str]) -> str:
        body = [*_ENVIRONMENT, "  %local = addrspacecast ptr %scratch to ptr addrspace(5)", *calls]
        if self.repetition is None:
            return self._kernel("block", self._of_block, BLOCK, body)
        return self._kernel("block", [*self._of_block, "i64 %turns", *self._strides], BLOCK, body, _TURN, _NEXT_TURN)

    def _kernel(self, name: str, parameters: list[str], threads: int, body: list[str], begin: str = "", end: str = "") -> str:
        """begin, end: of a loop over the whole kernel."""
        head = f'define ptx_kernel void @{name}({", ".join(parameters)}) "nvvm.maxntid"="{threads}" "nvvm.minctasm"="1"'
        return "\n".join([
            head + " {", "begin:", "  %proceed = icmp ne ptr %slots, null",  # true, which LLVM does not know
            f"  %arrays = alloca [{max(self.scratch, 1)} x i8], align {self.target.alignment}", "  br label %entry", "entry:", begin,
            f"  %scratch = getelementptr i8, ptr %arrays, i64 {'%none' if begin else 0}", *body, end,
            "  br label %leave", "leave:", "  ret void", "}",
        ])  # fmt: skip

    def _pointer(self, operand: int) -> str:
        if self.repetition is None or operand not in self.repetition.sequences:
            return f"%operand{operand}"
        name = f"%sequence{operand}"
        if name not in self.pointers.values():
            self.pointers[operand] = name
            self.prologue.append(f"  {name}.o = mul i64 %turn, %stride{operand}")
            self.prologue.append(f"  {name} = getelementptr i8, ptr %operand{operand}, i64 {name}.o")
        return name

    def _numbers(self, operand: int, dtype: np.dtype) -> str:
        name, size, element, result = f"%row{operand}", self.sizes[operand], memory_type(dtype), self.sources.get(operand)
        if name in self.pointers:
            return name
        pointer = self._pointer(operand)
        self.pointers[name] = name
        if result is None:
            self._row_text(name, size, pointer, element)
            return name
        self._row_text(f"{name}.given", size, pointer, element)
        self.prologue += [
            f"  {name}.b = sub i64 %before, %count", f"  {name}.l = add i64 {name}.b, %lane",
            f"  {name}.o = mul i64 {name}.l, {len(self.program.outputs[result])}",
            f"  {name}.found = getelementptr {element}, ptr %result{result}, i64 {name}.o",
            f"  {name} = select i1 %first, ptr {name}.given, ptr {name}.found",
        ]  # fmt: skip
        return name

    def _row_text(self, name: str, size: int, pointer: str, element: str) -> None:
        """Define the pointer to the numbers of the environment, of an array, in the prologue."""
        self.prologue += [f"  {name}.o = mul i64 %lane, {size}", f"  {name} = getelementptr {element}, ptr {pointer}, i64 {name}.o"]

    def _result_pointer(self, k: int, dtype: np.dtype) -> str:
        pointer, size, element = f"%result{k}", len(self.program.outputs[k]), memory_type(dtype)
        if self.repetition is not None:
            pointer = f"%resultp{k}"
            self.prologue.append(f"  %resulto{k} = mul i64 %before, {size}")
            self.prologue.append(f"  {pointer} = getelementptr {element}, ptr %result{k}, i64 %resulto{k}")
        self._row_text(f"%out{k}", size, pointer, element)
        return f"%out{k}"

    def _begin_part(self) -> list[str]:
        return ["  %scratch = addrspacecast ptr addrspace(5) %local to ptr"]  # LLVM finds out that it is in local memory


def ptx(text: str, architecture: str) -> str:
    """PTX of a module in LLVM IR. architecture: for example sm_90."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=architecture, features="+ptx80", opt=2)
    return machine.emit_assembly(module_of(text, machine, TRIPLE))
