"""Positions and velocities of the points of deformables, lengths of their edges and the derivatives of those."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.dynamics.flex.structure import index_array, plan
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.tree.kinematics import Frames, lanes_of, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import apply, cross, dot, normalize, safe_norm, stage, vadd, vsub


class Points(NamedTuple):
    """World positions, and the reference points of their trees (the origin for those of the world): components (points, lanes or 1)."""

    world: tuple
    origin: tuple


def points(system: System, frame: Frames) -> Points:
    layout = plan(system.topology)
    world = (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    own = [
        world if i < 0 else (frame.R[i], frame.pose[i].pos, frame.pose[system.tables.root[i]].pos) for i in layout.links.tolist()
    ]
    R = tuple(tuple(column([x[0][j][k] for x in own]) for k in range(3)) for j in range(3))
    pos, origin = (tuple(column([x[part][k] for x in own]) for k in range(3)) for part in (1, 2))
    return Points(_placed(R, pos, system.derived.flex_material.pos, layout.carrier), tuple(x[layout.carrier] for x in origin))


@stage
def _placed(R, pos, own, carrier):
    return vadd(tuple(x[carrier] for x in pos), apply(tuple(tuple(x[carrier] for x in row) for row in R), own))


def point_velocities(system: System, frame: Frames, v, at: Points) -> tuple:
    """Velocities of the points."""
    layout = plan(system.topology)
    _, moving = velocities(system, frame, v)
    own = [((0.0,) * 3, (0.0,) * 3) if i < 0 else moving[i] for i in layout.links.tolist()]
    ang, lin = (tuple(column([x[part][k] for x in own]) for k in range(3)) for part in (0, 1))
    return _carried(ang, lin, at, layout.carrier)


@stage
def _carried(ang, lin, at: Points, carrier):
    ang, lin = (tuple(x[carrier] for x in part) for part in (ang, lin))
    return vadd(lin, cross(ang, vsub(at.world, at.origin)))


@stage
def edge_vectors(world, ends):
    """Of edges: from the first point to the second, that direction, length."""
    apart = vsub(*(tuple(x[ends[:, k]] for x in world) for k in (1, 0)))
    return apart, normalize(apart), safe_norm(apart)


@stage
def edge_rates(speeds, direction, ends):
    return dot(direction, vsub(*(tuple(x[ends[:, k]] for x in speeds) for k in (1, 0))))


def edge_jacobian(system: System, frame: Frames, at: Points, edges: np.ndarray) -> tuple:
    """J (edges, nv, lanes or 1) of the lengths of some edges, the lengths, and the edges' numbers of ends."""
    layout = plan(system.topology)
    ends = layout.ends[edges]
    _, direction, length = edge_vectors(at.world, ends)
    ang, lin = (tuple(column([s[part][k] for s in frame.subspace]) for k in range(3)) for part in (0, 1))
    still = all(isinstance(x, float) and x == 0.0 for s in frame.subspace for x in s.ang)
    roots = [frame.pose[system.tables.root[link]].pos for link in system.tables.dof_link]
    origin = tuple(column([r[k] for r in roots]) for k in range(3))
    second = tuple(x[ends[:, 1]] for x in at.world)
    return _jacobian(layout.sign[edges], direction, second, None if still else ang, lin, origin), length, ends


@stage
def _jacobian(sign, direction, point, ang, lin, origin):
    """A dof that moves both ends changes no length."""
    velocity = tuple(x[None] for x in lin)
    if ang is not None:
        arm = tuple(p[:, None] - o for p, o in zip(point, origin, strict=True))
        velocity = vadd(velocity, cross(ang, arm))
    return sign[..., None] * dot(tuple(x[:, None] for x in direction), velocity)


def edge_damping(system: System, frame: Frames, whole: bool) -> tuple[list, dict]:
    """J^T d J of the dampers along edges: its diagonal, and what couples a dof with those that move it (row, column). whole: not without
    what the sparsity of the mass matrix leaves out. Under the rules 4.0 nothing of flexes is implicit."""
    layout = plan(system.topology) if system.topology.flexes else None
    if layout is None or not len(layout.springs) or not system.topology.switches.flex_damping_implicit:
        return [], {}
    J, *_ = edge_jacobian(system, frame, points(system, frame), layout.springs)
    moves, body = layout.sign[layout.springs] != 0, [system.topology.links[link].body for link in system.tables.dof_link]
    pairs = [(i, i) for i in range(len(body)) if moves[:, i].any()]
    for i, before in enumerate(system.tables.ancestors):
        if whole or body[i] not in layout.simple:
            pairs += [(i, j) for j in before if (moves[:, i] & moves[:, j]).any()]
    first, second = index_array(pairs).T
    found = pairwise_sum(system.flex.edge_damping[layout.spring][:, None] * J[:, first] * J[:, second])
    lanes = lanes_of(system, frame)
    entries = dict(zip(pairs, list(found if lanes else found[:, 0]), strict=True))
    return [entries.pop((i, i), 0.0) for i in range(len(body))], entries
