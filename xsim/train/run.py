"""A run: train, evaluate, and write checkpoints, the learning curve and the result into a folder."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from xsim.dynamics.sharding import use_devices
from xsim.envs import Env, make_env
from xsim.train import ppo, shac
from xsim.train.checkpoints import checkpoints, restore_newest, save
from xsim.train.config import Config
from xsim.train.distributed import is_writer, local
from xsim.train.evaluation import Evaluation
from xsim.train.ppo import Learner

__all__ = ["ALGORITHMS", "environment", "train"]

ALGORITHMS: dict[str, type[ppo.Algorithm]] = {"ppo": ppo.Algorithm, "shac": shac.Algorithm}


def train(
    config: Config, out=None, *, resume: bool = False, progress: bool = True, stop: int | None = None,
    callbacks: Sequence[Callable[[dict], Any]] = (),
) -> dict:  # fmt: skip
    """Train, evaluate, and write everything into the folder ``out``: the last few checkpoints, ``returns.csv`` (one row per
    iteration), ``returns.png``, ``result.json``.

    resume: from the newest checkpoint in ``out`` that is complete, with a warning about each newer file that is not. stop: iterations
    after which to stop as if interrupted (nothing is evaluated). callbacks: called with the new row of ``returns.csv`` after each
    iteration, in the process that writes; `xsim.train.loggers` has some.
    Returns ``return`` and ``length``, means over the evaluated episodes with the deterministic policy, ``deviation`` of the returns,
    ``steps`` and ``curve``, the rows of ``returns.csv``. Raises ValueError for settings that do not fit.
    """
    folder = Path(out if out is not None else Path("runs") / config.task)
    if checkpoints(folder) and not resume:
        raise ValueError(f"{folder} holds a run: resume it, or choose another folder")
    if resume and not checkpoints(folder):
        raise ValueError(f"no checkpoint in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    if jax.process_count() > 1 and config.num_envs % jax.device_count():
        raise ValueError(f"num_envs {config.num_envs} is not a multiple of the {jax.device_count()} devices of all processes")
    if jax.process_count() > 1 and config.evaluate_every:
        raise ValueError("evaluate_every must be 0 where several processes train")
    run = Run(config, folder, resume)
    last = config.iterations if stop is None else min(stop, config.iterations)
    with _bar(config, run.iteration, progress) as bar:
        try:
            while run.iteration < last:
                run.iterate()
                for callback in callbacks if is_writer() else ():
                    callback(run.rows[-1])
                bar.update(config.batch)
                bar.set_postfix({"return": f"{_latest(run.rows):.4g}"}, refresh=False)
                if run.iteration % config.checkpoint_every == 0:
                    run.save()
        finally:  # also when interrupted
            run.save()
    if last < config.iterations:
        return {"steps": run.steps, "curve": run.rows}
    return {**run.finish(), "curve": run.rows}


class Run:
    """A run in progress. learner: after ``iteration`` iterations and ``steps`` actions. rows: of ``returns.csv``, one per iteration."""

    def __init__(self, config: Config, folder: Path, resume: bool):
        self.config, self.folder = config, folder
        self.algorithm = ALGORITHMS[config.algorithm](config, environment(config, config.num_envs))
        self.learner = self._restored() if resume else self.algorithm.start()
        self.iteration = int(self.learner.iteration)
        self.rows = _read_rows(folder / "returns.csv", self.iteration) if resume else []
        if is_writer():
            (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n")
        self._evaluation: Evaluation | None = None
        self._began = time.monotonic() - self.seconds

    def _restored(self) -> Learner:
        learner = restore_newest(self.folder, self.algorithm.shapes())
        done, last = int(learner.iteration), self.config.iterations
        if done > last:
            raise ValueError(f"the run in {self.folder} has done {done} iterations; these settings have {last}: give more steps")
        return learner

    @property
    def steps(self) -> int:
        return self.iteration * self.config.batch

    @property
    def seconds(self) -> float:
        """Time of all iterations so far, also of those before the run was resumed, s."""
        return self.rows[-1]["seconds"] if self.rows else 0.0

    def iterate(self) -> None:
        self.learner, measured = self.algorithm.iterate(self.learner)
        self.iteration += 1
        numbers = {k: float(x) for k, x in measured.items()}
        if self.config.evaluate_every:
            numbers["evaluation"] = float(self.evaluated()[0].mean()) if self.iteration % self.config.evaluate_every == 0 else math.nan
        self.rows.append({"iteration": self.iteration, "steps": self.steps, **numbers, "seconds": time.monotonic() - self._began})

    def evaluated(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns and lengths of the deterministic policy, (evaluate_envs,) each; the same starts each time."""
        config, learner = self.config, self.learner
        if jax.process_count() > 1:
            learner = learner._replace(params=local(learner.params), statistics=local(learner.statistics))
        if self._evaluation is None:
            self._evaluation = Evaluation(environment(config, config.evaluate_envs), self._act, config.evaluate_steps)
        return self._evaluation((learner.params, learner.statistics), jax.random.fold_in(jax.random.key(config.seed), 1))

    def _act(self, policy, obs):
        params, statistics = policy
        return self.algorithm.act(self.learner._replace(params=params, statistics=statistics), obs)

    def save(self) -> None:
        """Write a checkpoint and the rows."""
        save(self.folder, self.learner, self.config.keep)
        if is_writer():
            _write_rows(self.folder / "returns.csv", self.rows)

    def finish(self) -> dict:
        """Evaluate the deterministic policy; write and return the result. Each process of a run evaluates all of it."""
        config = self.config
        if jax.process_count() > 1:
            use_devices(jax.local_devices())
        total, length = self.evaluated()
        result = {"task": config.task, "return": float(total.mean()), "deviation": float(total.std()), "length": float(length.mean())}
        result |= {"episodes": config.evaluate_envs, "steps": self.steps, "seconds": self.seconds}
        if is_writer():
            (self.folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
            _plot(self.folder / "returns.png", self.rows, config.task)
        return result


def environment(config: Config, count: int, **changes) -> Env:
    """The environments of a run. changes: other arguments of `make_env`. Raises ValueError for settings that do not fit."""
    try:
        return make_env(config.task, num_envs=count, **{"seed": config.seed, **config.env, **changes})
    except KeyError as e:
        raise ValueError(e.args[0]) from e
    except TypeError as e:
        raise ValueError(f"env: {e}") from e


def _bar(config: Config, iteration: int, progress: bool):
    from tqdm import tqdm

    total, initial = config.iterations * config.batch, iteration * config.batch
    return tqdm(total=total, initial=initial, unit="step", unit_scale=True, disable=not progress)


def _latest(rows: list[dict]) -> float:
    """The newest mean return of ended episodes."""
    return next((row["return"] for row in reversed(rows) if not math.isnan(row["return"])), math.nan)


def _write_rows(file: Path, rows: list[dict]) -> None:
    if rows:
        draft = file.with_name(f".{file.name}")
        with open(draft, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[-1], restval=math.nan, extrasaction="ignore")  # columns of another version are dropped
            writer.writeheader()
            writer.writerows(rows)
        os.replace(draft, file)


def _read_rows(file: Path, iteration: int) -> list[dict]:
    """The rows up to an iteration, or up to the first that is damaged, of which it warns: the curve is shorter, the run continues."""
    rows: list[dict] = []
    if not file.is_file():
        return rows
    try:
        with open(file, newline="", encoding="utf-8", errors="replace") as lines:
            for row in csv.DictReader(lines):
                rows.append(_read_row(row, rows[-1]["iteration"] if rows else 0))
    except (ValueError, TypeError, KeyError, OverflowError, csv.Error) as error:
        warnings.warn(f"{file} is damaged after {len(rows)} rows ({error}); the later ones are dropped", UserWarning, stacklevel=2)
    return [row for row in rows if row["iteration"] <= iteration]


def _read_row(row: dict, before: int) -> dict:
    """A row of the file, of a later iteration than ``before``. Raises ValueError, TypeError or KeyError for another one."""
    numbers = {k: int(x) if k in ("iteration", "steps") else float(x) for k, x in row.items()}
    if numbers["iteration"] <= before or not math.isfinite(numbers["seconds"]) or not {"steps", "return"} <= numbers.keys():
        raise ValueError(f"found iteration {numbers['iteration']} after {before}")
    return numbers


def _plot(file: Path, rows: list[dict], title: str) -> None:
    """The learning curve as a picture, where matplotlib is installed."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no picture of the learning curve: {file.name} needs matplotlib (pip install 'xsim[plot]')", file=sys.stderr)
        return
    points = [(row["steps"], row["return"]) for row in rows if not math.isnan(row["return"])]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="actions", ylabel="mean return of the episodes that ended", title=title)
    axes.plot(*zip(*points, strict=True)) if points else axes.text(0.5, 0.5, "no episode ended", ha="center")
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)
