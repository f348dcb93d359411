"""Contacts: where geoms and parts of flexes touch, and the rows of the acceleration along the frame of each.

All pairs of one kind are held against each other at once: arrays are (things, lanes), also where a state has no batch (one lane). A contact
is active where its distance is less than the margin; where more are active than an environment's buffer holds, the deepest count. Where
pairs are many, a lower bound of their distance says which are near, and only those are held against each other.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import fields
from xsim.dynamics.collide.dispatch import collide, collide_convex, collide_flat, count_of, hull, least_distances, searched_with
from xsim.dynamics.collide.shapes import Shape, Touch
from xsim.dynamics.constraints import flex_contacts as flexed
from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.contact_parameters import Numbers, column, joined, numbers, picked
from xsim.dynamics.constraints.soft_rows import TINY, impedance, reference
from xsim.dynamics.flex.flexes import points
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Blocks, Jacobian, partition
from xsim.dynamics.tree.kinematics import Frames, lanes_of, moved_by
from xsim.dynamics.tree.system import System
from xsim.model.contact_pairs import FLAT
from xsim.model.topology import PairsInfo, Topology
from xsim.spatial import add, apply, cross, dot, matrix, mul, normalize, quat_mul, rotate, scale, stage, vadd, vsub

if TYPE_CHECKING:
    from xsim.dynamics.constraints.noslip import NoSlipCones

TAN_LEAST = 0.5  # a shorter direction gives no tangent
_EASY = ("sphere", "capsule", "facet")  # their distances cost no more than bounds of them
NO_BODY = -2
"""Stands for the body of a part of a flex."""


def has_contacts(topology: Topology) -> bool:
    """Whether there are geoms that may touch, and contacts act."""
    return bool(topology.pairs) and "contact" in topology.rows


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


class ContactParameters(NamedTuple):
    """What the leaves alone say. quat, pos: places of the geoms in their links (components (geoms, lanes or 1)), size: theirs. numbers: per
    class, of its pairs. mobility: per class, of a pair's bodies together; where there are parts of flexes, of all bodies and the world."""

    quat: tuple
    pos: tuple
    size: tuple
    numbers: tuple[Numbers, ...]
    mobility: tuple


class Contacts(NamedTuple):
    """Contacts of a condim group, as many as its buffer holds. pair: of each the number of its pair, a list or (contacts, lanes). distance,
    point, normal: see `Touch`; tangents: two directions, so that normal and tangents are the contact's frame. overflow: whether some had
    no place in the buffer (lanes). shares: of the first and the second side the weights of four bodies (contacts, lanes), None where there
    are no parts of flexes."""

    of: CondimGroup
    pair: Any
    distance: Any
    point: tuple
    normal: tuple
    tangents: tuple
    overflow: Any
    shares: tuple | None


# ---- structure ----------------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def plan(topology: Topology) -> Plan:
    """What follows from the topology."""
    count = len(topology.geoms)
    used = sorted({int(g) for info in topology.pairs for g in info.geoms.value.reshape(-1)} & set(range(count)))
    links = np.array([_link(topology, topology.geoms[g].body) for g in used], int)
    order = [*used, *(count + part for part in flexed.plan(topology).order)]
    chain = moved_by(topology)[[*(body.link for body in topology.bodies), -1]]
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


def _link(topology: Topology, body: int) -> int:
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
        count, assets, kind = len(info.geoms.value), _assets(topology, info), info.shapes
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
        if not set(kinds[0]).issubset(_EASY) and kinds[0][0] not in (*FLAT, "prism"):
            closely = _capacity(topology, topology.max_pairs, sum(counts))
            closely = None if closely == sum(counts) else closely
        out.append(Group(infos, *each, np.concatenate(pairs), key[0] != "closed", key[-1], closely, windows))
    return tuple(out)


def _window(topology: Topology, info: PairsInfo) -> fields.Window:
    """The window of a height field that is wide enough for all shapes of a kind."""
    field, mesh = _assets(topology, info)
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


# ---- what the leaves say ------------------------------------------------------------------------------------------------------


