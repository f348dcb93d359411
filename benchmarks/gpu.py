"""Checks and measures xsim on a GPU: ``python benchmarks/gpu.py FILE [MODEL ...]``, minutes on one NVIDIA GPU.

Of each model, in a process of its own: states after 1 and 50 steps and the gradients of 10 steps, in double precision on the GPU against
the CPU and in single precision; the time to compile; steps per second of rollouts; time and memory of gradients. The processes compile at
the same time and measure one at a time. Rollouts are measured as xsim runs them, and with one kernel for many steps and for each step.
``--compiler xla`` measures XLA's programs. FILE is JSON.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import numpy as np

MODELS = {"pendulum": None, "half_cheetah": None, "go1": None, "ant": "4.0", "humanoid_v5": "4.0"}
"""Models, and the rules of which release of MuJoCo they are read by."""
WITHOUT_GRADIENT = ("ant", "humanoid_v5")
"""Models whose gradients the driver assembles for many minutes."""
CHECKED, STEPS, GRADIENT_STEPS = 64, 50, 10
BATCHES = (1024, 8192, 32768, 131072)
GRADIENT_BATCHES = (8192, 32768)
REPEAT = 5
LOCK = Path(tempfile.gettempdir()) / "xsim_gpu_benchmark.lock"
"""Of the process that measures."""


def problem(name: str, batch: int):
    """The model, start configurations and the controls or forces of all steps."""
    import jax.numpy as jnp

    from xsim.bench.mechanism import load_model, push, start

    model = load_model(name, MODELS.get(name), None, True)
    pushed = push(model, batch)
    return model, start(model, batch), {f"{pushed.kind}s": jnp.broadcast_to(pushed.values, (STEPS, *pushed.values.shape))}


def functions():
    """The rollout, and the gradient of the squares of its last states by start, inputs and damping (shared by the environments)."""
    import jax

    from xsim import init, rollout

    @jax.jit
    def advance(model, q, inputs):
        state = rollout(model, init(model, q), **inputs)[0]
        return {"q": state.q, "v": state.v}

    def loss(damping, q, inputs, model):
        state = advance(model.replace({"dof.damping": damping}), q, inputs)
        return (state["q"] ** 2).sum() + (state["v"] ** 2).sum()

    gradient = jax.jit(jax.grad(loss, argnums=(0, 1, 2)))
    return advance, lambda model, q, inputs: gradient(model.get("dof.damping"), q, inputs, model)


def checked(name: str, begin: dict | None = None) -> dict[str, np.ndarray]:
    """States after 1 step and after all, and gradients of the first steps. begin: what to start from, which is random without it."""
    import jax
    import jax.numpy as jnp

    model, q, inputs = problem(name, CHECKED)
    if begin is not None:
        q, inputs = jnp.asarray(begin["start"], float), {k: jnp.asarray(begin["inputs"], float) for k in inputs}
    advance, gradient = functions()
    first = jax.tree.map(lambda x: x[:1], inputs)
    out = {f"{k} of 1 step": x for k, x in advance(model, q, first).items()}
    out |= {f"{k} of {STEPS} steps": x for k, x in advance(model, q, inputs).items()}
    if name in WITHOUT_GRADIENT:
        return finished(out, begin, q, inputs)
    damping, start, pushes = gradient(model, q, jax.tree.map(lambda x: x[:GRADIENT_STEPS], inputs))
    out |= {"gradient by damping": damping, "gradient by q": start, "gradient by inputs": next(iter(pushes.values()))}
    return finished(out, begin, q, inputs)


def finished(out: dict, begin: dict | None, q, inputs) -> dict[str, np.ndarray]:
    """The results, with what they started from if that was random."""
    if begin is None:
        out = {**out, "start": q, "inputs": next(iter(inputs.values()))}
    return {k: np.asarray(x, np.float64) for k, x in out.items()}


def deviation(found: dict, reference: dict) -> dict[str, list[float]]:
    """Of each array the median and the largest deviation of an environment, of the largest number of the reference."""
    out = {}
    for key in found:
        x = reference[key]
        axis = 1 if key == "gradient by inputs" else 0
        error = np.abs(np.moveaxis(found[key] - x, axis, 0).reshape(x.shape[axis], -1)).max(1) / max(np.abs(x).max(), 1e-30)
        out[key] = [float(np.median(error)), float(error.max())]
    return out


def seconds(function, *arguments) -> float:
    """Median time of a call."""
    import jax

    jax.block_until_ready(function(*arguments))
    times = []
    for _ in range(REPEAT):
        begin = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def speed(name: str, batch: int, took: float) -> dict:
    """What is written of calls that took so many seconds, and the largest memory of the process so far."""
    import jax

    peak = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use")
    out = {"batch": batch, "step_s": took / STEPS, "steps_per_s": batch * STEPS / took, "peak_bytes": peak}
    say(name, out)
    return out


def measured(name: str, gradients: bool) -> dict:
    """Compile times and speeds in single precision."""
    import jax

    _, gradient = functions()
    ways: dict[str, bool | None] = {"rollouts": None}
    if os.environ["XSIM_COMPILER"] != "xla":
        ways |= {"many_steps_a_kernel": True, "one_step_a_kernel": False}
    out: dict = {**{key: [] for key in ways}, "gradients": []}
    for batch in BATCHES:
        model, q, inputs = problem(name, batch)
        programs = {}
        for key, many in ways.items():
            begin = time.perf_counter()
            with kernels_of(many):
                programs[key] = functions()[0].lower(model, q, inputs).compile()
            out.setdefault("compile_s", time.perf_counter() - begin)  # of the first; the others find its kernels
        with Locked():
            for key, program in programs.items():
                out[key].append(speed(f"{name}, {key}", batch, seconds(program, model, q, inputs)))
    for batch in GRADIENT_BATCHES if gradients and name not in WITHOUT_GRADIENT else ():
        model, q, inputs = problem(name, batch)
        begin = time.perf_counter()
        jax.block_until_ready(gradient(model, q, inputs))
        out.setdefault("gradient_compile_s", time.perf_counter() - begin)
        with Locked():
            took = seconds(gradient, model, q, inputs)
        out["gradients"].append(speed(name, batch, took))
    return out


@contextmanager
def kernels_of(many: bool | None):
    """Context in which a kernel is made for many steps, or for each; None: as xsim chooses."""
    import jax

    from xsim.compile import repeated
    from xsim.dynamics import compiled_step

    chosen = repeated.is_one_kernel
    for module in (repeated, compiled_step):
        module.is_one_kernel = chosen if many is None else lambda *_: many
    jax.clear_caches()
    try:
        yield
    finally:
        for module in (repeated, compiled_step):
            module.is_one_kernel = chosen


class Locked:
    """Context in which no other process measures."""

    def __init__(self):
        self.file = open(LOCK, "w")

    def __enter__(self):
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def __exit__(self, *_):
        fcntl.flock(self.file, fcntl.LOCK_UN)


def say(name: str, what) -> None:
    print(f"{name}: {what}", file=sys.stderr, flush=True)


def worker(options) -> None:
    """What a process does: the reference on the CPU, or a precision on the GPU."""
    import jax

    name, folder = options.models[0], Path(options.file)
    reference = folder / f"{name}.npz"
    if options.part == "reference":
        with jax.enable_x64(True):
            np.savez(reference.with_suffix(".part.npz"), **checked(name))
        os.replace(reference.with_suffix(".part.npz"), reference)
        return
    out: dict = {"model": name, "compiler": options.compiler}
    double = {"double": lambda: compared("float64", name, reference)}
    single = {
        "speed": lambda: measured(name, options.gradients),
        "single": lambda: compared("float32", name, reference),
    }
    for key, part in (double if options.part == "double" else single).items():
        if key in options.skip:
            continue
        begin = time.perf_counter()
        try:
            out[key] = part()
        except Exception as error:  # one part that fails leaves the others
            out[key] = {"failed": f"{type(error).__name__}: {str(error)[:600]}"}
            traceback.print_exc()
        say(name, f"{key}: {time.perf_counter() - begin:.1f} s")
        (folder / f"{name}.{options.part}.json").write_text(json.dumps(out))


def compared(dtype: str, name: str, file: Path) -> dict[str, list[float]]:
    """Deviations of this precision from the reference, once that is there."""
    import jax

    while not file.exists():
        time.sleep(0.5)
    with np.load(file) as arrays:
        reference = dict(arrays)
    with jax.enable_x64(dtype == "float64"):
        return deviation(checked(name, reference), reference)


def about() -> dict:
    """The GPU and the versions."""
    import jax
    import llvmlite

    import xsim

    versions = {"xsim": xsim.__version__, "jax": jax.__version__, "llvmlite": llvmlite.__version__, "python": platform.python_version()}
    device = jax.local_devices()[0]
    return {"device": device.device_kind, "platform": device.client.platform_version.split("\n")[0], "versions": versions}


def main() -> None:
    """Start the processes, wait for them, write what they have found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file")
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--compiler", default="llvm", choices=("llvm", "xla"))
    parser.add_argument("--no-gradients", dest="gradients", action="store_false")
    parser.add_argument("--skip", default="", help="parts that are left out: double,single,speed")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds after which the processes are ended")
    parser.add_argument("--part", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part:
        return worker(options)
    begin = time.monotonic()
    common = {**os.environ, "XSIM_COMPILER": options.compiler, "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "XSIM_CACHE_DIR": ""}
    flags = ["--compiler", options.compiler, "--skip", options.skip, *([] if options.gradients else ["--no-gradients"])]
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for name in options.models:
            for part in ("reference", "single", "double"):
                command = [sys.executable, __file__, folder, name, *flags, "--part", part]
                environment = {**common, "JAX_PLATFORMS": "cpu", "XSIM_COMPILER": "auto"} if part == "reference" else common
                processes.append(subprocess.Popen(command, env=environment))
        for process in processes:
            try:
                process.wait(max(1.0, options.limit - (time.monotonic() - begin)))
            except subprocess.TimeoutExpired:
                process.kill()
        found = []
        for name in options.models:
            files = [Path(folder) / f"{name}.{part}.json" for part in ("single", "double")]
            found.append({"model": name} | {k: x for file in files if file.exists() for k, x in json.loads(file.read_text()).items()})
    Path(options.file).write_text(json.dumps({**about(), "steps": STEPS, "models": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
