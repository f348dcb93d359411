"""Initial states: from the model file, from keyframes, from poses of bodies; projection onto the constraints."""

from __future__ import annotations

import functools
import math
import warnings

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.actuation.orientation import QUATERNION
from xsim.dynamics.call import Call, check_model, check_width, compiled
from xsim.dynamics.constraints.holonomic import has_holonomic_rows, holonomic_errors
from xsim.dynamics.forces.armature import mass_with_armature
from xsim.dynamics.forces.plasticity import rest_positions
from xsim.dynamics.integration.projection import newton_step, project_velocity
from xsim.dynamics.layout import batch_shape, spread
from xsim.dynamics.linalg.sparse import factorize, solve
from xsim.dynamics.queries import integrate
from xsim.dynamics.sharding import divided
from xsim.dynamics.tree import kinematics as kin
from xsim.dynamics.tree.frames import coordinate_addresses
from xsim.dynamics.tree.system import body_inertias
from xsim.model.model import Model, State, as_array, unfrozen
from xsim.model.topology import ActuatorInfo
from xsim.spatial import (
    Motion,
    add,
    block_loop_hoisting,
    cross,
    inertia_move,
    madd,
    matrix,
    momentum,
    mul,
    quat_conj,
    quat_log,
    quat_mul,
    scale,
    sub,
    vsub,
)

__all__ = ["find_key", "constraint_error", "init", "project_constraints", "state_at", "state_from_poses"]

WARN_CHANGE = 1e-6
"""Largest change of an initial state by the constraints without a warning (m or rad, m/s or rad/s)."""


def state_at(model: Model, q, v, time=0.0, act=None, mocap=None, plastic=None) -> State:
    """The state with these values, unchanged. q (*batch, nq), v (*batch, nv), act (*batch, na; default zero), mocap (*batch, nmocap, 7;
    default the poses of the model), plastic (*batch, nplastic; default, and where NaN, the rest positions of the model). No control and no
    measurement precedes it."""
    batch, dtype = q.shape[:-1], q.dtype
    act = as_array(np.zeros((*batch, model.na)), dtype) if act is None else act
    mocap = _mocap_poses(model, dtype) if mocap is None else mocap
    time, flags = jnp.broadcast_to(as_array(time, dtype), batch), as_array(np.zeros(batch), jnp.int32)
    rest = _rest_positions(model, q)
    plastic = rest if plastic is None else jnp.where(jnp.isnan(plastic), rest, plastic)
    return State(
        q=q,
        v=v,
        time=time,
        flags=flags,
        act=jnp.broadcast_to(act, (*batch, model.na)),
        mocap=jnp.broadcast_to(mocap, (*batch, *mocap.shape[-2:])),
        history=jnp.broadcast_to(_no_history(model, dtype), (*batch, model.topology.size("nhistory"))),
        plastic=jnp.broadcast_to(plastic, (*batch, model.topology.size("nplastic"))),
    )


def _mocap_poses(model: Model, dtype):
    """The poses of the mocap bodies as the model has them (*batch, nmocap, 7)."""
    rows = np.array([i for i, body in enumerate(model.topology.bodies) if body.mocap is not None], int)
    if not len(rows):
        return as_array(np.zeros((0, 7)), dtype)
    leaves = model.body.pos, model.body.quat
    pos, quat = (jnp.asarray(unfrozen(x))[..., rows, :] for x in leaves)
    poses = jnp.broadcast_shapes(pos.shape[:-1], quat.shape[:-1])
    return jnp.concatenate([jnp.broadcast_to(x, (*poses, x.shape[-1])) for x in (pos, quat)], -1)


def _rest_positions(model: Model, q):
    """The rest positions of the springs that yield, as the model has them (*batch, nplastic)."""
    if not model.topology.size("nplastic"):
        return as_array(np.zeros(0), q.dtype)
    return _joined_rest_positions(model, q)


@compiled
def _joined_rest_positions(model: Model, q):
    c = Call(model, q)
    return c.join(rest_positions(c.system, c.q))


