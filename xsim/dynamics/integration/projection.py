"""Projection onto the holonomic constraints: the nearest configuration and velocity in the metric of the mass matrix.

The acceleration of a step satisfies the constraints, so the position error after the step is of the order of the integrator's error. Newton
steps on the constraint error remove it, each with the mass matrix and the Jacobian at its configuration. One more step removes the error
of the velocity. This happens in every step, so errors do not accumulate and no stabilization constant is needed. `linalg.implicit` gives
the derivative of each Newton step.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from xsim.dynamics.actuation.commands import PRESCRIBED
from xsim.dynamics.constraints.holonomic import holonomic_drifts, holonomic_errors, holonomic_rows, rate
from xsim.dynamics.integration.equation import EquationOfMotion, effective_mass, evaluate
from xsim.dynamics.layout import spread
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.linalg.sparse import Saddle, masked, minus_jt_times, restricted
from xsim.dynamics.tree.kinematics import frames, inertial_force
from xsim.dynamics.tree.manifold import integrate
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg, separate_kernels, sub

NEWTON_STEPS = 2
"""Newton steps per time step. The constraint error after a time step is of order dt^2 or less, and each Newton step squares it."""


class _LeastChange(NamedTuple):
    """The problem of the least change of velocity at q, in the metric of the mass matrix, with J change = rates."""

    system: System
    q: list
    rates: list


def free_dofs(system: System) -> list:
    """Per dof 1, or 0 if its motion is prescribed."""
    return [0.0 if drive in PRESCRIBED else 1.0 for drive in system.topology.drives]


def _equation(m: _LeastChange) -> EquationOfMotion:
    zero = [0.0] * len(free_dofs(m.system))
    return EquationOfMotion(m.system, m.q, zero, zero)


def _residual(m: _LeastChange, x) -> list:
    terms, free = evaluate(_equation(m)), free_dofs(m.system)
    n = len(free)
    change = [mul(k, y) for k, y in zip(free, x[:n], strict=True)]
    force = minus_jt_times(inertial_force(m.system, terms.frame, terms.inertia, change), terms.jacobian, x[n:])
    for factor, quad in terms.matrix_terms:
        force = [add(f, mul(factor, y)) for f, y in zip(force, quad.times(change), strict=True)]
    balance = [mul(k, f) for k, f in zip(free, force, strict=True)]
    return [*balance, *(sub(r, rate(row, change)) for r, row in zip(m.rates, terms.jacobian, strict=True))]


def _primal(m: _LeastChange, full, with_matrix: bool):
    equation, free = _equation(m), free_dofs(m.system)
    terms = evaluate(equation)
    rows = masked(m.system, effective_mass(equation, terms), free)
    saddle = Saddle(m.system, [full(row) for row in rows], restricted(terms.jacobian, free))
    return saddle, saddle.solve(full([0.0] * len(free)), full([neg(r) for r in m.rates])), []


def least_change(system: System, q, rates) -> list:
    """The least change of velocity (nv) at q, in the metric of the mass matrix, with J change = rates (J: the holonomic rows)."""
    x, _ = implicit(_LeastChange(system, q, rates), _primal, _residual)
    return [mul(k, y) for k, y in zip(free_dofs(system), x, strict=False)]


def newton_step(system: System, q) -> list:
    """q after one Newton step on the constraint error."""
    q = separate_kernels(q)
    errors = holonomic_errors(system, frames(system, q), q)
    return integrate(system, q, least_change(system, q, [neg(e) for e in errors]), 1.0)


def project_velocity(system: System, q, v) -> list:
    """The velocity nearest to v at which the constraint error at q does not change."""
    frame = frames(system, q)
    rates = [add(rate(row, v), drift) for row, drift in zip(holonomic_rows(system, frame), holonomic_drifts(system, frame), strict=True)]
    return [add(a, b) for a, b in zip(v, least_change(system, q, [neg(r) for r in rates]), strict=True)]


def project(system: System, q, v) -> tuple[list, list]:
    """The configuration nearest to q that satisfies the constraints, and the velocity nearest to v that keeps it there."""
    q = jax.lax.fori_loop(0, NEWTON_STEPS, lambda _, x: spread(newton_step(system, x), x), spread(q, system, q))
    return q, project_velocity(system, q, v)
