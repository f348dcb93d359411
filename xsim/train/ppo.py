"""Proximal policy optimization: networks, statistics of observations, and one iteration (roll out, estimate advantages, update).

Schulman et al., Proximal Policy Optimization Algorithms (2017); generalized advantages: Schulman et al., High-Dimensional Continuous
Control Using Generalized Advantage Estimation (2016), with bootstrapping at time limits (Pardo et al., Time Limits in RL, 2018).

An iteration is one compiled program. Everything it reads and writes is one pytree, `Learner`.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import linen as nn

from xsim.dynamics.sharding import BY_ENVIRONMENT, divided, mesh_of
from xsim.envs import Env, Spec
from xsim.suggestions import did_you_mean
from xsim.train.config import ACTIVATIONS, Config

__all__ = ["ActorCritic", "Algorithm", "Inputs", "Learner", "Policy", "Sample", "Statistics", "measured_episodes", "network_of"]


# ---- networks ----------------------------------------------------------------------------------------------------------------


class Policy(NamedTuple):
    """A normal distribution of actions: mean (..., actions) and logarithm of the deviation (actions,)."""

    mean: Any
    log_deviation: Any

    def sample(self, key):
        return self.mean + jnp.exp(self.log_deviation) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def log_density(self, action):
        z = (action - self.mean) * jnp.exp(-self.log_deviation)
        return jnp.sum(-0.5 * z * z - self.log_deviation - 0.5 * math.log(2 * math.pi), -1)

    def entropy(self):
        return jnp.sum(self.log_deviation + 0.5 * math.log(2 * math.pi * math.e))


class Inputs(NamedTuple):
    """What the networks read of observations. policy (..., n). value (..., m): None where the value reads what the policy reads."""

    policy: Any
    value: Any = None

    @property
    def of_value(self):
        return self.policy if self.value is None else self.value


class ActorCritic(nn.Module):
    """Two multilayer perceptrons over normalized observations: the policy and the value (...,)."""

    actions: int
    hidden: tuple[int, ...]
    activation: str
    deviation: float
    dtype: Any

    def setup(self):
        self.policy, self.value = self._layers(self.actions, 0.01), self._layers(1, 1.0)
        self.log_deviation = self.param(
            "log_deviation", nn.initializers.constant(math.log(self.deviation)), (self.actions,), self.dtype
        )

    def __call__(self, inputs: Inputs) -> tuple[Policy, Any]:
        return self.actor(inputs.policy), self.critic(inputs.of_value)

    def actor(self, obs) -> Policy:
        return Policy(self._perceptron(self.policy, obs), self.log_deviation)

    def critic(self, obs):
        return self._perceptron(self.value, obs)[..., 0]

    def _layers(self, outputs: int, gain: float) -> list[nn.Dense]:
        widths, gains = (*self.hidden, outputs), [math.sqrt(2)] * len(self.hidden) + [gain]
        scales = [nn.initializers.orthogonal(x) for x in gains]
        return [nn.Dense(n, kernel_init=x, dtype=self.dtype, param_dtype=self.dtype) for n, x in zip(widths, scales, strict=True)]

    def _perceptron(self, layers, x):
        *hidden, last = layers
        for layer in hidden:
            x = ACTIVATIONS[self.activation](layer(x))
        return last(x)


def network_of(config: Config, actions: int, dtype) -> ActorCritic:
    """The networks of a run whose environments take this number of actions."""
    return ActorCritic(actions, config.hidden, config.activation, config.deviation, dtype)


class Statistics(NamedTuple):
    """Running mean and sum of squared deviations (n,) of ``count`` observations."""

    count: Any
    mean: Any
    squares: Any

    @classmethod
    def empty(cls, size: int, dtype) -> Statistics:
        return cls(jnp.zeros((), dtype), jnp.zeros(size, dtype), jnp.zeros(size, dtype))

    def extended(self, x) -> Statistics:
        """With the observations (m, n) (Chan et al., Updating Formulae and a Pairwise Algorithm for Computing Sample Variances)."""
        mean = x.mean(0)
        count, shift = self.count + len(x), mean - self.mean
        squares = self.squares + jnp.square(x - mean).sum(0) + shift**2 * self.count * len(x) / count
        return Statistics(count, self.mean + shift * len(x) / count, squares)

    def normalized(self, x):
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))
        scaled = (x - self.mean) / jnp.where(self.count > 0, jnp.maximum(deviation, 1e-4), 1.0)
        return jnp.clip(scaled, -10.0, 10.0)


# ---- the algorithm ------------------------------------------------------------------------------------------------------------


class Learner(NamedTuple):
    """All of a run: parameters, optimizer, statistics of what the policy reads, environments, root of all random numbers, iterations done,
    statistics of what the value reads (None: the same)."""

    params: Any
    optimizer: Any
    statistics: Statistics
    env: Any
    key: Any
    iteration: Any
    value_statistics: Statistics | None = None

    @property
    def statistics_of_value(self) -> Statistics:
        return self.statistics if self.value_statistics is None else self.value_statistics


class Sample(NamedTuple):
    """One action of every environment. obs: what the networks read before it. next_obs: what the value reads after it, before any restart.
    episode_return, length: of the episode so far."""

    obs: Inputs
    action: Any
    log_density: Any
    reward: Any
    terminated: Any
    done: Any
    next_obs: Any
    episode_return: Any
    length: Any


class Batch(NamedTuple):
    """What the losses read, one row per action. obs: normalized; log_density: of the action under the old policy."""

    obs: Inputs
    action: Any
    log_density: Any
    advantage: Any
    target: Any


class Algorithm:
    """PPO for one `Env`: ``start()`` makes a `Learner`, ``iterate(learner)`` the next one and what it measured."""

    def __init__(self, config: Config, env: Env):
        self.config, self.env = config, env
        self._names = _entries_read(config, env)
        self.network = network_of(config, env.action_spec.shape[0], env.dtype)
        self.optimizer = self._optimizer(config.learning_rate, config.iterations * config.epochs * config.minibatches)
        self.shardings = self._shardings()
        if self.shardings is None:
            self.start, self.iterate = jax.jit(self._start), jax.jit(self._iterate)
        else:
            everywhere = self.shardings.key
            self.start = jax.jit(self._start, out_shardings=self.shardings)
            self.iterate = jax.jit(self._iterate, in_shardings=(self.shardings,), out_shardings=(self.shardings, everywhere))

    def _optimizer(self, learning_rate: float, updates: int):
        """Adam with clipped gradients, whose learning rate falls to zero over all updates."""
        rate = optax.linear_schedule(learning_rate, 0.0, updates) if self.config.anneal else learning_rate
        return optax.chain(optax.clip_by_global_norm(self.config.max_gradient), optax.adam(rate, eps=1e-5))

    def _shardings(self) -> Learner | None:
        """Shardings of a learner's leaves: environments are divided among the devices (`xsim.use_devices`), the rest is on each device.

        Where they are named, a run that is resumed goes through the same program. None where there is nothing to divide.
        """
        num_envs = self.config.num_envs
        mesh = mesh_of(num_envs)
        if mesh is None or num_envs % mesh.size:
            return None
        replicated, per_env = (jax.sharding.NamedSharding(mesh, spec) for spec in (jax.sharding.PartitionSpec(), BY_ENVIRONMENT))
        shapes = jax.eval_shape(self._start)
        env = jax.tree.map(lambda x: per_env if x.size and x.shape[:1] == (num_envs,) else replicated, shapes.env)
        return jax.tree.map(lambda x: replicated, shapes)._replace(env=env)

    def shapes(self) -> Learner:
        """A learner of shapes, with the shardings of its leaves where environments are divided."""
        shapes = jax.eval_shape(self._start)
        if self.shardings is None:
            return shapes
        return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, self.shardings)

    def _start(self) -> Learner:
        root = jax.random.key(self.config.seed)
        params_key, env_key, key = jax.random.split(root, 3)
        env, no_iterations = self.env.reset(env_key), jnp.zeros((), jnp.int32)
        inputs = self.inputs(jax.tree.map(lambda x: jnp.zeros((1, *x.shape[1:]), x.dtype), env.obs))
        params = self.network.init(params_key, inputs)
        statistics = Statistics.empty(inputs.policy.shape[-1], self.env.dtype)
        of_value = None if inputs.value is None else Statistics.empty(inputs.value.shape[-1], self.env.dtype)
        return Learner(params, self.optimizer.init(params), statistics, env, key, no_iterations, of_value)

    def inputs(self, obs) -> Inputs:
        """What the networks read of observations, before it is normalized."""
        names = self._names
        return Inputs(obs if names.policy is None else obs[names.policy], None if names.value is None else obs[names.value])

    def normalized(self, learner: Learner, inputs: Inputs) -> Inputs:
        """Inputs as the networks read them."""
        value = None if inputs.value is None else self._scaled(learner.statistics_of_value, inputs.value)
        return Inputs(self._scaled(learner.statistics, inputs.policy), value)

    def _scaled(self, statistics: Statistics, obs):
        return statistics.normalized(obs) if self.config.normalize else obs

    def act(self, learner: Learner, obs):
        """The deterministic policy: actions (m, actions) at observations (m, n)."""
        return self._policy(learner.params, learner, self.inputs(obs)).mean

    def _policy(self, params, learner: Learner, inputs: Inputs) -> Any:
        """The `Policy` at these inputs."""
        return self.network.apply(params, self._scaled(learner.statistics, inputs.policy), method="actor")

    def _value(self, params, learner: Learner, obs) -> Any:
        """Values of what the value reads, as in ``Sample.next_obs``."""
        return self.network.apply(params, self._scaled(learner.statistics_of_value, obs), method="critic")

    def _iterate(self, learner: Learner) -> tuple[Learner, dict]:
        act_key, update_key = jax.random.split(jax.random.fold_in(learner.key, learner.iteration))
        env, samples = jax.lax.scan(partial(self._step, learner), learner.env, jax.random.split(act_key, self.config.unroll))
        params, optimizer, losses = self._update(learner, self._batch(learner, samples), update_key)
        return self._extended(learner, params, optimizer, env, samples), measured_episodes(samples) | losses

    def _extended(self, learner: Learner, params, optimizer, env, samples: Sample) -> Learner:
        """The learner after an iteration."""
        rows = jax.tree.map(lambda x: x.reshape(-1, x.shape[-1]), samples.obs)
        of_value = None if rows.value is None else learner.statistics_of_value.extended(rows.value)
        return Learner(params, optimizer, learner.statistics.extended(rows.policy), env, learner.key, learner.iteration + 1, of_value)

    def _step(self, learner: Learner, env, key) -> tuple[Any, Sample]:
        """One action of the current policy in every environment."""
        inputs = self.inputs(env.obs)
        policy = self._policy(learner.params, learner, inputs)
        action = self._action(policy, key)
        after = self.env.step(env, action)
        return after, Sample(
            obs=inputs,
            action=action,
            log_density=policy.log_density(action),
            reward=after.reward,
            terminated=after.terminated,
            done=after.done,
            next_obs=self.inputs(after.info["final_observation"]).of_value,
            episode_return=after.metrics["return"],
            length=after.metrics["length"],
        )

    def _action(self, policy: Policy, key):
        return policy.sample(key)

    def _batch(self, learner: Learner, samples: Sample) -> Batch:
        """What the losses read of the samples (unroll, num_envs, ...), as one row per action."""
        advantage, target = self._advantages(learner, samples)
        obs = self.normalized(learner, samples.obs)
        batch = Batch(obs, samples.action, samples.log_density, advantage, target)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), batch)

    def _advantages(self, learner: Learner, s: Sample):
        """Generalized advantages and targets of the value, (unroll, num_envs).

        The value of the state that an action led to counts unless the episode terminated there; at a time limit it stands for the
        rewards that were cut off. Sums of later advantages end where an episode ends, for either reason.
        """
        c = self.config
        value, after = (self._value(learner.params, learner, x) for x in (s.obs.of_value, s.next_obs))
        error = c.reward_scale * s.reward + c.discount * jnp.where(s.terminated, 0.0, after) - value  # temporal difference

        def backward(later, step):
            error, done = step
            advantage = error + c.discount * c.gae_lambda * jnp.where(done, 0.0, later)
            return advantage, advantage

        _, advantage = jax.lax.scan(backward, jnp.zeros_like(value[0]), (error, s.done), reverse=True)
        return advantage, advantage + value

    def _update(self, learner: Learner, batch: Batch, key):
        """Parameters and optimizer after all epochs, and the mean losses of the last."""
        c = self.config

        def minibatch(carry, rows):
            params, optimizer = carry
            part = divided(jax.tree.map(lambda x: x[rows], batch), rows.shape)
            gradient, losses = jax.grad(self._loss, has_aux=True)(params, part)
            change, optimizer = self.optimizer.update(gradient, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), losses

        def epoch(carry, key):
            rows = jax.random.permutation(key, c.batch).reshape(c.minibatches, -1)
            return jax.lax.scan(minibatch, carry, rows)

        (params, optimizer), losses = jax.lax.scan(epoch, (learner.params, learner.optimizer), jax.random.split(key, c.epochs))
        return params, optimizer, jax.tree.map(lambda x: x[-1].mean(), losses)

    def _loss(self, params, batch: Batch):
        policy, value = self.network.apply(params, batch.obs)
        change = policy.log_density(batch.action) - batch.log_density
        ratio = jnp.exp(change)
        advantage = (batch.advantage - batch.advantage.mean()) / (batch.advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - self.config.clip, 1 + self.config.clip)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * jnp.square(value - batch.target).mean()
        entropy = policy.entropy()
        loss = policy_loss + self.config.value_weight * value_loss - self.config.entropy_weight * entropy
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": (ratio - 1 - change).mean()}
        return loss, losses


class Entries(NamedTuple):
    """The entries of an observation that policy and value read. policy: None for an observation without names. value: None where the value
    reads what the policy reads."""

    policy: str | None = None
    value: str | None = None


def _entries_read(config: Config, env: Env) -> Entries:
    """What the networks read of the observations. Raises ValueError for observations that they cannot read."""
    specs = env.observation_spec
    if isinstance(specs, Spec):
        _check_vector(specs)
        return Entries()
    policy, value = config.policy_observation, config.value_observation
    if policy not in specs:
        hint = did_you_mean(policy, specs)
        raise ValueError(f"policy_observation: the observation has no {policy!r}{hint}; it has {', '.join(specs)}")
    entries = Entries(policy, value if value in specs and value != policy else None)
    for name in entries:
        if name is not None:
            _check_vector(specs[name])
    return entries


def _check_vector(spec: Spec) -> None:
    if len(spec.shape) != 1:
        raise ValueError(f"the networks read vectors, (num_envs, n); found observations of the shape {spec.shape}")


def measured_episodes(samples: Sample) -> dict:
    """Mean return and length of the episodes that ended, their number, and the mean reward."""
    measured = {"return": _mean(samples.episode_return, samples.done), "length": _mean(samples.length, samples.done)}
    return measured | {"episodes": samples.done.sum(), "reward": samples.reward.mean()}


def _mean(x, mask):
    """Mean of x where the mask holds; NaN where it holds nowhere."""
    return jnp.where(mask, x, 0).sum() / jnp.where(mask.any(), mask.sum(), jnp.nan)
