"""What MuJoCo's models ask of the core: several joints on a body, keys, mocap bodies, numbers derived at the start, density, actuators."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import traced

import xsim
from xsim import models
from xsim.compile.choice import tracing_for


def load(body: str, *, option: str = "", rest: str = "", rules: str = "3.2") -> xsim.Model:
    head = f'<option {option}><flag contact="disable"/></option><default><geom contype="0" conaffinity="0"/></default>'
    return xsim.loads(f"<mujoco>{head}<worldbody>{body}</worldbody>{rest}</mujoco>", "mjcf", rules=rules)


@pytest.fixture(autouse=True)
def _exact(x64):
    with jax.disable_jit():
        yield


BALL = '<geom type="sphere" size="0.1" mass="2"/>'


@pytest.mark.slow
def test_joints_of_one_body_are_those_of_a_chain_of_massless_bodies():
    """Three joints about anchors of their own: poses, mass matrix and bias of the same joints on three bodies."""
    joints = (
        '<joint type="hinge" axis="0 1 0.2" pos="0.1 0 0" ref="20"/>', '<joint type="slide" axis="1 0 1"/>',
        '<joint type="ball" pos="0 -0.2 0.1"/>',
    )  # fmt: skip
    one = load(f'<body pos="0.3 0 1" quat="1 0.2 0 0.1">{"".join(joints)}<geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/></body>')
    light = '<inertial pos="0 0 0" mass="1e-12" diaginertia="1e-14 1e-14 1e-14"/>'
    chain = load(
        f'<body pos="0.3 0 1" quat="1 0.2 0 0.1">{joints[0]}{light}<body>{joints[1]}{light}<body>{joints[2]}'
        '<geom type="box" size="0.1 0.2 0.3" pos="0.1 0 0"/></body></body></body>'
    )
    rng = np.random.default_rng(0)
    q, v = np.array([0.4, -0.2, *rng.normal(size=4)]), rng.normal(size=5)
    for found, wanted in zip(xsim.kinematics(one, q), xsim.kinematics(chain, q), strict=True):
        np.testing.assert_allclose(found[0], wanted[2], atol=1e-14)
    np.testing.assert_allclose(xsim.mass_matrix(one, q), xsim.mass_matrix(chain, q), atol=1e-9)
    np.testing.assert_allclose(xsim.bias(one, q, v), xsim.bias(chain, q, v), atol=1e-9)
    assert xsim.init(one).q[0] == pytest.approx(np.deg2rad(20))


def test_a_key_is_a_state():
    model = xsim.load(models.path("muscle_arm"))
    state = xsim.init(model, key="bent")
    np.testing.assert_allclose(state.q, [0.4, -0.9])
    np.testing.assert_allclose(state.act, [0.2, 0.1, 0.1, 0.0])
    np.testing.assert_allclose(xsim.init(model, key=0).q, state.q)
    with pytest.raises(KeyError, match="keys: bent"):
        xsim.init(model, key="stretched")


def test_a_mocap_body_is_where_the_state_says_and_carries_its_children():
    model = load(f'<body name="hand" mocap="true" pos="1 0 0"><body pos="0 0 0.5"><joint type="slide" axis="0 0 1"/>{BALL}</body></body>')
    state = xsim.init(model)
    np.testing.assert_allclose(state.mocap, [[1, 0, 0, 1, 0, 0, 0]])
    moved = state.replace(mocap=jnp.array([[0.0, 2.0, 0.0, np.sqrt(0.5), np.sqrt(0.5), 0.0, 0.0]]))
    data = xsim.forward(model, moved)
    np.testing.assert_allclose(data.pos, [[0, 2, 0], [0, 1.5, 0]], atol=1e-15)
    np.testing.assert_allclose(data.a, [0.0], atol=1e-14)  # the slide lies across gravity now
    np.testing.assert_allclose(xsim.step(model, moved).mocap, moved.mocap)


@pytest.mark.parametrize(("height", "acceleration"), [(0.05, 124.5095), (0.09, 224.5095), (-0.45, -9.81)])
def test_contacts_follow_moved_mocap_bodies(height, acceleration):
    """The numbers of MuJoCo 4.0.0."""
    text = """<mujoco><worldbody><body mocap="true" pos="0 3 .05"><geom size=".1"/></body>
      <body pos="0 3 .2"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    model = xsim.loads(text, "mjcf", rules="4.0")
    state = xsim.init(model).replace(mocap=jnp.array([[0, 3, height, 1, 0, 0, 0]]))
    found = traced(lambda s: xsim.forward(model, s).a, state)(state)
    np.testing.assert_allclose(found, [0, 0, acceleration, 0, 0, 0], rtol=1e-6, atol=1e-9)


