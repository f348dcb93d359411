"""Settings of training: those that come with a task, a file's, and single changes, checked."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml
from flax import linen as nn

from xsim.io.reader import read_bytes
from xsim.suggestions import did_you_mean

__all__ = ["ACTIVATIONS", "Config", "add_import_option", "check", "configure", "import_modules"]


@dataclass(frozen=True)
class Config:
    """Settings of a run. `configure` reads them from ``xsim/configs/train/TASK.yaml`` (of SHAC ``xsim/configs/shac/TASK.yaml``), a file and
    the command line."""

    task: str
    algorithm: str = "ppo"  # or "shac"
    seed: int = 0
    steps: int = 1_000_000  # actions of all environments together; rounded up to whole iterations
    num_envs: int = 256
    unroll: int = 20  # actions per environment and iteration
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 3e-4
    anneal: bool = True  # the learning rate falls linearly to zero over ``steps``
    discount: float = 0.99
    gae_lambda: float = 0.95  # of the generalized advantages
    clip: float = 0.2  # of the ratio of densities (ppo)
    value_weight: float = 0.5  # of the value's loss (ppo)
    value_learning_rate: float = 1e-3  # of the value (shac); learning_rate is that of the policy
    max_state_gradient: float = 10.0  # norm of the derivative of an environment's return by its state, to which it is clipped (shac)
    target_weight: float = 0.2  # share that the slower copy of the value keeps per iteration (shac)
    entropy_weight: float = 0.0
    max_gradient: float = 0.5  # norm of the gradient that it is clipped to
    reward_scale: float = 1.0
    normalize: bool = True  # observations, by their running mean and deviation
    policy_observation: str = "state"  # what the policy reads of an observation with names
    value_observation: str = "privileged_state"  # what the value reads of it; where it is missing, what the policy reads
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    deviation: float = 0.6  # of the first policy's actions, whose bounds are -1 and 1
    evaluate_envs: int = 64
    evaluate_steps: int = 1000  # actions per evaluated episode, where the task has no time limit
    evaluate_every: int = 0  # iterations between evaluations during training; 0: at the end alone
    checkpoint_every: int = 50  # iterations
    keep: int = 3  # checkpoints
    env: Mapping[str, Any] = field(default_factory=dict)  # further arguments of make_env: randomize, max_steps, ...

    @property
    def batch(self) -> int:
        """Actions per iteration."""
        return self.num_envs * self.unroll

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.batch)


ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu, "elu": nn.elu, "swish": nn.swish}
FOLDERS = {"ppo": "train", "shac": "shac"}
"""Of the bundled settings of each algorithm, below ``xsim/configs``."""
MAX_UPDATES = 2**31 - 1  # the optimizer and the learner count in 32 bits
POSITIVE = (
    "steps", "num_envs", "unroll", "epochs", "minibatches", "learning_rate", "value_learning_rate", "max_gradient", "reward_scale",
    "deviation", "max_state_gradient", "evaluate_envs", "evaluate_steps", "checkpoint_every", "keep",
)  # fmt: skip


def configure(task: str | None, file=None, changes: Mapping[str, Any] | None = None) -> Config:
    """Settings of a task: its own file among the bundled ones, then ``file``, then ``changes``. Raises ValueError for what is wrong.

    ``changes`` may name one entry of ``env``, as ``env.max_steps``.
    """
    from_file = _read(Path(file)) if file is not None else {}
    task = task or from_file.get("task")
    if task is None:
        raise ValueError("no task: name one, or a --config file that does")
    algorithm = (changes or {}).get("algorithm") or from_file.get("algorithm") or Config.algorithm
    bundled = Path(str(files("xsim"))) / "configs" / FOLDERS.get(str(algorithm), "") / f"{task}.yaml"
    values = _read(bundled) if bundled.is_file() else {}
    env = dict(values.get("env", {}))
    for source, settings in ((str(file), from_file), ("--set", changes or {})):
        for name, value in settings.items():
            if name.startswith("env."):
                env[name.removeprefix("env.")] = value
            elif name == "env":
                env |= _convert(name, value)
            else:
                _check_name(name, source)
                values[name] = value
    return check({**values, "env": env, "task": task})


def _read(file: Path) -> dict:
    if not os.path.lexists(file):
        raise ValueError(f"no such file: {file}")
    try:
        values = yaml.safe_load(read_bytes(file)) or {}
    except (yaml.YAMLError, RecursionError) as e:
        raise ValueError(f"{file}: {e}") from e
    if not isinstance(values, dict):
        raise ValueError(f"{file}: must be a table of names and values, found {type(values).__name__}")
    for name in values:
        _check_name(str(name), str(file))
    return values


def _check_name(name: str, source: str) -> None:
    if name not in FIELD_TYPES and not name.startswith("env."):
        raise ValueError(f"{source}: unknown setting {name!r}{did_you_mean(name, FIELD_TYPES)}; settings: {', '.join(FIELD_TYPES)}")


def check(values: Mapping[str, Any]) -> Config:
    """A Config of these settings. Raises ValueError where a value is not of its field's type or not within its bounds."""
    out = {name: _convert(name, value) for name, value in values.items()}
    for name in POSITIVE:
        if name in out and out[name] <= 0:
            raise ValueError(f"{name} must be positive, found {out[name]}")
    if out.get("evaluate_every", 0) < 0:
        raise ValueError(f"evaluate_every must not be negative, found {out['evaluate_every']}")
    for name in ("discount", "gae_lambda", "clip", "target_weight"):
        if name in out and not 0 <= out[name] <= 1:
            raise ValueError(f"{name} must be between 0 and 1, found {out[name]}")
    config = Config(**out)
    if config.algorithm not in FOLDERS:
        raise ValueError(f"algorithm: found {config.algorithm!r}; allowed: {', '.join(FOLDERS)}")
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"activation: found {config.activation!r}; allowed: {', '.join(ACTIVATIONS)}")
    if config.batch % config.minibatches:
        raise ValueError(f"num_envs * unroll = {config.batch} actions cannot be split into {config.minibatches} equal minibatches")
    updates = config.iterations * config.epochs * config.minibatches
    if updates > MAX_UPDATES:
        raise ValueError(f"steps: found {config.steps:g}, which makes {updates:g} updates of the policy; allowed: {MAX_UPDATES}")
    return config


