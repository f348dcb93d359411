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
from xsim.compile.turns import environment_count, evaluated, first_axes, first_numbers, merged_members, of_turns

__all__ = ["TurnOperands", "carries_all_derivatives", "differentiated_by_scan", "is_given", "stored_results", "tangents_by_turns", "tangents_of_last_turn"]


def is_given(tangent) -> bool:
    """Whether a tangent may differ from zero."""
    return not isinstance(tangent, ad.Zero) and tangent.dtype != jax.dtypes.float0


def carries_all_derivatives(function: Function, given: Sequence[int]) -> bool:
    """Whether each result with derivatives is carried, and no other carried argument is among the given ones, which have tangents."""
    carried = {k: i for k, i in function.carried}
    differentiable = set(function.differentiable)
    return differentiable <= set(carried) and not any(i in given for k, i in carried.items() if k not in differentiable)


def stored_results(function: Function) -> list[int]:
    """The results of all turns that derivatives need: what is carried, and those that are known (`Replay`)."""
    return sorted({*(k for k, _ in function.carried), *function.known})


class TurnOperands(NamedTuple):
    """Operands of the derivatives of several turns.

    arguments: as of the call. results: `stored_results` of all turns, by number. directions: the tangents of the given arguments, or the
    cotangents of what is carried out of the last turn and has derivatives."""

    arguments: list
    results: dict[int, Any]
    directions: list

    @classmethod
    def split(cls, function: Function, operands: Sequence[Any]) -> TurnOperands:
        count, stored = len(function.shapes), stored_results(function)
        end = count + len(stored)
        return cls(list(operands[:count]), dict(zip(stored, operands[count:end], strict=True)), list(operands[end:]))

    def known(self, function: Function) -> list:
        return [self.results[k] for k in function.known]


def _active(function: Function, given: Sequence[int]) -> tuple[int, ...]:
    """The arguments whose tangents a turn has: given ones, and what is carried."""
    return tuple(sorted({*given, *(i for _, i in _differentiable(function))}))


def _differentiable(function: Function) -> list[tuple[int, int]]:
    """The pairs (result, argument) that are carried and have derivatives, in the order of the results."""
    return sorted((k, i) for k, i in function.carried if k in function.differentiable)


# ---- forward mode ----------------------------------------------------------------------------------------------------------------


def tangents_by_turns(function: Function, turns: TurnOperands, given: Sequence[int], batched: Sequence[bool], count: int) -> dict[int, Any]:
    """Tangents of the results of all turns (turns, environments, ...), by the number of the result: a call for each turn. batched: which
    arguments and given tangents have environments. count: number of turns."""
    arguments, pairs, active = turns.arguments, _differentiable(function), _active(function, given)
    changes, has_axis = dict(zip(given, turns.directions, strict=True)), dict(zip(given, batched[len(arguments) :], strict=True))
    sequences = function.repetition.sequences
    own = of_turns(function, arguments, turns.results)

    def turn(carry, now):
        (numbers, known, pushed), moved = now, dict(zip((i for _, i in pairs), carry, strict=True))
        values = [numbers.get(i, x) for i, x in enumerate(arguments)]
        moved = {**changes, **pushed, **moved}
        new = compiled_call.bind(
            *values, *known, *(moved[i] for i in active), function=function.replayed.tangent(active),
            batched=(*batched[: len(arguments)], *[True] * len(known), *(has_axis.get(i, True) for i in active)),
            summed=(False,) * len(function.differentiable),
        )  # fmt: skip
        found = dict(zip(function.differentiable, new, strict=True))
        return [first_numbers(found[k], arguments[i].shape) for k, i in pairs], new

    start = varying_alike([changes[i] if i in changes else jnp.zeros_like(arguments[i]) for _, i in pairs], arguments)
    pushed = {i: x for i, x in changes.items() if i in sequences}
    _, found = jax.lax.scan(turn, start, (own, turns.known(function), pushed), length=count)
    return dict(zip(function.differentiable, found, strict=True))


tangents_of_turns = Primitive("xsim_tangents_of_turns")
"""Tangents of what is carried out of the last turn and has derivatives. Operands: see `TurnOperands`, with tangents.

Parameters: function, turns; given: the arguments that have tangents; batched: which arguments and tangents have environments."""
tangents_of_turns.multiple_results = True


