"""Tasks of the DeepMind Control Suite (Tassa et al., 2018): ``dmc_cartpole_swingup``, ``dmc_walker_walk`` and so on, see `SUITE`.

Models, observations, rewards, starts and lengths of episodes are those of dm_control 1.0.50; the observation is its entries in their order,
as one vector. Episodes have 1000 actions and do not end before. Readings of touch sensors are those of the last simulation step, as there
(`View.evaluated`). Two things differ: MuJoCo's solver runs to rounding here, and where a start is to be without contact, it is without
contact forces, or the last of `ATTEMPTS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from xsim import models
from xsim.dynamics.forward import forward
from xsim.dynamics.initial_state import init
from xsim.dynamics.queries import body_inertia, geom_poses
from xsim.dynamics.step import rollout
from xsim.envs.core import Task, register_task
from xsim.envs.tasks import components, to_body
from xsim.envs.view import View
from xsim.load import load
from xsim.model.model import Model, State, unfrozen
from xsim.spatial import matrix, safe_norm

__all__ = ["SUITE", "tolerance"]

ATTEMPTS = 100
"""Most samples of a start that is to be without contact."""


# ---- rewards -----------------------------------------------------------------------------------------------------------------


def tolerance(x, bounds: tuple[float, float] = (0.0, 0.0), margin: float = 0.0, sigmoid: str = "gaussian", value_at_margin: float = 0.1):
    """1 where x is within the bounds, and less outside: ``value_at_margin`` at a distance of ``margin``.

    sigmoid: how it falls: ``gaussian``, ``linear``, ``quadratic``, ``long_tail``. With margin 0 it is 0 outside. As dm_control's
    ``rewards.tolerance``."""
    low, high = bounds
    inside = (low <= x) & (x <= high)
    if margin == 0:
        return jnp.where(inside, 1.0, 0.0).astype(x.dtype)
    distance = jnp.where(x < low, low - x, x - high) / margin
    return jnp.where(inside, 1.0, _SIGMOIDS[sigmoid](jnp.where(inside, 0.0, distance), value_at_margin))


_SIGMOIDS: dict[str, Callable] = {
    "gaussian": lambda x, v: jnp.exp(math.log(v) * x * x),
    "long_tail": lambda x, v: 1.0 / ((1.0 / v - 1.0) * x * x + 1.0),
    "linear": lambda x, v: jnp.maximum(1.0 - (1.0 - v) * jnp.abs(x), 0.0),
    "quadratic": lambda x, v: jnp.maximum(1.0 - (1.0 - v) * x * x, 0.0),
}


def _small_control(view: View):
    """4/5 for the largest controls, 1 for none."""
    return (4.0 + tolerance(view.ctrl, margin=1.0, sigmoid="quadratic", value_at_margin=0.0).mean(-1)) / 5.0


def _norm(x):
    return safe_norm(components(x))


# ---- what a view shows -------------------------------------------------------------------------------------------------------


def _axes(view: View, body: str):
    """Rotation matrix of a body, (num_envs, 3, 3)."""
    return _matrix(view.data.quat[..., view.body(body), :])


def _matrix(quat):
    return jnp.stack([jnp.stack(row, -1) for row in matrix(components(quat))], -2)


def _pos(view: View, body: str):
    return view.data.pos[..., view.body(body), :]


def _geoms(view: View, *names: str) -> list[tuple]:
    """Positions (num_envs, 3) and orientations (num_envs, 4) of geoms."""
    known = [geom.name for geom in view.model.topology.geoms]
    pos, quat = geom_poses(view.model, view.state.q)
    return [(pos[..., i, :], quat[..., i, :]) for i in map(known.index, names)]


def _height(view: View, body: str):
    """Height of the centre of mass of a body, (num_envs,)."""
    com = body_inertia(view.model)[1][..., view.body(body), :]
    return _pos(view, body)[..., 2] + jnp.sum(_axes(view, body)[..., 2, :] * com, -1)


def _target(view: View):
    """Where the target is, (num_envs, 3): the mocap body of a model that has one."""
    return view.state.mocap[..., 0, :3]


def _vector(*parts):
    """The parts of an observation as one vector; numbers (num_envs,) are vectors of one."""
    return jnp.concatenate([x[..., None] if x.ndim == 1 else x for x in parts], -1)


# ---- starts ------------------------------------------------------------------------------------------------------------------


def _random_joints(model: Model, key):
    """q (nq,): hinges and slides uniform within their limits, hinges without limits uniform up to half a turn from zero, the orientation of
    a free body as dm_control samples it: four uniform numbers, normalized."""
    dtype = model.option.dt.dtype
    q = jnp.asarray(model.topology.initial[0], dtype)
    bounds = _limits(model)
    for body in model.topology.bodies:
        for joint in body.joints:
            first, key = joint.q[0], jax.random.fold_in(key, joint.q[0])
            if joint.type == "free":
                quat = jax.random.uniform(key, (4,), dtype)
                q = q.at[first + 3 : first + 7].set(quat / jnp.linalg.norm(quat))
            elif joint.v[0] in bounds or joint.type == "hinge":
                low, high = bounds.get(joint.v[0], (-math.pi, math.pi))
                q = q.at[first].set(jax.random.uniform(key, (), dtype, low, high))
    return q


def _limits(model: Model) -> dict[int, tuple[float, float]]:
    """Least and greatest position by dof, of the dofs that have limits."""
    sides = {"lower": "limit.lower", "upper": "limit.upper"}
    values = {kind: np.asarray(unfrozen(model.get(path)), float) for kind, path in sides.items()}
    found: dict[int, dict[str, float]] = {}
    for info in model.topology.soft:
        if info.kind in sides:
            found.setdefault(info.items[0], {})[info.kind] = float(values[info.kind][info.row])
    return {dof: (x["lower"], x["upper"]) for dof, x in found.items() if len(x) == 2}


def _still(model: Model, q) -> tuple:
    return q, jnp.zeros(model.nv, model.option.dt.dtype)


def _start_random(model: Model, key, variables):
    return _still(model, _random_joints(model, key))


def _free_of_contact(sample: Callable, model: Model, key):
    """The first q (nq,) of sample(model, key) at which no contact has a force."""

    def again(carry):
        attempt, q = carry
        return (attempt == 0) | (attempt < ATTEMPTS) & (forward(model, init(model, q)).external_force != 0).any()

    def draw(carry):
        attempt, _ = carry
        return attempt + 1, sample(model, jax.random.fold_in(key, attempt))

    return jax.lax.while_loop(again, draw, (0, sample(model, key)))[1]


def _start_free_of_contact(model: Model, key, variables):
    return _still(model, _free_of_contact(_random_joints, model, key))


def _with_target(model: Model, q, target) -> State:
    """A state at rest with the target at a point (3,)."""
    state = init(model, q)
    return state.replace(mocap=state.mocap.at[0, :3].set(target))


# ---- domains -----------------------------------------------------------------------------------------------------------------


def acrobot(margin: float) -> dict:
    """Two arms, the elbow driven; the tip goes to the target above."""

    def reward(view: View):
        tip = _pos(view, "lower_arm") + _axes(view, "lower_arm")[..., 2]
        return tolerance(_norm(jnp.asarray([0.0, 0.0, 4.0], tip.dtype) - tip), (0.0, 0.2), margin)

    def observe(view: View):
        upper, lower = (_axes(view, body) for body in ("upper_arm", "lower_arm"))
        return _vector(upper[..., 0, 2], lower[..., 0, 2], upper[..., 2, 2], lower[..., 2, 2], view.state.v)

    return {"observe": observe, "reward": reward, "start": _start_random}


def ball_in_cup() -> dict:
    """A ball on a string is to be caught in a cup."""

    def sample(model: Model, key):
        across, height = jax.random.split(key)
        dtype = model.option.dt.dtype
        q = jnp.asarray(model.topology.initial[0], dtype).at[2].set(jax.random.uniform(across, (), dtype, -0.2, 0.2))
        return q.at[3].set(jax.random.uniform(height, (), dtype, 0.2, 0.5))

    def reward(view: View):
        away = _pos(view, "cup") + jnp.asarray([0.0, 0.0, -0.05], view.state.q.dtype) - _pos(view, "ball")
        return (jnp.abs(away[..., ::2]) < 0.05 - 0.025).all(-1).astype(away.dtype)

    def start(model: Model, key, variables):
        return _still(model, _free_of_contact(sample, model, key))

    return {"observe": _state, "reward": reward, "start": start, "action_repeat": 10}


def _state(view: View):
    return _vector(view.state.q, view.state.v)


def cartpole(swings_up: bool, sparse: bool) -> dict:
    """A pole on a cart."""

    def reward(view: View):
        place, cosine = view.state.q[..., 0], _axes(view, "pole_1")[..., 2, 2]
        if sparse:
            return tolerance(place, (-0.25, 0.25)) * tolerance(cosine, (0.995, 1.0))
        small_velocity = (1.0 + tolerance(view.state.v[..., 1], margin=5.0)) / 2.0
        return (cosine + 1.0) / 2.0 * _small_control(view) * small_velocity * (1.0 + tolerance(place, margin=2.0)) / 2.0

    def start(model: Model, key, variables):
        place, speed = jax.random.split(key)
        dtype = model.option.dt.dtype
        v = 0.01 * jax.random.normal(speed, (2,), dtype)
        if swings_up:
            return jnp.asarray([0.0, math.pi], dtype) + 0.01 * jax.random.normal(place, (2,), dtype), v
        return jnp.asarray([0.1, 0.034], dtype) * jax.random.uniform(place, (2,), dtype, -1.0, 1.0), v

    def observe(view: View):
        pole = _axes(view, "pole_1")
        return _vector(view.state.q[..., 0], pole[..., 2, 2], pole[..., 0, 2], view.state.v)

    return {"observe": observe, "reward": reward, "start": start}


def cheetah() -> dict:
    """A two-legged cheetah in a plane runs ahead."""

    def start(model: Model, key, variables):
        q = jnp.asarray(model.topology.initial[0], model.option.dt.dtype)
        bounds = _limits(model)
        limited = jnp.asarray([dof in bounds for dof in range(model.nv)])
        state, _ = rollout(model, init(model, jnp.where(limited, _random_joints(model, key), q)), steps=200)
        return state.q, state.v

    def reward(view: View):
        return tolerance(view.sensor("torso_subtreelinvel")[..., 0], (10.0, math.inf), 10.0, "linear", 0.0)

    return {"observe": lambda view: _vector(view.state.q[..., 1:], view.state.v), "reward": reward, "start": start}


def finger(target_size: float | None) -> dict:
    """A finger with two joints turns a spinner: as fast as it can (target_size None), or until the spinner's tip is at the target."""

    def to_target(view: View):
        return (_target(view) - view.sensor("tip"))[..., ::2]

    def distance(view: View):
        return _norm(to_target(view)) - (target_size or 0.0)

    def reward(view: View):
        hit = view.sensor("hinge_velocity")[..., 0] <= -15.0 if target_size is None else distance(view) <= 0
        return hit.astype(view.state.q.dtype)

    def observe(view: View):
        spinner = view.sensor("spinner")
        tip, names = (view.sensor("tip") - spinner)[..., ::2], ("proximal_velocity", "distal_velocity", "hinge_velocity")
        touch = jnp.log1p(jnp.concatenate([view.evaluated.sensor(name) for name in ("touchtop", "touchbottom")], -1))
        parts = [view.sensor("proximal"), view.sensor("distal"), tip, *map(view.sensor, names), touch]
        return _vector(*parts, *([] if target_size is None else [(_target(view) - spinner)[..., ::2], distance(view)]))

    def start(model: Model, key, variables):
        joints, turn = jax.random.split(key)
        angle = jax.random.uniform(turn, (), model.option.dt.dtype, -math.pi, math.pi)
        at = jnp.stack([0.2 + 0.13 * jnp.sin(angle), 0.0 * angle, 0.4 + 0.13 * jnp.cos(angle)])
        return _with_target(model, _free_of_contact(_random_joints, model, joints), at)

    return {"observe": observe, "reward": reward, "start": start, "action_repeat": 2, "substeps": True}


