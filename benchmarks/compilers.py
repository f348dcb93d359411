"""Both compilers of xsim: seconds to compile (with tracing), steps per second, gradients of rollouts, queries.

    python benchmarks/compilers.py [--num 1024] [--steps 50] [--repeat 5] [--kinds KIND ...] [--leaves L ...] [--compilers C ...]
                                   [--json FILE] [MODEL ...]

Models are bundled ones by name, or files. The runs of the compilers alternate, and medians are printed. The code of earlier runs on disk is
not used.
"""

import argparse
import json
import os
import platform
import statistics
import time
from pathlib import Path

os.environ["XSIM_CACHE_DIR"] = ""

import jax
import jax.numpy as jnp
import llvmlite
import numpy as np

import xsim
from xsim.compile.choice import tracing_for
from xsim.dynamics.compiled_query import query_function
from xsim.dynamics.compiled_step import step_function
from xsim.dynamics.prepared import system_function

MODELS = ("pendulum", "chain", "muscle_arm", "half_cheetah", "go1", "ant")
COMPILERS = ("llvm", "xla")
KINDS, LEAVES = ("rollout", "gradient", "query"), ("frozen", "shared")


def program(name: str, fn, *args) -> tuple:
    """(compiled function of no arguments, seconds to trace and compile)."""
    jax.clear_caches()
    query_function.cache_clear()
    step_function.cache_clear()
    system_function.cache_clear()
    with tracing_for(name):
        start = time.perf_counter()
        compiled = jax.jit(fn).lower(*args).compile()
        seconds = time.perf_counter() - start
    jax.block_until_ready(compiled(*args))
    return lambda: jax.block_until_ready(compiled(*args)), seconds


def medians(runs: dict, repeat: int) -> dict:
    """Median seconds of each run, in turns."""
    times = {name: [] for name in runs}
    for _ in range(repeat):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(t) for name, t in times.items()}


def measured(name: str, leaves: str, options: argparse.Namespace) -> dict:
    """What a model's rollout, the gradient of it in the model's leaves and the velocities at the start, and `xsim.forward` take, as far as
    the options say. leaves: see LEAVES."""
    num, steps = options.num, options.steps
    model = xsim.load(name if Path(name).is_file() else xsim.models.path(name))
    if leaves == "frozen":
        model = model.freeze(*model.paths())
    rng, start = np.random.default_rng(0), xsim.init(model)
    v = jnp.asarray(rng.normal(0, 0.1, (num, model.nv)), start.v.dtype)
    state = xsim.init(model, jnp.broadcast_to(start.q, (num, model.nq)), v)
    ctrls = jnp.asarray(rng.uniform(-1, 1, (steps, num, model.nu)), v.dtype) if model.nu else None

    def rollout(model, v):
        return xsim.rollout(model, state.replace(v=v), ctrls, steps=steps)[0]

    def loss(model, v):
        end = rollout(model, v)
        return (end.q**2).mean() + (end.v**2).mean()

    def query(model, v):
        return xsim.forward(model, state.replace(v=v))

    out = {"model": Path(name).stem, "leaves": leaves, "environments": num, "steps": steps}
    functions = {"rollout": (rollout, steps), "gradient": (jax.grad(loss, (0, 1)), steps), "query": (query, 1)}
    for kind in options.kinds:
        fn, count = functions[kind]
        runs = {c: program(c, fn, model, v) for c in options.compilers}
        seconds = medians({c: run for c, (run, _) in runs.items()}, options.repeat)
        for c in options.compilers:
            out[f"{kind}_{c}_compile_s"] = round(runs[c][1], 2)
            out[f"{kind}_{c}_steps_per_s"] = round(num * count / seconds[c])
    return out


def versions() -> dict:
    """What the numbers depend on, printed."""
    found = {"jax": jax.__version__, "llvmlite": llvmlite.__version__, "python": platform.python_version(), "cores": os.cpu_count()}
    print(", ".join(f"{k} {v}" for k, v in found.items()), flush=True)
    return found


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("models", nargs="*", default=MODELS)
    p.add_argument("--num", type=int, default=1024)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--repeat", type=int, default=5)
    p.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    p.add_argument("--leaves", nargs="+", choices=LEAVES, default=LEAVES)
    p.add_argument("--compilers", nargs="+", choices=COMPILERS, default=COMPILERS)
    p.add_argument("--json")
    args = p.parse_args()
    used, rows = versions(), []
    for name in args.models:
        for leaves in args.leaves:
            row = measured(name, leaves, args)
            rows.append(row)
            print(f"{row['model']}, {leaves} leaves, {args.num} environments, {args.steps} steps")
            for kind in args.kinds:
                speeds = {c: row[f"{kind}_{c}_steps_per_s"] for c in args.compilers}
                parts = [f"{c} {s / 1e3:9.0f} k/s ({row[f'{kind}_{c}_compile_s']:.1f} s)" for c, s in speeds.items()]
                parts += [f"{speeds['llvm'] / speeds['xla']:.1f} times"] if len(speeds) == len(COMPILERS) else []
                print(f"  {kind:8}  {'; '.join(parts)}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": used, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
