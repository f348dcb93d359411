"""The SDFormat reader: frames, scopes, versions, includes, inertia, joints, loops, refusals; the specs against the engine's numbers."""

from __future__ import annotations

import copy
import math
import random
import time
import warnings
from dataclasses import replace
from pathlib import Path

import mutations
import numpy as np
import pytest
from corpus import corpus, models, needs_corpus, oracle
from lxml import etree

import xsim.models
from xsim.io import ParseError, SuspiciousInputWarning, UnsupportedWarning, parse, parse_text
from xsim.io import sdf as reader
from xsim.io.sdf import geometry, joints, links, structure
from xsim.io.sdf.geometry import _SURFACE, extrusion
from xsim.io.solids import tensor
from xsim.io.tree import Joint, Link, assemble
from xsim.joints.types import JOINT_TYPES
from xsim.poses import Pose, quat_about, quat_conj, quat_exp, quat_mul, quat_rpy, rotate, rotation_matrix
from xsim.spec import InertialSpec, JointSpec

BUNDLED = [xsim.models.path(name) for name in xsim.models.names() if xsim.models.path(name).parent.name == "sdf"]
MASS = "<inertial><mass>1</mass><inertia><ixx>0.01</ixx><iyy>0.01</iyy><izz>0.01</izz></inertia></inertial>"
BALL = "<geometry><sphere><radius>0.1</radius></sphere></geometry>"
AXIS = "<axis><xyz>0 0 1</xyz></axis>"


def sdf(inside: str, version="1.11", attributes: str = "") -> str:
    return f'<sdf version="{version}"><model name="m" {attributes}>\n{inside}\n</model></sdf>'


def world(inside: str, version="1.11") -> str:
    return f'<sdf version="{version}"><world name="w">\n{inside}\n</world></sdf>'


def read(inside: str, version="1.11", attributes: str = "", **options):
    return parse_text(sdf(inside, version, attributes), "sdf", file="m.sdf", **options)


def read_world(inside: str, version="1.11", **options):
    return parse_text(world(inside, version), "sdf", file="m.sdf", **options)


def refused(inside: str, *words: str, version="1.11", attributes: str = "", **options) -> None:
    document = inside if inside.startswith(("<sdf", "<model", "<robot")) else sdf(inside, version, attributes)
    with pytest.raises(ParseError) as caught:
        parse_text(document, "sdf", file="m.sdf", **options)
    for word in ("m.sdf:", *words):
        assert word in str(caught.value), str(caught.value)


def overlooked(document: str, line: int, problem: str, *meanings: str):
    """The spec of a document that breaks rules: one warning names each, and what is assumed; strict reading refuses it."""
    with pytest.warns(SuspiciousInputWarning) as caught:
        spec = parse_text(document, "sdf", file="m.sdf")
    (message,) = [str(warning.message) for warning in caught]
    lines = [text for text in message.split("\n") if problem in text]
    assert [text.partition(": ")[0] for text in lines] == [f"m.sdf:{line}"] * len(meanings)
    assert [text.rpartition("; assumed: ")[2] for text in lines] == [*meanings], message
    refused(document, f"m.sdf:{line}: ", problem, strict=True)
    return spec


def joint(kind: str, inside: str = "", parent="a", child="b", name="j") -> str:
    return f'<joint name="{name}" type="{kind}"><parent>{parent}</parent><child>{child}</child>{inside}</joint>'


def pair(inside: str, version="1.11", links='<link name="a"/><link name="b"/>'):
    """The JointSpec of the joint j between the links a and b."""
    spec = read(links + inside, version)
    (found,) = (b.joint for b in spec.bodies if b.joint.name == "j")
    return found


def quiet(source, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SuspiciousInputWarning)
        warnings.simplefilter("ignore", UnsupportedWarning)
        return parse_text(source, "sdf", **options) if isinstance(source, (str, bytes)) else parse(source, **options)


def by_name(spec) -> dict:
    return {body.name: body for body in spec.bodies}


# ---- kinematics of a spec, written out for these tests -------------------------------------------------------------------------


def motion(spec, q) -> Pose:
    """X_joint(q) of a joint: a chain of elementary motions."""
    kind, at, pose = JOINT_TYPES[spec.type], 0, Pose()
    for part in kind.chain:
        if part.kind == "ball":
            pose, at = pose @ Pose(q[at : at + 4], np.zeros(3)), at + 4
            continue
        axis = spec.params["axes"][part.axis] if isinstance(part.axis, int) else np.array(part.axis)
        x = q[at]
        turn = quat_about(axis, x) if part.kind in ("hinge", "screw") else Pose().quat
        along = {"hinge": 0.0, "slide": x, "screw": x * spec.params["pitch"][0] if part.kind == "screw" else 0.0}[part.kind]
        pose, at = pose @ Pose(turn, along * axis), at + 1
    return pose


def poses(spec, q=None) -> dict[str, Pose]:
    """World poses of the bodies; q: by joint name, where it is not the start."""
    q, found = q or {}, []
    for body in spec.bodies:
        start = body.joint.q0 if body.joint.q0 is not None else JOINT_TYPES[body.joint.type].neutral
        joint = motion(body.joint, np.asarray(q.get(body.joint.name, start), float))
        pose = Pose(body.quat, body.pos) @ joint @ Pose(body.joint.quat, body.joint.pos).inverse()
        found.append(found[body.parent] @ pose if body.parent >= 0 else pose)
    return {body.name: pose for body, pose in zip(spec.bodies, found, strict=True)}


def same(pose: Pose, pos, quat=(1, 0, 0, 0), tolerance=1e-12) -> None:
    np.testing.assert_allclose(pose.pos, pos, atol=tolerance)
    np.testing.assert_allclose(rotation_matrix(pose.quat), rotation_matrix(quat), atol=tolerance)


# ---- documents and versions ----------------------------------------------------------------------------------------------------


def test_root_holds_a_version_and_one_model():
    refused('<sdf><model name="m"><link name="a"/></model></sdf>', "version", "is missing")
    refused('<sdf version="1.13"><model name="m"/></sdf>', "unknown version '1.13'", "1.12")
    refused('<sdf version="1.3"><model name="m"/></sdf>', "unknown version '1.3'")
    refused("<robot/>", "must be <sdf>")
    refused('<sdf version="1.9"/>', "holds no model")
    refused('<sdf version="1.9"><model name="a"><link name="l"/></model><model name="b"><link name="l"/></model></sdf>', 'name="b"')
    refused('<sdf version="1.9"><world name="w"/><model name="b"><link name="l"/></model></sdf>', "one model or worlds")
    refused('<sdf version="1.9"><world/></sdf>', "'name' is missing")
    refused('<sdf version="1.9"><model><link name="l"/></model></sdf>', "'name' is missing")
    assert parse_text('<sdf version=" 1.9 "><model name="m"><link name="l"/></model></sdf>').name == "m"


def test_several_worlds_say_that_the_first_is_read():
    text = '<sdf version="1.9"><world name="w"><model name="m"><link name="l"/></model></world><world name="v"><junk/></world></sdf>'
    with pytest.warns(UnsupportedWarning, match="only the first world") as caught:
        spec = parse_text(text)
    assert spec.name == "w" and len(spec.bodies) == 1 and len(caught) == 1


def test_a_bare_model_and_an_empty_model_load():
    with pytest.warns(SuspiciousInputWarning, match="no <sdf version"):
        assert parse_text('<model name="empty" />').bodies == ()
    assert parse_text('<sdf version="1.9"><model name="empty"/></sdf>').bodies == ()
    refused('<frame name="f"/>', "holds no link")
    refused('<link name="l"/><model name="n"/>', 'name="n"', "holds no link")
    assert len(read('<link name="l"/><model name="n"><static>true</static></model>').bodies) == 1


def test_what_has_no_mechanics_is_skipped_without_a_word():
    inside = (
        '<link name="a"><sensor name="s" type="imu"><pose>bad</pose></sensor><light name="l"/></link>'
        '<plugin name="p"><link name="x"/></plugin>'
    )
    assert [b.name for b in read(inside).bodies] == ["a"]
    spec = read_world('<gui/><scene/><light name="l"/><actor name="x"/><plugin/><wind/><model name="m"><link name="a"/></model>')
    assert [b.name for b in spec.bodies] == ["m::a"]


def test_elements_with_a_prefix_are_other_tools_data():
    ns = 'xmlns:tool="urn:x"'
    for prefix in (ns, ""):  # an undeclared prefix as well
        text = (
            f'<sdf version="1.9" {prefix}><model name="m" tool:x="1"><tool:link name="no"/><link name="a"><pose>1 <tool:y/>2 3 0 0 0</pose>'
        )
        spec = parse_text(text + "<tool:inertial/></link></model></sdf>")
        assert [b.name for b in spec.bodies] == ["a"]
        np.testing.assert_array_equal(spec.bodies[0].joint.q0[:3], [1, 2, 3])


def test_unknown_elements_warn_and_strict_refuses_them():
    inside = '<link name="a"><wheels>4</wheels></link>'
    with pytest.warns(UnsupportedWarning, match='m.sdf:2: <wheels> in <link name="a">'):
        read(inside)
    with pytest.raises(ParseError, match="wheels"):
        read(inside, strict=True)
    with pytest.warns(UnsupportedWarning, match="attribute 'colour'"):
        read('<link name="a" colour="red"/>')
    with pytest.warns(UnsupportedWarning, match="<gripper"):
        read('<link name="a"/><gripper name="g"/>')
    for inner in ("<state><model/></state>", "<population/>"):  # these would add models or move them
        with pytest.warns(UnsupportedWarning, match="not read"):
            read_world(f'<model name="m"><link name="a"/></model>{inner}')


def test_switches_that_would_change_the_motion_are_reported():
    for inside in ("<kinematic>1</kinematic>", "<enable_wind>True</enable_wind>",
                   "<velocity_decay><linear>0.1</linear></velocity_decay>"):  # fmt: skip
        with pytest.warns(UnsupportedWarning, match='link name="a"'):
            read(f'<link name="a">{inside}</link>')
    read(
        '<link name="a"><kinematic>0</kinematic><self_collide>false</self_collide><velocity_decay>'
        "<linear>0</linear></velocity_decay></link>"
    )
    refused('<link name="a"><kinematic>maybe</kinematic></link>', "truth value", "0, 1, true, false")


def tags(*names: str) -> str:
    return "".join(f"<{name}><x>1</x></{name}>" for name in names)


def test_content_without_effect_is_read_without_a_word():
    """Warnings are errors here: whatever of this were not known would be one."""
    read_world(
        tags("scene", "audio", "magnetic_field", "atmosphere", "road", "spherical_coordinates", "gui")
        + '<physics name="p" type="dart">'
        + tags("max_contacts", "real_time_factor", "real_time_update_rate", "dart", "simbody", "bullet") + "</physics>"
        + '<model name="m"><allow_auto_disable>0</allow_auto_disable><link name="a"/></model>'
    )  # fmt: skip
    mesh = f'<mesh optimization="convex_hull"><uri>a</uri>{tags("convex_decomposition")}</mesh>'
    field = f"<heightmap><uri>a</uri>{tags('texture', 'blend', 'use_terrain_paging', 'sampling')}</heightmap>"
    material = tags("script", "shader", "lighting", "ambient", "specular", "emissive", "render_order", "double_sided", "pbr", "shininess")
    link = tags("must_be_base_link", "projector", "audio_sink", "audio_source", "battery", "particle_emitter", "plugin")
    read(
        f'<link name="a">{link}<inertial><auto_inertia_params><x/></auto_inertia_params></inertial>'
        f'<collision name="c">{tags("laser_retro", "max_contacts", "auto_inertia_params")}<geometry>{mesh}</geometry></collision>'
        f'<visual name="v">{tags("cast_shadows", "laser_retro", "meta", "visibility_flags", "plugin")}<geometry>{field}</geometry>'
        f"<material>{material}</material></visual></link>"
        + joint("fixed", tags("sensor", "plugin") + "<physics><provide_feedback>1</provide_feedback></physics>", "world", "a")
    )  # fmt: skip