@pytest.mark.slow
def test_compiled_steps_follow_moved_mocap_bodies(x64):
    """A ball on a platform that stands elsewhere in each environment; both compilers."""
    text = """<mujoco><worldbody><body mocap="true"><geom type="box" size=".2 .2 .1"/></body>
      <body pos="0 0 .25"><freejoint/><geom size=".1"/></body></worldbody></mujoco>"""
    model = xsim.loads(text, "mjcf")
    state = jax.tree.map(lambda x: jnp.broadcast_to(x, (3, *x.shape)), xsim.init(model))
    state = state.replace(mocap=state.mocap.at[:, 0, 2].set(jnp.array([-1.0, 0.06, 0.1])))
    ends = []
    for compiler in ("llvm", "xla"):
        with tracing_for(compiler):
            ends.append(xsim.rollout(model, state, steps=3)[0].v[:, 2])
    np.testing.assert_allclose(ends[0][0], -9.81 * 3 * 0.002, rtol=1e-9)
    assert ends[0][0] < 0 < ends[0][1] < ends[0][2]
    np.testing.assert_allclose(*ends, rtol=1e-9)


def test_sizes_and_densities_of_geoms_are_leaves_that_give_the_mass():
    model = load('<body><joint/><geom type="sphere" size="0.1" density="500"/><geom type="box" size="0.1 0.1 0.1" mass="3"/></body>')
    ball = 4 / 3 * np.pi * 0.1**3 * 500
    np.testing.assert_allclose(xsim.body_inertia(model)[0], [ball + 3])
    size = np.stack([np.asarray(model.geom.size)] * 2)
    size[1, 0, 0] = 0.2
    np.testing.assert_allclose(xsim.body_inertia(model.replace({"geom.size": size}))[0], [[ball + 3], [8 * ball + 3]])


def test_springdamper_is_a_mass_on_a_spring_with_that_time_constant():
    """k = I / (T Z)^2 and b = 2 I / T: a free oscillation of the inertia decays with exp(-t / T)."""
    model = load(f'<body><joint type="slide" axis="1 0 0" springdamper="0.5 0.25"/>{BALL}</body>', option='gravity="0 0 0"')
    np.testing.assert_allclose(xsim.passive(model, np.array([0.1]), np.array([0.0])), [-0.1 * 2 / (0.5 * 0.25) ** 2])
    np.testing.assert_allclose(xsim.passive(model, np.array([0.0]), np.array([1.0])), [-2 * 2 / 0.5])


@pytest.mark.parametrize("rules", ["3.2", "4.0"])
def test_dampratio_damps_the_inertia_that_a_servo_moves(rules):
    servo = '<actuator><position joint="j" kp="50" dampratio="0.7" gear="2"/></actuator>'
    model = load(f'<body><joint name="j" type="slide" axis="1 0 0" armature="1"/>{BALL}</body>', rest=servo, rules=rules)
    state = xsim.init(model, v=np.array([1.0]))
    # kv acts on the scaled rate 2 v and through the gear again: the mass seen at the actuator is 3 / 2^2.
    np.testing.assert_allclose(xsim.forward(model, state, np.zeros(1)).actuator, [-4 * 2 * 0.7 * np.sqrt(50 * 3 / 4)])


