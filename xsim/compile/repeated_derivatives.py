"""Derivatives of several calls in turn (`xsim.compile.repeated`).

On a processor the derivative in reverse mode is one call of machine code. As that of the turns, it carries for a block of environments,
from the last turn to the first one, the cotangents of what they carry. The states of all turns are stored.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from xsim.compile.compiled_call import compiled_call, machine_code_or_none, turns_operand
from xsim.compile.function import Function
from xsim.compile.manual_axes import result_type, varying_alike
from xsim.compile.turns import environment_count, evaluated, first_axes, from_blocks, merged_members, of_turns, split_members

__all__ = ["carries_all_derivatives", "differentiated", "differentiated_by_scan"]


def _given(tangents) -> tuple[int, ...]:
    """The arguments whose tangents may differ from zero."""
    return tuple(i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero) and t.dtype != jax.dtypes.float0)


def carries_all_derivatives(function: Function, tangents) -> bool:
    """Whether each result with derivatives is carried, and no other carried argument has a tangent. tangents: of the arguments."""
    given, carried, differentiable = _given(tangents), dict(function.carried), set(function.differentiable)
    return differentiable <= set(carried) and not any(i in given for k, i in carried.items() if k not in differentiable)


class TurnOperands(NamedTuple):
    """Operands of the derivatives of several turns.

    arguments: as of the call. results: `Function.stored` of all turns, by number. directions: tangents of the given arguments, or the
    cotangents of the results that are carried and have derivatives, of the last turn or of each."""

    arguments: list
    results: dict[int, Any]
    directions: list

    @classmethod
    def split(cls, function: Function, operands: Sequence[Any]) -> TurnOperands:
        count, stored = len(function.shapes), function.stored
        end = count + len(stored)
        return cls(list(operands[:count]), dict(zip(stored, operands[count:end], strict=True)), list(operands[end:]))

    def in_rows(self, function: Function, width: int) -> TurnOperands:
        """The operands with results that are not blocked. width: of blocked arrays, 0 if they are not."""
        if width == 0:
            return self
        count, results = environment_count(self.arguments, function), function.results
        return self._replace(results={k: from_blocks(x, count, results[k].shape) for k, x in self.results.items()})

    def known(self, function: Function) -> list:
        return [self.results[k] for k in function.known]


def _active(function: Function, given: Sequence[int]) -> tuple[int, ...]:
    """The arguments whose tangents a turn has: given ones, and what is carried."""
    return tuple(sorted({*given, *(i for _, i in _differentiable(function))}))


def _differentiable(function: Function) -> list[tuple[int, int]]:
    """The pairs (result, argument) that are carried and have derivatives, in the order of the results."""
    return sorted((k, i) for k, i in function.carried if k in function.differentiable)


# ---- forward mode ----------------------------------------------------------------------------------------------------------------


tangents_of_turns = Primitive("xsim_tangents_of_turns")
"""Tangents of the results that are carried and have derivatives. Operands: see `TurnOperands`, with tangents.