def test_joint_settings_of_an_engine_are_reported():
    with pytest.warns(UnsupportedWarning, match="<ode> in <physics>"):
        pair(joint("revolute", AXIS + "<physics><ode><max_force>1</max_force></ode></physics>"))
    with pytest.warns(UnsupportedWarning, match="<initial_position>"):
        pair(joint("revolute", "<axis><initial_position>1</initial_position></axis>"))
    with pytest.warns(UnsupportedWarning, match='<frame name="f"> in <joint'):
        pair(joint("revolute", '<frame name="f"/>' + AXIS), "1.6")


# ---- names ---------------------------------------------------------------------------------------------------------------------


def test_namesakes_are_renamed_after_their_kind():
    names = (
        '<link name="x"/><link name="b"/>' + joint("fixed", parent="b", child="x", name="x") + '<frame name="x"/><link name="x_joint0"/>'
    )
    with pytest.warns(SuspiciousInputWarning, match="'x_joint'"):
        spec = read(names, "1.6")
    assert by_name(spec)["x"].joint.name == "x_joint" and {"x_frame"} <= {f[0] for f in spec.frames}
    with pytest.warns(SuspiciousInputWarning, match="'x_joint0'"):
        spec = read('<link name="x"/><link name="x_joint"/>' + joint("fixed", parent="x_joint", child="x", name="x"), "1.6")
    assert by_name(spec)["x"].joint.name == "x_joint0"
    with pytest.warns(SuspiciousInputWarning, match="'x_link'"):  # the ends of an old joint are links, never the joint itself
        spec = read(joint("fixed", parent="b", child="x", name="x") + '<link name="x"/><link name="b"/>', "1.6")
    assert by_name(spec)["x_link"].joint.name == "x"
    spec = overlooked(sdf(names, "1.7"), 2, "the name 'x' is taken by <link", "it is called 'x_frame'", "it is called 'x_joint'")
    assert by_name(spec)["x"].joint.name == "x_joint" and {"x_frame"} <= {f[0] for f in spec.frames}
    refused('<link name="x"/><link name="x"/>', "names of siblings must differ", version="1.4")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused('<frame name="x"/><link name="x"/><link name="x"/>', "names of siblings must differ", version="1.4")


def test_second_models_of_one_name_are_renamed():
    """What names them means the first one."""
    models = '<model name="m"><link name="a"/></model>\n<model name="m"><link name="a"/></model>' + joint("fixed", "", "world", "m::a")
    spec = overlooked(world(models), 3, "the name 'm' is taken", "it is called 'm_model'")
    assert {b.name: b.joint.type for b in spec.bodies} == {"m::a": "fixed", "m_model::a": "free"}


def test_link_called_world():
    """As in Gazebo and Bullet: a body with a mass, the ground without ``<inertial>``."""
    document = sdf('<link name="world">{}</link><link name="a"/>' + joint("revolute", AXIS, "world", "a"))
    problem = "the name 'world' is reserved"
    spec = overlooked(document.format(""), 2, problem, "a link that is fixed to the world")
    assert [(b.name, b.parent, b.joint.type) for b in spec.bodies] == [("world", -1, "fixed"), ("a", 0, "hinge")]
    spec = overlooked(document.format(MASS), 2, problem, "a link of the model")
    assert [(b.name, b.parent, b.joint.type) for b in spec.bodies] == [("world", -1, "free"), ("a", 0, "hinge")]


@pytest.mark.parametrize("name", ["world", "__model__", "__x__", "", " "])
def test_reserved_and_empty_names_are_refused(name):
    if name != "world":
        refused(f'<link name="{name}"/>', "name")
    refused(f'<link name="a"/><frame name="{name}"/>', "name")
    if name.strip():
        refused(f'<link name="a"><collision name="{name}">{BALL}</collision></link>', "reserved")


def test_scope_separators_in_names_are_refused_from_1_8():
    refused('<link name="a::b"/>', "'::'", version="1.8")
    assert [b.name for b in read('<link name="a::b"/>', "1.7").bodies] == ["a::b"]


def test_shapes_of_one_link_have_names_of_their_own_and_links_share_them():
    two = f'<collision name="c">{BALL}</collision><visual name="c">{BALL}</visual>'
    assert len(read(f'<link name="a">{two}</link><link name="b">{two}</link>').bodies[1].geoms) == 2
    same = f'<link name="a"><visual name="c">{BALL}</visual>\n<visual name="c">{BALL}</visual></link>'
    assert [g.name for g in overlooked(sdf(same), 3, "siblings must differ", "two shapes of one name").bodies[0].geoms] == ["c", "c"]
    refused(f'<link name="a"><collision>{BALL}</collision></link>', "'name' is missing")


# ---- poses ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pose", "quat"),
    [
        ("<pose>1 2 3 0.1 0.2 0.3</pose>", quat_rpy(0.1, 0.2, 0.3)),
        ('<pose degrees="TRUE">1 2 3 10 20 30</pose>', quat_rpy(*np.deg2rad([10, 20, 30]))),
        ('<pose rotation_format="euler_rpy">1 2 3 0.1 0.2 0.3</pose>', quat_rpy(0.1, 0.2, 0.3)),
        ('<pose rotation_format="quat_xyzw"> 1 2 3\n 0 0 2 2</pose>', (0.5**0.5, 0, 0, 0.5**0.5)),
        ('<pose rotation_format="quat_xyzw">1 2 3 0 0 1e-200 1e-200</pose>', (0.5**0.5, 0, 0, 0.5**0.5)),
    ],
)
def test_pose_formats(pose, quat):
    same(poses(read(f'<link name="a">{pose}</link>'))["a"], (1, 2, 3), quat)


@pytest.mark.parametrize(
    ("pose", "words"),
    [
        ("<pose>1 2 3</pose>", "found 3 numbers"),
        ("<pose>1 2 3 0 0 inf</pose>", "not a finite number"),
        ('<pose rotation_format="quat_xyzw">0 0 0 0 0 0</pose>', "allowed: 7"),
        ('<pose rotation_format="quat_xyzw">0 0 0 0 0 0 0</pose>', "quaternion is zero"),
        ('<pose rotation_format="quat_xyzw" degrees="true"/>', "no degrees"),
        ('<pose rotation_format="wxyz"/>', "quat_xyzw"),
        ('<pose degrees="yes"/>', "truth value"),
        ("<pose/><pose/>", "second <pose>"),
        ("<pose>1e308 0 0 0 0 0</pose>", "too large"),
    ],
)
def test_bad_poses_are_refused(pose, words):
    outer = "<pose>1.7e308 0 0 0 0 0</pose>" if "1e308" in pose else ""
    refused(f'{outer}<link name="a">{pose}</link>', words)


def test_poses_start_at_their_default_frames():
    inside = (
        "<pose>0 0 1 0 0 0</pose>"
        '<link name="a"><pose>1 0 0 0 0 1.5</pose></link>'
        '<link name="b"><pose relative_to="a">1 0 0 0 0 0</pose></link>'
        '<frame name="f" attached_to="b"><pose>0 0 2 0 0 0</pose></frame>'
        '<frame name="g"><pose relative_to="">0 3 0 0 0 0</pose></frame>'
        '<link name="c"><pose relative_to="f"/></link>'
        '<link name="d"><pose relative_to="n::e">0 1 0 0 0 0</pose></link>'
        '<model name="n"><pose relative_to="g">1 0 0 0 0 0</pose><link name="e"/></model>'
    )
    found = poses(read(inside))
    arm = np.array([math.cos(1.5), math.sin(1.5), 0])
    same(found["a"], (1, 0, 1), quat_rpy(0, 0, 1.5))
    same(found["b"], np.array([1, 0, 1]) + arm, quat_rpy(0, 0, 1.5))
    same(found["c"], np.array([1, 0, 3]) + arm, quat_rpy(0, 0, 1.5))
    same(found["n::e"], (1, 3, 1))
    same(found["d"], (1, 4, 1))


def test_frames_of_the_spec_move_with_their_bodies():
    inside = (
        '<link name="a"/><link name="b"><pose>1 0 0 0 0 0</pose></link>' + joint("revolute", AXIS)
        + '<frame name="f" attached_to="b"><pose relative_to="a">0 2 0 0 0 0</pose></frame><frame name="g" attached_to="j"/>'
    )  # fmt: skip
    frames = {name: (body, pos) for name, body, pos, _ in read(inside).frames}
    assert set(frames) == {"f", "g", "__model__"}
    assert frames["f"][0] == frames["g"][0] == 1 and frames["__model__"][0] == 0
    np.testing.assert_allclose(frames["f"][1], [-1, 2, 0])
    spec = read_world(
        '<frame name="here"><pose>1 0 0 0 0 0</pose></frame><frame name="f" attached_to="m"/><model name="m"><link name="a"/></model>'
    )
    frames = {name: (body, pos) for name, body, pos, _ in spec.frames}
    assert frames["here"][0] == -1 and frames["f"][0] == frames["m::f"][0] == 0  # Drake names it in the model of its body


def test_old_frame_attribute_is_relative_to():
    links = '<link name="a"><pose>1 0 0 0 0 0</pose></link><link name="b"><pose frame="a">1 0 0 0 0 0</pose></link>'
    same(poses(read(links, "1.6"))["b"], (2, 0, 0))
    with pytest.warns(UnsupportedWarning, match="attribute 'frame'"):
        same(poses(read(links, "1.7"))["b"], (1, 0, 0))
    refused(links.replace('frame="a"', 'frame="a" relative_to="b"'), "differs from relative_to", version="1.5")
    with pytest.warns(UnsupportedWarning, match='<frame name="f"> in <link name="a">'):  # a frame in a link never had a meaning
        read('<link name="a"><frame name="f"/></link>', "1.6")


def test_placement_frame_moves_the_model():
    inside = '<pose>0 0 10 0 0 0</pose><link name="a"><pose>1 0 0 0 0 0</pose></link><link name="b"><pose>0 2 0 0 0 1</pose></link>'
    found = poses(read(inside, attributes='placement_frame="b"'))
    same(found["b"], (0, 0, 10))
    same(found["a"], np.array([0, 0, 10]) + rotate(quat_rpy(0, 0, -1), [1, -2, 0]), quat_rpy(0, 0, -1))
    same(poses(read(inside, attributes='placement_frame="__model__"'))["b"], (0, 2, 10), quat_rpy(0, 0, 1))
    refused(inside, "no frame 'x'", attributes='placement_frame="x"')


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ('<link name="a"><pose relative_to="a"/></link>', "cycle"),
        ('<link name="a"><pose relative_to="b"/></link><link name="b"><pose relative_to="a"/></link>', "cycle"),
        ('<link name="a"/><frame name="f" attached_to="g"/><frame name="g" attached_to="f"/>', "attached_to form a cycle"),
        ('<link name="a"/><link name="b"/>' + joint("fixed", '<pose relative_to="j"/>'), "cycle"),
        ('<link name="a"/><link name="b"/>' + joint("fixed", child="j"), "names itself"),
        ('<link name="a"><pose relative_to="world"/></link>', "no frame 'world'"),
        ('<link name="a"><pose relative_to="__root__"/></link>', "no frame '__root__'"),
        ('<link name="a"/><frame name="f" attached_to="world"/>', "no frame 'world'"),
        ('<link name="a"/><model name="n"><link name="b"><pose relative_to="a"/></link></model>', "no frame 'a'"),
        ('<link name="a"/><model name="n"><link name="b"><pose relative_to="m::a"/></link></model>', "no frame 'm::a'"),
        ('<link name="a"><pose relative_to="a::b"/></link>', "no frame 'a::b'"),
        ('<pose relative_to="a"/><link name="a"/>', "nothing around it"),
        ('<link name="a"><inertial><pose relative_to="a"/></inertial></link>', "placed in its link"),
        ('<link name="a"/><link name="b"/>' + joint("revolute", '<axis><xyz expressed_in="q">1 0 0</xyz></axis>'), "expressed_in"),
    ],
)  # fmt: skip
def test_bad_references_are_refused(inside, words):
    refused(inside, words)


def test_placement_in_a_cycle_is_refused():
    refused(
        '<link name="a"><pose relative_to="b"/></link><link name="b"><pose relative_to="a"/></link>',
        "cycle",
        attributes='placement_frame="a"',
    )


