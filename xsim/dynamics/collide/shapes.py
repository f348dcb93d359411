"""The arguments and results of collision functions.

A collision function processes a batch of pairs of geoms of two given shapes. All components are arrays of a common shape (pairs, lanes). It
returns a fixed number of `ContactPoint`s. One that does not exist has the distance `FAR`. Values and derivatives are finite for any pose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.spatial import ZERO3, Component, Vector

FAR = 1e10
"""Distance (m) of a contact that does not exist."""


class Shape(NamedTuple):
    """Geoms of one shape in the world.

    size: as in `xsim.spec`, m. Sphere: radius. Capsule, cylinder: radius, half length along z. Ellipsoid, box: half extents. Plane: half
        extents, 0 for an infinite plane. Mesh: scale factors of its vertices.
    pos: centre, world, m.
    R: rows of the rotation matrix from geom to world.
    data: the `Hull` of a mesh, or the `HfieldInfo` of a height field. All geoms of a batch share it.
    """

    size: Vector
    pos: Vector
    R: tuple
    data: Any = None

    def axis(self, k: int) -> Vector:
        """The geom's k-th axis, world."""
        return tuple(row[k] for row in self.R)


def shape_of(numbers: tuple, data) -> Shape:
    """A shape from 15 components: size (3), position (3), rotation matrix (9)."""
    return Shape(numbers[:3], numbers[3:6], (numbers[6:9], numbers[9:12], numbers[12:]), data)


class ContactPoint(NamedTuple):
    """A point where two shapes are in contact, or nearest to each other.

    distance: m, negative if the shapes overlap.
    point: midpoint between the two surfaces, world, m.
    normal: unit vector from the first shape to the second, world.
    tangent_hint: preferred direction of the first tangent of the contact frame, zero for none. It need not be perpendicular to the normal.
    """

    distance: Component
    point: Vector
    normal: Vector
    tangent_hint: Vector = ZERO3


def broadcast_contact(contact: ContactPoint, shape: tuple[int, ...], dtype=None) -> ContactPoint:
    """The contact with arrays of one type and shape as components. dtype: None: that of the components."""
    dtype = jnp.result_type(*jax.tree.leaves(contact)) if dtype is None else dtype
    return jax.tree.map(lambda x: jnp.broadcast_to(jnp.asarray(x, dtype), shape), contact)
