"""What a user types: names of elements and of numbers, models by name, short texts, errors in one sentence, commands."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import __main__ as command
from xsim.envs import TASKS

ARM = """
<mujoco model="arm">
  <worldbody>
    <body name="upper"><joint name="shoulder" type="ball"/><geom size="0.1"/>
      <body name="lower" pos="0 0 1">
        <joint name="elbow" axis="0 1 0" damping="2"/><geom size="0.1"/><geom size="0.2"/><site name="imu"/>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="m" joint="elbow"/><general name="slow" joint="elbow" dyntype="filter"/></actuator>
  <sensor><clock name="time"/><gyro name="turn" site="imu"/></sensor>
  <keyframe><key name="bent" qpos="1 0 0 0 1"/></keyframe>
</mujoco>"""


@pytest.fixture(scope="module")
def arm():
    return xsim.loads(ARM, "mjcf")


def test_names_and_addresses(arm):
    assert arm.body_names == ("upper", "lower") and arm.joint_names == ("shoulder", "elbow") and arm.site_names == ("imu",)
    assert arm.actuator_names == arm.ctrl_names == ("m", "slow") and arm.sensor_names == ("time", "turn") and arm.key_names == ("bent",)
    assert arm.q_slice("elbow") == slice(4, 5) and arm.v_slice("shoulder") == slice(0, 3)
    assert arm.sensor_slice("turn") == slice(1, 4) and arm.act_slice("slow") == slice(0, 1) and arm.act_slice("m") == slice(0, 0)
    assert arm.ctrl_index("slow") == arm.actuator_index("slow") == 1 and arm.body_index("lower") == 1 and arm.site_index("imu") == 0
    state = xsim.init(arm, key="bent", v=jnp.array([0.0, 0, 0, 3.0]))
    assert state.q[..., arm.q_slice("elbow")] == 1.0
    np.testing.assert_allclose(xsim.sensors(arm, state)[..., arm.sensor_slice("turn")], [0, 3, 0], atol=1e-6)


@pytest.mark.parametrize(("address", "message"), [
    (lambda m: m.q_slice("elbo"), "no joint 'elbo' (did you mean 'elbow'?); joints: shoulder, elbow"),
    (lambda m: m.sensor_slice("gyro"), "no sensor 'gyro'; sensors: time, turn"),
    (lambda m: m.get("dof.dampin"), "no leaf 'dof.dampin' (did you mean 'dof.damping'?); leaves of dof: dof.damping, "),
    (lambda m: m.get("dof.damping[elbow]"), "no row is named 'elbow'"),
    (lambda m: m.get("body.mass[upper]"), "this body's mass is in its geoms: geom.mass[upper] or geom.density[upper]"),
])  # fmt: skip
def test_unknown_names(arm, address, message):
    with pytest.raises(KeyError) as error:
        address(arm)
    assert message in str(error.value).replace('\\"', '"')


def test_numbers_by_name(arm):
    """A row has no axis of rows where one row has the name; else it has one."""
    assert arm.get("dof.damping[lower]") == 2.0
    assert arm.get("geom.size[lower]").shape == (2, 3) and arm.get("geom.size[upper]").shape == (3,)
    assert arm.get("geom.size[lower, 0]").tolist() == pytest.approx([0.1, 0.2])
    changed = arm.replace({"dof.damping[lower]": 3.0, "geom.size[lower, 0]": 0.3})
    assert changed.get("dof.damping").tolist() == [0, 0, 0, 3] and changed.get("geom.size")[:, 0].tolist() == pytest.approx([0.1, 0.3, 0.3])
    batch = changed.replace({"dof.damping[lower]": jnp.arange(5.0)})
    assert batch.get("dof.damping").shape == (5, 4) and batch.get("dof.damping[lower]").tolist() == [0, 1, 2, 3, 4]
    again = batch.replace({"dof.damping[upper]": jnp.ones((5, 3))})
    assert again.get("dof.damping")[2].tolist() == [1, 1, 1, 2]
    q, v = xsim.init(arm).q, jnp.ones(4)
    assert jax.grad(lambda x: xsim.passive(arm.replace({"dof.damping[lower]": x}), q, v).sum())(2.0) == -1.0
    with pytest.raises(ValueError, match=r"geom.size\[lower\]: shape \(4,\) does not end in \(2, 3\)"):
        arm.replace({"geom.size[lower]": jnp.ones(4)})
    with pytest.raises(ValueError, match="dof.damping is frozen"):
        arm.freeze("dof.damping").replace({"dof.damping[lower]": 1.0})
    assert arm.freeze("dof.damping").get("dof.damping[lower]") == 2.0


def test_texts_are_short(arm):
    assert repr(arm) == "Model('arm': 2 bodies, nq 5, nv 4, nu 2, implicit_damping, dt 0.002 s)"
    many = arm.replace({"dof.damping": jnp.ones((4096, 4))})
    assert repr(many).endswith("by environment: dof.damping)")
    state = xsim.init(many)
    assert repr(state) == "State(q (4096, 5), v (4096, 4), time (4096,), flags (4096,), act (4096, 1))"
    data = jax.eval_shape(lambda: xsim.forward(arm, xsim.init(arm)))
    assert repr(data).startswith("Data(pos (2, 3), quat (2, 4), ") and len(repr(data)) < 600
    env = xsim.make_env("pendulum_swingup", num_envs=3)
    assert repr(env) == "Env('pendulum': 3 environments, actions (1,), observations (5,), episodes of 500 steps)"


def test_bundled_models_by_name():
    assert xsim.load("pendulum").body_names == xsim.load(xsim.models.path("pendulum")).body_names
    assert not [name for name in xsim.models.names() if name.startswith("_")]


@pytest.mark.parametrize(("call", "error", "message"), [
    (lambda m: xsim.step("pendulum", None), TypeError, "step needs a Model, found str: xsim.load"),
    (lambda m: xsim.init("pendulum"), TypeError, "init needs a Model, found str"),
    (lambda m: xsim.make_env("ant", num_env=3), TypeError, "make_env has no argument 'num_env' .did you mean 'num_envs'"),
    (lambda m: xsim.make_env("ant", max_step=3), TypeError, "make_env has no argument 'max_step' .did you mean 'max_steps'"),
    (lambda m: xsim.make_env("pendulum_swingup").reset(0), TypeError, "reset needs a random key, jax.random.key.0."),
    (lambda m: xsim.step(m.replace({"dof.damping": jnp.ones((5, 4))}), xsim.init(m, q=jnp.ones((3, 5)))), ValueError,
     r"batch shapes that do not fit: \(3,\) of arguments; \(5,\) of dof.damping"),
    (lambda m: m.replace({"dof.damping": 1.0}), ValueError, r"does not end in \(4,\); 'dof.damping\[\*\]' sets all rows to one number"),
    (lambda m: xsim.rollout(m, xsim.init(m), jnp.zeros(m.nu)), ValueError, r"ctrls must have shape \(steps, \*batch, 2\), found \(2,\)"),
    (lambda m: xsim.rollout(m, xsim.init(m), taus=jnp.zeros(m.nv)), ValueError, r"taus must have shape \(steps, \*batch, 4\)"),
    (lambda m: xsim.rollout(m, xsim.init(m), steps=2.5), ValueError, "steps must be a whole number that is not negative, found 2.5"),
    (lambda m: xsim.rollout(m, xsim.init(m), steps=-1), ValueError, "found -1"),
    (lambda m: xsim.jacobian(m, xsim.init(m).q, 0, (0.0, 1.0)), ValueError, r"point must have shape \(3,\), found \(2,\)"),
    (lambda m: xsim.step(m, xsim.init(m).q), TypeError, "step needs a State, found ArrayImpl: xsim.init"),
    (lambda m: xsim.step(m, xsim.init(xsim.load("pendulum"))), ValueError, r"state.q must have shape \(\*batch, 5\), found \(2,\)"),
    (lambda m: xsim.step(m, xsim.init(m).replace(v=jnp.zeros(4, int))), TypeError, "state.v must have a floating type, found int32"),
    (lambda m: xsim.contacts(m, xsim.init(m).q), TypeError, "contacts needs a State, found ArrayImpl"),
    (lambda m: xsim.with_constraints(m, "contacts"), ValueError, "unknown kind of constraint 'contacts' .did you mean 'contact'"),
    (lambda m: xsim.load("half_cheeta"), xsim.ParseError, "half_cheeta: no file and no bundled model .did you mean 'half_cheetah'"),
    (lambda m: xsim.write(xsim.parse_text(ARM, "mjcf"), "arm.sdf"), ValueError, "arm.sdf: files .sdf are read, not written"),
    (lambda m: xsim.with_integrator(m, "RK4"), ValueError, "unknown integrator 'RK4' .did you mean 'rk4'"),
])  # fmt: skip
def test_errors_in_one_sentence(arm, call, error, message):
    with pytest.raises(error, match=message):
        call(arm)


@pytest.mark.parametrize("numbers", [list, np.array, jnp.array])
def test_whole_numbers_are_coordinates(arm, numbers):
    q, v = numbers([1, 0, 0, 0, 1]), numbers([1, 2, 0, -1])
    exact = [jnp.asarray(x, jnp.float32) for x in (q, v)]
    for query in (xsim.energy, xsim.bias, xsim.passive, lambda m, q, _: xsim.mass_matrix(m, q), lambda m, q, _: xsim.kinematics(m, q),
                  lambda m, q, v: xsim.forward_dynamics(m, q, v), lambda m, q, v: xsim.inverse_dynamics(m, q, v, v),
                  lambda m, q, v: xsim.integrate(m, q, v), lambda m, q, _: xsim.jacobian(m, q, 0, (1, 2, 0))):  # fmt: skip
        for found, wanted in zip(jax.tree.leaves(query(arm, q, v)), jax.tree.leaves(query(arm, *exact)), strict=True):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


def test_commands(tmp_path, capsys):
    page = tmp_path / "page.html"
    assert command.main(["view", "pendulum", "--steps", "0", "--no-open", "--output", str(page)]) == 0
    assert page.is_file() and "pendulum: 2 bodies" in capsys.readouterr().out
    for name in command.COMMANDS:
        with pytest.raises(SystemExit) as end:
            command.main([name, "--help"])
        assert end.value.code == 0
    text = capsys.readouterr().out
    assert all(task in text for task in TASKS)
