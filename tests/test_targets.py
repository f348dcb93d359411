"""Programs for accelerators that are not there: kernels as PTX, what their assembler says, the report."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.bench import targets
from xsim.bench.__main__ import main
from xsim.bench.compare import Settings
from xsim.compile.function import Function
from xsim.compile.host import HostEmitter
from xsim.compile.llvm_types import Target
from xsim.compile.nvptx import GpuEmitter, ptx

QUIET = lambda text: None  # noqa: E731


def _with_everything(a, x):
    """Shared numbers, loops, arrays at positions that depend on the state, elementary functions, booleans."""
    y = jax.lax.while_loop(lambda c: (c**2).sum() > 1, lambda c: c * 0.7, x * jnp.sin(a))
    z = jax.lax.scan(lambda c, u: (jnp.tanh(c + u), c * u), y[0], jnp.tile(x, 200))
    return [y.at[jnp.argmax(x)].add(a[0]), z[1][:3], jnp.where(x > 0, jnp.exp(-x), a[:1]), (x > 0).any()[None]]


def _emitted():
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((2,), (6,))]
    function = Function(lambda a, x: _with_everything(jnp.tile(a, 3), x), shapes, "everything")
    program = function.program((False, True))
    return program, [2, 6], [False, True]


ARITHMETIC = re.compile(r"= (f\w+|i?cmp|icmp|select|add|sub|mul|and|or|xor|phi|call|sitofp|zext|trunc)\b")


def _operations(text: str) -> list[str]:
    """The names of the operations of the function of an environment, without those that find out which one it is."""
    body = text[text.index("@part0(") :]
    return [m[1] for line in body[: body.index("\n}")].splitlines() if "%lane" not in line and (m := ARITHMETIC.search(line))]


def test_both_targets_have_the_same_operations():
    """The function of an environment for a processor, one at a time, and for a GPU."""
    program, sizes, batched = _emitted()
    host = HostEmitter(program, Target(1), sizes, batched, [False] * len(program.outputs)).modules()[0]
    gpu = GpuEmitter(program, sizes, batched).module()
    operations = _operations(host)
    assert len(operations) > 50 and len(set(operations)) > 8
    assert _operations(gpu) == operations


def test_single_environments_are_those_of_vectors(monkeypatch):
    """What a thread of a GPU computes, compiled for this processor. Results are stored where they are computed."""
    x = jnp.asarray(np.random.default_rng(0).normal(size=(5, 6)), jnp.float32)
    a = jnp.array([0.8, 0.3], jnp.float32)
    shapes = [jax.ShapeDtypeStruct(s.shape, s.dtype) for s in (a, x[0])]

    def run():
        return Function(lambda a, x: _with_everything(jnp.tile(a, 3), x), shapes, "everything")([a, x], [False, True])

    vectors = run()
    monkeypatch.setattr("xsim.compile.function.vector_lanes", lambda *_: 1)
    monkeypatch.setattr(HostEmitter, "stores_early", True)
    for one, many in zip(run(), vectors, strict=True):
        np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_ptx(architecture):
    """Two kernels of one thread an environment, without calls of functions that a GPU does not have."""
    program, sizes, batched = _emitted()
    emitter = GpuEmitter(program, sizes, batched)
    text = ptx(emitter.module(), architecture)
    assert emitter.kernels == ["uniform", "block"]
    assert re.findall(r"\.entry (\w+)\(", text) == ["uniform", "block"]
    assert f".target {architecture}" in text and ".extern" not in text


def test_operations_are_counted_by_turns():
    program, *_ = _emitted()
    counts = [program.evaluated(turns, 1) for turns in (0, 1, 2)]
    assert counts[2] - counts[1] == counts[1] - counts[0] > 0  # of the loop whose number of turns depends on the state
    assert counts[0] > 1200 * 2  # the scan has 1,200 turns


ASSEMBLED = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'block' for 'sm_90'
ptxas info    : Function properties for block
    6640 bytes stack frame, 5936 bytes spill stores, 10292 bytes spill loads
ptxas info    : Used 255 registers, used 0 barriers, 6640 bytes cumulative stack size
ptxas info    : Compiling entry function 'uniform' for 'sm_90'
ptxas info    : Function properties for uniform
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 0 barriers
"""


