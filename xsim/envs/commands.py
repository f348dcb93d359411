"""What tasks that follow commands share: commands that change at random times, and rewards that are sums of weighted terms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from xsim.envs.view import View

__all__ = ["WeightedTerms", "action_duration", "new_commands", "sample_velocity"]


def action_duration(view: View, repeat: int):
    """Duration of an action of so many simulation steps, s."""
    return repeat * view.model.option.dt


def new_commands(view: View, commands, sample: Callable[[Any], Any], duration, mean_time: float):
    """Commands (num_envs, n) of which each is replaced by sample(key) at random times.

    duration: of an action, s. mean_time: between two changes, s; times between them are distributed exponentially.
    """
    probability = jnp.mean(duration) / mean_time

    def one(key, command):
        change, value = jax.random.split(key)
        is_new = jax.random.uniform(change, (), command.dtype) < probability
        return jnp.where(is_new, sample(value), command)

    return jax.vmap(one)(view.keys, commands)


def sample_velocity(key, largest: tuple[float, float, float], stand_share: float, dtype):
    """A command (3,): velocity ahead, m/s, to the left, m/s, and turning, rad/s, uniform between ``largest`` and its negative; with the
    probability ``stand_share`` zero."""
    speeds, stand = jax.random.split(key)
    command = jnp.asarray(largest, dtype) * jax.random.uniform(speeds, (3,), dtype, -1.0, 1.0)
    return jnp.where(jax.random.uniform(stand, (), dtype) < stand_share, 0.0, command)


class WeightedTerms:
    """A reward that is a weighted sum of terms per second. ``weights``: a named tuple; its field ``x`` weighs the method ``_reward_x``."""

    weights: Any
    action_repeat: int

    def reward(self, view: View):
        """(num_envs,), of one action."""
        terms = self.reward_terms(view)
        per_second = sum(weight * terms[name] for name, weight in self.weights._asdict().items())
        return per_second * action_duration(view, self.action_repeat)

    def reward_terms(self, view: View) -> dict:
        """The terms per second, unweighted, {name: (num_envs,)}. The variables are those before the step."""
        return {name: getattr(self, f"_reward_{name}")(view) for name in self.weights._fields}
