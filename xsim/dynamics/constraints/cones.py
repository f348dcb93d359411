"""Forces of contacts: a normal force that only pushes, and friction within a cone.

A contact of dimension d has the numbers x = J a + offset along its frame: normal, two tangents, turns about the normal and the tangents.
Its force f = -dP/dx (x), of a convex potential P, stays within the cone of friction. Pyramidal: edges y = x_0 +- mu_j x_j push with
max(0, -D y) each. Elliptic: with Y = (mu x_0, mu_1 x_1, ...), mu = mu_1 / sqrt(impratio), P = c/2 times the squared distance of Y from the
cone Y_0 >= mu |Y_1, ...|. Source: MuJoCo's documentation, Computation, friction cones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.linalg.dense import fit, pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian


class Cones(NamedTuple):
    """Contacts of one dimension d. J: (n, d, nv, lanes). offset (n, d, lanes). stiffness (n, lanes): D of pyramids and of contacts without
    friction, c of elliptic cones; 0 where there is no contact. weight (n, d, lanes): 1 and the coefficients of friction of a pyramid, of
    an elliptic cone mu and those."""

    elliptic: bool
    J: Jacobian
    offset: object
    stiffness: object
    weight: object

    @property
    def width(self) -> int:
        return self.offset.shape[1]

    @property
    def curved(self) -> bool:
        """Whether the potential is not piecewise quadratic."""
        return self.elliptic and self.width > 1

    def j_times(self, a):
        """J a (n, d, lanes) of a (nv, lanes)."""
        return self.J.j_times(a)

    def jt_times(self, f):
        """J^T f (nv, lanes)."""
        return self.J.jt_times(f)

    def force(self, x):
        """f (n, d, lanes)."""
        if self.curved:
            return _elliptic_force(self, x)
        return -self.stiffness[:, None] * _from_edges(self, jnp.minimum(_edges(self, x), 0.0))

    def line(self, x, dx) -> Callable:
        """Of P along a line: reach -> (slope, curvature) at x + reach dx, (lanes)."""
        return _elliptic_line(self, x, dx) if self.curved else _pyramid_line(self, x, dx)

    def fitted(self, lanes: tuple[int, ...]) -> Cones:
        """With arrays of all lanes, or without that axis."""
        return Cones(self.elliptic, self.J.fitted(lanes), *(fit(x, lanes) for x in self[2:]))

    def zone(self, x):
        """What makes P quadratic or flat (n, ..., lanes): edges that push; of elliptic cones 0 free, 1 sliding, 2 sticking."""
        if self.curved:
            normal, tangential = _scaled(self, x)
            return _zone(self.weight[:, :1], normal, tangential)
        return (_edges(self, x) < 0).astype(jnp.int32)

    def is_nonquadratic(self, x):
        """Whether P is not quadratic in some contact's zone (lanes)."""
        if not self.curved:
            return jnp.zeros(x.shape[2:], bool)
        return ((self.zone(x) == 1) & (self.stiffness[:, None] > 0)).any((0, 1))

    def hessian(self, x):
        """Second derivatives of P (n, d, d, lanes)."""
        return _elliptic_hessian(self, x) if self.curved else _pyramid_hessian(self, x)

    def curvature(self, x, count=None):
        """J^T P'' J (nv, nv, lanes). count: what `count` says, None: all contacts are looked at."""
        return self.J.curvature(self.hessian(x), count)

    def count(self):
        """Of each block of J, after how many contacts there is none in any lane."""
        return self.J.counts((self.stiffness > 0).reshape(len(self.stiffness), -1).any(1))


# ---- pyramids -----------------------------------------------------------------------------------------------------------------


def _edges(c: Cones, x):
    """x_0 + mu_j x_j and x_0 - mu_j x_j (n, 2, d - 1, lanes); of a contact without friction x_0 (n, 1, 1, lanes).

    By a sign, not put one after the other: loops over pieces of arrays are not vectorized on CPU."""
    if c.width == 1:
        return x[:, None]
    sign = np.array([1.0, -1.0], x.dtype).reshape(2, *(1,) * (x.ndim - 1))
    return x[:, None, :1] + sign * (c.weight[:, 1:] * x[:, 1:])[:, None]


def _from_edges(c: Cones, y):
    """The transpose of `_edges`."""
    if c.width == 1:
        return y[:, 0]
    both, across = y[:, 0] + y[:, 1], c.weight[:, 1:] * (y[:, 0] - y[:, 1])
    normal = tree_sum([both[:, k] for k in range(c.width - 1)])
    return jnp.concatenate([normal[:, None], across], 1)


def edge_sums(c: Cones, x):
    """Forces of the two edges of a pyramid along each tangent, together (n, d - 1, lanes)."""
    if c.width == 1:
        return x[:, 1:]
    pushed = jnp.minimum(_edges(c, x), 0.0)
    return -c.stiffness[:, None] * (pushed[:, 0] + pushed[:, 1])


