"""``humanoid_joystick``: gymnasium's humanoid (``humanoid_v5``) that walks as a joystick says, see `xsim.envs.joystick`."""

from __future__ import annotations

from dataclasses import dataclass

from xsim.envs.core import Task, register_task
from xsim.envs.joystick import LeggedJoystick, Robot, Weights

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
        return super().task(**({"options": {"rules": "4.0"}, "actuate": None, "actions": None} | fields))


register_task("humanoid_joystick", HumanoidJoystick().task())
