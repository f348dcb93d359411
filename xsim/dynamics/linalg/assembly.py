"""Sums over constraint rows that depend on few dofs, in the program of one environment: each row is added at its own dofs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp

from xsim.compile.primitives import primitive_of


class Curvature(NamedTuple):
    """The matrix sum_i J_i^T P_i J_i over i < count.

    J (n, d, k): rows with their columns of k dofs. second: P (n, d, d). dofs: the dofs of these columns, ascending: a numpy array (k,), or
    an array (n, k) of each i; a column of zeros may repeat the last dof. count: a number from which on P_i is zero."""

    J: Any
    second: Any
    dofs: Any
    count: Any


def with_curvature(matrix, terms: Sequence[Curvature]):
    """The symmetric matrix (nv, nv) plus these terms."""
    arrays = [(J, second, jnp.asarray(dofs, jnp.int32), jnp.asarray(count)) for J, second, dofs, count in terms]
    return WITH_CURVATURE.bind(matrix, *(x for term in arrays for x in term))[0]


def transposed_product(J, force, dofs, count, nv: int, of_magnitudes: bool = False):
    """The sum of J_i^T f_i over i < count (nv), for f = force (n, d). of_magnitudes: of |J_i|^T |f_i|. For the others see `Curvature`."""
    return TRANSPOSED_PRODUCT.bind(J, force, jnp.asarray(dofs, jnp.int32), jnp.asarray(count), n=nv, of_magnitudes=of_magnitudes)[0]


def _with_curvature(matrix, *arrays) -> list:
    for J, second, dofs, _ in zip(*[iter(arrays)] * 4, strict=True):
        at = jnp.broadcast_to(dofs, (len(J), J.shape[2]))
        matrix = matrix.at[at[:, :, None], at[:, None]].add(jnp.einsum("ndi,nde,nej->nij", J, second, J))
    return [matrix]


def _transposed_product(J, force, dofs, count, *, n: int, of_magnitudes: bool) -> list:
    terms = J * force[:, :, None]
    return [jnp.zeros(n, J.dtype).at[dofs].add((jnp.abs(terms) if of_magnitudes else terms).sum(1))]


WITH_CURVATURE = primitive_of("xsim_with_curvature", _with_curvature)
TRANSPOSED_PRODUCT = primitive_of("xsim_transposed_product", _transposed_product)
