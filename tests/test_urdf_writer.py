"""The writer of URDF: round trips of the corpus, models of other formats, what URDF cannot say, and Pinocchio on what is written."""

from __future__ import annotations

import dataclasses
import re
import warnings

import jax
import numpy as np
import packages
import pytest
from comparing import close
from corpus import corpus, models, needs_corpus
from lxml import etree
from test_mjcf_writer import differences

import xsim
from xsim.io.urdf.writer.document import _roll_pitch_yaw
from xsim.joints.types import JOINT_TYPES
from xsim.poses import normalized, quat_rpy, rotate
from xsim.spec import BodySpec, ConstraintSpec, GeomSpec, InertialSpec, JointSpec, ModelSpec

CLOSE = 1e-9
BALL = InertialSpec(1.0, np.zeros(3), np.array([0.1, 0.1, 0.1, 0, 0, 0]))
ARM = """<mujoco model="arm"><compiler angle="radian"/>
<asset><mesh name="wedge" vertex="0 0 0  .2 0 0  0 .1 0  0 0 .1  .2 .1 0" scale="1 1 1.5"/></asset>
<worldbody>
  <geom type="box" size=".2 .2 .05" pos="0 0 -.05"/>
  <body name="shoulder" pos=".1 .2 .3" euler=".3 -.2 .5">
    <joint name="lift" type="slide" axis="0 1 1" range="-.2 .3" limited="true" ref=".05"/>
    <joint name="yaw" axis="0 0 1" pos=".05 0 0" damping=".2" ref=".3"/>
    <joint name="pitch" axis="1 2 0" pos="0 .03 .01" frictionloss=".1" range="-1 2" limited="true"/>
    <geom type="capsule" size=".03 .1" pos="0 0 .1" mass="1" friction=".7"/>
    <geom type="mesh" mesh="wedge" pos=".1 0 0" euler="0 .4 0" mass=".5" friction=".7" rgba="1 0 0 1"/>
    <body name="hand" pos="0 .1 .4" euler="0 1.5707963267948966 .2">
      <joint name="grip" axis="1 0 0" pos="0 0 -.05"/>
      <geom type="cylinder" size=".02 .05" mass=".3"/>
      <body name="tool" pos=".1 0 0"><geom type="sphere" size=".02" mass=".1" contype="0" conaffinity="0"/></body>
    </body>
  </body>
</worldbody>
<actuator><motor joint="pitch" gear="20" ctrlrange="-1 1"/><motor joint="grip" gear="-3" forcerange="-2 2"/></actuator>
</mujoco>"""


def read(source, **options) -> ModelSpec:
    """A model of a file, or of the text of a URDF."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return xsim.parse_text(source, "urdf", **options) if isinstance(source, str) else xsim.parse(source, **options)


def written(spec: ModelSpec, path) -> ModelSpec:
    """The model as it reads back from a file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", xsim.WriteWarning)
        xsim.write(spec, path, unsupported="warn")
    return read(path)


@needs_corpus
@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in models("urdf")])
def test_what_is_written_reads_back_as_the_same_spec(path, tmp_path):
    spec = read(path)
    back = written(spec, tmp_path / "robot.urdf")
    assert not list(differences(canonical(back), canonical(spec), tolerance=CLOSE))


def canonical(spec: ModelSpec) -> ModelSpec:
    """The spec with zeros where no damping or dry friction is given, without the names of mesh files, which are
    copies, and with quaternions of one sign."""

    def given(joint):
        nv = JOINT_TYPES[joint.type].nv
        numbers = {name: getattr(joint, name) for name in ("damping", "friction")}
        filled = {name: np.zeros(nv) if value is None else np.nan_to_num(value) for name, value in numbers.items()}
        return dataclasses.replace(joint, **filled)

    def bare(geoms):
        return tuple(dataclasses.replace(geom, path=None, file=None) for geom in geoms)

    def upright(body):
        return normalized(body.quat if body.quat[np.flatnonzero(body.quat)[0]] > 0 else -body.quat)

    bodies = tuple(
        dataclasses.replace(body, quat=upright(body), joints=tuple(map(given, body.joints)), geoms=bare(body.geoms)) for body in spec.bodies
    )
    meshes = tuple(dataclasses.replace(mesh, name="") for mesh in spec.meshes)
    return spec.replace(bodies=bodies, world_geoms=bare(spec.world_geoms), meshes=meshes)


