"""Tendons around obstacles, muscles and fluid forces: against what they mean, their gradients, and inputs where formulas break."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy, traced

from xsim.dynamics.actuation import muscles
from xsim.dynamics.forces import fluid
from xsim.dynamics.tendons.wrapping import WrappedPath, wrap
from xsim.rules import RULES
from xsim.spatial import Motion

KINDS = ("sphere", "cylinder")
RADIUS = 0.6


def way(kind, x, rule="3.2", side=True) -> WrappedPath:
    """The way of ten numbers: two points, the side site, the radius."""
    return wrap(kind, tuple(x[0:3]), tuple(x[3:6]), x[9], tuple(x[6:9]) if side else None, RULES[rule].tendon_shortest_side)


def ways(kind, x, rule="3.2", side=True) -> WrappedPath:
    return traced(lambda x: way(kind, x, rule, side), x)(x)


def configurations(rng, n, inside):
    """(10, n): points outside the obstacle, and a side site inside or outside it."""
    x = rng.normal(size=(10, n))
    for rows in (slice(0, 3), slice(3, 6)):
        x[rows] *= (RADIUS + rng.uniform(0.05, 1.0, n)) / np.hypot(x[rows][0], x[rows][1])
    x[6:9] *= (rng.uniform(0.1, 0.9, n) if inside else rng.uniform(1.1, 2.0, n)) * RADIUS / np.linalg.norm(x[6:9], axis=0)
    x[9] = RADIUS
    return x


def surface(kind, u, v):
    """Points of the surface: of the cylinder at angle u and height v, of the sphere at azimuth u and elevation v."""
    if kind == "cylinder":
        return np.stack([RADIUS * np.cos(u), RADIUS * np.sin(u), v], -1)
    return RADIUS * np.stack([np.cos(v) * np.cos(u), np.cos(v) * np.sin(u), np.sin(v)], -1)


def on_surface(kind, p):
    return np.hypot(p[0], p[1]) if kind == "cylinder" else np.linalg.norm(p, axis=0)


def geodesic(kind, p, q):
    """Length of the shortest line on the surface between two of its points."""
    cosine = (p[0] * q[0] + p[1] * q[1]) / RADIUS**2
    if kind == "cylinder":
        return np.hypot(RADIUS * np.arccos(np.clip(cosine, -1, 1)), p[2] - q[2])
    return RADIUS * np.arccos(np.clip((p * q).sum(0) / RADIUS**2, -1, 1))


# ---- tendons -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_shortest_way_around(kind, x64):
    """No way that keeps off the obstacle is shorter than the tendon, and the tendon's own parts add up to its length."""
    from scipy.optimize import minimize

    x = configurations(np.random.default_rng(0), 400, inside=False)
    w = ways(kind, x, side=False)
    a, b, first, last = x[0:3], x[3:6], np.stack(w.first), np.stack(w.last)
    wraps = np.flatnonzero(np.asarray(w.wraps))
    assert 40 < len(wraps) < 360
    parts = np.linalg.norm(a - first, axis=0) + w.curve + np.linalg.norm(b - last, axis=0)
    np.testing.assert_allclose(parts[wraps], w.length[wraps], rtol=1e-12)
    np.testing.assert_allclose([on_surface(kind, p)[wraps] for p in (first, last)], RADIUS, rtol=1e-12)
    np.testing.assert_allclose(geodesic(kind, first, last)[wraps], w.curve[wraps], atol=1e-7)  # arccos near 1

    flat = 2 if kind == "cylinder" else 3
    for i in wraps[:8]:

        def length(u, i=i):
            p, q = surface(kind, *u[:2]), surface(kind, *u[2:])
            # a piece that starts inwards cuts the obstacle
            cut = sum(max(0.0, -(e - c)[:flat] @ c[:flat]) for e, c in ((a[:, i], p), (b[:, i], q)))
            return np.linalg.norm(a[:, i] - p) + geodesic(kind, p, q) + np.linalg.norm(b[:, i] - q) + 10 * cut

        start = [c for p in (first, last) for c in (np.arctan2(p[1, i], p[0, i]), p[2, i] if kind == "cylinder" else 0.0)]
        assert w.length[i] <= minimize(length, start, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-13}).fun + 1e-9
    # Where it does not wrap, the straight way keeps off.
    free = np.flatnonzero(np.asarray(w.wraps) == 0)
    t = np.linspace(0, 1, 400)[:, None, None]
    assert (on_surface(kind, np.moveaxis(a + t * (b - a), 1, 0)).min(0)[free] > RADIUS - 1e-9).all()
    np.testing.assert_allclose(w.length[free], np.linalg.norm(a - b, axis=0)[free], rtol=1e-13)


