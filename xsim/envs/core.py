"""Env: a model and a task, stepped for a whole batch at once.

``env.reset(key)`` and ``env.step(env_state, action)`` are pure; put them into your own jit, scan and grad. An environment that ends
is started again within the same step: ``obs`` is then the first observation of the next episode and
``info["final_observation"]`` the last one of the episode that ended. Reward, terminated, truncated and metrics are those of the step.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.initial_state import init, state_at
from xsim.dynamics.layout import batch_shape
from xsim.dynamics.sharding import divided
from xsim.envs.actions import action_map
from xsim.envs.advance import Inputs, Steps, advance, is_unhealthy, where
from xsim.envs.disturbances import Delays, disturbances_of
from xsim.envs.view import Transition, View
from xsim.joints.elementary import name_key
from xsim.load import build, load
from xsim.model.model import Flags, Model, State, shapes
from xsim.randomize import Sampler, make_sampler
from xsim.spec import ModelSpec
from xsim.suggestions import did_you_mean

__all__ = ["TASKS", "Env", "EnvState", "Spec", "Task", "make_env", "register_task"]


def _everything(view: View):
    return jnp.concatenate([view.state.q, view.state.v], -1)


@dataclass(frozen=True)
class Task:
    """What the agent sees, does and is paid for. Functions of a `View` work on the whole batch; those of a key on one environment.

    model: name of a bundled model, a file, or a `ModelSpec`; options: how to load it, as `xsim.load` takes them.
    observe(view) -> (num_envs, n), or any shape that begins with num_envs, or a dict {name: such an array}; reward(view) -> (num_envs,).
    The trainers read the entries ``state`` and, for the value alone, ``privileged_state`` (`xsim.train.Config`).
    terminate(view) -> (num_envs,) bool. metrics(view) -> {name: (num_envs,)}.
    remember(view) -> the variables from here on, of the same structure, shapes and types: the last action, a foot's time in the air, a
    new command. Called after every step and every reset; reward, termination and metrics still see the variables before, the
    observation those after.
    inherit(variables, previous) -> the variables that an episode starts with, of one environment: from those that were sampled for it and
    those with which the episode before ended. For a curriculum. Not called for the first episode.
    start(model, key, variables) -> (q, v), (nq,) and (nv,), or a `State` of one environment, which an episode starts from; None: neutral,
    at rest.
    variables(model, key) -> pytree of arrays sampled for an episode (a goal, a reference). In both, ``model`` is the common one.
    gear: {body: force per unit of action}, N or N m, one number or one per velocity of its joint; where it is zero nothing drives. None:
    the actions are the model's controls (-1 and 1 are the bounds of a control that has some); of a model without controls 1 N or 1 N m
    on every coordinate. actuate(view) -> tau, or (ctrl, tau), replaces it for a task with ``actions`` numbers; ``view`` is
    then that before the step.
    bounds: (low, high) that the observation is clipped to, numbers or (n,), or a function of the model that returns them; of an
    observation with names also {name: (low, high)}.
    noise: half width of uniform noise of the observation, a number or (n,); of one with names also {name: half width}.
    action_delay, observation_delay: number of actions by which these come late, or the least and the most, between which each episode has
    its own. ``view.action`` is what the agent chose, ``ctrl`` and ``tau`` what arrived. First come zero actions, and the first observation.
    push: {"body": name, "speed": (least, most) in m/s, "interval": mean time between pushes, s}, see `xsim.envs.Push`.
    The entry ``privileged_state`` of an observation with names has neither noise nor delay.
    action_repeat: simulation steps per action. substeps: whether ``view.last`` is needed (otherwise it is None after a step).
    max_steps: actions until an episode is truncated, None for never.
    randomize: as in `make_env`.
    """

    reward: Callable[[View], Any]
    observe: Callable[[View], Any] = _everything
    terminate: Callable[[View], Any] | None = None
    model: str | Path | ModelSpec | None = None
    start: Callable | None = None
    variables: Callable | None = None
    remember: Callable[[View], Any] | None = None
    inherit: Callable[[Any, Any], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    gear: Mapping[str, Any] | None = None
    actuate: Callable[[View], Any] | None = None
    actions: int | None = None
    metrics: Callable[[View], dict] | None = None
    bounds: tuple | Mapping[str, tuple] | Callable[[Model], tuple | Mapping[str, tuple]] = (-math.inf, math.inf)
    noise: Any = None
    action_delay: int | tuple[int, int] = 0
    observation_delay: int | tuple[int, int] = 0
    push: Any = None
    action_repeat: int = 1
    substeps: bool = False
    max_steps: int | None = 1000
    randomize: Any = None


TASKS: dict[str, Task | Callable[[], Task]] = {}


def register_task(name: str, task: Task | Callable[[], Task]) -> Task | Callable[[], Task]:
    """Make a task known to `make_env`. task: or a function that makes it, which `make_env` calls. Raises ValueError where the name is taken
    by another."""
    if TASKS.get(name, task) is not task:
        raise ValueError(f"a task named {name!r} is registered already")
    TASKS[name] = task
    return task


class Spec(NamedTuple):
    """Bounds of one environment's action or observation: arrays of ``shape``, numpy."""

    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    dtype: np.dtype


