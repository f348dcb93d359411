"""Environments for learning: batches of one model with a task, pure functions from `EnvState` to `EnvState`."""

from xsim.envs import locomotion, quadruped
from xsim.envs.core import TASKS, Env, EnvState, Spec, Task, View, make_env, register_task
from xsim.envs.tasks import imu, tracking_task

__all__ = [
    "TASKS", "Env", "EnvState", "Spec", "Task", "View", "imu", "locomotion", "make_env", "quadruped", "register_task", "tracking_task",
]  # fmt: skip
