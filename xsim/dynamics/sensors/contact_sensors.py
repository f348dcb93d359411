"""Sensors of contact and of distance. Source: MuJoCo's documentation, XML reference, sensor touch, distance, normal, fromto."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.dispatch import collide, collide_convex
from xsim.dynamics.collide.shapes import ContactPoint, Shape
from xsim.dynamics.constraints.contact_plan import asset_of
from xsim.dynamics.constraints.contact_rows import constants_of_contacts
from xsim.dynamics.constraints.narrowphase import Contacts
from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.sensors.rays import INF, SHAPES
from xsim.model.topology import COLLIDING
from xsim.spatial import apply_inverse, neg, scale, vadd, vsub

RANK = {shape: i for i, shape in enumerate(COLLIDING)}


def touch(f, info) -> tuple:
    """Sum of the normal forces of the contacts of the site's body whose normal, towards the other body, meets the site's volume."""
    top = f.system.topology
    site, spot, out = top.sites[info.object[1]], f.spot(info.object), 0.0
    for found, force in zip(f.contacts, f.contact_forces, strict=True):
        push = force[:, 0]
        met = _meets(found, site, spot, _side(found, site.body, push.dtype))
        out = out + pairwise_sum(jnp.where(met & (push > 0), push, 0.0))
    if isinstance(out, float):
        return (out,)
    return (out if f.lanes else out[0],)


def _side(found: Contacts, body: int, dtype):
    """1 where the body is the first of a contact, -1 where it is the second, else 0: (contacts, lanes or 1)."""
    owners = found.group.bodies
    sides = np.where(owners[:, 0] == body, 1, np.where(owners[:, 1] == body, -1, 0))
    return constants_of_contacts(found, sides[None], dtype)[0]


def _meets(found: Contacts, site, spot, side):
    """Whether a ray from each contact's point along its normal, times ``side``, meets a site (not where that is 0)."""
    direction = scale(found.normal, side)
    origin = apply_inverse(spot.R, vsub(found.point, spot.pos))
    size = tuple(jnp.asarray(x, found.distance.dtype) for x in site.size)
    t = SHAPES[site.shape](size, origin, apply_inverse(spot.R, direction), None)
    return (t < INF) & (side != 0)


def distance(f, info) -> tuple:
    nearest, _ = f.nearest(info)
    return (nearest.distance,)


def normal(f, info) -> tuple:
    """Direction from the first surface to the second, zero where they are farther apart than the cutoff."""
    nearest, there = f.nearest(info)
    way = jnp.where(there, jnp.where(nearest.distance < 0, -1.0, 1.0), 0.0)
    return scale(nearest.normal, way)


def fromto(f, info) -> tuple:
    """The nearest points of the two surfaces, zeros where they are farther apart than the cutoff."""
    nearest, there = f.nearest(info)
    half = scale(nearest.normal, 0.5 * nearest.distance)
    return tuple(jnp.where(there, x, 0.0) for x in (*vsub(nearest.point, half), *vadd(nearest.point, half)))


def nearest(f, info) -> tuple[ContactPoint, object]:
    """Where two geoms, or the nearest geoms of two bodies, are nearest; whether they are nearer than the cutoff."""
    top, best = f.system.topology, None
    for one in _geoms(top, info.object):
        for two in _geoms(top, info.reference):
            for found in _between(f, one, two):
                best = found if best is None else _nearer(best, found)
    if best is None:
        best = ContactPoint(jnp.asarray(info.cutoff), (0.0,) * 3, (0.0,) * 3)
        return best, jnp.asarray(False)
    there = best.distance < info.cutoff
    return best._replace(distance=jnp.where(there, best.distance, info.cutoff)), there


def _nearer(a: ContactPoint, b: ContactPoint) -> ContactPoint:
    return jax.tree.map(lambda x, y: jnp.where(b.distance < a.distance, y, x), a, b)


def _geoms(topology, item) -> list[int]:
    """The geom, or the geoms of the body, that collide."""
    kind, number = item
    own = [number] if kind == "geom" else [i for i, g in enumerate(topology.geoms) if g.body == number]
    return [i for i in own if topology.geoms[i].shape in RANK and topology.geoms[i].row is not None]


def _between(f, one: int, two: int) -> list[ContactPoint]:
    """Contacts of two geoms, the normal from the first to the second."""
    top = f.system.topology
    infos = [top.geoms[one], top.geoms[two]]
    swapped = RANK[infos[0].shape] > RANK[infos[1].shape]
    if infos[0].shape in ("plane", "hfield") and infos[1].shape in ("plane", "hfield"):
        return []
    order = (two, one) if swapped else (one, two)
    shapes = []
    for number in order:
        spot, info = f.spot(("geom", number)), top.geoms[number]
        size = tuple(f.system.geom.size[info.row])
        whole = [jnp.asarray(x) for x in (*size, *spot.pos, *(x for row in spot.R for x in row))]
        size, pos, R = whole[:3], whole[3:6], whole[6:]
        shapes.append(Shape(tuple(size), tuple(pos), (tuple(R[:3]), tuple(R[3:6]), tuple(R[6:])), asset_of(top, info.shape, info.asset)))
    first, second = (top.geoms[k].shape for k in order)
    # The closed form of boxes finds contacts of boxes that are near, not how far others are apart.
    if first == second == "box":
        found = [collide_convex([(first, second)], *(x._replace(data=[None]) for x in shapes))]
    else:
        found = collide((first, second), *shapes, jnp.asarray(INF), top.switches)
    return [t._replace(normal=tuple(neg(x) for x in t.normal)) for t in found] if swapped else found