def test_world_level_elements_name_what_is_inside():
    spec = read_world(
        '<frame name="f"><pose relative_to="m::a">1 0 0 0 0 0</pose></frame><frame name="w2" attached_to="world"/>'
        '<model name="m"><pose relative_to="world">0 0 1 0 0 0</pose><link name="a"/></model>'
        '<model name="n"><pose relative_to="f">1 0 0 0 0 0</pose><link name="a"/></model>'
        + joint("revolute", AXIS, "m", "n::a")
    )  # fmt: skip
    assert [(b.name, b.parent, b.joint.name, b.joint.type) for b in spec.bodies] == [
        ("m::a", -1, "floating:m::a", "free"), ("n::a", 0, "j", "hinge"),
    ]  # fmt: skip
    same(poses(spec)["n::a"], (2, 0, 1))


def test_canonical_link_carries_the_model_frame():
    links = '<link name="a"/><model name="n"><link name="b"/></model>'
    frames = lambda *a, **k: {name: body for name, body, *_ in read(*a, **k).frames}  # noqa: E731
    names = [b.name for b in read(links).bodies]
    assert names == ["n::b", "a"]  # links of nested models come first
    assert frames(links)["__model__"] == names.index("a")
    assert frames(links, attributes='canonical_link="n::b"')["__model__"] == names.index("n::b")
    assert frames('<model name="n"><link name="b"/></model>')["__model__"] == 0
    refused(links, "canonical_link", "no frame 'c'", attributes='canonical_link="c"')
    refused(links + '<frame name="f"/>', "is no link", attributes='canonical_link="f"')


# ---- flat names of 1.7 and before ----------------------------------------------------------------------------------------------

FLAT = (
    '<link name="base"/><frame name="A::__model__" attached_to="A::k"><pose relative_to="__model__">1 0 0 0 0 1</pose></frame>'
    '<link name="A::l"><pose relative_to="A::__model__">0 1 0 0 0 0</pose></link><link name="A::k">'
    '<pose relative_to="A::l">1 0 0 0 0 0</pose></link>'
    '<joint name="A::j" type="revolute"><parent>A::l</parent><child>A::k</child><axis>'
    '<xyz expressed_in="A::__model__">0 1 0</xyz></axis></joint>'
    '<frame name="A::B::__model__" attached_to="A::B::t"><pose relative_to="A::k">0 0 1 0 0 0</pose></frame>'
    '<link name="A::B::t"><pose relative_to="A::B::__model__"/></link>'
)
NESTED = (
    '<link name="base"/><model name="A" canonical_link="k"><pose>1 0 0 0 0 1</pose>'
    '<link name="l"><pose>0 1 0 0 0 0</pose></link><link name="k"><pose relative_to="l">1 0 0 0 0 0</pose></link>'
    '<joint name="j" type="revolute"><parent>l</parent><child>k</child><axis><xyz expressed_in="__model__">0 1 0</xyz></axis></joint>'
    '<model name="B"><pose relative_to="k">0 0 1 0 0 0</pose><link name="t"/></model></model>'
)


def numbers(spec):
    return [(b.name, b.parent, b.joint.name, b.pos, b.quat, b.joint.pos, b.joint.q0, b.joint.params) for b in spec.bodies]


def test_flat_names_unfold_to_nested_models():
    flat, nested = read(FLAT, "1.7"), read(NESTED, "1.8")
    assert repr(numbers(flat)) == repr(numbers(nested))
    assert {f[0] for f in flat.frames} == {"__model__", "A::__model__", "A::B::__model__"}
    assert repr(sorted(flat.frames, key=lambda f: f[0])) == repr(sorted(nested.frames, key=lambda f: f[0]))
    outer = '<link name="l"><pose>5 0 0 0 0 0</pose></link>' + FLAT + joint("fixed", "", "l", "A::l", "A::weld")  # l: not A's
    assert shape_of(read(outer, "1.6"))["A::l"] == ("l", "A::weld", False)
    refused(FLAT + '<frame name="A::__model__"/>', "the name is taken", version="1.7")
    assert [
        b.name for b in read('<link name="b"/><joint name="x::y" type="fixed"><parent>world</parent><child>b</child></joint>', "1.7").bodies
    ]


# ---- includes ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """part.sdf (a model of two links, drawn 1 m up) and old/ (a model folder with two versions)."""
    (tmp_path / "part.sdf").write_text(sdf(
        '<pose>0 0 1 0 0 0</pose><link name="l"/><link name="k"><pose>1 0 0 0 0 0</pose></link>'
        + joint("revolute", AXIS, "l", "k"), "1.8"))  # fmt: skip
    old = tmp_path / "models" / "old"
    old.mkdir(parents=True)
    (old / "model.config").write_text(
        '<model><sdf version="1.4">a.sdf</sdf><sdf version="1.6"> b.sdf </sdf><sdf version="9.0">c.sdf</sdf></model>'
    )
    (old / "a.sdf").write_text(sdf('<link name="four"/>', "1.4"))
    (old / "b.sdf").write_text(sdf('<link name="six"/>', "1.6"))
    return tmp_path


def included(folder, inside: str, version="1.11", in_world=False, **options):
    path = folder / "top.sdf"
    path.write_text((world if in_world else sdf)(inside, version))
    return parse(path, **options)


def test_include_pose_name_and_static_replace_the_models_own(folder):
    spec = included(folder, "<include><uri>part.sdf</uri></include>", in_world=True)
    assert [b.name for b in spec.bodies] == ["m::l", "m::k"]
    same(poses(spec)["m::k"], (1, 0, 1))
    spec = included(folder, '<include><uri>part.sdf</uri><name>n</name><pose degrees="true">0 0 5 0 0 90</pose></include>', in_world=True)
    same(poses(spec)["n::l"], (0, 0, 5), quat_rpy(0, 0, math.pi / 2))  # replaced, not composed
    spec = included(
        folder, "<include><uri>part.sdf</uri><pose>0 0 5 0 0 0</pose><placement_frame>k</placement_frame></include>", in_world=True
    )
    same(poses(spec)["m::l"], (-1, 0, 5))
    spec = included(folder, "<include><uri>part.sdf</uri><static>1</static></include>", in_world=True)
    assert [b.joint.type for b in spec.bodies] == ["fixed", "fixed"] and spec.bodies[1].joint.name == "static:m::k"
    spec = included(folder, '<link name="a"/><include><uri>part.sdf</uri><pose relative_to="a">1 0 0 0 0 0</pose></include>')
    assert [b.name for b in spec.bodies] == ["m::l", "m::k", "a"]
    with pytest.raises(ParseError, match="placement_frame.*without <pose>"):
        included(folder, "<include><uri>part.sdf</uri><placement_frame>k</placement_frame></include>", in_world=True)


def test_include_merges_contents_without_a_level(folder):
    inside = (
        '<link name="a"/><include merge="true"><uri>part.sdf</uri><pose relative_to="a">0 0 3 0 0 0</pose></include>'
        + joint("fixed", parent="a", child="l", name="weld") + '<frame name="f" attached_to="k"/>'
    )  # fmt: skip
    spec = included(folder, inside)
    assert [b.name for b in spec.bodies] == ["a", "l", "k"] and [b.joint.name for b in spec.bodies][1:] == ["weld", "j"]
    same(poses(spec)["k"], (1, 0, 3))
    assert {f[0] for f in spec.frames} == {"__model__", "f"}
    spec = included(folder, '<include merge="1"><uri>part.sdf</uri><pose>0 0 3 0 0 0</pose><placement_frame>k</placement_frame></include>')
    same(poses(spec)["l"], (-1, 0, 3))
    with pytest.raises(ParseError, match="a world holds no links"):
        included(folder, '<include merge="true"><uri>part.sdf</uri></include>', in_world=True)
    with pytest.warns(UnsupportedWarning, match="static of a merged model"):
        included(folder, '<include merge="true"><uri>part.sdf</uri><static>1</static></include>')


def test_model_frame_of_a_merged_model_is_its_own(folder):
    (folder / "arm.sdf").write_text(sdf(
        '<pose>5 0 0 0 0 0</pose><link name="l"/><link name="k"><pose relative_to="__model__">0 1 0 0 0 0</pose></link>'
        + joint("revolute", '<axis><xyz expressed_in="__model__">1 0 0</xyz></axis>', "__model__", "k", "h"),
        attributes='canonical_link="l"'))  # fmt: skip
    spec = included(folder, '<link name="a"/><include merge="true"><uri>arm.sdf</uri><pose>0 0 2 0 0 1.2</pose></include>')
    assert [(b.name, b.parent) for b in spec.bodies] == [("a", -1), ("l", -1), ("k", 1)]
    same(poses(spec)["k"], np.array([0, 0, 2]) + rotate(quat_rpy(0, 0, 1.2), [0, 1, 0]), quat_rpy(0, 0, 1.2))
    np.testing.assert_allclose(spec.bodies[2].joint.params["axes"], [[1, 0, 0]], atol=1e-12)


def test_uris_lead_to_files_and_model_folders(folder):
    def find(uri, **options):
        inside = f"<include><uri>\n {uri} </uri></include>"
        return [b.name for b in included(folder, inside, in_world=True, **options).bodies]

    paths = [folder / "models"]
    assert find("models/old") == find("model://old", paths=paths) == find("package://old", paths=paths) == ["m::six"]  # the newest known
    assert find("model://old/a.sdf", paths=paths) == find(f"file://{folder}/models/old/a.sdf") == ["m::four"]
    (folder / "models/old/d.sdf").write_text(sdf("<include><uri>model://old/b.sdf</uri></include>"))
    assert find("models/old/d.sdf") == ["m::m::six"]  # beside the folder of the naming file
    for uri, words in [("http://x.org/y", "never fetched"), ("model://none", "is not found"), ("model://../part.sdf", "names no folder"),
                       ("file://part.sdf", "not absolute"), ("models", "no model.config"), ("a" * 5000, "is not found")]:  # fmt: skip
        with pytest.raises(ParseError, match=words):
            find(uri)
    with pytest.raises(ParseError, match="relative to a file"):
        read("<include><uri>part.sdf</uri></include>")
    (folder / "models/old/model.config").write_text('<model><sdf version="7">a.sdf</sdf></model>')
    with pytest.raises(ParseError, match="no file of a version"):
        find("models/old")


def test_included_files_are_read_in_their_own_version(folder):
    old = '<link name="a"/><link name="b"><pose>0 0 0 0 0 1.5</pose></link>' + joint("revolute", "<axis><xyz>1 0 0</xyz></axis>")
    (folder / "old.sdf").write_text(sdf(old, "1.4"))
    spec = included(folder, "<include><uri>old.sdf</uri></include>")
    np.testing.assert_allclose(by_name(spec)["m::b"].joint.params["axes"], [rotate(quat_rpy(0, 0, -1.5), [1, 0, 0])], atol=1e-12)


def test_included_files_hold_one_model(folder):
    (folder / "light.sdf").write_text('<sdf version="1.9"><light name="l" type="point"/></sdf>')
    assert included(folder, '<link name="a"/><include><uri>light.sdf</uri></include>').bodies
    (folder / "world.sdf").write_text(world(""))
    with pytest.raises(ParseError, match="allowed: one model"):
        included(folder, '<link name="a"/><include><uri>world.sdf</uri></include>')
    with pytest.raises(ParseError, match="<uri> is missing"):
        included(folder, "<include/>")


@pytest.mark.slow
def test_include_cycles_and_multiplying_includes_are_refused(folder):
    (folder / "a.sdf").write_text(sdf("<include><uri>b.sdf</uri></include>"))
    (folder / "b.sdf").write_text(sdf('<link name="l"/><include><uri>a.sdf</uri></include>'))
    with pytest.raises(ParseError, match="cycle"):
        parse(folder / "a.sdf")
    (folder / "x0.sdf").write_text(sdf("".join(f'<link name="l{i}"/>' for i in range(100))))
    for n in range(1, 7):
        items = "".join(f"<include><uri>x{n - 1}.sdf</uri><name>n{i}</name></include>" for i in range(10))
        (folder / f"x{n}.sdf").write_text(sdf(items))
    start = time.perf_counter()
    with pytest.raises(ParseError, match=r"allowed: 500000 \(limits: elements\)"):
        parse(folder / "x6.sdf")
    (folder / "big.sdf").write_text(sdf('<link name="l"/>' + " " * 50_000_000))
    with pytest.raises(ParseError, match="bytes together"):
        included(folder, "".join(f"<include><uri>big.sdf</uri><name>n{i}</name></include>" for i in range(3)))
    assert time.perf_counter() - start < 60


