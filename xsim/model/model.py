"""Model, State, Data and Topology: immutable pytrees.

Every number of a model is a leaf, declared once below with shape, unit and meaning; documentation, checks, randomization and
identification read the declarations. Structure (which body hangs where, which joint is a hinge) is one hashable `Topology`.

A leaf has its declared shape (shared by all environments) or ``(*batch, *shape)`` (one per environment).
"""

from __future__ import annotations

import dataclasses
import fnmatch
from dataclasses import dataclass
from typing import Any, NamedTuple, dataclass_transform

import jax
import jax.numpy as jnp

from xsim.model.topology import FunctionInfo, Table, Topology

__all__ = [
    "Actuator", "Body", "Camera", "Cone", "Constraint", "Coupling", "Data", "Dof", "ElementForce", "Equality", "Flags", "Function", "Geom",
    "Joint", "Leaf", "Light", "Limit", "Medium", "Model", "Option", "Pair", "Site", "Soft", "State", "Surface", "Tendon",
]  # fmt: skip


# ---- leaves ------------------------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """Declaration of a leaf: dimension names or lengths, unit, meaning, and the least number it may hold (``"> 0"``, ``">= 0"``)."""

    shape: tuple
    unit: str
    doc: str
    sign: str = ""


@jax.tree_util.register_pytree_node_class
class Frozen(Table):
    """A leaf moved into the static part by `Model.freeze`: a constant of the compiled program."""

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)

    def tree_flatten(self):
        return (), self

    @classmethod
    def tree_unflatten(cls, aux, children):
        return aux


def _leaf(shape: str, unit: str, doc: str, sign: str = "") -> Any:
    return dataclasses.field(metadata={"leaf": Leaf(tuple(int(s) if s.isdigit() else s for s in shape.split()), unit, doc, sign)})


@dataclass_transform(frozen_default=True)
def _group(cls):
    cls = dataclass(frozen=True)(cls)
    jax.tree_util.register_dataclass(cls, data_fields=[f.name for f in dataclasses.fields(cls)], meta_fields=[])
    return cls


@_group
class Option:
    gravity: Any = _leaf("3", "m/s^2", "acceleration of free fall, world axes")
    dt: Any = _leaf("", "s", "time step", "> 0")
    regularization: Any = _leaf("", "kg or kg m^2", "added to the diagonal of the mass matrix by the solve", ">= 0")


@_group
class Body:
    pos: Any = _leaf("nbody 3", "m", "joint frame's origin in the parent body's frame")
    quat: Any = _leaf("nbody 4", "1", "joint frame's orientation in the parent body's frame (w x y z, normalized where used)")
    mass: Any = _leaf("nexplicit", "kg", "mass of the bodies with explicit inertia", ">= 0")
    com: Any = _leaf("nexplicit 3", "m", "their centre of mass, body frame")
    inertia: Any = _leaf("nexplicit 6", "kg m^2", "their inertia about it, body axes: xx yy zz xy xz yz")
    gravity: Any = _leaf("ngravity", "1", "factor of gravity, for the bodies that do not feel it in full")
    gravcomp: Any = _leaf("ngravcomp", "1", "factor of the weight that is taken back by a force at the centre of mass")


@_group
class Geom:
    size: Any = _leaf("ngeom 3", "m", "half extents (see xsim.spec), unused entries 0", ">= 0")
    mass: Any = _leaf("nmass", "kg", "mass, spread uniformly over the volume", ">= 0")
    pos: Any = _leaf("ngeom 3", "m", "centre, body frame")
    quat: Any = _leaf("ngeom 4", "1", "orientation in the body frame (w x y z, normalized where used)")
    density: Any = _leaf("ndensity", "kg/m^3", "density of the geoms whose mass follows from it", ">= 0")
    fluid: Any = _leaf("nfluid 5", "1", "fluid coefficients: blunt, slender, angular drag, Kutta, Magnus lift", ">= 0")


