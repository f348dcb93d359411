"""The locomotion tasks of gymnasium's MuJoCo environments, version 5: ``ant``, ``half_cheetah``, ``hopper``, ``humanoid``, ``reacher``.

Observations, rewards, terminations, resets and numbers are gymnasium's (gymnasium/envs/mujoco/*_v5.py), with two differences: actions
are always between -1 and 1 (gymnasium's humanoid takes controls between -0.4 and 0.4), and an environment that ends is started again.
As there, what is not a position or velocity (poses, contact forces, inertias) is that of the last evaluation of the dynamics within the
step, which Runge-Kutta makes near its end (`View.evaluated`); ``lagged=False`` takes the state after the step instead, which costs three
evaluations fewer. Each function below makes a variant of a task: ``make_env("ant", task=ant(ctrl_weight=0.1), ...)`` needs the model,
``make_env(xsim.models.path("ant"), task=ant(...), num_envs=...)``.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.queries import body_inertia
from xsim.envs.core import Task, register_task
from xsim.envs.tasks import components, to_world
from xsim.envs.view import View
from xsim.model.model import Model

__all__ = ["ant", "half_cheetah", "hopper", "humanoid", "reacher"]


# ---- starts ------------------------------------------------------------------------------------------------------------------


def _uniform(key, shape, scale: float, dtype):
    return jax.random.uniform(key, shape, dtype, -scale, scale)


def _start(noise: float, normal: bool = False):
    """The model's configuration plus uniform noise (also on quaternions, as gymnasium has it); velocities uniform or normal."""

    def start(model: Model, key, variables):
        dtype = model.option.dt.dtype
        place, speed = jax.random.split(key)
        q = jnp.asarray(model.topology.initial[0], dtype) + _uniform(place, (model.nq,), noise, dtype)
        if normal:
            return q, noise * jax.random.normal(speed, (model.nv,), dtype)
        return q, _uniform(speed, (model.nv,), noise, dtype)

    return start


# ---- quantities of a view ----------------------------------------------------------------------------------------------------


def _evaluated(view: View, lagged: bool) -> View:
    """The view that poses, forces and inertias are read from."""
    return view.evaluated if lagged else view


def _duration(view: View, repeat: int):
    """Time of an action, s."""
    return view.model.option.dt * repeat


def _square(x):
    return jnp.sum(jnp.square(x), -1)


def _com_frames(view: View):
    """Mass (..., nbody), offset of every body's centre of mass from that of all bodies and that of all, (..., nbody, 3) and (..., 1, 3)."""
    mass, com, _ = body_inertia(view.model)
    quat, pos = view.data.quat, view.data.pos
    centre = pos + to_world(quat, com)
    common = jnp.sum(mass[..., None] * centre, -2, keepdims=True) / jnp.sum(mass, -1)[..., None, None]
    return mass, centre - common, common


def com_inertia(view: View):
    """Inertias of the bodies about the centre of mass of all, world axes: (..., nbody, 10) as xx yy zz xy xz yz, m d, m (MuJoCo's cinert).

    d: the body's centre of mass from the common one, m. For models that are one tree.
    """
    mass, offset, _ = _com_frames(view)
    xx, yy, zz, xy, xz, yz = components(body_inertia(view.model)[2])
    inertia = jnp.stack([jnp.stack(row, -1) for row in ((xx, xy, xz), (xy, yy, yz), (xz, yz, zz))], -2)
    R = jnp.stack([to_world(view.data.quat, axis) for axis in np.eye(3)], -1)
    rotated = jnp.einsum("...ij,...jk,...lk->...il", R, inertia, R, precision=jax.lax.Precision.HIGHEST)
    x, y, z = components(offset)
    m = jnp.broadcast_to(mass, x.shape)
    shift = [y * y + z * z, x * x + z * z, x * x + y * y, -x * y, -x * z, -y * z]
    entries = [rotated[..., i, j] for i, j in ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))]
    return jnp.stack([*(a + m * b for a, b in zip(entries, shift, strict=True)), m * x, m * y, m * z, m], -1)


def com_velocity(view: View):
    """Angular velocities of the bodies, velocities of their points at the centre of mass of all: (..., nbody, 6) (MuJoCo's cvel)."""
    _, _, common = _com_frames(view)
    ang = view.data.ang
    return jnp.concatenate([ang, view.data.lin + jnp.cross(ang, common - view.data.pos)], -1)


def com_wrench(view: View):
    """Moment about the centre of mass of all, and force, of the contacts on every body: (..., nbody, 6), world axes (MuJoCo's cfrc_ext)."""
    force, moment = view.data.external_force, view.data.external_moment
    _, _, common = _com_frames(view)
    return jnp.concatenate([moment + jnp.cross(view.data.pos - common, force), force], -1)


def _flat(x):
    return x.reshape(*x.shape[:-2], -1)


