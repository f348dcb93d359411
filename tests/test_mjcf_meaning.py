"""What the elements and attributes of MJCF mean: small models, and the numbers that must come of them."""

from __future__ import annotations

import itertools

import jax
import numpy as np
import pytest
from test_perturbation import plain

import xsim
from xsim.io import ParseError, UnsupportedWarning, parse_text
from xsim.io.mjcf.inertia import body_inertial
from xsim.io.mjcf.options import EXTRAS, PARTS, PASSIVE
from xsim.io.mjcf.schema_tables import SCHEMAS
from xsim.io.mjcf.sensors import SENSORS
from xsim.io.solids import tensor
from xsim.model.contact_pairs import read_pairs
from xsim.model.leaf_rows import LeafRows

HALF = np.sqrt(0.5)
DEGREE = np.pi / 180
CUBE = 'vertex="-1 -1 -1  -1 -1 1  -1 1 -1  -1 1 1  1 -1 -1  1 -1 1  1 1 -1  1 1 1"'
HFIELD = '<hfield name="h" nrow="2" ncol="2" elevation="0 1 2 3" size="1 2 3 4"/>'
ASSETS = f'<asset><mesh name="cube" {CUBE}/>{HFIELD}<texture name="t" builtin="flat" width="1" height="1"/><material name="m"/></asset>'
BALL = '<geom size=".1"/>'
JOINT = f'<body><joint name="j"/>{BALL}</body>'


def read(world: str = "", head: str = "", after: str = "", rules: str = "3.2"):
    return parse_text(f"<mujoco>{head}<worldbody>{world}</worldbody>{after}</mujoco>", "mjcf", file="m.xml", rules=rules)


def at(x, path: str):
    """What a path of attributes, keys and numbers leads to."""
    for word in filter(None, path.split(".")):
        x = x[word] if isinstance(x, dict) else x[int(word)] if word.isdigit() else getattr(x, word)
    return x


def same(found, wanted) -> None:
    if wanted is None or isinstance(wanted, (str, bool)):
        assert found == wanted
    else:
        np.testing.assert_allclose(np.asarray(found, float), wanted, rtol=1e-12, atol=1e-15)


def check(spec, path: str, wanted) -> None:
    """wanted: the value, or values by path below."""
    for inner, value in wanted.items() if isinstance(wanted, dict) else [("", wanted)]:
        same(at(spec, f"{path}.{inner}"), value)


# ---- settings ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attributes", "path", "wanted"), [
    ('timestep=".01"', "dt", 0.01),
    ("", "dt", 0.002),
    ('gravity="1 2 3"', "gravity", (1, 2, 3)),
    ("", "gravity", (0, 0, -9.81)),
    ('wind="1 2 3"', "wind", (1, 2, 3)),
    ('magnetic="1 2 3"', "magnetic", (1, 2, 3)),
    ('density="1.2"', "density", 1.2),
    ('viscosity="2e-5"', "viscosity", 2e-5),
    ('integrator="Euler"', "integrator", "implicit_damping"),
    ('integrator="RK4"', "integrator", "rk4_manifold"),
    ('integrator="implicit"', "integrator", "implicit"),
    ('integrator="implicitfast"', "integrator", "implicitfast"),
    ('actuatorgroupdisable="1 3"', "actuator_groups_off", (1, 3)),
    ('apirate="7"', "dt", 0.002),
])  # fmt: skip
def test_option(attributes, path, wanted):
    same(at(read(head=f"<option {attributes}/>").option, path), wanted)


@pytest.mark.parametrize(("name", "text", "wanted"), [
    ("jacobian", "dense", "dense"), ("solver", "PGS", "PGS"), ("iterations", "7", 7), ("tolerance", "1e-9", 1e-9),
    ("ls_iterations", "9", 9), ("ls_tolerance", ".1", 0.1),
])  # fmt: skip
def test_numbers_of_the_solver(name, text, wanted):
    model = JOINT, f'<option {name}="{text}"/>'
    same(read(*model).option.solver[name], wanted)
    assert said(*model) == []


@pytest.mark.parametrize(("name", "text", "wanted"), [("noslip_iterations", "4", 4), ("noslip_tolerance", ".2", 0.2)])
def test_noslip_is_read(name, text, wanted):
    spec = read(head=f'<option noslip_iterations="4"/><option {name}="{text}"/>')
    same(spec.option.solver[name], wanted)


@pytest.mark.parametrize(("name", "text", "wanted"), [
    ("impratio", "3", 3), ("cone", "elliptic", "elliptic"), ("ccd_iterations", "8", 8), ("ccd_tolerance", ".3", 0.3),
    ("sdf_iterations", "5", 5),
    ("sdf_initpoints", "6", 6), ("o_margin", ".4", 0.4), ("o_solref", ".5", (0.5, 1)), ("o_solimp", ".6", (0.6, 0.95, 0.001, 0.5, 2)),
    ("o_friction", "2", (2, 1, 0.005, 0.0001, 0.0001)),
])  # fmt: skip
def test_numbers_of_contacts(name, text, wanted):
    model = f'<geom type="plane" size="1 1 1"/><body><freejoint/>{BALL}</body>', f'<option {name}="{text}"/>'
    same(read(*model).option.solver[name], wanted)
    assert said(*model) == []


@pytest.mark.parametrize("name", PARTS + PASSIVE + EXTRAS)
def test_flags(name):
    """Most parts are on at first, some are off."""
    word = "enable" if name in EXTRAS else "disable"
    option, usual = (read(head=f"<option>{flag}</option>").option for flag in (f'<flag {name}="{word}"/>', ""))
    assert usual.disabled == () and not any(usual.solver[extra] for extra in EXTRAS)
    assert option.disabled == (() if name in EXTRAS else (name,))
    assert [extra for extra in EXTRAS if option.solver[extra]] == ([name] if name in EXTRAS else [])


M, K, B, G, U = 2.0, 30.0, 4.0, 9.81, 5.0  # kg, N/m, N s/m, m/s^2, N
Q, V = 0.1, 0.2


@pytest.mark.parametrize(("flag", "force"), [
    ("", -M * G - K * Q - B * V + 1),
    ("gravity", -K * Q - B * V + 1),
    ("passive", -M * G + 1),
    ("actuation", -M * G - K * Q - B * V),
    ("clampctrl", -M * G - K * Q - B * V + U),
    ("sensor", -M * G - K * Q - B * V + 1),
    ("constraint", -M * G - K * Q - B * V + 1),
])  # fmt: skip
def test_flags_switch_forces_off(flag, force):
    """A mass on a vertical slide with spring, damper, and a motor whose control of 5 is cut to 1."""
    world = f'<body><joint name="z" type="slide" stiffness="{K}" damping="{B}"/><geom size=".1" mass="{M}"/></body>'
    after = '<actuator><motor joint="z" ctrlrange="-1 1"/></actuator><sensor><jointpos joint="z"/></sensor>'
    head = f'<option><flag {flag}="disable"/></option>' if flag else ""
    model = xsim.build(read(world, head, after))
    with jax.disable_jit():
        data = xsim.forward(model, xsim.init(model, np.array([Q]), np.array([V])), np.array([U]))
    np.testing.assert_allclose(data.a, [force / M], rtol=1e-5)
    np.testing.assert_allclose(data.sensor, [0 if flag == "sensor" else Q], rtol=1e-6)


@pytest.mark.parametrize("eulerdamp", [True, False])
def test_eulerdamp(eulerdamp):
    """Euler's rule takes the damper's force at the end of the step, or at its start."""
    flag = "" if eulerdamp else '<flag eulerdamp="disable"/>'
    world = f'<body><joint type="slide" axis="1 0 0" damping="{B}"/><geom size=".1" mass="{M}"/></body>'
    model = xsim.build(read(world, f'<option timestep=".1">{flag}</option>'))
    with jax.disable_jit():
        after = xsim.step(model, xsim.init(model, np.array([0.0]), np.array([V])))
    np.testing.assert_allclose(after.v, [V / (1 + 0.1 * B / M) if eulerdamp else V * (1 - 0.1 * B / M)], rtol=1e-5)


def test_invdiscrete_is_said():
    with pytest.warns(UnsupportedWarning, match="invdiscrete"):
        read(head='<option><flag invdiscrete="enable"/></option>')


@pytest.mark.parametrize(("attribute", "wanted"), [
    ('mode="all"', "all"), ('useexisting="false"', False), ('uselimit="true"', True), ('accel="3"', 3), ('maxforce="4"', 4),
    ('timeconst="5"', 5), ('timestep="6"', 6), ('inttotal="7"', 7), ('interval="8"', 8), ('tolrange=".9"', 0.9),
])  # fmt: skip
def test_lengthrange(attribute, wanted):
    """Kept where a range must be found by simulation."""
    world, after = JOINT, '<actuator><muscle joint="j"/></actuator>'
    if attribute.startswith("uselimit"):
        world = world.replace("<joint", '<joint range="-90 180"')
        spec = read(world, f"<compiler><lengthrange {attribute}/></compiler>", after)
        return same(spec.actuators[0].length_range, (-np.pi / 2, np.pi))
    if attribute.startswith("useexisting"):
        after = after.replace("/>", ' lengthrange="1 2"/>')
    spec = read(world, f"<compiler><lengthrange {attribute}/></compiler>", after)
    same(spec.option.solver["length_range"][attribute.split("=")[0]], wanted)


@pytest.mark.parametrize("attribute", ['usethread="false"', 'coordinate="local"', 'strippath="true"', 'fitaabb="true"', 'texturedir="t"'])
def test_compiler_settings_without_effect_here(attribute):
    assert plain(read(f"<body>{BALL}</body>", f"<compiler {attribute}/>")) == plain(read(f"<body>{BALL}</body>"))


def test_global_coordinates_are_refused():
    with pytest.raises(ParseError, match="coordinate"):
        read(head='<compiler coordinate="global"/>')


