"""The plugin ``mujoco.sensor.touch_grid`` of MuJoCo: forces of contacts, summed over the cells of a grid of directions.

Source: MuJoCo's plugin/sensor/README.md. The grid is seen from a site along its -z axis. Columns are intervals of the azimuth, which grows
towards x, rows of the elevation, which grows towards y. gamma makes the inner cells finer.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.contact_plan import NO_BODY
from xsim.dynamics.constraints.contact_rows import constants_of_contacts, world_wrench
from xsim.dynamics.constraints.narrowphase import Contacts
from xsim.model.topology import Topology
from xsim.registry import ConfigKey
from xsim.spatial import apply_inverse, vsub

CONFIG = {
    "nchannel": ConfigKey((1.0,), (0.0,), (6.0,), integers=True),
    "size": ConfigKey(None, (1.0, 1.0), (1000.0, 1000.0), integers=True),
    "fov": ConfigKey(None, (0.0, 0.0), (180.0, 90.0), above=True),
    "gamma": ConfigKey((0.0,), (0.0,), (1.0,)),
}
"""Numbers of channels, of columns and rows, half angles of the grid (degrees), and the share of the fifth power in the edges."""


def _channels(config: dict) -> int:
    return max(1, int(config["nchannel"]))


def width(config: dict) -> int:
    """Channels times rows times columns."""
    columns, rows = config["size"]
    return _channels(config) * int(columns) * int(rows)


def touch_grid(context, info) -> tuple:
    """The sums of force, then moment, along z, x and y of the site: channel by channel, row by row.

    They are those on the body of the site and what is welded to it (MuJoCo 3.2: see `Rules.touch_grid_by_number`)."""
    config = {name: values[0] if len(values) == 1 else values for name, values in info.config}
    frame, top = context.frame_of(info.object), context.system.topology
    columns, rows = (_edges(int(n), fov, config["gamma"]) for n, fov in zip(config["size"], config["fov"], strict=True))
    out: jax.Array | None = None
    for contacts, force in zip(context.contacts, context.contact_forces, strict=True):
        sign = constants_of_contacts(contacts, _signs(top, contacts, top.sites[info.object[1]].body)[None], force.dtype)[0]
        azimuth, elevation = _angles(apply_inverse(frame.R, vsub(contacts.point, frame.pos)))
        linear, angular = (apply_inverse(frame.R, x) for x in world_wrench(contacts, force))
        channels = [linear[2], *linear[:2], angular[2], *angular[:2]][: _channels(config)]
        values = jnp.stack(jnp.broadcast_arrays(*(sign * x for x in channels)))
        cells = (_inside(elevation, rows)[:, None] & _inside(azimuth, columns)[None]).astype(values.dtype)
        found = (values[:, None, None] * cells[None]).sum(3)
        out = found if out is None else out + found
    if out is None:
        return (0.0,) * info.dim
    return tuple(x if context.lanes else x[0] for x in out.reshape(info.dim, -1))


def _edges(count: int, fov: float, gamma: float) -> np.ndarray:
    """The edges of the cells along one direction, rad."""
    x = np.linspace(-1.0, 1.0, count + 1)
    return (gamma * x**5 + (1.0 - gamma) * x) * np.deg2rad(fov)


def _angles(point) -> tuple:
    """Azimuth and elevation of points in the site's frame, rad. They select cells and carry no derivatives."""
    x, y, z = (jax.lax.stop_gradient(p) for p in point)
    return jnp.arctan2(x, -z), jnp.arctan2(y, jnp.sqrt(x * x + z * z))


def _inside(angle, edges: np.ndarray):
    """Whether angles (contacts, lanes) are in the cells, which have their upper edges: (cells, contacts, lanes)."""
    edges = edges[:, None, None]
    return (angle > edges[:-1]) & (angle <= edges[1:])


def _signs(topology: Topology, contacts: Contacts, body: int) -> np.ndarray:
    """For each pair, the factor of the force on its second geom: 1 or -1, and 0 where nothing is welded to the site's body."""
    bodies, own = contacts.group.bodies, welded_to(topology, body)
    welded = np.array([[b if b == NO_BODY else welded_to(topology, b) for b in pair] for pair in bodies.tolist()], int).reshape(-1, 2)
    is_own = (welded == own) & (bodies != NO_BODY).all(1, keepdims=True)
    opposite = own < bodies.max(1, initial=-1) if topology.switches.touch_grid_by_number else is_own[:, 0]
    return np.where(is_own.any(1), np.where(opposite, -1.0, 1.0), 0.0)


def welded_to(topology: Topology, body: int) -> int:
    """The body that carries the joints by which a body moves, -1: the world."""
    while body >= 0 and not topology.bodies[body].v[1]:
        body = topology.bodies[body].parent
    return body
