"""Tasks of an arm with a gripper (Franka Emika Panda, ``panda.xml``): ``panda_reach``, ``panda_reach_pose``, ``panda_lift``.

Actions move the targets of the joints' position servos from where these are, 50 times a second; in ``panda_lift`` the last one is the
opening of the gripper. The rewards are of the kind that has become usual for these tasks (1 - tanh of distances, as in robosuite, Isaac
Lab, ManiSkill and MuJoCo Playground).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.envs.commands import WeightedTerms, action_duration, new_commands
from xsim.envs.core import Task, register_task
from xsim.envs.tasks import components, to_body, to_world
from xsim.envs.view import View
from xsim.model.model import Model
from xsim.spatial import quat_conj, quat_log, quat_mul, safe_norm

__all__ = ["HOME", "Lift", "LiftWeights", "Reach", "ReachWeights"]

HOME = (0.0, -0.2, 0.0, -2.2, 0.0, 2.0, math.pi / 4)  # rad; the hand points down, 0.47 m above the table
OPEN = 0.04  # m, the gripper's opening: distance of a pad from the middle of the hand
GRASP = (0.0, 0.0, 0.1034)  # m, the point between the pads in the hand's frame
ACTION_REPEAT = 4
ARM = 7  # joints of the arm; two of the fingers follow


# ---- what a view shows -------------------------------------------------------------------------------------------------------


def _norm(x):
    return safe_norm(components(x))


def _nearness(distance, scale: float):
    """1 at a distance of zero, 0.24 at ``scale``, 0 far away."""
    return 1.0 - jnp.tanh(distance / scale)


class Frame(NamedTuple):
    """Position (num_envs, 3), m, and orientation (num_envs, 4) in the world."""

    pos: jax.Array
    quat: jax.Array


def hand_frame(view: View) -> Frame:
    """Of the hand, at the point between the pads; its z axis points away from the arm, along y the fingers open."""
    index = view.body("hand")
    quat = view.data.quat[..., index, :]
    return Frame(view.data.pos[..., index, :] + to_world(quat, jnp.asarray(GRASP, quat.dtype)), quat)


def _two_axes(quat):
    """Orientations as the x and y axes of their frames in world axes, (num_envs, 6)."""
    axes = np.eye(3)[:2]
    return jnp.concatenate([to_world(quat, jnp.asarray(axis, quat.dtype)) for axis in axes], -1)


def _rotation_error(quat, target):
    """Rotation vector (num_envs, 3), rad, that turns a frame to its target, in the frame's axes."""
    return jnp.stack(quat_log(quat_mul(quat_conj(components(quat)), components(target))), -1)


def _uniform(key, low, high, dtype):
    return jax.random.uniform(key, (len(low),), dtype, jnp.asarray(low, dtype), jnp.asarray(high, dtype))


def _about_z(angle):
    """Quaternion (4,) of a turn about the vertical, rad."""
    zero = jnp.zeros_like(angle)
    return jnp.stack([jnp.cos(0.5 * angle), zero, zero, jnp.sin(0.5 * angle)])


# ---- the arm -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Arm(WeightedTerms):
    """What the tasks share: actions, the arm's start, what is remembered."""

    weights: NamedTuple
    action_scale: float = 0.04
    start_noise: float = 0.1
    action_repeat: int = ACTION_REPEAT

    def _task(self, known: dict, fields: dict) -> Task:
        common = {
            "options": {"rules": "4.0"},
            "reward": self.reward,
            "observe": self.observe,
            "start": self.start,
            "variables": self.variables,
            "remember": self.remember,
            "actuate": self.actuate,
            "metrics": self.metrics,
            "action_repeat": self.action_repeat,
        }
        return Task(**(common | known | fields))

    def _arm_variables(self, model: Model, key) -> dict:
        """servo (7,): targets of the joints' servos, rad, where the joints start, too."""
        noise = jax.random.uniform(key, (ARM,), model.option.dt.dtype, -self.start_noise, self.start_noise)
        return {"servo": jnp.asarray(HOME, noise.dtype) + noise}

    def _arm_start(self, model: Model, variables):
        """q (9,) of the arm and its open gripper."""
        return jnp.concatenate([variables["servo"], jnp.full(2, OPEN, variables["servo"].dtype)])

    def _controls(self, view: View, opening):
        """(ctrl, tau) at targets that the actions move, within the joints' limits, and an opening (num_envs,) of the gripper, m."""
        limits = jnp.asarray(view.model.get("actuator.ctrl_range"))[..., :ARM, :]
        servo = view.variables["servo"] + self.action_scale * view.action[..., :ARM]
        servo = jnp.clip(servo, limits[..., 0], limits[..., 1])
        return jnp.concatenate([servo, opening[..., None]], -1), jnp.zeros_like(view.state.v)

    def remember(self, view: View) -> dict:
        return view.variables if view.fresh else view.variables | {"servo": view.ctrl[..., :ARM], "action": view.action}

    def _reward_action_rate(self, view: View):
        return jnp.sum(jnp.square(view.action - view.variables["action"]), -1)

    def _reward_joint_speed(self, view: View):
        return jnp.sum(jnp.square(view.state.v[..., :ARM]), -1)


