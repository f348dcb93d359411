"""A robot on legs that walks as a joystick says: velocity ahead, to the left, and turning. `xsim.envs.quadruped` and `xsim.envs.humanoid`
have tasks of this kind.

The rewards are those that have become usual for this task (Rudin et al., Learning to Walk in Minutes Using Massively Parallel Deep
Reinforcement Learning, 2022); `Weights` lists them. Actions are displacements of the joint targets from the standing pose.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.envs.commands import WeightedTerms, action_duration, new_commands, sample_velocity
from xsim.envs.core import Task
from xsim.envs.disturbances import PRIVILEGED
from xsim.envs.tasks import to_body, to_world
from xsim.envs.view import View
from xsim.model.model import Model

__all__ = ["LeggedJoystick", "Robot", "Weights", "sum_squares"]

CONTACT_HEIGHT = 0.005  # m, of a foot's lowest point; below it the foot counts as standing


class Robot(NamedTuple):
    """A robot on legs with spheres as feet. Its first joint is the free one of its trunk, the others are hinges.

    model: name of a bundled model. trunk: name of a body. pose: angles of the hinges of the robot that stands, rad. height: of its trunk,
    m. feet: names of the bodies that carry them. foot: centre of a foot in its body's frame, m; foot_radius, m.
    """

    model: str
    trunk: str
    pose: tuple[float, ...]
    height: float
    feet: tuple[str, ...]
    foot: tuple[float, float, float]
    foot_radius: float


class Weights(NamedTuple):
    """The reward terms and their weights, per second. Velocities in the trunk's frame, m/s and rad/s."""

    tracking_linear: float = 1.0  # exp(-|error of the velocity in the plane|^2 / 0.25)
    tracking_turning: float = 0.5  # exp(-(error of the turning rate)^2 / 0.25)
    bounce: float = -0.5  # vertical velocity^2
    roll_and_pitch: float = -0.05  # their rates, squared
    orientation: float = -5.0  # horizontal part of the trunk's vertical axis, squared
    torque: float = -2e-4  # sum of squares, (N m)^2
    action_rate: float = -0.01  # sum of the squared changes of the action
    air_time: float = 0.2  # s that a foot was in the air over 0.1 s, when it comes down; none while the command is to stand
    slip: float = -0.1  # squared horizontal velocity of the standing feet
    pose: float = -0.1  # sum of squared displacements from the standing pose, rad^2
    stand_still: float = -0.5  # sum of absolute displacements from the standing pose while the command is to stand, rad
    fall: float = -50.0  # where the robot falls; once, thus divided by the time of a step


# ---- the state of the robot --------------------------------------------------------------------------------------------------


class Trunk(NamedTuple):
    """Of the trunk, in its axes: velocity, angular velocity, direction of the world's vertical; (num_envs, 3)."""

    velocity: jax.Array
    angular_velocity: jax.Array
    up: jax.Array


def _trunk(view: View, name: str) -> Trunk:
    quat = view.data.quat[..., view.body(name), :]
    up = jnp.asarray([0.0, 0.0, 1.0], quat.dtype)
    return Trunk(to_body(quat, view.state.v[..., :3]), view.state.v[..., 3:6], to_body(quat, up))


class Feet(NamedTuple):
    """Positions and velocities of the centres of the feet, (num_envs, feet, 3), world axes."""

    pos: jax.Array
    velocity: jax.Array


def _feet(view: View, robot: Robot) -> Feet:
    index = np.array([view.body(name) for name in robot.feet])
    data = view.data
    quat = data.quat[..., index, :]
    arm = to_world(quat, jnp.asarray(robot.foot, quat.dtype))
    return Feet(data.pos[..., index, :] + arm, data.lin[..., index, :] + jnp.cross(data.ang[..., index, :], arm))


def _is_moving(view: View):
    """(num_envs,) 1 where the command is to move, 0 where it is to stand."""
    return (sum_squares(view.variables["command"]) > 0).astype(view.state.q.dtype)


def sum_squares(x):
    """Of the last dimension."""
    return jnp.sum(jnp.square(x), -1)


