"""The function by which XLA launches kernels on an NVIDIA GPU, with a stand-in for XLA and for the CUDA driver."""

import ctypes
import re

import jax
import jax.numpy as jnp
import pytest

from xsim.compile import cuda
from xsim.compile.code_generation import UNOPTIMIZED, machine_code
from xsim.compile.flatten import Unsupported
from xsim.compile.function import Function
from xsim.compile.handler import function_offset
from xsim.compile.launch import Launch, launch_handler
from xsim.compile.machine import loaded
from xsim.compile.nvptx import BLOCK

UNIFORM, KERNEL, STREAM = 0x1110, 0x2220, 0x3330
FAILURE = 0x4440
"""What the stand-in of ``XLA_FFI_Error_Create`` returns."""


class Buffer(ctypes.Structure):
    """``XLA_FFI_Buffer``."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("dtype", ctypes.c_int), ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64), ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]  # fmt: skip


class Frame(ctypes.Structure):
    """``XLA_FFI_CallFrame``, to its results."""

    _fields_ = [
        ("struct_size", ctypes.c_size_t), ("extension", ctypes.c_void_p), ("api", ctypes.c_void_p), ("context", ctypes.c_void_p),
        ("stage", ctypes.c_int64), ("unused", ctypes.c_int64 * 4), ("arguments", ctypes.c_void_p), ("unused2", ctypes.c_int64 * 4),
        ("results", ctypes.c_void_p),
    ]  # fmt: skip


def buffers(shapes: dict[int, tuple[int, ...]]):
    """An array of pointers to buffers with this data and shapes."""
    made = []
    for data, shape in shapes.items():
        dims = (ctypes.c_int64 * len(shape))(*shape)
        made.append(Buffer(48, None, 11, data, len(shape), dims))
    return made, (ctypes.c_void_p * len(made))(*(ctypes.addressof(b) for b in made))


class Driver:
    """Stand-ins for ``cuLaunchKernel`` and for the functions of ``XLA_FFI_Api``, which note the calls."""

    def __init__(self, status: int = 0):
        self.launches: list[tuple] = []
        self.message = b""
        number, pointer = ctypes.c_uint, ctypes.c_void_p
        launch = ctypes.CFUNCTYPE(ctypes.c_int, pointer, *[number] * 7, pointer, ctypes.POINTER(pointer), pointer)

        def launched(kernel, *rest):
            grid, stream, parameters = rest[:7], rest[7], rest[8]
            values = [ctypes.cast(parameters[i], ctypes.POINTER(ctypes.c_int64))[0] for i in range(self.parameters[kernel])]
            self.launches.append((kernel, grid, stream, values))
            return status

        def stream_of(arguments):
            ctypes.cast(arguments + 24, ctypes.POINTER(pointer))[0] = STREAM

        def error_of(arguments):
            self.message = ctypes.cast(ctypes.cast(arguments + 16, ctypes.POINTER(pointer))[0], ctypes.c_char_p).value or b""
            return FAILURE

        call = ctypes.CFUNCTYPE(pointer, pointer)
        self.functions = {"Stream_Get": call(stream_of), "Error_Create": call(error_of)}
        self.launch = launch(launched)
        self.api = (ctypes.c_byte * 512)()
        for name, function in self.functions.items():
            address = ctypes.cast(function, pointer).value or 0
            ctypes.cast(ctypes.addressof(self.api) + function_offset(name), ctypes.POINTER(ctypes.c_uint64))[0] = address
        self.parameters = {UNIFORM: 3, KERNEL: 5}

    def call(self, uniform: int, environments: int, *repetition) -> int | None:
        """Call the handler of a program with two operands, the second with environments, and one result. repetition: as in `Launch`."""
        address = ctypes.cast(self.launch, ctypes.c_void_p).value or 0
        text = launch_handler(Launch(2, 1, ("operand", 1), address, uniform, KERNEL, *repetition))
        handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(loaded([machine_code(text, UNOPTIMIZED)], "handler"))
        kept, operands = buffers({0xA0: (3,), 0xB0: (environments, 2)})
        kept2, results = buffers({0xC0: (environments, 2), 0xD0: (7, 8)})
        frame = Frame(api=ctypes.addressof(self.api), arguments=ctypes.addressof(operands), results=ctypes.addressof(results))
        return handler(ctypes.addressof(frame))


def test_both_kernels_are_launched_in_turn():
    """A thread for the values of the call; then one for each environment, in blocks, with the number of environments."""
    driver = Driver()
    assert driver.call(UNIFORM, 2 * BLOCK + 1) is None
    assert driver.launches == [
        (UNIFORM, (1, 1, 1, 1, 1, 1, 0), STREAM, [0xA0, 0xB0, 0xD0]),
        (KERNEL, (3, 1, 1, BLOCK, 1, 1, 0), STREAM, [0xA0, 0xB0, 0xC0, 0xD0, 2 * BLOCK + 1]),
    ]


def test_a_kernel_of_several_turns():
    """It also gets the number of turns, and how far the turns of a sequence are apart: its bytes of all environments."""
    driver = Driver()
    driver.parameters[KERNEL] = 7
    assert driver.call(0, 10, 3, (8,)) is None
    assert driver.launches[0][3] == [0xA0, 0xB0, 0xC0, 0xD0, 10, 3, 80]


def test_no_kernel_without_values_of_the_call_or_environments():
    driver = Driver()
    assert driver.call(0, BLOCK) is None
    assert [launch[0] for launch in driver.launches] == [KERNEL]
    assert driver.call(UNIFORM, 0) is None and len(driver.launches) == 1


def test_a_failed_launch_is_an_error_of_xla():
    driver = Driver(status=700)
    assert driver.call(UNIFORM, 5) == FAILURE
    assert len(driver.launches) == 1 and b"cuLaunchKernel failed" in driver.message


def shared_and_own() -> Function:
    shapes = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((3,), (2,))]
    return Function(lambda a, x: [jnp.sin(a).sum() * x, x.sum()[None]], shapes, "test")


def test_the_number_of_environments():
    """It is the size of the first axis of an array that has environments; without such operands there is one environment."""
    function = shared_and_own()
    assert function.gpu_emitter((False, True)).counted == ("operand", 1)
    assert function.gpu_emitter((False, False)).counted == ("result", 0)


@pytest.fixture
def loaded_kernels(monkeypatch):
    """The names of the kernels that were loaded, by a stand-in for the driver."""
    names: list = []
    monkeypatch.setattr(cuda, "architecture", lambda: "sm_90")
    monkeypatch.setattr(cuda, "load_kernels", lambda text, kernels: names.append(kernels) or [UNIFORM, KERNEL][-len(kernels) :])
    monkeypatch.setattr(cuda, "function_address", lambda name: 1)
    return names


def test_programs_for_a_gpu_call_the_kernels(loaded_kernels):
    """One call of XLA, whose last result is the memory of the values of the call; the gradient of a shared operand is summed by XLA."""
    function = shared_and_own()

    def loss(a, x):
        return function([a, x], [False, True])[0].sum()

    arguments = jnp.ones(3), jnp.ones((70, 2))
    text = jax.jit(loss).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    calls = re.findall(r"custom_call @(xsim\.\w+)\(.*-> \(?(.*?)\)? *$", text, re.MULTILINE)
    assert len(calls) == 1 and loaded_kernels == [("uniform", "block")]
    assert re.search(r"tensor<70x2xf32>.*tensor<\d+x8xui8>", calls[0][1])
    text = jax.jit(jax.grad(loss)).trace(*arguments).lower(lowering_platforms=("cuda",)).as_text()
    assert "tensor<70x3xf32>" in text and "stablehlo.reduce" in text


def test_operands_that_nothing_reads(loaded_kernels):
    """Kernels of the same text are launched by different functions where the number of environments is that of different operands."""
    shapes = [jax.ShapeDtypeStruct((2,), jnp.float32)] * 2
    targets = [Function(lambda a, x: [2 * x], shapes, "test").gpu_target(flags) for flags in ((True, True), (False, True))]
    assert targets[0].name != targets[1].name


def test_large_programs_are_compiled_by_xla(monkeypatch):
    """The limit is that of a GPU where JAX uses one."""
    arguments = [jnp.ones(3), jnp.ones((70, 2))], [False, True]
    monkeypatch.setattr("xsim.compile.function.MAX_GPU_OPERATIONS", 2)
    assert shared_and_own()(*arguments)
    monkeypatch.setattr("xsim.compile.function.is_cuda", lambda: True)
    with pytest.raises(Unsupported, match="operations, more than 2"):
        shared_and_own()(*arguments)


def test_without_a_driver_xla_compiles(monkeypatch):
    """Where the CUDA driver cannot be loaded, with one warning."""
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda_that_is_not_there.so")
    cuda.driver.cache_clear()
    with pytest.raises(cuda.DriverError, match="driver was not found"):
        cuda.driver()
    function = shared_and_own()
    monkeypatch.setattr(cuda, "architecture", lambda: cuda.driver() and "")
    with pytest.warns(UserWarning, match="XLA compiles the test: the CUDA driver"):
        text = jax.jit(lambda a, x: function([a, x], [False, True])).trace(jnp.ones(3), jnp.ones((70, 2)))
        text = text.lower(lowering_platforms=("cuda",)).as_text()
    assert "custom_call" not in text and "stablehlo.sine" in text
