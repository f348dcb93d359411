"""The SKEL reader: what each word of the format means, what is refused and how it is said, the corpus, hostile input."""

from __future__ import annotations

import json
import random
import sys
import time
import warnings
from functools import cache
from pathlib import Path

import mutations
import numpy as np
import pytest
from corpus import corpus, models, needs_corpus, oracle
from lxml import etree

import xsim.models
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, parse, parse_text
from xsim.io.skel import joints
from xsim.joints.types import JOINT_TYPES

BUNDLED = ("cart_arm", "springy_tree")
AXIS = "<axis><xyz>0 0 1</xyz></axis>"
WIDTHS = {"weld": 0, "revolute": 1, "prismatic": 1, "screw": 1, "universal": 2, "ball": 3, "euler": 3, "translational": 3,
          "translational2d": 2, "planar": 3, "free": 6}  # fmt: skip


# ---- documents ---------------------------------------------------------------------------------------------------------------


def document(skeletons: str, physics: str = "") -> str:
    return f'<skel version="1.0">\n<world name="w">\n{physics}\n{skeletons}\n</world>\n</skel>'


def skeleton(inside: str, attributes: str = 'name="s"') -> str:
    return f"<skeleton {attributes}>\n{inside}\n</skeleton>"


def body_text(inside: str = "", name: str = "b") -> str:
    return f'<body name="{name}">{inside}</body>'


def joint_text(kind: str = "weld", inside: str = "", parent: str = "world", child: str = "b", name: str = "j", actuator: str = "") -> str:
    said = f'actuator="{actuator}"' if actuator else ""
    return f'<joint type="{kind}" name="{name}" {said}><parent>{parent}</parent><child>{child}</child>{inside}</joint>'


def read(inside: str, physics: str = "", attributes: str = 'name="s"', **options):
    return parse_text(document(skeleton(inside, attributes), physics), "skel", file="m.skel", **options)


def body(inside: str, joint: str | None = None):
    """The only body of a document, welded to the world."""
    return read(body_text(inside) + (joint or joint_text())).bodies[0]


def joint(kind: str, inside: str = "", place: str = "", actuator: str = ""):
    """The only joint of a document. place: what its body says."""
    needs = {"revolute": AXIS, "prismatic": AXIS, "screw": AXIS, "universal": AXIS + "<axis2><xyz>0 1 0</xyz></axis2>"}.get(kind, "")
    inside = inside if "<axis><xyz>" in inside else needs + inside
    return read(body_text(place) + joint_text(kind, inside, actuator=actuator)).bodies[0].joint


def refused(inside: str, physics: str = "", **options) -> str:
    with pytest.raises(ParseError) as caught:
        read(inside, physics, **options)
    return str(caught.value)


def refused_joint(kind: str, inside: str = "", **fields) -> str:
    return refused(body_text() + joint_text(kind, inside, **fields))


def refused_body(inside: str) -> str:
    return refused(body_text(inside) + joint_text())


# ---- kinematics, written out independently of the package --------------------------------------------------------------------


def turn(axis, angle: float) -> np.ndarray:
    """Rotation matrix (Rodrigues)."""
    x, y, z = axis
    cross = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]])
    return np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * cross @ cross


def exp(r) -> np.ndarray:
    angle = np.linalg.norm(r)
    return np.eye(3) if angle == 0 else turn(np.asarray(r) / angle, angle)


def matrix(quat) -> np.ndarray:
    w, v = quat[0], np.asarray(quat[1:], float)
    return (w * w - v @ v) * np.eye(3) + 2 * np.outer(v, v) + 2 * w * np.cross(np.eye(3), v)


def product(a, b) -> np.ndarray:
    return np.array([a[0] * b[0] - a[1:] @ b[1:], *(a[0] * b[1:] + b[0] * a[1:] + np.cross(a[1:], b[1:]))])


def frame(pos=(0, 0, 0), R=None) -> np.ndarray:
    out = np.eye(4)
    out[:3, :3], out[:3, 3] = np.eye(3) if R is None else R, pos
    return out


def xyz_frame(x, y, z, a, b, c) -> np.ndarray:
    """A pose of the file: Rx(a) Ry(b) Rz(c)."""
    return frame((x, y, z), turn((1, 0, 0), a) @ turn((0, 1, 0), b) @ turn((0, 0, 1), c))


def motion(spec, q) -> np.ndarray:
    out, at = np.eye(4), 0
    for link in JOINT_TYPES[spec.type].chain:
        axis = spec.params["axes"][link.axis] if isinstance(link.axis, int) else link.axis
        if link.kind == "ball":
            out = out @ frame(R=matrix(q[at : at + 4]))
        else:
            travel = {"hinge": 0.0, "slide": 1.0, "screw": spec.params["pitch"][0] if "pitch" in spec.params else None}[link.kind]
            out = out @ frame(np.array(axis) * travel * q[at], None if link.kind == "slide" else turn(axis, q[at]))
        at += link.nq
    return out


def integrated(spec, q, v, h: float) -> np.ndarray:
    q, at, out = np.asarray(q), 0, []
    for link in JOINT_TYPES[spec.type].chain:
        if link.kind == "ball":
            angle = np.linalg.norm(v[:3]) * h
            step = np.array([np.cos(angle / 2), *(np.sinc(angle / 2 / np.pi) * h / 2 * v[:3])])
            out.append(product(q[at : at + 4], step))
        else:
            out.append(q[at : at + 1] + h * v[:1])
        at, v = at + link.nq, v[link.nv :]
    return np.concatenate(out) if out else np.zeros(0)


def poses(model, h: float = 0.0) -> dict[str, np.ndarray]:
    """World poses of all bodies at q0, moved on by v0 h."""
    found: list[np.ndarray] = []
    for b in model.bodies:
        j = b.joint
        M = np.eye(4) if j.type == "fixed" else motion(j, integrated(j, j.q0, j.v0, h))
        X = frame(b.pos, matrix(b.quat)) @ M @ np.linalg.inv(frame(j.pos, matrix(j.quat)))
        found.append(X if b.parent < 0 else found[b.parent] @ X)
    return {b.name: X for b, X in zip(model.bodies, found, strict=True)}


def same_pose(a, b, tolerance=1e-12) -> None:
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=0)


def placed(b) -> np.ndarray:
    return frame(b.pos, matrix(b.quat))


# ---- file, world, physics ----------------------------------------------------------------------------------------------------


def test_root_and_world():
    spec = read(body_text() + joint_text())
    assert (spec.name, spec.format, [b.name for b in spec.bodies]) == ("w", "skel", ["s/b"])
    assert parse_text('<skel><world name="w"/></skel>').bodies == ()
    assert parse_text("<skel><world/></skel>").name == "Unknown world"
    for text, words in (("<sdf/>", "<skel>"), ("<skel/>", "<world> is missing")):
        with pytest.raises(ParseError, match=words):
            parse_text(text, "skel")


def test_only_the_first_world_is_read():
    with pytest.warns(UnsupportedWarning, match="second world"):
        assert parse_text('<skel><world name="a"/><world name="b"><skeleton/></world></skel>').name == "a"


def test_physics():
    inside = body_text() + joint_text()
    for physics in ("", "<physics/>", "<physics><collision_detector>anything</collision_detector></physics>"):
        option = read(inside, physics).option
        np.testing.assert_array_equal(option.gravity, [0, 0, -9.8])
        assert (option.dt, option.integrator, option.regularization) == (0.001, "dart", 0.0)
    option = read(inside, "<physics><time_step>\n 2e-3 </time_step><gravity>\n+1\t-0\n-9.81 </gravity></physics>").option
    np.testing.assert_array_equal(option.gravity, [1, 0, -9.81])
    assert option.dt == 0.002
    for wrong in ("<time_step>0</time_step>", "<time_step>inf</time_step>", "<gravity>0 0</gravity>", "<gravity>0 0 nan</gravity>"):
        assert wrong[1:5] in refused(inside, f"<physics>{wrong}</physics>")


