"""Env: a model and a task, stepped for a whole batch at once.

``env.reset(key)`` and ``env.step(env_state, action)`` are pure; put them into your own jit, scan and grad. An environment that ends
is started again within the same step: ``obs`` is then the first observation of the next episode and
``info["final_observation"]`` the last one of the episode that ended. Reward, terminated, truncated and metrics are those of the step.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.initial_state import init, state_at
from xsim.dynamics.layout import batch_shape
from xsim.dynamics.step import body_index, forward, rollout, step
from xsim.envs.lag import last_evaluation
from xsim.joints.elementary import name_key
from xsim.load import build, load
from xsim.model.model import Data, Flags, Frozen, Model, State
from xsim.randomize import Sampler, make_sampler
from xsim.spec import ModelSpec
from xsim.suggestions import did_you_mean

__all__ = ["TASKS", "Env", "EnvState", "Spec", "Task", "View", "make_env", "register_task"]


class Inputs(NamedTuple):
    """What drives a step: ctrl (num_envs, nu) and tau (num_envs, nv)."""

    ctrl: Any
    tau: Any


class Passed(NamedTuple):
    """States of one action: before it, before the last simulation step of it, after it."""

    before: State
    last: State
    after: State


class View:
    """What the functions of a task read, batch first.

    model: with the leaves of every environment. state: after the step (or the reset); ``state.time`` is the time in the episode, s.
    before: the state before the action, last: that before the last simulation step of it; both are ``state`` after a reset.
    action: (num_envs, actions), within its bounds; ctrl: (num_envs, nu) and tau: (num_envs, nv), what was applied; all zero after a reset.
    variables: what the task's ``variables`` drew for this episode and ``remember`` made of it since, leading dimension num_envs.
    fresh: whether this is the view after a reset. keys: (num_envs,) random keys of this step.
    """

    def __init__(self, model: Model, passed: Passed, action, inputs: Inputs, variables, keys, fresh: bool = False):
        self.model, self.action, self.variables, self.keys, self.fresh = model, action, variables, keys, fresh
        self.before, self.last, self.state = passed
        self.ctrl, self.tau = inputs

    @cached_property
    def data(self) -> Data:
        """`xsim.forward` of the state with ctrl and tau: poses, velocities, accelerations, sensors. Computed when first asked for."""
        return forward(self.model, self.state, self.ctrl if self.model.nu else None, self.tau)

    @cached_property
    def evaluated(self) -> View:
        """The view at the state at which the last step evaluated the dynamics, see `xsim.envs.lag`. Needs ``Task(substeps=True)``."""
        if self.fresh:
            return self
        if self.last is None:
            raise ValueError("the state before the last simulation step is not kept: give the task substeps=True")
        at, data = last_evaluation(self.model, self.last, self.ctrl if self.model.nu else None, self.tau)
        passed, inputs = Passed(self.before, self.last, at), Inputs(self.ctrl, self.tau)
        view = View(self.model, passed, self.action, inputs, self.variables, self.keys)
        view.data = data
        return view

    def body(self, name: str) -> int:
        """Index of a body in the arrays of ``data``. Raises KeyError."""
        return body_index(self.model, name)

    def q(self, body: str):
        """Coordinates of the joint of a body, (num_envs, its nq)."""
        first, width = self.model.topology.bodies[self.body(body)].q
        return self.state.q[..., first : first + width]

    def v(self, body: str):
        """Velocity of the joint of a body, (num_envs, its nv)."""
        first, width = self.model.topology.bodies[self.body(body)].v
        return self.state.v[..., first : first + width]


def _everything(view: View):
    return jnp.concatenate([view.state.q, view.state.v], -1)


@dataclass(frozen=True)
class Task:
    """What the agent sees, does and is paid for. Functions of a `View` work on the whole batch; those of a key on one environment.

    model: name of a bundled model or a file; options: how to load it, as `xsim.load` takes them.
    observe(view) -> (num_envs, n), reward(view) -> (num_envs,).
    terminate(view) -> (num_envs,) bool. metrics(view) -> {name: (num_envs,)}.
    remember(view) -> the variables from here on, of the same structure, shapes and types: the last action, a foot's time in the air, a
    new command. Called after every step and every reset; reward, termination and metrics still see the variables before, the
    observation those after.
    start(model, key, variables) -> (q, v): (nq,), (nv,), the state an episode starts from; None: neutral, at rest.
    variables(model, key) -> pytree of arrays drawn for an episode (a goal, a reference). In both, ``model`` is the common one.
    gear: {body: force per unit of action}, N or N m, one number or one per velocity of its joint; where it is zero nothing drives. None:
    the actions are the model's controls (-1 and 1 are the bounds of a control that has some); of a model without controls 1 N or 1 N m
    on every coordinate. actuate(view) -> tau, or (ctrl, tau), replaces it for a task with ``actions`` numbers of its own; ``view`` is
    then that before the step.
    bounds: (low, high) that the observation is clipped to, numbers or (n,), or a function of the model that returns them.
    action_repeat: simulation steps per action. substeps: whether ``view.last`` is needed (otherwise it is None after a step).
    max_steps: actions until an episode is truncated, None for never.
    randomize: as in `make_env`.
    """

    reward: Callable[[View], Any]
    observe: Callable[[View], Any] = _everything
    terminate: Callable[[View], Any] | None = None
    model: str | Path | None = None
    start: Callable | None = None
    variables: Callable | None = None
    remember: Callable[[View], Any] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    gear: Mapping[str, Any] | None = None
    actuate: Callable[[View], Any] | None = None
    actions: int | None = None
    metrics: Callable[[View], dict] | None = None
    bounds: tuple | Callable[[Model], tuple] = (-math.inf, math.inf)
    action_repeat: int = 1
    substeps: bool = False
    max_steps: int | None = 1000
    randomize: Any = None


TASKS: dict[str, Task] = {}


def register_task(name: str, task: Task) -> Task:
    """Make a task known to `make_env`. Raises ValueError where the name is taken by another."""
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


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class EnvState:
    """Everything that goes from step to step; a pytree whose leaves have the leading dimension num_envs.

    obs: (num_envs, n). reward: (num_envs,). terminated, truncated, done (either): (num_envs,) bool.
    metrics: ``return`` and ``length`` of the episode up to this step, then the task's. info: ``final_observation`` (num_envs, n), the
    observation before any restart; ``diverged`` (num_envs,) bool. leaves: {path: (num_envs, *shape)}, model leaves that differ.
    variables: the task's. key, episode: of each environment; together they give all its random numbers. length: steps so far.
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

    def replace(self, **changes) -> EnvState:
        return dataclasses.replace(self, **changes)


