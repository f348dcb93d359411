"""The constraint rows of contacts: Jacobians, friction cones and reference accelerations in the contact frames, and the wrenches of
contacts on bodies."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.shapes import FAR
from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.contact_parameters import PairParameters
from xsim.dynamics.constraints.contact_plan import NO_BODY
from xsim.dynamics.constraints.narrowphase import Contacts, components, detect_contacts, of_contacts
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.row_mobility import RowMobility
from xsim.dynamics.constraints.softness import MIN_VALUE, impedance, is_mixed, reference_law, regularization
from xsim.dynamics.constraints.surface_velocity import surface_velocities
from xsim.dynamics.layout import column, take_rows
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian, SparseJacobian
from xsim.dynamics.tree.kinematics import Frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, cross, dot, each_row, in_one_environment, mul, scale, stage, vadd


def constants_of_contacts(contacts: Contacts, of_pairs: np.ndarray, dtype):
    """Constants of pairs (n, pairs) for each contact: (n, contacts, lanes or 1)."""
    if isinstance(contacts.pair, np.ndarray):
        return jnp.asarray(of_pairs[:, contacts.pair, None], dtype)
    return jnp.asarray(of_pairs, dtype)[:, contacts.pair]


def _corner_difference(contacts: Contacts, of_bodies, dtype) -> Any:
    """The weighted sum of constants of bodies (n, bodies + 1) over the corners of the second side, minus that of the first side:
    (n, contacts, lanes)."""
    group, table = contacts.group, jnp.asarray(of_bodies.T, dtype)
    assert group.flex_bodies is not None and contacts.corner_weights is not None
    bodies, weights = [], []
    for side, sign in ((0, -1.0), (1, 1.0)):
        corners = 1 if group.has_geoms_only(side) else group.flex_bodies.bodies.shape[2]
        for k, weight in enumerate(contacts.corner_weights[side][:corners]):
            body = of_contacts(group.flex_bodies.bodies[:, side, k], contacts.pair)
            bodies.append(jnp.broadcast_to(body[:, None] if isinstance(body, np.ndarray) else body, weight.shape))
            weights.append(sign * weight)

    def rows(bodies, weights):
        """(contacts, n, lanes)."""
        return sum(jnp.moveaxis(table[body], -1, 1) * weight[:, None] for body, weight in zip(bodies, weights, strict=True))

    return jnp.swapaxes(each_row(rows, bodies, weights), 0, 1)


def _mobility(contacts: Contacts, mobility):
    """The sum of the mobilities of both sides of each contact (contacts, lanes or 1). mobility: see `ContactParameters`."""
    if contacts.group.flex_bodies is None:
        return take_rows(mobility, contacts.pair)
    out = 0.0
    for side, weights in enumerate(contacts.corner_weights or ()):
        for k, weight in enumerate(weights):
            out = out + weight * take_rows(mobility, of_contacts(contacts.group.flex_bodies.bodies[:, side, k], contacts.pair))
    return out


@stage
def _block_jacobian(dof_sign, ang, lin, origin, point, axes, condim: int, lanes):
    """The Jacobian (contacts, condim, dofs, lanes) of a block: the relative velocity of the second geom along the axes of the contact
    frame, and its relative angular velocity about them, per dof. ang, lin: motion subspaces of the dofs about ``origin``."""
    arm = tuple(p[:, None] - r for p, r in zip(point, origin, strict=True))
    velocity = scale(vadd(lin, cross(ang, arm)), dof_sign)
    angular = scale(ang, dof_sign)
    along, about = ([dot(axis, x) for axis in axes] for x in (velocity, angular))
    rows = {1: along[:1], 3: along, 4: [*along, about[0]], 6: [*along, *about]}[condim]
    return jnp.stack([jnp.broadcast_to(r, (*r.shape[:2], *lanes)) for r in rows], 1)


class _Motion(NamedTuple):
    """The motion subspaces of the dofs: components (nv, lanes or 1), about the origins."""

    ang: tuple
    lin: tuple
    origin: tuple

    def of(self, dofs) -> _Motion:
        """Those of an array of dofs (...), (..., lanes or 1)."""
        return jax.tree.map(lambda x: jnp.take(x, dofs, axis=0, mode="clip"), self)


def _motion(system: System, frame: Frames) -> _Motion:
    ang, lin = (tuple(column([s[part][k] for s in frame.subspace]) for k in range(3)) for part in (0, 1))
    roots = [frame.pose[system.tables.root[link]].pos for link in system.tables.dof_link]
    return _Motion(ang, lin, tuple(column([r[k] for r in roots]) for k in range(3)))


def _axes(contacts: Contacts) -> tuple:
    """The axes of the contact frames, for all dofs."""
    return tuple(tuple(x[:, None] for x in axis) for axis in (contacts.normal, *contacts.tangents))


def contact_jacobian(system: System, frame: Frames, contacts: Contacts, lanes, condim: int) -> Jacobian:
    """The contact Jacobian (contacts, condim, nv, lanes)."""
    motion, axes = _motion(system, frame), _axes(contacts)
    group, dtype, blocks, end = contacts.group, contacts.distance.dtype, [], 0
    if group.flex_bodies:
        signs = _corner_difference(contacts, group.flex_bodies.dof_mask.T, dtype)
    else:
        signs = constants_of_contacts(contacts, group.dof_sign.T, dtype)
    for count, dofs in group.blocks:
        start, end, block_dofs = end, end + count, np.array(dofs, int)
        block_signs, block_motion = jnp.swapaxes(signs[block_dofs, start:end], 0, 1), motion.of(block_dofs)
        contact_frame = jax.tree.map(lambda x, block=slice(start, end): x[block], (contacts.point, axes))

        def rows(signs, point, axes, motion=block_motion):
            return _block_jacobian(signs, *motion, point, axes, condim, lanes)

        blocks.append(each_row(rows, block_signs, *contact_frame))
    return Jacobian(tuple(blocks), group.blocks, system.topology.size("nv"))


def sparse_contact_jacobian(system: System, frame: Frames, contacts: Contacts, condim: int) -> SparseJacobian:
    """`contact_jacobian` in the program of one environment, of a group with a `Support`."""
    motion, support = _motion(system, frame), contacts.group.support
    assert support is not None
    signs = jnp.swapaxes(constants_of_contacts(contacts, support.signs.T, contacts.distance.dtype), 0, 1)
    dofs = jnp.swapaxes(constants_of_contacts(contacts, support.dofs.T, np.int32), 0, 1)

    def rows(signs, dofs, point, axes):
        return _block_jacobian(signs, *motion.of(dofs[..., 0]), point, axes, condim, (1,))

    return SparseJacobian(each_row(rows, signs, dofs, contacts.point, _axes(contacts)), dofs, system.topology.size("nv"))


@stage
def _regularization(
    distance, speculative, parameters: PairParameters, mobility, edge_mobility, impratio, dt, d: int, elliptic: bool, safe: bool,
    by_step: bool,
):  # fmt: skip
    """The numbers of contacts under MuJoCo's constraint model: stiffness and weights (see `Cones`), per row the damping b, the position
    term K r of the normal row (see `reference_law`), whether contacts are active, and the force of their adhesion. speculative: see
    `Contacts`.

    Adhesion moves the friction cone along the normal: a constant force pulls the bodies together, and the term R times this force in the
    normal row leaves the depth of contacts as it is. Contacts with adhesion are active as far as they are detected; from the margin on
    they have no friction. Source: MuJoCo 4.0's documentation, Computation, Adhesion."""
    pull, active = parameters.adhesion, distance < parameters.margin
    active = active if speculative is None else active | speculative
    afar = None if pull is None else ~active & (pull != 0) & (distance <= parameters.detection_distance)
    active = active if afar is None else active | afar
    residual = jnp.where(active, distance - parameters.margin, 0.0)
    friction, solref, friction_solref, solimp = (components(x) for x in parameters[:4])
    imp = impedance(residual, solimp)
    k, b, scale = reference_law(solref, solimp, imp, dt, safe, by_step)
    sliding = friction[0]
    mu = sliding / jnp.sqrt(impratio)
    A = mobility
    if d > 1 and not elliptic:
        A = mobility * (1.0 + sliding * sliding) if edge_mobility is None else edge_mobility
    A = A if afar is None else jnp.where(afar, mobility, A)
    R = R_normal = regularization(imp, A, scale)
    if d > 1:
        factor, edges = mu * mu * (1.0 if elliptic else 2.0), 1 if elliptic else 2 * (d - 1)
        R = R * (factor if afar is None else jnp.where(afar, edges, factor))
        R_normal = R_normal if elliptic else R / edges
    stiffness = jnp.where(active, 1.0 / jnp.maximum(MIN_VALUE, R), 0.0)
    damping = [b] * d
    if elliptic and d > 1:
        is_given = ((friction_solref[0] != 0) | (friction_solref[1] != 0)) & ~is_mixed(friction_solref)
        own = [jnp.where(is_given, x, y) for x, y in zip(friction_solref, solref, strict=True)]
        damping[1:] = [reference_law(own, solimp, imp, dt, safe, by_step, False, 0.0)[1]] * (d - 1)
    first = mu if elliptic and d > 1 else jnp.ones_like(mu)
    weights = [first, *friction[: d - 1]]
    position_term = k * residual
    if afar is not None:
        weights = [jnp.where(afar, 1.0, weights[0]), *(jnp.where(afar, 0.0, x) for x in weights[1:])]
        position_term, pull = position_term - R_normal * pull, jnp.where(active, pull, 0.0)
    return stiffness, weights, damping, jnp.where(active, position_term, 0.0), active, pull


