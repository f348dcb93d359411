"""Slices, gathers and scatters, whose indices may depend on the state."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from xsim.compile.arrays import Array, Total, combined
from xsim.compile.matrices import counted
from xsim.compile.program import BOOL, INDEX

MAX_TABLE = 32
"""Columns of at most as many entries, which the environments share, are arrays of their own: an instruction may select among them."""


def dynamic_row(f, x: Array, row: int) -> Array:
    """x[row], row: a value. A column with one value is that value. Columns in which no entry varies are an array of their own, of which the
    environments share the entries."""
    number = f.program.number(row)
    if number is not None:
        return x[int(number)]
    columns = f.ids(x).reshape(x.shape[0], -1).T
    values = columns[:, 0].copy()
    is_moving = (columns != columns[:, :1]).any(1)
    varies = np.array([any(f.program.varying[v] for v in column.tolist()) for column in columns], bool)
    uniform = np.flatnonzero(is_moving & ~varies)
    tables = list(uniform[:, None]) if len(x.shape) and x.shape[0] <= MAX_TABLE else [uniform]
    for chosen in (np.flatnonzero(is_moving & varies), *tables):
        if len(chosen):
            start = f.builder.operation("mul", INDEX, (row, f.program.constant(INDEX.type(len(chosen)))))
            values[chosen] = f.loaded(Array(columns[chosen].T, x.dtype), [(start, k) for k in range(len(chosen))])
    return Array(values.reshape(x.shape[1:]), x.dtype)


def row_start(equation, x: Array, starts: Sequence[Array]) -> Array | None:
    """The index of the row that a dynamic slice takes, None if the slice is no row."""
    if equation.params["slice_sizes"] != (1, *x.shape[1:]) or any(s.numbers is None for s in starts[1:]):
        return None
    return starts[0]


def clamped_row(f, x: Array, start: Array) -> int:
    """The index of a row within an array, as XLA's dynamic slices take it."""
    index = _Positions(f, x.shape).clamped(int(f.ids(start)), 0, 1)
    return index if f.program.types[index] == INDEX else f.builder.operation("convert", INDEX, (index,))


WORD, MAX_WORDS = 32, 8
"""Bits of an index. Masks of more words are not held in bits: each of them would be an operation outside of the loop."""
_ENTRIES = [object() for _ in range(MAX_WORDS + 1)]
"""The loops of `true_indices`, by the number of words, see `Flattener.rolled`. The first one has no words."""


def true_indices(f, equation, mask: Array) -> list[Array]:
    """The rule of `xsim.dynamics.layout.TRUE_INDICES`."""
    p, size = f.program, equation.params["size"]
    key = p.scope, size, *f.ids(mask).tolist()
    if key not in f.true_entries:
        buffer = p.filled([f.builder.constant(0, INDEX)] * (size + 1), INDEX)
        if mask.shape[0] <= MAX_WORDS * WORD:
            _Words(f, mask).store_indices(buffer, size)
        else:
            _store_by_places(f, mask, buffer, size)
        f.true_entries[key] = p.entries(buffer)[:size]
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    return [f.operate("convert", dtype, Array(np.array(f.true_entries[key]), INDEX))]


