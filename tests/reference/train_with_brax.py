"""Prints, as JSON, what brax sees of a task and how its PPO learns on it: run by tests/test_other_trainers.py."""

import json

import jax
import jax.numpy as jnp
import numpy as np
from brax.training.agents.ppo import train as ppo

from xsim.envs import make_env
from xsim.envs.brax import BraxEnv, mend_jax, wrap


def difference(a, b) -> float:
    return float(np.abs(np.asarray(a) - np.asarray(b)).max())


def main() -> None:
    env, own = BraxEnv("pendulum_balance"), make_env("pendulum_balance", num_envs=3, auto_reset=False)
    keys, action = jax.random.split(jax.random.PRNGKey(0), 3), jnp.full((3, 1), 0.3)
    state, mine = jax.jit(env.reset)(keys), jax.jit(own.reset)(jax.random.wrap_key_data(keys))
    state, mine = jax.jit(env.step)(state, action), jax.jit(own.step)(mine, action)
    one = env.step(env.reset(keys[1]), action[1])
    try:
        wrap(env, randomization_fn=lambda *_: None)
        refused = ""
    except ValueError as error:
        refused = str(error)
    mend_jax()
    returns: list[float] = []
    ppo.train(
        env, num_timesteps=60_000, num_envs=64, episode_length=200, unroll_length=10, batch_size=64, num_minibatches=4,
        num_updates_per_batch=8, learning_rate=3e-3, num_eval_envs=32, num_evals=2, wrap_env_fn=wrap,
        progress_fn=lambda steps, metrics: returns.append(float(metrics["eval/episode_reward"])),
    )  # fmt: skip
    print(json.dumps({
        "observation": difference(state.obs, mine.obs), "reward": difference(state.reward, mine.reward),
        "one": difference(one.obs, state.obs[1]), "sizes": [env.observation_size, env.action_size], "backend": env.backend,
        "refused": refused, "returns": returns,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
