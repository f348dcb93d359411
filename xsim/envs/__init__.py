"""Environments for learning: batches of one model with a task, pure functions from `EnvState` to `EnvState`."""

from xsim.envs import humanoid, locomotion, manipulation, quadruped, suite
from xsim.envs.core import TASKS, Env, EnvState, Spec, Task, make_env, register_task
from xsim.envs.disturbances import Push
from xsim.envs.tasks import Tracking, imu
from xsim.envs.view import View

__all__ = [
    "TASKS", "Env", "EnvState", "Push", "Spec", "Task", "Tracking", "View", "humanoid", "imu", "locomotion", "make_env", "manipulation",
    "quadruped", "register_task", "suite",
]  # fmt: skip
