"""Adapter to brax's trainers (``brax.training.agents``). Needs ``pip install brax``.

``BraxEnv`` is a ``brax.envs.Env``; trainers run it with ``wrap``, which leaves batches to xsim::

    from brax.training.agents.ppo import train as ppo
    from xsim.envs.brax import BraxEnv, mend_jax, wrap

    mend_jax()  # brax 0.14 with jax 0.10
    ppo.train(BraxEnv("half_cheetah"), num_timesteps=10_000_000, num_envs=2048, episode_length=1000, wrap_env_fn=wrap)

Without ``wrap_env_fn`` brax maps the environment itself; that works too, and is slower. The time limit is the trainer's ``episode_length``.
As always in brax, an environment that ends goes back to the state in which it was first started.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp

from xsim.envs.core import Env, EnvState, make_env

try:
    from brax import envs
    from brax.envs.wrappers.training import AutoResetWrapper, EpisodeWrapper
except ImportError as e:
    raise ImportError("xsim.envs.brax needs brax: pip install brax") from e

__all__ = ["BraxEnv", "mend_jax", "wrap"]


class BraxEnv(envs.Env):
    """A task as a ``brax.envs.Env``; observation, reward, done and metrics are the task's, ``pipeline_state`` is the `EnvState`.

    task: a task or path for `make_env`, with further arguments of it except num_envs. ``reset`` takes one key, (2,), or one per
    environment, (num_envs, 2), and everything then lacks or has the leading dimension num_envs.
    """

    def __init__(self, task, **arguments):
        arguments = {**arguments, "auto_reset": False, "max_steps": None}
        self._make = cache(lambda count: make_env(task, num_envs=count, **arguments))

    def _of(self, count: int) -> Env:
        # Made outside of any trace: what an Env keeps must be numbers.
        with jax.ensure_compile_time_eval():
            return self._make(count)

    def reset(self, rng) -> envs.State:
        keys = jax.random.wrap_key_data(jnp.atleast_2d(rng)) if jnp.issubdtype(rng.dtype, jnp.uint32) else jnp.atleast_1d(rng)
        single = keys.shape[0] == 1 and rng.ndim == (1 if jnp.issubdtype(rng.dtype, jnp.uint32) else 0)
        state = _state(self._of(len(keys)).reset(keys))
        return jax.tree.map(lambda x: x[0], state) if single else state

    def step(self, state: envs.State, action) -> envs.State:
        single = jnp.ndim(action) == 1
        inner, action = jax.tree.map(lambda x: x[None], (state.pipeline_state, action)) if single else (state.pipeline_state, action)
        after = _state(self._of(len(action)).step(_opened(inner), action))
        after = jax.tree.map(lambda x: x[0], after) if single else after
        # What the wrappers of brax added stays.
        return after.replace(info=state.info, metrics={**state.metrics, **after.metrics})

    @property
    def observation_size(self) -> Any:
        spec = self._of(1).observation_spec
        return {name: x.shape for name, x in spec.items()} if isinstance(spec, dict) else spec.shape[0]

    @property
    def action_size(self) -> int:
        return self._of(1).action_spec.shape[0]

    @property
    def backend(self) -> str:
        return "xsim"


def _state(s: EnvState) -> envs.State:
    """What brax sees of a state; random keys as the numbers they are made of."""
    metrics = {name: x for name, x in s.metrics.items() if name not in ("return", "length")}
    inner = s.replace(key=jax.random.key_data(s.key))
    return envs.State(pipeline_state=inner, obs=s.obs, reward=s.reward, done=s.terminated.astype(s.reward.dtype), metrics=metrics)


def _opened(inner: EnvState) -> EnvState:
    return inner.replace(key=jax.random.wrap_key_data(inner.key))


def wrap(env: BraxEnv, episode_length: int = 1000, action_repeat: int = 1, randomization_fn: Any = None):
    """Time limit and restarts of brax, without its mapping over environments: for ``wrap_env_fn`` of its trainers.

    Raises ValueError for a randomization_fn: give `BraxEnv` the argument ``randomize`` instead.
    """
    if randomization_fn is not None:
        raise ValueError("randomization_fn changes models of brax: give BraxEnv(..., randomize=...) instead")
    return AutoResetWrapper(EpisodeWrapper(env, episode_length, action_repeat))


def mend_jax() -> None:
    """Give jax back ``device_put_replicated``, which trainers of brax 0.14 call and jax 0.10 no longer has. Changes jax for everybody."""
    if not hasattr(jax, "device_put_replicated"):

        def device_put_replicated(x, devices):
            """x on every device, with a leading dimension for them."""
            mesh = jax.sharding.Mesh(list(devices), "devices")
            spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("devices"))
            return jax.tree.map(lambda a: jax.device_put(jnp.stack([a] * len(devices)), spread), x)

        jax.device_put_replicated = device_put_replicated
