"""Topology: the static part of a model, without the array leaves. Hashable, compared by value, static under jit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from xsim.model.drawing import DrawingInfo
from xsim.model.flex_topology import FlexInfo
from xsim.model.octree import Octree
from xsim.model.table import Table
from xsim.rules import RULES, Rules

__all__ = [
    "CONTACT_FIELDS", "ActuatorInfo", "BodyInfo", "CameraInfo", "ConstraintInfo", "ForceInfo", "FunctionInfo", "GeomInfo",
    "HfieldInfo", "JointInfo", "KeyInfo", "Link", "MeshInfo", "PairsInfo", "PieceInfo",
    "RANGE_FIELDS", "SPRINGS", "SdfInfo", "SensorInfo", "SiteInfo", "SoftInfo", "SolidInfo", "Table", "TendonInfo", "Topology",
]  # fmt: skip


COLLISION_SHAPES = ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh", "sdf")
"""Shapes that collide. The geoms of a pair are in the order of their shapes here."""


class Link(NamedTuple):
    """One elementary joint of the tree. A joint is a chain of links; the joint frame belongs to the first."""

    kind: str  # hinge, slide, screw, ball, general
    parent: int  # parent link, -1 for the world
    body: int
    joint: int  # index of its joint among the joints of the body
    first: bool  # whether it is the first link of its joint
    q: int  # address in q
    v: int  # address in v
    nq: int
    nv: int
    axis: int | tuple | None = None  # row of joint.axes, or three numbers
    pitch: int | None = None  # row of joint.pitch
    general: int | None = None  # row of the parameters of its type
    ref: int | None = None  # row of joint.ref, None: the reference configuration is at zero


class JointInfo(NamedTuple):
    """One of a body's joints."""

    name: str
    type: str
    q: tuple[int, int]  # first address, width
    v: tuple[int, int]
    damper_axes: str
    armature_axes: str
    spring_law: str
    axes: tuple[int, ...]  # rows of joint.axes
    general: int | None
    frame: int | None  # row of joint.pos and joint.quat, None: the joint frame is the body frame
    anchored: bool  # the joint frame is given in the body frame of the reference configuration
    spring_damper: int | None = None  # row of joint.spring_damper, which gives stiffness and damping
    stiffness_poly: int | None = None  # rows of these leaves
    damping_poly: int | None = None
    actuator_gravcomp: bool = False
    spring_yield: int | None = None  # row of joint.spring_yield
    plastic: int | None = None  # address of the rest position of a spring that yields in State.plastic


class BodyInfo(NamedTuple):
    """A body.

    only_slides: as loaded, whether its joints are slides along its own axes at its origin, its inertial frame is the body frame, its
    parent is the world or fixed to it, and it has no children (MuJoCo: ``body_simple`` 2)."""

    name: str
    parent: int
    joints: tuple[JointInfo, ...]
    link: int  # link of which the body is a part, -1: fixed to the world
    q: tuple[int, int]  # of all its joints: first address, width
    v: tuple[int, int]
    explicit: int | None  # row of the explicit mass properties, None: from geoms
    pos_min: tuple | None
    pos_max: tuple | None
    gravity: int | None  # row of body.gravity, None: gravity acts in full
    gravcomp: int | None = None  # row of body.gravcomp
    mocap: int | None = None  # index of its pose in State.mocap
    principal: tuple = (1.0, 0.0, 0.0, 0.0)  # orientation of the principal axes of inertia, as loaded
    only_slides: bool = False

    @property
    def joint(self) -> JointInfo:
        """The joint of a body with one joint. Raises ValueError for another number of joints."""
        (joint,) = self.joints
        return joint

    @property
    def frame(self) -> int | None:
        """Row of the frame of its last joint, None if the joint frame is the body frame."""
        return self.joints[-1].frame if self.joints else None


class ConstraintInfo(NamedTuple):
    """A holonomic constraint between frames of two bodies (-1: the world).

    * rows: (kind, i, j, row of constraint.value or None) per Jacobian row, see `xsim.dynamics.constraints.loop_rows`. Kinds:
      ("slide", axis, frame of the axis), ("dot", axis of the first frame, axis of the second), ("distance", 0, 0), ("angle", 0, 0),
      ("twist", 0, 0).
    * driven: "slide" or "hinge" if a motor moves the first frame along or about its z axis. target: index of its target.
    """

    name: str
    kind: str
    bodies: tuple[int, int]
    rows: tuple[tuple[str, int, int, int | None], ...]
    driven: str = ""
    target: int | None = None


