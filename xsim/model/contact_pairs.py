"""Which geoms and parts of flexes of a ModelSpec may touch, and the numbers of their surfaces.

Source of the rules: MuJoCo's documentation, Computation, selection of collisions and contact parameters; docs/mjcf.md has what differs
between releases. Formats without MuJoCo's rules (``rules`` is "") take the smaller sliding friction of two surfaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import COLLIDING, PairsInfo, PartInfo, Table
from xsim.rules import RULES, Rules
from xsim.spec import FlexSpec, GeomSpec, ModelSpec, PairSpec, Soft, SurfaceSpec

__all__ = ["Pairs", "read_pairs", "touches"]

FLAT = ("plane", "hfield")  # never with each other


class Pairs(NamedTuple):
    """infos: what may touch, by kind. parts: those of flexes. cone: the friction cone."""

    infos: tuple[PairsInfo, ...]
    parts: tuple[PartInfo, ...]
    cone: str

    def structure(self) -> dict[str, Any]:
        """Fields of the Topology."""
        return {"pairs": self.infos, "parts": self.parts, "cone": self.cone}


class _Shell(NamedTuple):
    """A geom. group: the body that it moves with (-1: the world); above: the one that the group's parent moves with."""

    geom: GeomSpec
    body: int
    group: int
    above: int

    def kind(self) -> tuple[str, int | None]:
        """Shape and asset."""
        return self.geom.shape, self.geom.asset

    def surface(self) -> SurfaceSpec:
        return self.geom.contact or SurfaceSpec()


class _Part(NamedTuple):
    """A part of a flex, see `PartInfo`."""

    shape: str
    flex: int
    points: tuple[int, ...]
    own: SurfaceSpec

    def kind(self) -> tuple[str, int | None]:
        return self.shape, None

    def surface(self) -> SurfaceSpec:
        return self.own


def _shells(spec: ModelSpec) -> list[_Shell]:
    """All geoms, those of the world first."""
    out, around = [_Shell(geom, -1, -1, -1) for geom in spec.world_geoms], _groups(spec)
    for i, body in enumerate(spec.bodies):
        out += [_Shell(geom, i, *around[i + 1]) for geom in body.geoms]
    return out


def _groups(spec: ModelSpec) -> list[tuple[int, int]]:
    """Of the world and of each body, see `_Shell`, its group and the one above."""
    out = [(-1, -1)]
    for i, body in enumerate(spec.bodies):
        group, above = out[body.parent + 1]
        out.append((i, group) if any(j.type != "fixed" for j in body.joints) else (group, above))
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


def touches(spec: ModelSpec, flex: FlexSpec) -> bool:
    """Whether a flex may touch something."""
    surface = flex.numbers["contact"]
    return _on(spec) and bool(surface.contype or surface.conaffinity)


def _on(spec: ModelSpec) -> bool:
    """Whether contacts act."""
    return "contact" in spec.option.constraint_kinds and not {"contact", "constraint"}.intersection(spec.option.disabled)


def read_pairs(spec: ModelSpec, place: list[int | None], leaf_rows: LeafRows) -> Pairs:
    """What may touch under the rows and flags of the spec. place: of each flex its number among those of the model."""
    found = _PairList(spec, leaf_rows)
    if _on(spec):
        _geom_pairs(spec, found)
        _flex_pairs(spec, found)
    if found.pairs:
        leaf_rows.add("cone.impratio", float(spec.option.solver.get("impratio", 1.0)))
    infos = []
    for (shapes, assets, condim, mixed), pairs in sorted(found.pairs.items(), key=lambda item: repr(item[0])):
        geoms, rows, ruling = (np.array([pair[k] for pair in pairs]) for k in range(3))
        infos.append(PairsInfo(shapes, assets, condim, mixed, Table(geoms), Table(rows), Table(ruling)))
    parts = []
    for part in found.things[found.geoms :]:
        assert isinstance(part, _Part)
        flex = place[part.flex]
        assert flex is not None
        reach = spec.flexes[part.flex].lengths.max() + spec.flexes[part.flex].radius
        parts.append(PartInfo(part.shape, flex, part.points, float(reach)))
    return Pairs(tuple(infos), tuple(parts), spec.option.solver.get("cone", "pyramidal"))


