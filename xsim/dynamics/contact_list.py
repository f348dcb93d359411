"""The contacts of a state as arrays."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.call import Call, query
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_forces, contact_geoms, parameters_of_contacts
from xsim.dynamics.constraints.narrowphase import detect_contacts
from xsim.dynamics.constraints.soft_set import with_cones
from xsim.dynamics.forward import soft_constraints, total_acceleration
from xsim.dynamics.tree.kinematics import frames
from xsim.model.model import Model, State

__all__ = ["ContactData", "contacts"]


class ContactData(NamedTuple):
    """Contacts of each environment. n is the size of the contact buffer.

    * active (*batch, n): whether the distance is below the margin, or the contact is speculative. Others are no contacts.
    * geoms (*batch, n, 2): indices in ``topology.geoms``, -1 for none.
    * parts (*batch, n, 2): indices in ``topology.parts`` for parts of flexes, -1 for geoms.
    * distance (*batch, n): m, negative for penetration. Where there is no contact it need not be that of two geoms: 1e10 for pairs that
      the broad phase leaves out.
    * point (*batch, n, 3): midpoint between the surfaces, world, m.
    * frame (*batch, n, 3, 3): rows are the normal (from the first geom to the second) and two tangents, world axes.
    * friction (*batch, n, 5): two sliding, torsional (m), two rolling (m).
    * force (*batch, n, 6): force on the second geom along the rows of the frame (N), then the moment about them (N m); 0 for
      passive contacts of flexes.
    """

    active: jax.Array
    geoms: jax.Array
    parts: jax.Array
    distance: jax.Array
    point: jax.Array
    frame: jax.Array
    friction: jax.Array
    force: jax.Array


@query
def contacts(model: Model, state: State, ctrl=None, tau=None) -> ContactData:
    """All contacts of a state, with their forces in the motion of `forward_dynamics`.

    ctrl: (*batch, nu) controls. tau: (*batch, nv) generalized forces, N or N m. Raises ValueError for a wrong width.
    """
    c = Call.of_state(model, state, ctrl, tau)
    batch = c.lanes.batch
    if not has_contacts(model.topology):
        shapes = {"active": (), "geoms": (2,), "parts": (2,), "distance": ()}
        shapes |= {"point": (3,), "frame": (3, 3), "friction": (5,), "force": (6,)}
        types = {"active": bool, "geoms": jnp.int32, "parts": jnp.int32}
        return ContactData(**{name: jnp.zeros((*batch, 0, *shape), types.get(name, c.dtype)) for name, shape in shapes.items()})
    frame = frames(c.system, c.q)
    detection = detect_contacts(c.system, frame, c.v)
    groups, soft = detection.contacts, soft_constraints(c, detection)
    solved = total_acceleration(c, soft)
    cones = () if soft is None else with_cones(c.system, frame, c.v, solved.soft or soft, groups).cones
    forces = contact_forces(groups, cones, solved.explicit_a)
    out = [_contact_data(c, *group) for group in zip(groups, parameters_of_contacts(c.system, groups), forces, strict=True)]
    return jax.tree.map(lambda *xs: jnp.concatenate(xs, len(batch)), *out)


def _contact_data(c: Call, group, numbers, force) -> ContactData:
    """The contacts of one condim. group: `Contacts`."""
    count = len(group.distance)

    def batched(components, *shape: int):
        """Components (n, lanes or 1) as an array (*batch, n, *shape)."""
        x = jnp.stack([jnp.broadcast_to(y, (count, *group.distance.shape[1:])) for y in components])
        x = jnp.moveaxis(x.reshape(*shape, *x.shape[1:]), (-1, -2), (0, 1))
        size = math.prod(c.lanes.batch)
        return jnp.broadcast_to(x, (max(len(x), size), *x.shape[1:]))[:size].reshape(*c.lanes.batch, *x.shape[1:])

    active = group.is_nearer(numbers.margin)
    if numbers.adhesion is not None:
        active = active | (numbers.adhesion != 0) & (group.distance <= numbers.detection_distance)
    index, first_part = contact_geoms(group), len(c.model.topology.geoms)
    geoms = jnp.where(active[None] & (index < first_part), index, -1)
    parts = jnp.where(active[None] & (index >= first_part), index - first_part, -1)
    forces = [force[:, k] for k in range(force.shape[1])]
    zero = jnp.zeros_like(forces[0])
    axes = [x for axis in (group.normal, *group.tangents) for x in axis]
    return ContactData(
        batched([active]), batched(list(geoms), 2), batched(list(parts), 2), batched([group.distance]), batched(group.point, 3),
        batched(axes, 3, 3), batched(list(jnp.swapaxes(numbers.friction, 0, 1)), 5), batched([*forces, *[zero] * (6 - len(forces))], 6),
    )  # fmt: skip
