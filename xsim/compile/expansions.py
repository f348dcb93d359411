"""Primitives of JAX as functions of other primitives, of which programs are made."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr, JaxprEqn

from xsim.compile.rules import struct_of

__all__ = ["EXPANSIONS", "OF_FUNCTIONS", "traced_expansion"]

CENTRAL = (
    (1.85777706184603153e-1, 3.16112374387056560e0, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3),
    (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3),
)
MIDDLE = (
    (2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594e0, 6.61191906371416295e1, 2.98635138197400131e2,
     8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3),
    (1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3, 3.29079923573345963e3,
     4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3),
)  # fmt: skip
OUTER = (
    (1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1, 1.60837851487422766e-2,
     6.58749161529837803e-4),
    (1.0, 2.56852019228982242e0, 1.87295284992346047e0, 5.27905102951428412e-1, 6.05183413124413191e-2, 2.33520497626869185e-3),
)  # fmt: skip
"""Numerators and denominators of the error function's rational approximations, by falling powers: of erf(x) / x in x^2 for |x| up to
`CENTRAL_END`, of erfc(x) exp(x^2) in x up to `MIDDLE_END`, and of its difference from 1 / (x sqrt(pi)) beyond (Cody 1969, Rational
Chebyshev approximations for the error function)."""
CENTRAL_END, MIDDLE_END = 0.46875, 4.0


def _ratio(coefficients, x):
    numerator, denominator = (functools.reduce(lambda y, c: y * x + c, row) for row in coefficients)
    return numerator / denominator


def _tail(x):
    """erfc(x) for x >= CENTRAL_END."""
    inverse = 1 / (x * x)
    outer = (1 / math.sqrt(math.pi) - inverse * _ratio(OUTER, inverse)) / x
    near = jnp.floor(16 * x) / 16  # its square is exact
    return jnp.exp(-near * near) * jnp.exp(-(x - near) * (x + near)) * jnp.where(x < MIDDLE_END, _ratio(MIDDLE, jnp.minimum(x, 4.0)), outer)


def _error_functions(x):
    """erf(x) for small |x|, and erfc(|x|) for large |x|."""
    size = jnp.abs(x)
    central = x * _ratio(CENTRAL, jnp.minimum(size, CENTRAL_END) ** 2)
    return central, _tail(jnp.clip(size, CENTRAL_END, 30.0))


def _erf(x):
    """Its error is up to 2 units in the last place, that of `_erfc` up to 4."""
    central, tail = _error_functions(x)
    outside = jnp.sign(x) * (1 - tail)
    return jnp.where(jnp.isnan(x), x, jnp.where(jnp.abs(x) <= CENTRAL_END, central, outside))


def _erfc(x):
    central, tail = _error_functions(x)
    outside = jnp.where(x > 0, tail, 2 - tail)
    return jnp.where(jnp.isnan(x), x, jnp.where(jnp.abs(x) <= CENTRAL_END, 1 - central, outside))


def _sort(*arrays, dimension: int, is_stable: bool, num_keys: int) -> list:
    """Each entry goes to the place with the number of entries that come before it. NaN comes last."""
    arrays = [jnp.moveaxis(x, dimension, -1) for x in arrays]
    n = arrays[0].shape[-1]
    before = jnp.arange(n)[:, None] < np.arange(n)  # of equal entries
    for key in reversed(arrays[:num_keys]):
        first, second = key[..., :, None], key[..., None, :]
        before = _less(first, second) | (~_less(second, first) & before)
    places = before.sum(-2)
    return [jnp.moveaxis(jnp.put_along_axis(x, places, x, -1, inplace=False, mode="promise_in_bounds"), -1, dimension) for x in arrays]


def _lu(matrix, **_) -> list:
    """Gaussian elimination with partial pivoting (Golub and Van Loan, Matrix Computations, algorithm 3.4.1), of matrices (..., m, n)."""
    if matrix.ndim > 2:
        return [jnp.stack(x) for x in zip(*(_lu(x) for x in matrix), strict=True)]
    (m, n), rows, pivots = matrix.shape, jnp.arange(matrix.shape[0], dtype=jnp.int32), []
    for k in range(min(m, n)):
        pivot = jnp.argmax(jnp.abs(matrix[k:, k])).astype(jnp.int32) + k
        pivots.append(pivot)
        matrix, rows = (_exchanged(x, k, pivot) for x in (matrix, rows))
        divisor = jnp.where(matrix[k, k] == 0, 1, matrix[k, k])
        factors = matrix[k + 1 :, k] / divisor
        matrix = matrix.at[k + 1 :, k].set(factors).at[k + 1 :, k + 1 :].add(-factors[:, None] * matrix[k, k + 1 :])
    return [matrix, jnp.stack(pivots), rows]


def _exchanged(x, k: int, pivot):
    """An array with the rows k and pivot exchanged."""
    numbers = np.arange(len(x)).reshape(-1, *(1,) * (x.ndim - 1))
    other = jnp.where(numbers == pivot, x, jnp.zeros_like(x)).sum(0, dtype=x.dtype)
    return jnp.where(numbers == k, other, jnp.where(numbers == pivot, x[k], x))


def _permutation(pivots, *, permutation_size: int):
    """The permutation of the rows of a factorization by `_lu`."""
    rows = jnp.broadcast_to(jnp.arange(permutation_size, dtype=pivots.dtype), (*pivots.shape[:-1], permutation_size))
    rows = jnp.moveaxis(rows, -1, 0)
    for k in range(pivots.shape[-1]):
        rows = _exchanged(rows, k, pivots[..., k])
    return jnp.moveaxis(rows, 0, -1)


def _less(a, b):
    """Whether a comes before b; NaN comes last."""
    return (a < b) | (~jnp.isnan(a) & jnp.isnan(b))


EXPANSIONS: dict[str, Callable[..., Any]] = {
    "erf": lambda x, **_: _erf(x), "erfc": lambda x, **_: _erfc(x), "sort": _sort, "lu": _lu, "lu_pivots_to_permutation": _permutation,
    "lt_to": _less, "le_to": lambda a, b: ~_less(b, a),
}  # fmt: skip
"""By primitive, a function of its inputs and parameters. Their derivatives are those of JAX."""


OF_FUNCTIONS = "call_hi_primitive"
"""A primitive of JAX 0.12 that stands for a function, such as `jnp.searchsorted`."""


def traced_expansion(equation: JaxprEqn) -> ClosedJaxpr:
    """The function of an equation of one of these primitives."""
    name, inputs = equation.primitive.name, [struct_of(v.aval) for v in equation.invars]
    function = getattr(equation.primitive, "to_lojax") if name == OF_FUNCTIONS else EXPANSIONS[name]  # noqa: B009
    traced = jax.make_jaxpr(lambda *xs: jax.tree.leaves(function(*xs, **equation.params)))(*inputs)
    wanted, found = ([(x.shape, x.dtype) for x in avals] for avals in ([v.aval for v in equation.outvars], traced.out_avals))
    if wanted != found:
        raise TypeError(f"the expansion of {name} returns {found} instead of {wanted}")
    return traced
