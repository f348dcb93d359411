"""Machine code of LLVM IR, by llvmlite, kept on disk (`xsim.cache`)."""

from __future__ import annotations

import ctypes
import functools
import hashlib
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from xsim.cache import cached

OPTIMIZATION = 1
"""Level of LLVM's code generation. Level 2 makes the same code of such programs, and takes up to six times as long."""
UNOPTIMIZED = 0
"""Level for a function that is evaluated once a call, not for each environment and step, and for very long programs. Its code is made at
least three times as fast, and runs a third as fast."""

_ENGINES: list[Any] = []
"""Owners of the machine code in memory. XLA refers to it by address, for the life of the process."""


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def _features() -> str:
    return llvm.get_host_cpu_features().flatten()


def _machine(optimization: int) -> Any:
    _initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=_features(), opt=optimization, codemodel="jitdefault", jit=True
    )


@functools.cache
def _vector_sizes() -> tuple[int, ...]:
    """Bytes of the vectors that programs use on this processor, the shortest first."""
    features = _features().split(",")
    return (32, 64) if "+avx512f" in features else (32,) if "+avx" in features else (16,)


def vector_lanes(environments: int, size: int) -> int:
    """Numbers of ``size`` bytes in a vector of a program: of the shortest kind if that holds all environments, else of the longest."""
    sizes = _vector_sizes()
    return next((x for x in sizes if x >= environments * size), sizes[-1]) // size


def _compiled(text: str, optimization: int) -> tuple[Any, Any]:
    """The target machine and the module of a text in LLVM IR, from which code is generated."""
    machine = _machine(optimization)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = llvm.get_process_triple(), str(machine.target_data)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return machine, module


def machine_code(text: str, optimization: int = OPTIMIZATION) -> bytes:
    """The object file of a module in LLVM IR."""
    machine, module = _compiled(text, optimization)
    return machine.emit_object(module)


def assembly(text: str) -> str:
    """The assembly language of a module in LLVM IR."""
    machine, module = _compiled(text, OPTIMIZATION)
    return machine.emit_assembly(module)


def loaded(code: bytes, name: str) -> int:
    """The address of a function of an object file, which is loaded."""
    machine = _machine(OPTIMIZATION)
    empty = llvm.parse_assembly("")
    engine = llvm.create_mcjit_compiler(empty, machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(name)
    _ENGINES.append(engine)
    return address


def identity(text: str, optimization: int = OPTIMIZATION) -> str:
    """A hash of a module in LLVM IR and of all that its machine code depends on."""
    _initialize()
    parts = (llvmlite.__version__, llvm.get_process_triple(), llvm.get_host_cpu_name(), _features(), str(optimization), text)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def function_address(text: str, name: str, optimization: int = OPTIMIZATION) -> int:
    """The address of a function of a module in LLVM IR, compiled now or in an earlier process."""
    return loaded(cached(f"{identity(text, optimization)}.o", lambda: machine_code(text, optimization)), name)


def pointer_capsule(address: int) -> Any:
    """A PyCapsule of a function pointer, as `jax.ffi.register_ffi_target` takes it."""
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(address, None, None)
