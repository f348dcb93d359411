"""MJCF macros and deformables: what composites and flexcomps stand for, flexes, skins."""

import json
import struct
import warnings

import numpy as np
import pytest
from corpus import corpus, needs_corpus

from xsim.io import ParseError, mjcf
from xsim.io.errors import Notes
from xsim.io.mjcf.cable import tangent_frames
from xsim.io.mjcf.lattices import LATTICES

FILES = (
    "authored/composite_grid", "authored/composite_particle", "authored/composite_attrs_3_2", "authored/flexcomp_types",
    "authored/flex_internal_3_2", "authored/flex_raw", "authored/skin", "mujoco/floppy/floppy", "mujoco/hammock/hammock",
    "mujoco/pulley/pulley",
)  # fmt: skip
BALL = '<geom size=".01"/>'
ROD = '<geom type="capsule" size=".01"/>'


def read(world: str, before: str = "", after: str = "", file: str = "<string>", rules: str = "3.2"):
    """A model of what stands in its world; everything in it must have been read."""
    text = f"<mujoco>{before}<worldbody>{world}</worldbody>{after}</mujoco>"
    notes = Notes(str(file))
    spec = mjcf.read(text, str(file), notes, rules=rules)
    with warnings.catch_warnings(record=True) as caught:
        notes.emit()
    assert not [line for w in caught for line in str(w.message).splitlines() if "not simulated yet" not in line]
    return spec


def flexcomp(attributes: str, inside: str = "", **options):
    return read(f'<flexcomp name="f" {attributes}>{inside}</flexcomp>', **options)


def names(items) -> list[str]:
    return [item.name for item in items]


def joints(model) -> list:
    return [joint for body in model.bodies for joint in body.joints]


@needs_corpus
@pytest.mark.parametrize("name", FILES)
def test_expansions_as_the_engine_makes_them(name):
    """Sizes, names in order, parents, places and masses are those of MuJoCo 3.2.7."""
    path = corpus() / "models/mjcf" / f"{name}.xml"
    facts = json.loads((corpus() / "oracles/mjcf/3.2.7" / f"{name}.json").read_text())
    model = mjcf.read(path.read_bytes(), str(path), Notes(str(path)))
    geoms = [*model.world_geoms, *(geom for body in model.bodies for geom in body.geoms)]
    found = {"nbody": len(model.bodies) + 1, "njnt": len(joints(model)), "ngeom": len(geoms), "nsite": len(model.sites)}
    found |= {"ntendon": len(model.tendons), "neq": len(model.equalities), "nexclude": len(model.exclude), "nflex": len(model.flexes)}
    assert found == {key: facts["size"][key] for key in found}
    lists = {"geom": geoms, "site": model.sites, "tendon": model.tendons, "equality": model.equalities}
    assert names(joints(model)) == facts["joint"]["name"]
    for kind, items in lists.items():
        assert names(items) == facts["names"].get(kind, [""] * len(items))
    body = facts["body"]
    for i, spec in enumerate(model.bodies, 1):
        assert body["name"][i] in ("", spec.name)
        assert body["parent"][i] == spec.parent + 1
        if "pos" in body and not (spec.joints and spec.joints[0].type == "free"):
            np.testing.assert_allclose(spec.pos, body["pos"][i], atol=2e-8)  # MuJoCo keeps the points of composites in single precision
        if spec.inertial is not None:
            np.testing.assert_allclose(spec.inertial.mass, body["mass"][i], rtol=1e-9)


