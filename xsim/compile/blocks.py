"""Blocks of environments, which have one for each lane: their arrays, their turns and their memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

ALIGNMENT = 64
"""Bytes. Of memory for vectors."""


@dataclass(frozen=True)
class Sum:
    """A result that is a sum over the environments: its index, its numbers, and the first of its accumulators."""

    result: int
    size: int
    first: int


class Turns(NamedTuple):
    """Several calls in turn as one, as `jax.lax.scan` makes them (`xsim.compile.repeated`).

    An operand after all others holds four 32-bit integers: the number of turns; whether results are stacked (1), or those of the last
    turn are wanted alone (0); whether each turn has cotangents of its own (1) or not (0); the width of blocked arrays (`blocked`), 0: what
    could be blocked is not.

    carried: pairs (result, operand): the result of a turn is the operand of the next one. sequences: operands of which each turn has its
    own numbers. stacked: results likewise, if they are stacked. previous: operands that were carried by another call: the first turn has
    the operand, each later one a result of the turn before it. These results, stacked, are operands after those of the program, in this
    order. summed: results that are added up over the turns. blocked: results that may be stacked as blocked arrays; the others are not
    stacked then. known: sequences that may be blocked, as the results of the turns before may be. reverse: whether the last turn comes
    first. It carries cotangents, and the cotangents that a turn has of its own, if there are, are added to them. These, stacked, are
    operands after the others, for each pair."""

    carried: tuple[tuple[int, int], ...]
    sequences: tuple[int, ...]
    stacked: tuple[int, ...]
    previous: tuple[int, ...] = ()
    summed: tuple[int, ...] = ()
    blocked: tuple[int, ...] = ()
    known: tuple[int, ...] = ()
    reverse: bool = False

    @property
    def pairs_with_own(self) -> tuple[tuple[int, int], ...]:
        """The carried pairs to whose operand each turn adds its own numbers, if there are any."""
        return self.carried if self.reverse else ()


def width_of_blocks(environments: int) -> int:
    """Environments in a block of a blocked array: at least as many as in a vector of any type of numbers."""
    return next((w for w in (4, 8) if environments <= w), 16)


ONE_TURN = Turns((), (), ())
"""Of a function that does not repeat."""


class Row(NamedTuple):
    """The numbers of an environment in an array.

    size: how many; 0 of what the environments share, of sums, and of operands that the program does not read. element: LLVM's type of a
    number in memory; bytes: its size. read: those of an operand that the program reads."""

    size: int
    element: str = "i8"
    bytes: int = 1
    read: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """Bytes of the numbers of an environment."""
        return self.size * self.bytes


@dataclass(frozen=True)
class Layout:
    """What the handler has to know of a program. operands, results: number of them.

    counted: ("operand" or "result", index) of an array whose first axis is that of the environments; None: there is one environment.
    scratch: bytes of scratch memory of a block. number: LLVM's type of a number of the sums; size: its bytes. operations: of one
    environment. devices: that share the pool. operand_rows, result_rows: what environments have of each operand and result. turns: None if
    the function does not repeat.
    """

    operands: int
    results: int
    slots: int
    scratch: int
    lanes: int
    counted: tuple[str, int] | None
    sums: tuple[Sum, ...]
    number: str
    size: int
    operations: int
    devices: int
    operand_rows: tuple[Row, ...]
    result_rows: tuple[Row, ...]
    turns: Turns | None

    @property
    def inputs(self) -> int:
        """Number of operands that the machine code is given: those of the program, and those of the turns."""
        return self.operands + (0 if self.turns is None else len(self.turns.previous) + len(self.turns.pairs_with_own) + 1)


class BlockMemory(NamedTuple):
    """Where the vectors of a block are in its scratch memory, after what the program has there: of operands, of results, of sums of
    results over the turns, and of what a turn has of its own. size: of the whole memory."""

    operands: dict[int, int]
    results: dict[int, int]
    sums: dict[int, int]
    own: dict[int, int]
    size: int


def block_memory(layout: Layout) -> BlockMemory:
    """What is carried has one place."""
    places = BlockMemory({}, {}, {}, {}, 0)
    turns, size = layout.turns or ONE_TURN, layout.scratch
    carried = dict(turns.carried)

    def reserved(row: Row) -> int:
        nonlocal size
        place = -(-size // ALIGNMENT) * ALIGNMENT
        size = place + row.length * layout.lanes
        return place

    for i, row in enumerate(layout.operand_rows):
        if row.size:
            places.operands[i] = reserved(row)
    for k, row in enumerate(layout.result_rows):
        if row.size:
            shared = places.operands.get(carried.get(k, -1))
            places.results[k] = reserved(row) if shared is None else shared
    for of_turns, results in ((places.sums, turns.summed), (places.own, [k for k, _ in turns.pairs_with_own])):
        of_turns.update((k, reserved(layout.result_rows[k])) for k in results if layout.result_rows[k].size)
    return places._replace(size=size)
