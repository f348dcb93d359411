"""Pairs of geoms and parts of flexes of a ModelSpec that can collide, and their contact parameters.

Source of the rules: MuJoCo's documentation, Computation, selection of collisions and contact parameters. docs/mjcf.md lists the differences
between releases. Other formats (``rules`` is "") use the smaller sliding friction of the two surfaces.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from xsim.limits import limits
from xsim.model.face_order import element_order
from xsim.model.holonomic import reference_poses
from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import COLLISION_SHAPES, PairsInfo, PartInfo, Table
from xsim.model.tree import fail
from xsim.rules import RULES, Rules
from xsim.spec import FlexSpec, GeomSpec, GridSpec, ModelSpec, PairSpec, Soft, SurfaceSpec

__all__ = ["Pairs", "can_collide", "read_pairs"]

FEWER_PAIRS = "masks (contype, conaffinity), excluded pairs of bodies, or explicit pairs leave those that matter"

FLAT_SHAPES = ("plane", "hfield")
"""Shapes that do not collide with each other."""


class Pairs(NamedTuple):
    """infos: the pairs, by kind. parts: the parts of flexes that collide. cone: the friction cone.

    adhesion: see `Topology.pair_adhesion`."""

    infos: tuple[PairsInfo, ...]
    parts: tuple[PartInfo, ...]
    cone: str
    adhesion: tuple[tuple[int, int], ...]

    def structure(self) -> dict[str, Any]:
        """Fields of the Topology."""
        return {"pairs": self.infos, "parts": self.parts, "cone": self.cone, "pair_adhesion": self.adhesion}


class _Geom(NamedTuple):
    """A geom with its body (-1: the world).

    group: the moving body to which its body is welded. parent_group: that of the parent of the group. -1: the world."""

    geom: GeomSpec
    body: int
    group: int
    parent_group: int

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
    flex_surface: SurfaceSpec

    def kind(self) -> tuple[str, int | None]:
        return self.shape, None

    def surface(self) -> SurfaceSpec:
        return self.flex_surface


def _all_geoms(spec: ModelSpec) -> list[_Geom]:
    """All geoms, those of the world first."""
    out, groups = [_Geom(geom, -1, -1, -1) for geom in spec.world_geoms], _groups(spec)
    for i, body in enumerate(spec.bodies):
        out += [_Geom(geom, i, *groups[i + 1]) for geom in body.geoms]
    return out


def _groups(spec: ModelSpec) -> list[tuple[int, int]]:
    """The group and the parent group (see `_Geom`) of the world and of each body."""
    out = [(-1, -1)]
    for i, body in enumerate(spec.bodies):
        group, parent_group = out[body.parent + 1]
        out.append((i, group) if any(j.type != "fixed" for j in body.joints) else (group, parent_group))
    return out


def _mocap(spec: ModelSpec) -> list[bool]:
    """Whether the world and each body are on a mocap body."""
    out = [False]
    for body in spec.bodies:
        out.append(body.mocap or out[body.parent + 1])
    return out


def _is_collision_geom(item: _Geom) -> bool:
    geom = item.geom
    return geom.contact is not None and geom.collision and geom.shape in COLLISION_SHAPES


def _allowed_pairs(spec: ModelSpec, geoms: list[_Geom]) -> np.ndarray:
    """Pairs (n, 2) of geoms (indices in ``geoms``) that the masks, the tree and the excludes allow to collide."""
    pairs: list[np.ndarray] = [np.zeros((0, 2), int)]
    count = 0
    candidates = np.array([i for i, item in enumerate(geoms) if _is_collision_geom(item)], int)
    surfaces = [geoms[i].surface() for i in candidates]
    contype, conaffinity = (np.array([getattr(s, k) for s in surfaces], np.int64) for k in ("contype", "conaffinity"))
    body, group, parent_group = (np.array([geoms[i][k] for i in candidates]) for k in (1, 2, 3))
    flat = np.array([geoms[i].geom.shape in FLAT_SHAPES for i in candidates], bool)
    self_group = np.array([-1 if s.group is None else s.group for s in surfaces])
    width = len(spec.bodies) + 1
    excluded = np.array([(min(pair) + 1) * width + max(pair) + 1 for pair in spec.exclude], np.int64)
    filter_parent = "filterparent" not in spec.option.disabled
    starts = np.flatnonzero(np.diff(group, prepend=-2))  # of runs of geoms that do not move relative to each other
    first = starts[np.searchsorted(starts, np.arange(len(candidates)), side="right") - 1]
    for k in np.flatnonzero(first):
        i, earlier = candidates[k], slice(first[k])
        allowed = (contype[k] & conaffinity[earlier]) | (contype[earlier] & conaffinity[k]) != 0
        allowed &= group[earlier] != group[k]
        if filter_parent and group[k] >= 0:
            allowed &= (group[earlier] < 0) | (group[earlier] != parent_group[k]) & (parent_group[earlier] != group[k])
        allowed &= ~(flat[k] & flat[earlier]) & ((self_group[earlier] != self_group[k]) | (self_group[earlier] < 0))
        low, high = np.minimum(body[k], body[earlier]) + 1, np.maximum(body[k], body[earlier]) + 1
        allowed &= ~np.isin(low * width + high, excluded)
        others = candidates[earlier][allowed]
        count += len(others)
        if count > (most := limits().pairs):
            fail(geoms[i].geom.source, f"more than {most:,} pairs of geoms can collide (limits: pairs); {FEWER_PAIRS}")
        pairs.append(np.stack([others, np.full_like(others, i)], 1))
    found = np.concatenate(pairs)
    return found[np.lexsort(found.T[::-1])]


def can_collide(spec: ModelSpec, flex: FlexSpec) -> bool:
    """Whether contacts of a flex are enabled."""
    surface = flex.numbers["contact"]
    return _contacts_enabled(spec) and bool(surface.contype or surface.conaffinity)


def _contacts_enabled(spec: ModelSpec) -> bool:
    return "contact" in spec.option.constraint_kinds and not {"contact", "constraint"}.intersection(spec.option.disabled)


def read_pairs(spec: ModelSpec, flex_index: list[int | None], leaf_rows: LeafRows) -> Pairs:
    """The pairs that can collide under the constraint kinds and flags of the spec. flex_index: `Flexes.index`."""
    pair_list = _PairList(spec, leaf_rows)
    if _contacts_enabled(spec):
        _geom_pairs(spec, pair_list)
        _flex_pairs(spec, pair_list)
    if pair_list.pairs:
        leaf_rows.add("cone.impratio", float(spec.option.solver.get("impratio", 1.0)))
    infos = []
    for (shapes, assets, condim, mixed, *flags), pairs in sorted(pair_list.pairs.items(), key=lambda item: repr(item[0])):
        if set(shapes) == {"hfield", "sdf"}:
            warnings.warn("height fields have no contacts with signed distance functions", UserWarning, stacklevel=2)
            continue
        infos.append(PairsInfo(shapes, assets, condim, mixed, *(Table(np.array(x)) for x in pairs), *flags))
    parts = []
    for part in pair_list.colliders[pair_list.geoms :]:
        assert isinstance(part, _Part)
        flex = flex_index[part.flex]
        assert flex is not None
        reach = spec.flexes[part.flex].lengths.max() + spec.flexes[part.flex].radius
        parts.append(PartInfo(part.shape, flex, part.points, float(reach)))
    return Pairs(tuple(infos), tuple(parts), spec.option.solver.get("cone", "pyramidal"), tuple(pair_list.adhesion))


class _PairList:
    """The pairs that can collide.

    colliders: all geoms, then parts of flexes. pairs: by kind, the indices of the two colliders, the leaf rows, and which of the two has
    the higher priority (see `_condim`). adhesion: see `Topology.pair_adhesion`."""

    def __init__(self, spec: ModelSpec, rows: LeafRows):
        geoms = _all_geoms(spec)
        self.colliders: list[_Geom | _Part] = list(geoms)
        self.geoms = len(geoms)
        self.pairs: dict[tuple, tuple[list, list, list]] = {}
        self.rows = rows
        self.adhesion: list[tuple[int, int]] = []
        self._solver, self._rules = spec.option.solver, RULES[spec.rules]
        self._flexes, self._moving = spec.flexes, [group >= 0 for group, _ in _groups(spec)]
        self._mocap, self._any_passive = _mocap(spec), any(flex.has_passive_contact for flex in spec.flexes)
        self._parts: dict[tuple, int] = {}
        self._surfaces: dict[int, int] = {}

    def part(self, shape: str, flex: int, points, surface: SurfaceSpec) -> int:
        """The index of a part of a flex; the part is added if it is new."""
        key = (shape, flex, tuple(points))
        if key not in self._parts:
            self._parts[key] = len(self.colliders)
            self.colliders.append(_Part(*key, surface))
        return self._parts[key]

    def add(self, i: int, j: int, condim: int, row: int, sdf: str = "sdf") -> None:
        """Add a pair with contact parameters of its own. sdf: the shape by which geoms of the shape sdf collide."""
        shapes, assets = zip(*(self.colliders[k].kind() for k in (i, j)), strict=True)
        self._add((_with_sdf(shapes, sdf), assets, condim, False), [(i, j)], [row], [-1])

    def _add(self, kind: tuple, pairs: list, rows: list, dominant: list) -> None:
        passive = self._any_passive and self._is_passive(*pairs[0])
        of_parts = any(isinstance(self.colliders[k], _Part) for k in pairs[0])
        kind = (*kind[:2], 1 if passive else kind[2], kind[3], passive, of_parts)
        for present, new in zip(self.pairs.setdefault(kind, ([], [], [])), (pairs, rows, dominant), strict=True):
            present += new

    def _is_passive(self, *indices: int) -> bool:
        """See `PairsInfo.passive`."""
        items = [self.colliders[k] for k in indices]
        geoms = [item for item in items if isinstance(item, _Geom)]
        static = all(item.group < 0 and not self._mocap[item.body + 1] for item in geoms)
        return static and any(self._flexes[item.flex].has_passive_contact for item in items if isinstance(item, _Part))

    def pair_row(self, parameters: dict, **fixed: float) -> int:
        """Add contact parameters of a pair and return their row. fixed: parameters that MuJoCo's override does not change."""
        parameters = _overridden(parameters, self._solver) if self._solver.get("override") else parameters
        row = _pair_row(self.rows, parameters | fixed)
        if parameters["adhesion"]:
            self.adhesion.append((row, self.rows.add("pair.adhesion", parameters["adhesion"])))
        return row

    def any_moves(self, *indices: int) -> bool:
        """Whether any of these colliders moves."""
        for item in (self.colliders[k] for k in indices):
            bodies = _bodies_of_part(self._flexes[item.flex], item.points) if isinstance(item, _Part) else [item.body]
            if any(self._moving[body + 1] for body in bodies):
                return True
        return False

    def add_mixed(self, pairs, sdf: str = "sdf") -> None:
        """Add pairs (n, 2) of colliders whose contact parameters are mixed from their two surfaces. sdf: see `add`."""
        pairs = _ordered(self.colliders, np.asarray(pairs, int).reshape(-1, 2))
        if self._solver.get("override"):
            for i, j in pairs.tolist():
                first, second = (self.colliders[k].surface() for k in (i, j))
                self.add(i, j, _condim(first, second)[0], self.pair_row(_mixed(first, second, self._rules)), sdf)
            return
        rows = np.array([self._surface(k) for k in pairs.ravel().tolist()], int).reshape(-1, 2)
        passive = np.array([self._is_passive(*pair) for pair in pairs.tolist()] if self._any_passive else [False] * len(pairs), bool)
        for (shapes, *kind), same, dominant in _by_kind(self.colliders, pairs):
            for chosen in (~passive[same], passive[same]):
                if chosen.any():
                    same_kind = (_with_sdf(shapes, sdf), *kind)
                    self._add(same_kind, pairs[same[chosen]].tolist(), rows[same[chosen]].tolist(), dominant[chosen].tolist())

    def _surface(self, k: int) -> int:
        item = self.colliders[k]
        key = -1 - item.flex if isinstance(item, _Part) else k
        if key not in self._surfaces:
            self._surfaces[key] = _surface_row(self.rows, item.surface())
        return self._surfaces[key]


