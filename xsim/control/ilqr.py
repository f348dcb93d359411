"""Trajectory optimization: the iterative linear quadratic regulator with control limits.

Li and Todorov, Iterative Linear Quadratic Regulator Design for Nonlinear Biological Movement Systems (2004): differential dynamic
programming without the second derivatives of the dynamics. Control limits: Tassa, Mansard and Todorov, Control-Limited Differential
Dynamic Programming (2014). Regularization: Marquardt, An Algorithm for Least-Squares Estimation of Nonlinear Parameters (1963).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.control.box_qp import box_minimum, solve_free
from xsim.control.tangent import Expansion, Problem, advance, as_partial, deviation, drive_of, expand, width
from xsim.dynamics.call import check_model, compiled
from xsim.model.model import Model, State, unfrozen

__all__ = ["START_REGULARIZATION", "Plan", "control_limits", "feedback", "ilqr"]

START_REGULARIZATION = 1e-2
MAX_REGULARIZATION = 1e6
STEP_SIZES = 8
"""Of the line search: 1, 1/2, 1/4, ... All are simulated at once."""
SUFFICIENT_DECREASE = 1e-4
"""Least share of the expected decrease of the cost that a step must reach (Armijo)."""


class Plan(NamedTuple):
    """An optimized trajectory of T controls; a pytree.

    * states: `State` with a leading axis (T + 1). ctrls: (T, m).
    * gains: (T, m, 2 nv + na), the optimal change of the control per deviation of the state (`feedback`); zero at a limit.
    * cost: of the trajectory. cost_history: (max_iterations + 1,), of the start and after every iteration, then NaN.
    * converged: whether an expected or actual decrease of the cost was below the tolerance. iterations: number of them.
    * regularization: of the last iteration, where the next problem may start. limits: (2, m), the bounds of the controls.
    """

    states: State
    ctrls: Any
    gains: Any
    cost: Any
    cost_history: Any
    converged: Any
    iterations: Any
    regularization: Any
    limits: Any


def ilqr(
    model: Model,
    state: State,
    ctrls,
    cost: Callable,
    final_cost: Callable,
    *,
    limits=None,
    drive: Callable | None = None,
    substeps: int = 1,
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    regularization: Any = START_REGULARIZATION,
) -> Plan:
    """The controls that minimize the sum of cost(state, ctrl, t) over t = 0 ... T - 1 plus final_cost of the last state.

    state: the start, without a batch; ``jax.vmap`` solves for several. ctrls: (T, m), the first guess.
    cost, final_cost: to scalars, twice differentiable in the state and the control. t: index of the control; ``state.time`` is the time, s.
    Define them once: every new function is compiled. For numbers that change, such as a goal, use ``jax.tree_util.Partial(cost, goal)``.
    limits: (low, high), each a number or (m,), which all controls satisfy. None: those of the model's actuators.
    drive(ctrl) -> (ctrl, tau): inputs of the step, where they are not the controls themselves. None: the controls of the model, or the
    generalized forces (m = nv) of a model without controls.
    substeps: number of steps for which a control is constant; costs count at the start of each control.
    max_iterations, tolerance: the search ends where a step decreases the cost by at most ``tolerance`` times the cost, or would.
    regularization: of the first iteration, as a share of the curvature. It falls while steps succeed and rises while they fail.

    History and plastic springs count as constants in the derivatives. The result is a local minimum, which depends on the first guess. A
    guess that diverges is not improved: its cost is NaN.

    Raises ValueError for a batch of starts, a wrong width, limits that contradict each other, delayed controls and costs that are not
    scalars; TypeError for a cost that is no function.
    """
    check_model("ilqr", model)
    for name, function in (("cost", cost), ("final_cost", final_cost)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, found {type(function).__name__}")
    if state.q.ndim != 1:
        raise ValueError(f"ilqr takes one start, found a batch {state.q.shape[:-1]}: use jax.vmap for several")
    if any(info.history is not None for info in model.topology.actuators):
        raise ValueError("ilqr does not know controls that act with a delay")
    if substeps < 1 or max_iterations < 1:
        raise ValueError(f"substeps and max_iterations must be at least 1, found {substeps} and {max_iterations}")
    ctrls = jnp.asarray(ctrls, state.q.dtype)
    inputs = model.nu or model.nv
    if ctrls.ndim != 2 or not len(ctrls) or (drive is None and ctrls.shape[1] != inputs):
        raise ValueError(f"ctrls must have shape (T, {'m' if drive else inputs}) with T of 1 or more, found {ctrls.shape}")
    bounds = control_limits(model, limits, ctrls, drive is None)
    start = jnp.asarray(regularization, ctrls.dtype)
    functions = as_partial(cost), as_partial(final_cost), drive_of(model, drive)
    return _solve(model, state, ctrls, *functions, bounds, start, substeps, max_iterations, tolerance)


def feedback(model: Model, plan: Plan, state: State, t):
    """The control (m,) of a plan at index t in a state near the planned one: the planned control plus the gains times the deviation.

    It keeps the limits of the plan. t may be traced."""
    reference = jax.tree.map(lambda x: x[t], plan.states)
    return jnp.clip(plan.ctrls[t] + plan.gains[t] @ deviation(model, reference, state), *plan.limits)


# ---- limits -------------------------------------------------------------------------------------------------------------------


def control_limits(model: Model, limits, ctrls, direct: bool):
    """Bounds (2, m) of controls (T, m). limits: as in `ilqr`, which raises ValueError as this does. direct: whether the controls are those
    of the model."""
    m = ctrls.shape[1]
    if limits is None:
        return _model_limits(model, ctrls.dtype) if direct and model.nu else jnp.array([[-jnp.inf] * m, [jnp.inf] * m], ctrls.dtype)
    try:
        low, high = (jnp.broadcast_to(jnp.asarray(x, ctrls.dtype), (m,)) for x in limits)
    except (TypeError, ValueError) as e:
        raise ValueError(f"limits must be (low, high), each a number or ({m},), found {limits!r}") from e
    bounds = jnp.stack([low, high])
    if not isinstance(bounds, jax.core.Tracer) and not bool((low <= high).all()):
        raise ValueError(f"limits: low must not exceed high, found {low} and {high}")
    return bounds


def _model_limits(model: Model, dtype):
    """The bounds (2, nu) of the model's controls; infinite for a control without."""
    bounds = jnp.stack([jnp.full(model.nu, -jnp.inf, dtype), jnp.full(model.nu, jnp.inf, dtype)])
    values = jnp.asarray(unfrozen(model.get("actuator.ctrl_range")), dtype)
    first = model.nu - sum(len(info.controls) for info in model.topology.actuators)
    for info in model.topology.actuators:
        for i, row in zip(info.controls, info.ctrl_ranges, strict=True):
            bounds = bounds if row is None else bounds.at[:, first + i].set(values[row])
    return bounds


