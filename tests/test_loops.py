"""Closed loops: what the constraints keep, where the tree is redundant or singular, drift, gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import REACH, check_gradients, point_of
from traced import by_numpy

import xsim
from xsim import models
from xsim.io import parse_text
from xsim.poses import quat_conj, rotate
from xsim.spec import BodySpec, ConstraintSpec, InertialSpec, JointSpec, ModelSpec, OptionSpec

IDENTITY = np.array([1.0, 0, 0, 0])


def bar(lengths, turn, joint="revolute", elbow="revolute"):
    """SDFormat text of a four-bar: ground, crank, coupler and rocker of these lengths, drawn with the crank at angle ``turn`` from z."""
    ground, crank, coupler, rocker = lengths
    tip = crank * np.array([np.sin(turn), np.cos(turn)])
    there = np.array([ground, 0.0])
    d = np.linalg.norm(there - tip)
    along = (coupler**2 - rocker**2 + d**2) / (2 * d)
    up = np.sqrt(max(coupler**2 - along**2, 0.0))
    e = (there - tip) / d
    pin = tip + along * e + up * np.array([-e[1], e[0]])
    angles = [np.arctan2(*(pin - foot)) for foot in (tip, there)]
    links = [("crank", 0, 0, turn, crank), ("coupler", *tip, angles[0], coupler), ("rocker", *there, angles[1], rocker)]
    text = "".join(
        f'<link name="{n}"><pose>{x} 0 {z} 0 {a} 0</pose><inertial><pose>0 0.01 {length / 2} 0 0 0</pose><mass>{1 + length}</mass>'
        "<inertia><ixx>0.02</ixx><iyy>0.03</iyy><izz>0.01</izz></inertia></inertial></link>"
        for n, x, z, a, length in links
    )
    axis = "<axis><xyz>0 1 0</xyz></axis>"
    hung = (("a", "revolute", ("world", "crank")), ("b", elbow, ("crank", "coupler")), ("c", "revolute", ("world", "rocker")))
    for n, kind, ends in hung:
        text += f'<joint name="{n}" type="{kind}"><parent>{ends[0]}</parent><child>{ends[1]}</child>{axis}</joint>'
    text += f'<joint name="d" type="{joint}"><pose>0 0 {rocker} 0 0 0</pose><parent>coupler</parent><child>rocker</child>{axis}</joint>'
    return f'<sdf version="1.9"><model name="bar">{text}</model></sdf>'


@pytest.fixture(scope="module")
def four_bar():
    with jax.enable_x64(True):
        return xsim.load(models.path("four_bar"))


def turning(model, speed=5.0):
    """The drawn pose, the crank turning."""
    start = xsim.init(model)
    return by_numpy(functools.partial(xsim.project_constraints, model))(start.replace(v=start.v + speed * jnp.array([1.0, 0.0, 0.0])))


@pytest.mark.slow
def test_project_moves_what_is_inconsistent_and_nothing_else(four_bar, x64):
    drawn = xsim.init(four_bar)
    assert np.abs(xsim.constraint_error(four_bar, drawn.q)).max() < 1e-14
    project = by_numpy(functools.partial(xsim.project_constraints, four_bar))
    same = project(drawn)
    np.testing.assert_allclose(same.q, drawn.q, atol=1e-14)
    rng = np.random.default_rng(0)
    away = xsim.init(four_bar, 0.3 * rng.normal(size=(20, 3)), rng.normal(size=(20, 3)))
    near = project(away)
    assert np.abs(xsim.constraint_error(four_bar, away.q)).max() > 0.1 and np.abs(xsim.constraint_error(four_bar, near.q)).max() < 1e-12
    # The velocity keeps the gaps closed, and is the nearest such one: what was taken is orthogonal, in the mass metric, to what is left.
    rates = by_numpy(lambda q, v: jax.jvp(functools.partial(xsim.constraint_error, four_bar), (q,), (v,))[1])(near.q, near.v)
    np.testing.assert_allclose(rates, 0, atol=1e-12)
    taken = np.einsum("bij,bj->bi", by_numpy(xsim.mass_matrix)(four_bar, near.q), away.v - near.v)
    np.testing.assert_allclose(np.sum(taken * near.v, -1), 0, atol=1e-12)


@pytest.mark.slow
def test_acceleration_keeps_the_gaps_closed_to_second_order(four_bar, x64):
    state = turning(four_bar)
    a = xsim.forward_dynamics(four_bar, state.q, state.v, jnp.array([0.3, 0.0, 0.0]))

    def gap(t):
        return xsim.constraint_error(four_bar, state.q + t * state.v + 0.5 * t**2 * a)

    second = jax.jvp(lambda t: jax.jvp(gap, (t,), (1.0,))[1], (0.0,), (1.0,))[1]
    assert np.abs(second).max() < 1e-11 and np.abs(a).max() > 1


def test_reduced_equation_of_one_freedom(four_bar, x64):
    """With the velocities u per unit speed of the crank, (u M u) a = u (tau - bias) at rest."""
    q = xsim.project_constraints(four_bar, xsim.init(four_bar, jnp.array([0.4, 0.0, 0.0]))).q
    u = xsim.project_constraints(four_bar, xsim.init(four_bar, q, jnp.array([1.0, 0.0, 0.0]))).v
    u = u / u[0]
    tau = jnp.array([2.0, 0.5, -1.0])
    a = xsim.forward_dynamics(four_bar, q, jnp.zeros(3), tau)
    np.testing.assert_allclose(a[0], u @ (tau - xsim.bias(four_bar, q, jnp.zeros(3))) / (u @ xsim.mass_matrix(four_bar, q) @ u), rtol=1e-10)


@pytest.mark.slow
def test_energy_is_kept(x64):
    model = xsim.with_integrator(xsim.build(parse_text(bar((0.8, 0.3, 0.7, 0.5), 0.2), "sdf")), "rk4")
    state = turning(model, 4.0)
    _, kept = xsim.rollout(model, state, steps=1000, record=lambda s, _: (s.q, s.v))
    energy = sum(xsim.energy(model, *kept))
    np.testing.assert_allclose(energy, sum(xsim.energy(model, state.q, state.v)), rtol=1e-8)
    assert np.ptp(kept[0][:, 0]) > 2 * np.pi
    assert np.abs(by_numpy(functools.partial(xsim.constraint_error, model))(kept[0])).max() < 1e-12


@pytest.mark.nightly
@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-12), ("float32", 1e-5)])
def test_nothing_drifts_in_100000_steps(dtype, bound):
    """The crank is driven for 100 s, through eight turns and then to and fro."""
    with jax.enable_x64(dtype == "float64"):
        model = xsim.load(models.path("four_bar"))
        ctrls = jnp.broadcast_to(jnp.array([0.15, 0.0, 0.0]), (100_000, 3))

        def worst(s):
            return xsim.rollout(model, s, ctrls, record=lambda s, _: (jnp.abs(xsim.constraint_error(model, s.q)).max(), s.q[0]))[1]

        gap, angle = jax.jit(worst)(turning(model))
        assert gap.max() < bound and angle[-1] > 50


@pytest.mark.slow
def test_redundant_rows_and_the_order_of_frames_change_nothing(x64):
    """A planar loop closed by a hinge (three redundant rows) and by a ball (one): the same motion."""
    found = []
    for joint in ("revolute", "ball"):
        model = xsim.build(parse_text(bar((0.8, 0.3, 0.7, 0.5), 0.5, joint), "sdf"))
        found.append(xsim.rollout(model, turning(model), steps=200)[0])
    np.testing.assert_allclose(found[1].q, found[0].q, atol=1e-10)
    np.testing.assert_allclose(found[1].v, found[0].v, atol=1e-8)


@pytest.mark.slow
def test_change_point_is_finite(x64):
    """A parallelogram with all its bars in line: the constraints lose a rank; motion and gradients stay finite."""
    model = xsim.build(parse_text(bar((0.8, 0.3, 0.8, 0.3), np.pi / 2), "sdf"))
    state = turning(model, 2.0)

    def loss(q, v, m):
        return (xsim.step(m, state.replace(q=q, v=v)).q ** 2).sum()

    final = xsim.rollout(model, state, steps=50)[0]
    assert np.isfinite(final.q).all() and np.abs(xsim.constraint_error(model, final.q)).max() < 1e-6
    gradient = by_numpy(jax.grad(loss, (0, 1, 2)))(state.q, state.v, model)
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(gradient))


@pytest.mark.slow
def test_gradients_of_a_loop(x64):
    """A step from closed poses and from poses with gaps, all leaves. Balls at both ends of the coupler: with hinges alone, any turn of
    an axis out of the plane would lock the mechanism, and there is no derivative in that direction."""
    model = xsim.build(parse_text(bar((0.8, 0.3, 0.7, 0.5), 0.4, "ball", "ball"), "sdf"))
    rng = np.random.default_rng(3)
    point = point_of(model, rng)
    away = xsim.integrate(model, xsim.init(model).q, 0.2 * rng.normal(size=(7, model.nv)))
    point["q"] = np.array(xsim.project_constraints(model, xsim.init(model, away)).q)
    point["q"][4:] += 1e-3 * rng.normal(size=point["q"][4:].shape)
    reverse = check_gradients(model, 1, REACH, 1e-6, point)
    assert all(np.abs(reverse[f"constraint.{leaf}"]).max() > 1e-6 for leaf in ("pos1", "pos2"))


# ---- constraints of other kinds -----------------------------------------------------------------------------------------------------


@functools.cache
def cube():
    return InertialSpec(2.0, np.zeros(3), np.array([0.1, 0.2, 0.3, 0.0, 0.0, 0.0]))


def free_body(*constraints, **option):
    body = BodySpec("body", -1, JointSpec("free"), inertial=cube())
    option = {"gravity": np.array([0, 0, -9.81]), "dt": 1e-3, **option}
    return xsim.build(ModelSpec(bodies=(body,), constraints=constraints, option=OptionSpec(**option)))


def tie(kind, joint=None, quat=IDENTITY, pos=(0, 0, 0)):
    frames = ((np.asarray(pos, float), quat), (np.asarray(pos, float), quat))
    return ConstraintSpec(kind, "tie", bodies=(-1, 0), frames=frames, joint=joint)


AXES = {
    "hinge": [[0.0, 0.6, 0.8]], "slide": [[0.0, 0.6, 0.8]], "universal": [[0.0, 1, 0], [1.0, 0, 0]],
    "planar": [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]], "slide2": [[1.0, 0, 0], [0, 0.6, 0.8]],
}  # fmt: skip


@pytest.mark.parametrize("kind", ["fixed", "hinge", "slide", "ball", "universal", "planar", "slide2"])
def test_a_free_body_held_by_a_joint_moves_as_one_on_that_joint(kind, x64):
    """The joint as rows on a free body and the joint in the tree, with its springs and dampers."""
    params = {"axes": np.array(AXES[kind])} if kind in AXES else {}
    at, width = np.array([0.1, -0.2, 0.3]), {"hinge": 1, "slide": 1, "universal": 2, "ball": 3}.get(kind, 0)
    params = {"params": params} | ({"damping": np.array([0.5, 0.9, 1.4])[:width]} if width else {})
    if kind in ("hinge", "slide", "universal"):
        params |= {"stiffness": np.array([7.0, 5.0])[:width], "spring_ref": np.array([0.6, -0.4])[:width]}
    held = free_body(tie("joint", JointSpec(kind, **params), pos=at))
    body = BodySpec("body", -1, JointSpec(kind, pos=at, **params), pos=at, inertial=cube())
    tree = xsim.build(ModelSpec(bodies=(body,), option=OptionSpec(gravity=np.array([0, 0, -9.81]), dt=1e-3)))
    rng = np.random.default_rng(4)
    v = 0.5 * rng.normal(size=tree.nv)
    start = xsim.init(tree, v=v)
    with jax.disable_jit():  # once each: compiling would take longer
        start = start.replace(q=xsim.integrate(tree, start.q, 0.4 * rng.normal(size=tree.nv)))
        data = xsim.forward(tree, start)
        spin = rotate(quat_conj(data.quat[0]), data.ang[0])
        state = xsim.init(held, np.concatenate([data.pos[0], data.quat[0]]), np.concatenate([data.lin[0], spin]))
        np.testing.assert_allclose(xsim.project_constraints(held, state, iterations=1).v, state.v, atol=1e-12)
        found = xsim.forward(held, state)
        energies = xsim.energy(held, state.q, state.v), xsim.energy(tree, start.q, start.v)
    np.testing.assert_allclose(*energies, atol=1e-12)
    np.testing.assert_allclose(found.lin_acc, data.lin_acc, atol=1e-9)
    np.testing.assert_allclose(found.ang_acc, data.ang_acc, atol=1e-9)
    if kind not in ("hinge", "slide2"):
        return  # the motion of two is enough
    ends = [xsim.rollout(xsim.with_integrator(m, "rk4"), s, steps=300)[0] for m, s in ((held, state), (tree, start))]
    poses = [xsim.kinematics(m, s.q) for m, s in zip((held, tree), ends, strict=True)]
    np.testing.assert_allclose(poses[0][0], poses[1][0], atol=1e-8)
    np.testing.assert_allclose(np.abs(poses[0][1]), np.abs(poses[1][1]), atol=1e-8)


@pytest.mark.parametrize("kind", ["hinge", "slide"])
@pytest.mark.parametrize("integrator", ["implicit_damping", "dart"])
def test_springs_and_dampers_of_loops_are_as_implicit_as_those_of_trees(kind, integrator, x64):
    """v' = (v - h k (q - r)) / (1 + h b / m), with h^2 k / m in the denominator if springs are implicit."""
    h, k, b, r, v, m = 0.1, 30.0, 50.0, 0.2, 0.7, {"hinge": 0.3, "slide": 2.0}[kind]
    law = {"stiffness": np.array([k]), "damping": np.array([b]), "spring_ref": np.array([r])}
    joint = JointSpec(kind, params={"axes": np.array([[0.0, 0, 1]])}, **law)
    model = free_body(tie("joint", joint), gravity=np.zeros(3), dt=h, integrator=integrator)
    dof = {"hinge": 5, "slide": 2}[kind]
    with jax.disable_jit():
        after = xsim.step(model, xsim.init(model, v=v * np.eye(6)[dof]))
    springs = h * h * k if integrator == "dart" else 0.0
    start = h * v if integrator == "dart" else 0.0  # DART takes the spring at the position that the velocity reaches in a step
    expected = v + h * (-k * (start - r) - b * v) / (m + h * b + springs)
    np.testing.assert_allclose(after.v, expected * np.eye(6)[dof], rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_a_damped_joint_may_close_a_four_bar_or_be_in_its_tree(x64):
    """The same mechanism, cut at the joint with the spring and the damper and at another one."""
    dynamics = "<dynamics><damping>3</damping><spring_stiffness>20</spring_stiffness><spring_reference>0.4</spring_reference></dynamics>"
    head, last = bar((1.0, 0.4, 0.9, 0.7), 0.4).split('<joint name="d"')
    text = head + '<joint name="d"' + last.replace("</xyz></axis>", f"</xyz>{dynamics}</axis>")
    mark = "<physics><simbody><must_be_loop_joint>1</must_be_loop_joint></simbody></physics></joint>"
    end = text.index("</joint>", text.index('<joint name="c"'))
    elsewhere = text[:end] + mark + text[end + len("</joint>") :]
    found = []
    for source in (text, elsewhere):
        model = xsim.with_integrator(xsim.loads(source, "sdf"), "rk4")
        final = xsim.rollout(model, xsim.init(model), steps=300)[0]
        data = by_numpy(xsim.forward)(model, final)
        found.append((data.pos, data.ang, data.ang_acc, *xsim.energy(model, final.q, final.v)))
    assert [len(xsim.loads(source, "sdf").topology.forces) for source in (text, elsewhere)] == [1, 0]
    for one, two in zip(*found, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-9)


def closed_by_either(numbers: str):
    """A four-bar whose last joint has these numbers, closed by another joint, and by this one: then its body is split."""
    head, last = bar((1.0, 0.4, 0.9, 0.7), 0.4).split('<joint name="d"')
    text = head + '<joint name="d"' + last.replace("</xyz></axis>", f"</xyz>{numbers}</axis>")
    mark = "<physics><simbody><must_be_loop_joint>1</must_be_loop_joint></simbody></physics></joint>"
    end = text.index("</joint>", text.index('<joint name="d"'))
    found = [xsim.loads(source, "sdf") for source in (text, text[:end] + mark + text[end + len("</joint>") :])]
    assert [m.nv for m in found] == [3, 4] and [c.name for m in found for c in m.topology.constraints] == ["c", "d"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("friction", "sticks"), [(0.3, False), (30.0, True)])
def test_friction_of_a_joint_that_closes_a_loop(friction, sticks, x64):
    """One step from three speeds of the crank."""
    found, dt = [], 1e-6  # the positions after the step, on which the gaps are closed, differ by dt^2
    for model in closed_by_either(f"<dynamics><friction>{friction}</friction></dynamics>"):
        model = model.replace({"option.dt": dt})
        v = xsim.project_constraints(model, xsim.init(model).replace(v=jnp.eye(model.nv)[0])).v
        v = jnp.array([-5.0, 0.0, 5.0])[:, None] * v / v[0]
        after = by_numpy(xsim.step)(model, xsim.init(model, jnp.zeros_like(v), v))
        assert (after.flags == 0).all()
        found.append((after.v - v)[:, [0, -1]] / dt)  # of the crank and of the joint
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)
    assert (np.abs(found[0][1]) < 1e-6).all() == sticks


