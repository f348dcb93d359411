"""Reads the flexes of a ModelSpec into the topology and the leaves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.model.contact_pairs import can_collide
from xsim.model.flex_topology import FlexInfo, GridInfo, RodInfo
from xsim.model.shape_functions import strain_modes
from xsim.model.topology import Table
from xsim.model.tree import Tree
from xsim.spec import BodySpec, FlexSpec, GridSpec, ModelSpec

__all__ = ["Flexes", "read_flexes"]

SHELL = "mujoco.elasticity.shell"  # the passive force that acts on a flex


class Flexes(NamedTuple):
    """infos: the flexes with forces or contacts. index: per flex of the spec, its index in infos, or None."""

    infos: list[FlexInfo]
    index: list[int | None]


def read_flexes(spec: ModelSpec, tree: Tree) -> Flexes:
    """The flexes of the model: those that can collide, and those with edge springs, elasticity or an equality constraint whose points are
    not all on one link."""
    out = Flexes([], [])
    constrained = {e.items[0] for e in spec.equalities if e.kind in ("flex", "flexstrain") and e.active}
    strained = {e.items[0] for e in spec.equalities if e.kind == "flexstrain" and e.active}
    shells = {body for force in spec.passive if force.kind == SHELL for body in force.bodies}
    simple = _simple(spec, tree) if spec.flexes else np.zeros(0, int)
    for i, flex in enumerate(spec.flexes):
        links = np.array([tree.bodies[body].link if body >= 0 else -1 for body in flex.bodies])
        springs = bool(flex.numbers["edge_stiffness"] or flex.numbers["edge_damping"])
        forces = springs, _stretches(flex), _bends(flex), flex.rod is not None
        acted_on = any(forces) or i in constrained or not shells.isdisjoint(flex.bodies)
        deforms, collides = (links != links[0]).any() and acted_on, can_collide(spec, flex)
        out.index.append(len(out.infos) if deforms or collides else None)
        if deforms or collides:
            acts = tuple(deforms and force for force in forces)
            out.infos.append(_flex(tree, flex, links, simple[list(flex.bodies)], *acts, collides, i in strained))
        else:
            tree.add_plastic(flex.nplastic)
    return out


def _strains(grid: GridSpec) -> tuple[Table, ...]:
    """See `GridInfo.strains`."""
    if grid.weights is None:
        return (Table(strain_modes(grid.order, grid.sides)),) * len(grid.cells)
    return tuple(Table(strain_modes(grid.order, grid.sides, weights)) for weights in grid.weights)


def _stretches(flex: FlexSpec) -> bool:
    """Whether the elements of a flex resist stretching and shear."""
    solid = flex.dim == 3 or flex.grid is not None and not _is_sheet(flex)
    return bool(flex.numbers["young"]) and (solid or flex.dim == 2 and flex.numbers["elastic2d"] in ("stretch", "both"))


def _is_sheet(flex: FlexSpec) -> bool:
    """Whether the material of a flex has a thickness."""
    return flex.dim == 2 and (flex.grid is None or flex.grid.axes.shape[1] == 2)


def _bends(flex: FlexSpec) -> bool:
    """Whether the triangles of a flex resist bending."""
    return bool(flex.numbers["young"]) and len(flex.hinges) > 0 and flex.numbers["elastic2d"] in ("bend", "both")


def _flex(
    tree: Tree, flex: FlexSpec, links: np.ndarray, simple: np.ndarray,
    springs: bool, stretches: bool, bends: bool, twists: bool, collides: bool, strained: bool,
) -> FlexInfo:  # fmt: skip
    rows, values = tree.rows, flex.numbers
    rows["flex.pos"].extend(flex.pos)
    grid, edges, corners = None, flex.edges, flex.corners
    if flex.grid is None:
        rows["flex.length"].extend(flex.lengths.tolist())
    else:
        of = flex.grid
        tables = (Table(x) for x in (of.places, of.vertex_nodes, of.vertex_weights))
        side, weights = rows.add("flex.side", of.sides.tolist()), None if of.weights is None else Table(of.weights)
        grid = GridInfo(of.order, Table(of.cells), Table(of.axes), side, of.counts, *tables, weights, _strains(of) if strained else ())
        edges, corners = edges[:0], corners[:0]
    spring = elastic = thickness = radius = None
    if springs:
        spring = rows.add_to("flex", edge_stiffness=values["edge_stiffness"], edge_damping=values["edge_damping"])
    if stretches or bends or twists:
        elastic = rows.add_to("flex", young=values["young"], poisson=values["poisson"], damping=values["elastic_damping"])
        thickness = rows.add("flex.thickness", values["thickness"]) if _is_sheet(flex) else None
    if bends:
        rows["flex.angle"].extend(flex.angles.tolist())
    if collides or twists:
        radius = rows.add("flex.radius", flex.radius)
    free = links[edges[:, 0]] != links[edges[:, 1]]
    return FlexInfo(
        flex.name, flex.dim, flex.bodies, Table(edges), Table(corners), Table(free), tuple(simple.tolist()), spring, elastic,
        thickness, radius, Table(flex.hinges), stretches, bends, _rod(tree, flex, twists), grid,
        *_yielding(tree, flex, stretches, bends),
    )  # fmt: skip


def _yielding(tree: Tree, flex: FlexSpec, stretches: bool, bends: bool) -> tuple[int | None, ...]:
    """`FlexInfo.yield_strain`, `FlexInfo.plastic`, `FlexInfo.bend_yield_strain` and `FlexInfo.plastic_folds`."""
    out: list[int | None] = [None] * 4
    if flex.rod is not None or not flex.nplastic:
        return tuple(out)
    plastic, elements = tree.add_plastic(flex.nplastic), flex.nplastic_elements
    if stretches and elements:
        out[:2] = tree.rows.add("flex.yield_strain", flex.numbers["yield_strain"]), plastic
    if bends and flex.nplastic > elements:
        out[2:] = tree.rows.add("flex.bend_yield_strain", flex.numbers["bend_yield_strain"]), plastic + elements
    return tuple(out)


def _rod(tree: Tree, flex: FlexSpec, acts: bool) -> RodInfo | None:
    if flex.rod is None:
        return None
    rod, plastic = flex.rod, tree.add_plastic(flex.rod.nplastic)
    if not acts:
        return None
    joints = [None if twist is None else tree.bodies[twist[0]].joints[twist[1]] for twist in rod.twists]
    twists = tuple(None if joint is None else (joint.q[0], joint.v[0]) for joint in joints)
    shear = tree.rows.add("flex.shear", rod.shear)
    section = tree.rows.add("flex.section", sorted(rod.section, reverse=True)) if rod.section else None
    tree.rows["flex.curvature"].extend(rod.curvature)
    ends = (tuple(tuple(map(float, x)) for x in vectors) for vectors in (rod.tangents, rod.normals))
    return RodInfo(shear, section, *ends, twists, plastic)


def _simple(spec: ModelSpec, tree: Tree) -> np.ndarray:
    """`FlexInfo.simple` of every body and, last, of the world. MuJoCo has special rules for bodies with diagonal inertia."""
    parents = {body.parent for body in spec.bodies}
    diagonal = [i not in parents and (b.parent < 0 or tree.bodies[b.parent].link < 0) and _centred(b) for i, b in enumerate(spec.bodies)]
    return np.array([*(_motion(body) if is_diagonal else 0 for is_diagonal, body in zip(diagonal, spec.bodies, strict=True)), 0])


def _motion(body: BodySpec) -> int:
    """1 for a free body, 2 for one that only slides along its axes, else 0."""
    kinds = [j.type for j in body.joints]
    if kinds == ["free"]:
        return 1
    slides = bool(kinds) and all(kind == "slide" for kind in kinds)
    return 2 if slides and all(np.count_nonzero(np.abs(j.params["axes"][0]) > 1e-12) == 1 for j in body.joints) else 0


def _centred(body: BodySpec) -> bool:
    """Whether the inertia is diagonal about the origin of the body."""
    if body.inertial is not None:
        return not np.any(body.inertial.com) and not np.any(body.inertial.inertia[3:])
    with_mass = [g for g in body.geoms if not g.massless and (g.mass or g.density)]
    return all(not np.any(g.pos) and not np.any(g.quat[1:]) for g in with_mass)
