"""The x_xy reader and writer: what each word of the format means, what is refused and how it is said, hostile input, round trips."""

from __future__ import annotations

import json
import pickle
import re
import time
import warnings
from dataclasses import replace

import mutations
import numpy as np
import pytest
from corpus import corpus, models, needs_corpus
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lxml import etree

import xsim.models
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, errors, parse, parse_text, reader
from xsim.io import x_xy as xxy
from xsim.joints.types import JOINT_TYPES, ElementaryJoint, JointType, Parameter, register_joint
from xsim.spec import InertialSpec, JointSpec

GEOM = '<geom type="box" mass="1" dim="1 2 3"/>'
WIDTHS = {
    "free": (7, 6), "cor": (10, 9), "free_2d": (3, 3), "frozen": (0, 0), "spherical": (4, 3), "px": (1, 1), "py": (1, 1), "pz": (1, 1),
    "rx": (1, 1), "ry": (1, 1), "rz": (1, 1), "saddle": (2, 2), "p3d": (3, 3), "rr": (1, 1), "rr_imp": (2, 2), "rsaddle": (2, 2),
}  # fmt: skip


def document(world: str, head: str = "", root: str = "") -> str:
    return f"<x_xy {root}>\n{head}\n<worldbody>\n{world}\n</worldbody>\n</x_xy>"


def read(world: str, head: str = "", root: str = ""):
    return parse_text(document(world, head, root), "x_xy", file="m.xml")


def body(attributes: str = "", inside: str = GEOM, head: str = ""):
    """The only body of a document; it is called b and hinged about x unless the attributes name another joint."""
    joint = "" if "joint=" in attributes else 'joint="rx"'
    return read(f'<body name="b" {joint} {attributes}>{inside}</body>', head).bodies[0]


def geom(attributes: str, head: str = ""):
    return body(inside=f"<geom {attributes}/>", head=head).geoms[0]


def refused(world: str, head: str = "", root: str = "") -> str:
    with pytest.raises(ParseError) as caught:
        read(world, head, root)
    return str(caught.value)


def quiet(path_or_text):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        if isinstance(path_or_text, str):
            return parse_text(path_or_text, "x_xy")
        return parse(path_or_text)


def matrix(quat) -> np.ndarray:
    """Rotation matrix of a unit quaternion w x y z, written out independently of the package."""
    w, v = quat[0], np.asarray(quat[1:], float)
    cross = np.cross(np.eye(3), v)
    return (w * w - v @ v) * np.eye(3) + 2 * np.outer(v, v) + 2 * w * cross


def rotation(axis: int, degrees: float) -> np.ndarray:
    c, s = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    out = np.eye(3)
    i, j = (axis + 1) % 3, (axis + 2) % 3
    out[i, i] = out[j, j] = c
    out[j, i], out[i, j] = s, -s
    return out


def same(a, b, where="spec") -> None:
    """Equal up to sources, arrays to 1e-15."""
    if hasattr(a, "__dataclass_fields__"):
        assert type(a) is type(b), where
        for name in a.__dataclass_fields__:
            if name != "source":
                same(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, np.ndarray):
        np.testing.assert_allclose(a, b, rtol=1e-15, atol=1e-15, err_msg=where)
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            same(x, y, f"{where}[{i}]")
    elif isinstance(a, dict):
        assert a.keys() == b.keys(), where
        for key in a:
            same(a[key], b[key], f"{where}[{key}]")
    else:
        assert a == b, where


# ---- root, options, defaults -------------------------------------------------------------------------------------------------


def test_root_name_and_model():
    world = f'<body name="b" joint="rx">{GEOM}</body>'
    assert read(world, root='name="m"').name == "m" == read(world, root='model="m"').name == read(world, root='name="m" model="m"').name
    assert read(world).name == "" and read(world).format == "x_xy"
    assert "disagree" in refused(world, root='name="m" model="n"')


def test_gravity_is_minus_the_attribute():
    spec = read(f'<body name="b" joint="rx">{GEOM}</body>', '<options gravity="1 -2 9.7" dt="0.02"/>')
    np.testing.assert_array_equal(spec.option.gravity, [-1, 2, -9.7])
    assert spec.option.dt == 0.02


def test_option_defaults():
    option = read('<body name="b" joint="rx"/>').option
    np.testing.assert_array_equal(option.gravity, [0, 0, -9.81])
    assert (option.dt, option.integrator, option.regularization) == (0.01, "implicit_damping", 1e-6)
    assert not np.signbit(option.gravity[:2]).any()


def test_negative_gravity_attribute_warns_once():
    with pytest.warns(SuspiciousInputWarning, match=r"m\.xml:2: .*gravity") as caught:
        spec = read('<body name="b" joint="rx"/>', '<options gravity="0 0 -9.81"/>')
    assert len(caught) == 1
    np.testing.assert_array_equal(spec.option.gravity, [0, 0, 9.81])


def test_all_doubts_of_a_file_come_in_one_warning():
    world = '<body name="b" joint="rx"><geom type="sphere" mass="1" dim="1" color="blau"/></body>'
    with pytest.warns(SuspiciousInputWarning) as caught:
        read(world, '<options gravity="0 0 -1"/>')
    assert len(caught) == 1 and "m.xml:2:" in str(caught[0].message) and "m.xml:4:" in str(caught[0].message)