def parameters_of_contacts(system: System, contacts: list[Contacts]) -> list[PairParameters]:
    """The pair parameters of each contact, one entry for each condim group."""
    return [
        jax.tree.map(lambda x, pair=group_contacts.pair: take_rows(x, pair), of_pairs)
        for group_contacts, of_pairs in zip(contacts, system.derived.contact_parameters.pairs, strict=True)
    ]


def contact_cones(system: System, frame: Frames, v, contacts: list[Contacts], at_state: RowMobility | None = None) -> tuple[Cones, ...]:
    """The constraint rows of all contacts that are not passive, one entry for each condim group. at_state: see `soft_rows`."""
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(x.shape for x in v if isinstance(x, jax.Array)))
    full, top, out = lanes or (1,), system.topology, []
    velocity = column(list(v))
    parts = zip(contacts, parameters_of_contacts(system, contacts), system.derived.contact_parameters.mobility, strict=True)
    for group_contacts, parameters, mobility in parts:
        if group_contacts.group.passive:
            continue
        d = group_contacts.group.condim
        if in_one_environment() and at_state is None and group_contacts.group.support is not None:
            J = sparse_contact_jacobian(system, frame, group_contacts, d)
        else:
            J = contact_jacobian(system, frame, group_contacts, full, d)
        mobilities = _mobility(group_contacts, mobility), None
        if at_state is not None:
            mobilities = _mobilities(at_state, J.dense(), parameters, mobilities[0], d > 1 and top.cone != "elliptic")
        by_step = at_state is not None and at_state.by_step
        out.append(cones_of(system, frame, group_contacts, parameters, mobilities, J, J.j_times(velocity), full, by_step))
    return tuple(out)


