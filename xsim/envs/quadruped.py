"""``go1_joystick``: a quadruped (Unitree Go1) that walks as a joystick says: velocity ahead, to the left, and turning.

The rewards are those that have become usual for this task (Rudin et al., Learning to Walk in Minutes Using Massively Parallel Deep
Reinforcement Learning, 2022); `Weights` lists them. Actions are displacements of the joint targets from the standing pose.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.envs.core import Task, View, register_task
from xsim.envs.tasks import to_body
from xsim.model.model import Model
from xsim.spatial import rotate

__all__ = ["Weights", "joystick"]

LEGS = ("FR", "FL", "RR", "RL")
STANDING = np.tile([0.1, 0.9, -1.8, -0.1, 0.9, -1.8], 2)  # rad, joints of the legs in their order
HEIGHT = 0.278  # m, of the trunk where it stands so
FOOT = (0.0, 0.0, -0.213)  # m, centre of the foot in the calf's frame
RADIUS = 0.023  # m, of the foot
NEAR = 0.005  # m, height below which a foot counts as standing


class Weights(NamedTuple):
    """Weights of the rewards, per second. Velocities in the trunk's frame, m/s and rad/s."""

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


WEIGHTS = Weights()


class _Trunk(NamedTuple):
    """Of the trunk, in its own axes: velocity, angular velocity, direction of the world's vertical; (num_envs, 3)."""

    velocity: jax.Array
    turning: jax.Array
    up: jax.Array


def _trunk(view: View) -> _Trunk:
    quat = view.data.quat[..., view.body("trunk"), :]
    up = jnp.asarray([0.0, 0.0, 1.0], quat.dtype)
    return _Trunk(to_body(quat, view.state.v[..., :3]), view.state.v[..., 3:6], to_body(quat, up))


def _feet(view: View):
    """Positions and velocities of the feet, (num_envs, 4, 3), world axes."""
    index = np.array([view.body(f"{leg}_calf") for leg in LEGS])
    data = view.data
    quat = tuple(data.quat[..., index, k] for k in range(4))
    arm = jnp.stack(jnp.broadcast_arrays(*rotate(quat, FOOT)), -1)
    return data.pos[..., index, :] + arm, data.lin[..., index, :] + jnp.cross(data.ang[..., index, :], arm)


def _standing_feet(view: View):
    """(num_envs, 4) bool. The floor is flat and at zero height."""
    return _feet(view)[0][..., 2] - RADIUS < NEAR


def _sum_squares(x):
    return jnp.sum(jnp.square(x), -1)


