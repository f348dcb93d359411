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
import math
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from xsim.compile import cuda
from xsim.compile.blocks import width_of_blocks
from xsim.compile.compiled_call import compiled_call, launched, machine_code_or_none, turns_operand
from xsim.compile.function import Function
from xsim.compile.manual_axes import result_type, varying_alike
from xsim.compile.nvptx import BLOCK
from xsim.compile.repeated_derivatives import carries_all_derivatives, differentiated, differentiated_by_scan
from xsim.compile.turns import environment_count, evaluated, first_axes, from_blocks, merged_members, split_members, to_blocks

__all__ = ["is_one_kernel", "last_turn", "repeated"]

CACHED_OPERATIONS = 4_000
"""Operations whose code, some 30 bytes each, fits into the instruction cache of a multiprocessor (128 kB)."""

repeated_call = Primitive("xsim_repeated_call")
"""Turns of a `Function` that has a repetition. Operands are those of a call, but sequences have a first axis of turns, before that of the
environments. Results: those of all turns (turns, environments, ...).

Parameters: function, turns; batched: which operands have environments."""
stored_call = Primitive("xsim_stored_call")
"""As `repeated_call`, but the results are `Function.stored`, in blocks (turns, blocks, numbers, environments of a block). Derivatives need
them alone, and a block reads and writes its vectors as they are."""
last_turn_call = Primitive("xsim_last_turn_call")
"""As `repeated_call`, but the results are what is carried out of the last turn (environments, ...), in the order of `Function.carried`."""


def repeated(function: Function, arguments: Sequence[Any], batched: Sequence[bool], turns: int) -> list:
    """The results of all turns (turns, environments, ...), see `repeated_call`. The function can repeat with such operands.

    Raises Unsupported as a call does."""
    return _bound(repeated_call, function, arguments, batched, turns)


def last_turn(function: Function, arguments: Sequence[Any], batched: Sequence[bool], turns: int) -> list:
    """What is carried out of the last turn, see `last_turn_call`. The machine code can repeat with such operands (`Function.turns`).

    Raises Unsupported as a call does."""
    return _bound(last_turn_call, function, arguments, batched, turns)


def _bound(primitive: Primitive, function: Function, arguments: Sequence[Any], batched: Sequence[bool], turns: int) -> list:
    function.check_size(tuple(batched))
    return primitive.bind(*varying_alike(list(arguments)), function=function, batched=tuple(batched), turns=turns)


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


# ---- rules of both primitives. each: whether the results are those of each turn (`repeated_call`) ---------------------------------


def _types(*arguments, function, batched, turns, each):
    results = function.results if each else [function.results[k] for k, _ in function.carried]
    return _stacked_types(arguments, function, results, [turns] if each else [])


def _stacked_types(arguments, function: Function, results, lead: list[int]) -> list:
    """The types of results of all environments. lead: the axis of turns, if there is one."""
    shape = *lead, environment_count(arguments, function)
    return [result_type(arguments[0], (*shape, *r.shape), r.dtype) for r in results]


def _by_machine_code(*arguments, function, batched, turns, each):
    """All turns by one call."""
    count, summed = environment_count(arguments, function), (False,) * len(function.results)
    can_repeat = function.turns(batched, summed) is not None
    target = machine_code_or_none(function, lambda: function.target(batched, summed, count)) if can_repeat else None
    if target is None:
        return _by_scan(*arguments, function=function, batched=batched, turns=turns, each=each)
    types = _stacked_types([*map(jax.typeof, arguments)], function, function.results, [turns] if each else [])
    out = jax.ffi.ffi_call(target, types)(*arguments, turns_operand(turns, stacked=each))
    return out if each else [out[k] for k, _ in function.carried]


def _launched(*arguments, function, batched, turns):
    """One kernel, or one for each turn. (`jax.vmap` may have added environments since the caller chose.)"""
    one = is_one_kernel(function, batched, environment_count(arguments, function))
    target = machine_code_or_none(function, lambda: function.gpu_target(batched, turns)) if one else None
    if target is None:
        return _by_scan(*arguments, function=function, batched=batched, turns=turns, each=True)
    return launched(target, _types(*arguments, function=function, batched=batched, turns=turns, each=True), arguments)


def _by_scan(*arguments, function, batched, turns, each):
    """A call for each turn."""
    carried, sequences = [i for _, i in function.carried], function.repetition.sequences
    summed = (False,) * len(function.results)

    def turn(carry, now):
        values = list(arguments)
        for i, x in (*zip(carried, carry, strict=True), *zip(sequences, now, strict=True)):
            values[i] = x
        out = compiled_call.bind(*values, function=function, batched=batched, summed=summed, in_place=not each)
        return [out[k] for k, _ in function.carried], out if each else None

    last, stacked = jax.lax.scan(turn, [arguments[i] for i in carried], [arguments[i] for i in sequences], length=turns)
    return stacked if each else last


def _batched(primitive, arguments, axes, *, function, batched, turns, each):
    """`jax.vmap`, see `merged_members`."""
    merged, flags, sizes = merged_members(arguments, axes, batched, first_axes(function), function.carried[0][1])
    out = primitive.bind(*merged, function=function, batched=flags, turns=turns)
    first = [int(each)] * len(out)
    return split_members(out, sizes, first), first


