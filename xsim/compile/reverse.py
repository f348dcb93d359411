"""Programs of derivatives in reverse mode.

The program of a function is made, and then extended by the cotangents of its values, from the last to the first (Griewank and Walther 2008,
Evaluating Derivatives, chapter 3). JAX derives in the same way, but on the equations of a trace, of which the derivative has several times
as many: to trace them takes longer than to compile them.

Not every derivative is that of single operations. An equation of the trace that has a rule of its own, such as the solution of an implicit
equation, is derived by its rule, and an equation that indexes or sorts is derived by JAX. Their results are *copies*, values at which the
cotangents leave the operations.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from xsim.compile.adjoints import ADJOINTS, Operations
from xsim.compile.arrays import Array, constant_array
from xsim.compile.flatten import ELEMENTWISE, RULES, Flattener, Scan, Unsupported, scan_is_unrolled
from xsim.compile.program import BOOL, INDEX, Loop, Program
from xsim.compile.rules import is_float, residual_tangent, traced_pullback, traced_rule
from xsim.compile.simplify import FOLDED

CONSTANT, ACTIVE, LINEAR = range(3)
"""What a value depends on: on no active argument of the function, on active arguments, or linearly on the tangents of a rule."""


def reverse_program(closed: ClosedJaxpr, varying: Sequence[bool], active: Sequence[int], differentiable: Sequence[int]) -> Program:
    """The program of the cotangents of the active arguments, of (*arguments, *cotangents of the differentiable results).

    varying: for each argument and each cotangent, whether environments have their own. Raises Unsupported where JAX has to derive it."""
    tape = Tape(closed.jaxpr)
    variables = closed.jaxpr.invars
    arguments = [tape.operand(i, var.aval, v) for i, (var, v) in enumerate(zip(variables, varying, strict=False))]
    for i in active:
        tape.activate(arguments[i])
    results = tape.run(closed.jaxpr, closed.consts, arguments)
    cotangents = [tape.operand(k, closed.jaxpr.outvars[i].aval, varying[k]) for k, i in enumerate(differentiable, len(variables))]
    tape.sweep([results[i] for i in differentiable], cotangents)
    tape.program.outputs = [tape.pulled_to(arguments[i]) for i in active]
    return tape.program


@dataclass(frozen=True, eq=False)
class _Equation:
    """An equation that is derived as a whole. results: the copies of those of its results that have cotangents. pull: passes their
    cotangents to what they are computed from."""

    results: list[Array]
    pull: Callable[[list[Array]], None]


@dataclass(eq=False)
class _Turns:
    """A counted loop that is derived. length: number of turns. buffers: of values of the loop, with their numbers in each turn."""

    loop: Loop
    length: int
    buffers: dict[int, int] = field(default_factory=dict)


# ---- tape ------------------------------------------------------------------------------------------------------------------------

BY_JAX = {
    "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter_add", "top_k", "argmax", "argmin", "cumprod",
    "cummax", "reduce_prod", "reduce_max", "reduce_min", "clamp", "cond", "cholesky", "triangular_solve", "custom_linear_solve",
}  # fmt: skip
"""Equations whose derivative is not that of the operations that they are taken apart into, or would be longer."""
BY_OPERATIONS = (set(RULES) | set(ELEMENTWISE) | set(FOLDED)) - BY_JAX - {"while", "custom_jvp_call", "custom_vjp_call"}
INDEXED = {"gather": 1, "scatter": 1, "scatter-add": 1, "scatter_add": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}
"""By equation, its first input that is an index. With constant indices they only move entries, or add them."""


class Tape(Flattener):
    """A program of a function that can be extended by its derivative."""

    def __init__(self, template: Jaxpr):
        super().__init__()
        self.template = template
        self.dependence: list[int] = []  # of each value, as far as it has been asked for
        self.given: dict[int, int] = {}  # the dependence of values that do not have that of their arguments
        self.targets: dict[int, int] = {}  # of a copy: the value that takes its cotangents
        self.equations: dict[int, _Equation] = {}  # of copies
        self.cotangents: dict[int, list[int]] = {}
        self.heap: list[int] = []  # of the values with cotangents, the last one first
        self.pulled: dict[int, int] = {}  # the cotangents of the active arguments
        self.pullbacks: dict[tuple, tuple[ClosedJaxpr, ClosedJaxpr]] = {}  # of equations that JAX derives
        self.traces: list[ClosedJaxpr] = []  # they are kept, because functions and loops are known by their identity
        self.recording = True  # whether equations are prepared for derivatives with respect to active arguments
        self.plain = False  # whether none are
        self.in_turns = False  # whether the body of a loop is made that is derived
        self.turn: tuple[_Turns, int] | None = None  # the loop of which a turn is derived, and the turn

    # ---- dependence ----------------------------------------------------------------------------------------------------------

    def depends(self, value: int) -> int:
        """What a value depends on."""
        known, p = self.dependence, self.program
        for x in range(len(known), len(p.names)):
            found = self.given.get(x)
            if found is None:
                found = max((known[a] for a in p.arguments[x]), default=CONSTANT) if p.types[x].kind == "f" else CONSTANT
            known.append(found)
        return known[value]

    def array_depends(self, x: Array) -> int:
        """The dependence of the entries of an array, of which LINEAR excels."""
        if x.numbers is not None or x.dtype.kind != "f":
            return CONSTANT
        return max((self.depends(v) for v in x.values.ravel().tolist()), default=CONSTANT)

    def activate(self, x: Array) -> None:
        """Make an argument of the function active."""
        self.given.update(dict.fromkeys(x.values.ravel().tolist(), ACTIVE))

    def copy(self, value: int, dependence: int, target: int | None = None) -> int:
        """A value with the same number. target: the value that takes its cotangents."""
        copied = self.program.copy(value, here=self.in_turns)
        self.given[copied] = dependence
        if target is not None:
            self.targets[copied] = target
        return copied

    def map_entries(self, function: Callable, *arrays: Array) -> Array:
        """A function of each entry, of arrays of one shape."""
        columns = [self.ids(x).ravel().tolist() for x in arrays]
        values = [function(*entries) for entries in zip(*columns, strict=True)]
        return Array(np.array(values, int).reshape(arrays[0].shape), arrays[0].dtype)

    @contextmanager
    def mode(self, recording: bool, plain: bool = False):
        before = self.recording, self.plain
        self.recording, self.plain = recording, plain
        try:
            yield
        finally:
            self.recording, self.plain = before

    # ---- equations -----------------------------------------------------------------------------------------------------------

    def evaluate(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        depends = [self.array_depends(x) for x in xs]
        most, name = max(depends, default=CONSTANT), equation.primitive.name
        if name == residual_tangent.name:
            return self.residual_tangent(equation, xs)
        without = self.plain or most == CONSTANT or (most == ACTIVE and not self.recording)
        if without or not any(is_float(v.aval) for v in equation.outvars):
            return super().evaluate(equation, xs)
        if name == "stop_gradient":
            return [self.held(xs[0])]
        if name == "custom_jvp_call":
            return self.by_rule(equation, xs, [i for i, d in enumerate(depends) if d == most])
        if name == "custom_linear_solve" and most == LINEAR:
            return self.linear_solution(equation, xs)
        if name == "scan" and not scan_is_unrolled(equation, self.sizes):
            return self.turns(equation, xs)
        if name in BY_OPERATIONS or self.only_moves(name, xs):
            return super().evaluate(equation, xs)
        if name in BY_JAX:
            return self.by_jax(equation, xs, [i for i, d in enumerate(depends) if d == most], most)
        raise Unsupported(f"the reverse of the operation {name}")

    def only_moves(self, name: str, xs: list[Array]) -> bool:
        """Whether the positions at which an equation reads or writes are constants."""
        if name not in INDEXED:
            return False
        first = INDEXED[name]
        indices = xs[first:] if name.startswith("dynamic") else xs[first : first + 1]
        return all(x.numbers is not None for x in indices)

    def held(self, x: Array) -> Array:
        """An array without derivatives."""
        return self.map_entries(lambda v: self.copy(v, CONSTANT) if self.depends(v) else v, x)

    def by_rule(self, equation: JaxprEqn, xs: list[Array], active: list[int]) -> list[Array]:
        """`jax.custom_jvp`: its rule, whose tangents pass their cotangents to the inputs."""
        if max(self.array_depends(x) for x in xs) == LINEAR:
            raise Unsupported("the reverse of a rule within a rule")
        tangents = [self.tangents_of(xs[i]) for i in active]
        rule = traced_rule(equation, self.template, active)
        self.traces.append(rule)
        with self.mode(recording=False):
            out = self.closed(rule, [*xs, *tangents])
        results, changes = out[: len(equation.outvars)], iter(out[len(equation.outvars) :])
        return [self.map_entries(self.linked, x, next(changes)) if x.dtype.kind == "f" else x for x in results]

    def tangents_of(self, x: Array) -> Array:
        """The tangents of an array in a rule. They pass their cotangents to the array, and have no numbers: what depends on them linearly
        is never computed."""
        zero = self.builder.constant(0, x.dtype)
        return self.map_entries(lambda v: self.copy(zero, LINEAR, v) if self.depends(v) else zero, x)

    def linked(self, value: int, tangent: int) -> int:
        """A result of a rule, whose cotangent is passed to its tangent."""
        if self.depends(tangent) == LINEAR:
            return self.copy(value, ACTIVE, tangent)
        return self.copy(value, CONSTANT) if self.depends(value) else value

    def residual_tangent(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """The tangents of a residual, see `xsim.compile.rules.residual_tangent`."""
        count = equation.params["count"]
        with self.mode(recording=True):
            residual = self.closed(equation.params["residual"], [*xs[:count], *(self.held(x) for x in xs[count:])])
        return [self.tangents_of(x) for x in residual]

    def linear_solution(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """The solution of linear equations whose right-hand side is a tangent."""
        lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
        constants = sum(lengths)
        if jaxprs.transpose_solve is None or any(self.array_depends(x) == LINEAR for x in xs[:constants]):
            raise Unsupported("the reverse of linear equations with a matrix that varies")
        transposed = xs[constants - lengths.transpose_solve : constants]
        with self.mode(recording=False, plain=True):
            results = super().evaluate(equation, xs)

        def pull(gs: list[Array]) -> None:
            found = self.closed(jaxprs.transpose_solve, [*map(self.primals, transposed), *gs])
            for x, g in zip(xs[constants:], found, strict=True):
                self.give(x, g, LINEAR)

        return self.copied_results(results, LINEAR, pull)

    def by_jax(self, equation: JaxprEqn, xs: list[Array], active: list[int], dependence: int) -> list[Array]:
        """An equation that JAX derives."""
        forward, backward = self.pullback_of(equation, active)
        with self.mode(recording=False, plain=True):
            out = self.closed(forward, xs)
        needed = out[len(equation.outvars) :]

        def pull(gs: list[Array]) -> None:
            for i, g in zip(active, self.closed(backward, [*map(self.primals, needed), *gs]), strict=True):
                self.give(xs[i], g, dependence)

        return self.copied_results(out[: len(equation.outvars)], dependence, pull)

    def pullback_of(self, equation: JaxprEqn, active: list[int]) -> tuple[ClosedJaxpr, ClosedJaxpr]:
        """See `traced_pullback`. Equations with the same parameters share it, but for those whose parameters are functions."""
        shapes = tuple((v.aval.shape, str(v.aval.dtype)) for v in equation.invars)
        own = len(self.traces) if equation.primitive.name in ("cond", "custom_linear_solve") else str(equation.params)
        key = equation.primitive.name, own, shapes, tuple(active)
        if key not in self.pullbacks:
            self.pullbacks[key] = traced_pullback(equation, self.template, active)
            self.traces.extend(self.pullbacks[key])
        return self.pullbacks[key]

    def copied_results(self, results: list[Array], dependence: int, pull: Callable) -> list[Array]:
        """Copies of the results of an equation that is derived as a whole. pull: see `_Equation`."""
        copies = [self.map_entries(lambda v: self.copy(v, dependence), x) if x.dtype.kind == "f" else x for x in results]
        equation = _Equation([x for x in copies if x.dtype.kind == "f"], pull)
        for x in equation.results:
            self.equations.update(dict.fromkeys(x.values.ravel().tolist(), equation))
        return copies

    # ---- loops ---------------------------------------------------------------------------------------------------------------

    def turns(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """`jax.lax.scan` as a counted loop, whose derivative is a counted loop."""
        scan, p = Scan(self, equation, xs), self.program
        stacked = equation.outvars[scan.count :]
        if self.in_turns or any(self.array_depends(x) for x in scan.sequences) or any(is_float(v.aval) for v in stacked):
            raise Unsupported("the reverse of a scan with sequences that vary, or within another")
        self.in_turns = True
        try:
            results, rolled = scan.rolled(lambda phis: self.given.update({x: ACTIVE for x in phis if p.types[x].kind == "f"}))
        finally:
            self.in_turns = False
        loop, moving = rolled.loop, set(rolled.moving)
        position, carried = itertools.count(1), itertools.count(1)  # the first carried value is the turn
        found: dict[int, int] = {}  # of copies: the position of the carried value

        def copied(v: int) -> int:
            if next(position) not in moving:
                return v
            k = next(carried)
            if p.types[v].kind != "f":
                return v
            copy = self.copy(v, ACTIVE)
            found[copy] = k
            return copy

        copies = [self.map_entries(copied, x) for x in results[: scan.count]]
        dtypes = {p.types[v] for v in found}
        if len(dtypes) > 1:
            raise Unsupported("the reverse of a scan of numbers of several types")
        after, turns = Array(np.array(list(found), int), *dtypes), _Turns(loop, scan.length)
        record = _Equation([after], lambda gs: self.pull_turns(turns, list(found.values()), gs[0]))
        self.equations.update(dict.fromkeys(found, record))
        return [*copies, *results[scan.count :]]

    def pull_turns(self, turns: _Turns, carried: list[int], cotangents: Array) -> None:
        """Pass the cotangents of the carried values after a loop to those before it, and to the values that the loop reads."""
        loop, dtype, first = turns.loop, cotangents.dtype, constant_array(np.array(0, INDEX))
        read = self.values_read(turns, carried, cotangents)
        zeros = constant_array(np.zeros(len(read), dtype))

        def unfinished(carry: list[Array]) -> Array:
            return self.operate("lt", BOOL, carry[0], constant_array(np.array(turns.length, INDEX)))

        def body(carry: list[Array]) -> list[Array]:
            counter, after, sums = carry
            found = self.swept_turn(turns, counter, carried, after)
            zero = self.builder.constant(0, dtype)
            before, parts = (Array(np.array([found.get(v, zero) for v in values], int), dtype) for values in (phis, read))
            counter = self.operate("add", INDEX, counter, constant_array(np.array(1, INDEX)))
            return [counter, before, self.operate("add", dtype, sums, parts)]

        phis = [loop.phis[k] for k in carried]
        entries = 1 + len(carried) + len(read)
        self.patterns[id(turns)] = [False] * entries, [False, *[True] * (entries - 1)]
        _, before, sums = self.rolled(turns, [first, cotangents, zeros], unfinished, body, turns.length).results
        targets = [*(loop.starts[k] for k in carried), *read]
        for v, g in zip(targets, [*self.ids(before).tolist(), *self.ids(sums).tolist()], strict=True):
            self.add(v, g, self.dependence[v])

    def values_read(self, turns: _Turns, carried: list[int], cotangents: Array) -> list[int]:
        """The values outside of a loop that have cotangents, found in a loop that is not added to the program."""
        p, read = self.program, []

        def body(phis: list[int]) -> list[int]:
            counter, after = (Array(np.array(x, int), dtype) for x, dtype in ((phis[0], INDEX), (phis[1:], cotangents.dtype)))
            read.extend(v for v in self.swept_turn(turns, counter, carried, after) if v not in turns.loop.phis)
            return phis

        starts = [p.constant(INDEX.type(0)), *self.ids(cotangents).tolist()]
        varying = [False, *[True] * len(carried)]
        p.discard(p.loop(starts, varying, lambda phis: p.constant(np.bool_(True)), body))
        return read

    def swept_turn(self, turns: _Turns, counter: Array, carried: list[int], after: Array) -> dict[int, int]:
        """The cotangents, by value, of the carried values before a turn, and of the values outside of the loop.

        counter: of the turns of the derivative, from the last turn of the loop to its first. after: cotangents of the carried values after
        the turn."""
        p, loop, found = self.program, turns.loop, {}
        before = self.heap, self.cotangents, self.turn
        at = self.operate("sub", INDEX, constant_array(np.array(turns.length - 1, INDEX)), counter)
        self.heap, self.cotangents, self.turn = [], {}, (turns, int(self.ids(at)))
        try:
            for k, g in zip(carried, self.ids(after).tolist(), strict=True):
                self.add(loop.ends[k], g, self.dependence[loop.ends[k]])
            while self.heap:
                value = -heapq.heappop(self.heap)
                if value not in self.cotangents:
                    continue
                if value in loop.phis or not p.scopes[value].within(loop):
                    found[value] = self.total(value)
                else:
                    self.pull(value)
        finally:
            self.heap, self.cotangents, self.turn = before
        return found

    def primal(self, value: int) -> int:
        """A value where the cotangents are computed. That of a loop is read from memory."""
        p = self.program
        if self.turn is None or not p.scopes[value].within(self.turn[0].loop):
            return value
        turns, at = self.turn
        if value not in turns.buffers:
            turns.buffers[value] = p.recorded(value, turns.loop, turns.length)
        return p.load(turns.buffers[value], at)

    def primals(self, x: Array) -> Array:
        return self.map_entries(self.primal, x) if x.numbers is None else x

    # ---- cotangents ----------------------------------------------------------------------------------------------------------

    def sweep(self, results: Sequence[Array], cotangents: Sequence[Array]) -> None:
        """Extend the program by the cotangents of all values on which the results depend."""
        self.depends(len(self.program.names) - 1)
        for x, g in zip(results, cotangents, strict=True):
            self.give(x, g, ACTIVE)
        with self.mode(recording=False, plain=True):
            while self.heap:
                value = -heapq.heappop(self.heap)
                if value in self.cotangents:  # not yet taken together with other results of an equation
                    self.pull(value)

    def pull(self, value: int) -> None:
        """Pass the cotangents of a value to what it is computed from."""
        if value in self.equations:
            self.pull_equation(self.equations[value])
        elif value in self.targets:
            target = self.targets[value]
            self.add(target, self.total(value), self.dependence[target])
        elif self.program.names[value] == "input":
            self.pulled[value] = self.total(value)
        else:
            self.pull_operation(value)

    def pull_equation(self, equation: _Equation) -> None:
        equation.pull([
            self.map_entries(lambda v, x=x: self.total(v) if v in self.cotangents else self.builder.constant(0, x.dtype), x)
            for x in equation.results
        ])  # fmt: skip

    def pull_operation(self, value: int) -> None:
        p, g, dependence = self.program, self.total(value), self.dependence[value]
        name, xs, dtype = p.names[value], p.arguments[value], p.types[value]
        if name == "convert":
            self.add(xs[0], self.builder.operation("convert", p.types[xs[0]], (g,)), dependence)
            return
        if name not in ADJOINTS or any(p.types[x] not in (dtype, BOOL) for x in xs):
            raise Unsupported(f"the reverse of the operation {name}")
        for rule, x in zip(ADJOINTS[name], xs, strict=True):
            if rule is not None and self.dependence[x] == dependence:
                self.add(x, rule(Operations(self.builder, dtype, self.primal), g, value, *xs), dependence)

    def give(self, x: Array, cotangents: Array, dependence: int) -> None:
        """Add cotangents to the entries of an array that have this dependence."""
        if x.numbers is None:
            for value, cotangent in zip(x.values.ravel().tolist(), self.ids(cotangents).ravel().tolist(), strict=True):
                self.add(value, cotangent, dependence)

    def add(self, value: int, cotangent: int, dependence: int) -> None:
        """Add a cotangent to a value that has this dependence."""
        number = self.program.number(cotangent)
        if not dependence or self.dependence[value] != dependence or (number is not None and number == 0):
            return
        if value not in self.cotangents:
            heapq.heappush(self.heap, -value)
            self.cotangents[value] = []
        self.cotangents[value].append(cotangent)

    def total(self, value: int) -> int:
        """The sum of the cotangents of a value, which are taken from it."""
        parts, dtype = self.cotangents.pop(value), self.program.types[value]
        while len(parts) > 1:
            pairs = [parts[i : i + 2] for i in range(0, len(parts), 2)]
            parts = [self.builder.operation("add", dtype, tuple(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
        return parts[0]

    def pulled_to(self, x: Array) -> list[int]:
        """The cotangents of an argument."""
        return [self.pulled.get(v, self.builder.constant(0, x.dtype)) for v in x.values.ravel().tolist()]
