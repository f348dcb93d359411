"""One step of time: a registry of integrators over components."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import activation_rates, next_activations
from xsim.dynamics.actuation.commands import drive, split_controls
from xsim.dynamics.constraints.holonomic import closing, has_rows
from xsim.dynamics.constraints.loop_joints import active
from xsim.dynamics.constraints.soft_set import constraints
from xsim.dynamics.forces.passive import quadratic
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.integration.equation import EquationOfMotion, acceleration, implicit_element_rows, with_implicit_elements
from xsim.dynamics.integration.impulses import apply_impulses, rows
from xsim.dynamics.integration.projection import project
from xsim.dynamics.integration.velocity_derivatives import lone_free
from xsim.dynamics.layout import spread
from xsim.dynamics.tree.manifold import displacement_rates, integrate, shifted
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, separate_kernels, stage, sub, total


class Health(NamedTuple):
    """The flags of a state, each 1.0 where it is set (XLA's CPU compiler crashes on loops that make int32 of float64 comparisons)."""

    diverged: object
    singular: object
    unsolved: object
    overflow: object


class Moving(NamedTuple):
    """A state as components."""

    q: list
    v: list
    act: list
    time: object
    health: Health


class Change(NamedTuple):
    """What an integrator's velocity step makes of a state. pivot, solved: 0 where the mass matrix is singular, the impulses not found;
    overflow: 1 where more contacts were active than the buffer holds. early: see `Solved`."""

    v: list
    pivot: object
    solved: object
    overflow: object = 0.0
    early: list | None = None


def _velocity(system: System, s: Moving, tau, ctrl, damped, sprung, ahead=0.0, slopes="") -> Change:
    """The velocity after smooth forces, then after the impulses of friction, limits and servos."""
    driven, inputs = drive(system, s.v, tau, ctrl), (tuple(s.act), tuple(split_controls(system.topology, ctrl).actuators))
    closed = tuple(closing(system, s.q, s.v))
    soft = constraints(system, s.q, s.v)
    x = acceleration(EquationOfMotion(system, s.q, s.v, driven.tau, *inputs, damped, sprung, driven.hold, closed, ahead, slopes, soft))
    moved = shifted(s.v, x.a, system.option.dt)
    if soft is None or rows(system.topology):
        moved, solved = apply_impulses(system, s.q, moved, driven.servo)
        return Change(moved, x.pivot, solved if soft is None else mul(solved, x.found), x.overflow, x.early)
    return Change(moved, x.pivot, x.found, x.overflow, x.early)


def _implicit_damping(system: System, s: Moving, tau, ctrl) -> Change:
    """Semi-implicit Euler with joint damping at the new velocity (the rule of RING)."""
    return _velocity(system, s, tau, ctrl, system.option.dt, 0.0)


def _euler(system: System, s: Moving, tau, ctrl) -> Change:
    """Semi-implicit Euler: new velocity first, then the position with it."""
    return _velocity(system, s, tau, ctrl, 0.0, 0.0)


def _dart(system: System, s: Moving, tau, ctrl) -> Change:
    """DART's rule: joint dampers and springs implicit, then impulses."""
    return _velocity(system, s, tau, ctrl, system.option.dt, mul(system.option.dt, system.option.dt))


def _linearly_implicit(system: System, s: Moving, tau, ctrl) -> Change:
    """Linearly implicit Euler: the springs, dampers and bushings of joints and between bodies at the end of the step, by their slopes."""
    return _velocity(system, s, tau, ctrl, system.option.dt, mul(system.option.dt, system.option.dt), system.option.dt)


def _implicitfast(system: System, s: Moving, tau, ctrl) -> Change:
    """Passive and actuator forces at the new velocity, by the symmetric part of their slopes (MuJoCo; 4.0: all forces of free bodies)."""
    slopes = "free" if system.topology.rules == "4.0" and lone_free(system) else "fast"
    return _velocity(system, s, tau, ctrl, 0.0, 0.0, slopes=slopes)


def _implicit(system: System, s: Moving, tau, ctrl) -> Change:
    """All smooth forces at the new velocity, by their slopes (MuJoCo)."""
    return _velocity(system, s, tau, ctrl, 0.0, 0.0, slopes="full")


def implicit_force(system: System, frame, q, v, a) -> list:
    """What the model's rule adds to the inertial force of an acceleration: dampers and springs at the end of the step."""
    name, out = system.topology.integrator, [0.0] * len(v)
    if name in ("implicit_damping", "dart", "linearly_implicit"):
        out = [mul(system.option.dt, x) for x in quadratic(system, frame, system.dof.damping, "damper").times(a)]
    if name in ("dart", "linearly_implicit"):
        ahead = [mul(system.option.dt, add(x, mul(system.option.dt, y))) for x, y in zip(v, a, strict=True)]
        out = [add(x, y) for x, y in zip(out, quadratic(system, frame, system.dof.stiffness, "spring").times(ahead), strict=True)]
    if name == "linearly_implicit":
        out = with_implicit_elements(out, implicit_element_rows(system, frame, q, v, system.option.dt), v, a)
    return out


FIRST_ORDER: dict[str, Callable] = {
    "implicit_damping": _implicit_damping, "euler": _euler, "dart": _dart, "linearly_implicit": _linearly_implicit,
    "implicitfast": _implicitfast, "implicit": _implicit,
}  # fmt: skip
"""Rules that make the new velocity first and move the position with it."""


def _rk4(system: System, s: Moving, tau, ctrl, recompute: bool) -> tuple:
    """Classical Runge-Kutta for the displacement from where the step begins, which keeps its fourth order on rotations (Munthe-Kaas,
    High order Runge-Kutta methods on manifolds, 1999; MuJoCo 4.0).

    As ``rk4_manifold`` the displacement is the stages' mean velocity, which is of second order for rotations (MuJoCo 3.2). recompute: the
    inside of a stage in the reverse pass."""
    stepwise = {"velocity", "locked", "servo"}.intersection(system.topology.drives)
    if rows(system.topology) or stepwise:
        raise ValueError(
            f"rk4 integrates smooth motion only; the model has {', '.join(sorted(stepwise)) or 'friction or limits'}: choose another "
            "integrator, or switch rows off with with_rows(model, ())"
        )
    _, outside, controls = split_controls(system.topology, ctrl)
    manifold = system.topology.integrator == "rk4_manifold"
    h = system.option.dt

    def full(xs):
        return spread(xs, system, s, tau, ctrl)

    def one(carry, now):
        """A stage: slopes where the last ones lead in the part ``reach`` of the step, summed with their weights."""
        (dq, dv, da), sums, health = carry
        reach, weight, dv = mul(h, now[0]), now[1], separate_kernels(dv)
        q = integrate(system, s.q, dq, reach)
        v, act, there = shifted(s.v, dv, reach), shifted(s.act, da, reach), at_time(system, add(s.time, reach), outside)
        driven = drive(there, v, tau, ctrl)
        soft = constraints(there, q, v)
        x = acceleration(EquationOfMotion(there, q, v, driven.tau, tuple(act), tuple(controls), hold=driven.hold, soft=soft))
        rates = v if manifold else displacement_rates(there, s.q, shifted([0.0] * len(v), dq, reach), v)
        slopes = (full(rates), full(x.a), full(activation_rates(there, act, controls)))
        sums = jax.tree.map(lambda total, k: total + weight * k, sums, slopes)
        worst = [jnp.minimum(a, b) for a, b in zip(health, full([x.pivot, x.found, sub(1.0, x.overflow)]), strict=True)]
        return (slopes, sums, worst), None

    zero = tuple(full([0.0] * n) for n in (len(s.v), len(s.v), len(s.act)))
    health = full([1.0, 1.0, 1.0])
    stages = jnp.array([[0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]], health[0].dtype).T
    run = jax.checkpoint(one, prevent_cse=False) if recompute else one
    (_, (dq, dv, da), health), _ = jax.lax.scan(run, (zero, zero, health), stages)
    q = integrate(system, s.q, dq, h)
    pivot, solved, within = health
    return q, shifted(s.v, dv, h), next_activations(system, s.act, da, h), pivot, solved, sub(1.0, within)


@stage
def _health(q, v, pivot, solved, overflow, old: Health) -> Health:
    # 0 * x is 0 for every finite x and NaN otherwise.
    bad = jnp.isnan(total([x * 0.0 for x in (*q, *v)]))
    unsolved = old.unsolved if isinstance(solved, float) else jnp.where(solved == 0, 1.0, old.unsolved)
    overflow = old.overflow if isinstance(overflow, float) else jnp.maximum(overflow, old.overflow)
    return Health(jnp.where(bad, 1.0, old.diverged), jnp.where(pivot == 0, 1.0, old.singular), unsolved, overflow)


RUNGE_KUTTA = ("rk4", "rk4_manifold")


def step_velocity(system: System, s: Moving, tau, ctrl) -> Change:
    """The velocity one step of the model's integrator leads to; of rk4, that of its first stage."""
    name = system.topology.integrator
    return FIRST_ORDER["euler" if name in RUNGE_KUTTA else name](system, s, tau, ctrl)


def in_stages(system: System) -> bool:
    """Whether all that a step computes is in the stages of Runge and Kutta."""
    return system.topology.integrator in RUNGE_KUTTA and not has_rows(system.topology)


def advance(system: System, s: Moving, tau, ctrl, recompute: bool = False) -> Moving:
    """One step with the model's integrator. recompute: see `in_stages`, the inside of the stages in the reverse pass."""
    _, outside, controls = split_controls(system.topology, ctrl)
    system = at_time(system, s.time, outside)
    if system.topology.integrator in RUNGE_KUTTA:
        q, v, act, pivot, solved, overflow = _rk4(system, s, tau, ctrl, recompute)
        open_rows = has_rows(system.topology)
    else:
        v, pivot, solved, overflow, _ = step_velocity(system, s, tau, ctrl)
        q = integrate(system, s.q, v, system.option.dt)
        act = next_activations(system, s.act, activation_rates(system, s.act, controls), system.option.dt)
        open_rows = active(system)  # couplings are closed by the acceleration of these rules
    if open_rows:
        q, v = project(at_time(system, add(s.time, system.option.dt), outside), q, v)
    return Moving(q, v, act, add(s.time, system.option.dt), _health(q, v, pivot, solved, overflow, s.health))
