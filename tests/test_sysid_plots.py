"""Confidence intervals of a fit, and its pictures."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy.stats import t as student

import xsim
from xsim.sysid import Parameter, Problem, fit, plot_correlations, plot_parameters, plot_trajectories

pytest.importorskip("optimistix")
pytest.importorskip("matplotlib")

pytestmark = pytest.mark.slow  # the fit that all use

STEPS, DT = 40, 0.05
TWO = f"""<mujoco><option timestep="{DT}" gravity="0 0 0"><flag contact="disable"/></option><worldbody>
<body name="swing"><joint type="slide" stiffness="3" damping=".3"/><geom size=".1" mass="1"/></body>
<body name="still"><joint type="slide" stiffness="3"/><geom size=".1" mass="1"/></body></worldbody></mujoco>"""
SWING, STILL, DAMPING = "dof.stiffness[swing]", "dof.stiffness[still]", "dof.damping[swing]"


def observe(state, data):
    return {"place": state.q, "speed": state.v[..., 0]}


@pytest.fixture(scope="module")
def found():
    """(fit, measured): two recordings, of which one has a gap; one spring is never moved."""
    with jax.enable_x64(True):
        model = xsim.loads(TWO, "mjcf", rules="4.0")
        state = xsim.init(model, [[0.5, 0.0], [-0.3, 0.0]])
        clean = jax.jit(lambda s: xsim.rollout(model, s, steps=STEPS, record=observe)[1])(state)
        rng = np.random.default_rng(0)
        measured = jax.tree.map(lambda x: np.asarray(x) + 0.02 * rng.normal(size=x.shape), clean)
        measured["speed"][3, 0] = np.nan
        chosen = ["dof.stiffness", Parameter(DAMPING, bounds=(0.0, 1.0), start=0.2)]
        return fit(Problem(model, state, measured, chosen, observe=observe, std=0.02)), measured


def test_intervals(found):
    """By Student's t with the degrees of freedom, cut at the bounds; all between them where nothing is determined."""
    f, measured = found
    assert f.freedom == f.samples - 3 == 3 * 2 * STEPS - 1 - 3 and f.bounds[DAMPING] == (0.0, 1.0) and f.bounds[SWING] == (0.0, np.inf)
    for level in (0.5, 0.95):
        reach = student.ppf(0.5 + level / 2, f.freedom) * f.std_errors[SWING]
        assert f.intervals(level)[SWING] == pytest.approx((f.values[SWING] - reach, f.values[SWING] + reach), rel=1e-12)
    assert f.intervals() == f.intervals(0.95) and f.intervals()[STILL] == (0.0, np.inf)
    low, high = replace(f, std_errors=f.std_errors | {DAMPING: 0.6}).intervals()[DAMPING]
    assert (low, high) == (0.0, 1.0)
    few = replace(f, freedom=2)
    assert np.diff(few.intervals()[SWING]) == pytest.approx(2 * 4.30265273 * f.std_errors[SWING], rel=1e-8)  # from a table of t
    assert replace(f, freedom=0).intervals()[SWING] == (0.0, np.inf)
    for level in (0.0, 1.0, 95):
        with pytest.raises(ValueError, match="between 0 and 1"):
            f.intervals(level)


def test_plot_of_parameters(found):
    f, _ = found
    (ax,) = plot_parameters(f, {SWING: 3.0}).axes
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert [label.split("\n")[0] for label in labels] == list(f.names) and "not determined" in labels[f.names.index(STILL)]
    lines = {tuple(line.get_ydata()): line.get_xdata() for line in ax.get_lines() if line.get_marker() == "|"}
    row, (low, high) = f.names.index(SWING), f.intervals()[SWING]
    expected = 100 * (np.array([low, high]) / f.values[SWING] - 1)
    np.testing.assert_allclose(lines[row, row], expected)
    assert (f.names.index(STILL),) * 2 not in lines
    (mark,) = (line for line in ax.get_lines() if line.get_label() == "truth")
    assert mark.get_xdata()[0] == pytest.approx(100 * (3.0 / f.values[SWING] - 1))
    with pytest.raises(KeyError, match="did you mean 'dof.stiffness"):
        plot_parameters(f, {"dof.stifness[swing]": 3.0})


def test_plot_of_trajectories(found):
    f, measured = found
    axes = plot_trajectories(f, measured, DT).axes
    assert [ax.get_ylabel() for ax in axes[::2]] == ["['place'][0]", "['place'][1]", "['speed']"]
    left, right = axes[4:]
    dots, line = left.get_lines()[:2]  # of the first recording
    np.testing.assert_array_equal(dots.get_ydata(), measured["speed"][:, 0])
    np.testing.assert_allclose(line.get_xdata(), DT * np.arange(1, STEPS + 1))
    np.testing.assert_allclose(line.get_ydata(), f.predicted["speed"][:, 0])
    np.testing.assert_allclose(right.get_lines()[1].get_ydata(), f.residuals["speed"][:, 1])
    assert [ax.get_ylabel() for ax in plot_trajectories(f, measured, DT, ["a", "b", "c"]).axes[::2]] == ["a", "b", "c"]
    with pytest.raises(ValueError, match="names has 1 entries, but there are 3 channels"):
        plot_trajectories(f, measured, DT, ["a"])
    for other in (measured["place"], {**measured, "speed": measured["place"]}):
        with pytest.raises(ValueError, match="those of the fit are"):
            plot_trajectories(f, other, DT)
    with pytest.raises(ValueError, match="several problems"):
        plot_trajectories(replace(f, predicted=None), measured, DT)


def test_plot_of_correlations(found, tmp_path):
    f, _ = found
    figure = plot_correlations(f)
    np.testing.assert_allclose(figure.axes[0].get_images()[0].get_array(), f.correlation)
    figure.savefig(tmp_path / "correlations.png")
    assert (tmp_path / "correlations.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_plots_without_matplotlib(found, monkeypatch):
    f, measured = found
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    for draw in (lambda: plot_parameters(f), lambda: plot_trajectories(f, measured, DT), lambda: plot_correlations(f)):
        with pytest.raises(ImportError, match=r"pip install 'xsim\[plot\]'"):
            draw()
