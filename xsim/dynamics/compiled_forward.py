"""Queries of many environments by machine code: the query of one environment as a compiled function."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import jax

from xsim.compile.function import Function
from xsim.dynamics.prepared import by_environment, model_key
from xsim.dynamics.sharding import RANKS, Inputs, common_batch, parts
from xsim.model.data import Data
from xsim.model.model import Model, State

FIELDS = tuple(field.name for field in dataclasses.fields(Data))


def compiled_data(evaluate: Callable, model: Model, state: State, ctrl, tau) -> tuple[Data, jax.Array | None]:
    """What evaluate(model, state, ctrl, tau) returns, `Data` and `State.history` or None, for arguments with any batch.

    Of the machine code only what is used of the result remains. Raises `xsim.compile.flatten.Unsupported` for a function that is too
    large."""
    batch = common_batch(model, state, Inputs(*(None if x is None else x[None] for x in (ctrl, tau))))
    treedef, shapes = model_key(model)
    given = [*zip(jax.tree.leaves(model), (len(shape) for shape, _ in shapes), strict=True), *zip(parts(state), RANKS, strict=True)]
    given += [(x, 1) for x in (ctrl, tau) if x is not None]
    arguments, batched = zip(*(by_environment(x, rank, batch) for x, rank in given), strict=True)
    of_one = tuple((x.shape[x.ndim - rank :], x.dtype) for x, rank in given)
    present = ctrl is not None, tau is not None
    function = data_function(evaluate, treedef, len(shapes), of_one, present, bool(jax.config.jax_enable_x64))
    out = [x.reshape(*batch, *x.shape[1:]) for x in function(arguments, batched)]
    history = out[len(FIELDS)] if len(out) > len(FIELDS) else None
    return Data(**dict(zip(FIELDS, out, strict=False))), history


@functools.lru_cache(maxsize=64)
def data_function(evaluate: Callable, treedef, leaves: int, shapes: tuple, present: tuple[bool, bool], x64: bool) -> Function:
    """The function of one environment. Its arguments are the leaves of the model, the fields of the state, ctrl and tau if present. Its
    results are FIELDS, and the history if there is one. shapes: of the arguments, with their types. x64: the setting of JAX."""
    fields = len(RANKS)

    def query(*xs):
        model, state = jax.tree.unflatten(treedef, xs[:leaves]), State(*xs[leaves : leaves + fields])
        rest = iter(xs[leaves + fields :])
        ctrl, tau = (next(rest) if here else None for here in present)
        data, history = evaluate(model, state, ctrl, tau)
        return [*(getattr(data, name) for name in FIELDS), *(() if history is None else (history,))]

    return Function(query, [jax.ShapeDtypeStruct(*s) for s in shapes], "query", prunable=True)