def contact_parameters(system: System) -> ContactParameters:
    """What the leaves alone say; needs ``system.mobility``."""
    top = system.topology
    layout = plan(top)
    infos = [top.geoms[g] for g in layout.geoms]
    place = _places(system, infos) if infos else ((), ())
    rows = np.array([info.row for info in infos], int)
    size = _columns(system.places.size[rows]) if infos else ()
    assert system.mobility is not None
    moved = [system.mobility.bodies.get(body, (0.0, 0.0))[0] for body in range(len(top.bodies))]
    mobility = column([*moved, 0.0])
    own = tuple(joined([numbers(system, info) for info in of.infos]) for of in layout.classes)
    mobilities = [mobility if of.flex_weights else mobility[of.owners[:, 0]] + mobility[of.owners[:, 1]] for of in layout.classes]
    return ContactParameters(*place, size, own, tuple(mobilities))


def _places(system: System, infos) -> tuple:
    """Orientations and positions of geoms in the links that carry them (of the world's in the world)."""
    rows = np.array([info.row for info in infos])
    own_quat, own_pos = normalize(_columns(system.places.quat[rows])), _columns(system.places.pos[rows])
    if all(info.body < 0 or system.topology.bodies[info.body].link >= 0 and system.tables.at_link[info.body] for info in infos):
        return own_quat, own_pos
    identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    carried = [identity if info.body < 0 else tuple(system.offset[info.body]) for info in infos]
    quat, pos = (tuple(column(x) for x in zip(*(c[k] for c in carried), strict=True)) for k in (0, 1))
    return quat_mul(quat, own_quat), vadd(pos, rotate(quat, own_pos))


def _columns(x) -> tuple:
    """Arrays (n, lanes) of an array (n, width, lanes)."""
    return tuple(x[:, k] for k in range(x.shape[1]))


# ---- what the state says ------------------------------------------------------------------------------------------------------


@stage
def _carried(link_R, link_pos, quat, pos):
    """Rotation matrices and positions of geoms in the world."""
    R = matrix(quat)
    turned = tuple(tuple(dot(row, [R[k][j] for k in range(3)]) for j in range(3)) for row in link_R)
    return turned, vadd(link_pos, apply(link_R, pos))


def _geoms(system: System, frame: Frames, parameters: ContactParameters) -> tuple:
    """Rotation matrices (rows of components) and positions of the geoms in the world, (geoms, lanes or 1)."""
    links = plan(system.topology).links
    eye = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    R = [*frame.R, eye]
    pos = [*(pose.pos for pose in frame.pose), (0.0, 0.0, 0.0)]
    used, back = np.unique(links, return_inverse=True)
    link_R = tuple(tuple(column([R[i][j][k] for i in used])[back] for k in range(3)) for j in range(3))
    link_pos = tuple(column([pos[i][k] for i in used])[back] for k in range(3))
    return _carried(link_R, link_pos, parameters.quat, parameters.pos)


def _touches(system: System, of: CondimGroup, reach, shapes) -> tuple[Touch, Any, Any]:
    """The possible contacts of a class, (contacts, lanes or 1), the numbers of their pairs, a list or (contacts, lanes or 1), and whether
    some had no place in the buffer (lanes or 1). reach (pairs, lanes or 1): the distance at which they are found. shapes
    (geoms, 15, lanes or 1): see `_shape`."""
    touches, pairs, overflow = [], [], jnp.zeros(shapes.shape[-1], bool)
    for group in of.groups:
        touch, pair, short = (_over_fields if group.windows else _held)(system, group, reach, shapes)
        touches.append(touch)
        pairs.append(pair)
        overflow = overflow | short
    if all(isinstance(pair, np.ndarray) for pair in pairs):
        return joined(touches), np.concatenate(pairs), overflow
    return joined(touches), joined([p if isinstance(p, jax.Array) else jnp.asarray(p)[:, None] for p in pairs]), overflow


def _held(system: System, group: Group, reach, shapes) -> tuple[Touch, Any, Any]:
    """The possible contacts of a group, the numbers of their pairs, whether more pairs were near than the buffer holds."""
    top, lanes, kind = system.topology, shapes.shape[-1], group.kinds[0]
    sides = [joined([_sides(top, info, shapes)[k] for info in group.infos]) for k in (0, 1)]
    own, which, short = reach[group.pair], None, jnp.zeros(lanes, bool)
    kinds = group.kinds if group.searched else group.kinds[:1]
    data = [[both[k] for both in group.assets] if group.searched else group.assets[0][k] for k in (0, 1)]

    def both():
        return [_shape(_columns(x), y) for x, y in zip(sides, data, strict=True)]

    if group.searched or group.closely is not None:
        depth = jax.lax.stop_gradient(jnp.broadcast_to(own, (len(own), lanes))) - _least_distances(kinds, *both())
        near = depth > 0
        if group.closely is not None:
            which, short = deepest(depth, group.closely)
            near, own = picked(near, which), picked(own, which)
        if group.searched:
            several = group.several > 1
            touches = _lying(kinds, *both(), own, which, near) if several else [_searched(kinds, *both(), which, near)]
            return joined([_full(touch, len(near), lanes) for touch in touches]), group.candidates(which), short
    if which is not None:
        sides = [picked(x, which) for x in sides]
    touches = [_full(touch, sides[0].shape[0], lanes) for touch in _collided(kind, *both(), own, top.rules)]
    return joined(touches), group.candidates(which), short


