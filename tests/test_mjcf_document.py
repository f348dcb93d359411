"""MJCF documents: includes, schema, compiler settings, default classes, replicate, attach, keyframes of attached models."""

import json
import time

import numpy as np
import pytest
from corpus import corpus, needs_corpus

from xsim.io import parse
from xsim.io.errors import Notes, ParseError, SuspiciousInputWarning
from xsim.io.mjcf.keyframes import key_numbers
from xsim.io.mjcf.nodes import scope
from xsim.io.mjcf.open import read_document
from xsim.io.mjcf.options import read_option
from xsim.io.reader import Element
from xsim.limits import Limits, limited

TAGS = {"geom": ("geom",), "site": ("site",), "body": ("body",), "joint": ("joint", "freejoint")}
SECTIONS = ("tendon", "actuator", "sensor", "equality")


def _write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "main.xml"


@pytest.fixture
def load(tmp_path):
    """Write files (or the text of main.xml) and read main.xml."""

    def read(files, rules="3.2"):
        path = _write(tmp_path, {"main.xml": files} if isinstance(files, str) else files)
        return read_document(path.read_bytes(), str(path), Notes(str(path)), rules)

    return read


def _world(body, rest=""):
    return f"<mujoco><worldbody>{body}</worldbody>{rest}</mujoco>"


def _all(document, tag):
    """Elements of the tree of bodies in the order of their numbers: body by body, depth first."""
    out, bodies = [], [n for n in document.root._node.children if n.tag == "worldbody"]
    while bodies:
        body, inner = bodies.pop(0), []
        if body.tag in TAGS[tag]:
            out.append(Element(body, body.file))
        pending = list(body.children)
        while pending:
            node = pending.pop(0)
            if node.tag == "frame":
                pending[:0] = node.children
            elif node.tag == "body":
                inner.append(node)
            elif node.tag in TAGS[tag]:
                out.append(Element(node, node.file))
        bodies[:0] = inner
    return out


def _names(document, kind):
    elements = _all(document, kind) if kind in TAGS else document.elements(kind)
    return [e.raw("name") or "" for e in elements]


# ---- include -----------------------------------------------------------------------------------------------------------------


def test_include_is_textual_and_remembers_file_and_line(load, tmp_path):
    document = load({
        "main.xml": _world('<geom name="a"/><include file="sub/one.xml"/><geom name="z"/>'),
        "sub/one.xml": '<anything>\n<geom name="b"/><include file="two.xml"/>\n<include file="three.xml"/></anything>',
        "sub/two.xml": '<x><geom name="of the including file"/></x>',
        "three.xml": '<x>\n\n<geom name="of the main file"/></x>',
        "sub/three.xml": '<x><geom name="not this"/></x>',
    })  # fmt: skip
    assert _names(document, "geom") == ["a", "b", "of the including file", "of the main file", "z"]
    third = _all(document, "geom")[3]
    assert (third.file, third.line) == (str(tmp_path / "three.xml"), 3)


@pytest.mark.parametrize(
    ("files", "line", "words"),
    [
        ({"main.xml": _world('\n\n<include file="no.xml"/>')}, 3, ("no.xml", "not there")),
        ({"main.xml": _world('<include file="a.xml"/>\n<include file="./s/../a.xml"/>'), "a.xml": "<x><geom/></x>"}, 2, ("once",)),
        ({"main.xml": _world('<include file="a.xml"/>'), "a.xml": '<x>\n<include file="a.xml"/></x>'}, 2, ("include", "once")),
        ({"main.xml": _world('<include file="main.xml"/>')}, 1, ("once",)),
        ({"main.xml": _world('<include file="a.xml"/>'), "a.xml": "<x/>"}, 1, ("no elements",)),
        ({"main.xml": _world("<include/>")}, 1, ("'file' is missing",)),
        ({"main.xml": _world('<include file="a.xml" prefix="p"/>')}, 1, ("attribute 'prefix'",)),
        ({"main.xml": _world('<include file="/etc/passwd"/>')}, 1, ("leads out of",)),
        ({"main.xml": _world('<include file="../../../../../../../../../../etc/passwd"/>')}, 1, ("leads out of",)),
        ({"main.xml": _world('<include file="a.xml"/>'), "a.xml": "<x><geom>\n</x>"}, 2, ("well-formed",)),
    ],
)
def test_includes_that_fail(load, files, line, words):
    with pytest.raises(ParseError) as error:
        load(files)
    assert error.value.line == line
    assert all(word in str(error.value) for word in words)


