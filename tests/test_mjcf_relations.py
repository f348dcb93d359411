"""What relates the bodies of an MJCF model: contacts, equalities, tendons, actuators, sensors, keyframes, custom data; what is refused."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from corpus import corpus, needs_corpus

import xsim
from xsim.io import ParseError, SuspiciousInputWarning, parse, parse_text

BODIES = """
<worldbody>
 <site name="w" pos="0 0 2"/><camera name="eye" resolution="4 4"/>
 <body name="b">
  <joint name="j" axis="0 1 0" range="-30 40"/><joint name="s" type="slide" axis="1 0 0"/>
  <geom name="g" size=".1"/><geom name="box" type="box" size=".1 .1 .1"/><site name="s1"/><site name="s2" pos="0 0 1"/>
 </body>
 <body name="c" pos="2 0 0"><joint name="ball" type="ball"/><joint name="z" type="slide"/><geom name="g2" size=".1"/></body>
 <body name="f" pos="4 0 0"><freejoint name="free"/><geom name="gf" size=".1"/></body>
 <body name="m" mocap="true" pos="1 2 3"><geom size=".1"/></body>
</worldbody>"""


def read(text: str, defaults: str = "", head: str = "", rules: str = "3.2"):
    return parse_text(f"<mujoco>{head}<default>{defaults}</default>{BODIES}{text}</mujoco>", "mjcf", file="m.xml", rules=rules)


def actuator(text: str, defaults: str = "", rules: str = "3.2", head: str = ""):
    tendon = "<tendon><fixed name='t' range='-1 3'><joint joint='j' coef='1'/></fixed></tendon>"
    return read(f"{tendon}<actuator>{text}</actuator>", defaults, head, rules).actuators[0]


def fixed(text: str = "", inside: str = '<joint joint="j" coef="1"/>') -> str:
    return f"<tendon><fixed name='t' {text}>{inside}</fixed></tendon>"


def spatial(*path: str, text: str = "") -> str:
    parts = {"P": '<pulley divisor="2"/>'}
    inside = "".join(parts.get(p) or (f'<geom geom="{p}"/>' if p[0] in "gb" else f'<site site="{p}"/>') for p in path)
    return f"<tendon><spatial name='t' {text}>{inside}</spatial></tendon>"


# ---- the corpus --------------------------------------------------------------------------------------------------------------


def _facts():
    root = corpus()
    if root is None:
        return
    for path in sorted((root / "oracles" / "mjcf" / "3.2.7").rglob("*.json")):
        facts = json.loads(path.read_text())
        yield root / "models" / "mjcf" / facts["model"].split("models/mjcf/")[-1], facts


@pytest.mark.slow
@needs_corpus
def test_relations_of_the_corpus():
    """Counts, names, sensor addresses and length ranges of every file that needs no plugin are those of 3.2.7."""
    read_models, plugins = 0, []
    for path, facts in _facts():
        if "error" in facts:
            continue
        try:
            spec = parse(path)
        except ParseError as error:
            assert "plugin" in str(error) and error.line, error
            plugins.append(path.stem)
            continue
        read_models += 1
        # 3.2.7 loses the last of the actuators that <replicate> makes for replicated tendons.
        lost = path.stem == "lengthrange"
        parts = {"nu": spec.actuators, "ntendon": spec.tendons, "nsensor": spec.sensors, "neq": spec.equalities, "npair": spec.pairs,
                 "nexclude": spec.exclude, "nkey": spec.keys}  # fmt: skip
        found = {key: len(part) for key, part in parts.items()}
        found["na"] = sum(a.widths[1] for a in spec.actuators)
        found["nsensordata"] = sum(s.dim for s in spec.sensors)
        found["nu"] -= lost
        assert found == {key: facts["size"][key] for key in found}, path
        for key, part in (("tendon", spec.tendons), ("actuator", spec.actuators), ("sensor", spec.sensors), ("equality", spec.equalities),
                          ("key", spec.keys)):  # fmt: skip
            if key in facts["names"]:
                assert [item.name for item in part][: len(part) - (lost and key == "actuator")] == facts["names"][key], path
        if spec.sensors:
            dims = [s.dim for s in spec.sensors]
            assert dims == facts["sensor"]["dim"] and np.cumsum([0, *dims[:-1]]).tolist() == facts["sensor"]["adr"], path
            types = [
                t.lower().replace("geom", "").replace("dist", "distance").replace("actfrc", "actuatorfrc") for t in facts["sensor"]["type"]
            ]
            assert ["plugin" if s.config else s.kind for s in spec.sensors] == types, path
        # 3.2.7 takes the limits of the wrong target for all actuators but the first.
        if "actuator_lengthrange" in facts and path.stem != "lengthrange_uselimit":
            for a, given in zip(spec.actuators, facts["actuator_lengthrange"], strict=not lost):
                assert a.length_range is None or np.allclose(a.length_range, given, rtol=1e-12), path
    assert read_models > 150 and len(plugins) < 10, plugins


REFUSED = corpus() and json.loads((corpus() / "models" / "mjcf" / "refused" / "refused.json").read_text())


@needs_corpus
@pytest.mark.parametrize("name", sorted(REFUSED or {}))
def test_refused_files(name):
    path = corpus() / "models" / "mjcf" / "refused" / name
    with pytest.raises(ParseError) as caught:
        parse(path)
    assert caught.value.line and str(caught.value).startswith(f"{path}:")
    for word in REFUSED[name]["words"]:
        assert word in str(caught.value)


# ---- actuators ---------------------------------------------------------------------------------------------------------------

GENERAL = '<general biasprm="5 -1 3 7" dynprm="4" gainprm="2 3 4 5"/>'
NESTED = '<position kp="7" kv="2"/><default class="n"><velocity kv="3"/></default>'
FULL = (0.75, 1.05, 30.0, 200.0, 0.3, 1.6, 2.0, 1.3, 1.2)

# Element, defaults, rules: dynamics, gain, bias, their first numbers and the damping ratio. Numbers of releases 3.2.7 and 4.0.0.
SERVOS = [
    ('<motor joint="j"/>', "", "3.2", "none", "fixed", "none", (1.0,), (1.0,), (), None),
    ('<position joint="j" kp="3" kv="2"/>', "", "3.2", "none", "fixed", "affine", (1.0,), (3.0,), (0, -3.0, -2.0), None),
    ('<position joint="j" timeconst=".1"/>', "", "3.2", "filterexact", "fixed", "affine", (0.1,), (1.0,), (0, -1.0), None),
    ('<position joint="j"/>', '<position dampratio="1" kp="4"/>', "3.2", "none", "fixed", "affine", (1.0,), (4.0,), (0, -4.0), 1.0),
    ('<position joint="j" kv="0"/>', '<position kv="1"/>', "3.2", "none", "fixed", "affine", (1.0,), (1.0,), (0, -1.0, -1.0), None),
    ('<position joint="j" kv="0"/>', '<position kv="1"/>', "4.0", "none", "fixed", "affine", (1.0,), (1.0,), (0, -1.0), None),
    ('<general joint="j" biastype="affine" gainprm="3" biasprm="0 -3 2"/>', "", "3.2", "none", "fixed", "affine", (1.0,), (3.0,),
     (0, -3.0), 2.0),
    ('<position joint="j"/>', GENERAL, "3.2", "none", "fixed", "affine", (4.0,), (2.0, 3, 4, 5), (5, -2.0, 0, 7), 3.0),
    ('<position joint="j"/>', GENERAL, "4.0", "none", "fixed", "affine", (1.0,), (2.0,), (0, -2.0), 3.0),
    ('<velocity joint="j"/>', '<position kp="3"/>', "3.2", "none", "fixed", "affine", (1.0,), (3.0,), (0, 0, -3.0), None),
    ('<velocity joint="j"/>', '<position kp="3"/>', "4.0", "none", "fixed", "affine", (1.0,), (1.0,), (0, 0, -1.0), None),
    ('<position class="n" joint="j"/>', NESTED, "3.2", "none", "fixed", "affine", (1.0,), (3.0,), (0, -3.0, -3.0), None),
    ('<position class="n" joint="j"/>', NESTED, "4.0", "none", "fixed", "affine", (1.0,), (7.0,), (0, -7.0, -2.0), None),
    ('<general class="n" joint="j"/>', NESTED, "4.0", "none", "fixed", "affine", (1.0,), (3.0,), (0, 0, -3.0), None),
    ('<damper joint="j"/>', '<damper kv="2" ctrlrange="0 1"/>', "3.2", "none", "affine", "none", (1.0,), (0, 0, -2.0), (), None),
    ('<cylinder joint="s" diameter="2" bias="1 2 3"/>', "", "3.2", "filter", "fixed", "affine", (1.0,), (np.pi,), (1.0, 2, 3), None),
    ('<muscle joint="j" vmax="2"/>', '<muscle force="30" lmin=".3"/>', "3.2", "muscle", "muscle", "muscle", (0.01, 0.04), FULL, FULL, None),
    ('<muscle joint="j" range=".8 1"/>', '<muscle timeconst="1 0"/>', "3.2", "muscle", "muscle", "muscle", (0.01, 0.04),
     (0.8, 1.0, -1, 200, 0.5, 1.6, 1.5, 1.3, 1.2), (0.8, 1.0, -1, 200, 0.5, 1.6, 1.5, 1.3, 1.2), None),
    ('<muscle joint="j"/>', '<muscle timeconst="1 0"/>', "4.0", "muscle", "muscle", "muscle", (1.0, 0.0),
     (0.75, 1.05, -1, 200, 0.5, 1.6, 1.5, 1.3, 1.2), (0.75, 1.05, -1, 200, 0.5, 1.6, 1.5, 1.3, 1.2), None),
]  # fmt: skip


@pytest.mark.parametrize("text, defaults, rules, dynamics, gain, bias, dynprm, gainprm, biasprm, ratio", SERVOS)
def test_actuator_shortcuts(text, defaults, rules, dynamics, gain, bias, dynprm, gainprm, biasprm, ratio):
    a = actuator(text, defaults, rules)
    assert (a.dynamics, a.gain, a.bias, a.damp_ratio) == (dynamics, gain, bias, ratio)
    for given, wanted in ((a.dynamics_params, dynprm), (a.gain_params, gainprm), (a.bias_params, biasprm)):
        assert given == pytest.approx([*wanted, *[0.0] * (10 - len(wanted))], rel=1e-14)


# Attributes of a class and of an element; the parameters of gain, bias and dynamics in MuJoCo 4.0.0.
MOTORS = [
    ('input="pos" controller="1 2 3 4 5 6"', 'controller="9"', (2, 0.1, 0, 0, 9, 2, 3, 6), (), (0, 0, 0, 0, 0, 0, 0, 4, 5)),
    ('cogging="1 2 3"', 'cogging="9"', (2, 0.1), (9, 2, 3), ()),
    ('lugre="1 2 3 4 5"', 'lugre="9"', (2, 0.1), (0, 0, 0, 3, 4, 5), (0, 0, 0, 0, 0, 9, 2)),
    ('thermal="1 0 2 4 5 6"', 'thermal="9"', (2, 0.1, 4, 5), (), (0, 0, 9, 2, 6)),
    ('thermal="1 2 0 4 5 6"', 'thermal="3 0 9"', (2, 0.1, 4, 5), (), (0, 0, 3, 3, 6)),
    ('inductance="0 .2" saturation="0 1 7"', 'saturation="9"', (2, 0.1), (), (0.2, 7)),
    ('inductance="0 .2"', 'inductance=".3"', (2, 0.1), (), (0.15,)),
    ('motorconst=".1 .2"', 'motorconst=".3"', (2, 0.3), (), ()),
]


@pytest.mark.parametrize("default, given, gain, bias, dynamics", MOTORS)
def test_motors_given_in_part(default, given, gain, bias, dynamics):
    """The class has the numbers that the element leaves out, but not those of the motor's constants and of its inductance."""
    constant = "" if "motorconst" in default else 'motorconst=".1"'
    a = actuator(f'<dcmotor joint="j" {given}/>', f'<dcmotor {constant} resistance="2" {default}/>', "4.0")
    for found, wanted in ((a.gain_params, gain), (a.bias_params, bias), (a.dynamics_params, dynamics)):
        assert found == pytest.approx([*wanted, *[0.0] * (10 - len(wanted))], rel=1e-14)


