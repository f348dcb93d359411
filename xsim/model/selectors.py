"""Selectors: names for numbers of a model, such as ``dof.damping[link2]``. `Model.get`, `Model.replace`, `xsim.randomize` and `xsim.sysid`
read them.

=======================  ==========================================================================================================
``dof.damping``          all numbers of a leaf: a path of `Model.paths`, or a pattern of paths (``dof.*``)
``dof.damping[link*]``   rows by name, or by a pattern of names: of the body, constraint, force or function that a row belongs to
``geom.mass[2]``         one row by its index, where no row has that name
``geom.pos[link2, 0]``   one column of these rows
``option.gravity[2]``    an option has no rows; its numbers are chosen by index
=======================  ==========================================================================================================

A name may match several rows: all geoms of a body, all dofs of its joint. The world's geoms have the name ``world``.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from xsim.model.topology import SPRINGS, ForceInfo, Topology
from xsim.registry import SOFT_CONSTRAINTS
from xsim.suggestions import did_you_mean, unknown_leaf

__all__ = ["Entry", "HasLeaves", "element_name", "entry", "has_rows", "row_names", "select"]


class HasLeaves(Protocol):
    """What a selector reads of a model: see `xsim.Model`."""

    @property
    def topology(self) -> Topology: ...

    @property
    def body_names(self) -> tuple[str, ...]: ...

    def paths(self) -> tuple[str, ...]: ...

    def shape(self, path: str) -> tuple[int, ...]: ...

    def declaration(self, path: str) -> Any: ...


# ---- the grammar -------------------------------------------------------------------------------------------------------------


class Selector(NamedTuple):
    """A selector taken apart. row: a name, a pattern of names or an index, None for all rows. column: an index, None for all columns."""

    text: str
    path: str
    row: str | None = None
    column: int | None = None


def _read(text: str) -> Selector:
    path, bracket, rest = text.partition("[")
    if not bracket:
        return Selector(text, path)
    if not rest.endswith("]"):
        raise ValueError(f"{text}: expected leaf, leaf[row] or leaf[row, column]")
    row, comma, column = rest[:-1].rpartition(",")
    if comma and column.strip().isdigit():
        return Selector(text, path, row.strip(), int(column))
    return Selector(text, path, rest[:-1].strip())


def select(model: HasLeaves, selector: str) -> dict[str, np.ndarray]:
    """Flat indices (n,) of the chosen elements of one environment's leaf, by path; paths without a chosen element are left out.

    Raises KeyError for an unknown leaf or row, ValueError for a malformed selector, an unknown column, or leaves without any number.
    """
    s = _read(selector)
    paths = fnmatch.filter(model.paths(), s.path)
    if not paths:
        raise KeyError(f"{selector}: {unknown_leaf(s.path, model.paths())}")
    elements = {path: _elements(model, path, s) for path in paths}
    chosen = {path: x for path, x in elements.items() if x.size}
    if not chosen and s.row is None:
        hint = "geom.mass where bodies have geoms, body.mass where they have an inertial"
        raise ValueError(f"{selector}: this model has no such numbers ({hint})")
    if not chosen:
        raise KeyError(_unknown_row(model, s, paths))
    return chosen


class Entry(NamedTuple):
    """A part of one leaf. index: of its axes without the batch, to be used after an Ellipsis. shape: of the part, without the batch."""

    path: str
    index: tuple
    shape: tuple[int, ...]


def entry(model: HasLeaves, selector: str) -> Entry:
    """The rows of one leaf that a selector with brackets names: one row without its axis where one row has the name.

    Raises KeyError for an unknown leaf or row, ValueError for a malformed selector or an unknown column."""
    s = _read(selector)
    select(model, selector)
    shape = model.shape(s.path) or (1,)
    rows = _rows(model, s.path, str(s.row))
    first = int(rows[0]) if len(rows) == 1 else rows
    index = (first, *[slice(None)] * (len(shape) - 1)) if s.column is None else (first, s.column)
    return Entry(s.path, index, np.zeros(shape, bool)[index].shape)


def _elements(model: HasLeaves, path: str, s: Selector) -> np.ndarray:
    shape = model.shape(path) or (1,)
    grid = np.arange(math.prod(shape)).reshape(shape)
    if s.row is not None:
        grid = grid[_rows(model, path, s.row)]
    if s.column is not None and grid.size:
        if grid.ndim < 2 or s.column >= grid.shape[-1]:
            raise ValueError(f"{s.text}: no column '{s.column}' in a row of shape {shape[1:]}")
        grid = grid[..., s.column]
    return grid.reshape(-1)


def _rows(model: HasLeaves, path: str, row: str) -> np.ndarray:
    """Indices of the rows with a name or, where no row has it, of the row with this index. An option's numbers have indices alone."""
    names = row_names(model, path) if has_rows(model, path) else None
    rows = [] if names is None else [i for i, name in enumerate(names) if fnmatch.fnmatchcase(name, row)]
    count = math.prod(model.shape(path)) if names is None else len(names)
    if not rows and row.isdigit() and int(row) < count:
        rows = [int(row)]
    return np.array(rows, int)


