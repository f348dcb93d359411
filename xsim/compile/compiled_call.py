"""The primitive of JAX that calls a `xsim.compile.function.Function`: how it is compiled for each platform, and its rules for `jax.vmap`
and for derivatives."""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jax.interpreters import partial_eval as pe

from xsim.compile.choice import compiler
from xsim.compile.manual_axes import result_type


class GpuTarget(NamedTuple):
    """Kernels for a GPU. name: under which XLA knows them. slots: number of slots (`SLOT_SIZE`) of the values of the call."""

    name: str
    slots: int


class CompilerWarning(UserWarning):
    """A function is compiled by XLA because there is no program of it."""


@functools.cache
def warn_once(message: str) -> None:
    """Warn of a function that XLA compiles, once per message."""
    warnings.warn(message, CompilerWarning, stacklevel=3)


compiled_call = Primitive("xsim_compiled_call")
"""A call of a `Function`. Parameters: function; batched: which operands have a first axis of environments; summed: which results are sums
over the environments, without that axis; in_place: see `Function.__call__`."""
compiled_call.multiple_results = True


def _environments(arguments, batched) -> int:
    return next((x.shape[0] for x, b in zip(arguments, batched, strict=True) if b), 1)


@compiled_call.def_impl
def _evaluated(*arguments, **params):
    with jax.disable_jit(False):
        return _jitted(*arguments, **params)


@functools.partial(jax.jit, static_argnames=("function", "batched", "summed", "in_place"))
def _jitted(*arguments, **params):
    return compiled_call.bind(*arguments, **params)


@compiled_call.def_abstract_eval
def _types(*operands, function, batched, summed, in_place=False):
    count = _environments(operands, batched)
    shapes = [r.shape if s else (count, *r.shape) for r, s in zip(function.results, summed, strict=True)]
    return [result_type(operands[0], shape, r.dtype) for shape, r in zip(shapes, function.results, strict=True)]


def machine_code_or_none(function, target: Callable):
    """target() of a `Function`, a name or kernels; None, with one warning, where there is no machine code and the user has not asked for
    LLVM."""
    try:
        return target()
    except RuntimeError as error:  # `Unsupported`, the CUDA driver, or LLVM itself, for example where memory cannot be made executable
        if compiler() == "llvm":
            raise
        warn_once(f"XLA compiles the {function.name}: {error}")
        return None


def _called(*arguments, function, batched, summed, in_place=False):
    """The call of machine code."""
    count = _environments(arguments, batched)
    types = _types(*map(jax.typeof, arguments), function=function, batched=batched, summed=summed)
    target = machine_code_or_none(function, lambda: function.target(batched, summed, count))
    if target is None:
        return _by_xla(*arguments, function=function, batched=batched, summed=summed)
    replaced = {i: k for k, i in function.replacing(batched, summed)} if in_place else {}
    turns = function.turns(batched, summed)
    further = [] if turns is None else [arguments[i] for i in (*turns.previous, *(i for _, i in turns.pairs_with_own))]
    further += [] if turns is None else [turns_operand(1)]
    return jax.ffi.ffi_call(target, types, input_output_aliases=replaced)(*arguments, *further)


def turns_operand(turns: int, stacked: bool = False, own: bool = False, width: int = 0):
    """The last operand of machine code that can repeat, see `xsim.compile.blocks.Turns`."""
    return jnp.array([turns, stacked, own, width], jnp.int32)


def _by_xla(*arguments, function, batched, summed, in_place=False):
    """The call, compiled by XLA."""
    arguments = list(arguments)
    if not any(batched):
        arguments, batched = [x[None] for x in arguments], (True,) * len(batched)
    out = jax.vmap(lambda *xs: list(function.function(*xs)), [0 if b else None for b in batched])(*arguments)
    return [x.sum(0) if s else x for x, s in zip(out, summed, strict=True)]


def _launched(*arguments, function, batched, summed, in_place=False):
    """The call of kernels on an NVIDIA GPU."""
    target = machine_code_or_none(function, lambda: function.gpu_target(batched))
    if target is None:
        return _by_xla(*arguments, function=function, batched=batched, summed=summed)
    count = _environments(arguments, batched)
    out = launched(target, [jax.ShapeDtypeStruct((count, *r.shape), r.dtype) for r in function.results], arguments)
    return [x.sum(0) if s else x for x, s in zip(out, summed, strict=True)]


def launched(target: GpuTarget, results: Sequence[Any], arguments: Sequence[Any]) -> list:
    """The results, of these shapes and types, of a launch of kernels."""
    values_of_call = jax.ShapeDtypeStruct((max(target.slots, 1), 8), jnp.uint8)
    return jax.ffi.ffi_call(target.name, [*results, values_of_call])(*arguments)[:-1]


mlir.register_lowering(compiled_call, mlir.lower_fun(_called, multiple_results=True), platform="cpu")
mlir.register_lowering(compiled_call, mlir.lower_fun(_launched, multiple_results=True), platform="cuda")
mlir.register_lowering(compiled_call, mlir.lower_fun(_by_xla, multiple_results=True))


