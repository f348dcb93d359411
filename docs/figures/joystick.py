"""The moving pictures of docs/training.md: trained robots walk as commanded. Prints how well they follow random commands.

    python -m xsim.train go1_joystick --out runs/go1
    python docs/figures/joystick.py go1_joystick runs/go1

Other tasks of this kind are measured, without a picture.

Needs vtk and pillow: pip install ".[render]".
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import xsim
from xsim.train import load

IMAGES = Path(__file__).parents[1] / "images"
COMMANDS = {
    "go1_joystick": ((1.0, 0.0, 0.0), (0.5, 0.0, 1.0), (0.0, 0.5, 0.0)),
    "humanoid_joystick": ((0.8, 0.0, 0.0), (0.5, 0.0, 0.6), (0.0, 0.3, 0.0)),
}
"""Velocity ahead and to the left, m/s, and turning rate, rad/s, one after the other."""
EACH = 75
"""Actions per command."""
EVERY = 4
"""Actions per frame."""


def measure(task: str, policy) -> None:
    """Print the falls in 32 episodes with random commands, and the mean tracking rewards, at most 1."""
    env = xsim.make_env(task, num_envs=32)

    def one(state, _):
        state = env.step(state, policy(state.obs))
        return state, (state.terminated, state.metrics["tracking_linear"], state.metrics["tracking_turning"])

    fallen, *rewards = jax.jit(lambda key: jax.lax.scan(one, env.reset(key), length=1000))(jax.random.key(5))[1]
    print(f"falls: {int(fallen.sum())}; tracking: velocity {rewards[0].mean():.3f}, turning {rewards[1].mean():.3f}")


def main(task: str, folder: Path) -> None:
    policy = load(folder)
    measure(task, policy)
    if task not in COMMANDS:
        return
    env = xsim.make_env(task, num_envs=1)

    def one(state, command):
        memory = state.variables | {"command": command[None]}
        state = state.replace(variables=memory, obs=state.obs.at[:, -3:].set(command))
        state = env.step(state, policy(state.obs))
        return state, (state.state.time[0], state.state.q[0], state.state.v[0])

    commands = np.array(COMMANDS[task])
    _, (time, q, v) = jax.jit(lambda key: jax.lax.scan(one, env.reset(key), jnp.repeat(jnp.asarray(commands), EACH, 0)))(jax.random.key(0))
    dt = float(time[1] - time[0])
    path = xsim.render(
        env.model, np.asarray(q)[::EVERY], IMAGES / f"{task}.gif", dt=dt * EVERY, width=360, height=240, zoom=1.3, follow=True,
    )  # fmt: skip
    speeds = np.linalg.norm(np.asarray(v)[:, :2], axis=1).reshape(len(commands), EACH)[:, EACH // 3 :].mean(1)
    print(f"{path}: {Path(path).stat().st_size // 1000} kB; speeds {speeds} m/s of {np.linalg.norm(commands[:, :2], axis=1)}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
