"""Topology: everything about a model that is not a number to differentiate. Hashable, compared by value, static under jit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from xsim.rules import RULES, Rules

__all__ = [
    "ActuatorInfo", "BodyInfo", "CameraInfo", "ConstraintInfo", "FlexInfo", "ForceInfo", "FunctionInfo", "GeomInfo", "HfieldInfo",
    "JointInfo", "KeyInfo", "Link", "MeshInfo", "PairsInfo", "PieceInfo",
    "SensorInfo", "SiteInfo", "SoftInfo", "SolidInfo", "Table", "TendonInfo", "Topology",
]  # fmt: skip


COLLIDING = ("plane", "hfield", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
"""Shapes that collide; the first geom of a pair is that of the earlier shape."""


class Table:
    """An array of fixed numbers: hashable, compared by value."""

    def __init__(self, value):
        self.value = np.array(value)
        self.value.setflags(write=False)
        self._key = (self.value.shape, self.value.dtype.str, self.value.tobytes())

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        return type(other) is type(self) and self._key == other._key

    def __repr__(self):
        return f"{type(self).__name__}({self.value!r})"


class Link(NamedTuple):
    """One elementary joint of the tree. A joint is a chain of links; only the first carries the joint's place."""

    kind: str  # hinge, slide, screw, ball, general
    parent: int  # link that moves it, -1 for the world
    body: int
    joint: int  # which of the body's joints it belongs to
    first: bool
    q: int  # address in q
    v: int  # address in v
    nq: int
    nv: int
    axis: int | tuple | None = None  # row of joint.axes, or three numbers
    pitch: int | None = None  # row of joint.pitch
    general: int | None = None  # row of the parameters of its type
    ref: int | None = None  # row of joint.ref, None: as drawn at zero


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
    anchored: bool  # the joint frame is placed in the body as drawn
    spring_damper: int | None = None  # row of joint.spring_damper, which gives stiffness and damping
    actuator_gravcomp: bool = False


class BodyInfo(NamedTuple):
    name: str
    parent: int
    joints: tuple[JointInfo, ...]
    link: int  # link the body moves with (-1: fixed to the world)
    q: tuple[int, int]  # of all its joints: first address, width
    v: tuple[int, int]
    explicit: int | None  # row of the explicit mass properties, None: from geoms
    pos_min: tuple | None
    pos_max: tuple | None
    gravity: int | None  # row of body.gravity, None: full weight
    gravcomp: int | None = None  # row of body.gravcomp
    mocap: int | None = None  # which of the poses in State.mocap
    principal: tuple = (1.0, 0.0, 0.0, 0.0)  # orientation of the principal axes of inertia, as loaded

    @property
    def joint(self) -> JointInfo:
        """Its joint, of a body with one."""
        (joint,) = self.joints
        return joint

    @property
    def frame(self) -> int | None:
        """Row of the frame of its last joint."""
        return self.joints[-1].frame if self.joints else None


class ConstraintInfo(NamedTuple):
    """A constraint between frames of two bodies (-1: the world). rows: (kind, i, j, row of constraint.value or None), see
    `xsim.dynamics.constraints.loop_rows`: ("slide", axis, which frame's), ("dot", axis of the first, axis of the second), ("distance", 0,
    0), ("angle", 0, 0), ("twist", 0, 0). driven: "slide" or "hinge" where the first frame is moved along or about its z axis by target
    number ``target``."""

    name: str
    kind: str
    bodies: tuple[int, int]
    rows: tuple[tuple[str, int, int, int | None], ...]
    driven: str = ""
    target: int | None = None


class FunctionInfo(NamedTuple):
    """A function of time or of a length. first, width: its numbers in function.numbers, the last three of a repeated one its start,
    width and shift."""

    name: str
    kind: str
    first: int
    width: int
    repeat: bool


class ForceInfo(NamedTuple):
    """A force between frames of two bodies, or on one: rows of its numbers in the leaves ``force.*``, None where it has none. spring,
    damper, function: numbers of functions. map: (first number, rates, lengths).
    turns: the hinges (dof, sign) whose angles add up to that of a torsion spring."""

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
    turns: tuple[tuple[int, float], ...] = ()


class SolidInfo(NamedTuple):
    """What a shape without a formula (a mesh) is like: volume (m^3), principal second moments per unit mass (m^2)."""

    volume: float
    moments: tuple[float, float, float]


class MeshInfo(NamedTuple):
    """See `xsim.spec.MeshSpec`."""

    vertices: Table
    faces: Table
    hull: Table | None = None


