"""Back onto the constraints between frames: the nearest configuration and velocity in the metric of the mass matrix.

A step's accelerations obey the constraints, so what it leaves of them is an error of its own order. Newton steps on the gaps, each
with mass matrix and Jacobian at its own configuration, then one on their rates, take it away in every step: nothing accumulates, and no
stabilization constant has to be chosen. Every Newton step is differentiated by the rule of `solve.implicit`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax

from xsim.dynamics.actuation.commands import PRESCRIBED
from xsim.dynamics.constraints.holonomic import holonomic_drifts, holonomic_errors, holonomic_rows, rate
from xsim.dynamics.integration.equation import EquationOfMotion, effective_mass, evaluate
from xsim.dynamics.layout import spread
from xsim.dynamics.linalg.implicit import implicit
from xsim.dynamics.linalg.sparse import Saddle, minus_jt_times, restricted
from xsim.dynamics.linalg.sparse import masked as without
from xsim.dynamics.tree.kinematics import frames, inertial_force
from xsim.dynamics.tree.manifold import integrate
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg, separate_kernels, sub

NEWTON = 2
"""Newton steps per step: the gap a step leaves is of order dt^2 or less, and each one squares it."""


class _Shift(NamedTuple):
    """The least change of motion at q, in the metric of the mass matrix, whose rates along the rows are ``wanted``."""

    system: System
    q: list
    wanted: list


def free_dofs(system: System) -> list:
    """Per dof 1, or 0 where its motion is prescribed."""
    return [0.0 if drive in PRESCRIBED else 1.0 for drive in system.topology.drives]


def _equation(m: _Shift) -> EquationOfMotion:
    zero = [0.0] * len(free_dofs(m.system))
    return EquationOfMotion(m.system, m.q, zero, zero)


def _residual(m: _Shift, x) -> list:
    terms, keep = evaluate(_equation(m)), free_dofs(m.system)
    n = len(keep)
    change = [mul(k, y) for k, y in zip(keep, x[:n], strict=True)]
    force = minus_jt_times(inertial_force(m.system, terms.frame, terms.inertia, change), terms.jacobian, x[n:])
    for factor, quad in terms.loads:
        force = [add(f, mul(factor, y)) for f, y in zip(force, quad.times(change), strict=True)]
    return [*(mul(k, f) for k, f in zip(keep, force, strict=True)),
            *(sub(w, rate(row, change)) for w, row in zip(m.wanted, terms.jacobian, strict=True))]  # fmt: skip


def _primal(m: _Shift, full):
    equation, keep = _equation(m), free_dofs(m.system)
    terms = evaluate(equation)
    rows = without(m.system, effective_mass(equation, terms), keep)
    saddle = Saddle(m.system, [full(row) for row in rows], restricted(terms.jacobian, keep))
    return saddle, saddle.solve(full([0.0] * len(keep)), full([neg(w) for w in m.wanted])), []


def shift(system: System, q, wanted) -> list:
    """The least change of velocity (nv) at q whose rates along the holonomic rows are ``wanted``."""
    x, _ = implicit(_Shift(system, q, wanted), _primal, _residual)
    return [mul(k, y) for k, y in zip(free_dofs(system), x, strict=False)]


def closer(system: System, q) -> list:
    """q after one Newton step on the gaps."""
    q = separate_kernels(q)
    gaps = holonomic_errors(system, frames(system, q), q)
    return integrate(system, q, shift(system, q, [neg(g) for g in gaps]), 1.0)


def tangent(system: System, q, v) -> list:
    """The velocity nearest to v that keeps the gaps at q as they are."""
    frame = frames(system, q)
    rates = [add(rate(row, v), drift) for row, drift in zip(holonomic_rows(system, frame), holonomic_drifts(system, frame), strict=True)]
    return [add(a, b) for a, b in zip(v, shift(system, q, [neg(r) for r in rates]), strict=True)]


def project(system: System, q, v) -> tuple[list, list]:
    """The configuration near q that closes the gaps a step has left, and the velocity near v there that keeps them closed."""
    q = jax.lax.fori_loop(0, NEWTON, lambda _, x: spread(closer(system, x), x), spread(q, system, q))
    return q, tangent(system, q, v)
