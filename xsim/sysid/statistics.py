"""What a fit found: values with standard errors, and the combinations of parameters that the data does not determine.

Uncertainty is that of the linearized problem, ``sigma^2 (J^T J)^-1`` with J the exact Jacobian with respect to the numbers in their
physical units (Seber and Wild, *Nonlinear Regression*, 1989, section 2.1.2); unknown states are projected out of J. Small singular
values of the scaled J name the combinations that the data leaves open.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import numpy as np

from xsim.model.model import Model, State
from xsim.sysid.linearization import Pieces
from xsim.sysid.parameters import split, typical_sizes
from xsim.sysid.problem import Prepared, join
from xsim.sysid.residuals import Structure, evaluate, physical_and_slope

__all__ = ["Combination", "Fit", "Minimum", "make_fit", "of_pieces", "of_problem"]

OFFSET_TOLERANCE = 1e-2  # how near, in standard errors, the minimum must be for a fit to count as converged
SMALL_WEIGHT = 1e-2  # a parameter with a smaller share is left out of a combination


# ---- results -----------------------------------------------------------------------------------------------------------------


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
    """The result of `fit`.

    model: the fitted model. values, std_errors, starts: {name: number} in the leaf's unit. units: {name: unit}.
    bounds: {name: (low, high)}, infinite where there is none.
    covariance, correlation: (n, n) in the order of ``names``, states projected out. state: the initial state (*batch).
    cost: half the sum of squared weighted residuals; history: (iterations,) its course, the best so far where a step is refused.
    noise: root of the residual variance factor, 1 where ``std`` is the true noise (and the noise itself where std was left at 1).
    freedom: residuals less unknowns, the degrees of freedom of that factor.
    predicted: what observe gives along the fitted trajectories, residuals: measured minus predicted (NaN where nothing was measured),
    both shaped like measured. segment_starts: (q, v) of all segments, (segments, *batch, ...), None without segments. Of several problems
    state, predicted, residuals and segment_starts are None.
    undetermined: combinations that the data leaves open (see `Combination`). at_bound: names whose value ran into a bound.
    """

    model: Model
    names: tuple[str, ...]
    values: dict[str, float]
    std_errors: dict[str, float]
    starts: dict[str, float]
    units: dict[str, str]
    bounds: dict[str, tuple[float, float]]
    covariance: np.ndarray
    correlation: np.ndarray
    state: State
    segment_starts: tuple[np.ndarray, np.ndarray] | None
    cost: float
    history: np.ndarray
    noise: float
    freedom: int
    samples: int
    predicted: Any
    residuals: Any
    undetermined: tuple[Combination, ...]
    at_bound: tuple[str, ...]
    converged: bool
    reason: str
    method: str

    def __repr__(self) -> str:
        values = ", ".join(f"{n} {x:.5g}" for n, x in self.values.items())
        return f"Fit({'converged' if self.converged else 'NOT converged'}, cost {self.cost:.6g}: {values})"

    def intervals(self, level: float = 0.95) -> dict[str, tuple[float, float]]:
        """Confidence intervals {name: (low, high)} in the leaf's unit, each of one parameter by itself.

        level: the probability, over repeated experiments, that an interval holds the true number. It reaches from the value as many
        standard errors to either side as Student's t with ``freedom`` degrees of freedom has for the level (Bates and Watts, *Nonlinear
        Regression Analysis and Its Applications*, 1988, section 2.3: linear approximation), and ends at the parameter's bounds, beyond
        which no number is possible. Where the data determines nothing, or leaves no degree of freedom, it is all between the bounds.

        Raises ValueError for a level that is not between 0 and 1.
        """
        from scipy.special import stdtrit  # a fifth of the time to import xsim

        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, found {level}")
        factor = float(stdtrit(self.freedom, 0.5 + 0.5 * level)) if self.freedom > 0 else math.inf
        out = {}
        for name, value in self.values.items():
            std, (low, high) = self.std_errors[name], self.bounds[name]
            reach = factor * std if math.isfinite(factor) and math.isfinite(std) else math.inf
            out[name] = (max(value - reach, low), min(value + reach, high))
        return out

    def summary(self) -> str:
        """A table of the result as text."""
        width = max([len(n) for n in self.names] + [9])
        lines = [f"{'parameter':<{width}}  {'start':>11}  {'value':>11}  {'std error':>11}  unit"]
        for n in self.names:
            note = "  at its bound" if n in self.at_bound else ""
            numbers = f"{self.starts[n]:>11.5g}  {self.values[n]:>11.5g}  {self.std_errors[n]:>11.2g}"
            lines.append(f"{n:<{width}}  {numbers}  {self.units[n]}{note}")
        verdict = "converged" if self.converged else "NOT converged"
        lines += [
            "",
            f"{verdict} ({self.method}, {len(self.history) - 1} iterations): {self.reason}",
            f"cost {self.history[0]:.6g} -> {self.cost:.6g}; {self.samples} samples; noise factor {self.noise:.4g}",
            *self._strong_correlations(),
            *(f"not determined by the data: {c}" for c in self.undetermined),
        ]
        return "\n".join(lines)

    def _strong_correlations(self) -> list[str]:
        pairs = [
            (abs(self.correlation[i, j]), self.names[i], self.names[j], self.correlation[i, j])
            for i in range(len(self.names))
            for j in range(i)
        ]
        return [f"strongly correlated: {b} and {a}: {c:+.3f}" for _, a, b, c in sorted(p for p in pairs if p[0] > 0.9)]


class Minimum(NamedTuple):
    """Where a solver stopped: the unconstrained unknowns z (n,), the course of the cost, why it stopped.

    stationary: it stands still to within xtol.
    """

    z: Any
    history: list[float]
    reason: str
    stationary: bool


class Evaluated(NamedTuple):
    """The problem where a solver stopped. x (unknowns,): the physical unknowns. model: with them. residual (m,) and jacobian (m, unknowns):
    of the problem, or the triangular factor of those of several. count: of residuals, without those of missing samples. samples: numbers
    that were measured. trajectories: the fields of `Fit` with one number a sample or trajectory."""

    structure: Structure
    ranges: Any
    x: Any
    model: Model
    residual: Any
    jacobian: Any
    count: int
    samples: int
    trajectories: dict[str, Any]


def of_problem(prepared: Prepared, z) -> Evaluated:
    """One problem, at the unconstrained unknowns z (n,)."""
    structure, data = prepared.structure, prepared.data
    x, _ = physical_and_slope(structure, z, data.ranges)
    evaluation = evaluate(structure, x, data)
    simulation, cut = evaluation.simulation, structure.segments is not None
    predicted = jax.tree.map(lambda a: join(a, prepared.steps) if cut else np.asarray(a), simulation.recorded)
    trajectories = {
        "state": jax.tree.map(lambda a: a[0], simulation.starts) if cut else simulation.starts,
        "segment_starts": (np.asarray(simulation.starts.q), np.asarray(simulation.starts.v)) if cut else None,
        "predicted": predicted,
        "residuals": jax.tree.map(lambda m, p: np.asarray(m) - p, prepared.problem.measured, predicted),
    }
    count = prepared.samples + len(evaluation.residual) - sum(leaf.size for leaf in jax.tree.leaves(data.measured))
    numbers = evaluation.residual, evaluation.jacobian, count, prepared.samples
    return Evaluated(structure, data.ranges, x, simulation.model, *numbers, trajectories)


def of_pieces(pieces: Pieces, z) -> Evaluated:
    """Several problems, at the unconstrained unknowns z (n,)."""
    x, _ = physical_and_slope(pieces.structure, z, pieces.ranges)
    triangle, samples = pieces.factor(x)
    trajectories = dict.fromkeys(("state", "segment_starts", "predicted", "residuals"))
    numbers = triangle[:, -1], triangle[:, :-1], samples, samples
    return Evaluated(pieces.structure, pieces.ranges, x, pieces.model(x), *numbers, trajectories)


def make_fit(found: Evaluated, minimum: Minimum, method: str) -> Fit:
    """The result. method: the solver's name."""
    structure = found.structure
    ranges = jax.tree.map(lambda a: np.asarray(a, np.float64), found.ranges)
    n, names = structure.parameters, tuple(name for b in structure.blocks for name in b.names)
    values = np.asarray(found.x[:n], np.float64)
    linear = _linearization(found, typical_sizes(structure.blocks, ranges, values))
    uncertainty = _uncertainty(linear, names)
    converged, reason = _verdict(minimum, linear)
    return Fit(
        model=found.model,
        names=names,
        values=dict(zip(names, values.tolist(), strict=True)),
        std_errors=dict(zip(names, uncertainty.std.tolist(), strict=True)),
        starts={name: float(s) for b, r in zip(structure.blocks, ranges, strict=True) for name, s in zip(b.names, r.start, strict=True)},
        units={name: b.unit for b in structure.blocks for name in b.names},
        bounds=_bounds(structure.blocks, ranges),
        covariance=uncertainty.covariance,
        correlation=_correlation(uncertainty.covariance),
        cost=0.5 * float(linear.residual @ linear.residual),
        history=np.array(minimum.history),
        noise=math.sqrt(linear.variance) if linear.variance >= 0 else math.nan,
        freedom=found.count - structure.unknowns,
        samples=found.samples,
        undetermined=uncertainty.undetermined,
        at_bound=_at_bound(structure.blocks, ranges, values),
        converged=converged,
        reason=reason,
        method=method,
        **found.trajectories,
    )