def fish(swims: bool) -> dict:
    """A fish turns upright, or swims to a target."""

    def mouth_to_target(view: View):
        ((pos, quat),) = _geoms(view, "mouth")
        return to_body(quat, _target(view) - pos)

    def reward(view: View):
        upright = _axes(view, "torso")[..., 2, 2]
        if not swims:
            return tolerance(upright, (1.0, 1.0), 1.0)
        return (7.0 * tolerance(_norm(mouth_to_target(view)), (0.0, 0.045), 0.09) + 0.5 * (upright + 1.0)) / 8.0

    def observe(view: View):
        target = [mouth_to_target(view)] if swims else []
        return _vector(view.state.q[..., 7:], _axes(view, "torso")[..., 2, 2], *target, view.state.v)

    def start(model: Model, key, variables):
        turn, joints, place = jax.random.split(key, 3)
        dtype = model.option.dt.dtype
        quat = jax.random.normal(turn, (4,), dtype)
        q = jnp.asarray(model.topology.initial[0], dtype).at[3:7].set(quat / jnp.linalg.norm(quat))
        q = q.at[7:].set(jax.random.uniform(joints, (7,), dtype, -0.2, 0.2))
        low, high = (jnp.asarray(x, dtype) for x in ([-0.4, -0.4, 0.1], [0.4, 0.4, 0.3]))
        return _with_target(model, q, low + (high - low) * jax.random.uniform(place, (3,), dtype))

    return {"observe": observe, "reward": reward, "start": start, "action_repeat": 10}


