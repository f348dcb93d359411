"""Plugins of MJCF: those of MuJoCo against its releases 3.2.7 and 4.0.0 in float64, and what is read and refused.

`reference/make_plugins.py` records the numbers."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparing import close
from traced import by_numpy

import xsim

FOLDER = Path(__file__).parent / "reference"
RECORDED = {release: json.loads((FOLDER / f"plugins_{release.replace('.', '_')}.json").read_text()) for release in ("3.2", "4.0")}
CASES = [(release, name) for release, models in RECORDED.items() for name in models]
INTEGRATORS = {"Euler": "implicit_damping", "implicitfast": "implicitfast"}
FORCES, STATES = 1e-8, 1e-6  # relative to the largest entry


def loaded(release: str, name: str) -> xsim.Model:
    return xsim.load(FOLDER / "plugins" / f"{name}.xml", rules=release)


@pytest.mark.parametrize(("release", "name"), CASES)
def test_forces_and_readings(release, name, x64):
    """At states on the way of the engine, as a batch."""
    model, found = loaded(release, name).freeze("body.*", "geom.*", "joint.*", "site.*"), RECORDED[release][name]["Euler"]
    start = jax.tree.map(lambda x: jnp.broadcast_to(x, (len(found["q"]), *x.shape)), xsim.init(model))
    state = dataclasses.replace(start, **{name: jnp.asarray(found[name]) for name in ("time", "q", "v", "act")})
    ctrl = jnp.asarray(found["ctrl"]) if model.nu else None
    data = by_numpy(lambda m, s: xsim.forward(m, s, ctrl))(model, state)
    for name in ("passive", "actuator_force", "act_rate", "a"):
        close(name, getattr(data, name), found[name], FORCES)
    close("sensors", data.sensor, found["sensor"], FORCES)


@pytest.mark.slow
@pytest.mark.parametrize(("release", "name"), [case for case in CASES if case[1] == "pid"])
def test_steps(release, name, x64):
    """Euler's method by the rules of 3.2, implicitfast by those of 4.0."""
    recorded, integrator = RECORDED[release][name], "implicitfast" if release == "4.0" else "Euler"
    model = xsim.with_integrator(loaded(release, name), INTEGRATORS[integrator])
    step, state = by_numpy(xsim.step), xsim.init(model)
    for ctrl in np.array(recorded["controls"]):
        state = step(model, state, ctrl if model.nu else None)
    close("end", np.concatenate([state.q, state.v, state.act]), recorded[integrator]["end"], STATES)


# ---- derivatives and batches ----------------------------------------------------------------------------------------------------


def agrees_with_differences(fn, x, step: float = 1e-5) -> None:
    """Assert that the gradient of a function of a finite array is that of central differences."""
    found, fn = by_numpy(jax.grad(fn))(x), by_numpy(fn)
    for place in np.argwhere(np.isfinite(x) & (np.asarray(x) != 0)):
        change = np.zeros(x.shape)
        change[tuple(place)] = step
        wanted = (fn(x + change) - fn(x - change)) / (2 * step)
        assert abs(found[tuple(place)] - wanted) < 1e-6 * max(1.0, abs(wanted)), (place, found[tuple(place)], wanted)


@pytest.mark.slow
def test_gradients_of_pid(x64):
    """Of where a few steps lead, with respect to gains and bounds."""
    model = xsim.load(FOLDER / "plugins" / "pid.xml")
    state = xsim.init(model).replace(time=jnp.ones(()), act=jnp.array([0.002, 0.1, -0.3, 0.1, 0.2, -0.1, 0.3, 0.2, 0.5]))
    weights = np.random.default_rng(0).normal(size=(2, model.nv))

    def end(gain):
        last, _ = xsim.rollout(model.replace({"actuator.gain": gain}), state, jnp.full((3, model.nu), 0.4))
        return (weights * jnp.stack([last.q, last.v])).sum()

    agrees_with_differences(end, model.get("actuator.gain"))


@pytest.mark.slow
def test_a_batch_of_gains(x64):
    """Each environment moves as with its gains alone."""
    model = xsim.load(FOLDER / "plugins" / "pid.xml")
    gains = model.get("actuator.gain") * jnp.array([1.0, 0.5])[:, None, None]
    step, ctrl = by_numpy(xsim.step), np.full(model.nu, 0.3)
    batch = step(model.replace({"actuator.gain": gains}), xsim.init(model), ctrl)
    for i in range(2):
        alone = step(model.replace({"actuator.gain": gains[i]}), xsim.init(model), ctrl)
        np.testing.assert_allclose(batch.v[i], alone.v, atol=1e-14)


