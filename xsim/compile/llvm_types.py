"""How LLVM IR writes types, constants, and loads and stores of one number for each environment."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import llvmlite.binding as llvm
import numpy as np

from xsim.compile.program import BOOL

NAMES = {"f4": "float", "f8": "double", "i4": "i32", "i8": "i64", "i1": "i8", "i2": "i16", "u4": "i32", "u8": "i64", "u1": "i8", "b1": "i1"}
"""LLVM's names of numpy's types."""


@dataclass(frozen=True)
class Target:
    """The machine that a program is compiled for. lanes: environments in a block. gpu: whether a thread executes a block. table: the most
    entries of an array, of four bytes each, among which an instruction selects one for each lane (`lookup`)."""

    lanes: int
    gpu: bool = False
    table: int = 0

    @property
    def alignment(self) -> int:
        """Of arrays in scratch memory, in bytes."""
        return min(64, 16 * self.lanes)

    def type(self, dtype: np.dtype, varying: bool = True) -> str:
        """Type of a value."""
        name = NAMES[dtype.str[1:]]
        return f"<{self.lanes} x {name}>" if varying and self.lanes > 1 else name


def literal(number: np.generic) -> str:
    """A constant of LLVM."""
    if number.dtype == BOOL:
        return "true" if number else "false"
    if number.dtype.kind == "f":
        return f"0x{struct.unpack('<Q', struct.pack('<d', float(number)))[0]:016X}"
    return str(int(number))


def vector_suffix(dtype: np.dtype, kind: str) -> str:
    lanes = int(kind[1:].split()[0]) if kind.startswith("<") else 1
    return suffix(dtype, lanes)


def short_name(element: str) -> str:
    """The name of a type in the names of functions."""
    return {"float": "f32", "double": "f64"}.get(element, element)


def _aligned(kind: str, addresses: str, alignment: int) -> str:
    """The text of the arguments for addresses and their alignment, which LLVM 22 changed."""
    newer = llvm.llvm_version_info[0] >= 22
    return f"{kind} align {alignment} {addresses}" if newer else f"{kind} {addresses}, i32 {alignment}"


def _pointers(lanes: int, addresses: str, alignment: int) -> str:
    """The text of the arguments for an address for each environment, and of a mask of all lanes."""
    return f"{_aligned(f'<{lanes} x ptr>', addresses, alignment)}, <{lanes} x i1> splat (i1 true)"


def gather(kind: str, element: str, lanes: int, addresses: str, alignment: int) -> str:
    """The text of a load of one number for each environment."""
    name = f"llvm.masked.gather.v{lanes}{short_name(element)}.v{lanes}p0"
    return f"call {kind} @{name}({_pointers(lanes, addresses, alignment)}, {kind} poison)"


def scatter(kind: str, element: str, lanes: int, value: str, addresses: str, alignment: int) -> str:
    """The text of a store of one number for each environment."""
    name = f"llvm.masked.scatter.v{lanes}{short_name(element)}.v{lanes}p0"
    return f"call void @{name}({kind} {value}, {_pointers(lanes, addresses, alignment)})"


_LOOKUPS = {
    (8, 1, "float"): "avx2.permps", (8, 1, "i32"): "avx2.permd", (8, 2, "float"): "avx512.vpermi2var.ps.256",
    (8, 2, "i32"): "avx512.vpermi2var.d.256", (16, 1, "float"): "avx512.permvar.sf.512", (16, 1, "i32"): "avx512.permvar.si.512",
    (16, 2, "float"): "avx512.vpermi2var.ps.512", (16, 2, "i32"): "avx512.vpermi2var.d.512",
}  # fmt: skip
"""The instruction that selects among one or two vectors, by lanes, vectors, and LLVM's type of the entries."""


def table_entries(lanes: int, features: str) -> int:
    """`Target.table` of a processor. features: as LLVM writes them."""
    known = features.split(",")
    if lanes == 16:
        return 32 if "+avx512f" in known else 0
    return 0 if lanes != 8 else 16 if "+avx512vl" in known else 8 if "+avx2" in known else 0


def lookup(element: str, vectors: list[str], indices: str) -> str:
    """The text of what selects an entry of one or two vectors for each lane, by an index for each."""
    lanes = int(indices.split()[0][1:])
    kind = f"<{lanes} x {element}>"
    first, *others = (f"{kind} {x}" for x in vectors)
    name = _LOOKUPS[lanes, len(vectors), element]
    return f"call {kind} @llvm.x86.{name}({', '.join([first, indices, *others])})"


def memory_type(dtype: np.dtype) -> str:
    return "i8" if dtype == BOOL else NAMES[dtype.str[1:]]


def alignment_of(dtype: np.dtype, lanes: int) -> int:
    return min(64, dtype.itemsize * lanes)


def suffix(dtype: np.dtype, lanes: int) -> str:
    """End of the name of a function of LLVM, such as v8f32."""
    name = short_name(NAMES[dtype.str[1:]])
    return f"v{lanes}{name}" if lanes > 1 else name