def test_controls_activations_and_forces_are_clamped_in_order():
    rest = (
        '<actuator><general joint="j" dyntype="integrator" gainprm="3" ctrlrange="-1 1" ctrllimited="true" actrange="0 0.5"'
        ' actlimited="true" forcerange="-1 1" forcelimited="true" gear="10"/><motor joint="j" gear="5"/></actuator>'
    )
    joint = '<joint name="j" type="slide" axis="1 0 0" actuatorfrcrange="-12 12"/>'
    model = load(f"<body>{joint}{BALL}</body>", option='timestep="0.1" gravity="0 0 0"', rest=rest)
    state = xsim.init(model).replace(act=jnp.array([0.45]))
    data = xsim.forward(model, state, np.array([7.0, 1.0]))
    np.testing.assert_allclose(data.act_rate, [1.0])
    np.testing.assert_allclose(data.actuator_force, [1.0, 1.0])
    np.testing.assert_allclose(data.actuator, [12.0])
    after = xsim.step(model, state, np.array([7.0, 1.0]))
    np.testing.assert_allclose(after.act, [0.5])
    np.testing.assert_allclose(after.v, [0.1 * 12 / 2])


def test_an_early_activation_acts_in_the_step_that_makes_it():
    def after(early: str):
        rest = f'<actuator><general joint="j" dyntype="filterexact" dynprm="0.1" actearly="{early}"/></actuator>'
        model = load(f'<body><joint name="j" type="slide" axis="1 0 0"/>{BALL}</body>', option='timestep="0.1" gravity="0 0 0"', rest=rest)
        return xsim.step(model, xsim.init(model), np.ones(1))

    exact = 1 - np.exp(-1)
    np.testing.assert_allclose(after("false").v, [0.0])
    np.testing.assert_allclose(after("true").v, [0.1 * exact / 2])
    np.testing.assert_allclose(after("false").act, [exact])


def test_gravity_compensation_is_passive_or_an_actuators_force():
    for flag, part in (("false", "passive"), ("true", "actuator")):
        rest = '<actuator><motor joint="j" gear="0"/></actuator>'
        joint = f'<joint name="j" type="slide" axis="0 0 1" actuatorgravcomp="{flag}"/>'
        data_of = load(f'<body gravcomp="0.5">{joint}{BALL}</body>', rest=rest)
        data = xsim.forward(data_of, xsim.init(data_of), np.zeros(1))
        np.testing.assert_allclose(getattr(data, part), [0.5 * 2 * 9.81])
        np.testing.assert_allclose(data.a, [-0.5 * 9.81])


def test_energy_counts_the_springs_of_tendons_beyond_their_dead_band():
    rest = '<tendon><fixed stiffness="100" springlength="-0.1 0.2"><joint joint="j" coef="2"/></fixed></tendon>'
    model = load(f'<body><joint name="j" type="slide" axis="1 0 0"/>{BALL}</body>', option='gravity="0 0 0"', rest=rest)
    for q, stored in ((0.05, 0.0), (0.2, 50 * 0.2**2), (-0.1, 50 * 0.1**2)):
        np.testing.assert_allclose(xsim.energy(model, np.array([q]), np.zeros(1))[1], stored, atol=1e-15)


def test_energy_counts_bodies_fixed_to_the_world_and_mocap_bodies(x64):
    """`mj_forward` of MuJoCo 3.2.7 and 4.0.0 with the flag energy, this model at qpos 0.3: energy[0] of both."""
    moving = '<body pos=".7 .8 .9"><joint axis="0 1 0"/><geom size=".1" mass="4" pos=".1 0 0"/></body>'
    fixed = '<body pos=".4 .5 .6" gravcomp=".5"><geom size=".1" mass="3" pos=".1 0 0"/></body>'
    body = f'<body pos="1 2 3" euler="30 40 50"><geom type="box" size=".1 .2 .3" mass="2" pos=".1 .2 .3"/>{fixed}{moving}</body>'
    mocap = '<body mocap="true" pos="-1 2 1"><geom size=".1" mass="5" pos="0 .1 0"/></body>'
    model = load(body + mocap, option='gravity="1 2 -9"')
    np.testing.assert_allclose(xsim.energy(model, np.array([0.3]), np.zeros(1))[1], 287.2032834837164, rtol=1e-13)


