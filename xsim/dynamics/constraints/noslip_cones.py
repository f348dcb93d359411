"""Friction cones of contacts whose normal forces are known, see `xsim.dynamics.constraints.noslip`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.linalg.dense import fit, pairwise_sum, tree_sum
from xsim.dynamics.linalg.jacobian import Jacobian


class NoSlipCones(NamedTuple):
    """Contacts of one dimension d whose normal forces are known. J (n, d, nv, lanes), offset (n, d, lanes), normal (n, lanes). stiffness:
    of friction where it sticks, of elliptic contacts (n, 1, lanes) in coordinates scaled by weight (n, d - 1, lanes), else (n, d - 1,
    lanes). bound: of friction, of elliptic contacts its norm in those coordinates (n, 1, lanes), else (n, d - 1, lanes)."""

    elliptic: bool
    J: Jacobian
    offset: object
    normal: object
    stiffness: object
    weight: object
    bound: object

    def j_times(self, a):
        """J a (n, d, lanes) of a (nv, lanes)."""
        return self.J.j_times(a)

    def jt_times(self, f):
        """J^T f (nv, lanes)."""
        return self.J.jt_times(f)

    def _scaled(self, x):
        """Tangential x in scaled coordinates (n, d - 1, lanes), and what is compared with the bound: its norm, or its parts."""
        y = self.weight * x[:, 1:]
        if not self.elliptic:
            return y, jnp.abs(y)
        square = tree_sum([y[:, k] ** 2 for k in range(y.shape[1])])[:, None]
        some = square > 0
        return y, jnp.where(some, jnp.sqrt(jnp.where(some, square, 1.0)), 0.0)

    def _sizes(self, size):
        """Whether friction sticks, and its force per y: below its bound the stiffness, beyond it bound / size."""
        sticks = self.stiffness * size <= self.bound
        return sticks, jnp.where(sticks, self.stiffness, self.bound / jnp.where(sticks, 1.0, size))

    def force(self, x):
        """f (n, d, lanes)."""
        normal = jnp.broadcast_to(self.normal[:, None], x[:, :1].shape)
        if x.shape[1] == 1:
            return normal
        y, size = self._scaled(x)
        return jnp.concatenate([normal, -self.weight * self._sizes(size)[1] * y], 1)

    def line(self, x, dx) -> Callable:
        """See `Cones.line`."""
        push = -pairwise_sum(self.normal * dx[:, 0])
        if x.shape[1] == 1:
            return lambda reach: (push, jnp.zeros_like(push))
        dy = self.weight * dx[:, 1:]

        def line(reach):
            y, size = self._scaled(x + reach * dx)
            sticks, rate = self._sizes(size)
            slope, bend = rate * y * dy, jnp.where(sticks, rate * dy * dy, 0.0)
            if self.elliptic:
                across = (tree_sum([(y * dy)[:, k] for k in range(y.shape[1])])[:, None] / jnp.where(sticks, 1.0, size)) ** 2
                bend = jnp.where(sticks, bend, rate * (dy * dy - across / y.shape[1]))
            return push + _total(slope), _total(bend)

        return line

    def zone(self, x):
        """Where friction slips, and which way along a tangent of its own (n, 1 or d - 1, lanes)."""
        if x.shape[1] == 1:
            return jnp.zeros_like(x, jnp.int32)
        y, size = self._scaled(x)
        way = 1 if self.elliptic else jnp.where(y < 0, -1, 1)
        return jnp.where(self._sizes(size)[0], 0, way)

    def is_nonquadratic(self, x):
        """See `Cones.is_nonquadratic`."""
        if not self.elliptic or x.shape[1] == 1:
            return jnp.zeros(x.shape[2:], bool)
        return ((self.zone(x) == 1) & (self.bound > 0)).any((0, 1))

    def hessian(self, x):
        """Second derivatives of P (n, d, d, lanes)."""
        n, d = x.shape[:2]
        zero = jnp.zeros((n, 1, d, *x.shape[2:]), x.dtype)
        if d == 1:
            return zero
        y, size = self._scaled(x)
        sticks, rate = self._sizes(size)
        eye = jnp.eye(d - 1, dtype=x.dtype).reshape(d - 1, d - 1, *(1,) * (x.ndim - 2))
        slips = jnp.zeros_like(eye)
        if self.elliptic:
            unit = y / jnp.where(sticks, 1.0, size)
            slips = eye - unit[:, :, None] * unit[:, None]
        own = jnp.where(sticks[:, :, None], eye, slips) * rate[:, :, None]
        own = own * self.weight[:, :, None] * self.weight[:, None]
        return jnp.concatenate([zero, jnp.concatenate([jnp.swapaxes(zero[:, :, 1:], 1, 2), own], 2)], 1)

    def curvature(self, x, count=None):
        """See `Cones.curvature`."""
        return self.J.curvature(self.hessian(x), count)

    def count(self):
        """See `Cones.count`: all of them."""
        return None

    def fitted(self, lanes: tuple[int, ...]) -> NoSlipCones:
        """See `Cones.fitted`."""
        return NoSlipCones(self.elliptic, self.J.fitted(lanes), *(fit(x, lanes) for x in self[2:]))


def _total(x):
    return pairwise_sum(x.reshape(-1, *x.shape[2:]))