@pytest.mark.parametrize(("name", "world", "after", "path"), [
    ("body", '<body user="1"/>', "", "bodies.0"), ("jnt", f'<body><joint user="1"/>{BALL}</body>', "", "bodies.0.joints.0"),
    ("geom", '<geom size="1" user="1"/>', "", "world_geoms.0"), ("site", '<site user="1"/>', "", "sites.0"),
    ("cam", '<camera user="1"/>', "", "cameras.0"),
    ("tendon", JOINT, '<tendon><fixed user="1"><joint joint="j" coef="1"/></fixed></tendon>', "tendons.0"),
    ("actuator", JOINT, '<actuator><motor joint="j" user="1"/></actuator>', "actuators.0"),
    ("sensor", "", '<sensor><clock user="1"/></sensor>', "sensors.0"),
])  # fmt: skip
def test_lengths_of_users_numbers(name, world, after, path):
    for size, wanted in (("", (1,)), (f'nuser_{name}="3"', (1, 0, 0))):
        assert at(read(world, f"<size {size}/>", after), path).user == wanted


def test_size_makes_keys():
    assert len(read(after="<keyframe><key/></keyframe>", head='<size nkey="3"/>').keys) == 3


@pytest.mark.parametrize("attribute", ['memory="2M"', 'njmax="5"', 'nconmax="5"', 'nstack="5"', 'nuserdata="5"'])
def test_sizes_of_memory_have_no_effect(attribute):
    assert plain(read(head=f"<size {attribute}/>")) == plain(read())


@pytest.mark.parametrize("part", SCHEMAS["3.2"].children["visual"].children)
def test_visual_is_kept(part):
    for name in SCHEMAS["3.2"].children["visual"].children[part].attributes:
        text, wanted = (".1 .2 .3 .4", (0.1, 0.2, 0.3, 0.4)) if part == "rgba" else ("3", 3.0)
        if name in ("ambient", "diffuse", "specular"):
            text, wanted = ".1 .2 .3", (0.1, 0.2, 0.3)
        if name in ("orthographic", "ellipsoidinertia") or part == "global" and name == "bvactive":
            text, wanted = "true", True
        same(read(head=f'<visual><{part} {name}="{text}"/></visual>').drawing["visual"][part][name], wanted)


def test_statistic_is_kept():
    for name in SCHEMAS["3.2"].children["statistic"].attributes:
        text, wanted = ("1 2 3", (1, 2, 3)) if name == "center" else ("4", 4)
        same(read(head=f'<statistic {name}="{text}"/>').drawing["statistic"][name], wanted)


def test_model_and_default_class_names():
    text = '<mujoco model="m"><default class="main"><site size="3"/><default class="c"><site group="2"/></default></default>'
    spec = parse_text(f'{text}<worldbody><site class="c"/></worldbody></mujoco>', "mjcf")
    assert spec.name == "m" and spec.format == "mjcf"
    check(spec, "sites.0", {"size": (3,), "group": 2})


# ---- assets ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="m" scale="1 2 3"', {"name": "m", "volume": 48, "moments": (13 / 3, 10 / 3, 5 / 3), "pos": (0, 0, 0)}),
    ('name="m" refpos="1 2 3"', {"volume": 8, "pos": (-1, -2, -3)}),
    ('name="m" refquat="1 0 0 1" scale="1 2 3"', {"volume": 48, "moments": (13 / 3, 10 / 3, 5 / 3)}),
    ('name="m" inertia="convex"', {"volume": 8, "moments": (2 / 3, 2 / 3, 2 / 3)}),
    ('name="m" smoothnormal="true"', {"volume": 8}),
    ('name="m" normal="' + "1 0 0 " * 8 + '"', {"volume": 8}),
    ('name="m" texcoord="' + "1 0 " * 8 + '"', {"volume": 8}),
    ('name="m" class="c"', {"volume": 1}),
])  # fmt: skip
def test_mesh(attributes, wanted):
    head = '<default><default class="c"><mesh scale=".5 .5 .5"/></default></default>'
    check(read(head=f"{head}<asset><mesh {CUBE} {attributes}/></asset>"), "meshes.0", wanted)


def test_hfield():
    check(read(head=f"<asset>{HFIELD}</asset>"), "hfields.0", {"name": "h", "size": (1, 2, 3, 4), "heights": ((2 / 3, 1), (0, 1 / 3))})


@pytest.mark.parametrize(("name", "text", "wanted"), [
    ("type", "2d", "2d"), ("builtin", "checker", "checker"), ("mark", "cross", "cross"), ("rgb1", "1 0 0", (1, 0, 0)), ("width", "8", 8),
    ("rgb2", "0 1 0", (0, 1, 0)), ("markrgb", "0 0 1", (0, 0, 1)), ("random", ".2", 0.2), ("height", "9", 9), ("hflip", "true", True),
    ("vflip", "true", True), ("nchannel", "4", 4), ("gridsize", "3 4", (3, 4)), ("gridlayout", ".U..LFRB", ".U..LFRB"),
    ("content_type", "image/png", "image/png"),
])  # fmt: skip
def test_texture(name, text, wanted):
    same(read(head=f'<asset><texture name="x" {name}="{text}"/></asset>').drawing["textures"]["x"][name], wanted)


@pytest.mark.parametrize("name", ["file", "fileright", "fileleft", "fileup", "filedown", "filefront", "fileback"])
def test_files_of_textures_may_be_missing(name, tmp_path):
    head = f'<asset><texture name="x" {name}="no.png"/></asset>'
    with pytest.warns(UnsupportedWarning, match="no.png.*read without it"):
        assert name not in read(head=head).drawing["textures"]["x"]
    (tmp_path / "no.png").write_bytes(b"")
    found = parse_text(f"<mujoco>{head}</mujoco>", "mjcf", file=str(tmp_path / "m.xml")).drawing["textures"]["x"][name]
    assert found == str(tmp_path / "no.png")


@pytest.mark.parametrize(("name", "text", "wanted"), [
    ("texture", "t", "t"), ("texrepeat", "2 3", (2, 3)), ("texuniform", "true", True), ("emission", ".1", 0.1), ("specular", ".2", 0.2),
    ("shininess", ".3", 0.3), ("reflectance", ".4", 0.4), ("metallic", ".5", 0.5), ("roughness", ".6", 0.6),
    ("rgba", "1 0 0 .5", (1, 0, 0, 0.5)),
])  # fmt: skip
def test_material(name, text, wanted):
    """By the element itself and by its class."""
    texture = '<texture name="t" builtin="flat"/>'
    for default, own in (("", f'{name}="{text}"'), (f'{name}="{text}"', "")):
        head = f'<default><default class="c"><material {default}/></default></default>'
        asset = f'<asset>{texture}<material name="x" class="c" {own}/></asset>'
        same(read(head=head + asset).drawing["materials"]["x"][name], wanted)


def test_submodels(tmp_path):
    (tmp_path / "arm.xml").write_text(f'<mujoco model="arm"><worldbody><body name="b">{BALL}</body></worldbody></mujoco>')
    text = """<mujoco><asset><model file="arm.xml" content_type="text/xml"/><model name="second" file="arm.xml"/></asset><worldbody>
      <attach model="arm" body="b" prefix="1-"/><attach model="second" body="b" prefix="2-"/></worldbody></mujoco>"""
    spec = parse_text(text, "mjcf", file=str(tmp_path / "m.xml"))
    assert [body.name for body in spec.bodies] == ["1-b", "2-b"]
    with pytest.raises(ParseError, match="content_type"):
        parse_text(text.replace("text/xml", "text/usd"), "mjcf", file=str(tmp_path / "m.xml"))


def test_layers_of_a_material():
    head = '<asset><texture name="t" builtin="flat"/><material name="x"><layer role="normal" texture="t"/></material></asset>'
    assert read(head=head).drawing["materials"]["x"]["layers"] == {"normal": "t"}


@pytest.mark.parametrize("section", ["asset", "deformable"])
def test_skin(section):
    """Drawing: kept with its bones, the weights of a vertex made to sum to 1."""
    bone = '<bone body="b" bindpos="1 2 3" bindquat="0 0 0 2" vertid="0 1 2" vertweight="2 3 4"/>'
    look = 'inflate=".5" material="m" rgba="1 0 0 1" group="2" texcoord="0 0 0 1 1 0"'
    skin = f'<{section}><skin name="s" vertex="0 0 0 1 0 0 0 1 0" face="0 1 2" {look}>{bone}</skin></{section}>'
    found = read(f'<body name="b">{BALL}</body>', ASSETS, skin).drawing["skins"]["s"]
    wanted = {"inflate": 0.5, "material": "m", "rgba": (1, 0, 0, 1), "group": 2, "texcoord": ((0, 0), (0, 1), (1, 0)),
              "faces": ((0, 1, 2),), "bones.0.body": 0, "bones.0.pos": (1, 2, 3), "bones.0.quat": (0, 0, 0, 1),
              "bones.0.vertices": (0, 1, 2),
              "bones.0.weights": (1, 1, 1), "vertices.1": (1, 0, 0)}  # fmt: skip
    check(found, "", wanted)


# ---- bodies ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ('pos="1 2 3"', {"pos": (1, 2, 3)}), ('quat="2 0 0 2"', {"quat": (HALF, 0, 0, HALF)}),
    ('axisangle="0 0 3 90"', {"quat": (HALF, 0, 0, HALF)}), ('euler="0 0 90"', {"quat": (HALF, 0, 0, HALF)}),
    ('xyaxes="0 1 0 -1 0 0"', {"quat": (HALF, 0, 0, HALF)}), ('zaxis="1 0 0"', {"quat": (HALF, 0, HALF, 0)}),
    ('mocap="true"', {"mocap": True}), ('gravcomp=".5"', {"gravcomp": 0.5}), ('user="1 2"', {"user": (1, 2)}),
    ('childclass="c"', {"geoms.0.size": (0.3,)}),
])  # fmt: skip
def test_body(attributes, wanted):
    head = '<default><geom size=".1"/><default class="c"><geom size=".3"/></default></default>'
    check(read(f"<body {attributes}><geom/></body>", head), "bodies.0", wanted)