def test_parameters_of_an_include_are_reported(folder):
    inside = '<include xmlns:experimental="e"><uri>part.sdf</uri><experimental:params><link name="l"/></experimental:params></include>'
    with pytest.warns(UnsupportedWarning, match="params"):
        included(folder, inside, in_world=True)


# ---- links and inertia ---------------------------------------------------------------------------------------------------------


def inertial(inside: str, attributes: str = "", shapes: str = ""):
    return read(f'<link name="a"><inertial {attributes}>{inside}</inertial>{shapes}</link>').bodies[0].inertial


def test_missing_parts_of_an_inertia_are_ones():
    found = read('<link name="a"/>').bodies[0].inertial
    assert found.mass == 1 and found.inertia.tolist() == [1, 1, 1, 0, 0, 0] and not found.com.any()
    found = inertial("<mass>5</mass><inertia><ixx>1.5</ixx><iyz>0.1</iyz></inertia>")
    assert found.mass == 5 and found.inertia.tolist() == [1.5, 1, 1, 0, 0, 0.1]


def test_inertia_stands_along_its_own_pose():
    six = "<ixx>0.05</ixx><iyy>0.06</iyy><izz>0.08</izz><ixy>0.006</ixy><ixz>-0.004</ixz><iyz>0.005</iyz>"
    found = inertial(f"<pose>1 2 3 0.7 -0.4 1.1</pose><mass>2</mass><inertia>{six}</inertia>")
    R = rotation_matrix(quat_rpy(0.7, -0.4, 1.1))
    np.testing.assert_allclose(tensor(found.inertia), R @ tensor([0.05, 0.06, 0.08, 0.006, -0.004, 0.005]) @ R.T, atol=1e-15)
    assert found.com.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("<mass>-1</mass>", "found -1"),
        ("<mass>inf</mass>", "finite"),
        ("<mass>1</mass><mass>1</mass>", "second <mass>"),
        ("<inertia><ixx>-1</ixx></inertia>", "moments of inertia"),
        ("<inertia><ixy>2</ixy></inertia>", "principal moments"),
        ("<inertia><ixx>1e200</ixx><iyy>1e200</iyy></inertia>", "finite"),
    ],
)
def test_inertias_that_no_body_has_are_refused(inside, words):
    refused(f'<link name="a"><inertial>{inside}</inertial></link>', 'link name="a"', words)


def test_moments_that_break_the_triangle_inequality_are_kept():
    inside = '<link name="a">\n<inertial><inertia><izz>2.1</izz></inertia></inertial></link>'
    assert overlooked(sdf(inside), 3, "triangle", "as written").bodies[0].inertial.inertia.tolist() == [1, 1, 2.1, 0, 0, 0]
    inside = inside.replace("2.1", "2.000001")  # rounding
    assert read(inside).bodies[0].inertial.inertia[2] == 2.000001


MASSLESS = f'<link name="b"><inertial>\n<mass>0</mass>{{}}</inertial><collision name="c">{BALL}</collision></link>'


def test_links_without_mass_that_are_fixed():
    problem = '<mass> in <link name="b">: found 0; allowed: numbers > 0'
    root = overlooked(sdf(MASSLESS.format("")), 3, problem, "no mass, the link is fixed to the world as in Bullet").bodies[0]
    assert (root.joint.type, root.inertial.mass, root.inertial.inertia.any()) == ("fixed", 0, False)
    static = sdf("<static>true</static>" + MASSLESS.format("<inertia><ixx>0.1</ixx><iyy>0.1</iyy><izz>0.1</izz></inertia>"))
    assert overlooked(static, 3, problem, "no mass").bodies[0].inertial.inertia.tolist() == [0.1, 0.1, 0.1, 0, 0, 0]
    spec = overlooked(sdf(MASSLESS.format("") + '<link name="a"/>' + joint("fixed")), 3, problem, "no mass")
    assert [(b.name, b.joint.type, b.inertial.mass) for b in spec.bodies] == [("a", "free", 1), ("b", "fixed", 0)]
    # Whether this one moves with the other (Drake) or holds it (Bullet), nobody can guess; nor what these joints do.
    refused(MASSLESS.format("") + '<link name="a"/>' + joint("fixed", "", "b", "a"), "m.sdf:3: " + problem)
    for kind in ("revolute", "prismatic"):
        refused(MASSLESS.format("") + '<link name="a"/>' + joint(kind, AXIS), "m.sdf:3: " + problem)


def test_fluid_added_mass_is_said_to_be_ignored():
    with pytest.warns(UnsupportedWarning, match="fluid_added_mass"):
        inertial("<fluid_added_mass><xx>1</xx></fluid_added_mass>")


def shape(inside: str, more: str = "") -> str:
    return f'<collision name="c">{more}<geometry>{inside}</geometry></collision>'


@pytest.mark.parametrize(
    ("inside", "volume", "com", "moments"),
    [
        ("<box><size>1 2 3</size></box>", 6, 0, [13 / 12, 10 / 12, 5 / 12]),
        ("<sphere><radius>2</radius></sphere>", 32 / 3 * math.pi, 0, [1.6] * 3),
        ("<cylinder><radius>2</radius><length>3</length></cylinder>", 12 * math.pi, 0, [21 / 12, 21 / 12, 2]),
        ("<ellipsoid><radii>1 2 3</radii></ellipsoid>", 8 * math.pi, 0, [13 / 5, 2, 1]),
        ("<cone><radius>2</radius><length>4</length></cone>", 16 / 3 * math.pi, -1, [1.2, 1.2, 1.2]),
        ("<capsule><radius>1</radius><length>2</length></capsule>", 10 / 3 * math.pi, 0,
         [(6 * 7 / 12 + 4 * (0.4 + 1 + 0.75)) / 10] * 2 + [(6 / 2 + 4 * 0.4) / 10]),
        ("<polyline><point>0 0</point><point>2 0</point><point>2 1</point><point>0 1</point><height>3</height></polyline>", 6,
         (1, 0.5, 1.5), [10 / 12, 13 / 12, 5 / 12]),
    ],
)  # fmt: skip
def test_auto_inertia_of_each_shape(inside, volume, com, moments):
    found = inertial("<density>2</density>", 'auto="true"', shape(inside))
    assert found.mass == pytest.approx(2 * volume)
    np.testing.assert_allclose(found.com, com if isinstance(com, tuple) else (0, 0, com), atol=1e-12)
    np.testing.assert_allclose(found.inertia, [*(found.mass * np.array(moments)), 0, 0, 0], atol=1e-9)


def test_auto_inertia_of_a_polygon_is_that_of_its_triangles():
    """An L, convex pieces added by hand with the general formula against the extrusion."""
    outline = np.array([[0, 0], [3, 0], [3, 1], [1, 1], [1, 2], [0, 2.0]])
    points = "".join(f"<point>{x} {y}</point>" for x, y in outline[::-1])
    found = inertial("<density>10</density>", 'auto="1"', shape(f"<polyline>{points}<height>2</height></polyline>"))
    boxes = inertial("<density>10</density>", 'auto="1"',
        shape("<box><size>3 1 2</size></box>", "<pose>1.5 0.5 1 0 0 0</pose>")
        + shape("<box><size>1 1 2</size></box>", "<pose>0.5 1.5 1 0 0 0</pose>").replace('"c"', '"d"'))  # fmt: skip
    assert found.mass == pytest.approx(boxes.mass)
    np.testing.assert_allclose(found.com, boxes.com, atol=1e-12)
    np.testing.assert_allclose(found.inertia, boxes.inertia, atol=1e-9)
    assert extrusion(np.array([[0.0, 0], [1, 1], [2, 2]]), 1.0) is None


def test_auto_inertia_densities_mass_and_refusals():
    box = "<box><size>1 1 1</size></box>"
    assert inertial("", 'auto="true"', shape(box)).mass == 1000
    assert inertial("<density>5</density>", 'auto="true"', shape(box, "<density>7</density>")).mass == 7
    scaled = inertial("<mass>3</mass><pose>9 9 9 0 0 0</pose>", 'auto="true"', shape(box, "<pose>1 0 0 0 0 0</pose>"))
    assert scaled.mass == 3 and scaled.com.tolist() == [1, 0, 0]
    np.testing.assert_allclose(scaled.inertia[:3], 0.5)
    assert inertial("", 'auto="false"', shape(box)).mass == 1
    for text, words in [("", "no <collision>"), (shape("<plane/>"), "has no volume"),
                        (shape("<mesh><uri>a.dae</uri></mesh>"), "give the inertia explicitly"),
                        (shape("<heightmap><uri>a.png</uri></heightmap>"), "give the inertia explicitly"),
                        (shape("<empty/>"), "give the inertia explicitly")]:  # fmt: skip
        refused(f'<link name="a"><inertial auto="true"/>{text}</link>', words)
    refused(f'<link name="a"><inertial><density>0</density></inertial>{shape(box)}</link>', "found 0")


def test_gravity_of_a_link_is_switched_off():
    spec = read('<link name="a"><gravity>false</gravity></link><link name="b"/>')
    assert [b.gravity for b in spec.bodies] == [0.0, 1.0]


# ---- shapes --------------------------------------------------------------------------------------------------------------------


def geoms(inside: str, **options):
    return read(f'<link name="a">{inside}</link>', **options).bodies[0].geoms


@pytest.mark.parametrize(
    ("inside", "kind", "size"),
    [
        ("<box><size>1 2 3</size></box>", "box", [0.5, 1, 1.5]),
        ("<sphere><radius>2</radius></sphere>", "sphere", [2]),
        ("<cylinder><radius>2</radius><length>3</length></cylinder>", "cylinder", [2, 1.5]),
        ("<capsule><radius>2</radius><length>3</length></capsule>", "capsule", [2, 1.5]),
        ("<cone><radius>2</radius><length>3</length></cone>", "cone", [2, 1.5]),
        ("<ellipsoid><radii>1 2 3</radii></ellipsoid>", "ellipsoid", [1, 2, 3]),
        ("<plane><normal>0 0 2</normal><size>4 6</size></plane>", "plane", [2, 3]),
        ("<plane/>", "plane", [0.5, 0.5]),
        ("<mesh><uri>model://x/y.dae</uri><scale>1 2 3</scale></mesh>", "mesh", [1, 2, 3]),
        ("<mesh><uri>model://x/y.dae</uri></mesh>", "mesh", [1, 1, 1]),
        ("<heightmap><uri>h.png</uri><size>10 20 2</size><pos>1 2 3</pos></heightmap>", "heightmap", [5, 10, 1]),
        ("<polyline><point>0 0</point><point>1 0</point><point>0 1</point><height>2</height></polyline>", "polyline", [2]),
    ],
)
def test_shapes_of_collisions_and_visuals(inside, kind, size):
    for tag in ("collision", "visual"):
        (geom,) = geoms(f'<{tag} name="g"><pose>1 0 0 0 0 0</pose><geometry>{inside}</geometry></{tag}>')
        assert (geom.shape, geom.visual, geom.collision, geom.mass) == (kind, tag == "visual", tag == "collision", 0.0)
        np.testing.assert_allclose(geom.size, size)
        np.testing.assert_allclose(geom.pos, [2, 2, 3] if kind == "heightmap" else [1, 0, 0])
    assert geom.file == {"mesh": "model://x/y.dae", "heightmap": "h.png"}.get(kind)
    assert (geom.points is not None) == (kind == "polyline")


def test_plane_normals_and_places_of_shapes():
    for normal in ([1, 0, 0], [0, -2, 0], [0, 0, -1], [1, 2, 3], [0, 0, 5]):
        (geom,) = geoms(
            f'<collision name="c"><geometry><plane><normal>{" ".join(map(str, normal))}</normal></plane></geometry></collision>'
        )
        np.testing.assert_allclose(rotate(geom.quat, [0, 0, 1]), np.array(normal) / np.linalg.norm(normal), atol=1e-12)
    spec = read(
        f'<link name="a"><pose>1 0 0 0 0 1.5</pose></link><link name="b"><collision name="c">'
        f'<pose relative_to="a">1 0 0 0 0 0</pose>{BALL}</collision></link>'
    )
    np.testing.assert_allclose(spec.bodies[1].geoms[0].pos, [1 + math.cos(1.5), math.sin(1.5), 0])


