"""Returns of a policy: one episode in each environment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.envs import Env

__all__ = ["Evaluation", "evaluate"]


class Evaluation:
    """Plays one episode per environment: ``evaluation(policy, key)`` gives returns and lengths, (num_envs,) each.

    act(policy, obs) gives the actions. The policy, a pytree, is an argument of the compiled program: another one compiles nothing. steps:
    most actions of an episode of a task without a time limit. key: of the starts.
    """

    def __init__(self, env: Env, act: Callable, steps: int = 1000):
        self.env, self.act, self.steps = env, act, env.task.max_steps or steps
        self._play = jax.jit(self._episodes)

    def __call__(self, policy, key) -> tuple[np.ndarray, np.ndarray]:
        total, length = self._play(policy, key)
        return np.asarray(total), np.asarray(length)

    def _episodes(self, policy, key) -> tuple[Any, Any]:
        env = self.env

        def one(carry, _):
            state, running, total, length = carry
            state = env.step(state, self.act(policy, state.obs))
            total, length = total + jnp.where(running, state.reward, 0), length + running
            return (state, running & ~state.done, total, length), None

        zero = jnp.zeros(env.num_envs, env.dtype)
        start = (env.reset(key), jnp.ones(env.num_envs, bool), zero, jnp.zeros(env.num_envs, jnp.int32))
        return jax.lax.scan(one, start, length=self.steps)[0][2:]


def evaluate(env: Env, act: Callable, key, steps: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths (num_envs,) of one episode per environment with the actions ``act(obs)``, of at most ``steps`` actions."""
    return Evaluation(env, lambda _, obs: act(obs), steps)((), key)
