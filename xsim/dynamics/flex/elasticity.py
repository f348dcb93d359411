"""Forces of flexes: springs and dampers along their edges, the elasticity of their triangles and tetrahedra, and bending of triangles.

All points, edges and elements of a model are arrays (count, lanes), or (count, 1) if all environments have the same values.

The elastic model is the St. Venant-Kirchhoff model. G and g are the Gram matrices of the edges that start at an element's first point, at
rest and in the current configuration. h is the inverse of G. An element of volume V at rest stores the energy

    W = V (mu / 4 tr(h (g - G) h (g - G)) + lambda / 8 tr(h (g - G))^2),

so the force along each of its edges is linear in the squares of the lengths. Source: MuJoCo's documentation, Computation, Flex. The damping
is that of Kharevych et al. 2006, section 5.2: stiffness times the change of the squared lengths over the last step.

Bending of triangles, bending and twist of lines, cells of nodes: see `xsim.dynamics.flex.bending`, `xsim.dynamics.flex.rods` and
`xsim.dynamics.flex.grids`.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.flex.bending import HingeMaterial, hinge_energies, hinge_forces, hinge_material
from xsim.dynamics.flex.grids import cell_energies, cell_forces
from xsim.dynamics.flex.kinematics import Points, edge_rates, edge_vectors, point_velocities, points
from xsim.dynamics.flex.plasticity import folded_material, gram_matrix, plastic_stretches, times
from xsim.dynamics.flex.rods import RodMaterial, rod_energies, rod_forces, rod_material
from xsim.dynamics.flex.structure import EDGE_OF_POINTS, ElasticElements, FlexPlan, flex_plan
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.tree.kinematics import Frames, generalized_force, lanes_of
from xsim.dynamics.tree.system import System
from xsim.spatial import Force, add, cross, dot, mul, rotate, scale, stage, vadd, vsub


class FlexMaterial(NamedTuple):
    """The quantities of flexes that depend on the model's leaves but not on the state.

    pos: positions of the points in their links, components (points, lanes or 1).
    elements: for each entry of ``FlexPlan.elements``, h, mu V and lambda V of its elements.
    hinges, rods: see `HingeMaterial` and `RodMaterial`. None without.
    """

    pos: tuple
    elements: tuple
    hinges: HingeMaterial | None
    rods: RodMaterial | None


def flex_material(system: System) -> FlexMaterial:
    """The quantities that do not depend on the state."""
    plan, flex = flex_plan(system.topology), system.flex
    pos = tuple(flex.pos[:, k] for k in range(3))
    top = system.topology
    if not all(body < 0 or top.bodies[body].link >= 0 and system.tables.at_link[body] for body in plan.bodies):
        identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        body_poses = [identity if body < 0 else tuple(system.body.offset[body]) for body in plan.bodies]
        quat, origin = (tuple(column(x) for x in zip(*(pose[k] for pose in body_poses), strict=True)) for k in (0, 1))
        pos = vadd(origin, rotate(quat, pos))
    hinges = hinge_material(system, plan.hinges) if len(plan.hinges.points) else None
    rods = rod_material(system, plan.rods) if len(plan.rods.inner) else None
    return FlexMaterial(pos, tuple(_element_material(system, elements) for elements in plan.elements), hinges, rods)


def _element_material(system: System, elements: ElasticElements) -> tuple:
    flex, rows = system.flex, elements.elastic_row
    thickness = None if elements.thickness_row is None else flex.thickness[elements.thickness_row]
    lengths = [flex.length[elements.edges[:, k]] for k in range(elements.edges.shape[1])]
    return _material(lengths, flex.young[rows], flex.poisson[rows], thickness, elements.dim, system.topology.switches.lame_as_4_0)


@stage
def _material(lengths, young, poisson, thickness, dim: int, lame_as_4_0: bool) -> tuple:
    """h, mu V, lambda V; lambda of triangles: that of plane stress. MuJoCo 3.2 doubles the lambda of every element. Its triangles have a
    quarter of the volume and the lambda of a solid."""
    inverse, volume = _inverse(gram_matrix([x * x for x in lengths], dim), dim)
    mu = young / (2.0 * (1.0 + poisson))
    lam = young * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson))
    if not lame_as_4_0:
        lam = 2.0 * lam
    if dim == 2 and lame_as_4_0:
        volume, lam = thickness * volume, young * poisson / (1.0 - poisson * poisson)
    elif dim == 2:
        volume = 0.25 * thickness * volume
    return inverse, mu * volume, lam * volume


def _inverse(G, dim: int) -> tuple:
    """The inverse of a Gram matrix, zero if the element is flat, and the element's area or volume."""
    if dim == 2:
        adjoint = ((G[1][1], -G[0][1]), (-G[0][1], G[0][0]))
    else:
        adjoint = tuple(cross(G[(i + 1) % 3], G[(i + 2) % 3]) for i in range(3))
    determinant = dot(G[0], adjoint[0])
    size = functools.reduce(mul, (G[i][i] for i in range(dim)))
    regular = determinant > 4.0 * jnp.finfo(size.dtype).eps * size
    safe = jnp.where(regular, determinant, 1.0)
    inverse = tuple(tuple(jnp.where(regular, x / safe, 0.0) for x in row) for row in adjoint)
    return inverse, jnp.where(regular, jnp.sqrt(safe), 0.0) / (2.0 if dim == 2 else 6.0)