@_group
class Joint:
    axes: Any = _leaf("naxis 3", "1", "axes of hinges, slides and screws (normalized where used)")
    pitch: Any = _leaf("npitch", "m/rad", "translation of screws per radian")
    pos: Any = _leaf("nframe 3", "m", "joint frame's origin in the body's own frame, for the bodies where they differ")
    quat: Any = _leaf("nframe 4", "1", "its orientation there (w x y z, normalized where used)")
    spring_ref: Any = _leaf("nq", "m, rad or 1", "configuration at which the springs are at rest")
    ref: Any = _leaf("nref", "m or rad", "position of hinges and slides that are not drawn at zero")
    spring_damper: Any = _leaf("nspringdamper 2", "s and 1", "time constant and damping ratio of springs", "> 0")
    params: Any = dataclasses.field(metadata={"params": True})


@_group
class Dof:
    damping: Any = _leaf("nv", "N s/m or N m s/rad", "viscous damping", ">= 0")
    armature: Any = _leaf("nv", "kg or kg m^2", "inertia of the drive, added to the mass matrix", ">= 0")
    stiffness: Any = _leaf("nv", "N/m or N m/rad", "spring stiffness", ">= 0")
    friction: Any = _leaf("nfriction", "N or N m", "dry friction of the dofs that have it", ">= 0")


@_group
class Limit:
    """Bounds of the dofs that have them; a ball's position is its rotation vector."""

    lower: Any = _leaf("nlower", "m or rad", "least position")
    upper: Any = _leaf("nupper", "m or rad", "largest position")
    angle: Any = _leaf("nangle", "rad", "largest rotation of balls", ">= 0")
    velocity_lower: Any = _leaf("nvelocity_lower", "m/s or rad/s", "least velocity")
    velocity_upper: Any = _leaf("nvelocity_upper", "m/s or rad/s", "largest velocity")
    force_lower: Any = _leaf("nforce_lower", "N or N m", "least force of the drive")
    force_upper: Any = _leaf("nforce_upper", "N or N m", "largest force of the drive")
    actuator_lower: Any = _leaf("nactuator_lower", "N or N m", "least force of all actuators together")
    actuator_upper: Any = _leaf("nactuator_upper", "N or N m", "largest force of all actuators together")


@_group
class Coupling:
    """Linear relations between two coordinates (mimic): follower = multiplier (leader - reference) + offset."""

    multiplier: Any = _leaf("ncoupling", "follower per leader", "what the follower moves per unit of the leader")
    offset: Any = _leaf("ncoupling", "m or rad", "follower's position where the leader is at the reference")
    reference: Any = _leaf("ncoupling", "m or rad", "leader's position where the follower is at the offset")


@_group
class Constraint:
    """Constraints between a frame of a first body and one of a second."""

    pos1: Any = _leaf("nconstraint 3", "m", "origin in the first body")
    quat1: Any = _leaf("nconstraint 4", "1", "orientation in the first body (w x y z, normalized where used)")
    pos2: Any = _leaf("nconstraint 3", "m", "origin in the second body")
    quat2: Any = _leaf("nconstraint 4", "1", "orientation in the second body (w x y z, normalized where used)")
    value: Any = _leaf("nvalue", "m", "lengths that are kept")


@_group
class Function:
    """Functions of time, and tables."""

    numbers: Any = _leaf("nfunction", "of the function", "coefficients, or points of tables (x, y, x, y, ...)")


