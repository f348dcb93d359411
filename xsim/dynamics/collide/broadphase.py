"""Which of many pairs are near: lower bounds of their distances.

Along any unit vector n two shapes are apart by at most their distance, so the gap between boxes around them along n bounds it from below.
The largest such gap is taken of the axes of both boxes and of the line between the centres. A box is one around the core: the radii of
spheres and capsules are added to it as they are.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from xsim.dynamics.collide.cores import Body, box_axes, cores, half_width, span, unit
from xsim.dynamics.collide.shapes import Shape
from xsim.spatial import Vector, dot, vsub


def least_distance(kinds: Sequence[tuple[str, str]], a: Shape, b: Shape):
    """A lower bound (m) of the distance of pairs (pairs, lanes), without derivative, also when it is rounded. kinds: see `convex`."""
    (ca, ra), (cb, rb) = cores(kinds, a, b)
    ca, cb = ca.still(), cb.still()
    line = vsub(cb.pos, ca.pos)
    apart = jnp.where(dot(line, line) > 0, _gap(ca, cb, unit(line), line), -jnp.inf)
    for n in (*box_axes(ca), *box_axes(cb)):
        apart = jnp.maximum(apart, _gap(ca, cb, n, line))
    rounding = 16 * jnp.finfo(ra.dtype).eps * span(ca, cb)
    return apart - jax.lax.stop_gradient(ra + rb) - rounding


def _gap(a: Body, b: Body, n: Vector, line: Vector):
    """Between the boxes along n."""
    return jnp.abs(dot(n, line)) - half_width(a, n) - half_width(b, n)
