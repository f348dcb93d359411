"""What the adapters of all engines share. Needs NumPy alone, and JAX for what is said so."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xsim.bench.measure import Program, compile_program


class Unsupported(Exception):
    """The engine cannot do this job; the text says why."""


class Engine(NamedTuple):
    """An engine that holds its model and start states. ``compile(what)`` makes the program ``forward`` or ``gradient``; the result of
    ``forward`` goes through ``to_xsim`` to be final configurations (batch, nq) in xsim's coordinates. ``note`` says more of the final
    states, after the timed runs; None if there is nothing to say.
    """

    about: dict
    compile: Callable[[str], Program]
    to_xsim: Callable[[Any], np.ndarray]
    note: Callable[[], str] | None = None


class Start(NamedTuple):
    """What xsim's worker wrote: the mechanism, q (batch, nq), and the push of every step: "tau" (batch, nv) or "ctrl" (batch, nu)."""

    mechanism: dict
    q: np.ndarray
    kind: str
    push: np.ndarray

    @property
    def tau(self) -> np.ndarray:
        """The generalized forces, for engines without actuators."""
        if self.kind != "tau":
            raise Unsupported("its actuators are not translated")
        return self.push


def read_start(job: dict) -> Start:
    folder = Path(job["folder"])
    with np.load(folder / "start.npz") as arrays:
        kind = "ctrl" if "ctrl" in arrays else "tau"
        return Start(json.loads((folder / "mechanism.json").read_text()), arrays["q"], kind, arrays[kind])


def format_of(start: Start, name: str) -> dict:
    description = start.mechanism[name]
    if "refused" in description:
        raise Unsupported(description["refused"])
    return description


def versions(*packages: str) -> dict[str, str]:
    out = {}
    for name in packages:
        try:
            out[name] = version(name)
        except PackageNotFoundError:
            continue
    return out


def processor() -> str:
    """Name of the processor and the cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        name = "CPU"
    return f"{name}, {cores} cores"


def about_jax(*packages: str, **more) -> dict:
    import jax

    device = jax.devices()[0]
    name = processor() if device.platform == "cpu" else f"{device.device_kind}"
    return {"device": name, "platform": device.platform, "versions": versions("jax", "jaxlib", *packages), "model": "shared", **more}


def divided(job: dict, final):
    """final(q, pushes) with its environments divided among the cores of a CPU, where JAX has a device for each."""
    import jax

    cores = jax.local_devices()
    if jax.default_backend() != "cpu" or job["batch"] % len(cores):
        return final
    spec, mesh = jax.sharding.PartitionSpec, jax.sharding.Mesh(cores, "core")
    return jax.shard_map(final, mesh=mesh, in_specs=(spec("core"), spec(None, "core")), out_specs=spec("core"), check_vma=False)


def jax_engine(job: dict, about: dict, final, fixed: tuple, push, to_xsim) -> Engine:
    """final(*fixed, pushes) -> q (batch, nq), pushes (steps, batch, n): forces or controls; push (batch, n) is that of every step."""
    import jax
    import jax.numpy as jnp

    about["cores"] = len(jax.local_devices())
    pushes = jnp.broadcast_to(jnp.asarray(push), (job["steps"], *push.shape)) + 0.0

    def loss(pushes, *fixed):
        return jnp.sum(final(*fixed, pushes) ** 2)

    programs = {"forward": (final, (*fixed, pushes)), "gradient": (jax.value_and_grad(loss), (pushes, *fixed))}

    def build(what: str) -> Program:
        fn, args = programs[what]
        return compile_program(fn, args, batch=job["batch"], steps=job["steps"])

    return Engine(about, build, to_xsim)
