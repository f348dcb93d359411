"""Large symmetric matrices in the memory of an environment: Cholesky factorization and the solution of equations, as loops.

The matrix is divided into tiles. The innermost loop adds up the products of a tile, whose sums are in registers (Golub and Van Loan, Matrix
Computations, section 4.2: Cholesky by blocks of dot products). Tiles of the factor that are zero in all environments of a block are left
out (`xsim.compile.sparsity`). The length of the program does not depend on the size of the matrix, but for the stores of its entries.

The last row is eliminated first, as in `xsim.dynamics.linalg.dense.Cholesky`: row i of a matrix is row n - 1 - i in memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xsim.compile.arrays import Array, constant_array
from xsim.compile.matrices import Memory, Numbers, counted, plus
from xsim.compile.program import BOOL, INDEX
from xsim.compile.sparsity import TILE, Pattern, each_bit, group_size, padded

_GROUPS, _COLUMNS, _GROUPS_BELOW, _TILES, _TILES_OF_GROUP = (object() for _ in range(5))
_DOWN, _DOWN_TILES, _UP, _UP_TILES = (object() for _ in range(4))
_DIAGONAL, _PRODUCTS, _BEFORE, _AFTER = (tuple(object() for _ in range(3)) for _ in range(4))
"""The loops, see `Flattener.rolled`. Of sums those over groups, over the tiles of a group, and over those of the group of the result."""


class _Group(NamedTuple):
    """A group of rows and columns.

    first, end: its first row, and that of the next group. before, below: as bits, the groups of columns before in which its rows are not
    zero, and the groups of rows below in which its columns are not."""

    first: int
    end: int
    before: int
    below: int


class _Factor:
    """A Cholesky factor L (m m) in memory, the inverses of its diagonal (m), and its pattern."""

    def __init__(self, f, dtype: np.dtype, lower: int, inverses: int, pattern: Pattern, m: int):
        self.f, self.number = f, Numbers(f, dtype)
        self.lower, self.inverses, self.pattern = Memory(f, lower, m), inverses, pattern

    def group(self, number: int) -> _Group:
        """A group of the pattern."""
        p, pattern = self.f.program, self.pattern
        first = pattern.first(number)
        return _Group(first, plus(self.f, first, pattern.size), p.load(pattern.rows, number), p.load(pattern.columns, number))

    def sum_of_tiles(self, keys: tuple, mask: int, own: tuple[int, int], start: list[int], turn: Callable) -> list[int]:
        """sums = turn(k, sums) for the first columns k of tiles: of the groups in a mask, and in the group of the result from own[0] up to
        own[1]."""

        def array_turn(k: int, carry: list[Array]) -> list[Array]:
            return [Array(np.array(turn(k, self.f.ids(carry[0]).tolist())), self.number.dtype)]

        sums = self.pattern.tiles_of(keys[:2], mask, [Array(np.array(start), self.number.dtype)], array_turn)
        if self.pattern.size > TILE:
            sums = counted(self.f, keys[2], *own, sums, array_turn, TILE)
        return self.f.ids(sums[0]).tolist()


# ---- factorization ------------------------------------------------------------------------------------------------------------


def factored(f, equation, matrix: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.dense.FACTOR`, of a symmetric matrix (n, n).

    Its Cholesky factor L (m m), one row after the other, of which only what is below the diagonal and in the pattern has a meaning; the
    inverses of the diagonal (m); the rows and columns of the `Pattern`; and 1 if all pivots are usable, else 0. m: `padded`."""
    factorization = _Factorization(f, matrix, equation.params["eps"])
    zero, count = (f.builder.constant(k, INDEX) for k in (0, factorization.lower.size // factorization.pattern.size))
    (pivot,) = counted(f, _GROUPS, zero, count, [constant_array(np.ones((), matrix.dtype))], factorization.factor_group)
    return [*(Array(np.array(f.program.entries(x)), f.program.types[x]) for x in factorization.buffers), pivot]


class _Factorization(_Factor):
    """given: the matrix. slack: a pivot is usable if it is larger than this part of the entry of the matrix. buffers: what is found."""

    def __init__(self, f, matrix: Array, slack: float):
        n, p = matrix.shape[0], f.program
        m, size = padded(n), group_size(n)
        numbers = p.buffer(m * m, matrix.dtype), p.buffer(m, matrix.dtype)
        masks = [p.filled([f.builder.constant(0, INDEX)] * (m // size), INDEX, varying=False) for _ in range(2)]
        super().__init__(f, matrix.dtype, *numbers, Pattern(f, size, *masks), m)
        self.buffers = [*numbers, *masks]
        self.given = _in_memory(f, matrix) or _stored(self.lower, matrix)
        self.slack = self.number.constant(slack)

    def factor_group(self, number: int, carry: list[Array]) -> list[Array]:
        """The columns of a group. carry: 1 if all pivots so far are usable."""
        self.pattern.add_column(self.given, number)
        group = self.group(number)
        return self.pattern.tiles(_COLUMNS, number, carry, lambda start, carry: self._columns(group, start, carry))

    def _columns(self, group: _Group, start: int, carry: list[Array]) -> list[Array]:
        """Columns start, ..., start + TILE - 1 of a group."""
        f, p, pattern = self.f, self.f.program, self.pattern
        corner, pivot = self._corner(group, start, int(f.ids(carry[0])))

        def tile_of_group(row: int, _) -> list[Array]:
            return self._tile(group, group.before, row, start, corner)

        def group_below(other: int, _) -> list[Array]:
            both = f.builder.operation("and", INDEX, (group.before, p.load(pattern.rows, other)))
            return pattern.tiles(_TILES, other, [], lambda row, _: self._tile(group, both, row, start, corner))

        if pattern.size > TILE:
            counted(f, _TILES_OF_GROUP, plus(f, start, TILE), group.end, [], tile_of_group, TILE)
        each_bit(f, _GROUPS_BELOW, group.below, [], group_below)
        return [Array(np.array(pivot), self.number.dtype)]

    def _corner(self, group: _Group, start: int, pivot: int) -> tuple[dict, int]:
        """The tile on the diagonal in these columns {(row, column): entry}, with the inverses of its diagonal there; and the pivot."""
        p, number, found = self.f.program, self.number, {}
        position = self.lower.at(start, start)
        entries = {(r, c): self.given.load(position, r, c) for c in range(TILE) for r in range(c, TILE)}
        left = self._reduced(group, group.before, start, start, entries)
        for c in range(TILE):
            known = [found[c, d] for d in range(c)]
            square = number.minus_products(left[c, c], known, known)
            usable = self.f.builder.operation("gt", BOOL, (square, number("mul", self.slack, number("abs", entries[c, c]))))
            root = number("sqrt", number("select_n", usable, number.constant(1), square))
            found[c, c] = number("div", number.constant(1), root)
            pivot = number("select_n", usable, number.constant(0), pivot)
            p.store(self.inverses, start, c, found[c, c])
            for r in range(c + 1, TILE):
                rest = number.minus_products(left[r, c], [found[r, d] for d in range(c)], known)
                found[r, c] = number("mul", rest, found[c, c])
                self.lower.store(position, r, c, found[r, c])
        return found, pivot

    def _tile(self, group: _Group, mask: int, row: int, start: int, corner: dict) -> list[Array]:
        """Rows row, ..., row + TILE - 1 of columns start, ... of a group. mask: the groups of columns before in which they and the rows of
        the group are not zero."""
        number, position = self.number, self.lower.at(row, start)
        entries = {(r, c): self.given.load(position, r, c) for c in range(TILE) for r in range(TILE)}
        left = self._reduced(group, mask, row, start, entries)
        for r in range(TILE):
            solved: list[int] = []
            for c in range(TILE):
                rest = number.minus_products(left[r, c], solved, [corner[c, d] for d in range(c)])
                solved.append(number("mul", rest, corner[c, c]))
                self.lower.store(position, r, c, solved[c])
        return []

    def _reduced(self, group: _Group, mask: int, row: int, column: int, given: dict) -> dict:
        """given[r, c] - sum of L[row + r, k] L[column + c, k], of the entries of a tile: over the columns k of the groups in a mask, and
        those before ``column`` in its group."""
        number, lower = self.number, self.lower

        def products(k: int, sums: list[int]) -> list[int]:
            at_rows, at_columns = lower.at(row, k), lower.at(column, k)
            for d in range(TILE):
                left = {r: lower.load(at_rows, r, d) for r in {r for r, _ in given}}
                right = left if row == column else {c: lower.load(at_columns, c, d) for c in {c for _, c in given}}
                sums = [number("sub", x, number("mul", left[r], right[c])) for x, (r, c) in zip(sums, given, strict=True)]
            return sums

        keys = _DIAGONAL if row == column else _PRODUCTS
        sums = self.sum_of_tiles(keys, mask, (group.first, column), list(given.values()), products)
        return dict(zip(given, sums, strict=True))


def lower_triangle(f, matrix: Array, size: int) -> list[tuple[int, int, int]]:
    """(row, column, value) of the lower triangle in memory of a symmetric matrix, with ones on the diagonal of further rows up to ``size``.
    It begins with the last row of the matrix."""
    n, entries, number = matrix.shape[0], f.ids(matrix)[::-1, ::-1], Numbers(f, matrix.dtype)

    def entry(row: int, column: int) -> int:
        return int(entries[row, column]) if row < n else number.constant(row == column)

    return [(row, column, entry(row, column)) for column in range(size) for row in range(column, size)]


def upper_triangle(p, buffer: int, n: int) -> np.ndarray:
    """The loads of the upper triangle of a symmetric matrix (n, n) of which `lower_triangle` is in a buffer."""
    m = padded(n)
    return np.triu(np.array(p.entries(buffer)[: m * m]).reshape(m, m)[:n, :n][::-1, ::-1])


def _stored(lower: Memory, matrix: Array) -> Memory:
    """Store the lower triangle of a symmetric matrix."""
    zero = lower.f.builder.constant(0, INDEX)
    for row, column, value in lower_triangle(lower.f, matrix, lower.size):
        lower.store(zero, row, column, value)
    return lower


def _in_memory(f, matrix: Array) -> Memory | None:
    """Where a symmetric matrix is in memory, if it is the result of `xsim.compile.assembly.with_curvature`."""
    p, n = f.program, matrix.shape[0]
    m, values = padded(n), [] if matrix.numbers is not None else matrix.values
    buffer = p.arguments[values[0, 0]][0] if len(values) and p.names[values[0, 0]] == "load" else None
    if buffer not in p.complete or p.data[buffer] != m * m + 1:
        return None
    return Memory(f, buffer, m) if (np.triu(values) == upper_triangle(p, buffer, n)).all() else None


# ---- solution -----------------------------------------------------------------------------------------------------------------


def solved(f, equation, factor: Array, inverses: Array, rows: Array, columns: Array, b: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.dense.SOLVE`: the solution x (n) of L L^T x = b, see `factored`."""
    p, n = f.program, b.shape[0]
    solution = _Solution(f, [p.array(f.ids(x).tolist(), x.dtype) for x in (factor, inverses, rows, columns)], b, inverses.shape[0])
    zero, before, count = (f.builder.constant(k, INDEX) for k in (0, -1, rows.shape[0]))
    counted(f, _DOWN, zero, count, [], solution.forward)
    counted(f, _UP, plus(f, count, -1), before, [], solution.backward, -1)
    return [Array(np.array(p.entries(solution.x)[:n][::-1]), b.dtype)]


class _Solution(_Factor):
    """x: the right side, then the solution."""

    def __init__(self, f, factor: list[int], b: Array, m: int):
        super().__init__(f, b.dtype, *factor[:2], Pattern(f, group_size(m), *factor[2:]), m)
        self.x = f.program.filled([*f.ids(b).tolist()[::-1], *[self.number.constant(0)] * (m - b.shape[0])], b.dtype)

    def forward(self, number: int, _) -> list[Array]:
        """x = L^-1 x, of a group of rows."""
        group, lower = self.group(number), self.lower

        def tile(start: int, _) -> list[Array]:
            corner = lower.at(start, start)
            rest = self._reduced(_BEFORE, start, group.before, (group.first, start), lambda k: (lower.at(start, k), False))
            self._solve(start, rest, range(TILE), lambda row, column: lower.load(corner, row, column))
            return []

        return self.pattern.tiles(_DOWN_TILES, number, [], tile)

    def backward(self, number: int, _) -> list[Array]:
        """x = L^-T x, of a group of rows, from the last."""
        f, group, lower = self.f, self.group(number), self.lower

        def tile(start: int, _) -> list[Array]:
            corner, after = lower.at(start, start), (plus(f, start, TILE), group.end)
            rest = self._reduced(_AFTER, start, group.below, after, lambda k: (lower.at(k, start), True))
            self._solve(start, rest, range(TILE)[::-1], lambda row, column: lower.load(corner, column, row))
            return []

        if self.pattern.size == TILE:
            return tile(group.first, [])
        return counted(f, _UP_TILES, plus(f, group.end, -TILE), plus(f, group.first, -TILE), [], tile, -TILE)

    def _reduced(self, keys: tuple, start: int, mask: int, own: tuple[int, int], tile: Callable) -> list[int]:
        """The rows start, ..., start + TILE - 1 of x minus the products of tiles with x. tile(k): the position of one, and whether it is
        transposed. keys, mask, own: see `sum_of_tiles`."""
        p, number = self.f.program, self.number

        def products(k: int, sums: list[int]) -> list[int]:
            position, transposed = tile(k)
            for d in range(TILE):
                other = p.load(self.x, k, d)
                column = [self.lower.load(position, *((d, c) if transposed else (c, d))) for c in range(TILE)]
                sums = [number("sub", x, number("mul", a, other)) for x, a in zip(sums, column, strict=True)]
            return sums

        return self.sum_of_tiles(keys, mask, own, [p.load(self.x, start, c) for c in range(TILE)], products)

    def _solve(self, start: int, rest: list[int], order: range, entry: Callable) -> None:
        """Store the solution of the equations of a triangular tile. entry(row, column): of the tile. order: of the rows."""
        p, number, found = self.f.program, self.number, {}
        for row in order:
            value = number.minus_products(rest[row], list(found.values()), [entry(row, column) for column in found])
            found[row] = number("mul", value, p.load(self.inverses, start, row))
            p.store(self.x, start, row, found[row])
