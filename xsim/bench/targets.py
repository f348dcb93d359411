"""``python -m xsim.bench --target``: the programs of a model for a GPU or TPU that is not there, and what their code says of their speed.

For NVIDIA GPUs the programs are those of xsim's compiler (`xsim.compile.nvptx`), assembled by NVIDIA's ptxas. For a TPU they are XLA's,
compiled ahead of time by libtpu. Nothing is run.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import llvmlite

from xsim import __version__
from xsim.bench.compare import Settings
from xsim.bench.measure import kernels_per_step
from xsim.bench.mechanism import load_model, push, start
from xsim.compile.function import Function
from xsim.compile.nvptx import BLOCK, ptx
from xsim.dynamics.compiled_step import MOST_TURNS, prepared_step
from xsim.dynamics.initial_state import init
from xsim.dynamics.sharding import Inputs
from xsim.model.model import Model, State
from xsim.suggestions import did_you_mean

__all__ = ["CHIPS", "TargetError", "programs", "table"]


class TargetError(RuntimeError):
    """The programs of a target cannot be made here; the text says what is missing."""


@dataclass(frozen=True)
class Chip:
    """An accelerator. architecture: NVIDIA's name, or the TPU's topology. processors: streaming multiprocessors. clock: boost, Hz.
    bandwidth: of its memory, bytes/s. source: of these numbers."""

    name: str
    architecture: str
    processors: int
    clock: float
    bandwidth: float
    source: str


CHIPS = {
    "h200": Chip("NVIDIA H200 SXM", "sm_90", 132, 1.98e9, 4.8e12, "NVIDIA H200 datasheet; H100 architecture white paper"),
    "h100": Chip("NVIDIA H100 SXM", "sm_90", 132, 1.98e9, 3.35e12, "NVIDIA H100 datasheet and architecture white paper"),
    "a100": Chip("NVIDIA A100 SXM 80 GB", "sm_80", 108, 1.41e9, 2.039e12, "NVIDIA A100 datasheet and architecture white paper"),
    "rtx4090": Chip("NVIDIA GeForce RTX 4090", "sm_89", 128, 2.52e9, 1.008e12, "NVIDIA Ada architecture white paper"),
    "tpu-v5e": Chip("Google TPU v5e", "v5e:2x2", 1, 1.5e9, 8.19e11, "Google Cloud TPU v5e documentation (peak 197 Tflop/s in bfloat16)"),
}
"""By the names that ``--target`` takes."""

SCHEDULERS = 4
"""Warp schedulers of a multiprocessor, each of which issues one instruction a cycle (CUDA C++ programming guide)."""
WARP = 32
CYCLES = 20.0
"""Cycles of a scheduler for an operation of a warp, most of which are waits for the local memory. Measured on an H100 with 8,192
environments: 12 (half_cheetah), 26 (Go1), in gradients 19 and 42 (`benchmarks/gpu_h100.json`)."""
TURNS, INNER_TURNS = 3.0, 1.2
"""Turns of Newton's method, and of the line search within a turn, as measured on the contacts of half_cheetah in blocks of 32."""
REASONING = (
    f"waves x operations x {CYCLES:g} cycles / clock, waves: warps per scheduler, rounded up; or the bytes of operands, results and twice "
    f"the local memory of all environments / memory bandwidth, if that is longer. {TURNS:g} turns of Newton's method a step, "
    f"{INNER_TURNS:g} of the line search within each. Divergence of the threads of a warp and the launch of kernels (2 to 4 microseconds "
    "each) are not counted."
)


class Evaluation(NamedTuple):
    """A function that a program evaluates. batched: which of its arguments have environments. times: for a step. turns: of a kernel."""

    function: Function
    batched: tuple[bool, ...]
    times: float
    turns: int = 1


class Target(NamedTuple):
    """A program, and the functions that it evaluates. steps: of a call."""

    program: str
    functions: tuple[Evaluation, ...]
    steps: int


# ---- functions -----------------------------------------------------------------------------------------------------------------


