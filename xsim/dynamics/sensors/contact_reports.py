"""The contact sensor: contacts that match, reduced to a fixed number of slots. Source: MuJoCo's documentation, XML reference, contact.

Arrays are (contacts or slots, width, lanes or 1). Contacts are those that are detected, in the gap too, where they have no force. They are
in MuJoCo's order: by bodies, for the same bodies first pairs of the file, then pairs by their geoms, contacts with flexes last. The order
of several contacts of one pair is that of the collision function, which is not always MuJoCo's.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.contact_plan import NO_BODY, contact_plan
from xsim.dynamics.constraints.contact_rows import constants_of_contacts, contact_velocities, parameters_of_contacts
from xsim.dynamics.constraints.narrowphase import of_contacts
from xsim.dynamics.layout import concatenated, take_rows
from xsim.dynamics.sensors.site_volumes import site_contains
from xsim.dynamics.tree.subtree import subtree_sums
from xsim.dynamics.tree.system import System
from xsim.model.topology import CONTACT_FIELDS, Topology
from xsim.spatial import cross, safe_norm, scale, vadd, vsub


class Matches(NamedTuple):
    """Contacts that can match a sensor, n of them.

    rows: their indices among all contacts, a fixed list (n,) or an array (n, lanes).
    match (n, lanes): whether they do.
    sign (n, lanes or 1): -1 where the sensor's normal is opposite to that of the contact, else 1.
    """

    rows: object
    match: jax.Array
    sign: jax.Array


def contact(context, info) -> tuple:
    """The fields ``info.data`` of the matching contacts, slot by slot. Slots without a contact are zero."""
    if not context.contacts:
        return (0.0,) * info.dim
    width = sum(CONTACT_FIELDS[name] for name in info.data)
    slots = info.dim // width
    matches = _matches(context, info)
    count = matches.match.sum(0)
    reduced = _net_contact(context, matches) if info.reduce == "netforce" else _first(context, info, matches, slots)
    used = min(slots, *(len(x) for x in reduced.values()))
    is_filled = (np.arange(used)[:, None] < count)[:, None]
    reduced["found"] = jnp.broadcast_to(count.astype(context.contacts[0].distance.dtype), (used, 1, len(count)))
    parts = [jnp.where(is_filled, reduced[name][:used], 0.0) for name in info.data]
    out = [part[i, j] for i in range(used) for part in parts for j in range(part.shape[1])]
    return (*(x if context.lanes else x[0] for x in out), *[0.0] * (info.dim - used * width))


# ---- all contacts ------------------------------------------------------------------------------------------------------------


def contact_field(context, name: str):
    """A field of all contacts, of one condim group after the other, in the contact frames: (contacts, width, lanes)."""
    groups = context.contacts
    if name in ("force", "torque"):
        forces = [jnp.pad(force, ((0, 0), (0, 6 - force.shape[1]), (0, 0))) for force in context.contact_forces]
        return concatenated([force[:, :3] if name == "force" else force[:, 3:] for force in forces])
    if name in ("linvel", "angvel"):
        velocities = contact_velocities(context.system, context.frame, context.v, groups)
        return concatenated([velocity[:, :3] if name == "linvel" else velocity[:, 3:] for velocity in velocities])
    read = {"dist": lambda c: (c.distance,), "pos": lambda c: c.point, "normal": lambda c: c.normal, "tangent": lambda c: c.tangents[0]}
    return concatenated([jnp.stack(read[name](group), 1) for group in groups])


def detected_contacts(context):
    """Whether the entries of the buffers are contacts: (contacts, lanes)."""
    parameters = parameters_of_contacts(context.system, context.contacts)
    near = [c.distance <= p.detection_distance for c, p in zip(context.contacts, parameters, strict=True)]
    return concatenated([x if c.speculative is None else x | c.speculative for x, c in zip(near, context.contacts, strict=True)])


@functools.lru_cache(maxsize=64)
def _ranks(topology: Topology) -> list[np.ndarray]:
    """The rank of each pair in MuJoCo's order, by condim group."""
    keys = []
    for group in contact_plan(topology).condim_groups:
        mixed = np.concatenate([np.full(len(info.geoms.value), info.mixed) for info in group.infos])
        given = np.concatenate([np.full(len(i.geoms.value), -1) if i.mixed else i.leaf_rows.value for i in group.infos])
        geoms = np.where(mixed[:, None], np.sort(group.geoms, 1), np.stack([given, given], 1))
        has_flex = (group.bodies == NO_BODY).any(1)
        keys.append(np.column_stack([geoms[:, ::-1], mixed, np.sort(group.bodies, 1)[:, ::-1], has_flex]))  # the last counts most
    order = np.lexsort(np.concatenate(keys).T)
    ranks = np.empty(len(order), int)
    ranks[order] = np.arange(len(order))
    return np.split(ranks, np.cumsum([len(key) for key in keys])[:-1])


# ---- matching ----------------------------------------------------------------------------------------------------------------