def test_flags_switch_parts_off():
    rest = '<actuator><motor joint="j"/></actuator>'
    body = f'<body><joint name="j" type="slide" axis="0 0 1" damping="3"/>{BALL}</body>'
    for flag, a in (("actuation", -9.81 - 1.5), ("gravity", 0.5 - 1.5), ("passive", 0.5 - 9.81)):
        text = f'<mujoco><option><flag {flag}="disable" contact="disable"/></option><worldbody>{body}</worldbody>{rest}</mujoco>'
        model = xsim.loads(text, "mjcf")
        state = xsim.init(model, v=np.ones(1))
        np.testing.assert_allclose(xsim.smooth_acceleration(model, state.q, state.v, ctrl=np.ones(1)), [a])


@pytest.mark.parametrize("integrator", ["implicit", "implicitfast"])
def test_implicit_integrators_keep_stiff_dampers_stable(integrator):
    """v' = v / (1 + h b / m): exact for a linear damper, of a joint, a tendon or a servo's velocity gain."""
    rest = '<tendon><fixed name="t" damping="400"><joint joint="j" coef="1"/></fixed></tendon>'
    rest += '<actuator><velocity joint="j" kv="600"/></actuator>'
    joint = '<joint name="j" type="slide" axis="1 0 0" damping="1000"/>'
    model = load(f"<body>{joint}{BALL}</body>", option=f'timestep="0.1" gravity="0 0 0" integrator="{integrator}"', rest=rest)
    state = xsim.step(model, xsim.init(model, v=np.ones(1)), np.zeros(1))
    np.testing.assert_allclose(state.v, [1 / (1 + 0.1 * 2000 / 2)])


@pytest.mark.parametrize("integrator", ["Euler", "implicitfast"])
def test_springs_and_dampers_have_flags_of_their_own_in_4_0(integrator):
    """Their forces, the energy of the springs, and what integrators take of the dampers; without both no passive force is left."""
    body = f'<body gravcomp="0.5"><joint name="j" type="slide" axis="0 0 1" stiffness="8" springref="0.5" damping="3"/>{BALL}</body>'
    rest = '<tendon><fixed stiffness="10" damping="1" springlength="0"><joint joint="j" coef="1"/></fixed></tendon>'
    spring, lift = 8 * 0.3 - 10 * 0.2, 0.5 * 2 * 9.81
    damped = {"Euler": 3.0, "implicitfast": 4.0}[integrator]
    for off, force, stored, b in (
        ("", spring + lift - 4, 8 * 0.3**2 / 2 + 10 * 0.2**2 / 2, damped), ('spring="disable"', lift - 4, 0.0, damped),
        ('damper="disable"', spring + lift, 8 * 0.3**2 / 2 + 10 * 0.2**2 / 2, 0.0), ('spring="disable" damper="disable"', 0.0, 0.0, 0.0),
    ):  # fmt: skip
        text = f'<option integrator="{integrator}" timestep="0.1"><flag contact="disable" {off}/></option>'
        model = xsim.loads(f"<mujoco>{text}<worldbody>{body}</worldbody>{rest}</mujoco>", "mjcf", rules="4.0")
        state = xsim.init(model, np.full(1, 0.2), np.ones(1))
        np.testing.assert_allclose(xsim.passive(model, state.q, state.v), [force], atol=1e-14)
        np.testing.assert_allclose(xsim.energy(model, state.q, state.v)[1], 2 * 9.81 * 0.2 + stored)
        np.testing.assert_allclose(xsim.step(model, state).v, [1 + 0.1 * (force - 2 * 9.81) / (2 + 0.1 * b)])
    with pytest.raises(xsim.ParseError, match="unknown attribute 'passive'"):
        xsim.loads('<mujoco><option><flag passive="disable"/></option></mujoco>', "mjcf", rules="4.0")