@pytest.mark.parametrize("kind", KINDS)
def test_way_through(kind, x64):
    """With the side site inside, the tendon touches the nearest point of the obstacle, found here by trying all."""
    x = configurations(np.random.default_rng(1), 60, inside=True)
    w = ways(kind, x)
    touches = np.flatnonzero(np.asarray(w.wraps))
    assert len(touches) > 10
    a, b = x[0:3], x[3:6]
    np.testing.assert_allclose(np.stack(w.first)[:, touches], np.stack(w.last)[:, touches], atol=1e-14)
    n = 4000
    for i in touches:
        place = np.stack(w.first)[:, i]
        np.testing.assert_allclose(on_surface(kind, place), RADIUS, rtol=1e-12)
        if kind == "sphere":
            out, normal = a[:, i] / np.linalg.norm(a[:, i]), np.cross(a[:, i], b[:, i])
            across = np.cross(normal / np.linalg.norm(normal), out)
        else:
            out, across = np.eye(3)[:2]
        u = np.linspace(0, 2 * math.pi, n)[:, None]
        circle = RADIUS * (out * np.cos(u) + across * np.sin(u))
        ends = [p[:, i] * ([1, 1, 1] if kind == "sphere" else [1, 1, 0]) for p in (a, b)]
        best = sum(np.linalg.norm(circle - e, axis=1) for e in ends).min()
        rise = 0.0 if kind == "sphere" else a[2, i] - b[2, i]
        # The length is least there, so the grid misses it by the square of its spacing only.
        np.testing.assert_allclose(w.length[i], math.hypot(best, rise), atol=1e-5)
        assert w.length[i] <= math.hypot(best, rise) + 1e-12


@pytest.mark.parametrize("rule", ("3.2", "4.0"))
@pytest.mark.parametrize("kind", KINDS)
def test_side_site(kind, rule, x64):
    """The tendon goes round on the side of the site: the short way here, the long way when the site is moved across."""
    low, high = [-1.0, 0.3, 0.1, 1.0, 0.3, 0.2], [-1.0, 0.8, 0.0, 1.0, 0.8, 0.0]
    side = np.array([0.2, 1.0, 0.0])
    w = ways(kind, np.array([[*ends, *(sign * side), RADIUS] for ends in (low, high) for sign in (1, -1)]).T, rule)
    np.testing.assert_array_equal(w.wraps, [1, 1, 0, 1])
    np.testing.assert_array_equal(np.sign(np.add(w.first, w.last)[1])[[0, 1, 3]], [1, -1, -1])
    assert w.length[0] < w.length[1]


def gradient(kind, rule, x):
    """Derivative of the length with the ten numbers, and the way; rule None: no side site."""

    def length(x):
        w = way(kind, x, rule or "3.2", rule is not None)
        return w.length.sum(), w

    return jax.grad(length, has_aux=True)(x)


