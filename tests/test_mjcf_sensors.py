"""Sensors that MuJoCo 4.0 has and 3.2 has not. The numbers are those of MuJoCo 4.0.0: `mj_resetDataKeyframe(model, data, 0)`, then
`mj_forward(model, data)` and `data.sensordata`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.poses import rotate

pytestmark = pytest.mark.usefixtures("x64")


def load(text: str) -> xsim.Model:
    return xsim.loads(text, "mjcf", rules="4.0")


def test_joints_without_actuators_feel_no_force_of_actuators():
    text = """<mujoco>
      <worldbody><body gravcomp="1"><joint name="j" actuatorgravcomp="true"/><geom size=".1" pos=".2 0 0"/></body></worldbody>
      <sensor><jointactuatorfrc joint="j"/></sensor></mujoco>"""
    model = load(text)
    assert xsim.sensors(model, xsim.init(model)).tolist() == [0.0]  # MuJoCo 4.0.0 compensates no gravity there either


# ---- energies, insidesite ----------------------------------------------------------------------------------------------------

OBJECTS = (("body", "a"), ("xbody", "a"), ("geom", "ga"), ("site", "sa"), ("camera", "ca"), ("body", "b"), ("body", "world"))
VOLUMES = ("sphere", "capsule", "ellipsoid", "cylinder", "box")
ARM = f"""
<mujoco>
  <option gravity=".3 -.2 -9.81"/>
  <default><geom contype="0" conaffinity="0"/></default>
  <worldbody>
    <geom type="box" size=".1 .2 .3" pos="0 1 2" mass="2"/>
    <body pos="1 2 3"><geom size=".2" mass="3"/></body>
    <site name="sphere" size=".3" pos=".1 0 .9"/>
    <site name="capsule" type="capsule" size=".1 .4" pos="0 0 .9" euler="0 60 0"/>
    <site name="ellipsoid" type="ellipsoid" size=".5 .2 .1" pos=".2 .1 .9"/>
    <site name="cylinder" type="cylinder" size=".3 .1" euler="90 0 0" pos=".1 .1 .9"/>
    <site name="box" type="box" size=".2 .1 .3" euler="0 0 45" pos=".1 .05 1"/>
    <body name="a" pos="0 0 1" gravcomp=".4">
      <joint type="slide" axis="1 0 1" stiffness="20" springref=".1" armature=".2"/>
      <joint axis="0 1 0" stiffness="5" springref="10" armature=".1"/>
      <geom name="ga" type="capsule" fromto="0 0 0 .4 .1 0" size=".05"/>
      <site name="sa" pos=".4 .1 0"/><camera name="ca" pos="0 .1 -.1"/>
      <body name="b" pos=".4 .1 0"><joint type="ball" stiffness="3"/><geom type="box" size=".1 .2 .05" pos=".1 0 0"/></body>
    </body>
  </worldbody>
  <tendon><spatial stiffness="30" springlength=".1 .2"><site site="sphere"/><site site="sa"/></spatial></tendon>
  <sensor>
    <e_potential/><e_kinetic/><e_potential cutoff="20"/><insidesite site="sphere" objtype="body" objname="a" cutoff=".5"/>
    {"".join(f'<insidesite site="{site}" objtype="{kind}" objname="{name}"/>' for site in VOLUMES for kind, name in OBJECTS)}
  </sensor>
  <keyframe><key qpos=".05 .4 .8 .3 .4 -.2" qvel="1 -2 .5 1.5 -.7"/></keyframe>
