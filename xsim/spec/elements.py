"""Tendons, actuators and sensors."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from xsim.spec.contact import Soft
from xsim.spec.fields import zeros
from xsim.spec.source import Source

__all__ = ["ActuatorSpec", "History", "PassiveSpec", "SensorSpec", "TendonSpec", "WrapSpec"]


@dataclass(frozen=True)
class WrapSpec:
    """One piece of the path of a tendon.

    kind: ``"joint"`` (of a fixed tendon: ``item`` is a coordinate (body, index among its coordinates), ``value`` its coefficient),
    ``"site"`` (``item``: a number of ``ModelSpec.sites``), ``"geom"`` (``item``: number of a sphere or cylinder among all geoms, those of
    the world first; ``side``: a site), ``"pulley"`` (``value``: divisor).
    """

    kind: str
    item: int | tuple[int, int] = -1
    value: float = 1.0
    side: int | None = None


@dataclass(frozen=True)
class TendonSpec:
    """A tendon: ``"fixed"`` (a linear combination of coordinates) or ``"spatial"`` (the shortest path through ``path``).

    ``stiffness`` N/m, ``damping`` N s/m, ``friction``: dry, N. ``stiffness_poly``, ``damping_poly``: two coefficients of higher order each,
    see `xsim.dynamics.tree.polynomials`. ``armature``: kg, only without geoms in the path. ``spring_length``: (lower, upper) rest length,
    m; None: the length where the joints' springs are at rest. ``range``: limits of the length. ``force_range``: bounds of the sum of the
    actuator forces, N. ``spring_yield``: extension beyond which the spring yields, m, see `xsim.dynamics.forces.plasticity`. None: none.
    """

    kind: str
    name: str = ""
    path: tuple[WrapSpec, ...] = ()
    stiffness: float = 0.0
    damping: float = 0.0
    friction: float = 0.0
    armature: float | None = None
    stiffness_poly: tuple[float, float] | None = None
    damping_poly: tuple[float, float] | None = None
    force_range: tuple[float, float] | None = None
    spring_yield: float | None = None
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
class History:
    """Past values of the controls of an actuator or of the readings of a sensor, one a time step.

    ``samples``: how many (>= 1). ``delay``: s; 0: none. ``interpolation``: ``"zoh"`` (zero-order hold), ``"linear"`` or ``"cubic"``.
    ``period``: time between two measurements of a sensor, s; 0: each time step. ``phase``: time of a first measurement, -period < phase
    <= 0.
    """

    samples: int
    delay: float = 0.0
    interpolation: str = "zoh"
    period: float = 0.0
    phase: float = 0.0


@dataclass(frozen=True)
class ActuatorSpec:
    """An actuator, MuJoCo's: force = gain(length, velocity) x (activation or control) + bias(length, velocity).

    * ``transmission``: ``"joint"``, ``"jointinparent"`` (``target``: (body, which of its joints)), ``"site"`` (a site number;
      ``reference``: the site it is relative to), ``"tendon"`` (number), ``"slidercrank"`` (``target``: crank site, ``reference``:
      slider site, ``crank_length`` m), ``"body"`` (number; adhesion). ``gear`` (6,).
    * ``dynamics``: ``"none"``, ``"integrator"``, ``"filter"``, ``"filterexact"``, ``"muscle"``; ``gain``: ``"fixed"``, ``"affine"``,
      ``"muscle"``; ``bias``: ``"none"``, ``"affine"``, ``"muscle"``; each with its parameters (``dynamics_params``, ...).
    * ``damp_ratio``: damping ratio of a position servo, from which its velocity gain follows with the inertia at the initial state.
    * ``ctrl_range``, ``force_range``, ``act_range``: None where nothing is clamped. ``act_early``: the force uses the next activation.
      ``length_range``: least and largest length (muscles), None where a simulation must find it.
    * ``controller``: None, ``"pid"`` or ``"dcmotor"``. Its controls are ``inputs`` with their ranges ``input_ranges``, its activations
      are ``memory``: some of the names in `xsim.dynamics.actuation.controllers` and ``dc_motors``. With ``dynamics`` other than
      ``"none"`` it has one more activation, which takes the place of the first input. Any other key of
      `xsim.registry.ACTUATOR_CONTROLLERS` is a controller too; ``gain_params`` are then the numbers of its config in order.
    * ``controller="orientation"`` with the gain and the bias ``"so3"``: a torque (three forces, in the axes of the child) towards an
      orientation of a ball joint, or of a site relative to ``reference``. ``inputs``: x, y, z, a rotation vector, or w, x, y, z, a
      quaternion of any length. ``memory``: x, y, z where an integral of the controls is the target, else (). ``gain_params[0]`` is kp,
      ``bias_params[1]`` -kp, ``bias_params[2]`` -kv. ``force_range``: 0 and the greatest norm of the torque.
    * ``armature``, ``damping``, ``damping_poly``: of the actuator (not of its target, where they act times ``gear[0]`` squared). Only for
      the transmissions ``"joint"``, ``"jointinparent"`` and ``"tendon"``; None: none.
    * ``history``: past controls and the delay after which a control acts, None: without.
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
    controller: str | None = None
    inputs: tuple[str, ...] = ()
    input_ranges: tuple[tuple[float, float] | None, ...] = ()
    memory: tuple[str, ...] = ()
    armature: float | None = None
    damping: float | None = None
    damping_poly: tuple[float, float] | None = None
    history: History | None = None
    group: int = 0
    user: tuple[float, ...] = ()
    source: Source = Source()

    @property
    def outputs(self) -> int:
        """Number of its forces: 1, of an orientation servo 3."""
        return 3 if self.controller == "orientation" else 1

    @property
    def widths(self) -> tuple[int, int]:
        """Numbers of controls and of activations."""
        if self.controller is None:
            return 1, int(self.dynamics != "none")
        return len(self.inputs), len(self.memory) + int(self.dynamics != "none")


