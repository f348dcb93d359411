"""Cameras, height scanners and rays: against geometry worked out by hand and against rangefinders, which are compared with MuJoCo."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.dynamics import images

WIDTH, HEIGHT = 8, 6
SCENE = f"""
<mujoco>
  <asset><hfield name="ground" nrow="3" ncol="3" size="2 2 .4 .1" elevation="0 0 0 0 1 0 0 0 0"/></asset>
  <worldbody>
    <geom name="floor" type="plane" size="0 0 .1" rgba="0 1 0 1"/>
    <geom name="ghost" size=".5" pos="0 0 1.5" rgba="0 0 0 0" contype="0" conaffinity="0"/>
    <body name="tower">
      <camera name="down" pos="0 0 3" fovy="60" resolution="{WIDTH} {HEIGHT}"/>
      <camera name="flat" pos="0 0 3" fovy="2" projection="orthographic" resolution="8 8"/>
      <camera name="side" pos="0 -3 1.2" xyaxes="1 0 0 0 .3 1" fovy="50" resolution="{WIDTH} {HEIGHT}"/>
    </body>
    <body name="box" pos=".1 .05 .5"><freejoint/><geom name="box" type="box" size=".3 .2 .2"/>
      <geom name="ball" size=".15" pos="0 0 .4" rgba="1 0 0 1"/></body>
    <body pos="1 0 .5"><joint axis="1 0 0"/><geom name="rod" type="capsule" size=".1" fromto="0 0 0 0 .3 .6"/></body>
  </worldbody>
  <sensor><rangefinder camera="down" data="dist depth"/><rangefinder camera="side" data="dist depth"/></sensor>
</mujoco>"""


@pytest.fixture(scope="module")
def model():
    with jax.enable_x64(True):
        return xsim.loads(SCENE, "mjcf", rules="4.0")


@pytest.fixture(scope="module")
def q(model):
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        return xsim.init(model).q + 0.1 * rng.normal(size=(3, model.nq))


def geom(model, name: str) -> int:
    return [g.name for g in model.topology.geoms].index(name)


def test_what_a_camera_sees_from_above(model, x64):
    """The ball above the box, the box around it, the floor around both; what is transparent is not seen."""
    image = by_numpy(lambda m, q: xsim.camera_image(m, q, "flat"))(model, xsim.init(model).q)
    y, x = ((c + 0.5) / 4 - 1 for c in np.mgrid[:8, :8])
    x, y = x - 0.1, -y - 0.05
    ball, box = np.hypot(x, y) < 0.15, (abs(x) < 0.3) & (abs(y) < 0.2)
    rod = (abs(x - 0.9) < 0.1) & (y > 0) & (y < 0.25)
    depth = np.where(ball, 3 - 0.9 - np.sqrt(np.maximum(0.15**2 - x**2 - y**2, 0)), np.where(box, 2.3, 3.0))
    which = np.where(ball, geom(model, "ball"), np.where(box, geom(model, "box"), geom(model, "floor")))
    assert ball.any() and box.any()
    np.testing.assert_array_equal(image.segmentation[~rod], which[~rod])
    np.testing.assert_allclose(image.depth[~rod], depth[~rod], atol=1e-12)
    np.testing.assert_allclose(image.color[which == geom(model, "floor")][0], [0, 1, 0], atol=1e-12)
    assert np.all(image.color[ball][:, 0] > 0.35) and not image.color[ball][:, 1:].any()


@pytest.mark.slow
def test_a_camera_sees_what_its_rangefinder_measures(model, q, x64):
    """Rangefinders do not hit geoms of their own body; the camera's body has none."""
    sensor = by_numpy(lambda m, q: xsim.sensors(m, xsim.init(m, q)))(model, q).reshape(3, 2, HEIGHT, WIDTH, 2)
    for i, camera in enumerate(("down", "side")):
        image = by_numpy(lambda m, q, c=camera: xsim.camera_image(m, q, c))(model, q)
        # The floor is of the world, as the camera's body is to rangefinders.
        seen = sensor[:, i, ..., 0] >= 0
        moving = (image.segmentation >= 0) & (image.segmentation != geom(model, "floor"))
        assert moving.any() and np.all(seen[moving])
        np.testing.assert_allclose(image.depth[moving], sensor[:, i, ..., 1][moving], rtol=1e-12)
        assert set(np.unique(image.segmentation)) - {-1} <= {geom(model, n) for n in ("floor", "box", "ball", "rod")}


