"""The locomotion tasks against gymnasium's v5 environments (tests/reference/gymnasium_v5.npz, written by make_gymnasium.py beside it)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import models
from xsim.envs import TASKS, make_env

REFERENCE = Path(__file__).parent / "reference" / "gymnasium_v5.npz"
SIZES = {"ant": (105, 8), "half_cheetah": (17, 6), "hopper": (11, 3), "humanoid": (348, 17), "reacher": (10, 2)}
BOUND = {"humanoid": 0.4}  # of gymnasium's controls; 1 for the others
STEPS = {"ant": 12, "humanoid": 12, "half_cheetah": 60}
"""Of the episodes that are followed; 100 for the others. The cheetah's are chaotic: MuJoCo with another tolerance returns 12 % more."""
SLOW = [pytest.mark.slow]
NAMES = [
    pytest.param("ant", marks=[pytest.mark.nightly]),
    pytest.param("half_cheetah", marks=SLOW),
    pytest.param("hopper", marks=[pytest.mark.nightly]),
    pytest.param("humanoid", marks=[pytest.mark.nightly]),
    pytest.param("reacher", marks=SLOW),
]


@cache
def reference(name: str) -> dict:
    with np.load(REFERENCE) as arrays:
        return {"kept": arrays["kept"], **{k.split("/")[1]: arrays[k] for k in arrays.files if k.startswith(f"{name}/")}}


def blank(env):
    """An EnvState of zeros: nothing is compiled to make it."""

    def zeros(x):
        is_key = jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
        return jax.random.split(jax.random.key(0), x.shape) if is_key else jnp.zeros(x.shape, x.dtype)

    return jax.tree.map(zeros, jax.eval_shape(env.reset, jax.random.key(0)))


def at(s, q, v, place):
    s = s.replace(state=s.state.replace(q=jnp.asarray(q), v=jnp.asarray(v)))
    return s.replace(variables={"place": jnp.asarray(place)}) if s.variables else s


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_gymnasium(name, x64):
    """Single steps from states along gymnasium's episodes, and whole episodes, both in one batch."""
    known = reference(name)
    episodes, kept = known["q"].shape[:2]
    count = episodes * (kept + 1)
    env = make_env(name, num_envs=count, auto_reset=False)
    assert env.observation_spec.shape == SIZES[name][:1] and env.action_spec.shape == SIZES[name][1:]
    step = jax.jit(env.step)

    def lanes(key):
        """Of the single steps, then of the episodes' first step."""
        return np.concatenate([known[key].reshape(episodes * kept, -1), known[key][:, 0]])

    scale = BOUND.get(name, 1.0)
    ctrl = known["ctrl"].astype(float) / scale
    actions = np.concatenate([ctrl[:, known["kept"]].reshape(episodes * kept, -1), ctrl[:, 0]])
    s = step(at(blank(env), lanes("q"), lanes("v"), lanes("place")), actions)

    single = slice(0, episodes * kept)
    close = {"rtol": 1e-6, "atol": 1e-6}
    np.testing.assert_allclose(s.state.q, lanes("q_after"), **close)
    np.testing.assert_allclose(s.state.v, lanes("v_after"), **close)
    np.testing.assert_allclose(s.obs, lanes("obs"), **close)
    for key in [k for k in known if k.startswith("reward")]:
        mine = s.reward if key == "reward" else s.metrics[key]
        np.testing.assert_allclose(mine[single], known[key][:, known["kept"]].reshape(-1), err_msg=key, **close)
    np.testing.assert_array_equal(s.terminated[single], known["terminated"][:, known["kept"]].reshape(-1))

    steps = STEPS.get(name, 100)
    for i in range(1, steps):
        s = step(s, np.concatenate([actions[single], ctrl[:, i]]))
    total = known["reward"][:, :steps].sum(1)
    np.testing.assert_allclose(s.metrics["return"][episodes * kept :], total, rtol=1e-2, atol=1e-2 * np.abs(total).max())


@pytest.mark.parametrize("name", sorted(SIZES))
def test_starts(name, x64):
    """Ranges and moments of the noise of resets."""
    task = TASKS[name]
    model = xsim.load(models.path(task.model), rules="4.0")
    draw = jax.jit(jax.vmap(lambda key: task.start(model, key, ())))
    q, v = (np.asarray(x) for x in draw(jax.random.split(jax.random.key(1), 4000)))
    noise = {"ant": 0.1, "half_cheetah": 0.1, "hopper": 5e-3, "humanoid": 1e-2, "reacher": 0.1}[name]
    middle = np.array(model.topology.initial[0])
    robot = slice(0, 2) if name == "reacher" else slice(None)
    away = (q - middle)[:, robot]
    assert noise * 0.99 < np.abs(away).max() <= noise
    np.testing.assert_allclose(away.std(0), noise / 3**0.5, rtol=0.05)
    speed = {"reacher": 0.005}.get(name, noise)
    if name in ("ant", "half_cheetah"):
        np.testing.assert_allclose(v.std(0), speed, rtol=0.06)
        assert np.abs(v).max() > 3 * speed
    else:
        assert speed * 0.99 < np.abs(v[:, robot]).max() <= speed
    if name == "reacher":
        radius = np.linalg.norm(q[:, 2:], axis=-1)
        assert radius.max() <= 0.2 and abs((radius < 0.1).mean() - 0.25) < 0.03 and (v[:, 2:] == 0).all()


class Fixed:
    """A view of given states, for what needs no dynamics."""

    def __init__(self, q, v):
        self.state = xsim.State(q, v, *[jnp.zeros(len(q))] * 6)


def test_ends(x64):
    """Where episodes end, at the edges that gymnasium's functions give."""
    q, v = np.zeros((6, 6)), np.zeros((6, 6))
    q[:, 1] = [1.25, 0.7, 0.71, 1.25, 1.25, 1.25]
    q[3, 2], q[4, 2], v[5, 4] = 0.2, -0.19, 100.0
    np.testing.assert_array_equal(TASKS["hopper"].terminate(Fixed(q, v)), [False, True, False, True, False, True])
    q = np.zeros((4, 15))
    q[:, 2] = [0.2, 0.19, 1.0, 1.01]
    np.testing.assert_array_equal(TASKS["ant"].terminate(Fixed(q, q[:, 1:])), [False, True, False, True])
    np.testing.assert_array_equal(TASKS["humanoid"].terminate(Fixed(q + 0.8, q)), [True, True, False, False])
    assert TASKS["half_cheetah"].terminate is None and TASKS["reacher"].terminate is None
    assert [TASKS[n].max_steps for n in sorted(SIZES)] == [1000, 1000, 1000, 1000, 50]


def test_variants():
    """Weights and flags of the functions reach the task; a variant needs its model's file."""
    lazy = xsim.envs.locomotion.hopper(ctrl_weight=0.0, max_steps=7)
    env = make_env(models.path("hopper"), task=lazy, num_envs=2)
    assert env.task.max_steps == 7 and env.model.topology.rules == "4.0"
    assert not xsim.envs.locomotion.ant(lagged=False).substeps and TASKS["ant"].substeps
