"""Proximal policy optimization on xsim's environments: ``python -m xsim.train TASK``.

One file, read from top to bottom: settings, networks, one iteration (roll out, estimate advantages, update), checkpoints, the loop.
Schulman et al., Proximal Policy Optimization Algorithms (2017); generalized advantages: Schulman et al., High-Dimensional Continuous
Control Using Generalized Advantage Estimation (2016), with bootstrapping at time limits (Pardo et al., Time Limits in RL, 2018).

An iteration is one compiled program. Everything it reads and writes is one pytree, `Learner`, which a checkpoint holds in full: a run
that was stopped and resumed equals the uninterrupted one bit for bit (same machine, same number of environments).
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import difflib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import yaml
from flax import linen as nn

from xsim.dynamics.sharding import cores_of, divided
from xsim.envs import TASKS, Env, make_env

__all__ = ["Config", "Learner", "configure", "evaluate", "main", "train"]


# ---- settings ----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Config:
    """Settings of a run. `configure` reads them from ``xsim/configs/train/TASK.yaml``, a file and the command line."""

    task: str
    seed: int = 0
    steps: int = 1_000_000  # actions of all environments together; rounded up to whole iterations
    num_envs: int = 256
    unroll: int = 20  # actions per environment and iteration
    epochs: int = 4
    minibatches: int = 8
    learning_rate: float = 3e-4
    anneal: bool = True  # the learning rate falls linearly to zero over ``steps``
    discount: float = 0.99
    trace: float = 0.95  # lambda of the generalized advantages
    clip: float = 0.2
    value_weight: float = 0.5
    entropy_weight: float = 0.0
    max_gradient: float = 0.5  # norm of the gradient that it is clipped to
    reward_scale: float = 1.0
    normalize: bool = True  # observations, by their running mean and deviation
    hidden: tuple[int, ...] = (64, 64)
    activation: str = "tanh"
    deviation: float = 0.6  # of the first policy's actions, whose bounds are -1 and 1
    evaluate_envs: int = 64
    evaluate_steps: int = 1000  # actions per evaluated episode, where the task has no time limit
    checkpoint_every: int = 50  # iterations
    keep: int = 3  # checkpoints
    env: Mapping[str, Any] = field(default_factory=dict)  # further arguments of make_env: randomize, max_steps, ...

    @property
    def batch(self) -> int:
        """Actions per iteration."""
        return self.num_envs * self.unroll

    @property
    def iterations(self) -> int:
        return -(-self.steps // self.batch)


ACTIVATIONS = {"tanh": nn.tanh, "relu": nn.relu, "elu": nn.elu, "swish": nn.swish}
POSITIVE = (
    "steps", "num_envs", "unroll", "epochs", "minibatches", "learning_rate", "max_gradient", "reward_scale", "deviation",
    "evaluate_envs", "evaluate_steps", "checkpoint_every", "keep",
)  # fmt: skip


def configure(task: str | None, file=None, changes: Mapping[str, Any] | None = None) -> Config:
    """Settings of a task: its own file among the bundled ones, then ``file``, then ``changes``. Raises ValueError for what is wrong.

    ``changes`` may name one entry of ``env``, as ``env.max_steps``.
    """
    given = _read(Path(file)) if file is not None else {}
    task = task or given.get("task")
    if task is None:
        raise ValueError("no task: name one, or a --config file that does")
    bundled = Path(str(files("xsim"))) / "configs" / "train" / f"{task}.yaml"
    values = _read(bundled) if bundled.is_file() else {}
    sources = [(str(file), given), ("--set", changes or {})]
    env = dict(values.get("env", {}))
    for source, chosen in sources:
        for name, value in chosen.items():
            if name.startswith("env."):
                env[name.removeprefix("env.")] = value
            elif name == "env":
                env |= _typed(name, "Mapping", value)
            else:
                values[name] = value
                _known(name, source)
    return _checked({**values, "env": env, "task": task})


def _read(file: Path) -> dict:
    if not file.is_file():
        raise ValueError(f"no such file: {file}")
    try:
        values = yaml.safe_load(file.read_text()) or {}
    except yaml.YAMLError as e:
        raise ValueError(f"{file}: {e}") from e
    if not isinstance(values, dict):
        raise ValueError(f"{file}: must be a table of names and values, found {type(values).__name__}")
    for name in values:
        _known(str(name), str(file))
    return values


def _known(name: str, source: str) -> None:
    names = [f.name for f in dataclasses.fields(Config)]
    if name not in names and not name.startswith("env."):
        close = difflib.get_close_matches(name, names, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{source}: unknown setting {name!r}{hint}; settings: {', '.join(names)}")


def _checked(values: dict) -> Config:
    """A Config with every value of its field's type and within its bounds."""
    known = {f.name: f.type for f in dataclasses.fields(Config)}
    out = {name: _typed(name, known[name], value) for name, value in values.items()}
    for name in POSITIVE:
        if name in out and out[name] <= 0:
            raise ValueError(f"{name} must be positive, found {out[name]}")
    for name in ("discount", "trace", "clip"):
        if name in out and not 0 <= out[name] <= 1:
            raise ValueError(f"{name} must be between 0 and 1, found {out[name]}")
    config = Config(**out)
    if config.activation not in ACTIVATIONS:
        raise ValueError(f"activation: found {config.activation!r}; allowed: {', '.join(ACTIVATIONS)}")
    if config.batch % config.minibatches:
        raise ValueError(f"num_envs * unroll = {config.batch} actions cannot be split into {config.minibatches} equal minibatches")
    return config