def test_stiffness_and_damping_given_in_part():
    """The class has the coefficients that the element leaves out. Numbers of MuJoCo 4.0.0."""
    default = 'stiffness="21 6 7" damping="1 2 3"'
    defaults = f'<joint {default}/><tendon {default}/><motor damping="1 2 3"/>'
    given, motor = 'stiffness="3 5" damping="4"', '<actuator><motor joint="j" damping="9"/></actuator>'
    bodies = BODIES.replace('name="j"', f'name="j" {given}')
    spec = parse_text(f"<mujoco><default>{defaults}</default>{bodies}{fixed(given)}{motor}</mujoco>", "mjcf", rules="4.0")
    for x in (spec.bodies[0].joints[0], spec.tendons[0]):
        assert (x.stiffness, x.stiffness_poly, x.damping, x.damping_poly) == (3.0, (5.0, 7.0), 4.0, (2.0, 3.0))
    assert (spec.actuators[0].damping, spec.actuators[0].damping_poly) == (9.0, (2.0, 3.0))


def test_actuator_ranges():
    assert actuator('<motor joint="j" ctrlrange="-1 1" forcerange="1 -1"/>').ctrl_range == (-1, 1)
    assert actuator('<motor joint="j" ctrlrange="-1 1" forcerange="1 -1"/>').force_range is None
    assert actuator('<motor joint="j" ctrlrange="-1 1" ctrllimited="false"/>').ctrl_range is None
    assert actuator('<adhesion body="b" ctrlrange="0 2"/>', '<general ctrllimited="false"/>').ctrl_range == (0, 2)
    assert actuator('<intvelocity joint="j" inheritrange=".5"/>').act_range == pytest.approx(np.radians((-12.5, 22.5)))
    assert actuator('<position tendon="t" inheritrange="2"/>').ctrl_range == pytest.approx((-3, 5))
    assert actuator('<intvelocity joint="j"/>', rules="4.0").act_range is None