# ---- reach -------------------------------------------------------------------------------------------------------------------


class ReachWeights(NamedTuple):
    """The reward terms of `Reach` and their weights, per second."""

    near: float = 1.0  # 1 - tanh(distance of the hand from its target / 0.2 m)
    at_target: float = 1.0  # 1 - tanh(the same distance / 0.03 m)
    aligned: float = 0.5  # 1 - tanh(angle between the hand and its target / 0.3 rad), where there is a target orientation
    action_rate: float = -0.01  # sum of the squared changes of the action
    joint_speed: float = -0.01  # sum of squares, (rad/s)^2


@dataclass(frozen=True)
class Reach(_Arm):
    """The hand follows a target: ``Reach(...).task()``.

    Observation (40,): positions of the joints (7), rad, their velocities (7), the servos' targets minus the positions (7), the hand's
    position (3) and its x and y axes (6), the target minus the hand's position (3), the last action (7). World axes.

    weights: of the reward terms; each term is the method ``_reward_<name>``. action_scale: rad that an action of 1 moves the target of a
    joint's servo. start_noise: half width of the uniform noise of the joints about `HOME` at the start, rad.
    oriented: whether the target has an orientation, too: the hand points down, turned about the vertical by up to 90 degrees to either
    side; the observation then ends with the rotation vector to it (3), rad, in the hand's axes. target_low, target_high: corners of the box
    in which targets are, m. target_time: mean time until a new target, s. tolerance: distance from the target, m, and angle, rad, within
    which the metric ``success`` is 1.
    """

    weights: ReachWeights = ReachWeights()
    oriented: bool = False
    target_low: tuple[float, float, float] = (0.35, -0.3, 0.15)
    target_high: tuple[float, float, float] = (0.6, 0.3, 0.5)
    target_time: float = 3.0
    tolerance: tuple[float, float] = (0.02, 0.1)

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        return self._task({"model": "panda", "actions": ARM, "max_steps": 300}, fields)

    def variables(self, model: Model, key) -> dict:
        """servo (7,), the last action (7,), target (3,) and a target orientation (4,)."""
        arm, target = jax.random.split(key)
        found = self._arm_variables(model, arm)
        return found | {"action": jnp.zeros_like(found["servo"]), "target": self._sample_target(target, found["servo"].dtype)}

    def _sample_target(self, key, dtype):
        """Position (3,), m, and orientation (4,) of a target."""
        place, turn = jax.random.split(key)
        angle = jax.random.uniform(turn, (), dtype, -0.5 * math.pi, 0.5 * math.pi)
        down = jnp.stack(quat_mul((0.0, 1.0, 0.0, 0.0), components(_about_z(angle))))
        return jnp.concatenate([_uniform(place, self.target_low, self.target_high, dtype), down])

    def start(self, model: Model, key, variables):
        return self._arm_start(model, variables), jnp.zeros(model.nv, model.option.dt.dtype)

    def remember(self, view: View) -> dict:
        memory = super().remember(view)
        if view.fresh:
            return memory
        target, duration = view.variables["target"], action_duration(view, self.action_repeat)

        def sample(key):
            return self._sample_target(key, target.dtype)

        return memory | {"target": new_commands(view, target, sample, duration, self.target_time)}

    def actuate(self, view: View):
        return self._controls(view, jnp.full_like(view.action[..., 0], OPEN))

    def observe(self, view: View):
        hand, q, memory = hand_frame(view), view.state.q[..., :ARM], view.variables
        parts = [q, view.state.v[..., :ARM], memory["servo"] - q, hand.pos, _two_axes(hand.quat), memory["target"][..., :3] - hand.pos]
        turn = [_rotation_error(hand.quat, memory["target"][..., 3:])] if self.oriented else []
        return jnp.concatenate([*parts, memory["action"], *turn], -1)

    def distance(self, view: View):
        """Of the hand from its target, (num_envs,), m."""
        return _norm(view.variables["target"][..., :3] - hand_frame(view).pos)

    def angle(self, view: View):
        """Between the hand and its target, (num_envs,), rad; zero for targets without orientation."""
        if not self.oriented:
            return jnp.zeros_like(view.state.time)
        return _norm(_rotation_error(hand_frame(view).quat, view.variables["target"][..., 3:]))

    def metrics(self, view: View) -> dict:
        """The terms of the reward, the distance, m, the angle, rad, and ``success``."""
        distance, angle = self.distance(view), self.angle(view)
        success = (distance < self.tolerance[0]) & (angle < self.tolerance[1])
        return self.reward_terms(view) | {"distance": distance, "angle": angle, "success": success.astype(distance.dtype)}

    def _reward_near(self, view: View):
        return _nearness(self.distance(view), 0.2)

    def _reward_at_target(self, view: View):
        return _nearness(self.distance(view), 0.03)

    def _reward_aligned(self, view: View):
        return _nearness(self.angle(view), 0.3) if self.oriented else jnp.zeros_like(view.state.time)


