"""Names of written elements: unique among those of a kind, and made where an element without a name is referred to."""

from __future__ import annotations

from collections.abc import Hashable

from xsim.io.errors import WriteError
from xsim.io.writing.elements import XML
from xsim.spec import ModelSpec, Source

__all__ = ["Names"]

RESERVED = {"body": {"world"}}


class Names:
    """The elements that have been written, by kind and by what a `ModelSpec` calls them: a number, or for joints (body, dof).

    spec: the model. No made name is that of one of its bodies or joints. body: the kind of what its bodies become.
    """

    def __init__(self, spec: ModelSpec, body: str):
        self._given = {body: {x.name for x in spec.bodies}, "joint": {joint.name for x in spec.bodies for joint in x.joints}}
        self._elements: dict[tuple[str, Hashable], XML] = {}
        self._taken: dict[str, set[str]] = {kind: set(names) for kind, names in RESERVED.items()}

    def enter(self, kind: str, number: Hashable, e: XML, name: str, *, made: bool = False) -> None:
        """Give an element its name, or the next free one like it; without a name it gets none until it is asked for."""
        self._elements[kind, number] = e
        if name:
            e.set("name", self.free(kind, name, made=made))

    def of(self, kind: str, number: Hashable) -> str:
        """The name of an element, made if it has none. Raises WriteError where it is not in the file."""
        if kind == "body" and number == -1:
            return "world"
        e = self.element(kind, number)
        if not e.get("name"):
            place = number if isinstance(number, tuple) else (number,)
            e.set("name", self.free(kind, "_".join((kind, *map(str, place))), made=True))
        return str(e.get("name"))

    def element(self, kind: str, number: Hashable) -> XML:
        """An element that has been written. Raises WriteError for one that is not in the file."""
        if (kind, number) not in self._elements:
            raise WriteError(Source(), f"{kind} {number}", "another element refers to it, and it is not in the file")
        return self._elements[kind, number]

    def free(self, kind: str, name: str, *, made: bool = False) -> str:
        """The name, with a number behind it where it is taken; from now on it is taken. made: whether the model does not have it."""
        taken, given, wanted, count = self._taken.setdefault(kind, set()), self._given.get(kind, set()), name, 1
        while name in taken or made and name in given:
            count, made = count + 1, True
            name = f"{wanted}_{count}"
        taken.add(name)
        return name