# ---- forces -------------------------------------------------------------------------------------------------------------------


def flex_force(system: System, frame: Frames, q, v) -> list:
    """The generalized force of springs, dampers and elasticity of all flexes."""
    plan, disabled = flex_plan(system.topology) if system.topology.flexes else None, system.topology.disabled
    if plan is None or not plan.has_forces:
        return [0.0] * len(v)
    at = points(system, frame)
    velocity = point_velocities(system, frame, v, at)
    enabled = "spring" not in disabled, "damper" not in disabled
    forces = []
    if plan.has_tensions:
        forces += _edge_forces(system, plan, at, velocity, enabled)
    if len(plan.hinges.points):
        damping = system.flex.damping[plan.hinges.elastic_row]
        forces += hinge_forces(plan.hinges.points, folded_material(system, plan.hinges), damping, at.world, velocity, enabled)
    torques: list = []
    moments: list = []
    if len(plan.rods.inner):
        on_points, torques, moments = rod_forces(system, plan.rods, system.derived.flex_material.rods, frame, q, v, at.world, velocity)
        forces += on_points
    for cells in plan.cells:
        forces.append(cell_forces(cells, system.flex, at.world, velocity, enabled))
    out = _generalized_force(system, frame, v, _link_wrenches(plan, forces, at), moments)
    for dof, torque in torques:
        out[dof] = add(out[dof], torque)
    return out


def _edge_forces(system: System, plan: FlexPlan, at: Points, velocity, enabled: tuple[bool, bool]) -> list[tuple]:
    """The forces on the first and on the second ends of all edges. enabled: whether springs and dampers act."""
    vector, direction, length = edge_vectors(at.world, plan.edge_points)
    rate = edge_rates(velocity, direction, plan.edge_points)
    flex = system.flex
    spring = tuple(x[plan.spring_row] for x in (flex.edge_stiffness, flex.edge_damping)) if len(plan.spring_edges) else None
    damping = [flex.damping[elements.elastic_row] for elements in plan.elements]
    materials = system.derived.flex_material.elements
    plastic = [plastic_stretches(system, elements) for elements in plan.elements]
    force = scale(vector, _tensions(plan, length, rate, flex.length, system.option.dt, spring, materials, damping, plastic, enabled))
    return [force, scale(force, -1.0)]


@stage
def _tensions(plan: FlexPlan, length, rate, rest, dt, spring, materials, damping, plastic, enabled: tuple[bool, bool]):
    """Force per length of each edge (edges, lanes or 1), N/m, positive in tension. plastic: see `plastic_stretches`. enabled: whether
    springs and dampers act."""
    out = []
    if spring is not None:
        edges, k, d = plan.spring_edges, *spring
        has_length = length[edges] > 0
        f = (k * (length[edges] - rest[edges]) if enabled[0] else 0.0) + (d * rate[edges] if enabled[1] else 0.0)
        out.append(jnp.where(has_length, f / jnp.where(has_length, length[edges], 1.0), 0.0))
    for elements, material, element_damping, offsets in zip(plan.elements, materials, damping, plastic, strict=True):
        # The damping is that of a spring whose rest length is the length one step ago.
        change = rate * (2.0 * length - dt * rate)
        stretch = (length * length - rest * rest) if enabled[0] else jnp.zeros_like(length)
        stretches = []
        for k in range(elements.edges.shape[1]):
            edge = elements.edges[:, k]
            elastic = stretch[edge] if offsets is None or not enabled[0] else stretch[edge] - offsets[k]
            stretches.append(elastic + (element_damping * change[edge] if enabled[1] else 0.0))
        out.extend(element_tensions(stretches, material, elements.dim))
    width = max(x.shape[-1] for x in out)
    return plan.sum_on_edges(jnp.concatenate([jnp.broadcast_to(x, (len(x), width)) for x in out]))


