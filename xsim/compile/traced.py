"""What is known of traced functions before they are taken apart into numbers."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator, Sequence
from enum import IntEnum

from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from xsim.compile.simplify import FOLDED

MAX_UNROLLED_OPERATIONS = 600
"""A loop with a constant number of turns is unrolled up to about this many operations."""
MAX_UNROLLED_MAP = 1_500
"""The same of a loop whose turns are independent. Unrolled, they are evaluated side by side, and nothing is stored."""
MIN_SUPPOSED = 2_000
"""A loop of fewer operations is tried with all that is constant before it as constant within it."""
MAX_SELECTED_BRANCH = 60
"""A branch of up to about this many operations is evaluated whether it is chosen or not."""


class Kind(IntEnum):
    """Of arrays: constant; equal in all environments; different between them."""

    CONSTANT = 0
    UNIFORM = 1
    VARYING = 2


def count_operations(jaxpr: Jaxpr, known: dict[int, int] | None = None) -> int:
    """About the number of operations of a traced function on numbers, loops counted once. known: of functions, by identity."""
    known = {} if known is None else known
    found = known.get(id(jaxpr))
    if found is None:
        found = known[id(jaxpr)] = sum(_operations(equation, known) for equation in jaxpr.eqns)
    return found


def _operations(equation: JaxprEqn, known: dict[int, int]) -> int:
    own = math.prod(equation.outvars[0].aval.shape) if equation.primitive.name in FOLDED else 0
    return own + sum(count_operations(inner, known) for inner in inner_functions(equation))


def operations_by_results(jaxpr: Jaxpr) -> dict[int, int]:
    """About the number of operations of a traced function on numbers, by the results that need them: bit i of a key is result i."""
    needed_by: dict = {}
    for i, result in enumerate(jaxpr.outvars):
        if not isinstance(result, Literal):
            needed_by[result] = needed_by.get(result, 0) | 1 << i
    found: dict[int, int] = {}
    known: dict[int, int] = {}
    for equation in reversed(jaxpr.eqns):
        results = functools.reduce(operator.or_, (needed_by.get(x, 0) for x in equation.outvars), 0)
        for x in equation.invars:
            if not isinstance(x, Literal):
                needed_by[x] = needed_by.get(x, 0) | results
        found[results] = found.get(results, 0) + _operations(equation, known)
    return found


def inner_functions(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The functions among the parameters of an equation."""
    for parameter in equation.params.values():
        for inner in parameter if isinstance(parameter, tuple) else (parameter,):
            if isinstance(inner, (ClosedJaxpr, Jaxpr)):
                yield inner.jaxpr if isinstance(inner, ClosedJaxpr) else inner


def is_long(branch: Jaxpr, known: dict[int, int]) -> bool:
    """Whether a branch is a loop with one turn, which is not evaluated if no environment chooses it. known: see `count_operations`."""
    return count_operations(branch, known) > MAX_SELECTED_BRANCH


def scan_is_unrolled(equation: JaxprEqn, known: dict[int, int]) -> bool:
    """Whether a scan is unrolled. known: see `count_operations`."""
    body, length = equation.params["jaxpr"], equation.params["length"]
    limit = MAX_UNROLLED_OPERATIONS if carried_count(equation) else MAX_UNROLLED_MAP
    return length == 1 or count_operations(body.jaxpr, known) * length <= limit


def carried_count(equation: JaxprEqn) -> int:
    """The number of carried arrays of a scan: the first results, which are not stacked."""
    inner = equation.params["jaxpr"].jaxpr.outvars
    return sum(v.aval.shape == w.aval.shape for v, w in zip(equation.outvars, inner, strict=True))


def constant_results(function: Jaxpr, constant: Sequence[bool]) -> list[bool]:
    """Which results of a traced function are constant, as far as the function alone tells. constant: which of its arguments are."""
    changing = {v for v, is_constant in zip(function.invars, constant, strict=True) if not is_constant}
    for equation in function.eqns:
        if any(not isinstance(x, Literal) and x in changing for x in equation.invars):
            changing.update(equation.outvars)
    return [isinstance(x, Literal) or x not in changing for x in function.outvars]


def carried_kinds(body: Jaxpr, constants: Sequence[Kind], carry: Sequence[Kind], sequences: Sequence[Kind]) -> list[Kind]:
    """An upper bound of the kinds of the carried arrays of a loop, from the traced function alone.

    body: of constants, the carried arrays before a turn, and slices of sequences; its first results are the carried arrays after the turn.
    carry: of the carried arrays before the loop. A result is of the highest kind of the arguments of its equation; what a turn changes is
    no constant."""
    carry = list(carry)
    while True:
        known = dict(zip(body.invars, [*constants, *carry, *sequences], strict=True))
        for equation in body.eqns:
            kind = max((known.get(x, Kind.CONSTANT) for x in equation.invars if not isinstance(x, Literal)), default=Kind.CONSTANT)
            known.update(dict.fromkeys(equation.outvars, kind))
        new = []
        for before, argument, result in zip(carry, body.invars[len(constants) :], body.outvars, strict=False):
            kind = Kind.CONSTANT if isinstance(result, Literal) else known.get(result, Kind.CONSTANT)
            new.append(max(before, kind, Kind.CONSTANT if result is argument else Kind.UNIFORM))
        if new == carry:
            return carry
        carry = new
