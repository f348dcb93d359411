"""``python -m xsim``: thousands of randomized copies of a model in motion, their gradient, a picture and a page to watch."""

from __future__ import annotations

import argparse
import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from tqdm import tqdm

from xsim import models
from xsim.dynamics.initial_state import init
from xsim.dynamics.queries import integrate
from xsim.dynamics.sharding import use_cores
from xsim.dynamics.step import rollout
from xsim.load import load
from xsim.model.model import Flags, Model, State
from xsim.randomize import randomize
from xsim.viewer import viewer

SEGMENTS = 20
SHOWN = 9  # copies on the page
RANGES = {"dof.damping": {"log_uniform": [0.5, 2.0], "relative": "scale"}}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("python -m xsim", description=__doc__)
    p.add_argument("--model", default="chain", help="bundled model or file (default: %(default)s)")
    p.add_argument("--num", type=_positive, default=4096, help="randomized copies (default: %(default)s)")
    p.add_argument("--steps", type=_positive, default=400, help="steps of the rollout (default: %(default)s)")
    p.add_argument("--output", type=Path, default=Path("xsim-demo"), metavar="DIR", help="where the pictures go (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0)
    return p


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def find(name: str) -> Model:
    """A bundled model by name, or a file."""
    return load(models.path(name) if name in models.names() else name)


def compiled(what: str, fn: Callable, *args, donate: tuple[int, ...] = ()) -> tuple[Any, float]:
    """The program of ``fn`` for these arguments, and the seconds of tracing and compiling it. what: its name for the user."""
    print(f"compiling the {what} (seconds to a minute) ...", flush=True)
    begin = time.perf_counter()
    program = jax.jit(fn, donate_argnums=donate).lower(*args).compile()
    return program, time.perf_counter() - begin


class Timing(NamedTuple):
    """What a program took. steps: environment steps of the run."""

    compile_s: float
    run_s: float
    steps: int

    def __str__(self) -> str:
        return f"compiled in {self.compile_s:.1f} s, {self.steps / self.run_s:,.0f} steps/s"


def run(model: Model, state: State, steps: int) -> tuple[State, jax.Array, Timing]:
    """Roll out by one program for a segment, called under a progress bar; ``state`` is donated.

    Returns the final state and the configurations of the first few copies after every step: (steps, copies, nq).
    """
    length = -(-steps // SEGMENTS)
    segments = -(-steps // length)
    work = length * state.q.shape[0]

    def segment(model, state):
        state, q = rollout(model, state, steps=length, record=lambda now, data: now.q)
        return state, q[:, :SHOWN]

    program, compile_s = compiled("rollout", segment, model, state, donate=(1,))
    shown = []
    begin = time.perf_counter()
    with tqdm(total=segments * work, unit=" steps", unit_scale=True, desc="rollout") as bar:
        for _ in range(segments):
            state, q = jax.block_until_ready(program(model, state))
            shown.append(q)
            bar.update(work)
    timing = Timing(compile_s, time.perf_counter() - begin, segments * work)
    return state, jnp.concatenate(shown), timing


def first(model: Model, num: int) -> Model:
    """The model of the first few copies."""
    return model.replace({p: model.get(p)[:num] for p in differing(model)})


def scattered(model: Model, num: int, seed: int) -> State:
    """Every copy at rest in a configuration of its own around the neutral one."""
    away = 0.3 * jax.random.normal(jax.random.key(seed + 1), (num, model.nv), model.option.dt.dtype)
    return init(model, integrate(model, init(model).q, away))


def differing(model: Model) -> list[str]:
    """Paths of the leaves that differ between copies."""
    return [p for p in model.paths() if model.get(p).ndim > len(model.shape(p))]


# ---- gradient ----------------------------------------------------------------------------------------------------------------


def loss(inputs, model: Model, state: State):
    """Mean over the copies of the squared final velocity, of (start q, start v, forces of every step, damping)."""
    q, v, taus, damping = inputs
    final, _ = rollout(model.replace({"dof.damping": damping}), state.replace(q=q, v=v), taus=taus)
    return jnp.mean(jnp.sum(final.v**2, -1))


class Differentiated(NamedTuple):
    """The gradient of `loss` and a check of it along one random direction. q moves on the configuration manifold."""

    timing: Timing
    norms: dict[str, float]
    slope: float
    difference: float


def differentiate(model: Model, state: State, steps: int, seed: int) -> Differentiated:
    """The gradient with respect to start state, forces and damping, timed and checked against a central difference."""
    taus = jnp.zeros((steps, *state.v.shape), state.v.dtype)
    inputs = (state.q, state.v, taus, model.get("dof.damping"))
    program, compile_s = compiled("gradient of the rollout", jax.value_and_grad(loss), inputs, model, state)
    jax.block_until_ready(program(inputs, model, state))
    begin = time.perf_counter()
    _, gradient = jax.block_until_ready(program(inputs, model, state))
    timing = Timing(compile_s, time.perf_counter() - begin, steps * state.q.shape[0])
    norms = {n: float(jnp.linalg.norm(g.ravel())) for n, g in zip(("q", "v", "forces", "damping"), gradient, strict=True)}
    tangent = _direction(model, inputs, seed)
    slope = sum(float(jnp.sum(g * t)) for g, t in zip(gradient, tangent, strict=True))
    # float32 sums of thousands of copies carry about six digits: this step balances round-off and curvature.
    h = 3e-3 if state.q.dtype == jnp.float32 else 1e-5
    ends = [float(program(tuple(x + s * h * t for x, t in zip(inputs, tangent, strict=True)), model, state)[0]) for s in (1, -1)]
    return Differentiated(timing, norms, slope, (ends[0] - ends[1]) / (2 * h))


def _direction(model: Model, inputs, seed: int):
    """A direction of the inputs that every copy shares (so that slopes add up, not cancel): q along a velocity, damping by its size."""
    q, v, taus, damping = inputs
    shared = jax.random.normal(jax.random.key(seed + 2), (model.nv,), v.dtype)
    along = jax.jvp(lambda dv: integrate(model, q, dv), (jnp.zeros_like(v),), (jnp.broadcast_to(shared, v.shape),))[1]
    return along, jnp.broadcast_to(shared, v.shape), jnp.broadcast_to(0.1 * shared, taus.shape), damping


# ---- the whole ---------------------------------------------------------------------------------------------------------------


def _device() -> str:
    device = jax.devices()[0]
    name = platform.processor() or platform.machine() if device.platform == "cpu" else device.device_kind
    return f"{device.platform} ({name}), jax {jax.__version__}, Python {platform.python_version()}"


def main(argv: list[str] | None = None) -> int:
    """Run the demo. Returns the exit status: 1 where the gradient check failed."""
    args = parser().parse_args(argv)
    begin = time.perf_counter()
    print(f"device: {_device()}")
    print(f"loading {args.model} and randomizing {args.num} copies ...", flush=True)
    model = randomize(find(args.model), jax.random.key(args.seed), args.num, RANGES)
    print(f"model: {args.model}, {args.num} copies that differ in {', '.join(differing(model))} (nq {model.nq}, nv {model.nv})", flush=True)

    start = scattered(model, args.num, args.seed)
    # A copy: what goes into the rollout is donated to it.
    final, q, timing = run(model, jax.tree.map(jnp.copy, start), args.steps)
    diverged = int(jnp.sum(final.flags & Flags.DIVERGED != 0))
    print(f"rollout: {timing}; {diverged} of {args.num} copies diverged", flush=True)

    result = differentiate(model, start, min(args.steps, 50), args.seed)
    print(f"gradient: {result.timing}")
    print("gradient of the mean squared final velocity, norm: " + ", ".join(f"{k} {x:.3g}" for k, x in result.norms.items()))
    error = abs(result.slope - result.difference) / max(abs(result.difference), 1e-6)
    good = error < 0.02
    verdict = "ok" if good else "WRONG"
    print(f"check: slope along a random direction {result.slope:.5g}, finite difference {result.difference:.5g}: {verdict}", flush=True)

    print("drawing ...", flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    for write, name in ((viewer.picture, "motion.png"), (viewer.save, "motion.html")):
        try:
            print(f"wrote {write(first(model, SHOWN), q, args.output / name)}")
        except ImportError as missing:
            print(f"no {name}: {missing}")
    print(f"done in {time.perf_counter() - begin:.0f} s")
    return 0 if good else 1


if __name__ == "__main__":
    use_cores()
    sys.exit(main())
