"""Distance and penetration of convex shapes: against sampling, differences, symmetry, in degenerate poses and single precision."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

from xsim.dynamics.collide.broadphase import least_distance
from xsim.dynamics.collide.convex import convex
from xsim.dynamics.collide.hulls import make_hull
from xsim.dynamics.collide.shapes import FAR, Shape

pytestmark = pytest.mark.usefixtures("x64")

KINDS = ("sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh")
FEW = [("sphere", "mesh"), ("box", "mesh")]
PAIRS = [
    pytest.param(pair, marks=[] if pair in FEW else pytest.mark.nightly, id="-".join(pair))
    for pair in itertools.combinations_with_replacement(KINDS, 2)
]
HULL = make_hull(np.random.default_rng(5).normal(size=(24, 3)))


# ---- independent reference ---------------------------------------------------------------------------------------------------


def support(kind, size, R, n):
    """Support function (m) about the centre, along n (k, 3)."""
    m = n @ R
    round_part = np.linalg.norm(n, axis=-1) * size[0]
    return {
        "sphere": lambda: round_part,
        "capsule": lambda: round_part + size[1] * np.abs(m[:, 2]),
        "ellipsoid": lambda: np.linalg.norm(m * size, axis=-1),
        "cylinder": lambda: size[0] * np.hypot(m[:, 0], m[:, 1]) + size[1] * np.abs(m[:, 2]),
        "box": lambda: np.abs(m) @ size,
        "mesh": lambda: np.max((m * size) @ HULL.vertices.T, axis=-1),
    }[kind]()


def gap(kinds, p, i, n):
    """How far apart the shapes of lane i are along n (k, 3): the signed distance is its maximum."""
    (sa, pa, Ra), (sb, pb, Rb) = [[x[i] for x in shape] for shape in p]
    return n @ (pb - pa) - support(kinds[0], sa, Ra, n) - support(kinds[1], sb, Rb, -n)


def sphere_points(count):
    k = np.arange(count) + 0.5
    z, phi = 1 - 2 * k / count, np.pi * (1 + 5**0.5) * k
    return np.stack([np.sqrt(1 - z * z) * np.cos(phi), np.sqrt(1 - z * z) * np.sin(phi), z], axis=1)


DENSE = sphere_points(4000)


def greatest_gap(along, n, rng):
    """The largest gap found, ``along`` directions (k, 3): dense samples, the best of them refined, and refined samples about n."""
    best = -np.inf
    for start in (n, DENSE[np.argmax(along(DENSE))]):
        value = along(start[None])[0]
        for r in np.geomspace(0.1, 1e-7, 14):
            c = start + r * rng.normal(size=(100, 3))
            c /= np.linalg.norm(c, axis=1)[:, None]
            c_gap = along(c)
            if c_gap.max() > value:
                start, value = c[np.argmax(c_gap)], c_gap.max()
        best = max(best, value)
    return best


# ---- calls -------------------------------------------------------------------------------------------------------------------


def rotations(rng, count):
    q = rng.normal(size=(count, 4))
    w, x, y, z = (q / np.linalg.norm(q, axis=1)[:, None]).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def poses(rng, count):
    """Shapes (size, pos, R) of two kinds, far apart to deep in each other."""

    def one(reach):
        return [np.exp(rng.uniform(-1.5, 0.3, (count, 3))), rng.normal(size=(count, 3)) * reach, rotations(rng, count)]

    return [one(np.exp(rng.uniform(-3, 0.7, (count, 1)))) for _ in range(2)]


def shaped(p, data):
    """Shapes given as arrays."""
    for (size, pos, R), own in zip(p, data, strict=True):
        rows = tuple(tuple(R[..., i, j] for j in range(3)) for i in range(3))
        yield Shape(*(tuple(x[..., k] for k in range(3)) for x in (size, pos)), rows, own)


def touched(kinds, p, data, **chosen):
    """(distance, point x y z, normal x y z) (7, ...) of shapes given as arrays."""
    t = convex(kinds, *shaped(p, data), **chosen)
    return jnp.stack([t.distance, *t.point, *t.normal])


def touch(kinds, p):
    """The same of one kind: (7, lanes)."""
    return touched([kinds], p, [(HULL,) if kind == "mesh" else None for kind in kinds])


LANES = 96


@functools.cache
def compiled(kinds):
    """ContactPoint and its tangent."""
    return by_numpy(lambda p, dp: jax.jvp(functools.partial(touch, kinds), (p,), (dp,)))


def values(kinds, p, dp):
    """ContactPoint and tangent (7, lanes). Every call of a pair has as many lanes, so that it is traced once."""
    count = len(p[0][0])
    fill = lambda x: np.resize(x, (LANES, *x.shape[1:]))  # noqa: E731
    return [np.asarray(x)[:, :count] for x in compiled(kinds)(*jax.tree.map(fill, (p, dp)))]


@pytest.mark.parametrize("kinds", PAIRS)
def test_pair(kinds):
    rng = np.random.default_rng(7)
    count, eps = LANES // 3, 1e-6
    p = poses(rng, count)
    dp = jax.tree.map(lambda x: rng.normal(size=x.shape), p)
    lanes = jax.tree.map(lambda x, d: np.concatenate([x, x + eps * d, x - eps * d]), p, dp)
    value, tangent = values(kinds, lanes, jax.tree.map(lambda d: np.concatenate([d, 0 * d, 0 * d]), dp))
    here, after, before = np.split(value, 3, axis=1)
    # the distance is the largest gap, at the normal
    for i in range(count):
        n = here[4:, i]
        assert abs(np.linalg.norm(n) - 1) < 1e-12
        assert abs(gap(kinds, p, i, n[None])[0] - here[0, i]) < 1e-11
        assert greatest_gap(functools.partial(gap, kinds, p, i), n, rng) < here[0, i] + 1e-9
    # derivatives
    slope = (after - before) / (2 * eps)
    error = np.abs(tangent[:, :count] - slope) / (1 + np.abs(slope))
    smooth = np.abs((after - 2 * here + before) / eps).max(0) < 1e-3 * (1 + np.abs(slope).max(0))
    assert smooth.mean() > 0.9  # the others lie at a switch of features
    assert error[0, smooth].max() < 1e-7
    assert error[:, smooth].max() < 1e-5


@pytest.mark.slow
def test_pairs_of_all_kinds_at_once():
    """What one search of many kinds finds is the largest gap of each."""
    rng = np.random.default_rng(11)
    kinds, lanes = list(itertools.combinations_with_replacement(KINDS[:-1], 2)), 4
    p = [[x.reshape(len(kinds), lanes, *x.shape[1:]) for x in shape] for shape in poses(rng, len(kinds) * lanes)]

    def found(p):
        return touched(kinds, p, [None, None])

    value = by_numpy(found)(p)
    for i, kind in enumerate(kinds):
        own = [[x[i] for x in shape] for shape in p]
        for k in range(lanes):
            n = value[4:, i, k]
            assert abs(gap(kind, own, k, n[None])[0] - value[0, i, k]) < 1e-11, kind
            assert greatest_gap(functools.partial(gap, kind, own, k), n, rng) < value[0, i, k] + 1e-9, kind
    least = by_numpy(lambda p: least_distance(kinds, *shaped(p, [None, None])))(p)
    assert np.all(least <= value[0])
    i = kinds.index(("sphere", "sphere"))
    np.testing.assert_allclose(least[i], value[0, i], atol=1e-12)


@pytest.mark.slow
def test_hulls_of_different_sizes_at_once():
    """As each hull alone; of some of the pairs, and of these only where they are near."""
    rng = np.random.default_rng(12)
    hulls = [make_hull(rng.normal(size=(n, 3))) for n in (5, 12, 30)]
    p = [[x.reshape(3, 8, *x.shape[1:]) for x in shape] for shape in poses(rng, 24)]
    together = by_numpy(lambda p: touched([("box", "mesh")] * 3, p, [None, hulls]))(p)
    for i, own in enumerate(hulls):
        alone = by_numpy(lambda p, own=own: touched([("box", "mesh")], p, [None, [own]]))(jax.tree.map(lambda x, i=i: x[i], p))
        np.testing.assert_allclose(together[:, i], alone, atol=1e-8)
    which, near = rng.integers(3, size=(2, 8)), rng.random((2, 8)) < 0.7
    some = by_numpy(lambda p: touched([("box", "mesh")] * 3, p, [None, hulls], which=jnp.asarray(which), near=jnp.asarray(near)))(p)
    wanted = np.take_along_axis(together, np.broadcast_to(which, (7, 2, 8)), 1)
    np.testing.assert_allclose(some[:, near], wanted[:, near], atol=1e-8)
    assert np.all(some[0, ~near] == FAR)


def degenerate(kinds):
    """Shapes in aligned and special poses: concentric, touching, side by side, on an axis, without size."""
    straight = np.eye(3)
    quarter = np.array([[1.0, 0, 0], [0, 0, -1], [0, 1, 0]])
    eighth = np.array([[np.sqrt(0.5), -np.sqrt(0.5), 0], [np.sqrt(0.5), np.sqrt(0.5), 0], [0, 0, 1]])
    offsets = [(0, 0, 0), (0, 0, 1), (1, 0, 0), (0.7, 0, 0), (0, 0.3, 0.3), (1, 1, 0), (1, 1, 1), (0, 0, 3), (2, 0, 2)]
    sizes = [((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)), ((0.5, 0.2, 0.3), (0.5, 1.0, 0.0)), ((0, 0, 0), (0.5, 0.5, 0.5)), ((0, 0, 0), (0, 0, 0))]
    lanes = [(s, o, R) for s in sizes[:2] for o in offsets for R in (straight, quarter, eighth)]
    lanes += [(s, o, straight) for s in sizes[2:] for o in offsets]
    size, offset, R = (np.array(x, float) for x in zip(*lanes, strict=True))
    still = np.broadcast_to(straight, R.shape).copy()
    return [[size[:, 0], 0 * offset, still], [size[:, 1], offset, R]]


@pytest.mark.parametrize("kinds", PAIRS)
def test_degenerate_poses_are_finite_and_best(kinds):
    p = degenerate(kinds)
    rng = np.random.default_rng(1)
    value, tangent = values(kinds, p, jax.tree.map(lambda x: rng.normal(size=x.shape), p))
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(tangent))
    assert np.all(np.abs(tangent[0]) < 50)  # the distance always has a direction to change in
    for i in range(value.shape[1]):
        n = value[4:, i]
        assert abs(np.linalg.norm(n) - 1) < 1e-9
        assert greatest_gap(functools.partial(gap, kinds, p, i), n, rng) < value[0, i] + 1e-9
        assert abs(gap(kinds, p, i, n[None])[0] - value[0, i]) < 1e-9


def test_known_contacts():
    """A cylinder that stands on another, a capsule under a box."""
    one = lambda size, pos: [np.array([size]), np.array([pos], float), np.eye(3)[None]]  # noqa: E731
    rest = lambda p: jax.tree.map(np.zeros_like, p)  # noqa: E731
    q = [one((0.5, 0.4, 0), (0, 0, 0)), one((0.3, 0.2, 0), (0.1, -0.05, 0.55))]
    value, _ = values(("cylinder", "cylinder"), q, rest(q))
    np.testing.assert_allclose(value[[0, 4, 5, 6], 0], [-0.05, 0, 0, 1], atol=1e-12)
    np.testing.assert_allclose(value[3, 0], 0.375, atol=1e-12)  # in the middle between the caps
    assert np.hypot(*value[1:3, 0]) <= 0.5
    q = [one((0.1, 0.5, 0), (0, 0, 0)), one((0.5, 0.5, 0.2), (0.1, 0.2, 0.75))]
    value, _ = values(("capsule", "box"), q, rest(q))
    np.testing.assert_allclose(value[:, 0], [-0.05, 0, 0, 0.575, 0, 0, 1], atol=1e-12)


def test_turns_with_the_world():
    kinds = ("ellipsoid", "cylinder")
    rng = np.random.default_rng(3)
    p = poses(rng, LANES)
    (Q,) = rotations(rng, 1)
    turned = [[size, pos @ Q.T, Q @ R] for size, pos, R in p]
    still = jax.tree.map(np.zeros_like, p)
    here, there = values(kinds, p, still)[0], values(kinds, turned, still)[0]
    np.testing.assert_allclose(there[0], here[0], atol=1e-11)
    np.testing.assert_allclose(there[1:4], Q @ here[1:4], atol=1e-8)
    np.testing.assert_allclose(there[4:], Q @ here[4:], atol=1e-8)


@pytest.mark.slow
def test_single_precision():
    kinds = ("ellipsoid", "cylinder")
    p = poses(np.random.default_rng(4), LANES)
    p = jax.tree.map(lambda x: x.astype(np.float32).astype(float), p)
    still = jax.tree.map(np.zeros_like, p)
    exact = values(kinds, p, still)[0]
    single, tangent = values(kinds, *jax.tree.map(lambda x: x.astype(np.float32), (p, still)))
    assert single.dtype == np.float32
    # A search ends within 1e-6 of the pair's span, here up to 10 m; how rounding adds to that differs between processors.
    assert np.max(np.abs(single[0] - exact[0]) / (1 + np.abs(exact[0]))) < 3e-5
    p = jax.tree.map(lambda x: x.astype(np.float32), degenerate(kinds))
    value, tangent = values(kinds, p, jax.tree.map(np.ones_like, p))
    assert np.all(np.isfinite(value)) and np.all(np.isfinite(tangent))


@pytest.mark.slow
def test_reverse_mode_and_vmap():
    """vjp equals jvp, environments by vmap equal native lanes, and nothing is lost in the transposition."""
    kinds = ("capsule", "box")
    rng = np.random.default_rng(6)
    p = poses(rng, LANES)
    dp = jax.tree.map(lambda x: rng.normal(size=x.shape), p)
    value, tangent = values(kinds, p, dp)

    def pulled(p, c):
        out, back = jax.vjp(functools.partial(touch, kinds), p)
        return out, back(c)[0]

    c = rng.normal(size=(LANES, 7))
    out, gradient = by_numpy(jax.vmap(pulled))(p, c)
    np.testing.assert_allclose(out.T, value, atol=1e-12)
    products = jax.tree.map(lambda g, d: np.sum(np.asarray(g) * d, axis=tuple(range(1, d.ndim))), gradient, dp)
    both = sum(jax.tree.leaves(products))
    np.testing.assert_allclose(both, np.sum(c * tangent.T, axis=1), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("flat", [(1, 1, 0), (1, 0, 0), (0, 0, 0)])
def test_flat_hulls(flat):
    points = np.random.default_rng(0).normal(size=(20, 3)) * flat
    hull = make_hull(points)
    assert hull == make_hull(points) and hash(hull) == hash(make_hull(points))
    n = sphere_points(100)
    np.testing.assert_allclose(np.max(n @ hull.vertices.T, axis=1), np.max(n @ points.T, axis=1), atol=1e-12)