def test_composites_take_no_defaults():
    defaults = """<default><joint damping="7" range="-1 1"/><geom density="3" type="box" euler="10 0 0"/><site size=".2"/>
        <tendon width=".5"/><equality solref=".5 1"/><default class="c"><joint armature="3"/></default></default>"""
    grid = f'<composite type="grid" count="2 2" spacing=".1">{BALL}<tendon kind="shear"/></composite>'
    model = read(f'<body childclass="c">{grid}</body>', defaults)
    assert all(joint.damping is None or not joint.damping.any() for joint in joints(model))
    assert all(joint.position_range is None and not np.any(joint.armature or 0) for joint in joints(model))
    geoms = [geom for body in model.bodies for geom in body.geoms]
    assert {(geom.shape, geom.density, *geom.quat) for geom in geoms} == {("sphere", 1000.0, 1.0, 0.0, 0.0, 0.0)}
    assert {tuple(site.size) for site in model.sites} == {(0.005,)} and {tendon.width for tendon in model.tendons} == {0.003}
    assert [equality.soft.solref for equality in model.equalities] == [(0.01, 1.0)] * 4 + [(0.02, 1.0)]
    assert names(model.tendons) == ["T0_0_0", "T0_0_1", "T1_0_0", "T1_1_0", "TS0_0"]


def test_flexcomps_take_the_defaults_around():
    defaults = '<default><equality solref=".5 1"/><default class="c"><joint damping="3" axis="1 1 0"/></default></default>'
    comp = '<flexcomp name="f" type="grid" count="2 2 1"><edge equality="true"/></flexcomp>'
    model = read(f'<body name="k" childclass="c">{comp}</body>', defaults)
    assert [float(joint.damping[0]) for joint in joints(model)] == [3.0] * 12
    assert [joint.params["axes"][0].tolist() for joint in joints(model)[:3]] == np.eye(3).tolist()
    assert model.equalities[0].soft.solref == (0.02, 1.0)


def test_made_elements_come_after_those_of_the_file():
    world = f"""<body name="x">{BALL}</body><flexcomp name="f" type="grid" count="2 2 1"><edge equality="true"/></flexcomp>
        <body name="y">{BALL}</body><composite prefix="c" type="grid" count="2" spacing="1">{BALL}</composite>"""
    raw = '<equality><weld name="w" body1="x"/></equality><deformable><flex name="raw" dim="1" body="x y" element="0 1"/></deformable>'
    model = read(world, "", raw)
    assert names(model.bodies) == ["x", "f_0", "f_1", "f_2", "f_3", "y", "cB0_0", "cB1_0"]
    assert [equality.kind for equality in model.equalities] == ["weld", "flex", "tendon"]
    assert names(model.flexes) == ["raw", "f"]


def test_cable_follows_its_curve():
    curve = f'<composite type="cable" curve="cos(s) sin(s) s" count="7" size="1 .3 .5" offset="1 2 3" initial="free">{ROD}</composite>'
    model = read(curve)
    assert names(model.bodies) == ["B_first", "B_1", "B_2", "B_3", "B_4", "B_last"]
    assert [joint.type for joint in joints(model)] == ["free"] + ["ball"] * 5
    assert model.exclude == tuple((i, i + 1) for i in range(5))
    s = np.linspace(0, 1, 7)
    points = np.array([1, 2, 3]) + np.stack([0.3 * np.cos(np.pi * 0.5 * s), 0.3 * np.sin(np.pi * 0.5 * s), s], axis=1)
    np.testing.assert_allclose(joints(model)[0].q0[:3], points[0], atol=1e-14)
    lengths = np.linalg.norm(np.diff(points, axis=0), axis=1)
    np.testing.assert_allclose([body.pos for body in model.bodies[1:]], np.outer(lengths[:-1], [1, 0, 0]), atol=1e-14)
    np.testing.assert_allclose(model.sites[1].pos, [lengths[-1], 0, 0], atol=1e-14)


def test_cable_of_two_pieces_has_no_middle():
    model = read(f'<composite type="cable" vertex="0 0 0 1 0 0 1 1 0" initial="none">{ROD}</composite>')
    assert names(model.bodies) == ["B_first", "B_last"] and model.exclude == ((0, 1),)
    np.testing.assert_allclose(np.abs(model.bodies[1].quat), [np.sqrt(0.5), 0, 0, np.sqrt(0.5)], atol=1e-15)