@pytest.mark.slow
def test_a_chain_of_joints_moves_the_same_bodies(x64, tmp_path):
    """Poses of the bodies, mass matrix and bias at the same coordinates; the last link of each body is the body."""
    spec = xsim.parse_text(ARM, "mjcf")
    back = written(spec, tmp_path / "arm.urdf")
    assert [body.name for body in back.bodies] == ["shoulder_1", "shoulder_2", "shoulder", "hand", "tool"]
    with jax.disable_jit():
        ours, theirs = xsim.build(spec), xsim.build(back)
        theirs = theirs.replace({"option.gravity": ours.option.gravity})
        v = np.array([0.2, -0.4, 0.5, 0.7])
        q = np.asarray(ours.topology.initial[0]) + v
        places = [theirs.body_names.index(name) for name in ours.body_names]
        (pos, quat), (found_pos, found_quat) = (map(np.asarray, xsim.kinematics(model, q)) for model in (ours, theirs))
        found_quat = found_quat[places] * np.sign(np.sum(found_quat[places] * quat, -1, keepdims=True))
        np.testing.assert_allclose(found_quat, quat, atol=CLOSE)
        np.testing.assert_allclose(found_pos[places], [p + rotate(r, x) for p, r, x in zip(pos, quat, OFFSETS, strict=True)], atol=CLOSE)
        close("mass matrix", xsim.mass_matrix(theirs, q), xsim.mass_matrix(ours, q), CLOSE)
        close("bias", xsim.bias(theirs, q, v), xsim.bias(ours, q, v), CLOSE)


OFFSETS = np.array([[0.0, 0.03, 0.01], [0.0, 0.0, -0.05], [0.0, 0.0, 0.0]])
"""The last joint of each body of ARM in the body."""


def test_numbers_of_joints_and_shapes(tmp_path):
    pytest.importorskip("trimesh", reason="trimesh, which reads the hull of the mesh, is not installed: pip install 'xsim[mesh]'")
    back = written(xsim.parse_text(ARM, "mjcf"), tmp_path / "arm.urdf")
    lift, yaw, pitch, grip, _ = (body.joint for body in back.bodies)
    assert [lift.type, yaw.type, pitch.type, grip.type] == ["slide", "hinge", "hinge", "hinge"]
    assert lift.position_range.tolist() == [[-0.2, 0.3]] and yaw.position_range is None and pitch.position_range.tolist() == [[-1.0, 2.0]]
    assert yaw.damping == [0.2] and pitch.friction == [0.1]
    assert [joint.actuator for joint in (lift, yaw, pitch, grip)] == ["passive", "passive", "force", "force"]
    assert pitch.force_range.tolist() == [[-20.0, 20.0]] and grip.force_range.tolist() == [[-6.0, 6.0]]
    shoulder = back.bodies[2]
    assert {geom.contact.friction[0] for geom in shoulder.geoms if geom.collision} == {0.7}
    assert [geom.shape for geom in shoulder.geoms] == ["capsule", "capsule", "mesh", "mesh"]
    assert not any(geom.collision for geom in back.bodies[-1].geoms) and len(back.world_geoms) == 2
    assert shoulder.geoms[2].rgba == (1.0, 0.0, 0.0, 1.0)
    assert (tmp_path / "arm_meshes/wedge.obj").exists()


