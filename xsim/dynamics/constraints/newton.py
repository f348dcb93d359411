"""The acceleration under soft constraints: the minimum of a convex function, by Newton's method.

It minimizes 1/2 a^T M a - b^T a + P(J a + offset), P the sum of the constraints' potentials, whose slopes are minus their forces. Limits,
pyramids and dry friction make it piecewise quadratic: once the pieces are known the minimum is one linear solve away. Elliptic cones that
slide bend it: there Newton's method goes on until rounding stops it. A line search along each step makes certain that it comes down.
Source: Todorov 2014, Convex and analytically-invertible dynamics with contacts and constraints.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.linalg.dense import Bordered, every, times, transposed_times, tree_sum
from xsim.spatial import block_loop_hoisting

STEPS = 100
SEARCHES = 30
SLACK = 64  # roundings within which a sum of forces, or a step, is zero
STALLED = 0.1  # a decrement that falls by less than this is rounding
NEAR = 1.5  # power of the rounding below which, beside the energy, that may be (what is rounded of a decrement has the power 2)


class Minimum(NamedTuple):
    """a (nv, lanes). y (m, lanes): multipliers of the hard rows, None without. x: J a + offset at a. found: 0.0 where the bound on steps
    came first. steps: how many were taken (by all lanes)."""

    a: object
    y: object
    x: tuple
    found: object
    steps: object


class _Carry(NamedTuple):
    a: object
    y: object
    x: tuple
    fell: object  # decrement of the last step
    scale: object  # of the energy
    done: object
    count: object


def minimize(mass, right, constraints: Constraints, hard=None, wanted=None) -> Minimum:
    """mass (nv, nv, lanes), right (nv, lanes). hard (m, nv, lanes), wanted (m, lanes): rows with hard a = wanted, None for none."""
    eps, counts = float(jnp.finfo(right.dtype).eps), constraints.counts()

    # Without the constraints; they act from there on.
    free, y = Bordered(mass, hard).solve(right, None if hard is None else -wanted)
    work = jnp.abs(tree_sum(list(free * right)))

    def step(c: _Carry) -> _Carry:
        pull = constraints.jt_times(constraints.force(c.x))
        inertial = times(mass, c.a)
        slope = inertial - right - pull
        p, y = Bordered(mass + constraints.curvature(c.x, counts), hard).solve(-slope, None if hard is None else times(hard, c.a) - wanted)
        held = jnp.zeros_like(slope) if hard is None else transposed_times(hard, y)
        small = every(jnp.abs(slope - held) <= SLACK * eps * (jnp.abs(inertial) + jnp.abs(right) + jnp.abs(pull) + jnp.abs(held)))
        decrement = -tree_sum(list(p * (slope - held)))  # p^T H p, also where rounding has left a away from the hard rows
        scale = jnp.maximum(c.scale, decrement)
        small = small | every(jnp.abs(p) <= SLACK * eps * jnp.abs(c.a))
        stalled = (decrement <= eps**NEAR * scale) & (decrement >= STALLED * c.fell)
        dx = constraints.j_times(p)
        stay = c.done | small | stalled | ~every(jnp.isfinite(slope))  # a state that is lost keeps no other waiting
        reach = _search(mass, right + held, constraints, c, p, dx, stay)
        a = c.a + reach * p
        x = constraints.at(a)
        same = jnp.ones_like(small)
        for before, after in zip(constraints.zones(c.x), constraints.zones(x), strict=True):
            same = same & every(before == after, before.ndim - small.ndim)
        settled = same & (reach == 1.0) & ~constraints.is_nonquadratic(x)
        a = jnp.where(stay, c.a, a)
        x = tuple(jnp.where(stay, old, new) for old, new in zip(c.x, x, strict=True))
        y = None if hard is None else jnp.where(stay, c.y, y)
        return _Carry(a, y, x, block_loop_hoisting(decrement), scale, stay | settled, c.count + 1)

    def unfinished(c: _Carry):
        return ~c.done.all() & (c.count < STEPS)

    start = _Carry(free, y, constraints.at(free), jnp.full_like(work, jnp.inf), work, jnp.zeros_like(work, bool), 0)
    end = jax.lax.while_loop(unfinished, step, start)
    return Minimum(end.a, end.y, end.x, jnp.where(end.done, 1.0, 0.0).astype(right.dtype), end.count)


def _search(mass, right, constraints: Constraints, c: _Carry, p, dx, stay):
    """How far along p the slope of the function vanishes, nearly: Newton's method within a bracket. stay: lanes without a step."""
    eps = float(jnp.finfo(p.dtype).eps)
    flat, bend = tree_sum(list(p * (times(mass, c.a) - right))), tree_sum(list(p * times(mass, p)))

    line = constraints.line(c.x, dx)

    def slopes(reach):
        slope, curve = line(reach)
        rounding = SLACK * eps * (jnp.abs(flat) + jnp.abs(reach * bend) + jnp.abs(slope))
        return flat + reach * bend + slope, bend + curve, rounding

    downhill = jnp.abs(slopes(jnp.zeros_like(flat))[0])

    def step(carry):
        reach, low, high, done, count = carry
        slope, curve, rounding = slopes(reach)
        done = done | (jnp.abs(slope) <= 0.01 * downhill + rounding) | ~jnp.isfinite(slope)
        low, high = jnp.where(slope < 0, reach, low), jnp.where(slope < 0, high, reach)
        newton = reach - slope / jnp.where(curve > 0, curve, 1.0)
        inside = (newton > low) & (newton < high)
        middle = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.0 * reach)
        return jnp.where(done, reach, jnp.where(inside, newton, middle)), low, high, done, count + 1

    one = jnp.ones_like(flat)
    start = one, jnp.zeros_like(flat), jnp.full_like(flat, jnp.inf), stay, 0
    return jax.lax.while_loop(lambda c: ~c[3].all() & (c[4] < SEARCHES), step, start)[0]