@_group
class ElementForce:
    """Springs, dampers, bushings, motors and loads between frames of two bodies (of one body: the first)."""

    pos1: Any = _leaf("nforce 3", "m", "origin in the first body (of a load at a point of the world: there)")
    quat1: Any = _leaf("nforce 4", "1", "orientation in the first body (w x y z, normalized where used)")
    pos2: Any = _leaf("nforce 3", "m", "origin in the second body")
    quat2: Any = _leaf("nforce 4", "1", "orientation in the second body (w x y z, normalized where used)")
    rest: Any = _leaf("nspring", "m or rad", "length or angle at which a spring is at rest")
    preload: Any = _leaf("nspring", "N or N m", "force of a spring at rest")
    stiffness: Any = _leaf("nstiffness", "N/m or N m/rad", "of springs; of bushings six, along and about x y z", ">= 0")
    damping: Any = _leaf("ndamping", "N s/m or N m s/rad", "of dampers; of bushings six", ">= 0")
    stop: Any = _leaf("nstop 2", "m", "lengths at which bump stops begin to act")
    map: Any = _leaf("nmap", "m/s, m and N", "rates, lengths and forces of maps")
    vector: Any = _leaf("nload 3", "N or N m", "loads")


@_group
class Site:
    """Named places on bodies."""

    pos: Any = _leaf("nsite 3", "m", "origin in the body")
    quat: Any = _leaf("nsite 4", "1", "orientation in the body (w x y z, normalized where used)")


@_group
class Camera:
    pos: Any = _leaf("ncamera 3", "m", "origin in the body")
    quat: Any = _leaf("ncamera 4", "1", "orientation in the body (w x y z, normalized where used); it looks along -z")


@_group
class Light:
    pos: Any = _leaf("nlight 3", "m", "origin in the body")
    dir: Any = _leaf("nlight 3", "1", "direction in the body (normalized where used)")


@_group
class Medium:
    """What is around the bodies, where there is something."""

    density: Any = _leaf("nmedium", "kg/m^3", "density", ">= 0")
    viscosity: Any = _leaf("nmedium", "Pa s", "viscosity", ">= 0")
    wind: Any = _leaf("nmedium 3", "m/s", "velocity, world axes")
    magnetic: Any = _leaf("nmagnetic 3", "T", "magnetic field, world axes")


@_group
class Tendon:
    coefficient: Any = _leaf("ncoefficient", "1 or m/rad", "what a fixed tendon lengthens by per unit of a coordinate")
    divisor: Any = _leaf("ndivisor", "1", "by which the branch after a pulley counts less", "> 0")
    stiffness: Any = _leaf("ntendon", "N/m", "spring stiffness", ">= 0")
    damping: Any = _leaf("ntendon", "N s/m", "viscous damping", ">= 0")
    spring_length: Any = _leaf("nspringlength 2", "m", "lengths between which the spring is at rest")
    range: Any = _leaf("ntendonrange 2", "m", "least and largest length")
    friction: Any = _leaf("ntendonfriction", "N", "dry friction", ">= 0")


@_group
class Soft:
    """How soft the constraints are that are kept softly (MuJoCo's numbers)."""

    solref: Any = _leaf("nsoft 2", "s and 1", "time constant and damping ratio; both negative: minus stiffness, minus damping")
    solimp: Any = _leaf("nsoft 5", "1, m or rad", "impedance: least, largest, width, midpoint, power")
    margin: Any = _leaf("nsoft", "m or rad", "distance at which a limit begins to act")


@_group
class Equality:
    """Equalities that are kept softly."""

    anchor: Any = _leaf("nanchor 3", "m", "point in the first body (connect) or in the second (weld)")
    relpose: Any = _leaf("nrelpose 7", "m and 1", "where a weld holds the anchor in the first body, and the second body's orientation")
    torque_scale: Any = _leaf("ntorquescale", "m", "weight of a weld's rotation beside its translation")
    polynomial: Any = _leaf("npolynomial 5", "of the coordinates", "first coordinate as a polynomial of the second")


@_group
class Surface:
    """How the geoms meet that touch others (MuJoCo's numbers)."""

    friction: Any = _leaf("nsurface 3", "1, m and m", "friction: sliding, torsional, rolling", ">= 0")
    solref: Any = _leaf("nsurface 2", "s and 1", "time constant and damping ratio; both negative: minus stiffness, minus damping")
    solimp: Any = _leaf("nsurface 5", "1 or m", "impedance: least, largest, width, midpoint, power")
    solmix: Any = _leaf("nsurface", "1", "weight where two surfaces are mixed", ">= 0")
    margin: Any = _leaf("nsurface", "m", "distance at which contacts are found")
    gap: Any = _leaf("nsurface", "m", "how much less that distance is where they begin to push (3.2), or how much more (4.0)")


