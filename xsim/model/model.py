"""Model and State: immutable pytrees.

Every numerical parameter of a model is an array leaf. It is declared once below, with shape, unit and meaning; documentation, checks,
randomization and identification read the declarations. The structure (the tree, the types of joints) is one hashable `Topology`.

A leaf has its declared shape (shared by all environments) or ``(*batch, *shape)`` (one per environment).
"""

from __future__ import annotations

import dataclasses
import enum
import fnmatch
from dataclasses import dataclass
from typing import Any, NamedTuple, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

from xsim.model.names import Named
from xsim.model.selectors import entry
from xsim.model.topology import Table, Topology
from xsim.suggestions import unknown_leaf

__all__ = [
    "Actuator", "Body", "Camera", "Cone", "Constraint", "Coupling", "Dof", "ElementForce", "Equality", "Flags", "Function", "Geom",
    "Joint", "Leaf", "Light", "Limit", "Medium", "Model", "Option", "Pair", "Passive", "Sensor", "Site", "Soft", "State",
    "Surface", "Tendon", "leaf_group", "shapes",
]  # fmt: skip


# ---- leaves ------------------------------------------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """Declaration of a leaf: names or lengths of its dimensions, unit, meaning, and lower bound of its values (``"> 0"``, ``">= 0"``)."""

    shape: tuple
    unit: str
    doc: str
    sign: str = ""


def is_below(numbers: np.ndarray, sign: str) -> np.ndarray:
    """Which numbers are below the bound of a leaf, see `Leaf`."""
    return numbers <= 0 if sign == "> 0" else numbers < 0


@jax.tree_util.register_pytree_node_class
class Frozen(Table):
    """A leaf that `Model.freeze` has moved into the static part: a constant of the compiled program."""

    shape = property(lambda self: self.value.shape)
    dtype = property(lambda self: self.value.dtype)
    ndim = property(lambda self: self.value.ndim)

    def tree_flatten(self):
        return (), self

    @classmethod
    def tree_unflatten(cls, aux, children):
        return aux


def unfrozen(leaf):
    """The value of a leaf, whether it is frozen or an array."""
    return leaf.value if isinstance(leaf, Frozen) else leaf


def _leaf(shape: str, unit: str, doc: str, sign: str = "") -> Any:
    return dataclasses.field(metadata={"leaf": Leaf(tuple(int(s) if s.isdigit() else s for s in shape.split()), unit, doc, sign)})


@dataclass_transform(frozen_default=True)
def leaf_group(cls):
    cls = dataclass(frozen=True)(cls)
    jax.tree_util.register_dataclass(cls, data_fields=[f.name for f in dataclasses.fields(cls)], meta_fields=[])
    return cls


@leaf_group
class Option:
    gravity: Any = _leaf("3", "m/s^2", "acceleration of free fall, world axes")
    dt: Any = _leaf("", "s", "time step", "> 0")
    regularization: Any = _leaf("", "kg or kg m^2", "added to the diagonal of the mass matrix by the solve", ">= 0")


@leaf_group
class Body:
    pos: Any = _leaf("nbody 3", "m", "origin of the joint frame, in the parent body")
    quat: Any = _leaf("nbody 4", "1", "orientation of the joint frame in the parent body (w x y z, normalized where used)")
    mass: Any = _leaf("nexplicit", "kg", "mass, for bodies with explicit inertia", ">= 0")
    com: Any = _leaf("nexplicit 3", "m", "centre of mass, body frame")
    inertia: Any = _leaf("nexplicit 6", "kg m^2", "inertia about the centre of mass, body axes: xx yy zz xy xz yz")
    gravity: Any = _leaf("ngravity", "1", "factor of gravity, for bodies with another factor than 1")
    gravcomp: Any = _leaf("ngravcomp", "1", "gravity compensation: upward force at the centre of mass, as a fraction of the weight")


