"""System identification: fit numbers of a model (and initial states) to measured trajectories.

The model's own leaves are the unknowns, chosen by path: ``"dof.damping"``, ``"dof.stiffness[link2]"``, ``"geom.mass[2]"``. `fit` runs
`rollout`, compares what ``observe`` records with the measurement and minimizes half the sum of squared, weighted residuals. Each
unknown is a function of an unconstrained number, so positive numbers stay positive and bounds hold in every iterate.

Long or chaotic trajectories are cut into segments (multiple shooting: Bock, *Recent advances in parameter identification techniques
for ODE*, 1983): the states at the cuts are unknowns too, tied together by continuity residuals.

Uncertainty is that of the linearized problem, ``sigma^2 (J^T J)^-1`` with J the exact Jacobian with respect to the numbers in their
physical units (Seber and Wild, *Nonlinear Regression*, 1989, section 2.1.2); unknown states are projected out of J. Small singular
values of the scaled J name the combinations that the data leaves open.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.initial_state import init, state_at
from xsim.dynamics.step import difference, integrate, rollout
from xsim.model.model import Frozen, Model, State
from xsim.selectors import element_name, select

__all__ = ["Combination", "Fit", "Parameter", "fit"]

OFFSET_TOLERANCE = 1e-2  # how near, in standard errors, the minimum must be for a fit to count as converged


# ---- transforms: an unconstrained number z, 0 at the start, to a physical number ----------------------------------------------------


class Transform(NamedTuple):
    """forward(z, start, low, high) -> value, elementwise, with forward(0) = start. scale(start, low, high): a typical size of value."""

    forward: Callable
    scale: Callable


def _inverse_softplus(y):
    return y + jnp.log(-jnp.expm1(-y))


def _sigmoid(z, start, low, high):
    x = (start - low) / (high - low)
    # The clip keeps a saturated sigmoid from rounding onto or past the bound.
    return jnp.clip(low + (high - low) * jax.nn.sigmoid(z + jnp.log(x) - jnp.log1p(-x)), low, high)


TRANSFORMS: dict[str, Transform] = {
    "free": Transform(lambda z, s, lo, hi: s + z * jnp.where(s == 0, 1.0, jnp.abs(s)), lambda s, lo, hi: np.where(s == 0, 1.0, np.abs(s))),
    "log": Transform(lambda z, s, lo, hi: lo + (s - lo) * jnp.exp(z), lambda s, lo, hi: s - lo),
    "softplus": Transform(
        lambda z, s, lo, hi: lo + (s - lo) * jax.nn.softplus(z + _inverse_softplus(jnp.ones_like(z))), lambda s, lo, hi: s - lo
    ),
    "below": Transform(lambda z, s, lo, hi: hi - (hi - s) * jnp.exp(z), lambda s, lo, hi: hi - s),
    "sigmoid": Transform(_sigmoid, lambda s, lo, hi: hi - lo),
}


@dataclass(frozen=True)
class Parameter:
    """Numbers of the model to fit.

    path: ``leaf``, ``leaf[who]`` or ``leaf[who, column]``. leaf is a path of `Model.paths` or a pattern; who is the name of a body (or
    of the constraint, force or function that the row belongs to), a pattern of names, or the index of a row; column the index in a row
    (``"geom.pos[link2, 0]"``).
    bounds: (low, high) in the leaf's unit, None for an open side. transform: ``"log"`` or ``"softplus"`` (above ``low``, default 0),
    ``"free"``, ``"sigmoid"`` (between bounds), ``"below"`` (under ``high``); None chooses by the bounds, and without bounds ``"log"``
    for what cannot be negative (damping, stiffness, armature, mass, size, time step), ``"free"`` for the rest.
    start: where the fit starts, scalar or one number per element; None: the model's own values. tied: one number for all elements.
    """

    path: str
    bounds: tuple[float | None, float | None] | None = None
    transform: str | None = None
    start: float | Sequence[float] | np.ndarray | None = None
    tied: bool = False


class Range(NamedTuple):
    """Numbers of a block, each (unknowns,): where the fit starts, and the bounds (infinite where there is none)."""

    start: Any
    low: Any
    high: Any


class Block(NamedTuple):
    """A parameter resolved on one leaf: flat element indices, one unknown per element (or one in all, where tied). Hashable."""

    path: str
    elements: tuple[int, ...]
    names: tuple[str, ...]
    unit: str
    transform: str

    @property
    def size(self) -> int:
        return len(self.names)


def _blocks(model: Model, parameters) -> tuple[tuple[Block, ...], tuple[Range, ...]]:
    if isinstance(parameters, (str, Parameter)):
        parameters = (parameters,)
    found: list[tuple[Block, Range]] = []
    taken: dict[str, set] = {}
    for p in parameters:
        p = Parameter(p) if isinstance(p, str) else p
        if not isinstance(p, Parameter):
            raise TypeError(f"parameters must be paths or Parameter, found {type(p).__name__}")
        for path, elements in _elements(model, p.path).items():
            twice = taken.setdefault(path, set()) & set(elements.tolist())
            if twice:
                raise ValueError(f"{p.path}: {element_name(model, path, min(twice))} is chosen twice")
            taken[path] |= set(elements.tolist())
            found.append(_block(model, p, path, elements))
    return tuple(b for b, _ in found), tuple(r for _, r in found)


def _elements(model: Model, selector: str) -> dict[str, np.ndarray]:
    """As `select`. Raises ValueError where the leaf cannot be fitted."""
    elements = select(model, selector)
    for path in elements:
        leaf, shape = model.get(path), model.shape(path)
        if isinstance(leaf, Frozen):
            raise ValueError(f"{selector}: {path} is frozen, a constant of the compiled program; load the model without freezing it")
        if leaf.shape != shape:
            raise ValueError(f"{selector}: {path} differs between environments (shape {leaf.shape}) and cannot be fitted as one number")
    return elements


def _block(model: Model, p: Parameter, path: str, elements: np.ndarray) -> tuple[Block, Range]:
    own = np.asarray(model.get(path), np.float64).reshape(-1)[elements]
    names = (p.path,) if p.tied else tuple(element_name(model, path, e) for e in elements)
    try:
        start = np.broadcast_to(np.asarray(own if p.start is None else p.start, np.float64), elements.shape)
    except ValueError as e:
        raise ValueError(f"{p.path}: start is {p.start}, expected one number or {len(elements)}") from e
    if p.tied:
        start = start.mean(keepdims=True)
    never_negative = bool(model.declaration(path).sign)
    low, high = p.bounds if p.bounds is not None else (None, None)
    transform = p.transform
    if transform is None:
        given = (low is not None or never_negative, high is not None)
        transform = {(False, False): "free", (True, False): "log", (False, True): "below", (True, True): "sigmoid"}[given]
    if transform not in TRANSFORMS:
        raise ValueError(f"{p.path}: unknown transform {transform!r}; known: {', '.join(TRANSFORMS)}")
    allowed = {"free": (False, False), "log": (True, False), "softplus": (True, False), "below": (False, True), "sigmoid": (True, True)}
    for side, value, used in zip(("low", "high"), (low, high), allowed[transform], strict=True):
        if value is not None and not used:
            raise ValueError(f"{p.path}: transform {transform!r} does not keep the {side} bound {value}")
    if high is None and allowed[transform][1]:
        raise ValueError(f"{p.path}: transform {transform!r} needs an upper bound")
    low = (0.0 if allowed[transform][0] else -np.inf) if low is None else float(low)
    high = np.inf if high is None else float(high)
    if never_negative and low < 0 and transform != "free":
        raise ValueError(f"{p.path}: the lower bound {low} allows a negative {path}")
    if not low < high:
        raise ValueError(f"{p.path}: bounds must ascend, found {low}, {high}")
    outside = [f"{n} = {x:g}" for n, x in zip(names, start, strict=True) if not low < x < high or not np.isfinite(x)]
    if outside:
        raise ValueError(f"{p.path}: the start must lie strictly between {low:g} and {high:g}; {', '.join(outside)}: give another start")
    block = Block(path, tuple(elements.tolist()), names, model.declaration(path).unit, transform)
    return block, Range(start, np.full(len(start), low), np.full(len(start), high))


def _split(blocks, x) -> list:
    ends = np.cumsum([b.size for b in blocks])
    return [x[e - b.size : e] for b, e in zip(blocks, ends, strict=True)]


def _values(blocks, ranges, z):
    """Physical numbers (n,) of the unconstrained numbers z (n,)."""
    parts = [TRANSFORMS[b.transform].forward(x, *r) for b, r, x in zip(blocks, ranges, _split(blocks, z), strict=True)]
    return jnp.concatenate(parts) if parts else z


def _with_values(model: Model, blocks, x) -> Model:
    """The model whose chosen elements are x: (n,)."""
    changes: dict[str, Any] = {}
    for b, part in zip(blocks, _split(blocks, x), strict=True):
        leaf = changes.get(b.path, model.get(b.path))
        changes[b.path] = leaf.reshape(-1).at[np.array(b.elements)].set(part.astype(leaf.dtype)).reshape(leaf.shape)
    return model.replace(changes)


# ---- the problem ----------------------------------------------------------------------------------------------------------------


class Arrays(NamedTuple):
    """What is traced: the model, ranges of the blocks, and the data cut into segments.

    measured, scale: leaves (steps, *lanes, ...), scale is sqrt(weight) / std, both 0 where missing. lanes is (segments, *batch), or the
    batch alone where nothing is cut. inputs: ctrls and taus, where given. q, v, time: (*lanes, ...) the states the segments start from.
    continuity, anchor: 1 / std of the jump between segments and of a fitted start; 0 where there is no such residual.
    """

    model: Model
    ranges: tuple[Range, ...]
    measured: Any
    scale: Any
    inputs: dict
    q: Any
    v: Any
    time: Any
    continuity: Any
    anchor: Any


class Problem(NamedTuple):
    """What is static, and hashable: fits of one problem with other data, starts or bounds share their compiled programs.

    unknown: first and last (exclusive) of the flat lanes whose start is unknown. steps: of one segment.
    """

    blocks: tuple[Block, ...]
    observe: Callable
    unknown: tuple[int, int]
    nv: int
    segments: int | None
    steps: int
    anchored: bool

    @property
    def numbers(self) -> int:
        return sum(b.size for b in self.blocks)

    @property
    def size(self) -> int:
        return self.numbers + (self.unknown[1] - self.unknown[0]) * 2 * self.nv


def _starts(problem: Problem, model: Model, dx, data: Arrays) -> State:
    """The states that the segments start from; dx: (unknown starts * 2 nv,) moves them on the configuration manifold."""
    lanes, nv = data.q.shape[:-1], model.nv
    first, last = problem.unknown
    if first == last:
        return state_at(model, data.q, data.v, data.time)
    moved = jnp.zeros((math.prod(lanes), 2 * nv), data.q.dtype).at[first:last].set(dx.reshape(-1, 2 * nv)).reshape(*lanes, 2 * nv)
    q = integrate(model, data.q, moved[..., :nv])
    return state_at(model, q, data.v + moved[..., nv:], data.time)


def _simulate(problem: Problem, x, data: Arrays, checkpoint: bool = False):
    """(model, starts, final states, recorded) for the physical unknowns x."""
    model = _with_values(data.model, problem.blocks, x[: problem.numbers])
    starts = _starts(problem, model, x[problem.numbers :], data)
    final, recorded = rollout(model, starts, **data.inputs, steps=problem.steps, record=problem.observe, checkpoint=checkpoint)
    return model, starts, final, recorded


def _residuals(problem: Problem, x, data: Arrays, checkpoint: bool = False):
    """(all residuals in units of their standard deviation, one vector: data, continuity, anchors; what `_simulate` gives)."""
    model, starts, final, recorded = _simulate(problem, x, data, checkpoint)
    _check_observed(problem, recorded, data.measured)
    parts = [
        ((a.astype(data.q.dtype) - b) * s).reshape(-1)
        for a, b, s in zip(jax.tree.leaves(recorded), jax.tree.leaves(data.measured), jax.tree.leaves(data.scale), strict=True)
    ]
    if problem.segments and problem.unknown[1] > math.prod(data.q.shape[1:-1]):
        jump = jnp.concatenate([difference(model, final.q[:-1], starts.q[1:]), starts.v[1:] - final.v[:-1]], -1)
        parts.append((jump * data.continuity).reshape(-1))
    if problem.anchored:
        parts.append((x[problem.numbers :].reshape(-1, 2 * model.nv) * data.anchor).reshape(-1))
    return jnp.concatenate(parts), (model, starts, recorded)


@functools.partial(jax.jit, static_argnums=0)
def _evaluate(problem: Problem, x, data: Arrays):
    """(residuals, their Jacobian by forward mode, (model, starts, recorded)) at the physical unknowns x."""

    def push(direction):
        return jax.jvp(lambda x: _residuals(problem, x, data), (x,), (direction,), has_aux=True)

    return jax.vmap(push, out_axes=(None, -1, None))(jnp.eye(x.size, dtype=x.dtype))


def _physical(problem: Problem, z, ranges):
    """Physical unknowns of the unconstrained ones; states are their own displacement."""
    return jnp.concatenate([_values(problem.blocks, ranges, z[: problem.numbers]), z[problem.numbers :]])


@functools.partial(jax.jit, static_argnums=0)
def _physical_and_slope(problem: Problem, z, ranges):
    """(x, dx/dz), both elementwise in z."""
    return jax.jvp(lambda z: _physical(problem, z, ranges), (z,), (jnp.ones_like(z),))


# ---- from arguments to the problem -----------------------------------------------------------------------------------------------


def _spread(name: str, value, measured):
    """``value`` (a number, an array, or a tree of them shaped like a prefix of measured) broadcast to every measured leaf."""
    try:
        return jax.tree.map(
            lambda v, part: jax.tree.map(lambda m: np.broadcast_to(np.asarray(v, np.float64), m.shape), part), value, measured
        )
    except ValueError as e:
        raise ValueError(f"{name} must be a number or a tree like measured whose arrays broadcast to it ({e})") from None


def _prepare_data(measured, std, weights, dtype):
    """(measured without NaN, 1 / std with 0 where missing, number of samples)."""
    measured = jax.tree.map(lambda m: np.asarray(m, np.float64), measured)
    std, weights = _spread("std", std, measured), _spread("weights", weights, measured)
    for name, tree in (("std", std), ("weights", weights)):
        for x in jax.tree.leaves(tree):
            if not (np.isfinite(x) & ((x > 0) if name == "std" else (x >= 0))).all():
                raise ValueError(f"{name} must be finite and {'positive' if name == 'std' else 'not negative'}")
    scale = jax.tree.map(lambda m, s, w: np.where(np.isnan(m), 0.0, np.sqrt(w) / s), measured, std, weights)
    for x in jax.tree.leaves(measured):
        if np.isinf(x).any():
            raise ValueError("measured holds infinite numbers; mark a missing sample with NaN")
    clean = jax.tree.map(lambda m: np.where(np.isnan(m), 0.0, m).astype(dtype), measured)
    return clean, jax.tree.map(lambda s: s.astype(dtype), scale), int(sum((s > 0).sum() for s in jax.tree.leaves(scale)))


def _cut(x, length: int, segments: int):
    """(steps, ...) -> (length, segments, ...), zeros after the end."""
    pad = length * segments - x.shape[0]
    x = np.concatenate([x, np.zeros((pad, *x.shape[1:]), x.dtype)]).reshape(segments, length, *x.shape[1:])
    return np.moveaxis(x, 1, 0)


def _join(x, steps: int):
    """(length, segments, ...) -> (steps, ...)."""
    x = np.moveaxis(np.asarray(x), 1, 0)
    return x.reshape(-1, *x.shape[2:])[:steps]


def _check_observed(problem: Problem, recorded, measured) -> None:
    if jax.tree.structure(recorded) != jax.tree.structure(measured):
        found = jax.tree.structure(measured)
        raise ValueError(f"measured must have the structure that observe returns: {jax.tree.structure(recorded)}, found {found}")
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(recorded), jax.tree.leaves(measured), strict=True):
        if a.shape != b.shape:
            cut = f" (cut into {problem.segments} segments: steps, segments, *batch)" if problem.segments else ""
            raise ValueError(f"measured{jax.tree_util.keystr(path)}: shape {b.shape}, but observe gives {a.shape}{cut}")


# ---- the fit -----------------------------------------------------------------------------------------------------------------------


class Combination(NamedTuple):
    """A change of the parameters that the data does not determine.

    weights: {name: share}, the change of each parameter relative to its size (norm 1). std: standard error of moving along it, 1 is
    100 percent of the parameters' sizes, inf where the data says nothing at all.
    """

    weights: dict[str, float]
    std: float

    def __str__(self) -> str:
        terms = sorted(self.weights.items(), key=lambda kv: -abs(kv[1]))
        text = " ".join(f"{w:+.2f} {n}" for n, w in terms if abs(w) > 0.05)
        return f"{text} (std {self.std:.3g})"


@dataclass(frozen=True)
class Fit:
    """What a fit found.

    model: the fitted model. values, std_errors, starts: {name: number} in the leaf's unit. units: {name: unit}.
    covariance, correlation: (n, n) in the order of ``names``, states projected out. state: the initial state (*batch).
    cost: half the sum of squared weighted residuals; history: (iterations,) its course, the best so far where a step is refused.
    noise: root of the residual variance factor, 1 where ``std`` is the true noise (and the noise itself where std was left at 1).
    predicted: what observe gives along the fitted trajectories, residuals: measured minus predicted (NaN where nothing was measured),
    both shaped like measured. segment_starts: (q, v) of all segments, (segments, *batch, ...), None without segments.
    undetermined: combinations that the data leaves open (see `Combination`). at_bound: names whose value ran into a bound.
    """

    model: Model
    names: tuple[str, ...]
    values: dict[str, float]
    std_errors: dict[str, float]
    starts: dict[str, float]
    units: dict[str, str]
    covariance: np.ndarray
    correlation: np.ndarray
    state: State
    segment_starts: tuple[np.ndarray, np.ndarray] | None
    cost: float
    history: np.ndarray
    noise: float
    samples: int
    predicted: Any
    residuals: Any
    undetermined: tuple[Combination, ...]
    at_bound: tuple[str, ...]
    converged: bool
    reason: str
    method: str

    def summary(self) -> str:
        """A table of the result as text."""
        width = max([len(n) for n in self.names] + [9])
        lines = [f"{'parameter':<{width}}  {'start':>11}  {'value':>11}  {'std error':>11}  unit"]
        for n in self.names:
            note = "  at its bound" if n in self.at_bound else ""
            numbers = f"{self.starts[n]:>11.5g}  {self.values[n]:>11.5g}  {self.std_errors[n]:>11.2g}"
            lines.append(f"{n:<{width}}  {numbers}  {self.units[n]}{note}")
        lines.append("")
        verdict = "converged" if self.converged else "NOT converged"
        lines.append(f"{verdict} ({self.method}, {len(self.history) - 1} iterations): {self.reason}")
        lines.append(f"cost {self.history[0]:.6g} -> {self.cost:.6g}; {self.samples} samples; noise factor {self.noise:.4g}")
        pairs = [
            (abs(self.correlation[i, j]), self.names[i], self.names[j], self.correlation[i, j])
            for i in range(len(self.names))
            for j in range(i)
        ]
        for _, a, b, c in sorted(p for p in pairs if p[0] > 0.9):
            lines.append(f"strongly correlated: {b} and {a}: {c:+.3f}")
        for c in self.undetermined:
            lines.append(f"not determined by the data: {c}")
        return "\n".join(lines)


def fit(
    model: Model,
    state: State,
    measured,
    parameters: Sequence[str | Parameter] | str | Parameter,
    *,
    observe: Callable,
    ctrls=None,
    taus=None,
    std: Any = 1.0,
    weights: Any = 1.0,
    method: Any = "lm",
    max_steps: int | None = None,
    learning_rate: float = 0.03,
    initial: str = "known",
    initial_std: float | None = None,
    segment: int | None = None,
    segment_starts: str = "fitted",
    states=None,
    continuity: float | Sequence[float] = 1e-3,
    xtol: float | None = None,
    ftol: float | None = None,
) -> Fit:
    """Fit parameters of a model to measured trajectories.

    state: where the trajectories start, (*batch): several initial conditions are a batch. measured: a tree like the one
    ``observe(state, data)`` returns (see `rollout`), leaves (steps, *batch, ...), the first sample one step after ``state``; NaN marks
    what is missing. observe must index from the end (``state.q[..., 0]``), so that it works for any batch. parameters: paths or
    `Parameter`; empty to fit states alone. ctrls: (steps, *batch, nu) commands and taus: (steps, *batch, nv)
    generalized forces that were applied.

    std: standard deviation of the noise, weights: further factors of the squared residuals; each a number or a tree like measured.
    method: ``"lm"`` (Levenberg-Marquardt), ``"gauss_newton"``, an optimistix solver of that family (extra ``fit``); ``"adam"`` or an
    ``optax.GradientTransformation``. learning_rate: of adam, in the unconstrained numbers (0.03: about 3 percent per step).
    max_steps: default 100, for gradient methods 1000. xtol, ftol: stop where no unconstrained number moves by more than xtol or
    the cost falls by less than this fraction; defaults by the model's float type.

    initial: ``"known"``, or ``"fitted"``: the states at the start are unknowns, held near ``state`` with ``initial_std`` where given.
    segment: cut the trajectories every so many steps. segment_starts: ``"fitted"`` (unknowns, tied by continuity residuals; their first
    guess from ``states``) or ``"measured"`` (reset to ``states``). states: (q, v), (steps, *batch, nq) and (steps, *batch, nv), measured
    or estimated, on the time axis of measured; None: simulated with the model given. continuity: standard deviation allowed to jumps
    at the cuts, in units of q and v; a descending sequence is run through, each fit starting from the one before.

    Raises KeyError for an unknown leaf or body, ValueError for a frozen leaf, a start outside its bounds, wrong shapes or a start whose
    trajectory is not finite, ImportError where a least-squares method lacks optimistix.
    """
    blocks, ranges = _blocks(model, parameters)
    inputs = {name: x for name, x in (("ctrls", ctrls), ("taus", taus)) if x is not None}
    problem, data, samples, steps = _setup(
        model, state, measured, blocks, ranges, observe, inputs, std, weights, initial, initial_std, segment, segment_starts, states
    )
    if problem.size == 0:
        raise ValueError("nothing to fit: no parameters, and the initial states are known")
    label, solve = _method(method, learning_rate)
    precise = data.q.dtype == jnp.float64
    xtol = (1e-9 if precise else 1e-6) if xtol is None else xtol
    ftol = (1e-12 if precise else 1e-7) if ftol is None else ftol
    stages = np.atleast_1d(np.asarray(continuity, np.float64)).tolist()
    if not stages or not all(np.isfinite(c) and c > 0 for c in stages):
        raise ValueError(f"continuity must be positive, found {continuity}")
    z = jnp.zeros(problem.size, data.q.dtype)
    history: list[float] = []
    end = Ending("", False)
    for c in stages:
        data = data._replace(continuity=jnp.asarray(1.0 / c, data.q.dtype))
        z, course, end = solve(problem, z, data, max_steps, xtol, ftol)
        history += course
    x, _ = _physical_and_slope(problem, z, data.ranges)
    return _result(problem, data, x, np.array(history), end, label, samples, steps, measured)


def _setup(model, state, measured, blocks, ranges, observe, inputs, std, weights, initial, initial_std, segment, segment_starts, states):
    dtype = model.option.dt.dtype
    for name, value, known in (("initial", initial, ("known", "fitted")), ("segment_starts", segment_starts, ("fitted", "measured"))):
        if value not in known:
            raise ValueError(f"{name} must be one of {', '.join(known)}, found {value!r}")
    leaves = jax.tree.leaves(measured)
    if not leaves or any(np.ndim(x) == 0 for x in leaves) or len({np.shape(x)[0] for x in leaves}) != 1:
        raise ValueError("measured must be a tree of arrays (steps, *batch, ...) with the same number of steps")
    steps = int(np.shape(leaves[0])[0])
    clean, scale, samples = _prepare_data(measured, std, weights, dtype)
    start = init(model, state.q, state.v)
    q, v = np.asarray(start.q), np.asarray(start.v)
    batch = q.shape[:-1]
    time = np.broadcast_to(np.asarray(state.time, dtype), batch)
    inputs = {name: np.asarray(x, dtype) for name, x in inputs.items()}
    for name, x in inputs.items():
        if x.shape[0] != steps:
            raise ValueError(f"{name} has {x.shape[0]} steps but measured has {steps}")
    segments = None
    if segment is not None:
        if not 1 <= segment <= steps:
            raise ValueError(f"segment must lie between 1 and the number of steps, {steps}; found {segment}")
        segments = -(-steps // segment)
        if states is None and segment_starts == "measured" and segments > 1:
            raise ValueError("segment_starts='measured' needs states=(q, v)")
        if states is None:
            states = rollout(model, start, **inputs, steps=steps, record=lambda s, d: (s.q, s.v))[1]
        at = np.arange(1, segments) * segment - 1
        known = []
        for name, x, first in zip(("q", "v"), states, (q, v), strict=True):
            x = np.asarray(x, dtype)
            if x.shape != (steps, *first.shape):
                raise ValueError(f"states: {name} has shape {x.shape}, expected {(steps, *first.shape)}")
            known.append(np.concatenate([first[None], x[at]]))
        q, v = known
        if not (np.isfinite(q).all() and np.isfinite(v).all()):
            raise ValueError("the states at the cuts are not finite: give states=(q, v)")
        shift = np.arange(segments).reshape(-1, *(1,) * len(batch)) * (segment * np.asarray(model.option.dt))
        time = (time + shift).astype(dtype)
        cut = functools.partial(_cut, length=segment, segments=segments)
        clean, scale = jax.tree.map(cut, (clean, scale))
        inputs = {name: cut(np.broadcast_to(x, (steps, *batch, x.shape[-1]))) for name, x in inputs.items()}
    count = math.prod(batch)
    fitted_cuts = segments is not None and segment_starts == "fitted"
    unknown = (0 if initial == "fitted" else count, count * segments if fitted_cuts and segments else count)
    anchor = np.zeros((unknown[1] - unknown[0], 1), dtype)
    anchored = False
    if initial == "fitted" and initial_std is not None:
        anchor[:count], anchored = 1.0 / initial_std, True
    problem = Problem(blocks, observe, unknown, model.nv, segments, segment or steps, anchored)
    ranges = jax.tree.map(lambda x: jnp.asarray(x, dtype), ranges)
    arrays = jax.tree.map(jnp.asarray, (clean, scale, inputs, q, v, time))
    return problem, Arrays(model, ranges, *arrays, jnp.zeros((), dtype), jnp.asarray(anchor)), samples, steps


# ---- methods -----------------------------------------------------------------------------------------------------------------------


class Ending(NamedTuple):
    """Why an iteration ended; exact: it stands still to within xtol."""

    reason: str
    exact: bool


def _method(method, learning_rate):
    """(label, solve(problem, z, data, max_steps, xtol, ftol) -> (z, course of the cost, Ending))."""
    import optax

    if method == "adam":
        return "adam", functools.partial(_gradient, _adam(learning_rate))
    if isinstance(method, optax.GradientTransformation):
        return "optax", functools.partial(_gradient, method)
    known = {"lm": "LevenbergMarquardt", "gauss_newton": "GaussNewton"}
    if isinstance(method, str) and method not in known:
        raise ValueError(f"unknown method {method!r}; known: {', '.join(known)}, adam, an optimistix or optax object")
    try:
        import optimistix
    except ImportError as e:
        raise ImportError(f"method {method!r} needs optimistix: pip install 'xsim[fit]', or use method='adam'") from e
    if isinstance(method, str):
        return known[method], functools.partial(_least_squares, _named_programs(method, jnp.result_type(float)))
    if not isinstance(method, optimistix.AbstractGaussNewton):
        raise TypeError(f"method must be a name, an optax or an optimistix Gauss-Newton object, found {type(method).__name__}")
    return type(method).__name__, functools.partial(_least_squares, _programs(method))


@functools.lru_cache(maxsize=32)
def _adam(learning_rate):
    import optax

    return optax.adam(learning_rate)


def _first_order(z, linear):
    """The residual's linear model at the point where the solver looks next: its value and Jacobian there are exact."""
    at, value, jac = linear
    return value + jac @ (z - at), None


