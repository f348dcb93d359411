"""Which buffers of a program are parts of larger arrays.

A loop over the pairs of each kind of shapes stores its contacts in buffers. An array of the contacts of all kinds then has these entries
one after the other. Its memory holds the buffers, so that no entry is copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xsim.compile.program import Program


@dataclass(frozen=True)
class Placement:
    """parts: for each buffer that is part of an array, the array and its first entry there. memory: for each array with such parts, the
    first array with the same entries, whose memory it has. rest: its other entries, (position, value)."""

    parts: dict[int, tuple[int, int]] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    rest: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def arguments(self, program: Program) -> dict[int, tuple[int, ...]]:
        """Of the arrays with parts: the values from which they are made."""
        of_buffers: dict[int, list[int]] = {}
        for buffer, (array, _) in self.parts.items():
            of_buffers.setdefault(array, []).append(buffer)
        return {x: (*(v for _, v in self.rest[x]), *of_buffers[first]) for x, first in self.memory.items()}


def placement_of(program: Program, live: set[int]) -> Placement:
    """The placement of the buffers of the arrays that are used."""
    placement, known = Placement(), {}
    for x in sorted(live):
        if program.names[x] != "array" or not program.varying[x]:
            continue
        entries = [program.original(v) for v in program.arguments[x]]
        key = program.types[x], tuple(entries)
        if key not in known:
            parts = _whole_buffers(program, entries, placement.parts)
            placement.parts.update((buffer, (x, first)) for buffer, first in parts.items())
            inside = {first + k for buffer, first in parts.items() for k in range(program.data[buffer])}
            known[key] = x if parts else None, [k for k in range(len(entries)) if k not in inside]
        first, rest = known[key]
        if first is not None:
            placement.memory[x], placement.rest[x] = first, [(k, program.arguments[x][k]) for k in rest]
    return placement


def _whole_buffers(program: Program, entries: list[int], parts: dict[int, tuple[int, int]]) -> dict[int, int]:
    """The complete buffers whose entries are all there, in their order, and the position of their first entry. parts: those that have a
    place already."""
    found: dict[int, int] = {}
    for first, value in enumerate(entries):
        if program.names[value] != "load":
            continue
        buffer, index = program.arguments[value]
        is_first = program.number(index) == 0 and program.data[value] == 0
        if not is_first or buffer not in program.complete or buffer in parts or buffer in found:
            continue
        size = program.data[buffer]
        places = [(program.arguments[v], program.data[v]) for v in entries[first : first + size] if program.names[v] == "load"]
        if places == [((buffer, index), k) for k in range(size)]:
            found[buffer] = first
    return found
