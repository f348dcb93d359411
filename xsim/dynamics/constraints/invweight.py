"""Mobilities for soft constraints: diagonals of J M^-1 J^T in the reference configuration (MuJoCo's invweight0)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.flex_contacts import part_bodies
from xsim.dynamics.constraints.flex_edges import edge_mobility, has_edge_rows
from xsim.dynamics.constraints.flex_strains import strained_bodies
from xsim.dynamics.flex.kinematics import edge_jacobian, points
from xsim.dynamics.flex.structure import flex_plan
from xsim.dynamics.linalg.dense import assembled
from xsim.dynamics.tendons.tendons import LengthAndJacobian
from xsim.dynamics.tree.frames import body_end, body_link
from xsim.dynamics.tree.kinematics import Frames, point_velocity
from xsim.dynamics.tree.system import Mobility, System
from xsim.model.topology import Topology
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spatial import IDENTITY, add, mul


def _constrained_bodies(topology: Topology) -> list[int]:
    """The bodies that soft constraints act on. Only their mobilities are computed."""
    out: set[int] = set()
    for info in topology.soft:
        if info.kind == "flexstrain":
            out |= set(strained_bodies(topology, info)) - {-1}
        elif info.kind in SOFT_CONSTRAINTS and SOFT_CONSTRAINTS[info.kind].items == "bodies":
            out |= {topology.sites[i].body for i in info.items} if info.sites else set(info.items)
    if has_contacts(topology):
        count = len(topology.geoms)
        for geom in {g for info in topology.pairs for g in info.geoms.value.reshape(-1).tolist()}:
            bodies = (topology.geoms[geom].body,) if geom < count else part_bodies(topology, geom - count)
            out |= set(bodies) - {-1}
    return sorted(out)


def _mean(values: list):
    out = 0.0
    for x in values:
        out = add(out, x)
    return mul(out, 1.0 / len(values))


def mobility(system: System, frame: Frames, mass, tendon: list[LengthAndJacobian]) -> Mobility:
    """The mobilities of dofs, tendons, bodies and edges. frame, mass (rows of the mass matrix), tendon: in the reference configuration."""
    top, nv = system.topology, len(mass)
    constrained = _constrained_bodies(top)
    moving = [body for body in constrained if body_link(system, body) >= 0]
    entries = {(i, i): 1.0 for i in range(nv)}
    entries |= {(nv + i, dof): x for i, t in enumerate(tendon) for dof, x in t.row}
    first = nv + len(tendon)
    for i, body in enumerate(moving):
        end = body_end(system, frame, body, system.body.com[body], IDENTITY)
        for dof in system.tables.chain[body_link(system, body)]:
            s = frame.subspace[dof]
            twist = (*point_velocity(s, end.x), *s.ang)
            entries |= {(first + 6 * i + k, dof): x for k, x in enumerate(twist)}
    before = system.tables.ancestors
    lower = {(i, j): x for i, row in enumerate(mass) for j, x in zip((*before[i], i), row, strict=True)}
    full = lower | {(j, i): x for (i, j), x in lower.items()}
    last = first + 6 * len(moving)
    J, edges = assembled(entries, (last, nv), mass, entries), None
    if has_edge_rows(top):
        J = _with_edges(J, edge_jacobian(system, frame, points(system, frame), flex_plan(top).constrained_edges)[0])
    diagonal = _diagonal(assembled(full, (nv, nv), mass), J)
    values = list(diagonal[:last])
    if has_edge_rows(top):
        edges = edge_mobility(system, diagonal[last:] if diagonal.ndim > 1 else diagonal[last:, None])
    dofs = values[:nv]
    for joint in top.joints:
        width = {"ball": 3, "free": 3}.get(joint.type, 1)
        for v in range(joint.v[0], sum(joint.v), width):
            dofs[v : v + width] = [_mean(values[v : v + width])] * width
    bodies: dict = dict.fromkeys(constrained, (0.0, 0.0))
    for i, body in enumerate(moving):
        of_body = values[first + 6 * i :]
        bodies[body] = _mean(of_body[:3]), _mean(of_body[3:6])
    for i, info in enumerate(top.bodies):
        if top.switches.sliding_bodies_by_mass and info.only_slides:
            (start, count), inverse_mass = info.v, 1.0 / system.body.inertia[i].mass
            dofs[start : start + count] = [inverse_mass] * count
            if i in bodies:
                bodies[i] = inverse_mass, 0.0
    return Mobility(dofs, values[nv:first], bodies, [t.length for t in tendon], edges)


def _with_edges(rows, edges):
    """The Jacobian rows (n, nv) or (n, nv, lanes), then those of edges (m, nv, lanes or 1)."""
    if rows.ndim == 2 and edges.shape[-1] == 1:
        return jnp.concatenate([rows, edges[..., 0]])
    rows = rows[..., None] if rows.ndim == 2 else rows
    width = max(rows.shape[-1], edges.shape[-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (rows, edges)])


def _diagonal(mass, rows):
    """The diagonal of J M^-1 J^T, (n, lanes). mass: M; rows: J.

    The last dof is eliminated first: the mass matrix of a tree has no fill-in then (see `linalg.dense.Cholesky`), and a row needs the dofs
    of its own chain alone. Operations with the other entries, constant zeros, are left out of compiled programs."""
    mass, rows = mass[::-1, ::-1], rows[:, ::-1]
    lower = jnp.linalg.cholesky(jnp.moveaxis(mass, (0, 1), (-2, -1)))
    right = jnp.moveaxis(rows, (0, 1), (-1, -2))
    batch = jnp.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    lower, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (lower, right))
    return jnp.moveaxis((jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True) ** 2).sum(-2), -1, 0)
