"""The tasks of an arm with a gripper: the model against its maker's numbers, observations, rewards, a controller that does the tasks."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.envs import make_env
from xsim.envs.advance import Inputs
from xsim.envs.manipulation import ACTION_REPEAT, ARM, GRASP, HALF_CUBE, HOME, OPEN, Lift, LiftWeights, Reach, ReachWeights
from xsim.envs.tasks import to_world
from xsim.envs.view import Transition, View
from xsim.spatial import quat_conj, quat_log, quat_mul

KEY = jax.random.key(2)
RECORDED = json.loads((Path(__file__).parent / "reference" / "panda.json").read_text())
"""Of Pinocchio, from the file of franka_ros; written by make_panda.py there."""


# ---- the model ---------------------------------------------------------------------------------------------------------------


def test_kinematics_and_inertia(x64):
    """Pose of the point between the pads, mass matrix without armature, and forces of motion, at random states."""
    model = xsim.load("panda", rules="4.0")
    armature = np.diag(np.asarray(model.get("dof.armature")))
    for state in RECORDED["states"]:
        q, v = np.array(state["q"]), np.array(state["v"])
        pos, quat = (np.asarray(x)[model.body_names.index("hand")] for x in xsim.kinematics(model, q))
        axes = np.stack([to_world(quat, jnp.asarray(e)) for e in np.eye(3)], -1)
        np.testing.assert_allclose(pos + axes @ np.array(GRASP), state["position"], atol=1e-12)
        np.testing.assert_allclose(axes, state["rotation"], atol=1e-12)
        mass = np.array(state["mass"])
        np.testing.assert_allclose(xsim.mass_matrix(model, q) - armature, mass, atol=1e-8 * mass.max())
        coriolis = np.asarray(xsim.bias(model, q, v)) - np.asarray(xsim.bias(model, q, 0 * v))
        np.testing.assert_allclose(coriolis, state["coriolis"], atol=1e-8 * np.abs(state["coriolis"]).max())


def test_limits():
    """Of positions and forces; what an action moves a servo's target by in its time is less than the joint's largest speed."""
    model, limits = xsim.load("panda", rules="4.0"), RECORDED["limits"]
    ranges = np.asarray(model.get("actuator.ctrl_range"))
    np.testing.assert_allclose(ranges[:ARM].T, [limits["lower"][:ARM], limits["upper"][:ARM]], rtol=1e-6)
    np.testing.assert_allclose(ranges[ARM], [limits["lower"][-1], limits["upper"][-1]])
    np.testing.assert_allclose(np.asarray(model.get("actuator.force_range"))[:ARM, 1], limits["effort"][:ARM])
    assert Reach().action_scale / (ACTION_REPEAT * model.option.dt) < min(limits["speed"][:ARM])
    assert (ranges[:ARM, 0] < HOME).all() and (ranges[:ARM, 1] > HOME).all()


@pytest.mark.parametrize("name", ["panda", "panda_cube"])
def test_contacts(name):
    """Few pairs: the hand and the tips of the fingers meet the table, pads and table the cube."""
    model = xsim.load(name, rules="4.0")
    names = [geom.name for geom in model.topology.geoms]
    pairs = {frozenset(names[i] for i in pair) for info in model.topology.pairs for pair in info.geoms.value}
    expected = [("hand", "table"), ("left_tip", "table"), ("right_tip", "table")]
    if name == "panda_cube":
        expected += [("cube", "table"), ("left_pad", "cube"), ("right_pad", "cube")]
    assert pairs == {frozenset(pair) for pair in expected}


def start_q(nq: int, cube=(0.5, 0.0, HALF_CUBE)):
    return np.concatenate([HOME, [OPEN, OPEN], [*cube, 1.0, 0.0, 0.0, 0.0] if nq > ARM + 2 else []]).astype(np.float32)


# ---- views -------------------------------------------------------------------------------------------------------------------


@cache
def model_of(name: str):
    return xsim.load(name, rules="4.0")


def view_of(name: str, q, variables: dict, opening: float = OPEN, actions: int = ARM, v=None) -> View:
    """A view of states (num_envs, nq), at rest unless v says otherwise, with the servos where the joints are. Of the dynamics it has the
    poses alone."""
    model, q = model_of(name), jnp.asarray(q)
    state = xsim.init(model, q) if v is None else xsim.init(model, q, jnp.asarray(v))
    ctrl = jnp.concatenate([q[:, :ARM], jnp.full((len(q), 1), opening, q.dtype)], -1)
    action = jnp.zeros((len(q), actions))
    memory = {"servo": q[:, :ARM], "action": action} | {name: jnp.asarray(x, q.dtype) for name, x in variables.items()}
    view = View(model, Transition(state, state, state), action, Inputs(ctrl, jnp.zeros((len(q), model.nv))), memory, None)
    view.data = SimpleNamespace(**dict(zip(("pos", "quat"), xsim.kinematics(model, q), strict=True)))
    return view


def hand_of(model, q):
    """Position of the point between the pads and orientation of the hand, of a batch."""
    pos, quat = (x[..., model.body_names.index("hand"), :] for x in xsim.kinematics(model, q))
    return pos + to_world(quat, jnp.asarray(GRASP, quat.dtype)), quat


# ---- reach -------------------------------------------------------------------------------------------------------------------

def test_reach_rewards():
    """The nearer the hand, the larger the reward; success within the tolerance. With an orientation the same of the angle."""
    away = np.array([0.2, 0.1, 0.05, 0.01, 0.0])
    q = start_q(9)[None].repeat(5, 0)
    place, quat = (np.asarray(x) for x in hand_of(model_of("panda"), q))
    view = view_of("panda", q, {"target": np.concatenate([place + away[:, None] * [0.6, 0.0, 0.8], quat], -1)})
    task = Reach(oriented=True)
    metrics, reward = task.metrics(view), task.reward(view)
    np.testing.assert_allclose(metrics["distance"], away, atol=1e-6)
    np.testing.assert_allclose(metrics["near"], 1 - np.tanh(away / 0.2), atol=1e-5)
    np.testing.assert_array_equal(metrics["success"], away < 0.02)
    assert (np.diff(reward) > 0).all()
    weighted = sum(weight * metrics[name] for name, weight in ReachWeights()._asdict().items())
    np.testing.assert_allclose(reward, weighted * 0.02, rtol=1e-6)

    turned = q[:3].copy()
    turned[:, 6] += [0.6, 0.3, 0.0]  # of the last joint, about the hand's axis
    view = view_of("panda", turned, {"target": np.concatenate([place, quat], -1)[:3]})
    np.testing.assert_allclose(task.metrics(view)["angle"], [0.6, 0.3, 0.0], atol=1e-5)
    np.testing.assert_array_equal(task.metrics(view)["success"], [0, 0, 1])
    assert (np.diff(task.reward(view)) > 0).all() and (np.abs(np.diff(Reach().reward(view))) < 1e-5).all()


def test_reach_observation():
    """What each number is, against the model's own queries; the target's orientation is last."""
    model, task = model_of("panda"), Reach(oriented=True)
    rng = np.random.default_rng(0)
    q, v = start_q(9)[None].repeat(3, 0), rng.normal(size=(3, 9)).astype(np.float32)
    q[:, :ARM] += rng.uniform(-0.3, 0.3, (3, ARM))
    servo, action = q[:, :ARM] + 0.01, rng.uniform(-1, 1, (3, ARM))
    turned = np.array([np.cos(0.2), 0.0, 0.0, np.sin(0.2)])  # by 0.4 rad about the hand's axis z
    place, quat = hand_of(model, q)
    goal = np.stack([np.asarray(quat_mul(tuple(map(float, x)), tuple(turned))) for x in quat])
    target = np.concatenate([np.tile([0.5, 0.1, 0.3], (3, 1)), goal], -1)
    obs = np.asarray(task.observe(view_of("panda", q, {"servo": servo, "action": action, "target": target}, v=v)))
    axes = [to_world(quat, jnp.asarray(e, jnp.float32)) for e in np.eye(3)[:2]]
    expected = [q[:, :ARM], v[:, :ARM], servo - q[:, :ARM], place, *axes, target[:, :3] - place, action, np.tile([0, 0, 0.4], (3, 1))]
    np.testing.assert_allclose(obs, np.concatenate(expected, -1), atol=1e-5)
    assert obs.shape == (3, 43)


def test_reach_starts():
    """Joints about home with their servos there, targets anywhere in the box; environments differ; the target changes in time."""
    task, model, keys = Reach(), model_of("panda"), jax.random.split(KEY, 64)
    variables = jax.vmap(lambda key: task.variables(model, key))(keys)
    q, v = (np.asarray(x) for x in jax.vmap(lambda key, x: task.start(model, key, x))(keys, variables))
    target = np.asarray(variables["target"])
    assert (np.abs(q[:, :ARM] - HOME) <= 0.1).all() and (np.abs(q[:, :ARM] - HOME).max(0) > 0.08).all() and (q[:, ARM:] == OPEN).all()
    np.testing.assert_array_equal(q[:, :ARM], variables["servo"])
    assert not v.any()
    low, high = np.array(task.target_low), np.array(task.target_high)
    assert (low <= target[:, :3]).all() and (target[:, :3] <= high).all() and (np.ptp(target[:, :3], 0) > 0.8 * (high - low)).all()
    vertical = to_world(target[:, 3:], jnp.array([0.0, 0.0, 1.0]))
    np.testing.assert_allclose(vertical, np.tile([0, 0, -1], (64, 1)), atol=1e-6)
    view = view_of("panda", q, {"target": target})
    view.keys = jax.random.split(jax.random.key(3), 64)
    later = Reach(target_time=0.04).remember(view)
    changed = (np.asarray(later["target"]) != target).any(-1)
    assert 0.3 < changed.mean() < 0.7  # half of them, each 0.02 s
    np.testing.assert_array_equal(later["servo"], view.ctrl[:, :ARM])


def test_actions():
    """They move the servos' targets from where these are, within the joints' limits; the gripper's is its opening."""
    q = start_q(16)[None].repeat(2, 0)
    q[:, 3] = -0.08  # just within its upper limit of -0.0698
    view = view_of("panda_cube", q, {}, actions=8)
    view.action = jnp.array([[1.0, -0.5, *[1.0] * 5, -1.0], [0.0] * 8])
    ctrl, tau = Lift().actuate(view)
    np.testing.assert_allclose(ctrl[0, :3], q[0, :3] + [0.04, -0.02, 0.04], atol=1e-6)
    np.testing.assert_allclose([ctrl[0, 3], ctrl[0, 7], ctrl[1, 7]], [-0.0698, 0.0, 0.5 * OPEN], atol=1e-6)
    assert not np.any(tau) and tau.shape == (2, 15)
    view.action = view.action[:, :ARM]
    np.testing.assert_allclose(Reach().actuate(view)[0][:, 7], OPEN)


