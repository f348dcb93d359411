"""Assembly in the memory of an environment: sums over rows that have few columns, such as those of contacts, as loops.

As in finite elements each term is added at the degrees of freedom that it depends on. These may differ between environments: contacts are
between other bodies in each.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np

from xsim.compile.arrays import Array, constant_array
from xsim.compile.indexing import dynamic_row
from xsim.compile.matrices import Memory, Numbers, counted
from xsim.compile.program import BOOL, INDEX
from xsim.compile.sparsity import MAX_GROUPS, TILE, any_nonzero, each_bit, each_member, padded
from xsim.compile.tiled import lower_triangle, upper_triangle

_COLUMNS, _ROWS, _TERMS, _WHERE, _PRODUCTS, _SUMS, _FORCES = (object() for _ in range(7))
_BLOCK_ROWS, _ROW_GROUPS, _BLOCKS, _COLUMN_GROUPS = (object() for _ in range(4))
"""The loops, see `Flattener.rolled`."""


def with_curvature(f, equation, matrix: Array, *terms: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.assembly.WITH_CURVATURE`. The result is a buffer, of which `tiled.factored` makes no copy."""
    n, p = matrix.shape[0], f.program
    m = padded(n)
    total = Memory(f, p.buffer(m * m + 1, matrix.dtype), m)  # the last entry takes what is added to none
    at_known_entries, others = [], []
    for term in zip(*[iter(terms)] * 4, strict=True):
        products = _products(f, n, *term)
        if products is None:
            others.append(term)
        else:
            at_known_entries += products
    _start_with(total, _sum_at_entries(f, matrix, at_known_entries))
    for J, second, dofs, count in others:
        end = int(f.ids(f.operate("convert", INDEX, count)))
        places = f.operate("sub", INDEX, constant_array(np.array(n - 1, INDEX)), dofs)  # the last row of the matrix is the first in memory
        add = _add_dense if len(dofs.shape) == 1 else _add_scattered
        add(total, J, second, places, end)
    upper = upper_triangle(p, total.buffer, n)
    return [Array(upper + np.triu(upper, 1).T, matrix.dtype)]


