"""Contacts in closed form: against MuJoCo's recorded ones, exact reasoning, dense sampling, differences."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import QUICK

from xsim.dynamics.collide.hulls import make_hull
from xsim.dynamics.collide.planes import MAX_UNROLLED, farthest
from xsim.dynamics.collide.shapes import FAR, Shape
from xsim.registry import COLLIDERS
from xsim.rules import RULES
from xsim.spatial import matrix, normalize, one_environment, quat_mul

# facets and triangles: test_flex_contacts.py; sdf: test_sdf.py
ANALYTIC = {pair: entry for pair, entry in COLLIDERS.items() if not {"facet", "sdf", "triangle"} & set(pair)}
CASES = [(pair, "") for pair in sorted(ANALYTIC) if pair != ("box", "box")] + [(("box", "box"), "3.2"), (("box", "box"), "4.0")]
NAMES = ["-".join((*pair, rules)).strip("-") for pair, rules in CASES]
LANES = 48
RECORDED = np.load(Path(__file__).parent / "reference" / "collide.npz")
HULL = make_hull(RECORDED["4.0/plane_mesh/vertices"].astype(float))
MARGIN = 0.02

pytestmark = pytest.mark.usefixtures("x64")


def touches(pair, rules, numbers):
    """Contacts (k, 10, n): distance, point, normal, along; of two geoms by size, position, quaternion (2, 10, n)."""
    a, b = (
        Shape(tuple(x[:3]), tuple(x[3:6]), matrix(normalize(tuple(x[6:]))), HULL if kind == "mesh" else None)
        for x, kind in zip(numbers, pair, strict=True)
    )
    found = ANALYTIC[pair](a, b, MARGIN if rules else None, RULES[rules or "3.2"])
    rows = [(t.distance, *t.point, *t.normal, *t.tangent_hint) for t in found]
    return jnp.stack([jnp.stack([jnp.broadcast_to(x, numbers.shape[-1:]) for x in row]) for row in rows])


def fast(fn):
    """Compiled without optimization: most of what these tests would do is compile."""
    return jax.jit(fn, compiler_options=QUICK)


@functools.cache
def compiled(pair, rules):
    """Contacts and their change with the numbers."""
    return fast(lambda x, dx: jax.jvp(functools.partial(touches, pair, rules), (x,), (dx,)))


def evaluate(pair, rules, numbers, change=None):
    """Contacts of at most LANES pairs; with a change of the numbers, theirs too."""
    n = numbers.shape[-1]
    x = np.concatenate([numbers, np.repeat(numbers[..., :1], LANES - n, -1)], -1)
    dx = np.zeros_like(x) if change is None else np.concatenate([change, np.zeros((2, 10, LANES - n))], -1)
    value, slope = (np.asarray(y)[..., :n] for y in compiled(pair, rules)(x, dx))
    return value if change is None else (value, slope)


def drawn(seed, n=LANES, spread=0.4):
    """Sizes, positions, quaternions of n pairs: (2, 10, n)."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(0.1, 0.6, (2, 3, n)), spread * rng.normal(size=(2, 3, n)), rng.normal(size=(2, 4, n))], 1)


def frames(numbers):
    """Rotation matrices (2, n, 3, 3)."""
    return np.stack([np.moveaxis(np.array(matrix(normalize(tuple(x[6:])))), -1, 0) for x in numbers])


def quaternion(R):
    """Of rotation matrices (n, 3, 3): (4, n)."""
    trace = [1 + a * R[:, 0, 0] + b * R[:, 1, 1] + c * R[:, 2, 2] for a, b, c in ((1, 1, 1), (1, -1, -1), (-1, 1, -1), (-1, -1, 1))]
    w, x, y, z = np.sqrt(np.maximum(trace, 0)) / 2
    signs = (R[:, 2, 1] - R[:, 1, 2], R[:, 0, 2] - R[:, 2, 0], R[:, 1, 0] - R[:, 0, 1])
    return np.array([w, *(np.copysign(v, s) for v, s in zip((x, y, z), signs, strict=True))])