def _over_fields(system: System, group: Group, reach, shapes) -> tuple[Touch, Any, Any]:
    """As `_held` of pairs with height fields."""
    top, lanes = system.topology, shapes.shape[-1]
    overflow, kinds, sides, meshes, first = jnp.zeros(lanes, bool), [], ([], []), [], 0
    for info, view in zip(group.infos, group.windows, strict=True):
        count, (field, mesh) = len(info.geoms.value), _assets(top, info)
        own = reach[group.pair[first : first + count]]
        a, b = (_shape(_columns(x), None) for x in _sides(top, info, shapes))
        ground, short = _prisms(field, a, info.shapes[1], b._replace(data=(None if mesh is None else hull(mesh),)), own, view)
        overflow = overflow | short.any(0)
        b = jax.tree.map(lambda x, n=view.count: jnp.broadcast_to(x, (n, *x.shape)), b)
        for side, shape in zip(sides, (ground, b), strict=True):
            side.append(jax.tree.map(lambda x: _even(_flat_first(x), lanes), shape))
        kinds += [("prism", info.shapes[1])] * (count * view.count)
        meshes += [mesh] * (count * view.count)
        first += count
    ground, other = (joined(side) for side in sides)
    touch = _searched(tuple(kinds), ground, other._replace(data=meshes), None, ground.data.near)
    return _full(touch, len(kinds), lanes), group.candidates(), overflow


def _flat_first(x):
    """(k, n, lanes) as (k n, lanes)."""
    return x.reshape(-1, x.shape[-1])


def _even(x, lanes: int):
    return jnp.broadcast_to(x, (len(x), lanes))


_collided, _searched, _lying, _prisms, _least_distances = (
    stage(f) for f in (collide, collide_convex, collide_flat, fields.prisms, least_distances)
)


def _sides(topology: Topology, info: PairsInfo, shapes) -> list:
    """Of the first and of the second geoms of pairs what ``shapes`` says."""
    place = plan(topology).place
    return [shapes[np.array([place[g] for g in info.geoms.value[:, k].tolist()])] for k in (0, 1)]


def _assets(topology: Topology, info: PairsInfo) -> tuple:
    return tuple(asset(topology, kind, number) for kind, number in zip(info.shapes, info.assets, strict=True))


def _shape(numbers: tuple, data) -> Shape:
    """Of size, position and rotation matrix, 15 components."""
    return Shape(numbers[:3], numbers[3:6], (numbers[6:9], numbers[9:12], numbers[12:]), data)


def _full(touch: Touch, count: int, lanes: int) -> Touch:
    """With arrays (count, lanes) for components."""
    dtype = jnp.result_type(*jax.tree.leaves(touch))
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (count, lanes)), touch)


def asset(topology: Topology, shape: str, asset: int | None):
    """The mesh or height field of a geom."""
    return None if asset is None else {"mesh": topology.meshes, "hfield": topology.hfields}[shape][asset]


@stage
def _tangents(normal, along) -> tuple:
    """Two directions that make a right-handed frame with the normal, the first nearest to ``along``, or else to y, or z where the normal
    is along y."""
    given = dot(along, along) >= TAN_LEAST**2
    upright = jnp.abs(normal[1]) < 0.5
    hint = tuple(
        jnp.where(given, x, jnp.where(upright, y, z)) for x, y, z in zip(along, (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), strict=True)
    )
    first = normalize(vsub(hint, scale(normal, dot(normal, hint))))
    return first, cross(normal, first)


def deepest(depth, capacity: int) -> tuple[Any, Any]:
    """The numbers of the largest of (n, lanes), as many as the buffer holds: (capacity, lanes); whether more are positive (lanes)."""
    _, which = jax.lax.top_k(depth.T, capacity)
    return which.T, (depth > 0).sum(0) > capacity