def test_defaults_fill_in_what_is_missing():
    head = '<defaults><geom type="sphere" mass="2" dim="0.5" color="red"/><body joint="ry" pos="1 2 3" damping="4"/></defaults>'
    spec = read('<body name="a"><geom/><body name="b" joint="rz" damping="5" pos="0 0 0"><geom mass="3"/></body></body>', head)
    a, b = spec.bodies
    np.testing.assert_array_equal(a.joint.params["axes"], [[0, 1, 0]])
    np.testing.assert_array_equal(b.joint.params["axes"], [[0, 0, 1]])
    assert (a.geoms[0].shape, a.geoms[0].mass, b.geoms[0].mass, b.geoms[0].color) == ("sphere", 2, 3, "red")
    assert (a.joint.damping, b.joint.damping) == ([4], [5])
    np.testing.assert_array_equal([a.pos, b.pos], [[1, 2, 3], [0, 0, 0]])


@pytest.mark.parametrize(
    ("defaults", "world", "words"),
    [
        ('<body quat="1 0 0 0"/>', '<body name="b" joint="rx" euler="1 2 3"/>', "euler"),
        ('<body damping="1"/>', '<body name="b" joint="spherical"/>', "damping"),
        ('<body damping="1"/>', '<body name="b" joint="frozen"/>', "damping"),
        ('<body pos_min="0 0 0"/>', '<body name="b" joint="rx"/>', "pos_min"),
        ('<body name="x"/>', '<body name="b" joint="rx"/>', "name"),
        ('<body joint="rx"/><body/>', '<body name="b"/>', "second"),
        ("<geom><geom/></geom>", '<body name="b" joint="rx"/>', "geom"),
        ("<options/>", '<body name="b" joint="rx"/>', "options"),
        ('<geom dim="1"/>', '<body name="b" joint="rx"><geom type="box" mass="1"/></body>', "dim"),
        ('<geom dim="1 1 1"/>', '<body name="b" joint="rx"><geom type="box" mass="1" size="1 1 1"/></body>', "size"),
    ],
)
def test_consequences_of_defaults(defaults, world, words):
    assert words in refused(world, f"<defaults>{defaults}</defaults>")


def test_defaults_that_cannot_fit_can_be_overridden():
    head = '<defaults><body damping="1"/></defaults>'
    assert body('joint="spherical" damping="1 2 3"', head=head).joint.damping.tolist() == [1, 2, 3]
    assert body('joint="frozen" damping=""', head=head).joint.damping.tolist() == []


# ---- bodies --------------------------------------------------------------------------------------------------------------------


def test_bodies_are_numbered_depth_first_in_file_order():
    world = """<body name="a" joint="rx"><body name="b" joint="ry"><body name="c" joint="rz"/></body><body name="d" joint="px"/></body>
    <geom type="xyz"/><body name="e" joint="free"/>"""
    spec = read(world)
    assert [(b.name, b.parent) for b in spec.bodies] == [("a", -1), ("b", 0), ("c", 1), ("d", 0), ("e", -1)]


def test_names_are_raw_strings():
    spec = read('<body name="1" joint="rx"/><body name="1.0" joint="rx"/><body name=" a" joint="rx"/><body name="a" joint="rx"/>')
    assert [b.name for b in spec.bodies] == ["1", "1.0", " a", "a"]


def test_numbers_split_at_any_white_space():
    np.testing.assert_array_equal(body('pos="  1   2e0\n\t+.3 "').pos, [1, 2, 0.3])


@pytest.mark.parametrize("angles", [(90, 0, 0), (30, 40, 50), (-20, 89.9, 170), (400, -500, 3)])
def test_euler_is_fixed_x_then_y_then_z(angles):
    expected = rotation(2, angles[2]) @ rotation(1, angles[1]) @ rotation(0, angles[0])
    text = " ".join(map(str, angles))
    for quat in (body(f'euler="{text}"').quat, geom(f'type="sphere" mass="1" dim="1" euler="{text}"').quat):
        np.testing.assert_allclose(matrix(quat), expected, atol=1e-14)


def test_file_quaternions_map_parent_to_child():
    half = repr(0.5**0.5)
    by_quat, by_euler = body(f'quat="{half} -{half} 0 0"').quat, body('euler="90 0 0"').quat
    np.testing.assert_allclose(by_quat, by_euler, atol=1e-15)
    np.testing.assert_allclose(matrix(by_quat) @ [0, 1, 0], [0, 0, 1], atol=1e-15)
    np.testing.assert_allclose(geom(f'type="box" mass="1" dim="1 1 1" quat="{half} -{half} 0 0"').quat, by_euler, atol=1e-15)


def test_quaternions_are_normalized_with_a_warning():
    with pytest.warns(SuspiciousInputWarning, match="norm"):
        np.testing.assert_allclose(body('quat="1 0 1 0"').quat, [np.sqrt(0.5), 0, -np.sqrt(0.5), 0], atol=1e-15)
    assert np.linalg.norm(body('quat="0.7071 0.7071 0 0"').quat) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize("size", ["1e200", "1e308", "1e-200"])
