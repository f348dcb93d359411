"""Division of a long program into parts, which are functions of their own.

The time in which LLVM makes machine code grows faster than the length of a function, and so does the memory that NVIDIA's assembler takes.
Values that one part computes and another one reads are kept in the scratch memory of the block of environments, or computed again. A long
loop of a very long program is divided itself: its carried values are in scratch memory, too.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from xsim.compile.elementary import ELEMENTARY
from xsim.compile.program import BOOL, Loop, Program, Store
from xsim.compile.registers import Memory
from xsim.compile.scheduling import Scheduler


class Limits(NamedTuple):
    """Numbers of operations up to which code is not divided.

    outside: operations outside of the loops of a program, with those of the values of the call. If there are more, the code outside of
    loops is divided into parts of ``part`` operations. undivided_loops: operations of a whole program. If it has more, its loops of more
    than ``loop`` operations are divided, too."""

    outside: int
    part: int
    undivided_loops: int
    loop: int


CPU_LIMITS = Limits(outside=2_000, part=5_000, undivided_loops=20_000, loop=10_000)
"""LLVM takes half of the time for the step of a half cheetah in parts, which are compiled at a time, and the code is as fast as that of one
function. It takes 0.4 of the time for a humanoid's step in a divided loop of Runge-Kutta's stages, to which stores and loads between parts
add up to a tenth of its run time; the step of an ant and its derivative are as fast."""
GPU_LIMITS = Limits(outside=50_000, part=3_000, undivided_loops=50_000, loop=3_000)
"""No GPU has run parts: `xsim.compile.function.MAX_GPU_OPERATIONS` is as small, but `python -m xsim.bench --target` assembles longer
programs. As one function, a humanoid's step takes NVIDIA's assembler six times as long, and 10 GB."""
GATHER_SIZE, ELEMENTARY_SIZE = 8, 20
"""Operations that some count as, because they have longer machine code: a load or a store of which each environment has its own index, and
a call of an elementary function."""


@dataclass(frozen=True)
class Assignment:
    """The carried values of a divided loop get new values: those before the loop, or those after a turn."""

    loop: Loop
    before: bool

    @property
    def values(self) -> list[int]:
        return self.loop.starts if self.before else self.loop.ends


@dataclass(frozen=True)
class Output:
    """Entries of a result of the program are stored."""

    result: int
    entries: tuple[int, ...]

    def values(self, program: Program) -> list[int]:
        """What is stored."""
        values = program.outputs[self.result]
        return [values[i] for i in self.entries]


@dataclass(eq=False)
class Part:
    """A function. items: values, `Loop`, `Store`, `Assignment` and `Output` objects, in the order of evaluation. loops: the divided loops
    around it, the outermost first. test: the loop of which it computes at last whether to proceed. index: its place among all parts."""

    loops: tuple[Loop, ...]
    items: list = field(default_factory=list)
    operations: int = 0
    test: Loop | None = None
    index: int = -1


@dataclass(eq=False)
class DividedLoop:
    """A loop whose condition and body are divided."""

    loop: Loop
    condition: list[Part | DividedLoop]
    body: list[Part | DividedLoop]


Divided = list[Part | DividedLoop]


def parts_of(divided: Divided) -> Iterator[Part]:
    """The parts, in the order of evaluation."""
    for x in divided:
        if isinstance(x, Part):
            yield x
        else:
            yield from parts_of(x.condition)
            yield from parts_of(x.body)


class Divider:
    """Divides scopes. operations: numbers of live operations by depth of loops. early: whether results are stored where they are computed,
    for which few of them wait; else all are stored last, when all that the program reads is read, and may replace it."""

    def __init__(
        self, program: Program, live: set[int], scheduler: Scheduler, limits: Limits, operations: Mapping[int, int], early: bool = False
    ):  # fmt: skip
        self.program, self.live, self.scheduler, self.limits, self.early = program, live, scheduler, limits, early
        self.divides_loops = sum(operations.values()) > limits.undivided_loops
        self.divides = self.divides_loops or operations.get(0, 0) > limits.outside
        self.sizes: dict[Loop, int] = {}  # operations of loops

    def divided(self) -> Divided:
        """The parts of what is computed for an environment."""
        out = self._parts(self._with_outputs(self.scheduler.ordered(self.program.environment)), ())
        for index, part in enumerate(parts_of(out)):
            part.index = index
        return out

    def _with_outputs(self, items: list) -> list:
        """Items, and what stores the results."""
        computed = {x for item in items for x in results_of(item)} if self.early else set()
        after: dict[int, list[Output]] = {}
        last = []
        for k, values in enumerate(map(self._originals, self.program.outputs)):
            for i, x in enumerate(values):
                if x in computed:
                    after.setdefault(x, []).append(Output(k, (i,)))
            rest = tuple(i for i, x in enumerate(values) if x not in computed)
            last += [Output(k, rest)] if rest else []
        return [x for item in items for x in (item, *(o for value in results_of(item) for o in after.get(value, ())))] + last

    def _originals(self, values: list[int]) -> list[int]:
        return [self.program.original(x) for x in values]

    def _parts(self, items: list, loops: tuple[Loop, ...]) -> Divided:
        """The parts of these items."""
        out: Divided = []
        part = Part(loops)
        for item in items:
            count = self._operations(item)
            if isinstance(item, Loop) and self.divides_loops and count > self.limits.loop:
                part.items.append(Assignment(item, True))
                out += [part, self._loop(item, loops)]
                part = Part(loops)
                continue
            if self.divides and part.operations and part.operations + count > self.limits.part:
                out.append(part)
                part = Part(loops)
            part.items.append(item)
            part.operations += count
        return [*out, part]

    def _loop(self, loop: Loop, loops: tuple[Loop, ...]) -> DividedLoop:
        items, rest = self.scheduler.divided_at_results(loop.condition)
        condition = self._parts(items, loops)
        test = condition[-1]
        assert isinstance(test, Part)
        test.test = loop
        body = [*rest, *self.scheduler.ordered(loop.body), Assignment(loop, False)]
        return DividedLoop(loop, condition, self._parts(body, (*loops, loop)))

    def _operations(self, item: Any) -> int:
        """About how many operations an item has."""
        if isinstance(item, Loop):
            if item not in self.sizes:
                items = [x for scope in (item.condition, item.body) for x in scope.items]
                self.sizes[item] = sum(self._operations(x) for x in items if not isinstance(x, int) or x in self.live)
            return self.sizes[item]
        if isinstance(item, Output):
            return len(item.entries)
        if isinstance(item, Assignment):
            return len(item.values)
        if isinstance(item, Store):
            return self._of_entry(item.index)
        name, arguments = self.program.names[item], self.program.arguments[item]
        if name == "array":
            return len(arguments)
        if name == "load":
            return self._of_entry(arguments[1])
        return ELEMENTARY_SIZE if name in ELEMENTARY else 1

    def _of_entry(self, index: int) -> int:
        """Of a load or a store at an index."""
        return GATHER_SIZE if self.program.varying[index] else 1


@dataclass(frozen=True)
class Places:
    """Where values are in the scratch memory of a block, in bytes from its begin.

    offsets: of a value that a part reads from another one; of a divided loop: of the mask of the environments that make the current turn.
    carried: the carried value of each result of a divided loop, whose place the result has. size: bytes of all. recomputed: values without
    a place that each part which reads them computes again, see `_recomputed`."""

    offsets: dict[int | Loop, int] = field(default_factory=dict)
    carried: dict[int, int] = field(default_factory=dict)
    size: int = 0
    recomputed: frozenset[int] = frozenset()

    def offset(self, key: int | Loop) -> int:
        return self.offsets[key if isinstance(key, Loop) else self.carried.get(key, key)]

    def __contains__(self, value: int) -> bool:
        return self.carried.get(value, value) in self.offsets


def results_of(item: Any) -> Collection[int]:
    """The values that an item of a scope computes."""
    return (item,) if isinstance(item, int) else item.results if isinstance(item, Loop) else ()


def read_by(item: Any, program: Program, live: set[int], scheduler: Scheduler) -> Collection[int]:
    """The values that an item reads."""
    if isinstance(item, Assignment):
        return [program.original(v) for v, phi in zip(item.values, item.loop.phis, strict=True) if phi in live]
    if isinstance(item, Output):
        return [program.original(v) for v in item.values(program)]
    return scheduler.arguments(item) if isinstance(item, int) else scheduler.read_by(item)


class Lifetimes:
    """The first and the last part that need a value in scratch memory.

    A value that is read within a divided loop, but computed before it, is needed to the end of the loop."""

    def __init__(self, program: Program, live: set[int], scheduler: Scheduler, divided: Divided):
        self.program, self.live, self.scheduler = program, live, scheduler
        self.parts = list(parts_of(divided))
        self.spans: dict[Loop, tuple[int, int]] = {}  # the first and the last part of divided loops
        self.around: list[list[tuple[int, int]]] = [[] for _ in self.parts]  # of each part: those of the loops around, the outermost first
        self.carried: dict[int, int] = {}
        self._find_loops(divided)
        self.computed_in: dict[int, int] = {}
        self.first: dict[int | Loop, int] = {}
        self.last: dict[int | Loop, int] = {}
        for part in self.parts:
            self._computed(part)
        for part in self.parts:
            self._read(part)

    def _find_loops(self, divided: Divided) -> None:
        for x in divided:
            if isinstance(x, DividedLoop):
                inside = [part.index for part in parts_of([x])]
                span = self.spans[x.loop] = inside[0], inside[-1]
                for index in inside:
                    self.around[index].append(span)
                self.carried.update(zip(x.loop.results, x.loop.phis, strict=True))
                self._find_loops(x.condition)
                self._find_loops(x.body)

    def _computed(self, part: Part) -> None:
        """Note what is computed in a part."""
        for item in part.items:
            if isinstance(item, int) and self.program.names[item] != "array":
                self.computed_in[item] = part.index
            elif isinstance(item, Loop):
                self.computed_in.update(dict.fromkeys(item.results, part.index))
            elif isinstance(item, Assignment) and item.before:
                for phi in self.live.intersection(item.loop.phis):
                    self.computed_in[phi] = part.index
                    self._needed(phi, part.index, self.spans[item.loop][1])
        if part.test is not None:
            self._needed(part.test, part.index, self.spans[part.test][1])

    def _read(self, part: Part) -> None:
        """Note what a part reads from others."""
        for item in part.items:
            for value in read_by(item, self.program, self.live, self.scheduler):
                self._read_in(part, value)
        if part.test is not None:
            self._read_in(part, part.test.proceed)

    def _read_in(self, part: Part, value: int) -> None:
        value = self.carried.get(value, value)
        start = self.computed_in.get(value, part.index)
        if start != part.index:
            ends = (end for begin, end in self.around[part.index] if not begin <= start <= end)
            self._needed(value, start, next(ends, part.index))

    def _needed(self, key: int | Loop, first: int, last: int) -> None:
        self.first[key] = first
        self.last[key] = max(last, self.last.get(key, last))


def places_of(program: Program, lifetimes: Lifetimes, lanes: int) -> Places:
    """Places in scratch memory. Values whose lifetimes do not overlap share one. lanes: environments of a block."""
    memory, offsets, recomputed = Memory(), {}, _recomputed(program, lifetimes)
    ends: list[tuple[int, int, int]] = []  # a heap of (last part, offset, bytes)
    for key in sorted((k for k in lifetimes.first if k not in recomputed), key=lambda k: lifetimes.first[k]):
        while ends and ends[0][0] < lifetimes.first[key]:
            memory.give(*heapq.heappop(ends)[1:])
        width = width_of(program, key, lanes)
        offsets[key] = memory.take(width)
        heapq.heappush(ends, (lifetimes.last[key], offsets[key], width))
    return Places(offsets, lifetimes.carried, memory.end, recomputed)


RECOMPUTED = ("add", "sub", "mul", "neg")
"""Operations that take no longer than to store a value, which may push another one out of the first-level cache."""


def _recomputed(program: Program, lifetimes: Lifetimes) -> frozenset[int]:
    """The values that are computed again where they are read: all that they are computed from has a place anyway. This may have to stay
    there longer."""
    first, last, found = lifetimes.first, lifetimes.last, set()
    for key in sorted(k for k in first if isinstance(k, int)):
        if program.names[key] not in RECOMPUTED or not program.varying[key]:
            continue
        arguments = [x for x in map(program.original, program.arguments[key]) if program.scopes[x] is not program.call]
        if all(x in first and x not in found and first[x] <= first[key] for x in arguments):
            found.add(key)
            last.update((x, max(last[x], last[key])) for x in arguments)
    return frozenset(found)


MIN_BITS = 8
"""Environments of a block from which on a boolean in scratch memory is a bit for each of them; it is four bytes of fewer environments."""


def width_of(program: Program, key: int | Loop, lanes: int) -> int:
    """Bytes in scratch memory of a value, or of the mask of a loop."""
    dtype, varying = (BOOL, True) if isinstance(key, Loop) else (program.types[key], program.varying[key])
    if dtype == BOOL and varying and lanes >= MIN_BITS:
        return lanes // 8
    return max(4, dtype.itemsize) * (lanes if varying else 1)