def _batched(arguments, axes, *, function, batched, summed, in_place=False):
    """`jax.vmap`: the environments of all members of the new axis, as one batch."""
    size = next(x.shape[axis] for x, axis in zip(arguments, axes, strict=True) if axis is not None)
    arguments = [x if axis is None else jnp.moveaxis(x, axis, 0) for x, axis in zip(arguments, axes, strict=True)]
    own = [axis is not None for axis in axes]
    count = next((x.shape[int(o)] for x, o, b in zip(arguments, own, batched, strict=True) if b), 1)
    merged = [merged_environments(x, o, b, (size, count)) for x, o, b in zip(arguments, own, batched, strict=True)]
    flags = tuple(o or b for o, b in zip(own, batched, strict=True))
    out = compiled_call.bind(*merged, function=function, batched=flags, summed=(False,) * len(summed), in_place=in_place)
    out = [x.reshape(size, count, *x.shape[1:]) for x in out]
    return [x.sum(1) if s else x for x, s in zip(out, summed, strict=True)], [0] * len(out)


def merged_environments(x, mapped: bool, batched: bool, sizes: tuple[int, int], at: int = 0):
    """An operand of a call of `jax.vmap`, with the environments of all members as one axis.

    mapped, batched: whether it has an axis of members, and then one of environments, from the axis ``at``. sizes: of both."""
    if not (mapped or batched):
        return x
    x = x if mapped else jnp.expand_dims(x, at)
    x = x if batched else jnp.expand_dims(x, at + 1)
    head, core = x.shape[:at], x.shape[at + 2 :]
    return jnp.broadcast_to(x, (*head, *sizes, *core)).reshape(*head, math.prod(sizes), *core)


batching.primitive_batchers[compiled_call] = _batched


def _differentiated(primals, tangents, *, function, batched, summed, in_place=False):
    """`jax.jvp`."""
    out = compiled_call.bind(*primals, function=function, batched=batched, summed=summed)  # the arguments are kept for the derivative
    active = tuple(i for i, t in enumerate(tangents) if not isinstance(t, ad.Zero) and t.dtype != jax.dtypes.float0)
    changes: list = [ad.Zero(jax.typeof(x).to_tangent_aval()) for x in out]
    outputs = function.differentiable
    if active and outputs:
        known = [out[i] for i in function.known]
        new = compiled_call.bind(
            *primals, *known, *(tangents[i] for i in active), function=function.replayed.tangent(active),
            batched=(*batched, *(not summed[i] for i in function.known), *(batched[i] for i in active)),
            summed=tuple(summed[i] for i in outputs),
        )  # fmt: skip
        for i, change in zip(outputs, new, strict=True):
            changes[i] = change
    return out, changes


ad.primitive_jvps[compiled_call] = _differentiated


def _transposed(cotangents, *arguments, function, batched, summed, in_place=False):
    """Reverse mode: the transpose of a derivative in its linear arguments."""
    unknown = [i for i, x in enumerate(arguments) if ad.is_undefined_primal(x)]
    base, active = function.linear or (None, ())
    count = len(arguments) - len(active)
    if base is None or min(unknown) < count:
        raise NotImplementedError(f"{function.name} is not linear in these arguments")
    if base.prunable:
        kept = [i for i, c in enumerate(cotangents) if not isinstance(c, ad.Zero)]
        base = base.selected(tuple(base.differentiable[i] for i in kept))
        cotangents, summed = [cotangents[i] for i in kept], [summed[i] for i in kept]
    reverse = base.reverse(tuple(active[i - count] for i in unknown))
    cotangents = [ad.instantiate_zeros(c) for c in cotangents]
    has_environments = any(batched)  # else the results are those of one, and the cotangents are shared operands
    out = compiled_call.bind(
        *arguments[:count], *(c if has_environments or s else c[0] for c, s in zip(cotangents, summed, strict=True)),
        function=reverse, batched=(*batched[:count], *(has_environments and not s for s in summed)),
        summed=tuple(has_environments and not batched[i] for i in unknown), in_place=has_environments,
    )  # fmt: skip
    result: list = [None] * len(arguments)
    for i, c in zip(unknown, out, strict=True):
        result[i] = c if has_environments else c[0]
    return result


ad.primitive_transposes[compiled_call] = _transposed


def _pruned(used_outputs, *rest):
    """What remains of a call if only some of its results are used: (which operands it needs, the equation or None).

    rest: the equation, since jax 0.12 after the list of operands that are alive."""
    equation = rest[-1]
    function, used = equation.params["function"], tuple(i for i, is_used in enumerate(used_outputs) if is_used)
    if not used:
        return [False] * len(equation.invars), None
    remaining = function.remaining(used)
    if len(remaining) < len(used_outputs):
        summed = tuple(equation.params["summed"][i] for i in remaining)
        parameters = {**equation.params, "function": function.selected(remaining), "summed": summed}
        equation = equation.replace(params=parameters, outvars=[equation.outvars[i] for i in remaining])
    return _of_read_operands(equation)


def _of_read_operands(equation):
    """A call without the operands that its function does not read: (which operands it needs, the equation)."""
    function, batched = equation.params["function"], equation.params["batched"]
    count = len(equation.invars)
    if not function.prunable or function.is_derivative:
        return [True] * count, equation
    function, read = function.reading(batched)
    parameters = {**equation.params, "function": function, "batched": tuple(batched[i] for i in read)}
    return [i in read for i in range(count)], equation.replace(params=parameters, invars=[equation.invars[i] for i in read])


pe.dce_rules[compiled_call] = _pruned
