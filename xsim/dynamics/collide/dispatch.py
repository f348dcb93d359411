"""Choice of the collision function for two shapes: a closed form, or the convex algorithm."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.collide import boxes, planes, simplices, spheres_capsules, triangles
from xsim.dynamics.collide.broadphase import least_distance
from xsim.dynamics.collide.convex import convex
from xsim.dynamics.collide.hulls import Hull, make_hull
from xsim.dynamics.collide.patches import patch, patch_contact_count
from xsim.dynamics.collide.shapes import ContactPoint, Shape, broadcast_contact
from xsim.model.topology import MeshInfo
from xsim.registry import COLLIDERS
from xsim.rules import Rules
from xsim.spatial import each_row, in_one_environment

CLOSED_FORM = (boxes, planes, simplices, spheres_capsules, triangles)
"""Modules with closed forms. Their import registers the functions in `COLLIDERS`."""


def contact_count(shapes: tuple[str, str], patches: bool = False) -> int:
    """The number of contacts that two geoms of these shapes can have. patches: whether two flat faces have several (MuJoCo's multiccd)."""
    if shapes in COLLIDERS:
        return COLLIDERS[shapes].contacts
    return max(1, patch_contact_count(shapes)) if patches else 1


def collide(shapes: tuple[str, str], a: Shape, b: Shape, margin, rules: Rules) -> list[ContactPoint]:
    """The contacts of geoms of two shapes, `contact_count` of them. margin (m): contacts with a larger distance need not be exact."""
    if shapes not in COLLIDERS:
        return [collide_convex([shapes], *(shape._replace(data=[shape.data]) for shape in (a, b)))]
    a, b = (shape._replace(data=hull(shape.data)) if kind in ("mesh", "sdf") else shape for kind, shape in zip(shapes, (a, b), strict=True))
    return COLLIDERS[shapes](a, b, margin, rules)


def collide_convex(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape, selected=None, near=None) -> ContactPoint:
    """One contact for each pair, by the convex algorithm. The pairs have the same `convex_batch_key`. ``data`` of the shapes: one mesh for
    each pair. selected, near: see `convex`."""
    return convex(shapes, *_with_hulls(shapes, a, b), selected, near)


def collide_flat(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape, detection_distance, selected=None, near=None) -> list[ContactPoint]:
    """As `collide_convex`, for shapes with flat faces: several contacts for each pair, see `patch`."""
    a, b = _with_hulls(shapes, a, b)
    contact = convex(shapes, a, b, selected, near)
    poses, which, shape = (a[:3], b[:3]), selected, contact.distance.shape
    if selected is not None:
        poses = jax.tree.map(lambda x: jnp.take_along_axis(jnp.broadcast_to(x, (len(x), selected.shape[1])), selected, 0), poses)
    elif in_one_environment():
        which = np.arange(len(shapes))[:, None]

    def contacts(poses, found, distance, which) -> list[ContactPoint]:
        sides = (Shape(*pose, shape.data) for pose, shape in zip(poses, (a, b), strict=True))
        patches = patch(shapes, *sides, ContactPoint(*found), distance, which)
        return [broadcast_contact(x, found[0].shape) for x in patches]

    numbers = jax.tree.map(lambda x: jnp.broadcast_to(x, shape), (poses, contact[:3], detection_distance, which))
    return each_row(contacts, *numbers)


def least_distances(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape):
    """Lower bounds (m) of the distances of pairs of two given shapes, or of pairs as in `collide_convex`."""
    return least_distance(shapes, *_with_hulls(shapes, a, b))


def _with_hulls(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape) -> list[Shape]:
    """The shapes with the hulls of their meshes as ``data``."""
    return [x._replace(data=[hull(mesh) for mesh in x.data]) if kind == "mesh" else x for kind, x in zip(shapes[0], (a, b), strict=True)]


def convex_batch_key(shapes: tuple[str, str], meshes: tuple) -> tuple | None:
    """A key by which pairs are grouped for the convex algorithm: smooth shapes, prisms, simplices, hulls of about the same size. None if
    the pair has a closed form."""
    if shapes in COLLIDERS:
        return None
    sizes = tuple(0 if mesh is None else _magnitude(len(hull(mesh).vertices)) for mesh in meshes)
    return (*(kind if kind in ("prism", "simplex") else "" for kind in shapes), *sizes)


def _magnitude(count: int) -> int:
    """The same number for all counts up to 4, up to 16, up to 64, ...: a batch pads its hulls to the largest one."""
    return -(-max(count - 1, 1).bit_length() // 2)


@functools.lru_cache(maxsize=256)
def hull(mesh: MeshInfo) -> Hull:
    """The convex hull of a mesh."""
    return make_hull(mesh.vertices.value, None if mesh.hull is None else mesh.hull.value)