def tangents_of_last_turn(function: Function, turns: TurnOperands, given: Sequence[int], batched: Sequence[bool], count: int) -> dict[int, Any]:
    """Tangents of what is carried out of the last turn, by the number of the result. As in `tangents_by_turns`."""
    operands = *turns.arguments, *turns.results.values(), *turns.directions
    flags = *batched, *(batched[i] for i in given)
    found = tangents_of_turns.bind(*operands, function=function, given=tuple(given), batched=flags, turns=count)
    return dict(zip((k for k, _ in _differentiable(function)), found, strict=True))


tangents_of_turns.def_impl(functools.partial(evaluated, tangents_of_turns))


@tangents_of_turns.def_abstract_eval
def _tangent_types(*operands, function, given, batched, turns):
    count = environment_count(operands, function)
    results = [function.results[k] for k, _ in _differentiable(function)]
    return [result_type(operands[0], (count, *r.shape), r.dtype) for r in results]


def _tangents_by_scan(*operands, function, given, batched, turns):
    found = tangents_by_turns(function, TurnOperands.split(function, operands), given, batched, turns)
    return [found[k][-1] for k, _ in _differentiable(function)]


mlir.register_lowering(tangents_of_turns, mlir.lower_fun(_tangents_by_scan, multiple_results=True))


def _tangents_batched(operands, axes, *, function, given, batched, turns):
    """`jax.vmap`, see `merged_members`."""
    merged, flags, sizes = _merged(function, operands, axes, given, batched)
    out = tangents_of_turns.bind(*merged, function=function, given=given, batched=flags, turns=turns)
    return [x.reshape(*sizes, *x.shape[1:]) for x in out], [0] * len(out)


def _merged(function: Function, operands, axes, given: Sequence[int] | None, batched: Sequence[bool]) -> tuple:
    """`merged_members` of the operands of a derivative. given: whose tangents are the last operands; None: they are cotangents."""
    count, results, of_arguments = len(function.shapes), len(stored_results(function)), first_axes(function)
    last = len(operands) - count - results
    first = [*of_arguments, *[1] * results, *([0] * last if given is None else [of_arguments[i] for i in given])]
    flags = [*batched[:count], *[True] * results, *([True] * last if given is None else batched[count:])]
    merged, flags, sizes = merged_members(operands, axes, flags, first, function.carried[0][1])
    return merged, (*flags[:count], *(flags[count + results :] if given is not None else ())), sizes


def differentiated_by_scan(by_scan, primals, tangents, **params):
    """`jax.jvp` of a call for each turn."""
    active = [i for i, t in enumerate(tangents) if is_given(t)]

    def function(*values):
        operands = list(primals)
        for i, x in zip(active, values, strict=True):
            operands[i] = x
        return by_scan(*operands, **params)

    out, changes = jax.jvp(function, [primals[i] for i in active], [tangents[i] for i in active])
    zeros = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    return out, [zero if change.dtype == jax.dtypes.float0 else change for zero, change in zip(zeros, changes, strict=True)]


def _transposed(cotangents, *operands, function, given, batched, turns):
    """Reverse mode: the transpose in the tangents."""
    fixed = len(operands) - len(given)
    if not all(ad.is_undefined_primal(x) for x in operands[fixed:]) or any(ad.is_undefined_primal(x) for x in operands[:fixed]):
        raise NotImplementedError(f"turns of {function.name} are linear in their tangents, all together")
    active = _active(function, given)
    flags = dict(zip(given, batched[len(function.shapes) :], strict=True))
    out = cotangents_of_turns.bind(
        *operands[:fixed], *map(ad.instantiate_zeros, cotangents), function=function, active=active,
        batched=batched[: len(function.shapes)], summed=tuple(not flags.get(i, True) for i in active), turns=turns,
    )  # fmt: skip
    found = dict(zip(active, out, strict=True))
    return [*[None] * fixed, *(found[i] for i in given)]


batching.primitive_batchers[tangents_of_turns] = _tangents_batched
ad.primitive_jvps[tangents_of_turns] = functools.partial(differentiated_by_scan, _tangents_by_scan)
ad.primitive_transposes[tangents_of_turns] = _transposed

# ---- reverse mode ----------------------------------------------------------------------------------------------------------------

cotangents_of_turns = Primitive("xsim_cotangents_of_turns")
"""Cotangents of active arguments; those of a sequence have an axis of turns before that of the environments. Operands: see `TurnOperands`, with
cotangents.

Parameters: function, turns; active: the arguments; batched: which arguments have environments; summed: which cotangents are sums over the
environments."""
cotangents_of_turns.multiple_results = True
cotangents_of_turns.def_impl(functools.partial(evaluated, cotangents_of_turns))