def make_env(
    name_or_path,
    *,
    num_envs: int,
    randomize=None,
    task: Task | None = None,
    redraw: bool = True,
    auto_reset: bool = True,
    velocity_limit: float = 1e5,
    seed: int = 0,
    **changes,
) -> Env:
    """A batch of environments.

    name_or_path: a registered task, or a model (file, `ModelSpec` or `Model`) for ``task``; without ``task``, ``changes`` make one.
    randomize: None: as the task says. False: all environments have the model of the file. True: axes and positions are drawn per
    environment. A dict, YAML file or name: ranges of `xsim.randomize`. redraw: draw again at every episode, not only at `Env.reset`.
    auto_reset: start ended environments again within the step. velocity_limit: an environment with a velocity beyond it (m/s, rad/s)
    counts as diverged, as one that is not finite does: it terminates, and is started again, without touching the others.
    seed: for what is drawn once for all environments. changes: fields of the task to replace, e.g. ``max_steps=200``.

    Raises KeyError for an unknown name, ValueError for arguments that do not fit the model.
    """
    model: Any
    if isinstance(name_or_path, (Model, ModelSpec)):
        model = name_or_path
    elif str(name_or_path) in TASKS:
        if task is not None:
            raise ValueError(f"{name_or_path!r} is a task; task= goes with a model")
        task = TASKS[str(name_or_path)]
        model = task.model
    elif Path(name_or_path).is_file():
        model = name_or_path
    else:
        name = str(name_or_path)
        raise KeyError(f"no task and no file {name!r}{did_you_mean(name, TASKS)}; tasks: {', '.join(TASKS)}")
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
    return Env(_with_shared(sampler, seed), task, num_envs, redraw=redraw, auto_reset=auto_reset, velocity_limit=velocity_limit)


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


