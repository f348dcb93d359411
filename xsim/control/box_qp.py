"""Quadratic programs with bounds, of a few unknowns.

The projected Newton method of Tassa, Mansard and Todorov, Control-Limited Differential Dynamic Programming (2014), after Bertsekas,
Projected Newton Methods for Optimization Problems with Simple Constraints (1982).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_factor, cho_solve

__all__ = ["box_minimum", "solve_free"]

HALVINGS = 8
"""Of the Newton step in its line search."""


def box_minimum(hessian, gradient, low, high):
    """The x (m,) in low <= x <= high that minimizes x . gradient + x . hessian x / 2, and which of its components are free (m,) bool.

    hessian: (m, m), positive definite. low, high: (m,), finite or not, with low <= 0 <= high."""
    sizes = 0.5 ** jnp.arange(HALVINGS, dtype=gradient.dtype)[:, None]

    def objective(x):
        return x @ gradient + 0.5 * x @ hessian @ x

    def free_at(x):
        slope = gradient + hessian @ x
        return slope, ~((low >= high) | ((x <= low) & (slope > 0)) | ((x >= high) & (slope < 0)))

    def newton_step(carry):
        x, _, count = carry
        slope, free = free_at(x)
        tried = jnp.clip(x + sizes * solve_free(hessian, free, -slope), low, high)
        values = jax.vmap(objective)(tried)
        best = jnp.argmin(values)
        better = values[best] < objective(x)
        return jnp.where(better, tried[best], x), better, count + 1

    def unfinished(carry):
        return carry[1] & (carry[2] < 2 * len(gradient) + HALVINGS)

    x = jax.lax.while_loop(unfinished, newton_step, (jnp.zeros_like(gradient), jnp.array(True), 0))[0]
    return x, free_at(x)[1]


def solve_free(hessian, free, right):
    """The solution (m, ...) of the equations of the free components, zero in the others. right: (m, ...)."""
    matrix = jnp.where(free[:, None] & free, hessian, jnp.eye(len(free), dtype=hessian.dtype))
    mask = free.reshape(-1, *[1] * (right.ndim - 1))
    return cho_solve(cho_factor(matrix), jnp.where(mask, right, 0.0))
