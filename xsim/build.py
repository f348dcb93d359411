"""build(spec) -> Model: order and number the tree, expand joints into links, draw random axes, check, make leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from .joints import draw_parameters
from .jointtypes import JOINT_TYPES, GeneralJoint
from .model import (
    ROW_LEAVES,
    Body,
    BodyInfo,
    Constraint,
    Coupling,
    Dof,
    ElementForce,
    Function,
    Geom,
    GeomInfo,
    Joint,
    Limit,
    Link,
    Model,
    Option,
    Topology,
)
from .rows import read_constraints
from .spec import ACTUATORS, ROWS, BodySpec, GeomSpec, ModelSpec

INTEGRATORS = ("implicit_damping", "euler", "rk4", "dart", "linearly_implicit")
COMMANDED = ("force", "acceleration", "velocity", "servo")
FORCE_SIZES = {
    "rest": "nspring", "stiffness": "nstiffness", "damping": "ndamping", "stop": "nstop", "map": "nmap", "vector": "nload",
}  # fmt: skip
FORCE_ROWS = {"stop": (2,), "vector": (3,)}
DRAWABLE = ("box", "sphere", "capsule", "cylinder", "ellipsoid", "cone", "plane", "axes")
SHAPE_SIZES = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3}


def _fail(source, text: str) -> NoReturn:
    raise ValueError(f"{source}: {text}")


def build(spec: ModelSpec, *, seed: int = 0) -> Model:
    """Make a Model of a ModelSpec.

    seed: for the joint parameters that are drawn (the axes of rr, rr_imp, rsaddle) and not given by the spec. The key of a draw
    comes from the body's name, so editing one body changes no other draw. Numbers take jax's default float type.
    Raises ValueError where the spec is inconsistent.
    """
    dtype = jnp.result_type(float)
    _check_option(spec)

    links: list[Link] = []
    bodies: list[BodyInfo] = []
    axes: list[np.ndarray] = []
    pitch: list[float] = []
    explicit = []
    params: dict[str, list] = {}
    dofs: dict[str, list] = {"damping": [], "armature": [], "stiffness": []}
    spring_ref: list = []
    neutral: list[float] = []
    names: set[str] = set()
    frames: list[BodySpec] = []
    weights: list[float] = []
    rowed: dict[str, list[tuple[int, float]]] = {leaf: [] for leaf in ROW_LEAVES}
    drives: list[str] = []
    initial: tuple[list[float], list[float]] = ([], [])
    key = jax.random.key(seed)
    nq = nv = 0
    for index, body in enumerate(spec.bodies):
        if not -1 <= body.parent < index:
            _fail(body.source, f"body {body.name!r}: parent {body.parent} does not come before it")
        if body.name in names:
            _fail(body.source, f"two bodies are named {body.name!r}")
        names.add(body.name)
        kind = JOINT_TYPES.get(body.joint.type)
        if kind is None:
            _fail(body.source, f"body {body.name!r}: unknown joint type {body.joint.type!r}; known: {', '.join(JOINT_TYPES)}")
        values = _parameters(body, kind, key)
        first_axis, first_pitch = len(axes), len(pitch)
        is_general = any(isinstance(j, GeneralJoint) for j in kind.chain)
        if is_general:
            row = sum(b.joint_type == body.joint.type for b in bodies)
            for name, value in values.items():
                params.setdefault(f"{kind.name}.{name}", []).append(value)
        else:
            row = None
            axes.extend(np.reshape(values.get("axes", np.zeros((0, 3))), (-1, 3)))
            pitch.extend(np.reshape(values.get("pitch", ()), -1))
            for axis in axes[first_axis:]:
                if not np.linalg.norm(axis) > 1e-9:
                    _fail(body.source, f"body {body.name!r}: a joint axis is zero")
        parent_link = bodies[body.parent].link if body.parent >= 0 else -1
        q0, v0, link = nq, nv, parent_link
        for position, joint in enumerate(kind.chain):
            axis = None if isinstance(joint, GeneralJoint) else joint.axis
            links.append(
                Link(
                    kind=joint.kind,
                    parent=link,
                    body=index,
                    first=position == 0,
                    q=nq,
                    v=nv,
                    nq=joint.nq,
                    nv=joint.nv,
                    axis=first_axis + axis if isinstance(axis, int) else axis,
                    pitch=first_pitch if joint.kind == "screw" else None,
                    general=row,
                )
            )
            link, nq, nv = len(links) - 1, nq + joint.nq, nv + joint.nv
        for name, store in dofs.items():
            store.append(_vector(body, name, getattr(body.joint, name), kind.nv, np.zeros(kind.nv)))
        for name in ("damping", "armature", "stiffness"):
            if (dofs[name][-1] < 0).any():
                _fail(body.source, f"body {body.name!r}: {name} is negative")
        spring_ref.append(_vector(body, "spring_ref", body.joint.spring_ref, kind.nq, kind.neutral))
        neutral.extend(kind.neutral)
        initial[0].extend(_vector(body, "q0", body.joint.q0, kind.nq, kind.neutral))
        initial[1].extend(_vector(body, "v0", body.joint.v0, kind.nv, np.zeros(kind.nv)))
        if _choice(body, "actuator", ACTUATORS) == "locked" and np.any(initial[1][v0:]):
            _fail(body.source, f"body {body.name!r}: a locked joint cannot start with a velocity")
        drives.extend([body.joint.actuator] * kind.nv)
        _add_rows(body, kind.nv, v0, rowed)
        framed = np.any(body.joint.pos) or np.any(np.asarray(body.joint.quat)[1:])
        if framed:
            frames.append(body)
        if body.gravity != 1.0:
            weights.append(body.gravity)
        if body.inertial is not None:
            explicit.append(body.inertial)
        bodies.append(
            BodyInfo(
                name=body.name,
                parent=body.parent,
                joint_type=kind.name,
                joint_name=body.joint.name or body.name,
                link=link,
                q=(q0, kind.nq),
                v=(v0, kind.nv),
                explicit=None if body.inertial is None else len(explicit) - 1,
                pos_min=None if body.pos_min is None else tuple(map(float, body.pos_min)),
                pos_max=None if body.pos_max is None else tuple(map(float, body.pos_max)),
                damper_axes=_choice(body, "damper_axes", ("joint", "body", "parent")),
                armature_axes=_choice(body, "armature_axes", ("joint", "body")),
                spring_law=_choice(body, "spring_law", ("rotation", "components")),
                axes=tuple(range(first_axis, len(axes))),
                general=row,
                frame=len(frames) - 1 if framed else None,
                gravity=len(weights) - 1 if body.gravity != 1.0 else None,
            )
        )

    read = read_constraints(spec, bodies)
    ties, pushes = read.ties, read.pushes
    geoms, sizes = [], {"size": [], "mass": [], "pos": [], "quat": []}
    for index, body in [(-1, None), *enumerate(spec.bodies)]:
        own = spec.world_geoms if body is None else body.geoms
        drawn = _drawn(own)
        for geom in own:
            inertial = geom.shape in SHAPE_SIZES and (body is None or body.inertial is None)
            if geom.mass and geom.shape not in SHAPE_SIZES and body is not None and body.inertial is None:
                _fail(geom.source, f"geom {geom.shape}: gives no inertia; give body {body.name!r} an inertial")
            size = np.asarray(geom.size, float).reshape(-1)
            if inertial:
                if len(size) != SHAPE_SIZES[geom.shape] or not (size > 0).all():
                    _fail(geom.source, f"geom {geom.shape}: size {size} must be {SHAPE_SIZES[geom.shape]} positive numbers")
                if geom.mass < 0:
                    _fail(geom.source, f"geom {geom.shape}: mass {geom.mass} is negative")
                sizes["size"].append(np.pad(size, (0, 3 - len(size))))
                sizes["mass"].append(geom.mass)
                sizes["pos"].append(geom.pos)
                sizes["quat"].append(_unit(geom, geom.quat))
            geoms.append(
                GeomInfo(geom.name, index, geom.shape, geom.rgba, len(sizes["mass"]) - 1 if inertial else None,
                         tuple(map(float, size)), tuple(map(float, geom.pos)), tuple(map(float, geom.quat)), any(geom is d for d in drawn))
            )  # fmt: skip

    def leaf(values, *shape):
        return jnp.asarray(np.asarray(values, np.float64).reshape(shape), dtype)

    def ends(found):
        return {
            f"{name}{end + 1}": leaf([x.frames[end][k] for x in found], len(found), 3 + k)
            for end in (0, 1) for k, name in enumerate(("pos", "quat"))
        }  # fmt: skip

    def gathered(name):
        return [x for p in pushes for x in p.numbers.get(name, ())]

    def row_leaf(path):
        return leaf([value for _, value in rowed[path]], len(rowed[path]))

    n, ng, ne = len(bodies), len(sizes["mass"]), len(explicit)
    topology = Topology(
        name=spec.name,
        bodies=tuple(bodies),
        links=tuple(links),
        geoms=tuple(geoms),
        sizes=(
            ("nbody", n), ("ngeom", ng), ("naxis", len(axes)), ("npitch", len(pitch)), ("nexplicit", ne), ("nframe", len(frames)),
            ("ngravity", len(weights)), ("ncoupling", len(read.couplings)),
            ("nconstraint", len(ties)), ("nvalue", sum(len(t.values) for t in ties)),
            ("nfunction", len(read.numbers)), ("nforce", len(pushes)),
            *((size, len(gathered(leaf))) for leaf, size in FORCE_SIZES.items()), ("nq", nq), ("nv", nv),
            *((size, len(rowed[path])) for path, size in ROW_LEAVES.items()),
        ),
        neutral=tuple(map(float, neutral)),
        initial=(tuple(map(float, initial[0])), tuple(map(float, initial[1]))),
        velocities=tuple(
            (i, tuple(map(float, b.velocity))) for i, b in enumerate(spec.bodies) if b.velocity is not None and bodies[i].link >= 0
        ),
        integrator=spec.option.integrator,
        rows=tuple(r for r in ROWS if r in spec.option.rows),
        rowed=tuple((path, tuple(dof for dof, _ in found)) for path, found in rowed.items()),
        drives=tuple(drives),
        commands=tuple(i for i, drive in enumerate(drives) if drive in COMMANDED),
        couplings=tuple(c.dofs for c in read.couplings),
        motions=tuple(read.motions),
        targets=tuple(read.targets),
        functions=tuple(read.functions),
        forces=tuple(p.info for p in pushes),
        constraints=tuple(t.info for t in ties),
    )
    return Model(
        option=Option(leaf(spec.option.gravity, 3), leaf(spec.option.dt), leaf(spec.option.regularization)),
        body=Body(
            leaf([b.pos for b in spec.bodies], n, 3),
            leaf([_unit(b, b.quat) for b in spec.bodies], n, 4),
            leaf([i.mass for i in explicit], ne),
            leaf([i.com for i in explicit], ne, 3),
            leaf([i.inertia for i in explicit], ne, 6),
            leaf(weights, len(weights)),
        ),
        geom=Geom(leaf(sizes["size"], ng, 3), leaf(sizes["mass"], ng), leaf(sizes["pos"], ng, 3), leaf(sizes["quat"], ng, 4)),
        joint=Joint(
            leaf(axes, len(axes), 3),
            leaf(pitch, len(pitch)),
            leaf([b.joint.pos for b in frames], len(frames), 3),
            leaf([_unit(b, b.joint.quat) for b in frames], len(frames), 4),
            leaf(np.concatenate([[], *spring_ref]), nq),
            {name: jnp.asarray(np.stack(v), dtype) for name, v in params.items()},
        ),
        dof=Dof(**{name: leaf(np.concatenate([[], *found]), nv) for name, found in dofs.items()}, friction=row_leaf("dof.friction")),
        limit=Limit(*(row_leaf(f"limit.{f.name}") for f in dataclasses.fields(Limit))),
        coupling=Coupling(*(
            leaf([getattr(c, f.name) for c in read.couplings], len(read.couplings)) for f in dataclasses.fields(Coupling)
        )),
        constraint=Constraint(
            **ends(ties),
            value=leaf([x for t in ties for x in t.values], sum(len(t.values) for t in ties)),
        ),
        function=Function(leaf(read.numbers, len(read.numbers))),
        force=ElementForce(
            **ends(pushes),
            **{name: leaf(gathered(name), len(gathered(name)), *FORCE_ROWS.get(name, ())) for name in (*FORCE_SIZES, "preload")},
        ),
        topology=topology,
    )


def with_integrator(model: Model, name: str) -> Model:
    """The same model with another integrator: implicit_damping, euler, rk4, dart or linearly_implicit."""
    if name not in INTEGRATORS:
        raise ValueError(f"unknown integrator {name!r}; known: {', '.join(INTEGRATORS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, integrator=name))


def with_rows(model: Model, rows: Iterable[str]) -> Model:
    """The same model with other kinds of constraint rows acting: a subset of holonomic, friction, limit, velocity."""
    rows = tuple(rows)
    for row in rows:
        if row not in ROWS:
            raise ValueError(f"unknown kind of rows {row!r}; known: {', '.join(ROWS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, rows=tuple(r for r in ROWS if r in rows)))


def _parameters(body: BodySpec, kind, key) -> dict[str, np.ndarray]:
    unknown = set(body.joint.params) - set(kind.parameters)
    if unknown:
        _fail(body.source, f"body {body.name!r}: joint {kind.name} has no parameter {', '.join(sorted(unknown))}")
    drawn = {}
    if any(p.draw is not None and name not in body.joint.params for name, p in kind.parameters.items()):
        drawn = draw_parameters(kind, key, body.name)
    out = {}
    for name, p in kind.parameters.items():
        value = body.joint.params.get(name, drawn.get(name, p.default))
        value = np.asarray(value, np.float64)
        if value.shape != p.shape or not np.isfinite(value).all():
            _fail(body.source, f"body {body.name!r}: joint parameter {name} must be {p.shape} finite numbers, found {value.shape}")
        out[name] = value
    return out


def _vector(body: BodySpec, name: str, value, width: int, default) -> np.ndarray:
    value = np.asarray(default if value is None else value, np.float64)
    if value.shape != (width,) or not np.isfinite(value).all():
        _fail(body.source, f"body {body.name!r}: {name} must be {width} finite numbers for joint {body.joint.type}, found {value}")
    return value


def _drawn(geoms: tuple[GeomSpec, ...]) -> list[GeomSpec]:
    """The shapes of a body that are drawn: its visual ones; where none of them can be drawn (meshes), those of its collisions."""
    known = [g for g in geoms if g.shape in DRAWABLE]
    return [g for g in known if g.visual] or known


def _choice(body: BodySpec, name: str, known: tuple[str, ...]) -> str:
    value = getattr(body.joint, name)
    if value not in known:
        _fail(body.source, f"body {body.name!r}: {name} must be one of {', '.join(known)}; found {value!r}")
    return value


def _check_option(spec: ModelSpec) -> None:
    option = spec.option
    if option.integrator not in INTEGRATORS:
        _fail(spec.source, f"unknown integrator {option.integrator!r}; known: {', '.join(INTEGRATORS)}")
    unknown = [r for r in option.rows if r not in ROWS]
    if unknown:
        _fail(spec.source, f"unknown kind of rows {unknown[0]!r}; known: {', '.join(ROWS)}")
    if not np.all(np.isfinite(option.gravity)) or np.shape(option.gravity) != (3,):
        _fail(spec.source, "gravity must be three finite numbers")
    if not option.dt > 0:
        _fail(spec.source, f"dt must be positive, found {option.dt}")


def _add_rows(body: BodySpec, nv: int, v0: int, rowed: dict[str, list[tuple[int, float]]]) -> None:
    """Numbers that only some dofs have, with their dofs."""
    joint = body.joint
    if joint.friction is not None:
        friction = np.asarray(joint.friction, np.float64)
        if friction.shape != (nv,) or (friction < 0).any():
            _fail(body.source, f"body {body.name!r}: friction must be {nv} numbers >= 0, found {friction}")
        rowed["dof.friction"] += [(v0 + i, x) for i, x in enumerate(friction) if not np.isnan(x)]
    for name, stem in (("position_range", ""), ("velocity_range", "velocity_"), ("force_range", "force_")):
        value = getattr(joint, name)
        if value is None:
            continue
        value = np.asarray(value, np.float64)
        if value.shape != (nv, 2) or np.isnan(value).any() or (value[:, 0] > value[:, 1]).any():
            _fail(body.source, f"body {body.name!r}: {name} must be {nv} pairs, lower bound first; found {value}")
        for i, pair in enumerate(value):
            for side, x in zip(("lower", "upper"), pair, strict=True):
                if np.isfinite(x):
                    rowed[f"limit.{stem}{side}"].append((v0 + i, x))


def _unit(element, quat) -> np.ndarray:
    quat = np.asarray(quat, np.float64)
    norm = np.linalg.norm(quat)
    if quat.shape != (4,) or not norm > 1e-9:
        _fail(element.source, f"orientation {quat} is not a quaternion")
    return quat / norm
