"""The linear model of a fit's residuals: of one problem, or of several that are read one after another.

Least squares needs of the residuals r and their Jacobian J only the triangular factor R of (J r): |J d + r| is |R (d, 1)| for every step d.
The factor of many rows is found piece by piece, without the product of J with itself (Demmel, Grigori, Hoemmen and Langou,
*Communication-optimal parallel and sequential QR and LU factorizations*, SIAM J. Sci. Comput. 34, 2012). So any number of recordings needs
the memory of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils

from xsim.model.model import Model
from xsim.sysid.parameters import with_values
from xsim.sysid.problem import Prepared, Problem, prepare
from xsim.sysid.residuals import Data, Structure, evaluate, physical_and_slope

__all__ = ["Linear", "Pieces", "Problems", "Whole"]

Problems = Iterable[Problem] | Callable[[], Iterable[Problem]]
"""Several problems: what can be read again and again, or a function that returns what can be read once."""


class Linear(NamedTuple):
    """The linear model of the residuals about z (n,): their value (m,) and Jacobian (m, n) with respect to z."""

    z: Any
    value: Any
    jacobian: Any


class Whole(NamedTuple):
    """One problem."""

    structure: Structure
    data: Data

    def linearize(self, z) -> Linear:
        """The linear model about the unconstrained unknowns z (n,)."""
        x, slope = physical_and_slope(self.structure, z, self.data.ranges)
        evaluation = evaluate(self.structure, x, self.data)
        return Linear(z, evaluation.residual, evaluation.jacobian * slope)


class Factor(NamedTuple):
    """Of the residuals of all pieces: the triangular factor of (Jacobian, residual), (n + 1, n + 1), with respect to the physical unknowns.
    samples: how many numbers were measured."""

    triangle: Any
    samples: int


class Pieces:
    """Problems with the same parameters, read anew for every linear model.

    structure, ranges, dtype: of the first problem. Raises ValueError where a problem does not go together with the first, and for a start
    that is unknown; TypeError for an iterator.
    """

    def __init__(self, source: Problems, across_processes: bool):
        if isinstance(source, Iterator):
            raise TypeError("an iterator of problems can be read only once: give the function that returns it")
        self._source, self._across_processes = source, across_processes
        first = next((prepare(problem) for problem in self._problems()), None)
        if first is None:
            raise ValueError("nothing to fit: there is no problem")
        # Not the recordings: they would stay in memory beside those of each other problem.
        self.structure, self.ranges, self.dtype, self._model = first.structure, first.data.ranges, first.data.q.dtype, first.data.model
        self._check(first)

    def linearize(self, z) -> Linear:
        """The linear model about the unconstrained unknowns z (n,): as many rows as there are unknowns, and one more."""
        x, slope = physical_and_slope(self.structure, z, self.ranges)
        triangle = self.factor(x).triangle
        return Linear(z, triangle[:, -1], triangle[:, :-1] * slope)

    def factor(self, x) -> Factor:
        """The factor of the residuals of all problems at the physical unknowns x (n,)."""
        triangle, samples = jnp.zeros((len(x) + 1, len(x) + 1), self.dtype), 0
        for problem in self._problems():
            prepared = prepare(problem)
            self._check(prepared)
            evaluation = evaluate(prepared.structure, x, prepared.data)
            triangle = _with_rows(triangle, evaluation.residual, evaluation.jacobian)
            samples += prepared.samples
        return self._of_all_processes(Factor(triangle, samples)) if self._across_processes else Factor(triangle, samples)

    def model(self, x) -> Model:
        """The model of the first problem with the physical unknowns x (n,)."""
        return with_values(self._model, self.structure.blocks, x)

    def _problems(self) -> Iterable[Problem]:
        return self._source() if callable(self._source) else self._source

    def _check(self, prepared: Prepared) -> None:
        """Raise ValueError where a problem does not go together with the first."""
        start, end = prepared.structure.unknown_starts
        if start != end:
            raise ValueError("the starts of several problems must be known: initial='known', and Segments(starts='measured')")
        same = prepared.structure.blocks == self.structure.blocks
        ranges = zip(jax.tree.leaves(prepared.data.ranges), jax.tree.leaves(self.ranges), strict=False)
        if not same or not all(np.array_equal(a, b) for a, b in ranges):
            raise ValueError("the parameters of all problems must be the same, with the same starts and bounds")

    @staticmethod
    def _of_all_processes(factor: Factor) -> Factor:
        """The factor of the rows of all processes, which all call this."""
        triangles, samples = multihost_utils.process_allgather((np.asarray(factor.triangle), np.asarray(factor.samples)))
        n = triangles.shape[-1]
        return Factor(_triangle(jnp.asarray(triangles).reshape(-1, n)), int(samples.sum()))


def _triangle(rows):
    return jnp.linalg.qr(rows, mode="r")


@jax.jit
def _with_rows(triangle, residual, jacobian):
    """The factor with more rows."""
    return _triangle(jnp.concatenate([triangle, jnp.concatenate([jacobian, residual[:, None]], 1)]))
