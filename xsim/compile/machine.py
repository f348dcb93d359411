"""Machine code of LLVM IR, by llvmlite, kept on disk (`xsim.cache`)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import platform
from collections.abc import Sequence
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from xsim.cache import cached, read_cached
from xsim.compile.code_generation import OPTIMIZATION, processor, processor_features, target_machine
from xsim.compile.processes import object_files

_ENGINES: list[Any] = []
"""Owners of the machine code in memory. XLA refers to it by address, for the life of the process."""


@functools.cache
def _vector_sizes() -> tuple[int, ...]:
    """Bytes of the vectors that programs use on this processor, the shortest first."""
    features = processor_features().split(",")
    return (32, 64) if "+avx512f" in features else (32,) if "+avx" in features else (16,)


@functools.cache
def vector_registers() -> int:
    """How many values of a program are in vector registers at most, three quarters of the registers of this processor. The others are for
    numbers that operations need in between."""
    many = "+avx512f" in processor_features().split(",") or platform.machine() in ("aarch64", "arm64")
    return 24 if many else 12


def vector_lanes(environments: int, size: int) -> int:
    """Numbers of ``size`` bytes in a vector of a program: of the shortest kind if that holds all environments, else of the longest."""
    sizes = _vector_sizes()
    return next((x for x in sizes if x >= environments * size), sizes[-1]) // size


def loaded(codes: Sequence[bytes], name: str) -> int:
    """The address of a function of object files, which are loaded together."""
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine(OPTIMIZATION))
    for code in codes:
        engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(name)
    _ENGINES.append(engine)
    return address


def identity(texts: Sequence[str], optimization: int = OPTIMIZATION) -> str:
    """A hash of modules in LLVM IR and of all that their machine code depends on."""
    parts = (llvmlite.__version__, *processor(), str(optimization), str(len(texts)), *texts)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def code_of(texts: Sequence[str], optimization: int = OPTIMIZATION) -> list[bytes]:
    """The object files of modules in LLVM IR, made now or in an earlier process."""
    return _unpacked(cached(_file(identity(texts, optimization)), lambda: _packed(object_files(texts, optimization))))


def read_code(identity: str) -> list[bytes] | None:
    """The object files that an earlier process made, of modules with this `identity`; None if they are not on disk."""
    packed = read_cached(_file(identity))
    return None if packed is None else _unpacked(packed)


def _file(identity: str) -> str:
    return f"{identity}.o"


def _packed(codes: Sequence[bytes]) -> bytes:
    """Object files as one: each after its length."""
    return b"".join(part for code in codes for part in (len(code).to_bytes(8, "little"), code))


def _unpacked(packed: bytes) -> list[bytes]:
    """The object files of `_packed`."""
    codes, at = [], 0
    while at < len(packed):
        start = at + 8
        at = start + int.from_bytes(packed[at:start], "little")
        codes.append(packed[start:at])
    return codes


def pointer_capsule(address: int) -> Any:
    """A PyCapsule of a function pointer, as `jax.ffi.register_ffi_target` takes it."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, None, None)
