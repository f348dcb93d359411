"""Pictures on surfaces: those of MuJoCo, those of files, and what pages, films and the live viewer have of them."""

from __future__ import annotations

import base64
import io
import json
import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from drawing import needs_opengl
from test_viewer import _browse, _data, _floats, _png, needs_browser

import xsim
from xsim import viewer
from xsim.poses import rotate
from xsim.viewer.finishes import geom_finish, textured_triangles
from xsim.viewer.scene import make_scene
from xsim.viewer.textures import data_url, scaled, texture_images, textured_glb

FOLDER = Path(__file__).parent / "reference" / "textures"
RECORDED = json.loads((FOLDER.parent / "textures.json").read_text())
SCENE = """
<mujoco>
  <asset>
    <texture name="sky" type="skybox" builtin="gradient" rgb1="0 0 1" rgb2="1 1 1" width="8" height="48"/>
    <texture name="board" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="4" height="4"/>
    <texture name="die" type="cube" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="4" height="4"/>
    <material name="board" texture="board" texrepeat="3 2"/>
    <material name="tinted" texture="board" texrepeat="3 2" texuniform="true" rgba=".5 1 1 1" shininess="1" specular="0" emission=".25"/>
    <material name="die" texture="die"/>
    <material name="plain" rgba="0 1 0 1"/>
    <mesh name="tile" vertex="0 0 0  1 0 0  0 1 0  0 0 1" texcoord="0 0  1 0  0 .25  .9 .7"/>
    <mesh name="bare" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
  </asset>
  <worldbody>
    <geom name="floor" type="plane" size="2 1 .1" material="board"/>
    <geom name="field" type="plane" size="0 0 .1" material="tinted"/>
    <geom name="box" type="box" size=".1 .2 .3" material="tinted"/>
    <geom name="cube" type="box" size=".1 .2 .3" material="die"/>
    <geom name="ball" size=".1" material="plain"/>
    <geom name="own" size=".1" material="board" rgba="0 0 0 1"/>
    <geom name="tile" type="mesh" mesh="tile" material="board"/>
    <geom name="bare" type="mesh" mesh="bare" material="board"/>
    <body name="b"><joint/><geom size=".1"/></body>
  </worldbody>
  <deformable>
    <skin name="hide" vertex="0 0 0  1 0 0  0 1 0" texcoord="0 0  1 0  0 1" face="0 1 2" material="board">
      <bone body="b" bindpos="0 0 0" bindquat="1 0 0 0" vertid="0 1 2" vertweight="1 1 1"/>
    </skin>
  </deformable>
</mujoco>"""


@pytest.fixture(scope="module")
def model():
    return xsim.loads(SCENE, "mjcf")


@pytest.fixture(scope="module")
def page(model):
    return _data(viewer.page(model, np.zeros((1, 1))))


def _decoded(text: str) -> np.ndarray:
    """The pixels of a PNG file in which no row is filtered."""
    data = base64.b64decode(text.removeprefix("data:image/png;base64,"))
    width, height = struct.unpack(">II", data[16:24])
    start = data.index(b"IDAT")
    rows = zlib.decompress(data[start + 4 : start + 4 + struct.unpack(">I", data[start - 4 : start])[0]])
    return np.frombuffer(rows, np.uint8).reshape(height, -1)[:, 1:].reshape(height, width, -1)


def _image(path: Path, pixels) -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'xsim[render]'")
    image.fromarray(np.uint8(pixels)).save(path)


# ---- pictures ----------------------------------------------------------------------------------------------------------------


def test_pictures_and_coordinates_are_those_of_mujoco():
    spec = xsim.parse(FOLDER / "built_in.xml", rules="4.0")
    infos = xsim.build(spec).topology.drawing.textures
    for info in infos:
        np.testing.assert_array_equal(np.concatenate(texture_images(info)), RECORDED["pictures"][info.name])
    for mesh in spec.meshes:
        recorded = RECORDED["meshes"][mesh.name]
        own, theirs = (_by_vertices(f, np.asarray(t)) for f, t in ((mesh.faces, mesh.texcoords), (recorded["faces"], recorded["corners"])))
        assert own.keys() == theirs.keys()
        for face, places in own.items():
            np.testing.assert_allclose(places, theirs[face], atol=1e-7)  # single precision
    again = xsim.parse_text(xsim.to_mjcf(spec), "mjcf", rules="4.0")
    for one, other in zip(spec.meshes, again.meshes, strict=True):
        np.testing.assert_allclose(other.texcoords, one.texcoords, atol=1e-7)
        corners = [mesh.pos + rotate(mesh.quat, mesh.vertices[mesh.faces]) for mesh in (one, other)]  # in the coordinates of the file
        np.testing.assert_allclose(corners[1], corners[0], atol=1e-6)


