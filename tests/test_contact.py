"""Contacts: what they do to bodies, and derivatives through them."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_gradients import STATE, check_both_modes
from traced import by_numpy

import xsim

BOX = """<mujoco><option timestep="0.002" cone="elliptic" impratio="10"/><worldbody>
<geom type="plane" size="1 1 1" friction="0.5 0.01 0.001"/>
<body pos="0 0 0.1"><freejoint/><geom type="box" size="0.2 0.15 0.1" friction="0.3 0.01 0.001"/></body></worldbody></mujoco>"""


@pytest.mark.slow
def test_a_box_on_an_incline_slides_where_the_slope_is_steeper_than_friction(x64):
    """tan(angle) > mu, the larger of the two surfaces; then with g (sin - mu cos). Alone or in a batch, the motion is the same."""
    model = xsim.loads(BOX, "mjcf")
    slopes = np.array([0.2, 0.4, 0.6, 0.9])
    angle = np.arctan(slopes)
    gravity = 9.81 * np.stack([np.sin(angle), 0 * angle, -np.cos(angle)], -1)
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (4, *x.shape)), xsim.init(model))
    run = jax.jit(lambda m, s: xsim.rollout(m, s, steps=250)[0])
    after = run(model.replace({"option.gravity": gravity}), start)
    assert not after.flags.any()
    wanted = 0.5 * 9.81 * np.maximum(np.sin(angle) - 0.5 * np.cos(angle), 0.0)
    np.testing.assert_allclose(after.v[:, 0], wanted, rtol=0.05, atol=2e-3)  # it first sinks into its contacts, which push more then
    alone = run(model.replace({"option.gravity": gravity[[2]]}), jax.tree.map(lambda x: x[:1], start))
    np.testing.assert_allclose(alone.q[0], after.q[2], atol=1e-9)


BALLS = """<mujoco><option timestep="0.0002" gravity="0 0 0"/><default><geom type="sphere" size="0.1" solref="-50000 0" condim="1"
solimp="0.99 0.99 0.001 0.5 1"/><joint type="slide" axis="1 0 0"/></default>
<worldbody><body><joint/><geom/></body><body pos="0.201 0 0"><joint/><geom/></body></worldbody></mujoco>"""


def test_equal_balls_swap_their_velocities(x64):
    """Without damping, and so does the derivative: each velocity afterwards is that of the other ball before."""
    model = xsim.loads(BALLS, "mjcf")

    def after(v):
        return xsim.rollout(model, xsim.init(model, None, v), steps=400)[0].v

    v = jnp.array([1.0, 0.2])
    change, final = jax.jit(jax.jacfwd(after))(v), after(v)
    # Semi-implicit Euler keeps the energy of a stiff spring to the square of the step beside its period, about 1 %.
    np.testing.assert_allclose(final, v[::-1], atol=0.02)
    np.testing.assert_allclose(change, [[0.0, 1.0], [1.0, 0.0]], atol=0.05)


@pytest.mark.slow
def test_beyond_the_contact_limit_the_deepest_count(x64):
    model = xsim.loads(BOX, "mjcf")
    state = xsim.init(model, jnp.array([0.0, 0, 0.098, 0.999, 0.03, 0.02, 0]))
    every = by_numpy(xsim.contacts)(model, state)
    assert every.active.sum() > 1
    tight = xsim.with_contact_limit(model, 1)
    some, data = by_numpy(xsim.contacts)(tight, state), by_numpy(xsim.forward)(tight, state)
    assert some.distance.shape == (1,) and some.distance[0] == every.distance.min()
    assert data.flags == xsim.Flags.CONTACT_OVERFLOW and data.residual < 1e-10
    force = jnp.einsum("nij,ni->j", some.frame, some.force[:, :3])
    np.testing.assert_allclose(data.external_force[0], force, atol=1e-9)


@pytest.mark.parametrize("kept", ['<weld body1="box"/>', '<connect body1="box" anchor="0 0 .1"/>', '<weld body1="box" body2="other"/>'])
def test_what_is_kept_beside_geoms_that_do_not_touch(kept, x64):
    """Equalities with the world and between bodies act as where contacts are switched off."""
    text = BOX.replace("<body pos", '<body name="other" pos="1 0 2"><freejoint/><geom size=".1"/></body><body name="box" pos')
    text = text.replace("</mujoco>", f"<equality>{kept}</equality></mujoco>")
    model = xsim.loads(text, "mjcf")
    state = xsim.init(model, np.array([1.0, 0, 2, 1, 0, 0, 0, 0.01, 0.02, 3, 0.99, 0.1, 0.05, 0]))
    found, wanted = (by_numpy(lambda m, s: xsim.forward(m, s).a)(m, state) for m in (model, xsim.with_constraints(model, ["soft"])))
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert np.abs(wanted[6:]).max() > 20  # the box is pulled back


ROUND = """
<mujoco>
  <worldbody>
    <geom type="plane" size="0 0 1"/>
    <body pos="0 0 0.2"><freejoint/><geom type="box" size="0.1 0.1 0.1"/></body>
    <body pos="0 0 0.5"><joint axis="0 1 0"/><geom type="capsule" size="0.05 0.1"/></body>
    <body pos="0 1 0.5"><joint axis="1 0 0"/><joint axis="0 1 0"/><geom type="capsule" size="0.05 0.1"/></body>
    <body pos="0 0 0.9"><joint type="slide" axis="0 0 1"/><geom size="0.1"/></body>
  </worldbody>
