"""Object files of several modules at a time, by processes that generate code. Threads do not help: llvmlite locks all calls of LLVM."""

from __future__ import annotations

import math
import os
import pickle
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import spawn
from pathlib import Path

from xsim.compile import code_generation
from xsim.compile.code_generation import UNOPTIMIZED, machine_code

MIN_TEXT, MIN_UNOPTIMIZED_TEXT = 500_000, 8_000_000
"""Characters of LLVM IR for each process, a half to one second of work. A process takes 0.15 s to start."""
MAX_PROCESSES = 8
"""A process takes 60 MB, and more for long modules."""


def available_cores() -> int:
    """Number of cores that this process may use. A container may have the time of fewer cores than its threads may run on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.floor(min(cores, cpu_quota())))


def cpu_quota(groups: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> float:
    """The processor time per second that the control groups of this process may use (Linux, cgroups(7)), inf without a limit.

    groups: the folder of the control groups. own: the file that names those of this process."""
    found = math.inf
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers or "cpu" in controllers.split(","):
            folder = groups / controllers.partition(",")[0]
            inside = folder / path.lstrip("/")
            found = min([found, *map(_limit_of, (inside, *inside.parents))])
    return found


def _limit_of(folder: Path) -> float:
    """The limit of one control group: of the second version of control groups, or of the first."""
    quota, _, period = _text(folder / "cpu.max").partition(" ")
    if not quota:
        quota, period = (_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period"))
    try:
        limit = int(quota) / int(period)
    except ValueError:  # "max", or no such file
        return math.inf
    return limit if limit > 0 else math.inf


def _text(file: Path) -> str:
    """The text of a file, empty if it cannot be read."""
    try:
        return file.read_text()
    except OSError:
        return ""


def object_files(texts: Sequence[str], optimization: int) -> list[bytes]:
    """The object files of modules in LLVM IR. If there is much text, the modules are divided among as many processes as there are cores.

    Raises RuntimeError with LLVM's message."""
    least = MIN_UNOPTIMIZED_TEXT if optimization == UNOPTIMIZED else MIN_TEXT
    count = min(len(texts), available_cores(), MAX_PROCESSES, sum(map(len, texts)) // least)
    if count < 2:
        return _generated(texts, optimization)
    groups = _groups([len(text) for text in texts], count)
    with ThreadPoolExecutor(count) as threads:
        found = threads.map(lambda group: _by_process([texts[k] for k in group], optimization), groups)
    codes = {k: code for group, codes in zip(groups, found, strict=True) for k, code in zip(group, codes, strict=True)}
    return [codes[k] for k in range(len(texts))]


def _groups(lengths: Sequence[int], count: int) -> list[list[int]]:
    """Indices of modules in groups of about the same length: each module, the longest first, is put into the shortest group."""
    groups: list[list[int]] = [[] for _ in range(count)]
    totals = [0] * count
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        group = totals.index(min(totals))
        groups[group].append(k)
        totals[group] += lengths[k]
    return groups


def _generated(texts: Sequence[str], optimization: int) -> list[bytes]:
    """The object files, by this process."""
    return [machine_code(text, optimization) for text in texts]


def _by_process(texts: Sequence[str], optimization: int) -> list[bytes]:
    """The object files, by another process; by this one if that fails, for which the errors are those of LLVM."""
    command = [spawn.get_executable() or "", "-P", code_generation.__file__]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}  # llvmlite is found where it was found here
    try:
        done = subprocess.run(command, input=pickle.dumps((texts, optimization)), capture_output=True, check=True, env=environment)
        return pickle.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, pickle.UnpicklingError, EOFError):
        return _generated(texts, optimization)
