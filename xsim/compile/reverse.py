"""Programs of derivatives in reverse mode.

The program of a function is made, and then extended by the cotangents of its values, from the last to the first (Griewank and Walther 2008,
Evaluating Derivatives, chapter 3). JAX does the same with the equations of a trace. The derivative has several times as many equations, and
to trace them takes longer than to compile them.

Not every derivative is that of single operations. An equation of the trace that has a rule of its own, such as the solution of an implicit
equation, is differentiated by its rule. An equation that indexes or sorts is differentiated by JAX. The results of such equations are
*copies*, values that pass their cotangents not to their arguments but to the equation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from xsim.compile import indexing
from xsim.compile.arrays import Array, constant_array
from xsim.compile.assembly import where_nonzero
from xsim.compile.bounded import rows_of_turns, sum_of_turns
from xsim.compile.cotangents import ACTIVE, CONSTANT, LINEAR, Cotangents, Equation
from xsim.compile.expansions import EXPANSIONS, OF_FUNCTIONS
from xsim.compile.flatten import ELEMENTWISE, LOOPS, RULES, Unsupported
from xsim.compile.loop_fusion import fuse
from xsim.compile.loops import BoundedScan, Branch, Rolled, Scan, store
from xsim.compile.matrices import counted
from xsim.compile.program import BOOL, INDEX, Loop, Program, Scope
from xsim.compile.rules import is_float, residual_tangent, traced_pullback, traced_rule
from xsim.compile.simplify import FOLDED
from xsim.compile.traced import count_operations, inner_functions, is_long, scan_is_unrolled

MIN_OPERATIONS_OF_RESULT = 4
"""Operations of a turn of a loop, for each number of its results, from which on the derivative leaves out turns without cotangents."""


def reverse_program(closed: ClosedJaxpr, varying: Sequence[bool], active: Sequence[int], differentiable: Sequence[int]) -> Program:
    """The program of the cotangents of the active arguments, of (*arguments, *cotangents of the differentiable results).

    varying: for each argument and each cotangent, whether environments have their own. Raises Unsupported where the trace
    has to be differentiated."""
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


@dataclass(eq=False)
class _Turns:
    """A loop that is differentiated. floats: which of the values that it carries have cotangents; the first of these values is the turn.
    after: these values after the loop, and dtype: their type. active: which of its sequences have cotangents. searches, rows: those of a
    turn. reverse: the loop of the derivative, and outer: the loop around that is differentiated, both while a turn is.
    sums: for each value outside that it reads, the buffer that adds up its cotangents. row_sums: for each array outside of which it takes
    rows, by its values, the array and the buffer that adds up its cotangents."""

    scan: Scan
    rolled: Rolled
    floats: list[int]
    after: list[int]
    dtype: np.dtype
    active: list[int]
    searches: list[_Search]
    rows: list[_Row]
    sums: dict[int, int] = field(default_factory=dict)
    row_sums: dict[tuple, tuple[Array, int]] = field(default_factory=dict)
    reverse: Loop | None = None
    outer: _Turns | None = None

    @property
    def sequences(self) -> list[Array]:
        """The active sequences."""
        return [self.scan.sequences[i] for i in self.active]


@dataclass(frozen=True, eq=False)
class _Search:
    """A loop whose number of turns depends on the state, such as Newton's method, in a turn of another loop. It has no derivative, so its
    results are recorded instead of computed again. key: what it is known by; scope: where it is."""

    key: tuple
    scope: Scope
    results: list[Array]


@dataclass(frozen=True, eq=False)
class _Row:
    """A row of an array, at an index that differs between environments, in a turn of a loop. It is recorded, too: to load it again takes
    longer. array: its values; index: of the row; turns: the first carried value of the loop and, in the derivative, the number of the turn;
    scope: where the row is taken."""

    array: tuple[int, ...]
    index: int
    turns: tuple[int, ...]
    scope: Scope
    row: Array


# ---- tape ------------------------------------------------------------------------------------------------------------------------

BY_JAX = {
    "dynamic_slice", "dynamic_update_slice", "gather", "scatter", "scatter-add", "scatter_add", "top_k", "argmax", "argmin", "cumprod",
    "cummax", "logistic", "one_minus_square", "reduce_prod", "reduce_max", "reduce_min", "clamp", "cond", "custom_linear_solve", *LOOPS,
    *EXPANSIONS, OF_FUNCTIONS,
}  # fmt: skip
"""Equations whose derivative is not that of the operations that they are taken apart into, or would be longer."""
WITH_FUNCTIONS = ("cond", "custom_linear_solve", OF_FUNCTIONS)
"""Those of them whose parameters are functions."""
OTHERS = {"while", "custom_jvp_call", "custom_vjp_call", rows_of_turns.name, sum_of_turns.name}
BY_OPERATIONS = (set(RULES) | set(ELEMENTWISE) | set(FOLDED)) - BY_JAX - OTHERS
INDEXED = {"gather": 1, "scatter": 1, "scatter-add": 1, "scatter_add": 1, "dynamic_slice": 1, "dynamic_update_slice": 2}
"""By equation, its first input that is an index. With constant indices they only move entries, or add them."""


def _is_search(equation: JaxprEqn) -> bool:
    """Whether an equation is a loop whose number of turns depends on the state, or a choice between functions with such loops."""
    name = equation.primitive.name
    return name == "while" or name == "cond" and any(map(_has_search, inner_functions(equation)))


def _has_search(function: Jaxpr) -> bool:
    return any(e.primitive.name == "while" or any(map(_has_search, inner_functions(e))) for e in function.eqns)


def _has_residual(rule: Jaxpr) -> bool:
    """Whether a rule is that of an implicit equation."""
    return any(e.primitive is residual_tangent or any(map(_has_residual, inner_functions(e))) for e in rule.eqns)


class Tape(Cotangents):
    """A program of a function that can be extended by its derivative."""

    def __init__(self, template: Jaxpr):
        super().__init__()
        self.template = template
        self.pullbacks: dict[tuple, tuple[ClosedJaxpr, ClosedJaxpr]] = {}  # of equations that JAX differentiates
        self.traces: list[ClosedJaxpr] = []  # they are kept, because functions and loops are known by their identity
        self.recording = True  # whether equations are prepared for derivatives with respect to active arguments
        self.plain = False  # whether none are
        self.turn: _Turns | None = None  # the loop of which a turn is differentiated
        self.searches: list[_Search] = []  # of the program so far
        self.recorded: list[_Search] = []  # of the turn that is differentiated, in their order; the first ones are taken
        self.rows: list[_Row] = []  # as the searches
        self.recorded_rows: list[_Row] = []
        self.function: object = None  # the innermost function with a rule that is evaluated: its equation, or its rule

    def copy(self, value: int, dependence: int, target: int | None = None) -> int:
        """A value with the same number. target: the value that takes its cotangents."""
        copied = self.program.copy(value, here=self.turn is not None)
        self.given[copied] = dependence
        if target is not None:
            self.targets[copied] = target
        return copied

    @contextmanager
    def mode(self, recording: bool, plain: bool = False, function: object = None):
        """Context with these attributes; None: with the function that is evaluated already."""
        before = self.recording, self.plain, self.function
        self.recording, self.plain, self.function = recording, plain, function or self.function
        try:
            yield
        finally:
            self.recording, self.plain, self.function = before

    def sweep(self, results: Sequence[Array], cotangents: Sequence[Array]) -> None:
        """Extend the program by the cotangents of all values on which the results depend."""
        for x, g in zip(results, cotangents, strict=True):
            self.give(x, g, ACTIVE)
        with self.mode(recording=False, plain=True):
            for value in self.with_cotangents():
                self.pull(value)

    # ---- equations -----------------------------------------------------------------------------------------------------------

    def evaluate(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """The results of an equation, prepared for their cotangents."""
        depends = [self.array_depends(x) for x in xs]
        most, name = max(depends, default=CONSTANT), equation.primitive.name
        if name == residual_tangent.name:
            return self.residual_tangent(equation, xs)
        without = self.plain or most == CONSTANT or (most == ACTIVE and not self.recording)
        without = without or not any(is_float(v.aval) for v in equation.outvars)
        if name == sum_of_turns.name and not without:
            return self.bounded_sum(BoundedScan(self, equation, xs))
        if without and _is_search(equation):
            return self.search(equation, xs)
        if without and name == "custom_jvp_call":
            with self.mode(self.recording, self.plain, equation):
                return super().evaluate(equation, xs)
        if without:
            results = super().evaluate(equation, xs)
            if name == "dynamic_slice" and self.program.scope.loop is not None:
                self.note_row(equation, xs, results[0])
            return results
        if name == "custom_jvp_call":
            return self.by_rule(equation, xs, [i for i, d in enumerate(depends) if d == most])
        if name == "stop_gradient":
            return [self.held(xs[0])]
        if name == "custom_linear_solve" and most == LINEAR:
            return self.linear_solution(equation, xs)
        if name == "scan" and not scan_is_unrolled(equation, self.sizes):
            return self.turns(Scan(self, equation, xs))
        if name == "cond" and most == ACTIVE and xs[0].numbers is None and any(is_long(x, self.sizes) for x in inner_functions(equation)):
            return self.choice(equation, *xs)
        if name in BY_OPERATIONS or self.only_moves(name, xs):
            return super().evaluate(equation, xs)
        if name == "dynamic_slice" and most == ACTIVE and self.takes_row(equation, *xs):
            return [self.row(*xs[:2])]
        if name in BY_JAX:
            return self.by_jax(equation, xs, [i for i, d in enumerate(depends) if d == most], most)
        raise Unsupported(f"the reverse of the operation {name}")

    def search(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """See `_is_search`. In a turn that is differentiated: what has been recorded of the same search, if it has."""
        shapes = tuple((v.aval.shape, str(v.aval.dtype)) for v in equation.outvars)
        key = id(self.function or equation), shapes, *(count_operations(inner, self.sizes) for inner in inner_functions(equation))
        for i, search in enumerate(self.recorded):
            if search.key == key and search.scope is self.program.scope:
                return self.recorded.pop(i).results
        results = super().evaluate(equation, xs)
        self.searches.append(_Search(key, self.program.scope, results))
        return results

    def only_moves(self, name: str, xs: list[Array]) -> bool:
        """Whether the positions at which an equation reads or writes are constants."""
        if name not in INDEXED:
            return False
        first = INDEXED[name]
        indices = xs[first:] if name.startswith("dynamic") else xs[first : first + 1]
        return all(x.numbers is not None for x in indices)

    def takes_row(self, equation: JaxprEqn, x: Array, *starts: Array) -> bool:
        """Whether a turn of a loop takes a row of an array from outside of the loop."""
        p, start = self.program, indexing.row_start(equation, x, starts)
        if self.turn is None or start is None:
            return False
        return p.scope.loop is not None and not self.is_within(x, p.scope.loop)

    def note_row(self, equation: JaxprEqn, xs: list[Array], row: Array) -> None:
        """Note a row that a turn of a loop takes at an index that differs between environments."""
        scope, start = self.program.scope, indexing.row_start(equation, xs[0], xs[1:])
        counter = scope.loop.phis[:1]  # none in the first attempt at a loop, see `rolled`
        if counter and start is not None and row.dtype.kind == "f" and self.program.varying[int(self.ids(start))]:
            index = indexing.clamped_row(self, xs[0], start)
            self.rows.append(_Row(tuple(self.ids(xs[0]).ravel().tolist()), index, tuple(counter), scope, row))

    def taken_row(self, array: tuple[int, ...], x: Array, index: int) -> np.ndarray:
        """The values of a row of an array: what has been recorded of it, if it has. array: the values of the array."""
        for found in self.recorded_rows:
            if found.array == array and found.scope is self.program.scope and self.program.is_same(found.index, index, found.turns):
                return self.ids(found.row).flatten()
        return self.ids(indexing.dynamic_row(self, x, index)).flatten()

    def is_within(self, x: Array, loop: Loop) -> bool:
        """Whether an entry of an array is computed in a loop."""
        return any(self.program.scopes[v].within(loop) for v in x.values.ravel().tolist())

    def row(self, x: Array, start: Array) -> Array:
        """A row of an array from outside of the loop, whose cotangents each turn adds to those of the array. Of nested loops it is the
        outermost one that the array is outside of."""
        p, turn = self.program, self.turn
        assert turn is not None
        while turn.outer is not None and turn.outer.reverse is not None and not self.is_within(x, turn.outer.reverse):
            turn = turn.outer
        loop = turn.reverse
        assert loop is not None
        key, size = tuple(x.values.ravel().tolist()), math.prod(x.shape[1:])
        index = indexing.clamped_row(self, x, start)
        depends = [any(map(self.depends, column)) for column in x.values.reshape(-1, size).T.tolist()]

        def pull(gs: list[Array]) -> None:
            if key not in turn.row_sums:
                turn.row_sums[key] = x, p.sums(len(key), x.dtype, loop)
            at = self.builder.operation("mul", INDEX, (index, p.constant(INDEX.type(size))))
            for k, g in zip(np.flatnonzero(depends).tolist(), self.ids(gs[0]).tolist(), strict=True):
                p.add_to_sum(turn.row_sums[key][1], at, k, g, loop.around)

        values = self.taken_row(key, x, index)
        (copies,) = self.copied_results([Array(values[depends], x.dtype)], ACTIVE, pull)
        values[depends] = self.ids(copies)
        return Array(values.reshape(1, *x.shape[1:]), x.dtype)

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
        # The rule of an implicit equation searches its solution as the function does.
        implicit = _has_residual(rule.jaxpr)
        with self.mode(recording=False, function=equation if implicit else rule):
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
            found = self.closed(jaxprs.transpose_solve, [*transposed, *gs])
            for x, g in zip(xs[constants:], found, strict=True):
                self.give(x, g, LINEAR)

        return self.copied_results(results, LINEAR, pull)

    def by_jax(self, equation: JaxprEqn, xs: list[Array], active: list[int], dependence: int) -> list[Array]:
        """An equation that JAX differentiates."""
        forward, backward = self.pullback_of(equation, active)
        with self.mode(recording=False, plain=True):
            out = self.closed(forward, xs)
        needed = out[len(equation.outvars) :]

        def pull(gs: list[Array]) -> None:
            for i, g in zip(active, self.closed(backward, [*needed, *gs]), strict=True):
                self.give(xs[i], g, dependence)

        return self.copied_results(out[: len(equation.outvars)], dependence, pull)

    def pullback_of(self, equation: JaxprEqn, active: list[int]) -> tuple[ClosedJaxpr, ClosedJaxpr]:
        """See `traced_pullback`. Equations with the same parameters share it, but for those whose parameters are functions."""
        shapes = tuple((v.aval.shape, str(v.aval.dtype)) for v in equation.invars)
        own = len(self.traces) if equation.primitive.name in WITH_FUNCTIONS else str(equation.params)
        key = equation.primitive.name, own, shapes, tuple(active)
        if key not in self.pullbacks:
            self.pullbacks[key] = traced_pullback(equation, self.template, active)
            self.traces.extend(self.pullbacks[key])
        return self.pullbacks[key]

    def copied_results(self, results: list[Array], dependence: int, pull: Callable) -> list[Array]:
        """Copies of the results of an equation that is differentiated as a whole. pull: see `xsim.compile.cotangents.Equation`."""
        copies = [self.map_entries(lambda v: self.copy(v, dependence), x) if x.dtype.kind == "f" else x for x in results]
        self.record([x for x in copies if x.dtype.kind == "f"], pull)
        return copies

    def record(self, copies: list[Array], pull: Callable) -> None:
        """Let copies pass their cotangents to an equation, see `xsim.compile.cotangents.Equation`."""
        equation = Equation(copies, pull)
        for x in copies:
            self.equations.update(dict.fromkeys(x.values.ravel().tolist(), equation))

    # ---- loops ---------------------------------------------------------------------------------------------------------------

    def choice(self, equation: JaxprEqn, which: Array, *xs: Array) -> list[Array]:
        """`jax.lax.cond`: each branch is a loop with one turn or none. The branches share the buffers of the cotangents of the operands."""
        cases, branches = [], []
        for i, branch in enumerate(equation.params["branches"]):
            chosen = self.operate("eq", BOOL, which, constant_array(np.array(i, which.dtype)))
            results, turns = self.rolled_turns(Branch(self, branch, chosen, xs))
            cases.append(results)
            branches.append(turns)
        results = [self.operate("select_n", of_branches[0].dtype, which, *of_branches) for of_branches in zip(*cases, strict=True)]

        def pull(gs: list[Array]) -> None:
            cotangents = iter(gs)
            flat = [next(cotangents) if x.dtype.kind == "f" else constant_array(np.zeros(x.shape, x.dtype)) for x in results]
            entries = self.flat(flat)
            buffers = self.buffers_of(branches[0])
            for turns in reversed(branches):  # the branch of a true condition is the last one; the others store over what it has stored
                carried = [entries[turns.rolled.moving[k] - 1] for k in turns.floats]
                self.pull_loop(turns, buffers, Array(np.array(carried, int), turns.dtype), (), masked=turns is not branches[-1])
            self.give_buffers(branches[0], buffers)

        return self.copied_results(results, ACTIVE, pull)

    def rolled_turns(self, scan: Scan) -> tuple[list[Array], _Turns]:
        """The results of a loop, without derivatives, and the loop."""
        p = self.program
        with self.mode(recording=False, plain=True):
            results, rolled = scan.rolled()
        flat = self.flat(rolled.results)
        after = [flat[i] for i in rolled.moving]
        floats = [k for k, v in enumerate(after) if p.types[v].kind == "f"]
        dtypes = {p.types[after[k]] for k in floats}
        if len(dtypes) > 1:
            raise Unsupported("the reverse of a scan of numbers of several types")
        searches, rows = ([x for x in found if x.scope is rolled.loop.body] for found in (self.searches, self.rows))
        active = [i for i, x in enumerate(scan.sequences) if self.array_depends(x)]
        dtype = next(iter(dtypes), np.dtype(np.float32))
        return results, _Turns(scan, rolled, floats, [after[k] for k in floats], dtype, active, searches, rows)

    def turns(self, scan: Scan) -> list[Array]:
        """`jax.lax.scan` as a counted loop, whose derivative is a counted loop that computes each turn again."""
        results, turns = self.rolled_turns(scan)
        copies = {v: self.copy(v, ACTIVE) for v in turns.after}
        carried = Array(np.array(list(copies.values()), int), turns.dtype)
        stacked = [self.map_entries(lambda v: self.copy(v, ACTIVE), x) if x.dtype.kind == "f" else x for x in results[scan.count :]]

        def pull(gs: list[Array]) -> None:
            buffers = self.buffers_of(turns)
            self.pull_loop(turns, buffers, gs[0], gs[1:])
            self.give_buffers(turns, buffers)

        self.record([carried, *(x for x in stacked if x.dtype.kind == "f")], pull)
        return [*(self.map_entries(lambda v: copies.get(v, v), x) for x in results[: scan.count]), *stacked]

    def bounded_sum(self, scan: BoundedScan) -> list[Array]:
        """`xsim.compile.bounded.bounded_sum`. Each turn passes the cotangents of the total on as they are."""
        results, turns = self.rolled_turns(scan)
        moving, floats = turns.rolled.moving, turns.floats

        def pull(gs: list[Array]) -> None:
            rows = self.rows_in_memory(turns)
            starts, cotangents = self.flat(scan.carry), self.flat(gs)
            after = Array(np.array([cotangents[moving[k] - 1] for k in floats], int), turns.dtype)

            def turn(number: int, _) -> list[Array]:
                before = [self.copy(starts[i - 1], CONSTANT) for i in moving[1:]]
                self.recorded_rows = self.rows_of_turn(rows, number)
                self.swept_turn(turns, self.program.scope.loop, [number, *before], number, after, [])
                return []

            self.patterns[id(turns)] = [False], [False]
            counted(self, turns, self.builder.constant(0, INDEX), int(self.ids(scan.turns)), [], turn)
            last = self.program.scope.items[-1]
            if isinstance(last, Loop):
                fuse(self.program, turns.rolled.loop, last)
            self.give_sums(turns)
            for x, g in zip(scan.carry, gs, strict=True):
                self.give(x, g, ACTIVE)

        return self.copied_results(results, ACTIVE, pull)

    def buffers_of(self, turns: _Turns) -> list[int]:
        """Buffers of the cotangents of the active sequences of a loop."""
        return [self.program.buffer(math.prod(x.shape), x.dtype) for x in turns.sequences]

    def give_buffers(self, turns: _Turns, buffers: list[int]) -> None:
        """Pass the cotangents in the buffers to the active sequences."""
        for x, buffer in zip(turns.sequences, buffers, strict=True):
            self.give(x, Array(np.array(self.program.entries(buffer), int).reshape(x.shape), x.dtype), ACTIVE)

    def pull_loop(self, turns: _Turns, buffers: list[int], carried: Array, stacked: Sequence[Array], masked: bool = False) -> None:
        """Pass the cotangents of the results of a loop to what it starts from and to the values that it reads, and store those of the
        active sequences in buffers.

        carried: cotangents of the carried floats. stacked: of the stacked results that are floats. masked: whether environments that
        make no turn keep what is in the buffers."""
        p, scan, loop = self.program, turns.scan, turns.rolled.loop
        first, one, last = (constant_array(np.array(k, INDEX)) for k in (0, 1, scan.length - 1))
        recorded = [p.recorded(phi, loop, scan.length) for phi in loop.phis[1 : len(turns.rolled.moving)]]
        searches = [self.recorded_search(search, turns) for search in turns.searches]
        taken = self.rows_in_memory(turns)

        def unfinished(carry: list[Array]) -> Array:
            return self.operate("lt", BOOL, carry[0], scan.turns)

        def turn(carry: list[Array]) -> list[Array]:
            counter, after = carry
            at = self.operate("sub", INDEX, last, counter)
            number, row = int(self.ids(at)), int(self.ids(scan.position(at)))
            values = [number, *(p.load(x, number) for x in recorded)]
            self.recorded = [self.loaded_search(search, number) for search in searches]
            self.recorded_rows = self.rows_of_turn(taken, number)
            results, reverse = [indexing.dynamic_row(self, g, row) for g in stacked], p.scope.loop

            def swept() -> Array:
                before, rows = self.swept_turn(turns, reverse, values, row, after, results)
                for buffer, g in zip(buffers, rows, strict=True):
                    store(self, buffer, row, self.masked(buffer, row, g) if masked else g)
                return before

            if not floats and not masked and self.is_long_for(scan, results):
                for buffer, x in zip(buffers, turns.sequences, strict=True):
                    store(self, buffer, row, constant_array(np.zeros(x.shape[1:], x.dtype)))
                where_nonzero(self, self.flat(results), swept)
                return [self.operate("add", INDEX, counter, one), after]
            return [self.operate("add", INDEX, counter, one), swept()]

        floats = turns.floats
        self.patterns[id(turns)] = [False] * (1 + len(floats)), [False] + [True] * len(floats)
        before = self.rolled(turns, [first, carried], unfinished, turn, scan.length).results[1]
        for k, g in zip(floats, self.ids(before).tolist(), strict=True):
            self.add(loop.starts[k], g, self.depends(loop.starts[k]))
        self.give_sums(turns)

    def give_sums(self, turns: _Turns) -> None:
        """Pass the cotangents of what a loop reads of values outside of it to these."""
        p = self.program
        for value, buffer in turns.sums.items():
            self.add(value, p.entries(buffer)[0], self.depends(value))
        for x, buffer in turns.row_sums.values():
            self.give(x, Array(np.array(p.entries(buffer), int).reshape(x.shape), x.dtype), ACTIVE)

    def masked(self, buffer: int, row: int, x: Array) -> Array:
        """An array where the environment makes this turn, else what is in a row of a buffer."""
        p = self.program
        proceed = p.scope.loop.proceed
        if not p.varying[proceed]:
            return x
        start = self.builder.operation("mul", INDEX, (row, p.constant(INDEX.type(math.prod(x.shape)))))
        values = self.ids(x).ravel().tolist()
        chosen = [p.operation("select_n", x.dtype, (proceed, p.load(buffer, start, k), v)) for k, v in enumerate(values)]
        return Array(np.array(chosen, int).reshape(x.shape), x.dtype)

    def in_memory(self, x: Array, turns: _Turns) -> Array:
        """An array with buffers of its entries in each turn in place of the entries that vary between turns."""

        def recorded(value: int) -> int:
            loop = turns.rolled.loop
            return self.program.recorded(value, loop, turns.scan.length) if self.program.scopes[value].within(loop) else value

        return self.map_entries(recorded, x)

    def of_turn(self, x: Array, turn: int) -> Array:
        """An array of `in_memory` in a turn."""
        p = self.program
        return self.map_entries(lambda v: p.load(v, turn) if p.names[v] == "buffer" else v, x)

    def recorded_search(self, search: _Search, turns: _Turns) -> _Search:
        """A search with its results in all turns."""
        return _Search(search.key, search.scope, [self.in_memory(x, turns) for x in search.results])

    def loaded_search(self, search: _Search, turn: int) -> _Search:
        """A search of `recorded_search` with its results in a turn."""
        return _Search(search.key, self.program.scope, [self.of_turn(x, turn) for x in search.results])

    def rows_in_memory(self, turns: _Turns) -> list[_Row]:
        """The rows that a turn takes, in all turns."""
        return [replace(x, row=self.in_memory(x.row, turns)) for x in turns.rows]

    def rows_of_turn(self, rows: list[_Row], turn: int) -> list[_Row]:
        """Rows of `rows_in_memory` in a turn."""
        return [replace(x, turns=(*x.turns, turn), scope=self.program.scope, row=self.of_turn(x.row, turn)) for x in rows]

    def is_long_for(self, scan: Scan, results: list[Array]) -> bool:
        """Whether a turn takes so long that it pays off to ask whether its results have cotangents."""
        return 0 < MIN_OPERATIONS_OF_RESULT * len(self.flat(results)) < count_operations(scan.body.jaxpr, self.sizes)

    def swept_turn(
        self, turns: _Turns, reverse: Loop | None, values: list[int], row: int, after: Array, results: list[Array]
    ) -> tuple[Array, list[Array]]:
        """The cotangents of the carried floats before a turn, and of the rows of the active sequences.

        reverse: the loop of the derivative. values: all carried values before the turn. row: the place of the turn in the sequences.
        after: cotangents of the carried floats after the turn. results: of its results that are floats."""
        scan, floats = turns.scan, turns.floats
        self.given.update({values[k]: ACTIVE for k in floats})
        outside = self.heap, self.cotangents, self.turn
        turns.reverse, turns.outer = reverse, self.turn
        self.heap, self.cotangents, self.turn = [], {}, turns
        rows = scan.slices_at(row)
        for i in turns.active:
            rows[i] = self.map_entries(lambda v: self.copy(v, ACTIVE), rows[i])
        with self.mode(recording=True):
            carry, stacked = scan.turn(turns.rolled.carried(values)[1:], rows)
        flat = [values[0], *self.flat(carry)]
        for k, g in zip(floats, self.ids(after).tolist(), strict=True):
            end = flat[turns.rolled.moving[k]]
            self.add(end, g, self.depends(end))
        for x, g in zip((x for x in stacked if x.dtype.kind == "f"), results, strict=True):
            self.give(x, g, ACTIVE)
        begins = [np.array([values[k] for k in floats], int), *(self.ids(rows[i]) for i in turns.active)]
        found = self.swept({v for x in begins for v in x.ravel().tolist()}, turns.sums)
        self.heap, self.cotangents, self.turn = outside
        turns.reverse = turns.outer = None
        dtypes = [after.dtype, *(rows[i].dtype for i in turns.active)]
        before, *of_rows = (
            self.map_entries(lambda v, dtype=dtype: found[v] if v in found else self.builder.constant(0, dtype), Array(x, dtype))
            for x, dtype in zip(begins, dtypes, strict=True)
        )
        return before, of_rows

    def swept(self, begins: set[int], sums: dict[int, int]) -> dict[int, int]:
        """The cotangents of the values with which a turn begins, from those that are known. sums: see `_Turns`."""
        p, found = self.program, {}
        assert self.turn is not None and self.turn.reverse is not None
        loop = self.turn.reverse
        for value in self.with_cotangents():
            if value in begins:
                found[value] = self.total(value)
            elif p.scopes[value].within(loop):
                self.pull(value)
            else:
                if value not in sums:
                    sums[value] = p.sums(1, p.types[value], loop)
                p.add_to_sum(sums[value], p.constant(INDEX.type(0)), 0, self.total(value), loop.around)
        return found
