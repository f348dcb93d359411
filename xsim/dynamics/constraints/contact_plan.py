"""What follows from the topology of contacts alone: pairs by contact dimension and by what finds their contacts, buffer sizes, and the
blocks of the Jacobian."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import fields
from xsim.dynamics.collide.dispatch import count_of, hull, searched_with
from xsim.dynamics.constraints import flex_contacts as flexed
from xsim.dynamics.linalg.jacobian import Blocks, partition
from xsim.dynamics.tree.kinematics import link_dof_mask
from xsim.model.contact_pairs import FLAT_SHAPES
from xsim.model.topology import PairsInfo, Topology

_EASY = ("sphere", "capsule", "facet")  # their distances cost no more than bounds of them
NO_BODY = -2
"""Stands for the body of a part of a flex."""


def has_contacts(topology: Topology) -> bool:
    """Whether there are geoms that may touch, and contacts act."""
    return bool(topology.pairs) and "contact" in topology.constraint_kinds


class Group(NamedTuple):
    """Pairs that one program holds against each other: of one kind with a closed form, or of any kinds that are searched together. infos:
    by kind; kinds, assets: of each pair, and its number among those of its class. several: how many contacts each may have. closely: how
    many of them, the nearest, are held against each other, None: all. windows: of each kind over height fields, else none."""

    infos: tuple[PairsInfo, ...]
    kinds: tuple[tuple[str, str], ...]
    assets: tuple[tuple, ...]
    pair: np.ndarray
    searched: bool
    several: int
    closely: int | None
    windows: tuple[fields.Window, ...]

    def candidates(self, which=None) -> Any:
        """Of each possible contact the number of its pair: all pairs, or those that ``which`` (pairs, lanes) says."""
        if self.windows:
            ends = np.cumsum([len(info.geoms.value) for info in self.infos])[:-1]
            return np.concatenate([np.tile(own, w.count) for own, w in zip(np.split(self.pair, ends), self.windows, strict=True)])
        return np.tile(self.pair, self.several) if which is None else jnp.tile(jnp.asarray(self.pair)[which], (self.several, 1))

    def count(self) -> int:
        """How many contacts are possible."""
        return len(self.candidates()) if self.closely is None else self.closely * self.several


class FlexWeights(NamedTuple):
    """Whom contacts with parts of flexes move. corners (pairs, 2, 4): numbers of the parts' points (of geoms 0). bodies (pairs, 2, 4):
    those of the points, or of a geom (the number of bodies for the world). chain (bodies + 1, nv): 1 for the dofs that move each body."""

    corners: np.ndarray
    bodies: np.ndarray
    chain: np.ndarray


class CondimGroup(NamedTuple):
    """The contacts of one dimension. infos: their pairs by kind, which number the pairs; groups: the same as they are found. geoms
    (pairs, 2), owners (pairs, 2): the bodies that carry them. sign (pairs, nv): 1 for a dof that moves the second geom only, -1 the first
    only; None where there are parts of flexes, of which flex_weights says more. capacity: size of its buffer. blocks: of their Jacobian;
    order: of the possible contacts, for these blocks, None where contacts are chosen."""

    condim: int
    infos: tuple[PairsInfo, ...]
    groups: tuple[Group, ...]
    geoms: np.ndarray
    owners: np.ndarray
    sign: np.ndarray | None
    flex_weights: FlexWeights | None
    capacity: int
    blocks: Blocks
    order: np.ndarray | None


class Plan(NamedTuple):
    """geoms: the numbers of those that may touch; place: their places in that list, and after them the parts of flexes. links: which link
    carries each geom, -1 for the world."""

    classes: tuple[CondimGroup, ...]
    geoms: tuple[int, ...]
    place: dict[int, int]
    links: np.ndarray


@functools.lru_cache(maxsize=64)
def plan(topology: Topology) -> Plan:
    """What follows from the topology."""
    count = len(topology.geoms)
    used = sorted({int(g) for info in topology.pairs for g in info.geoms.value.reshape(-1)} & set(range(count)))
    links = np.array([link_of_body(topology, topology.geoms[g].body) for g in used], int)
    order = [*used, *(count + part for part in flexed.plan(topology).order)]
    chain = link_dof_mask(topology)[[*(body.link for body in topology.bodies), -1]]
    condims = sorted({info.condim for info in topology.pairs})
    return Plan(tuple(_condim_group(topology, chain, condim) for condim in condims), tuple(used), {g: i for i, g in enumerate(order)},
    links)


def _condim_group(topology: Topology, chain: np.ndarray, condim: int) -> CondimGroup:
    infos = tuple(info for info in topology.pairs if info.condim == condim)
    groups, count = _groups(topology, infos), len(topology.geoms)
    geoms = np.concatenate([info.geoms.value for info in infos])
    owners = np.array([[topology.geoms[g].body if g < count else NO_BODY for g in both] for both in geoms.tolist()], int)
    candidates = sum(group.count() for group in groups)
    capacity = _capacity(topology, topology.max_contacts, candidates)
    sign, flex_weights, order = None, None, None
    if (owners == NO_BODY).any():
        flex_weights = _flex_weights(topology, geoms, chain)
        moved = chain[np.unique(flex_weights.bodies)]
    else:
        sign = chain[owners[:, 1]] - chain[owners[:, 0]]
        moved = sign != 0
    blocks = ((capacity, tuple(np.flatnonzero(moved.any(0)).tolist())),)
    if sign is not None and capacity == candidates and all(group.closely is None for group in groups):
        order, blocks = partition(moved[np.concatenate([group.candidates() for group in groups])], condim)
    return CondimGroup(condim, infos, groups, geoms, owners, sign, flex_weights, capacity, blocks, order)


def link_of_body(topology: Topology, body: int) -> int:
    return topology.bodies[body].link if body >= 0 else -1


def _flex_weights(topology: Topology, geoms: np.ndarray, chain: np.ndarray) -> FlexWeights:
    count = len(topology.geoms)
    corners = np.zeros((count + len(topology.parts), flexed.CORNERS), np.uint32)
    bodies = np.zeros(corners.shape, int)
    for i, geom in enumerate(topology.geoms):
        bodies[i] = geom.body
    for i in range(len(topology.parts)):
        corners[count + i], bodies[count + i] = flexed.points_of(topology, i), flexed.bodies_of(topology, i)
    return FlexWeights(corners[geoms], np.where(bodies < 0, len(topology.bodies), bodies)[geoms], chain)


def _groups(topology: Topology, infos: tuple[PairsInfo, ...]) -> tuple[Group, ...]:
    """The pairs of a class by what finds their contacts."""
    together: dict[Any, list] = {}
    first = 0
    for info in infos:
        count, assets, kind = len(info.geoms.value), assets_of(topology, info), info.shapes
        if info.shapes[0] == "hfield":
            kind, assets = ("prism", info.shapes[1]), (None, assets[1])
        key = searched_with(kind, assets) or ("closed", first)
        key = (*key, count_of(kind, topology.multiccd))  # of those that are searched, flat shapes are apart
        together.setdefault(key, []).append((info, kind, assets, np.arange(first, first + count)))
        first += count
    out = []
    for key, parts in together.items():
        infos, kinds, assets, pairs = zip(*parts, strict=True)
        counts = [len(own) for own in pairs]
        each = [tuple(x for x, n in zip(xs, counts, strict=True) for _ in range(n)) for xs in (kinds, assets)]
        windows = tuple(_window(topology, info) for info in infos) if kinds[0][0] == "prism" else ()
        closely = None
        if not set(kinds[0]).issubset(_EASY) and kinds[0][0] not in (*FLAT_SHAPES, "prism"):
            closely = _capacity(topology, topology.max_pairs, sum(counts))
            closely = None if closely == sum(counts) else closely
        out.append(Group(infos, *each, np.concatenate(pairs), key[0] != "closed", key[-1], closely, windows))
    return tuple(out)


def _window(topology: Topology, info: PairsInfo) -> fields.Window:
    """The window of a height field that is wide enough for all shapes of a kind."""
    field, mesh = assets_of(topology, info)
    own = None if mesh is None else hull(mesh)
    each = []
    for ground, other in info.geoms.value.tolist():
        part = other - len(topology.geoms)
        reach = topology.parts[part].reach if part >= 0 else fields.reach_of(info.shapes[1], topology.geoms[other].size, own)
        each.append(fields.window(field, topology.geoms[ground].size, reach))
    return fields.Window(*(max(x) for x in zip(*each, strict=True)))


def _capacity(topology: Topology, said: int | None, count: int) -> int:
    """Size of a buffer for so many candidates: all of them where they are few, else a few for each velocity."""
    return min(count, max(32, 2 * topology.size("nv")) if said is None else said)


def assets_of(topology: Topology, info: PairsInfo) -> tuple:
    return tuple(asset(topology, kind, number) for kind, number in zip(info.shapes, info.assets, strict=True))


def asset(topology: Topology, shape: str, asset: int | None):
    """The mesh or height field of a geom."""
    return None if asset is None else {"mesh": topology.meshes, "hfield": topology.hfields}[shape][asset]