def _differentiated(primals, tangents, *, function, batched, turns, each):
    """`jax.jvp`: the results of all turns are stored."""
    if not carries_all_derivatives(function, tangents):
        by_scan = functools.partial(_by_scan, each=each)
        return differentiated_by_scan(by_scan, primals, tangents, function=function, batched=batched, turns=turns)
    if each:
        values = dict(enumerate(repeated_call.bind(*primals, function=function, batched=batched, turns=turns)))
        stored, width = [values[k] for k in function.stored], 0
    else:
        count = environment_count(primals, function)
        stored, width = stored_call.bind(*primals, function=function, batched=batched, turns=turns), width_of_blocks(count)
        last = {k: from_blocks(x[-1:], count, function.results[k].shape)[0] for k, x in zip(function.stored, stored, strict=True)}
        values = {k: last[k] for k, _ in function.carried}
    changes = differentiated(function, primals, tangents, stored, batched=batched, turns=turns, each=each, width=width)
    return list(values.values()), [changes[k] if k in changes else ad.Zero(jax.typeof(x).to_tangent_aval()) for k, x in values.items()]


# ---- rules of `stored_call` --------------------------------------------------------------------------------------------------------


def _stored_types(*arguments, function, batched, turns):
    count = environment_count(arguments, function)
    width = width_of_blocks(count)
    results, blocks = [function.results[k] for k in function.stored], -(-count // width)
    return [result_type(arguments[0], (turns, blocks, math.prod(r.shape), width), r.dtype) for r in results]


def _stored_by_machine_code(*arguments, function, batched, turns):
    """All turns by one call, which writes the blocks."""
    params: dict = {"function": function, "batched": batched, "turns": turns}
    count, summed = environment_count(arguments, function), (False,) * len(function.results)
    width, target = width_of_blocks(count), None
    if function.turns(batched, summed) is not None and width % function.lanes(batched, count) == 0:
        target = machine_code_or_none(function, lambda: function.target(batched, summed, count))
    if target is None:
        return _stored_of_rows(*arguments, **params)
    types = [*map(jax.typeof, arguments)]
    results = _stacked_types(types, function, function.results, [])  # the others are those of the last turn
    for k, x in zip(function.stored, _stored_types(*types, **params), strict=True):
        results[k] = x
    out = jax.ffi.ffi_call(target, results)(*arguments, turns_operand(turns, stacked=True, width=width))
    return [out[k] for k in function.stored]


def _stored_of_rows(*arguments, function, batched, turns):
    """Blocks of what `repeated_call` returns."""
    out = repeated_call.bind(*arguments, function=function, batched=batched, turns=turns)
    return [to_blocks(out[k], width_of_blocks(environment_count(arguments, function))) for k in function.stored]


def _stored_batched(arguments, axes, *, function, batched, turns):
    """`jax.vmap`: each member has blocks of its own."""
    merged, flags, sizes = merged_members(arguments, axes, batched, first_axes(function), function.carried[0][1])
    stored = stored_call.bind(*merged, function=function, batched=flags, turns=turns)
    shapes = [function.results[k].shape for k in function.stored]
    rows = split_members([from_blocks(x, math.prod(sizes), s) for x, s in zip(stored, shapes, strict=True)], sizes, [1] * len(stored))
    blocks = jax.vmap(functools.partial(to_blocks, width=width_of_blocks(sizes[1])), in_axes=1)
    return [blocks(x) for x in rows], [0] * len(rows)


stored_call.multiple_results = True
stored_call.def_impl(functools.partial(evaluated, stored_call))
stored_call.def_abstract_eval(_stored_types)
mlir.register_lowering(stored_call, mlir.lower_fun(_stored_by_machine_code, multiple_results=True), platform="cpu")
mlir.register_lowering(stored_call, mlir.lower_fun(_stored_of_rows, multiple_results=True))
batching.primitive_batchers[stored_call] = _stored_batched
ad.primitive_jvps[stored_call] = functools.partial(differentiated_by_scan, _stored_of_rows)

# ---- rules of the other primitives -------------------------------------------------------------------------------------------------


for _primitive, _each in ((repeated_call, True), (last_turn_call, False)):
    _primitive.multiple_results = True
    _primitive.def_impl(functools.partial(evaluated, _primitive))
    _primitive.def_abstract_eval(functools.partial(_types, each=_each))
    _machine_code, _scan = (functools.partial(f, each=_each) for f in (_by_machine_code, _by_scan))
    mlir.register_lowering(_primitive, mlir.lower_fun(_machine_code, multiple_results=True), platform="cpu")
    mlir.register_lowering(_primitive, mlir.lower_fun(_scan, multiple_results=True))
    batching.primitive_batchers[_primitive] = functools.partial(_batched, _primitive, each=_each)
    ad.primitive_jvps[_primitive] = functools.partial(_differentiated, each=_each)
mlir.register_lowering(repeated_call, mlir.lower_fun(_launched, multiple_results=True), platform="cuda")