class Env:
    """Made by `make_env`. num_envs; model: the common model; task; action_spec, observation_spec: `Spec` of one environment."""

    def __init__(self, sampler: Sampler, task: Task, num_envs: int, *, redraw: bool, auto_reset: bool, velocity_limit: float):
        self.model, self.task, self.num_envs = sampler.model, task, num_envs
        self.redraw, self.auto_reset, self.velocity_limit = redraw, auto_reset, velocity_limit
        self._sampler = sampler
        self._bounds = task.bounds(self.model) if callable(task.bounds) else task.bounds
        if num_envs < 1 or task.action_repeat < 1 or (task.max_steps is not None and task.max_steps < 1):
            raise ValueError("num_envs, action_repeat and max_steps must be at least 1")
        if batch_shape(self.model) not in ((), (num_envs,)):
            raise ValueError(f"the model has leaves for a batch {batch_shape(self.model)}, not for {num_envs} environments")
        for path in sampler.varying:
            if self.model.get(path).shape != self.model.shape(path):
                raise ValueError(f"{path} differs between environments already and cannot be sampled as well")
        self.dtype = np.dtype(self.model.option.dt.dtype)
        self._driven = None if task.actuate is not None else _drives(self.model, task.gear)
        if task.actuate is not None and task.actions is None:
            raise ValueError("a task with actuate must say how many actions it takes")
        actions = task.actions if self._driven is None else self._driven.actions
        self.action_spec = _spec((actions,), -1.0, 1.0, self.dtype)
        obs = jax.eval_shape(lambda: jnp.asarray(task.observe(self._first_view())))
        if obs.ndim != 2 or obs.shape[0] != num_envs:
            raise ValueError(f"observe must return ({num_envs}, n), found {obs.shape}")
        self.observation_spec = _spec(obs.shape[1:], *self._bounds, self.dtype)

    def reset(self, key) -> EnvState:
        """Start all environments. key: one, of which environment i depends on it and i alone, not on num_envs; or (num_envs,) keys."""
        keys, episode = self._first(key)
        leaves, variables, state = self._begin(keys, episode)
        view = self._still(leaves, variables, state, _fold(keys, episode))
        metrics, variables = self._metrics(view), self._remember(view)
        obs, no = self._observe(view), jnp.zeros(self.num_envs, bool)
        zero = jnp.zeros(self.num_envs, self.dtype)
        length = jnp.zeros(self.num_envs, jnp.int32)
        return EnvState(
            state=state,
            obs=obs,
            reward=zero,
            terminated=no,
            truncated=no,
            done=no,
            metrics={"return": zero, "length": length, **metrics},
            info={"final_observation": obs, "diverged": no},
            leaves=leaves,
            variables=variables,
            key=keys,
            episode=episode,
            length=length,
        )

    def step(self, env_state: EnvState, action) -> EnvState:
        """One action in every environment. action: (num_envs, actions), clipped to the action's bounds.

        An environment that diverges (see `make_env`) or is given NaN ends with its last healthy state as the final one; its numbers
        and its gradients stay finite, and so do those of the others.
        """
        s = env_state
        action = jnp.asarray(action, self.dtype)
        if action.shape != (self.num_envs, *self.action_spec.shape):
            raise ValueError(f"action must have shape {(self.num_envs, *self.action_spec.shape)}, found {action.shape}")
        invalid = jnp.isnan(action).any(-1)
        action = _where(invalid, jnp.zeros_like(action), jnp.clip(action, self.action_spec.low, self.action_spec.high))
        length = s.length + 1
        keys = _fold(s.key, s.episode, length)
        before = View(self.model.replace(s.leaves), Passed(s.state, s.state, s.state), action, Inputs(None, None), s.variables, keys)
        inputs = self._inputs(before)
        how = Steps(self.task.action_repeat, self.velocity_limit, self.task.substeps)
        after, substep = _advance(how, before.model, self.model, s.state, inputs)
        diverged = invalid | _unhealthy(after, self.velocity_limit)
        last = _where(_unhealthy(s.state, self.velocity_limit), self._rest(), s.state)
        state = _where(diverged, last.replace(flags=last.flags | Flags.DIVERGED), after)
        substep = None if substep is None else _where(diverged, state, substep)
        leaves = {p: _where(diverged, jnp.broadcast_to(self.model.get(p), x.shape), x) for p, x in s.leaves.items()}
        inputs = _where(diverged, jax.tree.map(jnp.zeros_like, inputs), inputs)
        passed = Passed(_where(diverged, state, s.state), substep, state)
        view = View(self.model.replace(leaves), passed, action, inputs, s.variables, keys)

        reward, metrics = jnp.asarray(self.task.reward(view), self.dtype), self._metrics(view)
        fallen = None if self.task.terminate is None else self.task.terminate(view)
        variables = self._remember(view)
        obs = self._observe(view)
        wrong = ~(jnp.isfinite(obs).all(-1) & jnp.isfinite(reward))
        diverged = diverged | wrong
        obs, reward = _where(wrong, jnp.zeros_like(obs), obs), _where(wrong, jnp.zeros_like(reward), reward)
        terminated = diverged if fallen is None else diverged | fallen
        truncated = jnp.zeros_like(diverged) if self.task.max_steps is None else (length >= self.task.max_steps) & ~terminated
        done = terminated | truncated
        result = EnvState(
            state=state,
            obs=obs,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            done=done,
            metrics={"return": _so_far(s, self.auto_reset) + reward, "length": length, **metrics},
            info={"final_observation": obs, "diverged": diverged},
            leaves=s.leaves,
            variables=variables,
            key=s.key,
            episode=s.episode,
            length=length,
        )
        return self._restart(result) if self.auto_reset else result

    # ---- episodes ------------------------------------------------------------------------------------------------------------

    def _first(self, key):
        if not key.shape[: 1 if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else -1]:
            key = jax.vmap(lambda i: jax.random.fold_in(key, i))(jnp.arange(self.num_envs))
        return key, jnp.zeros(self.num_envs, jnp.int32)

    def _begin(self, keys, episode) -> tuple[dict, Any, State]:
        """Leaves, variables and state of the given episode of every environment."""

        def one(key, number):
            fresh = jax.random.fold_in(key, number)
            leaves = self._sampler.sample(name_key(fresh if self.redraw else jax.random.fold_in(key, 0), "model"))
            variables = () if self.task.variables is None else self.task.variables(self.model, name_key(fresh, "variables"))
            if self.task.start is None:
                first = init(self.model.replace(leaves))
                q, v = first.q, first.v
            else:
                q, v = self.task.start(self.model, name_key(fresh, "start"), variables)
            return leaves, variables, jnp.asarray(q, self.dtype), jnp.asarray(v, self.dtype)

        leaves, variables, q, v = jax.vmap(one)(keys, episode)
        if q.shape != (self.num_envs, self.model.nq) or v.shape != (self.num_envs, self.model.nv):
            raise ValueError(f"start must return q ({self.model.nq},) and v ({self.model.nv},), found {q.shape[1:]} and {v.shape[1:]}")
        return leaves, variables, state_at(self.model, q, v)

    def _first_view(self) -> View:
        keys, episode = self._first(jax.random.key(0))
        view = self._still(*self._begin(keys, episode), _fold(keys, episode))
        self._remember(view)
        return view

    def _restart(self, s: EnvState) -> EnvState:
        """Begin the next episode where one has ended. Nothing is computed in a step in which none has."""
        episode = s.episode + s.done.astype(s.episode.dtype)
        held = (s.leaves, s.variables, s.state, s.obs)

        def begin():
            leaves, variables, state = self._begin(s.key, episode)
            view = self._still(leaves, variables, state, _fold(s.key, episode))
            variables = self._remember(view)
            return _where(s.done, (leaves, variables, state, self._observe(view)), held)

        leaves, variables, state, obs = jax.lax.cond(s.done.any(), begin, lambda: held)
        length = jnp.where(s.done, 0, s.length)
        return s.replace(leaves=leaves, variables=variables, state=state, obs=obs, episode=episode, length=length)

    # ---- the task's functions ------------------------------------------------------------------------------------------------

    def _still(self, leaves, variables, state, keys) -> View:
        zero = partial(jnp.zeros, dtype=self.dtype)
        inputs = Inputs(zero((self.num_envs, self.model.nu)), zero((self.num_envs, self.model.nv)))
        action = zero((self.num_envs, *self.action_spec.shape))
        return View(self.model.replace(leaves), Passed(state, state, state), action, inputs, variables, keys, fresh=True)

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
        low, high = (jnp.asarray(x, self.dtype) for x in self._bounds)
        return jnp.clip(jnp.asarray(self.task.observe(view), self.dtype), low, high)

    def _metrics(self, view: View) -> dict:
        return {} if self.task.metrics is None else dict(self.task.metrics(view))

    def _inputs(self, view: View) -> Inputs:
        ctrl, tau = (jnp.zeros((self.num_envs, n), self.dtype) for n in (self.model.nu, self.model.nv))
        if self._driven is None:
            given = self.task.actuate(view)
            ctrl, tau = given if isinstance(given, tuple) else (ctrl, given)
            return Inputs(jnp.asarray(ctrl, self.dtype), jnp.asarray(tau, self.dtype))
        if self._driven.dofs is not None:
            return Inputs(ctrl, tau.at[:, self._driven.dofs].set(view.action * jnp.asarray(self._driven.scale, self.dtype)))
        return Inputs(jnp.asarray(self._driven.middle, self.dtype) + view.action * jnp.asarray(self._driven.scale, self.dtype), tau)