@leaf_group
class Geom:
    size: Any = _leaf("ngeom 3", "m", "half extents (see xsim.spec), unused entries 0", ">= 0")
    mass: Any = _leaf("nmass", "kg", "mass, uniform over the volume", ">= 0")
    pos: Any = _leaf("ngeom 3", "m", "centre, body frame")
    quat: Any = _leaf("ngeom 4", "1", "orientation in the body frame (w x y z, normalized where used)")
    density: Any = _leaf("ndensity", "kg/m^3", "density, for geoms with density instead of mass", ">= 0")
    surface_velocity: Any = _leaf("nsurfacevelocity 6", "m/s and rad/s", "velocity of the surface on its body, geom frame: linear, angular")
    adhesion: Any = _leaf("nadhesion", "N", "force with which each contact of the geom can pull")
    sdf: Any = _leaf("nsdf", "of the kind", "numbers of signed distance functions, one after the other")
    fluid: Any = _leaf("nfluid 5", "1", "fluid coefficients: blunt, slender, angular drag, Kutta, Magnus lift", ">= 0")


@leaf_group
class Joint:
    axes: Any = _leaf("naxis 3", "1", "axes of hinges, slides and screws (normalized where used)")
    pitch: Any = _leaf("npitch", "m/rad", "translation of screws per radian")
    pos: Any = _leaf("nframe 3", "m", "origin of the joint frame in the body, where the frames differ")
    quat: Any = _leaf("nframe 4", "1", "orientation of the joint frame in the body (w x y z, normalized where used)")
    spring_ref: Any = _leaf("nq", "m, rad or 1", "reference configuration of the springs")
    ref: Any = _leaf("nref", "m or rad", "position of hinges and slides in the reference configuration, where it is not zero")
    stiffness_poly: Any = _leaf("nstiffnesspoly 2", "N/m^2, ...", "stiffness of second and third order")
    damping_poly: Any = _leaf("ndampingpoly 2", "N s^2/m^2, ...", "damping of second and third order")
    spring_yield: Any = _leaf("nspringyield", "m or rad", "largest elastic displacement of springs that yield", ">= 0")
    spring_damper: Any = _leaf("nspringdamper 2", "s and 1", "time constant and damping ratio of springs", "> 0")
    params: Any = dataclasses.field(metadata={"params": True})


@leaf_group
class Dof:
    damping: Any = _leaf("nv", "N s/m or N m s/rad", "viscous damping", ">= 0")
    armature: Any = _leaf("nv", "kg or kg m^2", "armature inertia, added to the diagonal of the mass matrix", ">= 0")
    stiffness: Any = _leaf("nv", "N/m or N m/rad", "spring stiffness", ">= 0")
    friction: Any = _leaf("nfriction", "N or N m", "dry friction", ">= 0")


@leaf_group
class Limit:
    """Bounds of the dofs that have limits. The position of a ball is its rotation vector."""

    lower: Any = _leaf("nlower", "m or rad", "least position")
    upper: Any = _leaf("nupper", "m or rad", "largest position")
    angle: Any = _leaf("nangle", "rad", "largest rotation of balls", ">= 0")
    velocity_lower: Any = _leaf("nvelocity_lower", "m/s or rad/s", "least velocity")
    velocity_upper: Any = _leaf("nvelocity_upper", "m/s or rad/s", "largest velocity")
    force_lower: Any = _leaf("nforce_lower", "N or N m", "least force of the drive")
    force_upper: Any = _leaf("nforce_upper", "N or N m", "largest force of the drive")
    actuator_lower: Any = _leaf("nactuator_lower", "N or N m", "least sum of the actuator forces")
    actuator_upper: Any = _leaf("nactuator_upper", "N or N m", "largest sum of the actuator forces")


@leaf_group
class Coupling:
    """Linear couplings of two coordinates (mimic): follower = multiplier (leader - reference) + offset."""

    multiplier: Any = _leaf("ncoupling", "follower per leader", "ratio of the follower's to the leader's motion")
    offset: Any = _leaf("ncoupling", "m or rad", "position of the follower when the leader is at the reference")
    reference: Any = _leaf("ncoupling", "m or rad", "position of the leader when the follower is at the offset")


