"""Dry friction, limits, servos, commands and couplings: optimality of the impulses, textbook motions, batches."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim.model.model import Flags
from xsim.spec import CONSTRAINT_KINDS, BodySpec, ConstraintSpec, InertialSpec, JointSpec, ModelSpec, OptionSpec

INF = np.inf
DT = 0.01
SOLID = InertialSpec(1.0, np.zeros(3), np.array([0.1, 0.1, 0.1, 0.0, 0.0, 0.0]))


def one(kind="hinge", axis=(0, 0, 1), dt=DT, gravity=(0, 0, 0), **joint):
    """A body of 1 kg and 0.1 kg m^2 on one joint."""
    joint = {k: x if isinstance(x, str) else np.asarray(x, float) for k, x in joint.items()}
    body = BodySpec("body", -1, JointSpec(kind, params={"axes": np.array([axis], float)}, **joint), inertial=SOLID)
    option = OptionSpec(dt=dt, gravity=np.array(gravity, float), constraint_kinds=CONSTRAINT_KINDS)
    return xsim.build(ModelSpec(bodies=(body,), option=option))


def rolled(model, q=0.0, v=0.0, steps=100, ctrl=None):
    """q and v (steps, nv) of a rollout under a constant command."""
    state = xsim.init(model, np.broadcast_to(np.asarray(q, float), (model.nq,)), np.broadcast_to(np.asarray(v, float), (model.nv,)))
    ctrls = None if ctrl is None else np.broadcast_to(np.asarray(ctrl, float), (steps, model.nu))
    final, kept = xsim.rollout(model, state, ctrls, steps=steps, record=lambda s, d: (s.q, s.v))
    assert final.flags == 0
    return kept


# ---- the problem that the impulses solve ---------------------------------------------------------------------------------------

COUNT = 8


def _row(i: int) -> dict:
    """What acts on dof i of the tree: every combination of friction, a servo, one and two limits is there."""
    limits = [None, [[-0.02, 0.02]], [[-INF, 0.01]], [[-0.02, INF]]][i % 4]
    return {
        "friction": np.array([0.8]) if i % 2 else None,
        "position_range": None if limits is None else np.array(limits),
        "velocity_range": np.array([[-1.0, 1.5]]) if i in (0, 3) else None,
        "force_range": np.array([[-2.0, 3.0]]) if i in (0, 3, 5) else None,
        "actuator": "servo" if i in (0, 3, 5) else "passive",
    }


@functools.cache
def tree() -> ModelSpec:
    """Turned hinges, two branches, general inertias."""
    rng = np.random.default_rng(0)
    bodies = []
    for i in range(COUNT):
        half = rng.normal(size=(3, 3))
        m = half @ half.T * 0.01 + 0.02 * np.eye(3)
        inertia = InertialSpec(1.0, rng.normal(size=3) * 0.1, np.array([m[0, 0], m[1, 1], m[2, 2], m[0, 1], m[0, 2], m[1, 2]]))
        joint = JointSpec("hinge", params={"axes": rng.normal(size=(1, 3))}, damping=np.array([0.1]), stiffness=np.array([1.0]), **_row(i))
        bodies.append(BodySpec(f"b{i}", i - 1 if i != 5 else 1, joint, pos=rng.normal(size=3) * 0.3, inertial=inertia))
    return ModelSpec(bodies=tuple(bodies), option=OptionSpec(dt=DT, integrator="euler", constraint_kinds=CONSTRAINT_KINDS))


def states(lanes: int):
    """Inside and beyond the limits, none so far beyond that a velocity limit forbids the way back in one step."""
    rng = np.random.default_rng(1)
    return rng.normal(size=(lanes, COUNT)).clip(-2, 2) * 0.012, rng.normal(size=(lanes, COUNT)) * 4, rng.normal(size=(lanes, 3))


def allowed(i: int, v: float, q: float, target: float, slack: float) -> tuple[float, float]:
    """Impulses that dof i may have while it moves with v."""
    row, at = _row(i), lambda x: abs(v - x) <= slack
    low = high = 0.0
    if row["friction"] is not None:
        f = DT * row["friction"][0]
        low, high = (-f, f) if at(0) else (-f * np.sign(v),) * 2
    if row["force_range"] is not None:
        least, most = DT * row["force_range"][0]
        target = np.clip(target, *row["velocity_range"][0]) if row["velocity_range"] is not None else target
        low, high = (low + least, high + most) if at(target) else (low + (least if v > target else most),) * 2
    reach = [-INF, INF]
    if row["position_range"] is not None:
        reach = list((row["position_range"][0] - q) / DT)
    if row["velocity_range"] is not None:
        reach = [max(reach[0], row["velocity_range"][0][0]), min(reach[1], row["velocity_range"][0][1])]
    assert reach[0] - slack <= v <= reach[1] + slack
    return -INF if at(reach[1]) else low, INF if at(reach[0]) else high


@pytest.mark.slow
def test_impulses_are_optimal(x64):
    """The optimality conditions of the strictly convex problem, which has one solution: every impulse is on its dof's staircase."""
    model = xsim.build(tree())
    q, v, ctrl = states(64)
    new = xsim.step(model, xsim.init(model, q, v), ctrl)
    assert not np.asarray(new.flags).any()
    smooth = v + DT * np.asarray(xsim.smooth_acceleration(model, q, v))
    impulse = np.einsum("bij,bj->bi", xsim.mass_matrix(model, q), np.asarray(new.v) - smooth)
    commanded = list(model.topology.commands)
    kinks = 0
    for lane in range(64):
        for i in range(COUNT):
            target = ctrl[lane, commanded.index(i)] if i in commanded else 0.0
            low, high = allowed(i, float(new.v[lane, i]), q[lane, i], target, 1e-10)
            assert low - 1e-10 <= impulse[lane, i] <= high + 1e-10, (lane, i)
            kinks += low < high
    assert 64 < kinks < 64 * COUNT


