"""Elements and hinges of flexes that yield: triangles and tetrahedra keep a part of their strain, pairs of triangles a part of their fold.

The elastic part of an element's Green strain is that of its squared edge lengths minus those at rest minus offsets, numbers of
`State.plastic`. After each step the equivalent elastic strain sqrt(2/3 s : s) is at most the yield strain (von Mises). s is the deviator of
the elastic strain: of a triangle under compression in its plane, of one under tension with the thinning -tr e across. What yields keeps the
volume of tetrahedra.

A hinge (see `xsim.dynamics.flex.bending`) has an offset p of b in `State.plastic`. With it the bending is zero at the angle theta_p whose
tangent is -(b + p) l / (k S cos(angle)), S = c_2 c_3, l the length of the edge at rest. After each step |theta - theta_p| is at most
2 y (A_1 + A_2) / (t l), the angle at which the strain of the surface is y. The areas A are the present ones. theta is the present angle,
with the edge's length at rest over the present one as a factor of its tangent. What yields has |theta_p| <= 1.3 rad, and hinges that are
folded by a right angle or more at rest do not yield.

Sources: MuJoCo 4.0's documentation, XML reference, flex/elasticity, yield; for hinges the numbers of MuJoCo 4.0.0, which has no formula.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.flex.bending import HingeMaterial, corners
from xsim.dynamics.flex.kinematics import edge_vectors, points
from xsim.dynamics.flex.structure import EDGE_OF_POINTS, ElasticElements, Hinges, flex_plan
from xsim.dynamics.layout import column
from xsim.dynamics.linalg.dense import tree_sum
from xsim.dynamics.tree.kinematics import Frames, lanes_of
from xsim.dynamics.tree.system import System
from xsim.model.topology import Topology
from xsim.spatial import cross, dot, safe_norm, stage, vsub

LARGEST_FOLD = 1.3
"""The largest angle that a hinge keeps, rad."""
SMALLEST_STIFFNESS = 1e-15
"""k cos(angle) from which on a hinge yields, N/m^3: the cosine of a right angle is not zero in floating-point numbers."""
NEWTON_STEPS = 8
"""For the trace of the elastic strain of a tetrahedron: the error squares at each step, from at most the yield strain."""


def gram_matrix(squares, dim: int) -> list:
    """The products of the edges that start at an element's first point, from the squared lengths of all edges. The map is linear, so it
    also maps differences of squared lengths."""
    edge = EDGE_OF_POINTS[dim]

    def product(i, j):
        square = squares[edge[0, i]]
        return square if i == j else 0.5 * (square + squares[edge[0, j]] - squares[edge[min(i, j), max(i, j)]])

    return [[product(i, j) for j in range(1, dim + 1)] for i in range(1, dim + 1)]


def times(A, B) -> list:
    return [[tree_sum([a * b for a, b in zip(row, column, strict=True)]) for column in zip(*B, strict=True)] for row in A]


def has_yielding_elements(topology: Topology) -> bool:
    """Whether the state has offsets of elements or hinges."""
    return any(flex.plastic is not None or flex.plastic_folds is not None for flex in topology.flexes)


def plastic_stretches(system: System, elements: ElasticElements) -> list | None:
    """For each edge of an element the offset of its squared length (elements, lanes or 1), m^2. None without elements that yield."""
    plastic = system.derived.plastic
    if not elements.plastic or plastic is None:
        return None
    count, width = elements.edges.shape
    numbers: list = [0.0] * (count * width)
    for address, first, n in elements.plastic:
        numbers[first * width : (first + n) * width] = plastic[address : address + n * width]
    return [column(numbers[k::width]) for k in range(width)]


def next_stretches(system: System, frame: Frames) -> dict[int, list]:
    """The numbers of `State.plastic` for elements, by their first address, after a step to the configuration of ``frame``."""
    plan, rest, out = flex_plan(system.topology), system.flex.length, {}
    _, _, length = edge_vectors(points(system, frame).world, plan.edge_points)
    lanes = bool(lanes_of(system, frame))
    for elements, material in zip(plan.elements, system.derived.flex_material.elements, strict=True):
        offsets = plastic_stretches(system, elements)
        if offsets is None:
            continue
        width = elements.edges.shape[1]
        edges = [elements.edges[:, k] for k in range(width)]
        limit = system.flex.yield_strain[elements.yield_row]
        found = _yielded([length[e] for e in edges], [rest[e] for e in edges], offsets, material[0], limit, elements.dim)
        rows = [list(x if lanes else x[:, 0]) for x in found]
        for address, first, n in elements.plastic:
            out[address] = [rows[k][i] for i in range(first, first + n) for k in range(width)]
    return out


@stage
def _yielded(lengths, rest, offsets, h, limit, dim: int) -> list:
    """The offsets after the elastic strain is brought back to the limit. h: the inverse Gram matrix at rest."""
    squares, at_rest = [x * x for x in lengths], [x * x for x in rest]
    elastic = [s - r - p for s, r, p in zip(squares, at_rest, offsets, strict=True)]
    strain = [[0.5 * x for x in row] for row in times(h, gram_matrix(elastic, dim))]
    trace = tree_sum([strain[i][i] for i in range(dim)])
    square = tree_sum([strain[i][j] * strain[j][i] for i in range(dim) for j in range(dim)])
    thins = trace >= 0.0 if dim == 2 else False
    deviator = jnp.where(thins, square + trace * trace, square - trace * trace / dim)
    factor = _factor(deviator, limit)
    mean = 2.0 * trace / dim
    if dim == 2:
        isotropic = jnp.where(thins, 0.0, (1.0 - factor) * mean)
    else:
        whole = times(h, gram_matrix(squares, dim))
        part = [[whole[i][j] - 2.0 * factor * strain[i][j] + (factor * mean if i == j else 0.0) for j in range(3)] for i in range(3)]
        isotropic = _shift_to_unit_determinant(part, mean) - factor * mean
    yielding = factor < 1.0
    new = [jnp.where(yielding, factor * x + isotropic * r, x) for x, r in zip(elastic, at_rest, strict=True)]
    return [s - r - x for s, r, x in zip(squares, at_rest, new, strict=True)]


def _factor(deviator, limit):
    """By what the deviator is scaled. deviator: its square."""
    moved = deviator > 0.0
    equivalent = jnp.sqrt(2.0 / 3.0 * jnp.where(moved, deviator, 1.0))
    return jnp.where(moved & (equivalent > limit), limit / equivalent, 1.0)


def _shift_to_unit_determinant(part, start):
    """x with det(part - x 1) = 1, near a first guess."""
    a, b, c = part
    first = a[0] + b[1] + c[2]
    second = sum(part[i][i] * part[j][j] - part[i][j] * part[j][i] for i, j in ((0, 1), (0, 2), (1, 2)))
    determinant, x = dot(a, cross(b, c)), start
    for _ in range(NEWTON_STEPS):
        value = determinant - x * (second - x * (first - x)) - 1.0
        x = x + value / (second - x * (2.0 * first - 3.0 * x))
    return x


def folded_material(system: System, hinges: Hinges) -> HingeMaterial:
    """The coefficients of hinges with their plastic folds."""
    material, plastic = system.derived.flex_material.hinges, system.derived.plastic
    if not hinges.plastic or plastic is None:
        return material
    offset: list = [0.0] * len(hinges.points)
    for hinge, address in zip(hinges.yielding.tolist(), hinges.plastic, strict=True):
        offset[hinge] = plastic[address]
    return material._replace(fold=material.fold + column(offset))


def next_folds(system: System, frame: Frames) -> dict[int, list]:
    """The numbers of `State.plastic` for hinges, by their address, after a step to the configuration of ``frame``."""
    hinges = flex_plan(system.topology).hinges
    if not hinges.plastic:
        return {}
    chosen, flex = hinges.yielding, system.flex
    c, stiffness, fold = system.derived.flex_material.hinges
    material = HingeMaterial(tuple(x[chosen] for x in c), stiffness[chosen], fold[chosen])
    offset = column([system.derived.plastic[address] for address in hinges.plastic])
    limit = 2.0 * flex.bend_yield_strain[hinges.yield_row] / flex.thickness[hinges.thickness_row[chosen]]
    x = corners(hinges.points[chosen], points(system, frame).world)
    found = _folded(material, offset, flex.length[hinges.edges[chosen, 0]], limit, x)
    rows = list(found if lanes_of(system, frame) else found[:, 0])
    return {address: [row] for address, row in zip(hinges.plastic, rows, strict=True)}


@stage
def _folded(material: HingeMaterial, offset, length, limit, x):
    """The offsets of b after a step. length: of the edges at rest. limit: 2 y / t. x: the corners."""
    edge, a, b = (vsub(point, x[0]) for point in x[1:])
    first, second = cross(edge, a), cross(b, edge)
    sine, cosine = length * dot(edge, cross(a, b)), dot(first, second)
    regular = (sine != 0.0) | (cosine != 0.0)
    angle = jnp.arctan2(jnp.where(regular, sine, 0.0), jnp.where(regular, cosine, 1.0))
    yields = material.stiffness > SMALLEST_STIFFNESS
    slope = jnp.where(yields, material.stiffness, 1.0) * material.c[2] * material.c[3] / length
    present = jnp.arctan(-(material.fold + offset) / slope)
    most = 0.5 * limit * (safe_norm(first) + safe_norm(second)) / length
    new = jnp.clip(jnp.clip(present, angle - most, angle + most), -LARGEST_FOLD, LARGEST_FOLD)
    return jnp.where(yields & (jnp.abs(angle - present) > most), -slope * jnp.tan(new) - material.fold, offset)
