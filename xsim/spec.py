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

import warnings
from dataclasses import dataclass, field, replace

import numpy as np

__all__ = [
    "ACTUATORS", "ActuatorSpec", "BodySpec", "CameraSpec", "ConstraintSpec", "EqualitySpec", "FlexSpec", "ForceSpec", "FunctionSpec",
    "GeomSpec", "HfieldSpec", "InertialSpec", "JointSpec", "KeySpec", "LightSpec", "MarkerSpec", "MeshSpec", "ModelSpec", "OptionSpec",
    "PairSpec", "ROWS", "SensorSpec", "SiteSpec", "Soft", "Source", "SurfaceSpec", "TendonSpec", "WrapSpec",
]  # fmt: skip

ACTUATORS = ("passive", "force", "acceleration", "velocity", "locked", "servo")
ROWS = ("holonomic", "friction", "limit", "velocity", "soft", "contact")
ALL = 2**31 - 1
"""A mask with every bit."""


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
class Soft:
    """How soft a constraint is: MuJoCo's solref (time constant s and damping ratio, or minus stiffness and minus damping) and solimp
    (d0, dmax, width, midpoint, power)."""

    solref: tuple[float, float] = (0.02, 1.0)
    solimp: tuple[float, float, float, float, float] = (0.9, 0.95, 0.001, 0.5, 2.0)


@dataclass(frozen=True)
class SurfaceSpec:
    """How a geom meets others, MuJoCo's numbers: contype and conaffinity bit masks, condim (1, 3, 4 or 6), priority, friction (slide,
    torsion m, roll m), solmix (weight in mixing), margin and gap (m). group: geoms of one group never touch each other, None: of none."""

    contype: int = 1
    conaffinity: int = 1
    condim: int = 3
    priority: int = 0
    friction: tuple[float, float, float] = (1.0, 0.005, 0.0001)
    solmix: float = 1.0
    soft: Soft = Soft()
    margin: float = 0.0
    gap: float = 0.0
    group: int | None = None


