"""Batches divided among devices (the cores of a CPU, several GPUs or TPUs, the devices of several hosts), and in chunks on CPU."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.compile.choice import compiler
from xsim.compile.processes import available_cores
from xsim.dynamics.constraints.soft_set import has_soft
from xsim.dynamics.layout import SIMD, batch_shape
from xsim.model.model import Model, State

CHUNK, SOFT_CHUNK = 1024, 256
"""Environments per chunk. Fewer with soft constraints: the solver iterates until the slowest environment of a chunk has converged."""

MIN_PER_DEVICE = 64
"""Least number of environments per device for which a batch is divided. Recordings of an identification: see `dividing`."""
AXIS = "env"
"""Name of the axis of the mesh of devices."""

RANKS = (1, 1, 0, 0, 1, 2, 1, 1)
"""Number of axes of the fields of a state without a batch, in the order of `parts`."""


class Inputs(NamedTuple):
    """Inputs of steps: ctrl (steps, *batch, nu), tau (steps, *batch, nv); None: zero."""

    ctrl: Any
    tau: Any


def common_batch(model: Model, state: State, inputs: Inputs) -> tuple[int, ...]:
    """Common batch shape of the model's leaves, the state and the inputs."""
    of_a_step = (jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in inputs if x is not None)
    return batch_shape(model, *zip(parts(state), RANKS, strict=True), *((x, 1) for x in of_a_step))


def parts(state: State) -> tuple:
    """The fields of a state, in their order."""
    return tuple(getattr(state, field.name) for field in dataclasses.fields(state))


def use_cores(count: int | None = None) -> int:
    """Divide all batches of this process on CPU among several cores, and return the number of cores. count: default all available.

    For programs that XLA compiles (`use_compiler`), whose loops it runs on one core. What LLVM compiles uses all cores by itself, and is
    slower on several devices. This function makes each core a device of JAX (``jax_num_cpu_devices``). `step` and `rollout` divide their
    environments among the devices, and their results are sharded by environment. Call it before the first JAX computation; later calls
    raise RuntimeError. It has no effect on a GPU.
    """
    count = available_cores() if count is None else count
    jax.config.update("jax_num_cpu_devices", count)
    return count


def use_cores_with_xla() -> None:
    """Divide all batches on CPU among all cores if XLA compiles the steps; what the commands do."""
    if compiler() == "xla":
        use_cores()


class Division(NamedTuple):
    """How batches are divided. devices: those of `use_devices`. None: the cores of a CPU if `use_cores` has made several devices of them,
    else one device. least: environments per device."""

    devices: tuple | None = None
    least: int = MIN_PER_DEVICE


class _Chosen:
    division = Division()


def use_devices(devices=None) -> jax.sharding.Mesh:
    """Divide all batches from now on among several devices, and return their mesh, which has the one axis ``"env"``.

    devices: of JAX; None: all (`jax.devices`), with `jax.distributed` those of all hosts, whose processes then call the same functions. An
    empty list: one device again. `init`, `step`, `rollout`, environments and training divide their environments; nothing passes between
    the devices within a step. Batches of fewer than 64 environments per device stay on one, unless the devices are of several processes.
    """
    chosen = tuple(jax.devices() if devices is None else devices)
    _Chosen.division = Division(chosen)
    return jax.sharding.Mesh(chosen or jax.devices()[:1], AXIS)


def use_accelerators() -> None:
    """Divide all batches among the GPUs or TPUs of this process, if there are any; what the commands do."""
    if jax.default_backend() != "cpu":
        use_devices(jax.local_devices())


def division() -> Division:
    """How batches are divided now."""
    return _Chosen.division


@contextlib.contextmanager
def dividing(least: int):
    """Within it, batches are divided from ``least`` environments per device, among those devices in use that belong to this process."""
    before = _Chosen.division
    here = None if before.devices is None else tuple(d for d in before.devices if d.process_index == jax.process_index())
    _Chosen.division = Division(here, least)
    try:
        yield
    finally:
        _Chosen.division = before


def mesh_of(size: int):
    """The mesh among whose devices ``size`` environments are divided.

    None for a single device, for few environments, or inside another mesh. The devices of several processes divide any number."""
    devices, least = division()
    if devices is None:
        devices = tuple(jax.local_devices()) if jax.default_backend() == "cpu" else ()
    alone = len({device.process_index for device in devices}) < 2
    undivided = len(devices) < 2 or alone and size < least * len(devices)
    return None if undivided or not jax.sharding.get_abstract_mesh().empty else jax.sharding.Mesh(devices, AXIS)


BY_ENVIRONMENT = jax.sharding.PartitionSpec(AXIS)