class HfieldInfo(NamedTuple):
    """See `xsim.spec.HfieldSpec`. base: depth below the lowest ground, m."""

    heights: Table
    base: float


class GeomInfo(NamedTuple):
    name: str
    body: int  # -1: world
    shape: str
    rgba: tuple | None
    row: int | None  # row of geom.size, pos, quat, None where the shape is drawn only
    size: tuple  # as loaded, for drawing
    pos: tuple
    quat: tuple
    drawn: bool
    mass: int | None = None  # row of geom.mass
    density: int | None = None  # row of geom.density, where that gives the mass
    solid: SolidInfo | None = None
    fluid: int | None = None  # row of geom.fluid
    asset: int | None = None  # number of its mesh or height field
    seen: bool = True  # it is not transparent: rays meet it
    extents: tuple[float, ...] | None = None  # of a mesh in a medium: largest coordinates of its vertices, m


class SiteInfo(NamedTuple):
    name: str
    body: int  # -1: world
    shape: str
    size: tuple[float, ...]


class CameraInfo(NamedTuple):
    """A camera or a light: modes as in `xsim.spec.CameraSpec`. start: for the tracking modes, as drawn."""

    name: str
    body: int
    mode: str
    target: int | None = None
    resolution: tuple[int, int] = (1, 1)
    intrinsic: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
    sensor_size: tuple[float, float] = (0.0, 0.0)
    fovy: float = 0.0


class PieceInfo(NamedTuple):
    """A piece of a tendon's path, see `xsim.spec.WrapSpec`: of a joint piece, item is the dof; row: of its number in the leaves."""

    kind: str
    item: int
    row: int | None = None
    side: int | None = None


class TendonInfo(NamedTuple):
    """spring: row of tendon.spring_length, None: its length where the joints' springs are at rest. range, friction: rows of the leaves of
    these names, None where it has none."""

    name: str
    kind: str
    path: tuple[PieceInfo, ...]
    spring: int | None
    range: int | None = None
    friction: int | None = None


class ActuatorInfo(NamedTuple):
    """See `xsim.spec.ActuatorSpec`. target: a joint as (body, which of its joints), else the number of a site, tendon or body. act:
    address of its activation. Ranges, length, damp_ratio: rows of the leaves of these names, None where there is none."""

    name: str
    transmission: str
    target: int | tuple[int, int]
    reference: int | None
    dynamics: str
    gain: str
    bias: str
    act_early: bool
    act: int | None
    ctrl_range: int | None
    force_range: int | None
    act_range: int | None
    length_range: int | None
    damp_ratio: int | None
    crank: int | None
    enabled: bool


class SensorInfo(NamedTuple):
    """See `xsim.spec.SensorSpec`. address, dim: where its numbers are in the sensor data."""

    name: str
    kind: str
    object: tuple | None
    reference: tuple | None
    stage: str
    address: int
    dim: int
    cutoff: float


class SoftInfo(NamedTuple):
    """A constraint that is kept softly (MuJoCo's constraint model), see `xsim.dynamics.constraints.soft_rows`.

    kind and items: the equalities ``"connect"``, ``"weld"`` (two bodies, with ``sites`` two sites), ``"joint"`` (one or two dofs),
    ``"tendon"`` (one or two tendons), ``"flex"`` (a flex, whose edges keep their lengths: one row each); dry friction ``"friction"``
    (a dof), ``"tendon_friction"`` (a tendon); limits ``"lower"``, ``"upper"`` (a dof), ``"angle"`` (first dof of a ball),
    ``"tendon_lower"``, ``"tendon_upper"`` (a tendon).
    soft: row of soft.solref, solimp, margin. row: of its own number or numbers (dof.friction, limit.lower, limit.upper, limit.angle,
    tendon.friction, tendon.range, equality.anchor, equality.polynomial). pose: row of equality.relpose, None: as at the start.
    scale: row of equality.torque_scale.
    """

    kind: str
    name: str
    items: tuple[int, ...]
    soft: int
    row: int | None = None
    sites: bool = False
    pose: int | None = None
    scale: int | None = None