def test_enforce_limits():
    inside = body_text() + joint_text()
    assert read(inside).option.constraint_kinds == ("holonomic", "friction", "limit", "velocity", "servo", "contact")
    assert read(inside, enforce_limits=False).option.constraint_kinds == ("holonomic", "friction", "servo", "contact")


def test_byte_order_mark_comments_and_white_space():
    text = document(skeleton(body_text("<transformation>\n1 <!-- x --> 2\t3  0 0\n0</transformation>") + joint_text()))
    for data in (text, "\ufeff" + text):
        np.testing.assert_array_equal(parse_text(data).bodies[0].pos, [1, 2, 3])


def test_what_is_not_known_is_reported_and_strict_refuses_it():
    inside = body_text('<colour/><mass unit="kg">1</mass>') + joint_text(inside="<pitch>1</pitch>")
    with pytest.warns(UnsupportedWarning) as caught:
        read(inside)
    (text,) = (str(w.message) for w in caught)
    assert all(word in text for word in ("<colour>", "<mass>", "<pitch>"))
    assert "strict" in refused(inside, strict=True)


# ---- skeletons, names, trees -------------------------------------------------------------------------------------------------


def test_names_are_made_unique():
    two = skeleton(body_text() + joint_text()) * 2
    with pytest.warns(SuspiciousInputWarning, match=r"s\(1\)"):
        spec = parse_text(document(two))
    assert [b.name for b in spec.bodies] == ["s/b", "s(1)/b"] and [b.joint.name for b in spec.bodies] == ["s/j", "s(1)/j"]
    with pytest.warns(SuspiciousInputWarning, match=r"j\(1\)"):
        spec = read(body_text() + body_text(name="c") + joint_text() + joint_text(child="c"))
    assert [b.joint.name for b in spec.bodies] == ["s/j", "s/j(1)"]
    unnamed = "<body/><joint type='weld'><parent>world</parent><child>Unknown body</child></joint>"
    (b,) = read(unnamed, attributes="").bodies
    assert (b.name, b.joint.name) == ("Unknown skeleton/Unknown body", "Unknown skeleton/joint")
    assert "'b' is taken" in refused(body_text() * 2 + joint_text())
    clash = skeleton(body_text(name="b/c") + joint_text(child="b/c")) + skeleton(body_text(name="c") + joint_text(child="c"), 'name="s/b"')
    with pytest.raises(ParseError, match="full name 's/b/c' is taken"):
        parse_text(document(clash))


def test_names_are_trimmed_and_may_hold_blanks():
    b = read(body_text(name=" link 1, [a] ") + joint_text(child="\n link 1, [a]\t", name=" joint 1")).bodies[0]
    assert (b.name, b.joint.name) == ("s/link 1, [a]", "s/joint 1")


def test_world_may_be_the_name_of_a_body():
    inside = body_text(name="world") + body_text() + joint_text(parent="b", child="world", name="k") + joint_text("revolute", AXIS, "world")
    assert "loop" in refused(inside)
    with pytest.warns(SuspiciousInputWarning, match="'root'"):
        spec = read(body_text(name="world") + body_text() + joint_text("revolute", AXIS, "world"))
    assert [(b.name, b.parent) for b in spec.bodies] == [("s/world", -1), ("s/b", 0)]


def test_order_of_bodies():
    """The first joint that is not built, after the joints that its parent hangs on."""
    names = "dcabe"
    inside = "".join(body_text(name=n) for n in names)
    for parent, child in (("c", "d"), ("a", "b"), ("world", "e"), ("a", "c"), ("world", "a")):
        inside += joint_text(parent=parent, child=child, name=f"j{child}")
    spec = read(inside)
    assert [b.name[2:] for b in spec.bodies] == ["a", "c", "d", "b", "e"]
    assert [b.parent for b in spec.bodies] == [-1, 0, 1, 0, -1]


def test_a_parent_that_no_joint_holds_floats():
    inside = body_text("<transformation>1 2 3 0 0 0.5</transformation>") + body_text(name="c") + joint_text("revolute", AXIS, "b", "c")
    with pytest.warns(SuspiciousInputWarning, match="'root'"):
        root, child = read(inside).bodies
    assert (root.joint.type, root.joint.name, root.joint.actuator, child.parent) == ("free", "s/root", "passive", 0)
    same_pose(placed(root), xyz_frame(1, 2, 3, 0, 0, 0.5))
    np.testing.assert_array_equal(root.joint.q0, [0, 0, 0, 1, 0, 0, 0])


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        (body_text(), ["b", "no joint"]),
        (body_text() + body_text(name="c") + joint_text(), ["c", "no joint"]),
        (body_text() + joint_text(child="c"), ["child", "'c'"]),
        (body_text() + joint_text(parent="c"), ["parent", "'c'", "world"]),
        (body_text() + joint_text(child="world"), ["child", "'world'"]),
        (body_text() + joint_text() * 2, ["'b'", "one parent"]),
        (body_text() + joint_text(parent="b"), ["'b'", "parent and child"]),
        (body_text() + "<joint type='weld' name='j'><child>b</child></joint>", ["<parent> is missing", '"j"']),
        (body_text() + "<joint type='weld' name='j'><parent>world</parent></joint>", ["<child> is missing", '"j"']),
        (body_text() + "<joint name='j'><parent>world</parent><child>b</child></joint>", ["type", '"j"']),
        (body_text() + joint_text(parent=" "), ["parent", "empty"]),
    ],
)  # fmt: skip
def test_trees_that_are_none_are_refused(inside, words):
    text = refused(inside)
    assert text.startswith("m.skel:") and all(w in text for w in words), text


def test_long_chains_in_any_order_are_read_quickly():
    n = 2000
    links = [body_text(name=f"b{i}") + joint_text("revolute", AXIS, f"b{i - 1}" if i else "world", f"b{i}", f"j{i}") for i in range(n)]
    start = time.perf_counter()
    spec = read("".join(reversed(links)))
    assert [b.parent for b in spec.bodies] == list(range(-1, n - 1))
    assert time.perf_counter() - start < 20  # a bound against quadratic work; a second or two


# ---- frames ------------------------------------------------------------------------------------------------------------------

S, A, B, C = (0.3, 0.1, 1, 0.2, -0.3, 0.4), (0.1, -0.2, 0.3, 0.1, 0.2, 0.3), (0.4, 0, 0.1, 0.3, -0.2, 0.5), (-0.05, 0.02, 0, 0.2, 0, 0.1)


def transformation(numbers) -> str:
    return f"<transformation>{' '.join(map(str, numbers))}</transformation>"


def test_frames():
    """Bodies relative to the skeleton; the joint's frame in the child; P = (S A)^-1 (S B) C."""
    a, b = body_text(transformation(A), "a"), body_text(transformation(B))
    hinge = joint_text("revolute", AXIS + transformation(C), "a")
    first, second = read(transformation(S) + a + b + joint_text("revolute", AXIS, child="a", name="k") + hinge).bodies
    SA, SB, CC = xyz_frame(*S) @ xyz_frame(*A), xyz_frame(*S) @ xyz_frame(*B), xyz_frame(*C)
    same_pose(placed(first), SA)
    same_pose(placed(second), np.linalg.inv(SA) @ SB @ CC)
    same_pose(placed(second.joint), CC)
    np.testing.assert_array_equal(first.joint.pos, 0)
    np.testing.assert_array_equal(first.joint.quat, [1, 0, 0, 0])


def test_a_weld_has_no_frame_of_its_own():
    weld = read(transformation(S) + body_text(transformation(B)) + joint_text(inside=transformation(C))).bodies[0]
    same_pose(placed(weld), xyz_frame(*S) @ xyz_frame(*B))
    same_pose(placed(weld.joint), np.eye(4))
    assert (weld.joint.type, weld.joint.actuator) == ("fixed", "passive")


# ---- joint types -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "axis"), [("revolute", "hinge"), ("prismatic", "slide"), ("screw", "screw")])
def test_joints_with_an_axis(kind, axis):
    found = joint(kind, "<axis><xyz>0 3 4</xyz></axis>")
    assert found.type == axis
    np.testing.assert_allclose(found.params["axes"], [[0, 0.6, 0.8]], atol=1e-15)
    assert "<axis> is missing" in refused_joint(kind) and "<xyz> is missing" in refused_joint(kind, "<axis/>")
    assert "zero" in refused_joint(kind, "<axis><xyz>0 0 0</xyz></axis>")
    assert "found 2 numbers" in refused_joint(kind, "<axis><xyz>1 0</xyz></axis>")


