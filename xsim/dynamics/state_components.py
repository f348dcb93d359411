"""A state as components, and back."""

from __future__ import annotations

import functools

import jax.numpy as jnp

from xsim.dynamics.integration.integrators import Health, StateComponents
from xsim.dynamics.layout import Lanes
from xsim.model.model import Flags, State

BITS = (Flags.DIVERGED, Flags.SINGULAR, Flags.UNSOLVED, Flags.CONTACT_OVERFLOW)
"""The flags in the order of the fields of `Health`."""


def state_components(state: State, lanes: Lanes) -> StateComponents:
    """The components of a state, whose fields are broadcast to the batch of the lanes."""

    def split(x):
        return list(lanes.split(jnp.broadcast_to(x, (*lanes.batch, x.shape[-1])), 1))

    flags = jnp.broadcast_to(state.flags, lanes.batch)
    health = Health(*(lanes.split((flags & bit != 0).astype(state.q.dtype), 0) for bit in BITS))
    time = lanes.split(jnp.broadcast_to(state.time, lanes.batch), 0)
    return StateComponents(split(state.q), split(state.v), split(state.act), time, health, split(state.history), split(state.plastic))


def public_state(m: StateComponents, lanes: Lanes, mocap, dtype, flags_dtype=jnp.int32) -> State:
    """The state of components. mocap (*batch, nmocap, 7): poses of the mocap bodies. dtype: of empty fields."""

    def join(x):
        return lanes.join(x, 1) if x else jnp.zeros((*lanes.batch, 0), dtype)

    set_flags = (jnp.where(lanes.join(on, 0) != 0, bit, 0) for bit, on in zip(BITS, m.health, strict=True))
    flags = functools.reduce(jnp.bitwise_or, set_flags)
    return State(
        q=lanes.join(m.q, 1),
        v=lanes.join(m.v, 1),
        time=lanes.join(m.time, 0),
        flags=flags.astype(flags_dtype),
        act=join(m.act),
        mocap=mocap,
        history=join(m.history),
        plastic=join(m.plastic),
    )