class FlexInfo(NamedTuple):
    """A deformable that acts, see `xsim.spec.FlexSpec`. bodies: of its points. edges (m, 2): numbers among its points, corners (n, k):
    among its edges. free (m,): whether an edge is between bodies that move against each other. simple: of the points' bodies, 2 for one
    that does nothing but slide along its own axes, 1 for a free one, both with their mass about those axes and nothing on them. spring:
    row of flex.edge_stiffness and flex.edge_damping; elastic: of flex.young, poisson, damping; sheet: of flex.thickness; round: of
    flex.radius; None where it has none."""

    name: str
    dim: int
    bodies: tuple[int, ...]
    edges: Table
    corners: Table
    free: Table
    simple: tuple[int, ...]
    spring: int | None
    elastic: int | None
    sheet: int | None
    round: int | None


class PartInfo(NamedTuple):
    """What of a flex touches something, with the radius of the flex. shape: ``"sphere"`` (one point), ``"capsule"`` (two), ``"simplex"``
    (three or four) or ``"facet"`` (three, where only one side counts). flex: number of the flex, points: numbers among its points.
    reach: how far it may reach from its centre, m: as drawn, with some room to stretch."""

    shape: str
    flex: int
    points: tuple[int, ...]
    reach: float


class PairsInfo(NamedTuple):
    """Geoms that may touch: pairs of the same shapes (of the same assets) and dimension of contact (1, 3, 4, 6).

    geoms (n, 2): numbers of the geoms, in the order of `COLLIDING`; from the number of geoms on, of the parts of flexes. mixed: rows (n, 2)
    are those of surface.* of the two, and ruling (n,) says whose numbers hold: 0, 1, or -1 for a mixture; else rows (n,) are those of
    pair.*.
    """

    shapes: tuple[str, str]
    assets: tuple[int | None, int | None]
    condim: int
    mixed: bool
    geoms: Table
    rows: Table
    ruling: Table


class KeyInfo(NamedTuple):
    """A named state; q, v, act, ctrl and the mocap poses in full."""

    name: str
    time: float
    q: tuple[float, ...]
    v: tuple[float, ...]
    act: tuple[float, ...]
    ctrl: tuple[float, ...]
    mocap: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Topology:
    """Everything about a model that is not a number to differentiate: hashable, compared by value, static under jit.

    initial: q and v where a state starts. velocities: (body, velocity of its centre of mass and angular velocity) of the bodies that start
    as the file says. rows: the kinds of constraint rows that act. rowed: per row leaf, its dofs. drives: per dof, what moves it
    (`xsim.spec.ACTUATORS`). commands: the dofs that take a command, in the order of ``ctrl``. couplings: dofs of the (follower, leader)
    pairs. constraints: between frames of bodies, as joints that close loops are. motions: (dof, target) of the coordinates that move on
    schedule. targets: (function, mode) of what is prescribed, mode "position" or "speed". disabled: parts that are switched off
    (`xsim.spec.OptionSpec`). rules: the release of MuJoCo whose rules hold. meshes, hfields: where something meets their surfaces, else
    none. pairs: geoms that may touch, and parts of flexes. cone: ``"pyramidal"`` or ``"elliptic"``. noslip: whether friction is found again
    without slip. multiccd: whether flat faces that lie on each other make several contacts. max_contacts: how many contacts of one condim
    an environment holds, max_pairs: how many pairs of one kind reach the narrow phase, None: see `xsim.dynamics.constraints.contact_rows`.
    flexes: deformables of which something acts, parts: what of them touches.
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
    rows: tuple[str, ...]
    rowed: tuple[tuple[str, tuple[int, ...]], ...]
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
    disabled: tuple[str, ...] = ()
    rules: str = ""
    pairs: tuple[PairsInfo, ...] = ()
    parts: tuple[PartInfo, ...] = ()
    cone: str = "pyramidal"
    noslip: bool = False
    multiccd: bool = False
    max_contacts: int | None = None
    max_pairs: int | None = None
    flexes: tuple[FlexInfo, ...] = ()

    @property
    def switches(self) -> Rules:
        """What the rules of `Topology.rules` are."""
        return RULES[self.rules]

    @property
    def joints(self) -> tuple[JointInfo, ...]:
        """All joints, body by body."""
        return tuple(j for b in self.bodies for j in b.joints)

    def dofs(self, leaf: str) -> tuple[int, ...]:
        """The dofs that the numbers of a row leaf (dof.friction, limit.lower, ...) belong to."""
        return dict(self.rowed)[leaf]

    def size(self, dimension: str) -> int:
        """Length of a leaf's dimension: nbody, ngeom, naxis, npitch, nexplicit, nframe, ngravity, nconstraint, nvalue, nq, nv and
        the row counts."""
        return dict(self.sizes)[dimension]
