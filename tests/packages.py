"""Packages of the index that nightly tests read, and engines that they compare with: the extra `robots` has names and versions.

Each is installed once, in a folder of its own below XSIM_ROBOTS (else the user's cache): what they depend on disagrees with each other, and
with what the tests run in. Robots are files only, so nothing comes with them; engines have an environment each.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import jax
import pytest

MINUTES = 10  # to install one
_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def version(name: str) -> str:
    """That of a package of the extra."""
    return dict(line.split("==") for line in _extra())[name]


def robots(name: str) -> Path:
    """The folder of a package's files."""
    return _installed((f"{name}=={version(name)}",), f"{name}-{version(name)}", False)


def cuda_compiler() -> Path:
    """The folder of what makes jax compile for NVIDIA's GPUs, on a machine without one. For PYTHONPATH."""
    packages = [f"{name}=={jax.__version__}" for name in ("jax-cuda12-plugin", "jax-cuda12-pjrt")]
    return _installed((*packages, "nvidia-cuda-nvcc-cu12"), f"cuda-{jax.__version__}-py{_PYTHON}", False)


def already(name: str) -> Path | None:
    """The folder of a package's files if they were installed before."""
    path = _root() / f"{name}-{version(name)}"
    return path if path.with_name(f"{path.name}.installed").exists() else None


def engine(name: str, release: str | None = None) -> Path:
    """The Python of an environment that has an engine. release: None is that of the extra."""
    release = release or version(name)
    return _python(_installed((f"{name}=={release}",), f"{name}-{release}-py{_PYTHON}", True))


def trainer(name: str) -> Path:
    """The Python of an environment that has a package of another trainer, and what xsim depends on."""
    project = _project()
    needed = (f"{name}=={version(name)}", *project["dependencies"], *project["optional-dependencies"]["gym"])
    return _python(_installed(needed, f"{name}-{version(name)}-py{_PYTHON}", True))


def ask(name: str, script: str, paths: list[Path], release: str | None = None) -> list[dict]:
    """What an engine's script of ``reference`` answers for files: one line of JSON each. release: None is that of the extra."""
    command = [str(engine(name, release)), str(Path(__file__).parent / "reference" / script)]
    given = "".join(f"{path}\n" for path in paths)
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=60 * MINUTES, env=bare())
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and len(lines) == len(paths), f"{script} ended at {paths[len(lines) :][:1]}: {done.stderr[-2000:]}"
    return [json.loads(line) for line in lines]


@cache
def _project() -> dict:
    return tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]


def _extra() -> list[str]:
    return _project()["optional-dependencies"]["robots"]


def _root() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("XSIM_ROBOTS") or Path(cache) / "xsim" / "robots")


def _python(folder: Path) -> Path:
    return folder / "bin" / "python"


def bare() -> dict[str, str]:
    """The environment of this process without its paths of modules."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


@cache
def _installed(packages: tuple[str, ...], folder: str, environment: bool) -> Path:
    """Install into a folder, without what they depend on, or into an environment there. Workers of a run wait for each other."""
    root = _root()
    root.mkdir(parents=True, exist_ok=True)
    path, done = root / folder, root / f"{folder}.installed"
    with (root / f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if done.exists():
            return path
        if environment:
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(path)], check=True, env=bare())
            _pip(str(_python(path)), [*packages])
        else:
            _pip(sys.executable, ["--no-deps", "--upgrade", "--target", str(path), *packages])
        done.touch()
    return path


def _pip(python: str, arguments: list[str]) -> None:
    """Install, or skip the test where the index does not answer or has no such package for this Python."""
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, env=bare())
    if done.returncode:
        error = (re.findall(r"ERROR: (.*)", done.stderr) or done.stderr.splitlines() or ["?"])[-1]
        pytest.skip(f"{arguments[-1]} cannot be installed from the package index: {error}")
