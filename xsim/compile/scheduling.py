"""The order in which the operations of a scope are evaluated.

An operation is placed directly before the first one that reads it. Of its arguments the one that needs most registers is evaluated first
(Sethi and Ullman 1970, The generation of optimal code for arithmetic expressions). So few values are alive at a time: those that do not fit
into the registers of the processor are stored and loaded again. In the factorization of a matrix, for example, the products that are
subtracted from an entry are evaluated together, and no intermediate entry is stored.

The results of a scope are evaluated in the order in which the program has them. Those of a derivative are cotangents: the program has those
of the last coordinates first, which depend on few links. Evaluated last, they would need again what the others have needed before.

Copies are no operations: what reads a copy reads the value of which it is one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from xsim.compile.program import Loop, Program, Scope, Store


class Scheduler:
    """Orders the items of scopes. live: the values that are used. arguments: of values that are computed from others than their own
    arguments."""

    def __init__(self, program: Program, live: set[int], arguments: Mapping[int, tuple[int, ...]]):
        self.program, self.live, self.special = program, live, arguments
        self._reads: dict[Loop, Collection[int]] = {}  # by loops

    def ordered(self, scope: Scope, results: Collection[int] = ()) -> list:
        """The items of a scope that are used. results: further values that are read after it.

        Loops and stores stay in their order, and so do reads of an array before later stores to it."""
        return [x for items in self.divided_at_results(scope, results) for x in items]

    def divided_at_results(self, scope: Scope, results: Collection[int] = ()) -> tuple[list, list]:
        """The items of a scope up to its results, and the others.

        Others of the condition of a loop are for its body: after the last turn an entry of an array that they load may not exist."""
        items = [x for x in scope.items if self._used(x) and not self._is_copy(x)]
        pending, fixed, out = self._expressions(items), self._fixed(items), []
        for position, item in enumerate(items):
            if position in fixed:
                for value in [item] if isinstance(item, int) else self.read_by(item):
                    _evaluate(value, pending, out)
                out += [] if isinstance(item, int) else [item]
        for value in sorted([*self._results(scope), *results]):
            _evaluate(value, pending, out)
        rest: list = []
        for value in items:
            _evaluate(value, pending, rest)
        return out, rest

    def _used(self, item) -> bool:
        if isinstance(item, Loop):
            return any(phi in self.live for phi in item.phis) or not self.live.isdisjoint(item.stored)
        return (item.array if isinstance(item, Store) else item) in self.live

    def _is_copy(self, item) -> bool:
        return isinstance(item, int) and self.program.names[item] == "copy"

    def _originals(self, values: Sequence[int]) -> list[int]:
        return [self.program.original(x) for x in values]

    def _expressions(self, items: list) -> dict[int, list[int]]:
        """For each operation of a scope, its arguments that are operations of the scope, in the order in which they are evaluated."""
        expressions: dict[int, list[int]] = {}
        registers: dict[int, int] = {}
        for value in items:
            if isinstance(value, int):
                arguments = {x for x in self.arguments(value) if x in registers}
                expressions[value] = sorted(arguments, key=lambda x: (-registers[x], x))
                registers[value] = max((registers[x] + k for k, x in enumerate(expressions[value])), default=1)
        return expressions

    def arguments(self, value: int) -> Sequence[int]:
        """The values from which a value is computed."""
        return self._originals(self.special.get(value, self.program.arguments[value]))

    def _fixed(self, items: list) -> set[int]:
        """The positions of the items that stay in their order."""
        fixed: set[int] = set()
        stored: set[int] = set()  # arrays that later items write to
        for position in reversed(range(len(items))):
            item = items[position]
            if not isinstance(item, int):
                stored |= {item.array} if isinstance(item, Store) else item.stored
                fixed.add(position)
            elif self.program.names[item] == "load" and self.program.arguments[item][0] in stored:
                fixed.add(position)
        return fixed

    def _results(self, scope: Scope) -> list[int]:
        """The values of a scope that are read after it."""
        if scope.loop is None:
            return self._originals([x for output in self.program.outputs for x in output])
        return self._originals([scope.loop.proceed] if scope is scope.loop.condition else scope.loop.ends)

    def read_by(self, item: Loop | Store) -> Collection[int]:
        """The values that a loop or a store reads, in the order in which it does. They include some of the loop itself."""
        if isinstance(item, Store):
            return self._originals((item.index, item.value))
        if item not in self._reads:
            self._reads[item] = self._read_by_loop(item)
        return self._reads[item]

    def _read_by_loop(self, loop: Loop) -> Collection[int]:
        """`read_by` of a loop."""
        found = dict.fromkeys(self._originals(loop.starts))
        for scope in (loop.condition, loop.body):
            for x in scope.items:
                if not isinstance(x, int):
                    found.update(dict.fromkeys(self.read_by(x)))
                elif x in self.live:
                    found.update(dict.fromkeys(self.arguments(x)))
            found.update(dict.fromkeys(self._results(scope)))
        for scope in (loop.condition, loop.body):
            for x in scope.items:
                found.pop(x, None)
        return found


def _evaluate(value, pending: dict[int, list[int]], out: list) -> None:
    """Append a value, after those from which it is computed, if it is pending. pending: see `Scheduler._expressions`."""
    if value not in pending:
        return
    path = [(value, iter(pending.pop(value)))]
    while path:
        current, rest = path[-1]
        argument = next((x for x in rest if x in pending), None)
        if argument is None:
            out.append(current)
            path.pop()
        else:
            path.append((argument, iter(pending.pop(argument))))