def test_the_root_of_a_floating_robot_is_its_base():
    base = BodySpec("base", -1, JointSpec("free"), inertial=BALL)
    leg = BodySpec("leg", 0, JointSpec("hinge", "hip", actuator="force"), inertial=BALL)
    root = etree.fromstring(xsim.to_urdf(ModelSpec(bodies=(base, leg))).encode())
    assert [link.get("name") for link in root.iter("link") if link.get("name")][:2] == ["base", "leg"]
    two = xsim.to_urdf(ModelSpec(bodies=(base, dataclasses.replace(base, name="other"))))
    assert re.findall('type="(.*)"', two) == ["floating", "floating"] and '<link name="world"' in two


def test_a_floating_base_that_is_damped_hangs_on_a_joint():
    rubbed = JointSpec("free", "base_joint", damping=np.full(6, 0.3), friction=np.full(6, 0.1))
    (back,) = read(xsim.to_urdf(ModelSpec(bodies=(BodySpec("base", -1, rubbed, inertial=BALL),)))).bodies
    assert (back.joint.type, back.joint.name) == ("free", "base_joint")
    assert (back.joint.damping.tolist(), back.joint.friction.tolist()) == ([0.3] * 6, [0.1] * 6)


def test_free_bodies_of_mjcf_are_floating():
    text = """<mujoco><worldbody><geom type="box" size="1 1 .1" pos="0 0 -.1"/>
      <body name="a" pos="0 0 1" euler="0 90 30"><freejoint/><geom size=".1"/></body>
      <body name="b" pos="0 2 1"><joint type="free" damping=".5"/><geom size=".2"/></body></worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf")
    back = read(xsim.to_urdf(spec))
    for body, found in zip(spec.bodies, back.bodies, strict=True):
        np.testing.assert_allclose(found.joint.q0, body.joint.q0, atol=1e-15)
        np.testing.assert_array_equal(0.0 if found.joint.damping is None else found.joint.damping, body.joint.damping)


def test_the_link_of_a_floating_joint_is_where_the_joint_is():
    at = np.array([0.1, 0.0, 0.0])
    bodies = tuple(BodySpec(name, -1, JointSpec("free", pos=at), inertial=BALL) for name in "ab")
    for body in read(xsim.to_urdf(ModelSpec(bodies=bodies))).bodies:
        np.testing.assert_allclose(body.inertial.com, BALL.com - at, atol=1e-15)


def test_a_planar_joint_with_a_drive_is_a_chain():
    bounds = np.array([[-1.0, 1.0], [-2.0, 2.0], [-3.0, 3.0]])
    driven = JointSpec("planar", "base", actuator="force", force_range=bounds, velocity_range=bounds, params={"axes": np.eye(3)})
    back = read(xsim.to_urdf(ModelSpec(bodies=(BodySpec("base", -1, driven, inertial=BALL),)))).bodies
    assert [body.joint.type for body in back] == ["slide", "slide", "hinge"]
    np.testing.assert_array_equal(np.concatenate([body.joint.force_range for body in back]), bounds)
    np.testing.assert_array_equal(np.concatenate([body.joint.velocity_range for body in back]), bounds)


def test_names_are_unique_and_none_is_world():
    bodies = tuple(BodySpec(name, -1, JointSpec("hinge", "j"), inertial=BALL) for name in ("world", "a", "a", ""))
    back = read(xsim.to_urdf(ModelSpec(bodies=bodies)))
    assert [body.name for body in back.bodies] == ["world_2", "a", "a_2", "link_3"]
    assert [body.joint.name for body in back.bodies] == ["j", "j_2", "j_3", "j_4"]


def test_made_names_leave_those_of_the_model_alone():
    """Links between joints, joints of welds and parts of joints; also in MJCF, where the parts of a joint are joints."""
    plane = JointSpec("planar", "j", params={"axes": np.eye(3)[[1, 2, 0]]})
    two = BodySpec("a", -1, plane, inertial=BALL)
    named = tuple(BodySpec(name, 0, JointSpec("hinge", joint), inertial=BALL) for name, joint in (("a_1", "j_1"), ("a_2_2", "b_joint")))
    spec = ModelSpec(bodies=(two, BodySpec("b", -1, JointSpec("fixed"), inertial=BALL), *named))
    back = read(xsim.to_urdf(spec))
    assert {body.name: body.joint.name for body in back.bodies} == {
        "a_1_2": "j_1_2", "a_2": "j_2", "a": "j_3", "b": "b_joint_2", "a_1": "j_1", "a_2_2": "b_joint",
    }  # fmt: skip
    mjcf = xsim.parse_text(xsim.to_mjcf(spec, unsupported="warn"), "mjcf")
    assert {body.name: [joint.name for joint in body.joints] for body in mjcf.bodies} == {
        "a": ["j_1_2", "j_2", "j_3"], "b": [], "a_1": ["j_1"], "a_2_2": ["b_joint"],
    }  # fmt: skip


def test_a_mimic_counts_from_zero():
    bodies = tuple(BodySpec(name, -1, JointSpec("hinge", f"{name}_joint"), inertial=BALL) for name in "ab")
    follow = ConstraintSpec("mimic", coordinates=((1, 0), (0, 0)), multiplier=2.0, offset=0.5, reference=0.1)
    (back,) = read(xsim.to_urdf(ModelSpec(bodies=bodies, constraints=(follow,)))).constraints
    assert back.coordinates == ((1, 0), (0, 0)) and (back.multiplier, back.offset) == (2.0, 0.3)
    twice = ModelSpec(bodies=bodies, constraints=(follow, follow))
    with pytest.raises(xsim.WriteError, match="each follow one other"):
        xsim.to_urdf(twice)


def test_a_soft_equality_of_two_joints_is_a_mimic_with_a_warning():
    text = """<mujoco><worldbody>
      <body name="a"><joint name="x" ref="20"/><geom size=".1"/></body><body name="b"><joint name="y" ref="10"/><geom size=".1"/></body>
    </worldbody><equality><joint joint1="y" joint2="x" polycoef=".1 2 0 0 0"/></equality></mujoco>"""
    spec = xsim.parse_text(text, "mjcf")
    with pytest.warns(xsim.WriteWarning, match="follows the other one exactly"):
        (mimic,) = read(xsim.to_urdf(spec, unsupported="warn")).constraints
    assert mimic.coordinates == ((1, 0), (0, 0)) and mimic.multiplier == 2.0
    np.testing.assert_allclose(mimic.offset, 0.1 + np.radians(10 - 2 * 20), atol=1e-15)


@pytest.mark.parametrize("angles", [(0.3, np.pi / 2, -0.7), (0.1, -np.pi / 2 + 1e-9, 2.0), (3.0, 1.0, -3.0), (0.0, 0.0, np.pi)])
def test_angles_are_precise_near_the_vertical(angles):
    quat = normalized(quat_rpy(*angles))
    back = quat_rpy(*_roll_pitch_yaw(quat))
    assert min(np.abs(back - quat).max(), np.abs(back + quat).max()) < 1e-15


def arm(joint=None, geom=None, **fields) -> ModelSpec:
    geoms = () if geom is None else (geom,)
    return ModelSpec(bodies=(BodySpec("arm", -1, joint or JointSpec("hinge", "elbow"), geoms=geoms, inertial=BALL),), **fields)


PLANE = GeomSpec("plane", np.zeros(2), contact=xsim.spec.SurfaceSpec())
LOST = {
    "armature": (arm(JointSpec("hinge", "elbow", armature=np.ones(1))), "joint 'elbow': armature .1.0.; URDF has damping and dry friction"),
    "spring": (arm(JointSpec("hinge", "elbow", stiffness=np.ones(1))), "stiffness"),
    "servo": (arm(JointSpec("hinge", "elbow", actuator="servo")), "driven by forces"),
    "one-sided force": (arm(JointSpec("hinge", actuator="force", force_range=np.array([[0.0, 1.0]]))), "forces from 0 to 1"),
    "velocities": (arm(JointSpec("hinge", velocity_range=np.array([[-2.0, 1.0]]))), "velocities from -2 to 1"),
    "drive of a free joint": (arm(JointSpec("free", actuator="force")), "limits or a drive of a free joint"),
    "motor of a free joint": (
        arm(JointSpec("free"), actuators=(xsim.spec.ActuatorSpec("m", "joint", (0, 0)),)), "limits or a drive of a free joint"
    ),
    "dampers along the body": (
        arm(JointSpec("planar", damping=np.array([1.0, 2.0, 0.0]), damper_axes="body", params={"axes": np.eye(3)[[1, 2, 0]]})),
        "damping .1.0, 2.0. along axes of the body",
    ),
    "plane": (arm(geom=PLANE), "shape plane; URDF has box, sphere, cylinder, capsule, mesh"),
    "loop": (arm(constraints=(ConstraintSpec("distance", bodies=(0, -1)),)), "kind 'distance'"),
    "equality": (arm(equalities=(xsim.spec.EqualitySpec("joint", items=((0, 0),)),)), "equality 0: a soft joint equality; URDF has"),
    "controller": (arm(actuators=(xsim.spec.ActuatorSpec("m", "joint", (0, 0), bias="affine"),)), "actuator 'm'"),
    "gravity": (arm(option=xsim.spec.OptionSpec(gravity=np.zeros(3))), "gravity .0.0, 0.0, 0.0."),
    "fluid": (arm(option=xsim.spec.OptionSpec(density=1.2)), "a fluid"),
}


@pytest.mark.parametrize("name", LOST)
def test_what_urdf_cannot_say_is_an_error_or_a_line_of_a_warning(name):
    spec, text = LOST[name]
    with pytest.raises(xsim.WriteError, match=text):
        xsim.to_urdf(spec)
    with pytest.warns(xsim.WriteWarning, match=text):
        assert "<link" in xsim.to_urdf(spec, unsupported="warn")


def test_what_leaves_no_model_is_an_error_in_both_cases():
    for joint in (JointSpec("ball", "elbow"), JointSpec("rr", "elbow"), JointSpec("screw", "elbow")):
        for unsupported in ("error", "warn"):
            with pytest.raises(xsim.WriteError, match="joint 'elbow': .*URDF has"):
                xsim.to_urdf(arm(joint), unsupported=unsupported)
    with pytest.raises(ValueError, match="unsupported: found 'ignore'; allowed: error, warn"):
        xsim.to_urdf(arm(), unsupported="ignore")


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    with pytest.raises(xsim.WriteError):
        xsim.write(LOST["armature"][0], tmp_path / "arm.urdf")
    assert not list(tmp_path.iterdir())


@needs_corpus
@pytest.mark.nightly
def test_pinocchio_computes_the_same_of_the_original_and_of_the_written_file(tmp_path):
    """Mass matrix and bias; the models whose joints Pinocchio takes."""
    paths = [path for path in models("urdf") if path.stem != "joint_kinds"] + [corpus() / "models/mjcf/rl/half_cheetah.xml"]
    copies = [tmp_path / f"{path.stem}.urdf" for path in paths]
    for path, copy in zip(paths, copies, strict=True):
        written(read(path), copy)
    originals = [path for path in paths if path.suffix == ".urdf"]
    answers = packages.ask("pin", "facts_pinocchio.py", [*originals, *copies])
    for path, wanted, found in zip(originals, answers, answers[len(originals) :], strict=False):
        assert "error" not in found, (path, found)
        for name in ("M", "bias"):
            close(f"{path.stem}: {name}", found["free"][name], wanted["free"][name], CLOSE)
    assert "error" not in answers[-1] and len(answers[-1]["fixed"]["v"]) == 9
