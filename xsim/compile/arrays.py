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


def constant_array(numbers: np.ndarray) -> Array:
    """An array of constants."""
    numbers = np.asarray(numbers)
    return Array(None, numbers.dtype, numbers)