def test_frames_along_a_cable():
    """Rotations whose x axis is the tangent; carried on without twist, so neighbours differ by a rotation across both tangents."""
    points = np.random.default_rng(0).normal(size=(8, 3)).cumsum(axis=0)
    frames = tangent_frames(points)
    tangents = np.diff(points, axis=0)
    tangents /= np.linalg.norm(tangents, axis=1)[:, None]
    for k, frame in enumerate(frames):
        np.testing.assert_allclose(frame.T @ frame, np.eye(3), atol=1e-14)
        np.testing.assert_allclose(frame[:, 0], tangents[k], atol=1e-14)
        assert np.linalg.det(frame) > 0
        if k:
            turn = frame @ frames[k - 1].T
            axis = np.array([turn[2, 1] - turn[1, 2], turn[0, 2] - turn[2, 0], turn[1, 0] - turn[0, 1]])
            np.testing.assert_allclose([axis @ tangents[k - 1], axis @ tangents[k]], 0, atol=1e-13)
    assert abs(frames[0][:, 2] @ tangents[1]) < 1e-14  # the first two pieces lie in the xy plane of the first


@pytest.mark.parametrize("direction", [(1, 0, 0), (-1, 0, 0), (0, 1, 1), (0, 0, -1), (-3, 2, 1), (1, 2, 3)])
def test_frames_along_a_straight_cable(direction):
    points = np.outer(np.arange(4.0), direction)
    frames = tangent_frames(points)
    np.testing.assert_allclose(frames[0].T @ frames[0], np.eye(3), atol=1e-14)
    np.testing.assert_allclose(frames[0][:, 0], points[1] / np.linalg.norm(points[1]), atol=1e-15)
    np.testing.assert_array_equal(frames[0], frames[2])


@pytest.mark.parametrize(("kind", "counts"), [("box", (2, 3, 4)), ("box", (5, 4, 4)), ("cylinder", (3, 4, 3)), ("ellipsoid", (4, 4, 5))])
def test_shells_are_closed(kind, counts):
    """Every side of the surface is shared by two elements, all points are used, and the elements fill the box without overlap."""
    made = LATTICES[kind][2](np.array(counts), np.array([0.1, 0.2, 0.3]), 3)
    sides = np.sort(made.elements[:, [1, 2, 1, 3, 2, 3]].reshape(-1, 2), axis=1)
    assert set(np.unique(sides, axis=0, return_counts=True)[1]) == {2}
    assert set(made.elements.ravel()) == set(range(len(made.points)))
    assert len(made.points) == 1 + np.prod(counts) - np.prod(np.array(counts) - 2)
    half = np.array([0.1, 0.2, 0.3]) * (np.array(counts) - 1) / 2
    assert (np.abs(made.points) <= half * (1 + 1e-15)).all()
    if kind == "box":
        volume = np.abs(np.linalg.det(made.points[made.elements[:, 1:]])).sum() / 6
        np.testing.assert_allclose(volume, 8 * half.prod(), rtol=1e-12)
    if kind == "ellipsoid":
        np.testing.assert_allclose(np.linalg.norm(made.points[1:] / half, axis=1), 1, rtol=1e-12)


def test_grid_fills_its_box():
    made = LATTICES["grid"][2](np.array([3, 4, 5]), np.array([0.1, 0.2, 0.3]), 3)
    corners = made.points[made.elements]
    volume = np.abs(np.linalg.det(corners[:, 1:] - corners[:, :1])).sum() / 6
    np.testing.assert_allclose(volume, 0.2 * 0.6 * 1.2, rtol=1e-12)


def test_circle_has_the_spacing():
    made = LATTICES["circle"][2](np.array([9, 1, 1]), np.array([0.1, 9, 9]), 1)
    assert len(made.points) == 8
    np.testing.assert_allclose(np.linalg.norm(np.diff(made.points[made.elements], axis=1), axis=-1), 0.1)