class _PairList:
    """The pairs that may touch. things: all geoms, then parts of flexes. pairs: by kind, each (things, rows, ruling)."""

    def __init__(self, spec: ModelSpec, rows: LeafRows):
        shells = _shells(spec)
        self.things: list[_Shell | _Part] = list(shells)
        self.geoms = len(shells)
        self.pairs: dict[tuple, list] = {}
        self.rows = rows
        self._solver, self._rules = spec.option.solver, RULES[spec.rules]
        self._flexes, self._moving = spec.flexes, [group >= 0 for group, _ in _groups(spec)]
        self._parts: dict[tuple, int] = {}
        self._surfaces: dict[int, int] = {}

    def part(self, shape: str, flex: int, points, surface: SurfaceSpec) -> int:
        """The number of a part of a flex."""
        key = (shape, flex, tuple(points))
        if key not in self._parts:
            self._parts[key] = len(self.things)
            self.things.append(_Part(*key, surface))
        return self._parts[key]

    def add(self, i: int, j: int, condim: int, mixed: bool, rows, ruling: int) -> None:
        shapes, assets = zip(*(self.things[k].kind() for k in (i, j)), strict=True)
        self.pairs.setdefault((shapes, assets, condim, mixed), []).append(((i, j), rows, ruling))

    def own_row(self, full: dict, **anyway: float) -> int:
        """The row of a pair that says all of its numbers. anyway: those that are not overridden."""
        full = _overridden(full, self._solver) if self._solver.get("override") else full
        return _pair_row(self.rows, full | anyway)

    def move(self, *things: int) -> bool:
        """Whether any of these moves."""
        for thing in (self.things[k] for k in things):
            bodies = [self._flexes[thing.flex].bodies[p] for p in thing.points] if isinstance(thing, _Part) else [thing.body]
            if any(self._moving[body + 1] for body in bodies):
                return True
        return False

    def meet_part(self, i: int, j: int) -> None:
        """Two things, one a part of a flex, unless nothing moves either."""
        if self.move(i, j):
            self.meet(*_ordered(self.things, i, j))

    def meet(self, i: int, j: int) -> None:
        """Two things whose surfaces mix."""
        one, two = (self.things[k].surface() for k in (i, j))
        condim, ruling = _condim(one, two)
        if self._solver.get("override"):
            self.add(i, j, condim, False, self.own_row(_mixed(one, two, self._rules)), -1)
        else:
            self.add(i, j, condim, True, (self._surface(i), self._surface(j)), ruling)

    def _surface(self, k: int) -> int:
        thing = self.things[k]
        key = -1 - thing.flex if isinstance(thing, _Part) else k
        if key not in self._surfaces:
            self._surfaces[key] = _surface_row(self.rows, thing.surface())
        return self._surfaces[key]


def _geom_pairs(spec: ModelSpec, found: _PairList) -> None:
    shells = [thing for thing in found.things if isinstance(thing, _Shell)]
    said = {frozenset(pair.geoms) for pair in spec.pairs}
    for pair in spec.pairs:
        i, j = _ordered(found.things, *pair.geoms)
        if _collide(*(shells[k].geom.shape for k in (i, j))):
            full = _completed(pair, *(shells[k].surface() for k in (i, j)), RULES[spec.rules])
            found.add(i, j, full["condim"], False, found.own_row(full), -1)
    for pair in _hits(spec, shells):
        i, j = _ordered(found.things, *pair)
        if frozenset(pair) not in said and _collide(*(shells[k].geom.shape for k in (i, j))):
            found.meet(i, j)


# ---- flexes -------------------------------------------------------------------------------------------------------------------

