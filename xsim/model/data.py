"""What `xsim.forward` computes."""

from __future__ import annotations

from typing import Any

from xsim.model.model import leaf_group, shapes

__all__ = ["Data"]


@leaf_group
class Data:
    """The result of `forward`. Vectors of bodies are in world axes, (*batch, nbody, 3).

    * pos (m), quat (*batch, nbody, 4): poses of the body frames.
    * lin (m/s), ang (rad/s): velocity of the body origins and angular velocity.
    * lin_acc (m/s^2), ang_acc (rad/s^2): their rates; gravity is not subtracted.
    * a (*batch, nv): generalized acceleration.
    * bias, passive, tau, actuator (*batch, nv): generalized forces.
    * actuator_force, actuator_length (*batch, nout), act_rate (*batch, na): of the actuators, each with one force, orientation servos
      with three.
    * element (*batch, nv): generalized force of springs, bushings, motors and loads between bodies.
    * constraint (*batch, nv): generalized force of all constraints: holonomic rows, prescribed dofs, soft constraints, and the mean over a
      step of the impulses of dry friction, limits and servos.
    * external_force (N), external_moment (N m): wrench of contacts, connects, welds and spatial tendons on each body (by the rules
      of MuJoCo 3.2 without tendons), about the origin of its frame.
    * residual (*batch,): largest error of the forces of soft constraints, relative to the largest force.
    * sensor (*batch, nsensordata): readings of the sensors.
    * flags (*batch,): the flags that this evaluation sets, see `Flags`.
    """

    pos: Any
    quat: Any
    lin: Any
    ang: Any
    lin_acc: Any
    ang_acc: Any
    a: Any
    bias: Any
    passive: Any
    tau: Any
    actuator: Any
    actuator_force: Any
    actuator_length: Any
    act_rate: Any
    element: Any
    constraint: Any
    external_force: Any
    external_moment: Any
    residual: Any
    sensor: Any
    flags: Any

    def __repr__(self) -> str:
        return shapes(self)