register_task("panda_reach", Reach().task())
register_task("panda_reach_pose", Reach(oriented=True).task())


# ---- lift --------------------------------------------------------------------------------------------------------------------

TABLE = ((-0.2, -0.6), (1.0, 0.6))  # m, corners of the table of panda.xml
HALF_CUBE = 0.02  # m, half the edge of the cube of panda_cube.xml
PAD = (0.015, 0.02, 0.015)  # m, how far the centre of a cube that is held may be from the point between the pads, in the hand's axes
CLEARANCE = 0.012  # m, height of the point between the pads where the fingers touch the table, and 1 mm


class LiftWeights(NamedTuple):
    """The reward terms of `Lift` and their weights, per second."""

    reach: float = 1.0  # 1 - tanh(distance of the point between the pads from the cube / 0.2 m)
    grasp: float = 1.0  # where the cube is held
    lift: float = 4.0  # height of a held cube over its height on the table, over 0.1 m, at most 1
    target: float = 8.0  # 1 - tanh(distance of the cube from its target / 0.2 m), times that of lift
    at_target: float = 8.0  # 1 - tanh(the same distance / 0.03 m), times that of lift
    table: float = -1.0  # where the gripper is on the table: the point between the pads is lower than `CLEARANCE`
    action_rate: float = -0.01  # sum of the squared changes of the action
    joint_speed: float = -0.01  # sum of squares, (rad/s)^2
    fall: float = -50.0  # where the cube falls off the table; once, thus divided by the time of a step


