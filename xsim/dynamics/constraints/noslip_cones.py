"""Friction cones of contacts whose normal forces are known, see `xsim.dynamics.constraints.noslip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.linalg.assembly import Curvature
from xsim.dynamics.linalg.dense import every, fit, pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian, SparseJacobian


class NoSlipCones(NamedTuple):
    """Contacts of one dimension d whose normal forces are known. n: number of contacts.

    elliptic: whether the friction cone is elliptic, else pyramidal.
    J (n, d, nv, lanes): the contact Jacobian.
    offset (n, d, lanes): -aref.
    normal (n, lanes): normal forces.
    stiffness: of sticking friction, in scaled coordinates. Elliptic: (n, 1, lanes), else (n, d - 1, lanes).
    weight (n, d - 1, lanes): the factors of the scaled coordinates.
    bound: largest norm of the friction in scaled coordinates (n, 1, lanes) for elliptic contacts, else of each component (n, d - 1, lanes).
    pull (n, lanes): see `Cones`.
    """

    elliptic: bool
    J: Jacobian | SparseJacobian
    offset: object
    normal: object
    stiffness: object
    weight: object
    bound: object
    pull: object = None

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

    def _scaled(self, x):
        """The tangential part y of x in scaled coordinates (n, d - 1, lanes), and its size: its norm (elliptic), or its absolute values."""
        y = self.weight * x[:, 1:]
        if not self.elliptic:
            return y, jnp.abs(y)
        square = tree_sum([y[:, k] ** 2 for k in range(y.shape[1])])[:, None]
        positive = square > 0
        return y, jnp.where(positive, jnp.sqrt(jnp.where(positive, square, 1.0)), 0.0)

    def _secant_stiffness(self, size):
        """Whether friction sticks, and its force divided by y: the stiffness if it sticks, bound / size if it slips."""
        sticks = self.stiffness * size <= self.bound
        return sticks, jnp.where(sticks, self.stiffness, self.bound / jnp.where(sticks, 1.0, size))

    def force(self, x):
        """The forces f (n, d, lanes) at x (n, d, lanes)."""
        normal = jnp.broadcast_to(self.normal[:, None], x[:, :1].shape)
        if x.shape[1] == 1:
            return normal
        y, size = self._scaled(x)
        return jnp.concatenate([normal, -self.weight * self._secant_stiffness(size)[1] * y], 1)

    def line(self, x, dx) -> Callable:
        """See `Cones.line`."""
        normal_slope = -pairwise_sum(self.normal * dx[:, 0])
        if x.shape[1] == 1:
            return lambda alpha: (normal_slope, jnp.zeros_like(normal_slope))
        dy = self.weight * dx[:, 1:]

        def line(alpha):
            y, size = self._scaled(x + alpha * dx)
            sticks, secant = self._secant_stiffness(size)
            slope, curvature = secant * y * dy, jnp.where(sticks, secant * dy * dy, 0.0)
            if self.elliptic:
                radial = (tree_sum([(y * dy)[:, k] for k in range(y.shape[1])])[:, None] / jnp.where(sticks, 1.0, size)) ** 2
                curvature = jnp.where(sticks, curvature, secant * (dy * dy - radial / y.shape[1]))
            return normal_slope + _total(slope), _total(curvature)

        return line

    def zone(self, x):
        """0 if friction sticks. If it slips, 1 (elliptic), or the sign of the component of y (n, 1 or d - 1, lanes)."""
        if x.shape[1] == 1:
            return jnp.zeros_like(x, jnp.int32)
        y, size = self._scaled(x)
        sign = 1 if self.elliptic else jnp.where(y < 0, -1, 1)
        return jnp.where(self._secant_stiffness(size)[0], 0, sign)

    def is_quadratic(self, x, dx):
        """See `Cones.is_quadratic`."""
        zone = self.zone(x)
        same = zone == self.zone(x + dx)
        if self.elliptic and x.shape[1] > 1:
            same = same & ((zone != 1) | (self.bound <= 0))
        return every(same, same.ndim - x.ndim + 2)

    def hessian(self, x):
        """The second derivatives of P (n, d, d, lanes)."""
        n, d = x.shape[:2]
        zero = jnp.zeros((n, 1, d, *x.shape[2:]), x.dtype)
        if d == 1:
            return zero
        y, size = self._scaled(x)
        sticks, secant = self._secant_stiffness(size)
        eye = jnp.eye(d - 1, dtype=x.dtype).reshape(d - 1, d - 1, *(1,) * (x.ndim - 2))
        slipping = jnp.zeros_like(eye)
        if self.elliptic:
            unit = y / jnp.where(sticks, 1.0, size)
            slipping = eye - unit[:, :, None] * unit[:, None]
        tangential = jnp.where(sticks[:, :, None], eye, slipping) * secant[:, :, None]
        tangential = tangential * self.weight[:, :, None] * self.weight[:, None]
        return jnp.concatenate([zero, jnp.concatenate([jnp.swapaxes(zero[:, :, 1:], 1, 2), tangential], 2)], 1)

    def curvature(self, x, count=None):
        """See `Cones.curvature`."""
        return self.J.curvature(self.hessian(x), count)

    def curvature_terms(self, x, count=None) -> list[Curvature]:
        """See `Potential.curvature_terms`."""
        return self.J.curvature_terms(self.hessian(x), count)

    def count(self):
        """See `Cones.count`. None: every contact can have a force."""
        return None

    def fitted(self, lanes: tuple[int, ...]) -> NoSlipCones:
        """See `Cones.fitted`."""
        return NoSlipCones(self.elliptic, self.J.fitted(lanes), *(None if x is None else fit(x, lanes) for x in self[2:]))


def _total(x):
    """The sum over contacts and directions (lanes)."""
    return pairwise_sum(x.reshape(-1, *x.shape[2:]))
