"""Writes ``dm_control.json``: steps of the tasks of the DeepMind Control Suite, which tests/test_suite.py compares with.

    python make_dm_control.py [FILE]

Needs dm_control 1.0.50 with MuJoCo 3.17.0, the last that it runs with. MuJoCo's solver runs to rounding here. Each task is followed for a
few actions, from a state that random actions lead to, and from one near its goal.
"""

import json
import os
import sys
from pathlib import Path

import numpy as np

os.environ.setdefault("MUJOCO_GL", "disabled")

from dm_control import suite  # noqa: E402

TASKS = {
    "acrobot": ("swingup", "swingup_sparse"),
    "ball_in_cup": ("catch",),
    "cartpole": ("balance", "balance_sparse", "swingup", "swingup_sparse"),
    "cheetah": ("run",),
    "finger": ("spin", "turn_easy", "turn_hard"),
    "fish": ("upright", "swim"),
    "hopper": ("stand", "hop"),
    "humanoid": ("stand", "walk", "run", "run_pure_state"),
    "pendulum": ("swingup",),
    "point_mass": ("easy",),
    "reacher": ("easy", "hard"),
    "swimmer": ("swimmer6", "swimmer15"),
    "walker": ("stand", "walk", "run"),
}
TARGETS = {"finger": "site_pos", "fish": "geom_pos", "reacher": "geom_pos", "swimmer": "geom_pos"}
AT_TARGET = {
    "finger": ("site_xpos", "tip"), "fish": ("geom_xpos", "mouth"), "reacher": ("geom_xpos", "finger"), "swimmer": ("geom_xpos", "nose"),
}  # fmt: skip
NEAR = 0.03  # m, of such a target
WARM_UP, STEPS = 30, 4


def rounded(x) -> list:
    return [float(f"{value:.12g}") for value in np.ravel(x)]


def flat(observation) -> list:
    return rounded(np.concatenate([np.ravel(x) for x in observation.values()]))


def to_the_goal(domain: str, physics, rng) -> None:
    """A state near that of the largest reward: the initial configuration, moving, the target at what should reach it."""
    physics.data.qpos[:] = physics.model.qpos0
    physics.data.qvel[:] = rng.uniform(-1, 1, physics.model.nv)
    if domain == "ball_in_cup":
        physics.named.data.qpos["ball_z"] = 0.35
    if domain == "finger":
        physics.named.data.qvel["hinge"] = -25.0
    if domain in ("cheetah", "hopper", "walker"):
        physics.named.data.qvel["rootx"] = 1.4
    physics.forward()
    if domain in TARGETS:
        kind, name = AT_TARGET[domain]
        target = getattr(physics.named.data, kind)[name] + [0.0, 0.0 if domain == "finger" else NEAR, 0.0]
        getattr(physics.named.model, TARGETS[domain])["target"] = target
        physics.forward()


def followed(env, domain: str, rng) -> dict:
    """A few random actions from the present state."""
    physics = env.physics
    physics.data.qpos[:], physics.data.qvel[:] = rounded(physics.data.qpos), rounded(physics.data.qvel)
    physics.forward()
    row = {"q": physics.data.qpos.tolist(), "v": physics.data.qvel.tolist()}
    if domain in TARGETS:
        row["target"] = rounded(getattr(physics.named.model, TARGETS[domain])["target"])
    row |= {"action": [], "observation": [], "reward": []}
    for _ in range(STEPS):
        action = np.array(rounded(rng.uniform(-1, 1, env.action_spec().shape)))
        step = env.step(action)
        row["action"].append(action.tolist())
        row["observation"].append(flat(step.observation))
        row["reward"] += rounded(step.reward)
    return row


def main(file: Path) -> None:
    out = {}
    for domain, names in TASKS.items():
        for name in names:
            rng = np.random.default_rng(0)
            env = suite.load(domain, name, task_kwargs={"random": 1})
            env.reset()
            option = env.physics.model.opt
            option.tolerance, option.iterations, option.ls_iterations = 0.0, 300, 300
            for _ in range(WARM_UP):
                env.step(rng.uniform(-1, 1, env.action_spec().shape))
            rows = [followed(env, domain, rng)]
            to_the_goal(domain, env.physics, rng)
            rows.append(followed(env, domain, rng))
            out[f"{domain}_{name}"] = {"action_repeat": int(env._n_sub_steps), "steps": int(round(env._step_limit)), "rows": rows}
    file.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("dm_control.json"))
