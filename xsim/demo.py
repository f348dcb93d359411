"""``python -m xsim``: a demo. Simulates thousands of randomized copies of a model, checks their gradient, writes a picture and a page."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from tqdm import tqdm

from xsim import viewer
from xsim.dynamics.initial_state import init
from xsim.dynamics.queries import integrate
from xsim.dynamics.sharding import use_accelerators
from xsim.dynamics.step import rollout
from xsim.load import load
from xsim.model.model import Flags, Model, State
from xsim.randomize import randomize

SEGMENTS = 20
"""Calls of the rollout program; the progress bar is updated after each."""
VISIBLE_COPIES = 9
"""Copies in the picture and on the page."""
RANGES = {"dof.damping": {"log_uniform": [0.5, 2.0], "relative": "scale"}}


def parser() -> argparse.ArgumentParser:
    """The command line."""
    p = argparse.ArgumentParser("python -m xsim", description=__doc__)
    p.add_argument("--model", default="chain", help="bundled model or file (default: %(default)s)")
    p.add_argument("--num", type=_positive, default=4096, help="randomized copies (default: %(default)s)")
    p.add_argument("--steps", type=_positive, default=400, help="steps of the rollout (default: %(default)s)")
    p.add_argument("--output", type=Path, default=Path("xsim-demo"), metavar="DIR", help="folder of the output (default: %(default)s)")
    p.add_argument("--seed", type=int, default=0)
    return p


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return value


def compiled(what: str, fn: Callable, *args, donate: tuple[int, ...] = ()) -> tuple[Any, float]:
    """The compiled program of ``fn`` for these arguments, and the time to trace and compile it, s. what: its name in the output."""
    print(f"compiling the {what} (seconds to a minute) ...", flush=True)
    begin = time.perf_counter()
    program = jax.jit(fn, donate_argnums=donate).lower(*args).compile()
    return program, time.perf_counter() - begin


class Timing(NamedTuple):
    """Times of a program, s. steps: environment steps of the run."""

    compile_s: float
    run_s: float
    steps: int

    def __str__(self) -> str:
        return f"compiled in {self.compile_s:.1f} s, {self.steps / self.run_s:,.0f} steps/s"


def run(model: Model, state: State, steps: int) -> tuple[State, jax.Array, Timing]:
    """Simulate in segments, with a progress bar. The arrays of ``state`` are donated.

    Returns the final state, the configurations of the visible copies after every step (steps, copies, nq), and the times.
    """
    length = -(-steps // SEGMENTS)
    segments = -(-steps // length)
    work = length * state.q.shape[0]

    def segment(model, state):
        state, q = rollout(model, state, steps=length, record=lambda state, data: state.q)
        return state, q[:, :VISIBLE_COPIES]

    program, compile_s = compiled("rollout", segment, model, state, donate=(1,))
    trajectories = []
    begin = time.perf_counter()
    with tqdm(total=segments * work, unit=" steps", unit_scale=True, desc="rollout") as bar:
        for _ in range(segments):
            state, q = jax.block_until_ready(program(model, state))
            trajectories.append(q)
            bar.update(work)
    timing = Timing(compile_s, time.perf_counter() - begin, segments * work)
    return state, jnp.concatenate(trajectories), timing


def first_copies(model: Model, num: int) -> Model:
    """The model of the first ``num`` copies."""
    return model.replace({p: model.get(p)[:num] for p in model.batched_paths()})


def random_state(model: Model, num: int, seed: int) -> State:
    """Every copy at rest in a random configuration near the initial one."""
    displacement = 0.3 * jax.random.normal(jax.random.key(seed + 1), (num, model.nv), model.option.dt.dtype)
    return init(model, integrate(model, init(model).q, displacement))


# ---- gradient ----------------------------------------------------------------------------------------------------------------


def loss(inputs, model: Model, state: State):
    """Mean over the copies of the squared final velocity. inputs: initial q and v, forces of every step, damping."""
    q, v, taus, damping = inputs
    final, _ = rollout(model.replace({"dof.damping": damping}), state.replace(q=q, v=v), taus=taus)
    return jnp.mean(jnp.sum(final.v**2, -1))


class GradientCheck(NamedTuple):
    """The gradient of `loss` and its check along a random direction on the configuration manifold.

    norms: of the gradient, per input. directional_derivative: by the gradient. difference: by a central difference.
    """

    timing: Timing
    norms: dict[str, float]
    directional_derivative: float
    difference: float


def differentiate(model: Model, state: State, steps: int, seed: int) -> GradientCheck:
    """The gradient with respect to initial state, forces and damping, timed and compared with a central difference."""
    taus = jnp.zeros((steps, *state.v.shape), state.v.dtype)
    inputs = (state.q, state.v, taus, model.get("dof.damping"))
    program, compile_s = compiled("gradient of the rollout", jax.value_and_grad(loss), inputs, model, state)
    jax.block_until_ready(program(inputs, model, state))
    begin = time.perf_counter()
    _, gradient = jax.block_until_ready(program(inputs, model, state))
    timing = Timing(compile_s, time.perf_counter() - begin, steps * state.q.shape[0])
    norms = {n: float(jnp.linalg.norm(g.ravel())) for n, g in zip(("q", "v", "forces", "damping"), gradient, strict=True)}
    tangent = _direction(model, inputs, seed)
    derivative = sum(float(jnp.sum(g * t)) for g, t in zip(gradient, tangent, strict=True))
    # A float32 sum over thousands of copies has about six digits. This step balances rounding and truncation errors.
    h = 3e-3 if state.q.dtype == jnp.float32 else 1e-5
    ends = [float(program(tuple(x + s * h * t for x, t in zip(inputs, tangent, strict=True)), model, state)[0]) for s in (1, -1)]
    return GradientCheck(timing, norms, derivative, (ends[0] - ends[1]) / (2 * h))


def _direction(model: Model, inputs, seed: int):
    """A random direction of the inputs, the same for all copies, so that their derivatives do not cancel.

    q along a velocity, damping relative to its value."""
    q, v, taus, damping = inputs
    shared = jax.random.normal(jax.random.key(seed + 2), (model.nv,), v.dtype)
    q_direction = jax.jvp(lambda dv: integrate(model, q, dv), (jnp.zeros_like(v),), (jnp.broadcast_to(shared, v.shape),))[1]
    return q_direction, jnp.broadcast_to(shared, v.shape), jnp.broadcast_to(0.1 * shared, taus.shape), damping


# ---- the command --------------------------------------------------------------------------------------------------------------


def _device() -> str:
    device = jax.devices()[0]
    name = platform.processor() or platform.machine() if device.platform == "cpu" else device.device_kind
    return f"{device.platform} ({name}), jax {jax.__version__}, Python {platform.python_version()}"


def main(argv: list[str] | None = None) -> int:
    """Run the demo. Returns the exit status: 0, or 1 if the gradient check fails."""
    args = parser().parse_args(argv)
    begin = time.perf_counter()
    use_accelerators()
    print(f"device: {_device()}")
    print(f"loading {args.model} and randomizing {args.num} copies ...", flush=True)
    model = randomize(load(args.model), jax.random.key(args.seed), args.num, RANGES)
    leaves = ", ".join(model.batched_paths())
    print(f"model: {args.model}, {args.num} copies that differ in {leaves} (nq {model.nq}, nv {model.nv})", flush=True)

    start = random_state(model, args.num, args.seed)
    # A copy, because the rollout donates its arrays.
    final, q, timing = run(model, jax.tree.map(jnp.copy, start), args.steps)
    diverged = int(jnp.sum(final.flags & Flags.DIVERGED != 0))
    print(f"rollout: {timing}; {diverged} of {args.num} copies diverged", flush=True)

    result = differentiate(model, start, min(args.steps, 50), args.seed)
    print(f"gradient: {result.timing}")
    print("gradient of the mean squared final velocity, norm: " + ", ".join(f"{k} {x:.3g}" for k, x in result.norms.items()))
    error = abs(result.directional_derivative - result.difference) / max(abs(result.difference), 1e-6)
    good = error < 0.02
    verdict = "ok" if good else "WRONG"
    numbers = f"derivative along a random direction {result.directional_derivative:.5g}, finite difference {result.difference:.5g}"
    print(f"check: {numbers}: {verdict}", flush=True)

    print("drawing ...", flush=True)
    args.output.mkdir(parents=True, exist_ok=True)
    for write, name in ((viewer.picture, "motion.png"), (viewer.save, "motion.html")):
        try:
            print(f"wrote {write(first_copies(model, VISIBLE_COPIES), q, args.output / name)}")
        except ImportError as missing:
            print(f"no {name}: {missing}")
    print(f"done in {time.perf_counter() - begin:.0f} s")
    return 0 if good else 1

