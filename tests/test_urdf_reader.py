"""The URDF reader: what each element means, what is refused and how it is said, the numbers of the reference engines, hostile input."""

from __future__ import annotations

import copy
import json
import random
import re
import time
import warnings
from pathlib import Path

import mutations
import numpy as np
import pytest
from corpus import corpus, models, needs_corpus, oracle
from lxml import etree
from scipy.spatial.transform import Rotation

import xsim.models
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, parse, parse_text, urdf
from xsim.joints.types import JOINT_TYPES

INERTIA = '<inertia ixx="0.1" iyy="0.2" izz="0.25" ixy="0.01" ixz="0.02" iyz="0.03"/>'
HEAVY = f'<inertial><mass value="1"/>{INERTIA}</inertial>'


def link(name: str, inside: str = HEAVY) -> str:
    return f'<link name="{name}">{inside}</link>\n'


def joint(name: str, type: str, parent: str, child: str, inside: str = "") -> str:
    return f'<joint name="{name}" type="{type}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>\n'


def read(inside: str, root: str = 'name="r"', **options):
    return parse_text(f"<robot {root}>\n{inside}</robot>", "urdf", file="m.urdf", **options)


def refused(inside: str, root: str = 'name="r"', **options) -> str:
    with pytest.raises(ParseError) as caught:
        read(inside, root, **options)
    return str(caught.value)


def moved(type: str, inside: str = "", child: str = HEAVY, **options):
    """The body that a joint of this type holds on the body before it."""
    return read(link("a") + link("b", child) + joint("j", type, "a", "b", inside), **options).bodies[1]


LIMIT = '<limit lower="-1" upper="2" effort="3" velocity="4"/>'


