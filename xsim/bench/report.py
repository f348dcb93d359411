"""What a measurement looks like: a table, JSON, a curve over the batch."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from pathlib import Path

from xsim.bench.compare import Column, Settings

__all__ = ["aligned", "as_json", "curve", "rate", "rates", "table"]


def rates(column: Column, settings: Settings) -> dict:
    """The numbers of a column: steps per second (environments x steps / median seconds), cost, ratios; None where not measured."""
    work = settings.batch * settings.steps
    forward, gradient = column.median("forward"), column.median("gradient")
    cost = column.cost

    def of(what: str, key: str):
        return cost.get(what, {}).get(key)

    return {
        "steps_per_s": work / forward if forward else None,
        "gradient_steps_per_s": work / gradient if gradient else None,
        "gradient_over_forward": gradient / forward if gradient and forward else None,
        "trace_s": of("forward", "trace_s"),
        "compile_s": of("forward", "compile_s"),
        "gradient_trace_s": of("gradient", "trace_s"),
        "gradient_compile_s": of("gradient", "compile_s"),
        "bytes_per_env": of("forward", "bytes_per_env"),
        "gradient_bytes_per_env": of("gradient", "bytes_per_env"),
        "kernels_per_step": _total(of("forward", "kernels")),
        "gradient_kernels_per_step": _total(of("gradient", "kernels")),
    }


def _total(kernels: dict[str, float] | None) -> float | None:
    return None if kernels is None else sum(kernels.values())


# ---- table -------------------------------------------------------------------------------------------------------------------


def rate(x: float) -> str:
    """Steps per second as text."""
    for factor, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if x >= factor:
            return f"{x / factor:.3g}{unit}"
    return f"{x:.3g}"


ROWS: tuple[tuple[str, str, Callable[[float], str], bool], ...] = (
    ("steps/s", "steps_per_s", rate, False),
    ("gradient steps/s", "gradient_steps_per_s", rate, True),
    ("gradient time / forward time", "gradient_over_forward", "{:.2f}".format, True),
    ("trace, s", "trace_s", "{:.2f}".format, False),
    ("compile, s", "compile_s", "{:.2f}".format, False),
    ("gradient: trace, s", "gradient_trace_s", "{:.2f}".format, True),
    ("gradient: compile, s", "gradient_compile_s", "{:.2f}".format, True),
    ("bytes per environment", "bytes_per_env", "{:.0f}".format, False),
    ("gradient: bytes per environment", "gradient_bytes_per_env", "{:.0f}".format, True),
    ("kernels per step", "kernels_per_step", "{:.3g}".format, False),
    ("gradient: kernels per step", "gradient_kernels_per_step", "{:.3g}".format, True),
)


def table(settings: Settings, columns: list[Column]) -> str:
    """The report of one batch size."""
    if not columns:
        return "nothing was measured"
    numbers = {c.name: rates(c, settings) for c in columns}
    lines = [_heading(settings, columns), ""]
    rows = [["", *(c.name for c in columns)]]
    for label, key, show, gradient in ROWS:
        if settings.gradient or not gradient:
            rows.append([label, *("-" if numbers[c.name][key] is None else show(numbers[c.name][key]) for c in columns)])
    for label, key in (("xsim is faster by", "steps_per_s"), ("gradient: xsim is faster by", "gradient_steps_per_s")):
        if len(columns) > 1 and (settings.gradient or key == "steps_per_s"):
            rows.append([label, *(_ratio(numbers, c.name, key) for c in columns)])
    if len(columns) > 1:
        rows.append(["final q differs from xsim by", *("-" if c.deviation is None else f"{c.deviation:.1e}" for c in columns)])
    rows.append(["timed runs", *("/".join(str(len(c.seconds.get(w, ()))) for w in settings.whats) for c in columns)])
    lines += [*aligned(rows), ""]
    for c in columns:
        lines += _notes(c)
    return "\n".join(lines)


def aligned(rows: list[list[str]]) -> list[str]:
    """The lines of a table: the first column to the left, the others to the right."""
    widths = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    return ["  ".join(x.ljust(w) if i == 0 else x.rjust(w) for i, (x, w) in enumerate(zip(r, widths, strict=True))) for r in rows]


def _ratio(numbers: dict, name: str, key: str) -> str:
    xsim, other = numbers.get("xsim", {}).get(key), numbers[name][key]
    return "-" if name == "xsim" or not xsim or not other else f"{xsim / other:.2f}x"


def _heading(settings: Settings, columns: list[Column]) -> str:
    about = next((c.about for c in columns if c.about), {})
    size = f" (nq {about['nq']}, nv {about['nv']}, integrator {about['integrator']})" if "nq" in about else ""
    return (
        f"{Path(settings.model).name}{size}: {settings.batch} environments x {settings.steps} steps, {settings.dtype}\n"
        f"device: {about.get('device', 'unknown')}; Python {platform.python_version()}\n"
        f"medians of up to {settings.repeat} runs, engines in turns"
    )


def _notes(column: Column) -> list[str]:
    about = column.about
    text = "; ".join(f"{k} {v}" for k, v in sorted(about.get("versions", {}).items()))
    cores = f"; divided among {about['cores']} devices" if about.get("cores", 1) > 1 else ""
    lines = [f"{column.name}: {text or 'not started'}" + (f"; model {about['model']}" if "model" in about else "") + cores]
    if "note" in about:
        lines.append(f"  {about['note']}")
    for what, cost in column.cost.items():
        if cost.get("kernels"):
            kernels = sorted(cost["kernels"].items(), key=lambda x: -x[1])
            lines.append(f"  {what} kernels per step: " + ", ".join(f"{n:.3g} {k}" for k, n in kernels))
    return lines + [f"  {phase} failed: {reason}" for phase, reason in column.failed.items()]


# ---- JSON and curve ------------------------------------------------------------------------------------------------------------


def as_json(runs: list[tuple[Settings, list[Column]]], complete: bool) -> dict:
    """Everything measured: one entry of ``runs`` per batch size. ``complete`` is false where the measurement was interrupted."""
    out = []
    for settings, columns in runs:
        engines = {c.name: {**rates(c, settings), **dataclasses.asdict(c)} for c in columns}
        shown = dataclasses.asdict(settings)
        shown.pop("peer_python")
        out.append({"settings": {**shown, "model": Path(settings.model).name}, "engines": engines})
    return {"complete": complete, "python": platform.python_version(), "machine": platform.machine(), "runs": out}


def curve(runs: list[tuple[Settings, list[Column]]], path) -> None:
    """Steps per second over the batch, one line per engine, gradients dashed. Needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = list(dict.fromkeys(c.name for _, columns in runs for c in columns))
    for i, name in enumerate(names):
        for key, style, label in (("steps_per_s", "-o", name), ("gradient_steps_per_s", "--s", f"{name}, gradient")):
            points = [(s.batch, rates(c, s)[key]) for s, columns in runs for c in columns if c.name == name]
            points = [p for p in points if p[1] is not None]
            if points:
                axes.plot(*zip(*points, strict=True), style, color=f"C{i}", label=label)
    axes.set(xscale="log", yscale="log", xlabel="environments", ylabel="steps/s", title=Path(runs[0][0].model).stem if runs else "")
    axes.grid(True, which="both", alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    figure.savefig(path, dpi=150)
