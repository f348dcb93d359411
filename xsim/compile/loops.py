"""Loops of programs: counted loops over the entries of arrays in memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from xsim.compile import indexing
from xsim.compile.arrays import Array, Total, constant_array
from xsim.compile.program import BOOL, INDEX, Loop
from xsim.compile.traced import carried_count


@dataclass(frozen=True)
class Rolled:
    """A loop over arrays. results: the carried arrays after it. moving: which of their entries, one array after the other, are carried.
    carried: the arrays of which these are the moving entries."""

    results: list[Array]
    loop: Loop
    moving: list[int]
    carried: Callable[[list[int]], list[Array]]


class Scan:
    """A scan and its parts, which are told apart by their shapes. turns: their number, which differs between environments in a `Branch`."""

    def __init__(self, flattener, equation: JaxprEqn, xs: Sequence[Array]):
        self.flattener, self.equation = flattener, equation
        self.body, self.length, self.reverse = equation.params["jaxpr"], equation.params["length"], equation.params["reverse"]
        inner = [v.aval.shape for v in self.body.jaxpr.invars]
        sliced = [x.shape != shape for x, shape in zip(xs, inner, strict=True)]
        self.count = carried_count(equation)
        sequences = sum(sliced)
        constants = len(xs) - sequences - self.count
        self.constants, self.carry = list(xs[:constants]), list(xs[constants : constants + self.count])
        self.sequences = list(xs[constants + self.count :])
        self.order = range(self.length)[::-1] if self.reverse else range(self.length)
        self.turns = constant_array(np.array(self.length, INDEX))

    def slices_at(self, row: int) -> list[Array]:
        """The slices of the sequences at a row. row: a value."""
        return [indexing.dynamic_row(self.flattener, x, row) for x in self.sequences]

    def position(self, turn: Array) -> Array:
        """The row of a turn."""
        last = constant_array(np.array(self.length - 1, INDEX))
        return self.flattener.operate("sub", INDEX, last, turn) if self.reverse else turn

    def turn(self, carry: list[Array], slices: list[Array]) -> tuple[list[Array], list[Array]]:
        out = self.flattener.closed(self.body, [*self.constants, *carry, *slices])
        return out[: self.count], out[self.count :]

    def loop(self, carry: list[Array], condition: Callable, body: Callable) -> Rolled:
        """A loop over these carried arrays, the first of which is the turn."""
        self.flattener.suppose(self.equation, self.body.jaxpr, self.constants, self.carry, self.sequences, counters=1)
        return self.flattener.rolled(self.equation, carry, condition, body, self.length)

    def rolled(self) -> tuple[list[Array], Rolled]:
        """The results of the scan as a counted loop, and the loop, whose first carried value is the turn. Sequences and results are arrays
        in memory."""
        f, p = self.flattener, self.flattener.program
        outs = self.body.jaxpr.outvars[self.count :]

        def condition(carry):
            return f.operate("lt", BOOL, carry[0], self.turns)

        def body(carry):
            row = int(f.ids(self.position(carry[0])))
            new, results = self.turn(carry[1:], self.slices_at(row))
            for buffer, x in zip(buffers, results, strict=True):
                store(f, buffer, row, x)
            return [f.operate("add", INDEX, carry[0], constant_array(np.array(1, INDEX))), *new]

        sizes = [math.prod(v.aval.shape) for v in outs]
        buffers = [p.buffer(self.length * n, np.dtype(v.aval.dtype)) for n, v in zip(sizes, outs, strict=True)]
        loop = self.loop([constant_array(np.array(0, INDEX)), *self.carry], condition, body)
        results = [
            Array(np.array(p.entries(buffer), int).reshape(self.length, *v.aval.shape), np.dtype(v.aval.dtype))
            for buffer, v in zip(buffers, outs, strict=True)
        ]
        return [*loop.results[1:], *results], loop


class BoundedScan(Scan):
    """A scan whose number of turns is the first input: `xsim.compile.bounded.bounded_sum`."""

    def __init__(self, flattener, equation: JaxprEqn, xs: Sequence[Array]):
        super().__init__(flattener, equation, xs[1:])
        self.turns = flattener.operate("convert", INDEX, xs[0])

    def rolled(self) -> tuple[list[Array], Rolled]:
        """If the turns only scatter to the totals, these are in memory, instead of carried entry by entry."""
        if not self.only_scatters():
            return super().rolled()
        f, p = self.flattener, self.flattener.program
        buffers = [p.filled([*f.ids(x).ravel().tolist(), f.builder.constant(0, x.dtype)], x.dtype) for x in self.carry]
        totals = [Total(x.values, x.dtype, x.numbers, buffer, p.scope) for x, buffer in zip(self.carry, buffers, strict=True)]

        def condition(carry):
            return f.operate("lt", BOOL, carry[0], self.turns)

        def body(carry):
            self.turn(totals, self.slices_at(int(f.ids(self.position(carry[0])))))
            return [f.operate("add", INDEX, carry[0], constant_array(np.array(1, INDEX)))]

        rolled = f.rolled(self.equation, [constant_array(np.array(0, INDEX))], condition, body, self.length)
        results = [
            Array(np.array(p.entries(buffer)[:-1], int).reshape(x.shape), x.dtype) for buffer, x in zip(buffers, self.carry, strict=True)
        ]
        return results, self.with_totals(rolled, results)

    def with_totals(self, rolled: Rolled, results: list[Array]) -> Rolled:
        """A loop that carries its turn alone, as one that carries the totals, too."""
        counter, sizes = rolled.results[0], [math.prod(x.shape) for x in results]
        ends = np.cumsum([1, *sizes])

        def carried(values: list[int]) -> list[Array]:
            parts = np.split(np.array(values, int), ends[:-1])
            return [Array(part.reshape(x.shape), x.dtype) for part, x in zip(parts, [counter, *results], strict=True)]

        return Rolled([counter, *results], rolled.loop, list(range(ends[-1])), carried)

    def only_scatters(self) -> bool:
        """Whether each carried array is read once, by an equation that adds to entries of it and whose result is the new array."""
        jaxpr = self.body.jaxpr
        carried = jaxpr.invars[len(self.constants) : len(self.constants) + self.count]
        reads = [v for e in jaxpr.eqns for v in e.invars]
        scatters = {e.invars[0]: e.outvars[0] for e in jaxpr.eqns if e.primitive.name in ("scatter-add", "scatter_add")}
        return all(reads.count(v) == 1 and scatters.get(v) is out for v, out in zip(carried, jaxpr.outvars[: self.count], strict=True))


class BoundedMap(BoundedScan):
    """`xsim.compile.bounded.bounded_map` as a loop."""

    def rolled(self) -> tuple[list[Array], Rolled]:
        return Scan.rolled(self)

    def slices_at(self, row: int) -> list[Array]:
        """The number of the row."""
        return [Array(np.array(row), INDEX)]


class Branch(Scan):
    """A branch of `jax.lax.cond` as a loop that has one turn where it is chosen, else none. The results of the loop are those of the
    branch, or zero."""

    def __init__(self, flattener, branch: ClosedJaxpr, chosen: Array, xs: Sequence[Array]):
        self.flattener, self.equation, self.body = flattener, branch, branch
        self.length, self.reverse, self.order = 1, False, range(1)
        self.carry = [constant_array(np.zeros(a.shape, a.dtype)) for a in branch.out_avals]
        self.count, self.constants, self.sequences = len(self.carry), [], [x.moved(lambda a: a[None]) for x in xs]
        self.turns = flattener.operate("convert", INDEX, chosen)

    def slices_at(self, row: int) -> list[Array]:
        """Copies in the loop: an operation is evaluated where its arguments are known, which would be before the loop. Equal values have
        one copy, so that a symmetric matrix is one in the branch."""
        f = self.flattener

        @functools.cache
        def copied(value: int) -> int:
            return value if f.program.names[value] == "constant" else f.program.copy(value, here=True)

        rows = [x[0] for x in self.sequences]
        return [x if x.numbers is not None else f.map_entries(copied, x) for x in rows]

    def loop(self, carry: list[Array], condition: Callable, body: Callable) -> Rolled:
        return self.flattener.once(carry, condition, body)

    def turn(self, carry: list[Array], slices: list[Array]) -> tuple[list[Array], list[Array]]:
        return self.flattener.closed(self.body, slices), []


def store(f, buffer: int, row: int, x: Array) -> None:
    """Store an array as a row of a buffer."""
    values = f.ids(x).ravel().tolist()
    start = f.builder.operation("mul", INDEX, (row, f.program.constant(INDEX.type(len(values)))))
    for k, value in enumerate(values):
        f.program.store(buffer, start, k, value)