class FunctionInfo(NamedTuple):
    """A function of time or of a length.

    * first, width: address and number of its parameters in function.numbers.
    * repeat: whether it is periodic. Its last three parameters are then start, width and shift, see `time_functions.Curve`.
    """

    name: str
    kind: str
    first: int
    width: int
    repeat: bool


SPRINGS = ("spring", "torsion", "axial")
"""Force elements with a rest length and a preload."""


class ForceInfo(NamedTuple):
    """A force element between frames of two bodies, or a load on one body.

    * row: row of force.rest and force.preload (springs) or force.vector (loads).
    * stiffness, damping, stop: rows of these leaves, None without.
    * spring, damper, function: indices of functions.
    * map: (address in force.map, number of rates, number of lengths).
    * driven: "slide" or "hinge", for motors and loads.
    * local: whether a load is in axes of its frame. at_world: row of force.pos1 with its point in the world.
    * hinges: (dof, sign) of the hinges whose angles sum to the angle of a torsion spring.
    """

    name: str
    kind: str
    bodies: tuple[int, ...]
    row: int | None = None
    stiffness: int | None = None
    damping: int | None = None
    stop: int | None = None
    spring: int | None = None
    damper: int | None = None
    map: tuple[int, int, int] | None = None
    function: int | None = None
    driven: str = ""
    local: bool = True
    at_world: int | None = None
    hinges: tuple[tuple[int, float], ...] = ()


class SolidInfo(NamedTuple):
    """Volume (m^3) and principal moments of inertia per mass (m^2) of a mesh."""

    volume: float
    moments: tuple[float, float, float]


class MeshInfo(NamedTuple):
    """A mesh, see `xsim.spec.MeshSpec`; its convex hull alone where neither rays nor signed distance functions need more. boxes, paths: see
    `xsim.model.face_order`, for meshes whose faces are in that order."""

    vertices: Table
    faces: Table
    hull: Table | None = None
    boxes: Table | None = None
    paths: Table | None = None


class SdfInfo(NamedTuple):
    """The signed distance function of a mesh, the shape of geoms of the shape "sdf".

    * name, mesh: of the mesh, and its index. kind: key of `xsim.registry.DISTANCE_FUNCTIONS`. numbers: rows of geom.sdf.
    * pos, quat: of the function's frame in the frame of the mesh. centre, half: of the box around the mesh in its frame, m.
    * octree: of the distances from the mesh, in the place of a function.
    """

    name: str
    mesh: int
    kind: str
    numbers: tuple[int, ...]
    pos: tuple[float, float, float]
    quat: tuple[float, float, float, float]
    centre: tuple[float, float, float]
    half: tuple[float, float, float]
    octree: Octree | None = None


class HfieldInfo(NamedTuple):
    """A height field, see `xsim.spec.HfieldSpec`. base: depth below the lowest point, m."""

    heights: Table
    base: float


class GeomInfo(NamedTuple):
    """A geom. rgba: its own colour, else that of its material, None without. file: of a mesh without an asset, see `GeomSpec.path`."""

    name: str
    body: int  # -1: world
    shape: str
    rgba: tuple | None
    row: int | None  # row of geom.size, pos, quat, None for a visual geom
    size: tuple  # of the file, for the viewer
    pos: tuple
    quat: tuple
    visible: bool  # whether the viewer shows it
    mass: int | None = None  # row of geom.mass
    density: int | None = None  # row of geom.density, for a geom with density instead of mass
    solid: SolidInfo | None = None
    fluid: int | None = None  # row of geom.fluid
    asset: int | None = None  # index of its mesh or height field
    opaque: bool = True  # rays of sensors intersect it
    extents: tuple[float, ...] | None = None  # half extents of a mesh with fluid coefficients, m
    surface_velocity: int | None = None  # row of geom.surface_velocity
    adhesion: int | None = None  # row of geom.adhesion
    collision: bool = True  # it can take part in contact
    file: str | None = None


class SiteInfo(NamedTuple):
    """A site: a named frame on a body. planes (n, 4): see `xsim.spec.SiteSpec`."""

    name: str
    body: int  # -1: world
    shape: str
    size: tuple[float, ...]
    planes: Table | None = None


class CameraInfo(NamedTuple):
    """A camera or a light; modes as in `xsim.spec.CameraSpec`, and so are intrinsic, sensor_size, resolution, fovy, orthographic: of
    cameras."""

    name: str
    body: int
    mode: str
    target: int | None = None
    resolution: tuple[int, int] = (1, 1)
    intrinsic: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    sensor_size: tuple[float, float] = (0.0, 0.0)
    fovy: float = 0.0
    orthographic: bool = False