# ---- lift --------------------------------------------------------------------------------------------------------------------


LOW = (0.0, 0.4875, 0.0, -2.3576, 0.0, 2.8451, 0.7854)  # rad; the point between the pads is 2 cm above the table


@cache
def lift_states():
    """q of: hand far away; at the cube and open; holding it on the table; holding it half way; at the target; there without it, closed.
    And the target."""
    arm = np.array([HOME, LOW, LOW, 0.6 * np.array(LOW) + 0.4 * np.array(HOME), HOME, HOME])
    q = start_q(16)[None].repeat(len(arm), 0)
    q[:, :ARM] = arm
    place = np.asarray(hand_of(model_of("panda_cube"), q)[0])
    q[1:5, 9:12] = place[1:5]
    q[:, ARM : ARM + 2] = np.array([OPEN, OPEN, 0.0197, 0.0197, 0.0197, 0.0])[:, None]
    return q, place[4]


def test_lift_rewards():
    """Each stage of the task is worth more than the one before, and that of the lifted cube in the hand the most."""
    q, target = lift_states()
    task = Lift()
    view = view_of("panda_cube", q, {"target": np.tile(target, (len(q), 1))}, opening=0.0, actions=8)
    metrics, reward = task.metrics(view), np.asarray(task.reward(view))
    np.testing.assert_array_equal(metrics["grasp"], [0, 0, 1, 1, 1, 0])
    np.testing.assert_allclose(metrics["lift"], [0, 0, 0, 1, 1, 0], atol=1e-3)
    np.testing.assert_allclose(metrics["height"], q[:, 11] - HALF_CUBE, atol=1e-6)
    np.testing.assert_array_equal(metrics["success"], [0, 0, 0, 0, 1, 0])
    np.testing.assert_allclose(metrics["at_target"][4], 1.0, atol=1e-5)
    assert (np.diff(reward[:5]) > 0).all() and reward[5] < reward[1]
    most = {name: weight * np.asarray(metrics[name])[3] for name, weight in LiftWeights()._asdict().items()}
    assert most["lift"] == max(most.values())
    pressed = q + 0.03 * (np.arange(q.shape[1]) == 1)  # rad of the shoulder: the hand is a centimetre lower or more
    pressed = view_of("panda_cube", pressed, {"target": np.tile(target, (len(q), 1))}, opening=0.0, actions=8)
    assert not metrics["table"].any() and np.asarray(task.metrics(pressed)["table"]).tolist() == [0, 1, 1, 0, 0, 0]
    released = view_of("panda_cube", q, {"target": np.tile(target, (len(q), 1))}, opening=OPEN, actions=8)
    assert not task.metrics(released)["grasp"].any()  # nothing presses
    moving = view_of("panda_cube", q, {"target": np.tile(target, (len(q), 1))}, opening=0.0, actions=8, v=np.full((len(q), 15), 0.1))
    assert not task.metrics(moving)["grasp"].any()  # still closing


