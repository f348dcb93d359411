"""Derivatives of the smooth forces with respect to the velocities, for integrators that are implicit in velocity.

Source: MuJoCo's documentation, Computation, Numerical integration. As in MuJoCo, entries between dofs of different branches are left out
(tendons and actuators can have such entries). The matrix then has the sparsity of the mass matrix.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from xsim.dynamics.actuation.actuation import (
    actuator_forces,
    dof_bounds,
    force_laws,
    limited_force,
    motion_of,
    signals,
    tendon_bounds,
    tendon_sums,
    unlimited_forces,
)
from xsim.dynamics.actuation.controllers import ControllerState
from xsim.dynamics.actuation.laws import depends_on
from xsim.dynamics.actuation.orientation import gain_within
from xsim.dynamics.flex.kinematics import edge_damping
from xsim.dynamics.forces.medium import medium_force
from xsim.dynamics.forces.passive import damping_matrix
from xsim.dynamics.linalg.sparse import Quadratic, add_outer_product, add_pair
from xsim.dynamics.tendons.tendons import LengthAndJacobian, rate
from xsim.dynamics.tree.kinematics import Frames, inverse_dynamics
from xsim.dynamics.tree.polynomials import slope, tendon_damping
from xsim.dynamics.tree.system import System
from xsim.model.topology import ActuatorInfo
from xsim.registry import ACTUATOR_CONTROLLERS
from xsim.spatial import add, mul, neg, stage


def damping_derivatives(
    system: System, frame: Frames, v, act, ctrl, tendon: list[LengthAndJacobian], transmission: list[LengthAndJacobian], all_edges=False
) -> Quadratic:
    """Minus the symmetric part of d force / d velocity of passive and actuator forces.

    tendon, transmission: length and Jacobian of each tendon and of each actuator. all_edges: see `edge_damping`."""
    out = damping_matrix(system, frame, v, slope)
    out = Quadratic(list(out.diagonal), dict(out.blocks))
    if "passive" in system.topology.disabled:
        out = Quadratic([0.0] * len(v), {})
    else:
        for i, t in enumerate(tendon):
            add_outer_product(system, out, t.row, tendon_damping(system, i, rate(t.row, v), slope))
        diagonal, pairs = edge_damping(system, frame, all_edges)
        for i, x in enumerate(diagonal):
            out.diagonal[i] = add(out.diagonal[i], x)
        for (i, j), x in pairs.items():
            add_pair(out, i, j, x)
        if system.medium.density:
            _add_symmetric_part(system, out, _medium_derivatives(system, frame, v))
    if system.topology.actuators and "actuation" not in system.topology.disabled:
        derivatives = actuator_derivatives(system, frame, v, act, ctrl, transmission)
        for derivative, t in zip(derivatives, transmission, strict=True):
            add_outer_product(system, out, t.row, derivative)
    return out


def actuator_derivatives(system: System, frame: Frames, v, act, ctrl, transmission: list[LengthAndJacobian], of="velocity") -> list:
    """Minus the derivative of each force of actuators with respect to the velocity of its transmission; of="length": to its length, at
    fixed signals of controllers."""
    clamped, bounds = system.topology.switches.clamped_gains, dof_bounds(system)
    motion, out, sums = motion_of(transmission, v), [], {}
    signal = signals(system, motion, act, ctrl)
    if any(t.force_range is not None for t in system.topology.tendons):
        sums = tendon_sums(system, unlimited_forces(system, motion, signal))
    tau = actuator_forces(system, frame, v, act, ctrl, transmission).unclamped if clamped and bounds else []
    for i, (info, law) in enumerate(zip(system.topology.actuators, force_laws(system), strict=True)):
        if not info.enabled or not (isinstance(signal[i], ControllerState) or depends_on(of, info.gain, info.bias)):
            out += [0.0] * len(info.outputs)
            continue
        if len(info.outputs) > 1:
            gain = system.actuator.gain[i][0] if of == "length" else neg(system.actuator.bias[i][2])
            out += _orientation_derivatives(gain, info, law, signal[i])
            continue
        law = law if clamped else law._replace(limits=None)
        derivative = _force_derivative(info, law, motion.lengths[info.output], motion.velocities[info.output], signal[i], of)
        if info.transmission == "tendon" and info.target in sums:
            derivative = _zero_beyond(derivative, sums[info.target], tendon_bounds(system, info.target))
        derivative = add(derivative, _friction_derivative(info, signal[i], of))
        for dof, _ in transmission[info.output].row if tau and isinstance(info.target, tuple) else ():
            derivative = _zero_beyond(derivative, tau[dof], bounds[dof]) if dof in bounds else derivative
        out.append(derivative)
    return out


def _orientation_derivatives(gain, info: ActuatorInfo, law, signal) -> list:
    """Minus the derivatives of the torques of an orientation servo with respect to its rotations or its angular velocities. gain: its
    stiffness or its damping."""
    if law.limits is not None:
        torque = limited_force(info, law._replace(limits=None), signal.length, signal.velocity, signal)
        gain = gain_within(gain, torque, law.limits[1])
    return [gain] * len(info.outputs)


@stage
def _zero_beyond(x, force, bounds):
    """x where a force is between its bounds, else zero."""
    lower, upper = bounds
    return jnp.where((force > lower) & (force < upper), x, 0.0)


def _force_derivative(info: ActuatorInfo, law, length, velocity, signal, of: str):
    """Minus the derivative of an actuator's force with respect to the velocity or the length of its transmission."""

    def force(x):
        motion = (x, velocity) if of == "length" else (length, x)
        return limited_force(info, law, *motion, signal)

    x = jnp.asarray(length if of == "length" else velocity)
    return neg(jax.jvp(force, (x,), (jnp.ones_like(x),))[1])


