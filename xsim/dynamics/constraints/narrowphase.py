"""Contact detection: the poses of all geoms at a state, and the contacts between them.

All pairs that share a collision function are processed as a batch. Arrays are (pairs or contacts, lanes), with one lane if the state has no
batch. A contact is active if its distance is less than its margin. If more contacts are active than the buffer of an environment has
entries, the deepest are used. If the model has many pairs, a broad phase selects the nearest for the narrow phase, by a lower bound of
their distance.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import fields, sdf, sdf_flexes, sdf_meshes
from xsim.dynamics.collide.broadphase import BOUNDED, bounding_radius, can_touch
from xsim.dynamics.collide.dispatch import collide, collide_convex, collide_flat, hull, least_distances
from xsim.dynamics.collide.shapes import FAR, ContactPoint, Shape, broadcast_contact, shape_of
from xsim.dynamics.constraints import flex_contacts, speculative
from xsim.dynamics.constraints.contact_parameters import PairParameters, pair_parameters
from xsim.dynamics.constraints.contact_plan import NO_BODY, CondimGroup, FlexContactBodies, PairGroup, assets_of, contact_plan
from xsim.dynamics.flex.kinematics import points
from xsim.dynamics.layout import column, concatenated, take_rows, true_indices
from xsim.dynamics.tree.kinematics import Frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import PairsInfo, SdfInfo, Topology
from xsim.spatial import (
    ZERO3,
    apply,
    cross,
    dot,
    each_row,
    in_one_environment,
    mat_mul,
    matrix,
    normalize,
    quat_mul,
    rotate,
    scale,
    stage,
    vadd,
    vsub,
)

MIN_HINT = 0.5  # a tangent hint with a smaller norm is ignored


class ContactParameters(NamedTuple):
    """The quantities of contact detection that depend on the model's leaves but not on the state.

    geom_quat, geom_pos: poses of the geoms in the frames of their links, components (geoms, lanes or 1).
    geom_size: components (geoms, lanes or 1).
    geom_radius (geoms, lanes or 1): of bounding spheres, m; 0 for shapes without one.
    pairs: parameters of the pairs, one entry for each condim group.
    mobility: one entry for each condim group, (pairs, lanes or 1): the sum over the two bodies of a pair. If the group has parts of flexes:
        (bodies + 1, lanes or 1), of all bodies and the world.
    """

    geom_quat: tuple
    geom_pos: tuple
    geom_size: tuple
    geom_radius: Any
    pairs: tuple[PairParameters, ...]
    mobility: tuple


class Candidates(NamedTuple):
    """The candidate contacts of a condim group, components (candidates, lanes).

    contact: see `ContactPoint`. pair: see `Contacts`. depth: how much nearer than the detection distance; it is not differentiated.
    overflow (lanes,): whether some may be missing. speculative: see `Contacts`."""

    contact: ContactPoint
    pair: Any
    depth: Any
    overflow: Any
    speculative: Any


class Contacts(NamedTuple):
    """The contacts of a condim group, as many as its buffer has entries. n: number of contacts.

    group: the condim group.
    pair: the pair index of each contact, a fixed list (n,) or an array (n, lanes).
    distance, point, normal: see `ContactPoint`; components (n, lanes).
    tangents: two unit vectors. They make a right-handed frame with the normal: the contact frame.
    overflow (lanes,): whether more contacts were active than the buffer has entries.
    corner_weights: for the first and the second side, the weights (n, lanes) of ``FlexContactBodies.bodies``. None without flexes.
    speculative (n, lanes): whether the contact will be within the step, see `speculative`. It acts whatever its distance. None without.
    """

    group: CondimGroup
    pair: Any
    distance: Any
    point: tuple
    normal: tuple
    tangents: tuple
    overflow: Any
    corner_weights: tuple | None
    speculative: Any = None

    def is_nearer(self, distance):
        """Whether contacts are nearer than a distance (n, lanes), or speculative."""
        nearer = self.distance < distance
        return nearer if self.speculative is None else nearer | self.speculative


def contact_parameters(system: System) -> ContactParameters:
    """The quantities that do not depend on the state. ``system.derived.mobility`` must be set."""
    top = system.topology
    plan = contact_plan(top)
    infos = [top.geoms[g] for g in plan.geoms]
    quat, pos = _geom_poses_in_links(system, infos) if infos else ((), ())
    leaf_rows = np.array([info.row for info in infos], int)
    size = components(system.geom_arrays.size[leaf_rows]) if infos else ()
    assert system.derived.mobility is not None
    translational = [system.derived.mobility.bodies.get(body, (0.0, 0.0))[0] for body in range(len(top.bodies))]
    of_body = column([*translational, 0.0])
    pairs = tuple(concatenated([pair_parameters(system, info) for info in group.infos]) for group in plan.condim_groups)
    mobility = [
        of_body if group.flex_bodies else of_body[group.bodies[:, 0]] + of_body[group.bodies[:, 1]] for group in plan.condim_groups
    ]
    return ContactParameters(quat, pos, size, _geom_radii(infos, size), pairs, tuple(mobility))


def moved_geoms(parameters: ContactParameters, system: System) -> ContactParameters:
    """The quantities with the poses of the geoms of a system whose mocap bodies have moved."""
    infos = [system.topology.geoms[g] for g in contact_plan(system.topology).geoms]
    if not infos:
        return parameters
    quat, pos = _geom_poses_in_links(system, infos)
    return parameters._replace(geom_quat=quat, geom_pos=pos)


def _geom_radii(infos, size) -> Any:
    """Radii of the bounding spheres of geoms, see `ContactParameters`. None without geoms."""
    if not infos:
        return None
    radii = jnp.zeros_like(size[0])
    for kind in sorted({info.shape for info in infos} & set(BOUNDED)):
        rows = np.array([i for i, info in enumerate(infos) if info.shape == kind])
        radii = radii.at[rows].set(bounding_radius(kind, tuple(x[rows] for x in size)))
    return radii


def _geom_poses_in_links(system: System, infos) -> tuple:
    """Orientations and positions of geoms in the frames of their links. Geoms of the world: in the world frame."""
    leaf_rows = np.array([info.row for info in infos])
    geom_quat, geom_pos = normalize(components(system.geom_arrays.quat[leaf_rows])), components(system.geom_arrays.pos[leaf_rows])
    if all(info.body < 0 or system.topology.bodies[info.body].link >= 0 and system.tables.at_link[info.body] for info in infos):
        return geom_quat, geom_pos
    identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    body_poses = [identity if info.body < 0 else tuple(system.body.offset[info.body]) for info in infos]
    quat, pos = (tuple(column(x) for x in zip(*(pose[k] for pose in body_poses), strict=True)) for k in (0, 1))
    return quat_mul(quat, geom_quat), vadd(pos, rotate(quat, geom_pos))


def components(x) -> tuple:
    """The arrays (n, lanes) of an array (n, width, lanes)."""
    return tuple(jnp.unstack(x, axis=1))


@stage
def _poses_in_world(link_R, link_pos, quat, pos):
    """Rotation matrices and positions of geoms in the world frame, from the poses of their links and their poses in these."""
    return mat_mul(link_R, matrix(quat)), vadd(link_pos, apply(link_R, pos))


def _geom_poses(system: System, frame: Frames, parameters: ContactParameters) -> tuple:
    """Rotation matrices (rows of components) and positions of the geoms in the world frame, (geoms, lanes or 1)."""
    identity = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))
    R = [*frame.R, identity]
    pos = [*(pose.pos for pose in frame.pose), (0.0, 0.0, 0.0)]
    links, index = np.unique(contact_plan(system.topology).geom_links, return_inverse=True)
    link_R = tuple(tuple(column([R[i][j][k] for i in links])[index] for k in range(3)) for j in range(3))
    link_pos = tuple(column([pos[i][k] for i in links])[index] for k in range(3))
    return _poses_in_world(link_R, link_pos, parameters.geom_quat, parameters.geom_pos)


def _candidates(system: System, group: CondimGroup, parameters: PairParameters, shapes, motion) -> tuple[ContactPoint, Any, Any, Any]:
    """The candidate contacts of a condim group.

    parameters: of the pairs. shapes (shapes, 15, lanes or 1): see `shape_of`. motion: see `speculative.geom_motions`.
    Returns the contacts, components (candidates, lanes or 1), their pair indices, a fixed list or (candidates, lanes or 1), whether a
    buffer was too small (lanes or 1), and whether contacts are speculative (candidates, lanes), None if none is."""
    contacts, pairs, masks, overflow = [], [], [], jnp.zeros(shapes.shape[-1], bool)
    detection_distance = parameters.detection_distance
    for pair_group in group.pair_groups:
        collide_group = _collide_height_fields if pair_group.windows else _search_pairs if pair_group.sdf else _collide_pairs
        contact, pair, group_overflow = collide_group(system, pair_group, detection_distance, shapes)
        mask = None
        if motion is not None and speculative.can_predict(system.topology, pair_group):
            contact, mask = speculative.with_impacts(system, pair_group, parameters, contact, shapes, motion)
        masks.append(mask)
        contacts.append(contact)
        pairs.append(pair)
        overflow = overflow | group_overflow
    mask = None
    if any(x is not None for x in masks):
        masks = [jnp.zeros(jnp.shape(c.distance), bool) if x is None else x for c, x in zip(contacts, masks, strict=True)]
        mask = concatenated(masks)
    if all(isinstance(pair, np.ndarray) for pair in pairs):
        return concatenated(contacts), np.concatenate(pairs), overflow, mask
    pair = concatenated([p if isinstance(p, jax.Array) else jnp.asarray(p)[:, None] for p in pairs])
    return concatenated(contacts), pair, overflow, mask


def _collide_pairs(system: System, group: PairGroup, detection_distance, shapes) -> tuple[ContactPoint, Any, Any]:
    """As `_candidates`, of one pair group without height fields."""
    top, lanes, dtype = system.topology, shapes.shape[-1], shapes.dtype
    by_spheres = in_one_environment() and group.has_bounding_spheres and not top.speculative
    rows = [np.concatenate([_shape_rows(top, info)[k] for info in group.infos]) for k in (0, 1)]
    sides = [take_rows(shapes, x) for x in rows]
    distance, selected, overflow = detection_distance[group.pairs], None, jnp.zeros(lanes, bool)
    kinds = group.shapes if group.is_convex else group.shapes[:1]
    data = [[assets[k] for assets in group.assets] if group.is_convex else group.assets[0][k] for k in (0, 1)]

    def both():
        return [shape_of(components(x), y) for x, y in zip(sides, data, strict=True)]

    if group.is_convex or (group.narrow_phase_limit is not None and not by_spheres):
        depth = jax.lax.stop_gradient(jnp.broadcast_to(distance, (len(distance), lanes))) - _least_distances(kinds, *both())
        near = depth > 0
        if group.narrow_phase_limit is not None:
            selected, overflow = deepest(depth, group.narrow_phase_limit)
            near, distance = take_rows(near, selected), take_rows(distance, selected)
        if group.is_convex:
            if group.contacts_per_pair > 1:
                contacts = _collide_flat(kinds, *both(), distance, selected, near)
            else:
                contacts = [_collide_convex(kinds, *both(), selected, near)]
            return concatenated([broadcast_contact(x, (len(near), lanes)) for x in contacts]), group.candidate_pairs(selected), overflow
    if selected is not None:
        sides = [take_rows(x, selected) for x in sides]

    def contacts_of(a, b, distance) -> list[ContactPoint]:
        sides = (shape_of(components(x), y) for x, y in zip((a, b), data, strict=True))
        return [broadcast_contact(x, (len(a), lanes), dtype) for x in _collide(kinds[0], *sides, distance, top.switches)]

    def contacts_of_near(rows, distance, reach) -> list[ContactPoint]:
        a, b = (jax.lax.dynamic_slice_in_dim(shapes, row[0], 1) for row in rows)
        bodies = [shape_of(components(x), None) for x in (a, b)]
        near = can_touch(*(body.pos for body in bodies), reach)
        if group.has_bounding_boxes:
            near = jax.lax.cond(near.any(), lambda: near & (_least_distances(kinds, *bodies) < distance), lambda: near)
        far = [broadcast_contact(ContactPoint(FAR, ZERO3, (0.0, 0.0, 1.0)), (len(a), lanes), dtype)] * group.contacts_per_pair
        return jax.lax.cond(near.any(), lambda: contacts_of(a, b, distance), lambda: far)

    if by_spheres:
        contacts = each_row(contacts_of_near, [jnp.asarray(x) for x in rows], distance, _reach(system, rows, distance))
    else:
        contacts = each_row(contacts_of, *sides, distance)
    return concatenated(contacts), group.candidate_pairs(selected), overflow


def _reach(system: System, rows: list[np.ndarray], distance):
    """For each pair, the distance of the centres (pairs, lanes or 1) up to which the bounding spheres are nearer than a distance. rows: see
    `_shape_rows`."""
    first, second = (system.derived.contact_parameters.geom_radius[x] for x in rows)
    return jax.lax.stop_gradient(first + second + distance)


def _collide_height_fields(system: System, group: PairGroup, detection_distance, shapes) -> tuple[ContactPoint, Any, Any]:
    """As `_candidates`, of one pair group with height fields."""
    top, lanes = system.topology, shapes.shape[-1]
    overflow, kinds, sides, meshes, first = jnp.zeros(lanes, bool), [], ([], []), [], 0
    for info, window in zip(group.infos, group.windows, strict=True):
        count, (field, mesh) = len(info.geoms.value), assets_of(top, info)
        distance = detection_distance[group.pairs[first : first + count]]
        a, b = (shape_of(components(x), None) for x in _of_pairs(top, info, shapes))
        with_hull = b._replace(data=(None if mesh is None else hull(mesh),))
        ground, window_overflow = _prisms(field, a, info.shapes[1], with_hull, distance, window)
        overflow = overflow | window_overflow.any(0)
        b = jax.tree.map(lambda x, n=window.count: jnp.broadcast_to(x, (n, *x.shape)), b)
        for side, shape in zip(sides, (ground, b), strict=True):
            side.append(jax.tree.map(lambda x: _broadcast_lanes(_merge_leading_axes(x), lanes), shape))
        kinds += [("prism", info.shapes[1])] * (count * window.count)
        meshes += [mesh] * (count * window.count)
        first += count
    ground, other = (concatenated(side) for side in sides)
    contact = _collide_convex(tuple(kinds), ground, other._replace(data=meshes), None, ground.data.near)
    return broadcast_contact(contact, (len(kinds), lanes)), group.candidate_pairs(), overflow


def _search_pairs(system: System, group: PairGroup, detection_distance, shapes) -> tuple[ContactPoint, Any, Any]:
    """As `_candidates`, of one pair group with a signed distance function."""
    top, lanes, (info,) = system.topology, shapes.shape[-1], group.infos
    first, second = (shape_of(components(x), None) for x in _of_pairs(top, info, shapes))
    if info.shapes[1] == "simplex":
        contact, overflow = _search_flexes(system, info, first, second), jnp.zeros((1, 1), bool)
    else:
        contact, overflow = search_surfaces(system, info.shapes, info.assets, (first, second))
    shape = (group.contacts_per_pair, len(group.pairs), lanes)
    contact = jax.tree.map(lambda x: jnp.broadcast_to(x, shape).reshape(-1, lanes), contact)
    return contact, group.candidate_pairs(), jnp.broadcast_to(overflow.any(0), (lanes,))


def search_surfaces(system: System, shapes: tuple[str, str], assets: tuple, geoms: tuple[Shape, Shape]) -> tuple[ContactPoint, Any]:
    """The contacts of a shape and a signed distance function, components (contacts, pairs, lanes), and whether some may be missing, (pairs,
    lanes). assets: indices of the meshes of the two. geoms: of the pairs (pairs, lanes)."""
    top = system.topology
    sides = (_distance_function(system, side[1]) if side[0] == "sdf" else (side[0], ()) for side in zip(shapes, assets, strict=True))
    kinds, numbers = zip(*sides, strict=True)
    if shapes[0] == "mesh":
        return _search_meshes(top.meshes[assets[0]], geoms[0], kinds[1], geoms[1], numbers[1], top.sdf_search, top.switches)
    contact = _search(kinds, geoms, numbers, top.sdf_search, top.switches)
    return contact, jnp.zeros((1, 1), bool)


def _distance_function(system: System, asset: int) -> tuple[SdfInfo, tuple]:
    """The signed distance function of a mesh, and its numbers."""
    (function,) = (function for function in system.topology.sdfs if function.mesh == asset)
    return function, tuple(system.geom.sdf[row] for row in function.numbers)


def _search_flexes(system: System, info: PairsInfo, geom: Shape, triangle: Shape) -> ContactPoint:
    """The contacts of signed distance functions with triangles of flexes, components (pairs, lanes)."""
    top = system.topology
    function, numbers = _distance_function(system, info.assets[0])
    parts = [(first, top.parts[second - len(top.geoms)]) for first, second in info.geoms.value.tolist()]
    order = sdf_flexes.triangle_order([(first, part.flex, part.points) for first, part in parts])
    return _search_triangles(function, geom, triangle, numbers, top.sdf_search, top.switches, order)


def _merge_leading_axes(x):
    """(k, n, lanes) as (k n, lanes)."""
    return x.reshape(-1, x.shape[-1])


def _broadcast_lanes(x, lanes: int):
    return jnp.broadcast_to(x, (len(x), lanes))


_collide, _collide_convex, _collide_flat, _prisms, _least_distances = (
    stage(f) for f in (collide, collide_convex, collide_flat, fields.prisms, least_distances)
)
_search, _search_meshes, _search_triangles = (
    stage(f) for f in (sdf.search_pairs, sdf_meshes.search_meshes, sdf_flexes.search_triangles)
)


def _shape_rows(topology: Topology, info: PairsInfo) -> list[np.ndarray]:
    """The rows of the first and of the second geoms of pairs in an array with a row for each shape."""
    index = contact_plan(topology).shape_index
    return [np.array([index[g] for g in info.geoms.value[:, k].tolist()]) for k in (0, 1)]


def _of_pairs(topology: Topology, info: PairsInfo, of_shapes) -> list:
    """The rows of the first and of the second geoms of pairs, of an array with a row for each shape."""
    return [of_shapes[rows] for rows in _shape_rows(topology, info)]


@stage
def _tangents(normal, hint) -> tuple:
    """Two unit vectors that make a right-handed frame with the normal. The first is nearest to the hint. Without a hint it is nearest to
    the y axis, or to the z axis if the normal is near the y axis."""
    is_given = dot(hint, hint) >= MIN_HINT**2
    use_y = jnp.abs(normal[1]) < 0.5
    direction = tuple(
        jnp.where(is_given, x, jnp.where(use_y, y, z)) for x, y, z in zip(hint, (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), strict=True)
    )
    first = normalize(vsub(direction, scale(normal, dot(normal, direction))))
    return first, cross(normal, first)


def exceeds(depth, capacity: int):
    """Whether there are more positive depths than a buffer has entries (lanes,). depth (n, lanes)."""
    return (depth > 0).sum(0) > capacity


def deepest(depth, capacity: int, rank=None) -> tuple[Any, Any]:
    """Indices (capacity, lanes) of the largest positive depths of each lane, and of any others where these are fewer, and whether they are
    more (lanes,). depth (n, lanes). rank (n, lanes or 1): those of a larger rank come first, if all positive depths are selected."""
    is_exceeded, order = exceeds(depth, capacity), jnp.maximum(depth, 0.0)
    if rank is not None:
        order = jnp.where((depth > 0) & ~is_exceeded, order + rank, order)
    return jax.lax.top_k(order.T, capacity)[1].T, is_exceeded


def active_indices(depth, group: CondimGroup, pair) -> tuple[Any, Any]:
    """Indices (capacity,) of the positive depths, or of the largest ones where these are more than the buffer of a group has entries, and
    their number, in the program of one environment. The further indices have no meaning. depth (n, 1). pair: see `Candidates`.

    Contacts of many dofs come first, so that environments which are evaluated together have contacts of as many in a turn of a loop. It
    takes fewer operations than `deepest`, which sorts."""
    active, capacity = depth[:, 0] > 0, group.capacity
    order = None
    if group.support is not None and isinstance(pair, np.ndarray):
        order = np.argsort(-group.support.sizes[pair], kind="stable").astype(np.int32)
        active = active[order]
    count, indices = active.sum(), true_indices(active, capacity)
    indices = indices if order is None else jnp.asarray(order)[indices]
    if capacity < len(active):
        indices = jax.lax.cond(count > capacity, lambda: deepest(depth, capacity)[0][:, 0].astype(indices.dtype), lambda: indices)
    return indices, jnp.minimum(count, capacity)


class Detection(NamedTuple):
    """The candidate contacts and the contacts of a configuration, one entry for each condim group."""

    candidates: list[Candidates]
    contacts: list[Contacts]


def detect_contacts(system: System, frame: Frames, v=None) -> Detection:
    """The contacts at a configuration. v: velocities, for speculative contacts; None: without these."""
    candidates = find_candidates(system, frame, v)
    return Detection(candidates, select_contacts(system, frame, candidates))


def select_contacts(system: System, frame: Frames, candidates: list[Candidates]) -> list[Contacts]:
    """The contacts among the candidates, one entry for each condim group."""
    corner_points = _corner_points(system, frame)
    groups = contact_plan(system.topology).condim_groups
    return [selected_contacts(*x, corner_points) for x in zip(groups, candidates, strict=True)]


def find_candidates(system: System, frame: Frames, v=None) -> list[Candidates]:
    """The candidate contacts at a configuration, one entry for each condim group. v: see `detect_contacts`."""
    parameters, plan = system.derived.contact_parameters, contact_plan(system.topology)
    corner_points = _corner_points(system, frame)
    shapes = [] if corner_points is None else [flex_contacts.part_shapes(system, corner_points)]
    if plan.geoms:
        R, pos = _geom_poses(system, frame, parameters)
        parts = [*parameters.geom_size, *pos, *(x for row in R for x in row)]
        width = max(x.shape[-1] for x in parts)
        shapes.insert(0, jnp.stack([jnp.broadcast_to(x, (len(x), width)) for x in parts], 1))
    shapes = concatenated(shapes)
    width = max(shapes.shape[-1], *(pairs.detection_distance.shape[-1] for pairs in parameters.pairs))
    shapes = jnp.broadcast_to(shapes, (*shapes.shape[:-1], width))
    motion = speculative.geom_motions(system, frame, v, shapes) if v is not None and system.topology.speculative else None
    groups = zip(plan.condim_groups, parameters.pairs, strict=True)
    return [_group_candidates(system, frame, group, pairs, shapes, motion) for group, pairs in groups]


def _corner_points(system: System, frame: Frames):
    """The positions of the corners of the parts of flexes, None without parts."""
    return flex_contacts.with_vertices(system.topology, points(system, frame)) if system.topology.parts else None


def _group_candidates(system: System, frame: Frames, group: CondimGroup, parameters: PairParameters, shapes, motion) -> Candidates:
    """The candidate contacts of one condim group."""
    lanes = lanes_of(system, frame) or (1,)
    contact, pair, overflow, mask = _candidates(system, group, parameters, shapes, motion)
    lanes = lanes if mask is None else jnp.broadcast_shapes(lanes, mask.shape[1:])
    contact, mask = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(x), *lanes)), (contact, mask))
    depth = take_rows(parameters.detection_distance, pair) - contact.distance
    depth = depth if mask is None else jnp.where(mask, FAR, depth)
    return Candidates(contact, pair, jax.lax.stop_gradient(depth), overflow, mask)


def selected_contacts(group: CondimGroup, candidates: Candidates, corner_points) -> Contacts:
    """The deepest candidates of one condim group, as many as its buffer has entries. The deepest comes first."""
    contact, pair, depth, overflow, mask = candidates
    if group.capacity < len(contact.distance):
        rank = None
        if group.support is not None and in_one_environment():  # contacts of as many dofs one after the other, see `with_curvature`
            rank = _column(of_contacts(group.support.sizes, pair), depth)
        selected, buffer_overflow = deepest(depth, group.capacity, rank)
        overflow = overflow | buffer_overflow
        contact, mask = jax.tree.map(lambda x: take_rows(x, selected), (contact, mask))
        pair = jnp.asarray(pair)[selected] if isinstance(pair, np.ndarray) else take_rows(pair, selected)
    if group.order is not None:
        contact, pair, mask = jax.tree.map(lambda x: take_rows(x, group.order), (contact, pair, mask))
    weights = None
    if group.flex_bodies is not None:
        weights = _corner_weights(group, pair, contact.point, corner_points)
    tangents = each_row(_tangents, contact.normal, contact.tangent_hint)
    return Contacts(group, pair, contact.distance, contact.point, contact.normal, tangents, overflow, weights, mask)


def _corner_weights(group: CondimGroup, pair, point, corner_points) -> tuple:
    """For both sides, the weights at the contact points of the corners, or of the nodes of a cell. A geom has weight 1 at its first corner,
    0 at the others."""
    flex_bodies, out = group.flex_bodies, []
    assert flex_bodies is not None
    for side in (0, 1):
        if group.has_geoms_only(side):
            one = jnp.ones_like(point[0])
            out.append([one, *[jnp.zeros_like(one)] * (flex_bodies.bodies.shape[2] - 1)])
            continue
        corners = [of_contacts(flex_bodies.corners[:, side, k], pair) for k in range(flex_contacts.MAX_CORNERS)]
        is_geom = of_contacts(group.bodies[:, side] != NO_BODY, pair)
        is_geom = is_geom[:, None] if isinstance(is_geom, np.ndarray) else is_geom
        weights = flex_contacts.corner_weights(point, corner_points, corners)
        weights = [jnp.where(is_geom, float(k == 0), w) for k, w in enumerate(weights)]
        out.append(_with_nodes(flex_bodies, side, pair, weights))
    return tuple(out)


def _with_nodes(flex_bodies: FlexContactBodies, side: int, pair, weights: list) -> tuple:
    """The weights of all bodies of one side: those of the corners, or where the part is in a cell those of its nodes."""
    width = flex_bodies.bodies.shape[2]
    out = [*weights, *[jnp.zeros_like(weights[0])] * (width - len(weights))]
    for order in sorted({*flex_bodies.orders[:, side].tolist()} - {0}):
        places = [
            [_column(of_contacts(flex_bodies.places[:, side, k, axis], pair), weights[0]) for axis in range(3)] for k in range(len(weights))
        ]
        nodes = flex_contacts.node_weights(tuple(weights), places, order, flex_bodies.spans[order])
        chosen = _column(of_contacts(flex_bodies.orders[:, side] == order, pair), None)
        out = [jnp.where(chosen, w, old) for w, old in zip([*nodes, *[jnp.zeros_like(nodes[0])] * (width - len(nodes))], out, strict=True)]
    return tuple(out)


def _column(of_contacts, like):
    """Constants (contacts,) or (contacts, lanes) of contacts with a lane axis, in the precision of ``like``."""
    x = of_contacts[:, None] if isinstance(of_contacts, np.ndarray) else of_contacts
    return x if like is None else jnp.asarray(x, like.dtype)


def of_contacts(of_pairs: np.ndarray, pair):
    """Constants of pairs (pairs,) for each contact: (contacts,) or (contacts, lanes). pair: see `Contacts`."""
    return of_pairs[pair] if isinstance(pair, np.ndarray) else jnp.asarray(of_pairs)[pair]