@_group
class Pair:
    """Contacts of pairs of geoms with numbers of their own (MuJoCo's)."""

    friction: Any = _leaf("npair 5", "1, m and m", "friction: two sliding, torsional, two rolling", ">= 0")
    solref: Any = _leaf("npair 2", "s and 1", "as surface.solref")
    friction_solref: Any = _leaf("npair 2", "s and 1", "that of the tangential rows of elliptic cones, zeros: solref")
    solimp: Any = _leaf("npair 5", "1 or m", "as surface.solimp")
    margin: Any = _leaf("npair", "m", "as surface.margin")
    gap: Any = _leaf("npair", "m", "as surface.gap")


@_group
class Cone:
    impratio: Any = _leaf("ncone", "1", "how much harder friction is kept than the normal distance", "> 0")


@_group
class Flex:
    """Deformables that act, by point, by edge, and by flex."""

    pos: Any = _leaf("nflexpoint 3", "m", "points in their bodies")
    length: Any = _leaf("nflexedge", "m", "edges at rest; the shape of elements at rest follows from them", "> 0")
    edge_stiffness: Any = _leaf("nflexspring", "N/m", "springs along edges", ">= 0")
    edge_damping: Any = _leaf("nflexspring", "N s/m", "dampers along edges", ">= 0")
    young: Any = _leaf("nflexelastic", "Pa", "Young's modulus", ">= 0")
    poisson: Any = _leaf("nflexelastic", "1", "Poisson's ratio, from 0 to below 0.5")
    damping: Any = _leaf("nflexelastic", "s", "damping of the elasticity, by stiffness (Rayleigh's)", ">= 0")
    thickness: Any = _leaf("nflexsheet", "m", "of triangles")
    radius: Any = _leaf("nflexround", "m", "of points and of the skin around elements, where they touch something", ">= 0")


@_group
class Actuator:
    """MuJoCo's actuators; the meaning of the ten numbers is that of the kinds of dynamics, gain and bias."""

    gear: Any = _leaf("nactuator 6", "of the transmission", "scales length and force")
    dynamics: Any = _leaf("nactuator 10", "of the kind", "numbers of the activation dynamics")
    gain: Any = _leaf("nactuator 10", "of the kind", "numbers of the gain")
    bias: Any = _leaf("nactuator 10", "of the kind", "numbers of the bias")
    damp_ratio: Any = _leaf("ndampratio", "1", "damping ratio of position servos that say it", ">= 0")
    crank_length: Any = _leaf("ncrank", "m", "length of connecting rods", "> 0")
    ctrl_range: Any = _leaf("nctrlrange 2", "of the control", "bounds of the control")
    force_range: Any = _leaf("nforcerange 2", "N or N m", "bounds of the force")
    act_range: Any = _leaf("nactrange 2", "of the activation", "bounds of the activation")
    length_range: Any = _leaf("nlengthrange 2", "m or rad", "least and largest length, for muscles")


GROUPS = {
    "option": Option, "body": Body, "geom": Geom, "joint": Joint, "dof": Dof, "limit": Limit, "coupling": Coupling,
    "constraint": Constraint, "function": Function, "force": ElementForce, "site": Site, "camera": Camera, "light": Light,
    "tendon": Tendon, "actuator": Actuator, "medium": Medium, "soft": Soft, "equality": Equality,
    "surface": Surface, "pair": Pair, "cone": Cone, "flex": Flex,
}  # fmt: skip
ROW_LEAVES = {"dof.friction": "nfriction", **{f"limit.{f.name}": f"n{f.name}" for f in dataclasses.fields(Limit)}}


