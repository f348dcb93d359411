"""Identities and conservation laws that hold for every joint type, in float64."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim import models
from xsim.io.x_xy import TYPES


def _state(model, seed, batch=3, q=0.7, v=0.8):
    rng = np.random.default_rng(seed)
    neutral = jnp.broadcast_to(jnp.array(model.topology.neutral), (batch, model.nq))
    moved = xsim.integrate(model, neutral, q * rng.normal(size=(batch, model.nv)))
    return moved, jnp.asarray(v * rng.normal(size=(batch, model.nv)))


@pytest.fixture
def zoo(x64):
    """Every joint type of the registry's file formats, in one model."""
    return xsim.load(models.path("zoo"))


def test_the_zoo_holds_every_joint_type_of_the_format(zoo):
    assert {entry.type for entry in TYPES.values()} == {b.joint.type for b in zoo.topology.bodies}


@pytest.mark.slow
def test_identities(zoo):
    """M is symmetric, equals the columns of inverse dynamics; forward and inverse dynamics are inverse; energy's rate is the power."""
    q, v = _state(zoo, 0)

    def quantities(q, v, tau):
        free = zoo.replace({"option.regularization": 0.0})
        rest = jnp.zeros((zoo.nv + 1, *v.shape)).at[jnp.arange(zoo.nv), :, jnp.arange(zoo.nv)].set(1.0)
        still = xsim.inverse_dynamics(zoo, q, jnp.zeros_like(v), rest)
        a = xsim.forward_dynamics(free, q, v, tau)
        back = xsim.inverse_dynamics(zoo, q, v, a) - xsim.passive(zoo, q, v)
        return xsim.mass_matrix(zoo, q), still, back, a

    tau = jnp.asarray(np.random.default_rng(1).normal(size=v.shape))
    M, still, back, a = by_numpy(quantities)(q, v, tau)
    columns = np.moveaxis(still[:-1] - still[-1:], 0, -1)
    np.testing.assert_allclose(M, columns, rtol=0, atol=1e-11 * np.abs(M).max())
    np.testing.assert_array_equal(M, M.swapaxes(-1, -2))
    assert np.linalg.eigvalsh(M).min() > 0
    np.testing.assert_allclose(back, tau, rtol=0, atol=1e-9 * np.abs(a).max())


@pytest.mark.slow
def test_rate_of_pose_is_velocity_and_rate_of_velocity_is_acceleration(zoo):
    """Poses and velocities differentiated along the motion by autodiff; the Jacobian gives the same velocities."""
    q, v = _state(zoo, 2)

    def rates(q, v):
        free = zoo.replace({"option.regularization": 0.0})
        data = xsim.forward(free, xsim.init(free, q, v))

        def along(t):
            return xsim.integrate(zoo, q, t * v), v + t * data.a

        zero, one = jnp.zeros(()), jnp.ones(())
        (_, quat), (dpos, dquat) = jax.jvp(lambda t: xsim.kinematics(zoo, along(t)[0]), (zero,), (one,))

        def velocity(t):
            moved = xsim.forward(free, xsim.init(free, *along(t)))
            return moved.lin, moved.ang

        _, (dlin, dang) = jax.jvp(velocity, (zero,), (one,))
        lin, ang = xsim.jacobian(zoo, q, "wrist", (0.1, 0.2, -0.3))
        return data, quat, dpos, dquat, dlin, dang, lin @ v[..., None], ang @ v[..., None]

    data, quat, dpos, dquat, dlin, dang, lin, ang = by_numpy(rates)(q, v)
    np.testing.assert_allclose(dpos, data.lin, atol=1e-10)
    w, x = quat[..., :1], quat[..., 1:]
    spin = 2 * (dquat[..., 1:] * w - dquat[..., :1] * x - np.cross(dquat[..., 1:], x))
    np.testing.assert_allclose(spin, data.ang, atol=1e-10)
    np.testing.assert_allclose(dlin, data.lin_acc, atol=1e-8)
    np.testing.assert_allclose(dang, data.ang_acc, atol=1e-8)
    body = zoo.body_names.index("wrist")
    arm = np.stack([_rotate(r, np.array([0.1, 0.2, -0.3])) for r in data.quat[:, body]])
    np.testing.assert_allclose(lin[..., 0], data.lin[:, body] + np.cross(data.ang[:, body], arm), atol=1e-10)
    np.testing.assert_allclose(ang[..., 0], data.ang[:, body], atol=1e-10)


