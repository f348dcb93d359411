"""Pictures of a fit (matplotlib, extra ``plot``): parameters with their intervals, trajectories with residuals, correlations.

Each returns a `matplotlib.figure.Figure`: ``figure.savefig("fit.png")`` writes it, and a notebook shows it by ``display(figure)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from xsim.suggestions import did_you_mean
from xsim.sysid.statistics import Fit

__all__ = ["plot_correlations", "plot_parameters", "plot_trajectories"]

MOST_NUMBERS = 16  # more correlations than these in a row are not written as numbers


def plot_parameters(fit: Fit, truth: Mapping[str, float] | None = None, *, level: float = 0.95):
    """The values with their confidence intervals (`Fit.intervals` at the level), one row for each parameter.

    Intervals are drawn in percent of the fitted value (of the standard error where the value is 0); value, standard error and unit stand
    beside them. What the data does not determine has a row without an interval. truth: {name: number}, true or expected numbers to be
    marked, of some or all parameters.

    Returns the Figure. Raises KeyError for a name in truth that the fit does not have, ValueError for a bad level, ImportError where
    matplotlib is missing.
    """
    truth = {} if truth is None else truth
    for name in truth:
        if name not in fit.values:
            raise KeyError(f"truth: the fit has no parameter {name!r}{did_you_mean(name, fit.names)}")
    intervals = fit.intervals(level)
    ax = (figure := _figure((9.0, 1.2 + 0.32 * max(len(fit.names), 1)))).add_subplot()
    labels = []
    for row, name in enumerate(fit.names):
        value, std, unit = fit.values[name], fit.std_errors[name], fit.units[name]
        percent = 100 / _size(value, std)
        if math.isfinite(std):
            low, high = intervals[name]
            ax.plot([percent * (low - value), percent * (high - value)], [row, row], "|-", color="C0", lw=2, ms=9)
            ax.plot(0, row, "o", color="C0", ms=5)
            labels.append(f"{name}\n{value:.5g} ± {std:.2g} {unit}")
        else:
            labels.append(f"{name}\n{value:.5g} {unit}, not determined")
        if name in truth:
            ax.plot(percent * (truth[name] - value), row, "x", color="C3", ms=7, mew=2, label="truth")
    ax.axvline(0, color="gray", lw=0.8, zorder=0)
    ax.set(yticks=range(len(labels)), xlabel=f"difference from the fitted value (%); bars: {100 * level:g} % intervals")
    ax.set_yticklabels(labels, fontsize=7)
    ax.invert_yaxis()
    if truth:
        handle = next(line for line in ax.get_lines() if line.get_label() == "truth")
        ax.legend(handles=[handle], loc="best")
    return figure


def plot_trajectories(fit: Fit, measured: Any, dt: float, names: Sequence[str] | None = None):
    """Measured (dots) and fitted (lines) on the left, measured minus fitted on the right: one row a channel, one colour a trajectory.

    measured: what the fit was made from, a tree of (steps, *batch, ...). dt: time between its rows, s; the first is at dt. names: of the
    channels, in the order of the tree's leaves and of the numbers in each; default: where they are in the tree.

    Returns the Figure. Raises ValueError for a fit of several problems, which has no trajectories, for measured unlike that of the fit,
    and for names that are not as many as channels; ImportError where matplotlib is missing.
    """
    channels = _channels(fit, measured)
    if names is not None and len(names) != len(channels):
        raise ValueError(f"names has {len(names)} entries, but there are {len(channels)} channels")
    rows = max(len(channels), 1)
    axes = (figure := _figure((11.0, 0.6 + 1.9 * rows))).subplots(rows, 2, squeeze=False, sharex=True, width_ratios=(3, 2))
    for (left, right), (default, data, model), label in zip(axes, channels, names or itertools.repeat(None), strict=False):
        times = dt * np.arange(1, len(data) + 1)
        for k in range(data.shape[1]):
            left.plot(times, data[:, k], ".", color=f"C{k % 10}", ms=3, alpha=0.4)
            left.plot(times, model[:, k], "-", color=f"C{k % 10}", lw=1)
            right.plot(times, data[:, k] - model[:, k], "-", color=f"C{k % 10}", lw=0.6)
        right.axhline(0, color="gray", lw=0.8)
        left.set_ylabel(default if label is None else label)
    axes[0, 0].set_title("dots: measured, lines: fitted", fontsize=10)
    axes[0, 1].set_title("measured minus fitted", fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("time (s)")
    return figure


def plot_correlations(fit: Fit):
    """The correlation matrix of the parameters. Returns the Figure. Raises ImportError where matplotlib is missing."""
    n = len(fit.names)
    side = 2.5 + 0.42 * n
    ax = (figure := _figure((side + 1.0, side))).add_subplot()
    image = ax.imshow(fit.correlation, vmin=-1, vmax=1, cmap="RdBu")
    ax.set(xticks=range(n), yticks=range(n))
    ax.set_xticklabels(fit.names, rotation=90, fontsize=8)
    ax.set_yticklabels(fit.names, fontsize=8)
    if n <= MOST_NUMBERS:
        for (i, j), c in np.ndenumerate(fit.correlation):
            ax.text(j, i, f"{c:.2f}", ha="center", va="center", fontsize=6, color="white" if abs(c) > 0.6 else "black")
    figure.colorbar(image, label="correlation")
    return figure


def _figure(inches):
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("plots of a fit need matplotlib: pip install 'xsim[plot]'") from error
    figure = Figure(figsize=inches, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _size(value: float, std: float) -> float:
    """What percentages are of."""
    return abs(value) or (std if math.isfinite(std) and std > 0 else 1.0)


def _channels(fit: Fit, measured) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(name, measured, fitted) of each channel, both (steps, trajectories)."""
    if fit.predicted is None:
        raise ValueError("a fit of several problems has no trajectories to draw")
    trajectories = fit.state.q.ndim - 1
    paths, fitted = jax.tree_util.tree_leaves_with_path(measured), jax.tree.leaves(fit.predicted)
    shapes, expected = [np.shape(x) for _, x in paths], [np.shape(x) for x in fitted]
    if jax.tree.structure(measured) != jax.tree.structure(fit.predicted) or shapes != expected:
        raise ValueError(f"measured has arrays of shape {shapes}, but those of the fit are {expected}")
    channels = []
    for (path, data), model in zip(paths, fitted, strict=True):
        inner, name = np.shape(data)[1 + trajectories :], jax.tree_util.keystr(path)
        data, model = (np.asarray(x, np.float64).reshape(len(x), math.prod(x.shape[1 : 1 + trajectories]), -1) for x in (data, model))
        for k, index in enumerate(np.ndindex(*inner)):
            channels.append((name + (str(list(index)) if inner else "") or "measured", data[..., k], model[..., k]))
    return channels