def _healthy_range(x, bounds: tuple[float, float]):
    return (bounds[0] <= x) & (x <= bounds[1])


# ---- tasks -------------------------------------------------------------------------------------------------------------------


def _task(model: str, repeat: int, terms, fields: dict, *, place=None, metrics=None, lagged: bool = False, **known) -> Task:
    """A task whose reward is the sum of ``terms(view) -> {name: (num_envs,)}``.

    place(view) -> (num_envs, 2): where the robot is. It is remembered from step to step for `_velocity`, which ``terms`` call.
    """

    def variables(model: Model, key):
        return {"place": jnp.zeros(2, model.option.dt.dtype)}

    def all_metrics(view: View):
        return {**terms(view), **(metrics(view) if metrics else {})}

    if place is not None:
        known |= {"variables": variables, "remember": lambda view: {"place": place(view)}}
    return Task(**{
        "model": model,
        "options": {"rules": "4.0"},
        "reward": lambda view: sum(terms(view).values()),
        "metrics": all_metrics,
        "action_repeat": repeat,
        "substeps": lagged,
        "max_steps": 1000,
        **known,
        **fields,
    })  # fmt: skip


def ant(
    *,
    forward_weight: float = 1.0,
    ctrl_weight: float = 0.5,
    contact_weight: float = 5e-4,
    healthy_reward: float = 1.0,
    healthy_z: tuple[float, float] = (0.2, 1.0),
    contact_range: tuple[float, float] = (-1.0, 1.0),
    noise: float = 0.1,
    lagged: bool = True,
    **fields,
) -> Task:
    """Walk along x with four legs and eight motors. Observation (105,): q without x and y, v, contact wrench of every body."""
    repeat = 5

    def wrench(view: View):
        return jnp.clip(_flat(com_wrench(_evaluated(view, lagged))), *contact_range)

    def place(view: View):
        return _evaluated(view, lagged).data.pos[..., 0, :2]

    def healthy(view: View):
        return _healthy_range(view.state.q[..., 2], healthy_z)

    def terms(view: View):
        velocity = _velocity(view, place, repeat)
        return {
            "reward_forward": forward_weight * velocity[..., 0],
            "reward_survive": healthy_reward * healthy(view).astype(velocity.dtype),
            "reward_ctrl": -ctrl_weight * _square(view.ctrl),
            "reward_contact": -contact_weight * _square(wrench(view)),
        }

    def observe(view: View):
        return jnp.concatenate([view.state.q[..., 2:], view.state.v, wrench(view)], -1)

    return _task("ant", repeat, terms, fields, place=place, lagged=lagged, observe=observe,
                 metrics=_traveled, terminate=lambda view: ~healthy(view), start=_start(noise, normal=True))  # fmt: skip


def _velocity(view: View, place, repeat: int):
    """Mean velocity over the action (num_envs, 2), m/s; zero after a reset."""
    position = place(view)
    return jnp.zeros_like(position) if view.fresh else (position - view.variables["place"]) / _duration(view, repeat)


def _traveled(view: View) -> dict:
    return {"x_position": view.state.q[..., 0], "y_position": view.state.q[..., 1]}


def half_cheetah(*, forward_weight: float = 1.0, ctrl_weight: float = 0.1, noise: float = 0.1, **fields) -> Task:
    """Run along x in a vertical plane with six motors. Observation (17,): q without x, v. Never ends before its time limit."""
    terms = _runner(5, forward_weight, ctrl_weight)

    def observe(view: View):
        return jnp.concatenate([view.state.q[..., 1:], view.state.v], -1)

    return _task("half_cheetah", 5, terms, fields, observe=observe, metrics=_along, start=_start(noise, normal=True))


def _runner(repeat: int, forward_weight: float, ctrl_weight: float):
    def terms(view: View):
        velocity = (view.state.q[..., 0] - view.before.q[..., 0]) / _duration(view, repeat)
        return {"reward_forward": forward_weight * velocity, "reward_ctrl": -ctrl_weight * _square(view.ctrl)}

    return terms


def _along(view: View) -> dict:
    return {"x_position": view.state.q[..., 0]}