def test_pins_stand_in_the_parent_and_its_frames():
    comp = """<flexcomp name="f" type="grid" count="3 2 1" pos="0 0 1"><pin id="0"/><pin range="4 5"/></flexcomp>"""
    model = read(f'<body name="k" pos="5 0 0"><frame pos="1 0 0" euler="0 0 90">{comp}</frame></body>')
    assert names(model.bodies) == ["k", "f_1", "f_2", "f_3"]
    flex = model.flexes[0]
    assert flex.bodies == (0, 1, 2, 3, 0, 0)
    np.testing.assert_allclose(flex.pos[0], [1.01, -0.02, 1], atol=1e-15)
    np.testing.assert_allclose(model.bodies[1].pos, [0.99, -0.02, 1], atol=1e-15)
    assert not flex.pos[1:4].any()
    pinned = flexcomp('type="grid" dim="3" count="3 3 3"', '<pin grid="2 2 2"/><pin gridrange="0 0 0 1 2 2"/>').flexes[0].bodies
    assert [i for i, body in enumerate(pinned) if body == -1] == [*range(18), 26]
    assert set(flexcomp('type="box" count="3 3 3" rigid="true"').flexes[0].bodies) == {-1}


def test_unused_points_leave_their_numbers_and_mass():
    model = flexcomp('type="direct" point="0 0 0 1 0 0 5 5 5 0 1 0" element="0 1 3" mass="6"')
    assert names(model.bodies) == ["f_0", "f_1", "f_3"] and model.bodies[2].inertial.mass == 1.5
    assert model.flexes[0].elements.tolist() == [[0, 1, 2]]


def test_shells_slide_outwards_in_the_old_release_only():
    shell = 'type="ellipsoid" count="3 3 3"'
    model = flexcomp(shell)
    for body in model.bodies:
        (joint,) = body.joints
        np.testing.assert_allclose(np.cross(joint.params["axes"][0], body.pos), 0, atol=1e-16)
    assert {len(body.joints) for body in flexcomp(shell, rules="4.0").bodies} == {3}


def test_tetrahedra_turn_their_faces_out():
    bodies = "".join(f'<body name="{n}" pos="{p}">{BALL}</body>' for n, p in zip("abcd", ("0 0 0", "1 0 0", "0 1 0", "0 0 1"), strict=True))
    for elements in ("0 1 2 3", "0 2 1 3"):
        flex = f'<deformable><flex dim="3" body="a b c d" element="{elements}"/></deformable>'
        assert read(bodies, "", flex).flexes[0].elements.tolist() == [[0, 2, 1, 3]]


def test_flex_keeps_its_numbers():
    inside = """<edge damping="4"/><elasticity young="50" poisson=".2" damping=".1" thickness=".01"/>
        <contact internal="false" selfcollide="sap" activelayers="3" contype="2" condim="4" friction=".1" solref=".1" margin=".2"/>"""
    flex = flexcomp('type="grid" count="2 2 1" radius=".001" rgba="1 0 0 1" group="2" texcoord="0 0 0 1 1 0 1 1"', inside).flexes[0]
    found = flex.numbers
    assert (flex.radius, found["young"], found["poisson"], found["elastic_damping"], found["thickness"]) == (0.001, 50, 0.2, 0.1, 0.01)
    assert (found["edge_stiffness"], found["edge_damping"]) == (0, 4)
    assert (found["internal"], found["selfcollide"], found["active_layers"]) == (False, "sap", 3)
    surface = found["contact"]
    assert (surface.contype, surface.conaffinity, surface.condim, surface.margin) == (2, 1, 4, 0.2)
    assert (surface.friction, surface.soft.solref) == ((0.1, 0.005, 0.0001), (0.1, 1.0))
    assert (found["rgba"], found["group"], found["texcoord"].tolist()) == ((1, 0, 0, 1), 2, [[0, 0], [0, 1], [1, 0], [1, 1]])


# ---- files ----

POINTS = np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [0, 0, 1.0]])
TETRAHEDRA = np.array([[11, 12, 13, 15], [11, 13, 14, 15]])  # tags of points: 11, 12, ...


