"""Large symmetric matrices in the memory of an environment: Cholesky factorization and the solution of equations, as loops.

The matrix is divided into tiles of `TILE` rows and columns. The innermost loop adds up the products of a tile, whose sums are in registers
(Golub and Van Loan, Matrix Computations, section 4.2: Cholesky by blocks of dot products). The length of the program does not depend on the
size of the matrix, but for the stores of its entries.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from xsim.compile.arrays import Array, constant_array
from xsim.compile.program import BOOL, INDEX

TILE = 4

_BLOCKS, _DIAGONAL, _ROWS, _PRODUCTS, _DOWN, _UP, _BEFORE, _AFTER = (object() for _ in range(8))
"""The loops, see `Flattener.rolled`."""


def padded(n: int) -> int:
    """The least multiple of `TILE` that is not smaller."""
    return -(-n // TILE) * TILE


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
        p = self.f.program
        total = self.f.builder.operation("add", p.types[value], (p.load(self.buffer, position, offset), value))
        p.store(self.buffer, position, offset, total)


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


def _index(f, value: int) -> Array:
    return Array(np.array(value), INDEX)


def plus(f, index: int, number: int) -> int:
    return f.builder.operation("add", INDEX, (index, f.builder.constant(number, INDEX)))


def counted(f, key, first: int, end: int, carry: list[Array], turn, step: int = 1) -> list[Array]:
    """carry = turn(i, carry) for i = first, first + step, ... before end; after end if step is negative. first, end: values."""

    def condition(carried):
        name = "lt" if step > 0 else "gt"
        return f.operate(name, BOOL, carried[0], _index(f, end))

    def body(carried):
        i = int(f.ids(carried[0]))
        return [_index(f, plus(f, i, step)), *turn(i, carried[1:])]

    return f.rolled(key, [_index(f, first), *carry], condition, body).results[1:]


def factored(f, equation, matrix: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.dense.FACTOR`: of a symmetric matrix (n, n), its Cholesky factor L (m m), one row after the
    other, of which only what is below the diagonal has a meaning; the inverses of the diagonal (m); and 1 if all pivots are usable, else 0.
    m: `padded`."""
    p, dtype, n = f.program, matrix.dtype, matrix.shape[0]
    m, number, slack = padded(n), Numbers(f, dtype), equation.params["eps"]
    lower, inverses = Memory(f, p.buffer(m * m, dtype), m), p.buffer(m, dtype)
    zero, end, one = f.builder.constant(0, INDEX), f.builder.constant(m, INDEX), number.constant(1)
    given = _in_memory(f, matrix) or lower
    if given is lower:
        entries = f.ids(matrix)
        for column in range(m):
            for row in range(column, m):
                value = int(entries[row, column]) if row < n else number.constant(row == column)
                lower.store(zero, row, column, value)

    def block(start: int, carry: list[Array]) -> list[Array]:
        """Columns start, ..., start + TILE - 1 of the factor."""
        corner = lower.at(start, start)
        entries = {(r, c): given.load(corner, r, c) for c in range(TILE) for r in range(c, TILE)}
        left = _reduced(f, _DIAGONAL, lower, start, start, entries, number)
        pivot, inverse, diagonal = int(f.ids(carry[0])), [], {}
        for c in range(TILE):
            before = [diagonal[c, d] for d in range(c)]
            square = number.minus_products(left[c, c], before, before)
            usable = f.builder.operation("gt", BOOL, (square, number("mul", number.constant(slack), number("abs", entries[c, c]))))
            root = number("sqrt", number("select_n", usable, one, square))
            inverse.append(number("div", one, root))
            pivot = number("select_n", usable, number.constant(0), pivot)
            p.store(inverses, start, c, inverse[c])
            for r in range(c + 1, TILE):
                rest = number.minus_products(left[r, c], [diagonal[r, d] for d in range(c)], before)
                diagonal[r, c] = number("mul", rest, inverse[c])
                lower.store(corner, r, c, diagonal[r, c])

        def rows(first: int, _) -> list[Array]:
            """Rows first, ..., first + TILE - 1 of these columns."""
            position = lower.at(first, start)
            entries = {(r, c): given.load(position, r, c) for c in range(TILE) for r in range(TILE)}
            left = _reduced(f, _PRODUCTS, lower, first, start, entries, number)
            for r in range(TILE):
                solved: list[int] = []
                for c in range(TILE):
                    rest = number.minus_products(left[r, c], solved, [diagonal[c, d] for d in range(c)])
                    solved.append(number("mul", rest, inverse[c]))
                    lower.store(position, r, c, solved[c])
            return []

        counted(f, _ROWS, plus(f, start, TILE), end, [], rows, TILE)
        return [Array(np.array(pivot), dtype)]

    (pivot,) = counted(f, _BLOCKS, zero, end, [constant_array(np.ones((), dtype))], block, TILE)
    return [Array(np.array(p.entries(lower.buffer)), dtype), Array(np.array(p.entries(inverses)), dtype), pivot]


