"""Sensors that MuJoCo 4.0 has and 3.2 has not. The numbers are those of MuJoCo 4.0.0: `mj_resetDataKeyframe(model, data, 0)`, then
`mj_forward(model, data)` and `data.sensordata`."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim

pytestmark = pytest.mark.usefixtures("x64")


def load(text: str) -> xsim.Model:
    return xsim.loads(text, "mjcf", rules="4.0")


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


@pytest.mark.parametrize(("attributes", "message"), [
    ('objtype="body" objname="b"', "m.xml:1: <insidesite>: attribute 'site' is missing"),
    ('site="s" objtype="body"', "attribute 'objname' is missing"),
    ('site="t" objtype="body" objname="b"', "site: unknown site 't'"),
    ('site="s" objtype="joint" objname="b"', "objtype: unknown value 'joint'"),
    ('site="s" objtype="body" objname="b" enclosed="true"', "enclosed: found true: .* not simulated; allowed: false"),
])  # fmt: skip
def test_insidesite_is_refused(attributes, message):
    world = '<worldbody><body name="b"><site name="s"/></body></worldbody>'
    with pytest.raises(xsim.ParseError, match=message):
        xsim.loads(f"<mujoco>{world}<sensor><insidesite {attributes}/></sensor></mujoco>", "mjcf", file="m.xml", rules="4.0")