def test_include_may_climb_and_text_reads_from_the_folder_of_its_name(tmp_path):
    path = _write(tmp_path, {"robots/one/main.xml": "", "shared/a.xml": "<x><geom name='shared'/></x>"}).parent / "robots/one/model.xml"
    document = read_document(_world(r'<include file="..\../shared/a.xml"/>'), str(path), Notes(""))
    assert _names(document, "geom") == ["shared"]


TETRAHEDRON = "\n".join(("v 0 0 0", "v 1 0 0", "v 0 1 0", "v 0 0 1", "f 1 3 2", "f 1 2 4", "f 1 4 3", "f 2 3 4"))
MESH = '<asset><mesh name="m" file="m.obj"/></asset>'


@pytest.mark.parametrize(
    ("main", "included", "places"),  # where MuJoCo 3.2.7 finds m.obj, the first of these that is there
    [
        ('<include file="arm/a.xml"/>', f'<compiler meshdir="A"/>{MESH}', ("A", "arm")),
        ('<compiler meshdir="A"/><include file="arm/a.xml"/>', MESH, ("A", "arm")),
        ('<compiler meshdir="A"/><include file="arm/a.xml"/>', f'<compiler meshdir="B"/>{MESH}', ("B", "arm")),
        (f'<include file="arm/a.xml"/>{MESH}', '<compiler meshdir="A"/>', ("A",)),
        ('<include file="arm/a.xml"/>', f'<compiler meshdir="A" strippath="true"/>{MESH}', ("A",)),
    ],
)
def test_meshes_of_included_files(tmp_path, main, included, places):
    """In the folder of meshes, which starts at the main file; else, for a mesh of an included file, beside that file."""
    path = _write(tmp_path, {"main.xml": f"<mujoco>{main}</mujoco>", "arm/a.xml": f"<mujoco>{included}</mujoco>"})
    for folder in ("", "A", "B", "arm", "arm/A", "arm/B"):
        (tmp_path / folder / "m.obj").parent.mkdir(exist_ok=True)
        (tmp_path / folder / "m.obj").write_text(TETRAHEDRON)
    for place in places:
        found = tmp_path / place / "m.obj"
        assert parse(path).meshes[0].file == str(found)
        found.unlink()
    with pytest.raises(ParseError, match="m.obj"):
        parse(path)


def test_slips_in_xml_are_repaired(tmp_path):
    """Attributes without a space between them, a declaration of version 0.0: TinyXML, MuJoCo's parser, takes both."""
    part = '<?xml version="0.0"?>\n<x>\n<geom class="main" name="b"type=\'box\'size="1 2 3"/></x>'
    path = _write(tmp_path, {"main.xml": _world('\n<!-- a="b"c -->\n<include file="a.xml"/>'), "a.xml": part})
    with pytest.warns(SuspiciousInputWarning) as caught:
        spec = parse(path)
    assert str(caught[0].message).split("\n") == [
        f"{tmp_path / 'a.xml'}:1: XML declaration: version: found '0.0'; allowed: 1.0; assumed: 1.0",
        f"{tmp_path / 'a.xml'}:3: <geom>: no space between two attributes; assumed: a space",
    ]
    (geom,) = spec.world_geoms
    assert (geom.name, geom.shape, geom.size.tolist(), geom.source.line) == ("b", "box", [1, 2, 3], 3)
    with pytest.raises(ParseError, match=r"a.xml:1: not well-formed XML"):
        parse(path, strict=True)