def quiet(source, **options):
    """Read with the two kinds of notes silenced; every other warning stays an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        warnings.simplefilter("ignore", UnsupportedWarning)
        return parse_text(source, "urdf", **options) if isinstance(source, str) else parse(source, **options)


# ---- root and tree -----------------------------------------------------------------------------------------------------------


def test_root_name_and_options():
    spec = read(link("a"))
    assert (spec.name, spec.format, spec.source.line) == ("r", "urdf", 1)
    np.testing.assert_array_equal(spec.option.gravity, [0, 0, -9.8])
    assert spec.option.dt == 0.001
    for version in ("1.0", "1.2"):
        assert read(link("a"), f'name="r" version="{version}"').bodies
    assert "version" in refused(link("a"), 'name="r" version="2.0"')
    assert "<link>" in refused("")
    with pytest.raises(ParseError, match="<robot>"):
        parse_text('<sdf name="r"/>', "urdf")


def test_default_namespace_is_taken_off():
    assert read(link("a"), 'name="r" xmlns="http://www.ros.org"').bodies[0].name == "a"


def test_bodies_come_in_document_order_but_after_their_parents():
    """A link written before its parent comes as soon as the parent is there; order of joints has no say."""
    links = "".join(link(n) for n in ("c", "root", "d", "b", "e"))
    joints = [joint(n, "fixed", p, n) for n, p in (("e", "root"), ("c", "b"), ("b", "root"), ("d", "root"))]
    for inside in (links + "".join(joints), "".join(reversed(joints)) + links):
        spec = read(inside)
        assert [b.name for b in spec.bodies] == ["root", "d", "b", "c", "e"]
        assert [b.parent for b in spec.bodies] == [-1, 0, 0, 2, 0]
        assert [b.joint.name for b in spec.bodies] == ["", "d", "b", "c", "e"]


def test_base_is_free_or_fixed():
    for option, type in (("free", "free"), ("fixed", "fixed")):
        (body,) = read(link("a"), base=option).bodies
        assert (body.joint.type, body.parent) == (type, -1)
        np.testing.assert_array_equal([*body.pos, *body.quat], [0, 0, 0, 1, 0, 0, 0])
        assert body.joint.q0 is None and body.joint.actuator == "passive"
    assert read(link("a")).bodies[0].joint.type == "free"
    with pytest.raises(ValueError, match="allowed: free, fixed") as caught:
        read(link("a"), base="welded")
    assert not isinstance(caught.value, ParseError)


def test_root_link_called_world_is_the_ground():
    box = '<visual><geometry><box size="1 2 3"/></geometry></visual>'
    spec = read(link("world", box) + link("a") + joint("j", "continuous", "world", "a", '<origin xyz="1 2 3"/>'))
    (body,) = spec.bodies
    assert (body.name, body.parent, body.joint.type) == ("a", -1, "hinge")
    np.testing.assert_array_equal(body.pos, [1, 2, 3])
    assert [g.shape for g in spec.world_geoms] == ["box"]
    assert read(link("world", "")).bodies == ()
    with pytest.warns(SuspiciousInputWarning, match="world.*ground"):
        assert not read(link("world")).bodies
    with pytest.warns(SuspiciousInputWarning, match="world.*not the root"):
        assert len(read(link("a") + link("world") + joint("j", "fixed", "a", "world")).bodies) == 2


A, B, C = link("a"), link("b"), link("c")


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (A + A, r'm\.urdf:3: <link name="a">: name: .* line 2'),
        (A + B, r'm\.urdf:3: <link name="b">: .*\'a\'.*2 roots; allowed: exactly one'),
        (A + B + joint("j", "fixed", "a", "x"), r'm\.urdf:4: <child> in <joint name="j">: link: .*\'x\'.*allowed: a, b'),
        (A + B + joint("j", "fixed", "x", "b"), r'<parent> in <joint name="j">: link: .*\'x\''),
        (A + B + 2 * joint("j", "fixed", "a", "b"), r'm\.urdf:5: <joint name="j">: name: .* line 4'),
        (A + B + joint("j", "fixed", "a", "b") + joint("k", "fixed", "a", "b"), r'<joint name="k">: link \'b\'.*\'j\' \(line 4\)'),
        (A + joint("j", "fixed", "a", "a"), r'<joint name="j">: closes a circle of links \(a from a\)'),
        (A + B + C + joint("j", "fixed", "b", "c") + joint("k", "fixed", "c", "b"), r'<joint name="k">: closes a circle.*b from c'),
        (A + B + '<joint name="j"><parent link="a"/><child link="b"/></joint>', r'<joint name="j">: attribute \'type\' is missing'),
        (A + B + joint("j", "ball", "a", "b"), r'<joint name="j">: type: .*\'ball\'; allowed: revolute, continuous'),
        (A + B + '<joint name="j" type="fixed"><child link="b"/></joint>', r'<joint name="j">: <parent> is missing'),
        (A + B + '<joint name="j" type="fixed"><parent link="a"/></joint>', r'<joint name="j">: <child> is missing'),
        (A + B + '<joint name="j" type="fixed"><parent/><child link="b"/></joint>', r"<parent> in .*'link' is missing"),
        (
            A + B + '<joint type="fixed"><parent link="a"/><child link="b"/></joint>',
            r"<joint type=\"fixed\"> in .*: attribute 'name' is missing",
        ),
        ("<link/>", r"<link> in <robot name=\"r\">: attribute 'name' is missing"),
    ],
)
def test_what_is_no_tree_is_refused(inside, words):
    assert re.search(words, refused(inside))


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ('<xacro:property name="w" value="1"/>' + A, r"m\.urdf:2: <xacro:property>: .*xacro model\.urdf\.xacro > model\.urdf"),
        (link("a", '<inertial><mass value="${2 * m}"/></inertial>'), r'<mass> in <link name="a">: value: .*\$\{2 \* m\}.*xacro'),
        (link("a", '<visual><geometry><mesh filename="$(find p)/m.stl"/></geometry></visual>'), r"filename: .*xacro"),
        ('<gazebo><plugin><a b="${c}"/></plugin></gazebo>' + A, "xacro has to be expanded"),
        (link("a", '<visual><geometry><mesh filename="$(optenv P $(find p))/m.stl"/></geometry></visual>'), r"filename: .*xacro"),
    ],
)
def test_xacro_is_refused(inside, words):
    for root in ('name="r"', 'name="r" xmlns:xacro="http://www.ros.org/wiki/xacro"'):
        assert re.search(words, refused(inside, root))


def test_xacro_in_comments_and_declarations_is_no_matter():
    assert read("<!-- <xacro:if value='${x}'/> -->" + A, 'name="r" xmlns:xacro="http://www.ros.org/wiki/xacro"').bodies


# ---- joints ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "kind", "axes"),
    [("revolute", "hinge", 1), ("continuous", "hinge", 1), ("prismatic", "slide", 1), ("planar", "planar", 3), ("fixed", "fixed", 0)],
)
def test_joint_types(type, kind, axes):
    inside = '<origin xyz="1 2 3" rpy="0.1 0.2 0.3"/><axis xyz="0 3 4"/>' + (LIMIT if axes == 1 else "")
    body = moved(type, inside)
    assert (body.joint.type, body.joint.name, body.parent) == (kind, "j", 0)
    np.testing.assert_array_equal(body.pos, [1, 2, 3])
    np.testing.assert_allclose(np.roll(body.quat, -1), Rotation.from_euler("xyz", [0.1, 0.2, 0.3]).as_quat(), atol=1e-15)
    np.testing.assert_array_equal([*body.joint.pos, *body.joint.quat], [0, 0, 0, 1, 0, 0, 0])
    assert body.joint.q0 is None
    assert np.shape(body.joint.params.get("axes", np.zeros((0, 3)))) == (axes, 3)
    if axes == 1:
        np.testing.assert_allclose(body.joint.params["axes"], [[0, 0.6, 0.8]], atol=1e-15)


def test_floating_joint_starts_where_it_is_drawn():
    body = moved("floating", '<origin xyz="1 2 3" rpy="0 0 0.5"/><axis xyz="0 0 0"/>')
    assert body.joint.type == "free" and body.joint.params == {} and body.joint.actuator == "passive"
    np.testing.assert_array_equal([*body.pos, *body.quat], [0, 0, 0, 1, 0, 0, 0])
    np.testing.assert_allclose(body.joint.q0, [1, 2, 3, np.cos(0.25), 0, 0, np.sin(0.25)], atol=1e-15)


@pytest.mark.parametrize(
    ("normal", "x", "y"),
    [
        ("0 0 1", (1, 0, 0), (0, 1, 0)),
        ("1 0 0", (0, 0, -1), (0, 1, 0)),
        ("0 2 0", (1, 0, 0), (0, 0, -1)),
        ("0 0 -1", (1, 0, 0), (0, -1, 0)),
    ],
)
def test_planar_axes_are_the_joint_frame_turned_to_the_normal(normal, x, y):
    axes = moved("planar", f'<axis xyz="{normal}"/>').joint.params["axes"]
    np.testing.assert_allclose(axes, [x, y, np.cross(x, y)], atol=1e-15)


def test_planar_axes_are_right_handed_and_least_turned():
    rng = np.random.default_rng(0)
    for normal in [*rng.normal(size=(20, 3)), (1e-8, 0, -1), (0, 1e-9, -1)]:
        axes = moved("planar", f'<axis xyz="{" ".join(map(repr, map(float, normal)))}"/>').joint.params["axes"]
        np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-7)
        np.testing.assert_allclose(np.linalg.det(axes), 1, atol=1e-7)
        np.testing.assert_allclose(axes[2], normal / np.linalg.norm(normal), atol=1e-15)
        angle = Rotation.from_matrix(axes.T).magnitude()
        np.testing.assert_allclose(angle, np.arccos(axes[2, 2]), atol=1e-7)


def test_axis_default_is_x():
    for type in ("revolute", "continuous", "prismatic"):
        np.testing.assert_array_equal(moved(type, LIMIT).joint.params["axes"], [[1, 0, 0]])


def test_origin_quaternion_is_scalar_last():
    body = moved("fixed", '<origin quat_xyzw="0 0 2 2"/>')
    np.testing.assert_allclose(body.quat, [0.5**0.5, 0, 0, 0.5**0.5], atol=1e-15)


def test_limits_and_actuators():
    revolute, continuous = moved("revolute", LIMIT).joint, moved("continuous", LIMIT).joint
    np.testing.assert_array_equal(revolute.position_range, [[-1, 2]])
    assert continuous.position_range is None
    for j in (revolute, continuous):
        np.testing.assert_array_equal(j.force_range, [[-3, 3]])
        np.testing.assert_array_equal(j.velocity_range, [[-4, 4]])
        assert j.actuator == "force"
    free = moved("continuous").joint
    assert free.force_range is free.velocity_range is None and free.actuator == "force"
    np.testing.assert_array_equal(moved("prismatic", '<limit upper="2" effort="inf" velocity="1"/>').joint.position_range, [[0, 2]])
    assert moved("prismatic", '<limit upper="2" effort="inf" velocity="1"/>').joint.actuator == "force"
    still = moved("continuous", '<limit effort="0" velocity="0"/>').joint
    assert still.actuator == "passive"
    np.testing.assert_array_equal(still.force_range, [[0, 0]])
    assert not np.signbit(still.force_range).any()
    np.testing.assert_array_equal(moved("revolute", '<limit lower="-inf" upper="inf" effort="1" velocity="1"/>').joint.position_range,
                                  [[-np.inf, np.inf]])  # fmt: skip
    with pytest.warns(SuspiciousInputWarning, match="lower and upper are missing"):
        np.testing.assert_array_equal(moved("revolute", '<limit effort="1" velocity="1"/>').joint.position_range, [[0, 0]])
    for type in ("planar", "floating"):
        with pytest.warns(UnsupportedWarning, match=f'<limit> in <joint name="j">: not used, a {type} joint'):
            j = moved(type, LIMIT).joint
        assert j.actuator == "passive" and j.force_range is j.position_range is None


def test_damping_and_friction():
    for type, width in (("revolute", 1), ("prismatic", 1), ("planar", 3), ("floating", 6)):
        limit = LIMIT if width == 1 else ""
        j = moved(type, limit + '<dynamics damping="0.5" friction="0.25"/>').joint
        np.testing.assert_array_equal(j.damping, np.full(width, 0.5))
        np.testing.assert_array_equal(j.friction, np.full(width, 0.25))
        j = moved(type, limit + "<dynamics/>").joint
        np.testing.assert_array_equal(j.damping, np.zeros(width))
        assert np.isnan(j.friction).all() and j.friction.shape == (width,)
        assert moved(type, limit).joint.damping is None


def test_what_cannot_act_on_a_joint_is_skipped():
    inside = (
        '<axis xyz="0 0 0"/><limit lower="junk"/><dynamics damping="-1"/>'
        '<safety_controller k_velocity="1" soft_lower_limit="0"/><calibration rising="0"/>'
    )
    j = moved("fixed", inside).joint
    assert j.damping is j.friction is j.position_range is j.force_range is None and j.actuator == "passive"
    moved("continuous", '<safety_controller k_velocity="1"/><calibration rising="0"/>')
    read(A + B + '<joint name="j" type="fixed" dont_collapse="true"><parent link="a"/><child link="b"/></joint>', strict=True)


@pytest.mark.parametrize(
    ("type", "inside", "words"),
    [
        ("fixed", '<origin xyz="0 zero 0"/>', r"m\.urdf:4: <origin> in <joint name=\"j\">: xyz: 'zero' is not a number"),
        ("fixed", '<origin xyz="0 0"/>', "xyz: found 2 numbers .*allowed: 3"),
        ("fixed", '<origin rpy="0 0 nan"/>', "rpy: 'nan'"),
        ("fixed", '<origin rpy="0 0 0" quat_xyzw="0 0 0 1"/>', "rpy and quat_xyzw are both given"),
        ("fixed", '<origin quat_xyzw="0 0 0 0"/>', "norm 0"),
        ("continuous", '<axis xyz="0 0 0"/>', r'<axis> in <joint name="j">: xyz: the axis has length 0'),
        ("continuous", '<axis xyz="1e200 1e200 0"/>', "length 1.41421e"),
        ("continuous", "<axis/>", "'xyz' is missing"),
        ("continuous", '<axis xyz="0 0 inf"/>', "'inf' is not a finite number"),
        ("revolute", "", r'<joint name="j">: <limit> is missing; a revolute joint'),
        ("prismatic", "", "<limit> is missing; a prismatic joint"),
        ("revolute", '<limit effort="-1" velocity="1"/>', "effort: found -1; allowed: numbers >= 0"),
        ("revolute", '<limit effort="1" velocity="-1"/>', "velocity: found -1"),
        ("revolute", '<limit lower="inf" upper="inf" effort="1" velocity="1"/>', "lower: found inf"),
        ("continuous", '<dynamics damping="-1"/>', "damping: found -1"),
        ("continuous", '<dynamics friction="-1"/>', "friction: found -1"),
        ("planar", '<dynamics damping="1 2 3"/>', "damping: found 3 numbers"),
        ("continuous", "<mimic/>", "<mimic> in <joint name=\"j\">: attribute 'joint' is missing"),
        ("continuous", '<mimic joint="j"/>', r"follows itself \(j from j\)"),
        ("planar", '<mimic joint="j"/>', "'j' is planar and cannot follow another; allowed: revolute, continuous, prismatic"),
        ("continuous", '<mimic joint="j" multiplier="inf"/>', "multiplier: 'inf'"),
    ],
)
def test_bad_joints_are_refused(type, inside, words):
    message = refused(A + B + joint("j", type, "a", "b", inside))
    assert re.search(words, message), message


def overlooked(inside: str, place: str, problem: str, meaning: str, root: str = 'name="r"'):
    """The spec of a document that breaks one rule: one warning names place, problem and what is assumed; strict reading refuses it."""
    with pytest.warns(SuspiciousInputWarning) as caught:
        spec = read(inside, root)
    assert len(caught) == 1
    lines = [line for line in str(caught[0].message).split("\n") if "; assumed: " in line]
    assert len(lines) == 1 and lines[0].startswith(f"m.urdf:{place}") and lines[0].endswith(f"; assumed: {meaning}"), lines
    assert problem in lines[0]
    message = refused(inside, root, strict=True)
    assert message.startswith(f"m.urdf:{place}") and problem in message, message
    return spec


def overlooked_joint(type: str, inside: str, problem: str, meaning: str):
    """The joint of such a document."""
    return overlooked(A + B + joint("j", type, "a", "b", inside), "4: <", problem, meaning).bodies[1].joint


def test_robot_without_a_name():
    assert overlooked(A, "1: <robot", "attribute 'name' is missing", "an empty name", root="").name == ""


def test_limits_without_effort_or_velocity_have_no_such_bound():
    j = overlooked_joint("revolute", '<limit lower="-1" upper="1" velocity="2"/>', "'effort' is missing", "no bound")
    assert j.force_range.tolist() == [[-np.inf, np.inf]] and j.velocity_range.tolist() == [[-2, 2]] and j.actuator == "force"
    assert j.position_range.tolist() == [[-1, 1]]
    j = overlooked_joint("continuous", '<limit effort="3"/>', "'velocity' is missing", "no bound")
    assert j.velocity_range.tolist() == [[-np.inf, np.inf]] and j.force_range.tolist() == [[-3, 3]]


@pytest.mark.parametrize(("bounds", "found"), [('lower="2" upper="1"', "found 2 with upper 1"), ('lower="1"', "found 1 with upper 0")])
def test_crossed_limits_of_position_are_none(bounds, found):
    j = overlooked_joint("revolute", f'<limit {bounds} effort="1" velocity="1"/>', found, "no limits of position, as in Bullet and MuJoCo")
    assert j.position_range is None and j.force_range.tolist() == [[-1, 1]]


def test_of_second_elements_the_first_counts():
    j = overlooked_joint("continuous", '<axis xyz="0 1 0"/><axis xyz="0 0 1"/>', "second <axis>", "the first one")
    assert j.params["axes"].tolist() == [[0, 1, 0]]
    body = overlooked(link("a", HEAVY + "\n" + HEAVY.replace("1", "5")), "3: <inertial", "second <inertial>", "the first one").bodies[0]
    assert body.inertial.mass == 1


def test_of_more_than_three_numbers_the_first_count():
    origin = '<origin xyz="1 2 3" rpy="0 1.5 0 0"/>'
    body = overlooked(A + B + joint("j", "fixed", "a", "b", origin), "4: <origin", "rpy: found 4 numbers", "the first three").bodies[1]
    np.testing.assert_allclose(body.quat, np.roll(Rotation.from_euler("xyz", [0, 1.5, 0]).as_quat(), 1))


def test_mimic_of_an_unknown_joint_is_none():
    spec = overlooked(A + B + joint("j", "continuous", "a", "b", '<mimic joint="x"/>'), "4: <mimic", "'x'", "the joint follows nothing")
    assert spec.constraints == () and spec.bodies[1].joint.type == "hinge"


def test_inertial_without_mass_has_none():
    inertial = overlooked(link("a", f"<inertial>{INERTIA}</inertial>"), "2: <inertial", "<mass> is missing", "0 kg").bodies[0].inertial
    assert inertial.mass == 0 and inertial.inertia[:3].tolist() == [0.1, 0.2, 0.25]


def test_moments_that_are_negative_by_rounding_are_zero():
    inertia = '<inertia ixx="-5.4e-20" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/>'
    inside = link("a", f'<inertial><mass value="1"/>\n{inertia}</inertial>')
    assert overlooked(inside, "3: <inertia", "ixx: found -5.4e-20", "0").bodies[0].inertial.inertia.tolist() == [0, 1, 1, 0, 0, 0]


@pytest.mark.parametrize(("shape", "found"), [("", "found none"), ("<torus/>", "found <torus>")])
def test_geometry_that_is_empty_or_unknown_has_no_shape(shape, found):
    box = '<collision><geometry><box size="1 1 1"/></geometry></collision>'
    inside = HEAVY + f'\n<collision><origin xyz="1 0 0"/><geometry>{shape}</geometry></collision>' + box
    problem = f"{found}; allowed: one of box, sphere, cylinder, capsule, mesh"
    (geom,) = overlooked(link("a", inside), "3: <geometry", problem, "no shape").bodies[0].geoms
    assert geom.shape == "box"


@pytest.mark.parametrize(("value", "default"), [("$(optenv X 1 2  3)", "1 2  3"), ("$(optenv X 1) $(optenv Y 2) 3", "1 2 3")])
def test_optenv_is_its_default(value, default, monkeypatch):
    monkeypatch.setenv("X", "7 8 9")  # files mean the same everywhere
    inside = A + B + joint("j", "fixed", "a", "b", f'<origin xyz="{value}"/>')
    body = overlooked(inside, "4: <origin", f"xyz: found {value!r}; xacro has to be expanded", f"the default, {default!r}").bodies[1]
    assert body.pos.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("head", "line", "problem"),
    [
        ('<?xml version="0.0" ?>\n', 1, "XML declaration: version: found '0.0'; allowed: 1.0; assumed: 1.0"),
        ('<!-- made by hand -->\n<?xml version="1.0"?>\n', 2, "XML declaration that is not at the start of the document; assumed: nothing"),
        ('\n<?xml version="1.0"\n?>', 2, "XML declaration that is not at the start of the document; assumed: nothing"),
    ],
)
def test_declarations_that_xml_forbids(head, line, problem):
    text = f'{head}<robot name="r">\n{A}</robot>'
    for document in (text, text.encode()):
        with pytest.warns(SuspiciousInputWarning) as caught:
            spec = parse_text(document, file="m.urdf")
        assert len(caught) == 1 and re.search(rf"^m\.urdf:{line}: .*{re.escape(problem)}$", str(caught[0].message))
        assert spec.bodies[0].source.line == head.count("\n") + 2
        with pytest.raises(ParseError, match="not well-formed XML"):
            parse_text(document, file="m.urdf", strict=True)
    with pytest.raises(ParseError, match="not well-formed"):
        parse_text(text[:-9], "urdf")


def test_mimic():
    chain = A + B + C + link("d") + joint("k", "prismatic", "b", "c", LIMIT + '<mimic joint="j" multiplier="-2" offset="0.5"/>')
    spec = read(chain + joint("j", "continuous", "a", "b") + joint("l", "continuous", "c", "d", '<mimic joint="k"/>'))
    first, second = spec.constraints
    assert (first.kind, first.name, first.multiplier, first.offset, first.reference) == ("mimic", "k", -2, 0.5, 0)
    assert (second.multiplier, second.offset) == (1, 0)
    assert [spec.bodies[body].name for body, _ in first.coordinates] == ["c", "b"]
    assert [spec.bodies[body].name for body, _ in second.coordinates] == ["d", "c"]
    assert all(index == 0 for c in spec.constraints for _, index in c.coordinates)
    assert first.source.line == 6


def test_mimics_that_make_no_sense():
    pair = A + B + C
    message = refused(pair + joint("j", "fixed", "a", "b") + joint("k", "continuous", "b", "c", '<mimic joint="j"/>'))
    assert "'j' is fixed and cannot lead; allowed: revolute, continuous, prismatic" in message
    circle = [joint(n, "continuous", p, c, f'<mimic joint="{m}"/>') for n, p, c, m in (("j", "a", "b", "k"), ("k", "b", "c", "j"))]
    assert re.search(r'm\.urdf:6: <mimic> in <joint name="k">: joint: the joint follows itself \(j from k from j\)',
                     refused(pair + "".join(circle)))  # fmt: skip
    with pytest.warns(SuspiciousInputWarning, match="a fixed joint follows nothing"):
        spec = read(pair + joint("j", "continuous", "a", "b") + joint("k", "fixed", "b", "c", '<mimic joint="j"/>'))
    assert spec.constraints == ()


# ---- mass --------------------------------------------------------------------------------------------------------------------


def test_inertial_is_turned_to_link_axes():
    body = read(link("a", f'<inertial><origin xyz="1 2 3" rpy="0.3 -0.2 0.7"/><mass value="2"/>{INERTIA}</inertial>')).bodies[0]
    R = Rotation.from_euler("xyz", [0.3, -0.2, 0.7]).as_matrix()
    wanted = R @ [[0.1, 0.01, 0.02], [0.01, 0.2, 0.03], [0.02, 0.03, 0.25]] @ R.T
    assert body.inertial.mass == 2
    np.testing.assert_array_equal(body.inertial.com, [1, 2, 3])
    np.testing.assert_allclose(body.inertial.inertia, wanted[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]], atol=1e-15)
    np.testing.assert_array_equal(read(A).bodies[0].inertial.inertia, [0.1, 0.2, 0.25, 0.01, 0.02, 0.03])


def test_missing_inertial_is_massless():
    body = moved("fixed", child="")
    assert body.inertial.mass == 0 and not body.inertial.inertia.any() and not body.inertial.com.any()


def test_inertia_without_mass_is_kept():
    body = moved("fixed", child=f'<inertial><mass value="0"/>{INERTIA}</inertial>')
    assert body.inertial.mass == 0 and body.inertial.inertia[0] == 0.1


def test_impossible_inertias_are_kept_and_named():
    thin = '<inertia ixx="1" iyy="1" izz="2.001" ixy="0" ixz="0" iyz="0"/>'
    with pytest.warns(SuspiciousInputWarning, match=r'm\.urdf:2: <inertia> in <link name="a">: .*1 1 2\.001'):
        body = read(link("a", f'<inertial><mass value="1"/>{thin}</inertial>')).bodies[0]
    np.testing.assert_array_equal(body.inertial.inertia, [1, 1, 2.001, 0, 0, 0])
    with pytest.warns(SuspiciousInputWarning, match="principal moments"):
        read(link("a", '<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1" ixy="2" ixz="0" iyz="0"/></inertial>'))
    for flat in ('ixx="1" iyy="2" izz="3"', 'ixx="0.1" iyy="0.2" izz="0.3"', 'ixx="0" iyy="1e-7" izz="1e-7"', 'ixx="0" iyy="0" izz="0"'):
        read(link("a", f'<inertial><mass value="1"/><inertia {flat} ixy="0" ixz="0" iyz="0"/></inertial>'))


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (f"<inertial><mass/>{INERTIA}</inertial>", "'value' is missing"),
        (f'<inertial><mass value="-1"/>{INERTIA}</inertial>', '<mass> in <link name="a">: value: found -1; allowed: numbers >= 0'),
        ('<inertial><mass value="1"/></inertial>', "<inertia> is missing"),
        ('<inertial><mass value="1"/><inertia ixx="1" iyy="1"/></inertial>', "'izz' is missing"),
        ('<inertial><mass value="1"/><inertia ixx="1" iyy="1" izz="1"/></inertial>', "'ixy' is missing"),
        ('<inertial><mass value="1"/><inertia ixx="-1" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>', "ixx: found -1"),
        ('<inertial><mass value="1"/><inertia ixx="1e300" iyy="1" izz="1" ixy="0" ixz="0" iyz="0"/></inertial>', "below 1e100"),
        ('<inertial><mass value="1 2"/></inertial>', "value: found 2 numbers"),
    ],
)
def test_bad_inertials_are_refused(inside, words):
    message = refused(link("a", inside))
    assert re.search(words, message), message


def notes_on_mass(inside: str, **options) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read(inside, **options)
    return re.findall(r'link "(\w+)": (.*) moves', "\n".join(str(w.message) for w in caught))


def test_massless_moving_parts_are_named():
    b, d = link("b", ""), link("d", "")
    rotor = link("b", f'<inertial><mass value="0"/>{INERTIA}</inertial>')
    hinge, slide = joint("j", "continuous", "a", "b"), joint("j", "prismatic", "a", "b", LIMIT)
    assert notes_on_mass(A + b + hinge) == [("b", 'joint "j"')]
    assert notes_on_mass(A + rotor + hinge) == []
    rider = link("c", f'<inertial><mass value="0"/>{INERTIA}</inertial>')
    assert notes_on_mass(A + b + rider + hinge + joint("k", "fixed", "b", "c")) == []
    assert notes_on_mass(A + rotor + slide) == [("b", 'joint "j"')]
    assert notes_on_mass(A + b + joint("j", "fixed", "a", "b")) == []
    assert notes_on_mass(A + b + C + hinge + joint("k", "fixed", "b", "c")) == []  # heavy by what is welded to it
    assert notes_on_mass(A + b + C + hinge + joint("k", "continuous", "b", "c")) == []  # by what it carries
    assert notes_on_mass(A + b + d + hinge + joint("k", "continuous", "b", "d")) == [("b", 'joint "j"')]  # only the first of a chain
    assert notes_on_mass(link("a", "") + b + hinge) == [("a", "free base")]
    assert notes_on_mass(link("a", "") + b + hinge, base="fixed") == [("b", 'joint "j"')]


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def shapes(inside: str, robot: str = "", **options):
    return read(robot + link("a", HEAVY + inside), **options).bodies[0].geoms


def drawn(shape: str, more: str = "", robot: str = "", **options):
    (geom,) = shapes(f"<visual>{more}<geometry>{shape}</geometry></visual>", robot, **options)
    return geom


@pytest.mark.parametrize(
    ("shape", "kind", "size"),
    [
        ('<box size="1 2 3"/>', "box", [0.5, 1, 1.5]),
        ('<sphere radius="2"/>', "sphere", [2]),
        ('<cylinder radius="1" length="3"/>', "cylinder", [1, 1.5]),
        ('<capsule radius="1" length="3"/>', "capsule", [1, 1.5]),
        ('<mesh filename="m.stl"/>', "mesh", [1, 1, 1]),
        ('<mesh filename="m.stl" scale="1 -2 3"/>', "mesh", [1, -2, 3]),
    ],
)
def test_shapes(shape, kind, size):
    geom = drawn(shape, '<origin xyz="1 2 3" rpy="0 0 1"/>')
    assert geom.shape == kind and geom.mass == 0 and geom.file == ("m.stl" if kind == "mesh" else None)
    np.testing.assert_array_equal(geom.size, size)
    np.testing.assert_array_equal(geom.pos, [1, 2, 3])
    np.testing.assert_allclose(geom.quat, [np.cos(0.5), 0, 0, np.sin(0.5)], atol=1e-15)


def test_visuals_are_drawn_and_collisions_collide():
    ball = '<geometry><sphere radius="1"/></geometry><material name="m"><color rgba="1 0 0 1"/></material>'
    first, second = shapes(f'<collision name="c">{ball}</collision><visual name="v">{ball}</visual>')
    assert (first.name, first.visual, first.collision, first.rgba) == ("c", False, True, None)
    assert (second.name, second.visual, second.collision, second.rgba) == ("v", True, False, (1, 0, 0, 1))


def test_materials():
    ball, red = '<sphere radius="1"/>', '<material name="red"><color rgba="1 0 0 0.5"/></material>'
    assert drawn(ball, '<material name="red"/>', red).rgba == (1, 0, 0, 0.5)
    assert drawn(ball, '<material name="red"><color rgba="0 1 0 1"/></material>', red).rgba == (0, 1, 0, 1)
    assert drawn(ball, '<material name=""><color rgba="0 1 0 1"/></material>').rgba == (0, 1, 0, 1)
    assert drawn(ball, '<material name="wood"><texture filename="wood.png"/></material>').rgba is None
    inline = f"<visual>{red}<geometry>{ball}</geometry></visual>"  # a name given inside a visual holds for all links
    assert shapes(f'<visual><material name="red"/><geometry>{ball}</geometry></visual>{inline}')[0].rgba == (1, 0, 0, 0.5)
    with pytest.warns(SuspiciousInputWarning, match='<material name="blue">: no material has this name'):
        assert drawn(ball, '<material name="blue"/>', red).rgba is None
    with pytest.warns(SuspiciousInputWarning, match="defined a second time"):
        assert drawn(ball, '<material name="red"/>', red + '<material name="red"/>').rgba == (1, 0, 0, 0.5)
    with pytest.warns(SuspiciousInputWarning, match="cut to 0..1") as caught:
        assert drawn(ball, '<material name="x"><color rgba="2 0.5 -1 1"/></material>').rgba == (1, 0.5, 0, 1)
    assert str(caught[0].message).count("cut") == 1
    assert "rgba" in refused('<material name="red"><color/></material>' + A)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ('<box size="1 1 1"/><sphere radius="1"/>', "found <box> <sphere>"),
        ("<box/>", "'size' is missing"),
        ('<box size="1 1"/>', "found 2 numbers"),
        ('<box size="1 -1 1"/>', r"allowed: numbers >= 0"),
        ('<sphere radius="-1"/>', "radius: found -1"),
        ('<cylinder radius="1"/>', "'length' is missing"),
        ("<mesh/>", "'filename' is missing"),
        ('<mesh filename="m.stl" scale="1"/>', "scale: found 1 numbers"),
    ],
)
def test_bad_shapes_are_refused(shape, words):
    message = refused(link("a", f"<collision><geometry>{shape}</geometry></collision>"))
    assert re.search(words, message), message
    assert "<geometry> is missing" in refused(link("a", "<visual/>"))


def test_shapes_without_size_are_doubtful():
    for shape in ('<sphere radius="0"/>', '<box size="1 1 0"/>', '<mesh filename="m" scale="1 0 1"/>'):
        with pytest.warns(SuspiciousInputWarning, match="no size"):
            drawn(shape)


def test_packages_are_looked_up_in_paths_only(tmp_path):
    (tmp_path / "second" / "robot" / "meshes").mkdir(parents=True)
    (tmp_path / "secret.stl").touch()
    mesh = tmp_path / "second" / "robot" / "meshes" / "m.stl"
    mesh.touch()
    folders = [tmp_path / "none", str(tmp_path / "second")]

    def found(name: str, paths=folders):
        return drawn(f'<mesh filename="{name}"/>', paths=paths).file

    for uri in ("package://robot/meshes/m.stl", "model://robot/meshes/m.stl"):
        assert found(uri) == str(mesh) == found(uri, str(tmp_path / "second"))
        assert found(uri, ()) == uri
    for name in ("package://robot/meshes/no.stl", "package://robot/../../secret.stl", "package://../secret.stl", "package://robot",
                 "http://robot/meshes/m.stl", "meshes/m.stl", "package://", f"package://robot/{'x' * 5000}"):  # fmt: skip
        assert found(name) == name


# ---- what is not read --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tag", ["transmission", "gazebo", "ros2_control", "mujoco"])
def test_blocks_of_other_programs_are_noted_once_per_kind(tag):
    block = f'<{tag} name="t"><joint name="j"><link/></joint></{tag}>\n'
    with pytest.warns(UnsupportedWarning) as caught:
        spec = read(A + block + B + block + joint("j", "fixed", "a", "b"))
    assert len(caught) == 1 and len(str(caught[0].message).splitlines()) == 1
    assert f"m.urdf:3: <{tag}> (2 in the file)" in str(caught[0].message)
    assert len(spec.bodies) == 2
    assert f"m.urdf:3: <{tag}>" in refused(A + block, strict=True)


def test_contact_parameters_that_do_not_act_are_noted():
    """Those that do: tests/test_format_contact.py."""
    with pytest.warns(UnsupportedWarning, match="<restitution> in <contact>.*do not bounce"):
        read(link("a", HEAVY + '<contact><lateral_friction value="1"/><restitution value="0.5"/></contact>'))
    read(link("a", HEAVY + '<contact><restitution value="0"/><inertia_scaling value="1"/></contact>'))


def test_unknown_elements_and_attributes_are_named():
    inside = link("a", HEAVY + '<sensor name="s"/>') + '<frame name="f"/><drake:thing/>' + B
    inside += joint("j", "continuous", "a", "b", '<dynamics damping="1" K="2"/><spring k="1"/>')
    with pytest.warns(UnsupportedWarning) as caught:
        read(inside, 'name="r" color="red"')
    text = str(caught[0].message)
    assert len(text.splitlines()) == 6
    for words in ("'color'", '<sensor name="s"> in <link name="a">', '<frame name="f">', "<drake:thing>", "'K'", "<spring>"):
        assert words in text
    assert "<spring>" in refused(A + B + joint("j", "continuous", "a", "b", "<spring/>"), strict=True)


# ---- the corpus --------------------------------------------------------------------------------------------------------------


def tensor(inertia) -> np.ndarray:
    xx, yy, zz, xy, xz, yz = inertia
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])


def frame(pos, quat) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = Rotation.from_quat(np.roll(quat, -1)).as_matrix(), pos
    return out


def motion(joint_spec, q) -> np.ndarray:
    """Child joint frame in parent joint frame."""
    out = np.eye(4)
    if joint_spec.type == "hinge":
        out[:3, :3] = Rotation.from_rotvec(q[0] * joint_spec.params["axes"][0]).as_matrix()
    elif joint_spec.type == "slide":
        out[:3, 3] = q[0] * joint_spec.params["axes"][0]
    elif joint_spec.type == "free":
        out = frame(q[:3], q[3:])
    return out


def forward_kinematics(spec, q: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Frames of all bodies in the world; q by name of the body, in xsim's coordinates."""
    poses: list[np.ndarray] = []
    for body in spec.bodies:
        above = poses[body.parent] if body.parent >= 0 else np.eye(4)
        at = q.get(body.name, body.joint.q0 if body.joint.q0 is not None else JOINT_TYPES[body.joint.type].neutral)
        poses.append(above @ frame(body.pos, body.quat) @ motion(body.joint, at))
    return {b.name: p for b, p in zip(spec.bodies, poses, strict=True)}


