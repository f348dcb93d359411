"""Which tiles of a matrix are zero in a block of environments, found when the program runs.

Contacts decide which entries of a matrix are zero: bodies that do not touch each other are not coupled. A symbolic factorization by the
elimination tree tells which tiles of the Cholesky factor are not zero (Davis, Direct Methods for Sparse Linear Systems, chapter 4). Sets of
rows and columns are the bits of integers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from xsim.compile.arrays import Array, combined, constant_array
from xsim.compile.matrices import Memory, counted, index_array, plus
from xsim.compile.program import BOOL, INDEX

TILE = 3
"""Rows and columns of a tile. It divides the six rows of a free body."""
MAX_GROUPS = 32
"""Bits of an integer."""

_MARK, _MARK_ROWS, _TILES, _TILE_ROWS = (object() for _ in range(4))
"""The loops, see `Flattener.rolled`."""


def group_size(n: int) -> int:
    """Rows of a group of tiles, of a matrix of n rows: a bit stands for a group."""
    return -(-n // (TILE * MAX_GROUPS)) * TILE


def padded(n: int) -> int:
    """The least multiple of `group_size` that is not smaller."""
    return -(-n // group_size(n)) * group_size(n)


def any_nonzero(f, values: list[int]) -> int:
    """Whether a number is not zero. A negative zero counts as another number."""
    word, operation = np.dtype(f"i{f.program.types[values[0]].itemsize}"), f.builder.operation
    bits = combined(lambda a, b: operation("or", word, (a, b)), [operation("bitcast", word, (x,)) for x in values])
    return operation("ne", BOOL, (bits, f.builder.constant(0, word)))


def each_bit(f, key, mask: int, carry: list[Array], turn: Callable) -> list[Array]:
    """carry = turn(k, carry) for the bits k of an integer that are set, from the lowest."""

    def condition(carried):
        return f.operate("ne", BOOL, carried[0], constant_array(np.zeros((), INDEX)))

    def body(carried):
        bits = int(f.ids(carried[0]))
        rest = f.builder.operation("and", INDEX, (bits, plus(f, bits, -1)))
        return [index_array(rest), *turn(f.builder.operation("trailing_zeros", INDEX, (bits,)), carried[1:])]

    return f.rolled(key, [index_array(mask), *carry], condition, body).results[1:]


def each_member(f, key, group: int, size: int, step: int, carry: list[Array], turn: Callable) -> list[Array]:
    """carry = turn(i, carry) for i = group * size, step after step, before (group + 1) * size. Without a loop if that is one step."""
    first = f.builder.operation("mul", INDEX, (group, f.builder.constant(size, INDEX)))
    return turn(first, carry) if size == step else counted(f, key, first, plus(f, first, size), carry, turn, step)


@dataclass(frozen=True)
class Pattern:
    """Which groups of tiles of a factor L are not zero in some environment of the block.

    f: the flattener. size: rows of a group. rows, columns: arrays with an integer for each group. In ``rows[i]`` bit j < i is set, and in
    ``columns[j]`` bit i > j, if the group of these rows and columns is not zero."""

    f: Any
    size: int
    rows: int
    columns: int

    def first(self, group: int) -> int:
        """The first row of a group."""
        return self.f.builder.operation("mul", INDEX, (group, self.f.builder.constant(self.size, INDEX)))

    def tiles(self, key, group: int, carry: list[Array], turn: Callable) -> list[Array]:
        """carry = turn(first row of a tile, carry) for the tiles of a group."""
        return each_member(self.f, key, group, self.size, TILE, carry, turn)

    def tiles_of(self, keys: tuple, mask: int, carry: list[Array], turn: Callable) -> list[Array]:
        """`tiles` of the groups whose bits are set."""
        return each_bit(self.f, keys[0], mask, carry, lambda group, carry: self.tiles(keys[1], group, carry, turn))

    def add_column(self, matrix: Memory, group: int) -> None:
        """Set the bits of a group of columns, after those of the columns before.

        The factor is not zero where the matrix is not, nor where a column is not that has its first entry below the diagonal in one of
        these rows, the children of the elimination tree."""
        f, p, operation = self.f, self.f.program, self.f.builder.operation
        count, one, zero = (f.builder.constant(k, INDEX) for k in (matrix.size // self.size, 1, 0))

        def mark(row: int, carry: list[Array]) -> list[Array]:
            bit = operation("select_n", INDEX, (self.is_nonzero(matrix, row, group), zero, operation("shift_left", INDEX, (one, row))))
            return [index_array(operation("or", INDEX, (int(f.ids(carry[0])), bit)))]

        (marked,) = counted(f, _MARK, plus(f, group, 1), count, [index_array(zero)], mark)
        bits = operation("or", INDEX, (p.load(self.columns, group), p.block_or(int(f.ids(marked)))))
        p.store(self.columns, group, 0, bits)
        lowest = operation("trailing_zeros", INDEX, (bits,))  # a number after the last group if there are no bits
        parent = operation("min", INDEX, (lowest, plus(f, count, -1)))
        others = operation("and", INDEX, (bits, plus(f, bits, -1)))
        p.store(self.columns, parent, 0, operation("or", INDEX, (p.load(self.columns, parent), others)))
        column = operation("shift_left", INDEX, (one, group))

        def mark_row(row: int, carry: list[Array]) -> list[Array]:
            p.store(self.rows, row, 0, operation("or", INDEX, (p.load(self.rows, row), column)))
            return []

        each_bit(f, _MARK_ROWS, bits, [], mark_row)

    def is_nonzero(self, matrix: Memory, row: int, column: int) -> int:
        """Whether a group of rows and columns is not zero in an environment."""

        def of_rows(first_row: int, carry: list[Array]) -> list[Array]:
            def of_tile(first_column: int, carry: list[Array]) -> list[Array]:
                position = matrix.at(first_row, first_column)
                entries = [matrix.load(position, r, c) for r in range(TILE) for c in range(TILE)]
                return [self.f.operate("or", BOOL, carry[0], Array(np.array(any_nonzero(self.f, entries)), BOOL))]

            return self.tiles(_TILES, column, carry, of_tile)

        return int(self.f.ids(self.tiles(_TILE_ROWS, row, [constant_array(np.zeros((), bool))], of_rows)[0]))
