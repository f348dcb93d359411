"""From poses of bodies to a state: inverse kinematics by Gauss and Newton."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..model import Model, State
from ..spatial import quat_conj, quat_log, quat_mul
from . import kinematics as kin
from .step import Call, init, integrate


def state_from_poses(model: Model, pos, quat, lin=None, ang=None, *, time=0.0, start=None, iterations: int = 50):
    """The state whose bodies have these poses and velocities, as nearly as the joints allow (least squares over all bodies).

    pos (*batch, nbody, 3) m, quat (*batch, nbody, 4): body frames in the world. lin (m/s), ang (rad/s), (*batch, nbody, 3): velocities of
    their origins and angular velocities, world axes; None: at rest. start: q to begin at, (nq,); None: where a state starts.
    Returns the state and the residual (*batch,): the largest remaining error of a position (m) or rotation (rad). Holonomic constraints are
    not looked at: `xsim.project` does that.
    """
    pos, quat = (jnp.asarray(x, model.option.dt.dtype) for x in (pos, quat))
    batch = pos.shape[:-2]
    q = jnp.broadcast_to(init(model).q if start is None else jnp.asarray(start), (*batch, model.nq))

    def nearer(_, q):
        error, jacobian = _errors(model, q, pos, quat)
        return integrate(model, q, _least(jacobian, error))

    q = jax.lax.fori_loop(0, iterations, nearer, q)
    error, jacobian = _errors(model, q, pos, quat)
    v = jnp.zeros((*batch, model.nv), q.dtype)
    if lin is not None or ang is not None:
        lin, ang = (jnp.zeros_like(pos) if x is None else jnp.asarray(x, q.dtype) for x in (lin, ang))
        v = _least(jacobian, jnp.concatenate([lin, ang], -1).reshape(*batch, -1))
    state = init(model, q, v)
    return state.replace(time=state.time + time), jnp.abs(error).max(-1, initial=0.0)


@jax.jit
def _errors(model: Model, q, pos, quat):
    """What is missing to the poses, (*batch, 6 nbody), and the Jacobian of the bodies' motions, (*batch, 6 nbody, nv)."""
    c = Call(model, q)
    frame = kin.frames(c.system, c.q)
    poses, origins = kin.body_poses(c.system, frame), kin.body_origins(c.system, frame)
    wanted_pos, wanted_quat = c.lanes.split(pos, 2), c.lanes.split(quat, 2)
    error, rows = [], []
    for body, pose, x, p, r in zip(model.topology.bodies, poses, origins, wanted_pos, wanted_quat, strict=True):
        error += [a - b for a, b in zip(p, pose.pos, strict=True)]
        error += quat_log(quat_mul(r, quat_conj(pose.quat)))
        chain = c.system.tables.chain[body.link] if body.link >= 0 else ()
        motions = {d: (kin.point_velocity(frame.subspace[d], x), frame.subspace[d].ang) for d in chain}
        for part in (0, 1):
            rows += [[motions[d][part][k] if d in motions else 0.0 for d in range(model.nv)] for k in range(3)]
    return c.join(error), c.join(rows, 2)


def _least(jacobian, error):
    normal = jnp.swapaxes(jacobian, -1, -2)
    a = normal @ jacobian + 1e-14 * jnp.eye(jacobian.shape[-1])
    return jnp.linalg.solve(a, normal @ error[..., None])[..., 0]