def loaded_model(settings: Settings) -> Model:
    """The model that is compiled."""
    model = load_model(settings.model, settings.rules, settings.integrator, settings.constraints)
    return model.freeze(*settings.freeze) if settings.freeze else model


def step_functions(model: Model, settings: Settings) -> tuple[tuple[Function, tuple[bool, ...]], tuple[Function, tuple[bool, ...]]]:
    """The function that prepares a model's numbers and that of a step, with constant controls or forces; which arguments are batched."""
    found: list = []
    pushed = push(model, settings.batch, settings.seed)

    def trace(model: Model, state: State, values):
        inputs = Inputs(**{name: values[None] if name == pushed.kind else None for name in Inputs._fields})
        system, step = prepared_step(model, state, (settings.batch,), inputs)
        found[:] = [system, step, [b for _, b in system.operands()]]
        return system.shared

    state = init(model, start(model, settings.batch, settings.seed))
    jax.eval_shape(trace, model, state, pushed.values)
    system, step, batched = found
    shared = (False,) * len(system.function.function.shapes)
    leaves, read = system.function.function.reading(shared)
    return (leaves, shared[: len(read)]), (step, (*batched, *[True] * (len(step.shapes) - len(batched))))


def targets(model: Model, settings: Settings) -> list[Target]:
    """The functions of a step, of a rollout, and of a rollout's gradient by the states and the inputs of all steps."""
    (leaves, leaves_batched), (step, batched) = step_functions(model, settings)
    prepare = Evaluation(leaves, leaves_batched, 1.0)
    once = prepare._replace(times=1.0 / settings.steps)
    advance = Evaluation(step, batched, 1.0)
    turns = min(settings.steps, MOST_TURNS)
    out = [
        Target("step", (prepare, advance), 1),
        Target("rollout", (once, advance._replace(turns=turns)), settings.steps),
    ]
    if settings.gradient:
        active = tuple(i for i, s in enumerate(step.shapes[:-1]) if i >= 2 and jnp.issubdtype(s.dtype, jnp.floating) and s.shape)
        reverse = step.replayed.reverse(active)
        both = (*batched, *[True] * (len(reverse.shapes) - len(batched)))
        out.append(Target("gradient", (once, advance._replace(turns=turns), Evaluation(reverse, both, 1.0)), settings.steps))
    return out


# ---- NVIDIA --------------------------------------------------------------------------------------------------------------------


class Assembled(NamedTuple):
    """What ptxas says of a kernel, with the functions that it calls: registers of a thread; bytes of a thread that are spilled (stores and
    loads) and of its local memory."""

    registers: int
    spill_stores: int
    spill_loads: int
    local: int


def find_ptxas() -> str:
    """NVIDIA's assembler: on PATH, or of the package nvidia-cuda-nvcc that the extra ``aot`` installs."""
    found = shutil.which("ptxas")
    if found:
        return found
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in sorted(Path(folder).glob("*/bin/ptxas")):
            return str(file)
    raise TargetError("ptxas, NVIDIA's assembler, is not installed: pip install 'xsim[aot]'")