def _with_sdf(shapes: tuple[str, ...], sdf: str) -> tuple[str, ...]:
    return tuple(sdf if shape == "sdf" else shape for shape in shapes)


def _geom_pairs(spec: ModelSpec, pair_list: _PairList) -> None:
    geoms = [item for item in pair_list.colliders if isinstance(item, _Geom)]
    for pair in spec.pairs:
        i, j = _ordered(pair_list.colliders, np.array([pair.geoms]))[0].tolist()
        if _collide(*(geoms[k].geom.shape for k in (i, j))):
            parameters = _pair_parameters(pair, *(geoms[k].surface() for k in (i, j)), RULES[spec.rules])
            pair_list.add(i, j, parameters["condim"], pair_list.pair_row(parameters))
    pairs = _allowed_pairs(spec, geoms)
    explicit = np.sort(np.array([pair.geoms for pair in spec.pairs], int).reshape(-1, 2), 1) @ (len(geoms), 1)
    pair_list.add_mixed(pairs[~np.isin(np.sort(pairs, 1) @ (len(geoms), 1), explicit)])


# ---- flexes -------------------------------------------------------------------------------------------------------------------

_ELEMENTS = {1: "capsule", 2: "simplex", 3: "simplex"}
"""The shape of the elements of a flex, by its dimension."""
ON_FACE = 1e-6  # of a cell: a vertex at this distance from a face of a cell is on it
_FACETS = ((0, 1, 2, 3), (0, 2, 3, 1), (0, 3, 1, 2), (1, 3, 2, 0))
"""Faces of a tetrahedron with outward normals, each followed by the opposite point."""


