"""Training by several processes: as by one, resumed on another number of devices, and an end where a process dies."""

from __future__ import annotations

import csv
import functools
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest
from jax.experimental import multihost_utils
from processes import HERE, finish, free_address, start

import xsim
from xsim.train import configure, train
from xsim.train.checkpoints import checkpoints, restore
from xsim.train.distributed import HEARTBEAT_S
from xsim.train.ppo import Algorithm
from xsim.train.run import environment

ITERATIONS, ENVS, UNROLL = 3, 128, 8
SETTINGS = {
    "unroll": UNROLL, "minibatches": 2, "epochs": 2, "hidden": [16], "evaluate_envs": 4, "checkpoint_every": 1, "env.max_steps": 20,
}  # fmt: skip
SMALL = configure("pendulum_balance", changes={**SETTINGS, "steps": ITERATIONS * ENVS * UNROLL, "num_envs": ENVS})


def _start(folder: Path, steps: int, processes: int) -> list[subprocess.Popen]:
    """The processes of a run."""
    command = ["-m", "xsim.train", SMALL.task, "--num-envs", ENVS, "--steps", steps, "--out", folder]
    command += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
    command += ["--coordinator", free_address(), "--processes", processes]
    return [start(*command, "--process", i) for i in range(processes)]


def _rows(folder: Path) -> np.ndarray:
    """The numbers of returns.csv without the times."""
    with open(folder / "returns.csv", newline="") as lines:
        return np.array([[float(x) for name, x in row.items() if name != "seconds"] for row in csv.DictReader(lines)])


@pytest.mark.nightly
def test_two_processes_train_as_one_and_one_resumes(tmp_path):
    """To the rounding of sums: each process adds its share first. After one iteration the weights agree to 1e-6."""
    together, alone = tmp_path / "together", tmp_path / "alone"
    running = _start(together, SMALL.steps, 2)
    train(SMALL, alone, progress=False)
    for process in running:
        finish(process)
    assert len(_rows(together)) == ITERATIONS
    np.testing.assert_allclose(_rows(together), _rows(alone), rtol=1e-4, atol=1e-6)
    algorithm = Algorithm(SMALL, environment(SMALL, ENVS))
    both = [restore(checkpoints(folder)[0], algorithm.shapes()).params for folder in (together, alone)]
    jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=0, atol=1e-6), *both)
    more = replace(SMALL, steps=SMALL.steps + ENVS * UNROLL)
    assert len(train(more, together, resume=True, progress=False)["curve"]) == ITERATIONS + 1


COPIES, STEPS = 256, 30


def rolled() -> dict[str, np.ndarray]:
    """What a rollout of randomized hoppers with contacts and limits ends in."""
    model = xsim.load("hopper")
    ranges = {name: {"uniform": [0.8, 1.2], "relative": "scale"} for name in ("dof.damping", "surface.friction")}
    models = xsim.randomize(model, jax.random.key(0), COPIES, ranges)
    ctrl = np.random.default_rng(0).uniform(-1, 1, (STEPS, COPIES, model.nu)).astype(np.float32)
    final = xsim.rollout(models, xsim.init(models), ctrl)[0]
    found = {"q": final.q, "v": final.v, "flags": final.flags}
    return found if jax.process_count() == 1 else multihost_utils.process_allgather(found, tiled=True)


ON_DEVICES = """
import xsim
assert xsim.use_cores(4) == 4
"""

IN_PROCESSES = """
import jax, xsim
jax.distributed.initialize(sys.argv[2], 4, int(sys.argv[3]))
assert xsim.use_devices().size == 4
"""

ROLL = """
import numpy as np
from test_distributed import rolled
np.savez(sys.argv[1], **rolled())
"""


@pytest.mark.nightly
@pytest.mark.parametrize("way", ["devices", "processes"])
def test_rollouts_are_the_same_bit_for_bit(tmp_path, way):
    """Of one process with four devices, of four processes, and of one device: no number depends on how environments are divided."""
    address, numbers = free_address(), range(1 if way == "devices" else 4)
    program = HERE + (ON_DEVICES if way == "devices" else IN_PROCESSES) + ROLL
    running = [start("-c", program, tmp_path / f"{i}.npz", address, i) for i in numbers]
    wanted = rolled()
    assert np.abs(wanted["q"][:, 1] - wanted["q"][0, 1]).max() > 1e-3  # they differ
    for i, process in enumerate(running):
        finish(process)
        found = np.load(tmp_path / f"{i}.npz")
        for key, x in wanted.items():
            np.testing.assert_array_equal(found[key], x, err_msg=f"{i}: {key}")


@pytest.mark.nightly
def test_a_process_that_dies_ends_the_others(tmp_path):
    """One of four: within a minute, and the run is resumed from its last checkpoint."""
    *survivors, victim = _start(tmp_path, 1000 * ENVS * UNROLL, 4)
    end = time.monotonic() + 300
    while not checkpoints(tmp_path) and time.monotonic() < end:
        time.sleep(0.5)
    assert checkpoints(tmp_path)
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    begin = time.monotonic()
    texts = [survivor.communicate(timeout=300)[0] for survivor in survivors]
    assert all(survivor.returncode != 0 for survivor in survivors) and time.monotonic() - begin < 2 * HEARTBEAT_S
    assert "--resume" in texts[0]
    done = int(checkpoints(tmp_path)[-1].name.removeprefix("checkpoint-"))
    more = replace(SMALL, steps=(done + 1) * ENVS * UNROLL)
    assert len(train(more, tmp_path, resume=True, progress=False)["curve"]) == done + 1


@pytest.mark.slow
def test_arguments_go_together(tmp_path):
    command = [sys.executable, "-m", "xsim.train", SMALL.task, "--processes", "2", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "--coordinator, --processes and --process go together" in done.stderr
