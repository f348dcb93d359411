"""The prepared system of a model as arrays of numbers, which compiled functions of one environment take as operands."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.cache_entry import CacheEntry
from xsim.compile.fingerprint import function_fingerprint
from xsim.compile.function import Function
from xsim.dynamics.layout import Lanes
from xsim.dynamics.prepare import prepare
from xsim.dynamics.tree.system import System
from xsim.model.model import Model

ONE = Lanes((), 0)
"""The layout of one environment: components are single numbers."""


class SystemFunction:
    """The function of a model's leaves, and of the poses of its mocap bodies, that returns the numbers of its system.

    Entries of the system that do not depend on an array, such as those of frozen leaves, are constants of the functions that use it."""

    def __init__(self, treedef, leaves: tuple, mocap):
        self.treedef = treedef
        entry = CacheEntry(function_fingerprint("prepare", jax.tree.unflatten(treedef, leaves), mocap))
        self.function = Function(self._numbers, (*leaves, mocap), "prepare", entry=entry)
        self._structure: Any = None

    def _numbers(self, *arrays):
        *leaves, mocap = arrays
        model = jax.tree.unflatten(self.treedef, leaves)
        entries, treedef = jax.tree.flatten(prepare(model, ONE, ONE.split(mocap, 2)), is_leaf=lambda x: x is None)
        own = [i for i, x in enumerate(entries) if isinstance(x, jax.Array)]
        numbers = [jax.lax.reshape(entries[i], (entries[i].size,)) for i in own]
        constants = [None if i in set(own) else x for i, x in enumerate(entries)]
        self._structure = treedef, constants, own, [entries[i].shape for i in own], [entries[i].dtype for i in own]
        return [jnp.concatenate(numbers) if numbers else jnp.zeros(0, mocap.dtype)]

    def system(self, shared, own, order: tuple[int, ...]) -> System:
        """The system of one environment from its numbers, see `Prepared`."""
        numbers = jnp.concatenate([shared, own])[np.array(order, int)]
        if self._structure is None:
            assert self.function.traced is not None  # which sets the structure
        treedef, constants, own, shapes, dtypes = self._structure
        sizes = [int(np.prod(shape)) for shape in shapes]
        parts = jax.lax.split(numbers, sizes) if sizes else []
        entries = list(constants)
        for i, part, shape, dtype in zip(own, parts, shapes, dtypes, strict=True):
            entries[i] = jax.lax.convert_element_type(jax.lax.reshape(part, shape), dtype)
        return jax.tree.unflatten(treedef, entries)


@dataclass(frozen=True)
class Prepared:
    """The numbers of a system: those that all environments share (n,) and those of which each has its own (environments, m), or (1, 0).

    Entry k of the numbers of an environment is entry order[k] of the shared ones followed by its own."""

    function: SystemFunction
    shared: Any
    own: Any
    order: tuple[int, ...]

    def operands(self) -> list[tuple[Any, bool]]:
        """The shared and the own numbers, and whether environments have their own."""
        return [(self.shared, False), (self.own, True) if self.own.shape[1] else (self.own[0], False)]


@functools.lru_cache(maxsize=64)
def system_function(treedef, leaves: tuple, mocap, x64: bool) -> SystemFunction:
    """The function of a model with such leaves (shapes and types), made once."""
    return SystemFunction(treedef, tuple(_struct(x) for x in leaves), _struct(mocap))


def _struct(key):
    return jax.ShapeDtypeStruct(*key)


def model_key(model: Model) -> tuple:
    """What functions of a model depend on besides the numbers of its leaves: structure, shapes and types of an environment's leaves."""
    leaves, treedef = jax.tree.flatten(model)
    ranks = [len(shape) for shape in leaf_shapes(model)]
    return treedef, tuple((x.shape[x.ndim - r :], x.dtype) for x, r in zip(leaves, ranks, strict=True))


def leaf_shapes(model: Model) -> list[tuple[int, ...]]:
    """The shapes of the model's array leaves without a batch, in the order of its tree."""
    shapes = {path: model.shape(path) for path in model.paths() if isinstance(model.get(path), jax.Array)}
    marked = model
    for path, shape in shapes.items():
        marked = marked._put(path, np.zeros(shape, bool))
    return [x.shape for x in jax.tree.leaves(marked)]


def by_environment(x, rank: int, batch: tuple[int, ...]) -> tuple[Any, bool]:
    """An array (*batch, ...) as (environments, ...), and True; an array without a batch as it is, and False. rank: axes without a batch."""
    if x.ndim == rank:
        return x, False
    core = x.shape[x.ndim - rank :]
    return jnp.broadcast_to(x, (*batch, *core)).reshape(math.prod(batch), *core), True


def prepared(model: Model, mocap, batch: tuple[int, ...]) -> Prepared:
    """The numbers of a model's system. mocap (environments, nmocap, 7): poses of the mocap bodies."""
    treedef, shapes = model_key(model)
    function = system_function(treedef, shapes, (mocap.shape[1:], mocap.dtype), bool(jax.config.jax_enable_x64))
    flat = [by_environment(x, len(shape), batch) for x, (shape, _) in zip(jax.tree.leaves(model), shapes, strict=True)]
    arguments = [*flat, (mocap, True) if mocap.shape[1] else (mocap[0], False)]
    read, which = function.function.reading([b for _, b in arguments])
    values, batched = zip(*(arguments[i] for i in which), strict=True)
    numbers = read(values, batched)[0]
    varying = read.summary(batched).varying[0] if any(batched) else np.zeros(numbers.shape[1], bool)
    shared, own = np.flatnonzero(~varying), np.flatnonzero(varying)
    order = np.argsort(np.concatenate([shared, own]), kind="stable")
    return Prepared(function, numbers[0, shared], numbers[:, own], tuple(order.tolist()))