def _products(f, n: int, J: Array, second: Array, dofs: Array, count: Array) -> list[tuple[int, int, int]] | None:
    """J^T P J as a list (row, column, value) of the upper triangle of a matrix of n rows, if it is known which entries are not zero and
    these are few, such as those of joint limits; else None. For the arguments see `_add_scattered`."""
    if dofs.numbers is None or count.numbers is None or int(count.numbers) < len(f.ids(J)):
        return None
    number, entries = Numbers(f, J.dtype), f.ids(J)
    places = np.broadcast_to(dofs.numbers, (len(entries), J.shape[2]))
    columns = [[k for k in range(J.shape[2]) if any(f.program.number(x) != 0 for x in row[:, k].tolist())] for row in entries]
    if sum(len(x) * (len(x) + 1) // 2 for x in columns) > n * (n + 1) // 2:
        return None
    found = []
    for row, P, at, used in zip(entries, f.ids(second), places, columns, strict=True):
        product = {k: [number.sum_of_products(P[:, e].tolist(), row[:, k].tolist()) for e in range(len(row))] for k in used}
        for a in used:
            for b in (b for b in used if (at[b], b) >= (at[a], a)):
                found.append((int(at[a]), int(at[b]), number.sum_of_products(row[:, a].tolist(), product[b])))
    return found


def _sum_at_entries(f, matrix: Array, terms: list[tuple[int, int, int]]) -> Array:
    """A symmetric matrix plus terms (row, column, value) of its upper triangle."""
    entries = f.ids(matrix).copy()
    for row, column, value in terms:
        entries[row, column] = entries[column, row] = f.builder.operation("add", matrix.dtype, (int(entries[row, column]), value))
    return Array(entries, matrix.dtype)


def _start_with(total: Memory, matrix: Array) -> None:
    """Store the lower triangle of a matrix."""
    f = total.f
    zero, end, number = f.builder.constant(0, INDEX), f.builder.constant(total.size, INDEX), Numbers(f, matrix.dtype)

    def columns(start: int, _) -> list[Array]:
        def rows(first: int, _) -> list[Array]:
            position = total.at(first, start)
            for offset in np.ndindex(TILE, TILE):
                total.store(position, *offset, number.constant(0))
            return []

        return counted(f, _ROWS, start, end, [], rows, TILE)

    counted(f, _COLUMNS, zero, end, [], columns, TILE)
    for row, column, value in lower_triangle(f, matrix, total.size):
        if f.program.number(value) != 0:
            total.store(zero, row, column, value)


def _add_scattered(total: Memory, J: Array, second: Array, places: Array, end: int) -> None:
    """Add J_i^T P_i J_i for i < end. J (terms, d, k), second: P (terms, d, d), places (terms, k): its rows in memory, descending.

    The second half of the columns is left out where it is zero, as that of a contact with the world."""
    f, number = total.f, Numbers(total.f, J.dtype)
    zero, k = f.builder.constant(0, INDEX), J.shape[2]
    half = (k + 1) // 2

    def term(i: int, _) -> list[Array]:
        rows, P, at = (f.ids(dynamic_row(f, x, i)) for x in (J, second, places))

        def add(columns: range, first: int) -> None:
            """Add the rows from the first one, below the diagonal, of these columns."""
            for column in columns:
                product = [number.sum_of_products(P[:, e].tolist(), rows[:, column].tolist()) for e in range(len(rows))]
                for row in range(max(column, first), k if first else half):
                    total.add(total.at(int(at[column]), int(at[row])), 0, number.sum_of_products(rows[:, row].tolist(), product))

        add(range(half), 0)
        if half < k:
            where_nonzero(f, rows[:, half:].ravel().tolist(), lambda: add(range(k), half))
        return []

    counted(f, _TERMS, zero, end, [], term)


def where_nonzero(f, values: list[int], function: Callable) -> None:
    """Evaluate function() where one of these values is not zero in an environment of the block: a loop with one turn or none."""
    test = f.builder.operation("convert", INDEX, (any_nonzero(f, values),))
    number = Array(np.array(f.program.block_max(test)), INDEX)

    def proceed(carry: list[Array]) -> Array:
        return f.operate("lt", BOOL, carry[0], number)

    def turn(_) -> list[Array]:
        function()
        return [constant_array(np.array(1, INDEX))]

    f.rolled(_WHERE, [constant_array(np.array(0, INDEX))], proceed, turn, 1)


def _add_dense(total: Memory, J: Array, second: Array, places: Array, end: int) -> None:
    """`_add_scattered` at places (k) of all terms. Columns that are zero in all environments of a block are left out."""
    f = total.f
    dense = _DenseSum(total, J, second, places.numbers)
    mask = dense.store_products(end)
    rows = f.builder.operation("mul", INDEX, (end, f.builder.constant(J.shape[1], INDEX)))
    two, one = (f.builder.constant(x, INDEX) for x in (2, 1))

    def row_of_blocks(bit: int, _) -> list[Array]:
        until = f.builder.operation("sub", INDEX, (f.builder.operation("shift_left", INDEX, (two, bit)), one))
        others = f.builder.operation("and", INDEX, (mask, until))

        def columns_of(row: int, _) -> list[Array]:
            def add(column: int, _) -> list[Array]:
                return dense.add(row, column, rows)

            return each_bit(f, _BLOCKS, others, [], lambda other, _: each_member(f, _COLUMN_GROUPS, other, dense.per_bit, 1, [], add))

        return each_member(f, _ROW_GROUPS, bit, dense.per_bit, 1, [], columns_of)

    each_bit(f, _BLOCK_ROWS, mask, [], row_of_blocks)


class _DenseSum:
    """The sum of J_i^T P_i J_i, by groups of columns of J (terms, d, k). These are rows at ``places`` (k) in memory, descending.

    width: columns of a group. starts (bits, per_bit): the first ones of the groups; several may have one bit, see `store_products`.
    The last groups may begin within those before. products: P J, in memory."""

    def __init__(self, total: Memory, J: Array, second: Array, places: np.ndarray):
        self.total, self.f, self.J, self.second, self.places = total, total.f, J, second, places
        count, d, k = J.shape
        self.width = min(k, TILE)
        self.per_bit = -(-k // (self.width * MAX_GROUPS))
        self.starts = np.minimum(np.arange(0, k, self.width * self.per_bit)[:, None] + self.width * np.arange(self.per_bit), k - self.width)
        self.products = self.f.program.buffer(count * d * k, J.dtype)
        self.left = self.f.program.array(self.f.ids(J).ravel().tolist(), J.dtype)
        self.tables = [constant_array(x) for x in (self.starts.ravel().astype(INDEX), self._positions())]

    def store_products(self, end: int) -> int:
        """Store P_i J_i for i < end. The bits of the groups of columns that are not zero in some environment of the block."""
        f, number, (_, d, k) = self.f, Numbers(self.f, self.J.dtype), self.J.shape
        zero, size = f.builder.constant(0, INDEX), f.builder.constant(d * k, INDEX)

        def term(i: int, carry: list[Array]) -> list[Array]:
            rows, P = (f.ids(dynamic_row(f, x, i)) for x in (self.J, self.second))
            start, bits = f.builder.operation("mul", INDEX, (i, size)), int(f.ids(carry[0]))
            for e, column in np.ndindex(d, k):
                product = number.sum_of_products(P[:, e].tolist(), rows[:, column].tolist())
                f.program.store(self.products, start, e * k + column, product)
            for bit, group in enumerate(self.starts.tolist()):
                is_nonzero = any_nonzero(f, rows[:, group[0] : group[-1] + self.width].ravel().tolist())
                values = is_nonzero, zero, f.builder.constant(np.uint32(1 << bit).astype(INDEX), INDEX)
                bits = f.builder.operation("or", INDEX, (bits, f.builder.operation("select_n", INDEX, values)))
            return [Array(np.array(bits), INDEX)]

        (bits,) = counted(f, _PRODUCTS, zero, end, [constant_array(np.zeros((), INDEX))], term)
        return f.program.block_or(int(f.ids(bits)))

    def add(self, row: int, column: int, rows: int) -> list[Array]:
        """Add the products of two groups of columns, of so many rows of all J_i."""
        f, number, k, operation = self.f, Numbers(self.f, self.J.dtype), self.J.shape[2], self.f.builder.operation
        starts, positions = self.tables
        firsts = [int(f.ids(dynamic_row(f, starts, x))) for x in (row, column)]

        def row_products(i: int, carry: list[Array]) -> list[Array]:
            start = operation("mul", INDEX, (i, f.builder.constant(k, INDEX)))
            at = [operation("add", INDEX, (start, first)) for first in firsts]
            factors = ([f.program.load(x, y, r) for r in range(self.width)] for x, y in zip((self.left, self.products), at, strict=True))
            sums = f.ids(carry[0]).tolist()
            new = [number("add", s, number("mul", *pair)) for s, pair in zip(sums, itertools.product(*factors), strict=True)]
            return [Array(np.array(new), number.dtype)]

        zeros = constant_array(np.zeros(self.width**2, number.dtype))
        (sums,) = counted(f, _SUMS, f.builder.constant(0, INDEX), rows, [zeros], row_products)
        pair = operation("add", INDEX, (operation("mul", INDEX, (row, f.builder.constant(self.starts.size, INDEX))), column))
        for position, value in zip(f.ids(dynamic_row(f, positions, pair)).tolist(), f.ids(sums).tolist(), strict=True):
            self.total.add(position, 0, value)
        return []

    def _positions(self) -> np.ndarray:
        """Of each pair of groups, the positions of their entries (pairs, entries) in the memory of the matrix. Entries of the other
        triangle, or of another pair, are at its end."""
        covered, positions, size = set(), [], self.total.size
        for row, column in itertools.product(self.starts.ravel().tolist(), repeat=2):
            entries = [(row + r, column + c) for r, c in np.ndindex(self.width, self.width)]
            new = {x for x in entries if x[0] >= x[1] and x not in covered}
            covered |= new
            positions.append([self.places[c] * size + self.places[r] if (r, c) in new else size * size for r, c in entries])
        return np.array(positions, INDEX)


def transposed_product(f, equation, J: Array, force: Array, dofs: Array, count: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.assembly.TRANSPOSED_PRODUCT`."""
    p, n, number = f.program, equation.params["n"], Numbers(f, J.dtype)
    buffer, zero = p.buffer(n, J.dtype), f.builder.constant(0, INDEX)
    for k in range(n):
        p.store(buffer, zero, k, number.constant(0))
    total = Memory(f, buffer, n)

    def term(i: int, _) -> list[Array]:
        rows, forces, at = (f.ids(dynamic_row(f, x, i)) for x in (J, force, dofs))
        for k in range(rows.shape[1]):
            pairs = list(zip(rows[:, k].tolist(), forces.tolist(), strict=True))
            products = [number("mul", *pair) for pair in pairs]
            if equation.params["of_magnitudes"]:
                products = [number("abs", x) for x in products]
            total.add(int(at[k]), 0, number.sum(products))
        return []

    counted(f, _FORCES, zero, int(f.ids(f.operate("convert", INDEX, count))), [], term)
    return [Array(np.array(p.entries(buffer)), J.dtype)]