# ---- schema ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<robot/>", ("root", "<mujoco>")),
        (_world("<gom/>"), ("unknown element", "did you mean 'geom'")),
        (_world('<geom siez="1"/>'), ("unknown attribute 'siez'", "did you mean 'size'")),
        (_world('<body>\n<geom><frame/></geom></body>'), ("<frame>", "unknown element in <geom>")),
        (_world('<body><inertial mass="1"/><inertial mass="1"/></body>'), ("second <inertial>",)),
        (_world("<body><freejoint class='c'/></body>"), ("unknown attribute 'class'",)),
        ("<mujoco><worldbody pos='0 0 1'/></mujoco>", ("unknown attribute 'pos'",)),
        ("<mujoco><default><geom/><geom/></default></mujoco>", ("second <geom>",)),
        ("<mujoco><default><geom name='a'/></default></mujoco>", ("unknown attribute 'name'",)),
        ("<mujoco><equality><distance/></equality></mujoco>", ("distance",)),
        ("<mujoco><compiler coordinate='global'/></mujoco>", ("coordinate", "global")),
        ("<mujoco><option><flag spring='disable'/></option></mujoco>", ("unknown attribute 'spring'",)),
        (_world("<frame name='f'/><frame name='f'/>"), ("second frame",)),
    ],
)  # fmt: skip
def test_schema(load, text, words):
    with pytest.raises(ParseError) as error:
        load(text)
    assert all(word in str(error.value) for word in words)


def test_newer_attributes_need_the_newer_rules(load):
    load("<mujoco><option><flag spring='disable'/></option></mujoco>", "4.0")


# ---- compiler and defaults -----------------------------------------------------------------------------------------------------


def test_compiler_sections_add_up(load):
    c = load(
        "<mujoco><compiler angle='radian' assetdir='all' meshdir='m'/><compiler eulerseq='XYZ' boundmass='2'>"
        "<lengthrange mode='all' accel='3'/></compiler><compiler texturedir=''><lengthrange uselimit='true'/></compiler></mujoco>"
    ).compiler
    assert (c.angle, c.eulerseq, c.bound_mass, c.mesh_dir, c.texture_dir) == ("radian", "XYZ", 2.0, "m", "")
    assert c.length_range == {"mode": "all", "accel": 3.0, "uselimit": True}
    assert c.angles(1.0) == 1.0


@pytest.mark.parametrize("attribute", ["angle='rad'", "eulerseq='xy'", "eulerseq='abc'", "autolimits='1'", "inertiagrouprange='0.5 2'"])
def test_compiler_refuses(load, attribute):
    with pytest.raises(ParseError, match=attribute.split("=")[0]):
        load(f"<mujoco><compiler {attribute}/></mujoco>")


def test_a_nested_class_copies_its_parent_as_it_is_at_that_moment(load):
    document = load(
        "<mujoco><default><default class='a'><joint armature='1'/></default><joint damping='1'/></default>"
        "<default><joint damping='2'/></default>"
        "<worldbody><body childclass='a'><frame childclass='main'><joint name='of the frame'/></frame><joint name='of the body'/>"
        "<joint name='own' class='main'/><freejoint name='free'/></body></worldbody></mujoco>"
    )
    said = {e.raw("name"): document.resolve(e) for e in _all(document, "joint")}
    assert {name: (e.raw("damping"), e.raw("armature")) for name, e in said.items()} == {
        "of the frame": ("2", None), "of the body": ("1", "1"), "own": ("2", None), "free": (None, None),
    }  # fmt: skip
    order = [e.raw("damping") for e in document.classes.chain(_all(document, "joint")[1], "joint")]
    assert order == ["1", None]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("<mujoco>\n<default class='other'/></mujoco>", 2),
        ("<mujoco><default>\n<default/></default></mujoco>", 2),
        ("<mujoco><default><default class='a'/>\n<default class='a'/></default></mujoco>", 2),
        ("<mujoco><default><default class='a'/></default><default>\n<default class='a'/></default></mujoco>", 2),
        ("<mujoco><default>\n<default class='main'/></default></mujoco>", 2),
        (_world("\n<body childclass='nobody'/>"), 2),
        (_world("<geom/>", "\n<actuator><motor class='nobody'/></actuator>"), 2),
    ],
)
def test_classes_that_fail(load, text, line):
    with pytest.raises(ParseError, match="class") as error:
        load(text)
    assert error.value.line == line


# ---- replicate -----------------------------------------------------------------------------------------------------------------

QUARTER = '<replicate count="5" offset="1 0 0" euler="0 0 90"><site name="s"/></replicate>'


