"""Elasticity of the cells of flexes with a grid of nodes: linear isotropic material in a frame that turns with the cell.

A cell is a box with the sides h at rest. Its shape functions N_a are products of Lagrange polynomials of order 1 or 2. R is the rotation
that is nearest to the deformation gradient at the centre of the cell, and u = R^T x - X are the displacements of the nodes in the cell's
frame. The cell stores the energy u^T K u / 2, K the stiffness matrix of the material in it, integrated exactly. The forces are -R K u; the
change of R is left out of them. The damping forces are -damping R K R^T v. Source: probes of MuJoCo 4.0, whose forces these are; its energy
leaves these flexes out.

Sheets are faces of cells under plane stress, in the frame of the face: R is nearest to the derivatives along the face and their product.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.flex.structure import Cells
from xsim.dynamics.linalg.dense import pairwise_sum, summed_products, tree_sum
from xsim.model.shape_functions import quadrature, shape_functions
from xsim.spatial import cross, dot, mul, scale, stage, vadd, vsub

NEWTON_STEPS = 10  # to the sum of the singular values; the last two have derivatives


class Material(NamedTuple):
    """The material of cells: arrays (cells, lanes or 1).

    sides: of the cells, m. thickness: of faces, m, else None. weights (points, cells): of the quadrature over what is filled of each cell.
    None if all are full."""

    young: jax.Array
    poisson: jax.Array
    sides: tuple
    thickness: jax.Array | None
    weights: np.ndarray | None

    def quadrature(self, order: int) -> tuple[np.ndarray, np.ndarray]:
        """The derivatives (points, dim, n) of the shape functions at the points, and the weights (points, cells or 1)."""
        at_points, full = quadrature(order, len(self.sides), None if self.weights is None else 2 * order + 1)
        return at_points, full[:, None] if self.weights is None else self.weights


def cell_forces(cells: Cells, flex, world, velocity, enabled: tuple[bool, bool]) -> tuple:
    """The forces on the first nodes of all cells, then on their second nodes, and so on: components (nodes cells, lanes or 1), N.

    flex: leaves. world, velocity: of all points, components (points, lanes or 1). enabled: whether springs and dampers act."""
    moving = tuple(x[cells.nodes] for x in world), tuple(x[cells.nodes] for x in velocity)
    return _forces(cells.order, *moving, _material(cells, flex), flex.damping[cells.elastic_row], enabled)


def cell_energies(cells: Cells, flex, world):
    """The energy stored in each cell, J, (cells, lanes or 1)."""
    return _energies(cells.order, tuple(x[cells.nodes] for x in world), _material(cells, flex))


def cell_slopes(cells: Cells, flex, world, jacobian) -> tuple:
    """Damping and stiffness matrices (nv, nv, lanes or 1) of all cells in their present frames. jacobian: of the points' coordinates, three
    arrays (points, nv, lanes or 1)."""
    nodes, motions = (tuple(x[cells.nodes] for x in part) for part in (world, jacobian))
    material, damping = _material(cells, flex), flex.damping[cells.elastic_row]

    def slopes(time):
        forces = jax.vmap(lambda *motion: _forces(cells.order, nodes, motion, material, time, (False, True)), 2, 1)(*motions)
        return sum(-summed_products(m.reshape(-1, *m.shape[2:]), f) for m, f in zip(motions, forces, strict=True))

    return slopes(damping), slopes(jnp.ones_like(damping))


def _material(cells: Cells, flex) -> Material:
    sides = tuple(flex.side[cells.side_row, cells.axes[:, k]] for k in range(cells.dim))
    thickness = None if cells.thickness_row is None else flex.thickness[cells.thickness_row]
    return Material(*(x[cells.elastic_row] for x in (flex.young, flex.poisson)), sides, thickness, cells.weights)


@stage
def _forces(order: int, nodes, velocity, material: Material, damping, enabled: tuple[bool, bool]) -> tuple:
    sides = material.sides
    R, u = displacements(order, nodes, sides)
    parts = ([u] if enabled[0] else []) + ([scale(turned(R, velocity), damping)] if enabled[1] else [])
    if not parts:
        return tuple(jnp.zeros((x.shape[0] * x.shape[1], x.shape[2]), x.dtype) for x in u)
    moved = functools.reduce(vadd, parts)
    at_points, dim = material.quadrature(order)[0], len(sides)
    stress = _stresses(order, moved, material)
    flat = at_points.reshape(-1, at_points.shape[2]).T
    out = []
    for i in range(dim):
        by_row = jnp.stack([stress[i][j] / sides[j] for j in range(dim)], 1)  # rows in the order of the derivatives
        out.append(_product(-flat, by_row.reshape(-1, *by_row.shape[2:])))
    out += [jnp.zeros_like(out[0])] * (3 - dim)
    force = turned(tuple(zip(*R, strict=True)), tuple(out))
    return tuple(x.reshape(-1, x.shape[-1]) for x in force)


@stage
def _energies(order: int, nodes, material: Material):
    _, u = displacements(order, nodes, material.sides)
    stress, gradient = _stresses(order, u, material), _gradients(order, u, material)
    axes = range(len(material.sides))
    return 0.5 * pairwise_sum(tree_sum([stress[i][j] * gradient[i][j] for i in axes for j in axes]))


def displacements(order: int, nodes, sides) -> tuple:
    """The rotation (rows of components, (cells, lanes)) of each cell, and the displacements of its nodes in its frame, components
    (nodes, cells, lanes)."""
    dim = len(sides)
    places, at_centre = shape_functions(order, dim)
    centred = tuple(x - pairwise_sum(x)[None] / len(places) for x in nodes)
    columns = [tuple(_product(at_centre[j : j + 1], x)[0] / sides[j] for x in centred) for j in range(dim)]
    columns += [cross(*columns)] if dim == 2 else []
    R = nearest_rotation([[column[i] for column in columns] for i in range(3)])
    rest = [jnp.asarray(places[:, k, None, None], centred[0].dtype) * sides[k] for k in range(dim)]
    return R, vsub(turned(R, centred), (*rest, *[0.0] * (3 - dim)))


def turned(R, x) -> tuple:
    """R^T x, R (cells, lanes), x (nodes, cells, lanes)."""
    return tuple(dot(tuple(R[i][k] for i in range(3)), x) for k in range(3))


def _gradients(order: int, u, material: Material) -> list:
    """d u_i / d X_j at the points of the quadrature, (points, cells, lanes)."""
    sides, dim, at_points = material.sides, len(material.sides), material.quadrature(order)[0]
    return [[_product(at_points[:, j], u[i]) / sides[j] for j in range(dim)] for i in range(dim)]


def _stresses(order: int, u, material: Material) -> list:
    """Stresses at the points of the quadrature, times the volume that each stands for, N m."""
    young, poisson, sides, thickness, _ = material
    dim, weights, size = len(sides), material.quadrature(order)[1], functools.reduce(mul, sides)
    volume = jnp.asarray(weights[:, :, None], u[0].dtype) * (size if thickness is None else size * thickness)
    shear = 0.5 * young / (1.0 + poisson)
    bulk = young * poisson / ((1.0 + poisson) * (1.0 - (2.0 if dim == 3 else 1.0) * poisson))
    g = _gradients(order, u, material)
    pressure = bulk * tree_sum([g[i][i] for i in range(dim)])
    return [[volume * (shear * (g[i][j] + g[j][i]) + (pressure if i == j else 0.0)) for j in range(dim)] for i in range(dim)]


def _product(matrix: np.ndarray, x):
    """A constant matrix (m, n) times an array (n, cells, lanes)."""
    return jnp.tensordot(jnp.asarray(matrix, x.dtype), x, 1, precision=jax.lax.Precision.HIGHEST)


def nearest_rotation(F) -> list:
    """The rotation R for which the trace of R^T F is greatest, also for F with a negative determinant. F, R: rows of components.

    With the singular values s of F, the least one negative if the determinant is, the trace is i1 = s1 + s2 + s3, the greatest root of a
    polynomial of order 4, and R follows from the theorem of Cayley and Hamilton. Derivatives exist at the identity too, up to the third;
    they do not where two of the s cancel, where R is not unique."""
    C = [[dot(tuple(F[k][i] for k in range(3)), tuple(F[k][j] for k in range(3))) for j in range(3)] for i in range(3)]
    cofactors = [cross(F[(i + 1) % 3], F[(i + 2) % 3]) for i in range(3)]
    determinant = dot(F[0], cofactors[0])
    square = C[0][0] + C[1][1] + C[2][2]
    fourth = tree_sum([C[i][j] * C[i][j] for i in range(3) for j in range(3)])
    i1 = _greatest_root(square, determinant, 2.0 * fourth - square * square)
    i2 = 0.5 * (i1 * i1 - square)
    divisor = i1 * i2 - determinant
    tiny = jnp.finfo(divisor.dtype).tiny
    inverse = 1.0 / jnp.where(jnp.abs(divisor) > tiny, divisor, 1.0)
    a, b = i1 * inverse, (i1 * i1 - i2) * inverse
    cubed = [[tree_sum([F[i][k] * C[k][j] for k in range(3)]) * inverse for j in range(3)] for i in range(3)]
    return [[a * cofactors[i][j] + b * F[i][j] - cubed[i][j] for j in range(3)] for i in range(3)]


def _greatest_root(square, determinant, constant):
    """Of x^4 - 2 square x^2 - 8 determinant x + constant, by Newton's method from above."""
    x = jax.lax.stop_gradient(jnp.sqrt(3.0 * square))
    for k in range(NEWTON_STEPS):
        a, b, c = (square, determinant, constant) if k >= NEWTON_STEPS - 2 else map(jax.lax.stop_gradient, (square, determinant, constant))
        slope = 4.0 * (x * (x * x - a) - 2.0 * b)
        value = x * (x * (x * x - 2.0 * a) - 8.0 * b) + c
        x = x - jnp.where(slope > 0, value / jnp.where(slope > 0, slope, 1.0), 0.0)
    return x