def hopper(hops: bool) -> dict:
    """A one-legged hopper in a plane stands, or hops ahead."""

    def reward(view: View):
        standing = tolerance(_height(view, "torso") - _height(view, "foot"), (0.6, 2.0))
        if not hops:
            return standing * _small_control(view)
        return standing * tolerance(view.sensor("torso_subtreelinvel")[..., 0], (2.0, math.inf), 1.0, "linear", 0.5)

    def observe(view: View):
        touch = jnp.concatenate([view.evaluated.sensor(name) for name in ("touch_toe", "touch_heel")], -1)
        return _vector(view.state.q[..., 1:], view.state.v, jnp.log1p(touch))

    return {"observe": observe, "reward": reward, "start": _start_random, "action_repeat": 4, "substeps": True}


def humanoid(speed: float, pure_state: bool = False) -> dict:
    """A humanoid gets up and stands, walks or runs. speed: m/s, 0 to stand."""

    def reward(view: View):
        standing = tolerance(_pos(view, "head")[..., 2], (1.4, math.inf), 0.35)
        upright = tolerance(_axes(view, "torso")[..., 2, 2], (0.9, math.inf), 1.9, "linear", 0.0)
        velocity = view.sensor("torso_subtreelinvel")[..., :2]
        if speed:
            move = (5.0 * tolerance(_norm(velocity), (speed, math.inf), speed, "linear", 0.0) + 1.0) / 6.0
        else:
            move = tolerance(velocity, margin=2.0).mean(-1)
        return _small_control(view) * standing * upright * move

    def observe(view: View):
        torso = view.data.quat[..., view.body("torso"), :]
        limbs = [to_body(torso, _pos(view, x) - _pos(view, "torso")) for x in ("left_hand", "left_foot", "right_hand", "right_foot")]
        head, vertical = _pos(view, "head")[..., 2], _axes(view, "torso")[..., 2, :]
        return _vector(view.state.q[..., 7:], head, *limbs, vertical, view.sensor("torso_subtreelinvel"), view.state.v)

    start = _start_free_of_contact
    return {"observe": _state if pure_state else observe, "reward": reward, "start": start, "action_repeat": 5}