# ---- the task ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LeggedJoystick(WeightedTerms):
    """Follow commanded velocities.

    Observation, trunk's axes: velocity (3), angular velocity (3), direction of the vertical (3), displacements of the joints from the
    standing pose, their velocities, the last action, the command (3). measured: ``state``, the same without the velocity, which no sensor
    of a robot measures, and ``privileged_state``, all of it, then which feet stand and how long each has been in the air, s.

    robot: see `Robot`. weights: of the reward terms; each term is the method ``_reward_<name>``. action_scale: rad that an action of 1
    moves a joint's target. max_command: largest speeds ahead, m/s, to the left, m/s, and turning, rad/s; commands are uniform between these
    and their negatives. command_time: mean time until a new command, s. stand_share: share of the commands that are to stand. min_up,
    min_height: an episode ends where the cosine of the trunk's tilt or its height, m, is less. action_repeat: simulation steps per action.
    """

    robot: Robot
    weights: Weights = Weights()
    action_scale: float = 0.5
    max_command: tuple[float, float, float] = (1.5, 0.8, 1.2)
    command_time: float = 5.0
    stand_share: float = 0.1
    min_up: float = 0.5
    min_height: float = 0.1
    measured: bool = False
    action_repeat: int = 5

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        known = {
            "model": self.robot.model,
            "reward": self.reward,
            "observe": self.observe,
            "terminate": self.has_fallen,
            "start": self.start,
            "variables": self.variables,
            "remember": self.remember,
            "actuate": self.actuate,
            "actions": len(self.robot.pose),
            "metrics": self.reward_terms,
            "action_repeat": self.action_repeat,
            "max_steps": 1000,
        }
        return Task(**(known | fields))

    # ---- episodes ------------------------------------------------------------------------------------------------------------

    def start(self, model: Model, key, variables):
        """(q, v): the standing pose with noise, facing up to 90 degrees to either side."""
        dtype = model.option.dt.dtype
        k = jax.random.split(key, 3)
        half = jax.random.uniform(k[0], (), dtype, -np.pi / 2, np.pi / 2)  # of the heading
        joints = jnp.asarray(self.robot.pose, dtype) + 0.05 * jax.random.normal(k[1], (len(self.robot.pose),), dtype)
        zero = 0.0 * half
        trunk = jnp.stack([zero, zero, self.robot.height + 0.01 + zero, jnp.cos(half), zero, zero, jnp.sin(half)])
        return jnp.concatenate([trunk, joints]), 0.1 * jax.random.normal(k[2], (model.nv,), dtype)

    def variables(self, model: Model, key) -> dict:
        """command (3,), the last action, s that each foot has been in the air."""
        dtype = model.option.dt.dtype
        action, air_time = (jnp.zeros(len(x), dtype) for x in (self.robot.pose, self.robot.feet))
        return {"command": self._sample_command(key, dtype), "action": action, "air_time": air_time}

    def remember(self, view: View) -> dict:
        if view.fresh:
            return view.variables
        duration = action_duration(view, self.action_repeat)
        air_time = jnp.where(self.on_ground(view), 0.0, view.variables["air_time"] + duration[..., None])
        old = view.variables["command"]
        command = new_commands(view, old, lambda key: self._sample_command(key, old.dtype), duration, self.command_time)
        return {"command": command, "action": view.action, "air_time": air_time}

    def _sample_command(self, key, dtype):
        """A command (3,)."""
        return sample_velocity(key, self.max_command, self.stand_share, dtype)

    def has_fallen(self, view: View):
        height = view.state.q[..., 2] - self.ground(view.state.q[..., 0], view.state.q[..., 1])
        return (self._trunk(view).up[..., 2] < self.min_up) | (height < self.min_height)

    def _trunk(self, view: View) -> Trunk:
        return _trunk(view, self.robot.trunk)

    def _displacement(self, view: View):
        """Of the joints from the standing pose, (num_envs, joints), rad."""
        return view.state.q[..., 7:] - jnp.asarray(self.robot.pose, view.state.q.dtype)

    def ground(self, x, y):
        """Height of the ground at points of the world, m."""
        return jnp.zeros_like(x)

    def on_ground(self, view: View):
        """Which feet stand, (num_envs, feet) bool."""
        pos = _feet(view, self.robot).pos
        return pos[..., 2] - self.ground(pos[..., 0], pos[..., 1]) - self.robot.foot_radius < CONTACT_HEIGHT

    # ---- actions and observations --------------------------------------------------------------------------------------------

    def actuate(self, view: View):
        ctrl = jnp.asarray(self.robot.pose, view.action.dtype) + self.action_scale * view.action
        return ctrl, jnp.zeros_like(view.state.v)

    def observe(self, view: View):
        memory, trunk = view.variables, self._trunk(view)
        sensed = [*trunk[1:], self._displacement(view), view.state.v[..., 6:], memory["action"], memory["command"]]
        everything = jnp.concatenate([trunk.velocity, *sensed], -1)
        if not self.measured:
            return everything
        feet = [self.on_ground(view).astype(everything.dtype), memory["air_time"]]
        return {"state": jnp.concatenate(sensed, -1), PRIVILEGED: jnp.concatenate([everything, *feet], -1)}

    # ---- rewards -------------------------------------------------------------------------------------------------------------

    def _reward_tracking_linear(self, view: View):
        return jnp.exp(-sum_squares(view.variables["command"][..., :2] - self._trunk(view).velocity[..., :2]) / 0.25)

    def _reward_tracking_turning(self, view: View):
        return jnp.exp(-jnp.square(view.variables["command"][..., 2] - self._trunk(view).angular_velocity[..., 2]) / 0.25)

    def _reward_bounce(self, view: View):
        return jnp.square(self._trunk(view).velocity[..., 2])

    def _reward_roll_and_pitch(self, view: View):
        return sum_squares(self._trunk(view).angular_velocity[..., :2])

    def _reward_orientation(self, view: View):
        return sum_squares(self._trunk(view).up[..., :2])

    def _reward_torque(self, view: View):
        return sum_squares(view.data.actuator[..., 6:])

    def _reward_action_rate(self, view: View):
        return sum_squares(view.action - view.variables["action"])

    def _reward_air_time(self, view: View):
        air_time = view.variables["air_time"]
        landed = self.on_ground(view).astype(view.state.q.dtype) * (air_time > 0)
        return _is_moving(view) * jnp.sum(landed * (air_time - 0.1), -1) / action_duration(view, self.action_repeat)

    def _reward_slip(self, view: View):
        standing = self.on_ground(view).astype(view.state.q.dtype)
        return jnp.sum(standing * sum_squares(_feet(view, self.robot).velocity[..., :2]), -1)

    def _reward_pose(self, view: View):
        return sum_squares(self._displacement(view))

    def _reward_stand_still(self, view: View):
        return (1.0 - _is_moving(view)) * jnp.sum(jnp.abs(self._displacement(view)), -1)

    def _reward_fall(self, view: View):
        return self.has_fallen(view).astype(view.state.q.dtype)