def _rotate(quat, x):
    t = 2 * np.cross(quat[1:], x)
    return x + quat[0] * t + np.cross(quat[1:], t)


def test_integrate_and_difference_are_inverse(zoo):
    q, _ = _state(zoo, 4)
    dv = jnp.asarray(0.9 * np.random.default_rng(5).normal(size=(3, zoo.nv)))
    there = xsim.integrate(zoo, q, dv)
    np.testing.assert_allclose(xsim.difference(zoo, q, there), dv, atol=1e-12)
    np.testing.assert_allclose(xsim.difference(zoo, q, q), 0, atol=1e-15)


def _conservative(model):
    """No damping, and the springs and armatures that have a potential: equal along the axes of a ball."""
    stiffness, armature = np.array(model.dof.stiffness), np.array(model.dof.armature)
    for link in model.topology.links:
        if link.kind == "ball":
            stiffness[link.v : link.v + 3], armature[link.v : link.v + 3] = 2.0, 0.01
    for body in model.topology.bodies:
        if "body" in (body.joint.armature_axes, body.joint.damper_axes) and body.joint.type != "cor":
            armature[body.v[0] : body.v[0] + 2 + (body.joint.type == "free")] = 0.05
    return model.replace(
        {"dof.damping": np.zeros(model.nv), "dof.stiffness": stiffness, "dof.armature": armature, "option.regularization": 0.0}
    )


@pytest.mark.slow
def test_energy_is_kept(zoo):
    """RK4 without damping: the drift falls with the fourth power of dt, on every joint type with its springs and gravity."""
    model = xsim.with_integrator(_conservative(zoo), "rk4")
    q, v = _state(model, 6, batch=2, q=0.3, v=0.3)

    step, energy = jax.jit(xsim.step), by_numpy(lambda m, s: sum(xsim.energy(m, s.q, s.v)))

    def drift(dt):
        m = model.replace({"option.dt": dt})
        state = start = xsim.init(m, q, v)
        for _ in range(round(0.2 / dt)):
            state = step(m, state)
        return energy(m, state) - energy(m, start), energy(m, start)

    coarse, total = drift(0.004)
    fine, _ = drift(0.002)
    assert (np.abs(fine) < 1e-6 * np.abs(total)).all()
    assert (np.abs(fine) < np.abs(coarse) / 10 + 1e-11 * np.abs(total)).all(), (coarse, fine)


@pytest.mark.slow
def test_momentum_of_a_free_system_is_kept(x64):
    """Without gravity and outer forces, linear and angular momentum of a chain stay while its joints move."""
    model = xsim.load(models.path("chain"))
    text = models.path("chain").read_text().replace('joint="spherical"', 'joint="free"').replace('"0.05 0.05 0.05"', '"0 0 0 0 0 0"')
    text = text.replace('armature="0.002 0.002 0.002"', "")
    model = xsim.loads(text, "x_xy").replace({"option.gravity": np.zeros(3), "option.regularization": 0.0})
    model = xsim.with_integrator(model.replace({"dof.armature": np.zeros(model.nv)}), "rk4").replace({"option.dt": 0.0005})
    q, v = _state(model, 7, q=0.3)

    @jax.jit
    def momenta(state):
        data = xsim.forward(model, state)
        mass, com, inertia = xsim.body_inertia(model)
        R = jax.vmap(jax.vmap(lambda quat: jnp.stack([_rotate_jax(quat, e) for e in jnp.eye(3)], -1)))(data.quat)
        arm = jnp.einsum("bnij,nj->bni", R, com)
        velocity = data.lin + jnp.cross(data.ang, arm)
        xx, yy, zz, xy, xz, yz = jnp.moveaxis(inertia, -1, 0)
        own = jnp.stack([jnp.stack(r, -1) for r in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], -2)
        spin = jnp.einsum("bnij,njk,bnlk,bnl->bni", R, own, R, data.ang)
        p = mass[:, None] * velocity
        return p.sum(1), (spin + jnp.cross(data.pos + arm, p)).sum(1)

    start = xsim.init(model, q, v)
    end = jax.jit(lambda s: xsim.rollout(model, s, steps=100)[0])(start)
    for a, b in zip(momenta(start), momenta(end), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-7)
    assert np.abs(np.asarray(end.v - start.v)).max() > 0.1