@pytest.mark.parametrize(("attributes", "com", "inertia"), [
    ('pos="1 2 3" diaginertia="1 2 3"', (1, 2, 3), (1, 2, 3)),
    ('pos="0 0 0" diaginertia="1 2 3" quat="1 0 0 1"', (0, 0, 0), (2, 1, 3)),
    ('pos="0 0 0" diaginertia="1 2 3" axisangle="1 0 0 90"', (0, 0, 0), (1, 3, 2)),
    ('pos="0 0 0" diaginertia="1 2 3" euler="0 90 0"', (0, 0, 0), (3, 2, 1)),
    ('pos="0 0 0" diaginertia="1 2 3" xyaxes="0 1 0 1 0 0"', (0, 0, 0), (2, 1, 3)),
    ('pos="0 0 0" diaginertia="1 2 3" zaxis="1 0 0"', (0, 0, 0), (3, 2, 1)),
    ('pos="0 0 0" fullinertia="1 2 3 0 0 0"', (0, 0, 0), (1, 2, 3)),
])  # fmt: skip
def test_inertial(attributes, com, inertia):
    found = read(f'<body><inertial mass="7" {attributes}/></body>').bodies[0].inertial
    assert found.mass == 7
    np.testing.assert_allclose(found.com, com)
    np.testing.assert_allclose(tensor(found.inertia), np.diag(inertia), atol=1e-12)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ("", {"type": "hinge", "params.axes.0": (0, 0, 1), "q0": (0,), "spring_ref": (0,), "damping": (0,)}),
    ('type="slide"', {"type": "slide"}), ('type="ball"', {"type": "ball", "q0": (1, 0, 0, 0)}),
    ('type="free"', {"type": "free", "q0": (1, 2, 3, 1, 0, 0, 0)}),
    ('name="x"', {"name": "x"}), ('class="c"', {"armature": (5,)}), ('group="3"', {"group": 3}), ('pos="1 2 3"', {"pos": (1, 2, 3)}),
    ('axis="0 3 4"', {"params.axes.0": (0, 0.6, 0.8)}), ('springdamper=".1 2"', {"spring_damper": (0.1, 2)}),
    ('stiffness="2"', {"stiffness": (2,)}), ('ref="90"', {"ref": np.pi / 2, "q0": (np.pi / 2,)}), ('type="slide" ref="9"', {"ref": 9}),
    ('springref="90"', {"spring_ref": (np.pi / 2,)}), ('armature="3"', {"armature": (3,)}), ('damping="4"', {"damping": (4,)}),
    ('type="ball" damping="4"', {"damping": (4, 4, 4)}), ('user="1 2"', {"user": (1, 2)}),
    ('actuatorfrcrange="-1 2"', {"actuator_force_range": (-1, 2)}),
    ('actuatorfrcrange="-1 2" actuatorfrclimited="false"', {"actuator_force_range": None}),
    ('actuatorgravcomp="true"', {"actuator_gravcomp": True}),
])  # fmt: skip
def test_joint(attributes, wanted):
    head = '<default><default class="c"><joint armature="5"/></default></default>'
    check(read(f'<body pos="1 2 3"><joint {attributes}/>{BALL}</body>', head), "bodies.0.joints.0", wanted)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('range="-90 180"', {"position_range": ((-np.pi / 2, np.pi),)}),
    ('type="slide" range="-1 2" limited="true"', {"position_range": ((-1, 2),)}),
    ('type="ball" range="0 90"', {"angle_limit": np.pi / 2}),
    ('range="-90 180" margin=".1"', {"margin": 0.1}),
    ('range="-90 180" solreflimit=".1 2"', {"limit_soft.solref": (0.1, 2)}),
    ('range="-90 180" solimplimit=".1 .2 .3 .4 5"', {"limit_soft.solimp": (0.1, 0.2, 0.3, 0.4, 5)}),
    ('frictionloss=".3"', {"friction": (0.3,)}),
    ('type="free" frictionloss=".3"', {"friction": (0.3,) * 6}),
    ('frictionloss=".3" solreffriction=".1 2"', {"friction_soft.solref": (0.1, 2)}),
    ('frictionloss=".3" solimpfriction=".1 .2 .3 .4 5"', {"friction_soft.solimp": (0.1, 0.2, 0.3, 0.4, 5)}),
])  # fmt: skip
def test_limits_and_friction_of_joints(attributes, wanted):
    text = f"<body><joint {attributes}/>{BALL}</body>"
    check(read(text), "bodies.0.joints.0", wanted)
    assert said(text) == []
    if "range" in attributes:
        unlimited = attributes.replace('limited="true"', "")
        free = {"position_range": None, "angle_limit": None}
        check(read(f'<body><joint {unlimited} limited="false"/>{BALL}</body>'), "bodies.0.joints.0", free)


def test_freejoint():
    spec = read(f'<body pos="1 2 3"><freejoint name="f" group="4"/>{BALL}</body>', '<default><joint damping="9" group="1"/></default>')
    check(spec, "bodies.0.joints.0", {"type": "free", "name": "f", "group": 4, "damping": (0,) * 6, "q0": (1, 2, 3, 1, 0, 0, 0)})


@pytest.mark.parametrize(("attributes", "wanted"), [
    ("", {"shape": "sphere", "size": (0.1,), "density": 1000, "fluid": None, "rgba": None, "group": 0}),
    ('type="capsule"', {"shape": "capsule", "size": (0.1, 0.2)}), ('type="cylinder"', {"shape": "cylinder", "size": (0.1, 0.2)}),
    ('type="ellipsoid"', {"shape": "ellipsoid", "size": (0.1, 0.2, 0.3)}), ('type="box"', {"shape": "box", "size": (0.1, 0.2, 0.3)}),
    ('type="plane"', {"shape": "plane", "size": (0.1, 0.2), "surface.spacing": 0.3}),
    ('type="hfield" hfield="h"', {"shape": "hfield", "asset": 0, "size": (1, 2, 3)}),
    ('type="mesh" mesh="cube"', {"shape": "mesh", "asset": 0}),
    ('type="box" mesh="cube"', {"shape": "box", "size": (1, 1, 1)}),
    ('type="box" mesh="cube" fitscale="2"', {"size": (2, 2, 2)}),
    ('name="x"', {"name": "x"}), ('class="c"', {"group": 4}), ('group="2"', {"group": 2}), ('material="m"', {"material": "m"}),
    ('rgba="1 0 0 .5"', {"rgba": (1, 0, 0, 0.5)}), ('mass="3"', {"mass": 3, "density": None}), ('density="5"', {"density": 5}),
    ('shellinertia="true"', {"shell": True}), ('pos="1 2 3"', {"pos": (1, 2, 3)}), ('quat="2 0 0 2"', {"quat": (HALF, 0, 0, HALF)}),
    ('axisangle="0 0 1 90"', {"quat": (HALF, 0, 0, HALF)}), ('euler="0 0 90"', {"quat": (HALF, 0, 0, HALF)}),
    ('xyaxes="0 1 0 -1 0 0"', {"quat": (HALF, 0, 0, HALF)}), ('zaxis="1 0 0"', {"quat": (HALF, 0, HALF, 0)}),
    ('type="capsule" fromto="1 0 0 1 0 4"', {"pos": (1, 0, 2), "size": (0.1, 2), "quat": (0, 1, 0, 0)}),
    ('fluidshape="ellipsoid"', {"fluid": (0.5, 0.25, 1.5, 1, 1)}),
    ('fluidshape="ellipsoid" fluidcoef="1 2 3 4 5"', {"fluid": (1, 2, 3, 4, 5)}), ('user="1 2"', {"user": (1, 2)}),
])  # fmt: skip
def test_geom(attributes, wanted):
    head = f'{ASSETS}<default><default class="c"><geom group="4"/></default></default>'
    check(read(f'<geom size=".1 .2 .3" {attributes}/>', head), "world_geoms.0", wanted)


@pytest.mark.parametrize(("geom", "mass", "inertia"), [
    ('type="sphere" size="2" mass="5"', 5, (8, 8, 8)),
    ('type="sphere" size="2" density="3"', 3 * 4 / 3 * np.pi * 8, 0.4 * 4 * 3 * 4 / 3 * np.pi * 8 * np.ones(3)),
    ('type="sphere" size="2" mass="6" shellinertia="true"', 6, (16, 16, 16)),
    ('type="box" size="1 2 3" mass="3"', 3, (13, 10, 5)),
    ('type="ellipsoid" size="1 2 3" mass="5"', 5, (13, 10, 5)),
    ('type="cylinder" size="2 3" mass="12"', 12, (48, 48, 24)),
    ('type="capsule" size=".1" fromto="0 0 0 0 0 2" mass="0"', 0, (0, 0, 0)),
    ('type="mesh" mesh="cube" density="3"', 24, (16, 16, 16)),
    ('type="box" size="1 2 3" mass="3" pos="0 0 1"', 3, (13, 10, 5)),
])  # fmt: skip
def test_what_geoms_weigh(geom, mass, inertia):
    body = read(f"<body><geom {geom}/></body>", ASSETS)
    found = body_inertial(body.bodies[0], body.meshes)
    assert found.mass == pytest.approx(mass)
    np.testing.assert_allclose(tensor(found.inertia), np.diag(inertia), atol=1e-6 * max(1, mass))


SURFACE = [
    ('contype="2"', "contype", 2), ('conaffinity="3"', "conaffinity", 3), ('condim="6"', "condim", 6), ('priority="7"', "priority", 7),
    ('friction="1.5 .2 .3"', "friction", (1.5, 0.2, 0.3)), ('friction="1.5"', "friction", (1.5, 0.005, 0.0001)),
    ('solmix="2"', "solmix", 2), ('solref=".1 2"', "soft.solref", (0.1, 2)),
    ('solimp=".1 .2 .3 .4 5"', "soft.solimp", (0.1, 0.2, 0.3, 0.4, 5)),
    ('margin=".4"', "margin", 0.4), ('gap=".5"', "gap", 0.5),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "path", "wanted"), SURFACE)
