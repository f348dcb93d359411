"""Loop fusion: two loops with the same turns become one.

The derivative of a loop computes each turn again. If the cotangents of the results do not depend on the results, both can be one loop:
then each turn is computed once, but for loops in it, and what the derivative needs of it is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from xsim.compile.program import Loop, Program, Scope, Store


def fuse(program: Program, first: Loop, second: Loop) -> bool:
    """Move the turns of the first loop into the second one, which is the last item of its scope, if that changes no result; whether it did.

    The first carried value of each loop is its turn. The first loop carries nothing else: it returns what it stores in buffers."""
    fusion = _Fusion(program, first, second)
    if not fusion.is_possible():
        return False
    fusion.move()
    return True


class _Fusion:
    """replaced: loads of the second loop of what the first one stores in the same turn, and the stored values. dependent: the items between
    the loops that depend on the first one. changed: their values, and what the first loop stores or returns. Loads or items that make the
    fusion impossible are in ``obstacles``."""

    def __init__(self, program: Program, first: Loop, second: Loop):
        self.program, self.first, self.second = program, first, second
        self.items = first.around.items
        self.obstacles: list = []
        self.replaced = dict(self._replaced())
        self.changed = {*first.stored, *first.results}
        self.dependent = self._dependent_items()

    # ---- conditions ----------------------------------------------------------------------------------------------------------------

    def is_possible(self) -> bool:
        first, second, p = self.first, self.second, self.program
        if first.around is not second.around or self.items[-1] is not second or self.obstacles:
            return False
        turns = first.phis[0], second.phis[0]
        have_same_turns = p.is_same(first.proceed, second.proceed, turns) and p.is_same(first.ends[0], second.ends[0], turns)
        carry_only_turns = all(len({*map(p.original, x)}) == 1 for x in ([*first.starts, second.starts[0]], first.ends))
        read = {x for item in _inner(second) if item not in self.replaced for x in self._read_by(item)} | {*second.starts}
        return have_same_turns and carry_only_turns and len(second.phis) >= len(first.phis) and self.changed.isdisjoint(read)

    def _replaced(self) -> Iterator[tuple[int, int]]:
        """See `replaced`. Other loads of what the first loop stores are obstacles."""
        p, stored = self.program, self.first.stored
        for x in _inner(self.second):
            if isinstance(x, int) and p.names[x] == "load" and p.arguments[x][0] in stored:
                array, index = p.arguments[x]
                stores = p.stores[array]
                of_turn = p.data[x] == 0 and p.original(index) == self.second.phis[0] and len(stores) == 1
                store, scope = stores[0]
                if of_turn and scope is self.first.body and p.original(store.index) == self.first.phis[0] and store.offset == 0:
                    yield x, store.value
                else:
                    self.obstacles.append(x)

    def _dependent_items(self) -> list[int]:
        """See `dependent`. They have to be operations, which can be evaluated after the second loop."""
        p, found = self.program, []
        read = {x for item in _inner(self.first) for x in self._read_by(item)}
        start = self.items.index(self.first) + 1
        for item in self.items[start:-1]:
            stored = () if isinstance(item, int) else {item.array} if isinstance(item, Store) else item.stored
            depends = not self.changed.isdisjoint(self._read_by(item))
            loads_stored = isinstance(item, int) and p.names[item] == "load" and p.arguments[item][0] in self.second.stored
            if not read.isdisjoint(stored) or (depends and (not isinstance(item, int) or loads_stored)):
                self.obstacles.append(item)
            elif depends:
                self.changed.add(item)
                found.append(item)
        return found

    def _read_by(self, item) -> Iterable[int]:
        """The values that an item reads, arrays among them."""
        if isinstance(item, int):
            return self.program.arguments[item]
        if isinstance(item, Store):
            return item.array, item.index, item.value
        return {*item.starts, *item.ends, item.proceed, *(x for inner in _inner(item) for x in self._read_by(inner))}

    # ---- the change ----------------------------------------------------------------------------------------------------------------

    def move(self) -> None:
        p, first, second = self.program, self.first, self.second
        for x, value in self.replaced.items():
            self._replace(x, value)
        for of_first, of_second in ((first.phis, second.phis), (first.results, second.results)):
            for x, value in zip(of_first, of_second, strict=False):
                self._replace(x, value)
        self._replace(first.proceed, second.proceed)
        known = {self._key(x): x for scope in (first.condition, first.body) for x in scope.items if self._is_operation(x)}
        self._move_items(first.condition, second.condition)
        self._move_items(first.body, second.body)
        self._merge(known)
        for x in first.phis:
            p.scopes[x] = second.condition
        moved = {self.first, *self.dependent}
        self.items[:] = [*(x for x in self.items if x not in moved), *self.dependent]

    def _replace(self, x: int, value: int) -> None:
        """Make a value equal to another one."""
        p = self.program
        p.names[x], p.arguments[x], p.data[x] = "copy", (value,), None

    def _move_items(self, source: Scope, target: Scope) -> None:
        """Move items before those of another scope, but after the test whether there is another turn, which they read."""
        p = self.program
        at = target.items.index(self.second.proceed) + 1 if target is self.second.condition else 0
        target.items[at:at] = source.items
        for x in source.items:
            if isinstance(x, int):
                p.scopes[x] = target
            elif isinstance(x, Store):
                p.stores[x.array] = [(store, target if store is x else scope) for store, scope in p.stores[x.array]]
            else:
                x.condition.parent = target

    def _merge(self, known: dict) -> None:
        """Make operations of the second loop equal to those of the first one. Those of the condition that depend on values of the body
        are moved to it. known: operations of the first loop."""
        p, condition, body = self.program, self.second.condition, self.second.body
        of_first, late = {*known.values()}, []
        for scope in (condition, body):
            for x in scope.items:
                if not self._is_operation(x) or x in of_first:
                    continue
                found = known.get(self._key(x))
                if scope is condition and any(p.scopes[p.original(a)] is body for a in p.arguments[x]):
                    p.scopes[x] = body
                    late.append(x)
                if found is not None and (p.scopes[found] is not body or p.scopes[x] is body):
                    self._replace(x, found)
        condition.items[:] = [x for x in condition.items if x not in late]
        last = max((k for k, x in enumerate(body.items) if x in of_first), default=-1)
        body.items[last + 1 : last + 1] = late

    def _is_operation(self, x) -> bool:
        """Whether an item has the same value wherever its arguments are known."""
        p = self.program
        if not isinstance(x, int) or p.names[x] in ("phi", "result", "copy", "buffer"):
            return False
        array = p.arguments[x][0] if p.names[x] == "load" else None
        return array is None or p.names[array] == "array" or (array in p.complete and array not in self.second.stored)

    def _key(self, x: int) -> tuple:
        p = self.program
        return p.names[x], p.types[x], tuple(map(p.original, p.arguments[x])), p.data[x]


def _inner(loop: Loop) -> Iterator:
    """The items of a loop, and of those inside."""
    for scope in (loop.condition, loop.body):
        for x in scope.items:
            yield x
            if isinstance(x, Loop):
                yield from _inner(x)
