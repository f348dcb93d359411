"""Machine code that XLA calls by name, through its foreign function interface."""

from __future__ import annotations

from collections.abc import Callable

import jax

from xsim.compile.machine import loaded, pointer_capsule

__all__ = ["register_target", "target_name"]

_REGISTERED: set[str] = set()
"""Names of functions that XLA knows. A name is a hash of the code, because JAX may keep a program that calls it for other processes."""


def target_name(code: str) -> str:
    """The name under which XLA knows machine code. code: its hash."""
    return f"xsim.{code}"


def register_target(code: str, objects: Callable[[], list[bytes] | None], platform: str = "cpu") -> bool:
    """Make machine code known to XLA, unless it is. Returns False if the code is missing.

    objects: returns the object files that define ``handler``, or None if they are missing. platform: "cpu" or "CUDA"."""
    name = target_name(code)
    if name not in _REGISTERED:
        found = objects()
        if found is None:
            return False
        jax.ffi.register_ffi_target(name, pointer_capsule(loaded(found, "handler")), platform=platform)
        _REGISTERED.add(name)
    return True
