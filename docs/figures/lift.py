"""A picture of docs/training.md: a trained arm grasps a cube and brings it to a target. Prints how often it does.

    python -m xsim.train panda_lift --out runs/lift
    python docs/figures/lift.py runs/lift

Needs vtk and pillow: pip install ".[render]".
"""

import sys
from pathlib import Path

import jax
import numpy as np

import xsim
from xsim.envs.manipulation import Lift
from xsim.train import load

FILE = Path(__file__).parents[1] / "images" / "panda_lift.gif"
EPISODES, SHOWN = 64, 3
LENGTH = 199
"""Actions per episode, 50 times a second: all but the last one, which starts the next episode."""
EVERY = 4
"""Actions per frame."""


def main(folder: Path) -> None:
    policy, env = load(folder), xsim.make_env("panda_lift", num_envs=EPISODES)

    def one(state, _):
        state = env.step(state, policy(state.obs))
        return state, (state.state.q, state.metrics["height"], state.metrics["distance"])

    q, height, distance = map(np.asarray, jax.jit(lambda key: jax.lax.scan(one, env.reset(key), length=LENGTH))(jax.random.key(5))[1])
    print(f"{EPISODES} episodes, at the end: lifted by 5 cm {np.mean(height[-1] > 0.05):.3f}; within {Lift.tolerance} m of the target "
          f"{np.mean(distance[-1] < Lift.tolerance):.3f}; median distance {np.median(distance[-1]):.4f} m")  # fmt: skip
    motion = np.concatenate([q[::EVERY, i] for i in range(SHOWN)])
    path = xsim.render(env.model, motion, FILE, dt=0.02 * EVERY, width=360, height=270, azimuth=-35.0, elevation=20.0, zoom=1.3)
    print(f"{path}: {Path(path).stat().st_size // 1000} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
