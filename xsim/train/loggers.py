"""Callbacks of `xsim.train.train` that pass the learning curve on to TensorBoard or Weights & Biases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["tensorboard", "wandb"]


def tensorboard(folder: Path) -> Callable[[Mapping[str, float]], None]:
    """Writes event files for TensorBoard into a folder. Raises ImportError where tensorboardX is missing."""
    try:
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("event files for TensorBoard need tensorboardX: pip install tensorboardX") from error
    writer = SummaryWriter(str(folder), flush_secs=1)  # a thread of its own writes

    def write(row: Mapping[str, float]) -> None:
        for name, value in _numbers(row).items():
            writer.add_scalar(name, value, int(row["steps"]))

    return write


def wandb(project: str, name: str, settings: Mapping[str, Any]) -> Callable[[Mapping[str, float]], None]:
    """Reports to a project of Weights & Biases. name, settings: of the run. Raises ImportError where wandb is missing."""
    try:
        import wandb as client  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ImportError("reports to Weights & Biases need wandb: pip install wandb") from error
    run = client.init(project=project, name=name, config=dict(settings))
    return lambda row: run.log(_numbers(row), step=int(row["steps"]))


def _numbers(row: Mapping[str, float]) -> dict[str, float]:
    """What has a value: the mean return of an iteration in which no episode ended has none."""
    return {name: value for name, value in row.items() if name not in ("iteration", "steps") and not math.isnan(value)}