class _Words:
    """A mask as the bits of words."""

    def __init__(self, f, mask: Array):
        self.f, bits = f, f.ids(mask).tolist()
        self.zero = self.constant(0)
        self.words = [self._word(bits[k : k + WORD]) for k in range(0, len(bits), WORD)]

    def store_indices(self, buffer: int, size: int) -> None:
        """Store the true indices. Each turn takes the lowest bit that is set: there are as many turns as true entries, and all environments
        store at the same place."""

        def is_left(carry: list[Array]) -> Array:
            count, *words = (int(self.f.ids(x)) for x in carry)
            left = self.operation("ne", functools.reduce(lambda a, b: self.operation("or", a, b), words), self.zero, dtype=BOOL)
            out = self.operation("and", self.operation("lt", count, self.constant(size), dtype=BOOL), left, dtype=BOOL)
            return Array(np.array(out), BOOL)

        def take(carry: list[Array]) -> list[Array]:
            count, *words = (int(self.f.ids(x)) for x in carry)
            index, words = self._taken(words)
            self.f.program.store(buffer, count, 0, index)
            return self._arrays(self.operation("add", count, self.constant(1)), *words)

        self.f.rolled(_ENTRIES[len(self.words)], self._arrays(self.zero, *self.words), is_left, take)

    def _taken(self, words: list[int]) -> tuple[int, list[int]]:
        """The index of the lowest bit that is set, 0 if none is, and the words without it."""
        index, after, before = self.zero, [], None  # before: whether a bit of an earlier word is set
        filled = [self.operation("ne", x, self.zero, dtype=BOOL) for x in words]
        for k in reversed(range(len(words))):
            lowest = self.operation("and", self.operation("trailing_zeros", words[k]), self.constant(WORD - 1))  # 0 of an empty word
            here = self.operation("add", lowest, self.constant(k * WORD))
            index = here if len(words) == 1 else self.operation("select_n", filled[k], index, here)
        for x, some in zip(words, filled, strict=True):
            less = self.operation("and", x, self.operation("sub", x, self.constant(1)))
            after.append(less if before is None else self.operation("select_n", before, less, x))
            before = some if before is None else self.operation("or", before, some, dtype=BOOL)
        return index, after

    def _word(self, bits: list[int]) -> int:
        """The number whose bits are these."""
        single = [self.constant(np.array(1 << k, np.uint32).view(INDEX)) for k in range(WORD)]
        terms = [self.operation("select_n", x, self.zero, bit) for x, bit in zip(bits, single, strict=False)]
        return functools.reduce(lambda a, b: self.operation("or", a, b), terms)

    def _arrays(self, *values: int) -> list[Array]:
        return [Array(np.array(x), INDEX) for x in values]

    def constant(self, number) -> int:
        """An index."""
        return self.f.builder.constant(number, INDEX)

    def operation(self, name: str, *arguments: int, dtype: np.dtype = INDEX) -> int:
        """The value of an operation."""
        return self.f.builder.operation(name, dtype, arguments)


def _store_by_places(f, mask: Array, buffer: int, size: int) -> None:
    """Store the true indices. Each index is stored at the next place, which one that is false leaves to the next index."""
    p, zero, last = f.program, f.builder.constant(0, INDEX), f.builder.constant(size, INDEX)
    counts = f.operate("convert", INDEX, mask)

    def entry(i: int, carry: list[Array]) -> list[Array]:
        place = int(f.ids(carry[0]))
        p.store(buffer, place, 0, i)
        following = f.builder.operation("add", INDEX, (place, int(f.ids(dynamic_row(f, counts, i)))))
        return [Array(np.array(f.builder.operation("min", INDEX, (following, last))), INDEX)]

    end = f.builder.constant(mask.shape[0], INDEX)
    (place,) = counted(f, _ENTRIES[0], zero, end, [Array(np.array(zero), INDEX)], entry)
    p.store(buffer, int(f.ids(place)), 0, zero)  # what the last index has left


