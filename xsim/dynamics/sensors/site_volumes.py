"""The volumes of sites. Source: MuJoCo's documentation, XML reference, sensor insidesite."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from xsim.spatial import apply_inverse, dot, vsub


def inside_site(context, info) -> tuple:
    """1 if the origin of a frame is inside the volume of a site, else 0."""
    return (jnp.where(site_contains(context, info.reference[1], context.frame_of(info.object).pos), 1.0, 0.0),)


def site_contains(context, site: int, point):
    """Whether points are inside the volume of a site. Its surface is outside. point: world, m, components of any shape."""
    info, frame = context.system.topology.sites[site], context.frame_of(("site", site))
    p = apply_inverse(frame.R, vsub(point, frame.pos))
    return VOLUMES[info.shape](info.size, p) if info.planes is None else _below(info.planes.value, p)


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