def test_directions_of_absurd_length_are_refused(size):
    assert "quat" in refused(f'<body name="b" joint="rx" quat="{size} {size} 0 0"/>')
    assert "spring_zero" in refused(f'<body name="b" joint="spherical" spring_zero="{size} {size} 0 0"/>')
    assert "axes" in refused(f'<body name="b" joint="rr" axes="{size} {size} 0"/>')


def test_errors_pass_between_processes():
    error = pickle.loads(pickle.dumps(ParseError("m.xml", 3, "<body>: bad")))
    assert (str(error), error.file, error.line) == ("m.xml:3: <body>: bad", "m.xml", 3)


def test_position_range():
    b = body('pos_min="0 -1 2" pos_max="0 1 3"')
    assert not b.pos_given and b.pos.tolist() == [0, 0, 0] and b.pos_min.tolist() == [0, -1, 2] and b.pos_max.tolist() == [0, 1, 3]
    assert body('pos="9 9 9" pos_min="0 0 0" pos_max="0 1 0"').pos_given
    assert body("").pos_given and body("").pos_min is None
    for bad in ('pos_min="0 0 0"', 'pos_max="0 0 0"', 'pos_min="1 1 1" pos_max="1 1 1"', 'pos_min="0 2 0" pos_max="1 1 1"'):
        assert "pos_m" in refused(f'<body name="b" joint="rx" {bad}/>')


def test_optical_marker():
    (marker,) = body(inside='<omc name="m" pos_marker="2" pos="1 2 3"/>').markers
    assert (marker.name, marker.pos_marker, marker.pos.tolist()) == ("m", 2, [1, 2, 3])
    (empty,) = body(inside="<omc/>").markers
    assert (empty.name, empty.pos_marker, empty.pos) == (None, None, None)
    for bad in ("<omc/><omc/>", '<omc pos_marker="1.5"/>', '<omc mass="1"/>', "<omc><geom/></omc>", '<omc pos="1 2"/>'):
        assert "<omc" in refused(f'<body name="b" joint="rx">{bad}</body>')


# ---- joints --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("joint", WIDTHS)
def test_joint_widths(joint):
    b = body(f'joint="{joint}"')
    kind = JOINT_TYPES[b.joint.type]
    assert (kind.nq, kind.nv) == WIDTHS[joint]
    nv = kind.nv
    for name in ("damping", "armature", "spring_stiff"):
        value = " ".join(str(i + 1) for i in range(nv))
        assert getattr(body(f'joint="{joint}" {name}="{value}"').joint, "stiffness" if name == "spring_stiff" else name).shape == (nv,)
        text = refused(f'<body name="b" joint="{joint}" {name}="{value} 1"/>')
        assert text.startswith("m.xml:4: ") and f"{nv + 1} numbers" in text and joint in text and name in text
    text = refused(f'<body name="b" joint="{joint}" spring_zero="{"1 " * (kind.nq + 1)}"/>')
    assert "spring_zero" in text and str(kind.nq) in text


def test_every_joint_of_the_format_has_a_test():
    assert set(WIDTHS) == set(xxy.TYPES)


@pytest.mark.parametrize(
    ("joint", "kind", "axes"),
    [("rx", "hinge", "x"), ("ry", "hinge", "y"), ("rz", "hinge", "z"), ("px", "slide", "x"), ("py", "slide", "y"), ("pz", "slide", "z"),
     ("saddle", "universal", "yz"), ("free_2d", "planar", "yzx")],
)  # fmt: skip
def test_joint_axes(joint, kind, axes):
    found = body(f'joint="{joint}"').joint
    assert found.type == kind
    np.testing.assert_array_equal(found.params["axes"], np.eye(3)[["xyz".index(a) for a in axes]])


def test_sizes_are_checked_per_body():
    assert "damping" in refused('<body name="a" joint="rx" damping="1 2"/><body name="b" joint="saddle" damping="3"/>')


def test_free_vectors_go_to_xsims_order():
    j = body(
        'joint="free" damping="1 2 3 4 5 6" armature="1 2 3 4 5 6" spring_stiff="1 2 3 4 5 6" spring_zero="0.8 0.6 0 0 7 8 9"'
    ).joint
    for value in (j.damping, j.armature, j.stiffness):
        assert value.tolist() == [4, 5, 6, 1, 2, 3]
    np.testing.assert_allclose(j.spring_ref, [7, 8, 9, 0.8, -0.6, 0, 0])
    assert (j.damper_axes, j.armature_axes) == ("body", "body")


def test_cor_vectors_go_to_xsims_order():
    j = body('joint="cor" damping="1 2 3 4 5 6 7 8 9" spring_zero="0.8 0.6 0 0 1 2 3 4 5 6"').joint
    assert j.damping.tolist() == [4, 5, 6, 1, 2, 3, 7, 8, 9]
    np.testing.assert_allclose(j.spring_ref, [1, 2, 3, 0.8, -0.6, 0, 0, 4, 5, 6])
    assert (j.damper_axes, j.armature_axes) == ("body", "body")


def test_free_2d_vectors_go_to_xsims_order():
    j = body('joint="free_2d" damping="1 2 3" armature="4 5 6" spring_stiff="7 8 9" spring_zero="10 11 12"').joint
    found = [v.tolist() for v in (j.damping, j.armature, j.stiffness, j.spring_ref)]
    assert found == [[2, 3, 1], [5, 6, 4], [8, 9, 7], [11, 12, 10]]
    assert (j.damper_axes, j.armature_axes) == ("body", "body")