def _neutral_control(actuator: ActuatorInfo) -> tuple[float, ...]:
    """The controls of an actuator before any command: zero, and the identity for a quaternion."""
    return (1.0, 0.0, 0.0, 0.0) if actuator.inputs == QUATERNION else (0.0,) * len(actuator.controls)


def _no_history(model: Model, dtype):
    """`State.history` of an environment in which nothing has been commanded or measured: neutral samples at the last time steps, or at the
    last times at which a sensor would have measured."""
    owners = [(a.history, (0.0, 0.0), _neutral_control(a)) for a in model.topology.actuators]
    owners += [(s.history, s.interval, (0.0,) * s.dim) for s in model.topology.sensors]
    if all(history is None for history, *_ in owners):
        return as_array(np.zeros(0), dtype)
    dt, parts = jnp.asarray(unfrozen(model.option.dt), dtype)[..., None], []
    for history, (period, phase), neutral in owners:
        if history is None:
            continue
        count = history.samples
        ages = jnp.arange(count - 1, -1, -1, dtype=dtype)
        last = (phase or -period) if period else -dt
        times = last - ages * period if period else -(1 + ages) * dt
        times = jnp.ceil(times / dt - 1e-3) * dt if period else times
        samples = jnp.broadcast_to(jnp.tile(jnp.asarray(neutral, dtype), count), (*times.shape[:-1], count * history.width))
        parts += [times, samples, *([jnp.full_like(dt, last)] if period else [])]
    return jnp.concatenate(parts, -1)


def find_key(model: Model, key):
    """The keyframe with this name or index. Raises KeyError for an unknown one."""
    keys = model.topology.keys
    names = [k.name for k in keys]
    if isinstance(key, str) and key in names:
        return keys[names.index(key)]
    if isinstance(key, int) and 0 <= key < len(keys):
        return keys[key]
    raise KeyError(f"no key {key!r}; keys: {', '.join(names) or 'none'}")


def init(model: Model, q=None, v=None, ctrl=None, *, key=None) -> State:
    """The initial state at time 0.

    q (*batch, nq), v (*batch, nv): default the initial state of the file, or the neutral configuration at rest. key: name or index of a
    keyframe whose state replaces these defaults. ctrl (*batch, nu): controls of the external functions. The batch shape is that of the
    model's per-environment leaves and of the arguments.

    If neither q nor v is given and the model has holonomic constraints, the state is projected onto them (see `project_constraints`). A
    model without a batch warns if that changes the state by more than 1e-6. Raises ValueError for a wrong width and KeyError for an unknown
    keyframe.
    """
    check_model("init", model)
    dtype = model.option.dt.dtype
    default_state, v_given = q is None and v is None, v
    named = None if key is None else find_key(model, key)
    defaults = model.topology.initial if named is None else (named.q, named.v)
    q, v = (as_array(np.array(x) if given is None else given, dtype) for given, x in zip((q, v), defaults, strict=True))
    check_width("q", q, model.nq)
    check_width("v", v, model.nv)
    batch = batch_shape(model, (q, 1), (v, 1))
    q, v = jnp.broadcast_to(q, (*batch, model.nq)), jnp.broadcast_to(v, (*batch, model.nv))
    if named is None:
        state = state_at(model, q, v)
    else:
        mocap = jnp.asarray(named.mocap, dtype).reshape(-1, 7)
        plastic = None if named.plastic is None else jnp.asarray(named.plastic, dtype)
        state = state_at(model, q, v, named.time, jnp.asarray(named.act, dtype), mocap, plastic)
    if v_given is None and named is None and model.topology.velocities:
        state = state.replace(v=_initial_velocity(model, state.q))
    state = divided(state, batch)
    if not default_state or not has_holonomic_rows(model.topology):
        return state
    consistent = project_constraints(model, state, ctrl)
    if not batch and not isinstance(consistent.q, jax.core.Tracer):
        for name, difference in (("configuration", consistent.q - state.q), ("velocity", consistent.v - state.v)):
            change = float(jnp.abs(difference).max(initial=0.0))
            if change > WARN_CHANGE:
                model_name = model.topology.name or "the model"
                text = f"{model_name}: the {name} at the start does not satisfy the constraints, moved by {change:.3g}"
                warnings.warn(text, stacklevel=2)
    return consistent


