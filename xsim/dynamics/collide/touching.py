"""Which collision function holds two kinds of geoms against each other."""

from __future__ import annotations

from .shapes import Shape, Touch

SEVERAL = {
    ("plane", "capsule"): 2, ("plane", "cylinder"): 4, ("plane", "box"): 4, ("plane", "mesh"): 4, ("capsule", "capsule"): 2,
    ("capsule", "box"): 2, ("box", "box"): 8,
}  # fmt: skip
"""How many contacts two geoms may have, where those are more than one."""


def count_of(shapes: tuple[str, str]) -> int:
    """How many contacts two geoms of these shapes may have."""
    return SEVERAL.get(shapes, 1)


def collide(shapes: tuple[str, str], a: Shape, b: Shape, margin, rules: str) -> list[Touch]:
    """Contacts of geoms of two shapes, as many as `count_of` says. margin (m): those farther apart need not be right."""
    from . import planes, round

    name = "_".join(shapes)
    function = getattr(planes, name, None) or getattr(round, name)
    out = function(a, b, margin) if shapes == ("capsule", "capsule") else function(a, b)
    assert len(out) == count_of(shapes), shapes
    return out