Parameters: function, turns; given: the arguments that have tangents; batched: which arguments and tangents have environments; each: whether
the results are those of all turns (turns, environments, ...), not of the last one alone; width: of the stored results, which are blocked
arrays (`xsim.compile.turns.to_blocks`), 0 if they are not."""
tangents_of_turns.multiple_results = True


def differentiated(
    function: Function, primals, tangents, stored: Sequence[Any], *, batched, turns: int, each: bool, width: int
) -> dict[int, Any]:
    """Tangents, see `tangents_of_turns`, by the number of the result; those of the others are zero. tangents: of the arguments. stored:
    `Function.stored` of all turns. The function `carries_all_derivatives`."""
    given = _given(tangents)
    if not given:
        return {}
    operands = *primals, *stored, *(tangents[i] for i in given)
    flags = *batched, *(batched[i] for i in given)
    found = tangents_of_turns.bind(*operands, function=function, given=given, batched=flags, turns=turns, each=each, width=width)
    return dict(zip((k for k, _ in _differentiable(function)), found, strict=True))


tangents_of_turns.def_impl(functools.partial(evaluated, tangents_of_turns))


@tangents_of_turns.def_abstract_eval
def _tangent_types(*operands, function, given, batched, turns, each, width):
    count = environment_count(operands, function)
    results, lead = [function.results[k] for k, _ in _differentiable(function)], [turns] if each else []
    return [result_type(operands[0], (*lead, count, *r.shape), r.dtype) for r in results]


def _tangents_by_scan(*operands, function, given, batched, turns, each, width):
    """A call for each turn."""
    split = TurnOperands.split(function, operands).in_rows(function, width)
    pairs, active = _differentiable(function), _active(function, given)
    arguments, sequences = split.arguments, function.repetition.sequences
    changes, has_axis = dict(zip(given, split.directions, strict=True)), dict(zip(given, batched[len(arguments) :], strict=True))

    def turn(carry, now):
        (numbers, known, pushed), moved = now, dict(zip((i for _, i in pairs), carry, strict=True))
        values = [numbers.get(i, x) for i, x in enumerate(arguments)]
        moved = {**changes, **pushed, **moved}
        new = compiled_call.bind(
            *values, *known, *(moved[i] for i in active), function=function.replayed.tangent(active),
            batched=(*batched[: len(arguments)], *[True] * len(known), *(has_axis.get(i, True) for i in active)),
            summed=(False,) * len(pairs),
        )  # fmt: skip
        return new, new if each else None

    start = [changes[i] if i in changes else jnp.zeros_like(arguments[i]) for _, i in pairs]
    pushed = {i: x for i, x in changes.items() if i in sequences}
    now = of_turns(function, arguments, split.results), split.known(function), pushed
    last, stacked = jax.lax.scan(turn, varying_alike(start, arguments), now, length=turns)
    return stacked if each else last


mlir.register_lowering(tangents_of_turns, mlir.lower_fun(_tangents_by_scan, multiple_results=True))


def _tangents_batched(operands, axes, *, function, given, batched, turns, each, width):
    """`jax.vmap`, see `merged_members`."""
    first = first_axes(function)
    merged, flags, sizes = _merged(function, operands, axes, [first[i] for i in given], batched, width)
    out = tangents_of_turns.bind(*merged, function=function, given=given, batched=flags, turns=turns, each=each, width=0)
    return split_members(out, sizes, [int(each)] * len(out)), [int(each)] * len(out)


def _merged(function: Function, operands, axes, first: Sequence[int], batched: Sequence[bool], width: int) -> tuple:
    """`merged_members` of the operands of a derivative; stored results are not blocked then. first: the axis of the environments of its
    directions. batched: which arguments and directions have environments. width: of blocks."""
    count, results = len(function.shapes), len(function.stored)
    operands, axes = _members_in_rows(function, operands, axes, width)
    first, flags = [*first_axes(function), *[1] * results, *first], [*batched[:count], *[True] * results, *batched[count:]]
    merged, flags, sizes = merged_members(operands, axes, flags, first, function.carried[0][1])
    return merged, (*flags[:count], *flags[count + results :]), sizes


def _members_in_rows(function: Function, operands, axes, width: int) -> tuple[list, list]:
    """The operands of a derivative with stored results that are not blocked, and their axes of members."""
    operands, axes = list(operands), list(axes)
    state = function.carried[0][1]
    count = operands[state].shape[0 if axes[state] is None else int(axes[state] == 0)]
    for k, i in zip(function.stored, range(len(function.shapes), len(operands)), strict=False) if width else ():
        rows = functools.partial(from_blocks, count=count, shape=function.results[k].shape)
        operands[i], axes[i] = (rows(operands[i]), None) if axes[i] is None else (jax.vmap(rows, axes[i])(operands[i]), 0)
    return operands, axes


def differentiated_by_scan(by_scan, primals, tangents, **params):
    """`jax.jvp` of a call for each turn."""
    active = _given(tangents)

    def function(*values):
        operands = list(primals)
        for i, x in zip(active, values, strict=True):
            operands[i] = x
        return by_scan(*operands, **params)

    out, changes = jax.jvp(function, [primals[i] for i in active], [tangents[i] for i in active])
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    return out, [zero if change.dtype == jax.dtypes.float0 else change for zero, change in zip(zeros, changes, strict=True)]


def _transposed(cotangents, *operands, function, given, batched, turns, each, width):
    """Reverse mode: the transpose in those tangents that are not known (to be zero)."""
    fixed = len(operands) - len(given)
    if any(ad.is_undefined_primal(x) for x in operands[:fixed]):
        raise NotImplementedError(f"turns of {function.name} are not linear in their arguments")
    active = _active(function, given)
    flags = dict(zip(given, batched[len(function.shapes) :], strict=True))
    out = cotangents_of_turns.bind(
        *operands[:fixed], *map(ad.instantiate_zeros, cotangents), function=function, active=active,
        batched=batched[: len(function.shapes)], summed=tuple(not flags.get(i, True) for i in active), turns=turns, each=each, width=width,
    )  # fmt: skip
    found = dict(zip(active, out, strict=True))
    return [*[None] * fixed, *(found[i] if ad.is_undefined_primal(x) else None for i, x in zip(given, operands[fixed:], strict=True))]


batching.primitive_batchers[tangents_of_turns] = _tangents_batched
ad.primitive_jvps[tangents_of_turns] = functools.partial(differentiated_by_scan, _tangents_by_scan)
ad.primitive_transposes[tangents_of_turns] = _transposed

# ---- reverse mode ----------------------------------------------------------------------------------------------------------------

cotangents_of_turns = Primitive("xsim_cotangents_of_turns")
"""Cotangents of active arguments; those of a sequence have an axis of turns before that of the environments. Operands: see
`TurnOperands`, with cotangents.

