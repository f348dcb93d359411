"""Memory of the process that runs the tests."""

from __future__ import annotations

import ctypes
import gc
import mmap
import platform
from pathlib import Path

import jax

PROC = Path("/proc/self")
"""Where Linux tells of this process; other systems have no such files."""


def resident() -> int:
    """Bytes of memory that this process occupies now."""
    return int((PROC / "statm").read_bytes().split()[1]) * mmap.PAGESIZE


def trim() -> None:
    """Give freed memory back to the system: glibc keeps what a compilation took, 2 GB of a large program."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def drop_programs() -> None:
    """Forget compiled programs and give their memory back."""
    jax.clear_caches()
    gc.collect()
    trim()
