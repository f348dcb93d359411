"""Loops with as many turns as an environment needs, in functions that are compiled to programs: JAX's own loops have a constant number of
turns, or no derivative in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive, jaxpr_as_fun
from jax.interpreters import ad

from xsim.compile.rules import is_float, struct_of

sum_of_turns = Primitive("xsim_sum_of_turns")
"""See `bounded_sum`. Inputs: count, what ``add`` reads, the arrays of ``total``, indices. Parameters, as of `jax.lax.scan`: jaxpr, of all
inputs but the count, with one index; length and reverse."""
sum_of_turns.multiple_results = True

rows_of_turns = Primitive("xsim_rows_of_turns")
"""See `bounded_map`. Inputs: count, what ``function`` reads, and the numbers of the rows. Parameters: as of `sum_of_turns`."""
rows_of_turns.multiple_results = True


@sum_of_turns.def_abstract_eval
def _shapes_of_sum(*arguments, jaxpr, length, reverse):
    return list(jaxpr.out_avals)


@rows_of_turns.def_abstract_eval
def _shapes_of_rows(*arguments, jaxpr, length, reverse):
    return [jax.core.ShapedArray((length, *x.shape), x.dtype) for x in jaxpr.out_avals]


def bounded_sum(add: Callable, total, indices, count) -> Any:
    """total = add(total, i) for the first ``count`` of the indices (n,), in no order, in the program of one environment.

    add must only add to an array what does not depend on it. Its derivative is a loop of as many turns: in forward mode by JAX, in reverse
    mode by a tape (`xsim.compile.reverse`)."""
    jaxpr, consts = _traced(add, total, jax.ShapeDtypeStruct((), indices.dtype))
    (out,) = sum_of_turns.bind(count, *consts, total, indices, jaxpr=jaxpr, length=len(indices), reverse=False)
    return out


def bounded_map(function: Callable, length: int, count) -> Any:
    """A tree of arrays (length, ...) whose rows i < count are those of function(i), in the program of one environment. The further rows
    have no meaning. It has a derivative in forward mode."""
    tree: list = []

    def leaves(i) -> list:
        out, structure = jax.tree.flatten(function(i))
        tree.append(structure)
        return out

    numbers = np.arange(length, dtype=np.int32)
    jaxpr, consts = _traced(leaves, jax.ShapeDtypeStruct((), numbers.dtype))
    return jax.tree.unflatten(tree[0], rows_of_turns.bind(count, *consts, numbers, jaxpr=jaxpr, length=length, reverse=False))


def _traced(function: Callable, *arguments) -> tuple[ClosedJaxpr, list]:
    """A function of what it reads and of arguments, and what it reads."""
    traced = jax.make_jaxpr(function)(*arguments)
    jaxpr = traced.jaxpr
    return ClosedJaxpr(jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars]), ()), traced.consts


# ---- derivatives in forward mode -------------------------------------------------------------------------------------------------


def _tangents_of_sum(primals, tangents, *, jaxpr, length, reverse):
    """The sums of the tangents are added up beside the sums."""
    count, indices, totals = primals[0], primals[-1], len(jaxpr.out_avals)
    start, read = list(primals[-1 - totals : -1]), list(primals[1 : -1 - totals])
    moving, known = _instantiated(read, tangents[1 : -1 - totals])
    start_tangents = [ad.instantiate_zeros(t) for t in tangents[-1 - totals : -1]]
    places = [*moving, *range(len(read), len(read) + totals)]

    def turn(*xs):
        changes, read, (*carry, i) = xs[: len(moving)], xs[len(moving) : -2 * totals - 1], xs[-2 * totals - 1 :]
        arguments, known = (*read, *carry[:totals], i), (*changes, *carry[totals:])
        out, change = _jvp(jaxpr, arguments, dict(zip(places, known, strict=True)))
        return [*out, *change]

    operands = [*known, *read, *start, *start_tangents]
    body, consts = _traced(turn, *map(struct_of, operands), jax.ShapeDtypeStruct((), indices.dtype))
    out = sum_of_turns.bind(count, *consts, *operands, indices, jaxpr=body, length=length, reverse=reverse)
    return out[:totals], out[totals:]


def _tangents_of_rows(primals, tangents, *, jaxpr, length, reverse):
    count, *read, numbers = primals
    moving, known = _instantiated(read, tangents[1:-1])

    def row(*xs):
        changes, read, i = xs[: len(moving)], xs[len(moving) : -1], xs[-1]
        out, change = _jvp(jaxpr, (*read, i), dict(zip(moving, changes, strict=True)))
        return [*out, *change]

    body, consts = _traced(row, *map(struct_of, (*known, *read)), jax.ShapeDtypeStruct((), numbers.dtype))
    out = rows_of_turns.bind(count, *consts, *known, *read, numbers, jaxpr=body, length=length, reverse=reverse)
    half = len(out) // 2
    return out[:half], [_tangent_of(x, change) for x, change in zip(out[:half], out[half:], strict=True)]


def _instantiated(arrays, tangents) -> tuple[list[int], list]:
    """Which of the arrays have a tangent, and these tangents."""
    known = {i: t for i, t in enumerate(tangents) if not isinstance(t, ad.Zero) and is_float(arrays[i])}
    return list(known), list(known.values())


def _jvp(jaxpr: ClosedJaxpr, arguments, tangents: dict[int, Any]) -> tuple[list, list]:
    """The results of a function and their tangents, for tangents of some of its arguments. The tangents of integers are integers."""

    def function(*moving):
        values = list(arguments)
        for i, x in zip(tangents, moving, strict=True):
            values[i] = x
        return jaxpr_as_fun(jaxpr)(*values)

    out, changes = jax.jvp(function, tuple(arguments[i] for i in tangents), tuple(tangents.values()))
    return out, [jnp.zeros_like(x) if change.dtype == jax.dtypes.float0 else change for x, change in zip(out, changes, strict=True)]


def _tangent_of(x, change) -> Any:
    return change if is_float(x) else np.zeros(x.shape, jax.dtypes.float0)


ad.primitive_jvps[sum_of_turns] = _tangents_of_sum
ad.primitive_jvps[rows_of_turns] = _tangents_of_rows
