"""Arrays of values of a program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Array:
    """values: the value of each entry (integers). numbers: the entries themselves where all are constants, then ``values`` is unused."""

    values: Any
    dtype: np.dtype
    numbers: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.values if self.numbers is None else self.numbers).shape

    def moved(self, function: Callable) -> Array:
        """The array with its entries moved. function: of a numpy array."""
        if self.numbers is None:
            return Array(function(self.values), self.dtype)
        return constant_array(function(self.numbers))

    def __getitem__(self, index) -> Array:
        return self.moved(lambda a: np.asarray(a[index]))


@dataclass(frozen=True, eq=False)
class Total(Array):
    """An array to which a loop adds, and does nothing else: it is in memory. buffer: of the program, with an entry more than the array.
    around: the scope of the loop, in which the buffer is. values: those before the loop."""

    buffer: int = -1
    around: Any = None


def combined(combine: Callable, parts: list):
    """Parts, at least one, combined in pairs: (a + b) + (c + d) and so on, whose rounding errors and depth grow with log(n)."""
    while len(parts) > 1:
        parts = [combine(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def constant_array(numbers: np.ndarray) -> Array:
    """An array of constants."""
    numbers = np.asarray(numbers)
    return Array(None, numbers.dtype, numbers)