def _flex_pairs(spec: ModelSpec, pair_list: _PairList) -> None:
    """Flexes with geoms, with each other and with themselves."""
    geoms = [item for item in pair_list.colliders if isinstance(item, _Geom)]
    flexes = [(i, flex, _Elements(i, flex, RULES[spec.rules])) for i, flex in enumerate(spec.flexes) if can_collide(spec, flex)]
    for k, (_, flex, elements) in enumerate(flexes):
        surface, pairs, sdfs = flex.numbers["contact"], [], []
        for i, item in enumerate(geoms):
            if _is_collision_geom(item) and _masks_allow(item.surface(), surface):
                if item.geom.shape == "sdf" and RULES[spec.rules].sdf_as_4_0:
                    sdfs.append(i)
                else:
                    pairs += [(i, j) for j in elements.candidates(pair_list, item)]
        for _, other, others in flexes[k + 1 :]:
            if _masks_allow(surface, other.numbers["contact"]):
                between = elements.disjoint_pairs(others)
                pairs += [(elements.part(pair_list, first), others.part(pair_list, second)) for first, second in between]
        pair_list.add_mixed([pair for pair in pairs if pair_list.any_moves(*pair)], sdf="mesh")
        triangles = _triangles(spec, pair_list, elements) if sdfs else []
        pair_list.add_mixed([(i, j) for i in sdfs for j in triangles if pair_list.any_moves(i, j)])
        if surface.contype & surface.conaffinity and len(set(flex.bodies)) > 1:
            _self_collisions(spec, pair_list, flex, elements)


