"""Files that somebody made to hurt: each becomes a model or a ParseError that names the place, within 30 s of the processor and 2 GB."""

from __future__ import annotations

import dataclasses
import io
import os
import signal
import struct
import subprocess
import sys
import time
import warnings
import zipfile
from bz2 import compress
from pathlib import Path

import numpy as np
import pytest

import xsim
from xsim.io import FORMATS, ParseError, parse, parse_text
from xsim.io.errors import Notes
from xsim.io.files import unpacked_size
from xsim.io.mjcf.mesh_files import read_triangles
from xsim.io.reader import MAX_ATTRIBUTES, parse_xml, read_bytes
from xsim.limits import Limits
from xsim.model.build import assemble

SECONDS, BYTES = 30, 2_000_000_000
MOST = Limits().bytes
LINUX = sys.platform == "linux"

# Reads files, their warnings switched off, and says how each ended. JAX reserves addresses when it is imported: the limit of memory counts
# from there. The limit of time is for all files together.
SCRIPT = f"""
import resource, sys, warnings
from pathlib import Path
import xsim
from xsim.io import ParseError, parse
pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
if pages:
    most = pages * resource.getpagesize() + {BYTES}
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS + 10}, {SECONDS + 10}))
warnings.simplefilter("ignore")
for file in sys.argv[1:]:
    try:
        print("bodies", len(parse(file).bodies))
    except ParseError as error:
        print("ParseError", " ".join(str(error).split())[:400])
"""


@pytest.fixture(autouse=True)
def _no_hang():
    """A read that waits for ever, as that of a pipe would, fails instead."""

    def end(*_):
        raise TimeoutError(f"more than {10 * SECONDS} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, 10 * SECONDS)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def outcomes(*files: Path) -> list[str]:
    """What `parse` says of files, in a process of its own with a limit of memory and time for all together."""
    command = [sys.executable, "-c", SCRIPT, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS, stdin=subprocess.PIPE, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.splitlines()


def refused(found: str, file: Path | str, text: str) -> None:
    """It is a ParseError about a file with this text."""
    assert found.startswith(f"ParseError {file}:") and text in found, found


def refusal(path, **options) -> str:
    with warnings.catch_warnings(), pytest.raises(ParseError) as caught:
        warnings.simplefilter("ignore")
        parse(path, **options)
    return str(caught.value)


# ---- what is no regular file ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", [None, *FORMATS])
def test_pipes_devices_and_folders(tmp_path, format):
    pipe = tmp_path / "model.xml"
    os.mkfifo(pipe)
    assert refusal(pipe, format=format) == f"{pipe}: is a pipe (FIFO); allowed: regular files"
    assert refusal(tmp_path, format=format) == f"{tmp_path}: is a folder; allowed: regular files"
    if LINUX:
        assert refusal("/dev/zero", format=format) == "/dev/zero: is a device; allowed: regular files"
    link = tmp_path / "link.xml"
    link.symlink_to(pipe)
    assert "is a pipe" in refusal(link, format=format)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (None, "None: found None; allowed: the path of a file"),
        (3, "3: found 3; allowed: the path of a file"),
        (b"model.xml", "allowed: the path of a file"),
        ("a\0b.xml", "cannot be read: "),
        ("\ud800.xml", "cannot be read: "),
        ("x" * 5000, "cannot be read: File name too long"),
        ("no/such/file.xml", "no/such/file.xml: cannot be read: No such file or directory"),
    ],
)
def test_what_is_no_path(path, text):
    assert text in refusal(path)
    with pytest.raises(ParseError):
        xsim.load(path)


