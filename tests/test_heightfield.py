"""Height fields: every prism of the ground against every convex shape, and what a robot feels of them."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import QUICK
from test_convex import HULL, greatest_gap, rotations, support
from traced import by_numpy

import xsim
from xsim.dynamics.collide import fields
from xsim.dynamics.collide.convex import convex
from xsim.dynamics.collide.shapes import FAR, Shape
from xsim.model.topology import HfieldInfo, Table

pytestmark = pytest.mark.usefixtures("x64")

HEIGHTS = np.random.default_rng(3).uniform(0, 1, (6, 5))
FIELD = HfieldInfo(Table(HEIGHTS), 0.2)
SIZE = np.array([1.0, 1.2, 0.3])
SHAPES = {"sphere": (0.25, 0, 0), "capsule": (0.1, 0.2, 0), "ellipsoid": (0.3, 0.15, 0.2), "cylinder": (0.2, 0.15, 0),
          "box": (0.2, 0.25, 0.1), "mesh": (0.15, 0.15, 0.15)}  # fmt: skip
MARGIN = 0.05
LANES = 12


def rows_of(R):
    return tuple(tuple(R[..., i, j] for j in range(3)) for i in range(3))


def shape(kind, p):
    size, pos, R = p
    data = (HULL,) if kind == "mesh" else None
    return Shape(tuple(size[..., k] for k in range(3)), tuple(pos[..., k] for k in range(3)), rows_of(R), data)


def found(kind, p, view):
    """(distance, point, normal) (7, prisms, lanes), and whether some had no place in the buffer."""
    a, b = shape("hfield", p[0]), shape(kind, p[1])
    ground, overflow = fields.prisms(FIELD, a, kind, b, MARGIN, view)
    spread = jax.tree.map(lambda x: jnp.broadcast_to(x, (view.count, *x.shape)), b._replace(data=None))._replace(data=b.data)
    t = convex([("prism", kind)], ground, spread, near=ground.data.near)
    return jnp.stack([t.distance, *t.point, *t.normal]), overflow


def poses(kind, rng):
    """The field turned and moved, the shape near its surface."""
    (Q,) = rotations(rng, 1)
    origin = rng.normal(size=3)
    at = np.stack([rng.uniform(-1.1, 1.1, LANES), rng.uniform(-1.3, 1.3, LANES), rng.uniform(0, 0.5, LANES)], 1)
    R = rotations(rng, LANES)
    field = [np.tile(SIZE, (LANES, 1)), np.tile(origin, (LANES, 1)), np.tile(Q, (LANES, 1, 1))]
    return [field, [np.tile(np.array(SHAPES[kind], float), (LANES, 1)), at @ Q.T + origin, Q @ R]]


def every_prism(p, i):
    """Corners (6, 3) of all prisms of the field, world."""
    size, pos, R = (x[i] for x in p[0])
    n, m = HEIGHTS.shape
    node = lambda x, y: np.array([2 * x / (m - 1) - 1, 2 * y / (n - 1) - 1, HEIGHTS[y, x]]) * size  # noqa: E731
    for x in range(m - 1):
        for y in range(n - 1):
            for middle in ((x + 1, y), (x, y + 1)):
                top = np.array([node(x, y), node(*middle), node(x + 1, y + 1)])
                low = top * [1, 1, 0] - [0, 0, FIELD.base]
                yield np.concatenate([top, low]) @ R.T + pos


def _gap(kind, other, corners, n):
    """How far apart a prism and a shape are along directions n (k, 3)."""
    size, pos, R = other
    return n @ pos - support(kind, size, R, -n) - (corners @ n.T).max(0)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", SHAPES)
def test_contacts_of_all_prisms(kind):
    """Whichever prism is within the margin has a contact, with the distance that sampling finds, and no other; derivatives are those of
    differences."""
    rng = np.random.default_rng(4)
    p = poses(kind, rng)
    view = fields.window(FIELD, SIZE, fields.bounding_radius(kind, SHAPES[kind], HULL))
    view = view._replace(count=min(24, 2 * view.columns * view.rows))
    run = jax.jit(lambda p, dp: jax.jvp(functools.partial(found, kind, view=view), (p,), (dp,)), compiler_options=QUICK)
    dp = jax.tree.map(lambda x: rng.normal(size=x.shape), p)
    (value, overflow), (slope, _) = run(p, dp)
    assert not np.asarray(overflow).any()
    value, slope = np.asarray(value), np.asarray(slope)
    ahead, behind = (np.asarray(run(jax.tree.map(lambda x, d, s=s: x + s * 1e-6 * d, p, dp), dp)[0][0]) for s in (1, -1))
    compared = 0
    for i in range(LANES):
        size, pos, R = (x[i] for x in p[1])
        prisms = [functools.partial(_gap, kind, (size, pos, R), corners) for corners in every_prism(p, i)]
        left = dict(enumerate(prisms))
        for k in np.flatnonzero(value[0, :, i] < MARGIN):
            n = value[4:, k, i]
            alike = [j for j, along in left.items() if abs(along(n[None])[0] - value[0, k, i]) < 1e-11]  # neighbours share corners
            (same, *_) = [j for j in alike if greatest_gap(left[j], n, rng) < value[0, k, i] + 1e-9]
            left.pop(same)
        # sampling finds gaps that are a little too small
        assert all(greatest_gap(along, np.array([0, 0, 1.0]), rng) > MARGIN - 0.01 for along in left.values())
        for k in np.flatnonzero(value[0, :, i] < MARGIN):
            change = (ahead - behind)[:, k, i] / 2e-6
            if np.abs(ahead + behind - 2 * value)[:, k, i].max() < 1e-9:  # else a switch of features, or of the windows' order, is near
                np.testing.assert_allclose(slope[:, k, i], change, rtol=1e-5, atol=1e-5)
                compared += 1
    assert compared > 10


@pytest.mark.slow
def test_more_prisms_than_the_limit():
    """Where more prisms are near than the buffer holds, the flag says so, and the nearest are kept."""
    p = poses("box", np.random.default_rng(4))
    p[1][1] = p[0][1] + p[0][2][:, :, 2] * 0.15
    view = fields.window(FIELD, SIZE, fields.bounding_radius("box", SHAPES["box"], None))
    many, no = by_numpy(functools.partial(found, "box", view=view._replace(count=2 * view.columns * view.rows)))(p)
    few, yes = by_numpy(functools.partial(found, "box", view=view._replace(count=3)))(p)
    assert not no.any() and yes.all()
    assert ((few[0] < FAR).sum(0) == 3).all() and (few[0].min(0) <= many[0].min(0) + 0.05).all()
    narrow, wide = by_numpy(functools.partial(found, "box", view=fields.Window(1, 1, 2)))(p)
    assert wide.all()


SCENE = """<mujoco><option timestep="0.002"/><asset><hfield name="h" nrow="2" ncol="2" size="2 2 .5 .1" elevation="1 1 1 1"/></asset>
<worldbody><geom type="hfield" hfield="h"/>
<body pos="0 0 .1"><freejoint/><geom type="{shape}" size="{size}"/></body></worldbody></mujoco>"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "size", "lowest", "fastest", "away"),
    [("sphere", ".1", 0.098, 1e-3, 1e-6), pytest.param("box", ".1 .1 .1", 0.096, 0.3, 1e-3, marks=pytest.mark.nightly)],
)
def test_things_rest_on_level_ground(shape, size, lowest, fastest, away):
    """A body settles and stays where it rests, as on a plane: a field whose heights are all the same is at 0.

    A box touches each of the two prisms below at one point. It rocks by a few millimetres, in a way that depends on rounding."""
    model = xsim.loads(SCENE.format(shape=shape, size=size), "mjcf")
    state = xsim.rollout(model, xsim.init(model), steps=150)[0]
    assert not state.flags
    assert lowest < state.q[2] < 0.1 and np.abs(state.v).max() < fastest
    np.testing.assert_allclose(state.q[:2], 0, atol=away)
