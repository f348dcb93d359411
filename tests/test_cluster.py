"""The files of docs/cluster, as far as one machine can run them.

Stand-ins for srun and gcloud start two processes, which train, and when they are started again resume."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from processes import finish, free_address, start_command

FOLDER = Path(__file__).parents[1] / "docs" / "cluster"
TASK = ["pendulum_balance", "--num-envs", "128", "--steps", "1024"]
SETTINGS = {"unroll": 8, "minibatches": 2, "epochs": 1, "hidden": "[16]", "evaluate_envs": 2, "env.max_steps": 5}
TASK += [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]

START_TWO = """#!/bin/bash
# Two processes of one node, with the variables that Slurm sets.
export SLURM_JOB_ID={job} SLURM_STEP_NODELIST=localhost SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1
for SLURM_PROCID in 0 1; do
    SLURM_LOCALID=$SLURM_PROCID SLURM_PROCID=$SLURM_PROCID {command} &
    pids[$SLURM_PROCID]=$!
done
wait ${{pids[0]}} && wait ${{pids[1]}}
"""


def _stand_in(folder: Path, name: str, command: str) -> dict[str, str]:
    """The environment in which a program of this name starts two processes of a command."""
    port = int(free_address().split(":")[1])
    (folder / name).write_text(START_TWO.format(command=command, job=port))
    (folder / name).chmod(0o755)
    path = os.pathsep.join([str(folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    return {"PATH": path, "JAX_COORDINATOR_PORT": str(port)}


def _iterations(folder: Path) -> int:
    with open(folder / "returns.csv", newline="") as lines:
        return len(list(csv.reader(lines))) - 1


@pytest.mark.nightly
def test_slurm(tmp_path):
    """Started again after a stop, it has nothing left to do."""
    environment = _stand_in(tmp_path, "srun", '"$@"') | {"OUT": str(tmp_path / "run")}
    for _ in range(2):
        finish(start_command("bash", FOLDER / "slurm.sh", *TASK, **environment))
        assert _iterations(tmp_path / "run") == 1 and (tmp_path / "run" / "result.json").exists()


@pytest.mark.nightly
def test_tpu(tmp_path):
    environment = _stand_in(tmp_path, "gcloud", 'bash -c "${@: -1}"')
    environment |= {"OUT": str(tmp_path / "run"), "NAME": "name", "ZONE": "zone"}
    for _ in range(2):
        finish(start_command("bash", FOLDER / "tpu.sh", *TASK, **environment))
        assert _iterations(tmp_path / "run") == 1 and (tmp_path / "run" / "result.json").exists()


@pytest.mark.nightly
def test_jobset(tmp_path):
    """The command of a pod, with its variables; those of the cluster are this machine's."""
    jobset = yaml.safe_load((FOLDER / "jobset.yaml").read_text())
    (workers,) = jobset["spec"]["replicatedJobs"]
    job = workers["template"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    variables = {x["name"]: x["value"] for x in container["env"]}
    assert variables["COORDINATOR"].startswith(f"{jobset['metadata']['name']}-{workers['name']}-0-0.")
    assert int(variables["PROCESSES"]) == job["completions"] == job["parallelism"]
    here = {"COORDINATOR": free_address(), "PROCESSES": "2", "OUT": str(tmp_path / "run"), "TASK": " ".join(TASK)}
    here |= {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}
    assert variables.keys() <= here.keys()
    running = [start_command(*container["command"], **here, JOB_COMPLETION_INDEX=str(i)) for i in range(2)]
    for process in running:
        finish(process)
    assert _iterations(tmp_path / "run") == 1


@pytest.mark.parametrize("file", ["slurm.sh", "tpu.sh"])
def test_syntax(file):
    subprocess.run(["bash", "-n", str(FOLDER / file)], check=True)