def _spec(shape, low, high, dtype) -> Spec:
    return Spec(tuple(shape), *(np.broadcast_to(np.asarray(x, dtype), shape).copy() for x in (low, high)), np.dtype(dtype))


def _observation_spec(obs, bounds, num_envs: int, dtype) -> Any:
    """Bounds of an observation, `Spec` or {name: Spec}. obs: its shapes. bounds: as in `Task`. Raises ValueError for no observation."""
    if isinstance(obs, Mapping):
        pairs = bounds if isinstance(bounds, Mapping) else dict.fromkeys(obs, bounds)
        for name in pairs:
            if name not in obs:
                raise ValueError(f"bounds: the observation has no {name!r}{did_you_mean(name, obs)}")
        no_bounds = (-math.inf, math.inf)
        return {name: _observation_spec(x, pairs.get(name, no_bounds), num_envs, dtype) for name, x in obs.items()}
    if not hasattr(obs, "shape") or len(obs.shape) < 2 or obs.shape[0] != num_envs:
        raise ValueError(f"observe must return ({num_envs}, n), or a dict of these; found {getattr(obs, 'shape', type(obs).__name__)}")
    return _spec(obs.shape[1:], *bounds, dtype)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """Everything that goes from step to step; a pytree whose leaves have the leading dimension num_envs, by which they are divided among
    the devices in use.

    obs: (num_envs, n), or what the task's ``observe`` returns. reward: (num_envs,). terminated, truncated, done (either): (num_envs,) bool.
    metrics: ``return`` and ``length`` of the episode up to this step, then the task's. info: ``final_observation``, as obs, the
    observation before any restart; ``diverged`` (num_envs,) bool. leaves: {path: (num_envs, *shape)}, model leaves that differ.
    variables: the task's. key, episode: of each environment; together they give all its random numbers. length: steps so far.
    delays: actions and observations on their way.
    """

    state: State
    obs: Any
    reward: Any
    terminated: Any
    truncated: Any
    done: Any
    metrics: dict
    info: dict
    leaves: dict
    variables: Any
    key: Any
    episode: Any
    length: Any
    delays: Delays

    def replace(self, **changes) -> EnvState:
        return dataclasses.replace(self, **changes)

    def __repr__(self) -> str:
        return shapes(self)


