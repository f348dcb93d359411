"""Writes gymnasium_v5.npz: what gymnasium's v5 environments say, for tests/test_locomotion.py.

Needs ``pip install "gymnasium[mujoco]"`` (written with gymnasium 1.4.0 and mujoco 4.0.0). Every environment is started from a few of its
own reset states and driven by random controls, episodes going on after their end. The solver runs to convergence, so that the numbers do
not depend on how it gets there; everything else is as the environment has it.
"""

from pathlib import Path

import gymnasium
import mujoco
import numpy as np

TASKS = {"ant": "Ant-v5", "half_cheetah": "HalfCheetah-v5", "hopper": "Hopper-v5", "humanoid": "Humanoid-v5", "reacher": "Reacher-v5"}
EPISODES = 4
STEPS = 100
KEPT = (0, 1, 2, 5, 10, 20, 40, 70, 99)  # steps whose start, end and observation are written
STRENGTH = {"hopper": 0.3, "humanoid": 0.5}  # of the controls, as a part of their bounds


def run(name: str, identifier: str) -> dict:
    env = gymnasium.make(identifier).unwrapped
    option = env.model.opt
    option.solver, option.tolerance, option.iterations = mujoco.mjtSolver.mjSOL_NEWTON, 0.0, 200
    option.ls_iterations, option.ls_tolerance = 200, 1e-10
    out: dict[str, list] = {}
    for episode in range(EPISODES):
        rng = np.random.default_rng(episode)
        first, _ = env.reset(seed=episode)
        rows: dict[str, list] = {}
        for step in range(STEPS):
            # float32 as gymnasium's action spaces are, so that a float32 simulation is given the same numbers.
            ctrl = rng.uniform(env.action_space.low, env.action_space.high).astype(np.float32) * np.float32(STRENGTH.get(name, 1.0))
            state = {"q": env.data.qpos.copy(), "v": env.data.qvel.copy(), "place": _place(env, name)}
            obs, reward, terminated, _, info = env.step(ctrl.astype(float))
            rows.setdefault("ctrl", []).append(ctrl)
            rows.setdefault("reward", []).append(reward)
            rows.setdefault("terminated", []).append(terminated)
            for term, value in info.items():
                if term.startswith("reward_"):
                    rows.setdefault(term, []).append(value)
            if step in KEPT:
                kept = {**state, "q_after": env.data.qpos.copy(), "v_after": env.data.qvel.copy(), "obs": obs}
                for key, value in kept.items():
                    rows.setdefault(key, []).append(value)
        rows["first_obs"] = first
        for key, value in rows.items():
            out.setdefault(key, []).append(np.array(value))
    env.close()
    return {f"{name}/{key}": np.array(value) for key, value in out.items()}


def _place(env, name: str) -> np.ndarray:
    """Where the environment says that it is, (2,): of what its mjData holds after a step."""
    if name == "humanoid":
        mass = env.model.body_mass
        return (mass @ env.data.xipos / mass.sum())[:2]
    return env.data.xpos[1, :2].copy()


if __name__ == "__main__":
    arrays = {"kept": np.array(KEPT), "versions": np.array([gymnasium.__version__, mujoco.__version__])}
    for task, name in TASKS.items():
        arrays |= run(task, name)
    np.savez_compressed(Path(__file__).with_name("gymnasium_v5.npz"), **arrays)
