"""Checkpoints: all of a `Learner` in one folder, written by orbax, each process of a run its share. A run that was stopped and resumed
equals the uninterrupted one bit for bit (same machine, same number of environments and devices)."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from xsim.train.distributed import is_key, is_writer
from xsim.train.ppo import Learner

__all__ = ["BrokenCheckpoint", "checkpoints", "restore", "restore_newest", "restore_policy", "save"]

T = TypeVar("T")


def save(folder: Path, learner: Learner, keep: int) -> Path:
    """Write a checkpoint, in full or not at all, and delete all but the last ``keep``. All processes of a run call it."""
    checkpoint = (folder / f"checkpoint-{int(learner.iteration):07d}").absolute()
    arrays = {name: jax.random.key_data(x) if is_key(x) else x for name, x in _named(learner).items() if x.size}
    with _checkpointer() as writer:
        writer.save(checkpoint, arrays, force=True)
    if is_writer():
        for old in [x for x in checkpoints(folder) if x.name <= checkpoint.name][:-keep]:  # a later one is of another run, or broken
            shutil.rmtree(old)
    return checkpoint


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(x for x in folder.glob("checkpoint-*") if x.is_dir() and x.name.removeprefix("checkpoint-").isdigit())


def restore_newest(folder: Path, like: Learner) -> Learner:
    """The Learner of the newest checkpoint that can be read; warns of those that are empty or cut off. Raises ValueError as `restore`
    does, and where no checkpoint can be read."""
    return _newest(folder, lambda checkpoint: restore(checkpoint, like))


def _newest(folder: Path, read: Callable[[Path], T]) -> T:
    """What ``read`` makes of the newest checkpoint that is complete."""
    for checkpoint in reversed(checkpoints(folder)):
        try:
            return read(checkpoint)
        except BrokenCheckpoint as error:
            warnings.warn(f"{error}; looking at the checkpoint before it", UserWarning, stacklevel=2)
    raise ValueError(f"no checkpoint in {folder} can be read")


def restore(checkpoint: Path, like: Learner) -> Learner:
    """The Learner of a checkpoint. like: one of the same structure, of shapes, with the shardings that the arrays get.

    Raises BrokenCheckpoint where it is empty, cut off or no checkpoint at all; ValueError where it does not fit ``like``, its weights are
    not finite, or the iterations that it counts are not those of its name.
    """
    learner = _fitted(checkpoint, _shapes(checkpoint), like)
    _check(checkpoint, learner)
    return learner


def restore_policy(folder: Path, like: Callable[[int, int, int, np.dtype], T]) -> T:
    """The part of a Learner that a policy needs, of the newest checkpoint that can be read.

    like: what it is like, shapes with the fields ``params`` and ``statistics``, from the widths of what policy and value read, the number
    of actions and the type of their numbers. Raises ValueError where no checkpoint can be read, or where it does not fit."""

    def read(checkpoint: Path) -> T:
        shapes = _shapes(checkpoint)
        observed, acted = (shapes.get(name) for name in (".statistics.mean", ".params['params']['log_deviation']"))
        if observed is None or acted is None or not len(observed.shape) == len(acted.shape) == 1:
            raise ValueError(f"{checkpoint} holds no policy")
        of_value = shapes.get(".value_statistics.mean", observed)
        return _fitted(checkpoint, shapes, like(observed.shape[0], of_value.shape[0], acted.shape[0], observed.dtype))

    return _newest(folder, read)


# ---- arrays by name ------------------------------------------------------------------------------------------------------------


def _named(tree) -> dict[str, Any]:
    """The leaves of a tree by their paths."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_flatten_with_path(tree)[0]}


def _fitted(checkpoint: Path, found: dict[str, Any], like: T) -> T:
    """The arrays of a checkpoint in the structure of ``like``. found: the shapes that it holds. Raises ValueError where they do not fit."""
    expected = {name: _stored(x) for name, x in _named(like).items()}
    for name, x in expected.items():
        there = found.get(name)
        if x.size and (there is None or there.shape != x.shape or there.dtype != x.dtype):
            text = "nothing" if there is None else f"{there.dtype}{there.shape}"
            raise ValueError(f"{checkpoint} does not fit these settings: {name} should be {x.dtype}{x.shape}, found {text}")
    arrays = _read(checkpoint, {name: x for name, x in expected.items() if x.size})

    def value(name: str, x):
        stored = arrays[name] if name in arrays else jnp.zeros(x.shape, x.dtype)
        return jax.random.wrap_key_data(stored) if is_key(x) else stored

    return jax.tree.unflatten(jax.tree.structure(like), [value(name, x) for name, x in _named(like).items()])


def _stored(x) -> jax.ShapeDtypeStruct:
    """Shape, type and sharding of an array as it is stored: random keys as their numbers. Without a sharding: the first device."""
    numbers = jax.eval_shape(jax.random.key_data, x) if is_key(x) else x
    sharding = x.sharding or jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(numbers.shape, numbers.dtype, sharding=sharding)


# ---- orbax ---------------------------------------------------------------------------------------------------------------------


class BrokenCheckpoint(ValueError):
    """A folder that is no complete checkpoint."""


def _checkpointer():
    import orbax.checkpoint

    return orbax.checkpoint.Checkpointer(orbax.checkpoint.PyTreeCheckpointHandler())


def _shapes(checkpoint: Path) -> dict[str, Any]:
    """Shapes and types of the arrays of a checkpoint, by name."""

    def read(reader):
        return dict(reader.metadata(checkpoint.absolute()).item_metadata.tree)

    return _or_broken(checkpoint, read)


def _read(checkpoint: Path, shapes: dict[str, jax.ShapeDtypeStruct]) -> dict[str, jax.Array]:
    """Some arrays of a checkpoint."""
    from orbax.checkpoint import ArrayRestoreArgs
    from orbax.checkpoint.args import PyTreeRestore

    how = {name: ArrayRestoreArgs(sharding=x.sharding) for name, x in shapes.items()}
    return _or_broken(checkpoint, lambda r: r.restore(checkpoint.absolute(), PyTreeRestore(shapes, how, partial_restore=True)))


def _or_broken(checkpoint: Path, read: Callable[[Any], T]) -> T:
    """What ``read`` makes of a checkpoint. Raises BrokenCheckpoint where it fails."""
    try:
        with _checkpointer() as reader:
            return read(reader)
    except Exception as error:  # orbax and tensorstore raise whatever they like
        text = " ".join(str(error).split())[:100]
        raise BrokenCheckpoint(f"{checkpoint} is no complete checkpoint ({type(error).__name__}: {text})") from None


def _check(checkpoint: Path, learner: Learner) -> None:
    """Refuse what no run writes, or what no run can continue from."""
    for name in ("params", "optimizer", "statistics", "value_statistics"):
        for path, x in _named(getattr(learner, name)).items():
            if not np.isfinite(x.addressable_data(0)).all():
                raise ValueError(f"{checkpoint}: .{name}{path} is not finite; delete it to resume from the checkpoint before it")
    named = checkpoint.name.removeprefix("checkpoint-")
    if f"{int(learner.iteration):07d}" != named:
        raise ValueError(f"{checkpoint}: found {int(learner.iteration)} iterations; allowed: the number in its name")