class _Positions:
    """Positions of entries in the flat order of an array of a shape, as values."""

    def __init__(self, f, shape: tuple[int, ...]):
        self.f, self.shape = f, shape
        self.strides = [math.prod(shape[i + 1 :]) for i in range(len(shape))]

    def clamped(self, start: int, axis: int, window: int) -> int:
        """An index within the array, as XLA's dynamic slices."""
        f, dtype = self.f, self.f.program.types[start]
        low = f.builder.operation("max", dtype, (start, f.builder.constant(0, dtype)))
        return f.builder.operation("min", dtype, (low, f.builder.constant(self.shape[axis] - window, dtype)))

    def contains(self, update: _Update) -> bool | int:
        """Whether an update is within the array: True or False where that is known, else a value."""
        f, inside = self.f, True
        for start, offset, size in zip(update.start, update.offset, self.shape, strict=True):
            number = f.program.number(start)
            if number is not None:
                if not 0 <= int(number) + offset < size:
                    return False
                continue
            test = self.between(start, -offset, size - 1 - offset)
            inside = test if inside is True else f.builder.operation("and", BOOL, (inside, test))
        return inside

    def between(self, start: int, low: int, high: int) -> int:
        """Whether low <= start <= high."""
        f, dtype = self.f, self.f.program.types[start]
        tests = (f.builder.operation(name, BOOL, (start, f.builder.constant(x, dtype))) for name, x in (("ge", low), ("le", high)))
        return f.builder.operation("and", BOOL, tuple(tests))

    def position(self, base: int, starts: list[tuple[int, int]]) -> tuple[int, int]:
        """base + sum of start times stride, as (index, offset). starts: (axis, value)."""
        f, total, moving = self.f, base, None
        for axis, start in starts:
            number = f.program.number(start)
            if number is not None:
                total += int(number) * self.strides[axis]
                continue
            index = start if f.program.types[start] == INDEX else f.builder.operation("convert", INDEX, (start,))
            term = f.builder.operation("mul", INDEX, (index, f.program.constant(INDEX.type(self.strides[axis]))))
            moving = term if moving is None else f.builder.operation("add", INDEX, (moving, term))
        return (f.program.constant(INDEX.type(0)) if moving is None else moving), total


def dynamic_slice(f, equation, x: Array, *starts: Array) -> Array:
    row = row_start(equation, x, starts)
    if row is not None:
        return dynamic_row(f, x, clamped_row(f, x, row)).moved(lambda a: a[None])
    sizes, where = equation.params["slice_sizes"], _Positions(f, x.shape)
    first = [(i, where.clamped(int(f.ids(s)), i, n)) for i, (s, n) in enumerate(zip(starts, sizes, strict=True))]
    start, base = where.position(0, first)
    offsets = base + np.ravel_multi_index(np.indices(sizes).reshape(len(sizes), -1), x.shape) if sizes else np.array([base])
    if f.program.number(start) is not None:
        return x.moved(lambda a: a.reshape(-1)[offsets].reshape(sizes))
    return Array(np.array(f.loaded(x, [(start, int(k)) for k in offsets]), int).reshape(sizes), x.dtype)


def dynamic_update_slice(f, equation, x: Array, update: Array, *starts: Array) -> Array:
    where = _Positions(f, x.shape)
    first = [where.clamped(int(f.ids(s)), i, n) for i, (s, n) in enumerate(zip(starts, update.shape, strict=True))]
    new = f.ids(update)
    return _updated(f, x, [_Update(tuple(first), offset, int(new[offset])) for offset in np.ndindex(*update.shape)], None)


@dataclass(frozen=True)
class _Update:
    """A value for the entry at start + offset of an array. start: values, one for each axis. offset: constants."""

    start: tuple[int, ...]
    offset: tuple[int, ...]
    value: int


MAX_SELECTED = 4
"""An entry whose position is not known is written by selecting it among at most about this many, else in memory."""


def _updated(f, x: Array, updates: list[_Update], combine: str | None, inside: bool = False) -> Array:
    """The array with updates, one after the other. combine: an operation on the old entry and the value. Updates outside are dropped.
    inside: whether there are none."""
    if isinstance(x, Total):
        for index, offset, value in _placed(f, x.shape, updates, inside):
            f.program.add_to_sum(x.buffer, index, offset, value, x.around)
        return x
    varies = any(f.program.varying[s] for u in updates for s in u.start)
    if varies and math.prod(x.shape) > MAX_SELECTED:
        return _updated_in_memory(f, x, updates, combine, inside)
    entries = f.ids(x).copy()
    for update in updates:
        _select_entry(f, entries, update, x.dtype, combine)
    return Array(entries, x.dtype)


