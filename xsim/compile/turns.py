"""Operands and results of several calls in turn: what each turn is given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive

from xsim.compile.compiled_call import merged_environments
from xsim.compile.function import Function


def environment_count(arguments: Sequence[Any], function: Function) -> int:
    """The number of environments. The arguments may have further operands after them."""
    _, argument = function.carried[0]
    return arguments[argument].shape[0]


def evaluated(primitive: Primitive, *operands, **params) -> list:
    """The results of a primitive outside of `jax.jit`, also where this is disabled."""
    with jax.disable_jit(False):
        return jax.jit(lambda *xs: primitive.bind(*xs, **params))(*operands)


def of_turns(function: Function, arguments: Sequence[Any], results: dict[int, Any]) -> dict[int, Any]:
    """The arguments of which each turn has its own, stacked (turns, environments, ...): the sequences, and what is carried. results: those
    of all turns, by number."""

    def carried(i: int, k: int):
        """What was given, then the results of the turns before."""
        return jnp.concatenate([arguments[i][None], results[k][:-1]])

    return {i: arguments[i] for i in function.repetition.sequences} | {i: carried(i, k) for k, i in function.carried}


def to_blocks(x, width: int):
    """Numbers of all turns (turns, environments, ...) as a blocked array (turns, blocks, numbers, width), where each number of the
    environments of a block is a vector. Environments after the last one are zero."""
    turns, count, *shape = x.shape
    size, blocks = math.prod(shape), -(-count // width)
    rows = jnp.pad(x.reshape(turns, count, size), ((0, 0), (0, blocks * width - count), (0, 0)))
    return rows.reshape(turns, blocks, width, size).swapaxes(2, 3)


def from_blocks(x, count: int, shape: Sequence[int]):
    """Numbers of all turns (turns, environments, ...) of a blocked array. shape: of those of an environment."""
    turns, blocks, size, width = x.shape
    return x.swapaxes(2, 3).reshape(turns, blocks * width, size)[:, :count].reshape(turns, count, *shape)


def first_axes(function: Function) -> list[int]:
    """The axis of the environments of each argument, if it has one: sequences have an axis of turns before."""
    return [1 if i in function.repetition.sequences else 0 for i in range(len(function.shapes))]


def merged_members(operands: Sequence[Any], axes, batched: Sequence[bool], first: Sequence[int], state: int) -> tuple:
    """Operands with the environments of all members of the new axis of `jax.vmap` as one batch; which have environments then; the numbers
    of members and of environments of each. axes: of the members. first: those of the environments. state: an operand that has them."""
    size = next(x.shape[axis] for x, axis in zip(operands, axes, strict=True) if axis is not None)
    operands = [x if axis is None else jnp.moveaxis(x, axis, at) for x, axis, at in zip(operands, axes, first, strict=True)]
    own = [axis is not None for axis in axes]
    sizes = size, operands[state].shape[int(own[state])]
    merged = [merged_environments(x, o, b, sizes, at) for x, o, b, at in zip(operands, own, batched, first, strict=True)]
    return merged, tuple(o or b for o, b in zip(own, batched, strict=True)), sizes


def split_members(results: Sequence[Any], sizes: tuple[int, int], axes: Sequence[int]) -> list:
    """Results with an axis of members, in place of all members' environments as one batch. axes: of the environments."""
    return [x.reshape(*x.shape[:at], *sizes, *x.shape[at + 1 :]) for x, at in zip(results, axes, strict=True)]
