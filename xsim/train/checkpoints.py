"""Checkpoints: all of a `Learner` in one file. A run that was stopped and resumed equals the uninterrupted one bit for bit (same machine,
same number of environments)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from xsim.train.distributed import gathered, is_key, is_writer
from xsim.train.ppo import Learner

__all__ = ["BrokenFile", "checkpoints", "restore", "restore_newest", "restore_policy", "save"]

T = TypeVar("T")


def save(folder: Path, learner: Learner, keep: int) -> Path:
    """Write a checkpoint, in full or not at all, and delete all but the last ``keep``. All processes of a run call it, one writes."""
    file = folder / f"checkpoint-{int(learner.iteration):07d}.npz"
    leaves, _ = jax.tree_util.tree_flatten_with_path(gathered(learner))
    if not is_writer():
        return file
    arrays = {jax.tree_util.keystr(path): np.asarray(x) for path, x in leaves}
    draft = folder / f".{file.name}"
    with open(draft, "wb") as out:
        np.savez(out, **arrays)
    os.replace(draft, file)
    for old in [x for x in checkpoints(folder) if x.name <= file.name][:-keep]:  # a later one is of another run, or broken
        old.unlink()
    return file


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(file for file in folder.glob("checkpoint-*.npz") if file.is_file())


def restore_newest(folder: Path, like: Learner) -> Learner:
    """The Learner of the newest checkpoint that can be read; warns of those that are empty or cut off. Raises ValueError as `restore`
    does, and where no checkpoint can be read."""
    return _newest(folder, lambda file: restore(file, like))


def _newest(folder: Path, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of the newest checkpoint that is complete."""
    for file in reversed(checkpoints(folder)):
        try:
            return read(file)
        except BrokenFile as error:
            warnings.warn(f"{error}; looking at the checkpoint before it", UserWarning, stacklevel=2)
    raise ValueError(f"no checkpoint in {folder} can be read")


def restore(file: Path, like: Learner) -> Learner:
    """The Learner of a checkpoint. like: one of the same structure, of shapes.

    Raises BrokenFile where the file is empty, cut off or no checkpoint at all; ValueError where it does not fit ``like``, its weights are
    not finite, or the iterations that it counts are not those of its name.
    """
    learner = _fitted(file, _read(file), like)
    _check(file, learner)
    return learner


def restore_policy(folder: Path, like: Callable[[int, int, np.dtype], T]) -> T:
    """The part of a Learner that a policy needs, of the newest checkpoint that can be read.

    like: what it is like, shapes with the fields ``params`` and ``statistics``, from the numbers of observations and actions and the type
    of their numbers. Raises ValueError where no checkpoint can be read, or where it does not fit."""

    def read(file: Path) -> T:
        arrays = _read(file)
        sizes = [arrays.get(name) for name in (".statistics.mean", ".params['params']['log_deviation']")]
        if any(x is None or x.ndim != 1 for x in sizes):
            raise ValueError(f"{file} holds no policy")
        observed, acted = sizes
        return _fitted(file, arrays, like(len(observed), len(acted), observed.dtype))

    return _newest(folder, read)


def _fitted(file: Path, arrays: dict[str, np.ndarray], like: T) -> T:
    """The arrays of a file in the structure of ``like``, which has shapes. Raises ValueError where they do not fit."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    out = []
    for path, x in leaves:
        name = jax.tree_util.keystr(path)
        expected = jax.eval_shape(jax.random.key_data, x) if is_key(x) else x
        found = arrays.get(name)
        if found is None or found.shape != expected.shape or found.dtype != expected.dtype:
            text = "nothing" if found is None else f"{found.dtype}{found.shape}"
            raise ValueError(f"{file} does not fit these settings: {name} should be {expected.dtype}{expected.shape}, found {text}")
        value = jnp.asarray(found)
        out.append(jax.random.wrap_key_data(value) if is_key(x) else value)
    return jax.tree.unflatten(tree, out)


class BrokenFile(ValueError):
    """A file that is no complete checkpoint."""


def _read(file: Path) -> dict[str, np.ndarray]:
    """All arrays of a file by name."""
    try:
        with open(file, "rb") as stream, np.load(stream) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError:
        raise
    except Exception as error:  # numpy, zipfile and zlib raise whatever they like
        raise BrokenFile(f"{file} is no complete checkpoint ({type(error).__name__}: {str(error)[:100]})") from None


def _check(file: Path, learner: Learner) -> None:
    """Refuse what no run writes, or what no run can continue from."""
    for name in ("params", "optimizer", "statistics"):
        for path, x in jax.tree_util.tree_flatten_with_path(getattr(learner, name))[0]:
            if not np.isfinite(x).all():
                where = f".{name}{jax.tree_util.keystr(path)}"
                raise ValueError(f"{file}: {where} is not finite; delete the file to resume from the checkpoint before it")
    named = file.stem.removeprefix("checkpoint-")
    if f"{int(learner.iteration):07d}" != named:
        raise ValueError(f"{file}: found {int(learner.iteration)} iterations; allowed: the number in the name of the file")
