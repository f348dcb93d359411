"""ModelSpec: what a model file says, in one vocabulary for all formats.

Plain data: numpy float64 numbers, SI units, radians, no jax. A parser fills it (`xsim.io`), `xsim.build` reads it.

Conventions
-----------
* Quaternions are ``(w, x, y, z)`` and map child coordinates to parent coordinates.
* A body's ``pos``/``quat`` place its joint's frame in the frame of its parent body; the joint's ``pos``/``quat`` place the
  same frame, after the joint's motion, in the body's own frame. So X_parent_body = X(body) X_joint(q) X(joint)^-1.
* Geom sizes are half extents: box ``(hx, hy, hz)``, sphere ``(r,)``, capsule and cylinder ``(r, half length)`` along the
  local z axis (the capsule's half length without its caps), ellipsoid ``(rx, ry, rz)`` semi-axes, plane ``(hx, hy)``
  along z, axes ``(length,)`` (a marker without mass), cone ``(r, half length)`` along z with its apex at +z, mesh and heightmap
  ``(sx, sy, sz)`` (scale of a mesh, half extents of a height field; ``file`` names the data), polyline ``(height,)``
  (``points``: the outline, extruded from z = 0).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

__all__ = [
    "ACTUATORS", "BodySpec", "ConstraintSpec", "ForceSpec", "FunctionSpec", "GeomSpec", "InertialSpec", "JointSpec", "MarkerSpec",
    "ModelSpec", "OptionSpec", "ROWS", "Source",
]  # fmt: skip

ACTUATORS = ("passive", "force", "acceleration", "velocity", "locked", "servo")
ROWS = ("holonomic", "friction", "limit", "velocity")


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
    ``visual``: drawn; ``collision``: takes part in contact. ``file``: of a mesh or height field, as it was found; ``points``: of a
    polyline (n, 2) or an inline mesh. ``friction``: coefficients of the surface in the format's own order, ``surface``: its other
    numbers by name (``restitution``, ...), both as read.
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
    visual: bool = True
    collision: bool = True
    file: str | None = None
    points: np.ndarray | None = None
    friction: tuple[float, ...] | None = None
    surface: dict[str, float] = field(default_factory=dict)
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
    ``damper_axes`` of a free joint may be ``"parent"``: translation and rotation are both damped along the parent body's axes.
    ``spring_law`` of a ball: ``"rotation"`` (torque along the rotation vector from the reference to q) or ``"components"``
    (reference and configuration each as a rotation vector, torque by the difference of their components; DART's rule).

    ``pos``/``quat``: the joint frame in the body's own frame (module docstring). ``q0`` (nq), ``v0`` (nv): where a state starts;
    None: neutral, at rest. ``friction`` (nv): dry friction, N or N m; NaN where the file gives none.
    ``position_range``, ``velocity_range``, ``force_range``: (nv, 2) lower and upper bounds, infinite where there is none; positions
    of a ball are the components of its rotation vector. ``actuator``: one of ACTUATORS, what a command of this joint's coordinates
    is (force: a generalized force, clipped to ``force_range``; acceleration, velocity: prescribed motion; servo: a velocity reached
    by an impulse within ``force_range`` times dt; passive: none; locked: no motion).
    ``reversed``: the file's parent and child are this body and its parent here (the tree was hung up at the other end).
    """

    type: str
    name: str = ""
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    params: dict[str, np.ndarray] = field(default_factory=dict)
    damping: np.ndarray | None = None
    armature: np.ndarray | None = None
    stiffness: np.ndarray | None = None
    spring_ref: np.ndarray | None = None
    damper_axes: str = "joint"
    armature_axes: str = "joint"
    spring_law: str = "rotation"
    friction: np.ndarray | None = None
    position_range: np.ndarray | None = None
    velocity_range: np.ndarray | None = None
    force_range: np.ndarray | None = None
    actuator: str = "passive"
    q0: np.ndarray | None = None
    v0: np.ndarray | None = None
    reversed: bool = False
    source: Source = Source()