OF_INERTIALS = ("body.mass", "body.com", "body.inertia")
"""Leaves that have rows for bodies with an explicit inertia alone."""


def _unknown_row(model: HasLeaves, s: Selector, paths: list[str]) -> str:
    names = sorted({name for path in paths for name in row_names(model, path) if name})
    counts = ", ".join(f"{path} has {model.shape(path)[0] if model.shape(path) else 1} rows" for path in paths)
    hint = did_you_mean(str(s.row), names)
    if s.path in OF_INERTIALS and s.row in model.body_names:
        hint = f" (this body's mass is in its geoms: geom.mass[{s.row}] or geom.density[{s.row}])"
    return f"{s.text}: no row is named {s.row!r}{hint}; names: {', '.join(names) or 'none'}; {counts}"


def element_name(model: HasLeaves, path: str, element: int) -> str:
    """The selector of one element, given by its flat index: with the row's name where only one row has it, else with its index."""
    shape = model.shape(path)
    if not shape:
        return path
    index, column = divmod(element, math.prod(shape[1:]))
    row = str(index)
    if has_rows(model, path):
        names = row_names(model, path)
        row = names[index] if names.count(names[index]) == 1 else row
    return f"{path}[{row}]" if len(shape) == 1 else f"{path}[{row}, {column}]"


# ---- names of rows -----------------------------------------------------------------------------------------------------------


def has_rows(model: HasLeaves, path: str) -> bool:
    """Whether the first dimension of a leaf counts things that have names. Options belong to the model itself."""
    return not path.startswith("option.")


def row_names(model: HasLeaves, path: str) -> list[str]:
    """Name of the body, constraint, force or function of every row of a leaf; an option is one row without a name."""
    if not has_rows(model, path):
        return [""]
    if path.startswith("joint.params."):
        joint_type = path[len("joint.params.") :].rsplit(".", 1)[0]
        return [b.name for b in model.topology.bodies for j in b.joints if j.type == joint_type]
    if path in dict(model.topology.dof_rows):
        return _of_dofs(model, model.topology.dofs(path))
    return ROW_NAMES[model.declaration(path).shape[0]](model)


def _of_dofs(model: HasLeaves, dofs) -> list[str]:
    names = [b.name for b in model.topology.bodies for _ in range(b.v[1])]
    return [names[d] for d in dofs]


def _of_forces(count: Callable[[ForceInfo], int]) -> Callable[[HasLeaves], list[str]]:
    """The names of the force elements, each repeated for its ``count`` rows."""
    return lambda m: [f.name for f in m.topology.forces for _ in range(count(f))]


def _coefficients(name: str) -> Callable[[ForceInfo], int]:
    return lambda f: 0 if getattr(f, name) is None else 6 if f.kind == "bushing" else 1


def _map_numbers(f: ForceInfo) -> int:
    if f.map is None:
        return 0
    _, rates, lengths = f.map
    return rates + lengths + rates * lengths


def _of_geoms(model: HasLeaves, row: str) -> list[str]:
    """The bodies of the geoms whose field ``row`` is set."""
    bodies = model.topology.bodies
    return [bodies[g.body].name if g.body >= 0 else "world" for g in model.topology.geoms if getattr(g, row) is not None]


