"""Programs of XLA that a second process finds on disk."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import numpy as np
import pytest

import xsim
from xsim import cache

pytestmark = pytest.mark.xla

PROGRAM = """
import sys
import jax, numpy as np, xsim

found = []
jax.monitoring.register_event_listener(lambda event, **_: found.append(event))
folder = xsim.use_compilation_cache()
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)  # this program compiles fast
model = xsim.load(xsim.models.path("chain"))
state = xsim.init(model)
for compiler in ("xla", "llvm"):  # XLA's program around a program of LLVM is kept as well
    xsim.use_compiler(compiler)
    final = jax.jit(lambda model, state: xsim.rollout(model, state, steps=3)[0])(model, state)
    np.save(f"{sys.argv[1]}-{compiler}.npy", final.q)
print(folder, found.count("/jax/compilation_cache/cache_hits"))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no folder that only this user can write to is known there")
def test_a_second_process_compiles_nothing_again(tmp_path):
    hits = []
    environment = {name: x for name, x in os.environ.items() if name != "JAX_COMPILATION_CACHE_DIR"}
    for run in ("first", "second"):
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / run)]
        environment |= {"XSIM_CACHE_DIR": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-2000:]
        folder, count = done.stdout.split()
        hits.append(int(count))
        assert folder == str(tmp_path / "cache" / "xla")
    programs = len(list((tmp_path / "cache" / "xla").glob("*-cache")))
    assert hits[1] - hits[0] >= programs - hits[0] > 2
    for compiler in ("xla", "llvm"):
        np.testing.assert_array_equal(*(np.load(tmp_path / f"{run}-{compiler}.npy") for run in ("first", "second")))


@pytest.fixture
def options_of_jax():
    """Options that the function sets, put back."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update(names[0], None)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def test_which_folder(options_of_jax, tmp_path, monkeypatch):
    monkeypatch.setenv("XSIM_CACHE_DIR", "")
    assert xsim.use_compilation_cache() is None and jax.config.jax_compilation_cache_dir is None
    assert xsim.use_compilation_cache(tmp_path / "mine") == tmp_path / "mine"
    assert jax.config.jax_compilation_cache_dir == str(tmp_path / "mine")
    assert xsim.use_compilation_cache() == tmp_path / "mine"  # what was chosen stays


def test_old_programs_are_removed(options_of_jax, tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "MAX_CACHED", 2)
    for age, name in enumerate(("new", "middle", "old")):
        (tmp_path / f"{name}-cache").write_bytes(b"x")
        (tmp_path / f"{name}-atime").write_bytes(b"x")
        os.utime(tmp_path / f"{name}-cache", (1e9 - age, 1e9 - age))
    xsim.use_compilation_cache(tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["middle-atime", "middle-cache", "new-atime", "new-cache"]
