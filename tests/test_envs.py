"""Environments: episodes, tasks, divergence, Gymnasium."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawing import needs_opengl

import xsim
from xsim import models
from xsim.envs import TASKS, Task, make_env, register_task
from xsim.envs.tasks import reference

KEY = jax.random.key(3)
NUM = 4
DAMPING = {"dof.damping": {"uniform": [0.5, 2.0], "relative": "scale"}}


class Jitted:
    """An Env with its two functions compiled once."""

    def __init__(self, *args, **kwargs):
        self.env = make_env(*args, **kwargs)
        self.reset, self.step = jax.jit(self.env.reset), jax.jit(self.env.step)

    def act(self, value=0.0):
        return jnp.full((self.env.num_envs, *self.env.action_spec.shape), value)


@pytest.fixture(scope="module")
def balance():
    return Jitted("pendulum_balance", num_envs=NUM, max_steps=6, randomize=DAMPING)


@pytest.fixture(scope="module")
def swingup():
    return Jitted("pendulum_swingup", num_envs=NUM)


@pytest.fixture(scope="module")
def tracking():
    return Jitted("chain_tracking", num_envs=3, randomize=True)


def _rows(tree, rows):
    """The given environments of a pytree, keys as numbers."""
    tree = jax.tree.map(lambda x: jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x, tree)
    return jax.tree.map(lambda x: np.asarray(x)[rows], tree)


def _same(a, b):
    jax.tree.map(np.testing.assert_array_equal, a, b)


def _finite(tree) -> bool:
    return all(np.isfinite(x).all() for x in jax.tree.leaves(_rows(tree, slice(None))))


# ---- episodes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_episodes(balance):
    s = balance.reset(KEY)
    first = s
    assert s.obs.shape == (NUM, 5) and not s.done.any() and np.unique(s.obs).size > 3 * NUM
    total = np.zeros(NUM)
    for i in range(1, 7):
        before, s = s, balance.step(s, balance.act(0.1))
        total += s.reward
        np.testing.assert_array_equal(s.metrics["length"], i)
        np.testing.assert_allclose(s.metrics["return"], total, rtol=1e-6)
        assert bool(s.truncated.all()) == (i == 6) and not s.terminated.any()
        if i < 6:
            np.testing.assert_array_equal(s.obs, s.info["final_observation"])
            np.testing.assert_allclose(s.state.time, 0.02 * i, rtol=1e-5)
    # The final observation continues the episode; the observation begins the next one.
    assert np.abs(s.info["final_observation"] - before.obs).max() < 0.6
    np.testing.assert_array_equal(s.obs[:, 0], s.state.q[:, 0])
    assert not np.isclose(s.obs, s.info["final_observation"]).all(-1).any() and (s.state.time == 0).all() and (s.length == 0).all()
    assert (s.episode == 1).all()
    damping = "dof.damping"
    assert not np.isclose(s.leaves[damping], first.leaves[damping]).any(), "a new episode has a new model"
    s = balance.step(s, balance.act())
    np.testing.assert_array_equal(s.metrics["length"], 1)
    np.testing.assert_allclose(s.metrics["return"], s.reward)


@pytest.mark.slow
def test_an_environment_does_not_depend_on_how_many_there_are(balance):
    more = Jitted("pendulum_balance", num_envs=NUM + 3, max_steps=6, randomize=DAMPING)
    a, b = balance.reset(KEY), more.reset(KEY)
    for _ in range(8):
        a, b = balance.step(a, balance.act(0.3)), more.step(b, more.act(0.3))
    for x, y in zip(jax.tree.leaves(_rows(a, slice(NUM))), jax.tree.leaves(_rows(b, slice(NUM))), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-7)


@pytest.mark.slow
def test_resample_and_auto_reset_can_be_switched_off():
    env = Jitted("pendulum_balance", num_envs=2, max_steps=2, resample=False, randomize={"geom.mass": {"uniform": [1, 2]}})
    s = first = env.reset(KEY)
    for _ in range(3):
        s = env.step(s, env.act())
    assert (s.episode == 1).all() and not np.isclose(s.state.q, first.state.q).any()
    _same(s.leaves, first.leaves)

    env = Jitted("pendulum_balance", num_envs=2, max_steps=2, auto_reset=False)
    s = env.reset(KEY)
    for _ in range(3):
        s = env.step(s, env.act())
    assert s.truncated.all() and (s.length == 3).all() and (s.episode == 0).all()


@pytest.mark.slow
def test_scan_and_gradient(balance):
    """Through a whole episode with its restart, with respect to one number of a policy: finite and right."""
    start = balance.reset(KEY)

    @jax.jit
    def loss(gain):
        def one(s, _):
            s = balance.env.step(s, gain * s.obs[:, 1:2])
            return s, (s.reward + s.info["final_observation"][:, 3]).sum()

        return jax.lax.scan(one, start, length=7)[1].sum()

    derivative = jax.jit(jax.grad(loss))(1.0)
    h = 0.05
    numeric = (loss(1.0 + h) - loss(1.0 - h)) / (2 * h)
    np.testing.assert_allclose(derivative, numeric, rtol=0.02)  # float32 differences of a sum over 28 steps
    np.testing.assert_allclose(jax.jit(lambda g: jax.jvp(loss, (g,), (1.0,))[1])(1.0), derivative, rtol=1e-4)


# ---- divergence ----------------------------------------------------------------------------------------------------------------


def _fast(s, a):
    return s.replace(state=s.state.replace(v=s.state.v.at[1].set(9e4))), a  # healthy, and beyond the limit or inf after the step


def _lost(s, a):
    return s.replace(state=s.state.replace(q=s.state.q.at[1].set(jnp.nan))), a


def _invalid_action(s, a):
    return s, a.at[1].set(jnp.nan)


def _broken_model(s, a):
    return s.replace(leaves={p: x.at[1].set(jnp.nan) for p, x in s.leaves.items()}), a


@pytest.fixture(scope="module")
def balance_gradient(balance):
    def loss(shift, state, action):
        after = balance.env.step(state, action + shift)
        return jnp.where(jnp.arange(NUM) == 1, 0.0, after.reward + after.obs.sum(-1)).sum()

    return jax.jit(jax.grad(loss))


@pytest.mark.parametrize("poison", [_fast, _lost, _invalid_action, _broken_model])
def test_divergence_stays_with_its_environment(balance, balance_gradient, poison):
    healthy = np.array([0, 2, 3])
    s = balance.step(balance.reset(KEY), balance.act(0.2))
    good = balance.step(s, balance.act(0.2))
    bad = balance.step(*poison(s, balance.act(0.2)))
    _same(_rows(good, healthy), _rows(bad, healthy))
    if poison is not _fast:
        np.testing.assert_array_equal(bad.info["diverged"], [False, True, False, False])
    assert bad.terminated[1] and bad.done[1] and not bad.truncated[1]
    assert _finite(bad) and bad.state.flags[1] == 0 and bad.episode[1] == 1

    expected = balance_gradient(0.0, s, balance.act(0.2))
    np.testing.assert_allclose(balance_gradient(0.0, *poison(s, balance.act(0.2))), expected, rtol=1e-6)
    assert expected != 0


TASK_OVERFLOW = Task(reward=lambda view: view.state.q[..., 0], actuate=lambda view: view.action * 1e38, actions=2)


@pytest.mark.slow
def test_gradients_pass_a_step_that_overflows():
    """A shared leaf sums over all environments, so NaN times zero in one of them would reach it."""
    model = xsim.load(models.path("pendulum"))
    start = make_env(model, num_envs=2, task=TASK_OVERFLOW).reset(KEY)
    action = jnp.array([[0.0, 0.0], [1.0, 1.0]])

    def loss(damping, action):
        env = make_env(model.replace({"dof.damping": damping}), num_envs=2, task=TASK_OVERFLOW)
        after = env.step(start, action)
        return after.reward[0] + after.state.q[0].sum(), after.info["diverged"]

    (grad, by_action), diverged = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(model.get("dof.damping") + 0.0, action)
    assert diverged.tolist() == [False, True]
    assert np.isfinite(grad).all() and np.isfinite(by_action[0]).all() and (by_action[1] == 0).all()


# ---- tasks ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["balance", "swingup", pytest.param("tracking", marks=pytest.mark.slow)])
def test_specs(request, name):
    env = request.getfixturevalue(name)
    s = env.step(env.reset(KEY), env.act(2.0))  # beyond the bounds: clipped
    low, high = env.env.observation_spec.low, env.env.observation_spec.high
    assert s.obs.shape == (env.env.num_envs, *env.env.observation_spec.shape) and low.shape == high.shape == s.obs.shape[1:]
    assert (low < high).all() and (low <= s.obs).all() and (s.obs <= high).all() and s.obs.dtype == env.env.observation_spec.dtype
    assert (env.env.action_spec.low == -1).all() and (env.env.action_spec.high == 1).all() and _finite(s)
    _same(_rows(s.obs, slice(None)), _rows(env.step(env.reset(KEY), env.act(1.0)).obs, slice(None)))


def _lqr(model, force):
    """Gain of the discrete regulator about the upright pole, states (x, angle, dx, dangle), for two simulation steps per action."""
    step = jax.jit(lambda z, u: (lambda s: jnp.concatenate([s.q, s.v]))(
        xsim.rollout(model, xsim.init(model, z[:2], z[2:]), taus=jnp.broadcast_to(jnp.stack([force * u, 0.0]), (2, 2)))[0]))  # fmt: skip
    a, b = (np.asarray(x, float) for x in jax.jacfwd(step, (0, 1))(jnp.zeros(4), jnp.array(0.0)))
    b, p = b[:, None], np.eye(4)
    for _ in range(2000):
        k = np.linalg.solve(np.eye(1) * 0.1 + b.T @ p @ b, b.T @ p @ a)
        p = np.eye(4) + a.T @ p @ (a - b @ k)
    return jnp.asarray(k, jnp.float32)


@pytest.mark.slow
def test_a_regulator_balances_the_pole():
    env = make_env("pendulum_balance", num_envs=NUM)
    gain = _lqr(env.model, env.task.gear["cart"])

    @jax.jit
    def episode(key):
        def one(s, _):
            s = env.step(s, -jnp.concatenate([s.state.q, s.state.v], -1) @ gain.T)
            return s, (s.terminated, s.truncated, s.reward, s.info["final_observation"])

        return jax.lax.scan(one, env.reset(key), length=env.task.max_steps)[1]

    terminated, truncated, reward, obs = episode(KEY)
    assert not terminated.any() and truncated[-1].all() and not truncated[:-1].any()
    assert reward.sum(0).min() > 490
    np.testing.assert_allclose(obs[-1], [[0, 0, 1, 0, 0]] * NUM, atol=0.02)


def test_swingup_energy(swingup):
    """At rest friction only takes energy; a force puts in no more than its work; pumping raises the pole."""
    model, force = swingup.env.model, swingup.env.task.gear["cart"]
    energy = jax.jit(lambda s: sum(xsim.energy(model, s.state.q, s.state.v)))

    def run(pump, steps):
        s = swingup.reset(KEY)
        energies, work, upright = [np.asarray(energy(s))], [np.zeros(NUM)], []
        for _ in range(steps):
            (x, angle), (dx, dangle) = np.asarray(s.state.q).T, np.asarray(s.state.v).T
            a = pump * np.clip(-0.4 * np.sign(dangle * np.cos(angle)) - 0.4 * x - 0.1 * dx, -1, 1)
            s = swingup.step(s, a[:, None])
            assert not s.done.any()
            energies.append(np.asarray(energy(s)))
            work.append(work[-1] + force * a * (np.asarray(s.state.q[:, 0]) - x))
            upright.append(np.asarray(s.metrics["upright"]))
        return np.array(energies), np.array(work), np.array(upright)

    energies, _, _ = run(0.0, 60)
    assert (np.diff(energies, axis=0) < 2e-3).all() and (energies[-1] < energies[0]).all()
    energies, work, upright = run(1.0, 220)
    assert upright.max(0).min() > 0.99
    gained = energies[60] - energies[0]
    assert (gained > 0.7 * work[60]).all() and (gained < work[60]).all()


@pytest.mark.slow
def test_tracking_start_and_sensors(tracking):
    env, s = tracking.env, tracking.reset(KEY)
    model = env.model.replace(s.leaves)
    assert set(s.leaves) == {"joint.axes", "body.pos"}
    still = s.state.replace(v=jnp.zeros_like(s.state.v))
    data = jax.jit(lambda s: xsim.forward(model, s))(still)
    sensors = np.asarray(s.obs[:, :36]).reshape(3, 4, 3, 3)
    index = np.array([model.body_names.index(f"imu_{n}") for n in ("upper", "middle", "lower", "tip")])
    np.testing.assert_allclose(sensors[:, :, 0], 0, atol=1e-6)
    w, x, y, z = np.moveaxis(np.asarray(data.quat[:, index]), -1, 0)
    down = np.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], -1)  # third row of the rotation
    lin_acc = np.asarray(data.lin_acc[:, index]) + [0, 0, 9.81]
    np.testing.assert_allclose(np.linalg.norm(sensors[:, :, 1], axis=-1), np.linalg.norm(lin_acc, axis=-1), rtol=1e-4)
    np.testing.assert_allclose(np.sum(sensors[:, :, 2] * down, -1), -(0.75**0.5), atol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(sensors[:, :, 2], axis=-1), 1, atol=1e-5)
    np.testing.assert_allclose(s.obs[:, 36:43], 0, atol=1e-6)  # the reference starts where the chain hangs


@pytest.mark.slow
def test_tracking_a_controller_follows(tracking):
    """A PD controller with the true state keeps closer to the reference than no controller does."""
    model = tracking.env.model
    driven = np.array([0, 1, 2, 3, 4, 5])  # all but the small rotation of the tip
    rest = jnp.asarray([0.5**0.5, 0, 0.5**0.5, 0, 0, 0, 0, 0])

    @jax.jit
    def control(s):
        goal = xsim.integrate(model, jnp.broadcast_to(rest, s.state.q.shape), reference(s.variables, s.state.time))
        return ((10.0 * xsim.difference(model, s.state.q, goal) - 0.5 * s.state.v) / 15.0)[:, driven]

    def mean_error(gain):
        s, errors = tracking.reset(KEY), []
        for _ in range(100):
            s = tracking.step(s, gain * control(s))
            errors.append(np.asarray(s.metrics["error"]))
        assert not s.done.any()
        return np.mean(errors[50:])

    assert mean_error(1.0) < 0.6 * mean_error(0.0)


def test_a_file_and_functions(tmp_path):
    file = tmp_path / "cart.xml"
    file.write_text(models.path("pendulum").read_text())
    env = make_env(
        file, num_envs=2, reward=lambda view: -view.data.pos[:, view.body("pole"), 0] ** 2, observe=lambda view: view.q("pole"),
        terminate=lambda view: view.v("cart")[:, 0] > 0.05, gear={"cart": 1.0}, metrics=lambda view: {"x": view.q("cart")[:, 0]},
    )  # fmt: skip
    step = jax.jit(env.step)
    s = step(jax.jit(env.reset)(KEY), jnp.array([[1.0], [-1.0]]))
    assert s.obs.shape == (2, 1) and s.metrics["x"][0] > 0 > s.metrics["x"][1]
    for _ in range(7):
        s = step(s, jnp.array([[1.0], [-1.0]]))
        if s.done.any():
            break
    assert s.terminated.tolist() == [True, False] and s.state.v[0, 0] == 0


def test_register_task():
    task = Task(reward=lambda view: view.state.time, model="pendulum")
    try:
        assert register_task("test_task", task) is register_task("test_task", task)
        assert make_env("test_task", num_envs=1).action_spec.shape == (2,)
        with pytest.raises(ValueError, match="registered already"):
            register_task("test_task", Task(reward=lambda view: view.state.time))
    finally:
        TASKS.pop("test_task", None)


BAD = {
    "name": (dict(name_or_path="pendulum_balanc"), KeyError, "did you mean 'pendulum_balance'"),
    "no reward": (dict(name_or_path=models.path("pendulum")), ValueError, "no task"),
    "gear body": (dict(name_or_path="pendulum_balance", gear={"wagon": 1.0}), KeyError, "no body 'wagon'"),
    "gear width": (dict(name_or_path="pendulum_balance", gear={"cart": [1.0, 2.0]}), ValueError, "gear of 'cart'"),
    "no envs": (dict(name_or_path="pendulum_balance", num_envs=0), ValueError, "at least 1"),
    "observation": (dict(name_or_path="pendulum_balance", observe=lambda view: view.state.time), ValueError, "observe must return"),
    "start": (dict(name_or_path="pendulum_balance", start=lambda m, k, x: (jnp.zeros(3), jnp.zeros(2))), ValueError, "start must return"),
    "actions": (dict(name_or_path="pendulum_balance", actuate=lambda view: view.action), ValueError, "how many actions"),
    "field": (dict(name_or_path="pendulum_balance", rewards=None), TypeError, "rewards"),
    "ranges": (dict(name_or_path="pendulum_balance", randomize={"dof.dampin": {"uniform": [1, 2]}}), KeyError, "dof.damping"),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    arguments, error, text = BAD[case]
    with pytest.raises(error, match=text):
        make_env(**{"num_envs": 2, **arguments})


def test_wrong_action(balance):
    with pytest.raises(ValueError, match="action must have shape"):
        balance.env.step(balance.reset(KEY), jnp.zeros(NUM))


# ---- Gymnasium -----------------------------------------------------------------------------------------------------------------


def test_gymnasium_checks_a_single_environment():
    gymnasium = pytest.importorskip("gymnasium")
    from gymnasium.utils.env_checker import check_env

    from xsim.envs.gym import register

    register()
    assert register() == () and all(f"xsim/{name}-v0" in gymnasium.registry for name in TASKS)
    env = gymnasium.make("xsim/pendulum_swingup-v0", max_steps=4)
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=1)
    for i in range(4):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert isinstance(reward, float) and not terminated and truncated == (i == 3)
    assert info["length"] == 4
    env.close()


def test_gymnasium_vector():
    gymnasium = pytest.importorskip("gymnasium")
    from xsim.envs.gym import GymVectorEnv, register

    register()
    env = gymnasium.make_vec("xsim/pendulum_balance-v0", num_envs=3, max_steps=3)
    assert isinstance(env, GymVectorEnv) and env.metadata["autoreset_mode"] is gymnasium.vector.AutoresetMode.SAME_STEP
    wrapped = gymnasium.wrappers.vector.RecordEpisodeStatistics(env)
    first, _ = wrapped.reset(seed=5)
    assert first in env.observation_space
    env.action_space.seed(0)
    for i in range(3):
        obs, reward, terminated, truncated, info = wrapped.step(env.action_space.sample())
        assert obs in env.observation_space and reward.shape == (3,) and terminated.dtype == truncated.dtype == bool
        assert truncated.all() == (i == 2) and ("final_obs" in info) == (i == 2)
    assert info["_final_obs"].all() and info["final_obs"][0] in env.single_observation_space
    assert not np.allclose(info["final_obs"][0], obs[0])
    np.testing.assert_allclose(info["episode"]["r"], info["final_info"]["return"], rtol=1e-5)
    again, _ = wrapped.reset(seed=5)
    np.testing.assert_array_equal(first, again)
    wrapped.close()


@pytest.mark.slow
def test_gymnasium_images():
    gymnasium = pytest.importorskip("gymnasium")
    needs_opengl()
    from xsim.envs.gym import GymEnv, GymVectorEnv

    env = GymEnv("pendulum_balance", render_mode="rgb_array", max_steps=3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.render()
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (480, 480, 3) and image.dtype == np.uint8 and env.metadata["render_fps"] > 0
    many = GymVectorEnv("pendulum_balance", 2, render_mode="rgb_array", max_steps=3)
    many.reset(seed=0)
    assert [x.shape for x in many.render()] == [(480, 480, 3)] * 2
    with pytest.raises(ValueError, match="rgb_array"):
        GymEnv("pendulum_balance", render_mode="human")


@pytest.mark.slow
def test_gymnasium_is_optional():
    import subprocess
    import sys

    code = "import sys; sys.modules['gymnasium'] = None; import xsim.envs\ntry: import xsim.envs.gym\nexcept ImportError as e: print(e)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install 'xsim[gym]'" in out


# ---- what a task sees and remembers --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_memory():
    """Variables that a task carries from step to step: reward and metrics see the old, the observation the new; a restart clears them."""

    def remember(view):
        count = view.variables["count"] + (0 if view.fresh else 1)
        return {"count": count, "action": view.action[..., 0], "draw": jax.vmap(jax.random.uniform)(view.keys)}

    env = Jitted(
        "pendulum_swingup",
        num_envs=NUM,
        max_steps=3,
        variables=lambda model, key: {"count": 0, "action": 0.0, "draw": 0.0},
        remember=remember,
        reward=lambda view: view.variables["count"] + 0.0 * view.action[..., 0],
        observe=lambda view: jnp.stack([view.variables["count"] * 1.0, view.variables["action"], view.state.q[..., 0]], -1),
        metrics=lambda view: {"moved": view.state.q[..., 0] - view.before.q[..., 0]},
        bounds=(-np.inf, np.inf),
    )
    s = env.reset(KEY)
    draws = [s.variables["draw"]]
    np.testing.assert_array_equal(s.obs[:, :2], 0.0)
    for i in range(1, 7):
        before, s = s, env.step(s, env.act(0.1 * i))
        last = i % 3 == 0
        np.testing.assert_array_equal(s.reward, (i - 1) % 3)
        seen = s.info["final_observation"]
        np.testing.assert_allclose(seen[:, :2], np.tile([(i - 1) % 3 + 1, 0.1 * i], (NUM, 1)), rtol=1e-6)
        np.testing.assert_allclose(s.metrics["moved"], seen[:, 2] - before.state.q[:, 0], atol=1e-6)
        np.testing.assert_array_equal(s.variables["count"], 0 if last else i % 3)
        np.testing.assert_array_equal(s.obs[:, 1], 0.0 if last else np.float32(0.1 * i))
        draws.append(s.variables["draw"])
    assert np.unique(np.concatenate(draws)).size == 7 * NUM


@pytest.mark.slow
def test_last_evaluation():
    """Within an action, the state before the last simulation step, and where that step evaluated the dynamics."""

    def observe(view):
        return jnp.stack([view.last.q[..., 0], view.evaluated.state.q[..., 0], view.evaluated.data.pos[..., 0, 0], view.state.time], -1)

    env = Jitted("pendulum_swingup", num_envs=NUM, observe=observe, substeps=True, bounds=(-np.inf, np.inf))
    s = env.reset(KEY)
    np.testing.assert_array_equal(s.obs[:, 0], s.state.q[:, 0])
    after = env.step(s, env.act(1.0))
    tau = jnp.zeros((NUM, 2)).at[:, 0].set(15.0)
    half = xsim.step(env.env.model, s.state, tau=tau)
    np.testing.assert_allclose(after.obs[:, 0], half.q[:, 0], rtol=1e-5)
    np.testing.assert_array_equal(after.obs[:, 0], after.obs[:, 1])
    with pytest.raises(ValueError, match="substeps=True"):
        jax.eval_shape(make_env("pendulum_swingup", num_envs=1, reward=lambda v: v.evaluated.state.q[..., 0]).step, s, env.act()[:1])


def test_keys_of_environments(swingup):
    """A key per environment: environment i of one key is the one of its folded key."""
    keys = jax.vmap(lambda i: jax.random.fold_in(KEY, i))(jnp.arange(NUM))
    _same(_rows(swingup.reset(KEY), slice(None)), _rows(swingup.reset(keys), slice(None)))


@pytest.mark.slow
def test_go1_joystick():
    """Sizes, rewards' names, commands; that it stands is a matter of contact (nightly)."""
    from xsim.envs.quadruped import Joystick, Weights

    env = make_env("go1_joystick", num_envs=2)
    assert env.observation_spec.shape == (48,) and env.action_spec.shape == (12,)
    first = jax.eval_shape(env.reset, KEY)
    assert set(Weights._fields) < set(first.metrics) and first.variables["command"].shape == (2, 3)
    commands = jax.vmap(lambda key: env.task.variables(env.model, key)["command"])(jax.random.split(KEY, 500))
    assert (np.abs(commands) <= [1.5, 0.8, 1.2]).all() and 0.05 < (commands == 0).all(-1).mean() < 0.16
    assert (np.abs(commands).max(0) > [1.4, 0.75, 1.1]).all()
    slow = Joystick(max_command=(0.1, 0.1, 0.1), weights=Weights(fall=0.0)).task(max_steps=7)
    assert slow.max_steps == 7 and np.abs(slow.variables(env.model, KEY)["command"]).max() <= 0.1


