"""Checkpoints: all of a `Learner` in one file. A run that was stopped and resumed equals the uninterrupted one bit for bit (same machine,
same number of environments)."""

from __future__ import annotations

import os
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from xsim.train.ppo import Learner

__all__ = ["checkpoints", "restore", "save"]


def _is_key(x) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def save(folder: Path, learner: Learner, keep: int) -> Path:
    """Write a checkpoint, in full or not at all, and delete all but the last ``keep``."""
    file = folder / f"checkpoint-{int(learner.iteration):07d}.npz"
    leaves, _ = jax.tree_util.tree_flatten_with_path(learner)
    arrays = {jax.tree_util.keystr(path): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for path, x in leaves}
    draft = folder / f".{file.name}"
    with open(draft, "wb") as out:
        np.savez(out, **arrays)
    os.replace(draft, file)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    return file


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(folder.glob("checkpoint-*.npz"))


def restore(file: Path, like: Learner) -> Learner:
    """The Learner of a checkpoint. like: one of the same structure, of shapes. Raises ValueError where the file does not fit it."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    out = []
    with np.load(file) as arrays:
        for path, x in leaves:
            name = jax.tree_util.keystr(path)
            expected = jax.eval_shape(jax.random.key_data, x) if _is_key(x) else x
            if name not in arrays or arrays[name].shape != expected.shape or arrays[name].dtype != expected.dtype:
                found = f"{arrays[name].dtype}{arrays[name].shape}" if name in arrays else "nothing"
                raise ValueError(f"{file} does not fit these settings: {name} should be {expected.dtype}{expected.shape}, found {found}")
            value = jnp.asarray(arrays[name])
            out.append(jax.random.wrap_key_data(value) if _is_key(x) else value)
    return jax.tree.unflatten(tree, out)
