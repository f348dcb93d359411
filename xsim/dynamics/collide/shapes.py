"""What collision functions take and give.

A collision function holds many pairs of geoms of two kinds against each other at once: every component is an array of any common shape
(pairs, environments). It returns a fixed number of `Touch`es; one that is not there has the distance `FAR`. Values and derivatives are
finite for any pose.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from xsim.spatial import ZERO3, Component, Vector

FAR = 1e10
"""Distance (m) of a contact that is not there."""


class Shape(NamedTuple):
    """Geoms of one kind in the world. size: half extents as in `xsim.spec` (sphere: radius; capsule, cylinder: radius, half length along
    z; ellipsoid, box: half extents; plane: half extents, 0 without end; mesh: factors of its vertices). pos: centre (m). R: rows of the
    rotation matrix, geom to world. data: the `Hull` of a mesh, the `HfieldInfo` of a height field, which all of these geoms share."""

    size: Vector
    pos: Vector
    R: tuple
    data: Any = None

    def axis(self, k: int) -> Vector:
        """The geom's k-th axis in the world."""
        return tuple(row[k] for row in self.R)


class Touch(NamedTuple):
    """distance: m, negative where the shapes overlap. point: in the middle between the two surfaces, world. normal: unit vector from the
    first shape to the second. along: a direction for the first tangent of the contact's frame (need not be perpendicular to the normal),
    zero for none."""

    distance: Component
    point: Vector
    normal: Vector
    along: Vector = ZERO3
