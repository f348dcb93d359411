"""``go1_joystick``: a quadruped (Unitree Go1) that walks as a joystick says, see `xsim.envs.joystick`.

``go1_robust`` is the same task for a policy that goes to a robot, ``go1_rough`` the same on a terrain.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.images import height_scan
from xsim.envs.commands import action_duration
from xsim.envs.core import Task, register_task
from xsim.envs.joystick import LeggedJoystick, Robot, Weights, sum_squares
from xsim.envs.terrain import Terrain, make_terrain
from xsim.envs.view import View
from xsim.io import parse
from xsim.model.model import Model

__all__ = ["GO1", "Joystick", "RoughTerrain", "Weights", "robust"]

GO1 = Robot(
    model="go1",
    trunk="trunk",
    pose=(0.1, 0.9, -1.8, -0.1, 0.9, -1.8) * 2,
    height=0.278,
    feet=("FR_calf", "FL_calf", "RR_calf", "RL_calf"),
    foot=(0.0, 0.0, -0.213),
    foot_radius=0.023,
)


@dataclass(frozen=True)
class Joystick(LeggedJoystick):
    """Follow commanded velocities: ``Joystick(...).task()``. Arguments and observations, (48,), measured (45,) and (56,), are those of
    `LeggedJoystick`."""

    robot: Robot = GO1


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
        spec = self.terrain.under(parse(models.path(self.robot.model)), "floor")
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
        duration = action_duration(view, self.action_repeat)
        told = view.variables["told"] + jnp.sqrt(sum_squares(view.variables["command"][..., :2])) * duration * (not view.fresh)
        return view.variables | super().remember(view) | {"place": view.state.q[..., :2], "told": told}

    def inherit(self, variables: dict, previous: dict) -> dict:
        """The level of the next episode."""
        terrain = self._terrain
        origin = jnp.asarray(terrain.origins, previous["place"].dtype)[previous["level"], previous["kind"], :2]
        offset = previous["place"] - origin
        left, walked = jnp.max(jnp.abs(offset)) > 0.5 * terrain.tile, jnp.sqrt(sum_squares(offset))
        change = jnp.where(left, 1, jnp.where(walked < 0.5 * previous["told"], -1, 0))
        level = previous["level"] + change
        level = jnp.where(level >= len(terrain.origins), variables["random_level"], jnp.maximum(level, 0))
        return variables | {"level": level.astype(previous["level"].dtype)}

    def observe(self, view: View):
        heights = height_scan(view.model, view.state.q, self.robot.trunk, SCAN, reach=SCAN_REACH) + self.robot.height
        return jax.tree.map(lambda x: jnp.concatenate([x, heights], -1), super().observe(view))

    def metrics(self, view: View) -> dict:
        """The terms of the reward, and the level."""
        return self.reward_terms(view) | {"level": view.variables["level"].astype(view.state.q.dtype)}


register_task("go1_rough", lambda: RoughTerrain().task())
