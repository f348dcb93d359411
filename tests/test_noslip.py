"""Friction without slip: against MuJoCo's iterations to their end, its derivatives, and what it is for."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from test_contact import PAIR, check_derivatives
from traced import by_numpy

import xsim

REFERENCE = json.loads((Path(__file__).parent / "reference/noslip.json").read_text())


@pytest.mark.parametrize("case", range(len(REFERENCE["cases"])))
def test_accelerations_of_many_iterations(case, x64):
    """Sticking, slipping and turning, with dry friction and a limit beside the contacts. 1e-6: what friction's remaining softness is."""
    one = REFERENCE["cases"][case]
    model, v = xsim.loads(one["model"], "mjcf"), np.array(REFERENCE["v"])
    q = np.broadcast_to(np.asarray(xsim.init(model).q), (len(v), model.nq))
    data = by_numpy(xsim.forward)(model, xsim.init(model, q, v))
    wanted = np.array(one["acceleration"])
    assert not data.flags.any() and data.residual.max() < 1e-8
    np.testing.assert_allclose(data.a, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())
    if 'condim="1"' not in one["model"]:
        assert np.abs(wanted - one["without"]).max() > 1e-3 * np.abs(wanted).max()  # or nothing is tested


CREEP = """<mujoco><option timestep="0.005" gravity="4 0 -9" cone="{}" noslip_iterations="{}"/><worldbody>
<geom type="plane" size="1 1 1"/><body pos="0 0 0.0999"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/>
<joint axis="0 1 0" frictionloss="0.1"/><geom type="box" size="0.1 0.1 0.1" friction="0.6"/></body></worldbody></mujoco>"""


CONES = [pytest.param("pyramidal", marks=pytest.mark.nightly), "elliptic"]


@pytest.mark.slow
@pytest.mark.parametrize("cone", CONES)
def test_what_sticks_does_not_creep(cone, x64):
    """A box held by friction slides slowly on a soft contact; without slip it stands."""
    far = []
    for iterations in (0, 5):
        model = xsim.loads(CREEP.format(cone, iterations), "mjcf")
        state = xsim.rollout(model, xsim.init(model), steps=60)[0]
        assert not state.flags
        far.append(abs(float(state.v[0])))
    assert far[0] > 1e-4 and far[1] < 1e-5 * far[0]


@pytest.mark.slow
@pytest.mark.parametrize("cone", CONES)
def test_derivatives(cone, x64):
    """Through both solves."""
    model = xsim.loads(PAIR.format(cone).replace("<option ", '<option noslip_iterations="3" '), "mjcf")
    assert model.topology.noslip
    check_derivatives(model)