@needs_corpus
@pytest.mark.parametrize("path", models("urdf"), ids=lambda p: p.stem)
def test_spec_against_the_reference_engines(path):
    """Order, tree, joints, limits, damping, friction and inertias as listed; poses of all bodies in all states by kinematics.

    Tolerances are rounding: positions of a metre, inertias relative to their size.
    """
    numbers = oracle(path)
    spec = quiet(path, base=numbers.get("base", "free"))
    bodies = {b.name: b for b in spec.bodies}
    assert [b.name for b in spec.bodies] == numbers["bodies"]
    np.testing.assert_array_equal(spec.option.gravity, numbers["gravity"])
    listed = {j["child"]: j for j in numbers["joints"]}
    assert set(listed) <= set(bodies)
    for body in spec.bodies:
        entry = listed.get(body.name)
        if entry is None:
            assert (body.joint.type, body.parent) == ("fixed", -1)
            continue
        assert body.parent == (-1 if entry["parent"] == "world" else numbers["bodies"].index(entry["parent"]))
        assert body.joint.type == urdf.TYPES[entry["type"]].type
        if body.joint.name:
            assert body.joint.name == entry["name"]
        else:
            assert entry["name"].startswith(("floating:", "world_welds"))
        assert entry["v"][1] == JOINT_TYPES[body.joint.type].nv
        if entry["type"] in ("revolute", "prismatic"):
            np.testing.assert_array_equal(body.joint.position_range, [[entry["lower"][0], entry["upper"][0]]])
        if entry["v"][1] == 1:
            assert entry.get("damping", [0.0]) == list(body.joint.damping if body.joint.damping is not None else [0.0])
            assert entry.get("friction", [0.0]) == list(np.nan_to_num(body.joint.friction))
    for name, wanted in numbers["body_inertia"].items():
        found = bodies[name].inertial
        np.testing.assert_allclose(found.mass, wanted["mass"], atol=1e-13)
        if "com" in wanted:
            np.testing.assert_allclose(found.com, wanted["com"], atol=1e-15)
            scale = np.abs(wanted["inertia_com"]).max()
            np.testing.assert_allclose(tensor(found.inertia), wanted["inertia_com"], atol=1e-14 * scale)
    for state in numbers["states"]:
        q = {}
        for entry in numbers["joints"]:
            first, count = entry["q"]
            values = np.array(state["q"][first : first + count])
            q[entry["child"]] = np.roll(values, 3) if count == 7 else values  # the oracle's quaternion comes first
        poses = forward_kinematics(spec, q)
        for name, pose in state["body_pose"].items():
            np.testing.assert_allclose(poses[name], frame(pose[:3], np.array(pose[3:])), atol=1e-13, err_msg=name)
    drawn_at = forward_kinematics(spec, {})
    for name, pose in numbers["states"][0]["body_pose"].items():
        np.testing.assert_allclose(drawn_at[name], frame(pose[:3], np.array(pose[3:])), atol=1e-13, err_msg=name)


