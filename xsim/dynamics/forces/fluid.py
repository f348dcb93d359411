"""Forces of a still or moving medium on bodies: MuJoCo's two models (manual: Fluid forces).

Velocities are of the body relative to the medium, in the frame in which the wrench comes out: of a body's principal axes of inertia at
its centre of mass, or of a geom. SI units.
"""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np

from xsim.spatial import Force, Motion, Vector, add, cross, madd, normalize, safe_norm, scale, stage, total, vadd

SMALLEST = 1e-15
STILL = 1e-12
"""Speed (m/s) below which a flow has no direction: that of less has derivatives beyond the numbers of single precision."""
PAIRS = ((1, 2), (2, 0), (0, 1))
"""The other two axes of each."""

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
"""Nodes and weights of the 15 point rule on -1..1, those above 0."""


# ---- bodies as boxes ---------------------------------------------------------------------------------------------------------


@stage
def box_wrench(mass, inertia, velocity: Motion, density, viscosity) -> Force:
    """Drag of a body with that mass and those principal inertias, as of the box of equal inertia."""
    heavy = jnp.greater(mass, 0)
    share = 6.0 / jnp.where(heavy, mass, 1.0)
    squares = [jnp.maximum(inertia[j] + inertia[k] - inertia[i], SMALLEST) * share for i, (j, k) in enumerate(PAIRS)]
    edges = [jnp.where(heavy, jnp.sqrt(s), 0.0) for s in squares]
    mean = total(edges) / 3.0
    slow = math.pi * viscosity * mean
    moment, force = [], []
    for i, (j, k) in enumerate(PAIRS):
        w, v = velocity.ang[i], velocity.lin[i]
        fourths = edges[j] ** 4 + edges[k] ** 4
        moment.append(-(slow * mean * mean + density / 64.0 * edges[i] * fourths * jnp.abs(w)) * w)
        force.append(-(3.0 * slow + 0.5 * density * edges[j] * edges[k] * jnp.abs(v)) * v)
    return Force(tuple(moment), tuple(force))


# ---- geoms as ellipsoids -----------------------------------------------------------------------------------------------------


SEMI_AXES = {
    "sphere": lambda size: (size[0], size[0], size[0]),
    "capsule": lambda size: (size[0], size[0], add(size[0], size[1])),
    "cylinder": lambda size: (size[0], size[0], size[1]),
}
"""Of the ellipsoids that stand for round geoms; size: radius, half length of the straight part. Of others: half extents."""


def semi_axes(shape: str, size) -> Vector:
    """Semi axes (m) of the ellipsoid that stands for a geom; see `SEMI_AXES`."""
    return SEMI_AXES.get(shape, tuple)(size)


def _substitution() -> tuple[np.ndarray, np.ndarray]:
    """Nodes y of an integral over 0..infinity, in units of some scale, and their weights, from x on 0..1 with y = x^3 / (1 - x)^2."""
    nodes = [(sign * x, w) for x, w in KRONROD for sign in ((1.0,) if x == 0 else (-1.0, 1.0))]
    x = np.array([0.5 + 0.5 * n for n, _ in nodes])
    weights = np.array([0.5 * w for _, w in nodes])
    return x**3 / (1 - x) ** 2, weights * x**2 * (3 - x) / (1 - x) ** 3


@stage
def _shape_factor(axes, i):
    """The integral of abc / ((a_i^2 + y) sqrt((a^2 + y)(b^2 + y)(c^2 + y))) over y from 0: 2/3 of a sphere, sum 2 (Tuckerman 1925)."""
    nodes, weights = _substitution()
    squares = [jnp.asarray(a)[..., None] ** 2 for a in axes]
    unit = (axes[0] * axes[1] * axes[2] * axes[i] ** 2) ** 0.4
    unit = jnp.asarray(unit)[..., None]
    ratios = [1.0 + unit * jnp.asarray(nodes, unit.dtype) / s for s in squares]
    terms = jnp.asarray(weights, unit.dtype) / (ratios[i] * jnp.sqrt(ratios[0] * ratios[1] * ratios[2]))
    return (unit / squares[i] * terms).sum(-1)


def added_mass(axes) -> tuple[Vector, Vector]:
    """Masses and moments of inertia that move along with an ellipsoid, per density of the medium (m^3, m^5)."""
    factors = [_shape_factor(axes, i) for i in range(3)]
    return _added(axes, factors)