def test_contacts_of_geoms(attributes, path, wanted):
    model = f'<geom type="plane" size="1 1 1" contype="3" conaffinity="3"/><body><freejoint/><geom size=".1" {attributes}/></body>'
    same(at(read(model).bodies[0].geoms[0].contact, path), wanted)
    assert said(model) == []


JOINTED = f"<joint/>{BALL}"
TOUCHING = [  # world, what follows, whether contacts can happen
    (f"<body>{JOINTED}</body>", "", False),
    (f"{BALL}<body>{JOINTED}</body>", "", True),
    (f"{BALL}<body>{BALL}</body>", "", False),
    (f"<body>{JOINTED}</body><body>{JOINTED}</body>", "", True),
    (f"<body>{JOINTED}<body>{JOINTED}</body></body>", "", False),
    (f"<body>{JOINTED}<body>{BALL}<body>{JOINTED}</body></body></body>", "", False),
    (f"<body>{JOINTED}<body>{JOINTED}<body>{JOINTED}</body></body></body>", "", True),
    (f'<body name="a">{JOINTED}</body><body name="b">{JOINTED}</body>', '<contact><exclude body1="b" body2="a"/></contact>', False),
    (f'<body>{JOINTED}</body><body><joint/><geom size=".1" contype="2" conaffinity="2"/></body>', "", False),
    (f'<body>{JOINTED}</body><body><joint/><geom size=".1" contype="0" conaffinity="1"/></body>', "", True),
    ('<body><joint/><geom name="a" size=".1"/><body><joint/><geom name="b" size=".1"/></body></body>',
     '<contact><pair geom1="a" geom2="b"/></contact>', True),
]  # fmt: skip


@pytest.mark.parametrize(("world", "after", "touching"), TOUCHING)
def test_what_can_touch(world, after, touching):
    for flag, wanted in (("", touching), ("contact", False), ("constraint", False)):
        head = f'<option><flag {flag}="disable"/></option>' if flag else ""
        assert bool(read_pairs(read(world, head, after), [], LeafRows()).infos) == wanted
    chain = f"<body>{JOINTED}<body>{JOINTED}</body></body>"
    assert read_pairs(read(chain, '<option><flag filterparent="disable"/></option>'), [], LeafRows()).infos


def said(*model: str) -> list[str]:
    """The lines of the warning about what is not simulated, without their places."""
    try:
        with pytest.warns(UnsupportedWarning) as caught:
            read(*model)
    except pytest.fail.Exception:  # none came
        return []
    return [line.split(": ", 1)[1] for warning in caught for line in str(warning.message).splitlines()]


def test_strict_refuses_what_is_not_simulated():
    with pytest.raises(ParseError, match=r"m.xml:1: inverse dynamics in discrete time \(invdiscrete\) is not simulated yet"):
        parse_text('<mujoco><option><flag invdiscrete="enable"/></option></mujoco>', "mjcf", file="m.xml", strict=True)


PLACES = [
    ('name="x"', {"name": "x"}), ('pos="1 2 3"', {"pos": (1, 2, 3)}), ('quat="2 0 0 2"', {"quat": (HALF, 0, 0, HALF)}),
    ('axisangle="0 0 1 90"', {"quat": (HALF, 0, 0, HALF)}), ('euler="0 0 90"', {"quat": (HALF, 0, 0, HALF)}),
    ('xyaxes="0 1 0 -1 0 0"', {"quat": (HALF, 0, 0, HALF)}), ('zaxis="1 0 0"', {"quat": (HALF, 0, HALF, 0)}),
    ('user="1 2"', {"user": (1, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(("attributes", "wanted"), [
    *PLACES,
    ("", {"shape": "sphere", "size": (0.005,), "group": 0, "rgba": None}), ('class="c"', {"group": 4}), ('group="2"', {"group": 2}),
    ('type="box" size="1 2 3"', {"shape": "box", "size": (1, 2, 3)}), ('material="m"', {"material": "m"}),
    ('rgba="1 0 0 .5"', {"rgba": (1, 0, 0, 0.5)}),
    ('type="capsule" size=".1" fromto="1 0 0 1 0 4"', {"pos": (1, 0, 2), "size": (0.1, 2), "quat": (0, 1, 0, 0)}),
])  # fmt: skip
def test_site(attributes, wanted):
    head = f'{ASSETS}<default><default class="c"><site group="4"/></default></default>'
    check(read(f"<site {attributes}/>", head), "sites.0", wanted)


LENS = 'sensorsize=".02 .01" resolution="200 100" focal=".03 .04"'


@pytest.mark.parametrize(("attributes", "wanted"), [
    *PLACES,
    ("", {"mode": "fixed", "fovy": np.pi / 4, "ipd": 0.068, "resolution": (1, 1)}), ('class="c"', {"ipd": 0.5}), ('ipd=".1"', {"ipd": 0.1}),
    ('mode="track"', {"mode": "track", "target": None}), ('mode="trackcom"', {"mode": "trackcom"}),
    ('mode="targetbody" target="b"', {"mode": "targetbody", "target": 0}), ('mode="targetbodycom" target="b"', {"mode": "targetbodycom"}),
    ('fovy="90"', {"fovy": np.pi / 2}), ('fovy="3" orthographic="true"', {"fovy": 3, "orthographic": True}),
    ('resolution="200 100"', {"resolution": (200, 100)}),
    (LENS, {"sensor_size": (0.02, 0.01), "intrinsic": (0.03, 0.04, 0, 0), "fovy": 2 * np.arctan(0.01 / 0.08)}),
    (f'{LENS} focalpixel="100 200"', {"intrinsic": (0.01, 0.02, 0, 0)}),
    (f'{LENS} principal=".1 .2"', {"intrinsic.2": 0.1, "intrinsic.3": 0.2}),
    (f'{LENS} principalpixel="10 20"', {"intrinsic.2": 0.001, "intrinsic.3": 0.002}),
])  # fmt: skip
def test_camera(attributes, wanted):
    head = '<default><default class="c"><camera ipd=".5"/></default></default>'
    check(read(f'<body name="b"/><camera {attributes}/>', head), "cameras.0", wanted)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ('pos="1 2 3"', {"pos": (1, 2, 3)}), ('dir="3 0 4"', {"dir": (0.6, 0, 0.8)}),
    ('class="c"', {"drawing.cutoff": 7}),
    ('mode="track"', {"mode": "track"}), ('mode="targetbody" target="b"', {"mode": "targetbody", "target": 0}),
    *((f'{name}="{text}"', {f"drawing.{name}": wanted}) for name, text, wanted in (
        ("directional", "true", True), ("castshadow", "false", False), ("active", "false", False), ("bulbradius", ".3", 0.3),
        ("attenuation", "1 2 3", (1, 2, 3)), ("cutoff", "30", 30), ("exponent", "4", 4), ("ambient", ".1 .2 .3", (0.1, 0.2, 0.3)),
        ("diffuse", ".1 .2 .3", (0.1, 0.2, 0.3)), ("specular", ".1 .2 .3", (0.1, 0.2, 0.3)))),
])  # fmt: skip
def test_light(attributes, wanted):
    head = '<default><default class="c"><light cutoff="7"/></default></default>'
    check(read(f'<body name="b"/><light {attributes}/>', head), "lights.0", wanted)


def test_radius_of_a_light_is_called_bulbradius():
    with pytest.raises(ParseError, match="unknown attribute 'radius'"):
        read('<light radius="1"/>')


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('pos="1 2 3"', {"pos": (1, 2, 3)}), ('name="f" quat="2 0 0 2"', {"quat": (HALF, 0, 0, HALF)}),
    ('axisangle="0 0 1 90"', {"quat": (HALF, 0, 0, HALF)}), ('euler="0 0 90"', {"quat": (HALF, 0, 0, HALF)}),
    ('xyaxes="0 1 0 -1 0 0"', {"quat": (HALF, 0, 0, HALF)}), ('zaxis="1 0 0"', {"quat": (HALF, 0, HALF, 0)}),
    ('childclass="c"', {"group": 4}),
])  # fmt: skip
def test_frame(attributes, wanted):
    head = '<default><default class="c"><site group="4"/></default></default>'
    check(read(f"<frame {attributes}><site/></frame>", head), "sites.0", wanted)


def test_replicate_names_and_places():
    head = '<default><default class="c"><site group="4"/></default></default>'
    text = '<replicate count="3" sep="-" offset="1 0 0" euler="0 0 90" childclass="c"><site name="s"/></replicate>'
    sites = read(text, head, rules="4.0").sites
    assert [s.name for s in sites] == ["s-0", "s-1", "s-2"] and {s.group for s in sites} == {4}
    np.testing.assert_allclose([s.pos for s in sites], [(0, 0, 0), (1, 0, 0), (1, 1, 0)], atol=1e-15)


@pytest.mark.parametrize("world", [
    '<body><plugin plugin="mujoco.sdf.bolt"/></body>',
    '<body><plugin instance="i"/></body>',
    '<composite type="grid" count="2" spacing="1"><geom size=".1"/><plugin instance="i"/></composite>',
    '<flexcomp name="f" type="grid" count="2 2 1"><plugin instance="i"/></flexcomp>',
])  # fmt: skip
def test_plugins_of_bodies_are_refused(world):
    extension = '<extension><plugin plugin="mujoco.sdf.bolt"><instance name="i"/></plugin></extension>'
    with pytest.raises(ParseError, match="plugin"):
        read(world, extension)


@pytest.mark.parametrize("plugin", ['plugin="mujoco.sdf.bolt"', 'instance="i"'])
def test_plugins_of_geoms_that_need_none_are_said(plugin):
    with pytest.warns(UnsupportedWarning, match="<plugin.* in <geom>: the element is not read"):
        read(f'<geom size="1"><plugin {plugin}/></geom>')


