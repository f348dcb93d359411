"""The soft constraints of MuJoCo's equality "flex": the edges of a flex have their rest lengths."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.row_mobility import RowMobility
from xsim.dynamics.constraints.soft_rows import INFINITE, Rows
from xsim.dynamics.constraints.softness import impedance, reference_law, regularization
from xsim.dynamics.flex.kinematics import edge_jacobian, edge_rates, edge_vectors, point_velocities, points
from xsim.dynamics.flex.structure import flex_plan, index_array
from xsim.dynamics.layout import column
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import stage


def has_edge_rows(topology: Topology) -> bool:
    """Whether the lengths of edges are constrained."""
    return any(info.kind == "flex" for info in topology.soft)


def edge_mobility(system: System, exact):
    """Mobilities A of the constrained edges (edges, lanes or 1). exact: the diagonal of J M^-1 J^T. For an edge between two bodies that
    only slide along their own axes, MuJoCo uses the mean of the bodies' inverse masses instead."""
    plan = flex_plan(system.topology)
    if not plan.is_simple_edge.any():
        return exact
    simple = np.flatnonzero(plan.is_simple_edge)
    points = plan.edge_points[plan.constrained_edges[simple]]
    used, index = np.unique(points, return_inverse=True)
    mass = column([system.body.inertia[plan.bodies[i]].mass for i in used.tolist()])
    inverse_mass = _inverse_mass(mass)[index_array(index.reshape(points.shape))]
    mean = 0.5 * (inverse_mass[:, 0] + inverse_mass[:, 1])
    both = jnp.concatenate([exact, jnp.broadcast_to(mean, (len(simple), exact.shape[-1]))])
    source = np.arange(len(exact))
    source[simple] = len(exact) + np.arange(len(simple))
    return both[index_array(source)]


def _inverse_mass(mass):
    return jnp.where(mass > 0, 1.0 / jnp.where(mass > 0, mass, 1.0), 0.0)


def edge_rows(system: System, frame: Frames, v, at_state: RowMobility | None) -> Rows:
    """The rows of all constrained edges. Their arrays have a lane axis. at_state: see `soft_rows`."""
    plan = flex_plan(system.topology)
    at = points(system, frame)
    J, length, edge_points = edge_jacobian(system, frame, at, plan.constrained_edges)
    rate = edge_rates(point_velocities(system, frame, v, at), edge_vectors(at.world, edge_points)[1], edge_points)
    assert system.derived.mobility is not None
    residual = length - system.flex.length[plan.constrained_edges]
    mobility = system.derived.mobility.edges if at_state is None else at_state.of_rows(J, system.derived.mobility.edges)
    stiffness, offset = row_numbers(system, plan.soft_row, residual, rate, mobility, at_state)
    width = max(x.shape[-1] for x in (J, stiffness, offset))
    J, stiffness, offset = (jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (J, stiffness, offset))
    bound = jnp.full_like(offset, INFINITE)
    return Rows(np.zeros((0, J.shape[1])), J, stiffness, offset, -bound, bound)


def row_numbers(system: System, soft_row, residual, rate, mobility, at_state: RowMobility | None) -> tuple:
    """1 / R and -aref of rows of flexes, see `soft_rows`. soft_row (n,): their rows of soft.solref and soft.solimp."""
    safe, by_step = "refsafe" not in system.topology.disabled, at_state is not None and at_state.by_step
    used, index = np.unique(soft_row, return_inverse=True)
    index, soft = index_array(index), system.soft
    solref, solimp = (
        [column([leaf[i][k] for i in used.tolist()])[index] for k in range(n)] for leaf, n in ((soft.solref, 2), (soft.solimp, 5))
    )
    return _stiffness_offset(residual, rate, solref, solimp, mobility, system.option.dt, safe, by_step)


@stage
def _stiffness_offset(residual, rate, solref, solimp, mobility, dt, safe: bool, by_step: bool):
    """1 / R and -aref of the rows, see `soft_rows`."""
    d = impedance(residual, solimp)
    k, b, scale = reference_law(solref, solimp, d, dt, safe, by_step, False)
    return 1.0 / regularization(d, mobility, scale), b * rate + k * residual