# ---- MuJoCo --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.2", "4.0"])
@pytest.mark.parametrize(("pair", "rules"), CASES, ids=NAMES)
def test_recorded(pair, rules, version):
    """The contacts of MuJoCo 3.2.7 and 4.0.0, in any order. Boxes have the rules of both; meshes on planes those of 4.0."""
    if (rules and rules != version) or (pair == ("plane", "mesh") and version == "3.2"):
        pytest.skip("other rules")
    size, pos, mat, contacts, margin = (RECORDED[f"{version}/{'_'.join(pair)}/{k}"] for k in ("size", "pos", "mat", "contacts", "margin"))
    numbers = np.stack([np.concatenate([size[:, i].T, pos[:, i].T, quaternion(mat[:, i])]) for i in (0, 1)])
    found = evaluate(pair, rules, numbers)
    for k, expected in enumerate(contacts):
        expected = expected[~np.isnan(expected[:, 0])]
        ours = found[:, :, k][found[:, 0, k] <= margin]
        assert len(ours) == len(expected)
        for row in expected:
            assert np.abs(ours[:, :7] - row[:7]).max(1).min() < 1e-7  # the recorded matrices are of unit quaternions to 1e-8
        if pair == ("plane", "capsule"):
            assert np.allclose(ours[:, 7:], expected[:, 7:], atol=2) and np.allclose(np.linalg.norm(ours[:, 7:], axis=1), 1)


# ---- exact reasoning and sampling ------------------------------------------------------------------------------------------------


def support(kind, numbers, direction):
    """Largest of direction . x over the shapes: (n,)."""
    size, pos, R = numbers[:3], numbers[3:6], frames(np.stack([numbers, numbers]))[0]
    local = np.einsum("nji,jn->in", R, direction)
    if kind == "mesh":
        extent = (HULL.vertices @ (size * local)).max(0)
    else:
        radial = np.hypot(local[0], local[1])
        extent = {
            "sphere": lambda: size[0],
            "capsule": lambda: size[0] + size[1] * np.abs(local[2]),
            "ellipsoid": lambda: np.linalg.norm(size * local, axis=0),
            "cylinder": lambda: size[0] * radial + size[1] * np.abs(local[2]),
            "box": lambda: (size * np.abs(local)).sum(0),
        }[kind]()
    return extent + (direction * pos).sum(0)


@pytest.mark.parametrize("pair", [p for p in sorted(ANALYTIC) if p[0] == "plane"], ids="-".join)
def test_planes(pair):
    """The nearest contact is as low as the shape is; every contact is in the middle between plane and shape."""
    numbers = drawn(1)
    found = evaluate(pair, "", numbers)
    normal = frames(numbers)[0][:, :, 2].T
    lowest = -support(pair[1], numbers[1], -normal) - (normal * numbers[0, 3:6]).sum(0)
    assert np.allclose(found[:, 0].min(0), lowest, atol=1e-12)
    there = found[:, 0] < FAR
    height = ((found[:, 1:4] - numbers[0, 3:6]) * normal).sum(1)
    assert np.allclose(height[there], 0.5 * found[:, 0][there], atol=1e-12)
    assert np.allclose(found[:, 4:7], normal, atol=1e-12)


def distance_to(kind, size, x):
    """Signed distance of points (n, 3), in the shape's frame."""
    if kind == "sphere":
        return np.linalg.norm(x, axis=1) - size[0]
    if kind == "capsule":
        return np.linalg.norm(x - np.clip(x[:, 2:], -size[1], size[1]) * [0, 0, 1], axis=1) - size[0]
    if kind == "cylinder":
        out = np.stack([np.hypot(x[:, 0], x[:, 1]) - size[0], np.abs(x[:, 2]) - size[1]], 1)
    else:
        out = np.abs(x) - size
    return np.linalg.norm(np.maximum(out, 0), axis=1) + np.minimum(out.max(1), 0)