def _typed(name: str, kind: str, value):
    """The value as the type that a field of Config declares."""
    if kind == "bool" and isinstance(value, bool):
        return value
    if kind == "int" and not isinstance(value, bool) and isinstance(value, int | float | str) and _number(value) == int(_number(value)):
        return int(_number(value))
    if kind == "float" and not isinstance(value, bool) and isinstance(value, int | float | str) and math.isfinite(_number(value)):
        return _number(value)
    if kind == "str" and isinstance(value, str):
        return value
    if kind.startswith("tuple") and isinstance(value, list | tuple) and all(isinstance(x, int) and x > 0 for x in value):
        return tuple(value)
    if kind.startswith("Mapping") and isinstance(value, Mapping):
        return dict(value)
    wanted = {"tuple[int, ...]": "a list of positive whole numbers", "bool": "true or false", "int": "a whole number", "Mapping": "a table"}
    raise ValueError(f"{name} must be {wanted.get(kind, 'a number' if kind == 'float' else kind)}, found {value!r}")


def _number(value) -> float:
    """A finite number; 0.5 for what is none, which is neither whole nor finite where it matters. YAML reads 1e6 as text."""
    try:
        x = float(value)
    except ValueError:
        return math.nan
    return x


# ---- networks ----------------------------------------------------------------------------------------------------------------


class Policy(NamedTuple):
    """A normal distribution of actions: mean (..., actions) and logarithm of the deviation (actions,)."""

    mean: Any
    log_deviation: Any

    def sample(self, key):
        return self.mean + jnp.exp(self.log_deviation) * jax.random.normal(key, self.mean.shape, self.mean.dtype)

    def log_density(self, action):
        z = (action - self.mean) * jnp.exp(-self.log_deviation)
        return jnp.sum(-0.5 * z * z - self.log_deviation - 0.5 * math.log(2 * math.pi), -1)

    def entropy(self):
        return jnp.sum(self.log_deviation + 0.5 * math.log(2 * math.pi * math.e))


class ActorCritic(nn.Module):
    """Two multilayer perceptrons over normalized observations (..., n): the policy and the value (...,)."""

    actions: int
    hidden: tuple[int, ...]
    activation: str
    deviation: float
    dtype: Any

    @nn.compact
    def __call__(self, obs) -> tuple[Policy, Any]:
        mean = self._perceptron(obs, self.actions, 0.01, "policy")
        log_deviation = self.param("log_deviation", nn.initializers.constant(math.log(self.deviation)), (self.actions,), self.dtype)
        return Policy(mean, log_deviation), self._perceptron(obs, 1, 1.0, "value")[..., 0]

    def _perceptron(self, x, outputs: int, gain: float, name: str):
        for i, width in enumerate((*self.hidden, outputs)):
            last = i == len(self.hidden)
            scale = nn.initializers.orthogonal(gain if last else math.sqrt(2))
            x = nn.Dense(width, kernel_init=scale, dtype=self.dtype, param_dtype=self.dtype, name=f"{name}_{i}")(x)
            x = x if last else ACTIVATIONS[self.activation](x)
        return x


