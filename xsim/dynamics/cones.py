"""Forces of contacts: a normal force that only pushes, and friction within a cone.

A contact of dimension d has the numbers x = J a + offset along its frame: normal, two tangents, turns about the normal and the tangents.
Its force f = -dP/dx (x), of a convex potential P, stays within the cone of friction. Pyramidal: edges y = x_0 +- mu_j x_j push with
max(0, -D y) each. Elliptic: with Y = (mu x_0, mu_1 x_1, ...), mu = mu_1 / sqrt(impratio), P = c/2 times the squared distance of Y from the
cone Y_0 >= mu |Y_1, ...|. Source: MuJoCo's documentation, Computation, friction cones.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from .dense import added, fit


class Cones(NamedTuple):
    """Contacts of one dimension d. J (nv, n, d, lanes). offset (n, d, lanes). stiffness (n, lanes): D of pyramids and of contacts without
    friction, c of elliptic cones; 0 where there is no contact. weight (n, d, lanes): 1 and the coefficients of friction of a pyramid, of
    an elliptic cone mu and those."""

    elliptic: bool
    J: object
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

    def along(self, a):
        """J a (n, d, lanes) of a (nv, lanes)."""
        return added([j * x for j, x in zip(self.J, a, strict=True)])

    def pulled(self, f):
        """J^T f (nv, lanes)."""
        product = self.J * f[None]
        return added([added([product[:, i, k] for k in range(self.width)]) for i in range(len(f))])

    def force(self, x):
        """f (n, d, lanes)."""
        if self.curved:
            return _elliptic_force(self, x)
        low = jnp.minimum(_edges(self, x), 0.0)
        return -self.stiffness[:, None] * _from_edges(self, low)

    def bend(self, x, dx):
        """dx^T P'' dx (lanes)."""
        second, d = self.hessian(x), self.width
        terms = [second[i][k] * dx[:, i] * dx[:, k] for i in range(d) for k in range(d) if not _none(second[i][k])]
        return added(list(added(terms)))

    def fitted(self, lanes: tuple[int, ...]) -> Cones:
        """With arrays of all lanes, or without that axis."""
        return Cones(self.elliptic, *(fit(x, lanes) for x in self[1:]))

    def zone(self, x):
        """What makes P quadratic or flat (n, k, lanes): edges that push; of elliptic cones 0 free, 1 sliding, 2 sticking."""
        if self.curved:
            normal, tangential = _scaled(self, x)
            return _zone(self.weight[:, :1], normal, tangential)
        return (_edges(self, x) < 0).astype(jnp.int32)

    def bent(self, x):
        """Whether P is not quadratic in some contact's zone (lanes)."""
        if not self.curved:
            return jnp.zeros(x.shape[2:], bool)
        return ((self.zone(x) == 1) & (self.stiffness[:, None] > 0)).any((0, 1))

    def hessian(self, x) -> list[list]:
        """Second derivatives of P, d x d of (n, lanes)."""
        return _elliptic_hessian(self, x) if self.curved else _pyramid_hessian(self, x)

    def curvature(self, x):
        """J^T P'' J (nv, nv, lanes)."""
        second, d = self.hessian(x), self.width
        rows = [self.J[:, :, k] for k in range(d)]
        pushed = [added([second[i][k][None] * rows[k] for k in range(d) if not _none(second[i][k])]) for i in range(d)]
        out = [rows[k][:, None] * pushed[k][None] for k in range(d)]
        return added([added([x[:, :, i] for x in out]) for i in range(len(x))])


def _none(x) -> bool:
    return isinstance(x, float) and x == 0.0


# ---- pyramids -----------------------------------------------------------------------------------------------------------------


def _edges(c: Cones, x):
    """x_0 + mu_j x_j, then x_0 - mu_j x_j (n, 2 (d - 1), lanes); of a contact without friction x_0."""
    if c.width == 1:
        return x
    slid = c.weight[:, 1:] * x[:, 1:]
    return jnp.concatenate([x[:, :1] + slid, x[:, :1] - slid], 1)


def _from_edges(c: Cones, y):
    """The transpose of `_edges`."""
    if c.width == 1:
        return y
    n = c.width - 1
    plus, minus = y[:, :n], y[:, n:]
    normal = added([y[:, k] for k in range(2 * n)])
    return jnp.concatenate([normal[:, None], c.weight[:, 1:] * (plus - minus)], 1)


def _pyramid_hessian(c: Cones, x) -> list[list]:
    on = jnp.where(_edges(c, x) < 0, 1.0, 0.0) * c.stiffness[:, None]
    d, n = c.width, c.width - 1
    out: list[list] = [[0.0] * d for _ in range(d)]
    out[0][0] = added([on[:, k] for k in range(max(2 * n, 1))])
    for k in range(n):
        mu = c.weight[:, k + 1]
        out[0][k + 1] = out[k + 1][0] = mu * (on[:, k] - on[:, n + k])
        out[k + 1][k + 1] = mu * mu * (on[:, k] + on[:, n + k])
    return out


# ---- elliptic cones -----------------------------------------------------------------------------------------------------------


def _scaled(c: Cones, x):
    """Y_0 (n, 1, lanes) and the norm of the rest."""
    y = c.weight * x
    square = added([y[:, k] ** 2 for k in range(1, c.width)])[:, None]
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


def _elliptic_hessian(c: Cones, x) -> list[list]:
    mu = c.weight[:, :1]
    normal, tangential = _scaled(c, x)
    zone = _zone(mu, normal, tangential)[:, 0]
    mu, normal, tangential = mu[:, 0], normal[:, 0], jnp.where(zone == 1, tangential[:, 0], 1.0)
    y, d = c.weight * x, c.width
    unit = [y[:, k] / tangential for k in range(1, d)]
    side = mu * (mu * tangential - normal) / tangential

    def second(i: int, k: int):
        """Of P / c by Y."""
        same = 1.0 if i == k else 0.0
        if i == 0:
            sliding = 1.0 if k == 0 else -mu * unit[k - 1]
        else:
            both = unit[i - 1] * unit[k - 1]
            sliding = mu * mu * both + side * (same - both)
        return jnp.where(zone == 0, 0.0, jnp.where(zone == 2, same, sliding / (1.0 + mu * mu)))

    out: list[list] = [[0.0] * d for _ in range(d)]
    for i in range(d):
        for k in range(i, d):
            out[i][k] = out[k][i] = c.stiffness * c.weight[:, i] * c.weight[:, k] * second(i, k)
    return out