def hopper(
    *,
    forward_weight: float = 1.0,
    ctrl_weight: float = 1e-3,
    healthy_reward: float = 1.0,
    healthy_state: tuple[float, float] = (-100.0, 100.0),
    healthy_z: tuple[float, float] = (0.7, math.inf),
    healthy_angle: tuple[float, float] = (-0.2, 0.2),
    noise: float = 5e-3,
    **fields,
) -> Task:
    """Hop along x on one leg with three motors. Observation (11,): q without x, v clipped to +-10."""
    running = _runner(4, forward_weight, ctrl_weight)

    def healthy(view: View):
        q, v = view.state.q, view.state.v
        both = jnp.concatenate([q[..., 2:], v], -1)
        is_healthy = ((healthy_state[0] < both) & (both < healthy_state[1])).all(-1)
        for x, (low, high) in ((q[..., 1], healthy_z), (q[..., 2], healthy_angle)):
            is_healthy = is_healthy & (low < x) & (x < high)
        return is_healthy

    def terms(view: View):
        return {**running(view), "reward_survive": healthy_reward * healthy(view).astype(view.state.q.dtype)}

    def observe(view: View):
        return jnp.concatenate([view.state.q[..., 1:], jnp.clip(view.state.v, -10.0, 10.0)], -1)

    return _task("hopper", 4, terms, fields, observe=observe, metrics=_along, terminate=lambda view: ~healthy(view), start=_start(noise))


def humanoid(
    *,
    forward_weight: float = 1.25,
    ctrl_weight: float = 0.1,
    contact_weight: float = 5e-7,
    contact_bounds: tuple[float, float] = (-math.inf, 10.0),
    healthy_reward: float = 5.0,
    healthy_z: tuple[float, float] = (1.0, 2.0),
    noise: float = 1e-2,
    lagged: bool = True,
    **fields,
) -> Task:
    """Walk along x with seventeen motors.

    Observation (348,): q without x and y, v, then of every body inertia and velocity about the common centre of mass, the motors' torques,
    and the contact wrench of every body.
    """
    repeat = 5

    def place(view: View):
        return _com_frames(_evaluated(view, lagged))[2][..., 0, :2]

    def healthy(view: View):
        z = view.state.q[..., 2]
        return (healthy_z[0] < z) & (z < healthy_z[1])

    def terms(view: View):
        velocity = _velocity(view, place, repeat)
        contact = contact_weight * _square(_flat(com_wrench(_evaluated(view, lagged))))
        return {
            "reward_forward": forward_weight * velocity[..., 0],
            "reward_survive": healthy_reward * healthy(view).astype(velocity.dtype),
            "reward_ctrl": -ctrl_weight * _square(view.ctrl),
            "reward_contact": -jnp.clip(contact, *contact_bounds),
        }

    def observe(view: View):
        evaluated = _evaluated(view, lagged)
        inertia, velocity, contact = (_flat(f(evaluated)) for f in (com_inertia, com_velocity, com_wrench))
        torques = evaluated.data.actuator[..., 6:]
        return jnp.concatenate([view.state.q[..., 2:], view.state.v, inertia, velocity, torques, contact], -1)

    return _task("humanoid_v5", repeat, terms, fields, place=place, lagged=lagged, observe=observe,
                 metrics=_traveled, terminate=lambda view: ~healthy(view), start=_start(noise))  # fmt: skip


GOALS = 0.2  # m, radius of the disc that the reacher's goals lie in


def reacher(*, distance_weight: float = 1.0, ctrl_weight: float = 1.0, lagged: bool = True, **fields) -> Task:
    """Bring the tip of an arm of two links to a goal. Observation (10,): cos, sin of the joints, goal, velocities, tip minus goal."""

    def start(model: Model, key, variables):
        dtype = model.option.dt.dtype
        place, speed, radius, angle = jax.random.split(key, 4)
        q = jnp.asarray(model.topology.initial[0], dtype) + _uniform(place, (model.nq,), 0.1, dtype)
        # The root of a uniform number: goals are spread evenly over the disc.
        r, a = GOALS * jnp.sqrt(jax.random.uniform(radius, (), dtype)), _uniform(angle, (), math.pi, dtype)
        goal = jnp.stack([r * jnp.cos(a), r * jnp.sin(a)])
        v = _uniform(speed, (model.nv,), 0.005, dtype)
        return q.at[-2:].set(goal), v.at[-2:].set(0.0)

    def tip_from_goal(view: View):
        pos = _evaluated(view, lagged).data.pos
        return pos[..., view.body("fingertip"), :] - pos[..., view.body("target"), :]

    def terms(view: View):
        square = _square(tip_from_goal(view))
        at_goal = square == 0
        distance = jnp.where(at_goal, 0.0, jnp.sqrt(jnp.where(at_goal, 1.0, square)))
        return {"reward_dist": -distance_weight * distance, "reward_ctrl": -ctrl_weight * _square(view.ctrl)}

    def observe(view: View):
        q, v = view.state.q, view.state.v
        return jnp.concatenate([jnp.cos(q[..., :2]), jnp.sin(q[..., :2]), q[..., 2:], v[..., :2], tip_from_goal(view)[..., :2]], -1)

    return _task("reacher", 2, terms, {"max_steps": 50, **fields}, lagged=lagged, observe=observe, start=start)


register_task("ant", ant())
register_task("half_cheetah", half_cheetah())
register_task("hopper", hopper())
register_task("humanoid", humanoid())
register_task("reacher", reacher())
