"""Seconds to trace and compile in a first process, and in a second one, which finds compiled functions on disk.

    python benchmarks/second_process.py [--num 256] [--steps 10] [--json FILE] [MODEL ...]

A rollout, and its gradient in the model's leaves and the velocities at the start; each in processes and a cache of its own. The times are
those of `jax.jit(f).lower(...).compile()`. Those to import xsim and to load the model are apart.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

MODELS, KINDS = ("half_cheetah", "go1", "ant", "humanoid_v5"), ("rollout", "gradient")


def measured(name: str, kind: str, num: int, steps: int) -> dict:
    """Seconds of this process."""
    times = [time.perf_counter()]
    import jax
    import jax.numpy as jnp
    import numpy as np

    import xsim

    times.append(time.perf_counter())
    model = xsim.load(name if Path(name).is_file() else xsim.models.path(name))
    start = xsim.init(model)
    v = jnp.asarray(np.random.default_rng(0).normal(0, 0.1, (num, model.nv)), start.v.dtype)
    state = xsim.init(model, jnp.broadcast_to(start.q, (num, model.nq)), v)

    def rollout(model, v):
        return xsim.rollout(model, state.replace(v=v), steps=steps)[0]

    def loss(model, v):
        end = rollout(model, v)
        return (end.q**2).mean() + (end.v**2).mean()

    times.append(time.perf_counter())
    jax.jit(rollout if kind == "rollout" else jax.grad(loss, (0, 1))).lower(model, v).compile()
    times.append(time.perf_counter())
    names = ("import_s", "load_s", "compile_s")
    return {name: round(end - begin, 2) for name, begin, end in zip(names, times, times[1:], strict=False)}


def by_process(folder: str, *arguments) -> dict:
    """`measured` in another process, whose cache is a folder."""
    command = [sys.executable, __file__, "--measure", *map(str, arguments)]
    done = subprocess.run(command, env={**os.environ, "XSIM_CACHE_DIR": folder}, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("models", nargs="*", default=MODELS)
    p.add_argument("--num", type=int, default=256)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--json")
    args = p.parse_args()
    rows = []
    for name in args.models:
        for kind in KINDS:
            with tempfile.TemporaryDirectory() as folder:
                first, second = (by_process(folder, name, kind, args.num, args.steps) for _ in range(2))
            rows.append({"model": Path(name).stem, "kind": kind, "first": first, "second": second})
            print(f"{rows[-1]['model']}, {kind}: first process {first}, second process {second}", flush=True)
    if args.json:
        with open(args.json, "w") as file:
            versions = {"python": platform.python_version(), **{name: version(name) for name in ("jax", "llvmlite")}}
            options = {"environments": args.num, "steps": args.steps, "cores": os.cpu_count()}
            json.dump({"versions": versions, **options, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        model, what, count, length = sys.argv[2:]
        print(json.dumps(measured(model, what, int(count), int(length))))
    else:
        main()
