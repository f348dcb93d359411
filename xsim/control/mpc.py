"""Model predictive control: a plan for the next moments from every measured state, of which the first control acts.

Each plan starts from the one before, shifted by a control (Tassa, Erez and Todorov, Synthesis and Stabilization of Complex Behaviors
through Online Trajectory Optimization, 2012).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.control.ilqr import START_REGULARIZATION, control_limits, ilqr
from xsim.control.tangent import Problem, advance, as_partial, drive_of
from xsim.model.model import Model, State

__all__ = ["Controller", "Memory", "simulate"]


class Memory(NamedTuple):
    """What a controller keeps between controls; a pytree. ctrls: (horizon, m), the guess for the next plan. regularization: its start.
    cost, converged: of the last plan."""

    ctrls: Any
    regularization: Any
    cost: Any
    converged: Any


@functools.partial(
    jax.tree_util.register_dataclass,
    data_fields=["model", "cost", "final_cost", "limits", "drive"],
    meta_fields=["substeps", "iterations"],
)
@dataclass(frozen=True, eq=False)
class Controller:
    """A controller that plans ahead with a model. A pytree, an argument of compiled functions if its functions are
    `jax.tree_util.Partial`.

    ::

        memory = controller.start(ctrls)
        ctrl, memory = controller.act(state, memory)     # at every control; goes into jit, scan and vmap

    model, cost, final_cost, limits, drive, substeps: as in `ilqr`. ``state.time`` is the time of the loop, and the index t of cost counts
    from the present control. iterations: of `ilqr` per control; few are enough, because each plan continues the one before.
    """

    model: Model
    cost: Callable
    final_cost: Callable
    limits: Any = None
    drive: Callable | None = None
    substeps: int = 1
    iterations: int = 3

    def start(self, ctrls) -> Memory:
        """The memory before the first control. ctrls: (horizon, m), the guess for the first plan; it sets the horizon."""
        ctrls = jnp.asarray(ctrls, self.model.option.dt.dtype)
        dtype = ctrls.dtype
        return Memory(ctrls, jnp.asarray(START_REGULARIZATION, dtype), jnp.asarray(jnp.nan, dtype), jnp.zeros((), bool))

    def act(self, state: State, memory: Memory) -> tuple[Any, Memory]:
        """The control (m,) at a state, and the memory for the next one. Raises what `ilqr` raises."""
        plan = ilqr(
            self.model,
            state.replace(flags=jnp.zeros_like(state.flags)),
            memory.ctrls,
            self.cost,
            self.final_cost,
            limits=self.limits,
            drive=self.drive,
            substeps=self.substeps,
            max_iterations=self.iterations,
            regularization=jnp.minimum(memory.regularization, START_REGULARIZATION),
        )
        shifted = jnp.concatenate([plan.ctrls[1:], plan.ctrls[-1:]])
        return plan.ctrls[0], Memory(shifted, plan.regularization, plan.cost, plan.converged)


def simulate(controller: Controller, state: State, memory: Memory, count: int, plant: Model | None = None):
    """A controller in the loop with a simulation, for ``count`` controls: (states, ctrls (count, m), memory).

    states: after each control, with a leading axis. plant: the model that moves; None: the controller's own. It is compiled once for
    controllers that differ in numbers: those of their models, of their limits, and of costs that are ``jax.tree_util.Partial``.

    Raises what `ilqr` raises."""
    cost, final_cost, drive = as_partial(controller.cost), as_partial(controller.final_cost), drive_of(controller.model, controller.drive)
    limits = tuple(control_limits(controller.model, controller.limits, memory.ctrls, controller.drive is None))
    return _simulate(replace(controller, cost=cost, final_cost=final_cost, drive=drive, limits=limits), state, memory, count, plant)


@functools.partial(jax.jit, static_argnames="count")
def _simulate(controller: Controller, state: State, memory: Memory, count: int, plant: Model | None):
    model = controller.model if plant is None else plant
    p = Problem(model, controller.cost, controller.final_cost, controller.drive, -jnp.inf, jnp.inf, controller.substeps)

    def one(carry, _):
        state, memory = carry
        ctrl, memory = controller.act(state, memory)
        after = advance(p, state, ctrl)
        return (after, memory), (after, ctrl)

    (_, memory), (states, ctrls) = jax.lax.scan(one, (state, memory), length=count)
    return states, ctrls, memory