class PieceInfo(NamedTuple):
    """A piece of the path of a tendon, see `xsim.spec.WrapSpec`.

    item: the dof of a joint piece, else as in the spec. row: row of tendon.coefficient (joint) or tendon.divisor (pulley)."""

    kind: str
    item: int
    row: int | None = None
    side: int | None = None


class TendonInfo(NamedTuple):
    """A tendon.

    * spring: row of tendon.spring_length. None: the rest length is the length in the reference configuration of the joint springs.
    * range, friction, armature, stiffness_poly, damping_poly, force_range, spring_yield: rows of these leaves, None without.
    * plastic: address of the rest lengths of a spring that yields in `State.plastic`, None without.
    """

    name: str
    kind: str
    path: tuple[PieceInfo, ...]
    spring: int | None
    range: int | None = None
    friction: int | None = None
    armature: int | None = None
    stiffness_poly: int | None = None
    damping_poly: int | None = None
    force_range: int | None = None
    spring_yield: int | None = None
    plastic: int | None = None


class HistoryInfo(NamedTuple):
    """The past values of a quantity, a part of `State.history`, see `xsim.dynamics.history`.

    * address: of its first number. samples: how many. width: numbers of a sample.
    * interpolation: ``"zoh"`` (zero-order hold), ``"linear"`` or ``"cubic"``.
    * delay: row of actuator.delay or sensor.delay.
    """

    address: int
    samples: int
    width: int
    interpolation: str
    delay: int

    @property
    def end(self) -> int:
        """The address after its last number."""
        return self.address + self.samples * (1 + self.width)


class ActuatorInfo(NamedTuple):
    """An actuator, see `xsim.spec.ActuatorSpec`.

    * target: a joint as (body, index among its joints), else the index of a site, tendon or body.
    * controls: addresses of its inputs among the controls of actuators. ctrl_ranges: their rows of actuator.ctrl_range, None without.
    * act: address of its first activation, None without. The memory of the controller comes first, then what the dynamics make of the
      first control.
    * controller: key of the registry, None without. inputs, memory: see `xsim.dynamics.actuation.controllers.Controller`.
    * force_range, act_range, length_range, damp_ratio, crank, armature, damping, damping_poly: rows of these leaves, None
      without.
    * periodic: whether its signal is the target of a rotation, which whole turns do not change.
    * history: of its controls, None if they act without delay.
    * outputs: addresses of its forces among those of all actuators, in the order of the actuators. Orientation servos have three.
    """

    name: str
    transmission: str
    target: int | tuple[int, int]
    reference: int | None
    dynamics: str
    gain: str
    bias: str
    act_early: bool
    controls: tuple[int, ...]
    ctrl_ranges: tuple[int | None, ...]
    act: int | None
    force_range: int | None
    act_range: int | None
    length_range: int | None
    damp_ratio: int | None
    crank: int | None
    armature: int | None
    damping: int | None
    damping_poly: int | None
    enabled: bool
    periodic: bool
    controller: str | None = None
    inputs: tuple[str, ...] = ()
    memory: tuple[str, ...] = ()
    history: HistoryInfo | None = None
    outputs: tuple[int, ...] = ()

    @property
    def output(self) -> int:
        """The address of the only force of an actuator."""
        (address,) = self.outputs
        return address

    @property
    def ctrl(self) -> int:
        """The address of the only control of an actuator without a controller."""
        (address,) = self.controls
        return address

    @property
    def activations(self) -> tuple[int, ...]:
        """Addresses of all activations."""
        if self.act is None:
            return ()
        return tuple(range(self.act, self.act + len(self.memory) + (self.dynamics != "none")))


CONTACT_FIELDS = {"found": 1, "force": 3, "torque": 3, "dist": 1, "pos": 3, "normal": 3, "tangent": 3, "linvel": 3, "angvel": 3}
"""Fields of a slot of a contact sensor, in their order, and their widths."""


RANGE_FIELDS = {"dist": 1, "dir": 3, "origin": 3, "point": 3, "normal": 3, "depth": 1}
"""Fields of a ray of a rangefinder, in their order, and their widths."""


ENCLOSED = ("enclosed",)
"""`SensorSpec.data` of a sensor ``insidesite`` that measures how far an object juts out of a site."""


class PadInfo(NamedTuple):
    """The points (n, 3) of a tactile sensor and two tangents (n, 2, 3) at each, None without, in the frame of its geom."""

    points: Table
    tangents: Table | None