@dataclass(frozen=True)
class GeomSpec:
    """A shape on a body (or on the world): inertia, drawing and later contact.

    ``mass`` in kg, ``pos``/``quat`` of the shape's centre in the body frame, ``size`` in half extents (module docstring).
    ``rgba`` in 0..1 or None; ``color``/``edge_color`` keep the file's own words for writers.
    ``visual``: drawn; ``collision``: takes part in contact. ``file``: of a mesh or height field, as it was found; ``points``: of a
    polyline (n, 2) or an inline mesh. ``friction``: coefficients of the surface in the format's own order, ``surface``: its other
    numbers by name (``restitution``, ...), both as read.

    ``density``: kg/m^3 (of a ``shell`` kg/m^2), gives the mass in place of ``mass``. ``shell``: the mass is spread over the surface.
    ``asset``: the mesh or height field of a mesh or hfield geom, a number of ``ModelSpec.meshes`` or ``hfields``; ``pos``/``quat`` then
    place its principal frame. ``contact``: its numbers under MuJoCo's contact model. ``fluid``: None for the inertia-box
    model, or the five coefficients of the ellipsoid model (blunt drag, slender drag, angular drag, Kutta lift, Magnus lift).
    ``massless``: it gives no inertia whatever its mass says (MuJoCo: outside inertiagrouprange, or a plane, height field).
    ``group``, ``material`` (name), ``user``: for drawing and users.
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
    density: float | None = None
    shell: bool = False
    asset: int | None = None
    contact: SurfaceSpec | None = None
    fluid: tuple[float, float, float, float, float] | None = None
    massless: bool = False
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
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

    ``anchored``: the body's ``pos``/``quat`` place the body itself, as it is with its joints at rest, and the joint frame is where
    ``pos``/``quat`` put it in the body (MuJoCo): X_parent_body = X(body) X(joint) X_joint(q) X(joint)^-1. A body with several joints has
    only such ones; they act in order, each in the frame that the earlier ones left.
    ``ref``: position of a hinge or slide in which the body is as drawn. ``spring_damper``: (time constant s, damping ratio) that
    give stiffness and damping, from the inertia at the start. ``margin``: m or rad, ``limit_soft``, ``friction_soft``: how soft limits and
    dry friction are; None: they are kept by impulses. ``angle_limit``: largest rotation of a ball, rad. ``actuator_force_range``: bounds of
    the sum of what all actuators do on the joint, N or N m. ``actuator_gravcomp``: gravity compensation counts as an actuator's force.
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
    anchored: bool = False
    ref: float = 0.0
    spring_damper: tuple[float, float] | None = None
    margin: float = 0.0
    limit_soft: Soft | None = None
    friction_soft: Soft | None = None
    angle_limit: float | None = None
    actuator_force_range: tuple[float, float] | None = None
    actuator_gravcomp: bool = False
    group: int = 0
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class BodySpec:
    """A rigid body. ``parent`` is the index of the parent body, -1 for the world; parents come before children.

    ``joints``: what it moves on, in order (one JointSpec alone stands for a tuple of it); none or a ``"fixed"`` one: welded to its parent.

    ``inertial`` None means that the geoms give mass and inertia. ``pos_min``/``pos_max``: the box from which randomization
    draws ``pos`` (m, parent frame), None where the file gives none. ``pos_given`` is False where only the box was given.
    ``gravity``: factor of gravity on this body (0: it has no weight).
    ``velocity``: where the file says how the body starts, the velocity of its centre of mass and its angular velocity, world axes (6,);
    None: as the joint's ``v0`` says. ``mocap``: its pose is part of the state. ``gravcomp``: factor of the weight that is taken back.
    ``principal``: orientation (4,) of the principal axes of inertia in the body, None where nothing asks for it.
    """

    name: str
    parent: int
    joints: tuple[JointSpec, ...] | JointSpec = ()
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
    mocap: bool = False
    gravcomp: float = 0.0
    principal: np.ndarray | None = None
    user: tuple[float, ...] = ()
    source: Source = Source()

    def __post_init__(self):
        if isinstance(self.joints, JointSpec):
            object.__setattr__(self, "joints", (self.joints,))

    @property
    def joint(self) -> JointSpec:
        """Its joint, of a body with one."""
        assert isinstance(self.joints, tuple)
        (joint,) = self.joints
        return joint


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
class SiteSpec:
    """A named place on a body (-1: the world): ``pos``/``quat`` in the body frame, a shape and ``size`` as of a geom (touch sensors)."""

    name: str
    body: int
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    shape: str = "sphere"
    size: np.ndarray = field(default_factory=lambda: np.array([0.005]))
    rgba: tuple[float, float, float, float] | None = None
    group: int = 0
    material: str = ""
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class CameraSpec:
    """A camera on a body. ``mode``: ``"fixed"``, ``"track"`` (keeps its world orientation and its world offset from the body as drawn),
    ``"trackcom"`` (the same from the centre of mass of the body's subtree), ``"targetbody"``, ``"targetbodycom"`` (looks at body
    ``target``, at the centre of mass of its subtree). It looks along -z, +y is up.

    ``fovy``: vertical field of view, rad. ``resolution``: pixels. ``intrinsic``: focal length x, y and principal point x, y in m, with
    ``sensor_size`` (m); zeros where the file gives only fovy. ``orthographic``: fovy is a length in m.
    """

    name: str
    body: int
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    mode: str = "fixed"
    target: int | None = None
    fovy: float = np.pi / 4
    ipd: float = 0.068
    resolution: tuple[int, int] = (1, 1)
    intrinsic: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    sensor_size: tuple[float, float] = (0.0, 0.0)
    orthographic: bool = False
    user: tuple[float, ...] = ()
    source: Source = Source()


@dataclass(frozen=True)
class LightSpec:
    """A light on a body: ``pos`` and ``dir`` in the body frame, modes and ``target`` as of a camera. ``drawing``: the rest, by the
    file's own names (directional, castshadow, diffuse, ...)."""

    name: str
    body: int
    pos: np.ndarray = _zeros(3)
    dir: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -1.0]))
    mode: str = "fixed"
    target: int | None = None
    drawing: dict = field(default_factory=dict)
    source: Source = Source()


@dataclass(frozen=True)
class MeshSpec:
    """Triangles in their own principal frame: ``vertices`` (n, 3) m, ``faces`` (m, 3) vertex numbers, counter-clockwise seen from outside.

    ``volume`` (m^3), ``area`` (m^2), ``moments`` (3,): principal moments of inertia per unit mass (m^2) of the solid under the mesh's rule.
    ``shell``: it weighs as a surface, ``volume`` is its area. ``shell_com`` (3,) m and, about it, ``shell_inertia`` (6,) xx yy zz xy xz yz
    per unit mass (m^2): of the surface, in the mesh's frame. ``pos``/``quat``: that frame in the file's coordinates (after scale, refpos
    and refquat). ``hull`` (k, 3): the faces of the convex hull, None for a flat mesh.
    """

    name: str
    vertices: np.ndarray
    faces: np.ndarray
    volume: float = 0.0
    area: float = 0.0
    moments: np.ndarray = _zeros(3)
    shell: bool = False
    shell_com: np.ndarray = _zeros(3)
    shell_inertia: np.ndarray = _zeros(6)
    pos: np.ndarray = _zeros(3)
    quat: np.ndarray = _identity()
    hull: np.ndarray | None = None
    file: str | None = None
    source: Source = Source()


