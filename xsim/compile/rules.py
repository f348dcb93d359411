"""Derivatives of single equations of a trace, traced by JAX: rules of functions that have one, and derivatives that JAX has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Primitive, jaxpr_as_fun

# ---- rules of implicit equations -------------------------------------------------------------------------------------------------

_FOR_TAPE: ContextVar[bool] = ContextVar("for_tape", default=False)

residual_tangent = Primitive("xsim_residual_tangent")
"""The derivative of a residual along all that its inputs depend on. Parameters: residual, a `ClosedJaxpr` of (*inputs, *solution), and
count, the number of its inputs. The solution is held. It stands in the trace of a rule that `xsim.compile.reverse` has asked for."""
residual_tangent.multiple_results = True


@residual_tangent.def_abstract_eval
def _shapes_of_residual(*arguments, residual, count):
    return list(residual.out_avals)


def traced_for_tape() -> bool:
    """Whether the rule that is traced now may use `residual_tangent`, which JAX cannot differentiate."""
    return _FOR_TAPE.get()


_IN_FORWARD_MODE: ContextVar[bool] = ContextVar("in_forward_mode", default=False)
_REVERSED_BY_JAX: ContextVar[bool] = ContextVar("reversed_by_jax", default=False)


def has_bounded_sums() -> bool:
    """Whether what is traced now may use `xsim.compile.bounded.bounded_sum`: it is differentiated by a tape or in forward mode. JAX knows
    no derivative of it in reverse mode."""
    return _FOR_TAPE.get() or (_IN_FORWARD_MODE.get() and not reversed_by_jax())


def reversed_by_jax() -> bool:
    """Whether JAX differentiates in reverse mode what is traced now: it may have no loops whose number of turns depends on the state."""
    return _REVERSED_BY_JAX.get()


@contextmanager
def _true(variable: ContextVar[bool]):
    token = variable.set(True)
    try:
        yield
    finally:
        variable.reset(token)


def differentiated_in_forward_mode():
    """Context in which a function is traced that JAX differentiates in forward mode."""
    return _true(_IN_FORWARD_MODE)


def differentiated_in_reverse_mode():
    """Context in which a function is traced that JAX differentiates in reverse mode."""
    return _true(_REVERSED_BY_JAX)


# ---- equations -------------------------------------------------------------------------------------------------------------------


def is_float(x) -> bool:
    """Whether an array, or what has its type, has derivatives."""
    return jnp.issubdtype(x.dtype, jnp.floating)


def struct_of(x) -> jax.ShapeDtypeStruct:
    """The shape and type of an array."""
    return jax.ShapeDtypeStruct(x.shape, x.dtype)


def _of_active(equation: JaxprEqn, template: Jaxpr, active: Sequence[int], arguments: Sequence[Any]) -> Callable:
    """An equation as a function of its active inputs, the others as given, that returns a list. template: any trace."""
    positions = {v: i for i, v in enumerate(equation.invars) if not isinstance(v, Literal)}
    closed = ClosedJaxpr(template.replace(constvars=[], invars=list(positions), outvars=list(equation.outvars), eqns=[equation]), ())
    whole = jaxpr_as_fun(closed)

    def function(*values):
        every = list(arguments)
        for i, value in zip(active, values, strict=True):
            every[i] = value
        return list(whole(*(every[i] for i in positions.values())))

    return function


def traced_rule(equation: JaxprEqn, template: Jaxpr, active: Sequence[int]) -> ClosedJaxpr:
    """The derivative of an equation in forward mode: of (*inputs, *tangents of the active inputs), returns its results and the tangents of
    those that are floats."""
    inputs = [struct_of(v.aval) for v in equation.invars]

    def rule(*xs):
        primals, tangents = xs[: len(inputs)], list(xs[len(inputs) :])
        out, changes = jax.jvp(_of_active(equation, template, active, primals), [primals[i] for i in active], tangents)
        return [*out, *(change for x, change in zip(out, changes, strict=True) if is_float(x))]

    with _true(_FOR_TAPE):
        return jax.make_jaxpr(rule)(*inputs, *(inputs[i] for i in active))


def traced_pullback(equation: JaxprEqn, template: Jaxpr, active: Sequence[int]) -> tuple[ClosedJaxpr, ClosedJaxpr]:
    """The derivative of an equation in reverse mode, as two functions: of its inputs, that returns its results and what the derivative
    needs; and of the latter and the cotangents of the results that are floats, that returns the cotangents of the active inputs."""
    inputs, outputs = [struct_of(v.aval) for v in equation.invars], [struct_of(v.aval) for v in equation.outvars]
    found: dict[str, Any] = {}

    def forward(*xs):
        out, pullback = jax.vjp(_of_active(equation, template, active, xs), *(xs[i] for i in active))
        needed, found["pullback"] = jax.tree.flatten(pullback)
        found["needed"] = [struct_of(jnp.asarray(x)) for x in needed]
        return [*out, *needed]

    def backward(*xs):
        count = len(found["needed"])
        cotangents = iter(xs[count:])
        full = [next(cotangents) if is_float(x) else np.zeros(x.shape, jax.dtypes.float0) for x in outputs]
        return list(jax.tree.unflatten(found["pullback"], xs[:count])(full))

    traced = jax.make_jaxpr(forward)(*inputs)
    return traced, jax.make_jaxpr(backward)(*found["needed"], *(x for x in outputs if is_float(x)))