def _convert(name: str, value):
    """The value as the type that its field of Config declares."""
    _check_name(name, "settings")
    description, convert = CONVERSIONS[FIELD_TYPES[name]]
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError) as e:
        raise ValueError(f"{name} must be {description}, found {value!r}") from e


def _float(value) -> float:
    """A finite number. YAML reads 1e6 as text."""
    if isinstance(value, bool) or not isinstance(value, int | float | str) or not math.isfinite(float(value)):
        raise ValueError
    return float(value)


def _int(value) -> int:
    number = _float(value)
    if number != int(number):
        raise ValueError
    return int(number)


def _sizes(value) -> tuple[int, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(x, int) and x > 0 for x in value):
        raise ValueError
    return tuple(value)


def _instance(kind: type) -> Callable:
    """Values of this type as they are."""

    def convert(value):
        if not isinstance(value, kind):
            raise TypeError
        return value

    return convert


def _table(value) -> dict:
    return dict(_instance(Mapping)(value))


FIELD_TYPES = {f.name: str(f.type) for f in dataclasses.fields(Config)}
CONVERSIONS: dict[str, tuple[str, Callable]] = {
    "bool": ("true or false", _instance(bool)),
    "int": ("a whole number", _int),
    "float": ("a number", _float),
    "str": ("a text", _instance(str)),
    "tuple[int, ...]": ("a list of positive whole numbers", _sizes),
    "Mapping[str, Any]": ("a table", _table),
}
"""By the type of a field: what its values must be, and how they become that (TypeError or ValueError where they cannot)."""


# ---- tasks of users ----------------------------------------------------------------------------------------------------------


def add_import_option(parser: argparse.ArgumentParser) -> None:
    """The option ``--import`` of a command, for `import_modules`."""
    text = "a module that registers tasks, from the current folder or installed; several times for several"
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE", help=text)


def import_modules(names: Sequence[str]) -> None:
    """Import modules, which may register tasks (`xsim.envs.register_task`). Raises ValueError for one that is not found."""
    if names and "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # installed commands do not look there
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise
            raise ValueError(f"--import {name}: there is no module {error.name!r}") from error
