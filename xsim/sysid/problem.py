"""The problem of a fit: a model, measured trajectories, and what is unknown."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.choice import compiler
from xsim.dynamics.initial_state import init
from xsim.dynamics.sharding import division
from xsim.dynamics.step import rollout
from xsim.model.model import Model, State
from xsim.sysid.parameters import Parameter, resolve
from xsim.sysid.residuals import Data, Structure

__all__ = ["Prepared", "Problem", "Segments", "join", "prepare"]


@dataclass(frozen=True, eq=False)
class Segments:
    """Multiple shooting: the trajectory is cut, and each segment starts from a state of its own.

    length: steps of a segment. starts: ``"fitted"`` (unknowns, tied by continuity residuals; their first guess from ``states``) or
    ``"measured"`` (reset to ``states``). states: (q, v), (steps, *batch, nq) and (steps, *batch, nv), measured or estimated, on the time
    axis of the measurement; None: simulated with the model given. continuity: standard deviation allowed to jumps at the cuts, in units
    of q and v; a descending sequence is run through, each fit starting from the one before.

    What a state has besides q and v (activations, delays, springs that yield) is not known at the cuts: such models are refused.
    """

    length: int
    starts: str = "fitted"
    states: tuple[Any, Any] | None = None
    continuity: float | Sequence[float] = 1e-3


@dataclass(frozen=True, eq=False)
class Problem:
    """What `fit` solves: find the parameters with which the model follows the measured trajectories.

    model: where the fit starts. state: where the trajectories start, (*batch): several initial conditions are a batch; of it q, v and
    time (activations start at zero, and no control precedes). measured: a tree like the one ``observe(state, data)`` returns (see
    `rollout`), leaves (steps, *batch, ...), the first sample one step after ``state``; NaN marks what is missing. observe must index from
    the end (``state.q[..., 0]``), so that it works for any batch.
    parameters: paths or `Parameter`; empty to fit states alone. ctrls: (steps, *batch, nu) commands and taus: (steps, *batch, nv)
    generalized forces that were applied.

    std: standard deviation of the noise, weights: further factors of the squared residuals; each a number or a tree like measured.
    initial: ``"known"``, or ``"fitted"``: the states at the start are unknowns, near ``state`` with the standard deviation
    ``initial_std`` where given. segments: where the trajectory is cut (`Segments`, or the length of one).
    """

    model: Model
    state: State
    measured: Any
    parameters: Sequence[str | Parameter] | str | Parameter
    _: KW_ONLY
    observe: Callable
    ctrls: Any = None
    taus: Any = None
    std: Any = 1.0
    weights: Any = 1.0
    initial: str = "known"
    initial_std: float | None = None
    segments: Segments | int | None = None

    @property
    def has_prior(self) -> bool:
        """Whether fitted initial states are kept near ``state``."""
        return self.initial == "fitted" and self.initial_std is not None


class Prepared(NamedTuple):
    """A checked problem. continuity: standard deviations to run through. steps: of the measurement; samples: numbers measured."""

    problem: Problem
    structure: Structure
    data: Data
    continuity: tuple[float, ...]
    steps: int
    samples: int


class Trajectories(NamedTuple):
    """measured, scale and inputs: leaves (steps, *trajectories, ...); q, v, time: (*trajectories, ...) where they start."""

    measured: Any
    scale: Any
    inputs: dict
    q: np.ndarray
    v: np.ndarray
    time: np.ndarray


def prepare(problem: Problem) -> Prepared:
    """Check a problem and bring its data into the form that is compiled. Errors as in `fit`."""
    model, segments = problem.model, _segments(problem)
    blocks, ranges = resolve(model, problem.parameters)
    start = init(model, problem.state.q, problem.state.v)
    steps = _steps(problem.measured)
    trajectories = _trajectories(problem, start, steps)
    samples = int(sum((x > 0).sum() for x in jax.tree.leaves(trajectories.scale)))
    if segments is not None:
        trajectories = _cut_into_segments(model, segments, trajectories, start, steps)
    unknown_starts, prior_scale = _unknown_starts(problem, segments, start, trajectories)
    structure = Structure(
        blocks=blocks,
        observe=problem.observe,
        unknown_starts=unknown_starts,
        nv=model.nv,
        segments=None if segments is None else -(-steps // segments.length),
        steps=steps if segments is None else segments.length,
        has_prior=problem.has_prior,
        program=(compiler(), division()),
    )
    if structure.unknowns == 0:
        raise ValueError("nothing to fit: no parameters, and the initial states are known")
    dtype = model.option.dt.dtype
    data = Data(
        model=model,
        ranges=jax.tree.map(lambda x: jnp.asarray(x, dtype), ranges),
        **jax.tree.map(jnp.asarray, trajectories._asdict()),
        continuity_scale=jnp.zeros((), dtype),
        prior_scale=jnp.asarray(prior_scale),
    )
    return Prepared(problem, structure, data, _continuity(segments), steps, samples)


# ---- measurement and inputs --------------------------------------------------------------------------------------------------


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{name} must be one of {', '.join(known)}, found {value!r}")


def _steps(measured) -> int:
    leaves = jax.tree.leaves(measured)
    if not leaves or any(np.ndim(x) == 0 for x in leaves) or len({np.shape(x)[0] for x in leaves}) != 1:
        raise ValueError("measured must be a tree of arrays (steps, *batch, ...) with the same number of steps")
    return int(np.shape(leaves[0])[0])


def _trajectories(problem: Problem, start: State, steps: int) -> Trajectories:
    """The trajectories as they are given, not cut."""
    dtype = problem.model.option.dt.dtype
    measured = jax.tree.map(lambda m: np.asarray(m, np.float64), problem.measured)
    return Trajectories(
        scale=jax.tree.map(lambda x: x.astype(dtype), _scale(problem, measured)),
        measured=jax.tree.map(lambda m: np.where(np.isnan(m), 0.0, m).astype(dtype), measured),
        inputs=_inputs(problem, steps),
        q=np.asarray(start.q),
        v=np.asarray(start.v),
        time=np.broadcast_to(np.asarray(problem.state.time, dtype), start.q.shape[:-1]),
    )


def _scale(problem: Problem, measured):
    """sqrt(weight) / std like measured, with 0 where a sample is missing."""
    std, weights = _broadcast("std", problem.std, measured), _broadcast("weights", problem.weights, measured)
    if not all((np.isfinite(x) & (x > 0)).all() for x in jax.tree.leaves(std)):
        raise ValueError("std must be finite and positive")
    if not all((np.isfinite(x) & (x >= 0)).all() for x in jax.tree.leaves(weights)):
        raise ValueError("weights must be finite and not negative")
    if any(np.isinf(x).any() for x in jax.tree.leaves(measured)):
        raise ValueError("measured holds infinite numbers; mark a missing sample with NaN")
    return jax.tree.map(lambda m, s, w: np.where(np.isnan(m), 0.0, np.sqrt(w) / s), measured, std, weights)


def _broadcast(name: str, value, measured):
    """``value`` (a number, an array, or a tree of them shaped like a prefix of measured) broadcast to every measured leaf."""
    try:
        return jax.tree.map(
            lambda v, part: jax.tree.map(lambda m: np.broadcast_to(np.asarray(v, np.float64), m.shape), part), value, measured
        )
    except ValueError as e:
        raise ValueError(f"{name} must be a number or a tree like measured whose arrays broadcast to it ({e})") from None


def _inputs(problem: Problem, steps: int) -> dict[str, np.ndarray]:
    dtype = problem.model.option.dt.dtype
    inputs = {name: np.asarray(x, dtype) for name, x in (("ctrls", problem.ctrls), ("taus", problem.taus)) if x is not None}
    for name, x in inputs.items():
        if x.shape[0] != steps:
            raise ValueError(f"{name} has {x.shape[0]} steps but measured has {steps}")
    return inputs


# ---- segments and starts -----------------------------------------------------------------------------------------------------


def _segments(problem: Problem) -> Segments | None:
    """The segments, with their settings checked."""
    _check_choice("initial", problem.initial, ("known", "fitted"))
    if problem.segments is None:
        return None
    segments = problem.segments if isinstance(problem.segments, Segments) else Segments(problem.segments)
    _check_choice("starts", segments.starts, ("fitted", "measured"))
    _continuity(segments)
    return segments


def _continuity(segments: Segments | None) -> tuple[float, ...]:
    """The standard deviations of continuity to run through; infinite where nothing is cut."""
    if segments is None:
        return (math.inf,)
    continuity = tuple(np.atleast_1d(np.asarray(segments.continuity, np.float64)).tolist())
    if not continuity or not all(np.isfinite(c) and c > 0 for c in continuity):
        raise ValueError(f"continuity must be positive, found {segments.continuity}")
    return continuity


def _cut_into_segments(model: Model, segments: Segments, whole: Trajectories, start: State, steps: int) -> Trajectories:
    """The trajectories with a dimension of segments before the batch."""
    length = segments.length
    if not 1 <= length <= steps:
        raise ValueError(f"segments must have between 1 and the number of steps, {steps}; found {length}")
    count, batch = -(-steps // length), whole.q.shape[:-1]
    others = {"activations": start.act, "delays": start.history, "springs that yield": start.plastic}
    more = [what for what, numbers in others.items() if numbers.size]
    if count > 1 and more:
        raise ValueError(f"segments start from q and v, but the state of this model has more ({', '.join(more)}): fit without segments")
    q, v = _segment_starts(model, segments, whole, start, steps)
    shift = np.arange(count).reshape(-1, *(1,) * len(batch)) * (length * np.asarray(model.option.dt))
    time = (whole.time + shift).astype(whole.time.dtype)
    cut = functools.partial(_cut, length=length, segments=count)
    measured, scale = jax.tree.map(cut, (whole.measured, whole.scale))
    inputs = {name: cut(np.broadcast_to(x, (steps, *batch, x.shape[-1]))) for name, x in whole.inputs.items()}
    return Trajectories(measured, scale, inputs, q, v, time)


def _segment_starts(model: Model, segments: Segments, whole: Trajectories, start: State, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """(q, v), (segments, *batch, ...), that the segments start from: the initial state, then ``states`` at the cuts."""
    cuts = np.arange(segments.length, steps, segments.length) - 1
    states = segments.states
    if states is None and segments.starts == "measured" and cuts.size:
        raise ValueError("starts='measured' needs states=(q, v)")
    if states is None:
        states = rollout(model, start, **whole.inputs, steps=steps, record=lambda s, d: (s.q, s.v))[1]
    starts = []
    for name, x, first in zip(("q", "v"), states, (whole.q, whole.v), strict=True):
        x = np.asarray(x, first.dtype)
        if x.shape != (steps, *first.shape):
            raise ValueError(f"states: {name} has shape {x.shape}, expected {(steps, *first.shape)}")
        starts.append(np.concatenate([first[None], x[cuts]]))
    if not all(np.isfinite(x).all() for x in starts):
        raise ValueError("the states at the cuts are not finite: give states=(q, v)")
    return starts[0], starts[1]


def _unknown_starts(problem: Problem, segments: Segments | None, start: State, trajectories: Trajectories):
    """((first, last) of the trajectories, counted flat, whose start is unknown; 1 / std of each one's displacement, (unknown, 1))."""
    batch = math.prod(start.q.shape[:-1])
    first = 0 if problem.initial == "fitted" else batch
    last = trajectories.time.size if segments is not None and segments.starts == "fitted" else batch
    prior_scale = np.zeros((last - first, 1), trajectories.q.dtype)
    if problem.has_prior:
        prior_scale[:batch] = 1.0 / problem.initial_std
    return (first, last), prior_scale


def _cut(x, length: int, segments: int):
    """(steps, ...) -> (length, segments, ...), zeros after the end."""
    pad = length * segments - x.shape[0]
    x = np.concatenate([x, np.zeros((pad, *x.shape[1:]), x.dtype)]).reshape(segments, length, *x.shape[1:])
    return np.moveaxis(x, 1, 0)


def join(x, steps: int) -> np.ndarray:
    """(length, segments, ...) -> (steps, ...)."""
    x = np.moveaxis(np.asarray(x), 1, 0)
    return x.reshape(-1, *x.shape[2:])[:steps]
