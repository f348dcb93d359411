"""One step of time: integrators over components."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import activation_rates, next_activations
from xsim.dynamics.actuation.commands import drive, split_controls
from xsim.dynamics.constraints.holonomic import has_holonomic_rows, row_accelerations
from xsim.dynamics.constraints.loop_joints import active
from xsim.dynamics.constraints.soft_set import constraints
from xsim.dynamics.forces.passive import quadratic
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.integration.equation import (
    EXPLICIT,
    EquationOfMotion,
    ImplicitTerms,
    acceleration,
    implicit_element_rows,
    is_zero,
    with_implicit_elements,
)
from xsim.dynamics.integration.impulses import apply_impulses, rows
from xsim.dynamics.integration.projection import project
from xsim.dynamics.integration.velocity_derivatives import lone_free
from xsim.dynamics.layout import spread
from xsim.dynamics.tree.manifold import displacement_rates, integrate, shifted
from xsim.dynamics.tree.system import System
from xsim.registry import INTEGRATORS
from xsim.spatial import add, mul, separate_kernels, stage, sub, total


class Health(NamedTuple):
    """The flags of a state, each 1.0 where it is set (XLA's CPU compiler crashes on loops that make int32 of float64 comparisons)."""

    diverged: object
    singular: object
    unsolved: object
    overflow: object


class StateComponents(NamedTuple):
    """A state as components."""

    q: list
    v: list
    act: list
    time: object
    health: Health


class Change(NamedTuple):
    """The velocity after a step. pivot, solved: 0 where the mass matrix is singular, where impulses or soft constraints were not solved;
    overflow: 1 where more contacts were active than the buffer holds. explicit_a: see `Solved`."""

    v: list
    pivot: object
    solved: object
    overflow: object = 0.0
    explicit_a: list | None = None


class Advanced(NamedTuple):
    """The state after a step, and as of `Change`."""

    q: list
    v: list
    act: list
    pivot: object
    solved: object
    overflow: object = 0.0


class Integrator(NamedTuple):
    """An integration rule, an entry of `xsim.registry.INTEGRATORS`.

    advance(system, s, tau, ctrl, recompute) -> `Advanced`: one step. system: at the time of s; s: `StateComponents`; tau (nv) and ctrl (nu)
    as components; recompute: in reverse mode, whether to evaluate the inside of the step again instead of storing it (only where
    ``stages``). velocity(system, s, tau, ctrl) -> `Change`: the velocity after a step, of which `forward_dynamics` takes the mean
    acceleration where impulses act. implicit(system) -> `ImplicitTerms`. stages: whether all that a step computes is in a loop over stages.
    closes_couplings: whether couplings of coordinates are closed by the acceleration, whatever the velocity was."""

    advance: Callable
    velocity: Callable
    implicit: Callable = lambda system: EXPLICIT
    stages: bool = False
    closes_couplings: bool = False


def _velocity(system: System, s: StateComponents, tau, ctrl, implicit: ImplicitTerms) -> Change:
    """The velocity after smooth forces, then after the impulses of friction, limits and servos."""
    driven, soft = drive(system, s.v, tau, ctrl), constraints(system, s.q, s.v)
    equation = EquationOfMotion(
        system, s.q, s.v, driven.tau, tuple(s.act), tuple(split_controls(system.topology, ctrl).actuators), implicit, driven.prescribed,
        tuple(row_accelerations(system, s.q, s.v)), soft,
    )  # fmt: skip
    x = acceleration(equation)
    v = shifted(s.v, x.a, system.option.dt)
    if soft is None or rows(system.topology):
        v, solved = apply_impulses(system, s.q, v, driven.servo)
        return Change(v, x.pivot, solved if soft is None else mul(solved, x.found), x.overflow, x.explicit_a)
    return Change(v, x.pivot, x.found, x.overflow, x.explicit_a)


def semi_implicit(implicit: Callable = lambda system: EXPLICIT) -> Integrator:
    """The rule that finds the new velocity first and moves the position with it. implicit(system) -> `ImplicitTerms`: what acts at the end
    of the step."""

    def velocity(system: System, s: StateComponents, tau, ctrl) -> Change:
        return _velocity(system, s, tau, ctrl, implicit(system))

    def advance(system: System, s: StateComponents, tau, ctrl, recompute: bool) -> Advanced:
        change = velocity(system, s, tau, ctrl)
        rates = activation_rates(system, s.act, split_controls(system.topology, ctrl).actuators)
        act = next_activations(system, s.act, rates, system.option.dt)
        q = integrate(system, s.q, change.v, system.option.dt)
        return Advanced(q, change.v, act, change.pivot, change.solved, change.overflow)

    return Integrator(advance, velocity, implicit, closes_couplings=True)


def _step_squared(system: System):
    return mul(system.option.dt, system.option.dt)


def _implicitfast_terms(system: System) -> ImplicitTerms:
    free = system.topology.switches.free_bodies_fully_implicit and lone_free(system)
    return ImplicitTerms(velocity="free" if free else "fast")


def implicit_force(system: System, frame, q, v, a) -> list:
    """What the model's rule adds to the inertial force of an acceleration: dampers and springs at the end of the step."""
    terms, out = INTEGRATORS[system.topology.integrator].implicit(system), [0.0] * len(v)
    if not is_zero(terms.damping):
        out = [mul(terms.damping, x) for x in quadratic(system, frame, system.dof.damping, "damper").times(a)]
    if not is_zero(terms.springs):
        travel = [add(mul(terms.damping, x), mul(terms.springs, y)) for x, y in zip(v, a, strict=True)]
        out = [add(x, y) for x, y in zip(out, quadratic(system, frame, system.dof.stiffness, "spring").times(travel), strict=True)]
    if not is_zero(terms.elements):
        out = with_implicit_elements(out, implicit_element_rows(system, frame, q, v, terms.elements), v, a)
    return out


def _rk4(system: System, s: StateComponents, tau, ctrl, recompute: bool) -> Advanced:
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
        x = acceleration(EquationOfMotion(there, q, v, driven.tau, tuple(act), tuple(controls), prescribed=driven.prescribed, soft=soft))
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
    return Advanced(q, shifted(s.v, dv, h), next_activations(system, s.act, da, h), pivot, solved, sub(1.0, within))


@stage
def _health(q, v, pivot, solved, overflow, old: Health) -> Health:
    # 0 * x is 0 for every finite x and NaN otherwise.
    bad = jnp.isnan(total([x * 0.0 for x in (*q, *v)]))
    unsolved = old.unsolved if isinstance(solved, float) else jnp.where(solved == 0, 1.0, old.unsolved)
    overflow = old.overflow if isinstance(overflow, float) else jnp.maximum(overflow, old.overflow)
    return Health(jnp.where(bad, 1.0, old.diverged), jnp.where(pivot == 0, 1.0, old.singular), unsolved, overflow)


RUNGE_KUTTA = ("rk4", "rk4_manifold")

INTEGRATORS.register("implicit_damping", semi_implicit(lambda system: ImplicitTerms(damping=system.option.dt)))
"""Joint damping at the new velocity (the rule of RING)."""
INTEGRATORS.register("euler", semi_implicit())
"""Semi-implicit Euler."""
INTEGRATORS.register("dart", semi_implicit(lambda system: ImplicitTerms(system.option.dt, _step_squared(system))))
"""DART's rule: joint dampers and springs at the end of the step, then impulses."""
INTEGRATORS.register(
    "linearly_implicit", semi_implicit(lambda system: ImplicitTerms(system.option.dt, _step_squared(system), system.option.dt))
)
"""Linearly implicit Euler: the springs, dampers and bushings of joints and between bodies at the end of the step."""
INTEGRATORS.register("implicitfast", semi_implicit(_implicitfast_terms))
"""Passive and actuator forces at the new velocity, by the symmetric part of their derivatives (MuJoCo; 4.0: all forces of free bodies)."""
INTEGRATORS.register("implicit", semi_implicit(lambda system: ImplicitTerms(velocity="full")))
"""All smooth forces at the new velocity, by their derivatives (MuJoCo)."""
for _name in RUNGE_KUTTA:
    INTEGRATORS.register(_name, Integrator(_rk4, INTEGRATORS["euler"].velocity, stages=True))


def step_velocity(system: System, s: StateComponents, tau, ctrl) -> Change:
    """The velocity after one step of the model's integrator; of rk4, after its first stage."""
    return INTEGRATORS[system.topology.integrator].velocity(system, s, tau, ctrl)


def in_stages(system: System) -> bool:
    """Whether all that a step computes is in the stages of the integrator."""
    return INTEGRATORS[system.topology.integrator].stages and not has_holonomic_rows(system.topology)


def advance(system: System, s: StateComponents, tau, ctrl, recompute: bool = False) -> StateComponents:
    """One step with the model's integrator. recompute: see `Integrator.advance`."""
    integrator, outside = INTEGRATORS[system.topology.integrator], split_controls(system.topology, ctrl).functions
    system = at_time(system, s.time, outside)
    q, v, act, pivot, solved, overflow = integrator.advance(system, s, tau, ctrl, recompute)
    time = add(s.time, system.option.dt)
    if active(system) if integrator.closes_couplings else has_holonomic_rows(system.topology):
        q, v = project(at_time(system, time, outside), q, v)
    return StateComponents(q, v, act, time, _health(q, v, pivot, solved, overflow, s.health))
