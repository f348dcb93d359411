"""Runs engines against each other: one process each, timed in turns, killed when they take too long."""

from __future__ import annotations

import functools
import json
import os
import queue
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from xsim.cache import CACHE_VARIABLE
from xsim.compile.choice import compiler

__all__ = ["Column", "Failed", "Process", "Settings", "compare", "prepare_column", "run_once"]


@dataclass(frozen=True)
class Settings:
    """What is measured. cores: number of cores that an engine uses on CPU; those that XLA compiles divide a batch among as many devices.
    confined: which cores the process may use, counted among those that there are; None: all. devices: which GPUs or TPUs xsim uses;
    None: as it does by itself."""

    model: str
    batch: int = 1024
    steps: int = 100
    dtype: str = "float32"
    gradient: bool = True
    freeze: tuple[str, ...] = ()
    randomize: str | None = None
    constraints: bool = False
    integrator: str | None = None
    rules: str | None = None
    repeat: int = 5
    peers: tuple[str, ...] = ()
    peer_python: str = sys.executable
    timeout: float = 600.0
    seed: int = 0
    cores: int = 1
    confined: tuple[int, ...] | None = None
    devices: tuple[int, ...] | None = None
    peer_threads: int | None = None

    @property
    def whats(self) -> tuple[str, ...]:
        """The programs that are timed."""
        return ("forward", "gradient") if self.gradient else ("forward",)


@dataclass
class Column:
    """What was measured of one engine. ``failed``: by phase, why there is no number."""

    name: str
    engine: str
    about: dict = field(default_factory=dict)
    cost: dict[str, dict] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    deviation: float | None = None

    def median(self, what: str) -> float | None:
        """Median seconds of a run, None where there is none."""
        return statistics.median(self.seconds[what]) if self.seconds.get(what) else None


class Failed(Exception):
    """An engine gave no answer or an error; the text says which."""


# A peer's interpreter imports xsim.bench without xsim itself, whose dependencies it may not have.
_PEER = """
import sys, types
package = types.ModuleType("xsim")
package.__path__ = [sys.argv[1]]
sys.modules["xsim"] = package
from xsim.bench.worker import main
main()
"""


