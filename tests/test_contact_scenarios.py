"""Contacts in scenes a physicist would set up, and known failures of other engines. Single laws are in test_contact and test_soft."""

from __future__ import annotations

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for

G = 9.81
PLANAR = '<joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>'
FLOOR = '<geom type="plane" size="5 5 1"/>'


def many(state: xsim.State, count: int, **changes) -> xsim.State:
    """The state in a batch, with some of its parts changed."""
    out = jax.tree.map(lambda x: np.broadcast_to(x, (count, *x.shape)), state)
    return out.replace(**changes)


def leaves(model: xsim.Model) -> dict:
    """All numbers of a model, by path."""
    return {path: model.get(path) for path in model.paths() if model.get(path).size}


def touched(model: xsim.Model) -> dict:
    """Those that contacts read."""
    return {path: x for path, x in leaves(model).items() if path.split(".")[0] in ("geom", "surface", "option")}


def random_like(tree, seed: int):
    """Random directions."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(lambda x: rng.normal(size=np.shape(x)), tree)


def check_finite(tree, what: str) -> None:
    bad = [jax.tree_util.keystr(at) for at, x in jax.tree_util.tree_leaves_with_path(tree) if not np.isfinite(x).all()]
    assert not bad, f"{what}: not finite: {bad}"


def check_both_modes(value, point) -> tuple:
    """The value and its gradient; they and the derivative along a random direction are finite, and the two modes agree."""
    direction = random_like(point, 0)

    def everything(point, direction):
        found, along = jax.linearize(value, point)
        return found, along(direction), jax.linear_transpose(along, point)(jnp.ones_like(found))[0]

    with tracing_for("xla"):  # LLVM would compile the step and its derivatives for one evaluation
        found, forward, reverse = by_numpy(everything)(point, direction)
    check_finite(found, "value")
    check_finite(forward, "forward mode")
    check_finite(reverse, "reverse mode")
    parts = [np.vdot(x, dx) for x, dx in zip(jax.tree.leaves(reverse), jax.tree.leaves(direction), strict=True)]
    np.testing.assert_allclose(sum(parts), forward, rtol=1e-8, atol=1e-9 * np.abs(parts).max())
    return found, reverse


def stepped(model, weights):
    """A weighted sum of the state after a step, of a point (leaves, q, v)."""

    def value(point):
        numbers, q, v = point
        m = model.replace(numbers)
        state = xsim.step(m, xsim.init(m, q, v))
        return jnp.concatenate([state.q, state.v]) @ weights

    return value


# ---- scenes ---------------------------------------------------------------------------------------------------------------------

STACK = """<mujoco><option timestep="0.02" cone="{cone}"/><worldbody>{floor}
<body pos="0 0 0.1">{planar}<geom type="box" size="0.15 0.12 0.1"/></body>
<body pos="0.03 0 0.3">{planar}<geom type="box" size="0.15 0.12 0.1"/></body>
<body pos="-0.02 0 0.5">{planar}<geom type="box" size="0.15 0.12 0.1"/></body></worldbody></mujoco>"""


LONG = [pytest.param(cone, 100, 1e-4, marks=pytest.mark.nightly) for cone in ("pyramidal", "elliptic")]


@pytest.mark.slow
@pytest.mark.parametrize(("cone", "steps", "drift"), [("pyramidal", 30, 5e-4), *LONG])
def test_a_stack_of_boxes_stays(cone, steps, drift, x64):
    """It starts at its depth at rest and stays within a millimetre; in the second half (of 2 s) nothing drifts: friction only damps, and
    what it gives way to decays."""
    model = xsim.with_contact_limit(xsim.loads(STACK.format(cone=cone, floor=FLOOR, planar=PLANAR), "mjcf"), 12)
    start = xsim.init(model, np.array([0, -6e-4, 0, 0, -2e-3, 0, 0, -3e-3, 0]))
    state, q = by_numpy(lambda s: xsim.rollout(model, s, steps=steps, record=lambda state, data: state.q))(start)
    assert not state.flags
    assert np.abs(q - start.q)[:, [0, 1, 3, 4, 6, 7]].max() < 1e-3
    assert np.abs(q[-1] - q[steps // 2 - 1]).max() < drift
    assert by_numpy(xsim.forward)(model, state).residual < 1e-9


LIMIT = """<mujoco><option timestep="5e-5" gravity="0 0 0"/><worldbody><body>
<joint axis="0 1 0" limited="true" range="0 90" solimplimit="0.9 0.9 0.001"/><geom type="capsule" fromto="0 0 0 0 0 -0.4" size="0.02"/>
</body></worldbody></mujoco>"""


def test_a_pendulum_leaves_its_limit_as_solref_says(x64):
    """A limit is an oscillator of frequency w = 1 / (time constant * z) with damping ratio z (impedance scales both, and cancels without
    gravity) that pushes only: it lets go where the acceleration is 0, at the phase 2 acos(z), with exp(-2 z acos(z) / sqrt(1 - z^2)) of
    the speed. solref="-k 0" is z = 0: all of it. Euler's error is below w dt = 0.005."""
    model = xsim.loads(LIMIT, "mjcf")
    w, z = 100.0, np.array([0.0, 0.1, 0.4, 0.8])
    solref = np.stack([np.where(z > 0, 1 / (w * np.maximum(z, 0.1)), -w * w), z], -1)
    batch = model.replace({"soft.solref": np.broadcast_to(solref[:, None], (4, *model.shape("soft.solref")))})
    start = many(xsim.init(model), 4, q=np.full((4, 1), 0.01), v=np.full((4, 1), -2.0))
    final = jax.jit(lambda m, s: xsim.rollout(m, s, steps=900)[0])(batch, start)
    assert (final.q > 0).all() and not final.flags.any()
    np.testing.assert_allclose(final.v[:, 0] / 2, np.exp(-2 * z * np.arccos(z) / np.sqrt(1 - z * z)), rtol=5e-3)