def _updated_in_memory(f, x: Array, updates: list[_Update], combine: str | None, inside: bool) -> Array:
    """As `_updated`, by a buffer. Its last entry takes the updates outside of the array."""
    p, size = f.program, math.prod(x.shape)
    buffer, zero = p.buffer(size + 1, x.dtype), p.constant(INDEX.type(0))
    for k, value in enumerate(f.ids(x).ravel().tolist()):
        p.store(buffer, zero, k, value)
    for index, offset, value in _placed(f, x.shape, updates, inside):
        new = value if combine is None else f.builder.operation(combine, x.dtype, (p.load(buffer, index, offset), value))
        p.store(buffer, index, offset, new)
    return Array(np.array(p.entries(buffer)[:size], int).reshape(x.shape), x.dtype)


def _placed(f, shape: tuple[int, ...], updates: list[_Update], all_inside: bool) -> Iterator[tuple[int, int, int]]:
    """For each update of an array of a shape in memory: its index and offset, and its value. An update outside of the array is after the
    last entry. all_inside: whether there is none."""
    p, where, outside = f.program, _Positions(f, shape), f.program.constant(INDEX.type(math.prod(shape)))
    for update in updates:
        inside = all_inside or where.contains(update)
        if inside is False:
            continue
        base = sum(o * stride for o, stride in zip(update.offset, where.strides, strict=True))
        index, offset = where.position(base, list(enumerate(update.start)))
        if inside is not True:
            index = f.builder.operation("add", INDEX, (index, p.constant(INDEX.type(offset))))
            index, offset = f.builder.operation("select_n", INDEX, (inside, outside, index)), 0
        yield index, offset, update.value


def _select_entry(f, entries: np.ndarray, update: _Update, dtype, combine: str | None) -> None:
    """Update the entries of an array by selecting among all that the update may write to."""
    numbers = [f.program.number(s) for s in update.start]
    places = list(zip(numbers, update.start, update.offset, strict=True))
    axes = [[int(n) + o] if n is not None else range(o, size) for (n, _, o), size in zip(places, entries.shape, strict=True)]
    for index in np.ndindex(*(len(a) for a in axes)):
        at = tuple(int(a[i]) for a, i in zip(axes, index, strict=True))
        if any(i < 0 or i >= size for i, size in zip(at, entries.shape, strict=True)):
            continue
        old = int(entries[at])
        new = update.value if combine is None else f.builder.operation(combine, dtype, (old, update.value))
        here = None
        for (number, start, offset), i in zip(places, at, strict=True):
            if number is None:
                equal = f.builder.operation("eq", BOOL, (start, f.builder.constant(i - offset, f.program.types[start])))
                here = equal if here is None else f.builder.operation("and", BOOL, (here, equal))
        entries[at] = new if here is None else f.builder.operation("select_n", dtype, (here, old, new))


@dataclass(frozen=True)
class _Windows:
    """How the entries of a gather's result, or of a scatter's updates, lie in windows of an array.

    window_axes: axes of the result that are axes of a window. collapsed: axes of the array along which a window has size 1. batching and
    indices_batching: axes of the array and of the indices that go together."""

    window_axes: tuple[int, ...]
    collapsed: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]

    def places(self, shape: tuple[int, ...], indices_shape: tuple[int, ...], rank: int) -> tuple[np.ndarray, np.ndarray]:
        """For each entry of a result of this shape: its offset in its window (rank, entries), and the row of the indices (entries) that
        holds the start of the window. rank: of the array."""
        count = math.prod(shape)
        grid = np.indices(shape).reshape(len(shape), count)
        batch_axes = [i for i in range(len(shape)) if i not in self.window_axes]
        offsets = np.zeros((rank, count), int)
        windowed = [d for d in range(rank) if d not in self.collapsed and d not in self.batching]
        for d, axis in zip(windowed, self.window_axes, strict=True):
            offsets[d] = grid[axis]
        for d, k in zip(self.batching, self.indices_batching, strict=True):
            offsets[d] = grid[batch_axes[k]]
        rows = np.ravel_multi_index(tuple(grid[i] for i in batch_axes), indices_shape[:-1]) if batch_axes else np.zeros(count, int)
        return offsets, rows


