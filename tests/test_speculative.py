"""Speculative contacts (MuJoCo 4.0's flag): contacts that geoms will have within the step.

`reference/make_speculative.py` records what MuJoCo 4.0.0 finds. All comparisons are in float64."""

from __future__ import annotations

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from traced import by_numpy

import xsim
from xsim.compile.choice import tracing_for

RECORDED = json.loads((Path(__file__).parent / "reference" / "speculative.json").read_text())["models"]
DAILY = {"ball on a plane", "margin and gap", "ball that is too slow"}


@pytest.fixture(autouse=True)
def _evaluated_as_it_is():
    """Most tests here evaluate a step once, by numpy; LLVM would compile it first."""
    with tracing_for("xla"):
        yield


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in DAILY)) for name in RECORDED])
def test_contacts_and_steps(name, x64):
    """Contacts, and the states after a few steps: in the first one the geoms come together, in the others they touch."""
    recorded = RECORDED[name]
    model = xsim.loads(recorded["text"], "mjcf", rules="4.0")
    state = xsim.init(model, v=jnp.array(recorded["v"]))
    advance = by_numpy(lambda s: (xsim.contacts(model, s), xsim.step(model, s)))
    found, state = advance(state)
    wanted = np.array(recorded["contacts"]).reshape(-1, 4)
    own = np.column_stack([found.distance, found.point])[np.asarray(found.active)]
    close("distances", np.sort(own[:, 0]), wanted[:, 0], 1e-7)
    close("points", own[np.lexsort(own[:, 1:].round(6).T)], wanted[np.lexsort(wanted[:, 1:].round(6).T)], 1e-6)
    for step, numbers in enumerate(recorded["states"]):
        state = advance(state)[1] if step else state
        # MuJoCo's search of an ellipsoid and a box that touch ends a little off.
        close(f"step {step + 1}", np.concatenate([state.q, state.v]), numbers, 1e-5 if "ellipsoid" in name else 1e-6)


FALL = """<mujoco><option timestep=".002"><flag speculative="enable"/></option><worldbody>
    <geom name="g" type="{}" size="1 1 .01" euler="5 3 0"/>
    <body pos="0 0 .3"><freejoint/><geom name="b" {} mass="1"/></body></worldbody></mujoco>"""
CASES = {
    "sphere": FALL.format("plane", 'size=".1"'),
    "box": FALL.format("plane", 'type="box" size=".1 .07 .05" euler="20 30 10"'),
    "box on a box": FALL.format("box", 'type="box" size=".1 .07 .05" euler="20 30 10"'),
    "capsule on a box": FALL.format("box", 'type="capsule" size=".05 .1" euler="20 60 10"'),
    "ellipsoid on a box": FALL.format("box", 'type="ellipsoid" size=".1 .07 .05" euler="20 30 10"'),
}
LEAVES = ("geom.size", "geom.pos", "surface.solref", "option.dt")


@pytest.mark.nightly
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, x64):
    """Of a step, with respect to state and leaves along a random direction, forward and reverse, against differences: through all
    iterations of the search."""
    model, rng = xsim.loads(CASES[name], "mjcf", rules="4.0"), np.random.default_rng(0)
    start = xsim.init(model, v=jnp.array([3.0, 5.0, -200.0, 20.0, 40.0, 10.0]))
    inputs = (start.q, start.v, {path: model.get(path) for path in LEAVES})
    direction = jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape) * 0.01 * (0.1 + np.abs(x)) * (np.abs(x) > 0)), inputs)

    def f(h):
        q, v, changed = jax.tree.map(lambda x, d: x + h * d, inputs, direction)
        end = xsim.step(model.replace(changed), start.replace(q=q, v=v))
        return jnp.concatenate([end.q, end.v])

    assert np.asarray(by_numpy(xsim.contacts)(model, start).active).any()
    h, values = 1e-4, by_numpy(f)
    wanted = (values(h) - values(-h)) / (2 * h)
    scale = float(jnp.abs(wanted).max())
    close("forward mode", by_numpy(jax.jacfwd(f))(0.0), wanted, 1e-6, scale=scale)
    weights = jnp.asarray(rng.normal(size=wanted.shape))
    reverse = by_numpy(jax.grad(lambda h: weights @ f(h)))(0.0)
    close("reverse mode", reverse, weights @ wanted, 1e-6, scale=float(jnp.abs(weights) @ jnp.abs(wanted)))


@pytest.mark.parametrize("compiler", [pytest.param("llvm", marks=pytest.mark.slow), pytest.param("xla", marks=pytest.mark.nightly)])
def test_batch(compiler, x64):
    """Environments with speeds and sizes of their own: one that meets the plane, one that is too slow, one that touches it."""
    model = xsim.loads(CASES["sphere"], "mjcf", rules="4.0")
    heights, speeds = jnp.array([0.3, 0.3, 0.05]), jnp.array([-200.0, -5.0, -200.0])
    start = xsim.init(model)
    q = jnp.broadcast_to(start.q, (3, model.nq)).at[:, 2].set(heights)
    state = xsim.init(model, q, jnp.zeros((3, 6)).at[:, 2].set(speeds))
    sizes = {"geom.size": model.get("geom.size") * jnp.array([1.0, 0.9, 1.1])[:, None, None]}
    with tracing_for(compiler):
        found = xsim.step(model.replace(sizes), state)
    one = by_numpy(lambda s, leaves: xsim.step(model.replace(leaves), s))
    for i in range(3):
        wanted = one(*jax.tree.map(lambda x, i=i: x[i], (state, sizes)))
        np.testing.assert_allclose(np.concatenate([found.q[i], found.v[i]]), np.concatenate([wanted.q, wanted.v]), rtol=1e-9, atol=1e-9)


def test_without_the_flag():
    """The flag is off at first; it needs the flag nativeccd; the writer writes it; the rules 3.2 do not know it."""
    text = '<mujoco><option><flag {}/></option></mujoco>'
    for flags, on in (("", False), ('speculative="enable"', True), ('speculative="enable" nativeccd="disable"', False)):
        spec = xsim.parse_text(text.format(flags), "mjcf", rules="4.0")
        assert xsim.build(spec).topology.speculative == on
        assert ('speculative="enable"' in xsim.to_mjcf(spec)) == bool(flags)
    with pytest.raises(xsim.ParseError, match="unknown attribute 'speculative'"):
        xsim.parse_text(text.format('speculative="enable"'), "mjcf", rules="3.2")
