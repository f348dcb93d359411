"""Kernels of a program for NVIDIA GPUs, as PTX: each thread computes one environment."""

from __future__ import annotations

import llvmlite.binding as llvm

from xsim.cache import cached
from xsim.compile.host import HostEmitter
from xsim.compile.llvm_ir import Target
from xsim.compile.machine import identity
from xsim.compile.program import Program

TRIPLE = "nvptx64-nvidia-cuda"
BLOCK = 64
"""Threads of a block. Few, because a thread needs up to 255 registers and a multiprocessor has 65,536."""


class GpuEmitter(HostEmitter):
    """For a GPU: two kernels, whose parameters are pointers to the operands and results themselves.

    * ``uniform(operand0, ..., slots)``: one thread computes the values of the call. There is no such kernel if there are none.
    * ``block(operand0, ..., result0, ..., slots, count)``: a thread for each of count environments. The threads after the last repeat it.

    Results that are sums over the environments are not supported: the caller sums those of the environments."""

    def __init__(self, program: Program, sizes: list[int], batched: list[bool]):
        super().__init__(program, Target(lanes=1, gpu=True), sizes, batched, [False] * len(program.outputs))

    def module(self) -> str:
        return "\n".join([*self.functions(), "!0 = !{}", ""])

    @property
    def kernels(self) -> list[str]:
        """Names of the kernels, after `module`."""
        return ["uniform", "block"] if self.slots else ["block"]

    def _parameters(self, prefix: str, count: int) -> list[str]:
        return [f"ptr noalias %{prefix}{i}" for i in range(count)]

    def _uniform_function(self) -> str:
        return self._kernel("uniform", [*self._parameters("operand", len(self.sizes)), "ptr noalias %slots"], 1) if self.slots else ""

    def _block_function(self) -> str:
        operands, results = (self._parameters(*x) for x in (("operand", len(self.sizes)), ("result", len(self.program.outputs))))
        return self._kernel("block", [*operands, *results, "ptr noalias %slots", "i64 %count"], BLOCK)

    def _kernel(self, name: str, parameters: list[str], threads: int) -> str:
        body = "\n".join([*self.allocations, *self.prologue, *self.lines])
        proceed = "  %proceed = icmp ne ptr %slots, null"  # true, which LLVM does not know
        head = f'define ptx_kernel void @{name}({", ".join(parameters)}) "nvvm.maxntid"="{threads}" "nvvm.minctasm"="1"'
        return f"{head} {{\nentry:\n{proceed}\n{body}\n  br label %leave\nleave:\n  ret void\n}}"

    def _pointer(self, operand: int) -> str:
        return f"%operand{operand}"

    def _result_pointer(self, k: int) -> str:
        return f"%result{k}"

    def _lanes(self) -> None:
        special = "call i32 @llvm.nvvm.read.ptx.sreg"
        self.prologue += [
            f"  %lane.t = {special}.tid.x()", f"  %lane.b = {special}.ctaid.x()", f"  %lane.n = {special}.ntid.x()",
            "  %lane.o = mul i32 %lane.b, %lane.n", "  %lane.i = add i32 %lane.o, %lane.t", "  %lane.w = zext i32 %lane.i to i64",
            "  %lane.l = sub i64 %count, 1", "  %lane = call i64 @llvm.umin.i64(i64 %lane.w, i64 %lane.l)",
        ]  # fmt: skip


def ptx(text: str, architecture: str) -> str:
    """PTX of a module in LLVM IR. architecture: for example sm_90."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=architecture, features="+ptx80", opt=2)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = TRIPLE, str(machine.target_data)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return machine.emit_assembly(module)


def cached_ptx(text: str, architecture: str) -> str:
    """`ptx`, made now or in an earlier process."""
    return cached(f"{identity(f'{architecture} {text}')}.ptx", lambda: ptx(text, architecture).encode()).decode()
