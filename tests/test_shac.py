"""Short-horizon actor-critic: its gradient against differences, what it learns, its settings and checkpoints."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xsim.envs import make_env
from xsim.train import Config, configure, load, train
from xsim.train.__main__ import main
from xsim.train.checkpoints import checkpoints, restore_newest
from xsim.train.config import FOLDERS
from xsim.train.run import ALGORITHMS
from xsim.train.shac import Algorithm, bounded, with_clipped_gradient

CHANGES = {"algorithm": "shac", "steps": 2048 * 50, "evaluate_envs": 16, "env.max_steps": 200}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("shac")
    return out, train(configure("pendulum_swingup", changes=CHANGES), out, progress=False)


@pytest.mark.nightly
def test_learns_to_swing_up(run):
    """Of 200 actions, whose best return is below 200; the pole hangs at first, where it gets nothing."""
    _, result = run
    early = [row["reward"] for row in result["curve"][:3]]
    assert max(early) < 0.05 and result["return"] > 40
    assert all(np.isfinite(row["gradient"]) for row in result["curve"])


@pytest.mark.slow
def test_its_policy_and_checkpoints_are_those_of_training(run):
    out, _ = run
    config = configure("pendulum_swingup", changes=CHANGES)
    algorithm = ALGORITHMS["shac"](config, make_env(config.task, num_envs=config.num_envs, seed=config.seed, **config.env))
    learner = restore_newest(out, algorithm.shapes())
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(7, 5)), jnp.float32)
    np.testing.assert_allclose(load(out)(obs), algorithm.act(learner, obs), atol=1e-6)
    assert int(learner.iteration) == 50 and checkpoints(out)[-1].name.endswith("0000050")


@pytest.mark.slow
def test_the_gradient_is_that_of_the_objective(x64):
    """Against differences in random directions of the policy; episodes end within the horizon, and go on in the next."""
    env = make_env("pendulum_swingup", num_envs=3, max_steps=4)
    config = Config("pendulum_swingup", "shac", num_envs=3, unroll=6, minibatches=1, hidden=(8,), deviation=0.3, entropy_weight=0.1)
    algorithm = Algorithm(config, env)
    learner = algorithm.start()
    assert env.dtype == np.float64
    key = jax.random.key(3)
    loss = jax.jit(lambda params: algorithm._policy_loss(params, learner, key))
    slope = jax.jit(jax.grad(lambda params: algorithm._policy_loss(params, learner, key)[0]))(learner.params)
    assert loss(learner.params)[1][1].done[3].all()
    for seed in range(3):
        leaves, tree = jax.tree.flatten(learner.params)
        way = jax.tree.unflatten(tree, [np.random.default_rng(seed).normal(size=x.shape) for x in leaves])
        moved = [loss(jax.tree.map(lambda x, d, h=h: x + h * d, learner.params, way))[0] for h in (1e-5, -1e-5)]
        along = sum(jnp.vdot(a, b) for a, b in zip(jax.tree.leaves(slope), jax.tree.leaves(way), strict=True))
        np.testing.assert_allclose(along, (moved[0] - moved[1]) / 2e-5, rtol=1e-5, atol=1e-9)
        assert abs(along) > 1e-4


def test_derivatives_by_the_state_are_clipped_in_each_environment():
    def objective(q):
        state = with_clipped_gradient({"q": q, "count": jnp.arange(4)}, 2.0)
        return (state["q"] * jnp.array([[0.3, 0.4], [3.0, 4.0], [0.0, 0.0], [jnp.inf, 1.0]])).sum()

    slope = jax.grad(objective)(jnp.ones((4, 2)))
    np.testing.assert_allclose(slope, [[0.3, 0.4], [1.2, 1.6], [0.0, 0.0], [0.0, 0.0]], rtol=1e-6)


def test_actions_beyond_their_bounds_can_return():
    slope = jax.vmap(jax.grad(lambda x, weight: weight * bounded(x)))
    np.testing.assert_array_equal(slope(jnp.array([0.5, 2.0, 2.0, -2.0, -2.0]), jnp.array([3.0, 1.0, -1.0, 1.0, -1.0])), [3, 1, 0, 0, -1])
    assert jnp.abs(bounded(jnp.array([-3.0, 3.0]))).max() < 1.0


def test_settings(capsys):
    assert set(FOLDERS) == set(ALGORITHMS)
    assert configure("pendulum_swingup").algorithm == "ppo"
    config = configure("pendulum_swingup", changes={"algorithm": "shac"})
    assert config.algorithm == "shac" and config.num_envs == 64  # of its own file
    with pytest.raises(ValueError, match="algorithm: found 'sac'; allowed: ppo, shac"):
        configure("pendulum_swingup", changes={"algorithm": "sac"})
    with pytest.raises(ValueError, match="target_weight must be between 0 and 1"):
        configure("pendulum_swingup", changes={"target_weight": 2.0})
    with pytest.raises(SystemExit):
        main(["pendulum_swingup", "--algorithm", "sac"])
    assert "invalid choice: 'sac'" in capsys.readouterr().err