@dataclass(frozen=True)
class BodySpec:
    """A rigid body. ``parent`` is the index of the parent body, -1 for the world; parents come before children.

    ``inertial`` None means that the geoms give mass and inertia. ``pos_min``/``pos_max``: the box from which randomization
    draws ``pos`` (m, parent frame), None where the file gives none. ``pos_given`` is False where only the box was given.
    ``gravity``: factor of gravity on this body (0: it has no weight).
    ``velocity``: where the file says how the body starts, the velocity of its centre of mass and its angular velocity, world axes (6,);
    None: as the joint's ``v0`` says.
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
    gravity: float = 1.0
    velocity: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class FunctionSpec:
    """A function of time, or of whatever a table is over.

    kind and ``numbers``: ``"constant"`` (value,); ``"polynomial"`` (a0, a1, ...); ``"sine"`` (amplitude, frequency in Hz, phase in rad,
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
class ConstraintSpec:
    """A holonomic constraint on the tree.

    ``bodies``: the first and the second body (-1: the world); ``frames``: for each of them (pos (3,), quat (4,)) of a frame in it, equal
    as drawn but for distances. What each kind keeps, seen from the first frame:

    * ``"joint"``: what ``joint`` (type and numbers; the first body its parent) does not leave free; it closes a loop.
    * ``"point_on_line"``: the second origin on the z axis; ``"point_on_plane"``: in the x-y plane.
    * ``"distance"``: the distance of the origins, as drawn.
    * ``"revolute_spherical"``: the distance of the origins, and the first frame's z axis perpendicular to the line between them.
    * ``"revolute_translational"``: the first frame's z axis perpendicular to the second frame's x and y axes, the line between the
      origins perpendicular to the first z axis, and its component along the second frame's y axis as drawn.
    * ``"motor"``: the second frame moves along (``driven`` ``"slide"``) or about (``"hinge"``) the first frame's z axis by
      ``function`` (``mode`` ``"position"``) or with that speed (``"speed"``, from zero at time zero), or is free to (``""``, no
      ``function``); ``keeps``: what else it holds, some of x y z (translations) rx ry rz (rotations).
    * ``"motion"``: the same for the coordinate ``coordinates[0]``.
    * ``"mimic"``: coordinate ``coordinates[0]`` = ``multiplier`` (coordinate ``coordinates[1]`` - ``reference``) + ``offset``; a
      coordinate is (body whose joint it belongs to, index among the joint's coordinates).
    * ``"gearbox"``: with ``bodies`` = (parent, child, reference) and unit ``axes`` (2, 3) in the axes of the parent and of the
      child body: angle of the child about the second = -``multiplier`` times angle of the parent about the first, both relative to
      the reference body, zero as drawn.
    """

    kind: str
    name: str = ""
    bodies: tuple[int, ...] = ()
    frames: tuple = ()
    joint: JointSpec | None = None
    coordinates: tuple = ()
    axes: np.ndarray | None = None
    multiplier: float = 1.0
    offset: float = 0.0
    reference: float = 0.0
    driven: str = ""
    keeps: tuple[str, ...] = ()
    mode: str = ""
    function: FunctionSpec | None = None
    source: Source = Source()


@dataclass(frozen=True)
class ForceSpec:
    """A force between two bodies, or on one. ``bodies``, ``frames`` as in `ConstraintSpec`.

    * ``"spring"``: along the line between the origins, positive when it pushes them apart. With the length L and its rate:
      preload - K(L - rest) - C(rate) + stops. K is ``stiffness`` times, or the table ``spring``; C ``damping`` times, or the table
      ``damper`` (FunctionSpec); or instead of both preload - ``map``(rate, L): (rates (m,), lengths (n,), forces (m, n)), bilinear,
      continued linearly outside. ``stops``: (least, largest length) of the bump stops. ``rest``: length at rest.
    * ``"torsion"``: about the z axes, on the second body, by its angle relative to the first: the same law (no map, no stops).
    * ``"bushing"``: six ``stiffness`` and ``damping`` (x y z, then about x y z), in the first frame's axes, on the position and rotation
      vector of the second frame seen from the first.
    * ``"motor"``: ``function`` of time along (``driven`` ``"slide"``) or about (``"hinge"``) the first frame's z axis on the second body,
      at its origin; the opposite on the first at the same point.
    * ``"load"``: ``vector`` (3,) times ``function`` (None: 1) on one body; ``driven`` ``"slide"`` a force, ``"hinge"`` a moment;
      ``local``: whether the vector is along body axes and turns with the body, else along world axes. ``frames[0]``: the point in the
      body, or with ``at_world`` in the world, where it stays.
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


@dataclass(frozen=True)
class OptionSpec:
    """Simulation settings. ``gravity``: acceleration of free fall, m/s^2, world axes. ``dt``: step, s.

    ``regularization`` is added to the diagonal of the mass matrix by the solve (kg or kg m^2).
    ``rows``: the kinds of constraint rows that act, a subset of ROWS: holonomic constraints, dry friction, position limits,
    velocity limits.
    """

    gravity: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    dt: float = 0.001
    integrator: str = "implicit_damping"
    regularization: float = 0.0
    rows: tuple[str, ...] = ("holonomic", "friction", "limit")


@dataclass(frozen=True)
class ModelSpec:
    """A whole model: bodies (parents first), scenery fixed to the world, constraints, forces, options.

    ``frames``: further named frames of the file: (name, body index or -1, pos, quat in that body's frame).
    """

    name: str = ""
    format: str = ""
    bodies: tuple[BodySpec, ...] = ()
    world_geoms: tuple[GeomSpec, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    forces: tuple[ForceSpec, ...] = ()
    frames: tuple[tuple[str, int, np.ndarray, np.ndarray], ...] = ()
    option: OptionSpec = OptionSpec()
    source: Source = Source()

    def replace(self, **changes) -> ModelSpec:
        return replace(self, **changes)
