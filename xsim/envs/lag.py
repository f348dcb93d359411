"""Where the last simulation step evaluated the forces: what MuJoCo's mjData holds when a step has ended.

After ``mj_step`` positions and velocities are new, while poses, contacts and forces are still those of the last evaluation of the dynamics
within the step: its start, or with Runge-Kutta the fourth stage. Environments that read them (gymnasium's) see the world so.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.dynamics.call import Call
from xsim.dynamics.forward import forward
from xsim.dynamics.integration.integrators import RUNGE_KUTTA
from xsim.dynamics.queries import integrate
from xsim.dynamics.tree.manifold import displacement_rates
from xsim.model.data import Data
from xsim.model.model import Model, State

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
        """The state that the last stage's slopes lead to in a part of the step."""
        before, data, moved = last
        reach = part * dt
        far = reach[..., None]
        moved = far * (before.v if manifold else _displacement_rates(model, start.q, moved, before.v))
        at = start.replace(q=integrate(model, start.q, moved), v=start.v + far * data.a, time=start.time + reach)
        return (at, forward(model, at, ctrl, tau), moved), None

    nothing = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(lambda: forward(model, start, ctrl, tau)))
    first = start, nothing, jnp.zeros_like(start.v)
    return jax.lax.scan(stage, first, jnp.array([0.0, 0.5, 0.5, 1.0], start.q.dtype))[0][:2]


def _displacement_rates(model: Model, q, d, v):
    """Rates (*batch, nv) of the displacement d from q at the velocity v."""
    c = Call(model, q, v, extra=(d,))
    return c.join(displacement_rates(c.system, c.q, c.extra[0], c.v))