def test_lift_observation():
    """What each number is."""
    q, target = lift_states()
    q = q[:2].copy()
    q[:, 9:] = [0.45, 0.1, 0.3, np.cos(0.3), 0.0, 0.0, np.sin(0.3)]
    v = np.random.default_rng(1).normal(size=(2, 15)).astype(np.float32)
    servo, action = q[:, :ARM] + 0.02, np.random.default_rng(2).uniform(-1, 1, (2, 8))
    memory = {"servo": servo, "action": action, "target": np.tile(target, (2, 1))}
    obs = np.asarray(Lift().observe(view_of("panda_cube", q, memory, actions=8, v=v)))
    place, quat = hand_of(model_of("panda_cube"), q)
    axes = [to_world(quat, jnp.asarray(e, jnp.float32)) for e in np.eye(3)[:2]]
    turned = [np.cos(0.6), np.sin(0.6), 0, -np.sin(0.6), np.cos(0.6), 0]
    cube = [q[:, 9:12] - place, np.tile(turned, (2, 1)), v[:, 9:12], target - q[:, 9:12]]
    expected = np.concatenate([q[:, :9], v[:, :9], servo - q[:, :ARM], place, *axes, *cube, action], -1)
    np.testing.assert_allclose(obs, expected, atol=1e-5)
    assert obs.shape == (2, 57)


