"""The viewer: what a page holds, that hostile text stays text, the command, and the page in a real browser."""

import base64
import html
import json
import re
import shutil
import struct
import subprocess
import zlib
from html.parser import HTMLParser
from importlib.resources import files

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from drawing import needs_opengl

import xsim
from xsim import view, viewer
from xsim.spec import BodySpec, GeomSpec, JointSpec, ModelSpec, OptionSpec

ASSETS = files("xsim.viewer") / "assets"
HOSTILE = "</script><img src=x onerror=alert(1)>\"'&\u2028 $x$ %%DATA%%"
SHAPES = {
    "box": (0.1, 0.2, 0.3), "sphere": (0.1,), "capsule": (0.05, 0.2), "cylinder": (0.1, 0.2), "ellipsoid": (0.1, 0.2, 0.3),
    "cone": (0.1, 0.2),
}  # fmt: skip


def _spec(name="every shape", names="b"):
    bodies = tuple(
        BodySpec(
            f"{names}{i}", i - 1, JointSpec("hinge", params={"axes": np.array([[0.0, 1.0, 0.0]])}), pos=np.array([0.3, 0.0, 0.0]),
            geoms=(GeomSpec(shape, np.array(size), mass=float(shape != "cone"), pos=np.array([0.1, 0.0, 0.0])),),
        )
        for i, (shape, size) in enumerate(SHAPES.items())
    )  # fmt: skip
    small = (GeomSpec("axes", np.array([0.2])), GeomSpec("sphere", np.array([0.05]), 0.1))
    saddle = BodySpec(f"{names}u", 1, JointSpec("universal"), geoms=small)
    floor = GeomSpec("plane", np.array([2.0, 2.0]), pos=np.array([0.0, 0.0, -1.0]))
    scenery = (floor, GeomSpec("box", np.array([0.1] * 3), name=names))
    return ModelSpec(name, bodies=(*bodies, saddle), world_geoms=scenery, option=OptionSpec(dt=0.01))


def _small():
    body = BodySpec("a", -1, JointSpec("hinge"), geoms=(GeomSpec("box", np.ones(3), 1.0),))
    return ModelSpec("small", bodies=(body,), option=OptionSpec(dt=0.01))


@pytest.fixture(scope="module")
def model():
    return xsim.build(_spec())


@pytest.fixture(scope="module")
def motion(model):
    rng = np.random.default_rng(0)
    return np.cumsum(rng.normal(0, 0.05, (41, 3, model.nq)), 0)


