"""``python -m xsim.view FILE``: simulate a model file from its initial state and show the motion in a browser.

With ``--live`` the browser shows the simulation while it runs, and changes it (`xsim.viewer.live`)."""

from __future__ import annotations

import argparse
import sys
import tempfile
import webbrowser
from pathlib import Path

import jax
import jax.numpy as jnp

from xsim import models
from xsim.compile.announcement import announced
from xsim.compile.persistent_cache import use_compilation_cache
from xsim.dynamics.initial_state import init
from xsim.dynamics.step import rollout
from xsim.io.errors import ParseError
from xsim.load import load
from xsim.model.model import Flags, Model
from xsim.viewer.frames import save_motion
from xsim.viewer.live import LiveViewer


def trajectory(model: Model, steps: int, *, envs: int = 1, velocity: float = 0.0, seed: int = 0):
    """Simulate from the start state: q of the start and after every step, (steps + 1, envs, nq), and the flags (envs,), see `Flags`.

    steps: number of time steps; 0 gives the start alone. envs: environments side by side. velocity: standard deviation of the random start
    velocities, m/s and rad/s. seed: of these velocities.
    """
    dtype = model.option.dt.dtype
    state = init(model, v=velocity * jax.random.normal(jax.random.key(seed), (envs, model.nv), dtype))
    if steps == 0:
        return state.q[None], state.flags
    run = jax.jit(lambda s: rollout(model, s, steps=steps, record=lambda state, data: state.q, checkpoint=False))
    with announced(f"the rollout of {model.topology.name or 'the model'}"):
        final, q = run(state)
    return jnp.concatenate([state.q[None], q]), final.flags


def main(arguments: list[str] | None = None) -> int:
    """The command. Returns the exit status: 0, or 1 where the file cannot be read, the page cannot be written, or a library is
    missing.

    arguments: those of the command line; None: those of the process.
    """
    options = _parser().parse_args(arguments)
    try:
        model = load(options.file, format=options.format, seed=options.seed)
        if options.live:
            _serve(model, options)
        else:
            _show(_write(model, options), options)
    except (ParseError, ValueError, OSError, ImportError, RuntimeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _serve(model: Model, options) -> None:
    """Simulate in real time until the process is interrupted."""
    state = None
    if options.velocity:
        state = init(model, v=options.velocity * jax.random.normal(jax.random.key(options.seed), (model.nv,), model.option.dt.dtype))
    viewer = LiveViewer(model, state, port=options.port)
    if not options.no_open:
        webbrowser.open(viewer.url)
    viewer.serve()


def _write(model: Model, options) -> Path:
    """Simulate, and write the motion."""
    dt = float(model.option.dt)
    steps = max(0, round(options.seconds / dt)) if options.steps is None else options.steps
    velocity = options.velocity if options.velocity is not None else (1.0 if options.envs > 1 else 0.0)
    print(f"{options.file}: {len(model.body_names)} bodies, {model.nv} degrees of freedom; {steps} steps of {dt:g} s", flush=True)
    q, flags = trajectory(model, steps, envs=options.envs, velocity=velocity, seed=options.seed)
    _report(flags)
    path = save_motion(model, q, _output(options), envs=options.envs, title=model.topology.name or Path(options.file).stem)
    print(f"wrote {path}")
    return path


def _show(path: Path, options) -> None:
    if not options.no_open and not webbrowser.open(path.resolve().as_uri()):
        print("no browser could be opened: open the file yourself", file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m xsim.view", description="Simulate a model file and show it in a browser.")
    parser.add_argument("file", metavar="FILE", help=f"a model file, or a bundled model: {', '.join(models.names())}")
    parser.add_argument("--format", help="format of the file (default: determined from the file)")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=_at_least(0, int), metavar="N", help="number of time steps; 0 shows the initial state")
    length.add_argument("--seconds", type=_at_least(0, float), default=5.0, metavar="S", help="simulated time (default: 5)")
    parser.add_argument("--output", type=Path, metavar="FILE", help="a page, or a film .gif, .mp4 (default: a temporary page)")
    parser.add_argument("--no-open", action="store_true", help="only write the page, or serve it")
    parser.add_argument("--live", action="store_true", help="simulate in real time, with a panel that changes the simulation")
    parser.add_argument("--port", type=int, default=8080, metavar="P", help="port of --live (default: 8080, or the next free one)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default: 0)")
    parser.add_argument("--envs", type=_at_least(1, int), default=1, metavar="K", help="environments side by side (default: 1)")
    parser.add_argument("--velocity", type=_at_least(0, float), metavar="X",
                        help="random initial velocity, m/s and rad/s (default: 0, or 1 with several environments)")  # fmt: skip
    return parser


def _at_least(low: float, kind: type):
    def number(text: str):
        value = kind(text)
        if not low <= value < float("inf"):
            raise argparse.ArgumentTypeError(f"must be {low} or more, found {text}")
        return value

    number.__name__ = "number" if kind is float else "whole number"
    return number


def _output(options) -> Path:
    if options.output is not None:
        return options.output
    with tempfile.NamedTemporaryFile(prefix="xsim-", suffix=".html", delete=False) as file:
        return Path(file.name)


def _report(flags) -> None:
    for bit, text in ((Flags.DIVERGED, "diverged"), (Flags.SINGULAR, "met a singular mass matrix")):
        count = int(((flags & bit) != 0).sum())
        if count:
            print(f"warning: {count} of {flags.size} environments {text}", file=sys.stderr)


if __name__ == "__main__":
    use_compilation_cache()
    sys.exit(main())