@pytest.mark.parametrize(("tag", "attributes"), [
    ("actuator", 'joint="j" dyntype="none"'), ("sensor", 'objtype="body" objname="b" reftype="body" refname="b" cutoff="0" user="1"'),
])  # fmt: skip
def test_plugins_of_other_elements_are_refused(tag, attributes):
    """A plugin that is for something else."""
    extension = '<extension><plugin plugin="mujoco.sdf.bolt"><instance name="i"/></plugin></extension>'
    for plugin in ('plugin="mujoco.sdf.bolt"', 'instance="i"'):
        with pytest.raises(ParseError, match=f"the {tag} needs the plugin 'mujoco.sdf.bolt', which xsim has for no {tag}"):
            read(f'<body name="b"><joint name="j"/>{BALL}</body>', extension, f"<{tag}><plugin {plugin} {attributes}/></{tag}>")


def test_declared_plugins_have_no_effect():
    extension = '<extension><plugin plugin="mujoco.pid"><instance name="i"><config key="kp" value="1"/></instance></plugin></extension>'
    assert plain(read(head=extension)) == plain(read())
    with pytest.raises(ParseError, match="unknown plugin"):
        read(head='<extension><plugin plugin="mine"/></extension>')


# ---- macros ------------------------------------------------------------------------------------------------------------------


def net(attributes: str = "", inside: str = BALL, kind: str = "grid"):
    return read(f'<composite type="{kind}" count="3 2" spacing=".5" {attributes}>{inside}</composite>', ASSETS)


@pytest.mark.parametrize(("attributes", "path", "wanted"), [
    ("", "bodies.5", {"name": "B2_1", "pos": (0.25, 0, 0)}), ('prefix="P"', "bodies.5", {"name": "PB2_1", "geoms.0.name": "PG2_1"}),
    ('offset="1 2 3"', "bodies.5", {"pos": (1.25, 2, 3)}),
    ('flatinertia="1" solrefsmooth=".1" solimpsmooth=".1"', "bodies.5", {"name": "B2_1"}),
])  # fmt: skip
def test_composite(attributes, path, wanted):
    spec = net(attributes)
    assert len(spec.bodies) == 6 and len(spec.tendons) == 7 and len(spec.equalities) == 7
    check(spec, path, wanted)


@pytest.mark.parametrize("kind", ["rope", "loop", "cloth", "box", "cylinder", "ellipsoid"])
def test_removed_composites_are_refused(kind):
    with pytest.raises(ParseError, match=f"composite type '{kind}' was removed"):
        net(kind=kind)


@pytest.mark.parametrize("kind", ["grid", "particle"])
@pytest.mark.parametrize(("attributes", "wanted"), [
    ('group="2"', {"group": 2}), ('stiffness="2"', {"stiffness": (2,)}), ('damping="3"', {"damping": (3,)}),
    ('armature="4"', {"armature": (4,)}),
    ('range="-1 2"', {"position_range": ((-1, 2),)}), ('range="-1 2" limited="false"', {"position_range": None}),
    ('margin=".1"', {"margin": 0.1}),
    ('solreflimit=".1 2"', {"limit_soft.solref": (0.1, 2)}), ('solimplimit=".1"', {"limit_soft.solimp.0": 0.1}),
    ('frictionloss="5"', {"friction": (5,)}), ('solreffriction=".1 2"', {"friction_soft.solref": (0.1, 2)}),
    ('solimpfriction=".1"', {"friction_soft.solimp.0": 0.1}), ('solreffix=".1 2" solimpfix=".1"', {"group": 3}),
])  # fmt: skip
def test_joints_of_a_composite(kind, attributes, wanted):
    for joint in range(3):
        check(net("", f'{BALL}<joint kind="main" {attributes}/>', kind), f"bodies.5.joints.{joint}", wanted | {"type": "slide"})


def test_particles_may_have_joints_of_their_own():
    joints = net("", f'{BALL}<joint kind="particle" type="hinge" axis="0 3 4"/>', "particle").bodies[0].joints
    assert len(joints) == 1
    check(joints, "0", {"type": "hinge", "params.axes.0": (0, 0.6, 0.8)})


@pytest.mark.parametrize("kind", ["main", "shear"])
@pytest.mark.parametrize(("attributes", "wanted"), [
    ('group="2"', {"group": 2}), ('stiffness="2"', {"stiffness": 2}), ('damping="3"', {"damping": 3}), ('range="1 2"', {"range": (1, 2)}),
    ('range="1 2" limited="false"', {"range": None}), ('margin=".1"', {"margin": 0.1}),
    ('solreflimit=".1 2"', {"limit_soft.solref": (0.1, 2)}),
    ('solimplimit=".1"', {"limit_soft.solimp.0": 0.1}), ('frictionloss="5"', {"friction": 5}), ('material="m"', {"material": "m"}),
    ('solreffriction=".1 2"', {"friction_soft.solref": (0.1, 2)}), ('solimpfriction=".1"', {"friction_soft.solimp.0": 0.1}),
    ('rgba="1 0 0 1"', {"rgba": (1, 0, 0, 1)}), ('width=".7"', {"width": 0.7}),
])  # fmt: skip
def test_tendons_of_a_composite(kind, attributes, wanted):
    check(net("", f'{BALL}<tendon kind="{kind}" {attributes}/>'), "tendons.0" if kind == "main" else "tendons.8", wanted)


@pytest.mark.parametrize(("kind", "number", "solref", "solimp"), [
    ("main", 0, (0.01, 1), (0.99, 0.99)), ("shear", 8, (0.02, 1), (0.9, 0.95)),
])  # fmt: skip
def test_what_ties_a_composite(kind, number, solref, solimp):
    usual, other = (net("", f'{BALL}<tendon kind="{kind}" {text}/>') for text in ("", 'solreffix=".3 4" solimpfix=".5 .6"'))
    check(usual.equalities[number], "soft", {"solref": solref, "solimp": (*solimp, 0.001, 0.5, 2)})
    check(other.equalities[number], "soft", {"solref": (0.3, 4), "solimp": (0.5, 0.6, 0.001, 0.5, 2)})


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('group="2"', {"group": 2}), ('size=".2"', {"size": (0.2,)}), ('material="m"', {"material": "m"}),
    ('rgba="1 0 0 1"', {"rgba": (1, 0, 0, 1)}),
    ('mass="3"', {"mass": 3}), ('density="4"', {"density": 4}),
    *((text, {f"contact.{path}": wanted}) for text, path, wanted in SURFACE),
])  # fmt: skip
def test_geoms_of_a_composite(attributes, wanted):
    size = "" if "size" in attributes else 'size=".1"'
    check(net("", f"<geom {size} {attributes}/>"), "bodies.5.geoms.0", wanted | {"shape": "sphere"})
    box = f'<geom type="box" size=".1 .1 .1" {attributes if size else ""}/>'
    cable = read(f'<composite type="cable" count="3" curve="s">{box}</composite>', ASSETS)
    check(cable, "bodies.0.geoms.0", (wanted if size else {}) | {"shape": "box"})


def test_sites_pins_and_skins_of_a_composite():
    sites = net("", f'{BALL}<site group="2" size=".2" material="m" rgba="1 0 0 1"/>').sites
    check(sites, "5", {"group": 2, "size": (0.2,), "material": "m", "rgba": (1, 0, 0, 1), "name": "S2_1"})
    pinned = net("", f'{BALL}<pin coord="1 0"/><pin coord="2"/>')
    assert [len(body.joints) for body in pinned.bodies] == [3, 3, 0, 3, 0, 3]
    skin = net("", f'{BALL}<skin texcoord="true" material="m" rgba="1 0 0 1" group="2" inflate=".1" subgrid="1"/>').drawing["skins"]["Skin"]
    check(skin, "", {"material": "m", "rgba": (1, 0, 0, 1), "group": 2, "inflate": 0.1})
    assert len(skin["vertices"]) == len(skin["texcoord"]) == 2 * 5 * 3


def cloth(attributes: str = "", inside: str = "", after: str = ""):
    attributes = attributes if "count" in attributes or "direct" in attributes else f'{attributes} type="grid" count="3 2 1"'
    return read(f'<body name="b"><flexcomp name="f" {attributes}>{inside}</flexcomp></body>', ASSETS, after)


@pytest.mark.parametrize(("attributes", "path", "wanted"), [
    ("", "bodies.6", {"name": "f_5", "pos": (0.02, 0.01, 0), "inertial.mass": 1 / 6}),
    ('dim="1" type="circle" count="5 1 1"', "flexes.0", {"dim": 1}),
    ('spacing=".2 .3 .4"', "bodies.6", {"pos": (0.2, 0.15, 0)}), ('mass="12"', "bodies.6", {"inertial.mass": 2}),
    ('mass="12" inertiabox=".3"', "bodies.6", {"inertial.inertia.0": 2 / 3 * 2 * 0.09}),
    ('pos="1 2 3"', "bodies.6", {"pos": (1.02, 2.01, 3)}), ('quat="0 0 0 1"', "bodies.6", {"pos": (-0.02, -0.01, 0)}),
    ('axisangle="0 0 1 180"', "bodies.6", {"pos": (-0.02, -0.01, 0)}), ('euler="0 0 180"', "bodies.6", {"pos": (-0.02, -0.01, 0)}),
    ('xyaxes="-1 0 0 0 -1 0"', "bodies.6", {"pos": (-0.02, -0.01, 0)}), ('zaxis="0 0 -1"', "bodies.6", {"pos": (0.02, -0.01, 0)}),
    ('type="direct" point="0 0 0 1 0 0 0 1 0" element="0 1 2" scale="2 3 4"', "bodies.3", {"pos": (0, 3, 0)}),
    ('rigid="true"', "flexes.0", {"bodies": (0,) * 6}),
])  # fmt: skip
def test_flexcomp(attributes, path, wanted):
    check(cloth(attributes), path, wanted)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('radius=".001"', {"radius": 0.001}), ('material="m"', {"numbers.material": "m"}), ('rgba="1 0 0 1"', {"numbers.rgba": (1, 0, 0, 1)}),
    ('group="2"', {"numbers.group": 2}), ('flatskin="true"', {"numbers.flat_skin": True}),
    ('texcoord="0 0 0 0 0 0 0 0 0 0 0 1"', {"numbers.texcoord.5": (0, 1)}),
])  # fmt: skip
def test_flexes(attributes, wanted):
    """Those of a flexcomp, and those written out."""
    rows = "".join(f'<body name="v{i}" pos="{i // 2} {i % 2} 0">{BALL}</body>' for i in range(6))
    flex = f'<deformable><flex name="f" dim="2" body="v0 v1 v2 v3 v4 v5" element="0 2 3 0 3 1" {attributes}/></deformable>'
    fixed = f'<deformable><flex dim="1" body="world" vertex="0 0 0 1 2 3" element="0 1" {attributes.split("texcoord")[0]}/></deformable>'
    for read_one in (lambda: cloth(attributes), lambda: read(rows, ASSETS, flex)):
        check(read_one(), "flexes.0", wanted)
    check(read("", ASSETS, fixed), "flexes.0", {"dim": 1, "bodies": (-1, -1), "pos.1": (1, 2, 3), "elements": ((0, 1),)})


