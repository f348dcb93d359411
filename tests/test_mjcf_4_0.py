"""The language of MuJoCo 4.0: small models of what it has and 3.2 has not, against the numbers of MuJoCo 4.0.0, in float64.

`reference/make_mjcf_4_0.py` records the numbers: forces, accelerations and sensors at random states, and where 20 steps lead from there."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import packages
import pytest
from comparing import close
from corpus import MUJOCO_VERSIONS
from traced import traced

import xsim
from xsim.io.mjcf.schema_tables import SCHEMAS
from xsim.poses import Pose, rotate

FOLDER = Path(__file__).parent / "reference"
RECORDED = json.loads((FOLDER / "mjcf_4_0.json").read_text())
INTEGRATORS = {"Euler": "implicit_damping", "implicitfast": "implicitfast"}
FORCES, ACCELERATIONS, STATES = 1e-8, 1e-7, 1e-6  # relative to the largest entry
STEPS = 20


SLOW = ("adhesion_elliptic", "exact_diagonal", "frame_scales")
SLOW_STEPS = (*SLOW, "adhesion", "exact_diagonal_pyramids", "tendon_forces")  # seconds are the compiler's


def _cases(slow: tuple[str, ...]):
    cases = [pytest.param(name, marks=pytest.mark.slow if name in slow else ()) for name in RECORDED]
    return pytest.mark.parametrize("case", cases, indirect=True, scope="module")


@pytest.fixture(scope="module")
def case(request):
    """(model, state, recorded numbers), a batch of states."""
    with jax.enable_x64(True):
        model = xsim.load(FOLDER / "mjcf_4_0" / f"{request.param}.xml", rules="4.0")
        recorded = {key: np.array([state[key] for state in RECORDED[request.param]]) for key in RECORDED[request.param][0]}
        start = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(recorded["q"]), *x.shape)), xsim.init(model))
        yield model, dataclasses.replace(start, **{name: jnp.asarray(recorded[name]) for name in ("q", "v", "act")}), recorded


@_cases(SLOW)
def test_forces_accelerations_and_sensors(case, x64):
    model, state, recorded = case
    ctrl = recorded["ctrl"] if model.nu else None
    data, mass = traced(lambda m, s: (xsim.forward(m, s, ctrl), xsim.mass_matrix(m, s.q)), model, state)(model, state)
    close("mass", mass, recorded["mass"], FORCES)
    for name in ("bias", "passive", "actuator", "actuator_force", "act_rate"):
        close(name, getattr(data, name), recorded[name], FORCES)
    close("acceleration", data.a, recorded["a"], ACCELERATIONS)
    close("sensors", data.sensor, recorded["sensor"], ACCELERATIONS)


@pytest.mark.parametrize("integrator", INTEGRATORS)
@_cases(SLOW_STEPS)
def test_steps(case, x64, integrator):
    model, state, recorded = case
    model = xsim.with_integrator(model, INTEGRATORS[integrator])
    for step in range(1, STEPS + 1):
        state = xsim.step(model, state, recorded["ctrl"] if model.nu else None)
        if step in (1, STEPS):
            found = np.concatenate([state.q, state.v, state.act], -1)
            close(f"step {step}", found, recorded[f"{integrator} {step}"], STATES)


def test_the_surface_of_a_mesh_moves_as_its_file_says():
    """The velocity is given in the frame of the file, and kept in that of the mesh's principal axes."""
    linear, angular = np.array([0.3, 0.4, 0.1]), np.array([0.2, -0.1, 0.5])
    text = """<mujoco><asset><mesh name="wedge" vertex="0 0 0 0.5 0 0 0 0.3 0 0 0 0.2 0.5 0.3 0.01"/></asset><worldbody>
      <geom type="mesh" mesh="wedge" pos="1 2 3" euler="20 -40 60" surfacevel="0.3 0.4 0.1 0.2 -0.1 0.5"/></worldbody></mujoco>"""
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    (geom,), (mesh,) = spec.world_geoms, spec.meshes
    in_world = Pose(geom.quat, geom.pos)
    file = in_world @ Pose(mesh.quat, mesh.pos).inverse()
    point = np.array([1.2, 2.1, 2.7])
    by_file = rotate(file.quat, linear) + np.cross(rotate(file.quat, angular), point - file.pos)
    found = np.array(geom.surface_velocity)
    by_principal = rotate(geom.quat, found[:3]) + np.cross(rotate(geom.quat, found[3:]), point - geom.pos)
    np.testing.assert_allclose(by_principal, by_file, atol=1e-12)
    np.testing.assert_allclose(file.pos, [1, 2, 3], atol=1e-12)