# ---- the iteration ----------------------------------------------------------------------------------------------------------------


class Search(NamedTuple):
    """What an iteration starts from: a trajectory, its cost, and an expansion, which is of the trajectory before where ``moved`` holds."""

    states: State
    ctrls: Any
    cost: Any
    expansion: Expansion
    moved: Any
    regularization: Any
    iteration: Any
    history: Any
    converged: Any
    ended: Any


@functools.partial(compiled, static_argnames=("substeps", "max_iterations", "tolerance"))
def _solve(model, state, ctrls, cost, final_cost, drive, bounds, regularization, substeps, max_iterations, tolerance) -> Plan:
    p = Problem(model, cost, final_cost, drive, bounds[0], bounds[1], substeps)
    _check_costs(p, state, ctrls)
    ctrls = jnp.clip(ctrls, *bounds)
    states, first = _simulated(p, state, ctrls)
    history = jnp.full(max_iterations + 1, jnp.nan, ctrls.dtype).at[0].set(first)
    yes, no = jnp.ones((), bool), jnp.zeros((), bool)
    expansion = Expansion.zero(width(model), ctrls)
    begin = Search(states, ctrls, first, expansion, yes, regularization, jnp.zeros((), jnp.int32), history, no, no)
    tolerance = max(tolerance, 10 * float(jnp.finfo(ctrls.dtype).eps))
    s = jax.lax.while_loop(lambda s: ~s.ended, functools.partial(_iterate, p, tolerance), begin)
    gains = _backward(p, s.expansion, s.ctrls, _least_regularization(ctrls.dtype)).gains
    return Plan(s.states, s.ctrls, gains, s.cost, s.history, s.converged, s.iteration, s.regularization, bounds)


def _check_costs(p: Problem, state: State, ctrls) -> None:
    index = jax.ShapeDtypeStruct((), jnp.arange(1).dtype)
    found = {"cost": jax.eval_shape(p.cost, state, ctrls[0], index), "final_cost": jax.eval_shape(p.final_cost, state)}
    for name, x in found.items():
        if getattr(x, "shape", None) != ():
            raise ValueError(f"{name} must return a scalar, found {x}")


def _least_regularization(dtype) -> float:
    return 1e-9 if dtype == jnp.float64 else 1e-6