def test_mesh_files_are_found_where_they_are(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "y.dae").write_text("")
    inside = '<collision name="c"><geometry><mesh><uri>model://x/y.dae</uri></mesh></geometry></collision>'
    assert geoms(inside, paths=[tmp_path])[0].file == str(tmp_path / "x" / "y.dae")


def test_unknown_shapes_never_lose_a_body():
    with pytest.warns(UnsupportedWarning, match="<blob> in <geometry>"):
        spec = read('<link name="a"><visual name="v"><geometry><blob/></geometry></visual></link>')
    assert spec.bodies[0].geoms == ()
    assert geoms('<visual name="v"><geometry/></visual>') == geoms('<visual name="v"><geometry><empty/></geometry></visual>') == ()
    with pytest.warns(UnsupportedWarning, match="<image> in <geometry>"):
        assert geoms('<collision name="c"><geometry><image><uri>a</uri></image></geometry></collision>') == ()
    with pytest.warns(UnsupportedWarning, match="<submesh> in <mesh>"):
        assert geoms('<visual name="v"><geometry><mesh><uri>a</uri><submesh><name>b</name></submesh></mesh></geometry></visual>')


@pytest.mark.parametrize(
    ("inside", "words"),
    [
        ("<sphere/>", "<radius> is missing"),
        ("<sphere><radius>-1</radius></sphere>", "numbers > 0"),
        ("<box><size>1 2</size></box>", "allowed: 3"),
        ("<box><size>1 0 2</size></box>", "numbers > 0"),
        ("<mesh/>", "<uri> is missing"),
        ("<mesh><uri>a</uri><scale>0 1 1</scale></mesh>", "scale of zero"),
        ("<plane><normal>0 0 0</normal></plane>", "normal is zero"),
        ("<polyline><point>0 0</point><height>1</height></polyline>", "3 or more"),
        ("<sphere><radius>1</radius></sphere><box><size>1 1 1</size></box>", "second shape"),
    ],
)
def test_bad_shapes_are_refused(inside, words):
    refused(f'<link name="a"><visual name="v"><geometry>{inside}</geometry></visual></link>', words)
    refused('<link name="a"><visual name="v"/></link>', "<geometry> is missing")


def test_surface_numbers_are_kept_as_read():
    surface = (
        "<surface><friction><ode><mu>0.5</mu><slip1>0.1</slip1><fdir1>1 0 0</fdir1></ode><torsional>"
        "<coefficient>0.2</coefficient></torsional></friction>"
        "<bounce><restitution_coefficient>0.3</restitution_coefficient></bounce>"
        "<contact><collide_bitmask>0xff</collide_bitmask><ode><kp>inf</kp></ode></contact></surface>"
    )
    with pytest.warns(UnsupportedWarning) as caught:
        (geom,) = geoms(f'<collision name="c">{BALL}{surface}</collision>')
    text = str(caught[0].message)
    assert len(text.splitlines()) == 3
    assert all(words in text for words in ("slip1 0.1", "coefficient 0.3: contacts do not bounce", "smaller"))
    assert geom.friction == (0.5, 1.0)
    assert geom.surface == {
        "friction/ode/slip1": 0.1, "friction/ode/fdir1/0": 1.0, "friction/ode/fdir1/1": 0.0, "friction/ode/fdir1/2": 0.0,
        "friction/torsional/coefficient": 0.2, "bounce/restitution_coefficient": 0.3, "contact/collide_bitmask": 255.0,
        "contact/ode/kp": math.inf,
    }  # fmt: skip
    refused(
        f'<link name="a"><collision name="c">{BALL}<surface><contact><collide_bitmask>x</collide_bitmask>'
        f"</contact></surface></collision></link>",
        "not an integer",
    )


def surface_paths(table=_SURFACE, prefix=""):
    for name, kind in table.items():
        if isinstance(kind, dict):
            yield from surface_paths(kind, f"{prefix}{name}/")
        else:
            yield prefix + name, kind


def test_every_number_of_a_surface_is_read():
    for path, kind in surface_paths():
        value = {bool: "true", int: "3", 1: "0.5", 3: "1 0 0"}[kind]
        *outer, last = path.split("/")
        text = "".join(f"<{t}>" for t in outer) + f"<{last}>{value}</{last}>" + "".join(f"</{t}>" for t in reversed(outer))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnsupportedWarning)
            (geom,) = geoms(f'<collision name="c">{BALL}<surface>{text}</surface></collision>')
        assert len(geom.surface) == {3: 3}.get(kind, 1) or geom.friction is not None, path


def test_colours_never_fail_a_load():
    def paint(rgba, more=""):
        return geoms(f'<visual name="v">{BALL}<material><diffuse>{rgba}</diffuse></material>{more}</visual>')[0].rgba

    assert paint("1 0 0 1") == (1, 0, 0, 1) and paint("1 0 0", "<transparency>0.25</transparency>") == (1, 0, 0, 0.75)
    for bad in ("red", "", "2 0 0", "1 0"):
        with pytest.warns(SuspiciousInputWarning, match="drawn gray"):
            assert paint(bad) == (0.5, 0.5, 0.5, 1)


# ---- joints --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "type_", "axes"),
    [("revolute", "hinge", 1), ("continuous", "hinge", 1), ("prismatic", "slide", 1), ("screw", "screw", 1), ("universal", "universal", 2),
     ("revolute2", "universal", 2), ("ball", "ball", 0), ("fixed", "fixed", 0), ("Revolute", "hinge", 1), ("FIXED", "fixed", 0)],
)  # fmt: skip
def test_joint_types(kind, type_, axes):
    found = pair(
        joint(kind, "<axis><xyz>0 3 0</xyz></axis><axis2><xyz>2 0 0</xyz></axis2>" if axes != 1 else "<axis><xyz>0 3 0</xyz></axis>")
    )
    assert found.type == type_ and found.actuator == ("force" if axes else "passive") and not found.reversed
    if axes:
        np.testing.assert_array_equal(found.params["axes"], [[0, 1, 0], [1, 0, 0]][:axes])
    for tag in ["axis", "axis2"][:axes]:
        text = joint(kind, "".join(f"<{t}/>" for t in ["axis", "axis2"][:axes] if t != tag))
        refused('<link name="a"/><link name="b"/>' + text, f"<{tag}> is missing", 'joint name="j"')


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (joint("hinge"), "unknown joint type 'hinge'"),
        ('<joint name="j"><parent>a</parent><child>b</child></joint>', "'type' is missing"),
        ('<joint name="j" type="fixed"><child>b</child></joint>', "<parent> is missing"),
        ('<joint name="j" type="fixed"><parent>a</parent></joint>', "<child> is missing"),
        (joint("fixed", parent="x"), "no frame 'x'"),
        (joint("fixed", child="world"), "the child is world"),
        (joint("fixed", parent="b"), "same body"),
        (joint("fixed", parent="f"), "same body"),
        (joint("revolute", "<axis><xyz>0 0 0</xyz></axis>"), "axis is zero"),
        (joint("universal", "<axis><xyz>1 0 0</xyz></axis><axis2><xyz>-2 0 0</xyz></axis2>"), "parallel"),
        (joint("revolute2", "<axis/><axis2/>"), "parallel"),
        (joint("revolute", "<axis><limit><lower>1</lower><upper>0</upper></limit></axis>"), "above upper"),
        (joint("revolute", "<axis><dynamics><damping>-1</damping></dynamics></axis>"), "found -1"),
        (joint("revolute", "<axis><dynamics><friction>-1</friction></dynamics></axis>"), "found -1"),
        (joint("revolute", "<axis/><axis/>"), "second <axis>"),
        (joint("screw", "<axis/><thread_pitch>0</thread_pitch>"), "rad/m"),
    ],
)
def test_bad_joints_are_refused(text, words):
    refused('<link name="a"/><link name="b"/><frame name="f" attached_to="b"/>' + text, words)


def test_universal_axes_may_be_skew():
    found = pair(joint("universal", "<axis2><xyz>1 1 0</xyz></axis2><axis><xyz>1 0 0</xyz></axis>"))
    np.testing.assert_allclose(found.params["axes"], [[1, 0, 0], [0.5**0.5, 0.5**0.5, 0]])


def test_joint_frames_in_parent_and_child():
    links = '<link name="a"><pose>1 0 0 0 0 1.5</pose></link><link name="b"><pose>0 2 0 0 0 0</pose></link>'
    body = by_name(read(links + joint("revolute", "<pose>0 0 1 0.3 0 0</pose>" + AXIS)))["b"]
    same(Pose(body.joint.quat, body.joint.pos), (0, 0, 1), quat_rpy(0.3, 0, 0), 0)
    same(Pose(body.quat, body.pos), rotate(quat_rpy(0, 0, -1.5), [-1, 2, 1]), quat_mul(quat_rpy(0, 0, -1.5), quat_rpy(0.3, 0, 0)))
    body = by_name(read(links + joint("revolute", AXIS)))["b"]
    assert body.joint.pos.tolist() == [0, 0, 0] and body.joint.quat.tolist() == [1, 0, 0, 0]  # exactly: no joint frame to carry
    body = by_name(read(links + joint("fixed", "<pose>0 0 1 0.3 0 0</pose>")))["b"]  # a joint pose does not matter here
    assert body.joint.pos.tolist() == [0, 0, 0]
    same(Pose(body.quat, body.pos), rotate(quat_rpy(0, 0, -1.5), [-1, 2, 0]), quat_rpy(0, 0, -1.5))


def test_joint_ends_resolve_through_frames():
    inside = (
        '<link name="a"/><link name="b"><pose>1 0 0 0 0 0</pose></link><model name="n"><link name="c">'
        '<pose>0 3 0 0 0 0</pose></link></model>'
        '<frame name="f" attached_to="b"><pose>0 0 1 0 0 0</pose></frame>'
        + joint("revolute", AXIS, "__model__", "f") + joint("ball", "", "j", "n", "k")
    )  # fmt: skip
    spec = read(inside)
    bodies = by_name(spec)
    assert spec.bodies[bodies["b"].parent].name == "a" and spec.bodies[bodies["n::c"].parent].name == "b"
    np.testing.assert_allclose(bodies["b"].joint.pos, [0, 0, 1])  # the joint starts at the frame that is named
    np.testing.assert_allclose(bodies["n::c"].joint.pos, [0, -3, 0])  # of the model: its origin, not the link's


def test_axes_by_version_and_frame():
    links = '<link name="a"/><link name="b"><pose>0 0 0 0.7 0 0</pose></link>'
    posed = "<pose>0 0 0 0 0.4 0</pose>"
    plain, flagged = "<xyz>0 1 0</xyz>", "<xyz>0 1 0</xyz><use_parent_model_frame>{}</use_parent_model_frame>"
    turned = rotate(quat_conj((Pose(quat_rpy(0.7, 0, 0)) @ Pose(quat_rpy(0, 0.4, 0))).quat), [0, 1, 0])
    axis = lambda text, version: pair(joint("revolute", f"{posed}<axis>{text}</axis>"), version, links).params["axes"][0]  # noqa: E731
    for version in ("1.5", "1.6", "1.7", "1.12"):
        np.testing.assert_array_equal(axis(plain, version), [0, 1, 0])
    np.testing.assert_allclose(axis(plain, "1.4"), turned, atol=1e-15)
    for word in ("true", "True", "1"):
        np.testing.assert_allclose(axis(flagged.format(word), "1.6"), turned, atol=1e-15)
    np.testing.assert_array_equal(axis(flagged.format("0"), "1.5"), [0, 1, 0])
    with pytest.warns(UnsupportedWarning, match="use_parent_model_frame"):
        np.testing.assert_array_equal(axis(flagged.format("true"), "1.7"), [0, 1, 0])
    np.testing.assert_allclose(axis('<xyz expressed_in="__model__">0 1 0</xyz>', "1.7"), turned, atol=1e-15)
    np.testing.assert_allclose(axis('<xyz expressed_in="b">0 1 0</xyz>', "1.7"), rotate(quat_rpy(0, -0.4, 0), [0, 1, 0]), atol=1e-15)
    np.testing.assert_array_equal(axis("", "1.7"), [0, 0, 1])


