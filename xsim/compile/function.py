"""Functions of one environment that are compiled to machine code for many, with their derivatives.

A `Function` is called with operands that all environments share and operands of which each has its own. It works under `jax.jit`, `vmap`,
`grad`, `jvp`, `scan` and `shard_map`. The derivatives are those that JAX derives of the function of one environment, compiled the same way.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr
from jax.interpreters import partial_eval as pe

from xsim.compile import cuda
from xsim.compile.announcement import announced
from xsim.compile.blocks import Turns
from xsim.compile.cache_entry import CacheEntry
from xsim.compile.choice import is_cuda, tracing_for
from xsim.compile.code_generation import OPTIMIZATION, UNOPTIMIZED, machine_code, processor_features
from xsim.compile.compiled_call import GpuTarget, compiled_call
from xsim.compile.ffi_targets import register_target, target_name
from xsim.compile.flatten import Unsupported, program_of
from xsim.compile.host import HostEmitter
from xsim.compile.launch import Launch, launch_handler
from xsim.compile.llvm_types import Target, table_entries
from xsim.compile.machine import code_of, identity, read_code, vector_lanes
from xsim.compile.manual_axes import varying_alike
from xsim.compile.nvptx import GpuEmitter, Repetition
from xsim.compile.program import INDEX, Program
from xsim.compile.reverse import reverse_program
from xsim.compile.rules import differentiated_in_forward_mode, differentiated_in_reverse_mode, is_float
from xsim.compile.traced import count_operations, operations_by_results
from xsim.spatial import one_environment

MAX_OPERATIONS = 1_000_000
"""Operations of a function beyond which XLA compiles it: memory. LLVM compiles 310,000 operations in 80 s on two cores, with tracing
(`benchmarks/cpu_humanoid_cmu.json`)."""
MAX_GPU_OPERATIONS = 50_000
"""The same for NVIDIA GPUs: their assembler takes 25 s for 22,000 operations, a minute for 38,000 and more than four minutes for 84,000."""
MAX_OPTIMIZED_OPERATIONS = 600_000
"""Operations of a function beyond which LLVM does not optimize its code. For 900,000 operations that takes 130 s of processor time less."""
MAX_WIDE_OPERATIONS = 60_000
"""A program of more operations has vectors of the shortest kind, see `vector_lanes`, unless it is a derivative in reverse mode. Its loops
take as many turns as the environment of a block that needs most, and compute what is not zero in any. With AVX-512 the steps of a hand
(46,000) and of G1 (53,000) take 0.92 to 0.97 of the time with the longest vectors, those of a Leap hand (72,000) and of four ants (95,000)
1.00 to 1.02, that of twenty objects (73,000) 1.20, that of humanoid_CMU (165,000) 0.91; reverse programs, which do not solve again, 0.87 to
1.08 (script not committed)."""
MAX_TRACED_OPERATIONS = 2_000_000
"""Operations of a traced function beyond which no program is made, which takes time: 15 s for 1,900,000 (script not committed). The
programs of the step mostly have 0.2 to 0.6 times as many, without products with zeros, what is equal, and what nothing uses."""
MAX_EXTRA_SHARE = 0.01
"""A result that nothing uses stays in the machine code of a prunable function if it adds at most this share of operations. Programs that
use nearly the same results then share the machine code: those of an environment's reset and step."""


def max_operations() -> int:
    """Operations of a function beyond which XLA compiles it on the devices that JAX uses."""
    return MAX_GPU_OPERATIONS if is_cuda() else MAX_OPERATIONS