def turned(rng, x):
    """A direction in which to change configurations: points and radius."""
    return jnp.asarray(np.where((np.arange(10) // 3 == 2)[:, None], 0.0, rng.normal(size=x.shape)))


@pytest.mark.parametrize("kind, rule", (("sphere", None), ("sphere", "3.2"), ("cylinder", "4.0")))
def test_length_gradient(kind, rule, x64):
    """The length's first and second derivative against differences; with the points it is the direction of the tendon there."""
    rng = np.random.default_rng(2)
    x = jnp.asarray(np.concatenate([configurations(rng, 200, inside) for inside in (False, True)], 1))
    turn, h = turned(rng, x), 1e-5

    both = traced(lambda x: jax.jvp(lambda x: gradient(kind, rule, x), (x,), (turn,)), x)
    (slope, w), (bend, rate) = both(x)
    (after, w_after), (before, w_before) = both(x + h * turn)[0], both(x - h * turn)[0]
    same = np.asarray(w_after.wraps == w_before.wraps)
    assert same.sum() > 390 and 50 < np.asarray(w.wraps).sum() < 350
    np.testing.assert_allclose((slope * turn).sum(0), rate.length, atol=1e-10)
    np.testing.assert_allclose(rate.length[same], ((w_after.length - w_before.length) / (2 * h))[same], atol=1e-8)
    np.testing.assert_allclose(np.concatenate(w.gradients).reshape(6, -1), slope[:6], atol=1e-11)
    np.testing.assert_allclose(np.linalg.norm(np.stack(w.gradients[0]), axis=0), 1.0, rtol=1e-12)
    np.testing.assert_allclose(bend[:, same], ((after - before) / (2 * h))[:, same], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("inside", (False, True))
@pytest.mark.parametrize("kind", KINDS)
def test_continuous_where_it_touches(kind, inside, x64):
    """As a tendon comes to touch, its length and its slope do not jump."""
    side = (0.0, 0.1, 0.0) if inside else None
    away = -1.0 if inside else 1.0
    heights = RADIUS + away * jnp.array([1e-9, -1e-9, -0.1])

    def following(y):
        w = wrap(kind, (-1.0 + 0 * y, y, 0.0), (1.2, y, 0.3 if kind == "cylinder" else 0.0), RADIUS, side)
        return w.length, w.wraps

    (length, wraps), (slope, _) = traced(lambda y: jax.jvp(following, (y,), (jnp.ones_like(y),)), heights)(heights)
    np.testing.assert_array_equal(wraps, [0, 1, 1])
    assert abs(length[0] - length[1]) < 1e-12
    assert abs(slope[0] - slope[1]) < 1e-3 < abs(slope[2])


@pytest.mark.parametrize("direction", [(1.0, 0.0), (-1.0, 0.0), (0.0, 1.0), (0.6, -0.8)])
def test_wraps_where_the_line_crosses_the_axis(direction, x64):
    """Half a turn, from both sides."""
    a, b = np.array([*direction, 0.0]), np.array([*(-1.5 * x for x in direction), 0.0])
    w = by_numpy(lambda a, b: wrap("cylinder", a, b, RADIUS))(a, b)
    ends = [np.sqrt(x * x - RADIUS**2) - RADIUS * np.arccos(RADIUS / x) for x in (1.0, 1.5)]
    assert w.wraps == 1.0
    np.testing.assert_allclose(w.length, sum(ends) + np.pi * RADIUS, rtol=1e-12)


DEGENERATE = (
    (1, 0, 0, 1, 0, 0, 0, 1, 0, 0.5),  # coinciding points
    (1, 0, 0, -1, 0, 0, 0, 1, 0, 0.5),  # on a line through the centre
    (1, 0, 0, -1, 0, 0, 0, 0, 0, 0.5),
    (1, 0, 0, 2, 0, 0, 0, 0.1, 0, 0.5),  # on one side of it
    (1, 0, 0, 2, 0, 0, -1, 0, 0, 0.5),
    (0, 0, 0, 1, 0, 0, 0, 1, 0, 0.5),  # at the centre
    (0, 0, 0, 0, 0, 0, 0, 0, 0, 0.5),
    (0, 0, 1, 0, 0, -1, 0, 0, 2, 0.5),  # on the axis
    (0.5, 0, 0, 0, 0.5, 0, 1, 1, 0, 0.5),  # on the surface
    (0.5, 0, 0, 0, 1, 0, 0.1, 0, 0, 0.5),
    (0.5, -1, 0, 0.5, 1, 0, 0.1, 0, 0, 0.5),  # touching
    (0.5, -1, 0, 0.5, 1, 0, 0.5, 0, 0, 0.5),
    (1, 0, 0, 0, 1, 0, 0, 0, 0, 0.0),  # no radius
    (0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0),
    (1, 1, 1, 1, 1, 2, 1, 1, 1, 1e-12),
    (1e-6, 0, 0, 0, 1e-6, 0, 0, 0, 1e-6, 5e-7),
)


def assert_finite(fn, x):
    """Value, forward and reverse derivative of fn at columns x are finite."""

    def all_of(x):
        out, back = jax.vjp(lambda x: jax.tree.leaves(fn(x)), x)
        return out, back([jnp.ones_like(y) for y in out]), jax.jvp(fn, (x,), (jnp.ones_like(x),))[1]

    assert all(np.isfinite(y).all() for y in jax.tree.leaves(traced(all_of, x)(x)))


@pytest.mark.parametrize("double", (True, False))
@pytest.mark.parametrize("kind, rule", (("sphere", "3.2"), ("cylinder", "4.0")))
def test_wrapping_is_finite(kind, rule, double):
    with jax.enable_x64(double):
        x = jnp.asarray(np.array(DEGENERATE, float).T, float)
        assert_finite(lambda x: way(kind, x, rule), x)


# ---- muscles -----------------------------------------------------------------------------------------------------------------

MUSCLE = (0.75, 1.05, -1.0, 200.0, 0.5, 1.6, 1.5, 1.3, 1.2)
EXTREMES = ((0.0, 0.0), 0.0, (0.0,) * 9), ((0.0, 1.0), 0.0, MUSCLE), ((0.2, 0.2), 1.0, (1.0, 1.0, -1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 1.0))


def test_muscle_curves(x64):
    lmin, lmax, vmax, fpmax, fvmax = MUSCLE[4:]
    lengths = jnp.array([0.4, lmin, (1 + lmin) / 2, 1.0, (1 + lmax) / 2, lmax, 2.0])
    np.testing.assert_allclose(muscles.length_curve(lengths, lmin, lmax), [0, 0, 0.5, 1, 0.5, 0, 0], atol=1e-15)
    velocities = jnp.array([-2.0, -1.0, -0.5, 0.0, fvmax - 1, 1.0])
    np.testing.assert_allclose(muscles.velocity_curve(velocities, fvmax), [0, 0, 0.25, 1, fvmax, fvmax], atol=1e-15)
    stretched = jnp.array([0.5, 1.0, (1 + lmax) / 2, lmax])
    np.testing.assert_allclose(muscles.passive_curve(stretched, lmax, fpmax), [0, 0, fpmax / 2, 1.5 * fpmax], atol=1e-15)

    # lengths from 0 to 2 in units of 1 m, peak force 200 / 4
    span, acc0 = (MUSCLE[0], MUSCLE[1]), 4.0
    np.testing.assert_allclose(muscles.gain(1.0, 0.0, span, acc0, MUSCLE), -50.0)
    np.testing.assert_allclose(muscles.gain(1.0, -0.5 * vmax, span, acc0, MUSCLE), -12.5)
    np.testing.assert_allclose(muscles.bias(1.3, span, acc0, MUSCLE), -25.0 * fpmax)
    np.testing.assert_allclose(muscles.gain(1.0, 0.0, span, acc0, (*MUSCLE[:2], 7.0, *MUSCLE[3:])), -7.0)


def test_muscle_activation(x64):
    hard, soft = (0.01, 0.04, 0.0), (0.01, 0.04, 0.4)
    np.testing.assert_allclose(muscles.activation_rate(2.0, 0.5, hard), 0.5 / (0.01 * 1.25))
    np.testing.assert_allclose(muscles.activation_rate(0.0, 0.5, hard), -0.5 / (0.04 / 1.25))
    np.testing.assert_allclose(muscles.activation_rate(0.9, 0.5, soft), 0.4 / (0.01 * 1.25))
    middle = jax.grad(lambda u: muscles.activation_rate(u, 0.5, soft))(0.5)
    np.testing.assert_allclose(middle, 1 / (0.5 * (0.01 * 1.25 + 0.04 / 1.25)))


def test_muscle_gradient(x64):
    rng = np.random.default_rng(3)
    length, v, u, a = rng.uniform(0.4, 2.0, 500), rng.uniform(-2, 2, 500), rng.uniform(-0.2, 1.2, 500), rng.uniform(0, 1, 500)

    def force(length, v, u, a):
        rate = muscles.activation_rate(u, a, (0.01, 0.04, 0.3))
        return muscles.gain(length, v, MUSCLE[:2], 4.0, MUSCLE) * a + muscles.bias(length, MUSCLE[:2], 4.0, MUSCLE) + rate

    x, h, turn = jnp.stack([jnp.asarray(y) for y in (length, v, u, a)]), 1e-7, jnp.asarray(rng.normal(size=(4, 500)))
    both = traced(lambda x: jax.jvp(lambda x: force(*x), (x,), (turn,)), x)
    numeric = (both(x + h * turn)[0] - both(x - h * turn)[0]) / (2 * h)
    np.testing.assert_allclose(both(x)[1], numeric, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("double", (True, False))
def test_muscles_are_finite(double):
    with jax.enable_x64(double):
        columns = [
            [length, speed, *span, acc0, *p] for length in (0.0, 1.0, 1.6) for speed in (0.0, -1.0, 5.0) for span, acc0, p in EXTREMES
        ]
        x = jnp.asarray(np.array(columns).T, float)
        assert_finite(lambda x: (muscles.gain(x[0], x[1], x[2:4], x[4], x[5:]), muscles.bias(x[0], x[2:4], x[4], x[5:])), x)
        columns = [
            [u, a, *p] for u in (0.0, 0.5, 1.0) for a in (0.0, 0.5, 1.0) for p in ((0.01, 0.04, 0.0), (0.0, 0.0, 0.0), (0.01, 0.04, 0.5))
        ]
        assert_finite(lambda x: (muscles.activation_rate(x[0], x[1], x[2:]),), jnp.asarray(np.array(columns).T, float))


# ---- fluid -------------------------------------------------------------------------------------------------------------------

NO_LIFT_OR_DRAG = (0.0,) * 5


def motion(x) -> Motion:
    return Motion(tuple(x[:3]), tuple(x[3:6]))


def ellipsoid(axes, velocity, coefficients, density, viscosity):
    return fluid.ellipsoid_wrench(axes, coefficients, fluid.added_mass(axes), motion(velocity), density, viscosity)


def wrench(*numbers):
    """`ellipsoid` of numbers."""
    numbers = [jnp.asarray(x, float) for x in numbers]
    return traced(ellipsoid, *numbers)(*numbers)


def carried_along(axes):
    return traced(lambda a: fluid.added_mass(tuple(a)), jnp.asarray(axes))(np.asarray(axes))


def test_sphere_in_fluid(x64):
    """Stokes' drag and torque; the drag of a disk-shaped shadow; half the displaced mass is carried along; a spinning ball is lifted."""
    r, visc, density = 0.3, 0.7, 2.0
    axes = (r, r, r)
    volume = 4 / 3 * math.pi * r**3
    x = np.array([0.3, -0.2, 0.5, 1.0, 2.0, -2.0])
    slow = wrench(axes, x, (0.5, 0.25, 1.5, 1.0, 1.0), 0.0, visc)
    np.testing.assert_allclose(slow.lin, -6 * math.pi * visc * r * x[3:])
    np.testing.assert_allclose(slow.ang, -8 * math.pi * visc * r**3 * x[:3])
    fast = wrench(axes, [0.0] * 3 + list(x[3:]), (0.8, 0.0, 0.0, 1.0, 1.0), density, 0.0)
    np.testing.assert_allclose(fast.lin, -0.8 * density * math.pi * r * r * 3.0 * x[3:], atol=1e-12)

    masses, inertias = carried_along(axes)
    np.testing.assert_allclose(masses, volume / 2, rtol=1e-6)  # what the 15 point rule leaves
    np.testing.assert_allclose(inertias, 0, atol=1e-12)
    carried = wrench(axes, x, NO_LIFT_OR_DRAG, density, 0.0)
    np.testing.assert_allclose(carried.lin, density * volume / 2 * np.cross(x[3:], x[:3]), rtol=1e-6)
    np.testing.assert_allclose(carried.ang, 0, atol=1e-12)
    lift = wrench(axes, x, (0.0, 0.0, 0.0, 0.0, 3.0), density, 0.0)
    np.testing.assert_allclose(np.subtract(lift.lin, carried.lin), 3 * density * volume * np.cross(x[:3], x[3:]))


def test_added_mass(x64):
    """Against the elliptic integrals of Carlson: the shape factors sum to 2, and turning a sphere carries nothing along."""
    from scipy.special import elliprd

    for axes in ((1.0, 0.7, 0.3), (0.05, 0.02, 0.04), (2.0, 1.0, 1.0)):
        a = np.array(axes)
        factor = np.array([2 / 3 * a.prod() * elliprd(*np.delete(a, i) ** 2, a[i] ** 2) for i in range(3)])
        volume = 4 / 3 * math.pi * a.prod()
        masses, inertias = carried_along(axes)
        np.testing.assert_allclose(masses, volume * factor / (2 - factor), rtol=3e-6)
        for i, (j, k) in enumerate(fluid.PAIRS):
            d, s, f = a[j] ** 2 - a[k] ** 2, a[j] ** 2 + a[k] ** 2, factor[k] - factor[j]
            expected = volume / 5 * d**2 * f / (2 * d - s * f) if d else 0.0
            np.testing.assert_allclose(inertias[i], expected, rtol=1e-5)


def test_kutta_lift_and_drag_of_a_plate(x64):
    """A thin plate: no lift flat on or edge on, lift across the flow in between; blunt drag from its full face, slender from its edge."""
    axes, density = (1.0, 0.8, 1e-3), 1.5
    lifting, still = (0.0, 0.0, 0.0, 1.0, 0.0), [0.0] * 3
    for flow in ([0.0, 0.0, 2.0], [2.0, 0.0, 0.0]):
        np.testing.assert_allclose(wrench(axes, still + flow, lifting, density, 0.0).lin, 0, atol=1e-9)
    flow = np.array([2.0, 0.0, -0.5])
    force = np.array(wrench(axes, [*still, *flow], lifting, density, 0.0).lin)
    assert abs(force @ flow) < 1e-9 * np.linalg.norm(force) and force[2] > 0
    face = math.pi * 0.8
    drag = wrench(axes, [0.0, 0.0, 0.0, 0.0, 0.0, 2.0], (0.7, 0.2, 0.0, 0.0, 0.0), density, 0.0).lin[2]
    np.testing.assert_allclose(drag, -0.7 * density * face * 4.0)
    drag = wrench(axes, [0.0, 0.0, 0.0, 2.0, 0.0, 0.0], (0.7, 0.2, 0.0, 0.0, 0.0), density, 0.0).lin[0]
    np.testing.assert_allclose(drag, -0.2 * density * face * 4.0, rtol=1e-2)


def test_box_model(x64):
    """A box of known edges: the drag of each face, and Stokes' drag of a ball of its mean edge."""
    edges, mass, density, visc = np.array([0.2, 0.5, 0.3]), 3.0, 1.2, 0.6
    inertia = mass / 12 * np.array([edges[j] ** 2 + edges[k] ** 2 for j, k in fluid.PAIRS])
    x = np.array([1.0, -2.0, 3.0, -1.0, 2.0, 0.5])
    out = fluid.box_wrench(mass, tuple(inertia), motion(x), density, visc)
    mean = edges.mean()
    faces = np.array([edges[j] * edges[k] for j, k in fluid.PAIRS])
    np.testing.assert_allclose(out.lin, -0.5 * density * faces * abs(x[3:]) * x[3:] - 3 * math.pi * visc * mean * x[3:])
    about = edges * np.array([edges[j] ** 4 + edges[k] ** 4 for j, k in fluid.PAIRS])
    np.testing.assert_allclose(out.ang, -density / 64 * about * abs(x[:3]) * x[:3] - math.pi * visc * mean**3 * x[:3])


def everything(x):
    """Both models of 19 numbers: velocity, semi axes or inertias, mass, coefficients, density, viscosity."""
    axes = tuple(x[6:9])
    a = ellipsoid(axes, x[:6], tuple(x[10:15]), x[15], x[16])
    return a, fluid.box_wrench(x[9], axes, motion(x), x[15], x[16])


def test_fluid_gradient(x64):
    rng = np.random.default_rng(4)
    x = jnp.asarray(np.concatenate([rng.normal(size=(6, 50)), rng.uniform(1.0, 1.6, (11, 50))]))
    turn, h = jnp.asarray(rng.normal(size=(17, 50))), 1e-6

    def all_of(x):
        return jnp.stack(jax.tree.leaves(everything(x)))

    fn, slope = traced(all_of, x), traced(lambda x: jax.jvp(all_of, (x,), (turn,))[1], x)(x)
    np.testing.assert_allclose(slope, (fn(x + h * turn) - fn(x - h * turn)) / (2 * h), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("double", (True, False))
def test_fluid_is_finite(double):
    with jax.enable_x64(double):
        columns = [
            [*w, *v, *axes, mass, 0.5, 0.25, 1.5, 1.0, 1.0, density, visc]
            for w in ((0.0, 0.0, 0.0), (1.0, 0.0, 0.0))
            for v in ((0.0, 0.0, 0.0), (0.0, 1.0, 0.0), (1e-20, 0.0, 0.0))
            for axes in ((1.0, 1.0, 1.0), (1.0, 1.0, 2.0), (1e-3, 1e-3, 1e-3), (1e-4, 2e-4, 3e-4))
            for mass in (0.0, 1.0)
            for density, visc in ((0.0, 0.0), (1.2, 1e-5))
        ]
        assert_finite(everything, jnp.asarray(np.array(columns).T, float))