MU_ROLL = 0.02
BALLS = f"""<mujoco><option timestep="0.005" cone="elliptic"/><default><geom friction="1 0.01 {MU_ROLL}" solimp="0.9 0.9 0.001"/></default>
<worldbody>{FLOOR}<body pos="0 0 0.1">{PLANAR}<geom type="sphere" size="0.1" condim="6"/></body>
<body pos="0 3 0.1">{PLANAR}<geom type="sphere" size="0.1" condim="3"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_rolling_resistance_stops_a_ball(x64):
    """The moment M against rolling decelerates a ball by a = 5 M / (7 m r) (its inertia is 2/5 m r^2), with the friction m a at the ground
    that keeps it rolling; both share one ellipse, (M / mu_roll)^2 + (m a / mu)^2 = N^2. It stops after v^2 / (2 a), and stays; without
    (three dimensions) it rolls on. It starts at its depth at rest, where N = m g: 2/3 (1 - d) g (time constant)^2, as a body's mobility is
    the mean over three axes, of which two move. 2 %: one of half a step at v, one of slip, 5/7 (mu_roll / (mu r))^2 and more at the end."""
    model = xsim.with_contact_limit(xsim.loads(BALLS, "mjcf"), 1)
    speed, deceleration = 0.6, G / np.hypot(7 * 0.1 / (5 * MU_ROLL), 1.0)
    steps = int(1.2 * speed / deceleration / 0.005)
    q, v = np.tile([0, -2 / 3 * 0.1 * G * 0.02**2, 0], 2), np.tile([speed, 0, speed / 0.1], 2)
    final = jax.tree.map(np.asarray, xsim.rollout(model, xsim.init(model, q, v), steps=steps)[0])
    assert not final.flags
    np.testing.assert_allclose(final.q[0], speed**2 / (2 * deceleration), rtol=0.02)
    np.testing.assert_allclose(final.v[[0, 2]] * [1, 0.1], 0, atol=3e-3)
    np.testing.assert_allclose(final.q[3], speed * steps * 0.005, rtol=1e-3)
    np.testing.assert_allclose(final.v[[3, 5]], [speed, speed / 0.1], rtol=1e-3)


MASS, GRIP = 0.4, 8.0
FINGER = '<geom type="sphere" size="0.01" mass="0.1" contype="2" conaffinity="4"/>'
GRIPPER = f"""<mujoco><option timestep="0.005" cone="elliptic" impratio="10"/><worldbody>{FLOOR}
<body pos="0 0 0.04"><joint name="lift" type="slide" axis="0 0 1"/><inertial pos="0 0 0" mass="1" diaginertia="1 1 1"/>
  <body pos="-0.05 0 0"><joint name="left" type="slide" axis="1 0 0"/>{FINGER}</body>
  <body pos="0.05 0 0"><joint name="right" type="slide" axis="-1 0 0"/>{FINGER}</body></body>
