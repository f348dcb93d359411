"""Integrators: one time step of a state given as components."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.actuation.actuation import (
    activation_rates,
    controller_motion,
    has_periodic_activations,
    nearest_activations,
    next_activations,
)
from xsim.dynamics.actuation.commands import apply_commands, split_controls
from xsim.dynamics.actuation.delays import delayed_controls, with_controls
from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.holonomic import has_holonomic_rows, row_accelerations
from xsim.dynamics.constraints.loop_joints import active
from xsim.dynamics.constraints.soft_set import constraints, has_warm_start
from xsim.dynamics.forces.passive import damping_matrix, quadratic
from xsim.dynamics.forces.plasticity import next_plastic, with_plastic_springs
from xsim.dynamics.forces.time_functions import at_time
from xsim.dynamics.integration.equation import (
    EXPLICIT,
    EquationOfMotion,
    ImplicitTerms,
    acceleration,
    implicit_element_rows,
    with_implicit_elements,
)
from xsim.dynamics.integration.impulses import apply_impulses, impulse_rows
from xsim.dynamics.integration.projection import project
from xsim.dynamics.integration.velocity_derivatives import free_body_dofs
from xsim.dynamics.integration.velocity_stepping import constraints_of_step
from xsim.dynamics.layout import spread
from xsim.dynamics.tendons.tendons import tendons
from xsim.dynamics.tree.kinematics import frames
from xsim.dynamics.tree.manifold import displacement_rates, integrate, shifted
from xsim.dynamics.tree.polynomials import slope
from xsim.dynamics.tree.system import System
from xsim.registry import INTEGRATORS
from xsim.spatial import add, is_zero, mul, separate_kernels, stage, sub, total


class Health(NamedTuple):
    """The flags of a state as floats, 1.0 where set.

    They are not integers: XLA's CPU compiler crashes on loops that convert float64 comparisons to int32."""

    diverged: object
    singular: object
    unsolved: object
    overflow: object


class StateComponents(NamedTuple):
    """A state as components: q (nq), v (nv), act (na), time (s), health, history (nhistory), plastic (nplastic)."""

    q: list
    v: list
    act: list
    time: object
    health: Health
    history: Sequence = ()
    plastic: Sequence = ()


class StepInputs(NamedTuple):
    """What a step depends on, besides the system and the state.

    * tau (nv), ctrl (nu): components.
    * recompute: whether reverse mode evaluates the stages again instead of storing them; only used if `Integrator.stages` is true.
    * solutions: `Step.solutions` of an earlier evaluation of the same step, which are not computed again. None: they are computed.
    * start (nv): see `EquationOfMotion`. Of the step before, the first nv of `Step.solutions`.
    """

    tau: list
    ctrl: list
    recompute: bool = False
    solutions: list | None = None
    start: list | None = None


class Step(NamedTuple):
    """A step. state: after it. solutions: of the equations of motion that it solves, components, see `equation.Solved.x`. Those of
    the last stage of Runge-Kutta come first."""

    state: StateComponents
    solutions: list


class NextVelocity(NamedTuple):
    """The velocity after a step.

    * v: velocity (nv).
    * pivot: 0 where the mass matrix is singular.
    * converged: 0 where the solver of the impulses or of the soft constraints did not converge.
    * overflow: 1 where more contacts are active than the contact buffer has entries.
    * explicit_a: see `Solved`.
    * solutions: see `Step`.
    """

    v: list
    pivot: object
    converged: object
    overflow: object
    explicit_a: list | None
    solutions: list


class Advanced(NamedTuple):
    """The state after a step: q (nq), v (nv), act (na). pivot, converged, overflow, solutions: see `NextVelocity`."""

    q: list
    v: list
    act: list
    pivot: object
    converged: object
    overflow: object
    solutions: list


