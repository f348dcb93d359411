"""Conversion between public arrays (batch first) and components (one array per number, environments along its axis).

Environments are the lanes of every operation. On CPU the number of lanes is padded to a multiple of the SIMD width. The instructions for an
environment are then the same in any batch, and its results are equal bit for bit.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.primitives import primitive_of
from xsim.model.model import Frozen, Model, unfrozen

SIMD = 16


class Lanes(NamedTuple):
    """batch: the common batch shape. width: number of lanes of a component, 0 without a batch."""

    batch: tuple[int, ...]
    width: int

    def split(self, x, core: int) -> Any:
        """Components of x, nested tuples of depth ``core``. x: (*core_shape) or (*batch, *core_shape), core: number of core axes."""
        if isinstance(x, Frozen):
            return _floats(x.value)
        if isinstance(x, np.ndarray):
            x = jnp.asarray(x)
        shape = x.shape[x.ndim - core :]
        if x.ndim > core:
            size = math.prod(self.batch)
            x = jnp.broadcast_to(x, (*self.batch, *shape)).reshape(size, -1)
            if self.width != size:
                x = jnp.concatenate([x, jnp.broadcast_to(x[:1], (self.width - size, x.shape[1]))])
            x = x.T
        else:
            x = x.reshape(-1)
        return _nest(list(jnp.unstack(x)), shape)

    def last(self, x, core: int) -> Any:
        """x with the lanes last: (*core_shape, lanes), or (*core_shape, 1) if x has no batch. x, core: as in `split`."""
        x = jnp.asarray(unfrozen(x))
        shape = x.shape[x.ndim - core :]
        if x.ndim > core:
            size = math.prod(self.batch)
            x = jnp.broadcast_to(x, (*self.batch, *shape)).reshape(size, *shape)
            if self.width != size:
                x = jnp.concatenate([x, jnp.broadcast_to(x[:1], (self.width - size, *shape))])
            x = jnp.moveaxis(x, 0, -1)
        else:
            x = x[..., None]
        return x

    def split_sequence(self, x) -> list:
        """Components of a sequence (steps, n) or (steps, *batch, n): n arrays of shape (steps,) or (steps, lanes)."""
        if x.ndim > 2:
            size = math.prod(self.batch)
            x = jnp.broadcast_to(x, (x.shape[0], *self.batch, x.shape[-1])).reshape(x.shape[0], size, x.shape[-1])
            if self.width != size:
                fill = jnp.broadcast_to(x[:, :1], (x.shape[0], self.width - size, x.shape[2]))
                x = jnp.concatenate([x, fill], 1)
        return list(jnp.unstack(x, axis=-1))

    def join(self, components, core: int):
        """Array (*batch, *core_shape) of nested components; the inverse of `split`."""
        leaves = []
        shape = _flatten(components, leaves, core)
        if not leaves:
            return jnp.zeros((*self.batch, *shape))
        dtype = next((x.dtype for x in leaves if not isinstance(x, float)), None)
        rows = [jnp.broadcast_to(jnp.asarray(x, dtype), (self.width,) if self.width else ()) for x in leaves]
        x = jnp.stack(rows, -1)
        if self.width:
            x = x[: math.prod(self.batch)]
        return x.reshape(*self.batch, *shape)


def _nest(items: list, shape):
    if not shape:
        return items[0]
    step = len(items) // shape[0] if shape[0] else 0
    return tuple(_nest(items[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0]))


def _floats(x):
    return float(x) if np.ndim(x) == 0 else tuple(_floats(row) for row in x)


def _flatten(x, leaves: list, depth: int) -> tuple[int, ...]:
    if depth == 0:
        leaves.append(x)
        return ()
    shape: tuple[int, ...] = ()
    for item in x:
        shape = _flatten(item, leaves, depth - 1)
    return (len(x), *shape)


def batch_shape(model: Model, *arrays_and_cores) -> tuple[int, ...]:
    """Common batch shape of the model's leaves and of (array, core dimensions) pairs."""
    shapes = [x.shape[: x.ndim - core] for x, core in arrays_and_cores if x is not None]
    for path in model.paths():
        leaf = model.get(path)
        if not isinstance(leaf, Frozen):
            shapes.append(leaf.shape[: leaf.ndim - len(model.shape(path))])
    try:
        return jnp.broadcast_shapes(*shapes)
    except ValueError:
        raise ValueError(_misfit(model, shapes[: len(arrays_and_cores)])) from None


