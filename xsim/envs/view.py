"""What the functions of a task read of a batch of environments."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

from xsim.dynamics.forward import forward
from xsim.envs.advance import Inputs
from xsim.envs.lag import last_evaluation
from xsim.model.data import Data
from xsim.model.model import Model, State

__all__ = ["Transition", "View"]


class Transition(NamedTuple):
    """States of one action: before it, before the last simulation step of it (None where no task reads it), after it."""

    before: State
    last: State | None
    after: State


class View:
    """What the functions of a task read, batch first.

    model: with the leaves of every environment. state: after the step (or the reset); ``state.time`` is the time in the episode, s.
    before: the state before the action, last: that before the last simulation step of it; both are ``state`` after a reset.
    action: (num_envs, actions), within its bounds; ctrl: (num_envs, nu) and tau: (num_envs, nv), what was applied; all zero after a reset.
    variables: what the task's ``variables`` sampled for this episode and ``remember`` made of it since, leading dimension num_envs.
    fresh: whether this is the view after a reset. keys: (num_envs,) random keys of this step.
    """

    def __init__(self, model: Model, states: Transition, action, inputs: Inputs, variables, keys, fresh: bool = False):
        self.model, self.action, self.variables, self.keys, self.fresh = model, action, variables, keys, fresh
        self.before, self.last, self.state = states
        self.ctrl, self.tau = inputs

    @cached_property
    def data(self) -> Data:
        """`xsim.forward` of the state with ctrl and tau: poses, velocities, accelerations, sensors. Computed when first asked for."""
        return forward(self.model, self.state, self.ctrl if self.model.nu else None, self.tau)

    @cached_property
    def evaluated(self) -> View:
        """The view at the state at which the last step evaluated the dynamics, see `xsim.envs.lag`. Needs ``Task(substeps=True)``."""
        if self.fresh:
            return self
        if self.last is None:
            raise ValueError("the state before the last simulation step is unknown: give the task substeps=True")
        at, data = last_evaluation(self.model, self.last, self.ctrl if self.model.nu else None, self.tau)
        states, inputs = Transition(self.before, self.last, at), Inputs(self.ctrl, self.tau)
        view = View(self.model, states, self.action, inputs, self.variables, self.keys)
        view.data = data
        return view

    def body(self, name: str) -> int:
        """Index of a body in the arrays of ``data``. Raises KeyError."""
        return self.model.body_index(name)

    def sensor(self, name: str):
        """Reading of a sensor, (num_envs, its width). Raises KeyError."""
        return self.data.sensor[..., self.model.sensor_slice(name)]

    def q(self, body: str):
        """Coordinates of the joint of a body, (num_envs, its nq)."""
        first, width = self.model.topology.bodies[self.body(body)].q
        return self.state.q[..., first : first + width]

    def v(self, body: str):
        """Velocity of the joint of a body, (num_envs, its nv)."""
        first, width = self.model.topology.bodies[self.body(body)].v
        return self.state.v[..., first : first + width]