class Integrator(NamedTuple):
    """An integration rule, an entry of `xsim.registry.INTEGRATORS`.

    * advance(system, s, inputs) -> `Advanced`: one step. system: at the time of s. s: `StateComponents`. inputs: `StepInputs`.
    * velocity(system, s, inputs) -> `NextVelocity`: the velocity after a step. If impulses act, `forward_dynamics` returns the mean
      acceleration over the step from it.
    * implicit(system) -> `ImplicitTerms`.
    * stages: whether the step is a loop over stages that contains all of its computation. It then delays the controls of ctrl itself, at
      the time of each stage.
    * by_step: whether forward dynamics gives the acceleration over a step, with the implicit terms.
    * closes_couplings: whether the acceleration corrects the velocity error of coupled coordinates within a step.
    """

    advance: Callable
    velocity: Callable
    implicit: Callable = lambda system: EXPLICIT
    stages: bool = False
    closes_couplings: bool = False
    by_step: bool = False


def _velocity(system: System, s: StateComponents, inputs: StepInputs, implicit: ImplicitTerms) -> NextVelocity:
    """The velocity after a step of smooth forces, soft constraints and the impulses of friction, limits and servos."""
    commands = apply_commands(system, s.v, inputs.tau, inputs.ctrl)
    controls = tuple(split_controls(system.topology, inputs.ctrl).actuators)
    soft = constraints_of_step(system, s.q, s.v, s.act, controls)
    equation = EquationOfMotion(
        system, s.q, s.v, commands.tau, tuple(s.act), controls, implicit, commands.prescribed, tuple(row_accelerations(system, s.q, s.v)),
        soft, inputs.solutions, inputs.start,
    )  # fmt: skip
    x = acceleration(equation)
    v, converged = shifted(s.v, x.a, system.option.dt), x.converged
    if soft is None or impulse_rows(system.topology):
        v, search_converged = apply_impulses(system, s.q, v, commands.servo)
        converged = search_converged if soft is None else mul(search_converged, converged)
    return NextVelocity(v, x.pivot, converged, x.overflow, x.explicit_a, x.x)


def semi_implicit(implicit: Callable = lambda system: EXPLICIT) -> Integrator:
    """Semi-implicit integration: the new velocity is computed first and the position is integrated with it.

    implicit(system) -> `ImplicitTerms`: the forces that are evaluated at the end of the step."""

    def velocity(system: System, s: StateComponents, inputs: StepInputs) -> NextVelocity:
        return _velocity(system, s, inputs, implicit(system))

    def advance(system: System, s: StateComponents, inputs: StepInputs) -> Advanced:
        new = velocity(system, s, inputs)
        motion = controller_motion(system, s.q, s.v)
        rates = activation_rates(system, s.act, split_controls(system.topology, inputs.ctrl).actuators, motion)
        act = next_activations(system, s.act, rates, system.option.dt, motion)
        q = integrate(system, s.q, new.v, system.option.dt)
        return Advanced(q, new.v, act, new.pivot, new.converged, new.overflow, new.solutions)

    return Integrator(advance, velocity, implicit, closes_couplings=True)


def _all_springs_and_dampers(system: System) -> ImplicitTerms:
    dt = system.option.dt
    return ImplicitTerms(dt, mul(dt, dt), dt, dt)


def _discrete_terms(system: System) -> ImplicitTerms:
    top = system.topology
    unknown = {
        "flexes with springs along edges, lines that bend, or yielding": any(
            flex.spring is not None or flex.rod or flex.yield_strain is not None or flex.bend_yield_strain is not None
            for flex in top.flexes
        ),
        "noslip": top.noslip,
        "friction, limits or servos as impulses": impulse_rows(top),
    }
    found = ", ".join(name for name, part in unknown.items() if part)
    if found:
        raise ValueError(f"the integrator discrete is for models without {found}: choose another integrator")
    return _all_springs_and_dampers(system)._replace(velocity="step")


def _implicitfast_terms(system: System) -> ImplicitTerms:
    free = system.topology.switches.free_bodies_fully_implicit and free_body_dofs(system)
    return ImplicitTerms(velocity="free" if free else "fast")


def implicit_force(system: System, frame, q, v, a) -> list:
    """The generalized force (nv) that implicit dampers and springs of the model's integrator add to inverse dynamics at acceleration a."""
    terms, out = INTEGRATORS[system.topology.integrator].implicit(system), [0.0] * len(v)
    if not is_zero(terms.damping):
        out = [mul(terms.damping, x) for x in damping_matrix(system, frame, v, slope).times(a)]
    if not is_zero(terms.springs):
        displacement = [add(mul(terms.damping, x), mul(terms.springs, y)) for x, y in zip(v, a, strict=True)]
        out = [add(x, y) for x, y in zip(out, quadratic(system, frame, system.dof.stiffness, "spring").times(displacement), strict=True)]
    return with_implicit_elements(out, implicit_element_rows(system, frame, q, v, terms), v, a)