def _misfit(model: Model, given: list[tuple[int, ...]]) -> str:
    """Which batch shapes do not fit each other. given: those of the arguments."""
    sources: dict[tuple[int, ...], list[str]] = {}
    for shape in given:
        sources.setdefault(shape, ["arguments"])
    for path in model.batched_paths():
        leaf = model.get(path)
        sources.setdefault(leaf.shape[: leaf.ndim - len(model.shape(path))], []).append(path)
    return "batch shapes that do not fit: " + "; ".join(f"{shape} of {', '.join(names)}" for shape, names in sources.items() if shape)


def make_lanes(batch: tuple[int, ...]) -> Lanes:
    """The lanes of a batch shape."""
    size = math.prod(batch)
    if not batch:
        return Lanes((), 0)
    return Lanes(batch, -(-size // SIMD) * SIMD if jax.default_backend() == "cpu" else size)


def spread(components: list, *like) -> list:
    """The components as arrays of a common shape and dtype, as the carry of a loop needs them.

    like: trees of components that also determine the shape and dtype."""
    if not components:
        return []
    arrays = [x for x in jax.tree.leaves((components, like)) if isinstance(x, jax.Array) and x.ndim <= 1]
    return _fitted(components, jnp.broadcast_shapes(*{x.shape for x in arrays}), arrays)


def column(components) -> jax.Array:
    """Components as an array (n, lanes); (n, 1) if all environments have the same values."""
    arrays = [x for x in components if not isinstance(x, float)]
    return jnp.stack(_fitted(components, jnp.broadcast_shapes((1,), *{x.shape for x in arrays}), arrays))


def _fitted(components, shape: tuple[int, ...], like: list) -> list:
    """The components as arrays of a shape, of the common dtype of the arrays ``like``."""
    dtypes = {x.dtype for x in like}
    dtype = dtypes.pop() if len(dtypes) == 1 else jnp.result_type(*(like or [float]))
    arrays = (jnp.asarray(x, dtype) if isinstance(x, float) else jax.lax.convert_element_type(x, dtype) for x in components)
    return [x if x.shape == shape else jnp.broadcast_to(x, shape) for x in arrays]


def concatenated(parts: list):
    """Concatenation of trees of arrays (n, ..., lanes or 1) along their first axis."""

    def concatenated(*xs):
        lanes = max(x.shape[-1] for x in xs)
        return jnp.concatenate([x if x.shape[-1] == lanes else jnp.broadcast_to(x, (*x.shape[:-1], lanes)) for x in xs])

    return parts[0] if len(parts) == 1 else jax.tree.map(concatenated, *parts)


def row_of(x, index):
    """x[index], of an array (n, ...). index: a number from 0 to n - 1, known now or in the compiled program. Traced in a tenth of the time
    of x[index]."""
    return jax.lax.dynamic_index_in_dim(x, index, keepdims=False, allow_negative_indices=False)


def outer(x, y):
    """The products x_i y_j (m, n, ...), of arrays (m, ...) and (n, ...)."""
    shape, rest = (len(x), len(y), *x.shape[1:]), range(2, x.ndim + 1)
    if x.shape[1:] != y.shape[1:]:
        return x[:, None] * y[None]
    return jax.lax.mul(jax.lax.broadcast_in_dim(x, shape, (0, *rest)), jax.lax.broadcast_in_dim(y, shape, (1, *rest)))


def true_indices(mask, size: int):
    """Indices (size,) of the first true entries of an array (n,), ascending, then zeros where these are fewer."""
    return TRUE_INDICES.bind(mask, size=size)[0]


def _true_indices(mask, *, size: int) -> list:
    return [jnp.nonzero(mask, size=size, fill_value=0)[0].astype(jnp.int32)]


TRUE_INDICES = primitive_of("xsim_true_indices", _true_indices)


def take_rows(x, index):
    """Rows of an array (n, ..., lanes or 1). index: a numpy array (rows,), negative from the end, or a jax array (rows, lanes)."""
    if isinstance(index, np.ndarray):
        if len(index) == len(x) and (index == np.arange(len(x))).all():
            return x
        return x[index] if isinstance(x, np.ndarray) else jnp.take(x, np.where(index < 0, index + len(x), index), axis=0, mode="clip")
    if x.shape[-1] == 1 and index.shape[-1] > 1:
        return jnp.moveaxis(x[..., 0][index], 1, -1)
    return jnp.take_along_axis(x, index.reshape(len(index), *(1,) * (x.ndim - 2), index.shape[-1]), 0)
