"""Which collision function holds two kinds of geoms against each other."""

from __future__ import annotations

import functools

from ...structure import MeshInfo
from .analytic import ANALYTIC
from .convex import convex
from .hulls import Hull, make_hull
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
    a, b = (shape._replace(data=_hull(shape.data)) if kind == "mesh" else shape for kind, shape in zip(shapes, (a, b), strict=True))
    if shapes not in ANALYTIC:
        return convex(shapes, a, b)
    if shapes == ("box", "box"):
        return ANALYTIC[shapes](a, b, margin, rules)
    return ANALYTIC[shapes](a, b, margin) if shapes == ("capsule", "capsule") else ANALYTIC[shapes](a, b)


@functools.lru_cache(maxsize=256)
def _hull(mesh: MeshInfo) -> Hull:
    return make_hull(mesh.vertices.value, None if mesh.hull is None else mesh.hull.value)
