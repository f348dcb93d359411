"""`fit` and its solvers: Gauss-Newton methods of optimistix on the residuals, gradient methods of optax on the cost."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.sharding import dividing
from xsim.suggestions import did_you_mean
from xsim.sysid.linearization import Linear, Pieces, Problems, Whole
from xsim.sysid.problem import Problem, prepare
from xsim.sysid.residuals import Data, Structure, physical, residuals
from xsim.sysid.statistics import Fit, Minimum, make_fit, of_pieces, of_problem

__all__ = ["Solver", "fit"]

NOT_FINITE = "the trajectory of the starting model is not finite: start elsewhere, or cut it with Segments and their states"


@dataclass(frozen=True)
class Solver:
    """How `fit` minimizes.

    method: ``"lm"`` (Levenberg-Marquardt), ``"gauss_newton"``, an optimistix solver of that family (extra ``fit``); ``"adam"`` (with
    learning rate 0.03 in the unconstrained numbers, about 3 percent per step) or an ``optax.GradientTransformation``.
    max_steps: default 100, for gradient methods 1000. xtol, ftol: stop where no unconstrained number moves by more than xtol or
    the cost falls by less than this fraction; defaults by the model's float type.
    """

    method: Any = "lm"
    max_steps: int | None = None
    xtol: float | None = None
    ftol: float | None = None


def fit(problem: Problem | Problems, solver: Any = "lm", *, across_processes: bool = False) -> Fit:
    """Fit parameters of a model to measured trajectories. solver: a `Solver`, or its method alone.

    The trajectories of a problem, and its segments, are divided among the devices in use (`xsim.use_devices`, `xsim.use_cores`), from one
    per device; each device computes the rows of the Jacobian that belong to its trajectories.

    problem: one; or several with the same parameters, for recordings that do not fit into memory together: an iterable that every
    iteration of a least-squares method reads anew, one problem at a time (a list, a data loader), or a function that returns one. The
    starts of such problems are known (``initial="known"``, ``Segments(starts="measured")``). The fields of the result with one number a
    sample or a trajectory are None then, and its model is that of the first problem. across_processes: each process of `jax.distributed`
    gives problems of its own, whose states are on its own devices (without `xsim.use_devices`), and gets the fit to those of all.

    Raises KeyError for an unknown leaf or body, ValueError for a frozen leaf, a start outside its bounds, wrong shapes, a start whose
    trajectory is not finite or problems that do not go together, TypeError for problems that can be read only once, ImportError where a
    least-squares method lacks optimistix.
    """
    solver = solver if isinstance(solver, Solver) else Solver(solver)
    method = _method(solver.method)
    with dividing(least=1):
        if isinstance(problem, Problem) and not across_processes:
            return _fit_whole(problem, solver, method)
        return _fit_pieces(Pieces([problem] if isinstance(problem, Problem) else problem, across_processes), solver, method)


def _fit_whole(problem: Problem, solver: Solver, method: Method) -> Fit:
    """The fit of one problem."""
    prepared = prepare(problem)
    dtype = prepared.data.q.dtype
    limits = _limits(solver, method, dtype)
    z = jnp.zeros(prepared.structure.unknowns, dtype)
    history: list[float] = []
    for std in prepared.continuity:
        prepared = prepared._replace(data=prepared.data._replace(continuity_scale=jnp.asarray(1.0 / std, dtype)))
        minimum = method.minimize(Whole(prepared.structure, prepared.data), z, limits)
        z, history = minimum.z, history + minimum.history
    return make_fit(of_problem(prepared, minimum.z), minimum._replace(history=history), method.name)


def _fit_pieces(pieces: Pieces, solver: Solver, method: Method) -> Fit:
    """The fit of several problems."""
    z = jnp.zeros(pieces.structure.unknowns, pieces.dtype)
    minimum = method.minimize(pieces, z, _limits(solver, method, pieces.dtype))
    return make_fit(of_pieces(pieces, minimum.z), minimum, method.name)


# ---- methods -----------------------------------------------------------------------------------------------------------------


class Limits(NamedTuple):
    """When to stop; see `Solver`."""

    max_steps: int
    xtol: float
    ftol: float


class Method(NamedTuple):
    """name: what `Fit.method` says. max_steps: where the solver names none. minimize(objective, z, limits) -> Minimum."""

    name: str
    max_steps: int
    minimize: Callable[[Whole | Pieces, Any, Limits], Minimum]


def _limits(solver: Solver, method: Method, dtype) -> Limits:
    double = dtype == jnp.float64
    max_steps = method.max_steps if solver.max_steps is None else solver.max_steps
    xtol = (1e-9 if double else 1e-6) if solver.xtol is None else solver.xtol
    ftol = (1e-12 if double else 1e-7) if solver.ftol is None else solver.ftol
    return Limits(max_steps, xtol, ftol)


def _method(method) -> Method:
    """The method of a name or of another library's object."""
    import optax

    if isinstance(method, str):
        if method not in METHODS:
            hint = did_you_mean(method, METHODS)
            raise ValueError(f"unknown method {method!r}{hint}; known: {', '.join(METHODS)}, an optimistix or optax object")
        return METHODS[method]()
    if isinstance(method, optax.GradientTransformation):
        return _gradient_method("optax", method)
    if not isinstance(method, _optimistix(method).AbstractGaussNewton):
        raise TypeError(f"method must be a name, an optax or an optimistix Gauss-Newton object, found {type(method).__name__}")
    return _least_squares_method(method)


