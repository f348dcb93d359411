"""assemble(spec) -> Model: order and number the tree, expand joints into links, draw random axes, check, make leaves."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.model.contact_pairs import Pairs, read_pairs
from xsim.model.devices import read_devices
from xsim.model.flexes import read_flexes
from xsim.model.holonomic import read_constraints
from xsim.model.model import (
    ROW_LEAVES,
    Actuator,
    Body,
    Camera,
    Cone,
    Constraint,
    Coupling,
    Dof,
    ElementForce,
    Equality,
    Flex,
    Function,
    Geom,
    Joint,
    Light,
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
from xsim.model.soft_constraints import read_softness
from xsim.model.topology import GeomInfo, HfieldInfo, MeshInfo, SolidInfo, Table, Topology
from xsim.model.tree import fail, number_tree, unit_quat
from xsim.spec import ROWS, GeomSpec, ModelSpec

INTEGRATORS = ("implicit_damping", "euler", "rk4", "rk4_manifold", "dart", "linearly_implicit", "implicitfast", "implicit")
COMMANDED = ("force", "acceleration", "velocity", "servo")
FORCE_SIZES = {
    "rest": "nspring", "stiffness": "nstiffness", "damping": "ndamping", "stop": "nstop", "map": "nmap", "vector": "nload",
}  # fmt: skip
FORCE_ROWS = {"stop": (2,), "vector": (3,)}
DRAWABLE = ("box", "sphere", "capsule", "cylinder", "ellipsoid", "cone", "plane", "axes")
GEOM_SIZES = {"size": "ngeom", "mass": "nmass", "pos": "ngeom", "quat": "ngeom", "density": "ndensity", "fluid": "nfluid"}
DEVICES = {"site": Site, "camera": Camera, "light": Light, "tendon": Tendon, "actuator": Actuator, "medium": Medium}
SOFT = {"soft": Soft, "equality": Equality}
TOUCH = {"surface": Surface, "pair": Pair, "cone": Cone}
SHAPE_SIZES = {"box": 3, "sphere": 1, "capsule": 2, "cylinder": 2, "ellipsoid": 3}


def assemble(spec: ModelSpec, *, seed: int = 0) -> Model:
    """Make a Model of a ModelSpec; length ranges that must be searched are NaN. See `xsim.build`. Raises ValueError."""
    dtype, option = jnp.result_type(float), spec.option
    _check_option(spec)

    tree = number_tree(spec, jax.random.key(seed))
    bodies = tree.bodies
    read = read_constraints(spec, bodies)
    loop_constraints, force_elements = read.loop_constraints, read.force_elements
    shapes, devices = _read_shapes(spec), read_devices(spec, tree)
    flexes = read_flexes(spec, tree)
    pairs = read_pairs(spec, flexes.place)
    softness = read_softness(spec, tree, devices.infos["tendons"], flexes)

    def leaf(values, *shape):
        return jnp.asarray(np.asarray(values, dtype).reshape(shape))

    def ends(found):
        return {
            f"{name}{end + 1}": leaf([x.frames[end][k] for x in found], len(found), 3 + k)
            for end in (0, 1) for k, name in enumerate(("pos", "quat"))
        }  # fmt: skip

    def gathered(name):
        return [x for p in force_elements for x in p.numbers.get(name, ())]

    def row_leaf(path):
        return leaf([value for _, value in tree.rowed[path]], len(tree.rowed[path]))

    n, ne, nq, nv = len(bodies), len(tree.explicit), tree.nq, tree.nv

    def group(cls, numbers):
        """A group of leaves; numbers: a list of rows per leaf."""
        out = {}
        for f in dataclasses.fields(cls):
            rows, width = numbers[f.name], f.metadata["leaf"].shape[1:]
            out[f.name] = leaf(rows, len(rows), *width)
        return cls(**out)

    topology = Topology(
        name=spec.name,
        bodies=tuple(bodies),
        links=tuple(tree.links),
        geoms=tuple(shapes.geoms),
        sizes=(
            ("nbody", n), *((size, len(shapes.numbers[name])) for name, size in GEOM_SIZES.items()), ("naxis", len(tree.axes)),
            ("npitch", len(tree.pitch)), ("nexplicit", ne),
            ("nframe", len(tree.frames)),
            ("nref", len(tree.refs)), ("nspringdamper", len(tree.spring_dampers)),
            ("ngravity", len(tree.weights)), ("ngravcomp", len(tree.gravcomp)), ("nmocap", len(tree.mocaps)),
            *devices.sizes, *softness.sizes, *pairs.sizes, *flexes.sizes,
            ("ncoupling", len(read.couplings)),
            ("nconstraint", len(loop_constraints)), ("nvalue", sum(len(t.values) for t in loop_constraints)),
            ("nfunction", len(read.numbers)), ("nforce", len(force_elements)),
            *((size, len(gathered(leaf))) for leaf, size in FORCE_SIZES.items()), ("nq", nq), ("nv", nv),
            *((size, len(tree.rowed[path])) for path, size in ROW_LEAVES.items()),
        ),
        neutral=tuple(map(float, tree.neutral)),
        initial=(tuple(map(float, tree.q0)), tuple(map(float, tree.v0))),
        velocities=tuple(
            (i, tuple(map(float, b.velocity))) for i, b in enumerate(spec.bodies) if b.velocity is not None and bodies[i].link >= 0
        ),
        integrator=spec.option.integrator,
        rows=tuple(r for r in ROWS if r in spec.option.rows),
        rowed=tuple((path, tuple(dof for dof, _ in found)) for path, found in tree.rowed.items()),
        drives=tuple(tree.drives),
        commands=tuple(i for i, drive in enumerate(tree.drives) if drive in COMMANDED),
        couplings=tuple(c.dofs for c in read.couplings),
        motions=tuple(read.motions),
        targets=tuple(read.targets),
        functions=tuple(read.functions),
        forces=tuple(p.info for p in force_elements),
        constraints=tuple(t.info for t in loop_constraints),
        **devices.infos,
        soft=tuple(softness.infos),
        **_surfaces(spec, pairs),
        pairs=pairs.infos,
        parts=pairs.parts,
        cone=pairs.cone,
        noslip=bool(option.solver.get("noslip_iterations")),
        multiccd=bool(option.solver.get("multiccd")),
        max_contacts=None,
        max_pairs=None,
        flexes=tuple(flexes.infos),
        disabled=tuple(option.disabled),
        rules=spec.rules,
    )
    return Model(
        option=Option(leaf(option.gravity, 3), leaf(option.dt), leaf(option.regularization)),
        body=Body(
            leaf([b.pos for b in spec.bodies], n, 3),
            leaf([unit_quat(b.source, b.quat) for b in spec.bodies], n, 4),
            leaf([i.mass for i in tree.explicit], ne),
            leaf([i.com for i in tree.explicit], ne, 3),
            leaf([i.inertia for i in tree.explicit], ne, 6),
            leaf(tree.weights, len(tree.weights)),
            leaf(tree.gravcomp, len(tree.gravcomp)),
        ),
        geom=group(Geom, shapes.numbers),
        joint=Joint(
            leaf(tree.axes, len(tree.axes), 3),
            leaf(tree.pitch, len(tree.pitch)),
            leaf([pos for pos, _ in tree.frames], len(tree.frames), 3),
            leaf([quat for _, quat in tree.frames], len(tree.frames), 4),
            leaf(tree.spring_ref, nq),
            leaf(tree.refs, len(tree.refs)),
            leaf(tree.spring_dampers, len(tree.spring_dampers), 2),
            {name: jnp.asarray(np.stack(v), dtype) for name, v in tree.params.items()},
        ),
        dof=Dof(**{name: leaf(found, nv) for name, found in tree.dofs.items()}, friction=row_leaf("dof.friction")),
        limit=Limit(*(row_leaf(f"limit.{f.name}") for f in dataclasses.fields(Limit))),
        coupling=Coupling(*(
            leaf([getattr(c, f.name) for c in read.couplings], len(read.couplings)) for f in dataclasses.fields(Coupling)
        )),
        constraint=Constraint(
            **ends(loop_constraints),
            value=leaf([x for t in loop_constraints for x in t.values], sum(len(t.values) for t in loop_constraints)),
        ),
        function=Function(leaf(read.numbers, len(read.numbers))),
        force=ElementForce(
            **ends(force_elements),
            **{name: leaf(gathered(name), len(gathered(name)), *FORCE_ROWS.get(name, ())) for name in (*FORCE_SIZES, "preload")},
        ),
        **{name: group(cls, devices.numbers[name]) for name, cls in DEVICES.items()},
        **{name: group(cls, softness.numbers[name]) for name, cls in SOFT.items()},
        **{name: group(cls, pairs.numbers[name]) for name, cls in TOUCH.items()},
        flex=group(Flex, flexes.numbers),
        topology=topology,
    )


class _Shapes(NamedTuple):
    """geoms: all of them, those of the world first. numbers: rows of the geom leaves."""

    geoms: list[GeomInfo]
    numbers: dict[str, list]


def _read_shapes(spec: ModelSpec) -> _Shapes:
    out = _Shapes([], {name: [] for name in GEOM_SIZES})
    for index, body in [(-1, None), *enumerate(spec.bodies)]:
        own = spec.world_geoms if body is None else body.geoms
        drawn = _drawn(own)
        for geom in own:
            heavy = not geom.massless and (geom.mass or geom.density) and body is not None and body.inertial is None
            _add_shape(out, spec, index, geom, heavy, any(geom is d for d in drawn))
    return out


def _add_shape(out: _Shapes, spec: ModelSpec, body: int, geom: GeomSpec, heavy, drawn: bool) -> None:
    known, solid = geom.shape in SHAPE_SIZES, None
    if heavy and geom.asset is not None and geom.shape == "mesh":
        mesh = spec.meshes[geom.asset]
        x, y, z = map(float, mesh.moments)
        solid = SolidInfo(float(mesh.volume), (x, y, z))
    elif heavy and (not known or geom.shell):
        fail(geom.source, f"geom {geom.shape}: gives no inertia; give body {spec.bodies[body].name!r} an inertial")
    inertial = known and (body < 0 or spec.bodies[body].inertial is None)
    size = np.asarray(geom.size, float).reshape(-1)
    if inertial:
        if len(size) != SHAPE_SIZES[geom.shape] or not (size > 0).all():
            fail(geom.source, f"geom {geom.shape}: size {size} must be {SHAPE_SIZES[geom.shape]} positive numbers")
        if geom.mass < 0:
            fail(geom.source, f"geom {geom.shape}: mass {geom.mass} is negative")
    numbers: dict[str, list] = out.numbers
    rows: dict[str, int | None] = {"row": None, "mass": None, "density": None, "fluid": None}
    if inertial or solid or geom.contact is not None:
        rows["row"] = len(numbers["size"])
        numbers["size"].append(np.pad(size, (0, 3 - len(size))))
        numbers["pos"].append(geom.pos)
        numbers["quat"].append(unit_quat(geom.source, geom.quat))
    if (inertial or solid) and not geom.massless:
        name, number = ("mass", geom.mass) if geom.density is None else ("density", geom.density)
        rows[name] = len(numbers[name])
        numbers[name].append(number)
    if geom.fluid is not None:
        rows["fluid"] = len(numbers["fluid"])
        numbers["fluid"].append(geom.fluid)
    place = tuple(map(float, size)), tuple(map(float, geom.pos)), tuple(map(float, geom.quat))
    material = spec.drawing["materials"][geom.material]["rgba"] if geom.material else geom.rgba
    seen = material is None or material[3] != 0
    extents = None
    if geom.fluid is not None and geom.shape == "mesh" and geom.asset is not None:
        extents = tuple(map(float, np.abs(spec.meshes[geom.asset].vertices).max(0)))
    out.geoms.append(
        GeomInfo(
            geom.name, body, geom.shape, geom.rgba, rows["row"], *place, drawn, rows["mass"], rows["density"], solid, rows["fluid"],
            geom.asset, bool(seen), extents,
        )
    )  # fmt: skip


def _surfaces(spec: ModelSpec, pairs: Pairs) -> dict[str, tuple]:
    """Meshes and height fields, of a model in which rays look for them or something touches them."""
    touched = any(asset is not None for info in pairs.infos for asset in info.assets)
    if not touched and all(sensor.kind not in ("rangefinder", "distance", "normal", "fromto") for sensor in spec.sensors):
        return {}
    return {
        "meshes": tuple(
            MeshInfo(Table(mesh.vertices), Table(mesh.faces), None if mesh.hull is None else Table(mesh.hull)) for mesh in spec.meshes
        ),
        "hfields": tuple(HfieldInfo(Table(field.heights), float(field.size[3])) for field in spec.hfields),
    }


def with_integrator(model: Model, name: str) -> Model:
    """The same model with another integrator, one of `INTEGRATORS`."""
    if name not in INTEGRATORS:
        raise ValueError(f"unknown integrator {name!r}; known: {', '.join(INTEGRATORS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, integrator=name))


def with_rows(model: Model, rows: Iterable[str]) -> Model:
    """The same model with other kinds of constraint rows acting: a subset of holonomic, friction, limit, velocity, soft,
    contact.

    Soft are the equalities, limits and dry friction of MJCF; friction, limit and velocity those that are impulses."""
    rows = tuple(rows)
    for row in rows:
        if row not in ROWS:
            raise ValueError(f"unknown kind of rows {row!r}; known: {', '.join(ROWS)}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, rows=tuple(r for r in ROWS if r in rows)))


def with_contact_limit(model: Model, contacts: int | None, pairs: int | None = None) -> Model:
    """The same model with the sizes of its contact buffers set.

    contacts: the maximum number of contacts of each condim in an environment; None: 32, or two per velocity where that is more, and never
    more than there can be. pairs: the maximum number of geom pairs of one kind that reach the narrow phase, the nearest by a lower bound
    of their distance; None: the same default. Smaller buffers are faster. Where more contacts are active the deepest count, and
    `Flags.CONTACT_OVERFLOW` is set; it is also set where more pairs may be near. Raises ValueError for a number below 1."""
    for name, count in (("contacts", contacts), ("pairs", pairs)):
        if count is not None and count < 1:
            raise ValueError(f"the maximum number of {name} must be at least 1, found {count}")
    return dataclasses.replace(model, topology=dataclasses.replace(model.topology, max_contacts=contacts, max_pairs=pairs))


def _drawn(geoms: tuple[GeomSpec, ...]) -> list[GeomSpec]:
    """The shapes of a body that are drawn: its visual ones; where none of them can be drawn (meshes), those of its collisions."""
    known = [g for g in geoms if g.shape in DRAWABLE]
    return [g for g in known if g.visual] or known


def _check_option(spec: ModelSpec) -> None:
    option = spec.option
    if option.integrator not in INTEGRATORS:
        fail(spec.source, f"unknown integrator {option.integrator!r}; known: {', '.join(INTEGRATORS)}")
    unknown = [r for r in option.rows if r not in ROWS]
    if unknown:
        fail(spec.source, f"unknown kind of rows {unknown[0]!r}; known: {', '.join(ROWS)}")
    if not np.all(np.isfinite(option.gravity)) or np.shape(option.gravity) != (3,):
        fail(spec.source, "gravity must be three finite numbers")
    if not option.dt > 0:
        fail(spec.source, f"dt must be positive, found {option.dt}")