@pytest.mark.parametrize("size", ["1e-320", "1e-170", "1e170", "1.7e308"])
def test_axes_of_any_length_become_unit_vectors(size):
    np.testing.assert_allclose(joint("revolute", f"<axis><xyz>{size} {size} 0</xyz></axis>").params["axes"], [[0.5**0.5, 0.5**0.5, 0]])


def test_screw_pitch_is_per_turn():
    assert joint("screw").params["pitch"][0] == pytest.approx(0.1 / (2 * np.pi))
    assert joint("screw", "<axis><xyz>1 0 0</xyz><pitch>-1.2</pitch></axis>").params["pitch"][0] == pytest.approx(-1.2 / (2 * np.pi))


def test_universal():
    found = joint("universal", "<axis><xyz>0 2 0</xyz></axis><axis2><xyz>0 0 -3</xyz></axis2>")
    np.testing.assert_array_equal(found.params["axes"], [[0, 1, 0], [0, 0, -1]])
    assert "<axis2> is missing" in refused_joint("universal", AXIS)


def test_euler_axis_order():
    np.testing.assert_array_equal(joint("euler").params["axes"], np.eye(3))
    np.testing.assert_array_equal(joint("euler", "<axis_order>xyz</axis_order>").params["axes"], np.eye(3))
    np.testing.assert_array_equal(joint("euler", "<axis_order> zyx </axis_order>").params["axes"], np.eye(3)[::-1])
    assert "'zxy'" in refused_joint("euler", "<axis_order>zxy</axis_order>")


@pytest.mark.parametrize(("kind", "type"), [("planar", "planar"), ("translational2d", "slide2")])
def test_planes(kind, type):
    x, y, z = np.eye(3)
    rows = {"xy": (x, y, z), "yz": (y, z, x), "zx": (z, x, y)}
    for word, axes in rows.items():
        found = joint(kind, f'<plane type="{word}"/>')
        assert found.type == type
        np.testing.assert_array_equal(found.params["axes"], axes[: len(found.params["axes"])])
    for default in ("", "<plane/>"):
        np.testing.assert_array_equal(joint(kind, default).params["axes"][:2], [x, y])
    arbitrary = '<plane type="arbitrary"><translation_axis1><xyz>2 0 2</xyz></translation_axis1>'
    found = joint(kind, arbitrary + "<translation_axis2><xyz>3 1 3</xyz></translation_axis2></plane>").params["axes"]
    r = 0.5**0.5
    np.testing.assert_allclose(found, [(r, 0, r), y, (-r, 0, r)][: len(found)], atol=1e-15)
    assert "parallel" in refused_joint(kind, arbitrary + "<translation_axis2><xyz>1 0 1</xyz></translation_axis2></plane>")
    assert "<translation_axis2> is missing" in refused_joint(kind, arbitrary + "</plane>")
    assert "'zy'" in refused_joint(kind, '<plane type="zy"/>')


def test_translational():
    found = joint("translational", "<axis><xyz>0 0 0</xyz></axis><init_pos>1 2 3</init_pos>")  # xyz is not used
    assert (found.type, found.params) == ("p3d", {})
    np.testing.assert_array_equal(found.q0, [1, 2, 3])


@pytest.mark.parametrize("kind", WIDTHS)
def test_initial_values(kind):
    n = WIDTHS[kind]
    numbers = " ".join(f"0.{i + 1}" for i in range(n))
    found = joint(kind, f"<init_pos>{numbers}</init_pos><init_vel>{numbers}</init_vel>")
    assert set(WIDTHS) == set(joints.TYPES) and JOINT_TYPES[found.type].nv == n
    if kind not in ("weld", "ball", "free"):
        np.testing.assert_array_equal(found.q0, np.arange(1, n + 1) / 10)
        np.testing.assert_array_equal(found.v0, np.arange(1, n + 1) / 10)
    if n:
        found = joint(kind)
        np.testing.assert_array_equal(found.q0, JOINT_TYPES[found.type].neutral)
        np.testing.assert_array_equal(found.v0, np.zeros(n))
    axes = AXIS + "<axis2><xyz>1 0 0</xyz></axis2>"
    for tag in ("init_pos", "init_vel"):
        assert tag in refused_joint(kind, f"{axes}<{tag}>{numbers} 1</{tag}>")


def test_ball():
    found = joint("ball", "<init_pos>0.3 -0.2 0.6</init_pos><init_vel>1 2 3</init_vel>" + transformation(C))
    np.testing.assert_allclose(matrix(found.q0), exp([0.3, -0.2, 0.6]), atol=1e-15)
    np.testing.assert_array_equal(found.v0, [1, 2, 3])
    assert (found.type, found.spring_law, found.spring_ref) == ("ball", "components", None)
    same_pose(placed(found), xyz_frame(*C))


@pytest.mark.parametrize("frame_text", ["", transformation(C)])
def test_free(frame_text):
    """q0 and v0 are those of the body's origin; (w, u) of the file stands for W = Rc w, U = Rc u + pc x W in the parent's axes."""
    r, p, w, u = np.array([0.5, -0.4, 0.2]), np.array([0.1, 0.2, -0.3]), np.array([1, -2, 0.5]), np.array([0.3, 0.7, -1.1])
    start = "".join(f"<{t}>{' '.join(map(str, [*x, *y]))}</{t}>" for t, x, y in (("init_pos", r, p), ("init_vel", w, u)))
    inside = transformation(S) + body_text(transformation(B)) + joint_text("free", start + frame_text)
    (b,) = (spec := read(inside)).bodies
    assert (b.joint.type, b.joint.actuator, b.joint.damper_axes, b.joint.spring_law) == ("free", "passive", "joint", "components")
    same_pose(placed(b.joint), np.eye(4))
    drawn = xyz_frame(*S) @ xyz_frame(*B)
    same_pose(placed(b), drawn)
    CC = xyz_frame(*C) if frame_text else np.eye(4)
    here = poses(spec)["s/b"]
    same_pose(here, drawn @ CC @ frame(p, exp(r)) @ np.linalg.inv(CC))
    h = 1e-6
    W = CC[:3, :3] @ w
    U = CC[:3, :3] @ u + np.cross(CC[:3, 3], W)
    rate = (poses(spec, h)["s/b"] - poses(spec, -h)["s/b"]) / (2 * h)
    np.testing.assert_allclose(rate[:3, 3], U, atol=1e-8)
    np.testing.assert_allclose(rate[:3, :3], np.cross(np.eye(3), W) @ here[:3, :3], atol=1e-8)


# ---- springs, dampers, friction, limits --------------------------------------------------------------------------------------


def dynamics(damping="", friction="", rest="", stiffness="", spelling="spring") -> str:
    tags = ("damping", "friction", f"{spelling}_rest_position", f"{spelling}_stiffness")
    return "".join(f"<{t}>{x}</{t}>" for t, x in zip(tags, (damping, friction, rest, stiffness), strict=True) if x != "")


@pytest.mark.parametrize("spelling", ["spring", "sprint"])
def test_axis_dynamics(spelling):
    axes = ""
    for i, tag in enumerate(("axis", "axis2", "axis3"), 1):
        axes += f"<{tag}><dynamics>{dynamics(i, i + 0.5, -i, 10 * i, spelling)}</dynamics></{tag}>"
    found = joint("euler", axes)
    for name, values in (("damping", [1, 2, 3]), ("friction", [1.5, 2.5, 3.5]), ("spring_ref", [-1, -2, -3]), ("stiffness", [10, 20, 30])):
        np.testing.assert_array_equal(getattr(found, name), values)