CABLE = """<mujoco>
  <extension><plugin plugin="mujoco.elasticity.cable"/></extension>
  <worldbody>
    <composite type="cable" prefix="c" vertex="0 0 0 .1 0 0 .2 .03 0" initial="none">
      <plugin plugin="mujoco.elasticity.cable"><config key="twist" value="2e7"/><config key="bend" value="3e7"/></plugin>
      <geom type="box" size=".01 .02 .01"/>
    </composite>
  </worldbody>
</mujoco>"""


def test_gradients_and_batch_of_cable(x64):
    """Of the passive force, with respect to the configuration, the moduli and the sections; and a batch of moduli."""
    model = xsim.loads(CABLE, "mjcf")
    q, weights = np.array([0.9, 0.2, -0.3, 0.1]) / np.sqrt(0.95), np.random.default_rng(0).normal(size=3)

    def force(q, numbers, size):
        return xsim.passive(model.replace({"passive.numbers": numbers, "geom.size": size}), q, np.zeros(3))

    numbers, size = np.array(model.get("passive.numbers")), np.array(model.get("geom.size"))
    agrees_with_differences(lambda x: (weights * force(x, numbers, size)).sum(), q)
    agrees_with_differences(lambda x: (weights * force(q, 1e7 * x, size)).sum(), numbers / 1e7)
    agrees_with_differences(lambda x: (weights * force(q, numbers, 0.01 * x)).sum(), 100 * size)
    both = by_numpy(force)(q, np.stack([numbers, 2 * numbers]), size)
    np.testing.assert_allclose(both[1], 2 * both[0], rtol=1e-12)
    assert np.abs(both).min() > 1


BALL_ON_A_TABLE = """<mujoco>
  <extension><plugin plugin="mujoco.sensor.touch_grid"/></extension>
  <worldbody>
    <body pos="0 0 -0.1"><joint type="slide" axis="0 0 1" stiffness="500"/><geom type="box" size="0.5 0.5 0.1"/></body>
    <body pos="0 0 0.048"><freejoint/><geom size="0.05"/><site name="s" euler="10 20 30"/></body>
  </worldbody>
  <sensor>
    <plugin plugin="mujoco.sensor.touch_grid" objtype="site" objname="s">
      <config key="size" value="2 2"/><config key="fov" value="90 90"/><config key="nchannel" value="3"/>
    </plugin>
  </sensor>
</mujoco>"""


@pytest.mark.slow
def test_gradients_and_batch_of_touch_grid(x64):
    """With respect to gravity; and a batch of its values."""
    model = xsim.loads(BALL_ON_A_TABLE, "mjcf")
    state, weights = xsim.init(model), np.random.default_rng(0).normal(size=12)

    def reading(gravity):
        return xsim.sensors(model.replace({"option.gravity": gravity}), state)

    gravity = np.array([0.3, 0.2, -9.81])
    agrees_with_differences(lambda g: (weights * reading(g)).sum(), gravity)
    both = by_numpy(reading)(np.stack([gravity, 2 * gravity]))
    np.testing.assert_allclose(both, [by_numpy(reading)(g) for g in (gravity, 2 * gravity)], atol=1e-12)
    assert np.abs(both).max() > 1


# ---- reading --------------------------------------------------------------------------------------------------------------------

DECLARED = '<plugin plugin="mujoco.pid"><instance name="i"><config key="kp" value="2"/></instance></plugin>'
BODY = '<body name="b"><joint name="j"/><geom size=".1"/><site name="s"/></body>'


def read(elements: str = "", extension: str = DECLARED, rules: str = "3.2", body: str = BODY) -> xsim.ModelSpec:
    text = f"<mujoco><extension>{extension}</extension><worldbody>{body}</worldbody>{elements}</mujoco>"
    return xsim.parse_text(text, "mjcf", rules=rules)


def pid(attributes: str = 'plugin="mujoco.pid"', **config) -> str:
    inside = "".join(f'<config key="{key}" value="{value}"/>' for key, value in config.items())
    return f'<actuator><plugin joint="j" {attributes}>{inside}</plugin></actuator>'


def grid(attributes: str = 'objtype="site" objname="s"', **config) -> str:
    config = {"size": "2 3", "fov": "10 20"} | config
    inside = "".join(f'<config key="{key}" value="{value}"/>' for key, value in config.items() if value is not None)
    return f'<sensor><plugin plugin="mujoco.sensor.touch_grid" {attributes}>{inside}</plugin></sensor>'


