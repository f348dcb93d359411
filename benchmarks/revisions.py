"""Run times of several checkouts of xsim, in turns in one run, or their times to compile: what a change of the code brings.

    python benchmarks/revisions.py CHECKOUT CHECKOUT ... [--models half_cheetah ...] [--num 512] [--steps 20] [--repeat 40] [--json FILE]
    python benchmarks/revisions.py CHECKOUT CHECKOUT ... --compile --repeat 5

A rollout from near the start with constant random controls, and its gradient in these; each checkout in a process of its own, of which one
runs at a time. Ratios are those of the medians to that of the first checkout. --compile: the time to trace and to compile without a cache,
each time in a new process; of the gradient in the controls and in all leaves of the model.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

MODELS, KINDS = ("half_cheetah", "go1", "ant", "humanoid_v5"), ("rollout", "gradient")


def serve(name: str, kind: str, num: int, steps: int, compiles: bool) -> None:
    """Compile, and write the seconds of a run for each line that is read; or write the seconds that compiling takes."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import xsim

    model = xsim.load(name if Path(name).is_file() else xsim.models.path(name))
    start, rng = xsim.init(model), np.random.default_rng(0)
    v = jnp.asarray(rng.normal(0, 0.1, (num, model.nv)), start.v.dtype)
    state = xsim.init(model, jnp.broadcast_to(start.q, (num, model.nq)), v)
    controls = jnp.asarray(rng.normal(0, 0.3, (num, model.nu)), start.v.dtype)

    def rollout(controls, model, state):
        ctrls = jnp.broadcast_to(controls, (steps, *controls.shape)) if model.nu else None
        return xsim.rollout(model, state, ctrls=ctrls, steps=steps)[0]

    def loss(controls, model, state):
        return (rollout(controls, model, state).q ** 2).mean()

    function = jax.jit(rollout if kind == "rollout" else jax.grad(loss, (0, 1) if compiles else 0))
    if compiles:
        began = time.perf_counter()
        function.lower(controls, model, state).compile()
        print(time.perf_counter() - began)
        return
    jax.block_until_ready(function(controls, model, state))
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        jax.block_until_ready(function(controls, model, state))
        print(time.perf_counter() - began, flush=True)


def process(path: str, *arguments, **environment) -> subprocess.Popen:
    """A process of this script with the xsim of a checkout. arguments: see `serve`."""
    command = [sys.executable, __file__, path, "--serve", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=path, env=env)


def compile_times(checkouts: list[str], *arguments, repeat: int) -> list[list[float]]:
    """Seconds that each checkout takes to compile."""
    times: list[list[float]] = [[] for _ in checkouts]
    for _ in range(repeat):
        for path, seconds in zip(checkouts, times, strict=True):
            seconds.append(float(process(path, *arguments, "compile", XSIM_CACHE_DIR="").communicate()[0]))
    return times


def run_times(checkouts: list[str], *arguments, repeat: int) -> list[list[float]]:
    """Seconds of the runs of each checkout."""
    servers = [process(path, *arguments, "run") for path in checkouts]

    def answer(server) -> str:
        line = server.stdout.readline().strip()
        if not line:
            raise SystemExit(f"a process ended: {server.wait()}")
        return line

    for server in servers:
        answer(server)
    times: list[list[float]] = [[] for _ in servers]
    for _ in range(repeat):
        for server, seconds in zip(servers, times, strict=True):
            server.stdin.write("run\n")
            server.stdin.flush()
            seconds.append(float(answer(server)))
    for server in servers:
        server.stdin.close()
        server.wait()
    return times


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("checkouts", nargs="+")
    p.add_argument("--models", nargs="+", default=MODELS)
    p.add_argument("--num", type=int, default=512)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--repeat", type=int, default=40)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--json")
    p.add_argument("--serve", nargs=5)
    args = p.parse_args()
    if args.serve:
        name, kind, num, steps, what = args.serve
        serve(name, kind, int(num), int(steps), what == "compile")
        return
    checkouts = [str(Path(x).resolve()) for x in args.checkouts]
    names = [subprocess.run(["git", "describe", "--always"], cwd=x, capture_output=True, text=True).stdout.strip() for x in checkouts]
    results, measure = [], compile_times if args.compile else run_times
    for model in (str(Path(x).resolve()) if Path(x).is_file() else x for x in args.models):
        for kind in KINDS:
            times = measure(checkouts, model, kind, args.num, args.steps, repeat=args.repeat)
            medians = [statistics.median(x) for x in times]
            ratios = [x / medians[0] for x in medians]
            found = (f"{n}: {1e3 * x:.1f} ms, {r:.2f}" for n, x, r in zip(names, medians, ratios, strict=True))
            print(Path(model).stem, kind, *found, flush=True)
            seconds = {"median_s": [round(x, 5) for x in medians], "fastest_s": [round(min(x), 5) for x in times]}
            results.append({"model": Path(model).stem, "kind": kind, "ratios": [round(r, 3) for r in ratios], **seconds})
    if args.json:
        about = {
            "commits": names, "num": args.num, "steps": args.steps, "python": platform.python_version(), "jax": version("jax"),
            "repeat": args.repeat, "measured": "time to compile" if args.compile else "run time", "results": results,
        }  # fmt: skip
        Path(args.json).write_text(json.dumps(about, indent=1) + "\n")


if __name__ == "__main__":
    main()
