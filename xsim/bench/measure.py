"""Timing of one engine: trace, compile, run, memory, and the kernels of one step in the compiled program. Needs jax alone."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Program", "compile_program", "kernels_per_step", "timed"]


class Program(NamedTuple):
    """Something that can be run and timed. ``cost``: what compiling it took and what it needs (JSON)."""

    run: Callable[[], Any]
    cost: dict


def compile_program(fn, args: tuple, *, batch: int, steps: int) -> Program:
    """Trace and compile ``fn(*args)`` with jax's default options.

    The cost holds seconds of both, bytes per environment (arguments, results and temporary memory of the program) and kernels per
    step by opcode; null for what the backend does not tell.
    """
    import jax

    begin = time.perf_counter()
    lowered = jax.jit(fn).lower(*args)
    traced = time.perf_counter()
    program = lowered.compile()
    done = time.perf_counter()
    cost = {"trace_s": traced - begin, "compile_s": done - traced, "bytes_per_env": _memory(program, batch)}
    cost["kernels"] = kernels_per_step(program.as_text() or "", steps)
    return Program(lambda: jax.block_until_ready(program(*args)), cost)


SHORTEST_MEASUREMENT = 0.05
"""Seconds. The first run after one of another engine finds cold caches and sleeping threads, which takes as long as a whole short run."""


def timed(program: Program) -> tuple[float, Any]:
    """Seconds of a run, and its result: the mean of as many runs as take `SHORTEST_MEASUREMENT` together."""
    begin, runs = time.perf_counter(), 0
    while True:
        result = program.run()
        runs, seconds = runs + 1, time.perf_counter() - begin
        if seconds >= SHORTEST_MEASUREMENT:
            return seconds / runs, result


def _memory(program, batch: int) -> float | None:
    stats = program.memory_analysis()
    if stats is None:
        return None
    return (stats.temp_size_in_bytes + stats.argument_size_in_bytes + stats.output_size_in_bytes) / batch


# ---- kernels in the text of a compiled program ---------------------------------------------------------------------------------

# Opcodes that start no kernel: they only name memory.
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "opt-barrier", "iota", "partition-id", "replica-id"}
_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.\-]+) \(.*\{\s*$")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (?:\(.*?\)|\S+) ([a-z][\w\-]*)\(")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


class _Instruction(NamedTuple):
    opcode: str
    calls: tuple[str, ...]  # computations it runs one after another
    trips: int | None  # of a while


def kernels_per_step(text: str, steps: int) -> dict[str, float] | None:
    """Kernels that one step starts, by opcode, counted in the HLO text of a compiled program.

    A step is the body of every loop that runs ``steps`` times and is not inside another such (a gradient has two: forward and
    reverse); loops inside are counted as often as they run, of branches the larger one, callees of ``call`` in place. Without such a
    loop, as where a call makes many steps: the kernels of the whole program, divided by the steps. None of a text without a program.
    """
    computations, entry = _parse(text)
    bodies = {}
    for instructions in computations.values():
        for i in instructions:
            if i.opcode == "while" and i.trips == steps:
                bodies[i.calls[0]] = None
    outer = [b for b in bodies if not any(o != b and b in _reached(computations, o) for o in bodies)]
    if not outer:
        return {k: n / steps for k, n in sorted(_count(computations, entry).items())} if entry else None
    total: Counter = Counter()
    for body in outer:
        total += _count(computations, body)
    return dict(sorted(total.items()))


def _parse(text: str) -> tuple[dict[str, list[_Instruction]], str]:
    """The computations of a program, and the name of the one that is called."""
    out: dict[str, list[_Instruction]] = {}
    entry = ""
    current: list[_Instruction] = []
    for line in text.splitlines():
        if not line.startswith(" ") and (start := _COMPUTATION.match(line)):
            current = out.setdefault(start[1], [])
            entry = start[1] if line.startswith("ENTRY") else entry
        elif match := _INSTRUCTION.match(line):
            trips = _TRIPS.search(line)
            current.append(_Instruction(match[1], _callees(match[1], line), int(trips[1]) if trips else None))
    return out, entry


_CALLEES = {
    "while": (re.compile(r"body=%?([\w.\-]+)"), re.compile(r"condition=%?([\w.\-]+)")),
    "call": (re.compile(r"to_apply=%?([\w.\-]+)"),),
    "conditional": (re.compile(r"(?:true_computation|false_computation)=%?([\w.\-]+)"), re.compile(r"branch_computations=\{([^}]*)\}")),
}


ONE_KERNEL = 'xla_cpu_small_call="true"'
"""What marks a call that XLA's CPU backend compiles as one kernel with all that it calls."""


def _callees(opcode: str, line: str) -> tuple[str, ...]:
    if ONE_KERNEL in line:
        return ()
    names: list[str] = []
    for pattern in _CALLEES.get(opcode, ()):
        for match in pattern.findall(line):
            names += [n.strip().lstrip("%") for n in match.split(",")]
    return tuple(names)


def _reached(computations, name: str) -> set[str]:
    seen: set[str] = set()
    todo = [name]
    while todo:
        for i in computations.get(todo.pop(), ()):
            todo += [c for c in i.calls if c not in seen]
            seen.update(i.calls)
    return seen


def _count(computations, name: str) -> Counter:
    total: Counter = Counter()
    for i in computations.get(name, ()):
        if i.opcode in FREE:
            continue
        inside = [_count(computations, c) for c in i.calls]
        if i.opcode == "call":
            total += inside[0] if inside else Counter({"call": 1})
        elif i.opcode == "while":
            body = sum(inside, Counter())
            total += Counter({k: n * (i.trips or 1) for k, n in body.items()})
        elif i.opcode == "conditional":
            total += max(inside, key=lambda c: c.total(), default=Counter()) + Counter({"conditional": 1})
        else:
            total[i.opcode] += 1
    return total