def test_sizes_that_are_no_image(model, q):
    with pytest.raises(ValueError, match="width and height must be at least 1, found 0 and 8"):
        xsim.camera_image(model, q, "side", width=0, height=8)


def test_blocks_of_rays_and_batches(model, q, monkeypatch, x64):
    """The same image in blocks, of which the last is not full, as at once and as one by one."""
    see = lambda m, q: xsim.camera_image(m, q, "side", width=5, height=5)  # noqa: E731
    whole = by_numpy(see)(model, q)
    monkeypatch.setattr(images, "BLOCK_ON_CPU", 7 * 16)
    jax.clear_caches()
    for k, pixels in enumerate(by_numpy(see)(model, q)):
        np.testing.assert_allclose(pixels, whole[k], atol=1e-12)
    single = by_numpy(see)(model, q[1])
    np.testing.assert_allclose(single.depth, whole.depth[1], atol=1e-12)


def test_derivatives_of_the_depth(model, q, x64):
    """Of pixels that see the same geoms before and after."""
    see = lambda m, q: xsim.camera_image(m, q, "side")  # noqa: E731
    slope = by_numpy(lambda m, q, d: jax.jvp(lambda q: see(m, q).depth, (q,), (d,))[1])(model, q[0], jnp.ones(model.nq))
    h, near = 1e-6, by_numpy(see)
    after, before = near(model, q[0] + h), near(model, q[0] - h)
    same = after.segmentation == before.segmentation
    assert same.mean() > 0.9 and np.abs(slope).max() > 0.1
    np.testing.assert_allclose(slope[same], (after.depth - before.depth)[same] / (2 * h), atol=1e-6)


def test_rays_of_any_length_and_batch(model, q, x64):
    origin, direction = np.array([[0.0, 0.0, 9.0], [5.0, 5.0, 1.0], [0.0, 0.0, 1.0]]), np.array([[0.0, 0, -2], [0, 0, 3], [1, 0, 0]])
    hits = by_numpy(lambda m, q: xsim.cast_rays(m, q, origin, direction, fixed_only=True))(model, q)
    np.testing.assert_allclose(hits.distance, np.tile([9.0, -1.0, -1.0], (3, 1)), atol=1e-12)
    np.testing.assert_allclose(hits.normal[:, 0], np.tile([0.0, 0.0, 1.0], (3, 1)), atol=1e-12)
    np.testing.assert_array_equal(hits.geom, np.tile([geom(model, "floor"), -1, -1], (3, 1)))
    floor = model.topology.geoms[geom(model, "floor")].row
    lifted = np.tile(model.geom.pos, (2, 1, 1))
    lifted[1, floor, 2] = 1.5  # of the second environment: only the model has a batch
    hits = by_numpy(lambda m, q: xsim.cast_rays(m, q, origin, direction, fixed_only=True))(model.replace({"geom.pos": lifted}), q[0])
    np.testing.assert_allclose(hits.distance[:, 0], [9.0, 7.5], atol=1e-12)


