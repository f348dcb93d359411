"""Mobilities of constraint rows at the current state, in the place of those in the reference configuration.

MuJoCo's flag ``diagexact`` takes the diagonal of J M^-1 J^T. Its integrator ``discrete`` takes in the place of M the part T of its metric
that has the sparsity of the tree. Without the flag it multiplies the mobility in the reference configuration by the ratio of
sum_i J_i^2 / T_ii and sum_i J_i^2 / M_ii. Source: MuJoCo 4.0's documentation, Computation, Diagonal approximation; probes.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.linalg.dense import Cholesky, stacked, tree_sum
from xsim.dynamics.linalg.sparse import dense, with_quadratic
from xsim.dynamics.tree.kinematics import Frames, link_inertias
from xsim.dynamics.tree.system import System


class RowMobility:
    """Gives the mobilities of rows. by_step: whether their references are at the end of the step, see `softness.reference_law`."""

    by_step: bool

    def of_rows(self, rows, reference):
        """The mobilities (n, lanes) of the rows J (n, nv, lanes). reference (n, lanes): those in the reference configuration."""
        raise NotImplementedError


class ExactMobility(RowMobility):
    """The diagonal of J T^-1 J^T. metric: rows of T, with the sparsity of the tree."""

    def __init__(self, system: System, frame: Frames, metric: list, by_step: bool):
        self.by_step = by_step
        matrix = dense(system, metric, frame.R)
        self._factor = Cholesky(matrix if matrix.ndim == 3 else matrix[..., None])

    def of_rows(self, rows, reference):
        transposed = jnp.swapaxes(rows, 0, 1)
        inverse = jax.vmap(self._factor.solve, 1, 1)(transposed)
        return tree_sum([x * y for x, y in zip(transposed, inverse, strict=True)])


class CorrectedMobility(RowMobility):
    """The mobilities in the reference configuration, corrected from M to T. mass, metric: rows of M and T."""

    by_step = True

    def __init__(self, frame: Frames, mass: list, metric: list):
        inverse = (stacked([1.0 / row[-1] for row in rows], frame.R, mass, metric) for rows in (mass, metric))
        self._inverse_mass, self._inverse_metric = (x if x.ndim == 2 else x[:, None] for x in inverse)

    def of_rows(self, rows, reference):
        squares = [rows[:, k] ** 2 for k in range(rows.shape[1])]
        changed, usual = (tree_sum([x * y for x, y in zip(squares, i, strict=True)]) for i in (self._inverse_metric, self._inverse_mass))
        return reference * jnp.where(usual > 0, changed / jnp.where(usual > 0, usual, 1.0), 1.0)


def row_mobility(system: System, frame: Frames, step_terms: list | None) -> RowMobility | None:
    """What gives the mobilities of rows at a state. None if the model takes those of the reference configuration. step_terms: see
    `soft_set.constraints`."""
    exact = system.topology.exact_mobility
    if not exact and step_terms is None:
        return None
    mass = mass_with_armature(system, frame, link_inertias(system, frame))
    metric = with_quadratic(system, mass, step_terms or [])
    return ExactMobility(system, frame, metric, step_terms is not None) if exact else CorrectedMobility(frame, mass, metric)