@needs_corpus
def test_bad_files_are_refused_with_their_place():
    listed = json.loads((corpus() / "oracles" / "urdf" / "invalid.json").read_text())["files"]
    found = sorted(p.name for p in (corpus() / "models" / "urdf" / "invalid").glob("*.urdf"))
    assert found == sorted(Path(entry["file"]).name for entry in listed) and found
    for entry in listed:
        overlooked = Path(entry["file"]).stem in ("mimic_missing_joint", "inertial_without_mass")
        with pytest.raises(ParseError) as caught:
            parse(corpus() / entry["file"], strict=overlooked)
        message = str(caught.value)
        assert re.search(r"\.urdf:\d+: <", message), message
        words = entry["element"].split()  # "joint j origin", "xacro:property"
        assert f"<{words[0]}" in message and (len(words) < 2 or f'name="{words[1]}"' in message), (entry["element"], message)


@needs_corpus
def test_bundled_two_links_is_the_mechanism_of_the_corpus():
    ours, theirs = parse(xsim.models.path("two_links"), strict=True), parse(corpus() / "models" / "urdf" / "seed_two_links_revolute.urdf")
    for a, b in zip(ours.bodies, theirs.bodies, strict=True):
        for x, y in ((a.pos, b.pos), (a.quat, b.quat), (a.inertial.com, b.inertial.com), (a.inertial.inertia, b.inertial.inertia)):
            np.testing.assert_allclose(x, y, atol=1e-15)
        assert (a.inertial.mass, a.joint.type, a.parent) == (b.inertial.mass, b.joint.type, b.parent)
    np.testing.assert_array_equal(ours.bodies[1].joint.params["axes"], theirs.bodies[1].joint.params["axes"])