def assembled(text: str, architecture: str) -> dict[str, Assembled]:
    """What ptxas says of the kernels of a PTX text."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.ptx"
        file.write_text(text)
        command = [find_ptxas(), "-v", f"-arch={architecture}", str(file), "-o", str(file.with_suffix(".cubin"))]
        done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise TargetError(f"ptxas failed: {done.stderr[-2000:]}")
    return parsed(done.stderr)


_KERNEL = re.compile(r"Compiling entry function '(\w+)'")
_MEMORY = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers(?:.* (\d+) bytes cumulative stack size)?")


def parsed(text: str) -> dict[str, Assembled]:
    """What ptxas -v printed. After a kernel it lists the functions of the parts of its program."""
    out, name = {}, ""
    for line in text.splitlines():
        if match := _KERNEL.search(line):
            name = match[1]
            out[name] = Assembled(0, 0, 0, 0)
        elif name and (match := _MEMORY.search(line)):
            frame, stores, loads = map(int, match.groups())
            code = out[name]
            out[name] = code._replace(
                spill_stores=code.spill_stores + stores, spill_loads=code.spill_loads + loads, local=max(code.local, frame)
            )
        elif name and (match := _REGISTERS.search(line)):
            out[name] = out[name]._replace(registers=int(match[1]), local=max(out[name].local, int(match[2] or 0)))
    return out


class Kernel(NamedTuple):
    """A compiled function. launches: kernels. operations: for an environment; see `Program.evaluated`. bytes: of an environment's operands
    and results. code: of the kernel of environments. seconds: CPU time of compiling it."""

    launches: int
    operations: float
    bytes: int
    code: Assembled
    seconds: float


@functools.cache
def compiled(function: Function, batched: tuple[bool, ...], architecture: str) -> Kernel:
    """A function, compiled for a GPU. Programs share functions."""
    begin = cpu_seconds()
    emitter = function.gpu_emitter(batched)
    code = assembled(ptx(emitter.module(), architecture), architecture)
    arrays = [*(s for s, b in zip(function.shapes, batched, strict=True) if b), *function.results]
    size = sum(math.prod(s.shape) * jnp.dtype(s.dtype).itemsize for s in arrays)
    return Kernel(len(emitter.kernels), emitter.program.evaluated(TURNS, INNER_TURNS), size, code["block"], cpu_seconds() - begin)


def gpu_program(target: Target, chip: Chip, batch: int) -> dict:
    """What is known of a program of a GPU."""
    parts = [(compiled(x.function, x.batched, chip.architecture), x) for x in target.functions]
    own = [(kernel, x.times) for kernel, x in parts if any(x.batched)]
    worst = max((kernel.code for kernel, _ in own), key=lambda c: (c.spill_stores, c.registers))
    return {
        "program": target.program, "steps": target.steps,
        "kernels_per_step": sum(kernel.launches * x.times / x.turns for kernel, x in parts),
        "operations_per_step": sum(kernel.operations * times for kernel, times in own),
        "registers": worst.registers, "spilled_bytes": worst.spill_stores, "spill_load_bytes": worst.spill_loads,
        "local_bytes": worst.local, "bytes_per_env": max(kernel.bytes + kernel.code.local for kernel, _ in own),
        "estimated_step_s": sum(estimate(kernel, chip, batch) * times for kernel, times in own),
        "compile_cpu_s": sum(kernel.seconds for kernel, _ in parts),
    }  # fmt: skip


def estimate(kernel: Kernel, chip: Chip, batch: int) -> float:
    """Seconds of a kernel, see `REASONING`."""
    warps = math.ceil(batch / BLOCK) * (BLOCK // WARP)
    waves = math.ceil(warps / (chip.processors * SCHEDULERS))
    arithmetic = waves * kernel.operations * CYCLES / chip.clock
    memory = batch * (kernel.bytes + 2 * kernel.code.local) / chip.bandwidth
    return max(arithmetic, memory)


def cpu_seconds() -> float:
    """CPU time of this process and of the processes it has waited for."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


# ---- TPU -----------------------------------------------------------------------------------------------------------------------