def _verdict(minimum: Minimum, linear: Linearization) -> tuple[bool, str]:
    """(whether the fit converged, why it ended)."""
    if minimum.stationary:
        return True, minimum.reason
    offset = _relative_offset(linear)
    return bool(offset < OFFSET_TOLERANCE), f"{minimum.reason}; {offset:.2g} standard errors from the minimum of the linearized problem"


def _bounds(blocks, ranges) -> dict[str, tuple[float, float]]:
    return {
        name: (float(low), float(high))
        for b, r in zip(blocks, ranges, strict=True)
        for name, low, high in zip(b.names, r.low, r.high, strict=True)
    }


def _at_bound(blocks, ranges, values) -> tuple[str, ...]:
    """Names within a thousandth of the range (or of the start's distance) of a bound."""
    out = []
    for b, r, x in zip(blocks, ranges, split(blocks, values), strict=True):
        for bound in (r.low, r.high):
            reach = np.where(np.isfinite(bound), 1e-3 * np.abs(r.start - bound), 0.0)
            out += [name for name, near in zip(b.names, np.abs(x - bound) <= reach, strict=True) if near and name not in out]
    return tuple(out)


# ---- the linearized problem --------------------------------------------------------------------------------------------------


class Linearization(NamedTuple):
    """Residual (m,) and Jacobian at the minimum, in float64.

    scaled: (m, parameters), columns times the parameters' sizes, so that a singular value s means a relative standard error sigma / s
    along its direction. starts: (m, unknowns of the starts). sizes: (parameters,). count: residuals, without those of missing samples.
    tolerance: below which part of the largest a singular value counts as zero. variance: of a residual, NaN without degrees of freedom.
    """

    residual: np.ndarray
    scaled: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    count: int
    tolerance: float
    variance: float