@pytest.mark.slow
def test_limits_of_a_joint_that_closes_a_loop(x64):
    """The mechanism falls onto the limit. How soft it is depends on the tree, as in MuJoCo."""
    for limit, least in (("-9", -0.918), ("-0.3", -0.367)):
        for model in closed_by_either(f"<limit><lower>{limit}</lower><upper>9</upper></limit>"):
            positions = xsim.rollout(model, xsim.init(model), steps=1500, record=lambda s, _: s.q[-1])[1]
            np.testing.assert_allclose(positions.min(), least, atol=2e-3)


@pytest.mark.slow
def test_points_on_lines_and_planes(x64):
    """Without friction: down a slope of 30 degrees, along the line or in the plane."""
    turn = np.array([np.cos(np.pi / 3), 0, np.sin(np.pi / 3), 0])  # z to 30 degrees below x
    down = np.array([np.cos(np.pi / 6), 0, -0.5])
    model = free_body(tie("point_on_line", quat=turn))
    final = xsim.rollout(model, xsim.init(model), steps=500)[0]
    np.testing.assert_allclose(final.v[:3], 9.81 * 0.5 * 0.5 * down, atol=1e-9)
    turn = np.array([np.cos(np.pi / 12), 0, np.sin(np.pi / 12), 0])  # z to the normal of that slope
    model = free_body(tie("point_on_plane", quat=turn))
    final = xsim.rollout(model, xsim.init(model, v=np.array([0, 1.0, 0, 0, 0, 0])), steps=500)[0]
    np.testing.assert_allclose(final.v[:3], 9.81 * 0.5 * 0.5 * down + [0, 1, 0], atol=1e-9)