def _flexes(inside: str):
    """One of a flexcomp, and one written out."""
    line = 'dim="1" type="circle" count="5 1 1"' if "stiffness" in inside else ""
    flex = f'<deformable><flex dim="1" body="world" vertex="0 0 0 1 0 0" element="0 1">{inside}</flex></deformable>'
    return (lambda: cloth(line, inside)), (lambda: read("", "", flex))


@pytest.mark.parametrize(("inside", "wanted"), [
    ('<elasticity young="5"/>', {"young": 5}), ('<elasticity young="5" poisson=".3"/>', {"poisson": 0.3}),
    ('<elasticity young="5" damping=".3"/>', {"elastic_damping": 0.3}), ('<elasticity young="5" thickness=".3"/>', {"thickness": 0.3}),
    ('<edge damping="3"/>', {"edge_damping": 3}), ('<edge stiffness="3"/>', {"edge_stiffness": 3}),
])  # fmt: skip
def test_forces_of_flexes(inside, wanted):
    for read_one in _flexes(inside):
        check(read_one(), "flexes.0.numbers", wanted)


@pytest.mark.parametrize(("inside", "wanted"), [
    *((f"<contact {text}/>", {f"contact.{path}": wanted}) for text, path, wanted in SURFACE),
    ('<contact internal="false"/>', {"internal": False}), ('<contact selfcollide="sap"/>', {"selfcollide": "sap"}),
    ('<contact activelayers="3"/>', {"active_layers": 3}),
])  # fmt: skip
def test_contacts_of_flexes(inside, wanted):
    for read_one in _flexes(inside):
        check(read_one(), "flexes.0.numbers", wanted)


def test_edges_of_a_flexcomp_may_keep_their_lengths():
    spec = cloth(inside='<edge equality="true" solref=".3 4" solimp=".5"/>')
    check(spec, "equalities.0", {"kind": "flex", "items": (0,), "soft.solref": (0.3, 4), "soft.solimp.0": 0.5})


# ---- contact and equality ----------------------------------------------------------------------------------------------------

SCENE = f"""<site name="w"/><body name="a"><joint name="ja"/><joint name="sa" type="slide"/><geom name="ga" size=".1"/>
  <site name="s1"/><site name="s2" pos="0 0 1"/><camera name="eye" resolution="4 4"/></body>
  <body name="b" pos="3 0 0"><joint name="jb" range="-90 90"/><geom name="gb" type="cylinder" size=".1 .1"/><site name="s3"/></body>
  <body name="c" pos="6 0 0"><joint name="ball" type="ball" range="0 90"/>{BALL}</body>
  <body name="m" mocap="true" pos="1 2 3"/>"""
TENDONS = """<tendon><fixed name="t1" range="-1 1"><joint joint="ja" coef="2"/></fixed>
  <fixed name="t2"><joint joint="jb" coef="1"/></fixed></tendon>"""
ACTUATOR = '<actuator><motor name="drive" joint="ja"/></actuator>'


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ("", {"geoms": (0, 1), "condim": 3, "friction": (1, 1, 0.005, 0.0001, 0.0001), "margin": 0, "gap": 0}),
    ('class="k"', {"condim": 6}), ('condim="4"', {"condim": 4}), ('friction="1 2 3 4 5"', {"friction": (1, 2, 3, 4, 5)}),
    ('solref=".1 2"', {"solref": (0.1, 2)}), ('solimp=".1 .2 .3 .4 5"', {"solimp": (0.1, 0.2, 0.3, 0.4, 5)}),
    ('solreffriction=".1 2"', {"friction_solref": (0.1, 2)}), ('margin=".1"', {"margin": 0.1}), ('gap=".2"', {"gap": 0.2}),
])  # fmt: skip
def test_pairs(attributes, wanted):
    head = '<default><default class="k"><pair condim="6"/></default></default>'
    spec = read(SCENE, head, f'<contact><pair geom1="gb" geom2="ga" {attributes}/></contact>')
    check(spec, "pairs.0", wanted)


def test_excluded_bodies():
    spec = read(SCENE, "", '<contact><exclude name="x" body1="a" body2="b"/></contact>')
    assert spec.exclude == ((0, 1),)
    owner = [-1] * len(spec.world_geoms) + [i for i, body in enumerate(spec.bodies) for _ in body.geoms]
    touching = {frozenset(owner[g] for g in pair) for info in read_pairs(spec, [], LeafRows()).infos for pair in info.geoms.value.tolist()}
    assert frozenset((0, 1)) not in touching and touching


EQUALITY = [
    ('name="x"', {"name": "x"}), ('class="k"', {"soft.solref": (0.7, 1)}), ('solref=".1 2"', {"soft.solref": (0.1, 2)}),
    ('solimp=".1 .2 .3 .4 5"', {"soft.solimp": (0.1, 0.2, 0.3, 0.4, 5)}),
]  # fmt: skip
BETWEEN = {
    "connect": 'body1="a" anchor="0 0 0"', "weld": 'body1="a"', "joint": 'joint1="ja"', "tendon": 'tendon1="t1"', "flex": 'flex="f"',
}  # fmt: skip


FLEX = '<deformable><flex name="f" dim="1" body="a b" element="0 1"/></deformable>'


CLASS = '<default><default class="k"><equality solref=".7"/></default></default>'


@pytest.mark.parametrize(("kind", "attributes", "wanted"), [
    *((kind, f"{base} {text}", wanted) for kind, base in BETWEEN.items() if kind != "flex" for text, wanted in EQUALITY),
    ("connect", 'body1="a" anchor="1 2 3"', {"items": (0, -1), "anchor": (1, 2, 3), "sites": False}),
    ("connect", 'body1="a" body2="b" anchor="1 2 3"', {"items": (0, 1)}),
    ("connect", 'site1="s1" site2="s3"', {"items": (1, 3), "sites": True}),
    ("weld", 'body1="a" body2="b"', {"items": (0, 1), "relpose": None, "torque_scale": 1}),
    ("weld", 'body1="a" relpose="1 2 3 0 0 0 2"', {"relpose": (1, 2, 3, 0, 0, 0, 1)}),
    ("weld", 'body1="a" anchor="1 2 3"', {"anchor": (1, 2, 3)}),
    ("weld", 'body1="a" torquescale="3"', {"torque_scale": 3}), ("weld", 'site1="s1" site2="s3"', {"items": (1, 3), "sites": True}),
    ("joint", 'joint1="ja"', {"items": ((0, 0),), "polycoef": (0, 1, 0, 0, 0)}),
    ("joint", 'joint1="sa" joint2="jb"', {"items": ((0, 1), (1, 0))}),
    ("joint", 'joint1="ja" polycoef="1 2 3 4 5"', {"polycoef": (1, 2, 3, 4, 5)}),
    ("tendon", 'tendon1="t1" tendon2="t2"', {"items": (0, 1)}),
    ("tendon", 'tendon1="t2" polycoef="1 2 3 4 5"', {"items": (1,), "polycoef": (1, 2, 3, 4, 5)}),
])  # fmt: skip
def test_equalities(kind, attributes, wanted):
    text = f"{TENDONS}<equality><{kind} {attributes}/></equality>"
    check(read(SCENE, CLASS, text), "equalities.0", wanted | {"kind": kind, "active": True})
    assert "equalities" not in " ".join(said(SCENE, CLASS, text))


@pytest.mark.parametrize(("text", "wanted"), [*EQUALITY, ("", {"items": (0,)})])
def test_equalities_of_flexes(text, wanted):
    spec = read(SCENE, CLASS, f'{FLEX}<equality><flex flex="f" {text}/></equality>')
    check(spec, "equalities.0", wanted | {"kind": "flex", "active": True})


@pytest.mark.parametrize("kind", BETWEEN)
def test_equalities_that_are_off_are_not_said(kind):
    text = f'{TENDONS}{FLEX}<equality><{kind} {BETWEEN[kind]} active="false"/></equality>'
    assert "equality" not in " ".join(said(SCENE, "", text))
    assert not read(SCENE, "", text).equalities[0].active


def test_distance_equalities_are_refused():
    with pytest.raises(ParseError, match="distance"):
        read(SCENE, "", '<equality><distance geom1="ga" geom2="gb"/></equality>')


# ---- tendon ------------------------------------------------------------------------------------------------------------------


def tendon(kind: str, attributes: str, head: str = ""):
    path = '<joint joint="ja" coef="3"/>' if kind == "fixed" else '<site site="s1"/><site site="s3"/>'
    return read(SCENE, f"{ASSETS}{head}", f"<tendon><{kind} {attributes}>{path}</{kind}></tendon>").tendons[0]


