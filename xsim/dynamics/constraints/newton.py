"""The acceleration under soft constraints: the minimum of a convex function, by Newton's method.

The function of the acceleration a is 1/2 a^T M a - b^T a + P(J a + offset). P is the sum of the constraints' potentials; its negative
gradient is their forces. With limits, pyramids and dry friction the function is piecewise quadratic. Then one linear solve in the right
piece gives the minimum. With sliding contacts in elliptic cones it is not. Then Newton's method iterates until rounding stops it. A line
search guarantees that each step decreases the function. Source: Todorov 2014, Convex and analytically-invertible dynamics with contacts and
constraints.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.soft_set import Constraints
from xsim.dynamics.linalg.dense import Bordered, every, times, transposed_times, tree_sum
from xsim.spatial import block_loop_hoisting

MAX_STEPS = 100
MAX_LINE_SEARCH = 30
ROUNDING = 64
"""A sum of forces, or a step, counts as zero below this many machine epsilons of its terms."""
CANCELLATION = 4
"""Forces of constraints that cancel also count as zero below this many machine epsilons of the sum of their magnitudes."""
STALL_RATIO = 0.1
STALL_POWER = 1.5
"""The iteration has stalled if the Newton decrement is at least STALL_RATIO of the last one and below eps^STALL_POWER of the energy, eps
the machine epsilon. The rounding error of a decrement is about eps^2."""


class Free(NamedTuple):
    """The solution without soft constraints.

    a (nv, lanes): the acceleration.
    y (m, lanes): multipliers of the hard rows. None without hard rows.
    pivot (lanes): 0.0 if M is singular, else 1.0.
    """

    a: object
    y: object
    pivot: object


def free_acceleration(mass, right, hard=None, wanted=None) -> Free:
    """The minimum of 1/2 a^T M a - b^T a, subject to H a = h. For the arguments see `minimize`."""
    matrix = Bordered(mass, hard)
    return Free(*matrix.solve(right, None if hard is None else -wanted), matrix.factor.pivot)


class Minimum(NamedTuple):
    """The solution.

    a (nv, lanes): the acceleration.
    y (m, lanes): multipliers of the hard rows. None without hard rows.
    converged (lanes): 0.0 if the maximum number of steps was reached, else 1.0.
    steps: number of steps, common to all lanes.
    """

    a: object
    y: object
    converged: object
    steps: object


class _Carry(NamedTuple):
    a: object
    y: object
    decrement: object  # of the last step
    energy: object  # magnitude of the energy
    done: object
    count: object


def minimize(mass, right, free: Free, constraints: Constraints, hard=None, wanted=None, start=None) -> Minimum:
    """Minimize 1/2 a^T M a - b^T a + P(J a + offset), subject to H a = h.

    mass (nv, nv, lanes): M. right (nv, lanes): b. free: the solution without P. hard (m, nv, lanes), wanted (m, lanes): H and h, None
    without hard rows. start (nv, lanes): an acceleration that may be near the minimum, see `_start_at`; NaN if there is none. It is not
    used with hard rows, since they hold at ``free``."""
    eps, counts = float(jnp.finfo(right.dtype).eps), constraints.counts()

    def step(c: _Carry) -> _Carry:
        x = constraints.at(c.a)
        forces = constraints.force(x)
        soft_force = constraints.jt_times(forces, counts)
        inertial = times(mass, c.a)
        gradient = inertial - right - soft_force
        second = constraints.newton_matrix(mass, x, counts)
        p, y = Bordered(second, hard, constraints.fixed_zeros).solve(-gradient, None if hard is None else times(hard, c.a) - wanted)
        hard_force = jnp.zeros_like(gradient) if hard is None else transposed_times(hard, y)
        remainder = jnp.abs(gradient - hard_force)
        terms = jnp.abs(inertial) + jnp.abs(right) + jnp.abs(soft_force) + jnp.abs(hard_force)
        rounding = eps * jnp.maximum(ROUNDING * terms, CANCELLATION * constraints.jt_magnitudes(forces, counts))
        small = every(remainder <= rounding)
        decrement = -tree_sum(list(p * (gradient - hard_force)))  # p^T second p, also if a violates the hard rows by rounding
        energy = jnp.maximum(c.energy, decrement)
        small = small | every(jnp.abs(p) <= ROUNDING * eps * jnp.abs(c.a))
        stalled = (decrement <= eps**STALL_POWER * energy) & (decrement >= STALL_RATIO * c.decrement)
        dx = constraints.j_times(p)
        stop = c.done | small | stalled | ~every(jnp.isfinite(gradient))  # a lane that is not finite must not delay the others
        alpha = _line_search(mass, right + hard_force, constraints.line(x, dx), c.a, p, stop)
        exact = (alpha == 1.0) & constraints.is_quadratic(x, dx)
        a = jnp.where(stop, c.a, c.a + alpha * p)
        y = None if hard is None else jnp.where(stop, c.y, y)
        return _Carry(a, y, block_loop_hoisting(decrement), energy, stop | exact, c.count + 1)

    def unfinished(c: _Carry):
        return ~c.done.all() & (c.count < MAX_STEPS)

    end = jax.lax.while_loop(unfinished, step, _start_at(None if hard is not None else start, mass, right, free, constraints))
    return Minimum(end.a, end.y, jnp.where(end.done, 1.0, 0.0).astype(right.dtype), end.count)


def _start_at(start, mass, right, free: Free, constraints: Constraints) -> _Carry:
    """Where the iteration starts: at ``start`` (nv, lanes) if the slope of the function on the line from ``free`` to it becomes smaller
    there, else at ``free``. None: at ``free``. With the acceleration of the last time step fewer iterations are needed (MuJoCo's warm
    start)."""
    a, energy = free.a, jnp.abs(tree_sum(list(free.a * right)))
    if start is not None:
        change = start - a
        soft_change = constraints.j_times(change)

        def soft_slope(a):
            """The derivative of P at an acceleration along the change."""
            return constraints.line(constraints.at(a), soft_change)(jnp.zeros_like(energy))[0]

        decrease = -soft_slope(a)  # minus the slope at free.a, where M a - b is zero
        slope = tree_sum(list(change * times(mass, change))) + soft_slope(start)
        is_better = jnp.abs(slope) <= decrease  # not if start is NaN
        a = jnp.where(is_better, start, a)
        energy = jnp.where(is_better, jnp.maximum(energy, decrease), energy)
    return _Carry(a, free.y, jnp.full_like(energy, jnp.inf), energy, jnp.zeros_like(energy, bool), 0)


def _line_search(mass, right, line: Callable, a, p, stop):
    """The step length alpha (lanes) at which the derivative of the function along p is nearly zero: Newton's method within a bracket. line:
    P on the line, see `Constraints.line`. a: where it starts. stop: lanes that take no step."""
    eps = float(jnp.finfo(p.dtype).eps)
    smooth_slope, smooth_curvature = tree_sum(list(p * (times(mass, a) - right))), tree_sum(list(p * times(mass, p)))

    def derivatives(alpha):
        slope, curvature = line(alpha)
        rounding = ROUNDING * eps * (jnp.abs(smooth_slope) + jnp.abs(alpha * smooth_curvature) + jnp.abs(slope))
        return smooth_slope + alpha * smooth_curvature + slope, smooth_curvature + curvature, rounding

    initial_slope = jnp.abs(derivatives(jnp.zeros_like(smooth_slope))[0])

    def step(carry):
        alpha, low, high, done, count = carry
        slope, curvature, rounding = derivatives(alpha)
        done = done | (jnp.abs(slope) <= 0.01 * initial_slope + rounding) | ~jnp.isfinite(slope)
        low, high = jnp.where(slope < 0, alpha, low), jnp.where(slope < 0, high, alpha)
        newton = alpha - slope / jnp.where(curvature > 0, curvature, 1.0)
        in_bracket = (newton > low) & (newton < high)
        fallback = jnp.where(jnp.isfinite(high), 0.5 * (low + high), 2.0 * alpha)
        return jnp.where(done, alpha, jnp.where(in_bracket, newton, fallback)), low, high, done, count + 1

    one = jnp.ones_like(smooth_slope)
    start = one, jnp.zeros_like(smooth_slope), jnp.full_like(smooth_slope, jnp.inf), stop, 0
    return jax.lax.while_loop(lambda c: ~c[3].all() & (c[4] < MAX_LINE_SEARCH), step, start)[0]
