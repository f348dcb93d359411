"""Which collision function holds two kinds of geoms against each other."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xsim.dynamics.collide import boxes, planes, simplices, spheres_capsules
from xsim.dynamics.collide.broadphase import least_distance
from xsim.dynamics.collide.convex import convex
from xsim.dynamics.collide.hulls import Hull, make_hull
from xsim.dynamics.collide.patches import count_of_patch, patch
from xsim.dynamics.collide.shapes import Shape, Touch
from xsim.model.topology import MeshInfo
from xsim.registry import COLLIDERS
from xsim.rules import Rules

CLOSED_FORM = (boxes, planes, simplices, spheres_capsules)
"""Modules whose functions are registered in `COLLIDERS` when they are imported."""


def count_of(shapes: tuple[str, str], patches: bool = False) -> int:
    """How many contacts two geoms of these shapes may have. patches: where flat faces that are searched for make several."""
    if shapes in COLLIDERS:
        return COLLIDERS[shapes].contacts
    return max(1, count_of_patch(shapes)) if patches else 1


def collide(shapes: tuple[str, str], a: Shape, b: Shape, margin, rules: Rules) -> list[Touch]:
    """Contacts of geoms of two shapes, as many as `count_of` says. margin (m): those farther apart need not be right."""
    if shapes not in COLLIDERS:
        return [collide_convex([shapes], *(shape._replace(data=[shape.data]) for shape in (a, b)))]
    a, b = (shape._replace(data=hull(shape.data)) if kind == "mesh" else shape for kind, shape in zip(shapes, (a, b), strict=True))
    return COLLIDERS[shapes](a, b, margin, rules)


def collide_convex(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape, which=None, near=None) -> Touch:
    """One contact of each of many pairs without a closed form, which share what `searched_with` says. `data`: the meshes of all. which,
    near: see `convex`."""
    return convex(shapes, *_hulled(shapes, a, b), which, near)


def collide_flat(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape, reach, which=None, near=None) -> list[Touch]:
    """As `collide_convex`, of shapes that `patch` holds against each other: several contacts of each."""
    a, b = _hulled(shapes, a, b)
    touch = convex(shapes, a, b, which, near)
    if which is not None:
        taken = jax.tree.map(lambda x: jnp.take_along_axis(jnp.broadcast_to(x, (len(x), which.shape[1])), which, 0), (a[:3], b[:3]))
        a, b = (Shape(*own, shape.data) for own, shape in zip(taken, (a, b), strict=True))
    return patch(shapes, a, b, touch, reach, which)


def least_distances(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape):
    """Lower bounds (m) of the distances of many pairs: of one kind, or as for `collide_convex`."""
    return least_distance(shapes, *_hulled(shapes, a, b))


def _hulled(shapes: Sequence[tuple[str, str]], a: Shape, b: Shape) -> list[Shape]:
    """With hulls for meshes."""
    return [x._replace(data=[hull(mesh) for mesh in x.data]) if kind == "mesh" else x for kind, x in zip(shapes[0], (a, b), strict=True)]


def searched_with(shapes: tuple[str, str], meshes: tuple) -> tuple | None:
    """Pairs with the same are searched together: shapes without vertices, prisms, simplices, hulls of about the same size; None: not
    searched."""
    if shapes in COLLIDERS:
        return None
    sizes = tuple(0 if mesh is None else _magnitude(len(hull(mesh).vertices)) for mesh in meshes)
    return (*(kind if kind in ("prism", "simplex") else "" for kind in shapes), *sizes)


def _magnitude(count: int) -> int:
    """Up to 4, 16, 64, ...: smaller hulls are filled up to the largest."""
    return -(-max(count - 1, 1).bit_length() // 2)


@functools.lru_cache(maxsize=256)
def hull(mesh: MeshInfo) -> Hull:
    """The convex hull of a mesh."""
    return make_hull(mesh.vertices.value, None if mesh.hull is None else mesh.hull.value)
