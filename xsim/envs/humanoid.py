"""``humanoid_joystick``: gymnasium's humanoid (``humanoid_v5``) that walks as a joystick says, see `xsim.envs.joystick`.

As with the quadruped, only the feet collide, and damping is implicit: a step is many times cheaper than that of the task ``humanoid``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xsim import models
from xsim.envs.core import Task, register_task
from xsim.envs.joystick import LeggedJoystick, Robot, Weights
from xsim.io import parse
from xsim.spec import ModelSpec

__all__ = ["HUMANOID", "HumanoidJoystick"]

LEG = (0.0, 0.0, -0.25, -0.5)  # rad, the hip's three angles and the knee's
HUMANOID = Robot(
    model="humanoid_v5",
    trunk="torso",
    pose=(0.0, 0.0, 0.0, *LEG, *LEG, *(0.0,) * 6),
    height=1.27,
    feet=("right_foot", "left_foot"),
    foot=(0.0, 0.0, 0.1),
    foot_radius=0.075,
)
WEIGHTS = Weights(torque=-2e-5, air_time=1.0, roll_and_pitch=-0.02, pose=-0.02, stand_still=-0.1)
"""Of torques up to 120 N m, and of joints that the task does not name one by one."""


@dataclass(frozen=True)
class HumanoidJoystick(LeggedJoystick):
    """Follow commanded velocities on two legs: ``HumanoidJoystick(...).task()``. Arguments and observations, (63,), measured (60,) and
    (67,), are those of `LeggedJoystick`; but actions are the controls of the seventeen motors, and ``action_scale`` is not used."""

    robot: Robot = HUMANOID
    weights: Weights = WEIGHTS
    max_command: tuple[float, float, float] = (1.0, 0.4, 0.8)
    min_height: float = 0.9

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        return super().task(**({"model": walking_model(self.robot), "actuate": None, "actions": None} | fields))


def walking_model(robot: Robot) -> ModelSpec:
    """The model of a robot, of which the feet alone collide, integrated by ``implicitfast``."""
    spec = parse(models.path(robot.model), rules="4.0")
    bodies = [
        body if body.name in robot.feet else replace(body, geoms=tuple(replace(geom, collision=False) for geom in body.geoms))
        for body in spec.bodies
    ]
    return spec.replace(bodies=tuple(bodies), option=replace(spec.option, integrator="implicitfast"))


register_task("humanoid_joystick", lambda: HumanoidJoystick().task())
