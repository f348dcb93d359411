"""Which geoms of a ModelSpec may touch, and the numbers of their surfaces.

Source of the rules: MuJoCo's documentation, Computation, selection of collisions and contact parameters; docs/mjcf.md has what differs
between releases. Formats without MuJoCo's rules (``rules`` is "") take the smaller sliding friction of two surfaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from .spec import GeomSpec, ModelSpec, PairSpec, Soft, SurfaceSpec
from .structure import COLLIDING, PairsInfo, Table

__all__ = ["Pairs", "read_pairs"]

FLAT = ("plane", "hfield")  # never with each other
_LEAVES = {
    "surface": ("friction", "solref", "solimp", "solmix", "margin", "gap"),
    "pair": ("friction", "solref", "friction_solref", "solimp", "margin", "gap"),
    "cone": ("impratio",),
}
_SIZES = {"surface": {"friction": "nsurface"}, "pair": {"friction": "npair"}, "cone": {"impratio": "ncone"}}


class Pairs(NamedTuple):
    """infos: what may touch, by kind. numbers: rows by group and leaf. sizes: lengths of the dimensions. cone: the friction cone."""

    infos: tuple[PairsInfo, ...]
    numbers: dict[str, dict[str, list]]
    sizes: list[tuple[str, int]]
    cone: str


class _Shell(NamedTuple):
    """A geom. group: the body that it moves with (-1: the world); above: the one that the group's parent moves with."""

    geom: GeomSpec
    body: int
    group: int
    above: int


def _shells(spec: ModelSpec) -> list[_Shell]:
    """All geoms, those of the world first."""
    around, out = [(-1, -1)], [_Shell(geom, -1, -1, -1) for geom in spec.world_geoms]
    for i, body in enumerate(spec.bodies):
        group, above = around[body.parent + 1]
        around.append((i, group) if any(j.type != "fixed" for j in body.joints) else (group, above))
        out += [_Shell(geom, i, *around[-1]) for geom in body.geoms]
    return out


def _touches(shell: _Shell) -> bool:
    geom = shell.geom
    return geom.contact is not None and geom.collision and geom.shape in COLLIDING


def _hits(spec: ModelSpec, shells: list[_Shell]) -> Iterator[tuple[int, int]]:
    """Pairs of geoms (numbers in ``shells``) that the masks, the tree and the excludes let touch, each once."""
    own = [i for i, shell in enumerate(shells) if _touches(shell)]
    surfaces = [shells[i].geom.contact or SurfaceSpec() for i in own]
    contype, conaffinity = (np.array([getattr(s, k) for s in surfaces], np.int64) for k in ("contype", "conaffinity"))
    body, group, above = (np.array([shells[i][k] for i in own]) for k in (1, 2, 3))
    flat = np.array([shells[i].geom.shape in FLAT for i in own], bool)
    kept = np.array([-1 if s.group is None else s.group for s in surfaces])
    width = len(spec.bodies) + 1
    excluded = np.array([(min(pair) + 1) * width + max(pair) + 1 for pair in spec.exclude], np.int64)
    kin = "filterparent" not in spec.option.disabled
    for k, i in enumerate(own):
        later = slice(k + 1, None)
        hit = (contype[k] & conaffinity[later]) | (contype[later] & conaffinity[k]) != 0
        hit &= group[later] != group[k]
        if kin and group[k] >= 0:
            hit &= (group[later] < 0) | (group[later] != above[k]) & (above[later] != group[k])
        hit &= ~(flat[k] & flat[later]) & ((kept[later] != kept[k]) | (kept[later] < 0))
        low, high = np.minimum(body[k], body[later]) + 1, np.maximum(body[k], body[later]) + 1
        hit &= ~np.isin(low * width + high, excluded)
        for j in np.flatnonzero(hit):
            yield i, own[k + 1 + int(j)]


def read_pairs(spec: ModelSpec) -> Pairs:
    """What may touch under the rows and flags of the spec."""
    numbers: dict = {group: {leaf: [] for leaf in leaves} for group, leaves in _LEAVES.items()}
    cone = spec.option.solver.get("cone", "pyramidal")
    found: dict[tuple, list] = {}
    if "contact" in spec.option.rows and not {"contact", "constraint"}.intersection(spec.option.disabled):
        _find(spec, numbers, found)
    if found:
        numbers["cone"]["impratio"].append(float(spec.option.solver.get("impratio", 1.0)))
    infos = []
    for (shapes, assets, condim, mixed), pairs in sorted(found.items(), key=lambda item: repr(item[0])):
        geoms, rows, ruling = (np.array([pair[k] for pair in pairs]) for k in range(3))
        infos.append(PairsInfo(shapes, assets, condim, mixed, Table(geoms), Table(rows), Table(ruling)))
    sizes = [(size, len(numbers[group][leaf])) for group, dims in _SIZES.items() for leaf, size in dims.items()]
    return Pairs(tuple(infos), numbers, sizes, cone)