class Statistics(NamedTuple):
    """Running mean and sum of squared deviations (n,) of ``count`` observations."""

    count: Any
    mean: Any
    squares: Any

    @classmethod
    def empty(cls, size: int, dtype) -> Statistics:
        return cls(jnp.zeros((), dtype), jnp.zeros(size, dtype), jnp.zeros(size, dtype))

    def extended(self, x) -> Statistics:
        """With the observations (m, n) (Chan et al., Updating Formulae and a Pairwise Algorithm for Computing Sample Variances)."""
        mean = x.mean(0)
        count, shift = self.count + len(x), mean - self.mean
        squares = self.squares + jnp.square(x - mean).sum(0) + shift**2 * self.count * len(x) / count
        return Statistics(count, self.mean + shift * len(x) / count, squares)

    def normalized(self, x):
        deviation = jnp.sqrt(self.squares / jnp.maximum(self.count, 1.0))
        scaled = (x - self.mean) / jnp.where(self.count > 0, jnp.maximum(deviation, 1e-4), 1.0)
        return jnp.clip(scaled, -10.0, 10.0)


# ---- one iteration -----------------------------------------------------------------------------------------------------------


class Learner(NamedTuple):
    """All of a run: parameters, optimizer, statistics of observations, environments, root of all random numbers, iterations done."""

    params: Any
    optimizer: Any
    statistics: Statistics
    env: Any
    key: Any
    iteration: Any


class Sample(NamedTuple):
    """One action of every environment. next_obs: after it, before any restart. ended: the episode's return and length where done."""

    obs: Any
    action: Any
    log_density: Any
    reward: Any
    terminated: Any
    done: Any
    next_obs: Any
    episode_return: Any
    length: Any


