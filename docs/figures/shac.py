"""The comparison of SHAC with PPO in docs/training.md: trains both on five tasks with three seeds, and draws the returns.

    python docs/figures/shac.py runs/comparison

Runs that are in the folder already are not repeated. Each run uses one core, and two are made at a time. Needs matplotlib.
"""

import csv
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import jax
import numpy as np
from matplotlib.figure import Figure

import xsim
from xsim.train import configure

IMAGE = Path(__file__).parents[1] / "images" / "shac.png"
RESULTS = Path(__file__).parents[2] / "benchmarks" / "shac.json"
ACTIONS = {"chain_tracking": 500_000, "half_cheetah": 1_000_000, "hopper": 1_000_000, "ant": 500_000, "go1_joystick": 500_000}
SEEDS = range(3)
EVALUATIONS = 20
"""Of a run: so many times the deterministic policy is evaluated, 16 episodes each."""
FEW_ACTIONS = {"num_envs": 256, "unroll": 20, "minibatches": 16, "epochs": 5}
"""PPO's settings where those of the task are for tens of millions of actions. SHAC's are those of the task, and all others of both."""
COLORS = {"shac": "#c0504d", "ppo": "#4a7fb5"}


def run(folder: Path, task: str, algorithm: str, seed: int, core: int) -> Path:
    """Train, if it is not done, and return the folder of the run."""
    out = folder / f"{task}-{algorithm}-{seed}"
    if (out / "result.json").is_file():
        return out
    settings = {"algorithm": algorithm, "seed": seed, "steps": ACTIONS[task], "evaluate_envs": 16}
    settings |= FEW_ACTIONS if algorithm == "ppo" else {}
    settings["evaluate_every"] = configure(task, changes=settings).iterations // EVALUATIONS
    command = [sys.executable, "-m", "xsim.train", task, *(x for name, value in settings.items() for x in ("--set", f"{name}={value}"))]
    subprocess.run(
        [*command, "--out", str(out)], check=True, capture_output=True, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip
    return out


def curve(folder: Path) -> np.ndarray:
    """(evaluations, 3): actions, return, seconds."""
    rows = [[float(row[k]) for k in ("steps", "evaluation", "seconds")] for row in csv.DictReader((folder / "returns.csv").open())]
    rows = np.array(rows)
    return rows[np.isfinite(rows[:, 1])]


def trained(folder: Path) -> dict:
    """The curves (seeds, evaluations, 3) by task and algorithm."""
    cores: Queue = Queue()
    for core in sorted(os.sched_getaffinity(0))[:2]:
        cores.put(core)
    jobs = [(task, algorithm, seed) for seed in SEEDS for task in ACTIONS for algorithm in COLORS]

    def one(job):
        core = cores.get()
        try:
            return run(folder, *job, core)
        finally:
            cores.put(core)

    with ThreadPoolExecutor(cores.qsize()) as pool:
        done = dict(zip(jobs, pool.map(one, jobs), strict=True))
    found = {}
    for task in ACTIONS:
        for algorithm in COLORS:
            curves = [curve(done[task, algorithm, seed]) for seed in SEEDS]
            found[task, algorithm] = np.stack([x[: min(map(len, curves))] for x in curves])
    return found


def draw(curves: dict) -> None:
    """Mean return against actions (above) and seconds on one core (below); the band is from the least to the largest of the seeds."""
    figure = Figure(figsize=(3 * len(ACTIONS), 5), layout="constrained")
    axes = figure.subplots(2, len(ACTIONS), squeeze=False)
    for column, task in enumerate(ACTIONS):
        for algorithm, color in COLORS.items():
            x = curves[task, algorithm]
            for row, (along, name) in enumerate(((x[..., 0].mean(0) / 1e6, "million actions"), (x[..., 2].mean(0), "seconds, one core"))):
                axes[row][column].plot(along, x[..., 1].mean(0), color=color, label=algorithm.upper())
                axes[row][column].fill_between(along, x[..., 1].min(0), x[..., 1].max(0), color=color, alpha=0.2, linewidth=0)
                axes[row][column].set(xlabel=name, title=task if row == 0 else "", ylabel="return" if column == 0 else "")
                axes[row][column].grid(alpha=0.3)
    axes[0][0].legend()
    figure.savefig(IMAGE, dpi=90)


def write(curves: dict) -> None:
    """The last return of each seed and the seconds, as JSON and as lines of a table."""
    results = {f"{task} {algorithm}": {"returns": x[:, -1, 1].tolist(), "seconds": x[:, -1, 2].tolist(), "actions": x[0, -1, 0]}
               for (task, algorithm), x in curves.items()}  # fmt: skip
    versions = {"xsim": xsim.__version__, "jax": jax.__version__, "python": sys.version.split()[0]}
    RESULTS.write_text(json.dumps({"versions": versions, "runs": results}, indent=1) + "\n")
    for name, result in results.items():
        returns = np.array(result["returns"])
        print(f"{name:26s} {returns.mean():9.1f} ({returns.min():.1f} to {returns.max():.1f})  {np.mean(result['seconds']):.0f} s")


if __name__ == "__main__":
    curves = trained(Path(sys.argv[1] if len(sys.argv) > 1 else "runs/comparison"))
    draw(curves)
    write(curves)
