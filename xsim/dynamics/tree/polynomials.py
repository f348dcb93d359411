"""Springs and dampers of joints and tendons whose force is a polynomial. Source: MuJoCo's documentation, attributes stiffness and damping.

A damper with the coefficients (a, b, c) and the velocity v has the force -(a v + b v |v| + c v^3). A spring with the displacement x has the
force -(a x + b x^2 + c x^3); x is the angle of a ball's rotation vector r, and -(a + b x + c x^2) r the force.
"""

from __future__ import annotations

import jax.numpy as jnp

from xsim.dynamics.tree.system import System
from xsim.model.topology import JointInfo
from xsim.spatial import mul, neg, safe_norm, stage, total


@stage
def coefficient(linear, higher, x):
    """a + b x + c x^2, the force per displacement or per velocity. linear: a. higher: (b, c)."""
    return total([linear, mul(higher[0], x), mul(higher[1], mul(x, x))])


@stage
def slope(linear, higher, x):
    """a + 2 b x + 3 c x^2, the derivative of x times the coefficient."""
    return total([linear, mul(2.0, mul(higher[0], x)), mul(3.0, mul(higher[1], mul(x, x)))])


@stage
def potential(linear, higher, x):
    """The energy of a spring, a x^2 / 2 + b x^3 / 3 + c x^4 / 4, J."""
    mean = total([mul(0.5, linear), mul(1.0 / 3.0, mul(higher[0], x)), mul(0.25, mul(higher[1], mul(x, x)))])
    return mul(mean, mul(x, x))


def dof_stiffness(system: System, displacements: list, of=coefficient) -> list:
    """The force of the joint springs per displacement (nv). displacements (nv): from q to the reference configuration. of: `slope` for
    minus the derivative of the force along the displacement."""
    out = list(system.dof.stiffness)
    for joint in system.topology.joints:
        if joint.stiffness_poly is not None:
            for dofs, x in joint_displacements(joint, displacements):
                for dof in dofs:
                    out[dof] = of(out[dof], system.joint.stiffness_poly[joint.stiffness_poly], x)
    return out


def joint_displacements(joint: JointInfo, displacements: list) -> list[tuple]:
    """(dofs, x) of the springs of a joint: one of a hinge or slide, one of a ball, those of the two halves of a free joint."""
    first, width = joint.v
    if width == 1:
        return [((first,), neg(displacements[first]))]
    halves = [range(start, start + 3) for start in range(first, first + width, 3)]
    return [(dofs, safe_norm(tuple(displacements[dof] for dof in dofs))) for dofs in halves]


def dof_damping(system: System, v: list, of=coefficient) -> list:
    """The force of the joint dampers per velocity (nv), with the sign changed. of: `slope` for minus the derivative of the force."""
    out = list(system.dof.damping)
    for joint in system.topology.joints:
        if joint.damping_poly is not None:
            for dof in range(joint.v[0], sum(joint.v)):
                out[dof] = of(out[dof], system.joint.damping_poly[joint.damping_poly], jnp.abs(v[dof]))
    return out


def tendon_stiffness(system: System, tendon: int, extension, of=coefficient):
    """The force of a tendon's spring per extension, N/m, with the sign changed. of: `slope` for minus the derivative of the force,
    `potential` for the energy, J."""
    row = system.topology.tendons[tendon].stiffness_poly
    higher = (0.0, 0.0) if row is None else system.tendon.stiffness_poly[row]
    return of(system.tendon.stiffness[tendon], higher, extension)


def tendon_damping(system: System, tendon: int, rate, of=coefficient):
    """The force of a tendon's damper per rate of its length, N s/m, with the sign changed. of: `slope` for minus the derivative."""
    row = system.topology.tendons[tendon].damping_poly
    linear = system.tendon.damping[tendon]
    return linear if row is None else of(linear, system.tendon.damping_poly[row], jnp.abs(rate))