def test_screw_pitches():
    pitch = lambda text: pair(joint("screw", AXIS + text)).params["pitch"][0] * 2 * math.pi  # noqa: E731
    assert pitch("") == pytest.approx(1.0)
    assert pitch("<screw_thread_pitch>0.5</screw_thread_pitch>") == pytest.approx(0.5)
    assert pitch("<screw_thread_pitch>0</screw_thread_pitch>") == 0
    assert pitch("<thread_pitch>-4</thread_pitch>") == pytest.approx(2 * math.pi / 4)
    assert pitch("<thread_pitch>3</thread_pitch><screw_thread_pitch>0.5</screw_thread_pitch>") == pytest.approx(0.5)


def axis_of(kind="revolute", limit="", dynamics="", version="1.11"):
    return pair(joint(kind, f"<axis><limit>{limit}</limit><dynamics>{dynamics}</dynamics></axis>"), version)


def test_limits():
    found = axis_of(limit="<lower>-1</lower><upper>2</upper><effort>5</effort><velocity>3</velocity>")
    assert (
        found.position_range.tolist() == [[-1, 2]]
        and found.velocity_range.tolist() == [[-3, 3]]
        and found.force_range.tolist() == [[-5, 5]]
    )
    for limit in ("", "<lower>-1e16</lower><upper>1e16</upper><effort>-1</effort><velocity>-1</velocity>",
                  "<lower>-inf</lower><upper>inf</upper><effort>inf</effort><velocity>inf</velocity>",
                  "<lower>-1.79769e+308</lower><upper>1.79769e+308</upper>"):  # fmt: skip
        found = axis_of(limit=limit)
        for bounds in (found.position_range, found.velocity_range, found.force_range):
            assert bounds.tolist() == [[-math.inf, math.inf]]
    found = axis_of(limit="<effort>0</effort>")
    assert found.actuator == "passive" and not found.force_range.any()
    found = axis_of("continuous", "<lower>-1</lower><upper>1</upper><effort>5</effort>")
    assert found.position_range is None and found.force_range.tolist() == [[-5, 5]]


def test_dynamics():
    found = axis_of(
        dynamics="<damping>0.1</damping><friction>0.2</friction>"
        "<spring_stiffness>3</spring_stiffness><spring_reference>0.4</spring_reference>"
    )
    assert (found.damping, found.friction, found.stiffness, found.spring_ref) == (0.1, 0.2, 3, 0.4)
    found = axis_of()
    assert (found.damping, found.stiffness, found.spring_ref) == (0, 0, 0) and np.isnan(found.friction).all()
    with pytest.warns(SuspiciousInputWarning, match="drives away"):
        axis_of(dynamics="<spring_stiffness>-1</spring_stiffness>")
    two = (
        "<axis><xyz>1 0 0</xyz><dynamics><damping>1</damping></dynamics></axis><axis2><dynamics>"
        "<damping>2</damping><friction>3</friction></dynamics></axis2>"
    )
    found = pair(joint("universal", two))
    assert found.damping.tolist() == [1, 2] and np.isnan(found.friction[0]) and found.friction[1] == 3


def test_a_ball_takes_damping_and_nothing_else_from_its_axis():
    found = pair(joint("ball", "<axis><xyz>0 0 0</xyz><dynamics><damping>0.3</damping></dynamics></axis>"))
    assert found.damping.tolist() == [0.3] * 3 and found.actuator == "passive" and found.position_range is None
    with pytest.warns(UnsupportedWarning, match="<limit> in <axis>"):
        pair(joint("ball", "<axis><limit><lower>-1</lower></limit></axis>"))


# ---- gearbox and mimic ---------------------------------------------------------------------------------------------------------

GEARED = '<link name="r"/><link name="a"><pose>0 0 0 0.5 0 0</pose></link><link name="b"/>' + "".join(
    joint("revolute", AXIS, "r", x, f"h{x}") for x in "ab"
)


def gearbox(inside: str) -> str:
    return GEARED + joint("gearbox", inside)


def test_gearboxes_are_constraints():
    inside = (
        "<gearbox_ratio>2.5</gearbox_ratio><gearbox_reference_body>r</gearbox_reference_body><axis>"
        '<xyz expressed_in="r">0 2 0</xyz></axis><axis2/>'
    )
    spec = read(gearbox("<pose>0 0 0 0 0 0.2</pose>" + inside))
    (found,) = spec.constraints
    names = [spec.bodies[i].name for i in found.bodies]
    assert (found.kind, found.name, names, found.multiplier) == ("gearbox", "j", ["a", "b", "r"], 2.5)
    np.testing.assert_allclose(found.axes, [rotate(quat_rpy(-0.5, 0, 0), [0, 1, 0]), [0, 0, 1]], atol=1e-15)
    assert [b.joint.name for b in spec.bodies] == ["floating:r", "ha", "hb"]
    refused(gearbox("<axis/><axis2/>"), "<gearbox_reference_body> is missing")
    refused(gearbox("<gearbox_reference_body>x</gearbox_reference_body><axis/><axis2/>"), "no frame 'x'")
    refused(gearbox("<gearbox_reference_body>a</gearbox_reference_body><axis/><axis2/>"), "third body")
    refused(gearbox("<gearbox_reference_body>r</gearbox_reference_body><axis/>"), "<axis2> is missing")


def mimic(attributes: str, inside: str = "", kind="revolute") -> str:
    return (
        '<link name="a"/><link name="b"/><link name="c"/>'
        + joint("universal", "<axis><xyz>1 0 0</xyz></axis><axis2/>", "a", "b", "u")
        + joint(kind, f"<axis><xyz>1 0 0</xyz><mimic {attributes}>{inside}</mimic></axis>", "b", "c")
    )


def test_mimics_are_constraints():
    numbers = "<multiplier>2</multiplier><offset>0.1</offset><reference>0.3</reference>"
    (found,) = read(mimic('joint="u" axis="axis2"', numbers)).constraints
    assert (found.kind, found.coordinates, found.multiplier, found.offset, found.reference) == ("mimic", ((2, 0), (1, 1)), 2, 0.1, 0.3)
    (found,) = read(mimic('joint="u"')).constraints
    assert (found.coordinates, found.multiplier, found.offset, found.reference) == (((2, 0), (1, 0)), 1, 0, 0)
    for attributes, words in [('joint="x"', "no frame 'x'"), ('joint="j"', "follows itself"), ('joint="b"', "is a link"),
                              ('joint="u" axis="axis3"', "axis, axis2"), ("", "'joint' is missing"),
                              ('joint="j" axis="axis2"', "no axis2")]:  # fmt: skip
        refused(mimic(attributes), words)
    spec = read(mimic('joint="u" axis="axis2"') + joint("fixed", parent="world", child="c", name="w"))  # hung up at the other end
    names = [b.name for b in spec.bodies]
    assert spec.bodies[names.index("a")].joint.reversed
    assert spec.constraints[0].coordinates == ((names.index("b"), 0), (names.index("a"), 0))  # the last axis comes first


# ---- trees and loops -----------------------------------------------------------------------------------------------------------


def three(*joints_: str, links="abc") -> str:
    return "".join(f'<link name="{x}"><pose>{i} {0.3 * i} 0 0.{i} 0 0.2</pose></link>' for i, x in enumerate(links)) + "".join(joints_)


def shape_of(spec) -> dict[str, tuple]:
    return {b.name: (spec.bodies[b.parent].name if b.parent >= 0 else "world", b.joint.name, b.joint.reversed) for b in spec.bodies}


def test_free_roots_start_where_they_are_drawn():
    spec = read('<pose>0 0 1 0 0 0</pose><link name="a"><pose>1 2 3 0 0 0.5</pose></link>')
    (body,) = spec.bodies
    assert (
        body.joint.type == "free"
        and body.joint.name == "floating:a"
        and body.pos.tolist() == [0, 0, 0]
        and body.quat.tolist() == [1, 0, 0, 0]
    )
    np.testing.assert_allclose(body.joint.q0, [1, 2, 4, *quat_rpy(0, 0, 0.5)])


def test_bodies_come_in_the_order_of_links_where_parents_allow():
    links = '<link name="c"/><link name="b"/><link name="a"/>'
    assert [b.name for b in read(links).bodies] == ["c", "b", "a"]
    assert [b.name for b in read(links + joint("ball", parent="a", child="c")).bodies] == ["b", "a", "c"]


def test_world_joints_hold_links_of_nested_models():
    spec = read('<model name="n"><link name="a"><pose>1 0 0 0 0 0</pose></link>' + joint("revolute", AXIS, "world", "a") + "</model>")
    assert shape_of(spec) == {"n::a": ("world", "n::j", False)} and spec.bodies[0].pos.tolist() == [1, 0, 0]


def test_trees_are_hung_up_at_the_world():
    """The base is the child of the last joint of the chain: everything above it is reversed."""
    cross = "<axis><xyz>1 0 0</xyz></axis><axis2><xyz>0 1 0</xyz></axis2>"
    chain = three(joint("revolute", AXIS, "a", "b", "ab"), joint("universal", cross, "b", "c", "bc"),
                  joint("fixed", "", "world", "c", "w"))  # fmt: skip
    spec = read(chain)
    assert shape_of(spec) == {"c": ("world", "w", False), "b": ("c", "bc", True), "a": ("b", "ab", True)} and not spec.constraints
    upright = by_name(spec)["b"].joint
    np.testing.assert_array_equal(upright.params["axes"], [[0, -1, 0], [-1, 0, 0]])
    drawn, moved = poses(read(chain.replace(joint("fixed", "", "world", "c", "w"), ""))), poses(spec)
    for name in "abc":
        same(moved[name], drawn[name].pos, drawn[name].quat)


def test_a_reversed_joint_moves_as_the_file_says():
    """The same coordinates give the same relative pose whichever end the tree hangs at."""
    rng = np.random.default_rng(0)
    kinds = {
        "revolute": ("<axis><xyz>1 2 3</xyz></axis>", 1),
        "prismatic": ("<axis><xyz>1 2 3</xyz></axis>", 1), "fixed": ("", 0), "ball": ("", 4),
        "screw": ("<screw_thread_pitch>0.7</screw_thread_pitch><axis><xyz>1 2 3</xyz></axis>", 1),
        "universal": ("<axis><xyz>1 2 3</xyz></axis><axis2><xyz>-1 0.5 1</xyz></axis2>", 2),
    }  # fmt: skip
    for kind, (inside, n) in kinds.items():
        text = three(joint(kind, "<pose>0.1 0.2 0.3 0.4 0.5 0.6</pose>" + inside), links="ab")
        forward, backward = (read(text + joint("fixed", "", "world", x, "w")) for x in "ab")
        assert by_name(backward)["a"].joint.reversed and not by_name(forward)["b"].joint.reversed
        q = quat_exp(rng.normal(size=3)) if kind == "ball" else rng.normal(size=n)
        back = quat_conj(q) if kind == "ball" else q[::-1]
        one, two = poses(forward, {"j": q}), poses(backward, {"j": back})
        relative = one["a"].inverse() @ one["b"]
        same(two["a"].inverse() @ two["b"], relative.pos, relative.quat)


def test_per_coordinate_numbers_turn_with_a_reversed_universal():
    axis = "<{0}><xyz>{1}</xyz><limit><lower>-{2}</lower><upper>{3}</upper></limit><dynamics><damping>{2}</damping></dynamics></{0}>"
    inside = axis.format("axis", "1 0 0", 1, 2) + axis.format("axis2", "0 1 0", 3, 4)
    found = by_name(read(three(joint("universal", inside, "a", "b"), joint("fixed", "", "world", "b", "w"), links="ab")))["a"].joint
    assert found.reversed and found.damping.tolist() == [3, 1] and found.position_range.tolist() == [[-3, 4], [-1, 2]]


def test_the_first_joint_of_a_child_holds_it_and_others_close_loops():
    j = [joint("revolute", AXIS, *ends, "".join(ends)) for ends in ("ac", "bc", "wa", "wb")]
    j[2:] = [joint("fixed", "", "world", x, f"w{x}") for x in "ab"]
    spec = read(three(*j))
    assert shape_of(spec) == {"a": ("world", "wa", False), "b": ("world", "wb", False), "c": ("a", "ac", False)}
    (loop,) = spec.constraints
    assert (loop.kind, loop.name, [spec.bodies[i].name for i in loop.bodies], loop.joint.type) == ("joint", "bc", ["b", "c"], "hinge")
    found = poses(spec)
    (p0, q0), (p1, q1) = loop.frames
    one, two = found["b"] @ Pose(q0, p0), found["c"] @ Pose(q1, p1)
    same(one, two.pos, two.quat)  # the two frames meet as drawn
    spec = read(three(*j[:2]))  # nothing else holds b: one free joint for the piece, b hangs at c
    assert shape_of(spec) == {"a": ("world", "floating:a", False), "b": ("c", "bc", True), "c": ("a", "ac", False)} and not spec.constraints