def make_env(
    name_or_path,
    *,
    num_envs: int = 1,
    randomize=None,
    task: Task | None = None,
    resample: bool = True,
    auto_reset: bool = True,
    velocity_limit: float = 1e5,
    seed: int = 0,
    **changes,
) -> Env:
    """A batch of environments.

    name_or_path: a registered task, or a model (file, `ModelSpec` or `Model`) for ``task``; without ``task``, ``changes`` make one.
    randomize: None: as the task says. False: all environments have the model of the file. True: axes and positions are sampled per
    environment. A dict, YAML file or name: ranges of `xsim.randomize`. resample: sample again at every episode, not only at `Env.reset`.
    auto_reset: start ended environments again within the step. velocity_limit: an environment with a velocity beyond it (m/s, rad/s)
    counts as diverged, as one that is not finite does: it terminates, and is started again, without touching the others.
    seed: for what is sampled once for all environments. changes: fields of the task to replace, e.g. ``max_steps=200``.

    Raises KeyError for an unknown name, ValueError for arguments that do not fit the model.
    """
    model: Any
    if isinstance(name_or_path, (Model, ModelSpec)):
        model = name_or_path
    elif str(name_or_path) in TASKS:
        if task is not None:
            raise ValueError(f"{name_or_path!r} is a task; task= goes with a model")
        known = TASKS[str(name_or_path)]
        task = known if isinstance(known, Task) else known()
        model = task.model
    elif Path(name_or_path).is_file():
        model = name_or_path
    else:
        name = str(name_or_path)
        raise KeyError(f"no task and no file {name!r}{did_you_mean(name, TASKS)}; tasks: {', '.join(TASKS)}")
    _check_arguments(changes)
    if task is None:
        if "reward" not in changes:
            raise ValueError("a model alone is no task: give task=Task(...) or at least reward=")
        task = Task(**changes)
    elif changes:
        task = dataclasses.replace(task, **changes)
    model = _model(model, seed, task.options)
    choice = task.randomize if randomize is None else randomize
    varies = choice is not None and choice is not False
    sampler = make_sampler(model, None if choice is True else choice) if varies else Sampler(model)
    return Env(_with_shared(sampler, seed), task, num_envs, resample=resample, auto_reset=auto_reset, velocity_limit=velocity_limit)


def _check_arguments(changes: Mapping[str, Any]) -> None:
    """Raise TypeError for a name that neither `make_env` nor a task has."""
    fields = [f.name for f in dataclasses.fields(Task)]
    for name in changes:
        if name not in fields:
            hint = did_you_mean(name, [*inspect.signature(make_env).parameters, *fields])
            raise TypeError(f"make_env has no argument {name!r}{hint}")


def _model(source, seed: int, options: Mapping[str, Any]) -> Model:
    if source is None:
        raise ValueError("the task names no model: pass a model file to make_env and the task as task=")
    if isinstance(source, Model):
        return source
    if isinstance(source, ModelSpec):
        return build(source, seed=seed)
    return load(source if Path(source).is_file() else models.path(str(source)), seed=seed, **options)


def _with_shared(sampler: Sampler, seed: int) -> Sampler:
    """With the leaves in the model that are sampled once for all environments."""
    return sampler._replace(model=sampler.model.replace(sampler.sample_shared(jax.random.key(seed))))


class Episode(NamedTuple):
    """Where an episode starts: {path: leaf} of the model's leaves that differ, the task's variables, the state, the delays of actions and
    observations; (num_envs, ...)."""

    leaves: dict
    variables: Any
    state: State
    delays: Delays


