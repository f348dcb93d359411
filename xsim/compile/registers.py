"""Which values of straight code are in registers, and which wait in memory.

A long program needs many times as many values at a time as a processor has registers. LLVM's register allocator stores and loads more of
them than necessary. Therefore the program says what is stored: where a register is needed, the value that is read again last (Belady 1966,
A study of replacement algorithms for a virtual-storage computer). It is loaded before it is read. LLVM then finds registers for all values.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

NEVER = 1 << 60
"""The position of a use that does not exist."""


class Memory:
    """Places of values, in bytes from a begin. Of equal widths they are used again, first the one that was in use last."""

    def __init__(self, begin: int = 0):
        self.end = begin
        self.free: dict[int, list[int]] = {}

    def take(self, width: int) -> int:
        """A place of so many bytes, at a multiple of them."""
        if self.free.get(width):
            return self.free[width].pop()
        offset = math.ceil(self.end / width) * width
        self.end = offset + width
        return offset

    def give(self, offset: int, width: int) -> None:
        """Give a place back."""
        self.free.setdefault(width, []).append(offset)


class Use(NamedTuple):
    """What an item of straight code reads and computes, as far as it is in vector registers.

    reads: the values that it reads. at_once: whether they are in registers all together, as the arguments of an operation; else it finds
    each of them where it is. computes: its results."""

    reads: Collection[int]
    at_once: bool
    computes: Collection[int]


@dataclass(eq=False)
class Moves:
    """The values that are loaded before an item; those that are stored after it, and where; and those that then leave the registers."""

    loaded: list[int] = field(default_factory=list)
    stored: list[tuple[int, int]] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)


class Allocator:
    """Assigns registers to the values of a piece of straight code.

    uses: of its items, in their order. in_memory: the values that have a place in memory already, from which they can be loaded when they
    are computed, or before. widths: bytes of the other values. registers: how many values are in registers at most, but for those that
    an item reads or computes."""

    def __init__(self, uses: Sequence[Use], in_memory: Collection[int], widths: dict[int, int], registers: int, memory: Memory):
        self.uses, self.in_memory, self.widths, self.registers, self.memory = uses, in_memory, widths, registers, memory
        self.positions: dict[int, list[int]] = {}  # of the items that read a value, the last one first
        for i, use in reversed(list(enumerate(uses))):
            for x in use.reads:
                self.positions.setdefault(x, []).append(i)
        self.next: dict[int, int] = {}  # of the values in registers: the next item that reads them
        self.heap: list[tuple[int, int]] = []  # of (-next item, value); some are outdated
        self.stored: dict[int, int] = {}  # places of the values that have been stored

    def moves(self) -> list[Moves]:
        """For each item."""
        return [self._around(i, use) for i, use in enumerate(self.uses)]

    def _around(self, i: int, use: Use) -> Moves:
        moves = Moves()
        if use.at_once:
            moves.loaded = [x for x in use.reads if x not in self.next and (x in self.stored or x in self.in_memory)]
        for x in use.reads:
            self._read(x, i, x in self.next or x in moves.loaded, moves)
        for x in use.computes:
            self._keep(x, self._next_use(x, i), moves)
        while len(self.next) > self.registers:
            position, x = heapq.heappop(self.heap)
            if self.next.get(x) == -position:
                self._evict(x, moves)
        return moves

    def _next_use(self, x: int, after: int) -> int:
        """The next item that reads a value."""
        positions = self.positions.get(x, [])
        while positions and positions[-1] <= after:
            positions.pop()
        return positions[-1] if positions else NEVER

    def _read(self, x: int, i: int, in_register: bool, moves: Moves) -> None:
        """A value has been read."""
        position = self._next_use(x, i)
        if in_register:
            self._keep(x, position, moves)
        if position == NEVER and x in self.stored:
            self.memory.give(self.stored.pop(x), self.widths[x])

    def _keep(self, x: int, position: int, moves: Moves) -> None:
        """Let a value stay in a register up to its next use."""
        if position == NEVER:
            self.next.pop(x, None)
            moves.dropped.append(x)
        else:
            self.next[x] = position
            heapq.heappush(self.heap, (-position, x))

    def _evict(self, x: int, moves: Moves) -> None:
        """Free the register of a value that is read later."""
        del self.next[x]
        moves.dropped.append(x)
        if x not in self.in_memory and x not in self.stored:
            self.stored[x] = self.memory.take(self.widths[x])
            moves.stored.append((x, self.stored[x]))
