"""Solutions of implicit equations, with the derivatives of the implicit function theorem."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.compile.rules import residual_tangent, traced_for_tape
from xsim.spatial import trace_mode, traced_in


def implicit(inputs, primal, residual, matrix_at=None):
    """The solution x of residual(inputs, x) = 0, and what else ``primal`` returns, with the derivatives of the implicit function.

    primal(inputs, full, with_matrix) -> (matrix, x, others): the solution and the factored matrix d residual / dx, which is used only if
    ``with_matrix``; ``others`` (a list of components) has no derivative; ``full`` gives components the common shape. Derivatives of any
    order, forward and reverse: dx = -matrix^-1 d(residual) at fixed x. matrix_at(inputs, x, full) -> matrix: for a ``primal`` that returns
    a solution which is among the inputs. Its matrix is not used.
    """
    equation = _ImplicitEquation(inputs, primal, residual)

    @jax.custom_jvp
    def solution(*arrays):
        _, x, others = equation.solve(arrays, with_matrix=False)
        return x, others

    # Rules run when a derivative is taken, perhaps long after this trace: they are traced in its mode.
    mode = trace_mode()

    def derivative(primals, tangents) -> tuple:
        """The solution, what else ``primal`` returns, and the tangent of the solution."""
        if matrix_at is None:
            matrix, x, others = equation.solve(primals, with_matrix=True)
        else:
            x, others = solution(*primals)  # not the input: x has derivatives with respect to the other inputs
            matrix = matrix_at(equation.inputs(primals), x, equation.full)
        return x, others, equation.tangent(primals, tangents, matrix, x)

    def rule(primals, tangents):
        with traced_in(mode):
            if traced_for_tape():  # one call, which JAX does not trace again when it applies the rule
                x, others, change = jax.jit(lambda primals: derivative(primals, tangents))(primals)
            else:
                x, others, change = derivative(primals, tangents)
            return (x, others), (change, [jnp.zeros_like(y) for y in others])

    solution.defjvp(rule, symbolic_zeros=True)
    return solution(*equation.arrays)


class _ImplicitEquation:
    """An equation, its inputs with the arrays taken out, and how its derivative follows from them."""

    def __init__(self, inputs, primal, residual):
        self.primal, self.residual = primal, residual
        self.leaves, self.treedef = jax.tree.flatten(inputs, is_leaf=lambda x: x is None)
        self.positions = [i for i, x in enumerate(self.leaves) if isinstance(x, jax.Array)]
        self.arrays = [self.leaves[i] for i in self.positions]
        self.lanes = jnp.broadcast_shapes(*(x.shape for x in self.arrays if x.ndim <= 1))
        self.dtype = jnp.result_type(*self.arrays)

    def inputs(self, arrays):
        """The inputs with other arrays."""
        leaves = list(self.leaves)
        for i, x in zip(self.positions, arrays, strict=True):
            leaves[i] = x
        return self.treedef.unflatten(leaves)

    def full(self, xs) -> list:
        """Components with the common shape."""
        return [jnp.broadcast_to(jnp.asarray(x, self.dtype), self.lanes) for x in xs]

    def solve(self, arrays, with_matrix: bool) -> tuple:
        """(matrix, x, others) of ``primal``."""
        matrix, x, others = self.primal(self.inputs(arrays), self.full, with_matrix)
        return matrix, self.full(x), self.full(others)

    def tangent(self, primals, tangents, matrix, x) -> list:
        """The tangent of the solution x."""
        change = self.residual_tangent(primals, tangents, x)
        return self.solve_linear(matrix, change) if change else []

    def residual_tangent(self, primals, tangents, x) -> list:
        """Derivative of the residual at fixed x along the tangents that are not symbolic zeros."""
        if traced_for_tape():
            count = len(primals)
            traced = jax.make_jaxpr(lambda *xs: self.full(self.residual(self.inputs(xs[:count]), list(xs[count:]))))(*primals, *x)
            return residual_tangent.bind(*primals, *x, residual=traced, count=count)
        changing = [i for i, t in enumerate(tangents) if not isinstance(t, jax.custom_derivatives.SymbolicZero)]

        def residual(*values):
            arrays = list(primals)
            for i, value in zip(changing, values, strict=True):
                arrays[i] = value
            return self.full(self.residual(self.inputs(arrays), x))

        return jax.jvp(residual, [primals[i] for i in changing], [tangents[i] for i in changing])[1]

    def solve_linear(self, matrix, change: list) -> list:
        """-matrix^-1 change, differentiable in both modes."""
        n = len(matrix.rows)

        def solver(**options):
            return lambda _, b: jnp.stack(self.full(matrix.solve(list(b[:n]), list(b[n:]), **options)))

        # One array, not a list: transposed, a list must depend on the tangents in each of its entries.
        right_side, transposed = -jnp.stack(change), None if matrix.symmetric else solver(transposed=True)
        if traced_for_tape():  # a tape evaluates no tangents, only the transposed solution
            return list(jax.lax.custom_linear_solve(lambda y: y, right_side, lambda _, b: b, transposed or solver()))

        def multiply(y):
            return jnp.stack(self.full(matrix.multiply(list(y))))

        return list(jax.lax.custom_linear_solve(multiply, right_side, solver(), transposed, symmetric=matrix.symmetric))