def tpu_programs(model: Model, settings: Settings, chip: Chip, say: Callable[[str], None]) -> list[dict]:
    """What XLA's programs for a TPU are, compiled without one."""
    from jax.experimental import topologies

    from xsim import rollout, step

    if importlib.util.find_spec("libtpu") is None:
        raise TargetError("libtpu, XLA's compiler for TPUs, is not installed: pip install 'jax[tpu]'")
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    topology = topologies.get_topology_desc(chip.architecture, "tpu")
    mesh = jax.sharding.Mesh(topology.devices[:1], ("environments",))
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    pushed, state = push(model, settings.batch, settings.seed), init(model, start(model, settings.batch, settings.seed))

    def advance(model, state, values):
        inputs = {f"{pushed.kind}s": jnp.broadcast_to(values, (settings.steps, *values.shape))}
        return rollout(model, state, steps=settings.steps, **inputs)[0]

    def gradient(model, state, values):
        return jax.grad(lambda values: (advance(model, state, values).q ** 2).sum())(values)

    functions: dict[str, tuple[Callable, int]] = {
        "step": (lambda m, s, x: step(m, s, **{pushed.kind: x}), 1),
        "rollout": (advance, settings.steps),
        "gradient": (gradient, settings.steps),
    }
    out = []
    for name, (function, steps) in functions.items():
        if name == "gradient" and not settings.gradient:
            continue
        say(f"{name}: XLA compiles it for {chip.name}")
        begin = cpu_seconds()
        jitted = jax.jit(function, in_shardings=sharding, out_shardings=sharding)
        program = jitted.trace(model, state, pushed.values).lower(lowering_platforms=("tpu",)).compile()
        stats, text = program.memory_analysis(), program.as_text() or ""
        size = stats.temp_size_in_bytes + stats.argument_size_in_bytes + stats.output_size_in_bytes
        kernels = kernels_per_step(text, steps) if steps > 1 else None
        cost = program.cost_analysis() or {}
        moved = float(cost.get("bytes accessed", 0.0)) / steps
        out.append({
            "program": name, "steps": steps, "kernels_per_step": None if kernels is None else sum(kernels.values()),
            "operations_per_step": None, "registers": None, "spilled_bytes": None, "bytes_per_env": size / settings.batch,
            "estimated_step_s": moved / chip.bandwidth if moved else None, "compile_cpu_s": cpu_seconds() - begin,
        })  # fmt: skip
    return out


# ---- report --------------------------------------------------------------------------------------------------------------------


def programs(name: str, settings: Settings, say: Callable[[str], None]) -> dict[str, Any]:
    """The programs of a target as JSON. Raises TargetError if the target is unknown or a compiler of it is missing."""
    chip = CHIPS.get(name)
    if chip is None:
        raise TargetError(f"unknown target {name!r}{did_you_mean(name, CHIPS)}; known: {', '.join(CHIPS)}")
    if settings.randomize is not None:
        raise TargetError("--target has no --randomize: leaves are shared by the environments")
    with jax.enable_x64(settings.dtype == "float64"):
        model = loaded_model(settings)
        if name.startswith("tpu"):
            found, reasoning = tpu_programs(model, settings, chip, say), "bytes that the program moves / memory bandwidth"
        else:
            find_ptxas()
            found, reasoning = [], REASONING
            for target in targets(model, settings):
                say(f"{target.program}: compiled for {chip.name}")
                found.append(gpu_program(target, chip, settings.batch))
    return {
        "target": name, "chip": asdict(chip), "model": Path(settings.model).name, "batch": settings.batch, "dtype": settings.dtype,
        "constraints": settings.constraints, "frozen": list(settings.freeze), "programs": found, "estimate": reasoning, "run": False,
        "versions": {
            "xsim": __version__, "jax": jax.__version__, "llvmlite": llvmlite.__version__, "python": platform.python_version(),
        },
    }  # fmt: skip


ROWS = (
    ("kernels per step", "kernels_per_step", "{:.3g}"), ("operations per step", "operations_per_step", "{:,.0f}"),
    ("registers", "registers", "{}"), ("spilled, bytes", "spilled_bytes", "{:,}"), ("bytes per environment", "bytes_per_env", "{:,.0f}"),
    ("compile, CPU s", "compile_cpu_s", "{:.1f}"), ("estimated time of a step, s", "estimated_step_s", "{:.2e}"),
)  # fmt: skip


def table(report: dict[str, Any]) -> str:
    """A report as a table in Markdown."""
    found = report["programs"]
    lines = [
        f"{report['model']}, {report['batch']} environments, {report['dtype']}, {report['chip']['name']}: compiled, not run", "",
        f"| | {' | '.join(p['program'] for p in found)} |", f"|---|{'---|' * len(found)}",
    ]  # fmt: skip
    for label, key, form in ROWS:
        lines.append(f"| {label} | {' | '.join('' if p[key] is None else form.format(p[key]) for p in found)} |")
    return "\n".join([*lines, "", f"Estimate: {report['estimate']}"])
