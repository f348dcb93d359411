"""Training of policies with PPO or SHAC: ``python -m xsim.train TASK``; ``python -m xsim.train play RUN`` shows a policy, `load` reads it.

``config``: settings. ``ppo``: networks and PPO. ``shac``: short-horizon actor-critic, by the derivatives of the simulation.
``checkpoints``: files to resume from. ``run``: the loop and its results. ``evaluation``: returns of a policy. ``loggers``: callbacks.
``policy``: what was learned. ``play``: its motion.
"""

from xsim.train.config import Config, configure
from xsim.train.evaluation import evaluate
from xsim.train.policy import TrainedPolicy, load
from xsim.train.ppo import Learner
from xsim.train.run import train

__all__ = ["Config", "Learner", "TrainedPolicy", "configure", "evaluate", "load", "train"]
