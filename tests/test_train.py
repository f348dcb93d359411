"""Training: a run that is resumed equals one that was not stopped, something is learned, settings that are wrong are refused."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import os
import shutil
import sys
import time
from types import ModuleType, SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest

from xsim.envs import make_env
from xsim.train import Config, Learner, configure, evaluate, load, loggers, train
from xsim.train.__main__ import main
from xsim.train.checkpoints import _read, _shapes, _stored, checkpoints, restore, restore_newest
from xsim.train.ppo import Algorithm, Inputs, Sample, Statistics
from xsim.train.run import _plot, _read_rows

SMALL = Config(
    "pendulum_balance", steps=32 * 16 * 48, num_envs=32, unroll=16, minibatches=4, epochs=8, learning_rate=3e-3, hidden=(32,),
    deviation=1.0, evaluate_envs=8, checkpoint_every=10, env={"max_steps": 200},
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run from beginning to end: its folder and what `train` returned."""
    out = tmp_path_factory.mktemp("whole")
    return out, train(SMALL, out, progress=False)


def _numbers(checkpoint):
    """The arrays of a checkpoint by name."""
    shapes = {name: _stored(jax.ShapeDtypeStruct(x.shape, x.dtype)) for name, x in _shapes(checkpoint).items()}
    return jax.tree.map(np.asarray, _read(checkpoint, shapes))


def _rows(folder):
    with open(folder / "returns.csv", newline="") as lines:
        return [{k: x for k, x in row.items() if k != "seconds"} for row in csv.DictReader(lines)]