def _in_memory(f, matrix: Array) -> Memory | None:
    """Where a symmetric matrix is in memory, if it is the result of `xsim.compile.assembly.with_curvature`: its lower triangle, by rows,
    with ones on the diagonal of further rows up to `padded`."""
    p, n = f.program, matrix.shape[0]
    m, values = padded(n), [] if matrix.numbers is not None else matrix.values
    buffer = p.arguments[values[0, 0]][0] if len(values) and p.names[values[0, 0]] == "load" else None
    if buffer not in p.complete or p.data[buffer] != m * m + 1:
        return None
    entries = np.array(p.entries(buffer)[: m * m]).reshape(m, m)[:n, :n]
    return Memory(f, buffer, m) if (np.tril(values) == np.tril(entries)).all() else None


def _reduced(f, key, lower: Memory, row: int, column: int, given: dict, number: Numbers) -> dict:
    """given[r, c] - sum of L[row + r, k] L[column + c, k] over k < column, of the entries of a tile. row, column: values."""

    def products(k: int, carry: list[Array]) -> list[Array]:
        at_rows, at_columns = lower.at(row, k), lower.at(column, k)
        left = {r: lower.load(at_rows, r) for r in {r for r, _ in given}}
        right = left if row == column else {c: lower.load(at_columns, c) for c in {c for _, c in given}}
        sums = f.ids(carry[0]).tolist()
        new = [number("sub", x, number("mul", left[r], right[c])) for x, (r, c) in zip(sums, given, strict=True)]
        return [Array(np.array(new), number.dtype)]

    start = Array(np.array(list(given.values())), number.dtype)
    (sums,) = counted(f, key, f.builder.constant(0, INDEX), column, [start], products)
    return dict(zip(given, f.ids(sums).tolist(), strict=True))


def solved(f, equation, factor: Array, inverses: Array, b: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.dense.SOLVE`: the solution x (n) of L L^T x = b, see `factored`."""
    p, dtype, n = f.program, b.dtype, b.shape[0]
    m, number = inverses.shape[0], Numbers(f, dtype)
    lower = Memory(f, p.array(f.ids(factor).tolist(), dtype), m)
    inverse, x = p.array(f.ids(inverses).tolist(), dtype), p.buffer(m, dtype)
    zero, last, end = (f.builder.constant(k, INDEX) for k in (0, m - TILE, m))
    for row, value in enumerate([*f.ids(b).tolist(), *[number.constant(0)] * (m - n)]):
        p.store(x, zero, row, value)

    def reduced(key, start: int, first: int, end: int, column) -> list[int]:
        """The rows start, ..., start + TILE - 1 of x minus the sum of column(k) x_k over first <= k < end."""

        def products(k: int, carry: list[Array]) -> list[Array]:
            other, sums = p.load(x, k), f.ids(carry[0]).tolist()
            return [Array(np.array([number("sub", v, number("mul", a, other)) for v, a in zip(sums, column(k), strict=True)]), dtype)]

        given = Array(np.array([p.load(x, start, c) for c in range(TILE)]), dtype)
        return f.ids(counted(f, key, first, end, [given], products)[0]).tolist()

    def forward(start: int, _) -> list[Array]:
        """x = L^-1 b, of rows start, ..., start + TILE - 1."""

        def column(k: int) -> list[int]:
            position = lower.at(start, k)
            return [lower.load(position, c) for c in range(TILE)]

        corner, found = lower.at(start, start), []
        for c, rest in enumerate(reduced(_BEFORE, start, zero, start, column)):
            rest = number.minus_products(rest, found, [lower.load(corner, c, d) for d in range(c)])
            found.append(number("mul", rest, p.load(inverse, start, c)))
            p.store(x, start, c, found[c])
        return []

    def backward(start: int, _) -> list[Array]:
        """x = L^-T x, of these rows."""

        def column(k: int) -> list[int]:
            position = lower.at(k, start)
            return [lower.load(position, 0, c) for c in range(TILE)]

        corner, found = lower.at(start, start), {}
        rest = reduced(_AFTER, start, plus(f, start, TILE), end, column)
        for c in reversed(range(TILE)):
            later = range(c + 1, TILE)
            value = number.minus_products(rest[c], [found[d] for d in later], [lower.load(corner, d, c) for d in later])
            found[c] = number("mul", value, p.load(inverse, start, c))
            p.store(x, start, c, found[c])
        return []

    counted(f, _DOWN, zero, end, [], forward, TILE)
    counted(f, _UP, last, f.builder.constant(-TILE, INDEX), [], backward, -TILE)
    return [Array(np.array(p.entries(x)[:n]), dtype)]