class SensorInfo(NamedTuple):
    """A sensor, see `xsim.spec.SensorSpec`. address, dim: address and number of its readings in the sensor data. data: of contact sensors
    and rangefinders. reduce: of contact sensors. history: of its readings, None for a sensor without delay and interval. interval: (period,
    phase), s. ticked: address in `State.history` of the time of the last measurement of a sensor with a period, None without. config:
    numbers of plugins by key. pad: of tactile sensors."""

    name: str
    kind: str
    object: tuple | None
    reference: tuple | None
    stage: str
    address: int
    dim: int
    cutoff: float
    data: tuple[str, ...] = ()
    reduce: str = "none"
    history: HistoryInfo | None = None
    interval: tuple[float, float] = (0.0, 0.0)
    ticked: int | None = None
    config: tuple[tuple[str, tuple[float, ...]], ...] = ()
    pad: PadInfo | None = None


class PassiveInfo(NamedTuple):
    """A passive force, see `xsim.spec.PassiveSpec`. numbers: rows of passive.numbers."""

    name: str
    kind: str
    bodies: tuple[int, ...]
    numbers: tuple[int, ...]


class SoftInfo(NamedTuple):
    """A soft constraint (MuJoCo's constraint model), see `xsim.dynamics.constraints.soft_rows`.

    * kind and items:

      * equality constraints: ``"connect"``, ``"weld"`` (two bodies; with ``sites`` two sites), ``"joint"`` (one or two dofs), ``"tendon"``
        (one or two tendons), ``"flex"`` (a flex with edges of constant length, one row per edge), ``"flexstrain"`` (a flex with a grid, and
        the number of one of its cells)
      * dry friction: ``"friction"`` (a dof), ``"tendon_friction"`` (a tendon)
      * limits: ``"lower"``, ``"upper"`` (a dof), ``"angle"`` (first dof of a ball), ``"tendon_lower"``, ``"tendon_upper"`` (a tendon)

    * soft: row of soft.solref, solimp, margin.
    * row: row of the leaf of its kind: dof.friction, limit.lower, limit.upper, limit.angle, tendon.friction, tendon.range, equality.anchor
      or equality.polynomial.
    * pose: row of equality.relpose, None: the initial relative pose.
    * scale: row of equality.torque_scale.
    """

    kind: str
    name: str
    items: tuple[int, ...]
    soft: int
    row: int | None = None
    sites: bool = False
    pose: int | None = None
    scale: int | None = None


class PartInfo(NamedTuple):
    """A part of a flex that collides.

    * shape: ``"sphere"`` (one point), ``"capsule"`` (two), ``"simplex"`` (three or four), ``"triangle"`` (three, touched at corners) or
      ``"facet"`` (three, one-sided), with the radius of the flex.
    * flex: index of the flex. points: indices of its points, of a flex with a grid those of its vertices.
    * reach: bounding radius about its centre, m, with a margin for stretching.
    """

    shape: str
    flex: int
    points: tuple[int, ...]
    reach: float


class PairsInfo(NamedTuple):
    """Pairs of geoms that can collide, with the same shapes, assets and contact dimension (1, 3, 4, 6).

    * geoms (n, 2): indices of the geoms, in the order of `COLLISION_SHAPES`. An index from the number of geoms on is a part of a flex.
    * mixed: whether the contact parameters are a mixture of two surfaces.
    * leaf_rows: rows of surface.* of the two geoms (n, 2) if mixed, else rows of pair.* (n,).
    * dominant (n,): the geom with the higher priority, whose parameters are used: 0 or 1; -1 for a mixture.
    * passive: whether the contacts are springs without friction, see `xsim.dynamics.constraints.passive_contacts`.
    * of_parts: whether one of the two, or both, are parts of flexes.
    """

    shapes: tuple[str, str]
    assets: tuple[int | None, int | None]
    condim: int
    mixed: bool
    geoms: Table
    leaf_rows: Table
    dominant: Table
    passive: bool
    of_parts: bool