def test_the_velocity_of_a_surface_given_in_part():
    """As in MuJoCo 4.0.0, the class has the rest of it, else it is zero."""
    text = """<mujoco><default><geom size=".1"/><default class="belt"><geom surfacevel="1 2 3 4 5 6"/></default></default>
      <worldbody><geom surfacevel="7 8"/><geom class="belt" surfacevel="7 8"/></worldbody></mujoco>"""
    own, belt = xsim.parse_text(text, "mjcf", rules="4.0").world_geoms
    assert own.surface_velocity == (7, 8, 0, 0, 0, 0) and belt.surface_velocity == (7, 8, 3, 4, 5, 6)


# ---- what is read, refused, and without effect ----------------------------------------------------------------------------------

BOX = '<geom type="box" size="0.1 0.1 0.1" {}/>'
BODY = f'<body {{}}><joint name="j" range="-1 1"/>{BOX.format("")}</body>'


def read(world: str = "", before: str = "", after: str = "", rules: str = "4.0"):
    return xsim.parse_text(f"<mujoco>{before}<worldbody>{world}</worldbody>{after}</mujoco>", "mjcf", rules=rules)


def _refused() -> list[tuple[str, str | None]]:
    """(path of an element, attribute) of all that the schema of 4.0 has and xsim does not simulate; attribute None: the element."""
    out, pending, seen = [], [((), SCHEMAS["4.0"])], set()
    while pending:
        path, rule = pending.pop()
        if id(rule) in seen:
            continue
        seen.add(id(rule))
        for tag, inner in rule.children.items():
            if not inner.supported:
                out.append(("/".join((*path, tag)), None))
            out += [("/".join((*path, tag)), name) for name in inner.unsupported if inner.supported]
            pending.append(((*path, tag), inner))
    return out


def test_what_is_not_simulated_is_refused():
    """Each element and attribute of 4.0's schema that xsim does not simulate, by name; attributes that are zero are allowed."""
    refused = _refused()
    assert refused
    for path, name in refused:
        *parents, tag = path.split("/")
        opening, closing = "".join(f"<{p}>" for p in parents), "".join(f"</{p}>" for p in reversed(parents))
        attribute = "" if name is None else f' {name}="3"'
        text = f"<mujoco>{opening}<{tag}{attribute}/>{closing}</mujoco>"
        with pytest.raises(xsim.ParseError, match=f"<{tag}>: " + ("not simulated" if name is None else f"{name}: found '3', which is not")):
            xsim.parse_text(text, "mjcf", rules="4.0")
    read(BOX.format('adhesion="0"'))


@pytest.mark.parametrize(("text", "rules", "message"), [
    ('<option><flag sleep="enable"/></option>', "3.2", "unknown attribute 'sleep'; allowed: with rules=\"4.0\""),
    ("<actuator><pid/></actuator>", "3.2", 'not in MuJoCo 3.2; allowed: with the option rules="4.0"'),
    ('<option><flag passive="disable"/></option>', "4.0", "unknown attribute 'passive'"),
])  # fmt: skip
def test_what_one_release_has(text, rules, message):
    with pytest.raises(xsim.ParseError, match=message):
        read(before=text, rules=rules)


PICTURES = {
    "before": '<compiler conflict="merge" passthrough="textures" savecanonical="false" savecompiled="false" saveinertial="true"/>'
    '<option sleep_tolerance="0.01"/><visual><global cameraid="1"/></visual><default><texture colorspace="sRGB"/></default>'
    '<asset><texture class="main" name="t" type="2d" builtin="flat" width="3" height="3" embed="true"/><material name="m"/>'
    '<mesh name="q" vertex="0 0 0 1 0 0 0 1 0 0 0 1" material="m"/></asset>',
    "world": '<light type="point" intensity="3" range="4" softness="0.1" texture="t"/>'
    '<camera projection="orthographic" fovy="2" output="rgb depth"/>' + BODY.format('simple="false" sleep="never"'),
    "after": '<deformable><flex dim="2" vertex="0 0 5 1 0 5 0 1 5" element="0 1 2" body="world" elemtexcoord="0 1 2"/></deformable>',
}


