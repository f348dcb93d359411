"""Slopes of the elasticity of flexes: minus the derivatives of its force with respect to positions and velocities, without what could make
them indefinite.

MuJoCo's integrator discrete adds them to the mass matrix. Of an element the second derivatives of its energy with respect to the squared
lengths of its edges count in full, and of the tensions, which turn with the edges, those that pull. Of a hinge the first term of its energy
counts where it is stable. Cells count in their present frames. Damping is the element's time constant times stiffness. Source: MuJoCo
4.0's documentation, Computation, Numerical integration; probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from xsim.dynamics.flex.bending import HingeMaterial
from xsim.dynamics.flex.elasticity import element_tensions
from xsim.dynamics.flex.grids import cell_slopes
from xsim.dynamics.flex.kinematics import edge_vectors, point_jacobian, points
from xsim.dynamics.flex.structure import flex_plan, index_array
from xsim.dynamics.linalg.dense import summed_products
from xsim.dynamics.linalg.sparse import positive
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.system import System
from xsim.spatial import stage


def flex_slopes(system: System, frame: Frames) -> tuple | None:
    """Damping and stiffness matrices (nv, nv, lanes or 1) of all flexes at a configuration. None without elastic flexes."""
    plan = flex_plan(system.topology) if system.topology.flexes else None
    if plan is None or not (plan.elements or plan.cells or len(plan.hinges.points)) or "passive" in system.topology.disabled:
        return None
    at, flex, material = points(system, frame), system.flex, system.derived.flex_material
    jacobian = point_jacobian(system, frame, at, np.arange(len(plan.bodies)))
    parts = []
    if plan.elements:
        first, second = (index_array(plan.edge_points[:, k]) for k in (0, 1))
        change = [x[second] - x[first] for x in jacobian]
        vector, _, length = edge_vectors(at.world, plan.edge_points)
        stretch, along = length * length - flex.length * flex.length, _along(vector, change)
        pulls = []
        for elements, constants in zip(plan.elements, material.elements, strict=True):
            damping = flex.damping[elements.elastic_row]
            edges = [index_array(elements.edges[:, k]) for k in range(elements.edges.shape[1])]
            pulls.append(_pulls([stretch[k] for k in edges], constants, damping, elements.dim))
            parts.append(_of_stretch([along[k] for k in edges], constants, damping, elements.dim))
        parts.append(_of_tension(change, *(plan.sum_on_edges(jnp.concatenate(_equally_wide(x))) for x in zip(*pulls, strict=True))))
    if len(plan.hinges.points):
        corners = [[x[index_array(plan.hinges.points[:, k])] for x in jacobian] for k in range(4)]
        parts.append(_of_bending(corners, material.hinges, flex.damping[plan.hinges.elastic_row]))
    parts += [cell_slopes(cells, flex, at.world, jacobian) for cells in plan.cells]
    enabled = [float(name not in system.topology.disabled) for name in ("damper", "spring")]
    return tuple(on * sum(x) for on, x in zip(enabled, zip(*parts, strict=True), strict=True))


def _equally_wide(xs) -> list:
    """Arrays (n, lanes or 1) with the same lanes."""
    width = max(x.shape[-1] for x in xs)
    return [jnp.broadcast_to(x, (len(x), width)) for x in xs]


@stage
def _along(vector, change):
    """Half the derivatives of the edges' squared lengths (edges, nv, lanes)."""
    return sum(v[:, None] * x for v, x in zip(vector, change, strict=True))


@stage
def _pulls(stretches, constants, damping, dim: int) -> tuple:
    """The positive tensions of the elements (edges of all elements, lanes), times the time constant of damping, and as they are."""
    tensions = [positive(x) for x in element_tensions(stretches, constants, dim)]
    return jnp.concatenate(_equally_wide([damping * x for x in tensions])), jnp.concatenate(_equally_wide(tensions))


@stage
def _of_stretch(along, constants, damping, dim: int) -> tuple:
    """Damping and stiffness by the change of the tensions. along: for each edge of the elements."""
    stiffness, rate = 0.0, 0.0
    for k, row in enumerate(along):
        unit = [jnp.full_like(damping, float(k == j)) for j in range(len(along))]
        change = [2.0 * x[:, None] * row for x in element_tensions(unit, constants, dim)]
        for x, other in zip(change, along, strict=True):
            stiffness, rate = stiffness + summed_products(x, other), rate + summed_products(damping[:, None] * x, other)
    return rate, stiffness


@stage
def _of_tension(change, damped, tension) -> tuple:
    """Damping and stiffness by the turning of the edges. change: the edges' vectors per dof."""
    return tuple(sum(summed_products(pull[:, None] * x, x) for x in change) for pull in (damped, tension))


@stage
def _of_bending(corners, material: HingeMaterial, damping) -> tuple:
    """Damping and stiffness of hinges. corners: the Jacobians of their points."""
    normal = [sum(c[:, None] * x for c, x in zip(material.c, part, strict=True)) for part in zip(*corners, strict=True)]
    stiffness = positive(material.stiffness)
    return tuple(sum(summed_products(k[:, None] * x, x) for x in normal) for k in (damping * stiffness, stiffness))