@compiled
def _initial_velocity(model: Model, q):
    """The velocity nearest to the body velocities of the file, in the metric of the mass matrix: v = M^-1 J^T P.

    P: momenta of the bodies at these velocities; bodies without a velocity in the file are at rest."""
    c = Call(model, q)
    system, top = c.system, model.topology
    frame = kin.frames(system, c.q)
    poses, origins, inertias = kin.body_poses(system, frame), kin.body_origins(system, frame), body_inertias(model, c.lanes)
    force: list = [None] * len(top.links)
    for body, given in top.velocities:
        inertia = inertia_move(matrix(poses[body].quat), origins[body], inertias[body])
        ang = given[3:]
        lin = vsub(given[:3], cross(ang, scale(inertia.first, 1.0 / inertia.mass)))
        link, body_momentum = top.bodies[body].link, momentum(inertia, Motion(ang, lin))
        force[link] = body_momentum if force[link] is None else madd(force[link], body_momentum)
    rows = mass_with_armature(system, frame, kin.link_inertias(system, frame))
    zero = 0.0 * rows[0][0]
    return c.join(solve(system, factorize(system, rows), [zero + f for f in kin.generalized_force(system, frame, force)]))


@functools.partial(compiled, static_argnames="iterations")
def project_constraints(model: Model, state: State, ctrl=None, iterations: int = 20) -> State:
    """The nearest state that satisfies the holonomic constraints at its time: loop joints, couplings, prescribed motions.

    ctrl (*batch, nu): controls of the external functions. The configuration is changed by Newton steps, each the least change in the metric
    of the mass matrix; then the velocity by one step. A consistent state does not change. If Newton's method does not converge in
    ``iterations`` steps, an error remains, see `constraint_error`.
    """
    c = Call(model, state.q, state.v, ctrl=ctrl, time=state.time, mocap=state.mocap)
    if not has_holonomic_rows(model.topology):
        return state
    q = jax.lax.fori_loop(0, iterations, lambda _, x: spread(newton_step(c.system, x), x), spread(c.q, c.system, c.q))
    q, v = c.join(q), c.join(project_velocity(c.system, q, c.v))
    batch = q.shape[:-1]
    time, flags = (jnp.broadcast_to(x, batch) for x in (state.time, state.flags))
    rest = {name: getattr(state, name) for name in ("act", "history", "plastic")}
    return state.replace(
        q=q, v=v, time=time, flags=flags, mocap=jnp.broadcast_to(state.mocap, (*batch, *state.mocap.shape[-2:])),
        **{name: jnp.broadcast_to(x, (*batch, x.shape[-1])) for name, x in rest.items()},
    )  # fmt: skip


@compiled
def constraint_error(model: Model, q, time=None, ctrl=None):
    """The violation of each holonomic row (*batch, rows), in m, rad or 1. time: s, default 0. ctrl (*batch, nu)."""
    c = Call(model, q, ctrl=ctrl, time=time)
    return c.join(holonomic_errors(c.system, kin.frames(c.system, c.q), c.q))


def state_from_poses(model: Model, poses, velocities=None, *, time=0.0, ctrl=None, q=None) -> tuple[State, jax.Array]:
    """The state whose bodies have these poses and velocities, and the residual.

    * poses: (pos (*batch, nbody, 3) in m, quat (*batch, nbody, 4)), body frames in the world, as from `kinematics`.
    * velocities: (lin (m/s), ang (rad/s)), each (*batch, nbody, 3), of the body origins in world axes; None: at rest.
    * time: s. ctrl (*batch, nu): controls of the external functions.
    * q (nq,): initial guess, default the initial configuration of the model.

    The configuration minimizes the squared errors of all bodies (Gauss-Newton). A hinge with a prescribed angle has the revolution nearest
    to the prescribed angle. The state is then projected onto the holonomic constraints (`project_constraints`). The residual (*batch,) is
    the largest remaining error of a position (m) or rotation (rad).
    """
    pos, quat = (jnp.asarray(x, model.option.dt.dtype) for x in poses)
    lin, ang = (jnp.zeros_like(pos),) * 2 if velocities is None else (jnp.asarray(x, pos.dtype) for x in velocities)
    start = jnp.asarray(model.topology.initial[0] if q is None else q, pos.dtype)
    check_width("q", start, model.nq)
    return _state_from_poses(model, pos, quat, lin, ang, jnp.asarray(time, pos.dtype), ctrl, start)