def pendulum() -> dict:
    """A pendulum with a weak motor swings up."""

    def observe(view: View):
        pole = _axes(view, "pole")
        return _vector(pole[..., 2, 2], pole[..., 0, 2], view.state.v)

    def reward(view: View):
        return tolerance(_axes(view, "pole")[..., 2, 2], (math.cos(math.radians(8.0)), 1.0))

    return {"observe": observe, "reward": reward, "start": _start_random}


def point_mass() -> dict:
    """A point goes to the middle of the plane."""

    def reward(view: View):
        point, target = (pos for pos, _ in _geoms(view, "pointmass", "target"))
        return tolerance(_norm(target - point), (0.0, 0.015), 0.015) * _small_control(view)

    return {"observe": _state, "reward": reward, "start": _start_random}


def reacher(target_size: float) -> dict:
    """An arm with two joints in a plane reaches a target."""

    def to_target(view: View):
        return (_target(view) - _pos(view, "finger"))[..., :2]

    def reward(view: View):
        return tolerance(_norm(to_target(view)), (0.0, target_size + 0.01))

    def start(model: Model, key, variables):
        joints, turn, reach = jax.random.split(key, 3)
        dtype = model.option.dt.dtype
        angle = jax.random.uniform(turn, (), dtype, 0.0, 2 * math.pi)
        radius = jax.random.uniform(reach, (), dtype, 0.05, 0.2)
        at = jnp.stack([radius * jnp.sin(angle), radius * jnp.cos(angle), 0.0 * angle + 0.01])
        return _with_target(model, _random_joints(model, joints), at)

    return {"observe": lambda view: _vector(view.state.q, to_target(view), view.state.v), "reward": reward, "start": start}


