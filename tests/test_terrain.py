"""Terrains: their heights, the model that stands on them, and the curriculum of the quadruped."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.envs import Task
from xsim.envs.quadruped import GO1, SCAN, RoughTerrain
from xsim.envs.terrain import KINDS, PLATFORM, make_terrain

BALL = """<mujoco><worldbody><geom name="floor" type="plane" size="1 1 .1" friction=".4"/>
<body name="ball" pos="0 0 3"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
SMALL = {"kinds": ("stairs", "slope_down"), "levels": 3, "tile": 4.0, "border": 2.0, "spacing": 0.2}


@pytest.fixture(scope="module")
def terrain():
    return make_terrain(**SMALL)


def test_tiles():
    """Flat at the border and on the platform, harder from level to level, the same for the same seed."""
    terrain = make_terrain(tuple(KINDS), 3, border=1.0)
    assert terrain.heights.shape == (len(KINDS) * 80 + 21, 3 * 80 + 21) and terrain.half == pytest.approx((13.0, 33.0))
    np.testing.assert_array_equal(terrain.heights, make_terrain(tuple(KINDS), 3, border=1.0).heights)
    spans = np.zeros((3, len(KINDS)))
    for level in range(3):
        for k in range(len(KINDS)):
            x, y, z = terrain.origins[level, k]
            column, row = ((c + h) / 0.1 for c, h in zip((x, y), terrain.half, strict=True))
            tile = terrain.heights[round(row) - 40 : round(row) + 41, round(column) - 40 : round(column) + 41]
            assert not np.any([tile[0], tile[-1], tile[:, 0], tile[:, -1]])
            middle = slice(40 - round(5 * PLATFORM), 41 + round(5 * PLATFORM))
            np.testing.assert_allclose(tile[middle, middle], z, atol=1e-12)
            spans[level, k] = np.ptp(tile)
    names = list(KINDS)
    assert not spans[:, names.index("flat")].any()
    harder = [n for n in names if n not in ("flat", "stepping_stones")]
    assert np.all(np.diff(spans[:, [names.index(n) for n in harder]], axis=0) > 0)
    assert spans[2, names.index("slope")] == pytest.approx(1.5) and spans[2, names.index("stairs")] == pytest.approx(0.2 * 7)
    stones = terrain.heights[names.index("stepping_stones") * 80 + 10 :][:80]
    shares = [(stones[:, 10 + 80 * level : 90 + 80 * level] < 0).mean() for level in range(3)]
    assert 0 < shares[0] < shares[1] < shares[2]


@pytest.mark.slow
def test_the_model_stands_on_it(terrain, x64):
    """What rays hit, and where a ball touches, is the height of the terrain; the surface is that of the plane before."""
    spec = xsim.parse_text(BALL, "mjcf")
    model = xsim.build(terrain.under(spec))
    assert [g.shape for g in model.topology.geoms] == ["hfield", "sphere"]
    rng = np.random.default_rng(0)
    points = rng.uniform(-1, 1, (50, 2)) * terrain.half
    origin, down = np.column_stack([points, np.full(50, 5.0)]), np.tile([0.0, 0.0, -1.0], (50, 1))
    heights = np.asarray(terrain.height(points[:, 0], points[:, 1]))
    assert np.ptp(heights) > 0.3
    hits = by_numpy(xsim.cast_rays)(model, xsim.init(model).q, origin, down)
    np.testing.assert_allclose(5.0 - hits.distance, heights, atol=1e-9)
    x, y, z = terrain.origins[2, 0]
    for gap, touches in ((0.01, False), (-0.01, True)):
        state = xsim.init(model, np.array([x, y, z + 0.1 + gap, 1.0, 0.0, 0.0, 0.0]))
        found = by_numpy(xsim.contacts)(model, state)
        assert bool(found.active.any()) == touches
    np.testing.assert_allclose(found.distance[found.active], -0.01, atol=1e-9)
    assert terrain.under(spec, "floor").world_geoms[0].contact == spec.world_geoms[0].contact