@pytest.mark.slow
def test_free_bodies_alone_are_fully_implicit_in_4_0():
    """Under implicitfast, Coriolis forces included; not those on which other joints move."""
    box = '<body><freejoint/><geom type="box" size=".1 .2 .3" pos=".1 .05 .02"/><body pos="1 0 0">{}<geom size=".1"/></body></body>'
    both = box.format("") + box.format('<joint axis="0 1 0"/>')
    v = np.random.default_rng(0).normal(size=13)

    def stepped(integrator, rules):
        model = load(both, option=f'integrator="{integrator}" timestep="0.01"', rules=rules)
        return xsim.step(model, xsim.init(model, v=v)).v

    fast, full = stepped("implicitfast", "4.0"), stepped("implicit", "4.0")
    np.testing.assert_allclose(fast[:6], full[:6], atol=1e-14)
    np.testing.assert_allclose(fast[6:], stepped("implicitfast", "3.2")[6:], atol=1e-14)
    assert np.abs(fast[6:] - full[6:]).max() > 1e-5


def test_a_mesh_in_a_medium_is_the_ellipsoid_of_its_largest_coordinates():
    asset = '<asset><mesh name="m" vertex="0 0 0 .3 0 0 0 .2 0 0 0 .1 .3 .2 .05"/></asset>'
    inertial = '<inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>'

    def model(geom):
        head = f'<mujoco><option density="900" viscosity="0.1"><flag contact="disable"/></option>{asset}<worldbody><body><freejoint/>'
        return xsim.loads(f'{head}{inertial}<geom fluidshape="ellipsoid" {geom}/></body></worldbody></mujoco>', "mjcf")

    mesh = xsim.parse_text(f"<mujoco>{asset}</mujoco>", "mjcf").meshes[0]
    numbers = [" ".join(map(repr, map(float, x))) for x in (np.abs(mesh.vertices).max(0), mesh.pos, mesh.quat)]
    one, other = model('type="mesh" mesh="m"'), model('type="ellipsoid" size="{}" pos="{}" quat="{}"'.format(*numbers))
    q, v = np.array(one.topology.initial[0]), np.array([0.3, -0.5, 0.7, 1.0, 2.0, -3.0])
    np.testing.assert_allclose(xsim.passive(one, q, v), xsim.passive(other, q, v), rtol=1e-9)
    assert np.abs(xsim.passive(one, q, v)).max() > 10


def test_a_scene_without_bodies_has_empty_arrays_of_the_usual_shape():
    model = xsim.loads('<mujoco><worldbody><geom type="plane" size="1 1 1"/></worldbody></mujoco>', "mjcf")
    data = xsim.forward(model, xsim.init(model, np.zeros((5, 0))))
    assert [x.shape for x in (data.pos, data.quat, data.lin, data.lin_acc)] == [(5, 0, 3), (5, 0, 4), (5, 0, 3), (5, 0, 3)]
    assert xsim.geom_poses(model, np.zeros((5, 0)))[0].shape == (5, 1, 3)
    assert xsim.site_poses(model, np.zeros((5, 0)))[1].shape == (5, 0, 4)


@pytest.mark.parametrize("integrator", ["implicitfast", "implicit", "discrete"])
def test_a_scene_without_bodies_has_steps_of_all_integrators(integrator):
    model = load('<geom type="plane" size="1 1 1"/>', option=f'integrator="{integrator}" density="1"', rules="4.0")
    state = xsim.init(model)
    assert float(traced(lambda s: xsim.step(model, s), state)(state).time) == float(model.option.dt)
