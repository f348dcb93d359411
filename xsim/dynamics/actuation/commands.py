"""Commands of dofs: forces, prescribed motions, or target velocities of servos."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, mul, stage, sub

PRESCRIBED = ("acceleration", "velocity", "locked")


class DofCommands(NamedTuple):
    """tau: generalized force (nv). prescribed: see `EquationOfMotion`. servo: {dof: target velocity}."""

    tau: list
    prescribed: tuple
    servo: dict


@stage
def clip(x, lower, upper):
    """x clamped between two bounds, either of which may be None."""
    if lower is not None:
        x = jnp.maximum(x, lower)
    return x if upper is None else jnp.minimum(x, upper)


def clipped(system: System, stem: str, dof: int, x):
    """x clamped to the bounds ``limit.<stem>lower`` and ``limit.<stem>upper`` of a dof, if it has them."""
    return clip(x, bound(system, f"{stem}lower", dof), bound(system, f"{stem}upper", dof))


def bound(system: System, name: str, dof: int):
    """The value of ``limit.<name>`` for a dof, None if it has none."""
    dofs = system.topology.dofs(f"limit.{name}")
    return getattr(system.limit, name)[dofs.index(dof)] if dof in dofs else None


@stage
def _acceleration_to(target, v, dt):
    return mul(sub(target, v), 1.0 / dt)


class Controls(NamedTuple):
    """The parts of ctrl: commands of dofs, values of external functions, controls of actuators."""

    commands: list
    functions: list
    actuators: list


def split_controls(topology: Topology, ctrl) -> Controls:
    """ctrl (nu) split into its parts."""
    first, last = len(topology.commands), len(ctrl) - sum(len(info.controls) for info in topology.actuators)
    return Controls(ctrl[:first], ctrl[first:last], ctrl[last:])


def apply_commands(system: System, v, tau, ctrl) -> DofCommands:
    """Forces, prescribed accelerations and servo targets from the dof commands in ``ctrl`` (nu components).

    tau (nv): applied generalized force, to which commanded forces are added. The kinds of `Topology.drives`:

    * ``"force"``: the command, clamped to the force limits, is added to tau.
    * ``"acceleration"``: the command is the acceleration of the dof.
    * ``"velocity"``: the dof has the commanded velocity, clamped to its velocity limits, at the end of the step.
    * ``"locked"``: the dof is at rest from the end of the first step on.
    * ``"servo"``: the command, clamped to the velocity limits, is the target velocity of a servo with bounded force.

    A dof with a prescribed motion has no force limits.
    """
    tau, servo = list(tau), {}
    prescribed: list = [None] * len(tau)
    command = dict(zip(system.topology.commands, split_controls(system.topology, ctrl).commands, strict=True))
    for dof, kind in enumerate(system.topology.drives):
        if kind == "force":
            tau[dof] = add(tau[dof], clipped(system, "force_", dof, command[dof]))
        elif kind == "acceleration":
            prescribed[dof] = command[dof]
        elif kind == "velocity":
            prescribed[dof] = _acceleration_to(clipped(system, "velocity_", dof, command[dof]), v[dof], system.option.dt)
        elif kind == "locked":
            prescribed[dof] = _acceleration_to(0.0, v[dof], system.option.dt)
        elif kind == "servo":
            servo[dof] = clipped(system, "velocity_", dof, command[dof])
    return DofCommands(tau, tuple(prescribed) if any(a is not None for a in prescribed) else (), servo)
