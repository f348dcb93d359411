"""What soft constraints need of the start: mobilities along their rows, and where the second bodies of equalities are held."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from xsim.dynamics.constraints.contact_plan import has_contacts
from xsim.dynamics.constraints.flex_contacts import bodies_of
from xsim.dynamics.constraints.flex_edges import edge_mobility, has_kept
from xsim.dynamics.flex.kinematics import edge_jacobian, points
from xsim.dynamics.flex.structure import plan
from xsim.dynamics.linalg.dense import assembled
from xsim.dynamics.tendons.tendons import LengthAndJacobian
from xsim.dynamics.tree.frames import body_end, body_link
from xsim.dynamics.tree.kinematics import Frames, point_velocity
from xsim.dynamics.tree.system import Mobility, System
from xsim.model.topology import Topology
from xsim.registry import SOFT_CONSTRAINTS
from xsim.spatial import IDENTITY, ZERO3, add, mul, scale


def _asked(topology: Topology) -> list[int]:
    """The bodies whose mobilities are asked for."""
    out: set[int] = set()
    for info in topology.soft:
        if info.kind != "flex" and SOFT_CONSTRAINTS[info.kind].items == "bodies":
            out |= {topology.sites[i].body for i in info.items} if info.sites else set(info.items)
    if has_contacts(topology):
        count = len(topology.geoms)
        for thing in {g for info in topology.pairs for g in info.geoms.value.reshape(-1).tolist()}:
            own = (topology.geoms[thing].body,) if thing < count else bodies_of(topology, thing - count)
            out |= set(own) - {-1}
    return sorted(out)


def _centre(system: System, body: int):
    """Centre of mass in the body."""
    inertia = system.body.inertia[body]
    if isinstance(inertia.mass, float):
        return scale(inertia.first, 1.0 / inertia.mass) if inertia.mass else ZERO3
    return scale(inertia.first, 1.0 / jnp.where(inertia.mass > 0, inertia.mass, 1.0))


def _mean(numbers: list):
    out = 0.0
    for x in numbers:
        out = add(out, x)
    return mul(out, 1.0 / len(numbers))


def mobility(system: System, frame: Frames, mass, tendon: list[LengthAndJacobian]) -> Mobility:
    """mass: rows of the mass matrix at the start, tendon: its tendons."""
    top, nv = system.topology, len(mass)
    asked = _asked(top)
    moving = [body for body in asked if body_link(system, body) >= 0]
    entries = {(i, i): 1.0 for i in range(nv)}
    entries |= {(nv + i, dof): x for i, one in enumerate(tendon) for dof, x in one.row}
    first = nv + len(tendon)
    for place, body in enumerate(moving):
        end = body_end(system, frame, body, _centre(system, body), IDENTITY)
        for dof in system.tables.chain[body_link(system, body)]:
            s = frame.subspace[dof]
            both = (*point_velocity(s, end.x), *s.ang)
            entries |= {(first + 6 * place + k, dof): x for k, x in enumerate(both)}
    before = system.tables.ancestors
    lower = {(i, j): x for i, row in enumerate(mass) for j, x in zip((*before[i], i), row, strict=True)}
    full = lower | {(j, i): x for (i, j), x in lower.items()}
    last = first + 6 * len(moving)
    rows, edges = assembled(entries, (last, nv), mass, entries), None
    if has_kept(top):
        rows = _with_edges(rows, edge_jacobian(system, frame, points(system, frame), plan(top).kept)[0])
    numbers = _diagonal(assembled(full, (nv, nv), mass), rows)
    found = list(numbers[:last])
    if has_kept(top):
        edges = edge_mobility(system, numbers[last:] if numbers.ndim > 1 else numbers[last:, None])
    dofs = found[:nv]
    for joint in top.joints:
        width = {"ball": 3, "free": 3}.get(joint.type, 1)
        for v in range(joint.v[0], sum(joint.v), width):
            dofs[v : v + width] = [_mean(found[v : v + width])] * width
    bodies: dict = dict.fromkeys(asked, (0.0, 0.0))
    for place, body in enumerate(moving):
        own = found[first + 6 * place :]
        bodies[body] = _mean(own[:3]), _mean(own[3:6])
    return Mobility(dofs, found[nv:first], bodies, [one.length for one in tendon], edges)


def _with_edges(rows, edges):
    """Rows (n, nv) or (n, nv, lanes), and after them edges (m, nv, lanes or 1)."""
    if rows.ndim == 2 and edges.shape[-1] == 1:
        return jnp.concatenate([rows, edges[..., 0]])
    rows = rows[..., None] if rows.ndim == 2 else rows
    width = max(rows.shape[-1], edges.shape[-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (rows, edges)])


def _diagonal(mass, rows):
    """Diagonal of J M^-1 J^T, (n, lanes)."""
    lower = jnp.linalg.cholesky(jnp.moveaxis(mass, (0, 1), (-2, -1)))
    right = jnp.moveaxis(rows, (0, 1), (-1, -2))
    batch = jnp.broadcast_shapes(lower.shape[:-2], right.shape[:-2])
    lower, right = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (lower, right))
    return jnp.moveaxis((jax.lax.linalg.triangular_solve(lower, right, left_side=True, lower=True) ** 2).sum(-2), -1, 0)
