"""The force by which a mouse pulls a body, and the moment by which it turns one."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.queries import integrate, kinematics, mass_matrix
from xsim.model.model import Model, State
from xsim.poses import quat_exp
from xsim.spatial import quat_conj, quat_log, quat_mul, rotate

__all__ = ["STIFFNESS", "TURN_STIFFNESS", "Perturbation", "generalized_force", "swing"]

STIFFNESS = 100.0
"""Stiffness of the spring per effective mass, 1/s^2 (MuJoCo's default of ``visual/map/stiffness``)."""
TURN_STIFFNESS = 500.0
"""Stiffness of the torsion spring per effective moment of inertia, 1/s^2 (MuJoCo's default of ``visual/map/stiffnessrot``)."""


class Perturbation(NamedTuple):
    """A pull at a point of a body towards a target, or a turn of a body towards an orientation.

    body: index; -1: neither. point (3,): in the body frame, m. target (3,): in the world, m. turns: whether it is a turn. orientation (4,):
    of the body in the world.
    """

    body: Any = -1
    point: Any = (0.0, 0.0, 0.0)
    target: Any = (0.0, 0.0, 0.0)
    turns: Any = False
    orientation: Any = (1.0, 0.0, 0.0, 0.0)


def generalized_force(model: Model, state: State, perturbation: Perturbation) -> jax.Array:
    """Generalized force (nv,) of a pull or a turn, N or N m: that of a damped spring.

    A pull is a force f = m (k (target - x) - sqrt(k) J v) at the point x, world axes; the generalized force is J^T f. J (3, nv) is the
    Jacobian of the point, k is `STIFFNESS`, and m = 3 / trace(J M^-1 J^T) the effective mass at the point. These are the force and the mass
    of MuJoCo's ``mjv_applyPerturbForce`` and ``mjv_initPerturb``, without the torque that damps the rotation about the spring. A turn is
    likewise a moment: x is the rotation vector from the present orientation, J the Jacobian of the body's angular velocity, k
    `TURN_STIFFNESS`. What cannot move gets no force.
    """
    dtype, body = state.q.dtype, perturbation.body
    point, target, orientation = (jnp.asarray(x, dtype) for x in (perturbation.point, perturbation.target, perturbation.orientation))

    def place(change):
        """What moves: the point, or the orientation as a rotation vector from where it is. Then both as they are."""
        pos, quat = kinematics(model, integrate(model, state.q, change))
        x = pos[body] + _rotated(quat[body], point)
        turned = _rotation_vector(jax.lax.stop_gradient(quat[body]), quat[body])
        return jnp.where(perturbation.turns, turned, x), (x, quat[body])

    _, transposed, (x, present) = jax.vjp(place, jnp.zeros(model.nv, dtype), has_aux=True)
    error = jnp.where(perturbation.turns, _rotation_vector(present, orientation), target - x)
    stiffness = jnp.where(perturbation.turns, TURN_STIFFNESS, STIFFNESS).astype(dtype)
    jacobian = jax.vmap(lambda axis: transposed(axis)[0])(jnp.eye(3, dtype=dtype))
    inverse_mass = jnp.trace(jacobian @ jnp.linalg.solve(mass_matrix(model, state.q), jacobian.T))
    mass = jnp.where(inverse_mass > 0, 3.0 / jnp.where(inverse_mass > 0, inverse_mass, 1.0), 0.0)
    return jacobian.T @ (mass * (stiffness * error - jnp.sqrt(stiffness) * (jacobian @ state.v)))


def _rotated(quat, x):
    return jnp.stack(rotate(tuple(quat), tuple(x)))


def _rotation_vector(start, end):
    """From one orientation to another, world axes, rad."""
    return jnp.stack(quat_log(quat_mul(tuple(end), quat_conj(tuple(start)))))


def swing(centre, start, end) -> np.ndarray:
    """The smallest rotation (4,) that takes the direction from a centre to ``start`` to that from the centre to ``end``; none where there
    is no single one. All points (3,), in the world, m."""
    before, after = (np.asarray(x, float) - np.asarray(centre, float) for x in (start, end))
    axis = np.cross(before, after)
    sine = np.linalg.norm(axis)
    return quat_exp(axis / sine * np.arctan2(sine, before @ after) if sine > 0 else np.zeros(3))