def _friction_derivative(info: ActuatorInfo, signal, of: str):
    if not isinstance(signal, ControllerState):
        return 0.0
    controller = ACTUATOR_CONTROLLERS[info.controller]
    derivative = controller.friction_damping if of == "velocity" else controller.friction_stiffness
    return 0.0 if derivative is None else derivative(signal)


def _columns(fn, v, dofs) -> dict[int, list]:
    """The columns of d fn / d v for these dofs: {dof: column}. fn takes and returns lists of components."""
    if not dofs:
        return {}
    v = jnp.stack(jnp.broadcast_arrays(*v))
    unit = np.eye(len(v), dtype=v.dtype)[list(dofs)].reshape(len(dofs), len(v), *([1] * (v.ndim - 1))) * jnp.ones_like(v)

    def column(tangent):
        return jax.jvp(lambda x: jnp.stack([f + 0.0 * x[0] for f in fn(list(x))]), (v,), (tangent,))[1]

    # vmap: one program for all columns.
    return {dof: list(x) for dof, x in zip(dofs, jax.vmap(column)(unit), strict=True)}


def _medium_derivatives(system: System, frame: Frames, v) -> dict[int, list]:
    columns = _columns(lambda x: medium_force(system, frame, x), v, range(len(v)))
    return {dof: [neg(x) for x in column] for dof, column in columns.items()}


def _add_symmetric_part(system: System, out: Quadratic, columns) -> None:
    """Add the symmetric part of a matrix given by columns, without entries between different branches."""
    for j, column in columns.items():
        out.diagonal[j] = add(out.diagonal[j], column[j])
        for i in system.tables.ancestors[j]:
            add_pair(out, i, j, mul(0.5, add(column[i], columns[i][j])))


def free_body_dofs(system: System) -> tuple[int, ...]:
    """Dofs of free joints that are the only moving joint of their tree. MuJoCo 4.0's ``implicitfast`` uses their full derivatives."""
    descendants = system.tables.descendants
    free = [range(joint.v[0], sum(joint.v)) for joint in system.topology.joints if joint.type == "free"]
    return tuple(dof for dofs in free if all(k in dofs for k in descendants[dofs[0]]) for dof in dofs)


def bias_derivatives(system: System, frame: Frames, inertia, q, v, dofs) -> dict[int, list]:
    """The derivatives of Coriolis forces with respect to the velocities of these dofs: {dof: column}."""
    return _columns(lambda x: inverse_dynamics(system, frame, inertia, q, x), v, dofs)


def velocity_derivatives(
    system: System, frame: Frames, inertia, q, v, act, ctrl, tendon: list[LengthAndJacobian],
    transmission: list[LengthAndJacobian], dofs=None,
) -> Quadratic:  # fmt: skip
    """Minus d force / d velocity of all smooth forces, Coriolis forces included; not symmetric.

    dofs: the dofs with full derivatives (see `free_body_dofs`), None for all. The other dofs have those of `damping_derivatives`."""
    dofs = range(len(v)) if dofs is None else dofs
    columns = bias_derivatives(system, frame, inertia, q, v, dofs)
    out = damping_derivatives(system, frame, v, act, ctrl, tendon, transmission, True)
    medium = _medium_derivatives(system, frame, v) if system.medium.density and "passive" not in system.topology.disabled else None
    for j, column in columns.items():
        out.diagonal[j] = add(out.diagonal[j], column[j])
        for i in (*system.tables.ancestors[j], *system.tables.descendants[j]):
            entry = column[i]
            if medium is not None:
                # The skew part: `damping_derivatives` has the symmetric part.
                entry = add(entry, mul(0.5, add(medium[j][i], neg(medium[i][j]))))
            out.blocks[i, j] = add(out.blocks[i, j], entry) if (i, j) in out.blocks else entry
    return out
