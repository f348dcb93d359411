"""Where the last simulation step evaluated the forces: what MuJoCo's mjData holds when a step has ended.

After ``mj_step`` positions and velocities are new, while poses, contacts and forces are still those of the last evaluation of the dynamics
within the step: its start, or with Runge-Kutta the fourth stage. Environments that read them (gymnasium's) see the world so.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..dynamics.integrators import RUNGE_KUTTA
from ..dynamics.manifold import rates
from ..dynamics.step import Call, forward, integrate
from ..model import Data, Model, State

__all__ = ["last_evaluation"]


def last_evaluation(model: Model, start: State, ctrl, tau) -> tuple[State, Data]:
    """Where the step from ``start`` evaluates the dynamics last, and what it finds. ctrl: (*batch, nu), tau: (*batch, nv), or None."""
    if model.topology.integrator in RUNGE_KUTTA:
        return _fourth_stage(model, start, ctrl, tau)
    return start, forward(model, start, ctrl, tau)


def _fourth_stage(model: Model, start: State, ctrl, tau) -> tuple[State, Data]:
    """The last stage of the classical Runge-Kutta step, as `xsim.step` takes it."""
    if model.na:
        raise ValueError("models with activations are not followed through the stages of Runge-Kutta")
    manifold = model.topology.integrator == "rk4_manifold"
    dt = jnp.asarray(model.option.dt)

    def stage(last, part):
        """The state that the last stage's slopes lead to in a part of the step; quaternions move as four numbers (MuJoCo 4.0)."""
        before, data = last
        reach = part * dt
        far = reach[..., None]
        dq = before.v if manifold else _rates(model, before.q, before.v)
        q = integrate(model, start.q, far * dq) if manifold else start.q + far * dq
        at = start.replace(q=q, v=start.v + far * data.a, time=start.time + reach)
        return (at, forward(model, at, ctrl, tau)), None

    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: forward(model, start, ctrl, tau)))
    return jax.lax.scan(stage, (start, nothing), jnp.array([0.0, 0.5, 0.5, 1.0], start.q.dtype))[0]


def _rates(model: Model, q, v):
    """dq/dt (*batch, nq) at the velocity v."""
    c = Call(model, q, v)
    return c.join(rates(c.system, c.q, c.v))
