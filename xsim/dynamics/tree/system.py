"""The model as the dynamics reads it: components of its leaves, quantities derived from them, tables of the tree structure.

`components` runs in each call of a public function, outside the loop of a rollout. Inside the compiled function it computes the inertias of
welded bodies and of geoms, unit axes and unit quaternions from the leaves.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp

from xsim.dynamics.layout import Lanes
from xsim.joints.elementary import Elementary, Numbers, elementary
from xsim.joints.types import JOINT_TYPES
from xsim.model.model import (
    Actuator,
    Cone,
    Coupling,
    Dof,
    ElementForce,
    Equality,
    Flex,
    Frozen,
    Geom,
    Limit,
    Medium,
    Model,
    Option,
    Pair,
    Passive,
    Site,
    Soft,
    Surface,
    Tendon,
)
from xsim.model.topology import Topology
from xsim.spatial import (
    IDENTITY,
    ZERO3,
    Inertia,
    Pose,
    Vector,
    add,
    compose,
    inertia_add,
    inertia_move,
    matrix,
    mul,
    neg,
    normalize,
    quat_conj,
    rotate,
    scale,
    stage,
    sub,
    total,
)

NO_INERTIA = Inertia(0.0, ZERO3, (0.0,) * 6)


class Block(NamedTuple):
    """A joint that translates, then rotates.

    * slides, rotating: its links that translate and that rotate.
    * damper, armature: the axes ("body" or "parent") along which they act, None for the axes of its velocities.
    """

    body: int
    slides: tuple[int, ...]
    rotating: tuple[int, ...]
    damper: str | None
    armature: str | None


@dataclass(frozen=True)
class Tables:
    """Structure of the tree, computed from the topology.

    * root: per link, the link whose origin is the reference point of its tree.
    * dof_link: per dof, its link.
    * ancestors: per dof, the dofs that move it, from the root on.
    * descendants: per dof, the dofs that it moves.
    * chain: per link, the dofs that move it.
    * at_link: per body, whether its frame is the frame of its link.
    * blocks: a `Block` for each joint whose damping or armature acts along other axes than its velocities.
    """

    root: tuple[int, ...]
    dof_link: tuple[int, ...]
    ancestors: tuple[tuple[int, ...], ...]
    descendants: tuple[tuple[int, ...], ...]
    chain: tuple[tuple[int, ...], ...]
    at_link: tuple[bool, ...]
    blocks: tuple[Block, ...]


@functools.lru_cache(maxsize=256)
def tables(topology: Topology) -> Tables:
    """The tables of a topology."""
    links, bodies = topology.links, topology.bodies
    root, dof_link, ancestors = [], [], []
    chains: list[tuple[int, ...]] = []
    for index, link in enumerate(links):
        root.append(bodies[link.body].link if link.parent < 0 else root[link.parent])
        chain = chains[link.parent] if link.parent >= 0 else ()
        for dof in range(link.v, link.v + link.nv):
            dof_link.append(index)
            ancestors.append(chain)
            chain = (*chain, dof)
        chains.append(chain)
    n = len(ancestors)
    descendants = tuple(tuple(k for k in range(n) if i in ancestors[k]) for i in range(n))
    at_link, blocks = [], []
    for index, body in enumerate(bodies):
        at_link.append(body.v[1] > 0 and body.frame is None)
        for number, joint in enumerate(body.joints):
            joint_links = [i for i, link in enumerate(links) if (link.body, link.joint) == (index, number)]
            slides = []
            for i in joint_links:
                if links[i].kind != "slide":
                    break
                slides.append(i)
            rotating = [i for i in joint_links[len(slides) :] if links[i].kind in ("hinge", "ball")]
            laws = [None if axes == "joint" else axes for axes in (joint.damper_axes, joint.armature_axes)]
            if slides and rotating and any(laws):
                blocks.append(Block(index, tuple(slides), tuple(rotating), *laws))
    return Tables(tuple(root), tuple(dof_link), tuple(ancestors), descendants, tuple(chains), tuple(at_link), tuple(blocks))


class Mobility(NamedTuple):
    """Inverse weights at the initial configuration (MuJoCo: invweight0), for soft constraints.

    * dofs: diagonal of M^-1, averaged over the dofs of a ball and over each half of a free joint.
    * tendons: J M^-1 J^T of each tendon.
    * bodies: per body, means of J M^-1 J^T over the directions of force and of moment at its centre of mass; 0 for a fixed body.
    * lengths: lengths of the tendons.
    * edges: J M^-1 J^T of the flex edges of constant length, (edges, lanes or 1).
    """

    dofs: list
    tendons: list
    bodies: dict
    lengths: list
    edges: object = None


class Links(NamedTuple):
    """Per link:

    * joints: its elementary joint. numbers: parameters of the joint.
    * pose: pose of its joint frame in the previous link.
    * inertia: inertia about the origin of the link, in its axes.
    * gravity_exempt: the part of the inertia on which gravity does not act, None without such a part.
    """

    joints: tuple[Elementary, ...]
    pose: tuple[Pose, ...]
    numbers: tuple[Numbers, ...]
    inertia: tuple[Inertia, ...]
    gravity_exempt: tuple[Inertia | None, ...]


class Bodies(NamedTuple):
    """Per body:

    * inertia: inertia about the origin of the body, in its axes.
    * com: centre of mass in the body; of a body without mass, where its inertial frame is given.
    * offset: pose in its link; pose in the world for a fixed body.
    * joint_quat: orientation of its joint frame in the parent body.

    gravity, gravcomp: factors of gravity and of its compensation, in rows `BodyInfo.gravity` and `BodyInfo.gravcomp`.
    """

    inertia: tuple[Inertia, ...]
    com: tuple[Vector, ...]
    offset: tuple[Pose, ...]
    joint_quat: tuple
    gravity: tuple
    gravcomp: tuple


class Joints(NamedTuple):
    """spring_ref (nq): reference configuration of the springs. spring_damper: time constants and damping ratios; stiffness_poly,
    damping_poly: coefficients of higher order; spring_yield: largest elastic displacements; in the rows of `JointInfo`."""

    spring_ref: tuple
    spring_damper: tuple
    stiffness_poly: tuple
    damping_poly: tuple
    spring_yield: tuple


class LoopParameters(NamedTuple):
    """Loop constraints. frames: per constraint, the poses of its two frames in the links of their bodies, or in the world. lengths: values
    of the rows (``constraint.value``)."""

    frames: tuple[tuple[Pose, ...], ...]
    lengths: tuple


class FunctionValues(NamedTuple):
    """Functions of time.

    * numbers: parameters of all functions.
    * time: current time, s.
    * targets: per target, position, speed and acceleration at that time, see `time_functions.at_time`.
    * inputs: values of the external functions, by index.
    """

    numbers: tuple
    targets: tuple = ()
    time: object = 0.0
    inputs: dict = {}  # noqa: RUF012  (never changed)


class Derived(NamedTuple):
    """Quantities computed from the kinematics of the initial configuration, see `xsim.dynamics.prepare`.

    * tendon_rest: per tendon, the range of lengths at which its spring exerts no force.
    * acc0: per actuator, norm of the joint acceleration under unit force.
    * mobility: inverse weights for soft constraints.
    * references: per soft constraint, its reference in the initial configuration.
    * contact_parameters: see `narrowphase.ContactParameters`.
    * flex_material: see `elasticity.FlexMaterial`.
    * passive: per passive force, what its kind has prepared.
    * plastic: components of `State.plastic`, None where there is no state.
    """

    tendon_rest: tuple = ()
    acc0: tuple = ()
    mobility: Mobility | None = None
    references: tuple = ()
    contact_parameters: Any = None
    flex_material: Any = None
    passive: tuple = ()
    plastic: Any = None


class System(NamedTuple):
    """The model as components, in the groups of `Model`.

    * Groups with the name of a group of `Model` have its leaves as components. surface, pair, flex: arrays (rows, width, lanes or 1).
    * geom_arrays: size, pos and quat of the geoms as such arrays, for models with contacts.
    * force_frames: per force element, the poses of its frames, as in `LoopParameters.frames`.
    """

    topology: Topology
    tables: Tables
    option: Option
    link: Links
    body: Bodies
    joint: Joints
    dof: Dof
    limit: Limit
    coupling: Coupling
    constraint: LoopParameters
    functions: FunctionValues
    force: ElementForce
    force_frames: tuple
    site: Site
    geom: Geom
    geom_arrays: Geom
    tendon: Tendon
    actuator: Actuator
    passive: Passive
    medium: Medium
    soft: Soft
    equality: Equality
    surface: Surface
    pair: Pair
    cone: Cone
    flex: Flex
    derived: Derived = Derived()

    def with_derived(self, **changes) -> System:
        """The same system with these derived quantities replaced."""
        return self._replace(derived=self.derived._replace(**changes))


@stage
def _pose(pos, quat):
    return Pose(normalize(quat), pos)


@stage
def geom_inertia(shape: str, size, mass, density, solid, pos, quat) -> Inertia:
    """Inertia of a uniform solid about the origin of the body, in body axes.

    size: as in `xsim.spec.GeomSpec`. mass (kg): None to use the density (kg/m^3). pos, quat: pose of the geom in the body. solid: volume
    and moments per mass of a shape without a formula, None for the others."""
    volume, (x, y, z) = (VOLUMES[shape](size), MOMENTS_PER_MASS[shape](size)) if solid is None else solid
    if mass is None:
        mass = mul(density, volume)
    in_geom = Inertia(mass, ZERO3, (mul(mass, x), mul(mass, y), mul(mass, z), 0.0, 0.0, 0.0))
    return inertia_move(matrix(normalize(quat)), pos, in_geom)


def _box(s):
    x, y, z = (mul(mul(a, a), 1.0 / 3.0) for a in s)
    return add(y, z), add(x, z), add(x, y)


def _ellipsoid(s):
    x, y, z = (mul(mul(a, a), 0.2) for a in s)
    return add(y, z), add(x, z), add(x, y)


def _cylinder(s):
    r2, h2 = mul(s[0], s[0]), mul(s[1], s[1])
    side = add(mul(r2, 0.25), mul(h2, 1.0 / 3.0))
    return side, side, mul(r2, 0.5)


def _capsule(s):
    r, half = s[0], s[1]
    r2, h = mul(r, r), mul(half, 2.0)
    # Fractions of the mass by volume: a cylinder pi r^2 h and two half balls, together 4/3 pi r^3.
    ball = mul(r, 4.0 / 3.0) / add(h, mul(r, 4.0 / 3.0))
    tube = sub(1.0, ball)
    axial = add(mul(tube, mul(r2, 0.5)), mul(ball, mul(r2, 0.4)))
    side = add(
        mul(tube, add(mul(r2, 0.25), mul(mul(h, h), 1.0 / 12.0))),
        mul(ball, total([mul(r2, 0.4), mul(mul(r, h), 0.375), mul(mul(h, h), 0.25)])),
    )
    return side, side, axial


MOMENTS_PER_MASS = {
    "box": _box,
    "sphere": lambda s: (mul(mul(s[0], s[0]), 0.4),) * 3,
    "ellipsoid": _ellipsoid,
    "cylinder": _cylinder,
    "capsule": _capsule,
}


VOLUMES = {
    "box": lambda s: mul(8.0, mul(s[0], mul(s[1], s[2]))),
    "sphere": lambda s: mul(4 * math.pi / 3, mul(s[0], mul(s[0], s[0]))),
    "ellipsoid": lambda s: mul(4 * math.pi / 3, mul(s[0], mul(s[1], s[2]))),
    "cylinder": lambda s: mul(2 * math.pi, mul(mul(s[0], s[0]), s[1])),
    "capsule": lambda s: mul(2 * math.pi, mul(mul(s[0], s[0]), add(s[1], mul(s[0], 2.0 / 3.0)))),
}


@stage
def _explicit(mass, com, inertia) -> Inertia:
    at_com = Inertia(mass, ZERO3, inertia)
    return inertia_move(((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), com, at_com)


@stage
def _move(pose: Pose, inertia: Inertia) -> Inertia:
    return inertia_move(matrix(pose.quat), pose.pos, inertia)


@stage
def _compose(a: Pose, b: Pose) -> Pose:
    return compose(a, b)


@stage
def _invert(a: Pose) -> Pose:
    conj = quat_conj(a.quat)
    return Pose(conj, tuple(neg(x) for x in rotate(conj, a.pos)))


@stage
def _times(inertia: Inertia, s) -> Inertia:
    return Inertia(mul(inertia.mass, s), scale(inertia.first, s), scale(inertia.second, s))


@stage
def _unit(axis):
    return normalize(axis)


def body_inertias(model: Model, lanes: Lanes) -> list[Inertia]:
    """Inertia of every body about its origin, in body axes."""
    split = lanes.split
    mass, com, moment = split(model.body.mass, 1), split(model.body.com, 2), split(model.body.inertia, 2)
    size, gmass, density = split(model.geom.size, 2), split(model.geom.mass, 1), split(model.geom.density, 1)
    gpos, gquat = split(model.geom.pos, 2), split(model.geom.quat, 2)
    out, of_body = [], [[] for _ in model.topology.bodies]
    for geom in model.topology.geoms:
        if geom.body >= 0 and (geom.mass is not None or geom.density is not None):
            of_body[geom.body].append(geom)
    for index, body in enumerate(model.topology.bodies):
        if body.explicit is not None:
            out.append(_explicit(mass[body.explicit], com[body.explicit], moment[body.explicit]))
            continue
        inertia = NO_INERTIA
        for geom in of_body[index]:
            i, mass_row = geom.row, geom.mass
            mass_or_density = (None, density[geom.density]) if mass_row is None else (gmass[mass_row], None)
            inertia = inertia_add(inertia, geom_inertia(geom.shape, size[i], *mass_or_density, geom.solid, gpos[i], gquat[i]))
        out.append(inertia)
    return out


def _body_coms(model: Model, lanes: Lanes, inertias: list[Inertia]) -> list[Vector]:
    """`Bodies.com`."""
    com = lanes.split(model.body.com, 2)
    bodies = zip(model.topology.bodies, inertias, strict=True)
    return [center_of_mass(inertia) if body.explicit is None else com[body.explicit] for body, inertia in bodies]


def center_of_mass(inertia: Inertia) -> Vector:
    """The centre of mass in the frame of an inertia, m; zero without mass."""
    if isinstance(inertia.mass, float):
        return scale(inertia.first, 1.0 / inertia.mass) if inertia.mass else ZERO3
    return scale(inertia.first, 1.0 / jnp.where(inertia.mass > 0, inertia.mass, 1.0))


def components(model: Model, lanes: Lanes, mocap=None) -> System:
    """The system without the quantities that need kinematics. mocap: poses (7 components) of the mocap bodies, None for those of the
    model."""
    top, split = model.topology, lanes.split
    poses = _body_poses(model, lanes, mocap)
    frames = [_pose(p, q) for p, q in zip(split(model.joint.pos, 2), split(model.joint.quat, 2), strict=True)]
    offset = _offsets(top, poses, frames)
    inertia = body_inertias(model, lanes)
    coms = _body_coms(model, lanes, inertia)
    option = _split(model.option, split)
    if "gravity" in top.disabled:
        option = dataclasses.replace(option, gravity=(0.0, 0.0, 0.0))
    return System(
        topology=top,
        tables=tables(top),
        option=option,
        link=_links(model, lanes, poses, frames, offset, inertia),
        body=Bodies(
            *(tuple(x) for x in (inertia, coms, offset, (p.quat for p in poses))),
            *(split(x, 1) for x in (model.body.gravity, model.body.gravcomp)),
        ),
        joint=Joints(
            split(model.joint.spring_ref, 1),
            *(split(x, 2) for x in (model.joint.spring_damper, model.joint.stiffness_poly, model.joint.damping_poly)),
            split(model.joint.spring_yield, 1),
        ),
        constraint=LoopParameters(_frames(top.constraints, model.constraint, offset, split), split(model.constraint.value, 1)),
        functions=FunctionValues(split(model.function.numbers, 1)),
        force_frames=_frames(top.forces, model.force, offset, split),
        geom_arrays=_geom_arrays(model, lanes),
        **{name: _split(getattr(model, name), split) for name in COMPONENT_GROUPS},
        **{name: _split(getattr(model, name), lanes.last) for name in ARRAY_GROUPS},
    )


COMPONENT_GROUPS = ("dof", "limit", "coupling", "force", "site", "geom", "tendon", "actuator", "passive", "medium", "soft", "equality",
                    "cone")  # fmt: skip
"""Groups of leaves that the dynamics reads as components."""
ARRAY_GROUPS = ("surface", "pair", "flex")
"""Groups of leaves that the dynamics reads as arrays with the lanes last."""


def _body_poses(model: Model, lanes: Lanes, mocap) -> list[Pose]:
    """Per body, the pose of its joint frame in its parent."""
    poses = [_pose(p, q) for p, q in zip(lanes.split(model.body.pos, 2), lanes.split(model.body.quat, 2), strict=True)]
    for i, body in enumerate(model.topology.bodies):
        if mocap is not None and body.mocap is not None:
            poses[i] = _pose(mocap[body.mocap][:3], mocap[body.mocap][3:])
    return poses


def _offsets(top: Topology, poses: list[Pose], frames: list[Pose]) -> list[Pose]:
    """Per body, its pose in its link."""
    offset: list[Pose] = []
    for body, pose in zip(top.bodies, poses, strict=True):
        if body.v[1]:
            pose = Pose(IDENTITY, ZERO3)
        elif body.parent >= 0:
            pose = _compose(offset[body.parent], pose)
        if body.frame is not None:
            pose = _compose(pose, _invert(frames[body.frame]))
        offset.append(pose)
    return offset


def _links(model: Model, lanes: Lanes, poses: list[Pose], frames: list[Pose], offset: list[Pose], inertia: list[Inertia]) -> Links:
    top, split = model.topology, lanes.split
    axes, pitch, refs = [_unit(a) for a in split(model.joint.axes, 2)], split(model.joint.pitch, 1), split(model.joint.ref, 1)
    pose, numbers, joints = [], [], []
    for link in top.links:
        body = top.bodies[link.body]
        pose.append(_joint_pose(body, link, poses[link.body], frames, offset) if link.first else Pose(IDENTITY, ZERO3))
        axis = axes[link.axis] if isinstance(link.axis, int) else link.axis
        link_pitch, ref = None if link.pitch is None else pitch[link.pitch], 0.0 if link.ref is None else refs[link.ref]
        numbers.append(Numbers(axis, link_pitch, _params(model, link, lanes), ref))
        joints.append(elementary(link.kind, body.joints[link.joint].type))
    return Links(tuple(joints), tuple(pose), tuple(numbers), *_link_inertias(model, lanes, offset, inertia))


def _link_inertias(model: Model, lanes: Lanes, offset: list[Pose], inertia: list[Inertia]) -> tuple[tuple, tuple]:
    """Per link, the inertia of its bodies, and the part of it on which gravity does not act."""
    top, tab, gravity = model.topology, tables(model.topology), lanes.split(model.body.gravity, 1)
    out, exempt = [NO_INERTIA] * len(top.links), [None] * len(top.links)
    for index, (body, body_inertia) in enumerate(zip(top.bodies, inertia, strict=True)):
        if body.link < 0:
            continue
        in_link = body_inertia if tab.at_link[index] else _move(offset[index], body_inertia)
        out[body.link] = inertia_add(out[body.link], in_link)
        if body.gravity is not None:
            part = _times(in_link, sub(1.0, gravity[body.gravity]))
            exempt[body.link] = part if exempt[body.link] is None else inertia_add(exempt[body.link], part)
    return tuple(out), tuple(exempt)


def _split(group, split):
    """A group of leaves as components."""
    return type(group)(**{f.name: split(getattr(group, f.name), len(f.metadata["leaf"].shape)) for f in dataclasses.fields(group)})


def _geom_arrays(model: Model, lanes: Lanes) -> Geom:
    """Sizes and poses of the geoms as arrays with the lanes last."""
    if not model.topology.pairs:
        return Geom(**dict.fromkeys(vars(model.geom), ()))
    geom = model.geom
    size, pos, quat = (lanes.last(x, 2) for x in (geom.size, geom.pos, geom.quat))
    return Geom(**dict.fromkeys(vars(geom), ()) | {"size": size, "pos": pos, "quat": quat})


def _joint_pose(body, link, pose: Pose, frames: list[Pose], offset: list[Pose]) -> Pose:
    """Pose of the joint frame of a joint's first link in the previous link."""
    joint = body.joints[link.joint]
    if link.joint:
        pose = Pose(IDENTITY, ZERO3)
        previous = body.joints[link.joint - 1]
        if previous.frame is not None:
            pose = _compose(pose, _invert(frames[previous.frame]))
    elif body.parent >= 0:
        pose = _compose(offset[body.parent], pose)
    return _compose(pose, frames[joint.frame]) if joint.anchored and joint.frame is not None else pose