def _rotate_jax(quat, x):
    t = 2 * jnp.cross(quat[1:], x)
    return x + quat[0] * t + jnp.cross(quat[1:], t)


def test_screw(x64):
    """A nut on a vertical screw: its acceleration is that of the inertia it must turn, m pitch^2 + I."""
    from xsim.spec import BodySpec, GeomSpec, JointSpec, ModelSpec

    nut = GeomSpec("sphere", np.array([0.1]), mass=2.0)
    joint = JointSpec("screw", params={"axes": np.array([[0, 0, 2.0]]), "pitch": np.array([0.05])})
    model = xsim.build(ModelSpec("screw", bodies=(BodySpec("nut", -1, joint, geoms=(nut,)),)))
    a = xsim.forward_dynamics(model, jnp.array([0.3]), jnp.array([1.0]))
    np.testing.assert_allclose(a, -2 * 9.81 * 0.05 / (2 * 0.05**2 + 0.4 * 2 * 0.1**2), rtol=1e-12)
    pos, _ = xsim.kinematics(model, jnp.array([2.0]))
    np.testing.assert_allclose(pos[0], [0, 0, 0.1], atol=1e-15)


def test_singular_mass_matrix_is_flagged_not_nan():
    geom = '<geom type="sphere" mass="1" dim="1"/>'
    text = f'<x_xy><worldbody><body name="a" joint="rx"/><body name="b" joint="px">{geom}</body></worldbody></x_xy>'
    model = xsim.loads(text, "x_xy").replace({"option.regularization": 0.0})
    state = xsim.step(model, xsim.init(model, v=jnp.array([0.1, 0.2])))
    assert xsim.Flags(int(state.flags)) is xsim.Flags.SINGULAR and np.isfinite(np.asarray(state.q)).all()
    healthy = xsim.loads(text, "x_xy")
    assert int(xsim.step(healthy, xsim.init(healthy)).flags) == 0


def test_a_quaternion_of_zeros_is_the_identity(x64):
    """As in MuJoCo, also where its square is no number of single precision."""
    text = '<mujoco><worldbody><body><joint type="ball"/><geom type="box" size=".1 .2 .3" pos=".3 0 0"/></body></worldbody></mujoco>'
    model = xsim.loads(text, "mjcf")
    q = jnp.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1e-20, 0.0, 0.0, 0.0]])
    final = xsim.rollout(model, xsim.init(model, q), steps=20)[0]
    for x in (final.q, final.v, xsim.kinematics(model, q)[1]):
        assert np.abs(np.asarray(x[0])).max() > 0.1
        np.testing.assert_array_equal(x, jnp.broadcast_to(x[0], x.shape))
    slope = jax.jacobian(lambda v: xsim.rollout(model, xsim.init(model, q[1], v), steps=20)[0].v)(jnp.zeros(3))
    assert (np.diag(slope) > 0.5).all()


def test_divergence_is_flagged_and_stays():
    model = xsim.load(models.path("pendulum"))
    state = xsim.init(model, v=jnp.array([[0.1, 0.2], [jnp.inf, 0.0], [0.3, 0.1]]))
    state = xsim.rollout(model, state, steps=3)[0]
    assert list(np.asarray(state.flags & xsim.Flags.DIVERGED)) == [0, 1, 0]
    assert np.isfinite(np.asarray(state.q)[[0, 2]]).all()


def test_free_fall_follows_the_gravity_sign_of_the_file(x64):
    body = '<body name="a" joint="free" euler="90 0 0"><geom type="sphere" mass="1" dim="1"/></body>'
    text = f'<x_xy><options gravity="0 0 9.81" dt="0.01"/><worldbody>{body}</worldbody></x_xy>'
    model = xsim.with_integrator(xsim.loads(text, "x_xy"), "rk4").replace({"option.regularization": 0.0})
    turned = xsim.integrate(model, jnp.array(model.topology.neutral), jnp.array([0, 0, 0, 1.0, 2.0, 3.0]))
    end = xsim.rollout(model, xsim.init(model, turned), steps=10)[0]
    pos, _ = xsim.kinematics(model, end.q)
    np.testing.assert_allclose(pos[0], [0, 0, -0.5 * 9.81 * 0.1**2], atol=1e-12)
