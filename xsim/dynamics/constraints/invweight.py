"""Mobilities for soft constraints: diagonals of J M^-1 J^T in the reference configuration (MuJoCo's invweight0)."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.flex_contacts import part_bodies
from xsim.dynamics.constraints.flex_edges import edge_mobility, has_edge_rows
from xsim.dynamics.constraints.flex_strains import strained_bodies
from xsim.dynamics.flex.kinematics import edge_jacobian, points
from xsim.dynamics.flex.structure import flex_plan
from xsim.dynamics.linalg.dense import Cholesky, assembled, is_tiled
from xsim.dynamics.linalg.sparse import dense
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
    last = first + 6 * len(moving)
    J, edges, nonzero = assembled(entries, (last, nv), mass, entries), None, np.zeros((last, nv), bool)
    nonzero[tuple(zip(*entries, strict=True))] = True
    if has_edge_rows(top):
        plan = flex_plan(top)
        J = _with_edges(J, edge_jacobian(system, frame, points(system, frame), plan.constrained_edges)[0])
        nonzero = np.concatenate([nonzero, plan.dof_sign[plan.constrained_edges] != 0])
    diagonal = inverse_mass_diagonal(dense(system, mass), J, nonzero, _trees(system))
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


def _trees(system: System) -> list[np.ndarray]:
    """The dofs of each kinematic tree."""
    roots = np.array([system.tables.root[link] for link in system.tables.dof_link])
    return [np.flatnonzero(roots == root) for root in np.unique(roots)]


def inverse_mass_diagonal(mass, rows, nonzero: np.ndarray, trees: list[np.ndarray]):
    """The diagonal of J M^-1 J^T, (n, *lanes). mass (nv, nv, *lanes): M; rows (n, nv, *lanes): J; nonzero (n, nv): entries of J that may
    differ from zero; trees: see `_trees`.

    M has a block for each tree, and a row needs those of its own dofs alone. Trees with as many dofs and rows are solved as one batch."""
    groups: dict[tuple[int, int], list] = {}
    for dofs in trees:
        of_tree = np.flatnonzero(nonzero[:, dofs].any(1))
        groups.setdefault((len(dofs), len(of_tree)), []).append((dofs, of_tree))
    out = jnp.zeros((len(rows), *jnp.broadcast_shapes(mass.shape[2:], rows.shape[2:])), rows.dtype)
    for group in groups.values():
        dofs, of_trees = (np.array(x) for x in zip(*group, strict=True))
        blocks, parts = (x[i[..., None], dofs[:, None]] for x, i in ((mass, dofs), (rows, of_trees)))
        out = out.at[of_trees].add(_of_blocks(blocks, parts))
    return out


def _of_blocks(mass, rows):
    """The diagonals (trees, n, *lanes) of J M^-1 J^T, of several trees. mass: (trees, dofs, dofs, *lanes); rows: (trees, n, dofs, *lanes).

    The last dof is eliminated first: the mass matrix of a tree has no fill-in then (see `linalg.dense.Cholesky`), and a row needs the dofs
    of its own chain alone. Operations with the other entries, constant zeros, are left out of compiled programs."""
    if is_tiled(mass[0]):
        return jnp.stack([_by_rows(Cholesky(block), own) for block, own in zip(mass, rows, strict=True)])
    mass, rows = mass[:, ::-1, ::-1], rows[:, :, ::-1]
    lower = jnp.linalg.cholesky(jnp.moveaxis(mass, (0, 1, 2), (-3, -2, -1)))
    right = jnp.moveaxis(rows, (0, 1, 2), (-3, -1, -2))
    batch = jnp.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    lower, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (lower, right))
    squares = jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True) ** 2
    return jnp.moveaxis(squares.sum(-2), (-2, -1), (0, 1))


def _by_rows(factor: Cholesky, rows):
    """The diagonal of J M^-1 J^T, a row of J after the other: a loop, whose program does not grow with their number."""
    return jax.lax.map(lambda row: (row * factor.solve(row)).sum(), rows)