@leaf_group
class Constraint:
    """Holonomic constraints between a frame of a first body and a frame of a second body."""

    pos1: Any = _leaf("nconstraint 3", "m", "origin in the first body")
    quat1: Any = _leaf("nconstraint 4", "1", "orientation in the first body (w x y z, normalized where used)")
    pos2: Any = _leaf("nconstraint 3", "m", "origin in the second body")
    quat2: Any = _leaf("nconstraint 4", "1", "orientation in the second body (w x y z, normalized where used)")
    value: Any = _leaf("nvalue", "m", "constant lengths of constraints")


@leaf_group
class Function:
    """Functions of time, and tables of force laws."""

    numbers: Any = _leaf("nfunction", "of the function", "parameters; points of tables as x, y, x, y, ...")


@leaf_group
class ElementForce:
    """Springs, dampers, bushings and motors between frames of two bodies, and loads on one body (the first)."""

    pos1: Any = _leaf("nforce 3", "m", "origin in the first body (for a load at a point of the world: in the world)")
    quat1: Any = _leaf("nforce 4", "1", "orientation in the first body (w x y z, normalized where used)")
    pos2: Any = _leaf("nforce 3", "m", "origin in the second body")
    quat2: Any = _leaf("nforce 4", "1", "orientation in the second body (w x y z, normalized where used)")
    rest: Any = _leaf("nspring", "m or rad", "rest length or rest angle")
    preload: Any = _leaf("nspring", "N or N m", "force at the rest length")
    stiffness: Any = _leaf("nstiffness", "N/m or N m/rad", "stiffness of springs; six of bushings, along and about x y z", ">= 0")
    damping: Any = _leaf("ndamping", "N s/m or N m s/rad", "damping; six of bushings, along and about x y z", ">= 0")
    stop: Any = _leaf("nstop 2", "m", "least and largest length without contact with the bump stops")
    map: Any = _leaf("nmap", "m/s, m and N", "rates, lengths and forces of maps")
    vector: Any = _leaf("nload 3", "N or N m", "force or moment of a load")


@leaf_group
class Site:
    """Named frames on bodies."""

    pos: Any = _leaf("nsite 3", "m", "origin in the body")
    quat: Any = _leaf("nsite 4", "1", "orientation in the body (w x y z, normalized where used)")


@leaf_group
class Camera:
    pos: Any = _leaf("ncamera 3", "m", "origin in the body")
    quat: Any = _leaf("ncamera 4", "1", "orientation in the body (w x y z, normalized where used); the view is along -z")


@leaf_group
class Light:
    pos: Any = _leaf("nlight 3", "m", "origin in the body")
    dir: Any = _leaf("nlight 3", "1", "direction in the body (normalized where used)")


@leaf_group
class Medium:
    """Fluid and magnetic field around the bodies."""

    density: Any = _leaf("nmedium", "kg/m^3", "density", ">= 0")
    viscosity: Any = _leaf("nmedium", "Pa s", "viscosity", ">= 0")
    wind: Any = _leaf("nmedium 3", "m/s", "velocity, world axes")
    magnetic: Any = _leaf("nmagnetic 3", "T", "magnetic field, world axes")


@leaf_group
class Tendon:
    coefficient: Any = _leaf("ncoefficient", "1 or m/rad", "change of length of a fixed tendon per unit of a coordinate")
    divisor: Any = _leaf("ndivisor", "1", "divisor of the length of the branch after a pulley", "> 0")
    stiffness: Any = _leaf("ntendon", "N/m", "spring stiffness", ">= 0")
    damping: Any = _leaf("ntendon", "N s/m", "viscous damping", ">= 0")
    spring_length: Any = _leaf("nspringlength 2", "m", "range of lengths without spring force")
    range: Any = _leaf("ntendonrange 2", "m", "least and largest length")
    friction: Any = _leaf("ntendonfriction", "N", "dry friction", ">= 0")
    armature: Any = _leaf("ntendonarmature", "kg", "armature inertia: kinetic energy per half squared rate of the length", ">= 0")
    stiffness_poly: Any = _leaf("ntendonstiffnesspoly 2", "N/m^2, N/m^3", "stiffness of second and third order")
    damping_poly: Any = _leaf("ntendondampingpoly 2", "N s^2/m^2, N s^3/m^3", "damping of second and third order")
    force_range: Any = _leaf("ntendonforcerange 2", "N", "bounds of the sum of the actuator forces")
    spring_yield: Any = _leaf("ntendonspringyield", "m", "largest elastic extension of springs that yield", ">= 0")


