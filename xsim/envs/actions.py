"""What the actions of a task drive, where the task does not say it by a function: coordinates through gears, or the model's controls."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.envs.advance import Inputs
from xsim.model.model import Model, unfrozen

__all__ = ["ActionMap", "action_map"]


class ActionMap(NamedTuple):
    """Actions times ``scale`` are forces on the coordinates ``dofs`` or, with ``dofs`` None, controls about ``center``."""

    dofs: np.ndarray | None
    scale: np.ndarray
    center: np.ndarray | None = None

    @property
    def actions(self) -> int:
        return len(self.scale)

    def inputs(self, action, zero: Inputs) -> Inputs:
        """What drives a step at the actions (num_envs, actions), from ``zero`` of ctrl and tau."""
        dtype = zero.tau.dtype
        force = action * jnp.asarray(self.scale, dtype)
        if self.dofs is not None:
            return Inputs(zero.ctrl, zero.tau.at[:, self.dofs].set(force))
        return Inputs(jnp.asarray(self.center, dtype) + force, zero.tau)


def action_map(model: Model, gear) -> ActionMap:
    """What the actions drive. gear: as in `Task`. Raises KeyError for an unknown body, ValueError for a gear that does not fit."""
    if gear is not None:
        return _geared(model, gear)
    if model.nu:
        ranges = _ctrl_ranges(model)
        return ActionMap(None, (ranges[:, 1] - ranges[:, 0]) / 2, ranges.mean(1))
    return ActionMap(np.arange(model.nv), np.ones(model.nv))


def _ctrl_ranges(model: Model) -> np.ndarray:
    """Bounds of the controls, (nu, 2); -1 and 1 for a control that has none."""
    ranges = np.tile([-1.0, 1.0], (model.nu, 1))
    first = model.nu - sum(len(info.controls) for info in model.topology.actuators)
    values = np.asarray(unfrozen(model.get("actuator.ctrl_range")), float)
    for info in model.topology.actuators:
        for i, row in zip(info.controls, info.ctrl_ranges, strict=True):
            if row is not None:
                ranges[first + i] = values[..., row, :].reshape(-1, 2)[0]
    return ranges


def _geared(model: Model, gear) -> ActionMap:
    dofs, forces = [], []
    for body, value in gear.items():
        first, width = model.topology.bodies[model.body_index(body)].v
        value = np.asarray(value, float)
        if value.shape not in ((), (width,)):
            raise ValueError(f"gear of {body!r} must be one number or {width}, found {value.shape}")
        for k, force in enumerate(np.broadcast_to(value, (width,))):
            if force != 0:
                dofs.append(first + k)
                forces.append(force)
    if not dofs:
        raise ValueError("gear drives no coordinate")
    return ActionMap(np.array(dofs), np.array(forces))