@dataclass(frozen=True)
class Model:
    """An immutable model. ``paths()`` lists its leaves; ``get``, ``replace``, ``freeze`` address them as ``group.name``."""

    option: Option
    body: Body
    geom: Geom
    joint: Joint
    dof: Dof
    limit: Limit
    coupling: Coupling
    constraint: Constraint
    function: Function
    force: ElementForce
    site: Site
    camera: Camera
    light: Light
    tendon: Tendon
    actuator: Actuator
    medium: Medium
    soft: Soft
    equality: Equality
    surface: Surface
    pair: Pair
    cone: Cone
    flex: Flex
    topology: Topology

    nq = property(lambda self: self.topology.size("nq"), doc="Width of q.")
    nv = property(lambda self: self.topology.size("nv"), doc="Width of v.")
    nu = property(lambda self: len(self.ctrl_names), doc="Number of controls.")
    na = property(lambda self: self.topology.size("na"), doc="Number of activations.")
    body_names = property(lambda self: tuple(b.name for b in self.topology.bodies), doc="Names of the bodies, in order.")

    @property
    def ctrl_names(self) -> tuple[str, ...]:
        """What each control drives: the joint's name, ``name[i]`` for coordinate i of a joint with several; then external functions; then
        actuators."""
        top = self.topology
        actuators = (a.name or f"actuator#{i}" for i, a in enumerate(top.actuators))
        return (*(self._dof_name(dof) for dof in top.commands), *(f.name for f in _externals(top)), *actuators)

    def _dof_name(self, dof: int) -> str:
        joint = next(j for j in self.topology.joints if j.v[0] <= dof < sum(j.v))
        return joint.name if joint.v[1] == 1 else f"{joint.name}[{dof - joint.v[0]}]"

    def declaration(self, path: str) -> Leaf:
        """Shape, unit and meaning of a leaf. Raises KeyError where there is no such leaf."""
        return _declarations(self)[self._check(path)]

    def paths(self) -> tuple[str, ...]:
        """Paths of all leaves, frozen ones included."""
        return tuple(_declarations(self))

    def shape(self, path: str) -> tuple[int, ...]:
        """Shape of a leaf when it is shared by all environments."""
        return tuple(s if isinstance(s, int) else self.topology.size(s) for s in self.declaration(path).shape)

    def get(self, path: str):
        """The leaf at ``path`` (an array, or a `Frozen`)."""
        group, name = self._check(path).split(".", 1)
        holder = getattr(self, group)
        return holder.params[name[len("params.") :]] if name.startswith("params.") else getattr(holder, name)

    def replace(self, changes: dict[str, Any]) -> Model:
        """A model with new leaves ``{path: value}``.

        A value has the leaf's shape or ``(*batch, *shape)`` and takes the leaf's dtype. Raises KeyError for an unknown path and
        ValueError for a wrong shape or a frozen leaf.
        """
        model = self
        for path, value in changes.items():
            old = model.get(path)
            if isinstance(old, Frozen):
                raise ValueError(f"{path} is frozen: it is a constant of the compiled program; load the model again to change it")
            value = jnp.asarray(value, dtype=old.dtype)
            shape = self.shape(path)
            if value.shape[value.ndim - len(shape) :] != shape:
                raise ValueError(f"{path}: shape {value.shape} does not end in {shape}")
            model = model._put(path, value)
        return model

    def freeze(self, *patterns: str) -> Model:
        """Move leaves (paths or patterns such as ``"geom.*"``) into the static part.

        Their values become constants of the compiled program, where zeros and ones are folded; they can no longer be replaced,
        batched or differentiated. Raises KeyError where a pattern matches nothing, ValueError for a per-environment leaf.
        """
        model = self
        for pattern in patterns:
            matches = fnmatch.filter(self.paths(), pattern)
            if not matches:
                self._check(pattern)
            for path in matches:
                value = model.get(path)
                if isinstance(value, Frozen):
                    continue
                if value.shape != self.shape(path):
                    raise ValueError(f"{path} differs between environments and cannot be frozen")
                model = model._put(path, Frozen(value))
        return model

    def _put(self, path: str, value) -> Model:
        group, name = path.split(".", 1)
        holder = getattr(self, group)
        if name.startswith("params."):
            name, value = "params", {**holder.params, name[len("params.") :]: value}
        return dataclasses.replace(self, **{group: dataclasses.replace(holder, **{name: value})})

    def _check(self, path: str) -> str:
        paths = _declarations(self)
        if path not in paths:
            raise KeyError(f"no leaf {path!r}; leaves: {', '.join(paths)}")
        return path