MJCF = "<mujoco><worldbody>{}</worldbody></mujoco>"
SDF = '<sdf version="1.9"><model name="m">{}</model></sdf>'
NAMES_A_FILE = {
    "include": ("m.xml", '<mujoco><include file="x"/></mujoco>'),
    "mesh": ("m.xml", '<mujoco><asset><mesh name="a" file="x" content_type="model/stl"/></asset></mujoco>'),
    "hfield": ("m.xml", '<mujoco><asset><hfield name="a" file="x" size="1 1 1 1"/></asset></mujoco>'),
    "attached model": ("m.xml", '<mujoco><asset><model name="a" file="x"/></asset></mujoco>'),
    "flexcomp": ("m.xml", MJCF.format('<body name="b"><flexcomp name="f" type="gmsh" file="x" dim="2"/></body>')),
    "sdf include": ("m.sdf", SDF.format("<include><uri>x</uri></include>")),
    "chrono model": ("m.yaml", "model: x\n"),
}


@pytest.mark.parametrize("case", NAMES_A_FILE)
def test_documents_that_name_a_pipe(tmp_path, case):
    name, text = NAMES_A_FILE[case]
    (tmp_path / name).write_text(text)
    os.mkfifo(tmp_path / "x")
    assert refusal(tmp_path / name).startswith(f"{tmp_path / name}:1: ")


# ---- files that include files --------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_sdf_includes_of_includes(tmp_path):
    """8^11 models."""
    for level in range(12):
        inside = "".join(f"<include><name>m{k}</name><uri>f{level + 1}.sdf</uri></include>" for k in range(8))
        (tmp_path / f"f{level}.sdf").write_text(SDF.format(inside if level < 11 else '<link name="l"/>'))
    (found,) = outcomes(tmp_path / "f0.sdf")
    refused(found, tmp_path / "f10.sdf", "the model grows to 500003 elements; allowed: 500000")


def test_sdf_models_of_many_parts_are_read(tmp_path):
    (tmp_path / "part.sdf").write_text(SDF.format("<static>true</static>" + "".join(f'<link name="l{i}"/>' for i in range(10))))
    includes = "".join(f"<include><name>p{i}</name><uri>part.sdf</uri></include>" for i in range(100))
    (tmp_path / "m.sdf").write_text(SDF.format(includes))
    assert len(parse(tmp_path / "m.sdf").bodies) == 1000


# ---- archives ------------------------------------------------------------------------------------------------------------------


def zipped(data: bytes, name: str = "a.stl", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.writestr(name, data)
    return out.getvalue()


def understated(archive: bytes) -> bytes:
    """The archive with the claim that its file has ten bytes."""
    data = bytearray(archive)
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        at = data.rfind(signature) + offset
        data[at : at + 4] = struct.pack("<I", 10)
    return bytes(data)


def test_archives_are_measured_before_they_are_unpacked(tmp_path):
    large = bytes(MOST)
    unpacks = f"the archive unpacks to {MOST} bytes or more; allowed: fewer"
    bomb = zipped(large)
    cases = {
        "bomb.zip": (bomb, unpacks),
        "bomb.3mf": (b"any text before it" + bomb, unpacks),
        "bomb.zae": (understated(bomb), unpacks),
        "bomb.bz2": (compress(large), unpacks),
        "nested.zip": (zipped(zipped(b"x" * 1000), "b.3mf"), "an archive in an archive"),
        "rare.zip": (zipped(b"x", method=zipfile.ZIP_LZMA), "another compression than deflate"),
        "many.zip": (b"PK\1\2" * 10_000 + zipped(b""), "a zip archive of more than 10000 files"),
        "cut.zip": (zipped(b"x" * 1000)[20:], "a zip archive that is broken"),
    }
    for name, (data, text) in cases.items():
        assert len(data) < 200_000
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ParseError, match=text):
            read_bytes(tmp_path / name)
    assert unpacked_size(zipped(bytes(100_000)), MOST) == 100_000 and unpacked_size(b"solid", MOST) == 0
    ok = zipped(bytes(1000))  # holds the time
    (tmp_path / "ok.zip").write_bytes(ok)
    assert read_bytes(tmp_path / "ok.zip") == ok