def test_what_cannot_close_a_loop_is_refused():
    joint = {"params": {"axes": np.array([[0.0, 0, 1]])}}
    for spec, words in (
        (JointSpec("screw", **joint), "a screw joint cannot close a loop; allowed: fixed, hinge"),
        (JointSpec("hinge", **joint, friction=np.array([0.1])), "friction of a hinge joint that closes a loop"),
        (JointSpec("ball", stiffness=np.full(3, 0.1)), "stiffness of a ball joint that closes a loop"),
        (JointSpec("hinge", **joint, position_range=np.array([[-1.0, 1.0]])), "position limits of a joint that closes a loop"),
        (JointSpec("hinge", **joint, velocity_range=np.array([[-1.0, 1.0]])), "velocity limits of a joint that closes a loop"),
        (JointSpec("hinge", **joint, actuator="servo"), "cannot be driven"),
    ):
        with pytest.raises(ValueError, match=words):
            free_body(tie("joint", spec))


def test_rows_without_any_freedom_are_redundant(x64):
    """A closing joint between bodies that are welded already, a loop of slides only, a model that cannot move."""
    cube_at = lambda i, joint, parent: BodySpec(f"b{i}", parent, joint, inertial=cube())  # noqa: E731
    slide = lambda axis: JointSpec("slide", params={"axes": np.array([axis])})  # noqa: E731
    frames = ((np.zeros(3), IDENTITY),) * 2
    option = OptionSpec(dt=1e-3, gravity=np.array([0, 0, -9.81]))

    def built(*joints, closing):
        bodies = tuple(cube_at(i, joint, i - 1) for i, joint in enumerate(joints))
        tie = ConstraintSpec("joint", "close", bodies=(-1, len(joints) - 1), frames=frames, joint=closing)
        return xsim.build(ModelSpec(bodies=bodies, constraints=(tie,), option=option))

    welded = built(JointSpec("fixed"), JointSpec("fixed"), closing=JointSpec("fixed"))
    assert xsim.step(welded, xsim.init(welded)).flags == 0
    gantry = built(slide([1.0, 0, 0]), slide([0, 0, 1.0]), closing=slide([0, 0, 1.0]))
    final = xsim.rollout(gantry, xsim.init(gantry), steps=100)[0]
    np.testing.assert_allclose(final.v, [0, -0.981], atol=1e-12)