def swimmer(segments: int) -> dict:
    """A snake in a viscous plane swims to a target."""
    bodies = ["head", *(str(i) for i in range(segments - 1))]

    def to_target(view: View):
        ((nose, _),) = _geoms(view, "nose")
        return to_body(view.data.quat[..., view.body("head"), :], _target(view) - nose)[..., :2]

    def reward(view: View):
        return tolerance(_norm(to_target(view)), (0.0, 0.1), 0.5, "long_tail")

    def velocity(view: View, body: str):
        lin, ang = ("head_vel", "head_gyro") if body == "head" else (f"velocimeter_{body}", f"gyro_{body}")
        return jnp.concatenate([view.sensor(lin)[..., :2], view.sensor(ang)[..., 2:]], -1)

    def start(model: Model, key, variables):
        joints, is_close, place = jax.random.split(key, 3)
        dtype = model.option.dt.dtype
        reach = jnp.where(jax.random.uniform(is_close, (), dtype) < 0.2, 0.3, 2.0)
        at = reach * jax.random.uniform(place, (2,), dtype, -1.0, 1.0)
        return _with_target(model, _random_joints(model, joints), jnp.concatenate([at, jnp.full(1, 0.05, dtype)]))

    def observe(view: View):
        return _vector(view.state.q[..., 3:], to_target(view), *(velocity(view, body) for body in bodies))

    return {"observe": observe, "reward": reward, "start": start, "action_repeat": 15}


def walker(speed: float) -> dict:
    """A two-legged walker in a plane gets up and stands, walks or runs. speed: m/s, 0 to stand."""

    def reward(view: View):
        standing = tolerance(_pos(view, "torso")[..., 2], (1.2, math.inf), 0.6)
        stand = (3.0 * standing + (1.0 + _axes(view, "torso")[..., 2, 2]) / 2.0) / 4.0
        if not speed:
            return stand
        move = tolerance(view.sensor("torso_subtreelinvel")[..., 0], (speed, math.inf), speed / 2.0, "linear", 0.5)
        return stand * (5.0 * move + 1.0) / 6.0

    def observe(view: View):
        R = _matrix(view.data.quat)
        axes = jnp.stack([R[..., 0, 0], R[..., 0, 2]], -1)
        return _vector(axes.reshape(*axes.shape[:-2], -1), _pos(view, "torso")[..., 2], view.state.v)

    return {"observe": observe, "reward": reward, "start": _start_random, "action_repeat": 10}


# ---- names -------------------------------------------------------------------------------------------------------------------


def _task(model: str, fields: Callable[[], dict], changes: dict) -> Task:
    """A task of the suite. changes: {selector: value} of numbers of the model."""
    loaded = load(models.path(model), rules="4.0")
    return Task(**{"model": loaded.replace(changes) if changes else loaded, "max_steps": 1000, **fields()})


def _register(domain: str, model: str | None = None, **variants: Callable[[], dict] | tuple[Callable[[], dict], dict]) -> list[str]:
    """Register the tasks of a domain: by their names, the fields of `Task`, or these and changes of the model. Returns their names."""
    for name, variant in variants.items():
        fields, changes = variant if isinstance(variant, tuple) else (variant, {})
        register_task(f"dmc_{domain}_{name}", partial(_task, f"dmc_{model or domain}", fields, changes))
    return [f"dmc_{domain}_{name}" for name in variants]


SUITE = (
    *_register("acrobot", swingup=partial(acrobot, 1.0), swingup_sparse=partial(acrobot, 0.0)),
    *_register("ball_in_cup", catch=ball_in_cup),
    *_register(
        "cartpole",
        balance=partial(cartpole, False, False),
        balance_sparse=partial(cartpole, False, True),
        swingup=partial(cartpole, True, False),
        swingup_sparse=partial(cartpole, True, True),
    ),
    *_register("cheetah", run=cheetah),
    *_register(
        "finger",
        spin=(partial(finger, None), {"dof.damping[spinner]": 0.03}),
        turn_easy=partial(finger, 0.07),
        turn_hard=partial(finger, 0.03),
    ),
    *_register("fish", upright=partial(fish, False), swim=partial(fish, True)),
    *_register("hopper", stand=partial(hopper, False), hop=partial(hopper, True)),
    *_register(
        "humanoid",
        stand=partial(humanoid, 0.0),
        walk=partial(humanoid, 1.0),
        run=partial(humanoid, 10.0),
        run_pure_state=partial(humanoid, 10.0, True),
    ),
    *_register("pendulum", swingup=pendulum),
    *_register("point_mass", easy=point_mass),
    *_register("reacher", easy=partial(reacher, 0.05), hard=(partial(reacher, 0.015), {"geom.size[target, 0]": 0.015})),
    *_register("swimmer", "swimmer6", swimmer6=partial(swimmer, 6)),
    *_register("swimmer", "swimmer15", swimmer15=partial(swimmer, 15)),
    *_register("walker", stand=partial(walker, 0.0), walk=partial(walker, 1.0), run=partial(walker, 8.0)),
)
"""Names of the tasks."""
