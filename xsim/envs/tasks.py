"""The tasks that come with xsim, and the sensor that they share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.queries import difference, integrate
from xsim.envs.core import Task, register_task
from xsim.envs.view import View
from xsim.model.model import Model
from xsim.spatial import quat_conj, rotate

__all__ = ["Tracking", "imu"]


def components(x) -> tuple:
    """The numbers of the last dimension, one by one, as `xsim.spatial` takes vectors and quaternions."""
    return tuple(x[..., k] for k in range(x.shape[-1]))


def to_body(quat, x):
    """World vectors (..., 3) in the axes of frames (..., 4)."""
    x = jnp.broadcast_to(x, (*quat.shape[:-1], 3))
    return jnp.stack(jnp.broadcast_arrays(*rotate(quat_conj(components(quat)), components(x))), -1)


def to_world(quat, x):
    """Vectors (..., 3) of frames (..., 4) in world axes."""
    x = jnp.broadcast_to(x, (*quat.shape[:-1], 3))
    return jnp.stack(jnp.broadcast_arrays(*rotate(components(quat), components(x))), -1)


def imu(view: View, bodies: Sequence[str], magnetic=(0.0, 0.5, -0.75**0.5)):
    """Inertial sensors at the origins of bodies: (num_envs, len(bodies), 9), in body axes.

    Gyroscope (rad/s), accelerometer (m/s^2; acceleration minus that of free fall), magnetometer (``magnetic``, the field along world axes,
    as it is: by default of unit length, north along y, 60 degrees down).
    """
    index = np.array([view.body(b) for b in bodies])
    quat = view.data.quat[..., index, :]
    gravity = jnp.asarray(view.model.option.gravity)[..., None, :]
    acceleration = view.data.lin_acc[..., index, :] - gravity
    parts = [to_body(quat, x) for x in (view.data.ang[..., index, :], acceleration, jnp.asarray(magnetic, quat.dtype))]
    return jnp.concatenate(parts, -1)


# ---- a pole on a cart ----------------------------------------------------------------------------------------------------------

RAIL = 2.0  # m, half length


def _cart(view: View) -> tuple:
    return view.q("cart")[..., 0], view.q("pole")[..., 0], view.v("cart")[..., 0], view.v("pole")[..., 0]


def _observe_pole(view: View):
    x, angle, dx, dangle = _cart(view)
    return jnp.stack([x, jnp.sin(angle), jnp.cos(angle), dx, dangle], -1)


def _off_rail(view: View):
    return jnp.abs(view.q("cart")[..., 0]) > RAIL


def _upright(view: View):
    """1 where the pole stands, 0 where it hangs."""
    return 0.5 * (1.0 + jnp.cos(view.q("pole")[..., 0]))


def _start_near(angle: float):
    """Starts at rest but for noise, with the pole at an angle, rad."""

    def start(model: Model, key, variables):
        centre = jnp.array([0.0, angle])
        noise = jax.random.uniform(key, (2, 2), minval=-0.1, maxval=0.1)
        return centre + noise[0], noise[1]

    return start


_POLE_BOUNDS = (np.array([-2 * RAIL, -1, -1, -50, -100.0]), np.array([2 * RAIL, 1, 1, 50, 100.0]))

register_task(
    "pendulum_balance",
    Task(
        model="pendulum",
        observe=_observe_pole,
        reward=lambda view: 1.0 - 0.1 * view.q("cart")[..., 0] ** 2 - 0.01 * view.action[..., 0] ** 2,
        terminate=lambda view: _off_rail(view) | (jnp.abs(view.q("pole")[..., 0]) > 0.4),
        start=_start_near(0.0),
        gear={"cart": 10.0},
        bounds=_POLE_BOUNDS,
        action_repeat=2,
        max_steps=500,
    ),
)
register_task(
    "pendulum_swingup",
    Task(
        model="pendulum",
        observe=_observe_pole,
        reward=lambda view: _upright(view) * (1.0 - 0.25 * (view.q("cart")[..., 0] / RAIL) ** 2) - 0.01 * view.action[..., 0] ** 2,
        terminate=_off_rail,
        start=_start_near(np.pi),
        gear={"cart": 15.0},
        metrics=lambda view: {"upright": _upright(view)},
        bounds=_POLE_BOUNDS,
        action_repeat=2,
        max_steps=500,
    ),
)


# ---- a chain that follows a motion ---------------------------------------------------------------------------------------------

WAVES = 3
PREVIEW = 0.1  # s


def _joint_values(model: Model, values: Mapping[str, Any], address: str, default) -> np.ndarray:
    """A vector over q or v (the address): the values at the joints of the named bodies, the default elsewhere."""
    out = np.array(default, float)
    for body in model.topology.bodies:
        if body.name in values:
            first, width = getattr(body, address)
            out[first : first + width] = values[body.name]
    return out


def reference(variables, time):
    """The motion to follow: displacement from the rest configuration, along velocities, (num_envs, nv). time: (num_envs,) s."""
    phase = 2 * jnp.pi * (variables["frequency"] * time[..., None, None]) + variables["phase"]
    ramp = 1.0 - jnp.exp(-jnp.square(time))
    return ramp[..., None] * jnp.sum(variables["amplitude"] * jnp.sin(phase), -1)


@dataclass(frozen=True, eq=False)
class Tracking:
    """Follow a random smooth motion of the joints, observed through IMUs: ``Tracking(...).task(model=..., gear=...)``.

    amplitude: {body: largest displacement of its joint}, m or rad, one number or one per velocity; joints left out should stay at rest.
    imus: bodies that carry a sensor. rest: {body: q}, where the motion starts and about which it moves; joints left out: neutral.
    frequency: range of the sines it is made of, Hz. noise: of the start, m or rad.

    The observation is `imu` of every sensor, then the reference now and 0.1 s ahead.
    """

    amplitude: Mapping[str, Any]
    imus: Sequence[str]
    rest: Mapping[str, Any] = field(default_factory=dict)
    frequency: tuple[float, float] = (0.1, 0.6)
    noise: float = 0.05

    def task(self, **fields) -> Task:
        """The task. fields: further fields of `Task`, in place of those here."""
        known = {
            "observe": self.observe,
            "reward": self.reward,
            "metrics": self.metrics,
            "start": self.start,
            "variables": self.variables,
            "bounds": self.bounds,
        }
        return Task(**(known | fields))

    def variables(self, model: Model, key) -> dict:
        """The sines of a motion, (nv, WAVES) each: amplitude (along velocities), frequency, Hz, phase, rad."""
        k = jax.random.split(key, 3)
        largest = jnp.asarray(_joint_values(model, self.amplitude, "v", np.zeros(model.nv)), model.option.dt.dtype)
        share = jax.random.uniform(k[0], (model.nv, WAVES), minval=0.2)
        return {
            "amplitude": largest[:, None] * share / share.sum(-1, keepdims=True),
            "frequency": jax.random.uniform(k[1], (model.nv, WAVES), minval=self.frequency[0], maxval=self.frequency[1]),
            "phase": jax.random.uniform(k[2], (model.nv, WAVES), maxval=2 * np.pi),
        }

    def start(self, model: Model, key, variables):
        displacement = self.noise * jax.random.normal(key, (model.nv,))
        return integrate(model, self._rest(model), displacement), jnp.zeros(model.nv)

    def observe(self, view: View):
        sensors = imu(view, self.imus)
        motion = [reference(view.variables, view.state.time + t) for t in (0.0, PREVIEW)]
        return jnp.concatenate([sensors.reshape(*sensors.shape[:-2], -1), *motion], -1)

    def bounds(self, model: Model):
        sensors = np.tile(np.repeat([35.0, 160.0, 2.0], 3), len(self.imus))  # of common sensors: 2000 deg/s, 16 g
        high = np.concatenate([sensors, np.full(2 * model.nv, np.pi)])
        return -high, high

    def reward(self, view: View):
        return jnp.exp(-10.0 * self._mean_square_error(view)) - 0.01 * jnp.mean(jnp.square(view.action), -1)

    def metrics(self, view: View) -> dict:
        return {"error": jnp.sqrt(self._mean_square_error(view))}

    def _rest(self, model: Model):
        return jnp.asarray(_joint_values(model, self.rest, "q", model.topology.neutral), model.option.dt.dtype)

    def _mean_square_error(self, view: View):
        # The reference is a displacement from rest, so the error is taken on the manifold.
        displacement = reference(view.variables, view.state.time)
        target = integrate(view.model, jnp.broadcast_to(self._rest(view.model), view.state.q.shape), displacement)
        return jnp.mean(jnp.square(difference(view.model, view.state.q, target)), -1)


register_task(
    "chain_tracking",
    Tracking(
        amplitude={"upper": 0.4, "middle": 0.7, "lower": 0.7, "tip": [0.5, 0.0]},
        imus=("imu_upper", "imu_middle", "imu_lower", "imu_tip"),
        rest={"upper": [0.5**0.5, 0.0, 0.5**0.5, 0.0]},
    ).task(
        model="chain",
        gear={"upper": 15.0, "middle": 8.0, "lower": 3.0, "tip": [0.6, 0.0]},
        action_repeat=2,
        max_steps=500,
    ),
)