def _by_vertices(faces, places: np.ndarray) -> dict:
    """Places by the vertices of each face, which begins with its smallest."""
    first = np.argmin(faces, 1)
    return {tuple(np.roll(face, -k).tolist()): np.roll(p, -k, 0) for face, p, k in zip(faces, places, first, strict=True)}


def test_random_dots_are_a_share_of_the_picture(model):
    info = model.topology.drawing.textures[1]._replace(mark="random", random=0.2, width=200, height=100, markrgb=(1.0, 1.0, 1.0))
    (image,) = texture_images(info)
    assert (image == 255).all(-1).mean() == pytest.approx(0.2, abs=0.02)  # four standard deviations are 0.011


def test_pictures_of_files(tmp_path):
    """A grid of the sides of a cube, sides of their own, flips; the others have the first colour."""
    grid = np.kron(np.arange(12).reshape(3, 4), np.ones((2, 2), int)) * 20
    _image(tmp_path / "grid.png", np.repeat(grid[..., None], 3, -1))
    _image(tmp_path / "side.png", [[[9, 9, 9], [1, 2, 3]], [[4, 5, 6], [7, 8, 9]]])
    text = """<mujoco><asset>
      <texture name="grid" file="grid.png" gridsize="3 4" gridlayout=".U..LFRB.D.."/>
      <texture name="side" fileup="side.png" rgb1="1 0 0" hflip="true"/>
      <texture name="flat" type="2d" file="side.png" vflip="true"/>
      <texture name="gone" type="2d" file="gone.png"/>
      <material name="gone" texture="gone"/>
    </asset><worldbody><geom size="1" material="gone" rgba="0 0 1 1"/><body><joint/><geom size=".1"/></body></worldbody></mujoco>"""
    (tmp_path / "m.xml").write_text(text)
    with pytest.warns(UserWarning, match="gone.png"):
        model = xsim.load(tmp_path / "m.xml")
    grid, side, flat, gone = map(texture_images, model.topology.drawing.textures)
    assert [s[0, 0, 0] // 20 for s in grid] == [6, 4, 1, 9, 5, 7]  # right, left, up, down, front, back
    np.testing.assert_array_equal(side[2], [[[1, 2, 3], [9, 9, 9]], [[7, 8, 9], [4, 5, 6]]])
    assert (side[0] == [255, 0, 0]).all() and flat[0].tolist()[0] == [[4, 5, 6], [7, 8, 9]]
    assert gone == "cannot be read: its file is not found"
    data = _data(viewer.page(model, np.zeros((1, 1))))
    assert data["missing"] == ["texture gone (cannot be read: its file is not found)"] and data["textures"] == []


def test_large_pictures_are_scaled_down():
    image = np.zeros((3, 4096, 3), np.uint8)
    image[:, ::2] = 200
    small = scaled(image)
    assert small.shape == (3, 1024, 3) and (small == 100).all()


def test_photographs_are_stored_as_jpeg():
    pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'xsim[render]'")
    rng = np.random.default_rng(0)
    wave = 127 + 60 * np.sin(np.arange(256) / 20) + rng.normal(0, 3, (256, 256))
    assert data_url(np.uint8(np.repeat(wave[..., None], 3, -1))).startswith("data:image/jpeg")
    assert data_url(np.zeros((256, 256, 3), np.uint8)).startswith("data:image/png")


# ---- what a page holds -------------------------------------------------------------------------------------------------------


def test_the_page_has_pictures_coordinates_and_repeats(model, page):
    geoms = {g["name"]: g for g in page["geoms"]}
    pictures = [_decoded(t["images"][0]) for t in page["textures"]]
    board = pictures[geoms["floor"]["texture"]]
    assert board[:2, :2].tolist() == [[[255, 0, 0]] * 2] * 2 and (board[:2, 2:] == [0, 0, 255]).all()
    assert len(page["textures"]) == 3  # each once
    die, sky = page["textures"][geoms["cube"]["texture"]], page["textures"][page["sky"]]
    assert die["sides"] == [0, 0, 0, 0, 1, 1] and len(sky["sides"]) == 6 and len(sky["images"]) == 3
    expected = {
        "floor": ([3, 2, 0], True), "field": ([1.5, 1, 0], False), "box": ([0.3, 0.4, 0], True), "cube": ([10, 5, 3.33333], False),
        "tile": ([3, 2, 0], True),
    }  # fmt: skip
    for name, (factors, given) in expected.items():
        assert (geoms[name]["factors"], geoms[name]["given"]) == ([pytest.approx(factors, rel=1e-5)], given), name
    half = np.abs(xsim.parse_text(SCENE, "mjcf").meshes[1].vertices).max(0)
    assert geoms["bare"]["factors"] == [pytest.approx([1.5 / half[0], 1 / half[1], 0], rel=1e-5)] and not geoms["bare"]["given"]
    assert geoms["ball"]["texture"] == -1 and geoms["ball"]["rgba"] == [0, 1, 0, 1]
    assert geoms["floor"]["rgba"] == [1] * 4 and geoms["box"]["rgba"] == [0.5, 1, 1, 1] and geoms["own"]["rgba"] == [0, 0, 0, 1]
    finish = geoms["box"]["finish"]
    assert [finish[x] for x in ("emission", "shininess", "specular")] == [0.25, 1, 0]
    mesh = page["meshes"][geoms["tile"]["mesh"]]
    faces = np.frombuffer(base64.b64decode(mesh["faces"]), "<u4").reshape(-1, 3)
    np.testing.assert_allclose(_floats(mesh["texcoords"], -1, 3, 2), np.array([[0, 0], [1, 0], [0, 0.25], [0.9, 0.7]])[faces], atol=1e-7)
    (hide,) = page["surfaces"]
    assert hide["repeat"] == [3, 2] and hide["texture"] == geoms["floor"]["texture"]
    np.testing.assert_allclose(_floats(hide["texcoords"], -1, 2), [[0, 0], [1, 0], [0, 1]])


def test_collision_shapes_have_no_pictures(model):
    data = _data(viewer.page(model, np.zeros((1, 1)), collisions=True))
    assert all(g["texture"] == -1 for g in data["geoms"])


@pytest.mark.slow
def test_pictures_of_mesh_files(tmp_path):
    pytest.importorskip("trimesh", reason="trimesh is not installed: pip install 'xsim[mesh]'")
    (tmp_path / "meshes").mkdir()
    _image(tmp_path / "skin.png", [[[250, 0, 0], [0, 250, 0]], [[0, 0, 250], [250, 250, 0]]])
    (tmp_path / "meshes" / "tile.mtl").write_text("newmtl m\nmap_Kd ../skin.png\n")
    (tmp_path / "meshes" / "tile.obj").write_text("mtllib tile.mtl\nusemtl m\n" + (FOLDER / "tile.obj").read_text())
    visual = '<visual><geometry><mesh filename="meshes/tile.obj"/></geometry></visual>'
    (tmp_path / "r.urdf").write_text(f'<robot name="r"><link name="a">{INERTIAL}{visual}</link></robot>')
    model = xsim.load(tmp_path / "r.urdf")
    data = _data(viewer.page(model, model.topology.neutral))
    (geom,) = data["geoms"]
    assert geom["given"] and geom["factors"] == [[1, 1, 0]]
    assert _decoded(data["textures"][geom["texture"]]["images"][0]).tolist()[0] == [[250, 0, 0], [0, 250, 0]]
    vertices, faces = _floats(data["meshes"][0]["vertices"], -1, 3), np.frombuffer(base64.b64decode(data["meshes"][0]["faces"]), "<u4")
    places = _floats(data["meshes"][0]["texcoords"], -1, 2)
    flat = np.abs(vertices[faces][:, 2]) < 1e-6  # the square, on which the picture's first row is at y = 1/2
    np.testing.assert_allclose(places[flat], vertices[faces][flat][:, :2] * [1, -1] + 0.5, atol=1e-6)


INERTIAL = '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>'


def test_pictures_of_urdf_and_sdf(tmp_path):
    """A material's picture is on shapes, a name of it in another visual too; a missing one is said. MJCF keeps those that MuJoCo reads."""
    _image(tmp_path / "skin.png", [[[250, 0, 0], [0, 250, 0]], [[0, 0, 250], [250, 250, 0]]])
    away = tmp_path.parent / f"{tmp_path.name}.png"  # outside of the file's folder: not read
    _image(away, [[[250, 0, 0]]])
    visuals = "".join(
        f'<visual><geometry><box size="1 1 1"/></geometry>{material}</visual>'
        for material in (
            '<material name="skin"/>', '<material name=""><color rgba="1 .5 1 1"/><texture filename="skin.png"/></material>',
            '<material name=""><texture filename="gone.png"/></material>', f'<material name=""><texture filename="{away}"/></material>',
        )
    )  # fmt: skip
    (tmp_path / "r.urdf").write_text(
        f'<robot name="r"><material name="skin"><texture filename="skin.png"/></material><link name="a">{INERTIAL}{visuals}</link></robot>'
    )
    pbr = "<pbr><metal><roughness>1</roughness><albedo_map>{}</albedo_map></metal></pbr>"
    visuals = "".join(
        f'<visual name="v{i}"><geometry><box><size>1 1 1</size></box></geometry><material>{material}</material></visual>'
        for i, material in enumerate((pbr.format("skin.png"), "<diffuse>1 .5 1</diffuse>" + pbr.format("skin.png"), pbr.format("gone.png")))
    )
    (tmp_path / "m.sdf").write_text(f'<sdf version="1.9"><model name="m"><link name="a">{visuals}</link></model></sdf>')
    for file in ("r.urdf", "m.sdf"):
        model = xsim.load(tmp_path / file)
        data = _data(viewer.page(model, model.topology.neutral))
        first, second, third, *_ = data["geoms"]
        assert first["texture"] == second["texture"] >= 0 > third["texture"]
        assert first["rgba"] == [1, 1, 1, 1] and second["rgba"] == [1, 0.5, 1, 1]
        assert _decoded(data["textures"][first["texture"]]["images"][0]).tolist()[0] == [[250, 0, 0], [0, 250, 0]]
        names = ["gone.png", str(away)][: len(data["geoms"]) - 2]
        assert data["missing"] == [f"texture {name} (cannot be read: its file is not found)" for name in names]
        with pytest.warns(xsim.WriteWarning, match="gone.png.*its file is not found"):
            (tmp_path / "written.xml").write_text(xsim.to_mjcf(xsim.parse(tmp_path / file)))
        again = xsim.load(tmp_path / "written.xml")
        assert [look.material >= 0 for look in again.topology.drawing.looks] == [True] * len(data["geoms"])
        assert [t.file for t in again.topology.drawing.textures] == [str(tmp_path / "skin.png")]


@pytest.mark.slow
def test_texture_coordinates_of_mesh_files(tmp_path):
    """The picture of a material is on a mesh by the texture coordinates of its file."""
    pytest.importorskip("trimesh", reason="trimesh is not installed: pip install 'xsim[mesh]'")
    _image(tmp_path / "skin.png", [[[250, 0, 0], [0, 250, 0]], [[0, 0, 250], [250, 250, 0]]])
    (tmp_path / "tile.obj").write_bytes((FOLDER / "tile.obj").read_bytes())
    skin = '<material name="skin"><texture filename="skin.png"/></material>'
    visual = f'<visual><geometry><mesh filename="tile.obj"/></geometry>{skin}</visual>'
    (tmp_path / "r.urdf").write_text(f'<robot name="r"><link name="a">{INERTIAL}{visual}</link></robot>')
    model = xsim.load(tmp_path / "r.urdf")
    (geom,) = _data(viewer.page(model, model.topology.neutral))["geoms"]
    assert geom["given"] and geom["texture"] >= 0


# ---- other pictures ----------------------------------------------------------------------------------------------------------


def test_triangles_with_a_picture_as_gltf(model):
    scene = make_scene(model, np.zeros((1, 1)), None, 1, None, None)
    box = next(i for i, g in enumerate(scene.geoms) if g.name == "box")
    finish = geom_finish(scene, box)
    corners, places = textured_triangles(scene, box, finish, 1.0)
    assert corners.shape == (12, 3, 3) and np.ptp(places.reshape(-1, 2), 0) == pytest.approx([0.3, 0.4])
    data = textured_glb(corners, places, finish.images[0], finish.rgba)
    length, kind = struct.unpack("<I4s", data[12:20])
    text = json.loads(data[20 : 20 + length])
    assert data[:4] == b"glTF" and kind == b"JSON" and struct.unpack("<I", data[8:12])[0] == len(data)
    start, view = 28 + length, text["bufferViews"][0]
    np.testing.assert_allclose(np.frombuffer(data, "<f4", 108, start + view["byteOffset"]).reshape(-1, 3, 3), corners, atol=1e-7)
    trimesh = pytest.importorskip("trimesh", reason="trimesh is not installed: pip install 'xsim[mesh]'")
    read = trimesh.load(io.BytesIO(data), file_type="glb", force="mesh", process=False)
    np.testing.assert_allclose(np.asarray(read.visual.uv) * [1, -1] + [0, 1], places.reshape(-1, 2), atol=1e-6)
    others = [i for i, g in enumerate(scene.geoms) if g.name in ("cube", "ball")]
    assert [textured_triangles(scene, i, geom_finish(scene, i), 1.0) for i in others] == [None, None]


@pytest.mark.slow
def test_the_live_viewer_has_pictures(model):
    pytest.importorskip("viser", reason="viser is not installed: pip install 'xsim[live]'")
    live = xsim.viewer.LiveViewer(model, port=0)
    try:
        found = live.server.scene.get_handle_by_name
        kinds = {g.name: type(found(f"/world/geom {i}")).__name__ for i, g in enumerate(live.scene.scene.geoms)}
        assert {name for name, kind in kinds.items() if kind == "GlbHandle"} == {"floor", "field", "box", "tile", "bare"}
        assert kinds["own"] == kinds["cube"] == "MeshHandle"
    finally:
        live.close()


FROM_ABOVE = """
<mujoco>
  <compiler meshdir="{}"/>
  <asset>
    <texture name="board" type="2d" builtin="checker" rgb1="1 0 0" rgb2="0 0 1" width="64" height="64"/>
    <material name="board" texture="board" texrepeat="{} {}"/>
    <mesh name="tile" file="tile.obj"/>
  </asset>
  <worldbody>{}<body><joint type="slide"/><geom size=".001" rgba="0 0 0 0"/></body></worldbody>
</mujoco>"""
PLANE = '<geom type="plane" size="1 1 .1" material="board"/>'
TILE = '<geom type="mesh" mesh="tile" material="board"/>'


def _checker(picture: np.ndarray, squares: int) -> None:
    """Expect a board of so many red and blue squares a side, which is all of a picture that has a colour; red is the first."""
    red, blue = (picture[..., a].astype(int) - picture[..., b] > 60 for a, b in ((0, 2), (2, 0)))
    rows, columns = (np.flatnonzero((red | blue).any(axis)) for axis in (1, 0))
    assert len(rows) > 60 and len(columns) > 60
    at = [lines[0] + (len(lines) * (np.arange(squares) + 0.5) / squares).astype(int) for lines in (rows, columns)]
    expected = np.add.outer(np.arange(squares), np.arange(squares)) % 2 == 0
    np.testing.assert_array_equal(red[np.ix_(*at)], expected)
    np.testing.assert_array_equal(blue[np.ix_(*at)], ~expected)


@pytest.mark.slow
@pytest.mark.parametrize("geom, repeat", [(PLANE, 2), (TILE, 1)])
def test_films_have_pictures(geom, repeat):
    needs_opengl()
    model = xsim.loads(FROM_ABOVE.format(FOLDER, repeat, repeat, geom), "mjcf")
    image = xsim.render(model, np.zeros(1), azimuth=-90.0, elevation=89.0, zoom=0.03, width=240, height=240)[0]
    _checker(image, 2 * repeat)


@pytest.mark.nightly
@needs_browser
@pytest.mark.parametrize("geom, repeat", [(PLANE, 2), (TILE, 1)])
def test_pictures_in_a_browser(tmp_path, geom, repeat):
    model = xsim.loads(FROM_ABOVE.format(FOLDER, repeat, repeat, geom), "mjcf")
    text = viewer.page(model, np.zeros((1, 1)))
    from_above = 'look(-Math.PI / 2, 1.57); camera.distance = 5; $("grid").checked = false; draw();'
    text = text.replace("draw();\n  setPlaying", from_above + "\n  setPlaying", 1)
    path, picture = tmp_path / "page.html", tmp_path / "shot.png"
    path.write_text(text, encoding="utf-8")
    run = _browse(tmp_path, path, f"--screenshot={picture}")
    assert picture.exists() and not re.search(r"CONSOLE|Uncaught", run.stderr), run.stderr
    _checker(_png(picture)[..., :3], 2 * repeat)
