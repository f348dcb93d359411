"""The moving picture of docs/training.md: a trained quadruped walks as commanded. Prints how well it follows random commands.

    python -m xsim.train go1_joystick --out runs/go1
    python docs/figures/go1.py runs/go1

Needs vtk and pillow: pip install ".[render]".
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import xsim
from xsim.train import load

FILE = Path(__file__).parents[1] / "images" / "go1.gif"
COMMANDS = ((1.0, 0.0, 0.0), (0.5, 0.0, 1.0), (0.0, 0.5, 0.0))
"""Velocity ahead and to the left, m/s, and turning rate, rad/s, one after the other."""
EACH = 75
"""Actions per command."""
EVERY = 4
"""Actions per frame."""


def measure(policy) -> None:
    """Print the falls in 32 episodes with random commands, and the mean tracking rewards, at most 1."""
    env = xsim.make_env("go1_joystick", num_envs=32)

    def one(state, _):
        state = env.step(state, policy(state.obs))
        return state, (state.terminated, state.metrics["tracking_linear"], state.metrics["tracking_turning"])

    fallen, *rewards = jax.jit(lambda key: jax.lax.scan(one, env.reset(key), length=1000))(jax.random.key(5))[1]
    print(f"falls: {int(fallen.sum())}; tracking: velocity {rewards[0].mean():.3f}, turning {rewards[1].mean():.3f}")


def main(folder: Path) -> None:
    policy, env = load(folder), xsim.make_env("go1_joystick", num_envs=1)
    measure(policy)

    def one(state, command):
        memory = state.variables | {"command": command[None]}
        state = state.replace(variables=memory, obs=state.obs.at[:, -3:].set(command))
        state = env.step(state, policy(state.obs))
        return state, (state.state.q[0], state.state.v[0])

    commands = jnp.repeat(jnp.asarray(COMMANDS), EACH, 0)
    _, (q, v) = jax.jit(lambda key: jax.lax.scan(one, env.reset(key), commands))(jax.random.key(0))
    path = xsim.render(env.model, np.asarray(q)[::EVERY], FILE, dt=0.02 * EVERY, width=360, height=240, zoom=1.3, follow=True)
    speeds = np.linalg.norm(np.asarray(v)[:, :2], axis=1).reshape(len(COMMANDS), EACH)[:, EACH // 3 :].mean(1)
    print(f"{path}: {Path(path).stat().st_size // 1000} kB; speeds {speeds} m/s of {np.linalg.norm(np.array(COMMANDS)[:, :2], axis=1)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