def divided(tree, batch: tuple[int, ...]):
    """Arrays (*batch, ...) sharded among the devices by environment; unchanged without a batch or if its first axis is not divisible."""
    mesh = mesh_of(math.prod(batch)) if batch else None
    if mesh is None or batch[0] % mesh.size:
        return tree

    def sharded(x):  # XLA cannot shard an empty array
        spec = BY_ENVIRONMENT if x.size else jax.sharding.PartitionSpec()
        return jax.lax.with_sharding_constraint(x, jax.sharding.NamedSharding(mesh, spec))

    return jax.tree.map(sharded, tree)


def replicate(model: Model, num: int) -> Model:
    """The model with the leaves that environments share on each of the devices among which ``num`` environments are divided.

    A jitted function that gets the model as an argument otherwise copies them to the other devices at each call. Unchanged where ``num``
    environments stay on one device. The result is for batches that are divided: anything else of it is computed on every device."""
    mesh = mesh_of(num)
    if mesh is None:
        return model
    everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    leaves = {path: model.get(path) for path in model.paths()}
    shared = {path: x for path, x in leaves.items() if isinstance(x, jax.Array) and x.ndim == len(model.shape(path))}
    return model.replace({path: jax.lax.with_sharding_constraint(x, everywhere) for path, x in shared.items()})


def chunk_size(model: Model) -> int:
    """Environments per chunk of XLA's programs. The data of a step then stays in the processor's cache."""
    return SOFT_CHUNK if has_soft(model.topology) else CHUNK


def chunked(fn, chunk: int, model: Model, state: State, inputs: Inputs, steps, record, checkpoint=False):
    """Run ``fn`` on a large batch in chunks: sharded over the devices; on CPU the chunks of a device one after another.

    chunk: most environments of a chunk. fn(model, state, inputs, steps, record, checkpoint) -> (state, recorded)."""
    batch = common_batch(model, state, inputs)
    size = math.prod(batch)
    mesh, on_cpu = mesh_of(size), jax.default_backend() == "cpu"
    if mesh is None and (size <= chunk or not on_cpu):
        return fn(model, state, inputs, steps, record, checkpoint)
    devices = 1 if mesh is None else mesh.size
    count = -(-size // (chunk * devices)) * devices if on_cpu else devices
    width = -(-size // count // SIMD) * SIMD
    padded = count * width

    def cut(x, rank, lead=0):
        """(lead, *batch, ...) -> (count, lead, width, ...); None for an array without a batch. rank: axes without lead and batch."""
        if x.ndim == rank + lead:
            return None
        x = jnp.broadcast_to(x, (*x.shape[:lead], *batch, *x.shape[x.ndim - rank :]))
        x = x.reshape(*x.shape[:lead], size, *x.shape[x.ndim - rank :])
        if padded != size:
            padding = jnp.repeat(jax.lax.slice_in_dim(x, 0, 1, axis=lead), padded - size, axis=lead)
            x = jnp.concatenate([x, padding], axis=lead)
        x = x.reshape(*x.shape[:lead], count, width, *x.shape[x.ndim - rank :])
        return jnp.moveaxis(x, lead, 0)

    paths = [p for p in model.paths() if isinstance(model.get(p), jax.Array)]
    leaves = {p: cut(model.get(p), len(model.shape(p))) for p in paths}
    sliced = {p: x for p, x in leaves.items() if x is not None}
    full = State(*(jnp.broadcast_to(x, (*batch, *x.shape[x.ndim - rank :])) for x, rank in zip(parts(state), RANKS, strict=True)))
    states = State(*(cut(x, rank) for x, rank in zip(parts(full), RANKS, strict=True)))
    slices = Inputs(*(None if x is None else cut(x, 1, 1) for x in inputs))

    def run_chunk(args):
        chunk_leaves, chunk_state, chunk_inputs = args
        merged = Inputs(*(x if y is None else y for x, y in zip(inputs, chunk_inputs, strict=True)))
        return fn(model.replace(chunk_leaves) if chunk_leaves else model, chunk_state, merged, steps, record, checkpoint)

    def run_shard(args):
        return jax.lax.map(run_chunk, args)

    if mesh is not None:
        run_shard = jax.shard_map(run_shard, mesh=mesh, in_specs=BY_ENVIRONMENT, out_specs=BY_ENVIRONMENT, check_vma=False)
    final, recorded = run_shard((sliced, states, slices))
    final = divided(jax.tree.map(lambda x: x.reshape(padded, *x.shape[2:])[:size].reshape(*batch, *x.shape[2:]), final), batch)
    if recorded is not None:
        recorded = jax.tree.map(lambda x: _uncut(x, size, batch), recorded)
    return final, recorded


def _uncut(x, size: int, batch):
    """(count, steps, width, ...) -> (steps, *batch, ...)."""
    x = jnp.moveaxis(x, 0, 1)
    x = x.reshape(x.shape[0], -1, *x.shape[3:])[:, :size]
    return x.reshape(x.shape[0], *batch, *x.shape[2:])
