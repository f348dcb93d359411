"""Collects the rows of the leaves while a model is built."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Any

import jax.numpy as jnp
import numpy as np

from xsim.model.model import GROUPS, LEAVES, as_array

__all__ = ["LeafRows"]


class LeafRows:
    """The rows of each leaf, in the order in which they are added.

    In the declaration of a leaf (`xsim.model.model`) the first dimension is the number of rows, the others are the shape of a row."""

    def __init__(self):
        self._rows: dict[str, list] = {path: [] for path, leaf in LEAVES.items() if leaf.shape and isinstance(leaf.shape[0], str)}

    def __getitem__(self, path: str) -> list:
        return self._rows[path]

    def add(self, path: str, row) -> int:
        """Append a row and return its index."""
        self._rows[path].append(row)
        return len(self._rows[path]) - 1

    def add_optional(self, path: str, row) -> int | None:
        """Append a row and return its index; None for None."""
        return None if row is None else self.add(path, row)

    def add_to(self, group: str, **rows) -> int:
        """Append one row to each of several leaves of a group with the same first dimension, and return its index."""
        (index,) = {self.add(f"{group}.{name}", row) for name, row in rows.items()}
        return index

    def sizes(self) -> dict[str, int]:
        """Length of the first dimension of all leaves. Raises ValueError if leaves of one dimension have different numbers of rows."""
        out: dict[str, int] = {}
        for path, rows in self._rows.items():
            dimension = LEAVES[path].shape[0]
            if out.setdefault(dimension, len(rows)) != len(rows):
                raise ValueError(f"{path} has {len(rows)} rows, other leaves of the dimension {dimension} {out[dimension]}")
        return out

    def arrays(self, group: str, **others) -> Any:
        """A group of leaves as arrays. others: its fields that have no rows."""
        cls = GROUPS[group]
        return cls(**{f.name: self._array(f"{group}.{f.name}") for f in dataclasses.fields(cls) if f.name not in others}, **others)

    def _array(self, path: str):
        rows = self._rows[path]
        return leaf_array(np.asarray(rows, float).reshape(len(rows), *LEAVES[path].shape[1:]), path)


def leaf_array(values, path: str = "a leaf"):
    """An array of the leaves' dtype: float64 under jax's x64 flag, else float32. path: of the leaf. Warns of numbers that overflow."""
    given, dtype = np.asarray(values), jnp.result_type(float)
    with np.errstate(over="ignore"):
        numbers = given.astype(dtype)
    overflowed = np.argwhere(np.isinf(numbers) & np.isfinite(given))
    if len(overflowed):
        place = tuple(overflowed[0].tolist())
        text = f"{path}: {given[place]:g} at {list(place)} is larger than {dtype} holds ({jnp.finfo(dtype).max:.3g}): it becomes infinite"
        warnings.warn(f"{text}; allowed: smaller numbers, or jax's x64 flag", UserWarning, stacklevel=2)
    return as_array(numbers, dtype)
