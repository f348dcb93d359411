"""The distance from a mesh by the table of `xsim.model.octree`."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

from xsim.model.octree import CELLS, Octree
from xsim.spatial import Component, Vector, safe_norm

_INSET = 1e-6
"""A point outside of the box has the distance in the box, so far (m) from its side, and the distance from the box."""


def octree_distance(tree: Octree, point: Vector) -> Component:
    """The signed distance (m) of points in the frame of the mesh: linear in each leaf along x, y and z."""
    dtype = jnp.result_type(float, *point)
    leaf_of_cell, sizes, distances = _tables(tree, np.dtype(dtype))
    beyond, index, along = [], [], []
    inside = jnp.ones(jnp.broadcast_shapes(*map(jnp.shape, point)), bool)
    for x, low, high in zip(point, tree.low, tree.high, strict=True):
        beyond.append(jnp.abs(x - 0.5 * (low + high)) - 0.5 * (high - low))
        inside &= beyond[-1] <= 0
    for x, low, high, out in zip(point, tree.low, tree.high, beyond, strict=True):
        x = jnp.where(~inside & (out >= 0), jnp.where(x > 0.5 * (low + high), high - _INSET, low + _INSET), x)
        along.append((x - low) * (CELLS / (high - low)))
        index.append(jnp.clip(jnp.floor(jax.lax.stop_gradient(along[-1])), 0, CELLS - 1).astype(jnp.int32))
    leaf = jnp.asarray(leaf_of_cell)[(index[2] * CELLS + index[1]) * CELLS + index[0]]
    size = jnp.asarray(sizes)[leaf]
    parts = [(x - (i // size * size).astype(dtype)) / size.astype(dtype) for x, i in zip(along, index, strict=True)]
    table, value = jnp.asarray(distances), 0.0
    for corner in range(8):
        weight = 1.0
        for k, part in enumerate(parts):
            weight = weight * (part if corner >> k & 1 else 1.0 - part)
        value = value + weight * table[leaf * 8 + corner]
    return jnp.where(inside, value, value + safe_norm(tuple(jnp.maximum(x, 0.0) for x in beyond)))


@functools.lru_cache(maxsize=32)
def _tables(tree: Octree, dtype: np.dtype) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The leaves of cells, the sizes of leaves, and the distances at their corners one after the other."""
    return tree.leaf.value.astype(np.int32), tree.size.value.astype(np.int32), tree.distances.value.astype(dtype).reshape(-1)
