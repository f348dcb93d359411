"""What drives the dofs: commands as forces, prescribed motion, or targets of servos."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import add, mul, stage, sub

PRESCRIBED = ("acceleration", "velocity", "locked")


class Drive(NamedTuple):
    """tau: generalized force (nv). prescribed: see `EquationOfMotion`. servo: {dof: velocity it shall reach}."""

    tau: list
    prescribed: tuple
    servo: dict


@stage
def clip(x, lower, upper):
    """x between bounds, either of which may be None."""
    if lower is not None:
        x = jnp.maximum(x, lower)
    return x if upper is None else jnp.minimum(x, upper)


def clipped(system: System, stem: str, dof: int, x):
    """x within the bounds ``limit.<stem>lower`` and ``limit.<stem>upper`` of a dof, where it has them."""
    return clip(x, bound(system, f"{stem}lower", dof), bound(system, f"{stem}upper", dof))


def bound(system: System, name: str, dof: int):
    """The number of ``limit.<name>`` of a dof, None where it has none."""
    dofs = system.topology.dofs(f"limit.{name}")
    return getattr(system.limit, name)[dofs.index(dof)] if dof in dofs else None


@stage
def _towards(target, v, dt):
    return mul(sub(target, v), 1.0 / dt)


class Controls(NamedTuple):
    """The parts of ctrl: commands of dofs, values of external functions, controls of actuators."""

    commands: list
    functions: list
    actuators: list


def split_controls(topology: Topology, ctrl) -> Controls:
    first, last = len(topology.commands), len(ctrl) - len(topology.actuators)
    return Controls(ctrl[:first], ctrl[first:last], ctrl[last:])


def drive(system: System, v, tau, ctrl) -> Drive:
    """Forces, prescribed accelerations and servo targets of the commands of dofs in ``ctrl`` (nu components).

    force: the command within its force limits, added to tau. acceleration: of the dof. velocity: reached at the end of the step, within
    its velocity limits. locked: at rest from the first step on. The force of a prescribed dof is whatever it takes.
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
            prescribed[dof] = _towards(clipped(system, "velocity_", dof, command[dof]), v[dof], system.option.dt)
        elif kind == "locked":
            prescribed[dof] = _towards(0.0, v[dof], system.option.dt)
        elif kind == "servo":
            servo[dof] = clipped(system, "velocity_", dof, command[dof])
    return Drive(tau, tuple(prescribed) if any(h is not None for h in prescribed) else (), servo)
