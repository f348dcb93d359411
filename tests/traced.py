"""Functions of jax evaluated by numpy: traced once, nothing is compiled.

A model of the corpus is evaluated a few times; compiling it takes a hundred times longer than its numbers. The trace is the program that
jax would compile, and numpy does its arithmetic.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from functools import partial

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
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _divide, "neg": np.negative, "max": np.maximum, "min": np.minimum,
    "abs": np.abs, "sign": np.sign, "square": np.square, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "is_finite": np.isfinite, "floor": np.floor, "atan2": np.arctan2, "pow": np.power,
    "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos,
    "atan": np.arctan, "exp": np.exp, "log": np.log, "expm1": np.expm1, "copy": np.asarray, "stop_gradient": np.asarray,
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
}  # fmt: skip
"""Functions of each number: what the parameters say (accuracy, type) is nothing to numpy."""
CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "checkpoint": "jaxpr", "custom_jvp_call": "call_jaxpr"}


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
        a = a - a * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    if left_side:
        return np.linalg.solve(a, b)
    return np.swapaxes(np.linalg.solve(np.swapaxes(a, -1, -2), np.swapaxes(b, -1, -2)), -1, -2)


RULES: dict[str, Callable] = {
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
        program, shapes = jax.make_jaxpr(fn, return_shape=True)(*args)
        run, tree = _compile(program), jax.tree.structure(shapes)
    finally:
        if collecting:
            gc.enable()

    def evaluate(*args):
        with np.errstate(all="ignore"):
            return jax.tree.unflatten(tree, map(np.asarray, run(*map(np.asarray, jax.tree.leaves(args)))))

    return evaluate


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
        steps.append((_rule(e.primitive, e.params), inputs, outputs if e.primitive.multiple_results else outputs[0]))
    return [slot(x) for x in jaxpr.outvars]


def _rule(primitive, params) -> Callable:
    """What is not in the tables is left to jax."""
    name = primitive.name
    if name in EACH:
        return EACH[name]
    if name in RULES:
        return partial(RULES[name], **params)
    if name in LOOPS:
        return LOOPS[name](**params)
    return lambda *x: jax.tree.map(np.asarray, primitive.bind(*x, **params))


def _while(cond_jaxpr, body_jaxpr, cond_nconsts, body_nconsts, **_) -> Callable:
    holds, body = _compile(cond_jaxpr), _compile(body_jaxpr)

    def run(*args):
        first, second, moving = args[:cond_nconsts], args[cond_nconsts:][:body_nconsts], args[cond_nconsts + body_nconsts :]
        while holds(*first, *moving)[0]:
            moving = body(*second, *moving)
        return moving

    return run


def _scan(jaxpr, num_consts, num_carry, length, reverse, **_) -> Callable:
    body = _compile(jaxpr)

    def run(*args):
        fixed, moving, rows = args[:num_consts], args[num_consts:][:num_carry], args[num_consts + num_carry :]
        kept = []
        for i in range(length)[:: -1 if reverse else 1]:
            out = body(*fixed, *moving, *(x[i] for x in rows))
            moving = out[:num_carry]
            kept.append(out[num_carry:])
        return [*moving, *(np.stack(x) for x in zip(*kept[:: -1 if reverse else 1], strict=True))]

    return run


def _cond(branches, **_) -> Callable:
    runs = [_compile(b) for b in branches]
    return lambda which, *args: runs[int(np.clip(which, 0, len(runs) - 1))](*args)


LOOPS = {"while": _while, "scan": _scan, "cond": _cond}
