"""Machine code of modules in LLVM IR, by llvmlite.

``python code_generation.py`` is a process that generates code (`xsim.compile.processes`): it reads modules from its standard input and
writes object files to its standard output. It imports nothing else of xsim, for which it starts in a tenth of a second.
"""

from __future__ import annotations

import functools
import pickle
import sys
from typing import Any

import llvmlite.binding as llvm

OPTIMIZATION = 1
"""Level of LLVM's code generation. Level 2 makes the same code of such programs, and takes up to six times as long."""
UNOPTIMIZED = 0
"""Level for a function that is evaluated once a call, not for each environment and step, and for very long programs. Its code is made at
least three times as fast, and runs a third as fast."""


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@functools.cache
def processor_features() -> str:
    """The features of this processor, as LLVM writes them."""
    return llvm.get_host_cpu_features().flatten()


def processor() -> tuple[str, str, str]:
    """What machine code depends on of this computer: its platform, the processor, and the features of that."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), processor_features()


def target_machine(optimization: int) -> Any:
    """LLVM's description of this processor."""
    _initialize()
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=processor_features(), opt=optimization, codemodel="jitdefault", jit=True
    )


def module_of(text: str, machine: Any, triple: str) -> Any:
    """The module of a text in LLVM IR, from which a target machine generates code. triple: the name of that machine."""
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=0)))
    return module


def machine_code(text: str, optimization: int = OPTIMIZATION) -> bytes:
    """The object file of a module in LLVM IR."""
    machine = target_machine(optimization)
    return machine.emit_object(module_of(text, machine, llvm.get_process_triple()))


def assembly(text: str) -> str:
    """The assembly language of a module in LLVM IR."""
    machine = target_machine(OPTIMIZATION)
    return machine.emit_assembly(module_of(text, machine, llvm.get_process_triple()))


if __name__ == "__main__":
    modules, level = pickle.load(sys.stdin.buffer)
    pickle.dump([machine_code(module, level) for module in modules], sys.stdout.buffer)