def _iterate(p: Problem, tolerance: float, s: Search) -> Search:
    """An expansion where the trajectory is new, a backward pass, and a line search unless the search ends."""
    e = jax.lax.cond(s.moved, lambda: expand(p, s.states, s.ctrls), lambda: s.expansion)
    law = _backward(p, e, s.ctrls, s.regularization)
    # A step that is shortened by the regularization promises less.
    little = tolerance * jnp.abs(s.cost) / (1.0 + s.regularization)
    converged = s.converged | (law.expected(1.0) <= little)
    exhausted = (s.iteration >= len(s.history) - 1) | (s.regularization > MAX_REGULARIZATION) | ~jnp.isfinite(s.cost)
    ended = converged | exhausted
    nothing = s.states, s.ctrls, s.cost, jnp.zeros_like(s.cost)
    states, ctrls, cost, size = jax.lax.cond(ended, lambda: nothing, lambda: _line_search(p, s, law))
    change = jnp.where(size >= 0.25, 0.25, jnp.where(size > 0, 1.0, 8.0))
    regularization = jnp.where(ended, s.regularization, jnp.maximum(change * s.regularization, _least_regularization(ctrls.dtype)))
    iteration = s.iteration + ~ended
    history = s.history.at[iteration].set(cost)
    converged = converged | ((size > 0) & (s.cost - cost <= little))
    return Search(states, ctrls, cost, e, size > 0, regularization, iteration, history, converged, ended)


class Law(NamedTuple):
    """The change of the controls: offsets (T, m) plus gains (T, m, n) times the deviation. slope, curvature: of the cost along it."""

    offsets: Any
    gains: Any
    slope: Any
    curvature: Any

    def expected(self, size):
        """The decrease of the cost that a step of this size should bring."""
        return -size * (self.slope + 0.5 * size * self.curvature)


def _backward(p: Problem, e: Expansion, ctrls, regularization) -> Law:
    """The law that minimizes the expansion, stage by stage from the last."""
    n = width(p.model)
    tiny = float(jnp.finfo(ctrls.dtype).eps)

    def stage(value, x):
        (dynamics, gradient, hessian), ctrl = x
        q, Q = gradient + dynamics.T @ value[0], hessian + dynamics.T @ value[1] @ dynamics
        q_u, Q_uu, Q_ux = q[n:], Q[n:, n:], Q[n:, :n]
        diagonal = jnp.diagonal(Q_uu)
        regularized = Q_uu + jnp.diag(regularization * diagonal + tiny * jnp.maximum(jnp.max(diagonal), 1.0))
        offset, free = box_minimum(regularized, q_u, p.low - ctrl, p.high - ctrl)
        gain = solve_free(regularized, free, -Q_ux)
        slope = q[:n] + Q_ux.T @ offset + gain.T @ (q_u + Q_uu @ offset)
        curvature = Q[:n, :n] + gain.T @ Q_uu @ gain + gain.T @ Q_ux + Q_ux.T @ gain
        return (slope, 0.5 * (curvature + curvature.T)), (offset, gain, offset @ q_u, offset @ Q_uu @ offset)

    stages = (e.dynamics, e.gradient, e.hessian), ctrls
    _, (offsets, gains, slope, curvature) = jax.lax.scan(stage, (e.final_gradient, e.final_hessian), stages, reverse=True)
    return Law(offsets, gains, slope.sum(), curvature.sum())


def _line_search(p: Problem, s: Search, law: Law):
    """States, controls, cost and size of the best step; of size 0, the present ones, where no step reaches a sufficient decrease."""
    sizes = 0.5 ** jnp.arange(STEP_SIZES, dtype=s.ctrls.dtype)
    found = *jax.vmap(lambda size: _followed(p, s, law, size))(sizes), sizes
    costs = found[2]
    enough = (costs < s.cost) & (s.cost - costs >= SUFFICIENT_DECREASE * law.expected(sizes))  # false where the cost is NaN
    best = jnp.argmin(jnp.where(enough, costs, jnp.inf))
    now = s.states, s.ctrls, s.cost, jnp.zeros_like(s.cost)
    return jax.tree.map(lambda new, old: jnp.where(enough[best], new[best], old), found, now)


def _followed(p: Problem, s: Search, law: Law, size):
    """States, controls and cost of a motion under a law, its offsets times ``size``."""
    first = jax.tree.map(lambda x: x[0], s.states)
    reference = jax.tree.map(lambda x: x[:-1], s.states)

    def one(state, x):
        planned, ctrl, offset, gain, t = x
        ctrl = jnp.clip(ctrl + size * offset + gain @ deviation(p.model, planned, state), p.low, p.high)
        after = advance(p, state, ctrl)
        return after, (after, ctrl, p.cost(state, ctrl, t))

    stages = reference, s.ctrls, law.offsets, law.gains, jnp.arange(len(s.ctrls))
    last, (states, ctrls, costs) = jax.lax.scan(one, first, stages)
    return _with_first(first, states), ctrls, costs.sum() + p.final_cost(last)


def _simulated(p: Problem, state: State, ctrls):
    """States (T + 1) and cost of the motion under given controls."""

    def one(state, x):
        after = advance(p, state, x[0])
        return after, (after, p.cost(state, *x))

    last, (states, costs) = jax.lax.scan(one, state, (ctrls, jnp.arange(len(ctrls))))
    return _with_first(state, states), costs.sum() + p.final_cost(last)


def _with_first(first: State, states: State) -> State:
    return jax.tree.map(lambda x, xs: jnp.concatenate([x[None], xs]), first, states)
