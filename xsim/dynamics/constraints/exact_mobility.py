"""Mobilities of constraint rows at the current state (MuJoCo's flag ``diagexact``), in the place of those in the reference configuration.

Source: MuJoCo 4.0's documentation, Computation, Diagonal approximation.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.linalg.dense import Cholesky, assembled, tree_sum
from xsim.dynamics.tree.kinematics import Frames, link_inertias
from xsim.dynamics.tree.system import System


class ExactMobility:
    """The diagonal of J M^-1 J^T, from the mass matrix M at a configuration."""

    def __init__(self, system: System, frame: Frames):
        mass, before = mass_with_armature(system, frame, link_inertias(system, frame)), system.tables.ancestors
        lower = {(i, j): x for i, row in enumerate(mass) for j, x in zip((*before[i], i), row, strict=True)}
        matrix = assembled(lower | {(j, i): x for (i, j), x in lower.items()}, (len(mass), len(mass)), mass, frame.R)
        self._factor = Cholesky(matrix if matrix.ndim == 3 else matrix[..., None])

    def diagonal(self, rows):
        """The diagonal (n, lanes) for the rows J (n, nv, lanes)."""
        transposed = jnp.swapaxes(rows, 0, 1)
        inverse = jax.vmap(self._factor.solve, 1, 1)(transposed)
        return tree_sum([x * y for x, y in zip(transposed, inverse, strict=True)])


def exact_mobility(system: System, frame: Frames) -> ExactMobility | None:
    """The mobilities at a configuration. None if the model takes those of the reference configuration."""
    return ExactMobility(system, frame) if system.topology.exact_mobility else None