# ---- bundled models ----------------------------------------------------------------------------------------------------------


def test_bundled_gripper():
    spec = parse(xsim.models.path("gripper"), strict=True)
    assert [b.name for b in spec.bodies] == ["column", "upper_arm", "forearm", "palm", "left_finger", "right_finger"]
    assert [b.joint.actuator for b in spec.bodies] == ["force", "force", "force", "passive", "force", "passive"]
    (follow,) = spec.constraints
    assert follow.coordinates == ((5, 0), (4, 0)) and follow.multiplier == -1
    tip = forward_kinematics(spec, {"upper_arm": [-np.pi / 2], "left_finger": [0.05]})["left_finger"]
    np.testing.assert_allclose(tip[:3, 3], [0, 0.06, 0.4 + 0.4 + 0.3 + 0.04], atol=1e-15)
    for body in spec.bodies:  # the inertias are those of the shapes that are drawn
        (geom,) = [g for g in body.geoms if g.visual]
        h = geom.size if geom.shape == "box" else None
        m = body.inertial.mass
        if h is not None:
            np.testing.assert_allclose(body.inertial.inertia[:3], m / 3 * (h @ h - h * h), rtol=1e-12)
        else:
            side = m * (geom.size[0] ** 2 / 4 + geom.size[1] ** 2 / 3)
            np.testing.assert_allclose(body.inertial.inertia[:3], [side, side, m * geom.size[0] ** 2 / 2], rtol=1e-12)