def gmsh(version: str, binary: bool) -> bytes:
    tags = np.arange(11, 16)
    head = f"$MeshFormat\n{version} {int(binary)} 8\n".encode() + (struct.pack("<i", 1) + b"\n" if binary else b"") + b"$EndMeshFormat\n"
    if version == "4.1" and binary:
        nodes = struct.pack("<4Q3iQ", 1, 5, 11, 15, 3, 1, 0, 5) + tags.astype("<u8").tobytes() + POINTS.tobytes()
        rows = np.hstack([[[1], [2]], TETRAHEDRA]).astype("<u8").tobytes()
        elements = struct.pack("<4Q3iQ", 1, 2, 1, 2, 3, 1, 4, 2) + rows
    elif version == "4.1":
        nodes = "\n".join(["1 5 11 15", "3 1 0 5", *map(str, tags), *(" ".join(map(str, p)) for p in POINTS)]).encode()
        elements = "\n".join(["1 2 1 2", "3 1 4 2", *(f"{i} " + " ".join(map(str, t)) for i, t in enumerate(TETRAHEDRA))]).encode()
    elif binary:
        nodes = b"5\n" + b"".join(struct.pack("<i3d", tag, *p) for tag, p in zip(tags, POINTS, strict=True))
        elements = b"2\n" + struct.pack("<3i", 4, 2, 2) + b"".join(struct.pack("<7i", i, 0, 1, *t) for i, t in enumerate(TETRAHEDRA))
    else:
        nodes = "\n".join(["5", *(f"{tag} {x} {y} {z}" for tag, (x, y, z) in zip(tags, POINTS, strict=True))]).encode()
        elements = "\n".join(["2", *(f"{i} 4 2 0 1 " + " ".join(map(str, t)) for i, t in enumerate(TETRAHEDRA))]).encode()
    return head + b"$Nodes\n" + nodes + b"\n$EndNodes\n$Elements\n" + elements + b"\n$EndElements\n"


TETRAHEDRON = '<mesh name="x" vertex="0 0 0 1 0 0 0 1 0 0 0 1" face="0 2 1 0 1 3 1 2 3 0 3 2" {}/>'


@pytest.mark.parametrize(("attributes", "asset", "elements", "last"), [
    ("", 'scale="1 2 -3" refpos=".1 .2 .3"', [0, 1, 2, 0, 3, 1, 1, 3, 2, 0, 2, 3], [-0.1, -0.4, -2.1]),
    ("", 'scale="1 2 3" refpos=".1 .2 .3" refquat="1 .2 .3 .4"', [0, 2, 1, 0, 1, 3, 1, 2, 3, 0, 3, 2],
     [-0.442635659, 0.524031038, 1.574418566]),
    ('dim="3" origin=".1 .1 .1"', "", [0, 3, 1, 2, 0, 2, 1, 4, 0, 3, 2, 4, 0, 4, 1, 3], [0, 0, 1]),
    ('scale="2 2 2" pos="1 0 0" euler="0 0 90"', 'scale="1 2 3"', [0, 2, 1, 0, 1, 3, 1, 2, 3, 0, 3, 2], [1, 0, 6]),
])  # fmt: skip
def test_flexcomps_of_mesh_assets(attributes, asset, elements, last):
    """Elements, and the place of the last point, of MuJoCo 4.0.0; that of a file is relative to the asset's reference."""
    text = f'<body name="p"><flexcomp name="f" mesh="x" radius=".01" {attributes}/></body>'
    spec = read(text, f"<asset>{TETRAHEDRON.format(asset)}</asset>", rules="4.0")
    assert spec.flexes[0].elements.reshape(-1).tolist() == elements
    np.testing.assert_allclose(spec.bodies[spec.flexes[0].bodies[-1]].pos, last, atol=1e-7)


