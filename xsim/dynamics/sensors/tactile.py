"""Tactile sensors: how deep the points of a pad are inside of the geoms that touch its body, and how fast these slide along it.

Sources: MuJoCo's documentation, XML reference, sensor/tactile. That the velocities are those at the points, and the distance inside boxes
(`xsim.dynamics.collide.sdf.RADIAL_BOX`), reproduce the numbers of MuJoCo 4.0.0. Geoms count which have a contact, also in the gap, with
what is welded to the body of the pad; meshes, height fields and flexes do not.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.sdf import RADIAL_BOX, SIMPLE
from xsim.dynamics.constraints.contact_plan import NO_BODY
from xsim.dynamics.constraints.contact_rows import constants_of_contacts
from xsim.dynamics.sensors.sdf_rays import distance_fields, distance_in
from xsim.dynamics.sensors.touch_grid import welded_to
from xsim.spatial import Component, Vector, apply, apply_inverse, dot, vadd, vsub


def tactile(context, info) -> tuple:
    """The depths of all points, then the speeds along their first and along their second tangents; zero without tangents."""
    frame, pad = context.frame_of(info.object), info.pad
    points = vadd(frame.pos, _in_world(context, frame, pad.points.value))
    tangents = [] if pad.tangents is None else [_in_world(context, frame, pad.tangents.value[:, k]) for k in (0, 1)]
    shape = (len(pad.points.value), *context.lanes)
    depth, speeds = jnp.zeros(shape), [jnp.zeros(shape)] * 2
    own = context.frame_velocity(frame._replace(pos=points))[0]
    for geom, touches in _touching(context, frame.body):
        other = context.frame_of(("geom", geom))
        inside = jnp.where(touches, jnp.maximum(-_distance(context, geom, apply_inverse(other.R, vsub(points, other.pos))), 0.0), 0.0)
        depth = jnp.maximum(depth, inside)
        sliding = vsub(own, context.frame_velocity(other._replace(pos=points))[0])
        for k, tangent in enumerate(tangents):
            speeds[k] = speeds[k] + jnp.where(inside > 0, jnp.abs(dot(sliding, tangent)), 0.0)
    return tuple(x for values in (depth, *speeds) for x in jnp.broadcast_to(values, shape))


def _in_world(context, frame, vectors: np.ndarray) -> Vector:
    """Constant vectors (n, 3) of the frame in world axes, components (n, lanes)."""
    return apply(frame.R, tuple(jnp.asarray(x.reshape(-1, *[1] * len(context.lanes))) for x in vectors.T))


def _touching(context, body: int) -> Iterator[tuple[int, Component]]:
    """The geoms that can be in contact with what is welded to a body, and whether they are, (lanes)."""
    top, first, found = context.system.topology, 0, {}
    own = welded_to(top, body)
    for contacts in context.contacts:
        bodies, geoms, count = contacts.group.bodies, contacts.group.geoms, len(contacts.distance)
        detected = context.detected_contacts[first : first + count]
        first += count
        is_own = np.array([[b != NO_BODY and welded_to(top, b) == own for b in pair] for pair in bodies.tolist()], bool).reshape(-1, 2)
        other = np.where(is_own[:, 0], geoms[:, 1], geoms[:, 0])
        other = np.where((is_own.sum(1) == 1) & (bodies != NO_BODY).all(1), other, -1)
        for geom in np.unique(other[other >= 0]).tolist():
            is_its = constants_of_contacts(contacts, (other == geom)[None].astype(float), contacts.distance.dtype)[0] > 0
            touches = (detected & is_its).any(0)
            found[geom] = found[geom] | touches if geom in found else touches
    for geom, touches in sorted(found.items()):
        if top.geoms[geom].shape in (*SIMPLE, "plane", "sdf"):
            yield geom, touches if context.lanes else touches[0]


def _distance(context, geom: int, p: Vector) -> Component:
    """The signed distances of points in the frame of a geom from its surface, m."""
    info, leaves = context.system.topology.geoms[geom], context.system.geom
    if info.shape == "plane":
        return p[2]
    if info.shape == "sdf":
        return distance_in(distance_fields(context.system)[info.asset], p)
    shape = RADIAL_BOX if info.shape == "box" else SIMPLE[info.shape]
    return shape.distance(p, leaves.size[info.row])