def _of_contact_rows(model: HasLeaves, mixed: bool) -> list[str]:
    """Names of the rows of surfaces (mixed) or of pairs: the body or flex of the surface's geom, or of the pair's first that moves."""
    names: dict[int, str] = {}
    for info in model.topology.pairs:
        if info.mixed != mixed:
            continue
        for geoms, rows in zip(info.geoms.value.tolist(), info.leaf_rows.value.tolist(), strict=True):
            bodies = [_geom_body(model, geom) for geom in geoms]
            if mixed:
                names.update(zip(rows, bodies, strict=True))
            else:
                names[rows] = next((name for name in bodies if name != "world"), "world")
    return [names[row] for row in range(len(names))]


def _geom_body(model: HasLeaves, geom: int) -> str:
    """The body of a geom, or the flex of a flex's part, which are counted after the geoms."""
    topology = model.topology
    if geom >= len(topology.geoms):
        return topology.flexes[topology.parts[geom - len(topology.geoms)].flex].name
    body = topology.geoms[geom].body
    return model.body_names[body] if body >= 0 else "world"


def _of_infos(group: str, row: str | None = None) -> Callable[[HasLeaves], list[str]]:
    """The names of the elements of a group; with ``row``, of those whose field of this name is set."""
    return lambda m: [x.name for x in getattr(m.topology, group) if row is None or getattr(x, row) is not None]


def _of_joints(row: str) -> Callable[[HasLeaves], list[str]]:
    """The bodies of the joints whose field is set."""
    return lambda m: [b.name for b in m.topology.bodies for j in b.joints if getattr(j, row) is not None]


def _of_soft(field: str, leaf: str | None = None) -> Callable[[HasLeaves], list[str]]:
    """The names of the soft constraints whose field is a row, by row; with ``leaf``, of the kinds that read this leaf of ``equality``."""

    def names(model: HasLeaves) -> list[str]:
        kinds = {kind for kind in SOFT_CONSTRAINTS if leaf in SOFT_CONSTRAINTS[kind].leaves}
        constraints = [c for c in model.topology.soft if leaf is None or c.kind in kinds]
        by_row = {getattr(c, field): c.name for c in constraints if getattr(c, field) is not None}
        return [by_row[row] for row in range(len(by_row))]

    return names


