"""Steps of several GPUs, compiled without one: nothing passes between them, on one host and on two."""

from __future__ import annotations

import pytest
from packages import cuda_compiler
from processes import finish, start

H200 = """
gpu_device_info { threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: 49152 shared_memory_per_core: 233472
  threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128 block_dim_limit_x: 2147483647 block_dim_limit_y: 65535
  block_dim_limit_z: 65535 memory_bandwidth: 4800000000000 l2_cache_size: 62914560 clock_rate_ghz: 1.98
  device_memory_size: 150000000000 shared_memory_per_block_optin: 232448 cuda_compute_capability { major: 9 }
  registers_per_core_limit: 65536 registers_per_block_limit: 65536 }
runtime_version { major: 12 minor: 9 patch: 0 } platform_name: "CUDA" dnn_version_info { major: 9 minor: 7 }
device_description_str: "NVIDIA H200"
"""
"""XLA's description of a GPU (GpuTargetConfigProto)."""

PROGRAM = """
import re, sys
import jax
import numpy as np
from jax.experimental import topologies
from jax.sharding import NamedSharding, PartitionSpec
import xsim

name, topology, hosts, description = sys.argv[1:]
jax.default_backend = lambda: "gpu"  # traced as on a GPU: on a CPU batches are cut for its cache, and LLVM compiles the step
devices = topologies.get_topology_desc("gpus", "cuda", target_config=description, topology=topology).devices
assert len({device.process_index for device in devices}) == int(hosts)
mesh = xsim.use_devices(devices)
whole, by_environment = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in ((), ("env",)))
shape = lambda x, batch, sharding: jax.ShapeDtypeStruct((*batch, *np.shape(x)), x.dtype, sharding=sharding)
model = xsim.load(name)
models = jax.tree.map(lambda x: shape(x, (), whole), model)
states = jax.tree.map(lambda x: shape(x, (256 * mesh.size,), by_environment if x.size else whole), jax.eval_shape(xsim.init, model))

def communication(function):
    text = jax.jit(function).trace(models, states).lower(lowering_platforms=("cuda",)).compile().as_text()
    assert f"num_partitions={mesh.size}" in text
    return sorted(set(re.findall("all-reduce|all-gather|all-to-all|collective-[a-z]+|reduce-scatter", text)))

rollout = lambda models, states: xsim.rollout(models, states, steps=3)[0]
assert communication(rollout) == []
if name == "pendulum":
    assert communication(lambda models, states: rollout(models, states).q.mean()) != []
"""


@pytest.mark.nightly
@pytest.mark.parametrize(("topology", "hosts"), [("1x1x8", 1), ("1x2x4", 2)])
@pytest.mark.parametrize("model", ["pendulum", "hopper"])
def test_nothing_passes_between_gpus(model, topology, hosts):
    """The hopper's solver iterates until the contacts of a GPU's environments have converged. For comparison, a mean over all
    environments: of the pendulum, since it takes as long again."""
    flags = "--xla_gpu_autotune_level=0 --xla_gpu_enable_triton_gemm=false"  # both need the chip
    finish(start("-c", PROGRAM, model, topology, hosts, H200, PYTHONPATH=str(cuda_compiler()), XLA_FLAGS=flags))
