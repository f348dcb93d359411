"""Object files of several modules at a time."""

from __future__ import annotations

import ctypes
import math
import os
import subprocess
from multiprocessing import spawn

import pytest

from xsim.compile import processes
from xsim.compile.code_generation import OPTIMIZATION
from xsim.compile.machine import code_of, loaded
from xsim.compile.processes import available_cores, cpu_quota, object_files

CALLED = "define i64 @{name}(i64 %x) {{\n  %y = add i64 %x, {number}\n  ret i64 %y\n}}\n"
CALLING = """declare i64 @one(i64)
declare i64 @ten(i64)
define i64 @both(i64 %x) {
  %a = call i64 @one(i64 %x)
  %b = call i64 @ten(i64 %a)
  ret i64 %b
}
"""
MODULES = [CALLED.format(name="one", number=1), CALLED.format(name="ten", number=10), CALLING]


@pytest.fixture
def started(monkeypatch):
    """The commands of the processes that are started. Any text is long enough for one."""
    commands = []
    monkeypatch.setattr(processes, "MIN_TEXT", 1)
    monkeypatch.setattr(processes, "available_cores", lambda: 2)
    monkeypatch.setattr(subprocess, "run", lambda *args, run=subprocess.run, **kwargs: commands.append(args) or run(*args, **kwargs))
    return commands


def value_of_both(address: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(address)(100)


def test_modules_call_each_other(started):
    """Whether one process generates their code or several do, the object files are equal, and in the order of the modules."""
    by_two = object_files(MODULES, OPTIMIZATION)
    assert len(started) == 2
    by_one = [code for text in MODULES for code in object_files([text], OPTIMIZATION)]
    assert by_one == by_two and len(started) == 2
    assert value_of_both(loaded(by_two, "both")) == 111


def test_modules_in_the_cache(started, monkeypatch, tmp_path):
    """The object files of a program are one file."""
    monkeypatch.setenv("XSIM_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        assert value_of_both(loaded(code_of(MODULES), "both")) == 111
    assert len(started) == 2 and len(list(tmp_path.glob("*.o"))) == 1


@pytest.mark.parametrize("executable", ["/nonexistent", "/bin/false", "/bin/true", None])
def test_processes_that_do_not_work(started, monkeypatch, executable):
    """Python may run within another program, which cannot be started as Python is."""
    monkeypatch.setattr(spawn, "get_executable", lambda: executable)
    assert value_of_both(loaded(object_files(MODULES, OPTIMIZATION), "both")) == 111


def test_errors_are_those_of_llvm(started):
    with pytest.raises(RuntimeError, match="expected instruction opcode"):
        object_files([MODULES[0], "define void @wrong() { wrong }"], OPTIMIZATION)
    assert len(started) == 2


def test_groups_are_equally_long():
    groups = processes._groups([5, 1, 9, 3, 3, 6], 3)
    assert sorted(k for group in groups for k in group) == list(range(6))
    assert sorted(sum([5, 1, 9, 3, 3, 6][k] for k in group) for group in groups) == [9, 9, 9]


def test_available_cores(monkeypatch):
    assert 1 <= available_cores() <= (os.cpu_count() or 1)
    for quota, cores in ((0.5, 1), (1.9, 1)):
        monkeypatch.setattr(processes, "cpu_quota", lambda quota=quota: quota)
        assert available_cores() == cores


@pytest.mark.parametrize(
    ("own", "files", "quota"),
    [
        ("0::/\n", {"cpu.max": "250000 100000\n"}, 2.5),
        ("0::/\n", {"cpu.max": "max 100000\n"}, math.inf),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000\n", "a/b/cpu.max": "max 100000\n"}, 3.0),
        ("0::/of/the/host\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("4:cpu,cpuacct:/a\n1:memory:/a\n", {"cpu/a/cpu.cfs_quota_us": "400000\n", "cpu/a/cpu.cfs_period_us": "100000\n"}, 4.0),
        ("4:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ("2:cpuset:/\n", {"cpuset/cpu.max": "100000 100000\n"}, math.inf),
        (None, {"cpu.max": "100000 100000\n"}, math.inf),
    ],
)
def test_quotas_of_containers(own, files, quota, tmp_path):
    """Of both versions of control groups, and of the groups around them. None: a system without them."""
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    if own is not None:
        (tmp_path / "own").write_text(own)
    assert cpu_quota(tmp_path, tmp_path / "own") == quota
