"""Loops with as many turns as an environment needs, in functions that are compiled to programs: JAX's own loops have a constant number of
turns, or no derivative in reverse mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Primitive

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
    """total = add(total, i) for the first ``count`` of the indices (n,), in no order, in a rule that is traced for a tape.

    add must only add to an array what does not depend on it. Its derivative in reverse mode is a loop of as many turns."""
    jaxpr, consts = _traced(add, total, jax.ShapeDtypeStruct((), indices.dtype))
    (out,) = sum_of_turns.bind(count, *consts, total, indices, jaxpr=jaxpr, length=len(indices), reverse=False)
    return out


def bounded_map(function: Callable, length: int, count) -> Any:
    """A tree of arrays (length, ...) whose rows i < count are those of function(i), in the program of one environment. The further rows
    have no meaning. It has no derivative."""
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