def find_contacts(system: System, frame: Frames) -> list[Contacts]:
    """The contacts at a pose, by class."""
    parameters, layout = system.contact_parameters, plan(system.topology)
    at = points(system, frame) if system.topology.parts else None
    shapes = [] if at is None else [flexed.part_shapes(system, at)]
    if layout.geoms:
        R, pos = _geoms(system, frame, parameters)
        parts = [*parameters.size, *pos, *(x for row in R for x in row)]
        width = max(x.shape[-1] for x in parts)
        shapes.insert(0, jnp.stack([jnp.broadcast_to(x, (len(x), width)) for x in parts], 1))
    shapes = joined(shapes)
    width = max(shapes.shape[-1], *(own.reach.shape[-1] for own in parameters.numbers))
    shapes = jnp.broadcast_to(shapes, (*shapes.shape[:-1], width))
    lanes = lanes_of(system, frame) or (1,)
    out = []
    for of, own in zip(layout.classes, parameters.numbers, strict=True):
        touch, pair, overflow = _touches(system, of, own.reach, shapes)
        touch = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(x), *lanes)), touch)
        if of.capacity < len(touch.distance):
            depth = picked(own.reach, pair) - touch.distance
            which, short = deepest(jax.lax.stop_gradient(depth), of.capacity)
            touch = jax.tree.map(lambda x, which=which: picked(x, which), touch)
            pair = jnp.asarray(pair)[which] if isinstance(pair, np.ndarray) else picked(pair, which)
            overflow = overflow | short
        if of.order is not None:
            touch, pair = jax.tree.map(lambda x, order=of.order: picked(x, order), (touch, pair))
        shares = None if of.flex_weights is None else _shares(of.flex_weights, pair, touch.point, at, of.owners)
        out.append(Contacts(of, pair, touch.distance, touch.point, touch.normal, _tangents(touch.normal, touch.along), overflow, shares))
    return out


def _shares(flex_weights: FlexWeights, pair, point, at, owners: np.ndarray) -> tuple:
    """Of both sides the weights of four bodies."""
    out = []
    for side in (0, 1):
        corners = [_of_pair(flex_weights.corners[:, side, k], pair) for k in range(flexed.CORNERS)]
        whole = _of_pair(owners[:, side] != NO_BODY, pair)
        whole = whole[:, None] if isinstance(whole, np.ndarray) else whole
        own = flexed.shares(point, at.world, corners)
        out.append(tuple(jnp.where(whole, float(k == 0), w) for k, w in enumerate(own)))
    return tuple(out)


def _of_pair(numbers: np.ndarray, pair):
    """Numbers of pairs (pairs,) for each contact: (contacts,) or (contacts, lanes)."""
    return numbers[pair] if isinstance(pair, np.ndarray) else jnp.asarray(numbers)[pair]


# ---- rows ---------------------------------------------------------------------------------------------------------------------


def by_contact(found: Contacts, of_pairs: np.ndarray, dtype):
    """Fixed numbers of pairs (n, pairs) for each contact: (n, contacts, lanes or 1)."""
    if isinstance(found.pair, np.ndarray):
        return jnp.asarray(of_pairs[:, found.pair, None], dtype)
    return jnp.asarray(of_pairs, dtype)[:, found.pair]


def _spread(found: Contacts, of_bodies, dtype) -> Any:
    """Sum of the numbers (n, bodies + 1) of the second side's bodies, less those of the first's, by their shares: (n, contacts, lanes)."""
    flex_weights, out = found.of.flex_weights, 0.0
    assert flex_weights is not None and found.shares is not None
    for side, weights in enumerate(found.shares):
        for k, weight in enumerate(weights):
            which = _of_pair(flex_weights.bodies[:, side, k], found.pair)
            own = jnp.moveaxis(jnp.asarray(of_bodies.T, dtype)[which], -1, 0)
            own = own[..., None] if isinstance(which, np.ndarray) else own
            out = out + (own * weight if side else -own * weight)
    return out


def _mobility(found: Contacts, mobility):
    """Of the bodies of each contact together (contacts, lanes or 1). mobility: see `ContactParameters`."""
    if found.of.flex_weights is None:
        return picked(mobility, found.pair)
    out = 0.0
    for side, weights in enumerate(found.shares or ()):
        for k, weight in enumerate(weights):
            out = out + weight * picked(mobility, _of_pair(found.of.flex_weights.bodies[:, side, k], found.pair))
    return out