def element_tensions(stretches, material, dim: int) -> list:
    """Force per length of each edge of an element, 2 dW / d (squared length). stretches: squared lengths minus those at rest."""
    h, mu, lam = material
    hg = times(h, gram_matrix(stretches, dim))
    bulk = 0.5 * lam * tree_sum([hg[i][i] for i in range(dim)])
    strain = times(hg, h)
    stress = [[mu * strain[i][j] + bulk * h[i][j] for j in range(dim)] for i in range(dim)]
    out = []
    for i, j in EDGE_OF_POINTS[dim]:
        out.append(tree_sum(stress[j - 1]) if i == 0 else -stress[i - 1][j - 1])
    return out


@stage
def _link_wrenches(plan: FlexPlan, forces, at: Points) -> tuple:
    """Moments about the reference points of the links' trees, and forces, on the links: components (links, lanes).

    forces: as in ``FlexPlan.sum_on_points``, components (n, lanes or 1) of each group."""
    width = max(x.shape[-1] for force in forces for x in force)
    every = ([jnp.broadcast_to(force[k], (len(force[k]), width)) for force in forces] for k in range(3))
    force = tuple(plan.sum_on_points(jnp.concatenate(x)) for x in every)
    moment = cross(vsub(at.world, at.origin), force)
    width = max(x.shape[-1] for x in (*force, *moment))
    return tuple(tuple(plan.sum_on_links(jnp.broadcast_to(x, (len(x), width))) for x in part) for part in (moment, force))


def _generalized_force(system: System, frame: Frames, v, wrenches, moments) -> list:
    """The generalized force of wrenches on the links of `FlexPlan`, and of moments (link, moment)."""
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(jnp.shape(x) for x in v))
    split = [[list(x if lanes else x[:, 0]) for x in part] for part in wrenches]
    forces: list = [None] * len(system.topology.links)
    for i, link in enumerate(flex_plan(system.topology).links.tolist()):
        if link >= 0:
            moment, force = (tuple(x[i] for x in part) for part in split)
            forces[link] = Force(moment, force)
    for link, moment in moments:
        forces[link] = Force(vadd(forces[link].ang, moment), forces[link].lin)
    return generalized_force(system, frame, forces)


def flex_energy(system: System, frame: Frames, q) -> list:
    """The energies stored in springs of edges, in elements of each dimension and in bending, J. Only those that the model has."""
    plan = flex_plan(system.topology) if system.topology.flexes else None
    if plan is None or not plan.has_forces or {"passive", "spring"} & set(system.topology.disabled):
        return []
    world = points(system, frame).world
    _, _, length = edge_vectors(world, plan.edge_points)
    out, rest, lanes = [], system.flex.length, lanes_of(system, frame)
    if len(plan.spring_edges):
        extension = length[plan.spring_edges] - rest[plan.spring_edges]
        out.append(pairwise_sum(0.5 * system.flex.edge_stiffness[plan.spring_row] * extension * extension))
    stretch = length * length - rest * rest
    for elements, (h, mu, lam) in zip(plan.elements, system.derived.flex_material.elements, strict=True):
        dim, edges = elements.dim, elements.edges
        offsets = plastic_stretches(system, elements) or [0.0] * edges.shape[1]
        hg = times(h, gram_matrix([stretch[edges[:, k]] - offsets[k] for k in range(edges.shape[1])], dim))
        trace = tree_sum([hg[i][i] for i in range(dim)])
        square = tree_sum([hg[i][j] * hg[j][i] for i in range(dim) for j in range(dim)])
        out.append(pairwise_sum(0.25 * mu * square + 0.125 * lam * trace * trace))
    if len(plan.hinges.points):
        out.append(pairwise_sum(hinge_energies(plan.hinges.points, folded_material(system, plan.hinges), world)))
    if len(plan.rods.inner):
        out.append(pairwise_sum(rod_energies(system, plan.rods, system.derived.flex_material.rods, frame, q, world)))
    for cells in plan.cells:
        out.append(pairwise_sum(cell_energies(cells, system.flex, world)))
    return out if lanes else [x[0] for x in out]
