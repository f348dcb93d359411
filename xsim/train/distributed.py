"""Training by several processes: each simulates its share of the environments, `jax.distributed` connects them.

All processes run the same program. The environments are divided among the devices of all of them; parameters, optimizer and statistics are
the same on each. JAX's collectives average gradients and statistics. Each process writes its share of a checkpoint, process 0 all other
files.
"""

from __future__ import annotations

import sys

import jax
import jax.numpy as jnp

from xsim.dynamics.sharding import use_devices

__all__ = ["connect", "is_key", "is_writer", "local"]

HEARTBEAT_S = 30
"""Seconds without a sign of life after which a process counts as dead. The others then end with an error."""


def connect(coordinator: str | None, processes: int | None, process: int | None) -> None:
    """Connect the processes of a run and divide environments among the devices of all.

    coordinator: HOST:PORT of process 0. processes: how many there are. process: which one this is. All None: what a cluster's environment
    says (Slurm, Kubernetes, cloud TPUs; see `jax.distributed.initialize`). Call it before JAX computes anything. Raises ValueError where
    some of the three are missing.
    """
    given = [x is not None for x in (coordinator, processes, process)]
    if any(given) and not all(given):
        raise ValueError("--coordinator, --processes and --process go together")
    jax.distributed.initialize(coordinator, processes, process, heartbeat_timeout_seconds=HEARTBEAT_S)
    mesh = use_devices()
    if is_writer():
        text = f"where one dies, the others end within {HEARTBEAT_S} s: then start all again with --resume"
        print(f"{jax.process_count()} processes, {mesh.size} devices; {text}", file=sys.stderr, flush=True)


def is_writer() -> bool:
    """Whether this process writes the files of the run."""
    return jax.process_index() == 0


def local(tree):
    """Arrays that are the same on all devices, as arrays of this process alone."""
    return jax.tree.map(lambda x: jnp.asarray(x.addressable_data(0)) if isinstance(x, jax.Array) and not is_key(x) else x, tree)


def is_key(x) -> bool:
    """Whether an array holds random keys."""
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