def _fold(keys, *numbers):
    """Random keys (num_envs,) of the tasks' functions: those of the environments with whole numbers (num_envs,) folded in."""
    keys = jax.vmap(lambda key: name_key(key, "step"))(keys)
    for number in numbers:
        keys = jax.vmap(jax.random.fold_in)(keys, number)
    return keys


def _so_far(s: EnvState, auto_reset: bool):
    """Return of the running episode."""
    return jnp.where(s.done, 0, s.metrics["return"]) if auto_reset else s.metrics["return"]


class Driven(NamedTuple):
    """What the actions drive: scale times them the coordinates ``dofs``, or with ``dofs`` None the controls, from ``middle``."""

    dofs: np.ndarray | None
    scale: np.ndarray
    middle: np.ndarray | None = None

    @property
    def actions(self) -> int:
        return len(self.scale)


def _drives(model: Model, gear) -> Driven:
    if gear is None and model.nu:
        ranges = np.tile([-1.0, 1.0], (model.nu, 1))
        first = model.nu - len(model.topology.actuators)
        known = model.get("actuator.ctrl_range")
        known = np.asarray(known.value if isinstance(known, Frozen) else known, float)
        for i, info in enumerate(model.topology.actuators):
            if info.ctrl_range is not None:
                ranges[first + i] = known[..., info.ctrl_range, :].reshape(-1, 2)[0]
        return Driven(None, (ranges[:, 1] - ranges[:, 0]) / 2, ranges.mean(1))
    if gear is None:
        return Driven(np.arange(model.nv), np.ones(model.nv))
    dofs, forces = [], []
    for body, value in gear.items():
        first, width = model.topology.bodies[body_index(model, body)].v
        value = np.asarray(value, float)
        if value.shape not in ((), (width,)):
            raise ValueError(f"gear of {body!r} must be one number or {width}, found {value.shape}")
        for k, force in enumerate(np.broadcast_to(value, (width,))):
            if force != 0:
                dofs.append(first + k)
                forces.append(force)
    if not dofs:
        raise ValueError("gear drives no coordinate")
    return Driven(np.array(dofs), np.array(forces))


