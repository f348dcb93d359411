"""The broad phase: lower bounds of the distances of pairs of geoms.

Along any unit vector n, the gap between two shapes is at most their distance. So the gap between boxes around the shapes is a lower
bound. The bound is the largest gap along the axes of both boxes and along the line between their centres. A box contains the core of a
shape; the radii of spheres and capsules are subtracted afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xsim.dynamics.collide.cores import Body, box_axes, cores, half_width, span, unit
from xsim.dynamics.collide.shapes import Shape
from xsim.spatial import Vector, dot, vsub


def least_distance(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape):
    """Lower bounds (m) of the distances of pairs (pairs, lanes). They allow for rounding. They have no derivative. kinds: see `convex`."""
    (ca, ra), (cb, rb) = cores(kinds, a, b)
    ca, cb = ca.without_derivatives(), cb.without_derivatives()
    line = vsub(cb.pos, ca.pos)
    bound = jnp.where(dot(line, line) > 0, _gap(ca, cb, unit(line), line), -jnp.inf)
    for n in (*box_axes(ca), *box_axes(cb)):
        bound = jnp.maximum(bound, _gap(ca, cb, n, line))
    rounding = 16 * jnp.finfo(ra.dtype).eps * span(ca, cb)
    return bound - jax.lax.stop_gradient(ra + rb) - rounding


def _gap(a: Body, b: Body, n: Vector, line: Vector):
    """The gap between the boxes along n."""
    return jnp.abs(dot(n, line)) - half_width(a, n) - half_width(b, n)