def _pyramid_line(c: Cones, x, dx) -> Callable:
    y, dy = _edges(c, x), _edges(c, dx)
    pushed = c.stiffness[:, None, None] * dy

    def line(reach):
        there = y + reach * dy
        on = there < 0
        slope, bend = jnp.where(on, pushed * there, 0.0), jnp.where(on, pushed * dy, 0.0)
        return tuple(pairwise_sum(part.reshape(-1, *part.shape[3:])) for part in (slope, bend))

    return line


def _pyramid_hessian(c: Cones, x):
    on = jnp.where(_edges(c, x) < 0, 1.0, 0.0) * c.stiffness[:, None, None]
    n = c.width - 1
    if n == 0:
        return on
    mu, plus, minus = c.weight[:, 1:], on[:, 0], on[:, 1]
    both = plus + minus
    first = tree_sum([both[:, k] for k in range(n)])[:, None, None]
    across = (mu * (plus - minus))[:, :, None]
    own = (mu * mu * both)[:, :, None] * jnp.eye(n, dtype=x.dtype).reshape(n, n, *(1,) * (x.ndim - 2))
    return _bordered(first, across, own)


def _bordered(first, across, own):
    """Symmetric matrices of a corner (n, 1, 1, lanes), a column below it (n, k, 1, lanes) and the rest (n, k, k, lanes)."""
    top = jnp.concatenate([first, jnp.swapaxes(across, 1, 2)], 2)
    return jnp.concatenate([top, jnp.concatenate([across, own], 2)], 1)


# ---- elliptic cones -----------------------------------------------------------------------------------------------------------


def _scaled(c: Cones, x):
    """Y_0 (n, 1, lanes) and the norm of the rest."""
    y = c.weight * x
    square = tree_sum([y[:, k] ** 2 for k in range(1, c.width)])[:, None]
    some = square > 0
    return y[:, :1], jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)


def _zone(mu, normal, tangential):
    return jnp.where(normal >= mu * tangential, 0, jnp.where(mu * normal + tangential <= 0, 2, 1))


def _elliptic_force(c: Cones, x):
    mu = c.weight[:, :1]
    normal, tangential = _scaled(c, x)
    zone = _zone(mu, normal, tangential)
    y = c.weight * x
    into = (mu * tangential - normal) / (1.0 + mu * mu)  # how far the normal part is moved onto the cone
    share = into * mu / jnp.where(zone == 1, tangential, 1.0)
    sliding = jnp.concatenate([into, -share * y[:, 1:]], 1)
    moved = jnp.where(zone == 0, 0.0, jnp.where(zone == 2, -y, sliding))
    return c.stiffness[:, None] * c.weight * moved


def _elliptic_line(c: Cones, x, dx) -> Callable:
    (y, dy), mu = (c.weight * z for z in (x, dx)), c.weight[:, 0]
    normal, rate = y[:, 0], dy[:, 0]
    here, cross, along = (tree_sum([a[:, k] * b[:, k] for k in range(1, c.width)]) for a, b in ((y, y), (y, dy), (dy, dy)))

    def line(reach):
        n, square = normal + reach * rate, jnp.maximum(here + reach * (2.0 * cross + reach * along), 0.0)
        some = square > 0
        t = jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)
        zone, safe = _zone(mu, n, t), jnp.where(some, t, 1.0)
        outward = (cross + reach * along) / safe
        depth, sinking = n - mu * t, rate - mu * outward
        sliding = depth * sinking, sinking**2 - depth * mu * (along - outward**2) / safe
        sticking = n * rate + cross + reach * along, rate**2 + along
        parts = (jnp.where(zone == 0, 0.0, jnp.where(zone == 2, b, a / (1.0 + mu * mu))) for a, b in zip(sliding, sticking, strict=True))
        return tuple(pairwise_sum(c.stiffness * part) for part in parts)

    return line


def _elliptic_hessian(c: Cones, x):
    mu = c.weight[:, :1]
    normal, tangential = _scaled(c, x)
    zone = _zone(mu, normal, tangential)[:, :, None]
    tangential = jnp.where(zone[:, 0] == 1, tangential, 1.0)
    n = c.width - 1
    unit = (c.weight * x)[:, 1:] / tangential
    both = unit[:, :, None] * unit[:, None]
    eye = jnp.eye(n, dtype=x.dtype).reshape(n, n, *(1,) * (x.ndim - 2))
    side = (mu * (mu * tangential - normal) / tangential)[:, :, None]
    steep = mu[:, :, None]
    sliding = _bordered(jnp.ones_like(side), -(mu * unit)[:, :, None], steep * steep * both + side * (eye - both)) / (1.0 + steep * steep)
    sticking = jnp.eye(n + 1, dtype=x.dtype).reshape(n + 1, n + 1, *(1,) * (x.ndim - 2))
    scale = c.stiffness[:, None, None] * c.weight[:, :, None] * c.weight[:, None]
    return scale * jnp.where(zone == 0, 0.0, jnp.where(zone == 2, sticking, sliding))