class Env:
    """Made by `make_env`. num_envs; model: the common model; task; action_spec, observation_spec: `Spec` of one environment, the latter
    {name: Spec} where the observation has names."""

    def __init__(self, sampler: Sampler, task: Task, num_envs: int, *, resample: bool, auto_reset: bool, velocity_limit: float):
        self.model, self.task, self.num_envs = sampler.model, task, num_envs
        self.resample, self.auto_reset, self.velocity_limit = resample, auto_reset, velocity_limit
        self._sampler = sampler
        bounds = task.bounds(self.model) if callable(task.bounds) else task.bounds
        self._disturbances = disturbances_of(self.model, task.noise, task.action_delay, task.observation_delay, task.push)
        if num_envs < 1 or task.action_repeat < 1 or (task.max_steps is not None and task.max_steps < 1):
            raise ValueError("num_envs, action_repeat and max_steps must be at least 1")
        if batch_shape(self.model) not in ((), (num_envs,)):
            raise ValueError(f"the model has leaves for a batch {batch_shape(self.model)}, not for {num_envs} environments")
        for path in sampler.varying:
            if self.model.get(path).shape != self.model.shape(path):
                raise ValueError(f"{path} differs between environments already and cannot be sampled as well")
        self.dtype = np.dtype(self.model.option.dt.dtype)
        if task.actuate is not None and task.actions is None:
            raise ValueError("a task with actuate must say how many actions it takes")
        self._action_map = None if task.actuate is not None else action_map(self.model, task.gear)
        actions = task.actions if self._action_map is None else self._action_map.actions
        self.action_spec = _spec((actions,), -1.0, 1.0, self.dtype)
        obs = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, task.observe(self._example_view())))
        self.observation_spec = _observation_spec(obs, bounds, num_envs, self.dtype)
        self._disturbances.check(obs)

    def __repr__(self) -> str:
        seen = self.observation_spec
        shown = seen.shape if isinstance(seen, Spec) else {name: spec.shape for name, spec in seen.items()}
        sizes = f"actions {self.action_spec.shape}, observations {shown}"
        length = "episodes without end" if self.task.max_steps is None else f"episodes of {self.task.max_steps} steps"
        return f"Env({self.model.topology.name!r}: {self.num_envs} environments, {sizes}, {length})"

    def reset(self, key) -> EnvState:
        """Start all environments. key: one, of which environment i depends on it and i alone, not on num_envs; or (num_envs,) keys."""
        keys, number = self._env_keys(key), jnp.zeros(self.num_envs, jnp.int32)
        episode = self._new_episode(keys, number)
        view = self._view_at_start(episode, _step_keys(keys, number))
        metrics, variables = self._metrics(view), self._remember(view)
        obs, no = self._observe(view), jnp.zeros(self.num_envs, bool)
        delays = self._disturbances.at_start(episode.delays, view.action, obs)
        zero = jnp.zeros(self.num_envs, self.dtype)
        length = jnp.zeros(self.num_envs, jnp.int32)
        start = EnvState(
            state=episode.state,
            obs=obs,
            reward=zero,
            terminated=no,
            truncated=no,
            done=no,
            metrics={"return": zero, "length": length, **metrics},
            info={"final_observation": obs, "diverged": no},
            leaves=episode.leaves,
            variables=variables,
            key=keys,
            episode=number,
            length=length,
            delays=delays,
        )
        return divided(start, (self.num_envs,))

    def step(self, env_state: EnvState, action) -> EnvState:
        """One action in every environment. action: (num_envs, actions), clipped to the action's bounds.

        An environment that diverges (see `make_env`) or is given NaN ends with its last healthy state as the final one; its numbers
        and its gradients stay finite, and so do those of the others.
        """
        action, invalid = self._check_action(action)
        arrived, delays = self._disturbances.delayed_action(env_state.delays, action)
        view, diverged = self._simulate(env_state, action, arrived, invalid)
        result = self._judge(env_state.replace(delays=delays), view, diverged)
        return divided(self._restart(result) if self.auto_reset else result, (self.num_envs,))

    # ---- a step --------------------------------------------------------------------------------------------------------------

    def _check_action(self, action):
        """(actions within their bounds, (num_envs,) whether one is NaN; it is then zero)."""
        action = jnp.asarray(action, self.dtype)
        if action.shape != (self.num_envs, *self.action_spec.shape):
            raise ValueError(f"action must have shape {(self.num_envs, *self.action_spec.shape)}, found {action.shape}")
        invalid = jnp.isnan(action).any(-1)
        return where(invalid, jnp.zeros_like(action), jnp.clip(action, self.action_spec.low, self.action_spec.high)), invalid

    def _simulate(self, s: EnvState, action, arrived, invalid) -> tuple[View, Any]:
        """(the view after the step, (num_envs,) whether it diverged; its state is then the last healthy one, and nothing drives). arrived:
        the actions that drive the step."""
        keys, model = _step_keys(s.key, s.episode, s.length + 1), self.model.replace(s.leaves)
        start = self._disturbances.pushed(s.state, keys, self.task.action_repeat * model.option.dt)
        before = View(model, Transition(start, start, start), arrived, Inputs(None, None), s.variables, keys)
        inputs = self._inputs(before)
        steps = Steps(self.task.action_repeat, self.velocity_limit, self.task.substeps)
        after, last = advance(steps, before.model, self.model, start, inputs)
        diverged = invalid | is_unhealthy(after, self.velocity_limit)
        healthy = where(is_unhealthy(s.state, self.velocity_limit), self._rest(), s.state)
        state = where(diverged, healthy.replace(flags=healthy.flags | Flags.DIVERGED), after)
        last = None if last is None else where(diverged, state, last)
        leaves = {p: where(diverged, jnp.broadcast_to(self.model.get(p), x.shape), x) for p, x in s.leaves.items()}
        inputs = where(diverged, jax.tree.map(jnp.zeros_like, inputs), inputs)
        states = Transition(where(diverged, state, start), last, state)
        return View(self.model.replace(leaves), states, action, inputs, s.variables, keys), diverged

    def _judge(self, s: EnvState, view: View, diverged) -> EnvState:
        """Reward, termination and observation of the step that began at s."""
        reward, metrics = jnp.asarray(self.task.reward(view), self.dtype), self._metrics(view)
        ended = None if self.task.terminate is None else self.task.terminate(view)
        variables = self._remember(view)
        obs = self._observe(view)
        not_finite = ~(_is_finite(obs) & jnp.isfinite(reward))
        diverged = diverged | not_finite
        obs, reward = where(not_finite, jax.tree.map(jnp.zeros_like, (obs, reward)), (obs, reward))
        obs, delays = self._disturbances.delayed_observation(s.delays, obs)
        length = s.length + 1
        terminated = diverged if ended is None else diverged | ended
        truncated = jnp.zeros_like(diverged) if self.task.max_steps is None else (length >= self.task.max_steps) & ~terminated
        return EnvState(
            state=view.state,
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            done=terminated | truncated,
            metrics={"return": self._episode_return(s) + reward, "length": length, **metrics},
            info={"final_observation": obs, "diverged": diverged},
            leaves=s.leaves,
            variables=variables,
            key=s.key,
            episode=s.episode,
            length=length,
            delays=delays,
        )

    def _episode_return(self, s: EnvState):
        """Return of the running episode."""
        return jnp.where(s.done, 0, s.metrics["return"]) if self.auto_reset else s.metrics["return"]

    # ---- episodes ------------------------------------------------------------------------------------------------------------

    def _env_keys(self, key):
        """(num_envs,) keys of one, or the keys that were given."""
        if not hasattr(key, "dtype") or not (jnp.issubdtype(key.dtype, jax.dtypes.prng_key) or key.shape[-1:] == (2,)):
            raise TypeError(f"reset needs a random key, jax.random.key(0), or one for each environment; found {key!r}")
        if not key.shape[: 1 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else -1]:
            key = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(self.num_envs))
        return key

    def _new_episode(self, keys, number, previous=None) -> Episode:
        """The start of episode ``number`` (num_envs,) of every environment. previous: variables with which the last one ended."""

        def one(key, number, previous):
            episode_key = jax.random.fold_in(key, number)
            leaves = self._sampler.sample(name_key(episode_key if self.resample else jax.random.fold_in(key, 0), "model"))
            variables = () if self.task.variables is None else self.task.variables(self.model, name_key(episode_key, "variables"))
            if self.task.inherit is not None and previous is not None:
                variables = self.task.inherit(variables, previous)
            if self.task.start is None:
                state = init(self.model.replace(leaves))
                start = state.q, state.v
            else:
                start = self.task.start(self.model, name_key(episode_key, "start"), variables)
            delays = self._disturbances.sample_delays(name_key(episode_key, "delays"))
            return leaves, variables, jax.tree.map(self._as_number, start), delays

        leaves, variables, start, delays = jax.vmap(one)(keys, number, previous)
        q, v = (start.q, start.v) if isinstance(start, State) else start
        if q.shape != (self.num_envs, self.model.nq) or v.shape != (self.num_envs, self.model.nv):
            raise ValueError(f"start must return q ({self.model.nq},) and v ({self.model.nv},), found {q.shape[1:]} and {v.shape[1:]}")
        return Episode(leaves, variables, start if isinstance(start, State) else state_at(self.model, q, v), delays)

    def _as_number(self, x):
        """A float of the model's type; integers as they are."""
        x = jnp.asarray(x)
        return x.astype(self.dtype) if jnp.issubdtype(x.dtype, jnp.floating) else x

    def _example_view(self) -> View:
        """The view after a reset, of which shapes are read."""
        keys, number = self._env_keys(jax.random.key(0)), jnp.zeros(self.num_envs, jnp.int32)
        view = self._view_at_start(self._new_episode(keys, number), _step_keys(keys, number))
        self._remember(view)
        return view

    def _restart(self, s: EnvState) -> EnvState:
        """Begin the next episode where one has ended. Nothing is computed in a step in which none has."""
        number = s.episode + s.done.astype(s.episode.dtype)
        unchanged = Episode(s.leaves, s.variables, s.state, s.delays), s.obs

        def begin():
            episode = self._new_episode(s.key, number, s.variables)
            view = self._view_at_start(episode, _step_keys(s.key, number))
            variables, obs = self._remember(view), self._observe(view)
            delays = self._disturbances.at_start(episode.delays, view.action, obs)
            return where(s.done, (episode._replace(variables=variables, delays=delays), obs), unchanged)

        episode, obs = jax.lax.cond(s.done.any(), begin, lambda: unchanged)
        return s.replace(**episode._asdict(), obs=obs, episode=number, length=jnp.where(s.done, 0, s.length))

    # ---- the task's functions ------------------------------------------------------------------------------------------------

    def _view_at_start(self, episode: Episode, keys) -> View:
        action = jnp.zeros((self.num_envs, *self.action_spec.shape), self.dtype)
        states = Transition(episode.state, episode.state, episode.state)
        return View(self.model.replace(episode.leaves), states, action, self._no_inputs(), episode.variables, keys, fresh=True)

    def _remember(self, view: View):
        """The variables from here on; the view holds them from here on, too."""
        if self.task.remember is not None:
            new = self.task.remember(view)
            view.variables = jax.tree.map(lambda x, old: jnp.asarray(x, old.dtype), new, view.variables)
        return view.variables

    def _rest(self) -> State:
        q = jnp.broadcast_to(jnp.asarray(self.model.topology.initial[0], self.dtype), (self.num_envs, self.model.nq))
        return state_at(self.model, q, jnp.zeros((self.num_envs, self.model.nv), self.dtype))

    def _observe(self, view: View):
        """What the agent sees, before any delay."""
        obs = self._disturbances.noisy(jax.tree.map(lambda x: jnp.asarray(x, self.dtype), self.task.observe(view)), view.keys)
        return jax.tree.map(lambda x, spec: jnp.clip(x, spec.low, spec.high), obs, self.observation_spec)

    def _metrics(self, view: View) -> dict:
        return {} if self.task.metrics is None else dict(self.task.metrics(view))

    def _inputs(self, view: View) -> Inputs:
        zero = self._no_inputs()
        if self._action_map is not None:
            return self._action_map.inputs(view.action, zero)
        inputs = self.task.actuate(view)
        ctrl, tau = inputs if isinstance(inputs, tuple) else (zero.ctrl, inputs)
        return Inputs(jnp.asarray(ctrl, self.dtype), jnp.asarray(tau, self.dtype))

    def _no_inputs(self) -> Inputs:
        return Inputs(*(jnp.zeros((self.num_envs, n), self.dtype) for n in (self.model.nu, self.model.nv)))


def _is_finite(obs):
    """(num_envs,) whether all numbers of an observation are finite."""
    return reduce(jnp.logical_and, (jnp.isfinite(x).reshape(len(x), -1).all(-1) for x in jax.tree.leaves(obs)))


def _step_keys(keys, *numbers):
    """Random keys (num_envs,) of the tasks' functions: those of the environments with whole numbers (num_envs,) folded in."""
    keys = jax.vmap(lambda key: name_key(key, "step"))(keys)
    for number in numbers:
        keys = jax.vmap(jax.random.fold_in)(keys, number)
    return keys
