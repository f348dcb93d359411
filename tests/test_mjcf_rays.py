"""Rays: against what is inside the shapes, their gradients, rays along edges and surfaces, and what a rangefinder sees."""

import dataclasses
import functools
import itertools
import json
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from corpus import corpus, needs_corpus
from scipy.spatial import ConvexHull
from traced import traced

import xsim
from xsim.dynamics.call import Call
from xsim.dynamics.sensors import rays
from xsim.dynamics.sensors.sensing import SensorContext, sense
from xsim.dynamics.tree import kinematics
from xsim.model.topology import HfieldInfo, MeshInfo, Table

POINTS = np.random.default_rng(5).normal(size=(60, 3)) * [0.5, 0.4, 0.3]
HULL = ConvexHull(POINTS)
HEIGHTS = np.random.default_rng(6).uniform(size=(5, 7))
BASE = 0.3
SURFACES = {"mesh": MeshInfo(Table(POINTS), Table(HULL.simplices)), "hfield": HfieldInfo(Table(HEIGHTS), BASE)}
SIZES = {
    "sphere": (0.5, 0.0, 0.0), "capsule": (0.3, 0.5, 0.0), "cylinder": (0.4, 0.5, 0.0), "ellipsoid": (0.6, 0.3, 0.4),
    "box": (0.5, 0.3, 0.4), "mesh": (1.0, 0.5, 2.0), "hfield": (0.9, 0.7, 0.6), "plane": (0.8, 0.6, 0.0),
}  # fmt: skip
EVERY = pytest.mark.parametrize("shape", SIZES)


def distances(shape, x):
    """x (9, n): origins, directions and sizes, in the shape's frame."""
    return rays.SHAPES[shape](tuple(x[6:9]), tuple(x[0:3]), tuple(x[3:6]), SURFACES.get(shape))


def lines(shape, p, v):
    v = v / np.linalg.norm(v, axis=-1, keepdims=True)
    return jnp.asarray(np.concatenate([p, v, np.tile(SIZES[shape], (len(p), 1))], 1).T)