@pytest.mark.parametrize(
    ("rules", "places"),
    [
        ("4.0", [(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)]),
        # 3.2 turns the offset one copy later.
        ("3.2", [(0, 0), (1, 0), (2, 0), (2, 1), (1, 1)]),
    ],
)
def test_replicate_steps(load, rules, places):
    document = load(_world(QUARTER), rules)
    frames = [e._node.parent.attrib for e in _all(document, "site")]
    assert np.allclose([np.fromstring(f["pos"], sep=" ")[:2] for f in frames], places, atol=1e-14)
    turns = [np.fromstring(f["quat"], sep=" ") for f in frames]
    angles = np.arange(5) * np.pi / 4
    assert np.allclose(turns, np.stack([np.cos(angles), 0 * angles, 0 * angles, np.sin(angles)], 1), atol=1e-14)


@pytest.mark.parametrize(("rules", "place"), [("4.0", (1.73068165, 0.51185758, 0.45178108)), ("3.2", (2, 0, 0))])
def test_angles_of_replicate_add_up_one_by_one(load, rules, place):
    """The third copy has the orientation of the doubled angles. Numbers of MuJoCo 4.0.0 and 3.2.7."""
    angles = " ".join(map(str, np.degrees([-0.4, -0.7, 0.3])))
    document = load(_world(f'<replicate count="3" offset="1 0 0" euler="{angles}"><site name="s"/></replicate>'), rules)
    frame = _all(document, "site")[2]._node.parent.attrib
    assert np.allclose(np.fromstring(frame["quat"], sep=" "), [0.59886516, -0.45989182, -0.47884328, 0.44784947], atol=1e-8)
    assert np.allclose(np.fromstring(frame["pos"], sep=" "), place, atol=1e-8)


def test_replicate_copies_what_refers_to_it(load):
    document = load(_world(
        '<body name="f"><joint name="fj"/></body>'
        '<replicate count="2"><body name="r"><joint name="rj"/><joint name="rk"/><camera name="c" target="r"/></body></replicate>'
        '<replicate count="10" sep="-"><body name="q"><joint name="qj"/></body></replicate>',
        '<tendon><fixed name="t"><joint joint="fj" coef="1"/><joint joint="rj" coef="1"/></fixed></tendon>'
        '<actuator><motor name="a" joint="rj"/><motor name="b" joint="fj"/><motor name="c" joint="qj"/><motor name="d" tendon="t"/>'
        '<motor name="e" joint="rk0"/></actuator>'
        '<sensor><actuatorfrc name="s" actuator="d"/><clock name="k"/></sensor>'
        '<equality><joint name="e" joint1="rj" joint2="fj"/></equality>'
        '<custom><tuple name="u"><element objtype="body" objname="r"/></tuple><tuple name="v"/></custom>'
        '<keyframe><key name="k" qpos="1"/></keyframe>',
    ))  # fmt: skip
    assert _names(document, "joint") == ["fj", "rj0", "rk0", "rj1", "rk1", *(f"qj-{i:02d}" for i in range(10))]
    assert _names(document, "tendon") == ["t0", "t1"]
    assert _names(document, "actuator") == ["b", "e", "a0", "d0", "a1", "d1", *(f"c-{i:02d}" for i in range(10))]
    assert _names(document, "sensor") == ["k", "s0", "s1"]
    assert _names(document, "equality") == ["e0", "e1"]
    assert _names(document, "custom") == ["v", "u0", "u1"]
    assert _names(document, "keyframe") == ["k"]
    second = document.elements("tendon")[1]
    assert [j.raw("joint") for j in second.all("joint")] == ["fj", "rj1"]
    assert [n.attrib["target"] for n in document.root._node.walk() if n.tag == "camera"] == ["r0", "r1"]


def test_nested_replicates_append_the_inner_number_first(load):
    inner = '<replicate count="2" sep="B"><geom name="q"/></replicate>'
    document = load(_world(f'<replicate count="2" sep="A"><geom name="r"/>{inner}<geom name="s"/></replicate>'))
    assert _names(document, "geom") == ["rA0", "qB0A0", "qB1A0", "sA0", "rA1", "qB0A1", "qB1A1", "sA1"]


