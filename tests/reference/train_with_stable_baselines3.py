"""Prints, as JSON, the mean return of stable-baselines3's PPO on a task before and after training: run by tests/test_other_trainers.py."""

import json

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from xsim.envs.gym import GymVectorEnv


class Vectorized(VecEnv):
    """A ``gymnasium.vector.VectorEnv`` that restarts in the step, as stable-baselines3 has vector environments."""

    def __init__(self, env: GymVectorEnv):
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self.env, self.actions = env, None

    def reset(self):
        return self.env.reset(seed=0)[0]

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        obs, reward, terminated, truncated, info = self.env.step(self.actions)
        infos = [{} for _ in range(self.num_envs)]
        for i in np.flatnonzero(terminated | truncated):
            infos[i] = {
                "terminal_observation": info["final_obs"][i],
                "TimeLimit.truncated": bool(truncated[i]),
                "episode": {"r": float(info["final_info"]["return"][i]), "l": int(info["final_info"]["length"][i]), "t": 0.0},
            }
        return obs, reward, terminated | truncated, infos

    def close(self):
        self.env.close()

    def get_attr(self, attr_name, indices=None):
        return [getattr(self.env, attr_name, None)] * self.num_envs

    def set_attr(self, attr_name, value, indices=None):
        raise NotImplementedError

    def env_method(self, method_name, *args, indices=None, **kwargs):
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class, indices=None):
        return [False] * self.num_envs


def mean_return(model, env: Vectorized, steps: int = 200) -> float:
    """Of the episodes that end within some actions of the deterministic policy."""
    obs, returns = env.reset(), []
    for _ in range(steps):
        obs, _, _, infos = env.step(model.predict(obs, deterministic=True)[0])
        returns += [info["episode"]["r"] for info in infos if "episode" in info]
    return float(np.mean(returns))


def main() -> None:
    env = Vectorized(GymVectorEnv("pendulum_balance", num_envs=32, max_steps=100))
    model = PPO("MlpPolicy", env, n_steps=64, batch_size=256, n_epochs=8, learning_rate=3e-3, seed=0, device="cpu")
    before = mean_return(model, env)
    model.learn(60_000)
    print(json.dumps({"before": before, "after": mean_return(model, env)}))


if __name__ == "__main__":
    main()
