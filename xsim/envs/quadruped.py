"""``go1_joystick``: a quadruped (Unitree Go1) that walks as a joystick says: velocity ahead, to the left, and turning.

``go1_robust`` is the same task for a policy that goes to a robot, ``go1_rough`` the same on a terrain. The rewards are those that have
become usual for this task (Rudin et al., Learning to Walk in Minutes Using Massively Parallel Deep Reinforcement Learning, 2022); `Weights`
lists them. Actions are displacements of the joint targets from the standing pose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.images import height_scan
from xsim.envs.core import Task, register_task
from xsim.envs.disturbances import PRIVILEGED
from xsim.envs.tasks import to_body
from xsim.envs.terrain import Terrain, make_terrain
from xsim.envs.view import View
from xsim.io import parse
from xsim.model.model import Model
from xsim.spatial import rotate

__all__ = ["Joystick", "RoughTerrain", "Weights", "robust"]

LEGS = ("FR", "FL", "RR", "RL")
STANDING_POSE = np.tile([0.1, 0.9, -1.8, -0.1, 0.9, -1.8], 2)  # rad, joints of the legs in their order
STANDING_HEIGHT = 0.278  # m, of the trunk in the standing pose
FOOT = (0.0, 0.0, -0.213)  # m, centre of the foot in the calf's frame
FOOT_RADIUS = 0.023  # m
CONTACT_HEIGHT = 0.005  # m, of a foot's lowest point; below it the foot counts as standing
ACTION_REPEAT = 5


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


def _trunk(view: View) -> Trunk:
    quat = view.data.quat[..., view.body("trunk"), :]
    up = jnp.asarray([0.0, 0.0, 1.0], quat.dtype)
    return Trunk(to_body(quat, view.state.v[..., :3]), view.state.v[..., 3:6], to_body(quat, up))


def _displacement(view: View):
    """Of the joints from the standing pose, (num_envs, 12), rad."""
    return view.state.q[..., 7:] - jnp.asarray(STANDING_POSE, view.state.q.dtype)


class Feet(NamedTuple):
    """Positions and velocities of the centres of the feet, (num_envs, 4, 3), world axes."""

    pos: jax.Array
    velocity: jax.Array


def _feet(view: View) -> Feet:
    index = np.array([view.body(f"{leg}_calf") for leg in LEGS])
    data = view.data
    quat = tuple(data.quat[..., index, k] for k in range(4))
    arm = jnp.stack(jnp.broadcast_arrays(*rotate(quat, FOOT)), -1)
    return Feet(data.pos[..., index, :] + arm, data.lin[..., index, :] + jnp.cross(data.ang[..., index, :], arm))


def _is_moving(view: View):
    """(num_envs,) 1 where the command is to move, 0 where it is to stand."""
    return (_sum_squares(view.variables["command"]) > 0).astype(view.state.q.dtype)


def _duration(view: View):
    """Of an action, s."""
    return ACTION_REPEAT * view.model.option.dt


def _sum_squares(x):
    return jnp.sum(jnp.square(x), -1)


# ---- the task ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Joystick:
    """Follow commanded velocities: ``Joystick(...).task()``.

    Observation (48,), trunk's axes: velocity, angular velocity, direction of the vertical, displacements of the joints from the standing
    pose, their velocities, the last action, the command. measured: ``state`` (45,), the same without the velocity, which no sensor of the
    robot measures, and ``privileged_state`` (56,), all 48, then which feet stand and how long each has been in the air, s.

    weights: of the reward terms; each term is the method ``_reward_<name>``. action_scale: rad that an action of 1 moves a joint's
    target. max_command: largest speeds ahead, m/s, to the left, m/s, and turning, rad/s; commands are uniform between these and their
    negatives. command_time: mean time until a new command, s. stand_share: share of the commands that are to stand. min_up, min_height:
    an episode ends where the cosine of the trunk's tilt or its height, m, is less.
    """

    weights: Weights = Weights()
    action_scale: float = 0.5
    max_command: tuple[float, float, float] = (1.5, 0.8, 1.2)
    command_time: float = 5.0
    stand_share: float = 0.1
    min_up: float = 0.5
    min_height: float = 0.1
    measured: bool = False

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        known = {
            "model": "go1",
            "reward": self.reward,
            "observe": self.observe,
            "terminate": self.has_fallen,
            "start": self.start,
            "variables": self.variables,
            "remember": self.remember,
            "actuate": self.actuate,
            "actions": 12,
            "metrics": self.reward_terms,
            "action_repeat": ACTION_REPEAT,
            "max_steps": 1000,
        }
        return Task(**(known | fields))

    # ---- episodes ------------------------------------------------------------------------------------------------------------

    def start(self, model: Model, key, variables):
        """(q, v): the standing pose with noise, facing up to 90 degrees to either side."""
        dtype = model.option.dt.dtype
        k = jax.random.split(key, 3)
        half = jax.random.uniform(k[0], (), dtype, -np.pi / 2, np.pi / 2)  # of the heading
        joints = jnp.asarray(STANDING_POSE, dtype) + 0.05 * jax.random.normal(k[1], (12,), dtype)
        zero = 0.0 * half
        trunk = jnp.stack([zero, zero, STANDING_HEIGHT + 0.01 + zero, jnp.cos(half), zero, zero, jnp.sin(half)])
        return jnp.concatenate([trunk, joints]), 0.1 * jax.random.normal(k[2], (model.nv,), dtype)

    def variables(self, model: Model, key) -> dict:
        """command (3,), the last action (12,), s that each foot has been in the air (4,)."""
        dtype = model.option.dt.dtype
        return {"command": self._sample_command(key, dtype), "action": jnp.zeros(12, dtype), "air_time": jnp.zeros(4, dtype)}

    def remember(self, view: View) -> dict:
        if view.fresh:
            return view.variables
        air_time = jnp.where(self.on_ground(view), 0.0, view.variables["air_time"] + _duration(view)[..., None])
        probability = ACTION_REPEAT * jnp.mean(view.model.option.dt) / self.command_time

        def next_command(key, command):
            change, value = jax.random.split(key)
            is_new = jax.random.uniform(change, (), command.dtype) < probability
            return jnp.where(is_new, self._sample_command(value, command.dtype), command)

        return {"command": jax.vmap(next_command)(view.keys, view.variables["command"]), "action": view.action, "air_time": air_time}

    def _sample_command(self, key, dtype):
        """A command (3,)."""
        speeds, stand = jax.random.split(key)
        command = jnp.asarray(self.max_command, dtype) * jax.random.uniform(speeds, (3,), dtype, -1.0, 1.0)
        return jnp.where(jax.random.uniform(stand, (), dtype) < self.stand_share, 0.0, command)

    def has_fallen(self, view: View):
        height = view.state.q[..., 2] - self.ground(view.state.q[..., 0], view.state.q[..., 1])
        return (_trunk(view).up[..., 2] < self.min_up) | (height < self.min_height)

    def ground(self, x, y):
        """Height of the ground at points of the world, m."""
        return jnp.zeros_like(x)

    def on_ground(self, view: View):
        """Which feet stand, (num_envs, 4) bool."""
        pos = _feet(view).pos
        return pos[..., 2] - self.ground(pos[..., 0], pos[..., 1]) - FOOT_RADIUS < CONTACT_HEIGHT

    # ---- actions and observations --------------------------------------------------------------------------------------------

    def actuate(self, view: View):
        ctrl = jnp.asarray(STANDING_POSE, view.action.dtype) + self.action_scale * view.action
        return ctrl, jnp.zeros_like(view.state.v)

    def observe(self, view: View):
        memory, trunk = view.variables, _trunk(view)
        sensed = [*trunk[1:], _displacement(view), view.state.v[..., 6:], memory["action"], memory["command"]]
        everything = jnp.concatenate([trunk.velocity, *sensed], -1)
        if not self.measured:
            return everything
        feet = [self.on_ground(view).astype(everything.dtype), memory["air_time"]]
        return {"state": jnp.concatenate(sensed, -1), PRIVILEGED: jnp.concatenate([everything, *feet], -1)}

    # ---- rewards -------------------------------------------------------------------------------------------------------------

    def reward(self, view: View):
        terms = self.reward_terms(view)
        per_second = sum(weight * terms[name] for name, weight in self.weights._asdict().items())
        return per_second * ACTION_REPEAT * view.model.option.dt

    def reward_terms(self, view: View) -> dict:
        """The terms per second, unweighted, {name: (num_envs,)}. The variables are those before the step."""
        return {name: getattr(self, f"_reward_{name}")(view) for name in Weights._fields}

    def _reward_tracking_linear(self, view: View):
        return jnp.exp(-_sum_squares(view.variables["command"][..., :2] - _trunk(view).velocity[..., :2]) / 0.25)

    def _reward_tracking_turning(self, view: View):
        return jnp.exp(-jnp.square(view.variables["command"][..., 2] - _trunk(view).angular_velocity[..., 2]) / 0.25)

    def _reward_bounce(self, view: View):
        return jnp.square(_trunk(view).velocity[..., 2])

    def _reward_roll_and_pitch(self, view: View):
        return _sum_squares(_trunk(view).angular_velocity[..., :2])

    def _reward_orientation(self, view: View):
        return _sum_squares(_trunk(view).up[..., :2])

    def _reward_torque(self, view: View):
        return _sum_squares(view.data.actuator[..., 6:])

    def _reward_action_rate(self, view: View):
        return _sum_squares(view.action - view.variables["action"])

    def _reward_air_time(self, view: View):
        air_time = view.variables["air_time"]
        landed = self.on_ground(view).astype(view.state.q.dtype) * (air_time > 0)
        return _is_moving(view) * jnp.sum(landed * (air_time - 0.1), -1) / _duration(view)

    def _reward_slip(self, view: View):
        standing = self.on_ground(view).astype(view.state.q.dtype)
        return jnp.sum(standing * _sum_squares(_feet(view).velocity[..., :2]), -1)

    def _reward_pose(self, view: View):
        return _sum_squares(_displacement(view))

    def _reward_stand_still(self, view: View):
        return (1.0 - _is_moving(view)) * jnp.sum(jnp.abs(_displacement(view)), -1)

    def _reward_fall(self, view: View):
        return self.has_fallen(view).astype(view.state.q.dtype)


register_task("go1_joystick", Joystick().task())


MEASUREMENT_NOISE = np.repeat([0.2, 0.05, 0.03, 1.5, 0.0], [3, 3, 12, 12, 15])
"""Of what `Joystick` measures: rad/s of the gyroscope, of the direction of the vertical, rad and rad/s of the joints. Source: MuJoCo
Playground (Zakka et al., 2025), Go1."""


def robust(**fields) -> Task:
    """`Joystick` as a robot has it: measured with noise and delay, pushed, with random masses and friction. fields: of `Task`."""
    known = {
        "noise": {"state": MEASUREMENT_NOISE},
        "action_delay": (0, 1),
        "observation_delay": (0, 1),
        "push": {"body": "trunk", "speed": (0.1, 1.0), "interval": 5.0},
        "randomize": "go1",
    }
    return Joystick(measured=True).task(**(known | fields))


register_task("go1_robust", robust())


# ---- rough terrain -----------------------------------------------------------------------------------------------------------

SCAN = np.stack(np.meshgrid(np.linspace(-0.8, 0.8, 9), np.linspace(-0.5, 0.5, 5), indexing="ij"), -1).reshape(-1, 2)
"""Points around the trunk whose heights the robot observes, m, in its heading."""
SCAN_REACH = 1.0
"""Largest height, and depth, that is observed, m from the trunk."""


@dataclass(frozen=True)
class RoughTerrain(Joystick):
    """The same on a terrain (`make_terrain`): ``RoughTerrain(terrain=...).task()``.

    Observation (93,): that of `Joystick` (or each of a measured one), then the heights of the ground at the points `SCAN`, m, minus the
    height of a standing trunk.

    An episode starts on a tile of a random kind. A robot that leaves the tile starts the next episode a level higher; one that walks less
    than half of the commanded distance, a level lower; one that leaves a tile of the last level, at a random level. An episode also ends
    a metre before the border of the terrain.

    terrain: None: `make_terrain` with its defaults. start_levels: the first episode starts on one of so many levels.
    """

    terrain: Terrain | None = None
    start_levels: int = 2

    def task(self, **fields) -> Task:
        if self.terrain is None:
            return replace(self, terrain=make_terrain()).task(**fields)
        spec = self.terrain.under(parse(models.path("go1")), "floor")
        return super().task(**({"model": spec, "terminate": self.ends, "inherit": self.inherit, "metrics": self.metrics} | fields))

    @property
    def _terrain(self) -> Terrain:
        assert self.terrain is not None  # `task` has made it
        return self.terrain

    def ground(self, x, y):
        return self._terrain.height(x, y)

    def ends(self, view: View):
        reach = jnp.asarray(self._terrain.half, view.state.q.dtype) - 1.0
        return self.has_fallen(view) | (jnp.abs(view.state.q[..., :2]) > reach).any(-1)

    def start(self, model: Model, key, variables):
        q, v = super().start(model, key, variables)
        origins = jnp.asarray(self._terrain.origins, q.dtype)
        return q.at[:3].add(origins[variables["level"], variables["kind"]]), v

    def variables(self, model: Model, key) -> dict:
        """Those of `Joystick`; level and kind of the tile; where the robot is (2,) and the distance it was told to go, m."""
        base, level, kind = jax.random.split(key, 3)
        dtype = model.option.dt.dtype
        levels, kinds = self._terrain.origins.shape[:2]
        return super().variables(model, base) | {
            "level": jax.random.randint(level, (), 0, min(self.start_levels, levels)),
            "kind": jax.random.randint(kind, (), 0, kinds),
            "random_level": jax.random.randint(jax.random.fold_in(level, 1), (), 0, levels),
            "place": jnp.zeros(2, dtype),
            "told": jnp.zeros((), dtype),
        }

    def remember(self, view: View) -> dict:
        told = view.variables["told"] + jnp.sqrt(_sum_squares(view.variables["command"][..., :2])) * _duration(view) * (not view.fresh)
        return view.variables | super().remember(view) | {"place": view.state.q[..., :2], "told": told}

    def inherit(self, variables: dict, previous: dict) -> dict:
        """The level of the next episode."""
        terrain = self._terrain
        origin = jnp.asarray(terrain.origins, previous["place"].dtype)[previous["level"], previous["kind"], :2]
        offset = previous["place"] - origin
        left, walked = jnp.max(jnp.abs(offset)) > 0.5 * terrain.tile, jnp.sqrt(_sum_squares(offset))
        change = jnp.where(left, 1, jnp.where(walked < 0.5 * previous["told"], -1, 0))
        level = previous["level"] + change
        level = jnp.where(level >= len(terrain.origins), variables["random_level"], jnp.maximum(level, 0))
        return variables | {"level": level.astype(previous["level"].dtype)}

    def observe(self, view: View):
        heights = height_scan(view.model, view.state.q, "trunk", SCAN, reach=SCAN_REACH) + STANDING_HEIGHT
        return jax.tree.map(lambda x: jnp.concatenate([x, heights], -1), super().observe(view))

    def metrics(self, view: View) -> dict:
        """The terms of the reward, and the level."""
        return self.reward_terms(view) | {"level": view.variables["level"].astype(view.state.q.dtype)}


register_task("go1_rough", lambda: RoughTerrain().task())
