"""``python -m xsim.bench --scaling devices``: steps per second on 1, 2, 4, ... devices.

Strong scaling keeps the number of environments, weak scaling keeps it on each device. The efficiency is the speed divided by that of one
device and by the number of devices. On a CPU a device is a core, and a process may use no other cores. For comparison, separate processes
run at the same time on a device each: cores share caches, clocks and, on a rented machine, much else, so this is what the devices give.
"""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from xsim.bench.compare import Column, Process, Settings, prepare_column, run_once
from xsim.bench.report import aligned, rate, rates
from xsim.bench.report import as_json as runs_as_json

__all__ = ["Run", "as_json", "counts", "measure", "picture", "table"]

KEYS = {"forward": "steps_per_s", "gradient": "gradient_steps_per_s"}


@dataclass
class Run:
    """A number of devices with ``strong`` or ``weak`` scaling, or as many ``separate`` processes, whose runs are ``members``."""

    mode: str
    devices: int
    settings: Settings
    column: Column
    members: list[Run] = field(default_factory=list)

    def rate(self, what: str) -> float | None:
        """Steps per second."""
        return rates(self.column, self.settings)[KEYS[what]]


def measure(settings: Settings, runs: list[Run], say: Callable[[str], None]) -> None:
    """Measure all numbers of devices in turns, appending to ``runs``: what an interruption leaves there is what was measured."""
    platform, available = _platform(settings)
    settings, whats = dataclasses.replace(settings, peers=(), freeze=()), settings.whats
    runs.append(_run(settings, platform, "strong", (0,)))
    for count in counts(available)[1:]:
        runs += [_run(settings, platform, mode, tuple(range(count))) for mode in ("strong", "weak")]
        runs.append(_separate(settings, platform, count))
    with tempfile.TemporaryDirectory() as folder:
        processes: dict[str, Process] = {}
        try:
            for run in runs:
                for member in run.members or [run]:
                    prepare_column(member.settings, member.column, processes, folder, whats, say)
            for turn in range(settings.repeat):
                for run in runs:
                    for what in whats:
                        _turn(run, what, processes, f"run {turn + 1} of {settings.repeat}", say)
        finally:
            for process in processes.values():
                process.close()


def _turn(run: Run, what: str, processes: dict[str, Process], label: str, say) -> None:
    """A timed run. Separate processes run at the same time; it lasts as long as the slowest."""
    members = run.members or [run]
    with ThreadPoolExecutor(len(members)) as pool:
        list(pool.map(lambda member: run_once(member.column, what, processes, label, say), members))
    for member in run.members:
        run.column.about, run.column.failed = member.column.about, run.column.failed | member.column.failed
    if run.members and not run.column.failed:
        run.column.seconds.setdefault(what, []).append(max(member.column.seconds[what][-1] for member in run.members))


def counts(available: int) -> list[int]:
    """Numbers of devices: powers of 2 below those that are available, and these."""
    found = [1]
    while found[-1] * 2 < available:
        found.append(found[-1] * 2)
    return found if available == 1 else [*found, available]


def _platform(settings: Settings) -> tuple[str, int]:
    """JAX's platform, and how many devices there are: on a CPU the cores that may be used."""
    ask = [sys.executable, "-c", "import jax; print(jax.default_backend(), jax.device_count())"]
    platform, count = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()
    return platform, settings.cores if platform == "cpu" else int(count)


def _run(settings: Settings, platform: str, mode: str, which: tuple[int, ...], name: str | None = None) -> Run:
    """A run on some of the devices. name: of its column."""
    count = len(which)
    batch = settings.batch * (count if mode == "weak" else 1)
    division = {"cores": count, "confined": which} if platform == "cpu" else {"devices": which}
    name = name or f"{count} {'core' if platform == 'cpu' else 'device'}{'s' if count > 1 else ''}, {mode}"
    return Run(mode, count, dataclasses.replace(settings, batch=batch, **division), Column(name, "xsim"))


def _separate(settings: Settings, platform: str, count: int) -> Run:
    """Processes that know nothing of each other, on a device each."""
    name, whole = f"{count} separate processes", dataclasses.replace(settings, batch=settings.batch * count)
    members = [_run(settings, platform, "strong", (i,), f"{name}: {i}") for i in range(count)]
    return Run("separate", count, whole, Column(name, "xsim"), members)


def _efficiency(runs: list[Run], run: Run, what: str) -> float | None:
    """The speed over that of one device times the number of devices."""
    one, speed = runs[0].rate(what), run.rate(what)
    return speed / (one * run.devices) if one and speed else None


# ---- report --------------------------------------------------------------------------------------------------------------------


def table(runs: list[Run]) -> str:
    """The report."""
    if not runs:
        return "nothing was measured"
    settings, about = runs[0].settings, next((run.column.about for run in runs if run.column.about), {})
    rows = [["", "environments", *(x for what in settings.whats for x in (f"{what}, steps/s", "efficiency"))]]
    for run in runs:
        numbers = [(run.rate(what), _efficiency(runs, run, what)) for what in settings.whats]
        texts = [x for speed, part in numbers for x in ("-" if speed is None else rate(speed), "-" if part is None else f"{part:.2f}")]
        rows.append([run.column.name, str(run.settings.batch), *texts])
    heading = f"{Path(settings.model).name}: {settings.steps} steps, {settings.dtype}, medians of up to {settings.repeat} runs in turns"
    failed = [f"{run.column.name}: {phase} failed: {reason}" for run in runs for phase, reason in run.column.failed.items()]
    return "\n".join([heading, f"device: {about.get('device', 'unknown')}", "", *aligned(rows), *failed])


def as_json(runs: list[Run], complete: bool) -> dict:
    """Everything measured."""
    out = runs_as_json([(run.settings, [run.column]) for run in runs], complete)
    for entry, run in zip(out["runs"], runs, strict=True):
        entry |= {"scaling": run.mode, "devices": run.devices, "efficiency": {what: _efficiency(runs, run, what) for what in KEYS}}
    return out


def picture(runs: list[Run], path) -> None:
    """Efficiency over the number of devices, gradients dashed. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for i, mode in enumerate(("strong", "weak", "separate")):
        for what, style in (("forward", "-o"), ("gradient", "--s")):
            points = [(run.devices, _efficiency(runs, run, what)) for run in runs if run.mode == mode or run.devices == 1]
            points = [point for point in points if point[1] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), style, color=f"C{i}", label=f"{mode}, {what}")
    axes.set(xscale="log", xlabel="devices", ylabel="efficiency", ylim=(0, 1.2), title=Path(runs[0].settings.model).stem if runs else "")
    axes.set_xticks(devices := sorted({run.devices for run in runs}), [str(x) for x in devices])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    figure.savefig(path, dpi=150)
