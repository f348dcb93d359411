"""The force by which a mouse pulls a body."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from xsim.dynamics.queries import integrate, kinematics, mass_matrix
from xsim.model.model import Model, State
from xsim.spatial import rotate

__all__ = ["STIFFNESS", "Perturbation", "generalized_force"]

STIFFNESS = 100.0
"""Stiffness of the spring per effective mass, 1/s^2 (MuJoCo's default of ``visual/map/stiffness``)."""


class Perturbation(NamedTuple):
    """A pull at a point of a body towards a target.

    body: index; -1: no pull. point (3,): in the body frame, m. target (3,): in the world, m.
    """

    body: Any = -1
    point: Any = (0.0, 0.0, 0.0)
    target: Any = (0.0, 0.0, 0.0)


def generalized_force(model: Model, state: State, pull: Perturbation) -> jax.Array:
    """Generalized force (nv,) of a pull: that of a damped spring from the point to the target, N or N m.

    f = m (k (target - x) - sqrt(k) J v) acts at the point x, world axes; the generalized force is J^T f. J (3, nv) is the Jacobian of the
    point, k is `STIFFNESS`, and m = 3 / trace(J M^-1 J^T) the effective mass at the point. These are the force and the mass of MuJoCo's
    ``mjv_applyPerturbForce`` and ``mjv_initPerturb``, without the torque that damps the rotation about the spring. A point that cannot move
    gets no force.
    """

    dtype = state.q.dtype
    point, target = jnp.asarray(pull.point, dtype), jnp.asarray(pull.target, dtype)

    def position(change):
        pos, quat = kinematics(model, integrate(model, state.q, change))
        return pos[pull.body] + jnp.stack(rotate(tuple(quat[pull.body]), tuple(point)))

    x, transposed = jax.vjp(position, jnp.zeros(model.nv, dtype))
    jacobian = jax.vmap(lambda axis: transposed(axis)[0])(jnp.eye(3, dtype=dtype))
    inverse_mass = jnp.trace(jacobian @ jnp.linalg.solve(mass_matrix(model, state.q), jacobian.T))
    mass = jnp.where(inverse_mass > 0, 3.0 / jnp.where(inverse_mass > 0, inverse_mass, 1.0), 0.0)
    spring = STIFFNESS * (target - x) - STIFFNESS**0.5 * (jacobian @ state.v)
    return jacobian.T @ (mass * spring)
