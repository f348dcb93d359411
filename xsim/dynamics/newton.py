"""The acceleration under soft constraints: the minimum of a convex function, by Newton's method.

It minimizes 1/2 a^T M a - b^T a plus each row's potential, whose slope along x = J a + offset is minus the row's force: quadratic within
the force's bounds, linear beyond. Once the rows that are within their bounds are known the minimum is one linear solve away; a line search
along each step makes that certain to happen. Source: Todorov 2014, Convex and analytically-invertible dynamics with contacts and
constraints.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .dense import Cholesky, times
from .soft import Rows

STEPS = 100
SEARCHES = 30
SLACK = 64  # roundings within which a sum of forces is zero


class Minimum(NamedTuple):
    """a (nv, lanes); stiffness of the rows that are within their bounds, else 0; found: 0.0 where the bound on steps came first."""

    a: object
    active: object
    found: object


def minimize(mass, right, rows: Rows) -> Minimum:
    """mass (nv, nv, lanes), right (nv, lanes)."""
    eps = float(jnp.finfo(right.dtype).eps)

    def step(carry):
        a, side, done, count = carry
        x = rows.along(a) + rows.offset
        # The first step leads to the acceleration without the rows.
        first = count == 0
        pull = jnp.where(first, 0.0, rows.pulled(rows.force(x)))
        heavy = times(mass, a)
        slope = heavy - right - pull
        small = (jnp.abs(slope) <= SLACK * eps * (jnp.abs(heavy) + jnp.abs(right) + jnp.abs(pull))).all(0) & ~first
        p = -Cholesky(mass + rows.curvature(_active(rows, side))).solve(slope)
        reach = jax.lax.cond(first, jnp.ones_like, lambda p0: _search(mass, right, rows, a, x, p), p[0])
        new = a + reach * p
        there = rows.side(rows.along(new) + rows.offset)
        settled = (there == side).all(0) & (reach == 1.0) & ~first
        stay = done | small | ~jnp.isfinite(slope).all(0)  # a state that is lost keeps no other waiting
        return jnp.where(stay, a, new), jnp.where(stay, side, there), stay | settled, count + 1

    def unfinished(carry):
        return ~carry[2].all() & (carry[3] < STEPS)

    # The first step has no rows: all count as at a bound.
    start = jnp.zeros_like(right), jnp.ones_like(rows.side(rows.offset)), jnp.zeros_like(right[0], bool), 0
    a, side, done, _ = jax.lax.while_loop(unfinished, step, start)
    return Minimum(a, _active(rows, side), jnp.where(done, 1.0, 0.0).astype(right.dtype))


def _active(rows: Rows, side):
    return jnp.where(side == 0, rows.stiffness, 0.0)


def _search(mass, right, rows: Rows, a, x, p):
    """How far along p the slope of the function vanishes, nearly: Newton's method within a bracket."""
    dx = rows.along(p)
    flat, bend = (p * (times(mass, a) - right)).sum(0), (p * times(mass, p)).sum(0)

    def slopes(reach):
        y = x + reach * dx
        return flat + reach * bend - (rows.force(y) * dx).sum(0), bend + (_active(rows, rows.side(y)) * dx * dx).sum(0)

    downhill = jnp.abs(slopes(jnp.zeros_like(flat))[0])

    def step(carry):
        reach, low, high, done, count = carry
        slope, curve = slopes(reach)
        done = done | (jnp.abs(slope) <= 0.01 * downhill) | ~jnp.isfinite(slope)
        low, high = jnp.where(slope < 0, reach, low), jnp.where(slope < 0, high, reach)
        newton = reach - slope / jnp.where(curve > 0, curve, 1.0)
        inside = (newton > low) & (newton < high)
        middle = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.0 * reach)
        return jnp.where(done, reach, jnp.where(inside, newton, middle)), low, high, done, count + 1

    one = jnp.ones_like(flat)
    start = one, jnp.zeros_like(flat), jnp.full_like(flat, jnp.inf), jnp.zeros_like(flat, bool), 0
    return jax.lax.while_loop(lambda c: ~c[3].all() & (c[4] < SEARCHES), step, start)[0]
