"""The function by which XLA launches the kernels of a program on an NVIDIA GPU, in LLVM IR for the host.

As on the CPU, XLA calls it through its foreign function interface (`xsim.compile.handler`). Operands and results are in the GPU's memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from xsim.compile.handler import entry, function_offset, pointers
from xsim.compile.nvptx import BLOCK

ERROR_INTERNAL = 13
"""``XLA_FFI_Error_Code_INTERNAL``."""


@dataclass(frozen=True)
class Launch:
    """What the function has to know.

    results: number of results; the memory for the values of the call is one more. counted: as in `xsim.compile.blocks.Layout`.
    launcher: address of the driver's ``cuLaunchKernel``. uniform, block: handles of the kernels; uniform: 0 if there is none. turns: of a
    kernel with a repetition, else None. rows: of each of its sequences, the bytes of an environment; 0 if there is one for all turns."""

    operands: int
    results: int
    counted: tuple[str, int] | None
    launcher: int
    uniform: int
    block: int
    turns: int | None = None
    rows: tuple[int, ...] = ()


def launch_handler(launch: Launch) -> str:
    """The text of ``ptr handler(ptr frame)``."""
    lines = [
        entry(), *pointers(launch.operands, launch.results + 1, launch.counted), *_stream(), "  %count.p = alloca i64",
        "  store i64 %count, ptr %count.p", "  %empty = icmp eq i64 %count, 0", "  br i1 %empty, label %done, label %some", "some:",
    ]  # fmt: skip
    operands = [f"%operand{i}.s" for i in range(launch.operands)]
    results, slots = [f"%result{i}.s" for i in range(launch.results)], f"%result{launch.results}.s"
    if launch.uniform:
        lines += _launch(launch, "uniform", launch.uniform, [*operands, slots], "1", 1)
    lines += [f"  %up = add i64 %count, {BLOCK - 1}", f"  %blocks.l = udiv i64 %up, {BLOCK}", "  %blocks = trunc i64 %blocks.l to i32"]
    numbers = [] if launch.turns is None else [f"add i64 {launch.turns}, 0", *(f"mul i64 %count, {row}" for row in launch.rows)]
    for i, number in enumerate(numbers):
        lines += [f"  %repeat{i} = {number}", f"  %repeat{i}.p = alloca i64", f"  store i64 %repeat{i}, ptr %repeat{i}.p"]
    repetition = [f"%repeat{i}.p" for i in range(len(numbers))]
    lines += _launch(launch, "block", launch.block, [*operands, *results, slots, "%count.p", *repetition], "%blocks", BLOCK)
    return "\n".join([_MESSAGE, *lines, "  br label %done", "done:", "  ret ptr null", *_failure(), "}"])


_TEXT = (
    "a kernel of xsim could not be launched: the CUDA driver's cuLaunchKernel failed; if memory is short, leave the driver more of it "
    "(environment variable XLA_PYTHON_CLIENT_MEM_FRACTION), or let XLA compile (xsim.use_compiler)"
)
_MESSAGE = f'@message = internal constant [{len(_TEXT) + 1} x i8] c"{_TEXT}\\00"'


def _stream() -> list[str]:
    """The stream of the call, by ``XLA_FFI_Stream_Get``."""
    return [
        "  %api.p = getelementptr i8, ptr %frame, i64 16", "  %api = load ptr, ptr %api.p",
        "  %context.p = getelementptr i8, ptr %frame, i64 24", "  %context = load ptr, ptr %context.p",
        "  %stream.args = alloca [4 x ptr]", "  store i64 32, ptr %stream.args",
        "  %stream.a1 = getelementptr ptr, ptr %stream.args, i64 1", "  store ptr null, ptr %stream.a1",
        "  %stream.a2 = getelementptr ptr, ptr %stream.args, i64 2", "  store ptr %context, ptr %stream.a2",
        "  %stream.a3 = getelementptr ptr, ptr %stream.args, i64 3", "  store ptr null, ptr %stream.a3",
        f"  %get.p = getelementptr i8, ptr %api, i64 {function_offset('Stream_Get')}", "  %get = load ptr, ptr %get.p",
        "  %error = call ptr %get(ptr %stream.args)", "  %known = icmp eq ptr %error, null",
        "  br i1 %known, label %begin.launch, label %refused", "refused:", "  ret ptr %error", "begin.launch:",
        "  %stream = load ptr, ptr %stream.a3",
    ]  # fmt: skip


def _launch(launch: Launch, name: str, kernel: int, parameters: list[str], blocks: str, threads: int) -> list[str]:
    """A launch. parameters: pointers to the parameters of the kernel."""
    lines = [f"  %{name}.list = alloca [{len(parameters)} x ptr]"]
    for i, parameter in enumerate(parameters):
        lines += [f"  %{name}.{i} = getelementptr ptr, ptr %{name}.list, i64 {i}", f"  store ptr {parameter}, ptr %{name}.{i}"]
    grid = f"i32 {blocks}, i32 1, i32 1, i32 {threads}, i32 1, i32 1, i32 0"
    return [
        *lines,
        f"  %{name}.status = call i32 inttoptr (i64 {launch.launcher} to ptr)(ptr inttoptr (i64 {kernel} to ptr), {grid}, "
        f"ptr %stream, ptr %{name}.list, ptr null)",
        f"  %{name}.fine = icmp eq i32 %{name}.status, 0", f"  br i1 %{name}.fine, label %{name}.launched, label %failed",
        f"{name}.launched:",
    ]  # fmt: skip


def _failure() -> list[str]:
    """Return an error, by ``XLA_FFI_Error_Create``."""
    return [
        "failed:", "  %failure = alloca [4 x i64]", "  store i64 28, ptr %failure",
        "  %failure.1 = getelementptr i64, ptr %failure, i64 1", "  store ptr null, ptr %failure.1",
        "  %failure.2 = getelementptr i64, ptr %failure, i64 2", "  store ptr @message, ptr %failure.2",
        "  %failure.3 = getelementptr i64, ptr %failure, i64 3", f"  store i32 {ERROR_INTERNAL}, ptr %failure.3",
        f"  %create.p = getelementptr i8, ptr %api, i64 {function_offset('Error_Create')}", "  %create = load ptr, ptr %create.p",
        "  %made = call ptr %create(ptr %failure)", "  ret ptr %made",
    ]  # fmt: skip