def test_errors(terrain):
    with pytest.raises(KeyError, match=r"no terrain 'stair' \(did you mean 'stairs'\?\); terrains: flat"):
        make_terrain(("stair",))
    with pytest.raises(ValueError, match="tiles of at least 4 m"):
        make_terrain(tile=1.0)
    with pytest.raises(ValueError, match="no ground plane named 'ice' that collides"):
        terrain.under(xsim.parse_text(BALL, "mjcf"), "ice")


@pytest.mark.parametrize(
    ("place", "told", "level", "wanted"),
    [
        ((0.1, 0.0), 0.0, 1, 1),  # stood, as it was told
        ((0.1, 0.0), 5.0, 1, 0),  # did not go
        ((0.1, 0.0), 5.0, 0, 0),
        ((2.1, 0.0), 5.0, 1, 2),  # left the tile
        ((0.0, -2.1), 5.0, 1, 2),
        ((2.1, 0.0), 5.0, 2, 7),  # the last level: a random one
    ],
)
def test_levels(terrain, place, told, level, wanted):
    robot = RoughTerrain(terrain=terrain)
    origin = terrain.origins[level, 1, :2]
    previous = {"level": jnp.int32(level), "kind": jnp.int32(1), "place": jnp.asarray(origin + np.array(place)), "told": jnp.float32(told)}
    assert int(robot.inherit({"random_level": jnp.int32(7)}, previous)["level"]) == wanted


def test_what_an_episode_hands_on():
    """To the next one, of the environments that ended; `start` sees it."""
    task = Task(
        model="pendulum", reward=lambda view: jnp.zeros(2), variables=lambda model, key: {"level": jnp.int32(0)},
        remember=lambda view: {"level": view.variables["level"] + (not view.fresh)},
        inherit=lambda variables, previous: {"level": variables["level"] + 10 * previous["level"]},
        start=lambda model, key, variables: (jnp.full(2, 0.01 * variables["level"]), jnp.zeros(2)),
        terminate=lambda view: view.action[:, 0] > 0, max_steps=None,
    )  # fmt: skip
    env = xsim.make_env(xsim.models.path("pendulum"), task=task, num_envs=2)
    step, state = by_numpy(env.step), by_numpy(env.reset)(jax.random.key(0))
    actions = np.zeros((2, *env.action_spec.shape), np.float32)
    for ends, wanted in ((False, [1, 1]), (True, [20, 2]), (False, [21, 3])):
        actions[0] = ends
        state = step(state, actions)
        np.testing.assert_array_equal(state.variables["level"], wanted)
        if ends:
            np.testing.assert_allclose(state.state.q[0], 0.2)


@pytest.mark.nightly
def test_a_quadruped_on_it(terrain):
    """It starts on its tile, stands there, and sees the stairs around it."""
    task = RoughTerrain(terrain=terrain, start_levels=3).task()
    env = xsim.make_env(task.model, task=task, num_envs=4)
    start = by_numpy(env.reset)(jax.random.key(3))
    assert start.obs.shape == (4, 48 + len(SCAN)) and len(set(start.variables["level"].tolist())) > 1
    origins = terrain.origins[start.variables["level"], start.variables["kind"]]
    np.testing.assert_allclose(start.state.q[:, :3], origins + [0, 0, GO1.height + 0.01], atol=1e-5)
    ahead = 2 * np.arctan2(start.state.q[:, 6], start.state.q[:, 3])
    for k in range(4):
        turn = np.array([[np.cos(ahead[k]), -np.sin(ahead[k])], [np.sin(ahead[k]), np.cos(ahead[k])]])
        at = origins[k, :2] + SCAN @ turn.T
        wanted = np.asarray(terrain.height(at[:, 0], at[:, 1])) - start.state.q[k, 2] + GO1.height
        np.testing.assert_allclose(start.obs[k, 48:], wanted, atol=1e-5)
    np.testing.assert_allclose(start.metrics["level"], start.variables["level"])
    feet = start.state.q.copy()
    feet[:, 2] -= 0.012  # from the height of the start to the ground
    assert by_numpy(xsim.contacts)(env.model, xsim.init(env.model, feet)).active.any(-1).all()