@stage
def _added(axes, factors) -> tuple[Vector, Vector]:
    volume = _volume(axes)
    masses = tuple(volume * f / (2.0 - f) for f in factors)
    return masses, tuple(volume / 5.0 * _added_inertia(axes[j], axes[k], factors[j], factors[k]) for j, k in PAIRS)


def _added_inertia(b, c, fb, fc):
    difference, across = b * b - c * c, b * b + c * c
    below = jnp.abs(2.0 * difference + across * (fb - fc))
    uneven = below > SMALLEST * across
    return jnp.where(uneven, difference * difference * jnp.abs(fc - fb) / jnp.where(uneven, below, 1.0), 0.0)


def ellipsoid_wrench(axes, coefficients, added, velocity: Motion, density, viscosity) -> Force:
    """Force on an ellipsoid with these semi axes, in its frame.

    coefficients: blunt drag, slender drag, angular drag, Kutta lift, Magnus lift (the order of MJCF's fluidcoef). added: `added_mass`,
    whose terms with accelerations are left out.
    """
    blunt, slender, angular, kutta, magnus = coefficients
    w, v = velocity
    carried = _added_force(added, velocity, density)
    flow = _lift_and_drag(axes, (blunt, slender, kutta), v, density, viscosity)
    swirl = _magnus(axes, magnus, velocity, density)
    return madd(carried, Force(_spin_drag(axes, (angular, slender), w, density, viscosity), vadd(flow, swirl)))


def _volume(axes):
    return 4.0 / 3.0 * math.pi * axes[0] * axes[1] * axes[2]


def _two_longest(axes) -> tuple:
    longest = jnp.maximum(jnp.maximum(axes[0], axes[1]), axes[2])
    shortest = jnp.minimum(jnp.minimum(axes[0], axes[1]), axes[2])
    return longest, total(axes) - longest - shortest


@stage
def _added_force(added, velocity: Motion, density) -> Force:
    """What carrying along the medium takes while the frame turns, its acceleration aside."""
    masses, inertias = added
    w, v = velocity
    linear = scale(tuple(m * x for m, x in zip(masses, v, strict=True)), density)
    spin = scale(tuple(m * x for m, x in zip(inertias, w, strict=True)), density)
    return Force(vadd(cross(linear, v), cross(spin, w)), cross(linear, w))


@stage
def _magnus(axes, coefficient, velocity: Motion, density) -> Vector:
    """Lift of a spinning body."""
    return scale(cross(velocity.ang, velocity.lin), coefficient * density * _volume(axes))


@stage
def _lift_and_drag(axes, coefficients, v, density, viscosity) -> Vector:
    """Kutta's lift of a body at an angle to the flow, drag of its face and its sides, and Stokes' drag of a ball of its mean size."""
    blunt, slender, kutta = coefficients
    longest, middle = _two_longest(axes)
    widest = longest * middle
    # Sections across each axis over the largest: sizes of any unit stay within the numbers of single precision.
    sections = [axes[j] * axes[k] / widest for j, k in PAIRS]
    speed = safe_norm(v)
    way = normalize(tuple(jnp.where(speed > STILL, x, one) for x, one in zip(v, (1.0, 0.0, 0.0), strict=True)))
    second = total([(s * x) ** 2 for s, x in zip(sections, way, strict=True)])
    fourth = total([(s * s * x) ** 2 for s, x in zip(sections, way, strict=True)])
    facing = math.pi * widest * jnp.sqrt(fourth / second)

    normal = tuple(s * s * x for s, x in zip(sections, way, strict=True))
    circulation = scale(cross(normal, v), kutta * density * facing * second / fourth)
    drag = 2.0 * math.pi * viscosity * total(axes) + density * speed * (blunt * facing + slender * (math.pi * widest - facing))
    return vadd(cross(circulation, v), scale(v, -drag))


@stage
def _spin_drag(axes, coefficients, w, density, viscosity) -> Vector:
    """Moment against turning: of the medium thrown aside, and Stokes' of a ball of its mean size."""
    angular, slender = coefficients
    longest, middle = _two_longest(axes)
    most = middle * longest**4
    resistances = [axes[i] * jnp.maximum(axes[j], axes[k]) ** 4 for i, (j, k) in enumerate(PAIRS)]
    swept = safe_norm([x * (angular * r + slender * (most - r)) for x, r in zip(w, resistances, strict=True)])
    diameter = 2.0 / 3.0 * total(axes)
    return scale(w, -(math.pi * viscosity * diameter**3 + density * 8.0 / 15.0 * math.pi * swept))
