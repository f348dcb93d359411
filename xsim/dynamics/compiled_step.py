"""Steps of many environments by machine code: the step of one environment as a compiled function."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from xsim.compile.choice import is_cuda
from xsim.compile.function import Function, Replay
from xsim.compile.manual_axes import varying_alike
from xsim.compile.nvptx import Repetition
from xsim.compile.repeated import is_one_kernel, last_turn, repeated
from xsim.dynamics.constraints.soft_set import has_warm_start
from xsim.dynamics.integration.integrators import StepInputs, advance
from xsim.dynamics.prepared import ONE, Prepared, SystemFunction, by_environment, prepared
from xsim.dynamics.sharding import RANKS, Inputs, common_batch, parts
from xsim.dynamics.state_components import public_state, state_components
from xsim.model.model import Model, State


def compiled_steps(model: Model, state: State, inputs: Inputs, steps: int, record: Callable | None, complete: Callable | None = None):
    """Steps of a model, as `xsim.rollout`: (final state, recorded). record(state, ctrl, tau): what is recorded after a step.
    complete(before, after, ctrl, tau): the state after a step with what its program does not compute; None: the program computes all."""
    batch = common_batch(model, state, inputs)
    first = _environments(state, batch)
    system, function = prepared_step(model, first, batch, inputs)
    sequences = [None if x is None else _by_step(x, batch) for x in inputs]
    stepper = _Stepper(system, function, batch, record, complete, in_place=steps > 1)
    carry = first, jnp.full((len(first.q), *function.shapes[-1].shape), jnp.nan, first.q.dtype)
    carry = varying_alike(carry, [x for x, _ in system.operands()], sequences)
    if steps == 1 and record is None:
        return _public(stepper.one(carry, [None if x is None else x[0] for x in sequences])[0][0], batch), None
    (final, _), recorded = stepper.run(carry, sequences, steps)
    return _public(final, batch), recorded


MOST_TURNS = 32
"""Steps of one kernel at most."""
INPUT_BYTES = 2**22
"""Memory for ctrl and tau of the steps of one call of machine code, which reads those of each environment, if the environments share
them."""
TURN_BYTES = 2**28
"""Memory for the states of the steps of one kernel, which stores them all."""
CACHED_BYTES = 2**22
"""Memory for the states of the steps of one call of machine code that stores them: what is recorded of them is read from the cache."""


class _Stepper(NamedTuple):
    """Advances environments. Its carry is the state and where the search of the next step starts (`next_start`); xs are ctrl and tau.
    in_place: whether each call replaces the carry, see `Function.__call__`."""

    system: Prepared
    function: Function
    batch: tuple[int, ...]
    record: Callable | None
    complete: Callable | None
    in_place: bool

    def run(self, carry, xs, steps: int):
        """All steps. xs: of each step."""
        if steps and self.has_kernels(carry):
            return self.in_parts(self.several, carry, xs, steps, min(MOST_TURNS, _turns_in(TURN_BYTES, parts(carry[0]))))
        if steps and self.has_turns():
            if self.record is not None:
                return self.in_parts(self.several, carry, xs, steps, _turns_in(CACHED_BYTES, parts(carry[0])))
            shared = [jax.ShapeDtypeStruct((len(carry[0].q), x.shape[-1]), x.dtype) for x in xs if x is not None and x.ndim == 2]
            return self.in_parts(self.last, carry, xs, steps, _turns_in(INPUT_BYTES, shared) if shared else steps)
        return jax.lax.scan(self.one, carry, xs, length=steps)

    def one(self, carry, xs):
        """A step by one call."""
        current, start = carry
        given = [by_environment(x, 1, current.q.shape[:1]) for x in xs if x is not None]
        *fields, found, _ = self.function(*self._operands(carry, given), in_place=self.in_place)
        after, start = with_mocap(fields, current.mocap), next_start(start, found)
        inputs = self._inputs(xs)
        if self.complete is not None:
            states = _public(current, self.batch), _public(after, self.batch)
            after = _environments(self.complete(*states, *inputs), self.batch)
        return (after, start), None if self.record is None else self.record(_public(after, self.batch), *inputs)

    def several(self, carry, xs, turns: int):
        """Steps by one kernel, or one call of machine code, that stores all states. xs: of each step."""
        current, start = carry
        *fields, found, _ = repeated(self.function, *self._operands(carry, self._by_environment(carry, xs, turns)), turns)
        after = with_mocap([x[-1] for x in fields], current.mocap), next_start(start, found[-1])
        record = self.record
        if record is None:
            return after, None
        states = [with_mocap(fields, jnp.broadcast_to(current.mocap, (turns, *current.mocap.shape))), xs]
        return after, jax.lax.map(lambda now: record(_public(now[0], self.batch), *self._inputs(now[1])), states)

    def last(self, carry, xs, turns: int):
        """Steps by one call of machine code, of which nothing is recorded. xs: of each step."""
        current, start = carry
        out = last_turn(self.function, *self._operands(carry, self._by_environment(carry, xs, turns)), turns)
        found = out[len(ADVANCED) :]  # if it is carried
        return (with_mocap(out[: len(ADVANCED)], current.mocap), next_start(start, found[0]) if found else start), None

    def has_kernels(self, carry) -> bool:
        """Whether `several` is faster than `one`."""
        return is_cuda() and self.complete is None and is_one_kernel(self.function, self._batched(), len(carry[0].q))

    def has_turns(self) -> bool:
        """Whether machine code makes several steps, by `last` or `several`."""
        if is_cuda() or self.complete is not None:
            return False
        return self.function.turns(self._batched(), (False,) * len(self.function.results)) is not None

    def _batched(self) -> tuple[bool, ...]:
        """Which operands of the function have environments, if all ctrl and tau have."""
        numbers = [own for _, own in self.system.operands()]
        return (*numbers, *[True] * (len(self.function.shapes) - len(numbers)))

    def _by_environment(self, carry, xs, turns: int) -> list:
        """ctrl and tau of each step and environment, which have environments."""
        shape = turns, len(carry[0].q)
        return [(jnp.broadcast_to(x if x.ndim == 3 else x[:, None], (*shape, x.shape[-1])), True) for x in xs if x is not None]

    @staticmethod
    def in_parts(advance: Callable, carry, xs, steps: int, turns: int):
        """Steps by advance(carry, xs, turns), of at most this number of turns each time."""
        if turns >= steps:
            return advance(carry, xs, steps)
        heads, rest = _divided(xs, steps, turns)
        carry, recorded = jax.lax.scan(lambda carry, xs: advance(carry, xs, turns), carry, heads, length=steps // turns)
        recorded = jax.tree.map(lambda x: x.reshape(len(x) * turns, *x.shape[2:]), recorded)
        if steps % turns:
            carry, rest = advance(carry, rest, steps % turns)
            recorded = jax.tree.map(lambda *x: jnp.concatenate(x), recorded, rest)
        return carry, recorded

    def _operands(self, carry, given):
        """The operands of the function, and which have environments. given: ctrl and tau, and whether they have."""
        state, start = carry
        fields = [(x, True) for x in parts(state)]
        return zip(*self.system.operands(), *fields, *given, (start, True), strict=True)

    def _inputs(self, xs) -> list:
        """ctrl and tau with the batch shape of the call."""
        return [x if x is None or x.ndim == 1 else x.reshape(*self.batch, x.shape[-1]) for x in xs]


def _turns_in(memory: int, arrays) -> int:
    """How many steps have arrays that fit into this number of bytes; at least one."""
    return max(1, memory // max(1, sum(x.size * x.dtype.itemsize for x in arrays)))


def _divided(xs, steps: int, turns: int) -> tuple:
    """Arrays (steps, ...) as arrays (parts, turns, ...), and the steps after the last whole part."""
    end = steps - steps % turns
    return jax.tree.map(lambda x: x[:end].reshape(end // turns, turns, *x.shape[1:]), xs), jax.tree.map(lambda x: x[end:], xs)


def prepared_step(model: Model, state: State, batch: tuple[int, ...], inputs: Inputs) -> tuple[Prepared, Function]:
    """The numbers of a model's system and the function of a step, see `step_function`. state: with one axis of environments."""
    system = prepared(model, state.mocap, batch)
    present = tuple(x is not None for x in inputs)
    fields = tuple(_shape(x) for x in parts(state))
    warm = has_warm_start(model.topology)
    return system, step_function(system.function, len(system.shared), system.order, fields, model.nu, present, warm)