@pytest.mark.parametrize("pair", [p for p in sorted(ANALYTIC) if p[0] in ("sphere", "capsule")], ids="-".join)
def test_round(pair):
    """Distance of the first shape's centre line, densely sampled, where that is outside of the second."""
    numbers = drawn(2, spread=0.7)
    found = evaluate(pair, "", numbers)
    R = frames(numbers)
    line = np.linspace(-1, 1, 4001)[:, None] if pair[0] == "capsule" else np.zeros((1, 1))
    checked = 0
    for k in range(LANES):
        (size, other), (pos, center) = numbers[:, :3, k], numbers[:, 3:6, k]
        local = (pos + line * size[1] * R[0, k, :, 2] - center) @ R[1, k]
        nearest = distance_to(pair[1], other, local).min()
        if pair[0] == "sphere" or nearest > 0:
            checked += 1
            assert abs(found[:, 0, k].min() + size[0] - nearest) < 1e-6
            inside = (found[0, 1:4, k] - found[0, 0, k] / 2 * found[0, 4:7, k] - pos) @ R[0, k]  # on the first surface
            assert abs(distance_to(pair[0], size, inside[None])[0]) < 1e-9
            there = (found[0, 1:4, k] + found[0, 0, k] / 2 * found[0, 4:7, k] - center) @ R[1, k]
            assert abs(distance_to(pair[1], other, there[None])[0]) < 1e-9
    assert checked > 20


def separation(numbers):
    """How far boxes are apart, or less than 0, by the 15 axes (n,)."""
    R, pos, size = frames(numbers), numbers[:, 3:6], numbers[:, :3]
    edges = np.cross(R[0].swapaxes(1, 2)[:, :, None], R[1].swapaxes(1, 2)[:, None]).reshape(-1, 9, 3).swapaxes(1, 2)
    axes = np.concatenate([R[0], R[1], edges], 2)
    axes = axes / np.linalg.norm(axes, axis=1, keepdims=True)
    reach = sum(np.einsum("in,nik->nk", s, np.abs(np.einsum("nji,njk->nik", r, axes))) for s, r in zip(size, R, strict=True))
    return (np.abs(np.einsum("in,nik->nk", pos[1] - pos[0], axes)) - reach).max(1)


@pytest.mark.slow
def test_boxes():
    """No contact is deeper than the overlap along the normal, and moving one box by that frees it; contacts are inside of both."""
    numbers = drawn(3, spread=0.25)
    gap = separation(numbers)
    assert (gap < 0).sum() > 20
    for rules in ("4.0", "3.2"):
        found = evaluate(("box", "box"), rules, numbers)
        some = (found[:, 0] < MARGIN).any(0)
        assert np.array_equal(some[gap < -1e-3], np.ones((gap < -1e-3).sum(), bool))
        normal = found[0, 4:7]
        assert np.allclose(np.linalg.norm(normal, axis=0), 1)
        overlap = support("box", numbers[0], normal) + support("box", numbers[1], -normal)
        assert np.all(overlap <= -gap + (0.05 * np.abs(gap) if rules == "4.0" else 0) + 1e-9)
        freed = numbers.copy()
        freed[1, 3:6] += normal * overlap
        assert np.all(separation(freed) > -1e-9)
        if rules == "4.0":
            assert np.all(np.where(found[:, 0] < FAR, found[:, 0], np.inf) >= -overlap - 1e-9)
            R = frames(numbers)
            for k, i in np.argwhere(found[:, 0].T < 0):
                for box in (0, 1):
                    local = (found[i, 1:4, k] - numbers[box, 3:6, k]) @ R[box, k]
                    assert np.all(np.abs(local) <= numbers[box, :3, k] - found[i, 0, k] / 2 + 1e-9)


def boxes(size1, size2, pos, quat):
    """One pair, the first at the origin."""
    return np.array([[*size1, 0, 0, 0, 1, 0, 0, 0], [*size2, *pos, *quat]], float)[..., None]


def test_stacked_boxes():
    """Boxes that lie flat: the corners of what they have in common, each once."""
    turned = (np.cos(np.pi / 8), 0, 0, np.sin(np.pi / 8))
    for rules, factor in (("4.0", 1.0), ("3.2", 0.5)):
        for pos, quat, size, count in [
            ((0, 0, 0.39), (1, 0, 0, 0), 0.2, 4),
            ((0.1, 0, 0.39), (1, 0, 0, 0), 0.2, 4),
            ((0.1, 0.05, 0.29), (1, 0, 0, 0), 0.1, 4),
            ((0, 0, 0.39), turned, 0.2, 8),
            ((0, 0, 0.29), turned, 0.1, 4),
        ]:
            found = evaluate(("box", "box"), rules, boxes((0.2,) * 3, (size, size, 0.2 if size == 0.2 else 0.1), pos, quat))
            there = found[:, :, 0][found[:, 0, 0] < FAR]
            assert len(there) == count
            assert np.allclose(there[:, 0], -0.01 * factor)
            assert np.allclose(there[:, 4:7], [0, 0, 1])
            assert np.allclose(there[:, 3], 0.195)


