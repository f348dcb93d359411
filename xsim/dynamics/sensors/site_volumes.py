"""The volumes of sites. Source: MuJoCo's documentation, XML reference, sensor insidesite.

How far a convex body juts out of a convex volume is the largest signed distance of its points from the volume's surface, positive outside.
This distance is a convex function, so its maximum over a body is at one of its extreme points. Of a ball it is that of the centre plus the
radius: the distance grows at the rate 1 along its gradient.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from xsim.model.topology import ENCLOSED
from xsim.spatial import add, apply, apply_inverse, dot, safe_norm, stage, vadd, vsub


def inside_site(context, info) -> tuple:
    """1 if the origin of a frame is inside the volume of a site, else 0. With ``data`` ENCLOSED: how far the object juts out of the site,
    m, and minus its distance to the surface if it is inside."""
    if info.data == ENCLOSED:
        return (_protrusion(context, info),)
    return (jnp.where(site_contains(context, info.reference[1], context.frame_of(info.object).pos), 1.0, 0.0),)


def site_contains(context, site: int, point):
    """Whether points are inside the volume of a site. Its surface is outside. point: world, m, components of any shape."""
    info, frame = context.system.topology.sites[site], context.frame_of(("site", site))
    p = apply_inverse(frame.R, vsub(point, frame.pos))
    return VOLUMES[info.shape](info.size, p) if info.planes is None else _below(info.planes.value, p)


def _protrusion(context, info):
    """The largest signed distance of the points of an object from the surface of a site."""
    number = info.reference[1]
    site, frame = context.system.topology.sites[number], context.frame_of(info.reference)
    values = []
    for item in _pieces(context.system.topology, info.object):
        shape, size, asset = _shape(context.system, item)
        piece = context.frame_of(item)
        points, radius = _extreme_points(context.system.topology, shape, size, asset)
        values.append(_largest_distance(site.shape, site.size, points, radius, (piece.pos, piece.R), (frame.pos, frame.R)))
    return jnp.max(jnp.stack(jnp.broadcast_arrays(*values)), 0)


def _pieces(topology, item: tuple) -> list[tuple]:
    """The geoms of a body, or (xbody) also those of its descendants; a geom or site itself."""
    kind, number = item
    if kind not in ("body", "xbody"):
        return [item]
    inside = {number}
    for body, info in enumerate(topology.bodies):
        if kind == "xbody" and info.parent in inside:
            inside.add(body)
    return [("geom", i) for i, geom in enumerate(topology.geoms) if geom.body in inside]


def _shape(system, item: tuple) -> tuple:
    """Shape, size and asset of a geom or site."""
    kind, number = item
    if kind == "site":
        site = system.topology.sites[number]
        return site.shape, site.size, None
    geom = system.topology.geoms[number]
    return geom.shape, geom.size if geom.row is None else system.geom.size[geom.row], geom.asset


def _extreme_points(topology, shape: str, size, asset) -> tuple:
    """Points of a shape, (components (n,) or (n, lanes)), and the radius of the balls around them whose hull it is."""
    if shape == "sphere":
        return [(0.0, 0.0, 0.0)], size[0]
    if shape == "capsule":
        return [(0.0, 0.0, sign * size[1]) for sign in (-1.0, 1.0)], size[0]
    if shape == "box":
        return [tuple(s * x for s, x in zip(signs, size, strict=True)) for signs in itertools.product((-1.0, 1.0), repeat=3)], 0.0
    mesh = topology.meshes[asset]
    return [tuple(map(float, mesh.vertices.value[k])) for k in np.unique(mesh.hull.value)], 0.0


@stage
def _largest_distance(shape: str, size, points, radius, piece, site):
    distances = []
    for point in points:
        p = apply_inverse(site[1], vsub(vadd(piece[0], apply(piece[1], point)), site[0]))
        distances.append(DISTANCES[shape](size, p))
    return add(jnp.max(jnp.stack(jnp.broadcast_arrays(*distances)), 0), radius)


def _outside_box(offsets) -> object:
    """The signed distance from a box, where ``offsets`` are those beyond its faces."""
    beyond = safe_norm(tuple(jnp.maximum(x, 0.0) for x in offsets))
    return beyond + jnp.minimum(functools.reduce(jnp.maximum, offsets), 0.0)


def _from_capsule(size, p):
    return safe_norm((p[0], p[1], p[2] - jnp.clip(p[2], -size[1], size[1]))) - size[0]


DISTANCES: dict[str, Callable] = {
    "sphere": lambda size, p: safe_norm(p) - size[0],
    "capsule": _from_capsule,
    "cylinder": lambda size, p: _outside_box((safe_norm(p[:2]) - size[0], jnp.abs(p[2]) - size[1])),
    "box": lambda size, p: _outside_box(tuple(jnp.abs(x) - half for x, half in zip(p, size, strict=True))),
}
"""By shape of a site: the signed distance of points from its surface, m. size, p: as for VOLUMES."""


def _below(planes: np.ndarray, p):
    """Whether points are below all planes (n, 4): normals, and distances from the origin."""
    x, y, z = (jnp.asarray(a) for a in p)
    normal_x, normal_y, normal_z, distance = planes.T.reshape(4, -1, *[1] * x.ndim)
    return jnp.all(normal_x * x + normal_y * y + normal_z * z < distance, axis=0)


def _in_capsule(size, p):
    radius, half = size[:2]
    beyond = p[2] - jnp.clip(p[2], -half, half)
    return p[0] * p[0] + p[1] * p[1] + beyond * beyond < radius * radius


def _in_ellipsoid(size, p):
    scaled = tuple(x / half for x, half in zip(p, size, strict=True))
    return dot(scaled, scaled) < 1.0


def _in_box(size, p):
    x, y, z = (jnp.abs(a) < half for a, half in zip(p, size, strict=True))
    return x & y & z


VOLUMES: dict[str, Callable] = {
    "sphere": lambda size, p: dot(p, p) < size[0] * size[0],
    "capsule": _in_capsule,
    "ellipsoid": _in_ellipsoid,
    "cylinder": lambda size, p: (p[0] * p[0] + p[1] * p[1] < size[0] * size[0]) & (jnp.abs(p[2]) < size[1]),
    "box": _in_box,
}
"""By shape: whether points are inside. size: see `SiteInfo`. p: in the frame of the site."""