def cones_of(
    system: System, frame: Frames, contacts: Contacts, parameters: PairParameters, mobilities: tuple, J, rates, lanes, by_step: bool = False
) -> Cones:
    """The cones of contacts. parameters: of each contact. mobilities: see `_mobilities`. rates: J v (contacts, condim, lanes). by_step: see
    `softness.reference_law`."""
    top, n = system.topology, len(contacts.distance)
    elliptic = top.cone == "elliptic"
    options = contacts.group.condim, elliptic, "refsafe" not in top.disabled, by_step

    def numbers(distance, speculative, parameters, mobilities):
        return _regularization(distance, speculative, parameters, *mobilities, system.cone.impratio[0], system.option.dt, *options)

    of_contacts = _acting_distance(contacts), contacts.speculative, parameters, mobilities
    stiffness, weights, damping, position_term, active, pull = each_row(numbers, *of_contacts)
    offset = _offset(rates + surface_velocities(system, frame, contacts), active, damping, position_term)
    weight = jnp.stack([jnp.broadcast_to(x, (n, *lanes)) for x in weights], 1)
    pull = None if pull is None else jnp.broadcast_to(pull, (n, *lanes))
    return Cones(elliptic, J, offset, jnp.broadcast_to(stiffness, (n, *lanes)), weight, pull)


def _acting_distance(contacts: Contacts):
    """The distance of contacts, far for those of pairs that no dof moves, as two geoms of one body: these have no rows."""
    signs = contacts.group.dof_sign
    moves = None if signs is None else signs.any(1)
    if moves is None or moves.all():
        return contacts.distance
    return jnp.where(constants_of_contacts(contacts, moves[None], contacts.distance.dtype)[0] > 0, contacts.distance, FAR)


def _mobilities(at_state: RowMobility, J, parameters: PairParameters, reference, pyramid: bool) -> tuple:
    """The mobilities of the normal rows, and of the first edges of pyramids, None without. J (contacts, condim, nv, lanes). reference:
    those of the normal rows in the reference configuration."""
    edge, sliding = None, parameters.friction[:, :1]
    if pyramid:
        edge = at_state.of_rows(J[:, 0] + sliding * J[:, 1], reference * (1.0 + sliding[:, 0] ** 2))
    return at_state.of_rows(J[:, 0], reference), edge


@stage
def _offset(velocity, active, damping, position_term):
    """-aref = b J v + k d r (contacts, condim, lanes). Only the normal row has the position term."""
    rows = [add(mul(b, velocity[:, k]), position_term if k == 0 else 0.0) for k, b in enumerate(damping)]
    return jnp.stack([jnp.where(active, row, 0.0) for row in rows], 1)


# ---- wrenches on bodies -------------------------------------------------------------------------------------------------------


