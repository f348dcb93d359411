"""Square matrices in the memory of an environment, and loops over their rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from xsim.compile.arrays import Array
from xsim.compile.program import BOOL, INDEX


@dataclass(frozen=True)
class Memory:
    """A square matrix in a buffer, one row after the other. f: the flattener. size: number of rows."""

    f: Any
    buffer: int
    size: int

    def at(self, row: int, column: int) -> int:
        """The position of an entry. row, column: values."""
        f = self.f
        start = f.builder.operation("mul", INDEX, (row, f.builder.constant(self.size, INDEX)))
        return f.builder.operation("add", INDEX, (start, column))

    def load(self, position: int, row: int = 0, column: int = 0) -> int:
        """The entry at so many rows and columns after a position."""
        return self.f.program.load(self.buffer, position, row * self.size + column)

    def store(self, position: int, row: int, column: int, value: int) -> None:
        self.f.program.store(self.buffer, position, row * self.size + column, value)

    def add(self, position: int, offset: int, value: int) -> None:
        """Add a value to the entry so many after a position."""
        self.f.program.store(self.buffer, position, offset, value, adds=True)


class Numbers:
    """Operations on values of a type."""

    def __init__(self, f, dtype: np.dtype):
        self.f, self.dtype = f, dtype

    def __call__(self, name: str, *values: int) -> int:
        return self.f.builder.operation(name, self.dtype, values)

    def constant(self, number: float) -> int:
        return self.f.builder.constant(number, self.dtype)

    def sum_of_products(self, left: list[int], right: list[int]) -> int:
        return self.sum([self("mul", a, b) for a, b in zip(left, right, strict=True)])

    def sum(self, terms: list[int]) -> int:
        return functools.reduce(functools.partial(self, "add"), terms)

    def minus_products(self, start: int, left: list[int], right: list[int]) -> int:
        """start - sum of left * right."""
        for a, b in zip(left, right, strict=True):
            start = self("sub", start, self("mul", a, b))
        return start


def index_array(value: int) -> Array:
    """A value as an array."""
    return Array(np.array(value), INDEX)


def plus(f, index: int, number: int) -> int:
    """An index plus a number."""
    return f.builder.operation("add", INDEX, (index, f.builder.constant(number, INDEX)))


def counted(f, key, first: int, end: int, carry: list[Array], turn, step: int = 1) -> list[Array]:
    """carry = turn(i, carry) for i = first, first + step, ... before end; after end if step is negative. first, end: values."""

    def condition(carried):
        name = "lt" if step > 0 else "gt"
        return f.operate(name, BOOL, carried[0], index_array(end))

    def body(carried):
        i = int(f.ids(carried[0]))
        return [index_array(plus(f, i, step)), *turn(i, carried[1:])]

    return f.rolled(key, [index_array(first), *carry], condition, body).results[1:]