def _rk4(system: System, s: StateComponents, inputs: StepInputs) -> Advanced:
    """Classical fourth-order Runge-Kutta method for the state and for the displacement from the start of the step.

    ``rk4`` integrates the rate of the displacement, which is of fourth order for rotations too (Munthe-Kaas, High order Runge-Kutta methods
    on manifolds, 1999; MuJoCo 4.0). ``rk4_manifold`` uses the mean velocity of the stages as the rate, which is of second order for
    rotations (MuJoCo 3.2)."""
    rows = impulse_rows(system.topology)
    nonsmooth = {"velocity", "locked"}.intersection(system.topology.drives) | ({"servo"} if any(row.servo for row in rows) else set())
    if rows or nonsmooth:
        raise ValueError(
            f"rk4 integrates smooth motion only; the model has {', '.join(sorted(nonsmooth)) or 'friction or limits'}: choose another "
            "integrator, or switch constraints off with with_constraints(model, ())"
        )
    tau, ctrl = inputs.tau, inputs.ctrl
    external = split_controls(system.topology, ctrl).functions
    manifold = system.topology.integrator == "rk4_manifold"
    h = system.option.dt

    def full(xs):
        return spread(xs, system, s, tau, ctrl)

    def rk_stage(carry, xs):
        """One stage: the rates at the state that the rates of the last stage lead to, and their weighted sum so far."""
        (dq, dv, da), sums, health, start = carry
        node_and_weight, solution = xs
        reach, weight, dv = mul(h, node_and_weight[0]), node_and_weight[1], separate_kernels(dv)
        q = integrate(system, s.q, dq, reach)
        time = add(s.time, reach)
        v, act, now = shifted(s.v, dv, reach), shifted(s.act, da, reach), at_time(system, time, external)
        commands, soft = apply_commands(now, v, tau, ctrl), constraints(now, q, v)
        controls = split_controls(now.topology, delayed_controls(now, s.history, time, ctrl)).actuators
        x = acceleration(EquationOfMotion(
            now, q, v, commands.tau, tuple(act), tuple(controls), prescribed=commands.prescribed, soft=soft, solution=solution, start=start
        ))  # fmt: skip
        dq_rates = v if manifold else displacement_rates(now, s.q, shifted([0.0] * len(v), dq, reach), v)
        rates = (full(dq_rates), full(x.a), full(activation_rates(now, act, controls, controller_motion(now, q, v))))
        sums = jax.tree.map(lambda total, k: total + weight * k, sums, rates)
        worst = [jnp.minimum(a, b) for a, b in zip(health, full([x.pivot, x.converged, sub(1.0, x.overflow)]), strict=True)]
        start = None if start is None else jax.lax.stop_gradient(full(x.explicit_a))
        return (rates, sums, worst, start), full(x.x)

    zero = tuple(full([0.0] * n) for n in (len(s.v), len(s.v), len(s.act)))
    health = full([1.0, 1.0, 1.0])
    stages = jnp.array([[0.0, 0.5, 0.5, 1.0], [1 / 6, 1 / 3, 1 / 3, 1 / 6]], health[0].dtype).T
    known = None if inputs.solutions is None else _by_component(inputs.solutions, len(stages))
    run = jax.checkpoint(rk_stage, prevent_cse=False) if inputs.recompute else rk_stage
    start = full([jnp.nan] * len(s.v) if inputs.start is None else inputs.start) if has_warm_start(system.topology) else None
    (_, (dq, dv, da), health, _), solutions = jax.lax.scan(run, (zero, zero, health, start), (stages, known))
    q = integrate(system, s.q, dq, h)
    pivot, converged, within = health
    act = next_activations(system, s.act, da, h, controller_motion(system, s.q, s.v))
    return Advanced(q, shifted(s.v, dv, h), act, pivot, converged, sub(1.0, within), _by_stage(solutions, len(stages)))


def _by_component(solutions: list, count: int) -> list:
    """The components (count, *lanes) of solutions that are listed by stage, the last stage first."""
    width = len(solutions) // count
    return [jnp.stack(solutions[i::width][::-1]) for i in range(width)]


