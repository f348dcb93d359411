"""Velocity stepping in the metric W = M + h D + h^2 K (MuJoCo's integrator ``discrete``).

The acceleration a over a step of h solves W a = f(q, v) - h K v + J^T (constraint forces). D and K are minus the derivatives of smooth
forces with respect to v and q, where positive: of joints, the fluid's drag, tendons, actuators and flexes. The constraints minimize their
function in the metric W. Source: MuJoCo 4.0's documentation, Computation, Numerical integration; probes of MuJoCo 4.0.0.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from xsim.dynamics.actuation.transmissions import transmissions
from xsim.dynamics.constraints.narrowphase import Detection
from xsim.dynamics.constraints.soft_set import Constraints, constraints, has_soft
from xsim.dynamics.flex.slopes import flex_slopes
from xsim.dynamics.forces.slopes import joint_slopes
from xsim.dynamics.integration.velocity_derivatives import actuator_derivatives, bias_derivatives, free_body_dofs
from xsim.dynamics.linalg.sparse import Quadratic, add_outer_product, is_chain, positive
from xsim.dynamics.tendons.tendons import LengthAndJacobian, tendon_slopes, tendons
from xsim.dynamics.tree.kinematics import Frames, frames, has_lanes
from xsim.dynamics.tree.system import System
from xsim.registry import INTEGRATORS
from xsim.spatial import add, is_zero, mul


class StepMetric(NamedTuple):
    """The parts of W beside M.

    * damping, stiffness: D and K between dofs of one branch.
    * couplings: (row, k, d) of the tendons and actuators that act between branches: row^T row times k in K and times d in D.
    * flexes: D and K of flexes and their passive contacts (nv, nv, lanes or 1). None without.
    * gyroscopic: minus d force / d velocity of Coriolis forces of free bodies that nothing else holds, not symmetric. None without one.
    """

    damping: Quadratic
    stiffness: Quadratic
    couplings: list
    flexes: tuple | None
    gyroscopic: Quadratic | None


def step_metric(
    system: System, frame: Frames, inertia, q, v, act, ctrl, tendon: list[LengthAndJacobian], transmission: list[LengthAndJacobian],
    soft: Constraints | None,
) -> StepMetric:  # fmt: skip
    """The metric of a step from a state. tendon, transmission: length and Jacobian of each tendon and of each force of actuators."""
    rows = _rows_with_slopes(system, frame, v, act, ctrl, tendon, transmission)
    damping, stiffness = joint_slopes(system, frame, q, v)
    couplings = []
    for row, k, d in rows:
        if is_chain(system, row):
            add_outer_product(system, stiffness, row, k)
            add_outer_product(system, damping, row, d)
        else:
            couplings.append((row, k, d))
    flexes, held = flex_slopes(system, frame), []
    if soft is not None:
        held += soft.touched()
        if soft.passive is not None and "passive" not in system.topology.disabled:
            flex_damping, flex_stiffness = (0.0, 0.0) if flexes is None else flexes
            flexes = flex_damping + jnp.zeros_like(soft.passive.stiffness), flex_stiffness + soft.passive.stiffness
    if flexes is not None:
        held += [jnp.stack([x[i, i] for i in range(len(v))]) for x in flexes]
    return StepMetric(damping, stiffness, couplings, flexes, _gyroscopic(system, frame, inertia, q, v, rows, held))


def constraints_of_step(system: System, q, v, act, ctrl, detection: Detection | None = None) -> Constraints | None:
    """The soft constraints of the model's integrator at a state. detection: see `constraints`.

    The mobilities of rows in the metric W take of tendons and actuators only the diagonals of their matrices."""
    if not (has_soft(system.topology) and INTEGRATORS[system.topology.integrator].by_step):
        return constraints(system, q, v, detection)
    frame = frames(system, q)
    tendon = tendons(system, frame, q)
    slopes = joint_slopes(system, frame, q, v)
    for row, k, d in _rows_with_slopes(system, frame, v, act, ctrl, tendon, transmissions(system, frame, q, tendon)):
        for dof, x in row:
            for matrix, factor in ((slopes.stiffness, k), (slopes.damping, d)):
                matrix.diagonal[dof] = add(matrix.diagonal[dof], mul(factor, mul(x, x)))
    return constraints(system, q, v, detection, slopes.metric(system.option.dt))


def _rows_with_slopes(system: System, frame: Frames, v, act, ctrl, tendon, transmission) -> list[tuple]:
    """(row, k, d) of each tendon and each force of actuators that has slopes."""
    out = []
    if "passive" not in system.topology.disabled:
        out += [(t.row, k, d) for t, (k, d) in zip(tendon, tendon_slopes(system, tendon, v), strict=True)]
    if system.topology.actuators and "actuation" not in system.topology.disabled:
        slopes = (actuator_derivatives(system, frame, v, act, ctrl, transmission, of) for of in ("length", "velocity"))
        out += [(t.row, k, d) for t, k, d in zip(transmission, *slopes, strict=True)]
    out = [(row, positive(k), positive(d)) for row, k, d in out]
    return [(row, k, d) for row, k, d in out if not (is_zero(k) and is_zero(d))]


def _gyroscopic(system: System, frame: Frames, inertia, q, v, rows: list, held: list) -> Quadratic | None:
    """See `StepMetric.gyroscopic`. rows: of `_rows_with_slopes`. held: arrays (nv, lanes or 1), positive where something else holds a
    dof."""
    dofs = free_body_dofs(system) if system.topology.switches.free_bodies_fully_implicit else ()
    if not dofs:
        return None
    out = Quadratic([0.0] * len(v), {})
    lanes = has_lanes(system, frame, v)
    derivatives = bias_derivatives(system, frame, inertia, q, v, dofs)
    for first in dofs[::6]:
        body = range(first, first + 6)
        holds = [add(k, d) for row, k, d in rows if any(dof in body for dof, _ in row)]
        holds += [x[dof] if lanes else x[dof, 0] for x in held for dof in body]
        free = 1.0
        for hold in holds:
            free = mul(free, jnp.where(hold > 0.0, 0.0, 1.0))
        for j in body:
            out.diagonal[j] = mul(free, derivatives[j][j])
            out.blocks.update({(i, j): mul(free, derivatives[j][i]) for i in body if i != j})
    return out