def test_dynamics_that_are_not_given():
    found = joint("euler", f"<axis2><dynamics>{dynamics(friction=0)}</dynamics></axis2>")
    assert (found.damping, found.stiffness, found.spring_ref) == (None, None, None)
    np.testing.assert_array_equal(found.friction, [np.nan, 0, np.nan])
    assert joint("euler").friction is None
    assert (found.position_range, found.velocity_range, found.force_range) == (None, None, None)


def test_spellings_of_a_spring_may_not_disagree():
    both = dynamics(stiffness=3) + dynamics(stiffness="3.0", spelling="sprint")
    assert joint("ball", f'<dof local_index="1">{both}</dof>').stiffness[1] == 3
    text = refused_joint("ball", f'<dof local_index="1">{dynamics(stiffness=3)}{dynamics(stiffness=4, spelling="sprint")}</dof>')
    assert "sprint_stiffness" in text and "disagrees" in text


def test_old_damping_directly_under_the_axis():
    assert joint("revolute", "<axis><xyz>1 0 0</xyz><damping>0.4</damping></axis>").damping[0] == 0.4
    both = "<axis><xyz>1 0 0</xyz><dynamics><damping>0.5</damping></dynamics><damping>0.4</damping></axis>"
    assert joint("revolute", both).damping[0] == 0.5


@pytest.mark.parametrize("value", [dynamics(damping=-1), dynamics(friction=-1), dynamics(stiffness=-1), dynamics(damping="inf")])
def test_negative_coefficients_are_refused(value):
    assert '"j"' in refused_joint("revolute", f"<axis><xyz>1 0 0</xyz><dynamics>{value}</dynamics></axis>")
    assert "m.skel:" in refused_joint("ball", f'<dof local_index="0">{value}</dof>')


def test_dof_elements_override_axes():
    found = joint(
        "universal",
        f"<axis><xyz>1 0 0</xyz><dynamics>{dynamics(1, 2, 3, 4)}</dynamics><limit><lower>-1</lower><upper>1</upper></limit></axis>"
        "<axis2><xyz>0 1 0</xyz></axis2><init_pos>7 8</init_pos><init_vel>9 10</init_vel>"
        f'<dof local_index="0" name="x">{dynamics(5, 6, 7, 8)}<position upper="2" initial="0.1"/><velocity initial="0.2"/></dof>'
        '<dof local_index="1"><velocity lower="-3" upper="4"/><force lower="-5" upper="6" initial="0"/><acceleration initial="1"/></dof>',
    )
    for name, value in (("damping", 5), ("friction", 6), ("spring_ref", 7), ("stiffness", 8)):
        assert getattr(found, name)[0] == value
    np.testing.assert_array_equal(found.q0, [0.1, 8])
    np.testing.assert_array_equal(found.v0, [0.2, 10])
    free = (-np.inf, np.inf)
    np.testing.assert_array_equal(found.position_range, [(-1, 2), free])
    np.testing.assert_array_equal(found.velocity_range, [free, (-3, 4)])
    np.testing.assert_array_equal(found.force_range, [free, (-5, 6)])


def test_dof_index():
    assert joint("revolute", '<dof name="only"><position initial="2"/></dof>').q0[0] == 2
    for kind, index, words in (("ball", "", "missing"), ("ball", 'local_index="3"', "0 to 2"), ("ball", 'local_index="-1"', "0 to 2"),
                               ("weld", 'local_index="0"', "0 coordinates"), ("ball", 'local_index="1.0"', "not an integer")):  # fmt: skip
        text = refused_joint(kind, f"<dof {index}/>")
        assert "local_index" in text and words in text and '"j"' in text


def test_position_limits():
    def limits(inside):
        return joint("revolute", f"<axis><xyz>1 0 0</xyz><limit>{inside}</limit></axis>").position_range

    np.testing.assert_array_equal(limits("<lower>-1.57</lower><upper>+1.57</upper>"), [[-1.57, 1.57]])
    np.testing.assert_array_equal(limits("<lower>0</lower><upper>0</upper>"), [[0, 0]])
    np.testing.assert_array_equal(limits("<upper>1</upper>"), [[-np.inf, 1]])
    assert limits("") is None and limits("<lower>-inf</lower><upper>inf</upper>") is None
    for wrong in ("<lower>1</lower><upper>-1</upper>", "<lower>inf</lower>", "<upper>-inf</upper>", "<lower>nan</lower>"):
        text = refused_joint("revolute", f"<axis><xyz>1 0 0</xyz><limit>{wrong}</limit></axis>")
        assert '"j"' in text and ("limit" in text or "lower" in text)
    assert "position limit" in refused_joint("revolute", AXIS + '<dof><position lower="1" upper="0"/></dof>')


def test_velocity_and_effort_limits_are_symmetric():
    found = joint("revolute", "<axis><xyz>1 0 0</xyz><limit><velocity>3</velocity><effort>0</effort></limit></axis>")
    np.testing.assert_array_equal(found.velocity_range, [[-3, 3]])
    np.testing.assert_array_equal(found.force_range, [[0, 0]])
    assert joint("revolute", "<axis><xyz>1 0 0</xyz><limit><velocity>inf</velocity></limit></axis>").velocity_range is None
    assert ">= 0" in refused_joint("revolute", "<axis><xyz>1 0 0</xyz><limit><effort>-1</effort></limit></axis>")


def test_a_start_outside_the_limits_is_legal():
    found = joint("revolute", '<init_pos>5</init_pos><dof><position lower="-1" upper="1"/></dof>')
    assert found.q0[0] == 5


def test_acceleration_limits_and_initial_forces_are_reported():
    for inside, words in (('<acceleration lower="-3"/>', "acceleration limits"), ('<force initial="2"/>', "initial force 2")):
        with pytest.warns(UnsupportedWarning, match=words):
            joint("revolute", f"<dof>{inside}</dof>")
    joint("revolute", '<dof><acceleration lower="-inf" upper="inf" initial="3"/></dof>')


def test_axes_without_coordinates_are_doubtful():
    for kind, axis in (("ball", "axis"), ("revolute", "axis2"), ("weld", "axis3")):
        with pytest.warns(SuspiciousInputWarning, match=f"<{axis}>.*no coordinate"):
            found = joint(kind, f"<{axis}><dynamics><damping>1</damping></dynamics></{axis}>")
        assert found.damping is None
    joint("ball", AXIS)  # an axis that says nothing else is common


def test_springs_of_a_ball():
    first = f'<dof local_index="0">{dynamics(1, 0.5, 0.3, 2)}<position lower="-1" upper="2"/></dof>'
    found = joint("ball", f'{first}<dof local_index="2">{dynamics(rest=-0.1)}</dof>')
    np.testing.assert_allclose(matrix(found.spring_ref), exp([0.3, 0, -0.1]), atol=1e-15)
    np.testing.assert_array_equal(found.damping, [1, 0, 0])
    np.testing.assert_array_equal(found.stiffness, [2, 0, 0])
    np.testing.assert_array_equal(found.friction, [0.5, np.nan, np.nan])
    np.testing.assert_array_equal(found.position_range, [(-1, 2), (-np.inf, np.inf), (-np.inf, np.inf)])
    assert found.spring_law == "components"
    assert "half a turn" in refused_joint("ball", f'<dof local_index="0">{dynamics(rest=3.2, stiffness=1)}</dof>')


def test_springs_of_a_free_joint():
    dofs = "".join(f'<dof local_index="{i}">{dynamics(1 + i, "", 0.1 * i, 10 + i)}</dof>' for i in range(6))
    found = joint("free", dofs)
    np.testing.assert_array_equal(found.damping, [4, 5, 6, 1, 2, 3])
    np.testing.assert_array_equal(found.stiffness, [13, 14, 15, 10, 11, 12])
    np.testing.assert_allclose(found.spring_ref[:3], [0.3, 0.4, 0.5])
    np.testing.assert_allclose(matrix(found.spring_ref[3:]), exp([0, 0.1, 0.2]), atol=1e-15)
    assert (found.damper_axes, found.spring_law) == ("parent", "components")
    assert "springs and dampers" in refused_joint("free", dofs + transformation(C))
    joint("free", transformation((0,) * 6) + dofs)


