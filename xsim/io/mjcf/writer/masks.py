"""What collides with what: bit masks, and the groups of geoms that never collide with each other."""

from __future__ import annotations

from itertools import combinations

from xsim.io.mjcf.writer.context import Context
from xsim.spec import GeomSpec, SurfaceSpec

__all__ = ["collision_masks", "excluded_bodies"]

BITS = 31  # of a mask; the last one is for geoms in no group
ALL = 2**BITS - 1


def collision_masks(context: Context) -> list[tuple[int, int]]:
    """contype and conaffinity of all geoms.

    Where everything in groups collides with all other groups, each group has a bit of its own: its contype is that bit, its conaffinity
    all others. Else the masks are those of the spec, and `excluded_bodies` says what the groups mean.
    """
    geoms = [geom for _, geom in context.geoms()]
    if not _groups_as_bits(geoms):
        return [(0, 0) if not _touches(geom) else _masks(geom) for geom in geoms]
    groups = _groups(geoms)
    return [_bit_masks(geom, groups) if _touches(geom) else (0, 0) for geom in geoms]


def excluded_bodies(context: Context) -> list[tuple[int, int]]:
    """Pairs of bodies with geoms of one group, where the groups are not in the masks. -1: the world."""
    geoms = [(body, geom) for body, geom in context.geoms() if _touches(geom)]
    if _groups_as_bits([geom for _, geom in geoms]):
        return []
    bodies: dict[int, set[int]] = {}
    for body, geom in geoms:
        if geom.contact is not None and geom.contact.group is not None:
            bodies.setdefault(geom.contact.group, set()).add(body)
    pairs = {pair for group in bodies.values() for pair in combinations(sorted(group), 2)}
    return sorted(pairs - {(min(pair), max(pair)) for pair in context.spec.exclude})


def _touches(geom: GeomSpec) -> bool:
    return geom.collision and geom.contact is not None


def _masks(geom: GeomSpec) -> tuple[int, int]:
    surface = geom.contact or SurfaceSpec()
    return surface.contype, surface.conaffinity


def _groups(geoms: list[GeomSpec]) -> list[int]:
    return sorted({geom.contact.group for geom in geoms if geom.contact is not None and geom.contact.group is not None})


def _groups_as_bits(geoms: list[GeomSpec]) -> bool:
    """Whether there are groups, few enough, and the masks alone would let every geom collide with every other."""
    touching = [geom for geom in geoms if _touches(geom)]
    shared = ALL
    for geom in touching:
        contype, conaffinity = _masks(geom)
        shared &= contype & conaffinity
    return 0 < len(_groups(touching)) < BITS and shared != 0


def _bit_masks(geom: GeomSpec, groups: list[int]) -> tuple[int, int]:
    group = None if geom.contact is None else geom.contact.group
    bit = 1 << (BITS - 1 if group is None else groups.index(group))
    return bit, ALL if group is None else ALL ^ bit