def _matches(context, info) -> Matches:
    top, groups = context.system.topology, context.contacts
    sides = [_sides(context.system, info, group) for group in groups]
    ranks = [of_contacts(ranks, group.pair) for ranks, group in zip(_ranks(top), groups, strict=True)]
    dtype = groups[0].distance.dtype
    signs = concatenated([constants_of_contacts(group, sign[None], dtype)[0] for group, sign in zip(groups, sides, strict=True)])
    if all(isinstance(rank, np.ndarray) for rank in ranks):
        rows = np.argsort(np.concatenate(ranks), kind="stable")
        possible = np.concatenate([of_contacts(sign, group.pair) for group, sign in zip(groups, sides, strict=True)]) != 0
        rows = rows[possible[rows]]
    else:
        ranks = concatenated([jnp.asarray(rank, dtype)[:, None] if isinstance(rank, np.ndarray) else rank.astype(dtype) for rank in ranks])
        rows = jax.lax.top_k(-ranks.T, len(ranks))[1].T
    match = context.detected_contacts & (signs != 0)
    if info.object is not None and info.object[0] == "site":
        pos = context.contact_field("pos")
        match = match & site_contains(context, info.object[1], tuple(pos[:, k] for k in range(3)))
    return Matches(rows, take_rows(match, rows), take_rows(signs, rows))


def _sides(system: System, info, contacts) -> np.ndarray:
    """For each pair of a condim group: 1 if its first geom is on the sensor's first object and its second on the second, -1 if only the
    reverse is so, else 0."""
    bodies, geoms = contacts.group.bodies, contacts.group.geoms
    first, second = (_is_on(system, item, bodies, geoms) for item in (info.object, info.reference))
    return np.where(first[:, 0] & second[:, 1], 1, np.where(first[:, 1] & second[:, 0], -1, 0))


def _is_on(system: System, item, bodies: np.ndarray, geoms: np.ndarray) -> np.ndarray:
    """Whether geoms (pairs, 2) are on an object. item: (kind, index); every geom is on None and on a site. A part of a flex is on no
    other object."""
    if item is None or item[0] == "site":
        return np.ones(geoms.shape, bool)
    kind, number = item
    if kind == "geom":
        return geoms == number
    if kind == "body":
        return bodies == number
    subtrees = subtree_sums(system, [{i} for i in range(len(system.topology.bodies))], set.union, {-1})
    return np.isin(bodies, list(subtrees[number]))


# ---- reduction ---------------------------------------------------------------------------------------------------------------

_FLIPS = {
    "force": (1, 1, -1), "torque": (1, 1, -1), "linvel": (1, 1, -1), "angvel": (1, 1, -1), "normal": (-1, -1, -1), "tangent": (-1, -1, -1),
}  # fmt: skip
"""Signs of a field where the contact is reversed. Normal and first tangent of its frame are then opposite, the second tangent is the same.
"""


def _oriented(context, matches: Matches, name: str):
    """A field of the contacts of ``matches``, in the direction of the sensor."""
    x = take_rows(context.contact_field(name), matches.rows)
    if name not in _FLIPS:
        return x
    flips = np.array(_FLIPS[name])[None, :, None]
    return x * jnp.where(matches.sign[:, None] < 0, flips, 1).astype(x.dtype)


def _first(context, info, matches: Matches, slots: int) -> dict:
    """The fields of the first contacts, at most ``slots`` of them: in MuJoCo's order, by distance or by force."""
    score = -jnp.arange(len(matches.match), dtype=matches.sign.dtype)[:, None]
    if info.reduce == "mindist":
        score = -_oriented(context, matches, "dist")[:, 0]
    elif info.reduce == "maxforce":
        score = safe_norm(tuple(jnp.moveaxis(_oriented(context, matches, "force"), 1, 0)))
    score = jax.lax.stop_gradient(jnp.where(matches.match, score, -jnp.inf))
    _, index = jax.lax.top_k(score.T, min(slots, len(score)))  # of equal ones the first
    names = [name for name in info.data if name != "found"]
    return {name: take_rows(_oriented(context, matches, name), index.T) for name in names or ["dist"]}


def _net_contact(context, matches: Matches) -> dict:
    """The fields of one contact that has the force and the moment of all, in the axes of the world. It is at their mean point, weighted by
    the magnitudes of their forces."""
    force, torque, point, normal, tangent = (
        tuple(jnp.moveaxis(jnp.where(matches.match[:, None], _oriented(context, matches, name), 0.0), 1, 0))
        for name in ("force", "torque", "pos", "normal", "tangent")
    )
    axes = (normal, tangent, cross(normal, tangent))
    weight = safe_norm(force)
    total = weight.sum(0)
    mean = tuple((weight * x).sum(0) / jnp.where(total > 0, total, 1.0) for x in point)
    force, torque = (functools.reduce(vadd, [scale(axis, x) for axis, x in zip(axes, v, strict=True)]) for v in (force, torque))
    torque = vadd(torque, cross(vsub(point, mean), force))
    one, zero = jnp.ones_like(total), jnp.zeros_like(total)
    fields = {
        "force": [x.sum(0) for x in force], "torque": [x.sum(0) for x in torque], "dist": [zero], "pos": mean,
        "normal": [one, zero, zero], "tangent": [zero, one, zero],
    }  # fmt: skip
    return {name: jnp.stack(list(x))[None] for name, x in fields.items()}