GRID = '<plugin plugin="mujoco.sensor.touch_grid"/>'


@pytest.mark.parametrize(("elements", "message"), [
    (grid(size=None), "the config 'size' is missing"),
    (grid(size="2 2.5"), "found '2 2.5' for 'size'; allowed: integers >= 1"),
    (grid(fov="0 20"), "found '0 20' for 'fov'; allowed: numbers > 0, <= 180 and > 0, <= 90"),
    (grid(fov="20 91"), "found '20 91' for 'fov'"),
    (grid(gamma=2), "found '2' for 'gamma'; allowed: numbers >= 0, <= 1"),
    (grid(nchannel=7), "found '7' for 'nchannel'"),
    (grid('objtype="body" objname="b"'), "objtype: unknown value 'body'"),
    (grid("").replace(' >', '>'), "'objtype' is missing"),
    (grid().replace("touch_grid", "touch"), "unknown plugin 'mujoco.sensor.touch'; did you mean 'mujoco.sensor.touch_grid'"),
    (pid('plugin="mujoco.sensor.touch_grid"'), "the actuator needs the plugin 'mujoco.sensor.touch_grid', which xsim has for no actuator"),
])  # fmt: skip
def test_wrong_touch_grids_are_refused(elements, message):
    with pytest.raises(xsim.ParseError, match=message):
        read(elements, GRID)


def test_the_width_of_a_touch_grid():
    assert [read(grid(nchannel=n), GRID).sensors[0].dim for n in (0, 2, 6)] == [6, 12, 36]


def test_numbers_come_from_the_element_or_an_instance():
    (inline,) = read(pid(kp=2)).actuators
    (instance,) = read(pid('instance="i"')).actuators
    np.testing.assert_array_equal(inline.gain_params, instance.gain_params)
    assert inline.controller == instance.controller == "mujoco.pid" and inline.gain_params[0] == 2
    (both,) = read(pid('plugin="mujoco.pid" instance="i"')).actuators
    assert both.gain_params[0] == 2
    (unset,) = read(pid(slewmax="")).actuators
    assert unset.memory == ()


def test_models_with_plugins_are_written():
    spec = xsim.parse(FOLDER / "plugins" / "touch_grid.xml")
    again = xsim.parse_text(xsim.to_mjcf(spec), "mjcf")
    assert [(s.kind, s.config, s.object, s.cutoff) for s in spec.sensors] == [(s.kind, s.config, s.object, s.cutoff) for s in again.sensors]
    spec = xsim.parse(FOLDER / "plugins" / "pid.xml")
    again = xsim.parse_text(xsim.to_mjcf(spec), "mjcf")
    for a, b in zip(spec.actuators, again.actuators, strict=True):
        assert (a.controller, a.memory, a.dynamics, a.act_range) == (b.controller, b.memory, b.dynamics, b.act_range)
        np.testing.assert_array_equal(a.gain_params, b.gain_params)


def test_attributes_of_4_0():
    (actuator,) = read(pid('plugin="mujoco.pid" armature="0.1" damping="0.2" delay="0.01" nsample="3"', kp=1), rules="4.0").actuators
    assert (actuator.armature, actuator.damping) == (0.1, 0.2) and actuator.history is not None and actuator.history.delay == 0.01


ROD = '<geom type="capsule" size=".1" fromto="0 0 0 1 0 0"/>'
CABLES = '<plugin plugin="mujoco.elasticity.cable"><instance name="c"><config key="bend" value="1"/></instance></plugin>'


def test_bodies_of_an_instance_belong_together():
    joint = '<joint type="ball"/>'
    chain = f'<body name="a">{ROD}<plugin instance="c"/><body pos="1 0 0">{joint}{ROD}<plugin instance="c"/></body></body>'
    alone = f'<body name="b">{ROD}<plugin plugin="mujoco.elasticity.cable"><config key="flat" value="true"/></plugin></body>'
    spec = read(extension=CABLES, body=chain + alone)
    assert [(p.name, p.bodies, p.config["bend"], p.config["flat"]) for p in spec.passive] == [
        ("c", (0, 1), (1.0,), (0.0,)), ("", (2,), (0.0,), (1.0,)),
    ]  # fmt: skip
    changed = xsim.with_numbers(spec, xsim.build(spec).replace({"passive.numbers[c]": np.array([0.0, 7.0, 0.0, 0.0])}))
    assert changed.passive[0].config["bend"] == (7.0,)
    again = xsim.parse_text(xsim.to_mjcf(spec), "mjcf")
    assert [(p.bodies, p.config) for p in again.passive] == [(p.bodies, p.config) for p in spec.passive]