def test_length_ranges():
    rule = '<compiler><lengthrange mode="all" uselimit="true" useexisting="false"/></compiler>'
    assert actuator('<motor joint="j" gear="2" lengthrange="1 2"/>', head=rule).length_range == pytest.approx(np.radians((-30, 40)))
    assert actuator('<motor tendon="t"/>', head=rule).length_range == (-1, 3)
    assert actuator('<muscle joint="s"/>', head=rule).length_range is None
    assert actuator('<muscle joint="j" lengthrange="1 2"/>').length_range == (1, 2)
    assert actuator('<motor joint="j"/>').length_range == (0, 0)
    found = read('<actuator><muscle joint="j"/></actuator>', head='<compiler><lengthrange accel="5"/></compiler>')
    assert found.actuators[0].length_range is None and found.option.solver["length_range"] == {"accel": 5.0}


def test_transmissions():
    crank = actuator('<motor cranksite="s1" slidersite="s2" gear="2 3"/>', '<general cranklength=".3"/>')
    assert (crank.transmission, crank.target, crank.reference, crank.crank_length) == ("slidercrank", 1, 2, 0.3)
    assert crank.gear.tolist() == [2, 3, 0, 0, 0, 0]
    site = actuator('<motor site="s1" refsite="w"/>')
    assert (site.transmission, site.target, site.reference) == ("site", 1, 0)
    assert actuator('<motor jointinparent="ball"/>').target == (1, 0)
    assert actuator('<adhesion body="world" ctrlrange="0 1"/>').target == -1