@dataclass(frozen=True)
class PassiveSpec:
    """A passive force on bodies (numbers), by ``kind``, a key of `xsim.registry.PASSIVE_FORCES`. ``config``: its numbers by key, in the
    order of the kind."""

    kind: str
    name: str = ""
    bodies: tuple[int, ...] = ()
    config: dict[str, tuple[float, ...]] = field(default_factory=dict)
    source: Source = Source()


@dataclass(frozen=True)
class SensorSpec:
    """A sensor, MuJoCo's by ``kind`` (``"gyro"``, ``"framepos"``, ...).

    ``object``, ``reference``: (kind, number) of what it measures and of what the measurement is relative to; kinds ``"site"``, ``"joint"``
    (the number is (body, which of its joints)), ``"tendon"``, ``"actuator"``, ``"body"`` (inertial frame), ``"xbody"`` (body frame),
    ``"geom"``, ``"camera"``; the world body is number -1. ``camprojection``: the site, its reference the camera.
    ``insidesite``: the frame, its reference the site. ``contact``: the objects on both sides, also ``"subtree"`` (a body and its
    descendants), the first also ``"site"`` (contacts in its volume), None for any.
    ``cutoff``: 0: none. ``dim``: width. ``stage``: ``"position"``, ``"velocity"``, ``"acceleration"``.
    ``data`` of ``insidesite``: ``("enclosed",)`` for how far the object juts out of the site, () for whether its origin is inside.
    ``data``, ``reduce``: of ``contact``, the fields of each slot (``"found"``, ``"force"``, ...) and the reduction (``"none"``,
    ``"mindist"``, ``"maxforce"``, ``"netforce"``).
    ``config``: numbers of a plugin by the keys of its `xsim.dynamics.sensors.sensing.SensorKind.config`. They are no leaves of the model.
    ``points`` (n, 3), ``tangents`` (n, 2, 3): of ``tactile``, in the frame of its geom; without tangents it measures no speeds.
    ``history``: past readings, for a delay or a period between measurements, None: without.
    """

    kind: str
    name: str = ""
    object: tuple | None = None
    reference: tuple | None = None
    cutoff: float = 0.0
    noise: float = 0.0
    dim: int = 1
    stage: str = "position"
    data: tuple[str, ...] = ()
    reduce: str = "none"
    config: dict[str, tuple[float, ...]] = field(default_factory=dict)
    points: np.ndarray | None = None
    tangents: np.ndarray | None = None
    history: History | None = None
    user: tuple[float, ...] = ()
    source: Source = Source()