CUT = "<physics><simbody><must_be_loop_joint>true</must_be_loop_joint></simbody></physics>"


def test_loops_keep_their_numbers_and_marked_joints_are_cut():
    dynamics = "<axis><dynamics><damping>0.2</damping></dynamics></axis>"
    ring = [joint("revolute", dynamics + (CUT if i == 0 else ""), *ends, f"j{i}") for i, ends in enumerate(("ab", "bc", "ca"))]
    spec = read(three(*ring))
    (loop,) = spec.constraints
    assert loop.name == "j0" and loop.joint.damping == 0.2
    assert shape_of(spec)["b"][0] == "world" and shape_of(spec)["a"][0] == "c"
    spec = read(three(*(r.replace(CUT, "") for r in ring)))
    assert [c.name for c in spec.constraints] == ["j2"] and shape_of(spec)["a"][1] == "floating:a"
    spec = read(three(joint("ball", CUT), links="ab"))  # cut where it is the only one
    assert [c.joint.type for c in spec.constraints] == ["ball"] and {b.joint.type for b in spec.bodies} == {"free"}


@pytest.mark.parametrize(
    ("kind", "inside"),
    [
        ("revolute", "<axis><limit><upper>1</upper></limit></axis>"),
        ("revolute", "<axis><limit><velocity>1</velocity></limit></axis>"),
        ("revolute", "<axis><dynamics><friction>1</friction></dynamics></axis>"),
        ("screw", AXIS),
    ],
)
def test_joints_that_need_a_coordinate_close_no_loop(kind, inside):
    """Another joint does where it can."""
    ends = ("ab", "bc", "ca")
    spec = read(three(*(joint(kind if i == 2 else "revolute", inside if i == 2 else AXIS, *e, f"j{i}") for i, e in enumerate(ends))))
    assert [c.name for c in spec.constraints] == ["j1"] and len(spec.bodies) == 3


def test_a_link_is_split_where_all_joints_of_a_loop_need_a_coordinate():
    """Its parts have its mass, one of them its shapes, and a weld holds them together. Contacts of the joint's links stay switched off."""
    limit = "<axis><limit><lower>-1</lower><upper>1</upper></limit></axis>"
    ring = [joint("revolute", limit, *ends, f"j{i}") for i, ends in enumerate(("ab", "bc", "ca"))]
    whole, spec = read(three(*(r.replace(limit, AXIS) for r in ring))), read(three(*ring))
    (weld,) = spec.constraints
    assert [b.name for b in spec.bodies] == ["a", "b", "c", "part:j2"] and (weld.bodies, weld.joint.type) == ((0, 3), "fixed")
    assert spec.bodies[3].joint.name == "j2" and spec.bodies[3].joint.position_range.tolist() == [[-1, 1]] and not spec.bodies[3].geoms
    for part in (spec.bodies[0], spec.bodies[3]):
        assert part.inertial.mass == whole.bodies[0].inertial.mass / 2
        np.testing.assert_array_equal(part.inertial.inertia, whole.bodies[0].inertial.inertia / 2)
        np.testing.assert_array_equal(part.inertial.com, whole.bodies[0].inertial.com)
    assert spec.exclude == whole.exclude == ((2, 0),)
    assert xsim.build(spec).nv == 6 + 3


def test_a_joint_that_needs_a_coordinate_is_reversed_rather_than_close_a_loop():
    """Two of them have the same child."""
    limit = "<axis><limit><upper>1</upper></limit></axis>"
    ends = (("a", "c", "p", limit), ("b", "c", "q", limit), ("world", "a", "r", AXIS), ("world", "b", "s", AXIS))
    spec = read(three(*(joint("revolute", axis, one, two, name) for one, two, name, axis in ends)))
    assert shape_of(spec) == {"a": ("world", "r", False), "b": ("c", "q", True), "c": ("a", "p", False)}
    assert [c.name for c in spec.constraints] == ["s"]


def test_the_parent_is_split_where_the_child_is_welded_to_the_world():
    def link(name: str, **other) -> Link:
        return Link(name, Pose(), InertialSpec(2.0, inertia=np.ones(6)), **other)

    limited = JointSpec("hinge", "k", params={"axes": np.eye(3)[:1]}, position_range=np.array([[-1.0, 1.0]]))
    ends = ((-1, 0, replace(limited, name="j")), (0, 1, limited))
    tree = assemble([link("a"), link("b", welded=True)], [Joint(spec, one, two, Pose(), Pose()) for one, two, spec in ends])
    assert [(b.name, b.parent, b.joint.reversed, b.inertial.mass) for b in tree.bodies] == [
        ("a", -1, False, 1.0), ("b", -1, False, 2.0), ("part:k", 1, True, 1.0),
    ]  # fmt: skip
    assert [c.bodies for c in tree.constraints] == [(0, 2)] and tree.closed == ((0, 1),) and tree.body_of_joint == (0, 2)


def test_a_joint_that_is_mimicked_or_mimics_closes_no_loop():
    ring = [joint("revolute", AXIS + (CUT if i == 0 else ""), *ends, f"j{i}") for i, ends in enumerate(("ab", "bc", "ca"))]
    follower = joint("revolute", '<axis><mimic joint="j0"/></axis>', "a", "d", "f")
    spec = read(three(*ring, follower, links="abcd"))
    assert [(c.kind, c.name) for c in spec.constraints] == [("joint", "j0"), ("mimic", "f")]
    follower_body, leader_body = (body for body, _ in spec.constraints[1].coordinates)
    assert [spec.bodies[follower_body].name, spec.bodies[leader_body].name] == ["d", "part:j0"]


@pytest.mark.parametrize("end", ["a", "d"])
def test_the_hinges_of_a_gearbox_close_no_loop(end):
    """Of links and of what is fixed to them: the joint that comes first closes the loop instead of the hinge."""
    ring = joint("ball", "", "c", "a", "ball"), joint("revolute", AXIS, "r", "c", "rc"), joint("revolute", AXIS, "r", "a", "ra")
    gears = joint("gearbox", "<gearbox_reference_body>r</gearbox_reference_body>" + AXIS + AXIS.replace("axis", "axis2"), end, "b", "gears")
    spec = read(three(*ring, joint("fixed", "", "a", "d", "weld"), joint("revolute", AXIS, "r", "b", "rb"), gears, links="rabcd"))
    assert [(c.kind, c.name) for c in spec.constraints] == [("joint", "ball"), ("gearbox", "gears")]
    assert [spec.bodies[i].joint.name for i in spec.constraints[1].bodies[:2]] == ["ra" if end == "a" else "weld", "rb"]


def test_loops_and_gearboxes_are_built():
    """What they do to the motion: tests/test_loops.py, and the corpus."""
    geared = gearbox(
        "<gearbox_ratio>2.5</gearbox_ratio><gearbox_reference_body>r</gearbox_reference_body>"
        '<axis><xyz expressed_in="a">0 0 1</xyz></axis><axis2><xyz expressed_in="b">0 0 -1</xyz></axis2>'
    )
    loop = three(*(joint("revolute", AXIS, *ends, f"j{i}") for i, ends in enumerate(("ab", "bc", "ca"))))
    spec = read(loop)
    assert [c.kind for c in spec.constraints] == ["joint"] and len(xsim.build(spec).topology.constraints[0].rows) == 5
    spec = read(geared)
    assert [c.kind for c in spec.constraints] == ["gearbox"]
    model = xsim.build(spec)
    assert model.topology.couplings == ((7, 6),)
    np.testing.assert_allclose(model.coupling.multiplier, [2.5])
    with pytest.raises(ValueError, match="no hinge about this axis between 'b' and 'r'"):
        xsim.build(read(geared.replace("0 0 -1", "0 1 0")))


def test_parallel_joints_between_two_links():
    spec = read(three(joint("revolute", AXIS), joint("revolute", AXIS, "a", "b", "k"), links="ab"))
    assert len(spec.constraints) == 1 and spec.constraints[0].name == "k"


HOLDING = {"fixed": "", "revolute": "<axis/>"}
"""Joints of a static model that hold the link of a nested one."""


def test_static_models_are_welded_where_they_are_drawn():
    inside = (
        '<model name="s"><static>true</static><pose>1 0 0 0 0 0</pose><link name="a"><pose>0 1 0 0 0 0</pose><gravity>1</gravity>'
        f'<collision name="c">{BALL}</collision></link><link name="b"/>' + joint("revolute", "<axis/>")
        + '<model name="n"><link name="c"/></model></model><model name="m"><link name="d"/></model>'
        + joint("ball", "", "m", "s::b", "hang")
    )  # fmt: skip
    spec = read_world(inside)
    assert shape_of(spec) == {
        "s::n::c": ("world", "floating:s::n::c", False),  # not inherited
        "s::a": ("world", "static:s::a", False), "s::b": ("world", "static:s::b", False),
        "m::d": ("s::b", "hang", True),
    }  # fmt: skip
    body = by_name(spec)["s::a"]
    assert body.joint.type == "fixed" and body.pos.tolist() == [1, 1, 0] and len(body.geoms) == 1 and not spec.constraints
    assert {n: b for n, b, *_ in spec.frames}["s::__model__"] == -1
    both = '<model name="{}"><static>1</static><link name="l"/></model>'
    assert not read_world(both.format("x") + both.format("y") + joint("fixed", "", "x::l", "y::l")).constraints  # nothing can move
    nested = '<model name="s"><static>1</static><link name="a"/><model name="n"><link name="c"/></model>'
    held = {kind: shape_of(read_world(nested + joint(kind, axis, "a", "n::c") + "</model>")) for kind, axis in HOLDING.items()}
    assert all(bodies["s::n::c"] == ("s::a", "s::j", False) for bodies in held.values())
    document = world('<frame name="f"/>' + both.format("x").replace("<static>1</static>", "") + joint("fixed", "", "x::l", "f"))
    refused(document, "fixed to the world")


# ---- worlds --------------------------------------------------------------------------------------------------------------------


def test_gravity_and_step():
    model = '<model name="m"><link name="a"/></model>'
    option = read_world(model).option
    assert option.gravity.tolist() == [0, 0, -9.8] and option.dt == 0.001
    assert read('<link name="a"/>').option.gravity.tolist() == [0, 0, -9.8]
    physics = (
        '<physics type="ode"><max_step_size>0.005</max_step_size><gravity>0 0 -1</gravity><ode><solver/>'
        "</ode><real_time_factor>1</real_time_factor></physics>"
    )
    option = read_world(physics + model, "1.5").option
    assert option.gravity.tolist() == [0, 0, -1] and option.dt == 0.005
    assert read_world("<gravity>1 2 3</gravity>" + model).option.gravity.tolist() == [1, 2, 3]
    with pytest.warns(UnsupportedWarning, match="<gravity> in <physics"):
        assert read_world(physics + model, "1.6").option.gravity.tolist() == [0, 0, -9.8]
    two = (
        '<physics name="x"><max_step_size>1</max_step_size></physics><physics name="y" default="true">'
        "<max_step_size>2</max_step_size></physics>"
    )
    assert read_world(two + model).option.dt == 2
    refused(world("<physics><max_step_size>0</max_step_size></physics>" + model), "numbers > 0")
    refused(world("<gravity>0 0</gravity>" + model), "allowed: 3")


# ---- size and hostile input ----------------------------------------------------------------------------------------------------


def chain(n: int) -> str:
    links = (f'<link name="l{i}"><pose{"" if i == 0 else f""" relative_to="l{i - 1}" """}>0.1 0 0 0 0 0</pose></link>' for i in range(n))
    return "".join(links) + "".join(joint("revolute", "<axis/>", f"l{i - 1}", f"l{i}", f"j{i}") for i in range(1, n))


def test_long_chains_take_time_in_proportion():
    def seconds(n):
        start = time.perf_counter()
        assert len(read(chain(n)).bodies) == n
        return time.perf_counter() - start

    seconds(50)
    assert seconds(4000) < 25 * max(seconds(400), 0.02)


