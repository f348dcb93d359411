"""The tasks of the DeepMind Control Suite against dm_control (tests/reference/dm_control.json, written by make_dm_control.py beside it)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.envs import make_env
from xsim.envs.suite import SUITE, tolerance

REFERENCE = Path(__file__).parent / "reference" / "dm_control.json"
DAILY = ("dmc_acrobot_swingup", "dmc_cartpole_swingup", "dmc_pendulum_swingup", "dmc_reacher_easy")
CONTACT = {"dmc_ball_in_cup_catch": 1e-4}
"""Where contacts or limits are met MuJoCo's solver is at its rounding, with which stiff motions grow; 1e-5 for the others."""


@cache
def recorded() -> dict:
    return {f"dmc_{name}": row for name, row in json.loads(REFERENCE.read_text()).items()}


def test_names():
    assert set(SUITE) == set(recorded()) and len(set(SUITE)) == len(SUITE) == 28


def cases():
    return [pytest.param(name, marks=[] if name in DAILY else [pytest.mark.nightly]) for name in SUITE]


@pytest.mark.parametrize("name", cases())
def test_steps_are_those_of_dm_control(name, x64):
    """Observations and rewards of a few actions, from a state that random actions lead to and from one near the goal."""
    known = recorded()[name]
    rows = known["rows"]
    env = make_env(name, num_envs=len(rows), auto_reset=False)
    assert (env.task.action_repeat, env.task.max_steps) == (known["action_repeat"], known["steps"])
    s = jax.jit(env.reset)(jax.random.key(0))
    q, v = (np.array([row[key] for row in rows]) for key in ("q", "v"))
    state = s.state.replace(q=jnp.asarray(q), v=jnp.asarray(v))
    if "target" in rows[0]:
        target = np.array([row["target"] for row in rows])
        state = state.replace(mocap=state.mocap.at[:, 0, :3].set(target))
    s, step = s.replace(state=state), jax.jit(env.step)
    allowed = CONTACT.get(name, 1e-5)
    for i in range(len(rows[0]["action"])):
        s = step(s, np.array([row["action"][i] for row in rows]))
        wanted = np.array([row["observation"][i] for row in rows])
        np.testing.assert_allclose(s.obs, wanted, rtol=allowed, atol=allowed * max(1.0, np.abs(wanted).max()), err_msg=f"action {i}")
        np.testing.assert_allclose(s.reward, [row["reward"][i] for row in rows], rtol=allowed, atol=allowed, err_msg=f"action {i}")
    assert not s.done.any()


def test_tolerance():
    """Values inside, at the margin, and beyond it, of every shape; derivatives are finite."""
    x = jnp.array([-1.0, 0.5, 1.0, 2.0, 3.0])
    np.testing.assert_array_equal(tolerance(x, (0.0, 1.0)), [0, 1, 1, 0, 0])
    for sigmoid, beyond in (("gaussian", 1e-4), ("long_tail", 1 / 37), ("linear", 0.0), ("quadratic", 0.0)):
        values = tolerance(x, (0.0, 1.0), 1.0, sigmoid)
        np.testing.assert_allclose(values, [0.1, 1, 1, 0.1, beyond], rtol=1e-5, atol=1e-7)
        assert np.isfinite(jax.grad(lambda x, s=sigmoid: tolerance(x, (0.0, 1.0), 1.0, s).sum())(x)).all()


@pytest.mark.slow
def test_a_start_is_free_of_contact():
    """As dm_control samples the ball: uniform, again until nothing is touched; the target of a reacher in its ring."""
    env = make_env("dmc_ball_in_cup_catch", num_envs=64)
    q = jax.jit(env.reset)(jax.random.key(1)).state.q
    touches = jax.jit(lambda q: xsim.contacts(env.model, xsim.init(env.model, q)).active.any(-1))
    assert not touches(q).any() and touches(q.at[:, 3].set(0.28).at[:, 2].set(0.0)).all()
    assert (np.abs(q[:, 2]) <= 0.2).all() and ((0.2 <= q[:, 3]) & (q[:, 3] <= 0.5)).all() and np.unique(q[:, 3]).size > 32
    env = make_env("dmc_reacher_hard", num_envs=256)
    s = jax.jit(env.reset)(jax.random.key(1))
    radius = np.linalg.norm(s.state.mocap[:, 0, :2], axis=-1)
    assert 0.05 <= radius.min() < 0.06 and 0.19 < radius.max() <= 0.2
    assert np.abs(s.state.q).max() <= np.pi and float(env.model.get("geom.size[target, 0]")) == pytest.approx(0.015)
