"""The rows of contacts: Jacobians, cones and reference accelerations along the frame of each contact, and what contacts do to bodies."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.cones import Cones
from xsim.dynamics.constraints.contact_parameters import Numbers
from xsim.dynamics.constraints.contact_plan import NO_BODY
from xsim.dynamics.constraints.narrowphase import Contacts, columns, find_contacts, of_pair
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.soft_rows import TINY, impedance, reference
from xsim.dynamics.layout import column, picked
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian
from xsim.dynamics.tree.kinematics import Frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, cross, dot, mul, scale, stage, vadd

# ---- structure ----------------------------------------------------------------------------------------------------------------


# ---- what the leaves say ------------------------------------------------------------------------------------------------------


# ---- what the state says ------------------------------------------------------------------------------------------------------


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
            which = of_pair(flex_weights.bodies[:, side, k], found.pair)
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
            out = out + weight * picked(mobility, of_pair(found.of.flex_weights.bodies[:, side, k], found.pair))
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
    friction, solref, friction_solref, solimp = (columns(x) for x in numbers[:4])
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
        for own, of_pairs in zip(found, system.derived.contact_parameters.numbers, strict=True)
    ]


def contact_cones(system: System, frame: Frames, v, found: list[Contacts]) -> tuple[Cones, ...]:
    """The rows of all contacts, by class."""
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(x.shape for x in v if isinstance(x, jax.Array)))
    full, top, out = lanes or (1,), system.topology, []
    velocity = column(list(v))
    for own, of_each, moved in zip(found, contact_numbers(system, found), system.derived.contact_parameters.mobility, strict=True):
        d = own.of.condim
        stiffness, weights, damping, pull, there = _softness(
            own.distance, of_each, _mobility(own, moved), system.cone.impratio[0], system.option.dt, d, top.cone == "elliptic",
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
    if system.derived.contact_parameters is None:
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