def contact_forces(contacts: list[Contacts], cones: tuple[Cones | NoSlipCones, ...], a) -> list:
    """The forces (contacts, condim, lanes) in the contact frames at an acceleration, that of adhesion included, one entry for each condim
    group. As in MuJoCo those of passive contacts are zero: they count as passive forces. Zero, too, if nothing can move."""
    if not a:
        return [jnp.zeros_like(x.distance)[:, None] for x in contacts]
    a = jnp.stack(list(a))
    a = a[:, None] if a.ndim == 1 else a
    forces = [cone.force(cone.j_times(a) + cone.offset) for cone in cones]
    forces = [f if cone.pull is None else f.at[:, 0].add(-cone.pull) for cone, f in zip(cones, forces, strict=True)]
    return forces + [jnp.zeros_like(x.distance)[:, None] for x in contacts if x.group.passive]


def contact_velocities(system: System, frame: Frames, v, contacts: list[Contacts]) -> list:
    """The velocities (contacts, 6, lanes) of the second geoms relative to the first at the contact points, linear, then angular, in the
    contact frames, one entry for each condim group."""
    velocity = column(list(v))
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), velocity.shape[1:])
    return [contact_jacobian(system, frame, group_contacts, lanes, 6).j_times(velocity) for group_contacts in contacts]


def world_wrench(contacts: Contacts, force) -> tuple:
    """The force on the second geom at the contact point and the moment about it, world axes, components (contacts, lanes). force: in the
    contact frame (contacts, condim, lanes)."""
    axes = (contacts.normal, *contacts.tangents)
    parts = [force[:, k] for k in range(force.shape[1])]
    return _combination(axes, parts[:3]), _combination(axes, parts[3:])


def _combination(axes, coefficients):
    out = (jnp.zeros_like(axes[0][0]),) * 3
    for axis, x in zip(axes, coefficients, strict=False):
        out = vadd(out, scale(axis, x))
    return out


def body_wrenches(system: System, contacts: list[Contacts], forces: list) -> list[tuple]:
    """For each body, the force of all contacts on it and its moment about the world's origin, world axes: (force, moment), components
    (lanes,), with one lane if there is no batch. forces: see `contact_forces`."""
    count, total = len(system.topology.bodies), None
    for group_contacts, contact_force in zip(contacts, forces, strict=True):
        force, moment = world_wrench(group_contacts, contact_force)
        moment = vadd(moment, cross(group_contacts.point, force))
        sign = _body_signs(group_contacts, system.topology, force[0].dtype)
        sums = [tree_sum([s * x for s, x in zip(jnp.swapaxes(sign, 0, 1), part, strict=True)]) for part in (*force, *moment)]
        total = sums if total is None else [a + b for a, b in zip(total, sums, strict=True)]
    assert total is not None
    return [(tuple(total[k][i] for k in range(3)), tuple(total[3 + k][i] for k in range(3))) for i in range(count)]


def _body_signs(contacts: Contacts, topology: Topology, dtype):
    """(bodies, contacts, lanes or 1): 1 for the body of the second geom, -1 for that of the first. A part of a flex spreads its sign over
    the bodies of its corners, by their weights."""
    count = len(topology.bodies)
    if contacts.group.flex_bodies is not None:
        return _corner_difference(contacts, np.eye(count, count + 1), dtype)
    table = np.zeros((count + 1, len(contacts.group.geoms)), np.int8)
    for i, (first, second) in enumerate(contacts.group.bodies.tolist()):
        table[first, i] -= 1
        table[second, i] += 1
    return constants_of_contacts(contacts, table[:-1], dtype)


def contact_geoms(contacts: Contacts):
    """Indices of the two geoms of each contact, or of parts of flexes, numbered after the geoms: (2, contacts, lanes or 1)."""
    return constants_of_contacts(contacts, contacts.group.geoms.T, jnp.int32)


def adhesion_row(system: System, frame: Frames, body: int) -> list:
    """The Jacobian row [(dof, coefficient), ...] of an adhesion actuator on a body: minus the mean rate of the distances of the body's
    contacts, including those that are detected but not active."""
    if system.derived.contact_parameters is None:
        return []
    lanes = lanes_of(system, frame)
    total, count = 0.0, 0.0
    contacts = detect_contacts(system, frame).contacts
    for group_contacts, parameters in zip(contacts, parameters_of_contacts(system, contacts), strict=True):
        has_body = (group_contacts.group.bodies == body).any(1) & (group_contacts.group.bodies != NO_BODY).all(1)
        of_body = constants_of_contacts(group_contacts, has_body[None], group_contacts.distance.dtype)[0]
        counted = of_body * (group_contacts.distance < parameters.detection_distance)
        rates = contact_jacobian(system, frame, group_contacts, lanes or (1,), 1).dense()[:, 0]
        total, count = total + pairwise_sum(counted[:, None] * rates), count + pairwise_sum(counted)
    row = -total / jnp.maximum(count, 1.0)
    return [(i, x if lanes else x[0]) for i, x in enumerate(row)]