def test_what_the_assembler_prints():
    assert targets.parsed(ASSEMBLED) == {
        "block": targets.Assembled(255, 5936, 10292, 6640),
        "uniform": targets.Assembled(24, 0, 0, 0),
    }


def test_a_kernel_has_the_spills_of_its_parts():
    """They are functions that it calls. The local memory is that of the deepest call."""
    parts = """ptxas info    : Function properties for part0
    0 bytes stack frame, 8 bytes spill stores, 16 bytes spill loads
ptxas info    : Function properties for part1
    64 bytes stack frame, 800 bytes spill stores, 1456 bytes spill loads
"""
    text = ASSEMBLED.replace("6640 bytes cumulative stack size\n", "6704 bytes cumulative stack size\n" + parts)
    assert targets.parsed(text) == {
        "block": targets.Assembled(255, 5936 + 808, 10292 + 1472, 6704),
        "uniform": targets.Assembled(24, 0, 0, 0),
    }


def _assembler() -> bool:
    try:
        return bool(targets.find_ptxas())
    except targets.TargetError:
        return False


POLE = """<mujoco><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 1"><joint type="slide" axis="0 0 1"/>
<joint axis="0 1 0" limited="true" range="-60 60"/><geom type="capsule" size="0.1 0.3"/></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.skipif(not _assembler(), reason="NVIDIA's assembler is not installed: pip install 'xsim[aot]'")
def test_report(tmp_path, capsys):
    """The step, the rollout and its gradient of a model with contacts; the rollout is one kernel besides those of the shared numbers."""
    file, model = tmp_path / "report.json", tmp_path / "pole.xml"
    model.write_text(POLE)
    options = ["--model", str(model), "--constraints", "--steps", "8", "--batch", "256", "--quiet", "--json", str(file)]
    assert main([*options, "--target", "h200"]) == 0
    assert "compiled, not run" in capsys.readouterr().out
    report = json.loads(file.read_text())
    step, rollout, gradient = report["programs"]
    assert [p["program"] for p in report["programs"]] == ["step", "rollout", "gradient"] and not report["run"]
    for p in report["programs"]:
        assert 16 < p["registers"] <= 255 and p["compile_cpu_s"] > 0 and p["bytes_per_env"] > 100
        assert 1e-7 < p["estimated_step_s"] < 1e-3
    assert rollout["kernels_per_step"] <= 3 / 8 < step["kernels_per_step"]
    assert 0.9 < rollout["operations_per_step"] / step["operations_per_step"] < 1.1
    assert gradient["operations_per_step"] > step["operations_per_step"]


def test_estimates_grow_with_the_batch():
    """In whole waves of warps, until memory is the limit."""
    kernel = targets.Kernel(1, 10_000.0, 100, targets.Assembled(255, 0, 0, 0), 0.0)
    chip = targets.CHIPS["h200"]
    times = [targets.estimate(kernel, chip, batch) for batch in (64, 132 * 4 * 32, 132 * 4 * 32 + 64)]
    assert times[0] == times[1] == pytest.approx(10_000 * targets.CYCLES / chip.clock)
    assert times[2] == pytest.approx(2 * times[1])


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("h20", Settings("pendulum"), r"unknown target 'h20' \(did you mean 'h200'\?\)"),
        ("h200", Settings("pendulum", randomize=""), "no --randomize"),
    ],
)
def test_refusals(name, settings, message):
    with pytest.raises(targets.TargetError, match=message):
        targets.programs(name, settings, QUIET)


def test_what_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for chip, package in (("a100", "xsim[aot]"), ("tpu-v5e", "jax[tpu]")):
        assert main(["--model", "pendulum", "--quiet", "--target", chip]) == 2
        assert package in capsys.readouterr().err


def test_the_model_is_the_one_that_is_asked_for():
    plain = targets.loaded_model(Settings("half_cheetah"))
    assert plain.topology.constraint_kinds == ()
    full = targets.loaded_model(Settings("half_cheetah", constraints=True, integrator="euler", freeze=("geom.*",)))
    assert full.topology.integrator == "euler" and "contact" in full.topology.constraint_kinds
    assert len(jax.tree.leaves(full)) < len(jax.tree.leaves(xsim.load(xsim.models.path("half_cheetah"))))