def _triangles(spec: ModelSpec, pair_list: _PairList, elements: _Elements) -> list[int]:
    """The triangles of a flex in the order in which signed distance functions meet them in MuJoCo 4.0. Lines and tetrahedra have no
    contacts with these."""
    if elements.flex.dim != 2:
        warnings.warn("flexes of lines and tetrahedra have no contacts with signed distance functions", UserWarning, stacklevel=2)
        return []
    order = element_order(_reference_points(spec, elements.flex), elements.flex.elements)
    return [elements.part(pair_list, e) for e in order.tolist()]


def _reference_points(spec: ModelSpec, flex: FlexSpec) -> np.ndarray:
    """The vertices (n, 3) of a flex in the reference pose, world frame, m."""
    if flex.grid is not None:
        return flex.grid.vertices
    poses = [*reference_poses(spec), (np.zeros(3), np.eye(3))]
    return np.array([poses[body][0] + poses[body][1] @ pos for body, pos in zip(flex.bodies, flex.pos, strict=True)])


def _bodies_of_part(flex: FlexSpec, points: tuple[int, ...]) -> list[int]:
    """The bodies that move points of a flex."""
    if flex.grid is None:
        return [flex.bodies[p] for p in points]
    return [flex.bodies[node] for p in points for node in flex.grid.vertex_nodes[p][flex.grid.vertex_weights[p] != 0].tolist()]


