"""Small dense matrices of components: arrays (rows, columns, lanes), or (rows, columns) where nothing differs between environments."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .lanes import spread


def stacked(components: list, *like):
    """A vector (n, lanes) of components; like: trees whose components give the common shape and type."""
    return jnp.stack(spread(components, like))


def assembled(entries: dict, shape: tuple[int, int], *like):
    """A matrix of the components at (row, column); what is not named is zero."""
    place = np.zeros(shape, int)
    for i, where in enumerate(entries):
        place[where] = i + 1
    return stacked([0.0, *entries.values()], *like)[place]


class Cholesky:
    """Factor of a symmetric positive definite matrix (n, n, lanes), column by column, every operation over all environments.

    A pivot that is zero to rounding (a motion without inertia) is replaced by 1; ``pivot`` is 0 then.
    """

    def __init__(self, matrix):
        rest, eps = matrix, float(jnp.finfo(matrix.dtype).eps)
        self.columns: list = []  # below the diagonal
        self.inverse: list = []  # of the diagonal
        self.pivot = jnp.ones_like(matrix[0, 0])
        for k in range(len(matrix)):
            square = rest[0, 0]
            usable = square > 32 * eps * jnp.abs(matrix[k, k])
            inverse = 1.0 / jnp.sqrt(jnp.where(usable, square, 1.0))
            column = rest[1:, 0] * inverse
            rest = rest[1:, 1:] - column[:, None] * column[None, :]
            self.columns.append(column)
            self.inverse.append(inverse)
            self.pivot = jnp.where(usable, self.pivot, 0.0)

    def solve(self, b):
        """x with A x = b, (n, lanes)."""
        y = []
        for column, inverse in zip(self.columns, self.inverse, strict=True):
            y.append(b[0] * inverse)
            b = b[1:] - column * y[-1]
        x = b  # nothing left
        for column, inverse, top in zip(self.columns[::-1], self.inverse[::-1], y[::-1], strict=True):
            x = jnp.concatenate([((top - (column * x).sum(0)) * inverse)[None], x])
        return x


def times(matrix, x):
    """A x, (n, lanes)."""
    return (matrix * x[None]).sum(1)
