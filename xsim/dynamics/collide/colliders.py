"""Registration of collision functions in closed form."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from xsim.registry import COLLIDERS

__all__ = ["Collider", "collider"]


class Collider(NamedTuple):
    """function(a, b, **options) -> Touches, as many as ``contacts``. a, b: `Shape`. options: what else it takes, of margin (m; contacts of
    shapes farther apart need not be right) and rules (`Rules`)."""

    function: Callable
    contacts: int
    options: tuple[str, ...]

    def __call__(self, a, b, margin, rules) -> list:
        given = {"margin": margin, "rules": rules}
        return self.function(a, b, **{name: given[name] for name in self.options})


def collider(first: str, second: str, *, contacts: int = 1, options: tuple[str, ...] = ()) -> Callable:
    """A decorator that registers a collision function for two shapes, in the order of `xsim.model.topology.COLLISION_SHAPES`."""

    def register(function: Callable) -> Callable:
        COLLIDERS.register((first, second), Collider(function, contacts, options))
        return function

    return register
