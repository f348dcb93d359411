"""Training of policies with PPO: ``python -m xsim.train TASK``.

``config``: settings. ``ppo``: networks and the algorithm. ``checkpoints``: files to resume from. ``run``: the loop and its results.
"""

from xsim.train.config import Config, configure
from xsim.train.ppo import Learner
from xsim.train.run import evaluate, train

__all__ = ["Config", "Learner", "configure", "evaluate", "train"]