def _masks_allow(first: SurfaceSpec, second: SurfaceSpec) -> bool:
    return bool(first.contype & second.conaffinity or second.contype & first.conaffinity)


def _self_collisions(spec: ModelSpec, pair_list: _PairList, flex: FlexSpec, elements: _Elements) -> None:
    """Self-collisions of a flex: pairs of elements and, in MuJoCo 3.2, of elements and opposite points. They have no margin."""
    surface = flex.numbers["contact"]
    pairs: list[tuple[int, int]] = []
    condims: list[int] = []
    if flex.numbers["selfcollide"] != "none":
        for first, second in elements.disjoint_pairs(elements):
            pairs.append((elements.part(pair_list, first), elements.part(pair_list, second)))
        condims += [surface.condim] * (len(pairs) - len(condims))
    if flex.numbers["internal"] and RULES[spec.rules].flex_internal_contacts:
        pairs += [(elements.part(pair_list, element), elements.point(pair_list, point)) for element, point in elements.opposite_points()]
        condims += [surface.condim] * (len(pairs) - len(condims))
        pairs += [(elements.face(pair_list, face), elements.point(pair_list, point)) for face, point in elements.facets()]
        condims += [1] * (len(pairs) - len(condims))
    moving = [k for k, pair in enumerate(pairs) if pair_list.any_moves(*pair)]
    if moving:
        row = pair_list.pair_row(_mixed(surface, surface, RULES[spec.rules]), margin=0.0, gap=0.0)
        ordered = _ordered(pair_list.colliders, np.array([pairs[k] for k in moving]))
        for (i, j), k in zip(ordered.tolist(), moving, strict=True):
            pair_list.add(i, j, condims[k], row)


class _Elements:
    """The elements of a flex that can collide."""

    def __init__(self, number: int, flex: FlexSpec, rules: Rules):
        self.number, self.flex, self.surface = number, flex, flex.numbers["contact"]
        # Vertices that nodes move are on no body: MuJoCo lets their elements collide with the bodies that hold nodes, too.
        self.bodies = np.array(flex.bodies) if flex.grid is None else np.full(len(flex.grid.vertex_nodes), -2 - number)
        self.corners_touch = flex.dim == 2 and rules.flex_triangle_corners
        self.border, self.neighbours = _border_and_neighbours(flex.elements)
        outer = flex.dim < 3 or _layers(self.border, self.neighbours) < flex.numbers["active_layers"]
        self.active = np.flatnonzero(np.broadcast_to(outer, len(flex.elements)))

    def part(self, pair_list: _PairList, element: int, geom_shape: str | None = None) -> int:
        """The part that collides with a geom of this shape, or with parts of flexes."""
        shape = "triangle" if self.corners_touch and geom_shape in ("box", "capsule") else _ELEMENTS[self.flex.dim]
        return pair_list.part(shape, self.number, self.flex.elements[element].tolist(), self.surface)

    def point(self, pair_list: _PairList, point: int) -> int:
        return pair_list.part("sphere", self.number, (point,), self.surface)

    def face(self, pair_list: _PairList, points: tuple) -> int:
        return pair_list.part("facet", self.number, points, self.surface)

    def candidates(self, pair_list: _PairList, item: _Geom) -> Iterator[int]:
        """The parts that can collide with a geom: all points for a plane, else the elements without a point on its body."""
        if item.geom.shape == "plane":
            return (self.point(pair_list, i) for i, body in enumerate(self.bodies.tolist()) if body != item.body)
        free = (self.bodies[self.flex.elements[self.active]] != item.body).all(1)
        return (self.part(pair_list, e, item.geom.shape) for e in self.active[free].tolist())

    def disjoint_pairs(self, other: _Elements) -> Iterator[tuple[int, int]]:
        """Pairs of elements of two flexes, or of one flex, without a common body; of one flex with a grid, in cells apart."""
        if other is self and self.flex.grid is not None:
            yield from self._pairs_apart(self.flex.grid)
            return
        other_bodies = other.bodies[other.flex.elements[other.active]]
        for k, e in enumerate(self.active.tolist()):
            bodies, first = self.bodies[self.flex.elements[e]], k + 1 if other is self else 0
            shared = np.isin(other_bodies[first:], bodies).any(1)
            for other_element in other.active[first:][~shared].tolist():
                yield e, other_element

    def _pairs_apart(self, grid: GridSpec) -> Iterator[tuple[int, int]]:
        """Pairs of elements between whose cells there are others. An element that touches the face of a cell is in it. Source: probes of
        MuJoCo 4.0."""
        places = grid.places[self.flex.elements[self.active]]
        first, last = np.floor(places.min(1) - ON_FACE), np.floor(places.max(1) + ON_FACE)
        first, last = np.maximum(first, 0), np.minimum(last, np.array(grid.counts) - 1)
        for k, element in enumerate(self.active.tolist()):
            later = slice(k + 1, None)
            apart = ((first[later] - last[k] > 1) | (first[k] - last[later] > 1)).any(1)
            for other in self.active[later][apart].tolist():
                yield element, other

    def opposite_points(self) -> Iterator[tuple[int, int]]:
        """(element, point) for lines and triangles at the border: each element with the points of its neighbours that it does not have."""
        for first, second, common in self.neighbours if self.flex.dim < 3 else ():
            if self.border[first] or self.border[second]:
                for element, other in ((second, first), (first, second)):
                    yield element, next(p for p in self.flex.elements[other].tolist() if p not in common)

    def facets(self) -> Iterator[tuple[tuple, int]]:
        """(face, opposite point) of all tetrahedra."""
        for points in self.flex.elements.tolist() if self.flex.dim == 3 else ():
            for *face, opposite in _FACETS:
                yield tuple(points[k] for k in face), points[opposite]