# ---- one step that keeps a diverging environment to itself ---------------------------------------------------------------------


def _where(mask, x, y):
    """x where mask (num_envs,) holds, else y; pytrees with the leading dimension num_envs."""
    return jax.tree.map(lambda a, b: jnp.where(mask.reshape(mask.shape + (1,) * (jnp.ndim(b) - 1)), a, b), x, y)


def _unhealthy(state: State, velocity_limit: float):
    """(num_envs,) bool: diverged, not finite, or faster than the limit."""
    moving = jnp.isfinite(state.q).all(-1) & (jnp.abs(state.v) <= velocity_limit).all(-1)
    return ~moving | ((state.flags & Flags.DIVERGED) != 0)


class Steps(NamedTuple):
    """How an action is simulated: steps, the velocity beyond which they diverge, whether the state before the last is wanted."""

    repeat: int
    velocity_limit: float
    last: bool


def _run(how: Steps, model: Model, state: State, inputs: Inputs) -> tuple[State, State | None]:
    """The state after the steps, and that before the last of them where it is wanted."""
    ctrl = inputs.ctrl if model.nu else None
    if how.repeat == 1:
        return step(model, state, ctrl, inputs.tau), state if how.last else None
    ctrls, taus = (None if x is None else jnp.broadcast_to(x, (how.repeat, *x.shape)) for x in (ctrl, inputs.tau))
    final, kept = rollout(model, state, ctrls, taus=taus, record=_state if how.last else None)
    return final, jax.tree.map(lambda x: x[-2], kept) if how.last else None


