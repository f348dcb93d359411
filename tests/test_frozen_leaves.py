"""One model three ways: with its leaves as arguments of the program, as constants of it, and with leaves per environment.

Constants fold branches and zeros that the other programs evaluate, so that each is a program of its own. Every model of the corpus at its
start and at two random states.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from corpus import corpus, models, needs_corpus
from test_conformance_mjcf import models as mjcf_models
from traced import traced

import xsim

pytestmark = [pytest.mark.conformance, needs_corpus]

OFTEN = ("wrap_cylinder", "reacher2d", "own_rsaddle", "gearbox", "joint_kinds", "tsda_linear")
"""A model of each format; those of the others are nightly."""
LARGE = 60  # velocities: above, an evaluation takes a minute
NUMBERS = ("a", "pos", "bias", "passive", "actuator_force", "sensor", "flags")


def _paths() -> list[Path]:
    root = corpus()
    if root is None:
        return []
    trees = [path for format in ("x_xy", "sdf", "urdf", "skel", "chrono") for path in models(format)]
    return trees + [root / "models" / "mjcf" / path for path in mjcf_models()]


def _id(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def _evaluate(model: xsim.Model, state: xsim.State, ctrl) -> dict:
    data = xsim.forward(model, state, ctrl)
    return {name: getattr(data, name) for name in NUMBERS}


def _states(model: xsim.Model) -> xsim.State:
    """The start state and two random ones."""
    rng, start = np.random.default_rng(0), xsim.init(model)
    q = [xsim.integrate(model, start.q, jnp.asarray(scale * rng.normal(size=model.nv))) for scale in (0.0, 0.3, 0.3)]
    v = [start.v, *rng.normal(scale=0.5, size=(2, model.nv))]
    return xsim.init(model, jnp.stack(q), jnp.stack(list(map(jnp.asarray, v))))


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("path", [pytest.param(p, marks=[pytest.mark.nightly] * (p.stem not in OFTEN), id=_id(p)) for p in _paths()])
def test_programs_of_a_model_agree(path, x64):
    model = xsim.load(path)
    if model.nv > LARGE:
        pytest.skip(f"{model.nv} velocities")
    state, ctrl = _states(model), np.random.default_rng(1).uniform(-0.5, 0.5, (3, model.nu)) if model.nu else None
    wanted = traced(_evaluate, model, state, ctrl)(model, state, ctrl)
    assert not wanted["flags"][0] & xsim.Flags.UNSOLVED
    several = model.replace({name: jnp.stack([model.get(name)] * 3) for name in model.paths()})
    found = {
        "constants": traced(partial(_evaluate, model.freeze("*")), state, ctrl)(state, ctrl),
        "leaves per environment": traced(_evaluate, several, state, ctrl)(several, state, ctrl),
    }
    for kind, numbers in found.items():
        for name, x in numbers.items():
            allowed = 1e-9 * max(1e-3, np.abs(wanted[name]).max(initial=0))
            np.testing.assert_allclose(x, wanted[name], rtol=0, atol=allowed, err_msg=f"{kind}: {name}")
