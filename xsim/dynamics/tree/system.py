"""The model as the algorithms see it: components per link, derived quantities computed, structure tabulated.

`components` runs once per call of a public function and stays outside the loop of a rollout: inertias of welded and
geom-based bodies, unit axes and unit quaternions are computed here from the leaves, inside the compiled function.
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
    """A joint that translates, then rotates. damper, armature: the axes along which they act, None where those are its velocities."""

    body: int
    slides: tuple[int, ...]  # links
    rotating: tuple[int, ...]
    damper: str | None
    armature: str | None


@dataclass(frozen=True)
class Tables:
    """Structure of the tree, from the topology alone.

    root: per link, the link whose origin is the reference point of its tree. dof_link: link of a dof. before: per dof, the dofs
    that move it, nearest last; after: per dof, the dofs it moves. chain: per link,
    the dofs that move it. at_link: per body, whether its frame is its link's frame.
    blocks: per joint whose damping or armature does not act along its own velocities: a `Block`.
    """

    root: tuple[int, ...]
    dof_link: tuple[int, ...]
    before: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    chain: tuple[tuple[int, ...], ...]
    at_link: tuple[bool, ...]
    blocks: tuple[Block, ...]


@functools.lru_cache(maxsize=256)
def tables(topology: Topology) -> Tables:
    links, bodies = topology.links, topology.bodies
    root, dof_link, before = [], [], []
    link_last: list[tuple[int, ...]] = []
    for index, link in enumerate(links):
        root.append(bodies[link.body].link if link.parent < 0 else root[link.parent])
        chain = link_last[link.parent] if link.parent >= 0 else ()
        for dof in range(link.v, link.v + link.nv):
            dof_link.append(index)
            before.append(chain)
            chain = (*chain, dof)
        link_last.append(chain)
    after = tuple(tuple(k for k in range(len(before)) if i in before[k]) for i in range(len(before)))
    at_link, blocks = [], []
    for index, body in enumerate(bodies):
        at_link.append(body.v[1] > 0 and body.frame is None)
        for place, joint in enumerate(body.joints):
            own = [i for i, link in enumerate(links) if (link.body, link.joint) == (index, place)]
            slides = []
            for i in own:
                if links[i].kind != "slide":
                    break
                slides.append(i)
            rotating = [i for i in own[len(slides) :] if links[i].kind in ("hinge", "ball")]
            laws = [None if axes == "joint" else axes for axes in (joint.damper_axes, joint.armature_axes)]
            if slides and rotating and any(laws):
                blocks.append(Block(index, tuple(slides), tuple(rotating), *laws))
    return Tables(tuple(root), tuple(dof_link), tuple(before), after, tuple(link_last), tuple(at_link), tuple(blocks))


class Mobility(NamedTuple):
    """What unit forces move at the start, for soft constraints: per dof (means over a ball's and over the halves of a free joint), per
    tendon, per body the means over directions of force and of moment at its centre of mass (0 for one that does not move). lengths: of the
    tendons at the start."""

    dofs: list
    tendons: list
    bodies: dict
    lengths: list
    edges: object = None  # of flexes' edges that keep their lengths, (edges, lanes or 1)


class Links(NamedTuple):
    """Per link: its joint, the pose of its joint frame in the link before it, the joint's numbers, the inertia about the link's own origin,
    and the part of that inertia that feels no gravity (None where all of it does)."""

    joints: tuple[Elementary, ...]
    pose: tuple[Pose, ...]
    numbers: tuple[Numbers, ...]
    inertia: tuple[Inertia, ...]
    gravity_exempt: tuple[Inertia | None, ...]


class Bodies(NamedTuple):
    """Per body: the inertia about its own origin, body axes; its pose in its link; the orientation of its joint frame in the parent body.
    gravcomp: factors of gravity compensation, see `BodyInfo.gravcomp`."""

    inertia: tuple[Inertia, ...]
    offset: tuple[Pose, ...]
    joint_quat: tuple
    gravcomp: tuple


class Joints(NamedTuple):
    """spring_ref: per coordinate. spring_damper: time constants and damping ratios, see `JointInfo.spring_damper`."""

    spring_ref: tuple
    spring_damper: tuple


class LoopNumbers(NamedTuple):
    """Of the constraints between frames: per constraint, the poses of its two frames in the link of their body, or in the world; the
    lengths of the rows."""

    frames: tuple[tuple[Pose, ...], ...]
    lengths: tuple


class FunctionValues(NamedTuple):
    """numbers: of all functions of time. targets: per target, position, speed and acceleration at ``time`` (see
    `time_functions.at_time`). inputs: values of the external functions, by number."""

    numbers: tuple
    targets: tuple = ()
    time: object = 0.0
    inputs: dict = {}  # noqa: RUF012  (never changed)


class Derived(NamedTuple):
    """What takes the kinematics of the initial configuration to compute, see `xsim.dynamics.prepare`.

    tendon_rest: per tendon, the lengths between which its spring is at rest. acc0: per actuator, norm of the joint accelerations under unit
    force. mobility: for soft constraints. references: per soft constraint, what it keeps of
    the initial configuration. contact_parameters: see
    `narrowphase.ContactParameters`. flex_material: see `elasticity.FlexMaterial`."""

    tendon_rest: tuple = ()
    acc0: tuple = ()
    mobility: Mobility | None = None
    references: tuple = ()
    contact_parameters: Any = None
    flex_material: Any = None


class System(NamedTuple):
    """Components of everything the dynamics needs, in the groups of the `Model`.

    Groups that are named as the model's hold its leaves as components; surface, pair and flex hold arrays (rows, width, lanes or 1).
    geom_arrays: size, pos and quat of the geoms as such arrays, where something may touch. force_frames: per force between bodies, the
    poses of its frames as in `LoopNumbers.frames`."""

    topology: Topology
    tables: Tables
    option: Option
    link: Links
    body: Bodies
    joint: Joints
    dof: Dof
    limit: Limit
    coupling: Coupling
    constraint: LoopNumbers
    functions: FunctionValues
    force: ElementForce
    force_frames: tuple
    site: Site
    geom: Geom
    geom_arrays: Geom
    tendon: Tendon
    actuator: Actuator
    medium: Medium
    soft: Soft
    equality: Equality
    surface: Surface
    pair: Pair
    cone: Cone
    flex: Flex
    derived: Derived = Derived()

    def with_derived(self, **changes) -> System:
        """The same system with other derived numbers."""
        return self._replace(derived=self.derived._replace(**changes))


@stage
def _pose(pos, quat):
    return Pose(normalize(quat), pos)


@stage
def geom_inertia(shape: str, size, mass, density, solid, pos, quat) -> Inertia:
    """Inertia of a uniform solid about the body frame's origin; its own axes are those of `xsim.spec`. mass None: by the density. solid:
    volume and moments of a shape without a formula."""
    volume, (x, y, z) = (VOLUMES[shape](size), SHAPES[shape](size)) if solid is None else solid
    if mass is None:
        mass = mul(density, volume)
    own = Inertia(mass, ZERO3, (mul(mass, x), mul(mass, y), mul(mass, z), 0.0, 0.0, 0.0))
    return inertia_move(matrix(normalize(quat)), pos, own)


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
    # Shares of the mass by volume: cylinder pi r^2 h, the two caps together a ball 4/3 pi r^3.
    ball = mul(r, 4.0 / 3.0) / add(h, mul(r, 4.0 / 3.0))
    tube = sub(1.0, ball)
    axial = add(mul(tube, mul(r2, 0.5)), mul(ball, mul(r2, 0.4)))
    side = add(
        mul(tube, add(mul(r2, 0.25), mul(mul(h, h), 1.0 / 12.0))),
        mul(ball, total([mul(r2, 0.4), mul(mul(r, h), 0.375), mul(mul(h, h), 0.25)])),
    )
    return side, side, axial


SHAPES = {
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
    """Inertia of every body about its own origin, body axes."""
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
            heavy = (None, density[geom.density]) if mass_row is None else (gmass[mass_row], None)
            inertia = inertia_add(inertia, geom_inertia(geom.shape, size[i], *heavy, geom.solid, gpos[i], gquat[i]))
        out.append(inertia)
    return out


def components(model: Model, lanes: Lanes, mocap=None) -> System:
    """Everything that follows from the leaves alone, as components. mocap: poses (7 components) of the mocap bodies, None: those of the
    model."""
    top, split = model.topology, lanes.split
    poses = _body_poses(model, lanes, mocap)
    frames = [_pose(p, q) for p, q in zip(split(model.joint.pos, 2), split(model.joint.quat, 2), strict=True)]
    offset = _offsets(top, poses, frames)
    inertia = body_inertias(model, lanes)
    option = _split(model.option, split)
    if "gravity" in top.disabled:
        option = dataclasses.replace(option, gravity=(0.0, 0.0, 0.0))
    return System(
        topology=top,
        tables=tables(top),
        option=option,
        link=_links(model, lanes, poses, frames, offset, inertia),
        body=Bodies(tuple(inertia), tuple(offset), tuple(p.quat for p in poses), split(model.body.gravcomp, 1)),
        joint=Joints(split(model.joint.spring_ref, 1), split(model.joint.spring_damper, 2)),
        constraint=LoopNumbers(_frames(top.constraints, model.constraint, offset, split), split(model.constraint.value, 1)),
        functions=FunctionValues(split(model.function.numbers, 1)),
        force_frames=_frames(top.forces, model.force, offset, split),
        geom_arrays=_geom_arrays(model, lanes),
        **{name: _split(getattr(model, name), split) for name in COMPONENT_GROUPS},
        **{name: _split(getattr(model, name), lanes.last) for name in ARRAY_GROUPS},
    )


COMPONENT_GROUPS = ("dof", "limit", "coupling", "force", "site", "geom", "tendon", "actuator", "medium", "soft", "equality", "cone")
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
        own = None if link.pitch is None else pitch[link.pitch], _params(model, link, lanes), 0.0 if link.ref is None else refs[link.ref]
        numbers.append(Numbers(axis, *own))
        joints.append(elementary(link.kind, body.joints[link.joint].type))
    return Links(tuple(joints), tuple(pose), tuple(numbers), *_link_inertias(model, lanes, offset, inertia))


def _link_inertias(model: Model, lanes: Lanes, offset: list[Pose], inertia: list[Inertia]) -> tuple[tuple, tuple]:
    """Per link, the inertia of the bodies that move with it, and the part of it that feels no gravity."""
    top, tab, weight = model.topology, tables(model.topology), lanes.split(model.body.gravity, 1)
    out, exempt = [NO_INERTIA] * len(top.links), [None] * len(top.links)
    for index, (body, own) in enumerate(zip(top.bodies, inertia, strict=True)):
        if body.link < 0:
            continue
        own = own if tab.at_link[index] else _move(offset[index], own)
        out[body.link] = inertia_add(out[body.link], own)
        if body.gravity is not None:
            light = _times(own, sub(1.0, weight[body.gravity]))
            exempt[body.link] = light if exempt[body.link] is None else inertia_add(exempt[body.link], light)
    return tuple(out), tuple(exempt)


def _split(group, split):
    """A group of leaves as components."""
    return type(group)(**{f.name: split(getattr(group, f.name), len(f.metadata["leaf"].shape)) for f in dataclasses.fields(group)})


def _geom_arrays(model: Model, lanes: Lanes) -> Geom:
    """Sizes and places of the geoms as arrays."""
    if not model.topology.pairs:
        return Geom((), (), (), (), (), ())
    geom = model.geom
    size, pos, quat = (lanes.last(x, 2) for x in (geom.size, geom.pos, geom.quat))
    return Geom(size=size, mass=(), pos=pos, quat=quat, density=(), fluid=())


def _joint_pose(body, link, pose: Pose, frames: list[Pose], offset: list[Pose]) -> Pose:
    """Where the first link of a joint is in the link before it."""
    joint = body.joints[link.joint]
    if link.joint:
        pose = Pose(IDENTITY, ZERO3)
        before = body.joints[link.joint - 1]
        if before.frame is not None:
            pose = _compose(pose, _invert(frames[before.frame]))
    elif body.parent >= 0:
        pose = _compose(offset[body.parent], pose)
    return _compose(pose, frames[joint.frame]) if joint.anchored and joint.frame is not None else pose


def _frames(infos, group, offset: list[Pose], split) -> tuple:
    """Of every constraint or force, the frames in its bodies as poses in their links (in the world)."""
    first, second = (
        [_pose(p, q) for p, q in zip(split(pos, 2), split(quat, 2), strict=True)]
        for pos, quat in ((group.pos1, group.quat1), (group.pos2, group.quat2))
    )
    return tuple(
        tuple(pose if body < 0 else _compose(offset[body], pose) for body, pose in zip(info.bodies, pair, strict=False))
        for info, *pair in zip(infos, first, second, strict=True)
    )


def _params(model: Model, link, lanes: Lanes):
    """Parameters of a general joint: name -> (array with lanes last, core dimensions)."""
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
    """The acceleration of the base that stands for gravity: minus free fall."""
    return tuple(neg(g) for g in system.option.gravity)