Parameters: function, turns; active: the arguments; batched: which arguments have environments; summed: which cotangents are sums over the
environments; each: whether the operands are cotangents of the results of all turns, not of the last one alone; width: as of
`tangents_of_turns`."""
cotangents_of_turns.multiple_results = True
cotangents_of_turns.def_impl(functools.partial(evaluated, cotangents_of_turns))


@cotangents_of_turns.def_abstract_eval
def _cotangent_types(*operands, function, active, batched, summed, turns, each, width):
    return _types(operands[0], environment_count(operands, function), function, active, summed, turns)


def _types(operand, count: int, function: Function, active, summed, turns: int) -> list:
    """The types of the cotangents. operand: the type of one. count: number of environments."""
    out = []
    for i, is_sum in zip(active, summed, strict=True):
        lead = (*([turns] if i in function.repetition.sequences else []), *([] if is_sum else [count]))
        out.append(result_type(operand, (*lead, *function.shapes[i].shape), function.shapes[i].dtype))
    return out


def _cotangents_by_machine_code(*operands, function, active, batched, summed, turns, each, width):
    """All turns by one call."""
    given, reverse = TurnOperands.split(function, operands), function.replayed.reverse(active)
    count, flags = environment_count(operands, function), _flags(function, batched)
    repetition = reverse.turns(flags, summed) if function.turns(batched, (False,) * len(function.results)) else None
    target = None if repetition is None else machine_code_or_none(reverse, lambda: reverse.target(flags, summed, count))
    if target is None:
        return _cotangents_by_scan(
            *operands, function=function, active=active, batched=batched, summed=summed, turns=turns, each=each, width=width
        )
    if width and width % reverse.lanes(flags, count):
        given, width = given.in_rows(function, width), 0
    types = _types(jax.typeof(operands[0]), count, function, active, summed, turns)
    result_of, own = {i: k for k, i in function.carried}, dict(enumerate(given.directions, len(flags) - len(given.directions)))
    of_program = *given.arguments, *given.known(function), *_start(given.directions, each)
    further = *(given.results[result_of[i]] for i in repetition.previous), *(own[i] for _, i in repetition.pairs_with_own)
    return jax.ffi.ffi_call(target, types)(*of_program, *further, turns_operand(turns, stacked=True, own=each, width=width))


def _flags(function: Function, batched) -> tuple[bool, ...]:
    """Which operands of the derivative of a turn have environments."""
    return (*batched, *[True] * (len(function.known) + len(_differentiable(function))))


def _start(directions: Sequence[Any], each: bool) -> list:
    """The cotangents with which the last turn begins, without those that each turn has of its own."""
    return [jnp.zeros_like(x, shape=x.shape[1:]) for x in directions] if each else list(directions)


def _cotangents_by_scan(*operands, function, active, batched, summed, turns, each, width):
    """A call for each turn."""
    given, reverse = TurnOperands.split(function, operands).in_rows(function, width), function.replayed.reverse(active)
    sequences, carried = function.repetition.sequences, [i for _, i in _differentiable(function)]
    totals = [i for i in active if i not in carried and i not in sequences]

    def turn(carry, now):
        (cotangents, sums), (numbers, known, own) = carry, now
        cotangents = [x + own[i] for i, x in enumerate(cotangents)] if each else cotangents
        values = [numbers.get(i, x) for i, x in enumerate(given.arguments)]
        out = compiled_call.bind(
            *values, *known, *cotangents, function=reverse, batched=_flags(function, batched), summed=summed, in_place=True
        )
        found = dict(zip(active, out, strict=True))
        sums = [x + found[i] for x, i in zip(sums, totals, strict=True)]
        return ([found[i] for i in carried], sums), {i: found[i] for i in sequences if i in found}

    types = _types(jax.typeof(operands[0]), environment_count(operands, function), function, active, summed, turns)
    zeros = [jnp.zeros(x.shape, x.dtype) for i, x in zip(active, types, strict=True) if i in totals]
    start = varying_alike((_start(given.directions, each), zeros), operands)
    now = of_turns(function, given.arguments, given.results), given.known(function), given.directions if each else None
    (cotangents, sums), stacked = jax.lax.scan(turn, start, now, length=turns, reverse=True)
    found = {**dict(zip(carried, cotangents, strict=True)), **dict(zip(totals, sums, strict=True)), **stacked}
    return [found[i] for i in active]


mlir.register_lowering(cotangents_of_turns, mlir.lower_fun(_cotangents_by_machine_code, multiple_results=True), platform="cpu")
mlir.register_lowering(cotangents_of_turns, mlir.lower_fun(_cotangents_by_scan, multiple_results=True))


def _cotangents_batched(operands, axes, *, function, active, batched, summed, turns, each, width):
    """`jax.vmap`, see `merged_members`."""
    cotangents = len(_differentiable(function))
    merged, flags, sizes = _merged(function, operands, axes, [int(each)] * cotangents, (*batched, *[True] * cotangents), width)
    out = cotangents_of_turns.bind(
        *merged, function=function, active=active, batched=flags[: len(batched)], summed=(False,) * len(summed), turns=turns, each=each,
        width=0,
    )  # fmt: skip
    first = [1 if i in function.repetition.sequences else 0 for i in active]
    out = split_members(out, sizes, first)
    return [x.sum(at + 1) if s else x for x, s, at in zip(out, summed, first, strict=True)], first


batching.primitive_batchers[cotangents_of_turns] = _cotangents_batched
ad.primitive_jvps[cotangents_of_turns] = functools.partial(differentiated_by_scan, _cotangents_by_scan)
