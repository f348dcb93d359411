"""Training of policies with PPO: ``python -m xsim.train TASK``."""

from xsim.train.run import Config, Learner, configure, evaluate, main, train

__all__ = ["Config", "Learner", "configure", "evaluate", "main", "train"]