<body pos="0 0 0.04">{PLANAR}<geom type="box" size="0.04 0.04 0.04" mass="{MASS}" contype="5" conaffinity="3"/></body>
</worldbody><actuator><position joint="lift" kp="5000" kv="300"/><motor joint="left"/><motor joint="right"/></actuator></mujoco>"""


@pytest.mark.slow
def test_a_gripper_lifts_what_it_can_hold(x64):
    """Two fingers that press with F hold m g while m g <= 2 mu F (1.3 m g where this lift accelerates most). With more friction the cube
    goes where the hand goes, but for what soft friction gives way to; with less the hand leaves without it."""
    model = xsim.with_contact_limit(xsim.loads(GRIPPER, "mjcf"), 6)
    friction = np.tile(np.asarray(model.surface.friction), (2, 1, 1))
    friction[:, :, 0] = np.array([[1.5], [0.9]]) * MASS * G / (2 * GRIP)
    t = 0.005 * np.arange(110)
    height = 0.05 * (1 - np.cos(np.pi * np.clip((t - 0.05) / 0.4, 0, 1)))
    ctrls = np.stack([height, GRIP + 0 * t, GRIP + 0 * t], -1)
    final = xsim.rollout(model.replace({"surface.friction": friction}), many(xsim.init(model), 2), ctrls)[0]
    assert not final.flags.any()
    hand, cube = final.q[:, 0], final.q[:, 4]
    assert (hand > 0.09).all()
    np.testing.assert_allclose(cube[0], hand[0], atol=5e-3)
    np.testing.assert_allclose(cube[1], 0.0, atol=1e-3)


BOX = f"""<mujoco><option timestep="0.004" cone="elliptic" impratio="10"/><default>
<geom friction="0.4 0.01 0.001" solimp="0.9 0.9 0.001"/></default><worldbody>{FLOOR}<body pos="0 0 {0.05 - 0.1 * G * 0.02**2 / 4}">
<freejoint/><geom type="box" size="0.2 0.15 0.05" mass="2"/></body>
</worldbody></mujoco>"""


def test_a_box_moves_where_the_push_exceeds_friction(x64):
    """With (F - mu m g) / m, and not below. It starts at its depth at rest (see the box below). What holds creeps, as MuJoCo's
    friction is a damper; what slides is lifted a little by its convex cone: 1 mm/s and 5 %."""
    model = xsim.with_contact_limit(xsim.loads(BOX, "mjcf"), 4)
    ratio, steps = np.array([0.3, 0.9, 1.1, 2.0]), 75
    tau = np.zeros((4, model.nv))
    tau[:, 0] = ratio * 0.4 * 2 * G
    final = xsim.rollout(model, many(xsim.init(model), 4), taus=jnp.broadcast_to(tau, (steps, *tau.shape)))[0]
    assert not final.flags.any()
    np.testing.assert_allclose(final.v[:, 0], np.maximum(ratio - 1, 0) * 0.4 * G * steps * 0.004, rtol=0.05, atol=1e-3)
    np.testing.assert_allclose(final.v[:, 1], 0, atol=1e-9)


# ---- failures known of other engines --------------------------------------------------------------------------------------------

FALL = f"""<mujoco><option timestep="0.002"/><worldbody>{FLOOR}<body pos="0 0 10"><freejoint/><geom type="sphere" size="0.1"/></body>
</worldbody></mujoco>"""


@pytest.mark.slow
def test_a_ball_in_free_fall_far_above_a_plane(x64):
    """Values and gradients are those of free fall: z = z0 + n dt v0 + n (n + 1) / 2 dt^2 g after n steps, whatever the contact's numbers;
    its surface, size and density have no part."""
    model, n = xsim.with_contact_limit(xsim.loads(FALL, "mjcf"), 1), 2
    q, v = np.array([0.1, -0.2, 10, 1, 0, 0, 0]), np.array([0.3, 0, -2, 0.1, 0.2, 0.3])
    dt, g, fallen = 0.002, -G, n * (n + 1) / 2

    def height(point):
        numbers, q, v = point
        m = model.replace(numbers)
        return xsim.rollout(m, xsim.init(m, q, v), steps=n)[0].q[2]

    z, (by_leaf, by_q, by_v) = check_both_modes(height, (leaves(model), q, v))
    np.testing.assert_allclose(z, 10 + n * dt * -2 + fallen * dt**2 * g, rtol=1e-14)
    wanted = {"option.gravity": np.array([0, 0, fallen * dt**2]), "option.dt": np.array(n * -2 + 2 * fallen * dt * g)}
    for path in (p for p in by_leaf if p.startswith("surface.") or p in ("option.gravity", "option.dt", "geom.size", "geom.density")):
        x = by_leaf[path]
        np.testing.assert_allclose(x, wanted.get(path, np.zeros(x.shape)), rtol=1e-12, atol=1e-15, err_msg=path)
    np.testing.assert_allclose(by_q, [0, 0, 1, 0, 0, 0, 0], atol=1e-14)
    np.testing.assert_allclose(by_v, [0, 0, n * dt, 0, 0, 0], atol=1e-14)


W, D, HEIGHT, TIME, COUNT = 50.0, 1e-4, 0.2, 0.4, 256
BOUNCE = f"""<mujoco><option timestep="0.001"/><default><geom condim="1" solref="{-W * W} 0" solimp="{D} {D} 0.001"/></default>
<worldbody>{FLOOR}<body pos="0 0 0.1"><joint type="slide" axis="0 0 1"/><geom type="sphere" size="0.1"/></body></worldbody></mujoco>"""


def bounced(h):
    """Height after TIME of a ball that falls from h on the spring. The mobility of a body that only slides is 1 / mass: with
    s = d / (1 - d) the acceleration is (a0 + s aref) / (1 + s) and aref = -k r / d."""
    s = D / (1 - D)
    w, g = jnp.sqrt(s / D * W * W / (1 + s)), G / (1 + s)
    speed = jnp.sqrt(2 * G * h)
    left = TIME - speed / G - (jnp.pi + 2 * jnp.arctan(g / (w * speed))) / w
    return speed * left - G / 2 * left**2


@functools.cache
def bouncing():
    """A compiled function of heights and the number of steps: heights after TIME, and their derivative by the heights before."""
    model = xsim.loads(BOUNCE, "mjcf")

    def after(h, steps):
        m = model.replace({"option.dt": TIME / steps})
        return jax.lax.fori_loop(0, steps, lambda _, s: xsim.step(m, s), xsim.init(m, h[:, None], jnp.zeros((COUNT, 1)))).q[:, 0]

    return jax.jit(lambda h, steps: jax.jvp(lambda h: after(h, steps), (h,), (jnp.ones_like(h),)))


def test_the_derivative_through_a_bounce_converges(x64):
    """Of the height after an elastic bounce by the height before, to that of the exact motion, with the first order of the integrator:
    its root mean square over heights (the error depends on where in a step the impact is). The impedance is as small as may be, so that
    the force at the touch is too: a jump of force, d m g, moves with the height, which no derivative at fixed steps sees."""
    h = jnp.linspace(HEIGHT, 1.2 * HEIGHT, COUNT)
    wanted = jax.jvp(bounced, (h,), (jnp.ones_like(h),))
    errors = []
    for steps in (1000, 2000, 4000):
        found = bouncing()(h, steps)
        errors.append([float(jnp.sqrt(jnp.mean((x - y) ** 2))) for x, y in zip(found, wanted, strict=True)])
    orders = np.log2([np.divide(a, b) for a, b in itertools.pairwise(errors)])
    assert (orders > 0.9).all()
    assert errors[-1][1] < 0.02  # in free fall it is 1, here 0.3 to 0


def test_the_same_bits_twice(x64):
    """A compiled rollout through a contact and its derivative, run twice."""
    h = jnp.linspace(HEIGHT, 1.2 * HEIGHT, COUNT)
    first, second = bouncing()(h, 500), bouncing()(h, 500)
    assert (first[1] < 0.9).all()  # in free fall it is 1
    jax.tree.map(np.testing.assert_array_equal, first, second)


DROP = f"""<mujoco><option timestep="0.016"/><default><geom condim="1" solref="0.04 0.8" solimp="0.9 0.9 0.001"/></default><worldbody>
{FLOOR}<body pos="0 0 0.1"><freejoint/><geom type="box" size="0.2 0.15 0.1"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_box_dropped_flat_comes_to_rest_in_its_four_contacts(x64):
    """In each r = (1 - d) g (time constant * ratio)^2 / 4 deep, whatever the mass, and so are its derivatives, in both modes: with the
    frequency 1 / (0.04 * 0.8) and damping 0.8 what is left of the drop after 1 s is exp(-25)."""
    model = xsim.with_contact_limit(xsim.loads(DROP, "mjcf"), 4)
    paths = ("geom.density", "geom.size", "surface.solref", "option.gravity")
    depth, point = 0.1 * G * (0.04 * 0.8) ** 2 / 4, {path: model.get(path) for path in paths}

    def rest(point):
        m = model.replace(point)
        state = xsim.init(m, jnp.array([0, 0, 0.105, 1, 0, 0, 0]))
        return xsim.rollout(m, state, steps=60)[0].q[2]

    z, reverse = check_both_modes(rest, point)
    np.testing.assert_allclose(z, 0.1 - depth, atol=1e-10)
    np.testing.assert_allclose(reverse["geom.density"], 0, atol=1e-12)
    np.testing.assert_allclose(reverse["geom.size"], [[0, 0, 0], [0, 0, 1]], atol=1e-7)
    np.testing.assert_allclose(reverse["option.gravity"], [0, 0, depth / G], atol=1e-9)
    np.testing.assert_allclose(reverse["surface.solref"].sum(0), [-2 * depth / 0.04, -2 * depth / 0.8], rtol=1e-6)


