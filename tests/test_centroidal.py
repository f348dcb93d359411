"""Centre of mass, centroidal momentum and Jacobians of sites, against the sensors of the same quantities, which are compared with
MuJoCo, and against derivatives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim

SCENE = """<mujoco>
  <worldbody>
    <body name="pillar" pos="1 0 0"><site name="top" pos="0 0 .5"/><geom type="box" size=".1 .1 .5" mass="3"/></body>
    <body name="arm" pos="0 .2 .5">
      <joint type="hinge" axis="0 1 0" armature=".4"/>
      <site name="elbow" pos=".4 .1 0"/>
      <geom type="capsule" size=".05" fromto="0 0 0 .4 .1 0" mass="1.2"/>
      <body name="bracket" pos=".4 .1 0" euler="20 30 40">
        <site name="mount" pos=".1 .2 .3"/>
        <geom type="box" size=".05 .1 .15" pos=".02 .03 .04" mass=".7"/>
        <body name="tip" pos="0 0 .2">
          <joint type="ball"/>
          <geom type="box" size=".1 .05 .02" pos=".1 0 .02" mass=".5"/>
        </body>
      </body>
    </body>
    <body name="cube" pos="0 0 2"><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 0 0" mass="2"/></body>
    <body name="frame" pos="0 0 3"><body name="empty" pos=".1 0 0"/></body>
  </worldbody>
  <sensor>SENSORS</sensor>
</mujoco>"""
BODIES = ["arm", "bracket", "tip", "cube"]


@pytest.fixture(scope="module")
def scene():
    kinds = "subtreecom", "subtreelinvel", "subtreeangmom"
    with jax.enable_x64(True):
        text = SCENE.replace("SENSORS", "".join(f'<{kind} body="{body}"/>' for body in ["world", *BODIES] for kind in kinds))
        model, rng = xsim.loads(text, "mjcf"), np.random.default_rng(0)
        return model, xsim.integrate(model, xsim.init(model).q, rng.normal(0, 0.5, model.nv)), jnp.asarray(rng.normal(size=model.nv))


def test_momentum_is_that_of_the_sensors(scene, x64):
    """Of all bodies, of a tree, of a body that is welded to its parent, and of a leaf."""
    model, q, v = scene
    readings = np.asarray(xsim.sensors(model, xsim.init(model, q, v))).reshape(-1, 3, 3)
    mass = dict(zip(model.body_names, xsim.body_inertia(model)[0], strict=True))
    masses = [sum(mass.values()), mass["arm"] + mass["bracket"] + mass["tip"], mass["bracket"] + mass["tip"], mass["tip"], mass["cube"]]
    for body, total, (com, velocity, momentum) in zip([None, *BODIES], masses, readings, strict=True):
        linear, angular = xsim.centroidal_momentum_matrix(model, q, body)
        np.testing.assert_allclose(xsim.center_of_mass(model, q, body), com, atol=1e-12)
        np.testing.assert_allclose(linear @ v, total * velocity, atol=1e-12)
        np.testing.assert_allclose(angular @ v, momentum, atol=1e-12)


def test_the_linear_part_is_the_derivative_of_the_center_of_mass(scene, x64):
    model, q, v = scene
    total = xsim.body_inertia(model)[0].sum()
    _, velocity = jax.jvp(lambda t: xsim.center_of_mass(model, xsim.integrate(model, q, t * v)), (0.0,), (1.0,))
    linear, _ = xsim.centroidal_momentum_matrix(model, q)
    np.testing.assert_allclose(linear @ v, total * velocity, atol=1e-11)


def test_what_has_no_mass_and_what_does_not_move(scene, x64):
    """Without mass it is the origin of the body; a subtree has no momentum where its bodies do not move."""
    model, q, _ = scene
    np.testing.assert_allclose(xsim.center_of_mass(model, q, "empty"), [0.1, 0, 3])
    for part in xsim.centroidal_momentum_matrix(model, q, "pillar"):
        np.testing.assert_array_equal(part, np.zeros((3, model.nv)))
    with pytest.raises(KeyError, match="no body 'leg'"):
        xsim.center_of_mass(model, q, "leg")


def test_jacobian_of_a_site(scene, x64):
    """Of a site of a link, of one of a body that is welded to it, and of one that does not move."""
    model, q, v = scene
    pos = jax.jvp(lambda t: xsim.site_poses(model, xsim.integrate(model, q, t * v))[0], (0.0,), (1.0,))[1]
    for name, body, point in (("elbow", "arm", (0.4, 0.1, 0.0)), ("mount", "bracket", (0.1, 0.2, 0.3)), ("top", "pillar", (0.0, 0.0, 0.5))):
        linear, angular = xsim.site_jacobian(model, q, name)
        np.testing.assert_allclose(linear @ v, pos[model.site_index(name)], atol=1e-12)
        for mine, other in zip((linear, angular), xsim.jacobian(model, q, body, point), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-14)


def test_shapes_with_a_batch(scene, x64):
    model, q, _ = scene
    batch = jnp.broadcast_to(q, (2, 3, model.nq))
    assert xsim.center_of_mass(model, batch).shape == (2, 3, 3)
    assert [x.shape for x in xsim.centroidal_momentum_matrix(model, batch, "arm")] == [(2, 3, 3, model.nv)] * 2