def test_height_scan(x64):
    """On a pyramid, in the heading of the body; its own geoms and its tilt do not matter."""
    ground = '<geom type="hfield" hfield="ground"/>'
    body = '<body name="dog" pos=".2 .1 .9"><freejoint/><geom size=".2"/></body>'
    hfield = SCENE[SCENE.index("<asset>") : SCENE.index("</asset>") + 8]
    model = xsim.loads(f"<mujoco>{hfield}<worldbody>{ground}{body}</worldbody></mujoco>", "mjcf")
    yaw, pitch = 0.7, 0.3
    turn = np.array([np.cos(yaw / 2) * np.cos(pitch / 2), -np.sin(yaw / 2) * np.sin(pitch / 2), np.cos(yaw / 2) * np.sin(pitch / 2),
                     np.sin(yaw / 2) * np.cos(pitch / 2)])  # fmt: skip
    q = np.concatenate([[0.2, 0.1, 0.9], turn])
    points = np.array([[0.0, 0.0], [0.4, 0.0], [0.0, -0.5], [5.0, 0.0]])
    heights = by_numpy(lambda m, q: xsim.height_scan(m, q, "dog", points, reach=1.5))(model, q)
    x = 0.2 + np.cos(yaw) * points[:, 0] - np.sin(yaw) * points[:, 1]
    y = 0.1 + np.sin(yaw) * points[:, 0] + np.cos(yaw) * points[:, 1]
    i, j = (x > 0).astype(int), (y > 0).astype(int)  # cells of 2 m; the corner in the middle is 0.4 m high
    u, v = x / 2 + 1 - i, y / 2 + 1 - j
    corners = np.zeros((3, 3))
    corners[1, 1] = 0.4
    low, right, left, high = (corners[np.clip(j + b, 0, 2), np.clip(i + a, 0, 2)] for b in (0, 1) for a in (0, 1))
    wanted = np.where(u > v, low + u * (right - low) + v * (high - right), low + v * (left - low) + u * (high - left)) - 0.9
    wanted[3] = -1.5
    np.testing.assert_allclose(heights, wanted, atol=1e-12)


def test_errors(model, x64):
    q = xsim.init(model).q
    with pytest.raises(KeyError, match="no camera 'left'; cameras: 'down', 'flat', 'side'"):
        xsim.camera_image(model, q, "left")
    with pytest.raises(ValueError, match=r"points must have shape \(n, 2\), found \(3,\)"):
        xsim.height_scan(model, q, "box", np.zeros(3))
    with pytest.raises(KeyError, match="no body 'cat'"):
        xsim.height_scan(model, q, "cat", np.zeros((1, 2)))
    with pytest.raises(ValueError, match=r"direction must have shape"):
        xsim.cast_rays(model, q, np.zeros((1, 3)), np.zeros(3))
    of_lists = xsim.cast_rays(model, list(q), [[0, 0, 5]], [[0, 0, -1]])
    assert of_lists.distance == xsim.cast_rays(model, q, np.array([[0, 0, 5.0]]), np.array([[0, 0, -1.0]])).distance


MESH = """<mujoco><asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
<hfield name="ground" nrow="3" ncol="3" size="2 2 .4 .1" elevation="0 0 0 0 1 0 0 0 0"/></asset>
<worldbody><geom name="ground" type="hfield" hfield="ground" contype="0" conaffinity="0"/>
<body name="lid" pos="0 0 1"><joint type="slide" axis="0 0 1"/>
<geom name="wedge" type="mesh" mesh="wedge" contype="0" conaffinity="0"/></body>
</worldbody></mujoco>"""


def test_meshes_and_height_fields_that_do_not_collide(x64):
    """A tetrahedron in the corner of its axes, above a pyramid."""
    model = xsim.loads(MESH, "mjcf")
    assert not model.topology.pairs
    x, y = (c.reshape(-1) for c in np.meshgrid([0.1, 0.3, 0.6, 0.9, -0.5], [0.05, 0.2, 0.45, -0.5]))
    origin, down = np.column_stack([x, y, np.full(x.size, 4.0)]), np.tile([0.0, 0.0, -2.0], (x.size, 1))
    hits = by_numpy(xsim.cast_rays)(model, np.zeros(1), origin, down)
    lid = (x > 0) & (y > 0) & (x + y < 1)
    u, v = x / 2, y / 2  # of the pyramid: from its top, in cells
    ground = 0.4 * np.maximum(0, 1 - np.where(u * v > 0, np.maximum(abs(u), abs(v)), abs(u) + abs(v)))
    np.testing.assert_allclose(4.0 - hits.distance, np.where(lid, 2 - x - y, ground), atol=1e-6)
    np.testing.assert_array_equal(hits.geom, np.where(lid, geom(model, "wedge"), geom(model, "ground")))
    np.testing.assert_allclose(hits.normal[lid], np.full((lid.sum(), 3), 3**-0.5), atol=1e-6)