def test_lift_starts_and_ends():
    """The cube lies anywhere in its rectangle, turned; an episode ends where it leaves the table."""
    task = Lift()
    model = model_of("panda_cube")
    keys = jax.random.split(KEY, 200)
    variables = jax.vmap(lambda key: task.variables(model, key))(keys)
    q, v = (np.asarray(x) for x in jax.vmap(lambda key, x: task.start(model, key, x))(keys, variables))
    cube, target = q[:, 9:12], np.asarray(variables["target"])
    for x, low, high in ((cube[:, :2], task.cube_low, task.cube_high), (target, task.target_low, task.target_high)):
        low, high = np.array(low), np.array(high)
        assert (low <= x).all() and (x <= high).all() and (np.ptp(x, 0) > 0.9 * (high - low)).all()
    np.testing.assert_allclose(cube[:, 2], HALF_CUBE)
    yaw = 2 * np.arctan2(q[:, 15], q[:, 12])
    assert np.abs(yaw).max() <= np.pi / 4 and np.ptp(yaw) > 0.9 * np.pi / 2 and not v.any()
    q = start_q(16)[None].repeat(4, 0)
    q[:, 9:12] = [[0.5, 0.0, 0.02], [1.01, 0.0, 0.0], [0.5, -0.61, -0.1], [0.99, 0.59, 0.02]]
    view = view_of("panda_cube", q, {"target": np.zeros((4, 3))}, actions=8)
    np.testing.assert_array_equal(task.has_fallen(view), [False, True, True, False])
    np.testing.assert_allclose(task.reward_terms(view)["fall"] * task.weights.fall * 0.02, [0, -1, -1, 0])


# ---- a controller does the tasks ---------------------------------------------------------------------------------------------


def steps_towards(model, q, goal, quat):
    """Displacement of the arm's joints that brings the hand to a pose, to first order, (num_envs, 7); damped least squares."""
    place, own = hand_of(model, q)
    parts = [tuple(x[..., k] for k in range(4)) for x in (quat, own)]
    turn = jnp.stack(quat_log(quat_mul(parts[0], quat_conj(parts[1]))), -1)
    J = jnp.concatenate(xsim.jacobian(model, q, "hand", GRASP), -2)[..., :ARM]
    inverse = jnp.linalg.inv(J @ J.mT + 1e-4 * jnp.eye(6))
    return (J.mT @ inverse @ jnp.concatenate([goal - place, turn], -1)[..., None])[..., 0]


def downwards(angle):
    """Orientation of a hand that points down, turned by an angle about the vertical, (num_envs, 4)."""
    zero = jnp.zeros_like(angle)
    return jnp.stack([zero, jnp.cos(0.5 * angle), jnp.sin(0.5 * angle), zero], -1)


def servo_actions(model, s, goal, quat):
    """Actions of the arm that bring the hand to a pose, (num_envs, 7)."""
    return 0.3 * steps_towards(model, s.state.q, goal, quat) / Reach().action_scale