class Uncertainty(NamedTuple):
    """covariance (n, n) and standard errors (n,) of the parameters, and the combinations that are left open."""

    covariance: np.ndarray
    std: np.ndarray
    undetermined: tuple[Combination, ...]


def _linearization(found: Evaluated, sizes: np.ndarray) -> Linearization:
    residual, jacobian = (np.asarray(x, np.float64) for x in (found.residual, found.jacobian))
    n = found.structure.parameters
    freedom = found.count - found.structure.unknowns
    variance = float(residual @ residual) / freedom if freedom > 0 else np.nan
    tolerance = float(np.sqrt(np.finfo(found.x.dtype).eps))
    return Linearization(residual, jacobian[:, :n] * sizes, jacobian[:, n:], sizes, found.count, tolerance, variance)


def _uncertainty(linear: Linearization, names: tuple[str, ...]) -> Uncertainty:
    """Uncertainty of the parameters, with the starts projected out.

    Directions whose singular value is below the tolerance times the largest column count as open; the value is set to that floor, which
    keeps the correlations finite, and the standard errors of the parameters that take part are infinite.
    """
    if not names:
        return Uncertainty(np.zeros((0, 0)), np.zeros(0), ())
    largest = np.linalg.norm(linear.scaled, axis=0).max()
    s, directions = _singular_directions(_without(linear.scaled, linear.starts, linear.tolerance))
    floor = linear.tolerance * largest if largest > 0 else 1.0
    is_open = s <= floor
    inverse = directions.T / np.maximum(s, floor) ** 2 @ directions
    covariance = linear.variance * inverse * linear.sizes[:, None] * linear.sizes
    std = np.sqrt(np.diag(covariance))
    std[(np.abs(directions[is_open]) > SMALL_WEIGHT).any(0)] = np.inf
    relative_std = np.where(is_open, np.inf, math.sqrt(max(linear.variance, 0.0)) / np.where(is_open, 1.0, s))
    return Uncertainty(covariance, std, _undetermined(directions, relative_std, names))


