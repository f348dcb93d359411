"""The function by which XLA calls a program on the CPU, in LLVM IR.

XLA's typed foreign function interface passes an ``XLA_FFI_CallFrame`` (header ``xla/ffi/api/c_api.h``, in `jax.ffi.include_dir`). The
environments are divided into chunks. The calling thread and threads of XLA's pool take one chunk after another. The devices of a process
share the pool, so that each asks for its part of the threads: where every core is a device, for none. The chunks depend on the number of
environments alone, and sums over environments are added in their order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

import jax

from xsim.compile.block_functions import ARGUMENTS, block_functions, number_of_turns
from xsim.compile.blocks import ALIGNMENT, Layout, block_memory

CHUNKS = 32
"""Largest number of chunks of a batch."""
SLOTS_AFTER = 9
"""Slots after those of the values of the call, as vectors are read that begin in the last ones."""
MIN_PARALLEL_OPERATIONS = 300_000
"""Operations, of all environments together, from which on threads of the pool are asked for: about 50 microseconds of work."""


@functools.cache
def _header() -> str:
    return (Path(jax.ffi.include_dir()) / "xla" / "ffi" / "api" / "c_api.h").read_text()


def _version() -> tuple[int, int]:
    """The version of the interface that jaxlib was built with."""
    numbers = [re.search(rf"define XLA_FFI_API_{part} (\d+)", _header()) for part in ("MAJOR", "MINOR")]
    if not all(numbers):
        raise RuntimeError("the version of XLA's foreign function interface is not known")
    major, minor = (int(n[1]) for n in numbers if n)
    return major, minor


FIRST_FUNCTION = 48
"""Offset of the first function in ``XLA_FFI_Api``."""


@functools.cache
def _functions() -> tuple[str, ...]:
    """The functions of ``XLA_FFI_Api``, in the order of its fields."""
    start = _header().index("struct XLA_FFI_Api {")
    text = _header()[start : _header().index("};", start)]
    return tuple(re.findall(r"_XLA_FFI_API_STRUCT_FIELD\(XLA_FFI_(\w+)\)", text))


def function_offset(function: str) -> int:
    """Offset of a function in ``XLA_FFI_Api``."""
    return FIRST_FUNCTION + 8 * _functions().index(function)


# Fields of a task, which the threads share, and their offsets: pointers to operands (0), results (8), slots (16), sums (24); number of
# environments (32), of chunks (40), of environments in a chunk (48), of chunks that were taken (56) and that are done (64), of threads that
# refer to the task (72).
TASK_BYTES = 80


def handler(layout: Layout) -> str:
    """The text of ``ptr handler(ptr frame)``. It calls ``uniform`` and ``block`` of the module."""
    arrays = pointers(layout.inputs, layout.results, layout.counted)
    functions = *block_functions(layout), _work(layout), _HELPER, entry()
    return "\n".join([_DECLARATIONS, *functions, *arrays, _run(layout), _reduce(layout), "}"])


_DECLARATIONS = """declare ptr @malloc(i64)
declare void @free(ptr)
declare i32 @sched_yield()"""


def _work(layout: Layout) -> str:
    """Take chunks of a task until there is none."""
    sums = sum(s.size for s in layout.sums)
    return f"""define internal void @work(ptr %task) {{
entry:
  %takenp = getelementptr i8, ptr %task, i64 56
  %donep = getelementptr i8, ptr %task, i64 64
  %chunksp = getelementptr i8, ptr %task, i64 40
  %chunks = load i64, ptr %chunksp
{_aligned("scratch", block_memory(layout).size + ALIGNMENT)}
  br label %take
take:
  %chunk = atomicrmw add ptr %takenp, i64 1 seq_cst
  %more = icmp slt i64 %chunk, %chunks
  br i1 %more, label %start, label %leave
start:
  %operands = load ptr, ptr %task
  %resultsp = getelementptr i8, ptr %task, i64 8
  %results = load ptr, ptr %resultsp
  %slotsp = getelementptr i8, ptr %task, i64 16
  %slots = load ptr, ptr %slotsp
  %sumsp = getelementptr i8, ptr %task, i64 24
  %allsums = load ptr, ptr %sumsp
  %offset = mul i64 %chunk, {sums}
  %sums = getelementptr {layout.number}, ptr %allsums, i64 %offset
  %countp = getelementptr i8, ptr %task, i64 32
  %count = load i64, ptr %countp
  %sizep = getelementptr i8, ptr %task, i64 48
  %size = load i64, ptr %sizep
  %low = mul i64 %chunk, %size
  %high = add i64 %low, %size
  %end = call i64 @llvm.smin.i64(i64 %high, i64 %count)
  %any = icmp slt i64 %low, %end
  br i1 %any, label %loop, label %finish
loop:
  %first = phi i64 [ %low, %start ], [ %next, %called ]
  %next = add i64 %first, {layout.lanes}
  %full = icmp sle i64 %next, %count
  br i1 %full, label %whole, label %part
whole:
  call void @whole_block({ARGUMENTS})
  br label %called
part:
  call void @partial_block({ARGUMENTS})
  br label %called
called:
  %again = icmp slt i64 %next, %end
  br i1 %again, label %loop, label %finish
finish:
  %before = atomicrmw add ptr %donep, i64 1 seq_cst
  br label %take
leave:
  call void @free(ptr %scratch.raw)
  ret void
}}"""


def _aligned(name: str, size: int | str) -> str:
    """Allocate memory. name: of the aligned pointer. size: bytes, of which there have to be `ALIGNMENT` more than are used."""
    return f"""  %{name}.raw = call ptr @malloc(i64 {size})
  %{name}.i = ptrtoint ptr %{name}.raw to i64
  %{name}.u = add i64 %{name}.i, {ALIGNMENT - 1}
  %{name}.a = and i64 %{name}.u, -{ALIGNMENT}
  %{name} = inttoptr i64 %{name}.a to ptr"""


_HELPER = """define internal void @release(ptr %task) {
entry:
  %refsp = getelementptr i8, ptr %task, i64 72
  %before = atomicrmw sub ptr %refsp, i64 1 seq_cst
  %last = icmp eq i64 %before, 1
  br i1 %last, label %free, label %leave
free:
  call void @free(ptr %task)
  br label %leave
leave:
  ret void
}
define internal void @help(ptr %task) {
  call void @work(ptr %task)
  call void @release(ptr %task)
  ret void
}"""


def entry() -> str:
    """The begin of ``handler``: the answer to the question for the version of the interface."""
    major, minor = _version()
    return f"""define ptr @handler(ptr %frame) {{
entry:
  %extensionp = getelementptr i8, ptr %frame, i64 8
  %extension = load ptr, ptr %extensionp
  %plain = icmp eq ptr %extension, null
  br i1 %plain, label %begin, label %extended
extended:
  %kindp = getelementptr i8, ptr %extension, i64 8
  %kind = load i32, ptr %kindp
  %ask = icmp eq i32 %kind, 1
  br i1 %ask, label %metadata, label %begin
metadata:
  %metap = getelementptr i8, ptr %extension, i64 24
  %meta = load ptr, ptr %metap
  %majorp = getelementptr i8, ptr %meta, i64 24
  store i32 {major}, ptr %majorp
  %minorp = getelementptr i8, ptr %meta, i64 28
  store i32 {minor}, ptr %minorp
  ret ptr null
begin:"""


def pointers(operands: int, results: int, counted: tuple[str, int] | None) -> list[str]:
    """The pointers to the numbers of operands and results, and the number of environments ``%count``. counted: as in `Layout`."""
    lines = []
    for name, offset, number in (("operand", 72, operands), ("result", 112, results)):
        lines += [
            f"  %{name}s = alloca [{max(number, 1)} x ptr]",
            f"  %{name}.list.p = getelementptr i8, ptr %frame, i64 {offset}",
            f"  %{name}.list = load ptr, ptr %{name}.list.p",
        ]
        for i in range(number):
            at = f"%{name}{i}"
            lines += [
                f"  {at}.p = getelementptr ptr, ptr %{name}.list, i64 {i}", f"  {at}.buffer = load ptr, ptr {at}.p",
                f"  {at}.d = getelementptr i8, ptr {at}.buffer, i64 24", f"  {at}.data = load ptr, ptr {at}.d",
                f"  {at}.s = getelementptr ptr, ptr %{name}s, i64 {i}", f"  store ptr {at}.data, ptr {at}.s",
            ]  # fmt: skip
    if counted:
        name, index = counted
        lines += [
            f"  %dims.p = getelementptr i8, ptr %{name}{index}.buffer, i64 40", "  %dims = load ptr, ptr %dims.p",
            "  %count = load i64, ptr %dims",
        ]  # fmt: skip
    else:
        lines.append("  %count = add i64 1, 0")
    return lines


def _run(layout: Layout) -> str:
    """Make the task, ask threads of the pool for help if there is much work, and work on it."""
    return "\n".join([_make_task(layout), _ask_for_threads(layout), _WORK_AND_WAIT])


def _make_task(layout: Layout) -> str:
    """The values of the call, the chunks, the accumulators, and the task that the threads share."""
    lanes, accumulators = layout.lanes, sum(s.size for s in layout.sums)
    bytes_of_sums = accumulators * lanes * layout.size
    return f"""  %slots = alloca [{layout.slots + SLOTS_AFTER} x i64], align 64
  call void @uniform(ptr %operands, ptr %slots)
  %up = add i64 %count, {lanes - 1}
  %blocks = sdiv i64 %up, {lanes}
  %some = call i64 @llvm.smax.i64(i64 %blocks, i64 1)
  %chunks = call i64 @llvm.smin.i64(i64 %some, i64 {CHUNKS})
  %up.c = add i64 %blocks, %chunks
  %up.d = sub i64 %up.c, 1
  %per = sdiv i64 %up.d, %chunks
  %size = mul i64 %per, {lanes}
  %bytes = mul i64 %chunks, {bytes_of_sums}
  %all = add i64 %bytes, {ALIGNMENT}
{_aligned("sums", "%all")}
  call void @llvm.memset.p0.i64(ptr align 64 %sums, i8 0, i64 %bytes, i1 false)
  %task = call ptr @malloc(i64 {TASK_BYTES})
  store ptr %operands, ptr %task
  %f1 = getelementptr i8, ptr %task, i64 8
  store ptr %results, ptr %f1
  %f2 = getelementptr i8, ptr %task, i64 16
  store ptr %slots, ptr %f2
  %f3 = getelementptr i8, ptr %task, i64 24
  store ptr %sums, ptr %f3
  %f4 = getelementptr i8, ptr %task, i64 32
  store i64 %count, ptr %f4
  %f5 = getelementptr i8, ptr %task, i64 40
  store i64 %chunks, ptr %f5
  %f6 = getelementptr i8, ptr %task, i64 48
  store i64 %size, ptr %f6
  %f7 = getelementptr i8, ptr %task, i64 56
  store i64 0, ptr %f7
  %donep = getelementptr i8, ptr %task, i64 64
  store i64 0, ptr %donep
  %refsp = getelementptr i8, ptr %task, i64 72
  store i64 1, ptr %refsp"""


def _ask_for_threads(layout: Layout) -> str:
    """Schedule `help` for this device's part of the threads, if there is much work."""
    turns = "\n".join(number_of_turns(layout))
    return f"""{turns}
  %apip = getelementptr i8, ptr %frame, i64 16
  %api = load ptr, ptr %apip
  %apisize = load i64, ptr %api
  %known = icmp uge i64 %apisize, {function_offset("ThreadPool_NumThreads") + 8}
  %calls = mul i64 %count, %turns
  %much = icmp sge i64 %calls, {MIN_PARALLEL_OPERATIONS // max(layout.operations, 1)}
  %wide = icmp sge i64 %count, {2 * layout.lanes}
  %worth = and i1 %much, %wide
  %parallel = and i1 %known, %worth
  br i1 %parallel, label %ask.pool, label %alone
ask.pool:
  %contextp = getelementptr i8, ptr %frame, i64 24
  %context = load ptr, ptr %contextp
  %threads.args = alloca [4 x i64]
  store i64 32, ptr %threads.args
  %ta1 = getelementptr i8, ptr %threads.args, i64 8
  store ptr null, ptr %ta1
  %ta2 = getelementptr i8, ptr %threads.args, i64 16
  store ptr %context, ptr %ta2
  %threads = alloca i64
  store i64 1, ptr %threads
  %ta3 = getelementptr i8, ptr %threads.args, i64 24
  store ptr %threads, ptr %ta3
  %numberp = getelementptr i8, ptr %api, i64 {function_offset("ThreadPool_NumThreads")}
  %number = load ptr, ptr %numberp
  %error = call ptr %number(ptr %threads.args)
  %fine = icmp eq ptr %error, null
  %n = load i64, ptr %threads
  %share = sdiv i64 %n, {layout.devices}
  %most = call i64 @llvm.smin.i64(i64 %share, i64 %chunks)
  %several = icmp sgt i64 %most, 1
  %help = and i1 %fine, %several
  br i1 %help, label %schedule, label %alone
schedule:
  store i64 %most, ptr %refsp
  %helpp = getelementptr i8, ptr %api, i64 {function_offset("ThreadPool_Schedule")}
  %scheduler = load ptr, ptr %helpp
  %args = alloca [5 x i64]
  store i64 40, ptr %args
  %a1 = getelementptr i8, ptr %args, i64 8
  store ptr null, ptr %a1
  %a2 = getelementptr i8, ptr %args, i64 16
  store ptr %context, ptr %a2
  %a3 = getelementptr i8, ptr %args, i64 24
  store ptr @help, ptr %a3
  %a4 = getelementptr i8, ptr %args, i64 32
  store ptr %task, ptr %a4
  br label %one.more
one.more:
  %asked = phi i64 [ 1, %schedule ], [ %asked.next, %answered ]
  %failure = call ptr %scheduler(ptr %args)
  %refused = icmp ne ptr %failure, null
  br i1 %refused, label %unask, label %answered
unask:
  call void @release(ptr %task)
  br label %answered
answered:
  %asked.next = add i64 %asked, 1
  %not.all = icmp slt i64 %asked.next, %most
  br i1 %not.all, label %one.more, label %alone"""


_WORK_AND_WAIT = """alone:
  call void @work(ptr %task)
  br label %wait
wait:
  %done = load atomic i64, ptr %donep seq_cst, align 8
  %all.done = icmp sge i64 %done, %chunks
  br i1 %all.done, label %reduce, label %yield
yield:
  %ignored = call i32 @sched_yield()
  br label %wait
reduce:
  call void @release(ptr %task)"""


def _reduce(layout: Layout) -> str:
    """Add the accumulators of lanes and chunks."""
    lines, lanes = [], layout.lanes
    scalar = layout.number.split(" x ")[1].rstrip(">") if lanes > 1 else layout.number
    short = {"float": "f32", "double": "f64"}.get(scalar, scalar)
    accumulators, before = sum(s.size for s in layout.sums), "reduce"
    for s in layout.sums:
        if not s.size:
            continue
        at = f"s{s.result}"
        body = f"{at}.each"
        total = f"%{at}.wide"
        reduced = [f"  %{at}.one = call reassoc {scalar} @llvm.vector.reduce.fadd.v{lanes}{short}({scalar} 0.0, {layout.number} {total})"]
        lines += [
            f"  br label %{body}", f"{body}:", f"  %{at}.i = phi i64 [ 0, %{before} ], [ %{at}.i.next, %{at}.store ]",
            f"  %{at}.k = add i64 %{at}.i, {s.first}", f"  br label %{at}.chunk",
            f"{at}.chunk:", f"  %{at}.c = phi i64 [ 0, %{body} ], [ %{at}.c.next, %{at}.chunk ]",
            f"  %{at}.t = phi {layout.number} [ {'zeroinitializer' if lanes > 1 else '0.0'}, %{body} ], [ {total}, %{at}.chunk ]",
            f"  %{at}.o = mul i64 %{at}.c, {accumulators}", f"  %{at}.p = add i64 %{at}.o, %{at}.k",
            f"  %{at}.a = getelementptr {layout.number}, ptr %sums, i64 %{at}.p", f"  %{at}.v = load {layout.number}, ptr %{at}.a",
            f"  {total} = fadd {layout.number} %{at}.t, %{at}.v", f"  %{at}.c.next = add i64 %{at}.c, 1",
            f"  %{at}.m = icmp slt i64 %{at}.c.next, %chunks", f"  br i1 %{at}.m, label %{at}.chunk, label %{at}.store",
            f"{at}.store:", *(reduced if lanes > 1 else []),
            f"  %{at}.r = getelementptr {scalar}, ptr %result{s.result}.data, i64 %{at}.i",
            f"  store {scalar} {f'%{at}.one' if lanes > 1 else total}, ptr %{at}.r",
            f"  %{at}.i.next = add i64 %{at}.i, 1", f"  %{at}.n = icmp slt i64 %{at}.i.next, {s.size}",
            f"  br i1 %{at}.n, label %{body}, label %{at}.end", f"{at}.end:",
        ]  # fmt: skip
        before = f"{at}.end"
    return "\n".join([*lines, "  call void @free(ptr %sums.raw)", "  ret ptr null"])