@pytest.mark.nightly
def test_a_controller_reaches():
    """By the Jacobian: within 3 mm and 0.05 rad in 3 s, with the position servos and gravity compensation of the model."""
    env = make_env("panda_reach_pose", num_envs=8, remember=Reach(target_time=1e9).remember)

    assert env.observation_spec.shape == (43,) and env.action_spec.shape == (7,)

    @jax.jit
    def episode(key):
        def one(s, _):
            target = s.variables["target"]
            return env.step(s, servo_actions(env.model, s, target[:, :3], target[:, 3:])), None

        return jax.lax.scan(one, env.reset(key), length=150)[0]

    s = episode(KEY)
    assert (s.metrics["distance"] < 3e-3).all() and (s.metrics["angle"] < 0.05).all() and (s.metrics["success"] == 1).all()
    assert not s.terminated.any() and (s.metrics["return"] > 0).all()


@pytest.mark.nightly
def test_a_controller_lifts():
    """It grasps the cube by its sides and brings it to the target; friction alone holds it there, for a second, without creeping."""
    env = make_env("panda_lift", num_envs=8, auto_reset=False, max_steps=400)
    assert env.observation_spec.shape == (57,) and env.action_spec.shape == (8,)
    reset, step = jax.jit(env.reset), jax.jit(env.step)
    s = reset(KEY)
    start, target = s.state.q[:, 9:12], s.variables["target"]
    quat = downwards(2 * jnp.arctan2(s.state.q[:, 15], s.state.q[:, 12]))
    towards = jax.jit(lambda s, goal: servo_actions(env.model, s, goal, quat))
    above = start + jnp.array([0.0, 0.0, 0.1])

    def act(goal, gripper, steps, s, moves_from=None):
        for i in range(steps):
            at = goal if moves_from is None else moves_from + (goal - moves_from) * min(1.0, i / 60)
            s = step(s, jnp.concatenate([towards(s, at), jnp.full((8, 1), gripper)], -1))
        return s

    s = act(above, 1.0, 50, s)
    s = act(start, 1.0, 40, s)
    assert not s.metrics["grasp"].any() and (s.metrics["height"] < 2e-3).all()
    s = act(start, -1.0, 20, s)
    assert s.metrics["grasp"].all()
    s = act(target, -1.0, 120, s, moves_from=start)
    assert s.metrics["grasp"].all() and (s.metrics["distance"] < 0.02).all() and (s.metrics["success"] == 1).all()
    held = s.state.q[:, 9:12]
    s = act(target, -1.0, 50, s)
    np.testing.assert_allclose(s.state.q[:, 9:12], held, atol=2e-3)
    assert (s.metrics["lift"] == 1).all() and not s.terminated.any()
    s = act(target, 1.0, 40, s)  # let go
    assert (s.metrics["height"] < 5e-3).all() and not s.metrics["grasp"].any()


@pytest.mark.nightly
def test_gymnasium():
    """The adapter takes the task, with a model that differs between environments; what it returns is in the spaces it says."""
    gymnasium = pytest.importorskip("gymnasium")
    from xsim.envs.gym import register

    register()
    env = gymnasium.make_vec("xsim/panda_reach-v0", num_envs=3, max_steps=2, randomize="panda")
    obs, _ = env.reset(seed=1)
    env.action_space.seed(0)
    assert obs in env.observation_space and obs.shape == (3, 40) and env.action_space.shape == (3, 7)
    for i in range(2):
        obs, reward, terminated, truncated, _ = env.step(env.action_space.sample())
        assert obs in env.observation_space and np.isfinite(reward).all() and not terminated.any() and truncated.all() == (i == 1)
    env.close()


@pytest.mark.parametrize("name", ["panda", "panda_cube"])
def test_randomization(name):
    """The settings that come with the tasks fit their models, and what they say differs differs."""
    model = xsim.load(name, rules="4.0")
    models = xsim.randomize(model, KEY, 5, name)
    mass = np.asarray(models.get("body.mass"))
    share = mass[:, 1:9] / np.asarray(model.get("body.mass"))[1:9]
    assert (share >= 0.9).all() and (share <= 1.1).all() and np.unique(share).size == share.size
    assert models.get("surface.friction").shape == (5, *model.shape("surface.friction"))
    if name == "panda_cube":
        cube = np.asarray(models.get("geom.mass[cube]"))
        assert (cube >= 0.05).all() and (cube <= 0.2).all() and np.unique(cube).size == 5