@leaf_group
class Soft:
    """Solver parameters of the soft constraints (as in MuJoCo)."""

    solref: Any = _leaf("nsoft 2", "s and 1", "time constant and damping ratio; both negative: minus stiffness, minus damping")
    solimp: Any = _leaf("nsoft 5", "1, m or rad", "impedance: least, largest, width, midpoint, power")
    margin: Any = _leaf("nsoft", "m or rad", "distance to a limit at which it becomes active")


@leaf_group
class Equality:
    """Soft equality constraints."""

    anchor: Any = _leaf("nanchor 3", "m", "point in the first body (connect) or in the second (weld)")
    relpose: Any = _leaf("nrelpose 7", "m and 1", "weld: anchor in the first body, and orientation of the second body in the first")
    torque_scale: Any = _leaf("ntorquescale", "m", "weight of the rotation of a weld relative to its translation")
    polynomial: Any = _leaf("npolynomial 5", "of the coordinates", "first coordinate as a polynomial of the second")


@leaf_group
class Surface:
    """Contact parameters of the geoms that collide (as in MuJoCo)."""

    friction: Any = _leaf("nsurface 3", "1, m and m", "friction: sliding, torsional, rolling", ">= 0")
    solref: Any = _leaf("nsurface 2", "s and 1", "time constant and damping ratio; both negative: minus stiffness, minus damping")
    solimp: Any = _leaf("nsurface 5", "1 or m", "impedance: least, largest, width, midpoint, power")
    solmix: Any = _leaf("nsurface", "1", "weight in a mixture of two surfaces", ">= 0")
    margin: Any = _leaf("nsurface", "m", "contact distance, see gap")
    gap: Any = _leaf("nsurface", "m", "contacts are detected below margin (MuJoCo 3.2) or margin + gap (4.0), active below that minus gap")


@leaf_group
class Pair:
    """Contact parameters of explicit pairs of geoms (as in MuJoCo)."""

    friction: Any = _leaf("npair 5", "1, m and m", "friction: two sliding, torsional, two rolling", ">= 0")
    solref: Any = _leaf("npair 2", "s and 1", "as surface.solref")
    friction_solref: Any = _leaf("npair 2", "s and 1", "solref of the tangential rows of elliptic cones; zeros: as solref")
    solimp: Any = _leaf("npair 5", "1 or m", "as surface.solimp")
    margin: Any = _leaf("npair", "m", "as surface.margin")
    gap: Any = _leaf("npair", "m", "as surface.gap")
    adhesion: Any = _leaf("npairadhesion", "N", "force with which each contact of the pair can pull")


@leaf_group
class Cone:
    impratio: Any = _leaf("ncone", "1", "ratio of frictional to normal constraint impedance", "> 0")


@leaf_group
class Flex:
    """Parameters of the flexes (deformable bodies), per point, per edge and per flex."""

    pos: Any = _leaf("nflexpoint 3", "m", "positions of the points in their bodies")
    length: Any = _leaf("nflexedge", "m", "rest lengths of the edges, which also determine the rest shape of the elements", "> 0")
    edge_stiffness: Any = _leaf("nflexspring", "N/m", "stiffness of the edges", ">= 0")
    edge_damping: Any = _leaf("nflexspring", "N s/m", "damping of the edges", ">= 0")
    young: Any = _leaf("nflexelastic", "Pa", "Young's modulus", ">= 0")
    poisson: Any = _leaf("nflexelastic", "1", "Poisson's ratio, from 0 to below 0.5")
    damping: Any = _leaf("nflexelastic", "s", "Rayleigh damping, proportional to stiffness", ">= 0")
    thickness: Any = _leaf("nflexsheet", "m", "thickness of triangles")
    radius: Any = _leaf("nflexround", "m", "collision radius of points and elements", ">= 0")
    shear: Any = _leaf("nflexrod", "Pa", "shear modulus of lines that twist, 0: that of an isotropic material", ">= 0")
    yield_strain: Any = _leaf("nflexyield", "1", "equivalent strain at which elements yield", ">= 0")
    bend_yield_strain: Any = _leaf("nflexfold", "1", "strain of the surface of triangles at which their bending yields", ">= 0")
    section: Any = _leaf("nflexbox 2", "m", "half sides of lines that are boxes, along their normal and perpendicular to it", "> 0")
    side: Any = _leaf("nflexgrid 3", "m", "sides of the cells at rest, of flexes with a grid of nodes", "> 0")
    curvature: Any = _leaf("nflexbend 2", "1", "rest curvature at the inner points of chains of lines, see `xsim.spec.RodSpec`")
    angle: Any = _leaf("nflexhinge", "rad", "rest angles between neighbouring triangles that resist bending, 0 where they are flat")