@contextmanager
def _without_garbage_collection():
    """A trace or a program has some 100,000 objects and no garbage: the collector would go through them again and again."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Summary(NamedTuple):
    """operations: number of operations of a program. varying: for each number of each result, whether it differs between environments."""

    operations: int
    varying: tuple[np.ndarray, ...]


class GpuKernels(NamedTuple):
    """Kernels that are loaded. uniform, block: their handles; uniform: 0 if there is none. slots: as in `GpuTarget`. counted: as in
    `xsim.compile.blocks.Layout`. repetition: of several calls, if the kernels can. code: the hash of their text."""

    uniform: int
    block: int
    slots: int
    counted: tuple[str, int] | None
    repetition: Repetition | None
    code: str


class Replay(NamedTuple):
    """How a function is evaluated again where its derivatives are taken. known: those of its results that are not computed again; they have
    no derivatives. function(*arguments, *known results): returns the other results."""

    function: Callable
    known: tuple[int, ...]


class Function:
    """A function of one environment.

    function: of arrays, returns a list of arrays. shapes: of its arguments (`jax.ShapeDtypeStruct`). name: for messages.
    linear: if it is the derivative of another function, that function and those of its arguments whose tangents are the last arguments.
    reverse_of: if it is the derivative in reverse mode, that function and the arguments whose cotangents are the results. prunable: whether
    results that nothing uses are left out of the machine code; a function that is always used whole is compiled once. replay: for a
    function that is not prunable. repetition: how several calls in turn are one kernel (`xsim.compile.repeated`), None: they are not.
    entry: of the cache; None: it is not kept for later processes.
    """

    def __init__(
        self, function: Callable, shapes: Sequence[Any], name: str, linear=None, results=None, reverse_of=None, prunable: bool = False,
        replay: Replay | None = None, repetition: Repetition | None = None, entry: CacheEntry | None = None,
    ):  # fmt: skip
        self.repetition = repetition
        self.entry = CacheEntry(None) if entry is None else entry
        self.function, self.shapes, self.name, self.prunable = function, tuple(shapes), name, prunable
        self._results: Any = results
        self._traced: ClosedJaxpr | None = None
        self.linear: tuple[Function, tuple[int, ...]] | None = linear
        self.reverse_of: tuple[Function, tuple[int, ...]] | None = reverse_of
        self._tangents: dict[tuple[int, ...], Function] = {}
        self._reverses: dict[tuple[int, ...], Function] = {}
        self._selections: dict[tuple[int, ...], Function] = {}
        self._reading: dict[tuple[int, ...], Function] = {}
        self._targets: dict = {}
        self.replay = replay
        self._replayed: Function | None = None
        self._whole: Function | None = None  # the function of which this has some of the results or arguments
        self._programs: dict[tuple[bool, ...], Program] = {}  # until they are compiled

    def __repr__(self) -> str:
        return f"Function({self.name})"

    @property
    def is_derivative(self) -> bool:
        """Whether it is the derivative of another function, in forward or in reverse mode."""
        return self.linear is not None or self.reverse_of is not None

    @property
    def traced(self) -> ClosedJaxpr:
        """The function, traced by JAX. It is kept until it is compiled."""
        if self._traced is None:
            with one_environment(), tracing_for("xla"), _without_garbage_collection():
                self._traced = jax.make_jaxpr(lambda *xs: list(self.function(*xs)))(*self.shapes)
        return self._traced

    @property
    def results(self) -> list:
        """Shapes and types of the results."""
        if self._results is None:
            self._results = self.entry.found("results", lambda: [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in self.traced.out_avals])
        return self._results

    @property
    def differentiable(self) -> list[int]:
        """The results that have derivatives."""
        return [i for i, a in enumerate(self.results) if is_float(a) and i not in self.known]

    @property
    def known(self) -> tuple[int, ...]:
        """The results with which derivatives are evaluated, see `Replay`."""
        return () if self.replay is None else self.replay.known

    def __call__(self, arguments: Sequence[Any], batched: Sequence[bool], in_place: bool = False) -> list:
        """The results (environments, ...). batched: which arguments have a first axis of environments; if none has, there is one. in_place:
        whether results of a processor replace arguments, see `replacing`. XLA copies an argument that is needed further; between the calls
        of a loop it then copies nothing.

        Raises Unsupported if no program can be made, or if it has more operations than `max_operations`. Of a prunable function that is
        known when it is compiled: XLA compiles it then."""
        if self.prunable:
            self._check_trace()
        else:
            self.check_size(tuple(batched))
        operands = varying_alike(list(arguments))
        return compiled_call.bind(*operands, function=self, batched=tuple(batched), summed=(False,) * len(self.results), in_place=in_place)

    def check_size(self, batched: tuple[bool, ...]) -> None:
        """Raise Unsupported if the function has too many operations. Those of the trace are counted first: to make a program takes time."""
        if self.entry.get(("summary", batched)) is None:
            self._check_trace()
        found = self.summary(batched).operations
        if found > max_operations():
            self._forget(batched)
            raise Unsupported(f"{found} operations, more than {max_operations()}")

    def _check_trace(self) -> None:
        """Raise Unsupported if the trace has too many operations."""
        count = self.entry.found("traced operations", lambda: count_operations(self.traced.jaxpr))
        if count > MAX_TRACED_OPERATIONS:
            self._traced = None
            raise Unsupported(f"{count} operations, more than {MAX_TRACED_OPERATIONS}")

    # ---- derivatives -------------------------------------------------------------------------------------------------------------

    @property
    def replayed(self) -> Function:
        """The function whose derivatives are taken: of (*arguments, *known results), returns the other results."""
        if self.replay is None:
            return self
        if self._replayed is None:
            results = [x for i, x in enumerate(self.results) if i not in self.known]
            shapes = [*self.shapes, *(self.results[i] for i in self.known)]
            self._replayed = Function(
                self.replay.function, shapes, self.name, results=results, repetition=self._replayed_repetition(),
                entry=self.entry.derived("replayed"),
            )  # fmt: skip
        return self._replayed

    def _replayed_repetition(self) -> Repetition | None:
        """The repetition of `replayed`: each turn has its own known results."""
        if self.repetition is None:
            return None
        remaining = [k for k in range(len(self.results)) if k not in self.known]
        carried = tuple((remaining.index(k), i) for k, i in self.carried if k in remaining)
        known = tuple(range(len(self.shapes), len(self.shapes) + len(self.known)))
        previous = tuple(i for k, i in self.carried if k in self.known)
        return Repetition(carried, (*self.repetition.sequences, *known), previous, known)

    def _of(self, active: tuple[int, ...], arguments: list) -> Callable:
        """The differentiable results as a function of the active arguments, the others as given."""

        def function(*values):
            new = list(arguments)
            for i, value in zip(active, values, strict=True):
                new[i] = value
            out = self.function(*new)
            return [out[i] for i in self.differentiable]

        return function

    def tangent(self, active: tuple[int, ...]) -> Function:
        """The derivative along tangents of the active arguments: of (*arguments, *tangents)."""
        found = self._tangents.get(active)
        if found is None:
            count = len(self.shapes)

            def function(*xs):
                arguments = list(xs[:count])
                with differentiated_in_forward_mode():
                    return jax.jvp(self._of(active, arguments), [arguments[i] for i in active], list(xs[count:]))[1]

            shapes, results = [*self.shapes, *(self.shapes[i] for i in active)], [self.results[i] for i in self.differentiable]
            found = self._tangents[active] = Function(
                function, shapes, f"tangent of {self.name}", (self, active), results, prunable=self.prunable,
                entry=self.entry.derived("tangent", active),
            )  # fmt: skip
        return found

    def reverse(self, active: tuple[int, ...]) -> Function:
        """The cotangents of the active arguments: of (*arguments, *cotangents of the differentiable results)."""
        found = self._reverses.get(active)
        if found is None:
            count = len(self.shapes)

            def function(*xs):
                arguments = list(xs[:count])
                with differentiated_in_reverse_mode():
                    return list(jax.vjp(self._of(active, arguments), *(arguments[i] for i in active))[1](list(xs[count:])))

            shapes = [*self.shapes, *(self.results[i] for i in self.differentiable)]
            results = [self.shapes[i] for i in active]
            found = self._reverses[active] = Function(
                function, shapes, f"reverse of {self.name}", None, results, (self, active), prunable=self.prunable,
                entry=self.entry.derived("reverse", active),
            )  # fmt: skip
        return found

    def remaining(self, used: tuple[int, ...]) -> tuple[int, ...]:
        """The results that remain in the machine code if these are used: of a function that is not prunable all, of a derivative these, of
        others also those that cost little, see `MAX_EXTRA_SHARE`."""
        if not self.prunable:
            return tuple(range(len(self.results)))
        if self.is_derivative:
            return used
        return self.entry.found(("remaining", used), lambda: self._extended(used))

    def _extended(self, used: tuple[int, ...]) -> tuple[int, ...]:
        counts, mask = operations_by_results(self.traced.jaxpr), sum(1 << i for i in used)
        limit = MAX_EXTRA_SHARE * sum(count for results, count in counts.items() if results & mask)

        def extra(i: int) -> int:
            """Operations that only the i-th result needs, and its numbers, which are written."""
            operations = sum(count for results, count in counts.items() if results >> i & 1 and not results & mask)
            return operations + math.prod(self.results[i].shape)

        return tuple(i for i in range(len(self.results)) if i in used or extra(i) <= limit)

    def selected(self, used: tuple[int, ...]) -> Function:
        """The function with these of its results."""
        if len(used) == len(self.results):
            return self
        found = self._selections.get(used)
        if found is None:
            found = self._selections[used] = self._selection(used)
        return found

    def _selection(self, used: tuple[int, ...]) -> Function:
        if self.linear is not None:
            base, active = self.linear
            return base.selected(tuple(base.differentiable[i] for i in used)).tangent(active)
        if self.reverse_of is not None:
            base, active = self.reverse_of
            return base.reverse(tuple(active[i] for i in used))

        def function(*xs):
            out = list(self.function(*xs))
            return [out[i] for i in used]

        results, entry = [self.results[i] for i in used], self.entry.derived("selected", used)
        found = Function(function, self.shapes, self.name, results=results, prunable=True, entry=entry)
        found._whole = self
        if self._traced is not None:
            jaxpr = pe.dce_jaxpr(self._traced.jaxpr, [i in used for i in range(len(self.results))], instantiate=True)[0]
            found._traced = ClosedJaxpr(jaxpr, self._traced.consts)
        return found

    def reading(self, batched: Sequence[bool]) -> tuple[Function, tuple[int, ...]]:
        """The function of those arguments that it reads, and which they are. The time of a call grows with their number.

        batched: which arguments have environments. If some have, one of them is kept, which tells the number of environments. A call has
        one operand at least. The function is not a derivative and does not repeat."""
        kept = self.entry.found("read", self._read)
        if not kept or (any(batched) and not any(batched[i] for i in kept)):
            kept = tuple(sorted((*kept, list(batched).index(any(batched)))))
        if len(kept) == len(self.shapes):
            return self, kept
        found = self._reading.get(kept)
        if found is None:
            found = self._reading[kept] = self._of_arguments(kept)
        return found, kept

    def _read(self) -> tuple[int, ...]:
        """The arguments with numbers on which results depend."""
        jaxpr = self.traced.jaxpr
        used = pe.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))[1]
        return tuple(i for i, s in enumerate(self.shapes) if used[i] and math.prod(s.shape))

    def _of_arguments(self, kept: tuple[int, ...]) -> Function:
        """The function of these arguments. The others are zero."""

        def function(*xs):
            given = dict(zip(kept, xs, strict=True))
            return self.function(*(given[i] if i in given else jnp.zeros(s.shape, s.dtype) for i, s in enumerate(self.shapes)))

        shapes, entry = [self.shapes[i] for i in kept], self.entry.derived("read", kept)
        found = Function(function, shapes, self.name, results=self.results, prunable=self.prunable, entry=entry)
        found._whole = self
        if self._traced is not None:
            jaxpr, used = pe.dce_jaxpr(self._traced.jaxpr, [True] * len(self.results), [i in kept for i in range(len(self.shapes))])
            variables = dict(zip((i for i, is_used in enumerate(used) if is_used), jaxpr.invars, strict=True))
            empty = [i for i in variables if i not in kept]
            jaxpr = jaxpr.replace(constvars=[*(variables[i] for i in empty), *jaxpr.constvars], invars=[variables[i] for i in kept])
            zeros = [np.zeros(self.shapes[i].shape, self.shapes[i].dtype) for i in empty]
            found._traced = ClosedJaxpr(jaxpr, [*zeros, *self._traced.consts])
        return found

    # ---- machine code ------------------------------------------------------------------------------------------------------------

    def target(self, batched: tuple[bool, ...], summed: tuple[bool, ...], environments: int) -> str:
        """The name under which XLA knows the compiled function. environments: for how many its vectors are chosen; any number is right."""
        key = batched, summed, vector_lanes(environments, self._number_size)
        return self._made(key, batched, lambda: self._compiled(batched, summed, environments))

    def lanes(self, batched: tuple[bool, ...], environments: int) -> int:
        """Environments in a vector of the program."""
        if not any(batched):
            return 1
        is_long = self.reverse_of is None and self.summary(batched).operations > MAX_WIDE_OPERATIONS
        return vector_lanes(1 if is_long else environments, self._number_size)

    @property
    def _number_size(self) -> int:
        """Bytes of a number."""
        return max((np.dtype(s.dtype).itemsize for s in (*self.shapes, *self.results) if is_float(s)), default=INDEX.itemsize)

    def gpu_target(self, batched: tuple[bool, ...], turns: int | None = None) -> GpuTarget:
        """The kernels for an NVIDIA GPU. Results are those of the environments, none is a sum.

        turns: of the repetition, with arguments and results as in `xsim.compile.repeated`; None: a call."""
        kernels: GpuKernels = self._made(("cuda", batched), batched, lambda: self._loaded_kernels(batched))
        rows = ()
        if kernels.repetition is not None:
            sequences = [self.shapes[i] for i in kernels.repetition.sequences]
            rows = tuple(0 if turns is None else math.prod(s.shape) * np.dtype(s.dtype).itemsize for s in sequences)
            turns = turns or 1

        def objects() -> list[bytes]:
            launch = Launch(
                len(self.shapes), len(self.results), kernels.counted, cuda.function_address("cuLaunchKernel"), kernels.uniform,
                kernels.block, turns, rows,
            )  # fmt: skip
            return [machine_code(launch_handler(launch), UNOPTIMIZED)]

        code = identity([f"{kernels.counted} {turns} {rows} {kernels.code}"])  # an operand that nothing reads is not in the code
        register_target(code, objects, "CUDA")
        return GpuTarget(target_name(code), kernels.slots)

    def _made(self, key, batched: tuple[bool, ...], compiled: Callable):
        """What compiled() returns, which is called once for a key. Raises Unsupported for a program that is too large."""
        found = self._targets.get(key)
        if found is None:
            if self.prunable and not self.is_derivative:
                self.check_size(batched)
            with announced(f"the {self.name}"), _without_garbage_collection():
                found = self._targets[key] = compiled()
            self._forget(batched)
        return found

    def _compiled(self, batched: tuple[bool, ...], summed: tuple[bool, ...], environments: int) -> str:
        """Compile the function, and register it with XLA unless one with the same code is; its name."""
        lanes = self.lanes(batched, environments)
        key = "code", batched, summed, lanes
        code = self.entry.get(key)
        if code is None or not register_target(code, lambda: read_code(code)):
            texts = self.modules(batched, summed, lanes)
            is_optimized = any(batched) and self.summary(batched).operations <= MAX_OPTIMIZED_OPERATIONS
            optimization = OPTIMIZATION if is_optimized else UNOPTIMIZED
            code = self.entry.put(key, identity(texts, optimization))
            register_target(code, lambda: code_of(texts, optimization))
        return target_name(code)

    def _loaded_kernels(self, batched: tuple[bool, ...]) -> GpuKernels:
        """Compile the function to kernels, and load them."""
        architecture = cuda.architecture()
        ptx = self.entry.found(("kernels", batched, architecture), lambda: self.gpu_emitter(batched).compiled(architecture))
        handles = dict(zip(ptx.kernels, cuda.load_kernels(ptx.text, ptx.kernels), strict=True))
        return GpuKernels(handles.get("uniform", 0), handles["block"], ptx.slots, ptx.counted, ptx.repetition, identity([ptx.text]))

    def gpu_emitter(self, batched: tuple[bool, ...]) -> GpuEmitter:
        """The writer of the kernels for such operands."""
        repetition = Repetition(self.carried, self.repetition.sequences) if self.repetition and self.can_repeat(batched) else None
        return GpuEmitter(self.program(batched), [math.prod(s.shape) for s in self.shapes], list(batched), repetition)

    @property
    def carried(self) -> tuple[tuple[int, int], ...]:
        """The pairs (result, argument) of the repetition, but for results that have no numbers where the argument has some."""
        pairs = self.repetition.carried if self.repetition else ()
        return tuple((k, i) for k, i in pairs if _are_alike(self.results[k], self.shapes[i]))

    @property
    def stored(self) -> tuple[int, ...]:
        """The results of all turns that derivatives need: what is carried, and those that are known (`Replay`)."""
        return tuple(sorted({*(k for k, _ in self.carried), *self.known}))

    def can_repeat(self, batched: tuple[bool, ...]) -> bool:
        """Whether several calls with such operands are one kernel."""
        if self.repetition is None:
            return False
        return all(batched[i] for i in (*(argument for _, argument in self.carried), *self.repetition.sequences))

    def program(self, batched: tuple[bool, ...]) -> Program:
        """The program for such operands. If no argument has environments, there is one, and all values vary."""
        found = self._programs.get(batched)
        if found is None:
            found = self._programs[batched] = self._made_program(batched if any(batched) else (True,) * len(batched))
        return found

    def _made_program(self, varying: tuple[bool, ...]) -> Program:
        """The program, of a derivative in reverse mode without its trace if that is possible."""
        if self.reverse_of is not None:
            base, active = self.reverse_of
            traced = base.traced
            try:
                with _without_garbage_collection():
                    return reverse_program(traced, varying, active, base.differentiable)
            except Unsupported:
                pass
        traced = self.traced
        with _without_garbage_collection():
            return program_of(traced, varying)

    def _forget(self, batched: tuple[bool, ...]) -> None:
        """Release the program and the traces from which it was made, which take memory. A trace stays until its derivative is compiled."""
        self._programs.pop(batched, None)
        for function in (self, self._whole, None if self.reverse_of is None else self.reverse_of[0]):
            if function is not None and all(derivative._targets for derivative in function._reverses.values()):
                function._traced = None

    def summary(self, batched: tuple[bool, ...]) -> Summary:
        """What is known of the program for such operands."""
        return self.entry.found(("summary", batched), lambda: self._summarized(self.program(batched)))

    def _summarized(self, program: Program) -> Summary:
        varying = tuple(np.array([program.varying[x] for x in values], bool) for values in program.outputs)
        return Summary(sum(program.count(program.live()).values()), varying)

    def modules(self, batched: tuple[bool, ...], summed: tuple[bool, ...], lanes: int) -> list[str]:
        """LLVM IR for this processor. lanes: environments in a vector."""
        program = self.program(batched)
        sizes = [math.prod(s.shape) for s in self.shapes]
        target = Target(lanes, table=table_entries(lanes, processor_features()))
        return HostEmitter(program, target, sizes, list(batched), list(summed), self.turns(batched, summed)).modules()

    def turns(self, batched: tuple[bool, ...], summed: tuple[bool, ...]) -> Turns | None:
        """How the machine code for a processor repeats; None: it does not."""
        if self.reverse_of is not None:
            return self._turns_in_reverse(batched, summed)
        if not self.can_repeat(batched) or any(summed):
            return None
        assert self.repetition is not None
        return Turns(self.carried, self.repetition.sequences, stacked=tuple(range(len(self.results))), blocked=self.stored)

    def _turns_in_reverse(self, batched: tuple[bool, ...], summed: tuple[bool, ...]) -> Turns | None:
        """How a derivative in reverse mode repeats: it carries the cotangents of what the function carries."""
        assert self.reverse_of is not None
        base, active = self.reverse_of
        if base.repetition is None or not base.can_repeat(batched):
            return None
        cotangents = {k: len(base.shapes) + n for n, k in enumerate(base.differentiable)}
        carried = tuple((active.index(i), cotangents[k]) for k, i in base.carried if k in cotangents and i in active)
        stacked = tuple(active.index(i) for i in base.repetition.sequences if i in active)
        previous = (*(i for _, i in base.carried), *base.repetition.previous)
        own = {k for k, _ in carried} | {*stacked}
        is_by_environment = all(batched[i] for i in (*previous, *cotangents.values())) and not any(summed[k] for k in own)
        if len(carried) < len(cotangents) or not is_by_environment:
            return None
        totals = tuple(k for k, is_sum in enumerate(summed) if not is_sum and k not in own)
        return Turns(carried, base.repetition.sequences, stacked, previous, totals, known=base.repetition.known, reverse=True)

    def replacing(self, batched: tuple[bool, ...], summed: tuple[bool, ...]) -> tuple[tuple[int, int], ...]:
        """Pairs (result, argument): the result is this argument of the next call of a loop. In a loop backwards, the cotangents of the
        arguments are those of the results."""
        turns = self.turns(batched, summed)
        if turns is not None or self.reverse_of is None:
            return () if turns is None else turns.carried
        pairs, free = [], [k for k, is_sum in enumerate(summed) if not is_sum]
        for i in range(len(self.shapes) - len(self.reverse_of[0].differentiable), len(self.shapes)):
            found = next((k for k in free if batched[i] and _are_alike(self.results[k], self.shapes[i])), None)
            if found is not None:
                free.remove(found)
                pairs.append((found, i))
        return tuple(pairs)


def _are_alike(a, b) -> bool:
    """Whether arrays have the same shape and type."""
    return (a.shape, a.dtype) == (b.shape, b.dtype)
