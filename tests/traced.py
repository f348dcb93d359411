"""Functions of jax evaluated by numpy: traced once, nothing is compiled.

A model of the corpus is evaluated a few times; compiling it takes a hundred times longer than its numbers. The trace is the program that
jax would compile, and numpy does its arithmetic.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial
from unittest import mock

import jax
import numpy as np
from jax.extend.core import Literal


def _broadcast(x, shape, broadcast_dimensions, **_):
    own = [1] * len(shape)
    for i, n in zip(broadcast_dimensions, np.shape(x), strict=True):
        own[i] = n
    out = np.empty(shape, x.dtype)
    out[...] = np.reshape(x, own)
    return out


def _divide(x, y):
    return np.divide(x, y) if np.issubdtype(x.dtype, np.floating) else np.trunc(np.divide(x, y)).astype(x.dtype)


def _select(which, *cases):
    return np.where(which, cases[1], cases[0]) if np.asarray(which).dtype == bool else np.choose(which, cases)


def _slice(x, start_indices, limit_indices, strides):
    return x[tuple(slice(*at) for at in zip(start_indices, limit_indices, strides or [1] * len(start_indices), strict=True))]


EACH: dict[str, Callable] = {
    "add_any": np.add,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "abs": np.abs, "sign": np.sign, "square": np.square, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "is_finite": np.isfinite, "floor": np.floor, "atan2": np.arctan2, "pow": np.power,
    "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "rem": np.fmod,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "exp": np.exp, "log": np.log, "expm1": np.expm1, "copy": np.asarray, "stop_gradient": np.asarray,
    "select_n": _select,
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


def _gather(x, at, dimension_numbers, slice_sizes, mode, fill_value, **_):
    """Slices of x that start at ``at``, (*batch, coordinates); starts are clipped, and what lies outside is filled where that is asked."""
    numbers, batch = dimension_numbers, at.shape[:-1]
    dropped = {*numbers.collapsed_slice_dims, *numbers.operand_batching_dims}
    window = [i for i in range(x.ndim) if i not in dropped]
    starts: list = [np.zeros(batch, int)] * x.ndim
    for k, i in enumerate(numbers.start_index_map):
        starts[i] = at[..., k]
    for i, k in zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True):
        starts[i] = np.broadcast_to(np.arange(batch[k]).reshape([-1 if j == k else 1 for j in range(len(batch))]), batch)
    most = [n - size for n, size in zip(x.shape, slice_sizes, strict=True)]
    where = []
    for i, start in enumerate(starts):
        own = np.clip(start, 0, most[i]).reshape(*start.shape, *(1,) * len(window))
        where.append(own + (np.arange(slice_sizes[i]).reshape([-1 if j == i else 1 for j in window]) if i in window else 0))
    out = np.broadcast_to(x[tuple(where)], (*batch, *(slice_sizes[i] for i in window)))
    if mode == jax.lax.GatherScatterMode.FILL_OR_DROP:
        inside = np.all([(s >= 0) & (s <= m) for s, m in zip(starts, most, strict=True)], 0)
        missing = np.nan if fill_value is None else fill_value
        assert inside.all() or fill_value is not None or np.issubdtype(x.dtype, np.floating)
        out = out if inside.all() else np.where(inside.reshape(*batch, *(1,) * len(window)), out, x.dtype.type(missing))
    last = len(batch) + len(window)
    places = [i for i in range(last) if i not in numbers.offset_dims]
    return np.moveaxis(out, range(last), [*places, *numbers.offset_dims])


def _dynamic_slice(x, *at, slice_sizes):
    own = (np.clip(i, 0, n - size) for i, n, size in zip(at, x.shape, slice_sizes, strict=True))
    return x[tuple(slice(i, i + size) for i, size in zip(own, slice_sizes, strict=True))]


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


RULES: dict[str, Callable] = {
    "pad": _pad,
    "unstack": lambda x, axis, **_: list(np.moveaxis(x, axis, 0)),
    "gather": _gather,
    "dynamic_slice": _dynamic_slice,
    "argmax": lambda x, axes, index_dtype: np.argmax(x, *axes).astype(index_dtype),
    "argmin": lambda x, axes, index_dtype: np.argmin(x, *axes).astype(index_dtype),
    "top_k": _top,
    "dot_general": _dot,
    "cholesky": lambda a, **_: np.linalg.cholesky(a),
    "triangular_solve": _triangular,
    "integer_pow": lambda x, y: x**y,
    "convert_element_type": lambda x, new_dtype, **_: np.asarray(x, new_dtype),
    "reshape": lambda x, new_sizes, **_: np.reshape(x, new_sizes),
    "squeeze": lambda x, dimensions: np.squeeze(x, dimensions),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda *x, dimension: np.concatenate(x, dimension),
    "stack": lambda *x, axis: np.stack(x, axis),
    "slice": _slice,
    "iota": lambda shape, dimension, dtype, **_: _broadcast(np.arange(shape[dimension], dtype=dtype), shape, (dimension,)),
    "split": lambda x, sizes, axis: np.split(x, np.cumsum(sizes)[:-1], axis),
    "reduce_sum": lambda x, axes, **_: np.sum(x, axes),
    "reduce_max": lambda x, axes, **_: np.max(x, axes),
    "reduce_min": lambda x, axes, **_: np.min(x, axes),
    "reduce_and": lambda x, axes, **_: np.all(x, axes),
    "reduce_or": lambda x, axes, **_: np.any(x, axes),
}  # fmt: skip


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
            return jax.tree.unflatten(tree, map(_array, run(*map(_array, jax.tree.leaves(args)))))

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
    return jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key)


def _array(x):
    """As an array of numpy; random keys stay arrays of jax."""
    return x if hasattr(x, "dtype") and _is_key(x) else np.asarray(x)


def _compile(program) -> Callable:
    """A function of arrays that returns a list of arrays."""
    start, steps = [], []
    given = [_slot(start) for _ in program.in_avals]
    wanted = _flatten(program, given, start, steps)

    def run(*args):
        values = list(start)
        for at, x in zip(given, args, strict=True):
            values[at] = x
        for rule, inputs, outputs in steps:
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


def _flatten(program, given: list[int], values: list, steps: list) -> list[int]:
    """Append the steps of a program (rule, slots of what it takes and gives), those of the programs it calls among them; the slots of its
    results."""
    jaxpr, consts = (program.jaxpr, program.consts) if hasattr(program, "consts") else (program, ())
    own = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*(_slot(values, np.asarray(x)) for x in consts), *given), strict=True))

    def slot(x) -> int:
        return _slot(values, np.asarray(x.val, x.aval.dtype)) if isinstance(x, Literal) else own[x]

    for e in jaxpr.eqns:
        inputs = [slot(x) for x in e.invars]
        if e.primitive.name in CALLS:
            own.update(zip(e.outvars, _flatten(e.params[CALLS[e.primitive.name]], inputs, values, steps), strict=True))
            continue
        outputs = [own.setdefault(x, _slot(values)) for x in e.outvars]
        steps.append((_rule(e), inputs, outputs if e.primitive.multiple_results else outputs[0]))
    return [slot(x) for x in jaxpr.outvars]


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
            moving = [np.where(going.reshape(*going.shape, *(1,) * (np.ndim(x) - going.ndim)), x, old) if going.ndim else x
                      for x, old in zip(new, moving, strict=True)]  # fmt: skip
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