def test_friction_and_limits_of_a_free_joint():
    limited = '<dof local_index="{}"><friction>2</friction><position lower="-1" upper="1"/><velocity upper="3"/><force lower="-4"/></dof>'
    found = joint("free", limited.format(4))
    np.testing.assert_array_equal(found.friction, [np.nan, 2, np.nan, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(found.position_range[1], [-1, 1])
    np.testing.assert_array_equal(found.velocity_range[1], [-np.inf, 3])
    np.testing.assert_array_equal(found.force_range[1], [-4, np.inf])
    with pytest.warns(UnsupportedWarning) as caught:
        found = joint("free", limited.format(1))
    text = str(caught[0].message)
    for what in ("friction", "position limits", "velocity limits", "force limits"):
        assert f"{what} of the rotation" in text
    assert all(x is None for x in (found.friction, found.position_range, found.velocity_range, found.force_range))
    with pytest.warns(UnsupportedWarning):  # the parent's axes are not those of the coordinates
        found = joint("free", limited.format(4), transformation(B))
    assert found.friction is None and found.velocity_range is None and found.position_range is not None
    with pytest.warns(UnsupportedWarning):
        assert joint("free", limited.format(4) + transformation(C)).position_range is None


# ---- actuators, immobile skeletons -------------------------------------------------------------------------------------------


def test_actuators():
    words = {"force": "force", "torque": "force", "passive": "passive", "acceleration": "acceleration", "velocity": "velocity",
             "locked": "locked", "servo": "servo"}  # fmt: skip
    assert words == joints.ACTUATORS
    for word, actuator in words.items():
        assert joint("revolute", actuator=word).actuator == actuator
    for kind in WIDTHS:
        assert joint(kind).actuator == ("passive" if kind in ("weld", "free") else "force")
    assert joint("free", actuator="force").actuator == "force"
    for word in ("mimic", "Force", ""):
        assert "actuator" in refused(body_text() + joint_text("revolute", AXIS).replace('name="j"', f'name="j" actuator="{word}"'))


def test_locked_joints_lose_their_velocity():
    for kind, n in (("revolute", 1), ("ball", 3), ("free", 6)):
        found = joint(kind, f"<init_pos>{'1 ' * n}</init_pos><init_vel>{'1 ' * n}</init_vel>", actuator="locked")
        np.testing.assert_array_equal(found.v0, np.zeros(n))
        assert found.q0[0] != 0


@pytest.mark.parametrize("kind", WIDTHS)
@pytest.mark.parametrize("word", ["<mobile>false</mobile>", "<immobile>1</immobile>"])
def test_immobile_skeletons_stay_where_they_start(kind, word):
    axes = AXIS + "<axis2><xyz>0 1 0</xyz></axis2>" if kind == "universal" else AXIS
    start = " ".join(str(0.3 - 0.2 * i) for i in range(WIDTHS[kind]))
    inside = transformation(S) + body_text(transformation(B)) + joint_text(kind, f"{axes}<init_pos>{start}</init_pos>" + transformation(C))
    moving, (held,) = read(inside), read(word + inside).bodies
    assert (held.name, held.joint.name, held.joint.type) == ("s/b", "s/j", "fixed")
    same_pose(placed(held), poses(moving)["s/b"])
    same_pose(placed(held.joint), np.eye(4))


def test_mobile_and_immobile():
    def kind(words):
        return read(words + body_text() + joint_text("revolute", AXIS)).bodies[0].joint.type

    for words in ("", "<mobile>true</mobile>", "<immobile>0</immobile>", "<mobile>1</mobile><immobile>False</immobile>"):
        assert kind(words) == "hinge"
    for words in ("<mobile> FALSE </mobile>", "<mobile>0</mobile><immobile>1</immobile>"):
        assert kind(words) == "fixed"
    assert "contradicts" in refused("<mobile>0</mobile><immobile>0</immobile>" + body_text() + joint_text())
    assert "truth" in refused("<mobile>no</mobile>" + body_text() + joint_text())


# ---- bodies, inertia ---------------------------------------------------------------------------------------------------------


def test_body_flags_and_markers():
    b = body('<gravity>0</gravity><self_collide>1</self_collide><marker name="m"><offset>1 2 3</offset></marker><marker/>')
    assert (b.gravity, body("").gravity, body("<gravity>True</gravity>").gravity) == (0.0, 1.0, 1.0)
    assert [m.name for m in b.markers] == ["m", None]
    np.testing.assert_array_equal(b.markers[0].pos, [1, 2, 3])
    assert "gravity" in refused_body("<gravity>2</gravity>")


def shape(geometry: str, place=None, kind: str = "visualization") -> str:
    return f"<{kind}_shape>{'' if place is None else transformation(place)}<geometry>{geometry}</geometry></{kind}_shape>"


BOX = "<box><size>0.1 0.2 0.3</size></box>"


def inertial(inside: str):
    found = body(inside).inertial
    assert found is not None
    return found


def assert_inertia(found, mass, com, inertia) -> None:
    assert found.mass == mass
    np.testing.assert_allclose(found.com, com, atol=1e-15)
    np.testing.assert_allclose(found.inertia, inertia, rtol=1e-12, atol=1e-15)


def test_inertia_defaults():
    assert_inertia(inertial(""), 1, [0, 0, 0], [1, 1, 1, 0, 0, 0])
    assert_inertia(inertial(shape(BOX)), 1, [0, 0, 0], [1, 1, 1, 0, 0, 0])
    assert_inertia(inertial("<inertia/>"), 1, [0, 0, 0], [1, 1, 1, 0, 0, 0])
    assert_inertia(inertial("<inertia><mass>5</mass><offset>1 2 3</offset></inertia>"), 5, [1, 2, 3], [1, 1, 1, 0, 0, 0])
    plane = shape("<plane><normal>0 0 1</normal></plane>")
    assert_inertia(inertial(f"<inertia><mass>5</mass></inertia>{plane}"), 5, [0, 0, 0], [1, 1, 1, 0, 0, 0])
    part = "<inertia><moment_of_inertia><iyy>3</iyy><ixy>0.1</ixy></moment_of_inertia></inertia>"
    with pytest.warns(SuspiciousInputWarning, match="belong to no body"):
        assert_inertia(inertial(part), 1, [0, 0, 0], [1, 3, 1, 0.1, 0, 0])


def moment(*six) -> str:
    entries = zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), six, strict=True)
    return f"<moment_of_inertia>{''.join(f'<{t}>{x}</{t}>' for t, x in entries)}</moment_of_inertia>"


def test_moment_is_about_the_centre_of_mass():
    six = (0.02, 0.03, 0.025, 0.001, -0.002, 0.003)
    assert_inertia(inertial(f"<inertia><mass>2</mass><offset>1 0 0</offset>{moment(*six)}</inertia>"), 2, [1, 0, 0], six)


