"""Types of arrays within `jax.shard_map`, which vary along manual axes of a mesh or do not.

Operations of JAX convert operands that do not vary to the type of those that do. What a loop carries keeps its type.
"""

from __future__ import annotations

import jax

__all__ = ["result_type", "varying_alike"]


def result_type(operand, shape: tuple[int, ...], dtype):
    """The type of a result: it varies along the same axes as an operand, which is given by its type."""
    if operand.manual_axis_type.empty:
        return jax.core.ShapedArray(shape, dtype)
    sharding = jax.sharding.NamedSharding(operand.sharding.mesh, jax.sharding.PartitionSpec())
    return jax.core.ShapedArray(shape, dtype, sharding=sharding, manual_axis_type=operand.manual_axis_type)


def varying_alike(tree, *others):
    """A pytree whose arrays vary along the same axes: those along which one of them varies, or an array of the other pytrees. Derivatives
    by an array that did not vary are summed over the axis."""
    of_each = [jax.typeof(x).manual_axis_type.varying for x in jax.tree.leaves((tree, others))]
    axes = frozenset().union(*of_each)

    def varying(x):
        missing = axes - jax.typeof(x).manual_axis_type.varying
        return jax.lax.pcast(x, tuple(missing), to="varying") if missing else x

    return jax.tree.map(varying, tree) if axes else tree