class Algorithm:
    """PPO for one `Env`: ``start()`` makes a `Learner`, ``iterate(learner)`` the next one and what it measured."""

    def __init__(self, config: Config, env: Env):
        self.config, self.env = config, env
        self.network = ActorCritic(env.action_spec.shape[0], config.hidden, config.activation, config.deviation, env.dtype)
        updates = config.iterations * config.epochs * config.minibatches
        rate = optax.linear_schedule(config.learning_rate, 0.0, updates) if config.anneal else config.learning_rate
        self.optimizer = optax.chain(optax.clip_by_global_norm(config.max_gradient), optax.adam(rate, eps=1e-5))
        places = self._places()
        if places is None:
            self.start, self.iterate = jax.jit(self._start), jax.jit(self._iterate)
        else:
            self.start = jax.jit(self._start, out_shardings=places)
            self.iterate = jax.jit(self._iterate, in_shardings=(places,), out_shardings=(places, None))

    def _places(self):
        """Where the numbers of a learner are: environments divided among the cores (`xsim.use_cores`), the rest on each. With these said, a
        run that is resumed goes through the same program. None where there is nothing to divide."""
        mesh = cores_of(self.config.num_envs)
        if mesh is None or self.config.num_envs % mesh.size:
            return None
        shared, own = (jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes)) for axes in ((), ("core",)))

        def place(x):
            return own if x.size and x.shape[:1] == (self.config.num_envs,) else shared

        form = jax.eval_shape(self._start)
        return jax.tree.map(lambda x: shared, form)._replace(env=jax.tree.map(place, form.env))

    def _start(self) -> Learner:
        root = jax.random.key(self.config.seed)
        params_key, env_key, key = jax.random.split(root, 3)
        size = self.env.observation_spec.shape[0]
        params = self.network.init(params_key, jnp.zeros((1, size), self.env.dtype))
        statistics = Statistics.empty(size, self.env.dtype)
        return Learner(params, self.optimizer.init(params), statistics, self.env.reset(env_key), key, jnp.zeros((), jnp.int32))

    def see(self, statistics: Statistics, obs):
        """What the networks are shown."""
        return statistics.normalized(obs) if self.config.normalize else obs

    def act(self, learner: Learner, obs):
        """The deterministic policy: actions (m, actions) at observations (m, n)."""
        return self.network.apply(learner.params, self.see(learner.statistics, obs))[0].mean

    def _iterate(self, learner: Learner) -> tuple[Learner, dict]:
        act_key, update_key = jax.random.split(jax.random.fold_in(learner.key, learner.iteration))
        env, samples = jax.lax.scan(partial(self._act, learner), learner.env, jax.random.split(act_key, self.config.unroll))
        advantage, target = self._advantages(learner, samples)
        shown = self.see(learner.statistics, samples.obs)
        data = (shown, samples.action, samples.log_density, advantage, target)
        data = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), data)
        params, optimizer, losses = self._update(learner, data, update_key)
        statistics = learner.statistics.extended(samples.obs.reshape(-1, samples.obs.shape[-1]))
        measured = {"return": _mean(samples.episode_return, samples.done), "length": _mean(samples.length, samples.done)}
        measured |= {"episodes": samples.done.sum(), "reward": samples.reward.mean(), **losses}
        return Learner(params, optimizer, statistics, env, learner.key, learner.iteration + 1), measured

    def _act(self, learner: Learner, env, key):
        policy, _ = self.network.apply(learner.params, self.see(learner.statistics, env.obs))
        action = policy.sample(key)
        after = self.env.step(env, action)
        reached = after.info["final_observation"]
        ended = after.metrics["return"], after.metrics["length"]
        return after, Sample(env.obs, action, policy.log_density(action), after.reward, after.terminated, after.done, reached, *ended)

    def _advantages(self, learner: Learner, s: Sample):
        """Generalized advantages and targets of the value, (unroll, num_envs).

        The value of the state that an action led to counts unless the episode terminated there; at a time limit it stands for the
        rewards that were cut off. Sums of later advantages end where an episode ends, for either reason.
        """
        c = self.config
        value, after = (self.network.apply(learner.params, self.see(learner.statistics, x))[1] for x in (s.obs, s.next_obs))
        surprise = c.reward_scale * s.reward + c.discount * jnp.where(s.terminated, 0.0, after) - value

        def earlier(advantage, now):
            advantage = now[0] + c.discount * c.trace * jnp.where(now[1], 0.0, advantage)
            return advantage, advantage

        _, advantage = jax.lax.scan(earlier, jnp.zeros_like(value[0]), (surprise, s.done), reverse=True)
        return advantage, advantage + value

    def _update(self, learner: Learner, data, key):
        """Parameters after all epochs, and the mean losses of the last. data: arrays with ``batch`` rows."""
        c = self.config

        def minibatch(carry, rows):
            params, optimizer = carry
            part = divided(jax.tree.map(lambda x: x[rows], data), rows.shape)
            gradient, losses = jax.grad(self._loss, has_aux=True)(params, part)
            change, optimizer = self.optimizer.update(gradient, optimizer, params)
            return (optax.apply_updates(params, change), optimizer), losses

        def epoch(carry, key):
            rows = jax.random.permutation(key, c.batch).reshape(c.minibatches, -1)
            return jax.lax.scan(minibatch, carry, rows)

        (params, optimizer), losses = jax.lax.scan(epoch, (learner.params, learner.optimizer), jax.random.split(key, c.epochs))
        return params, optimizer, jax.tree.map(lambda x: x[-1].mean(), losses)

    def _loss(self, params, data):
        obs, action, before, advantage, target = data
        policy, value = self.network.apply(params, obs)
        change = policy.log_density(action) - before
        ratio = jnp.exp(change)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        clipped = jnp.clip(ratio, 1 - self.config.clip, 1 + self.config.clip)
        policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
        value_loss = 0.5 * jnp.square(value - target).mean()
        entropy = policy.entropy()
        loss = policy_loss + self.config.value_weight * value_loss - self.config.entropy_weight * entropy
        losses = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy, "kl": (ratio - 1 - change).mean()}
        return loss, losses


def _mean(x, mask):
    """Mean of x where the mask holds; NaN where it holds nowhere."""
    return jnp.where(mask, x, 0).sum() / jnp.where(mask.any(), mask.sum(), jnp.nan)


