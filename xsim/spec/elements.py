"""What acts on a model and measures it: tendons, actuators, sensors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import Soft
from xsim.spec.fields import zeros
from xsim.spec.source import Source

__all__ = ["ActuatorSpec", "SensorSpec", "TendonSpec", "WrapSpec"]


@dataclass(frozen=True)
class WrapSpec:
    """One piece of a tendon. kind: ``"joint"`` (of a fixed tendon: coordinate (body, index among its coordinates) and coefficient),
    ``"site"`` (a number of ModelSpec.sites), ``"geom"`` (number of a sphere or cylinder among all geoms, world geoms first; ``side``: a
    site), ``"pulley"`` (divisor)."""

    kind: str
    item: int | tuple[int, int] = -1
    value: float = 1.0
    side: int | None = None


@dataclass(frozen=True)
class TendonSpec:
    """A tendon. ``kind``: ``"fixed"`` (a linear combination of coordinates) or ``"spatial"`` (the shortest way through ``path``).

    ``spring_length``: lengths between which its spring is at rest; None: its length where the joints' springs are at rest.
    ``range``: limits of its length, None: none. ``friction``: dry, N.
    """

    kind: str
    name: str = ""
    path: tuple[WrapSpec, ...] = ()
    stiffness: float = 0.0
    damping: float = 0.0
    friction: float = 0.0
    spring_length: tuple[float, float] | None = None
    range: tuple[float, float] | None = None
    margin: float = 0.0
    limit_soft: Soft = Soft()
    friction_soft: Soft = Soft()
    width: float = 0.003
    rgba: tuple[float, float, float, float] | None = None
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class ActuatorSpec:
    """MuJoCo's actuator: force = gain(length, velocity) x (activation or control) + bias(length, velocity).

    ``transmission``: ``"joint"``, ``"jointinparent"`` (``target``: (body, which of its joints)), ``"site"`` (a site number; ``reference``:
    the site it is relative to), ``"tendon"`` (number), ``"slidercrank"`` (``target``: crank site, ``reference``: slider site,
    ``crank_length`` m), ``"body"`` (number; adhesion). ``gear`` (6,).
    ``dynamics``: ``"none"``, ``"integrator"``, ``"filter"``, ``"filterexact"``, ``"muscle"``; ``gain``: ``"fixed"``, ``"affine"``,
    ``"muscle"``; ``bias``: ``"none"``, ``"affine"``, ``"muscle"``; each with its numbers (``dynamics_params``, ...), MuJoCo's.
    ``damp_ratio``: of a position servo, gives its velocity gain from the inertia at the start. Ranges are None where nothing is clamped.
    ``act_early``: the force uses the next activation. ``length_range``: least and largest length (muscles), None where it must be found.
    """

    name: str
    transmission: str
    target: int | tuple[int, int]
    reference: int | None = None
    gear: np.ndarray = field(default_factory=lambda: np.array([1.0, 0, 0, 0, 0, 0]))
    crank_length: float = 0.0
    dynamics: str = "none"
    gain: str = "fixed"
    bias: str = "none"
    dynamics_params: np.ndarray = field(default_factory=lambda: np.array([1.0, *[0.0] * 9]))
    gain_params: np.ndarray = field(default_factory=lambda: np.array([1.0, *[0.0] * 9]))
    bias_params: np.ndarray = zeros(10)
    damp_ratio: float | None = None
    ctrl_range: tuple[float, float] | None = None
    force_range: tuple[float, float] | None = None
    act_range: tuple[float, float] | None = None
    act_early: bool = False
    length_range: tuple[float, float] | None = None
    group: int = 0
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class SensorSpec:
    """A sensor, MuJoCo's by ``kind`` (``"gyro"``, ``"framepos"``, ...).

    ``object``, ``reference``: (kind, number) of what it measures and of what that is relative to; kinds ``"site"``, ``"joint"`` (the
    number is (body, which of its joints)), ``"tendon"``, ``"actuator"``, ``"body"`` (inertial frame), ``"xbody"`` (body frame),
    ``"geom"``, ``"camera"``; the world body is number -1. ``camprojection``: the site, its reference the camera.
    ``cutoff``: 0: none. ``dim``: width of a user sensor. ``stage``: ``"position"``, ``"velocity"``, ``"acceleration"``.
    """

    kind: str
    name: str = ""
    object: tuple | None = None
    reference: tuple | None = None
    cutoff: float = 0.0
    noise: float = 0.0
    dim: int = 1
    stage: str = "position"
    user: tuple[float, ...] = ()
    source: Source = Source()