def test_inertia_transformation_turns_the_moment():
    six = (0.02, 0.03, 0.025, 0.001, -0.002, 0.003)
    found = inertial(f"<inertia>{transformation((1, 2, 3, 0.3, 0.2, 0.1))}{moment(*six)}</inertia>")
    xx, yy, zz, xy, xz, yz = six
    R = xyz_frame(0, 0, 0, 0.3, 0.2, 0.1)[:3, :3]
    outer = R @ np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) @ R.T
    assert_inertia(found, 1, [1, 2, 3], outer[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
    assert "<offset> is given too" in refused_body(f"<inertia><offset>0 0 0</offset>{transformation(C)}</inertia>")


@pytest.mark.parametrize(
    "words", ["<mass>-1</mass>", "<mass>inf</mass>", moment(-1, 1, 1, 0, 0, 0), moment(1, 1, 1, 2, 0, 0), moment(0, 0, 0, 1, 0, 0)]
)
def test_impossible_inertias_are_refused(words):
    assert '"b"' in refused_body(f"<inertia>{words}</inertia>")


def box_moment(m, x, y, z) -> np.ndarray:
    return m / 12 * np.diag([y * y + z * z, x * x + z * z, x * x + y * y])


def cylinder_moment(m, r, h) -> np.ndarray:
    return m * np.diag([r * r / 4 + h * h / 12, r * r / 4 + h * h / 12, r * r / 2])


def capsule_moment(m, r, h) -> np.ndarray:
    tube, ball = r * r * h, 4 / 3 * r**3
    t, b = m * tube / (tube + ball), m * ball / (tube + ball)
    side = t * (r * r / 4 + h * h / 12) + b * (2 / 5 * r * r + h * h / 4 + 3 / 8 * h * r)
    return np.diag([side, side, t * r * r / 2 + b * 2 / 5 * r * r])


SOLIDS = {
    "box": (BOX, 0.1 * 0.2 * 0.3, box_moment(1, 0.1, 0.2, 0.3)),
    "ellipsoid": ("<ellipsoid><size>0.2 0.4 0.6</size></ellipsoid>", np.pi / 6 * 0.048, np.diag([0.52, 0.4, 0.2]) / 20),
    "sphere": ("<sphere><radius>0.2</radius></sphere>", 4 / 3 * np.pi * 0.008, np.eye(3) * 0.4 * 0.04),
    "cylinder": ("<cylinder><radius>0.1</radius><height>0.5</height></cylinder>", np.pi * 0.005, cylinder_moment(1, 0.1, 0.5)),
    "capsule": ("<capsule><radius>0.1</radius><height>0.5</height></capsule>", np.pi * (0.005 + 0.004 / 3), capsule_moment(1, 0.1, 0.5)),
    "cone": ("<cone><radius>0.2</radius><height>0.6</height></cone>", np.pi * 0.008, np.diag([0.042, 0.042, 0.012])),
    "multi_sphere": (
        "<multi_sphere><sphere><radius>0.1</radius><position>0 0 0</position></sphere>"
        "<sphere><radius>0.2</radius><position>1 0 0.5</position></sphere></multi_sphere>",
        1.3 * 0.4 * 0.8, box_moment(1, 1.3, 0.4, 0.8),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SOLIDS)
def test_moment_from_shapes(name):
    text, _, unit = SOLIDS[name]
    found = inertial(f"<inertia><mass>2</mass></inertia>{shape(text)}")
    assert_inertia(found, 2, [0, 0, 0], [*2 * np.diag(unit), 0, 0, 0])


def test_all_shapes_share_the_mass_by_volume():
    """About the centre of mass given by offset, which the shapes do not move."""
    mass, com, parts = 3.0, np.array([0.1, 0, -0.2]), []
    text, total = f"<inertia><mass>{mass}</mass><offset>0.1 0 -0.2</offset></inertia>", np.zeros((3, 3))
    volume = sum(v for _, v, _ in SOLIDS.values())
    for i, (geometry, v, inner) in enumerate(SOLIDS.values()):
        place = (0.1 * i, -0.2, 0.05 * i, 0.3, 0.2 * i, -0.5)
        text += shape(geometry, place, ("visualization", "collision")[i % 2])
        R, d, m = xyz_frame(*place)[:3, :3], np.array(place[:3]) - com, mass * v / volume
        total += m * (R @ inner @ R.T + d @ d * np.eye(3) - np.outer(d, d))
        parts.append(m)
    assert sum(parts) == pytest.approx(mass)
    assert_inertia(inertial(text), mass, com, total[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
    twice = shape(BOX) + shape(BOX, kind="collision")
    assert_inertia(inertial(f"<inertia><mass>2</mass></inertia>{twice}"), 2, [0, 0, 0], [*2 * np.diag(SOLIDS["box"][2]), 0, 0, 0])


def test_massless_bodies_may_carry_others():
    """The moment of a massless body stays 1, also where it has shapes."""
    light, heavy = "<inertia><mass>0</mass></inertia>", body_text(name="c")
    slide = joint_text("prismatic", AXIS)
    for kind in ("weld", "prismatic", "revolute", "free"):
        b, c = read(body_text(light + shape(BOX)) + heavy + slide + joint_text(kind, AXIS, "b", "c", "k")).bodies
        assert_inertia(b.inertial, 0, [0, 0, 0], [1, 1, 1, 0, 0, 0])
    assert read(body_text(light) + joint_text("revolute", AXIS)).bodies[0].inertial.mass == 0  # it has a moment
    nothing = f"<inertia><mass>0</mass>{moment(0, 0, 0, 0, 0, 0)}</inertia>"
    read(body_text(nothing) + joint_text())
    for kind, inside in (("free", light), ("prismatic", light), ("planar", light), ("revolute", nothing), ("ball", nothing)):
        text = refused(body_text(inside) + joint_text(kind, AXIS if kind in ("prismatic", "revolute") else ""))
        assert '"b"' in text and "mass" in text and "s/j" in text
    for actuator in ("velocity", "acceleration", "locked"):  # prescribed motion asks for no mass
        read(body_text(light) + joint_text("prismatic", AXIS, actuator=actuator))
    assert '"c"' in refused(body_text() + body_text(light, "c") + slide + joint_text("translational", "", "b", "c", "k"))


# ---- shapes ------------------------------------------------------------------------------------------------------------------


def geom(geometry: str, place=None, kind="visualization"):
    (found,) = body(shape(geometry, place, kind)).geoms
    return found


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (BOX, (0.05, 0.1, 0.15)),
        ("<box/>", (0.5, 0.5, 0.5)),
        ("<ellipsoid><size>0.2 0.4 0.6</size></ellipsoid>", (0.1, 0.2, 0.3)),
        ("<ellipsoid/>", (0.5, 0.5, 0.5)),
        ("<sphere><radius>0.2</radius></sphere>", (0.2,)),
        ("<cylinder><radius>0.1</radius><height>0.5</height></cylinder>", (0.1, 0.25)),
        ("<cylinder><radius>0.1</radius><length>0.5</length></cylinder>", (0.1, 0.25)),
        ("<cylinder><length>0.5</length><height>5e-1</height></cylinder>", (0.5, 0.25)),
        ("<cylinder/>", (0.5, 0.5)),
        ("<capsule><radius>0.1</radius><height>0.5</height></capsule>", (0.1, 0.25)),
        ("<cone><radius>0.1</radius><height>0.5</height></cone>", (0.1, 0.25)),
    ],
)
def test_sizes_are_full_extents(text, size):
    found = geom(text, B)
    assert found.shape == text[1:].split(">")[0].strip("/") and found.mass == 0
    np.testing.assert_array_equal(found.size, size)
    same_pose(placed(found), xyz_frame(*B))


def test_multi_sphere_keeps_its_spheres():
    found = geom(SOLIDS["multi_sphere"][0])
    np.testing.assert_array_equal(found.size, [0.1, 0.2])
    np.testing.assert_array_equal(found.points, [(0, 0, 0), (1, 0, 0.5)])


def test_planes_point_along_their_normal():
    for normal in ((0, 0, 2), (0, 0, -1), (3, 0, 4), (0, -1, 0), (1e-200, 0, -1e-200)):
        unit = np.array(normal) / max(map(abs, normal))
        unit /= np.linalg.norm(unit)
        text = f"<normal>{' '.join(map(str, normal))}</normal>"
        for place, offset in (("", 0), ("<offset>0.5</offset>", 0.5), ("<point>1 2 3</point>", unit @ [1, 2, 3])):
            found = geom(f"<plane>{text}{place}</plane>", B)
            X = xyz_frame(*B)
            np.testing.assert_allclose(matrix(found.quat)[:, 2], X[:3, :3] @ unit, atol=1e-14)
            np.testing.assert_allclose(found.pos, X[:3, 3] + X[:3, :3] @ (unit * offset), atol=1e-14)
            np.testing.assert_array_equal(found.size, [0, 0])
    assert "one of them" in refused_body(shape("<plane><normal>0 0 1</normal><offset>1</offset><point>0 0 1</point></plane>"))


def test_flags_and_colors():
    text = shape(BOX).replace("</vis", "<color>0.1 0.2 0.3</color><collidable>0</collidable></vis") + shape(BOX, kind="collision")
    text += shape(BOX, kind="collision").replace("</col", "<collidable>0</collidable><color>1 0 0 0.5</color></col")
    found = body(text).geoms
    assert [(g.visual, g.collision) for g in found] == [(True, False), (False, True), (False, False)]
    assert [g.rgba for g in found] == [(0.1, 0.2, 0.3, 1.0), None, (1, 0, 0, 0.5)]
    assert "color" in refused_body(shape(BOX).replace("</vis", "<color>red</color></vis"))


def test_pyramids_are_reported_and_lose_no_body():
    pyramid = "<pyramid><base_width>1</base_width><base_depth>1</base_depth><height>1</height></pyramid>"
    with pytest.warns(UnsupportedWarning, match="pyramid"):
        b = body(f"<inertia>{moment(1, 1, 1, 0, 0, 0)}</inertia>" + shape(pyramid) + shape(BOX))
    assert [g.shape for g in b.geoms] == ["box"]
    assert "moment of inertia of a pyramid" in refused_body("<inertia><mass>1</mass></inertia>" + shape(pyramid))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds 0 shapes"), (BOX + BOX, "holds 2 shapes"), ("<torus/>", "<torus>"), ("<box><size>1 1</size></box>", "found 2"),
        ("<box><size>1 1 0</size></box>", "> 0"), ("<sphere/>", "<radius>"), ("<capsule><radius>1</radius></capsule>", "<height>"),
        ("<cylinder><length>1</length><height>2</height></cylinder>", "disagrees"), ("<plane/>", "<normal>"),
        ("<plane><normal>0 0 0</normal></plane>", "zero"), ("<multi_sphere/>", "<sphere>"), ("<mesh/>", "<file_name>"),
        ("<mesh><file_name>a.obj</file_name><scale>1 0 1</scale></mesh>", "scale"),
    ],
)  # fmt: skip
def test_bad_shapes_are_refused(text, words):
    found = refused_body(shape(text))
    assert '"b"' in found and words in found


def test_soft_bodies_are_refused():
    text = refused_body("<soft_shape><total_mass>1</total_mass><geometry><box><frags>2 2 2</frags></box></geometry><kv>1</kv></soft_shape>")
    assert all(w in text for w in ('"s"', "'b'", "deformable", "remove <soft_shape>", "rigid core"))


# ---- meshes ------------------------------------------------------------------------------------------------------------------

OBJ = "v 0 0 0\nv 1 0 0\nv 0 2 0\nv 0 0 3\nf 1 3 2\nf 1 2 4\nf 1 4 3\nf 2 3 4\n"


def mesh_model(folder: Path, name: str = "part.obj", inertia: str = "<inertia><mass>2</mass></inertia>", scale: str = "") -> Path:
    path = folder / "model.skel"
    mesh = f"<mesh><file_name>{name}</file_name>{scale}</mesh>"
    path.write_text(document(skeleton(body_text(inertia + shape(mesh, (1, 0, 0, 0, 0, 0))) + joint_text())))
    return path


def test_a_mesh_that_gives_no_inertia_only_has_to_exist(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trimesh", None)
    (tmp_path / "part.obj").write_text("not read")
    (found,) = parse(mesh_model(tmp_path, inertia="", scale="<scale>2 3 -4</scale>")).bodies[0].geoms
    assert (found.shape, found.file) == ("mesh", str(tmp_path / "part.obj"))
    np.testing.assert_array_equal(found.size, [2, 3, -4])
    assert geom("<mesh><file_name>part.obj</file_name></mesh>").file == "part.obj"  # text has no folder
    with pytest.raises(ParseError, match=r"other\.obj.* is not there"):
        parse(mesh_model(tmp_path, "other.obj", ""))


def test_moment_from_a_mesh(tmp_path):
    """That of its bounding box, centred at the origin of the shape."""
    pytest.importorskip("trimesh")
    (tmp_path / "part.obj").write_text(OBJ)
    found = parse(mesh_model(tmp_path, scale="<scale>0.5 0.5 -0.5</scale>")).bodies[0].inertial
    box = box_moment(2, 0.5, 1, 1.5) + 2 * np.diag([0, 1, 1])
    assert_inertia(found, 2, [0, 0, 0], [*np.diag(box), 0, 0, 0])
    (tmp_path / "part.obj").write_text("v 0 0 0\nv 1 0 0\nv 0 1 0\nf 1 2 3\n")
    with pytest.raises(ParseError, match="volume 0"):
        parse(mesh_model(tmp_path))


@pytest.mark.parametrize(
    ("name", "data"), [("part.obj", b"\x00\xff\x00"), ("part.stl", b"solid"), ("part.xyzzy", b""), ("part.glb", b"glTF")]
)
def test_a_mesh_that_cannot_be_read_is_an_error(tmp_path, name, data):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ParseError, match=r"part|trimesh"):
        parse(mesh_model(tmp_path, name))


def test_a_mesh_without_trimesh_or_folder(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "trimesh", None)
    (tmp_path / "part.obj").write_text(OBJ)
    with pytest.raises(ParseError, match=r"pip install \"xsim\[mesh\]\""):
        parse(mesh_model(tmp_path))
    text = refused_body("<inertia><mass>1</mass></inertia>" + shape("<mesh><file_name>part.obj</file_name></mesh>"))
    assert "part.obj" in text and "no folder" in text


def test_meshes_are_looked_up_near_the_model_only(tmp_path):
    folder = tmp_path / "a" / "models"
    for place in (folder / "parts", tmp_path / "a" / "meshes", tmp_path / "b"):
        place.mkdir(parents=True)
        (place / "part.obj").write_text(OBJ)
    (folder / "link.obj").symlink_to(tmp_path / "b" / "part.obj")
    for name in ("parts/part.obj", "../meshes/part.obj"):
        assert Path(parse(mesh_model(folder, name, "")).bodies[0].geoms[0].file) == (folder / name).resolve()
    for name in ("../../b/part.obj", "link.obj", str(tmp_path / "a" / "meshes" / "part.obj"), "/etc/passwd", "http://host/part.obj",
                 "file:///etc/passwd", r"\\host\share\part.obj", ".", "x" * 5000, "dart://sample/obj/foot.obj"):  # fmt: skip
        with pytest.raises(ParseError, match=r"file_name"):
            parse(mesh_model(folder, name, ""))


# ---- bundled models, corpus --------------------------------------------------------------------------------------------------


def test_bundled_models():
    arm, tree = (parse(xsim.models.path(n), strict=True) for n in BUNDLED)
    assert [b.joint.actuator for b in arm.bodies] == ["passive", "servo", "force", "passive"]
    assert [b.joint.type for b in arm.bodies] == ["fixed", "slide", "hinge", "hinge"]
    assert [b.joint.type for b in tree.bodies] == ["ball", "universal", "euler", "slide2"]
    np.testing.assert_array_equal(arm.bodies[1].joint.force_range, [[-40, 40]])
    np.testing.assert_array_equal(arm.bodies[3].joint.friction, [0.03])
    np.testing.assert_allclose(tree.bodies[3].joint.spring_ref, [0.02, 0])


def corpus_model(path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedWarning)
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        return parse(path)


each_model = pytest.mark.parametrize("path", models("skel"), ids=lambda p: p.stem)


@needs_corpus
@each_model
def test_corpus_bodies(path):
    spec, numbers = corpus_model(path), oracle(path)
    assert [b.name for b in spec.bodies] == numbers["bodies"]
    assert [b.joint.name for b in spec.bodies] == [j["name"] for j in numbers["joints"]]
    assert ["world" if b.parent < 0 else spec.bodies[b.parent].name for b in spec.bodies] == [j["parent"] for j in numbers["joints"]]
    np.testing.assert_allclose(spec.option.gravity, numbers["gravity"])
    assert spec.option.dt == numbers["time_step"]
    for b in spec.bodies:
        said = numbers["body_params"][b.name]
        assert (b.inertial.mass, bool(b.gravity)) == (said["mass"], said["gravity"])
        np.testing.assert_allclose(b.inertial.com, said["com"], atol=1e-12)
        np.testing.assert_allclose(b.inertial.inertia, said["inertia"], rtol=1e-9, atol=1e-12)


def pose_of(numbers) -> np.ndarray:
    return frame(numbers[:3], matrix(numbers[3:]))


@needs_corpus
@each_model
def test_corpus_joints(path):
    spec, numbers = corpus_model(path), oracle(path)
    for b, said in zip(spec.bodies, numbers["joints"], strict=True):
        j = b.joint
        P, CC = pose_of(said["transform_parent"]), pose_of(said["transform_child"])
        assert JOINT_TYPES[j.type].nv == said["v"][1]
        if said.get("fixed"):
            assert j.type == "fixed"
            continue
        assert j.type == joints.TYPES[said["type"]].type
        assert j.actuator == ("passive" if said["type"] in ("free", "weld") else said["actuator"])
        merged = j.type in ("free", "fixed")
        same_pose(placed(b), P @ np.linalg.inv(CC) if merged else P, 1e-9)
        same_pose(placed(j), np.eye(4) if merged else CC, 1e-9)
        n = said["v"][1]
        swap = [3, 4, 5, 0, 1, 2] if j.type == "free" else list(range(n))
        for name in ("damping", "stiffness"):
            ours = getattr(j, name)
            np.testing.assert_array_equal(np.zeros(n) if ours is None else ours, np.array(said.get(name, [0.0] * n))[swap])
        friction = np.zeros(n) if j.friction is None else np.nan_to_num(j.friction)
        np.testing.assert_array_equal(friction, said.get("friction", [0.0] * n))
        rest = np.array(said.get("rest", [0.0] * n))
        if j.spring_ref is None:
            assert j.stiffness is None
        elif j.type == "ball":
            np.testing.assert_allclose(matrix(j.spring_ref), exp(rest), atol=1e-12)
        elif j.type == "free":
            np.testing.assert_allclose(j.spring_ref[:3], rest[3:])
            np.testing.assert_allclose(matrix(j.spring_ref[3:]), exp(rest[:3]), atol=1e-12)
        else:
            np.testing.assert_array_equal(j.spring_ref, rest)
        for what in ("position", "velocity", "force"):
            ours, theirs = getattr(j, f"{what}_range"), said.get(f"{what}_limit")
            assert (ours is None) == (theirs is None)
            if theirs is not None:
                bounds = [(-np.inf if low is None else low, np.inf if high is None else high) for low, high in theirs]
                np.testing.assert_array_equal(ours, bounds)
        for name, row in (("axis", 0), ("axis2", 1)):
            if name in said and said["type"] not in ("planar", "translational2d"):
                np.testing.assert_allclose(j.params["axes"][row], said[name], atol=1e-12)
        if "pitch" in said:
            np.testing.assert_allclose(j.params["pitch"], said["pitch"] / (2 * np.pi))


@needs_corpus
@each_model
def test_corpus_start(path):
    """Poses and velocities of all bodies at q0 and v0."""
    spec, state, h = corpus_model(path), oracle(path)["states"][0], 1e-5
    now, before, after = poses(spec), poses(spec, -h), poses(spec, h)
    for name, said in state["body_pose"].items():
        same_pose(now[name], pose_of(said), 1e-9)
        rate = (after[name] - before[name]) / (2 * h)
        np.testing.assert_allclose(rate[:3, 3], state["body_velocity"][name][:3], atol=1e-7)
        spin = rate[:3, :3] @ now[name][:3, :3].T
        np.testing.assert_allclose(spin[[2, 0, 1], [1, 2, 0]], state["body_velocity"][name][3:], atol=1e-7)


@needs_corpus
def test_corpus_bad_files_are_refused():
    root = corpus()
    listed = json.loads((root / "oracles" / "skel" / "bad.json").read_text())
    assert {root / f for f in listed} == set((root / "models" / "skel" / "bad").glob("*.skel"))
    for file, entry in listed.items():
        with pytest.raises(ParseError) as caught:
            parse(root / file)
        text = str(caught.value).removeprefix(str(root / file))
        assert text.startswith(":"), text  # a line
        for word in entry["message_should_mention"]:
            assert word in text, (file, text)


# ---- hostile input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inside",
    [
        body_text(transformation((1e308, 1e308, 1e308, 1, 1, 1))) + joint_text("revolute", AXIS + transformation((1e308, 0, 0, 1, 2, 3))),
        body_text() + joint_text("ball", "<init_pos>1e308 1e308 0</init_pos>"),
        "<immobile>1</immobile>" + body_text() + joint_text("ball", "<init_pos>1e200 1e200 0</init_pos>"),
        body_text(f"<inertia><mass>1e300</mass><offset>1e200 0 0</offset></inertia>{shape(BOX)}") + joint_text(),
        body_text(f"<inertia/>{shape('<sphere><radius>1e200</radius></sphere>')}") + joint_text(),
        body_text(f"<inertia/>{shape('<sphere><radius>1e-200</radius></sphere>')}") + joint_text(),
    ],
)
def test_numbers_beyond_calculation_are_refused(inside):
    text = refused(inside)
    assert "too large" in text or "volume" in text


