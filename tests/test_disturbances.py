"""Observations with names; noise, delays and pushes; an actor and a critic that read different entries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import models
from xsim.envs import Push, Task, make_env
from xsim.train import Config, load, train

KEY = jax.random.key(5)
NUM = 6
PENDULUM = models.path("pendulum")


def _names(view):
    return {"state": view.state.q, "privileged_state": jnp.concatenate([view.state.q, view.state.v], -1)}


def _reward(view):
    return -jnp.square(view.state.q[..., 0])


CART = Task(observe=_names, reward=_reward, gear={"cart": 10.0}, max_steps=8)


def _rollout(env, actions):
    """The states of an environment after each of the actions (steps,)."""

    def one(s, action):
        s = env.step(s, jnp.full((env.num_envs, 1), action))
        return s, s

    start = jax.jit(env.reset)(KEY)
    return start, jax.jit(lambda s: jax.lax.scan(one, s, actions)[1])(start)


ACTIONS = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, 7), jnp.float32)


@pytest.fixture(scope="module")
def undelayed():
    """The motion of each whole delay: that of actions which come so many steps later."""
    env = make_env(PENDULUM, task=CART, num_envs=1)
    step = jax.jit(lambda s: jax.lax.scan(lambda s, a: (env.step(s, a[None, None]),) * 2, s, s_actions)[1])
    out = []
    for delay in range(3):
        s_actions = jnp.concatenate([jnp.zeros(delay), ACTIONS])[: len(ACTIONS)]
        out.append(step(env.reset(KEY)).state.q[:, 0])
        step.clear_cache()
    return np.array(out)


def test_actions_and_observations_come_late(undelayed):
    """By the delay that each episode has. The entry for the value is not delayed, and the reward is that of the state."""
    env = make_env(PENDULUM, task=CART, num_envs=NUM, action_delay=(0, 2), observation_delay=(1, 2))
    start, s = _rollout(env, ACTIONS)
    late, seen = np.asarray(start.delays.action), np.asarray(start.delays.observation)
    assert set(late) == {0, 1, 2} and set(seen) == {1, 2}
    q = np.asarray(s.state.q)
    for i in range(NUM):
        np.testing.assert_allclose(q[:, i], undelayed[late[i]], rtol=1e-6, atol=1e-9)
        past = np.concatenate([np.repeat(np.asarray(start.state.q[None, i]), seen[i], 0), q[:, i]])[: len(q)]
        np.testing.assert_array_equal(s.obs["state"][:, i], past)
    np.testing.assert_array_equal(s.obs["privileged_state"][..., :2], q)
    np.testing.assert_allclose(s.reward, -q[..., 0] ** 2, rtol=1e-6, atol=1e-12)


def test_delays_begin_anew():
    """The next episode of an environment has its own delays, and nothing of the episode before is on its way."""
    env = make_env(PENDULUM, task=CART, num_envs=NUM, max_steps=4, action_delay=(0, 5), observation_delay=3)
    _, s = _rollout(env, ACTIONS)
    assert s.truncated[3].all() and (s.delays.actions[3] == 0).all() and (s.length[3] == 0).all()
    np.testing.assert_array_equal(s.obs["state"][3], s.state.q[3])
    assert (s.delays.action[2] != s.delays.action[3]).any() and (s.delays.action <= 5).all()
    final, before = s.info["final_observation"]["state"][3], s.state.q
    np.testing.assert_array_equal(final, before[0])  # three actions ago


def test_noise():
    levels = {"state": [0.1, 0.0]}
    exact, noisy = (_rollout(make_env(PENDULUM, task=CART, num_envs=64, noise=level), ACTIONS)[1] for level in (None, levels))
    np.testing.assert_array_equal(exact.state.q, noisy.state.q)
    np.testing.assert_array_equal(exact.obs["privileged_state"], noisy.obs["privileged_state"])
    error = np.asarray(noisy.obs["state"] - exact.obs["state"])
    assert (error[..., 1] == 0).all() and 0.09 < np.abs(error[..., 0]).max() <= 0.1 + 1e-6
    assert abs(error[..., 0].mean()) < 0.01 and abs(error[..., 0].std() - 0.1 / 3**0.5) < 0.005 and np.unique(error[..., 0]).size > 400


BALL = '<mujoco><option gravity="0 0 0"/><worldbody><body name="ball"><freejoint/><geom size=".1" contype="0"/></body></worldbody></mujoco>'


def test_pushes():
    """As often, as fast and in all directions; nothing else of the state changes."""
    task = Task(reward=lambda view: view.state.v[..., 0] - view.before.v[..., 0], actions=1, actuate=lambda view: jnp.zeros((400, 6)))
    push = {"body": "ball", "speed": [0.5, 2.0], "interval": 0.02}
    env = make_env(xsim.loads(BALL, "mjcf"), task=task, num_envs=400, push=push, action_repeat=2, max_steps=None)
    start, s = _rollout(env, jnp.zeros(10))
    v = np.concatenate([start.state.v[None], s.state.v])
    change = np.diff(v, axis=0)
    assert (np.abs(change[..., 2:]) < 1e-5).all()
    speed = np.linalg.norm(change[..., :2], axis=-1)
    pushed = speed > 1e-5
    assert abs(pushed.mean() - 0.004 / 0.02) < 4 * (0.2 * 0.8 / pushed.size) ** 0.5
    assert 0.5 - 1e-5 <= speed[pushed].min() < 0.55 and 1.95 < speed[pushed].max() <= 2.0 + 1e-5
    assert np.abs(change[pushed][:, :2].mean(0)).max() < 0.15 and (np.abs(s.reward) < 1e-5).all()  # ``before`` is after the push


BAD = {
    "noise": (dict(noise={"stat": 0.1}), "no 'stat' .did you mean 'state'"),
    "noise of the exact": (dict(noise={"privileged_state": 0.1}), "has none"),
    "noise shape": (dict(noise={"state": [0.1]}), "found .1,. numbers"),
    "negative noise": (dict(noise=-1.0), "numbers >= 0"),
    "delay": (dict(action_delay=(2, 1)), "action_delay: found .2, 1."),
    "part of an action": (dict(observation_delay=0.5), "observation_delay: found 0.5"),
    "push": (dict(push={"body": "cart"}), "a body with a free joint"),
    "push speed": (dict(push=Push("cart", (2.0, 1.0))), "the least first"),
    "push field": (dict(push={"link": "cart"}), "body, speed, interval"),
    "bounds": (dict(bounds={"stat": (-1, 1)}), "no 'stat'"),
    "observation": (dict(observe=lambda view: {"state": view.state.time}), "observe must return"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    changes, message = BAD[case]
    with pytest.raises(ValueError, match=message):
        make_env(PENDULUM, task=CART, num_envs=2, **changes)


def test_bounds_by_name():
    env = make_env(PENDULUM, task=CART, num_envs=2, bounds={"state": (-0.5, [0.5, 1.0])}, noise={"state": 30.0})
    spec = env.observation_spec
    np.testing.assert_array_equal(spec["state"].high, [0.5, 1.0])
    assert np.isinf(spec["privileged_state"].high).all() and "'state': (2,)" in repr(env)
    obs = env.reset(KEY).obs["state"]
    assert (np.abs(obs[:, 0]) <= 0.5).all() and (obs == spec["state"].high).any() or (obs == -0.5).any()


def test_gymnasium_spaces_with_names():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from xsim.envs.gym import GymEnv, GymVectorEnv

    one = GymEnv(make_env(PENDULUM, task=CART, num_envs=1, auto_reset=False, bounds=(-100.0, 100.0)))
    assert isinstance(one.observation_space, gymnasium.spaces.Dict)
    check_env(one, skip_render_check=True)
    many = GymVectorEnv(make_env(PENDULUM, task=CART, num_envs=3, max_steps=2))
    first, _ = many.reset(seed=0)
    assert first in many.observation_space
    for _ in range(2):
        obs, *_, info = many.step(many.action_space.sample())
    assert obs in many.observation_space and info["final_obs"][1] in many.single_observation_space


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", pytest.param("shac", marks=pytest.mark.nightly)])
def test_the_value_may_see_more_than_the_policy(tmp_path, algorithm):
    """The policy's network reads ``state`` alone, the value's the other entry; a run can be resumed, loaded and exported."""
    from xsim.envs import TASKS, register_task
    from xsim.train.ppo import Algorithm

    task = Task(model="pendulum", observe=_names, reward=_reward, gear={"cart": 10.0}, max_steps=8, noise=0.05)
    small = Config(
        "asymmetric", algorithm, steps=3 * 16 * 8, num_envs=16, unroll=8, epochs=2, minibatches=2, hidden=(8,), evaluate_envs=4,
        checkpoint_every=1,
    )  # fmt: skip
    try:
        register_task("asymmetric", task)
        train(small, tmp_path, progress=False, stop=1)
        result = train(small, tmp_path, resume=True, progress=False)
        assert np.isfinite(result["return"])
        with pytest.raises(ValueError, match="no 'stat' .did you mean 'state'"):
            Algorithm(Config("asymmetric", policy_observation="stat"), make_env("asymmetric", num_envs=2))
    finally:
        TASKS.pop("asymmetric", None)
    policy = load(tmp_path)
    weights = policy.params["params"]
    assert policy.observations == 2 and weights["policy_0"]["kernel"].shape == (2, 8) and weights["value_0"]["kernel"].shape == (4, 8)
    obs = {"state": jnp.ones((3, 2)), "privileged_state": jnp.full((3, 4), jnp.nan)}
    np.testing.assert_array_equal(policy(obs), policy(obs["state"]))
    np.testing.assert_allclose(policy.export().call(obs["state"]), policy(obs), atol=1e-6)


@pytest.mark.slow
def test_go1_robust():
    """Sizes, and what is exact: the entry for the value is the observation of `go1_joystick`."""
    env = make_env("go1_robust", num_envs=2)
    assert {name: spec.shape for name, spec in env.observation_spec.items()} == {"state": (45,), "privileged_state": (56,)}
    s = jax.jit(env.reset)(KEY)
    assert {"body.mass", "surface.friction"} < set(s.leaves)
    exact, measured = np.asarray(s.obs["privileged_state"]), np.asarray(s.obs["state"])
    error = np.abs(measured - exact[:, 3:48])
    assert (error[:, 30:] == 0).all() and (error[:, :30] > 0).all() and (error <= np.asarray(env.task.noise["state"]) + 1e-6).all()