def next_start(start, found):
    """Where the search of the next step starts (..., nv or 0): where this one has found the acceleration last; as in this step if the
    integrator does not say that (0 numbers)."""
    return jax.lax.stop_gradient(found) if found.shape[-1] else start


def _environments(state: State, batch: tuple[int, ...]) -> State:
    """A state with one axis of environments."""
    full = (jnp.broadcast_to(x, (*batch, *x.shape[x.ndim - rank :])) for x, rank in zip(parts(state), RANKS, strict=True))
    return State(*(x.reshape(math.prod(batch), *x.shape[len(batch) :]) for x in full))


def _public(state: State, batch: tuple[int, ...]) -> State:
    """A state with the batch shape of the call."""
    return State(*(x.reshape(*batch, *x.shape[1:]) for x in parts(state)))


ADVANCED = tuple(field.name for field in dataclasses.fields(State) if field.name != "mocap")
"""The fields of a state that a step changes."""


def with_mocap(fields, mocap) -> State:
    """A state of the fields ADVANCED and the poses of the mocap bodies."""
    return State(**dict(zip(ADVANCED, fields, strict=True)), mocap=mocap)


def _by_step(x, batch: tuple[int, ...]):
    """Inputs (steps, n) as they are, or (steps, *batch, n) as (steps, environments, n)."""
    if x.ndim == 2:
        return x
    return jnp.broadcast_to(x, (x.shape[0], *batch, x.shape[-1])).reshape(x.shape[0], math.prod(batch), x.shape[-1])