def _optimistix(method):
    """The library. Raises ImportError that says which method needs it."""
    try:
        import optimistix
    except ImportError as e:
        raise ImportError(f"method {method!r} needs optimistix: pip install 'xsim[fit]', or use method='adam'") from e
    return optimistix


def _least_squares_method(solver) -> Method:
    return Method(type(solver).__name__, 100, functools.partial(_least_squares, _programs(solver)))


def _gradient_method(name: str, optimizer) -> Method:
    return Method(name, 1000, functools.partial(_gradient_descent, optimizer))


@functools.cache
def _cached_method(solver_type, dtype, **options) -> Method:
    """A least-squares method that is compiled once. dtype: jax's float type at the moment, in which optimistix keeps its numbers."""
    return _least_squares_method(solver_type(**options))


def _levenberg_marquardt() -> Method:
    return _cached_method(_optimistix("lm").LevenbergMarquardt, jnp.result_type(float), rtol=0.0, atol=0.0)


def _gauss_newton() -> Method:
    optimistix = _optimistix("gauss_newton")
    import lineax

    # The singular value decomposition gives the shortest step where the data leaves a direction open.
    return _cached_method(optimistix.GaussNewton, jnp.result_type(float), rtol=0.0, atol=0.0, linear_solver=lineax.SVD())


@functools.cache
def _adam() -> Method:
    import optax

    return _gradient_method("adam", optax.adam(0.03))


METHODS: dict[str, Callable[[], Method]] = {"lm": _levenberg_marquardt, "gauss_newton": _gauss_newton, "adam": _adam}


# ---- least squares -----------------------------------------------------------------------------------------------------------

FIRST_DAMPING = 1e-3  # Madsen, Nielsen and Tingleff, *Methods for non-linear least squares problems*, 2004, section 3.2


class Programs(NamedTuple):
    """Compiled: begin(z, linear), advance(z, linear, state) -> (z, state of the solver)."""

    begin: Callable
    advance: Callable


def _programs(solver) -> Programs:
    """The programs of an optimistix solver."""
    import equinox

    def first_order(z, linear: Linear):
        """Value and Jacobian are exact at the point where the solver looks next."""
        return linear.value + linear.jacobian @ (z - linear.z), None

    def advance(z, linear, state):
        return solver.step(first_order, z, linear, {}, state, frozenset())[:2]

    def begin(z, linear):
        shape = jax.ShapeDtypeStruct(linear.value.shape, linear.value.dtype)
        return advance(z, linear, solver.init(first_order, z, linear, {}, shape, None, frozenset()))

    return Programs(equinox.filter_jit(begin), equinox.filter_jit(advance))


class Progress:
    """The course of the cost of a least-squares iteration, and why it should end."""

    def __init__(self, cost: float, limits: Limits):
        self.history, self.limits = [cost], limits
        self.flat = self.refused = 0

    def add(self, cost: float, moved: float, accepted: bool) -> tuple[str, bool] | None:
        """Take a step into account. Returns (why the iteration should end, whether it stands still), None to continue.

        cost: at the new point. moved: the largest change of an unconstrained number that was tried. accepted: whether it was made.
        """
        before = self.history[-1]
        cost = cost if accepted else before
        if not np.isfinite(cost):
            return "diverged: a step led to numbers that are not finite; use method='lm' or segments", False
        self.flat = self.flat + 1 if accepted and before - cost <= self.limits.ftol * before else 0
        self.refused = 0 if accepted else self.refused + 1
        self.history.append(cost)
        if cost == 0 or moved <= self.limits.xtol:
            return "the last step moved nothing by more than xtol", accepted
        if self.flat >= 2:
            return "the cost no longer falls", False
        if self.refused >= 15:
            return "no step lowers the cost", False
        return None


