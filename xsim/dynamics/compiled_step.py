"""Steps of many environments by machine code: the step of one environment as a compiled function."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from xsim.compile.function import Function, Replay
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

    def body(carry, xs):
        current, start = carry
        fields = [(x, True) for x in parts(current)]
        given = [by_environment(x, 1, first.q.shape[:1]) for x in xs if x is not None]
        arguments, batched = zip(*system.operands(), *fields, *given, (start, True), strict=True)
        *fields, solutions = function(arguments, batched)
        after, start = with_mocap(fields, current.mocap), next_start(start, solutions)
        inputs_of_batch = [x if x is None or x.ndim == 1 else x.reshape(*batch, x.shape[-1]) for x in xs]
        if complete is not None:
            after = _environments(complete(_public(current, batch), _public(after, batch), *inputs_of_batch), batch)
        return (after, start), None if record is None else record(_public(after, batch), *inputs_of_batch)

    carry = first, jnp.full((len(first.q), *function.shapes[-1].shape), jnp.nan, first.q.dtype)
    if steps == 1 and record is None:
        return _public(body(carry, [None if x is None else x[0] for x in sequences])[0][0], batch), None
    (final, _), recorded = jax.lax.scan(body, carry, sequences, length=steps)
    return _public(final, batch), recorded


def prepared_step(model: Model, state: State, batch: tuple[int, ...], inputs: Inputs) -> tuple[Prepared, Function]:
    """The numbers of a model's system and the function of a step, see `step_function`. state: with one axis of environments."""
    system = prepared(model, state.mocap, batch)
    present = tuple(x is not None for x in inputs)
    fields = tuple(_shape(x) for x in parts(state))
    warm = has_warm_start(model.topology)
    return system, step_function(system.function, len(system.shared), system.order, fields, model.nu, present, warm)


def next_start(start, solutions):
    """Where the search of the next step starts (..., nv or 0), see `step_function`: the acceleration that was found last. solutions: of the
    step (..., n). Without any of them, as of an integrator that does not return them, it starts as in this step."""
    width = start.shape[-1]
    return jax.lax.stop_gradient(solutions[..., :width]) if solutions.shape[-1] else start


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
    the solutions of the equations of motion. Derivatives are evaluated at these solutions, which are not computed again. shared: how many
    of the numbers all environments share. order: see `Prepared`. shapes: of the fields, with their types. present: whether ctrl and tau
    are. warm: whether the search has warm starts."""
    dtype, nv = shapes[0][1], shapes[1][0][0]

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
        return [*fields, jnp.stack(solutions).astype(dtype) if solutions else jnp.zeros(0, dtype)]

    def replay(*arguments):
        return advanced(arguments[-1], *arguments[:-1])[0]

    vectors = [jax.ShapeDtypeStruct((n,), dtype) for n in (shared, len(order) - shared)]
    inputs = [jax.ShapeDtypeStruct((n,), dtype) for n, here in zip((nu, nv), present, strict=True) if here]
    start = jax.ShapeDtypeStruct((nv if warm else 0,), dtype)
    arguments = [*vectors, *(jax.ShapeDtypeStruct(*s) for s in shapes), *inputs, start]
    return Function(step, arguments, "step", replay=Replay(replay, (len(ADVANCED),)))