def test_a_mesh_archive_in_a_model(tmp_path):
    """The mesh is refused, with its name, and so touches nothing."""
    trimesh = pytest.importorskip("trimesh")
    links = "".join(
        f'<link name="{name}"><inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial><collision>'
        f'<geometry><mesh filename="{mesh}"/></geometry></collision></link>' for name, mesh in (("a", "bomb.zip"), ("b", "box.zip"))
    )  # fmt: skip
    joint = '<joint name="j" type="floating"><parent link="a"/><child link="b"/></joint>'
    (tmp_path / "m.urdf").write_text(f'<robot name="r">{links}{joint}</robot>')
    (tmp_path / "bomb.zip").write_bytes(zipped(bytes(MOST)))
    (tmp_path / "box.zip").write_bytes(zipped(trimesh.creation.box().export(file_type="stl")))
    with pytest.warns(UserWarning, match=r"bomb\.zip: the archive unpacks to"):
        spec = parse(tmp_path / "m.urdf", self_collide=True)
    assert [len(mesh.vertices) for mesh in spec.meshes] == [8]


# ---- GMSH ----------------------------------------------------------------------------------------------------------------------


def gmsh(nodes: bytes, elements: bytes = b"0", version: str = "2.2", binary: bool = False) -> bytes:
    head = f"$MeshFormat\n{version} {int(binary)} 8\n".encode() + (struct.pack("<i", 1) + b"\n" if binary else b"") + b"$EndMeshFormat\n"
    return head + b"$Nodes\n" + nodes + b"\n$EndNodes\n$Elements\n" + elements + b"\n$EndElements\n"


POINT = b"1\n1 0 0 0"
BINARY_POINT = b"1\n" + struct.pack("<i3d", 1, 0, 0, 0)
GMSH = {
    "no points": (gmsh(b"0"), "the file has no points; allowed: one or more"),
    "no points, binary": (gmsh(b"0\n", b"0\n", binary=True), "the file has no points"),
    "no points, 4.1": (gmsh(b"0 0 0 0", b"0 0 0 0", "4.1"), "the file has 0 points and announces 0"),
    "no points, 4.1 binary": (gmsh(bytes(32), bytes(32), "4.1", True), "the file has 0 points and announces 0"),
    "6,000 digits": (gmsh(b"9" * 6000), "not a number"),
    "6,000 digits, binary": (gmsh(b"9" * 6000 + b"\n", binary=True), "a much too large one"),
    "6,000 digits of elements": (gmsh(POINT, b"9" * 6000), "not a number"),
    "6,000 digits of blocks": (gmsh(b"9" * 6000 + b" 1 1 1", version="4.1"), "not a number"),
    "many elements": (gmsh(POINT, b"999999999999 1 2 0 1 1 1"), "ends before the 999999999999 elements"),
    "many labels": (gmsh(POINT, b"1 1 2 999999999999 1 1 1"), "ends before the 1 elements"),
    "block of none": (gmsh(BINARY_POINT, b"1\n" + struct.pack("<3i", 4, 0, 0), binary=True), "a block without elements"),
    "blocks without end": (gmsh(b"999999999999 1 1 1 " + b"3 1 0 0 " * 2_000_000, version="4.1"), "announces 999999999999 blocks"),
    "numbers without end": (gmsh(b"1 " * 20_000_000), "a section of the file has more than 10000000 numbers"),
    "sections without end": (gmsh(POINT).replace(b"$End", b"$Nodes\n" * 3_000_000), "the file has no section MeshFormat"),
    "one section without end": (gmsh(POINT)[:40] + b"$Nodes\n" * 3_000_000, "the file has no section"),
    "empty": (b"", "the file has no section MeshFormat"),
}


@pytest.fixture(scope="module")
def gmsh_outcomes(tmp_path_factory):
    """What `parse` says of a model with each of the files, by case."""
    folders = {case: tmp_path_factory.mktemp("gmsh") for case in GMSH}
    for case, folder in folders.items():
        (folder / "x.msh").write_bytes(GMSH[case][0])
        flex = '<flexcomp name="f" type="gmsh" file="x.msh" mass="1" dim="2"/>'
        (folder / "m.xml").write_text(MJCF.format(f'<body name="b">{flex}</body>'))
    models = {case: folder / "m.xml" for case, folder in folders.items()}
    return {case: (models[case], found) for case, found in zip(GMSH, outcomes(*models.values()), strict=True)}


