"""Slopes of the forces of joints and of the fluid: minus their derivatives with respect to positions and velocities, where positive.

MuJoCo's integrator discrete adds them to the mass matrix. Source: MuJoCo 4.0's documentation, Computation, Numerical integration.
"""

from __future__ import annotations

from typing import NamedTuple

from xsim.dynamics.forces.medium import drag_damping
from xsim.dynamics.forces.passive import quadratic, spring_displacements
from xsim.dynamics.linalg.sparse import Quadratic, positive
from xsim.dynamics.tree.kinematics import Frames
from xsim.dynamics.tree.polynomials import dof_damping, dof_stiffness, slope
from xsim.dynamics.tree.system import System
from xsim.spatial import mul


class Slopes(NamedTuple):
    """Minus d force / d velocity and minus d force / d position, symmetric and positive semidefinite (nv, nv)."""

    damping: Quadratic
    stiffness: Quadratic

    def metric(self, dt) -> list:
        """(factor, matrix) pairs: the part of the metric M + dt damping + dt^2 stiffness beside M."""
        return [(dt, self.damping), (mul(dt, dt), self.stiffness)]


def joint_slopes(system: System, frame: Frames, q, v) -> Slopes:
    """The slopes of joint springs, joint dampers and the drag of the fluid."""
    if "passive" in system.topology.disabled:
        zero = [0.0] * len(v)
        return Slopes(Quadratic(zero, {}), Quadratic(list(zero), {}))
    damping = quadratic(system, frame, [positive(x) for x in dof_damping(system, v, slope)], "damper")
    stiffness = dof_stiffness(system, spring_displacements(system, q), slope)
    drag_damping(system, frame, v, damping)
    return Slopes(damping, quadratic(system, frame, [positive(x) for x in stiffness], "spring"))