def _by_stage(components: list, count: int) -> list:
    """The inverse of `_by_component`."""
    by_component = [jnp.unstack(x) for x in components]
    return [x[k] for k in reversed(range(count)) for x in by_component]


@stage
def _health(q, v, pivot, converged, overflow, old: Health) -> Health:
    # 0 * x is 0 for every finite x and NaN otherwise.
    bad = jnp.isnan(total([x * 0.0 for x in (*q, *v)]))
    unsolved = old.unsolved if isinstance(converged, float) else jnp.where(converged == 0, 1.0, old.unsolved)
    overflow = old.overflow if isinstance(overflow, float) else jnp.maximum(overflow, old.overflow)
    return Health(jnp.where(bad, 1.0, old.diverged), jnp.where(pivot == 0, 1.0, old.singular), unsolved, overflow)


RUNGE_KUTTA = ("rk4", "rk4_manifold")

INTEGRATORS.register(
    "implicit_damping", semi_implicit(lambda system: ImplicitTerms(damping=system.option.dt, elements=system.option.dt))
)
"""Semi-implicit Euler with the dampers of joints (as in RING) and between bodies at the new velocity."""
INTEGRATORS.register("euler", semi_implicit())
"""Semi-implicit Euler."""
INTEGRATORS.register("dart", semi_implicit(_all_springs_and_dampers))
"""Springs, dampers and bushings, of joints and between bodies, at the end of the step, then impulses (as in DART)."""
INTEGRATORS.register("linearly_implicit", semi_implicit(_all_springs_and_dampers))
"""Linearly implicit Euler: springs, dampers and bushings, of joints and between bodies, at the end of the step."""
INTEGRATORS.register("implicitfast", semi_implicit(_implicitfast_terms))
"""Passive and actuator forces at the new velocity, by the symmetric part of their derivatives (MuJoCo; 4.0: all forces of free bodies)."""
INTEGRATORS.register("implicit", semi_implicit(lambda system: ImplicitTerms(velocity="full")))
"""All smooth forces at the new velocity, by their derivatives (MuJoCo)."""
INTEGRATORS.register("discrete", semi_implicit(_discrete_terms)._replace(by_step=True))
"""All smooth forces and soft constraints at the end of the step, to first order, in one solve (MuJoCo 4.0)."""
for _name in RUNGE_KUTTA:
    INTEGRATORS.register(_name, Integrator(_rk4, INTEGRATORS["euler"].velocity, stages=True))


def step_velocity(system: System, s: StateComponents, inputs: StepInputs) -> NextVelocity:
    """The velocity after one step of the model's integrator. For rk4: after a step of Euler's method."""
    return INTEGRATORS[system.topology.integrator].velocity(system, s, inputs)


def in_stages(system: System) -> bool:
    """Whether the stages of the integrator contain all computation of a step."""
    return INTEGRATORS[system.topology.integrator].stages and not has_holonomic_rows(system.topology)


def advance(system: System, s: StateComponents, inputs: StepInputs) -> Step:
    """One step with the model's integrator."""
    integrator, ctrl = INTEGRATORS[system.topology.integrator], inputs.ctrl
    external = split_controls(system.topology, ctrl).functions
    system = with_plastic_springs(at_time(system, s.time, external), s.plastic)
    acting = ctrl if integrator.stages else delayed_controls(system, s.history, s.time, ctrl)
    q, v, act, pivot, converged, overflow, solutions = integrator.advance(system, s, inputs._replace(ctrl=acting))
    if has_periodic_activations(system.topology) and "actuation" not in system.topology.disabled:
        frame = frames(system, s.q)
        act = nearest_activations(system, transmissions(system, frame, s.q, tendons(system, frame, s.q)), act)
    time = add(s.time, system.option.dt)
    if active(system) if integrator.closes_couplings else has_holonomic_rows(system.topology):
        q, v = project(at_time(system, time, external), q, v)
    history = with_controls(system, s.history, s.time, ctrl)
    health = _health(q, v, pivot, converged, overflow, s.health)
    return Step(StateComponents(q, v, act, time, health, history, next_plastic(system, s.q, q, s.plastic)), solutions)