def test_what_is_for_pictures_and_writers_has_no_effect():
    spec = read(PICTURES["world"] + BOX.format('castshadow="false"'), PICTURES["before"], PICTURES["after"])
    assert spec.cameras[0].orthographic and spec.cameras[0].fovy == 2.0
    assert spec.lights[0].drawing["type"] == "point" and spec.lights[0].drawing["intensity"] == 3.0
    assert spec.drawing["textures"]["t"]["colorspace"] == "sRGB"
    for bad, message in {
        '<camera output="colour"/>': "found 'colour'; allowed: rgb, depth", '<light type="laser"/>': "type: unknown value 'laser'",
        BODY.format('simple="true"'): "simple: unknown value 'true'", '<body sleep="init"/>': "sleep: found on a body that is not the root",
    }.items():
        with pytest.raises(xsim.ParseError, match=message):
            read(bad)


def test_bodies_asleep_at_the_start_are_warned_about():
    """All bodies move as if they were awake, which differs from MuJoCo much where a body sleeps in the air."""
    on = '<option><flag sleep="enable"/></option>'
    with pytest.warns(xsim.UnsupportedWarning, match="asleep at the start"):
        spec = read(BODY.format('sleep="init"'), on)
    assert spec.bodies[0].sleep == "init"
    for body, option in (('sleep="init"', ""), ('sleep="allowed"', on), ("", on)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            read(BODY.format(body), option)


SCALED = """<asset><hfield name="hills" nrow="2" ncol="2" size="1 1 1 1" elevation="0 1 1 0"/></asset><worldbody>
  <geom name="floor" type="plane" size="1 1 1"/>
  <frame scale="2" massscale="3">
    <geom type="hfield" hfield="hills"/><camera pos="1 2 3"/>
    <body name="a"><joint name="s" type="slide"/><geom name="g" size="0.1" density="500" margin="0.1" friction="1 0.1 0.2" adhesion="2"
      surfacevel="1 2 3 4 5 6"/></body>
    <body name="m" mocap="true" pos="1 2 3"/>
    <frame scale="0.5" scaling="geometry"><body pos="1 0 0"><freejoint/><geom size="0.1"/></body></frame>
  </frame></worldbody>
  <contact><pair geom1="floor" geom2="g" margin="0.1" gap="0.2" friction="1 1 0.1 0.2 0.3" adhesion="3"/></contact>
  <actuator><position joint="s"/><motor joint="s"/><cylinder joint="s"/></actuator>
  <keyframe><key qpos="0.1 1 2 3 1 0 0 0" qvel="1 1 1 1 1 1 1" ctrl="1 1 1" act="1" mpos="1 2 3"/><key qvel="1 1 1 1 1 1 1"/></keyframe>"""


def test_scales_of_contacts_and_keyframes():
    """The numbers of the compiled model of MuJoCo 4.0.0."""
    spec = xsim.parse_text(f"<mujoco>{SCALED}</mujoco>", "mjcf", rules="4.0")
    (pair,), (key, rest), surface = spec.pairs, spec.keys, spec.bodies[0].geoms[0].contact
    found = [pair.margin, pair.gap, *pair.friction, pair.adhesion]
    np.testing.assert_allclose(found, [0.141421, 0.282843, 1.0, 1.0, 0.141421, 0.282843, 0.424264, 7.348469], atol=1e-6)
    np.testing.assert_allclose([surface.margin, *surface.friction, surface.adhesion], [0.2, 1, 0.2, 0.4, 12])
    assert spec.bodies[0].geoms[0].surface_velocity == (2, 4, 6, 4, 5, 6) and spec.world_geoms[0].contact.friction == (1, 0.005, 0.0001)
    assert spec.hfields[spec.world_geoms[1].asset].size.tolist() == [2, 2, 2, 2] and spec.cameras[0].pos.tolist() == [2, 4, 6]
    np.testing.assert_allclose(key.q, [0.2, 1, 2, 3, 1, 0, 0, 0])
    np.testing.assert_allclose(key.v, [2, 1, 1, 1, 1, 1, 1])
    assert (key.ctrl.tolist(), key.act.tolist(), key.mocap_pos.tolist()) == ([2, 1, 1.5], [1.5], [[2, 4, 6]])
    assert rest.q is None and rest.v is not None
    np.testing.assert_allclose(xsim.build(spec).topology.initial[0], [0, 1, 0, 0, 1, 0, 0, 0])


def test_places_in_keyframes_are_scaled_about_the_origins_of_the_frames():
    """The numbers of MuJoCo 4.0.0: the outer frame keeps its place, the inner one that in the outer frame."""
    text = """<mujoco><worldbody>
      <frame pos="0.1 0.2 0.3" euler="0 0 90" scale="2"><frame pos="0.5 0 0" scale="3">
        <body pos="1 2 3"><freejoint/><geom size="0.1"/></body><body pos="1 2 3" mocap="true"/></frame></frame></worldbody>
      <keyframe><key qpos="1 10 100 1 0 0 0" mpos="1 10 100"/><key qpos="1"/></keyframe></mujoco>"""
    with pytest.warns(UserWarning, match="the others as at the start"):
        spec = xsim.parse_text(text, "mjcf", rules="4.0")
    given, in_part = spec.keys
    np.testing.assert_allclose(given.q, [5.5, 57, 598.5, 1, 0, 0, 0])
    np.testing.assert_allclose(given.mocap_pos, [[5.5, 57, 598.5]])
    np.testing.assert_allclose(in_part.q, [5.5, *xsim.build(spec).topology.initial[0][1:]], rtol=1e-12)


@pytest.mark.parametrize(("frame", "inside", "message"), [
    ('scale="0"', "", "scale: found '0'; allowed: numbers > 0"), ('scale="1 2"', "", "scale: "),
    ('scale="1 2 3" scaling="geometry"', "", "scale: found '1 2 3', three factors, which is not simulated"),
    ('massscale="-1"', "", "massscale: "), ('scale="2" scaling="all"', "", "scaling: unknown value 'all'"),
    ('scale="2"', '<flexcomp name="f" type="grid" count="3 3 1" spacing="1 1 1"/>', "flexcomp name=.f.>: found in a frame with a scale"),
    ('scale="2"', '<body><joint name="x"/><geom size="0.1"/></body>', "dcmotor>: acts on what is in a frame with a scale"),
])  # fmt: skip
def test_scales_that_cannot_be(frame, inside, message):
    motor = '<actuator><dcmotor joint="x" motorconst="1" resistance="1"/></actuator>' if "joint" in inside else ""
    with pytest.raises(xsim.ParseError, match=message):
        read(f"<frame {frame}>{inside}</frame>", after=motor)


def test_a_body_that_is_not_fused():
    world = f'<body name="a">{BOX.format("")}</body><body name="b" fuse="false">{BOX.format("")}</body>'
    assert [body.name for body in read(world, '<compiler fusestatic="true"/>').bodies] == ["b"]


GENERAL = 'general joint="j" gaintype="dcmotor" biastype="dcmotor" dyntype="dcmotor"'


@pytest.mark.parametrize(("actuator", "message"), [
    ('pid joint="j" input="vel pos"', "input: found 'vel pos'; allowed: some of pos, vel, ff, in this order"),
    ('pid joint="j" input="vel" ki="1"', "ki: found with the inputs 'vel'; allowed: with the input pos"),
    ('pid joint="j" input="ff" slewmax="1"', "slewmax: found with the inputs 'ff'"),
    ('pid joint="j" ki="-1"', "ki: "), ('pid joint="j" imax="-1"', "imax: "), ('pid joint="j" slewmax="-1"', "slewmax: "),
    ('pid joint="j" kv="1" dampratio="1"', "dampratio: found kv 1 and dampratio 1"),
    ('general joint="j" gaintype="pid" biastype="affine" gainprm="1"', 'dyntype: found .none.* allowed: "pid"'),
    ('general joint="j" input="ff"', "input: found 'ff'; allowed: one of pos, vel, pressure"),
    ('motor site="s" armature="1"', "armature: found with another target"), ('motor site="s" damping="1"', "damping: found with another"),
    ('dcmotor joint="j"', "the resistance is missing"), ('dcmotor joint="j" resistance="1"', "the motor constant is missing"),
    ('dcmotor joint="j" resistance="1" motorconst="1" controller="1"', "controller: found gains without an input"),
    ('dcmotor joint="j" resistance="1" motorconst="1" controller="0 1" input="vel"', "controller: found ki without the input pos"),
    ('dcmotor joint="j" resistance="1" motorconst="1" thermal="1"', "thermal: found one of resistance, capacity and time constant"),
    ('dcmotor joint="j" resistance="1" motorconst="1" saturation="0 0 1"', "saturation: found a rate of the current without inductance"),
    ('dcmotor joint="j" resistance="1" motorconst="1" lugre="1"', "lugre: found no Coulomb friction"),
    ('dcmotor joint="j" resistance="1" motorconst="-1"', "motorconst: found '-1'; allowed: numbers >= 0"),
    ('dcmotor joint="j" nominal="1 1"', "nominal: found a number that is not positive"),
    ('general joint="j" gaintype="dcmotor"', 'biastype: found "none"; allowed: dcmotor, with the other two types'),
    ('general joint="j" dyntype="dcmotor"', 'gaintype: found "fixed"; allowed: dcmotor'),
    ('general joint="j" gaintype="dcmotor" biastype="dcmotor" gainprm="1 1"', 'dyntype: found "none"; allowed: dcmotor'),
    (f'{GENERAL} gainprm="1 1" dynprm="0"', "actearly: found false for a dcmotor; allowed: true"),
    (f'{GENERAL} gainprm="0 1" actearly="true"', "gainprm: found the resistance 0; allowed: a number > 0"),
    (f'{GENERAL} gainprm="1 1 0 0 3" actearly="true"', "gainprm: found gains without an input"),
    (f'{GENERAL} gainprm="1 1 0 0 0 3" actearly="true" input="vel"', "gainprm: found ki without the input pos"),
    (f'{GENERAL} gainprm="1 1" dynprm="0 0 0 0 0 9" actearly="true"', "biasprm: found no Coulomb friction"),
    (f'{GENERAL} gainprm="1 1" dynprm="1" actdim="2" actearly="true"', "actdim: found 2 .* allowed: 1"),
    (f'{GENERAL} gainprm="1 1" actearly="true" input="vel pos"', "input: found 'vel pos'; allowed: some of pos, vel, ff, voltage"),
    ('dcmotor joint="j" resistance="1" motorconst="1" input="current"', "input: found 'current'; allowed: none, or some of pos"),
])  # fmt: skip
def test_actuators_that_cannot_be(actuator, message):
    with pytest.raises(xsim.ParseError, match=message):
        read(BODY.format("") + '<site name="s"/>', after=f"<actuator><{actuator}/></actuator>")


@pytest.mark.parametrize(("actuator", "message"), [
    ('orientation joint="j"', "joint: found a hinge joint; allowed: ball joints"),
    ('orientation site="s"', "found with another target; allowed: a ball joint, or site and refsite"),
    ('orientation joint="b" kv="1" dampratio="1"', "dampratio: found kv 1 and dampratio 1"),
    ('orientation joint="b" input="euler"', "input: unknown value 'euler'"),
    ('orientation joint="b" forcerange="-1 1"', "forcerange: found -1 1; allowed: 0 and the greatest norm"),
    ('orientation joint="b" gear="1"', "unknown attribute 'gear'"), ('orientation joint="b" kv="-1"', "kv: "),
    ('general joint="b" gaintype="so3"', 'gaintype: found gaintype "so3" and biastype "none"'),
    ('general joint="b" gaintype="so3" biastype="so3" dyntype="filter"', 'dyntype: found "filter" for so3'),
    ('general joint="b" gaintype="so3" biastype="so3" dyntype="integrator" input="quat"', "dyntype: .* with the input expmap"),
    ('general joint="b" gaintype="so3" biastype="so3" dyntype="integrator" actearly="true"', "actearly: found true for so3"),
])  # fmt: skip
def test_orientation_servos_that_cannot_be(actuator, message):
    ball = f'<body><joint name="b" type="ball"/>{BOX.format("")}</body>'
    with pytest.raises(xsim.ParseError, match=message):
        read(BODY.format("") + ball + '<site name="s"/>', after=f"<actuator><{actuator}/></actuator>")


def test_names_of_orientation_servos():
    """Three forces, and a control for each number of the chart."""
    ball = f'<body><joint name="b" type="ball"/>{BOX.format("")}</body>'
    text = '<motor name="m" joint="j"/><orientation name="o" joint="b" input="quat" nsample="2" delay="0.002"/><motor name="n" joint="j"/>'
    model = xsim.build(read(BODY.format("") + ball, after=f"<actuator>{text}</actuator>"))
    assert model.ctrl_names == ("m", "o.w", "o.x", "o.y", "o.z", "n")
    assert [model.actuator_index(name) for name in "mon"] == [0, 1, 4]
    np.testing.assert_array_equal(xsim.init(model).history[-8:], [1, 0, 0, 0] * 2)  # nothing commanded yet: the identity
    sensors = '<sensor><actuatorfrc name="f" actuator="o"/><clock name="c"/></sensor>'
    model = xsim.build(read(BODY.format("") + ball, after=f"<actuator>{text}</actuator>{sensors}"))
    assert (model.sensor_slice("f"), model.sensor_slice("c")) == (slice(0, 3), slice(3, 4))


def test_a_tendon_that_cannot_push_to_both_sides():
    tendon = '<tendon><fixed actuatorfrcrange="1 2"><joint joint="j" coef="1"/></fixed></tendon>'
    with pytest.raises(xsim.ParseError, match="actuatorfrcrange: found 1 2; allowed: a range that contains 0"):
        read(BODY.format(""), after=tendon)


def _builtin(text: str):
    return read(before=f'<asset><mesh name="m" builtin={text}/></asset>').meshes[0]


def test_builtin_meshes_without_faces_are_hulls():
    """A solid lattice is the hull of its points, as large as its open surface with a lid."""
    prism, solid = _builtin('"cone" params="5 1"'), _builtin('"box" params="4 3 2 0.1 0.2 0.3"')
    np.testing.assert_allclose(prism.volume, 2 * 5 / 2 * np.sin(2 * np.pi / 5), rtol=1e-7)
    np.testing.assert_allclose(solid.volume, 0.3 * 0.4 * 0.3, rtol=1e-6)
    open_box = _builtin('"box" params="4 3 2 0.1 0.2 0.3 2"')
    assert open_box.shell and solid.hull is not None and len(solid.vertices) == len(open_box.vertices) + 2 + 1  # lid, centre
    np.testing.assert_allclose(open_box.area, solid.area - 0.3 * 0.4, rtol=1e-6)


@pytest.mark.parametrize(("mesh", "message"), [
    ('"prism" params="5"', "builtin: unknown value 'prism'"), ('"sphere"', "attribute 'params' is missing"),
    ('"sphere" params="1 2"', "params: found 2 numbers; allowed: subdivision"),
    ('"sphere" params="5"', r"params: found 5 for subdivision; allowed: integers in \[0, 4\]"),
    ('"hemisphere" params="-1"', "found -1 for resolution"), ('"cone" params="2 1"', "found 2 for nvert"),
    ('"cone" params="3 1.5"', r"found 1.5 for radius; allowed: numbers in \[0, 1\]"),
    ('"supersphere" params="3 -1 1"', "found -1 for e"),
    ('"supertorus" params="3 0 1 1"', r"found 0 for radius; allowed: numbers in \(0, 1\]"),
    ('"wedge" params="3 3 60 91 0"', "found 91 for fov_theta"), ('"plate" params="0 3"', "found 0 for res_x"),
    ('"grid" params="3 3 1 1 1"', r"found 5 numbers; allowed: count_x .* dim \(dim may be left out\)"),
    ('"grid" params="3 3 1 1 1 1"', "found 1 for count_z; allowed: 2 or more"),
    ('"grid" params="3 3 2 1 1 1 2"', "found 2 for count_z; allowed: 1"), ('"box" params="2 2 2 1 1 1 1"', "found 1 for dim"),
    ('"box" params="900000 900000 900000 1 1 1"', "the arrays of the model grow to"),
    ('"disc" params="3 1 1 1 1 1"', "found 1 for count_y; allowed: 2 or more"),
    ('"square" params="3 3 1 1 1 1" inertia="exact"', 'the mesh has no volume; allowed: faces around one, or inertia="shell"'),
    ('"cone" params="3 1" vertex="0 0 0 1 0 0 0 1 0 0 0 1"', "vertex: found beside builtin"),
    ('"cone" params="3 1" file="a.obj"', "file: found beside builtin"),
    ('"grid" params="2 2 2 1 1 0"', "the vertices lie in a plane"), ('"plate" params="1 2"', "found 2 vertices; allowed: 4 or more"),
])  # fmt: skip
def test_builtin_meshes_that_cannot_be(mesh, message):
    with pytest.raises(xsim.ParseError, match=message):
        _builtin(mesh)


@pytest.mark.parametrize(("sensor", "message"), [
    ('site="s" data="dir dist"', "data: found 'dir dist'; allowed: some of dist, dir, origin, point, normal, depth, each once and in this"),
    ('site="s" data="dist dist"', "data: found 'dist dist'"), ('site="s" data="normals"', "data: found 'normals'"),
    ('site="s" camera="c"', "camera: found site and camera; allowed: one of them"), ("", "site"),
    ('camera="d"', "camera: unknown camera 'd'"), ('camera="empty"', "camera: found a camera of 0 x 3 pixels"),
    ('camera="large" data="dist dir"', "camera: found a camera of 1000 x 1000 pixels; allowed: 1 to 250000 pixels"),
])  # fmt: skip
def test_rangefinders_that_cannot_be(sensor, message):
    cameras = "".join(f'<camera name="{n}" resolution="{r}"/>' for n, r in {"c": "1 1", "empty": "0 3", "large": "1000 1000"}.items())
    with pytest.raises(xsim.ParseError, match=message):
        read(f'<site name="s"/>{cameras}', after=f"<sensor><rangefinder {sensor}/></sensor>")


@pytest.mark.parametrize(("site", "message"), [
    ('type="mesh"', "attribute 'mesh' is missing"), ('mesh="m"', "mesh: found on a sphere; allowed: on a site of the type mesh"),
    ('type="mesh" mesh="n"', "mesh: unknown mesh 'n'"), ('type="mesh" mesh="m" fromto="0 0 0 1 1 1"', "fromto: found on a mesh"),
    ('type="mesh" mesh="flat"', "mesh: the vertices of the mesh lie in a plane and have no convex hull"),
    ('type="mesh" mesh="m"', "site: found a site of the type mesh; allowed: sites of the other types"),
])  # fmt: skip
def test_mesh_sites_that_cannot_be(site, message):
    meshes = '<asset><mesh name="m" builtin="cone" params="4 0"/><mesh name="flat" builtin="plate" params="3 3"/></asset>'
    with pytest.raises(xsim.ParseError, match=message):
        read(f'<site name="s" {site}/>', meshes, '<sensor><touch site="s"/></sensor>')


def test_names_ranges_and_keyframes_of_inputs():
    """A controller has a control for each input and an activation for each memory."""
    actuators = '<pid name="p" joint="j" input="pos ff" ki="1" slewmax="2" posrange="-1 2" ffrange="-3 4"/><motor name="m" joint="j"/>'
    spec = read(BODY.format(""), after=f'<actuator>{actuators}</actuator><keyframe><key ctrl="1 2 3" act="4 5"/></keyframe>')
    model = xsim.build(spec)
    assert model.ctrl_names == ("p.pos", "p.ff", "m") and (model.nu, model.na) == (3, 2)
    assert model.topology.keys[0].ctrl == (1, 2, 3) and model.topology.keys[0].act == (4, 5)
    np.testing.assert_array_equal(model.actuator.ctrl_range, [[-1, 2], [-3, 4]])


@pytest.mark.nightly
def test_the_inventory_is_that_of_the_release():
    """The schema that the release prints."""
    command = [packages.engine("mujoco", MUJOCO_VERSIONS["4.0"]), "-c", "import mujoco; print(mujoco.mj_printSchema(False, False))"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    pending = [("mujoco", SCHEMAS["4.0"], _printed(printed))]
    while pending:
        path, rule, (attributes, children) = pending.pop()
        assert set(rule.attributes + rule.unsupported) == attributes, path
        nested = {"default", "worldbody", "(world)body", "frame", "replicate", "body"}  # in which elements recur
        assert set(rule.children) - nested == set(children) - nested, path
        pending += [(f"{path}/{tag}", rule.children[tag], inner) for tag, inner in children.items() if tag in rule.children]


def _printed(text: str) -> tuple[set[str], dict]:
    """(attributes, children by tag) of <mujoco>, as `mj_printSchema` prints them: an element at a column, attributes over several lines."""
    root: tuple[set[str], dict] = (set(), {})
    chain = [(-1, root)]
    for line in text.splitlines():
        head = re.match(r"^( *)(\S+) \(.\) *(.*)$", line)
        if head is None:
            chain[-1][1][0].update(line.split())
            continue
        while chain[-1][0] >= len(head[1]):
            chain.pop()
        made: tuple[set[str], dict] = (set(head[3].split()), {})
        chain[-1][1][1][head[2]] = made
        chain.append((len(head[1]), made))
    return root[1]["mujoco"]