# ---- hostile input -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_long_chains_take_seconds():
    n = 10_000
    text = "".join(link(f"l{i}") for i in range(n))
    text += "".join(
        joint(f"j{i}", "continuous", f"l{i - 1}", f"l{i}", f'<mimic joint="j{i - 1}"/>' if i > 1 else "") for i in range(n - 1, 0, -1)
    )
    start = time.perf_counter()
    spec = read(text)
    assert time.perf_counter() - start < 60
    assert [b.parent for b in spec.bodies] == list(range(-1, n - 1)) and len(spec.constraints) == n - 2
    message = refused(text + joint("last", "fixed", f"l{n - 1}", "l0"))
    assert '<joint name="last">: closes a circle' in message and len(message) < 500


def test_deep_nesting_is_refused():
    assert "nested deeper than 100" in refused(A + "<gazebo>" + "<x>" * 900 + "</x>" * 900 + "</gazebo>")


EVERYTHING = f"""<robot name="r" version="1.0">
<material name="m"><color rgba="1 0.5 0 1"/><texture filename="t.png"/></material>
<link name="world"><collision><geometry><box size="9 9 1"/></geometry></collision></link>
<link name="a">{HEAVY}<visual name="v"><origin xyz="1 2 3" rpy="1 2 3"/><geometry><cylinder radius="1" length="2"/></geometry>
<material name="m"/></visual><contact><lateral_friction value="1"/></contact></link>
<link name="b"><inertial><origin xyz="1 2 3" quat_xyzw="0 0 1 1"/><mass value="2"/>{INERTIA}</inertial></link>
<link name="c">{HEAVY}<collision><geometry><mesh filename="package://p/m.stl" scale="1 2 3"/></geometry></collision></link>
<link name="d">{HEAVY}<visual><geometry><capsule radius="1" length="2"/></geometry></visual></link>
<link name="e">{HEAVY}<visual><geometry><sphere radius="1"/></geometry></visual></link><link name="f"/>
<joint name="ja" type="floating"><parent link="world"/><child link="a"/><origin xyz="1 2 3" rpy="1 2 3"/></joint>
<joint name="jb" type="revolute"><parent link="a"/><child link="b"/><axis xyz="0 3 4"/>{LIMIT}<dynamics damping="1" friction="2"/></joint>
<joint name="jc" type="prismatic"><parent link="b"/><child link="c"/>{LIMIT}<mimic joint="jb" multiplier="2" offset="1"/></joint>
<joint name="jd" type="planar"><parent link="a"/><child link="d"/><axis xyz="1 2 3"/><dynamics damping="1"/></joint>
<joint name="je" type="continuous"><parent link="d"/><child link="e"/><limit effort="0" velocity="1"/>
<safety_controller k_velocity="1"/></joint>
<joint name="jf" type="fixed"><parent link="e"/><child link="f"/><origin rpy="1 0 0"/><calibration rising="0"/></joint>
<transmission name="t"><joint name="jb"/></transmission><gazebo reference="a"><kp>1</kp></gazebo>
</robot>"""
JUNK = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "0 0 0", "1e308", "1e308 1e308 1e308", "-1e308 0 1e-320", "1e999", "1 2", "x", "a", "b",
    "world",
    "\u0663 0 0", "1_0", "0x1p3", "fixed", "floating", "planar", "prismatic", "ja", "jc", "${x}", "package://\u00e9/" + "y" * 300, "0 0 -1",
)  # fmt: skip