def gather(f, equation, x: Array, indices: Array) -> Array:
    """XLA's gather; an index outside of the array is moved inside, or in mode "fill" gives the fill value."""
    n, sizes, shape = equation.params["dimension_numbers"], equation.params["slice_sizes"], equation.outvars[0].aval.shape
    windows = _Windows(n.offset_dims, n.collapsed_slice_dims, n.operand_batching_dims, n.start_indices_batching_dims)
    offsets, rows = windows.places(shape, indices.shape, len(x.shape))
    fill = "FILL" in str(equation.params["mode"])
    if indices.numbers is not None:
        table = indices.numbers.reshape(math.prod(indices.shape[:-1]), indices.shape[-1]).astype(int)
        inside = np.ones(len(rows), bool)
        for k, d in enumerate(n.start_index_map):
            start = table[rows, k]
            limit = x.shape[d] - sizes[d]
            inside &= (start >= 0) & (start <= limit)
            offsets[d] += np.clip(start, 0, limit)
        flat = np.ravel_multi_index(tuple(offsets), x.shape) if len(x.shape) else np.zeros(len(rows), int)
        if not fill or inside.all():
            return x.moved(lambda a: a.reshape(-1)[flat].reshape(shape))
        return Array(np.where(inside, f.ids(x).reshape(-1)[flat], _missing(f, equation, x.dtype)).reshape(shape), x.dtype)
    where, table = _Positions(f, x.shape), f.ids(indices).reshape(math.prod(indices.shape[:-1]), indices.shape[-1])
    starts = [[(d, where.clamped(int(row[k]), d, sizes[d])) for k, d in enumerate(n.start_index_map)] for row in table]
    bases = np.ravel_multi_index(tuple(offsets), x.shape)
    positions = [where.position(int(base), starts[row]) for base, row in zip(bases, rows, strict=True)]
    values = f.loaded(x, positions)
    if fill:
        missing = _missing(f, equation, x.dtype)
        limits = [x.shape[d] - sizes[d] for d in n.start_index_map]  # of the starts of windows
        true, both = f.program.constant(np.bool_(True)), functools.partial(f.builder.operation, "and", BOOL)
        tests = [[where.between(int(start), 0, limit) for start, limit in zip(row, limits, strict=True)] for row in table]
        valid = [combined(lambda *pair: both(pair), [true, *inside]) for inside in tests]
        values = [f.builder.operation("select_n", x.dtype, (valid[row], missing, v)) for v, row in zip(values, rows, strict=True)]
    return Array(np.array(values, int).reshape(shape), x.dtype)


def _missing(f, equation, dtype) -> int:
    """What a gather in mode "fill" gives outside of the array."""
    value = equation.params["fill_value"]
    if value is None:
        value = np.nan if dtype.kind == "f" else np.iinfo(dtype).min if dtype.kind == "i" else 0
    return f.builder.constant(value, dtype)


def scatter(f, equation, x: Array, indices: Array, updates: Array) -> Array:
    """XLA's scatter and scatter-add; updates outside of the array are dropped."""
    n = equation.params["dimension_numbers"]
    combine = "add" if "add" in equation.primitive.name else None
    windows = _Windows(n.update_window_dims, n.inserted_window_dims, n.operand_batching_dims, n.scatter_indices_batching_dims)
    offsets, rows = windows.places(updates.shape, indices.shape, len(x.shape))
    new = f.ids(updates).ravel()
    table = f.ids(indices).reshape(math.prod(indices.shape[:-1]), indices.shape[-1])
    axis_of = {d: k for k, d in enumerate(n.scatter_dims_to_operand_dims)}
    zero = f.program.constant(INDEX.type(0))
    written, inside = [], "PROMISE" in str(equation.params["mode"])
    for e, row in enumerate(rows):
        start = tuple(int(table[row, axis_of[d]]) if d in axis_of else zero for d in range(len(x.shape)))
        written.append(_Update(start, tuple(offsets[:, e].tolist()), int(new[e])))
    return _updated(f, x, written, combine, inside)
