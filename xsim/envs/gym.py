"""Adapters to Gymnasium. Needs ``pip install 'xsim[gym]'``.

``GymVectorEnv`` runs all environments of an `Env` at once; ``GymEnv`` is one environment. ``register()`` makes the tasks known to
Gymnasium as ``xsim/<task>-v0``, for ``gymnasium.make`` and ``gymnasium.make_vec``.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np

from xsim.envs.core import TASKS, Env, EnvState, Spec, make_env
from xsim.viewer.frames import Renderer
from xsim.viewer.scene import leaf_values

try:
    import gymnasium
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as e:
    raise ImportError("xsim.envs.gym needs gymnasium 1.1 or later: pip install 'xsim[gym]'") from e

__all__ = ["GymEnv", "GymVectorEnv", "register"]


def _space(spec: Spec | dict[str, Spec]) -> gymnasium.spaces.Space:
    """The space of an action or observation: a box, or boxes by name."""
    if isinstance(spec, dict):
        return gymnasium.spaces.Dict({name: _space(x) for name, x in spec.items()})
    return gymnasium.spaces.Box(spec.low, spec.high, spec.shape, dtype=spec.dtype.type)


def _arrays(tree) -> Any:
    """New numpy arrays of a pytree: writable, shared with nobody."""
    return jax.tree.map(np.array, tree)


def _one(tree, i: int) -> Any:
    """Environment i of a pytree of arrays (num_envs, ...)."""
    return jax.tree.map(lambda x: np.array(x[i]), tree)


MAX_IMAGES = 16
"""Environments of a `GymVectorEnv` of which `render` gives images."""


def _check_mode(mode: str | None) -> str | None:
    if mode not in (None, "rgb_array"):
        raise ValueError(f"render_mode: found {mode!r}; allowed: None, 'rgb_array'")
    return mode


def _metadata(metadata: dict[str, Any], env: Env) -> dict[str, Any]:
    """The metadata of a class with the images per second of simulated time."""
    period = float(np.ravel(leaf_values(env.model, "option.dt"))[0]) * env.task.action_repeat
    return {**metadata, "render_fps": max(1, round(1.0 / period))}


def _image(renderer: Renderer, env: Env, state: EnvState | None, index: int) -> np.ndarray:
    if state is None:
        raise gymnasium.error.ResetNeeded("call reset before render")
    return renderer.image(env.model.replace(state.leaves), state.state.q, index)


class GymVectorEnv(VectorEnv):
    """A batch of environments as ``gymnasium.vector.VectorEnv``; arrays are numpy.

    env: an `Env`, or a task or path for `make_env` with ``num_envs`` and further arguments of it. An environment that ends is reset in
    the same step (``AutoresetMode.SAME_STEP``): ``info["final_obs"]`` holds the last observation where ``info["_final_obs"]`` is true,
    ``info["final_info"]`` its metrics. ``env_state`` is the current `EnvState`. render_mode: None, or ``"rgb_array"`` for `render`.
    """

    metadata = {"autoreset_mode": AutoresetMode.SAME_STEP, "render_modes": ["rgb_array"]}

    def __init__(self, env: Env | str, num_envs: int = 1, *, render_mode: str | None = None, **arguments):
        self.env = env if isinstance(env, Env) else make_env(env, num_envs=num_envs, **arguments)
        if not self.env.auto_reset:
            raise ValueError("GymVectorEnv resets in the step: make the Env with auto_reset=True")
        self.render_mode, self.metadata = _check_mode(render_mode), _metadata(self.metadata, self.env)
        self._renderers = [Renderer() for _ in range(min(self.env.num_envs, MAX_IMAGES))]
        self.num_envs = self.env.num_envs
        self.single_observation_space = _space(self.env.observation_spec)
        self.single_action_space = _space(self.env.action_spec)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self.env_state: EnvState | None = None
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start all environments. Returns observations (num_envs, n), or a dict of them, and info. ``options`` are not used."""
        super().reset(seed=seed)
        self.env_state = s = self._reset(_key(self.np_random))
        return _arrays(s.obs), {}

    def step(self, actions):
        """One action, (num_envs, actions), in every environment: observations, rewards, terminations, truncations, info."""
        if self.env_state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        self.env_state = s = self._step(self.env_state, np.asarray(actions))
        obs, reward, terminated, truncated, metrics, info = _arrays((s.obs, s.reward, s.terminated, s.truncated, s.metrics, s.info))
        done = terminated | truncated
        out: dict[str, Any] = {}
        for name, value in metrics.items():
            out[name], out[f"_{name}"] = value, np.ones(self.num_envs, bool)
        if done.any():
            final = np.full(self.num_envs, None, dtype=object)
            for i in np.flatnonzero(done).tolist():
                final[i] = _one(info["final_observation"], i)
            out["final_obs"], out["_final_obs"] = final, done.copy()
            out["final_info"] = {k: v.copy() for k, v in metrics.items()}
            out["final_info"]["diverged"] = info["diverged"]
            out["final_info"].update({f"_{k}": done.copy() for k in tuple(out["final_info"])})
            out["_final_info"] = done.copy()
        return obs, reward, terminated, truncated, out

    def render(self) -> tuple[np.ndarray, ...] | None:
        """An image (480, 480, 3) uint8 of each of the first 16 environments; None without a render mode. Needs ``xsim[render]``."""
        if self.render_mode is None:
            return None
        return tuple(_image(renderer, self.env, self.env_state, i) for i, renderer in enumerate(self._renderers))


