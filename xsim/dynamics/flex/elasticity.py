"""Deformables: forces along their edges, of springs and dampers and of the elasticity of their triangles and tetrahedra, and the rows that
keep edges at their lengths.

All points, edges and elements of a model are arrays (things, lanes), (things, 1) where nothing differs between environments.

Elasticity is St. Venant and Kirchhoff's: with the products of edges G at rest and g now (by pairs of the edges that start at an element's
first point) and the inverse h of G, an element of volume V at rest stores

    W = V (mu / 4 tr(h (g - G) h (g - G)) + lambda / 8 tr(h (g - G))^2),

so that its force along each edge is linear in the squares of the lengths. Source: MuJoCo's documentation, Computation, Flex; its damping is
that of Kharevych et al. 2006, section 5.2: stiffness times the change of the squares over the last step.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.flex.kinematics import Points, edge_rates, edge_vectors, point_velocities, points
from xsim.dynamics.flex.structure import PAIRS, Plan, Solids, plan
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import pairwise_sum, tree_sum
from xsim.dynamics.tree.kinematics import Frames, generalized_force, lanes_of
from xsim.dynamics.tree.system import System
from xsim.spatial import Force, cross, dot, mul, rotate, scale, stage, vadd, vsub

# ---- structure ----------------------------------------------------------------------------------------------------------------


# ---- what the leaves say ------------------------------------------------------------------------------------------------------


class FlexMaterial(NamedTuple):
    """What the leaves alone say. pos: points in their links. solids: of each, h, mu V and lambda V of its elements."""

    pos: tuple
    solids: tuple


def flex_material(system: System) -> FlexMaterial:
    layout, flex = plan(system.topology), system.flex
    pos = tuple(flex.pos[:, k] for k in range(3))
    top = system.topology
    if not all(body < 0 or top.bodies[body].link >= 0 and system.tables.at_link[body] for body in layout.bodies):
        identity = ((1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
        carried = [identity if body < 0 else tuple(system.body.offset[body]) for body in layout.bodies]
        quat, origin = (tuple(column(x) for x in zip(*(c[k] for c in carried), strict=True)) for k in (0, 1))
        pos = vadd(origin, rotate(quat, pos))
    return FlexMaterial(pos, tuple(_solid(system, own) for own in layout.solids))


def _solid(system: System, own: Solids) -> tuple:
    flex = system.flex
    thickness = None if own.thickness is None else flex.thickness[own.thickness]
    lengths = [flex.length[own.corners[:, k]] for k in range(own.corners.shape[1])]
    return _material(lengths, flex.young[own.elastic], flex.poisson[own.elastic], thickness, own.dim, system.topology.switches.lame_as_4_0)


@stage
def _material(lengths, young, poisson, thickness, dim: int, newer: bool) -> tuple:
    """h, mu V, lambda V. newer: not the numbers of MuJoCo 3.2, which takes lambda twice, and of triangles a quarter of everything, with the
    lambda of solids."""
    inverse, volume = _inverse(_products([x * x for x in lengths], dim), dim)
    mu = young / (2.0 * (1.0 + poisson))
    lam = young * poisson / ((1.0 + poisson) * (1.0 - 2.0 * poisson))
    if not newer:
        lam = 2.0 * lam
    if dim == 2:
        volume = 0.25 * thickness * volume
    return inverse, mu * volume, lam * volume


def _products(squares, dim: int) -> list:
    """Products of the edges from an element's first point, of the squared lengths of all (or linear in what else they are)."""
    at = PAIRS[dim]

    def product(i, j):
        own = squares[at[0, i]]
        return own if i == j else 0.5 * (own + squares[at[0, j]] - squares[at[min(i, j), max(i, j)]])

    return [[product(i, j) for j in range(1, dim + 1)] for i in range(1, dim + 1)]


def _inverse(G, dim: int) -> tuple:
    """Inverse of the products, zeros where an element is flat, and its area or volume."""
    if dim == 2:
        adjoint = ((G[1][1], -G[0][1]), (-G[0][1], G[0][0]))
    else:
        adjoint = tuple(cross(G[(i + 1) % 3], G[(i + 2) % 3]) for i in range(3))
    determinant = dot(G[0], adjoint[0])
    size = functools.reduce(mul, (G[i][i] for i in range(dim)))
    usable = determinant > 4.0 * jnp.finfo(size.dtype).eps * size
    safe = jnp.where(usable, determinant, 1.0)
    inverse = tuple(tuple(jnp.where(usable, x / safe, 0.0) for x in row) for row in adjoint)
    return inverse, jnp.where(usable, jnp.sqrt(safe), 0.0) / (2.0 if dim == 2 else 6.0)


# ---- where the points are -----------------------------------------------------------------------------------------------------


# ---- forces -------------------------------------------------------------------------------------------------------------------


