"""The process of one engine: reads commands as lines of JSON, answers each with one line.

``{"do": "start", "job": {...}}``, ``{"do": "compile", "what": "forward"}``, ``{"do": "run", "what": "forward"}`` (one timed run),
``{"do": "final"}`` (what the last forward run ended with), ``{"do": "note"}`` (`Engine.note`), end of input: leave. Answers are
``{"ok": ...}`` or ``{"error": text}``.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np

from xsim.bench.measure import Program, timed
from xsim.bench.peers import Engine, Unsupported, load_engine

__all__ = ["main"]


class Worker:
    """What the process keeps between commands."""

    engine: Engine
    job: dict

    def __init__(self):
        self.programs: dict[str, Program] = {}
        self.last = None

    def start(self, job: dict) -> dict:
        if job["confined"] is not None:  # before JAX starts its threads
            cores = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, [cores[i] for i in job["confined"]])
        self.job, self.engine = job, load_engine(job)
        return self.engine.about

    def compile(self, what: str) -> dict:
        self.programs[what] = self.engine.compile(what)
        return self.programs[what].cost

    def run(self, what: str) -> float:
        seconds, result = timed(self.programs[what])
        if what == "forward":
            self.last = result
        return seconds

    def final(self) -> str:
        file = Path(self.job["folder"]) / f"{self.job['column']}.npy"
        np.save(file, self.engine.to_xsim(self.last))
        return str(file)

    def note(self) -> str | None:
        return self.engine.note and self.engine.note()


def main() -> None:
    """Serve commands until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an engine prints must not stand between the answers
    worker = Worker()
    for line in sys.stdin:
        command = json.loads(line)
        try:
            answer = {"ok": getattr(worker, command.pop("do"))(**command)}
        except Unsupported as error:
            answer = {"error": str(error)}
        except ModuleNotFoundError as error:
            answer = {"error": f"not installed: {error.name}"}
        except Exception as error:  # an engine may raise anything; the parent reports it
            answer = {"error": f"{type(error).__name__}: {_first_line(error)}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), "")[:300]


if __name__ == "__main__":
    main()
