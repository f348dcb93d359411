"""Bending of the triangles of flexes.

Two triangles with a common edge are a hinge. x_0, x_1 are the ends of the edge, x_2, x_3 the third points of the triangles. With the
cotangents of the triangles' angles at the ends of the edge as coefficients c_i, sum_i c_i x_i is the edge's length times the curvature
normal (Wardetzky et al. 2007, "Discrete quadratic curvature energies"). A hinge stores the energy

    W = k cos(angle) / 2 |sum_i c_i x_i|^2 + b e_0 . (e_1 x e_2),

with k = E t^3 / (12 (1 - nu^2)) over the area of the two triangles, e_i the vectors from x_0 to x_1, x_2, x_3, and b such that the force at
rest has no component out of the triangles, also where they are folded by an angle at rest. Source: MuJoCo's documentation, XML
reference, flex/elasticity, and its plugin/elasticity/README.md. Dampers act on the velocities as the first term does on the positions.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.flex.structure import Hinges
from xsim.dynamics.tree.system import System
from xsim.spatial import cross, dot, scale, stage, vadd, vsub


class HingeMaterial(NamedTuple):
    """The coefficients of all hinges: c, k cos(angle), b."""

    c: tuple
    stiffness: object
    fold: object


def hinge_material(system: System, hinges: Hinges) -> HingeMaterial:
    """The coefficients that do not depend on the state."""
    flex, rows = system.flex, hinges.elastic_row
    lengths = [flex.length[hinges.edges[:, k]] for k in range(hinges.edges.shape[1])]
    return _material(lengths, flex.angle, flex.young[rows], flex.poisson[rows], flex.thickness[hinges.thickness_row])


@stage
def _material(lengths, angle, young, poisson, thickness) -> HingeMaterial:
    square, *sides = [x * x for x in lengths]
    c, area, other = cotangents(square, sides)
    k = young * thickness**3 / (12.0 * (1.0 - poisson * poisson)) / (area + other)
    return HingeMaterial(c, k * jnp.cos(angle), -k * jnp.sin(angle) * square * lengths[0] / (4.0 * area * other))


def cotangents(square, sides) -> tuple:
    """The coefficients c, and the areas of the two triangles. square: of the edge's length. sides: squared lengths of 02, 12, 03, 13."""
    (a0, a1, area), (b0, b1, other) = (_cotangents(square, *sides[i : i + 2]) for i in (0, 2))
    return (a1 + b1, a0 + b0, -(a0 + a1), -(b0 + b1)), area, other


def _cotangents(edge, first, second):
    """Of a triangle with these squared sides, the cotangents of the angles at the ends of the edge, and its area."""
    product = 0.5 * (edge + first - second)
    square = edge * first - product * product
    regular = square > 4.0 * jnp.finfo(square.dtype).eps * edge * first
    twice_area = jnp.sqrt(jnp.where(regular, square, 1.0))
    return product / twice_area, (edge - product) / twice_area, 0.5 * twice_area


def corners(points, x) -> list[tuple]:
    """The vectors x of the four points (hinges, 4) of hinges."""
    return [tuple(component[points[:, k]] for component in x) for k in range(4)]


def hinge_forces(points, material: HingeMaterial, damping, world, velocity, enabled: tuple[bool, bool]) -> list[tuple]:
    """The forces on the four points (hinges, 4) of hinges. world, velocity: of all points. enabled: whether springs and dampers act."""
    return _forces(material, damping, corners(points, world), corners(points, velocity), enabled)


def _combined(c, vectors):
    """sum_i c_i x_i, from the differences to the first vector, since the sum of c is zero."""
    e = [vsub(x, vectors[0]) for x in vectors[1:]]
    return vadd(vadd(scale(e[0], c[1]), scale(e[1], c[2])), scale(e[2], c[3])), e


@stage
def _forces(material: HingeMaterial, damping, x, velocity, enabled: tuple[bool, bool]) -> list[tuple]:
    curvature, e = _combined(material.c, x)
    rate, _ = _combined(material.c, velocity)
    zero = tuple(jnp.zeros_like(component) for component in curvature)
    flexion = vadd(curvature if enabled[0] else zero, scale(rate, damping) if enabled[1] else zero)
    out = [scale(flexion, -material.stiffness * c) for c in material.c]
    if enabled[0]:
        slopes = [scale(cross(e[(i + 1) % 3], e[(i + 2) % 3]), material.fold) for i in range(3)]
        out = [vadd(out[0], vadd(vadd(slopes[0], slopes[1]), slopes[2])), *(vsub(f, s) for f, s in zip(out[1:], slopes, strict=True))]
    return out


def hinge_energies(points, material: HingeMaterial, world):
    """The energy of each hinge, J, up to that of the fold at rest."""
    return _energies(material, corners(points, world))


@stage
def _energies(material: HingeMaterial, x):
    curvature, e = _combined(material.c, x)
    return 0.5 * material.stiffness * dot(curvature, curvature) + material.fold * dot(e[0], cross(e[1], e[2]))