@dataclass(frozen=True)
class HfieldSpec:
    """A height field: ``heights`` (rows along y, columns along x) from 0 to 1, ``size``: half x, half y, height of a 1, depth of the base
    (m)."""

    name: str
    heights: np.ndarray
    size: np.ndarray
    file: str | None = None
    source: Source = Source()


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
    bias_params: np.ndarray = _zeros(10)
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


@dataclass(frozen=True)
class EqualitySpec:
    """A soft equality (MuJoCo). ``kind``: ``"connect"``, ``"weld"`` (``items``: two bodies, -1 the world, or with ``sites`` two sites),
    ``"joint"`` (coordinates (body, index); one or two), ``"tendon"`` (numbers; one or two), ``"flex"`` (a flex).

    ``anchor``: point in the first body (connect) or in the second (weld). ``relpose`` (7,): where the anchor of a weld is held in the
    first body, and the orientation of the second body there; None: as at the start. ``polycoef`` (5,). ``torque_scale``: of a weld.
    ``active``: whether it acts at the start.
    """

    kind: str
    name: str = ""
    items: tuple = ()
    sites: bool = False
    anchor: np.ndarray = _zeros(3)
    relpose: np.ndarray | None = None
    polycoef: np.ndarray = field(default_factory=lambda: np.array([0.0, 1, 0, 0, 0]))
    torque_scale: float = 1.0
    active: bool = True
    soft: Soft = Soft()
    source: Source = Source()


@dataclass(frozen=True)
class PairSpec:
    """Two geoms (numbers among all geoms, world geoms first) that are tested for contact whatever the masks say. None: mixed from the
    geoms. ``friction`` (5,): two slides, torsion, two rolls. ``friction_solref``: of the tangential rows, (0, 0): that of the normal."""

    geoms: tuple[int, int]
    name: str = ""
    condim: int | None = None
    friction: tuple[float, float, float, float, float] | None = None
    solref: tuple[float, float] | None = None
    solimp: tuple[float, float, float, float, float] | None = None
    friction_solref: tuple[float, float] = (0.0, 0.0)
    margin: float | None = None
    gap: float | None = None
    source: Source = Source()


@dataclass(frozen=True)
class KeySpec:
    """A named state: time, and q, v, act, ctrl, mocap poses; None: as at the start."""

    name: str = ""
    time: float = 0.0
    q: np.ndarray | None = None
    v: np.ndarray | None = None
    act: np.ndarray | None = None
    ctrl: np.ndarray | None = None
    mocap_pos: np.ndarray | None = None
    mocap_quat: np.ndarray | None = None
    source: Source = Source()


@dataclass(frozen=True)
class FlexSpec:
    """A deformable: ``elements`` (n, dim + 1) of points, each point ``pos`` (m) in the frame of body ``bodies[i]`` (-1: the world).
    ``numbers``: elasticity, edge and contact numbers by the file's own names (``young``, ``edge_stiffness``, ...).

    ``edges`` (m, 2): pairs of points that elements join; ``lengths`` (m,): theirs where the bodies are drawn, m. ``corners``
    (n, dim (dim + 1) / 2): the edges of each element, those between its points 01; 12, 20, 01; or 01, 12, 20, 23, 03, 13."""

    name: str
    dim: int
    bodies: tuple[int, ...]
    pos: np.ndarray
    elements: np.ndarray
    edges: np.ndarray = field(default_factory=lambda: np.zeros((0, 2), int))
    lengths: np.ndarray = field(default_factory=lambda: np.zeros(0))
    corners: np.ndarray = field(default_factory=lambda: np.zeros((0, 1), int))
    radius: float = 0.005
    numbers: dict = field(default_factory=dict)
    source: Source = Source()