@leaf_group
class Actuator:
    """Actuators (as in MuJoCo). The kinds of dynamics, gain and bias define the ten parameters of each."""

    gear: Any = _leaf("nactuator 6", "of the transmission", "scales length and force")
    dynamics: Any = _leaf("nactuator 10", "of the kind", "parameters of the activation dynamics")
    gain: Any = _leaf("nactuator 10", "of the kind", "parameters of the gain")
    bias: Any = _leaf("nactuator 10", "of the kind", "parameters of the bias")
    damp_ratio: Any = _leaf("ndampratio", "1", "damping ratio of position servos", ">= 0")
    crank_length: Any = _leaf("ncrank", "m", "length of connecting rods", "> 0")
    ctrl_range: Any = _leaf("nctrlrange 2", "of the control", "bounds of the control")
    force_range: Any = _leaf("nforcerange 2", "N or N m", "bounds of the force")
    act_range: Any = _leaf("nactrange 2", "of the activation", "bounds of the activation")
    armature: Any = _leaf("nactuatorarmature", "of the transmission", "armature inertia at the actuator; times gear^2 at its target")
    damping: Any = _leaf("nactuatordamping", "of the transmission", "viscous damping at the actuator; times gear^2 at its target")
    damping_poly: Any = _leaf("nactuatordampingpoly 2", "of the transmission", "damping of second and third order")
    length_range: Any = _leaf("nlengthrange 2", "m or rad", "least and largest length, for muscles")
    delay: Any = _leaf("nactuatordelay", "s", "time after which a control acts", ">= 0")


@leaf_group
class Passive:
    """Passive forces of the registry. The kind of each defines its numbers."""

    numbers: Any = _leaf("npassivenumber", "of the kind", "numbers of passive forces, one after the other")


@leaf_group
class Sensor:
    """Sensors with a history of their readings."""

    delay: Any = _leaf("nsensordelay", "s", "age of the readings", ">= 0")


GROUPS = {
    "option": Option, "body": Body, "geom": Geom, "joint": Joint, "dof": Dof, "limit": Limit, "coupling": Coupling,
    "constraint": Constraint, "function": Function, "force": ElementForce, "site": Site, "camera": Camera, "light": Light,
    "tendon": Tendon, "actuator": Actuator, "passive": Passive, "sensor": Sensor, "medium": Medium, "soft": Soft, "equality": Equality,
    "surface": Surface, "pair": Pair, "cone": Cone, "flex": Flex,
}  # fmt: skip
LEAVES: dict[str, Leaf] = {
    f"{name}.{f.name}": f.metadata["leaf"] for name, cls in GROUPS.items() for f in dataclasses.fields(cls) if "leaf" in f.metadata
}
"""The declarations of all leaves by path, those of general joints apart: these depend on the model."""
ROW_LEAVES = {"dof.friction": "nfriction", **{f"limit.{f.name}": f"n{f.name}" for f in dataclasses.fields(Limit)}}


