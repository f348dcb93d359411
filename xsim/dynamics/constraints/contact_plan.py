"""The part of contact detection that depends on the topology alone: pairs by contact dimension and by collision algorithm, buffer sizes,
and the blocks of the contact Jacobian."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import fields
from xsim.dynamics.collide.broadphase import BOUNDED
from xsim.dynamics.collide.dispatch import contact_count, convex_batch_key, hull
from xsim.dynamics.collide.sdf_meshes import mesh_contact_count
from xsim.dynamics.constraints import flex_contacts
from xsim.dynamics.linalg.dense import MAX_UNROLLED
from xsim.dynamics.linalg.jacobian import Blocks, partition
from xsim.dynamics.tree.kinematics import link_dof_mask
from xsim.model.contact_pairs import FLAT_SHAPES
from xsim.model.topology import PairsInfo, Topology

_CHEAP = ("sphere", "capsule", "facet")
"""Shapes whose exact distance costs no more than a lower bound. They need no broad phase."""
LARGE = 8
"""The contacts of a buffer of so many entries, or more, are in loops over those that are active, see `active_contacts`."""
NO_BODY = -2
"""In place of a body: a part of a flex, which several bodies move."""


def has_contacts(topology: Topology) -> bool:
    """Whether the model has pairs of geoms that can collide, and contacts are enabled."""
    return bool(topology.pairs) and "contact" in topology.constraint_kinds


class PairGroup(NamedTuple):
    """Pairs of geoms that one collision function processes as a batch: pairs of two given shapes with a closed form, or pairs of any shapes
    for the convex algorithm.

    infos: the pairs by shapes.
    shapes: the two shapes of each pair.
    assets: the two meshes or height fields of each pair (None for other shapes).
    pairs (n,): the index of each pair in its condim group.
    is_convex: whether the convex algorithm collides them.
    contacts_per_pair: number of contacts that a pair can have.
    narrow_phase_limit: number of pairs, the nearest, that reach the narrow phase. None: all.
    windows: of the height fields, one for each of ``infos``. Empty for other shapes.
    sdf: whether a signed distance function is searched.
    """

    infos: tuple[PairsInfo, ...]
    shapes: tuple[tuple[str, str], ...]
    assets: tuple[tuple, ...]
    pairs: np.ndarray
    is_convex: bool
    contacts_per_pair: int
    narrow_phase_limit: int | None
    windows: tuple[fields.Window, ...]
    sdf: bool = False

    def candidate_pairs(self, selected=None) -> Any:
        """The pair index of each candidate contact, (n,), or (n, lanes) with ``selected``, the pairs (k, lanes) that reach the narrow
        phase."""
        if self.windows:
            ends = np.cumsum([len(info.geoms.value) for info in self.infos])[:-1]
            parts = zip(np.split(self.pairs, ends), self.windows, strict=True)
            return np.concatenate([np.tile(pairs, window.count) for pairs, window in parts])
        if selected is None:
            return np.tile(self.pairs, self.contacts_per_pair)
        return jnp.tile(jnp.asarray(self.pairs)[selected], (self.contacts_per_pair, 1))

    @property
    def has_bounding_spheres(self) -> bool:
        """Whether the shapes have bounding spheres whose distance is found faster than the contacts. All pairs have the same shapes."""
        shapes = self.shapes[0]
        return not self.is_convex and all(kind in BOUNDED for kind in shapes) and shapes != ("sphere", "sphere")

    @property
    def has_bounding_boxes(self) -> bool:
        """Whether a lower bound of the distance, by bounding boxes, is found much faster than the contacts. See `has_bounding_spheres`."""
        return self.has_bounding_spheres and self.shapes[0][1] == "box" and self.shapes[0][0] != "sphere"

    def candidate_count(self) -> int:
        """Number of candidate contacts."""
        return len(self.candidate_pairs()) if self.narrow_phase_limit is None else self.narrow_phase_limit * self.contacts_per_pair


class FlexContactBodies(NamedTuple):
    """The bodies that a contact with a flex moves. A part of a flex has up to four corners, each on a body, or it is in cells whose nodes
    are on bodies; a geom has one body. The last body is repeated up to the largest number.

    corners (pairs, 2, 4): indices of the corners (0 for a geom), see `flex_contacts.part_corners`.
    bodies (pairs, 2, 4 or more): bodies of the corners or nodes, or of a geom; the number of bodies stands for the world.
    dof_mask (bodies + 1, nv): 1 for the dofs that move a body.
    orders (pairs, 2): the order of the cells of a part, else 0. places (pairs, 2, 4, 3): see `flex_contacts.part_places`.
    spans: see `flex_contacts.cell_spans`.
    """

    corners: np.ndarray
    bodies: np.ndarray
    dof_mask: np.ndarray
    orders: np.ndarray
    places: np.ndarray
    spans: dict[int, tuple[int, ...]]


class Support(NamedTuple):
    """The dofs that the distances of pairs depend on. k: the largest number of them.

    dofs (pairs, k): ascending; the last dof of the model where there are fewer.
    signs (pairs, k): `CondimGroup.dof_sign` of these dofs; 0 where there are fewer."""

    dofs: np.ndarray
    signs: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        """The number of dofs of each pair (pairs,)."""
        return (self.signs != 0).sum(1)


class CondimGroup(NamedTuple):
    """The pairs whose contacts have the same dimension (condim), and the buffer for these contacts.

    infos: the pairs by shapes. Their order defines the pair index.
    pair_groups: the same pairs by collision function.
    geoms (pairs, 2): indices of the geoms, or of parts of flexes after the geoms.
    bodies (pairs, 2): bodies of the geoms, -1 for the world, `NO_BODY` for a part of a flex.
    dof_sign (pairs, nv): 1 for a dof that moves the second geom only, -1 the first only, else 0. None if a geom is a part of a flex.
    flex_bodies: replaces ``dof_sign`` if a geom is a part of a flex.
    capacity: number of contacts in the buffer.
    passive: whether the contacts are springs, see `xsim.dynamics.constraints.passive_contacts`.
    blocks: blocks of the contact Jacobian.
    order: order of the candidates in these blocks. None if the buffer is smaller than the number of candidates.
    support: the dofs that each pair depends on. None if they are many.
    """

    condim: int
    infos: tuple[PairsInfo, ...]
    pair_groups: tuple[PairGroup, ...]
    geoms: np.ndarray
    bodies: np.ndarray
    dof_sign: np.ndarray | None
    flex_bodies: FlexContactBodies | None
    capacity: int
    passive: bool
    blocks: Blocks
    order: np.ndarray | None
    support: Support | None

    def has_geoms_only(self, side: int) -> bool:
        """Whether the first (0) or the second (1) of each pair is a geom."""
        return bool((self.bodies[:, side] != NO_BODY).all())


class ContactPlan(NamedTuple):
    """condim_groups: pairs by contact dimension. Those of passive contacts are last.
    geoms: indices of the geoms that can collide.
    shape_index: index in the array of collision shapes, by geom, or by part of a flex (numbered after the geoms).
    geom_links (geoms,): link of each of ``geoms``, -1 for the world.
    """

    condim_groups: tuple[CondimGroup, ...]
    geoms: tuple[int, ...]
    shape_index: dict[int, int]
    geom_links: np.ndarray


def contact_plan(topology: Topology) -> ContactPlan:
    """The plan of a model's contact detection.

    It is made once for each precision: jax 0.12 cannot index with the same array of 64-bit integers with and without ``jax_enable_x64``."""
    return _contact_plan(topology, bool(jax.config.jax_enable_x64))


@functools.lru_cache(maxsize=64)
def _contact_plan(topology: Topology, x64: bool) -> ContactPlan:
    count = len(topology.geoms)
    geoms = sorted({int(g) for info in topology.pairs for g in info.geoms.value.reshape(-1)} & set(range(count)))
    links = np.array([_link_of_body(topology, topology.geoms[g].body) for g in geoms], int)
    order = [*geoms, *(count + part for part in flex_contacts.part_layout(topology).order)]
    dof_mask = link_dof_mask(topology)[[*(body.link for body in topology.bodies), -1]]
    kinds = sorted({(info.passive, info.condim) for info in topology.pairs})
    groups = tuple(_condim_group(topology, dof_mask, *kind) for kind in kinds)
    return ContactPlan(groups, tuple(geoms), {g: i for i, g in enumerate(order)}, links)


def _condim_group(topology: Topology, dof_mask: np.ndarray, passive: bool, condim: int) -> CondimGroup:
    infos = tuple(info for info in topology.pairs if (info.passive, info.condim) == (passive, condim))
    pair_groups, count = _pair_groups(topology, infos), len(topology.geoms)
    geoms = np.concatenate([info.geoms.value for info in infos])
    bodies = np.array([[topology.geoms[g].body if g < count else NO_BODY for g in pair] for pair in geoms.tolist()], int)
    candidates = sum(group.candidate_count() for group in pair_groups)
    of_sdf = max((group.contacts_per_pair for group in pair_groups if group.sdf), default=0)
    capacity = _capacity(topology, topology.max_contacts, candidates, of_sdf)
    dof_sign, flex_bodies, order = None, None, None
    if (bodies == NO_BODY).any():
        flex_bodies = _flex_contact_bodies(topology, geoms, dof_mask)
        moves = dof_mask[np.unique(flex_bodies.bodies)]
    else:
        dof_sign = dof_mask[bodies[:, 1]] - dof_mask[bodies[:, 0]]
        moves = dof_sign != 0
        moves[~moves.any(1), :1] = True  # pairs of one body: no column of the Jacobian is empty
    blocks = ((capacity, tuple(np.flatnonzero(moves.any(0)).tolist())),)
    if dof_sign is not None and capacity == candidates and all(group.narrow_phase_limit is None for group in pair_groups):
        order, blocks = partition(moves[np.concatenate([group.candidate_pairs() for group in pair_groups])], condim)
    support = None if dof_sign is None else _support(dof_sign)
    return CondimGroup(condim, infos, pair_groups, geoms, bodies, dof_sign, flex_bodies, capacity, passive, blocks, order, support)


MAX_SUPPORT = 0.25
"""Part of the dofs of a model up to which those of a pair are few: the others are left out of the Jacobian."""


def _support(dof_sign: np.ndarray) -> Support | None:
    """The support of pairs with these signs (pairs, nv), None where it pays off to take all dofs."""
    nv, counts = dof_sign.shape[1], (dof_sign != 0).sum(1)
    k = max(1, int(counts.max()))
    if nv <= MAX_UNROLLED or k > MAX_SUPPORT * nv:
        return None
    dofs = np.full((len(dof_sign), k), nv - 1)
    signs = np.zeros((len(dof_sign), k), dof_sign.dtype)
    for row, sign in enumerate(dof_sign):
        own = np.flatnonzero(sign)
        dofs[row, : len(own)], signs[row, : len(own)] = own, sign[own]
    return Support(dofs, signs)


def _link_of_body(topology: Topology, body: int) -> int:
    return topology.bodies[body].link if body >= 0 else -1


def _flex_contact_bodies(topology: Topology, geoms: np.ndarray, dof_mask: np.ndarray) -> FlexContactBodies:
    count = len(topology.geoms)
    corners = np.zeros((count + len(topology.parts), flex_contacts.MAX_CORNERS), np.uint32)
    orders, places = np.zeros(len(corners), int), np.zeros((*corners.shape, 3))
    bodies: list[tuple[int, ...]] = [(geom.body,) for geom in topology.geoms]
    for i in range(len(topology.parts)):
        corners[count + i] = flex_contacts.part_corners(topology, i)
        orders[count + i], places[count + i] = flex_contacts.part_places(topology, i)
        bodies.append(flex_contacts.part_bodies(topology, i))
    width = max(flex_contacts.MAX_CORNERS, *(len(bodies[g]) for g in np.unique(geoms)))
    padded = np.array([[*x, *[x[-1]] * (width - len(x))][:width] for x in bodies])
    of_pairs = (x[geoms] for x in (corners, np.where(padded < 0, len(topology.bodies), padded)))
    return FlexContactBodies(*of_pairs, dof_mask, orders[geoms], places[geoms], flex_contacts.cell_spans(topology))


def _pair_groups(topology: Topology, infos: tuple[PairsInfo, ...]) -> tuple[PairGroup, ...]:
    """The pairs of a condim group by collision function."""
    by_algorithm: dict[Any, list] = {}
    first = 0
    for info in infos:
        count, assets, shapes = len(info.geoms.value), assets_of(topology, info), info.shapes
        if info.shapes[0] == "hfield":
            shapes, assets = ("prism", info.shapes[1]), (None, assets[1])
        if is_searched(shapes):
            key = ("sdf", first, _searched_contacts(topology, shapes, assets))
        else:
            key = convex_batch_key(shapes, assets) or ("closed form", first)
            several = topology.multiccd and not info.of_parts  # the convex algorithm makes several contacts for flat geoms only
            key = (*key, contact_count(shapes, several))
        by_algorithm.setdefault(key, []).append((info, shapes, assets, np.arange(first, first + count)))
        first += count
    return tuple(_pair_group(topology, key, parts) for key, parts in by_algorithm.items())


def _pair_group(topology: Topology, key: tuple, parts: list) -> PairGroup:
    infos, shapes, assets, pairs = zip(*parts, strict=True)
    counts = [len(x) for x in pairs]
    per_pair = [tuple(x for x, n in zip(xs, counts, strict=True) for _ in range(n)) for xs in (shapes, assets)]
    first, second = shapes[0]
    windows = tuple(_window(topology, info) for info in infos) if first == "prism" else ()
    limit = None
    if key[0] == "sdf":
        return PairGroup(infos, *per_pair, np.concatenate(pairs), False, key[-1], None, (), True)
    if not {first, second}.issubset(_CHEAP) and first not in (*FLAT_SHAPES, "prism") and not topology.speculative:
        limit = _capacity(topology, topology.max_pairs, sum(counts))
        limit = None if limit == sum(counts) else limit
    return PairGroup(infos, *per_pair, np.concatenate(pairs), key[0] != "closed form", key[-1], limit, windows)


def is_searched(shapes: tuple[str, str]) -> bool:
    """Whether contacts of two shapes are searched with a signed distance function. Planes meet its mesh."""
    return "sdf" in shapes and shapes[0] != "plane"


def _searched_contacts(topology: Topology, shapes: tuple[str, str], assets: tuple) -> int:
    """The number of contacts of a shape and a signed distance function."""
    points = topology.sdf_search[0]
    if shapes[1] == "simplex":
        return 1
    return mesh_contact_count(assets[0], points, topology.switches) if shapes[0] == "mesh" else points


def _window(topology: Topology, info: PairsInfo) -> fields.Window:
    """The window of a height field that is wide enough for all geoms that it can collide with."""
    field, mesh = assets_of(topology, info)
    mesh_hull = None if mesh is None else hull(mesh)
    windows = []
    for ground, other in info.geoms.value.tolist():
        part = other - len(topology.geoms)
        if part >= 0:
            radius = topology.parts[part].reach
        else:
            radius = fields.bounding_radius(info.shapes[1], topology.geoms[other].size, mesh_hull)
        windows.append(fields.window(field, topology.geoms[ground].size, radius))
    return fields.Window(*(max(x) for x in zip(*windows, strict=True)))


def _capacity(topology: Topology, requested: int | None, candidates: int, least: int = 0) -> int:
    """Size of a buffer for candidates: the requested one, by default max(32, 2 nv, least), at most all of them."""
    return min(candidates, max(32, 2 * topology.size("nv"), least) if requested is None else requested)


def assets_of(topology: Topology, info: PairsInfo) -> tuple:
    """The meshes or height fields of the two shapes of pairs, None for other shapes."""
    return tuple(asset_of(topology, shape, index) for shape, index in zip(info.shapes, info.assets, strict=True))


def asset_of(topology: Topology, shape: str, index: int | None):
    """The mesh or height field of a shape, None for other shapes."""
    return None if index is None else {"mesh": topology.meshes, "sdf": topology.meshes, "hfield": topology.hfields}[shape][index]
