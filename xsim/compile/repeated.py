"""Calls of a function in turn, whose results are arguments of the next: steps of a simulation.

On a processor the turns can be one call of machine code, which returns the results of the last one (`last_turn`) or of all (`repeated`).
Its threads start and wait for each other once, and a block of environments finds in the cache what it carries. The derivative in reverse
mode is one call, too (`xsim.compile.repeated_derivatives`).

On an NVIDIA GPU they can be one kernel, which returns the results of all. In such a kernel no environment waits for the others
after each turn, and a call of each turn takes as long as its slowest environment. But warps that are at different places of the code do not
share what they fetch of it (`is_one_kernel`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from xsim.compile import cuda
from xsim.compile.compiled_call import compiled_call, launched, machine_code_or_none, turns_operand
from xsim.compile.function import Function
from xsim.compile.manual_axes import result_type, varying_alike
from xsim.compile.nvptx import BLOCK
from xsim.compile.repeated_derivatives import carries_all_derivatives, differentiated, differentiated_by_scan, is_given
from xsim.compile.turns import environment_count, evaluated, first_axes, merged_members, split_members

__all__ = ["is_one_kernel", "last_turn", "repeated"]

CACHED_OPERATIONS = 4_000
"""Operations whose code, some 30 bytes each, fits into the instruction cache of a multiprocessor (128 kB)."""

repeated_call = Primitive("xsim_repeated_call")
"""Turns of a `Function` that has a repetition. Operands are those of a call, but sequences have a first axis of turns, before that of the
environments. Results: those of all turns (turns, environments, ...).