</mujoco>
"""


def test_energies():
    """Gravity (a body fixed to the world, gravcomp), springs of joints, a ball and a tendon, armature; a cutoff clips."""
    model = load(ARM)
    found = by_numpy(xsim.forward)(model, xsim.init(model, key=0)).sensor
    np.testing.assert_allclose(found[:3], [186.69911144033708, 16.978823789965304, 20.0], rtol=1e-13)


@pytest.mark.slow
def test_energies_have_derivatives():
    """The slope of the kinetic energy along v is the momentum M v, that of the potential energy along q minus the force that it stores."""
    model = load(ARM.replace('gravcomp=".4"', ""))  # a force without a potential
    state = xsim.init(model, key=0)

    def energies(v, dq):
        return xsim.sensors(model, state.replace(q=xsim.integrate(model, state.q, dq), v=v))[:2]

    rest = jnp.zeros(5)
    by_v, by_q = by_numpy(jax.jacfwd(energies, (0, 1)))(state.v, rest)
    M, bias, passive = by_numpy(lambda q: (xsim.mass_matrix(model, q), xsim.bias(model, q, rest), xsim.passive(model, q, rest)))(state.q)
    np.testing.assert_allclose(by_v, [np.zeros(5), M @ state.v], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(by_q[0], bias - passive, rtol=1e-11)


def test_insidesite():
    """Origins of frames of every kind in volumes of every shape; a cutoff clips."""
    model = load(ARM)
    state = xsim.init(model, key=0)
    found = by_numpy(xsim.forward)(model, state).sensor[3:]
    assert found[0] == 0.5
    np.testing.assert_array_equal(found[1:].reshape(5, 7), [
        [1, 1, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0], [1, 0, 1, 1, 1, 0, 0], [1, 0, 1, 0, 1, 0, 0], [1, 1, 1, 0, 0, 0, 0],
    ])  # fmt: skip


SURFACES = {"sphere": ("1", (1, 0, 0)), "capsule": ("1 1", (0, 0, 2)), "ellipsoid": ("1 2 3", (0, 2, 0)),
            "cylinder": ("1 1", (0, 0.5, 1)), "box": ("1 1 1", (1, 0, 0))}  # fmt: skip


def test_a_surface_is_outside():
    """A point on it is not inside, one that is nearer to the centre is."""
    sites = "".join(f'<site name="{kind}" type="{kind}" size="{size}"/>' for kind, (size, _) in SURFACES.items())
    places = [(f"{kind}{i}", np.array(point) * f) for kind, (_, point) in SURFACES.items() for i, f in enumerate((1, 0.99))]
    bodies = "".join(f'<body name="{name}" pos="{x} {y} {z}"/>' for name, (x, y, z) in places)
    sensors = "".join(f'<insidesite site="{name[:-1]}" objtype="xbody" objname="{name}"/>' for name, _ in places)
    model = load(f"<mujoco><worldbody>{sites}{bodies}</worldbody><sensor>{sensors}</sensor></mujoco>")
    np.testing.assert_array_equal(by_numpy(xsim.forward)(model, xsim.init(model)).sensor, [0, 1] * 5)


def test_enclosure_in_round_sites():
    """How far boxes and capsules jut out of capsules and cylinders: the largest distance of their extreme points to a surface of many
    points. MuJoCo 4.0.0 searches it and finds less, up to 0.03 m here; in boxes and spheres it is exact, see test_mjcf_4_0.py."""
    sites = '<site name="capsule" type="capsule" size=".3 .4"/><site name="cylinder" type="cylinder" size=".3 .4"/>'
    geoms = '<geom name="box" type="box" size=".1 .05 .2"/><geom name="capsule" type="capsule" size=".05 .2"/>'
    names = [(site, geom) for site in ("capsule", "cylinder") for geom in ("box", "capsule")]
    sensors = "".join(f'<insidesite site="{s}" objtype="geom" objname="{g}" enclosed="true"/>' for s, g in names)
    model = load(f"<mujoco><worldbody>{sites}<body><freejoint/>{geoms}</body></worldbody><sensor>{sensors}</sensor></mujoco>")
    rng = np.random.default_rng(0)
    q = np.concatenate([0.25 * rng.normal(size=(5, 3)), rng.normal(size=(5, 4))], 1)
    q[:, 3:] /= np.linalg.norm(q[:, 3:], axis=1)[:, None]
    q[0, :3] = 0.02
    state = xsim.init(model, jnp.asarray(q))
    found = by_numpy(xsim.forward)(model, state).sensor
    surface, step = {}, 0.005
    angle, z = (x.ravel() for x in np.meshgrid(np.arange(0, 2 * np.pi, 0.01), np.arange(-0.4, 0.4 + 1e-9, step)))
    side = np.stack([0.3 * np.cos(angle), 0.3 * np.sin(angle), z], 1)
    up = np.arange(0, np.pi / 2, 0.01)
    a, b = (x.ravel() for x in np.meshgrid(np.arange(0, 2 * np.pi, 0.01), up))
    cap = np.stack([0.3 * np.cos(a) * np.cos(b), 0.3 * np.sin(a) * np.cos(b), 0.4 + 0.3 * np.sin(b)], 1)
    lid = np.stack([0.3 * np.cos(a) * np.cos(b), 0.3 * np.sin(a) * np.cos(b), np.full_like(a, 0.4)], 1)
    surface = {"capsule": np.concatenate([side, cap, cap * [1, 1, -1]]), "cylinder": np.concatenate([side, lid, lid * [1, 1, -1]])}
    corners = np.array(np.meshgrid(*[(-1, 1)] * 3)).reshape(3, -1).T * [0.1, 0.05, 0.2]
    points = {"box": (corners, 0.0), "capsule": (np.array([[0, 0, -0.2], [0, 0, 0.2]]), 0.05)}
    for i, one in enumerate(q):
        for k, (site, geom) in enumerate(names):
            extreme, radius = points[geom]
            at = one[:3] + rotate(one[3:], extreme)
            axial = np.hypot(at[:, 0], at[:, 1])
            inside = (np.abs(at[:, 2]) < 0.4) & (axial < 0.3)
            if site == "capsule":
                inside = np.hypot(axial, np.maximum(np.abs(at[:, 2]) - 0.4, 0)) < 0.3
            distance = np.array([np.linalg.norm(surface[site] - x, axis=1).min() for x in at])
            np.testing.assert_allclose(found[i, k], np.where(inside, -distance, distance).max() + radius, atol=2e-3)


def test_contacts_within_a_body_exert_no_force():
    """A pair of geoms of one body, or of a geom with itself, makes contacts that only sensors see. Numbers of MuJoCo 4.0.0."""
    text = """<mujoco>
      <worldbody><body><freejoint/><site name="s" size="1"/>
        <geom name="a" size=".1"/><geom name="b" pos=".1 0 0" size=".1"/></body></worldbody>
      <contact><pair geom1="a" geom2="a"/><pair geom1="a" geom2="b" condim="1"/></contact>
      <sensor><contact geom1="b" data="found force dist"/><touch site="s"/></sensor></mujoco>"""
    model = load(text)
    data = xsim.forward(model, xsim.init(model))
    np.testing.assert_allclose(data.sensor, [1, 0, 0, 0, -0.1, 0], atol=1e-12)
    np.testing.assert_allclose(data.a, [0, 0, -9.81, 0, 0, 0], atol=1e-12)


@pytest.mark.parametrize(("attributes", "message"), [
    ('objtype="body" objname="b"', "m.xml:1: <insidesite>: attribute 'site' is missing"),
    ('site="s" objtype="body"', "attribute 'objname' is missing"),
    ('site="t" objtype="body" objname="b"', "site: unknown site 't'"),
    ('site="s" objtype="joint" objname="b"', "objtype: unknown value 'joint'"),
    ('site="s" objtype="body" objname="b" enclosed="true"', "objname: the object has no geoms"),
    ('site="s" objtype="camera" objname="c" enclosed="true"', "objtype: found camera with enclosed; allowed: body, xbody, geom, site"),
    ('site="s" objtype="geom" objname="g" enclosed="true"', "objname: enclosed is not simulated for a ellipsoid; allowed: sphere, capsule"),
    ('site="e" objtype="site" objname="s" enclosed="true"', "site: enclosed is not simulated for sites of the type ellipsoid"),
])  # fmt: skip
def test_insidesite_is_refused(attributes, message):
    world = '<geom name="g" type="ellipsoid" size="1 2 3"/><camera name="c"/><site name="e" type="ellipsoid" size="1 1 1"/>'
    world = f'<worldbody>{world}<body name="b"><site name="s"/></body></worldbody>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.loads(f"<mujoco>{world}<sensor><insidesite {attributes}/></sensor></mujoco>", "mjcf", file="m.xml", rules="4.0")


# ---- contact -----------------------------------------------------------------------------------------------------------------

RECORDED = json.loads((Path(__file__).parent / "reference" / "contact_sensors.json").read_text())
"""Made by tests/reference/make_contact_sensors.py: the model, and the data of its sensors by their attributes."""
UNORDERED = [f'geom1="{a}" geom2="{b}" num="5" data="found dist pos"' for a, b in (("crate", "floor"), ("log", "floor"), ("tray", "table"))]


@pytest.mark.slow
def test_contact_sensors():
    """Every way to match, every field and reduction. Several contacts of one pair that no reduction sorts come in an order of their own."""
    model = load(RECORDED["model"])
    found = by_numpy(xsim.forward)(model, xsim.init(model, key=0)).sensor
    for info, (sensor, wanted) in zip(model.topology.sensors, RECORDED["sensors"].items(), strict=True):
        x = found[info.address : info.address + info.dim]
        y = np.pad(wanted, (0, info.dim - len(wanted)))
        if sensor in UNORDERED:
            x, y = (a.reshape(5, -1)[np.lexsort(a.reshape(5, -1).T.round(9))] for a in (x, y))
        np.testing.assert_allclose(x, y, rtol=1e-7, atol=1e-7, err_msg=sensor)


TWO = """
<mujoco>
  <worldbody>
    <geom name="floor" type="plane" size="1 1 1"/>
    <body><freejoint/><geom size=".1" pos="0 0 .095"/><geom size=".1" pos=".3 0 .094"/><geom size=".1" pos="0 .3 .0995"/></body>
    <body><joint type="slide" axis="0 0 1"/><geom name="lone" size=".1" pos="1 0 .098"/></body>
  </worldbody>
  <sensor>{}</sensor>
