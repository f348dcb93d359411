"""Forces of a fluid on bodies: MuJoCo's two models (documentation: Fluid forces).

Velocities are relative to the fluid. Velocities and wrenches are in the same frame: the principal axes of inertia at the centre of mass, or
the frame of a geom. SI units.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from xsim.spatial import Force, Motion, Vector, add, cross, madd, normalize, safe_norm, scale, stage, total, vadd

MIN_DENOMINATOR = 1e-15
MIN_SPEED = 1e-12
"""Speed (m/s) below which the flow has no direction; the derivatives of the direction would overflow single precision."""
PAIRS = ((1, 2), (2, 0), (0, 1))
"""The other two axes of each axis."""

KRONROD = (
    (0.0, 0.209482141084727828),
    (0.207784955007898468, 0.204432940075298892),
    (0.405845151377397167, 0.190350578064785410),
    (0.586087235467691130, 0.169004726639267903),
    (0.741531185599394440, 0.140653259715525919),
    (0.864864423359769073, 0.104790010322250184),
    (0.949107912342758525, 0.063092092629978553),
    (0.991455371120812639, 0.022935322010529225),
)
"""Nodes and weights of the 15-point Gauss-Kronrod rule on -1..1; the nonnegative half."""


# ---- bodies as boxes ---------------------------------------------------------------------------------------------------------


@stage
def box_wrench(mass, inertia, velocity: Motion, density, viscosity) -> Force:
    """Drag on a body, that of the box with the same mass and principal moments of inertia."""
    has_mass = jnp.greater(mass, 0)
    factor = 6.0 / jnp.where(has_mass, mass, 1.0)
    squares = [jnp.maximum(inertia[j] + inertia[k] - inertia[i], MIN_DENOMINATOR) * factor for i, (j, k) in enumerate(PAIRS)]
    edges = [jnp.where(has_mass, jnp.sqrt(s), 0.0) for s in squares]
    mean = total(edges) / 3.0
    stokes = math.pi * viscosity * mean
    moment, force = [], []
    for i, (j, k) in enumerate(PAIRS):
        w, v = velocity.ang[i], velocity.lin[i]
        fourths = edges[j] ** 4 + edges[k] ** 4
        moment.append(-(stokes * mean * mean + density / 64.0 * edges[i] * fourths * jnp.abs(w)) * w)
        force.append(-(3.0 * stokes + 0.5 * density * edges[j] * edges[k] * jnp.abs(v)) * v)
    return Force(tuple(moment), tuple(force))


# ---- geoms as ellipsoids -----------------------------------------------------------------------------------------------------


SEMI_AXES = {
    "sphere": lambda size: (size[0], size[0], size[0]),
    "capsule": lambda size: (size[0], size[0], add(size[0], size[1])),
    "cylinder": lambda size: (size[0], size[0], size[1]),
}
"""Semi axes of the ellipsoid that replaces a round geom. size: radius, half length of the straight part. Other shapes: half extents."""


def semi_axes(shape: str, size) -> Vector:
    """Semi axes (m) of the ellipsoid that replaces a geom, see `SEMI_AXES`."""
    return SEMI_AXES.get(shape, tuple)(size)


def _substitution() -> tuple[np.ndarray, np.ndarray]:
    """Nodes y and weights of an integral over 0..infinity, by the substitution y = x^3 / (1 - x)^2 with x on 0..1."""
    nodes = [(sign * x, w) for x, w in KRONROD for sign in ((1.0,) if x == 0 else (-1.0, 1.0))]
    x = np.array([0.5 + 0.5 * n for n, _ in nodes])
    weights = np.array([0.5 * w for _, w in nodes])
    return x**3 / (1 - x) ** 2, weights * x**2 * (3 - x) / (1 - x) ** 3


@stage
def _shape_factor(axes, i):
    """Integral of abc / ((a_i^2 + y) sqrt((a^2 + y)(b^2 + y)(c^2 + y))) over y from 0 (Tuckerman 1925). 2/3 for a sphere; the sum over i
    is 2."""
    nodes, weights = _substitution()
    squares = [jnp.asarray(a)[..., None] ** 2 for a in axes]
    unit = (axes[0] * axes[1] * axes[2] * axes[i] ** 2) ** 0.4
    unit = jnp.asarray(unit)[..., None]
    ratios = [1.0 + unit * jnp.asarray(nodes, unit.dtype) / s for s in squares]
    terms = jnp.asarray(weights, unit.dtype) / (ratios[i] * jnp.sqrt(ratios[0] * ratios[1] * ratios[2]))
    return (unit / squares[i] * terms).sum(-1)


def added_mass(axes) -> tuple[Vector, Vector]:
    """Added masses and moments of inertia of an ellipsoid, per density of the fluid (m^3, m^5)."""
    factors = [_shape_factor(axes, i) for i in range(3)]
    return _added(axes, factors)


@stage
def _added(axes, factors) -> tuple[Vector, Vector]:
    volume = _volume(axes)
    masses = tuple(volume * f / (2.0 - f) for f in factors)
    return masses, tuple(volume / 5.0 * _added_inertia(axes[j], axes[k], factors[j], factors[k]) for j, k in PAIRS)


def _added_inertia(b, c, fb, fc):
    difference, square_sum = b * b - c * c, b * b + c * c
    denominator = jnp.abs(2.0 * difference + square_sum * (fb - fc))
    unequal = denominator > MIN_DENOMINATOR * square_sum
    return jnp.where(unequal, difference * difference * jnp.abs(fc - fb) / jnp.where(unequal, denominator, 1.0), 0.0)


def ellipsoid_wrench(axes, coefficients, added, velocity: Motion, density, viscosity) -> Force:
    """Wrench on an ellipsoid with these semi axes, in its frame.

    coefficients: blunt drag, slender drag, angular drag, Kutta lift, Magnus lift (the order of MJCF's fluidcoef). added: from `added_mass`;
    its acceleration terms are left out, as in MuJoCo.
    """
    blunt, slender, angular, kutta, magnus = coefficients
    w, v = velocity
    added_force = _added_force(added, velocity, density)
    flow = _lift_and_drag(axes, (blunt, slender, kutta), v, density, viscosity)
    magnus_lift = _magnus(axes, magnus, velocity, density)
    return madd(added_force, Force(_spin_drag(axes, (angular, slender), w, density, viscosity), vadd(flow, magnus_lift)))


def ellipsoid_drag(axes, coefficients, velocity: Motion, density, viscosity) -> Force:
    """The drag in `ellipsoid_wrench`: what is left without lift and added mass."""
    blunt, slender, angular = coefficients[:3]
    drag = _lift_and_drag(axes, (blunt, slender, 0.0), velocity.lin, density, viscosity)
    return Force(_spin_drag(axes, (angular, slender), velocity.ang, density, viscosity), drag)


def _volume(axes):
    return 4.0 / 3.0 * math.pi * axes[0] * axes[1] * axes[2]


def _two_longest(axes) -> tuple:
    longest = jnp.maximum(jnp.maximum(axes[0], axes[1]), axes[2])
    shortest = jnp.minimum(jnp.minimum(axes[0], axes[1]), axes[2])
    return longest, total(axes) - longest - shortest


@stage
def _added_force(added, velocity: Motion, density) -> Force:
    """Wrench of the added mass, without the acceleration terms."""
    masses, inertias = added
    w, v = velocity
    linear = scale(tuple(m * x for m, x in zip(masses, v, strict=True)), density)
    spin = scale(tuple(m * x for m, x in zip(inertias, w, strict=True)), density)
    return Force(vadd(cross(linear, v), cross(spin, w)), cross(linear, w))


@stage
def _magnus(axes, coefficient, velocity: Motion, density) -> Vector:
    """Magnus lift of a spinning body."""
    return scale(cross(velocity.ang, velocity.lin), coefficient * density * _volume(axes))


@stage
def _lift_and_drag(axes, coefficients, v, density, viscosity) -> Vector:
    """Kutta lift, drag of the frontal area and of the sides, and Stokes drag of a sphere of the mean size."""
    blunt, slender, kutta = coefficients
    longest, middle = _two_longest(axes)
    widest = longest * middle
    # Cross sections relative to the largest, so that powers of small sizes stay within the range of single precision.
    sections = [axes[j] * axes[k] / widest for j, k in PAIRS]
    speed = safe_norm(v)
    direction = normalize(tuple(jnp.where(speed > MIN_SPEED, x, e) for x, e in zip(v, (1.0, 0.0, 0.0), strict=True)))
    second = total([(s * x) ** 2 for s, x in zip(sections, direction, strict=True)])
    fourth = total([(s * s * x) ** 2 for s, x in zip(sections, direction, strict=True)])
    frontal = math.pi * widest * jnp.sqrt(fourth / second)

    normal = tuple(s * s * x for s, x in zip(sections, direction, strict=True))
    circulation = scale(cross(normal, v), kutta * density * frontal * second / fourth)
    drag = 2.0 * math.pi * viscosity * total(axes) + density * speed * (blunt * frontal + slender * (math.pi * widest - frontal))
    return vadd(cross(circulation, v), scale(v, -drag))


@stage
def _spin_drag(axes, coefficients, w, density, viscosity) -> Vector:
    """Drag moment against rotation: angular drag, and Stokes drag of a sphere of the mean size."""
    angular, slender = coefficients
    longest, middle = _two_longest(axes)
    largest = middle * longest**4
    resistances = [axes[i] * jnp.maximum(axes[j], axes[k]) ** 4 for i, (j, k) in enumerate(PAIRS)]
    angular_drag = safe_norm([x * (angular * r + slender * (largest - r)) for x, r in zip(w, resistances, strict=True)])
    diameter = 2.0 / 3.0 * total(axes)
    return scale(w, -(math.pi * viscosity * diameter**3 + density * 8.0 / 15.0 * math.pi * angular_drag))
