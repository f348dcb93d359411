"""From the flexes of a ModelSpec that act to their structure and numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.model.contact_pairs import touches
from xsim.model.leaf_rows import LeafRows
from xsim.model.topology import FlexInfo, Table
from xsim.model.tree import Tree
from xsim.rules import RULES, Rules
from xsim.spec import BodySpec, FlexSpec, ModelSpec

__all__ = ["Flexes", "read_flexes"]


class Flexes(NamedTuple):
    """infos: the flexes of which something acts. place: of each flex of the spec its number among them, or None."""

    infos: list[FlexInfo]
    place: list[int | None]


def read_flexes(spec: ModelSpec, tree: Tree) -> Flexes:
    """A flex acts by springs, dampers and elasticity, or where an equality keeps its edges, unless it is on a single body; or where it
    may touch something."""
    out = Flexes([], [])
    constrained = {e.items[0] for e in spec.equalities if e.kind == "flex" and e.active}
    simple = _simple(spec, tree) if spec.flexes else np.zeros(0, int)
    for i, flex in enumerate(spec.flexes):
        links = np.array([tree.bodies[body].link if body >= 0 else -1 for body in flex.bodies])
        sprung, elastic = bool(flex.numbers["edge_stiffness"] or flex.numbers["edge_damping"]), is_elastic(flex, RULES[spec.rules])
        deforms, touched = (links != links[0]).any() and (sprung or elastic or i in constrained), touches(spec, flex)
        out.place.append(len(out.infos) if deforms or touched else None)
        if deforms or touched:
            out.infos.append(_flex(tree.rows, flex, links, simple[list(flex.bodies)], deforms and sprung, deforms and elastic, touched))
    return out


def is_elastic(flex: FlexSpec, rules: Rules) -> bool:
    """Whether a flex has the elasticity of solids; under the rules 4.0 triangles have none (without a word that 3.2 does not know)."""
    return bool(flex.numbers["young"]) and (flex.dim == 3 or flex.dim == 2 and rules.elastic_triangles)


def _flex(rows: LeafRows, flex: FlexSpec, links: np.ndarray, simple: np.ndarray, sprung: bool, elastic: bool, touched: bool) -> FlexInfo:
    own = flex.numbers
    rows["flex.pos"].extend(flex.pos)
    rows["flex.length"].extend(flex.lengths.tolist())
    spring = solid = thickness = radius = None
    if sprung:
        spring = rows.add_to("flex", edge_stiffness=own["edge_stiffness"], edge_damping=own["edge_damping"])
    if elastic:
        solid = rows.add_to("flex", young=own["young"], poisson=own["poisson"], damping=own["elastic_damping"])
        thickness = rows.add("flex.thickness", own["thickness"]) if flex.dim == 2 else None
    if touched:
        radius = rows.add("flex.radius", flex.radius)
    free = links[flex.edges[:, 0]] != links[flex.edges[:, 1]]
    edges, corners = Table(flex.edges), Table(flex.corners)
    return FlexInfo(
        flex.name, flex.dim, flex.bodies, edges, corners, Table(free), tuple(simple.tolist()), spring, solid, thickness, radius
    )  # fmt: skip


def _simple(spec: ModelSpec, tree: Tree) -> np.ndarray:
    """Of the bodies and, last, the world, `FlexInfo.simple`: those whose inertia is diagonal to MuJoCo, which has rules for them."""
    parents = {body.parent for body in spec.bodies}
    alone = [i not in parents and (b.parent < 0 or tree.bodies[b.parent].link < 0) and _centred(b) for i, b in enumerate(spec.bodies)]
    return np.array([*(_moves(body) if own else 0 for own, body in zip(alone, spec.bodies, strict=True)), 0])


def _moves(body: BodySpec) -> int:
    """1 for a free body, 2 for one that slides along its own axes, else 0."""
    assert isinstance(body.joints, tuple)
    kinds = [j.type for j in body.joints]
    if kinds == ["free"]:
        return 1
    slides = bool(kinds) and all(kind == "slide" for kind in kinds)
    return 2 if slides and all(np.count_nonzero(np.abs(j.params["axes"][0]) > 1e-12) == 1 for j in body.joints) else 0


def _centred(body: BodySpec) -> bool:
    if body.inertial is not None:
        return not np.any(body.inertial.com) and not np.any(body.inertial.inertia[3:])
    heavy = [g for g in body.geoms if not g.massless and (g.mass or g.density)]
    return all(not np.any(g.pos) and not np.any(g.quat[1:]) for g in heavy)