@dataclass(frozen=True)
class OptionSpec:
    """Simulation settings. ``gravity``: acceleration of free fall, m/s^2, world axes. ``dt``: step, s.

    ``regularization`` is added to the diagonal of the mass matrix by the solve (kg or kg m^2).
    ``rows``: the kinds of constraint rows that act, a subset of ROWS: holonomic constraints, dry friction, position limits,
    velocity limits, what is kept softly (equalities, limits and dry friction under MuJoCo's model), contacts.

    ``density`` (kg/m^3), ``viscosity`` (Pa s), ``wind`` (m/s): of the medium around. ``magnetic``: field, world axes.
    ``disabled``: parts that are switched off, MuJoCo's names of flags (``"actuation"``, ``"passive"``, ...). ``actuator_groups_off``.
    ``solver``: the numbers of MuJoCo's solver and contacts by the file's own names (``cone``, ``iterations``, ``impratio``, ...).
    """

    gravity: np.ndarray = field(default_factory=lambda: np.array([0.0, 0.0, -9.81]))
    dt: float = 0.001
    integrator: str = "implicit_damping"
    regularization: float = 0.0
    rows: tuple[str, ...] = ("holonomic", "friction", "limit")
    density: float = 0.0
    viscosity: float = 0.0
    wind: np.ndarray = _zeros(3)
    magnetic: np.ndarray = field(default_factory=lambda: np.array([0.0, -0.5, 0.0]))
    disabled: tuple[str, ...] = ()
    actuator_groups_off: tuple[int, ...] = ()
    solver: dict = field(default_factory=dict)


@dataclass(frozen=True)
class ModelSpec:
    """A whole model: bodies (parents first), scenery fixed to the world, constraints, forces, options.

    ``frames``: further named frames of the file: (name, body index or -1, pos, quat in that body's frame).
    ``sites``, ``cameras``, ``lights``: body by body, those of the world first. ``exclude``: pairs of bodies that never touch.
    ``rules``: the release whose compile and contact rules hold (MuJoCo: ``"3.2"`` or ``"4.0"``). ``drawing``: what only pictures need, by
    the file's sections (materials, textures, skins, visual, statistic). ``custom``: users' numbers, texts and tuples by name.
    """

    name: str = ""
    format: str = ""
    bodies: tuple[BodySpec, ...] = ()
    world_geoms: tuple[GeomSpec, ...] = ()
    constraints: tuple[ConstraintSpec, ...] = ()
    forces: tuple[ForceSpec, ...] = ()
    frames: tuple[tuple[str, int, np.ndarray, np.ndarray], ...] = ()
    option: OptionSpec = OptionSpec()
    sites: tuple[SiteSpec, ...] = ()
    cameras: tuple[CameraSpec, ...] = ()
    lights: tuple[LightSpec, ...] = ()
    meshes: tuple[MeshSpec, ...] = ()
    hfields: tuple[HfieldSpec, ...] = ()
    tendons: tuple[TendonSpec, ...] = ()
    actuators: tuple[ActuatorSpec, ...] = ()
    sensors: tuple[SensorSpec, ...] = ()
    equalities: tuple[EqualitySpec, ...] = ()
    pairs: tuple[PairSpec, ...] = ()
    exclude: tuple[tuple[int, int], ...] = ()
    keys: tuple[KeySpec, ...] = ()
    flexes: tuple[FlexSpec, ...] = ()
    rules: str = ""
    drawing: dict = field(default_factory=dict)
    custom: dict = field(default_factory=dict)
    source: Source = Source()

    def replace(self, **changes) -> ModelSpec:
        return replace(self, **changes)

    def with_ground(self, friction: float = 1.0, height: float = 0.0) -> ModelSpec:
        """The same with a floor without end, the plane z = height (m), for models of formats that hold only a robot.

        Every collision shape of a moving body may touch it, whatever its masks (unless they are zero). friction: its coefficient; how
        soft the contact is, is left to the other shape. Raises ValueError where nothing can touch it, and for files that number their
        geoms (MJCF), where the floor belongs into the file; warns of collision shapes that are without a surface (meshes not found).
        """
        numbered = self.pairs or any(piece.kind == "geom" for tendon in self.tendons for piece in tendon.path)
        if numbered or any(end is not None and end[0] == "geom" for s in self.sensors for end in (s.object, s.reference)):
            raise ValueError("the model refers to geoms by number: write the ground into its file")
        shapes = [(body, geom) for body in self.bodies for geom in body.geoms if geom.collision]
        bare = [f"{geom.shape} of {body.name!r}" for body, geom in shapes if geom.contact is None]
        if len(bare) == len(shapes):
            raise ValueError("no shape of the model can touch a ground" + (f": {', '.join(bare[:5])} have no surface" if bare else ""))
        if bare:
            warnings.warn(f"shapes without a surface fall through the ground: {', '.join(bare[:5])} ({len(bare)} in all)", stacklevel=2)
        surface = SurfaceSpec(contype=ALL, conaffinity=ALL, friction=(friction, 0.0, 0.0), solmix=0.0)
        floor = GeomSpec("plane", np.zeros(2), pos=np.array([0.0, 0.0, height]), name="ground", massless=True, contact=surface)
        rows = tuple(row for row in ROWS if row in (*self.option.rows, "contact"))
        return replace(self, world_geoms=(*self.world_geoms, floor), option=replace(self.option, rows=rows))