def flex_force(system: System, frame: Frames, v) -> list:
    """Generalized force of springs, dampers and elasticity."""
    layout, off = plan(system.topology) if system.topology.flexes else None, system.topology.disabled
    if layout is None or not (len(layout.springs) or layout.solids):
        return [0.0] * len(v)
    at = points(system, frame)
    apart, direction, length = edge_vectors(at.world, layout.ends)
    rate = edge_rates(point_velocities(system, frame, v, at), direction, layout.ends)
    flex = system.flex
    spring = tuple(x[layout.spring] for x in (flex.edge_stiffness, flex.edge_damping)) if len(layout.springs) else None
    damping = [flex.damping[own.elastic] for own in layout.solids]
    works = "spring" not in off, "damper" not in off
    tension = _tensions(layout, length, rate, flex.length, system.option.dt, spring, system.derived.flex_material.solids, damping, works)
    return _gathered(system, frame, v, at, _pull(layout, tension, apart, at))


@stage
def _tensions(layout: Plan, length, rate, rest, dt, spring, solids, damping, works: tuple[bool, bool]):
    """Force per length along each edge, positive where it pulls its ends together. works: springs, dampers."""
    out = []
    if spring is not None:
        own, k, d = layout.springs, *spring
        apart = length[own] > 0
        f = (k * (length[own] - rest[own]) if works[0] else 0.0) + (d * rate[own] if works[1] else 0.0)
        out.append(jnp.where(apart, f / jnp.where(apart, length[own], 1.0), 0.0))
    for own, material, own_damping in zip(layout.solids, solids, damping, strict=True):
        # The damping of a spring that acts from where the edge was a step ago.
        moved = rate * (2.0 * length - dt * rate)
        stretch = (length * length - rest * rest) if works[0] else jnp.zeros_like(length)
        stretches = []
        for k in range(own.corners.shape[1]):
            edge = own.corners[:, k]
            stretches.append(stretch[edge] + (own_damping * moved[edge] if works[1] else 0.0))
        out.extend(_stresses(stretches, material, own.dim))
    width = max(x.shape[-1] for x in out)
    return layout.edge_sums(jnp.concatenate([jnp.broadcast_to(x, (len(x), width)) for x in out]))


def _times(A, B) -> list:
    return [[tree_sum([a * b for a, b in zip(row, column, strict=True)]) for column in zip(*B, strict=True)] for row in A]


def _stresses(stretches, material, dim: int) -> list:
    """Of each edge of an element the force per length, 2 dW / d (squared length)."""
    h, mu, lam = material
    hg = _times(h, _products(stretches, dim))
    bulk = 0.5 * lam * tree_sum([hg[i][i] for i in range(dim)])
    strain = _times(hg, h)
    stress = [[mu * strain[i][j] + bulk * h[i][j] for j in range(dim)] for i in range(dim)]
    out = []
    for i, j in PAIRS[dim]:
        out.append(tree_sum(stress[j - 1]) if i == 0 else -stress[i - 1][j - 1])
    return out


@stage
def _pull(layout: Plan, tension, apart, at: Points) -> tuple:
    """Forces on the links and their moments about the reference points of their trees, components (links, lanes)."""
    force = scale(apart, tension)
    force = tuple(layout.at_point(jnp.concatenate([x, -x])) for x in force)
    moment = cross(vsub(at.world, at.origin), force)
    width = max(x.shape[-1] for x in (*force, *moment))
    return tuple(tuple(layout.at_link(jnp.broadcast_to(x, (len(x), width))) for x in part) for part in (moment, force))


def _gathered(system: System, frame: Frames, v, at: Points, wrench) -> list:
    lanes = jnp.broadcast_shapes(lanes_of(system, frame), *(jnp.shape(x) for x in v))
    split = [[list(x if lanes else x[:, 0]) for x in part] for part in wrench]
    forces: list = [None] * len(system.topology.links)
    for place, link in enumerate(plan(system.topology).links.tolist()):
        if link >= 0:
            moment, force = (tuple(x[place] for x in part) for part in split)
            forces[link] = Force(moment, force)
    return generalized_force(system, frame, forces)


def flex_energy(system: System, frame: Frames) -> list:
    """Energy stored in the springs along edges and in the elements, J: a number for each kind."""
    layout = plan(system.topology) if system.topology.flexes else None
    if layout is None or not (len(layout.springs) or layout.solids) or {"passive", "spring"} & set(system.topology.disabled):
        return []
    _, _, length = edge_vectors(points(system, frame).world, layout.ends)
    out, rest, lanes = [], system.flex.length, lanes_of(system, frame)
    if len(layout.springs):
        away = length[layout.springs] - rest[layout.springs]
        out.append(pairwise_sum(0.5 * system.flex.edge_stiffness[layout.spring] * away * away))
    stretch = length * length - rest * rest
    for own, (h, mu, lam) in zip(layout.solids, system.derived.flex_material.solids, strict=True):
        hg = _times(h, _products([stretch[own.corners[:, k]] for k in range(own.corners.shape[1])], own.dim))
        trace = tree_sum([hg[i][i] for i in range(own.dim)])
        square = tree_sum([hg[i][j] * hg[j][i] for i in range(own.dim) for j in range(own.dim)])
        out.append(pairwise_sum(0.25 * mu * square + 0.125 * lam * trace * trace))
    return out if lanes else [x[0] for x in out]


# ---- rows ---------------------------------------------------------------------------------------------------------------------
