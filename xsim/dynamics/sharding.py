"""Large batches on CPU: shares of them on several cores, slices of a share one after another."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.soft_set import has_soft
from xsim.dynamics.layout import SIMD, batch_shape
from xsim.model.model import Model, State

CHUNK, SOFT_CHUNK = 1024, 256
"""Environments at a time; of models with soft constraints fewer: they wait for the slowest of those they are solved with."""

LEAST = 64
"""Environments that are worth a core of their own."""

RANKS = (1, 1, 0, 0, 1, 2)
"""Dimensions of a state's parts without a batch."""


class Inputs(NamedTuple):
    """What drives steps from outside: (steps, *batch, nu), (steps, *batch, nv); None: zero."""

    ctrl: Any
    tau: Any


def common_batch(model: Model, state: State, inputs: Inputs) -> tuple[int, ...]:
    """Batch shape of the model's leaves, the state and the inputs together."""
    return batch_shape(model, *zip(parts(state), RANKS, strict=True), *((x[0], 1) for x in inputs if x is not None))


def parts(state: State) -> tuple:
    return state.q, state.v, state.time, state.flags, state.act, state.mocap


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_cores(count: int | None = None) -> int:
    """Divide every batch of this process on CPU among so many cores (default: all that it may use), and return how many they are.

    XLA runs the loops of a program on one core. This makes each core a device of JAX (``jax_num_cpu_devices``), among which `step` and
    `rollout` divide their environments; what they return is divided by environment, as other jitted functions then keep it. Call it
    before JAX computes anything: raises RuntimeError afterwards. Without effect on a GPU.
    """
    count = available_cores() if count is None else count
    jax.config.update("jax_num_cpu_devices", count)
    return count


def cores_of(size: int):
    """The devices that so many environments are divided among, a mesh with the axis "core"; None for one device: where environments are
    few, or somebody has divided them already."""
    devices = jax.local_devices()
    alone = jax.default_backend() != "cpu" or len(devices) == 1 or size < LEAST * len(devices)
    return None if alone or not jax.sharding.get_abstract_mesh().empty else jax.sharding.Mesh(devices, "core")


OWN = jax.sharding.PartitionSpec("core")


def divided(tree, batch: tuple[int, ...]):
    """Arrays (*batch, ...) divided among the cores by environment; as they are where that is uneven."""
    mesh = cores_of(math.prod(batch))
    if mesh is None or batch[0] % mesh.size:
        return tree

    def placed(x):  # XLA does not divide what is empty
        return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, OWN if x.size else jax.sharding.PartitionSpec()))

    return jax.tree.map(placed, tree)


def chunked(fn, model: Model, state: State, inputs: Inputs, steps, record, checkpoint=False):
    """Run ``fn`` on slices of a large batch: shares of it on the cores that there are, the slices of a share one after another, so that a
    step's numbers stay in the processor's cache."""
    batch = common_batch(model, state, inputs)
    size, most = math.prod(batch), SOFT_CHUNK if has_soft(model.topology) else CHUNK
    mesh = cores_of(size)
    if jax.default_backend() != "cpu" or (size <= most and mesh is None):
        return fn(model, state, inputs, steps, record, checkpoint)
    cores = 1 if mesh is None else mesh.size
    count = -(-size // (most * cores)) * cores
    width = -(-size // count // SIMD) * SIMD
    padded = count * width

    def cut(x, rank, lead=0):
        """(lead, *batch, ...) -> (count, lead, width, ...), of that rank without lead and batch; None where the array is shared."""
        if x.ndim == rank + lead:
            return None
        x = jnp.broadcast_to(x, (*x.shape[:lead], *batch, *x.shape[x.ndim - rank :]))
        x = x.reshape(*x.shape[:lead], size, *x.shape[x.ndim - rank :])
        if padded != size:
            fill = jnp.repeat(jax.lax.slice_in_dim(x, 0, 1, axis=lead), padded - size, axis=lead)
            x = jnp.concatenate([x, fill], axis=lead)
        x = x.reshape(*x.shape[:lead], count, width, *x.shape[x.ndim - rank :])
        return jnp.moveaxis(x, lead, 0)

    paths = [p for p in model.paths() if isinstance(model.get(p), jax.Array)]
    leaves = {p: cut(model.get(p), len(model.shape(p))) for p in paths}
    sliced = {p: x for p, x in leaves.items() if x is not None}
    whole = State(*(jnp.broadcast_to(x, (*batch, *x.shape[x.ndim - rank :])) for x, rank in zip(parts(state), RANKS, strict=True)))
    states = State(*(cut(x, rank) for x, rank in zip(parts(whole), RANKS, strict=True)))
    slices = Inputs(*(None if x is None else cut(x, 1, 1) for x in inputs))

    def one(args):
        leaf, s, own = args
        given = Inputs(*(x if y is None else y for x, y in zip(inputs, own, strict=True)))
        return fn(model.replace(leaf) if leaf else model, s, given, steps, record, checkpoint)

    def share(args):
        return jax.lax.map(one, args)

    if mesh is not None:
        share = jax.shard_map(share, mesh=mesh, in_specs=OWN, out_specs=OWN, check_vma=False)
    final, kept = share((sliced, states, slices))
    final = divided(jax.tree.map(lambda x: x.reshape(padded, *x.shape[2:])[:size].reshape(*batch, *x.shape[2:]), final), batch)
    if kept is not None:
        kept = jax.tree.map(lambda x: _uncut(x, size, batch), kept)
    return final, kept


def _uncut(x, size: int, batch):
    """(count, steps, width, ...) -> (steps, *batch, ...)."""
    x = jnp.moveaxis(x, 0, 1)
    x = x.reshape(x.shape[0], -1, *x.shape[3:])[:, :size]
    return x.reshape(x.shape[0], *batch, *x.shape[2:])
