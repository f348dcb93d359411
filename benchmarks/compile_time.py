"""Seconds to compile and to run a rollout of the bundled chain and its gradient, in one process.

    python benchmarks/compile_time.py [--num 4096] [--steps 50]
"""

import argparse
import os
import statistics

os.environ["XSIM_CACHE_DIR"] = ""

import jax
import jax.numpy as jnp

from xsim import demo, load, randomize, rollout
from xsim.bench.measure import compile_program, timed

REPEATS = 5


def measured(name: str, fn, args: tuple, num: int, steps: int) -> None:
    """Print what tracing, compiling and a run (median) take."""
    program = compile_program(fn, args, batch=num, steps=steps)
    program.run()
    run = statistics.median(timed(program)[0] for _ in range(REPEATS))
    print(f"{name}: trace {program.cost['trace_s']:.1f} s, compile {program.cost['compile_s']:.1f} s, run {run:.3f} s", flush=True)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--num", type=int, default=4096)
    p.add_argument("--steps", type=int, default=50)
    args = p.parse_args()
    print(f"jax {jax.__version__}, {args.num} environments, {args.steps} steps")
    model = randomize(load("chain"), jax.random.key(0), args.num, demo.RANGES)
    start = demo.random_state(model, args.num, 0)
    taus = jnp.zeros((args.steps, *start.v.shape), start.v.dtype)
    inputs = (start.q, start.v, taus, model.get("dof.damping"))

    def recorded(model, state):
        return rollout(model, state, steps=args.steps, record=lambda now, _: now.q)

    measured("rollout", recorded, (model, start), args.num, args.steps)
    measured("gradient", jax.value_and_grad(demo.loss), (inputs, model, start), args.num, args.steps)


if __name__ == "__main__":
    main()
