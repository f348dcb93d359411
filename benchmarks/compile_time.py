"""Seconds to compile and to run a rollout of the bundled chain and its gradient, in one process.

    python benchmarks/compile_time.py [--num 4096] [--steps 50]
"""

import argparse
import statistics
import time

import jax
import jax.numpy as jnp

from xsim import __main__ as demo
from xsim import randomize, rollout

REPEATS = 5


def measured(name: str, fn, *args) -> None:
    """Print what tracing, compiling and a run (median) take."""
    begin = time.perf_counter()
    lowered = jax.jit(fn).lower(*args)
    traced = time.perf_counter()
    program = lowered.compile()
    compiled = time.perf_counter()
    jax.block_until_ready(program(*args))
    runs = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(program(*args))
        runs.append(time.perf_counter() - start)
    print(f"{name}: trace {traced - begin:.1f} s, compile {compiled - traced:.1f} s, run {statistics.median(runs):.3f} s", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--num", type=int, default=4096)
    p.add_argument("--steps", type=int, default=50)
    args = p.parse_args()
    print(f"jax {jax.__version__}, {args.num} environments, {args.steps} steps")
    model = randomize(demo.find("chain"), jax.random.key(0), args.num, demo.RANGES)
    start = demo.scattered(model, args.num, 0)
    taus = jnp.zeros((args.steps, *start.v.shape), start.v.dtype)
    measured("rollout", lambda m, s: rollout(m, s, steps=args.steps, record=lambda now, _: now.q), model, start)
    measured("gradient", jax.value_and_grad(demo.loss), (start.q, start.v, taus, model.get("dof.damping")), model, start)


if __name__ == "__main__":
    main()
