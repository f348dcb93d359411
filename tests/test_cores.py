"""Batches divided among the cores of a CPU: the same numbers as on one core, in a process of its own since JAX counts its devices once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim

CORES, STEPS = 3, 4
BATCH = 200  # not a multiple of the number of cores: slices are filled up
MODEL = """<mujoco><option timestep="0.01"/><worldbody><body><joint axis="0 1 0" damping="0.2" limited="true" range="-20 20"/>
<geom type="sphere" size="0.1" pos="0.3 0 0"/></body></worldbody></mujoco>"""


def numbers() -> dict:
    """Final states, recorded rates and gradients of a rollout from different states, masses and forces."""
    model, rng = xsim.loads(MODEL, "mjcf"), np.random.default_rng(0)
    taus = rng.normal(size=(STEPS, BATCH, model.nv)).astype(np.float32)
    q, v = rng.normal(size=(2, BATCH, model.nv)).astype(np.float32)
    mass = model.geom.mass * rng.uniform(0.5, 2.0, (BATCH, *model.geom.mass.shape)).astype(np.float32)

    def run(damping, mass, factor):
        m = model.replace({"geom.mass": mass, "dof.damping": damping})
        final, rates = xsim.rollout(m, xsim.init(m, q, v), taus=taus, record=lambda state, data: factor * state.v)
        return (final.v**2).sum(), (final, rates)

    (_, (final, rates)), by = jax.jit(jax.value_and_grad(run, (0, 1, 2), has_aux=True))(model.dof.damping, mass, jnp.float32(2.0))
    return {"q": final.q, "v": final.v, "flags": final.flags, "rates": rates} | {f"by{i}": x for i, x in enumerate(by)}


PROGRAM = f"""
import re, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import jax, numpy as np, xsim
assert xsim.use_cores({CORES}) == {CORES}
from test_cores import BATCH, MODEL, numbers
model = xsim.loads(MODEL, "mjcf")
state = xsim.init(model, np.zeros((64 * {CORES}, model.nq)))
models = xsim.randomize(model, jax.random.key(0), 64 * {CORES}, {{"dof.damping": {{"uniform": [0.1, 0.3]}}}})
assert models.dof.damping.sharding == state.q.sharding
nothing_sampled = xsim.randomize(model, jax.random.key(0), 64 * {CORES})
for copied in models, nothing_sampled, xsim.replicate(model, 64 * {CORES}):
    assert len(copied.geom.mass.sharding.device_set) == {CORES} and copied.geom.mass.sharding.is_fully_replicated
assert xsim.replicate(model, 1).geom.mass is model.geom.mass
after = xsim.step(model, state)
assert len(after.q.sharding.device_set) == {CORES} and after.q.sharding == state.q.sharding
programs = xsim.step._cache_size()
xsim.step(model, after)
assert xsim.step._cache_size() == programs
np.savez(sys.argv[1], **numbers())

# Environments are divided from reset on, so that their step compiles once.
env = xsim.make_env("pendulum_balance", num_envs=64 * {CORES})
act = jax.jit(env.step)
begun = jax.jit(env.reset)(jax.random.key(0))
later = act(act(begun, np.zeros((env.num_envs, 1))), np.zeros((env.num_envs, 1)))
assert len(begun.obs.sharding.device_set) == len(later.obs.sharding.device_set) == {CORES} and act._cache_size() == 1

# Nothing passes between the devices: each solves its environments by itself.
for compiler in ("xla", "llvm"):
    xsim.use_compiler(compiler)
    run = jax.jit(lambda state: xsim.rollout(model, state, steps=3)[0]).lower(state).compile().as_text()
    assert "num_partitions={CORES}" in run
    assert not re.search("all-reduce|all-gather|all-to-all|collective|reduce-scatter", run), compiler
    assert len(xsim.step(model, state).q.sharding.device_set) == {CORES}

# Within jax.shard_map, with the types of arrays that vary between devices: also derivatives by what all devices share.
xsim.use_devices([])
mesh, P = jax.make_mesh((2,), ("e",), axis_types=(jax.sharding.AxisType.Auto,), devices=jax.devices()[:2]), jax.sharding.PartitionSpec
state = jax.tree.map(np.asarray, xsim.init(model, np.ones((4, model.nq))))
def loss(damping, state):
    return (xsim.rollout(model.replace({{"dof.damping": damping}}), state, steps=3)[0].q ** 2).sum()
def of_devices(*xs):
    return jax.lax.psum(loss(*xs), "e")
for compiler in ("xla", "llvm"):
    xsim.use_compiler(compiler)
    found = jax.jit(jax.value_and_grad(jax.shard_map(of_devices, mesh=mesh, in_specs=(P(), P("e")), out_specs=P())))
    for x, y in zip(found(model.dof.damping, state), jax.value_and_grad(loss)(model.dof.damping, state)):
        np.testing.assert_allclose(x, y, rtol=1e-5)

assert xsim.use_devices([]).size == 1 and len(xsim.step(model, xsim.init(model, np.zeros((640, model.nq)))).q.sharding.device_set) == 1
mesh = xsim.use_devices(jax.devices()[:2])
assert mesh.axis_names == ("env",) and len(xsim.init(model, np.zeros((640, model.nq))).q.sharding.device_set) == 2
try:
    xsim.use_cores(2)
except RuntimeError:
    print("too late")
"""


@pytest.mark.slow
def test_several_cores(tmp_path):
    """To rounding: the widths of their slices differ, so XLA contracts and adds in another order. What a step returns is divided as its
    argument, so that it compiles once."""
    env, file = {**os.environ, "JAX_PLATFORMS": "cpu"}, tmp_path / "found.npz"
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(file)], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "too late" in done.stdout
    found, wanted = np.load(file), numbers()
    assert sorted(found) == sorted(wanted)
    for name, x in wanted.items():
        np.testing.assert_allclose(found[name], x, rtol=1e-4, atol=2e-6, err_msg=name)


@pytest.mark.parametrize(("compiler", "devices"), [("auto", 1), ("xla", 2)])
def test_commands_have_a_device_per_core_only_for_xla(compiler, devices):
    """What LLVM compiles uses the threads of one device."""
    program = """
import jax
from xsim.dynamics import sharding
sharding.available_cores = lambda: 2
sharding.use_cores_with_xla()
print(len(jax.devices()))
"""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "XSIM_COMPILER": compiler}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == [str(devices)]