JUNK = ["", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "-1", "0", "1 2 3", "1 2 3 4 5 6", "0 0 0", "abc", "1e400", "true", "world",
        "9" * 400, "\u00b2", "1_0", "None", "zyx", "free", "arbitrary", "a" * 300]  # fmt: skip


@cache
def sources() -> list[str]:
    return [p.read_text(encoding="utf-8-sig") for p in [xsim.models.path(n) for n in BUNDLED] + models("skel") if p.stat().st_size < 30_000]


def mutated(text: str, rng: random.Random) -> str:
    root = etree.fromstring(text.encode())
    for _ in range(rng.choice([1, 1, 2, 5])):
        nodes = [n for n in root.iter() if isinstance(n.tag, str) and n is not root]
        if not nodes:
            break
        node, action = rng.choice(nodes), rng.randrange(8)
        if action == 0:
            node.getparent().remove(node)
        elif action == 1:
            node.getparent().insert(rng.randrange(3), etree.fromstring(etree.tostring(node)))
        elif action == 2:
            other = rng.choice(nodes)
            node.tag, other.tag = other.tag, node.tag
        elif action == 3:
            other = rng.choice(nodes)
            if node not in other.iterancestors() and node is not other:
                other.append(node)
        elif action == 4 and node.attrib:
            del node.attrib[rng.choice(list(node.attrib))]
        elif action == 5 and node.attrib:
            node.set(rng.choice(list(node.attrib)), rng.choice(JUNK))
        else:
            node.text = rng.choice([*JUNK, (node.text or "") + " 1", (node.text or "").strip()[:-1]])
    out = etree.tostring(root).decode()
    return out[: rng.randrange(len(out))] if rng.random() < 0.05 else out


