"""Which compiler makes the programs of `xsim.step`, `xsim.rollout` and the queries of a state."""

from __future__ import annotations

import os
from contextlib import contextmanager
from contextvars import ContextVar

import jax

COMPILERS = ("auto", "llvm", "xla")
VARIABLE = "XSIM_COMPILER"
"""Environment variable: the compiler at the start of a process."""


def _checked(name: str) -> str:
    if name not in COMPILERS:
        raise ValueError(f"unknown compiler {name!r}; known: {', '.join(COMPILERS)}")
    return name


class _Chosen:
    name: str | None = None


_TRACED: ContextVar[str | None] = ContextVar("compiler", default=None)


def use_compiler(name: str) -> None:
    """Choose the compiler of `xsim.step`, `xsim.rollout` and the queries of a state (`xsim.forward`, ...) in this process.

    * ``"auto"``, the default: LLVM on the CPU and on NVIDIA GPUs for functions that have a program of moderate size, else XLA
    * ``"llvm"``: LLVM there; models without such a program raise `xsim.compile.flatten.Unsupported`
    * ``"xla"``: XLA

    A function that the caller has compiled with `jax.jit` keeps the compiler with which it was traced. The environment variable
    ``XSIM_COMPILER`` sets the choice at the start. Raises ValueError for another name."""
    _Chosen.name = _checked(name)


def compiler() -> str:
    """The chosen compiler."""
    return _TRACED.get() or _Chosen.name or _checked(os.environ.get(VARIABLE, "auto"))


@contextmanager
def tracing_for(name: str):
    """Context in which functions are traced for a compiler."""
    token = _TRACED.set(name)
    try:
        yield
    finally:
        _TRACED.reset(token)


def uses_llvm() -> bool:
    """Whether functions that are traced now are compiled by LLVM where they can be: on the CPU and on NVIDIA GPUs."""
    return compiler() != "xla" and (jax.default_backend() == "cpu" or is_cuda())


def is_cuda() -> bool:
    """Whether JAX computes on an NVIDIA GPU."""
    return jax.default_backend() == "gpu" and "cuda" in jax.local_devices()[0].client.platform_version.lower()
