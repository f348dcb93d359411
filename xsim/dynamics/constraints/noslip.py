"""Friction without slip (MuJoCo's noslip): after the soft constraints are solved, dry friction and the friction of contacts are found again
without their regularization, within the bounds that the solution gives them. Everything else keeps its force.

Dry friction keeps its bounds. The friction of an elliptic contact stays within its cone's cross-section at the normal force; that of a
pyramidal one within mu_j (f+_j + f-_j) along each tangent, of the forces f+-_j of its two edges. So friction minimizes the same convex
function as before, of which R -> 0 (in practice `STIFFER`). The solution is where MuJoCo's noslip iterations lead to when they are many.
Source: MuJoCo's documentation, Computation, Solver parameters and noslip.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.constraints.cones import Cones, edge_sums
from xsim.dynamics.constraints.noslip_cones import NoSlipCones
from xsim.dynamics.constraints.soft_rows import Rows
from xsim.dynamics.constraints.soft_set import Constraints

STIFFER = 0.375
"""Power of the rounding by which friction is stiffer: what slips is that much less, 1e-6 in double precision, and the forces, a stiffness
times a distance, are rounded by less than that."""


def without_slip(constraints: Constraints, a) -> Constraints:
    """The constraints with the forces that they have at the acceleration a (nv, *lanes), but friction, which holds within them."""
    a = a[:, None] if a.ndim == 1 else a
    constraints, stiff = constraints.fitted(a.shape[1:]), float(jnp.finfo(a.dtype).eps) ** -STIFFER
    x = list(constraints.at(a))
    rows = None if constraints.rows is None else _held_rows(constraints.rows, x.pop(0), stiff)
    return Constraints(rows, tuple(_no_slip_cones(c, y, stiff) for c, y in zip(constraints.cones, x, strict=True)), constraints.overflow)


def _held_rows(rows: Rows, x, stiff: float) -> Rows:
    """Dry friction, which alone is bounded on both sides, and the others at their force."""
    slides = jnp.isfinite(rows.low) & jnp.isfinite(rows.high)
    force = rows.force(x)
    low, high = (jnp.where(slides, bound, force) for bound in (rows.low, rows.high))
    return rows._replace(stiffness=jnp.where(slides, stiff * rows.stiffness, 0.0), low=low, high=high)


def _no_slip_cones(c: Cones, x, stiff: float) -> NoSlipCones:
    force, mu = c.force(x), c.weight[:, 1:]
    if c.curved:
        return NoSlipCones(True, c.J, c.offset, force[:, 0], stiff * c.stiffness[:, None], mu, force[:, :1])
    stiffness = 2.0 * stiff * c.stiffness[:, None] * mu * mu
    return NoSlipCones(False, c.J, c.offset, force[:, 0], stiffness, jnp.ones_like(mu), mu * edge_sums(c, x))
