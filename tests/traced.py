"""Functions of jax evaluated by numpy: traced once, nothing is compiled.

A model of the corpus is evaluated a few times; compiling it takes a hundred times longer than its numbers. The trace is the program that
jax would compile, and numpy does its arithmetic.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from unittest import mock

import jax
import numpy as np
from jax.extend.core import Literal


def _broadcast(equation):
    (x, *_), (out,), params = equation.invars, equation.outvars, equation.params
    shape, dtype, own = out.aval.shape, out.aval.dtype, [1] * out.aval.ndim
    for i, n in zip(params["broadcast_dimensions"], x.aval.shape, strict=True):
        own[i] = n
    if x.aval.size == out.aval.size:
        return lambda x: x.reshape(shape)

    def run(x):
        out = np.empty(shape, dtype)
        out[...] = x.reshape(own)
        return out

    return run


def _divide(equation):
    dtype = equation.outvars[0].aval.dtype
    return np.divide if np.issubdtype(dtype, np.floating) else lambda x, y: np.trunc(np.divide(x, y)).astype(dtype)


def _select(equation):
    if equation.invars[0].aval.dtype == bool:
        return lambda which, *cases: np.where(which, cases[1], cases[0])
    return lambda which, *cases: np.choose(which, cases)


def _slice(equation):
    params = equation.params
    first, last = params["start_indices"], params["limit_indices"]
    return itemgetter(tuple(map(slice, first, last, params["strides"] or [1] * len(first))))


def _reshape(equation):
    shape = equation.outvars[0].aval.shape
    return lambda x: x.reshape(shape)


def _convert(equation):
    dtype = equation.outvars[0].aval.dtype
    return lambda x: x.astype(dtype)


def _unstack(equation):
    at = [(slice(None),) * equation.params["axis"] + (i,) for i in range(len(equation.outvars))]
    return lambda x: [x[own] for own in at]


def _split(equation):
    axis, last = equation.params["axis"], np.cumsum(equation.params["sizes"]).tolist()
    at = [(slice(None),) * axis + (slice(*ends),) for ends in zip([0, *last], last, strict=False)]
    return lambda x: [x[own] for own in at]


EACH: dict[str, Callable] = {
    "add_any": np.add,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "abs": np.abs, "sign": np.sign, "square": np.square, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "is_finite": np.isfinite, "floor": np.floor, "atan2": np.arctan2, "pow": np.power,
    "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "rem": np.fmod,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "exp": np.exp, "log": np.log, "expm1": np.expm1, "copy": np.asarray, "stop_gradient": np.asarray,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip
"""Functions of each number: what the parameters say (accuracy, type) is nothing to numpy."""
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr", "custom_jvp_call": "call_jaxpr",
         "custom_vjp_call": "call_jaxpr", "closed_call": "call_jaxpr"}  # fmt: skip


def _dot(a, b, dimension_numbers, **_):
    (rows, columns), (batch, other) = dimension_numbers
    letters = iter(range(np.ndim(a) + np.ndim(b)))
    left = [next(letters) for _ in range(np.ndim(a))]
    right = [next(letters) for _ in range(np.ndim(b))]
    for i, j in (*zip(rows, columns, strict=True), *zip(batch, other, strict=True)):
        right[j] = left[i]
    kept = [left[i] for i in batch] + [x for i, x in enumerate(left) if i not in (*rows, *batch)]
    kept += [x for j, x in enumerate(right) if j not in (*columns, *other)]
    return np.einsum(a, left, b, right, kept)


def _triangular(a, b, left_side, lower, transpose_a, unit_diagonal, **_):
    a = np.tril(a) if lower else np.triu(a)
    if unit_diagonal:
        eye = np.eye(a.shape[-1], dtype=a.dtype)
        a = a - a * eye + eye
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    if left_side:
        return np.linalg.solve(a, b)
    return np.swapaxes(np.linalg.solve(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)


def _gather(equation):
    """Slices of x that start at ``at``, (*batch, coordinates); starts are clipped, and what lies outside is filled where that is asked."""
    (x, at), params = (v.aval for v in equation.invars), equation.params
    numbers, sizes, fill = params["dimension_numbers"], params["slice_sizes"], params["fill_value"]
    batch, checked = at.shape[:-1], params["mode"] == jax.lax.GatherScatterMode.FILL_OR_DROP
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [i for i in range(x.ndim) if i not in dropped]
    most = [n - size for n, size in zip(x.shape, sizes, strict=True)]
    shape, per_slice = (*batch, *(sizes[i] for i in window)), (*batch, *(1,) * len(window))
    offsets: list = [np.arange(sizes[i]).reshape([-1 if j == i else 1 for j in window]) if i in window else 0 for i in range(x.ndim)]
    for i, k in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        offsets[i] = np.arange(batch[k]).reshape([-1 if j == k else 1 for j in range(len(shape))])
    places = [i for i in range(len(shape)) if i not in numbers.offset_dims]
    order = np.argsort([*places, *numbers.offset_dims])
    missing = np.nan if fill is None and np.issubdtype(x.dtype, np.floating) else fill

    def run(x, at):
        where, inside = list(offsets), True
        for k, i in enumerate(numbers.start_index_map):
            start = at[..., k]
            own = np.minimum(np.maximum(start, 0), most[i])
            inside = inside & (own == start) if checked else inside
            where[i] = own.reshape(per_slice) + offsets[i]
        out = x[tuple(where)]
        if not np.all(inside):
            assert missing is not None
            out = np.where(inside.reshape(per_slice), out, x.dtype.type(missing))
        return np.broadcast_to(out, shape).transpose(order)

    return run


def _dynamic_slice(equation):
    sizes = equation.params["slice_sizes"]
    most = [n - size for n, size in zip(equation.invars[0].aval.shape, sizes, strict=True)]

    def run(x, *at):
        first = [min(max(int(i), 0), m) for i, m in zip(at, most, strict=True)]
        return x[tuple(slice(i, i + size) for i, size in zip(first, sizes, strict=True))]

    return run


def _top(x, k, axis, **_):
    order = np.take(np.argsort(-x, axis, kind="stable"), np.arange(k), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int32)


def _pad(x, value, padding_config):
    """Also with negative padding, which cuts off."""
    out = np.full([n + low + high + max(n - 1, 0) * inner for n, (low, high, inner) in zip(x.shape, padding_config, strict=True)], value)
    here, there = [], []
    for n, m, (low, _, inner) in zip(x.shape, out.shape, padding_config, strict=True):
        at = low + np.arange(n) * (inner + 1)
        inside = np.flatnonzero((at >= 0) & (at < m))
        here.append(inside)
        there.append(at[inside])
    out[np.ix_(*there)] = x[np.ix_(*here)]
    return out


def _iota(shape, dimension, dtype, **_):
    own = [-1 if i == dimension else 1 for i in range(len(shape))]
    return np.broadcast_to(np.arange(shape[dimension], dtype=dtype).reshape(own), shape)


RULES: dict[str, Callable] = {
    "iota": _iota,
    "pad": _pad,
    "argmax": lambda x, axes, index_dtype: np.argmax(x, *axes).astype(index_dtype),
    "argmin": lambda x, axes, index_dtype: np.argmin(x, *axes).astype(index_dtype),
    "top_k": _top,
    "dot_general": _dot,
    "cholesky": lambda a, **_: np.linalg.cholesky(a),
    "triangular_solve": _triangular,
    "integer_pow": lambda x, y: x**y,
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "stack": lambda *x, axis: np.stack(x, axis),
    "reduce_sum": lambda x, axes, **_: np.sum(x, axes),
    "reduce_max": lambda x, axes, **_: np.max(x, axes),
    "reduce_min": lambda x, axes, **_: np.min(x, axes),
    "reduce_and": lambda x, axes, **_: np.all(x, axes),
    "reduce_or": lambda x, axes, **_: np.any(x, axes),
}  # fmt: skip
"""Functions of arrays and parameters."""
PREPARED: dict[str, Callable] = {
    "broadcast_in_dim": _broadcast, "div": _divide, "select_n": _select, "slice": _slice, "reshape": _reshape, "squeeze": _reshape,
    "convert_element_type": _convert, "split": _split, "gather": _gather, "dynamic_slice": _dynamic_slice, "unstack": _unstack,
}  # fmt: skip
"""Functions of equations that give functions of arrays: shapes, types and parameters are read once."""


def traced(fn: Callable, *args) -> Callable:
    """fn for arguments of the shapes of these, evaluated by numpy."""
    collecting = gc.isenabled()
    gc.disable()  # a trace is millions of small objects that all live: looking for garbage takes a quarter of the time
    try:
        with mock.patch("xsim.dynamics.call.uses_llvm", lambda: False):  # numpy evaluates the trace itself
            program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
        run, tree = _compile(program), jax.tree.structure(shapes)
    finally:
        if collecting:
            gc.enable()

    def evaluate(*args):
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(tree, map(_own, run(*map(_array, jax.tree.leaves(args)))))

    return evaluate


def by_numpy(fn: Callable) -> Callable:
    """fn evaluated by numpy, traced once for arguments of each shape: in the place of ``jax.jit``."""
    known: dict = {}

    def evaluate(*args):
        leaves, tree = jax.tree.flatten(args)
        kind = tree, tuple((np.shape(x), jax.dtypes.result_type(x)) for x in leaves)
        if kind not in known:
            known[kind] = traced(fn, *args)
        return known[kind](*args)

    return evaluate


def _is_key(x) -> bool:
    """All other types are those of numpy."""
    return not isinstance(x.dtype, np.dtype)


def _own(x):
    """A copy: a result may be a constant of the program, or a view."""
    return x if _is_key(x) else np.array(x)


def _array(x):
    """As an array of numpy; random keys stay arrays of jax."""
    return x if hasattr(x, "dtype") and _is_key(x) else np.asarray(x)


def _compile(program) -> Callable:
    """A function of arrays that returns a list of arrays."""
    start, steps = [], []
    given = [_slot(start) for _ in program.in_avals]
    with np.errstate(all="ignore"):
        wanted = _flatten(program, given, start, steps, {})
    used, needed = set(wanted), []
    for rule, inputs, outputs, always in reversed(steps):
        if always or not used.isdisjoint([outputs] if outputs.__class__ is int else outputs):
            used.update(inputs)
            needed.append((rule, inputs, outputs))
    needed.reverse()

    def run(*args):
        values = list(start)
        for at, x in zip(given, args, strict=True):
            values[at] = x
        for rule, inputs, outputs in needed:
            found = rule(*[values[i] for i in inputs])
            if outputs.__class__ is int:
                values[outputs] = found
            else:
                for i, x in zip(outputs, found, strict=True):
                    values[i] = x
        return [values[i] for i in wanted]

    return run


def _slot(values: list, value=None) -> int:
    """A new place among the values that a program works on."""
    values.append(value)
    return len(values) - 1


def _flatten(program, given: list[int], values: list, steps: list, known: dict) -> list[int]:
    """Append the steps of a program (rule, slots of what it takes and gives, whether it is more than its results), those of the programs it
    calls among them; the slots of its results. A number or an equation that is known already has no second slot, and what is small and
    made of constants is evaluated here."""
    jaxpr, consts = (program.jaxpr, program.consts) if hasattr(program, "consts") else (program, ())
    own = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*(_slot(values, np.asarray(x)) for x in consts), *given), strict=True))

    def slot(x) -> int:
        if not isinstance(x, Literal):
            return own[x]
        value = np.asarray(x.val, x.aval.dtype)
        key = value.dtype, value.shape, value.tobytes()
        if key not in known:
            known[key] = _slot(values, value)
        return known[key]

    for e in jaxpr.eqns:
        inputs, name, params, several = [slot(x) for x in e.invars], e.primitive.name, e.params, e.primitive.multiple_results
        if name in CALLS:
            own.update(zip(e.outvars, _flatten(params[CALLS[name]], inputs, values, steps, known), strict=True))
            continue
        key = (name, *inputs, *map(_hashable, params.items()))
        if e.effects or key not in known:
            known[key], rule = [_slot(values) for _ in e.outvars], _rule(e)
            if _is_small_constant(e, [values[i] for i in inputs]):
                found = rule(*[values[i] for i in inputs])
                for i, x in zip(known[key], found if several else [found], strict=True):
                    values[i] = x
            else:
                steps.append((rule, inputs, known[key] if several else known[key][0], bool(e.effects)))
        own.update(zip(e.outvars, known[key], strict=True))
    return [slot(x) for x in jaxpr.outvars]


def _hashable(item):
    try:
        hash(item)
    except TypeError:
        return item[0], id(item[1])
    return item


def _is_small_constant(equation, values) -> bool:
    if equation.effects or equation.primitive.name in LOOPS or any(x is None or _is_key(x) for x in values):
        return False
    return not any(_is_key(x.aval) or x.aval.size > 10_000 for x in equation.outvars)


def _rule(equation) -> Callable:
    """What is not in the tables, or works on random keys, is left to jax."""
    primitive, params = equation.primitive, equation.params
    name = primitive.name
    if name not in LOOPS and any(_is_key(x.aval) for x in (*equation.invars, *equation.outvars)):
        return lambda *x: jax.tree.map(_array, primitive.bind(*x, **params))
    if name in EACH:
        return EACH[name]
    if name in RULES:
        return partial(RULES[name], **params)
    if name in PREPARED:
        return PREPARED[name](equation)
    if name in LOOPS:
        return LOOPS[name](equation)
    return lambda *x: jax.tree.map(np.asarray, primitive.bind(*x, **params))


def _while(equation) -> Callable:
    params = equation.params
    cond_nconsts, body_nconsts = params["cond_nconsts"], params["body_nconsts"]
    holds, body = _compile(params["cond_jaxpr"]), _compile(params["body_jaxpr"])

    def run(*args):
        first, second, moving = args[:cond_nconsts], args[cond_nconsts:][:body_nconsts], args[cond_nconsts + body_nconsts :]
        while (going := np.asarray(holds(*first, *moving)[0])).any():
            new = body(*second, *moving)
            # Of a batch of loops, those that have ended stay.
            if not going.all():
                new = [np.where(going.reshape(*going.shape, *(1,) * (np.ndim(x) - going.ndim)), x, old)
                       for x, old in zip(new, moving, strict=True)]  # fmt: skip
            moving = new
        return moving

    return run


def _scan(equation) -> Callable:
    """A scan's body takes constants, carry and rows, and gives carry and rows. What is a row is read off the shapes, which have one
    dimension more outside: the parameters that say so differ between releases of jax."""
    jaxpr, length, reverse = (equation.params[name] for name in ("jaxpr", "length", "reverse"))
    body = _compile(jaxpr)
    num_carry = sum(x.aval.ndim == own.ndim for x, own in zip(equation.outvars, jaxpr.out_avals, strict=True))
    num_consts = sum(x.aval.ndim == own.ndim for x, own in zip(equation.invars, jaxpr.in_avals, strict=True)) - num_carry

    def run(*args):
        fixed, moving, rows = args[:num_consts], args[num_consts:][:num_carry], args[num_consts + num_carry :]
        kept = []
        for i in range(length)[:: -1 if reverse else 1]:
            out = body(*fixed, *moving, *(x[i] for x in rows))
            moving = out[:num_carry]
            kept.append(out[num_carry:])
        return [*moving, *(np.stack(x) for x in zip(*kept[:: -1 if reverse else 1], strict=True))]

    return run


def _cond(equation) -> Callable:
    runs = [_compile(b) for b in equation.params["branches"]]
    return lambda which, *args: runs[int(np.clip(which, 0, len(runs) - 1))](*args)


def _linear_solve(equation) -> Callable:
    const_lengths, jaxprs = equation.params["const_lengths"], equation.params["jaxprs"]
    solve = _compile(jaxprs.solve)
    first = const_lengths.matvec + const_lengths.vecmat
    last = first + const_lengths.solve + const_lengths.transpose_solve
    return lambda *args: solve(*args[first:][: const_lengths.solve], *args[last:])


LOOPS = {"while": _while, "scan": _scan, "cond": _cond, "custom_linear_solve": _linear_solve}
