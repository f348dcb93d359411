"""Friction without slip (MuJoCo's noslip): a second solve for dry friction and contact friction, without their regularization.

The first solve gives the forces of all soft constraints. The second solve changes the friction forces alone. Their bounds follow from the
first solve:
- Dry friction has its own bounds, as before.
- The friction of an elliptic contact is in the cross-section of its cone at the normal force.
- The friction of a pyramidal contact along tangent j is at most mu_j (f+_j + f-_j), where f+-_j are the forces of the two edges.
Friction minimizes the same convex function as before in the limit R -> 0 (in practice, see `STIFFNESS_POWER`). MuJoCo's noslip iterations
converge to this solution. Source: MuJoCo's documentation, Computation, Solver parameters and noslip.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.constraints.cones import Cones, edge_sums
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.soft_rows import Rows
from xsim.dynamics.constraints.soft_set import Constraints

STIFFNESS_POWER = 0.375
"""The second solve multiplies the stiffness of friction by eps^-power, where eps is the machine epsilon. This divides the slip by 1e6 in
double precision. The rounding errors of the forces, a stiffness times a distance, are still smaller."""


def without_slip(constraints: Constraints, a) -> Constraints:
    """The constraints of the second solve. All but friction have the constant forces of the first solution, the acceleration a
    (nv, *lanes)."""
    a = a[:, None] if a.ndim == 1 else a
    constraints, stiff = constraints.fitted(a.shape[1:]), float(jnp.finfo(a.dtype).eps) ** -STIFFNESS_POWER
    x = list(constraints.at(a))
    rows = None if constraints.rows is None else _no_slip_rows(constraints.rows, x.pop(0), stiff)
    return Constraints(rows, tuple(_no_slip_cones(c, y, stiff) for c, y in zip(constraints.cones, x, strict=True)), constraints.overflow)


def _no_slip_rows(rows: Rows, x, stiff: float) -> Rows:
    """The rows with stiffer dry friction, and constant forces of all others. Only dry friction has two finite bounds."""
    is_friction = jnp.isfinite(rows.low) & jnp.isfinite(rows.high)
    force = rows.force(x)
    low, high = (jnp.where(is_friction, bound, force) for bound in (rows.low, rows.high))
    return rows._replace(stiffness=jnp.where(is_friction, stiff * rows.stiffness, 0.0), low=low, high=high)


def _no_slip_cones(c: Cones, x, stiff: float) -> NoSlipCones:
    force, mu = c.force(x), c.weight[:, 1:]
    if c.curved:
        return NoSlipCones(True, c.J, c.offset, force[:, 0], stiff * c.stiffness[:, None], mu, force[:, :1], c.pull)
    stiffness = 2.0 * stiff * c.stiffness[:, None] * mu * mu
    return NoSlipCones(False, c.J, c.offset, force[:, 0], stiffness, jnp.ones_like(mu), mu * edge_sums(c, x), c.pull)