def _shape(x) -> tuple:
    return x.shape[1:], x.dtype


@functools.lru_cache(maxsize=64)
def step_function(
    system: SystemFunction, shared: int, order: tuple[int, ...], shapes: tuple, nu: int, present: tuple[bool, bool], warm: bool
) -> Function:
    """The function of one environment that advances a state by a step.

    Its arguments are the system's numbers, the fields of the state, ctrl and tau if they are present, and where the search of the
    acceleration starts (nv; 0 without warm starts), see `StepInputs`. Its results are the fields that change, see `with_mocap`, and
    the solutions of the equations of motion: those with which the search of the next step starts, and the others. Derivatives are evaluated
    at these solutions, which are not computed again. shared: how many of the numbers all environments share. order: see `Prepared`. shapes:
    of the fields, with their types. present: whether ctrl and tau are. warm: whether the search has warm starts."""
    dtype, nv = shapes[0][1], shapes[1][0][0]
    starts = nv if warm else 0

    def advanced(solutions, shared_numbers, own, *given) -> tuple[list, list]:
        """The fields that change, and the solutions. solutions: the latter, where they are known, else None."""
        state, rest, start = State(*given[: len(shapes)]), iter(given[len(shapes) : -1]), list(ONE.split(given[-1], 1)) or None
        ctrl, tau = (list(ONE.split(next(rest), 1)) if here else [0.0] * zeros for here, zeros in zip(present, (nu, nv), strict=True))
        known = None if solutions is None else list(ONE.split(solutions, 1))
        inputs = StepInputs(tau, ctrl, False, known, start)
        step = advance(system.system(shared_numbers, own, order), state_components(state, ONE), inputs)
        step = jax.tree.map(lambda x: jnp.reshape(x, ()), step)  # numbers of joints that users registered may be arrays (1,)
        new = public_state(step.state, ONE, state.mocap, dtype, state.flags.dtype)
        return [getattr(new, name).astype(getattr(state, name).dtype) for name in ADVANCED], step.solutions

    def step(*arguments):
        fields, solutions = advanced(None, *arguments)
        solutions = jnp.stack(solutions).astype(dtype) if solutions else jnp.zeros(0, dtype)
        return [*fields, solutions[:starts], solutions[starts:]]

    def replay(*arguments):
        *arguments, found, others = arguments
        return advanced(jnp.concatenate([found, others]), *arguments)[0]

    vectors = [jax.ShapeDtypeStruct((n,), dtype) for n in (shared, len(order) - shared)]
    inputs = [jax.ShapeDtypeStruct((n,), dtype) for n, here in zip((nu, nv), present, strict=True) if here]
    start = jax.ShapeDtypeStruct((starts,), dtype)
    fields = [jax.ShapeDtypeStruct(*s) for s in shapes]
    return Function(
        step, [*vectors, *fields, *inputs, start], "step", replay=Replay(replay, (len(ADVANCED), len(ADVANCED) + 1)),
        repetition=_repetition(len(vectors), len(inputs), warm),
        entry=system.function.entry.derived("step", shared, order, shapes, nu, present, warm),
    )  # fmt: skip


def _repetition(first: int, inputs: int, warm: bool) -> Repetition:
    """How the function of a step repeats. first: the argument that is the first field of the state. inputs: number of ctrl and tau."""
    names = [field.name for field in dataclasses.fields(State)]
    carried = [(k, first + names.index(name)) for k, name in enumerate(ADVANCED)]
    start = first + len(names) + inputs
    if warm:
        carried.append((len(ADVANCED), start))
    return Repetition(tuple(carried), tuple(range(start - inputs, start)))

