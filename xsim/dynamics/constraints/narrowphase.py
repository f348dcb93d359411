"""Contacts at a state: the shapes of all geoms in the world, and where pairs of them touch.

All pairs of one kind are tested at once: arrays are (pairs or contacts, lanes), also where a state has no batch (one lane). A contact is
active where its distance is less than the margin. Where more contacts are active than an environment's buffer holds, the deepest are used.
Where there are many pairs, a lower bound of the distance (broad phase) selects the nearest for the narrow phase.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import fields
from xsim.dynamics.collide.dispatch import collide, collide_convex, collide_flat, hull, least_distances
from xsim.dynamics.collide.shapes import Shape, Touch
from xsim.dynamics.constraints import flex_contacts as flexed
from xsim.dynamics.constraints.contact_parameters import Numbers, numbers
from xsim.dynamics.constraints.contact_plan import NO_BODY, CondimGroup, FlexWeights, Group, assets_of, plan
from xsim.dynamics.flex.kinematics import points
from xsim.dynamics.layout import column, joined, picked
from xsim.dynamics.tree.kinematics import Frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import PairsInfo, Topology
from xsim.spatial import apply, cross, dot, matrix, normalize, quat_mul, rotate, scale, stage, vadd, vsub

TAN_LEAST = 0.5  # a shorter direction gives no tangent


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


def contact_parameters(system: System) -> ContactParameters:
    """What the leaves alone say; needs ``system.derived.mobility``."""
    top = system.topology
    layout = plan(top)
    infos = [top.geoms[g] for g in layout.geoms]
    place = _places(system, infos) if infos else ((), ())
    rows = np.array([info.row for info in infos], int)
    size = columns(system.geom_arrays.size[rows]) if infos else ()
    assert system.derived.mobility is not None
    moved = [system.derived.mobility.bodies.get(body, (0.0, 0.0))[0] for body in range(len(top.bodies))]
    mobility = column([*moved, 0.0])
    own = tuple(joined([numbers(system, info) for info in of.infos]) for of in layout.classes)
    mobilities = [mobility if of.flex_weights else mobility[of.owners[:, 0]] + mobility[of.owners[:, 1]] for of in layout.classes]
    return ContactParameters(*place, size, own, tuple(mobilities))


def _places(system: System, infos) -> tuple:
    """Orientations and positions of geoms in the links that carry them (of the world's in the world)."""
    rows = np.array([info.row for info in infos])
    own_quat, own_pos = normalize(columns(system.geom_arrays.quat[rows])), columns(system.geom_arrays.pos[rows])
    if all(info.body < 0 or system.topology.bodies[info.body].link >= 0 and system.tables.at_link[info.body] for info in infos):
        return own_quat, own_pos
    identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    carried = [identity if info.body < 0 else tuple(system.body.offset[info.body]) for info in infos]
    quat, pos = (tuple(column(x) for x in zip(*(c[k] for c in carried), strict=True)) for k in (0, 1))
    return quat_mul(quat, own_quat), vadd(pos, rotate(quat, own_pos))


def columns(x) -> tuple:
    """Arrays (n, lanes) of an array (n, width, lanes)."""
    return tuple(x[:, k] for k in range(x.shape[1]))


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
        return [_shape(columns(x), y) for x, y in zip(sides, data, strict=True)]

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
    touches = [_full(touch, sides[0].shape[0], lanes) for touch in _collided(kind, *both(), own, top.switches)]
    return joined(touches), group.candidates(which), short


def _over_fields(system: System, group: Group, reach, shapes) -> tuple[Touch, Any, Any]:
    """As `_held` of pairs with height fields."""
    top, lanes = system.topology, shapes.shape[-1]
    overflow, kinds, sides, meshes, first = jnp.zeros(lanes, bool), [], ([], []), [], 0
    for info, view in zip(group.infos, group.windows, strict=True):
        count, (field, mesh) = len(info.geoms.value), assets_of(top, info)
        own = reach[group.pair[first : first + count]]
        a, b = (_shape(columns(x), None) for x in _sides(top, info, shapes))
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


def _shape(numbers: tuple, data) -> Shape:
    """Of size, position and rotation matrix, 15 components."""
    return Shape(numbers[:3], numbers[3:6], (numbers[6:9], numbers[9:12], numbers[12:]), data)


def _full(touch: Touch, count: int, lanes: int) -> Touch:
    """With arrays (count, lanes) for components."""
    dtype = jnp.result_type(*jax.tree.leaves(touch))
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), (count, lanes)), touch)


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
    parameters, layout = system.derived.contact_parameters, plan(system.topology)
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
        corners = [of_pair(flex_weights.corners[:, side, k], pair) for k in range(flexed.CORNERS)]
        whole = of_pair(owners[:, side] != NO_BODY, pair)
        whole = whole[:, None] if isinstance(whole, np.ndarray) else whole
        own = flexed.shares(point, at.world, corners)
        out.append(tuple(jnp.where(whole, float(k == 0), w) for k, w in enumerate(own)))
    return tuple(out)


def of_pair(numbers: np.ndarray, pair):
    """Numbers of pairs (pairs,) for each contact: (contacts,) or (contacts, lanes)."""
    return numbers[pair] if isinstance(pair, np.ndarray) else jnp.asarray(numbers)[pair]