Parameters: function, turns; batched: which operands have environments."""
repeated_call.multiple_results = True


def repeated(function: Function, arguments: Sequence[Any], batched: Sequence[bool], turns: int) -> list:
    """The results of all turns (turns, environments, ...), see `repeated_call`. The function can repeat with such operands.

    Raises Unsupported as a call does."""
    function.check_size(tuple(batched))
    return repeated_call.bind(*varying_alike(list(arguments)), function=function, batched=tuple(batched), turns=turns)


def is_one_kernel(function: Function, batched: Sequence[bool], environments: int) -> bool:
    """Whether all turns are one kernel on the GPU, rather than one each, which is faster.

    It is if the code fits into the instruction cache, or if a multiprocessor has one block at most. With more blocks, the warps of large
    code fetch it faster if they begin each turn together: measured with 32,768 and 131,072 environments of robots on an H200
    (`benchmarks/gpu_h200.json`). Raises Unsupported as a call does."""
    function.check_size(tuple(batched))
    try:
        blocks = cuda.multiprocessors()
    except cuda.DriverError:
        return False  # XLA compiles each call, with a warning that says why
    if environments <= BLOCK * blocks:
        return True
    return function.summary(tuple(batched)).operations <= CACHED_OPERATIONS


repeated_call.def_impl(functools.partial(evaluated, repeated_call))


@repeated_call.def_abstract_eval
def _shapes(*arguments, function, batched, turns):
    count = environment_count(arguments, function)
    return [result_type(arguments[0], (turns, count, *r.shape), r.dtype) for r in function.results]


def _by_machine_code(*arguments, function, batched, turns):
    """All turns by one call."""
    count, summed = environment_count(arguments, function), (False,) * len(function.results)
    can_repeat = function.turns(batched, summed) is not None
    target = machine_code_or_none(function, lambda: function.target(batched, summed, count)) if can_repeat else None
    if target is None:
        return _scanned(*arguments, function=function, batched=batched, turns=turns)
    types = _shapes(*map(jax.typeof, arguments), function=function, batched=batched, turns=turns)
    return jax.ffi.ffi_call(target, types)(*arguments, turns_operand(turns, stacked=True))


def _launched(*arguments, function, batched, turns):
    """One kernel, or one for each turn. (`jax.vmap` may have added environments since the caller chose.)"""
    one = is_one_kernel(function, batched, environment_count(arguments, function))
    target = machine_code_or_none(function, lambda: function.gpu_target(batched, turns)) if one else None
    if target is None:
        return _scanned(*arguments, function=function, batched=batched, turns=turns)
    return launched(target, _shapes(*arguments, function=function, batched=batched, turns=turns), arguments)


def _scanned(*arguments, function, batched, turns):
    """A call for each turn."""

    def turn(arguments, now):
        arguments = _with_sequences(function, arguments, now)
        out = compiled_call.bind(*arguments, function=function, batched=batched, summed=(False,) * len(function.results))
        return _next_arguments(function, arguments, out), out

    sequences = [arguments[i] for i in function.repetition.sequences]
    first = _with_sequences(function, arguments, [x[0] for x in sequences])
    return jax.lax.scan(turn, first, sequences, length=turns)[1]


def _with_sequences(function: Function, arguments, now) -> list:
    """The arguments of a turn. now: those of its sequences."""
    out = list(arguments)
    for i, x in zip(function.repetition.sequences, now, strict=True):
        out[i] = x
    return out


def _next_arguments(function: Function, arguments, results) -> list:
    """The arguments of the next turn, but for its sequences."""
    out = list(arguments)
    for k, i in function.carried:
        out[i] = results[k]
    return out


mlir.register_lowering(repeated_call, mlir.lower_fun(_launched, multiple_results=True), platform="cuda")
mlir.register_lowering(repeated_call, mlir.lower_fun(_by_machine_code, multiple_results=True), platform="cpu")
mlir.register_lowering(repeated_call, mlir.lower_fun(_scanned, multiple_results=True))


def _batched(arguments, axes, *, function, batched, turns):
    """`jax.vmap`, see `merged_members`."""
    merged, flags, sizes = merged_members(arguments, axes, batched, first_axes(function), function.carried[0][1])
    out = repeated_call.bind(*merged, function=function, batched=flags, turns=turns)
    return split_members(out, sizes, [1] * len(out)), [1] * len(out)


batching.primitive_batchers[repeated_call] = _batched


def _differentiated(primals, tangents, *, function, batched, turns):
    """`jax.jvp`."""
    if not _carries_derivatives(function, tangents):
        return differentiated_by_scan(_scanned, primals, tangents, function=function, batched=batched, turns=turns)
    out = repeated_call.bind(*primals, function=function, batched=batched, turns=turns)
    return out, _or_zeros(differentiated(function, primals, tangents, out, batched=batched, turns=turns, each=True), out)


def _carries_derivatives(function: Function, tangents) -> bool:
    """See `carries_all_derivatives`."""
    return carries_all_derivatives(function, [i for i, t in enumerate(tangents) if is_given(t)])


def _or_zeros(changes, values) -> list:
    """Tangents of values, zero where there are none."""
    return [ad.Zero(jax.typeof(x).to_tangent_aval()) if change is None else change for change, x in zip(changes, values, strict=True)]


ad.primitive_jvps[repeated_call] = _differentiated

# ---- the last turn ---------------------------------------------------------------------------------------------------------------

last_turn_call = Primitive("xsim_last_turn_call")
"""As `repeated_call`, but the results are what is carried out of the last turn (environments, ...), in the order of `Function.carried`."""
last_turn_call.multiple_results = True


def last_turn(function: Function, arguments: Sequence[Any], batched: Sequence[bool], turns: int) -> list:
    """What is carried out of the last turn, see `last_turn_call`. The machine code can repeat with such operands (`Function.turns`).

    Raises Unsupported as a call does."""
    function.check_size(tuple(batched))
    return last_turn_call.bind(*varying_alike(list(arguments)), function=function, batched=tuple(batched), turns=turns)


last_turn_call.def_impl(functools.partial(evaluated, last_turn_call))


@last_turn_call.def_abstract_eval
def _shapes_of_last(*arguments, function, batched, turns):
    count = environment_count(arguments, function)
    return [result_type(arguments[0], (count, *function.results[k].shape), function.results[k].dtype) for k, _ in function.carried]


def _last_by_machine_code(*arguments, function, batched, turns):
    """All turns by one call."""
    count, summed = environment_count(arguments, function), (False,) * len(function.results)
    target = machine_code_or_none(function, lambda: function.target(batched, summed, count))
    if target is None:
        return _last_scanned(*arguments, function=function, batched=batched, turns=turns)
    types = [result_type(jax.typeof(arguments[0]), (count, *r.shape), r.dtype) for r in function.results]
    out = jax.ffi.ffi_call(target, types)(*arguments, turns_operand(turns))
    return [out[k] for k, _ in function.carried]


def _last_scanned(*arguments, function, batched, turns):
    """A call for each turn."""
    sequences = function.repetition.sequences

    def turn(carry, now):
        values = list(arguments)
        for i, x in (*zip((i for _, i in function.carried), carry, strict=True), *zip(sequences, now, strict=True)):
            values[i] = x
        out = compiled_call.bind(*values, function=function, batched=batched, summed=(False,) * len(function.results), in_place=True)
        return [out[k] for k, _ in function.carried], None

    start = [arguments[i] for _, i in function.carried]
    return jax.lax.scan(turn, start, [arguments[i] for i in sequences], length=turns)[0]


mlir.register_lowering(last_turn_call, mlir.lower_fun(_last_by_machine_code, multiple_results=True), platform="cpu")
mlir.register_lowering(last_turn_call, mlir.lower_fun(_last_scanned, multiple_results=True))


def _batched_last(arguments, axes, *, function, batched, turns):
    """`jax.vmap`, see `merged_members`."""
    merged, flags, sizes = merged_members(arguments, axes, batched, first_axes(function), function.carried[0][1])
    out = last_turn_call.bind(*merged, function=function, batched=flags, turns=turns)
    return split_members(out, sizes, [0] * len(out)), [0] * len(out)


def _last_differentiated(primals, tangents, *, function, batched, turns):
    """`jax.jvp`: the results of all turns are stored."""
    if not _carries_derivatives(function, tangents):
        return differentiated_by_scan(_last_scanned, primals, tangents, function=function, batched=batched, turns=turns)
    out = repeated_call.bind(*primals, function=function, batched=batched, turns=turns)
    changes = differentiated(function, primals, tangents, out, batched=batched, turns=turns, each=False)
    final = [out[k][-1] for k, _ in function.carried]
    return final, _or_zeros([changes[k] for k, _ in function.carried], final)


batching.primitive_batchers[last_turn_call] = _batched_last
ad.primitive_jvps[last_turn_call] = _last_differentiated