@dataclass(frozen=True)
class Model(Named):
    """An immutable model: groups of leaves and the static topology.

    ``paths()`` lists the leaves. ``get``, ``replace`` and ``freeze`` take their paths, ``group.name``."""

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
    passive: Passive
    sensor: Sensor
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

    def __repr__(self) -> str:
        top, dt = self.topology, getattr(self.option.dt, "value", self.option.dt)
        step = f"dt {float(dt):g} s" if np.ndim(dt) == 0 and not isinstance(dt, jax.core.Tracer) else "dt by environment"
        bodies = f"{len(top.bodies)} bod{'y' if len(top.bodies) == 1 else 'ies'}"
        own = f", by environment: {', '.join(self.batched_paths())}" if self.batched_paths() else ""
        return f"Model({top.name!r}: {bodies}, nq {self.nq}, nv {self.nv}, nu {self.nu}, {top.integrator}, {step}{own})"

    def declaration(self, path: str) -> Leaf:
        """Shape, unit and meaning of a leaf. Raises KeyError for an unknown path."""
        return _declarations(self)[self._check(path)]

    def paths(self) -> tuple[str, ...]:
        """Paths of all leaves, frozen ones included."""
        return tuple(_declarations(self))

    def batched_paths(self) -> tuple[str, ...]:
        """Paths of the leaves that differ between environments."""
        return tuple(path for path in self.paths() if np.ndim(self.get(path)) > len(self.shape(path)))

    def shape(self, path: str) -> tuple[int, ...]:
        """Shape of a leaf when it is shared by all environments."""
        return tuple(s if isinstance(s, int) else self.topology.size(s) for s in self.declaration(path).shape)

    def get(self, selector: str):
        """The leaf at a path (``"geom.mass"``), an array or a `Frozen`; or some of its rows as an array, see `xsim.model.selectors`.

        ``"geom.mass[torso]"`` is one row (*batch, *row), or several (*batch, rows, *row) where the name stands for several. Raises KeyError
        for an unknown leaf or row.
        """
        if "[" in selector:
            part = entry(self, selector)
            leaf = self.get(part.path)
            return jnp.asarray(unfrozen(leaf))[(..., *part.index)]
        group_name, name = self._check(selector).split(".", 1)
        group = getattr(self, group_name)
        return group.params[name[len("params.") :]] if name.startswith("params.") else getattr(group, name)

    def replace(self, changes: dict[str, Any]) -> Model:
        """The model with some leaves, or some of their rows, replaced. changes: {selector: value}, see `get`.

        A value has the shape of what it replaces or ``(*batch, *shape)``, and is converted to the dtype of the leaf; one number stands for
        all rows of a selector with brackets: ``"dof.damping[*]"``. Raises KeyError for an unknown leaf or row, and ValueError for a wrong
        shape, a frozen leaf, or a concrete value below the bound of the leaf (a negative mass or damping; traced values are not checked).
        """
        model = self
        for selector, value in changes.items():
            path, value = model._whole(selector, value) if "[" in selector else (selector, value)
            old = model.get(path)
            if isinstance(old, Frozen):
                raise ValueError(f"{path} is frozen: it is a constant of the compiled program; load the model again to change it")
            value = as_array(value, old.dtype)
            shape = self.shape(path)
            if value.shape[value.ndim - len(shape) :] != shape:
                hint = "" if value.ndim else f"; '{path}[*]' sets all rows to one number"
                raise ValueError(f"{path}: shape {value.shape} does not end in {shape}{hint}")
            _check_sign(path, value, self.declaration(path).sign)
            model = model._put(path, value)
        return model

    def _whole(self, selector: str, value) -> tuple[str, Any]:
        """The path of a selector with brackets, and the leaf with the selected rows replaced."""
        part = entry(self, selector)
        leaf = self.get(part.path)
        if isinstance(leaf, Frozen):
            return part.path, leaf.value
        value = jnp.asarray(value, leaf.dtype)
        if value.ndim and value.shape[value.ndim - len(part.shape) :] != part.shape:
            raise ValueError(f"{selector}: shape {value.shape} does not end in {part.shape}")
        shape = self.shape(part.path)
        batch = jnp.broadcast_shapes(value.shape[: max(0, value.ndim - len(part.shape))], leaf.shape[: leaf.ndim - len(shape)])
        return part.path, jnp.broadcast_to(leaf, (*batch, *shape)).at[(..., *part.index)].set(value)

    def freeze(self, *patterns: str) -> Model:
        """The model with some leaves moved into the static part. patterns: paths, or patterns such as ``"geom.*"``.

        The values become constants of the compiled program, in which zeros and ones are folded. They can no longer be replaced, batched or
        differentiated. Raises KeyError for a pattern without a match, and ValueError for a leaf that differs between environments.
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
        group_name, name = path.split(".", 1)
        group = getattr(self, group_name)
        if name.startswith("params."):
            name, value = "params", {**group.params, name[len("params.") :]: value}
        return dataclasses.replace(self, **{group_name: dataclasses.replace(group, **{name: value})})

    def _check(self, path: str) -> str:
        paths = _declarations(self)
        if path not in paths:
            raise KeyError(unknown_leaf(path, paths))
        return path


def _check_sign(path: str, value, sign: str) -> None:
    """Raise ValueError for a concrete value below the bound of its leaf, see `Leaf`. What other processes hold is not seen."""
    if not sign or isinstance(value, jax.core.Tracer) or not value.is_fully_addressable:
        return
    numbers = np.asarray(value)
    below = numbers[is_below(numbers, sign)]
    if below.size:
        raise ValueError(f"{path} must be {sign}, found {below.min():g}")


jax.tree_util.register_dataclass(Model, data_fields=list(GROUPS), meta_fields=["topology"])


def _declarations(model: Model) -> dict[str, Leaf]:
    from xsim.joints.types import JOINT_TYPES

    out = dict(LEAVES)
    for name in model.joint.params:
        joint_type, parameter = name.rsplit(".", 1)
        p = JOINT_TYPES[joint_type].parameters[parameter]
        count = sum(j.type == joint_type for j in model.topology.joints)
        out[f"joint.params.{name}"] = Leaf((count, *p.shape), p.unit, p.doc)
    return out


# ---- state -------------------------------------------------------------------------------------------------------------------


def as_array(x, dtype):
    """x as an array of jax. Nothing is compiled for numbers of Python and numpy; `jnp.asarray` compiles a copy for each shape, 15 ms."""
    return jax.device_put(np.asarray(x, dtype)) if isinstance(x, (np.ndarray, np.generic, float, int)) else jnp.asarray(x, dtype)


def shapes(group) -> str:
    """A group of arrays as text: the name and shape of each that is not empty, also within tables and tuples of them."""
    return f"{type(group).__name__}({_named_shapes((f.name, getattr(group, f.name)) for f in dataclasses.fields(group))})"


def _named_shapes(items) -> str:
    return ", ".join(f"{name} {_shape(x)}" for name, x in items if 0 not in getattr(x, "shape", ()))


def _shape(x) -> str:
    if isinstance(x, dict):
        return f"{{{_named_shapes(x.items())}}}"
    if hasattr(x, "_fields"):
        return f"({_named_shapes(zip(x._fields, x, strict=True))})"
    return str(getattr(x, "shape", x))


class Flags(enum.IntFlag):
    """Bits of ``State.flags``. A bit stays set in all later states. ``Flags(int(flags))`` names those that are set."""

    DIVERGED = 1  #: a number of the state is not finite
    SINGULAR = 2  #: the mass matrix is singular; a motion without inertia is given unit inertia
    UNSOLVED = 4  #: the solver of friction, limits or soft constraints did not converge
    CONTACT_OVERFLOW = 8  #: more contacts than the buffer has entries; the shallowest are dropped (see `xsim.with_contact_limit`)


@leaf_group
class State:
    """The state of the environments.

    * q (*batch, nq): configuration. v (*batch, nv): velocity.
    * time (*batch,): s.
    * flags (*batch,): int32, see `Flags`.
    * act (*batch, na): activations of the actuators.
    * mocap (*batch, nmocap, 7): world poses (position in m, quaternion w x y z) of the mocap bodies.
    * history (*batch, nhistory): past controls and readings of actuators and sensors with a delay, up to ``time``.
    * plastic (*batch, nplastic): rest positions and lengths of springs that yield; numbers of flexes, see `xsim.dynamics.flex`.
    """

    q: Any
    v: Any
    time: Any
    flags: Any
    act: Any
    mocap: Any
    history: Any
    plastic: Any

    def replace(self, **changes) -> State:
        """The state with some fields replaced."""
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        return shapes(self)