@pytest.mark.parametrize("kind", ["fixed", "spatial"])
@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ("", {"spring_length": None, "stiffness": 0, "damping": 0, "friction": 0, "range": None, "width": 0.003}),
    ('class="k"', {"stiffness": 7}), ('group="2"', {"group": 2}), ('springlength="1"', {"spring_length": (1, 1)}),
    ('springlength="1 2"', {"spring_length": (1, 2)}), ('stiffness="2"', {"stiffness": 2}), ('damping="3"', {"damping": 3}),
    ('user="1 2"', {"user": (1, 2)}),
])  # fmt: skip
def test_tendon(kind, attributes, wanted):
    head = '<default><default class="k"><tendon stiffness="7"/></default></default>'
    check(tendon(kind, attributes, head), "", wanted | {"kind": kind})


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('width=".5"', {"width": 0.5}), ('material="m"', {"material": "m"}), ('rgba="1 0 0 .5"', {"rgba": (1, 0, 0, 0.5)}),
])  # fmt: skip
def test_looks_of_a_spatial_tendon(attributes, wanted):
    check(tendon("spatial", attributes), "", wanted)


@pytest.mark.parametrize("kind", ["fixed", "spatial"])
@pytest.mark.parametrize(("attributes", "wanted"), [
    ('range="-1 2"', {"range": (-1, 2)}), ('range="-1 2" limited="true"', {"range": (-1, 2)}),
    ('range="-1 2" solreflimit=".1 2"', {"limit_soft.solref": (0.1, 2)}), ('range="-1 2" margin=".1"', {"margin": 0.1}),
    ('range="-1 2" solimplimit=".1"', {"limit_soft.solimp.0": 0.1}), ('frictionloss=".3"', {"friction": 0.3}),
    ('frictionloss=".3" solreffriction=".1 2"', {"friction_soft.solref": (0.1, 2)}),
    ('frictionloss=".3" solimpfriction=".1"', {"friction_soft.solimp.0": 0.1}),
])  # fmt: skip
def test_limits_and_friction_of_tendons(kind, attributes, wanted):
    check(tendon(kind, attributes), "", wanted)


def test_ways_of_tendons():
    path = '<site site="s1"/><geom geom="gb" sidesite="s3"/><site site="s2"/><pulley divisor="4"/><site site="s1"/><site site="w"/>'
    spec = read(SCENE, "", f'<tendon><spatial>{path}</spatial><fixed><joint joint="sa" coef="5"/></fixed></tendon>')
    pieces = [(p.kind, p.item, p.value, p.side) for p in spec.tendons[0].path]
    assert pieces == [("site", 1, 1, None), ("geom", 1, 1, 3), ("site", 2, 1, None), ("pulley", -1, 4, None), ("site", 1, 1, None),
                      ("site", 0, 1, None)]  # fmt: skip
    check(spec.tendons[1].path, "0", {"kind": "joint", "item": (0, 1), "value": 5})


# ---- actuator ----------------------------------------------------------------------------------------------------------------

NEEDS = {"intvelocity": 'actrange="-1 1"', "damper": 'ctrlrange="0 1"'}  # what a shortcut cannot do without
CLAMPED = ("general", "motor", "position", "velocity", "intvelocity", "cylinder", "muscle")
DRIVEN = (*CLAMPED, "damper")


def actuator(kind: str, attributes: str, target: str = 'joint="ja"', head: str = ""):
    own = NEEDS.get(kind, "")
    own = "" if own.split("=")[0] in attributes or "inheritrange" in attributes else own
    return read(SCENE, head, f"{TENDONS}<actuator><{kind} {target} {own} {attributes}/></actuator>").actuators[0]


@pytest.mark.parametrize("kind", DRIVEN)
@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ('group="2"', {"group": 2}), ('class="k"', {"gear": (3, 0, 0, 0, 0, 0)}), ('user="1 2"', {"user": (1, 2)}),
    ('ctrlrange="1 2"', {"ctrl_range": (1, 2)}), ('forcerange="-1 2"', {"force_range": (-1, 2)}),
    ('forcerange="-1 2" forcelimited="false"', {"force_range": None}), ('gear="1 2 3 4 5 6"', {"gear": (1, 2, 3, 4, 5, 6)}),
    ('lengthrange="1 2"', {"length_range": (1, 2)}),
])  # fmt: skip
def test_actuator(kind, attributes, wanted):
    head = '<default><default class="k"><general gear="3"/></default></default>'
    check(actuator(kind, attributes, head=head), "", wanted | {"transmission": "joint", "target": (0, 0)})


@pytest.mark.parametrize("kind", CLAMPED)
def test_clamps_can_be_switched_off(kind):
    check(actuator(kind, 'ctrlrange="1 2" ctrllimited="false"'), "", {"ctrl_range": None})


@pytest.mark.parametrize("kind", DRIVEN)
@pytest.mark.parametrize(("target", "wanted"), [
    ('joint="jb"', {"transmission": "joint", "target": (1, 0)}),
    ('jointinparent="ball"', {"transmission": "jointinparent", "target": (2, 0)}),
    ('tendon="t2"', {"transmission": "tendon", "target": 1}),
    ('cranksite="s1" slidersite="s2" cranklength=".3"', {"transmission": "slidercrank", "target": 1, "reference": 2, "crank_length": 0.3}),
    ('site="s3"', {"transmission": "site", "target": 3, "reference": None}),
    ('site="s3" refsite="w"', {"transmission": "site", "target": 3, "reference": 0}),
])  # fmt: skip
def test_targets(kind, target, wanted):
    if kind == "muscle" and "site=" in target.split()[0].replace("cranksite", ""):
        with pytest.raises(ParseError, match="unknown attribute"):
            actuator(kind, "", target)
    else:
        check(actuator(kind, "", target), "", wanted)


@pytest.mark.parametrize(("kind", "attributes", "wanted"), [
    ("general", 'dyntype="none"', {"dynamics": "none"}), ("general", 'dyntype="integrator"', {"dynamics": "integrator"}),
    ("general", 'dyntype="filter" dynprm=".3"', {"dynamics": "filter", "dynamics_params.0": 0.3}),
    ("general", 'dyntype="filterexact"', {"dynamics": "filterexact"}), ("general", 'dyntype="muscle"', {"dynamics": "muscle"}),
    ("general", 'gaintype="fixed" gainprm="3"', {"gain": "fixed", "gain_params.0": 3}),
    ("general", 'gaintype="affine" gainprm="3 4 5"', {"gain": "affine", "gain_params": (3, 4, 5, *[0] * 7)}),
    ("general", 'gaintype="muscle" gainprm=".8 1 -1 200 .5 1.6 1.5 1.3 1.2"', {"gain": "muscle"}),
    ("general", 'biastype="none"', {"bias": "none"}),
    ("general", 'biastype="affine" biasprm="3 4 5"', {"bias": "affine", "bias_params": (3, 4, 5, *[0] * 7)}),
    ("general", 'biastype="muscle" biasprm=".8 1 -1 200 .5 1.6 1.5 1.3 1.2"', {"bias": "muscle"}),
    ("general", 'dyntype="filter" actrange="-1 2"', {"act_range": (-1, 2)}),
    ("general", 'dyntype="filter" actrange="-1 2" actlimited="false"', {"act_range": None}),
    ("general", 'dyntype="filter" actdim="1"', {"dynamics": "filter"}),
    ("general", 'dyntype="filter" actearly="true"', {"act_early": True}),
    ("motor", "", {"dynamics": "none", "gain": "fixed", "bias": "none", "gain_params.0": 1}),
    ("position", 'kp="3"', {"gain_params.0": 3, "bias_params": (0, -3, *[0] * 8), "dynamics": "none"}),
    ("position", 'kv="3"', {"bias_params.2": -3}),
    ("position", 'dampratio="2"', {"damp_ratio": 2, "bias_params.2": 0}),
    ("position", 'timeconst=".3"', {"dynamics": "filterexact", "dynamics_params.0": 0.3}),
    ("position", 'joint="jb" inheritrange="2"', {"ctrl_range": (-np.pi, np.pi)}),
    ("velocity", 'kv="3"', {"gain_params.0": 3, "bias_params": (0, 0, -3, *[0] * 7)}),
    ("intvelocity", 'kp="3" kv="4"', {"dynamics": "integrator", "bias_params": (0, -3, -4, *[0] * 7), "act_range": (-1, 1)}),
    ("intvelocity", 'dampratio="2"', {"damp_ratio": 2}), ("intvelocity", 'actrange="-2 3"', {"act_range": (-2, 3)}),
    ("intvelocity", 'joint="jb" inheritrange="2"', {"act_range": (-np.pi, np.pi)}),
    ("damper", 'kv="3"', {"gain": "affine", "gain_params": (0, 0, -3, *[0] * 7), "bias": "none", "ctrl_range": (0, 1)}),
    ("cylinder", 'timeconst=".3" area="4"', {"dynamics": "filter", "dynamics_params.0": 0.3, "gain_params.0": 4}),
    ("cylinder", 'diameter="4"', {"gain_params.0": 4 * np.pi}),
    ("cylinder", 'bias="1 2 3"', {"bias": "affine", "bias_params": (1, 2, 3, *[0] * 7)}),
    ("muscle", "", {"dynamics": "muscle", "gain": "muscle", "bias": "muscle", "dynamics_params": (0.01, 0.04, *[0] * 8)}),
    ("muscle", 'timeconst=".1 .2"', {"dynamics_params.0": 0.1, "dynamics_params.1": 0.2}),
    ("muscle", 'tausmooth=".3"', {"dynamics_params.2": 0.3}),
    ("muscle", 'range=".5 2"', {"gain_params.0": 0.5, "gain_params.1": 2}),
    *(("muscle", f'{name}="{x}"', {f"gain_params.{i}": x, f"bias_params.{i}": x}) for i, (name, x) in enumerate(
        {"force": 30, "scale": 31, "lmin": 0.3, "lmax": 1.7, "vmax": 2, "fpmax": 3, "fvmax": 4}.items(), 2)),
])  # fmt: skip
def test_what_drives(kind, attributes, wanted):
    own = "" if attributes.startswith("joint=") else 'joint="ja"'
    check(actuator(kind, attributes, own), "", wanted)