</mujoco>"""
NET = '<contact geom1="floor" reduce="netforce" data="found force torque pos"/>'
DEEPEST = (
    '<contact geom1="floor" reduce="mindist" num="2" data="found force dist pos linvel"/><contact geom1="lone" num="2" data="found dist"/>'
)


@pytest.mark.slow
def test_contact_sensors_have_derivatives():
    """With respect to the pose and the velocity, of what is not a number of contacts."""
    model = load(TWO.format(NET + DEEPEST))
    state = xsim.init(model)

    def sensed(x):
        return xsim.sensors(model, state.replace(q=xsim.integrate(model, state.q, x[:7]), v=x[7:]))

    point, h = jnp.asarray(0.01 * np.random.default_rng(0).normal(size=14)).at[:7].multiply(0.01), 1e-6
    evaluated = by_numpy(sensed)
    slopes = by_numpy(jax.jacfwd(sensed))(point)
    differences = np.stack([(evaluated(point + h * e) - evaluated(point - h * e)) / (2 * h) for e in np.eye(14)], 1)
    assert abs(slopes).max() > 100
    np.testing.assert_allclose(slopes, differences, rtol=1e-5, atol=1e-5 * abs(slopes).max())


def test_contact_sensors_in_batches_and_small_buffers():
    """Each environment has slots of its own. If the buffer holds two of four contacts, the two deepest are found."""
    model = load(TWO.format(DEEPEST))
    q = jnp.tile(xsim.init(model).q, (2, 1)).at[1, 2].add(0.02)  # the second environment's body is in the air
    first, second = by_numpy(xsim.forward)(model, xsim.init(model, q=q)).sensor
    np.testing.assert_allclose(first[[0, 4, 11, 15, 22, 23, 24]], [4, -0.006, 4, -0.005, 1, -0.002, 0], atol=1e-12)
    np.testing.assert_allclose(second[[0, 4, 22, 23, 24]], [1, -0.002, 1, -0.002, 0], atol=1e-12)
    assert not second[11:22].any()
    limited = xsim.with_contact_limit(model, 2)
    found = by_numpy(xsim.forward)(limited, xsim.init(limited)).sensor
    np.testing.assert_allclose(found[[0, 4, 11, 15, 22, 23]], [2, -0.006, 2, -0.005, 0, 0], atol=1e-12)


def test_contact_sensors_without_contacts_are_zero():
    model = load('<mujoco><worldbody><body><joint/><geom size=".1"/></body></worldbody><sensor><contact num="2"/></sensor></mujoco>')
    np.testing.assert_array_equal(by_numpy(xsim.forward)(model, xsim.init(model)).sensor, [0, 0])


@pytest.mark.parametrize(("attributes", "message"), [
    ('num="0"', r"m.xml:1: <contact>: num: found 0; allowed: integers from 1 to 1000000"),
    ('num="1.5"', "num: '1.5' is not an integer"), ('num="400000" data="pos"', "num: found 400000; allowed: integers from 1 to 333333"),
    ('data="force found"', "data: found 'force found'; allowed: some of found, force, .*, each once and in this order"),
    ('data="pos pos"', "data: found 'pos pos'"), ('data="depth"', "data: found 'depth'"), ('reduce="sum"', "reduce: unknown value 'sum'"),
    ('reduce="netforce" data="linvel"', "reduce: found netforce with linvel or angvel"),
    ('geom1="g" site="s"', "geom1: found geom1 and site; allowed: one of geom1, body1, subtree1, site"),
    ('body2="b" subtree2="b"', "body2: found body2 and subtree2; allowed: one of geom2, body2, subtree2"),
    ('subtree1="g"', "subtree1: unknown body 'g'"),
])  # fmt: skip
def test_contact_sensors_are_refused(attributes, message):
    world = '<worldbody><body name="b"><joint/><geom name="g" size=".1"/><site name="s"/></body></worldbody>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.loads(f"<mujoco>{world}<sensor><contact {attributes}/></sensor></mujoco>", "mjcf", file="m.xml", rules="4.0")


@pytest.mark.parametrize(("attributes", "dim", "stage"), [
    ("", 1, "position"), ('num="3" data="found dist pos normal tangent"', 33, "position"), ('reduce="mindist"', 1, "position"),
    ('data="linvel angvel"', 6, "velocity"), ('data="torque linvel"', 6, "acceleration"), ('reduce="maxforce"', 1, "acceleration"),
])  # fmt: skip
def test_width_and_stage_of_contact_sensors(attributes, dim, stage):
    """`sensor_dim` and `sensor_needstage` of MuJoCo 4.0.0."""
    (sensor,) = xsim.parse_text(f"<mujoco><sensor><contact {attributes}/></sensor></mujoco>", "mjcf", rules="4.0").sensors
    assert (sensor.dim, sensor.stage) == (dim, stage)


def test_contact_sensors_of_copies():
    """The bodies of a replicated sensor are those of its copy."""
    body = '<body name="b"><joint/><geom size=".1"/></body>'
    world = f'<worldbody><replicate count="2" offset="1 0 0">{body}</replicate></worldbody>'
    sensor = '<sensor><contact subtree1="b" body2="world"/></sensor>'
    spec = xsim.parse_text(f"<mujoco>{world}{sensor}</mujoco>", "mjcf", rules="4.0")
    assert [(sensor.object, sensor.reference) for sensor in spec.sensors] == [(("subtree", i), ("body", -1)) for i in (0, 1)]


# ---- force, torque -----------------------------------------------------------------------------------------------------------

CABLE = """<mujoco><option><flag contact="disable"/></option>
  <worldbody><site name="o" pos="-.2 .3 .4"/><geom name="g" size=".05" pos="-.1 .1 .2"/>
    <body><joint axis="0 1 0" damping=".5"/><geom type="capsule" fromto="0 0 0 .3 0 0" size=".05"/><site name="root"/>
      <body pos=".3 0 0"><joint axis="0 1 .3"/><geom size=".1" pos=".2 .1 0"/><site name="bend"/><site name="tip" pos=".3 0 0"/></body>
    </body></worldbody>
  <tendon><spatial name="t" stiffness="90" damping="4"><site site="tip"/><geom geom="g"/><site site="o"/></spatial></tendon>
  <actuator><motor tendon="t" gear="2"/></actuator>
  <sensor><force site="root"/><torque site="root"/><force site="bend"/><torque site="bend"/></sensor></mujoco>"""
MEASURED = {
    "4.0": [-20.24712766, -1.07115141, 12.38504924, -0.395512738, -0.5, 0.251132343,
            -14.610320062, -2.749454833, 1.174119426, -0.131542113, -0.202443379, 0.674811263],
    "3.2": [-16.973452571, -2.35314155, 11.461154899, -0.221045189, 0.398776668, -0.377806197,
            -11.796220893, -3.676842471, -0.931783253, -0.131542113, 0.429327425, 0.396594972],
}  # fmt: skip


@pytest.mark.parametrize("rules", MEASURED)
def test_forces_of_spatial_tendons(rules):
    """Sensors of forces and torques have the forces of spatial tendons on bodies since MuJoCo 3.14. The numbers are those of MuJoCo 4.0.0
    and 3.2.7. Reactions are without what tendons exert by any rules."""
    model = xsim.loads(CABLE, "mjcf", rules=rules)
    state, ctrl = xsim.init(model, jnp.array([0.2, -0.4]), jnp.array([1.0, 2.0])), jnp.array([3.0])
    np.testing.assert_allclose(by_numpy(partial(xsim.sensors, model))(state, ctrl), MEASURED[rules], rtol=0, atol=2e-8)
    found, (_, quats) = xsim.reactions(model, state, ctrl), xsim.kinematics(model, state.q)
    measured = np.reshape(MEASURED["4.0"], (2, 2, 3))
    for i, (force, torque) in enumerate(measured):
        np.testing.assert_allclose(found.force[i], rotate(np.array(quats[i]), force), atol=1e-7)
        np.testing.assert_allclose(found.moment[i], rotate(np.array(quats[i]), torque), atol=1e-7)