def _border_and_neighbours(elements: np.ndarray) -> tuple[np.ndarray, list[tuple[int, int, frozenset]]]:
    """Whether each element is on the border, and the neighbours (element, element, common points), which share all points but one."""
    by_points: dict[frozenset, list[int]] = {}
    for e, points in enumerate(elements.tolist()):
        for omitted in points:
            by_points.setdefault(frozenset(points) - {omitted}, []).append(e)
    border, neighbours = np.zeros(len(elements), bool), []
    for common, sharing in by_points.items():
        border[sharing[0]] |= len(sharing) == 1
        neighbours += [(first, second, common) for first, second in zip(sharing, sharing[1:], strict=False)]
    return border, neighbours


def _layers(border: np.ndarray, neighbours: list[tuple[int, int, frozenset]]) -> np.ndarray:
    """The number of elements between each element and the border."""
    out = np.where(border, 0, len(border) + 1)
    first, second = (np.array([pair[k] for pair in neighbours], int) for k in (0, 1))
    while True:
        previous = out.copy()
        np.minimum.at(out, first, previous[second] + 1)
        np.minimum.at(out, second, previous[first] + 1)
        if (out == previous).all():
            return out


# ---- contact parameters ---------------------------------------------------------------------------------------------------------


def _collide(first: str, second: str) -> bool:
    """Whether two shapes have a collision function."""
    return first in COLLISION_SHAPES and second in COLLISION_SHAPES and not (first in FLAT_SHAPES and second in FLAT_SHAPES)


def _ordered(colliders: list[_Geom | _Part], pairs: np.ndarray) -> np.ndarray:
    """Pairs (n, 2) of colliders, each in the order of their shapes, then of their indices."""
    used, inverse = np.unique(pairs, return_inverse=True)
    rank = np.array([_rank(colliders[k].kind()[0]) for k in used.tolist()], int)[inverse].reshape(pairs.shape)
    backwards = (rank[:, 0] > rank[:, 1]) | (rank[:, 0] == rank[:, 1]) & (pairs[:, 0] > pairs[:, 1])
    return np.where(backwards[:, None], pairs[:, ::-1], pairs)