ROW_NAMES: dict[str, Callable[[HasLeaves], list[str]]] = {
    "nbody": lambda m: [b.name for b in m.topology.bodies],
    "nexplicit": lambda m: [b.name for b in m.topology.bodies if b.explicit is not None],
    "nframe": lambda m: [b.name for b in m.topology.bodies for j in b.joints if j.frame is not None],
    "nref": lambda m: [m.topology.bodies[link.body].name for link in m.topology.links if link.ref is not None],
    "ngravity": lambda m: [b.name for b in m.topology.bodies if b.gravity is not None],
    "ncoupling": lambda m: _of_dofs(m, [follower for follower, _ in m.topology.couplings]),
    "nconstraint": lambda m: [c.name for c in m.topology.constraints],
    "nvalue": lambda m: [c.name for c in m.topology.constraints for row in c.rows if row[3] is not None],
    "naxis": lambda m: [b.name for b in m.topology.bodies for j in b.joints for _ in j.axes],
    "nfunction": lambda m: [f.name for f in m.topology.functions for _ in range(f.width)],
    "nforce": _of_forces(lambda f: 1),
    "nspring": _of_forces(lambda f: f.kind in SPRINGS),
    "nstiffness": _of_forces(_coefficients("stiffness")),
    "ndamping": _of_forces(_coefficients("damping")),
    "nstop": _of_forces(lambda f: f.stop is not None),
    "nmap": _of_forces(_map_numbers),
    "nload": _of_forces(lambda f: f.kind == "load"),
    **{
        size: _of_infos(group) for size, group in (
            ("nsite", "sites"), ("ncamera", "cameras"), ("nlight", "lights"), ("ntendon", "tendons"), ("nactuator", "actuators"),
        )
    },
    **{
        size: _of_infos("actuators", row) for size, row in (
            ("ndampratio", "damp_ratio"), ("ncrank", "crank"), ("nforcerange", "force_range"),
            ("nactrange", "act_range"), ("nlengthrange", "length_range"), ("nactuatorarmature", "armature"),
            ("nactuatordamping", "damping"), ("nactuatordampingpoly", "damping_poly"), ("nactuatordelay", "history"),
        )
    },
    "npassivenumber": lambda m: [p.name or p.kind for p in m.topology.passive for _ in p.numbers],
    "nsensordelay": _of_infos("sensors", "history"),
    "nsdf": lambda m: [sdf.name for sdf in m.topology.sdfs for _ in sdf.numbers],
    "nctrlrange": lambda m: [a.name for a in m.topology.actuators for row in a.ctrl_ranges if row is not None],
    **{
        size: _of_infos("tendons", row) for size, row in (
            ("nspringlength", "spring"), ("ntendonrange", "range"), ("ntendonfriction", "friction"), ("ntendonarmature", "armature"),
            ("ntendonstiffnesspoly", "stiffness_poly"), ("ntendondampingpoly", "damping_poly"), ("ntendonforcerange", "force_range"),
            ("ntendonspringyield", "spring_yield"),
        )
    },
    "nsoft": _of_soft("soft"),
    "nanchor": _of_soft("row", "anchor"),
    "npolynomial": _of_soft("row", "polynomial"),
    "nrelpose": _of_soft("pose"),
    "ntorquescale": _of_soft("scale"),
    "nsurface": lambda m: _of_contact_rows(m, True),
    "npair": lambda m: _of_contact_rows(m, False),
    "nflexpoint": lambda m: [f.name for f in m.topology.flexes for _ in f.bodies],
    "nflexedge": lambda m: [f.name for f in m.topology.flexes for _ in f.edges.value],
    "nflexspring": _of_infos("flexes", "spring"),
    "nflexelastic": _of_infos("flexes", "elastic"),
    "nflexsheet": _of_infos("flexes", "thickness"),
    "nflexround": _of_infos("flexes", "radius"),
    "nflexrod": lambda m: [f.name for f in m.topology.flexes if f.rod is not None],
    "nflexyield": _of_infos("flexes", "yield_strain"),
    "nflexfold": _of_infos("flexes", "bend_yield_strain"),
    "nflexbox": lambda m: [f.name for f in m.topology.flexes if f.rod is not None and f.rod.section is not None],
    "nflexgrid": lambda m: [f.name for f in m.topology.flexes if f.grid is not None],
    "nflexbend": lambda m: [f.name for f in m.topology.flexes if f.rod is not None for _ in f.corners.value[1:]],
    "nflexhinge": lambda m: [f.name for f in m.topology.flexes if f.bends for _ in f.hinges.value],
    "ncone": lambda m: ["contact"] * m.topology.size("ncone"),
    "ncoefficient": lambda m: [t.name for t in m.topology.tendons for p in t.path if p.kind == "joint"],
    "ndivisor": lambda m: [t.name for t in m.topology.tendons for p in t.path if p.kind == "pulley"],
    "nmass": lambda m: _of_geoms(m, "mass"),
    "ndensity": lambda m: _of_geoms(m, "density"),
    "nsurfacevelocity": lambda m: _of_geoms(m, "surface_velocity"),
    "nadhesion": lambda m: _of_geoms(m, "adhesion"),
    "npairadhesion": lambda m: [_of_contact_rows(m, False)[row] for row, _ in m.topology.pair_adhesion],
    "nfluid": lambda m: _of_geoms(m, "fluid"),
    "ngravcomp": lambda m: [b.name for b in m.topology.bodies if b.gravcomp is not None],
    "nspringdamper": _of_joints("spring_damper"),
    "nstiffnesspoly": _of_joints("stiffness_poly"),
    "nspringyield": _of_joints("spring_yield"),
    "ndampingpoly": _of_joints("damping_poly"),
    "nmedium": lambda m: ["medium"] * m.topology.size("nmedium"),
    "nmagnetic": lambda m: ["medium"] * m.topology.size("nmagnetic"),
    "npitch": lambda m: [m.topology.bodies[link.body].name for link in m.topology.links if link.pitch is not None],
    "nq": lambda m: [b.name for b in m.topology.bodies for _ in range(b.q[1])],
    "nv": lambda m: _of_dofs(m, range(m.nv)),
    "ngeom": lambda m: _of_geoms(m, "row"),
}
"""Names of the rows of a leaf, by the name of the leaf's first dimension."""
