"""Solutions of implicit equations, with the derivatives of the implicit function theorem."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.spatial import in_one_region, one_region


def implicit(inputs, primal, residual, again=None):
    """The solution x of residual(inputs, x) = 0, and what else ``primal`` returns, with the derivatives of the implicit function.

    primal(inputs, full) -> (saddle, x, others): the solution and the factored matrix d residual / dx; ``others`` (a list of
    components) has no derivative; ``full`` gives components the common shape. Derivatives of any order, forward and reverse:
    dx = -matrix^-1 d(residual) at fixed x. ``again``: what the rule takes for ``primal`` where that one uses numbers found before,
    without derivatives of their own.
    """
    leaves, treedef = jax.tree.flatten(inputs, is_leaf=lambda x: x is None)
    where = [i for i, x in enumerate(leaves) if isinstance(x, jax.Array)]
    lanes = jnp.broadcast_shapes(*(leaves[i].shape for i in where if leaves[i].ndim <= 1))
    dtype = jnp.result_type(*(leaves[i] for i in where))

    def rebuild(arrays):
        filled = list(leaves)
        for i, x in zip(where, arrays, strict=True):
            filled[i] = x
        return treedef.unflatten(filled)

    def full(xs):
        return [jnp.broadcast_to(jnp.asarray(x, dtype), lanes) for x in xs]

    def solved(arrays, primal=primal):
        saddle, x, others = primal(rebuild(arrays), full)
        return saddle, full(x), full(others)

    @jax.custom_jvp
    def solution(*arrays):
        _, x, others = solved(arrays)
        return x, others

    def rule(primals, tangents):
        saddle, x, others = solved(primals, again or primal)
        moving = [i for i, t in enumerate(tangents) if not isinstance(t, jax.custom_derivatives.SymbolicZero)]

        def at(*moved):
            arrays = list(primals)
            for i, value in zip(moving, moved, strict=True):
                arrays[i] = value
            return full(residual(rebuild(arrays), x))

        _, dr = jax.jvp(at, [primals[i] for i in moving], [tangents[i] for i in moving])
        n = len(saddle.rows)
        if not dr:
            return (x, others), ([], [jnp.zeros_like(y) for y in others])
        def solver(**options):
            return lambda _, b: jnp.stack(full(saddle.solve(list(b[:n]), list(b[n:]), **options)))

        # One array, not a list: transposed, a list must depend on the tangents in each of its entries.
        dx = jax.lax.custom_linear_solve(
            lambda y: jnp.stack(full(saddle.multiply(list(y)))),
            -jnp.stack(dr),
            solver(),
            None if saddle.symmetric else solver(transposed=True),
            symmetric=saddle.symmetric,
        )
        return (x, others), (list(dx), [jnp.zeros_like(y) for y in others])

    # Rules run when a derivative is taken, perhaps long after this trace: they keep its regions.
    whole = in_one_region()

    def rule_in_region(primals, tangents):
        with one_region(whole):
            return rule(primals, tangents)

    solution.defjvp(rule_in_region, symbolic_zeros=True)
    return solution(*(leaves[i] for i in where))
