"""Touch sensors and distance sensors. Source: MuJoCo's documentation, XML reference, sensors touch, distance, normal, fromto."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide.dispatch import collide, collide_convex
from xsim.dynamics.collide.shapes import ContactPoint, Shape, broadcast_contact
from xsim.dynamics.constraints.contact_plan import asset_of, is_searched
from xsim.dynamics.constraints.contact_rows import constants_of_contacts
from xsim.dynamics.constraints.narrowphase import Contacts, search_surfaces
from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.sensors.rays import INF, SHAPES
from xsim.model.topology import COLLISION_SHAPES
from xsim.spatial import apply_inverse, neg, scale, vadd, vsub

RANK = {shape: i for i, shape in enumerate(COLLISION_SHAPES)}


def touch(context, info) -> tuple:
    """The sum of the normal forces of the contacts of the site's body. A contact counts if the ray from its point along its normal, towards
    the other body, hits the site's volume."""
    top = context.system.topology
    site, frame, out = top.sites[info.object[1]], context.frame_of(info.object), 0.0
    for contacts, force in zip(context.contacts, context.contact_forces, strict=True):
        normal_force = force[:, 0]
        counted = _hits_site(contacts, site, frame, _side(contacts, site.body, normal_force.dtype))
        out = out + pairwise_sum(jnp.where(counted & (normal_force > 0), normal_force, 0.0))
    if isinstance(out, float):
        return (out,)
    return (out if context.lanes else out[0],)


def _side(contacts: Contacts, body: int, dtype):
    """1 if the body is the first of a contact, -1 if it is the second, else 0: (contacts, lanes or 1)."""
    bodies = contacts.group.bodies
    sides = np.where(bodies[:, 0] == body, 1, np.where(bodies[:, 1] == body, -1, 0))
    return constants_of_contacts(contacts, sides[None], dtype)[0]


def _hits_site(contacts: Contacts, site, frame, side):
    """Whether a ray from each contact point along its normal, times ``side``, hits a site. False if ``side`` is 0."""
    direction = scale(contacts.normal, side)
    origin = apply_inverse(frame.R, vsub(contacts.point, frame.pos))
    size = tuple(jnp.asarray(x, contacts.distance.dtype) for x in site.size)
    t = SHAPES[site.shape](size, origin, apply_inverse(frame.R, direction), None)
    return (t < INF) & (side != 0)


def distance(context, info) -> tuple:
    """The distance between two geoms or bodies, at most the cutoff, m."""
    contact, _ = context.nearest(info)
    return (contact.distance,)


def normal(context, info) -> tuple:
    """The unit vector from the first surface to the second, world. Zero if the distance is larger than the cutoff."""
    contact, is_near = context.nearest(info)
    sign = jnp.where(is_near, jnp.where(contact.distance < 0, -1.0, 1.0), 0.0)
    return scale(contact.normal, sign)


def fromto(context, info) -> tuple:
    """The nearest points of the two surfaces, world, m. Zeros if the distance is larger than the cutoff."""
    contact, is_near = context.nearest(info)
    half = scale(contact.normal, 0.5 * contact.distance)
    return tuple(jnp.where(is_near, x, 0.0) for x in (*vsub(contact.point, half), *vadd(contact.point, half)))


def nearest(context, info) -> tuple[ContactPoint, object]:
    """The nearest points of two geoms, or of the nearest geoms of two bodies, and whether their distance is less than the cutoff."""
    top, best = context.system.topology, None
    for first in _geoms(top, info.object):
        for second in _geoms(top, info.reference):
            for contact in _contacts_of_geoms(context, first, second):
                best = contact if best is None else _nearer(best, contact)
    if best is None:
        best = ContactPoint(jnp.asarray(info.cutoff), (0.0,) * 3, (0.0,) * 3)
        return best, jnp.asarray(False)
    is_near = best.distance < info.cutoff
    return best._replace(distance=jnp.where(is_near, best.distance, info.cutoff)), is_near


def _nearer(a: ContactPoint, b: ContactPoint) -> ContactPoint:
    return jax.tree.map(lambda x, y: jnp.where(b.distance < a.distance, y, x), a, b)


def _geoms(topology, item) -> list[int]:
    """Indices of the geom, or of the body's geoms, whose shapes can collide. item: (kind, index)."""
    kind, number = item
    geoms = [number] if kind == "geom" else [i for i, g in enumerate(topology.geoms) if g.body == number]
    return [i for i in geoms if topology.geoms[i].shape in RANK and topology.geoms[i].row is not None]


def _contacts_of_geoms(context, first: int, second: int) -> list[ContactPoint]:
    """The contacts of two geoms. The normal points from the first to the second."""
    top = context.system.topology
    infos = [top.geoms[first], top.geoms[second]]
    swapped = RANK[infos[0].shape] > RANK[infos[1].shape]
    both = {info.shape for info in infos}
    if both <= {"plane", "hfield"} or both == {"hfield", "sdf"}:
        return []
    order = (second, first) if swapped else (first, second)
    shapes = []
    for number in order:
        frame, info = context.frame_of(("geom", number)), top.geoms[number]
        size = tuple(context.system.geom.size[info.row])
        numbers = [jnp.asarray(x) for x in (*size, *frame.pos, *(x for row in frame.R for x in row))]
        size, pos, R = numbers[:3], numbers[3:6], numbers[6:]
        shapes.append(Shape(tuple(size), tuple(pos), (tuple(R[:3]), tuple(R[3:6]), tuple(R[6:])), asset_of(top, info.shape, info.asset)))
    kinds = tuple(top.geoms[k].shape for k in order)
    # The closed form of two boxes gives contacts of boxes that are near. It does not give the distance of other boxes.
    if is_searched(kinds):
        contacts = [_deepest_found(context.system, kinds, tuple(top.geoms[k].asset for k in order), shapes)]
    elif kinds == ("box", "box"):
        contacts = [collide_convex([kinds], *(x._replace(data=[None]) for x in shapes))]
    else:
        contacts = collide(kinds, *shapes, jnp.asarray(INF), top.switches)
    return [t._replace(normal=tuple(neg(x) for x in t.normal)) for t in contacts] if swapped else contacts


def _deepest_found(system, kinds: tuple[str, str], assets: tuple, shapes: list[Shape]) -> ContactPoint:
    """The deepest contact of a shape and a signed distance function, at `FAR` if there is none: as in MuJoCo, nothing is known of the
    distance of surfaces that do not overlap."""
    lanes = jnp.broadcast_shapes(*map(jnp.shape, jax.tree.leaves([shape[:3] for shape in shapes])))
    pairs = [Shape(*jax.tree.map(lambda x: jnp.broadcast_to(x, lanes).reshape(1, -1), shape[:3])) for shape in shapes]
    contact, _ = search_surfaces(system, kinds, assets, (pairs[0], pairs[1]))
    contact = broadcast_contact(contact, contact.distance.shape)
    chosen = jnp.argmin(contact.distance, 0)[None]
    return jax.tree.map(lambda x: jnp.take_along_axis(x, chosen, 0).reshape(lanes), contact)