@dataclass(frozen=True)
class Lift(_Arm):
    """Grasp a cube on a table and bring it to a target above: ``Lift(...).task()``.

    Observation (57,): positions of the joints (7), rad, and of the fingers (2), m; their velocities (9); the servos' targets minus the
    joints' positions (7); the hand's position (3) and its x and y axes (6); the cube's position minus the hand's (3), its x and y axes
    (6), its velocity (3); the target minus the cube's position (3); the last action (8). World axes.

    The last action is the opening of the gripper: 1 open, -1 closed.

    weights, action_scale, start_noise: as in `Reach`. cube_low, cube_high: corners of the rectangle in which the cube starts, turned by up
    to 45 degrees, m. target_low, target_high: corners of the box in which targets are, m. tolerance: distance of the cube from its target
    within which the metric ``success`` is 1, m.

    An episode ends where the cube is over the edge of the table (a plane in the model, which goes on).
    """

    weights: LiftWeights = LiftWeights()
    cube_low: tuple[float, float] = (0.4, -0.2)
    cube_high: tuple[float, float] = (0.6, 0.2)
    target_low: tuple[float, float, float] = (0.4, -0.2, 0.15)
    target_high: tuple[float, float, float] = (0.6, 0.2, 0.4)
    tolerance: float = 0.025

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        known = {"model": "panda_cube", "actions": ARM + 1, "terminate": self.has_fallen, "max_steps": 200}
        return self._task(known, fields)

    def variables(self, model: Model, key) -> dict:
        """servo (7,), the last action (8,), target (3,)."""
        arm, target = jax.random.split(key)
        found = self._arm_variables(model, arm)
        dtype = found["servo"].dtype
        return found | {"action": jnp.zeros(ARM + 1, dtype), "target": _uniform(target, self.target_low, self.target_high, dtype)}

    def start(self, model: Model, key, variables):
        place, turn = jax.random.split(key)
        dtype = model.option.dt.dtype
        cube = _uniform(place, (*self.cube_low, HALF_CUBE), (*self.cube_high, HALF_CUBE), dtype)
        quat = _about_z(jax.random.uniform(turn, (), dtype, -0.25 * math.pi, 0.25 * math.pi))
        return jnp.concatenate([self._arm_start(model, variables), cube, quat]), jnp.zeros(model.nv, dtype)

    def actuate(self, view: View):
        return self._controls(view, 0.5 * OPEN * (1.0 + view.action[..., ARM]))

    def observe(self, view: View):
        hand, cube, memory = hand_frame(view), self.cube_frame(view), view.variables
        q, v = view.state.q[..., : ARM + 2], view.state.v[..., : ARM + 2]
        arm = [q, v, memory["servo"] - q[..., :ARM], hand.pos, _two_axes(hand.quat)]
        object_ = [cube.pos - hand.pos, _two_axes(cube.quat), view.v("cube")[..., :3]]
        return jnp.concatenate([*arm, *object_, memory["target"] - cube.pos, memory["action"]], -1)

    def cube_frame(self, view: View) -> Frame:
        """Of the cube, at its centre."""
        q = view.q("cube")
        return Frame(q[..., :3], q[..., 3:])

    def distance(self, view: View):
        """Of the cube from its target, (num_envs,), m."""
        return _norm(view.variables["target"] - self.cube_frame(view).pos)

    def has_fallen(self, view: View):
        """Whether the cube is over the edge of the table, (num_envs,) bool."""
        place = self.cube_frame(view).pos[..., :2]
        low, high = (jnp.asarray(x, place.dtype) for x in TABLE)
        return ((place < low) | (place > high)).any(-1)

    def is_held(self, view: View):
        """Whether the cube is between the pads and stops them, (num_envs,) bool.

        As the robot's own gripper tells it: the fingers rest, at an opening that fits the cube, short of where the servo wants them.
        """
        hand, fingers = hand_frame(view), view.state.q[..., ARM : ARM + 2]
        offset = to_body(hand.quat, self.cube_frame(view).pos - hand.pos)
        between = (jnp.abs(offset) < jnp.asarray(PAD, offset.dtype)).all(-1)
        opening = jnp.mean(fingers, -1)
        stopped = (opening - view.ctrl[..., ARM] > 0.1 * HALF_CUBE) & (jnp.abs(jnp.mean(view.state.v[..., ARM : ARM + 2], -1)) < 0.05)
        return between & stopped & (opening > 0.9 * HALF_CUBE) & (opening < 1.5 * HALF_CUBE)

    def metrics(self, view: View) -> dict:
        """The terms of the reward, the distance, m, the height of the cube over the table, m, and ``success``."""
        distance, height = self.distance(view), self.cube_frame(view).pos[..., 2] - HALF_CUBE
        success = (distance < self.tolerance).astype(distance.dtype)
        return self.reward_terms(view) | {"distance": distance, "height": height, "success": success}

    def _reward_reach(self, view: View):
        return _nearness(_norm(self.cube_frame(view).pos - hand_frame(view).pos), 0.2)

    def _reward_grasp(self, view: View):
        return self.is_held(view).astype(view.state.q.dtype)

    def _reward_lift(self, view: View):
        height = self.cube_frame(view).pos[..., 2] - HALF_CUBE
        return self._reward_grasp(view) * jnp.clip(height / 0.1, 0.0, 1.0)

    def _reward_target(self, view: View):
        return self._reward_lift(view) * _nearness(self.distance(view), 0.2)

    def _reward_at_target(self, view: View):
        return self._reward_lift(view) * _nearness(self.distance(view), 0.03)

    def _reward_table(self, view: View):
        return (hand_frame(view).pos[..., 2] < CLEARANCE).astype(view.state.q.dtype)

    def _reward_fall(self, view: View):
        return self.has_fallen(view).astype(view.state.q.dtype)


register_task("panda_lift", Lift().task())