class GymEnv(gymnasium.Env):
    """One environment as ``gymnasium.Env``. env: an `Env` with num_envs=1 and auto_reset=False, or a task or path for `make_env`.
    render_mode: None, or ``"rgb_array"`` for `render`."""

    metadata = {"render_modes": ["rgb_array"]}

    def __init__(self, env: Env | str, *, render_mode: str | None = None, **arguments):
        self.env = env if isinstance(env, Env) else make_env(env, num_envs=1, auto_reset=False, **arguments)
        if self.env.num_envs != 1 or self.env.auto_reset:
            raise ValueError("GymEnv needs an Env with num_envs=1 and auto_reset=False")
        self.render_mode, self.metadata = _check_mode(render_mode), _metadata(self.metadata, self.env)
        self._renderer = Renderer()
        self.observation_space = _space(self.env.observation_spec)
        self.action_space = _space(self.env.action_spec)
        self.env_state: EnvState | None = None
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)

    def reset(self, *, seed: int | None = None, options: dict | None = None):
        """Start an episode: observation (n,) and info. ``options`` are not used."""
        super().reset(seed=seed)
        self.env_state = s = self._reset(_key(self.np_random))
        return _one(s.obs, 0), {}

    def step(self, action):
        """One action: observation, reward, terminated, truncated, info (metrics of the episode)."""
        if self.env_state is None:
            raise gymnasium.error.ResetNeeded("call reset before step")
        self.env_state = s = self._step(self.env_state, np.asarray(action)[None])
        info = {name: x[0] for name, x in _arrays({**s.metrics, "diverged": s.info["diverged"]}).items()}
        return _one(s.obs, 0), float(s.reward[0]), bool(s.terminated[0]), bool(s.truncated[0]), info

    def render(self) -> np.ndarray | None:
        """An image (480, 480, 3) uint8; None without a render mode. Needs ``pip install 'xsim[render]'``."""
        return None if self.render_mode is None else _image(self._renderer, self.env, self.env_state, 0)


def _key(generator: np.random.Generator):
    return jax.random.key(int(generator.integers(2**31)))


def register() -> tuple[str, ...]:
    """Register every task with Gymnasium; returns the new ids. Calling it again is harmless."""
    new = []
    for name in TASKS:
        identifier = f"xsim/{name}-v0"
        if identifier not in gymnasium.registry:
            gymnasium.register(identifier, entry_point=partial(GymEnv, name), vector_entry_point=partial(GymVectorEnv, name))
            new.append(identifier)
    return tuple(new)
