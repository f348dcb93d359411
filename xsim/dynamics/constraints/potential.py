"""What the solver asks of a kind of soft constraint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from xsim.dynamics.linalg.assembly import Curvature


class Potential(Protocol):
    """A convex function P(x), x = J a + offset, of the generalized acceleration a (nv, *lanes). Its gradient is minus the force.

    P is piecewise quadratic, except in zones of elliptic cones. `Rows`, `Cones`, `ActiveCones` and `NoSlipCones` implement it. Positions x
    and forces f have the same shape: (rows, *lanes), or (contacts, condim, *lanes).
    """

    @property
    def offset(self) -> Any:
        """x at zero acceleration."""
        ...

    def j_times(self, a) -> Any:
        """J a."""
        ...

    def at(self, a) -> Any:
        """J a + offset."""
        ...

    def jt_times(self, f, count=None) -> Any:
        """J^T f (nv, *lanes). count: as from `count`; with it there is no reverse-mode derivative."""
        ...

    def jt_magnitudes(self, f, count=None) -> Any:
        """|J|^T |f| (nv, *lanes): the sums of the magnitudes of the terms of J^T f."""
        ...

    def force(self, x) -> Any:
        """The force f at x."""
        ...

    def line(self, x, dx) -> Callable:
        """A function step -> (slope, curvature) of P at x + step dx, each (*lanes)."""
        ...

    def is_quadratic(self, x, dx) -> Any:
        """Whether P is one quadratic function from x to x + dx (*lanes)."""
        ...

    def count(self) -> Any:
        """Numbers of rows or contacts after which none acts in any lane; None: all are evaluated."""
        ...

    def curvature(self, x, count=None) -> Any:
        """J^T P'' J (nv, nv, *lanes). count: see `jt_times`."""
        ...

    def curvature_terms(self, x, count=None) -> list[Curvature]:
        """The terms of `curvature`, in the program of one environment. count: see `jt_times`."""
        ...

    def fitted(self, lanes: tuple[int, ...]) -> Any:
        """The same with arrays of all lanes, or without that axis."""
        ...