def _find(spec: ModelSpec, numbers: dict, found: dict[tuple, list]) -> None:
    """Fill in the pairs by kind, each (geoms, rows, ruling), and their numbers."""
    shells = _shells(spec)
    solver, override = spec.option.solver, bool(spec.option.solver.get("override"))
    surface_rows: dict[int, int] = {}
    said = {frozenset(pair.geoms) for pair in spec.pairs}

    def add(i: int, j: int, condim: int, mixed: bool, rows, ruling: int) -> None:
        shapes, assets = zip(*((shells[k].geom.shape, shells[k].geom.asset) for k in (i, j)), strict=True)
        found.setdefault((shapes, assets, condim, mixed), []).append(((i, j), rows, ruling))

    for pair in spec.pairs:
        i, j = _ordered(shells, *pair.geoms)
        if _collide(*(shells[k].geom.shape for k in (i, j))):
            full = _completed(pair, *((shells[k].geom.contact or SurfaceSpec()) for k in (i, j)), spec.rules)
            add(i, j, full["condim"], False, _pair_row(numbers, _overridden(full, solver) if override else full), -1)
    for pair in _hits(spec, shells):
        i, j = _ordered(shells, *pair)
        if frozenset(pair) in said or not _collide(*(shells[k].geom.shape for k in (i, j))):
            continue
        one, two = (shells[k].geom.contact or SurfaceSpec() for k in (i, j))
        condim, ruling = _condim(one, two)
        if override:
            add(i, j, condim, False, _pair_row(numbers, _overridden(_mixed(one, two, spec.rules), solver)), -1)
            continue
        for k in (i, j):
            if k not in surface_rows:
                surface_rows[k] = _surface_row(numbers, shells[k].geom.contact or SurfaceSpec())
        add(i, j, condim, True, (surface_rows[i], surface_rows[j]), ruling)


def _collide(one: str, two: str) -> bool:
    """Whether shapes have a collision function: flat ones not with each other."""
    return one in COLLIDING and two in COLLIDING and not (one in FLAT and two in FLAT)


def _ordered(shells: list[_Shell], i: int, j: int) -> tuple[int, int]:
    """By shape, then by number."""
    one, two = sorted((i, j), key=lambda k: (_rank(shells[k].geom.shape), k))
    return one, two


def _rank(shape: str) -> int:
    return COLLIDING.index(shape) if shape in COLLIDING else len(COLLIDING)


def _condim(one: SurfaceSpec, two: SurfaceSpec) -> tuple[int, int]:
    """Dimension of the contact, and whose numbers hold: 0, 1, or -1 for a mixture."""
    if one.priority != two.priority:
        ruling = 0 if one.priority > two.priority else 1
        return (one, two)[ruling].condim, ruling
    return max(one.condim, two.condim), -1


def _surface_row(numbers: dict, surface: SurfaceSpec) -> int:
    own = numbers["surface"]
    for name in ("friction", "solmix", "margin", "gap"):
        own[name].append(getattr(surface, name))
    own["solref"].append(surface.soft.solref)
    own["solimp"].append(surface.soft.solimp)
    return len(own["friction"]) - 1


def _pair_row(numbers: dict, full: dict) -> int:
    own = numbers["pair"]
    for name in _LEAVES["pair"]:
        own[name].append(full[name])
    return len(own["friction"]) - 1


def _weight(one: float, two: float) -> float:
    """Share of the first surface in a mixture."""
    if min(one, two) < 1e-15:
        return 0.5 if max(one, two) < 1e-15 else float(one > two)
    return one / (one + two)


def _mixed(one: SurfaceSpec, two: SurfaceSpec, rules: str) -> dict:
    """Numbers of a contact of two surfaces, as of a pair that says them all."""
    condim, ruling = _condim(one, two)
    if ruling >= 0:
        rule = (one, two)[ruling]
        friction, soft = rule.friction, rule.soft
    else:
        both = one.friction, two.friction
        friction = tuple(np.maximum(*both)) if rules else (min(both[0][0], both[1][0]), *np.maximum(*both)[1:])
        share = _weight(one.solmix, two.solmix)
        solimp = share * np.asarray(one.soft.solimp) + (1 - share) * np.asarray(two.soft.solimp)
        refs = np.asarray(one.soft.solref), np.asarray(two.soft.solref)
        timed = refs[0][0] > 0 and refs[1][0] > 0
        soft = Soft(tuple(share * refs[0] + (1 - share) * refs[1] if timed else np.minimum(*refs)), tuple(solimp))
    slide, torsion, roll = friction
    join = max if rules != "4.0" else lambda a, b: a + b
    return {
        "condim": condim, "friction": (slide, slide, torsion, roll, roll), "solref": soft.solref, "solimp": soft.solimp,
        "friction_solref": (0.0, 0.0), "margin": join(one.margin, two.margin), "gap": join(one.gap, two.gap),
    }  # fmt: skip


def _completed(pair: PairSpec, one: SurfaceSpec, two: SurfaceSpec, rules: str) -> dict:
    """What a pair says, the rest from its geoms."""
    mixed = _mixed(one, two, rules)
    said = {name: getattr(pair, name) for name in mixed}
    return {name: mixed[name] if value is None else value for name, value in said.items()}


def _overridden(full: dict, solver: dict) -> dict:
    return full | {name: solver[f"o_{name}"] for name in ("margin", "solref", "solimp", "friction")}