_ELEMENTS = {1: "capsule", 2: "simplex", 3: "simplex"}
"""By dimension of a flex, the shape of its elements."""
_FACETS = ((0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (1, 3, 2, 0))
"""Faces of a tetrahedron, their normals outward, and the point across."""


def _flex_pairs(spec: ModelSpec, found: _PairList) -> None:
    """Flexes with geoms, with each other and with themselves."""
    shells = [thing for thing in found.things if isinstance(thing, _Shell)]
    flexes = [(i, flex, _Elements(i, flex)) for i, flex in enumerate(spec.flexes) if touches(spec, flex)]
    for k, (_, flex, elements) in enumerate(flexes):
        surface = flex.numbers["contact"]
        for i, shell in enumerate(shells):
            if _touches(shell) and _masks(shell.surface(), surface):
                for j in elements.against(found, shell):
                    found.meet_part(i, j)
        for _, other, others in flexes[k + 1 :]:
            if _masks(surface, other.numbers["contact"]):
                for one, two in elements.apart(others):
                    found.meet_part(elements.part(found, one), others.part(found, two))
        if surface.contype & surface.conaffinity and len(set(flex.bodies)) > 1:
            _with_itself(spec, found, flex, elements)


def _masks(one: SurfaceSpec, two: SurfaceSpec) -> bool:
    return bool(one.contype & two.conaffinity or two.contype & one.conaffinity)


def _with_itself(spec: ModelSpec, found: _PairList, flex: FlexSpec, elements: _Elements) -> None:
    """Elements of a flex with each other and, under the rules 3.2, with the points across from them. There is no margin."""
    surface, row = flex.numbers["contact"], None

    def add(i: int, j: int, condim: int) -> None:
        nonlocal row
        if not found.move(i, j):
            return
        if row is None:
            row = found.own_row(_mixed(surface, surface, RULES[spec.rules]), margin=0.0, gap=0.0)
        found.add(*_ordered(found.things, i, j), condim, False, row, -1)

    if flex.numbers["selfcollide"] != "none":
        for one, two in elements.apart(elements):
            add(elements.part(found, one), elements.part(found, two), surface.condim)
    if flex.numbers["internal"] and RULES[spec.rules].flex_internal_contacts:
        for element, point in elements.across():
            add(elements.part(found, element), elements.point(found, point), surface.condim)
        for face, point in elements.facets():
            add(elements.face(found, face), elements.point(found, point), 1)


class _Elements:
    """The elements of a flex that may touch something."""

    def __init__(self, number: int, flex: FlexSpec):
        self.number, self.flex, self.surface = number, flex, flex.numbers["contact"]
        self.bodies = np.array(flex.bodies)
        self.border, self.joined = _fragments(flex.elements)
        outer = flex.dim < 3 or _layers(self.border, self.joined) < flex.numbers["active_layers"]
        self.active = np.flatnonzero(np.broadcast_to(outer, len(flex.elements)))

    def part(self, found: _PairList, element: int) -> int:
        return found.part(_ELEMENTS[self.flex.dim], self.number, self.flex.elements[element].tolist(), self.surface)

    def point(self, found: _PairList, point: int) -> int:
        return found.part("sphere", self.number, (point,), self.surface)

    def face(self, found: _PairList, points: tuple) -> int:
        return found.part("facet", self.number, points, self.surface)

    def against(self, found: _PairList, shell: _Shell) -> Iterator[int]:
        """The parts that may touch a geom: all points where it is a plane, else the elements that have no point on its body."""
        if shell.geom.shape == "plane":
            return (self.point(found, i) for i, body in enumerate(self.flex.bodies) if body != shell.body)
        free = (self.bodies[self.flex.elements[self.active]] != shell.body).all(1)
        return (self.part(found, e) for e in self.active[free].tolist())

    def apart(self, other: _Elements) -> Iterator[tuple[int, int]]:
        """Elements of two flexes, or of one, each pair once, that share no body."""
        theirs = other.bodies[other.flex.elements[other.active]]
        for k, e in enumerate(self.active.tolist()):
            own, first = self.bodies[self.flex.elements[e]], k + 1 if other is self else 0
            shared = np.isin(theirs[first:], own).any(1)
            for two in other.active[first:][~shared].tolist():
                yield e, two

    def across(self) -> Iterator[tuple[int, int]]:
        """Of lines and triangles at the border, each with the points of its neighbours that it has not (element, point)."""
        for one, two, common in self.joined if self.flex.dim < 3 else ():
            if self.border[one] or self.border[two]:
                for element, other in ((two, one), (one, two)):
                    yield element, next(p for p in self.flex.elements[other].tolist() if p not in common)

    def facets(self) -> Iterator[tuple[tuple, int]]:
        """Of tetrahedra the faces, each with the point across."""
        for points in self.flex.elements.tolist() if self.flex.dim == 3 else ():
            for *face, across in _FACETS:
                yield tuple(points[k] for k in face), points[across]


def _fragments(elements: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, frozenset]]]:
    """Which elements are on the border, and those that are joined by all points but one: (element, element, common points)."""
    by_points: dict[frozenset, list[int]] = {}
    for e, points in enumerate(elements.tolist()):
        for left in points:
            by_points.setdefault(frozenset(points) - {left}, []).append(e)
    border, joined = np.zeros(len(elements), bool), []
    for common, own in by_points.items():
        border[own[0]] |= len(own) == 1
        joined += [(one, two, common) for one, two in zip(own, own[1:], strict=False)]
    return border, joined


