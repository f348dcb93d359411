"""Surfaces of geoms that move on their bodies: conveyor belts, treadmills. Source: MuJoCo's documentation, attribute surfacevel.

In the frame of the geom the surface has the velocity v and the angular velocity w. Its velocity at a point is that of the body plus
v + w x r, with r from the origin of the geom to the point. Friction acts on the relative velocity of the two surfaces.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.narrowphase import Contacts, of_contacts
from xsim.dynamics.layout import column, take_rows
from xsim.dynamics.tree.frames import End, geom_end
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import apply, cross, dot, stage, vadd, vsub


def surface_velocities(system: System, frame: Frames, contacts: Contacts):
    """The velocity of the second surface relative to the first, both relative to their bodies, in the rows of the contacts (contacts,
    condim, lanes). 0.0 if no surface of the group moves. The normal and the rolling rows are zero."""
    geoms, condim = contacts.group.geoms, contacts.group.condim
    infos = system.topology.geoms
    moving = [g for g in np.unique(geoms).tolist() if g < len(infos) and infos[g].surface_velocity is not None]
    if not moving or condim == 1:
        return 0.0
    twists = [_twist(geom_end(system, frame, g), system.geom.surface_velocity[infos[g].surface_velocity]) for g in moving]
    of_geoms = [column([0.0, *components]) for components in zip(*twists, strict=True)]
    row_of = np.zeros(geoms.max() + 1, int)
    row_of[moving] = np.arange(1, len(moving) + 1)
    rows = [of_contacts(row_of[geoms[:, side]], contacts.pair) for side in (0, 1)]
    first, second = ([take_rows(x, index) for x in of_geoms] for index in rows)
    difference = [b - a for a, b in zip(first, second, strict=True)]
    return _rows(contacts, tuple(difference[:3]), tuple(difference[3:]), condim)


@stage
def _twist(geom: End, velocity) -> tuple:
    """The velocity at the origin of the world of the rigid motion that a surface has, and its angular velocity, world axes."""
    linear, angular = apply(geom.R, velocity[:3]), apply(geom.R, velocity[3:])
    return (*vsub(linear, cross(angular, geom.world)), *angular)


def _rows(contacts: Contacts, linear, angular, condim: int):
    """linear: the relative velocity at the origin of the world. angular: the relative angular velocity. World axes."""
    velocity = vadd(linear, cross(angular, contacts.point))
    zero = jnp.zeros_like(contacts.distance)
    rows = [zero, *(dot(axis, velocity) for axis in contacts.tangents)]
    if condim > 3:
        rows.append(dot(contacts.normal, angular))
    rows += [zero] * (condim - len(rows))
    return jnp.stack([jnp.broadcast_to(x, zero.shape) for x in rows], 1)