def test_parallel_capsules():
    """By the rules of 3.2 the ends of the first one."""
    numbers = np.stack([np.array([0.1, 0.5, 0, 0, 0, 0, 1, 0, 0, 0]), np.array([0.1, 0.3, 0, 0.3, 0, 0.1, 1, 0, 0, 0])])[..., None]
    found = evaluate(("capsule", "capsule"), "", numbers)
    # the ends of the first are 0.1 and 0.3 beyond those of the second
    assert found[:, 0, 0] == pytest.approx([np.hypot(0.3, 0.1) - 0.2, np.hypot(0.3, 0.3) - 0.2])
    assert sorted(found[:, 3, 0]) == pytest.approx([-0.35, 0.45])


# Radius and half length of two capsules, place of the second along the first (m), angle (rad); contacts of MuJoCo 4.0.0 with margin 0.2:
# distance and place along the first.
PARALLEL = [
    ((0.1, 0.3), (0.08, 0.2), 0.15, 0.0, [(-0.03, -0.05), (-0.03, 0.3)]),
    ((0.1, 0.2), (0.08, 0.3), 0.1, np.pi, [(-0.03, -0.2), (-0.03, 0.2)]),
    ((0.1, 0.3), (0.08, 0.2), 0.55, 0.0, [(-0.02188611699158103, 0.32816227766016837)] * 2),  # nothing is next to each other
    ((0.1, 0.3), (0.08, 0.2), 0.15, 9e-5, [(-0.030017999999975717, -0.04999999919000003), (-0.029986500607518243, 0.2999923493925376)]),
    ((0.1, 0.3), (0.08, 0.2), 0.15, 2e-4, [(-0.03003999999973335, -0.049999996000000047)]),
]


@pytest.mark.parametrize(("first", "second", "shift", "angle", "wanted"), PARALLEL)
def test_parallel_capsules_touch_where_they_are_next_to_each_other(first, second, shift, angle, wanted):
    turn = (np.cos(angle / 2), 0, np.sin(angle / 2), 0)
    numbers = np.array([[*first, 0, 0, 0, 0, 1, 0, 0, 0], [*second, 0, 0.15, 0, shift, *turn]])[..., None]
    found = evaluate(("capsule", "capsule"), "4.0", numbers)
    there = found[:, [0, 3], 0][found[:, 0, 0] < FAR]
    assert there == pytest.approx(np.array(wanted), abs=1e-10)


# ---- every pair -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("pair", "rules"), CASES, ids=NAMES)
def test_turned_world(pair, rules):
    """Contacts turn and move with the world."""
    numbers = drawn(4, spread=0.3)
    turn, move = np.array([0.5, -0.1, 0.7, 0.3]) / np.linalg.norm([0.5, -0.1, 0.7, 0.3]), np.array([[0.3], [-0.7], [0.2]])
    R = np.array(matrix(tuple(turn)))
    there = numbers.copy()
    for k in (0, 1):
        there[k, 3:6] = R @ numbers[k, 3:6] + move
        there[k, 6:] = np.array(quat_mul(tuple(turn), tuple(numbers[k, 6:])))
    found, moved = evaluate(pair, rules, numbers), evaluate(pair, rules, there)
    assert np.allclose(found[:, 0], moved[:, 0], atol=1e-10)
    near = found[:, 0] < FAR
    for part, shift in ((slice(1, 4), move), (slice(4, 7), 0), (slice(7, 10), 0)):
        turned = np.einsum("ij,kjn->kin", R, found[:, part]) + shift
        assert np.allclose(np.moveaxis(turned, 1, 2)[near], np.moveaxis(moved[:, part], 1, 2)[near], atol=1e-10)


