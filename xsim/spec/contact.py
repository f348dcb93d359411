"""MuJoCo's parameters of soft constraints and contacts."""

from __future__ import annotations

from dataclasses import dataclass

from xsim.spec.source import Source

__all__ = ["PairSpec", "Soft", "SurfaceSpec"]


@dataclass(frozen=True)
class Soft:
    """Softness of a constraint, MuJoCo's parameters.

    ``solref``: time constant (s) and damping ratio, or minus stiffness and minus damping. ``solimp``: d0, dmax, width, midpoint, power.
    """

    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)


@dataclass(frozen=True)
class SurfaceSpec:
    """Contact parameters of a geom, MuJoCo's.

    ``contype``, ``conaffinity``: bit masks. ``condim``: 1, 3, 4 or 6. ``friction``: sliding, torsional (m), rolling (m). ``solmix``: weight
    in mixing. ``margin``, ``gap``: m. ``adhesion``: the force with which each contact can pull, N. ``group``: geoms of one group never
    collide with each other; None: in no group.
    """

    contype: int = 1
    conaffinity: int = 1
    condim: int = 3
    priority: int = 0
    friction: tuple[float, float, float] = (1.0, 0.005, 0.0001)
    solmix: float = 1.0
    soft: Soft = Soft()
    margin: float = 0.0
    gap: float = 0.0
    adhesion: float = 0.0
    group: int | None = None


@dataclass(frozen=True)
class PairSpec:
    """Two geoms that are tested for contact whatever their masks are; a parameter that is None is mixed from the geoms.

    ``geoms``: numbers among all geoms, world geoms first. ``friction`` (5,): sliding twice, torsional, rolling twice. ``friction_solref``:
    of the friction rows; (0, 0): that of the normal row.
    """

    geoms: tuple[int, int]
    name: str = ""
    condim: int | None = None
    friction: tuple[float, float, float, float, float] | None = None
    solref: tuple[float, float] | None = None
    solimp: tuple[float, float, float, float, float] | None = None
    friction_solref: tuple[float, float] = (0.0, 0.0)
    margin: float | None = None
    gap: float | None = None
    adhesion: float | None = None
    source: Source = Source()
