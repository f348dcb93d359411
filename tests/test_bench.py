"""The benchmark: a small run, the shape of its JSON, missing engines, interruption, and what it tells other engines."""

import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xsim
from xsim import models
from xsim.bench import __main__ as bench
from xsim.bench import engines, mechanism, report, scaling
from xsim.bench.compare import Column, Settings
from xsim.bench.measure import compile_program, kernels_per_step, timed
from xsim.poses import rotation_matrix

SMALL = ["--model", "pendulum", "--batch", "3", "--steps", "4", "--repeat", "2", "--quiet"]
# An interpreter without any engine: -S leaves the installed packages out, -I the environment.
BARE = f"#!/bin/sh\nexec {sys.executable} -I -S \"$@\"\n"


@pytest.fixture
def bare_python(tmp_path):
    file = tmp_path / "python"
    file.write_text(BARE)
    file.chmod(0o755)
    return str(file)


@pytest.mark.slow
def test_measures_itself_and_reports_missing_engines(tmp_path, capsys, bare_python):
    out = tmp_path / "bench.json"
    code = bench.main([*SMALL, "--freeze", "geom.*,body.*", "--vs", "ring,mujoco", "--peer-python", bare_python, "--json", str(out)])
    text = capsys.readouterr().out
    assert code == 0
    assert "steps/s" in text and "gradient: kernels per step" in text and "model shared" in text
    data = json.loads(out.read_text())
    assert data["complete"] is True
    (run,) = data["runs"]
    assert run["settings"]["batch"] == 3
    assert list(run["engines"]) == ["xsim", "xsim frozen", "ring", "mujoco"]
    for name in ("xsim", "xsim frozen"):
        found = run["engines"][name]
        assert found["failed"] == {}
        assert [len(found["seconds"][w]) for w in ("forward", "gradient")] == [2, 2]
        keys = ("steps_per_s", "gradient_steps_per_s", "gradient_over_forward", "trace_s", "compile_s", "bytes_per_env", "kernels_per_step")
        assert all(found[k] > 0 for k in keys), found
    assert run["engines"]["xsim frozen"]["deviation"] < 1e-5
    for name in ("ring", "mujoco"):
        reason = run["engines"][name]["failed"]["start"]
        assert "numpy" in reason, reason
        assert run["engines"][name]["steps_per_s"] is None
        assert reason in text


@pytest.mark.slow
def test_interpreter_that_is_not_there_is_reported(capsys):
    assert bench.main([*SMALL, "--no-gradient", "--repeat", "1", "--vs", "mjx", "--peer-python", "/no/such/python"]) == 0
    out = capsys.readouterr().out
    assert "start failed: cannot start /no/such/python" in out
    assert "gradient" not in out


@pytest.mark.slow
def test_the_other_engines_may_have_more_threads(tmp_path, capsys):
    """An interpreter that only says what it was given."""
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\necho "threads <$NPROC>" >&2\nexit 1\n')
    python.chmod(0o755)
    for more, count in (([], os.environ.get("NPROC", "")), (["--peer-threads", "4"], "4")):
        assert bench.main([*SMALL, "--no-gradient", "--vs", "mjx", "--peer-python", str(python), *more]) == 0
        assert f"threads <{count}>" in capsys.readouterr().out


def test_time_limit_is_kept_and_xsims_failure_is_the_exit_status(capsys):
    assert bench.main([*SMALL, "--timeout", "0.01"]) == 1
    assert "no answer within 0.01 s (start); stopped" in capsys.readouterr().out