class Process:
    """A worker: a child process that answers commands within a time limit."""

    def __init__(self, python: str, is_xsim: bool, settings: Settings):
        root = Path(__file__).resolve().parents[1]
        code = ["-m", "xsim.bench.worker"] if is_xsim else ["-c", _PEER, str(root)]
        paths = [str(root.parent), *filter(None, [os.environ.get("PYTHONPATH")])] if is_xsim else []
        env = {
            **os.environ,
            CACHE_VARIABLE: "",  # the times to compile are those of a first process
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # JAX would otherwise give all memory of a GPU to the first engine
            "JAX_ENABLE_X64": str(int(settings.dtype == "float64")),
            "JAX_NUM_CPU_DEVICES": str(settings.cores),
        }
        if is_xsim:
            env["PYTHONPATH"] = os.pathsep.join(paths)
            if compiler() != "xla":  # what LLVM compiles uses the threads of one device
                env |= {"JAX_NUM_CPU_DEVICES": "1", "NPROC": str(settings.cores)}
        elif settings.peer_threads is not None:
            env["NPROC"] = str(settings.peer_threads)
        self.timeout = settings.timeout
        self.stopped = False
        self.errors = tempfile.TemporaryFile("w+")
        # In a new session, so that Ctrl-C reaches the parent alone, which then ends the workers.
        try:
            pipe = subprocess.PIPE
            self.child = subprocess.Popen(
                [python, *code], stdin=pipe, stdout=pipe, stderr=self.errors, text=True, env=env, start_new_session=True
            )
        except OSError as error:
            self.errors.close()
            raise Failed(f"cannot start {python}: {error.strerror}") from error
        self.answers: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.child.stdout is not None
        for line in self.child.stdout:
            self.answers.put(line)
        self.answers.put(None)

    def ask(self, do: str, **arguments):
        """The answer to a command. Raises Failed for an error, a dead process, or no answer in time (the process is then killed)."""
        assert self.child.stdin is not None
        if self.stopped:
            raise Failed("the process was stopped before")
        try:
            self.child.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.child.stdin.flush()
            answer = self._wait()
        except queue.Empty:
            self.close()
            raise Failed(f"no answer within {self.timeout:g} s ({do}); stopped") from None
        except OSError:
            answer = None
        if answer is None:
            line = self._last_error_line()
            self.close()
            raise Failed(f"the process ended ({do}): {line}")
        reply = json.loads(answer)
        if "error" in reply:
            raise Failed(reply["error"])
        return reply["ok"]

    def _wait(self) -> str | None:
        """The next answer. Short waits, so that Ctrl-C is noticed on every platform."""
        end = time.monotonic() + self.timeout
        while True:
            try:
                return self.answers.get(timeout=min(0.5, max(0.01, end - time.monotonic())))
            except queue.Empty:
                if time.monotonic() > end:
                    raise

    def _last_error_line(self) -> str:
        code = self.child.wait()
        self.errors.seek(0)
        lines = [x.strip() for x in self.errors.read().splitlines() if x.strip()]
        return lines[-1][:300] if lines else f"exit code {code}"

    def close(self) -> None:
        """End the process. May be called again."""
        self.stopped = True
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()
        for stream in (self.child.stdin, self.child.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass
        if not self.errors.closed:
            self.errors.close()


def compare(settings: Settings, columns: list[Column], say: Callable[[str], None] = lambda text: None) -> None:
    """Measure every engine, appending to ``columns`` as it goes: what an interruption leaves there is what was measured.

    Every process holds its compiled programs; the engines then take turns, one timed run each, ``repeat`` times.
    """
    whats = settings.whats
    with tempfile.TemporaryDirectory() as folder:
        processes: dict[str, Process] = {}
        try:
            for name, engine in _engines(settings):
                column = Column(name, engine)
                columns.append(column)
                prepare_column(settings, column, processes, folder, whats, say)
            for turn in range(settings.repeat):
                for column in columns:
                    for what in whats:
                        run_once(column, what, processes, f"run {turn + 1} of {settings.repeat}", say)
            _deviations(settings, columns, processes)
        finally:
            for process in processes.values():
                process.close()


def _engines(settings: Settings) -> list[tuple[str, str]]:
    columns = [("xsim", "xsim"), *([("xsim frozen", "xsim")] if settings.freeze else [])]
    return columns + [(p, p) for p in settings.peers]


def prepare_column(settings: Settings, column: Column, processes: dict[str, Process], folder: str, whats, say) -> None:
    """Start the process of a column and compile its programs, each run once to warm up."""
    is_xsim = column.engine == "xsim"
    frozen = list(settings.freeze) if column.name == "xsim frozen" else []
    job = {
        "engine": column.engine, "column": column.name.replace(" ", "_"), "model": settings.model, "batch": settings.batch,
        "steps": settings.steps, "freeze": frozen, "randomize": settings.randomize, "constraints": settings.constraints,
        "seed": settings.seed, "integrator": settings.integrator, "rules": settings.rules, "folder": folder,
        "describe": column.name == "xsim", "devices": settings.devices, "confined": settings.confined,
    }  # fmt: skip
    try:
        process = Process(sys.executable if is_xsim else settings.peer_python, is_xsim, settings)
    except Failed as error:
        column.failed["start"] = str(error)
        return
    processes[column.name] = process
    say(f"{column.name}: started (process {process.child.pid})")
    try:
        if not is_xsim and not (Path(folder) / "start.npz").exists():
            raise Failed("xsim could not load the model")
        column.about = process.ask("start", job=job)
    except Failed as error:
        column.failed["start"] = str(error)
        say(f"{column.name}: {error}")
        return
    for what in whats:
        _attempt(column, what, say, functools.partial(_compile, column, process, what, say))


def _compile(column: Column, process: Process, what: str, say) -> None:
    say(f"{column.name}: compiling {what}")
    cost = process.ask("compile", what=what)
    process.ask("run", what=what)
    column.cost[what] = cost


def run_once(column: Column, what: str, processes: dict[str, Process], label: str, say) -> None:
    """A timed run of a column."""
    if what not in column.cost or what in column.failed:
        return
    say(f"{column.name}: {what}, {label}")
    _attempt(column, what, say, lambda: column.seconds.setdefault(what, []).append(processes[column.name].ask("run", what=what)))


def _attempt(column: Column, what: str, say, action: Callable[[], None]) -> None:
    try:
        action()
    except Failed as error:
        column.failed[what] = str(error)
        say(f"{column.name}: {what}: {error}")


def _deviations(settings: Settings, columns: list[Column], processes: dict[str, Process]) -> None:
    """How far each engine's final configurations are from xsim's: largest difference of an environment, median over environments."""
    finals = {}
    for column in columns:
        if column.seconds.get("forward"):
            try:
                finals[column.name] = np.load(processes[column.name].ask("final"))
                column.about |= {"note": note} if (note := processes[column.name].ask("note")) else {}
            except Failed:
                continue
    reference = finals.get("xsim")
    for column in columns:
        if reference is not None and column.name != "xsim" and column.name in finals:
            difference = np.abs(finals[column.name] - reference).max(-1)
            # A peer has the numbers of environment 0 where xsim's environments differ.
            column.deviation = float(difference[0] if settings.randomize is not None else np.median(difference))