GAUSS_NEWTON_STEPS = 50
"""Consistent poses need a few steps; near singular configurations the convergence is slow."""


@compiled
def _state_from_poses(model: Model, pos, quat, lin, ang, time, ctrl, start):
    batch = batch_shape(model, *((x, 2) for x in (pos, quat, lin, ang)), (time, 0))
    pos, quat, lin, ang = (jnp.broadcast_to(x, (*batch, *x.shape[-2:])) for x in (pos, quat, lin, ang))
    q = jnp.broadcast_to(start, (*batch, model.nq))

    def step(_, q):
        q = block_loop_hoisting(q)
        error, jacobian = _errors(model, q, pos, quat)
        return integrate(model, q, _least_squares(jacobian, error))

    q = jax.lax.fori_loop(0, GAUSS_NEWTON_STEPS, step, q)
    _, jacobian = _errors(model, q, pos, quat)
    v = _least_squares(jacobian, jnp.concatenate([lin, ang], -1).reshape(*lin.shape[:-2], -1))
    if model.topology.motions:
        c = Call(model, q, ctrl=ctrl, time=time)
        for dof, target in model.topology.motions:
            link, address = coordinate_addresses(model.topology)[dof]
            prescribed = c.system.functions.targets[target][0]
            if link.kind == "hinge" and prescribed is not None:
                error = sub(prescribed, c.q[address])
                c.q[address] = add(c.q[address], mul(2 * math.pi, jnp.round(error / (2 * math.pi))))
        q = c.join(c.q)
    state = state_at(model, q, jnp.broadcast_to(v, (*batch, model.nv)), time)
    state = project_constraints(model, state, ctrl)
    error, _ = _errors(model, state.q, pos, quat)
    return state, jnp.abs(error).max(-1, initial=0.0)


@jax.jit
def _errors(model: Model, q, pos, quat):
    """Errors of the poses (*batch, 6 nbody), and the Jacobian of the body velocities (*batch, 6 nbody, nv)."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    poses, origins = kin.body_poses(c.system, frame), kin.body_origins(c.system, frame)
    given_pos, given_quat = c.lanes.split(pos, 2), c.lanes.split(quat, 2)
    error, rows = [], []
    for body, pose, x, p, r in zip(model.topology.bodies, poses, origins, given_pos, given_quat, strict=True):
        error += vsub(p, pose.pos)
        error += quat_log(quat_mul(r, quat_conj(pose.quat)))
        chain = c.system.tables.chain[body.link] if body.link >= 0 else ()
        motions = {d: (kin.point_velocity(frame.subspace[d], x), frame.subspace[d].ang) for d in chain}
        for part in (0, 1):
            rows += [[motions[d][part][k] if d in motions else 0.0 for d in range(model.nv)] for k in range(3)]
    return c.join(error), c.join(rows, 2)


def _least_squares(jacobian, error):
    """The least-squares solution of jacobian x = error, of least norm in directions that the poses do not determine."""
    transposed = jnp.swapaxes(jacobian, -1, -2)
    a = transposed @ jacobian
    regularization = 8 * float(jnp.finfo(a.dtype).eps) * jnp.trace(a, axis1=-2, axis2=-1)[..., None, None]
    a = a + jnp.where(regularization > 0, regularization, 1.0) * jnp.eye(a.shape[-1], dtype=a.dtype)
    return jnp.linalg.solve(a, transposed @ error[..., None])[..., 0]