# ---- the others --------------------------------------------------------------------------------------------------------------


def test_tendons():
    text = spatial("w", "g", "s1", "P", "s1", "s2", text='springlength=".2" range="0 1" solimplimit=".5"')
    (t,) = read(text, '<tendon solimplimit=".8 .9 .1 .2 3" frictionloss=".1" springlength="-1 0"/>').tendons
    assert [(w.kind, w.item) for w in t.path] == [("site", 0), ("geom", 0), ("site", 1), ("pulley", -1), ("site", 1), ("site", 2)]
    assert (t.spring_length, t.range, t.limit_soft.solimp, t.friction) == ((0.2, 0.2), (0, 1), (0.5, 0.9, 0.1, 0.2, 3), 0.1)
    (t,) = read(fixed("", '<joint joint="z" coef="2"/><joint joint="ball" coef="3"/>')).tendons
    assert [(w.item, w.value) for w in t.path] == [((1, 3), 2.0), ((1, 0), 3.0)] and t.spring_length is None


def test_equalities():
    text = (
        '<equality><connect body1="b" anchor="1 2 3" solref=".5"/><weld body1="b" body2="c" relpose="1 2 3 0 0 0 0" anchor="0 0 1"/>'
        '<weld body1="b" relpose="1 2 3 0 2 0 0" torquescale="2" active="false"/><connect site1="s1" site2="w"/>'
        '<joint joint1="s" joint2="z" polycoef="1 2"/></equality>'
    )
    connect, free, weld, sites, joint = read(text, '<equality solref=".1 3"/>').equalities
    assert (connect.items, connect.anchor.tolist(), connect.soft.solref) == ((0, -1), [1, 2, 3], (0.5, 3))
    assert free.relpose is None and free.anchor.tolist() == [0, 0, 1]
    assert weld.relpose.tolist() == [1, 2, 3, 0, 1, 0, 0] and (weld.torque_scale, weld.active) == (2, False)
    assert sites.sites and sites.items == (1, 0)
    assert joint.items == ((0, 1), (1, 3)) and joint.polycoef.tolist() == [1, 2, 0, 0, 0]