def _without(columns: np.ndarray, others: np.ndarray, tolerance: float) -> np.ndarray:
    """The columns less their projection on the span of others."""
    if not others.shape[1]:
        return columns
    basis, s, _ = np.linalg.svd(others, full_matrices=False)
    basis = basis[:, s > tolerance * s[0]]
    return columns - basis @ (basis.T @ columns)


def _singular_directions(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Singular values (n,) and right singular vectors (n, n), by row, of a matrix (m, n); zeros where m < n."""
    n = matrix.shape[1]
    _, s, vt = np.linalg.svd(matrix, full_matrices=False)
    s = np.concatenate([s, np.zeros(n - len(s))])
    return s, np.concatenate([vt, np.zeros((n - len(vt), n))]) if len(vt) < n else vt


def _undetermined(directions: np.ndarray, relative_std: np.ndarray, names: tuple[str, ...]) -> tuple[Combination, ...]:
    """The directions whose relative standard error is not below 1."""
    combinations = []
    for direction, std in zip(directions, relative_std, strict=True):
        if not std <= 1.0:
            direction = direction * np.sign(direction[np.abs(direction).argmax()])
            weights = {n: float(w) for n, w in zip(names, direction, strict=True) if abs(w) > SMALL_WEIGHT}
            combinations.append(Combination(weights, float(std)))
    return tuple(combinations)


def _correlation(covariance: np.ndarray) -> np.ndarray:
    std = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    std = np.where(std > 0, std, 1.0)
    return covariance / std[:, None] / std


def _relative_offset(linear: Linearization) -> float:
    """Distance to the minimum in units of the radius of the confidence region: the relative offset criterion.

    Bates and Watts, *A relative offset orthogonality convergence criterion for nonlinear least squares*, Technometrics 23 (1981).
    """
    u, s, _ = np.linalg.svd(np.concatenate([linear.scaled, linear.starts], 1), full_matrices=False)
    u = u[:, s > linear.tolerance * s[0]]
    inside = float(np.sum((u.T @ linear.residual) ** 2))
    rank, total = u.shape[1], float(linear.residual @ linear.residual)
    if rank == 0 or linear.count <= rank or total <= inside:
        return 0.0 if inside == 0 else np.inf
    return math.sqrt(inside / rank) / math.sqrt((total - inside) / (linear.count - rank))