@cotangents_of_turns.def_abstract_eval
def _cotangent_types(*operands, function, active, batched, summed, turns):
    return _types(operands[0], environment_count(operands, function), function, active, summed, turns)


def _types(operand, count: int, function: Function, active, summed, turns: int) -> list:
    """The types of the cotangents. operand: the type of one. count: number of environments."""
    out = []
    for i, is_sum in zip(active, summed, strict=True):
        lead = (*([turns] if i in function.repetition.sequences else []), *([] if is_sum else [count]))
        out.append(result_type(operand, (*lead, *function.shapes[i].shape), function.shapes[i].dtype))
    return out


def _cotangents_by_machine_code(*operands, function, active, batched, summed, turns):
    """All turns by one call."""
    given, reverse = TurnOperands.split(function, operands), function.replayed.reverse(active)
    count, flags = environment_count(operands, function), _flags(function, batched)
    repetition = reverse.turns(flags, summed) if function.turns(batched, (False,) * len(function.results)) else None
    target = None if repetition is None else machine_code_or_none(reverse, lambda: reverse.target(flags, summed, count))
    if target is None:
        return _cotangents_by_scan(*operands, function=function, active=active, batched=batched, summed=summed, turns=turns)
    result_of = {i: k for k, i in function.carried}
    previous = [given.results[result_of[i]] for i in repetition.previous]
    types = _types(jax.typeof(operands[0]), count, function, active, summed, turns)
    of_program = *given.arguments, *given.known(function), *given.directions
    return jax.ffi.ffi_call(target, types)(*of_program, *previous, turns_operand(turns, True))


def _flags(function: Function, batched) -> tuple[bool, ...]:
    """Which operands of the derivative of a turn have environments."""
    return (*batched, *[True] * (len(function.known) + len(_differentiable(function))))


def _cotangents_by_scan(*operands, function, active, batched, summed, turns):
    """A call for each turn."""
    given, reverse = TurnOperands.split(function, operands), function.replayed.reverse(active)
    sequences, carried = function.repetition.sequences, [i for _, i in _differentiable(function)]
    added = [i for i in active if i not in carried and i not in sequences]

    def turn(carry, now):
        (cotangents, sums), (numbers, known) = carry, now
        values = [numbers.get(i, x) for i, x in enumerate(given.arguments)]
        out = compiled_call.bind(
            *values, *known, *cotangents, function=reverse, batched=_flags(function, batched), summed=summed, in_place=True
        )
        found = dict(zip(active, out, strict=True))
        return ([found[i] for i in carried], [x + found[i] for x, i in zip(sums, added, strict=True)]), {i: found[i] for i in sequences if i in found}

    types = dict(zip(active, _types(jax.typeof(operands[0]), environment_count(operands, function), function, active, summed, turns), strict=True))
    zeros = varying_alike([jnp.zeros(types[i].shape, types[i].dtype) for i in added], operands)
    each = of_turns(function, given.arguments, given.results), given.known(function)
    (cotangents, sums), stacked = jax.lax.scan(turn, (given.directions, zeros), each, length=turns, reverse=True)
    found = {**dict(zip(carried, cotangents, strict=True)), **dict(zip(added, sums, strict=True)), **stacked}
    return [found[i] for i in active]


mlir.register_lowering(cotangents_of_turns, mlir.lower_fun(_cotangents_by_machine_code, multiple_results=True), platform="cpu")
mlir.register_lowering(cotangents_of_turns, mlir.lower_fun(_cotangents_by_scan, multiple_results=True))


def _cotangents_batched(operands, axes, *, function, active, batched, summed, turns):
    """`jax.vmap`, see `merged_members`."""
    merged, flags, sizes = _merged(function, operands, axes, None, batched)
    no_sums = (False,) * len(summed)
    out = cotangents_of_turns.bind(*merged, function=function, active=active, batched=flags, summed=no_sums, turns=turns)
    first = [1 if i in function.repetition.sequences else 0 for i in active]
    out = [x.reshape(*x.shape[:at], *sizes, *x.shape[at + 1 :]) for x, at in zip(out, first, strict=True)]
    return [x.sum(at + 1) if s else x for x, s, at in zip(out, summed, first, strict=True)], first


batching.primitive_batchers[cotangents_of_turns] = _cotangents_batched
ad.primitive_jvps[cotangents_of_turns] = functools.partial(differentiated_by_scan, _cotangents_by_scan)