def test_an_environment_alone_equals_itself_in_a_batch_bitwise():
    """Float32: others in the batch need more iterations of the search."""
    model = xsim.build(tree())
    q, v, ctrl = states(64)
    together = xsim.step(model, xsim.init(model, q, v), ctrl)
    for lane in (0, 17, 63):
        own = slice(lane, lane + 1)
        alone = xsim.step(model, xsim.init(model, q[own], v[own]), ctrl[own])
        for a, b in zip(jax.tree.leaves(alone), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(a, b[own])


@pytest.mark.slow
def test_every_environment_has_its_own_bounds(x64):
    model = xsim.build(tree())
    q, v, ctrl = states(3)
    factors = jnp.array([1.0, 0.3, 2.0])[:, None]
    paths = ("dof.friction", "limit.lower", "limit.upper", "limit.velocity_upper", "limit.force_lower")
    varied = model.replace({p: factors * model.get(p) for p in paths})
    together = xsim.step(varied, xsim.init(varied, q, v), ctrl)
    for lane in range(3):
        own = model.replace({p: factors[lane] * model.get(p) for p in paths})
        np.testing.assert_allclose(xsim.step(own, xsim.init(own, q[lane], v[lane]), ctrl[lane]).v, together.v[lane], atol=1e-12)


def test_constraints_switched_off(x64):
    """With its constraints switched off, a model moves like one without them."""
    nothing = {"friction": None, "position_range": None, "velocity_range": None, "actuator": "passive"}

    def altered(**changes):
        bodies = tuple(dataclasses.replace(b, joints=dataclasses.replace(b.joint, **changes)) for b in tree().bodies)
        return xsim.build(tree().replace(bodies=bodies))

    q, v, _ = states(2)
    off, bare = xsim.with_constraints(altered(actuator="passive"), ()), altered(**nothing)
    np.testing.assert_array_equal(xsim.step(off, xsim.init(off, q, v)).v, xsim.step(bare, xsim.init(bare, q, v)).v)
    with pytest.raises(ValueError, match="unknown kind of constraint 'limits'"):
        xsim.with_constraints(off, ("limits",))


def test_a_search_that_finds_no_stairs_is_flagged():
    """A mass matrix without inverse and without bounds: nothing to find, and no hang."""
    massless = InertialSpec(0.0, np.zeros(3), np.zeros(6))
    joint = JointSpec("hinge", params={"axes": np.array([[0.0, 0, 1]])}, friction=np.array([1.0]))
    model = xsim.build(ModelSpec(bodies=(BodySpec("ghost", -1, joint, inertial=massless),), option=OptionSpec(dt=DT)))
    state = xsim.step(model, xsim.init(model, np.zeros(1), np.ones(1)))
    assert state.flags & Flags.SINGULAR


# ---- textbook motions ----------------------------------------------------------------------------------------------------------


def test_friction_holds_a_block_on_a_slope_or_brakes_it(x64):
    slope = (np.cos(0.5), 0, -np.sin(0.5))
    pull = 9.81 * np.sin(0.5)
    held, moving = (one("slide", slope, gravity=(0, 0, -9.81), friction=[f]) for f in (1.001 * pull, 0.4 * pull))
    q, v = rolled(held, steps=1000)
    assert not np.asarray(q).any() and not np.asarray(v).any()
    q, v = rolled(moving, steps=50)
    np.testing.assert_allclose(v[:, 0], 0.6 * pull * DT * np.arange(1, 51), rtol=1e-12)


def test_friction_stops_a_rotation_after_its_time(x64):
    """w = 3 rad/s, I = 0.1, friction 0.5: 0.6 s."""
    _, v = rolled(one(friction=[0.5]), v=3.0, steps=80)
    np.testing.assert_allclose(v[:59, 0], 3.0 - 5.0 * DT * np.arange(1, 60), rtol=1e-12)
    np.testing.assert_allclose(v[59:], 0, atol=1e-12)


def test_a_weight_falls_onto_its_stop_and_stays(x64):
    model = one("slide", gravity=(0, 0, -9.81), position_range=[[0.0, INF]])
    q, v = rolled(model, q=0.5, steps=500)
    assert q.min() >= -1e-12
    np.testing.assert_allclose(q[100:], 0, atol=1e-12)
    np.testing.assert_allclose(v[100:], 0, atol=1e-12)
    data = xsim.forward(model, xsim.init(model, np.zeros(1)))
    np.testing.assert_allclose(data.constraint, [9.81], rtol=1e-12)
    np.testing.assert_allclose(data.a, [0], atol=1e-12)


def test_limits_of_a_swinging_chain_are_kept_and_no_energy_comes_from_them(x64):
    """Two links swing against their stops for ten seconds."""
    bodies = tuple(
        BodySpec(f"b{i}", i - 1, JointSpec("hinge", params={"axes": np.array([[0.0, 1, 0]])}, position_range=np.array([[-0.2, 0.4]])),
                 pos=np.array([0, 0, -0.5 * i]), inertial=InertialSpec(1.0, np.array([0, 0, -0.3]), SOLID.inertia / 5))
        for i in range(2)
    )  # fmt: skip
    model = xsim.build(ModelSpec(bodies=bodies, option=OptionSpec(dt=1e-3, gravity=np.array([0, 0, -9.81]))))
    q, v = rolled(model, v=3.0, steps=10_000)
    assert q.min() >= -0.2 - 1e-12 and q.max() <= 0.4 + 1e-12
    assert (np.abs(q - 0.4) < 1e-9).any() and (np.abs(q + 0.2) < 1e-9).any()
    energy = sum(xsim.energy(model, q, v))
    start = sum(xsim.energy(model, np.zeros(2), np.full(2, 3.0)))
    assert energy.max() < start + 0.02 * abs(start) and energy[-1] < start


def test_velocity_limits(x64):
    """Also on the way back from beyond a position limit, on both sides."""
    model = one(velocity_range=[[-1.0, 2.0]], position_range=[[-0.1, 0.1]])
    for q, v in ((-0.5, 2.0), (0.5, -1.0)):
        assert rolled(model, q=q, steps=1)[1] == pytest.approx(v, rel=1e-12)
    _, v = rolled(one(velocity_range=[[-1.0, 2.0]], actuator="force"), ctrl=1.0, steps=40)
    np.testing.assert_allclose(v[:, 0], np.minimum(10 * DT * np.arange(1, 41), 2.0), rtol=1e-12)


# ---- commands ------------------------------------------------------------------------------------------------------------------


def test_controls_have_names():
    assert xsim.load(xsim.models.path("gripper")).ctrl_names == ("turn", "shoulder", "elbow", "left_slide")
    joint = JointSpec("universal", name="wrist", actuator="force")
    assert xsim.build(ModelSpec(bodies=(BodySpec("hand", -1, joint, inertial=SOLID),))).ctrl_names == ("wrist[0]", "wrist[1]")


def test_force_commands_are_clipped_to_their_range(x64):
    model = one(actuator="force", force_range=[[-0.5, 2.0]])
    state = xsim.init(model)
    speed = lambda c: xsim.step(model, state, jnp.stack([c])).v[0]  # noqa: E731
    for command, force in ((1.0, 1.0), (7.0, 2.0), (-3.0, -0.5)):
        assert speed(command) == pytest.approx(force * DT / 0.1, rel=1e-12)
        assert jax.grad(speed)(command) == pytest.approx(DT / 0.1 if command == 1.0 else 0.0)


def test_prescribed_motion(x64):
    """velocity is reached in one step, acceleration from the next on, locked never moves; what hangs on them follows."""
    _, v = rolled(one(actuator="velocity", velocity_range=[[-2.0, 2.0]]), ctrl=1.5, steps=3)
    np.testing.assert_allclose(v, 1.5, rtol=1e-12)
    _, v = rolled(one(actuator="velocity", velocity_range=[[-2.0, 2.0]]), ctrl=5.0, steps=3)
    np.testing.assert_allclose(v, 2.0, rtol=1e-12)
    _, v = rolled(one(actuator="acceleration"), v=0.5, ctrl=3.0, steps=3)
    np.testing.assert_allclose(v[:, 0], 0.5 + 3.0 * DT * np.arange(1, 4), rtol=1e-12)


def test_a_locked_joint_equals_a_fixed_one(x64):
    hang = BodySpec("tip", 0, JointSpec("hinge", params={"axes": np.array([[0.0, 1, 0]])}), pos=np.array([0.3, 0, 0]),
                    inertial=InertialSpec(1.0, np.array([0.2, 0, 0]), SOLID.inertia))  # fmt: skip
    option = OptionSpec(dt=DT, gravity=np.array([0, 0, -9.81]))
    locked, fixed = (
        xsim.build(ModelSpec(bodies=(BodySpec("base", -1, joint, inertial=SOLID), hang), option=option))
        for joint in (JointSpec("hinge", params={"axes": np.array([[1.0, 0, 0]])}, actuator="locked"), JointSpec("fixed"))
    )
    np.testing.assert_allclose(rolled(locked)[0], np.pad(rolled(fixed)[0], ((0, 0), (1, 0))), atol=1e-12)


def test_a_servo_reaches_its_velocity_with_the_force_it_has(x64):
    model = one(actuator="servo", force_range=[[-1.0, 0.5]])
    np.testing.assert_allclose(rolled(model, ctrl=1.0, steps=40)[1][:, 0], np.minimum(5 * DT * np.arange(1, 41), 1.0), rtol=1e-12)
    np.testing.assert_allclose(rolled(model, ctrl=-1.0, steps=40)[1][:, 0], -np.minimum(10 * DT * np.arange(1, 41), 1.0), rtol=1e-12)


def test_a_servo_is_a_constraint(x64):
    """Without its kind of constraint a servo exerts no force. The numbers are DART's (dartpy 6.20.3, this model with commands 0.9 and 1.5):
    `Skeleton.computeForwardDynamics`, where servos have no force and dampers are implicit, and the velocity after `World.step`."""

    def link(name, x, mass, com, moments, parent, actuator, axis, start):
        moments = "".join(f"<{k}>{m}</{k}>" for k, m in zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), (*moments, 0, 0, 0), strict=True))
        inertia = f"<mass>{mass}</mass><offset>{com} 0 0</offset><moment_of_inertia>{moments}</moment_of_inertia>"
        body = f'<body name="{name}"><transformation>{x} 0 0 0 0 0</transformation><inertia>{inertia}</inertia></body>'
        inside = f"<parent>{parent}</parent><child>{name}</child><axis><xyz>0 0 1</xyz>{axis}</axis>{start}"
        return f'{body}<joint type="revolute" name="to_{name}" actuator="{actuator}">{inside}</joint>'

    damping = "<dynamics><damping>0.5</damping></dynamics>"
    first = link("a", 0, 2, 0.3, (0.1, 0.2, 0.3), "world", "servo", damping, "<init_pos>0.3</init_pos><init_vel>0.4</init_vel>")
    second = link("b", 0.6, 1, 0.2, (0.1, 0.1, 0.1), "a", "force", "", "<init_pos>0.2</init_pos><init_vel>-0.7</init_vel>")
    physics = "<physics><time_step>0.001</time_step><gravity>0 -9.81 0</gravity></physics>"
    model = xsim.loads(f'<skel><world>{physics}<skeleton name="s">{first}{second}</skeleton></world></skel>', "skel")
    state, ctrl = xsim.init(model), np.array([0.9, 1.5])
    bare = xsim.with_constraints(model, ())
    change = np.array([-17.19628949036272, 30.030500872550405]) * 0.001
    np.testing.assert_allclose(xsim.step(bare, state, ctrl).v - state.v, change, rtol=1e-12)
    np.testing.assert_allclose(xsim.step(model, state, ctrl).v, [0.9, -1.62164019], rtol=1e-8)
    assert xsim.step(xsim.with_integrator(bare, "rk4"), state, ctrl).flags == 0


