"""Forces between bodies, and functions of time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from xsim.spec.source import Source

__all__ = ["ForceSpec", "FunctionSpec"]


@dataclass(frozen=True)
class FunctionSpec:
    """A function of time, or of the argument of a table.

    ``kind`` and ``numbers``: ``"constant"`` (value,); ``"polynomial"`` (a0, a1, ...); ``"sine"`` (amplitude, frequency in Hz, phase in rad,
    shift): amplitude sin(2 pi frequency x + phase) + shift; ``"ramp"`` (intercept, slope); ``"table"`` (n, 2), ascending in the first
    column: linear between the points, constant outside; ``"external"`` (): a control called ``name``.
    ``repeat``: (start, width, shift): the value at x is that at start + fmod(x + shift, width), fmod with the sign of its first argument.
    """

    kind: str
    numbers: np.ndarray
    repeat: tuple[float, float, float] | None = None
    name: str = ""
    source: Source = Source()


@dataclass(frozen=True)
class ForceSpec:
    """A force between two bodies, or on one. ``bodies``, ``frames`` as in `ConstraintSpec`.

    * ``"spring"``: along the line between the origins, positive when it pushes them apart. With the length L and its rate:
      preload - K(L - rest) - C(rate) + stops. K is ``stiffness`` times, or the table ``spring``; C is ``damping`` times, or the table
      ``damper`` (FunctionSpec). Instead of both, preload - ``map``(rate, L): (rates (m,), lengths (n,), forces (m, n)), bilinear,
      extrapolated linearly. ``stops``: (least, largest length) of the bump stops. ``rest``: length at rest.
    * ``"torsion"``: about the z axes, on the second body, by its angle relative to the first: the same law, without map and stops.
    * ``"axial"``: along the first frame's z axis, on the second body at its origin, by the displacement of that origin along the axis: the
      same law, without map and stops; the opposite on the first at the same point.
    * ``"bushing"``: six ``stiffness`` and ``damping`` (x y z, then about x y z), in the first frame's axes, on the position and rotation
      vector of the second frame seen from the first.
    * ``"motor"``: ``function`` of time along (``driven`` ``"slide"``) or about (``"hinge"``) the first frame's z axis on the second body,
      at its origin; the opposite on the first at the same point.
    * ``"load"``: ``vector`` (3,) times ``function`` (None: 1) on one body; ``driven`` ``"slide"`` a force, ``"hinge"`` a moment.
      ``local``: the vector is along body axes and rotates with the body, else along world axes. ``frames[0]``: the point in the
      body, or with ``at_world`` a fixed point in the world.
    """

    kind: str
    name: str = ""
    bodies: tuple[int, ...] = ()
    frames: tuple = ()
    stiffness: np.ndarray | float | None = None
    damping: np.ndarray | float | None = None
    spring: FunctionSpec | None = None
    damper: FunctionSpec | None = None
    map: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    rest: float = 0.0
    preload: float = 0.0
    stops: tuple[float, float] | None = None
    driven: str = ""
    function: FunctionSpec | None = None
    vector: np.ndarray | None = None
    local: bool = True
    at_world: bool = False
    source: Source = Source()