@functools.cache
def _named_programs(name: str, dtype):
    """The programs of a named method; dtype because optimistix keeps numbers in jax's float type of the moment."""
    import lineax
    import optimistix

    if name == "lm":
        return _programs(optimistix.LevenbergMarquardt(rtol=0.0, atol=0.0))
    # The singular value decomposition gives the shortest step where the data leaves a direction open.
    return _programs(optimistix.GaussNewton(rtol=0.0, atol=0.0, linear_solver=lineax.SVD()))


def _programs(solver):
    """(begin, advance) of an optimistix solver, compiled: both return (z, state of the solver)."""
    import equinox

    def step(z, linear, inner):
        return solver.step(_first_order, z, linear, {}, inner, frozenset())[:2]

    def begin(z, linear):
        shape = jax.ShapeDtypeStruct(linear[1].shape, linear[1].dtype)
        return step(z, linear, solver.init(_first_order, z, linear, {}, shape, None, frozenset()))

    return equinox.filter_jit(begin), equinox.filter_jit(step)


def _least_squares(programs, problem: Problem, z, data, limit, xtol, ftol):
    """Drive an optimistix solver one step at a time.

    A Gauss-Newton solver evaluates its function once per step, at ``y_eval`` of its state, and asks for value and Jacobian there. Both
    come from `_evaluate`, so the trajectory is compiled once for iteration and statistics, and the solver's own program is small.
    """
    limit = 100 if limit is None else limit
    begin, advance = programs

    def linear_at(z):
        x, slope = _physical_and_slope(problem, z, data.ranges)
        value, jac, _ = _evaluate(problem, x, data)
        return z, value, jac * slope

    linear = linear_at(z)
    cost = _half_square(linear[1])
    if not np.isfinite(cost):
        raise ValueError(NOT_FINITE)
    z, inner = begin(z, linear)
    history = [cost]
    flat = refused = 0
    for _ in range(limit):
        linear = linear_at(inner.y_eval)
        new, inner = advance(z, linear, inner)
        accepted = bool(jnp.array_equal(new, linear[0]))
        moved, z = float(jnp.max(jnp.abs(linear[0] - z))), new
        cost = _half_square(linear[1]) if accepted else history[-1]
        if not np.isfinite(cost):
            return z, history, Ending("diverged: a step led to numbers that are not finite; use method='lm' or segments", False)
        flat = flat + 1 if accepted and history[-1] - cost <= ftol * history[-1] else 0
        refused = 0 if accepted else refused + 1
        history.append(cost)
        if cost == 0 or moved <= xtol:
            return z, history, Ending("the last step moved nothing by more than xtol", accepted)
        if flat >= 2:
            return z, history, Ending("the cost no longer falls", False)
        if refused >= 15:
            return z, history, Ending("no step lowers the cost", False)
    return z, history, Ending(f"stopped after max_steps={limit}", False)