</mujoco>"""


@pytest.mark.parametrize(("scene", "integrator"), [
    pytest.param(BOX, "rk4", marks=pytest.mark.slow),
    pytest.param(ROUND, "euler", marks=pytest.mark.slow),
    pytest.param(ROUND, "implicit", marks=pytest.mark.slow),
], ids=("box", "round", "implicit"))  # fmt: skip
def test_single_precision_beside_double(scene, integrator, x64):
    """Nothing of a step of single precision becomes double."""
    model = xsim.with_integrator(xsim.loads(scene, "mjcf"), integrator)
    model, state = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32) if x.dtype == jnp.float64 else x, (model, xsim.init(model)))
    after = jax.eval_shape(lambda state: xsim.step(model, state), state)
    assert after.q.dtype == after.v.dtype == jnp.float32


CROWD = "".join(
    f'<body pos="0 {0.5 * i} 0"><joint type="slide" axis="0 1 0"/><geom type="{kind}" size="0.2 0.15 0.1" condim="1"/></body>'
    for i, kind in enumerate(("box", "cylinder") * 6)
)


@pytest.mark.nightly
def test_of_many_pairs_those_that_are_near_are_held_against_each_other(x64):
    """The same contacts as if all were; the flag where more are near than the buffer holds."""
    model = xsim.loads(f"<mujoco><worldbody>{CROWD}</worldbody></mujoco>", "mjcf")
    rng = np.random.default_rng(3)
    state = xsim.init(model, jnp.asarray(rng.uniform(-0.5, 0.5, model.nv)))
    some, every = (by_numpy(xsim.contacts)(xsim.with_contact_limit(model, None, pairs), state) for pairs in (12, 100))

    def listed(c):
        order = np.lexsort((c.distance, *c.geoms.T[::-1], ~c.active))[: c.active.sum()]
        return c.geoms[order], c.distance[order], c.force[order]

    assert every.active.sum() > 6
    for ours, wanted in zip(listed(some), listed(every), strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-9)
    assert by_numpy(xsim.forward)(xsim.with_contact_limit(model, None, 2), state).flags == xsim.Flags.CONTACT_OVERFLOW


PAIR = """<mujoco><option cone="{}" impratio="2" gravity="0.3 0 -9.6"/>
<default><geom friction="0.7 0.02 0.01" solref="0.02 0.9" solimp="0.85 0.95 0.02 0.4 2" margin="0.003" gap="0.001"/></default><worldbody>
<geom type="plane" size="1 1 1" friction="0.4 0.01 0.01" solref="0.03 1" solimp="0.8 0.9 0.03 0.5 2"/>
<body pos="0 0 0.1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0.1"/>
  <geom type="sphere" size="0.1" condim="6" solmix="2"/></body>
<body pos="0.25 0 0.1"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 0 1"/><joint axis="0 1 0"/>
  <geom type="capsule" size="0.06 0.1" euler="0 70 10" condim="4" density="700"/></body>
</worldbody></mujoco>"""
STATES = np.array([
    # Pressed together, sliding and turning; nearly at rest; both in free fall; exactly touching (finite only).
    [0.0, -0.004, 0.1, 0.003, -0.006, 0.05], [0.0, -0.002, 0.0, -0.1, -0.002, 0.1], [0.0, 0.5, 0.1, 0.2, 0.7, 0.0],
    [0.0, 0.0, 0.0, 0.5, 0.5, 0.0],
])  # fmt: skip
SPEEDS = np.array([[0.3, -0.1, 2.0, -0.4, -0.2, 1.0], [0.002, 0.001, 0.01, 0.003, -0.002, 0.02], [0.1] * 6, [0.0] * 6])
REACH = {"default": 2e-7}


def check_derivatives(model, q=STATES, v=SPEEDS) -> dict:
    """Of the acceleration at states (of a model of PAIR) with respect to every number of the state and the model, both modes. Returns
    them."""
    weights = np.random.default_rng(5).normal(size=model.nv)
    point = {p: np.broadcast_to(np.asarray(model.get(p)), (len(q), *model.shape(p))).copy() for p in model.paths()}
    point |= {"q": q, "v": v}

    def loss(point):
        m = model.replace({p: x for p, x in point.items() if p not in STATE})
        return xsim.forward_dynamics(m, point["q"], point["v"]) @ weights

    return check_both_modes(loss, point, 3, REACH, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("cone", ["pyramidal", "elliptic"])
def test_derivatives_through_contact(cone, x64):
    reverse = check_derivatives(xsim.loads(PAIR.format(cone), "mjcf"))
    for name in ("friction", "solref", "solimp", "margin", "gap", "solmix"):
        each = np.abs(reverse[f"surface.{name}"][:2]).max((0, 1))
        assert np.all(each > 0), (name, each)
    assert np.abs(reverse["cone.impratio"]).max() > 0