def assert_sound(spec) -> None:
    for i, b in enumerate(spec.bodies):
        j = b.joint
        assert -1 <= b.parent < i
        numbers = [b.pos, b.quat, j.pos, j.quat, j.q0, j.v0, j.spring_ref, j.damping, j.stiffness, *j.params.values(), b.inertial.com,
                   b.inertial.inertia, b.inertial.mass]  # fmt: skip
        numbers += [x for g in b.geoms for x in (g.pos, g.quat, g.size, g.points, g.rgba)]
        assert all(np.isfinite(x).all() for x in numbers if x is not None)
        assert not any(np.isnan(r).any() for r in (j.position_range, j.velocity_range, j.force_range) if r is not None)
        width = JOINT_TYPES[j.type]
        for vector, n in ((j.q0, width.nq), (j.v0, width.nv), (j.damping, width.nv), (j.spring_ref, width.nq), (j.friction, width.nv)):
            assert vector is None or vector.shape == (n,)
        np.testing.assert_allclose([np.linalg.norm(q) for q in (b.quat, j.quat)], 1, atol=1e-9)


def check_mutated(rng: random.Random) -> None:
    texts = sources()
    text = mutated(rng.choice(texts), rng)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnsupportedWarning)
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        try:
            spec = parse_text(text, "skel")
        except ParseError:
            return
    assert_sound(spec)


@pytest.mark.parametrize("seeds", mutations.SEEDS, ids=mutations.IDS)
def test_mutated_files_are_read_or_refused(seeds):
    mutations.check_each(seeds, check_mutated)
