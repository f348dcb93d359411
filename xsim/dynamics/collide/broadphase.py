"""The broad phase: bounding spheres, and lower bounds of the distances of pairs of geoms.

Along any unit vector n, the gap between two shapes is at most their distance. So the gap between boxes around the shapes is a lower
bound. The bound is the largest gap along the axes of both boxes and along the line between their centres. A box contains the core of a
shape; the radii of spheres and capsules are subtracted afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xsim.dynamics.collide.cores import Body, bounding_boxes, box, box_axes, core, cores, half_width, span, unit
from xsim.dynamics.collide.shapes import Shape
from xsim.spatial import IDENTITY, ZERO3, Vector, dot, each_row, matrix, safe_norm, vsub

BOUNDED = ("sphere", "capsule", "cylinder", "ellipsoid", "box")
"""Shapes with a bounding sphere, see `bounding_radius`."""


def bounding_radius(kind: str, size: Vector):
    """Radii (m) of the spheres about the centres of shapes that contain them. kind: one of `BOUNDED`."""
    body, radius = core((kind,), Shape(size, ZERO3, matrix(IDENTITY)), size[0])
    return safe_norm(box(body)) + radius


def can_touch(a: Vector, b: Vector, reach):
    """Whether the centres a and b of two bounding spheres are nearer than ``reach`` (m): the sum of the radii and of the distance at which
    contacts are detected. It allows for rounding."""
    line = vsub(b, a)
    return dot(line, line) <= jnp.square(1.001 * jnp.maximum(reach, 0.0))


def least_distance(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape):
    """Lower bounds (m) of the distances of pairs (pairs, lanes). They allow for rounding. They have no derivative. kinds: see `convex`."""
    (ca, ra), (cb, rb) = cores(kinds, a, b)
    boxes = [bounding_boxes(body.without_derivatives()).rows() for body in (ca, cb)]
    return each_row(_gap, *boxes) - jax.lax.stop_gradient(ra + rb)


def _gap(a: Body, b: Body):
    """The largest gap between the boxes along the tested directions, less what rounding may add."""
    line = vsub(b.pos, a.pos)
    gap = jnp.where(dot(line, line) > 0, _gap_along(unit(line), line, half_width(a, unit(line)), half_width(b, unit(line))), -jnp.inf)
    for body, other in ((a, b), (b, a)):
        for n, width in zip(box_axes(body), box(body), strict=True):
            gap = jnp.maximum(gap, _gap_along(n, line, width, half_width(other, n)))
    return gap - 16 * jnp.finfo(gap.dtype).eps * span(a, b)


def _gap_along(n: Vector, line: Vector, *half_widths):
    """The gap along n between boxes whose centres are ``line`` apart."""
    return jnp.abs(dot(n, line)) - sum(half_widths)