@stage
def _moved_apart(signs, ang, lin, reference, point, frame, condim: int, lanes):
    """Rates along and about the axes of the contact's frame per dof, (contacts, condim, nv, lanes)."""
    arm = tuple(p[:, None] - r for p, r in zip(point, reference, strict=True))
    velocity = scale(vadd(lin, cross(ang, arm)), signs)
    spin = scale(ang, signs)
    along, about = ([dot(axis, x) for axis in frame] for x in (velocity, spin))
    rows = {1: along[:1], 3: along, 4: [*along, about[0]], 6: [*along, *about]}[condim]
    return jnp.stack([jnp.broadcast_to(r, (*r.shape[:2], *lanes)) for r in rows], 1)


def _jacobian(system: System, frame: Frames, found: Contacts, lanes, condim: int) -> Jacobian:
    """J (contacts, condim, nv, lanes)."""
    ang, lin = (tuple(column([s[part][k] for s in frame.subspace]) for k in range(3)) for part in (0, 1))
    roots = [frame.pose[system.tables.root[link]].pos for link in system.tables.dof_link]
    origin = tuple(column([r[k] for r in roots]) for k in range(3))
    axes = tuple(tuple(x[:, None] for x in axis) for axis in (found.normal, *found.tangents))
    dtype, parts, end = found.distance.dtype, [], 0
    signs = _spread(found, found.of.flex_weights.chain.T, dtype) if found.of.flex_weights else by_contact(found, found.of.sign.T, dtype)
    for count, dofs in found.of.blocks:
        start, end, moving = end, end + count, np.array(dofs, int)
        own = jnp.swapaxes(signs[moving, start:end], 0, 1)
        along = jax.tree.map(lambda x, moving=moving: x[moving], (ang, lin, origin))
        place = jax.tree.map(lambda x, own=slice(start, end): x[own], (found.point, axes))
        parts.append(_moved_apart(own, *along, *place, condim, lanes))
    return Jacobian(tuple(parts), found.of.blocks, system.topology.size("nv"))


@stage
def _softness(distance, numbers: Numbers, mobility, impratio, dt, d: int, elliptic: bool, safe: bool):
    """stiffness, weights (of `Cones`), and per row the damping b and the reference k d r."""
    there = distance < numbers.margin
    inside = jnp.where(there, distance - numbers.margin, 0.0)
    friction, solref, friction_solref, solimp = (_columns(x) for x in numbers[:4])
    strength = impedance(inside, solimp)
    k, b = reference(solref, solimp, dt, safe)
    slid = friction[0]
    mu = slid / jnp.sqrt(impratio)
    moved = mobility * (1.0 + slid * slid) if d > 1 and not elliptic else mobility
    weak = jnp.maximum(TINY, (1.0 - strength) / strength * moved)
    if d > 1:
        weak = weak * mu * mu * (1.0 if elliptic else 2.0)
    stiffness = jnp.where(there, 1.0 / jnp.maximum(TINY, weak), 0.0)
    damping = [b] * d
    if elliptic and d > 1:
        own = (friction_solref[0] != 0) | (friction_solref[1] != 0)
        tangential = reference(friction_solref, solimp, dt, safe)[1]
        damping[1:] = [jnp.where(own, tangential, b)] * (d - 1)
    first = mu if elliptic and d > 1 else jnp.ones_like(mu)
    weights = [first, *friction[: d - 1]]
    return stiffness, weights, damping, jnp.where(there, k * strength * inside, 0.0), there


def contact_numbers(system: System, found: list[Contacts]) -> list[Numbers]:
    """Of each class, for its contacts."""
    return [
        jax.tree.map(lambda x, pair=own.pair: picked(x, pair), of_pairs)
        for own, of_pairs in zip(found, system.contact_parameters.numbers, strict=True)
    ]


def contact_cones(system: System, frame: Frames, v, found: list[Contacts]) -> tuple[Cones, ...]:
    """The rows of all contacts, by class."""
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(x.shape for x in v if isinstance(x, jax.Array)))
    full, top, out = lanes or (1,), system.topology, []
    velocity = column(list(v))
    for own, of_each, moved in zip(found, contact_numbers(system, found), system.contact_parameters.mobility, strict=True):
        d = own.of.condim
        stiffness, weights, damping, pull, there = _softness(
            own.distance, of_each, _mobility(own, moved), system.cone.impratio[0], system.dt, d, top.cone == "elliptic",
            "refsafe" not in top.disabled,
        )  # fmt: skip
        J = _jacobian(system, frame, own, full, d)
        n = len(own.distance)
        offset = _offset(J.j_times(velocity), there, damping, pull)
        weight = jnp.stack([jnp.broadcast_to(x, (n, *full)) for x in weights], 1)
        out.append(Cones(top.cone == "elliptic", J, offset, jnp.broadcast_to(stiffness, (n, *full)), weight))
    return tuple(out)