jax.tree_util.register_dataclass(Model, data_fields=list(GROUPS), meta_fields=["topology"])


def _externals(topology: Topology) -> list[FunctionInfo]:
    return [f for f in topology.functions if f.kind == "external"]


def _declarations(model: Model) -> dict[str, Leaf]:
    from xsim.joints.types import JOINT_TYPES

    out = {}
    for group, cls in GROUPS.items():
        for f in dataclasses.fields(cls):
            if "leaf" in f.metadata:
                out[f"{group}.{f.name}"] = f.metadata["leaf"]
    for name in model.joint.params:
        joint_type, parameter = name.rsplit(".", 1)
        p = JOINT_TYPES[joint_type].parameters[parameter]
        count = sum(j.type == joint_type for j in model.topology.joints)
        out[f"joint.params.{name}"] = Leaf((count, *p.shape), p.unit, p.doc)
    return out


# ---- state -------------------------------------------------------------------------------------------------------------------


class Flags:
    """Bits of ``State.flags``; they stay set until the state is replaced."""

    DIVERGED = 1  #: a number of the state is not finite
    SINGULAR = 2  #: the mass matrix had no inverse; the motion it cannot determine was given unit inertia
    UNSOLVED = 4  #: friction, limits or soft constraints were not solved within the bound on iterations
    CONTACT_OVERFLOW = 8  #: more contacts than the buffer holds: the shallowest were left out (see `xsim.with_contact_limit`)


@_group
class State:
    """What cannot be recomputed. q: (*batch, nq), v: (*batch, nv), time: (*batch,) s, flags: (*batch,) int32 (see `Flags`), act:
    (*batch, na) activations of actuators, mocap: (*batch, nmocap, 7) world poses (position m, quaternion) of the mocap bodies."""

    q: Any
    v: Any
    time: Any
    flags: Any
    act: Any
    mocap: Any

    def replace(self, **changes) -> State:
        return dataclasses.replace(self, **changes)


@_group
class Data:
    """What one `forward` computed, world axes, batch first.

    pos (*batch, nbody, 3) m and quat (*batch, nbody, 4): body frames. lin, ang: velocity of the body origins (m/s) and angular
    velocity (rad/s). lin_acc, ang_acc: their rates (m/s^2, rad/s^2), gravity not subtracted. a: generalized acceleration;
    bias, passive, tau, actuator: generalized forces (*batch, nv); actuator_force, actuator_length (*batch, actuators), act_rate
    (*batch, na): of the actuators; element: that of springs, bushings, motors and loads
    between bodies; constraint: that of all constraints (holonomic rows and prescribed dofs; soft ones; dry friction, limits and
    servos that are impulses as the mean over a step). external_force, external_moment (*batch, nbody, 3): what contacts, connects and
    welds do to each body, the moment about the body frame's origin. residual (*batch,): the largest error of the forces of soft
    constraints beside the largest force. sensor: (*batch, nsensordata).
    flags: what this evaluation would set in the state.
    """

    pos: Any
    quat: Any
    lin: Any
    ang: Any
    lin_acc: Any
    ang_acc: Any
    a: Any
    bias: Any
    passive: Any
    tau: Any
    actuator: Any
    actuator_force: Any
    actuator_length: Any
    act_rate: Any
    element: Any
    constraint: Any
    external_force: Any
    external_moment: Any
    residual: Any
    sensor: Any
    flags: Any
