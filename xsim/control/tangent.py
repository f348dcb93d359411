"""States as vectors of the tangent space, and the second-order expansion of a control problem about a trajectory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.tree_util import Partial

from xsim.dynamics.queries import difference, integrate
from xsim.dynamics.step import rollout, step
from xsim.model.model import Model, State

__all__ = ["Expansion", "Problem", "advance", "as_partial", "deviation", "displaced", "drive_of", "expand", "width"]


def width(model: Model) -> int:
    """The number n = 2 nv + na of components of a deviation."""
    return 2 * model.nv + model.na


def deviation(model: Model, reference: State, state: State):
    """How far a state is from a reference, as a vector of the tangent space at the reference: (*batch, 2 nv + na).

    The components are `xsim.difference` of the configurations (m, rad; a rotation vector for balls and free joints), the difference of the
    velocities (m/s, rad/s) and that of the activations."""
    return jnp.concatenate([difference(model, reference.q, state.q), state.v - reference.v, state.act - reference.act], -1)


def displaced(model: Model, reference: State, dx):
    """The state at a deviation dx (*batch, 2 nv + na) from a reference: the inverse of `deviation`.

    Time, flags, mocap bodies, history and plastic springs are those of the reference."""
    dq, dv, dact = jnp.split(dx, (model.nv, 2 * model.nv), -1)
    return reference.replace(q=integrate(model, reference.q, dq), v=reference.v + dv, act=reference.act + dact)


class Problem(NamedTuple):
    """A problem of optimal control; a pytree. cost(state, ctrl, t), final_cost(state), and drive(ctrl) -> (ctrl, tau) of the step are
    `jax.tree_util.Partial`. low, high: (m,), bounds of the controls. substeps: steps for which a control is constant."""

    model: Model
    cost: Any
    final_cost: Any
    drive: Any
    low: Any
    high: Any
    substeps: int


def as_partial(function: Callable) -> Partial:
    """A function as a pytree, whose leaves are its bound arguments. (A `Partial` of a `Partial` would hide these.)"""
    return function if isinstance(function, Partial) else Partial(function)


def drive_of(model: Model, drive: Callable | None) -> Partial:
    """A function from the controls of a problem to (ctrl, tau) of the step. None: ctrl, or tau of a model without controls."""
    return as_partial(drive or (_controls if model.nu else _forces))


def _controls(ctrl):
    return ctrl, None


def _forces(ctrl):
    return None, ctrl


def advance(p: Problem, state: State, ctrl) -> State:
    """The state after a control (m,) has acted for all its substeps."""
    inputs = p.drive(ctrl)
    if p.substeps == 1:
        return step(p.model, state, *inputs)
    commands, forces = (None if x is None else jnp.broadcast_to(x, (p.substeps, *jnp.shape(x))) for x in inputs)
    return rollout(p.model, state, commands, taus=forces, steps=p.substeps)[0]


class Expansion(NamedTuple):
    """A problem about a trajectory of T controls, as a function of the deviation dx (n,) and the change du (m,) of the control.

    dynamics (T, n, n + m): Jacobians of the next deviation. gradient (T, n + m), hessian (T, n + m, n + m): of the cost. final_gradient
    (n,), final_hessian (n, n): of the final cost. Hessians are positive semidefinite, see `expand`."""

    dynamics: Any
    gradient: Any
    hessian: Any
    final_gradient: Any
    final_hessian: Any

    @classmethod
    def zero(cls, n: int, ctrls) -> Expansion:
        """All zero, of the shapes that belong to ctrls (T, m)."""
        count, m = ctrls.shape
        shapes = (count, n, n + m), (count, n + m), (count, n + m, n + m), (n,), (n, n)
        return cls(*(jnp.zeros(shape, ctrls.dtype) for shape in shapes))


def expand(p: Problem, states: State, ctrls) -> Expansion:
    """The expansion about states (T + 1) and ctrls (T, m).

    The Jacobians of the step are exact. Of the Hessians of the costs the part with positive eigenvalues is kept, so that every minimization
    of the backward pass has a solution, also far from the optimum."""
    n, (count, m) = width(p.model), ctrls.shape

    def one(state, ctrl, after, t):
        def next_deviation(z):
            return deviation(p.model, after, advance(p, displaced(p.model, state, z[:n]), ctrl + z[n:]))

        def cost(z):
            return p.cost(displaced(p.model, state, z[:n]), ctrl + z[n:], t)

        zero = jnp.zeros(n + m, ctrls.dtype)
        return jax.jacfwd(next_deviation)(zero), jax.grad(cost)(zero), positive_part(jax.hessian(cost)(zero))

    def final_cost(dx):
        return p.final_cost(displaced(p.model, last, dx))

    before, after, last = (jax.tree.map(lambda x, part=part: x[part], states) for part in (slice(-1), slice(1, None), -1))
    running = jax.vmap(one)(before, ctrls, after, jnp.arange(count))
    zero = jnp.zeros(n, ctrls.dtype)
    return Expansion(*running, jax.grad(final_cost)(zero), positive_part(jax.hessian(final_cost)(zero)))


def positive_part(matrix):
    """The symmetric matrix (n, n) with its negative eigenvalues replaced by zero: the nearest positive semidefinite one (Higham, Computing
    a Nearest Symmetric Positive Semidefinite Matrix, 1988)."""
    values, vectors = jnp.linalg.eigh(0.5 * (matrix + matrix.T))
    return (vectors * jnp.maximum(values, 0.0)) @ vectors.T
