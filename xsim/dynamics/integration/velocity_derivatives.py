"""Derivatives of the smooth forces by the velocities, for integrators that are implicit in velocity.

Source: MuJoCo's documentation, Computation, Numerical integration. As there, tendons and actuators that couple dofs of different branches
count within the branches only, which keeps the sparsity of the mass matrix.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.actuation.actuation import controls, force, laws
from xsim.dynamics.actuation.laws import depends_on_velocity
from xsim.dynamics.flex.kinematics import edge_damping
from xsim.dynamics.forces.medium import medium_force
from xsim.dynamics.forces.passive import quadratic
from xsim.dynamics.linalg.sparse import Quadratic
from xsim.dynamics.tendons.tendons import LengthAndJacobian, rate
from xsim.dynamics.tree.kinematics import Frames, inverse_dynamics
from xsim.dynamics.tree.system import System
from xsim.spatial import add, mul, neg, stage


def damping_derivatives(
    system: System, frame: Frames, v, act, ctrl, tendon: list[LengthAndJacobian], driven: list[LengthAndJacobian], whole=False
) -> Quadratic:
    """Minus the symmetric part of d force / d velocity of passive and actuator forces. tendon: tendons, driven: what actuators act on.
    whole: see `edge_damping`."""
    out = quadratic(system, frame, system.dof.damping, "damper")
    out = Quadratic(list(out.diagonal), dict(out.blocks))
    if "passive" in system.topology.disabled:
        out = Quadratic([0.0] * len(v), {})
    else:
        for one, b in zip(tendon, system.tendon.damping, strict=True):
            _add_square(system, out, one.row, b)
        diagonal, pairs = edge_damping(system, frame, whole)
        for i, x in enumerate(diagonal):
            out.diagonal[i] = add(out.diagonal[i], x)
        for (i, j), x in pairs.items():
            _add_pair(out, i, j, x)
        if system.medium.density:
            _add_matrix(system, out, _medium_slopes(system, frame, v))
    if system.topology.actuators and "actuation" not in system.topology.disabled:
        for slope, one in zip(_actuator_slopes(system, v, act, ctrl, driven), driven, strict=True):
            _add_square(system, out, one.row, slope)
    return out


def _add_square(system: System, out: Quadratic, row, factor) -> None:
    """Add factor row^T row."""
    if isinstance(factor, float) and factor == 0.0:
        return
    for i, x in row:
        out.diagonal[i] = add(out.diagonal[i], mul(factor, mul(x, x)))
        for j, y in row:
            if j in system.tables.before[i]:
                _add_pair(out, i, j, mul(factor, mul(x, y)))


def _add_pair(out: Quadratic, i: int, j: int, x) -> None:
    for place in ((i, j), (j, i)):
        out.blocks[place] = add(out.blocks[place], x) if place in out.blocks else x


def _actuator_slopes(system: System, v, act, ctrl, driven: list[LengthAndJacobian]) -> list:
    """Minus the rate of each actuator's force with the rate of its length, at the activations as they are."""
    clamped = system.topology.switches.clamped_gains
    out, signal = [], controls(system, ctrl)
    for i, (info, law) in enumerate(zip(system.topology.actuators, laws(system), strict=True)):
        if not info.enabled or not depends_on_velocity(info.gain, info.bias):
            out.append(0.0)
            continue
        x = signal[i] if info.act is None else act[info.act]
        own = law if clamped else law._replace(limits=None)
        out.append(_slope(own, driven[i].length, rate(driven[i].row, v), x))
    return out


@stage
def _slope(law, length, rate, signal):
    rate = jnp.asarray(rate)
    slope = jax.jvp(lambda r: force(law, length, r, signal), (rate,), (jnp.ones_like(rate),))[1]
    return neg(slope)


def _columns(fn, v, dofs) -> dict[int, list]:
    """d fn / d v of these dofs, by columns; fn of a list gives a list."""
    v = jnp.stack(jnp.broadcast_arrays(*v))
    unit = np.eye(len(v))[list(dofs)].reshape(len(dofs), len(v), *([1] * (v.ndim - 1))) * jnp.ones_like(v)

    def moved(tangent):
        return jax.jvp(lambda x: jnp.stack([f + 0.0 * x[0] for f in fn(list(x))]), (v,), (tangent,))[1]

    # All columns in one program.
    return {dof: list(column) for dof, column in zip(dofs, jax.vmap(moved)(unit), strict=True)}


def _medium_slopes(system: System, frame: Frames, v) -> dict[int, list]:
    columns = _columns(lambda x: medium_force(system, frame, x), v, range(len(v)))
    return {dof: [neg(x) for x in column] for dof, column in columns.items()}


def _add_matrix(system: System, out: Quadratic, columns) -> None:
    """Add the symmetric part of a matrix, within the branches."""
    for j, column in columns.items():
        out.diagonal[j] = add(out.diagonal[j], column[j])
        for i in system.tables.before[j]:
            _add_pair(out, i, j, mul(0.5, add(column[i], columns[i][j])))


def lone_free(system: System) -> tuple[int, ...]:
    """Dofs of the free joints of bodies on which no other joint moves: under the rules 4.0 ``implicitfast`` takes their slopes in full."""
    after = system.tables.after
    free = [range(joint.v[0], sum(joint.v)) for joint in system.topology.joints if joint.type == "free"]
    return tuple(dof for dofs in free if all(k in dofs for k in after[dofs[0]]) for dof in dofs)


def velocity_derivatives(
    system: System, frame: Frames, inertia, q, v, act, ctrl, tendon: list[LengthAndJacobian], driven: list[LengthAndJacobian], dofs=None
) -> Quadratic:
    """Minus d force / d velocity of all smooth forces, those of Coriolis included: not symmetric. dofs: those of which it is so, as of
    `lone_free`, of the others `damping_derivatives`; None: all."""
    dofs = range(len(v)) if dofs is None else dofs
    columns = _columns(lambda x: inverse_dynamics(system, frame, inertia, q, x), v, dofs)
    out = damping_derivatives(system, frame, v, act, ctrl, tendon, driven, True)
    medium = _medium_slopes(system, frame, v) if system.medium.density and "passive" not in system.topology.disabled else None
    for j, column in columns.items():
        out.diagonal[j] = add(out.diagonal[j], column[j])
        for i in (*system.tables.before[j], *system.tables.after[j]):
            more = column[i]
            if medium is not None:
                more = add(more, mul(0.5, add(medium[j][i], neg(medium[i][j]))))
            out.blocks[i, j] = add(out.blocks[i, j], more) if (i, j) in out.blocks else more
    return out