@pytest.mark.parametrize("case", GMSH)
def test_gmsh_files(gmsh_outcomes, case):
    model, found = gmsh_outcomes[case]
    refused(found, model, GMSH[case][1])
    assert '<flexcomp name="f">: file: ' in found


# ---- OBJ -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"v 1 1 1\n" + b"f 1 1 1 1 1 1 1 1 1 1\n" * 1_000_001, "more than 10000000 corners together"),
        (b"f" + b" 1" * 100_001, "line 1 of the OBJ file"),
        (b"v 1 1 1\nf 1 1 " + b"9" * 6000, "line 2 of the OBJ file"),
        (b"v 1 1 " + b"9" * 6000 + b"x", "line 1 of the OBJ file"),
    ],
)
def test_obj_files(data, text):
    with pytest.raises(ParseError, match=text):
        read_triangles(data, "obj", parse_xml('<mesh file="x.obj"/>', "m.xml"), Notes("m.xml"), True)


def test_obj_faces_of_any_size():
    """Triangles around the first corner; of four corners along the shorter diagonal where that is asked for."""
    data = b"v 0 0 0\nv 1 0 0\nv 2 2 0\nv 0 1 0\nv 9 9 9\nf 1 2\nf 1 2 3\nf 1/1 2/2 3/3 4/4\nf -5 -4 -3 -2 -1\nf 1\n"
    element = parse_xml('<mesh file="x.obj"/>', "m.xml")
    first, shorter = (read_triangles(data, "obj", element, Notes("m.xml"), s).faces.tolist() for s in (False, True))
    fan = [[0, 1, 2], [0, 2, 3], [0, 3, 4]]
    assert first == [[0, 1, 2], [0, 1, 2], [0, 2, 3], *fan]
    assert shorter == [[0, 1, 2], [3, 0, 1], [3, 1, 2], *fan]


# ---- documents -----------------------------------------------------------------------------------------------------------------

ATTRIBUTES = " ".join(f'a{i}="1"' for i in range(200_000))
MANY_ATTRIBUTES = {
    "mjcf": MJCF.format(f'<geom size="1" {ATTRIBUTES}/>'),
    "sdf": SDF.format(f'<link name="l" {ATTRIBUTES}/>'),
    "urdf": f'<robot name="r"><link name="l" {ATTRIBUTES}/></robot>',
    "skel": f'<skel version="1.0"><world name="w" {ATTRIBUTES}/></skel>',
    "x_xy": f'<x_xy><worldbody><body name="b" joint="rx" {ATTRIBUTES}/></worldbody></x_xy>',
}


@pytest.mark.parametrize("format", MANY_ATTRIBUTES)
def test_many_attributes_of_an_element(format):
    with pytest.raises(ParseError, match=rf"^m:1: <\w+>: 200\d\d\d attributes; allowed: {MAX_ATTRIBUTES}"):
        parse_text(MANY_ATTRIBUTES[format], format, file="m")


LARGE = {
    "20,000 bodies": (20_000, "".join(f'<body name="b{i}"><joint/><geom size="1"/></body>' for i in range(20_000))),
    "900 bodies deep": (900, "".join(f'<body name="b{i}"><joint/><geom size="1"/>' for i in range(900)) + "</body>" * 900),
}


@pytest.mark.nightly
def test_large_models_are_read(tmp_path):
    files = []
    for i, (_, text) in enumerate(LARGE.values()):
        files.append(tmp_path / f"{i}.xml")
        files[-1].write_text(MJCF.format(text))
    assert outcomes(*files) == [f"bodies {count}" for count, _ in LARGE.values()]


def test_geoms_of_the_world_take_time_in_proportion():
    """20,000 of them and one that moves: of the pairs, those with it. A loop over all pairs takes half a minute."""
    spec = parse_text(MJCF.format('<geom size="1"/><body pos="0 0 3"><freejoint/><geom size=".1"/></body>'), "mjcf")
    (first,) = spec.world_geoms
    world = tuple(dataclasses.replace(first, pos=np.array([3.0 * i, 0, 0])) for i in range(20_000))
    start = time.process_time()
    model = assemble(spec.replace(world_geoms=world))
    assert time.process_time() - start < 10
    (info,) = model.topology.pairs
    np.testing.assert_array_equal(info.geoms.value, np.stack([np.arange(20_000), np.full(20_000, 20_000)], 1))