def mutate(text: str, rng: random.Random) -> str:
    """The document with one to four faults."""
    root = etree.fromstring(text.encode())
    for _ in range(rng.randint(1, 4)):
        nodes = [n for n in root.iter() if isinstance(n.tag, str)]
        node, other = rng.choice(nodes), rng.choice(nodes)
        names = list(node.attrib)
        kind = rng.choice(("value", "value", "value", "drop", "delete", "copy", "move", "rename", "attribute", "text"))
        if kind == "value" and names:
            node.set(rng.choice(names), rng.choice(JUNK))
        elif kind == "drop" and names:
            del node.attrib[rng.choice(names)]
        elif kind == "delete" and node is not root:
            node.getparent().remove(node)
        elif kind == "copy" and node is not root:
            other.append(copy.deepcopy(node))
        elif kind == "move" and node is not root and other is not node and node not in other.iterancestors():
            other.append(node)
        elif kind == "rename":
            node.tag = rng.choice([other.tag, "unknown", "mimic", "link"])
        elif kind == "attribute":
            node.set(rng.choice(["xyz", "rpy", "quat_xyzw", "name", "type", "link", "strange"]), rng.choice(JUNK))
        elif kind == "text":
            node.text = rng.choice(JUNK)
    out = etree.tostring(root, encoding="unicode")
    return out[: rng.randrange(len(out))] if rng.random() < 0.1 else out


