"""ModelSpec: what a model file says, in one vocabulary for all formats.

Plain data: numpy float64 numbers, SI units, radians, no jax. A parser fills it (`xsim.io`), `xsim.build` reads it.

Conventions
-----------
* Quaternions are ``(w, x, y, z)`` and map child coordinates to parent coordinates.
* A body's ``pos``/``quat`` place its *joint frame* (the body frame at q = 0) in the frame of its parent body.
* Geom sizes are half extents: box ``(hx, hy, hz)``, sphere ``(r,)``, capsule and cylinder ``(r, half length)`` along the
  local z axis (the capsule's half length without its caps), ellipsoid ``(rx, ry, rz)`` semi-axes, plane ``(hx, hy)``
  along z, axes ``(length,)`` (a marker without mass).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

__all__ = ["BodySpec", "GeomSpec", "InertialSpec", "JointSpec", "MarkerSpec", "ModelSpec", "OptionSpec", "Source"]


@dataclass(frozen=True)
class Source:
    """Where an element was read: file name and line, for messages that come after parsing."""

    file: str = "<string>"
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _zeros(n: int):
    return field(default_factory=lambda: np.zeros(n))


def _identity():
    return field(default_factory=lambda: np.array([1.0, 0.0, 0.0, 0.0]))


@dataclass(frozen=True)
class InertialSpec:
    """Explicit mass properties: mass (kg), centre of mass (m, body frame), inertia about it ``xx yy zz xy xz yz`` (kg m^2, body axes)."""

    mass: float
    com: np.ndarray = _zeros(3)
    inertia: np.ndarray = _zeros(6)


@dataclass(frozen=True)
class GeomSpec:
    """A shape on a body (or on the world): inertia, drawing and later contact.

    ``mass`` in kg, ``pos``/``quat`` of the shape's centre in the body frame, ``size`` in half extents (module docstring).
    ``rgba`` in 0..1 or None; ``color``/``edge_color`` keep the file's own words for writers.
    """

    shape: str
    size: np.ndarray
    mass: float = 0.0
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    name: str = ""
    rgba: tuple[float, float, float, float] | None = None
    edge_rgba: tuple[float, float, float, float] | None = None
    color: str | None = None
    edge_color: str | None = None
    source: Source = Source()


@dataclass(frozen=True)
class MarkerSpec:
    """An optical marker fixed to a body (x_xy ``omc``): no physics. ``pos`` in the body frame, m; None where the file has none."""

    name: str | None = None
    pos_marker: int | None = None
    pos: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class JointSpec:
    """The joint between a body and its parent.

    ``type`` names an entry of the joint registry (`xsim.joints`). The vectors are in xsim's coordinates (registry order):
    ``damping`` N s/m or N m s/rad, ``armature`` kg or kg m^2, ``stiffness`` N/m or N m/rad: (nv,); ``spring_ref``: (nq,).
    None means zeros (the neutral configuration for ``spring_ref``).

    ``params`` holds the numbers of the type (unit axes, screw pitch, ...) by name; a parameter left out is the type's
    own default or drawn by the type's rule.
    ``damper_axes`` and ``armature_axes`` say along which axes the translations of a joint that translates before it rotates
    (free, cor, planar) are damped and loaded: ``"joint"`` (the fixed joint frame) or ``"body"`` (they turn with the body).
    """

    type: str
    name: str = ""
    params: dict[str, np.ndarray] = field(default_factory=dict)
    damping: np.ndarray | None = None
    armature: np.ndarray | None = None
    stiffness: np.ndarray | None = None
    spring_ref: np.ndarray | None = None
    damper_axes: str = "joint"
    armature_axes: str = "joint"
    source: Source = Source()


@dataclass(frozen=True)
class BodySpec:
    """A rigid body. ``parent`` is the index of the parent body, -1 for the world; parents come before children.

    ``inertial`` None means that the geoms give mass and inertia. ``pos_min``/``pos_max``: the box from which randomization
    draws ``pos`` (m, parent frame), None where the file gives none. ``pos_given`` is False where only the box was given.
    """

    name: str
    parent: int
    joint: JointSpec
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    geoms: tuple[GeomSpec, ...] = ()
    inertial: InertialSpec | None = None
    pos_min: np.ndarray | None = None
    pos_max: np.ndarray | None = None
    pos_given: bool = True
    markers: tuple[MarkerSpec, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class OptionSpec:
    """Simulation settings. ``gravity``: acceleration of free fall, m/s^2, world axes. ``dt``: step, s.

    ``regularization`` is added to the diagonal of the mass matrix by the solve (kg or kg m^2).
    """

    gravity: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    dt: float = 0.001
    integrator: str = "implicit_damping"
    regularization: float = 0.0


@dataclass(frozen=True)
class ModelSpec:
    """A whole model: bodies in depth-first file order, scenery fixed to the world, options."""

    name: str = ""
    format: str = ""
    bodies: tuple[BodySpec, ...] = ()
    world_geoms: tuple[GeomSpec, ...] = ()
    option: OptionSpec = OptionSpec()
    source: Source = Source()

    def replace(self, **changes) -> ModelSpec:
        return replace(self, **changes)
