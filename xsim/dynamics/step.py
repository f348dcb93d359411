"""Time stepping of a model: `step` and `rollout`.

Model leaves are shared by all environments or have the shape ``(*batch, *shape)``. Results have the common batch shape of all arguments.
Each function compiles once per shape when it is called directly. It may be wrapped in jit, grad, jvp, vmap, scan and checkpoint.
"""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from xsim.compile.manual_axes import varying_alike
from xsim.dynamics.call import check_width, compiled, llvm_or_xla
from xsim.dynamics.compiled_step import compiled_steps
from xsim.dynamics.constraints.soft_set import has_warm_start
from xsim.dynamics.forward import forward, with_sensor_history
from xsim.dynamics.integration.integrators import StateComponents, StepInputs, advance, in_stages
from xsim.dynamics.layout import make_lanes
from xsim.dynamics.prepare import prepare
from xsim.dynamics.sensors.sensor_history import has_sensor_history
from xsim.dynamics.sharding import Inputs, chunk_size, chunked, common_batch, mesh_of
from xsim.dynamics.state_components import public_state, state_components
from xsim.model.model import Model, State
from xsim.spatial import separate_kernels


@compiled
def step(model: Model, state: State, ctrl=None, tau=None) -> State:
    """The state one time step later.

    ctrl: (*batch, nu) controls and tau: (*batch, nv) generalized forces (N or N m), constant over the step; None: zero.

    Raises ValueError for a wrong width, and for ctrl of a model without controls.
    """
    inputs = _inputs(model, state, ctrl, tau)
    return _run(model, state, jax.tree.map(lambda x: x[None], inputs), 1, None, False)[0]


@functools.partial(compiled, static_argnames=("steps", "record", "checkpoint"))
def rollout(model: Model, state: State, ctrls=None, *, taus=None, steps=None, record=None, checkpoint=True):
    """Many steps: (final state, recorded).

    ctrls (steps, *batch, nu): commands. taus (steps, *batch, nv): generalized forces. None: zero. steps: number of steps if both are None.
    record: fn(state, data) -> pytree, called after every step; the results are stacked along a first axis of time. ``data`` is `forward`
    of the new state with the same ctrl and tau; unused fields are not computed. None records nothing and is fastest.
    checkpoint: whether the reverse pass evaluates each step (for Runge-Kutta: each stage) again instead of storing its intermediate
    values. This needs less memory and is usually faster. Raises ValueError if the number of steps is missing, inconsistent or no whole
    number, and for ctrls or taus without an axis of steps.
    """
    inputs = _inputs(model, state, ctrls, taus, "s")
    if steps is not None and (not isinstance(steps, (int, np.integer)) or steps < 0):
        raise ValueError(f"steps must be a whole number that is not negative, found {steps!r}")
    for x, name in zip(inputs, ("ctrls", "taus"), strict=True):
        if x is not None:
            if x.ndim < 2:
                raise ValueError(f"{name} must have shape (steps, *batch, {x.shape[-1]}), found {x.shape}")
            if steps is not None and steps != x.shape[0]:
                raise ValueError(f"steps={steps} but {name} has {x.shape[0]} rows")
            steps = x.shape[0]
    if steps is None:
        raise ValueError("rollout needs ctrls, taus or steps")
    return _run(model, state, inputs, int(steps), record, checkpoint)


def _run(model: Model, state: State, inputs: Inputs, steps: int, record, checkpoint: bool):
    """Steps by machine code where the compiler is LLVM, else by XLA."""
    arguments = model, state, inputs, steps, record, checkpoint

    def by_llvm():
        size = math.prod(common_batch(model, state, inputs))
        return _llvm_steps(*arguments) if mesh_of(size) is None else chunked(_llvm_steps, size, *arguments)

    return llvm_or_xla("the step", by_llvm, lambda: chunked(_steps, chunk_size(model), *arguments))


def _llvm_steps(model: Model, state: State, inputs: Inputs, steps: int, record, checkpoint: bool):
    after = None if record is None else lambda new, ctrl, tau: record(new, forward(model, new, ctrl, tau))
    history = functools.partial(with_sensor_history, model) if has_sensor_history(model.topology) else None
    return compiled_steps(model, state, inputs, steps, after, history)


def _inputs(model: Model, state: State, ctrl, tau, plural: str = "") -> Inputs:
    if ctrl is not None and not model.nu:
        raise ValueError("the model has no actuators: pass generalized forces as tau")
    out = []
    for name, x, width in (("ctrl", ctrl, model.nu), ("tau", tau, model.nv)):
        x = None if x is None else jnp.asarray(x, state.q.dtype)
        if x is not None:
            check_width(name + plural, x, width)
        out.append(x)
    return Inputs(*out)


def _steps(model: Model, state: State, inputs: Inputs, steps: int, record, checkpoint=False):
    batch = common_batch(model, state, inputs)
    lanes = make_lanes(batch)
    mocap = jnp.broadcast_to(state.mocap, (*batch, *state.mocap.shape[-2:]))
    system = prepare(model, lanes, lanes.split(mocap, 2))
    components = state_components(state, lanes)

    def public(m: StateComponents) -> State:
        return public_state(m, lanes, mocap, state.q.dtype, state.flags.dtype)

    # Transposed here for all steps together, not in every step.
    split = Inputs(*(None if x is None else lanes.split_sequence(x) for x in inputs))

    # Runge-Kutta methods checkpoint their stages, and then the step needs no checkpoint.
    checkpoint_stages = checkpoint and record is None and in_stages(system)

    sensor_history = has_sensor_history(model.topology)

    def body(carry, xs):
        (old, search_start), (arrays, parts) = carry, xs
        tau = [0.0] * model.nv if parts.tau is None else parts.tau
        ctrl = [0.0] * model.nu if parts.ctrl is None else parts.ctrl
        inputs = StepInputs(tau, ctrl, checkpoint_stages, start=search_start)
        advanced = advance(system, old._replace(v=separate_kernels(old.v)), inputs)
        m = _with_shapes_of(advanced.state, old)
        if search_start is not None and advanced.solutions:
            search_start = _with_shapes_of(jax.lax.stop_gradient(advanced.solutions[: model.nv]), search_start)
        if sensor_history:
            m = state_components(with_sensor_history(model, public(old), public(m), arrays.ctrl, arrays.tau), lanes)
        recorded = None
        if record is not None:
            after = public(m)
            recorded = record(after, forward(model, after, arrays.ctrl, arrays.tau))
        return (m, search_start), recorded

    carry = components, [jnp.full_like(x, jnp.nan) for x in components.v] if has_warm_start(model.topology) else None
    if steps == 1 and record is None:
        return public(body(carry, jax.tree.map(lambda x: x[0], (inputs, split)))[0][0]), None
    run = jax.checkpoint(body, prevent_cse=False) if checkpoint and not checkpoint_stages else body
    arrays = inputs if record is not None or sensor_history else None
    (components, _), recorded = jax.lax.scan(run, varying_alike(carry, model, split), (arrays, split), length=steps)
    return public(components), recorded


def _with_shapes_of(new, old):
    """The new components with the shapes and dtypes of the old ones, which the carry of a loop must keep."""
    return jax.tree.map(lambda a, b: jnp.broadcast_to(jnp.asarray(a, b.dtype), b.shape), new, old)