def test_deep_nesting_is_no_recursion():
    deep = '<model name="n">' * 980 + '<link name="l"/>' + "</model>" * 980
    assert read(deep).bodies[0].name.count("::") == 980
    junk = "<x>" * 980 + "</x>" * 980
    read(f'<link name="l"><sensor>{junk}</sensor></link>')
    with pytest.warns(UnsupportedWarning, match="<x>"):
        read(f'<link name="l">{junk}</link>')


NUMBERS = ["nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "0", "-1", "", " ", "x", "1 2", "0 0 0", "1e308 1e308 1e308", "0 0 0 0 0 0",
           "1e200 -1e200 1e200 1e308 1e308 1e308", "true", "world", "__model__", "a::b", "::", "::::", "9" * 400]  # fmt: skip


def mutate(document: bytes, rng: random.Random) -> str | bytes:
    root = etree.fromstring(document)
    for _ in range(rng.randint(1, 4)):
        nodes = [n for n in root.iter() if isinstance(n.tag, str)]
        node, other = rng.choice(nodes), rng.choice(nodes)
        inner, words = node is not root, [n.text for n in nodes if n.text] + [v for n in nodes for v in n.attrib.values()] + NUMBERS
        action = rng.randrange(8)
        if action == 0 and inner:
            node.getparent().remove(node)
        elif action == 1 and inner:
            node.getparent().append(copy.deepcopy(node))
        elif action == 2 and other not in node.iter() and node not in other.iter():
            other.append(copy.deepcopy(node))
        elif action in (3, 4):
            node.text = rng.choice(NUMBERS if rng.random() < 0.7 else words)
        elif action == 5 and node.attrib:
            node.set(rng.choice(list(node.attrib)), rng.choice(words))
        elif action == 6 and node.attrib:
            del node.attrib[rng.choice(list(node.attrib))]
        elif action == 7:
            node.tag = other.tag
    text = etree.tostring(root)
    return text[: rng.randrange(len(text))] if rng.random() < 0.05 else text


def finite(spec) -> None:
    """No NaN but where it means "not given", and no infinity but in bounds."""
    for body in spec.bodies:
        joint = body.joint
        arrays = [
            body.pos,
            body.quat,
            joint.pos,
            joint.quat,
            body.inertial.mass,
            body.inertial.com,
            body.inertial.inertia,
            *joint.params.values(),
        ]
        arrays += [x for x in (joint.damping, joint.stiffness, joint.spring_ref, joint.q0) if x is not None]
        arrays += [x for g in body.geoms for x in (g.pos, g.quat, g.size)]
        assert all(np.isfinite(a).all() for a in arrays), body
        for bounds in (joint.position_range, joint.velocity_range, joint.force_range):
            assert bounds is None or not np.isnan(bounds).any() and (bounds[:, 0] <= bounds[:, 1]).all()
    for c in spec.constraints:
        assert np.isfinite([c.multiplier, c.offset, c.reference]).all() and all(np.isfinite(x).all() for f in c.frames for x in f)
    assert all(np.isfinite([*pos, *quat]).all() for *_, pos, quat in spec.frames) and np.isfinite(spec.option.gravity).all()


SEEDS = [
    *(p.read_bytes() for p in BUNDLED), sdf(FLAT, "1.7").encode(), sdf(NESTED).encode(),
    sdf(gearbox("<gearbox_reference_body>r</gearbox_reference_body><axis/><axis2/>")).encode(),
    sdf(mimic('joint="u" axis="axis2"')).encode(),
    sdf(three(*(joint("revolute", AXIS, *e, "".join(e)) for e in ("ab", "bc", "ca")))).encode(),
    world('<frame name="f"/><model name="m"><static>true</static><link name="a"/></model><physics><gravity>0 0 1</gravity></physics>',
          "1.5").encode(),
]  # fmt: skip


def check_mutated(rng: random.Random) -> None:
    document = mutate(rng.choice(SEEDS), rng)
    try:
        finite(quiet(document))
    except ParseError:
        pass


@pytest.mark.parametrize("seeds", mutations.SEEDS, ids=mutations.IDS)
def test_mutated_files_give_a_spec_or_a_parse_error(seeds):
    mutations.check_each(seeds, check_mutated)


def test_inventory_holds_every_word_of_the_readers_tables():
    known = set((Path(__file__).parent / "inventory" / "sdf.txt").read_text().split("\n"))
    words = {f"collision/surface/{path}" for path, _ in surface_paths()}
    words |= {f"joint@type={kind}" for kind in joints._TYPES} | {f"axis/limit/{stop}" for stop in joints._STOP}
    words |= {f"inertia/{tag}" for tag in links._MOMENTS} | {f"link/{tag}" for tag in (*links._IGNORED, *links._SWITCHES)}
    words |= {f"collision/{tag}" for tag in geometry._COLLISION_IGNORED} | {f"visual/{tag}" for tag in geometry._VISUAL_IGNORED}
    words |= {f"visual/material/{tag}" for tag in geometry._MATERIAL_IGNORED} | {f"model/{tag}" for tag in structure._SWITCHES}
    words |= {f"world/{tag}" for tag in reader._WORLD_IGNORED} | {f"world/physics/{tag}" for tag in reader._PHYSICS_IGNORED}
    assert words <= known, sorted(words - known)
    shapes = {word.split("/")[1] for word in known if word.startswith("geometry/")}
    assert set(geometry._SHAPES) <= shapes


# ---- the bundled models and the corpus -----------------------------------------------------------------------------------------


def test_bundled_models():
    one, two, arm = (parse(xsim.models.path(n)) for n in ("two_links_orthogonal_1", "two_links_orthogonal_2", "arm_all_joints"))
    assert [b.joint.type for b in one.bodies] == [b.joint.type for b in two.bodies] == ["fixed", "hinge"]
    same(poses(one, {"jointAB": [0.78]})["linkB"], (0.170328, 0, 0.071091), quat_about((0, 1, 0), 0.78), 1e-6)
    same(poses(two, {"joint12": [0.78]})["link2"], (0.071091, 0, 0.029672), quat_about((0, 1, 0), 0.78), 1e-6)
    kinds = [b.joint.type for b in arm.bodies]
    assert kinds == ["fixed", "hinge", "slide", "universal", "screw", "ball"] and sum(JOINT_TYPES[k].nv for k in kinds) == 8
    assert by_name(arm)["hand"].joint.stiffness.tolist() == [2, 1.5] and by_name(arm)["nut"].joint.params["pitch"][0] == pytest.approx(
        0.02 / 2 / math.pi
    )


def corpus_ids():
    return pytest.mark.parametrize("path", models("sdf"), ids=lambda p: p.stem)


def of_oracle(joint, entry, x):
    """xsim's q of the engine's q of a joint."""
    if joint.type == "free":
        return [*x[4:7], *x[:4]]
    if joint.type == "ball":
        q = quat_rpy(*x)
        return quat_conj(q) if joint.reversed else q
    return x[::-1] if joint.reversed else x


@needs_corpus
@corpus_ids()
def test_corpus_specs_have_the_engines_numbers(path):
    spec, facts = quiet(path), oracle(path)
    bodies = by_name(spec)
    assert sorted(bodies) == sorted(facts["bodies"])
    np.testing.assert_array_equal(spec.option.gravity, facts["gravity"])
    loops = {j["name"] for j in facts.get("loop_joints", [])}
    assert {b.joint.name for b in spec.bodies} == {j["name"] for j in facts["joints"]}
    assert {c.name for c in spec.constraints if c.kind != "mimic"} == loops
    for name, numbers in facts["body_inertia"].items():
        inertial = bodies[name].inertial
        np.testing.assert_allclose(inertial.mass, numbers["mass"], rtol=1e-12)
        np.testing.assert_allclose(inertial.com, numbers["com"], atol=1e-12)
        np.testing.assert_allclose(tensor(inertial.inertia), numbers["inertia_com"], atol=1e-12)
    held = {b.joint.name: b.joint for b in spec.bodies}
    for entry in facts["joints"]:
        joint = held[entry["name"]]
        ranges = joint.position_range
        if ranges is not None:
            np.testing.assert_array_equal(ranges[:, 0], entry.get("lower", [-np.inf] * len(ranges)))
            np.testing.assert_array_equal(ranges[:, 1], entry.get("upper", [np.inf] * len(ranges)))
        if entry["type"] not in ("fixed", "floating"):
            np.testing.assert_array_equal(joint.damping, entry.get("damping", np.zeros(len(joint.damping))))
        if "friction" in entry:
            np.testing.assert_array_equal(joint.friction, entry["friction"])
    for k, state in enumerate(facts["states"]):
        q = {e["name"]: of_oracle(held[e["name"]], e, np.array(state["q"][e["q"][0] : sum(e["q"])])) for e in facts["joints"]}
        found = poses(spec, q)
        for name, pose in state["body_pose"].items():
            same(found[name], pose[:3], pose[3:], 1e-9)
        if k == 0:
            drawn = poses(spec)
            for name, pose in state["body_pose"].items():
                same(drawn[name], pose[:3], pose[3:], 1e-9)
    frames = {f[0]: f[1:] for f in spec.frames}
    for name, pose in facts["frame_pose"].items():
        index, pos, quat = frames[name]
        base = drawn[spec.bodies[index].name] if index >= 0 else Pose()
        same(base @ Pose(quat, pos), pose[:3], pose[3:], 1e-9)


WORDS = {
    "auto_inertia_without_collision": ("a", "auto", "collision"), "bad_syntax_pose": ("robot1", "pose"),
    "include_cycle": ("include_cycle.sdf",),
    "include_remote": ("uri", "https://fuel.gazebosim.org"), "inertia_triangle": ('"a"', "inertia"), "inertial_invalid": ("link", "mass"),
    "invalid_xml_syntax": ("line 5",), "joint_axis_invalid_expressed_in": ('joint name="joint"', "xyz"),
    "joint_child_world": ("joint", "world"),
    "joint_invalid_child": ("joint", "child", "invalid"), "joint_invalid_parent": ("joint", "parent", "invalid"),
    "joint_invalid_parent_same_as_child": ("joint", "link"), "joint_invalid_resolved_parent_same_as_child": ("J2", "L2"),
    "limits_reversed": ("j", "limit"), "link_joint_namesake_1_7": ("attachment",), "mimic_missing_joint": ("j", "mimic", "nobody"),
    "missing_axis": ("j", "axis"), "missing_joint_type": ("j", "type"), "missing_link_name": ("link", "name"),
    "missing_parent": ("j", "parent"),
    "missing_version": ("sdf", "version"), "model_duplicate_joints": ("joint",), "model_duplicate_links": ("link",),
    "model_frame_invalid_attached_to": ("F3", "A"), "model_frame_invalid_attached_to_cycle": ("F1", "F2", "cycle"),
    "model_invalid_canonical_link": ("canonical_link", "link3"), "model_invalid_frame_relative_to": ("F", "pose", "A"),
    "model_invalid_frame_relative_to_cycle": ("F1", "cycle"), "model_invalid_placement_frame": ("placement_frame", "link3"),
    "model_invalid_reserved_names": ("__frame__", "reserved"), "negative_damping": ("j", "damping", "-1"), "negative_mass": ('"a"', "mass"),
    "nested_without_links_invalid": ("model", "no link"), "pose_five_numbers": ('"a"', "pose", "5"),
    "pose_not_finite": ('"a"', "pose", "nan"),
    "pose_quat_degrees": ('"a"', "pose", "degrees"), "pose_unknown_format": ('"a"', "pose", "quat_wxyz"),
    "root_multiple_models": ("robot2",),
    "universal_parallel_axes": ("j", "parallel"), "universal_without_axis2": ("j", "axis2"),
    "unknown_joint_type": ("j", "hinge", "revolute"),
    "unsupported_version": ("version", "9.9"), "world_frame_invalid_attached_to_scope": ("F", "M2::M1::L1"), "zero_axis": ("j", "axis"),
}  # fmt: skip


@needs_corpus
def test_corpus_bad_files_are_refused_with_their_element():
    folder = corpus() / "models/sdf/invalid"
    assert {p.stem for p in folder.glob("*.sdf")} == set(WORDS)
    for name, words in WORDS.items():
        with pytest.raises(ParseError) as caught:
            parse(folder / f"{name}.sdf", strict=name in ("inertia_triangle", "link_joint_namesake_1_7"))
        assert caught.value.line and all(word in str(caught.value) for word in words), str(caught.value)
