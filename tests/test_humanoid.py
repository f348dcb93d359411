"""The humanoid that follows commanded velocities; what it shares with the quadruped is tested by tests/test_envs.py and test_terrain.py."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.envs import make_env
from xsim.envs.humanoid import HUMANOID, HumanoidJoystick
from xsim.envs.joystick import Weights
from xsim.envs.tasks import to_world

KEY = jax.random.key(4)


def test_standing_pose():
    """Both feet are on the floor, below the centre of mass, at the height that `Robot` says; joints are within their limits."""
    model = xsim.load(HUMANOID.model, rules="4.0")
    q = np.concatenate([[0.0, 0.0, HUMANOID.height, 1.0, 0.0, 0.0, 0.0], HUMANOID.pose])
    pos, quat = xsim.kinematics(model, q)
    feet = np.array([model.body_names.index(name) for name in HUMANOID.feet])
    centre = pos[feet] + to_world(quat[feet], jnp.asarray(HUMANOID.foot))
    np.testing.assert_allclose(centre[:, 2], HUMANOID.foot_radius, atol=1e-3)
    np.testing.assert_allclose(centre[:, 0], 0.0, atol=5e-3)
    mass, com, _ = xsim.dynamics.queries.body_inertia(model)
    middle = (mass[:, None] * (pos + to_world(quat, com))).sum(0) / mass.sum()
    assert abs(middle[0]) < HUMANOID.foot_radius and abs(middle[1]) < 1e-3
    lower, upper = (np.asarray(model.get(f"limit.{side}")) for side in ("lower", "upper"))
    assert (lower < HUMANOID.pose).all() and (upper > HUMANOID.pose).all()


def test_sizes_and_commands():
    """Observations and actions; the terms of the reward; commands up to those of this robot, some to stand."""
    env = make_env("humanoid_joystick", num_envs=2)
    assert env.observation_spec.shape == (9 + 3 * 17 + 3,) and env.action_spec.shape == (17,)
    first = jax.eval_shape(env.reset, KEY)
    assert set(Weights._fields) < set(first.metrics)
    names = [geom.name for geom in env.model.topology.geoms]
    pairs = {frozenset(names[i] for i in pair) for info in env.model.topology.pairs for pair in info.geoms.value}
    assert pairs == {frozenset(pair) for pair in (("left_foot", "floor"), ("right_foot", "floor"), ("left_foot", "right_foot"))}
    assert first.variables["command"].shape == (2, 3) and first.variables["air_time"].shape == (2, 2)
    commands = np.asarray(jax.vmap(lambda key: env.task.variables(env.model, key)["command"])(jax.random.split(KEY, 500)))
    assert (np.abs(commands) <= [1.0, 0.4, 0.8]).all() and (np.abs(commands).max(0) > [0.95, 0.38, 0.75]).all()
    assert 0.05 < (commands == 0).all(-1).mean() < 0.16
    measured = make_env(env.model, task=HumanoidJoystick(measured=True).task(), num_envs=2)
    assert {name: x.shape for name, x in measured.observation_spec.items()} == {"state": (60,), "privileged_state": (67,)}


class _View:
    """States with their poses, in the place of a `View`."""

    def __init__(self, model, q, v, command):
        self.model, self.state, self.data = model, self, self
        self.q, self.v, self.variables = jnp.asarray(q), jnp.asarray(v), {"command": jnp.asarray(command)}
        self.pos, self.quat = xsim.kinematics(model, q)

    def body(self, name: str) -> int:
        return self.model.body_names.index(name)


def test_start_and_rewards():
    """It starts upright about its standing pose, just above the floor. Velocities are those in its heading; it falls by tilt and height."""
    task, model = HumanoidJoystick(), xsim.load(HUMANOID.model, rules="4.0")
    q, v = (np.array(x) for x in task.start(model, KEY, None))
    assert abs(q[2] - HUMANOID.height - 0.01) < 1e-6 and np.abs(q[7:] - np.array(HUMANOID.pose)).max() < 0.25 and v.shape == (23,)
    assert q[4] == q[5] == 0 and abs(np.linalg.norm(q[3:7]) - 1) < 1e-6
    q, v = np.tile(q, (4, 1)), np.zeros((4, 23), np.float32)
    half = np.sqrt(0.5)
    q[0, 3:7] = q[3, 3:7] = [half, 0.0, 0.0, half]  # facing along y
    q[1, 2], q[2, 3:7] = 0.5, [half, 0.0, half, 0.0]
    v[0, 1], v[3, 0], v[:, 5] = 0.8, 0.8, 0.5
    view = _View(model, q, v, np.tile(np.float32([0.8, 0.0, 0.5]), (4, 1)))
    np.testing.assert_array_equal(task.has_fallen(view), [False, True, True, False])
    np.testing.assert_allclose(task._reward_tracking_linear(view)[::3], [1.0, np.exp(-2 * 0.8**2 / 0.25)], rtol=1e-4)
    np.testing.assert_allclose(task._reward_tracking_turning(view), 1.0)
    np.testing.assert_allclose(task._reward_orientation(view), [0, 0, 1, 0], atol=1e-6)


@pytest.mark.nightly
def test_it_steps():
    """From its standing pose with the motors at rest it sinks; feet carry it meanwhile, and rewards are finite."""
    env = make_env("humanoid_joystick", num_envs=4, randomize="humanoid", auto_reset=False)
    s, step = jax.jit(env.reset)(KEY), jax.jit(env.step)
    assert len(np.unique(s.leaves["dof.damping"][:, 8])) == 4
    stood = np.zeros(4)
    for _ in range(60):
        s = step(s, jnp.zeros((4, 17)))
        stood = np.maximum(stood, s.metrics["slip"])
        assert np.isfinite(s.reward).all() and not s.info["diverged"].any()
    assert s.terminated.all() and (s.metrics["fall"] == 1).all() and (stood > 0).all()