def _half_square(residual) -> float:
    return 0.5 * float(np.sum(np.asarray(residual, np.float64) ** 2))


NOT_FINITE = "the trajectory of the starting model is not finite: start elsewhere, or cut it with segment and states"


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _descend(optimizer, problem: Problem, every: int, z, data, inner, best):
    """``every`` steps of an optax optimizer on half the sum of squares: (z, optimizer state, best (cost, z)), costs."""
    import optax

    def cost(z):
        return 0.5 * jnp.sum(_residuals(problem, _physical(problem, z, data.ranges), data, checkpoint=True)[0] ** 2)

    def body(carry, _):
        z, inner, best = carry
        value, grad = jax.value_and_grad(cost)(z)
        best = jax.tree.map(lambda a, b: jnp.where(value < best[0], a, b), (value, z), best)
        updates, inner = optax.with_extra_args_support(optimizer).update(grad, inner, z, value=value, grad=grad, value_fn=cost)
        return (optax.apply_updates(z, updates), inner, best), value

    return jax.lax.scan(body, (z, inner, best), length=every)


def _gradient(optimizer, problem: Problem, z, data, limit, xtol, ftol, every: int = 10, window: int = 50):
    """Run an optax optimizer by reverse mode; keeps the best point."""
    limit = 1000 if limit is None else limit
    inner, best = optimizer.init(z), (jnp.asarray(jnp.inf, z.dtype), z)
    history: list[float] = []
    while len(history) < limit:
        (z, inner, best), values = _descend(optimizer, problem, every, z, data, inner, best)
        history += [float(x) for x in values]
        if not np.isfinite(history[0]):
            raise ValueError(NOT_FINITE)
        if not np.isfinite(history[-1]):
            return best[1], history, Ending("diverged: a step led to numbers that are not finite; lower the learning rate", False)
        if len(history) > 2 * window:
            old, new = min(history[:-window]), min(history)
            if old - new <= 1e2 * ftol * old:
                return best[1], history, Ending(f"the cost no longer falls over {window} steps", False)
    return best[1], history, Ending(f"stopped after max_steps={limit}", False)


