"""Where the last simulation step evaluated the forces: what MuJoCo's mjData holds when a step has ended.

After ``mj_step`` positions and velocities are new, while poses, contacts and forces are still those of the last evaluation of the dynamics
within the step: its start, or with Runge-Kutta the fourth stage. Environments that read them (gymnasium's) see the world so.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..dynamics.integrators import RUNGE_KUTTA
from ..dynamics.manifold import rates
from ..dynamics.step import Call, forward_dynamics, integrate
from ..model import Model, State

__all__ = ["last_evaluation"]


def last_evaluation(model: Model, start: State, ctrl, tau) -> State:
    """The state at which the step from ``start`` evaluates the dynamics last. ctrl: (*batch, nu), tau: (*batch, nv), or None."""
    return _fourth_stage(model, start, ctrl, tau) if model.topology.integrator in RUNGE_KUTTA else start


def _fourth_stage(model: Model, start: State, ctrl, tau) -> State:
    """The last stage of the classical Runge-Kutta step, as `xsim.step` takes it."""
    if model.na:
        raise ValueError("models with activations are not followed through the stages of Runge-Kutta")
    manifold = model.topology.integrator == "rk4_manifold"
    dt = jnp.asarray(model.option.dt)

    def ahead(slopes, reach):
        """The state that constant slopes lead to in the time ``reach``, s; quaternions move as four numbers (MuJoCo 4.0)."""
        dq, dv = slopes
        far = reach[..., None]
        q = integrate(model, start.q, far * dq) if manifold else start.q + far * dq
        return start.replace(q=q, v=start.v + far * dv, time=start.time + reach)

    def stage(slopes, part):
        at = ahead(slopes, part * dt)
        dq = at.v if manifold else _rates(model, at.q, at.v)
        return (dq, forward_dynamics(model, at.q, at.v, tau, ctrl, at.time)), None

    zero = jnp.zeros_like(start.v if manifold else start.q), jnp.zeros_like(start.v)
    slopes, _ = jax.lax.scan(stage, zero, jnp.array([0.0, 0.5, 0.5], start.q.dtype))
    return ahead(slopes, dt)


def _rates(model: Model, q, v):
    """dq/dt (*batch, nq) at the velocity v."""
    c = Call(model, q, v)
    return c.join(rates(c.system, c.q, c.v))