def _frames(infos, group, offset: list[Pose], split) -> tuple:
    """Per constraint or force element, the poses of its frames in the links of their bodies, or in the world."""
    first, second = (
        [_pose(p, q) for p, q in zip(split(pos, 2), split(quat, 2), strict=True)]
        for pos, quat in ((group.pos1, group.quat1), (group.pos2, group.quat2))
    )
    return tuple(
        tuple(pose if body < 0 else _compose(offset[body], pose) for body, pose in zip(info.bodies, pair, strict=False))
        for info, *pair in zip(infos, first, second, strict=True)
    )


def _params(model: Model, link, lanes: Lanes):
    """Parameters of a general joint: {name: (array with lanes last, number of axes before the lanes)}."""
    if link.kind != "general":
        return None
    joint_type = model.topology.bodies[link.body].joints[link.joint].type
    out = {}
    for name, p in JOINT_TYPES[joint_type].parameters.items():
        leaf = model.joint.params[f"{joint_type}.{name}"]
        core = len(p.shape)
        if isinstance(leaf, Frozen):
            out[name] = (jnp.asarray(leaf.value[link.general]), core)
            continue
        row = leaf[..., link.general, *([slice(None)] * core)]
        if leaf.ndim == core + 1:
            out[name] = (row, core)
        else:
            flat = row.reshape(*row.shape[: row.ndim - core], -1)
            parts = lanes.split(flat, 1)
            out[name] = (jnp.stack(parts).reshape(*p.shape, *parts[0].shape), core)
    return out


def split_q(system: System, q) -> list[tuple]:
    """Coordinates per link."""
    return [tuple(q[link.q : link.q + link.nq]) for link in system.topology.links]


def split_v(system: System, v) -> list[tuple]:
    """Velocities (or accelerations, or forces) per link."""
    return [tuple(v[link.v : link.v + link.nv]) for link in system.topology.links]


def gravity_acceleration(system: System) -> tuple:
    """The acceleration of the base that is equivalent to gravity: minus the acceleration of free fall, m/s^2."""
    return tuple(neg(g) for g in system.option.gravity)