def test_spherical_spring_zero_is_conjugated_and_unit():
    np.testing.assert_allclose(body('joint="spherical" spring_zero="0.8 0.6 0 0"').joint.spring_ref, [0.8, -0.6, 0, 0])
    for joint, rest in (("spherical", ""), ("free", "0 0 0"), ("cor", "0 0 0 0 0 0")):
        assert "spring_zero" in refused(f'<body name="b" joint="{joint}" spring_zero="1 0.1 0 0 {rest}"/>')


@pytest.mark.parametrize("name", ["damping", "armature", "spring_stiff"])
def test_negative_joint_numbers_are_refused(name):
    assert name in refused(f'<body name="b" joint="rx" {name}="-1"/>')


@pytest.mark.parametrize(("joint", "count"), [("rr", 3), ("rr_imp", 6), ("rsaddle", 6)])
def test_drawn_axes_may_be_recorded(joint, count):
    assert "axes" not in body(f'joint="{joint}"').joint.params
    numbers = [0.6, 0.8, 0, 0, 0, 2][:count]
    text = " ".join(map(str, numbers))
    spec = read(f'<body name="b" joint="{joint}" axes="{text}">{GEOM}</body>')
    assert spec.bodies[0].joint.params["axes"].ravel().tolist() == numbers
    same(spec, parse_text(xxy.to_x_xy(spec), "x_xy"))
    for bad in ("1 2", text + " 1", "0 0 0 " * (count // 3)):
        assert "axes" in refused(f'<body name="b" joint="{joint}" axes="{bad}"/>')
    assert "axes" in refused('<body name="b" joint="rx" axes="1 0 0"/>')


def test_registered_joint_types_may_be_named(monkeypatch):
    name = "test_xxy_knee"
    assert name in refused(f'<body name="b" joint="{name}"/>')
    parameters = {"axes": Parameter((1, 3), ((1.0, 0.0, 0.0),))}
    monkeypatch.setattr(JOINT_TYPES, "_entries", dict(JOINT_TYPES))
    register_joint(JointType(name, (ElementaryJoint("hinge", 0), ElementaryJoint("slide", 0)), parameters))
    spec = read(f'<body name="b" joint="{name}" damping="1 2" spring_zero="3 4">{GEOM}</body>')
    assert spec.bodies[0].joint.type == name and spec.bodies[0].joint.spring_ref.tolist() == [3, 4]
    same(spec, parse_text(xxy.to_x_xy(spec), "x_xy"))
    for xsims_own in ("hinge", "ball", "fixed", "planar", "screw"):
        assert "rx" in refused(f'<body name="b" joint="{xsims_own}"/>')


# ---- geoms ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dim", "shape", "size"),
    [("box", "1 2 3", "box", [0.5, 1, 1.5]), ("sphere", "2", "sphere", [2]), ("cylinder", "2 3", "cylinder", [2, 1.5]),
     ("capsule", "2 3", "capsule", [2, 1.5]), ("xyz", "3", "axes", [3])],
)  # fmt: skip
def test_geom_dims(kind, dim, shape, size):
    for word in ("dim", "size"):
        g = geom(f'type="{kind}" mass="{int(kind != "xyz")}" {word}="{dim}"')
        assert (g.shape, g.size.tolist()) == (shape, size)
    for bad in (f"{dim} 1", "0 0 0", "", "-1 2 3"):
        assert "dim" in refused(f'<body name="b" joint="rx"><geom type="{kind}" mass="1" dim="{bad}"/></body>')
    if kind != "xyz":
        assert "dim" in refused(f'<body name="b" joint="rx"><geom type="{kind}" mass="1"/></body>')
        assert "mass" in refused(f'<body name="b" joint="rx"><geom type="{kind}" dim="{dim}"/></body>')
    assert "size" in refused(f'<body name="b" joint="rx"><geom type="{kind}" mass="1" dim="{dim}" size="{dim}"/></body>')


@pytest.mark.parametrize("kind", ["cylinder", "capsule"])
def test_round_shapes_lie_along_x(kind):
    straight, turned = (geom(f'type="{kind}" mass="1" dim="1 2" {e}') for e in ("", 'euler="0 90 0"'))
    np.testing.assert_allclose(np.abs(matrix(straight.quat) @ [0, 0, 1]), [1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(np.abs(matrix(turned.quat) @ [0, 0, 1]), [0, 0, 1], atol=1e-15)


def test_axes_marker_needs_neither_mass_nor_dim():
    g = geom('type="xyz"')
    assert (g.shape, g.size.tolist(), g.mass) == ("axes", [1], 0)
    assert geom('type="xyz"', '<defaults><geom mass="1"/></defaults>').mass == 0
    with pytest.warns(SuspiciousInputWarning, match="mass"):
        assert geom('type="xyz" mass="2"').mass == 0


def test_massless_geoms_are_legal_and_negative_ones_not():
    assert geom('type="box" mass="0" dim="1 1 1"').mass == 0
    assert "mass" in refused('<body name="b" joint="rx"><geom type="box" mass="-1" dim="1 1 1"/></body>')


def test_geom_pose():
    g = geom('type="box" mass="1" dim="1 1 1" pos="1 2 3" euler="0 0 90"')
    assert g.pos.tolist() == [1, 2, 3]
    np.testing.assert_allclose(matrix(g.quat) @ [1, 0, 0], [0, 1, 0], atol=1e-15)


@pytest.mark.parametrize("name", ["color", "edge_color"])
def test_colours(name):
    def rgba(text):
        g = geom(f'type="sphere" mass="1" dim="1" {name}="{text}"')
        assert getattr(g, name) == text
        return g.rgba if name == "color" else g.edge_rgba

    assert rgba("0.1 0.2 0.3") == (0.1, 0.2, 0.3, 1) and rgba("0.1 0.2 0.3 0.4") == (0.1, 0.2, 0.3, 0.4)
    assert len({rgba(c) for c in ("red", "green", "blue", "orange", "white", "black", "dustin_exp_blue", "matplotlib_salmon")}) == 8
    for unknown in ("crimson-ish", "1 2", "2 0 0", "nan 0 0", "", "1 1 1 1 1"):
        with pytest.warns(SuspiciousInputWarning, match=name):
            rgba(unknown)
    with pytest.warns(SuspiciousInputWarning):
        parse_text(document('<body name="b" joint="rx"><geom type="xyz" color="?"/></body>'), "x_xy", strict=True)


def test_world_geoms_are_scenery():
    spec = read('<geom type="box" mass="5" dim="4 4 0.1" pos="0 0 -1"/><body name="b" joint="rx"/>')
    assert len(spec.world_geoms) == 1 and spec.bodies[0].geoms == () and spec.world_geoms[0].pos.tolist() == [0, 0, -1]


# ---- refusals ------------------------------------------------------------------------------------------------------------------

BAD = {
    "root": ("<robot/>", 1, "x_xy"),
    "root attribute": ("<x_xy version='1'><worldbody/></x_xy>", 1, "version"),
    "no worldbody": ("<x_xy/>", 1, "worldbody"),
    "no body": ("<x_xy>\n<worldbody/></x_xy>", 2, "body"),
    "two worldbodies": ("<x_xy>\n<worldbody/>\n<worldbody/></x_xy>", 3, "worldbody"),
    "two options": ("<x_xy>\n<options/>\n<options/><worldbody/></x_xy>", 3, "options"),
    "misspelt section": ("<x_xy>\n<option/><worldbody/></x_xy>", 2, "options"),
    "body outside": ("<x_xy>\n<body name='a' joint='rx'/><worldbody/></x_xy>", 2, "body"),
    "no name": (document('<body joint="rx"/>'), 4, "name"),
    "empty name": (document('<body name="" joint="rx"/>'), 4, "name"),
    "no joint": (document('<body name="b"/>'), 4, "joint"),
    "joint": (document('<body name="b" joint="revolute"/>'), 4, "revolute"),
    "duplicate": (document('<body name="b" joint="rx">\n<body name="b" joint="rx"/></body>'), 5, 'name="b"'),
    "body in geom": (document(f'<body name="b" joint="rx">\n{GEOM[:-2]}>\n<body name="c" joint="rx"/></geom></body>'), 6, "body"),
    "both orientations": (document('<body name="b" joint="rx" euler="0 0 0" quat="1 0 0 0"/>'), 4, "euler"),
    "zero quaternion": (document('<body name="b" joint="rx" quat="0 0 0 0"/>'), 4, "quat"),
    "not a number": (document('<body name="b" joint="rx" pos="0 one 2"/>'), 4, "one"),
    "nan": (document('<body name="b" joint="rx" pos="0 nan 2"/>'), 4, "nan"),
    "infinite": (document('<body name="b" joint="rx" pos="0 1e999 2"/>'), 4, "1e999"),
    "underscore": (document('<body name="b" joint="rx" pos="0 1_0 2"/>'), 4, "1_0"),
    "two numbers": (document('<body name="b" joint="rx" pos="0 1"/>'), 4, "pos"),
    "gravity": (document('<body name="b" joint="rx"/>', '<options gravity="9.81"/>'), 2, "gravity"),
    "dt": (document('<body name="b" joint="rx"/>', '<options dt="0"/>'), 2, "dt"),
    "option": (document('<body name="b" joint="rx"/>', '<options timestep="1"/>'), 2, "timestep"),
    "body attribute": (document('<body name="b" joint="rx" dampin="1"/>'), 4, "damping"),
    "geom attribute": (document('<body name="b" joint="rx">\n<geom type="box" mass="1" dim="1 1 1" friction="1"/></body>'), 5, "friction"),
    "geom type": (document('<body name="b" joint="rx">\n<geom type="mesh" mass="1" dim="1"/></body>'), 5, "capsule"),
    "no geom type": (document('<body name="b" joint="rx">\n<geom mass="1" dim="1"/></body>'), 5, "type"),
    "marker in world": (document("<omc/>"), 4, "omc"),
    "element": (document('<body name="b" joint="rx">\n<joint/></body>'), 5, "<joint"),
    "text": (document('<body name="b" joint="rx">\npos="1 2 3"</body>'), 4, "pos="),
    "malformed": ("<x_xy>\n<worldbody></x_xy>", 2, "XML"),
    "empty": ("", 0, "XML"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_place(case):
    text, line, words = BAD[case]
    with pytest.raises(ParseError) as caught:
        parse_text(text, "x_xy", file="m.xml")
    message = str(caught.value)
    assert message.startswith(f"m.xml:{line}: " if line else "m.xml:") and words in message, message
    assert caught.value.file == "m.xml" and (caught.value.line == line or not line)


def test_errors_suggest_the_nearest_word():
    for world, word in (
        ('<body name="b" joint="rxx"/>', "rx"),
        ('<body name="b" joint="rx" dampng="1"/>', "damping"),
        ('<body name="b" joint="rx"><geom type="spere"/></body>', "sphere"),
        ('<bdy name="b"/>', "body"),
    ):
        assert re.search(rf"did you mean ['\"<]?{word}", refused(world))


def test_strict_makes_unsupported_input_an_error():
    notes = errors.Notes("m.xml")
    notes.unsupported(7, "<a>: no effect")
    notes.unsupported(3, "<b>: no effect")
    with pytest.warns(UnsupportedWarning, match=r"m\.xml:3: <b>.*\nm\.xml:7: <a>") as caught:
        notes.emit()
    assert len(caught) == 1
    with pytest.raises(ParseError, match=r"m\.xml:7: <a>"):
        errors.Notes("m.xml", strict=True).unsupported(7, "<a>: no effect")


# ---- untrusted input -----------------------------------------------------------------------------------------------------------

_LAUGHS = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
HOSTILE = {
    "billion laughs": f'<!DOCTYPE x [<!ENTITY a0 "ha">{_LAUGHS}]><x_xy>&a9;</x_xy>',
    "laughing attribute": f'<!DOCTYPE x [<!ENTITY a0 "ha">{_LAUGHS}]><x_xy name="&a9;"/>',
    "small entity": '<!DOCTYPE x [<!ENTITY a "b">]>' + document('<body name="&a;" joint="rx"/>'),
    "default attribute": '<!DOCTYPE x [<!ATTLIST body joint CDATA "rx">]>' + document('<body name="b"/>'),
    "external entity": '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>' + document('<body name="b" joint="rx">&a;</body>'),
    "external DTD": '<!DOCTYPE x_xy SYSTEM "http://127.0.0.1:1/x.dtd">' + document('<body name="b" joint="rx"/>'),
    "after a comment": '<!-- > --><?pi ?>\n<!DOCTYPE x [<!ENTITY a "b">]>' + document('<body name="&a;" joint="rx"/>'),
    "10,000 deep": "<x_xy><worldbody>" + "<body>" * 10_000 + "</body>" * 10_000 + "</worldbody></x_xy>",
    "10,000 deep, open": "<x_xy><worldbody>" + "<body>" * 10_000,
    "null character": document('<body name="b\0" joint="rx"/>'),
    "lone surrogate": document('<body name="\ud800" joint="rx"/>'),
}


@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_hostile_input_is_refused_at_once(case, encoding, tmp_path):
    text = HOSTILE[case]
    start = time.perf_counter()
    with pytest.raises(ParseError):
        if encoding == "utf-8":
            parse_text(text, "x_xy")
        else:
            file = tmp_path / "m.xml"
            file.write_bytes(f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode("utf-16", "surrogatepass"))
            parse(file)
    assert time.perf_counter() - start < 5


def test_a_file_over_the_size_limit_is_refused_unread(tmp_path):
    most = xsim.Limits().bytes
    assert most >= 100_000_000
    file = tmp_path / "huge.xml"
    with file.open("wb") as stream:
        stream.truncate(most + 1)
    with pytest.raises(ParseError, match=r"huge\.xml.*bytes"):
        parse(file)


def test_a_text_over_the_size_limit_is_refused():
    """The limit is one of `Limits`, of this call alone."""
    text = document(f'<body name="b" joint="rx"/><!--{" " * 1000}-->')
    with pytest.raises(ParseError, match=r"allowed: fewer than 1000 \(limits: bytes\)"):
        parse_text(text, "x_xy", limits=xsim.Limits(bytes=1000))
    assert xsim.loads(text, "x_xy", limits=xsim.Limits(bytes=10_000)).nv == xsim.loads(text, "x_xy").nv == 1


def test_a_text_with_too_many_tags_is_refused(monkeypatch):
    monkeypatch.setattr(reader, "MAX_TAGS", 1000)
    with pytest.raises(ParseError, match="1000"):
        parse_text(document('<body name="b" joint="rx"/>' + "<geom/>" * 1000), "x_xy")


def test_long_chains_of_bodies_are_read_and_written():
    n = 900
    spec = read("".join(f'<body name="{i}" joint="rx">' for i in range(n)) + "</body>" * n)
    assert [b.parent for b in spec.bodies] == list(range(-1, n - 1))
    same(spec, parse_text(xxy.to_x_xy(spec), "x_xy"))


def test_encodings(tmp_path):
    text = document('<body name="Größe" joint="rx"/>')
    for encoding in ("utf-8", "iso-8859-1", "utf-16"):
        file = tmp_path / f"{encoding}.xml"
        file.write_bytes(f'<?xml version="1.0" encoding="{encoding}"?>{text}'.encode(encoding))
        assert parse(file).bodies[0].name == "Größe"
        assert parse_text(f'<?xml version="1.0" encoding="{encoding}"?>{text}', "x_xy").bodies[0].name == "Größe"


def test_comments_and_instructions_are_ignored():
    spec = read(f'<!--key a=1--><body name="b" joint="rx"><?pi?><!-- <geom/> -->{GEOM}</body>')
    assert len(spec.bodies) == 1 and len(spec.bodies[0].geoms) == 1


# ---- formats -------------------------------------------------------------------------------------------------------------------


def test_format_from_the_file(tmp_path):
    (tmp_path / "m.xml").write_text(document('<body name="b" joint="rx"/>'))
    assert parse(tmp_path / "m.xml").bodies[0].source.file == str(tmp_path / "m.xml")
    (tmp_path / "n.xml").write_text("<html/>")
    with pytest.raises(ParseError, match="<x_xy>|x_xy"):
        parse(tmp_path / "n.xml")
    with pytest.raises(ParseError, match="x_xy"):
        parse_text("<x_xy/>", "xxy")
    with pytest.raises(ParseError, match="missing.xml"):
        parse(tmp_path / "missing.xml")


# ---- coordinates ---------------------------------------------------------------------------------------------------------------

ZOO = "".join(f'<body name="{j}" joint="{j}">{GEOM}</body>' for j in WIDTHS)


def random_state(rng):
    """q and v of ZOO in the format's coordinates."""
    q = []
    for joint, (nq, _) in WIDTHS.items():
        part = rng.normal(size=nq)
        if joint in ("free", "cor", "spherical"):
            part[:4] /= np.linalg.norm(part[:4])
        q.append(part)
    return np.concatenate(q), rng.normal(size=sum(nv for _, nv in WIDTHS.values()))


def test_q_conversion_is_a_bijection_also_in_batches():
    spec, rng = read(ZOO), np.random.default_rng(0)
    q = np.stack([random_state(rng)[0] for _ in range(6)]).reshape(2, 3, -1)
    np.testing.assert_array_equal(xxy.q_from_xsim(spec, xxy.q_to_xsim(spec, q)), q)
    np.testing.assert_array_equal(xxy.q_to_xsim(spec, q)[1, 2], xxy.q_to_xsim(spec, q[1, 2]))


@pytest.mark.parametrize("joint", ["free", "cor", "free_2d"])
def test_linear_velocities_turn_from_body_to_joint_frame_axes(joint):
    spec, rng = read(f'<body name="b" joint="{joint}">{GEOM}</body>'), np.random.default_rng(1)
    nq, nv = WIDTHS[joint]
    q, v = rng.normal(size=nq), rng.normal(size=nv)
    if joint == "free_2d":
        R, linear, rest = rotation(0, np.rad2deg(q[0]))[1:, 1:], v[1:3], v[:1]
    else:
        q[:4] /= np.linalg.norm(q[:4])
        R, linear, rest = matrix(q[:4] * [1, -1, -1, -1]), v[3:6], [*v[:3], *v[6:]]
    np.testing.assert_allclose(xxy.v_to_xsim(spec, q, v), [*(R @ linear), *rest], atol=1e-14)


# ---- writing -------------------------------------------------------------------------------------------------------------------

RICH = document(
    f"""<geom type="xyz" dim="0.2"/><geom type="box" mass="5" dim="4 4 0.1" pos="0 0 -0.05" color="gray"/>
    <body name="a&lt;&quot;&#10;1" joint="free" pos="0.1 0.2 0.3" euler="10 20 30" damping="1 2 3 4 5 6" spring_zero="0.8 0.6 0 0 1 2 3">
    <omc name="s" pos_marker="1" pos="0 0 0.1"/><geom type="capsule" mass="0.1" dim="0.1 0.7" euler="5 6 7" edge_color="0.1 0.2 0.3"/>
    <body name="c" joint="cor" pos_min="0 0 0" pos_max="1 1 1" armature="1 2 3 4 5 6 7 8 9">{GEOM}</body></body>
    <body name="d" joint="free_2d" spring_stiff="1 2 3"><geom type="cylinder" mass="0.3" dim="0.3 0.1" color="0.1 0.2 0.3 0.4"/></body>
    {ZOO.replace('name="', 'name="zoo_')}""",
    '<options gravity="0.1 0.2 9.7" dt="0.003"/><defaults><body pos="0.3 0 0"/></defaults>',
    'name="rich &amp; famous"',
)


def test_round_trip():
    spec = parse_text(RICH, "x_xy")
    again = parse_text(xxy.to_x_xy(spec), "x_xy")
    same(spec, again)
    same(again, parse_text(xxy.to_x_xy(again), "x_xy"))


@pytest.mark.parametrize("name", [n for n in xsim.models.names() if xsim.models.path(n).parent.name == "x_xy"])
def test_bundled_models_load_and_round_trip(name):
    file = xsim.models.path(name)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        spec = parse(file)
    same(spec, parse_text(xxy.to_x_xy(spec), "x_xy"))


def test_bundled_zoo_shows_everything_of_the_format():
    root = etree.parse(str(xsim.models.path("zoo"))).getroot()
    assert {b.get("joint") for b in root.iter("body")} == set(xxy.TYPES)
    assert {g.get("type") for g in root.iter("geom")} >= {"box", "sphere", "cylinder", "capsule", "xyz"}


def test_writer_keeps_colours_that_have_no_words():
    spec = read('<geom type="sphere" mass="1" dim="1"/><body name="b" joint="rx"/>')
    painted = replace(spec.world_geoms[0], rgba=(0.1, 0.2, 0.3, 1.0), edge_rgba=(0.4, 0.5, 0.6, 0.7))
    (again,) = parse_text(xxy.to_x_xy(replace(spec, world_geoms=(painted,))), "x_xy").world_geoms
    assert (again.rgba, again.edge_rgba) == (painted.rgba, painted.edge_rgba)


def test_writer_refuses_what_the_format_cannot_say():
    spec = read(f'<body name="b" joint="rx">{GEOM}</body>')
    (b,) = spec.bodies
    for changed in (
        replace(spec, option=replace(spec.option, integrator="rk4")),
        replace(spec, bodies=(replace(b, inertial=InertialSpec(1.0)),)),
        replace(spec, bodies=(replace(b, joints=JointSpec("hinge", params={"axes": np.array([[0.6, 0.8, 0]])})),)),
        replace(spec, bodies=(replace(b, joints=JointSpec("screw")),)),
        replace(spec, bodies=(replace(b, geoms=(replace(b.geoms[0], shape="ellipsoid"),)),)),
    ):
        with pytest.raises(ValueError):
            xxy.to_x_xy(changed)


# ---- the corpus ----------------------------------------------------------------------------------------------------------------


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize("path", models("x_xy"), ids=lambda p: f"x_xy-{p.stem}")
def test_corpus_round_trip(path):
    spec = quiet(path)
    same(spec, quiet(xxy.to_x_xy(spec)))
    assert all(b.source.file == str(path) and b.source.line > 0 for b in spec.bodies)


def _invalid():
    root = corpus()
    return [] if root is None else sorted((root / "models/x_xy/invalid").glob("*.xml"))


@needs_corpus
@pytest.mark.conformance
@pytest.mark.parametrize("path", _invalid(), ids=lambda p: f"x_xy-{p.stem}")
def test_corpus_invalid_is_refused(path):
    with pytest.raises(ParseError) as caught:
        parse(path, format="x_xy")
    text = str(caught.value)
    assert re.match(rf"{re.escape(str(path))}:[1-9]\d*: ", text), text
    assert "not well-formed" in text or re.search(r"<\w+", text), text


@needs_corpus
def test_corpus_invalid_is_all_listed():
    reasons = json.loads((corpus() / "models/x_xy/invalid/invalid.json").read_text())
    assert {p.name for p in _invalid()} == {r["file"] for r in reasons.values()}


# ---- random damage -------------------------------------------------------------------------------------------------------------

_VALUES = st.one_of(
    st.sampled_from(["", " ", "0", "-1", "1 2 3", "1 0 0 0", "nan", "1e400", "free", "cor", "rx", "box", "xyz", "1,2", "\u0663"]),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=8),
    st.lists(st.floats(), max_size=10).map(lambda x: " ".join(map(str, x))),
)  # fmt: skip
_DOCUMENTS = [RICH, *(xsim.models.path(n).read_text() for n in xsim.models.names() if xsim.models.path(n).parent.name == "x_xy")]


def check_damaged(data) -> None:
    root = etree.fromstring(data.draw(st.sampled_from(_DOCUMENTS)).encode())
    elements = [e for e in root.iter() if isinstance(e.tag, str)]
    for _ in range(data.draw(st.integers(1, 4))):
        element = data.draw(st.sampled_from(elements))
        what = data.draw(st.sampled_from(["delete", "change", "rename", "add", "move"]))
        if what == "move" and element is not root and element.getparent() is not None:
            target = data.draw(st.sampled_from(elements))
            if element not in list(target.iterancestors()) and element is not target:
                target.append(element)
        elif what == "rename":
            element.tag = data.draw(st.sampled_from(["body", "geom", "omc", "options", "defaults", "worldbody", "x_xy", "joint"]))
        elif what == "add":
            names = ["name", "pos", "quat", "euler", "damping", "axes", "dim", "size", "q"]
            element.set(data.draw(st.sampled_from(names)), data.draw(_VALUES))
        elif element.attrib:
            name = data.draw(st.sampled_from(sorted(element.attrib)))
            if what == "delete":
                del element.attrib[name]
            else:
                element.set(name, data.draw(_VALUES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        try:
            spec = parse_text(etree.tostring(root, encoding="unicode"), "x_xy")
        except ParseError as error:
            assert str(error).startswith("<string>:")
        else:
            same(spec, parse_text(xxy.to_x_xy(spec), "x_xy"))


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_files_raise_nothing_but_parse_errors(data):
    check_damaged(data)


@pytest.mark.nightly
@settings(max_examples=mutations.MANY, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_many_damaged_files_raise_nothing_but_parse_errors(data):
    check_damaged(data)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=40), st.integers(0, 2000), st.integers(0, 20))
def test_damaged_bytes_raise_nothing_but_parse_errors(noise, where, cut):
    data = RICH.encode()
    data = data[:where] + noise + data[where + cut :]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        try:
            reader.parse_xml(data, "m.xml")
        except ParseError as error:
            assert error.file == "m.xml"
