"""What MuJoCo 4.0 added to the state: past controls and readings, and springs that yield. Against the numbers of MuJoCo 4.0.0, in float64.

`reference/make_mjcf_4_0_trajectories.py` records the numbers on the way of 200 steps, under controls that change from step to step."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close

import xsim

FOLDER = Path(__file__).parent / "reference"
RECORDED = json.loads((FOLDER / "mjcf_4_0_trajectories.json").read_text())["models"]
INTEGRATORS = {"Euler": "implicit_damping", "implicitfast": "implicitfast", "RK4": "rk4"}
SIMILAR = pytest.mark.nightly  # the same idea with another integrator
CASES = [
    pytest.param(model, case, marks=SIMILAR if case in ("implicitfast", "RK4") else ())
    for model, recorded in RECORDED.items() for case in recorded["cases"]
]  # fmt: skip
TOLERANCE = 1e-6  # relative to the largest entry
MODELS = {}


def _model(name: str):
    if name not in MODELS:
        MODELS[name] = xsim.load(FOLDER / "mjcf_4_0" / "trajectories" / f"{name}.xml", rules="4.0")
    return MODELS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name, case", CASES)
def test_trajectories(name, case, x64):
    integrator, _, key = case.partition(" from ")
    model = xsim.with_integrator(_model(name), INTEGRATORS[integrator])
    controls = jnp.asarray(RECORDED[name]["controls"])
    start = xsim.init(model, key=key or None)

    def found(state, ctrl):
        data = xsim.forward(model, state, ctrl)
        out = {"q": state.q, "v": state.v, "act": state.act, "plastic": state.plastic}
        return out | {"passive": data.passive, "actuator": data.actuator, "a": data.a, "sensor": data.sensor}

    @jax.jit
    def run(state):
        def body(state, ctrl):
            return xsim.step(model, state, ctrl), found(state, ctrl)

        return jax.lax.scan(body, state, controls)

    final, states = run(start)
    recorded = RECORDED[name]["cases"][case]
    steps = np.array([entry["step"] for entry in recorded])
    for field, values in states.items():
        close(field, values[steps], np.array([entry[field] for entry in recorded]), TOLERANCE)
    assert int(final.flags) == 0


@pytest.mark.slow
def test_bodies_that_sleep_in_mujoco_move_as_if_awake(x64):
    """`reference/make_sleep.py`: awake trees agree, also beside one that sleeps. There the velocity that MuJoCo sets to zero is below the
    tolerance, and what a body still moves beyond its place of sleep is less than that velocity times the time."""
    recorded = json.loads((FOLDER / "sleep.json").read_text())
    model = xsim.loads(recorded["model"], "mjcf", rules="4.0")
    _, states = xsim.rollout(model, xsim.init(model), steps=recorded["steps"][-1], record=lambda state, data: state)
    steps, asleep = np.array(recorded["steps"][1:]), np.array(recorded["asleep"][1:])
    q, v = (np.asarray(x)[steps - 1] for x in (states.q, states.v))
    for name, found, wanted in (("q", q, recorded["q"]), ("v", v, recorded["v"])):
        close(name, found[~asleep], np.array(wanted[1:])[~asleep], TOLERANCE)
    wanted, since = np.array(recorded["q"][1:])[asleep], (steps - steps[asleep.any(1)][0])[asleep.any(1)] * float(model.option.dt)
    assert (np.array(recorded["v"][1:])[asleep] == 0).all() and (np.abs(v[asleep]) < recorded["tolerance"]).all()
    assert (np.abs(q[asleep] - wanted) <= recorded["tolerance"] * (since + 0.04)).all()


def _end(model, controls, leaves: dict, start=None):
    """What a few steps lead to: configuration, velocity, plastic rest positions and readings, as one vector."""
    model = model.replace(leaves)
    state = xsim.init(model) if start is None else start
    state, _ = xsim.rollout(model, state, controls)
    return jnp.concatenate([state.q, state.v, state.plastic, xsim.forward(model, state, controls[-1]).sensor], -1)


LATE = """<mujoco><worldbody><body><joint name="j" axis="0 1 0" damping="0.1"/><geom size="0.1" pos="0.3 0 0"/></body></worldbody>
  <actuator><position joint="j" kp="5" nsample="4" delay="0.0051" interp="linear"/>
    <motor joint="j" nsample="4" delay="0.0047" interp="cubic"/></actuator>
  <sensor><jointvel joint="j" nsample="4" delay="0.003" interp="linear"/>
    <jointpos joint="j" nsample="4" delay="0.007" interval="0.0039" interp="cubic"/></sensor></mujoco>"""


def _late():
    return xsim.loads(LATE, "mjcf", rules="4.0")


def _bent():
    """A model whose springs yield at once from its keyframe on."""
    model = _model("yielding")
    return model.replace({path: 0.3 * model.get(path) for path in ("joint.spring_yield", "tendon.spring_yield")})


@pytest.mark.slow
@pytest.mark.parametrize(("make", "key", "leaves"), [
    (_late, None, ("actuator.delay", "sensor.delay", "dof.damping")),
    (_bent, "bent", ("joint.spring_yield", "tendon.spring_yield", "dof.stiffness")),
])  # fmt: skip
def test_gradients(make, key, leaves, x64):
    """With respect to all controls and leaves along a random direction, forward and reverse, against differences."""
    model, rng = make(), np.random.default_rng(0)
    controls = jnp.asarray(rng.normal(size=(8, model.nu)))
    start = None if key is None else xsim.init(model, key=key)
    values = {path: model.get(path) for path in leaves}
    direction = {path: jnp.asarray(rng.normal(size=x.shape) * 0.1 * (np.abs(x) + 1e-4)) for path, x in values.items()}
    steer = jnp.asarray(rng.normal(size=controls.shape))

    @jax.jit
    def f(h):
        return _end(model, controls + h * steer, {path: x + h * direction[path] for path, x in values.items()}, start)

    h = 1e-6
    wanted = (f(h) - f(-h)) / (2 * h)
    forward = jax.jit(jax.jacfwd(f))(0.0)
    close("forward mode", forward, wanted, 1e-6)
    weights = jnp.asarray(rng.normal(size=wanted.shape))
    reverse = jax.jit(jax.grad(lambda h: weights @ f(h)))(0.0)
    close("reverse mode", reverse, weights @ wanted, 1e-6, scale=float(jnp.abs(weights) @ jnp.abs(wanted)))


@pytest.mark.slow
def test_each_environment_has_its_own_delay(x64):
    """A batch of delays gives what each delay gives alone."""
    model = _late()
    controls = jnp.asarray(np.random.default_rng(0).normal(size=(12, model.nu)))
    delays = model.get("actuator.delay") * jnp.array([[0.5], [1.0], [1.4]])
    end = jax.jit(lambda delay: _end(model, controls, {"actuator.delay": delay}))
    together, each = end(delays), jnp.stack([end(delay) for delay in delays])
    close("batch", together, each, 1e-12)
    assert float(jnp.abs(together[0] - together[1]).max()) > 1e-4


JOINT = '<body><joint name="j" type="{}" {}/><geom size="0.1"/></body>'


@pytest.mark.parametrize(("joint", "after", "message"), [
    ("", '<actuator><motor joint="j" delay="0.1"/></actuator>', "delay: found 0.1 without samples; allowed: with nsample > 0"),
    ("", '<actuator><motor joint="j" nsample="3" interp="spline"/></actuator>', "interp: unknown value 'spline'"),
    ("", '<actuator><motor joint="j" nsample="20000000"/></actuator>', "nsample: found 20000000; allowed: at most 16777216"),
    ("", '<actuator><dcmotor joint="j" motorconst="1" resistance="1" input="none" nsample="2"/></actuator>', "actuator without inputs"),
    ("", '<sensor><jointpos joint="j" interval="-1"/></sensor>', "interval: found a period of -1"),
    ("", '<sensor><jointpos joint="j" interval="1 -1"/></sensor>', "interval: found a phase of -1"),
    ("", '<sensor><jointpos joint="j" interval="1 0.1"/></sensor>', "interval: found a phase of 0.1"),
    ('springyield="-1"', "", "springyield: "),
    ("", '<tendon><fixed springyield="-1"><joint joint="j" coef="1"/></fixed></tendon>', "springyield: "),
    ('springyield="1"', '<keyframe><key plastic="1 2"/></keyframe>', "plastic: found 2 numbers in a key; allowed: 1"),
])  # fmt: skip
def test_what_cannot_be(joint, after, message):
    with pytest.raises(xsim.ParseError, match=message):
        xsim.parse_text(f"<mujoco><worldbody>{JOINT.format('hinge', joint)}</worldbody>{after}</mujoco>", "mjcf", rules="4.0")


def test_a_free_joint_does_not_yield():
    with pytest.raises(xsim.ParseError, match="springyield: found for a free joint"):
        joint = JOINT.format("free", 'springyield="1"')
        xsim.parse_text(f"<mujoco><worldbody>{joint}</worldbody></mujoco>", "mjcf", rules="4.0")


def test_the_state_of_a_model_without_histories_is_as_wide_as_before():
    model = xsim.build(xsim.parse_text(f"<mujoco><worldbody>{JOINT.format('hinge', '')}</worldbody></mujoco>", "mjcf"))
    state = xsim.init(model)
    assert state.history.shape == state.plastic.shape == (0,)