def _data(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def _floats(text: str, *shape) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4").reshape(shape)


# ---- what a page holds -------------------------------------------------------------------------------------------------------


def test_every_geom_is_in_the_page(model, motion):
    data = _data(viewer.page(model, motion))
    assert [(g["shape"], g["body"]) for g in data["geoms"]] == [(g.shape, g.body) for g in model.topology.geoms]
    assert {g["shape"] for g in data["geoms"]} == {*SHAPES, "axes", "plane"}
    for g, size in zip(model.topology.geoms, data["size"][0], strict=True):
        np.testing.assert_allclose(size[: len(g.size)], g.size, rtol=1e-5)
    assert all(len(g["rgba"]) == 4 and all(0 <= c <= 1 for c in g["rgba"]) for g in data["geoms"])


def test_visual_shapes_are_drawn_and_collisions_where_there_are_none():
    shape = lambda kind, name, **use: GeomSpec(kind, np.full(1 if kind == "sphere" else 3, 0.1), name=name, **use)  # noqa: E731
    visual, collision = {"collision": False}, {"visual": False}
    geoms = {
        "both": (shape("box", "seen", **visual), shape("sphere", "touched", **collision)),
        "mesh": (shape("mesh", "scan", **visual), shape("sphere", "hull", **collision)),
        "none": (shape("mesh", "alone"),),
    }
    bodies = tuple(BodySpec(name, -1, JointSpec("hinge"), geoms=own) for name, own in geoms.items())
    model = xsim.build(ModelSpec("looks", bodies=bodies))
    data = _data(viewer.page(model, np.zeros((2, 3))))
    assert [g["name"] for g in data["geoms"]] == ["seen", "hull"]
    assert data["missing"] == ["mesh scan (no surface)", "mesh alone (no surface)"]


def test_poses_are_those_of_kinematics(model, motion):
    data = _data(viewer.page(model, motion, fps=None))
    poses = _floats(data["poses"], 41, 3, len(model.body_names), 7)
    pos, quat = jax.jit(xsim.kinematics)(model, jnp.asarray(motion, model.option.dt.dtype))
    # Programs compiled with other options round differently; one float32 step of numbers of size 1 is 1e-7.
    np.testing.assert_allclose(poses[..., :3], pos, atol=3e-6)
    np.testing.assert_allclose(poses[..., 3:], quat, atol=3e-6)


@pytest.mark.parametrize(
    "shape, options, frames, envs",
    [
        ((41,), {"fps": None}, 41, [0]),
        ((41,), {}, 41, [0]),  # 100 rows per second: every row, as every second one would be too few for 60
        ((41,), {"fps": 50}, 21, [0]),
        ((42,), {"fps": 50}, 22, [0]),  # the last row is kept
        ((), {}, 1, [0]),
        ((7, 3), {"envs": 2}, 7, [0, 1]),
        ((7, 3), {"envs": (2, 0)}, 7, [2, 0]),
        ((7, 3), {"env": 2, "envs": 2}, 7, [0, 2]),
        ((7, 2, 2), {}, 7, [0, 1, 2, 3]),
    ],
)
def test_trajectory_lengths(shape, options, frames, envs):
    model = xsim.build(_small())
    data = _data(viewer.page(model, np.zeros((*shape, model.nq)), **options))
    assert len(data["times"]) == frames and data["envs"] == envs
    assert data["shown"] == (envs.index(options["env"]) if "env" in options else -1)
    assert _floats(data["poses"], frames, len(envs), len(model.body_names), 7).shape[0] == frames
    if shape:
        assert data["times"][-1] == pytest.approx((shape[0] - 1) * 0.01, abs=1e-6)


def test_environments_have_their_own_leaves(model):
    sizes = jnp.stack([model.geom.size * s for s in (1.0, 2.0, 3.0)])
    axes = jnp.stack([model.joint.axes.at[0].set(jnp.eye(3)[k]) for k in (0, 1, 2)])
    pos = jnp.stack([model.body.pos * s for s in (1.0, 2.0, 3.0)])
    varied = model.replace({"geom.size": sizes, "joint.axes": axes, "body.pos": pos})
    data = _data(viewer.page(varied, np.zeros((4, model.nq)), envs=(2, 0)))
    box = next(i for i, g in enumerate(model.topology.geoms) if g.body == 0)
    assert [e[box] for e in data["size"]] == [pytest.approx([0.3, 0.6, 0.9]), pytest.approx([0.1, 0.2, 0.3])]
    directions = _floats(data["directions"], 4, 2, len(data["axes"]), 3)
    np.testing.assert_allclose(directions[0, :, 0], [[0, 0, 1], [1, 0, 0]], atol=1e-6)
    poses = _floats(data["poses"], 4, 2, len(model.body_names), 7)
    np.testing.assert_allclose(poses[0, :, 0, 0], [0.9, 0.3], atol=1e-6)


def test_axis_directions_are_what_the_bodies_turn_about(model, motion):
    """Changing one coordinate turns the joint's body about the axis the page draws; here for every hinge of a branched tree."""
    links = [link for link in model.topology.links if isinstance(link.axis, int)]
    turn = 1e-2
    q = motion[1, 0] + np.concatenate([np.zeros((1, model.nq)), turn * np.eye(model.nq)])
    data = _data(viewer.page(model, q, fps=None))
    directions = _floats(data["directions"], len(q), 1, len(links), 3)[0, 0]
    quat = _floats(data["poses"], len(q), 1, len(model.body_names), 7)[:, 0, :, 3:].astype(float)
    for axis, link in zip(directions, links, strict=True):
        (w, *x), (u, *y) = quat[0, link.body], quat[1 + link.q, link.body]
        turned = w * np.array(y) - u * np.array(x) + np.cross(x, y)  # the vector part of new times old^-1, up to its sign
        # float32 quaternions: 1e-7 in a sine of 5e-3.
        np.testing.assert_allclose(turned / np.sin(turn / 2), axis, atol=2e-4)


def test_a_frozen_model_and_a_motion_that_is_not_finite(model, motion):
    q = np.array(motion[:5, :1])
    q[3:] = np.nan
    data = _data(viewer.page(model.freeze("*"), q))
    poses = _floats(data["poses"], 5, 1, len(model.body_names), 7)
    assert np.isfinite(poses[:3]).all() and not np.isfinite(poses[3:]).all()


@pytest.mark.parametrize(
    "shape, options, message",
    [((5, 99), {}, "q must have shape"), ((0, 8), {}, "no rows"), ((5, 8), {"dt": 0.0}, "dt must be positive"),
     ((5, 8), {"env": 1}, "no environment 1"), ((5, 2, 8), {"envs": (0, 2)}, "no environment 2"),
     ((5, 2, 8), {"envs": ()}, "envs is empty")],
)  # fmt: skip
def test_bad_arguments_are_refused(model, shape, options, message):
    with pytest.raises(ValueError, match=message):
        viewer.page(model, np.zeros(shape), **options)


# ---- meshes, height fields, deformables, tendons ------------------------------------------------------------------------------

SURFACES = """
<mujoco>
  <asset>
    <mesh name="wedge" vertex="0 0 0  0.2 0 0  0 0.1 0  0 0 0.1"/>
    <hfield name="hill" nrow="3" ncol="4" size="2 1 0.5 0.1" elevation="0 0 0 0  0 1 0.5 0  0 0 0 0"/>
    <material name="glass" rgba="0.1 0.2 0.3 0.4"/>
  </asset>
  <worldbody>
    <geom name="ground" type="hfield" hfield="hill"/>
    <geom name="post" type="cylinder" size="0.1 0.2" euler="90 0 0" pos="0 0 2"/>
    <site name="fixed" pos="-0.5 0 1.9"/>
    <body name="arm" pos="0.5 0 1.9">
      <joint type="slide" axis="0 0 1"/>
      <geom name="shown" type="mesh" mesh="wedge" material="glass" contype="0" conaffinity="0"/>
      <geom name="hidden" type="mesh" mesh="wedge" group="3"/>
      <site name="moving" rgba="1 0 0 1"/>
    </body>
  </worldbody>
  <tendon><spatial name="rope" width="0.02"><site site="fixed"/><geom geom="post"/><site site="moving"/></spatial></tendon>
</mujoco>"""
ROPE = """
<mujoco>
  <option><flag contact="disable"/></option>
  <worldbody>
    <geom name="post" type="cylinder" size="0.1 0.2" euler="90 0 0" pos="0 0 2"/>
    <site name="fixed" pos="-0.5 0 1.9"/>
    <body name="arm" pos="0.5 0 1.9">
      <joint type="slide" axis="0 0 1"/><geom size="0.1"/><site name="moving" rgba="1 0 0 1"/>
    </body>
  </worldbody>
  <tendon><spatial name="rope" width="0.02"><site site="fixed"/><geom geom="post"/><site site="moving"/></spatial></tendon>
  <sensor><tendonpos tendon="rope"/></sensor>
</mujoco>"""


@pytest.fixture(scope="module")
def surfaces():
    return xsim.loads(SURFACES, "mjcf")


def test_meshes_and_height_fields_are_in_the_page(surfaces):
    data = _data(viewer.page(surfaces, np.zeros((2, 1))))
    assert [(g["name"], g["shape"], g["mesh"] >= 0) for g in data["geoms"]] == [
        ("ground", "hfield", True), ("post", "cylinder", False), ("shown", "mesh", True)]  # fmt: skip
    assert data["geoms"][2]["rgba"] == [0.1, 0.2, 0.3, 0.4] and not data["missing"]
    for geom, size, top in ((0, [2, 1, 0.5], 1.0), (2, [1, 1, 1], None)):
        mesh = data["meshes"][data["geoms"][geom]["mesh"]]
        vertices = _floats(mesh["vertices"], -1, 3)
        faces = np.frombuffer(base64.b64decode(mesh["faces"]), "<u4").reshape(-1, 3)
        assert data["size"][0][geom] == size and faces.max() < len(vertices)
        a, b, c = np.moveaxis(vertices[faces].astype(float), 1, 0)
        # Closed, with the outside on the right side: each edge once in each sense, and a positive volume.
        edges = np.concatenate([faces[:, [0, 1]], faces[:, [1, 2]], faces[:, [2, 0]]]).tolist()
        assert sorted(map(tuple, edges)) == sorted((j, i) for i, j in edges)
        assert np.einsum("ij,ij->", a, np.cross(b, c)) > 0
        assert top is None or vertices[:, 2].max() == top


def test_collision_shapes_on_demand(surfaces):
    data = _data(viewer.page(surfaces, np.zeros((2, 1)), collisions=True))
    assert [g["name"] for g in data["geoms"]] == ["ground", "post", "hidden"]


def test_a_tendon_has_its_path_around_a_geom():
    model = xsim.loads(ROPE, "mjcf")
    q = np.linspace(0, 0.3, 3)[:, None]
    data = _data(viewer.page(model, q, fps=None))
    (rope,) = data["tendons"]
    path = _floats(data["paths"], 3, 1, -1, 3)[:, 0].astype(float)
    assert (rope["first"], rope["count"], rope["width"]) == (0, path.shape[1], 0.02)
    lengths = np.linalg.norm(np.diff(path, axis=1), axis=-1).sum(-1)
    expected = xsim.sensors(model, xsim.init(model, q=jnp.asarray(q)))[:, 0]
    np.testing.assert_allclose(lengths, expected, rtol=2e-3)  # chords of 12 pieces of an arc
    np.testing.assert_allclose(path[:, -1], [[0.5, 0, 1.9 + x] for x in q[:, 0]], atol=1e-6)
    assert (np.linalg.norm(path[:, :, [0, 2]] - [0, 2], axis=-1) > 0.1 - 1e-6).all()
    assert [s["name"] for s in data["sites"]] == ["fixed", "moving"] and data["sites"][1]["rgba"] == [1, 0, 0, 1]


@pytest.mark.slow
def test_contacts_are_shown_on_demand():
    ball = '<body pos="0 0 0.09"><freejoint/><geom size="0.1" mass="2"/></body>'
    model = xsim.loads(f'<mujoco><worldbody><geom type="plane" size="1 1 1"/>{ball}</worldbody></mujoco>', "mjcf")
    state = xsim.init(model)
    found = xsim.contacts(model, state)
    data = _data(viewer.page(model, state.q[None], contacts=jax.tree.map(lambda x: x[None], found)))
    numbers = _floats(data["contacts"]["numbers"], 1, 1, data["contacts"]["count"], 6)[0, 0]
    (contact,) = numbers[np.isfinite(numbers[:, 0])]
    assert contact[5] > 0 and abs(contact[2] - 0.0) < 0.02
    with pytest.raises(ValueError, match="contacts must have the shape"):
        viewer.page(model, np.stack([state.q] * 3), contacts=jax.tree.map(lambda x: x[None], found))


def test_vertices_of_deformables_follow_their_bodies():
    text = """
    <mujoco>
      <worldbody>
        <body name="a"><joint type="slide" axis="1 0 0"/><geom size="0.01" mass="1"/></body>
        <body name="b" pos="1 0 0"><joint type="slide" axis="1 0 0"/><geom size="0.01" mass="1"/></body>
      </worldbody>
      <deformable>
        <flex name="cloth" dim="2" body="a b world" vertex="0 0 0  0 0 0  0 1 0" element="0 1 2" rgba="0 1 0 1"/>
        <skin name="hide" vertex="0 0 0  1 0 0  0.5 1 0" face="0 1 2">
          <bone body="a" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 2" vertweight="1 1"/>
          <bone body="b" bindpos="1 0 0" bindquat="1 0 0 0" vertid="1 2" vertweight="1 1"/>
        </skin>
      </deformable>
    </mujoco>"""
    data = _data(viewer.page(xsim.loads(text, "mjcf"), np.array([[0.25, 0.75]])))
    cloth, hide = data["surfaces"]
    assert cloth["name"] == "cloth" and cloth["rgba"] == [0, 1, 0, 1] and cloth["corners"] == 3
    np.testing.assert_allclose(_vertices(data, cloth), [[0.25, 0, 0], [1.75, 0, 0], [0, 1, 0]], atol=1e-6)
    np.testing.assert_allclose(_vertices(data, hide), [[0.25, 0, 0], [1.75, 0, 0], [1.0, 1, 0]], atol=1e-6)


def _vertices(data: dict, surface: dict) -> np.ndarray:
    """Places of the vertices in the first frame, for bodies that do not turn."""
    pos = np.concatenate([_floats(data["poses"], len(data["times"]), len(data["envs"]), -1, 7)[0, 0, :, :3], np.zeros((1, 3))])
    vertices, bodies = (np.frombuffer(base64.b64decode(surface[name]), "<i4") for name in ("vertices", "bodies"))
    out = np.zeros((surface["count"], 3))
    weights = _floats(surface["weights"], -1, 1)
    np.add.at(out, vertices, weights * (pos[bodies] + _floats(surface["points"], -1, 3)))
    return out


@pytest.mark.slow
def test_visual_meshes_are_read_from_their_files(tmp_path):
    trimesh = pytest.importorskip("trimesh", reason="trimesh is not installed: pip install 'xsim[mesh]'")
    trimesh.creation.box((1, 1, 1)).export(tmp_path / "cube.stl")
    visual = '<visual><geometry><mesh filename="{}" scale="1 2 3"/></geometry></visual>'
    inertial = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'
    text = f'<robot name="r"><link name="a">{inertial}{visual.format("cube.stl")}</link></robot>'
    (tmp_path / "r.urdf").write_text(text)
    model = xsim.load(tmp_path / "r.urdf")
    data = _data(viewer.page(model, model.topology.neutral))
    (geom,) = data["geoms"]
    assert geom["mesh"] == 0 and data["size"][0][0] == [1, 2, 3] and not data["missing"]
    (tmp_path / "r.urdf").write_text(text.replace("cube.stl", "none.stl"))
    model = xsim.load(tmp_path / "r.urdf")
    data = _data(viewer.page(model, model.topology.neutral))
    assert data["missing"] == ["mesh none.stl (not found)"]


# ---- hostile text, no network ------------------------------------------------------------------------------------------------


class _Elements(HTMLParser):
    def __init__(self, page: str):
        super().__init__()
        self.tags, self.attributes = [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes.extend(attributes)


@pytest.mark.slow
def test_hostile_names_stay_text(motion):
    hostile = xsim.build(_spec(HOSTILE, HOSTILE))
    page = viewer.page(hostile, motion)
    calm = viewer.page(xsim.build(_spec()), motion)
    assert _Elements(page).tags == _Elements(calm).tags
    assert "<img" not in page and page.count("</script>") == 3
    data = _data(page)
    assert data["title"] == HOSTILE and data["bodies"][0] == HOSTILE + "0"
    assert html.escape(HOSTILE) in page


def test_a_page_refers_to_nothing_outside(model, motion):
    page, library = viewer.page(model, motion), (ASSETS / "three.bundle.min.js").read_text(encoding="utf-8")
    assert page.count(library) == 1
    assert not re.search(r"https?://|//[a-z]+\.|@import|url\(|fetch\(|XMLHttpRequest|innerHTML", page.replace(library, ""), re.IGNORECASE)
    # The name of the namespace of HTML elements is no address that is opened.
    assert set(re.findall(r"https?://[^\"'` ]+", library)) == {"http://www.w3.org/1999/xhtml"}
    assert not {"src", "href"} & {name for name, _ in _Elements(page).attributes}
    assert "default-src 'none'" in page


def test_the_library_has_its_licence():
    assert "The MIT License" in (ASSETS / "three.LICENSE").read_text(encoding="utf-8")
    assert "three.js 0.187.0" in (ASSETS / "README.md").read_text(encoding="utf-8")


def test_notebook_frame(model, motion, tmp_path):
    shown = viewer.show(model, motion, height=321, title=HOSTILE)
    elements = _Elements(shown._repr_html_())
    assert elements.tags == ["iframe"]
    attributes = dict(elements.attributes)
    assert attributes["srcdoc"] == shown.html and "321px" in attributes["style"] and attributes["sandbox"] == "allow-scripts"
    assert shown.save(tmp_path / "a.html").read_text(encoding="utf-8") == shown.html


# ---- command -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_command_writes_a_page(tmp_path, capsys):
    out = tmp_path / "p.html"
    assert view.main(["pendulum", "--steps", "20", "--envs", "2", "--no-open", "--output", str(out)]) == 0
    data = _data(out.read_text(encoding="utf-8"))
    assert data["envs"] == [0, 1] and data["bodies"] and str(out) in capsys.readouterr().out
    model = xsim.load(xsim.models.path("pendulum"))
    assert data["times"][-1] == pytest.approx(20 * float(model.option.dt), rel=1e-5)
    poses = _floats(data["poses"], len(data["times"]), 2, len(data["bodies"]), 7)
    assert np.abs(poses[-1, 0] - poses[-1, 1]).max() > 1e-4  # different start velocities


@pytest.mark.parametrize("text", ["<x_xy><worldbody><body name='a' joint='nonsense'/></worldbody></x_xy>", "<x_xy", ""])
def test_command_explains_a_bad_file(tmp_path, capsys, text):
    bad = tmp_path / "bad.xml"
    bad.write_text(text)
    assert view.main([str(bad), "--no-open"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("error: ") and "bad.xml" in err and "Traceback" not in err


def test_command_explains_a_missing_file_and_bad_numbers(tmp_path, capsys):
    assert view.main([str(tmp_path / "none.xml"), "--no-open"]) == 1
    assert "none.xml" in capsys.readouterr().err
    for arguments in (["--steps", "-1"], ["--seconds", "nan"], ["--envs", "0"], ["--envs", "x"]):
        with pytest.raises(SystemExit) as stop:
            view.main(["pendulum", *arguments])
        assert stop.value.code == 2 and arguments[0] in capsys.readouterr().err


# ---- pictures ----------------------------------------------------------------------------------------------------------------


def _png(path) -> np.ndarray:
    """Pixels (height, width, channels) of an 8-bit PNG without interlacing."""
    raw = path.read_bytes()
    at, packed = 8, b""
    while at < len(raw):
        length, kind = struct.unpack(">I4s", raw[at : at + 8])
        body = raw[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, height, bits, color = struct.unpack(">IIBB", body[:10])
        packed += body if kind == b"IDAT" else b""
        at += 12 + length
    assert bits == 8
    n = {2: 3, 6: 4}[color]
    rows = np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, 1 + width * n)
    out = np.zeros((height, width, n), np.uint8)
    above = np.zeros((width, n), int)
    for y in range(height):
        line, kind = rows[y, 1:].reshape(width, n).astype(int), rows[y, 0]
        if kind == 1:
            line = np.cumsum(line, 0) % 256
        elif kind == 2:
            line = (line + above) % 256
        elif kind in (3, 4):
            before = corner = np.zeros(n, int)
            for x in range(width):
                guess = (before + above[x]) // 2 if kind == 3 else _paeth(before, above[x], corner)
                corner, before = above[x], (line[x] + guess) % 256
                line[x] = before
        out[y] = above = line
    return out


def _paeth(a, b, c):
    pa, pb, pc = abs(b - c), abs(a - c), abs(a + b - 2 * c)
    return np.where((pa <= pb) & (pa <= pc), a, np.where(pb <= pc, b, c))


@pytest.mark.slow
def test_picture(model, motion, tmp_path):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'xsim[plot]'")
    path = viewer.picture(model, motion, tmp_path / "m.png", env=1, moments=3, title=HOSTILE, inches=(3, 2), dpi=60)
    pixels = _png(path)
    assert pixels.shape[:2] == (120, 180) and len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 100
    with pytest.raises(ValueError, match="finite"):
        viewer.picture(model, np.full((3, model.nq), np.nan), tmp_path / "n.png")


def test_picture_without_matplotlib(model, motion, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"xsim\[plot\]"):
        viewer.picture(model, motion, tmp_path / "m.png")


# ---- images and films --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_render(model, motion, tmp_path):
    needs_opengl()
    images = xsim.render(model, motion[:, 1], fps=50, width=160, height=120)
    assert images.shape == (21, 120, 160, 3) and images.dtype == np.uint8
    colored = ((images.max(-1).astype(int) - images.min(-1)) > 60).sum((1, 2))
    assert (colored > 100).all() and (images[0] != images[-1]).any()
    pytest.importorskip("imageio_ffmpeg", reason="imageio is not installed: pip install 'xsim[render]'")
    film = xsim.render(model, motion[:4], tmp_path / "film.gif", env=1, width=64, height=48)
    assert film == tmp_path / "film.gif" and film.read_bytes()[:3] == b"GIF"


@pytest.mark.slow
def test_render_of_deformables_and_tendons():
    needs_opengl()
    rope = xsim.loads(ROPE.replace('width="0.02"', 'width="0.02" rgba="1 0 0 1"'), "mjcf")
    image = xsim.render(rope, np.zeros(1), width=160, height=120)[0].astype(int)
    assert ((image[..., 0] - image[..., 1:].max(-1)) > 60).sum() > 50


@pytest.mark.slow
def test_the_command_makes_films(tmp_path, capsys):
    needs_opengl()
    pytest.importorskip("imageio_ffmpeg", reason="imageio is not installed: pip install 'xsim[render]'")
    film = tmp_path / "film.gif"
    assert view.main(["pendulum", "--steps", "3", "--no-open", "--output", str(film)]) == 0
    assert film.read_bytes()[:3] == b"GIF" and f"wrote {film}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_camera_follows():
    """A ball that goes far away stays in the middle of the images, and as large."""
    needs_opengl()
    world = '<worldbody><body><joint type="slide" axis="1 0 0"/><geom size=".5" rgba="1 0 0 1"/></body></worldbody>'
    ball = xsim.loads(f"<mujoco>{world}</mujoco>", "mjcf")
    images = xsim.render(ball, np.linspace(0.0, 50.0, 3)[:, None], dt=1.0, width=80, height=80, follow=True).astype(int)
    red = images[..., 0] > images[..., 1:].max(-1) + 40
    assert (red.sum((1, 2)) == red[0].sum()).all() and 500 < red[0].sum() < 5000
    for image in red:
        np.testing.assert_allclose(np.argwhere(image).mean(0), 39.5, atol=1.0)


@pytest.mark.slow
def test_render_by_the_ending_of_the_file(model, motion, tmp_path):
    path = xsim.render(model, motion[:, 0], tmp_path / "page.html")
    assert _data(path.read_text(encoding="utf-8"))["envs"] == [0]
    with pytest.raises(ValueError, match=r"\.gif, \.mp4 or \.html, found '\.bmp'"):
        xsim.render(model, motion, tmp_path / "film.bmp")


@pytest.mark.slow
def test_render_without_vtk(model, motion, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "vtkmodules.vtkRenderingOpenGL2", None)
    with pytest.raises(ImportError, match=r"xsim\[render\]"):
        xsim.render(model, motion[:1, 0])


# ---- a real browser ----------------------------------------------------------------------------------------------------------

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


def _browse(tmp_path, page, *options) -> subprocess.CompletedProcess:
    command = [
        BROWSER, "--headless", "--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking",
        "--no-first-run", "--hide-scrollbars",
        "--disable-dev-shm-usage", "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=480,320",
        "--virtual-time-budget=1500", *options, page.as_uri(),
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def _colored(path) -> int:
    """How many pixels of a screenshot, without title and controls, have a colour; background, grid and shadows are grey."""
    middle = _png(path)[40:220, :, :3].astype(int)
    assert len(np.unique(middle.reshape(-1, 3), axis=0)) > 50
    return int(((middle.max(-1) - middle.min(-1)) > 60).sum())


needs_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed, and only a browser can run the page")


@pytest.mark.nightly
@needs_browser
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("frame", [False, True])
def test_page_in_a_browser(motion, tmp_path, count, frame):
    """The page draws something and has no error, with names that would break it if they were read as code, alone and in a notebook's
    frame."""
    shown = viewer.show(xsim.build(_spec(HOSTILE, HOSTILE)), motion[:, :count], height=300)
    path, picture = tmp_path / "page.html", tmp_path / "shot.png"
    path.write_text(shown._repr_html_() if frame else shown.html, encoding="utf-8")
    run = _browse(tmp_path, path, f"--screenshot={picture}")
    assert picture.exists(), run.stderr
    assert not re.search(r"CONSOLE|Uncaught", run.stderr), run.stderr
    assert _colored(picture) > 200
    if not frame:
        text = _browse(tmp_path, path, "--dump-dom").stdout
        assert 'data-ready="' in text and "data-error" not in text


@pytest.mark.nightly
@needs_browser
def test_surfaces_in_a_browser(surfaces, tmp_path):
    path, picture = viewer.save(surfaces, np.zeros((2, 1)), tmp_path / "page.html"), tmp_path / "shot.png"
    run = _browse(tmp_path, path, f"--screenshot={picture}")
    assert picture.exists() and not re.search(r"CONSOLE|Uncaught", run.stderr), run.stderr
    assert _colored(picture) > 20  # the rope


@pytest.mark.nightly
@needs_browser
def test_a_browser_without_webgl_is_told_so(model, motion, tmp_path):
    path = viewer.save(model, motion, tmp_path / "page.html")
    text = _browse(tmp_path, path, "--disable-webgl", "--disable-3d-apis", "--dump-dom").stdout
    assert 'data-webgl="missing"' in text and "This page draws with WebGL, which this browser does not offer." in text
