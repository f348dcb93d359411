"""Python programs in processes of their own, which `jax.distributed` may connect."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

HERE = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
"""What lets a program import test modules."""


def free_address() -> str:
    """HOST:PORT for a coordinator."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return f"localhost:{free.getsockname()[1]}"


def start(*arguments, **environment: str) -> subprocess.Popen:
    """Python with these arguments, on the CPU. environment: further variables."""
    return start_command(sys.executable, *arguments, **environment)


def start_command(*command, **environment: str) -> subprocess.Popen:
    """A command, as `start` does."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*map(str, command)], env={**os.environ, "JAX_PLATFORMS": "cpu", **environment}, **pipes)


def finish(process: subprocess.Popen, timeout: float = 600) -> str:
    """What a program printed. It must succeed."""
    text, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, text[-3000:]
    return text