def _layers(border: np.ndarray, joined: list[tuple[int, int, frozenset]]) -> np.ndarray:
    """How many elements each is from the border."""
    out = np.where(border, 0, len(border) + 1)
    one, two = (np.array([pair[k] for pair in joined], int) for k in (0, 1))
    while True:
        before = out.copy()
        np.minimum.at(out, one, before[two] + 1)
        np.minimum.at(out, two, before[one] + 1)
        if (out == before).all():
            return out


# ---- numbers ------------------------------------------------------------------------------------------------------------------


def _collide(one: str, two: str) -> bool:
    """Whether shapes have a collision function: flat ones not with each other."""
    return one in COLLIDING and two in COLLIDING and not (one in FLAT and two in FLAT)


def _ordered(things: list[_Shell | _Part], i: int, j: int) -> tuple[int, int]:
    """By shape, then by number."""
    one, two = sorted((i, j), key=lambda k: (_rank(things[k].kind()[0]), k))
    return one, two


def _rank(shape: str) -> int:
    return COLLIDING.index(shape) if shape in COLLIDING else len(COLLIDING)


def _condim(one: SurfaceSpec, two: SurfaceSpec) -> tuple[int, int]:
    """Dimension of the contact, and whose numbers hold: 0, 1, or -1 for a mixture."""
    if one.priority != two.priority:
        ruling = 0 if one.priority > two.priority else 1
        return (one, two)[ruling].condim, ruling
    return max(one.condim, two.condim), -1


def _surface_row(rows: LeafRows, surface: SurfaceSpec) -> int:
    own = {name: getattr(surface, name) for name in ("friction", "solmix", "margin", "gap")}
    return rows.add_to("surface", **own, solref=surface.soft.solref, solimp=surface.soft.solimp)


def _pair_row(rows: LeafRows, full: dict) -> int:
    return rows.add_to("pair", **{name: value for name, value in full.items() if name != "condim"})


def _weight(one: float, two: float) -> float:
    """Share of the first surface in a mixture."""
    if min(one, two) < 1e-15:
        return 0.5 if max(one, two) < 1e-15 else float(one > two)
    return one / (one + two)


def _mixed(one: SurfaceSpec, two: SurfaceSpec, rules: Rules) -> dict:
    """Numbers of a contact of two surfaces, as of a pair that says them all."""
    condim, ruling = _condim(one, two)
    if ruling >= 0:
        rule = (one, two)[ruling]
        friction, soft = rule.friction, rule.soft
    else:
        both = one.friction, two.friction
        friction = tuple(np.maximum(*both)) if not rules.smaller_friction else (min(both[0][0], both[1][0]), *np.maximum(*both)[1:])
        share = _weight(one.solmix, two.solmix)
        solimp = share * np.asarray(one.soft.solimp) + (1 - share) * np.asarray(two.soft.solimp)
        refs = np.asarray(one.soft.solref), np.asarray(two.soft.solref)
        timed = refs[0][0] > 0 and refs[1][0] > 0
        soft = Soft(tuple(share * refs[0] + (1 - share) * refs[1] if timed else np.minimum(*refs)), tuple(solimp))
    slide, torsion, roll = friction
    join = max if not rules.margins_add else lambda a, b: a + b
    return {
        "condim": condim, "friction": (slide, slide, torsion, roll, roll), "solref": soft.solref, "solimp": soft.solimp,
        "friction_solref": (0.0, 0.0), "margin": join(one.margin, two.margin), "gap": join(one.gap, two.gap),
    }  # fmt: skip


def _completed(pair: PairSpec, one: SurfaceSpec, two: SurfaceSpec, rules: Rules) -> dict:
    """What a pair says, the rest from its geoms."""
    mixed = _mixed(one, two, rules)
    said = {name: getattr(pair, name) for name in mixed}
    return {name: mixed[name] if value is None else value for name, value in said.items()}


def _overridden(full: dict, solver: dict) -> dict:
    return full | {name: solver[f"o_{name}"] for name in ("margin", "solref", "solimp", "friction")}
