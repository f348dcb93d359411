"""Names of a model: unique among the elements of a kind, which others refer to."""

from __future__ import annotations

from typing import Any

from xsim.io.errors import allowed
from xsim.io.reader import Element

__all__ = ["Index"]


class Index:
    """Names by kind: body, joint, geom, site, camera, light, mesh, hfield, material, texture, tendon, actuator, sensor, equality, pair, ...

    A name stands for what `ModelSpec` uses: the number in the list of its kind (bodies: -1 is the world; geoms: among all, those
    of the world first), of a joint (body, which of its joints).
    """

    def __init__(self):
        self._found: dict[str, dict[str, tuple[Any, Element | None]]] = {"body": {"world": (-1, None)}}

    def add(self, kind: str, e: Element, number, name: str | None = None) -> str:
        """Enter an element under its ``name`` attribute (or the name given); returns it, "" where it has none."""
        name = e.string("name", "") if name is None and e.is_explicit("name") else name or ""
        if not name:
            return ""
        names = self._found.setdefault(kind, {})
        if name in names:
            first = names[name][1]
            where = "" if first is None else f" (the first is in {first.source})"
            raise e.error(f"second {kind} of this name{where}; allowed: a name of its own", "name")
        names[name] = number, e
        return name

    def find(self, kind: str, e: Element, attribute: str, default=None):
        """What the name in an attribute stands for; required where there is no default. Raises ParseError for an unknown name."""
        if not e.has(attribute) and default is not None:
            return default
        return self.named(kind, e, attribute, e.string(attribute))

    def named(self, kind: str, e: Element, attribute: str | None, name: str):
        """What a name stands for. Raises ParseError for an unknown name."""
        names = self._found.get(kind, {})
        if name not in names:
            known = allowed(name, list(names)[:50]) if names else f"the model has no {kind} with a name"
            raise e.error(f"unknown {kind} {name!r}; {known}", attribute)
        return names[name][0]

    def element(self, kind: str, name: str) -> Element:
        """The element of a known name."""
        e = self._found[kind][name][1]
        assert e is not None  # only the world body has none
        return e

    def names(self, kind: str) -> list[str]:
        return list(self._found.get(kind, {}))