def _by_kind(colliders: list[_Geom | _Part], pairs: np.ndarray) -> Iterator[tuple[tuple, np.ndarray, np.ndarray]]:
    """The kinds (see `PairsInfo`) of pairs (n, 2) with mixed parameters: kind, which pairs have it, their dominant geoms (`_condim`)."""
    used, inverse = np.unique(pairs, return_inverse=True)
    numbers: dict[tuple, int] = {}
    examples: list[int] = []
    alike = []
    for k in used.tolist():
        surface = colliders[k].surface()
        alike.append(numbers.setdefault((colliders[k].kind(), surface.condim, surface.priority), len(numbers)))
        examples += [k] if alike[-1] == len(examples) else []
    first, second = np.array(alike, int)[inverse].reshape(pairs.shape).T
    codes, which = np.unique(first * len(numbers) + second, return_inverse=True)
    kinds, dominant = [], []
    for code in codes.tolist():
        items = [colliders[examples[n]] for n in divmod(code, len(numbers))]
        condim, priority = _condim(*(item.surface() for item in items))
        kinds.append((*zip(*(item.kind() for item in items), strict=True), condim, True))
        dominant.append(priority)
    for kind in dict.fromkeys(kinds):
        same = np.flatnonzero(np.array([k == kind for k in kinds])[which])
        yield kind, same, np.array(dominant)[which[same]]


def _rank(shape: str) -> int:
    return COLLISION_SHAPES.index(shape) if shape in COLLISION_SHAPES else len(COLLISION_SHAPES)


def _condim(first: SurfaceSpec, second: SurfaceSpec) -> tuple[int, int]:
    """Dimension of the contact, and the surface with the higher priority: 0, 1, or -1 for equal priorities."""
    if first.priority != second.priority:
        dominant = 0 if first.priority > second.priority else 1
        return (first, second)[dominant].condim, dominant
    return max(first.condim, second.condim), -1


def _surface_row(rows: LeafRows, surface: SurfaceSpec) -> int:
    values = {name: getattr(surface, name) for name in ("friction", "solmix", "margin", "gap")}
    return rows.add_to("surface", **values, solref=surface.soft.solref, solimp=surface.soft.solimp)


def _pair_row(rows: LeafRows, parameters: dict) -> int:
    return rows.add_to("pair", **{name: value for name, value in parameters.items() if name not in ("condim", "adhesion")})


def _weight(first: float, second: float) -> float:
    """Weight of the first surface in a mixture. first, second: solmix of the surfaces."""
    if min(first, second) < 1e-15:
        return 0.5 if max(first, second) < 1e-15 else float(first > second)
    return first / (first + second)


def _mixed(first: SurfaceSpec, second: SurfaceSpec, rules: Rules) -> dict:
    """Contact parameters of two surfaces: condim and the fields of `Pair`."""
    condim, dominant = _condim(first, second)
    if dominant >= 0:
        surface = (first, second)[dominant]
        friction, soft = surface.friction, surface.soft
    else:
        frictions = first.friction, second.friction
        friction = tuple(np.maximum(*frictions))
        if rules.smaller_friction:
            friction = (min(frictions[0][0], frictions[1][0]), *friction[1:])
        weight = _weight(first.solmix, second.solmix)
        solimp = weight * np.asarray(first.soft.solimp) + (1 - weight) * np.asarray(second.soft.solimp)
        refs = np.asarray(first.soft.solref), np.asarray(second.soft.solref)
        time_constants = refs[0][0] > 0 and refs[1][0] > 0
        soft = Soft(tuple(weight * refs[0] + (1 - weight) * refs[1] if time_constants else np.minimum(*refs)), tuple(solimp))
    adhesion = first.adhesion + second.adhesion if dominant < 0 else (first, second)[dominant].adhesion
    slide, torsion, roll = friction
    combine = max if not rules.margins_add else lambda a, b: a + b
    return {
        "condim": condim, "friction": (slide, slide, torsion, roll, roll), "solref": soft.solref, "solimp": soft.solimp,
        "friction_solref": (0.0, 0.0), "margin": combine(first.margin, second.margin), "gap": combine(first.gap, second.gap),
        "adhesion": adhesion,
    }  # fmt: skip


def _pair_parameters(pair: PairSpec, first: SurfaceSpec, second: SurfaceSpec, rules: Rules) -> dict:
    """Contact parameters of an explicit pair; those that it leaves out are mixed from its geoms."""
    mixed = _mixed(first, second, rules)
    given = {name: getattr(pair, name) for name in mixed}
    return {name: mixed[name] if value is None else value for name, value in given.items()}


def _overridden(parameters: dict, solver: dict) -> dict:
    return parameters | {name: solver[f"o_{name}"] for name in ("margin", "solref", "solimp", "friction")}