GROOVES = {
    "edges": ('<geom type="box" size="0.1 0.3 0.1" pos="{x} 0 -0.1"/>', 0.14, np.sqrt(0.06**2 - 0.04**2)),
    "capsules": ('<geom type="capsule" size="0.04 0.3" pos="{x} 0 0" euler="90 0 0"/>', 0.05, np.sqrt(0.1**2 - 0.05**2)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["edges", pytest.param("capsules", marks=pytest.mark.nightly)])
def test_a_capsule_rests_on_two_that_are_parallel(kind, x64):
    """Along two edges of boxes, or on two capsules, exactly parallel to its axis: it stays, the forces are what its weight and its
    acceleration need (to rounding; it hardly moves, 1 %), and all derivatives of a step are finite there."""
    support, x, z = GROOVES[kind]
    text = support.format(x=x) + support.format(x=-x)
    text += f'<body pos="0 0 {z - 1e-4}"><freejoint/><geom type="capsule" size="0.06 0.1" euler="90 0 0" mass="1.5"/></body>'
    model = xsim.with_contact_limit(xsim.loads(f'<mujoco><option timestep="0.01"/><worldbody>{text}</worldbody></mujoco>', "mjcf"), 4)
    state = xsim.rollout(model, xsim.init(model), steps=50)[0]
    assert not state.flags
    np.testing.assert_allclose(state.q, xsim.init(model).q, atol=2e-3)
    found, data = by_numpy(lambda s: (xsim.contacts(model, s), xsim.forward(model, s)))(state)
    assert found.active.sum() == 4
    on_it = np.where(found.geoms[:, 1] == 2, 1.0, -1.0)
    force = np.einsum("n,nij,ni->j", on_it, found.frame, found.force[:, :3])
    np.testing.assert_allclose(force, 1.5 * (data.a[:3] + [0, 0, G]), atol=1e-9)
    np.testing.assert_allclose(force, [0, 0, 1.5 * G], atol=0.15)
    check_both_modes(stepped(model, random_like(np.zeros(13), 4)), (leaves(model), state.q, state.v))


BALL = """<mujoco><option timestep="0.002" gravity="0 0 0"/><worldbody><body><joint type="ball" limited="true" range="0 40"
solimplimit="0.9 0.9 0.001"/><geom type="box" size="0.1 0.2 0.3"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_ball_joint_at_the_identity_and_at_its_limit(x64):
    """At the identity, moving, the axis of the turn is undefined. At rest at the limit, and a little beyond, the force has a kink. There
    the derivatives of a step are those of one side, in both modes, to differences of first order at 1e-6. With a limit of no angle they
    are finite."""
    model, limit = xsim.loads(BALL, "mjcf"), np.deg2rad([40.0])

    def moved(turn, v, limit):
        m = model.replace({"limit.angle": limit})
        state = xsim.step(m, xsim.init(m, xsim.integrate(m, jnp.array([1.0, 0, 0, 0]), turn), v))
        return jnp.concatenate([state.q, state.v])

    run = by_numpy(moved)
    slopes = by_numpy(lambda *x: (jax.jacfwd(moved, (0, 1))(*x), jax.jacrev(moved, (0, 1))(*x)))
    still, out = np.zeros(3), np.array([0.6, 0.0, 0.8])
    for turn, v in ((still, np.array([0.3, -0.2, 0.5])), (out * limit, still), (out * (limit + 1e-9), still)):
        forward, reverse = slopes(turn, v, limit)
        np.testing.assert_allclose(np.stack(forward), np.stack(reverse), atol=1e-12)
        sides = [np.stack([(run(turn + h * e, v, limit) - run(turn, v, limit)) / h for e in np.eye(3)], -1) for h in (1e-6, -1e-6)]
        assert min(np.abs(forward[0] - side).max() for side in sides) < 2e-5
    assert np.abs(forward[0][4:]).max() > 1  # beyond, it pushes back
    check_finite(slopes(still, still, np.zeros(1)), "a limit of no angle, at the identity")


SHAPES = {"sphere": "0.1", "capsule": "0.1 0.2", "box": "0.1 0.15 0.2", "ellipsoid": "0.1 0.15 0.2", "cylinder": "0.1 0.2"}


def coincident(kinds) -> str:
    """Pairs of these kinds, each touching its like only, with their centres and axes at the origin."""
    geom = '<geom type="{}" size="{}" contype="{}" conaffinity="{}"/>'
    out = [geom.format(kind, size, 1 << i, 1 << i) for i, (kind, size) in enumerate((k, SHAPES[k]) for k in kinds)]
    return "".join([*out, *(f"<body>{PLANAR}{x}</body>" for x in out)])


@pytest.mark.slow
@pytest.mark.parametrize("kinds", [("box",), ("ellipsoid",), pytest.param(tuple(SHAPES), marks=pytest.mark.nightly)])
def test_coincident_centres(kinds, x64):
    """Of like shapes, with their axes aligned: the normal is undefined, values and derivatives of a step are finite, in both modes."""
    model = xsim.with_contact_limit(xsim.loads(f"<mujoco><worldbody>{coincident(kinds)}</worldbody></mujoco>", "mjcf"), 8)
    state = xsim.init(model)
    touching = by_numpy(xsim.contacts)(model, state)
    assert set(touching.geoms[touching.active].ravel()) == set(range(2 * len(kinds)))
    check_both_modes(stepped(model, random_like(np.zeros(model.nq + model.nv), 4)), (touched(model), state.q, state.v))


# ---- the same numbers, always ---------------------------------------------------------------------------------------------------

PLAY = f"""<mujoco><option timestep="0.004"/><worldbody>{FLOOR}<body pos="-0.15 0 0.1">{PLANAR}<geom type="sphere" size="0.1"/></body>
<body pos="0.15 0 0.1">{PLANAR}<geom type="box" size="0.1 0.1 0.1"/></body></worldbody></mujoco>"""


def in_contact(model, count: int) -> xsim.State:
    """Random states of PLAY, most of them in contact."""
    rng = np.random.default_rng(7)
    q = np.array([0.05, 0.01, 1.0, 0.05, 0.01, 0.1]) * rng.normal(size=(count, 6))
    return many(xsim.init(model), count, q=q, v=rng.normal(size=(count, 6)))


@pytest.mark.slow
@pytest.mark.parametrize(("count", "compiler"), [(256, by_numpy), pytest.param(4096, jax.jit, marks=pytest.mark.nightly)])
def test_an_environment_alone_and_in_a_batch(count, compiler, x64):
    """After one step within 1e-9: each is solved to rounding, whatever the others need. The whole batch again: the same bits."""
    model = xsim.loads(PLAY, "mjcf")
    state = in_contact(model, count)
    run = compiler(lambda s: xsim.step(model, s))
    together, again = run(state), run(state)
    assert not together.flags.any()
    jax.tree.map(np.testing.assert_array_equal, together, again)
    for i in (0, 1, 2, count // 2, count - 1):
        alone = run(jax.tree.map(lambda x, i=i: x[i : i + 1], state))
        np.testing.assert_allclose(alone.q[0], together.q[i], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(alone.v[0], together.v[i], rtol=1e-9, atol=1e-9)