@pytest.mark.parametrize(("body", "message"), [
    (f'<body><plugin instance="c"><config key="bend" value="2"/></plugin>{ROD}</body>', "found in an element that names an instance"),
    (f'<body><plugin plugin="mujoco.pid"/>{ROD}</body>', "'mujoco.pid' is not declared"),
    (f'<body><plugin plugin="mujoco.elasticity.cable"><config key="flat" value="yes"/></plugin>{ROD}</body>', "value: unknown value 'yes'"),
    (f'<body><plugin plugin="mujoco.elasticity.cable"><config key="bend" value="-1"/></plugin>{ROD}</body>', "found '-1' for 'bend'"),
    ('<plugin instance="c"/>', "found in the world; allowed: one in a body"),
    ('<composite type="cable" curve="s" count="3"><plugin plugin="mujoco.pid"/><geom type="capsule" size=".1"/></composite>',
     "'mujoco.pid' is not declared"),
])  # fmt: skip
def test_wrong_plugins_of_bodies_are_refused(body, message):
    with pytest.raises(xsim.ParseError, match=message):
        read(extension=CABLES, body=body)


@pytest.mark.parametrize(("inner", "message"), [
    ('</body><body pos="1 0 0"><joint type="ball"/>' + ROD, "is not in 'a'; allowed: a chain of bodies"),
    ('<body name="x"><joint type="ball"/><geom size=".1"/>', "the first geom of 'x' is 'sphere'; allowed: capsule, cylinder, box"),
])  # fmt: skip
def test_bodies_that_are_no_cable_are_refused(inner, message):
    end = "</body></body>" if inner.startswith("<body") else "</body>"
    spec = read(extension=CABLES, body=f'<body name="a">{ROD}<plugin instance="c"/>{inner}<plugin instance="c"/>{end}')
    with pytest.raises(ValueError, match=message):
        xsim.build(spec)


WRONG = [
    (pid('plugin="mujoco.pid"', kq=1), "unknown key 'kq'; allowed: kp, ki, kd, imax, slewmax"),
    (pid('plugin="mujoco.pid"', kp="x"), "<config>: value: 'x' is not a number"),
    (pid('plugin="mujoco.pid"', kp="1 2"), "found 2 numbers"),
    (pid('plugin="mujoco.pid"', imax=-1), "found '-1' for 'imax'; allowed: numbers >= 0"),
    (pid('plugin="mujoco.pid"', slewmax=-1), "found '-1' for 'slewmax'"),
    (pid('plugin="mujoco.pid"', kp=1).replace("</plugin>", '<config key="kp" value="2"/></plugin>'), "second value of 'kp'"),
    (pid('plugin="mujoco.pid"', ki=1), "actdim: attribute is missing; allowed: 1, for the activations integral"),
    (pid('plugin="mujoco.pid" actdim="1" dyntype="filter"', ki=1), "actdim: found 1; allowed: 2, for the activations integral, filter"),
    (pid('plugin="mujoco.pid" dyntype="muscle"'), "dyntype: unknown value 'muscle'"),
    (pid('plugin="mujoco.pid" actrange="0 1"'), 'actrange acts with dyntype "none"'),
    (pid(""), "plugin and instance are missing"),
    (pid('instance="k"'), "unknown plugin 'k'"),
    (pid('instance="i"', kd=1), "found in an element that names an instance; allowed: in the instance"),
    (pid('instance="i" plugin="mujoco.sensor.touch_grid"'), "for an instance of 'mujoco.pid'"),
    (pid('plugin="mine"'), "unknown plugin 'mine'; allowed: mujoco.pid.*xsim.registry.ACTUATOR_CONTROLLERS"),
]


@pytest.mark.parametrize(("elements", "message"), WRONG)
def test_wrong_plugins_are_refused(elements, message):
    with pytest.raises(xsim.ParseError, match=message) as error:
        read(elements)
    assert error.value.line == 1


def test_an_undeclared_plugin_is_refused():
    with pytest.raises(xsim.ParseError, match="'mujoco.pid' is not declared; allowed: with <extension>"):
        read(pid(), extension="")


def test_what_4_0_removed_is_refused():
    with pytest.raises(xsim.ParseError, match="'mujoco.elasticity.cable' is not in MuJoCo 4.0; allowed: .*rules of 3.2"):
        read(extension='<plugin plugin="mujoco.elasticity.cable"/>', rules="4.0")