def test_a_slender_hinge_holds_in_float32():
    """A small ball on a closing hinge a metre above it: the rows that keep it upright are a thousandth of the others."""
    ball = InertialSpec(1.0, np.zeros(3), np.array([0.001, 0.001, 0.001, 0, 0, 0]))
    joint = JointSpec("hinge", params={"axes": np.array([[0.0, 1, 0]])})
    frames = ((np.array([0.0, 0, 1]), IDENTITY),) * 2
    tie = ConstraintSpec("joint", "hinge", bodies=(-1, 0), frames=frames, joint=joint)
    body = BodySpec("ball", -1, JointSpec("free"), inertial=ball)
    model = xsim.build(ModelSpec(bodies=(body,), constraints=(tie,), option=OptionSpec(dt=1e-3)))
    start = xsim.init(model, v=np.array([1.0, 0.3, 0, 0, 0, 0.5]))
    final = xsim.rollout(model, by_numpy(xsim.project_constraints)(model, start), steps=300)[0]
    assert np.abs(by_numpy(functools.partial(xsim.constraint_error, model))(final.q)).max() < 1e-5


def test_project_takes_one_state_for_many_models(four_bar, x64):
    lengths = four_bar.constraint.pos2 + 0.01 * jnp.arange(3.0)[:, None, None] * jnp.array([0.0, 0.0, 1.0])
    models_ = four_bar.replace({"constraint.pos2": lengths})
    state = by_numpy(xsim.project_constraints)(models_, xsim.init(four_bar))
    assert state.q.shape == (3, 3) and np.abs(xsim.constraint_error(models_, state.q)).max() < 1e-12
