"""The contacts of a state, for users."""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.call import Call, compiled
from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.contact_rows import contact_forces, contact_geoms, parameters_of_contacts
from xsim.dynamics.constraints.narrowphase import find_contacts
from xsim.dynamics.constraints.soft_set import constraints
from xsim.dynamics.forward import total_acceleration
from xsim.dynamics.tree.kinematics import frames
from xsim.model.model import Model, State

__all__ = ["ContactData", "contacts"]


class ContactData(NamedTuple):
    """Contacts, n for each environment: as many as the buffer holds; those that are not active are marked so by ``active``.

    active (*batch, n): whether the geoms are nearer than the margin. geoms (*batch, n, 2): numbers in ``topology.geoms``, -1 for none.
    parts (*batch, n, 2): numbers in ``topology.parts`` where a part of a flex is in the place of a geom, else -1.
    distance (*batch, n): m, negative where they overlap. point (*batch, n, 3): in the middle between the surfaces, world, m.
    frame (*batch, n, 3, 3): rows normal (from the first geom to the second), two tangents, world axes. friction (*batch, n, 5): two
    sliding, torsional (m), two rolling (m). force (*batch, n, 6): on the second geom along the rows of the frame, N, then the moment
    about them, N m.
    """

    active: jax.Array
    geoms: jax.Array
    parts: jax.Array
    distance: jax.Array
    point: jax.Array
    frame: jax.Array
    friction: jax.Array
    force: jax.Array


@compiled
def contacts(model: Model, state: State, ctrl=None, tau=None) -> ContactData:
    """All contacts of a state, with their forces in the motion of `forward_dynamics`."""
    c = Call.of_state(model, state, ctrl, tau)
    batch = c.lanes.batch
    if not has_contacts(model.topology):
        shapes = {"active": (), "geoms": (2,), "parts": (2,), "distance": ()}
        shapes |= {"point": (3,), "frame": (3, 3), "friction": (5,), "force": (6,)}
        types = {"active": bool, "geoms": jnp.int32, "parts": jnp.int32}
        return ContactData(**{name: jnp.zeros((*batch, 0, *shape), types.get(name, c.dtype)) for name, shape in shapes.items()})
    found = find_contacts(c.system, frames(c.system, c.q))
    kept = constraints(c.system, c.q, c.v, found)
    assert kept is not None
    solved = total_acceleration(c, kept)
    forces = contact_forces((solved.soft or kept).cones, solved.explicit_a)
    out = [_read(c, *one) for one in zip(found, parameters_of_contacts(c.system, found), forces, strict=True)]
    return jax.tree.map(lambda *xs: jnp.concatenate(xs, len(batch)), *out)


def _read(c: Call, found, numbers, force) -> ContactData:
    count = len(found.distance)

    def batched(components, *shape: int):
        """(n, lanes or 1) each as (*batch, n, *shape)."""
        x = jnp.stack([jnp.broadcast_to(y, (count, *found.distance.shape[1:])) for y in components])
        x = jnp.moveaxis(x.reshape(*shape, *x.shape[1:]), (-1, -2), (0, 1))
        size = math.prod(c.lanes.batch)
        return jnp.broadcast_to(x, (max(len(x), size), *x.shape[1:]))[:size].reshape(*c.lanes.batch, *x.shape[1:])

    active = found.distance < numbers.margin
    things, first = contact_geoms(found), len(c.model.topology.geoms)
    geoms = jnp.where(active[None] & (things < first), things, -1)
    flexed = jnp.where(active[None] & (things >= first), things - first, -1)
    parts = [force[:, k] for k in range(force.shape[1])]
    zero = jnp.zeros_like(parts[0])
    axes = [x for axis in (found.normal, *found.tangents) for x in axis]
    return ContactData(
        batched([active]), batched(list(geoms), 2), batched(list(flexed), 2), batched([found.distance]), batched(found.point, 3),
        batched(axes, 3, 3), batched(list(jnp.swapaxes(numbers.friction, 0, 1)), 5), batched([*parts, *[zero] * (6 - len(parts))], 6),
    )  # fmt: skip
