"""Short-horizon actor-critic: the policy is trained by the derivatives of the simulation.

Xu et al., Accelerated Policy Learning with Parallel Differentiable Simulation (2022). A rollout of ``unroll`` actions, and a value of the
states that it ends in, is differentiated with respect to the policy. The next rollout begins where it ended, without its derivatives. The
value is fitted to TD(lambda) returns; in the objective of the policy and in these returns a slower copy of it is used.

Stiff contacts make the derivatives of a few environments so large that they hide those of the others. So the derivative with respect to
the state is clipped in each environment and at each action, on its way back through time.

Networks, statistics, environments and checkpoints are those of `xsim.train.ppo`. An iteration is one compiled program.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from xsim.dynamics.sharding import divided
from xsim.envs import Env
from xsim.train import ppo
from xsim.train.config import Config
from xsim.train.ppo import Learner, Policy, Sample, measured_episodes

__all__ = ["Algorithm"]

INSIDE = 1.0 - 1e-6
"""Largest action, of bounds -1 and 1: at a bound itself the derivative of a clipped number is ambiguous."""


class Optimizers(NamedTuple):
    """States of the optimizers of the policy and of the value, and the slower copy of the parameters."""

    policy: Any
    value: Any
    target: Any


class Algorithm(ppo.Algorithm):
    """SHAC for one `Env`: ``start()`` makes a `Learner`, ``iterate(learner)`` the next one and what it measured."""

    def __init__(self, config: Config, env: Env):
        self.config = config
        self.policy_optimizer = self._optimizer(config.learning_rate, config.iterations)
        self.value_optimizer = self._optimizer(config.value_learning_rate, config.iterations * config.epochs * config.minibatches)
        super().__init__(config, env)

    def _start(self) -> Learner:
        learner = super()._start()
        policy, value = (x.init(learner.params) for x in (self.policy_optimizer, self.value_optimizer))
        return learner._replace(optimizer=Optimizers(policy, value, learner.params))

    def _iterate(self, learner: Learner) -> tuple[Learner, dict]:
        act_key, update_key = jax.random.split(jax.random.fold_in(learner.key, learner.iteration))
        slope, (env, samples, objective) = jax.grad(self._policy_loss, has_aux=True)(learner.params, learner, act_key)
        norm = jnp.sqrt(sum(jnp.vdot(x, x) for x in jax.tree.leaves(slope)))
        usable = jnp.isfinite(norm)
        slope = jax.tree.map(lambda x: jnp.where(usable, x, 0.0), slope)
        change, policy = self.policy_optimizer.update(slope, learner.optimizer.policy, learner.params)
        params = optax.apply_updates(learner.params, change)
        params, value, value_loss = self._fit_value(learner._replace(params=params), samples, update_key)
        weight = self.config.target_weight
        target = jax.tree.map(lambda old, new: weight * old + (1 - weight) * new, learner.optimizer.target, params)
        measured = measured_episodes(samples) | {"objective": objective, "value_loss": value_loss, "gradient": norm}
        return self._extended(learner, params, Optimizers(policy, value, target), env, samples), measured

    # ---- the policy ------------------------------------------------------------------------------------------------------------

    def _policy_loss(self, params, learner: Learner, key):
        """Minus the mean discounted return per action, with the value of where it ends; and (environments, samples, its negative)."""
        c = self.config

        def one(carry, key):
            env, discount, total = carry
            env = env.replace(state=with_clipped_gradient(env.state, c.max_state_gradient / c.batch))
            after, sample = self._step(learner._replace(params=params), env, key)
            total = total + discount * c.reward_scale * sample.reward
            discount = c.discount * discount
            # An episode that ends within the rollout counts like one that ends with it; the next one counts in full.
            end = jnp.where(sample.done & ~sample.terminated, discount * self._slower_value(learner, sample.next_obs), 0.0)
            return (after, jnp.where(sample.done, 1.0, discount), total + end), sample

        one_each = jnp.ones(c.num_envs, self.env.dtype)
        start = learner.env, one_each, 0.0 * one_each
        (env, discount, total), samples = jax.lax.scan(one, start, jax.random.split(key, c.unroll))
        end = jnp.where(samples.done[-1], 0.0, discount * self._slower_value(learner, samples.next_obs[-1]))
        policy = self._policy(params, learner, jax.tree.map(lambda x: x[-1], samples.obs))
        objective = (total + end).mean() / c.unroll
        return -objective - c.entropy_weight * policy.entropy(), (env, samples, objective)

    def _action(self, policy: Policy, key):
        return bounded(policy.sample(key))

    def _slower_value(self, learner: Learner, obs) -> Any:
        """The slower copy of the value."""
        return self._value(learner.optimizer.target, learner, obs)

    # ---- the value -------------------------------------------------------------------------------------------------------------

    def _fit_value(self, learner: Learner, samples: Sample, key):
        """Parameters and optimizer of the value after all epochs, and the mean loss of the last."""
        c = self.config
        _, target = self._advantages(learner._replace(params=learner.optimizer.target), samples)
        rows = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), (self.normalized(learner, samples.obs).of_value, target))

        def loss(params, obs, target):
            return 0.5 * jnp.square(self.network.apply(params, obs, method="critic") - target).mean()

        def minibatch(carry, chosen):
            params, optimizer = carry
            value, slope = jax.value_and_grad(loss)(params, *divided(jax.tree.map(lambda x: x[chosen], rows), chosen.shape))
            change, optimizer = self.value_optimizer.update(slope, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), value

        def epoch(carry, key):
            return jax.lax.scan(minibatch, carry, jax.random.permutation(key, c.batch).reshape(c.minibatches, -1))

        keys = jax.random.split(key, c.epochs)
        (params, optimizer), losses = jax.lax.scan(epoch, (learner.params, learner.optimizer.value), keys)
        return params, optimizer, losses[-1].mean()


def with_clipped_gradient(state, limit: float):
    """The state, whose derivative is clipped to the norm ``limit`` in each environment, and zero where it is not finite."""
    leaves, tree = jax.tree.flatten(state)
    floats = [jnp.issubdtype(x.dtype, jnp.floating) for x in leaves]
    clipped = iter(_clipped([x for x, is_float in zip(leaves, floats, strict=True) if is_float], limit))
    return jax.tree.unflatten(tree, [next(clipped) if is_float else x for x, is_float in zip(leaves, floats, strict=True)])


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _clipped(arrays: list, limit: float):
    return arrays


def _clipped_forward(arrays, limit):
    return arrays, None


def _clipped_backward(limit, _, slopes):
    squares = sum(jnp.square(x).reshape(len(x), -1).sum(1) for x in slopes)
    usable = jnp.isfinite(squares)
    factor = jnp.where(usable, jnp.minimum(1.0, limit / jnp.sqrt(jnp.where(usable & (squares > 0), squares, 1.0))), 0.0)

    def scaled(x):
        shape = (len(x), *(1,) * (x.ndim - 1))
        return jnp.where(usable.reshape(shape), x * factor.reshape(shape), 0.0)

    return ([scaled(x) for x in slopes],)


_clipped.defvjp(_clipped_forward, _clipped_backward)


@jax.custom_vjp
def bounded(action):
    """Actions clipped to their bounds. Beyond a bound a derivative passes where it leads back: plain clipping would leave such actions
    without one, and the policy could not return."""
    return jnp.clip(action, -INSIDE, INSIDE)


def _bounded_forward(action):
    return bounded(action), action


def _bounded_backward(action, slope):
    outward = ((action > INSIDE) & (slope < 0)) | ((action < -INSIDE) & (slope > 0))
    return (jnp.where(outward, 0.0, slope),)


bounded.defvjp(_bounded_forward, _bounded_backward)
