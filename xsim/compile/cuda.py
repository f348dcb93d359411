"""Kernels on NVIDIA GPUs, loaded by the CUDA driver.

The driver assembles PTX for the GPU that is there and keeps the machine code on disk, so that only the driver has to be installed.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager

import jax

LIBRARY = "libcuda.so.1"
NEWEST = (9, 0)
"""Compute capability for which PTX is made at most. Newer GPUs run it, too."""
MULTIPROCESSORS, CAPABILITY_MAJOR, CAPABILITY_MINOR = 16, 75, 76
"""Of CUdevice_attribute."""


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


@functools.cache
def driver() -> ctypes.CDLL:
    """The CUDA driver. Raises DriverError if there is none."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DriverError(f"the CUDA driver was not found: {error}") from None
    _check(library, library.cuInit(0), "cuInit")
    return library


def _check(library: ctypes.CDLL, status: int, call: str) -> None:
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorString(status, ctypes.byref(text))
        raise DriverError(f"{call} failed: {(text.value or b'').decode() or status}")


def _call(name: str, *arguments) -> None:
    library = driver()
    _check(library, getattr(library, name)(*arguments), name)


def function_address(name: str) -> int:
    """The address of a function of the driver."""
    return ctypes.cast(getattr(driver(), name), ctypes.c_void_p).value or 0


@functools.cache
def _device() -> int:
    """The driver's handle of the first GPU that JAX uses."""
    handle = ctypes.c_int()
    _call("cuDeviceGet", ctypes.byref(handle), jax.local_devices()[0].local_hardware_id)
    return handle.value


@functools.cache
def architecture() -> str:
    """The architecture for which PTX is made, for example sm_90."""
    return "sm_{}{}".format(*min((_attribute(CAPABILITY_MAJOR), _attribute(CAPABILITY_MINOR)), NEWEST))


@functools.cache
def multiprocessors() -> int:
    """The number of streaming multiprocessors of the GPU."""
    return _attribute(MULTIPROCESSORS)


def _attribute(number: int) -> int:
    value = ctypes.c_int()
    _call("cuDeviceGetAttribute", ctypes.byref(value), number, _device())
    return value.value


@contextmanager
def _current_context():
    """Context in which the GPU's primary context, that of XLA, is current."""
    context = ctypes.c_void_p()
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), _device())
    _call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        _call("cuCtxPopCurrent_v2", ctypes.byref(context))
        _call("cuDevicePrimaryCtxRelease_v2", _device())


@functools.cache
def load_kernels(ptx: str, names: tuple[str, ...]) -> list[int]:
    """Handles (CUkernel) of the kernels of a text in PTX, for the life of the process. They are valid on all GPUs.

    The driver assembles them now, for the first GPU. Raises DriverError."""
    library, handles = ctypes.c_void_p(), []
    with _current_context():
        nothing = (None, None, 0)
        _call("cuLibraryLoadData", ctypes.byref(library), ptx.encode(), *nothing, *nothing)
        for name in names:
            kernel, function = ctypes.c_void_p(), ctypes.c_void_p()
            _call("cuLibraryGetKernel", ctypes.byref(kernel), library, name.encode())
            _call("cuKernelGetFunction", ctypes.byref(function), kernel)  # assembles it, if the driver has not yet
            handles.append(kernel.value or 0)
    return handles
