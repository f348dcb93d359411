"""What is kept of compiled functions on disk, for later processes."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import source_fingerprint

import xsim
from xsim import registry
from xsim.compile import cuda, ffi_targets, fingerprint
from xsim.compile.cache_entry import CacheEntry
from xsim.compile.fingerprint import function_fingerprint
from xsim.compile.flatten import Unsupported
from xsim.compile.function import Function
from xsim.compile.nvptx import GpuEmitter
from xsim.dynamics import length_range
from xsim.dynamics.compiled_query import query_function
from xsim.dynamics.compiled_step import step_function
from xsim.dynamics.prepared import system_function
from xsim.joints.types import JOINT_TYPES, ElementaryJoint, GeneralJoint, JointType
from xsim.model.table import Table

pytestmark = [
    pytest.mark.xla,  # queries are those of users
    pytest.mark.skipif(os.name == "nt", reason="no folder that only this user can write to is known there"),
]


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    """An empty cache, in which functions are kept, without what other tests have registered."""
    for kinds in registry._REGISTRIES:
        monkeypatch.setattr(kinds, "_entries", dict(list(kinds.items())[: kinds.built_in]))
    monkeypatch.setenv("XSIM_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(fingerprint, "source_fingerprint", source_fingerprint)
    return tmp_path


@pytest.fixture
def traces(monkeypatch):
    """The traces of functions."""
    found = []
    monkeypatch.setattr(jax, "make_jaxpr", lambda f, make=jax.make_jaxpr: found.append(f) or make(f))
    return found


def forget() -> None:
    """Forget all functions, as if this were another process."""
    for functions in (system_function, step_function, query_function):
        functions.cache_clear()
    jax.clear_caches()


def loss(model, v):
    final = xsim.rollout(model, xsim.init(model, v=v), steps=3)[0]
    return (final.q**2).sum() + (final.v**2).sum()


@pytest.mark.parametrize("name", ["spring_chain", pytest.param("hopper", marks=pytest.mark.nightly)])
def test_nothing_is_traced_again(name, traces):
    """States, derivatives and queries of a later process are equal to the bit."""
    model = xsim.load(xsim.models.path(name))
    state, v = xsim.init(model), jnp.linspace(-1.0, 1.0, 3 * model.nv).reshape(3, model.nv)
    results, counts = [], []
    for _ in range(2):
        forget()
        traces.clear()
        out = [jax.jit(jax.grad(loss, (0, 1)))(model, v), xsim.energy(model, state.q, v[0])]
        if name == "spring_chain":
            out.append(jax.jit(lambda v: jax.jvp(lambda v: loss(model, v), (v,), (v,)))(v))
        results.append(jax.tree.leaves(out))
        counts.append(len(traces))
    assert counts[0] >= 4 and counts[1] == 0
    for first, second in zip(*results, strict=True):
        np.testing.assert_array_equal(first, second)


def test_derivatives_of_what_was_kept(traces):
    """A function that is found on disk is traced where its derivative is not."""
    model = xsim.load(xsim.models.path("pendulum"))
    v = jnp.ones((3, model.nv))
    loss(model, v)
    forget()
    traces.clear()
    found = jax.grad(loss, 1)(model, v)
    assert traces
    forget()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XSIM_CACHE_DIR", "")
        np.testing.assert_array_equal(found, jax.grad(loss, 1)(model, v))


def test_another_model_is_traced(traces):
    """What is kept depends on frozen numbers, options, and the types of numbers."""
    model = xsim.load(xsim.models.path("pendulum"))
    heavier = model.replace({"geom.mass": jnp.array([1.0, 2.0, 3.0, 4.0])})
    models = [model, model.freeze("*"), heavier.freeze("*"), xsim.with_integrator(model, "rk4")]
    with jax.enable_x64(True):
        models.append(xsim.load(xsim.models.path("pendulum")))
    finals = []
    for other in models:
        with jax.enable_x64(other.option.gravity.dtype == np.float64):
            state = xsim.init(other, v=np.ones(model.nv))
            for is_known in (False, True):
                forget()
                traces.clear()
                finals.append(xsim.step(other, state).q)
                assert is_known != bool(traces)
    for first, second in zip(finals[::2], finals[1::2], strict=True):
        np.testing.assert_array_equal(first, second)
    assert not np.array_equal(finals[2], finals[4]) and not np.array_equal(finals[0], finals[6])


@pytest.mark.slow
@pytest.mark.filterwarnings("error::xsim.compile.compiled_call.CompilerWarning")
def test_files_that_are_damaged(folder, traces, monkeypatch):
    """Functions of damaged files are traced again, and so are those whose machine code is missing. LLVM compiles them again."""
    model = xsim.load(xsim.models.path("pendulum"))
    state = xsim.init(model, v=np.ones(model.nv))
    wanted = xsim.step(model, state).q
    for pattern in ("*.function", "*.o"):
        for file in folder.glob(pattern):
            file.write_bytes(file.read_bytes()[:-40])
        forget()
        ffi_targets._REGISTERED.clear()
        for module in ("ffi_targets", "function"):  # a name has one code in a process; the next process would start with none
            monkeypatch.setattr(f"xsim.compile.{module}.target_name", lambda code, pattern=pattern: f"{pattern}.{code}")
        traces.clear()
        np.testing.assert_array_equal(wanted, xsim.step(model, state).q)
        assert traces


def test_a_limit_is_kept(monkeypatch, traces):
    """A function that is too large is not traced to find that out."""
    monkeypatch.setattr("xsim.compile.function.MAX_TRACED_OPERATIONS", 100)
    model = xsim.load(xsim.models.path("pendulum"))
    xsim.use_compiler("llvm")
    try:
        for wanted in (1, 0):
            forget()
            traces.clear()
            with pytest.raises(Unsupported, match="operations, more than 100"):
                xsim.step(model, xsim.init(model))
            assert len(traces) == wanted
    finally:
        xsim.use_compiler("auto")


def test_kernels_for_a_gpu(monkeypatch):
    """They are not made again. The driver is a stand-in."""
    monkeypatch.setattr(cuda, "architecture", lambda: "sm_90")
    monkeypatch.setattr(cuda, "load_kernels", lambda text, kernels: [1, 2][-len(kernels) :])
    monkeypatch.setattr(cuda, "function_address", lambda name: 1)
    made = []
    monkeypatch.setattr(GpuEmitter, "module", lambda self, module=GpuEmitter.module: made.append(self) or module(self))
    shapes = [jax.ShapeDtypeStruct((2,), jnp.float32)] * 2
    targets = [
        Function(lambda a, x: [a * x], shapes, "test", entry=CacheEntry("of a test")).gpu_target((False, True)) for _ in range(2)
    ]
    assert len(made) == 1 and targets[0] == targets[1]


MUSCLE = """<mujoco><compiler angle="radian"/>
  <worldbody><site name="b" pos="0 0.3 0"/>
    <body><joint name="hinge" range="-1 1"/><geom size="0.1"/><site name="a" pos="0.2 0 0"/></body></worldbody>
  <tendon><spatial name="tendon"><site site="a"/><site site="b"/></spatial></tendon>
  <actuator><muscle tendon="tendon"/></actuator></mujoco>"""


def test_length_ranges(monkeypatch):
    """Those of muscles are simulated once."""
    model = xsim.loads(MUSCLE, "mjcf")
    simulated = []
    monkeypatch.setattr(length_range, "_end_lengths", lambda *args, run=length_range._end_lengths: simulated.append(1) or run(*args))
    np.testing.assert_array_equal(xsim.loads(MUSCLE, "mjcf").actuator.length_range, model.actuator.length_range)
    assert not simulated
    xsim.loads(MUSCLE.replace("0.3", "0.4"), "mjcf")
    assert simulated


# ---- fingerprints ------------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Pair:
    first: object
    second: object


VALUES = [
    None, True, 1, 1.0, -0.0, 0.0, "1", b"1", (), [], (1,), [1], ((1,), 2), (1, (2,)), {1: 2}, {1, 2}, frozenset((1, 2)), Pair(1, 2),
    Pair(2, 1), Table([1, 2]), np.array([1, 2]), np.array([1.0, 2.0]), np.array([[1, 2]]), np.float32(1), np.float64(1),
    np.dtype("float32"), jax.ShapeDtypeStruct((2,), np.float32), jax.ShapeDtypeStruct((2,), np.float64), ("ab", "c"), ("a", "bc"),
]  # fmt: skip


def test_fingerprints_differ():
    assert len({fingerprint.fingerprint(x) for x in VALUES}) == len(VALUES)
    assert fingerprint.fingerprint(jnp.arange(2.0)) == fingerprint.fingerprint(np.arange(2, dtype=np.float32))


@pytest.mark.parametrize("value", [len, object(), np.array([len]), Pair(1, len), {"a": (len,)}, {len}])
def test_what_has_no_fingerprint(value):
    assert fingerprint.fingerprint(value) is None


def test_fingerprints_of_other_processes():
    """Texts have another hash in each process, and sets another order."""
    program = "from xsim.compile.fingerprint import fingerprint; print(fingerprint({'a', 'b', 'c', 'd'}, {'x': 1.5}))"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, check=True)
    assert done.stdout.decode().strip() == fingerprint.fingerprint({"a", "b", "c", "d"}, {"x": 1.5})


def test_changed_source(monkeypatch):
    """Functions of a package that changed after its import are not kept: its new text does not describe them."""
    source_fingerprint.cache_clear()
    assert function_fingerprint(1) is not None
    source_fingerprint.cache_clear()
    monkeypatch.setattr(fingerprint, "_IMPORTED", 0.0)
    assert function_fingerprint(1) is None
    source_fingerprint.cache_clear()


def test_without_a_cache(monkeypatch):
    monkeypatch.setenv("XSIM_CACHE_DIR", "")
    assert function_fingerprint(1) is None


@pytest.mark.parametrize(
    "joint, is_kept",
    [
        (JointType("my.cross", (ElementaryJoint("hinge", (1.0, 0, 0)), ElementaryJoint("hinge", (0, 1.0, 0)))), True),
        (JointType("my.cam", (GeneralJoint(1, 1, lambda q, params: (jnp.array([1.0, 0, 0, 0]), jnp.zeros(3))),)), False),
    ],
    ids=["data", "functions"],
)
def test_what_was_registered_from_outside(monkeypatch, joint, is_kept):
    """Data belongs to the fingerprint. The text of functions from outside is not known."""
    before = function_fingerprint(1)
    monkeypatch.setattr(JOINT_TYPES, "_entries", dict(JOINT_TYPES))
    JOINT_TYPES.register(joint.name, joint)
    assert registry.extensions() == [("joint type", joint.name, joint)]
    assert function_fingerprint(1) != before and (function_fingerprint(1) is not None) == is_kept