def test_a_slide_beside_a_ball_joint_can_be_held(x64):
    """By an equality, and by the spring of a tendon. The numbers are those of MuJoCo 4.0.0."""
    model = xsim.loads("""<mujoco><option><flag contact="disable"/></option><worldbody><body>
      <joint name="z" type="slide"/><joint type="ball"/><geom size=".1" mass="2" pos=".2 0 0"/></body></worldbody>
      <equality><joint joint1="z" polycoef=".1"/></equality>
      <tendon><fixed stiffness="3"><joint joint="z" coef="2"/></fixed></tendon></mujoco>""", "mjcf", rules="4.0")  # fmt: skip
    state = xsim.init(model, np.array([0.3, 0.6, 0.8, 0.0, 0.0]), np.array([0.5, 0.1, 0.2, 0.3]))
    np.testing.assert_allclose(xsim.forward(model, state).a, [-551.480608, 0.0, 689.4262283636364, 2363.635380363635], atol=1e-8)


HELD = """<mujoco><option gravity="0 0 0"/><worldbody><body name="m" mocap="true" pos="0 0 1"><site name="a"/></body>
  <body name="b" pos=".2 0 0"><joint type="slide" axis="0 0 1"/><joint type="slide" axis="1 0 0"/><geom size=".05" mass="1" contype="0"/>
    <site name="s"/></body></worldbody>
  <tendon><spatial name="t" stiffness="10"><site site="a"/><site site="s"/></spatial></tendon>{}</mujoco>"""
SERVOS_OF_MOCAP = """<actuator><position tendon="t" kp="5" dampratio="1"/>
  <position site="s" refsite="a" gear="0 0 1 0 0 0" kp="3" dampratio="1"/></actuator>"""


@pytest.mark.parametrize(("text", "acceleration"), [
    ("", [4.24026965, 0.90862921]),
    ('<equality><weld body1="b" body2="m"/></equality>', [990.21201348, 1230.04543146]),
    ('<equality><connect body1="m" body2="b" anchor="0 0 -.5"/></equality>', [990.21201348, 1230.04543146]),
    ('<equality><tendon tendon1="t"/></equality>', [1090.77535806, 233.73757673]),
    (SERVOS_OF_MOCAP, [14.50872021, 2.28324222]),
])  # fmt: skip
def test_mocap_bodies_move_away_from_where_relations_were_made(text, acceleration, x64):
    """Rest lengths, references of equalities and reflected inertias are those of the file's poses. Numbers of MuJoCo 4.0.0."""
    model = xsim.loads(HELD.format(text), "mjcf", rules="4.0")
    state = xsim.init(model, v=np.array([0.1, 0.2])).replace(mocap=np.array([[0.5, 0.3, 1.4, 1.0, 0.0, 0.0, 0.0]]))
    found = xsim.forward(model, state, np.zeros(model.nu) if model.nu else None).a
    np.testing.assert_allclose(found, acceleration, rtol=1e-8)


def test_contacts():
    model = read('<contact><pair geom1="g2" geom2="g" friction=".5"/><exclude body1="b" body2="world"/></contact>',
                 '<geom friction="9" margin="1"/><pair friction="1 2 3" condim="4"/>')  # fmt: skip
    (pair,) = model.pairs
    assert (pair.geoms, pair.condim, pair.friction, pair.margin) == ((0, 2), 4, (0.5, 2, 3, 0.0001, 0.0001), 0)
    assert (pair.solref, pair.friction_solref) == ((0.02, 1), (0, 0)) and model.exclude == ((0, -1),)


