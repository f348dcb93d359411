"""The soft constraints of MuJoCo's equality "flexstrain": the strain of a cell of a flex with a grid of nodes is zero.

A row is a mode of strain: an eigenvector of the cell's stiffness times the square root of its eigenvalue, applied to the displacements of
the nodes in the frame that turns with the cell (`xsim.dynamics.flex.grids`). The Jacobian leaves out how this frame turns. Source: probes
of MuJoCo 4.0.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.constraints.flex_edges import row_numbers
from xsim.dynamics.constraints.row_mobility import RowMobility
from xsim.dynamics.constraints.soft_rows import INFINITE, Rows
from xsim.dynamics.flex.grids import displacements
from xsim.dynamics.flex.kinematics import Points, point_jacobian, points
from xsim.dynamics.layout import column
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.model.topology import SoftInfo, Topology
from xsim.spatial import stage


def strained_bodies(topology: Topology, info: SoftInfo) -> list[int]:
    """The bodies of the nodes of a constrained cell, -1 for the world."""
    flex = topology.flexes[info.items[0]]
    assert flex.grid is not None
    return [flex.bodies[node] for node in flex.grid.cells.value[info.items[1]].tolist()]


def strain_rows(system: System, frame: Frames, v, at_state: RowMobility | None) -> list[Rows]:
    """The rows of all constrained cells, one entry for each. Their arrays have a lane axis. at_state: see `soft_rows`."""
    infos = [info for info in system.topology.soft if info.kind == "flexstrain"]
    at = points(system, frame) if infos else None
    return [_rows_of_cell(system, frame, v, at_state, at, info) for info in infos]


def _rows_of_cell(system: System, frame: Frames, v, at_state: RowMobility | None, at: Points, info: SoftInfo) -> Rows:
    top = system.topology
    flex, number = top.flexes[info.items[0]], info.items[1]
    grid = flex.grid
    assert grid is not None and system.derived.mobility is not None
    nodes = grid.cells.value[number] + sum(len(other.bodies) for other in top.flexes[: info.items[0]])
    world = tuple(x[nodes.astype(np.uint32)][:, None] for x in at.world)
    sides = tuple(system.flex.side[grid.sides : grid.sides + 1, k] for k in range(3))
    residual, coefficients = _strains(grid.order, world, sides, grid.strains[number].value)
    J = _jacobian(coefficients, point_jacobian(system, frame, at, nodes))
    rate = jnp.einsum("mnl,nl->ml", J, column(v), precision=jax.lax.Precision.HIGHEST)
    mobilities = system.derived.mobility.bodies
    of_nodes = [mobilities[body][0] if body >= 0 else 0.0 for body in strained_bodies(top, info)]
    mobility = jnp.mean(column(of_nodes), 0, keepdims=True)
    mobility = mobility if at_state is None else at_state.of_rows(J, mobility)
    stiffness, offset = row_numbers(system, [info.soft] * len(residual), residual, rate, mobility, at_state)
    width = max(x.shape[-1] for x in (J, stiffness, offset))
    J, stiffness, offset = (jnp.broadcast_to(x, (*x.shape[:-1], width)) for x in (J, stiffness, offset))
    bound = jnp.full_like(offset, INFINITE)
    return Rows(np.zeros((0, J.shape[1])), J, stiffness, offset, -bound, bound)


@stage
def _strains(order: int, nodes, sides, modes: np.ndarray) -> tuple:
    """The residuals (modes, lanes), and their derivatives with respect to the nodes' positions, components (modes, nodes, lanes)."""
    R, u = displacements(order, nodes, sides)
    constants = [jnp.asarray(modes[:, :, i, None], u[0].dtype) for i in range(3)]
    residual = sum((c * x[None, :, 0]).sum(1) for c, x in zip(constants, u, strict=True))
    return residual, [sum(constants[i] * R[k][i] for i in range(3)) for k in range(3)]


@stage
def _jacobian(coefficients, node_jacobian):
    """(modes, nv, lanes) from the derivatives, and the Jacobians (nodes, nv, lanes) of the nodes' components."""
    terms = zip(coefficients, node_jacobian, strict=True)
    return sum((c[:, :, None] * x[None]).sum(1) for c, x in terms)
