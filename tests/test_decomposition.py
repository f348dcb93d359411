"""Convex decomposition of meshes: what is hollow stays hollow, in every format, and nothing but collision geometry changes.

The mesh is a channel, a U of three bars: 0.2 m wide, 0.15 m high, its walls and its floor 0.05 m thick. CoACD's search is kept short.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import ConvexDecomposition
from xsim.cache import CACHE_VARIABLE
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, convex_parts, decomposition, parse, parse_text
from xsim.poses import rotate

trimesh = pytest.importorskip("trimesh")
pytest.importorskip("coacd", reason="coacd is not installed: pip install 'xsim[mesh]'")

OUTLINE = 0.05 * np.array([(-2, 0), (2, 0), (2, 3), (1, 3), (1, 1), (-1, 1), (-1, 3), (-2, 3)])  # x, z; counter-clockwise
VOLUME = 4e-3
QUICK = ConvexDecomposition(max_convex_hull=3, resolution=1000, mcts_nodes=10, mcts_iterations=100, mcts_max_depth=2)
RADIUS, FLOOR, TOP = 0.03, 0.05, 0.15


def channel() -> trimesh.Trimesh:
    n = len(OUTLINE)
    ends = [(0, 1, 4), (0, 4, 5), (1, 2, 3), (1, 3, 4), (0, 5, 6), (0, 6, 7)]
    sides = [face for i in range(n) for j in [(i + 1) % n] for face in [(i, i + n, j + n), (i, j + n, j)]]
    faces = [*ends, *((a + n, c + n, b + n) for a, b, c in ends), *sides]
    return trimesh.Trimesh([(x, y, z) for y in (-0.1, 0.1) for x, z in OUTLINE], faces, process=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("meshes")
    mesh = channel()
    assert mesh.is_watertight and mesh.volume == pytest.approx(VOLUME)
    mesh.export(folder / "channel.stl")
    trimesh.creation.icosphere(2, RADIUS).export(folder / "ball.stl")
    return folder


MESH = '<mesh name="channel" file="channel.stl" inertia="exact"/><mesh name="ball" file="ball.stl"/>'


def mjcf(body="", ball="", more=""):
    bodies = f'<body name="b">{body}<geom name="c" type="mesh" mesh="channel" density="500"/></body>'
    return f'<mujoco><asset>{MESH}</asset><worldbody>{bodies}{ball}</worldbody>{more}</mujoco>'


def urdf(scale="1 1 1"):
    mesh = f'<link name="world"><collision><geometry><mesh filename="channel.stl" scale="{scale}"/></geometry></collision></link>'
    inertial = '<inertial><mass value="1"/><inertia ixx="1e-3" iyy="1e-3" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial>'
    ball = f'<link name="ball">{inertial}<collision><geometry><sphere radius="{RADIUS}"/></geometry></collision></link>'
    joint = '<joint name="j" type="floating"><origin xyz="0 0 0.25"/><parent link="world"/><child link="ball"/></joint>'
    return f'<robot name="r">{mesh}{ball}{joint}</robot>'


def sdf(scale="1 1 1", attributes="", inside=""):
    mesh = f"<mesh {attributes}><uri>channel.stl</uri><scale>{scale}</scale>{inside}</mesh>"
    fixed = f'<model name="m"><static>1</static><link name="l"><collision name="c"><geometry>{mesh}</geometry></collision></link></model>'
    sphere = f"<geometry><sphere><radius>{RADIUS}</radius></sphere></geometry>"
    ball = f'<model name="b"><pose>0 0 0.25 0 0 0</pose><link name="ball"><collision name="d">{sphere}</collision></link></model>'
    return f'<sdf version="1.11"><world name="w">{fixed}{ball}</world></sdf>'


def skel(scale="1 1 1"):
    mesh = f"<geometry><mesh><file_name>channel.stl</file_name><scale>{scale}</scale></mesh></geometry>"
    body = f'<body name="b"><inertia><mass>1</mass></inertia><collision_shape>{mesh}</collision_shape></body>'
    joint = '<joint type="free" name="j"><parent>world</parent><child>b</child></joint>'
    return f'<skel version="1.0"><world name="w"><skeleton name="s">{body}{joint}</skeleton></world></skel>'


DROP = mjcf(ball=f'<body name="ball" pos="0 0 0.25"><freejoint/><geom size="{RADIUS}"/></body>')
NAMES = {"mjcf": "m.xml", "urdf": "m.urdf", "sdf": "m.sdf", "skel": "m.skel"}


@pytest.fixture
def file(folder):
    def written(format, text):
        (folder / NAMES[format]).write_text(text)
        return folder / NAMES[format]

    return written


def geoms_of(spec) -> list:
    return [*spec.world_geoms, *(geom for body in spec.bodies for geom in body.geoms)]


def without_geoms(spec) -> bytes:
    return pickle.dumps([replace(body, geoms=()) for body in spec.bodies])


def test_options_of_the_search():
    bad = [("threshold", 0), ("threshold", 1.5), ("max_convex_hull", 0), ("max_ch_vertex", 3), ("preprocess_mode", "no"), ("seed", -1)]
    for name, value in bad:
        with pytest.raises(ValueError, match=f"{name}: found .*; allowed"):
            ConvexDecomposition(**{name: value})
    assert ConvexDecomposition("cup").names == ("cup",)
    with pytest.raises(TypeError, match="convex_decomposition: found 0.05; allowed: True, False, None or a ConvexDecomposition"):
        parse(xsim.models.path("chain"), convex_decomposition=0.05)


# ---- what collides -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "format, text, option, height",
    [
        pytest.param("mjcf", DROP, None, TOP, id="hull", marks=pytest.mark.nightly),
        pytest.param("mjcf", DROP, QUICK, FLOOR, id="mjcf"),
        pytest.param("urdf", urdf(), QUICK, FLOOR, id="urdf", marks=pytest.mark.nightly),
        pytest.param("sdf", sdf(), QUICK, FLOOR, id="sdf", marks=pytest.mark.nightly),
    ],
)
def test_a_ball_falls_into_the_channel(file, format, text, option, height):
    """A ball of 3 cm fits between the walls, 10 cm apart; the convex hull of the channel closes it at the top."""
    model = xsim.load(file(format, text), convex_decomposition=option)
    ball = model.body_names.index("ball" if format != "sdf" else "b::ball")
    steps = round(0.8 / float(model.option.dt))
    final, z = xsim.rollout(model, xsim.init(model), steps=steps, record=lambda state, data: data.pos[ball, 2])
    assert z[0] > 0.24 and final.flags == 0
    np.testing.assert_allclose(z[-1], height + RADIUS, atol=2e-3)  # contacts are soft, parts deviate by fractions of a millimetre


@pytest.mark.parametrize("format", ["mjcf", "urdf", "sdf", "skel"])
def test_parts_fill_the_mesh(file, format):
    """In place, size and orientation, also of a mesh that is mirrored and scaled."""
    scale = np.array([2.0, 1.0, -1.5])
    shown = " ".join(map(str, scale))
    scaled = mjcf('<joint type="slide"/>').replace('"channel.stl"', f'"channel.stl" scale="{shown}"')
    path = file(format, {"mjcf": scaled, "urdf": urdf(shown), "sdf": sdf(shown), "skel": skel(shown)}[format])
    whole, divided, off = parse(path), parse(path, convex_decomposition=QUICK), parse(path, convex_decomposition=False)
    assert pickle.dumps(off) == pickle.dumps(whole)
    assert without_geoms(divided) == without_geoms(whole)
    (before,) = [geom for geom in geoms_of(whole) if geom.shape == "mesh"]
    after, *parts = [geom for geom in geoms_of(divided) if geom.shape == "mesh"]
    assert len(parts) == 3 and before.collision and not after.collision
    masks = replace(after.contact, contype=before.contact.contype, conaffinity=before.contact.conaffinity)
    assert pickle.dumps(replace(after, collision=True, contact=masks)) == pickle.dumps(before)
    assert all(part.contact == before.contact and part.collision and part.massless and not part.mass for part in parts)
    assert [part.name for part in parts] == [f"{before.name}/{k}" if before.name else "" for k in range(3)]
    corners, volume = [], 0.0
    for part in parts:
        mesh = divided.meshes[part.asset]
        points = part.pos + np.array([rotate(part.quat, part.size * vertex) for vertex in mesh.vertices])
        volume += trimesh.convex.convex_hull(points).volume
        corners.append(points)
        assert (mesh.vertices.min(0) < 0).all() and (mesh.vertices.max(0) > 0).all()  # its frame is inside
    np.testing.assert_allclose(volume, 3 * VOLUME, rtol=0.02)  # parts are cut a little askew; the hull has half as much again
    given = channel().vertices * scale
    found = np.concatenate(corners)
    np.testing.assert_allclose([found.min(0), found.max(0)], [given.min(0), given.max(0)], atol=2e-3)
    xsim.build(divided)


def test_a_convex_mesh_stays_one_geom(file):
    path = file("mjcf", mjcf('<joint type="slide"/>').replace('mesh="channel"', 'mesh="ball"'))
    assert pickle.dumps(parse(path, convex_decomposition=QUICK)) == pickle.dumps(parse(path))


def test_names_choose_meshes(file):
    ball = '<body><freejoint/><geom name="d" type="mesh" mesh="channel"/></body>'
    path = file("mjcf", mjcf(ball=ball))

    def names(option):
        return [geom.name for geom in geoms_of(parse(path, convex_decomposition=option))]

    assert names(replace(QUICK, names=("d",))) == ["c", "d", "d/0", "d/1", "d/2"]
    assert names(replace(QUICK, names=("chan*",))) == names(QUICK) == ["c", "c/0", "c/1", "c/2", "d", "d/0", "d/1", "d/2"]
    assert names(replace(QUICK, max_convex_hull=2)) == ["c", "c/0", "c/1", "d", "d/0", "d/1"]
    with pytest.raises(ValueError, match=r"no colliding mesh is named 'chanel' \(did you mean 'channel'\?\); names: c, channel, d"):
        names(replace(QUICK, names=("chanel",)))


# ---- what stays --------------------------------------------------------------------------------------------------------------


def test_mass_stays_with_the_geom(file, x64):
    """The mass of the body follows from the density of the geom, and is a leaf."""
    path = file("mjcf", mjcf('<freejoint/>'))
    whole, divided = (xsim.load(path, convex_decomposition=option) for option in (False, QUICK))
    q = np.array([0, 0, 0, 0.5, 0.5, -0.5, 0.5])
    before, after = (by_numpy(xsim.mass_matrix)(model, q) for model in (whole, divided))
    np.testing.assert_array_equal(after, before)
    np.testing.assert_allclose(after[0, 0], 500 * VOLUME, rtol=1e-6)
    assert divided.geom.density.shape == whole.geom.density.shape == (1,)


@pytest.mark.slow
def test_what_names_a_geom_keeps_its_meaning(file):
    """Pairs are those of all parts; frames, tendons and rays are about the geoms that they were about."""
    others = (
        f'<body pos="0 0 0.4"><freejoint/><geom name="s" size="{RADIUS}"/><site name="t" pos="0.02 0 -0.05" zaxis="0 0 -1"/></body>'
        '<body pos="1 0 0"><geom name="o" type="mesh" mesh="channel" contype="0" conaffinity="0"/></body>'
    )
    more = (
        '<contact><pair name="p" geom1="c" geom2="s" condim="1"/><pair geom1="o" geom2="s"/></contact>'
        '<tendon><spatial><site site="t"/><geom geom="s"/><site site="u"/></spatial></tendon>'
        '<sensor><framepos objtype="geom" objname="s"/><framepos objtype="geom" objname="o"/><rangefinder site="t"/></sensor>'
    )
    path = file("mjcf", mjcf(body='<site name="u"/>', ball=others, more=more))
    whole, divided = (parse(path, convex_decomposition=option) for option in (None, QUICK))
    names = [geom.name for geom in geoms_of(divided)]
    assert names == ["c", "c/0", "c/1", "c/2", "s", "o", "o/0", "o/1", "o/2"]
    pairs = [tuple(names[i] for i in pair.geoms) for pair in divided.pairs]
    assert pairs == [("c/0", "s"), ("s", "o/0"), ("c/1", "s"), ("c/2", "s"), ("s", "o/1"), ("s", "o/2")]
    assert [pair.condim for pair in divided.pairs] == [1, 3, 1, 1, 3, 3]
    assert names[divided.tendons[0].path[1].item] == "s"
    before, after = xsim.build(whole), xsim.build(divided)
    touching = {frozenset(names[g] for g in pair) for info in after.topology.pairs for pair in info.geoms.value.tolist()}
    assert touching == {frozenset(pair) for pair in pairs}
    sensed = [by_numpy(xsim.sensors)(model, xsim.init(model)) for model in (before, after)]
    np.testing.assert_array_equal(*sensed)
    np.testing.assert_allclose(sensed[1][6], 0.4 - 0.05 - FLOOR, atol=1e-6)  # the ray sees the channel as it is


@pytest.mark.parametrize("end", ['geom1="c"', 'body1="b"'])
def test_distances_of_divided_meshes_are_refused(file, end):
    ball = f'<body><freejoint/><geom name="s" size="{RADIUS}"/></body>'
    path = file("mjcf", mjcf(ball=ball, more=f'<sensor><distance name="gap" {end} geom2="s"/></sensor>'))
    parse(path)
    with pytest.raises(ParseError, match=r"m.xml:1: sensor 'gap': a distance of mesh 'channel', which is divided .*\(names\)"):
        parse(path, convex_decomposition=QUICK)


def test_contacts_of_divided_geoms_are_refused(file):
    """Those of the body are not."""
    text = '<sensor><contact name="feel" {}/></sensor>'
    with pytest.raises(ParseError, match=r"m.xml:1: sensor 'feel': a contact of mesh 'channel', which is divided .*\(names\)"):
        parse(file("mjcf", mjcf(more=text.format('geom1="c"'))), convex_decomposition=QUICK, rules="4.0")
    parse(file("mjcf", mjcf(more=text.format('subtree1="b"'))), convex_decomposition=QUICK, rules="4.0")


# ---- CoACD -------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_parts_are_kept_on_disk(file, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    runs = []
    monkeypatch.setattr(convex_parts, "_run", lambda *args, run=convex_parts._run: runs.append(args) or run(*args))
    path = file("mjcf", mjcf('<joint type="slide"/>'))
    first, second = (parse(path, convex_decomposition=QUICK) for _ in range(2))
    assert len(runs) == 1 and pickle.dumps(first) == pickle.dumps(second)
    (kept,) = (tmp_path / "cache").glob("*.npz")
    kept.write_bytes(kept.read_bytes()[:-1])  # cut off
    assert pickle.dumps(parse(path, convex_decomposition=QUICK)) == pickle.dumps(first) and len(runs) == 2  # the same seed
    parse(path, convex_decomposition=replace(QUICK, seed=1))
    monkeypatch.setattr(convex_parts, "coacd_version", lambda: "0")
    parse(path, convex_decomposition=QUICK)
    assert len(runs) == 4 and len(list((tmp_path / "cache").glob("*.npz"))) == 3
    assert capfd.readouterr() == ("", "")


def test_failures_of_coacd_are_errors_of_the_model(file, monkeypatch):
    path = file("mjcf", mjcf('<joint type="slide"/>'))
    monkeypatch.setenv(CACHE_VARIABLE, "")
    with monkeypatch.context() as patch:
        patch.setattr(ConvexDecomposition, "parameters", lambda self: {"threshold": 5})  # CoACD ends the process
        with pytest.raises(ParseError, match="m.xml:1: mesh 'channel' cannot be divided into convex parts: CoACD fails: .*threshold > 1"):
            parse(path, convex_decomposition=QUICK)
    with monkeypatch.context() as patch:
        patch.setattr(convex_parts, "MAX_SECONDS", 0.01)
        with pytest.raises(ParseError, match="CoACD takes more than 0.01 s"):
            parse(path, convex_decomposition=QUICK)
    monkeypatch.setattr(decomposition, "coacd_version", lambda: None)
    with pytest.raises(ParseError, match=r'm.xml:1: the convex decomposition of meshes needs coacd: pip install "xsim\[mesh\]"'):
        parse(path, convex_decomposition=True)
    parse(path)


# ---- SDFormat's own -----------------------------------------------------------------------------------------------------------

DECOMPOSE = 'optimization="convex_decomposition"'


def test_sdf_asks_for_a_decomposition(file, monkeypatch):
    def asked(inside=""):
        spec = parse(file("sdf", sdf(attributes=DECOMPOSE, inside=inside)), convex_decomposition=False)
        return [geom.max_convex_hulls for geom in geoms_of(spec)]

    two = "<convex_decomposition><max_convex_hulls>2</max_convex_hulls><voxel_resolution>1000</voxel_resolution></convex_decomposition>"
    assert asked() == [16, None] and asked(two) == [2, None]
    with pytest.raises(ParseError, match="found 0 max_convex_hulls; allowed: 1 and more"):
        asked(two.replace(">2<", ">0<"))
    path = file("sdf", sdf(attributes=DECOMPOSE, inside=two))
    geoms = geoms_of(parse(path))
    assert [(g.name, g.collision) for g in geoms] == [("c", False), ("c/0", True), ("c/1", True), ("d", True)]
    assert len(geoms_of(parse(path, convex_decomposition=replace(QUICK, max_convex_hull=3)))) == 5
    assert len(geoms_of(parse(file("sdf", sdf(attributes='optimization="convex_hull"', inside=two))))) == 2
    with pytest.warns(SuspiciousInputWarning, match="found 'decimate'; allowed: .*assumed: convex_hull"):
        assert len(geoms_of(parse(file("sdf", sdf(attributes='optimization="decimate"'))))) == 2
    monkeypatch.setattr(decomposition, "coacd_version", lambda: None)
    path = file("sdf", sdf(attributes=DECOMPOSE))
    with pytest.warns(UnsupportedWarning, match="needs coacd: .*; 1 collide as their convex hulls"):
        assert len(geoms_of(parse(path))) == 2
    with pytest.raises(ParseError, match="needs coacd"):
        parse(path, strict=True)


def test_text_takes_the_option():
    """Formats whose shapes do not collide have nothing to divide."""
    text = '<mujoco><worldbody><geom size="1"/></worldbody></mujoco>'
    assert pickle.dumps(parse_text(text, "mjcf", convex_decomposition=True)) == pickle.dumps(parse_text(text, "mjcf"))
    xsim.loads(text, "mjcf", convex_decomposition=True)