def check(spec) -> None:
    """Numbers are finite, directions and quaternions unit, parents come first."""
    for i, body in enumerate(spec.bodies):
        j = body.joint
        kind = JOINT_TYPES[j.type]
        assert -1 <= body.parent < i and body.name
        finite = [body.pos, body.quat, body.inertial.mass, body.inertial.com, body.inertial.inertia, *j.params.values()]
        finite += [x for x in (j.damping, j.q0) if x is not None]
        for geom in body.geoms:
            finite += [geom.size, geom.pos, geom.quat, geom.rgba or 0.0]
        assert all(np.isfinite(x).all() for x in finite)
        for x in (j.damping, j.friction):
            assert x is None or x.shape == (kind.nv,)
        for x in (j.position_range, j.velocity_range, j.force_range):
            assert x is None or (x.shape == (kind.nv, 2) and (x[:, 0] <= x[:, 1]).all())
        units = [body.quat, *(geom.quat for geom in body.geoms), *j.params.get("axes", ())]
        np.testing.assert_allclose([np.linalg.norm(u) for u in units], 1, atol=1e-12)
    for constraint in spec.constraints:
        assert all(JOINT_TYPES[spec.bodies[b].joint.type].nv == 1 and i == 0 for b, i in constraint.coordinates)
        assert np.isfinite([constraint.multiplier, constraint.offset]).all()


def documents() -> list[str]:
    return [EVERYTHING, *(Path(xsim.models.path(n)).read_text() for n in ("two_links", "gripper"))]


def check_mutated(rng: random.Random) -> None:
    text = mutate(rng.choice(documents()), rng)
    try:
        spec = quiet(text, base=rng.choice(("free", "fixed")))
    except ParseError as error:
        assert str(error).startswith("<string>")
        return
    check(spec)


@pytest.mark.parametrize("seeds", mutations.SEEDS, ids=mutations.IDS)
def test_mutated_files_end_in_a_spec_or_a_parse_error(seeds):
    mutations.check_each(seeds, check_mutated)


def test_the_mutated_files_are_good_before():
    for text in documents():
        check(quiet(text))