@pytest.mark.parametrize(("pair", "rules"), CASES, ids=NAMES)
def test_derivatives(pair, rules):
    """Of distance, point, normal by sizes, positions, rotations: against central differences."""
    numbers = drawn(5, spread=0.3)
    change = np.random.default_rng(6).normal(size=numbers.shape)
    value, slope = evaluate(pair, rules, numbers, change)
    step = 1e-6
    above, below = (evaluate(pair, rules, numbers + s * step * change) for s in (1, -1))
    assert np.array_equal(above[:, 0] < FAR, below[:, 0] < FAR)
    near = np.broadcast_to((value[:, 0] < FAR)[:, None], value.shape)
    difference = (above - below) / (2 * step)
    scale = np.maximum(1.0, np.abs(difference).max(1, keepdims=True))
    assert np.all((np.abs(slope - difference) / scale)[near] < 1e-6)


def degenerate():
    """Poses at which something is undefined: (2, 10, n)."""
    one, out = np.array([1.0, 0, 0, 0]), []
    half = np.array([np.sqrt(0.5), 0, np.sqrt(0.5), 0])
    for size in ((0.2, 0.2, 0.2), (0.2, 0.3, 0.4), (0.0, 0.0, 0.0), (1e-8, 0.3, 0.2)):
        for pos in ((0, 0, 0), (0.4, 0, 0), (0, 0, 0.4), (0.2, 0.2, 0.2), (1e-9, 0, 0)):
            for quat in (one, half):
                out.append([[0.2, 0.2, 0.2, 0, 0, 0, *one], [*size, *pos, *quat]])
    return np.moveaxis(np.array(out), 0, -1)


@pytest.mark.parametrize(("pair", "rules"), CASES, ids=NAMES)
def test_degenerate(pair, rules):
    """Coincident centres, parallel axes, aligned faces, exact touching, zero sizes: finite values and derivatives; unit normals."""
    numbers = degenerate()
    for seed in range(2):
        change = np.random.default_rng(seed).normal(size=numbers.shape)
        for value in evaluate(pair, rules, numbers, change):
            assert np.all(np.isfinite(value))
    found = evaluate(pair, rules, numbers)
    assert np.allclose(np.linalg.norm(found[:, 4:7], axis=1), 1)


def _pulled(pair, rules, numbers):
    """Contacts, and the derivative of the sum of what they say."""
    value, pull = jax.vjp(functools.partial(touches, pair, rules), numbers)
    return value, pull(jnp.where(value < FAR, 1.0, 0.0).astype(value.dtype))[0]


# Each compiles another program, for seconds.
DAILY = [("plane", "mesh"), ("plane", "cylinder"), ("sphere", "cylinder")]
SINGLE = [
    pytest.param(*case, marks=[] if case[0] in DAILY else pytest.mark.nightly, id=name) for case, name in zip(CASES, NAMES, strict=True)
]


@pytest.mark.parametrize(("pair", "rules"), SINGLE)
def test_single_precision(pair, rules):
    """Close to double precision; finite with its derivatives, backwards as well."""
    numbers = np.concatenate([drawn(7, LANES - 40, spread=0.3), degenerate()], -1)
    exact = evaluate(pair, rules, numbers)
    value, slope = fast(functools.partial(_pulled, pair, rules))(jnp.asarray(numbers, jnp.float32))
    same = (np.asarray(value)[:, :, :8] < FAR) == (exact[:, :, :8] < FAR)
    assert np.all(same)
    assert np.allclose(value[:, :, :8], exact[:, :, :8], rtol=1e-3, atol=1e-4)
    assert np.all(np.isfinite(np.asarray(value)))
    assert np.all(np.isfinite(np.asarray(slope)))


def test_the_farthest_of_many_vertices_is_found_by_a_loop():
    """Of equal ones the first."""
    rng = np.random.default_rng(3)
    vertices = rng.normal(size=(2 * MAX_UNROLLED, 3))
    vertices[-1] = vertices[700]
    for direction in (*rng.normal(size=(5, 3)), 10 * vertices[700]):
        expected = int(np.argmax(vertices.astype(np.float32) @ direction.astype(np.float32)))
        with one_environment():
            loop = jax.make_jaxpr(lambda v: farthest(vertices, v))(jnp.asarray(direction, jnp.float32))
        assert [e.primitive.name for e in loop.eqns].count("scan") == 1
        assert int(jax.extend.core.jaxpr_as_fun(loop)(jnp.asarray(direction, jnp.float32))[0]) == expected
        assert int(farthest(vertices, jnp.asarray(direction, jnp.float32))) == expected
