"""Positions and velocities of the points of flexes, lengths of their edges, and the Jacobians of these lengths."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from xsim.dynamics.flex.structure import flex_plan, index_array
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import pairwise_sum
from xsim.dynamics.tree.kinematics import Frames, lanes_of, link_dof_mask, velocities
from xsim.dynamics.tree.system import System
from xsim.spatial import apply, cross, dot, normalize, safe_norm, stage, vadd, vsub


class Points(NamedTuple):
    """Points of flexes in the world frame, components (points, lanes or 1), m.

    world: positions.
    origin: the reference points of the points' trees (the world's origin for a point of the world).
    """

    world: tuple
    origin: tuple


def points(system: System, frame: Frames) -> Points:
    """The points of all flexes at a configuration."""
    plan = flex_plan(system.topology)
    world = (((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
    link_frames = [
        world if i < 0 else (frame.R[i], frame.pose[i].pos, frame.pose[system.tables.root[i]].pos) for i in plan.links.tolist()
    ]
    R = tuple(tuple(column([x[0][j][k] for x in link_frames]) for k in range(3)) for j in range(3))
    pos, origin = (tuple(column([x[part][k] for x in link_frames]) for k in range(3)) for part in (1, 2))
    world_points = _points_in_world(R, pos, system.derived.flex_material.pos, plan.point_link)
    return Points(world_points, tuple(x[plan.point_link] for x in origin))


@stage
def _points_in_world(link_R, link_pos, pos, link):
    """Positions in the world frame of points with positions ``pos`` in their links."""
    return vadd(tuple(x[link] for x in link_pos), apply(tuple(tuple(x[link] for x in row) for row in link_R), pos))


def point_velocities(system: System, frame: Frames, v, at: Points) -> tuple:
    """Velocities of the points, world axes, components (points, lanes or 1). at: their positions."""
    plan = flex_plan(system.topology)
    _, link_velocity = velocities(system, frame, v)
    twists = [((0.0,) * 3, (0.0,) * 3) if i < 0 else link_velocity[i] for i in plan.links.tolist()]
    ang, lin = (tuple(column([x[part][k] for x in twists]) for k in range(3)) for part in (0, 1))
    return _velocities(ang, lin, at, plan.point_link)


@stage
def _velocities(ang, lin, at: Points, link):
    ang, lin = (tuple(x[link] for x in part) for part in (ang, lin))
    return vadd(lin, cross(ang, vsub(at.world, at.origin)))


@stage
def edge_vectors(world, edge_points):
    """For each edge: the vector from its first point to its second, the unit vector, the length."""
    vector = vsub(*(tuple(x[edge_points[:, k]] for x in world) for k in (1, 0)))
    return vector, normalize(vector), safe_norm(vector)


@stage
def edge_rates(velocity, direction, edge_points):
    """Rates of the edges' lengths, from the velocities of all points and the edges' unit vectors."""
    return dot(direction, vsub(*(tuple(x[edge_points[:, k]] for x in velocity) for k in (1, 0))))


def edge_jacobian(system: System, frame: Frames, at: Points, edges: np.ndarray) -> tuple:
    """The Jacobian (edges, nv, lanes or 1) of the lengths of ``edges``, the lengths, and the points (edges, 2) of these edges."""
    plan = flex_plan(system.topology)
    edge_points = plan.edge_points[edges]
    _, direction, length = edge_vectors(at.world, edge_points)
    second = tuple(x[edge_points[:, 1]] for x in at.world)
    return _jacobian(plan.dof_sign[edges], direction, second, *_motions(system, frame)), length, edge_points


def point_jacobian(system: System, frame: Frames, at: Points, rows: np.ndarray) -> list:
    """The Jacobians (points, nv, lanes or 1) of the coordinates of the points ``rows`` in the world."""
    plan = flex_plan(system.topology)
    moves = link_dof_mask(system.topology)[plan.links[plan.point_link[rows]]]
    position, motions = tuple(x[index_array(rows)] for x in at.world), _motions(system, frame)
    axes = [tuple(np.full((len(rows), 1), float(i == k)) for i in range(3)) for k in range(3)]
    return [_jacobian(moves, axis, position, *motions) for axis in axes]


def _motions(system: System, frame: Frames) -> tuple:
    """Of all dofs: angular velocities (None: all zero), velocities at the reference points of their trees, and these points."""
    ang, lin = (tuple(column([s[part][k] for s in frame.subspace]) for k in range(3)) for part in (0, 1))
    no_rotation = all(isinstance(x, float) and x == 0.0 for s in frame.subspace for x in s.ang)
    roots = [frame.pose[system.tables.root[link]].pos for link in system.tables.dof_link]
    origin = tuple(column([r[k] for r in roots]) for k in range(3))
    return None if no_rotation else ang, lin, origin


@stage
def _jacobian(dof_sign, direction, point, ang, lin, origin):
    """Rate of an edge's length per dof. A dof that moves both points has sign 0: it does not change the length. So both points can be
    replaced by the second one."""
    velocity = tuple(x[None] for x in lin)
    if ang is not None:
        arm = tuple(p[:, None] - o for p, o in zip(point, origin, strict=True))
        velocity = vadd(velocity, cross(ang, arm))
    return dof_sign[..., None] * dot(tuple(x[:, None] for x in direction), velocity)


def edge_damping(system: System, frame: Frames, all_entries: bool) -> tuple[list, dict]:
    """J^T d J of the dampers of edges: its diagonal, and its entries {(row, column): value} below the diagonal.

    all_entries: all entries between a dof and those that move it; else without those that MuJoCo's sparse mass matrix leaves out. Under
    the rules of MuJoCo 4.0 no damper of a flex is implicit: the result is empty."""
    plan = flex_plan(system.topology) if system.topology.flexes else None
    if plan is None or not len(plan.spring_edges) or not system.topology.switches.flex_damping_implicit:
        return [], {}
    J, *_ = edge_jacobian(system, frame, points(system, frame), plan.spring_edges)
    moves, body = plan.dof_sign[plan.spring_edges] != 0, [system.topology.links[link].body for link in system.tables.dof_link]
    pairs = [(i, i) for i in range(len(body)) if moves[:, i].any()]
    for i, before in enumerate(system.tables.ancestors):
        if all_entries or body[i] not in plan.simple_bodies:
            pairs += [(i, j) for j in before if (moves[:, i] & moves[:, j]).any()]
    first, second = index_array(pairs).T
    values = pairwise_sum(system.flex.edge_damping[plan.spring_row][:, None] * J[:, first] * J[:, second])
    lanes = lanes_of(system, frame)
    entries = dict(zip(pairs, list(values if lanes else values[:, 0]), strict=True))
    return [entries.pop((i, i), 0.0) for i in range(len(body))], entries
