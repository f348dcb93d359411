"""Values of a program, what they depend on, and their cotangents, which pass from values to what these are computed from."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xsim.compile.adjoints import ADJOINTS, Operations
from xsim.compile.arrays import Array, combined
from xsim.compile.flatten import Flattener, Unsupported
from xsim.compile.program import BOOL

CONSTANT, ACTIVE, LINEAR = range(3)
"""What a value depends on: on no active argument of the function, on active arguments, or linearly on the tangents of a rule."""


@dataclass(frozen=True, eq=False)
class Equation:
    """An equation that is differentiated as a whole. results: the copies of those of its results that have cotangents. pull: passes their
    cotangents to what they are computed from."""

    results: list[Array]
    pull: Callable[[list[Array]], None]


class Cotangents(Flattener):
    """A program, and the cotangents of its values."""

    def __init__(self):
        super().__init__()
        self.dependence: list[int] = []  # of each value, as far as it has been asked for
        self.given: dict[int, int] = {}  # the dependence of values that do not have that of their arguments
        self.targets: dict[int, int] = {}  # of a copy: the value that takes its cotangents
        self.equations: dict[int, Equation] = {}  # of copies
        self.cotangents: dict[int, list[int]] = {}
        self.heap: list[int] = []  # of the values with cotangents, the last one first
        self.pulled: dict[int, int] = {}  # the cotangents of the active arguments

    # ---- dependence ----------------------------------------------------------------------------------------------------------

    def depends(self, value: int) -> int:
        """What a value depends on."""
        known = self.dependence
        return known[value] if value < len(known) else self.known_dependence()[value]

    def known_dependence(self) -> list[int]:
        """What each value so far depends on."""
        known, p = self.dependence, self.program
        for x in range(len(known), len(p.names)):
            found = self.given.get(x)
            if found is None:
                found = max((known[a] for a in p.arguments[x]), default=CONSTANT) if p.types[x].kind == "f" else CONSTANT
            known.append(found)
        return known

    def array_depends(self, x: Array) -> int:
        """What the entries of an array depend on: LINEAR if one does, else ACTIVE if one does."""
        if x.numbers is not None or x.dtype.kind != "f":
            return CONSTANT
        return max(map(self.known_dependence().__getitem__, x.values.ravel().tolist()), default=CONSTANT)

    def activate(self, x: Array) -> None:
        """Make an argument of the function active."""
        self.given.update(dict.fromkeys(x.values.ravel().tolist(), ACTIVE))

    # ---- cotangents ----------------------------------------------------------------------------------------------------------

    def with_cotangents(self) -> Iterator[int]:
        """The values with cotangents, the last one first. To take them adds cotangents to earlier ones."""
        while self.heap:
            value = -heapq.heappop(self.heap)
            if value in self.cotangents:  # not yet taken, together with other results of an equation
                yield value

    def pull(self, value: int) -> None:
        """Pass the cotangents of a value to what it is computed from."""
        if value in self.equations:
            self.pull_equation(self.equations[value])
        elif value in self.targets:
            target = self.targets[value]
            self.add(target, self.total(value), self.depends(target))
        elif self.program.names[value] == "input":
            self.pulled[value] = self.total(value)
        else:
            self.pull_operation(value)

    def pull_equation(self, equation: Equation) -> None:
        equation.pull([
            self.map_entries(lambda v, x=x: self.total(v) if v in self.cotangents else self.builder.constant(0, x.dtype), x)
            for x in equation.results
        ])  # fmt: skip

    def pull_operation(self, value: int) -> None:
        p, g, dependence = self.program, self.total(value), self.depends(value)
        name, xs, dtype = p.names[value], p.arguments[value], p.types[value]
        if name == "convert":
            self.add(xs[0], self.builder.operation("convert", p.types[xs[0]], (g,)), dependence)
            return
        if name not in ADJOINTS or any(p.types[x] not in (dtype, BOOL) for x in xs):
            raise Unsupported(f"the reverse of the operation {name}")
        for rule, x in zip(ADJOINTS[name], xs, strict=True):
            if rule is not None and self.depends(x) == dependence:
                self.add(x, rule(Operations(self.builder, dtype), g, value, *xs), dependence)

    def give(self, x: Array, cotangents: Array, dependence: int) -> None:
        """Add cotangents to the entries of an array that have this dependence."""
        if x.numbers is None:
            for value, cotangent in zip(x.values.ravel().tolist(), self.ids(cotangents).ravel().tolist(), strict=True):
                self.add(value, cotangent, dependence)

    def add(self, value: int, cotangent: int, dependence: int) -> None:
        """Add a cotangent to a value that has this dependence."""
        number = self.program.number(cotangent)
        if not dependence or self.depends(value) != dependence or (number is not None and number == 0):
            return
        if value not in self.cotangents:
            heapq.heappush(self.heap, -value)
            self.cotangents[value] = []
        self.cotangents[value].append(cotangent)

    def total(self, value: int) -> int:
        """The sum of the cotangents of a value, which are taken from it."""
        dtype = self.program.types[value]
        return combined(lambda *pair: self.builder.operation("add", dtype, pair), self.cotangents.pop(value))

    def pulled_to(self, x: Array) -> list[int]:
        """The cotangents of an argument."""
        return [self.pulled.get(v, self.builder.constant(0, x.dtype)) for v in x.values.ravel().tolist()]