def test_scaling_draws_a_curve(tmp_path):
    pytest.importorskip("matplotlib")
    png = tmp_path / "curve.png"
    runs = []
    for batch in bench.sweep(8):
        column = Column("xsim", "xsim", seconds={"forward": [0.1], "gradient": [0.2]})
        runs.append((Settings("chain", batch=batch), [column]))
    assert [s.batch for s, _ in runs] == [1, 4, 8]
    report.curve(runs, png)
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.nightly
def test_scaling_by_devices(tmp_path, capsys):
    """Of cores, in a process each; a machine with one has nothing to compare."""
    pytest.importorskip("matplotlib")
    png, out = tmp_path / "scaling.png", tmp_path / "scaling.json"
    arguments = ["--scaling", "devices", "--no-gradient", "--picture", str(png), "--json", str(out)]
    assert bench.main([*SMALL, *arguments]) == 0
    assert png.read_bytes().startswith(b"\x89PNG") and "1 core, strong" in capsys.readouterr().out
    first, *others = json.loads(out.read_text())["runs"]
    assert first["scaling"] == "strong" and first["devices"] == 1 and first["efficiency"]["forward"] == 1.0
    for run in others:
        assert run["settings"]["batch"] == 3 * (1 if run["scaling"] == "strong" else run["devices"])
        assert run["efficiency"]["forward"] > 0 and run["efficiency"]["gradient"] is None
    assert scaling.counts(1) == [1] and scaling.counts(6) == [1, 2, 4, 6] and scaling.counts(8) == [1, 2, 4, 8]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_ends_the_workers_and_prints_what_there_is():
    arguments = [x for x in SMALL if x != "--quiet"]
    command = [sys.executable, "-m", "xsim.bench", *arguments, "--repeat", "1000000"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as process:
        pid = None
        for line in process.stderr:
            if "(process " in line:
                pid = int(line.split("(process ")[1].split(")")[0])
            if "run 2 of" in line:
                break
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "steps/s" in out and "interrupted" in out
    assert "Traceback" not in err
    assert _gone(pid)


def _gone(pid: int) -> bool:
    for _ in range(50):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


# ---- parts -------------------------------------------------------------------------------------------------------------------


def test_kernels_of_a_step_are_those_in_the_loop_that_runs_so_often():
    def once(x):
        return jax.lax.scan(lambda c, _: (jnp.cumsum(jnp.sin(c) @ c, 0), None), x, None, length=7)[0]

    program = compile_program(once, (jnp.ones((5, 5)),), batch=1, steps=7)
    kernels = program.cost["kernels"]
    assert kernels and 1 <= sum(kernels.values()) < 40
    whole = compile_program(once, (jnp.ones((5, 5)),), batch=1, steps=6).cost["kernels"]
    assert whole and sum(whole.values()) * 6 >= sum(kernels.values()) * 7  # the loop is a part of the program
    seconds, result = timed(program)
    assert seconds > 0 and result.shape == (5, 5)


def test_kernels_in_a_text():
    text = """
%fused (p: f32[4]) -> f32[4] {
  %p = f32[4]{0} parameter(0)
  ROOT %s = f32[4]{0} sine(%p)
}

%inner (a: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a = (s32[], f32[4]{0}) parameter(0)
  %d = f32[4]{0} dot(%a, %a)
  ROOT %t = (s32[], f32[4]{0}) tuple(%a, %d)
}

%test (a: (s32[], f32[4])) -> pred[] {
  ROOT %c = pred[] compare(%a, %a), direction=LT
}

%body (a: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a = (s32[], f32[4]{0}) parameter(0)
  %f = f32[4]{0} fusion(%a), kind=kLoop, calls=%fused
  %w = (s32[], f32[4]{0}) while(%a), condition=%test, body=%inner, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %t = (s32[], f32[4]{0}) tuple(%a, %f)
}

ENTRY %main (a: (s32[], f32[4])) -> (s32[], f32[4]) {
  %a = (s32[], f32[4]{0}) parameter(0)
  ROOT %w = (s32[], f32[4]{0}) while(%a), condition=%test, body=%body, backend_config={"known_trip_count":{"n":"20"}}
}
"""
    assert kernels_per_step(text, 20) == {"compare": 3, "dot": 3, "fusion": 1}
    assert kernels_per_step(text, 4) == {"compare": 20, "dot": 15, "fusion": 5}  # all 20 turns, a quarter each
    assert kernels_per_step("", 4) is None


def test_mjcf_merges_fixed_bodies_and_keeps_mass():
    model = xsim.load(models.path("chain"))
    written = mechanism.mjcf(model)
    bodies = ElementTree.fromstring(written["xml"]).findall(".//body")
    assert [b.get("name") for b in bodies] == ["upper", "middle", "lower", "tip"]
    mass = sum(float(i.get("mass")) for b in bodies for i in b.findall("inertial"))
    assert mass == pytest.approx(float(jnp.sum(xsim.body_inertia(model)[0])), rel=1e-6)
    assert [j[1:] for j in written["joints"]] == [(0, 0), (4, 3), (5, 4), (6, 5), (7, 6)]


def _about_origin(mass, com, inertia, pos, turn):
    """Moments of a body about the world's origin: mass, first and second moment."""
    c = pos + turn @ com
    return mass, mass * c, turn @ inertia @ turn.T + mass * (c @ c * np.eye(3) - np.outer(c, c))


@pytest.mark.parametrize("name", ["chain", "two_links_orthogonal_1", "two_links_orthogonal_2", "gripper"])
def test_mjcf_has_xsims_moments_at_the_neutral_configuration(name, x64):
    """Also where the joint frame is not the body frame, and where bodies hang on bodies fixed to others."""
    model = xsim.load(models.path(name))
    found = [0.0, np.zeros(3), np.zeros((3, 3))]

    def visit(element, pos, turn):
        for child in element.findall("body"):
            here = pos + turn @ np.array(child.get("pos").split(), float)
            there = turn @ rotation_matrix(np.array(child.get("quat").split(), float))
            part = child.find("inertial")
            six = np.array(part.get("fullinertia").split(), float)
            com = np.array(part.get("pos").split(), float)
            for i, x in enumerate(_about_origin(float(part.get("mass")), com, mechanism._square(six), here, there)):
                found[i] = found[i] + x
            visit(child, here, there)

    visit(ElementTree.fromstring(mechanism.mjcf(model)["xml"]).find("worldbody"), np.zeros(3), np.eye(3))
    data = xsim.forward(model, xsim.init(model, jnp.asarray(model.topology.neutral)))
    wanted = [0.0, np.zeros(3), np.zeros((3, 3))]
    for mass, com, six, pos, quat, body in zip(*xsim.body_inertia(model), data.pos, data.quat, model.topology.bodies, strict=True):
        if body.link >= 0:
            part = _about_origin(float(mass), np.asarray(com), mechanism._square(np.asarray(six)), np.asarray(pos),
                                 rotation_matrix(np.asarray(quat)))  # fmt: skip
            wanted = [a + b for a, b in zip(wanted, part, strict=True)]
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_quaternion_of_a_matrix_is_the_inverse():
    rng = np.random.default_rng(0)
    for q in (*rng.normal(size=(20, 4)), np.array([0.0, 0, 1, 0]), np.array([1.0, 0, 0, 0])):
        m = rotation_matrix(q)
        np.testing.assert_allclose(rotation_matrix(mechanism._quaternion(m)), m, atol=1e-12)


def test_what_a_format_cannot_say_is_refused():
    described = mechanism.describe(xsim.load(models.path("zoo")), str(models.path("zoo")))
    assert "refused" in described["mjcf"]
    assert "cor" in described["xxy"]["refused"]
    assert "x_xy" in mechanism.describe(xsim.load(models.path("chain")), None)["xxy"]["refused"]


def test_mjcf_files_go_to_peers_as_they_are(tmp_path):
    """With the controls that push them and the integrator; other engines are told why they cannot have it."""
    path = models.path("muscle_arm")
    model = xsim.load(path)
    pushed = mechanism.push(model, 3)
    assert pushed.kind == "ctrl" and pushed.values.shape == (3, 4)
    assert mechanism.push(xsim.load(models.path("chain")), 3).kind == "tau"
    described = mechanism.describe(model, str(path))
    assert described["mjcf"] == {"file": str(path), "integrator": ("implicitfast", "enable")}
    np.savez(tmp_path / "start.npz", q=mechanism.start(model, 3), ctrl=pushed.values)
    (tmp_path / "mechanism.json").write_text(json.dumps(described))
    begin = engines.read_start({"folder": str(tmp_path)})
    np.testing.assert_array_equal(begin.push, pushed.values)
    with pytest.raises(engines.Unsupported, match="actuators"):
        _ = begin.tau


@pytest.mark.slow
def test_the_program_is_made_while_its_time_is_measured(tmp_path):
    """What is said of the constraints at the end, which needs the same program, comes after it."""
    scene, out = tmp_path / "ball.xml", tmp_path / "bench.json"
    ball = "<body pos='0 0 .1'><freejoint/><geom size='.1'/></body>"
    scene.write_text(f"<mujoco><worldbody><geom type='plane' size='1 1 1'/>{ball}</worldbody></mujoco>")
    options = ["--constraints", "--no-gradient", "--batch", "3", "--steps", "4", "--repeat", "1", "--quiet", "--json", str(out)]
    assert bench.main(["--model", str(scene), *options]) == 0
    found = json.loads(out.read_text())["runs"][0]["engines"]["xsim"]
    assert found["trace_s"] + found["compile_s"] > 0.5
    assert "contacts (mean)" in found["about"]["note"]


def test_objects_are_near_their_start_and_not_pushed():
    """Free bodies with nothing on them; a free body that carries another one is a robot."""
    body = "<body name='{}'><freejoint/><geom size='0.1'/>{}</body>"
    arm = "<body><joint/><geom size='0.1'/></body>"
    text = "<mujoco><worldbody>" + body.format("ball", "") + body.format("robot", arm) + "</worldbody></mujoco>"
    model = xsim.loads(text, "mjcf")
    assert (np.asarray(mechanism.push(model, 64).values) != 0).any(0).tolist() == [False] * 6 + [True] * 7
    positions = np.asarray(mechanism.start(model, 64))[:, [0, 1, 2, 7, 8, 9]].std(0)
    np.testing.assert_allclose(positions, [mechanism.NEAR] * 3 + [0.2] * 3, rtol=0.3)


def test_disagreement_of_engines_is_the_exit_status(monkeypatch):
    column = Column("mjx", "mjx", deviation=0.1)
    monkeypatch.setattr(bench, "compare", lambda settings, columns, say: columns.append(column))
    assert bench.main([*SMALL, "--agree", "0.2"]) == 0
    assert bench.main([*SMALL, "--agree", "0.01"]) == 1


@pytest.mark.parametrize("name", ["chain", "gripper"])
def test_mujoco_agrees_with_xsim(name):
    """Where MuJoCo is installed its rollout of the mechanism ends where xsim's does."""
    mujoco = pytest.importorskip("mujoco")
    model = xsim.with_constraints(xsim.load(models.path(name)), ())
    written = mechanism.mjcf(model)
    peer = mujoco.MjModel.from_xml_string(written["xml"])
    peer.dof_damping[:], peer.dof_armature[:] = written["damping"], written["armature"]
    data = mujoco.MjData(peer)
    q, tau = mechanism.start(model, 1), mechanism.push(model, 1).values
    data.qpos[:], data.qfrc_applied[:] = q[0], tau[0]
    for _ in range(20):
        mujoco.mj_step(peer, data)
    taus = jnp.broadcast_to(tau, (20, *tau.shape))
    np.testing.assert_allclose(xsim.rollout(model, xsim.init(model, q), taus=taus)[0].q[0], data.qpos, atol=1e-4)
