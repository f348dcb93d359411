"""MuJoCo 4.0's integrator discrete: velocity stepping in the metric of stiffness and damping.

`reference/make_discrete.py` records what MuJoCo 4.0.0 finds. All comparisons are in float64."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for

RECORDED = json.loads((Path(__file__).parent / "reference" / "discrete.json").read_text())["models"]
TOLERANCE = 1e-10
TOLERANCES = {
    "fluid": 1e-7,  # the virtual masses of MuJoCo have a relative error of 2e-8
    "grid": 1e-8,  # the rotations of its cells, of 1e-9
    "grid of strains": 1e-8,
    "passive contacts": 1e-8,  # sums of forces of 1e6 N, where the numbers are small
    "passive contacts with a plane": 1e-8,
    "passive contacts of nodes": 1e-8,
    "passive contacts of flexes": 1e-6,  # the normals that MuJoCo's search for contacts of elements finds
}
MODELS = {}


def _case(name: str):
    recorded = RECORDED[name]
    if name not in MODELS:
        MODELS[name] = xsim.loads(recorded["text"], "mjcf", rules="4.0")
    model = MODELS[name]
    state = xsim.init(model, jnp.array(recorded["q"]), jnp.array(recorded["v"])).replace(act=jnp.array(recorded["act"]))
    return model, state, jnp.array(recorded["ctrl"]) if model.nu else None, recorded


@pytest.mark.parametrize("name", RECORDED)
def test_accelerations_and_forces(name, x64):
    model, state, ctrl, recorded = _case(name)
    data, tolerance = xsim.forward(model, state, ctrl), TOLERANCES.get(name, TOLERANCE)
    for field in ("passive", "actuator", "a", "constraint", "sensor"):
        close(field, getattr(data, field), recorded[field], tolerance)
    assert int(data.flags) == 0 and (float(data.residual) < 1e-10)


@pytest.mark.parametrize("name", RECORDED)
def test_steps(name, x64):
    model, state, ctrl, recorded = _case(name)
    step, tolerance = by_numpy(partial(xsim.step, model)), TOLERANCES.get(name, TOLERANCE)
    for i, wanted in enumerate(recorded["states"]):
        state = step(state, ctrl)
        close(f"step {i + 1}", np.concatenate([state.q, state.v, state.act], -1), wanted, tolerance)
    assert int(state.flags) == 0


ARM = """<mujoco><option integrator="discrete" timestep=".02" cone="elliptic"/><worldbody><geom type="plane" size="9 9 1" friction=".7"/>
    <body pos="0 0 .3"><joint name="a" axis="0 1 0" stiffness="30 5 2" damping="1 .5 .2"/>
      <geom type="capsule" fromto="0 0 0 .3 0 -.1" size=".05" mass="1" contype="0" conaffinity="0"/>
      <body pos=".3 0 -.1"><joint type="slide" axis="1 0 1" frictionloss=".3"/><geom size=".3" mass=".5"/></body></body>
    <body pos="0 1 1"><joint name="b" axis="1 0 0" range="-.1 .1" limited="true"/><geom size=".1" pos="0 .3 0" mass="1"/></body>
  </worldbody>
  <tendon><fixed stiffness="20 3 1" damping="1 .2 .1"><joint joint="a" coef="1"/><joint joint="b" coef="-2"/></fixed></tendon>
  <actuator><position joint="a" kp="40" kv="2"/></actuator></mujoco>"""
LEAVES = ("dof.stiffness", "dof.damping", "tendon.stiffness", "tendon.damping", "actuator.gain", "actuator.bias", "geom.mass", "option.dt")
LEAVES += ("joint.stiffness_poly", "joint.damping_poly", "soft.solref", "surface.solref", "surface.friction", "limit.lower", "limit.upper")


def _arm():
    if "arm" not in MODELS:
        MODELS["arm"] = xsim.loads(ARM, "mjcf", rules="4.0")
    return MODELS["arm"]


def _random_states(model, *batch: int):
    rng = np.random.default_rng(1)
    q, v, ctrl = (jnp.asarray(rng.normal(size=(*batch, n)) * s) for n, s in ((model.nq, 0.1), (model.nv, 1.0), (model.nu, 0.5)))
    return xsim.init(model, q, v), ctrl


def _arm_inputs():
    model = _arm()
    return model, *_random_states(model), LEAVES


def _sheet_inputs():
    model, state, _, _ = _case("sheet")
    return model, state, jnp.zeros(0), ("flex.young", "flex.poisson", "flex.damping", "flex.thickness", "flex.length", "body.mass")


POINT = """<body name="{}" pos="{}"><joint type="slide" axis="1 0 0"/><joint type="slide" axis="0 1 0"/><joint type="slide" axis="0 0 1"/>
      <geom size=".01" mass="{}" contype="0" conaffinity="0"/></body>"""
POINTS = POINT.format("a", "0 0 .05", 1) + POINT.format("b", ".3 0 .06", 2) + POINT.format("c", "0 .3 .07", 3)
TRIANGLE = f"""<mujoco><option integrator="discrete" timestep=".02"/>
    <worldbody><geom type="plane" size="9 9 1"/><geom size=".3" pos=".1 .05 -.3"/>{POINTS}</worldbody>
    <deformable><flex name="f" dim="2" radius=".1" body="a b c" element="0 1 2"><contact selfcollide="none" passive="true"/></flex>
    </deformable></mujoco>"""


def _triangle_inputs():
    if "triangle" not in MODELS:
        MODELS["triangle"] = xsim.loads(TRIANGLE, "mjcf", rules="4.0")
    model = MODELS["triangle"]
    state, ctrl = _random_states(model)
    return model, state.replace(q=0.1 * state.q), ctrl, ("flex.radius", "geom.size", "geom.mass", "option.dt")


@pytest.mark.slow
@pytest.mark.parametrize("inputs", [_arm_inputs, *(pytest.param(x, marks=pytest.mark.nightly) for x in (_triangle_inputs, _sheet_inputs))])
def test_gradients(inputs, x64):
    """Of two steps, with respect to state, controls and leaves along a random direction, forward and reverse, against differences."""
    (model, state, ctrl, leaves), rng = inputs(), np.random.default_rng(0)
    inputs = (state.q, state.v, ctrl, {path: model.get(path) for path in leaves})
    # A stiffness or a damping of 0 stays: below it the metric has none.
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) * 0.01 * np.abs(x)), inputs)

    @jax.jit
    def f(h):
        q, v, u, changed = jax.tree.map(lambda x, d: x + h * d, inputs, direction)
        end, _ = xsim.rollout(model.replace(changed), state.replace(q=q, v=v), jnp.stack([u, u]) if model.nu else None, steps=2)
        return jnp.concatenate([end.q, end.v])

    h = 1e-5 if model.nu else 1e-3  # forces of 1e6 N of passive contacts round
    wanted = (f(h) - f(-h)) / (2 * h)
    close("forward mode", jax.jit(jax.jacfwd(f))(0.0), wanted, 1e-6, scale=float(jnp.abs(wanted).max()))
    weights = jnp.asarray(rng.normal(size=wanted.shape))
    reverse = jax.jit(jax.grad(lambda h: weights @ f(h)))(0.0)
    close("reverse mode", reverse, weights @ wanted, 1e-6, scale=float(jnp.abs(weights) @ jnp.abs(wanted)))


@pytest.mark.parametrize(("inputs", "compiler"), [
    (_arm_inputs, "llvm"),
    pytest.param(_triangle_inputs, "llvm", marks=pytest.mark.slow),
    pytest.param(_arm_inputs, "xla", marks=pytest.mark.nightly),
])  # fmt: skip
def test_each_environment_has_its_own_leaves(inputs, compiler, x64):
    """A batch, by machine code of either compiler, gives what numpy evaluates for each environment alone."""
    (model, start, _, paths), factors = inputs(), jnp.array([[1.0], [0.9], [1.1]])
    ctrl = _random_states(model, 3)[1] if model.nu else None
    state = xsim.init(model, factors * start.q, factors * start.v)
    leaves = {path: model.get(path) * jnp.array([0.7, 1.0, 1.4]).reshape(3, *[1] * jnp.ndim(model.get(path))) for path in paths[:4]}
    with tracing_for(compiler):
        found = xsim.step(model.replace(leaves), state, ctrl)
    one = by_numpy(lambda s, u, leaves: xsim.step(model.replace(leaves), s, u))
    for i in range(3):
        wanted = one(*jax.tree.map(lambda x, i=i: x[i], (state, ctrl, leaves)))
        np.testing.assert_allclose(np.concatenate([found.q[i], found.v[i]]), np.concatenate([wanted.q, wanted.v]), rtol=1e-9, atol=1e-9)


COGGING = """<mujoco><option integrator="discrete" timestep=".01"><flag contact="disable"/></option><worldbody><body>
  <joint axis="0 1 0" name="j"/><geom size=".1" mass="2" pos=".1 0 .05"/></body></worldbody>
  <actuator><dcmotor joint="j" motorconst="0.1723" resistance="2.525" cogging="3 6 .55" {}/></actuator></mujoco>"""


@pytest.mark.parametrize(("controller", "accelerations"), [
    ("", [128.42551543753345, 32.02296876554433]), ('saturation=".01 0 0"', [127.59242986506302, 30.814485196435847]),
    ('input="pos" controller="9 0 .7 0 0 0"', [198.19667572689394, -11.078049712940423]),
])  # fmt: skip
def test_cogging_is_a_spring_where_it_holds(controller, accelerations, x64):
    """At 0.3 rad it holds, at 0.9 rad it drives away, more than the controller holds. Numbers of MuJoCo 4.0.0."""
    model = xsim.loads(COGGING.format(controller), "mjcf", rules="4.0")
    state = xsim.init(model, jnp.array([[0.3], [0.9]]), jnp.full((2, 1), -0.5))
    np.testing.assert_allclose(xsim.forward(model, state, jnp.full((2, 1), 0.7)).a[:, 0], accelerations, rtol=1e-9)


def test_drag_of_what_only_slides_in_a_batch(x64):
    """Its angular velocity is one zero for all environments. Accelerations of MuJoCo 4.0.0, times the step of 0.002 s."""
    model = xsim.loads("""<mujoco><option integrator="discrete" density="500" viscosity="2" gravity="0 0 0"/><worldbody><body>
      <joint type="slide" axis="1 0 1"/><geom type="box" size=".1 .2 .3" mass="1" euler="20 0 30"/></body></worldbody></mujoco>""",
      "mjcf", rules="4.0")  # fmt: skip
    v = jnp.array([[0.5], [-2.0]])
    data = xsim.forward(model, xsim.init(model, jnp.zeros((2, 1)), v))
    np.testing.assert_allclose(v + 0.002 * data.a, [[0.4791981638053161], [-1.7866746335075538]], rtol=1e-9)


def test_forward_dynamics_is_the_step(x64):
    model = _arm()
    state, ctrl = _random_states(model)
    after = by_numpy(partial(xsim.step, model))(state, ctrl)
    rate = (after.v - state.v) / model.option.dt
    np.testing.assert_allclose(xsim.forward_dynamics(model, state.q, state.v, ctrl=ctrl), rate, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("option", "words"), [
    ('solver="PGS"', """solver="PGS", which is not simulated; allowed: the solvers CG and Newton"""),
    ('noslip_iterations="3"', "noslip_iterations, which is not simulated; allowed: noslip_iterations 0"),
    ('><flag sleep="enable" island="disable"/></option><option', "sleep without islands"),
])  # fmt: skip
def test_refused(option, words):
    text = f'<mujoco><option integrator="discrete" {option}/></mujoco>'
    with pytest.raises(xsim.ParseError) as error:
        xsim.parse_text(text, "mjcf", rules="4.0")
    assert words in str(error.value) and "<option>: integrator" in str(error.value)


def test_refused_flexes():
    flex = """<mujoco><option integrator="discrete"/><worldbody><flexcomp name="f" type="grid" count="2 1 1" spacing="1 1 1" dim="1">
      <edge damping="1"/></flexcomp></worldbody></mujoco>"""
    with pytest.raises(xsim.ParseError, match="found 'discrete' with flexes with edge stiffness or damping"):
        xsim.parse_text(flex, "mjcf", rules="4.0")
    model = xsim.loads(flex.replace("discrete", "Euler"), "mjcf", rules="4.0")
    with pytest.raises(ValueError, match="the integrator discrete is for models without flexes with springs along edges"):
        xsim.step(xsim.with_integrator(model, "discrete"), xsim.init(model))


FLEXES = {
    "f": '<flexcomp name="f" type="grid" count="2 2 1" spacing="1 1 1" dim="2"><contact passive="true"/></flexcomp>',
    "line": '<flexcomp name="line" type="grid" count="2 1 1" spacing="1 1 1" dim="1"><contact passive="true"/></flexcomp>',
    "rigid": '<flexcomp name="rigid" type="grid" count="2 2 1" spacing="1 1 1" dim="2" rigid="true"><contact passive="true"/></flexcomp>',
}


@pytest.mark.parametrize("name", FLEXES)
def test_passive_contact(name):
    """It needs the integrator discrete, as in a step of MuJoCo, but for lines and rigid flexes, which have none. The writer writes it."""
    text = f'<mujoco><option integrator="{{}}"/><worldbody>{FLEXES[name]}</worldbody></mujoco>'
    spec = xsim.parse_text(text.format("discrete"), "mjcf", rules="4.0")
    assert 'passive="true"' in xsim.to_mjcf(spec)
    if name != "f":
        assert xsim.parse_text(text.format("Euler"), "mjcf", rules="4.0").flexes[0].numbers["passive"]
        return
    with pytest.raises(xsim.ParseError, match="passive of flex 'f': found integrator 'Euler'; allowed: integrator=\"discrete\""):
        xsim.parse_text(text.format("Euler"), "mjcf", rules="4.0")
    model = xsim.build(spec.replace(world_geoms=xsim.parse_text(ARM, "mjcf", rules="4.0").world_geoms))
    with pytest.raises(ValueError, match="passive contact of flexes is for the integrator discrete"):
        xsim.step(xsim.with_integrator(model, "euler"), xsim.init(model))


def test_only_the_rules_of_4_0_have_it():
    text = '<mujoco><option integrator="discrete"/></mujoco>'
    with pytest.raises(xsim.ParseError, match="unknown value 'discrete'"):
        xsim.parse_text(text, "mjcf", rules="3.2")
    spec = xsim.parse_text(text, "mjcf", rules="4.0")
    assert spec.option.integrator == "discrete"
    assert 'integrator="discrete"' in xsim.to_mjcf(spec)
    with pytest.raises(xsim.WriteError, match="integrator 'discrete'"):
        xsim.to_mjcf(spec.replace(rules="3.2"))