def evaluate(env: Env, act: Callable, key, steps: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Returns and lengths (num_envs,) of one episode per environment with the actions ``act(obs)``, of at most ``steps`` actions."""
    steps = env.task.max_steps or steps

    def one(carry, _):
        state, running, total, length = carry
        state = env.step(state, act(state.obs))
        total, length = total + jnp.where(running, state.reward, 0), length + running
        return (state, running & ~state.done, total, length), None

    @jax.jit
    def episodes(key):
        zero = jnp.zeros(env.num_envs, env.dtype)
        start = (env.reset(key), jnp.ones(env.num_envs, bool), zero, jnp.zeros(env.num_envs, jnp.int32))
        return jax.lax.scan(one, start, length=steps)[0][2:]

    total, length = episodes(key)
    return np.asarray(total), np.asarray(length)


# ---- checkpoints -------------------------------------------------------------------------------------------------------------


def _is_key(x) -> bool:
    return jnp.issubdtype(x.dtype, jax.dtypes.prng_key)


def save(folder: Path, learner: Learner, keep: int) -> Path:
    """Write a checkpoint, whole or not at all, and delete all but the last few."""
    file = folder / f"checkpoint-{int(learner.iteration):07d}.npz"
    leaves, _ = jax.tree_util.tree_flatten_with_path(learner)
    arrays = {jax.tree_util.keystr(path): np.asarray(jax.random.key_data(x) if _is_key(x) else x) for path, x in leaves}
    draft = folder / f".{file.name}"
    with open(draft, "wb") as out:
        np.savez(out, **arrays)
    os.replace(draft, file)
    for old in checkpoints(folder)[:-keep]:
        old.unlink()
    return file


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints of a run, oldest first."""
    return sorted(folder.glob("checkpoint-*.npz"))


def restore(file: Path, like: Learner) -> Learner:
    """The Learner of a checkpoint; ``like`` (of shapes) says how it is built. Raises ValueError where it does not fit."""
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    out = []
    with np.load(file) as arrays:
        for path, x in leaves:
            name = jax.tree_util.keystr(path)
            form = jax.eval_shape(jax.random.key_data, x) if _is_key(x) else x
            if name not in arrays or arrays[name].shape != form.shape or arrays[name].dtype != form.dtype:
                found = f"{arrays[name].dtype}{arrays[name].shape}" if name in arrays else "nothing"
                raise ValueError(f"{file} does not fit these settings: {name} should be {form.dtype}{form.shape}, found {found}")
            value = jnp.asarray(arrays[name])
            out.append(jax.random.wrap_key_data(value) if _is_key(x) else value)
    return jax.tree.unflatten(tree, out)


# ---- the loop ----------------------------------------------------------------------------------------------------------------


def train(config: Config, out=None, *, resume: bool = False, progress: bool = True, stop: int | None = None) -> dict:
    """Train, evaluate, and write everything into the folder ``out``: the last few checkpoints, ``returns.csv`` (one row per
    iteration), ``returns.png``, ``result.json``.

    resume: from the newest checkpoint in ``out``. stop: iterations after which to stop as if interrupted (nothing is evaluated).
    Returns ``return`` and ``length``, means over the evaluated episodes with the deterministic policy, ``deviation`` of the returns,
    ``steps`` and ``curve``, the rows of ``returns.csv``. Raises ValueError for settings that do not fit.
    """
    folder = Path(out if out is not None else Path("runs") / config.task)
    found = checkpoints(folder)
    if found and not resume:
        raise ValueError(f"{folder} holds a run: resume it, or choose another folder")
    if resume and not found:
        raise ValueError(f"no checkpoint in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    algorithm = Algorithm(config, _environment(config, config.num_envs))
    learner = restore(found[-1], jax.eval_shape(algorithm.start)) if resume else algorithm.start()
    done = int(learner.iteration)
    rows = _read_rows(folder / "returns.csv")[:done] if resume else []
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config), indent=1) + "\n")
    last = config.iterations if stop is None else min(stop, config.iterations)
    began = time.monotonic() - (rows[-1]["seconds"] if rows else 0.0)
    with _bar(config, done, progress) as bar:
        try:
            while done < last:
                learner, measured = algorithm.iterate(learner)
                done += 1
                numbers = {k: float(x) for k, x in measured.items()}
                rows.append({"iteration": done, "steps": done * config.batch, **numbers, "seconds": time.monotonic() - began})
                bar.update(config.batch)
                bar.set_postfix({"return": f"{_latest(rows):.4g}"}, refresh=False)
                if done % config.checkpoint_every == 0:
                    save(folder, learner, config.keep)
                    _write_rows(folder / "returns.csv", rows)
        finally:  # also when interrupted
            save(folder, learner, config.keep)
            _write_rows(folder / "returns.csv", rows)
    if last < config.iterations:
        return {"steps": done * config.batch, "curve": rows}
    env = _environment(config, config.evaluate_envs)
    key = jax.random.fold_in(jax.random.key(config.seed), 1)
    total, length = evaluate(env, partial(algorithm.act, learner), key, config.evaluate_steps)
    result = {"task": config.task, "return": float(total.mean()), "deviation": float(total.std()), "length": float(length.mean())}
    result |= {"episodes": config.evaluate_envs, "steps": done * config.batch, "seconds": rows[-1]["seconds"] if rows else 0.0}
    (folder / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    _draw(folder / "returns.png", rows, config.task)
    return {**result, "curve": rows}


def _environment(config: Config, count: int) -> Env:
    try:
        return make_env(config.task, num_envs=count, **{"seed": config.seed, **config.env})
    except KeyError as e:
        raise ValueError(e.args[0]) from e
    except TypeError as e:
        raise ValueError(f"env: {e}") from e


def _bar(config: Config, done: int, progress: bool):
    from tqdm import tqdm

    return tqdm(total=config.iterations * config.batch, initial=done * config.batch, unit="step", unit_scale=True, disable=not progress)


def _latest(rows: list[dict]) -> float:
    """The newest mean return of ended episodes."""
    return next((row["return"] for row in reversed(rows) if not math.isnan(row["return"])), math.nan)


def _write_rows(file: Path, rows: list[dict]) -> None:
    if rows:
        draft = file.with_name(f".{file.name}")
        with open(draft, "w", newline="") as out:
            writer = csv.DictWriter(out, rows[0])
            writer.writeheader()
            writer.writerows(rows)
        os.replace(draft, file)


def _read_rows(file: Path) -> list[dict]:
    if not file.is_file():
        return []
    with open(file, newline="") as lines:
        return [{k: int(x) if k in ("iteration", "steps") else float(x) for k, x in row.items()} for row in csv.DictReader(lines)]


def _draw(file: Path, rows: list[dict], title: str) -> None:
    """The learning curve as a picture, where matplotlib is there."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        print(f"no picture of the learning curve: {file.name} needs matplotlib (pip install 'xsim[plot]')", file=sys.stderr)
        return
    points = [(row["steps"], row["return"]) for row in rows if not math.isnan(row["return"])]
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot(xlabel="actions", ylabel="mean return of the episodes that ended", title=title)
    axes.plot(*zip(*points, strict=True)) if points else axes.text(0.5, 0.5, "no episode ended", ha="center")
    axes.grid(alpha=0.3)
    figure.savefig(file, dpi=120)


# ---- the command -------------------------------------------------------------------------------------------------------------


def main(argv=None) -> int:
    parser = _parser()
    options = parser.parse_args(argv)
    try:
        config, out = _settings(options)
        result = train(config, out, resume=options.resume, progress=not options.quiet)
    except ValueError as e:
        parser.error(str(e))
    except KeyboardInterrupt:
        print("stopped; --resume continues", file=sys.stderr)
        return 130
    print(f"{config.task}: return {result['return']:.5g} +- {result['deviation']:.3g} over {result['episodes']} episodes of the")
    print(f"deterministic policy, {result['length']:.4g} actions long on average, after {result['steps']:,} actions")
    print(f"({result['seconds']:.0f} s); checkpoints, returns.csv, result.json, returns.png in {out}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m xsim.train", description="Train a policy on a task with PPO.")
    parser.add_argument("task", nargs="?", help=f"one of {', '.join(TASKS)}, or a name that --config's file gives")
    parser.add_argument("--config", metavar="FILE.yaml", help="settings, over those that come with the task")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="one setting; env.NAME: an argument of make_env")
    parser.add_argument("--steps", type=_count, metavar="N", help="actions of all environments together")
    parser.add_argument("--num-envs", type=_count, metavar="N", help="environments")
    parser.add_argument("--seed", type=int, metavar="N", help="of everything random")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where results go (default: runs/TASK)")
    parser.add_argument("--resume", action="store_true", help="continue the run in DIR with its settings; --steps may lengthen it")
    parser.add_argument("--quiet", action="store_true", help="no progress bar")
    return parser


def _count(text: str) -> int:
    """A whole number, also written as 1e6."""
    number = float(text)
    if number != int(number) or number < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of 1 or more, found {text}")
    return int(number)


def _settings(options) -> tuple[Config, Path]:
    changes = {}
    for text in options.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"--set {text}: must be NAME=VALUE")
        changes[name] = yaml.safe_load(value)
    named = {"steps": options.steps, "num_envs": options.num_envs, "seed": options.seed}
    named = {name: x for name, x in named.items() if x is not None}
    if not options.resume:
        config = configure(options.task, options.config, changes | named)
        return config, options.out or Path("runs") / config.task
    if options.out is None and options.task is None:
        raise ValueError("--resume needs the task or --out")
    out = options.out or Path("runs") / options.task
    if options.config or changes or set(named) - {"steps"}:
        raise ValueError("--resume continues with the run's own settings; only --steps may change")
    saved = out / "config.json"
    if not saved.is_file():
        raise ValueError(f"nothing to resume in {out}")
    return _checked({**json.loads(saved.read_text()), **named}), out