@stage
def _offset(rate, there, damping, pull):
    """b J v + k d r (contacts, d, lanes)."""
    rows = [add(mul(b, rate[:, k]), pull if k == 0 else 0.0) for k, b in enumerate(damping)]
    return jnp.stack([jnp.where(there, row, 0.0) for row in rows], 1)


# ---- what contacts do to bodies -----------------------------------------------------------------------------------------------


def contact_forces(cones: tuple[Cones | NoSlipCones, ...], a) -> list:
    """Of each class the forces (contacts, d, lanes) along the contacts' frames, at an acceleration."""
    a = jnp.stack(list(a))
    a = a[:, None] if a.ndim == 1 else a
    return [one.force(one.j_times(a) + one.offset) for one in cones]


def wrench_of(found: Contacts, force) -> tuple:
    """Force on the second geom at the contact's point, and moment about it, world axes: components (contacts, lanes)."""
    axes = (found.normal, *found.tangents)
    parts = [force[:, k] for k in range(force.shape[1])]
    push = _combination(axes, parts[:3])
    return push, _combination(axes, parts[3:])


def _combination(axes, numbers):
    out = (jnp.zeros_like(axes[0][0]),) * 3
    for axis, x in zip(axes, numbers, strict=False):
        out = vadd(out, scale(axis, x))
    return out


def body_wrenches(system: System, found: list[Contacts], forces: list) -> list[tuple]:
    """Per body the force of all contacts on it and its moment about the world's origin, world axes: (force, moment), components
    (lanes,), one lane without a batch."""
    count, total = len(system.topology.bodies), None
    for own, force in zip(found, forces, strict=True):
        push, moment = wrench_of(own, force)
        moment = vadd(moment, cross(own.point, push))
        sign = _body_signs(own, system.topology, push[0].dtype)
        sums = [tree_sum([s * x for s, x in zip(jnp.swapaxes(sign, 0, 1), part, strict=True)]) for part in (*push, *moment)]
        total = sums if total is None else [a + b for a, b in zip(total, sums, strict=True)]
    assert total is not None
    return [(tuple(total[k][i] for k in range(3)), tuple(total[3 + k][i] for k in range(3))) for i in range(count)]


def _body_signs(found: Contacts, topology: Topology, dtype):
    """(bodies, contacts, lanes or 1): 1 for the body of the second geom, -1 for that of the first; what parts of flexes share."""
    count = len(topology.bodies)
    if found.of.flex_weights is not None:
        return _spread(found, np.eye(count, count + 1), dtype)
    table = np.zeros((count + 1, len(found.of.geoms)), np.int8)
    for i, (one, two) in enumerate(found.of.owners.tolist()):
        table[one, i] -= 1
        table[two, i] += 1
    return by_contact(found, table[:-1], dtype)


def geoms_of(found: Contacts):
    """Numbers of the two geoms (or parts of flexes, after the geoms) of each contact: (2, contacts, lanes or 1)."""
    return by_contact(found, found.of.geoms.T, jnp.int32)


def adhesion(system: System, frame: Frames, body: int) -> list:
    """Row [(dof, coefficient), ...] of an adhesive body: minus the mean rate of the distances of its contacts, also of those in the gap."""
    if system.contact_parameters is None:
        return []
    lanes = lanes_of(system, frame)
    total, count = 0.0, 0.0
    found = find_contacts(system, frame)
    for own, of_each in zip(found, contact_numbers(system, found), strict=True):
        counted = (own.of.owners == body).any(1) & (own.of.owners != NO_BODY).all(1)
        near = by_contact(own, counted[None], own.distance.dtype)[0] * (own.distance < of_each.reach)
        rates = _jacobian(system, frame, own, lanes or (1,), 1).dense()[:, 0]
        total, count = total + pairwise_sum(near[:, None] * rates), count + pairwise_sum(near)
    row = -total / jnp.maximum(count, 1.0)
    return [(i, x if lanes else x[0]) for i, x in enumerate(row)]