def test_rk4_refuses_what_acts_in_steps():
    model = xsim.with_integrator(one(friction=[0.5]), "rk4")
    with pytest.raises(ValueError, match="rk4 integrates smooth motion only; the model has friction or limits"):
        xsim.step(model, xsim.init(model))
    model = xsim.with_integrator(one(actuator="velocity"), "rk4")
    with pytest.raises(ValueError, match="the model has velocity"):
        xsim.step(model, xsim.init(model), np.zeros(1))


# ---- couplings -----------------------------------------------------------------------------------------------------------------


def coupled(**joint) -> xsim.Model:
    """Two slides; the second follows at -2 times the first, from 0.1."""
    joints = [JointSpec("slide", params={"axes": np.array([[1.0, 0, 0]])}, **j) for j in ({"actuator": "force"}, joint)]
    bodies = tuple(BodySpec(f"b{i}", -1, j, inertial=SOLID) for i, j in enumerate(joints))
    mimic = ConstraintSpec("mimic", coordinates=((1, 0), (0, 0)), multiplier=-2.0, offset=0.1)
    return xsim.build(ModelSpec(bodies=bodies, constraints=(mimic,), option=OptionSpec(dt=DT, gravity=np.zeros(3))))


def test_a_mimic_moves_both_as_one_mass(x64):
    """1 N on the leader moves 1 + 4 kg; the gap closes in the first step and stays closed."""
    q, v = rolled(coupled(), ctrl=1.0, q=[0.0, 0.1], steps=2000)
    np.testing.assert_allclose(v[:, 0], 0.2 * DT * np.arange(1, 2001), rtol=1e-10)
    np.testing.assert_allclose(q[:, 1], 0.1 - 2 * q[:, 0], atol=1e-10 * np.abs(q).max())
    q, _ = rolled(coupled(), ctrl=0.0, q=[0.0, 0.3], steps=2)
    np.testing.assert_allclose(q[:, 1], 0.1 - 2 * q[:, 0], atol=1e-12)


