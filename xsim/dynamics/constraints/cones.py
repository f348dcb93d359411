"""Contact forces: a normal force that is not negative, and friction within a cone.

A contact of dimension d has the d components x = J a + offset in its frame: translation along the normal and the two tangents, rotation
about the normal and the two tangents. Its force is f = -dP/dx. P is a convex potential, such that f is in the friction cone.

Pyramidal cone: each edge y = x_0 +- mu_j x_j of the pyramid has the force max(0, -D y). Elliptic cone: with Y = (mu x_0, mu_1 x_1, ...) and
mu = mu_1 / sqrt(impratio), P is c/2 times the squared distance of Y from the cone Y_0 >= mu |Y_1, ...|. Source: MuJoCo's documentation,
Computation, friction cones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.linalg.assembly import Curvature
from xsim.dynamics.linalg.dense import every, fit, pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian, SparseJacobian


class Cones(NamedTuple):
    """Contacts of one dimension d. n: number of contacts.

    elliptic: whether the friction cone is elliptic, else pyramidal.
    J (n, d, nv, lanes): the contact Jacobian.
    offset (n, d, lanes): -aref.
    stiffness (n, lanes): c of an elliptic cone, else D. 0 for an inactive contact.
    weight (n, d, lanes): mu (of a pyramid 1), then the d - 1 friction coefficients.
    pull (n, lanes): the force of adhesion, which is not part of the forces here. None without adhesion.
    """

    elliptic: bool
    J: Jacobian | SparseJacobian
    offset: object
    stiffness: object
    weight: object
    pull: object = None

    @property
    def width(self) -> int:
        """d."""
        return self.offset.shape[1]

    @property
    def curved(self) -> bool:
        """Whether the potential is not piecewise quadratic."""
        return self.elliptic and self.width > 1

    def j_times(self, a):
        """J a (n, d, lanes) of a (nv, lanes)."""
        return self.J.j_times(a)

    def at(self, a):
        """J a + offset, of a (nv, lanes)."""
        return self.j_times(a) + self.offset

    def jt_times(self, f, count=None):
        """J^T f (nv, lanes). count: the result of `count`, so that later contacts are skipped. None: no contact is skipped."""
        return self.J.jt_times(f, count)

    def jt_magnitudes(self, f, count=None):
        """See `Potential.jt_magnitudes`."""
        return self.J.jt_magnitudes(f, count)

    def force(self, x):
        """The forces f (n, d, lanes) at x (n, d, lanes)."""
        if self.curved:
            return _elliptic_force(self, x)
        return -self.stiffness[:, None] * _from_edges(self, jnp.minimum(_edges(self, x), 0.0))

    def line(self, x, dx) -> Callable:
        """P along a line: a function alpha -> (first derivative, second derivative) at x + alpha dx, (lanes)."""
        return _elliptic_line(self, x, dx) if self.curved else _pyramid_line(self, x, dx)

    def fitted(self, lanes: tuple[int, ...]) -> Cones:
        """The cones with arrays of the shape (..., *lanes)."""
        return Cones(self.elliptic, self.J.fitted(lanes), *(None if x is None else fit(x, lanes) for x in self[2:]))

    def zone(self, x):
        """Integers that identify the piece of P at x (n, ..., lanes). Elliptic: 0 separated, 1 sliding, 2 sticking. Pyramid: for each edge,
        1 if it has a force, else 0."""
        if self.curved:
            normal, tangential = _scaled(self, x)
            return jnp.where(self.stiffness[:, None] > 0, _zone(self.weight[:, :1], normal, tangential), 0)
        return ((_edges(self, x) < 0) & (self.stiffness[:, None, None] > 0)).astype(jnp.int32)

    def is_quadratic(self, x, dx):
        """See `Potential.is_quadratic`: where no contact changes its zone, or slides in an elliptic cone."""
        zone = self.zone(x)
        same = zone == self.zone(x + dx)
        if self.curved:
            same = same & (zone != 1)
        return every(same, same.ndim - x.ndim + 2)

    def hessian(self, x):
        """The second derivatives of P (n, d, d, lanes)."""
        return _elliptic_hessian(self, x) if self.curved else _pyramid_hessian(self, x)

    def curvature(self, x, count=None):
        """J^T P'' J (nv, nv, lanes). count: see `jt_times`."""
        return self.J.curvature(self.hessian(x), count)

    def curvature_terms(self, x, count=None) -> list[Curvature]:
        """See `Potential.curvature_terms`."""
        return self.J.curvature_terms(self.hessian(x), count)

    def count(self):
        """For each block of J, the number of contacts up to the last one that is active in any lane."""
        return self.J.counts((self.stiffness > 0).reshape(len(self.stiffness), -1).any(1))


# ---- pyramids -----------------------------------------------------------------------------------------------------------------


def _edges(c: Cones, x):
    """The edges x_0 + mu_j x_j and x_0 - mu_j x_j (n, 2, d - 1, lanes). Of a contact without friction, x_0 (n, 1, 1, lanes).

    They are computed with a sign array, not concatenated: XLA does not vectorize concatenations on CPU."""
    if c.width == 1:
        return x[:, None]
    sign = np.array([1.0, -1.0], x.dtype).reshape(2, *(1,) * (x.ndim - 1))
    return x[:, None, :1] + sign * (c.weight[:, 1:] * x[:, 1:])[:, None]


def _from_edges(c: Cones, y):
    """The transpose of `_edges`."""
    if c.width == 1:
        return y[:, 0]
    sums, tangential = y[:, 0] + y[:, 1], c.weight[:, 1:] * (y[:, 0] - y[:, 1])
    normal = tree_sum([sums[:, k] for k in range(c.width - 1)])
    return jnp.concatenate([normal[:, None], tangential], 1)


def edge_sums(c: Cones, x):
    """For each tangent, the sum of the forces of its two edges of the pyramid (n, d - 1, lanes)."""
    if c.width == 1:
        return x[:, 1:]
    y = jnp.minimum(_edges(c, x), 0.0)
    return -c.stiffness[:, None] * (y[:, 0] + y[:, 1])


def _pyramid_line(c: Cones, x, dx) -> Callable:
    y, dy = _edges(c, x), _edges(c, dx)
    stiff_dy = c.stiffness[:, None, None] * dy

    def line(alpha):
        edges = y + alpha * dy
        active = edges < 0
        slope, curvature = jnp.where(active, stiff_dy * edges, 0.0), jnp.where(active, stiff_dy * dy, 0.0)
        return tuple(pairwise_sum(part.reshape(-1, *part.shape[3:])) for part in (slope, curvature))

    return line


def _pyramid_hessian(c: Cones, x):
    stiffness = jnp.where(_edges(c, x) < 0, 1.0, 0.0) * c.stiffness[:, None, None]
    n = c.width - 1
    if n == 0:
        return stiffness
    mu, plus, minus = c.weight[:, 1:], stiffness[:, 0], stiffness[:, 1]
    sums = plus + minus
    normal = tree_sum([sums[:, k] for k in range(n)])[:, None, None]
    coupling = (mu * (plus - minus))[:, :, None]
    tangential = (mu * mu * sums)[:, :, None] * jnp.eye(n, dtype=x.dtype).reshape(n, n, *(1,) * (x.ndim - 2))
    return _block_matrix(normal, coupling, tangential)


def _block_matrix(normal, coupling, tangential):
    """Symmetric matrices of three blocks: normal (n, 1, 1, lanes), the column below it (n, k, 1, lanes), tangential (n, k, k, lanes)."""
    top = jnp.concatenate([normal, jnp.swapaxes(coupling, 1, 2)], 2)
    return jnp.concatenate([top, jnp.concatenate([coupling, tangential], 2)], 1)


# ---- elliptic cones -----------------------------------------------------------------------------------------------------------


def _scaled(c: Cones, x):
    """Y_0 (n, 1, lanes), and the norm of the other components of Y."""
    y = c.weight * x
    square = tree_sum([y[:, k] ** 2 for k in range(1, c.width)])[:, None]
    positive = square > 0
    return y[:, :1], jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)


def _zone(mu, normal, tangential):
    """0 separated: Y is in the cone. 2 sticking: Y is in the polar cone. 1 sliding: elsewhere."""
    return jnp.where(normal >= mu * tangential, 0, jnp.where(mu * normal + tangential <= 0, 2, 1))


def _elliptic_force(c: Cones, x):
    mu = c.weight[:, :1]
    normal, tangential = _scaled(c, x)
    zone = _zone(mu, normal, tangential)
    y = c.weight * x
    normal_change = (mu * tangential - normal) / (1.0 + mu * mu)  # of Y_0, by the projection onto the cone
    ratio = normal_change * mu / jnp.where(zone == 1, tangential, 1.0)
    sliding = jnp.concatenate([normal_change, -ratio * y[:, 1:]], 1)
    change = jnp.where(zone == 0, 0.0, jnp.where(zone == 2, -y, sliding))  # of Y, by the projection
    return c.stiffness[:, None] * c.weight * change


def _elliptic_line(c: Cones, x, dx) -> Callable:
    (y, dy), mu = (c.weight * z for z in (x, dx)), c.weight[:, 0]
    normal, rate = y[:, 0], dy[:, 0]
    yy, y_dy, dy_dy = (tree_sum([a[:, k] * b[:, k] for k in range(1, c.width)]) for a, b in ((y, y), (y, dy), (dy, dy)))

    def line(alpha):
        n, square = normal + alpha * rate, jnp.maximum(yy + alpha * (2.0 * y_dy + alpha * dy_dy), 0.0)
        positive = square > 0
        t = jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)
        zone, safe = _zone(mu, n, t), jnp.where(positive, t, 1.0)
        t_rate = (y_dy + alpha * dy_dy) / safe
        gap, gap_rate = n - mu * t, rate - mu * t_rate
        sliding = gap * gap_rate, gap_rate**2 - gap * mu * (dy_dy - t_rate**2) / safe
        sticking = n * rate + y_dy + alpha * dy_dy, rate**2 + dy_dy
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
    outer = unit[:, :, None] * unit[:, None]
    eye = jnp.eye(n, dtype=x.dtype).reshape(n, n, *(1,) * (x.ndim - 2))
    side = (mu * (mu * tangential - normal) / tangential)[:, :, None]
    mu3 = mu[:, :, None]
    blocks = jnp.ones_like(side), -(mu * unit)[:, :, None], mu3 * mu3 * outer + side * (eye - outer)
    sliding = _block_matrix(*blocks) / (1.0 + mu3 * mu3)
    sticking = jnp.eye(n + 1, dtype=x.dtype).reshape(n + 1, n + 1, *(1,) * (x.ndim - 2))
    scale = c.stiffness[:, None, None] * c.weight[:, :, None] * c.weight[:, None]
    return scale * jnp.where(zone == 0, 0.0, jnp.where(zone == 2, sticking, sliding))
