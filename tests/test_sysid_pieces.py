"""Recordings that do not fit into memory together, and recordings divided among devices and processes: the same fit as of all at once."""

from __future__ import annotations

from pathlib import Path

import jax
import numpy as np
import pytest
from processes import HERE, finish, free_address, start

import xsim
from xsim import models
from xsim.sysid import Parameter, Problem, Segments, Solver, fit

pytest.importorskip("optimistix")

COUNT, STEPS, NOISE = 6, 40, 0.01


def angles(state, data):
    return state.q


def recordings():
    """(guess, state, measured) of six recordings of a chain, in which a sample is missing."""
    truth = xsim.load(models.path("spring_chain"))
    rng = np.random.default_rng(0)
    state = xsim.init(truth, rng.uniform(-1, 1, (COUNT, truth.nq)))
    clean = np.asarray(jax.jit(lambda s: xsim.rollout(truth, s, steps=STEPS, record=angles)[1])(state))
    measured = clean + NOISE * rng.normal(size=clean.shape)
    measured[3, 1] = np.nan
    return truth.replace({"dof.damping": 1.6 * truth.dof.damping, "dof.stiffness": 0.6 * truth.dof.stiffness}), state, measured


def problem(guess, state, measured, part=slice(None), **options) -> Problem:
    """Of some of the recordings."""
    states = jax.tree.map(lambda x: x[part], state)
    return Problem(guess, states, measured[:, part], ["dof.damping", "dof.stiffness"], observe=angles, std=NOISE, **options)


PARTS = (slice(0, 2), slice(2, 4), slice(4, 6))


@pytest.fixture(scope="module")
def all_at_once():
    with jax.enable_x64(True):
        data = recordings()
        return data, fit(problem(*data))


def same(pieces, whole):
    """The same numbers to the tolerance of the search, the same uncertainty, and no samples."""
    assert pieces.converged and pieces.names == whole.names and pieces.samples == whole.samples
    np.testing.assert_allclose(list(pieces.values.values()), list(whole.values.values()), rtol=1e-8)
    np.testing.assert_allclose(pieces.covariance, whole.covariance, rtol=1e-6, atol=1e-9 * np.abs(whole.covariance).max())
    np.testing.assert_allclose((pieces.cost, pieces.noise), (whole.cost, whole.noise), rtol=1e-9)
    assert len(pieces.history) == len(whole.history)


@pytest.mark.slow
@pytest.mark.parametrize("source", [list, lambda problems: lambda: iter(problems)], ids=["list", "generator"])
def test_pieces_are_the_whole(all_at_once, x64, source):
    data, whole = all_at_once
    found = fit(source([problem(*data, part) for part in PARTS]))
    same(found, whole)
    np.testing.assert_array_equal(found.model.dof.damping, [found.values[f"dof.damping[link{i}]"] for i in (1, 2, 3)])
    assert found.predicted is found.residuals is found.state is found.segment_starts is None
    assert "converged" in found.summary()


@pytest.mark.slow
def test_pieces_of_other_lengths_and_with_segments(all_at_once, x64):
    """A recording that ends early is one whose later samples are missing; segments start from measured states."""
    (guess, state, measured), _ = all_at_once
    steps, cut = STEPS // 2, Segments(STEPS // 2, starts="measured", states=(np.nan_to_num(measured), np.zeros_like(measured)))
    ends = measured.copy()
    ends[steps:, PARTS[0]] = np.nan
    early = Solver(ftol=1e-10)  # starts without velocity fit badly: at the bottom of a large cost rounding decides which steps are refused
    whole = fit(problem(guess, state, ends, segments=cut), early)
    states = tuple(x[:, PARTS[1].start :] for x in cut.states)
    rest = problem(guess, state, measured, slice(PARTS[1].start, None), segments=Segments(steps, starts="measured", states=states))
    same(fit([problem(guess, state, measured[:steps], PARTS[0]), rest], early), whole)


@pytest.mark.slow
def test_refused(all_at_once, x64):
    data, _ = all_at_once
    first, second = (problem(*data, part) for part in PARTS[:2])
    with pytest.raises(TypeError, match="only once"):
        fit(iter([first, second]))
    with pytest.raises(ValueError, match="there is no problem"):
        fit([])
    with pytest.raises(ValueError, match="starts of several problems must be known"):
        fit([first, problem(*data, PARTS[1], initial="fitted")])
    with pytest.raises(ValueError, match="must be the same"):
        other = Parameter("dof.damping", start=1.0)
        fit([first, Problem(second.model, second.state, second.measured, [other, "dof.stiffness"], observe=angles, std=NOISE)])
    with pytest.raises(ValueError, match="by least squares"):
        fit([first, second], "adam")


PROGRAM = (
    HERE
    + """
import jax, numpy as np, xsim
jax.config.update("jax_enable_x64", True)
from test_sysid_pieces import PARTS, problem, recordings

def save(name, found):
    values = list(found.values.values())
    np.savez(f"{sys.argv[1]}/{name}.npz", values=values, covariance=found.covariance, cost=found.cost, samples=found.samples)
"""
)

ON_DEVICES = """
from xsim.dynamics.sharding import dividing
from xsim.sysid.problem import prepare
from xsim.sysid.residuals import evaluate
xsim.use_cores(3)
data = recordings()
save("whole", xsim.sysid.fit(problem(*data)))
save("pieces", xsim.sysid.fit([problem(*data, slice(0, 3)), problem(*data, slice(3, 6))]))
with dividing(least=1):
    prepared = prepare(problem(*data))
    x = np.ones(prepared.structure.unknowns)
    assert "num_partitions=3" in evaluate.lower(prepared.structure, x, prepared.data).compile().as_text()
"""

IN_PROCESSES = """
process = int(sys.argv[2])
jax.distributed.initialize(sys.argv[3], 2, process)
data, parts = recordings(), (PARTS[:1], PARTS[1:])[process]
save(process, xsim.sysid.fit([problem(*data, part) for part in parts], across_processes=True))
"""


def check(file: Path, whole) -> None:
    """The fit of a process is that of all recordings."""
    found = np.load(file)
    assert found["samples"] == whole.samples
    np.testing.assert_allclose(found["values"], list(whole.values.values()), rtol=1e-7)
    np.testing.assert_allclose(found["covariance"], whole.covariance, rtol=1e-5, atol=1e-9 * np.abs(whole.covariance).max())
    np.testing.assert_allclose(found["cost"], whole.cost, rtol=1e-9)


@pytest.mark.nightly
def test_recordings_are_divided_among_devices(all_at_once, tmp_path):
    """Two recordings on each of three: far fewer environments than a rollout is divided from."""
    finish(start("-c", PROGRAM + ON_DEVICES, tmp_path))
    for name in ("whole", "pieces"):
        check(tmp_path / f"{name}.npz", all_at_once[1])


@pytest.mark.nightly  # what each process does is above; `test_distributed.py` has two processes daily
def test_recordings_of_several_processes(all_at_once, tmp_path):
    """One process has one piece, the other two."""
    address = free_address()
    running = [start("-c", PROGRAM + IN_PROCESSES, tmp_path, i, address) for i in range(2)]
    for i, process in enumerate(running):
        finish(process)
        check(tmp_path / f"{i}.npz", all_at_once[1])