@pytest.mark.parametrize(("attributes", "message"), [
    ('mesh="y"', "unknown mesh 'y'; allowed: x"), ('mesh="x" type="grid"', 'mesh: allowed: only in a flexcomp of type "mesh"'),
    ('mesh="x" file="a.obj"', "found file and mesh; allowed: one of them"), ('mesh="x" dim="3"', "attribute 'origin' is missing"),
])  # fmt: skip
def test_flexcomps_of_mesh_assets_that_cannot_be(attributes, message):
    with pytest.raises(ParseError, match=message):
        read(f'<body name="p"><flexcomp name="f" {attributes}/></body>', f"<asset>{TETRAHEDRON.format('')}</asset>", rules="4.0")


@pytest.mark.parametrize("version", ["2.2", "4.1"])
@pytest.mark.parametrize("binary", [False, True])
def test_gmsh_files(tmp_path, version, binary):
    (tmp_path / "x.msh").write_bytes(gmsh(version, binary))
    model = flexcomp('type="gmsh" file="x.msh" scale="2 2 2" pos="0 0 3"', file=tmp_path / "m.xml")
    np.testing.assert_array_equal([body.pos for body in model.bodies], 2 * POINTS + [0, 0, 3])
    assert model.flexes[0].dim == 3 and model.flexes[0].elements.tolist() == [[0, 2, 1, 4], [0, 3, 2, 4]]


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("version", ["2.2", "4.1"])
def test_broken_gmsh_files_are_refused(tmp_path, version, binary):
    """Whatever byte is lost or changed, the file is read or refused with its place."""
    whole = gmsh(version, binary)
    rng = np.random.default_rng(0)
    for _ in range(60):
        data = bytearray(whole)
        data[rng.integers(len(data))] = rng.integers(256)
        (tmp_path / "x.msh").write_bytes(bytes(data[: rng.integers(len(data) // 2, 2 * len(data))]))
        try:
            flexcomp('type="gmsh" file="x.msh"', file=tmp_path / "m.xml")
        except ParseError as error:
            assert str(error).startswith(f"{tmp_path / 'm.xml'}:1: ")


def test_mesh_files(tmp_path):
    (tmp_path / "x.obj").write_text("v 0 0 0\nv 1 0 0\nv 1 1 0\nv 0 1 0\nv 9 9 9\nf 1 2 3 4\n")
    sheet = flexcomp('type="mesh" file="x.obj"', file=tmp_path / "m.xml")
    assert names(sheet.bodies) == ["f_0", "f_1", "f_2", "f_3"] and sheet.bodies[0].inertial.mass == 0.2
    solid = flexcomp('type="mesh" dim="3" file="x.obj" origin=".5 .5 .5"', file=tmp_path / "m.xml")
    np.testing.assert_array_equal(solid.bodies[0].pos, [0.5, 0.5, 0.5])
    assert solid.flexes[0].elements.shape == (2, 4)


def test_skins(tmp_path):
    """The same skin written out and from a file; weights of a vertex sum to 1."""
    vertices, faces = np.array([[0, 0, 0], [0.5, 0, 0], [0.5, 1, 0]]), [0, 1, 2]
    bones = [("a", (0, 0, 0), [0, 1], [1, 0.5]), ("b", (0.5, 0, 0), [1, 2], [1.5, 2])]
    data = struct.pack("<4i", 3, 0, 1, 2) + vertices.astype("<f4").tobytes() + np.array(faces, "<i4").tobytes()
    text = ""
    for name, pos, numbers, weights in bones:
        data += name.encode().ljust(40, b"\0") + struct.pack("<7f", *pos, 2, 0, 0, 0) + struct.pack("<i", len(numbers))
        data += np.array(numbers, "<i4").tobytes() + np.array(weights, "<f4").tobytes()
        values = {"body": [name], "bindpos": pos, "bindquat": (1, 0, 0, 0), "vertid": numbers, "vertweight": weights}
        text += "<bone " + " ".join(f'{key}="{" ".join(map(str, value))}"' for key, value in values.items()) + "/>"
    (tmp_path / "x.skn").write_bytes(data)
    inline = f'<skin name="t" vertex="{" ".join(map(str, vertices.ravel()))}" face="0 1 2">{text}</skin>'
    world = f'<body name="a">{BALL}<body name="b">{BALL}</body></body>'
    after = f'<deformable><skin name="s" file="x.skn"/>{inline}</deformable>'
    skins = read(world, "", after, file=tmp_path / "m.xml").drawing["skins"]
    for skin in skins.values():
        np.testing.assert_array_equal(skin["vertices"], vertices)
        assert [bone["body"] for bone in skin["bones"]] == [0, 1]
        np.testing.assert_allclose(np.concatenate([bone["weights"] for bone in skin["bones"]]), [1, 0.25, 0.75, 1])
        np.testing.assert_array_equal(skin["bones"][1]["quat"], [1, 0, 0, 0])
    assert len(skins) == 2
    (tmp_path / "x.skn").write_bytes(data[:-3])
    with pytest.raises(ParseError, match="file"):
        read(world, "", after, file=tmp_path / "m.xml")


@pytest.mark.parametrize("subgrid", [0, 3])
def test_grid_skin_goes_through_its_bodies(subgrid):
    """A skin of a flat grid lies in its plane, its points evenly spaced, and it is closed."""
    model = read(f'<composite type="grid" count="4 3" spacing=".1">{BALL}<skin subgrid="{subgrid}" texcoord="true"/></composite>')
    skin = model.drawing["skins"]["Skin"]
    place = np.zeros_like(skin["vertices"])
    for bone in skin["bones"]:
        numbers = bone["vertices"]
        seen = model.bodies[bone["body"]].pos + skin["vertices"][numbers] - bone["pos"]
        np.add.at(place, numbers, bone["weights"][:, None] * seen)
    np.testing.assert_allclose(place - place[0], skin["vertices"], atol=1e-15)
    sides = np.sort(skin["faces"][:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    assert set(np.unique(sides, axis=0, return_counts=True)[1]) == {2}
    assert skin["texcoord"].min() == 0 and skin["texcoord"].max() == 1


# ---- what is refused ----


@needs_corpus
@pytest.mark.parametrize("kind", ["rope", "cloth", "box"])
def test_removed_composites_are_refused(kind):
    folder = corpus() / "models/mjcf/refused"
    path = folder / f"composite_{kind}.xml"
    with pytest.raises(ParseError) as error:
        mjcf.read(path.read_bytes(), str(path), Notes(str(path)))
    assert all(word in str(error.value) for word in json.loads((folder / "refused.json").read_text())[path.name]["words"])


GRID, CABLE = '<composite type="grid" count="2 2" spacing=".1"', '<composite type="cable" count="4" curve="s"'


@pytest.mark.parametrize(("world", "words"), [
    (f'{GRID}>{BALL}<plugin plugin="mujoco.elasticity.shell"/></composite>', "mujoco.elasticity.shell"),
    (f'{CABLE}>{ROD}<plugin plugin="mujoco.elasticity.cable"/></composite>', "'mujoco.elasticity.cable' is not declared"),
    (f'<composite type="grid" count="2 2 2" spacing=".1">{BALL}</composite>', "count"),
    (f'<composite type="grid" count="1 2" spacing=".1">{BALL}</composite>', "count"),
    (f'<composite type="particle" count="2 -2" spacing=".1">{BALL}</composite>', "count"),
    (f'<composite type="particle" count="2000000000 2000000000" spacing=".1">{BALL}</composite>', "elements"),
    (f'<composite type="particle" count="2.5" spacing=".1">{BALL}</composite>', "count"),
    (f'<composite type="grid" count="2 2" spacing=".001">{BALL}</composite>', "spacing"),
    (f'{GRID} vertex="0 0 0">{BALL}</composite>', "vertex"),
    (f'{GRID}><geom type="box" size=".1 .1 .1"/></composite>', "box"),
    (f'{GRID}>{BALL}<joint kind="main"/><joint kind="main"/></composite>', "second joint"),
    (f'<composite type="grid" count="2" spacing=".1">{BALL}<tendon kind="shear"/></composite>', "two dimensions"),
    (f'<composite type="grid" count="2" spacing=".1">{BALL}<skin/></composite>', "two dimensions"),
    (f'{GRID}>{BALL}<skin subgrid="100000"/></composite>', "subgrid"),
    (f'{CABLE} spacing=".1">{ROD}</composite>', "spacing"),
    (f"{CABLE}>{BALL}</composite>", "capsule"),
    (f'<composite type="cable" count="4" curve="tan(s)">{ROD}</composite>', "curve"),
    (f'<composite type="cable" count="100000000" curve="s">{ROD}</composite>', "points"),
    (f'<composite type="cable" vertex="0 0 0 0 0 0 1 0 0">{ROD}</composite>', "neighbouring"),
    ('<flexcomp name="f" type="grid" count="2 2 2"/>', "count"),
    ('<flexcomp name="f" type="grid" dim="3" count="5000 5000 5000"/>', "elements"),
    ('<flexcomp name="f" type="circle" count="5 1 1"/>', "dim"),
    ('<flexcomp name="f" type="grid" count="2 2 1" radius=".1"/>', "spacing"),
    ('<flexcomp name="f" type="grid" count="2 2 1" mass="0"/>', "mass"),
    ('<flexcomp name="f" type="grid" count="2 2 1"><pin id="4"/></flexcomp>', "id"),
    ('<flexcomp name="f" type="grid" count="2 2 1"><pin gridrange="0 0 0 2"/></flexcomp>', "gridrange"),
    ('<flexcomp name="f" type="box" count="2 2 2"><pin grid="0 0 0"/></flexcomp>', "grid"),
    ('<flexcomp name="f" type="box" count="3 3 3" spacing=".1 .1 .1" pos=".1 0 0"/>', "origin"),
    ('<flexcomp name="f" type="grid" count="2 2 1"><edge stiffness="1"/></flexcomp>', "stiffness"),
    ('<flexcomp name="f" type="grid" count="2 2 1"><elasticity young="1" poisson=".5"/></flexcomp>', "poisson"),
    ('<flexcomp name="f" type="grid" count="2 2 1"><plugin plugin="mujoco.elasticity.membrane"/></flexcomp>', "membrane"),
    ('<flexcomp name="f" type="direct" point="0 0 0 1 0 0 0 1 0" element="0 1 3"/>', "element"),
    ('<flexcomp name="f" type="direct" point="0 0 0 1 0 0 0 1 0" element="0 1 1"/>', "twice"),
    ('<flexcomp name="f" type="mesh" file="../../../../../../../../etc/passwd.obj"/>', "file"),
    ('<body><flexcomp name="f" type="grid" count="2 2 1"/></body>', "no name"),
    ('<replicate count="2"><flexcomp name="f" type="grid" count="2 2 1"/></replicate>', "replicate"),
])  # fmt: skip
def test_bad_macros_are_refused(world, words):
    with pytest.raises(ParseError) as error:
        read(world)
    assert str(error.value).startswith("<string>:1: ") and words in str(error.value)


def test_composites_are_not_in_the_new_release():
    with pytest.raises(ParseError, match=r"composite.*4\.0"):
        read(f"{GRID}>{BALL}</composite>", rules="4.0")


def test_macros_are_replicated_with_what_they_make():
    model = read(f'<replicate count="2" offset="1 0 0"><composite type="grid" count="2" spacing=".1">{BALL}</composite></replicate>')
    assert names(model.bodies) == ["B0_00", "B1_00", "B0_01", "B1_01"] and names(model.tendons) == ["T0_0_00", "T0_0_01"]
    assert [equality.items for equality in model.equalities] == [(0,), (1,)]
    body = '<body name="b"><flexcomp name="f" type="grid" count="2 2 1"><pin id="0"/></flexcomp></body>'
    model = read(f'<replicate count="2" offset="1 0 0">{body}</replicate>')
    assert [flex.bodies for flex in model.flexes] == [(0, 1, 2, 3), (4, 5, 6, 7)]