def test_sensors():
    text = (
        '<sensor><gyro site="s1" cutoff="2" noise=".1"/><framepos objtype="xbody" objname="world" reftype="camera" refname="eye"/>'
        '<jointlimitfrc joint="j"/><camprojection site="w" camera="eye"/><fromto geom1="g" body2="c" cutoff="1"/><clock/>'
        '<user dim="4" datatype="quaternion" needstage="vel" objtype="geom" objname="g2" user="1 2"/></sensor>'
    )
    gyro, frame, limit, camera, segment, clock, user = read(text).sensors
    assert (gyro.object, gyro.cutoff, gyro.noise, gyro.stage, gyro.dim) == (("site", 1), 2, 0.1, "velocity", 3)
    assert (frame.object, frame.reference) == (("xbody", -1), ("camera", 0))
    assert (limit.object, limit.stage) == (("joint", (0, 0)), "acceleration")
    assert (camera.object, camera.reference, camera.dim) == (("site", 0), ("camera", 0), 2)
    assert (segment.object, segment.reference, segment.dim) == (("geom", 0), ("body", 1), 6)
    assert clock.object is None and (user.object, user.dim, user.stage, user.user) == (("geom", 2), 4, "velocity", (1, 2))


def test_keyframes():
    text = '<keyframe><key name="k" time="2" qpos="1 2 2 0 0 0 3 0 0 0 0 0 0 0" mquat="0 0 0 5"/></keyframe>'
    key, padded = read(text, head='<size nkey="2"/>').keys
    assert key.q.tolist() == [1, 2, 1, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0] and key.mocap_quat.tolist() == [[0, 0, 0, 1]]
    assert (key.name, key.time, key.v, key.ctrl, key.mocap_pos, padded.name, padded.q) == ("k", 2, None, None, None, "", None)


SHORT_KEYS = {
    "qpos": [("1 2", [1, 2, 3, 0, 1, 0, 0, 20 * np.pi / 180]), ("1 2 3 4 5", [1, 2, 3, 0.62469505, 0.78086881, 0, 0, 20 * np.pi / 180])],
    "qvel": [("5", [5, 0, 0, 0, 0, 0, 0])], "act": [("6", [6, 0])], "ctrl": [("7 8", [7, 8, 0])],
    "mpos": [("9", [4, 5, 6, 7, 8, 9]), ("1 2 3 4", [1, 2, 3, 7, 8, 9])],
    "mquat": [("9", [0, 1, 0, 0, 0, 0, 1, 0]), ("0 0 0 1 2 3 4", [0, 0, 0, 1, 0, 0, 1, 0])],
}  # fmt: skip
"""Vectors of a key and key_qpos, ... of MuJoCo 4.0.0 for them, whether the model is attached or not. 3.2.7: "invalid qpos size, expected
length 8" and so on."""


@pytest.mark.parametrize(("name", "given", "wanted"), [(name, *pair) for name, pairs in SHORT_KEYS.items() for pair in pairs])
def test_short_keys(tmp_path, name, given, wanted):
    hinged = '<body><joint name="h" ref="20"/><geom size=".1" pos=".2 0 0"/></body>'
    turned = f'<body name="f" pos="1 2 3" quat="0 1 0 0"><freejoint/><geom size=".1"/>{hinged}</body>'
    mocap = '<body mocap="true" pos="4 5 6" quat="0 1 0 0"/><body mocap="true" pos="7 8 9" quat="0 0 1 0"/>'
    actuators = '<general joint="h" dyntype="filter" dynprm="1"/><motor joint="h"/><general joint="h" dyntype="integrator"/>'
    inside = f"<worldbody>{turned}{mocap}</worldbody><actuator>{actuators}</actuator>"
    text = f'<mujoco>\n{inside}<keyframe>\n<key {name}="{given}"/></keyframe></mujoco>'
    field = {"qpos": "q", "qvel": "v", "mpos": "mocap_pos", "mquat": "mocap_quat"}.get(name, name)
    found = f"m.xml:3: <key>: {name}: found {len(given.split())} numbers in a key; allowed: {len(wanted)}"
    with pytest.raises(ParseError, match=re.escape(found)):
        parse_text(text, "mjcf", file="m.xml")
    with pytest.warns(SuspiciousInputWarning, match=re.escape(f"{found}; assumed: the others as at the start")):
        key = parse_text(text, "mjcf", file="m.xml", rules="4.0").keys[0]
    np.testing.assert_allclose(getattr(key, field).reshape(-1), wanted, atol=1e-8)
    if name in ("mpos", "mquat"):
        return  # a mocap body is a body of its own
    (tmp_path / "child.xml").write_text(text)
    host = '<asset><model name="m" file="child.xml"/></asset><worldbody><attach model="m" body="f" prefix="a"/></worldbody>'
    (tmp_path / "host.xml").write_text(f"<mujoco>{host}</mujoco>")
    with pytest.warns(SuspiciousInputWarning, match=re.escape("child.xml:3: <key>")):
        attached = parse(tmp_path / "host.xml", rules="4.0").keys[0]
    np.testing.assert_allclose(getattr(attached, field), wanted, atol=1e-8)


