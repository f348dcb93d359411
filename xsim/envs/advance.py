"""The simulation steps of one action. An environment that diverges does not touch the derivatives of the others."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.initial_state import state_at
from xsim.dynamics.step import rollout, step
from xsim.model.data import Data
from xsim.model.model import Flags, Frozen, Model, State

__all__ = ["Inputs", "Steps", "advance", "is_unhealthy", "where"]


class Inputs(NamedTuple):
    """What drives a step: ctrl (num_envs, nu) and tau (num_envs, nv)."""

    ctrl: Any
    tau: Any


def where(mask, x, y):
    """x where mask (num_envs,) holds, else y; pytrees with the leading dimension num_envs."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (jnp.ndim(b) - 1)), a, b), x, y)


def is_unhealthy(state: State, velocity_limit: float):
    """(num_envs,) bool: diverged, not finite, or faster than the limit."""
    moving = jnp.isfinite(state.q).all(-1) & (jnp.abs(state.v) <= velocity_limit).all(-1)
    return ~moving | ((state.flags & Flags.DIVERGED) != 0)


class Steps(NamedTuple):
    """How an action is simulated: number of steps, the velocity beyond which they diverge, whether the state before the last is wanted."""

    repeat: int
    velocity_limit: float
    last: bool


def _run(steps: Steps, model: Model, state: State, inputs: Inputs) -> tuple[State, State | None]:
    """The state after the steps, and that before the last of them where it is wanted."""
    ctrl = inputs.ctrl if model.nu else None
    if steps.repeat == 1:
        return step(model, state, ctrl, inputs.tau), state if steps.last else None
    ctrls, taus = (None if x is None else jnp.broadcast_to(x, (steps.repeat, *x.shape)) for x in (ctrl, inputs.tau))
    final, states = rollout(model, state, ctrls, taus=taus, record=_state if steps.last else None)
    return final, jax.tree.map(lambda x: x[-2], states) if steps.last else None


def _state(state: State, data: Data) -> State:
    return state


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def advance(steps: Steps, model: Model, common: Model, state: State, inputs: Inputs) -> tuple[State, State | None]:
    """Steps as `_run` makes them. Derivatives of environments that diverge are zero; those of the others do not see them.

    A derivative of a number that is not finite is NaN even where its cotangent is zero, and sums over the batch (shared leaves, a
    policy's parameters) would spread it. The derivative is therefore taken where diverged environments rest in the neutral
    configuration with the common model. This costs one more evaluation of the step, and only where derivatives are taken.
    """
    return _run(steps, model, state, inputs)


@advance.defjvp
def _advance_jvp(steps, primals, tangents):
    model, common, state, inputs = primals
    dmodel, _, dstate, dinputs = tangents
    after = advance(steps, model, common, state, inputs)
    not_finite = [~jnp.isfinite(x).all(-1) for x in inputs]
    diverged = jax.lax.stop_gradient(reduce(jnp.logical_or, not_finite, is_unhealthy(after[0], steps.velocity_limit)))
    neutral = jnp.broadcast_to(jnp.asarray(model.topology.neutral, state.q.dtype), state.q.shape)
    rest = state_at(model, neutral, jnp.zeros_like(state.v))
    safe = (_healed(diverged, model, common), where(diverged, rest, state), where(diverged, jax.tree.map(jnp.zeros_like, inputs), inputs))
    mask = partial(_masked, diverged)
    moved = (_masked_leaves(diverged, model, dmodel), jax.tree.map(mask, dstate), jax.tree.map(mask, dinputs))
    out, dout = jax.jvp(partial(_run, steps), safe, moved)
    return after, jax.tree.map(mask, dout)


def _per_environment(model: Model):
    """A tree of the model: whether each leaf has its own value in every environment."""
    flags = model
    for path in model.paths():
        leaf = model.get(path)
        if not isinstance(leaf, Frozen):
            flags = flags._put(path, leaf.ndim > len(model.shape(path)))
    return flags


def _healed(diverged, model: Model, common: Model) -> Model:
    """Leaves of diverged environments from the common model, where that has the leaf."""

    def heal(each, leaf, nominal):
        return where(diverged, jnp.broadcast_to(nominal, leaf.shape), leaf) if each and nominal.ndim < leaf.ndim else leaf

    return jax.tree.map(heal, _per_environment(model), model, common)


def _masked(diverged, tangent):
    if tangent.dtype == jax.dtypes.float0:
        return tangent
    return where(diverged, jnp.zeros_like(tangent), tangent)


def _masked_leaves(diverged, model: Model, tangents: Model) -> Model:
    return jax.tree.map(lambda each, t: _masked(diverged, t) if each else t, _per_environment(model), tangents)
