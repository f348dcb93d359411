"""Registration of closed-form collision functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xsim.registry import COLLIDERS

__all__ = ["Collider", "collider"]


class Collider(NamedTuple):
    """A closed-form collision function, an entry of `xsim.registry.COLLIDERS`.

    function: (a: Shape, b: Shape, **options) -> list of `ContactPoint`.
    contacts: length of this list.
    options: names of further arguments of the function. "margin": m, contacts with a larger distance need not be exact. "rules": `Rules`.
    """

    function: Callable
    contacts: int
    options: tuple[str, ...]

    def __call__(self, a, b, margin, rules) -> list:
        arguments = {"margin": margin, "rules": rules}
        return self.function(a, b, **{name: arguments[name] for name in self.options})


def collider(first: str, second: str, *, contacts: int = 1, options: tuple[str, ...] = ()) -> Callable:
    """A decorator that registers a collision function for two shapes. Their order is that of `xsim.model.topology.COLLISION_SHAPES`."""

    def register(function: Callable) -> Callable:
        COLLIDERS.register((first, second), Collider(function, contacts, options))
        return function

    return register