def _state(state: State, data: Data) -> State:
    return state


@partial(jax.custom_jvp, nondiff_argnums=(0,))
def _advance(how: Steps, model: Model, common: Model, state: State, inputs: Inputs) -> tuple[State, State | None]:
    """Steps as `_run` makes them. Derivatives of environments that diverge are zero; those of the others do not see them.

    A derivative of a number that is not finite is NaN even where its cotangent is zero, and sums over the batch (shared leaves, a
    policy's parameters) would spread it. The derivative is therefore taken where diverged environments rest in the neutral
    configuration with the common model. This costs one more evaluation of the step, and only where derivatives are taken.
    """
    return _run(how, model, state, inputs)


@_advance.defjvp
def _advance_jvp(how, primals, tangents):
    model, common, state, inputs = primals
    dmodel, _, dstate, dinputs = tangents
    after = _advance(how, model, common, state, inputs)
    wild = [~jnp.isfinite(x).all(-1) for x in inputs]
    bad = jax.lax.stop_gradient(reduce(jnp.logical_or, wild, _unhealthy(after[0], how.velocity_limit)))
    neutral = jnp.broadcast_to(jnp.asarray(model.topology.neutral, state.q.dtype), state.q.shape)
    rest = state_at(model, neutral, jnp.zeros_like(state.v))
    safe = (_healed(bad, model, common), _where(bad, rest, state), _where(bad, jax.tree.map(jnp.zeros_like, inputs), inputs))
    mask = partial(_masked, bad)
    moved = (_masked_leaves(bad, model, dmodel), jax.tree.map(mask, dstate), jax.tree.map(mask, dinputs))
    out, dout = jax.jvp(partial(_run, how), safe, moved)
    return after, jax.tree.map(mask, dout)


def _per_environment(model: Model):
    """A tree of the model: whether each leaf has its own value in every environment."""
    flags = model
    for path in model.paths():
        leaf = model.get(path)
        if not isinstance(leaf, Frozen):
            flags = flags._put(path, leaf.ndim > len(model.shape(path)))
    return flags


def _healed(bad, model: Model, common: Model) -> Model:
    """Leaves of bad environments from the common model, where that has the leaf."""

    def heal(each, leaf, nominal):
        return _where(bad, jnp.broadcast_to(nominal, leaf.shape), leaf) if each and nominal.ndim < leaf.ndim else leaf

    return jax.tree.map(heal, _per_environment(model), model, common)


def _masked(bad, tangent):
    if tangent.dtype == jax.dtypes.float0:
        return tangent
    return _where(bad, jnp.zeros_like(tangent), tangent)


def _masked_leaves(bad, model: Model, tangents: Model) -> Model:
    return jax.tree.map(lambda each, t: _masked(bad, t) if each else t, _per_environment(model), tangents)