@pytest.mark.parametrize(
    "body",
    [
        '<replicate count="1000000"><geom/></replicate>',
        f'<replicate count="{10**30}"><geom/></replicate>',
        '<replicate count="99"><replicate count="99"><replicate count="99"><geom/></replicate></replicate></replicate>',
        f'<replicate count="500" sep="{"x" * 100000}"><geom name="g"/></replicate>',
    ],
)
def test_replicate_is_bounded(load, body):
    start = time.perf_counter()
    with pytest.raises(ParseError, match="<replicate>: the .* grow"):
        load(_world(body))
    assert time.perf_counter() - start < 5


@pytest.mark.parametrize("count", ["", "count='0'", "count='-1'", "count='2.5'"])
def test_replicate_needs_a_count(load, count):
    with pytest.raises(ParseError, match="count"):
        load(_world(f"<replicate {count}><geom/></replicate>"))


# ---- attach --------------------------------------------------------------------------------------------------------------------

ARM = """<mujoco model="arm"><compiler angle="radian" meshdir="m"/>
<default><joint damping="3"/><default class="c"><joint damping=".4"/><motor gear="5"/></default></default>
<asset><material name="red"/><mesh file="d/hand.stl"/></asset>
<worldbody><body name="before"><joint name="bj" type="ball"/></body><frame pos="9 9 9" childclass="c">
<body name="base"><joint name="j"/><geom type="mesh" mesh="hand" material="red"/>
<body name="fore" childclass="main"><joint name="k"/></body></body></frame>
</worldbody><contact><exclude name="x" body1="base" body2="world"/><exclude name="xb" body1="base" body2="before"/></contact>
<tendon><fixed name="t"><joint joint="j" coef="1"/></fixed><fixed name="tb"><joint joint="bj" coef="1"/></fixed></tendon>
<actuator><motor name="ab" joint="bj"/><motor name="a" joint="j" class="c"/><intvelocity name="at" tendon="t" actrange="0 1"/></actuator>
<sensor><clock name="ck"/><jointpos name="s" joint="j"/><actuatorfrc name="sb" actuator="ab"/></sensor>
<keyframe><key name="K" qpos="1 2 3 4 5 6" qvel="1 2 3 4 5" ctrl="7 8 9" act="6" time="2"/></keyframe></mujoco>"""
HOST = """<mujoco><asset><model file="sub/arm.xml"/></asset>
<worldbody><body name="P"><joint name="pj"/><attach model="arm" body="base" prefix="L_"/><joint name="pk"/></body>
<attach model="arm" body="fore" prefix="R_"/></worldbody><actuator><motor name="mine" joint="L_j"/></actuator></mujoco>"""


def test_attach(load, tmp_path):
    document = load({"main.xml": HOST, "sub/arm.xml": ARM})
    assert _names(document, "body") == ["P", "L_base", "L_fore", "R_fore"]
    assert _names(document, "joint") == ["pj", "pk", "L_j", "L_k", "R_k"]
    assert _names(document, "actuator") == ["mine", "L_a", "L_at"]
    assert _names(document, "tendon") == ["L_t"]
    assert _names(document, "sensor") == ["L_ck", "L_s", "R_ck"]
    assert _names(document, "contact") == ["L_x"]
    assert _names(document, "asset") == ["L_red", "L_hand", "R_red", "R_hand"]
    (geom,) = _all(document, "geom")
    assert (geom.raw("mesh"), geom.raw("material")) == ("L_hand", "L_red")
    # Each element keeps the settings and defaults of its own file.
    joints = {e.raw("name"): e for e in _all(document, "joint")}
    assert {name: document.resolve(e).raw("damping") for name, e in joints.items()} == {
        "pj": None, "pk": None, "L_j": ".4", "L_k": "3", "R_k": "3",
    }  # fmt: skip
    assert [scope(e).angle for e in joints.values()] == ["degree", "degree", "radian", "radian", "radian"]
    assert scope(document.elements("asset")[1]).folder == tmp_path / "sub"
    assert document.elements("contact")[0].raw("body2") == "world"


def test_keyframes_of_attached_models(load):
    document = load({"main.xml": HOST, "sub/arm.xml": ARM})
    left, right = document.elements("keyframe", "key")
    nan = np.nan
    expected = {
        "qpos": ([nan, nan, 5, 6, nan], [nan, nan, nan, nan, 6]),
        "qvel": ([0, 0, 4, 5, 0], [0, 0, 0, 0, 5]),
        "ctrl": ([0, 8, 9], None),
        "act": ([6], None),
        "mpos": (None, None),
    }
    for name, values in expected.items():
        for key, wanted in zip((left, right), values, strict=True):
            found = key_numbers(document, key, name)
            assert (found is None) == (wanted is None)
            assert wanted is None or np.array_equal(found, wanted, equal_nan=True)
    assert (left.raw("name"), left.raw("time")) == ("L_K", "2")