def test_the_followers_limit_and_friction_act_on_the_leader(x64):
    """The follower's stop at -0.3 holds the leader at 0.2."""
    model = coupled(position_range=np.array([[-0.3, INF]]), friction=np.array([0.2]))
    q, v = rolled(model, ctrl=1.0, q=[0.0, 0.1], steps=300)
    np.testing.assert_allclose(v[:20, 0], (1.0 - 2 * 0.2) / 5 * DT * np.arange(1, 21), rtol=1e-10)
    np.testing.assert_allclose(q[-1], [0.2, -0.3], atol=1e-10)
    assert q[:, 1].min() >= -0.3 - 1e-12
    q, _ = rolled(model, ctrl=0.39, q=[0.0, 0.1], steps=50)
    np.testing.assert_allclose(q[:, 0], 0, atol=1e-12)  # 0.39 N do not overcome 2 x 0.2 N


# ---- what a review asked for ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_second_derivatives_through_dry_friction(x64):
    """A sliding block: v+ = v - f dt / m, d2/dm2 = -2 f dt / m^3."""
    model = one("slide", friction=[0.5])
    speed = lambda m: xsim.step(model.replace({"body.mass": m[None]}), xsim.init(model, v=np.ones(1))).v[0]  # noqa: E731
    m = jnp.asarray(2.0)
    np.testing.assert_allclose(jax.grad(speed)(m), 0.5 * DT / 4, rtol=1e-12)
    np.testing.assert_allclose(jax.grad(jax.grad(speed))(m), -2 * 0.5 * DT / 8, rtol=1e-12)
    np.testing.assert_allclose(jax.jacfwd(jax.jacrev(speed))(m), -2 * 0.5 * DT / 8, rtol=1e-12)