def aimed(shape, n, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.uniform(-1.5, 1.5, (n, 3))
    v = rng.uniform(-0.7, 0.7, (n, 3)) - p
    v[:40] = np.sign(v[:40]) * SIZES[shape]  # along diagonals
    return lines(shape, p, v)


def ground(x, y):
    """Height of the ground over coordinates in cells: in each cell two triangles, the border between them rising in both."""
    i, j = (np.clip(np.floor(a).astype(int), 0, n - 2) for a, n in ((x, 7), (y, 5)))
    low, right, left, high = HEIGHTS[j, i], HEIGHTS[j, i + 1], HEIGHTS[j + 1, i], HEIGHTS[j + 1, i + 1]
    x, y = x - i, y - j
    return np.where(x > y, low + x * (right - low) + y * (high - right), low + y * (left - low) + x * (high - left))


def inside(shape, x):
    """Whether points (..., 3) are in the shape."""
    s, r = np.array(SIZES[shape]), np.hypot(x[..., 0], x[..., 1])
    if shape == "plane":
        raise AssertionError("a plane has no inside")
    if shape == "sphere":
        return np.linalg.norm(x, axis=-1) < s[0]
    if shape == "ellipsoid":
        return np.linalg.norm(x / s, axis=-1) < 1
    if shape == "capsule":
        return np.hypot(r, np.maximum(np.abs(x[..., 2]) - s[1], 0)) < s[0]
    if shape == "cylinder":
        return (r < s[0]) & (np.abs(x[..., 2]) < s[1])
    if shape == "box":
        return (np.abs(x) < s).all(-1)
    if shape == "mesh":
        return ((x / s) @ HULL.equations[:, :3].T + HULL.equations[:, 3] < 0).all(-1)
    cells = (x[..., :2] / s[:2] + 1) * [3, 2]
    return (np.abs(x[..., :2]) < s[:2]).all(-1) & (x[..., 2] > -BASE) & (x[..., 2] < s[2] * ground(cells[..., 0], cells[..., 1]))


@pytest.mark.parametrize("shape", [s for s in SIZES if s != "plane"])
def test_first_border(shape, x64):
    """The distance is where the ray first goes into the shape or, from within, out of it."""
    x = aimed(shape, 300)
    p, v = np.asarray(x[0:3]).T, np.asarray(x[3:6]).T
    kept = ~inside(shape, p) if shape == "hfield" else np.ones(len(p), bool)  # ground and base are two solids
    found = traced(functools.partial(distances, shape), x)(x)

    def state(t):
        return inside(shape, p + t[:, None] * v)

    steps = np.linspace(0, 6, 3001)
    along = np.stack([state(np.full(len(p), t)) for t in steps], 1)
    changes = along != along[:, :1]
    low, high = (steps[np.maximum(changes.argmax(1) - k, 0)] for k in (1, 0))
    for _ in range(45):
        middle = 0.5 * (low + high)
        same = state(middle) == along[:, 0]
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    expected = np.where(changes.any(1), high, np.inf)
    grazed = kept & (found < expected - 1e-9)  # in and out between two samples
    assert (changes.any(1) & kept).sum() > 80 and grazed.sum() < 5
    with np.errstate(invalid="ignore"):
        assert (state(np.where(grazed, found + 1e-9, 0)) != along[:, 0])[grazed].all()
        ok = (found == expected) | (np.abs(found - expected) < 1e-9) | grazed
    assert ok[kept].all()


def test_plane(x64):
    """Planes are seen from their front, within their extents; an extent of zero has no end."""
    p, v = np.array([[0.1, 0.2, 2.0], [0.1, 0.2, -2], [0.1, 0.2, -2], [0.9, 0, 2], [0, 0.7, 2], [0, 0, 2], [0, 0, 0]]), np.zeros((7, 3))
    v[:, 2] = [-1, 1, -1, -1, -1, 0, -1]
    v[5, 0] = 1
    x = lines("plane", p, v)
    inf = np.inf
    np.testing.assert_array_equal(distances("plane", x), [2, inf, inf, inf, inf, inf, 0])
    np.testing.assert_array_equal(distances("plane", x.at[6:8].set(0.0)), [2, inf, inf, 2, 2, inf, 0])


@EVERY
def test_derivatives(shape, x64):
    x, h = aimed(shape, 300, seed=1), 1e-6
    d = jnp.asarray(np.random.default_rng(2).normal(size=x.shape)) * (x != 0)
    own = functools.partial(distances, shape)
    f = traced(own, x)
    t, slope = traced(lambda x: jax.jvp(own, (x,), (d,)), x)(x)
    before, after = f(x - h * d), f(x + h * d)
    with np.errstate(invalid="ignore"):
        smooth = np.abs(before - 2 * t + after) < 1e-9  # neither a graze, nor a step to another surface
        numeric = (after - before) / (2 * h)
    assert smooth.sum() > (40 if shape == "plane" else 100)
    np.testing.assert_allclose(slope[smooth], numeric[smooth], rtol=1e-4, atol=1e-5)
    pulled = traced(jax.grad(lambda x: jnp.where(jnp.isfinite(own(x)), own(x), 0.0).sum()), x)(x)
    np.testing.assert_allclose((pulled * d).sum(0)[smooth], slope[smooth], rtol=1e-9)


@EVERY
@pytest.mark.parametrize("wide", [False, True])
def test_finite_everywhere(shape, wide):
    """Origins on surfaces, edges and corners, rays along them and past them: distances >= 0, derivatives that are numbers."""
    s = SIZES[shape]
    p = [q for q in itertools.product(*((0.0, a, -a, a / 3, 2 * a + 1) for a in s))]
    v = [u for u in itertools.product((-1.0, 0.0, 1.0), repeat=3) if any(u)] + [(1, 1e-9, 0), (0, 1e-16, 1), (1e-8, 0, -1), (1e-20, 1, 0)]
    if shape == "mesh":
        p += [tuple(q * s) for q in POINTS[HULL.vertices[:5]]]
    pairs = np.array([(*q, *u) for q, u in itertools.product(sorted(set(p)), v)])
    with jax.enable_x64(wide):
        x = lines(shape, pairs[:, :3], pairs[:, 3:])

        def both(x):
            t, pull = jax.vjp(functools.partial(distances, shape), x)
            return t, pull(jnp.ones_like(t))[0]

        t, g = traced(both, x)(x)
        assert (t >= 0).all() and np.isfinite(t).any() and np.isfinite(g).all()


@pytest.mark.parametrize("wide", [False, True])
def test_no_gaps(wide):
    """From within a closed mesh every ray ends, also towards corners and edges; from above every ray meets the ground."""
    corners = POINTS[HULL.simplices]
    ends = np.concatenate([corners.reshape(-1, 3), corners.mean(1), 0.5 * (corners + np.roll(corners, 1, 1)).reshape(-1, 3)])
    size = SIZES["hfield"]
    nodes = np.array(list(itertools.product(np.linspace(0, 6, 25)[1:-1], np.linspace(0, 4, 17)[1:-1])))
    onto = np.concatenate([nodes / [3, 2] - 1, ground(*nodes.T)[:, None]], 1) * size
    steep = np.array([(0, 0, -1), (1, 0, -3), (1, 1, -4), (0, -1, -2)]) * [size[0] / 3, size[1] / 2, size[2]]  # also along borders of cells
    with jax.enable_x64(wide):
        x = lines("mesh", 0 * ends, ends * SIZES["mesh"])
        t = traced(functools.partial(distances, "mesh"), x)(x)
        close = np.finfo(t.dtype).eps * 100
        np.testing.assert_allclose(t, np.linalg.norm(ends * SIZES["mesh"], axis=1), rtol=close)
        x = [lines("hfield", onto - 5 * v, np.broadcast_to(v, onto.shape)) for v in steep]
        fall = jax.jit(functools.partial(distances, "hfield"))
        for one, v in zip(x, steep, strict=True):
            np.testing.assert_allclose(fall(one), 5 * np.linalg.norm(v), rtol=close)


# ---- rangefinders ------------------------------------------------------------------------------------------------------------


def facts(model, q):
    """What position sensors are made of."""
    c = Call(model, q)
    return c, SensorContext(
            c.system, kinematics.frames(c.system, c.q), c.q, None, None, 0.0, None, None, None, [], None, [], [], None
        )  # fmt: skip


def measured(model, q):
    def fn(q):
        c, f = facts(model, q)
        return c.join(sense(f))

    q = jnp.asarray(q, float)
    return traced(fn, q)(q)


SEEN = {
    'material="clear"': -1, 'material="red"': 1.5, 'material="red" rgba="1 0 0 0"': 1.5, 'material="clear" rgba="1 0 0 1"': -1,
    'rgba="1 0 0 0"': -1, 'rgba="1 0 0 0.001"': 1.5, 'group="5"': 1.5, 'contype="0" conaffinity="0"': 1.5,
}  # fmt: skip


@pytest.mark.parametrize("discard", [False, True])
def test_what_is_seen(discard):
    """Not what is transparent, by its material if it has one, and not what is on the site's own body; whatever else there is."""
    asset = '<asset><material name="clear" rgba="1 1 1 0"/><material name="red" rgba="1 0 0 1"/></asset>'
    geoms = "".join(f'<geom size=".5" pos="{10 * i} 0 0" {text}/>' for i, text in enumerate(SEEN))
    sites = "".join(f'<site name="s{i}" pos="{10 * i} 0 0" zaxis="0 0 -1"/>' for i in range(len(SEEN)))
    arm = '<geom size=".1" pos="-10 0 -1"/><site name="own" pos="-10 0 0" zaxis="0 0 -1"/>'
    child = '<geom size=".1"/><body pos="-20 0 0"><geom size=".2"/></body><site name="child" pos="-20 0 1" zaxis="0 0 -1"/>'
    world = '<site name="w" pos="-30 0 2" zaxis="0 0 -1"/><body pos="-30 0 0"><geom size=".1" pos="0 0 -1"/></body>'
    names = [*(f"s{i}" for i in range(len(SEEN))), "own", "child", "w"]
    sensors = "".join(f'<rangefinder site="{name}"/>' for name in names)
    discarding = '<compiler discardvisual="true"/>' if discard else ""
    model = xsim.loads(
        f'<mujoco>{discarding}<option><flag contact="disable"/></option>{asset}<worldbody>{geoms}{world}<body pos="0 0 2">'
        f"<joint/>{sites}{arm}{child}</body></worldbody><sensor>{sensors}</sensor></mujoco>",
        "mjcf",
    )
    # Without materials a geom's own colour counts, and what touches nothing is not there.
    own = {'material="clear"': 1.5, 'material="red" rgba="1 0 0 0"': -1, 'material="clear" rgba="1 0 0 1"': 1.5}
    own['contype="0" conaffinity="0"'] = -1
    expected = [own.get(text, t) if discard else t for text, t in SEEN.items()]
    np.testing.assert_allclose(measured(model, [0.0]), [*expected, -1, 0.8, 2.9], rtol=1e-6)


@pytest.mark.parametrize(("rules", "nothing"), [("3.2", -1.0), ("4.0", -0.5)])
def test_cutoff(rules, nothing):
    text = """<mujoco><option><flag contact="disable"/></option><worldbody><geom type="plane" size="1 1 1"/><body pos="0 0 2"><joint/>
    <geom size=".1"/><site name="down" zaxis="0 0 -1"/><site name="up"/></body></worldbody><sensor>
    <rangefinder site="down" cutoff=".5"/><rangefinder site="down" cutoff="5"/><rangefinder site="up" cutoff=".5"/>
    <rangefinder site="up" cutoff="5"/></sensor></mujoco>"""
    np.testing.assert_allclose(measured(xsim.loads(text, "mjcf", rules=rules), [0.0]), [0.5, 2.0, nothing, -1.0], rtol=1e-6)


@pytest.mark.conformance
@needs_corpus
@pytest.mark.parametrize(
    ("name", "release"),
    [("authored/sensors_noise_cutoff", "3.2.7"), ("authored/sensors_noise_cutoff", "4.0.0"), ("dmc/quadruped", "3.2.7")],
)
def test_rangefinders_of_the_corpus(name, release, x64):
    root = corpus()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = xsim.load(root / "models" / "mjcf" / f"{name}.xml", rules=release[:3])
    told = json.loads((root / "oracles" / "mjcf" / release / f"{name}.json").read_text())
    found = tuple(s for s in model.topology.sensors if s.kind == "rangefinder")
    assert found
    only = dataclasses.replace(model, topology=dataclasses.replace(model.topology, sensors=found))
    state = told["states"]["random"]
    np.testing.assert_allclose(measured(only, state["qpos"]), np.array(state["sensordata"])[[s.address for s in found]], rtol=1e-7)
