"""Makes a program of operations on numbers from a function of JAX.

The function is traced by JAX for one environment. Its arrays are then taken apart: every entry becomes a value of the program. An operation
that moves entries, such as a slice or a transpose, becomes no operation at all.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from xsim.compile import assembly, factorization, indexing, tiled
from xsim.compile.arrays import Array, combined, constant_array
from xsim.compile.bounded import rows_of_turns, sum_of_turns
from xsim.compile.choice import is_cuda
from xsim.compile.expansions import EXPANSIONS, OF_FUNCTIONS, traced_expansion
from xsim.compile.loops import BoundedMap, BoundedScan, Branch, Rolled, Scan
from xsim.compile.program import BOOL, INDEX, Program
from xsim.compile.simplify import CONVERSIONS, FOLDED, Builder
from xsim.compile.traced import (
    MAX_UNROLLED_OPERATIONS,
    MIN_SUPPOSED,
    Kind,
    carried_kinds,
    constant_results,
    count_operations,
    is_long,
    scan_is_unrolled,
)

MAX_OPERATIONS = 4_000_000
"""Values, used or not, beyond which a program is refused: to take the function apart takes a minute then."""


class Unsupported(NotImplementedError):
    """The function has an operation, or a size, for which no program is made."""


def program_of(closed: ClosedJaxpr, varying: Sequence[bool]) -> Program:
    """The program of a function of one environment. varying: for each argument, whether environments have their own."""
    flattener = Flattener()
    arguments = [flattener.operand(i, var.aval, v) for i, (var, v) in enumerate(zip(closed.jaxpr.invars, varying, strict=True))]
    outputs = flattener.run(closed.jaxpr, closed.consts, arguments)
    flattener.program.outputs = [flattener.ids(x).ravel().tolist() for x in outputs]
    return flattener.program


class Flattener:
    """Interprets the equations of a traced function on arrays of values."""

    def __init__(self):
        self.program = Program()
        self.builder = Builder(self.program)
        self.true_entries: dict[tuple, list[int]] = {}  # see `indexing.true_indices`: by scope, number, and the values of the mask
        self.patterns: dict[int, tuple[list[bool], list[bool]]] = {}  # of loops, by the identity of their equation
        self.sizes: dict[int, int] = {}  # of functions, by identity
        self.expansions: dict[int, tuple[JaxprEqn, ClosedJaxpr]] = {}  # by the identity of their equation

    # ---- arrays ----------------------------------------------------------------------------------------------------------------

    def operand(self, index: int, aval, varying: bool) -> Array:
        """An argument of the function."""
        dtype = np.dtype(aval.dtype)
        values = [self.program.input(index, k, dtype, varying) for k in range(math.prod(aval.shape))]
        return Array(np.array(values, int).reshape(aval.shape), dtype)

    def ids(self, x: Array) -> np.ndarray:
        """The values of the entries of an array."""
        if x.numbers is None:
            return x.values
        constant = self.program.constant
        return np.array([constant(n) for n in x.numbers.ravel()], int).reshape(x.shape)

    def flat(self, arrays: Sequence[Array]) -> list[int]:
        """The values of the entries of arrays, one array after the other."""
        return [i for x in arrays for i in self.ids(x).ravel().tolist()]

    def map_entries(self, function: Callable, *arrays: Array) -> Array:
        """A function of each entry, of arrays of one shape."""
        columns = [self.ids(x).ravel().tolist() for x in arrays]
        values = [function(*entries) for entries in zip(*columns, strict=True)]
        return Array(np.array(values, int).reshape(arrays[0].shape), arrays[0].dtype)

    def mapped(self, name: str, dtype: np.dtype, arrays: Sequence[Array], shape: tuple[int, ...], exact: bool = False) -> Array:
        """An operation on each entry of arrays, which broadcast to the shape."""
        if all(x.numbers is not None for x in arrays):
            numbers = [np.broadcast_to(x.numbers, shape) for x in arrays]
            with np.errstate(all="ignore"):
                out = CONVERSIONS[name](numbers[0], dtype) if name in CONVERSIONS else FOLDED[name](*numbers)
            return constant_array(np.asarray(out, dtype))
        if len(self.program.names) > MAX_OPERATIONS:
            raise Unsupported(f"more than {MAX_OPERATIONS} operations")
        operation = self.builder.exact if exact else self.builder.operation
        if not shape:
            return Array(np.array(operation(name, dtype, tuple(int(self.ids(x)) for x in arrays))), dtype)
        entries = [self.ids(x) if x.shape == shape else np.broadcast_to(self.ids(x), shape) for x in arrays]
        columns = [values.ravel().tolist() for values in entries]
        values = [operation(name, dtype, arguments) for arguments in zip(*columns, strict=True)]
        return Array(np.array(values, int).reshape(shape), dtype)

    def operate(self, name: str, dtype, *arrays: Array) -> Array:
        """An operation on arrays that broadcast to a common shape."""
        return self.mapped(name, np.dtype(dtype), arrays, np.broadcast_shapes(*(x.shape for x in arrays)))

    # ---- interpretation --------------------------------------------------------------------------------------------------------

    def run(self, jaxpr: Jaxpr, consts, arguments: Sequence[Array]) -> list[Array]:
        """The results of a traced function."""
        known: dict = {}

        def read(atom) -> Array:
            return constant_array(np.asarray(atom.val, atom.aval.dtype)) if isinstance(atom, Literal) else known[atom]

        known.update(zip(jaxpr.constvars, (constant_array(np.asarray(c)) for c in consts), strict=True))
        known.update(zip(jaxpr.invars, arguments, strict=True))
        for equation in jaxpr.eqns:
            outputs = self.evaluate(equation, [read(x) for x in equation.invars])
            known.update(zip(equation.outvars, outputs, strict=True))
        return [read(x) for x in jaxpr.outvars]

    def closed(self, closed, arguments: Sequence[Array]) -> list[Array]:
        """The results of a function that is a parameter of an equation."""
        return self.run(closed.jaxpr, closed.consts, arguments) if isinstance(closed, ClosedJaxpr) else self.run(closed, (), arguments)

    def evaluate(self, equation: JaxprEqn, xs: list[Array]) -> list[Array]:
        """The results of an equation."""
        name = equation.primitive.name
        if name in ELEMENTWISE or name in FOLDED:
            return [self.elementwise(equation, xs)]
        rule = RULES.get(name)
        if rule is None:
            raise Unsupported(f"the operation {name}")
        out = rule(self, equation, *xs)
        return out if isinstance(out, list) else [out]

    def elementwise(self, equation: JaxprEqn, xs: list[Array]) -> Array:
        """An operation on each entry."""
        name, aval = ELEMENTWISE.get(equation.primitive.name, equation.primitive.name), equation.outvars[0].aval
        dtype = np.dtype(aval.dtype)
        if name == "convert":
            if xs[0].dtype == dtype:
                return xs[0]
            if dtype == BOOL:
                return self.operate("ne", BOOL, xs[0], constant_array(np.zeros((), xs[0].dtype)))
        if name == "bitcast" and (xs[0].dtype.itemsize != dtype.itemsize or BOOL in (xs[0].dtype, dtype)):
            raise Unsupported("the bits of a number as those of other numbers, or of a boolean")
        # A zero that is written in the code, as in x * 0.0, is NaN where x is not finite.
        exact = name == "mul" and any(isinstance(x, Literal) and x.val == 0 for x in equation.invars)
        return self.mapped(name, dtype, xs, aval.shape, exact)

    # ---- loops -----------------------------------------------------------------------------------------------------------------

    def rolled(
        self, key: Any, carry: list[Array], condition: Callable, body: Callable, count: int | None = None
    ) -> Rolled:
        """while condition(*carry): carry = body(*carry), with arrays. Entries that stay constant are not carried.

        Which entries stay constant, and which are uniform, is supposed first and corrected until it holds. A loop within a loop starts from
        what held for it the last time. key: an object that identifies the loop. count: number of turns, if it is known."""
        starts = self.flat(carry)
        p = self.program
        fixed, varying = [p.names[x] == "constant" for x in starts], [p.varying[x] for x in starts]
        if id(key) in self.patterns:
            before_fixed, before_varying = self.patterns[id(key)]
            fixed = [a and b for a, b in zip(fixed, before_fixed, strict=True)]
            varying = [a or b for a, b in zip(varying, before_varying, strict=True)]
        while True:
            moving = [i for i, f in enumerate(fixed) if not f]
            arrays = functools.partial(_with_entries, carry, starts, moving)
            new: list[int] = []

            def turn(phis, new=new, moving=moving, arrays=arrays):
                new[:] = self.flat(body(arrays(phis)))
                return [new[i] for i in moving]

            loop = p.loop(
                [starts[i] for i in moving], [varying[i] for i in moving],
                lambda phis, arrays=arrays: int(self.ids(condition(arrays(phis)))), turn,
            )  # fmt: skip
            now_fixed = [f and new[i] == starts[i] for i, f in enumerate(fixed)]
            now_varying = [v or p.varying[new[i]] for i, v in enumerate(varying)]
            if now_fixed == fixed and all(now_varying[i] == varying[i] for i in moving):
                self.patterns[id(key)] = fixed, varying
                loop.turns = count
                return Rolled(arrays(p.results(loop)), loop, moving, arrays)
            fixed, varying = now_fixed, now_varying
            p.discard(loop)

    def suppose(
        self, key: Any, body: Jaxpr, constants: list[Array], carry: list[Array], sequences: Sequence[Array] = (), counters: int = 0
    ) -> None:
        """Suppose for the first attempt at a long loop what its traced function tells, see `carried_kinds`.

        key: as in `rolled`. counters: numbers that are carried before ``carry``."""
        if id(key) in self.patterns or count_operations(body, self.sizes) < MIN_SUPPOSED:
            return
        kinds = carried_kinds(body, *([self.kind(x) for x in arrays] for arrays in (constants, carry, sequences)))
        each = np.repeat([Kind.UNIFORM, *kinds], [counters, *(math.prod(x.shape) for x in carry)])
        self.patterns[id(key)] = (each == Kind.CONSTANT).tolist(), (each == Kind.VARYING).tolist()

    def kind(self, x: Array) -> Kind:
        """The kind of an array."""
        p, values = self.program, [] if x.numbers is not None else x.values.ravel().tolist()
        if any(p.varying[v] for v in values):
            return Kind.VARYING
        return Kind.CONSTANT if all(p.names[v] == "constant" for v in values) else Kind.UNIFORM

    def once(self, carry: list[Array], condition: Callable, body: Callable) -> Rolled:
        """`rolled` of a loop that has one turn at most and whose body reads nothing of what is carried but the first entry, the number of
        the turn.

        Which entries stay constant, and which are uniform, does not depend on the carried arrays then, so the first attempt tells it."""
        p, starts = self.program, self.flat(carry)
        whole = functools.partial(_with_entries, carry, starts, list(range(len(starts))))
        loop = p.loop(
            starts, [False] * len(starts), lambda phis: int(self.ids(condition(whole(phis)))), lambda phis: self.flat(body(whole(phis)))
        )
        moving = [i for i, (start, end) in enumerate(zip(loop.starts, loop.ends, strict=True)) if start != end]
        loop.phis, loop.starts, loop.ends = ([x[i] for i in moving] for x in (loop.phis, loop.starts, loop.ends))
        for phi, end in zip(loop.phis, loop.ends, strict=True):
            p.varying[phi] = p.varying[end]
        loop.turns = 1
        arrays = functools.partial(_with_entries, carry, starts, moving)
        return Rolled(arrays(p.results(loop)), loop, moving, arrays)

    def while_loop(self, equation: JaxprEqn, *xs: Array) -> list[Array]:
        """`jax.lax.while_loop`. While the condition is a constant, the loop is unrolled up to a size."""
        params = equation.params
        n, m = params["cond_nconsts"], params["body_nconsts"]
        test, turn = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
        condition_constants, body_constants, carry = list(xs[:n]), list(xs[n : n + m]), list(xs[n + m :])

        def condition(carry):
            return self.closed(params["cond_jaxpr"], [*condition_constants, *carry])[0]

        def body(carry):
            return self.closed(params["body_jaxpr"], [*body_constants, *carry])

        def is_constant_after_turn(carry):
            after = constant_results(turn, [x.numbers is not None for x in (*body_constants, *carry)])
            return constant_results(test, [*(x.numbers is not None for x in condition_constants), *after])[0]

        turns, unrolled = max(1, MAX_UNROLLED_OPERATIONS // max(1, count_operations(turn, self.sizes))), carry
        while (proceed := condition(unrolled)).numbers is not None:
            if not proceed.numbers:
                return unrolled
            if not turns or not is_constant_after_turn(unrolled):
                break
            unrolled, turns = body(unrolled), turns - 1
        self.suppose(equation, turn, body_constants, carry)
        return self.rolled(equation, carry, condition, body).results

    def scan(self, equation: JaxprEqn, *xs: Array) -> list[Array]:
        """`jax.lax.scan`, unrolled up to a size."""
        scan = Scan(self, equation, xs)
        if not scan_is_unrolled(equation, self.sizes):
            return scan.rolled()[0]
        carry, stacks = scan.carry, []
        for i in scan.order:
            carry, slices = scan.turn(carry, [x[i] for x in scan.sequences])
            stacks.append(slices)
        if scan.reverse:
            stacks.reverse()
        return [*carry, *(self.stacked(list(parts)) for parts in zip(*stacks, strict=True))]

    def stacked(self, parts: list[Array], axis: int = 0) -> Array:
        """Arrays stacked along a new axis."""
        return joined(self, parts, functools.partial(np.stack, axis=axis))

    # ---- indexed access --------------------------------------------------------------------------------------------------------

    def loaded(self, operand: Array, positions: list[tuple[int, int]]) -> list[int]:
        """Entries of an array at positions in its flat order: (index, offset), see `Program.load`."""
        array = self.program.array(self.ids(operand).ravel().tolist(), operand.dtype)
        return [self.program.load(array, index, offset) for index, offset in positions]


def _with_entries(arrays: list[Array], values: list[int], moving: list[int], entries: Sequence[int]) -> list[Array]:
    """Arrays of the shapes of others. values: of their entries, one array after the other; those at the positions ``moving`` are replaced
    by ``entries``."""
    flat = np.array(values, int)
    flat[moving] = entries
    ends = np.cumsum([math.prod(x.shape) for x in arrays])
    return [Array(part.reshape(x.shape), x.dtype) for part, x in zip(np.split(flat, ends[:-1]), arrays, strict=True)]


# ---- rules of primitives ---------------------------------------------------------------------------------------------------------

ELEMENTWISE = {"convert_element_type": "convert", "bitcast_convert_type": "bitcast"}
"""Elementwise primitives whose operation has another name."""


def joined(f: Flattener, parts: list[Array], function: Callable) -> Array:
    """A numpy function that moves entries (concatenate, stack), of arrays."""
    if all(x.numbers is not None for x in parts):
        return constant_array(function([x.numbers for x in parts]))
    return Array(function([f.ids(x) for x in parts]), parts[0].dtype)


def _moved(function: Callable) -> Callable:
    """The rule of a primitive that moves the entries of one array. function(array, **params)."""
    return lambda f, equation, x, *_: x.moved(lambda a: function(a, equation))


def _broadcast(a, equation):
    shape, dims = equation.params["shape"], equation.params["broadcast_dimensions"]
    inner = [1] * len(shape)
    for axis, d in enumerate(dims):
        inner[d] = a.shape[axis]
    return np.broadcast_to(a.reshape(inner), shape)


def _slice(a, equation):
    p = equation.params
    strides = p["strides"] or (1,) * a.ndim
    return a[tuple(slice(*x) for x in zip(p["start_indices"], p["limit_indices"], strides, strict=True))]


def _pad(f: Flattener, equation: JaxprEqn, x: Array, value: Array) -> Array:
    shape, config = equation.outvars[0].aval.shape, equation.params["padding_config"]
    entries = np.broadcast_to(f.ids(value), shape).copy()
    kept, at = [], []
    for n, (low, _, interior), size in zip(x.shape, config, shape, strict=True):
        positions = low + np.arange(n) * (interior + 1)
        inside = (positions >= 0) & (positions < size)
        kept.append(np.arange(n)[inside])
        at.append(positions[inside])
    entries[np.ix_(*at)] = f.ids(x)[np.ix_(*kept)]
    return Array(entries, x.dtype)


def _split(f: Flattener, equation: JaxprEqn, x: Array) -> list[Array]:
    ends = np.cumsum(equation.params["sizes"])
    axis = equation.params["axis"]
    starts = [0, *ends[:-1]]
    return [x.moved(lambda a, s=s, e=e: a[(slice(None),) * axis + (slice(s, e),)]) for s, e in zip(starts, ends, strict=True)]


def _unstack(f: Flattener, equation: JaxprEqn, x: Array) -> list[Array]:
    axis = equation.params["axis"]
    return [x.moved(lambda a, i=i: np.take(a, i, axis)) for i in range(x.shape[axis])]


def _reduction(name: str) -> Callable:
    """The rule of a reduction, by an operation in pairs."""

    def rule(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
        axes, dtype = tuple(equation.params["axes"]), x.dtype
        rest = [i for i in range(len(x.shape)) if i not in axes]
        shape = tuple(x.shape[i] for i in rest)
        count = math.prod(x.shape[i] for i in axes)
        terms = x.moved(lambda a: a.transpose(*axes, *rest).reshape(count, *shape))
        parts = [terms[i] for i in range(count)]
        if not parts:
            return constant_array(np.full(shape, {"add": 0, "mul": 1, "and": True, "or": False}[name], dtype))
        return combined(functools.partial(f.operate, name, dtype), parts)

    return rule


def _extreme(name: str) -> Callable:
    """The rule of argmax and argmin: the first of the extreme entries."""

    def rule(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
        (axis,), dtype = equation.params["axes"], np.dtype(equation.params["index_dtype"])
        rows = x.moved(lambda a: np.moveaxis(a, axis, 0))
        best, index = rows[0], constant_array(np.zeros(rows.shape[1:], dtype))
        for i in range(1, rows.shape[0]):
            better = f.operate(name, BOOL, rows[i], best)
            best = f.operate("select_n", x.dtype, better, best, rows[i])
            index = f.operate("select_n", dtype, better, index, constant_array(np.full(rows.shape[1:], i, dtype)))
        return index

    return rule


def _top_k(f: Flattener, equation: JaxprEqn, x: Array) -> list[Array]:
    """The k largest entries along the last axis and their indices."""
    k = equation.params["k"]
    axis = equation.params.get("axis", len(x.shape) - 1)
    rows = x.moved(lambda a: np.moveaxis(a, axis, -1).reshape(-1, a.shape[axis]))
    index_type = np.dtype(equation.outvars[1].aval.dtype)
    found = [_largest(f, equation, rows[i], k, index_type) for i in range(rows.shape[0])]
    shape = tuple(n for i, n in enumerate(x.shape) if i != axis)
    return [f.stacked([row[j] for row in found]).moved(lambda a: np.moveaxis(a.reshape(*shape, k), -1, axis)) for j in range(2)]


def _largest(f: Flattener, equation: JaxprEqn, row: Array, k: int, index_type: np.dtype) -> list[Array]:
    """The k largest entries of a vector and their indices, by insertion into a sorted list. An entry that no environment inserts takes two
    operations. Of equal entries the first ones count."""
    (n,) = row.shape

    def lies_above(x: Array, old: Array) -> Array:  # any number lies above NaN, with which the list is filled at first
        return f.operate("not", BOOL, f.operate("le", BOOL, x, old))

    def inserted(state: list[Array], x: Array, number: Array) -> list[Array]:
        above = [lies_above(x, state[0][i]) for i in range(k)]
        return [
            f.stacked([_shifted(f, above, values, new, i) for i in range(k)]) for values, new in zip(state, (x, number), strict=True)
        ]

    def condition(carry):
        return f.operate("lt", BOOL, carry[0], constant_array(np.array(n, INDEX)))

    def body(carry):
        at, *state = carry
        (x,) = f.loaded(row, [(int(f.ids(at)), 0)])
        entry = Array(np.array(x), row.dtype)
        number = f.operate("convert", index_type, at)

        def once(inner):
            return f.operate("lt", BOOL, inner[0], f.operate("convert", INDEX, lies_above(entry, state[0][k - 1])))

        def turn(inner):
            return [f.operate("add", INDEX, inner[0], one), *inserted(inner[1:], entry, number)]

        state = f.rolled(equation.params, [constant_array(np.array(0, INDEX)), *state], once, turn).results[1:]
        return [f.operate("add", INDEX, at, one), *state]

    one = constant_array(np.array(1, INDEX))
    start = [constant_array(np.full(k, np.nan, row.dtype)), constant_array(np.zeros(k, index_type))]
    return f.rolled(equation, [constant_array(np.array(0, INDEX)), *start], condition, body, n).results[1:]


def _shifted(f: Flattener, above: list[Array], values: Array, new: Array, i: int) -> Array:
    """Entry i of a sorted list after an insertion. above: for each entry, whether the new one lies above it."""
    here = f.operate("select_n", values.dtype, above[i], values[i], new)
    return here if i == 0 else f.operate("select_n", values.dtype, above[i - 1], here, values[i - 1])


def _cumulative(name: str) -> Callable:
    def rule(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
        axis, reverse = equation.params["axis"], equation.params["reverse"]
        rows = x.moved(lambda a: np.moveaxis(a, axis, 0))
        order = range(rows.shape[0])[::-1] if reverse else range(rows.shape[0])
        out: dict[int, Array] = {}
        total = None
        for i in order:
            total = rows[i] if total is None else f.operate(name, x.dtype, total, rows[i])
            out[i] = total
        return f.stacked([out[i] for i in range(rows.shape[0])], axis) if out else x

    return rule


def _dot_general(f: Flattener, equation: JaxprEqn, a: Array, b: Array) -> Array:
    ((contract_a, contract_b), (batch_a, batch_b)) = equation.params["dimension_numbers"]
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    free_a = [i for i in range(len(a.shape)) if i not in (*contract_a, *batch_a)]
    free_b = [i for i in range(len(b.shape)) if i not in (*contract_b, *batch_b)]
    batch = tuple(a.shape[i] for i in batch_a)
    inner = math.prod(a.shape[i] for i in contract_a)
    outer_a, outer_b = tuple(a.shape[i] for i in free_a), tuple(b.shape[i] for i in free_b)
    left = a.moved(lambda x: x.transpose(*contract_a, *batch_a, *free_a).reshape(inner, *batch, *outer_a, *(1,) * len(outer_b)))
    right = b.moved(lambda x: x.transpose(*contract_b, *batch_b, *free_b).reshape(inner, *batch, *(1,) * len(outer_a), *outer_b))
    terms = [f.operate("mul", dtype, left[k], right[k]) for k in range(inner)]
    if not terms:
        return constant_array(np.zeros(equation.outvars[0].aval.shape, dtype))
    return combined(functools.partial(f.operate, "add", dtype), terms)


def _integer_power(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
    y = equation.params["y"]
    out, square, n = None, x, abs(y)
    while n:
        if n & 1:
            out = square if out is None else f.operate("mul", x.dtype, out, square)
        n >>= 1
        square = f.operate("mul", x.dtype, square, square) if n else square
    one = constant_array(np.ones((), x.dtype))
    if out is None:
        return constant_array(np.ones(x.shape, x.dtype))
    return f.operate("div", x.dtype, one, out) if y < 0 else out


def _one_minus_square(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
    """(1 + x) (1 - x), which is accurate near 1: a primitive of jax 0.12, in the derivatives of tanh, asin and acos."""
    one = constant_array(np.ones((), x.dtype))
    return f.operate("mul", x.dtype, f.operate("add", x.dtype, one, x), f.operate("sub", x.dtype, one, x))


def _logistic(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
    """1 / (1 + exp(-x))."""
    one = constant_array(np.ones((), x.dtype))
    exp = f.operate("exp", x.dtype, f.operate("neg", x.dtype, x))
    return f.operate("div", x.dtype, one, f.operate("add", x.dtype, one, exp))


def _polynomial(f: Flattener, equation: JaxprEqn, x: Array, *coefficients: Array) -> Array:
    out = coefficients[-1]
    for c in coefficients[-2::-1]:
        out = f.operate("add", x.dtype, f.operate("mul", x.dtype, out, x), c)
    return out


def _clamp(f: Flattener, equation: JaxprEqn, low: Array, x: Array, high: Array) -> Array:
    return f.operate("min", x.dtype, f.operate("max", x.dtype, low, x), high)


def _round(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
    to_even = "EVEN" in str(equation.params["rounding_method"])
    return f.operate("round_even" if to_even else "round_away", x.dtype, x)


def _expanded(f: Flattener, equation: JaxprEqn, *xs: Array) -> list[Array]:
    """The rule of a primitive with an expansion. It is traced once, because functions and loops are known by their identity."""
    if id(equation) not in f.expansions:
        f.expansions[id(equation)] = equation, traced_expansion(equation)
    return f.closed(f.expansions[id(equation)][1], xs)


def _call(name: str) -> Callable:
    return lambda f, equation, *xs: f.closed(equation.params[name], xs)


def _linear_solve(f: Flattener, equation: JaxprEqn, *xs: Array) -> list[Array]:
    lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    first = lengths.matvec + lengths.vecmat
    constants, b = xs[first : first + lengths.solve], xs[first + lengths.solve + lengths.transpose_solve :]
    return f.closed(jaxprs.solve, [*constants, *b])


def _cond(f: Flattener, equation: JaxprEqn, which: Array, *xs: Array) -> list[Array]:
    branches = equation.params["branches"]
    if which.numbers is not None:
        return f.closed(branches[int(np.clip(which.numbers, 0, len(branches) - 1))], xs)
    chosen = [f.operate("eq", BOOL, which, constant_array(np.array(i, which.dtype))) for i in range(len(branches))]
    results = [_branch(f, branch, c, xs) for branch, c in zip(branches, chosen, strict=True)]
    return [f.operate("select_n", cases[0].dtype, which, *cases) for cases in zip(*results, strict=True)]


def _branch(f: Flattener, branch: ClosedJaxpr, chosen: Array, xs: Sequence[Array]) -> list[Array]:
    """The results of a branch if it is chosen."""
    if is_long(branch.jaxpr, f.sizes):
        return Branch(f, branch, chosen, xs).rolled()[0]
    return f.closed(branch, xs)


def _block_max(f: Flattener, equation: JaxprEqn, x: Array) -> Array:
    """The rule of `xsim.dynamics.linalg.dense.BLOCK_MAX`."""
    return Array(np.array(f.program.block_max(int(f.ids(x)))), x.dtype)


def _identity(f: Flattener, equation: JaxprEqn, *xs: Array) -> list[Array]:
    return list(xs)


def _iota(f: Flattener, equation: JaxprEqn) -> Array:
    p = equation.params
    shape, axis = p["shape"], p["dimension"]
    inner = [1] * len(shape)
    inner[axis] = shape[axis]
    return constant_array(np.broadcast_to(np.arange(shape[axis], dtype=p["dtype"]).reshape(inner), shape))


def _platform(f: Flattener, equation: JaxprEqn) -> Array:
    """The index of the case of `jax.lax.platform_dependent`: that of the device's platform, else the case of all others."""
    names = ("cuda", "gpu") if is_cuda() else ("cpu",)
    groups = equation.params["platforms"]
    found = [i for i, group in enumerate(groups) if group is None or not {*group}.isdisjoint(names)]
    return constant_array(np.array(found[0], np.int32))