def test_custom():
    text = (
        '<custom><numeric name="n" data="1 2" size="3"/><text name="n" data="words"/>'
        '<tuple name="l"><element objtype="joint" objname="j" prm="2"/><element objtype="tuple" objname="l"/></tuple></custom>'
    )
    found = read(text).custom
    assert found["numeric"]["n"].tolist() == [1, 2, 0] and found["text"] == {"n": "words"}
    assert found["tuple"] == {"l": (("joint", "j", 2.0), ("tuple", "l", 0.0))}


def test_declared_plugins():
    """A plugin of MuJoCo's own that nothing uses is harmless."""
    assert read("", head='<extension><plugin plugin="mujoco.pid"><instance name="p"/></plugin></extension>').actuators == ()


def test_rules():
    with pytest.raises(ValueError, match="rules"):
        read("", rules="3.3")
    with pytest.raises(TypeError, match="gravity"):
        parse_text("<mujoco/>", "mjcf", gravity=1)


# ---- what is refused ---------------------------------------------------------------------------------------------------------

BAD = [
    ("<actuator><motor/></actuator>", "target is missing"),
    ('<actuator><motor joint="j" site="s1"/></actuator>', "joint and site"),
    ('<actuator><motor joint="nope"/></actuator>', "unknown joint 'nope'"),
    ('<actuator><motor joint="j" refsite="s1"/></actuator>', "refsite: found with the target joint"),
    ('<actuator><motor cranksite="s1" cranklength="1"/></actuator>', "'slidersite' is missing"),
    ('<actuator><motor cranksite="s1" slidersite="s2"/></actuator>', "cranklength: found 0; allowed: a number > 0"),
    ('<actuator><motor joint="j" ctrlrange="1"/></actuator>', "ctrlrange: found 1 numbers"),
    ('<actuator><motor joint="j" ctrllimited="true"/></actuator>', "ctrlrange: found 0 0"),
    ('<actuator><position joint="j" kv="1" dampratio="1"/></actuator>', "dampratio: found kv 1 and dampratio 1; allowed: one of them"),
    ('<actuator><position joint="j" kv="-1"/></actuator>', "kv: found -1; allowed: numbers >= 0"),
    ('<actuator><position joint="j" ctrlrange="-1 1" inheritrange="1"/></actuator>', "inheritrange: ctrlrange and inheritrange are both"),
    ('<actuator><position joint="s" inheritrange="1"/></actuator>', "inheritrange: the target joint has no range"),
    ('<actuator><position joint="ball" inheritrange="1"/></actuator>', "inheritrange: found with a ball joint"),
    ('<actuator><position site="s1" inheritrange="1"/></actuator>', "inheritrange: allowed: with the target joint or tendon"),
    ('<actuator><intvelocity joint="j"/></actuator>', "actrange: found 0 0"),
    ('<actuator><damper joint="j" ctrlrange="-1 1"/></actuator>', "ctrlrange: found -1 1; allowed: numbers >= 0 for <damper>"),
    ('<actuator><general joint="j" actrange="-1 1"/></actuator>', 'actrange acts with dyntype "none"'),
    ('<actuator><general joint="j" actdim="2" dyntype="filter"/></actuator>', 'actdim: found 2 with dyntype "filter"; allowed: 1'),
    ('<actuator><general joint="j" dyntype="user"/></actuator>', "dyntype: unknown value 'user'"),
    ('<actuator><muscle joint="j" range="1 .5"/></actuator>', "range: found 1 0.5"),
    ('<actuator><muscle joint="j" lmin="1"/></actuator>', "lmin < 1 < lmax"),
    ('<actuator><muscle joint="j" vmax="0"/></actuator>', "vmax: found 0"),
    ('<actuator><plugin joint="j" plugin="mujoco.pid"/></actuator>', "'mujoco.pid' is not declared"),
    ('<actuator><motor name="a" joint="j"/><motor name="a" joint="j"/></actuator>', "second actuator of this name"),
    (fixed("", ""), "the path is empty"),
    (fixed("", '<joint joint="j"/>'), "'coef' is missing"),
    (fixed('limited="true"'), "range: found 0 0"),
    (fixed('springlength="2 1"'), "springlength: found 2 1"),
    (spatial("s1"), "has 1 elements"),
    (spatial("s1", "s1"), "the same site twice"),
    (spatial("s1", "g"), "does not stand between two sites"),
    (spatial("s1", "g", "g", "s2"), "does not stand between two sites"),
    (spatial("s1", "box", "s2"), "geom: found a box"),
    (spatial("s1", "s2", "P"), "followed by nothing"),
    (spatial("s1", "s2", "P", "P", "s1", "s2"), "followed by pulley"),
    (spatial("s1", "s2", "P", "w"), "alone in its branch"),
    ('<equality><connect body1="b"/></equality>', "anchor is missing"),
    ('<equality><connect site1="s1" site2="w" body1="b"/></equality>', "found body1 and site1"),
    ('<equality><weld body1="b" body2="b"/></equality>', "the same weld twice"),
    ('<equality><weld body1="b" relpose="1 2 3"/></equality>', "relpose: found 3 numbers"),
    ('<equality><joint joint1="ball"/></equality>', "joint1: found a ball joint"),
    ('<equality><flex flex="x"/></equality>', "unknown flex 'x'"),
    ('<contact><pair geom1="g" geom2="g2" condim="2"/></contact>', "condim: found 2; allowed: 1, 3, 4, 6"),
    ('<contact><exclude body1="b" body2="nope"/></contact>', "unknown body 'nope'"),
    ('<sensor><jointpos joint="ball"/></sensor>', "joint: found a ball joint"),
    ('<sensor><jointlimitpos joint="s"/></sensor>', "joint: found a joint without limits"),
    (fixed() + '<sensor><tendonlimitpos tendon="t"/></sensor>', "tendon: found a tendon without limits"),
    ('<sensor><framequat objtype="body" objname="b" cutoff="1"/></sensor>', "cutoff: found 1 for a sensor of a unit quaternion"),
    ('<sensor><framepos objtype="body" objname="b" refname="b"/></sensor>', "refname: found without reftype"),
    ('<sensor><framepos objtype="joint" objname="j"/></sensor>', "objtype: unknown value 'joint'"),
    ('<sensor><distance geom1="g" body1="b" geom2="g2"/></sensor>', "found geom1 and body1; allowed: one of"),
    ('<sensor><normal geom1="g" geom2="g"/></sensor>', "the same geom twice"),
    ('<sensor><user dim="2" datatype="axis"/></sensor>', "dim: found 2 with the datatype axis; allowed: 3"),
    ('<sensor><plugin plugin="mujoco.sensor.touch_grid"/></sensor>', "'mujoco.sensor.touch_grid' is not declared"),
    ('<keyframe><key qvel="1 2"/></keyframe>', "qvel: found 2 numbers in a key; allowed: 12"),
    ('<keyframe><key name="a"/><key name="a"/></keyframe>', "second key of this name"),
    ('<custom><numeric name="n" data="1 2" size="1"/></custom>', "data: found 2 numbers"),
    ('<custom><numeric name="n" size="9999999"/></custom>', "size: found 9999999 numbers"),
    ('<custom><tuple name="n"/></custom>', "the tuple is empty"),
    ('<custom><tuple name="n"><element objtype="site" objname="x"/></tuple></custom>', "unknown site 'x'"),
    ('<extension><plugin plugin="me.mine"/></extension>', "unknown plugin 'me.mine'"),
]


@pytest.mark.parametrize("text, words", BAD)
def test_refused(text, words):
    with pytest.raises(ParseError, match=re.escape(words)) as caught:
        read(text)
    assert caught.value.line


def test_refused_by_later_rules():
    ball = fixed("", '<joint joint="ball" coef="1"/>')
    assert read(ball).tendons
    for text, words in ((ball, "found a ball joint"), (fixed("", '<joint joint="j" coef="1"/>' * 2), "the same joint twice")):
        with pytest.raises(ParseError, match=words):
            read(text, rules="4.0")


@pytest.mark.parametrize("text", ['<actuator><motor joint="j" ctrlrange="-1 1"/></actuator>', fixed('range="0 1"')])
def test_ranges_without_a_switch(text):
    bodies = BODIES.replace("range=", 'limited="true" range=')
    with pytest.raises(ParseError, match="autolimits is off"):
        parse_text(f"<mujoco><compiler autolimits='false'/>{bodies}{text}</mujoco>", "mjcf")