def test_the_force_of_constraints_is_without_the_implicit_damper(x64):
    """Limits far away, nothing acts on the hinge but its damper and a torque."""
    model = one(damping=[10.0], position_range=[[-3.0, 3.0]])
    data = xsim.forward(model, xsim.init(model, v=np.ones(1)), tau=np.ones(1))
    np.testing.assert_allclose(data.constraint, 0, atol=1e-12)


@pytest.mark.parametrize("integrator", ["euler", "rk4"])
def test_a_mimic_is_closed_by_every_rule(integrator, x64):
    model = xsim.with_integrator(coupled(), integrator)
    q, _ = rolled(model, ctrl=0.0, q=[0.0, 0.3], steps=3)
    np.testing.assert_allclose(q[:, 1], 0.1 - 2 * q[:, 0], atol=1e-12)


def test_light_leaders_keep_their_followers_in_float32():
    """Two followers of 1 kg on a leader of 1 g, a dummy link: both keep up."""
    bodies = tuple(
        BodySpec(f"b{i}", -1, JointSpec("slide", params={"axes": np.array([[1.0, 0, 0]])}, actuator="force"),
                 inertial=InertialSpec(m, np.zeros(3), m * SOLID.inertia))
        for i, m in enumerate((1e-3, 1.0, 1.0))
    )  # fmt: skip
    mimics = tuple(ConstraintSpec("mimic", coordinates=((i, 0), (0, 0))) for i in (1, 2))
    model = xsim.build(ModelSpec(bodies=bodies, constraints=mimics, option=OptionSpec(dt=DT, gravity=np.zeros(3))))
    q, _ = rolled(model, ctrl=[1.0, 0.0, 0.0], steps=100)
    np.testing.assert_allclose(q[-1], 0.5 * 1.0 / 2.001, rtol=0.02)
    np.testing.assert_allclose(q[-1] - q[-1, 0], 0, atol=1e-5)
