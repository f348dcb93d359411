"""Numbers of Project Chrono: every model of the corpus, in float64."""

from __future__ import annotations

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close, of_names
from corpus import models, needs_corpus, oracle

import xsim
from xsim.dynamics.inverse import state_from_poses

pytestmark = [pytest.mark.conformance, needs_corpus]


@pytest.mark.parametrize("path", models("chrono"), ids=lambda p: p.stem)
def test_states(path, x64):
    facts = oracle(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xsim.load(path, gravity=facts["gravity"])
    names = list(model.body_names)
    bushing = any(f.kind == "bushing" for f in model.topology.forces)
    states = [s for s in facts["states"] if "body_acceleration" in s]
    poses, velocities, wanted = (np.array([of_names(s[k], names) for s in states]) for k in ("body_pose", "body_velocity", "body_acceleration"))
    times = np.array([s["time"] for s in states], float)
    with jax.disable_jit():
        state, residual = state_from_poses(model, poses[..., :3], poses[..., 3:], velocities[..., :3], velocities[..., 3:])
        state = state.replace(time=jnp.asarray(times))
        data = xsim.forward(model, state)
    assert residual.max() < 1e-6
    close("velocity", np.concatenate([data.lin, data.ang], -1), velocities, 2e-6)
    close("gaps", xsim.gaps(model, state.q, state.time), 0.0, 1e-6, 1.0)
    close("acceleration", np.concatenate([data.lin_acc, data.ang_acc], -1), wanted, 1e-5 if bushing else 1e-6)