@pytest.mark.parametrize("attribute", ['dyntype="user"', 'gaintype="user"', 'biastype="user"', 'dyntype="filter" actdim="2"', 'actdim="1"'])
def test_programs_of_users_are_refused(attribute):
    with pytest.raises(ParseError, match=attribute.split("=")[0] if "actdim" not in attribute else "actdim"):
        actuator("general", attribute)


def test_dampers_are_always_clamped():
    with pytest.raises(ParseError, match="unknown attribute 'ctrllimited'"):
        actuator("damper", 'ctrllimited="true"')


@pytest.mark.parametrize(("kind", "attributes", "wanted"), [
    ("adhesion", 'gain="3"', {"gain_params.0": 3}), ("adhesion", 'name="x"', {"name": "x"}), ("adhesion", 'class="k"', {"group": 4}),
    ("adhesion", 'group="2"', {"group": 2}), ("adhesion", 'forcerange="-1 2"', {"force_range": (-1, 2)}),
    ("adhesion", 'forcerange="-1 2" forcelimited="false"', {"force_range": None}), ("adhesion", 'user="1 2"', {"user": (1, 2)}),
    ("general", "", {"ctrl_range": (0, 3)}),
])  # fmt: skip
def test_adhesion(kind, attributes, wanted):
    head = '<default><default class="k"><adhesion group="4"/></default></default>'
    spec = read(SCENE, head, f'<actuator><{kind} body="b" ctrlrange="0 3" {attributes}/></actuator>')
    check(spec, "actuators.0", wanted | {"transmission": "body", "target": 1, "ctrl_range": (0, 3)})


# ---- sensor ------------------------------------------------------------------------------------------------------------------

OBJECTS = {  # what a kind measures, as the file says it and as it is read
    "site": ('site="s3"', ("site", 3)), "joint": ('joint="jb"', ("joint", (1, 0))), "ball": ('joint="ball"', ("joint", (2, 0))),
    "tendon": ('tendon="t1"', ("tendon", 0)), "actuator": ('actuator="drive"', ("actuator", 0)), "body": ('body="b"', ("body", 1)),
    "frame": ('objtype="geom" objname="gb"', ("geom", 1)), "camera": ('site="s3" camera="eye"', ("site", 3)), "nothing": ("", None),
    "two": ('geom1="ga" body2="b"', ("geom", 0)), "inside": ('objtype="geom" objname="gb" site="s3"', ("geom", 1)),
}  # fmt: skip
KINDS = {  # kind: what it measures, width, stage
    "touch": ("site", 1, "acceleration"), "accelerometer": ("site", 3, "acceleration"), "velocimeter": ("site", 3, "velocity"),
    "gyro": ("site", 3, "velocity"), "force": ("site", 3, "acceleration"), "torque": ("site", 3, "acceleration"),
    "magnetometer": ("site", 3, "position"), "rangefinder": ("site", 1, "position"), "camprojection": ("camera", 2, "position"),
    "jointpos": ("joint", 1, "position"), "jointvel": ("joint", 1, "velocity"), "tendonpos": ("tendon", 1, "position"),
    "tendonvel": ("tendon", 1, "velocity"), "actuatorpos": ("actuator", 1, "position"), "actuatorvel": ("actuator", 1, "velocity"),
    "actuatorfrc": ("actuator", 1, "acceleration"), "jointactuatorfrc": ("joint", 1, "acceleration"), "ballquat": ("ball", 4, "position"),
    "ballangvel": ("ball", 3, "velocity"), "jointlimitpos": ("joint", 1, "position"), "jointlimitvel": ("joint", 1, "velocity"),
    "jointlimitfrc": ("joint", 1, "acceleration"), "tendonlimitpos": ("tendon", 1, "position"), "tendonlimitvel": ("tendon", 1, "velocity"),
    "tendonlimitfrc": ("tendon", 1, "acceleration"), "framepos": ("frame", 3, "position"), "framequat": ("frame", 4, "position"),
    "framexaxis": ("frame", 3, "position"), "frameyaxis": ("frame", 3, "position"), "framezaxis": ("frame", 3, "position"),
    "framelinvel": ("frame", 3, "velocity"), "frameangvel": ("frame", 3, "velocity"), "framelinacc": ("frame", 3, "acceleration"),
    "frameangacc": ("frame", 3, "acceleration"), "subtreecom": ("body", 3, "position"), "subtreelinvel": ("body", 3, "velocity"),
    "subtreeangmom": ("body", 3, "velocity"), "distance": ("two", 1, "position"), "normal": ("two", 3, "position"),
    "fromto": ("two", 6, "position"), "clock": ("nothing", 1, "position"),
    "insidesite": ("inside", 1, "position"), "e_potential": ("nothing", 1, "position"), "e_kinetic": ("nothing", 1, "velocity"),
    "tendonactuatorfrc": ("tendon", 1, "acceleration"),
}  # fmt: skip
OF_4_0 = ("contact", "insidesite", "e_potential", "e_kinetic", "tendonactuatorfrc")
UNITS = ("framequat", "framexaxis", "frameyaxis", "framezaxis", "ballquat")


def sensor(text: str, rules: str | None = None):
    rules = rules or ("4.0" if text.split()[0] in OF_4_0 else "3.2")
    return read(SCENE, "", f"{TENDONS}{ACTUATOR}<sensor><{text}/></sensor>", rules).sensors[0]


def check_sensor(kind: str) -> None:
    what, dim, stage = KINDS[kind]
    text, measured = OBJECTS[what]
    cutoff = "" if kind in UNITS else 'cutoff="3"'
    found = sensor(f'{kind} name="x" noise=".1" user="1 2" {text} {cutoff}')
    assert found.object == measured and found.kind == kind
    check(found, "", {"name": "x", "noise": 0.1, "user": (1, 2), "cutoff": 0 if kind in UNITS else 3, "dim": dim, "stage": stage})


@pytest.mark.parametrize("kind", SENSORS)
def test_sensor(kind):
    check_sensor(kind)


@pytest.mark.parametrize("kind", OF_4_0)
def test_sensors_of_4_0_are_refused_in_3_2(kind):
    text = "" if kind == "contact" else OBJECTS[KINDS[kind][0]][0]
    with pytest.raises(ParseError, match=rf'm.xml:\d+: <{kind}.*>: not in MuJoCo 3.2; allowed: with the option rules="4.0"'):
        sensor(f"{kind} {text}", "3.2")


@pytest.mark.parametrize("kind", UNITS)
def test_unit_vectors_are_not_cut_off(kind):
    with pytest.raises(ParseError, match="cutoff"):
        sensor(f'{kind} {OBJECTS[KINDS[kind][0]][0]} cutoff="1"')


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("frame")])
def test_what_frame_sensors_measure(kind):
    objects = {"body": ("a", 0), "xbody": ("a", 0), "geom": ("gb", 1), "site": ("s3", 3), "camera": ("eye", 0)}
    for word, (name, number) in objects.items():
        assert sensor(f'{kind} objtype="{word}" objname="{name}"').object == (word, number)
        if not kind.endswith("acc"):
            assert sensor(f'{kind} objtype="body" objname="a" reftype="{word}" refname="{name}"').reference == (word, number)


@pytest.mark.parametrize("ends", list(itertools.product(("geom1", "body1"), ("geom2", "body2"))))
@pytest.mark.parametrize("kind", ["distance", "normal", "fromto"])
def test_what_distances_are_between(kind, ends):
    names = {"geom1": ("ga", 0), "body1": ("a", 0), "geom2": ("gb", 1), "body2": ("b", 1)}
    found = sensor(f"{kind} " + " ".join(f'{end}="{names[end][0]}"' for end in ends))
    assert (found.object, found.reference) == tuple((end[:4], names[end][1]) for end in ends)


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('dim="4"', {"dim": 4, "stage": "acceleration"}), ('dim="3" datatype="axis"', {"dim": 3}),
    ('dim="1" needstage="pos"', {"stage": "position"}),
    ('dim="1" needstage="vel"', {"stage": "velocity"}), ('dim="1" name="x"', {"name": "x"}), ('dim="1" noise="2"', {"noise": 2}),
    ('dim="1" cutoff="3"', {"cutoff": 3}), ('dim="1" user="4"', {"user": (4,)}),
])  # fmt: skip
def test_sensors_of_users_programs(attributes, wanted):
    """There is no program: they give zeros."""
    check(sensor(f"user {attributes}"), "", wanted)
    assert sensor('user dim="1" objtype="geom" objname="gb"').object == ("geom", 1)


# ---- keyframe, custom --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("attributes", "wanted"), [
    ('name="x"', {"name": "x"}), ('time="3"', {"time": 3}), ('qpos="1 2 3 2 0 0 0"', {"q": (1, 2, 3, 1, 0, 0, 0)}),
    ('qvel="1 2 3 4 5 6"', {"v": (1, 2, 3, 4, 5, 6)}), ('act="7"', {"act": (7,)}), ('ctrl="8 9"', {"ctrl": (8, 9)}),
    ('mpos="1 2 3"', {"mocap_pos": ((1, 2, 3),)}), ('mquat="0 0 0 2"', {"mocap_quat": ((0, 0, 0, 1),)}),
    ("", {"q": None, "mocap_pos": None}),
])  # fmt: skip
def test_key(attributes, wanted):
    after = f'<actuator><motor joint="ja"/><cylinder joint="ja"/></actuator><keyframe><key {attributes}/></keyframe>'
    check(read(SCENE, "", after), "keys.0", wanted)


def test_custom_data():
    element = '<element objtype="body" objname="b" prm="5"/>'
    text = f'<custom><numeric name="n" size="3" data="1 2"/><text name="t" data="x y"/><tuple name="l">{element}</tuple></custom>'
    found = read(SCENE, "", text).custom
    same(found["numeric"]["n"], (1, 2, 0))
    assert found["text"]["t"] == "x y" and found["tuple"]["l"] == (("body", "b", 5.0),)