def test_attach_inside_replicate_and_attach(load):
    model = '<mujoco><asset><model name="m" file="{}"/></asset><worldbody>{}</worldbody></mujoco>'
    inner = '<body name="o"><attach model="m" body="fore" prefix="I_"/></body>'
    outer = '<replicate count="2"><attach model="m" body="o" prefix="O_"/></replicate>'
    document = load({"main.xml": model.format("o.xml", outer), "o.xml": model.format("sub/arm.xml", inner), "sub/arm.xml": ARM})
    assert _names(document, "joint") == ["O_I_k0", "O_I_k1"]
    assert [document.resolve(e).raw("damping") for e in _all(document, "joint")] == ["3", "3"]
    (key,) = document.elements("keyframe")
    assert key.raw("name") == "O_I_K"
    assert np.array_equal(key_numbers(document, key, "qpos"), [6, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("attach", "words"),
    [
        ('<attach body="base" prefix="p"/>', ("'model' is missing",)),
        ('<attach model="arm" prefix="p"/>', ("'body' is missing",)),
        ('<attach model="arm" body="base"/>', ("'prefix' is missing",)),
        ('<attach model="amr" body="base" prefix="p"/>', ("unknown model 'amr'", "did you mean 'arm'")),
        ('<attach model="arm" body="bsae" prefix="p"/>', ("unknown body 'bsae'", "did you mean 'base'")),
        ('<attach model="arm" body="base" prefix="p"/>' * 2, ("with this prefix",)),
    ],
)
def test_attach_that_fails(load, attach, words):
    with pytest.raises(ParseError) as error:
        load({"main.xml": f'<mujoco><asset><model file="a.xml"/></asset><worldbody>{attach}</worldbody></mujoco>', "a.xml": ARM})
    assert all(word in str(error.value) for word in words)


OWN = """<mujoco><worldbody><frame name="f" pos="0 0 1"><body name="a"><joint name="j"/>{}</body></frame>
<body name="b"><joint name="k"/>{}</body></worldbody>
<equality><joint joint1="j" joint2="k" name="e"/></equality><keyframe><key qpos="1 2"/></keyframe></mujoco>"""


def test_attach_of_the_model_itself(load):
    """What a body around holds before the <attach> is copied; elements that refer to it are, with their other references."""
    document = load(OWN.format("", '<attach frame="f" prefix="q_"/><joint name="l"/>'), "4.0")
    assert _names(document, "body") == ["a", "b", "q_a"] and _names(document, "joint") == ["j", "k", "l", "q_j"]
    assert [(e.raw("joint1"), e.raw("joint2")) for e in document.elements("equality")] == [("j", "k"), ("q_j", "k")]
    assert _names(document, "keyframe") == [""]
    document = load(OWN.format('<site/><attach body="a" prefix="q_"/><site/>', ""), "4.0")
    assert _names(document, "body") == ["a", "q_a", "b"] and len(_all(document, "site")) == 3


@pytest.mark.parametrize(("attach", "words"), [
    ('<attach model="arm" body="base" frame="f" prefix="p"/>', "frame: found body and frame"),
    ('<attach model="arm" frame="f" prefix="p"/>', "unknown frame 'f' in .*a.xml; it has no frame with a name"),
    ('<attach model="arm" prefix="p"/><attach model="arm" body="fore" prefix="p"/>', "'fore' is in the model with this prefix already"),
    ('<attach prefix="p"/>', "found no model; allowed without a model: one of body and frame"),
    ('<attach body="later"/><body name="later"/>', "attribute 'prefix' is missing"),
    ('<attach body="later" prefix="p"/><body name="later"/>', "unknown body 'later' before this element; there is no body with a name"),
    ('<body name="o"/><attach body="o" prefix=""/>', "body 'o' is in the model already; allowed: another prefix"),
    ('<body name="o"><replicate count="2"><attach body="o" prefix="p"/></replicate></body>', "found in a <replicate> inside of what it"),
])  # fmt: skip
def test_attach_of_4_0_that_fails(load, attach, words):
    with pytest.raises(ParseError, match=words):
        load({"main.xml": f'<mujoco><asset><model file="a.xml"/></asset><worldbody>{attach}</worldbody></mujoco>', "a.xml": ARM}, "4.0")


def _options(load, ours, theirs, conflict):
    settings = f'<compiler conflict="{conflict}"/>{ours}<asset><model name="m" file="a.xml"/></asset>'
    attaching = f'<mujoco>{settings}<worldbody><attach model="m" body="o" prefix="p"/></worldbody></mujoco>'
    attached = f'<mujoco>{theirs}<worldbody><body name="o"/></worldbody></mujoco>'
    return load({"main.xml": attaching, "a.xml": attached}, "4.0")


def test_conflicts_of_options(load):
    ours = '<option timestep="0.002" iterations="9" actuatorgroupdisable="1"><flag energy="enable" gravity="enable"/></option>'
    theirs = '<option timestep="0.001" iterations="5" actuatorgroupdisable="2" density="2"><flag gravity="disable"/></option>'
    expected = {"warning": (0.002, 9, 0.0, (1,), ()), "merge": (0.001, 9, 2.0, (1, 2), ("gravity",))}
    for conflict, wanted in expected.items():
        option = read_option(_options(load, ours, theirs + '<size nkey="3"/>', conflict))
        assert (option.dt, option.solver["iterations"], option.density, option.actuator_groups_off, option.disabled) == wanted
        assert option.solver["energy"]
    with pytest.raises(ParseError, match="option timestep: found '0.002', and '0.001' in .*a.xml; allowed: the same value in both"):
        _options(load, ours, theirs, "error")
    assert read_option(_options(load, '<option gravity="0 0 -5"/>', '<option gravity="0 0 -5.0" density="2"/>', "error")).density == 0.0
    with pytest.raises(ParseError, match="option gravity: found '0 0 -5', and '0 0 -9.81'"):
        _options(load, '<option gravity="0 0 -5"/>', '<option gravity="0 0 -9.81"/>', "merge")


def test_attach_ends(load):
    circle = '<mujoco><asset><model name="m" file="{}"/></asset></mujoco>'
    with pytest.raises(ParseError, match="attaches itself"):
        load({"main.xml": circle.format("a.xml"), "a.xml": circle.format("b.xml"), "b.xml": circle.format("a.xml")})
    model = '<mujoco><asset><model name="m" file="{}.xml"/></asset><worldbody><body name="b">{}</body></worldbody></mujoco>'
    many = "".join(f'<attach model="m" body="b" prefix="{i}_"/>' for i in range(4))
    names = ["main", *map(str, range(30)), "end"]
    files = {f"{name}.xml": model.format(after, many) for name, after in zip(names, names[1:], strict=False)}
    grows = r"the model grows to \d+ elements; allowed: 20000 \(limits: elements\)"
    with pytest.raises(ParseError, match=grows), limited(Limits(elements=20_000)):
        load(files | {"end.xml": '<mujoco><worldbody><body name="b"/></worldbody></mujoco>'})


# ---- against the reference -------------------------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.parametrize(
    "name",
    ["authored/replicate_nested", "authored/attach/main", "authored/include_tree/main", "mujoco/helix", "mujoco/stonehenge",
     "mujoco/newton_cradle", "mujoco/replicate_tendon", "feature/lengthrange", "feature/attach_parent/attach_parent"],
)  # fmt: skip
def test_names_and_order_are_those_of_the_reference(name):
    path = corpus() / "models" / "mjcf" / f"{name}.xml"
    facts = json.loads((corpus() / "oracles" / "mjcf" / "3.2.7" / f"{name}.json").read_text())
    document = read_document(path.read_bytes(), str(path), Notes(str(path)))
    assert ["world", *_names(document, "body")] == facts["body"]["name"]
    for kind in ("geom", "site", *SECTIONS):
        wanted = facts["names"].get(kind, [])
        if (name, kind) == ("feature/lengthrange", "actuator"):
            wanted = [*wanted, "b16"]  # the release loses the last copy
        assert _names(document, kind) == wanted
