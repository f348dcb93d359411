"""Programs of operations on single numbers: the form of a function from which machine code is generated.

A program describes one environment. Each value is a number, identified by its index. A value is *uniform* if all environments have the same
number, and *varying* otherwise, as in ISPC (Pharr and Mark 2012, ispc: A SPMD compiler for high-performance CPU programming). Equal
operations are stored once, constants are folded, and an operation is placed in the outermost scope in which its arguments are known. The
outermost scope holds what depends on uniform inputs alone and is evaluated once a call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

BOOL = np.dtype(bool)
INDEX = np.dtype(np.int32)
"""Type of the indices of arrays."""
BLOCK_MAX, BLOCK_OR = "block_max", "block_or"
"""The operations that take the maximum over a block of environments, or the bits that are set in any. Other operations are of each
environment by itself."""
NO_OPERATIONS = ("constant", "input", "copy", "phi", "result", "buffer")
"""Names of values that take no time."""


class Scope:
    """A list of operations that are evaluated together: a call, an environment, the condition or the body of a loop.

    items: indices of values, `Loop` and `Store` objects, in the order of evaluation."""

    __slots__ = ("depth", "items", "known", "loop", "parent")

    def __init__(self, parent: Scope | None = None, loop: Loop | None = None):
        self.parent = parent
        self.depth = 0 if parent is None else parent.depth + 1
        self.items: list = []
        self.known: dict = {}
        self.loop = loop

    def within(self, loop: Loop) -> bool:
        """Whether the scope is one of the loop, or of a loop inside."""
        scope: Scope | None = self
        while scope is not None and scope.loop is not loop:
            scope = scope.parent
        return scope is not None


@dataclass(eq=False)
class Loop:
    """while condition: state = body(state).

    * phis: the carried values at the start of a turn; starts: their values before the loop; ends: after the body; results: after the loop.
    * condition: scope of the condition, whose value is ``proceed``. body: scope of the body, within that of the condition.
    * turns: number of turns; None if it depends on the state.
    """

    condition: Scope
    body: Scope
    phis: list[int] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    proceed: int = -1
    turns: int | None = None

    @property
    def stored(self) -> set[int]:
        """The arrays to which the loop writes, and loops inside."""
        items = [x for scope in (self.condition, self.body) for x in scope.items if not isinstance(x, int)]
        return {array for x in items for array in ((x.array,) if isinstance(x, Store) else x.stored)}

    @property
    def around(self) -> Scope:
        """The scope of the loop itself."""
        assert self.condition.parent is not None
        return self.condition.parent


@dataclass(eq=False)
class Store:
    """array[index + offset] = value, in a mutable array; += if it adds. offset: a constant."""

    array: int
    index: int
    offset: int
    value: int
    adds: bool = False


@dataclass(frozen=True)
class Input:
    """Element ``element`` of operand ``operand`` of the function, of which each environment has its own or which all share."""

    operand: int
    element: int


class Program:
    """The values of a program and the scopes that hold them. Lists are indexed by value.

    * names: the operation: "constant", "input", "phi", "result" (of a loop), "array" (of its arguments), "buffer" (a mutable array), "load"
      (array, index), "copy" (of a value, equal only to itself), or that of a JAX primitive on scalars.
    * arguments, types (numpy dtypes; of arrays that of their elements), varying, scopes.
    * data: the number of a constant, the `Input` of an input, the size of a buffer, the offset of a load (see `load`), the `Loop` of a phi
      or result; else None.
    """

    def __init__(self):
        self.names: list[str] = []
        self.arguments: list[tuple[int, ...]] = []
        self.types: list[np.dtype] = []
        self.varying: list[bool] = []
        self.scopes: list[Scope] = []
        self.data: list = []
        self.call = Scope()
        self.environment = Scope(self.call)
        self.scope = self.environment
        self.outputs: list[list[int]] = []
        self.stores: dict[int, list[tuple[Store, Scope]]] = {}
        self.complete: set[int] = set()  # buffers to which nothing more is written

    # ---- values ----------------------------------------------------------------------------------------------------------------

    def _new(self, name: str, arguments: tuple[int, ...], dtype: np.dtype, varying: bool, scope: Scope, data=None) -> int:
        index = len(self.names)
        self.names.append(name)
        self.arguments.append(arguments)
        self.types.append(dtype)
        self.varying.append(varying)
        self.scopes.append(scope)
        self.data.append(data)
        return index

    def constant(self, number: np.generic) -> int:
        """The value of a numpy scalar."""
        key = (number.dtype, number.tobytes())
        found = self.call.known.get(key)
        if found is None:
            found = self.call.known[key] = self._new("constant", (), number.dtype, False, self.call, number)
        return found

    def input(self, operand: int, element: int, dtype: np.dtype, varying: bool) -> int:
        """An element of an operand of the function."""
        scope = self.environment if varying else self.call
        index = self._new("input", (), dtype, varying, scope, Input(operand, element))
        scope.items.append(index)
        return index

    def operation(self, name: str, dtype: np.dtype, arguments: tuple[int, ...], data=None) -> int:
        """An operation without side effects, as it is; see `Builder` for one that folds constants."""
        scope, varying = self.call, False
        for x in arguments:
            other = self.scopes[x]
            if other.depth > scope.depth:
                scope = other
            varying = varying or self.varying[x]
        varying = varying and name not in (BLOCK_MAX, BLOCK_OR)
        key = (name, dtype, arguments, data)
        found = scope.known.get(key)
        if found is None:
            found = scope.known[key] = self._new(name, arguments, dtype, varying, scope, data)
            scope.items.append(found)
        return found

    def block_max(self, value: int) -> int:
        """The maximum of a signed integer over the environments that are evaluated together. It is uniform among these."""
        return self.operation(BLOCK_MAX, self.types[value], (value,)) if self.varying[value] else value

    def block_or(self, value: int) -> int:
        """The bits of an integer that are set in any of the environments that are evaluated together. It is uniform among these."""
        return self.operation(BLOCK_OR, self.types[value], (value,)) if self.varying[value] else value

    def copy(self, value: int, here: bool) -> int:
        """A value with the same number that is equal only to itself. here: whether it belongs to this place of the program, or where the
        value is."""
        scope = self.scope if here else self.scopes[value]
        copied = self._new("copy", (value,), self.types[value], self.varying[value], scope)
        scope.items.append(copied)
        return copied

    def original(self, value: int) -> int:
        """The value of which a value is a copy, or a copy of a copy; other values themselves."""
        while self.names[value] == "copy":
            (value,) = self.arguments[value]
        return value

    def number(self, value: int):
        """The number of a constant, None for other values."""
        return self.data[value] if self.names[value] == "constant" else None

    # ---- arrays ----------------------------------------------------------------------------------------------------------------

    def array(self, values: Sequence[int], dtype: np.dtype) -> int:
        """An array in memory, which can be indexed by values. The entries of a complete buffer are the buffer."""
        if values and self.names[values[0]] == "load":
            buffer = self.arguments[values[0]][0]
            if buffer in self.complete and list(values) == self.entries(buffer):
                return buffer
        return self.operation("array", dtype, tuple(values))

    def buffer(self, size: int, dtype: np.dtype, varying: bool = True) -> int:
        """A mutable array without contents, of which each environment has its own if it is varying, else each block of environments. To the
        latter only uniform values are stored."""
        return self._new("buffer", (), dtype, varying, self.scope, size)

    def store(self, buffer: int, index: int, offset: int, value: int, adds: bool = False) -> None:
        """buffer[index + offset] = value, at this place of the program; += if it adds."""
        assert self.varying[buffer] or not (self.varying[index] or self.varying[value])
        store = Store(buffer, index, offset, value, adds)
        self.scope.items.append(store)
        self.stores.setdefault(buffer, []).append((store, self.scope))

    def load(self, array: int, index: int, offset: int = 0) -> int:
        """array[index + offset]. Of a buffer: what it holds at this place of the program. offset: a constant."""
        number = self.number(index)
        if number is not None and self.names[array] == "array":
            return self.arguments[array][int(number) + offset]
        if self.names[array] == "array" or array in self.complete:
            return self.operation("load", self.types[array], (array, index), offset)
        value = self._new("load", (array, index), self.types[array], self.varying[array] or self.varying[index], self.scope, offset)
        self.scope.items.append(value)
        return value

    def entries(self, buffer: int) -> list[int]:
        """All entries of a buffer, to which nothing is written from now on."""
        self.complete.add(buffer)
        zero = self.constant(INDEX.type(0))
        return [self.load(buffer, zero, k) for k in range(self.data[buffer])]

    @contextmanager
    def within(self, scope: Scope):
        """Context in which operations with side effects are added to another scope."""
        before, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = before

    def recorded(self, value: int, loop: Loop, turns: int) -> int:
        """A complete buffer with the numbers of a value of a counted loop in each turn. The first carried value of the loop is the turn."""
        with self.within(loop.around):
            buffer = self.buffer(turns, self.types[value])
        with self.within(loop.body):
            self.store(buffer, loop.phis[0], 0, value)
        self.complete.add(buffer)
        return buffer

    def is_same(self, a: int, b: int, turns: tuple[int, ...]) -> bool:
        """Whether two values are the same function of the number of a turn, which is turns[0] for a and turns[1] for b."""
        work, seen = [(a, b)], {turns}
        while work:
            pair = a, b = work.pop()
            if pair in seen or (a == b and a not in turns):
                continue
            seen.add(pair)
            arguments = self.arguments[a], self.arguments[b]
            alike = all(x[a] == x[b] for x in (self.names, self.types, self.data)) and len(arguments[0]) == len(arguments[1])
            if not alike or not arguments[0] or self.names[a] in ("phi", "result", "copy"):
                return False
            work += zip(*arguments, strict=True)
        return True

    def sums(self, size: int, dtype: np.dtype, loop: Loop) -> int:
        """A buffer of sums over the turns of a loop, which are zero before the loop. See `add_to_sum`."""
        with self.within(loop.around):
            return self.filled([self.constant(dtype.type(0))] * size, dtype)

    def filled(self, values: Sequence[int], dtype: np.dtype, varying: bool = True) -> int:
        """A mutable array that holds these values. varying: see `buffer`."""
        buffer = self.buffer(len(values), dtype, varying)
        for k, value in enumerate(values):
            self.store(buffer, self.constant(INDEX.type(0)), k, value)
        return buffer

    def add_to_sum(self, buffer: int, index: int, offset: int, value: int, around: Scope) -> None:
        """Add a value in each turn of the innermost loop of this place to entry index + offset of a buffer, such as one of `sums`. around:
        the scope of the buffer, that of a loop around this place.

        A block of environments makes the turns that any of them needs; the others add nothing."""
        dtype, scope = self.types[value], self.scope
        while scope is not around and scope.loop is not None:
            if self.varying[scope.loop.proceed]:
                value = self.operation("select_n", dtype, (scope.loop.proceed, self.constant(dtype.type(0)), value))
            scope = scope.loop.around
        self.store(buffer, index, offset, value, adds=True)

    def rows_at(self, array: int, index: int, offset: int) -> range:
        """The numbers that an index may be, if array[index + offset] is an entry: multiples of a constant, up to a constant."""
        size = self.data[array] if self.names[array] == "buffer" else len(self.arguments[array])
        factor, row = self._with_constant("mul", index)
        largest, _ = self._with_constant("min", row)
        step = max(1, factor or 1)
        end = size - offset if largest is None else min(size - offset, largest * step + 1)
        return range(0, end, step)

    def _with_constant(self, name: str, value: int) -> tuple[int | None, int]:
        """The constant and the other argument of an operation; None and the value itself of another value."""
        value = self.original(value)
        for x, other in (self.arguments[value], self.arguments[value][::-1]) if self.names[value] == name else ():
            if (number := self.number(x)) is not None:
                return int(number), other
        return None, value

    # ---- loops -----------------------------------------------------------------------------------------------------------------

    def loop(self, starts: list[int], varying: list[bool], condition: Callable, body: Callable) -> Loop:
        """while condition(phis): phis = body(phis). `results` adds it to the program.

        varying: whether the carried values differ between environments."""
        parent = self.scope
        head = Scope(parent)
        loop = Loop(head, Scope(head), starts=list(starts))
        head.loop = loop.body.loop = loop
        try:
            self.scope = head
            loop.phis = [self._new("phi", (), self.types[x], v, head, loop) for x, v in zip(starts, varying, strict=True)]
            loop.proceed = condition(loop.phis)
            self.scope = loop.body
            loop.ends = body(loop.phis)
        finally:
            self.scope = parent
        return loop

    def discard(self, loop: Loop) -> None:
        """Forget the stores of a loop that is not added to the program."""
        for buffer, stores in self.stores.items():
            self.stores[buffer] = [(store, scope) for store, scope in stores if not scope.within(loop)]

    def results(self, loop: Loop) -> list[int]:
        """Add a loop to the program, and return the carried values after it. No value of the body may vary where the carried one does not.

        A counter that is uniform within the loop differs after the loop if the number of turns does. A second phi, of which each
        environment has its own, then holds it; it is only computed if it is used."""
        count, second = len(loop.phis), {}
        for i in range(count):
            phi = loop.phis[i]
            if self.varying[loop.proceed] and not self.varying[phi]:
                second[i] = len(loop.phis)
                loop.phis.append(self._new("phi", (), self.types[phi], True, loop.condition, loop))
                loop.starts.append(loop.starts[i])
                loop.ends.append(loop.ends[i])
        self.scope.items.append(loop)
        loop.results = [self._new("result", (phi,), self.types[phi], self.varying[phi], self.scope, loop) for phi in loop.phis]
        return [loop.results[second.get(i, i)] for i in range(count)]

    # ---- use -------------------------------------------------------------------------------------------------------------------

    def live(self, arguments: Mapping[int, tuple[int, ...]] = MappingProxyType({})) -> set[int]:
        """The values on which the outputs depend. arguments: of values that are computed from others than their own arguments."""
        found: set[int] = set()
        work = [x for output in self.outputs for x in output]
        carried: dict[int, tuple[int, int, int]] = {}
        while work:
            x = work.pop()
            if x in found:
                continue
            found.add(x)
            work += arguments.get(x, self.arguments[x])
            name = self.names[x]
            if name == "phi":
                work += self.carried_from(x, carried)
            elif name == "buffer":
                for store, scope in self.stores.get(x, ()):
                    work += (store.index, store.value)
                    while scope.loop is not None:
                        work.append(scope.loop.proceed)
                        scope = scope.loop.condition.parent
        return found

    def carried_from(self, phi: int, known: dict[int, tuple[int, int, int]]) -> tuple[int, int, int]:
        """The values of a phi before the loop and after a turn, and whether there is another turn.

        known: those of other phis; those of this loop are added."""
        if phi not in known:
            loop = self.data[phi]
            known.update((x, (start, end, loop.proceed)) for x, start, end in zip(loop.phis, loop.starts, loop.ends, strict=True))
        return known[phi]

    def evaluated(self, turns: float, inner_turns: float) -> float:
        """About how many operations are evaluated for an environment.

        turns: of a loop whose number of turns depends on the state; inner_turns: of such a loop within another."""
        total = 0.0
        for x in self.live():
            if self.names[x] in NO_OPERATIONS or self.scopes[x] is self.call:
                continue
            scope, loops = self.scopes[x], []
            while scope.loop is not None:
                loops.append(scope.loop.turns)
                scope = scope.loop.condition.parent or self.environment
            times, within = 1.0, False
            for count in reversed(loops):
                times *= count if count is not None else inner_turns if within else turns
                within = within or count is None
            total += times
        return total

    def count(self, live: set[int]) -> dict[int, int]:
        """Number of operations by depth of loops: 0 outside of loops, 1 in a loop, ... live: the values that are used."""
        counts: dict[int, int] = {}
        for x in live:
            if self.names[x] not in NO_OPERATIONS:
                depth = max(0, self.scopes[x].depth) // 2
                counts[depth] = counts.get(depth, 0) + 1
        return counts