@pytest.mark.nightly
def test_resumed_run_is_the_same(whole, tmp_path):
    out, result = whole
    first = train(SMALL, tmp_path, progress=False, stop=23)
    assert "return" not in first and checkpoints(tmp_path)[-1].name.endswith("0000023")
    resumed = train(SMALL, tmp_path, resume=True, progress=False)
    assert [p.name for p in checkpoints(tmp_path)] == ["checkpoint-0000030", "checkpoint-0000040", "checkpoint-0000048"]
    assert resumed["return"] == result["return"] and _rows(tmp_path) == _rows(out)
    a, b = (_numbers(checkpoints(folder)[-1]) for folder in (out, tmp_path))
    assert a.keys() == b.keys() and len(a) > 30
    for name in a:
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.mark.slow
def test_learns(whole):
    out, result = whole
    early = [row["return"] for row in result["curve"][:10] if not math.isnan(row["return"])]
    assert result["return"] > 3 * np.mean(early) and result["return"] > 100
    assert json.loads((out / "result.json").read_text())["return"] == result["return"]
    assert [float(r["steps"]) for r in _rows(out)] == [512.0 * i for i in range(1, 49)]
    if (out / "returns.png").exists():
        assert (out / "returns.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


@pytest.mark.slow
def test_the_policy_of_a_run(whole, tmp_path, capsys):
    """Loaded, it acts as in training; exported, it is a program of its own; played, it writes a page."""
    out, result = whole
    policy = load(out)
    algorithm = Algorithm(SMALL, make_env(SMALL.task, num_envs=SMALL.num_envs, seed=SMALL.seed, **SMALL.env))
    learner = restore_newest(out, algorithm.shapes())
    obs = jnp.asarray(np.random.default_rng(0).normal(size=(7, policy.observations)), jnp.float32)
    wanted = algorithm.act(learner, obs)
    np.testing.assert_allclose(policy(obs), wanted, atol=1e-6)
    np.testing.assert_allclose(jax.jit(jax.vmap(lambda policy, x: policy(x), (None, 0)))(policy, obs), wanted, atol=1e-5)
    exported = policy.export()
    np.testing.assert_allclose(exported.call(obs), wanted, atol=1e-6)
    assert exported.mlir_module_serialized.startswith(b"ML\xefR")  # the first bytes of MLIR bytecode
    assert "TrainedPolicy(observations" in repr(policy)
    assert main(["play", str(out), "--envs", "2", "--steps", "5", "--output", str(tmp_path / "play.html")]) == 0
    assert (tmp_path / "play.html").stat().st_size > 10_000 and "return " in capsys.readouterr().out
    assert main(["play", str(tmp_path)]) == 1 and "config.json is missing" in capsys.readouterr().err


@pytest.mark.slow
def test_folders(whole, tmp_path, capsys):
    """A run is neither overwritten nor resumed from nothing or with other settings."""
    out, _ = whole
    with pytest.raises(ValueError, match="holds a run: resume it, or choose another folder"):
        train(SMALL, out)
    with pytest.raises(ValueError, match="no checkpoint in"):
        train(SMALL, tmp_path, resume=True)
    for arguments, message in (
        (["--resume", "--out", str(tmp_path / "nothing")], "nothing to resume"),
        (["--resume", "--out", str(out), "--seed", "3"], "only --steps may change"),
        (["--resume"], "--resume needs the task or --out"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err
    other = Algorithm(Config("pendulum_balance", num_envs=16), make_env("pendulum_balance", num_envs=16))
    with pytest.raises(ValueError, match="does not fit these settings"):
        restore(checkpoints(out)[-1], other.shapes())


@pytest.fixture
def interrupted(whole, tmp_path):
    """A copy of the complete run as it was after 40 iterations: its folder, and the checkpoints of 30 and 40."""
    folder = tmp_path / "run"
    shutil.copytree(whole[0], folder)
    files = checkpoints(folder)
    shutil.rmtree(files[-1])
    return folder, files[:-1]


def _damaged(checkpoint, change):
    """Change the contents of all files of a checkpoint."""
    for file in [x for x in checkpoint.rglob("*") if x.is_file()]:
        file.write_bytes(change(file.read_bytes()))


BROKEN = {
    "no files": lambda checkpoint: [shutil.rmtree(checkpoint), checkpoint.mkdir()],
    "no numbers": lambda checkpoint: [shutil.rmtree(x) for x in checkpoint.rglob("d")],
    "empty": lambda checkpoint: _damaged(checkpoint, lambda data: b""),
    "cut off": lambda checkpoint: _damaged(checkpoint, lambda data: data[: len(data) // 2]),
    "cut off at the end": lambda checkpoint: _damaged(checkpoint, lambda data: data[:-1]),
    "zeros": lambda checkpoint: _damaged(checkpoint, lambda data: bytes(len(data))),
    "text": lambda checkpoint: _damaged(checkpoint, lambda data: b"checkpoint\n"),
}


# Where one array cannot be read, orbax leaves the reads of the others behind, which find their event loop closed.
leftover_reads = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@leftover_reads
@pytest.mark.parametrize("damage", BROKEN)
def test_a_broken_checkpoint_is_skipped(interrupted, damage):
    folder, files = interrupted
    like = Algorithm(SMALL, make_env("pendulum_balance", num_envs=32, max_steps=200)).shapes()
    BROKEN[damage](files[-1])
    with pytest.warns(UserWarning, match=r"checkpoint-0000040 is no complete checkpoint .*; looking at the checkpoint before it"):
        assert restore_newest(folder, like).iteration == 30
    BROKEN["empty"](files[0])
    with pytest.warns(UserWarning, match="no complete checkpoint"), pytest.raises(ValueError, match="no checkpoint in .* can be read"):
        restore_newest(folder, like)


@pytest.mark.slow
@leftover_reads
def test_a_run_continues_behind_damaged_files(whole, interrupted):
    """The newest checkpoint is empty, the rows are damaged: the run goes on from the checkpoint before, to the same end."""
    folder, files = interrupted
    BROKEN["empty"](files[-1])
    rows = folder / "returns.csv"
    lines = rows.read_bytes().splitlines(keepends=True)
    rows.write_bytes(b"".join(lines[:11]) + b"12,nonsense\n\xff\x00" + b"".join(lines[12:]))
    with pytest.warns(UserWarning) as found:
        result = train(SMALL, folder, resume=True, progress=False)
    texts = sorted(str(w.message) for w in found)
    assert len(texts) == 2 and "no complete checkpoint" in texts[0] and "is damaged after 10 rows" in texts[1]
    assert result["return"] == whole[1]["return"]
    assert _rows(folder) == [*_rows(whole[0])[:10], *_rows(whole[0])[30:]]
    assert checkpoints(folder)[-1].name == "checkpoint-0000048"


GARBAGE = [
    b"\xff\xfe\x00\n1,2\n", b"a,b\n1,2\n", b"iteration,steps\n1,1\n", b"iteration" * 100_000, b"iteration,steps,return,seconds\nx,1,1,1\n",
    b"iteration,steps,return,seconds\n1,1,1,nan\n", b"iteration,steps,return,seconds\n0,1,1,1\n", b"iteration,steps,return,seconds\n1,1\n",
]  # fmt: skip


@pytest.mark.parametrize("rows", GARBAGE)
def test_rows_that_are_garbage(tmp_path, rows):
    file = tmp_path / "returns.csv"
    file.write_bytes(rows)
    with pytest.warns(UserWarning, match=r"returns\.csv is damaged after 0 rows"):
        assert _read_rows(file, 10) == []


def _changed(checkpoint, **changes):
    """Write a checkpoint again with other arrays."""
    with orbax.checkpoint.PyTreeCheckpointer() as writer:
        writer.save(checkpoint.absolute(), _numbers(checkpoint) | changes, force=True)


@pytest.mark.slow
def test_a_checkpoint_that_no_run_writes_is_refused(interrupted):
    folder, files = interrupted
    like = Algorithm(SMALL, make_env("pendulum_balance", num_envs=32, max_steps=200)).shapes()
    whole = _numbers(files[-1])
    weights = next(name for name in whole if name.startswith(".params") and whole[name].ndim == 2)
    for value in (np.nan, np.inf):
        _changed(files[-1], **{weights: np.full_like(whole[weights], value)})
        with pytest.raises(ValueError, match=r"checkpoint-0000040: \.params.* is not finite; delete it to resume"):
            restore_newest(folder, like)
    for count in (-1, 0, 39, 2**31 - 1):
        _changed(files[-1], **{weights: whole[weights], ".iteration": np.int32(count)})
        with pytest.raises(ValueError, match=f"found {count} iterations; allowed: the number in its name"):
            restore_newest(folder, like)
    _changed(files[-1], **{".iteration": np.int32(40)})
    assert restore_newest(folder, like).iteration == 40
    with pytest.raises(ValueError, match="has done 40 iterations; these settings have 39: give more steps"):
        train(dataclasses.replace(SMALL, steps=39 * 512), folder, resume=True, progress=False)


def test_settings_that_are_no_settings(whole, tmp_path, capsys):
    """Of a run whose file is damaged, and a --config that is no file."""
    (tmp_path / "config.json").write_text('{"task": ')
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for arguments, message in (
        (["--resume", "--out", str(tmp_path)], "config.json is damaged: "),
        (["--config", "/dev/zero"], "/dev/zero: is a device; allowed: regular files"),
        (["--config", str(pipe)], "pipe.yaml: is a pipe (FIFO); allowed: regular files"),
        (["--config", str(tmp_path)], "is a folder; allowed: regular files"),
        (["pendulum_balance", "--steps", "inf"], "argument --steps"),
        (["pendulum_balance", "--steps", "1e300"], "updates of the policy; allowed: 2147483647"),
    ):
        with pytest.raises(SystemExit):
            main(arguments)
        assert message in capsys.readouterr().err


def test_picture_is_optional(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    _plot(tmp_path / "returns.png", [{"steps": 1, "return": 1.0}], "x")
    assert "needs matplotlib (pip install 'xsim[plot]')" in capsys.readouterr().err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learning_rat": 1.0}, r"unknown setting 'learning_rat' \(did you mean 'learning_rate'\?\)"),
        ({"learning_rate": "fast"}, "learning_rate must be a number, found 'fast'"),
        ({"num_envs": 0}, "num_envs must be positive, found 0"),
        ({"num_envs": 2.5}, "num_envs must be a whole number, found 2.5"),
        ({"num_envs": "many"}, "num_envs must be a whole number, found 'many'"),
        ({"anneal": 1}, "anneal must be true or false, found 1"),
        ({"discount": 1.5}, "discount must be between 0 and 1"),
        ({"hidden": [64, "x"]}, "hidden must be a list of positive whole numbers"),
        ({"activation": "sine"}, "activation: found 'sine'; allowed: tanh, relu, elu, swish"),
        ({"num_envs": 7, "unroll": 3}, "21 actions cannot be split into 8 equal minibatches"),
        ({"env": 3}, "env must be a table, found 3"),
    ],
)
def test_wrong_settings(changes, message):
    with pytest.raises(ValueError, match=message):
        configure("pendulum_balance", changes=changes)


def test_settings(tmp_path):
    """The bundled file, then one's own, then the command line."""
    own = tmp_path / "own.yaml"
    own.write_text("task: pendulum_swingup\nlearning_rate: 5e-4\nenv: {max_steps: 100}\n")
    config = configure(None, own, {"steps": "1e3", "env.randomize": "mild"})
    assert config.task == "pendulum_swingup" and config.learning_rate == 5e-4 and config.steps == 1000 and config.unroll == 32
    assert config.env == {"max_steps": 100, "randomize": "mild"}
    own.write_text("- 1\n")
    with pytest.raises(ValueError, match="must be a table of names and values"):
        configure("pendulum_swingup", own)
    with pytest.raises(ValueError, match="no such file"):
        configure("pendulum_swingup", tmp_path / "none.yaml")
    with pytest.raises(ValueError, match=r"did you mean 'pendulum_swingup'"):
        train(Config("pendulum_swingu"), tmp_path / "out")
    with pytest.raises(ValueError, match="no task"):
        configure(None)


def test_tasks_of_a_module(tmp_path, monkeypatch, capsys):
    """``--import``: a module in the current folder registers a task, which then trains."""
    module = """from xsim.envs import TASKS, register_task
TASKS.pop("my_swingup", None)
register_task("my_swingup", TASKS["pendulum_swingup"])
"""
    (tmp_path / "my_own_tasks.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [p for p in sys.path if p])
    with pytest.raises(SystemExit):
        main(["my_swingup", "--import", "my_own_tasks", "--set", "no_setting=1"])
    assert "no_setting" in capsys.readouterr().err  # the task is known, the setting is not
    with pytest.raises(SystemExit):
        main(["my_swingup", "--import", "nowhere.tasks"])
    assert "--import nowhere.tasks: there is no module 'nowhere'" in capsys.readouterr().err
    from xsim.envs import TASKS

    assert TASKS.pop("my_swingup") is TASKS["pendulum_swingup"]


@pytest.mark.slow
def test_evaluation_during_training(tmp_path):
    """Every other iteration; callbacks see each row. The last evaluation is that of the result."""
    config, seen = dataclasses.replace(SMALL, steps=32 * 16 * 4, evaluate_every=2), []
    result = train(config, tmp_path, progress=False, callbacks=[seen.append])
    assert seen == result["curve"] and [row["iteration"] for row in seen] == [1, 2, 3, 4]
    assert [math.isnan(row["evaluation"]) for row in seen] == [True, False, True, False]
    assert seen[3]["evaluation"] == result["return"] != seen[1]["evaluation"]
    assert [row["evaluation"] for row in _rows(tmp_path)] == [str(row["evaluation"]) for row in seen]
    with pytest.raises(ValueError, match="evaluate_every must not be negative, found -1"):
        configure("pendulum_balance", changes={"evaluate_every": -1})


def test_loggers(tmp_path, monkeypatch):
    """What has no value is left out."""
    row, sent = {"iteration": 1, "steps": 64, "return": math.nan, "loss": 2.0, "seconds": 0.5}, []
    run = SimpleNamespace(log=lambda numbers, step: sent.append((numbers, step)))
    client = ModuleType("wandb")
    client.init = lambda **settings: sent.append(settings) or run
    monkeypatch.setitem(sys.modules, "wandb", client)
    loggers.wandb("robots", "first", {"seed": 1})(row)
    assert sent == [{"project": "robots", "name": "first", "config": {"seed": 1}}, ({"loss": 2.0, "seconds": 0.5}, 64)]
    for name, make in (("wandb", lambda: loggers.wandb("robots", "first", {})), ("tensorboardX", lambda: loggers.tensorboard(tmp_path))):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ImportError, match=f"pip install {name}"):
            make()
        monkeypatch.undo()
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed: pip install tensorboardX")
    loggers.tensorboard(tmp_path)(row)
    (file,) = tmp_path.glob("events.out.tfevents.*")
    deadline = time.monotonic() + 30  # another thread writes
    while b"loss" not in file.read_bytes() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert b"loss" in file.read_bytes() and b"return" not in file.read_bytes()


def test_every_task_has_settings():
    from xsim.envs import TASKS

    for name in TASKS:
        assert configure(name).task == name


# ---- the algorithm -------------------------------------------------------------------------------------------------------------


class Constant:
    """A network whose value of an observation (n, 1) is that number."""

    def apply(self, params, obs, method):
        assert method == "critic"
        return obs[..., 0]


def test_advantages():
    """Against the sums themselves; the value of what lies behind a time limit counts, that behind a fall does not."""
    algorithm = object.__new__(Algorithm)
    algorithm.config, algorithm.network = Config("x", normalize=False, discount=0.9, gae_lambda=0.8, reward_scale=0.5), Constant()
    rng = np.random.default_rng(0)
    reward, value, after = rng.normal(size=(3, 6, 1))
    terminated = np.array([0, 0, 1, 0, 0, 0], bool)[:, None]
    done = terminated | np.array([0, 0, 0, 0, 1, 0], bool)[:, None]
    zero = jnp.zeros(())
    samples = Sample(Inputs(value[..., None]), zero, zero, reward, terminated, done, after[..., None], zero, zero)
    learner = Learner({}, None, None, None, None, None)
    advantage, target = algorithm._advantages(learner, samples)
    expected = np.zeros((6, 1))
    for t in range(6):
        weight = 1.0
        for k in range(t, 6):
            surprise = 0.5 * reward[k] + 0.9 * after[k] * ~terminated[k] - value[k]
            expected[t] += weight * surprise
            weight *= 0.9 * 0.8
            if done[k]:
                break
    np.testing.assert_allclose(advantage, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(target, expected + value, rtol=1e-5, atol=1e-6)


def test_statistics():
    rng = np.random.default_rng(1)
    x = rng.normal(3.0, [0.1, 5.0], size=(300, 2)).astype(np.float32)
    s = Statistics.empty(2, jnp.float32)
    np.testing.assert_array_equal(s.normalized(x[:3]), x[:3].clip(-10, 10))
    for part in (x[:50], x[50:51], x[51:]):
        s = s.extended(jnp.asarray(part))
    np.testing.assert_allclose(s.mean, x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(np.sqrt(s.squares / s.count), x.std(0), rtol=1e-4)
    np.testing.assert_allclose(s.normalized(x).std(0), 1.0, atol=1e-4)


@pytest.mark.slow
def test_evaluation_counts_one_episode():
    """A policy that lets the pole fall: the return is that of the first episode, however many follow."""
    env = make_env("pendulum_balance", num_envs=4)
    total, length = evaluate(env, lambda obs: jnp.ones((4, 1)), jax.random.key(0))
    assert (length > 3).all() and (length < 60).all()
    assert (np.abs(total - length) < 0.1 * length + 1).all()