def _least_squares(programs: Programs, objective: Whole | Pieces, z, limits: Limits) -> Minimum:
    """Drive an optimistix solver one step at a time.

    A Gauss-Newton solver evaluates its function once per step, at ``y_eval`` of its state, and asks for value and Jacobian there. Both
    come from `evaluate`, so the trajectory is compiled once for iteration and statistics, and the solver's program is small.

    The solver gets both in units in which the damping that it begins with, 1, is FIRST_DAMPING of the largest diagonal number of J^T J.
    """
    linear = objective.linearize(z)
    cost = _half_square(linear.value)
    if not np.isfinite(cost):
        raise ValueError(NOT_FINITE)
    progress = Progress(cost, limits)
    largest = math.sqrt(FIRST_DAMPING) * float(jnp.max(jnp.linalg.norm(linear.jacobian, axis=0)))
    unit = largest if 0 < largest < math.inf else 1.0
    z, state = programs.begin(z, _divided(linear, unit))
    for _ in range(limits.max_steps):
        linear = objective.linearize(state.y_eval)
        new, state = programs.advance(z, _divided(linear, unit), state)
        moved = float(jnp.max(jnp.abs(linear.z - z)))
        end = progress.add(_half_square(linear.value), moved, bool(jnp.array_equal(new, linear.z)))
        z = new
        if end is not None:
            return Minimum(z, progress.history, *end)
    return Minimum(z, progress.history, f"stopped after max_steps={limits.max_steps}", False)


def _divided(linear: Linear, unit: float) -> Linear:
    return linear._replace(value=linear.value / unit, jacobian=linear.jacobian / unit)


def _half_square(residual) -> float:
    return 0.5 * float(np.sum(np.asarray(residual, np.float64) ** 2))


# ---- gradient descent --------------------------------------------------------------------------------------------------------

STEPS_PER_CALL = 10
WINDOW = 50  # steps over which the cost must fall


@functools.partial(jax.jit, static_argnums=(0, 1))
def _descend(optimizer, structure: Structure, z, data: Data, state, best):
    """A few steps of an optax optimizer on half the sum of squares: (z, optimizer state, best (cost, z)), costs."""
    import optax

    def cost(z):
        return 0.5 * jnp.sum(residuals(structure, physical(structure, z, data.ranges), data, checkpoint=True)[0] ** 2)

    def body(carry, _):
        z, state, best = carry
        value, grad = jax.value_and_grad(cost)(z)
        best = jax.tree.map(lambda a, b: jnp.where(value < best[0], a, b), (value, z), best)
        updates, state = optax.with_extra_args_support(optimizer).update(grad, state, z, value=value, grad=grad, value_fn=cost)
        return (optax.apply_updates(z, updates), state, best), value

    return jax.lax.scan(body, (z, state, best), length=STEPS_PER_CALL)


def _gradient_descent(optimizer, objective: Whole | Pieces, z, limits: Limits) -> Minimum:
    """Run an optax optimizer by reverse mode; returns the best point."""
    if not isinstance(objective, Whole):
        raise ValueError("several problems are fitted by least squares: use method='lm' or 'gauss_newton'")
    structure, data = objective
    state, best = optimizer.init(z), (jnp.asarray(jnp.inf, z.dtype), z)
    history: list[float] = []
    while len(history) < limits.max_steps:
        (z, state, best), costs = _descend(optimizer, structure, z, data, state, best)
        history += [float(x) for x in costs]
        if not np.isfinite(history[0]):
            raise ValueError(NOT_FINITE)
        if not np.isfinite(history[-1]):
            return Minimum(best[1], history, "diverged: a step led to numbers that are not finite; lower the learning rate", False)
        if len(history) > 2 * WINDOW:
            before, now = min(history[:-WINDOW]), min(history)
            if before - now <= 1e2 * limits.ftol * before:
                return Minimum(best[1], history, f"the cost no longer falls over {WINDOW} steps", False)
    return Minimum(best[1], history, f"stopped after max_steps={limits.max_steps}", False)