def joystick(
    *,
    weights: Weights = WEIGHTS,
    reach: float = 0.5,
    command: tuple[float, float, float] = (1.5, 0.8, 1.2),
    hold: float = 5.0,
    still: float = 0.1,
    fallen: float = 0.5,
    low: float = 0.1,
    **fields,
) -> Task:
    """Follow commanded velocities. Observation (48,), trunk's axes: velocity, angular velocity, direction of the vertical, displacements of
    the joints from the standing pose, their velocities, the last action, the command.

    reach: rad that an action of 1 moves a joint's target. command: largest speeds ahead, m/s, to the left, m/s, and turning, rad/s; drawn
    uniformly between these and their negatives. hold: mean time until a new command, s. still: share of the commands that are to stand.
    fallen, low: an episode ends where the cosine of the trunk's tilt or its height, m, is less. fields: further fields of `Task`.
    """
    repeat = 5

    def drawn(key, dtype):
        """A command (3,)."""
        speeds, rest = jax.random.split(key)
        largest = jnp.asarray(command, dtype)
        return jnp.where(jax.random.uniform(rest, (), dtype) < still, 0.0, largest * jax.random.uniform(speeds, (3,), dtype, -1.0, 1.0))

    def variables(model: Model, key):
        dtype = model.option.dt.dtype
        zero = jnp.zeros(12, dtype)
        return {"command": drawn(key, dtype), "action": zero, "air_time": jnp.zeros(4, dtype)}

    def start(model: Model, key, variables):
        dtype = model.option.dt.dtype
        k = jax.random.split(key, 3)
        half = jax.random.uniform(k[0], (), dtype, -np.pi / 2, np.pi / 2)
        joints = jnp.asarray(STANDING, dtype) + 0.05 * jax.random.normal(k[1], (12,), dtype)
        pose = jnp.stack([0.0 * half, 0.0 * half, HEIGHT + 0.01 + 0.0 * half, jnp.cos(half), 0.0 * half, 0.0 * half, jnp.sin(half)])
        return jnp.concatenate([pose, joints]), 0.1 * jax.random.normal(k[2], (model.nv,), dtype)

    def actuate(view: View):
        ctrl = jnp.asarray(STANDING, view.action.dtype) + reach * view.action
        return ctrl, jnp.zeros_like(view.state.v)

    def fell(view: View):
        return (_trunk(view).up[..., 2] < fallen) | (view.state.q[..., 2] < low)

    def remember(view: View):
        if view.fresh:
            return view.variables
        dt = repeat * view.model.option.dt
        old = view.variables
        air = jnp.where(_standing_feet(view), 0.0, old["air_time"] + dt[..., None])

        def redrawn(key, now):
            change, value = jax.random.split(key)
            return jnp.where(jax.random.uniform(change, (), now.dtype) < repeat * jnp.mean(view.model.option.dt) / hold,
                             drawn(value, now.dtype), now)  # fmt: skip

        return {"command": jax.vmap(redrawn)(view.keys, old["command"]), "action": view.action, "air_time": air}

    def terms(view: View) -> dict:
        """Rewards per second, unweighted. The variables are those before the step."""
        trunk, old = _trunk(view), view.variables
        wanted = old["command"]
        away = view.state.q[..., 7:] - jnp.asarray(STANDING, view.state.q.dtype)
        moving = (_sum_squares(wanted) > 0).astype(away.dtype)
        standing = _standing_feet(view).astype(away.dtype)
        landed = standing * (old["air_time"] > 0)
        dt = repeat * view.model.option.dt
        return {
            "tracking_linear": jnp.exp(-_sum_squares(wanted[..., :2] - trunk.velocity[..., :2]) / 0.25),
            "tracking_turning": jnp.exp(-jnp.square(wanted[..., 2] - trunk.turning[..., 2]) / 0.25),
            "bounce": jnp.square(trunk.velocity[..., 2]),
            "roll_and_pitch": _sum_squares(trunk.turning[..., :2]),
            "orientation": _sum_squares(trunk.up[..., :2]),
            "torque": _sum_squares(view.data.actuator[..., 6:]),
            "action_rate": _sum_squares(view.action - old["action"]),
            "air_time": moving * jnp.sum(landed * (old["air_time"] - 0.1), -1) / dt,
            "slip": jnp.sum(standing * _sum_squares(_feet(view)[1][..., :2]), -1),
            "pose": _sum_squares(away),
            "stand_still": (1.0 - moving) * jnp.sum(jnp.abs(away), -1),
            "fall": fell(view).astype(away.dtype),
        }

    def reward(view: View):
        found = terms(view)
        total = sum(getattr(weights, name) * found[name] for name in Weights._fields)
        return total * repeat * view.model.option.dt

    def observe(view: View):
        trunk = _trunk(view)
        away = view.state.q[..., 7:] - jnp.asarray(STANDING, view.state.q.dtype)
        now = view.variables
        return jnp.concatenate([*trunk, away, view.state.v[..., 6:], now["action"], now["command"]], -1)

    return Task(**{
        "model": "go1",
        "reward": reward,
        "observe": observe,
        "terminate": fell,
        "start": start,
        "variables": variables,
        "remember": remember,
        "actuate": actuate,
        "actions": 12,
        "metrics": terms,
        "action_repeat": repeat,
        "max_steps": 1000,
        **fields,
    })  # fmt: skip


register_task("go1_joystick", joystick())