NESTED = '<replicate count="99">' * 9 + '<geom size="1"/>' + "</replicate>" * 9


@pytest.mark.parametrize("text", ['<replicate count="400000"><geom size="1"/></replicate>', NESTED])
def test_replicas_have_a_limit(text):
    with pytest.raises(ParseError, match=r"^m:1: <replicate>: the model grows to \d+ elements; allowed: 500000"):
        parse_text(MJCF.format(text), "mjcf", file="m")


# ---- numbers -------------------------------------------------------------------------------------------------------------------

AXIS = {
    "urdf": '<robot name="r"><link name="a"/><link name="b"/><joint name="j" type="continuous"><parent link="a"/><child link="b"/>'
    '<axis xyz="{}"/></joint></robot>',
    "sdf": SDF.format(
        '<link name="a"/><link name="b"/><joint name="j" type="revolute"><parent>a</parent><child>b</child>'
        "<axis><xyz>{}</xyz></axis></joint>"
    ),
    "mjcf": '<mujoco><worldbody><body name="b"><joint axis="{}"/><geom size="1"/></body></worldbody></mujoco>',
    "x_xy": '<x_xy><worldbody><body name="b" joint="rsaddle" axes="{} 0 0 1"/></worldbody></x_xy>',
    "skel": '<skel version="1.0"><world name="w"><skeleton name="s"><body name="b"><inertia><mass>1</mass></inertia></body>'
    '<joint type="revolute" name="j"><parent>world</parent><child>b</child><axis><xyz>{}</xyz></axis></joint></skeleton></world></skel>',
}  # fmt: skip


@pytest.mark.parametrize("axis", ["1e308 0 0", "1e308 1e308 1e308", "1e-320 0 0", "1e200 0 0"])
@pytest.mark.parametrize("format", AXIS)
def test_axes_of_any_length(format, axis):
    """A direction, or refused with its line."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            spec = parse_text(AXIS[format].format(axis), format, file="m")
        except ParseError as error:
            assert str(error).startswith("m:1: ")
        else:
            np.testing.assert_allclose(np.linalg.norm(spec.bodies[-1].joint.params["axes"]), 1.0, rtol=1e-12)


@pytest.mark.parametrize(
    ("pos", "damping", "mass", "leaf"),
    [("1e39 0 0", "1", "1", "body.pos"), ("0 0 0", "1e39", "1", "dof.damping"), ("0 0 0", "1", "1e39", "geom.mass")],
)
def test_numbers_that_overflow_are_named(pos, damping, mass, leaf):
    text = f'<body name="b" pos="{pos}"><joint damping="{damping}"/><geom size="1" mass="{mass}"/></body>'
    spec = parse_text(MJCF.format(text), "mjcf")
    with pytest.warns(UserWarning, match=rf"^{leaf}: 1e\+39 at \[.*\] is larger than float32 holds \(3\.4e\+38\): it becomes infinite"):
        assemble(spec)


@pytest.mark.slow
def test_the_limits_are_those_that_this_file_promises():
    """A process that asks for more memory, or works longer, fails: the outcomes above mean something."""
    if not LINUX:
        pytest.skip("the limit of memory is Linux's")
    limits = SCRIPT.split("for file in")[0]
    greedy, endless = f"bytearray({BYTES * 11 // 10})", "resource.setrlimit(resource.RLIMIT_CPU, (1, 40))\nwhile True: pass"
    for code, end, text in ((greedy, 1, "MemoryError"), (endless, -signal.SIGXCPU, "")):
        done = subprocess.run([sys.executable, "-c", f"{limits}\n{code}"], capture_output=True, text=True, check=False)
        assert done.returncode == end and text in done.stderr
