"""Noise and delay of observations, delay of actions, pushes: what a robot has and a simulation does not.

The fields ``noise``, ``observation_delay``, ``action_delay`` and ``push`` of a `Task` say how much of each. Of observations with several
entries, the one named `PRIVILEGED` stays exact: it is for the value function of an asymmetric actor-critic (Pinto et al., 2018).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.joints.elementary import name_key
from xsim.model.model import Model, State
from xsim.suggestions import did_you_mean

__all__ = ["PRIVILEGED", "Delays", "Disturbances", "Push", "disturbances_of"]

PRIVILEGED = "privileged_state"
"""The entry of an observation that has neither noise nor delay."""


class Push(NamedTuple):
    """Sudden changes of a body's velocity, at random times, along the first two axes of its free joint (in MJCF those of the world).

    body: its name. speed: least and largest change, m/s; the direction is uniform. interval: mean time between pushes, s."""

    body: str
    speed: tuple[float, float] = (0.0, 1.0)
    interval: float = 8.0


class Delays(NamedTuple):
    """Delays of the running episodes, leading dimension num_envs; () where nothing is delayed.

    action, observation (num_envs,): delays, in actions. actions (num_envs, most, actions): the last actions, newest first. observations:
    likewise, of the structure of an observation."""

    action: Any
    observation: Any
    actions: Any = ()
    observations: Any = ()


class Disturbances(NamedTuple):
    """The disturbances of a task. noise: half widths by entry of the observation (the entry None is an observation without names).
    action_delay, observation_delay: least and most, in actions. push: with ``dofs``, the addresses of the pushed velocities."""

    noise: dict[str | None, Any]
    action_delay: tuple[int, int]
    observation_delay: tuple[int, int]
    push: Push | None
    dofs: np.ndarray

    # ---- observations and actions ------------------------------------------------------------------------------------------------

    def check(self, obs) -> None:
        """Raise ValueError where the noise does not fit an observation (or its shapes)."""
        shapes = {name: x.shape[1:] for name, x in obs.items()} if isinstance(obs, Mapping) else {None: obs.shape[1:]}
        for name, level in self._levels(obs).items():
            if name not in shapes:
                raise ValueError(f"noise: the observation has no {name!r}{did_you_mean(str(name), [str(x) for x in shapes])}")
            if np.ndim(level) and np.shape(level) != shapes[name]:
                raise ValueError(f"noise: found {np.shape(level)} numbers for an observation {shapes[name]}")

    def noisy(self, obs, keys):
        """An observation with noise. keys: (num_envs,)."""
        if not isinstance(obs, Mapping):
            return _noisy(obs, self.noise[None], keys, "noise") if self.noise else obs
        return {**obs, **{name: _noisy(obs[name], level, keys, f"noise of {name}") for name, level in self._levels(obs).items()}}

    def _levels(self, obs) -> dict:
        """The noise by entry of an observation."""
        if None not in self.noise or not isinstance(obs, Mapping):
            return self.noise
        return {name: self.noise[None] for name in obs if name != PRIVILEGED}

    def sample_delays(self, key) -> Delays:
        """The delays of an episode of one environment, with nothing on its way."""
        ranges = ("action", self.action_delay), ("observation", self.observation_delay)
        action, observation = (jax.random.randint(name_key(key, name), (), a, b + 1) if b else () for name, (a, b) in ranges)
        return Delays(action, observation)

    def at_start(self, delays: Delays, action, obs) -> Delays:
        """Of episodes that begin with an observation. delays: as sampled. action: the neutral one, (num_envs, actions)."""
        return delays._replace(
            actions=_repeated(action, self.action_delay[1]), observations=_repeated(_exposed(obs), self.observation_delay[1])
        )

    def delayed_action(self, delays: Delays, action) -> tuple[Any, Delays]:
        """The action that arrives when this one is sent."""
        if not self.action_delay[1]:
            return action, delays
        action, actions = _delayed(action, delays.actions, delays.action)
        return action, delays._replace(actions=actions)

    def delayed_observation(self, delays: Delays, obs) -> tuple[Any, Delays]:
        """The observation that arrives when this one is made."""
        if not self.observation_delay[1]:
            return obs, delays
        seen, observations = _delayed(_exposed(obs), delays.observations, delays.observation)
        seen = {**obs, **seen} if isinstance(obs, Mapping) else seen
        return seen, delays._replace(observations=observations)

    # ---- pushes ------------------------------------------------------------------------------------------------------------------

    def pushed(self, state: State, keys, duration) -> State:
        """The state in which an action begins. keys: (num_envs,). duration: of an action, s, () or (num_envs,)."""
        if self.push is None:
            return state
        (low, high), interval, dtype = self.push.speed, self.push.interval, state.v.dtype

        def change(key, duration):
            now, size, direction = jax.random.split(name_key(key, "push"), 3)
            speed = jax.random.uniform(size, (), dtype, low, high) * (jax.random.uniform(now, (), dtype) < duration / interval)
            angle = jax.random.uniform(direction, (), dtype, 0.0, 2 * np.pi)
            return speed * jnp.stack([jnp.cos(angle), jnp.sin(angle)])

        kick = jax.vmap(change)(keys, jnp.broadcast_to(duration, keys.shape[:1]))
        return state.replace(v=state.v.at[:, self.dofs].add(kick))


def _exposed(obs):
    """The entries of an observation that are delayed."""
    return {name: x for name, x in obs.items() if name != PRIVILEGED} if isinstance(obs, Mapping) else obs


def _repeated(tree, count: int):
    """Arrays (num_envs, count, ...), () for no count."""
    return jax.tree.map(lambda x: jnp.repeat(x[:, None], count, 1), tree) if count else ()


def _noisy(x, level, keys, name: str):
    width = jnp.asarray(level, x.dtype)
    return x + jax.vmap(lambda key: width * jax.random.uniform(name_key(key, name), x.shape[1:], x.dtype, -1.0, 1.0))(keys)


def _delayed(value, line, delay):
    """The value of ``delay`` calls ago, and the last values after this call. line: those before it, newest first."""
    every = jax.tree.map(lambda x, past: jnp.concatenate([x[:, None], past], 1), value, line)
    chosen = jax.tree.map(lambda x: jnp.take_along_axis(x, delay.reshape(-1, *[1] * (x.ndim - 1)), 1)[:, 0], every)
    return chosen, jax.tree.map(lambda x: x[:, :-1], every)


# ---- reading of a task ---------------------------------------------------------------------------------------------------------


def disturbances_of(model: Model, noise, action_delay, observation_delay, push) -> Disturbances:
    """The disturbances of the fields of a `Task`. Raises ValueError for values that are out of bounds, KeyError for an unknown body."""
    levels: dict[str | None, Any] = {None: noise}
    if noise is None or isinstance(noise, Mapping):
        levels = dict(noise or {})
    for level in levels.values():
        if not np.isfinite(np.asarray(level, float)).all() or (np.asarray(level, float) < 0).any():
            raise ValueError(f"noise: found {level!r}; allowed: numbers >= 0")
    if PRIVILEGED in levels:
        raise ValueError(f"noise: {PRIVILEGED!r} has none; allowed: the other entries of the observation")
    delays = [_delay_range(*pair) for pair in (("action_delay", action_delay), ("observation_delay", observation_delay))]
    if push is None:
        return Disturbances(levels, delays[0], delays[1], None, np.zeros(0, int))
    push = _read_push(push)
    body = model.topology.bodies[model.body_index(push.body)]
    kinds = [joint.type for joint in body.joints]
    if kinds != ["free"]:
        raise ValueError(f"push: found the body {push.body!r} with the joints {kinds}; allowed: a body with a free joint")
    return Disturbances(levels, delays[0], delays[1], push, body.v[0] + np.arange(2))


def _delay_range(name: str, value) -> tuple[int, int]:
    pair = value if isinstance(value, (tuple, list)) else (value, value)
    if len(pair) != 2 or any(isinstance(x, bool) or int(x) != x for x in pair) or not 0 <= pair[0] <= pair[1]:
        raise ValueError(f"{name}: found {value!r}; allowed: a number of actions, or the least and the most")
    return int(pair[0]), int(pair[1])


def _read_push(value) -> Push:
    try:
        push = value if isinstance(value, Push) else Push(**value)
        low, high = push.speed if isinstance(push.speed, (tuple, list)) else (0.0, push.speed)
        push = Push(str(push.body), (float(low), float(high)), float(push.interval))
    except (TypeError, ValueError) as error:
        raise ValueError(f"push: found {value!r}; allowed: {', '.join(Push._fields)}") from error
    if not 0 <= push.speed[0] <= push.speed[1] < np.inf or not 0 < push.interval:
        raise ValueError(f"push: found {value!r}; allowed: speeds >= 0, the least first, and an interval > 0")
    return push