# ---- statistics ----------------------------------------------------------------------------------------------------------------------


def _result(problem, data, x, history, end, label, samples, steps, measured) -> Fit:
    residual, jac, (model, starts, recorded) = _evaluate(problem, x, data)
    ranges = jax.tree.map(lambda a: np.asarray(a, np.float64), data.ranges)
    residual, jac = np.asarray(residual, np.float64), np.asarray(jac, np.float64)
    n, names = problem.numbers, tuple(name for b in problem.blocks for name in b.names)
    values = np.asarray(x[:n], np.float64)
    sizes = _sizes(problem.blocks, ranges, values)
    rows = samples + len(residual) - sum(leaf.size for leaf in jax.tree.leaves(data.measured))
    freedom = rows - problem.size
    variance = float(residual @ residual) / freedom if freedom > 0 else np.nan
    small = float(np.sqrt(np.finfo(data.q.dtype).eps))
    covariance, std, undetermined = _uncertainty(jac, n, sizes, variance, small, names)
    offset = _offset(residual, jac, n, sizes, rows, small)
    converged = bool(end.exact or offset < OFFSET_TOLERANCE)
    reason = end.reason if end.exact else f"{end.reason}; {offset:.2g} standard errors from the minimum of the linearized problem"
    at_bound = _at_bound(problem.blocks, ranges, values)
    predicted = jax.tree.map(lambda a: _join(a, steps) if problem.segments else np.asarray(a), recorded)
    first = (lambda a: a[0]) if problem.segments else (lambda a: a)
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Fit(
        model=model,
        names=names,
        values=dict(zip(names, values.tolist(), strict=True)),
        std_errors=dict(zip(names, std.tolist(), strict=True)),
        starts={name: float(s) for b, r in zip(problem.blocks, ranges, strict=True) for name, s in zip(b.names, r.start, strict=True)},
        units={name: b.unit for b in problem.blocks for name in b.names},
        covariance=covariance,
        correlation=covariance / np.where(spread > 0, spread, 1.0)[:, None] / np.where(spread > 0, spread, 1.0) if n else covariance,
        state=jax.tree.map(first, starts),
        segment_starts=(np.asarray(starts.q), np.asarray(starts.v)) if problem.segments else None,
        cost=0.5 * float(residual @ residual),
        history=history,
        noise=math.sqrt(variance) if variance >= 0 else math.nan,
        samples=samples,
        predicted=predicted,
        residuals=jax.tree.map(lambda m, p: np.asarray(m) - p, measured, predicted),
        undetermined=undetermined,
        at_bound=at_bound,
        converged=converged,
        reason=reason,
        method=label,
    )