def _zeros(f: Flattener, equation: JaxprEqn, *_: Array) -> Array:
    """An array whose entries do not matter: what a derivative would need of a branch that is not chosen."""
    aval = equation.outvars[0].aval
    return constant_array(np.zeros(aval.shape, aval.dtype))


LOOPS: dict[str, Callable] = {
    "xsim_block_max": _block_max,
    "xsim_factor": tiled.factored,
    "xsim_solve": tiled.solved,
    "xsim_true_indices": indexing.true_indices,
    "xsim_transposed_product": assembly.transposed_product,
    "xsim_with_curvature": assembly.with_curvature,
}
"""Primitives of `xsim.compile.primitives.primitive_of`. Their derivatives are those of their functions, not of the loops of these rules."""
IDENTITIES = ("copy", "copy_p", "stop_gradient", "optimization_barrier", "reduce_precision", "reshard", "sharding_constraint")
RULES: dict[str, Callable] = {
    "broadcast_in_dim": _moved(_broadcast),
    "reshape": _moved(lambda a, e: a.reshape(e.params["new_sizes"])),
    "squeeze": _moved(lambda a, e: np.squeeze(a, tuple(e.params["dimensions"]))),
    "expand_dims": _moved(lambda a, e: np.expand_dims(a, tuple(e.params["dimensions"]))),
    "transpose": _moved(lambda a, e: a.transpose(e.params["permutation"])),
    "rev": _moved(lambda a, e: np.flip(a, tuple(e.params["dimensions"]))),
    "slice": _moved(_slice),
    "tile": _moved(lambda a, e: np.tile(a, e.params["reps"])),
    "concatenate": lambda f, e, *xs: joined(f, list(xs), functools.partial(np.concatenate, axis=e.params["dimension"])),
    "stack": lambda f, e, *xs: f.stacked(list(xs), e.params["axis"]),
    "unstack": _unstack,
    "split": _split,
    "pad": _pad,
    "iota": _iota,
    "platform_index": _platform,
    "empty": _zeros,
    "empty2": _zeros,
    "reduce_sum": _reduction("add"),
    "reduce_prod": _reduction("mul"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "reduce_and": _reduction("and"),
    "reduce_or": _reduction("or"),
    "argmax": _extreme("gt"),
    "argmin": _extreme("lt"),
    "top_k": _top_k,
    "cumsum": _cumulative("add"),
    "cumprod": _cumulative("mul"),
    "cummax": _cumulative("max"),
    "dot_general": _dot_general,
    "cholesky": factorization.cholesky,
    "triangular_solve": factorization.triangular_solve,
    **LOOPS,
    "integer_pow": _integer_power,
    "square": lambda f, e, x: f.operate("mul", x.dtype, x, x),
    "one_minus_square": _one_minus_square,
    "logistic": _logistic,
    "polynomial": _polynomial,
    "clamp": _clamp,
    "round": _round,
    "while": Flattener.while_loop,
    "scan": Flattener.scan,
    rows_of_turns.name: lambda f, e, *xs: BoundedMap(f, e, xs).rolled()[0],
    sum_of_turns.name: lambda f, e, *xs: BoundedScan(f, e, xs).rolled()[0],
    "cond": _cond,
    "custom_linear_solve": _linear_solve,
    "dynamic_slice": indexing.dynamic_slice,
    "dynamic_update_slice": indexing.dynamic_update_slice,
    "gather": indexing.gather,
    "scatter": indexing.scatter,
    "scatter-add": indexing.scatter,
    "scatter_add": indexing.scatter,
    **{name: _expanded for name in (*EXPANSIONS, OF_FUNCTIONS)},
    **{name: _identity for name in IDENTITIES},
    **{name: _call("jaxpr") for name in ("jit", "pjit", "checkpoint", "remat", "remat2", "closed_call_p")},
    **{name: _call("call_jaxpr") for name in ("closed_call", "core_call", "eval_jaxpr", "custom_jvp_call", "custom_vjp_call")},
}
"""How each primitive of JAX is taken apart. rule(flattener, equation, *arrays) -> array or list of arrays."""
