"""Assembly in the memory of an environment: sums over rows that have few columns, such as those of contacts, as loops.

As in finite elements each term is added at the degrees of freedom that it depends on. These may differ between environments: contacts are
between other bodies in each.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from xsim.compile.arrays import Array, combined, constant_array
from xsim.compile.indexing import dynamic_row
from xsim.compile.matrices import TILE, Memory, Numbers, counted, padded
from xsim.compile.program import BOOL, INDEX

BLOCK = 4, 3
"""Rows and columns of the blocks of a dense sum. Their sums, a column and an entry of a row fit into 16 registers."""

_COLUMNS, _ROWS, _TERMS, _WHERE, _PRODUCTS, _BLOCKS, _SUMS, _FORCES = (object() for _ in range(8))
"""The loops, see `Flattener.rolled`."""


def with_curvature(f, equation, matrix: Array, *terms: Array) -> list[Array]:
    """The rule of `xsim.dynamics.linalg.assembly.WITH_CURVATURE`. The result is a buffer, of which `matrices.factored` makes no copy."""
    n, p = matrix.shape[0], f.program
    m = padded(n)
    total = Memory(f, p.buffer(m * m + 1, matrix.dtype), m)  # the last entry takes what is added to none
    _start_with(total, matrix)
    for J, second, dofs, count in zip(*[iter(terms)] * 4, strict=True):
        end = int(f.ids(f.operate("convert", INDEX, count)))
        if len(dofs.shape) == 1:
            _add_dense(total, J, second, dofs.numbers, end)
        else:
            _add_scattered(total, J, second, dofs, end)
    entries = np.array(p.entries(total.buffer)[: m * m]).reshape(m, m)[:n, :n]
    return [Array(np.tril(entries) + np.tril(entries, -1).T, matrix.dtype)]


def _start_with(total: Memory, matrix: Array) -> None:
    """Store the lower triangle of a matrix, and ones on the rest of the diagonal."""
    f, n = total.f, matrix.shape[0]
    zero, end, number = f.builder.constant(0, INDEX), f.builder.constant(total.size, INDEX), Numbers(f, matrix.dtype)

    def columns(start: int, _) -> list[Array]:
        def rows(first: int, _) -> list[Array]:
            position = total.at(first, start)
            for offset in np.ndindex(TILE, TILE):
                total.store(position, *offset, number.constant(0))
            return []

        return counted(f, _ROWS, start, end, [], rows, TILE)

    counted(f, _COLUMNS, zero, end, [], columns, TILE)
    entries = f.ids(matrix)
    for column in range(total.size):
        for row in range(column, total.size):
            value = int(entries[row, column]) if row < n else number.constant(row == column)
            if f.program.number(value) != 0:
                total.store(zero, row, column, value)


def _add_scattered(total: Memory, J: Array, second: Array, dofs: Array, end: int) -> None:
    """Add J_i^T P_i J_i for i < end, each at its own dofs. J (terms, d, k), second: P (terms, d, d), dofs (terms, k), ascending.

    The second half of the columns is left out where it is zero, as that of a contact with the world."""
    f, number = total.f, Numbers(total.f, J.dtype)
    zero, size = (f.builder.constant(x, INDEX) for x in (0, total.size))
    k = J.shape[2]
    half = (k + 1) // 2

    def term(i: int, _) -> list[Array]:
        rows, P, at = (f.ids(dynamic_row(f, x, i)) for x in (J, second, dofs))
        start_of = [f.builder.operation("mul", INDEX, (x, size)) for x in at.tolist()]

        def add(columns: range, first: int) -> None:
            """Add the rows from the first one, below the diagonal, of these columns."""
            for column in columns:
                product = [number.sum_of_products(P[:, e].tolist(), rows[:, column].tolist()) for e in range(len(rows))]
                for row in range(max(column, first), k if first else half):
                    position = f.builder.operation("add", INDEX, (start_of[row], int(at[column])))
                    total.add(position, 0, number.sum_of_products(rows[:, row].tolist(), product))

        add(range(half), 0)
        if half < k:
            where_nonzero(f, rows[:, half:].ravel().tolist(), lambda: add(range(k), half))
        return []

    counted(f, _TERMS, zero, end, [], term)


def where_nonzero(f, values: list[int], function: Callable) -> None:
    """Evaluate function() where one of these values is not zero in an environment of the block: a loop with one turn or none."""
    tests = [f.builder.operation("ne", BOOL, (x, f.builder.constant(0, f.program.types[x]))) for x in values]
    test = f.builder.operation("convert", INDEX, (combined(lambda *pair: f.builder.operation("or", BOOL, pair), tests),))
    number = Array(np.array(f.program.block_max(test)), INDEX)

    def proceed(carry: list[Array]) -> Array:
        return f.operate("lt", BOOL, carry[0], number)

    def turn(_) -> list[Array]:
        function()
        return [constant_array(np.array(1, INDEX))]

    f.rolled(_WHERE, [constant_array(np.array(0, INDEX))], proceed, turn, 1)


def _add_dense(total: Memory, J: Array, second: Array, dofs: np.ndarray, end: int) -> None:
    """`_add_scattered` at dofs (k) of all terms. The sums of a block of entries are in registers."""
    f, p, number = total.f, total.f.program, Numbers(total.f, J.dtype)
    count, d, k = J.shape
    product = p.buffer(count * d * k, J.dtype)
    zero, width = f.builder.constant(0, INDEX), f.builder.constant(d * k, INDEX)

    def products(i: int, _) -> list[Array]:
        rows, P = (f.ids(dynamic_row(f, x, i)) for x in (J, second))
        start = f.builder.operation("mul", INDEX, (i, width))
        for e, column in np.ndindex(d, k):
            p.store(product, start, e * k + column, number.sum_of_products(P[:, e].tolist(), rows[:, column].tolist()))
        return []

    counted(f, _PRODUCTS, zero, end, [], products)
    left = p.array(f.ids(J).ravel().tolist(), J.dtype)
    blocks = _blocks(dofs, total.size)
    shape = tuple(min(size, k) for size in BLOCK)
    starts, positions = (constant_array(x.astype(INDEX)) for x in blocks)
    last = f.builder.operation("mul", INDEX, (end, f.builder.constant(d, INDEX)))

    def block(at: int, _) -> list[Array]:
        row, column = f.ids(dynamic_row(f, starts, at)).tolist()

        def row_products(i: int, carry: list[Array]) -> list[Array]:
            start = f.builder.operation("mul", INDEX, (i, f.builder.constant(k, INDEX)))
            at_row, at_column = (f.builder.operation("add", INDEX, (start, x)) for x in (row, column))
            xs, ys = [p.load(left, at_row, r) for r in range(shape[0])], [p.load(product, at_column, c) for c in range(shape[1])]
            sums = f.ids(carry[0])
            new = [number("add", int(sums[r, c]), number("mul", x, y)) for r, x in enumerate(xs) for c, y in enumerate(ys)]
            return [Array(np.array(new).reshape(shape), J.dtype)]

        (sums,) = counted(f, _SUMS, zero, last, [constant_array(np.zeros(shape, J.dtype))], row_products)
        for position, value in zip(f.ids(dynamic_row(f, positions, at)).tolist(), f.ids(sums).ravel().tolist(), strict=True):
            total.add(position, 0, value)
        return []

    counted(f, _BLOCKS, zero, f.builder.constant(len(blocks[0]), INDEX), [], block)


def _blocks(dofs: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks that cover the lower triangle of a matrix of these rows and columns: their first row and column (blocks, 2), and the positions
    of their entries (blocks, entries) in the memory of a matrix of this size. Entries that are in another block, or above the diagonal, are
    at its end."""
    k, covered, starts, positions = len(dofs), set(), [], []
    rows, columns = (min(x, k) for x in BLOCK)
    for row in np.minimum(np.arange(0, k, rows), k - rows).tolist():
        for column in np.minimum(np.arange(0, k, columns), k - columns).tolist():
            entries = [(row + r, column + c) for r, c in np.ndindex(rows, columns)]
            new = [x for x in entries if x[0] >= x[1] and x not in covered]
            covered |= set(new)
            if new:
                starts.append((row, column))
                positions.append([int(dofs[r]) * size + int(dofs[c]) if (r, c) in new else size * size for r, c in entries])
    return np.array(starts), np.array(positions)


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