def _sizes(blocks, ranges, values) -> np.ndarray:
    """A typical size of each number, in which its changes are measured."""
    out = [
        np.abs(x) if b.transform in ("log", "softplus") else TRANSFORMS[b.transform].scale(*r)
        for b, r, x in zip(blocks, ranges, _split(blocks, values), strict=True)
    ]
    return np.maximum(np.concatenate(out), np.finfo(np.float64).tiny) if out else np.zeros(0)


def _at_bound(blocks, ranges, values) -> tuple[str, ...]:
    """Names within a thousandth of the range (or of the start's distance) of a bound."""
    out = []
    for b, r, x in zip(blocks, ranges, _split(blocks, values), strict=True):
        for side in (r.low, r.high):
            reach = np.where(np.isfinite(side), 1e-3 * np.abs(r.start - side), 0.0)
            out += [name for name, near in zip(b.names, np.abs(x - side) <= reach, strict=True) if near and name not in out]
    return tuple(out)


def _uncertainty(jac, n: int, sizes, variance: float, small: float, names):
    """(covariance (n, n), standard errors (n,), undetermined combinations) of the first n unknowns, the others projected out.

    Columns are scaled by the parameters' sizes, so that a singular value s means a relative standard error sigma / s along its
    direction. Directions with s below ``small`` times the largest count as open; their s is set to that floor, which keeps the
    correlations finite, and the standard errors of the parameters that take part are infinite.
    """
    if n == 0:
        return np.zeros((0, 0)), np.zeros(0), ()
    scaled, others = jac[:, :n] * sizes, jac[:, n:]
    whole = np.linalg.norm(scaled, axis=0).max()
    if others.shape[1]:
        basis, s, _ = np.linalg.svd(others, full_matrices=False)
        basis = basis[:, s > small * s[0]]
        scaled = scaled - basis @ (basis.T @ scaled)
    _, s, vt = np.linalg.svd(scaled, full_matrices=False)
    s = np.concatenate([s, np.zeros(n - len(s))])
    vt = np.concatenate([vt, np.zeros((n - len(vt), n))]) if len(vt) < n else vt
    floor = small * whole if whole > 0 else 1.0
    open_ = s <= floor
    inverse = vt.T / np.maximum(s, floor) ** 2 @ vt
    covariance = variance * inverse * sizes[:, None] * sizes
    std = np.sqrt(np.diag(covariance))
    std[(np.abs(vt[open_]) > 1e-2).any(0)] = np.inf
    relative = np.where(open_, np.inf, math.sqrt(max(variance, 0.0)) / np.where(open_, 1.0, s))
    found = []
    for row, spread in zip(vt, relative, strict=True):
        if not spread <= 1.0:
            row = row * np.sign(row[np.abs(row).argmax()])
            found.append(Combination({n: float(w) for n, w in zip(names, row, strict=True) if abs(w) > 1e-2}, float(spread)))
    return covariance, std, tuple(found)


def _offset(residual, jac, n: int, sizes, rows: int, small: float) -> float:
    """Distance to the minimum in units of the radius of the confidence region: the relative offset criterion.

    Bates and Watts, *A relative offset orthogonality convergence criterion for nonlinear least squares*, Technometrics 23 (1981).
    """
    scaled = np.concatenate([jac[:, :n] * sizes, jac[:, n:]], 1)
    u, s, _ = np.linalg.svd(scaled, full_matrices=False)
    u = u[:, s > small * s[0]]
    inside = float(np.sum((u.T @ residual) ** 2))
    rank, outside = u.shape[1], float(residual @ residual)
    if rank == 0 or rows <= rank or outside <= inside:
        return 0.0 if inside == 0 else np.inf
    return math.sqrt(inside / rank) / math.sqrt((outside - inside) / (rows - rank))
