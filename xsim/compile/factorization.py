"""Cholesky factorization and triangular solves, entry by entry."""

from __future__ import annotations

import numpy as np

from xsim.compile.arrays import Array, constant_array


def cholesky(f, equation, x: Array) -> Array:
    """Lower Cholesky factor of matrices (..., n, n)."""
    n, shape = x.shape[-1], x.shape
    if x.numbers is not None:
        factors = [_of_constants(m) for m in x.numbers.reshape(-1, n, n)]
        return constant_array(np.array(factors, x.dtype).reshape(shape))
    matrices = f.ids(x).reshape(-1, n, n)
    return Array(np.stack([_cholesky(f.builder, m, x.dtype) for m in matrices]).reshape(shape), x.dtype)


def _of_constants(matrix: np.ndarray) -> np.ndarray:
    """The factor of a matrix of constants. It is NaN if the matrix is not positive definite, as with XLA."""
    try:
        return np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return np.full_like(matrix, np.nan)


def _cholesky(builder, a: np.ndarray, dtype) -> np.ndarray:
    n = len(a)
    lower = np.full((n, n), builder.constant(0, dtype))
    for j in range(n):
        for i in range(j, n):
            rest = _minus_products(builder, int(a[i, j]), lower[i, :j], lower[j, :j], dtype)
            lower[i, j] = (
                builder.operation("sqrt", dtype, (rest,)) if i == j else builder.operation("div", dtype, (rest, int(lower[j, j])))
            )
    return lower


def _minus_products(builder, start: int, left, right, dtype) -> int:
    """start - sum of left * right."""
    zero = builder.constant(0, dtype)
    for a, b in zip(left.tolist(), right.tolist(), strict=True):
        if a == zero or b == zero:  # most entries of sparse matrices
            continue
        start = builder.operation("sub", dtype, (start, builder.operation("mul", dtype, (a, b))))
    return start


def triangular_solve(f, equation, a: Array, b: Array) -> Array:
    """The solution x of a x = b or of x a = b, with a triangular matrix a (..., n, n)."""
    p = equation.params
    n = a.shape[-1]
    matrices = f.ids(a).reshape(-1, n, n)
    if p["transpose_a"]:
        matrices = matrices.swapaxes(1, 2)
    lower = p["lower"] != p["transpose_a"]
    right = f.ids(b).reshape(-1, *b.shape[-2:])
    if not p["left_side"]:  # x a = b is a^T x^T = b^T
        matrices, right, lower = matrices.swapaxes(1, 2), right.swapaxes(1, 2), not lower
    order = range(n) if lower else range(n)[::-1]
    out = np.zeros_like(right)
    for k, matrix in enumerate(matrices):
        for column in range(right.shape[2]):
            done: list[int] = []
            for i in order:
                value = _minus_products(f.builder, int(right[k, i, column]), matrix[i, done], out[k, done, column], b.dtype)
                if not p["unit_diagonal"]:
                    value = f.builder.operation("div", b.dtype, (value, int(matrix[i, i])))
                out[k, i, column] = value
                done.append(i)
    if not p["left_side"]:
        out = out.swapaxes(1, 2)
    return Array(out.reshape(b.shape), b.dtype)
