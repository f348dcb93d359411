"""Queries of many environments by machine code: the query of one environment as a compiled function."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from xsim.compile.cache_entry import CacheEntry
from xsim.compile.fingerprint import function_fingerprint
from xsim.compile.function import Function
from xsim.dynamics.layout import batch_shape
from xsim.dynamics.prepared import by_environment, model_key
from xsim.dynamics.sharding import RANKS, parts
from xsim.model.model import Model, State

RANKS_OF_ARGUMENTS = {"time": 0}
"""Number of axes of an argument without a batch, by its name. Of others 1; of a state see `RANKS`."""

Static = tuple[tuple[str, Hashable], ...]
"""Arguments of a query that are no arrays, by name."""


def query_batch(model: Model, arguments: Mapping[str, Any]) -> tuple[int, ...]:
    """The common batch shape of the model's leaves and of the arguments of a query, see `compiled_query`."""
    return batch_shape(model, *_numbers(arguments))


def compiled_query(query: Callable, model: Model, arguments: Mapping[str, Any], static: Static = ()):
    """What query(model, **arguments, **static) returns, a tree of arrays (*batch, ...), for arguments with any batch.

    arguments: arrays, or a state; None: absent. Of the machine code only what is used of the result remains. Raises
    `xsim.compile.flatten.Unsupported` for a function that is too large."""
    batch, numbers = query_batch(model, arguments), _numbers(arguments)
    treedef, shapes = model_key(model)
    given = [*zip(jax.tree.leaves(model), (len(shape) for shape, _ in shapes), strict=True), *numbers]
    operands, batched = zip(*(by_environment(x, rank, batch) for x, rank in given), strict=True)
    of_one = tuple((x.shape[x.ndim - rank :], x.dtype) for x, rank in given)
    present = tuple((name, isinstance(x, State)) for name, x in arguments.items() if x is not None)
    function = query_function(query, treedef, len(shapes), of_one, present, static, bool(jax.config.jax_enable_x64))
    out = function(operands, batched)
    return jax.tree.unflatten(function.structure, [x.reshape(*batch, *x.shape[1:]) for x in out])


def _numbers(arguments: Mapping[str, Any]) -> list[tuple[Any, int]]:
    """The arrays of the arguments that are present, with their numbers of axes without a batch."""
    out: list[tuple[Any, int]] = []
    for name, x in arguments.items():
        if isinstance(x, State):
            out += zip(parts(x), RANKS, strict=True)
        elif x is not None:
            out.append((jnp.asarray(x), RANKS_OF_ARGUMENTS.get(name, 1)))
    return out


class QueryFunction(Function):
    """The function of one environment that is a query. Its arguments are the leaves of the model and the arrays of the arguments that are
    present. Its results are the leaves of that of the query."""

    def __init__(self, query: Callable, treedef, leaves: int, shapes: tuple, present: tuple[tuple[str, bool], ...], static: Static):
        self._structure: Any = None

        def function(*xs):
            model, rest = jax.tree.unflatten(treedef, xs[:leaves]), iter(xs[leaves:])
            arguments = {name: State(*(next(rest) for _ in RANKS)) if is_state else next(rest) for name, is_state in present}
            out, self._structure = jax.tree.flatten(query(model, **arguments, **dict(static)))
            return out

        structs = [jax.ShapeDtypeStruct(*s) for s in shapes]
        name, model = f"{query.__module__}.{query.__qualname__}", jax.tree.unflatten(treedef, structs[:leaves])
        is_known = name.startswith("xsim.") and "<locals>" not in name
        key = function_fingerprint(name, model, structs[leaves:], present, static) if is_known else None
        super().__init__(function, structs, "query", prunable=True, entry=CacheEntry(key))

    @property
    def structure(self):
        """The structure of the query's result."""

        def traced():
            if self._structure is None:
                assert self.traced is not None  # which sets it
            return self._structure

        return self.entry.found("structure", traced)


@functools.lru_cache(maxsize=64)
def query_function(
    query: Callable, treedef, leaves: int, shapes: tuple, present: tuple[tuple[str, bool], ...], static: Static, x64: bool
) -> QueryFunction:
    """The function of a query. leaves: number of leaves of the model. shapes: of the arguments, with their types. present: names of the
    arguments, and whether they are states. x64: the setting of JAX."""
    return QueryFunction(query, treedef, leaves, shapes, present, static)
