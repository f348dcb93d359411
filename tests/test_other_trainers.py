"""Trainers of other packages learn on xsim's tasks through the adapters, each in an environment of its own."""

import json
import os
import subprocess
from pathlib import Path

import packages
import pytest

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[1]


def ran(trainer: str, script: str) -> dict:
    """What a script of ``reference`` prints as its last line, in an environment with a trainer and what xsim depends on."""
    environment = {**packages.bare(), "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", "")}
    command = [str(packages.trainer(trainer)), str(ROOT / "tests" / "reference" / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env={k: v for k, v in environment.items() if v})
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_brax():
    """Its environment steps as ours, alone and in a batch; its PPO keeps the pole up longer after 60,000 actions."""
    found = ran("brax", "train_with_brax.py")
    assert found["observation"] == found["reward"] == 0.0 and found["one"] < 1e-5
    assert found["sizes"] == [5, 1] and found["backend"] == "xsim" and "randomize" in found["refused"]
    before, after = found["returns"]
    assert after > 1.5 * before > 0.0


def test_stable_baselines3():
    """Its PPO, on the vector environment of the gymnasium adapter."""
    found = ran("stable-baselines3", "train_with_stable_baselines3.py")
    assert found["after"] > 1.5 * found["before"] > 0.0