@pytest.mark.nightly
def test_go1_stands():
    """With its joints held it stands on its four feet, and its weight is what the floor carries."""
    env = Jitted("go1_joystick", num_envs=2, auto_reset=False)
    s = env.reset(KEY)
    for _ in range(100):
        s = env.step(s, env.act())
    assert not s.terminated.any() and (np.abs(s.state.q[:, 2] - 0.27) < 0.03).all() and (np.abs(s.state.v) < 0.2).all()
    assert (s.metrics["orientation"] < 0.02).all() and (s.metrics["slip"] < 1e-3).all()


# ---- brax ------------------------------------------------------------------------------------------------------------------------


def test_brax():
    """brax's PPO runs on a task, and its environment steps as ours, alone and in a batch."""
    pytest.importorskip("brax", reason="brax is not installed: pip install brax")
    from brax.training.agents.ppo import train as ppo

    from xsim.envs.brax import BraxEnv, mend_jax, wrap

    env = BraxEnv("pendulum_balance")
    own = make_env("pendulum_balance", num_envs=3, auto_reset=False)
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    state, mine = jax.jit(env.reset)(keys), jax.jit(own.reset)(jax.random.wrap_key_data(keys))
    action = jnp.full((3, 1), 0.3)
    state, mine = jax.jit(env.step)(state, action), jax.jit(own.step)(mine, action)
    np.testing.assert_array_equal(state.obs, mine.obs)
    np.testing.assert_array_equal(state.reward, mine.reward)
    one = env.step(env.reset(keys[1]), action[1])
    np.testing.assert_allclose(one.obs, state.obs[1], rtol=1e-5, atol=1e-6)
    assert env.observation_size == 5 and env.action_size == 1 and env.backend == "xsim"
    with pytest.raises(ValueError, match="randomize"):
        wrap(env, randomization_fn=lambda *_: None)
    mend_jax()
    returns = []
    ppo.train(
        env, num_timesteps=4000, num_envs=16, episode_length=50, unroll_length=10, batch_size=16, num_minibatches=2, num_eval_envs=4,
        num_evals=2, wrap_env_fn=wrap, progress_fn=lambda steps, metrics: returns.append(metrics["eval/episode_reward"]),
    )  # fmt: skip
    assert len(returns) == 2 and np.isfinite(returns).all()


@pytest.mark.slow
def test_brax_is_optional():
    import subprocess
    import sys

    code = "import sys; sys.modules['brax'] = None; import xsim.envs\ntry: import xsim.envs.brax\nexcept ImportError as e: print(e)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pip install brax" in out