class KeyInfo(NamedTuple):
    """A keyframe: a named state with controls. mocap: (position, quaternion) per mocap body. plastic: see `State.plastic`, None: as at the
    start."""

    name: str
    time: float
    q: tuple[float, ...]
    v: tuple[float, ...]
    act: tuple[float, ...]
    ctrl: tuple[float, ...]
    mocap: tuple[tuple[float, ...], ...]
    plastic: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Topology:
    """The static part of a model: hashable, compared by value, static under jit.

    * bodies, links, geoms, sites, cameras, lights, tendons, actuators, sensors, keys: see their classes.
    * sizes: length per dimension of the leaves. neutral: q of the neutral configuration.
    * initial: q and v of the initial state. velocities: (body, velocity of its centre of mass and angular velocity) for the bodies with an
      initial velocity in the file.
    * integrator: name of the integrator.
    * constraint_kinds: the kinds of constraints that act, see `xsim.spec.CONSTRAINT_KINDS`.
    * dof_rows: per leaf that only some dofs have, its dofs.
    * drives: per dof, its drive (`xsim.spec.ACTUATORS`). commands: the dofs with a command, in the order of ``ctrl``.
    * couplings: (follower, leader) dofs. constraints: holonomic constraints between frames of bodies.
    * motions: (dof, target) of the coordinates with a prescribed motion. targets: (function, mode) of the prescribed motions, mode
      "position" or "speed". functions: functions of time. forces: force elements.
    * soft: soft constraints. disabled: MuJoCo's flags that are switched off (`xsim.spec.OptionSpec`).
    * rules: the MuJoCo release whose rules apply, "" for other formats.
    * meshes, hfields: those that collisions or rays need. sdfs: the signed distance functions of geoms. sdf_search: numbers of points from
      which contacts of these are searched, and of iterations. pairs: geoms, and parts of flexes, that can collide.
    * passive: passive forces on bodies.
    * flexes: deformable bodies with forces or contacts. parts: the parts of flexes that collide. drawing: what only pictures need.
    * cone: ``"pyramidal"`` or ``"elliptic"``. noslip: whether friction is solved again without slip. multiccd: whether contact between flat
      faces has several contact points.
    * pair_adhesion: (row of the other leaves of pair, row of pair.adhesion).
    * speculative: whether geoms have contacts that they will have within the step.
    * exact_mobility: whether the regularization of soft constraints follows the mass matrix of the state, not of the reference
      configuration.
    * max_contacts: capacity of the contact buffer per condim. max_pairs: pairs of one kind that reach the narrow phase. None: the default,
      see `xsim.with_contact_limit`.
    """

    name: str
    bodies: tuple[BodyInfo, ...]
    links: tuple[Link, ...]
    geoms: tuple[GeomInfo, ...]
    sizes: tuple[tuple[str, int], ...]
    neutral: tuple[float, ...]
    initial: tuple[tuple[float, ...], tuple[float, ...]]
    velocities: tuple[tuple[int, tuple[float, ...]], ...]
    integrator: str
    constraint_kinds: tuple[str, ...]
    dof_rows: tuple[tuple[str, tuple[int, ...]], ...]
    drives: tuple[str, ...]
    commands: tuple[int, ...]
    couplings: tuple[tuple[int, int], ...]
    constraints: tuple[ConstraintInfo, ...]
    motions: tuple[tuple[int, int], ...]
    targets: tuple[tuple[int, str], ...]
    functions: tuple[FunctionInfo, ...]
    forces: tuple[ForceInfo, ...]
    sites: tuple[SiteInfo, ...] = ()
    cameras: tuple[CameraInfo, ...] = ()
    lights: tuple[CameraInfo, ...] = ()
    tendons: tuple[TendonInfo, ...] = ()
    actuators: tuple[ActuatorInfo, ...] = ()
    sensors: tuple[SensorInfo, ...] = ()
    keys: tuple[KeyInfo, ...] = ()
    soft: tuple[SoftInfo, ...] = ()
    meshes: tuple[MeshInfo, ...] = ()
    hfields: tuple[HfieldInfo, ...] = ()
    sdfs: tuple[SdfInfo, ...] = ()
    sdf_search: tuple[int, int] = (40, 10)
    disabled: tuple[str, ...] = ()
    rules: str = ""
    pairs: tuple[PairsInfo, ...] = ()
    parts: tuple[PartInfo, ...] = ()
    cone: str = "pyramidal"
    pair_adhesion: tuple[tuple[int, int], ...] = ()
    noslip: bool = False
    exact_mobility: bool = False
    multiccd: bool = False
    speculative: bool = False
    max_contacts: int | None = None
    max_pairs: int | None = None
    flexes: tuple[FlexInfo, ...] = ()
    drawing: DrawingInfo = DrawingInfo()
    passive: tuple[PassiveInfo, ...] = ()

    @property
    def switches(self) -> Rules:
        """The rules of the MuJoCo release of this model."""
        return RULES[self.rules]

    @property
    def joints(self) -> tuple[JointInfo, ...]:
        """All joints, body by body."""
        return tuple(j for b in self.bodies for j in b.joints)

    def dofs(self, leaf: str) -> tuple[int, ...]:
        """The dofs of the rows of a leaf that only some dofs have (dof.friction, limit.lower, ...)."""
        return dict(self.dof_rows)[leaf]

    def size(self, dimension: str) -> int:
        """Length of a dimension of the leaves (nbody, nq, nv, ...). Raises KeyError for an unknown one."""
        return dict(self.sizes)[dimension]
